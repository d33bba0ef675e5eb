//! The processes that help the server: each is confined to what it asks, before it reads the first
//! byte of anybody. What does not hold then is no worse than without, and SECURITY.md has the list.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use frevo_config::ScanService;
use frevo_fences::Kind;
use frevo_fences::hands::SetUp;
use frevo_snapshot_hands::{Kind as SnapshotKind, SetUp as SnapshotSetUp};

use super::landlock;
use super::privileges;
use super::seccomp::Helper;

/// Folders of winbind's socket for privileged questions, by the version and the build of Samba.
const PRIVILEGED_PIPES: &[&str] = &[
    "/var/lib/samba/winbindd_privileged",
    "/run/samba/winbindd_privileged",
    "/var/cache/samba/winbindd_privileged",
    "/usr/local/samba/var/locks/winbindd_privileged",
];

/// Takes from the process that starts the asking one all that it does not need.
pub(super) fn confine_names_keeper() {
    let _ = privileges::close_memory();
    privileges::become_nobody();
    let _ = landlock::confine_to_reading();
    let _ = privileges::drop_all_capabilities();
    let _ = Helper::NamesKeeper.confine_calls();
}

/// Takes from the process that asks the name service all that asking does not need, beside what its
/// keeper gave up.
pub(super) fn confine_names() {
    let _ = Helper::Names { network: asks_over_network() }.confine_calls();
}

/// True unless all modules that tell users and groups ask this host alone.
fn asks_over_network() -> bool {
    std::fs::read_to_string("/etc/nsswitch.conf").is_ok_and(|text| has_network_module(&text))
}

fn has_network_module(text: &str) -> bool {
    /// Modules that read files and ask services of this host. The one of Samba for WINS is about
    /// hosts alone.
    const LOCAL: &[&str] = &[
        "files",
        "compat",
        "db",
        "systemd",
        "sss",
        "winbind",
        "extrausers",
        "cache",
        "mymachines",
        "usrfiles",
        "altfiles",
        "himmelblau",
        "kanidm",
    ];
    let of_users = |line: &&str| {
        let key = line.split(':').next().unwrap_or_default().trim();
        matches!(key, "passwd" | "group" | "initgroups")
    };
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    lines.filter(of_users).any(|line| {
        let modules = line.split_once(':').map_or("", |(_, modules)| modules);
        // An action such as [NOTFOUND=return], perhaps of several words, is not the name of a
        // module and is skipped.
        let mut is_action = false;
        modules.split_whitespace().any(|word| {
            is_action |= word.starts_with('[');
            let is_module = !is_action;
            is_action &= !word.ends_with(']');
            is_module && !LOCAL.contains(&word)
        })
    })
}

/// Takes from a process that asks winbind what asking does not need: it runs programs of the system,
/// which read files of the system. The folder of winbind's privileged socket is open to a group; if it
/// is open to root alone, the process stays root, without capabilities. `as_root` says so of a winbind
/// that does not run yet.
pub(in crate::serve) fn confine_winbind(as_root: bool) {
    frevo_posix::inherited::close_all();
    let _ = privileges::close_memory();
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let running = running_winbind(&sockets);
    let folders = PRIVILEGED_PIPES.iter().map(PathBuf::from).find(|folder| folder.exists());
    let folder = running.clone().or(folders);
    let group = folder.as_deref().and_then(|folder| Some(std::fs::metadata(folder).ok()?.gid()));
    let is_open = folder.zip(group).is_none_or(|(folder, group)| may_enter(&folder, group));
    let is_root = !is_open || (as_root && running.is_none());
    match group {
        _ if is_root => {}
        Some(group) => privileges::become_nobody_in(group),
        None => privileges::become_nobody(),
    }
    let _ = landlock::confine_to_running(is_root);
    let _ = privileges::drop_all_capabilities();
    let _ = Helper::Winbind.confine_calls();
}

/// Returns the folder of the privileged socket of the winbind that runs: proc_net_unix(5).
fn running_winbind(sockets: &str) -> Option<PathBuf> {
    let paths = sockets.lines().filter_map(|line| line.split_once('/').map(|(_, path)| path));
    let mut folders = paths.filter_map(|path| path.strip_suffix("/winbindd_privileged/pipe"));
    folders.next().map(|folder| Path::new("/").join(folder).join("winbindd_privileged"))
}

/// True if a process of this group enters the folder.
fn may_enter(folder: &Path, group: u32) -> bool {
    folder.ancestors().all(|folder| {
        std::fs::metadata(folder).is_ok_and(|there| {
            let bits = if there.gid() == group && group != 0 { 0o011 } else { 0o001 };
            there.mode() & bits != 0
        })
    })
}

/// Takes from a process that asks controllers what asking does not need: it reads files of the system.
pub(in crate::serve) fn confine_directory() {
    frevo_posix::inherited::close_all();
    let _ = privileges::close_memory();
    privileges::become_nobody();
    let _ = landlock::confine_to_reading();
    let _ = privileges::drop_all_capabilities();
    let _ = Helper::Directory.confine_calls();
}

/// Takes from the process that looks after servers of targets all but resolving names, and connections to
/// one port and to name servers.
pub(in crate::serve) fn confine_targets(port: u16) {
    frevo_posix::inherited::close_all();
    let _ = privileges::close_memory();
    privileges::become_nobody();
    let _ = landlock::confine_to_probing(port);
    let _ = privileges::drop_all_capabilities();
    let _ = Helper::Targets.confine_calls();
}

/// Takes from the process that connects with virus scanners all but resolving names, connections to the port
/// or the folder of the service, and to name servers. If root's server has a socket that its group alone
/// may use, the process is in that group.
pub(in crate::serve) fn confine_scanners(service: &ScanService) {
    frevo_posix::inherited::close_all();
    let _ = privileges::close_memory();
    let (mut port, mut folder, mut group) = (None, None, None);
    match service {
        ScanService::ClamdSocket(path) => {
            folder = path.parent();
            let there = std::fs::metadata(path).ok().filter(|there| there.mode() & 0o002 == 0);
            // The group of root has no use: this process is to be nobody's.
            group = there.map(|there| there.gid()).filter(|group| *group != 0);
        }
        ScanService::Clamd { port: own, .. } | ScanService::Icap { port: own, .. } => {
            port = Some(*own);
        }
    }
    match group {
        Some(group) => privileges::become_nobody_in(group),
        None => privileges::become_nobody(),
    }
    let _ = landlock::confine_to_scanners(port.as_slice(), folder.as_slice());
    let _ = privileges::drop_all_capabilities();
    let _ = Helper::Scanners.confine_calls();
}

/// Takes from the process that asks a directory of accounts all but resolving names, and connections to the
/// ports and folders of its servers, and to name servers.
pub(in crate::serve) fn confine_ldap(ports: &[u16], folders: &[PathBuf]) {
    frevo_posix::inherited::close_all();
    let _ = privileges::close_memory();
    privileges::become_nobody();
    let folders: Vec<&Path> = folders.iter().map(PathBuf::as_path).collect();
    let _ = landlock::confine_to_scanners(ports, &folders);
    let _ = privileges::drop_all_capabilities();
    let _ = Helper::Ldap.confine_calls();
}

/// Takes from the process that sends traces all but connections to one port.
#[cfg(feature = "traces")]
pub(in crate::serve) fn confine_traces(port: u16) {
    frevo_posix::inherited::close_all();
    let _ = privileges::close_memory();
    privileges::become_nobody();
    let _ = landlock::confine_to_connecting(port);
    let _ = privileges::drop_all_capabilities();
    let _ = Helper::Traces.confine_calls();
}

/// Takes from the process that announces the server all that announcing does not need: it reads
/// messages of strangers. What does not hold is returned.
pub(in crate::serve) fn confine_discovery() -> Vec<String> {
    frevo_posix::inherited::close_all();
    let _ = privileges::close_memory();
    privileges::become_nobody();
    let files = landlock::confine_to_announcing(frevo_discovery::METADATA_PORT);
    let lacks = [files, privileges::drop_all_capabilities(), Helper::Discovery.confine_calls()];
    lacks.into_iter().filter_map(Result::err).collect()
}

/// Takes from the process with rights all but those that its set-up needs. It stays root where it is: the
/// connections of FUSE, the clients of NFS and disks are root's. What does not hold is returned.
pub(in crate::serve) fn confine_hands(set_up: &SetUp) -> Vec<String> {
    let memory = privileges::close_memory();
    let files = landlock::confine_to_acting(set_up);
    let kept = privileges::keep_for_acting(set_up);
    let runs_programs = set_up.uses(Kind::Ceph);
    // `ceph` is a program of Python, whose calls are not known here.
    let calls = match runs_programs {
        true => Ok(()),
        false => Helper::Hands { disks: set_up.uses(Kind::ScsiPr) }.confine_calls(),
    };
    [memory, files, kept, calls].into_iter().filter_map(Result::err).collect()
}

/// Takes from the process that makes snapshots all but the rights for them. Programs of ZFS and LVM run with
/// all rights of the server, because the calls and files that they take are not known here. What does not
/// hold is returned.
pub(in crate::serve) fn confine_snapshot_hands(set_up: &SnapshotSetUp) -> Vec<String> {
    let memory = privileges::close_memory();
    if set_up.uses(SnapshotKind::Zfs) || set_up.uses(SnapshotKind::Lvm) {
        return memory.err().into_iter().collect();
    }
    let folders = set_up.shares.iter().map(|share| &*share.folder);
    let files = landlock::confine_to_snapshots(folders);
    let kept = privileges::keep_for_snapshots();
    let calls = Helper::SnapshotHands.confine_calls();
    [memory, files, kept, calls].into_iter().filter_map(Result::err).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_socket_of_the_winbind_that_runs() {
        let sockets = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 23480 /run/samba/winbindd/pipe\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 23482 /srv/a b/winbindd_privileged/pipe\n";
        let folder = Path::new("/srv/a b/winbindd_privileged");
        assert_eq!(running_winbind(sockets).as_deref(), Some(folder));
        assert_eq!(running_winbind("0: 2 0 1 1 1 7 @/winbindd_privileged/pipex\n"), None);
        assert!(may_enter(Path::new("/usr"), 7) && !may_enter(Path::new("/no such folder"), 7));
        let place = tempfile::tempdir().unwrap();
        let own = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(place.path(), own).unwrap();
        let group = std::fs::metadata(place.path()).unwrap().gid();
        assert!(!may_enter(place.path(), group));
    }

    #[test]
    fn modules_that_ask_over_the_network() {
        for local in [
            "",
            "passwd: files systemd\ngroup: files [SUCCESS=merge] systemd\nhosts: files dns\n",
            "passwd: sss files # ldap\n#group: ldap\ninitgroups: winbind [ NOTFOUND = return ] files",
        ] {
            assert!(!has_network_module(local), "{local}");
        }
        for network in ["passwd: files ldap\n", "group:nis", "initgroups: [SUCCESS=merge] hesiod"] {
            assert!(has_network_module(network), "{network}");
        }
    }
}
