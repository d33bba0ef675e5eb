//! Limits. docs/limits.md has a line for each.

use std::time::Duration;

/// Bytes that are read of a file of the kernel, and of an answer of ceph-fuse.
pub const TEXT_BYTES: u64 = 1 << 20;

/// Bytes that `ceph` may print: a blocklist of some 170,000 clients.
pub const CEPH_ANSWER_BYTES: u64 = 16 << 20;

/// Clients of an NFS server, and sockets of ceph-fuse, that are looked at.
pub const ENTRIES: usize = 4_096;

/// Bytes of the file with this node's registrations. It is written anew when changes fill it.
pub const KEYS_FILE_BYTES: u64 = 64 << 10;

/// Keys of reservation that a disk may tell.
pub const KEYS: usize = 1_024;

/// Time for one command of a disk.
pub const DISK_PATIENCE: Duration = Duration::from_secs(10);

/// Time for the paths to a disk, if one has answered. Others are left out.
pub const PATH_PATIENCE: Duration = Duration::from_secs(3);

/// Times that a command is sent to a disk that reports a change of its state first.
pub const DISK_TRIES: usize = 5;

/// Disks below one file system.
pub const DISKS: usize = 16;

/// Time for an answer of ceph-fuse.
pub const CEPH_SOCKET_PATIENCE: Duration = Duration::from_secs(3);

/// Time for the program `ceph`, which waits for the monitors at most 10 s.
pub const CEPH_PATIENCE: Duration = Duration::from_secs(20);

/// Time for which a client of CephFS stays on the blocklist.
pub const CEPH_BLOCKED: Duration = Duration::from_secs(86_400);

/// Time after which the kernel takes an address away that nobody keeps, rounded up by up to a second.
pub const ADDRESS_LIFE: Duration = Duration::from_secs(2);

/// Interval at which addresses are kept, and at which the limit is looked at.
pub const ADDRESS_INTERVAL: Duration = Duration::from_millis(200);

/// Moments after a change at which an address is announced.
pub const ANNOUNCED: [Duration; 3] =
    [Duration::ZERO, Duration::from_millis(400), Duration::from_millis(2_000)];

/// Connections at an address that are ended at a time before the address leaves.
pub const RESET_AT_ONCE: usize = 16_384;

/// Times that connections at an address are looked for: clients connect again until it has left.
pub const RESET_PASSES: usize = 8;

/// Pause between two looks at the connections of a server that has ended, whose sockets the kernel closes.
pub const SETTLE_PAUSE: Duration = Duration::from_millis(10);

/// Pauses before the addresses of a server that has ended leave.
pub const SETTLE_PAUSES: usize = 5;

/// Bytes of one request to the process with rights, and of its answer.
pub const PACKET_BYTES: usize = 8_192;

/// Characters of a fault that the process with rights tells.
pub const FAULT_CHARACTERS: usize = 1_000;

/// Acts of one kind (connections with etcd, looks at storage, fences) that the process with rights has
/// under way at the same time.
pub const ACTS_AT_ONCE: usize = 64;

/// Identities that the process with rights has fenced within a minute. A server that an attacker has
/// taken over ends no more than these.
pub const FENCES_PER_MINUTE: usize = 128;

/// Requests of the server that wait for the process with rights.
pub const WAITING: usize = 256;

/// Time for one act.
pub const ACT_PATIENCE: Duration = Duration::from_secs(30);

/// Time for the start of the process with rights.
pub const START_PATIENCE: Duration = Duration::from_secs(10);

/// Time for one connection with etcd.
pub const DIAL_PATIENCE: Duration = Duration::from_secs(1);

/// Addresses of one endpoint that are tried.
pub const DIAL_TARGETS: usize = 4;
