//! The plan of `sync`: compares source and target.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, SystemTime};

use frevo_wire::dtyp::FileAttributes;
use frevo_wire::fscc::upcase_name;

use super::super::arguments::Sync;
use super::super::copy::Failures;
use super::super::dos_attributes::AttributePolicy;
use super::super::logon::failed;
use super::super::transfer;
use super::super::walk::Kind;
use super::endpoint::Endpoint;
use crate::exit::{Exit, Failure};

/// A file or directory of the source or the target.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) len: u64,
    pub(super) modified: SystemTime,
    pub(super) attributes: FileAttributes,
    /// True when it may be the other end, or a directory above it.
    pub(super) is_kin: bool,
}

pub(super) type Listed = BTreeMap<String, Entry>;

/// The actions that make the target equal to the source.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Entries of the target that the source does not have, or has as another kind. The content
    /// of a directory goes with it.
    pub(super) removals: Vec<(String, Entry)>,
    pub(super) directories: Vec<String>,
    /// Files to copy: the name in the source, and in the target.
    pub(super) files: Vec<(String, String, Entry)>,
    /// Attributes to set on files whose content is equal.
    pub(super) dressings: Vec<(String, Entry, FileAttributes)>,
}

impl Plan {
    /// True when source and target are equal.
    pub(super) fn is_empty(&self) -> bool {
        self.removals.is_empty()
            && self.directories.is_empty()
            && self.files.is_empty()
            && self.dressings.is_empty()
    }
}

/// True when two times are equal in the coarser of both resolutions: SMB keeps 100 ns,
/// other systems microseconds, milliseconds, a second, FAT two seconds.
fn same_time(a: SystemTime, b: SystemTime) -> bool {
    let apart = a.duration_since(b).or_else(|_| b.duration_since(a)).unwrap_or_default();
    apart < grain(a).max(grain(b))
}

/// The resolution of the clock that made `time`, as far as its digits show.
fn grain(time: SystemTime) -> Duration {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let nanos = since.as_nanos();
    let grains = [2_000_000_000, 1_000_000_000, 10_000_000, 1_000_000, 1_000];
    let found = grains.into_iter().find(|grain| nanos.is_multiple_of(*grain)).unwrap_or(100);
    Duration::from_nanos(u64::try_from(found).unwrap_or(100))
}

pub(super) fn is_same(from: &Entry, to: &Entry) -> bool {
    from.len == to.len && same_time(from.modified, to.modified)
}

/// The names of the target, ignoring case on a server.
struct There<'a> {
    all: &'a Listed,
    /// The names by their upper case. None where names differ by case.
    folded: Option<HashMap<String, &'a str>>,
}

impl<'a> There<'a> {
    fn new(all: &'a Listed, end: &Endpoint) -> Self {
        let by_fold = || all.keys().map(|name| (upcase_name(name), &**name)).collect();
        Self { all, folded: end.is_remote().then(by_fold) }
    }

    fn find(&self, name: &str) -> Option<(&'a str, Entry)> {
        if let Some((name, entry)) = self.all.get_key_value(name) {
            return Some((name, *entry));
        }
        let name = *self.folded.as_ref()?.get(&upcase_name(name))?;
        self.all.get(name).map(|entry| (name, *entry))
    }
}

/// The name, then the names of the directories above it.
fn line(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| name.rsplit_once('/').map(|(above, _)| above))
}

pub(super) async fn plan(
    sync: &Sync,
    ends: (&Endpoint, &Endpoint),
    source: &Listed,
    target: &Listed,
    failures: &mut Failures,
) -> Result<Plan, Failure> {
    let to = ends.1;
    let mut plan = Plan::default();
    let there = There::new(target, to);
    let key = |name: &str| if to.is_remote() { upcase_name(name) } else { name.to_owned() };
    // What is at the first end, and so not removed, and who it was.
    let mut had: HashMap<String, &str> = HashMap::new();
    let mut going: HashSet<&str> = HashSet::new();
    // In whose place something else stays: a link would lead what is below to another place.
    let mut refused: HashSet<&str> = HashSet::new();
    for (name, entry) in source {
        let other = had.insert(key(name), name);
        if !refused.is_empty() && line(name).any(|above| refused.contains(above)) {
            continue;
        }
        if entry.kind == Kind::Other || name.ends_with(transfer::PART) {
            continue;
        }
        if let Some(other) =
            other.filter(|other| entry.kind == Kind::File || source[*other].kind == Kind::File)
        {
            let text = format!(
                "skipped {name}: on the server it has the same name as {other}; rename one of them"
            );
            failures.add(Failure::new(Exit::Failed, text));
            continue;
        }
        let found = there.find(name);
        let found = match found {
            Some((name_there, old)) if old.kind != entry.kind => {
                if !sync.delete {
                    let text = format!(
                        "{name} is a {} in the source, but a {} in the target; --delete replaces it",
                        entry.kind.word(),
                        old.kind.word()
                    );
                    failures.add(Failure::new(Exit::Failed, text));
                    refused.insert(name);
                    continue;
                }
                plan.removals.push((name_there.to_owned(), old));
                going.insert(name_there);
                None
            }
            found => found,
        };
        match (entry.kind, found) {
            (Kind::Directory, None) => plan.directories.push(name.clone()),
            (Kind::Directory, Some(_)) | (Kind::Other, _) => {}
            (Kind::File, None) => plan.files.push((name.clone(), name.clone(), *entry)),
            (Kind::File, Some((name_there, old))) => {
                if sync.update && old.modified > entry.modified && !is_same(entry, &old) {
                    continue;
                }
                if !same(sync, ends, (name, entry), (name_there, &old)).await? {
                    plan.files.push((name.clone(), name_there.to_owned(), *entry));
                } else if let Some(attributes) =
                    dressing(sync.copying.attributes, ends, entry, &old)
                {
                    plan.dressings.push((name_there.to_owned(), old, attributes));
                }
            }
        }
    }
    if sync.delete {
        let only_there = target.iter().filter(|(name, _)| {
            // A part that could be gone on with stays, and what is below something that is
            // there but not copied.
            let is_there =
                |above| had.get(&key(above)).is_some_and(|name| source[*name].kind == Kind::Other);
            !had.contains_key(&key(name))
                && !name.ends_with(transfer::PART)
                && !line(name).any(is_there)
        });
        for (name, entry) in only_there {
            // What is in a directory that goes, goes with it, unless something in it stays.
            if !sync.filter.is_all() || !line(name).any(|above| going.contains(above)) {
                going.insert(name);
                plan.removals.push((name.clone(), *entry));
            }
        }
    }
    Ok(plan)
}

/// True when a file is equal at both ends: by size and time, or by content for `--checksum`.
async fn same(
    sync: &Sync,
    (from, to): (&Endpoint, &Endpoint),
    (name, entry): (&str, &Entry),
    (name_there, old): (&str, &Entry),
) -> Result<bool, Failure> {
    if !sync.checksum {
        return Ok(is_same(entry, old));
    }
    Ok(entry.len == old.len
        && from.digest(name).await.map_err(failed)?
            == to.digest(name_there).await.map_err(failed)?)
}

/// The attributes that a file is to get, if they differ: those that both ends know from a
/// listing.
fn dressing(
    carry: AttributePolicy,
    (from, to): (&Endpoint, &Endpoint),
    entry: &Entry,
    old: &Entry,
) -> Option<FileAttributes> {
    if carry == AttributePolicy::None {
        return None;
    }
    let mut known = FileAttributes::READONLY;
    if from.is_remote() && to.is_remote() {
        known |= FileAttributes::HIDDEN | FileAttributes::SYSTEM;
    }
    let is_other = (entry.attributes.0 ^ old.attributes.0) & known.0 != 0;
    let wanted = old.attributes.without(known).0 | (entry.attributes.0 & known.0);
    is_other.then_some(FileAttributes(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_compared_as_finely_as_both_clocks_go() {
        let at = |nanos| SystemTime::UNIX_EPOCH + Duration::new(1_700_000_001, nanos);
        assert!(same_time(at(123_456_789), at(123_456_700)), "SMB's");
        assert!(same_time(at(123_456_789), at(123_456_000)) && same_time(at(123_456_789), at(0)));
        assert!(same_time(at(123_456_789), at(120_000_000)), "exFAT");
        assert!(!same_time(at(123_456_789), at(123_458_900)), "changed a moment later");
        assert!(!same_time(at(123_456_789), at(923_456_789)));
        let even = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        assert!(same_time(at(923_456_789), even) && same_time(even, at(923_456_789)), "FAT");
        assert!(!same_time(at(0), at(0) + Duration::from_secs(2)));
        assert!(!same_time(even, even + Duration::from_secs(2)));
    }

    #[test]
    fn a_name_and_what_it_is_in() {
        assert_eq!(line("a/b/c").collect::<Vec<_>>(), ["a/b/c", "a/b", "a"]);
    }
}
