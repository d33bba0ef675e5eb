//! The steps that undo the changes of a session: a value made of the journal, without I/O.

use std::collections::BTreeMap;

use frevo_store::snapshot::Moment;

use super::journal::{Change, Entry};

/// A step. Paths are from the root of the share on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// A file goes back to its name.
    MoveBack { file: u64, from: String, to: String },
    /// The data of a file that is there is that of a snapshot before `before` again.
    Rewrite { file: u64, path: String, before: Moment },
    /// A file that was removed or replaced is there again, from the recycle bin or a snapshot.
    BringBack {
        file: u64,
        path: String,
        /// The path that it had when it went.
        last: String,
        before: Moment,
        /// The account whose recycle bin has it; None for a file that was replaced: it went nowhere.
        bin: Option<String>,
        /// The file of the session that has its path now. It goes aside.
        aside: Option<u64>,
    },
}

/// A path that is left as it is, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) path: String,
    pub(super) why: String,
}

/// A plan.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) left: Vec<Left>,
    /// New files of the session that are still there: they are left.
    pub(super) made: Vec<String>,
}

/// A file that the session has had to do with.
#[derive(Debug, Clone)]
struct Touched {
    file: u64,
    /// The path before the session; None for a file that it made.
    origin: Option<String>,
    /// The second of the first change of its data.
    written: Option<Moment>,
}

/// The files by their present paths, and those that are gone.
#[derive(Debug, Default)]
struct Story {
    present: BTreeMap<String, Touched>,
    gone: Vec<Step>,
    /// The place in the journal of the last change of a path by the session.
    last: BTreeMap<String, usize>,
}

impl Story {
    fn take(&mut self, entry: &Entry) -> Touched {
        let old = || Touched { file: entry.file, origin: Some(entry.path.clone()), written: None };
        self.present.remove(&entry.path).unwrap_or_else(old)
    }

    fn add(&mut self, at: usize, entry: &Entry) {
        self.last.insert(entry.path.clone(), at);
        match &entry.change {
            Change::Made => {
                let made = Touched { file: entry.file, origin: None, written: None };
                self.present.insert(entry.path.clone(), made);
            }
            Change::Wrote => {
                let mut touched = self.take(entry);
                touched.written.get_or_insert(entry.at);
                self.present.insert(entry.path.clone(), touched);
            }
            Change::Renamed(to) => {
                let touched = self.take(entry);
                self.last.insert(to.clone(), at);
                self.present.insert(to.clone(), touched);
            }
            Change::Removed | Change::Replaced => {
                let Touched { file, origin, written } = self.take(entry);
                let Some(path) = origin else { return };
                let is_whole = entry.change == Change::Removed && written.is_none();
                self.gone.push(Step::BringBack {
                    file,
                    path,
                    last: entry.path.clone(),
                    before: written.unwrap_or(entry.at),
                    bin: is_whole.then(|| entry.user.clone()),
                    aside: None,
                });
            }
        }
    }
}

/// Makes the plan for the changes of some sessions from a second on. What another session has changed since
/// is left as it is.
pub(super) fn plan(entries: &[Entry], sessions: &[u64], since: Moment) -> Plan {
    let mut story = Story::default();
    let is_own = |entry: &Entry| sessions.contains(&entry.session);
    let own = entries.iter().enumerate().filter(|(_, entry)| is_own(entry) && entry.at >= since);
    own.for_each(|(at, entry)| story.add(at, entry));
    let mut others: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate().filter(|(_, entry)| !is_own(entry)) {
        others.insert(&entry.path, (at, &entry.user));
        if let Change::Renamed(to) = &entry.change {
            others.insert(to, (at, &entry.user));
        }
    }
    let changed_since = |path: &str| {
        let (at, user) = others.get(path)?;
        let is_later = story.last.get(path).is_some_and(|own| at > own);
        is_later.then(|| format!("{user} has changed it since, in another session"))
    };
    let mut plan = Plan::default();
    let (mut moved, mut rewritten) = (Vec::new(), Vec::new());
    for (path, Touched { file, origin, written }) in &story.present {
        let Some(origin) = origin else {
            plan.made.push(path.clone());
            continue;
        };
        if let Some(why) = changed_since(path).or_else(|| changed_since(origin)) {
            plan.left.push(Left { path: path.clone(), why });
            continue;
        }
        if path != origin {
            moved.push(Step::MoveBack { file: *file, from: path.clone(), to: origin.clone() });
        }
        let rewrite = |before| Step::Rewrite { file: *file, path: origin.clone(), before };
        rewritten.extend(written.map(rewrite));
    }
    for mut step in story.gone {
        let Step::BringBack { path, aside, .. } = &mut step else { continue };
        let made = story.present.get(path).filter(|there| there.origin.is_none());
        *aside = made.map(|there| there.file);
        match changed_since(path) {
            Some(why) => plan.left.push(Left { path: path.clone(), why }),
            None => rewritten.push(step),
        }
    }
    plan.steps = moved;
    plan.steps.extend(rewritten);
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: u32) -> Moment {
        Moment::of_token(&format!("@GMT-2030.11.30-17.00.{second:02}")).unwrap()
    }

    fn entry(at: u32, session: u64, path: &str, file: u64, change: Change) -> Entry {
        let user = if session == 1 { "ann" } else { "bob" };
        let (user, path) = (user.to_owned(), path.to_owned());
        Entry { at: second(at), session, user, path, file, change }
    }

    fn renamed(to: &str) -> Change {
        Change::Renamed(to.to_owned())
    }

    #[test]
    fn encryption_in_place_with_a_rename() {
        let entries = [
            entry(1, 1, "a", 7, Change::Wrote),
            entry(2, 1, "a", 7, Change::Wrote),
            entry(3, 1, "a", 7, renamed("a.locked")),
        ];
        let plan = plan(&entries, &[1], second(0));
        assert_eq!(
            plan.steps,
            [
                Step::MoveBack { file: 7, from: "a.locked".into(), to: "a".into() },
                Step::Rewrite { file: 7, path: "a".into(), before: second(1) },
            ]
        );
        assert!(plan.left.is_empty() && plan.made.is_empty());
    }

    #[test]
    fn new_files_with_removals_and_replacements() {
        let entries = [
            entry(1, 1, "a.locked", 100, Change::Made),
            entry(2, 1, "a", 7, Change::Removed),
            entry(3, 1, "x", 101, Change::Made),
            entry(4, 1, "b", 8, Change::Replaced),
            entry(4, 1, "x", 101, renamed("b")),
            entry(5, 1, "c", 9, Change::Wrote),
            entry(6, 1, "c", 9, Change::Removed),
            entry(7, 1, "y", 102, Change::Made),
            entry(8, 1, "y", 102, Change::Removed),
        ];
        let plan = plan(&entries, &[1], second(0));
        let back = |file, path: &str, before, bin: Option<&str>, aside| Step::BringBack {
            file,
            path: path.into(),
            last: path.into(),
            before: second(before),
            bin: bin.map(str::to_owned),
            aside,
        };
        let steps = [
            back(7, "a", 2, Some("ann"), None),
            back(8, "b", 4, None, Some(101)),
            back(9, "c", 5, None, None),
        ];
        assert_eq!(plan.steps, steps);
        assert_eq!(plan.made, ["a.locked", "b"]);
    }

    #[test]
    fn work_from_before_the_attack_stays_and_sessions_are_one_story() {
        let entries = [
            entry(1, 1, "a", 7, Change::Wrote),
            entry(2, 1, "kept", 8, Change::Removed),
            entry(20, 1, "a", 7, Change::Wrote),
            entry(21, 2, "a", 7, renamed("a.locked")),
        ];
        let plan = plan(&entries, &[1, 2], second(10));
        let steps = [
            Step::MoveBack { file: 7, from: "a.locked".into(), to: "a".into() },
            Step::Rewrite { file: 7, path: "a".into(), before: second(20) },
        ];
        assert_eq!(plan.steps, steps);
        assert!(plan.left.is_empty() && plan.made.is_empty());
    }

    #[test]
    fn changes_of_others_since_then_stay() {
        let entries = [
            entry(1, 2, "a", 7, Change::Wrote),
            entry(2, 1, "a", 7, Change::Wrote),
            entry(3, 1, "b", 8, Change::Wrote),
            entry(4, 2, "b", 8, Change::Wrote),
            entry(5, 1, "c", 9, Change::Removed),
            entry(6, 2, "z", 10, renamed("c")),
        ];
        let plan = plan(&entries, &[1], second(0));
        assert_eq!(plan.steps, [Step::Rewrite { file: 7, path: "a".into(), before: second(2) }]);
        let left: Vec<&str> = plan.left.iter().map(|left| &*left.path).collect();
        assert_eq!(left, ["b", "c"]);
        assert!(plan.left[0].why.starts_with("bob has"), "{:?}", plan.left);
        assert_eq!(super::plan(&entries, &[3], second(0)), Plan::default());
    }
}
