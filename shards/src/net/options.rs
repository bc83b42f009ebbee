//! Addresses and options of sockets.

use crate::driver::Address;
use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

/// Where to listen or to connect: TCP (`127.0.0.1:8080`, `[::1]:8080`) or a Unix stream socket (`unix:/path`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketAddress(pub(crate) Address);

impl SocketAddress {
    /// The TCP address, if it is one.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match &self.0 {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        }
    }
}

impl From<SocketAddr> for SocketAddress {
    fn from(address: SocketAddr) -> Self {
        SocketAddress(Address::Tcp(address))
    }
}

impl From<PathBuf> for SocketAddress {
    fn from(path: PathBuf) -> Self {
        SocketAddress(Address::Unix(path))
    }
}

impl FromStr for SocketAddress {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("unix:") {
            Some(path) => Ok(PathBuf::from(path).into()),
            None => text.parse::<SocketAddr>().map(Into::into),
        }
    }
}

impl fmt::Display for SocketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
