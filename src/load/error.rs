//! Why the load tool cannot go on: one line and an exit code, the same codes as the whole program's.

use std::fmt;

/// A failure of the load tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    /// 1 run time, 2 usage, 4 environment.
    pub exit_code: u8,
    /// What failed, in one line.
    pub what: String,
}

impl LoadError {
    /// Something failed while running.
    pub fn run_time(what: impl Into<String>) -> Self {
        Self { exit_code: 1, what: what.into() }
    }

    /// The command line is wrong.
    pub fn usage(what: impl Into<String>) -> Self {
        Self { exit_code: 2, what: what.into() }
    }

    /// This machine does not allow it.
    pub fn environment(what: impl Into<String>) -> Self {
        Self { exit_code: 4, what: what.into() }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shardlet bench: {}", self.what)
    }
}

impl std::error::Error for LoadError {}
