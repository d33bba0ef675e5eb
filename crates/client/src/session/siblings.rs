//! Leaving a node of a cluster that does not serve a share: with the whole session if the share is its
//! only one, else with a session of the share's own.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use frevo_wire::command::tree_connect::ShareCapabilities;
use futures_util::future::BoxFuture;
use tokio::time::timeout;

use super::connector::Connector;
use super::search::{Refused, Search};
use super::{Beginning, Inner, Live, NodeInfo, Session, channel};
use crate::limits::LOG_OFF_FOR;

/// The capabilities that the shares of a cluster alone have: MS-SMB2 2.2.10.
const OF_CLUSTER: ShareCapabilities = ShareCapabilities::SCALEOUT
    .union(ShareCapabilities::CLUSTER)
    .union(ShareCapabilities::ASYMMETRIC);

/// A share that is connected in a session, as the session needs it.
pub(crate) trait ConnectedShare: Send + Sync {
    /// Returns false if the node of `live` refuses the share, or the connection ends.
    fn is_at<'a>(self: Arc<Self>, live: &'a Arc<Live>) -> BoxFuture<'a, bool>;
}

impl Session {
    /// Returns a session of the same user for a share that the node of `live` refuses. It logs
    /// on when it is first used, at another address. With `was_here` the share was at that node before.
    pub(crate) fn sibling(&self, live: &Live, refused: Refused, was_here: bool) -> Self {
        let inner = &self.inner;
        let Connector { server, credentials, search, .. } = &*inner.connector;
        let beginning = Beginning {
            was_proved: inner.was_proved.load(Ordering::Acquire),
            preferred: None,
            family: Arc::clone(&inner.family),
            leases: Arc::clone(&inner.leases),
        };
        let own = inner.client.begin(server.clone(), credentials.clone(), beginning);
        own.inner.connector.search.begin_after(search, &live.address, refused);
        if was_here {
            own.inner.nodes.note_found(&live.address, live.server_guid);
            own.inner.nodes.note_lost();
        }
        // A logoff ends all members of the family that it finds, and this one may be too new for it.
        if inner.family.members().iter().any(|member| member.is_closed()) {
            own.inner.closed.store(true, Ordering::Release);
        }
        own
    }
}

impl Inner {
    /// Notes that a share with these capabilities is connected in the session `live`.
    pub(crate) fn note_found(&self, live: &Live, share: &str, capabilities: ShareCapabilities) {
        let search = &self.connector.search;
        search.note_found(&live.address);
        if capabilities.contains(ShareCapabilities::CONTINUOUS_AVAILABILITY) {
            search.note_continuous();
            live.be_vigilant();
        }
        if capabilities.intersects(OF_CLUSTER) {
            search.note_cluster();
        }
        if let Some((from, pause)) = self.nodes.note_found(&live.address, live.server_guid) {
            let (server, to) = (&self.connector.server, &live.address);
            let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(%server, share, %from, %to, pause_ms, "the share moved to another node");
        }
    }

    /// Returns the node where a share was connected last.
    pub(crate) fn node(&self) -> Option<NodeInfo> {
        let channel = self.current().and_then(|live| live.channel());
        self.nodes.info(channel.and_then(|channel| channel.connection.peer()))
    }

    /// Returns the session with the number `generation` if requests can be sent in it: this one, or
    /// that of a share which has left this one.
    pub(super) fn current_of(&self, generation: u64) -> Option<Arc<Live>> {
        let is_it = |live: &Arc<Live>| live.generation == generation;
        self.current().filter(is_it).or_else(|| {
            let members = self.family.members();
            members.iter().filter_map(|member| member.current()).find(is_it)
        })
    }

    /// Returns the search for a share among the addresses of the server.
    pub(crate) fn search(&self) -> &Search {
        &self.connector.search
    }

    /// Adds a share that was connected for the first time.
    pub(crate) fn add_share(&self, share: Weak<dyn ConnectedShare>) {
        let mut shares = self.shares.lock();
        shares.retain(|one| one.strong_count() > 0);
        shares.push(share);
    }

    /// Removes a share that has a session of its own.
    pub(crate) fn remove_share(&self, share: &Weak<dyn ConnectedShare>) {
        self.shares.lock().retain(|one| !one.ptr_eq(share));
    }

    /// Returns the connected shares of files. The last reference to one may be in this list.
    fn connected_shares(&self) -> Vec<Arc<dyn ConnectedShare>> {
        self.shares.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns true if another share than `share` is at the node of `live`. Shares that are owned
    /// together move together: they stay in one session, in which the server can copy between them.
    pub(crate) async fn others_stay(
        &self,
        share: &Weak<dyn ConnectedShare>,
        live: &Arc<Live>,
    ) -> bool {
        for other in self.connected_shares() {
            if !Arc::downgrade(&other).ptr_eq(share) && other.is_at(live).await {
                return true;
            }
        }
        false
    }

    /// Ends the logon `live` if it is the present one: the next one is made at another address.
    pub(crate) fn leave(&self, live: &Arc<Live>) {
        let left = {
            let mut now = self.live.write();
            let is_present = now.as_ref().is_some_and(|now| Arc::ptr_eq(now, live));
            if is_present { now.take() } else { None }
        };
        let Some(left) = left else { return };
        self.nodes.note_lost();
        tokio::spawn(async move {
            let _ = timeout(LOG_OFF_FOR, channel::log_off(&left)).await;
            left.abandon();
        });
    }
}
