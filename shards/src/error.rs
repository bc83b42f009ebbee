//! What can go wrong in the runtime, sorted by whose fault it is.

use std::{fmt, io};

/// The runtime's result.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the runtime. `Display` gives one line: what failed, where, and what to do where that is known.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused: the operation and its errno.
    Kernel {
        /// What was tried, for example `bind 127.0.0.1:80`.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The wanted driver cannot work here.
    DriverUnavailable {
        /// Which driver was asked for.
        driver: &'static str,
        /// What the probe saw, and the cure.
        reason: String,
    },
    /// A bound was reached; the work was not taken.
    LimitReached {
        /// Name of the bound.
        limit: &'static str,
    },
    /// The shard is stopping or gone.
    Stopping,
    /// The call is not possible here, for example off the shard's thread.
    Misuse {
        /// What to do instead.
        advice: &'static str,
    },
    /// The time set for the operation ran out.
    TimedOut,
    /// Work that was handed to another thread panicked there.
    Panicked {
        /// The message of the panic.
        message: String,
    },
}

impl Error {
    pub(crate) fn kernel(what: impl Into<String>, source: io::Error) -> Self {
        Error::Kernel { what: what.into(), source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Kernel { what, source } => write!(f, "{what}: {source}"),
            Error::DriverUnavailable { driver, reason } => {
                write!(f, "driver {driver} cannot work here: {reason}")
            }
            Error::LimitReached { limit } => write!(f, "limit reached: {limit}"),
            Error::Stopping => f.write_str("the shard is stopping"),
            Error::Misuse { advice } => write!(f, "not possible here: {advice}"),
            Error::TimedOut => f.write_str("timed out"),
            Error::Panicked { message } => write!(f, "the work panicked: {message}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Kernel { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Kernel { source, .. } => source,
            Error::TimedOut => io::Error::new(io::ErrorKind::TimedOut, "timed out"),
            other => io::Error::other(other.to_string()),
        }
    }
}
