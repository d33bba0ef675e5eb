//! seccomp: system calls that serving does not take are refused.
//!
//! Three filters, of which the strictest verdict counts: one ends the process at calls
//! that only an attacker makes; one answers `clone3` as a kernel without it, so that the C
//! library falls back to `clone`, whose flags a filter can see; one refuses all that is not
//! allowed, with EPERM, and has the log tell of it once for each call.
//!
//! Requests in an io_uring do not pass here: rings are made before, and restricted
//! ([`frevo_net::file_io::prepare_rings`]). docs/confinement.md says for each allowed call what an
//! attacker could do with it.

mod arguments;
mod helpers;

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use super::needs::Needs;
use super::syscalls;

pub(super) use helpers::Helper;

/// Rules of one filter by the number of the call.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: Option<TargetArch> = Some(TargetArch::x86_64);
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: Option<TargetArch> = Some(TargetArch::aarch64);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: Option<TargetArch> = None;

/// Confines this thread and those that it starts to the calls that serving takes.
pub(super) fn confine(needs: &Needs) -> Result<(), String> {
    install(&programs(needs)?)
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

fn allowed(needs: &Needs) -> Result<Rules, BackendError> {
    let calls = syscalls::ALLOWED.iter().chain(syscalls::ALLOWED_OLD);
    let mut rules: Rules = calls.map(|call| (*call, Vec::new())).collect();
    if needs.acts_as_users {
        rules.extend(syscalls::USERS.iter().map(|call| (*call, Vec::new())));
    }
    arguments::own_process(&mut rules)?;
    arguments::no_code(&mut rules)?;
    arguments::files(&mut rules)?;
    arguments::sockets_of_server(&mut rules)?;
    let of_rdma = syscalls::RDMA_IOCTLS.iter().filter(|_| needs.uses_rdma);
    let ioctls = syscalls::IOCTLS.iter().chain(of_rdma).copied();
    rules.insert(libc::SYS_ioctl, any(1, ioctls)?);
    if needs.uses_quic {
        rules.extend(syscalls::QUIC.iter().map(|call| (*call, Vec::new())));
        rules.insert(libc::SYS_sendmsg, arguments::datagrams()?);
    }
    if needs.uses_rdma {
        rules.extend(syscalls::RDMA.iter().map(|call| (*call, Vec::new())));
        rules.insert(libc::SYS_sendmsg, arguments::messages()?);
        rules.insert(libc::SYS_socket, arguments::netlink()?);
        rules.entry(libc::SYS_setsockopt).or_default().push(arguments::options_of_netlink()?);
    }
    Ok(rules)
}

/// One rule: an argument compared by its lower 32 bits, which is all that the kernel
/// looks at in those that are compared here.
fn one(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    all([dword(argument, operator, value)?])
}

/// One rule of several conditions.
fn all<const N: usize>(conditions: [SeccompCondition; N]) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.into())
}

fn dword(number: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(number, SeccompCmpArgLen::Dword, operator, value)
}

fn qword(number: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(number, SeccompCmpArgLen::Qword, operator, value)
}

/// The condition that none of these bits is set.
fn none_of(number: u8, bits: u64) -> Result<SeccompCondition, BackendError> {
    dword(number, SeccompCmpOp::MaskedEq(bits), 0)
}

fn any(argument: u8, values: impl Iterator<Item = u64>) -> Result<Vec<SeccompRule>, BackendError> {
    values.map(|value| one(argument, SeccompCmpOp::Eq, value)).collect()
}

#[cfg(test)]
mod tests;
