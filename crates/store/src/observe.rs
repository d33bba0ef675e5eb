//! What other programs on the host do to files, for those who wait to hear of
//! it: [`Vfs::observe`](crate::Vfs::observe).

use alloc::sync::Arc;
use core::fmt;

use frevo_wire::command::change_notify::CompletionFilter;
use frevo_wire::fscc::notify::NotifyAction;

/// A change that another program made below an observed directory. What this
/// process does itself is never among them: whoever does it reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostChange<'a> {
    /// Something was done to one name, relative to the directory, `\` between
    /// components.
    Change {
        /// What.
        action: NotifyAction,
        /// To whom; empty for what is observed itself.
        name: &'a str,
        /// Who wants to know: all that it may have been, where the host does not
        /// say more.
        matches: CompletionFilter,
    },
    /// One name became another in the same directory.
    Renamed {
        /// Before.
        from: &'a str,
        /// Since.
        to: &'a str,
        /// Who wants to know.
        matches: CompletionFilter,
    },
    /// There were changes that were not seen, or will be.
    Lost,
}

/// Takes changes, on a thread of the file system's. It must not block, and not
/// drop the [`Observation`] that it belongs to.
pub type Observer = Arc<dyn Fn(&HostChange<'_>) + Send + Sync>;

/// Lasts until it is dropped.
pub trait Observation: Send + Sync + fmt::Debug {}
