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
pub(super) struct ConnectedShares(Vec<Member>);

/// A share of a session.
struct Member {
    share: Weak<dyn ConnectedShare>,
    /// True if it must not be together with others.
    is_alone: bool,
}

impl ConnectedShares {
    /// Adds a share unless it is there. Returns false if it cannot be together with those that are there.
    pub(super) fn admit(&mut self, share: Weak<dyn ConnectedShare>, is_alone: bool) -> bool {
        self.remove(&share);
        let is_together = match is_alone {
            true => self.0.is_empty(),
            false => !self.0.iter().any(|other| other.is_alone),
        };
        if is_together {
            self.0.push(Member { share, is_alone });
        }
        is_together
    }

    /// Adds a share that stays, whatever the others are. They may have to leave it.
    pub(super) fn keep(&mut self, share: Weak<dyn ConnectedShare>, is_alone: bool) {
        self.remove(&share);
        self.0.push(Member { share, is_alone });
    }

    /// Removes a share, and those that are not in use any more.
    pub(super) fn remove(&mut self, share: &Weak<dyn ConnectedShare>) {
        self.0.retain(|one| one.share.strong_count() > 0 && !one.share.ptr_eq(share));
    }

    /// Returns the shares. The last reference to one may be in this list.
    pub(super) fn in_use(&self) -> Vec<Arc<dyn ConnectedShare>> {
        self.0.iter().filter_map(|one| one.share.upgrade()).collect()
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
        shares.keep(weak(&one), true);
        assert_eq!(shares.in_use().len(), 2, "both stay");
        assert!(!shares.admit(weak(&two), false), "it has to leave the one that stays");
        shares.keep(weak(&two), false);
        assert!(!shares.admit(weak(&one), true));
        drop(two);
        assert!(shares.admit(weak(&one), true), "the other one is gone");
        shares.remove(&weak(&one));
        assert!(shares.in_use().is_empty());
    }
}
