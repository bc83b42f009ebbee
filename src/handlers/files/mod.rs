//! Static files: which file a request means, and what is answered.
//!
//! Decisions are pure and live apart from every system call:
//!
//! ```text
//! preflight (method, path) → Lookup (which name to open next) → plan (status, fields, pieces of which body)
//! ```
//!
//! | file | its one question |
//! |---|---|
//! | [`path`] | which name beneath the root does this request path mean, if any? |
//! | [`lookup`] | what is opened next: index, sidecar, fallback, error page? |
//! | [`mod@plan`] | what is the answer to this request, given what was found? |
//! | [`conditional`], [`etag`] | does the client have it already; may the request go on? |
//! | [`range`], [`multipart`] | which parts are wanted, and how are they framed? |
//! | [`negotiate`], [`mime`], [`fields`] | which coding and form does the client prefer? |
//! | [`Files`] (`handler`, `answer`, `send`) | how is it opened, read and sent without blocking a shard? |
//! | `cache`, `compress` | what is kept for a moment, and what is coded on the fly? |
//! | `buffers` | which memory is read into, where nothing is kept? |
//! | `large` | how much of larger files may be sent from memory? |
//! | `counters` | how often did either help? |
//! | [`listing`], [`error_page`], [`cache_rules`] | the bodies and fields that we make ourselves |

mod answer;
mod buffers;
mod cache;
pub mod cache_rules;
mod compress;
pub mod conditional;
pub mod error_page;
pub mod etag;
pub mod fields;
mod handler;
mod large;
pub mod listing;
pub mod lookup;
pub mod mime;
pub mod multipart;
pub mod negotiate;
pub mod options;
pub mod path;
pub mod plan;
pub mod range;
mod send;

pub use crate::metrics::files::FilesCounters;
pub use handler::Files;
pub use lookup::{Lookup, Opened, Outcome, Step};
pub use options::FilesOptions;
pub use plan::{Body, FileFacts, Found, Method, Piece, Plan, RequestFacts, plan, preflight};

#[cfg(test)]
mod root_tests;
