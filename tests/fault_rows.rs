//! Rows of the table of faults (`docs/faults.md`) on real sockets and on both drivers: each part has the rows of one
//! heading. `tests/lifecycle.rs` has those for which one driver says as much as two, `tests/server_process.rs` those that
//! need a process of their own.

mod common;

#[path = "fault_rows/callbacks.rs"]
mod callbacks;
#[path = "fault_rows/continues.rs"]
mod continues;
#[path = "fault_rows/leaving.rs"]
mod leaving;
#[path = "fault_rows/stale.rs"]
mod stale;
#[path = "fault_rows/stop.rs"]
mod stop;

/// A request without content, kept alive.
fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n")
}
