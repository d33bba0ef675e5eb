//! `[[share]]`: a folder and how clients use it.

use std::path::{Component, PathBuf};

use frevo_net::IpNetwork;
use frevo_posix::SnapshotFolders;
use frevo_store::security::AccessEntry;
use serde::Deserialize;
use toml::Spanned;

use super::brake::BrakeSection;
use super::cluster_words::{ClusterAddress, ClusterWord};
use super::fault::Fault;
use super::guests::GuestKeys;
use super::home::HomeSection;
use super::keep_deleted::KeptDays;
use super::limits::INDEX_FILES_MAX;
use super::names::{ShareName, Who};
use super::parsed;
use super::recycle::{self, RecycleSection};
use super::scan::ScanSection;
use super::snapshots::{self, KeptSnapshots, Snapshots};
use super::values::{
    AuditedOperation, CompressChoice, FenceChoice, FoundChoice, Mode, NtAclsChoice, RunAsChoice,
    Size, StreamsChoice,
};
use super::worm::WormSection;

/// The part of a path, or the name of a share, that stands for the user.
pub const USER: &str = "{user}";

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
    /// The data of READs that is sent compressed.
    #[serde(default)]
    pub compress: Option<CompressChoice>,
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
    /// The user of the host as which clients without an account use files; none: there are no guests.
    #[serde(default)]
    pub guest: Option<Spanned<String>>,
    /// True if guests may write.
    #[serde(default)]
    pub guest_write: bool,
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
    #[serde(default, deserialize_with = "parsed::list")]
    pub hosts_allow: Vec<IpNetwork>,
    /// From where they may not.
    #[serde(default, deserialize_with = "parsed::list")]
    pub hosts_deny: Vec<IpNetwork>,
    /// Rights of users and groups by SID; none: all of them.
    #[serde(default, deserialize_with = "parsed::some_list")]
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
    /// Permission bits that each new file has.
    #[serde(default)]
    pub force_file_mode: Option<Mode>,
    /// Permission bits that each new folder has.
    #[serde(default)]
    pub force_directory_mode: Option<Mode>,
    /// New files and folders have the permission bits of their folder.
    #[serde(default)]
    pub inherit_modes: bool,
    /// New files and folders belong to the owner of their folder.
    #[serde(default)]
    pub inherit_owner: bool,
    /// The default POSIX list of a folder decides on the rights of what is made in it.
    #[serde(default)]
    pub inherit_acls: bool,
    /// ARCHIVE is the owner's right to execute a file.
    #[serde(default)]
    pub map_archive: bool,
    /// SYSTEM is the group's right to execute a file.
    #[serde(default)]
    pub map_system: bool,
    /// HIDDEN is the right of others to execute a file.
    #[serde(default)]
    pub map_hidden: bool,
    /// READONLY is the missing right of the owner to write a file.
    #[serde(default)]
    pub map_readonly: bool,
    /// Users who may write a file may change its permissions.
    #[serde(default)]
    pub dos_filemode: bool,
    /// Keep DOS attributes in an extended attribute.
    #[serde(default)]
    pub dos_attributes: Option<bool>,
    /// Names that begin with a period are shown as hidden.
    #[serde(default)]
    pub hide_dot_files: Option<bool>,
    /// Symbolic links that stay inside the share are followed.
    #[serde(default)]
    pub follow_symlinks: bool,
    /// Symbolic links with a text of Samba's (`msdfs:server\share`) are links of DFS.
    #[serde(default)]
    pub samba_links: bool,
    /// Where snapshots of the folder are, or how the server makes them.
    #[serde(default, deserialize_with = "snapshots::deserialize")]
    pub snapshots: Option<Snapshots>,
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
    /// macOS searches it by Spotlight, in its index.
    #[serde(default)]
    pub spotlight: bool,
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
    /// Data that clients move unbuffered stays in the page cache.
    #[serde(default = "yes")]
    pub cache_unbuffered: bool,
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
    /// Clients that change files as ransomware does are told of, or stopped.
    #[serde(default)]
    pub brake: Option<BrakeSection>,
    /// Files do not change any more once they stayed unchanged for a time.
    #[serde(default)]
    pub worm: Option<WormSection>,
    /// Homes are made when they are first looked for.
    #[serde(default)]
    pub home: Option<HomeSection>,
    /// Files are scanned for viruses.
    #[serde(default)]
    pub scan: Option<ScanSection>,
    /// Names, sizes and dates of files are kept in an index, in which clients search.
    #[serde(default)]
    pub index: bool,
    /// Files and folders that the index has at most.
    #[serde(default)]
    pub index_files: Option<usize>,
    /// The time for which deleted files are kept, in a recycle bin and in snapshots.
    #[serde(default)]
    pub keep_deleted: Option<KeptDays>,
    /// The servers of a cluster have the share in turn.
    #[serde(default)]
    pub cluster: bool,
    /// Shares of one group have one owner together.
    #[serde(default)]
    pub group: Option<ClusterWord>,
    /// Addresses that go with the share.
    #[serde(default, deserialize_with = "parsed::list")]
    pub addresses: Vec<ClusterAddress>,
    /// The way by which the share's storage refuses a node.
    #[serde(default)]
    pub fence: Option<FenceChoice>,
    /// The share's part of a node's load.
    #[serde(default)]
    pub weight: Option<u32>,
    /// The folder below which administrators may share folders over the network, for a share that
    /// was added so: from there its folder is opened, and no link is followed. None for a share of
    /// the configuration.
    #[serde(skip)]
    pub beneath: Option<PathBuf>,
    /// The recycle bins of all shares, each with the folder of its share; see
    /// [`Config::guard_folders`](super::Config::guard_folders).
    #[serde(skip)]
    pub bins: Vec<(String, PathBuf)>,
    /// The snapshots of all shares, each with the folder of its share; see
    /// [`Config::guard_folders`](super::Config::guard_folders).
    #[serde(skip)]
    pub guarded: Vec<(SnapshotFolders, PathBuf)>,
}

const fn yes() -> bool {
    true
}

/// A share without these keys, and with the values given for the others.
macro_rules! unset {
    ($($key:ident)*; $($given:tt)*) => {
        Self { $($key: Default::default(),)* $($given)* }
    };
}

impl ShareSection {
    /// Returns the users and groups of domains in the lists of names.
    pub fn names_of_domains(&self) -> impl Iterator<Item = &Who> {
        let lists = [&self.allow, &self.deny, &self.read_list, &self.write_list];
        let excepted = self.brake.iter().flat_map(|brake| &brake.except);
        lists.into_iter().flatten().chain(excepted).filter(|who| who.domain().is_some())
    }

    /// The folder that is there for all users: `path`, or what of it is above `{user}`.
    pub fn shared_folder(&self) -> PathBuf {
        match self.user_part() {
            Some((folder, _)) => folder,
            None => self.path.get_ref().clone(),
        }
    }

    /// The folder above the first component with `{user}`, and the rest of the path. None for a
    /// path that is the same for all users.
    pub fn user_part(&self) -> Option<(PathBuf, PathBuf)> {
        let path = self.path.get_ref();
        let has_user = |part: &Component<'_>| part.as_os_str().to_string_lossy().contains(USER);
        let at = path.components().position(|part| has_user(&part))?;
        let parts = path.components();
        Some((parts.clone().take(at).collect(), parts.skip(at).collect()))
    }

    /// True when both have the same keys.
    pub fn has_same_keys(&self, other: &Self) -> bool {
        let own = |share: &Self| Self { bins: Vec::new(), guarded: Vec::new(), ..share.clone() };
        own(self) == own(other)
    }

    /// The folder that holds the share's snapshots, where it is not in the share.
    pub fn snapshot_folder(&self) -> Option<PathBuf> {
        let folders = self.snapshot_folders()?;
        folders.folder().is_absolute().then(|| folders.folder().to_owned())
    }

    /// Returns the place of the share's snapshots. Those that the server makes are in a folder of the share
    /// until their place is found.
    pub fn snapshot_folders(&self) -> Option<SnapshotFolders> {
        match self.snapshots.as_ref()? {
            Snapshots::Found(path) => Some(path.0.clone()),
            Snapshots::Kept(kept) => kept.folders(),
        }
    }

    /// Returns the table of the snapshots that the server makes.
    pub fn kept_snapshots(&self) -> Option<&KeptSnapshots> {
        match self.snapshots.as_ref()? {
            Snapshots::Found(_) => None,
            Snapshots::Kept(kept) => Some(kept),
        }
    }

    /// Tells the share the place of the snapshots that the server makes.
    pub fn set_snapshot_place(&mut self, place: Option<SnapshotFolders>) {
        if let Some(Snapshots::Kept(kept)) = &mut self.snapshots {
            kept.place = place;
        }
    }

    /// Gives the share the recycle bin and the snapshots that `keep_deleted` stands for, but for those that it has by
    /// keys of their own.
    pub(super) fn keep_deleted_files(&mut self) {
        let is_written = self.recycle.is_some();
        self.recycle.take_if(|recycle| recycle.is_off);
        let Some(kept) = self.keep_deleted else { return };
        if !is_written {
            self.recycle =
                Some(RecycleSection { keep_days: kept.days(), ..RecycleSection::default() });
        }
        if self.snapshots.is_none() && !self.cluster && self.user_part().is_none() {
            self.snapshots = Some(Snapshots::Kept(KeptSnapshots::for_days(kept.days())));
        }
    }

    /// The reason for which the server cannot make snapshots of the share.
    fn snapshots_fault(&self) -> Option<&'static str> {
        self.kept_snapshots()?;
        if self.cluster {
            let why = "the server makes no snapshots of a share of a cluster yet: remove [share.snapshots], \
                       and name the place of snapshots that another program makes";
            return Some(why);
        }
        let why = "the server makes no snapshots of a share with {user} in its path: share the folder above \
                   in a further share, with [share.snapshots]";
        self.user_part().map(|_| why)
    }

    /// A share of a folder, with nothing special about it.
    pub fn new(name: ShareName, path: PathBuf) -> Self {
        unset! {
            comment read_only encrypt compress continuous hidden hide_unreadable run_as force_user
            guest guest_write force_group allow deny read_list write_list hosts_allow hosts_deny
            access_list case_sensitive file_mode directory_mode force_file_mode
            force_directory_mode inherit_modes inherit_owner inherit_acls map_archive map_system
            map_hidden map_readonly dos_filemode dos_attributes hide_dot_files follow_symlinks samba_links snapshots
            host_changes nt_acls streams time_machine time_machine_max_size max_file_size
            late_write_times inherited_as_set forward_slashes short_names list_ea_sizes hide_files
            veto off_core posix_locks audit max_connections recycle brake worm home scan index
            index_files keep_deleted cluster
            group addresses fence weight beneath bins guarded spotlight;
            name: Spanned::new(0..0, name),
            path: Spanned::new(0..0, path),
            posix: true,
            change_notify: true,
            cache_unbuffered: true,
            level2_oplocks: true,
        }
    }

    /// Faults that no key has alone.
    pub(super) fn faults(shares: &[Self], text: &str) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (index, share) in shares.iter().enumerate() {
            let name = share.name.get_ref();
            if shares.iter().take(index).any(|other| other.name.get_ref().is_same(name)) {
                faults.push(
                    Fault::at(text, &share.name.span(), format!("a second share is called {name}"))
                        .hint("clients compare names without case; rename one of them"),
                );
            }
            faults.extend(share.own_faults(text));
        }
        faults.extend(shares.iter().filter_map(|share| share.fault_of_users(text)));
        faults.extend(Self::faults_of_worm(shares, text));
        faults.extend(Self::faults_of_scans(shares, text));
        faults
    }

    /// The reason for which homes cannot be made.
    fn home_fault(&self) -> Option<&'static str> {
        let home = self.home.as_ref()?;
        if self.user_part().is_none_or(|(_, part)| part.as_os_str() != USER) {
            return Some("home needs a path that ends with /{user}");
        }
        if self.read_only {
            return Some(
                "home and read_only cannot be used together: the server could make no homes",
            );
        }
        let is_relative = home.skeleton.as_ref().is_some_and(|folder| !folder.is_absolute());
        is_relative.then_some("skeleton of home is not absolute: begin the path with /")
    }

    /// Faults of the share's name, path and limits.
    fn own_faults(&self, text: &str) -> Vec<Fault> {
        let (name, path) = (self.name.get_ref(), self.path.get_ref());
        let mut faults = Vec::new();
        if self.max_connections == Some(0) {
            let what = "max_connections must be at least 1; with 0 no client could connect";
            faults.push(Fault::at(text, &self.name.span(), what));
        }
        if let Some(what) = self.recycle_fault().or_else(|| self.index_fault()) {
            faults.push(Fault::at(text, &self.name.span(), what));
        }
        if self.samba_links && self.follow_symlinks {
            let what = "samba_links and follow_symlinks cannot be used together";
            faults.push(Fault::at(text, &self.name.span(), what));
        }
        if self.samba_links && self.user_part().is_some() {
            let what = "samba_links and {user} in the path cannot be used together";
            faults.push(Fault::at(text, &self.path.span(), what));
        }
        if let Some(fault) = self.fault_of_mapped(text) {
            faults.push(fault);
        }
        faults.extend(self.fault_of_guests(text));
        if let Some(what) = self.brake.as_ref().and_then(|it| it.fault(self.time_machine)) {
            faults.push(Fault::at(text, &self.name.span(), what));
        }
        if let Some(what) = self.snapshots_fault() {
            faults.push(Fault::at(text, &self.name.span(), what));
        }
        if name.as_str() == USER && self.user_part().is_none() {
            let what = "a share that is called {user} needs {user} in its path";
            faults.push(Fault::at(text, &self.path.span(), what));
        }
        if let Some(what) = self.home_fault() {
            faults.push(Fault::at(text, &self.path.span(), what));
        }
        if self.continuous && self.user_part().is_some() {
            let what = "continuous and {user} in the path cannot be used together";
            faults.push(Fault::at(text, &self.path.span(), what));
        }
        if !path.is_absolute() {
            let what = format!("the path {} is not absolute", path.display());
            faults.push(Fault::at(text, &self.path.span(), what).hint("begin the path with /"));
        }
        faults
    }

    /// The fault of DOS attributes that are to be bits of the mode, and of who may change the mode.
    fn fault_of_mapped(&self, text: &str) -> Option<Fault> {
        let at = &self.name.span();
        let lists = self.nt_acls.unwrap_or(NtAclsChoice::Xattr);
        if self.dos_filemode && lists != NtAclsChoice::Posix {
            // A stored list says itself who may change it.
            let what = "dos_filemode needs nt_acls = \"posix\"";
            return Some(Fault::at(text, at, what));
        }
        if !(self.map_archive || self.map_system || self.map_hidden || self.map_readonly) {
            return None;
        }
        if self.dos_attributes != Some(false) {
            let what =
                "map_archive, map_system, map_hidden and map_readonly need dos_attributes = false";
            let fault = Fault::at(text, at, what);
            return Some(fault.hint("or remove them: attributes are stored apart from the mode"));
        }
        (lists == NtAclsChoice::Xattr).then(|| {
            // A stored list does not apply any more when the mode of its file changes.
            let what = "map_archive, map_system, map_hidden and map_readonly need nt_acls = \"posix\" or \"off\"";
            Fault::at(text, at, what)
        })
    }

    /// The fault of the keys that name users and groups of the host.
    fn fault_of_users(&self, text: &str) -> Option<Fault> {
        let acts = self.run_as == Some(RunAsChoice::User);
        if let Some(user) = self.force_user.as_ref().filter(|_| acts) {
            let what = "force_user and run_as = \"user\" cannot be used together";
            return Some(Fault::at(text, &user.span(), what));
        }
        if self.inherit_owner {
            let at = &self.name.span();
            if !acts && self.force_user.is_none() {
                let what = "inherit_owner needs run_as = \"user\" or force_user";
                return Some(Fault::at(text, at, what));
            }
            if self.nt_acls.unwrap_or(NtAclsChoice::Xattr) == NtAclsChoice::Xattr {
                // A stored list names the owner, and only the owner stores one.
                let what = "inherit_owner needs nt_acls = \"posix\" or \"off\"";
                return Some(Fault::at(text, at, what));
            }
        }
        let group = self.force_group.as_ref()?;
        let has_no_effect = !acts && self.force_user.is_none();
        has_no_effect.then(|| {
            let what = "force_group needs run_as = \"user\" or force_user";
            let fault = Fault::at(text, &group.span(), what);
            fault.hint("or set the folder's setgid bit: chmod g+s")
        })
    }

    /// The fault of the keys for guests.
    fn fault_of_guests(&self, text: &str) -> Option<Fault> {
        let keys = [
            ("encrypt", self.encrypt),
            ("allow", !self.allow.is_empty()),
            ("deny", !self.deny.is_empty()),
            ("read_list", !self.read_list.is_empty()),
            ("write_list", !self.write_list.is_empty()),
            ("access_list", self.access_list.is_some()),
            ("time_machine", self.time_machine),
            ("continuous", self.continuous),
            ("{user} in the path", self.user_part().is_some()),
        ];
        let against = keys.into_iter().find(|(_, is_set)| *is_set).map(|(key, _)| key);
        let keys = GuestKeys {
            at: self.name.span(),
            guest: self.guest.as_ref(),
            writes: self.guest_write,
            read_only: self.read_only,
            against,
        };
        keys.fault(text)
    }

    /// The faults of shares whose files are scanned.
    fn faults_of_scans(shares: &[Self], text: &str) -> Vec<Fault> {
        let fault = |share: &Self| {
            let what = share.fault_of_scan(shares)?;
            Some(Fault::at(text, &share.name.span(), what))
        };
        shares.iter().filter_map(fault).collect()
    }

    fn fault_of_scan(&self, shares: &[Self]) -> Option<String> {
        let scan = self.scan.as_ref()?;
        if let Some(what) = scan.fault() {
            return Some(what);
        }
        if scan.found == FoundChoice::Deny {
            return None;
        }
        if self.worm.is_some() {
            let what =
                "worm needs scan with found = \"deny\": files that are written once are not moved";
            return Some(String::from(what));
        }
        if self.read_only && self.write_list.is_empty() {
            let what = "read_only = true needs scan with found = \"deny\": the server changes nothing there";
            return Some(String::from(what));
        }
        let folder = scan.quarantine.as_ref()?;
        let shows = |share: &&Self| folder.starts_with(share.shared_folder());
        let shown = shares.iter().find(shows)?.name.get_ref();
        let folder = folder.display();
        Some(format!(
            "scan: the quarantine {folder} is in the folder of share {shown}, whose clients would see it"
        ))
    }

    fn index_fault(&self) -> Option<String> {
        if self.index_files.is_some_and(|files| !(1..=INDEX_FILES_MAX).contains(&files)) {
            return Some(format!("index_files is 1 to {INDEX_FILES_MAX}"));
        }
        if self.spotlight && !self.index {
            return Some(String::from("spotlight needs index = true"));
        }
        let what = "index and {user} in the path cannot be used together: the folder of each user would need one";
        (self.index && self.user_part().is_some()).then(|| String::from(what))
    }

    /// The faults of shares whose files are written once.
    fn faults_of_worm(shares: &[Self], text: &str) -> Vec<Fault> {
        let worm = shares.iter().filter(|share| share.worm.is_some());
        worm.filter_map(|share| share.fault_of_worm(shares, text)).collect()
    }

    fn fault_of_worm(&self, shares: &[Self], text: &str) -> Option<Fault> {
        let at = |what: String| Fault::at(text, &self.name.span(), what);
        let keys = [
            ("recycle, or keep_deleted,", self.recycle.is_some()),
            ("time_machine", self.time_machine),
        ];
        if let Some((key, _)) = keys.iter().find(|(_, is_set)| *is_set) {
            return Some(at(format!(
                "worm and {key} cannot be used together: nobody could delete there"
            )));
        }
        let own = self.shared_folder();
        let shows = |other: &&Self| {
            let folder = other.shared_folder();
            other.worm.is_none()
                && !(other.read_only && other.write_list.is_empty())
                && (folder.starts_with(&own) || own.starts_with(&folder))
        };
        let other = shares.iter().find(shows)?.name.get_ref();
        let what = format!(
            "share {other} shows files of this share, and could change them in spite of worm"
        );
        Some(
            at(what).hint(
                "give both shares worm, set read_only = true for the other one, or remove it",
            ),
        )
    }
}
