//! The end of files whose last descriptor takes long to close.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frevo_net::file_io;
use frevo_store::Node;

use super::{Open, OpenTarget};
use crate::base::limits::{CLOSING_PATIENCE, CLOSINGS_WAITING, OPEN_BYTES};
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
        let job = Box::new(move || {
            drop((listing, io));
            close_alone(node);
            if let Some(fd) = fd {
                close_alone(fd);
            }
        });
        self.close_beside(charge, job);
    }
}

impl Open {
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
        self.close_beside(Some(place.0), Box::new(move || close_alone(node)));
    }

    /// True if its files are closed by other threads. A thread of a share's own pool closes them itself:
    /// their file system may hang, and the closer's threads are for all shares.
    fn closes_elsewhere(&self) -> bool {
        if blocking_pool::is_here() {
            return self.tree().share.pool().is_none();
        }
        !file_io::stays()
    }

    /// Closes something on a thread: the closer's, or one of the share's own pool. `charge` lasts until
    /// then.
    fn close_beside(&self, charge: Option<Charge>, job: Job) {
        let owner = owner_of(charge.as_ref().map(Charge::holder));
        let job = move || {
            job();
            drop(charge);
        };
        let tree = self.tree();
        match tree.share.pool() {
            // A job that no thread can be made for is dropped here, and closes the file so.
            Some(pool) => drop(pool.run(job)),
            None => closer::close(owner, Box::new(job)),
        }
    }
}

/// The number by which the closer knows an account.
fn owner_of(holder: Option<&Arc<Holder>>) -> usize {
    holder.map_or(0, |holder| Arc::as_ptr(holder).addr())
}

/// Drops an object as its last owner: I/O that has it, or the caller on the core, drops it first.
fn close_alone<T: ?Sized>(object: Arc<T>) {
    let until = Instant::now() + CLOSING_PATIENCE;
    while Arc::strong_count(&object) > 1 && Instant::now() < until {
        std::thread::sleep(PAUSE);
    }
    drop(object);
}
