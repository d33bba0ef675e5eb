//! Information about files: MS-SMB2 3.3.5.20.1, MS-FSA 2.1.5.12.

use std::sync::atomic::Ordering;

use frevo_proto::Dialect;
use frevo_store::vfs::Kind;
use frevo_store::{Stat, short_name};
use frevo_wire::Status;
use frevo_wire::command::query_info;
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::fscc::posix::PosixAttributes;
use frevo_wire::fscc::query::{
    CompressionFormat, FileAccessInformation, FileAlignmentInformation, FileAllInformation,
    FileAttributeTagInformation, FileBasicInformation, FileCompressionInformation,
    FileEaInformation, FileIdInformation, FileInternalInformation, FileMode, FileModeInformation,
    FileNameInformation, FileNetworkOpenInformation, FilePipeInformation, FilePipeLocalInformation,
    FilePipeRemoteInformation, FilePositionInformation, FileStandardInformation, StreamEntry,
    StreamWriter,
};
use frevo_wire::fscc::reparse::ReparseTag;
use frevo_wire::fscc::{FileInfoClass, Pushed, utf16_len};

use super::{Output, eas};
use crate::ipc;
use crate::objects::open::{FileOpen, Open, OpenTarget};
use crate::objects::refusal::Refusal;
use crate::objects::shown::{self, Shown};
use crate::shares::apple;
use crate::shares::posix;
use frevo_store::vfs::StreamStat;

/// The conditions that a class demands before it is answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// Rights, all of which must have been granted.
    pub(super) access: AccessMask,
    /// Smallest output buffer; less is INFO_LENGTH_MISMATCH.
    pub(super) min: usize,
}

const fn open_to_all(min: usize) -> Row {
    Row { access: AccessMask::EMPTY, min }
}

const fn reads_attributes(min: usize) -> Row {
    Row { access: AccessMask::READ_ATTRIBUTES, min }
}

/// The row of a class, or the status that refuses it.
pub(super) fn row(class: FileInfoClass, dialect: Dialect) -> Result<Row, Status> {
    let is_smb3 = matches!(dialect, Dialect::SMB_3_0 | Dialect::SMB_3_0_2 | Dialect::SMB_3_1_1);
    Ok(match class {
        FileInfoClass::BASIC => reads_attributes(FileBasicInformation::SIZE),
        FileInfoClass::STANDARD => open_to_all(FileStandardInformation::SIZE),
        FileInfoClass::INTERNAL => open_to_all(FileInternalInformation::SIZE),
        FileInfoClass::EA => open_to_all(FileEaInformation::SIZE),
        FileInfoClass::ACCESS => open_to_all(FileAccessInformation::SIZE),
        FileInfoClass::POSITION => open_to_all(FilePositionInformation::SIZE),
        FileInfoClass::FULL_EA => Row { access: AccessMask::READ_EA, min: 1 },
        FileInfoClass::MODE => open_to_all(FileModeInformation::SIZE),
        FileInfoClass::ALIGNMENT => open_to_all(FileAlignmentInformation::SIZE),
        // In MS-FSA the minimum length of this class includes one character of the name and
        // padding.
        FileInfoClass::ALL => reads_attributes(104),
        FileInfoClass::ALTERNATE_NAME => open_to_all(8),
        FileInfoClass::STREAM => open_to_all(32),
        FileInfoClass::PIPE => reads_attributes(FilePipeInformation::SIZE),
        FileInfoClass::PIPE_LOCAL => reads_attributes(FilePipeLocalInformation::SIZE),
        FileInfoClass::PIPE_REMOTE => reads_attributes(FilePipeRemoteInformation::SIZE),
        FileInfoClass::COMPRESSION => open_to_all(FileCompressionInformation::SIZE),
        FileInfoClass::NETWORK_OPEN => reads_attributes(FileNetworkOpenInformation::SIZE),
        FileInfoClass::ATTRIBUTE_TAG => reads_attributes(FileAttributeTagInformation::SIZE),
        FileInfoClass::NORMALIZED_NAME if dialect == Dialect::SMB_3_1_1 => open_to_all(8),
        FileInfoClass::POSIX => reads_attributes(PosixAttributes::FIXED_SIZE),
        FileInfoClass::ID if is_smb3 => open_to_all(FileIdInformation::SIZE),
        _ => return Err(refusal(class)),
    })
}

/// The status of classes that cannot be queried over the wire.
const fn refusal(class: FileInfoClass) -> Status {
    match class.0 {
        // Classes that are only for directories or for SET_INFO count as unknown, as on Windows;
        // MS-SMB2 3.3.5.20.1 would have NOT_SUPPORTED.
        1..=3 | 10..=13 | 19 | 20 | 27 | 31 | 36..=40 | 50 => Status::INVALID_INFO_CLASS,
        // MS-FSCC 2.4 defines these classes, but for other requests or other dialects, so they are
        // NOT_SUPPORTED.
        9 | 26 | 29 | 32 | 33 | 44..=46 | 48 | 54 | 59 | 60 | 64 | 65 | 78..=81 => {
            Status::NOT_SUPPORTED
        }
        // MS-SMB2 3.3.5.20.1 note 416: numbers without a class that Windows knows nevertheless.
        41 | 43 | 47 | 49 | 51 | 53 => Status::NOT_SUPPORTED,
        52 => Status::INFO_LENGTH_MISMATCH,
        _ => Status::INVALID_INFO_CLASS,
    }
}

/// Answers a query of a file, a directory or a pipe.
pub(super) fn query(
    open: &Open,
    dialect: Dialect,
    shown: Option<&Shown>,
    request: &query_info::Request<'_>,
    output: &mut Output<'_>,
) -> Result<(), Refusal> {
    let class = FileInfoClass(request.file_info_class);
    if class == FileInfoClass::POSIX && !open.is_posix() {
        return Err(Status::INVALID_INFO_CLASS.into());
    }
    let row = row(class, dialect)?;
    output.require(row.min)?;
    open.require(row.access)?;
    let file = match &open.target {
        OpenTarget::File(file) => file,
        OpenTarget::Pipe(_) => return pipe(open, class, output),
    };
    match class {
        FileInfoClass::FULL_EA => return eas::query(file, request, output),
        FileInfoClass::ALTERNATE_NAME => alternate_name(open, file, output)?,
        FileInfoClass::PIPE | FileInfoClass::PIPE_LOCAL | FileInfoClass::PIPE_REMOTE => {
            return Err(Status::INVALID_PARAMETER.into());
        }
        FileInfoClass::STREAM => streams(file, output)?,
        FileInfoClass::NORMALIZED_NAME => {
            // A UTF-16 code unit has two bytes, so an odd last byte of the buffer stays unused.
            output.room &= !1;
            let name = shown_name(open, file);
            FileNameInformation { name: name.as_str() }.encode(&mut output.writer());
        }
        _ => fixed(class, open, file, shown, output)?,
    }
    Ok(())
}

/// Pipes know their own classes; what is known of every handle is told here.
fn pipe(open: &Open, class: FileInfoClass, output: &mut Output<'_>) -> Result<(), Refusal> {
    match class {
        FileInfoClass::ACCESS => access(open).encode(&mut output.writer()),
        _ => ipc::pipe_info(open, class, &mut output.writer())?,
    }
    Ok(())
}

/// The classes of fixed size, and the one that is all of them with a name.
fn fixed(
    class: FileInfoClass,
    open: &Open,
    file: &FileOpen,
    shown: Option<&Shown>,
    output: &mut Output<'_>,
) -> Result<(), Status> {
    let mut w = output.writer();
    match class {
        FileInfoClass::ACCESS => access(open).encode(&mut w),
        FileInfoClass::POSITION => position(file).encode(&mut w),
        FileInfoClass::MODE => mode(file).encode(&mut w),
        FileInfoClass::ALIGNMENT => ALIGNMENT.encode(&mut w),
        _ => {
            let stat = match class {
                FileInfoClass::EA | FileInfoClass::ALL => file.stat_with_eas()?,
                _ => shown::stat(shown, file)?,
            };
            match class {
                FileInfoClass::POSIX => posix::attributes(&stat).encode(&mut w),
                FileInfoClass::BASIC => basic(&stat).encode(&mut w),
                FileInfoClass::STANDARD => standard(file, &stat).encode(&mut w),
                FileInfoClass::INTERNAL => internal(file, &stat).encode(&mut w),
                FileInfoClass::EA => FileEaInformation { ea_size: stat.ea_size }.encode(&mut w),
                FileInfoClass::COMPRESSION => compression(&stat).encode(&mut w),
                FileInfoClass::NETWORK_OPEN => network_open(&stat).encode(&mut w),
                FileInfoClass::ATTRIBUTE_TAG => attribute_tag(&stat).encode(&mut w),
                FileInfoClass::ID => id(file, &stat).encode(&mut w),
                FileInfoClass::ALL => all(open, file, &stat, output),
                _ => return Err(Status::INVALID_INFO_CLASS),
            }
        }
    }
    Ok(())
}

fn all(open: &Open, file: &FileOpen, stat: &Stat, output: &mut Output<'_>) {
    // MS-SMB2 3.3.5.20.1, note 420: Windows up to Server 2012 R2 returns the path as the name,
    // later versions an empty name. Frevo returns the path, as smbd does, because cifs.ko of Linux
    // 6.1 needs it to mount.
    let name = format!("\\{}", shown_name(open, file));
    FileAllInformation {
        basic: basic(stat),
        standard: standard(file, stat),
        internal: internal(file, stat),
        ea: FileEaInformation { ea_size: stat.ea_size },
        access: access(open),
        position: position(file),
        mode: mode(file),
        alignment: ALIGNMENT,
        name: name.as_str(),
    }
    .encode(&mut output.writer());
}

const fn basic(stat: &Stat) -> FileBasicInformation {
    FileBasicInformation {
        creation_time: stat.created,
        last_access_time: stat.accessed,
        last_write_time: stat.written,
        change_time: stat.changed,
        attributes: stat.attributes,
    }
}

/// MS-FSA 2.1.5.12.27: the name that goes with the last close is no link any
/// more. Subdirectories, which POSIX counts, are none either.
fn standard(file: &FileOpen, stat: &Stat) -> FileStandardInformation {
    let delete_pending = file.cell.lock().is_going(file.id);
    let deleted = file.own_cell().lock().deleted_links();
    let links = if stat.kind == Kind::Directory { stat.links.min(1) } else { stat.links };
    let number_of_links = links.saturating_sub(u32::try_from(deleted).unwrap_or(u32::MAX));
    FileStandardInformation {
        allocation_size: stat.allocation,
        end_of_file: stat.end_of_file,
        number_of_links,
        delete_pending: delete_pending || number_of_links == 0,
        directory: stat.attributes.contains(FileAttributes::DIRECTORY),
    }
}

const fn internal(file: &FileOpen, stat: &Stat) -> FileInternalInformation {
    FileInternalInformation { index_number: if file.apple { 0 } else { stat.id } }
}

const fn access(open: &Open) -> FileAccessInformation {
    FileAccessInformation { access: open.granted_access }
}

fn position(file: &FileOpen) -> FilePositionInformation {
    let offset = file.position.load(Ordering::Relaxed);
    FilePositionInformation { current_byte_offset: i64::try_from(offset).unwrap_or(i64::MAX) }
}

fn mode(file: &FileOpen) -> FileModeInformation {
    let mode = file.mode.load(Ordering::Relaxed);
    FileModeInformation { mode: FileMode(u32::try_from(mode).unwrap_or(0)) }
}

/// Any offset is as good as another.
const ALIGNMENT: FileAlignmentInformation = FileAlignmentInformation { alignment_requirement: 0 };

const fn compression(stat: &Stat) -> FileCompressionInformation {
    FileCompressionInformation {
        compressed_file_size: stat.allocation,
        compression_format: compression_format(stat),
        compression_unit_shift: 0,
        chunk_shift: 0,
        cluster_shift: 0,
    }
}

/// MS-FSCC 2.3.19: LZNT1 is the only name there is for what is compressed.
pub(in crate::command) const fn compression_format(stat: &Stat) -> CompressionFormat {
    if stat.attributes.contains(FileAttributes::COMPRESSED) {
        CompressionFormat::LZNT1
    } else {
        CompressionFormat::NONE
    }
}

const fn network_open(stat: &Stat) -> FileNetworkOpenInformation {
    FileNetworkOpenInformation {
        creation_time: stat.created,
        last_access_time: stat.accessed,
        last_write_time: stat.written,
        change_time: stat.changed,
        allocation_size: stat.allocation,
        end_of_file: stat.end_of_file,
        attributes: stat.attributes,
    }
}

const fn attribute_tag(stat: &Stat) -> FileAttributeTagInformation {
    FileAttributeTagInformation {
        attributes: stat.attributes,
        reparse_tag: ReparseTag(stat.reparse_tag),
    }
}

fn id(file: &FileOpen, stat: &Stat) -> FileIdInformation {
    FileIdInformation {
        volume_serial_number: u64::from(file.vfs.volume().serial),
        file_id: if file.apple { [0; 16] } else { wide_id(stat) },
    }
}

/// The 128-bit identifier: the narrow one with zeros behind, as NTFS has it.
pub(in crate::command) fn wide_id(stat: &Stat) -> [u8; 16] {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&stat.id.to_le_bytes());
    id
}

/// MS-FSA 2.1.5.12.4: a name that is an 8.3 name already is its own alternate;
/// others have one where the volume has short names.
fn alternate_name(open: &Open, file: &FileOpen, output: &mut Output<'_>) -> Result<(), Status> {
    let name = file.name();
    let name = name.last();
    if short_name::is_8_3(name) {
        FileNameInformation { name }.encode(&mut output.writer());
        return Ok(());
    }
    let has_them = file.vfs.volume().short_names && !open.is_posix();
    let short = short_name::short_name(name).filter(|_| has_them);
    let name = short.ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
    FileNameInformation { name: name.as_str() }.encode(&mut output.writer());
    Ok(())
}

/// The name by which it was opened, and the stream behind a colon.
fn shown_name(open: &Open, file: &FileOpen) -> String {
    file.cell.lock().name_of(open.id()).to_string()
}

/// Bytes of an entry of FileStreamInformation before its name.
const STREAM_ENTRY: usize = 24;

/// MS-FSA 2.1.5.12.29: the file's own data, which directories do not have, and
/// the named streams. Windows: what does not fit whole is left out.
fn streams(file: &FileOpen, output: &mut Output<'_>) -> Result<(), Status> {
    let own = match &file.base {
        None => file.stat()?,
        Some(_) => {
            file.vfs.stat(&file.name().with_stream(None)).map_err(frevo_store::Fault::status)?
        }
    };
    let named = file.node.streams().map_err(frevo_store::Fault::status)?;
    let own = (own.kind != Kind::Directory)
        .then(|| ("::$DATA".to_owned(), own.end_of_file, own.allocation));
    let name = file.name();
    let shows = |stream: &StreamStat| apple::shows(&*file.vfs, &name, file.apple, stream);
    let named = named.into_iter().filter(shows);
    let named = named.map(|s| (format!(":{}:$DATA", s.name), s.size, s.allocation));
    let (room, mut used) = (output.room, 0usize);
    let mut overflowed = false;
    let mut writer = StreamWriter::new(output.bytes(), usize::MAX);
    for (name, size, allocation_size) in own.into_iter().chain(named) {
        let end = used.next_multiple_of(8) + STREAM_ENTRY + utf16_len(&name);
        overflowed = used > 0 && end > room;
        // If not even the first entry fits, it is cut off at the end of the buffer and the status
        // is BUFFER_OVERFLOW.
        if overflowed
            || writer.push(&StreamEntry { name: &name, size, allocation_size }) == Pushed::Full
        {
            break;
        }
        used = end;
    }
    output.overflowed |= overflowed;
    Ok(())
}
