//! The differences between the source and the target of `sync`.

use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use frevo_client::FileAttributes;
use frevo_wire::fscc::upcase_name;

use super::super::arguments::Sync;
use super::super::copy_plan::File;
use super::super::directory_times::DirectoryTime;
use super::super::dos_attributes::AttributePolicy;
use super::super::endpoint::{Endpoint, Entry, Listed};
use super::super::equality::{is_same, same_time};
use super::super::failures::Failures;
use super::super::links::{self, Link};
use super::super::location::folder;
use super::super::name_collisions::{Case, TakenNames};
use super::super::overlap::Ends;
use super::super::report::tell_skipped;
use super::super::transfer;
use super::super::walk::Kind;
use super::contents::{self, Pair};
use super::reserved_names::Unlisted;
use crate::exit::{Exit, Failure};

/// The actions that make the target equal to the source.
#[derive(Default)]
pub(super) struct Differences {
    /// Entries of the target that the source does not have, or has as another kind. The content
    /// of a directory goes with it.
    pub(super) removals: Vec<(String, Entry)>,
    /// Directories to create, each after those above it.
    pub(super) directories: Vec<String>,
    pub(super) files: Vec<File>,
    /// Attributes to set on files whose content is equal.
    pub(super) attributes: Vec<(String, Entry, FileAttributes)>,
    /// Links of the source, which are compared when they are made.
    pub(super) links: Vec<Link>,
    /// Those of them that the target does not have as links.
    pub(super) new_links: Vec<String>,
    /// Times of the target's directories that are other ones than the source's, or will be when
    /// something in them has changed.
    pub(super) times: Vec<DirectoryTime>,
    /// Abandoned partial copies in the target.
    pub(super) stale: Vec<(String, Entry)>,
}

impl Differences {
    /// True when source and target are equal.
    pub(super) fn is_empty(&self) -> bool {
        self.removals.is_empty()
            && self.directories.is_empty()
            && self.files.is_empty()
            && self.attributes.is_empty()
            && self.new_links.is_empty()
            && self.times.is_empty()
    }
}

/// The names of the target, ignoring case on a server.
struct TargetNames<'a> {
    all: &'a Listed,
    unlisted: &'a Unlisted,
    /// The names by their upper case. None where names differ by case.
    folded: Option<HashMap<String, &'a str>>,
}

impl<'a> TargetNames<'a> {
    fn new(all: &'a Listed, unlisted: &'a Unlisted, end: &Endpoint) -> Self {
        let by_fold = || all.keys().map(|name| (upcase_name(name), &**name)).collect();
        Self { all, unlisted, folded: end.is_remote().then(by_fold) }
    }

    fn find(&self, name: &str) -> Option<(&'a str, Entry)> {
        if let Some((name, entry)) = self.all.get_key_value(name) {
            return Some((name, *entry));
        }
        if let Some((name, entry)) = self.unlisted.entries.get_key_value(name) {
            return Some((name, *entry));
        }
        let name = *self.folded.as_ref()?.get(&upcase_name(name))?;
        self.all.get(name).map(|entry| (name, *entry))
    }
}

/// The name, then the names of the directories above it.
fn ancestors(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| name.rsplit_once('/').map(|(above, _)| above))
}

/// A comparison under way.
struct Comparison<'a> {
    sync: &'a Sync,
    ends: &'a Ends,
    source: &'a Listed,
    target: TargetNames<'a>,
    taken: TakenNames,
    /// The names of the source, as the target compares names: they are not removed.
    had: HashMap<String, &'a str>,
    /// Names of the target that are removed.
    going: HashSet<&'a str>,
    /// Directories of the source whose place another kind of entry keeps. Nothing is copied
    /// below: a link there would lead to another place.
    refused: HashSet<&'a str>,
    /// Files of equal length whose contents are compared, for `--checksum`.
    pairs: Vec<Pair<'a>>,
    /// The directories of the source, each with its time and that of the target's.
    directories: Vec<(&'a str, SystemTime, Option<SystemTime>)>,
    /// The names that links of the source have in the target while they are made: a command that was
    /// interrupted may have left some.
    link_parts: HashSet<String>,
    found: Differences,
}

/// Compares the listings of both ends. Entries that cannot be copied are noted in `failures`.
///
/// # Errors
/// The server is lost while `--checksum` reads contents.
pub(super) async fn compare(
    sync: &Sync,
    ends: &Ends,
    source: &Listed,
    target: &Listed,
    failures: &mut Failures,
) -> Result<Differences, Failure> {
    let case = if ends.to.is_remote() { Case::Same } else { Case::Differs };
    let unlisted = Unlisted::find(&ends.to, source, target).await;
    let mut comparison = Comparison {
        sync,
        ends,
        source,
        target: TargetNames::new(target, &unlisted, &ends.to),
        taken: TakenNames::new(case),
        had: HashMap::new(),
        going: HashSet::new(),
        refused: HashSet::new(),
        pairs: Vec::new(),
        directories: Vec::new(),
        link_parts: HashSet::new(),
        found: Differences::default(),
    };
    for (name, entry) in source {
        comparison.add(name, entry, failures);
    }
    let pairs = std::mem::take(&mut comparison.pairs);
    for (pair, is_equal) in contents::compare(sync, ends, pairs, failures).await? {
        comparison.settle(&pair, is_equal);
    }
    comparison.found.files.sort_by(|a, b| a.from.cmp(&b.from));
    if sync.delete {
        comparison.add_removals(target);
    }
    let is_stale = |name: &String, entry: &Entry| {
        transfer::is_stale(name, &[entry.modified, entry.changed])
            || comparison.link_parts.contains(name)
    };
    let stale = target.iter().filter(|(name, entry)| is_stale(name, entry));
    let stale = stale.map(|(name, entry)| (name.clone(), *entry)).collect();
    comparison.found.stale = stale;
    let (from, to) = futures_util::future::join(ends.from.look(), ends.to.look()).await;
    if let Ok(root) = from {
        comparison.directories.push(("", root.modified, to.ok().map(|there| there.modified)));
    }
    comparison.add_times();
    Ok(comparison.found)
}

impl<'a> Comparison<'a> {
    /// The name as the target compares names.
    fn key(&self, name: &str) -> String {
        if self.ends.to.is_remote() { upcase_name(name) } else { name.to_owned() }
    }

    /// Compares an entry of the source with the target.
    fn add(&mut self, name: &'a str, entry: &Entry, failures: &mut Failures) {
        self.had.insert(self.key(name), name);
        if !self.refused.is_empty() && ancestors(name).any(|above| self.refused.contains(above)) {
            return;
        }
        let is_link = entry.is_link
            && self.sync.copying.links
            && self.sync.filter.passes(name, false, entry.modified);
        if transfer::is_part(name) || (entry.kind == Kind::Other && !is_link) {
            return;
        }
        if let Err(failure) = self.taken.take(name, entry.kind, name) {
            failures.add(failure);
            return;
        }
        let mut old = self.target.find(name);
        if is_link {
            let mut link = Link::new(name.to_owned(), entry.to_directory);
            if let Some((name_there, other)) = old.filter(|(_, old)| old.kind == Kind::Directory)
                && self.sync.delete
                && !other.is_dfs_link
            {
                link.over = Some(name_there.to_owned());
                self.found.removals.push((name_there.to_owned(), other));
                self.going.insert(name_there);
            }
            if link.over.is_none() {
                self.link_parts.insert(links::part_of(&self.ends.to, name));
            }
            if !old.is_some_and(|(_, old)| old.is_link) {
                self.found.new_links.push(name.to_owned());
            }
            self.found.links.push(link);
            return;
        }
        if let Some((name_there, other)) = old.filter(|(_, old)| old.kind != entry.kind) {
            if !self.sync.delete || other.is_dfs_link {
                let here = entry.kind.word();
                let (there, hint) = match other.is_dfs_link {
                    true => ("DFS link", "which sync leaves alone"),
                    false => (other.kind.word(), "--delete replaces it"),
                };
                let text = format!(
                    "{name} is a {here} in the source, but a {there} in the target; {hint}"
                );
                failures.add(Failure::new(Exit::Failed, text));
                self.refused.insert(name);
                return;
            }
            self.found.removals.push((name_there.to_owned(), other));
            self.going.insert(name_there);
            old = None;
        }
        if entry.kind == Kind::Directory {
            let name_there = old.map_or(name, |(name_there, _)| name_there);
            let time_there = old.map(|(_, old)| old.modified);
            self.directories.push((name_there, entry.modified, time_there));
        }
        match (entry.kind, old) {
            (Kind::Directory, None) => self.found.directories.push(name.to_owned()),
            (Kind::File, None) => self.copy(name, name, entry),
            (Kind::File, Some((name_there, old))) => {
                self.add_existing(Pair { name, entry: *entry, name_there, old });
            }
            (Kind::Directory, Some(_)) | (Kind::Other, _) => {}
        }
    }

    /// Compares a file that both ends have, as far as the listings show it.
    fn add_existing(&mut self, pair: Pair<'a>) {
        let Pair { entry, old, .. } = &pair;
        if self.sync.update && old.modified > entry.modified && !is_same(entry, old) {
            return;
        }
        if self.sync.checksum && entry.len == old.len {
            self.pairs.push(pair);
            return;
        }
        let is_equal = !self.sync.checksum && is_same(entry, old);
        self.settle(&pair, is_equal);
    }

    /// Decides about a file that both ends have, with equal content or not.
    fn settle(&mut self, pair: &Pair<'_>, is_equal: bool) {
        let Pair { name, entry, name_there, old } = pair;
        if !is_equal {
            self.copy(name, name_there, entry);
        } else if let Some(attributes) =
            changed_attributes(self.sync.copying.attributes, self.ends, entry, old)
        {
            self.found.attributes.push(((*name_there).to_owned(), *old, attributes));
        }
    }

    fn copy(&mut self, from: &str, to: &str, entry: &Entry) {
        self.found.files.push(File { from: from.to_owned(), to: to.to_owned(), len: entry.len });
    }

    /// Finds the directories whose times have to be set.
    fn add_times(&mut self) {
        let Differences { removals, directories, files, stale, .. } = &self.found;
        let names = removals.iter().chain(stale).map(|(name, _)| name.as_str());
        let names = names.chain(directories.iter().map(String::as_str));
        let names = names.chain(files.iter().map(|file| file.to.as_str()));
        let names = names.chain(self.found.new_links.iter().map(String::as_str));
        let changed: HashSet<String> = names.map(|name| self.key(folder(name))).collect();
        let times = self.directories.iter().filter(|(name, modified, there)| {
            let is_other = there.is_none_or(|there| !same_time(*modified, there));
            is_other || changed.contains(&self.key(name))
        });
        let times = times.map(|(name, modified, _)| DirectoryTime::new(*name, *modified));
        self.found.times = times.collect();
    }

    /// Finds the entries that only the target has.
    fn add_removals(&mut self, target: &'a Listed) {
        let mut kept = Vec::new();
        for (name, entry) in target {
            // The target keeps partial copies (`is_part`), entries that the source also has, and
            // everything below a source entry that is not copied.
            let is_skipped = |above| {
                let name = self.had.get(&self.key(above));
                name.is_some_and(|name| self.source[*name].kind == Kind::Other)
            };
            if self.had.contains_key(&self.key(name))
                || self.target.unlisted.has(entry)
                || transfer::is_part(name)
                || ancestors(name).any(is_skipped)
            {
                continue;
            }
            // Files behind a link are those of another share, unless the source has a directory in its place.
            let is_of_link = |above: &str| {
                let of_source = self.had.get(&self.key(above)).map(|name| self.source[*name].kind);
                of_source != Some(Kind::Directory)
                    && target.get(above).is_some_and(|above| above.is_dfs_link)
            };
            if ancestors(name).any(is_of_link) {
                if entry.is_dfs_link {
                    kept.push(self.ends.to.shown(name));
                }
                continue;
            }
            // Removing a directory removes its content, so the content is not listed, except if
            // filtered entries in it may stay.
            let is_removed = ancestors(name).any(|above| self.going.contains(above));
            if !self.sync.filter.is_all() || !is_removed {
                self.going.insert(name);
                self.found.removals.push((name.clone(), *entry));
            }
        }
        tell_skipped("DFS links to other shares", &kept);
    }
}

/// The attributes that a file is to get, if they differ: those that both ends know from a
/// listing.
fn changed_attributes(
    policy: AttributePolicy,
    ends: &Ends,
    entry: &Entry,
    old: &Entry,
) -> Option<FileAttributes> {
    if policy == AttributePolicy::None {
        return None;
    }
    let mut known = FileAttributes::READONLY;
    if ends.from.is_remote() && ends.to.is_remote() {
        known |= FileAttributes::HIDDEN | FileAttributes::SYSTEM;
    }
    let is_other = (entry.attributes.bits() ^ old.attributes.bits()) & known.bits() != 0;
    let wanted = old.attributes.without(known).bits() | (entry.attributes.bits() & known.bits());
    is_other.then_some(FileAttributes::from_bits(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_what_it_is_in() {
        assert_eq!(ancestors("a/b/c").collect::<Vec<_>>(), ["a/b/c", "a/b", "a"]);
    }
}
