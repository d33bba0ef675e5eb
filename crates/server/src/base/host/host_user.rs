//! A user of the host, with the names of its groups.

use frevo_wire::fscc::fold_name;

use super::{Credentials, HostNames, Said, UnixUser};

/// A user of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostUser {
    /// The numbers of the user and its groups.
    pub unix: UnixUser,
    /// The names of the groups, in lower case.
    pub groups: Vec<String>,
}

impl HostUser {
    /// Asks the name service, which may wait.
    ///
    /// # Errors
    /// When it does not answer, or does not name one of the groups.
    pub fn look_up(names: &dyn HostNames, name: &str) -> Said<Self> {
        let exact = names.user(name)?;
        let unix = match exact {
            Some(unix) => Some(unix),
            None => names.user(&fold_name(name))?,
        };
        let Some(unix) = unix else { return Ok(None) };
        let mut groups = Vec::with_capacity(unix.groups.len());
        for gid in &unix.groups {
            groups.extend(names.group_name(*gid)?.map(|name| fold_name(&name)));
        }
        Ok(Some(Self { unix, groups }))
    }

    /// The credentials for impersonation, with another primary group where the share has one;
    /// none for root.
    pub fn credentials(&self, group: Option<u32>) -> Option<Credentials> {
        Credentials::new(self.unix.uid, group.unwrap_or(self.unix.gid), &self.unix.groups)
    }
}
