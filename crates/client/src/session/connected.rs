//! The shares of files that are connected in a session, and which of them can be together.

use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;

use super::channel::Live;
use crate::error::Result;

/// A share that is connected in a session, as the session needs it.
pub(crate) trait ConnectedShare: Send + Sync {
    /// Returns false if the node of `live` refuses the share, or the connection ends.
    fn is_at<'a>(self: Arc<Self>, live: &'a Arc<Live>) -> BoxFuture<'a, bool>;

    /// Connects the share again after a loss of the session, at whatever node serves it.
    fn come_back(self: Arc<Self>) -> BoxFuture<'static, Result<()>>;

    /// Returns true if files are open in it.
    fn has_opens(&self) -> bool;
}

/// The connected shares of files of a session.
#[derive(Default)]
pub(super) struct ConnectedShares {
    all: Vec<Weak<dyn ConnectedShare>>,
    /// True if the only one must not be together with others.
    is_alone: bool,
}

impl ConnectedShares {
    /// Adds a share unless it is there. Returns false if it cannot be together with those that are there.
    pub(super) fn admit(&mut self, share: Weak<dyn ConnectedShare>, is_alone: bool) -> bool {
        self.all.retain(|one| one.strong_count() > 0);
        let others = self.all.iter().filter(|one| !one.ptr_eq(&share)).count();
        if others > 0 && (is_alone || self.is_alone) {
            self.remove(&share);
            return false;
        }
        if others == self.all.len() {
            self.all.push(share);
        }
        self.is_alone = is_alone;
        true
    }

    pub(super) fn remove(&mut self, share: &Weak<dyn ConnectedShare>) {
        self.all.retain(|one| !one.ptr_eq(share));
    }

    /// Returns the shares. The last reference to one may be in this list.
    pub(super) fn in_use(&self) -> Vec<Arc<dyn ConnectedShare>> {
        self.all.iter().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Share;

    impl ConnectedShare for Share {
        fn is_at<'a>(self: Arc<Self>, _: &'a Arc<Live>) -> BoxFuture<'a, bool> {
            Box::pin(std::future::ready(true))
        }

        fn come_back(self: Arc<Self>) -> BoxFuture<'static, Result<()>> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn has_opens(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_share_that_moves_alone_admits_no_other() {
        let [one, two] = [Arc::new(Share), Arc::new(Share)];
        let weak = |share: &Arc<Share>| {
            let share: Weak<Share> = Arc::downgrade(share);
            share as Weak<dyn ConnectedShare>
        };
        let mut shares = ConnectedShares::default();
        assert!(shares.admit(weak(&one), true));
        assert!(shares.admit(weak(&one), true), "it is there");
        assert!(!shares.admit(weak(&two), false));
        assert!(shares.admit(weak(&one), false), "it has joined a group of shares");
        assert!(shares.admit(weak(&two), false));
        assert!(!shares.admit(weak(&one), true), "it has left the group");
        assert_eq!(shares.in_use().len(), 1);
        drop(two);
        assert!(shares.admit(weak(&one), true), "the other one is gone");
        shares.remove(&weak(&one));
        assert!(shares.in_use().is_empty());
    }
}
