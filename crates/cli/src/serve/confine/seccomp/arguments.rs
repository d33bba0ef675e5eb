//! Calls whose arguments decide. An argument that is a pointer cannot be looked into: only its absence
//! can be asked for.

use seccompiler::{BackendError, SeccompCmpOp, SeccompRule};

use super::{Rules, all, any, dword, none_of, one, qword};
use crate::serve::confine::syscalls;

/// CLONE_VM and CLONE_THREAD of linux/sched.h: a thread of this process.
const THREAD: u64 = 0x0001_0100;
/// CLONE_NEWNS to CLONE_NEWNET and CLONE_NEWCGROUP of linux/sched.h.
const NAMESPACES: u64 = 0x7E02_0000;
/// The bit PROT_WRITE of mmap(2).
const WRITABLE: u64 = 2;
/// The bit PROT_EXEC of mmap(2): executable memory.
const EXECUTABLE: u64 = 4;

/// S_ISUID and S_ISGID.
const SET_USER_ID: u64 = 0o4000;
const SET_GROUP_ID: u64 = 0o2000;

/// IORING_REGISTER_ENABLE_RINGS and IORING_REGISTER_IOWQ_MAX_WORKERS of linux/io_uring.h.
const RINGS: [u64; 2] = [12, 19];

/// Commands of fcntl(2): flags, copies, locks of open file descriptions, sizes of pipes. Not those
/// that make the kernel send signals, nor leases.
const FCNTLS: [u64; 11] = [
    0,    // F_DUPFD
    1,    // F_GETFD
    2,    // F_SETFD
    3,    // F_GETFL
    4,    // F_SETFL
    36,   // F_OFD_GETLK
    37,   // F_OFD_SETLK
    38,   // F_OFD_SETLKW
    1030, // F_DUPFD_CLOEXEC
    1031, // F_SETPIPE_SZ
    1032, // F_GETPIPE_SZ
];

/// The highest number of advice that is none about hardware: MADV_COLLAPSE. Numbers 100 and 101 take
/// pages of the host out of use.
const ADVICE_MOST: u64 = 25;
/// MADV_GUARD_INSTALL and MADV_GUARD_REMOVE.
const GUARDS: [u64; 2] = [102, 103];

/// FAN_CLASS_CONTENT and FAN_CLASS_PRE_CONTENT of linux/fanotify.h: groups that others wait for.
const CLASSES: u64 = 0xC;
/// FAN_REPORT_FID and FAN_REPORT_DIR_FID: events without open files.
const WITHOUT_FILES: [u64; 2] = [0x200, 0x400];
/// FAN_MARK_MOUNT and FAN_MARK_FILESYSTEM.
const WIDE_MARKS: u64 = 0x110;
/// Events of changes: FAN_MODIFY, FAN_ATTRIB, FAN_MOVED_FROM, FAN_MOVED_TO, FAN_CREATE, FAN_DELETE,
/// FAN_MOVE_SELF, FAN_RENAME; FAN_EVENT_ON_CHILD and FAN_ONDIR.
const CHANGES: u64 = 0x2 | 0x4 | 0x40 | 0x80 | 0x100 | 0x200 | 0x800 | 0x1000_0000 | 0x4800_0000;

/// Commands of quotactl_fd(2) about users: Q_XGETQSTAT, Q_GETQUOTA, Q_SETQUOTA, Q_GETNEXTQUOTA.
const QUOTAS: [u64; 4] = [0x5805 << 8, 0x8000_0700, 0x8000_0800, 0x8000_0900];

/// MSG_FASTOPEN, by which sending connects.
const FAST_OPEN: u64 = 0x2000_0000;
/// The bits of a socket's type that are no flags.
const TYPE: u64 = 0xF;
/// Levels of setsockopt(2), with their options: SOL_SOCKET (sizes, time limits, keep-alive,
/// low-water mark, reuse of addresses, broadcast, errors, linger) and IPPROTO_TCP (no delay, probes,
/// time limits, congestion, corking).
const SOCKET_OPTIONS: [(u64, &[u64]); 2] =
    [(1, &[2, 4, 6, 7, 8, 9, 13, 15, 18, 20, 21, 46, 66, 67]), (6, &[1, 3, 4, 5, 6, 12, 13, 18])];

/// Sending on the UDP sockets of QUIC, without flags: MSG_FASTOPEN would connect a socket of TCP.
pub(super) fn datagrams() -> Result<Vec<SeccompRule>, BackendError> {
    Ok(vec![one(2, SeccompCmpOp::Eq, 0)?])
}

/// Sending of the libraries of RDMA, which ask the kernel over netlink, without MSG_FASTOPEN.
pub(super) fn messages() -> Result<Vec<SeccompRule>, BackendError> {
    Ok(vec![all([none_of(2, FAST_OPEN)?])?])
}

/// Signals and options of this process only.
pub(super) fn own_process(rules: &mut Rules) -> Result<(), BackendError> {
    rules.insert(libc::SYS_clone, vec![one(0, SeccompCmpOp::MaskedEq(THREAD), THREAD)?]);
    own_signals_and_limits(rules)
}

/// As [`own_process`], but other processes may be started, in no other namespaces.
pub(super) fn further_processes(rules: &mut Rules) -> Result<(), BackendError> {
    rules.insert(libc::SYS_clone, vec![all([none_of(0, NAMESPACES)?])?]);
    own_signals_and_limits(rules)
}

fn own_signals_and_limits(rules: &mut Rules) -> Result<(), BackendError> {
    rules.insert(libc::SYS_prctl, any(0, syscalls::PRCTLS.iter().copied())?);
    // abort(3) sends a signal to the thread itself, so tgkill is allowed, but only to this process.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, any(0, std::iter::once(own))?);
    // Only this process (0) may be the target, because a processor limit could end another process
    // of the same user.
    rules.insert(libc::SYS_prlimit64, vec![one(0, SeccompCmpOp::Eq, 0)?]);
    rules.insert(libc::SYS_sched_setaffinity, vec![one(0, SeccompCmpOp::Eq, 0)?]);
    let mut advice = vec![one(2, SeccompCmpOp::Le, ADVICE_MOST)?];
    advice.extend(any(2, GUARDS.into_iter())?);
    rules.insert(libc::SYS_madvise, advice);
    Ok(())
}

/// Data that was made or changed here does not become code.
pub(super) fn no_code(rules: &mut Rules) -> Result<(), BackendError> {
    let data = vec![all([none_of(2, EXECUTABLE)?])?];
    rules.insert(libc::SYS_mmap, data.clone());
    rules.insert(libc::SYS_mprotect, data);
    Ok(())
}

/// As [`no_code`], but files may be mapped as code: libraries that are loaded late.
pub(super) fn code_from_files(rules: &mut Rules) -> Result<(), BackendError> {
    /// MAP_ANONYMOUS of mmap(2).
    const ANONYMOUS: u64 = 0x20;
    let data = all([none_of(2, EXECUTABLE)?])?;
    let library = all([none_of(2, WRITABLE)?, none_of(3, ANONYMOUS)?])?;
    rules.insert(libc::SYS_mmap, vec![data.clone(), library]);
    rules.insert(libc::SYS_mprotect, vec![data]);
    Ok(())
}

/// Files: no set-user-ID, set-group-ID by an open file alone, which Landlock has let through;
/// no signals by files; no groups of fanotify that others wait for, and none for whole file systems.
pub(super) fn files(rules: &mut Rules) -> Result<(), BackendError> {
    rules.insert(libc::SYS_io_uring_register, any(1, RINGS.into_iter())?);
    rules.insert(libc::SYS_fcntl, any(1, FCNTLS.into_iter())?);
    let without =
        |number: u8, bits: u64| Ok::<_, BackendError>(vec![all([none_of(number, bits)?])?]);
    rules.insert(libc::SYS_fchmod, without(1, SET_USER_ID)?);
    rules.insert(libc::SYS_mkdirat, without(2, SET_USER_ID)?);
    rules.insert(libc::SYS_mknodat, without(2, SET_USER_ID)?);
    for call in [libc::SYS_fchmodat, syscalls::FCHMODAT2] {
        rules.insert(call, without(2, SET_USER_ID | SET_GROUP_ID)?);
    }
    #[cfg(target_arch = "x86_64")]
    {
        rules.insert(libc::SYS_chmod, without(1, SET_USER_ID | SET_GROUP_ID)?);
        rules.insert(libc::SYS_mkdir, without(1, SET_USER_ID)?);
        rules.insert(libc::SYS_mknod, without(1, SET_USER_ID)?);
    }
    rules.insert(libc::SYS_quotactl_fd, any(1, QUOTAS.into_iter())?);
    let groups = WITHOUT_FILES.map(|bit| one(0, SeccompCmpOp::MaskedEq(CLASSES | bit), bit));
    rules.insert(libc::SYS_fanotify_init, groups.into_iter().collect::<Result<_, _>>()?);
    // fanotify_mark may mark open files only, so its last argument, the path, must be null.
    let mark = all([
        none_of(1, WIDE_MARKS)?,
        qword(2, SeccompCmpOp::MaskedEq(!CHANGES), 0)?,
        qword(4, SeccompCmpOp::Eq, 0)?,
    ])?;
    rules.insert(libc::SYS_fanotify_mark, vec![mark]);
    Ok(())
}

/// Sockets of the server: those that are there, and pairs of connected ones. Datagrams go where their
/// socket is connected to: no call that names an address is allowed.
pub(super) fn sockets_of_server(rules: &mut Rules) -> Result<(), BackendError> {
    rules.insert(libc::SYS_socketpair, pairs()?);
    let without_address = all([none_of(3, FAST_OPEN)?, qword(4, SeccompCmpOp::Eq, 0)?])?;
    rules.insert(libc::SYS_sendto, vec![without_address]);
    let mut options = Vec::new();
    for (level, names) in SOCKET_OPTIONS {
        for name in names {
            let option = dword(2, SeccompCmpOp::Eq, *name)?;
            options.push(all([dword(1, SeccompCmpOp::Eq, level)?, option])?);
        }
    }
    rules.insert(libc::SYS_setsockopt, options);
    Ok(())
}

/// Pairs of streams or of packets, which stay connected to each other.
pub(super) fn pairs() -> Result<Vec<SeccompRule>, BackendError> {
    let kinds = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET];
    kinds.map(|kind| of_kind(libc::AF_UNIX, kind)).into_iter().collect()
}

/// Sending that does not connect on its way.
pub(super) fn sending(rules: &mut Rules) -> Result<(), BackendError> {
    for (call, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        rules.insert(call, vec![all([none_of(flags, FAST_OPEN)?])?]);
    }
    Ok(())
}

/// Sockets of a family and a kind.
pub(super) fn of_kind(family: i32, kind: i32) -> Result<SeccompRule, BackendError> {
    let (family, kind) = (family.unsigned_abs().into(), kind.unsigned_abs().into());
    all([dword(0, SeccompCmpOp::Eq, family)?, dword(1, SeccompCmpOp::MaskedEq(TYPE), kind)?])
}

/// Sockets of both families of the internet, of a kind, of the usual protocol: not MPTCP nor SCTP,
/// of which Landlock knows nothing.
pub(super) fn internet(kind: i32) -> Result<Vec<SeccompRule>, BackendError> {
    let protocol = if kind == libc::SOCK_STREAM { libc::IPPROTO_TCP } else { libc::IPPROTO_UDP };
    let mut rules = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        for protocol in [0, protocol] {
            let (family, kind) = (family.unsigned_abs().into(), kind.unsigned_abs().into());
            rules.push(all([
                dword(0, SeccompCmpOp::Eq, family)?,
                dword(1, SeccompCmpOp::MaskedEq(TYPE), kind)?,
                dword(2, SeccompCmpOp::Eq, protocol.unsigned_abs().into())?,
            ])?);
        }
    }
    Ok(rules)
}

/// Sockets of this host's services.
pub(super) fn unix() -> Result<SeccompRule, BackendError> {
    one(0, SeccompCmpOp::Eq, libc::AF_UNIX.unsigned_abs().into())
}

/// Options of sockets of netlink.
pub(super) fn options_of_netlink() -> Result<SeccompRule, BackendError> {
    one(1, SeccompCmpOp::Eq, libc::SOL_NETLINK.unsigned_abs().into())
}

/// Sockets that tell addresses of interfaces (NETLINK_ROUTE), and devices of RDMA (NETLINK_RDMA).
pub(super) fn netlink() -> Result<Vec<SeccompRule>, BackendError> {
    /// NETLINK_RDMA of linux/netlink.h.
    const RDMA: u64 = 20;
    let family = libc::AF_NETLINK.unsigned_abs().into();
    let of = |protocol: u64| {
        let protocol = dword(2, SeccompCmpOp::Eq, protocol)?;
        all([dword(0, SeccompCmpOp::Eq, family)?, protocol])
    };
    [of(0), of(RDMA)].into_iter().collect()
}
