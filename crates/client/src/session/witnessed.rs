//! A session that a witness watches: MS-SMB2 3.2.5.5, MS-SWN 3.2.

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use frevo_wire::command::tree_connect::ShareCapabilities;
use tokio::time::timeout;

use super::connector::Connector;
use super::{Inner, Live, Session};
use crate::dial::ServerName;
use crate::limits::WITNESS_GRACE;
use crate::options::{Encryption, Referrals};
use crate::rpc_over_tcp::Demand;
use crate::witness::{NodeInUse, Verdict, Watched, WitnessInfo};

/// The capabilities of a share whose node is watched, MS-SMB2 3.2.5.5.
const WATCHED: ShareCapabilities =
    ShareCapabilities::CLUSTER.union(ShareCapabilities::CONTINUOUS_AVAILABILITY);

impl Session {
    /// Returns the witness that watches the node in use, and what it has told; `None` if there was none
    /// so far. Shares of a cluster alone have one.
    pub fn witness(&self) -> Option<WitnessInfo> {
        self.inner.watcher.info()
    }
}

impl Inner {
    /// Has a witness watch the node of `live`, where a share with these capabilities was connected.
    pub(crate) fn watch(
        self: &Arc<Self>,
        live: &Live,
        share: &str,
        capabilities: ShareCapabilities,
    ) {
        let Connector { options, server, .. } = &*self.connector;
        // MS-SWN 3.2.4.1: a server that is named by an address cannot be watched.
        let is_named = server.host.parse::<IpAddr>().is_err();
        let is_watched = options.witness && is_named && capabilities.contains(WATCHED);
        let Some(channel) = live.channel().filter(|_| is_watched) else { return };
        // A guest proves nothing to a witness, and no witness proves anything to a guest.
        let (Some(_), Some(ip)) = (&channel.signing, channel.connection.peer()) else { return };
        let demand = Demand {
            by_kerberos: live.renewal.is_some(),
            is_sealed: options.encryption == Encryption::Required
                || live.security.seal
                || live.is_sealed_by_transport(),
        };
        let is_moving = capabilities.contains(ShareCapabilities::ASYMMETRIC);
        let share = is_moving.then(|| share.to_owned());
        let place = NodeInUse { generation: live.generation, ip, share, demand };
        let session: Weak<Self> = Arc::downgrade(self);
        self.watcher.watch(place, session, || self.connector.caller());
    }
}

impl Inner {
    /// Returns the servers at told addresses, without those that the user has ruled out.
    fn followed(&self, live: &Live, told: &[IpAddr]) -> Vec<ServerName> {
        let port = live.address.port.or(self.connector.server.port);
        let followed = told.iter().filter(|ip| self.may_be_at(**ip));
        followed.map(|ip| ServerName { host: ip.to_string(), port }).collect()
    }
}

impl Watched for Inner {
    fn may_be_at(&self, ip: IpAddr) -> bool {
        let Connector { options, search, .. } = &*self.connector;
        options.referrals == Referrals::Anywhere || search.has_address(&ip.to_string())
    }

    fn heed(&self, place: &NodeInUse, verdict: &Verdict) -> bool {
        let is_there = |live: &Arc<Live>| live.generation == place.generation;
        let Some(live) = self.live.read().clone().filter(is_there) else { return false };
        let search = &self.connector.search;
        let is_planned = match verdict {
            Verdict::Stay => return false,
            // Other shares of the session stay. This one is followed when the node refuses it.
            Verdict::ShareMove(_) if self.count_of_shares() > 1 => return false,
            Verdict::Gone => {
                search.note_silent(&live.address);
                false
            }
            Verdict::Move(told) | Verdict::ShareMove(told) => {
                let followed = self.followed(&live, told);
                if followed.is_empty() {
                    return false;
                }
                search.note_owners(&followed);
                true
            }
        };
        let (server, node) = (&self.connector.server, &live.address);
        tracing::info!(%server, %node, ?verdict, "a witness tells to leave the node");
        self.nodes.note_lost();
        self.watcher.rest();
        live.part();
        // The connection may be lost already, and the session be looked for where it was.
        if !is_planned || !live.has_channels() {
            cut(&live);
            return true;
        }
        // The node answers the requests under way before it goes.
        tokio::spawn(async move {
            let channels = live.channels.read().clone();
            let answered = async {
                for channel in &channels {
                    channel.connection.answered().await;
                }
            };
            let _ = timeout(WITNESS_GRACE, answered).await;
            cut(&live);
        });
        true
    }
}

/// Ends all connections of a session. Requests under way hold theirs, and are repeated elsewhere.
fn cut(live: &Live) {
    let channels = live.channels.read().clone();
    live.abandon();
    channels.iter().for_each(|channel| channel.connection.close());
}
