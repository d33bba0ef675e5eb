//! The effects of a CREATE of a named stream on the stream's file: MS-FSA 2.1.5.1.1.

use std::sync::Arc;

use frevo_store::file::Admission;
use frevo_store::vfs::{Opened, Vfs};
use frevo_store::{Departure, FileCell, FileKey, FileTable, Name, OpenId};
use frevo_wire::Status;
use frevo_wire::command::change_notify::CompletionFilter;
use frevo_wire::fscc::notify::NotifyAction;

use crate::objects::open::FileOpen;

/// Notes the Open of a stream with its file; nothing for other Opens.
pub(super) fn attach(
    files: &FileTable,
    key: FileKey,
    name: &Name,
    admission: Admission,
) -> Result<Option<Arc<FileCell>>, Status> {
    if key.stream == 0 {
        return Ok(None);
    }
    let admission = Admission { delete_on_close: false, ..admission };
    files.attach(key.file(), name, admission).map(Some)
}

/// Takes that back for a CREATE that fails. Another Open may have marked the
/// file to go and closed meanwhile: then it goes now.
pub(super) fn detach(
    files: &FileTable,
    vfs: &Arc<dyn Vfs>,
    base: Option<&Arc<FileCell>>,
    id: OpenId,
) {
    if let Some(base) = base {
        leave(files, vfs, base, id);
    }
}

/// Takes the Open of a CREATE that fails out of a file. Names that others have deleted meanwhile go
/// with it.
pub(super) fn leave(files: &FileTable, vfs: &Arc<dyn Vfs>, cell: &Arc<FileCell>, id: OpenId) {
    if let Departure::Remove(links) = files.leave(cell, id, vfs) {
        for link in &links {
            let remover = cell.lock().remover(link);
            let _ = remover.as_ref().unwrap_or(vfs).remove(&link.name, cell.key());
        }
        files.unlinked(cell, &links);
    }
}

/// Removes what a CREATE made that is refused: a stream, and its file if it made
/// that too.
pub(super) fn unmake(vfs: &dyn Vfs, opened: &Opened) {
    if opened.created {
        let _ = vfs.remove(&opened.name, opened.node.key());
    }
    if opened.file_created && opened.name.stream().is_some() {
        let _ = vfs.remove(&opened.name.with_stream(None), opened.node.key().file());
    }
}

/// Tells those who watch of a file that was made for its stream.
pub(super) fn report_file(file: &FileOpen, files: &FileTable, file_created: bool) {
    if file_created && file.base.is_some() {
        let name = file.name().with_stream(None);
        let action = NotifyAction::ADDED;
        files.watches.report(file.folder_id(), &name, action, CompletionFilter::FILE_NAME);
    }
}
