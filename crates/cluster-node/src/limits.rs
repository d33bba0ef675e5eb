//! Limits. docs/limits.md has a line for each.

use std::time::Duration;

/// Happenings that a node keeps for status and the admin page.
pub const HAPPENINGS: usize = 512;

/// Changes of records that wait for the driver.
pub const CHANGES_WAITING: usize = 65_536;

/// Bytes of records that wait for the driver.
pub const CHANGE_BYTES_WAITING: usize = 64 << 20;

/// Messages that the driver takes in before other tasks have their turn.
pub const MESSAGES_AT_ONCE: usize = 256;

/// Time between an attempt to use a unit's storage and the next one.
pub const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Time between an attempt to stop a unit and the next one.
pub const STOP_AGAIN: Duration = Duration::from_secs(1);

/// Time between an attempt to set or remove addresses and the next one.
pub const ADDRESS_AGAIN: Duration = Duration::from_secs(1);

/// Time for which a planned move waits until addresses have left this machine.
pub const LOWER_PATIENCE: Duration = Duration::from_secs(1);

/// Time between two states of the cluster that the server is told.
pub const TELL_PAUSE: Duration = Duration::from_millis(20);

/// Time for which requests may go on when a share is given away, unless the caller sets another one.
pub const DRAIN_PATIENCE: Duration = Duration::from_secs(10);
