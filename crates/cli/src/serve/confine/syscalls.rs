//! System calls by name: those that serving takes, those that only an attacker makes.
//!
//! The list of what is allowed is what the server's own code calls, with what the same
//! functions of glibc and of other C libraries and kernels call in their place. A call that
//! is missing is refused and logged once; the tests of `serve` and the interop runs, which
//! are confined, show none.

/// Numbers that all architectures have in common, newer than some C libraries.
mod new {
    pub(super) const CACHESTAT: i64 = 451;
    pub(super) const FUTEX_WAKE: i64 = 454;
    pub(super) const FUTEX_WAIT: i64 = 455;
    pub(super) const FUTEX_REQUEUE: i64 = 456;
    pub(in crate::serve::confine) const FCHMODAT2: i64 = 452;
    pub(super) const SETXATTRAT: i64 = 463;
    pub(super) const GETXATTRAT: i64 = 464;
    pub(super) const LISTXATTRAT: i64 = 465;
    pub(super) const REMOVEXATTRAT: i64 = 466;
}

pub(super) use new::FCHMODAT2;

/// Calls whose arguments decide, in `super::seccomp`.
#[cfg(test)]
pub(super) const BY_ARGUMENTS: &[i64] = &[
    // These system calls for data and names are allowed only with some arguments.
    libc::SYS_io_uring_register,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_quotactl_fd,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    // These system calls for sockets are allowed only with some arguments.
    libc::SYS_socketpair,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    // These system calls for memory, threads and limits are allowed only with some arguments.
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_clone,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_tgkill,
];

/// The old forms of these calls, which newer architectures do not have.
#[cfg(all(test, target_arch = "x86_64"))]
pub(super) const BY_ARGUMENTS_OLD: &[i64] = &[libc::SYS_chmod, libc::SYS_mkdir, libc::SYS_mknod];
#[cfg(all(test, not(target_arch = "x86_64")))]
pub(super) const BY_ARGUMENTS_OLD: &[i64] = &[];

/// Calls of RDMA, whose libraries ask the kernel over netlink.
pub(super) const RDMA: &[i64] = &[libc::SYS_bind, libc::SYS_sendmsg];

/// Calls of QUIC, which receives several datagrams at once.
pub(super) const QUIC: &[i64] = &[libc::SYS_recvmmsg];

/// Calls that are allowed whatever their arguments. The kernel remembers these and does
/// not run the filter for them (Linux 5.11).
pub(super) const ALLOWED: &[i64] = &[
    // Serving reads and writes data with these system calls.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_vmsplice,
    libc::SYS_copy_file_range,
    libc::SYS_lseek,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    new::CACHESTAT,
    libc::SYS_io_uring_enter,
    // Serving opens, renames and removes names with these system calls.
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_flock,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_readlinkat,
    libc::SYS_umask,
    // Serving reads and changes metadata with these system calls.
    libc::SYS_statx,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fchown,
    // A change of a folder with set-group-ID needs setfsgid; a capability limits its use.
    libc::SYS_setfsgid,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_fgetxattr,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_flistxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    new::GETXATTRAT,
    new::SETXATTRAT,
    new::LISTXATTRAT,
    new::REMOVEXATTRAT,
    // Serving notices changes by other programs with these system calls.
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch,
    libc::SYS_name_to_handle_at,
    // These calls use sockets that were made before the confinement began. None makes a socket.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_shutdown,
    libc::SYS_memfd_create,
    // Serving waits for events with these system calls.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    new::FUTEX_WAKE,
    new::FUTEX_WAIT,
    new::FUTEX_REQUEUE,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    // Serving gets and returns memory with these system calls.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_membarrier,
    libc::SYS_getrandom,
    // Serving controls its own threads and signals with these system calls.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpgid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getresuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_capget,
    libc::SYS_getcpu,
    libc::SYS_getrusage,
    libc::SYS_sched_getaffinity,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_times,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    // A filter cannot read the arguments of clone3, so clone3 is allowed here, and another filter
    // answers it with ENOSYS.
    libc::SYS_clone3,
];

/// The old forms of the same calls, which newer architectures do not have.
#[cfg(target_arch = "x86_64")]
pub(super) const ALLOWED_OLD: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_getdents,
    libc::SYS_rmdir,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_unlink,
    libc::SYS_symlink,
    libc::SYS_readlink,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_renameat,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_inotify_init,
    libc::SYS_pipe,
    libc::SYS_dup2,
    libc::SYS_getrlimit,
    libc::SYS_getpgrp,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const ALLOWED_OLD: &[i64] = &[libc::SYS_renameat];

/// Calls of each process that helps the server: sockets, waiting, memory, threads, and questions
/// about files. Those with arguments that decide are in `super::seccomp::helpers`.
pub(super) const HELPER: &[i64] = &[
    // A helper uses standard input and output and its sockets with these system calls.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_connect,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
    libc::SYS_bind,
    // Libraries open files, such as the time zone and settings of the allocator.
    libc::SYS_openat,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_faccessat,
    libc::SYS_readlinkat,
    // A helper waits for events with these system calls.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    libc::SYS_futex,
    new::FUTEX_WAKE,
    new::FUTEX_WAIT,
    new::FUTEX_REQUEUE,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    // A helper gets and returns memory with these system calls.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_membarrier,
    libc::SYS_getrandom,
    // A helper controls its own threads and signals with these system calls.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getcpu,
    libc::SYS_sched_getaffinity,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // A filter cannot read the arguments of clone3, so clone3 is allowed here, and another filter
    // answers it with ENOSYS.
    libc::SYS_clone3,
];

/// The old forms of these calls.
#[cfg(target_arch = "x86_64")]
pub(super) const HELPER_OLD: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_poll,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_pipe,
    libc::SYS_dup2,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const HELPER_OLD: &[i64] = &[];

/// Further calls of the process that announces the server: listening, and sockets of this process
/// that the library of mDNS finds by their number.
pub(super) const DISCOVERY: &[i64] =
    &[libc::SYS_listen, libc::SYS_accept4, libc::SYS_pidfd_open, libc::SYS_pidfd_getfd];

/// Further calls of the C library's resolver and of modules of the name service, which read and map
/// files.
pub(super) const MODULES: &[i64] = &[
    libc::SYS_pread64,
    libc::SYS_getdents64,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_getcwd,
    libc::SYS_pselect6,
    libc::SYS_mlock,
    libc::SYS_munlock,
    libc::SYS_getgroups,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_capget,
    libc::SYS_getsid,
    libc::SYS_getpgid,
    libc::SYS_getrusage,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_flock,
    libc::SYS_umask,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigpending,
];

/// The old forms of these calls.
#[cfg(target_arch = "x86_64")]
pub(super) const MODULES_OLD: &[i64] = &[
    libc::SYS_lstat,
    libc::SYS_getdents,
    libc::SYS_select,
    libc::SYS_getrlimit,
    libc::SYS_getpgrp,
];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const MODULES_OLD: &[i64] = &[];

/// Further calls of a process that starts others: the keeper of the process that asks the name
/// service, and processes that run programs of Samba.
pub(super) const STARTING: &[i64] = &[
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_kill,
    libc::SYS_setsid,
    libc::SYS_setpgid,
    // The started process installs a seccomp filter of its own, so this call stays allowed.
    libc::SYS_seccomp,
];

/// The old forms of these calls.
#[cfg(target_arch = "x86_64")]
pub(super) const STARTING_OLD: &[i64] = &[libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const STARTING_OLD: &[i64] = &[];

/// Further calls of programs of Samba. They run as nobody below the same filters.
pub(super) const PROGRAMS: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_pwrite64,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_getitimer,
    libc::SYS_setitimer,
    libc::SYS_getpriority,
    libc::SYS_get_robust_list,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_personality,
];

/// The old forms of these calls.
#[cfg(target_arch = "x86_64")]
pub(super) const PROGRAMS_OLD: &[i64] = &[libc::SYS_alarm, libc::SYS_pause];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const PROGRAMS_OLD: &[i64] = &[];

/// Requests of `ioctl(2)` that helping processes make: numbers and names of interfaces; what the
/// standard library does.
pub(super) const HELPER_IOCTLS: &[u64] = &[
    0x8933, // SIOCGIFINDEX
    0x8910, // SIOCGIFNAME
    0x541B, // FIONREAD
    0x5421, // FIONBIO
    0x5450, // FIONCLEX
    0x5451, // FIOCLEX
    0x5401, // TCGETS
];

/// Calls that change as whom a thread acts.
pub(super) const USERS: &[i64] = &[libc::SYS_setresuid, libc::SYS_setresgid, libc::SYS_setgroups];

/// Calls that no part of the server makes, and that an attacker makes early: they end
/// the process.
pub(super) const HOSTILE: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_vhangup,
];

/// The same, where only some architectures have them.
#[cfg(target_arch = "x86_64")]
pub(super) const HOSTILE_OLD: &[i64] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_kexec_file_load,
    libc::SYS_ioperm,
    libc::SYS_iopl,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const HOSTILE_OLD: &[i64] = &[];

/// Requests of `ioctl(2)` that the server makes: cloning, attributes, compression and extents of
/// files; the UUID of a file system; names of a file of btrfs; bytes that wait in a socket or pipe; what the standard library does.
pub(super) const IOCTLS: &[u64] = &[
    0x4004_9409, // FICLONE
    0x4020_940D, // FICLONERANGE
    0xC018_9436, // FIDEDUPERANGE
    0x8008_6601, // FS_IOC_GETFLAGS
    0x4008_6602, // FS_IOC_SETFLAGS
    0x8011_1500, // FS_IOC_GETFSUUID
    0xC020_660B, // FS_IOC_FIEMAP
    0xC038_9423, // BTRFS_IOC_INO_PATHS
    0x541B,      // FIONREAD
    0x5421,      // FIONBIO
    0x5450,      // FIONCLEX
    0x5451,      // FIOCLEX
    0x5411,      // TIOCOUTQ
    0x5401,      // TCGETS
    0x5413,      // TIOCGWINSZ
];

/// Further calls of the process with rights: the names of a client of CephFS are attributes.
pub(super) const HANDS: &[i64] = &[libc::SYS_getxattr, libc::SYS_lgetxattr];

/// Further calls of the process with rights where disks are fenced: it keeps its registrations in a file.
pub(super) const HANDS_OF_DISKS: &[i64] =
    &[libc::SYS_ftruncate, libc::SYS_pwrite64, libc::SYS_fdatasync];

/// Requests of `ioctl(2)` to a disk of SCSI: SG_IO of scsi/sg.h.
pub(super) const DISK_IOCTLS: &[u64] = &[0x2285];

/// Further calls of the process that makes snapshots.
pub(super) const SNAPSHOT_HANDS: &[i64] = &[libc::SYS_mkdirat];

/// Requests of `ioctl(2)` about snapshots, of linux/btrfs.h.
pub(super) const SNAPSHOT_IOCTLS: &[u64] = &[
    0x5000_9417, // BTRFS_IOC_SNAP_CREATE_V2
    0x5000_940F, // BTRFS_IOC_SNAP_DESTROY
    0x8008_9419, // BTRFS_IOC_SUBVOL_GETFLAGS
];

/// Requests of `ioctl(2)` to an RDMA device: RDMA_VERBS_IOCTL of rdma/rdma_user_ioctl_cmds.h.
pub(super) const RDMA_IOCTLS: &[u64] = &[0xC018_1B01];

/// Commands of `fcntl(2)` that helping processes use: as in the server, and locks of processes, which
/// databases of Samba take.
pub(super) const HELPER_FCNTLS: &[u64] = &[
    0,    // F_DUPFD
    1,    // F_GETFD
    2,    // F_SETFD
    3,    // F_GETFL
    4,    // F_SETFL
    5,    // F_GETLK
    6,    // F_SETLK
    7,    // F_SETLKW
    36,   // F_OFD_GETLK
    37,   // F_OFD_SETLK
    38,   // F_OFD_SETLKW
    1030, // F_DUPFD_CLOEXEC
];

/// Further options of `prctl(2)` for processes that start others: PR_SET_PDEATHSIG,
/// PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS.
pub(super) const PRCTLS_OF_STARTING: &[u64] = &[1, 22, 38, 39];

/// Options of `prctl(2)`: names of threads and of memory, and questions.
pub(super) const PRCTLS: &[u64] = &[
    15,          // PR_SET_NAME
    16,          // PR_GET_NAME
    3,           // PR_GET_DUMPABLE
    23,          // PR_CAPBSET_READ
    0x5356_4D41, // PR_SET_VMA
    0x4155_5856, // PR_GET_AUXV
];
