//! The end of files whose last descriptor takes long to close.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frevo_net::file_io;
use frevo_store::Node;

use super::{Open, OpenTarget};
use crate::base::limits::{CLOSING_PATIENCE, CLOSING_TURN, CLOSINGS_WAITING, OPEN_BYTES};
use crate::base::pools::threads::Job;
use crate::base::pools::{blocking_pool, closer};
use crate::objects::ledger::{Charge, Holder, Kind};

/// Time between two looks at an object that others have.
const PAUSE: Duration = Duration::from_millis(2);

/// The place of one replaced file among those that its account has closed beside the cores. It counts as
/// an Open until the file is closed, because its descriptor is open until then.
pub(crate) struct ClosingPlace(Charge);

impl Drop for Open {
    /// Closes a file that lost its last name beside the core, if that may take long. The Open's charge
    /// lasts until then.
    fn drop(&mut self) {
        let OpenTarget::File(file) = &self.target else { return };
        let is_slow = file.cell.closes_slowly()
            || file.base.as_ref().is_some_and(|base| base.closes_slowly());
        if !is_slow || !self.closes_elsewhere() {
            return;
        }
        let charge = self.charge.take();
        let OpenTarget::File(file) = &mut self.target else { return };
        let (node, fd, io) = (Arc::clone(&file.node), file.fd.take(), file.io.take());
        let listing = file.enumeration.lock().take();
        let before: Job = Box::new(move || drop((listing, io)));
        self.close_beside(Some(before), Closing { node: Some(node), fd, charge });
    }
}

impl Open {
    /// The number by which the closer knows its account.
    pub(crate) fn closing_owner(&self) -> usize {
        owner_of(self.charge.get().map(Charge::holder))
    }

    /// Returns a place for [`Self::close_replaced`]; None if the account has none left, or if all calls
    /// are made on this thread.
    pub(crate) fn closing_place(&self) -> Option<ClosingPlace> {
        let holder = self.charge.get()?.holder();
        let has_room = closer::waiting(owner_of(Some(holder))) < CLOSINGS_WAITING;
        if !has_room || !self.closes_elsewhere() {
            return None;
        }
        holder.charge(Kind::Open, OPEN_BYTES).ok().map(ClosingPlace)
    }

    /// Closes a file beside the core whose name this Open's file has taken.
    pub(crate) fn close_replaced(&self, node: Arc<dyn Node>, place: ClosingPlace) {
        let charge = Some(place.0);
        self.close_beside(None, Closing { node: Some(node), fd: None, charge });
    }

    /// True if its files are closed by other threads. A thread of a share's own pool closes them itself:
    /// their file system may hang, and the closer's threads are for all shares.
    fn closes_elsewhere(&self) -> bool {
        if blocking_pool::is_here() {
            return self.tree().share.pool().is_none();
        }
        !file_io::stays()
    }

    /// Closes something on a thread: the closer's, or one of the share's own pool. `before` runs there
    /// first.
    fn close_beside(&self, before: Option<Job>, closing: Closing) {
        let owner = owner_of(closing.charge.as_ref().map(Charge::holder));
        let begin = move || before.into_iter().for_each(|before| before());
        let until = Instant::now() + CLOSING_PATIENCE;
        let tree = self.tree();
        match tree.share.pool() {
            // A job that no thread can be made for is dropped here, and closes the file so.
            Some(pool) => {
                let noted = closer::note(owner);
                let _ = pool.run(move || {
                    begin();
                    closing.close_alone(until);
                    drop(noted);
                });
            }
            None => closer::close(
                owner,
                Box::new(move || {
                    begin();
                    closing.close_in_turns(owner, until);
                }),
            ),
        }
    }
}

/// The number by which the closer knows an account.
pub(crate) fn owner_of(holder: Option<&Arc<Holder>>) -> usize {
    holder.map_or(0, |holder| Arc::as_ptr(holder).addr())
}

/// The objects of a file that is closed beside the core. The node has the descriptor too.
struct Closing {
    node: Option<Arc<dyn Node>>,
    fd: Option<Arc<OwnedFd>>,
    /// Lasts until the file is closed.
    charge: Option<Charge>,
}

impl Closing {
    /// Closes the file as its last owner: I/O that has it, or the caller on the core, drops it first.
    fn close_alone(mut self, until: Instant) {
        while !self.has_closed() && Instant::now() < until {
            std::thread::sleep(PAUSE);
        }
    }

    /// Like [`Self::close_alone`], by the closer. Others may have the file for long, such as those who
    /// observe its changes for a lease: after a while the next close of its owner has the turn.
    fn close_in_turns(mut self, owner: usize, until: Instant) {
        let turn_ends = until.min(Instant::now() + CLOSING_TURN);
        while !self.has_closed() {
            let now = Instant::now();
            if now >= until {
                return;
            }
            if now >= turn_ends {
                let again = move || self.close_in_turns(owner, until);
                return closer::close(owner, Box::new(again));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Drops those objects that nobody else has, and returns true when none is left.
    fn has_closed(&mut self) -> bool {
        self.node.take_if(|node| Arc::strong_count(node) == 1);
        if self.node.is_none() {
            self.fd.take_if(|fd| Arc::strong_count(fd) == 1);
        }
        self.node.is_none() && self.fd.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use frevo_store::memory::{MemoryOptions, MemoryVfs};
    use frevo_store::vfs::OpenHow;
    use frevo_store::{Name, Vfs as _};
    use frevo_wire::dtyp::FileTime;

    use super::*;

    /// Tests that a file that somebody else has for long holds up no other close of its owner, and is
    /// closed by the closer in the end.
    #[test]
    fn a_file_that_others_have_waits_behind_the_next_closes() {
        const OWNER: usize = usize::MAX;
        let patience = Duration::from_secs(20);
        let vfs = MemoryVfs::new(MemoryOptions::default(), Arc::new(|| FileTime(1)));
        let node = vfs.open(&Name::root(), &OpenHow::LOOK).unwrap().node;
        let (held, last) = (Arc::clone(&node), Arc::downgrade(&node));
        let closing = Closing { node: Some(node), fd: None, charge: None };
        let until = Instant::now() + CLOSING_PATIENCE;
        closer::close(OWNER, Box::new(move || closing.close_in_turns(OWNER, until)));
        let (told, hears) = mpsc::channel();
        closer::close(OWNER, Box::new(move || told.send(()).unwrap()));
        hears.recv_timeout(patience).expect("the next close has its turn");
        assert_eq!(Arc::strong_count(&held), 2, "the file waits");
        drop(held);
        let began = Instant::now();
        while last.strong_count() > 0 {
            assert!(began.elapsed() < patience, "the file is closed in the end");
            std::thread::sleep(PAUSE);
        }
    }
}
