//! Accounts as LSA and SAM return them.

use alloc::string::String;
use frevo_wire::dtyp::Sid;
use frevo_wire::open_enum;

open_enum! {
    /// SID_NAME_USE, MS-LSAT 2.2.13.
    SidNameUse(u16) {
        /// SidTypeUser
        USER = 1,
        /// SidTypeGroup
        GROUP = 2,
        /// SidTypeDomain
        DOMAIN = 3,
        /// SidTypeAlias
        ALIAS = 4,
        /// SidTypeWellKnownGroup
        WELL_KNOWN_GROUP = 5,
        /// SidTypeDeletedAccount
        DELETED_ACCOUNT = 6,
        /// SidTypeInvalid
        INVALID = 7,
        /// SidTypeUnknown
        UNKNOWN = 8,
        /// SidTypeComputer
        COMPUTER = 9,
        /// SidTypeLabel
        LABEL = 10,
    }
}

/// A domain, as names are told to be in one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// Its NetBIOS name.
    pub name: String,
    /// The domain's SID; None if it is not known.
    pub sid: Option<Sid>,
}

/// The domain or the workgroup that a server is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrimaryDomain {
    /// The short name.
    pub name: String,
    /// The DNS name; empty for a workgroup.
    pub dns_name: String,
    /// The SID; None for a workgroup.
    pub sid: Option<Sid>,
}

/// A user, a group or a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The SID of the account or domain.
    pub sid: Sid,
    /// The name of its domain.
    pub domain: String,
    /// Its name there; empty for a domain.
    pub name: String,
    /// The kind of account.
    pub kind: SidNameUse,
}

impl Account {
    /// The domain that it is in, or is.
    pub fn in_domain(&self) -> Domain {
        let sid = match self.kind {
            SidNameUse::DOMAIN => Some(self.sid),
            _ => self.sid.split_rid().map(|(domain, _)| domain),
        };
        Domain { name: self.domain.clone(), sid }
    }
}

/// The accounts that a server knows, for one caller.
pub trait Directory {
    /// Sixteen bytes that nobody can guess, for a context handle.
    fn random(&self) -> [u8; 16];
    /// The machine as the domain of its accounts.
    fn machine(&self) -> Domain;
    /// The caller; none when it has no account.
    fn caller(&self) -> Option<Account>;
    /// Returns the account with this SID.
    fn find_sid(&self, sid: &Sid) -> Option<Account>;
    /// Returns the account called `name`, `domain\name` or `name@domain`.
    fn find_name(&self, name: &str) -> Option<Account>;
}
