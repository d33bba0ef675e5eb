//! Changes of files by other programs on the host, as [`Vfs::observe`](crate::Vfs::observe) reports
//! them.

use alloc::sync::Arc;
use core::fmt;

use frevo_wire::command::change_notify::CompletionFilter;
use frevo_wire::fscc::notify::NotifyAction;

/// A change by another program below an observed directory. Changes by this process are not among
/// them: their author reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostChange<'a> {
    /// A change of one name, relative to the directory, with `\` between components.
    Change {
        /// The kind of change.
        action: NotifyAction,
        /// The name; empty for the observed object itself.
        name: &'a str,
        /// The completion filters that the change matches: all possible ones, if the host does not
        /// tell which.
        matches: CompletionFilter,
    },
    /// A rename within one directory.
    Renamed {
        /// The name before.
        from: &'a str,
        /// The name after.
        to: &'a str,
        /// The completion filters that the change matches.
        matches: CompletionFilter,
    },
    /// Changes that the host did not report, or will not.
    Lost,
}

/// A callback for changes, on a thread of the file system. It must not block, and must not drop the
/// [`Observation`] that it belongs to.
pub type Observer = Arc<dyn Fn(&HostChange<'_>) + Send + Sync>;

/// An observation, which ends when it is dropped.
pub trait Observation: Send + Sync + fmt::Debug {}
