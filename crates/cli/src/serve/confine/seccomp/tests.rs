//! The compiled filters, run as the kernel runs them.

use seccompiler::BpfProgram;

use super::*;

/// Verdicts of a filter (linux/seccomp.h).
const ALLOW: u32 = 0x7FFF_0000;
const TRAP: u32 = 0x0003_0000;
const KILL: u32 = 0x8000_0000;
const ENOSYS: u32 = 0x0005_0000 | 38;

/// AUDIT_ARCH of this machine, and of the same with 32 bits.
#[cfg(target_arch = "x86_64")]
const ARCHES: [u32; 2] = [0xC000_003E, 0x4000_0003];
#[cfg(target_arch = "aarch64")]
const ARCHES: [u32; 2] = [0xC000_00B7, 0x4000_0028];

/// The verdict of one program about a call: classic BPF over struct seccomp_data, as far
/// as the filters use it.
fn run(program: &BpfProgram, arch: u32, number: i64, arguments: [u64; 6]) -> u32 {
    let mut data = Vec::new();
    data.extend_from_slice(&u32::try_from(number).unwrap().to_le_bytes());
    data.extend_from_slice(&arch.to_le_bytes());
    data.extend_from_slice(&[0; 8]);
    arguments.iter().for_each(|argument| data.extend_from_slice(&argument.to_le_bytes()));
    let (mut accumulator, mut at) = (0_u32, 0_usize);
    loop {
        let step = &program[at];
        at += 1;
        let jump = |taken: bool| usize::from(if taken { step.jt } else { step.jf });
        match step.code {
            // The code is BPF_LD | BPF_W | BPF_ABS: it loads a word of the system call's data.
            0x20 => {
                let from = step.k as usize;
                accumulator = u32::from_le_bytes(data[from..from + 4].try_into().unwrap());
            }
            // The code is BPF_ALU | BPF_AND | BPF_K: it masks the accumulator.
            0x54 => accumulator &= step.k,
            // The codes are BPF_JMP with JA (jump always), JEQ (equal), JGT (greater) and JGE
            // (greater or equal).
            0x05 => at += step.k as usize,
            0x15 => at += jump(accumulator == step.k),
            0x25 => at += jump(accumulator > step.k),
            0x35 => at += jump(accumulator >= step.k),
            // The code is BPF_RET: the filter ends and returns its verdict.
            0x06 => return step.k,
            other => panic!("an instruction that these filters do not have: {other:#x}"),
        }
    }
}

/// The strictest verdict of all filters: what counts for the kernel. Its order is that of
/// the numbers, but for ending the process, which is the highest bit.
fn verdict_at(arch: u32, needs: &Needs, number: i64, arguments: [u64; 6]) -> u32 {
    let verdicts = programs(needs).unwrap().map(|program| run(&program, arch, number, arguments));
    verdicts.into_iter().min_by_key(|verdict| verdict.cast_signed()).unwrap()
}

fn verdict(number: i64, arguments: [u64; 6]) -> u32 {
    verdict_at(ARCHES[0], &Needs::default(), number, arguments)
}

#[test]
fn what_serving_takes_passes() {
    for number in syscalls::ALLOWED.iter().chain(syscalls::ALLOWED_OLD) {
        let want = if *number == libc::SYS_clone3 { ENOSYS } else { ALLOW };
        assert_eq!(verdict(*number, [0; 6]), want, "{number}");
    }
    let thread = 0x003D_0F00; // glibc's pthread_create
    assert_eq!(verdict(libc::SYS_clone, [thread, 0, 0, 0, 0, 0]), ALLOW);
    assert_eq!(verdict(libc::SYS_mmap, [0, 4096, 3, 0x22, u64::MAX, 0]), ALLOW);
    assert_eq!(verdict(libc::SYS_mprotect, [4096, 4096, 3, 0, 0, 0]), ALLOW);
    assert_eq!(verdict(libc::SYS_prctl, [15, 0, 0, 0, 0, 0]), ALLOW);
    let own = u64::from(std::process::id());
    assert_eq!(verdict(libc::SYS_tgkill, [own, own, 6, 0, 0, 0]), ALLOW);
    let fast = 0x4000_0000; // MSG_NOSIGNAL, MSG_DONTWAIT and MSG_MORE are below.
    for (number, arguments, what) in [
        (libc::SYS_socketpair, [1, 0o2_004_001, 0, 0, 0, 0], "a pair of streams"),
        (libc::SYS_socketpair, [1, 5, 0, 0, 0, 0], "a pair of packets"),
        (libc::SYS_sendto, [3, 4096, 9, 0xC040, 0, 0], "sending on a connection"),
        (libc::SYS_setsockopt, [3, 6, 13, 4096, 4, 0], "TCP_CONGESTION"),
        (libc::SYS_io_uring_register, [3, 12, 0, 0, 0, 0], "the ring of a core"),
        (libc::SYS_fcntl, [3, 37, 4096, 0, 0, 0], "F_OFD_SETLK"),
        (libc::SYS_fchmod, [3, 0o2775, 0, 0, 0, 0], "set-group-ID of an open folder"),
        (libc::SYS_fchmodat, [u64::MAX, 4096, 0o1777, 0, 0, 0], "a mode"),
        (libc::SYS_mkdirat, [3, 4096, 0o777, 0, 0, 0], "a folder"),
        (libc::SYS_fanotify_init, [0x400 | 0x800 | 3, fast, 0, 0, 0, 0], "changes of folders"),
        (libc::SYS_fanotify_mark, [3, 9, 0x5800_03C6, 4, 0, 0], "a folder"),
        (libc::SYS_quotactl_fd, [3, 0x80_0007 << 8, 0, 0, 0, 0], "Q_GETQUOTA"),
        (libc::SYS_madvise, [4096, 4096, 4, 0, 0, 0], "MADV_DONTNEED"),
        (libc::SYS_madvise, [4096, 4096, 102, 0, 0, 0], "MADV_GUARD_INSTALL"),
        (libc::SYS_prlimit64, [0, 7, 0, 4096, 0, 0], "an own limit"),
        (libc::SYS_sched_setaffinity, [0, 8, 4096, 0, 0, 0], "an own processor"),
    ] {
        assert_eq!(verdict(number, arguments), ALLOW, "{what}");
    }
    for request in syscalls::IOCTLS {
        assert_eq!(verdict(libc::SYS_ioctl, [3, *request, 0, 0, 0, 0]), ALLOW, "{request:x}");
    }
}

/// Calls that an attacker makes early end the process, whatever the arguments.
#[test]
fn what_is_hostile_ends_the_process() {
    for number in syscalls::HOSTILE.iter().chain(syscalls::HOSTILE_OLD) {
        for arguments in [[0; 6], [u64::MAX; 6]] {
            assert_eq!(verdict(*number, arguments), KILL, "{number}");
        }
    }
    // The numbers are system calls of another architecture, which end the process.
    for number in [1, 11, 59, 221] {
        assert_eq!(verdict_at(ARCHES[1], &Needs::default(), number, [0; 6]), KILL);
    }
}

#[test]
fn everything_else_is_refused() {
    let known = [
        syscalls::ALLOWED,
        syscalls::ALLOWED_OLD,
        syscalls::HOSTILE,
        syscalls::HOSTILE_OLD,
        syscalls::BY_ARGUMENTS,
        syscalls::BY_ARGUMENTS_OLD,
    ]
    .concat();
    for number in (0..1_000).filter(|number| !known.contains(number)) {
        assert_eq!(verdict(number, [0; 6]), TRAP, "{number}");
    }
    // A system call of x32 has the number of x86-64 with bit 30 set, and is refused.
    assert_eq!(verdict(0x4000_0000 | libc::SYS_openat, [0; 6]), TRAP);
    for (number, arguments, what) in [
        (libc::SYS_clone, [17, 0, 0, 0, 0, 0], "fork"),
        (libc::SYS_clone, [0x1000_0000, 0, 0, 0, 0, 0], "a user namespace"),
        (libc::SYS_mmap, [0, 4096, 7, 0x22, u64::MAX, 0], "code"),
        (libc::SYS_mprotect, [4096, 4096, 5, 0, 0, 0], "code"),
        (libc::SYS_socket, [1, 1, 0, 0, 0, 0], "a service of the host"),
        (libc::SYS_socket, [2, 1, 0, 0, 0, 0], "IPv4"),
        (libc::SYS_socket, [10, 2, 0, 0, 0, 0], "IPv6"),
        (libc::SYS_socket, [16, 3, 0, 0, 0, 0], "netlink"),
        (libc::SYS_socket, [17, 3, 0, 0, 0, 0], "packets"),
        (libc::SYS_connect, [3, 4096, 16, 0, 0, 0], "a connection"),
        (libc::SYS_bind, [3, 4096, 16, 0, 0, 0], "an address"),
        (libc::SYS_listen, [3, 5, 0, 0, 0, 0], "listening"),
        (libc::SYS_socketpair, [1, 2, 0, 0, 0, 0], "datagrams, which go anywhere"),
        (libc::SYS_socketpair, [2, 1, 0, 0, 0, 0], "another family"),
        (libc::SYS_sendto, [3, 4096, 1, 0, 4096, 110], "a datagram with an address"),
        (libc::SYS_sendto, [3, 4096, 1, 0x2000_0000, 0, 0], "MSG_FASTOPEN"),
        (libc::SYS_sendto, [3, 4096, 1, 0, 1 << 32, 110], "an address in its upper half"),
        (libc::SYS_sendmsg, [3, 4096, 0, 0, 0, 0], "an address in memory"),
        (libc::SYS_sendmmsg, [3, 4096, 1, 0, 0, 0], "an address in memory"),
        (libc::SYS_setsockopt, [3, 1, 26, 4096, 16, 0], "SO_ATTACH_FILTER"),
        (libc::SYS_setsockopt, [3, 0, 64, 4096, 16, 0], "IPT_SO_SET_REPLACE"),
        (libc::SYS_setsockopt, [3, 6, 31, 4096, 16, 0], "TCP_ULP"),
        (libc::SYS_setsockopt, [3, 6, 19, 4096, 4, 0], "TCP_REPAIR"),
        (libc::SYS_io_uring_setup, [8, 4096, 0, 0, 0, 0], "a ring"),
        (libc::SYS_io_uring_register, [3, 9, 0, 0, 0, 0], "a personality"),
        (libc::SYS_io_uring_register, [3, 1 << 31 | 12, 0, 0, 0, 0], "a registered ring"),
        (libc::SYS_io_uring_register, [u64::MAX, 31, 4096, 1, 0, 0], "a message between rings"),
        (libc::SYS_fcntl, [3, 8, 1, 0, 0, 0], "F_SETOWN"),
        (libc::SYS_fcntl, [3, 15, 4096, 0, 0, 0], "F_SETOWN_EX"),
        (libc::SYS_fcntl, [3, 10, 9, 0, 0, 0], "F_SETSIG"),
        (libc::SYS_fcntl, [3, 1024, 1, 0, 0, 0], "F_SETLEASE"),
        (libc::SYS_fcntl, [3, 1026, 1, 0, 0, 0], "F_NOTIFY"),
        (libc::SYS_fchmod, [3, 0o4755, 0, 0, 0, 0], "set-user-ID"),
        (libc::SYS_fchmodat, [u64::MAX, 4096, 0o4755, 0, 0, 0], "set-user-ID"),
        (libc::SYS_fchmodat, [u64::MAX, 4096, 0o2755, 0, 0, 0], "set-group-ID at a path"),
        (syscalls::FCHMODAT2, [3, 4096, 0o4755, 0x1000, 0, 0], "set-user-ID"),
        (libc::SYS_mknodat, [3, 4096, 0o104_755, 0, 0, 0], "set-user-ID"),
        (libc::SYS_mkdirat, [3, 4096, 0o4755, 0, 0, 0], "set-user-ID"),
        (libc::SYS_fanotify_init, [4 | 0x200, 0, 0, 0, 0, 0], "FAN_CLASS_CONTENT"),
        (libc::SYS_fanotify_init, [8 | 0x400, 0, 0, 0, 0, 0], "FAN_CLASS_PRE_CONTENT"),
        (libc::SYS_fanotify_init, [2, 0, 0, 0, 0, 0], "open files in events"),
        (libc::SYS_fanotify_mark, [3, 0x101, 2, 4, 0, 0], "a whole file system"),
        (libc::SYS_fanotify_mark, [3, 0x11, 2, 4, 0, 0], "a whole mount"),
        (libc::SYS_fanotify_mark, [3, 1, 0x10000, 4, 0, 0], "FAN_OPEN_PERM"),
        (libc::SYS_fanotify_mark, [3, 1, 0x20, 4, 0, 0], "FAN_OPEN"),
        (libc::SYS_fanotify_mark, [3, 1, 1 << 32, 4, 0, 0], "an event of later kernels"),
        (libc::SYS_fanotify_mark, [3, 1, 2, 4, 4096, 0], "a file at a path"),
        (libc::SYS_quotactl_fd, [3, 0x80_0001 << 8, 0, 0, 0, 0], "Q_SYNC"),
        (libc::SYS_quotactl_fd, [3, 0x80_0003 << 8, 0, 0, 0, 0], "Q_QUOTAOFF"),
        (libc::SYS_madvise, [4096, 4096, 100, 0, 0, 0], "MADV_HWPOISON"),
        (libc::SYS_madvise, [4096, 4096, 101, 0, 0, 0], "MADV_SOFT_OFFLINE"),
        (libc::SYS_prlimit64, [1, 0, 4096, 0, 0, 0], "limits of another process"),
        (libc::SYS_sched_setaffinity, [1, 8, 4096, 0, 0, 0], "processors of another process"),
        (libc::SYS_ioctl, [0, 0x5412, 0, 0, 0, 0], "TIOCSTI"),
        (libc::SYS_prctl, [4, 1, 0, 0, 0, 0], "PR_SET_DUMPABLE"),
        (libc::SYS_tgkill, [1, 1, 9, 0, 0, 0], "another process"),
        (libc::SYS_kill, [1, 9, 0, 0, 0, 0], "another process"),
        (libc::SYS_setresuid, [0; 6], "another user"),
        (libc::SYS_setuid, [0; 6], "another user"),
        (libc::SYS_capset, [0; 6], "capabilities"),
    ] {
        assert_eq!(verdict(number, arguments), TRAP, "{what}");
    }
}

#[test]
fn users_are_acted_as_where_the_configuration_says_so() {
    let needs = Needs { acts_as_users: true, ..Needs::default() };
    for number in syscalls::USERS {
        assert_eq!(verdict(*number, [0; 6]), TRAP, "{number}");
        assert_eq!(verdict_at(ARCHES[0], &needs, *number, [0; 6]), ALLOW, "{number}");
    }
    assert_eq!(verdict_at(ARCHES[0], &needs, libc::SYS_setuid, [0; 6]), TRAP);
}

/// Calls whose arguments do not matter are those that the kernel remembers.
#[test]
fn no_call_is_in_two_lists() {
    let mut all =
        [syscalls::ALLOWED, syscalls::ALLOWED_OLD, syscalls::HOSTILE, syscalls::HOSTILE_OLD]
            .concat();
    all.extend([syscalls::USERS, syscalls::BY_ARGUMENTS, syscalls::BY_ARGUMENTS_OLD].concat());
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
}

#[test]
fn netlink_is_for_rdma_alone() {
    let with = Needs { uses_rdma: true, ..Needs::default() };
    let socket = |protocol| {
        let arguments = [16, 3, protocol, 0, 0, 0];
        verdict_at(ARCHES[0], &with, libc::SYS_socket, arguments)
    };
    assert_eq!((socket(0), socket(20)), (ALLOW, ALLOW));
    for other in [2, 4, 6, 9, 12, 15, 16] {
        assert_eq!(socket(other), TRAP, "{other}");
    }
    for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_ALG] {
        let arguments = [family.unsigned_abs().into(), 1, 0, 0, 0, 0];
        assert_eq!(verdict_at(ARCHES[0], &with, libc::SYS_socket, arguments), TRAP, "{family}");
    }
}

#[test]
fn datagrams_are_for_quic_alone() {
    let with = Needs { uses_quic: true, ..Needs::default() };
    let both = Needs { uses_quic: true, uses_rdma: true, ..Needs::default() };
    for needs in [&with, &both, &Needs::default()] {
        let is_allowed = |call, arguments| verdict_at(ARCHES[0], needs, call, arguments) == ALLOW;
        let (sends, receives) = (libc::SYS_sendmsg, libc::SYS_recvmmsg);
        assert_eq!(is_allowed(sends, [3, 4096, 0, 0, 0, 0]), needs.uses_quic);
        assert_eq!(is_allowed(receives, [3, 4096, 32, 0, 0, 0]), needs.uses_quic);
        assert!(!is_allowed(sends, [3, 4096, 0x2000_0000, 0, 0, 0]), "MSG_FASTOPEN");
    }
}

const HELPERS: &[Helper] = &[
    Helper::Discovery,
    Helper::NamesKeeper,
    Helper::Names { network: false },
    Helper::Names { network: true },
    Helper::Directory,
    Helper::Targets,
    Helper::Scanners,
    Helper::Ldap,
    Helper::Winbind,
    Helper::Hands { disks: false },
    Helper::Hands { disks: true },
    Helper::SnapshotHands,
    #[cfg(feature = "traces")]
    Helper::Traces,
];

/// The strictest verdict of a helper's filters.
fn verdict_in(helper: Helper, number: i64, arguments: [u64; 6]) -> u32 {
    let verdicts =
        helper.programs().unwrap().map(|program| run(&program, ARCHES[0], number, arguments));
    verdicts.into_iter().min_by_key(|verdict| verdict.cast_signed()).unwrap()
}

/// No process of the product may do this.
#[test]
fn no_helper_leaves_its_place() {
    for helper in HELPERS {
        for (number, arguments, what) in [
            (libc::SYS_unshare, [0x1000_0000, 0, 0, 0, 0, 0], "a user namespace"),
            (libc::SYS_clone, [0x1000_0011, 0, 0, 0, 0, 0], "a user namespace"),
            (libc::SYS_ptrace, [0; 6], "another process"),
            (libc::SYS_mount, [0; 6], "a mount"),
            (libc::SYS_bpf, [0; 6], "a program in the kernel"),
            (libc::SYS_keyctl, [0; 6], "keys"),
            (libc::SYS_io_uring_setup, [8, 4096, 0, 0, 0, 0], "a ring"),
            (libc::SYS_mmap, [0, 4096, 7, 0x22, u64::MAX, 0], "memory that is written and run"),
            (libc::SYS_mmap, [0, 4096, 5, 0x22, u64::MAX, 0], "code without a file"),
            (libc::SYS_mprotect, [4096, 4096, 5, 0, 0, 0], "code that was written"),
            (libc::SYS_prlimit64, [1, 0, 4096, 0, 0, 0], "another process"),
            (libc::SYS_sched_setaffinity, [1, 8, 4096, 0, 0, 0], "another process"),
            (libc::SYS_fcntl, [3, 8, 1, 0, 0, 0], "signals by a file"),
            (libc::SYS_memfd_create, [0; 6], "a file in memory"),
            (libc::SYS_sendto, [3, 4096, 1, 0x2000_0000, 4096, 16], "MSG_FASTOPEN"),
            (libc::SYS_sendmsg, [3, 4096, 0x2000_0000, 0, 0, 0], "MSG_FASTOPEN"),
            (libc::SYS_socket, [17, 3, 3, 0, 0, 0], "packets"),
            (libc::SYS_socket, [38, 5, 0, 0, 0, 0], "cryptography of the kernel"),
            (libc::SYS_socket, [40, 1, 0, 0, 0, 0], "the host of a virtual machine"),
            (libc::SYS_socket, [2, 1, 262, 0, 0, 0], "MPTCP"),
            (libc::SYS_socket, [2, 1, 132, 0, 0, 0], "SCTP"),
            (libc::SYS_socket, [2, 3, 1, 0, 0, 0], "a raw socket"),
            (libc::SYS_socket, [16, 3, 12, 0, 0, 0], "the packet filter"),
            (libc::SYS_ioctl, [0, 0x5412, 0, 0, 0, 0], "TIOCSTI"),
            (libc::SYS_fchmodat, [u64::MAX, 4096, 0o4755, 0, 0, 0], "a mode"),
            (libc::SYS_openat2, [3, 4096, 4096, 24, 0, 0], "openat2"),
            (libc::SYS_unlinkat, [3, 4096, 0, 0, 0, 0], "removing"),
        ] {
            assert_ne!(verdict_in(*helper, number, arguments), ALLOW, "{helper:?}: {what}");
        }
        let may = |number, arguments| verdict_in(*helper, number, arguments) == ALLOW;
        let is_starter = matches!(helper, Helper::NamesKeeper | Helper::Winbind);
        assert_eq!(may(libc::SYS_execve, [0; 6]), *helper == Helper::Winbind, "{helper:?}");
        assert_eq!(may(libc::SYS_clone, [0x0120_0011, 0, 0, 0, 0, 0]), is_starter, "{helper:?}");
        assert_eq!(may(libc::SYS_kill, [1, 15, 0, 0, 0, 0]), is_starter, "{helper:?}");
        assert_eq!(may(libc::SYS_listen, [3, 5, 0, 0, 0, 0]), *helper == Helper::Discovery);
        // Starting a thread, getting memory and waiting are always allowed.
        for (number, arguments) in [
            (libc::SYS_clone, [0x003D_0F00, 0, 0, 0, 0, 0]),
            (libc::SYS_mmap, [0, 4096, 3, 0x22, u64::MAX, 0]),
            (libc::SYS_madvise, [4096, 4096, 4, 0, 0, 0]),
            (libc::SYS_read, [0; 6]),
            (libc::SYS_futex, [0; 6]),
        ] {
            assert!(may(number, arguments), "{helper:?}: {number}");
        }
    }
}

/// Commands to disks are those of a node whose disks are fenced.
#[test]
fn commands_to_disks_need_a_fence_of_disks() {
    for helper in HELPERS {
        let verdict = verdict_in(*helper, libc::SYS_ioctl, [3, 0x2285, 4096, 0, 0, 0]);
        let has_disks = *helper == Helper::Hands { disks: true };
        assert_eq!(verdict == ALLOW, has_disks, "{helper:?}");
    }
    // The file of registrations is written then alone.
    for call in [libc::SYS_ftruncate, libc::SYS_pwrite64, libc::SYS_fdatasync] {
        for disks in [true, false] {
            let verdict = verdict_in(Helper::Hands { disks }, call, [3, 0, 0, 0, 0, 0]);
            assert_eq!(verdict == ALLOW, disks, "{call}");
        }
    }
}

/// Snapshots are made by their process, and nobody else makes a folder.
#[test]
fn one_process_makes_snapshots() {
    for helper in HELPERS {
        let makes = *helper == Helper::SnapshotHands;
        for request in [0x5000_9417, 0x5000_940F, 0x8008_9419] {
            let verdict = verdict_in(*helper, libc::SYS_ioctl, [3, request, 4096, 0, 0, 0]);
            assert_eq!(verdict == ALLOW, makes, "{helper:?}");
        }
        let verdict = verdict_in(*helper, libc::SYS_mkdirat, [3, 4096, 0o700, 0, 0, 0]);
        assert_eq!(verdict == ALLOW, makes, "{helper:?}");
    }
}

/// Each helper has the sockets of those that it asks.
#[test]
fn helpers_have_the_sockets_that_they_need() {
    for (helper, tcp, udp, unix) in [
        (Helper::Discovery, true, true, true),
        (Helper::Names { network: false }, false, false, true),
        (Helper::Names { network: true }, true, true, true),
        (Helper::Directory, true, true, true),
        (Helper::Targets, true, true, true),
        (Helper::Scanners, true, true, true),
        (Helper::Ldap, true, true, true),
        (Helper::Winbind, false, false, true),
        (Helper::Hands { disks: true }, true, true, true),
        (Helper::SnapshotHands, false, false, true),
        #[cfg(feature = "traces")]
        (Helper::Traces, true, false, false),
    ] {
        let may = |family: u64, kind: u64, protocol: u64| {
            verdict_in(helper, libc::SYS_socket, [family, kind, protocol, 0, 0, 0]) == ALLOW
        };
        for family in [2, 10] {
            assert_eq!((may(family, 0o2_004_001, 0), may(family, 1, 6)), (tcp, tcp), "{helper:?}");
            assert_eq!((may(family, 2, 0), may(family, 2, 17)), (udp, udp), "{helper:?}");
        }
        assert_eq!(may(1, 1, 0), unix, "{helper:?}");
    }
}

/// docs/confinement.md tells for each call of the allow list what an attacker would do with it.
#[test]
fn every_allowed_call_is_thought_about() {
    let names = |text: &str, begin: &str| -> Vec<String> {
        let list = text.split_once(begin).unwrap().1.split_once("];").unwrap().0;
        let lines = list.lines().filter(|line| !line.trim().starts_with("//"));
        let items =
            lines.flat_map(|line| line.split(',')).map(|item| item.trim_matches([' ', '&', '[']));
        let name = |item: &str| {
            item.rsplit("::").next().unwrap().trim_start_matches("SYS_").to_lowercase()
        };
        items.filter(|item| !item.is_empty()).map(name).collect()
    };
    let code = include_str!("../syscalls.rs");
    let mut allowed = Vec::new();
    let lists =
        ["BY_ARGUMENTS", "BY_ARGUMENTS_OLD", "RDMA", "QUIC", "ALLOWED", "ALLOWED_OLD", "USERS"];
    for list in lists {
        let mut list = names(code, &format!("const {list}: &[i64] ="));
        assert!(!list.is_empty());
        allowed.append(&mut list);
    }
    let page = include_str!("../../../../../../docs/confinement.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let mut told: Vec<String> = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert!(cells.len() == 5 && cells[2..4].iter().all(|cell| cell.len() > 3), "{row}");
        told.extend(cells[1].split('`').skip(1).step_by(2).map(String::from));
    }
    allowed.sort_unstable();
    told.sort_unstable();
    let lacks: Vec<_> = allowed.iter().filter(|name| !told.contains(name)).collect();
    let extra: Vec<_> = told.iter().filter(|name| !allowed.contains(name)).collect();
    assert!(lacks.is_empty() && extra.is_empty(), "lacks {lacks:?}, has also {extra:?}");
    assert_eq!(allowed, told, "a call is told twice");
}
