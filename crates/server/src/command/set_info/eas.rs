//! FileFullEaInformation: MS-FSA 2.1.5.15.6.

use std::collections::{HashMap, HashSet};

use frevo_store::Fault;
use frevo_store::vfs::EaChange;
use frevo_wire::Status;
use frevo_wire::dtyp::FileAttributes;
use frevo_wire::fscc::ea::{Ea, EaEntries};
use frevo_wire::fscc::upcase;

use super::super::query_info::fault_status;
use crate::base::limits::{EA_BYTES, EA_LIST_BYTES};
use crate::objects::open::FileOpen;

/// The entries of a list from a client.
///
/// # Errors
/// EA_TOO_LARGE for a list that no file can hold, before any of it is read.
pub(in crate::command) fn entries(list: &[u8]) -> Result<Vec<Ea<'_>>, Status> {
    if list.len() > EA_LIST_BYTES {
        return Err(Status::EA_TOO_LARGE);
    }
    EaEntries::new(list).map(|entry| entry.map_err(fault_status)).collect()
}

/// Names are bytes on the wire and text on the medium.
fn change_of<'a>(ea: &Ea<'a>) -> Result<EaChange<'a>, Status> {
    let name = str::from_utf8(ea.name).map_err(|_| Status::INVALID_EA_NAME)?;
    Ok(EaChange { name, value: ea.value, need: ea.need })
}

/// A name as names are compared.
fn key(name: &str) -> String {
    name.chars().map(upcase).collect()
}

/// A list as it acts on a file: each name once, as the last entry has it. `old`
/// are the names and sizes of values that the file has.
///
/// # Errors
/// MS-FSA 2.1.5.15.6: EA_TOO_LARGE when the attributes take more than
/// [`EA_BYTES`] after any of the entries.
pub(in crate::command) fn changes<'a>(
    list: &[Ea<'a>],
    old: impl Iterator<Item = (&'a str, usize)>,
) -> Result<Vec<EaChange<'a>>, Status> {
    let size = |name: &str, value: usize| name.len() + value + 5;
    let mut sizes: HashMap<String, usize> =
        old.map(|(name, value)| (key(name), size(name, value))).collect();
    let mut total: usize = sizes.values().sum();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut changes: Vec<EaChange<'a>> = Vec::new();
    for ea in list {
        let change = change_of(ea)?;
        let key = key(change.name);
        total -= sizes.remove(&key).unwrap_or(0);
        if !change.value.is_empty() {
            let size = size(change.name, change.value.len());
            total += size;
            sizes.insert(key.clone(), size);
        }
        if total > EA_BYTES {
            return Err(Status::EA_TOO_LARGE);
        }
        let place = *places.entry(key).or_insert(changes.len());
        match changes.get_mut(place) {
            Some(earlier) => *earlier = change,
            None => changes.push(change),
        }
    }
    Ok(changes)
}

/// The extended attributes that a file had before.
struct Before {
    eas: Vec<(String, Vec<u8>)>,
    needed: HashSet<String>,
}

/// All of a list or nothing of it.
pub(in crate::command) fn set(file: &FileOpen, list: &[u8]) -> Result<(), Status> {
    let list = entries(list)?;
    let stat = file.stat()?;
    if stat.attributes.contains(FileAttributes::REPARSE_POINT) || !file.vfs.volume().xattrs {
        return Err(Status::EAS_NOT_SUPPORTED);
    }
    let needed = file.node.needed_eas().map_err(Fault::status)?;
    let before = Before {
        eas: file.node.eas().map_err(Fault::status)?,
        needed: needed.iter().map(|name| key(name)).collect(),
    };
    let old = before.eas.iter().map(|(name, value)| (name.as_str(), value.len()));
    let changes = changes(&list, old)?;
    file.node.set_eas(&changes).map_err(|fault| {
        before.restore(file, &changes);
        fault.status()
    })
}

impl Before {
    /// Puts back what was there. What cannot be put back stays as it is: the client
    /// is told of the first failure.
    fn restore(&self, file: &FileOpen, changes: &[EaChange<'_>]) {
        let before: HashMap<String, &[u8]> =
            self.eas.iter().map(|(name, value)| (key(name), value.as_slice())).collect();
        let back: Vec<EaChange<'_>> = changes
            .iter()
            .map(|change| {
                let key = key(change.name);
                let value = before.get(&key).copied().unwrap_or_default();
                EaChange { name: change.name, value, need: self.needed.contains(&key) }
            })
            .collect();
        // Attributes that were added are removed first, so that those to be restored have room.
        let (gone, kept): (Vec<_>, Vec<_>) =
            back.into_iter().partition(|change| change.value.is_empty());
        let _ = file.node.set_eas(&gone);
        let _ = file.node.set_eas(&kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ea<'a>(name: &'a str, value: &'a [u8]) -> Ea<'a> {
        Ea { need: false, name: name.as_bytes(), value }
    }

    #[test]
    fn each_name_acts_once_as_its_last_entry_says() {
        let list = [ea("a", b"1"), ea("b", b"2"), ea("A", b""), ea("B", b"3")];
        let changes = changes(&list, std::iter::empty()).unwrap();
        let all: Vec<_> = changes.iter().map(|c| (c.name, c.value)).collect();
        assert_eq!(all, [("A", &b""[..]), ("B", &b"3"[..])]);
    }

    /// A value that replaces another counts without it.
    #[test]
    fn attributes_fill_64_kib_less_five_bytes() {
        let fill = |bytes: usize| {
            let value = vec![7; bytes - 6];
            changes(&[ea("x", &value)], std::iter::empty()).map(|all| all.len())
        };
        assert_eq!(fill(EA_BYTES - 1), Ok(1));
        assert_eq!(fill(EA_BYTES), Ok(1));
        assert_eq!(fill(EA_BYTES + 1), Err(Status::EA_TOO_LARGE));
        let (large, old) = (vec![7; 60_000], || [("old", 60_000)].into_iter());
        let after = |list: &[Ea<'_>]| changes(list, old()).map(|all| all.len());
        assert_eq!(after(&[ea("OLD", b""), ea("new", &large)]), Ok(2));
        assert_eq!(after(&[ea("old", &large)]), Ok(1));
        assert_eq!(after(&[ea("new", &large), ea("old", b"")]), Err(Status::EA_TOO_LARGE));
    }

    #[test]
    fn lists_have_at_most_their_bytes() {
        let list = |bytes: usize| {
            // Each entry has 12 bytes and removes an attribute that does not exist, so the list is
            // long but changes nothing.
            let mut list = Vec::new();
            while list.len() + 24 <= bytes {
                list.extend_from_slice(&[12, 0, 0, 0, 0, 1, 0, 0, b'a', 0, 0, 0]);
            }
            list.extend_from_slice(&[0, 0, 0, 0, 0, 1, 0, 0, b'a', 0, 0, 0]);
            list.resize(bytes, 0);
            list
        };
        assert!(entries(&list(EA_LIST_BYTES - 1)).is_ok());
        assert!(entries(&list(EA_LIST_BYTES)).is_ok());
        assert_eq!(entries(&list(EA_LIST_BYTES + 1)), Err(Status::EA_TOO_LARGE));
    }
}
