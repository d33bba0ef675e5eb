//! The log and the audit log.

use std::time::Duration;

/// Refused connections are logged once in this time, with their number.
pub const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Panics are logged once in this time, with their number.
pub const PANIC_LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Log lines about clients that one network may cause at once: 24 bits of an IPv4 address,
/// 48 bits of an IPv6 address.
pub const LINES_AT_ONCE_PER_NETWORK: u32 = 60;

/// After so long one more.
pub const LINE_INTERVAL_PER_NETWORK: Duration = Duration::from_millis(500);

/// Log lines about clients that all networks together may cause at once.
pub const LINES_AT_ONCE: u32 = 300;

/// After so long one more.
pub const LINE_INTERVAL: Duration = Duration::from_millis(100);

/// Networks whose log lines are counted.
pub const LINE_NETWORKS: usize = 4_096;

/// Bytes of one value in a log line of text.
pub const LOG_VALUE_BYTES: usize = 512;

/// Audit events that may wait to be written; one more is lost, and counted.
pub const AUDIT_QUEUE: usize = 65_536;

/// Bytes of audit events that may wait to be written.
pub const AUDIT_QUEUE_BYTES: usize = 16 << 20;

/// Audit events that are written by one system call.
pub const AUDIT_BATCH: usize = 1_024;

/// How long the first of them waits for more.
pub const AUDIT_PAUSE: Duration = Duration::from_millis(20);

/// No event is added to a write of so many bytes: control characters in names take six
/// times their size.
pub const AUDIT_WRITE_BYTES: usize = 256 << 10;

/// How long the writer of the audit log waits for the journal or syslog to take a line.
pub const AUDIT_SEND: Duration = Duration::from_secs(1);

/// How often the log says that audit events are lost.
pub const AUDIT_COMPLAINTS: Duration = Duration::from_secs(60);

/// Bytes of one value in the audit log.
pub const AUDIT_VALUE_BYTES: usize = 8_192;

/// An answer to a logon that waited for so long because others failed before is in the
/// audit log.
pub const THROTTLE_TOLD: Duration = Duration::from_millis(100);
