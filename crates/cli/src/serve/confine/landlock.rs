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
/// The rights that are given up where the kernel knows them: devices' own calls (Linux
/// 6.10), connections (6.7), signals to others (6.12).
const MOST: ABI = ABI::V6;

/// Places of the system that a server reads: network interfaces (for clients that ask),
/// and what the C library's allocator looks at.
const SYSTEM: &[&str] = &[
    "/sys/class/net",
    "/sys/class/infiniband",
    "/sys/devices",
    "/proc/sys/vm/overcommit_memory",
    "/dev/urandom",
];

/// Places that modules of the name service read.
pub(super) const NAME_SERVICE: &[&str] = &[
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

/// Confines this thread and those that it starts to the files that `needs` names.
pub(super) fn confine(needs: &Needs) -> Result<(), String> {
    let mut rules = ruleset()
        .and_then(|rules| rules.handle_access(AccessNet::from_all(MOST)))
        .and_then(|rules| rules.scope(scopes()))
        .and_then(Ruleset::create)
        .map_err(lacking)?;
    if let Some(port) = needs.connects_to {
        let connecting = NetPort::new(port, AccessNet::ConnectTcp);
        rules = rules
            .add_rule(connecting.set_compatibility(CompatLevel::BestEffort))
            .map_err(lacking)?;
    }
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

/// Confines this process to reading below `places`. It may connect to services.
pub(super) fn confine_to_reading(places: &[&str]) -> Result<(), String> {
    let mut rules = ruleset().and_then(Ruleset::create).map_err(lacking)?;
    for place in places {
        rules = grant(rules, Path::new(place), READ)?;
    }
    restrict(rules)
}

/// Confines this process to reading and running what is below `places`.
pub(super) fn confine_to_running(places: &[&str]) -> Result<(), String> {
    let mut rules = ruleset().and_then(Ruleset::create).map_err(lacking)?;
    for place in places {
        rules = grant(rules, Path::new(place), READ | AccessFs::Execute)?;
    }
    // For the errors of the programs.
    if let Ok(null) = PathFd::new("/dev/null") {
        let rule = PathBeneath::new(null, AccessFs::WriteFile);
        let rule = rule.set_compatibility(CompatLevel::BestEffort);
        rules = rules.add_rule(rule).map_err(lacking)?;
    }
    restrict(rules)
}

/// Confines this process to no file at all. Over TCP it connects to nobody, and listens at `port`;
/// it signals no other process.
pub(super) fn confine_to_announcing(port: u16) -> Result<(), String> {
    let rules = ruleset()
        .and_then(|rules| rules.handle_access(AccessNet::from_all(MOST)))
        .and_then(|rules| rules.scope(Scope::Signal))
        .and_then(Ruleset::create)
        .and_then(|rules| {
            let listening = NetPort::new(port, AccessNet::BindTcp);
            rules.add_rule(listening.set_compatibility(CompatLevel::BestEffort))
        })
        .map_err(lacking)?;
    restrict(rules)
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

/// Signals reach this process alone, and sockets without a path those of this process;
/// the service manager may have one of these.
fn scopes() -> BitFlags<Scope> {
    let is_abstract = std::env::var_os("NOTIFY_SOCKET")
        .is_some_and(|path| path.as_encoded_bytes().starts_with(b"@"));
    if is_abstract { Scope::Signal.into() } else { Scope::from_all(MOST) }
}

fn grant(
    rules: RulesetCreated,
    path: &Path,
    rights: BitFlags<AccessFs>,
) -> Result<RulesetCreated, String> {
    // What is not there cannot be reached; what needs it will say so.
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
        // Its text is a list of rights and has no reason.
        RulesetError::HandleAccesses(_) => String::from(
            "files: this kernel has no Landlock, or one older than Linux 5.19, or a container's \
             filter forbids it",
        ),
        error => format!("files: Landlock: {error}"),
    }
}
