//! The end of files whose last descriptor takes long to close.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frevo_net::file_io;
use frevo_store::Node;

use super::{Open, OpenTarget};
use crate::base::limits::{CLOSING_PATIENCE, CLOSINGS_WAITING};
use crate::base::pools::{blocking_pool, closer};

/// Time between two looks at an object that others have.
const PAUSE: Duration = Duration::from_millis(2);

impl Drop for Open {
    /// Closes a file that lost its last name beside the core, if that may take long. The Open's charge
    /// lasts until then.
    fn drop(&mut self) {
        let owner = self.owner();
        let OpenTarget::File(file) = &mut self.target else { return };
        let is_slow = file.cell.closes_slowly()
            || file.base.as_ref().is_some_and(|base| base.closes_slowly());
        if !is_slow || !closes_elsewhere() {
            return;
        }
        let (node, fd, io) = (Arc::clone(&file.node), file.fd.take(), file.io.take());
        let listing = file.enumeration.lock().take();
        let charge = self.charge.take();
        closer::close(
            owner,
            Box::new(move || {
                drop((listing, io));
                close_alone(node);
                if let Some(fd) = fd {
                    close_alone(fd);
                }
                drop(charge);
            }),
        );
    }
}

impl Open {
    /// The number by which the closer knows the account that pays for it.
    fn owner(&self) -> usize {
        self.charge.get().map_or(0, |charge| Arc::as_ptr(charge.holder()).addr())
    }

    /// True if [`Self::close_replaced`] has room for one more file.
    pub(crate) fn has_room_to_close(&self) -> bool {
        closer::waiting(self.owner()) < CLOSINGS_WAITING
    }

    /// Closes a file beside the core whose name this Open's file has taken, if there is room.
    pub(crate) fn close_replaced(&self, node: Arc<dyn Node>) {
        if closes_elsewhere() && self.has_room_to_close() {
            closer::close(self.owner(), Box::new(move || close_alone(node)));
        }
    }
}

/// True unless all calls are made on this thread.
fn closes_elsewhere() -> bool {
    !file_io::stays() || blocking_pool::is_here()
}

/// Drops an object as its last owner: I/O that has it, or the caller on the core, drops it first.
fn close_alone<T: ?Sized>(object: Arc<T>) {
    let until = Instant::now() + CLOSING_PATIENCE;
    while Arc::strong_count(&object) > 1 && Instant::now() < until {
        std::thread::sleep(PAUSE);
    }
    drop(object);
}
