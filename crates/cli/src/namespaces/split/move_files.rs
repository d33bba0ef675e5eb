//! Moves the entries of a folder that is aside to their new place: by renames in one file system, else by a
//! copy that is compared before the first entry of it is seen.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use super::contents;
use super::folder::{Folder, failed, kind_of};
use super::plan::Plan;
use super::removal::Removal;
use super::staging::Staging;
use super::stops::stop_at;
use super::streams::{self, Pair, Sides};
use super::told::Told;
use super::tree::{Comparing, Copying, FileNumber, Size, number_of};
use crate::exit::{Done, Exit, Failure};

/// Copies that are made before a file that differs is an error.
const ATTEMPTS: usize = 2;
/// The beginning of the name of a file by which renames between two folders are tried.
const TRIAL: &str = ".frevo-split-";

/// The way by which files were moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Renamed,
    Copied,
}

/// Closes what clients have opened in the folder meanwhile, or refuses it. True if something was closed.
pub(super) type Closing<'a> = &'a dyn Fn() -> Result<bool, Failure>;

/// Moves all that is left of the folder.
pub(super) fn move_all(plan: &Plan, staging: &Staging, close: Closing<'_>) -> Result<Way, Failure> {
    let tree = staging.tree()?;
    let way = way_of(staging, &tree)?;
    if way == Way::Copied && !staging.is_compared()? {
        copy(staging, &tree, close)?;
    }
    let target = plan.destination.make()?;
    let ends = Pair { from: tree.fd(), to: target.fd(), path: &tree.path };
    // The rights of the folder are there before the first file.
    let before = contents::Saved::of(target.fd(), &target.path)?;
    let mut prepared = contents::copy_properties(&staging.sides, &ends);
    stop_at("properties");
    if way == Way::Renamed {
        prepared = prepared.and_then(|()| staging.note_renaming());
    }
    if let Err(why) = prepared {
        if staging.may_return()? {
            before.restore(target.fd(), &target.path)?;
        }
        return Err(why);
    }
    match way {
        Way::Renamed => {
            move_streams(&staging.sides, &tree)?;
            stop_at("streams");
            rename_entries(&tree, &target)?;
            // Streams of the folder itself have been copied.
            match streams::directory_of(staging.sides.from.as_ref(), tree.fd(), &tree.path)? {
                Some(_) => target.sync_all()?,
                None => target.sync()?,
            }
            tree.sync()?;
        }
        Way::Copied => {
            rename_entries(&staging.copy()?, &target)?;
            stop_at("published");
            target.sync_all()?;
            // Writes to a file until it was closed are found by its times.
            close()?;
            Removal::new(&staging.sides, staging.compared_at()?).carry_out(&tree, &target)?;
        }
    }
    staging.copy_times(&target)?;
    target.sync()?;
    stop_at("moved");
    Ok(way)
}

/// Finds out if entries can be renamed: between two file systems, and between parts of one, they cannot.
pub(super) fn way_of(staging: &Staging, tree: &Folder) -> Result<Way, Failure> {
    if staging.is_compared()? {
        return Ok(Way::Copied);
    }
    if staging.is_renaming()? {
        return Ok(Way::Renamed);
    }
    for folder in [&staging.from, tree] {
        let name = trial_name()?;
        drop(folder.make_file(&name)?);
        let Err(errno) = folder.rename(&name, &staging.to, &name) else {
            staging.to.remove_file(&name)?;
            continue;
        };
        folder.remove_file(&name)?;
        return match errno {
            Errno::XDEV => Ok(Way::Copied),
            errno => Err(failed("move files from", &folder.path)(errno)),
        };
    }
    Ok(Way::Renamed)
}

/// A name that no user's file has.
fn trial_name() -> Result<OsString, Failure> {
    let mut random = [0; 16];
    let why = |_| Failure::new(Exit::Failed, String::from("the system has no random bytes"));
    getrandom::fill(&mut random).map_err(why)?;
    Ok(OsString::from(format!("{TRIAL}{:032x}", u128::from_le_bytes(random))))
}

/// Renames all entries to names that are free.
fn rename_entries(from: &Folder, to: &Folder) -> Done {
    for name in from.names()? {
        match from.rename(&name, to, &name) {
            Ok(()) => stop_at("entry"),
            Err(Errno::EXIST) => {
                let text = format!(
                    "{} is there already, and was not replaced; rename it, and run the command again",
                    to.at(&name).display()
                );
                return Err(Failure::new(Exit::Failed, text));
            }
            Err(errno) => return Err(failed("move", &from.at(&name))(errno)),
        }
    }
    Ok(())
}

/// A file with streams beside it.
struct Marked {
    mark: OsString,
    number: FileNumber,
    links: u64,
}

/// Moves the directories of the tree's files to the other side folder.
fn move_streams(sides: &Sides, tree: &Folder) -> Done {
    let Some(from) = &sides.from else { return Ok(()) };
    let inode = |name: &OsString| u64::from_str_radix(name.to_str()?.split('-').next()?, 16).ok();
    let known: HashSet<u64> = from.names()?.iter().filter_map(inode).collect();
    if known.is_empty() {
        return Ok(());
    }
    let (mut found, mut seen) = (Vec::new(), HashMap::new());
    find_marked(tree, &known, &mut found, &mut seen)?;
    for Marked { mark, number, links } in found {
        // A file with a further name in the old share keeps its streams there too: the data is one.
        let is_whole = links <= seen.get(&number).copied().unwrap_or(1);
        let moved = if is_whole { from.rename(&mark, &sides.to, &mark) } else { Err(Errno::EXIST) };
        match moved {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::EXIST) => link_streams(from, &sides.to, &mark, is_whole)?,
            Err(errno) => return Err(failed("move", &from.at(&mark))(errno)),
        }
    }
    sides.to.sync()?;
    from.sync()
}

/// Gives the streams in a directory a further name in the other side folder.
fn link_streams(from: &Folder, to: &Folder, mark: &OsStr, is_whole: bool) -> Done {
    let Some(source) = from.find(mark)? else { return Ok(()) };
    let target = streams::make_in(to, mark)?;
    for name in streams::streams_in(&source)? {
        match rustix::fs::linkat(&source, &name, &target, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed("move", &source.at(&name))(errno)),
        }
    }
    target.sync()?;
    if is_whole { streams::forget(from, mark) } else { Ok(()) }
}

/// Finds the files of a tree with streams beside them, and counts their names in the tree.
fn find_marked(
    folder: &Folder,
    known: &HashSet<u64>,
    found: &mut Vec<Marked>,
    seen: &mut HashMap<FileNumber, u64>,
) -> Done {
    for name in folder.names()? {
        let Some(stat) = folder.stat(&name)? else { continue };
        let (number, kind) = (number_of(&stat), kind_of(&stat));
        let is_known = known.contains(&stat.st_ino);
        if kind == FileType::Directory {
            let inner = folder.open(&name)?;
            find_marked(&inner, known, found, seen)?;
            let mark = if is_known { mark_at(inner.fd(), &inner.path)? } else { None };
            found.extend(mark.map(|mark| Marked { mark, number, links: 1 }));
        } else if kind == FileType::RegularFile && is_known {
            let count = seen.entry(number).or_insert(0_u64);
            *count += 1;
            if *count == 1 {
                let (file, path) = (folder.open_file(&name)?, folder.at(&name));
                let links = file.metadata().map_err(Failure::failed(path.display()))?.nlink();
                let mark = mark_at(file.as_fd(), &path)?;
                found.extend(mark.map(|mark| Marked { mark, number, links }));
            }
        }
    }
    Ok(())
}

fn mark_at(fd: BorrowedFd<'_>, path: &Path) -> Result<Option<OsString>, Failure> {
    streams::mark_of(fd).map_err(failed("read the attributes of", path))
}

/// Copies the tree to the other file system, and compares both.
fn copy(staging: &Staging, tree: &Folder, close: Closing<'_>) -> Done {
    let size = Size::of(tree)?;
    let mut differs = None;
    for _ in 0..ATTEMPTS {
        let copy = staging.copy()?;
        let mut told = Told::copying(size);
        Copying::new(&staging.sides, &copy, &mut told).entries(tree, &copy, Path::new(""))?;
        drop(told);
        stop_at("copied");
        copy.sync_all()?;
        staging.note_comparing()?;
        let mut told = Told::walking("compared", size);
        differs = Comparing::new(&staging.sides, &mut told).entries(tree, &copy)?;
        drop(told);
        // A file that was open may have been written to after it was compared.
        let was_open = close()?;
        if differs.is_none() && !was_open {
            staging.note_compared()?;
            stop_at("compared");
            return Ok(());
        }
        // The whole copy is made again, because the times of a file do not tell that its bytes differ.
        staging.remove_copy()?;
    }
    let what =
        differs.map_or_else(|| String::from("clients open files of it"), |what| what.to_string());
    let text = format!(
        "the copy of the folder differs from it ({what}); stop the programs of this machine that \
         change its files, or look for a fault of the disk"
    );
    Err(Failure::new(Exit::Failed, text))
}
