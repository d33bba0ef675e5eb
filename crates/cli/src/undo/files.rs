//! Carries out the steps in the folder of a share.

use std::sync::Arc;

use frevo_store::name::Rules;
use frevo_store::snapshot::Moment;
use frevo_store::vfs::{BasicChange, Existence, KindWanted, Node, OpenHow, Opened, SecurityChange};
use frevo_store::{Fault, Name, Stat, Vfs};

use super::plan::Step;

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;

/// Names of a folder of a recycle bin that are looked at for one file.
const BIN_NAMES: usize = 100_000;

/// Tells the folder in which an account's removed files are.
pub(super) type BinOf = Box<dyn Fn(&str) -> String>;

/// The folder of a share.
pub(super) struct Files {
    pub(super) vfs: Arc<dyn Vfs>,
    /// The folder of recycle bins, and of an account in it; None without recycle bins.
    pub(super) bin_of: Option<BinOf>,
    /// True if nothing is changed.
    pub(super) only_lists: bool,
}

/// The file that may have a path before data comes back to it.
#[derive(Debug, Clone, Copy)]
enum Expected {
    /// Only this one, which gets the data.
    Of(u64),
    /// Only this one, which goes aside.
    Aside(u64),
    /// None.
    Free,
}

const READ: OpenHow = OpenHow { kind: KindWanted::NotDirectory, read: true, ..OpenHow::LOOK };
const WRITE: OpenHow = OpenHow { write: true, ..READ };
const MAKE: OpenHow = OpenHow { existence: Existence::MustNotExist, ..WRITE };
const FOLDER: OpenHow =
    OpenHow { existence: Existence::Either, kind: KindWanted::Directory, ..OpenHow::LOOK };

fn name(path: &str) -> Result<Name, String> {
    Name::parse(path, Rules::Posix).map_err(|_| String::from("its name is not valid"))
}

fn told(fault: Fault) -> String {
    fault.to_string()
}

impl Files {
    /// Carries out a step, or finds out if it could be. Returns the source of the data, for people.
    ///
    /// # Errors
    /// The reason for which the step cannot be carried out.
    pub(super) fn carry_out(&self, step: &Step) -> Result<String, String> {
        match step {
            Step::MoveBack { file, from, to } => self.move_back(*file, from, to),
            Step::Rewrite { file, path, before } => {
                self.rewrite(path, *before, Expected::Of(*file))
            }
            Step::BringBack { file, path, last, before, bin, aside } => {
                let binned = bin.as_deref().and_then(|user| self.find_in_bin(user, last, *file));
                let expected = aside.map_or(Expected::Free, Expected::Aside);
                match binned {
                    Some(binned) => self.take_from_bin(&binned, path, expected),
                    None => self.rewrite(path, *before, expected),
                }
            }
        }
    }

    fn move_back(&self, file: u64, from: &str, to: &str) -> Result<String, String> {
        let (from, path, to) = (name(from)?, to, name(to)?);
        let there = self.vfs.stat(&from).map_err(told)?;
        if there.key.inode != file {
            return Err(String::from("another file has its new name"));
        }
        if self.vfs.stat(&to).is_ok() {
            return Err(String::from("another file has its old name"));
        }
        if !self.only_lists {
            self.make_folders(path)?;
            self.vfs.rename(&from, there.key, &to, false).map_err(told)?;
        }
        Ok(String::from("renamed back"))
    }

    /// Puts a file of a recycle bin into its place.
    fn take_from_bin(
        &self,
        binned: &Name,
        path: &str,
        expected: Expected,
    ) -> Result<String, String> {
        let source = self.vfs.open(binned, &READ).map_err(told)?;
        self.check(path, expected)?;
        if !self.only_lists {
            self.clear(path, expected)?;
            self.make_folders(path)?;
            self.vfs.rename(binned, source.stat.key, &name(path)?, false).map_err(told)?;
        }
        Ok(String::from("from the recycle bin"))
    }

    /// Refuses a path that has another file than the journal says: nothing of it may be lost.
    fn check(&self, path: &str, expected: Expected) -> Result<(), String> {
        let there = match self.vfs.stat(&name(path)?) {
            Err(Fault::NotFound | Fault::PathNotFound) => return Ok(()),
            there => there.map_err(told)?.key.inode,
        };
        match expected {
            Expected::Of(file) | Expected::Aside(file) if file == there => Ok(()),
            _ => Err(String::from("another file has its name")),
        }
    }

    /// Gives the file of the session that has a path another name, so that the one from before can be made.
    fn clear(&self, path: &str, expected: Expected) -> Result<(), String> {
        let Expected::Aside(file) = expected else { return Ok(()) };
        let (from, to) = (name(path)?, name(&format!("{path}.before-undo"))?);
        match self.vfs.stat(&from) {
            Ok(there) if there.key.inode == file => {
                self.vfs.rename(&from, there.key, &to, false).map(drop).map_err(told)
            }
            _ => Ok(()),
        }
    }

    /// Gives a file the data of the newest snapshot before a second.
    fn rewrite(&self, path: &str, before: Moment, expected: Expected) -> Result<String, String> {
        let name = name(path)?;
        let moments = self.vfs.snapshots(&Name::root()).map_err(told)?;
        let taken = moments.into_iter().filter(|taken| *taken < before).max();
        let taken = taken.ok_or("there is no snapshot from before, and it is in no recycle bin")?;
        let past = self.vfs.snapshot(taken, &Arc::default()).map_err(told)?;
        let source = match past.open(&name, &READ) {
            Err(Fault::NotFound | Fault::PathNotFound) => {
                let former = self.vfs.name_in_snapshot(taken, &name).map_err(told)?;
                let former = former.ok_or("the snapshot from before does not have it")?;
                past.open(&former, &READ).map_err(told)?
            }
            opened => opened.map_err(told)?,
        };
        self.check(path, expected)?;
        if !self.only_lists {
            self.clear(path, expected)?;
            self.fill(path, &source, expected)?;
        }
        Ok(format!("from the snapshot {taken}"))
    }

    /// Gives a file the data of another one. A file that is made gets the owner and the rights, too.
    fn fill(&self, path: &str, source: &Opened, expected: Expected) -> Result<(), String> {
        let name = &name(path)?;
        let target = match self.vfs.open(name, &WRITE) {
            Err(Fault::NotFound | Fault::PathNotFound) => {
                self.make_folders(path)?;
                let made = self.vfs.open(name, &MAKE).map_err(told)?;
                let without = |_: &String| _ = self.vfs.remove(name, made.stat.key);
                protect(&*made.node, source).inspect_err(without)?;
                made
            }
            opened => {
                let opened = opened.map_err(told)?;
                // It could have changed since it was looked at.
                if !matches!(expected, Expected::Of(file) if file == opened.stat.key.inode) {
                    return Err(String::from("another file has its name"));
                }
                opened
            }
        };
        copy(&*source.node, &*target.node)?;
        let Stat { created, written, attributes, .. } = source.stat;
        let basic = BasicChange {
            created: Some(created),
            written: Some(written),
            attributes: Some(attributes),
            ..BasicChange::default()
        };
        target.node.set_basic(&basic).map_err(told)?;
        target.node.sync().map_err(told)
    }

    /// Makes the folders above a path that are not there.
    fn make_folders(&self, path: &str) -> Result<(), String> {
        for (at, _) in path.match_indices('/') {
            let (folder, _) = path.split_at(at);
            self.vfs.open(&name(folder)?, &FOLDER).map_err(told)?;
        }
        Ok(())
    }

    /// The name in the recycle bin of `user` of a file that was removed at `path`.
    fn find_in_bin(&self, user: &str, path: &str, file: u64) -> Option<Name> {
        let bin = self.bin_of.as_ref()?(user);
        let folder = match path.rsplit_once('/') {
            Some((folder, _)) => format!("{bin}/{folder}"),
            None => bin,
        };
        let opened =
            self.vfs.open(&name(&folder).ok()?, &OpenHow { read: true, ..OpenHow::DIRECTORY });
        let mut directory = opened.ok()?.node.directory().ok()?;
        for _ in 0..BIN_NAMES {
            let found = directory.next_name().ok()??.to_owned();
            let is_it = |stat: Stat| stat.key.inode == file;
            if directory.entry_stat().ok()?.is_some_and(is_it) {
                return name(&format!("{folder}/{found}")).ok();
            }
        }
        None
    }
}

fn copy(source: &dyn Node, target: &dyn Node) -> Result<(), String> {
    let mut piece = vec![0; PIECE];
    let mut at = 0_u64;
    loop {
        let count = source.read_at(at, &mut piece).map_err(told)?;
        if count == 0 {
            return target.set_end_of_file(at).map_err(told);
        }
        target.write_at(at, &piece[..count]).map_err(told)?;
        at += count as u64;
    }
}

/// Gives a new file the owner, the permission bits and the access list of another one.
fn protect(target: &dyn Node, source: &Opened) -> Result<(), String> {
    let descriptor = source.node.stored_security().map_err(told)?;
    let Stat { uid, gid, mode, .. } = source.stat;
    let change = SecurityChange {
        descriptor: descriptor.as_deref(),
        uid: Some(uid),
        gid: Some(gid),
        mode: Some(mode),
        lists: None,
    };
    target.set_security(&change).map_err(|fault| format!("its owner cannot be set: {fault}"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use frevo_posix::{PosixOptions, PosixVfs};

    use super::*;

    fn at(hour: u32) -> Moment {
        Moment::of_token(&format!("@GMT-2030.11.30-{hour:02}.00.00")).unwrap()
    }

    /// A share with snapshots of 10, 12 and 14 o'clock and a recycle bin of ann.
    struct Share {
        folder: tempfile::TempDir,
        files: Files,
    }

    impl Share {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let write = |path: &str, data: &str| {
                let path = folder.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, data).unwrap();
            };
            for (hour, data) in [("10", "oldest"), ("12", "before"), ("14", "encrypted")] {
                for file in ["papers/a", "b", "gone/deep/c"] {
                    write(&format!(".snap/2030.11.30-{hour}.00.00/{file}"), data);
                }
            }
            write("papers/a", "encrypted");
            write("b.locked", "encrypted, and longer than before");
            write(".recycle/ann/papers/d (2)", "thrown away");
            write(".recycle/ann/papers/d", "another one");
            let snapshots = ".snap/%Y.%m.%d-%H.%M.%S".parse().unwrap();
            let options = PosixOptions { snapshots: Some(snapshots), ..PosixOptions::default() };
            let vfs = Arc::new(PosixVfs::open_root(folder.path(), options).unwrap());
            let bin_of: BinOf = Box::new(|user| format!(".recycle/{user}"));
            Self { folder, files: Files { vfs, bin_of: Some(bin_of), only_lists: false } }
        }

        fn inode(&self, path: &str) -> u64 {
            self.folder.path().join(path).metadata().unwrap().ino()
        }

        fn text(&self, path: &str) -> Option<String> {
            fs::read_to_string(self.folder.path().join(path)).ok()
        }
    }

    fn bring_back(file: u64, path: &str, bin: Option<&str>) -> Step {
        let (path, bin) = (path.to_owned(), bin.map(str::to_owned));
        Step::BringBack { file, last: path.clone(), path, before: at(13), bin, aside: None }
    }

    fn rewrite(file: u64, path: &str, before: Moment) -> Step {
        Step::Rewrite { file, path: path.to_owned(), before }
    }

    #[test]
    fn files_come_back_from_snapshots_and_the_bin() {
        let share = Share::new();
        let thrown = share.inode(".recycle/ann/papers/d (2)");
        let steps = [
            Step::MoveBack {
                file: share.inode("b.locked"),
                from: "b.locked".into(),
                to: "b".into(),
            },
            rewrite(share.inode("b.locked"), "b", at(13)),
            rewrite(share.inode("papers/a"), "papers/a", at(14)),
            bring_back(1, "gone/deep/c", None),
            bring_back(thrown, "papers/d", Some("ann")),
        ];
        let done: Vec<_> = steps.iter().map(|step| share.files.carry_out(step)).collect();
        let from = |text: &str| Ok(text.to_owned());
        let snapshot = "from the snapshot @GMT-2030.11.30-12.00.00";
        let bin = "from the recycle bin";
        assert_eq!(
            done,
            [from("renamed back"), from(snapshot), from(snapshot), from(snapshot), from(bin)]
        );
        for (path, text) in [
            ("b", Some("before")),
            ("b.locked", None),
            ("papers/a", Some("before")),
            ("gone/deep/c", Some("before")),
            ("papers/d", Some("thrown away")),
            (".recycle/ann/papers/d (2)", None),
            (".recycle/ann/papers/d", Some("another one")),
        ] {
            assert_eq!(share.text(path).as_deref(), text, "{path}");
        }
    }

    #[test]
    fn nothing_is_changed_by_a_list_or_where_it_does_not_fit() {
        let share = Share::new();
        let locked = share.inode("b.locked");
        let back = |file| Step::MoveBack { file, from: "b.locked".into(), to: "b".into() };
        let refused = |step: &Step, why: &str| {
            let told = share.files.carry_out(step).unwrap_err();
            assert!(told.contains(why), "{told}");
        };
        refused(&back(locked + 1), "another file has its new name");
        fs::write(share.folder.path().join("b"), "new").unwrap();
        refused(&back(locked), "another file has its old name");
        let new = share.inode("b");
        refused(&rewrite(new, "b", at(10)), "no snapshot from before");
        refused(&rewrite(new, "e", at(13)), "does not have it");
        refused(&rewrite(new, "../b", at(13)), "");
        let listing = Files { only_lists: true, ..share.files };
        assert!(listing.carry_out(&rewrite(new, "b", at(13))).is_ok());
        assert_eq!(fs::read_to_string(share.folder.path().join("b")).unwrap(), "new");
    }

    #[test]
    fn only_the_files_of_the_journal_are_written() {
        let share = Share::new();
        // A hard link, or a file that somebody has made since, has the path.
        fs::write(share.folder.path().join("b"), "of somebody else").unwrap();
        for step in [rewrite(share.inode("b.locked"), "b", at(13)), bring_back(7, "b", None)] {
            let why = share.files.carry_out(&step).unwrap_err();
            assert_eq!(why, "another file has its name");
        }
        assert_eq!(share.text("b").as_deref(), Some("of somebody else"));
        // The session's own file in the place of an old one is kept beside it.
        let Step::BringBack { file, path, last, before, bin, .. } = bring_back(7, "b", None) else {
            unreachable!()
        };
        let aside = Some(share.inode("b"));
        share.files.carry_out(&Step::BringBack { file, path, last, before, bin, aside }).unwrap();
        assert_eq!(share.text("b").as_deref(), Some("before"));
        assert_eq!(share.text("b.before-undo").as_deref(), Some("of somebody else"));
    }
}
