//! The server's side of Kerberos: its keys, its rules, and the memory of what it has accepted.

use super::{EncryptionType, LogonInfo, Principal, Replays, ServiceKeys};
use crate::limits::CLOCK_SKEW;
use alloc::sync::Arc;
use alloc::vec::Vec;
use frevo_wire::dtyp::FileTime;

/// The demands on the PAC of a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PacPolicy {
    /// Refuses a ticket without a PAC that tells the user's SIDs. The default: a user of a domain
    /// could ask the KDC for a ticket without a PAC, and would then be taken for the server's own
    /// account of that name.
    #[default]
    Required,
    /// Refuses a wrong PAC, and accepts a ticket without a PAC: for a realm that is no domain,
    /// whose users are accounts of the server.
    Checked,
    /// Does not read the PAC: the user gets no SID of a domain.
    Ignored,
}

/// The rules for tickets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The encryption types of tickets, session keys and subkeys.
    pub etypes: Vec<EncryptionType>,
    /// Seconds by which the clocks of client, KDC and server may differ.
    pub clock_skew: u32,
    /// The demands on PACs.
    pub pac: PacPolicy,
}

impl Default for Policy {
    /// AES of both kinds, five minutes, and PACs required.
    fn default() -> Self {
        let is_aes = |etype: &EncryptionType| *etype != EncryptionType::Rc4Hmac;
        Self {
            etypes: EncryptionType::ALL.into_iter().filter(is_aes).collect(),
            clock_skew: CLOCK_SKEW,
            pac: PacPolicy::default(),
        }
    }
}

/// The keys and rules by which a server accepts tickets. A server replaces all of it at once,
/// except `replays`, which it keeps.
#[derive(Debug, Clone)]
pub struct Service {
    /// The keys that tickets may be encrypted with.
    pub keys: Arc<ServiceKeys>,
    /// The rules that a ticket must meet.
    pub policy: Policy,
    /// The memory of accepted AP-REQs.
    pub replays: Arc<dyn Replays>,
}

/// A user whom a KDC has authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainUser {
    /// The user's name at the KDC.
    pub principal: Principal,
    /// The time at which the ticket ends, and with it the session.
    pub expires: FileTime,
    /// The domain controller's facts about the user. None without a PAC, or if PACs are ignored.
    pub pac: Option<LogonInfo>,
}
