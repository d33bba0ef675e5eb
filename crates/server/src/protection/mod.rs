//! Protection: signing, sealing and verifying messages, here, together, or by other threads.
//!
//! The work on a message is a value of `frevo_proto::protection`; this room chooses the keys of a
//! channel, the place where the work is done (`base::pools::crypto_threads`), and keeps messages in
//! their order. `signing` has the keys of replies, `replies` takes replies to the send queue,
//! `arrivals` checks requests before their turn, `expanding` expands them, `verify` uses the results.
//!
//! It knows no connection: a connection has its [`Arrivals`] and [`Replies`], tells the facts that they
//! need with each call (`circumstances`), and gets back what has to be done, with the end of the
//! connection as an error. It may touch the objects and all rooms below.

mod arrivals;
mod checked;
mod circumstances;
mod expanding;
mod replies;
mod row;
mod signing;
mod verify;

pub(crate) use arrivals::Arrivals;
pub(crate) use checked::Checked;
pub(crate) use circumstances::{Company, Keyring};
pub(crate) use replies::{Replies, Reply, Taken, protect_here};
pub(crate) use signing::{Part, ReplyGuard, Signer};
pub(crate) use verify::{Claim, check_length, check_session, report_altered, verify};
