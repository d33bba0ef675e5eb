//! Names of DOS devices, such as `aux.txt`. Some servers, among them smbd, list a file with such a name
//! under a short name alone, and open it by its own. Each run would otherwise copy the file again, and
//! `--delete` would remove its short name.

use std::collections::{HashMap, HashSet};

use frevo_wire::fscc::upcase_name;
use futures_util::stream::{self, StreamExt};

use super::super::endpoint::{Endpoint, Entry, Listed, path_in};
use super::super::failures::AT_ONCE;

/// Files of the target that its listing does not have under the names of the source.
#[derive(Debug, Default)]
pub(super) struct Unlisted {
    /// By the names of the source.
    pub(super) entries: HashMap<String, Entry>,
    /// Their numbers.
    numbers: HashSet<u64>,
}

impl Unlisted {
    /// Looks for those entries of the source that the target does not list and whose names are
    /// reserved, many at the same time.
    pub(super) async fn find(to: &Endpoint, source: &Listed, target: &Listed) -> Self {
        let Endpoint::Remote(share, root) = to else { return Self::default() };
        let listed: HashSet<String> = if source.keys().any(|name| is_reserved(name)) {
            target.keys().map(|name| upcase_name(name)).collect()
        } else {
            HashSet::new()
        };
        let missing = source.keys().filter(|name| is_reserved(name));
        let missing = missing.filter(|name| !listed.contains(&upcase_name(name)));
        let looks = missing.map(async |name| {
            let found = share.lookup(&path_in(root, name)).await.ok()?;
            Some((name.clone(), Entry::of_remote(&found, false)))
        });
        let found = stream::iter(looks).buffer_unordered(AT_ONCE);
        let entries: HashMap<_, _> = found.filter_map(async |found| found).collect().await;
        let numbers = entries.values().map(|entry| entry.file_id).filter(|id| *id != 0).collect();
        Self { entries, numbers }
    }

    /// True when an entry of the target's listing is one of these under another name.
    pub(super) fn has(&self, listed: &Entry) -> bool {
        self.numbers.contains(&listed.file_id)
    }
}

/// True when a component of a path is the name of a DOS device, perhaps with an extension (MS-FSCC
/// 2.1.5 and the naming rules of Windows).
fn is_reserved(path: &str) -> bool {
    path.split('/').any(|name| {
        let stem = name.split('.').next().unwrap_or_default();
        let stem = stem.trim_end_matches(' ').to_ascii_uppercase();
        let is_port = |kind: &str| {
            stem.strip_prefix(kind).is_some_and(|number| {
                number.len() == 1 && number.bytes().all(|b| b.is_ascii_digit())
            })
        };
        matches!(&*stem, "CON" | "PRN" | "AUX" | "NUL") || is_port("COM") || is_port("LPT")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices_are_known() {
        for name in ["con", "AUX.txt", "a/nul/b", "com1.log", "LPT9", "prn .x", "aux.tar.gz"] {
            assert!(is_reserved(name), "{name}");
        }
        for name in ["", "conf", "com", "com10", "comx", "xaux", "a.aux", "nul2"] {
            assert!(!is_reserved(name), "{name}");
        }
    }
}
