//! What few messages have beside head and content: interim answers, trailers on both sides, and the switch to another
//! protocol.

use super::{Exchange, Exchanges, life::Event};
use crate::{
    error::{Error, Result},
    http1::{FieldLines, TargetForm, Version, body::is_forbidden_trailer},
};
use http::StatusCode;
use shards::Key;

/// A trailer field of a request: its name as received, and its value without surrounding whitespace.
pub type Trailer = (Box<str>, Box<[u8]>);

/// An interim answer that has not left yet.
pub(crate) type Interim = (u16, FieldLines);

#[derive(Debug, Default)]
pub(crate) struct Extras {
    interims: Vec<Interim>,
    trailers: FieldLines,
    received: Vec<Trailer>,
}

/// Interim answers that may wait for the answers before them.
const INTERIMS_MAX: usize = 16;

impl Exchange {
    /// Sends an interim answer before the response: 102 to 199, such as 103 (Early Hints, RFC 8297). It leaves when the
    /// callback returns, behind the answers to earlier requests. A client of HTTP/1.0 gets none (RFC 9110 §15.2).
    ///
    /// # Errors
    /// `Misuse` for another status, 101 among them; `Committed` when the response is on its way; `InvalidField`;
    /// `LimitReached` when 16 wait already; `Ended`.
    pub fn send_interim(&mut self, status: StatusCode, fields: &[(&str, &str)]) -> Result<()> {
        self.check_uncommitted()?;
        if !(102..=199).contains(&status.as_u16()) {
            return Err(Error::Misuse("an interim answer has a status from 102 to 199; upgrade() sends 101"));
        }
        let mut lines = FieldLines::new();
        for (name, value) in fields {
            lines.append(name, value).map_err(|_| Error::InvalidField)?;
        }
        if self.request().version() == Version::Http10 {
            return Ok(());
        }
        self.core.with_rare(|rare| {
            let interims = &mut rare.seldom().extras.interims;
            if interims.len() == INTERIMS_MAX {
                return Err(Error::LimitReached { limit: "interim answers" });
            }
            interims.push((status.as_u16(), lines));
            Ok(())
        })
    }

    /// 103 (Early Hints) with one `Link` field for each of these values, such as `</style.css>; rel=preload; as=style`.
    ///
    /// # Errors
    /// As [`Exchange::send_interim`].
    pub fn early_hints(&mut self, links: &[&str]) -> Result<()> {
        let fields: Vec<_> = links.iter().map(|link| ("Link", *link)).collect();
        self.send_interim(StatusCode::EARLY_HINTS, &fields)
    }

    /// Sets a trailer field of the response, any time before its end. It is sent if the client said that it takes
    /// trailers (`TE: trailers`, RFC 9110 §6.5.1) and the length of the content was not promised; otherwise it is dropped.
    ///
    /// # Errors
    /// `InvalidField` for what cannot stand in a trailer section, framing and routing fields among it; `Ended`.
    pub fn set_trailer(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<()> {
        self.core.check_live()?;
        if is_forbidden_trailer(name.as_bytes()) {
            return Err(Error::InvalidField);
        }
        self.core
            .with_rare(|rare| rare.seldom().extras.trailers.set(name, value).map_err(|_| Error::InvalidField))
    }

    /// The trailer fields of the request, once its body has been received to the end. They are never merged into its
    /// head.
    pub fn trailers(&self) -> Vec<Trailer> {
        self.core.if_rare(|rare| Some(rare.if_seldom()?.extras.received.clone())).unwrap_or_default()
    }

    /// Ends HTTP on this connection with 101 and this `Upgrade` (RFC 9110 §7.8), for an asynchronous handler. From now on
    /// reading gives what the client sends behind its request, what has been received already first; writing sends
    /// octets as they are; both with the back-pressure, listeners and timeouts of every exchange. The end of the
    /// exchange closes the connection; the client's FIN is the end of what can be read.
    ///
    /// # Errors
    /// `Misuse` if the client has not offered this protocol, or its body has not been read to the end; `Committed`,
    /// `Ended`, `InvalidField`.
    pub fn upgrade(&mut self, protocol: &str) -> Result<()> {
        self.check_uncommitted()?;
        let offered = self.request().upgrade().unwrap_or_default();
        let mut names = offered.split(|&octet| octet == b',').map(<[u8]>::trim_ascii);
        if !names.any(|name| name.eq_ignore_ascii_case(protocol.as_bytes())) {
            return Err(Error::Misuse("the client has not offered this protocol in its Upgrade field"));
        }
        if !self.request().keep_alive() || !self.core.input.borrow().is_consumed() {
            return Err(Error::Misuse(
                "upgrade() needs the request's body read to its end, and no Connection: close",
            ));
        }
        self.response().set_header("Upgrade", protocol)?;
        self.switch(StatusCode::SWITCHING_PROTOCOLS)
    }

    /// Answers a CONNECT with 2xx (200 unless the response has another one already), after which the connection is the
    /// tunnel (RFC 9110 §9.3.6), for an asynchronous handler. Reading and writing are then as after
    /// [`Exchange::upgrade`]; [`crate::relay`] joins it with a stream to where the client wants to go. A handler
    /// that answers with any other status has refused it.
    ///
    /// # Errors
    /// `Misuse` for another method; `Committed`, `Ended`.
    pub fn open_tunnel(&mut self) -> Result<()> {
        self.check_uncommitted()?;
        if self.request().target_form() != TargetForm::Authority {
            return Err(Error::Misuse("open_tunnel() answers CONNECT; upgrade() is for other methods"));
        }
        let status = self.core.response.borrow().status;
        self.switch(if status.is_success() { status } else { StatusCode::OK })
    }

    fn switch(&mut self, status: StatusCode) -> Result<()> {
        self.core.response.borrow_mut().switch(status);
        self.core.output.borrow_mut().clear_body();
        self.core.input.borrow_mut().reset(true, self.core.hub.input_window);
        self.core.feed(Event::Switched);
        self.flush()
    }

    /// The request's head in the types of the `http` crate, made for whoever asks. The target is as received.
    ///
    /// # Errors
    /// `HandlerFailed` for a target that is no `http::Uri`, which is stricter here and there than RFC 9112.
    pub fn http_request(&self) -> Result<http::Request<()>> {
        let head = self.request();
        let version = match head.version() {
            Version::Http10 => http::Version::HTTP_10,
            Version::Http11 => http::Version::HTTP_11,
        };
        let mut request = http::Request::builder().method(head.method()).uri(head.target()).version(version);
        for (name, value) in head.fields() {
            request = request.header(name, value);
        }
        request.body(()).map_err(Error::handler)
    }

    fn check_uncommitted(&self) -> Result<()> {
        self.core.check_live()?;
        let switched = self.core.response.borrow().switches();
        if switched || self.core.state().committed { Err(Error::Committed) } else { Ok(()) }
    }
}

impl Exchanges {
    /// The interim answers that wait.
    pub(crate) fn take_interims(&self, key: Key) -> Vec<Interim> {
        self.with_extras(key, |extras| std::mem::take(&mut extras.interims))
    }

    /// The trailers that the response ends with.
    pub(crate) fn response_trailers(&self, key: Key) -> FieldLines {
        self.with_extras(key, |extras| extras.trailers.clone())
    }

    /// The trailers that the request's body ended with.
    pub(crate) fn set_trailers(&self, key: Key, trailers: Vec<Trailer>) {
        if let (Some(core), false) = (self.core(key), trailers.is_empty()) {
            core.with_rare(|rare| rare.seldom().extras.received = trailers);
        }
    }

    fn with_extras<R: Default>(&self, key: Key, read: impl FnOnce(&mut Extras) -> R) -> R {
        let Some(core) = self.core(key) else { return R::default() };
        core.if_rare(|rare| Some(read(&mut rare.if_seldom()?.extras))).unwrap_or_default()
    }
}
