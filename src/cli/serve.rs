//! The flags of `serve`: their form. What a field may be called and hold is the folder's to say.

use super::ServerArgs;
use clap::Args;
use std::{path::PathBuf, str::FromStr};

/// A folder, what is done with it, and its server.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    /// The folder
    pub(crate) dir: PathBuf,
    /// Where and how to serve.
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Names tried for a folder, in order
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "index.html")]
    pub(crate) index: Vec<Name>,
    /// List folders that have no index
    #[arg(long)]
    pub(crate) listing: bool,
    /// Page for everything that is not there (single-page application)
    #[arg(long, value_name = "FILE")]
    pub(crate) spa: Option<Name>,
    /// Compress text on the fly
    #[arg(long)]
    pub(crate) compress: bool,
    /// Cache-Control of every file
    #[arg(long, value_name = "VALUE")]
    pub(crate) cache_control: Option<String>,
    /// A field for files by name, as '*.js:X-A:b'; repeatable
    #[arg(long = "header", value_name = "GLOB:NAME:VALUE")]
    pub(crate) headers: Vec<FieldRule>,
    /// Body of an error, as 404=404.html; repeatable
    #[arg(long = "error-page", value_name = "STATUS=FILE", hide_short_help = true)]
    pub(crate) error_pages: Vec<ErrorPage>,
    /// Serve dot files and backup copies too
    #[arg(long, hide_short_help = true)]
    pub(crate) hidden: bool,
    /// Follow symbolic links that stay inside the folder
    #[arg(long, hide_short_help = true)]
    pub(crate) follow_links: bool,
    /// Never serve NAME.br, NAME.zst or NAME.gz in place of NAME
    #[arg(long, hide_short_help = true)]
    pub(crate) no_precompressed: bool,
    /// Small files kept ready by each shard, in MiB; 0 keeps none. What is kept is at most 100 ms old
    #[arg(long, value_name = "MIB", default_value_t = 16, hide_short_help = true,
          value_parser = clap::value_parser!(u16).range(0..=4096))]
    pub(crate) file_cache: u16,
}

/// A name beneath the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name(pub(crate) String);

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Name, String> {
        let name = text.strip_prefix('/').unwrap_or(text);
        let is_plain = |segment: &str| !matches!(segment, "" | "." | "..");
        if name.split('/').all(is_plain) && !name.contains('\0') {
            Ok(Name(name.to_owned()))
        } else {
            Err("name a file inside the folder".into())
        }
    }
}

/// A field for the files whose name matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldRule {
    /// Which files.
    pub(crate) pattern: String,
    /// Its name.
    pub(crate) name: String,
    /// Its value.
    pub(crate) value: String,
}

impl FromStr for FieldRule {
    type Err = String;

    fn from_str(text: &str) -> Result<FieldRule, String> {
        let mut parts = text.splitn(3, ':');
        let (Some(pattern), Some(name), Some(value)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("write it as GLOB:NAME:VALUE".into());
        };
        let (name, value) = (name.trim(), value.trim_matches([' ', '\t']));
        Ok(FieldRule { pattern: pattern.into(), name: name.into(), value: value.into() })
    }
}

/// A page for a status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ErrorPage {
    /// 400 to 599.
    pub(crate) status: u16,
    /// The page.
    pub(crate) name: Name,
}

impl FromStr for ErrorPage {
    type Err = String;

    fn from_str(text: &str) -> Result<ErrorPage, String> {
        let (status, name) = text.split_once('=').ok_or("write it as STATUS=FILE")?;
        let status = status.parse().ok().filter(|status| (400..600).contains(status));
        let status = status.ok_or("an error has a status from 400 to 599")?;
        Ok(ErrorPage { status, name: name.parse()? })
    }
}
