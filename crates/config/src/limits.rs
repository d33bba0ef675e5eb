//! Named limits of the configuration file.

/// The largest configuration file, bytes: 100,000 links of namespaces take about 12 MB.
pub const CONFIG_FILE_BYTES: usize = 32 << 20;

/// Shares that administrators can add over the network.
pub const NETWORK_SHARES: usize = 1_000;

/// Links of namespaces that administrators can make over the network.
pub const NETWORK_LINKS: usize = 10_000;

/// The largest file of namespaces that were made over the network, bytes.
pub const NETWORK_NAMESPACES_BYTES: u64 = 8 << 20;

/// The largest `max_io` and `max_transact`, bytes: the server has no larger requests.
pub const MAX_IO_MAX: u64 = 8 << 20;

/// The smallest that MaxReadSize, MaxWriteSize and MaxTransactSize may be
/// configured to, bytes: MS-SMB2 2.2.4 asks for this much.
pub const MAX_IO_MIN: u64 = 64 << 10;

/// The longest idle time of a session that may be configured, minutes: a year.
pub const IDLE_SESSION_MINUTES_MAX: u32 = 527_040;

/// The largest clock skew of Kerberos that may be configured, seconds. Tickets are remembered that
/// long, so that none is used twice.
pub const CLOCK_SKEW_SECONDS_MAX: u32 = 900;

/// Longest `keep_days` of a recycle bin: a hundred years.
pub const RECYCLE_DAYS_MAX: u32 = 36_525;

/// Largest counts of a minute or an hour in `[share.brake]`.
pub const BRAKE_COUNT_MAX: u16 = 500;

/// Largest `deletions_per_minute` of `[share.brake]`.
pub const BRAKE_DELETIONS_MAX: u32 = 1_000_000;

/// Largest `slow_to` of `[share.brake]`, changes a second.
pub const BRAKE_SLOW_MAX: u32 = 10_000;

/// Most paths in `except_paths` of `[share.brake]`.
pub const BRAKE_PATHS: usize = 100;

/// The longest that a stopping server may be configured to wait, seconds.
pub const DRAIN_SECONDS_MAX: u64 = 3_600;

/// The longest time for which clients may be told to use a referral, seconds: a month.
pub const REFERRAL_TTL_SECONDS_MAX: u32 = 2_678_400;

/// The least `probe_seconds` of a namespace, seconds.
pub const PROBE_SECONDS_MIN: u32 = 2;
/// The greatest `probe_seconds`, seconds: an hour.
pub const PROBE_SECONDS_MAX: u32 = 3_600;

/// Servers of targets that are probed and whose names are resolved.
pub const PROBED_SERVERS: usize = 1_024;

/// Servers of targets that are probed or resolved at one moment.
pub const PROBES_AT_ONCE: usize = 16;

/// Addresses of one server of targets that are probed and told.
pub const PROBED_ADDRESSES: usize = 8;

/// Longest name of a site, characters.
pub const SITE_NAME_CHARACTERS: usize = 64;

/// Networks of all sites together.
pub const SITE_NETWORKS: usize = 1_000;

/// Longest name of a domain, bytes.
pub const DOMAIN_NAME_BYTES: usize = 255;

/// The least memory that may be configured, bytes: the largest request and reply of a few
/// clients at a time.
pub const MEMORY_MIN: u64 = 64 << 20;

/// Servers of a directory of accounts.
pub const LDAP_SERVERS: usize = 8;
/// Longest name of an entry of a directory, bytes.
pub const LDAP_TEXT_BYTES: usize = 1_024;
/// Longest `timeout_seconds` of a directory: logons wait for as long.
pub const LDAP_TIMEOUT_SECONDS_MAX: u32 = 15;
/// Longest `cache_seconds` of a directory.
pub const LDAP_CACHE_SECONDS_MAX: u32 = 86_400;
/// Longest `away_seconds` of a directory: a week.
pub const LDAP_AWAY_SECONDS_MAX: u32 = 604_800;

/// Limits of rate.
pub const RATES: usize = 100;
/// Longest name of a limit of rate, characters.
pub const RATE_NAME_CHARACTERS: usize = 64;
/// The lowest limit of bytes a second: with it the largest request takes two minutes.
pub const RATE_BYTES_MIN: u64 = 64 << 10;
/// The shortest burst, milliseconds: timers wake a millisecond late.
pub const RATE_BURST_MS_MIN: u64 = 10;
/// The longest burst, milliseconds.
pub const RATE_BURST_MS_MAX: u64 = 10_000;
/// The greatest weight.
pub const RATE_WEIGHT_MAX: u32 = 1_000;

/// Largest `min_length` of `[passwords]`, characters.
pub const PASSWORD_LENGTH_MAX: usize = 128;

/// Sections `[[storage_qos]]`.
pub const STORAGE_POLICIES: usize = 100;
/// Greatest `iops` of a policy of storage, and its greatest `bandwidth` in KiB a second. Windows: as those of clients
/// (MS-SQOS note 8).
pub const STORAGE_RATE_MAX: u64 = 1_000_000_000;

/// Longest `timeout_seconds` of a scan.
pub const SCAN_SECONDS_MAX: u32 = 600;
/// Most files in the index of a share: some 20 GB of memory.
pub const INDEX_FILES_MAX: usize = 100_000_000;
/// Most scans of one service at one time.
pub const SCANS_AT_ONCE_MAX: u32 = 64;
