//! The state of a file that a compound has shown, for the later requests of the same compound.
//!
//! A client that sends CREATE, some QUERY_INFO and CLOSE in one frame gets one state of the file: that
//! of a moment at which all of them were under way. The host is asked once instead of once a request.

use std::cell::Cell;

use frevo_store::{OpenId, Stat};
use frevo_wire::{Command, Status};

use crate::objects::open::FileOpen;

/// The state of one Open's file, if the latest requests of a compound have shown it.
#[derive(Debug, Default)]
pub(crate) struct Shown(Cell<Option<(OpenId, Stat)>>);

impl Shown {
    /// A request of the compound begins. Those that may change a file, or may take long, end what is
    /// known of it.
    pub(crate) fn begin(&self, command: Command) {
        if !matches!(command, Command::QUERY_INFO | Command::CLOSE) {
            self.0.set(None);
        }
    }

    /// The host has just said that the file's state is `stat`.
    pub(crate) fn note(&self, file: &FileOpen, stat: &Stat) {
        // An Open with fixed times reports other times than the file has, so its attributes must
        // not be used for the response to CLOSE.
        if !file.times.has_any() {
            self.0.set(Some((file.id, *stat)));
        }
    }

    fn of(&self, file: &FileOpen) -> Option<Stat> {
        let known = self.0.get().filter(|(id, _)| *id == file.id && !file.times.has_any());
        known.map(|(_, stat)| stat)
    }
}

/// The file's state as [`FileOpen::stat`] says it, or as the compound has shown it.
///
/// # Errors
/// Those of [`FileOpen::stat`].
pub(crate) fn stat(shown: Option<&Shown>, file: &FileOpen) -> Result<Stat, Status> {
    let Some(shown) = shown else { return file.stat() };
    if let Some(stat) = shown.of(file) {
        return Ok(stat);
    }
    let stat = file.stat()?;
    shown.note(file, &stat);
    Ok(stat)
}
