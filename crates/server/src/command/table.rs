//! The table of commands: the conditions that must hold before a handler runs, and the way
//! in which it runs.

use frevo_proto::protection::receive_policy::SignatureRule;
use frevo_wire::Command;

use crate::base::limits::LONG_REQUEST;
use crate::objects::activity::{Class, CountedAs};

use CountedAs::{Timed, Untimed};
use FileIdAt::{Needed, Optional};
use Refusals::{ByHandler, Unrecorded};

/// Where a request carries its FileId.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileIdAt {
    /// Nowhere.
    Nowhere,
    /// At this offset from the header, and it must name an Open.
    Needed(usize),
    /// At this offset; all ones means none (IOCTL).
    Optional(usize),
    /// In the response: the request makes the Open (CREATE).
    Made,
}

/// The time that the handler of a request may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// Never: the first poll of the handler answers it.
    Never,
    /// The handler may wait, on a timer or for the host. MS-SMB2 3.3.4.2: there is no
    /// interim response, and CANCEL does nothing.
    Silent,
    /// Its I/O may be slow: an interim response tells the client when it is.
    /// Once begun it is carried out.
    Slow,
    /// Like [`Self::Slow`], but giving it up loses nothing, and CANCEL does.
    SlowCancellable,
    /// Like [`Self::Slow`], but there is no interim response while it waits for other clients.
    /// Windows: SET_INFO has none (smbtorture's compound_async.rename_non_compound_no_async).
    SlowUnannounced,
    /// It waits for others by nature and CANCEL ends it.
    Cancellable,
}

/// The object that a request ends. The request waits for all other operations of the object,
/// and is not counted as one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// It ends no object.
    Nothing,
    /// The session (LOGOFF).
    Session,
    /// The tree connect (TREE_DISCONNECT).
    TreeConnect,
    /// The Open (CLOSE).
    Open,
}

/// The requests of a command whose handler runs on a thread of a blocking pool, so that a
/// file system that does not answer stalls no other connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffCore {
    /// None. The handler needs its connection, waits for clients only, or asks the file
    /// system for nothing.
    Never,
    /// In shares with a blocking pool: those of files that the file system reads itself.
    Reads,
    /// In shares with a blocking pool: those of files that the file system writes itself.
    Writes,
    /// In shares with a blocking pool: all. In other shares: long ones, and those whose
    /// handler gave up on the core ([`Row::restarts`]).
    Asks,
    /// In shares with a blocking pool: all. They have places of their own there.
    Closes,
    /// Like [`Self::Closes`]; in other shares those that end a session with many Opens.
    Ends,
    /// Those to shares with a blocking pool and a folder for each user, which is opened then.
    Connects,
}

impl OffCore {
    /// True for commands that close Opens: they must not wait for a place behind requests
    /// that wait for a lease, which only a CLOSE may give up.
    pub const fn closes(self) -> bool {
        matches!(self, Self::Closes | Self::Ends)
    }
}

/// The handler of a command: `command::dispatch` calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Handler {
    /// None: the connection itself does what a CANCEL asks for.
    Connection,
    /// `negotiate`
    Negotiate,
    /// `session_setup`
    SessionSetup,
    /// `logoff`
    Logoff,
    /// `tree_connect`
    TreeConnect,
    /// `tree_disconnect`
    TreeDisconnect,
    /// `create`
    Create,
    /// `close`
    Close,
    /// `flush`
    Flush,
    /// `read`
    Read,
    /// `write`
    Write,
    /// `lock`
    Lock,
    /// `ioctl`
    Ioctl,
    /// `echo`
    Echo,
    /// `query_directory`
    QueryDirectory,
    /// `change_notify`
    ChangeNotify,
    /// `query_info`
    QueryInfo,
    /// `set_info`
    SetInfo,
    /// `oplock_break`
    OplockBreak,
}

/// The events of the audit log for requests that were refused. `command::refused` makes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusals {
    /// None: the command changes nothing, or only what the client itself holds.
    Unrecorded,
    /// The handler makes them, because the reason is not in the status.
    ByHandler,
    /// `open`, when a right is missing.
    Open,
    /// `write`, when a right is missing.
    Write,
    /// The event of the information class, with each status.
    SetInfo,
    /// The event of the control code, with each status.
    Ioctl,
}

/// The conditions that must hold before a handler runs, and the way in which it runs.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its handler.
    pub handler: Handler,
    /// Its class in the statistics, and if its time counts there.
    pub counted: CountedAs,
    /// The events of the audit log when it is refused.
    pub refusals: Refusals,
    /// MS-SMB2 3.3.5.2.9
    pub session: bool,
    /// Processed although the session has expired.
    pub when_expired: bool,
    /// MS-SMB2 3.3.5.2.11
    pub tree: bool,
    /// The check of its signature.
    pub signing: SignatureRule,
    /// True where request and response enter the pre-authentication hash (MS-SMB2
    /// 3.3.5.4, 3.3.5.5). Their responses are not sealed unless the request is.
    pub is_hashed: bool,
    /// The object that it ends.
    pub ends: Ends,
    /// True where it goes on when its connection ends and its session lives on another.
    pub outlives_connection: bool,
    /// Where the Open is named.
    pub file_id: FileIdAt,
    /// The time of its answer.
    pub waits: Waits,
    /// The requests that leave their core.
    pub off_core: OffCore,
    /// A handler that failed has changed nothing, and may run again.
    pub restarts: bool,
    /// A handler that found no space has changed nothing that a second run does not change too: it runs
    /// again once files that are being closed have given their space back.
    pub repeats: bool,
    /// True where it waits for limits of rate. Commands that give something back, or wait by nature, do not.
    pub is_paced: bool,
    /// Bytes of a message from which the request is long work.
    pub long_from_bytes: usize,
    /// The message may be longer than 68 KiB where enough credits pay for it. The
    /// others' buffers are in the answer, or small.
    pub carries_payload: bool,
    /// Bytes of the message that are needed while it waits.
    pub kept_bytes: usize,
}

impl Row {
    /// The part of `message` that the command needs while it waits for others; none
    /// for one that needs its payload, or does not wait.
    pub fn kept<'a>(&self, message: &'a [u8]) -> Option<&'a [u8]> {
        if self.carries_payload || matches!(self.waits, Waits::Never | Waits::Silent) {
            return None;
        }
        Some(message.get(..self.kept_bytes).unwrap_or(message))
    }
}

/// Makes the row of a command that needs neither a session nor a tree connect. Each row says the
/// columns that are arguments: they have no usual value.
const fn bare(handler: Handler, counted: CountedAs, refusals: Refusals) -> Row {
    Row {
        handler,
        counted,
        refusals,
        session: false,
        when_expired: false,
        tree: false,
        signing: SignatureRule::BySession,
        is_hashed: false,
        ends: Ends::Nothing,
        outlives_connection: false,
        file_id: FileIdAt::Nowhere,
        waits: Waits::Never,
        off_core: OffCore::Never,
        restarts: false,
        repeats: false,
        is_paced: false,
        long_from_bytes: usize::MAX,
        carries_payload: false,
        kept_bytes: usize::MAX,
    }
}

/// The row of NEGOTIATE, which SMB1's has too.
pub(crate) static NEGOTIATE: Row = Row {
    signing: SignatureRule::Never,
    is_hashed: true,
    ..bare(Handler::Negotiate, OTHER, Unrecorded)
};

/// Makes the row of a command in a session.
const fn session(handler: Handler, counted: CountedAs, refusals: Refusals) -> Row {
    Row { session: true, ..bare(handler, counted, refusals) }
}

/// Makes the row of a command in a tree connect.
const fn tree(handler: Handler, counted: CountedAs, refusals: Refusals) -> Row {
    Row { tree: true, ..session(handler, counted, refusals) }
}

/// Makes the row of a command in a tree connect whose I/O may be slow.
const fn slow(handler: Handler, counted: CountedAs, refusals: Refusals) -> Row {
    let tree = tree(handler, counted, refusals);
    Row { waits: Waits::Slow, off_core: OffCore::Asks, repeats: true, ..tree }
}

/// Makes the row of a slow command whose message has a payload.
const fn payload(handler: Handler, counted: CountedAs, refusals: Refusals) -> Row {
    Row { carries_payload: true, ..slow(handler, counted, refusals) }
}

const OTHER: CountedAs = Timed(Class::Other);

static ECHO: Row = bare(Handler::Echo, OTHER, Unrecorded);

/// The connection cancels requests of its sessions, also of those that have expired.
static CANCEL: Row = Row { when_expired: true, ..bare(Handler::Connection, OTHER, Unrecorded) };

/// The handler of SESSION_SETUP looks up the session itself, because new, bound and renewed sessions have
/// different rules. It may wait for the logon throttle and the host's user database.
static SESSION_SETUP: Row = Row {
    signing: SignatureRule::ByHandler,
    is_hashed: true,
    waits: Waits::Silent,
    ..bare(Handler::SessionSetup, OTHER, ByHandler)
};

static LOGOFF: Row = Row {
    when_expired: true,
    ends: Ends::Session,
    waits: Waits::Slow,
    off_core: OffCore::Ends,
    ..session(Handler::Logoff, OTHER, Unrecorded)
};

static TREE_CONNECT: Row = Row {
    signing: SignatureRule::Demanded,
    waits: Waits::Slow,
    off_core: OffCore::Connects,
    ..session(Handler::TreeConnect, OTHER, ByHandler)
};

static TREE_DISCONNECT: Row = Row {
    ends: Ends::TreeConnect,
    off_core: OffCore::Ends,
    repeats: false,
    ..slow(Handler::TreeDisconnect, OTHER, Unrecorded)
};

static CREATE: Row = Row {
    file_id: FileIdAt::Made,
    is_paced: true,
    outlives_connection: true,
    restarts: true,
    long_from_bytes: LONG_REQUEST,
    ..slow(Handler::Create, Timed(Class::Open), Refusals::Open)
};

static CLOSE: Row = Row {
    file_id: Needed(72),
    when_expired: true,
    ends: Ends::Open,
    off_core: OffCore::Closes,
    // CLOSE is not repeated, because the Open is closed even if its file could not be deleted.
    repeats: false,
    ..slow(Handler::Close, Timed(Class::Close), Unrecorded)
};

static FLUSH: Row = Row {
    file_id: Needed(72),
    is_paced: true,
    // FLUSH is not repeated, because a second sync does not report the data that the first one
    // lost.
    repeats: false,
    ..slow(Handler::Flush, Timed(Class::Flush), Unrecorded)
};

static READ: Row = Row {
    file_id: Needed(80),
    is_paced: true,
    // A READ from an empty pipe waits until the pipe has data, maybe for ever.
    waits: Waits::SlowCancellable,
    off_core: OffCore::Reads,
    kept_bytes: 512,
    ..tree(Handler::Read, Timed(Class::Read), Unrecorded)
};

static WRITE: Row = Row {
    file_id: Needed(80),
    is_paced: true,
    off_core: OffCore::Writes,
    // The handler repeats only the system call, because data that arrived by RDMA is received only
    // once.
    repeats: false,
    ..payload(Handler::Write, Timed(Class::Write), Refusals::Write)
};

static LOCK: Row = Row {
    file_id: Needed(72),
    waits: Waits::Cancellable,
    when_expired: true,
    ..tree(Handler::Lock, Timed(Class::Lock), Unrecorded)
};

static IOCTL: Row = Row {
    file_id: Optional(72),
    is_paced: true,
    ..payload(Handler::Ioctl, OTHER, Refusals::Ioctl)
};

static QUERY_DIRECTORY: Row = Row {
    file_id: Needed(72),
    is_paced: true,
    restarts: true,
    ..slow(Handler::QueryDirectory, Timed(Class::List), Unrecorded)
};

/// The time of CHANGE_NOTIFY says nothing about the server: it waits until something changes.
static CHANGE_NOTIFY: Row = Row {
    file_id: Needed(72),
    waits: Waits::Cancellable,
    kept_bytes: 96,
    ..tree(Handler::ChangeNotify, Untimed(Class::Other), Unrecorded)
};

static QUERY_INFO: Row = Row {
    file_id: Needed(88),
    is_paced: true,
    restarts: true,
    ..slow(Handler::QueryInfo, Timed(Class::Info), Unrecorded)
};

static SET_INFO: Row = Row {
    file_id: Needed(80),
    is_paced: true,
    restarts: true,
    long_from_bytes: LONG_REQUEST,
    waits: Waits::SlowUnannounced,
    ..payload(Handler::SetInfo, Timed(Class::Info), Refusals::SetInfo)
};

/// The handler of OPLOCK_BREAK itself distinguishes acknowledgments of oplocks and leases. It waits until
/// the new state of a persistent Open is stored.
static OPLOCK_BREAK: Row =
    Row { waits: Waits::Silent, ..tree(Handler::OplockBreak, OTHER, Unrecorded) };

/// The row of a command; none for those that MS-SMB2 does not have, which
/// disconnect (3.3.5.2.6).
pub const fn row(command: Command) -> Option<&'static Row> {
    Some(match command {
        Command::NEGOTIATE => &NEGOTIATE,
        Command::ECHO => &ECHO,
        Command::CANCEL => &CANCEL,
        Command::SESSION_SETUP => &SESSION_SETUP,
        Command::LOGOFF => &LOGOFF,
        Command::TREE_CONNECT => &TREE_CONNECT,
        Command::TREE_DISCONNECT => &TREE_DISCONNECT,
        Command::CREATE => &CREATE,
        Command::CLOSE => &CLOSE,
        Command::FLUSH => &FLUSH,
        Command::READ => &READ,
        Command::WRITE => &WRITE,
        Command::LOCK => &LOCK,
        Command::IOCTL => &IOCTL,
        Command::QUERY_DIRECTORY => &QUERY_DIRECTORY,
        Command::CHANGE_NOTIFY => &CHANGE_NOTIFY,
        Command::QUERY_INFO => &QUERY_INFO,
        Command::SET_INFO => &SET_INFO,
        Command::OPLOCK_BREAK => &OPLOCK_BREAK,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Columns that must fit each other, for every command number.
    #[test]
    fn rows_agree_with_themselves() {
        let rows: Vec<_> = (0..=u16::MAX).filter_map(|n| row(Command(n)).map(|r| (n, r))).collect();
        assert_eq!(rows.len(), 19, "MS-SMB2 2.2.1.2 has 19 commands");
        let handlers: HashSet<_> = rows.iter().map(|(_, row)| row.handler).collect();
        assert_eq!(handlers.len(), rows.len(), "each command has a handler of its own");
        for (number, row) in rows {
            let at_once = matches!(row.waits, Waits::Never | Waits::Silent);
            // Requests that are answered at once, or that are part of the preauthentication hash,
            // must stay on the core thread, because a blocking thread answers later and cannot use
            // the connection.
            assert!(!at_once || row.off_core == OffCore::Never, "{number}");
            assert!(!row.is_hashed || row.off_core == OffCore::Never, "{number}");
            // A handler that can be run again must be allowed to run on a blocking thread.
            assert!(!row.restarts || row.off_core == OffCore::Asks, "{number}");
            assert!(row.long_from_bytes == usize::MAX || row.restarts, "{number}");
            // A command that ends a session, tree connect or Open must be allowed to wait for the
            // object's other requests.
            assert!(row.ends == Ends::Nothing || row.waits == Waits::Slow, "{number}");
            assert!(row.ends == Ends::Nothing || row.off_core.closes(), "{number}");
            assert!(row.ends == Ends::Nothing || !row.repeats, "{number}");
            assert!(!row.restarts || row.repeats, "{number}");
            // A request that waits for a limit of rate can be announced, holds nobody up, and is one of a share.
            let may_wait = !at_once && row.waits != Waits::Cancellable && row.tree;
            assert!(!row.is_paced || (may_wait && row.ends == Ends::Nothing), "{number}");
            // A tree connect is looked up in its session, and an Open in its tree connect, so the
            // row must ask for each of them.
            assert!(!row.tree || row.session, "{number}");
            let is_named = matches!(row.file_id, Needed(_) | Optional(_));
            assert!(!is_named || row.tree, "{number}");
            // Only a message with a payload, or the name of a file, changes something whose refusal
            // the audit log has.
            let may_change = row.carries_payload || row.file_id == FileIdAt::Made;
            let is_recorded = !matches!(row.refusals, Unrecorded | ByHandler);
            assert_eq!(may_change, is_recorded, "{number}");
        }
    }

    #[test]
    fn a_message_is_kept_as_far_as_its_command_needs_it() {
        let message = [0; 1000];
        let kept = |command| row(command).unwrap().kept(&message).map(<[u8]>::len);
        assert_eq!(kept(Command::CHANGE_NOTIFY), Some(96));
        assert_eq!(kept(Command::LOCK), Some(1000));
        // For these three, no number of bytes to keep is returned, because a waiting WRITE keeps
        // its whole message, and ECHO and SESSION_SETUP never wait for other clients.
        assert_eq!(kept(Command::WRITE), None);
        assert_eq!(kept(Command::ECHO), None);
        assert_eq!(kept(Command::SESSION_SETUP), None);
    }
}
