//! The place of an Open in a directory: MS-FSA 2.1.1.6 Open.QueryPattern and
//! Open.QueryLastEntry. `command::query_directory` moves it on.

use frevo_store::Stat;
use frevo_store::vfs::{Directory, HostAccess};
use frevo_wire::fscc::Pattern;

use crate::objects::ledger::Charge;

/// Where the enumerations of an Open stand.
#[derive(Debug, Default)]
pub struct Enumeration {
    /// QUERY_DIRECTORY's place, from the first request on.
    pub scan: Option<Box<Scan>>,
    /// Open.CurrentEaIndex of MS-SMB2 3.3.1.10, counted from zero.
    pub next_ea: usize,
}

/// A scan of a directory under way.
#[derive(Debug)]
pub struct Scan {
    pub(crate) charge: Charge,
    pub(crate) pattern: Pattern,
    /// Names are spelled and compared as POSIX clients do.
    pub(crate) posix: bool,
    pub(crate) stage: Stage,
    pub(crate) listing: Option<Box<dyn Directory>>,
    /// The request at hand has begun to read the directory.
    pub(crate) is_new: bool,
    /// Name of the entry at hand; its memory serves one after the other.
    pub(crate) name: String,
    /// State of the entry at hand, while it has not been answered.
    pub(crate) held: Option<Stat>,
    /// The access to the entry at hand, if it is known without opening the entry, which then has
    /// neither a stored descriptor nor a stream.
    pub(crate) plain: Option<HostAccess>,
    /// Entries that the comparisons of this slice would have been.
    pub(crate) compared: usize,
}

/// The next part of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Dot,
    DotDot,
    /// Reading the directory begins, unless one name is looked for.
    List,
    Names,
    End,
}
