//! What the kernel is answered, and whom nothing is answered any more.

use std::pin::pin;
use std::sync::Arc;

use fuser::{
    Errno, FileHandle, FopenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, ReplyXattr,
};

use super::GENERATION;
use crate::errno::Outcome;
use crate::volume::{Caller, Told, Volume};

/// Takes back what came of an operation and nobody will ever use.
pub(super) type Undone<T> = fn(&Arc<Volume>, T);

/// Carries `work` out and has `answer` given what comes of it. Whoever asked may be killed
/// meanwhile: the kernel keeps him until he is answered, so he is, at once. What he asked for
/// is gone on with, for what is half done cannot be left so, and `undo` takes back what he
/// would have had of it. Without `undo` it is given up.
pub(super) async fn answered<T>(
    volume: Arc<Volume>,
    mut caller: Caller,
    work: impl Future<Output = Outcome<T>>,
    answer: impl FnOnce(Outcome<T>),
    undo: Option<Undone<T>>,
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

pub(super) fn entry(reply: ReplyEntry, outcome: &Outcome<Told>) {
    match outcome {
        Ok(Told { attr, ttl }) => reply.entry(ttl, attr, GENERATION),
        Err(error) => reply.error(*error),
    }
}

pub(super) fn attr(reply: ReplyAttr, outcome: &Outcome<Told>) {
    match outcome {
        Ok(Told { attr, ttl }) => reply.attr(ttl, attr),
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

/// The value of an attribute, or how long it is.
pub(super) fn value(reply: ReplyXattr, outcome: Outcome<Vec<u8>>, size: u32) {
    match outcome {
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() <= size as usize => reply.data(&value),
        Ok(_) => reply.error(Errno::ERANGE),
        Err(error) => reply.error(error),
    }
}
