//! Shares: MS-SMB2 3.3.1.6.

mod builder;
mod slowness;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use frevo_dfs::Namespaces;
use frevo_store::Vfs;
use frevo_store::security::Token;
use frevo_store::state::Epoch;
use frevo_store::watch::Listener;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::fold_name;
use parking_lot::Mutex;

use crate::access::access_rules::Rules;
use crate::access::actor::Actor;
use crate::access::host_users::HostUsers;
use crate::access::id_map::IdMap;
use crate::audit::ShareAudit;
use crate::base::host::Credentials;
use crate::base::host::HostUser;
use crate::base::pools::blocking_pool::BlockingPool;
use crate::base::surplus::return_surplus;
use crate::shares::brake::{Brake, BrakeAction};
use crate::shares::exposed::Exposed;
use crate::shares::guests::GuestAccess;
use crate::shares::impersonation;
use crate::shares::index::{Indexed, Overlap, Searcher, ShareIndex, Viewer};
use crate::shares::life::Life;
use crate::shares::namespace::{LinkedVfs, Published, SambaVfs};
use crate::shares::recycle::RecyclingVfs;
use crate::shares::scanning::Scanning;
use crate::shares::time_machine::Limit;
use crate::shares::write_once::{WriteOnce, WriteOnceVfs};

use slowness::Slowness;

pub use crate::shares::recycle::{RecycleBin, RecycleCounts};
pub use crate::shares::user_folders::{USER, UserFolders};

/// The largest offset a file can have.
pub(crate) const MAX_OFFSET: u64 = i64::MAX as u64;

/// The files or pipes of a share.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// A folder of a file system.
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

/// The data of READs that a share sends compressed, MS-SMB2 3.1.4.4. Compressed data shows to whoever
/// counts encrypted bytes how much of it repeats; see docs/configuration.md.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compress {
    /// None. Without a share that compresses, no connection negotiates compression.
    #[default]
    Off,
    /// The data of READs which ask for it.
    Asked,
    /// The data of READs which ask for it, and clients are told that they should always ask, and compress
    /// what they write (Share.CompressData).
    All,
}

impl RunAs {
    /// True if both stand for the same user of the host.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Server, Self::Server) | (Self::User, Self::User) => true,
            (Self::One(one), Self::One(other)) => one.uid() == other.uid(),
            _ => false,
        }
    }
}

/// A share: a name, what it shows, and who may use it.
///
/// ```
/// use frevo_server::access_rules::Rules;
/// use frevo_server::{Share, vfs};
///
/// let staff = Share::disk("staff", vfs::memory(1 << 20))
///     .comment("Papers of the staff")
///     .rules(Rules::for_users(&["ann", "bob"]))
///     .encrypt(true);
/// # drop(staff);
/// ```
#[derive(Debug, Clone)]
pub struct Share {
    /// Name as configured; compared without case.
    pub(crate) name: String,
    /// Text that clients see beside it.
    pub(crate) comment: String,
    /// The files or pipes.
    pub(crate) target: Target,
    /// True when nobody may write.
    pub(crate) read_only: bool,
    /// Share.EncryptData: this share demands encryption.
    pub(crate) encrypt: bool,
    /// The data of READs that is sent compressed.
    pub(crate) compress: Compress,
    /// Bytes by which compression has made answers shorter.
    pub(crate) saved: Arc<AtomicU64>,
    /// Share.IsCA: Opens can be persistent.
    pub(crate) continuous: bool,
    /// Left out of listings.
    pub(crate) hidden: bool,
    /// Share.DoAccessBasedDirectoryEnumeration: files that a user cannot read are hidden from
    /// that user.
    pub(crate) hide_unreadable: bool,
    /// The user of the host as which its files are used.
    pub(crate) run_as: RunAs,
    /// The primary group of all users, with [`RunAs::User`].
    pub(crate) force_group: Option<u32>,
    /// The path of its folder on the host, which administrators are told over the network.
    pub(crate) host_path: Option<String>,
    /// The users that may connect, and those that may write.
    pub(crate) rules: Rules,
    /// POSIX clients get POSIX Opens here.
    pub(crate) posix: bool,
    /// Names that differ in case only are two.
    pub(crate) is_case_sensitive: bool,
    /// macOS may back up here.
    pub(crate) time_machine: bool,
    /// macOS searches it by Spotlight, if it has an index.
    pub(crate) spotlight: bool,
    /// How much backups may take of it; none: all that there is.
    pub(crate) time_machine_limit: Option<Arc<Limit>>,
    /// Clients may wait for changes in directories.
    pub(crate) change_notify: bool,
    /// Volume.MaxFileSize of MS-FSA 2.1.1.1: no file becomes larger.
    pub(crate) max_file_size: u64,
    /// LastWriteTime moves two seconds after the first write, or when the file is
    /// flushed or closed.
    pub(crate) late_write_times: bool,
    /// Data of Opens with FILE_NO_INTERMEDIATE_BUFFERING stays in the host's page cache, like that of
    /// others.
    pub(crate) cache_unbuffered: bool,
    /// True where an access list that a client sets counts as inherited by its DI bit alone
    /// (MS-DTYP 2.4.6), without the DC bit.
    pub(crate) inherited_as_set: bool,
    /// `/` separates components of names as `\` does.
    pub(crate) forward_slashes: bool,
    /// Where its requests are carried out when its file system may keep its
    /// caller waiting; none: on the core.
    pub(crate) blocking_pool: Option<Arc<BlockingPool>>,
    /// The blocking pool has requests only while the file system says that it may wait, or has turned out to
    /// be slow.
    pub(crate) asks_off_core: bool,
    /// Slow calls of its file system.
    pub(crate) slowness: Arc<Slowness>,
    /// Oplocks of level II are granted.
    pub(crate) level2_oplocks: bool,
    /// The operations that the audit log records; none without an audit log.
    pub(crate) audit: Option<ShareAudit>,
    /// Share.MaxUses; none: as many as there is room for.
    pub(crate) max_connections: Option<usize>,
    /// Share.CurrentUses
    pub(crate) uses: Arc<Uses>,
    /// True for a share that several servers have in turn: this one serves it once it has taken it.
    pub(crate) begins_elsewhere: bool,
    /// True for a share of the server's cluster: it begins elsewhere, and is under the cluster's limit.
    pub(crate) clustered: bool,
    /// True if addresses move with it from node to node of the cluster.
    pub(crate) moving_addresses: bool,
    /// The server that owns it, over all reloads. [`Shares`] sets it.
    pub(crate) life: Arc<Life>,
    /// A folder for each user, in place of `target`.
    pub(crate) user_folders: Option<UserFolders>,
    /// Deleted files go there; none: they are gone.
    pub(crate) recycle: Option<Arc<RecycleBin>>,
    /// Numbers of the host for users and groups of domains.
    pub(crate) id_map: Arc<IdMap>,
    /// Share.IsDfs: the namespace that the share is the root of. None for any other share.
    pub(crate) namespace: Option<Arc<Published>>,
    /// True for a share that serves a snapshot of another one, and is not in the configuration.
    pub(crate) is_exposed: bool,
    /// The rights of guests; see [`Self::guest_access`].
    pub(crate) guest: Option<GuestAccess>,
    /// The times after which files do not change any more; none: they always do.
    pub(crate) write_once: Option<Arc<WriteOnce>>,
    /// The brake on clients that change files as ransomware does; none: they are not looked at.
    pub(crate) brake: Option<Arc<Brake>>,
    /// The scans of its files for viruses; none: they are not scanned.
    pub(crate) scanning: Option<Arc<Scanning>>,
    /// The index of its names, sizes and dates; none: there is nothing to search in.
    pub(crate) index: Option<Arc<ShareIndex>>,
}

/// The type of a share of a cluster, MS-SRVS 2.2.2.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClusterKind {
    /// STYPE_CLUSTER_FS: addresses move with it, at which clients find it.
    FileServer,
    /// STYPE_CLUSTER_SOFS: clients find it at an address of the node that owns it.
    ///
    /// Deviation: MS-SMB2 3.3.5.9, 3.3.5.9.8 and 3.3.5.9.11 reduce leases and batch oplocks of such a share to
    /// caching of reads, because several nodes have its files open at once there. Here one node at a time
    /// has the share and arbitrates all its Opens, so leases are granted as on other shares.
    ScaleOut,
}

/// Share.CurrentUses: tree connects to a share, over all reloads.
#[derive(Debug, Default)]
pub(crate) struct Uses(Mutex<UseCounts>);

#[derive(Debug, Default)]
struct UseCounts {
    all: usize,
    /// Uses of each account, and of each network of clients without one.
    of_account: HashMap<String, usize>,
}

/// One of the uses of a share.
#[derive(Debug)]
pub struct Use {
    uses: Arc<Uses>,
    account: String,
}

impl Uses {
    /// Takes one more use for `account`, of at most `most`. None when all are taken. The last quarter
    /// is not for an account that has more than a quarter.
    pub(crate) fn take(self: &Arc<Self>, most: Option<usize>, account: &str) -> Option<Use> {
        let most = most.unwrap_or(usize::MAX);
        let mut counts = self.0.lock();
        let own = counts.of_account.get(account).copied().unwrap_or(0);
        let room = if own > most / 4 { most - most / 4 } else { most };
        if counts.all >= room {
            return None;
        }
        counts.all += 1;
        *counts.of_account.entry(account.to_owned()).or_default() += 1;
        Some(Use { uses: Arc::clone(self), account: account.to_owned() })
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut counts = self.uses.0.lock();
        counts.all = counts.all.saturating_sub(1);
        let Some(own) = counts.of_account.get_mut(&self.account) else { return };
        *own = own.saturating_sub(1);
        if *own == 0 {
            counts.of_account.remove(&self.account);
            return_surplus(&mut counts.of_account);
        }
    }
}

impl Share {
    /// A share of a file system: for every user, for reading and writing.
    pub fn disk(name: &str, vfs: Arc<dyn Vfs>) -> Self {
        Self::new(name, Target::Disk(vfs))
    }

    /// A share with nothing special about it.
    pub(crate) fn new(name: &str, target: Target) -> Self {
        Self {
            name: name.to_owned(),
            comment: String::new(),
            target,
            read_only: false,
            encrypt: false,
            compress: Compress::Off,
            saved: Arc::default(),
            continuous: false,
            hidden: false,
            hide_unreadable: false,
            run_as: RunAs::Server,
            force_group: None,
            host_path: None,
            rules: Rules::default(),
            posix: true,
            is_case_sensitive: false,
            time_machine: false,
            spotlight: false,
            time_machine_limit: None,
            change_notify: true,
            max_file_size: MAX_OFFSET,
            late_write_times: false,
            cache_unbuffered: true,
            inherited_as_set: false,
            forward_slashes: false,
            blocking_pool: None,
            asks_off_core: false,
            slowness: Arc::default(),
            level2_oplocks: true,
            audit: None,
            max_connections: None,
            uses: Arc::default(),
            begins_elsewhere: false,
            clustered: false,
            moving_addresses: false,
            life: Arc::default(),
            user_folders: None,
            recycle: None,
            id_map: Arc::default(),
            namespace: None,
            is_exposed: false,
            guest: None,
            write_once: None,
            brake: None,
            scanning: None,
            index: None,
        }
    }

    /// The blocking pool for a request of now; none where it runs on the core.
    pub(crate) fn pool(&self) -> Option<&Arc<BlockingPool>> {
        let may_wait = || self.slowness.may_wait() || self.vfs().is_some_and(|vfs| vfs.may_wait());
        self.blocking_pool.as_ref().filter(|_| !self.asks_off_core || may_wait())
    }

    /// True if the calls for the data of files may wait for the share's disk now.
    pub(crate) fn disk_may_wait(&self) -> bool {
        self.asks_off_core && self.slowness.may_wait()
    }

    /// Its type in the cluster. None for one that is this server's alone.
    pub(crate) const fn cluster_kind(&self) -> Option<ClusterKind> {
        match (self.clustered, self.moving_addresses) {
            (false, _) => None,
            (true, true) => Some(ClusterKind::FileServer),
            (true, false) => Some(ClusterKind::ScaleOut),
        }
    }

    /// The share at the beginning of its life.
    fn born(mut self) -> Self {
        self.be_born();
        self
    }

    fn be_born(&mut self) {
        let name = fold_name(&self.name);
        let is_elsewhere = self.begins_elsewhere || self.clustered;
        let begun = if is_elsewhere { Life::elsewhere(&name) } else { Life::owned(&name) };
        self.life = Arc::new(begun);
    }

    /// The share as somebody sees it who may not, or may, write.
    pub(crate) fn seen(self: Arc<Self>, read_only: bool) -> Arc<Self> {
        if self.read_only == read_only {
            return self;
        }
        Arc::new(Self { read_only, ..Self::clone(&self) })
    }

    /// The share as an account has it: with its own folder where each user has one. None when
    /// there is no folder of the account.
    pub(crate) fn for_account(self: Arc<Self>, account: &str) -> Option<Arc<Self>> {
        let Some(folders) = &self.user_folders else { return Some(self) };
        let target = Target::Disk(folders.of(account)?);
        let name = self.name_for(account);
        Some(Arc::new(Self { target, name, ..Self::clone(&self) }))
    }

    /// The name by which an account knows the share: its own name for `{user}`.
    pub(crate) fn name_for(&self, account: &str) -> String {
        if self.name == USER { account.to_owned() } else { self.name.clone() }
    }

    /// The share as an account uses it who is `host` there, from `epoch` on; none when nobody can
    /// be found to act as.
    pub(crate) fn acting_for(
        self: Arc<Self>,
        account: &str,
        host: Option<&HostUser>,
        users: &HostUsers,
        epoch: Epoch,
    ) -> Option<Arc<Self>> {
        let Target::Disk(files) = &self.target else { return Some(self) };
        let vfs = &self.written_once(self.linked(files));
        let recycling = |owner| match &self.recycle {
            Some(bin) => {
                let (vfs, bin) = (Arc::clone(vfs), Arc::clone(bin));
                let recycling = RecyclingVfs::new(vfs, bin, account, owner);
                Arc::new(recycling.in_past(self.is_exposed)) as Arc<dyn Vfs>
            }
            None => Arc::clone(vfs),
        };
        let gate = self.life.gate(epoch);
        let acting = match &self.run_as {
            RunAs::Server if users.acts_lazily() || gate.is_some() => {
                impersonation::for_server(recycling(None), gate)
            }
            RunAs::Server if self.is_wrapped() => recycling(None),
            RunAs::Server => return Some(self),
            RunAs::User => {
                let actor = users.actor(account, host?, self.force_group)?;
                let owner = actor.credentials().uid();
                impersonation::for_user(recycling(Some(owner)), actor, gate)
            }
            RunAs::One(credentials) => {
                let actor = Actor::new(Arc::clone(credentials));
                impersonation::for_user(recycling(Some(credentials.uid())), Arc::new(actor), gate)
            }
        };
        let scanning = self.scanning.as_ref().map(|scanning| Arc::new(scanning.of(files)));
        Some(Arc::new(Self { target: Target::Disk(acting), scanning, ..Self::clone(&self) }))
    }

    /// True if a tree connect has other files than the folder's own.
    fn is_wrapped(&self) -> bool {
        self.recycle.is_some() || self.namespace.is_some() || self.write_once.is_some()
    }

    /// The files, of which committed ones do not change. Those of a snapshot do not change anyway.
    fn written_once(&self, files: Arc<dyn Vfs>) -> Arc<dyn Vfs> {
        match &self.write_once {
            Some(rules) if !self.is_exposed => {
                Arc::new(WriteOnceVfs::new(files, Arc::clone(rules)))
            }
            _ => files,
        }
    }

    /// The files with the links of the share's namespace, if it has one.
    fn linked(&self, files: &Arc<dyn Vfs>) -> Arc<dyn Vfs> {
        match &self.namespace {
            Some(published) => {
                let mut files = Arc::clone(files);
                if published.has_samba_links() {
                    files = Arc::new(SambaVfs::new(files, Arc::clone(published)));
                }
                Arc::new(LinkedVfs::new(files, Arc::clone(published)))
            }
            None => Arc::clone(files),
        }
    }

    /// True when an account with the host's user `host` can be impersonated.
    pub(crate) fn has_actor(&self, host: Option<&HostUser>) -> bool {
        let needs_one = matches!((&self.target, &self.run_as), (Target::Disk(_), RunAs::User));
        !needs_one || host.is_some_and(|host| host.credentials(self.force_group).is_some())
    }

    /// Returns true when its files are used as another user than the server's.
    pub(crate) fn runs_as_others(&self) -> bool {
        let of_guests = self.guest.as_ref().map(|guest| &guest.run_as);
        !matches!((&self.run_as, of_guests), (RunAs::Server, None | Some(RunAs::Server)))
    }

    /// True when access to the share depends on the host's users.
    pub(crate) fn needs_host_users(&self) -> bool {
        matches!(self.run_as, RunAs::User) || self.rules.need_groups()
    }

    /// The highest access anybody gets below this share.
    pub(crate) const fn maximal_access(&self) -> AccessMask {
        if self.read_only {
            AccessMask(AccessMask::FILE_GENERIC_READ.0 | AccessMask::FILE_GENERIC_EXECUTE.0)
        } else {
            AccessMask::FILE_ALL
        }
    }

    /// True when POSIX clients get POSIX Opens: the share has them and the file system can
    /// hold their names.
    pub(crate) fn has_posix(&self) -> bool {
        self.posix && self.vfs().is_some_and(|vfs| vfs.volume().posix_names)
    }

    /// The index, as the user of this share may search it. The share is the one that the user has: from
    /// [`Self::acting_for`]. None without an index.
    pub(crate) fn searcher<'a>(&'a self, token: &'a Token) -> Option<Searcher<'a>> {
        let index = self.index.as_deref().filter(|_| !self.is_exposed)?;
        let viewer = Viewer {
            files: self.vfs()?,
            token: Some(token),
            hides_unreadable: self.hide_unreadable,
            bin: self.recycle.as_ref().map(|bin| &*bin.folder),
        };
        Some(Searcher { index, viewer })
    }

    /// The index, as an administrator of the host may search it, to whom no file is hidden.
    pub(crate) fn administrators_searcher(&self) -> Option<Searcher<'_>> {
        let index = self.index.as_deref().filter(|_| !self.is_exposed)?;
        let bin = self.recycle.as_ref().map(|bin| &*bin.folder);
        let viewer = Viewer { files: self.vfs()?, token: None, hides_unreadable: false, bin };
        Some(Searcher { index, viewer })
    }

    /// The ear of its index for changes through all of `shares`. None without an index.
    pub(crate) fn index_listener(&self, shares: &Shares) -> Option<Listener> {
        let index = self.index.as_ref().filter(|_| !self.is_exposed)?;
        let others = shares.all().filter(|other| !other.is_exposed).filter_map(|other| {
            let (path, own) = (other.host_path.as_deref()?, self.host_path.as_deref()?);
            Overlap::of(other.vfs()?, path, own)
        });
        Some(index.listener(others.collect()))
    }

    /// Starts the thread of its index, if it has one that does not run yet.
    pub(crate) fn start_index(&self) {
        let Some(index) = self.index.as_ref().filter(|_| !self.is_exposed) else { return };
        let Some(files) = self.vfs() else { return };
        let indexed = Indexed {
            name: self.name.clone(),
            files: Arc::clone(files),
            bin: self.recycle.as_ref().map(|bin| bin.folder.clone()),
            life: Arc::clone(&self.life),
        };
        if let Err(error) = index.start(indexed) {
            tracing::error!(target: "frevo::index", share = %self.name, %error,
                "cannot start a thread for the index; nothing is found in this share");
        }
    }

    /// True if its index goes on as that of `old`, of the same folder and with the same rules.
    fn has_index_of(&self, old: &Self) -> bool {
        let rules = |share: &Self| share.index.as_ref().map(|index| index.rules());
        let bin = |share: &Self| share.recycle.as_ref().map(|bin| bin.folder.clone());
        let folder = |share: &Self| share.vfs().map(|vfs| vfs.folder_id());
        rules(self) == rules(old)
            && bin(self) == bin(old)
            && self.host_path == old.host_path
            && (self.host_path.is_some() || folder(self) == folder(old))
    }

    /// The name, which clients compare without case.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True for a share that is left out of listings.
    pub const fn is_hidden(&self) -> bool {
        self.hidden
    }

    /// The name for limits of rate: that of the share that a snapshot is of, `photos` for `photos@{GUID}`.
    pub(crate) fn name_for_rates(&self) -> &str {
        let base = self.name.rsplit_once("@{").filter(|_| self.is_exposed);
        base.map_or(&*self.name, |(base, _)| base)
    }

    /// True for a share that nobody may write to, but for the `write_list` of its rules.
    pub const fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// True for a share whose files do not change any more once they stayed unchanged for a time.
    pub const fn is_write_once(&self) -> bool {
        self.write_once.is_some()
    }

    /// Returns what its brake does when it takes hold of a client. None without a brake.
    pub fn brake_action(&self) -> Option<BrakeAction> {
        self.brake.as_ref().map(|brake| brake.action())
    }

    /// True for a share whose files are scanned for viruses.
    pub const fn is_scanned(&self) -> bool {
        self.scanning.is_some()
    }

    /// The file system. None for IPC$, which has pipes.
    pub const fn vfs(&self) -> Option<&Arc<dyn Vfs>> {
        match &self.target {
            Target::Disk(vfs) => Some(vfs),
            Target::Pipes => None,
        }
    }
}

/// Waits until no request of a share runs beside the cores. False when the time is up first.
pub async fn off_core_settled(share: &Share, deadline: tokio::time::Instant) -> bool {
    match &share.blocking_pool {
        Some(pool) => pool.settled(deadline).await,
        None => true,
    }
}

/// The life of a share.
pub fn life_of(share: &Share) -> Arc<Life> {
    Arc::clone(&share.life)
}

/// All shares by folded name. IPC$ is always among them.
#[derive(Debug, Clone, Default)]
pub struct Shares {
    by_name: HashMap<String, Arc<Share>>,
    rules_of_none: Rules,
    /// Some share asks who its users are on the host.
    pub needs_host_users: bool,
    /// The namespaces whose roots are shares: IsDfsCapable of MS-SMB2 3.3.1.5 with any.
    pub(crate) namespaces: Namespaces,
    /// IsCompressionSupported: some share compresses.
    pub(crate) compress: bool,
}

impl Shares {
    /// The given shares and IPC$, at the beginning of their lives.
    pub fn new(shares: impl IntoIterator<Item = Share>) -> Self {
        Self::of(shares.into_iter().map(Share::born))
    }

    fn of(shares: impl IntoIterator<Item = Share>) -> Self {
        let ipc = Share {
            comment: String::from("IPC Service"),
            hidden: true,
            posix: false,
            ..Share::new("IPC$", Target::Pipes)
        };
        let all = shares.into_iter().chain([ipc]);
        let by_name: HashMap<_, _> =
            all.map(|share| (fold_name(&share.name), Arc::new(share))).collect();
        let needs_host_users = by_name.values().any(|share| share.needs_host_users());
        let longest = by_name.values().max_by_key(|share| share.rules.steps());
        let rules_of_none = longest.map_or_else(Rules::default, |share| share.rules.clone());
        let published = by_name.values().filter_map(|share| share.namespace.as_ref());
        let mut namespaces = Namespaces::default();
        for published in published {
            namespaces.insert(published.namespace());
        }
        let compress = by_name.values().any(|share| share.compress != Compress::Off);
        Self { by_name, rules_of_none, needs_host_users, namespaces, compress }
    }

    /// Returns the names of domains in the rules of all shares, in lower case.
    pub(crate) fn names_of_domains(&self) -> BTreeSet<String> {
        let all = self.by_name.values().flat_map(|share| share.rules.of_domains());
        all.map(String::from).collect()
    }

    /// The rules by which a name is judged that no share has: those of the share that
    /// takes longest.
    pub const fn rules_of_none(&self) -> &Rules {
        &self.rules_of_none
    }

    /// The share of that name, in any case.
    pub fn find(&self, name: &str) -> Option<&Arc<Share>> {
        self.by_name.get(&fold_name(name))
    }

    /// The share that an account calls so: `{user}` is called like the account, and by no other
    /// name.
    pub fn find_for(&self, name: &str, account: &str) -> Option<&Arc<Share>> {
        let is_own = fold_name(name) == fold_name(account);
        let own = self.find(USER).filter(|_| is_own);
        self.find(name).filter(|share| share.name != USER).or(own)
    }

    /// These shares, which go on with the uses and counts that `old` ones of their names have.
    pub fn following(mut shares: Vec<Share>, old: &Self) -> Self {
        for share in &mut shares {
            let Some(old) = old.find(&share.name) else {
                share.be_born();
                continue;
            };
            share.uses = Arc::clone(&old.uses);
            share.saved = Arc::clone(&old.saved);
            if let Some(published) = &old.namespace {
                published.follow(share.namespace.as_deref());
                share.namespace = share.namespace.as_ref().map(|_| Arc::clone(published));
            }
            share.life = Arc::clone(&old.life);
            if let (Some(brake), Some(old)) = (&mut share.brake, &old.brake) {
                *brake = Arc::new(Brake::clone(brake).following(old));
            }
            if share.has_index_of(old) {
                share.index.clone_from(&old.index);
            }
            if let (Some(bin), Some(old)) = (&mut share.recycle, &old.recycle) {
                Arc::make_mut(bin).counts = Arc::clone(&old.counts);
            }
        }
        Self::of(shares)
    }

    /// These shares, with those that serve snapshots in place of the ones before. `old` are the shares until
    /// now, from which those that stay keep their uses.
    pub(crate) fn exposing(&self, exposed: &[Exposed], old: &Self) -> Self {
        let had = self.by_name.values().any(|share| share.is_exposed);
        if exposed.is_empty() && !had {
            return self.clone();
        }
        let own = self.by_name.values().filter(|share| !share.is_exposed);
        let own = own.filter(|share| matches!(share.target, Target::Disk(_)));
        let serving = exposed.iter().filter_map(|one| {
            let base = self.find(&one.base).filter(|base| one.is_of(base))?;
            let mut share = one.share(base);
            match old.find(&one.name) {
                Some(old) => {
                    share.uses = Arc::clone(&old.uses);
                    share.life = Arc::clone(&old.life);
                }
                None => share.be_born(),
            }
            Some(share)
        });
        Self::of(own.map(|share| Share::clone(share)).chain(serving))
    }

    /// All of them, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Share>> {
        self.by_name.values()
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
    use crate::access::access_rules::Names;

    #[test]
    fn uses_are_counted_over_reloads() {
        let share = || Share { max_connections: Some(2), ..Share::new("a", Target::Pipes) };
        let shares = Shares::new([share()]);
        let take = |shares: &Shares| {
            let share = shares.find("A").unwrap();
            share.uses.take(share.max_connections, "ann")
        };
        let one = take(&shares).unwrap();
        let later = Shares::following(vec![share()], &shares);
        let two = take(&later).unwrap();
        assert!(take(&later).is_none() && take(&shares).is_none());
        drop(one);
        let three = take(&later).unwrap();
        assert!(take(&later).is_none());
        drop((two, three));
        assert!(take(&later).is_some());
    }

    /// An account had all places but one, and the next account the last one.
    #[test]
    fn the_last_quarter_of_the_uses_is_kept_from_large_accounts() {
        let uses = Arc::<Uses>::default();
        let all = |account: &str| -> Vec<Use> {
            std::iter::from_fn(|| uses.take(Some(50), account)).collect()
        };
        let anns = all("ann");
        assert_eq!(anns.len(), 38);
        let bobs = all("bob");
        assert_eq!(bobs.len(), 12, "all that are left");
        assert!(uses.take(Some(50), "carl").is_none());
        drop(anns);
        let more = all("bob");
        assert_eq!(bobs.len() + more.len(), 38);
        assert_eq!(all("carl").len(), 12);
        drop((bobs, more));
        assert!(uses.0.lock().of_account.is_empty());
        // Without a limit (None), each user gets a place.
        assert!(uses.take(None, "ann").is_some());
    }

    /// Tests that names of shares are compared as NTFS compares names.
    #[test]
    fn foreign_letters_are_no_ascii_letters() {
        let shares =
            Shares::new(["share", "Straße", "Größe"].map(|n| Share::new(n, Target::Pipes)));
        for (name, is_found) in [
            ("SHARE", true),
            ("\u{17F}hare", false),
            ("STRASSE", false),
            ("STRAßE", true),
            ("GRÖßE", true),
        ] {
            assert_eq!(shares.find(name).is_some(), is_found, "{name}");
        }
    }

    #[test]
    fn a_share_of_each_user_is_called_like_the_user() {
        let shares = Shares::new([USER, "docs"].map(|name| Share::new(name, Target::Pipes)));
        let named = |name: &str, account: &str| {
            shares.find_for(name, account).map(|share| share.name_for(account))
        };
        assert_eq!(named("ANN", "ann").as_deref(), Some("ann"));
        assert_eq!(named("docs", "ann").as_deref(), Some("docs"));
        assert_eq!(named("docs", "docs").as_deref(), Some("docs"));
        assert_eq!((named("bob", "ann"), named("{user}", "ann")), (None, None));
    }

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
