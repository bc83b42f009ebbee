//! HTTP/1.x without input or output: bytes in, events and bytes out. RFC 9112, and what RFC 9110 asks of a server.
//!
//! | file | job |
//! |---|---|
//! | `scan` | the end of a head that arrives in pieces |
//! | `parse`, `lines`, `target`, `head` | bytes to an index of offsets, and the views of it |
//! | `framing` | where the request ends, and whether the connection goes on |
//! | `body` | content and trailers out of Content-Length and chunked |
//! | `encode`, `fields` | response heads, chunks, dates |
//! | `cycle` | one connection's order of events |
//! | `reject` | every reason to refuse |
//! | `response` | the client's side: responses parsed strictly |
//!
//! No clock, socket, shard or metric is named here. One rule decides every doubt: what two readers could take in two
//! ways is refused, and the connection is closed (RFC 9112 §11.2).

pub mod body;
mod classes;
pub mod cycle;
pub mod encode;
pub mod fields;
pub mod framing;
mod grammar;
pub mod head;
mod lines;
pub mod parse;
pub mod reject;
pub mod response;
pub mod scan;
mod target;

#[cfg(test)]
mod model_tests;

pub use body::{BodyDecoder, BodyEvent};
pub use cycle::{Actions, Cycle, Event, Phase};
pub use encode::{Content, ContentFrame, HeadTemplate, ReplyTo, ResponseHead};
pub use fields::{FieldError, FieldLines};
pub use framing::{BodyKind, Framing};
pub use head::{Head, HeadIndex, Method, OwnedHead, TargetForm, Version};
pub use parse::{Parsed, parse, parse_resumable};
pub use reject::Reject;
pub use response::Asked;
pub use scan::HeadScan;
