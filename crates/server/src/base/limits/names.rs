//! Logons, and names of accounts of the host and of domains.

use std::time::Duration;

/// Keys that are derived from passwords at one time, beside the cores, for clients that change
/// their passwords: each may take a second.
pub const PASSWORD_DERIVATIONS: usize = 1;

/// Waiting time after a failed logon: of its account from its network, and of the
/// address itself, where each further one doubles it.
pub const LOGON_DELAY: Duration = Duration::from_secs(2);

/// Longest waiting time after failed logons of one address, which has not logged on to the account
/// before.
pub const LOGON_DELAY_MAX: Duration = Duration::from_secs(60);

/// The time after which an attempt to log on is answered at the latest, whatever it waits for:
/// clients of .NET and Node give up after five seconds. Whatever has not had its turn by then is
/// refused unjudged.
pub const LOGON_PATIENCE: Duration = Duration::from_secs(4);

/// Logons on one account from one network that wait for their turn. The one whose
/// address has failed most is refused unjudged when there are more.
pub const LOGON_WAITING: usize = 64;

/// Pairs of account and network that wait after a failed logon.
pub const LOGON_LINES: usize = 65_536;

/// How long a failed logon is remembered once it holds nobody back any more.
pub const LOGON_FAILURES_KEPT: Duration = Duration::from_secs(600);

/// How long an address or a client that has logged on to an account need not wait for
/// others' failed logons on it.
pub const LOGON_GOOD_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Addresses and clients remembered for one account, half of them for each; the oldest is forgotten
/// first.
pub const LOGON_GOOD_PER_ACCOUNT: usize = 32;

/// Accounts whose addresses and clients are remembered.
pub const LOGON_GOOD_ACCOUNTS: usize = 16_384;

/// Bytes of an account's name by which failed logons are told apart: names that
/// are longer belong to nobody, and each is remembered.
pub const LOGON_NAME_BYTES: usize = 256;

/// Failed logons remembered, by account and address, client or network, and as many that were refused
/// unjudged; those who failed least are forgotten first.
pub const LOGON_FAILURES_REMEMBERED: usize = 65_536;

/// Entries of the access list of a share that is set over the network.
pub const SHARE_ACCESS_ENTRIES: usize = 100;

/// Accounts that are looked at to find a name or SID, or are listed.
pub const ACCOUNTS_LISTED: usize = 100_000;

/// Estimate of the bytes that each of them takes meanwhile.
pub const ACCOUNT_LISTED_BYTES: usize = 256;

/// Lifetime of an answer of the host's name service. A user that logs on again later has its
/// new groups.
pub const HOST_USER_FRESH: Duration = Duration::from_secs(5);

/// Users of the host remembered; the oldest is forgotten first.
pub const HOST_USERS_REMEMBERED: usize = 4_096;

/// Lifetime of an answer about the host's number of a SID.
pub const HOST_IDS_FRESH: Duration = Duration::from_secs(300);

/// SIDs in access lists whose numbers on the host are remembered.
pub const HOST_IDS_REMEMBERED: usize = 8_192;

/// Questions to the host's name service at one time: it may hang, and each takes
/// a thread.
pub const HOST_LOOKUPS: usize = 4;

/// Lookups of names that one user may have under way. Each may be of many names.
pub const HOST_LOOKUPS_PER_USER: usize = 2;

/// Questions about NTLM to domain controllers at one time; each takes a thread.
pub const DOMAIN_LOGONS: usize = 8;

/// How long the answer to such a question is waited for, its place included.
pub const DOMAIN_LOGON_TIMEOUT: Duration = Duration::from_secs(15);

/// Questions of clients about names of domains that wait for the thread that asks.
pub const DOMAIN_NAMES_QUESTIONS: usize = 64;

/// Names in one question to a domain controller.
pub const DOMAIN_NAMES_PER_QUESTION: usize = 256;

/// Names of domains remembered, and as many SIDs; the oldest is forgotten first.
pub const DOMAIN_NAMES_REMEMBERED: usize = 4_096;

/// Lifetime of an answer about names of domains.
pub const DOMAIN_NAMES_FRESH: Duration = Duration::from_secs(600);

/// Time after which names in rules that are not resolved are asked for again.
pub const DOMAIN_NAMES_AGAIN: Duration = Duration::from_secs(10);

/// Time in which no client's question is passed on after one that nobody answered.
pub const DOMAIN_NAMES_DOWN: Duration = Duration::from_secs(8);

/// Characters of a name with its domain that is asked for and remembered. A name of a domain in DNS
/// has at most 255, an account's at most 256.
pub const DOMAIN_NAME_CHARS: usize = 512;

/// How long one request of a client waits for answers about names, for all of them together.
pub const DOMAIN_NAMES_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a start waits until names in rules are resolved.
pub const DOMAIN_NAMES_AT_START: Duration = Duration::from_secs(5);

/// How long it is waited for.
pub const HOST_LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// A start asks again after so long, for [`HOST_LOOKUP_TIMEOUT`] in all.
pub const HOST_LOOKUP_AGAIN: Duration = Duration::from_millis(250);

/// Bytes of a file of names that stand for accounts.
pub const USER_MAP_BYTES: usize = 4 << 20;

/// Names that stand for accounts.
pub const USER_MAP_NAMES: usize = 100_000;

/// Time that a client with a ticket for a key that the server does not have waits for newer keys.
pub const NEWER_KEYS_PATIENCE: Duration = Duration::from_secs(10);

/// Shortest time between two looks for newer keys.
pub const NEWER_KEYS_LOOK: Duration = Duration::from_millis(100);

/// Time in which nobody waits for newer keys, after they did not come.
pub const NEWER_KEYS_REST: Duration = Duration::from_secs(10);

/// Questions to a directory of accounts at one time; each takes a thread.
pub const DIRECTORY_LOOKUPS: usize = 8;

/// Questions that logons from one network have under way: the rest are left to others.
pub const DIRECTORY_LOOKUPS_PER_NETWORK: usize = 2;

/// Time for which such a question holds its place at least: a stranger who tries names asks no more.
pub const DIRECTORY_LOOKUP_PACE: Duration = Duration::from_millis(20);

/// How long the answer to such a question is waited for, its place included.
pub const DIRECTORY_LOOKUP_TIMEOUT: Duration = Duration::from_secs(20);

/// Accounts of a directory that are remembered; the oldest is forgotten first.
pub const DIRECTORY_ACCOUNTS: usize = 10_000;

/// Names without an account in the directory that are remembered; the oldest is forgotten first.
pub const DIRECTORY_ABSENT: usize = 4_096;

/// Lifetime of the answer that there is no account, so that a new one can soon be used.
pub const DIRECTORY_ABSENT_FRESH: Duration = Duration::from_secs(30);

/// Age from which on a wrong password has the account asked for again: it may have a new one.
pub const DIRECTORY_DOUBTED_FROM: Duration = Duration::from_secs(2);
