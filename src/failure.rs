//! The one way this program says that it cannot go on: one line with what, where and the cure, and an exit code.
//! Filled in by `cli`, `startup` and `doctor`; printed by `main` alone. It knows nothing about servers.

use std::{fmt, process::ExitCode};

/// Why the process ends, as its exit code tells a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 1: something failed while running.
    RunTime,
    /// 2: the command line is wrong.
    Usage,
    /// 4: this machine or this process's rights do not allow it.
    Environment,
}

impl Exit {
    /// The number that the shell sees.
    pub(crate) fn number(self) -> u8 {
        match self {
            Exit::RunTime => 1,
            Exit::Usage => 2,
            Exit::Environment => 4,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.number())
    }
}

/// What went wrong and what to do about it, each part on the same line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) exit: Exit,
    /// What failed and where.
    pub(crate) what: String,
    /// What the reader can do, or empty.
    pub(crate) cure: String,
}

impl Failure {
    /// A failure with its cure.
    pub(crate) fn new(exit: Exit, what: impl Into<String>, cure: impl Into<String>) -> Failure {
        Failure { exit, what: what.into(), cure: cure.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "shardlet: {}", one_line(&self.what))?;
        if !self.cure.is_empty() {
            write!(out, "; {}", one_line(&self.cure))?;
        }
        Ok(())
    }
}

/// Line breaks and other control characters, which a path or an argument may carry, become spaces.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_one_line_whatever_it_quotes() {
        let failure = Failure::new(Exit::Usage, "no folder 'a\nb'", "name one");
        assert_eq!(failure.to_string(), "shardlet: no folder 'a b'; name one");
        assert_eq!(failure.exit.number(), 2);
    }
}
