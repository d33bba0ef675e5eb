//! The contract of a listing.

use core::fmt;

use super::fault::VfsResult;
use super::protection::HostAccess;
use super::stat::Stat;

/// A listing of a directory.
pub trait Directory: Send + fmt::Debug {
    /// Moves to the next entry and returns its name as clients see it; None at the end.
    fn next_name(&mut self) -> VfsResult<Option<&str>>;

    /// Returns the state of the entry that [`Self::next_name`] returned last; `None` if it has
    /// gone. `ea_size` may be 0 if counting is too expensive.
    fn entry_stat(&mut self) -> VfsResult<Option<Stat>>;

    /// Returns the access of this process to that entry, if the entry is a file or a directory
    /// with neither a stored security descriptor nor a stream, and the access is known without
    /// opening it. Follows [`Self::entry_stat`].
    fn plain_access(&mut self) -> Option<HostAccess> {
        None
    }

    /// Starts again from the first entry, with the entries made since.
    fn rewind(&mut self) -> VfsResult<()>;

    /// An estimate of the bytes that it keeps.
    fn bytes(&self) -> usize;
}
