//! The commands: one table of what must hold before a handler runs, one place
//! that chooses the handler, one file for each handler.

pub mod change_notify;
pub mod close;
pub mod create;
pub mod echo;
pub mod flush;
pub mod ioctl;
pub mod lock;
pub mod logoff;
pub mod negotiate;
pub mod oplock_break;
pub mod query_directory;
pub mod query_info;
pub mod read;
pub mod session_setup;
pub mod set_info;
pub mod tree_connect;
pub mod tree_disconnect;
pub mod write;

use frevo_wire::Command;

use crate::audit::told;
use crate::refusal::{Doom, Outcome, Refusal};
use crate::request::Request;
use crate::response::Response;

/// Where a request carries its FileId.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileIdAt {
    /// Nowhere.
    Nowhere,
    /// At this offset from the header, and it must name an Open.
    Needed(usize),
    /// At this offset; all ones means none (IOCTL).
    Optional(usize),
}

/// Whether a request may be answered later than those after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// It is answered at once.
    Never,
    /// Its I/O may be slow: an interim response tells the client when it is.
    /// Once begun it is carried out.
    Slow,
    /// The same, but nothing is lost by giving it up, and CANCEL does.
    SlowCancellable,
    /// It waits for others by nature and CANCEL ends it.
    Cancellable,
}

/// What must hold before a handler runs.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// MS-SMB2 3.3.5.2.9
    pub session: bool,
    /// Processed although the session has expired.
    pub when_expired: bool,
    /// MS-SMB2 3.3.5.2.11
    pub tree: bool,
    /// Where the Open is named.
    pub file_id: FileIdAt,
    /// MS-SMB2 3.3.5.2.10: fails when the channel sequence is stale.
    pub modifies: bool,
    /// When it is answered.
    pub waits: Waits,
    /// The message may be longer than 68 KiB where enough credits pay for it. The
    /// others' buffers are in the answer, or small.
    pub carries_payload: bool,
    /// Bytes of the message that are needed while it waits.
    pub kept_bytes: usize,
}

impl Row {
    /// The part of `message` that the command needs while it waits for others; none
    /// for one that needs its payload, or does not wait.
    pub fn kept(self, message: &[u8]) -> Option<&[u8]> {
        if self.carries_payload || self.waits == Waits::Never {
            return None;
        }
        Some(message.get(..self.kept_bytes).unwrap_or(message))
    }
}

const BARE: Row = Row {
    session: false,
    when_expired: false,
    tree: false,
    file_id: FileIdAt::Nowhere,
    modifies: false,
    waits: Waits::Never,
    carries_payload: false,
    kept_bytes: usize::MAX,
};
const SESSION: Row = Row { session: true, ..BARE };
const TREE: Row = Row { tree: true, ..SESSION };
const SLOW: Row = Row { waits: Waits::Slow, ..TREE };
const PAYLOAD: Row = Row { carries_payload: true, modifies: true, ..SLOW };

/// The row of a command; none for those that MS-SMB2 does not have, which
/// disconnect (3.3.5.2.6).
pub const fn row(command: Command) -> Option<Row> {
    use FileIdAt::{Needed, Optional};
    Some(match command {
        Command::NEGOTIATE | Command::ECHO | Command::CANCEL => BARE,
        // Finds its session itself: new, binding and renewed ones differ.
        Command::SESSION_SETUP => BARE,
        Command::LOGOFF => Row { when_expired: true, waits: Waits::Slow, ..SESSION },
        Command::TREE_CONNECT => SESSION,
        Command::TREE_DISCONNECT => SLOW,
        Command::CREATE => SLOW,
        Command::CLOSE => Row { file_id: Needed(72), when_expired: true, ..SLOW },
        Command::FLUSH => Row { file_id: Needed(72), ..SLOW },
        // Of an empty pipe it may wait for ever.
        Command::READ => {
            Row { file_id: Needed(80), waits: Waits::SlowCancellable, kept_bytes: 512, ..TREE }
        }
        Command::WRITE => Row { file_id: Needed(80), ..PAYLOAD },
        Command::LOCK => {
            Row { file_id: Needed(72), waits: Waits::Cancellable, when_expired: true, ..TREE }
        }
        Command::IOCTL => Row { file_id: Optional(72), ..PAYLOAD },
        Command::QUERY_DIRECTORY => Row { file_id: Needed(72), ..SLOW },
        Command::CHANGE_NOTIFY => {
            Row { file_id: Needed(72), waits: Waits::Cancellable, kept_bytes: 96, ..TREE }
        }
        Command::QUERY_INFO => Row { file_id: Needed(88), ..SLOW },
        Command::SET_INFO => Row { file_id: Needed(80), ..PAYLOAD },
        // The handler tells oplock and lease acknowledgments apart.
        Command::OPLOCK_BREAK => TREE,
        _ => return None,
    })
}

/// Runs the handler of a request whose row holds.
pub async fn dispatch(rq: &Request<'_>, out: &mut Response) -> Outcome {
    told::outcome(rq, handle(rq, out).await)
}

async fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    match rq.header.command {
        Command::NEGOTIATE => negotiate::handle(rq, out),
        Command::SESSION_SETUP => session_setup::handle(rq, out).await,
        Command::LOGOFF => logoff::handle(rq, out).await,
        Command::TREE_CONNECT => tree_connect::handle(rq, out),
        Command::TREE_DISCONNECT => tree_disconnect::handle(rq, out).await,
        Command::CREATE => create::handle(rq, out).await,
        Command::CLOSE => close::handle(rq, out).await,
        Command::FLUSH => flush::handle(rq, out).await,
        Command::READ => read::handle(rq, out).await,
        Command::WRITE => write::handle(rq, out).await,
        Command::LOCK => lock::handle(rq, out).await,
        Command::IOCTL => ioctl::handle(rq, out).await,
        Command::ECHO => echo::handle(rq, out),
        Command::QUERY_DIRECTORY => query_directory::handle(rq, out).await,
        Command::CHANGE_NOTIFY => change_notify::handle(rq, out).await,
        Command::QUERY_INFO => query_info::handle(rq, out).await,
        Command::SET_INFO => set_info::handle(rq, out).await,
        Command::OPLOCK_BREAK => oplock_break::handle(rq, out).await,
        _ => Err(Refusal::Disconnect(Doom::Rule("no such command"))),
    }
}
