//! The rows of the load: what is asked, how much at once, and on how many connections.

use crate::client::Protection;

/// The operation of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Read,
    Write,
}

/// One row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) verb: Verb,
    pub(super) protection: Protection,
    /// Bytes of one request.
    pub(super) bytes: usize,
    /// Requests in flight on each connection.
    pub(super) depth: usize,
    pub(super) connections: usize,
    /// True for offsets in no order.
    pub(super) is_random: bool,
    /// True for AES-CMAC instead of the algorithm that the server prefers.
    pub(super) is_cmac: bool,
}

const KIB: usize = 1024;
const DEPTHS: [usize; 3] = [1, 16, 64];
/// Depth of the rows with many connections.
const SHARED_DEPTH: usize = 4;
const CONNECTIONS: [usize; 3] = [8, 64, 1000];

impl Shape {
    fn all() -> Vec<Self> {
        let mut rows = Vec::new();
        let alone = |verb, protection, bytes, depth, is_random| Self {
            verb,
            protection,
            bytes,
            depth,
            connections: 1,
            is_random,
            is_cmac: false,
        };
        for protection in [Protection::Unsigned, Protection::Signed] {
            for verb in [Verb::Read, Verb::Write] {
                for bytes in [64 * KIB, KIB * KIB] {
                    rows.extend(DEPTHS.map(|depth| alone(verb, protection, bytes, depth, false)));
                }
            }
            rows.extend(DEPTHS.map(|depth| alone(Verb::Read, protection, 4 * KIB, depth, true)));
        }
        for verb in [Verb::Read, Verb::Write] {
            for bytes in [64 * KIB, KIB * KIB] {
                let cmac = |row| Self { is_cmac: true, ..row };
                let row = |depth| cmac(alone(verb, Protection::Signed, bytes, depth, false));
                rows.extend(DEPTHS.map(row));
            }
        }
        for connections in CONNECTIONS {
            for (bytes, is_random) in [(4 * KIB, true), (64 * KIB, false)] {
                let one = alone(Verb::Read, Protection::Unsigned, bytes, SHARED_DEPTH, is_random);
                rows.push(Self { connections, ..one });
            }
        }
        rows
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
        };
        let (protection, kib) = (self.protection.name(), self.bytes / KIB);
        let algorithm = if self.is_cmac { "-cmac" } else { "" };
        format!("{verb}-{protection}{algorithm}-{kib}k-d{}-c{}", self.depth, self.connections)
    }

    /// The offset of request `n` in a file of `file_bytes`.
    pub(super) fn offset(&self, n: u64, file_bytes: u64) -> u64 {
        let blocks = (file_bytes / self.bytes as u64).max(1);
        // An odd factor visits all of a power of two, far apart.
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
