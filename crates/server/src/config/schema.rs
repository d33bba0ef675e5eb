//! The sections and keys of the file.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;

use super::fault::Fault;
use super::interface::InterfaceSection;
use super::listen::Listen;
use super::names::{AccountName, MachineSid, ServerName, ShareName, Who};
use super::recycle::{self, RecycleSection};
use super::traces::TracesSection;
use super::values::{
    AccountListingChoice, AuditedOperation, CipherName, ConfinementChoice, DialectName,
    DiscoveryChoice, EncryptionChoice, LogFormat, Mode, NtAclsChoice, RunAsChoice,
    SigningAlgorithmName, SigningChoice, Size, SnapshotPath, StreamsChoice,
};
use crate::access_rules::Network;
use crate::audit;
use crate::embed::Limits;
use crate::host::SnapshotFolders;
use crate::limits;
use crate::share_access::AccessEntry;
use crate::user_folders::USER;

/// A whole file. What it leaves out is `None` or empty, so that flags can stand
/// in for it before the defaults do.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `[server]`
    pub server: ServerSection,
    /// `[limits]`
    pub limits: LimitsSection,
    /// `[audit]`
    pub audit: AuditSection,
    /// `[admin]`
    pub admin: AdminSection,
    /// `[traces]`
    pub traces: TracesSection,
    /// Each `[[interface]]`
    #[serde(rename = "interface")]
    pub interfaces: Vec<InterfaceSection>,
    /// Each `[[share]]`
    #[serde(rename = "share")]
    pub shares: Vec<ShareSection>,
    /// Each `[[user]]`
    #[serde(rename = "user")]
    pub users: Vec<UserSection>,
}

/// `[server]`
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerSection {
    /// Name that clients see.
    pub name: Option<ServerName>,
    /// Text that clients see beside it.
    pub comment: Option<String>,
    /// SID of the machine, in place of the one that the account file keeps.
    pub sid: Option<MachineSid>,
    /// Model of Apple's that macOS shows the icon of.
    pub model: Option<String>,
    /// Where to listen.
    pub listen: Vec<Listen>,
    /// Lowest dialect that is negotiated.
    pub min_dialect: Option<DialectName>,
    /// Highest dialect that is negotiated.
    pub max_dialect: Option<DialectName>,
    /// Sealing.
    pub encryption: Option<EncryptionChoice>,
    /// Signing.
    pub signing: Option<SigningChoice>,
    /// Ciphers, best first.
    pub ciphers: Option<Vec<CipherName>>,
    /// Signing algorithms of 3.1.1, best first.
    pub signing_algorithms: Option<Vec<SigningAlgorithmName>>,
    /// No share is written to, whatever it says itself.
    pub read_only: Option<bool>,
    /// Where what outlives the process is kept.
    pub state_dir: Option<PathBuf>,
    /// The account file; `users` in the state directory when left out.
    pub users_file: Option<PathBuf>,
    /// Names by which clients call accounts.
    pub user_map: BTreeMap<String, AccountName>,
    /// A file of such names, as Samba's `username map`.
    pub user_map_file: Option<PathBuf>,
    /// How log lines are written.
    pub log: Option<LogFormat>,
    /// Which log lines are written.
    pub log_level: Option<String>,
    /// Threads that serve; 0 is one for each processor.
    pub cores: Option<usize>,
    /// True to bind each serving thread to a processor of its own.
    pub pin_cores: Option<bool>,
    /// Every client must prove that nobody changed its logon.
    pub require_mic: Option<bool>,
    /// A session may authenticate anew without an account.
    pub anonymous: Option<bool>,
    /// The users who may list accounts.
    pub account_listing: Option<AccountListingChoice>,
    /// Announcement on the local network.
    pub discovery: Option<DiscoveryChoice>,
    /// Interfaces to announce the server on; all that it listens on when empty.
    pub discovery_interfaces: Vec<String>,
    /// Workgroup that Windows shows the server in.
    pub workgroup: Option<String>,
    /// Confinement of the process.
    pub confinement: Option<ConfinementChoice>,
    /// Folders where a reload may add shares, besides those of the start.
    pub confine_to: Vec<PathBuf>,
    /// Folders below which administrators may add shares over the network.
    pub share_roots: Vec<PathBuf>,
    /// Names that clients may have meant this server by.
    pub target_names: Option<Vec<String>>,
}

/// `[limits]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsSection {
    /// Largest READ and WRITE.
    pub max_io: Option<Spanned<Size>>,
    /// Largest reply to other requests.
    pub max_transact: Option<Spanned<Size>>,
    /// Connections at one time.
    pub connections: Option<usize>,
    /// Connections of one account.
    pub connections_per_user: Option<usize>,
    /// Connections from one address.
    pub connections_per_address: Option<usize>,
    /// Sessions of one account.
    pub sessions_per_user: Option<usize>,
    /// Opens of one account.
    pub opens_per_user: Option<usize>,
    /// Minutes after which an idle session ends.
    pub idle_session_minutes: Option<u32>,
    /// How long a server that was told to stop waits for requests under way.
    pub drain_seconds: Option<u64>,
    /// Memory that buffers of all connections may hold together.
    pub memory: Option<Spanned<Size>>,
    /// Memory that each core keeps for reuse.
    pub pool_per_core: Option<Size>,
}

/// `[admin]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminSection {
    /// False turns the admin interface off.
    pub enabled: Option<bool>,
    /// The Unix socket; chosen by the server when left out.
    pub socket: Option<PathBuf>,
    /// An address on TCP to listen on too.
    pub listen: Option<SocketAddr>,
    /// A file with the token that requests on TCP need.
    pub token_file: Option<PathBuf>,
}

impl AdminSection {
    /// Keys that contradict each other.
    fn faults(&self) -> Option<Fault> {
        let (what, hint) = match (self.enabled, &self.listen, &self.token_file) {
            (Some(false), Some(_), _) => {
                ("[admin] has enabled = false and listen", "remove one of the two keys")
            }
            (_, Some(_), None) => (
                "[admin] listen needs token_file",
                "name a file with the secret that requests on TCP must have",
            ),
            _ => return None,
        };
        Some(Fault::new(what).hint(hint))
    }
}

/// `[audit]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditSection {
    /// A file that lines are appended to.
    pub file: Option<Spanned<PathBuf>>,
    /// Lines go to the journal.
    pub journald: bool,
    /// Lines go to syslog.
    pub syslog: bool,
}

impl AuditSection {
    /// True when an audit log is kept.
    pub const fn is_kept(&self) -> bool {
        self.file.is_some() || self.journald || self.syslog
    }

    /// Tells what would keep the file from being written, and makes nothing.
    ///
    /// # Errors
    /// The fault, for people.
    pub fn check(&self) -> Result<(), String> {
        let Some(path) = &self.file else { return Ok(()) };
        let path = path.get_ref();
        audit::File::check(path).map_err(|error| cannot_append(path, &error))
    }

    /// The places that lines are written to.
    ///
    /// # Errors
    /// When the file cannot be opened, for people.
    pub fn sinks(&self) -> Result<Vec<Box<dyn audit::Sink>>, String> {
        let mut sinks: Vec<Box<dyn audit::Sink>> = Vec::new();
        if let Some(path) = &self.file {
            let path = path.get_ref();
            let file = audit::File::open(path).map_err(|error| cannot_append(path, &error))?;
            sinks.push(Box::new(file));
        }
        if self.journald {
            sinks.push(Box::new(audit::Journal::default()));
        }
        if self.syslog {
            sinks.push(Box::new(audit::Syslog::default()));
        }
        Ok(sinks)
    }
}

fn cannot_append(path: &Path, error: &io::Error) -> String {
    format!("audit: cannot append to {}: {error}; name another file or mend it", path.display())
}

/// `[[share]]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareSection {
    /// Its name.
    pub name: Spanned<ShareName>,
    /// Folder of the host that is shared.
    pub path: Spanned<PathBuf>,
    /// Text that clients see beside the name.
    #[serde(default)]
    pub comment: String,
    /// True when nobody may write to the share.
    #[serde(default)]
    pub read_only: bool,
    /// Clients that do not encrypt are refused here.
    #[serde(default)]
    pub encrypt: bool,
    /// Opens of clients that ask for it outlive a restart of the server.
    #[serde(default)]
    pub continuous: bool,
    /// Left out of listings.
    #[serde(default)]
    pub hidden: bool,
    /// Files that a user cannot read are hidden from that user.
    #[serde(default)]
    pub hide_unreadable: bool,
    /// The user of the host as which files are used.
    #[serde(default)]
    pub run_as: Option<RunAsChoice>,
    /// The user of the host as which files are used, for every account.
    #[serde(default)]
    pub force_user: Option<Spanned<String>>,
    /// The primary group of all users.
    #[serde(default)]
    pub force_group: Option<Spanned<String>>,
    /// Users that may connect; empty: every user.
    #[serde(default, alias = "users")]
    pub allow: Vec<Who>,
    /// Users that may not, even when they are in `allow`.
    #[serde(default)]
    pub deny: Vec<Who>,
    /// Users that may only read.
    #[serde(default)]
    pub read_list: Vec<Who>,
    /// Users that may write although the share is read-only.
    #[serde(default)]
    pub write_list: Vec<Who>,
    /// From where clients may connect.
    #[serde(default)]
    pub hosts_allow: Vec<Network>,
    /// From where they may not.
    #[serde(default)]
    pub hosts_deny: Vec<Network>,
    /// Rights of users and groups by SID; none: all of them.
    #[serde(default)]
    pub access_list: Option<Vec<AccessEntry>>,
    /// Names differ in case alone.
    #[serde(default)]
    pub case_sensitive: bool,
    /// Permission bits that a new file may have.
    #[serde(default)]
    pub file_mode: Option<Mode>,
    /// Permission bits that a new folder may have.
    #[serde(default)]
    pub directory_mode: Option<Mode>,
    /// Keep DOS attributes in an extended attribute.
    #[serde(default)]
    pub dos_attributes: Option<bool>,
    /// Names that begin with a period are shown as hidden.
    #[serde(default)]
    pub hide_dot_files: Option<bool>,
    /// Symbolic links that stay inside the share are followed.
    #[serde(default)]
    pub follow_symlinks: bool,
    /// Where snapshots of the folder are.
    #[serde(default)]
    pub snapshots: Option<SnapshotPath>,
    /// Tell clients that watch a folder what other programs do in it.
    #[serde(default)]
    pub host_changes: Option<bool>,
    /// Linux clients may use the POSIX extensions.
    #[serde(default = "yes")]
    pub posix: bool,
    /// Where security descriptors go.
    #[serde(default)]
    pub nt_acls: Option<NtAclsChoice>,
    /// Where named streams are kept.
    #[serde(default)]
    pub streams: Option<StreamsChoice>,
    /// macOS may back up here.
    #[serde(default)]
    pub time_machine: bool,
    /// How much backups may take of it.
    pub time_machine_max_size: Option<Size>,
    /// Clients may wait for changes in folders.
    #[serde(default = "yes")]
    pub change_notify: bool,
    /// No file becomes larger.
    #[serde(default)]
    pub max_file_size: Option<Size>,
    /// LastWriteTime moves some time after a write.
    #[serde(default)]
    pub late_write_times: bool,
    /// Access lists count as inherited when the client that sets them says so.
    #[serde(default)]
    pub inherited_as_set: bool,
    /// Clients may write slashes for backslashes.
    #[serde(default)]
    pub forward_slashes: bool,
    /// Files have short names (8.3) beside their own.
    #[serde(default)]
    pub short_names: bool,
    /// Listings tell how large extended attributes are.
    #[serde(default)]
    pub list_ea_sizes: bool,
    /// Names that are shown as hidden.
    #[serde(default)]
    pub hide_files: Vec<String>,
    /// Names that clients neither see nor reach.
    #[serde(default)]
    pub veto: Vec<String>,
    /// True where the file system may keep its caller waiting; none: the server finds out.
    pub off_core: Option<bool>,
    /// Several clients may cache what they read of one file by oplocks.
    #[serde(default = "yes")]
    pub level2_oplocks: bool,
    /// Byte-range locks of clients and of other programs know of each other.
    #[serde(default)]
    pub posix_locks: bool,
    /// The operations on files that the audit log records.
    #[serde(default)]
    pub audit: Option<Vec<AuditedOperation>>,
    /// Connections to the share at one time.
    #[serde(default)]
    pub max_connections: Option<usize>,
    /// Deleted files go to a recycle bin.
    #[serde(default, deserialize_with = "recycle::deserialize")]
    pub recycle: Option<RecycleSection>,
    /// The folder below which administrators may share folders over the network, for a share that
    /// was added so: from there its folder is opened, and no link is followed. None for a share of
    /// the configuration.
    #[serde(skip)]
    pub beneath: Option<PathBuf>,
    /// The recycle bins of all shares, each with the folder of its share; see
    /// [`Config::guard_folders`].
    #[serde(skip)]
    pub bins: Vec<(String, PathBuf)>,
    /// The snapshots of all shares, each with the folder of its share; see
    /// [`Config::guard_folders`].
    #[serde(skip)]
    pub guarded: Vec<(SnapshotFolders, PathBuf)>,
}

const fn yes() -> bool {
    true
}

/// `[[user]]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserSection {
    /// Its name.
    pub name: Spanned<AccountName>,
    /// A file that holds its password.
    pub password_file: PathBuf,
}

impl Config {
    /// Tells each share of the snapshots and the recycle bins of all, which its folder may
    /// contain. To be called when shares were added.
    pub fn guard_folders(&mut self) {
        let folder_of = |share: &ShareSection| share.path.get_ref().clone();
        let bins = self.shares.iter().filter_map(|share| {
            // Folders of users are no shares of their own.
            let recycle = share.recycle.as_ref().filter(|_| share.user_part().is_none())?;
            Some((recycle.folder.0.clone(), folder_of(share)))
        });
        let bins: Vec<_> = bins.collect();
        let all: Vec<_> = self
            .shares
            .iter()
            .filter_map(|share| {
                let folders = share.snapshots.as_ref()?.0.clone();
                Some((folders, share.path.get_ref().clone()))
            })
            .collect();
        for share in &mut self.shares {
            share.guarded.clone_from(&all);
            share.bins.clone_from(&bins);
        }
    }

    /// Faults that no key has alone.
    pub(super) fn faults(&self, text: &str) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (index, share) in self.shares.iter().enumerate() {
            let name = share.name.get_ref();
            if self.shares.iter().take(index).any(|other| other.name.get_ref().is_same(name)) {
                faults.push(
                    Fault::at(text, &share.name.span(), format!("a second share is called {name}"))
                        .hint("clients compare names without case; rename one of them"),
                );
            }
            if share.max_connections == Some(0) {
                let what = "max_connections must be at least 1; with 0 no client could connect";
                faults.push(Fault::at(text, &share.name.span(), what));
            }
            if let Some(what) = share.recycle_fault() {
                faults.push(Fault::at(text, &share.name.span(), what));
            }
            let is_each = name.as_str() == USER;
            if is_each && share.user_part().is_none() {
                let what = "a share that is called {user} needs {user} in its path";
                faults.push(Fault::at(text, &share.path.span(), what));
            }
            if share.continuous && share.user_part().is_some() {
                let what = "continuous and {user} in the path cannot be used together";
                faults.push(Fault::at(text, &share.path.span(), what));
            }
            if !share.path.get_ref().is_absolute() {
                let path = share.path.get_ref().display();
                faults.push(
                    Fault::at(text, &share.path.span(), format!("the path {path} is not absolute"))
                        .hint("begin the path with /"),
                );
            }
        }
        for share in &self.shares {
            let acts = share.run_as == Some(RunAsChoice::User);
            if let Some(user) = share.force_user.as_ref().filter(|_| acts) {
                let what = String::from("force_user and run_as = \"user\" cannot be used together");
                faults.push(Fault::at(text, &user.span(), what));
            }
            let group = share.force_group.as_ref();
            if let Some(group) = group.filter(|_| !acts && share.force_user.is_none()) {
                let what = String::from("force_group needs run_as = \"user\" or force_user");
                let fault = Fault::at(text, &group.span(), what);
                faults.push(fault.hint("or set the folder's setgid bit: chmod g+s"));
            }
        }
        for (index, user) in self.users.iter().enumerate() {
            let name = user.name.get_ref();
            let same = |other: &UserSection| {
                other.name.get_ref().as_str().to_lowercase() == name.as_str().to_lowercase()
            };
            if self.users.iter().take(index).any(same) {
                let what = format!("a second user is called {name}");
                faults.push(Fault::at(text, &user.name.span(), what));
            }
        }
        if let Some(file) = self.audit.file.as_ref().filter(|file| file.get_ref().is_relative()) {
            let shown = file.get_ref().display();
            let what = format!("the path {shown} of the audit log is not absolute");
            faults.push(Fault::at(text, &file.span(), what).hint("begin the path with /"));
        }
        let interfaces = InterfaceSection::faults(&self.interfaces);
        faults.extend(interfaces.into_iter().map(|(span, what)| Fault::at(text, &span, what)));
        faults.extend(self.contradictions());
        faults.extend(self.limits.faults(text));
        faults
    }

    /// Settings of `[server]` that contradict each other.
    pub fn contradictions(&self) -> Vec<Fault> {
        self.server.faults().into_iter().chain(self.admin.faults()).collect()
    }
}

impl ShareSection {
    /// The folder that is there for all users: `path`, or what of it is above `{user}`.
    pub fn shared_folder(&self) -> PathBuf {
        match self.user_part() {
            Some((folder, _)) => folder,
            None => self.path.get_ref().clone(),
        }
    }

    /// The folder above the first component with `{user}`, and the rest of the path. None for a
    /// path that is the same for all users.
    pub(crate) fn user_part(&self) -> Option<(PathBuf, PathBuf)> {
        let path = self.path.get_ref();
        let has_user = |part: &Component<'_>| part.as_os_str().to_string_lossy().contains(USER);
        let at = path.components().position(|part| has_user(&part))?;
        let parts = path.components();
        Some((parts.clone().take(at).collect(), parts.skip(at).collect()))
    }

    /// A share of a folder, with nothing special about it.
    pub fn new(name: ShareName, path: PathBuf) -> Self {
        Self {
            name: Spanned::new(0..0, name),
            path: Spanned::new(0..0, path),
            comment: String::new(),
            read_only: false,
            encrypt: false,
            continuous: false,
            hidden: false,
            hide_unreadable: false,
            run_as: None,
            force_user: None,
            force_group: None,
            allow: Vec::new(),
            deny: Vec::new(),
            read_list: Vec::new(),
            write_list: Vec::new(),
            hosts_allow: Vec::new(),
            hosts_deny: Vec::new(),
            access_list: None,
            case_sensitive: false,
            file_mode: None,
            directory_mode: None,
            dos_attributes: None,
            hide_dot_files: None,
            follow_symlinks: false,
            snapshots: None,
            host_changes: None,
            posix: true,
            nt_acls: None,
            streams: None,
            time_machine: false,
            time_machine_max_size: None,
            change_notify: true,
            max_file_size: None,
            late_write_times: false,
            inherited_as_set: false,
            forward_slashes: false,
            short_names: false,
            list_ea_sizes: false,
            hide_files: Vec::new(),
            veto: Vec::new(),
            off_core: None,
            level2_oplocks: true,
            posix_locks: false,
            audit: None,
            max_connections: None,
            recycle: None,
            beneath: None,
            bins: Vec::new(),
            guarded: Vec::new(),
        }
    }
}

impl ServerSection {
    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut fault = |what: &str, hint: &str| {
            let (what, hint) = (what.to_owned(), Some(hint.to_owned()));
            faults.push(Fault { hint, ..Fault::new(what) });
        };
        if self.lowest_dialect() as u8 > self.highest_dialect() as u8 {
            fault("min_dialect is above max_dialect", "no client could connect");
        }
        if self.ciphers.as_ref().is_some_and(Vec::is_empty) {
            fault("ciphers is empty", "to switch encryption off, write encryption = \"off\"");
        }
        if self.signing_algorithms.as_ref().is_some_and(Vec::is_empty) {
            fault("signing_algorithms is empty", "remove the key to allow all algorithms");
        }
        for (key, folders) in [("confine_to", &self.confine_to), ("share_roots", &self.share_roots)]
        {
            if let Some(folder) = folders.iter().find(|folder| !folder.is_absolute()) {
                let what = format!("{key}: the path {} is not absolute", folder.display());
                fault(&what, "begin the path with /");
            }
        }
        if self.encryption.unwrap_or(EncryptionChoice::Required) == EncryptionChoice::Required
            && (self.highest_dialect() as u8) < DialectName::Smb30 as u8
        {
            fault(
                "encryption is required, but max_dialect is below 3.0, which cannot encrypt",
                "raise max_dialect, or write encryption = \"offered\"",
            );
        }
        faults
    }

    fn lowest_dialect(&self) -> DialectName {
        self.min_dialect.unwrap_or(DialectName::Smb202)
    }

    fn highest_dialect(&self) -> DialectName {
        self.max_dialect.unwrap_or(DialectName::Smb311)
    }
}

impl LimitsSection {
    /// The limits of a server; defaults where the section says nothing.
    pub fn limits(&self) -> Limits {
        let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        let defaults = Limits::default();
        Limits {
            connections: self.connections.unwrap_or(defaults.connections),
            drain: self.drain_seconds.map_or(defaults.drain, Duration::from_secs),
            memory: self.memory.as_ref().map_or(defaults.memory, |size| bytes(size.get_ref().0)),
            pool_per_core: self.pool_per_core.as_ref().map(|size| bytes(size.0)),
            connections_per_user: self.connections_per_user,
            connections_per_address: self.connections_per_address,
            sessions_per_user: self.sessions_per_user,
            opens_per_user: self.opens_per_user,
            descriptors: None,
        }
    }

    fn faults(&self, text: &str) -> Vec<Fault> {
        let bounds = [
            ("max_io", &self.max_io, u64::from(limits::MAX_IO)),
            ("max_transact", &self.max_transact, u64::from(limits::MAX_TRANSACT)),
        ];
        let mut faults = Vec::new();
        for (key, value, most) in bounds {
            let Some(value) = value else { continue };
            if !(limits::MAX_IO_MIN..=most).contains(&value.get_ref().0) {
                let what = format!("{key} must be from {} to {most} bytes", limits::MAX_IO_MIN);
                faults.push(Fault::at(text, &value.span(), what));
            }
        }
        if let Some(memory) = self.memory.as_ref().filter(|m| m.get_ref().0 < limits::MEMORY_MIN) {
            let what = format!("memory must be at least {} MiB", limits::MEMORY_MIN >> 20);
            faults.push(Fault::at(text, &memory.span(), what));
        }
        let mut fault = |what: &str| {
            faults.push(Fault::new(what));
        };
        if self.connections == Some(0) {
            fault("connections must be at least 1; with 0 no client could connect");
        }
        for (key, value) in [
            ("connections_per_user", self.connections_per_user),
            ("connections_per_address", self.connections_per_address),
            ("sessions_per_user", self.sessions_per_user),
            ("opens_per_user", self.opens_per_user),
        ] {
            if value == Some(0) {
                fault(&format!("{key} must be at least 1; with 0 no client could use the server"));
            }
        }
        if self.idle_session_minutes.is_some_and(|m| m > limits::IDLE_SESSION_MINUTES_MAX) {
            let most = limits::IDLE_SESSION_MINUTES_MAX;
            fault(&format!("idle_session_minutes must be at most {most} (a year); 0 means never"));
        }
        if self.drain_seconds.is_some_and(|seconds| seconds > limits::DRAIN_SECONDS_MAX) {
            let most = limits::DRAIN_SECONDS_MAX;
            fault(&format!("drain_seconds must be at most {most} (an hour)"));
        }
        faults
    }
}

/// Every section with its keys, as the file has them.
pub fn keys() -> Vec<(&'static str, Vec<String>)> {
    vec![
        ("the file", keys_of::<Config>()),
        ("[server]", keys_of::<ServerSection>()),
        ("[limits]", keys_of::<LimitsSection>()),
        ("[audit]", keys_of::<AuditSection>()),
        ("[admin]", keys_of::<AdminSection>()),
        ("[traces]", keys_of::<TracesSection>()),
        ("[[interface]]", keys_of::<InterfaceSection>()),
        ("[[share]]", keys_of::<ShareSection>()),
        ("[share.recycle]", keys_of::<RecycleSection>()),
        ("[[user]]", keys_of::<UserSection>()),
    ]
}

/// The keys that serde knows of: it lists them when it meets another.
fn keys_of<T: DeserializeOwned>() -> Vec<String> {
    match toml::from_str::<T>("\"\" = 0") {
        Ok(_) => Vec::new(),
        Err(error) => error.message().split('`').skip(3).step_by(2).map(str::to_owned).collect(),
    }
}
