//! Shares: MS-SMB2 3.3.1.6.

use std::collections::HashMap;
use std::sync::Arc;

use frevo_store::Vfs;
use frevo_wire::dtyp::AccessMask;

use crate::access_rules::Rules;
use crate::audit::ShareAudit;
use crate::blocking_pool::BlockingPool;
use crate::host::Credentials;
use crate::host_users::{HostUser, HostUsers};
use crate::impersonation;
use crate::time_machine::Limit;

/// The largest offset a file can have.
pub const MAX_OFFSET: u64 = i64::MAX as u64;

/// The files or pipes of a share.
#[derive(Debug, Clone)]
pub enum Target {
    /// A folder.
    Disk(Arc<dyn Vfs>),
    /// The pipes of IPC$.
    Pipes,
}

/// The user of the host as which files are used.
#[derive(Debug, Clone, Default)]
pub enum RunAs {
    /// The user that the server runs as.
    #[default]
    Server,
    /// The user called like the account that has logged on.
    User,
    /// One user for all accounts.
    One(Arc<Credentials>),
}

/// A share: a name, what it shows, and who may use it.
///
/// ```
/// use frevo_server::access_rules::Rules;
/// use frevo_server::{Share, vfs};
///
/// let staff = Share {
///     comment: String::from("Papers of the staff"),
///     rules: Rules::for_users(&["ann", "bob"]),
///     encrypt: true,
///     ..Share::disk("staff", vfs::memory(1 << 20))
/// };
/// assert!(!staff.read_only);
/// ```
#[derive(Debug, Clone)]
pub struct Share {
    /// Name as configured; compared without case.
    pub name: String,
    /// Text that clients see beside it.
    pub comment: String,
    /// The files or pipes.
    pub target: Target,
    /// Nobody writes.
    pub read_only: bool,
    /// Share.EncryptData: this share demands encryption.
    pub encrypt: bool,
    /// Share.IsCA: Opens can be persistent.
    pub continuous: bool,
    /// Left out of listings.
    pub hidden: bool,
    /// Share.DoAccessBasedDirectoryEnumeration: files that a user cannot read are hidden from
    /// that user.
    pub hide_unreadable: bool,
    /// The user of the host as which its files are used.
    #[doc(hidden)]
    pub run_as: RunAs,
    /// The primary group of all users, with [`RunAs::User`].
    #[doc(hidden)]
    pub force_group: Option<u32>,
    /// The users that may connect, and those that may write.
    pub rules: Rules,
    /// POSIX clients get POSIX Opens here.
    pub posix: bool,
    /// Names that differ in case only are two.
    pub is_case_sensitive: bool,
    /// macOS may back up here.
    pub time_machine: bool,
    /// How much backups may take of it; none: all that there is.
    #[doc(hidden)]
    pub time_machine_limit: Option<Arc<Limit>>,
    /// Clients may wait for changes in directories.
    pub change_notify: bool,
    /// Volume.MaxFileSize of MS-FSA 2.1.1.1: no file becomes larger.
    pub max_file_size: u64,
    /// LastWriteTime moves two seconds after the first write, or when the file is
    /// flushed or closed.
    pub late_write_times: bool,
    /// True where an access list that a client sets counts as inherited by its DI bit alone
    /// (MS-DTYP 2.4.6), without the DC bit.
    pub inherited_as_set: bool,
    /// `/` separates components of names as `\` does.
    pub forward_slashes: bool,
    /// Where its requests are carried out when its file system may keep its
    /// caller waiting; none: on the core.
    #[doc(hidden)]
    pub blocking_pool: Option<Arc<BlockingPool>>,
    /// Oplocks of level II are granted.
    pub level2_oplocks: bool,
    /// The operations that the audit log records; none without an audit log.
    pub audit: Option<ShareAudit>,
}

impl Share {
    /// A share of a file system: for every user, for reading and writing.
    pub fn disk(name: &str, vfs: Arc<dyn Vfs>) -> Self {
        Self::new(name, Target::Disk(vfs))
    }

    /// Carries out its requests on threads beside the cores. It is for a file system whose
    /// calls may take longer than some milliseconds: other clients do not wait for it.
    #[must_use]
    pub fn off_core(self) -> Self {
        Self { blocking_pool: Some(Arc::default()), ..self }
    }

    /// A share with nothing special about it.
    pub fn new(name: &str, target: Target) -> Self {
        Self {
            name: name.to_owned(),
            comment: String::new(),
            target,
            read_only: false,
            encrypt: false,
            continuous: false,
            hidden: false,
            hide_unreadable: false,
            run_as: RunAs::Server,
            force_group: None,
            rules: Rules::default(),
            posix: true,
            is_case_sensitive: false,
            time_machine: false,
            time_machine_limit: None,
            change_notify: true,
            max_file_size: MAX_OFFSET,
            late_write_times: false,
            inherited_as_set: false,
            forward_slashes: false,
            blocking_pool: None,
            level2_oplocks: true,
            audit: None,
        }
    }

    /// The share as somebody sees it who may not, or may, write.
    pub fn seen(self: Arc<Self>, read_only: bool) -> Arc<Self> {
        if self.read_only == read_only {
            return self;
        }
        Arc::new(Self { read_only, ..Self::clone(&self) })
    }

    /// The share as an account uses it who is `host` there; none when nobody can
    /// be found to act as.
    pub fn acting_for(
        self: Arc<Self>,
        account: &str,
        host: Option<&HostUser>,
        users: &HostUsers,
    ) -> Option<Arc<Self>> {
        let Target::Disk(vfs) = &self.target else { return Some(self) };
        let acting = match &self.run_as {
            RunAs::Server if users.acts_lazily() => impersonation::for_server(Arc::clone(vfs)),
            RunAs::Server => return Some(self),
            RunAs::User => {
                let actor = users.actor(account, host?, self.force_group)?;
                impersonation::for_user(Arc::clone(vfs), actor)
            }
            RunAs::One(credentials) => {
                let actor = impersonation::Actor::new(Arc::clone(credentials));
                impersonation::for_user(Arc::clone(vfs), Arc::new(actor))
            }
        };
        Some(Arc::new(Self { target: Target::Disk(acting), ..Self::clone(&self) }))
    }

    /// True when an account with the host's user `host` can be impersonated.
    pub fn has_actor(&self, host: Option<&HostUser>) -> bool {
        let needs_one = matches!((&self.target, &self.run_as), (Target::Disk(_), RunAs::User));
        !needs_one || host.is_some_and(|host| host.credentials(self.force_group).is_some())
    }

    /// Returns true when its files are used as another user than the server's.
    pub(crate) const fn runs_as_others(&self) -> bool {
        !matches!(self.run_as, RunAs::Server)
    }

    /// True when access to the share depends on the host's users.
    pub fn needs_host_users(&self) -> bool {
        matches!(self.run_as, RunAs::User) || self.rules.need_groups()
    }

    /// The highest access anybody gets below this share.
    pub const fn maximal_access(&self) -> AccessMask {
        if self.read_only {
            AccessMask(AccessMask::FILE_GENERIC_READ.0 | AccessMask::FILE_GENERIC_EXECUTE.0)
        } else {
            AccessMask::FILE_ALL
        }
    }

    /// True when POSIX clients get POSIX Opens: the share has them and the file system can
    /// hold their names.
    pub fn has_posix(&self) -> bool {
        self.posix && self.vfs().is_some_and(|vfs| vfs.volume().posix_names)
    }

    /// The file system, of a disk share.
    pub const fn vfs(&self) -> Option<&Arc<dyn Vfs>> {
        match &self.target {
            Target::Disk(vfs) => Some(vfs),
            Target::Pipes => None,
        }
    }
}

/// All shares by folded name. IPC$ is always among them.
#[derive(Debug, Clone, Default)]
pub struct Shares {
    by_name: HashMap<String, Arc<Share>>,
    rules_of_none: Rules,
    /// Some share asks who its users are on the host.
    pub needs_host_users: bool,
}

impl Shares {
    /// The given shares and IPC$.
    pub fn new(shares: impl IntoIterator<Item = Share>) -> Self {
        let ipc = Share {
            comment: String::from("IPC Service"),
            hidden: true,
            posix: false,
            ..Share::new("IPC$", Target::Pipes)
        };
        let all = shares.into_iter().chain([ipc]);
        let by_name: HashMap<_, _> =
            all.map(|share| (share.name.to_uppercase(), Arc::new(share))).collect();
        let needs_host_users = by_name.values().any(|share| share.needs_host_users());
        let longest = by_name.values().max_by_key(|share| share.rules.steps());
        let rules_of_none = longest.map_or_else(Rules::default, |share| share.rules.clone());
        Self { by_name, rules_of_none, needs_host_users }
    }

    /// The rules by which a name is judged that no share has: those of the share that
    /// takes longest.
    pub const fn rules_of_none(&self) -> &Rules {
        &self.rules_of_none
    }

    /// The share of that name, in any case.
    pub fn find(&self, name: &str) -> Option<&Arc<Share>> {
        self.by_name.get(&name.to_uppercase())
    }

    /// All of them, by name.
    pub fn sorted(&self) -> Vec<Arc<Share>> {
        let mut all: Vec<_> = self.by_name.values().cloned().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_rules::Names;

    /// Row X8: a name that no share has takes the steps of one that refuses most.
    #[test]
    fn x8_an_absent_share_is_judged_by_the_longest_rules() {
        assert_eq!(Shares::new([]).rules_of_none(), &Rules::default());
        let share = |name, rules| Share { rules, ..Share::new(name, Target::Pipes) };
        let long = Rules {
            deny: Names::of(["eve"]),
            hosts_deny: vec!["192.0.2.0/24".parse().unwrap()],
            ..Rules::for_users(&["ann"])
        };
        let short = Rules { deny: Names::of(["eve", "mallory", "oscar"]), ..Rules::default() };
        for shares in [["a", "b", "c"], ["c", "b", "a"]] {
            let rules = [long.clone(), short.clone(), Rules::default()];
            let shares = Shares::new(shares.into_iter().zip(rules).map(|(n, r)| share(n, r)));
            assert_eq!(shares.rules_of_none(), &long);
        }
    }
}
