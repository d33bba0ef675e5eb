//! QUERY_INFO and SET_INFO on Opens.

use frevo_wire::Status;
use frevo_wire::command::query_info::InfoType;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::query::FileAllInformation;

use crate::error::{During, Result};
use crate::file::{output, query};
use crate::metadata::Metadata;
use crate::open::Open;
use crate::share::Replay;

/// Room for FileAllInformation; the name at its end may be cut.
pub(crate) const ALL_MAX: u32 = 1024;

/// FileAllInformation of an Open.
pub(crate) async fn metadata(open: &Open) -> Result<Metadata> {
    let posix = open.is_posix();
    let class = if posix { FileInfoClass::POSIX.0 } else { FileInfoClass::ALL.0 };
    let message = open
        .ask(Replay::Idempotent, "stat", &[Status::BUFFER_OVERFLOW], |id| {
            Ok(query(InfoType::FILE, class, 0, id, &[], ALL_MAX))
        })
        .await?;
    let bytes = output(&message).during("stat", &open.url)?;
    let read = if posix { crate::posix::read_posix(bytes) } else { read_all(bytes) };
    Ok(read.during("stat", &open.url)?.found_in(&open.share, false))
}

/// What of FileAllInformation a [`Metadata`] keeps.
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

/// Sets one class.
pub(crate) async fn set(
    open: &Open,
    class: FileInfoClass,
    operation: &'static str,
    data: &[u8],
) -> Result<()> {
    open.ask(Replay::Idempotent, operation, &[], |id| {
        Ok(crate::file::set(InfoType::FILE, class.0, 0, id, data))
    })
    .await?;
    Ok(())
}
