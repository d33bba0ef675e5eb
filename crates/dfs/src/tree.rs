//! The tree of a namespace: links sorted by their keys. Folders above links, and the keys themselves, follow
//! from the paths, so that a link costs no more than its texts.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;

use crate::key::{BEHIND, KeyOf, SEPARATOR, components, extend, key};
use crate::limits::LINKS;
use crate::link::{BadLink, Link};

/// Links in the order of the keys of their paths. None is inside of another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tree(Vec<Link>);

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
    pub(crate) fn of(mut links: Vec<Link>) -> Result<Self, BadLink> {
        if links.len() > LINKS {
            return Err(BadLink::Links);
        }
        links.sort_by(|one, other| key_of(one).cmp_with(&key_of(other)));
        // A link inside of another would stand directly behind it.
        for pair in links.windows(2) {
            if let [outer, inner] = pair {
                check_apart(outer, inner)?;
            }
        }
        links.shrink_to_fit();
        Ok(Self(links))
    }

    pub(crate) fn links(&self) -> impl ExactSizeIterator<Item = &Link> {
        self.0.iter()
    }

    /// Adds a link.
    pub(crate) fn insert(&mut self, new: Link) -> Result<(), BadLink> {
        if self.0.len() >= LINKS {
            return Err(BadLink::Links);
        }
        // An outer link of the new one need not be its neighbour, so each folder above is looked up.
        if let Resolution::Link { link: outer, .. } = self.resolve(components(new.path())) {
            let (link, outer): (Box<str>, Box<str>) = (new.path().into(), outer.path().into());
            let is_same = key_of(&new).cmp_with(&KeyOf::new(&outer)).is_eq();
            return Err(if is_same {
                BadLink::Twice(link)
            } else {
                BadLink::Inside { link, outer }
            });
        }
        let at = self.first_from(&key(components(new.path())));
        if let Some(next) = self.0.get(at) {
            check_apart(&new, next)?;
        }
        self.0.insert(at, new);
        Ok(())
    }

    /// Removes the link at this path.
    pub(crate) fn remove(&mut self, path: &str) -> Option<Link> {
        let at = self.position(path)?;
        Some(self.0.remove(at))
    }

    pub(crate) fn link(&self, path: &str) -> Option<&Link> {
        self.0.get(self.position(path)?)
    }

    pub(crate) fn link_mut(&mut self, path: &str) -> Option<&mut Link> {
        let at = self.position(path)?;
        self.0.get_mut(at)
    }

    fn position(&self, path: &str) -> Option<usize> {
        let key = key(components(path));
        self.0.binary_search_by(|link| key_of(link).cmp(&key)).ok()
    }

    /// The place of the first link whose key is not before `key`.
    fn first_from(&self, key: &str) -> usize {
        self.0.partition_point(|link| key_of(link).cmp(key) == Ordering::Less)
    }

    /// Finds what stands at a path of these components.
    pub(crate) fn resolve<'p>(&self, path: impl Iterator<Item = &'p str>) -> Resolution<'_> {
        let mut prefix = String::new();
        for (at, component) in path.enumerate() {
            extend(&mut prefix, component);
            let Some(link) = self.0.get(self.first_from(&prefix)) else {
                return Resolution::Nothing;
            };
            let found = key_of(link);
            if found.cmp(&prefix) == Ordering::Equal {
                return Resolution::Link { link, consumed: at.saturating_add(1) };
            }
            if !found.is_below(&prefix) {
                return Resolution::Nothing;
            }
        }
        Resolution::Folder
    }

    /// Returns the path of a link or a folder as it was written. None for a path of nothing, or behind a
    /// link.
    pub(crate) fn spelled<'p>(&self, path: impl Iterator<Item = &'p str> + Clone) -> Option<&str> {
        let count = path.clone().count();
        let key = key(path);
        let link = self.0.get(self.first_from(&key))?;
        let found = key_of(link);
        let whole = link.path();
        if found.cmp(&key) != Ordering::Equal && !found.is_below(&key) {
            return None;
        }
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
        let link = self.0.get(self.first_from(&from))?;
        if !key_of(link).is_below(&folder) {
            return None;
        }
        let depth = if folder.is_empty() { 0 } else { folder.split(SEPARATOR).count() };
        let mut rest = components(link.path()).skip(depth);
        let name = rest.next()?;
        let link = Some(link).filter(|_| rest.next().is_none());
        Some(Step { name, link })
    }
}

fn key_of(link: &Link) -> KeyOf<'_> {
    KeyOf::new(link.path())
}

/// Refuses two links of one path, and one inside of another. `inner` sorts behind `outer`.
fn check_apart(outer: &Link, inner: &Link) -> Result<(), BadLink> {
    let (key, outer_key) = (key_of(inner), key(components(outer.path())));
    if key.cmp(&outer_key) == Ordering::Equal {
        return Err(BadLink::Twice(inner.path().into()));
    }
    if key.is_below(&outer_key) {
        let (link, outer) = (inner.path().into(), outer.path().into());
        return Err(BadLink::Inside { link, outer });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
