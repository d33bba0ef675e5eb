//! The requests and answers of a listing.

use std::collections::VecDeque;
use std::sync::Arc;

use frevo_wire::command::query_directory::{self, QueryDirectoryFlags};
use frevo_wire::dtyp::FileAttributes;
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::{DirectoryEntries, FileInfoClass};
use frevo_wire::{Command, Utf16};

use super::DirEntry;
use crate::Status;
use crate::connection::{Call, Message};
use crate::error::{Cause, During, Result};
use crate::limits::LISTING_BYTES;
use crate::metadata::Metadata;
use crate::metadata::posix::PosixMetadata;
use crate::open::Open;
use crate::path::{is_sound, name_from_posix};
use crate::session::Live;
use crate::share::compound::RELATED;
use crate::share::{Replay, Share};

/// IO_REPARSE_TAG_DFS and IO_REPARSE_TAG_DFSR, MS-FSCC 2.1.2.1.
const DFS: u32 = 0x8000_000A;
const DFSR: u32 = 0x8000_0012;

/// Bytes of the second QUERY_DIRECTORY of a round trip. It mostly finds the end of the directory,
/// which SMB tells only to one more request.
const END_BYTES: u32 = 65_536;

/// Space for the headers and for the answer to a CREATE, bytes.
const OTHER_BYTES: u32 = 4096;

/// Most bytes of entries in the first answer of a round trip: all of its answers are one message.
pub(super) fn listing_bytes(live: &Live) -> u32 {
    let message = live.affordable_in_message();
    let most = message.saturating_sub(END_BYTES + OTHER_BYTES).max(message / 4);
    LISTING_BYTES.min(live.terms.max_transact_size).min(most)
}

/// Returns true for an answer to a listing: entries, or their end.
pub(super) fn is_answer(message: &Message) -> bool {
    let status = message.status();
    status == Status::SUCCESS || LISTING_ENDS.contains(&status)
}

/// The statuses of a listing that is complete.
const LISTING_ENDS: [Status; 2] = [Status::NO_MORE_FILES, Status::NO_SUCH_FILE];

/// Asks for the next entries and returns the answers.
pub(super) async fn request(
    open: Arc<Open>,
    class: FileInfoClass,
    pattern: String,
    is_first: bool,
) -> Result<Vec<Message>> {
    let session = open.share.session();
    let live = session.inner.live().await.during("list", &open.url)?;
    let most = listing_bytes(&live);
    // A scan that has begun is never repeated, because only the server knows its position, and a
    // late request over another channel could move it (MS-SMB2 3.3.5.2.10 does not refuse late
    // listings).
    let replay = if is_first && !live.is_wide { Replay::Idempotent } else { Replay::Never };
    let make = |id| calls(id, class, &pattern, is_first, most);
    open.ask_all(replay, "list", &LISTING_ENDS, make).await
}

/// The requests of one round trip of a listing.
pub(super) fn calls(
    file_id: FileId,
    class: FileInfoClass,
    pattern: &str,
    is_first: bool,
    most: u32,
) -> Vec<Call<'static>> {
    let flags =
        if is_first { QueryDirectoryFlags::RESTART_SCANS } else { QueryDirectoryFlags::EMPTY };
    let next = QueryDirectoryFlags::EMPTY;
    vec![
        call(file_id, class, flags, pattern, most),
        call(RELATED, class, next, pattern, most.min(END_BYTES)),
    ]
}

fn call(
    file_id: FileId,
    class: FileInfoClass,
    flags: QueryDirectoryFlags,
    pattern: &str,
    most: u32,
) -> Call<'static> {
    let request = query_directory::Request {
        file_information_class: class.0,
        flags,
        file_index: 0,
        file_id,
        output_buffer_length: most,
        file_name: Utf16::from_str(pattern),
    };
    Call::new(Command::QUERY_DIRECTORY, |w| request.encode(w)).cost(most)
}

/// Appends the entries of a reply about a directory of `share`. A name that leads out of
/// the directory is an attack by the server (CVE-2019-10218) and ends the listing.
pub(super) fn read(
    message: &Message,
    class: FileInfoClass,
    share: &Share,
    into: &mut VecDeque<DirEntry>,
) -> std::result::Result<(), Cause> {
    let output = query_directory::Response::parse(message.bytes())?.output;
    let entries = DirectoryEntries::new(output, class)
        .ok_or(Cause::Protocol("it answered a listing with another class of information"))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.name.decode().unwrap_or_else(|_| entry.name.to_string_lossy());
        if name == "." || name == ".." {
            continue;
        }
        let name = if entry.posix.is_some() { name_from_posix(name) } else { name };
        if !is_sound(&name) {
            return Err(Cause::Protocol("a directory contains a name that is not a file name"));
        }
        // MS-FSCC 2.1.2.1: the tags DFS and DFSR mark links of a DFS namespace, which are shown as
        // directories.
        let is_junction = share.way.is_some()
            && entry.attributes.contains(FileAttributes::REPARSE_POINT)
            && matches!(entry.reparse_tag, DFS | DFSR);
        let mut attributes = entry.attributes;
        if is_junction {
            attributes.0 &= !FileAttributes::REPARSE_POINT.0;
            attributes |= FileAttributes::DIRECTORY;
        }
        let metadata = Metadata {
            len: entry.end_of_file,
            allocation: entry.allocation_size,
            attributes,
            created: entry.creation_time,
            accessed: entry.last_access_time,
            written: entry.last_write_time,
            changed: entry.change_time,
            reparse_tag: entry.reparse_tag,
            file_id: entry.file_id,
            links: entry.posix.map_or(0, |posix| posix.links),
            posix: entry.posix.as_ref().map(PosixMetadata::of),
            is_junction: false,
            special: None,
        };
        let metadata = share.found(metadata, is_junction);
        if planted!(MissedName) && into.len() == 2 {
            continue;
        }
        into.push_back(DirEntry { name, metadata });
    }
    Ok(())
}
