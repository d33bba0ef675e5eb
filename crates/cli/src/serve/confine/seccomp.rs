//! seccomp: system calls that serving does not take are refused.
//!
//! Three filters, of which the strictest verdict counts: one ends the process at calls
//! that only an attacker makes; one answers `clone3` as a kernel without it, so that the C
//! library falls back to `clone`, whose flags a filter can see; one refuses all that is not
//! allowed, with EPERM, and has the log tell of it once for each call.
//!
//! Requests in an io_uring do not pass here. Landlock and capabilities hold for them.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use super::needs::Needs;
use super::syscalls;

/// Rules of one filter by the number of the call.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: Option<TargetArch> = Some(TargetArch::x86_64);
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: Option<TargetArch> = Some(TargetArch::aarch64);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: Option<TargetArch> = None;

/// CLONE_VM and CLONE_THREAD of linux/sched.h: a thread of this process.
const THREAD: u64 = 0x0001_0100;
/// The bit PROT_EXEC of mmap(2): executable memory.
const EXECUTABLE: u64 = 4;

/// Confines this thread and those that it starts to the calls that serving takes.
pub(super) fn confine(needs: &Needs) -> Result<(), String> {
    install(&programs(needs)?)
}

/// Confines this thread and those that it starts to the calls that announcing a server takes.
pub(super) fn confine_discovery() -> Result<(), String> {
    install(&programs_of_discovery()?)
}

fn install(programs: &[BpfProgram; 3]) -> Result<(), String> {
    for program in programs {
        seccompiler::apply_filter(program).map_err(|error| format!("system calls: {error}"))?;
    }
    Ok(())
}

/// Fails where this kernel has no filters for system calls.
pub(super) fn probe() -> Result<(), String> {
    if ARCHITECTURE.is_none() {
        return Err(String::from("system calls: not supported on this architecture"));
    }
    match std::fs::exists("/proc/sys/kernel/seccomp") {
        Ok(true) => Ok(()),
        _ => Err(String::from("system calls: this kernel has no seccomp")),
    }
}

/// The filters, in the order in which they are installed: installing one is a call that
/// the last one refuses.
fn programs(needs: &Needs) -> Result<[BpfProgram; 3], String> {
    let hostile = syscalls::HOSTILE.iter().chain(syscalls::HOSTILE_OLD).copied();
    compiled(hostile, allowed(needs), SeccompAction::Trap)
}

/// The filters of the process that announces the server. It has nobody to tell of a refused call.
fn programs_of_discovery() -> Result<[BpfProgram; 3], String> {
    // Its own sockets are found by this call; those of others it has no right to.
    let hostile = syscalls::HOSTILE.iter().chain(syscalls::HOSTILE_OLD).copied();
    let hostile = hostile.filter(|call| *call != libc::SYS_pidfd_getfd);
    compiled(hostile, allowed_to_discovery(), SeccompAction::Errno(libc::EPERM.unsigned_abs()))
}

/// Compiles the calls that end the process, those that are allowed, and the answer to all others.
fn compiled(
    hostile: impl Iterator<Item = i64>,
    allowed: Result<Rules, BackendError>,
    refusal: SeccompAction,
) -> Result<[BpfProgram; 3], String> {
    let arch = ARCHITECTURE.ok_or("system calls: not supported on this architecture")?;
    let hostile = hostile.map(|call| (call, Vec::new())).collect();
    let compiled = || -> Result<_, BackendError> {
        let program = |rules, otherwise, then| {
            SeccompFilter::new(rules, otherwise, then, arch).and_then(BpfProgram::try_from)
        };
        let absent = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
        let clone3 = Rules::from([(libc::SYS_clone3, Vec::new())]);
        Ok([
            program(hostile, SeccompAction::Allow, SeccompAction::KillProcess)?,
            program(clone3, SeccompAction::Allow, absent)?,
            program(allowed?, refusal, SeccompAction::Allow)?,
        ])
    };
    compiled().map_err(|error| format!("system calls: {error}"))
}

fn allowed_to_discovery() -> Result<Rules, BackendError> {
    let calls = syscalls::DISCOVERY.iter().chain(syscalls::DISCOVERY_OLD);
    let mut rules: Rules = calls.map(|call| (*call, Vec::new())).collect();
    own_code_and_threads(&mut rules)?;
    rules.insert(libc::SYS_ioctl, any(1, syscalls::DISCOVERY_IOCTLS.iter().copied())?);
    // Datagrams and metadata; the bus of Avahi and the journal; addresses of interfaces.
    let families = [libc::AF_INET, libc::AF_INET6, libc::AF_UNIX, libc::AF_NETLINK];
    let families = families.map(|family| family.unsigned_abs().into());
    rules.insert(libc::SYS_socket, any(0, families.into_iter())?);
    Ok(rules)
}

/// No new code, no process, signals and options of this process only.
fn own_code_and_threads(rules: &mut Rules) -> Result<(), BackendError> {
    // What may become code is not made or changed any more.
    let data = vec![one(2, SeccompCmpOp::MaskedEq(EXECUTABLE), 0)?];
    rules.insert(libc::SYS_mmap, data.clone());
    rules.insert(libc::SYS_mprotect, data);
    rules.insert(libc::SYS_clone, vec![one(0, SeccompCmpOp::MaskedEq(THREAD), THREAD)?]);
    rules.insert(libc::SYS_prctl, any(0, syscalls::PRCTLS.iter().copied())?);
    // An abort signals its own thread.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, any(0, std::iter::once(own))?);
    Ok(())
}

fn allowed(needs: &Needs) -> Result<Rules, BackendError> {
    let calls = syscalls::ALLOWED.iter().chain(syscalls::ALLOWED_OLD);
    let mut rules: Rules = calls.map(|call| (*call, Vec::new())).collect();
    if needs.acts_as_users {
        rules.extend(syscalls::USERS.iter().map(|call| (*call, Vec::new())));
    }
    own_code_and_threads(&mut rules)?;
    let of_rdma = syscalls::RDMA_IOCTLS.iter().filter(|_| needs.uses_rdma);
    let ioctls = syscalls::IOCTLS.iter().chain(of_rdma).copied();
    rules.insert(libc::SYS_ioctl, any(1, ioctls)?);
    // The journal and the service manager; addresses of interfaces.
    let families = [libc::AF_UNIX, libc::AF_NETLINK].map(|family| family.unsigned_abs().into());
    let mut sockets = any(0, families.into_iter())?;
    if needs.connects_to.is_some() {
        // TCP to the collector of traces; Landlock says to which port.
        for family in [libc::AF_INET, libc::AF_INET6] {
            sockets.push(streams_of(family.unsigned_abs().into())?);
        }
    }
    rules.insert(libc::SYS_socket, sockets);
    Ok(rules)
}

/// A rule for sockets of a family that are streams.
fn streams_of(family: u64) -> Result<SeccompRule, BackendError> {
    /// The bits of a socket's type that are no flags.
    const TYPE: u64 = 0xF;
    let stream = libc::SOCK_STREAM.unsigned_abs().into();
    let dword = SeccompCmpArgLen::Dword;
    SeccompRule::new(vec![
        SeccompCondition::new(0, dword.clone(), SeccompCmpOp::Eq, family)?,
        SeccompCondition::new(1, dword, SeccompCmpOp::MaskedEq(TYPE), stream)?,
    ])
}

/// One rule: an argument compared by its lower 32 bits, which is all that the kernel
/// looks at in those that are compared here.
fn one(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
    SeccompRule::new(vec![condition])
}

fn any(argument: u8, values: impl Iterator<Item = u64>) -> Result<Vec<SeccompRule>, BackendError> {
    values.map(|value| one(argument, SeccompCmpOp::Eq, value)).collect()
}

#[cfg(test)]
mod tests;
