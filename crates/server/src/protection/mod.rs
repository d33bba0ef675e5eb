//! Protection: signing, sealing and verifying messages, here, together, or by other threads.
//!
//! The work on a message is a value of `frevo_proto::protection`; this room chooses the keys of a
//! channel, the place where the work is done (`base::pools::crypto_threads`), and keeps messages in
//! their order. `signing` has the keys of replies, `protecting` takes replies to the send queue,
//! `checking` checks requests before their turn, `verify` uses the results.
//!
//! It may touch `connection`, whose methods it adds to, the table of `command`, and all rooms below.

mod checked;
mod checking;
mod protecting;
mod signing;
mod verify;

pub(crate) use checked::{Checked, CheckedAhead, LinedUp};
pub(crate) use signing::{Part, ReplyGuard, Signer, signed};
