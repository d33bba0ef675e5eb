//! Names in a folder that only one actor uses: all possible contents of the folder.

use std::collections::{BTreeMap, BTreeSet};

use super::Moment;
use crate::trace::Trace;
use crate::violation;

/// Names and the content of the files; [`ANY`] if a crash has left it open.
type Folder = BTreeMap<String, u64>;

/// An unknown content.
const ANY: u64 = u64::MAX;
/// Most tracked contents of a folder: beyond it nothing is checked until the next look at the disk.
const POSSIBLE_MAX: usize = 4_096;

/// A change or a query of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Writes a file, made or replaced.
    Write(String, u64),
    /// Removes a file.
    Remove(String),
    /// Renames a file; with true it replaces the new name.
    Rename(String, String, bool),
    /// Reads a file.
    Read(String),
    /// Lists the folder; the result is a bit mask, see [`Step::mask`].
    List,
}

impl Step {
    /// The possible names.
    pub const NAMES: [&str; 3] = ["a", "b", "c"];

    /// Returns names as bits, with a further bit for an unknown name or a duplicate.
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

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    /// Success; of a read, the content.
    Done(u64),
    /// The name does not exist.
    NotFound,
    /// The new name exists.
    Collision,
    /// The step was refused and had no effect.
    Not,
    /// The result is unknown.
    Unknown,
}

/// The known state of a folder.
#[derive(Debug)]
pub struct Names {
    /// The possible contents; None if there are too many to track.
    possible: Option<BTreeSet<Folder>>,
    /// The possible contents since the last stable one.
    since: Vec<(Moment, BTreeSet<Folder>)>,
}

impl Default for Names {
    fn default() -> Self {
        let empty = BTreeSet::from([Folder::new()]);
        Self { possible: Some(empty.clone()), since: vec![(0, empty)] }
    }
}

/// Returns the folder after the step, if the step is possible.
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

/// Returns the possible contents after a step with an unknown result.
fn either(folder: &Folder, step: &Step) -> Vec<Folder> {
    let mut all = vec![folder.clone()];
    all.extend(after(folder, step));
    if let Step::Write(name, _) = step {
        // A write that failed may have created the file, or cut it to length zero, without its
        // data.
        all.extend(after(folder, &Step::Write(name.clone(), 0)));
    }
    all
}

impl Names {
    /// Records that a step begins.
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

    /// Records the end of a step. Fails if its result is impossible.
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

    /// Records that all steps before `asked` are stable.
    pub(super) fn stable(&mut self, asked: Moment) {
        let last = self.since.iter().rposition(|(at, _)| *at < asked);
        if let Some(last) = last {
            self.since.drain(..last);
        }
    }

    /// Records a crash: any earlier unstable content is possible, and file contents may be old.
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

    /// Compares the folder on the disk with the possible contents.
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

/// Returns the number in a file, 0 if it is empty.
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
