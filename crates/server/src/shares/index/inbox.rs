//! The changes that an index has heard of and not yet looked at.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use frevo_store::{FolderId, HostChange};
use frevo_wire::fscc::notify::NotifyAction;
use parking_lot::{Condvar, Mutex};

use crate::base::limits::{INDEX_CHANGES, INDEX_CHANGES_BYTES};

/// A change of the share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// Something about this path, or about what has it now.
    Look(String),
    /// The file of the first path has the second.
    Renamed { from: String, to: String },
}

/// The reason why the thread goes on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// There are changes.
    Changes,
    /// The time has come.
    Time,
    /// The index is not needed any more.
    Stop,
}

/// Changes since the thread has last looked, in their order.
#[derive(Debug, Default)]
struct Heard {
    changes: Vec<Change>,
    /// The paths among them that are to be looked at since the last rename.
    paths: HashSet<String>,
    bytes: usize,
    /// There was no room for some changes.
    is_lost: bool,
    /// The host does not tell of all changes by other programs.
    is_unwatched: bool,
    is_stopped: bool,
}

/// The changes that the thread takes away together.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) changes: Vec<Change>,
    /// There were more.
    pub(super) is_lost: bool,
    /// The host does not tell of all changes by other programs.
    pub(super) is_unwatched: bool,
}

/// The changes that wait for the thread.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    heard: Mutex<Heard>,
    /// Wakes the thread.
    wake: Condvar,
    /// The folder that the index is of. Zero before it is known.
    folder_id: AtomicUsize,
}

impl Inbox {
    /// True if `folder_id` is the folder of the index.
    pub(super) fn is_of(&self, folder_id: FolderId) -> bool {
        self.folder_id.load(Ordering::Acquire) == folder_id.0
    }

    /// Sets the folder that the index is of.
    pub(super) fn belongs_to(&self, folder_id: FolderId) {
        self.folder_id.store(folder_id.0, Ordering::Release);
    }

    /// Hears of a change. It waits for nobody for long.
    pub(super) fn hear(&self, change: &HostChange<'_>) {
        let mut heard = self.heard.lock();
        match change {
            // The index has nothing of streams.
            HostChange::Change {
                action:
                    NotifyAction::ADDED_STREAM
                    | NotifyAction::REMOVED_STREAM
                    | NotifyAction::MODIFIED_STREAM,
                ..
            } => return,
            HostChange::Change { name, .. } => heard.look(name),
            HostChange::Renamed { from, to, .. } => heard.rename(from, to),
            HostChange::Lost => heard.is_unwatched = true,
        }
        drop(heard);
        self.wake.notify_one();
    }

    /// Waits for changes until a time.
    pub(super) fn wait(&self, until: Instant) -> Woken {
        let mut heard = self.heard.lock();
        loop {
            if heard.is_stopped {
                return Woken::Stop;
            }
            if !heard.changes.is_empty() || heard.is_lost || heard.is_unwatched {
                return Woken::Changes;
            }
            if self.wake.wait_until(&mut heard, until).timed_out() {
                return if heard.is_stopped { Woken::Stop } else { Woken::Time };
            }
        }
    }

    /// Waits for a time, whatever changes. False once the index is not needed any more.
    pub(super) fn pause(&self, until: Instant) -> bool {
        let mut heard = self.heard.lock();
        while !heard.is_stopped && !self.wake.wait_until(&mut heard, until).timed_out() {}
        !heard.is_stopped
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.heard.lock().is_stopped
    }

    /// Takes all changes.
    pub(super) fn take(&self) -> Taken {
        let mut heard = self.heard.lock();
        let is_stopped = heard.is_stopped;
        let before = std::mem::replace(&mut *heard, Heard { is_stopped, ..Heard::default() });
        let Heard { changes, is_lost, is_unwatched, .. } = before;
        Taken { changes, is_lost, is_unwatched }
    }

    pub(super) fn stop(&self) {
        self.heard.lock().is_stopped = true;
        self.wake.notify_all();
    }
}

impl Heard {
    fn look(&mut self, path: &str) {
        // A client that writes a file makes the same change again and again.
        if self.is_lost || self.paths.contains(path) {
            return;
        }
        if self.take_room(path.len().saturating_mul(2)) {
            self.paths.insert(path.to_owned());
            self.changes.push(Change::Look(path.to_owned()));
        }
    }

    fn rename(&mut self, from: &str, to: &str) {
        if !self.is_lost && self.take_room(from.len().saturating_add(to.len())) {
            self.paths.clear();
            self.changes.push(Change::Renamed { from: from.to_owned(), to: to.to_owned() });
        }
    }

    /// True with room for one more change. Otherwise all are lost.
    fn take_room(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.changes.len() < INDEX_CHANGES && self.bytes <= INDEX_CHANGES_BYTES {
            return true;
        }
        self.lose();
        false
    }

    /// A walk finds what is there, so the changes are not needed.
    fn lose(&mut self) {
        let Self { is_unwatched, is_stopped, .. } = *self;
        *self = Self { is_lost: true, is_unwatched, is_stopped, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use frevo_wire::command::change_notify::CompletionFilter;

    use super::*;

    fn look(inbox: &Inbox, name: &str, action: NotifyAction) {
        inbox.hear(&HostChange::Change { action, name, matches: CompletionFilter::SIZE });
    }

    fn rename(inbox: &Inbox, from: &str, to: &str) {
        inbox.hear(&HostChange::Renamed { from, to, matches: CompletionFilter::FILE_NAME });
    }

    #[test]
    fn a_path_is_looked_at_once_before_each_rename() {
        let inbox = Inbox::default();
        for _ in 0..3 {
            look(&inbox, "a", NotifyAction::MODIFIED);
            look(&inbox, "a", NotifyAction::MODIFIED_STREAM);
        }
        rename(&inbox, "a", "b");
        look(&inbox, "a", NotifyAction::ADDED);
        let taken = inbox.take();
        let [look, renamed, again] = &taken.changes[..] else { panic!("{taken:?}") };
        assert_eq!((look, again), (&Change::Look("a".into()), look));
        assert_eq!(renamed, &Change::Renamed { from: "a".into(), to: "b".into() });
        assert!(inbox.take().changes.is_empty());
    }

    #[test]
    fn more_changes_than_have_room_are_lost_and_told_so() {
        for more in 0..2 {
            let inbox = Inbox::default();
            for number in 0..INDEX_CHANGES + more {
                look(&inbox, &number.to_string(), NotifyAction::ADDED);
            }
            let taken = inbox.take();
            assert_eq!((taken.is_lost, taken.changes.is_empty()), (more == 1, more == 1));
        }
        let inbox = Inbox::default();
        look(&inbox, &"x".repeat(INDEX_CHANGES_BYTES / 2), NotifyAction::ADDED);
        assert!(!inbox.take().is_lost);
        look(&inbox, &"x".repeat(INDEX_CHANGES_BYTES / 2 + 1), NotifyAction::ADDED);
        look(&inbox, "a", NotifyAction::ADDED);
        assert_eq!(inbox.wait(Instant::now()), Woken::Changes);
        assert!(inbox.take().is_lost);
        inbox.hear(&HostChange::Lost);
        assert_eq!(inbox.wait(Instant::now()), Woken::Changes);
        assert!(inbox.take().is_unwatched && !inbox.take().is_unwatched);
    }

    #[test]
    fn a_stopped_inbox_waits_for_nothing() {
        let inbox = Inbox::default();
        assert_eq!(inbox.wait(Instant::now()), Woken::Time);
        inbox.stop();
        let late = Instant::now() + std::time::Duration::from_secs(600);
        assert_eq!((inbox.wait(late), inbox.pause(late)), (Woken::Stop, false));
    }
}
