//! The rows of the load: what is asked, how much at once, and on how many connections.

use crate::client::Protection;

/// The operation of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Read,
    Write,
    /// A folder of `bytes` entries is listed, answer by answer.
    List(Listed),
    /// The requests of people at work; see `office`.
    Office,
}

/// The way a folder is listed, which decides on the options of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listed {
    Plain,
    /// With the attributes that macOS reads: rights, Finder information, resource fork.
    Apple,
    /// Without what the user may not read (access-based enumeration); both servers use files as
    /// the user of the host.
    Readable,
}

impl Listed {
    pub(super) const ALL: [Self; 3] = [Self::Plain, Self::Apple, Self::Readable];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "list",
            Self::Apple => "list-aapl",
            Self::Readable => "list-abe",
        }
    }

    /// Lines for smbd's `[global]`.
    pub(super) fn smbd_conf(self) -> Vec<String> {
        let lines: &[&str] = match self {
            Self::Plain => &[],
            Self::Apple => &["vfs objects = catia fruit streams_xattr"],
            Self::Readable => &["access based share enum = yes", "hide unreadable = yes"],
        };
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    /// Lines for the share in Frevo's configuration.
    pub(super) const fn share_keys(self) -> &'static str {
        match self {
            Self::Plain | Self::Apple => "",
            Self::Readable => "hide_unreadable = true\nrun_as = \"user\"\n",
        }
    }
}

/// One row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) verb: Verb,
    pub(super) protection: Protection,
    /// Bytes of one request; entries of a folder in a listing.
    pub(super) bytes: usize,
    /// Requests in flight on each connection.
    pub(super) depth: usize,
    pub(super) connections: usize,
    /// True for offsets in no order.
    pub(super) is_random: bool,
    /// True for AES-CMAC instead of AES-GMAC, and AES-CCM instead of AES-GCM, as macOS, Windows 10 and
    /// older Linux negotiate them.
    pub(super) is_older: bool,
}

const KIB: usize = 1024;
const DEPTHS: [usize; 3] = [1, 16, 64];
/// Depths of the largest requests, which take 128 credits each.
const LARGE_DEPTHS: [usize; 2] = [1, 8];
/// Depth of the rows with many connections.
const SHARED_DEPTH: usize = 4;
const CONNECTIONS: [usize; 3] = [8, 64, 1000];
/// Entries of the listed folders.
const ENTRIES: [usize; 3] = [1_000, 20_000, 100_000];
const OFFICES: [usize; 3] = [1, 8, 64];

impl Shape {
    const fn new(verb: Verb, protection: Protection, bytes: usize) -> Self {
        Self {
            verb,
            protection,
            bytes,
            depth: 1,
            connections: 1,
            is_random: false,
            is_older: false,
        }
    }

    fn all() -> Vec<Self> {
        let mut rows = Vec::new();
        let protections = [
            (Protection::Unsigned, false),
            (Protection::Signed, false),
            (Protection::Signed, true),
            (Protection::Sealed, false),
            (Protection::Sealed, true),
        ];
        for (protection, is_older) in protections {
            for verb in [Verb::Read, Verb::Write] {
                for (bytes, depths) in [
                    (64 * KIB, &DEPTHS[..]),
                    (KIB * KIB, &DEPTHS[..]),
                    (8 * KIB * KIB, &LARGE_DEPTHS[..]),
                ] {
                    let row = Self { is_older, ..Self::new(verb, protection, bytes) };
                    rows.extend(depths.iter().map(|depth| Self { depth: *depth, ..row }));
                }
            }
            if !is_older {
                let small = Self::new(Verb::Read, protection, 4 * KIB);
                rows.extend(DEPTHS.map(|depth| Self { depth, is_random: true, ..small }));
            }
        }
        for connections in CONNECTIONS {
            for (bytes, is_random) in [(4 * KIB, true), (64 * KIB, false)] {
                let one = Self::new(Verb::Read, Protection::Unsigned, bytes);
                rows.push(Self { connections, is_random, depth: SHARED_DEPTH, ..one });
            }
        }
        for how in Listed::ALL {
            let row = |entries| Self::new(Verb::List(how), Protection::Unsigned, entries);
            rows.extend(ENTRIES.map(row));
        }
        let office = Self::new(Verb::Office, Protection::Signed, 0);
        rows.extend(OFFICES.map(|connections| Self { connections, ..office }));
        rows
    }

    /// Bytes of data in a request or its reply; 0 where requests are counted.
    pub(super) const fn payload_bytes(&self) -> usize {
        match self.verb {
            Verb::Read | Verb::Write => self.bytes,
            Verb::List(_) | Verb::Office => 0,
        }
    }

    /// True if the server without SMB can be asked the same. It knows no users.
    pub(super) fn has_bare_path(&self) -> bool {
        self.protection == Protection::Unsigned && self.verb != Verb::List(Listed::Readable)
    }

    /// Returns the way of listing that the servers of this row are set up for.
    pub(super) const fn listed(&self) -> Listed {
        match self.verb {
            Verb::List(how) => how,
            _ => Listed::Plain,
        }
    }

    /// Returns the rows whose name contains one of the comma-separated parts of `pattern`.
    pub(super) fn matching(pattern: Option<&str>) -> Vec<Self> {
        let wanted = |row: &Self| {
            let name = row.name();
            pattern.is_none_or(|p| p.split(',').any(|part| name.contains(part.trim())))
        };
        Self::all().into_iter().filter(wanted).collect()
    }

    /// Returns the row's name, such as `read-unsigned-64k-d16-c1`.
    pub(super) fn name(&self) -> String {
        let verb = match self.verb {
            Verb::Read if self.is_random => "random",
            Verb::Read => "read",
            Verb::Write => "write",
            Verb::List(how) => return format!("{}-{}", how.name(), self.bytes),
            Verb::Office => return format!("office-c{}", self.connections),
        };
        let (protection, kib) = (self.protection.name(), self.bytes / KIB);
        let algorithm = match (self.protection, self.is_older) {
            (Protection::Signed, true) => "-cmac",
            (Protection::Sealed, true) => "-ccm",
            _ => "",
        };
        format!("{verb}-{protection}{algorithm}-{kib}k-d{}-c{}", self.depth, self.connections)
    }

    /// The offset of request `n` in a file of `file_bytes`.
    pub(super) fn offset(&self, n: u64, file_bytes: u64) -> u64 {
        let blocks = (file_bytes / self.bytes as u64).max(1);
        // Multiplying by an odd number visits all blocks of a power of two once, in a scattered
        // order.
        let block = if self.is_random { n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20 } else { n };
        block % blocks * self.bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_names_of_their_own() {
        let mut names: Vec<String> = Shape::all().iter().map(Shape::name).collect();
        assert!(names.contains(&"read-unsigned-64k-d16-c1".to_owned()));
        assert!(names.contains(&"random-unsigned-4k-d4-c1000".to_owned()));
        assert!(names.contains(&"write-signed-cmac-64k-d16-c1".to_owned()));
        assert!(names.contains(&"read-sealed-ccm-8192k-d8-c1".to_owned()));
        assert!(names.contains(&"list-100000".to_owned()));
        assert!(names.contains(&"list-aapl-20000".to_owned()));
        assert!(names.contains(&"list-abe-1000".to_owned()));
        assert!(names.contains(&"office-c64".to_owned()));
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn offsets_stay_in_the_file() {
        let row = Shape::matching(Some("random-signed-4k-d64-c1")).remove(0);
        let offsets: std::collections::HashSet<u64> =
            (0..1000).map(|n| row.offset(n, 1 << 20)).collect();
        assert!(offsets.len() > 100, "{} places", offsets.len());
        assert!(offsets.iter().all(|o| o + 4096 <= 1 << 20 && o % 4096 == 0));
    }
}
