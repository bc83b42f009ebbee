//! From a request to its whole answer: opens what [`super::lookup`] names, lets [`mod@super::plan`] decide, and reads
//! content that is small.
//!
//! Runs on the shard as far as nothing waits ([`Mode::Cached`]), else again from the start on the offload pool
//! ([`Mode::Blocking`]): one trip, however many names are tried. Neighbours: [`super::handler`] calls it,
//! [`super::send`] sends what it gives.

use super::{
    FilesOptions,
    buffers::{WHOLE_LEN, Whole},
    compress,
    fields::Lines,
    large,
    listing::{ENTRIES_MAX, Listing, Order},
    lookup::{FileOutcome, Lookup, Opened, Outcome, Step},
    negotiate::{self, Form},
    plan::{Body, FileFacts, Found, FoundFile, Method, Piece, Plan, RequestFacts, plan, preflight},
};
use crate::http1::Head;
use bytes::Bytes;
use shards::fs::{Follow, Kind, OpenFile, Root};
use std::{
    hash::{BuildHasher, RandomState},
    io,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

/// What all shards share: the folder and what the operator says about it.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) root: Root,
    pub(super) options: FilesOptions,
}

/// Whether a call may wait for a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Never: what is not in the kernel's caches is [`MustWait`].
    Cached,
    /// It runs on the pool.
    Blocking,
}

/// Not to be answered without waiting.
#[derive(Debug)]
pub(super) struct MustWait;

/// A whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    /// Status and fields; its body is in `content`.
    pub(super) plan: Plan,
    pub(super) content: Content,
    /// The answer to the same request if the client has the file already, where this answer may be kept for a
    /// moment: a whole small file that has rested for some seconds.
    pub(super) keep: Option<Plan>,
}

/// What is sent behind the head.
#[derive(Debug)]
pub(super) enum Content {
    Bytes(Bytes),
    /// These pieces, read while they are sent.
    Stream(OpenFile, Vec<Piece>),
}

/// The facts of a request, read from its head. Time and chance are taken here.
pub(super) fn facts_of<'a>(head: Head<'a>, may_compress: bool) -> RequestFacts<'a> {
    let mut facts = RequestFacts {
        method: Method::from_token(head.method().as_bytes()),
        query: head.query(),
        now_s: now_s(),
        may_compress,
        ..RequestFacts::get(head.path())
    };
    for (name, value) in head.fields() {
        let place = match name.len() {
            6 if name.eq_ignore_ascii_case("accept") => &mut facts.accept,
            15 if name.eq_ignore_ascii_case("accept-encoding") => &mut facts.accept_encoding,
            5 if name.eq_ignore_ascii_case("range") => &mut facts.range,
            8 if name.eq_ignore_ascii_case("if-range") => &mut facts.if_range,
            8 if name.eq_ignore_ascii_case("if-match") => &mut facts.preconditions.if_match,
            13 if name.eq_ignore_ascii_case("if-none-match") => &mut facts.preconditions.if_none_match,
            17 if name.eq_ignore_ascii_case("if-modified-since") => {
                &mut facts.preconditions.if_modified_since
            }
            19 if name.eq_ignore_ascii_case("if-unmodified-since") => {
                &mut facts.preconditions.if_unmodified_since
            }
            _ => continue,
        };
        place.push(value);
    }
    if facts.range.is_present() {
        facts.random = random();
    }
    facts
}

/// Decides and reads.
///
/// # Errors
/// [`MustWait`] in [`Mode::Cached`] alone.
pub(super) fn decide(folder: &Folder, request: &RequestFacts<'_>, mode: Mode) -> Result<Answer, MustWait> {
    for _ in 0..READ_TRIES_MAX {
        if let Some(answer) = try_decide(folder, request, mode)? {
            return Ok(answer);
        }
    }
    // It is written faster than it can be read.
    Ok(made(plan(request, Found::Error(503), &folder.options)))
}

/// `None`: the file changed under the read.
fn try_decide(folder: &Folder, request: &RequestFacts<'_>, mode: Mode) -> Result<Option<Answer>, MustWait> {
    let options = &folder.options;
    let path = match preflight(request, options) {
        Ok(path) => path,
        Err(plan) => return answer_refused(folder, request, made(plan), mode),
    };
    let (lookup, step) = Lookup::start(path, request, options);
    match find(folder, lookup, step, mode)? {
        Outcome::File(file) => match answer_file(request, file, options, mode)? {
            // Decided by the file, so its own page was not looked for yet.
            Some(answer) if matches!(answer.plan.status, 406 | 412 | 416) => {
                answer_refused(folder, request, answer, mode)
            }
            answer => Ok(answer),
        },
        Outcome::List(_) if mode == Mode::Cached => Err(MustWait),
        Outcome::List(handle) => {
            let form = negotiate::form(&request.accept, &[Form::Html, Form::Json]);
            let found = match list(&handle, request, options) {
                Ok(listing) => Found::Page { bytes: listing.render(form), form },
                Err(_) => Found::Error(403),
            };
            Ok(Some(made(plan(request, found, options))))
        }
        Outcome::Redirect => Ok(Some(made(plan(request, Found::Redirect, options)))),
        Outcome::Error(status) => Ok(Some(made(plan(request, Found::Error(status), options)))),
    }
}

/// The operator's page in place of the plain words of a refusal, where there is one. What the refusal says about
/// the resource stays: 405 without `Allow` would be none (RFC 9110 §15.5.6).
fn answer_refused(
    folder: &Folder,
    request: &RequestFacts<'_>,
    refused: Answer,
    mode: Mode,
) -> Result<Option<Answer>, MustWait> {
    let status = refused.plan.status;
    if folder.options.error_page(status).is_none() {
        return Ok(Some(refused));
    }
    let (lookup, step) = Lookup::refused(status, request, &folder.options);
    let Outcome::File(page) = find(folder, lookup, step, mode)? else { return Ok(Some(refused)) };
    let Some(mut answer) = answer_file(request, page, &folder.options, mode)? else { return Ok(None) };
    let kept = |name: &str| ["Allow", "Content-Range", "Accept-Ranges"].contains(&name);
    answer.plan.fields.extend(refused.plan.fields.into_iter().filter(|(name, _)| kept(name)));
    Ok(Some(answer))
}

fn find(
    folder: &Folder,
    mut lookup: Lookup<OpenFile>,
    mut step: Step<OpenFile>,
    mode: Mode,
) -> Result<Outcome<OpenFile>, MustWait> {
    loop {
        match step {
            Step::Answer(outcome) => return Ok(outcome),
            Step::Open { name, magic } => {
                step = lookup.next(open(folder, &name, magic, mode)?, &folder.options);
            }
        }
    }
}

fn open(folder: &Folder, name: &str, magic: &[u8], mode: Mode) -> Result<Opened<OpenFile>, MustWait> {
    let follow = if folder.options.follow_links { Follow::Beneath } else { Follow::No };
    let result = match mode {
        Mode::Cached => folder.root.try_open_cached(Path::new(name), follow),
        Mode::Blocking => folder.root.open_blocking(Path::new(name), follow),
    };
    let file = match result {
        Ok(file) => file,
        Err(error) if mode == Mode::Cached && error.kind() == io::ErrorKind::WouldBlock => {
            return Err(MustWait);
        }
        Err(error) => return Ok(Opened::of(Err(&error))),
    };
    if file.metadata().kind == Kind::File && !magic.is_empty() {
        let mut start = [0; MAGIC_LEN_MAX];
        let start = &mut start[..magic.len()];
        if read(&file, start, 0, mode)?.is_none_or(|read| start[..read] != *magic) {
            return Ok(Opened::Failed(404));
        }
    }
    Ok(Opened::of(Ok((file.metadata(), file))))
}

fn list(handle: &OpenFile, request: &RequestFacts<'_>, options: &FilesOptions) -> io::Result<Listing> {
    let mut listing = Listing::of(request.path, handle.entries_blocking(ENTRIES_MAX)?);
    listing.prepare(Order::from_query(request.query), options.show_hidden);
    Ok(listing)
}

fn answer_file(
    request: &RequestFacts<'_>,
    file: FileOutcome<OpenFile>,
    options: &FilesOptions,
    mode: Mode,
) -> Result<Option<Answer>, MustWait> {
    let FileOutcome { name, handle, facts, coding, status, is_fallback } = file;
    let found = FoundFile { name: &name, facts, coding, status, is_fallback };
    let mut plan = plan(request, Found::File(found), options);
    if let Some(coding) = plan.compress {
        if mode == Mode::Cached {
            return Err(MustWait);
        }
        let Some(plain) = read_pieces(&handle, &[Piece::File { offset: 0, len: facts.len }], mode)? else {
            return Ok(None);
        };
        let coded = Bytes::from(compress::encode(coding, &plain));
        plan.content_length = Some(coded.len() as u64);
        let keep = kept(request, found, options);
        let content = if request.method == Method::Head { Bytes::new() } else { coded };
        return Ok(Some(Answer { plan, content: Content::Bytes(content), keep }));
    }
    let is_whole = plan.status == 200 && matches!(plan.body, Body::File { .. });
    let pieces = match std::mem::replace(&mut plan.body, Body::None) {
        Body::None => return Ok(Some(made(plan))),
        Body::Bytes(bytes) => {
            plan.body = Body::Bytes(bytes);
            return Ok(Some(made(plan)));
        }
        Body::File { offset, len } => vec![Piece::File { offset, len }],
        Body::Pieces(pieces) => pieces,
    };
    let len: u64 = pieces.iter().map(Piece::len).sum();
    let is_small = len <= SMALL_LEN_MAX;
    let keep = if is_whole { kept(request, found, options) } else { None };
    // On the shard, and only what is in memory anyway: on the pool it would be counted elsewhere.
    let is_kept_large =
        !is_small && keep.is_some() && mode == Mode::Cached && large::has_room(len, options.cache_bytes);
    if !(is_small || is_kept_large) {
        return Ok(Some(Answer { plan, content: Content::Stream(handle, pieces), keep: None }));
    }
    if let ([Piece::File { offset, len }], None, Mode::Cached) = (&pieces[..], &keep, mode)
        && *len >= WHOLE_LEN_MIN
    {
        let Some(content) = read_whole(&handle, *offset, *len)? else { return Ok(None) };
        return Ok(Some(Answer { plan, content: Content::Bytes(content), keep: None }));
    }
    let bytes = match read_pieces(&handle, &pieces, mode) {
        // A part of it is not in memory.
        Err(MustWait) if is_kept_large => {
            return Ok(Some(Answer { plan, content: Content::Stream(handle, pieces), keep: None }));
        }
        read => read?,
    };
    let Some(bytes) = bytes else { return Ok(None) };
    let keep = keep.filter(|_| is_unchanged(&handle));
    let bytes = if is_kept_large { large::counted(bytes) } else { Bytes::from(bytes) };
    Ok(Some(Answer { plan, content: Content::Bytes(bytes), keep }))
}

/// The 304 that belongs to an answer that may be kept, if it may: one more second than its tag needs to be strong,
/// so that a write after the read always shows in the file's time.
fn kept(request: &RequestFacts<'_>, file: FoundFile<'_>, options: &FilesOptions) -> Option<Plan> {
    if options.cache_bytes == 0 {
        return None;
    }
    let rests = file.facts.modified_s < request.now_s - 2 && file.facts.has_time();
    let is_plain = file.status == 200 && !file.is_fallback && request.method == Method::Get;
    if !(rests && is_plain) {
        return None;
    }
    let mut again = request.clone();
    again.preconditions.if_none_match = Lines::One(b"*");
    Some(plan(&again, Found::File(file), options)).filter(|plan| plan.status == 304)
}

fn is_unchanged(file: &OpenFile) -> bool {
    file.metadata_now().is_ok_and(|now| FileFacts::from(now) == FileFacts::from(file.metadata()))
}

fn made(mut plan: Plan) -> Answer {
    let bytes = match std::mem::replace(&mut plan.body, Body::None) {
        Body::Bytes(bytes) => Bytes::from(bytes),
        _ => Bytes::new(),
    };
    Answer { plan, content: Content::Bytes(bytes), keep: None }
}

/// A part that nobody keeps, in memory that comes back; `None` if the file is shorter than it was.
fn read_whole(file: &OpenFile, offset: u64, len: u64) -> Result<Option<Bytes>, MustWait> {
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let whole = Whole::read(len, |memory| read(file, memory, offset, Mode::Cached))?;
    Ok(whole.map(Bytes::from_owner))
}

/// All pieces in one buffer; `None` if the file is shorter than it was.
fn read_pieces(file: &OpenFile, pieces: &[Piece], mode: Mode) -> Result<Option<Vec<u8>>, MustWait> {
    let total: u64 = pieces.iter().map(Piece::len).sum();
    let mut bytes = Vec::with_capacity(usize::try_from(total).unwrap_or(usize::MAX).min(READ_AT_ONCE_MAX));
    for piece in pieces {
        match piece {
            Piece::Bytes(own) => bytes.extend_from_slice(own),
            Piece::File { offset, len } => {
                let start = bytes.len();
                bytes.resize(start + usize::try_from(*len).unwrap_or(usize::MAX), 0);
                let wanted = bytes.len() - start;
                if read(file, &mut bytes[start..], *offset, mode)? != Some(wanted) {
                    return Ok(None);
                }
            }
        }
    }
    Ok(Some(bytes))
}

/// Fills the buffer as far as the file goes; `None` if the disk fails.
fn read(file: &OpenFile, buffer: &mut [u8], offset: u64, mode: Mode) -> Result<Option<usize>, MustWait> {
    let mut filled = 0;
    while filled < buffer.len() {
        let at = offset + filled as u64;
        let result = match mode {
            Mode::Cached => file.try_read_cached(&mut buffer[filled..], at),
            Mode::Blocking => file.read_blocking(&mut buffer[filled..], at),
        };
        match result {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if mode == Mode::Cached => return Err(MustWait),
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(filled))
}

/// The wall clock.
fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Bits that nobody outside can foresee: SipHash under keys of the system's randomness.
fn random() -> u128 {
    let half = || u128::from(RandomState::new().hash_one(0));
    half() << 64 | half()
}

/// Content up to this size is read and sent in one piece.
pub(super) const SMALL_LEN_MAX: u64 = WHOLE_LEN as u64;

/// Less than this is cleared in no time, and a spare buffer would be much too large for it.
const WHOLE_LEN_MIN: u64 = 16 * 1024;

/// More is not reserved at once; the compression's bound is the operator's.
const READ_AT_ONCE_MAX: usize = 1 << 20;

/// How often a file that changes under the read is read again.
const READ_TRIES_MAX: usize = 3;

/// Longest mark of [`negotiate::Coding::magic`].
const MAGIC_LEN_MAX: usize = 8;
