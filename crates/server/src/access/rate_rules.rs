//! Limits of rate for users, groups, shares and networks.

use std::time::Duration;

use frevo_net::IpNetwork;
use frevo_wire::dtyp::Guid;
use frevo_wire::fscc::eq_ignore_case;

use crate::access::access_rules::{Caller, Names};
use crate::base::limits::RATE_BURST;

/// Those who have the limits of a rule each on their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Each {
    /// Each account, with all its sessions.
    User,
    /// Each session.
    Session,
    /// Each address of clients; of IPv6 each network of 64 bits, all of which one host may have.
    Address,
}

impl Each {
    /// Its word in configurations and in the status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Session => "session",
            Self::Address => "address",
        }
    }
}

/// A policy of storage quality of service, MS-SQOS, which clients name by its id. Each logical flow that has it has
/// the limits on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoragePolicy {
    /// Its name, for people.
    pub name: String,
    /// PolicyID
    pub id: Guid,
    /// Normalized operations in a second, of 8 KiB each; None: no limit.
    pub iops: Option<u64>,
    /// Bytes in a second; None: no limit.
    pub bandwidth: Option<u64>,
}

/// A limit of rate. All operations that it is for share it, or those of each user, session or address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateRule {
    /// Its name, by which it is shown.
    pub name: String,
    /// The shares that it is for; empty: all.
    pub shares: Vec<String>,
    /// The users and groups that it is for; empty: all users.
    pub users: Names,
    /// The networks of clients that it is for; empty: all.
    pub networks: Vec<IpNetwork>,
    /// Those who have the limits each on their own; None: all share them.
    pub each: Option<Each>,
    /// Bytes that are read in a second; None: no limit.
    pub read: Option<u64>,
    /// Bytes that are written in a second; None: no limit.
    pub write: Option<u64>,
    /// Operations in a second; None: no limit.
    pub operations: Option<u64>,
    /// The time whose bytes and operations may pass at once after a pause.
    pub burst: Duration,
    /// The part of its sessions, beside others, of each limit that they share; None: what another rule says,
    /// or 1.
    pub weight: Option<u32>,
}

impl RateRule {
    /// A rule for all, without a limit.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            shares: Vec::new(),
            users: Names::default(),
            networks: Vec::new(),
            each: None,
            read: None,
            write: None,
            operations: None,
            burst: RATE_BURST,
            weight: None,
        }
    }

    /// True if it is for what `caller` asks in `share`.
    pub(crate) fn is_for(&self, caller: &Caller<'_>, share: &str) -> bool {
        let is_share = |name: &String| eq_ignore_case(name, share);
        let has_share = self.shares.is_empty() || self.shares.iter().any(is_share);
        let is_near = |network: &IpNetwork| network.contains(caller.address);
        has_share
            && (self.networks.is_empty() || self.networks.iter().any(is_near))
            && (self.users.is_empty() || self.users.contains(caller))
    }
}
