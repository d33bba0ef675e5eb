//! The short names of a directory's entries, as the cache of names uses them.

use frevo_store::short_name::{may_be_short, short_name};

use crate::names::{self, Spelling};

/// Decides if names are found by their short names (8.3) too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ShortNames {
    #[default]
    Off,
    /// The short names of entries that are spelled so on the medium.
    On(Spelling),
}

impl ShortNames {
    /// Returns the short name of an entry; None if it has none, or short names are off.
    pub(super) fn of(self, stored: &[u8]) -> Option<String> {
        match self {
            Self::Off => None,
            Self::On(spelling) => short_name(&names::map(stored, spelling)),
        }
    }

    /// Returns the short name that `wanted` may be, in upper case, as [`Self::of`] makes them.
    pub(super) fn wanted(self, wanted: &[u8]) -> Option<String> {
        if self == Self::Off {
            return None;
        }
        let wanted = core::str::from_utf8(wanted).ok().filter(|wanted| may_be_short(wanted))?;
        Some(wanted.to_ascii_uppercase())
    }

    /// True if `short` is the short name of an entry.
    pub(super) fn is_of(self, stored: &[u8], short: &str) -> bool {
        self.of(stored).is_some_and(|of| of == short)
    }
}
