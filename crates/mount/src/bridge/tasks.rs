//! Tasks that carry out the kernel's requests.

use std::ffi::OsString;
use std::sync::Arc;

use fuser::{ReplyEmpty, ReplyEntry, Request};

use super::Bridge;
use super::answers::{Undo, answered, empty, entry};
use crate::errno::Outcome;
use crate::volume::{Caller, EntryReply, Volume};

/// A name in a directory, which the kernel knows by its number.
pub(crate) struct NameIn {
    pub(crate) parent: u64,
    pub(crate) name: OsString,
}

/// A name that an operation has made, and the reply about it.
pub(crate) struct MadeEntry {
    pub(crate) reply: EntryReply,
    pub(crate) made: NameIn,
}

impl MadeEntry {
    /// Takes the lookup of a reply back that its caller does not get, and makes the kernel forget
    /// that the name was absent.
    pub(crate) fn undo(volume: &Arc<Volume>, Self { reply, made }: Self) {
        volume.forget_one(reply.attr.ino.0);
        volume.forget_names(vec![(made.parent, made.name)]);
    }
}

impl Bridge {
    /// Begins `work` on this thread; what has to wait becomes a task. Passes the outcome to
    /// `answer`. See [`answered`].
    pub(super) fn spawn<T: Send + 'static, F: Future<Output = Outcome<T>> + Send + 'static>(
        &self,
        asks: &Request,
        work: impl FnOnce(Arc<Volume>) -> F,
        answer: impl FnOnce(Outcome<T>) + Send + 'static,
    ) {
        self.spawn_undoable(asks, work, answer, |_, _| {});
    }

    /// Runs `work`, which makes a name and whose reply adds a lookup of a node. If the caller is gone,
    /// [`MadeEntry::undo`] takes the reply back.
    pub(super) fn spawn_entry<F: Future<Output = Outcome<EntryReply>> + Send + 'static>(
        &self,
        asks: &Request,
        made: NameIn,
        work: impl FnOnce(Arc<Volume>) -> F,
        reply: ReplyEntry,
    ) {
        let answer = move |outcome: Outcome<MadeEntry>| {
            entry(reply, &outcome.map(|made| made.reply));
        };
        let work = |volume| {
            let work = work(volume);
            async move { Ok(MadeEntry { reply: work.await?, made }) }
        };
        self.spawn_undoable(asks, work, answer, MadeEntry::undo);
    }

    /// Runs `work`, which changes these names. If the caller is gone, the kernel forgets what it
    /// knows of them.
    pub(super) fn spawn_on_names<F: Future<Output = Outcome<()>> + Send + 'static>(
        &self,
        asks: &Request,
        names: Vec<(u64, OsString)>,
        work: impl FnOnce(Arc<Volume>) -> F,
        reply: ReplyEmpty,
    ) {
        let work = |volume| {
            let work = work(volume);
            async move { work.await.map(|()| names) }
        };
        let answer = |outcome: Outcome<Vec<(u64, OsString)>>| empty(reply, outcome.map(drop));
        self.spawn_undoable(asks, work, answer, |volume, names| volume.forget_names(names));
    }

    pub(super) fn spawn_undoable<
        T: Send + 'static,
        F: Future<Output = Outcome<T>> + Send + 'static,
    >(
        &self,
        asks: &Request,
        work: impl FnOnce(Arc<Volume>) -> F,
        answer: impl FnOnce(Outcome<T>) + Send + 'static,
        undo: Undo<T>,
    ) {
        let (volume, work) = (Arc::clone(&self.volume), work(Arc::clone(&self.volume)));
        let work = answered(volume, Caller::new(asks.pid()), work, answer, Some(undo));
        self.works.begin(work);
    }

    /// Runs a read, which is cancelled when its caller is killed.
    pub(super) fn read<T, F: Future<Output = Outcome<T>> + Send + 'static>(
        &self,
        asks: &Request,
        is_here: bool,
        work: impl FnOnce(Arc<Volume>) -> F,
        answer: impl FnOnce(Outcome<T>) + Send + 'static,
    ) where
        T: Send + 'static,
    {
        let (volume, work) = (Arc::clone(&self.volume), work(Arc::clone(&self.volume)));
        let work = answered(volume, Caller::new(asks.pid()), work, answer, None);
        // Small reads seldom have to wait, so their work runs on this thread.
        if is_here {
            self.works.begin(work);
        } else {
            self.works.spawn(work);
        }
    }

    /// Subtracts `count` from a node's lookup count. This thread is outside the runtime, so a task
    /// closes the files of a forgotten node.
    pub(crate) fn forgotten(&self, id: u64, count: u64) {
        if let Some(node) = self.volume.forget(id, count) {
            let volume = Arc::clone(&self.volume);
            self.works.begin(async move { volume.let_go(&node).await });
        }
    }
}
