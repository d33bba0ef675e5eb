//! QUERY_INFO and SET_INFO: MS-SMB2 3.2.4.8 and 3.2.4.12.

use frevo_wire::Command;
use frevo_wire::command::query_info::{self, InfoType};
use frevo_wire::command::set_info;
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::query::FileAllInformation;

use crate::Status;
use crate::connection::{Call, Message};
use crate::error::{Cause, During, Result};
use crate::metadata::Metadata;
use crate::open::Open;
use crate::share::Replay;

/// Space for FileAllInformation, bytes; the name at its end may be cut.
pub(crate) const ALL_MAX: u32 = 1024;

/// A QUERY_INFO request.
pub(crate) fn query(
    kind: InfoType,
    class: u8,
    additional: u32,
    file_id: FileId,
    input: &[u8],
    max: u32,
) -> Call<'static> {
    let request = query_info::Request {
        info_type: kind,
        file_info_class: class,
        output_buffer_length: max,
        additional_information: additional,
        flags: query_info::QueryInfoFlags::EMPTY,
        file_id,
        input,
    };
    Call::new(Command::QUERY_INFO, |w| request.encode(w)).cost(max)
}

/// A SET_INFO request.
pub(crate) fn set_call(
    kind: InfoType,
    class: u8,
    additional: u32,
    file_id: FileId,
    buffer: &[u8],
) -> Call<'static> {
    let request = set_info::Request {
        info_type: kind,
        file_info_class: class,
        additional_information: additional,
        file_id,
        buffer,
    };
    let cost = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
    Call::new(Command::SET_INFO, |w| request.encode(w)).cost(cost)
}

/// The output of a QUERY_INFO response.
pub(crate) fn output(message: &Message) -> std::result::Result<&[u8], Cause> {
    Ok(query_info::Response::parse(message.bytes())?.output)
}

/// FileAllInformation of an Open; of a POSIX Open its own class.
pub(crate) async fn metadata(open: &Open) -> Result<Metadata> {
    let posix = open.is_posix();
    let class = if posix { FileInfoClass::POSIX.0 } else { FileInfoClass::ALL.0 };
    let message = open
        .ask(Replay::Idempotent, "stat", &[Status::BUFFER_OVERFLOW], |id| {
            Ok(query(InfoType::FILE, class, 0, id, &[], ALL_MAX))
        })
        .await?;
    let bytes = output(&message).during("stat", &open.url)?;
    let read = if posix { crate::metadata::posix::read_posix(bytes) } else { read_all(bytes) };
    Ok(open.share.found(read.during("stat", &open.url)?, false))
}

/// The parts of FileAllInformation that a [`Metadata`] keeps.
pub(crate) fn read_all(bytes: &[u8]) -> frevo_wire::codec::Parsed<Metadata> {
    let all = FileAllInformation::parse(bytes)?;
    Ok(Metadata {
        len: all.standard.end_of_file,
        allocation: all.standard.allocation_size,
        attributes: all.basic.attributes,
        created: all.basic.creation_time,
        accessed: all.basic.last_access_time,
        written: all.basic.last_write_time,
        changed: all.basic.change_time,
        reparse_tag: 0,
        file_id: all.internal.index_number,
        links: all.standard.number_of_links,
        is_junction: false,
        posix: None,
        special: None,
    })
}

/// Sets one class of file information through an Open.
pub(crate) async fn set(
    open: &Open,
    class: FileInfoClass,
    operation: &'static str,
    data: &[u8],
) -> Result<()> {
    open.ask(Replay::Idempotent, operation, &[], |id| {
        Ok(set_call(InfoType::FILE, class.0, 0, id, data))
    })
    .await?;
    Ok(())
}
