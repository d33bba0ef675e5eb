//! Landlock: the process reaches the files that its configuration names, and no
//! others; it connects to nobody and listens nowhere else.
//!
//! Landlock decides when something is opened, made, removed, renamed, linked or run. It
//! does not decide about `stat`, `chmod`, `chown` and attributes of paths: for those,
//! privileges count.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath,
    PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus,
    Scope, make_bitflags,
};

use frevo_fences::Kind;
use frevo_fences::hands::SetUp;

use super::needs::Needs;

/// Rights in a share: all but running programs and making device nodes.
const WRITTEN: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    ReadFile | ReadDir | WriteFile | Truncate | RemoveFile | RemoveDir | MakeReg | MakeDir
        | MakeSym | MakeFifo | MakeSock | Refer
});
/// Rights in a folder that is only read.
const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
/// Rights to a file that is only read.
const READ_FILE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile});

/// Rights to the devices of RDMA.
const DEVICES: BitFlags<AccessFs> =
    make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | IoctlDev});
/// Folder of the devices of RDMA, which may come and go.
const RDMA_DEVICES: &str = "/dev/infiniband";

/// The rights without which nothing is confined: before version 2 (Linux 5.19) no file
/// could be moved from one folder to another.
const LEAST: ABI = ABI::V2;
/// The rights that are given up where the kernel knows them: connections over TCP (Linux 6.7),
/// devices' own calls (6.10), signals to others and sockets without a path (6.12), sockets with a path
/// (7.1).
const MOST: ABI = ABI::V9;

/// Places of the system that a server reads: network interfaces (for clients that ask), the number of
/// folders that it may watch, and what the C library's allocator looks at.
const SYSTEM: &[&str] = &[
    "/sys/class/net",
    "/sys/class/infiniband",
    "/sys/devices",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/fs/fanotify/max_user_marks",
    "/dev/urandom",
];

/// Places of the sockets of services that modules of the name service ask: nscd, sssd, winbindd,
/// systemd's userdb, nslcd; and of the log.
const SERVICES: &[&str] = &["/run", "/var/run", "/var/lib", "/var/cache", "/dev/log"];

/// Places that modules of the name service read.
const NAME_SERVICE: &[&str] = &[
    "/etc",
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/run",
    "/nix/store",
    "/gnu/store",
    "/var/lib",
    "/var/run",
    "/var/db",
    "/var/cache",
    "/proc",
    "/sys",
    "/dev/null",
    "/dev/urandom",
];

/// Places that programs of Samba read, without secrets of root.
const SAMBA: &[&str] = &[
    "/etc/samba/smb.conf",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld-musl-x86_64.path",
    "/etc/ld-musl-aarch64.path",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/resolv.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/localtime",
    "/etc/krb5.conf",
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/gnu/store",
    "/proc/sys",
    "/sys/devices/system/cpu",
    "/dev/null",
    "/dev/urandom",
];

/// Places that the process with rights reads: mounts, block devices, clients of CephFS.
const STORAGE: &[&str] = &[
    "/proc/self/mountinfo",
    "/sys/dev/block",
    "/sys/devices",
    "/sys/fs/gfs2",
    "/sys/kernel/debug/ceph",
    "/dev/disk",
];

/// Places in which it makes storage refuse a node, by kinds of fences.
const FENCES: &[(Kind, &str, BitFlags<AccessFs>)] = &[
    (Kind::Fuse, "/sys/fs/fuse/connections", CONTROL),
    (Kind::Nfs, "/proc/fs/nfsd/clients", CONTROL),
    (Kind::Ceph, "/etc/ceph", READ),
    (Kind::Ceph, "/run/ceph", READ),
    (Kind::Ceph, "/usr", PROGRAMS),
    (Kind::Ceph, "/lib", PROGRAMS),
    (Kind::Ceph, "/lib64", PROGRAMS),
];
/// Rights to the files of the kernel by which a client is ended.
const CONTROL: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile});
/// Rights to a disk that takes commands.
const DISK: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | WriteFile | IoctlDev});
/// Rights to programs of the system.
const PROGRAMS: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir | Execute});

/// Confines this process to the storage of its set-up, and to what resolving names takes, without secrets
/// of root. It connects over the network, and signals nobody else.
pub(super) fn confine_to_acting(set_up: &SetUp) -> Result<(), String> {
    let mut rules = alone(ruleset()).map_err(lacking)?;
    for place in SAMBA.iter().chain(STORAGE) {
        rules = grant(rules, Path::new(place), READ)?;
    }
    for (_, place, rights) in FENCES.iter().filter(|(kind, ..)| set_up.uses(*kind)) {
        rules = grant(rules, Path::new(place), *rights)?;
    }
    for disk in set_up.disks() {
        let Ok(fd) = PathFd::new(&disk) else { continue };
        let rule = PathBeneath::new(fd, DISK).set_compatibility(CompatLevel::BestEffort);
        rules = rules.add_rule(rule).map_err(lacking)?;
    }
    if set_up.uses(Kind::Ceph) {
        rules = grant_nothing(rules)?;
    }
    restrict(grant_sockets(rules, &["/run/ceph", "/run/nscd", "/run/systemd"])?)
}

/// Rights to a folder of which snapshots are made: their folder is made and read.
const SNAPSHOTS: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadDir | MakeDir});

/// Confines this process to the directories of these folders.
pub(super) fn confine_to_snapshots<'a>(
    folders: impl Iterator<Item = &'a Path>,
) -> Result<(), String> {
    let mut rules = alone(without_network()).map_err(lacking)?;
    for folder in folders {
        rules = grant(rules, folder, SNAPSHOTS)?;
    }
    restrict(grant_sockets(rules, &["/run/systemd/journal"])?)
}

/// Confines this thread and those that it starts to the files that `needs` names.
pub(super) fn confine(needs: &Needs) -> Result<(), String> {
    let mut rules = alone(without_network()).map_err(lacking)?;
    for folder in &needs.written {
        rules = grant(rules, folder, WRITTEN)?;
    }
    if needs.uses_rdma {
        rules = grant(rules, Path::new(RDMA_DEVICES), DEVICES)?;
        rules = grant(rules, Path::new("/sys/class"), READ)?;
    }
    for folder in &needs.emptied {
        rules = grant(rules, folder, AccessFs::RemoveFile.into())?;
    }
    let system = SYSTEM.iter().map(PathBuf::from);
    for place in needs.read.iter().cloned().chain(system) {
        rules = grant(rules, &place, READ)?;
    }
    restrict(rules)
}

/// Confines this process to reading files of the system. It may connect to services, but signals
/// nobody.
pub(super) fn confine_to_reading() -> Result<(), String> {
    let mut rules = alone(ruleset()).map_err(lacking)?;
    for place in NAME_SERVICE {
        rules = grant(rules, Path::new(place), READ)?;
    }
    restrict(grant_sockets(rules, SERVICES)?)
}

/// Confines this process to reading files of the system, as resolving names takes, and to connecting over TCP to
/// `port` and to name servers. It signals nobody.
pub(super) fn confine_to_probing(port: u16) -> Result<(), String> {
    confine_to_scanners(&[port], &[])
}

/// The port of name servers.
const DNS: u16 = 53;

/// As [`confine_to_probing`], with several ports, and with sockets in `folders`.
pub(super) fn confine_to_scanners(ports: &[u16], folders: &[&Path]) -> Result<(), String> {
    let mut rules = alone(without_network()).map_err(lacking)?;
    for place in NAME_SERVICE {
        rules = grant(rules, Path::new(place), READ)?;
    }
    for port in ports.iter().copied().chain([DNS]) {
        rules = grant_port(rules, port, AccessNet::ConnectTcp)?;
    }
    let folders: Vec<&str> = folders.iter().filter_map(|folder| folder.to_str()).collect();
    rules = grant_sockets(rules, &folders)?;
    restrict(grant_sockets(rules, SERVICES)?)
}

/// Confines this process to reading and running files of the system. It may connect to services of
/// this host, but signals nobody else. Root's process reads what programs of Samba need, and no
/// secrets.
pub(super) fn confine_to_running(is_root: bool) -> Result<(), String> {
    let mut rules = alone(without_network()).map_err(lacking)?;
    for place in if is_root { SAMBA } else { NAME_SERVICE } {
        rules = grant(rules, Path::new(place), READ | AccessFs::Execute)?;
    }
    rules = grant_sockets(rules, SERVICES)?;
    restrict(grant_nothing(rules)?)
}

/// Grants writing to /dev/null: programs and those that start them open it for that.
fn grant_nothing(rules: RulesetCreated) -> Result<RulesetCreated, String> {
    let Ok(null) = PathFd::new("/dev/null") else { return Ok(rules) };
    let rule = PathBeneath::new(null, AccessFs::WriteFile);
    rules.add_rule(rule.set_compatibility(CompatLevel::BestEffort)).map_err(lacking)
}

/// Confines this process to no file at all. Over TCP it connects to nobody, and listens at `port`;
/// it signals no other process.
pub(super) fn confine_to_announcing(port: u16) -> Result<(), String> {
    let rules = alone(without_network()).map_err(lacking)?;
    let rules = grant_port(rules, port, AccessNet::BindTcp)?;
    restrict(grant_sockets(rules, &["/run/dbus", "/var/run/dbus", "/run/systemd/journal"])?)
}

/// Confines this process to no file at all, and to connecting to `port` over TCP.
#[cfg(feature = "traces")]
pub(super) fn confine_to_connecting(port: u16) -> Result<(), String> {
    let rules = alone(without_network()).map_err(lacking)?;
    restrict(grant_port(rules, port, AccessNet::ConnectTcp)?)
}

/// Fails where this kernel cannot confine a process to folders.
pub(super) fn probe() -> Result<(), String> {
    ruleset().and_then(Ruleset::create).map(drop).map_err(lacking)
}

fn ruleset() -> Result<Ruleset, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(LEAST))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(MOST))
}

fn without_network() -> Result<Ruleset, RulesetError> {
    ruleset()?.handle_access(AccessNet::from_all(MOST))
}

/// Signals reach this process alone, and so do connections to sockets without a path.
fn alone(rules: Result<Ruleset, RulesetError>) -> Result<RulesetCreated, RulesetError> {
    rules?.scope(Scope::from_all(MOST))?.create()
}

/// Grants connections to sockets at and below these places, where the kernel asks for that.
fn grant_sockets(mut rules: RulesetCreated, places: &[&str]) -> Result<RulesetCreated, String> {
    for place in places {
        let Ok(fd) = PathFd::new(place) else { continue };
        let rule = PathBeneath::new(fd, AccessFs::ResolveUnix);
        let rule = rule.set_compatibility(CompatLevel::BestEffort);
        rules = rules.add_rule(rule).map_err(lacking)?;
    }
    Ok(rules)
}

fn grant_port(
    rules: RulesetCreated,
    port: u16,
    right: AccessNet,
) -> Result<RulesetCreated, String> {
    let rule = NetPort::new(port, right).set_compatibility(CompatLevel::BestEffort);
    rules.add_rule(rule).map_err(lacking)
}

fn grant(
    rules: RulesetCreated,
    path: &Path,
    rights: BitFlags<AccessFs>,
) -> Result<RulesetCreated, String> {
    // A missing path gets no rule, because the code that uses it will report the error.
    let Ok(fd) = PathFd::new(path) else { return Ok(rules) };
    let rights = if path.is_dir() { rights } else { READ_FILE };
    let rule = PathBeneath::new(fd, rights).set_compatibility(CompatLevel::BestEffort);
    rules.add_rule(rule).map_err(|error| format!("Landlock: {}: {error}", path.display()))
}

fn restrict(rules: RulesetCreated) -> Result<(), String> {
    let status = rules.restrict_self().map_err(lacking)?;
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err(String::from("files: this kernel has no Landlock"));
    }
    Ok(())
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn lacking(error: RulesetError) -> String {
    match error {
        // The text of this error lists the missing rights but gives no reason, so it is replaced.
        RulesetError::HandleAccesses(_) => String::from(
            "files: this kernel has no Landlock, or one older than Linux 5.19, or a container's \
             filter forbids it",
        ),
        error => format!("files: Landlock: {error}"),
    }
}
