//! Which cores this process may use.

use std::io;

/// The cores the calling thread may run on, ascending.
pub(crate) fn available_cores() -> Vec<usize> {
    unimplemented!()
}

/// How many shards to start when nobody says.
pub(crate) fn default_shards() -> usize {
    unimplemented!()
}

/// Keeps the calling thread on one core.
pub(crate) fn pin_to(_core: usize) -> io::Result<()> {
    unimplemented!()
}
