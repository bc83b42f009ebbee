//! The command `serve`: from flags to a folder that is served.

use crate::{
    cli::{FieldRule, ServeArgs},
    failure::{Exit, Failure},
    run, startup,
};
use shardlet::handlers::files::{Files, FilesOptions, cache_rules::RuleError};
use std::process::ExitCode;

/// Serves until told to stop.
pub(crate) fn serve(args: &ServeArgs) -> Result<ExitCode, Failure> {
    let options = options(args)?;
    startup::check_folder(&args.dir)?;
    let files =
        Files::open(&args.dir, options).map_err(|error| startup::folder_failure(&args.dir, &error))?;
    run::run("serve", &args.server, move |shard| files.router(shard))
}

/// The options that the flags mean.
fn options(args: &ServeArgs) -> Result<FilesOptions, Failure> {
    let mut options = FilesOptions::default();
    options.index = args.index.iter().map(|name| name.0.clone()).collect();
    options.listing = args.listing;
    options.fallback = args.spa.as_ref().map(|name| name.0.clone());
    options.compress = args.compress;
    options.error_pages = args.error_pages.iter().map(|page| (page.status, page.name.0.clone())).collect();
    options.show_hidden = args.hidden;
    options.follow_links = args.follow_links;
    options.precompressed = !args.no_precompressed;
    options.cache_bytes = usize::from(args.file_cache) << 20;
    if let Some(value) = &args.cache_control {
        let added = options.rules.add("**", &[("Cache-Control", value)]);
        added.map_err(|error| usage("--cache-control", &error))?;
    }
    for FieldRule { pattern, name, value } in &args.headers {
        let added = options.rules.add(pattern, &[(name, value)]);
        added.map_err(|error| usage("--header", &error))?;
    }
    Ok(options)
}

fn usage(flag: &str, error: &RuleError) -> Failure {
    Failure::new(Exit::Usage, format!("{flag}: {error}"), "see shardlet serve --help")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{self, Command};

    fn read(words: &str) -> Result<FilesOptions, Failure> {
        let words = std::iter::once("shardlet").chain(words.split_whitespace());
        match cli::parse(words.map(Into::into)).expect("a valid line").command {
            Command::Serve(args) => options(&args),
            other => panic!("not serve: {other:?}"),
        }
    }

    #[test]
    fn every_flag_is_an_option() {
        let options = read(
            "serve www :0 --index a.html,b.html --listing --spa /app.html --compress --cache-control no-cache \
             --header *.js:X-A:b --error-page 404=errors/404.html --hidden --follow-links --no-precompressed \
             --file-cache 0",
        )
        .expect("options");
        assert_eq!(options.index, ["a.html", "b.html"]);
        assert_eq!(options.fallback.as_deref(), Some("app.html"));
        assert_eq!(options.error_pages, [(404, "errors/404.html".to_owned())]);
        let fields: Vec<_> = options.rules.fields_for("x/y.js").collect();
        assert_eq!(fields, [("cache-control", "no-cache"), ("x-a", "b")]);
        assert!(options.listing && options.compress && options.show_hidden && options.follow_links);
        assert!(!options.precompressed && options.cache_bytes == 0);
    }

    #[test]
    fn no_flag_is_the_safe_default() {
        let (options, safe) = (read("serve .").expect("options"), FilesOptions::default());
        assert_eq!(format!("{options:?}"), format!("{safe:?}"));
    }

    #[test]
    fn a_field_that_cannot_be_sent_is_wrong_usage() {
        for line in ["--header *:Content-Length:3", "--header *:ETag:x", "--header *:a@:b", "--header :a:b"] {
            let failure = read(&format!("serve . {line}")).expect_err(line);
            assert_eq!(failure.exit, Exit::Usage, "{line}");
        }
    }
}
