//! The place of an Open in a directory: MS-FSA 2.1.1.6 Open.QueryPattern and
//! Open.QueryLastEntry. `scan` moves it on.

use std::sync::Arc;

use frevo_store::Stat;
use frevo_store::vfs::{Directory, HostAccess};
use frevo_wire::Status;
use frevo_wire::fscc::Pattern;

use crate::base::limits::SCAN_BYTES;
use crate::objects::ledger::{Charge, Holder, Kind};

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

impl Enumeration {
    /// True if nothing has been read since the scan began, or began again.
    pub(crate) fn is_at_start(&self) -> bool {
        self.scan.as_ref().is_none_or(|scan| scan.stage == Stage::Dot && scan.held.is_none())
    }

    /// True when the scan may keep the descriptor that it has begun to use, or has none.
    /// Otherwise the scan gives it up and begins again with the next request.
    pub(crate) fn keeps_within(&mut self, admits: impl FnOnce() -> bool) -> bool {
        let Some(scan) = &mut self.scan else { return true };
        let is_new = std::mem::take(&mut scan.is_new);
        let is_kept = !is_new || scan.listing.is_none() || admits();
        if !is_kept {
            scan.close();
            scan.restart();
        }
        is_kept
    }
}

impl Scan {
    /// A scan from the beginning, at the cost of `holder`.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when the holder may not have more.
    pub fn new(pattern: Pattern, posix: bool, holder: &Arc<Holder>) -> Result<Self, Status> {
        Ok(Self {
            charge: holder.charge(Kind::Listing, SCAN_BYTES)?,
            pattern,
            posix,
            stage: Stage::Dot,
            listing: None,
            is_new: false,
            name: String::new(),
            held: None,
            plain: None,
            compared: 0,
        })
    }

    /// Begins with another pattern.
    pub fn search(&mut self, pattern: Pattern) {
        self.pattern = pattern;
        self.close();
        self.restart();
    }

    /// Begins again with the same pattern.
    pub fn restart(&mut self) {
        self.stage = Stage::Dot;
        self.held = None;
    }

    /// Gives up the reader of the names: it is large, and clients keep directories open.
    pub(super) fn close(&mut self) {
        self.listing = None;
        // A smaller charge is never refused, so the result is ignored.
        let _ = self.charge.resize(SCAN_BYTES);
    }
}
