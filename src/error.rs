//! What can go wrong between an application and the server, sorted by whose fault it is, and how exchanges end.
//!
//! Answers to the peer's own mistakes are not here: they are rejected in `http1`, with a status.

use std::{fmt, io};

/// The result of the calls an application makes.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How an exchange ended. There is exactly one for each exchange (rule L-9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EndReason {
    /// The answer was given to the transport, whole.
    Completed = 1,
    /// The application's timeout came first.
    TimedOut,
    /// A callback returned an error.
    HandlerFailed,
    /// A callback panicked.
    Panicked,
    /// The client closed its side (FIN) and the route's policy is to abort then.
    ClientClosed,
    /// The connection or stream was reset.
    ClientReset,
    /// The client broke the protocol in the middle of the exchange.
    ProtocolError,
    /// The request body did not arrive in time.
    BodyTimeout,
    /// The client did not take the answer in time.
    WriteTimeout,
    /// The slow-client policy cut the client off.
    SlowClient,
    /// A bound of the server was reached: queue, pool or permit.
    Overload,
    /// The server is stopping.
    Shutdown,
    /// The server hands its listeners to a successor.
    Reload,
    /// The application or the server gave it up for another reason.
    Aborted,
}

impl EndReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [EndReason; 14] = [
        EndReason::Completed,
        EndReason::TimedOut,
        EndReason::HandlerFailed,
        EndReason::Panicked,
        EndReason::ClientClosed,
        EndReason::ClientReset,
        EndReason::ProtocolError,
        EndReason::BodyTimeout,
        EndReason::WriteTimeout,
        EndReason::SlowClient,
        EndReason::Overload,
        EndReason::Shutdown,
        EndReason::Reload,
        EndReason::Aborted,
    ];

    /// The name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            EndReason::Completed => "completed",
            EndReason::TimedOut => "timed_out",
            EndReason::HandlerFailed => "handler_failed",
            EndReason::Panicked => "panicked",
            EndReason::ClientClosed => "client_closed",
            EndReason::ClientReset => "client_reset",
            EndReason::ProtocolError => "protocol_error",
            EndReason::BodyTimeout => "body_timeout",
            EndReason::WriteTimeout => "write_timeout",
            EndReason::SlowClient => "slow_client",
            EndReason::Overload => "overload",
            EndReason::Shutdown => "shutdown",
            EndReason::Reload => "reload",
            EndReason::Aborted => "aborted",
        }
    }

    /// Position in [`EndReason::ALL`].
    pub const fn index(self) -> usize {
        self as usize - 1
    }

    /// Whether nothing can reach the client any more.
    pub const fn is_client_gone(self) -> bool {
        matches!(
            self,
            EndReason::ClientClosed
                | EndReason::ClientReset
                | EndReason::WriteTimeout
                | EndReason::SlowClient
        )
    }

    /// The status of the answer the client gets for it, if it gets one (RFC 9110 §15).
    pub const fn status(self) -> u16 {
        match self {
            EndReason::TimedOut | EndReason::Overload | EndReason::Shutdown | EndReason::Reload => 503,
            EndReason::ProtocolError => 400,
            EndReason::BodyTimeout => 408,
            _ => 500,
        }
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a call of an application was not obeyed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The exchange has ended, or its end is decided, for this reason.
    Ended(EndReason),
    /// The caller's context belongs to an exchange or a cycle that is over.
    Stale,
    /// The head of the response is on its way: status and fields cannot change.
    Committed,
    /// The call is not possible here; the text says what to do instead.
    Misuse(&'static str),
    /// The named part of the route's chain does not support asynchronous requests (L-21).
    AsyncNotSupported {
        /// Name of the filter or handler.
        part: String,
    },
    /// A bound was reached; the work was not taken.
    LimitReached {
        /// Name of the bound.
        limit: &'static str,
    },
    /// The request body is longer than the route allows.
    BodyTooLarge {
        /// The bound in bytes.
        limit: u64,
    },
    /// A name or value that cannot stand in a response head.
    InvalidField,
    /// The body is not what it says it is (UTF-8, multipart).
    InvalidBody(&'static str),
    /// The content is of a type that the handler does not take; answered with 415.
    UnsupportedMediaType,
    /// The server is stopping and takes no new work.
    ShuttingDown,
    /// The application's own failure.
    HandlerFailed(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Wraps an application's own failure.
    pub fn handler(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::HandlerFailed(error.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Ended(reason) => write!(f, "the exchange has ended: {reason}"),
            Error::Stale => f.write_str("the context belongs to an exchange or cycle that is over"),
            Error::Committed => f.write_str("the head of the response is already on its way"),
            Error::Misuse(advice) => write!(f, "not possible here: {advice}"),
            Error::AsyncNotSupported { part } => write!(f, "{part} does not support asynchronous requests"),
            Error::LimitReached { limit } => write!(f, "limit reached: {limit}"),
            Error::BodyTooLarge { limit } => write!(f, "the request body is longer than {limit} bytes"),
            Error::InvalidField => f.write_str("a name or value that cannot stand in a response head"),
            Error::InvalidBody(what) => write!(f, "invalid request body: {what}"),
            Error::UnsupportedMediaType => f.write_str("the content is not of a type that is taken here"),
            Error::ShuttingDown => f.write_str("the server is stopping"),
            Error::HandlerFailed(source) => write!(f, "the handler failed: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::HandlerFailed(source) => Some(&**source),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::HandlerFailed(Box::new(error))
    }
}

impl From<fmt::Error> for Error {
    fn from(error: fmt::Error) -> Self {
        Error::HandlerFailed(Box::new(error))
    }
}
