//! Drafts of QUERY_INFO and QUERY_DIRECTORY.

use frevo_wire::command::query_directory::{self, QueryDirectoryFlags};
use frevo_wire::command::query_info::{self, InfoType, QueryInfoFlags};
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::{Command, Utf16};

use super::draft::Draft;
use super::files::utf16;

/// As much as one credit pays for.
const ROOM: u32 = 65_536;

pub fn query_info_draft(file: FileId, info_type: InfoType, class: u8, parts: u32) -> Draft {
    let request = query_info::Request {
        info_type,
        file_info_class: class,
        output_buffer_length: ROOM,
        additional_information: parts,
        flags: QueryInfoFlags::EMPTY,
        file_id: file,
        input: &[],
    };
    Draft::new(Command::QUERY_INFO).with(|w| request.encode(w))
}

pub fn query_draft(class: FileInfoClass, file: FileId) -> Draft {
    query_info_draft(file, InfoType::FILE, class.0, 0)
}

pub fn list_draft(
    directory: FileId,
    class: FileInfoClass,
    flags: QueryDirectoryFlags,
    pattern: &str,
) -> Draft {
    let pattern = utf16(pattern);
    let request = query_directory::Request {
        file_information_class: class.0,
        flags,
        file_index: 0,
        file_id: directory,
        output_buffer_length: ROOM,
        file_name: Utf16::new(&pattern).unwrap(),
    };
    Draft::new(Command::QUERY_DIRECTORY).with(|w| request.encode(w))
}
