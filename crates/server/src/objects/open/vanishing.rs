//! Streams that do not exist while they are empty, and those that deletion leaves, for macOS.

use frevo_store::Name;

use super::FileOpen;
use crate::shares::apple;

impl FileOpen {
    /// Deletes an empty stream that does not exist while it is empty, when its last Open
    /// closes.
    pub(super) fn leave_vanishing(&self) {
        if self.base.is_none() {
            return;
        }
        let is_empty = apple::is_empty_info(&*self.node).unwrap_or_else(|| {
            apple::vanishes(&self.name(), self.apple)
                && self.stat().is_ok_and(|stat| stat.end_of_file == 0)
        });
        if is_empty {
            let mut shared = self.cell.lock();
            if shared.open_count() == 1 {
                shared.set_delete_pending(self.id, true);
            }
        }
    }

    /// True when `name` stays although it is deleted: a resource fork goes by being made
    /// empty, as macOS does it, or with its file. Deletion alone, which Finder asks for as
    /// well, would lose it.
    pub(super) fn outlives_deletion(&self, name: &Name) -> bool {
        apple::is_resource(name) && self.stat().is_ok_and(|stat| stat.end_of_file != 0)
    }
}
