//! Limits of schedules and of lists of snapshots.

/// Snapshots that a schedule keeps for one period, such as days.
pub const KEPT_OF_A_PERIOD: u32 = 1_000;

/// Snapshots of one share in a list, the newest ones. With so many the server makes no further one.
pub const LISTED: usize = 10_000;

/// Bytes of the reason in an answer; the rest of a longer one is left out.
pub const REASON_BYTES: usize = 1_024;

/// Bytes of a message between the server and the process that makes snapshots: a list with its header.
pub const MESSAGE_BYTES: usize = 16 + 8 * LISTED;
