//! Leaving a node of a cluster that does not serve a share: with the whole session if the share is its
//! only one, else with a session of the share's own. A share that must not be together with others, or
//! that needs another dialect, gets such a session, too.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use frevo_proto::Dialect;
use frevo_wire::command::tree_connect::ShareCapabilities;
use frevo_wire::dtyp::Guid;
use tokio::time::timeout;

use super::connected::ConnectedShare;
use super::connector::Connector;
use super::offering::Offering;
use super::search::{Refused, Search};
use super::{Beginning, Inner, Live, NodeInfo, Session, channel};
use crate::ambient::random;
use crate::connection::{Offer, Vigilance};
use crate::error::Cause;
use crate::limits::LOG_OFF_FOR;

/// The capabilities that the shares of a cluster alone have: MS-SMB2 2.2.10.
const OF_CLUSTER: ShareCapabilities = ShareCapabilities::SCALEOUT
    .union(ShareCapabilities::CLUSTER)
    .union(ShareCapabilities::ASYMMETRIC);

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
            offering: Some(Offering::new(inner.connector.offering.offer())),
            answered: Arc::default(),
        };
        let own = inner.client.begin(server.clone(), credentials.clone(), beginning);
        own.inner.connector.search.begin_after(search, &live.address, refused);
        if was_here {
            own.inner.nodes.note_found(&live.address, live.server_guid);
            own.inner.nodes.note_lost();
        }
        own.follow_logoff(inner);
        own
    }

    /// Returns a session of the same user with the server of `live` for one share: over a connection of
    /// its own with another ClientGuid (MS-SMB2 3.2.5.5), with this dialect or those of the options.
    ///
    /// # Errors
    /// Fails if the system has no random numbers.
    pub(crate) fn apart(&self, live: &Live, only: Option<Dialect>) -> Result<Self, Cause> {
        let inner = &self.inner;
        let Connector { server, credentials, search, options, .. } = &*inner.connector;
        let offer = Offer { client_guid: Guid(random(&*options.ambient)?), only };
        let beginning = Beginning {
            was_proved: inner.was_proved.load(Ordering::Acquire),
            preferred: Some(live.address.clone()),
            family: Arc::clone(&inner.family),
            leases: Arc::clone(&inner.leases),
            offering: Some(match only {
                Some(_) if only != live.offer.only => Offering::after_refusal(offer),
                _ => Offering::new(offer),
            }),
            answered: Arc::default(),
        };
        let own = inner.client.begin(server.clone(), credentials.clone(), beginning);
        if search.is_cluster() {
            own.inner.connector.search.note_cluster();
        }
        own.follow_logoff(inner);
        Ok(own)
    }

    /// Ends a new session if its family is logged off. A logoff ends all members that it finds, and this
    /// one may be too new for it.
    fn follow_logoff(&self, inner: &Inner) {
        if inner.family.members().iter().any(|member| member.is_closed()) {
            self.inner.closed.store(true, Ordering::Release);
        }
    }
}

impl Inner {
    /// Notes that a share with these capabilities is connected in the session `live`.
    pub(crate) fn note_found(&self, live: &Live, share: &str, capabilities: ShareCapabilities) {
        let search = &self.connector.search;
        search.note_found(&live.address);
        self.connector.offering.note_accepted();
        if capabilities.contains(ShareCapabilities::CONTINUOUS_AVAILABILITY) {
            search.note_continuous();
            live.be_vigilant(Vigilance::Node);
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

    /// Adds a share unless it is in the session. Returns false if it cannot be together with the others
    /// of the session.
    pub(crate) fn admit(&self, share: Weak<dyn ConnectedShare>, is_alone: bool) -> bool {
        self.shares.lock().admit(share, is_alone)
    }

    /// Adds a share that stays in the session. Others that cannot be together with it leave when they are
    /// connected again.
    pub(crate) fn keep_share(&self, share: Weak<dyn ConnectedShare>, is_alone: bool) {
        self.shares.lock().keep(share, is_alone);
    }

    /// Returns false if another logon has followed `live`, or the session has left it.
    pub(crate) fn is_latest(&self, live: &Arc<Live>) -> bool {
        self.live.read().as_ref().is_some_and(|now| Arc::ptr_eq(now, live))
    }

    /// Removes a share that has a session of its own.
    pub(crate) fn remove_share(&self, share: &Weak<dyn ConnectedShare>) {
        self.shares.lock().remove(share);
    }

    /// Returns the count of connected shares of files.
    pub(super) fn count_of_shares(&self) -> usize {
        self.connected_shares().len()
    }

    /// Returns the connected shares of files. The last reference to one may be in this list.
    pub(super) fn connected_shares(&self) -> Vec<Arc<dyn ConnectedShare>> {
        self.shares.lock().in_use()
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

    /// Offers newer dialects again when the session is lost: the cluster's dialect may have been raised
    /// since it named an older one. Files that are open belong to the ClientGuid of the session (MS-SMB2
    /// 3.3.5.9.12), which then stays with its dialect.
    pub(super) fn reconsider_dialect(&self) -> Result<(), Cause> {
        let offering = &self.connector.offering;
        let is_free = || !self.connected_shares().iter().any(|share| share.has_opens());
        if offering.may_widen() && is_free() {
            offering.widen(Guid(random(&*self.client.options.ambient)?));
        }
        Ok(())
    }

    /// Ends the logon `live`: the cluster lets its share be used by `dialect` at the newest, which the
    /// next logon offers alone, with another ClientGuid.
    ///
    /// # Errors
    /// Fails if the cluster has asked so too often, one after the other.
    pub(crate) fn speak(&self, live: &Arc<Live>, dialect: Dialect) -> Result<(), Cause> {
        let client_guid = Guid(random(&*self.client.options.ambient)?);
        if !self.connector.offering.narrow(live.offer, dialect, client_guid) {
            return Err(Cause::Limit(
                "the cluster has named an older dialect three times, one after the other",
            ));
        }
        self.search().prefer(&live.address);
        self.leave(live);
        Ok(())
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
