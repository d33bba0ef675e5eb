//! Scans for viruses.

use std::time::Duration;

/// Files of one account that wait for a scan of one service.
pub const SCANS_WAITING_PER_USER: usize = 256;

/// Files of all accounts that wait for a scan of one service.
pub const SCANS_WAITING: usize = 4_096;

/// Results of one service that are remembered. Those of files that were not asked for lately are forgotten
/// first.
pub const SCAN_RESULTS: usize = 65_536;

/// Memory of a file that waits for a scan in the background, bytes.
pub const SCAN_JOB_BYTES: usize = 1_024;

/// Scans that an open waits for, one after the other, of a file that changes while it is scanned.
pub const SCANS_PER_OPEN: usize = 4;

/// Time for which the version of a service's signatures counts, before it is asked for again.
pub const SIGNATURES_FOR: Duration = Duration::from_secs(300);

/// Time for which the last version counts of a service that does not answer.
pub const SIGNATURES_AGAIN: Duration = Duration::from_secs(30);

/// Time for which a service counts as out of reach after an attempt to connect has failed.
pub const SCANNER_PAUSE: Duration = Duration::from_secs(2);

/// Longest time of an attempt to connect with a service that scans, and of the question for its version.
pub const SCANNER_CONNECT: Duration = Duration::from_secs(5);

/// The age of the last change of a file from which on a later change has another time. The kernel's clock
/// of files moves in ticks of up to 10 ms.
pub const CHANGE_TICK: Duration = Duration::from_millis(20);

/// Time beyond that of a scan after which an open waits no longer, whatever the scan does.
pub const SCAN_SLACK: Duration = Duration::from_secs(2);

/// Bytes of the files in a folder of quarantine beyond which none is moved there.
pub const QUARANTINE_BYTES: u64 = 1 << 30;

/// Files in a folder of quarantine beyond which none is moved there.
pub const QUARANTINE_FILES: usize = 10_000;

/// Time between two looks at whether anybody still waits for a scan.
pub const SCAN_LOOK: Duration = Duration::from_millis(250);
