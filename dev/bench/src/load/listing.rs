//! A folder that is listed again and again, with answers of 64 KiB.

use anyhow::{Context, Result, ensure};
use frevo_wire::command::query_directory::{QueryDirectoryFlags, Request};
use frevo_wire::file_id::FileId;
use frevo_wire::utf16::Utf16;
use frevo_wire::{Command, Status};

use super::script::{Ask, Script, ask};

/// FileIdBothDirectoryInformation, MS-FSCC 2.4.22, which Windows and Linux ask for.
const CLASS: u8 = 37;
const ANSWER_BYTES: u32 = 65_536;
/// Header and fixed part of a response, MS-SMB2 2.2.34.
const FIXED_LEN: usize = 72;
/// Entries besides the files: "." and "..".
const DOTS: u64 = 2;

pub(super) struct Listing {
    folder: FileId,
    entries: u64,
    /// Entries of this listing so far.
    seen: u64,
    restarts: bool,
}

impl Listing {
    pub(super) const fn new(folder: FileId, entries: u64) -> Self {
        Self { folder, entries, seen: 0, restarts: true }
    }
}

impl Script for Listing {
    fn next(&mut self) -> Vec<Ask> {
        let restarts = std::mem::take(&mut self.restarts);
        let request = Request {
            file_information_class: CLASS,
            flags: QueryDirectoryFlags(u8::from(restarts)),
            file_index: 0,
            file_id: self.folder,
            output_buffer_length: ANSWER_BYTES,
            file_name: Utf16::from_str("*"),
        };
        vec![ask(Command::QUERY_DIRECTORY, |w| request.encode(w))]
    }

    fn reply(&mut self, _command: Command, status: Status, message: &[u8]) -> Result<u64> {
        if status == Status::NO_MORE_FILES {
            let (seen, all) = (self.seen, self.entries + DOTS);
            ensure!(seen == all, "a listing had {seen} entries instead of {all}");
            (self.seen, self.restarts) = (0, true);
            return Ok(0);
        }
        ensure!(status == Status::SUCCESS, "QUERY_DIRECTORY: {status}");
        let found = count(message.get(FIXED_LEN..).context("entries")?)?;
        self.seen += found;
        Ok(found)
    }
}

/// Counts entries by their NextEntryOffset.
fn count(entries: &[u8]) -> Result<u64> {
    let (mut at, mut count) = (0, 0);
    loop {
        let next = entries.get(at..).and_then(|rest| rest.first_chunk::<4>());
        let next = u32::from_le_bytes(*next.context("an entry that is cut off")?) as usize;
        count += 1;
        if next == 0 {
            return Ok(count);
        }
        at += next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_counted_by_their_chain() {
        let mut entries = vec![0; 24];
        entries[0] = 8;
        entries[8] = 16;
        entries[24 - 1] = 1;
        entries.resize(32, 0);
        assert_eq!(count(&entries).unwrap(), 3);
        entries[8] = 200;
        count(&entries).unwrap_err();
    }

    #[test]
    fn a_short_listing_is_noticed() {
        let mut listing = Listing::new(FileId::ALL_ONES, 1);
        assert_eq!(listing.next().len(), 1);
        let mut reply = vec![0; FIXED_LEN + 104];
        assert_eq!(listing.reply(Command::QUERY_DIRECTORY, Status::SUCCESS, &reply).unwrap(), 1);
        listing.reply(Command::QUERY_DIRECTORY, Status::NO_MORE_FILES, &reply).unwrap_err();
        reply.resize(FIXED_LEN + 2 * 104, 0);
        reply[FIXED_LEN] = 104;
        assert_eq!(listing.reply(Command::QUERY_DIRECTORY, Status::SUCCESS, &reply).unwrap(), 2);
        listing.reply(Command::QUERY_DIRECTORY, Status::NO_MORE_FILES, &reply).unwrap();
    }
}
