//! Answers onto an exchange: small ones in one piece, large files in chunks no faster than the client takes them.
//!
//! The length is promised before the first byte. A file that grows is sent as long as it was; one that shrinks, or a
//! disk that fails, cuts the connection: never padded, never a clean end of a wrong length.

use super::{
    answer::{Answer, Content},
    buffers::{CHUNK_LEN, Chunk},
    cache::Kept,
    plan::{Piece, Plan},
};
use crate::{error::Result, exchange::Exchange};
use bytes::Bytes;
use http::StatusCode;
use shards::{File, Shard, fs::OpenFile};

/// A body that is read while it is sent.
pub(super) struct Stream {
    file: OpenFile,
    pieces: Vec<Piece>,
}

/// Sends an answer that was kept.
pub(super) fn kept(x: &mut Exchange, kept: &Kept, is_head: bool) -> Result<()> {
    let mut response = x.response();
    response.set_status(kept.status);
    response.set_fields(&kept.fields)?;
    if is_head {
        return response.set_content_length(kept.content.len() as u64);
    }
    match kept.content.len() {
        ..=COPY_LEN_MAX => x.write_copy(&kept.content),
        _ => x.write(kept.content.clone()),
    }
}

/// Says that the client has it already.
pub(super) fn not_modified(x: &mut Exchange, kept: &Kept) -> Result<()> {
    let mut response = x.response();
    response.set_status(StatusCode::NOT_MODIFIED);
    response.set_fields(&kept.not_modified)
}

/// Writes head and content; gives back what must be read while it is sent.
pub(super) fn begin(x: &mut Exchange, answer: Answer) -> Result<Option<Stream>> {
    write_head(x, &answer.plan)?;
    match answer.content {
        Content::Bytes(bytes) => x.write(bytes).map(|()| None),
        Content::Stream(file, pieces) => Ok(Some(Stream { file, pieces })),
    }
}

fn write_head(x: &mut Exchange, plan: &Plan) -> Result<()> {
    let mut response = x.response();
    response.set_status(StatusCode::from_u16(plan.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
    for (name, value) in &plan.fields {
        response.append_header(name, value.as_bytes())?;
    }
    match plan.content_length {
        Some(length) => response.set_content_length(length),
        None => Ok(()),
    }
}

impl Stream {
    /// Sends all pieces. At most one chunk waits in the exchange's queue; the next is read when the client has taken
    /// nearly all of it.
    pub(super) async fn run(self, x: &mut Exchange) -> Result<()> {
        let file = File::new(&Shard::current(), self.file.into_fd()?);
        for piece in self.pieces {
            match piece {
                Piece::Bytes(bytes) => x.write(bytes)?,
                Piece::File { offset, len } => {
                    if !send_part(x, &file, offset, len).await? {
                        return x.abort();
                    }
                }
            }
        }
        Ok(())
    }
}

/// False if the file ended before its part did.
async fn send_part(x: &mut Exchange, file: &File, mut offset: u64, mut len: u64) -> Result<bool> {
    while len > 0 {
        let wanted = usize::try_from(len).unwrap_or(usize::MAX).min(CHUNK_LEN);
        let (read, mut buffer) = file.read_at(offset, Chunk::empty(), wanted).await;
        let read = read?.min(wanted);
        if read == 0 {
            return Ok(false);
        }
        buffer.truncate(read);
        offset += read as u64;
        len -= read as u64;
        x.write(Bytes::from_owner(Chunk(buffer)))?;
        if !x.is_write_ready() {
            x.write_ready().await?;
        }
    }
    Ok(true)
}

/// Kept content up to this size is copied behind the head, which costs less than a second piece.
const COPY_LEN_MAX: usize = 4 * 1024;
