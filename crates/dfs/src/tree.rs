//! The tree of a namespace: links sorted by their keys. Folders above links follow from the keys, so
//! that a link costs no more than its texts.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::key::{BEHIND, SEPARATOR, components, extend, is_below, key};
use crate::limits::LINKS;
use crate::link::{BadLink, Link};

/// A link beside its key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    key: Box<str>,
    link: Link,
}

/// Links by the keys of their paths. None is inside of another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tree(Vec<Entry>);

/// The object of a namespace at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution<'a> {
    /// The root, or a folder on the way to a link.
    Folder,
    /// The path is a link, or leads through one.
    Link {
        /// The link.
        link: &'a Link,
        /// The components of the path as far as the link, counted from the root.
        consumed: usize,
    },
    /// Nothing of the namespace.
    Nothing,
}

/// An entry of a folder of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step<'a> {
    /// Its name, as it was written.
    pub name: &'a str,
    /// The link of that name. None for a folder on the way to links.
    pub link: Option<&'a Link>,
}

impl Tree {
    /// Returns the tree of these links.
    pub(crate) fn of(links: Vec<Link>) -> Result<Self, BadLink> {
        if links.len() > LINKS {
            return Err(BadLink::Links);
        }
        let entry = |link: Link| Entry { key: key(components(link.path())).into(), link };
        let mut entries: Vec<Entry> = links.into_iter().map(entry).collect();
        entries.sort_by(|one, other| one.key.cmp(&other.key));
        // A link inside of another would stand directly behind it.
        for pair in entries.windows(2) {
            if let [outer, inner] = pair {
                check_apart(outer, inner)?;
            }
        }
        Ok(Self(entries))
    }

    pub(crate) fn links(&self) -> impl ExactSizeIterator<Item = &Link> {
        self.0.iter().map(|entry| &entry.link)
    }

    /// Adds a link.
    pub(crate) fn insert(&mut self, link: Link) -> Result<(), BadLink> {
        if self.0.len() >= LINKS {
            return Err(BadLink::Links);
        }
        let new = Entry { key: key(components(link.path())).into(), link };
        let at = self.0.partition_point(|entry| entry.key < new.key);
        // An outer link of the new one need not be its neighbour, so each folder above is looked up.
        if let Resolution::Link { link: outer, .. } = self.resolve(components(new.link.path())) {
            let (link, outer): (Box<str>, Box<str>) = (new.link.path().into(), outer.path().into());
            let is_same = *new.key == *key(components(&outer));
            return Err(if is_same {
                BadLink::Twice(link)
            } else {
                BadLink::Inside { link, outer }
            });
        }
        if let Some(next) = self.0.get(at) {
            check_apart(&new, next)?;
        }
        self.0.insert(at, new);
        Ok(())
    }

    /// Removes the link at this path.
    pub(crate) fn remove(&mut self, path: &str) -> Option<Link> {
        let at = self.position(path)?;
        Some(self.0.remove(at).link)
    }

    pub(crate) fn link(&self, path: &str) -> Option<&Link> {
        self.0.get(self.position(path)?).map(|entry| &entry.link)
    }

    pub(crate) fn link_mut(&mut self, path: &str) -> Option<&mut Link> {
        let at = self.position(path)?;
        self.0.get_mut(at).map(|entry| &mut entry.link)
    }

    fn position(&self, path: &str) -> Option<usize> {
        let key = key(components(path));
        self.0.binary_search_by(|entry| (*entry.key).cmp(&key)).ok()
    }

    /// Finds what stands at a path of these components.
    pub(crate) fn resolve<'p>(&self, path: impl Iterator<Item = &'p str>) -> Resolution<'_> {
        let mut prefix = String::new();
        for (at, component) in path.enumerate() {
            extend(&mut prefix, component);
            let found = self.0.partition_point(|entry| *entry.key < *prefix);
            match self.0.get(found) {
                Some(entry) if *entry.key == *prefix => {
                    return Resolution::Link { link: &entry.link, consumed: at.saturating_add(1) };
                }
                Some(entry) if is_below(&entry.key, &prefix) => {}
                _ => return Resolution::Nothing,
            }
        }
        Resolution::Folder
    }

    /// Returns the path of a link or a folder as it was written. None for a path of nothing, or behind a
    /// link.
    pub(crate) fn spelled<'p>(&self, path: impl Iterator<Item = &'p str> + Clone) -> Option<&str> {
        let count = path.clone().count();
        let key = key(path);
        let at = self.0.partition_point(|entry| *entry.key < *key);
        let entry =
            self.0.get(at).filter(|entry| *entry.key == *key || is_below(&entry.key, &key))?;
        let whole = entry.link.path();
        let end = count.checked_sub(1).map(|last| whole.match_indices('\\').nth(last));
        whole.get(..end.map_or(0, |end| end.map_or(whole.len(), |(at, _)| at)))
    }

    /// Returns the first entry of a folder behind the one called `behind`; the first of all without one.
    /// `folder` are the folder's components.
    pub(crate) fn step<'p>(
        &self,
        folder: impl Iterator<Item = &'p str>,
        behind: Option<&str>,
    ) -> Option<Step<'_>> {
        let folder = key(folder);
        let mut from = folder.clone();
        match behind {
            Some(name) => {
                extend(&mut from, name);
                // All that is in the folder `name` is passed over with it.
                from.push(BEHIND);
            }
            None if folder.is_empty() => {}
            None => from.push(SEPARATOR),
        }
        let at = self.0.partition_point(|entry| *entry.key < *from);
        let entry = self.0.get(at).filter(|entry| is_below(&entry.key, &folder))?;
        let depth = if folder.is_empty() { 0 } else { folder.split(SEPARATOR).count() };
        let mut rest = components(entry.link.path()).skip(depth);
        let name = rest.next()?;
        let link = Some(&entry.link).filter(|_| rest.next().is_none());
        Some(Step { name, link })
    }
}

/// Refuses two links of one path, and one inside of another. `inner` sorts behind `outer`.
fn check_apart(outer: &Entry, inner: &Entry) -> Result<(), BadLink> {
    if outer.key == inner.key {
        return Err(BadLink::Twice(inner.link.path().into()));
    }
    if is_below(&inner.key, &outer.key) {
        let (link, outer) = (inner.link.path().into(), outer.link.path().into());
        return Err(BadLink::Inside { link, outer });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
