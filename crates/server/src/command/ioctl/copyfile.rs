//! OSX_COPYFILE: FSCTL_SRV_COPYCHUNK without chunks copies a whole file for
//! macOS, its data, its streams and its extended attributes.

use std::collections::HashSet;
use std::sync::Arc;

use frevo_store::byte_range::Range;
use frevo_store::vfs::{EaChange, Existence, OpenHow, Vfs};
use frevo_store::{Fault, Name, Node};
use frevo_wire::Status;
use frevo_wire::command::ioctl::copychunk::Chunk;

use super::call::Call;
use super::copychunk::{Copied, copy_counted};
use crate::base::limits::{COPY_CHUNK_BYTES, COPY_CHUNKS};
use crate::base::pools::closer;
use crate::objects::open::{FileOpen, Open};

/// Copies `source` over `target`. Tells the bytes of its data, also of a copy that failed later.
///
/// # Errors
/// Those of a copy that was not begun.
pub(super) async fn copy(
    call: &Call<'_>,
    from: &Open,
    source: &FileOpen,
    to: &Open,
    target: &FileOpen,
) -> Result<Copied, Status> {
    if source.cell.key() == target.cell.key() {
        return Err(Status::INVALID_PARAMETER);
    }
    let size = source.stat()?.end_of_file;
    let whole = Range { offset: 0, length: size };
    if !source.cell.lock().ranges.may_read(from.id(), whole)
        || !target.cell.lock().ranges.may_write(to.id(), whole)
    {
        return Err(Status::FILE_LOCK_CONFLICT);
    }
    let mut copied = Copied::default();
    let mut at = 0;
    while at < size {
        let mut chunks = Vec::new();
        while at < size && chunks.len() < COPY_CHUNKS as usize {
            let length = u32::try_from(size - at).unwrap_or(u32::MAX).min(COPY_CHUNK_BYTES);
            chunks.push(Chunk { source_offset: at, target_offset: at, length });
            at += u64::from(length);
        }
        let piece = copy_counted(call, chunks, source, target).await;
        copied.bytes = copied.bytes.saturating_add(piece.bytes);
        if piece.failure.is_some() {
            return Ok(Copied { failure: piece.failure, ..copied });
        }
    }
    let before = closer::ended();
    let mut finished = finish(call, source, target, size).await;
    if finished == Err(Status::DISK_FULL) && call.rq.has_freed(before).await {
        call.rq.still_served()?;
        finished = Box::pin(finish(call, source, target, size)).await;
    }
    copied.failure = finished.err();
    // An empty file gets ARCHIVE as well, because its attributes and streams were copied.
    target.set_archive();
    Ok(copied)
}

/// Sets the end, and copies what a file has besides its data.
async fn finish(
    call: &Call<'_>,
    source: &FileOpen,
    target: &FileOpen,
    size: u64,
) -> Result<(), Status> {
    target.node.set_end_of_file(size).map_err(Fault::status)?;
    if source.base.is_some() || target.base.is_some() {
        return Ok(());
    }
    let rest = Rest {
        from: (Arc::clone(&source.vfs), source.name(), Arc::clone(&source.node)),
        into: (Arc::clone(&target.vfs), target.name(), Arc::clone(&target.node)),
    };
    call.rq.beside_core(move || rest.copy()).await?.map_err(Fault::status)
}

type Side = (Arc<dyn Vfs>, Name, Arc<dyn Node>);

/// The parts of a file besides its data.
struct Rest {
    from: Side,
    into: Side,
}

impl Rest {
    fn copy(&self) -> Result<(), Fault> {
        let (eas, needed) = (self.from.2.eas()?, self.from.2.needed_eas()?);
        let needed: HashSet<String> = needed.into_iter().collect();
        let changes: Vec<EaChange<'_>> = eas
            .iter()
            .map(|(name, value)| EaChange { name, value, need: needed.contains(name) })
            .collect();
        self.into.2.set_eas(&changes)?;
        for stream in self.from.2.streams()? {
            let open = |(vfs, name, _): &Side, how: &OpenHow| {
                Ok::<_, Fault>(vfs.open(&name.with_stream(Some(&stream.name)), how)?.node)
            };
            let from = match open(&self.from, &READ) {
                // The stream was removed after the list of streams was read, so it is skipped.
                Err(Fault::NotFound) => continue,
                other => other?,
            };
            copy_data(&*from, &*open(&self.into, &WRITE)?)?;
        }
        Ok(())
    }
}

/// A stream at a time, a piece at a time.
fn copy_data(from: &dyn Node, into: &dyn Node) -> Result<(), Fault> {
    let mut buffer = vec![0; COPY_CHUNK_BYTES as usize];
    let mut at = 0;
    loop {
        let count = from.read_at(at, &mut buffer)?;
        let Some(piece) = buffer.get(..count).filter(|piece| !piece.is_empty()) else { break };
        into.write_at(at, piece)?;
        at += count as u64;
    }
    into.set_end_of_file(at)
}

const READ: OpenHow = OpenHow { read: true, ..OpenHow::LOOK };

const WRITE: OpenHow = OpenHow { existence: Existence::Either, write: true, ..READ };
