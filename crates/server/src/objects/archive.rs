//! FILE_ATTRIBUTE_ARCHIVE, by which a backup finds what has changed since the last one: MS-FSA
//! 2.1.4.17, 2.1.4.18, and the sections of single operations that set it.
//!
//! A file that has it costs nothing more: the file's cell knows, and the host is asked at the first
//! change. Programs of the host may clear it meanwhile, as local backups do, and nothing tells of
//! that; so the host is asked again by the first change after [`ARCHIVE_KNOWN`]. Deviation: a change
//! within that time after the attribute was cleared on the host does not set it.
//!
//! Samba stores it as it does other attributes, in `user.DOSATTRIB`.

use std::num::NonZeroU64;
use std::sync::LazyLock;
use std::time::Duration;

use frevo_store::file_cell::Unstable;
use frevo_store::vfs::{BasicChange, Kind, Opened, VfsResult};
use frevo_store::{Fault, FileCell};
use frevo_wire::dtyp::FileAttributes;
use tokio::time::Instant;

use crate::base::limits::ARCHIVE_KNOWN;
use crate::objects::open::FileOpen;

/// Records what opening a file has told of its links and of FILE_ATTRIBUTE_ARCHIVE. Its name is held
/// since before it was looked up, so an only Open of a file with one link knows its attributes.
pub(crate) fn note_opened(cell: &FileCell, opened: &Opened) {
    let stat = &opened.stat;
    if stat.links > 1 && stat.kind != Kind::Directory {
        cell.note_linked();
    }
    let is_set = stat.attributes.contains(FileAttributes::ARCHIVE);
    let is_sole = stat.links <= 1 && cell.lock().open_count() == 1;
    if is_set && is_sole {
        let _ = cell.change_attributes(moment(), || VfsResult::Ok(true));
    }
}

/// Milliseconds since the first call, and one.
pub(crate) fn moment() -> NonZeroU64 {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    let passed = Instant::now().saturating_duration_since(*FIRST).as_millis();
    NonZeroU64::MIN.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
}

/// True while FILE_ATTRIBUTE_ARCHIVE needs no look at the host.
fn is_archived(cell: &FileCell, now: NonZeroU64) -> bool {
    let age = |at: NonZeroU64| Duration::from_millis(now.get().saturating_sub(at.get()));
    cell.archived_at().is_some_and(|at| age(at) < ARCHIVE_KNOWN)
}

impl FileOpen {
    /// The state of the file itself, also when a named stream of it is open.
    pub(crate) fn own_cell(&self) -> &FileCell {
        self.base.as_ref().unwrap_or(&self.cell)
    }

    /// Sets FILE_ATTRIBUTE_ARCHIVE, after a change of the file. The change has happened, so a
    /// failure is ignored, as where attributes cannot be stored.
    pub(crate) fn set_archive(&self) {
        let cell = self.own_cell();
        let now = moment();
        if is_archived(cell, now) {
            return;
        }
        let _ = cell.change_attributes(now, || match self.add_archive() {
            Ok(()) => Ok(true),
            // The fault may vanish, because space may be freed, or another Open may have the right.
            // So a later attempt is made.
            Err(fault @ (Fault::DiskFull | Fault::QuotaExceeded | Fault::AccessDenied)) => {
                Err(fault)
            }
            Err(fault) => {
                tracing::debug!(%fault, "the attribute ARCHIVE of a changed file was not stored");
                Ok(true)
            }
        });
    }

    /// Like [`Self::set_archive`], for another object that has taken the place of the file.
    pub(crate) fn set_archive_anew(&self) {
        let _ = self.own_cell().change_attributes(moment(), || VfsResult::Ok(false));
        self.set_archive();
    }

    fn add_archive(&self) -> VfsResult<()> {
        let now = self.node.stat_without_eas()?.attributes;
        if now.contains(FileAttributes::ARCHIVE) {
            return Ok(());
        }
        let attributes = self.as_stored(now) | FileAttributes::ARCHIVE;
        self.node
            .set_basic(&BasicChange { attributes: Some(attributes), ..BasicChange::default() })?;
        self.own_cell().note_unstable(Unstable::ALTERED);
        Ok(())
    }

    /// The attributes `shown` of the file, without those that its name or its state give it.
    pub(crate) fn as_stored(&self, shown: FileAttributes) -> FileAttributes {
        let is_named_hidden = self.node.is_hidden_by_name();
        let by_name = if is_named_hidden { FileAttributes::HIDDEN } else { FileAttributes::EMPTY };
        shown.without(FileAttributes::NORMAL | by_name)
    }

    /// Removals have left the file of `cell` a link less. MS-FSA 2.1.5.5 phase 10: what it has under
    /// its other links is to be archived.
    pub(crate) fn lost_a_link(&self, cell: &FileCell) {
        if !cell.is_linked() || self.is_directory || cell.key().stream != 0 {
            return;
        }
        if self.node.stat_without_eas().is_ok_and(|stat| stat.links != 0) {
            self.set_archive();
        }
    }
}
