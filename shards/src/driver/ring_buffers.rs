//! The provided-buffer ring of the uring driver.
