//! The owner of a share: the node of a cluster that serves it, which is looked for when another node
//! refuses the share.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;

use super::{Inner, Share};
use crate::Status;
use crate::error::Cause;
use crate::session::bound::Bound;
use crate::session::{ConnectedShare, Failure, Live, NodeInfo, Refused, Session};
use frevo_wire::command::tree_connect::{ShareCapabilities, ShareType};

/// The refusal of a TREE_CONNECT by a node that is not the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// With this status.
    Status(Status),
    /// By the end of the connection.
    Ended,
}

impl Refusal {
    /// Returns the refusal that a failed TREE_CONNECT may be; `None` for an error of the user or of the
    /// share.
    pub(super) const fn of(failure: &Failure) -> Option<Self> {
        match failure {
            Failure::Gone | Failure::Unsent => Some(Self::Ended),
            // MS-SMB2 3.3.5.7: the share is unknown there, or about to be served.
            Failure::Final(Cause::Status(
                status @ (Status::BAD_NETWORK_NAME | Status::SERVER_UNAVAILABLE),
            )) => Some(Self::Status(*status)),
            Failure::Final(_) => None,
        }
    }

    /// Returns the status; `None` if the connection ended.
    pub(super) const fn status(self) -> Option<Status> {
        match self {
            Self::Status(status) => Some(status),
            Self::Ended => None,
        }
    }
}

impl Share {
    /// Returns the node where the share was connected last. A server on its own is one node.
    pub fn node(&self) -> Option<NodeInfo> {
        self.session().inner.node()
    }

    /// Returns true if the share was connected in `session`, which it may have left.
    pub(crate) fn began_in(&self, session: &Session) -> bool {
        self.inner.first.is_same(session) || self.session().is_same(session)
    }

    /// Notes that the share is connected in the session `live`.
    pub(super) fn note_connected(&self, live: &Arc<Live>, bound: Bound) {
        let inner = &self.session().inner;
        if bound.kind == ShareType::PIPE {
            return;
        }
        // Two tasks cannot be here at once: connecting takes turns.
        if !self.inner.is_counted.swap(true, Ordering::AcqRel) {
            inner.add_share(self.inner.as_connected());
        }
        // MS-SMB2 3.2.5.5: TreeConnect.IsCAShare.
        let is_continuous = bound.capabilities.contains(ShareCapabilities::CONTINUOUS_AVAILABILITY);
        self.inner.is_continuous.store(is_continuous, Ordering::Release);
        inner.note_found(live, self.name(), bound.capabilities);
    }

    /// Returns true after the share was connected once: it exists.
    pub(super) fn was_connected(&self) -> bool {
        self.inner.is_counted.load(Ordering::Acquire)
    }

    /// Returns true if the share outlived its node when it was connected last.
    pub(super) fn is_continuous(&self) -> bool {
        self.inner.is_continuous.load(Ordering::Acquire)
    }

    /// Returns true if the share is about to be somewhere: it outlives its node, or was in use in a
    /// cluster. A node that was started again may have the address a moment longer than the share.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_continuous() || self.was_connected() && self.session().inner.search().is_cluster()
    }

    /// Returns a refusal of this share.
    fn refused(&self, refusal: Refusal) -> Refused {
        Refused { status: refusal.status(), is_awaited: self.is_awaited() }
    }

    /// Returns true if a share that the node of `live` refuses may be at another one, or there soon.
    pub(super) fn may_be_elsewhere(&self, live: &Live, refusal: Refusal) -> bool {
        let search = self.session().inner.search();
        // Every server has its own IPC$.
        !self.name().eq_ignore_ascii_case("IPC$")
            && (refusal == Refusal::Status(Status::SERVER_UNAVAILABLE)
                || search.may_go_on(&live.address, self.refused(refusal)))
    }

    /// Leaves the node of `live`, which refuses the share: the next attempt is made at another address.
    /// Where there is no other one this waits a little.
    pub(super) async fn look_elsewhere(&self, live: &Arc<Live>, refusal: Refusal) {
        let (session, status) = (self.session(), refusal.status());
        let (inner, was_connected) = (&session.inner, self.was_connected());
        let refused = self.refused(refusal);
        tracing::debug!(share = self.name(), node = %live.address, ?status, "the node has not the share");
        // The end of a connection says nothing about this share alone.
        if status.is_some()
            && inner.search().count() > 1
            && self.inner.own.get().is_none()
            && inner.others_stay(&self.inner.as_connected(), live).await
        {
            let own = session.sibling(live, refused, was_connected);
            if was_connected {
                own.inner.add_share(self.inner.as_connected());
            }
            if self.inner.own.set(own).is_ok() && was_connected {
                inner.remove_share(&self.inner.as_connected());
            }
            return;
        }
        inner.search().note_refused(&live.address, refused);
        match status {
            Some(_) if inner.search().count() > 1 => inner.leave(live),
            Some(_) => {
                inner.search().rest().await;
                inner.search().begin_if_due();
            }
            None => {}
        }
    }
}

impl Inner {
    /// Returns the share as its session needs it.
    fn as_connected(self: &Arc<Self>) -> Weak<dyn ConnectedShare> {
        let share: Weak<Self> = Arc::downgrade(self);
        share
    }
}

impl ConnectedShare for Inner {
    fn is_at<'a>(self: Arc<Self>, live: &'a Arc<Live>) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let bound = Share::over(self).bind(live).await;
            bound.err().and_then(|failure| Refusal::of(&failure)).is_none()
        })
    }
}
