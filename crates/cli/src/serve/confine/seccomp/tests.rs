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
            // BPF_LD | BPF_W | BPF_ABS
            0x20 => {
                let from = step.k as usize;
                accumulator = u32::from_le_bytes(data[from..from + 4].try_into().unwrap());
            }
            // BPF_ALU | BPF_AND | BPF_K
            0x54 => accumulator &= step.k,
            // BPF_JMP: JA, JEQ, JGT, JGE
            0x05 => at += step.k as usize,
            0x15 => at += jump(accumulator == step.k),
            0x25 => at += jump(accumulator > step.k),
            0x35 => at += jump(accumulator >= step.k),
            // BPF_RET
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
    assert_eq!(verdict(libc::SYS_socket, [1, 2, 0, 0, 0, 0]), ALLOW);
    assert_eq!(verdict(libc::SYS_prctl, [15, 0, 0, 0, 0, 0]), ALLOW);
    let own = u64::from(std::process::id());
    assert_eq!(verdict(libc::SYS_tgkill, [own, own, 6, 0, 0, 0]), ALLOW);
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
    // Nor are there other architectures' calls.
    for number in [1, 11, 59, 221] {
        assert_eq!(verdict_at(ARCHES[1], &Needs::default(), number, [0; 6]), KILL);
    }
}

#[test]
fn everything_else_is_refused() {
    let known: Vec<i64> =
        [syscalls::ALLOWED, syscalls::ALLOWED_OLD, syscalls::HOSTILE, syscalls::HOSTILE_OLD]
            .concat()
            .into_iter()
            .chain([libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_clone, libc::SYS_ioctl])
            .chain([libc::SYS_prctl, libc::SYS_socket, libc::SYS_tgkill])
            .collect();
    for number in (0..1_000).filter(|number| !known.contains(number)) {
        assert_eq!(verdict(number, [0; 6]), TRAP, "{number}");
    }
    // x32: the same numbers with bit 30.
    assert_eq!(verdict(0x4000_0000 | libc::SYS_openat, [0; 6]), TRAP);
    for (number, arguments, what) in [
        (libc::SYS_clone, [17, 0, 0, 0, 0, 0], "fork"),
        (libc::SYS_clone, [0x1000_0000, 0, 0, 0, 0, 0], "a user namespace"),
        (libc::SYS_mmap, [0, 4096, 7, 0x22, u64::MAX, 0], "code"),
        (libc::SYS_mprotect, [4096, 4096, 5, 0, 0, 0], "code"),
        (libc::SYS_socket, [2, 1, 0, 0, 0, 0], "IPv4"),
        (libc::SYS_socket, [10, 2, 0, 0, 0, 0], "IPv6"),
        (libc::SYS_socket, [17, 3, 0, 0, 0, 0], "packets"),
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
    all.extend(syscalls::USERS);
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
}

#[test]
fn streams_are_for_a_collector_alone() {
    let socket = |needs: &Needs, family: i32, kind: i32| {
        let arguments = [family.unsigned_abs().into(), kind.unsigned_abs().into(), 0, 0, 0, 0];
        verdict_at(ARCHES[0], needs, libc::SYS_socket, arguments)
    };
    let stream = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let with = Needs { connects_to: Some(4318), ..Needs::default() };
    for family in [libc::AF_INET, libc::AF_INET6] {
        assert_eq!(socket(&Needs::default(), family, stream), TRAP);
        assert_eq!(socket(&with, family, stream), ALLOW);
        for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET] {
            assert_eq!(socket(&with, family, kind), TRAP, "{kind}");
        }
    }
    assert_eq!(socket(&with, libc::AF_PACKET, stream), TRAP);
}
