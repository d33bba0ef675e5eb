//! FileId.Persistent and SessionId of this node.

use std::sync::{Arc, Weak};

use frevo_cluster::ids::{Generation, IdSpace};
use frevo_cluster::interface::Command;
use frevo_store::IdSource;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::inbox::{Inbox, Message};

/// The numbers that this node gives. None before etcd has given the node a generation.
#[derive(Debug)]
pub(crate) struct NodeIds {
    space: Mutex<Space>,
    secret: Option<u32>,
    inbox: Weak<Inbox>,
}

#[derive(Debug)]
struct Space {
    ids: IdSpace,
    /// True after a new generation was asked for.
    is_asked: bool,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

impl NodeIds {
    /// Numbers whose lower halves are mixed by `secret`; by a random one for each generation if it is None.
    pub(crate) fn new(secret: Option<u32>, inbox: &Arc<Inbox>) -> Self {
        let ids = IdSpace::new(Generation(0), 0);
        let space = Mutex::new(Space { ids, is_asked: false });
        Self { space, secret, inbox: Arc::downgrade(inbox) }
    }

    /// Gives numbers of this generation from now on.
    pub(crate) fn set(&self, generation: Generation) {
        // Without random bytes, numbers are unique all the same.
        let secret = self.secret.or_else(|| getrandom::u32().ok()).unwrap_or_default();
        let ids = match planted!(NumberTwice) {
            true => IdSpace::new(Generation(1), 1),
            false => IdSpace::new(generation, secret),
        };
        *self.space.lock() = Space { ids, is_asked: false };
    }
}

impl IdSource for NodeIds {
    fn take(&self) -> Option<u64> {
        let mut space = self.space.lock();
        let id = space.ids.take();
        let is_used_up = id.is_none() && space.ids.generation() != Generation(0);
        if is_used_up && !space.is_asked {
            space.is_asked = true;
            drop(space);
            if let Some(inbox) = self.inbox.upgrade() {
                // The end is seen by the new generation.
                inbox.push(Message::Command(Command::NewGeneration, oneshot::channel().0));
            }
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_begin_with_a_generation() {
        let inbox = Arc::default();
        let ids = NodeIds::new(Some(1), &inbox);
        assert_eq!(ids.take(), None);
        assert!(inbox.take(9).is_empty(), "there is a generation when the node is registered");
        ids.set(Generation(7));
        assert_eq!(ids.take().map(IdSpace::generation_of), Some(Generation(7)));
    }

    #[test]
    fn a_new_generation_is_asked_for_once() {
        let inbox = Arc::default();
        let ids = NodeIds::new(Some(1), &inbox);
        // The last generation has no numbers.
        ids.set(Generation(u32::MAX));
        assert_eq!((ids.take(), ids.take()), (None, None));
        assert!(matches!(&*inbox.take(9), [Message::Command(Command::NewGeneration, _)]));
    }
}
