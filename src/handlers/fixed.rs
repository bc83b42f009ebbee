//! One fixed answer to every request: a target for benchmarks and a stand-in while a service is built.

use crate::{
    error::Result,
    exchange::Exchange,
    routing::{Router, any},
};
use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use std::sync::Arc;

/// What is answered.
#[derive(Debug, Clone)]
pub struct Answer {
    status: StatusCode,
    body: Bytes,
    fields: Arc<[(String, HeaderValue)]>,
}

impl Answer {
    /// Status, content and fields. Where no Content-Type is among the fields it is `text/plain`.
    pub fn new(status: u16, body: Vec<u8>, fields: Vec<(String, HeaderValue)>) -> Self {
        Answer {
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::OK),
            body: Bytes::from(body),
            fields: fields.into(),
        }
    }

    fn write(&self, x: &mut Exchange) -> Result<()> {
        x.response().set_status(self.status);
        if !self.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            x.response().set_content_type("text/plain; charset=utf-8")?;
        }
        for (name, value) in self.fields.iter() {
            x.response().append_header(name, value.as_bytes())?;
        }
        x.write(self.body.clone())
    }
}

/// Answers everything so.
pub fn router(answer: &Answer) -> Router {
    let answer = answer.clone();
    let handler = move |x: &mut Exchange| answer.write(x);
    Router::new().route("/*", any(handler))
}
