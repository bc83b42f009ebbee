//! Which name is opened next, until it is known what answers: index, sidecar, fallback, error page.
//!
//! Sans-IO: the handler opens what [`Step::Open`] names (from the cache of names, or on the offload pool) and hands
//! the result to [`Lookup::next`]. `H` is its handle on what is open; handles that lose are dropped. Every chain is
//! bounded: indexes, three sidecars, one fallback, one error page.

use super::{
    mime,
    negotiate::{self, Coding},
    options::FilesOptions,
    path::SafePath,
    plan::{FileFacts, RequestFacts},
};
use shards::fs::{Kind, Metadata, Refused};
use std::io;

/// A lookup under way.
#[derive(Debug)]
pub struct Lookup<H> {
    path: SafePath,
    wants_page: bool,
    codings: Vec<Coding>,
    stage: Stage<H>,
}

#[derive(Debug)]
enum Stage<H> {
    Target,
    Index(usize),
    Folder,
    Fallback,
    ErrorPage(u16),
    Sidecar(usize, FileOutcome<H>),
    Over,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<H> {
    /// Open this name beneath the root and call [`Lookup::next`].
    Open {
        /// Plain segments; empty for the root.
        name: String,
        /// The file counts only if it begins so, otherwise it is [`Opened::Failed`] with 404.
        magic: &'static [u8],
    },
    /// The end.
    Answer(Outcome<H>),
}

/// What came of opening a name.
#[derive(Debug)]
pub enum Opened<H> {
    /// A regular file.
    File(FileFacts, H),
    /// A directory.
    Folder(H),
    /// Not to be served: the status that says so.
    Failed(u16),
}

/// What answers the request.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome<H> {
    /// A file.
    File(FileOutcome<H>),
    /// A folder to be listed.
    List(H),
    /// The folder is named without its slash.
    Redirect,
    /// Nothing: the status.
    Error(u16),
}

/// The file that answers.
#[derive(Debug, PartialEq, Eq)]
pub struct FileOutcome<H> {
    /// The name whose type and rules count: of a sidecar the name without its suffix.
    pub name: String,
    /// What is read and sent.
    pub handle: H,
    /// Facts of what is sent.
    pub facts: FileFacts,
    /// It is a sidecar with this coding.
    pub coding: Option<Coding>,
    /// 200, or the status of the error whose page it is.
    pub status: u16,
    /// It stands in for a page that does not exist.
    pub is_fallback: bool,
}

impl<H> Opened<H> {
    /// Sorts the result of `shards::fs`.
    pub fn of(result: Result<(Metadata, H), &io::Error>) -> Opened<H> {
        match result {
            Ok((metadata, handle)) => match metadata.kind {
                Kind::File => Opened::File(metadata.into(), handle),
                Kind::Directory => Opened::Folder(handle),
                Kind::Link | Kind::Special => Opened::Failed(404),
            },
            Err(error) => Opened::Failed(match Refused::from_error(error) {
                Refused::Missing | Refused::Special => 404,
                Refused::Denied => 403,
                Refused::WouldBlock | Refused::Exhausted => 503,
                _ => 500,
            }),
        }
    }
}

impl<H> Lookup<H> {
    /// Begins with a path that [`super::preflight`] let through.
    #[must_use]
    pub fn start(path: SafePath, request: &RequestFacts<'_>, options: &FilesOptions) -> (Lookup<H>, Step<H>) {
        let codings =
            if options.precompressed { negotiate::codings(&request.accept_encoding) } else { Vec::new() };
        let wants_page = negotiate::wants_page(&request.accept);
        let mut lookup = Lookup { path, wants_page, codings, stage: Stage::Target };
        // A folder's index is opened at once: one system call instead of two.
        let step = if lookup.path.ends_with_slash() {
            lookup.index(0, options)
        } else {
            open(lookup.path.relative())
        };
        (lookup, step)
    }

    /// Begins for a path that was refused with this status: only the page of that error is left to be found.
    #[must_use]
    pub fn refused(status: u16, request: &RequestFacts<'_>, options: &FilesOptions) -> (Lookup<H>, Step<H>) {
        let (mut lookup, _) = Lookup::start(SafePath::root(), request, options);
        let step = lookup.error_page(status, options);
        (lookup, step)
    }

    /// Goes on with what the last [`Step::Open`] gave.
    #[must_use]
    pub fn next(&mut self, opened: Opened<H>, options: &FilesOptions) -> Step<H> {
        match (std::mem::replace(&mut self.stage, Stage::Over), opened) {
            (Stage::Target, Opened::File(facts, handle)) => {
                let name = self.path.relative().to_owned();
                self.found(file(name, facts, handle))
            }
            (Stage::Target, Opened::Folder(_)) => Step::Answer(Outcome::Redirect),
            (Stage::Index(at), Opened::File(facts, handle)) => {
                let name = self.index_name(&options.index[at]);
                self.found(file(name, facts, handle))
            }
            (Stage::Index(at), Opened::Folder(_) | Opened::Failed(404)) => self.index(at + 1, options),
            (Stage::Folder, Opened::Folder(handle)) => Step::Answer(Outcome::List(handle)),
            (Stage::Folder, Opened::File(..)) => self.failed(404, options),
            (Stage::Target | Stage::Index(_) | Stage::Folder, Opened::Failed(status)) => {
                self.failed(status, options)
            }
            (Stage::Fallback, Opened::File(facts, handle)) => {
                let name = options.fallback.clone().unwrap_or_default();
                self.found(FileOutcome { is_fallback: true, ..file(name, facts, handle) })
            }
            (Stage::Fallback, _) => self.error_page(404, options),
            (Stage::ErrorPage(status), Opened::File(facts, handle)) => {
                let name = options.error_page(status).unwrap_or_default().to_owned();
                self.found(FileOutcome { status, ..file(name, facts, handle) })
            }
            (Stage::ErrorPage(status), _) => Step::Answer(Outcome::Error(status)),
            (Stage::Sidecar(at, plain), opened) => self.sidecar_opened(at, plain, opened),
            // Asked again after the end: nothing is open, so nothing can be served.
            (Stage::Over, _) => Step::Answer(Outcome::Error(500)),
        }
    }

    fn index(&mut self, at: usize, options: &FilesOptions) -> Step<H> {
        if let Some(index) = options.index.get(at) {
            self.stage = Stage::Index(at);
            return open(&self.index_name(index));
        }
        if options.listing {
            self.stage = Stage::Folder;
            return open(self.path.relative());
        }
        self.failed(404, options)
    }

    fn index_name(&self, index: &str) -> String {
        match self.path.relative() {
            "" => index.to_owned(),
            folder => format!("{folder}/{index}"),
        }
    }

    fn failed(&mut self, status: u16, options: &FilesOptions) -> Step<H> {
        match &options.fallback {
            Some(name) if status == 404 && self.wants_page => {
                self.stage = Stage::Fallback;
                open(name)
            }
            _ => self.error_page(status, options),
        }
    }

    fn error_page(&mut self, status: u16, options: &FilesOptions) -> Step<H> {
        let Some(name) = options.error_page(status) else { return Step::Answer(Outcome::Error(status)) };
        self.stage = Stage::ErrorPage(status);
        open(name)
    }

    fn found(&mut self, plain: FileOutcome<H>) -> Step<H> {
        if self.codings.is_empty() || !mime::is_compressible(&mime::content_type(&plain.name)) {
            return Step::Answer(Outcome::File(plain));
        }
        self.sidecar(0, plain)
    }

    fn sidecar(&mut self, at: usize, plain: FileOutcome<H>) -> Step<H> {
        let Some(coding) = self.codings.get(at) else { return Step::Answer(Outcome::File(plain)) };
        let name = format!("{}{}", plain.name, coding.suffix());
        self.stage = Stage::Sidecar(at, plain);
        Step::Open { name, magic: coding.magic() }
    }

    fn sidecar_opened(&mut self, at: usize, plain: FileOutcome<H>, opened: Opened<H>) -> Step<H> {
        match opened {
            // An older sidecar is of an older file; an empty one is no coding of anything.
            Opened::File(facts, handle) if facts.len > 0 && !facts.is_older_than(&plain.facts) => {
                let coding = Some(self.codings[at]);
                Step::Answer(Outcome::File(FileOutcome { facts, handle, coding, ..plain }))
            }
            _ => self.sidecar(at + 1, plain),
        }
    }
}

fn open<H>(name: &str) -> Step<H> {
    Step::Open { name: name.to_owned(), magic: b"" }
}

fn file<H>(name: String, facts: FileFacts, handle: H) -> FileOutcome<H> {
    FileOutcome { name, handle, facts, coding: None, status: 200, is_fallback: false }
}

#[cfg(test)]
#[path = "lookup_tests.rs"]
mod tests;
