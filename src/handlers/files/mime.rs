//! The media type of a file by its name, and whether compression gains anything.
//!
//! Content is never looked at, and clients are told not to either (`nosniff`, set by [`mod@super::plan`]).

use std::borrow::Cow;

/// The `Content-Type` of a file, with a charset where the type is text: files are taken to be UTF-8.
#[must_use]
pub fn content_type(name: &str) -> Cow<'static, str> {
    let essence = mime_guess::from_path(name).first_raw().unwrap_or("application/octet-stream");
    let is_text = essence.starts_with("text/") || matches!(essence, "application/javascript");
    if is_text && !essence.contains("charset") {
        return Cow::Owned(format!("{essence}; charset=utf-8"));
    }
    Cow::Borrowed(essence)
}

/// Does a content coding make files of this type smaller? Images, films, archives and fonts of the web are
/// compressed already.
#[must_use]
pub fn is_compressible(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.starts_with("text/")
        || essence.ends_with("+json")
        || essence.ends_with("+xml")
        || COMPRESSIBLE.contains(&essence)
}

const COMPRESSIBLE: [&str; 12] = [
    "application/javascript",
    "application/json",
    "application/xml",
    "application/wasm",
    "application/x-javascript",
    "application/rtf",
    "application/vnd.ms-fontobject",
    "application/x-ndjson",
    "font/ttf",
    "font/otf",
    "image/bmp",
    "image/x-icon",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_by_name() {
        let table = [
            ("index.html", "text/html; charset=utf-8", true),
            ("a/b.TXT", "text/plain; charset=utf-8", true),
            ("app.css", "text/css; charset=utf-8", true),
            ("app.js", "text/javascript; charset=utf-8", true),
            ("data.json", "application/json", true),
            ("logo.svg", "image/svg+xml", true),
            ("code.wasm", "application/wasm", true),
            ("photo.jpg", "image/jpeg", false),
            ("big.bin", "application/octet-stream", false),
            ("archive.tar.gz", "application/gzip", false),
            ("noending", "application/octet-stream", false),
            ("font.woff2", "font/woff2", false),
        ];
        for (name, wanted, compressible) in table {
            assert_eq!(content_type(name), wanted, "{name}");
            assert_eq!(is_compressible(wanted), compressible, "{name}");
        }
    }
}
