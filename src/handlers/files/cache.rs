//! Whole answers of small files, kept for a moment on each shard, so that a file in demand costs no system call.
//!
//! Staleness: an answer is at most [`AGE_MAX`] old. After that the file is opened, compared and read anew, ten times a
//! second at most, so nothing needs to be invalidated: replaced, removed, made unreadable, joined by a sidecar, all is
//! seen by the next look. Kept are only files that have rested for some seconds ([`super::answer`]).
//! Neighbours: [`super::handler`] asks it first. It opens nothing and knows no exchange.

use super::answer::Answer;
use crate::http1::FieldLines;
use bytes::Bytes;
use http::StatusCode;
use std::{
    collections::{HashMap, VecDeque},
    rc::Rc,
    time::Duration,
};

/// An answer that is ready to be sent.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) status: StatusCode,
    pub(super) fields: FieldLines,
    pub(super) content: Bytes,
    /// `ETag` as it is sent.
    pub(super) etag: Vec<u8>,
    /// The fields of 304.
    pub(super) not_modified: FieldLines,
}

/// The answers of one shard, by path.
#[derive(Debug, Default)]
pub(super) struct Cache {
    bytes_max: usize,
    bytes: usize,
    paths: HashMap<Rc<str>, Vec<Variant>>,
    /// In the order in which the paths came.
    order: VecDeque<Rc<str>>,
}

/// The answer for one `Accept-Encoding`, as sent.
#[derive(Debug)]
struct Variant {
    accept_encoding: Option<Box<[u8]>>,
    made: Duration,
    kept: Rc<Kept>,
}

impl Kept {
    /// From an answer that may be kept.
    pub(super) fn of(answer: &Answer, content: &Bytes) -> Option<Kept> {
        let fields = |plan: &super::plan::Plan| {
            let mut fields = FieldLines::new();
            for (name, value) in &plan.fields {
                fields.append(name, value.as_bytes()).ok()?;
            }
            Some(fields)
        };
        Some(Kept {
            status: StatusCode::from_u16(answer.plan.status).ok()?,
            etag: answer.plan.field("ETag")?.as_bytes().to_vec(),
            fields: fields(&answer.plan)?,
            not_modified: fields(answer.keep.as_ref()?)?,
            content: content.clone(),
        })
    }

    fn size(&self) -> usize {
        self.content.len() + self.fields.as_bytes().len() + self.not_modified.as_bytes().len() + OVERHEAD
    }
}

impl Variant {
    fn size(&self) -> usize {
        self.kept.size() + self.accept_encoding.as_ref().map_or(0, |value| value.len())
    }
}

impl Cache {
    /// With a bound in bytes; 0 keeps nothing.
    pub(super) fn new(bytes_max: usize) -> Cache {
        Cache { bytes_max, ..Cache::default() }
    }

    /// Whether anything can be kept.
    pub(super) fn is_on(&self) -> bool {
        self.bytes_max > 0
    }

    /// The answer for this path and `Accept-Encoding`, if one was made a moment ago.
    #[inline]
    pub(super) fn find(
        &self,
        path: &str,
        accept_encoding: Option<&[u8]>,
        now: Duration,
    ) -> Option<&Rc<Kept>> {
        let variant =
            self.paths.get(path)?.iter().find(|known| known.accept_encoding.as_deref() == accept_encoding)?;
        (now < variant.made + AGE_MAX).then_some(&variant.kept)
    }

    /// Keeps an answer, in place of an older one.
    pub(super) fn keep(&mut self, path: &str, accept_encoding: Option<&[u8]>, now: Duration, kept: Rc<Kept>) {
        let variant = Variant { accept_encoding: accept_encoding.map(Into::into), made: now, kept };
        let size = variant.size() + 2 * path.len();
        if size > self.bytes_max / 4 {
            return;
        }
        self.bytes += variant.size();
        match self.paths.get_mut(path) {
            Some(variants) => {
                let same = |known: &Variant| known.accept_encoding == variant.accept_encoding;
                let at = variants.iter().position(same).or((variants.len() >= VARIANTS_MAX).then_some(0));
                if let Some(at) = at {
                    self.bytes -= variants.remove(at).size();
                }
                variants.push(variant);
            }
            None => {
                let path: Rc<str> = path.into();
                self.bytes += 2 * path.len();
                self.order.push_back(path.clone());
                self.paths.insert(path, vec![variant]);
            }
        }
        while self.bytes > self.bytes_max {
            let Some(oldest) = self.order.pop_front() else { break };
            let variants = self.paths.remove(&oldest).unwrap_or_default();
            self.bytes -= 2 * oldest.len() + variants.iter().map(Variant::size).sum::<usize>();
        }
    }
}

/// An answer is at most so old.
const AGE_MAX: Duration = Duration::from_millis(100);

/// Answers of one path: browsers send three or four different values.
const VARIANTS_MAX: usize = 8;

/// What an entry costs beside its bytes.
const OVERHEAD: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(len: usize) -> Rc<Kept> {
        Rc::new(Kept {
            status: StatusCode::OK,
            fields: FieldLines::new(),
            content: Bytes::from(vec![b'x'; len]),
            etag: Vec::new(),
            not_modified: FieldLines::new(),
        })
    }

    #[test]
    fn an_answer_is_found_for_a_moment_and_for_its_own_encoding() {
        let mut cache = Cache::new(1 << 20);
        let at = Duration::from_secs(5);
        cache.keep("/a", Some(b"gzip"), at, kept(1));
        cache.keep("/a", None, at, kept(2));
        let len = |cache: &Cache, encoding: Option<&[u8]>, now| {
            cache.find("/a", encoding, now).map(|kept| kept.content.len())
        };
        assert_eq!(len(&cache, Some(b"gzip"), at), Some(1));
        assert_eq!(len(&cache, None, at), Some(2));
        assert_eq!(len(&cache, Some(b"br"), at), None);
        assert_eq!(len(&cache, None, at + AGE_MAX), None);
        cache.keep("/a", None, at + AGE_MAX, kept(3));
        assert_eq!(len(&cache, None, at + AGE_MAX), Some(3));
    }

    #[test]
    fn the_bound_holds_whatever_is_kept() {
        let mut cache = Cache::new(64 * 1024);
        for number in 0..5_000_usize {
            let encoding = format!("gzip;q=0.{number}");
            let path = format!("/{}", number % 37);
            cache.keep(&path, Some(encoding.as_bytes()), Duration::ZERO, kept(number * 7 % 20_000));
            assert!(cache.bytes <= 64 * 1024 && cache.order.len() == cache.paths.len());
            let all: usize = cache
                .paths
                .iter()
                .map(|(path, variants)| 2 * path.len() + variants.iter().map(Variant::size).sum::<usize>())
                .sum();
            assert_eq!(all, cache.bytes);
            assert!(cache.paths.values().all(|variants| variants.len() <= VARIANTS_MAX));
        }
        assert!(!cache.paths.is_empty());
        let mut off = Cache::new(0);
        off.keep("/a", None, Duration::ZERO, kept(0));
        assert!(off.paths.is_empty() && !off.is_on());
    }
}
