//! A split that has begun: a folder in the side folders of both shares, where no client sees it. It is there
//! until all is done, so that a second call goes on.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;

use frevo_posix::SIDE_FOLDER;
use frevo_wire::fscc::fold_name;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::folder::{Folder, failed};
use super::plan::{Plan, is_id};
use super::removal::Moment;
use super::stops::stop_at;
use super::streams::{self, Sides};
use super::{contents, tree};
use crate::exit::{Done, Exit, Failure};

/// The moving folder in the share that it leaves, and its copy in the other one.
const TREE: &str = "tree";
/// The file that tells that the copy is complete and was compared.
const COMPARED: &str = "compared";
/// The file whose time is that at which the comparison began.
const COMPARING: &str = "comparing";
/// The file that tells that files are renamed to the other share.
const RENAMING: &str = "renaming";
/// The file with the link and its target, for people and for a later call.
const ABOUT: &str = "about";
/// The rights of others than its owner to write in a folder.
const WRITABLE: u32 = 0o022;
/// Bytes that are read of that file.
const ABOUT_BYTES: u64 = 4_096;

/// The folders of a split in the side folders of both shares.
#[derive(Debug)]
pub(super) struct Staging {
    /// Its folder in the share that the files leave.
    pub(super) from: Folder,
    /// Its folder in the share that they go to.
    pub(super) to: Folder,
    pub(super) sides: Sides,
    id: OsString,
}

impl Staging {
    /// Finds what an earlier call has begun. None if it has begun nothing.
    pub(super) fn find(plan: &Plan) -> Result<Option<Self>, Failure> {
        let Some(side) = streams::side_of(&plan.source.root)? else { return Ok(None) };
        let id = OsString::from(&plan.id);
        let Some(from) = side.find(&id)? else { return Ok(None) };
        lock(&from)?;
        let begun = Begun::of(&from)?.and_then(|begun| begun.target);
        if let Some(target) = begun.filter(|it| fold_name(it) != fold_name(&plan.target.unc())) {
            let text = format!(
                "a split of this folder to {target} was interrupted: make that call again, with \
                 --server-name if the server has another name now"
            );
            return Err(Failure::new(Exit::Failed, text));
        }
        let rest = from.find(OsStr::new(TREE))?.map(|tree| tree.names()).transpose()?;
        let has_rest = rest.is_some_and(|names| !names.is_empty());
        let Places { side: to, inner } = Places::of(plan, &id, has_rest)?;
        Ok(Some(Self { from, to: inner, sides: Sides { from: Some(side), to }, id }))
    }

    /// Begins. `owner` is the server's user, for folders that are new.
    pub(super) fn make(plan: &Plan, owner: Option<(u32, u32)>) -> Result<Self, Failure> {
        for root in [&plan.source.root, &plan.destination.root] {
            let is_there = root.has(OsStr::new(SIDE_FOLDER))?;
            let side = root.make(OsStr::new(SIDE_FOLDER))?;
            if let Some(owner) = owner.filter(|_| !is_there) {
                side.give_to(owner)?;
            }
            if is_there {
                check_owner(&side, owner)?;
            } else {
                root.sync()?;
            }
        }
        let side = plan.source.root.open(OsStr::new(SIDE_FOLDER))?;
        let made = side.make(OsStr::new(&plan.id))?;
        if !made.has(OsStr::new(ABOUT))? {
            let about = made.make_file(OsStr::new(ABOUT))?;
            let text = format!("{}\n{}\n", shown(plan), plan.target.unc());
            about
                .write_all_at(text.as_bytes(), 0)
                .and_then(|()| about.sync_all())
                .map_err(Failure::failed(format!("cannot write {}", made.path.display())))?;
        }
        made.sync()?;
        side.sync()?;
        drop((made, side));
        let found = Self::find(plan)?.ok_or_else(|| streams::no_side(&plan.source.root))?;
        stop_at("begun");
        Ok(found)
    }

    /// Refuses side folders in which others than the server and root may write.
    pub(super) fn check_owners(&self, owner: Option<(u32, u32)>) -> Done {
        let sides = self.sides.from.iter().chain([&self.sides.to]);
        sides.into_iter().try_for_each(|side| check_owner(side, owner))
    }

    /// True if the moving folder is aside.
    pub(super) fn is_aside(&self) -> Result<bool, Failure> {
        self.from.has(OsStr::new(TREE))
    }

    /// True if files of the moving folder are left.
    pub(super) fn has_rest(&self) -> Result<bool, Failure> {
        let tree = self.from.find(OsStr::new(TREE))?;
        Ok(tree.map(|tree| tree.names()).transpose()?.is_some_and(|names| !names.is_empty()))
    }

    /// True if the copy is complete.
    pub(super) fn is_compared(&self) -> Result<bool, Failure> {
        self.to.has(OsStr::new(COMPARED))
    }

    /// Notes that the copy is complete.
    pub(super) fn note_compared(&self) -> Done {
        drop(self.to.make_file(OsStr::new(COMPARED))?);
        self.to.sync()
    }

    /// Notes the time: files that change from now on may differ from their copies.
    pub(super) fn note_comparing(&self) -> Done {
        let name = OsStr::new(COMPARING);
        if self.from.has(name)? {
            self.from.remove_file(name)?;
        }
        drop(self.from.make_file(name)?);
        self.from.sync()
    }

    /// The time at which the comparison began, by the clock of the file system that the files leave.
    pub(super) fn compared_at(&self) -> Result<Moment, Failure> {
        let stat = self.from.stat(OsStr::new(COMPARING))?;
        let missing = || failed("look at", &self.from.at(OsStr::new(COMPARING)))(Errno::NOENT);
        Ok(Moment::of_change(&stat.ok_or_else(missing)?))
    }

    /// True if files are being renamed to the other share.
    pub(super) fn is_renaming(&self) -> Result<bool, Failure> {
        self.from.has(OsStr::new(RENAMING))
    }

    /// Notes that files are renamed from now on.
    pub(super) fn note_renaming(&self) -> Done {
        if !self.is_renaming()? {
            drop(self.from.make_file(OsStr::new(RENAMING))?);
        }
        self.from.sync()
    }

    /// True as long as the whole folder is in the share that it leaves.
    pub(super) fn may_return(&self) -> Result<bool, Failure> {
        Ok(!self.is_compared()? && !self.is_renaming()?)
    }

    /// The moving folder.
    pub(super) fn tree(&self) -> Result<Folder, Failure> {
        self.from.open(OsStr::new(TREE))
    }

    /// The copy of the moving folder.
    pub(super) fn copy(&self) -> Result<Folder, Failure> {
        self.to.make(OsStr::new(TREE))
    }

    /// Removes the copy.
    pub(super) fn remove_copy(&self) -> Done {
        tree::remove_entry(&self.to, OsStr::new(TREE), Some(&self.sides.to))
    }

    /// Takes the folder out of the sight of all clients, in one step.
    pub(super) fn set_aside(&self, plan: &Plan) -> Done {
        let source = &plan.source;
        let name = OsStr::new(&source.name);
        let (folder, about) = (source.above.open(name)?, self.about()?);
        contents::copy_times(folder.fd(), about.as_fd(), &folder.path)?;
        match source.above.rename(name, &self.from, OsStr::new(TREE)) {
            Ok(()) => {}
            Err(Errno::XDEV | Errno::BUSY) => {
                let text = format!(
                    "{} is a file system of its own; share it, and make a link to the share: frevo \
                     namespace add",
                    source.path().display()
                );
                return Err(Failure::new(Exit::Failed, text));
            }
            Err(errno) => return Err(failed("move", &source.path())(errno)),
        }
        self.from.sync()?;
        source.above.sync()?;
        stop_at("aside");
        Ok(())
    }

    /// Puts the folder back to its place, as long as nothing of it has gone to the other share.
    pub(super) fn put_back(&self, plan: &Plan) -> Done {
        let source = &plan.source;
        self.remove_copy()?;
        if self.is_aside()? {
            let name = OsStr::new(&source.name);
            // The empty folder that tells who may see the link. A folder with files in it stays.
            let _ = source.above.remove_folder(name);
            let back = self.from.rename(OsStr::new(TREE), &source.above, name);
            back.map_err(|errno| {
                let text = format!(
                    "the folder is kept in {}; it cannot go back to {}: {}",
                    self.from.at(OsStr::new(TREE)).display(),
                    source.path().display(),
                    std::io::Error::from(errno)
                );
                Failure::new(Exit::Failed, text)
            })?;
            let folder = source.above.open(name)?;
            self.copy_times(&folder)?;
            source.above.sync()?;
        }
        Ok(())
    }

    /// The file about what is begun. Its times are those that the moving folder had.
    fn about(&self) -> Result<File, Failure> {
        self.from.open_file(OsStr::new(ABOUT))
    }

    /// Gives a folder the times that the moving folder had before entries of it moved.
    pub(super) fn copy_times(&self, folder: &Folder) -> Done {
        contents::copy_times(self.about()?.as_fd(), folder.fd(), &folder.path)
    }

    /// Removes the folders of what was begun. The moving folder must be empty by now.
    pub(super) fn end(self) -> Done {
        let Self { from, to, sides, id } = self;
        let name = OsStr::new(TREE);
        for place in [&to, &from] {
            if let Some(tree) = place.find(name)?
                && !tree.names()?.is_empty()
            {
                let text =
                    format!("{} is not empty; nothing in it was removed", tree.path.display());
                return Err(Failure::new(Exit::Failed, text));
            }
        }
        tree::remove_entry(&sides.to, &id, Some(&sides.to))?;
        stop_at("ended");
        let Some(side) = &sides.from else { return Ok(()) };
        tree::remove_entry(side, &id, Some(side))
    }
}

/// The folders in the share that files go to.
struct Places {
    side: Folder,
    inner: Folder,
}

impl Places {
    /// Opens them. They are made unless files wait: a copy of some may be in those that were there.
    fn of(plan: &Plan, id: &OsStr, has_rest: bool) -> Result<Self, Failure> {
        let (root, name) = (&plan.destination.root, OsStr::new(SIDE_FOLDER));
        if !has_rest {
            let side = root.make(name)?;
            let inner = side.make(id)?;
            return Ok(Self { side, inner });
        }
        let side = root.find(name)?;
        let inner = side.as_ref().map(|side| side.find(id)).transpose()?.flatten();
        match (side, inner) {
            (Some(side), Some(inner)) => Ok(Self { side, inner }),
            _ => {
                let text = format!(
                    "the destination {} is not the one that was begun: is it mounted?",
                    root.path.display()
                );
                Err(Failure::new(Exit::Failed, text))
            }
        }
    }
}

/// Refuses a side folder that a user of the host has made, who could replace what is in it.
fn check_owner(side: &Folder, owner: Option<(u32, u32)>) -> Done {
    let stat = rustix::fs::fstat(side).map_err(failed("look at", &side.path))?;
    let uid = stat.st_uid;
    if stat.st_mode & WRITABLE != 0 {
        let text = format!(
            "users of this machine may write in {}; run chmod go-w on it first",
            side.path.display()
        );
        return Err(Failure::new(Exit::Failed, text));
    }
    let is_own = uid == 0 || uid == rustix::process::geteuid().as_raw();
    if is_own || owner.is_some_and(|(server, _)| server == uid) {
        return Ok(());
    }
    let text = format!(
        "{} belongs to the user {uid}, and neither to root nor to the server's user; remove it or set \
         its owner first",
        side.path.display()
    );
    Err(Failure::new(Exit::Failed, text))
}

fn shown(plan: &Plan) -> String {
    format!(r"{}\{}", plan.link.namespace, plan.link.link)
}

/// Keeps a second call from working on the folder at the same time.
fn lock(folder: &Folder) -> Done {
    match rustix::fs::flock(folder, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => {
            let text = "another frevo namespace split moves this folder; wait for its end";
            Err(Failure::new(Exit::Failed, text))
        }
        Err(errno) => Err(failed("lock", &folder.path)(errno)),
    }
}

/// The text about what was begun.
struct Begun {
    link: String,
    /// None if the text was not written whole.
    target: Option<String>,
}

impl Begun {
    /// Reads it. None if there is none that can be read.
    fn of(folder: &Folder) -> Result<Option<Self>, Failure> {
        if !folder.has(OsStr::new(ABOUT))? {
            return Ok(None);
        }
        let mut text = String::new();
        let file = folder.open_file(OsStr::new(ABOUT))?;
        if file.take(ABOUT_BYTES).read_to_string(&mut text).is_err() {
            return Ok(None);
        }
        let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let link = lines.next().map(str::to_owned);
        Ok(link.map(|link| Self { link, target: lines.next().map(str::to_owned) }))
    }
}

/// The target of an interrupted split of this folder, if there is one: that of a call with another `--to`.
pub(super) fn other_target(plan: &Plan) -> Result<Option<String>, Failure> {
    let Some(side) = streams::side_of(&plan.source.root)? else { return Ok(None) };
    for name in side.names()?.iter().filter(|name| is_id(name)) {
        let Some(folder) = side.find(name)? else { continue };
        let begun = Begun::of(&folder)?.filter(|begun| begun.link == shown(plan));
        if let Some(begun) = begun {
            return Ok(begun.target);
        }
    }
    Ok(None)
}
