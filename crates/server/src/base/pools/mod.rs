//! Threads beside the cores, and who may have one.
//!
//! A core serves all its connections on one thread, so work that may hold it for long runs elsewhere:
//!
//! | Work | Runs on | Waits for |
//! |---|---|---|
//! | data of files that the page cache does not have | `frevo_net::file_io`: io_uring or its threads | nothing |
//! | requests to a file system that a server or a process answers for (NFS, FUSE) | the [`blocking_pool`] of the share | a permit of its user; a CLOSE has one of its own |
//! | requests that compute for long on a local file system | the [`blocking_pool`] of the server | a permit, and a turn while it computes |
//! | one long call of a handler (`Request::beside_core`) | a thread of `frevo_net` | permits of the server's pool for half of the processors |
//! | closes of files whose blocks are freed then | a thread of the [`closer`] | earlier closes of its account |
//! | names of the host's users | a thread of `frevo_net` | a permit of `access::host_users` |
//! | signing and sealing of long messages | [`crypto_threads`] | a permit of a thread |
//! | events, records of handles, names of domains | a thread of its own in `audit`, `objects::durable`, `access` | a bounded queue |
//!
//! A *permit* ([`permits`]) is waited for, a *slot* ([`slots`]) is refused when all are taken, a *turn*
//! is a permit that work gives back while it waits. [`threads`] starts threads when there is work and
//! ends them when there is none. `command::blocking_requests` chooses the pool of a request by its row.

pub(crate) mod blocking_pool;
pub(crate) mod closer;
pub(crate) mod crypto_threads;
pub(crate) mod permits;
pub(crate) mod slots;
pub(crate) mod threads;
