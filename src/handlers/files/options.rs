//! What the operator decides about a folder that is served; the defaults are the safe ones.

use super::cache_rules::Rules;

/// Options of a served folder.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FilesOptions {
    /// Names tried for a folder, in order.
    pub index: Vec<String>,
    /// Follow symbolic links that stay beneath the root.
    pub follow_links: bool,
    /// Serve dot files and backup copies.
    pub show_hidden: bool,
    /// Make a listing of a folder without index.
    pub listing: bool,
    /// Name of the page that answers, with 200, every page request for nothing (single-page applications).
    pub fallback: Option<String>,
    /// Names of pages that are the body of an error, by status.
    pub error_pages: Vec<(u16, String)>,
    /// Serve `NAME.br`, `NAME.zst`, `NAME.gz` in place of `NAME` to clients that accept the coding.
    pub precompressed: bool,
    /// Compress on the fly, off the shard, files from [`Self::compress_len_min`] to [`Self::compress_len_max`].
    pub compress: bool,
    /// Smaller files gain nothing.
    pub compress_len_min: u64,
    /// Larger files cost too much each time: make a sidecar.
    pub compress_len_max: u64,
    /// Bytes of small files that each shard keeps ready; 0 keeps none. What is kept is at most 100 ms old.
    pub cache_bytes: usize,
    /// `Cache-Control` of every file that no rule says otherwise of.
    pub cache_control: Option<String>,
    /// Fields by pattern.
    pub rules: Rules,
}

impl Default for FilesOptions {
    fn default() -> Self {
        FilesOptions {
            index: vec!["index.html".to_owned()],
            follow_links: false,
            show_hidden: false,
            listing: false,
            fallback: None,
            error_pages: Vec::new(),
            precompressed: true,
            compress: false,
            compress_len_min: 1024,
            compress_len_max: 1 << 20,
            cache_bytes: 16 << 20,
            cache_control: None,
            rules: Rules::default(),
        }
    }
}

impl FilesOptions {
    /// The page for an error status.
    #[must_use]
    pub fn error_page(&self, status: u16) -> Option<&str> {
        self.error_pages.iter().find(|(of, _)| *of == status).map(|(_, name)| name.as_str())
    }
}
