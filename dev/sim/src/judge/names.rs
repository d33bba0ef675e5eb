//! Names in a folder that one actor alone uses: all that the folder can look
//! like.

use std::collections::{BTreeMap, BTreeSet};

use super::Moment;
use crate::trace::Trace;
use crate::violation;

/// Names and what is in the files; [`ANY`] when a crash has left it open.
type Folder = BTreeMap<String, u64>;

/// Content that is not known.
const ANY: u64 = u64::MAX;
/// Folders that are kept apart, at most: beyond it nothing is checked until the
/// next look at the disk.
const POSSIBLE_MAX: usize = 4_096;

/// What is done to names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Writes a file, made or replaced.
    Write(String, u64),
    /// Removes one.
    Remove(String),
    /// Renames one; true: what has the new name is replaced.
    Rename(String, String, bool),
    /// Reads one.
    Read(String),
    /// Lists all: what is there, as [`Step::mask`] says it.
    List,
}

impl Step {
    /// The names that there can be.
    pub const NAMES: [&str; 3] = ["a", "b", "c"];

    /// Names as bits; one bit more when there is another or one twice.
    pub fn mask<'a>(names: impl IntoIterator<Item = &'a str>) -> u64 {
        names.into_iter().fold(0, |mask, name| {
            let at = Self::NAMES.iter().position(|one| *one == name);
            match at.map(|at| 1 << at).filter(|bit| mask & bit == 0) {
                Some(bit) => mask | bit,
                None => mask | 1 << Self::NAMES.len(),
            }
        })
    }
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    /// It was done; of a read, what was there.
    Done(u64),
    /// The name is not there.
    NotFound,
    /// The new name is.
    Collision,
    /// It was refused, and nothing was done.
    Not,
    /// Nobody knows.
    Unknown,
}

/// What is known of a folder.
#[derive(Debug)]
pub struct Names {
    /// What it can be; nothing: too much to keep.
    possible: Option<BTreeSet<Folder>>,
    /// What it could have been, since the last time that is stable.
    since: Vec<(Moment, BTreeSet<Folder>)>,
}

impl Default for Names {
    fn default() -> Self {
        let empty = BTreeSet::from([Folder::new()]);
        Self { possible: Some(empty.clone()), since: vec![(0, empty)] }
    }
}

/// The folder after the step, if it can be done.
fn after(folder: &Folder, step: &Step) -> Option<Folder> {
    let mut after = folder.clone();
    match step {
        Step::Write(name, value) => {
            after.insert(name.clone(), *value);
        }
        Step::Remove(name) => {
            after.remove(name)?;
        }
        Step::Rename(from, to, replace) => {
            if after.contains_key(to) && !replace && from != to {
                return None;
            }
            let value = after.remove(from)?;
            after.insert(to.clone(), value);
        }
        Step::Read(name) => {
            after.get(name)?;
        }
        Step::List => {}
    }
    Some(after)
}

/// All that can be when it is not known whether the step was done.
fn either(folder: &Folder, step: &Step) -> Vec<Folder> {
    let mut all = vec![folder.clone()];
    all.extend(after(folder, step));
    if let Step::Write(name, _) = step {
        // Made or emptied, and not written.
        all.extend(after(folder, &Step::Write(name.clone(), 0)));
    }
    all
}

impl Names {
    /// A step is about to be done.
    pub fn begins(&mut self, step: &Step, now: Moment) {
        self.note(now, Some(step));
    }

    fn note(&mut self, now: Moment, step: Option<&Step>) {
        let Some(possible) = &self.possible else { return };
        let all = possible.iter().flat_map(|folder| match step {
            Some(step) => either(folder, step),
            None => vec![folder.clone()],
        });
        self.since.push((now, all.collect()));
    }

    /// The step has ended. What cannot be is said.
    pub fn ends(&mut self, step: &Step, did: Did, now: Moment) -> Result<(), String> {
        let Some(possible) = &self.possible else { return Ok(()) };
        let next: BTreeSet<Folder> =
            possible.iter().flat_map(|folder| ended(folder, step, did)).collect();
        if next.is_empty() {
            return Err(format!(
                "{step:?} ended with {did:?}, but the folder was one of {possible:?}"
            ));
        }
        self.possible = (next.len() <= POSSIBLE_MAX).then_some(next);
        self.note(now, None);
        Ok(())
    }

    /// What had been done before `asked` is stable.
    pub(super) fn stable(&mut self, asked: Moment) {
        let last = self.since.iter().rposition(|(at, _)| *at < asked);
        if let Some(last) = last {
            self.since.drain(..last);
        }
    }

    /// A crash: any of what it was since then, and what is in the files may be
    /// old.
    pub(super) fn crash(&mut self) {
        if self.possible.is_none() {
            return;
        }
        let all: BTreeSet<Folder> = std::mem::take(&mut self.since)
            .into_iter()
            .flat_map(|(_, folders)| folders)
            .map(|folder| folder.into_keys().map(|name| (name, ANY)).collect())
            .collect();
        self.since = vec![(0, all.clone())];
        self.possible = (all.len() <= POSSIBLE_MAX).then_some(all);
    }

    /// What is on the disk.
    pub(super) fn see(&mut self, found: &BTreeMap<&str, &[u8]>, trace: &Trace, folder: &str) {
        let Some(possible) = &self.possible else { return };
        let is = |one: &Folder| {
            one.len() == found.len()
                && one.iter().all(|(name, value)| {
                    found
                        .get(&**name)
                        .is_some_and(|content| *value == ANY || number(content) == *value)
                })
        };
        if !possible.iter().any(is) {
            let names: Vec<_> =
                found.iter().map(|(name, content)| (name, number(content))).collect();
            violation!(trace, "{folder} holds {names:?}, but it should be one of {possible:?}");
        }
    }
}

/// The number in a file, 0 if it is empty.
pub fn number(content: &[u8]) -> u64 {
    content.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn ended(folder: &Folder, step: &Step, did: Did) -> Vec<Folder> {
    match (did, step) {
        (Did::Done(found), Step::Read(name)) => {
            let fits = folder.get(name).is_some_and(|value| *value == found || *value == ANY);
            let mut folder = folder.clone();
            folder.insert(name.clone(), found);
            fits.then_some(folder).into_iter().collect()
        }
        (Did::Done(found), Step::List) => {
            let is_it = Step::mask(folder.keys().map(String::as_str)) == found;
            is_it.then(|| folder.clone()).into_iter().collect()
        }
        (Did::Done(_), _) => after(folder, step).into_iter().collect(),
        (Did::NotFound, Step::Remove(name) | Step::Read(name) | Step::Rename(name, ..)) => {
            if folder.contains_key(name) { Vec::new() } else { vec![folder.clone()] }
        }
        (Did::Collision, Step::Rename(_, to, false)) => {
            if folder.contains_key(to) {
                vec![folder.clone()]
            } else {
                Vec::new()
            }
        }
        (Did::NotFound | Did::Collision, _) => Vec::new(),
        (Did::Not, _) => vec![folder.clone()],
        (Did::Unknown, _) => either(folder, step),
    }
}
