//! The visible state, the stable state, and the journal between them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use frevo_wire::dtyp::FileTime;

use super::tree::{Body, Change, Ino, Inode, ROOT, Tree};
use crate::limits::MEMORY_JOURNAL_CHANGES;

/// The changing state of a file system.
#[derive(Debug)]
pub(super) struct State {
    /// The state that clients see.
    pub(super) live: Tree,
    /// The state on the medium.
    stable: Tree,
    /// Changes of directories that are not on the medium, oldest first.
    journal: Vec<Change>,
    /// Number of open nodes of each file.
    opens: BTreeMap<Ino, u32>,
    /// The number of the next file.
    next: u64,
    /// Pages that the files of `live` take.
    pub(super) used: u64,
}

impl State {
    pub(super) fn new(now: FileTime) -> Self {
        let next = ROOT.0.saturating_add(1);
        Self::of(Tree::new(now), next)
    }

    /// Returns a state in which everything is on the medium.
    fn of(tree: Tree, next: u64) -> Self {
        let used = tree.0.values().map(Inode::held).fold(0, u64::saturating_add);
        Self {
            live: tree.clone(),
            stable: tree,
            journal: Vec::new(),
            opens: BTreeMap::new(),
            next,
            used,
        }
    }

    /// Returns the number for a new file.
    pub(super) fn number(&mut self) -> Ino {
        let ino = Ino(self.next);
        self.next = self.next.saturating_add(1);
        ino
    }

    /// Changes directories, and the times of the changed files.
    pub(super) fn change(&mut self, change: Change, now: FileTime) {
        for ino in self.live.apply(&change) {
            self.forget_unused(ino);
        }
        for edit in &change.edits {
            if let Some(dir) = self.live.0.get_mut(&edit.dir) {
                (dir.meta.written, dir.meta.changed) = (now, now);
            }
            if let Some(inode) = edit.to.and_then(|ino| self.live.0.get_mut(&ino)) {
                inode.meta.changed = now;
            }
        }
        if self.journal.len() >= MEMORY_JOURNAL_CHANGES {
            self.commit(MEMORY_JOURNAL_CHANGES.div_ceil(2));
        }
        self.journal.push(change);
    }

    /// Counts an opened node of the file.
    pub(super) fn open(&mut self, ino: Ino) {
        let count = self.opens.entry(ino).or_insert(0);
        *count = count.saturating_add(1);
    }

    /// Counts a closed node of the file. A file without a name goes with its last node.
    pub(super) fn close(&mut self, ino: Ino) {
        if let Some(count) = self.opens.get_mut(&ino) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.opens.remove(&ino);
                self.forget_unused(ino);
            }
        }
    }

    fn forget_unused(&mut self, ino: Ino) {
        let unnamed = self.live.0.get(&ino).is_some_and(|inode| inode.meta.links == 0);
        if unnamed
            && !self.opens.contains_key(&ino)
            && let Some(inode) = self.live.0.remove(&ino)
        {
            self.used = self.used.saturating_sub(inode.held());
        }
    }

    /// Makes a file stable, and all earlier changes of directories.
    pub(super) fn sync(&mut self, ino: Ino) {
        self.commit(self.journal.len());
        let (Some(live), Some(stable)) = (self.live.0.get(&ino), self.stable.0.get_mut(&ino))
        else {
            return;
        };
        stable.meta = live.meta.clone();
        stable.streams = live.streams.clone();
        if let Body::File(content) = &live.body {
            stable.body = Body::File(content.clone());
        }
    }

    /// Makes the oldest `count` changes of directories stable.
    fn commit(&mut self, count: usize) {
        for change in self.journal.drain(..count.min(self.journal.len())) {
            apply_stable(&mut self.stable, &change);
        }
    }

    /// Returns the state after a crash. `survives` is asked for each change of directories, in
    /// order until it returns false, and then for each other unsynced change.
    pub(super) fn after_crash(&self, survives: &mut dyn FnMut() -> bool) -> Self {
        let mut left = self.stable.clone();
        for change in &self.journal {
            if !survives() {
                break;
            }
            apply_stable(&mut left, change);
        }
        for (ino, inode) in &mut left.0 {
            let newer = self.live.0.get(ino).map(|live| &live.body);
            if let (Body::File(old), Some(Body::File(new))) = (&mut inode.body, newer) {
                old.mix(new, survives);
            }
        }
        Self::of(left, self.next)
    }
}

/// Applies a change to the stable tree. Nothing is open there: a file without a name is gone.
fn apply_stable(tree: &mut Tree, change: &Change) {
    for ino in tree.apply(change) {
        tree.0.remove(&ino);
    }
}
