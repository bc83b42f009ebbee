//! A result for people and programs: `text` (a screen), `json`, `charts` on `svg` (pictures), `html` (a page with all
//! of them). They read a [`RunResult`](super::result::RunResult) and write text; files and terminals are opened by
//! who calls.

pub mod charts;
pub mod html;
pub mod json;
pub mod svg;
pub mod text;
