//! Entries of the access list of a share, as people write them.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use frevo_wire::dtyp::{AccessMask, Sid};

use super::check::map_generic;

/// The words for common rights.
const WORDS: [(&str, AccessMask); 3] =
    [("full", AccessMask::FILE_ALL), ("change", AccessEntry::CHANGE), ("read", AccessEntry::READ)];

/// An entry of an access list, written `allow:SID:RIGHTS` or `deny:SID:RIGHTS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessEntry {
    allows: bool,
    sid: Sid,
    mask: AccessMask,
}

impl AccessEntry {
    /// Rights of Windows' Read: FILE_GENERIC_READ and FILE_EXECUTE.
    pub const READ: AccessMask = AccessMask(0x0012_00A9);

    /// Rights of Windows' Change: all but DELETE_CHILD, WRITE_DAC and WRITE_OWNER.
    pub const CHANGE: AccessMask = AccessMask(0x0013_01BF);

    /// Makes an entry. Generic rights become those of files, and rights that files do not have are
    /// dropped.
    pub fn new(allows: bool, sid: Sid, mask: AccessMask) -> Self {
        Self { allows, sid, mask: map_generic(mask) & AccessMask::FILE_ALL }
    }

    /// True for an entry that allows, false for one that denies.
    pub const fn allows(&self) -> bool {
        self.allows
    }

    /// The user or group.
    pub const fn sid(&self) -> &Sid {
        &self.sid
    }

    /// The rights.
    pub const fn mask(&self) -> AccessMask {
        self.mask
    }
}

impl FromStr for AccessEntry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not KIND:SID:RIGHTS, such as allow:S-1-1-0:change: the kind is allow or \
                 deny, the rights are full, change, read or a number such as 0x1200a9"
            )
        };
        let parts: Vec<&str> = text.split(':').collect();
        let [kind @ ("allow" | "deny"), sid, rights] = *parts else { return Err(wrong()) };
        let sid: Sid = sid.parse().map_err(|_| wrong())?;
        let word = WORDS.iter().find(|(word, _)| *word == rights).map(|(_, mask)| *mask);
        let number = || u32::from_str_radix(rights.strip_prefix("0x")?, 16).ok().map(AccessMask);
        let mask = word.or_else(number).ok_or_else(wrong)?;
        Ok(Self::new(kind == "allow", sid, mask))
    }
}

impl fmt::Display for AccessEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", if self.allows { "allow" } else { "deny" }, self.sid)?;
        match WORDS.iter().find(|(_, mask)| *mask == self.mask) {
            Some((word, _)) => f.write_str(word),
            None => write!(f, "{:#x}", self.mask.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn entries_are_read_and_written() {
        for text in ["allow:S-1-1-0:full", "deny:S-1-5-11:read", "allow:S-1-22-1-7:change"] {
            assert_eq!(text.parse::<AccessEntry>().unwrap().to_string(), text);
        }
        let generic: AccessEntry = "allow:S-1-1-0:0x10000000".parse().unwrap();
        assert_eq!(generic.to_string(), "allow:S-1-1-0:full");
        let odd: AccessEntry = "allow:S-1-1-0:0x81".parse().unwrap();
        assert_eq!(odd.to_string(), "allow:S-1-1-0:0x81");
        for bad in
            ["", "allow", "allow:ann:full", "grant:S-1-1-0:full", "allow:S-1-1-0:+1", "a:b:c:d"]
        {
            assert!(bad.parse::<AccessEntry>().is_err(), "{bad}");
        }
    }
}
