//! Words for values of the protocol.

use alloc::format;
use alloc::string::String;

use frevo_wire::command::create::{CreateDisposition, OplockLevel};
use frevo_wire::command::negotiate::Dialect;
use frevo_wire::create_context::{LeaseKey, LeaseState};
use frevo_wire::{Command, Status};

use crate::limits::NAME_CHARS;

/// Makes a text printable and short.
pub(super) fn shown(text: &str) -> String {
    let mut chars = text.chars();
    let mut shown: String = chars
        .by_ref()
        .take(NAME_CHARS)
        .map(|c| if is_plain(c) { c } else { char::REPLACEMENT_CHARACTER })
        .collect();
    if chars.next().is_some() {
        shown.push('…');
    }
    shown
}

/// False for characters that would change a terminal or the direction of a text.
fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FEFF}')
}

/// A lease's state in letters, as they are usual: R, W, H.
pub(super) fn lease(state: LeaseState) -> String {
    let letters = [(LeaseState::READ, 'R'), (LeaseState::WRITE, 'W'), (LeaseState::HANDLE, 'H')];
    let has = letters.iter().filter(|(bit, _)| state.contains(*bit));
    let text: String = has.map(|(_, letter)| *letter).collect();
    if text.is_empty() { String::from("none") } else { text }
}

/// The meaning of a lease's state.
pub(super) fn lease_meaning(state: LeaseState) -> &'static str {
    let has = |bit| state.contains(bit);
    match (has(LeaseState::READ), has(LeaseState::WRITE), has(LeaseState::HANDLE)) {
        (_, true, true) => "the client may cache reads, writes and the open file",
        (_, true, false) => "the client may cache reads and writes",
        (true, false, true) => "the client may cache reads and the open file",
        (true, false, false) => "the client may cache reads",
        (false, false, true) => "the client may keep the file open",
        (false, false, false) => "the client may cache nothing",
    }
}

/// The first digits of a lease's key.
pub(super) fn key(key: LeaseKey) -> String {
    let [a, b, c, d, ..] = key.0;
    format!("{a:02x}{b:02x}{c:02x}{d:02x}")
}

/// An oplock in words.
pub(super) fn oplock(level: OplockLevel) -> String {
    match level {
        OplockLevel::NONE => String::from("no oplock"),
        OplockLevel::II => String::from("oplock II"),
        OplockLevel::EXCLUSIVE => String::from("exclusive oplock"),
        OplockLevel::BATCH => String::from("batch oplock"),
        OplockLevel::LEASE => String::from("lease"),
        other => format!("oplock {other}"),
    }
}

/// A disposition in words.
pub(super) fn disposition(value: CreateDisposition) -> String {
    match value {
        CreateDisposition::SUPERSEDE => String::from("replace or create"),
        CreateDisposition::OPEN => String::from("open"),
        CreateDisposition::CREATE => String::from("create"),
        CreateDisposition::OPEN_IF => String::from("open or create"),
        CreateDisposition::OVERWRITE => String::from("truncate"),
        CreateDisposition::OVERWRITE_IF => String::from("truncate or create"),
        other => format!("{other}"),
    }
}

/// A dialect as people write it.
pub(super) fn dialect(value: Dialect) -> String {
    match value {
        Dialect::SMB_2_0_2 => String::from("2.0.2"),
        Dialect::SMB_2_1 => String::from("2.1"),
        Dialect::SMB_3_0 => String::from("3.0"),
        Dialect::SMB_3_0_2 => String::from("3.0.2"),
        Dialect::SMB_3_1_1 => String::from("3.1.1"),
        other => format!("{other}"),
    }
}

/// The meaning of a status that people take for another one. None for one whose name says it.
pub(super) fn meaning(command: Command, status: Status) -> Option<&'static str> {
    Some(match status {
        Status::MORE_PROCESSING_REQUIRED if command == Command::SESSION_SETUP => {
            "the logon goes on with another message"
        }
        Status::LOGON_FAILURE => "the user or the password is wrong",
        Status::SHARING_VIOLATION => "another open file does not share what is asked for",
        Status::FILE_LOCK_CONFLICT => "another client has locked the range",
        Status::LOCK_NOT_GRANTED => "another client has locked the range",
        Status::NETWORK_SESSION_EXPIRED => "the ticket has ended; the client logs on again",
        Status::USER_SESSION_DELETED => "the session has ended; the client logs on again",
        Status::NETWORK_NAME_DELETED => "the share is not served any more",
        Status::FILE_NOT_AVAILABLE => {
            "the server carries out an earlier sending of it; the client asks again"
        }
        Status::DUPLICATE_OBJECTID => "the server has carried it out before, for another open file",
        Status::INSUFFICIENT_RESOURCES => "the server's memory or limits are used up",
        Status::NO_MORE_FILES => "the listing has ended",
        Status::NOTIFY_ENUM_DIR => {
            "too much has changed to be told: the client lists the directory"
        }
        Status::BUFFER_OVERFLOW => "there is more than the buffer holds",
        Status::CANCELLED => "the client or the server has given it up",
        Status::PATH_NOT_COVERED => "a DFS link leads elsewhere",
        Status::SMB_BAD_CLUSTER_DIALECT => "the share of the cluster needs an older dialect",
        _ => return None,
    })
}
