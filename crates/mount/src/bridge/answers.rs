//! Answers to the kernel, also for callers that were killed.

use std::pin::pin;
use std::sync::Arc;

use fuser::{
    Errno, FileHandle, FopenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, ReplyXattr,
};

use super::GENERATION;
use crate::errno::Outcome;
use crate::volume::{Caller, EntryReply, Volume};

/// Undoes the effect of an operation whose caller is gone.
pub(crate) type Undo<T> = fn(&Arc<Volume>, T);

/// Runs `work` and passes its outcome to `answer`.
///
/// If the caller is killed meanwhile, the answer is EINTR at once, since the kernel keeps the
/// thread until it is answered. With `undo`, the work runs to its end, because it may be half done,
/// and `undo` then takes back its result. Without `undo`, the work is cancelled.
pub(crate) async fn answered<T>(
    volume: Arc<Volume>,
    mut caller: Caller,
    work: impl Future<Output = Outcome<T>>,
    answer: impl FnOnce(Outcome<T>),
    undo: Option<Undo<T>>,
) {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return answer(done),
        () = caller.killed() => {}
    }
    answer(Err(Errno::EINTR));
    if let Some(undo) = undo
        && let Ok(done) = work.await
    {
        undo(&volume, done);
    }
}

pub(super) fn entry(reply: ReplyEntry, outcome: &Outcome<EntryReply>) {
    match outcome {
        Ok(EntryReply { attr, ttl }) => reply.entry(ttl, attr, GENERATION),
        Err(error) => reply.error(*error),
    }
}

pub(super) fn attr(reply: ReplyAttr, outcome: &Outcome<EntryReply>) {
    match outcome {
        Ok(EntryReply { attr, ttl }) => reply.attr(ttl, attr),
        Err(error) => reply.error(*error),
    }
}

pub(super) fn empty(reply: ReplyEmpty, outcome: Outcome<()>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

pub(super) fn written(reply: ReplyWrite, outcome: Outcome<u32>) {
    match outcome {
        Ok(count) => reply.written(count),
        Err(error) => reply.error(error),
    }
}

pub(super) fn data(reply: ReplyData, outcome: Outcome<impl AsRef<[u8]>>) {
    match outcome {
        Ok(data) => reply.data(data.as_ref()),
        Err(error) => reply.error(error),
    }
}

pub(super) fn opened(reply: ReplyOpen, outcome: Outcome<u64>, flags: FopenFlags) {
    match outcome {
        Ok(handle) => reply.opened(FileHandle(handle), flags),
        Err(error) => reply.error(error),
    }
}

/// Answers with the value of an attribute, or with its length if `size` is 0.
pub(super) fn value(reply: ReplyXattr, outcome: Outcome<Vec<u8>>, size: u32) {
    match outcome {
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() <= size as usize => reply.data(&value),
        Ok(_) => reply.error(Errno::ERANGE),
        Err(error) => reply.error(error),
    }
}
