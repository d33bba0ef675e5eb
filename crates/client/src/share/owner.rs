//! The owner of a share: the node of a cluster that serves it, which is looked for when another node
//! refuses the share.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use frevo_net::socket::{is_reachable, unmapped};
use frevo_proto::Dialect;
use futures_util::future::BoxFuture;

use super::tree_connect::NotBound;
use super::{Inner, Replay, Share};
use crate::Status;
use crate::dial::ServerName;
use crate::error::{self, Cause};
use crate::options::Referrals;
use crate::session::bound::Bound;
use crate::session::{ConnectedShare, Failure, Live, NodeInfo, Refused, Session};
use crate::witness::WitnessInfo;
use frevo_wire::command::tree_connect::{ShareCapabilities, ShareType};

/// The refusal of a TREE_CONNECT by a node that is not the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// With this status.
    Status(Status),
    /// With the addresses of the owner.
    Redirected(Vec<IpAddr>),
    /// By the end of the connection.
    Ended,
}

impl Refusal {
    /// Returns the refusal that a failed TREE_CONNECT may be; `None` for an error of the user or of the
    /// share.
    pub(super) fn of(not_bound: &NotBound) -> Option<Self> {
        match not_bound {
            NotBound::Failed(Failure::Gone | Failure::Unsent) => Some(Self::Ended),
            // MS-SMB2 3.3.5.7: the share is unknown there, or about to be served.
            NotBound::Failed(Failure::Final(Cause::Status(
                status @ (Status::BAD_NETWORK_NAME | Status::SERVER_UNAVAILABLE),
            ))) => Some(Self::Status(*status)),
            NotBound::Redirected(owners) => Some(Self::Redirected(owners.clone())),
            NotBound::Failed(Failure::Final(_))
            | NotBound::Apart(_)
            | NotBound::Older(_)
            | NotBound::Outdated => None,
        }
    }

    /// Returns the status; `None` if the connection ended.
    pub(super) const fn status(&self) -> Option<Status> {
        match self {
            Self::Status(status) => Some(*status),
            Self::Redirected(_) => Some(Status::BAD_NETWORK_NAME),
            Self::Ended => None,
        }
    }
}

impl Share {
    /// Returns the node where the share was connected last. A server on its own is one node.
    pub fn node(&self) -> Option<NodeInfo> {
        self.session().inner.node()
    }

    /// Returns the witness that watches the share's node, as [`Session::witness`] does.
    pub fn witness(&self) -> Option<WitnessInfo> {
        self.session().witness()
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
        self.inner.is_counted.store(true, Ordering::Release);
        // MS-SMB2 3.2.5.5: TreeConnect.IsCAShare.
        let is_continuous = bound.capabilities.contains(ShareCapabilities::CONTINUOUS_AVAILABILITY);
        self.inner.is_continuous.store(is_continuous, Ordering::Release);
        inner.note_found(live, self.name(), bound.capabilities);
        inner.watch(live, self.name(), bound.capabilities);
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

    /// Returns true if the share has left the session that it was connected in.
    pub(super) fn has_own_session(&self) -> bool {
        self.inner.own.get().is_some()
    }

    /// Returns a refusal of this share.
    fn refused(&self, refusal: &Refusal) -> Refused {
        Refused { status: refusal.status(), is_awaited: self.is_awaited() }
    }

    /// Returns true if a share that the node of `live` refuses may be at another one, or there soon.
    pub(super) fn may_be_elsewhere(&self, live: &Live, refusal: &Refusal) -> bool {
        let search = self.session().inner.search();
        // Every server has its own IPC$.
        !self.name().eq_ignore_ascii_case("IPC$")
            && (matches!(
                refusal,
                Refusal::Status(Status::SERVER_UNAVAILABLE) | Refusal::Redirected(_)
            ) || search.may_go_on(&live.address, self.refused(refusal)))
    }

    /// Leaves the node of `live`, which refuses the share: the next attempt is made at another address.
    /// Where there is no other one this waits a little.
    pub(super) async fn look_elsewhere(&self, live: &Arc<Live>, refusal: &Refusal) {
        let (session, status) = (self.session(), refusal.status());
        let (inner, was_connected) = (&session.inner, self.was_connected());
        let refused = self.refused(refusal);
        let owners = match refusal {
            Refusal::Redirected(named) => self.owners_at(live, named),
            Refusal::Status(_) | Refusal::Ended => Vec::new(),
        };
        tracing::debug!(share = self.name(), node = %live.address, ?status, "the node has not the share");
        // The end of a connection says nothing about this share alone.
        if status.is_some()
            && (inner.search().count() > 1 || !owners.is_empty())
            && self.inner.own.get().is_none()
            && inner.others_stay(&self.inner.as_connected(), live).await
        {
            let own = session.sibling(live, refused, was_connected);
            own.inner.search().note_owners(&owners);
            self.go_to(own);
            return;
        }
        inner.search().note_owners(&owners);
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

    /// Returns the addresses of the owner that are followed, of those that the node of `live` has named.
    /// Someone who has taken a node over can send clients where the node's own answers could; nothing of
    /// this machine, and nothing that the user has ruled out, is among them.
    pub(super) fn owners_at(&self, live: &Live, named: &[IpAddr]) -> Vec<ServerName> {
        let inner = &self.session().inner;
        let anywhere = self.session().options().referrals == Referrals::Anywhere;
        let peer = live.channel().and_then(|channel| channel.connection.peer());
        let is_here = peer.is_none_or(|peer| unmapped(peer).is_loopback());
        let is_followed = |address: &IpAddr| {
            let is_usable = is_reachable(*address) && (is_here || !address.is_loopback());
            is_usable && (anywhere || inner.search().has_address(&address.to_string()))
        };
        let port = live.address.port.or(self.session().server().port);
        let at = |address: IpAddr| ServerName { host: address.to_string(), port };
        named.iter().copied().map(unmapped).filter(is_followed).map(at).collect()
    }

    /// Makes `own` the session of the share.
    fn go_to(&self, own: Session) {
        let share = self.inner.as_connected();
        let left = Arc::clone(&self.session().inner);
        if self.was_connected() {
            own.inner.admit(share.clone(), false);
        }
        if self.inner.own.set(own).is_ok() {
            left.remove_share(&share);
        }
    }

    /// Parts from the other shares of the session of `live`: the next attempt is made over a connection
    /// of the share's own, with `only` this dialect or with those of the options.
    pub(super) fn part(&self, live: &Live, only: Option<Dialect>) -> Result<(), Cause> {
        let own = self.session().apart(live, only)?;
        tracing::debug!(share = self.name(), ?only, "the share gets a connection of its own");
        self.go_to(own);
        Ok(())
    }

    /// Goes on with an older dialect, which the cluster has named.
    pub(super) fn speak(&self, live: &Arc<Live>, dialect: Dialect) -> Result<(), Cause> {
        let known = crate::types::Dialect::from(dialect);
        tracing::info!(share = self.name(), dialect = %known, "the cluster asks for an older dialect");
        // The session's other shares may be those of the server alone, which keep the newer one.
        if self.has_own_session() {
            return self.session().inner.speak(live, dialect);
        }
        self.part(live, Some(dialect))
    }
}

impl Inner {
    /// Returns the share as its session needs it.
    pub(super) fn as_connected(self: &Arc<Self>) -> Weak<dyn ConnectedShare> {
        let share: Weak<Self> = Arc::downgrade(self);
        share
    }
}

impl ConnectedShare for Inner {
    fn has_opens(&self) -> bool {
        Arc::strong_count(&self.opens) > 1
    }

    fn is_at<'a>(self: Arc<Self>, live: &'a Arc<Live>) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let bound = Share::over(self).bind(live).await;
            bound.as_ref().err().is_none_or(stays)
        })
    }

    fn come_back(self: Arc<Self>) -> BoxFuture<'static, error::Result<()>> {
        Box::pin(async move {
            let share = Share::over(self);
            let url = share.url("");
            share.attempts(Replay::Idempotent, "reconnect", &url).next().await.map(drop)
        })
    }
}

/// Returns true if a share that is not bound says nothing about its owner: an error of the user or of the
/// share.
fn stays(not_bound: &NotBound) -> bool {
    matches!(not_bound, NotBound::Failed(_)) && Refusal::of(not_bound).is_none()
}
