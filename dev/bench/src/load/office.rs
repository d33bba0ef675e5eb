//! People at work in a folder each: they look at it, read one document, copy it, change another,
//! rename and delete the copy, while the folder is watched.
//!
//! The requests and compounds are those that cifs.ko of Linux 6.12 sends for `ls -l`, `cat`, `cp`,
//! `>>`, `stat`, `mv` and `rm`, as recorded at a share of Frevo. The watch is smbclient's `notify`.

use anyhow::{Result, ensure};
use frevo_wire::command::change_notify::{self, ChangeNotifyFlags, CompletionFilter};
use frevo_wire::command::create::{
    self, CreateDisposition, CreateOptions, ImpersonationLevel, OplockLevel, ShareAccess,
};
use frevo_wire::command::query_directory::{self, QueryDirectoryFlags};
use frevo_wire::command::query_info::{self, InfoType, QueryInfoFlags};
use frevo_wire::command::{close, read, set_info, write};
use frevo_wire::create_context::{
    CreateContext, CreateContexts, Lease, LeaseFlags, LeaseKey, LeaseState, LeaseV2,
};
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::file_id::FileId;
use frevo_wire::utf16::Utf16;
use frevo_wire::{Command, Status};

use super::script::{Ask, Script, ask};
use crate::share::{self, DOCUMENT_BYTES, DOCUMENTS};

/// FILE_READ_DATA, FILE_WRITE_DATA, FILE_READ_ATTRIBUTES and DELETE, MS-SMB2 2.2.13.1.1.
const READ_DATA: u32 = 0x1;
const WRITE_DATA: u32 = 0x2;
const READ_ATTRIBUTES: u32 = 0x80;
const DELETE: u32 = 0x1_0000;
/// FileAllInformation, FileIdFullDirectoryInformation, FileRenameInformation: MS-FSCC 2.4.
const FILE_ALL: u8 = 18;
const FILE_ID_FULL_DIRECTORY: u8 = 38;
const FILE_RENAME: u8 = 10;
/// Bytes of an appended line.
const LINE_BYTES: usize = 100;
/// FILE_NOTIFY_CHANGE_FILE_NAME, DIR_NAME and LAST_WRITE, MS-SMB2 2.2.35.
const WATCHED: u32 = 0x13;

/// A file of the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Folder,
    Read,
    Changed,
    Copy,
    Moved,
}

/// A step, which is one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Attributes, in one compound.
    Stat(Name),
    /// The same, for a name that is not there.
    Missing(Name),
    OpenAndList,
    ListOn,
    Open(Name),
    New(Name),
    Read,
    Write(usize),
    Close,
    Rename,
    Delete(Name),
}

const DAY: [Step; 25] = [
    Step::Stat(Name::Folder),
    Step::OpenAndList,
    Step::ListOn,
    Step::Close,
    Step::Stat(Name::Read),
    Step::Open(Name::Read),
    Step::Read,
    Step::Close,
    Step::Missing(Name::Copy),
    Step::Stat(Name::Read),
    Step::New(Name::Copy),
    Step::Write(DOCUMENT_BYTES),
    Step::Close,
    Step::Stat(Name::Copy),
    Step::Stat(Name::Changed),
    Step::Open(Name::Changed),
    Step::Write(LINE_BYTES),
    Step::Close,
    Step::Stat(Name::Changed),
    Step::Stat(Name::Copy),
    Step::Missing(Name::Moved),
    Step::Rename,
    Step::Stat(Name::Folder),
    Step::Stat(Name::Moved),
    Step::Delete(Name::Moved),
];

pub(super) struct Office {
    user: usize,
    folder: FileId,
    /// The Open of the last CREATE that a later frame uses.
    opened: FileId,
    at: usize,
    days: usize,
    /// The step whose replies are awaited.
    step: Step,
    watches: bool,
}

impl Office {
    pub(super) const fn new(user: usize, folder: FileId) -> Self {
        let (opened, step) = (FileId::ALL_ONES, Step::Close);
        Self { user, folder, opened, at: 0, days: 0, step, watches: false }
    }

    fn path(&self, name: Name) -> String {
        let document = |n: usize| share::document_name(self.user, n % DOCUMENTS);
        let folder = share::office_name(self.user);
        match name {
            Name::Folder => folder,
            Name::Read => document(self.days),
            Name::Changed => document(self.days * 7 + 3),
            Name::Copy => format!("{folder}\\copy.txt"),
            Name::Moved => format!("{folder}\\moved.txt"),
        }
    }

    fn frame(&self, step: Step) -> Vec<Ask> {
        let related = FileId::ALL_ONES;
        match step {
            Step::Stat(name) | Step::Missing(name) => {
                vec![self.open(name, READ_ATTRIBUTES), all_information(), close_of(related)]
            }
            Step::OpenAndList => {
                let open = self.open(Name::Folder, READ_ATTRIBUTES | READ_DATA);
                vec![open, list(related, true)]
            }
            Step::ListOn => vec![list(self.opened, false)],
            Step::Open(name) => vec![self.open(name, READ_ATTRIBUTES | READ_DATA | WRITE_DATA)],
            Step::New(name) => {
                let access = READ_ATTRIBUTES | READ_DATA | WRITE_DATA;
                vec![self.create(name, access, CreateDisposition::OVERWRITE_IF, CreateOptions(0))]
            }
            Step::Read => {
                let request = read::Request::new(self.opened, 0, DOCUMENT_BYTES as u32);
                vec![ask(Command::READ, |w| request.encode(w))]
            }
            Step::Write(bytes) => {
                // A document is written at its beginning, but a single line is appended at its end.
                let offset = if bytes == DOCUMENT_BYTES { 0 } else { DOCUMENT_BYTES as u64 };
                let data = vec![b'.'; bytes];
                let request = write::Request::new(self.opened, offset, &data);
                vec![ask(Command::WRITE, |w| request.encode(w))]
            }
            Step::Close => vec![close_of(self.opened)],
            Step::Rename => {
                let to = rename_to(&self.path(Name::Moved));
                let open = self.open(Name::Copy, DELETE | READ_ATTRIBUTES);
                vec![open, to, close_of(related)]
            }
            Step::Delete(name) => {
                let options = CreateOptions::DELETE_ON_CLOSE;
                let access = DELETE | READ_ATTRIBUTES;
                let open = self.create(name, access, CreateDisposition::OPEN, options);
                vec![open, close_of(related)]
            }
        }
    }

    fn open(&self, name: Name, access: u32) -> Ask {
        self.create(name, access, CreateDisposition::OPEN, CreateOptions(0))
    }

    fn create(
        &self,
        name: Name,
        access: u32,
        disposition: CreateDisposition,
        options: CreateOptions,
    ) -> Ask {
        let uses_data = access & (READ_DATA | WRITE_DATA) != 0 && name != Name::Folder;
        let lease = CreateContext::LeaseV2(self.lease(name));
        let contexts =
            if uses_data { CreateContexts::from_requests(&[lease]) } else { CreateContexts::EMPTY };
        let request = create::Request {
            requested_oplock_level: if uses_data { OplockLevel::LEASE } else { OplockLevel::NONE },
            impersonation_level: ImpersonationLevel::IMPERSONATION,
            desired_access: AccessMask(access),
            file_attributes: FileAttributes(0),
            share_access: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
            create_disposition: disposition,
            create_options: options,
            name: Utf16::from_str(&self.path(name)),
            contexts,
        };
        ask(Command::CREATE, |w| request.encode(w))
    }

    /// A lease for the file's name, with all rights, as Linux asks for it.
    fn lease(&self, name: Name) -> LeaseV2 {
        let mut key = [0; 16];
        let path = self.path(name);
        // Paths of files in one folder differ only at their ends, so the lease key is made from the
        // end.
        let tail = path.as_bytes();
        key.iter_mut().zip(tail.iter().rev()).for_each(|(to, from)| *to = *from);
        key[15] = u8::try_from(self.user % 256).unwrap_or(0);
        let lease_state = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
        LeaseV2 {
            lease: Lease { lease_key: LeaseKey(key), lease_state, flags: LeaseFlags::EMPTY },
            parent_lease_key: LeaseKey([0; 16]),
            epoch: 0,
        }
    }
}

impl Script for Office {
    fn next(&mut self) -> Vec<Ask> {
        let step = DAY[self.at];
        self.step = step;
        let mut frame = self.frame(step);
        if step == Step::Close && !self.watches {
            // A watch cannot be part of a compound, so it is sent alone before the next frame.
            self.watches = true;
            frame = vec![watch(self.folder)];
            return frame;
        }
        self.at += 1;
        if self.at == DAY.len() {
            (self.at, self.days) = (0, self.days + 1);
        }
        frame
    }

    fn reply(&mut self, command: Command, status: Status, message: &[u8]) -> Result<u64> {
        if command == Command::CHANGE_NOTIFY {
            self.watches = false;
            ensure!(status == Status::SUCCESS, "CHANGE_NOTIFY: {status}");
            return Ok(1);
        }
        let expected = match self.step {
            Step::Missing(_) => Status::OBJECT_NAME_NOT_FOUND,
            Step::ListOn => Status::NO_MORE_FILES,
            _ => Status::SUCCESS,
        };
        ensure!(status == expected, "{:?}: {command}: {status}", self.step);
        if command == Command::CREATE && status == Status::SUCCESS {
            self.opened = create::Response::parse(message)?.file_id;
        }
        Ok(1)
    }
}

fn all_information() -> Ask {
    let request = query_info::Request {
        info_type: InfoType::FILE,
        file_info_class: FILE_ALL,
        output_buffer_length: 4096,
        additional_information: 0,
        flags: QueryInfoFlags(0),
        file_id: FileId::ALL_ONES,
        input: &[],
    };
    ask(Command::QUERY_INFO, |w| request.encode(w))
}

fn close_of(file_id: FileId) -> Ask {
    let request = close::Request { flags: close::CloseFlags(0), file_id };
    ask(Command::CLOSE, |w| request.encode(w))
}

fn list(file_id: FileId, restarts: bool) -> Ask {
    let request = query_directory::Request {
        file_information_class: FILE_ID_FULL_DIRECTORY,
        flags: QueryDirectoryFlags(u8::from(restarts)),
        file_index: 0,
        file_id,
        output_buffer_length: 65_536,
        file_name: Utf16::from_str("*"),
    };
    ask(Command::QUERY_DIRECTORY, |w| request.encode(w))
}

/// MS-FSCC 2.4.43.2.
fn rename_to(path: &str) -> Ask {
    let name = Utf16::from_str(path);
    let name = name.as_bytes();
    let mut buffer = vec![0; 16];
    buffer[0] = 1;
    buffer.extend_from_slice(&u32::try_from(name.len()).unwrap_or(0).to_le_bytes());
    buffer.extend_from_slice(name);
    let request = set_info::Request {
        info_type: InfoType::FILE,
        file_info_class: FILE_RENAME,
        additional_information: 0,
        file_id: FileId::ALL_ONES,
        buffer: &buffer,
    };
    ask(Command::SET_INFO, |w| request.encode(w))
}

fn watch(folder: FileId) -> Ask {
    let request = change_notify::Request {
        flags: ChangeNotifyFlags(0),
        output_buffer_length: 4096,
        file_id: folder,
        completion_filter: CompletionFilter(WATCHED),
    };
    ask(Command::CHANGE_NOTIFY, |w| request.encode(w))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_asks_each_step_once_and_watches_the_folder() {
        let mut office = Office::new(0, FileId::ALL_ONES);
        let mut asked = Vec::new();
        while office.days == 0 {
            asked.push(office.next().iter().map(|ask| ask.command).collect::<Vec<_>>());
        }
        assert_eq!(asked.len(), DAY.len() + 1);
        assert_eq!(asked[3], [Command::CHANGE_NOTIFY]);
        assert_eq!(asked[0], [Command::CREATE, Command::QUERY_INFO, Command::CLOSE]);
    }
}
