//! Access checks and security descriptors: MS-DTYP 2.4 and 2.5.3. No I/O.
//!
//! A [`Token`] holds the SIDs of a user, a security descriptor the rights on an object, and
//! [`check`] compares them. [`inherit`] makes the descriptor of a new object, [`set`] that of a
//! changed one, and [`host`] converts between descriptors and the permissions of a POSIX host.

pub mod check;
pub mod host;
pub mod inherit;
pub mod posix_lists;
pub mod set;
mod share_entry;
#[cfg(test)]
mod tests;

pub use check::{Denied, check, maximal};
pub use host::{HostAcl, HostEntry, Whose};
pub use share_entry::AccessEntry;

use alloc::vec::Vec;

use frevo_wire::bit_set;
use frevo_wire::dtyp::Sid;

bit_set! {
    /// The privileges that concern files, MS-LSAD 3.1.1.2.1.
    Privileges(u32) {
        /// SeSecurityPrivilege: reads and sets system access control lists.
        SECURITY = 0x01,
        /// SeTakeOwnershipPrivilege: grants WRITE_OWNER on everything.
        TAKE_OWNERSHIP = 0x02,
        /// SeRestorePrivilege: sets any owner.
        RESTORE = 0x04,
        /// SeManageVolumePrivilege: sets the valid data length, which may show old data.
        MANAGE_VOLUME = 0x08,
    }
}

/// The identity of a user for access checks, MS-DTYP 2.5.2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    user: Sid,
    primary_group: Sid,
    /// All other SIDs of the user, sorted for the search.
    groups: Vec<Sid>,
    privileges: Privileges,
}

impl Token {
    /// Makes the token of `user`. `groups` must contain Everyone and the well-known groups of
    /// authenticated network users: see [`Self::WELL_KNOWN`].
    pub fn new(
        user: Sid,
        primary_group: Sid,
        groups: impl IntoIterator<Item = Sid>,
        privileges: Privileges,
    ) -> Self {
        let mut groups: Vec<Sid> = groups.into_iter().collect();
        groups.push(primary_group);
        groups.sort_unstable();
        groups.dedup();
        // Each session has a token, as long as it lives.
        groups.shrink_to_fit();
        Self { user, primary_group, groups, privileges }
    }

    /// Makes a token without rights.
    pub fn nobody() -> Self {
        Self::new(Sid::ANONYMOUS, Sid::ANONYMOUS, [Sid::EVERYONE], Privileges::EMPTY)
    }

    /// Makes the token of a guest, who has no account.
    pub fn guest() -> Self {
        let groups = [Sid::EVERYONE, Sid::NETWORK, Sid::GUESTS];
        Self::new(Sid::ANONYMOUS, Sid::ANONYMOUS, groups, Privileges::EMPTY)
    }

    /// The groups of every user who has logged on over the network.
    pub const WELL_KNOWN: [Sid; 3] = [Sid::EVERYONE, Sid::NETWORK, Sid::AUTHENTICATED_USERS];

    /// Returns the user's SID (User).
    pub const fn user(&self) -> &Sid {
        &self.user
    }

    /// Returns the primary group's SID (PrimaryGroup).
    pub const fn primary_group(&self) -> &Sid {
        &self.primary_group
    }

    /// Returns all groups, the primary one included.
    pub fn groups(&self) -> &[Sid] {
        &self.groups
    }

    /// Returns the privileges.
    pub const fn privileges(&self) -> Privileges {
        self.privileges
    }

    /// SidInToken, MS-DTYP 2.5.3.1.1: true if the token contains `sid`.
    pub fn contains(&self, sid: &Sid) -> bool {
        self.user == *sid || self.groups.binary_search(sid).is_ok()
    }

    /// True if the token has all of `privileges`.
    pub const fn holds(&self, privileges: Privileges) -> bool {
        self.privileges.contains(privileges)
    }
}
