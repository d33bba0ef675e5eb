//! Limits of the process that makes snapshots.

use std::time::Duration;

/// Time in which the process has opened what it needs after its start.
pub const START_PATIENCE: Duration = Duration::from_secs(30);

/// Time in which a program of ZFS or LVM answers; then it is ended.
pub const PROGRAM_PATIENCE: Duration = Duration::from_secs(120);

/// Snapshots of LVM that are mounted in one go. Then other requests have their turn.
pub const MOUNTED_AT_ONCE: usize = 16;

/// Time between two looks at a program that runs.
pub const PROGRAM_LOOKS: Duration = Duration::from_millis(10);

/// Time for which the server waits for an act. The act may go on, and its effect is seen in the next list.
pub const ACT_PATIENCE: Duration = Duration::from_secs(180);

/// Bytes that a program may print: a line for each of the snapshots of a dataset or a volume group.
pub const OUTPUT_BYTES: u64 = 16 << 20;

/// Bytes of the list of mounts.
pub const MOUNT_LIST_BYTES: u64 = 16 << 20;

/// Bytes of the set-up: that of a server with as many shares as its configuration can have.
pub const SET_UP_BYTES: u64 = 64 << 20;

/// Subvolumes in a share that are named: snapshots do not have them.
pub const NESTED_NAMED: usize = 3;
