//! The shares of clusters that a client has used: what it tells a server about them when it connects them
//! again. MS-SMB2 3.2.4.2.4.

use std::collections::BTreeMap;

use frevo_proto::Dialect;
use frevo_wire::command::tree_connect::{ShareCapabilities, TreeConnectFlags};
use parking_lot::Mutex;

use crate::limits::CLUSTER_SHARES_KEPT;

/// The shares, by server and name in lower case.
#[derive(Debug, Default)]
pub(crate) struct ClusterShares(Mutex<BTreeMap<(String, String), Known>>);

/// A share that was connected.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// The newest dialect by which it was.
    newest: Dialect,
    /// Its capabilities as of the last time.
    capabilities: ShareCapabilities,
}

impl ClusterShares {
    /// Returns the flags of a TREE_CONNECT over a connection with this dialect.
    pub(crate) fn flags(&self, server: &str, share: &str, dialect: Dialect) -> TreeConnectFlags {
        let mut flags = TreeConnectFlags::EMPTY;
        // MS-SMB2 2.2.9: the flags mean nothing before 3.1.1.
        if dialect != Dialect::SMB_3_1_1 {
            return flags;
        }
        if planted!(ReconnectClaimed) {
            return TreeConnectFlags::CLUSTER_RECONNECT;
        }
        let Some(known) = self.0.lock().get(&key(server, share)).copied() else { return flags };
        // MS-SMB2 2.2.9: the client was let in with this dialect before, be it that another of its sessions has
        // used an older one since then. A node that has not yet heard that the cluster's dialect was raised
        // lets it in, too.
        if known.newest >= dialect {
            flags |= TreeConnectFlags::CLUSTER_RECONNECT;
        }
        if known.capabilities.contains(ShareCapabilities::ASYMMETRIC) {
            flags |= TreeConnectFlags::REDIRECT_TO_OWNER;
        }
        flags
    }

    /// Notes that a share was connected.
    pub(crate) fn note(
        &self,
        server: &str,
        share: &str,
        dialect: Dialect,
        capabilities: ShareCapabilities,
    ) {
        let (key, mut known) = (key(server, share), self.0.lock());
        if !capabilities.contains(ShareCapabilities::CLUSTER) {
            known.remove(&key);
            return;
        }
        if known.len() >= CLUSTER_SHARES_KEPT && !known.contains_key(&key) {
            // One that is forgotten is connected as if for the first time.
            known.pop_first();
        }
        let before = known.get(&key).map_or(dialect, |before| before.newest);
        let newest = before.max(dialect);
        known.insert(key, Known { newest, capabilities });
    }
}

fn key(server: &str, share: &str) -> (String, String) {
    (server.to_lowercase(), share.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: ShareCapabilities = ShareCapabilities::CLUSTER;
    const RECONNECT: TreeConnectFlags = TreeConnectFlags::CLUSTER_RECONNECT;

    #[test]
    fn flags_tell_of_an_earlier_connection_with_the_same_dialect() {
        let shares = ClusterShares::default();
        let flags = |dialect| shares.flags("Cluster", "DATA", dialect);
        let note = |dialect, capabilities| shares.note("cluster", "data", dialect, capabilities);
        let (new, old) = (Dialect::SMB_3_1_1, Dialect::SMB_3_0_2);
        assert_eq!(flags(new), TreeConnectFlags::EMPTY, "the first time");
        note(old, CLUSTER);
        assert_eq!(flags(new), TreeConnectFlags::EMPTY, "with another dialect");
        note(new, CLUSTER);
        assert_eq!(flags(new), RECONNECT);
        assert_eq!(flags(old), TreeConnectFlags::EMPTY, "before 3.1.1 there are none");
        assert_eq!(shares.flags("cluster", "other", new), TreeConnectFlags::EMPTY);
        note(old, CLUSTER);
        assert_eq!(flags(new), RECONNECT, "another session has used an older dialect");
        note(new, CLUSTER | ShareCapabilities::ASYMMETRIC);
        assert_eq!(flags(new), RECONNECT | TreeConnectFlags::REDIRECT_TO_OWNER);
        note(new, ShareCapabilities::CONTINUOUS_AVAILABILITY);
        assert_eq!(flags(new), TreeConnectFlags::EMPTY, "it has left the cluster");
        note(old, CLUSTER | ShareCapabilities::ASYMMETRIC);
        assert_eq!(flags(new), TreeConnectFlags::REDIRECT_TO_OWNER);
    }

    #[test]
    fn so_many_shares_are_remembered() {
        let shares = ClusterShares::default();
        for number in 0..CLUSTER_SHARES_KEPT + 3 {
            shares.note("cluster", &format!("share{number:05}"), Dialect::SMB_3_1_1, CLUSTER);
        }
        let knows = |number| {
            let name = format!("share{number:05}");
            shares.flags("cluster", &name, Dialect::SMB_3_1_1) == RECONNECT
        };
        assert!(!knows(0) && !knows(2));
        assert!(knows(3) && knows(CLUSTER_SHARES_KEPT + 2));
        assert_eq!(shares.0.lock().len(), CLUSTER_SHARES_KEPT);
    }
}
