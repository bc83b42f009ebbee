//! The handler of a folder: from the cache of answers, at once where nothing waits, else by the offload pool.
//!
//! ```text
//! request → kept answer? → decide without waiting → whole: answered inside the callback, nothing is parked
//!                                  │ must wait            large: streamed by a future of the exchange
//!                                  └→ decide on the pool, then as above
//! ```

use super::{
    FilesOptions,
    answer::{Answer, Content, Folder, Mode, MustWait, decide, facts_of},
    cache::{Cache, Kept},
    negotiate, send,
};
use crate::{
    error::{Error, Result},
    exchange::{Exchange, asynchronous},
    http1::{Head, Method},
    metrics::files::{Count, count},
    routing::{Handler as _, Router, any},
};
use shards::{Shard, fs::Root};
use std::{cell::RefCell, io, path::Path, rc::Rc, sync::Arc};

/// A folder that is served, for all shards.
#[derive(Debug, Clone)]
pub struct Files {
    folder: Arc<Folder>,
}

/// What a shard holds of it.
struct OnShard {
    folder: Arc<Folder>,
    cache: RefCell<Cache>,
    /// Whoever may compress holds one of these; the pool's threads are for opening files too.
    permits: Arc<()>,
    permits_max: usize,
}

/// What a request without conditions and ranges asks for.
struct Plain<'a> {
    is_head: bool,
    accept_encoding: Option<&'a [u8]>,
    if_none_match: Option<&'a [u8]>,
}

impl Files {
    /// Opens the folder. It stays the folder that is served, whatever becomes of its name.
    ///
    /// # Errors
    /// What `open(2)` says.
    pub fn open(path: impl AsRef<Path>, options: FilesOptions) -> io::Result<Files> {
        Ok(Files { folder: Arc::new(Folder { root: Root::open(path)?, options }) })
    }

    /// The routes of a server that serves nothing else.
    pub fn router(&self, shard: &Shard) -> Router {
        let on_shard = Rc::new(OnShard {
            folder: self.folder.clone(),
            cache: RefCell::new(Cache::new(self.folder.options.cache_bytes)),
            permits: Arc::default(),
            permits_max: (COMPRESSIONS_MAX / shard.siblings().len().max(1)).max(1),
        });
        let later = {
            let on_shard = on_shard.clone();
            asynchronous(async move |x: &mut Exchange| on_shard.clone().go_on(x).await)
        };
        let handler = move |x: &mut Exchange| -> Result<()> {
            if on_shard.answer_kept(x)? {
                return Ok(());
            }
            let whole = match on_shard.decide_now(x) {
                Ok(answer) => match answer.content {
                    Content::Bytes(_) => return on_shard.finish(x, answer),
                    Content::Stream(..) => Some(answer),
                },
                Err(MustWait) => None,
            };
            if let Some(answer) = whole {
                x.set_attribute(answer);
            }
            later.handle(x)
        };
        Router::new().route_with("/*", any(handler), |route| {
            route.without_parameters().needs_async();
        })
    }
}

impl OnShard {
    /// Answers from the cache, if it can.
    fn answer_kept(&self, x: &mut Exchange) -> Result<bool> {
        let found = {
            let cache = self.cache.borrow();
            if !cache.is_on() {
                return Ok(false);
            }
            let head = x.request();
            let Some(plain) = Plain::of(head) else { return Ok(false) };
            let Some(kept) = cache.find(head.path(), plain.accept_encoding, x.now()) else {
                count(Count::CacheMiss);
                return Ok(false);
            };
            let is_known = match plain.if_none_match {
                None => false,
                Some(tag) if tag == kept.etag => true,
                Some(_) => return Ok(false),
            };
            (kept.clone(), is_known, plain.is_head)
        };
        let (kept, is_known, is_head) = found;
        count(Count::CacheHit);
        if is_known {
            send::not_modified(x, &kept)?;
        } else {
            send::kept(x, &kept, is_head)?;
        }
        Ok(true)
    }

    fn decide_now(&self, x: &mut Exchange) -> std::result::Result<Answer, MustWait> {
        let may_compress = self.may_compress(x.request());
        decide(&self.folder, &facts_of(x.request(), may_compress), Mode::Cached)
    }

    /// What the handler could not end inside its callback.
    async fn go_on(self: Rc<Self>, x: &mut Exchange) -> Result<()> {
        let answer = match x.take_attribute::<Answer>() {
            Some(answer) => answer,
            None => self.decide_on_pool(x).await?,
        };
        match answer.content {
            Content::Bytes(_) => self.finish(x, answer),
            Content::Stream(..) => {
                count_coding(&answer);
                match send::begin(x, answer)? {
                    Some(stream) => stream.run(x).await,
                    None => Ok(()),
                }
            }
        }
    }

    async fn decide_on_pool(&self, x: &mut Exchange) -> Result<Answer> {
        let request = x.owned_request();
        // Held by the job, not by the future: a client that leaves does not end the work.
        let permit = self.may_compress(request.head()).then(|| self.permits.clone());
        let folder = self.folder.clone();
        let work = move || {
            let answer = decide(&folder, &facts_of(request.head(), permit.is_some()), Mode::Blocking);
            drop(permit);
            answer
        };
        match Shard::current().offload(work).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(MustWait)) => Err(Error::handler("a blocking decision has waited")),
            Err(shards::Error::LimitReached { .. }) => {
                Err(Error::LimitReached { limit: "offload_queue_max" })
            }
            Err(error) => Err(Error::handler(error.to_string())),
        }
    }

    /// Sends a whole answer, and keeps it if it may be kept.
    fn finish(&self, x: &mut Exchange, answer: Answer) -> Result<()> {
        count_coding(&answer);
        self.keep(x, &answer);
        send::begin(x, answer).map(|_| ())
    }

    fn keep(&self, x: &Exchange, answer: &Answer) {
        let Content::Bytes(content) = &answer.content else { return };
        let mut cache = self.cache.borrow_mut();
        if answer.keep.is_none() || !cache.is_on() {
            return;
        }
        let head = x.request();
        let Some(plain) = Plain::of(head) else { return };
        // Compression that had no permit this time shall have another chance.
        if answer.plan.compression_refused {
            return;
        }
        if let Some(kept) = Kept::of(answer, content) {
            cache.keep(head.path(), plain.accept_encoding, x.now(), Rc::new(kept));
        }
    }

    /// Whether the client takes a coding that is made here, and a permit is left.
    fn may_compress(&self, head: Head<'_>) -> bool {
        self.folder.options.compress
            && Arc::strong_count(&self.permits) <= self.permits_max
            && !negotiate::codings(&head.headers("accept-encoding").collect()).is_empty()
    }
}

fn count_coding(answer: &Answer) {
    if answer.plan.compress.is_some() {
        count(Count::Compression);
    }
    if answer.plan.compression_refused {
        count(Count::CompressionRefused);
    }
}

impl<'a> Plain<'a> {
    /// `None` if the answer hangs on more than path and coding.
    fn of(head: Head<'a>) -> Option<Plain<'a>> {
        let is_head = match head.method_kind() {
            Method::Get => false,
            Method::Head => true,
            _ => return None,
        };
        let mut plain = Plain { is_head, accept_encoding: None, if_none_match: None };
        for (name, value) in head.fields() {
            // Most fields are told apart by their length.
            let is_long_way = match name.len() {
                15 if name.eq_ignore_ascii_case("accept-encoding") => {
                    plain.accept_encoding.replace(value).is_some()
                }
                13 if name.eq_ignore_ascii_case("if-none-match") => {
                    plain.if_none_match.replace(value).is_some()
                }
                5 => name.eq_ignore_ascii_case("range"),
                8 | 17 | 19 => name.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("if-")),
                _ => false,
            };
            // Several lines are one list; that, and the other conditions, are read by the long way.
            if is_long_way {
                return None;
            }
        }
        Some(plain)
    }
}

/// Compressions at a time, all shards together; at least one a shard. Half of the pool's threads stay free for files.
const COMPRESSIONS_MAX: usize = 2;
