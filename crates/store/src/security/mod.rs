//! Who may do what: MS-DTYP 2.4 and 2.5.3. Pure.
//!
//! A [`Token`] says who asks, a security descriptor what an object allows, and
//! [`check`] joins them. [`inherit`] makes the descriptor of a new object,
//! [`set`] that of a changed one, and [`host`] goes from the permissions of a
//! POSIX host to a descriptor and back.

pub mod check;
pub mod host;
pub mod inherit;
pub mod set;
#[cfg(test)]
mod tests;

pub use check::{Denied, check, maximal};
pub use host::{HostAcl, HostEntry, Whose};

use alloc::vec::Vec;

use frevo_wire::bit_set;
use frevo_wire::dtyp::Sid;

bit_set! {
    /// The privileges that matter to files, MS-LSAD 3.1.1.2.1.
    Privileges(u32) {
        /// SeSecurityPrivilege: system access control lists may be read and set.
        SECURITY = 0x01,
        /// SeTakeOwnershipPrivilege: WRITE_OWNER on everything.
        TAKE_OWNERSHIP = 0x02,
        /// SeRestorePrivilege: an object may be given to anybody.
        RESTORE = 0x04,
        /// SeManageVolumePrivilege: what was never written may be shown as data.
        MANAGE_VOLUME = 0x08,
    }
}

/// MS-DTYP 2.5.2: who somebody is, as far as access is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    user: Sid,
    primary_group: Sid,
    /// Everything else that the user is, in order, for the search.
    groups: Vec<Sid>,
    privileges: Privileges,
}

impl Token {
    /// The token of `user`. Everyone and the well-known groups of users who came
    /// over the network and proved who they are have to be among `groups`, see
    /// [`Self::WELL_KNOWN`].
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
        Self { user, primary_group, groups, privileges }
    }

    /// Somebody of whom nothing is known.
    pub fn nobody() -> Self {
        Self::new(Sid::ANONYMOUS, Sid::ANONYMOUS, [Sid::EVERYONE], Privileges::EMPTY)
    }

    /// What everybody is who has logged on over the network.
    pub const WELL_KNOWN: [Sid; 3] = [Sid::EVERYONE, Sid::NETWORK, Sid::AUTHENTICATED_USERS];

    /// User.
    pub const fn user(&self) -> &Sid {
        &self.user
    }

    /// PrimaryGroup.
    pub const fn primary_group(&self) -> &Sid {
        &self.primary_group
    }

    /// All groups, the primary one among them.
    pub fn groups(&self) -> &[Sid] {
        &self.groups
    }

    /// Privileges.
    pub const fn privileges(&self) -> Privileges {
        self.privileges
    }

    /// SidInToken of MS-DTYP 2.5.3.1.1.
    pub fn contains(&self, sid: &Sid) -> bool {
        self.user == *sid || self.groups.binary_search(sid).is_ok()
    }

    /// Whether all of `privileges` are held.
    pub const fn holds(&self, privileges: Privileges) -> bool {
        self.privileges.contains(privileges)
    }
}
