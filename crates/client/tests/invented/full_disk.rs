//! Small files for which a server has no room, or not enough.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::dialed;
use crate::evil;

use std::sync::Arc;

use dialed::one_thing;
use evil::{Act, Asked, Manners};
use frevo_client::{Credentials, Error, Options, ServerName};
use frevo_wire::codec::Writer;
use frevo_wire::command::create::CreateDisposition;
use frevo_wire::command::{create, write};
use frevo_wire::{Command, Status};
use parking_lot::Mutex;

/// The server's reaction to a CREATE or a WRITE.
#[derive(Debug, Clone, Copy)]
enum Does {
    All,
    Takes(u32),
    Refuses(Status),
}

/// The act of another writer before the first one can remove its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Other {
    Nothing,
    /// The file existed before.
    WasThere,
    HasItOpen,
    /// It wrote to the file and closed it.
    Wrote,
    /// Its file has the name now.
    Replaced,
}

impl Other {
    /// To a CREATE, which finds a file where `made` it.
    fn act(self, makes: bool) -> Act {
        let change: fn(&mut Vec<u8>) = match self {
            Self::WasThere if makes => |m| set(m, 4, &[3]),
            Self::HasItOpen if !makes => return Act::Refused(Status::SHARING_VIOLATION),
            Self::Wrote if !makes => |m| set(m, 48, &[5]),
            // Changes the file number in the QFid context, so that the file looks replaced by
            // another one.
            Self::Replaced if !makes => |m| set(m, 88 + 24, &[77]),
            _ => return Act::Honest,
        };
        Act::Changed(Box::new(change))
    }
}

/// Sets bytes of a body.
fn set(message: &mut [u8], at: usize, bytes: &[u8]) {
    message[64 + at..64 + at + bytes.len()].copy_from_slice(bytes);
}

/// Writes 100 bytes to a server that does this with the requests of the kind, one after
/// the other, and all of the last ones. What it was asked, and what came of it.
fn put(kind: Command, does: &'static [Does]) -> (Vec<&'static str>, Result<(), Error>) {
    send(kind, does, true, Other::Nothing)
}

/// The same, as a copy or not.
fn send(
    kind: Command,
    does: &'static [Does],
    is_copy: bool,
    other: Other,
) -> (Vec<&'static str>, Result<(), Error>) {
    let asked = Arc::new(Mutex::new((Vec::new(), does.iter())));
    let seen = Arc::clone(&asked);
    let script = move |asked: &Asked<'_>| {
        let (said, does) = &mut *seen.lock();
        match asked.header.command {
            Command::CREATE => {
                let request = create::Request::parse(asked.message).unwrap();
                let is_new = request.create_disposition == CreateDisposition::OVERWRITE_IF;
                said.push(if is_new { "make" } else { "open" });
                if other != Other::Nothing {
                    return other.act(is_new);
                }
            }
            Command::WRITE => said.push("write"),
            // The remove is a SET_INFO of class 13, FileDispositionInformation.
            Command::SET_INFO if asked.message[67] == 13 => said.push("remove"),
            _ => {}
        }
        if asked.header.command != kind {
            return Act::Honest;
        }
        match does.next().unwrap_or(&Does::All) {
            Does::All => Act::Honest,
            Does::Refuses(status) => Act::Refused(*status),
            Does::Takes(count) => {
                let mut body = Vec::new();
                write::Response { count: *count }.encode(&mut Writer::new(&mut body));
                Act::Body(body)
            }
        }
    };
    let manners = Manners { tells: true, ..Manners::default() };
    let (done, _) = one_thing(manners, Options::default(), script, async |client| {
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new("evil"), user).await?;
        let share = session.share("data").await?;
        match is_copy {
            true => share.write_dated("file", &[7; 100], None).await,
            false => share.write("file", &[7; 100]).await,
        }
    });
    let said = std::mem::take(&mut asked.lock().0);
    (said, done)
}

#[test]
fn nothing_is_left_of_a_file_for_which_there_is_no_room() {
    for status in [Status::DISK_FULL, Status::QUOTA_EXCEEDED] {
        let does: &'static [Does] = Box::leak(Box::new([Does::Refuses(status)]));
        let (said, done) = put(Command::WRITE, does);
        assert_eq!(said, ["make", "write", "open", "remove"]);
        assert_eq!(done.unwrap_err().status(), Some(status.into()));
    }
}

#[test]
fn what_is_no_copy_is_left_to_who_wrote_it() {
    let (said, done) =
        send(Command::WRITE, &[Does::Refuses(Status::DISK_FULL)], false, Other::Nothing);
    assert_eq!(said, ["make", "write"]);
    assert_eq!(done.unwrap_err().status(), Some(frevo_client::Status::DISK_FULL));
}

#[test]
fn what_is_another_writers_is_not_removed() {
    let full = Does::Refuses(Status::DISK_FULL);
    let short: &'static [Does] = Box::leak(Box::new([Does::Takes(40), Does::Takes(40), full]));
    for does in [&[Does::Refuses(Status::DISK_FULL)][..], short] {
        for other in [Other::WasThere, Other::HasItOpen, Other::Wrote, Other::Replaced] {
            let (said, done) = send(Command::WRITE, does, true, other);
            assert!(!said.contains(&"remove"), "{other:?}: {said:?}");
            // The client opens the file to look for other writers, except if the file was there
            // before, because then it removes nothing.
            assert_eq!(said.contains(&"open"), other != Other::WasThere, "{other:?}: {said:?}");
            assert_eq!(done.unwrap_err().status(), Some(frevo_client::Status::DISK_FULL));
        }
    }
}

#[test]
fn what_was_not_made_is_not_removed() {
    let (said, done) = put(Command::CREATE, &[Does::Refuses(Status::DISK_FULL)]);
    assert!(!said.contains(&"remove"), "{said:?}");
    assert_eq!(done.unwrap_err().status(), Some(frevo_client::Status::DISK_FULL));
    // ACCESS_DENIED does not mean a full disk, so the file is not removed.
    let (said, done) = put(Command::WRITE, &[Does::Refuses(Status::ACCESS_DENIED)]);
    assert!(!said.contains(&"remove"), "{said:?}");
    assert_eq!(done.unwrap_err().status(), Some(frevo_client::Status::ACCESS_DENIED));
}

#[test]
fn less_than_all_is_not_taken_for_all() {
    // The server has written only 40 bytes, so the client writes the remaining data.
    let (said, done) = put(Command::WRITE, &[Does::Takes(40), Does::Takes(60)]);
    assert_eq!(said, ["make", "write", "make", "write", "write"]);
    done.unwrap();
    // The server has written a part, but the disk becomes full before the rest, so the incomplete
    // file is removed.
    let full = Does::Refuses(Status::DISK_FULL);
    let does: &'static [Does] = Box::leak(Box::new([Does::Takes(40), Does::Takes(40), full]));
    let (said, done) = put(Command::WRITE, does);
    assert_eq!(said, ["make", "write", "make", "write", "write", "open", "remove"]);
    assert_eq!(done.unwrap_err().status(), Some(frevo_client::Status::DISK_FULL));
}
