//! Symbolic links of copied trees, for `--links`. Only links are copied whose targets are relative and
//! stay in the tree: others would lead to another place on the machine of the copy.

use std::collections::{HashMap, HashSet};
use std::io::{Error as IoError, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use frevo_client::{Cause, Error, FileAttributes, Metadata, Share, Status};
use frevo_mount::names::{Spelling, to_wire};

use super::endpoint::{Endpoint, Entry, path_in};
use super::failures::{Failures, each};
use super::local_names::{local_in, local_name};
use super::location::{folder, join};
use super::logon::failed;
use super::long_path::reach;
use super::lost_answers;
use super::remove::remove_forced;
use super::report::tell_skipped;
use super::transfer;
use super::walk::{self, Kind};
use crate::exit::{Done, Failure};

/// The answers of servers, such as smbd, that make no links.
const NO_LINKS: [Status; 4] = [
    Status::NOT_A_REPARSE_POINT,
    Status::NOT_SUPPORTED,
    Status::NOT_IMPLEMENTED,
    Status::INVALID_DEVICE_REQUEST,
];

/// Most partial copies of one folder among which those of links are looked for.
const PARTS_MAX: usize = 1_000;

/// The links that are skipped.
const OUTSIDE: &str = "links that lead out of the copied directory";

/// A link to copy.
#[derive(Debug)]
pub(crate) struct Link {
    /// The path below the source and below the target.
    pub(crate) name: String,
    /// True for a link to a directory: Windows tells the two kinds apart.
    pub(crate) to_directory: bool,
    /// The directory of the target whose place it takes.
    pub(crate) over: Option<String>,
    /// The name below the target under which it was made already.
    part: Option<String>,
}

impl Link {
    pub(crate) const fn new(name: String, to_directory: bool) -> Self {
        Self { name, to_directory, over: None, part: None }
    }
}

/// Makes the links that take the place of directories among `removals`, under the names of parts. A
/// directory whose link cannot be made is not removed. Returns the links that are still to be copied.
pub(crate) async fn prepare(
    from: &Endpoint,
    to: &Endpoint,
    all: Vec<Link>,
    removals: &mut Vec<(String, Entry)>,
    failures: &mut Failures,
) -> Result<Vec<Link>, Failure> {
    if all.iter().all(|link| link.over.is_none()) {
        return Ok(all);
    }
    let removed: HashSet<String> = removals.iter().map(|(name, _)| name.clone()).collect();
    let (mut kept, mut unsafe_links) = (Vec::with_capacity(all.len()), Vec::new());
    let mut stay = HashSet::new();
    for mut link in all {
        let Some(over) = link.over.clone().filter(|over| removed.contains(over)) else {
            kept.push(link);
            continue;
        };
        match make_part(from, to, &link).await {
            Ok(Some(part)) => {
                link.part = Some(part);
                kept.push(link);
            }
            Ok(None) => {
                unsafe_links.push(from.shown(&link.name));
                stay.insert(over);
            }
            Err(error) => {
                failures.note(error).map_err(failed)?;
                stay.insert(over);
            }
        }
    }
    tell_skipped(OUTSIDE, &unsafe_links);
    removals.retain(|(name, _)| !with_folders(name).any(|above| stay.contains(above)));
    Ok(kept)
}

/// The name, then the names of the directories above it.
fn with_folders(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| Some(folder(name)).filter(|above| !above.is_empty()))
}

/// Makes a link under the name of a part. None if it leads out of the tree.
async fn make_part(
    from: &Endpoint,
    to: &Endpoint,
    link: &Link,
) -> frevo_client::Result<Option<String>> {
    let target = read(from, &link.name).await?;
    let Some(target) = target.filter(|target| stays_inside(&link.name, target, to.is_remote()))
    else {
        return Ok(None);
    };
    let part = part_of(to, &link.name);
    match to {
        Endpoint::Local(root) => {
            let path = local_in(root, &part);
            make_local_part(&path, &local_name(&target))
                .map_err(local_error("make the link", &path))?;
        }
        Endpoint::Remote(share, root) => {
            create_part(share, &path_in(root, &part), &target, link.to_directory).await?;
        }
    }
    Ok(Some(part))
}

/// Copies links from one end to the other, many at the same time. Those that lead out of the tree are
/// told and skipped.
pub(crate) async fn copy_all(
    from: &Endpoint,
    to: &Endpoint,
    all: &[Link],
    force: bool,
    failures: &mut Failures,
) -> Done {
    let unsafe_links = std::cell::RefCell::new(Vec::new());
    let copies = all.iter().map(async |link: &Link| {
        if let Some(part) = &link.part {
            return put_in_place(to, link, part).await;
        }
        let is_safe = |target: &String| stays_inside(&link.name, target, to.is_remote());
        match read(from, &link.name).await?.filter(is_safe) {
            Some(target) => make(to, link, &target, force).await,
            None => {
                unsafe_links.borrow_mut().push(from.shown(&link.name));
                Ok(())
            }
        }
    });
    each(copies, failures).await?;
    tell_skipped(OUTSIDE, &unsafe_links.into_inner());
    drop_old_parts(to, all).await;
    Ok(())
}

/// The name `name` in the directory of `beside_it`.
fn beside(beside_it: &str, name: &str) -> String {
    match folder(beside_it) {
        "" => name.to_owned(),
        folder => join(folder, name),
    }
}

/// The name under which a link is made that takes the place of another file: the same for each
/// command, so that the next one finds what one that was interrupted has left.
pub(crate) fn part_of(to: &Endpoint, name: &str) -> String {
    let leaf = frevo_client::path::split(name).1;
    let part = transfer::part_name("link", &[leaf.as_bytes()]);
    let dot = if to.is_remote() { "" } else { "." };
    beside(name, &format!("{dot}{part}"))
}

/// Makes a link under the name of a part. One that an interrupted command has left gives way.
fn make_local_part(part: &Path, target: &Path) -> std::io::Result<()> {
    let part = reach(part)?;
    match symlink(target, &part) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            std::fs::remove_file(&part)?;
            symlink(target, &part)
        }
        made => made,
    }
}

/// As [`make_local_part`], on a server.
async fn create_part(
    share: &Share,
    part: &str,
    target: &str,
    to_directory: bool,
) -> frevo_client::Result<()> {
    match create(share, part, target, to_directory).await {
        Err(error) if error.status() == Some(Status::OBJECT_NAME_COLLISION) => {
            drop_part(share, part).await;
            create(share, part, target, to_directory).await
        }
        made => made,
    }
}

/// Gives a link that was made as `part` its name, which is free now.
async fn put_in_place(to: &Endpoint, link: &Link, part: &str) -> frevo_client::Result<()> {
    match to {
        Endpoint::Local(root) => {
            let (part, path) = (local_in(root, part), local_in(root, &link.name));
            rename_local(&part, &path).map_err(local_error("make the link", &path))
        }
        Endpoint::Remote(share, root) => {
            let (part, path) = (path_in(root, part), path_in(root, &link.name));
            let renamed = share.rename_if_not_exists(&part, &path).await;
            if renamed.is_err() {
                drop_part(share, &part).await;
            }
            renamed.map_err(|error| error.told_as("make the link", share.url(&path)))
        }
    }
}

/// True when the link `name` below the root of a tree leads by `target` to a place in the tree. `..`
/// is understood only at the beginning: behind a name it could be that of another link's target. On a
/// server a backslash ends a name too, and a colon may end that of a drive.
fn stays_inside(name: &str, target: &str, on_server: bool) -> bool {
    let depth = name.matches('/').count();
    let mut parts = target.split('/').filter(|part| !matches!(*part, "" | ".")).peekable();
    let mut up = 0;
    while parts.next_if_eq(&"..").is_some() {
        up += 1;
    }
    let is_relative = !target.is_empty() && !target.starts_with('/');
    let is_refused = |one: char| one.is_control() || (on_server && matches!(one, '\\' | ':'));
    is_relative && up <= depth && parts.all(|part| part != ".." && !part.contains(is_refused))
}

/// The target of a link as the wire spells it; None if it is absolute or cannot be spelled.
async fn read(from: &Endpoint, name: &str) -> frevo_client::Result<Option<String>> {
    match from {
        Endpoint::Remote(share, root) => {
            let found = share.read_link(&path_in(root, name)).await?;
            Ok(Some(found.path).filter(|_| found.relative))
        }
        Endpoint::Local(root) => {
            let path = local_in(root, name);
            let target = reach(&path).and_then(std::fs::read_link);
            let target = target.map_err(local_error("read the link", &path))?;
            let parts = target.components().map(|part| match part {
                std::path::Component::Normal(name) => to_wire(name, Spelling::Mapped),
                std::path::Component::ParentDir => Some(String::from("..")),
                std::path::Component::CurDir => Some(String::from(".")),
                _ => None,
            });
            Ok(parts.collect::<Option<Vec<_>>>().map(|parts| parts.join("/")))
        }
    }
}

/// Makes a link, unless it is there. It takes the place of a file or another link.
async fn make(to: &Endpoint, link: &Link, target: &str, force: bool) -> frevo_client::Result<()> {
    match to {
        Endpoint::Local(root) => {
            let (path, part) =
                (local_in(root, &link.name), local_in(root, &part_of(to, &link.name)));
            make_local(&path, &part, &local_name(target))
                .map_err(local_error("make the link", &path))
        }
        Endpoint::Remote(share, root) => {
            let replacement = Replacement {
                path: path_in(root, &link.name),
                part: path_in(root, &part_of(to, &link.name)),
                target,
                to_directory: link.to_directory,
            };
            make_remote(share, &replacement, force).await
        }
    }
}

/// Gives a link that was made as `part` its name, or removes it.
fn rename_local(part: &Path, path: &Path) -> std::io::Result<()> {
    let (part, path) = (reach(part)?, reach(path)?);
    std::fs::rename(&part, path).inspect_err(|_| drop(std::fs::remove_file(&part)))
}

fn make_local(path: &Path, part: &Path, target: &Path) -> std::io::Result<()> {
    let there = reach(path)?;
    match std::fs::symlink_metadata(&there) {
        Ok(found) if found.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        Ok(found) if found.is_symlink() && std::fs::read_link(&there)? == target => {
            drop_local_part(part);
            return Ok(());
        }
        _ => {}
    }
    make_local_part(part, target)?;
    rename_local(part, path)
}

/// Removes the part of a link that an interrupted command has left.
fn drop_local_part(part: &Path) {
    let Ok(part) = reach(part) else { return };
    if std::fs::symlink_metadata(&part).is_ok_and(|found| found.is_symlink()) {
        let _ = std::fs::remove_file(&part);
    }
}

/// Removes the parts of links `all` that an interrupted command has left. One list for each folder
/// tells which are there.
async fn drop_old_parts(to: &Endpoint, all: &[Link]) {
    let Endpoint::Remote(share, root) = to else { return };
    let mut parts: HashMap<String, HashSet<String>> = HashMap::new();
    for link in all {
        let part = path_in(root, &part_of(to, &link.name));
        let (folder, leaf) = frevo_client::path::split(&part);
        parts.entry(folder.to_owned()).or_default().insert(leaf.to_owned());
    }
    for (folder, mine) in parts {
        let Ok(listing) = share.read_dir(&folder).await else { continue };
        let mut listing = listing.matching("*.frevo-part").max_entries(PARTS_MAX);
        let mut left = Vec::new();
        while let Ok(Some(entry)) = listing.next_entry().await {
            if mine.contains(entry.file_name()) {
                left.push(join(&folder, entry.file_name()));
            }
        }
        for part in left {
            drop_part(share, &part).await;
        }
    }
}

/// Creates a link where nothing is.
async fn create(
    share: &Share,
    path: &str,
    target: &str,
    to_directory: bool,
) -> frevo_client::Result<()> {
    let made = if to_directory {
        share.symlink_dir(target, path).await
    } else {
        share.symlink_file(target, path).await
    };
    made.map_err(|error| match error.status() {
        Some(status) if NO_LINKS.contains(&status) => {
            let why = IoError::new(ErrorKind::Unsupported, "the server makes no symbolic links");
            Error::new(Cause::Local(Arc::new(why)), "make the link", share.url(path))
        }
        _ => error,
    })
}

/// A link that is made on a server, perhaps in the place of another file.
struct Replacement<'a> {
    path: String,
    /// The name under which it is made where it cannot be made in place.
    part: String,
    target: &'a str,
    to_directory: bool,
}

/// Makes a link. The file that is there stays until the link was made under another name: the
/// server or the user may not make any.
async fn make_remote(
    share: &Share,
    link: &Replacement<'_>,
    force: bool,
) -> frevo_client::Result<()> {
    let Replacement { path, part, target, to_directory } = link;
    let made = lost_answers::linked(|| create(share, path, target, *to_directory)).await;
    let refused = match made {
        Err(error) if error.status() == Some(Status::OBJECT_NAME_COLLISION) => error,
        made => return made,
    };
    let found = share.lookup(path).await?;
    if walk::kind(&found) == Kind::Directory {
        return Err(refused);
    }
    if found.is_symlink() {
        let there = share.read_link(path).await?;
        if there.relative && there.path == *target {
            return Ok(());
        }
    }
    if found.attributes().contains(FileAttributes::READONLY) && !force {
        let why = IoError::new(ErrorKind::PermissionDenied, "it is read-only; --force replaces it");
        return Err(Error::new(Cause::Local(Arc::new(why)), "replace", share.url(path)));
    }
    let is_directory = found.attributes().contains(FileAttributes::DIRECTORY);
    if found.is_symlink() && is_directory == *to_directory {
        // `retarget_symlink` is one request, so if the command is interrupted, either the old link
        // or the new one exists.
        match share.retarget_symlink(target, path, *to_directory).await {
            Err(error) if error.status().is_some() => {}
            done => return done,
        }
    }
    let as_target = |error: Error| error.told_as("make the link", share.url(path));
    create_part(share, part, target, *to_directory).await.map_err(as_target)?;
    let replaced = replace(share, link, &found).await;
    if replaced.is_err() {
        drop_part(share, part).await;
    }
    replaced.map_err(as_target)
}

/// Gives the part of a link the name of the file or link `found`.
async fn replace(
    share: &Share,
    link: &Replacement<'_>,
    found: &Metadata,
) -> frevo_client::Result<()> {
    let Replacement { path, part, to_directory, .. } = link;
    let is_read_only = found.attributes().contains(FileAttributes::READONLY);
    let renamed = lost_answers::named(share, [part, path], || async move {
        match is_read_only {
            true => share.rename_over_read_only(part, path).await,
            false => share.rename(part, path).await,
        }
    });
    let renamed = renamed.await;
    // MS-FSA 2.1.5.15.12: the rename cannot replace a directory, nor a link to a directory, so the
    // old entry is removed first.
    let has_directory = *to_directory || found.attributes().contains(FileAttributes::DIRECTORY);
    let refusals = [Status::ACCESS_DENIED, Status::OBJECT_NAME_COLLISION];
    match renamed {
        Err(error) if has_directory && error.status().is_some_and(|it| refusals.contains(&it)) => {
            // If the command is interrupted between the two requests, only the new link under its
            // temporary name (`part`) exists. The next sync removes it and makes the link again.
            remove_forced(share, path, found, true).await?;
            let rename = || share.rename_if_not_exists(part, path);
            lost_answers::named(share, [part, path], rename).await
        }
        renamed => renamed,
    }
}

/// Removes a link that did not get its name.
async fn drop_part(share: &Share, part: &str) {
    if let Ok(found) = share.lookup(part).await {
        let _ = remove_forced(share, part, &found, false).await;
    }
}

fn local_error(operation: &'static str, path: &Path) -> impl FnOnce(IoError) -> Error {
    let path = path.display().to_string();
    move |error| Error::new(Cause::Local(Arc::new(error)), operation, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_that_stay_in_the_tree_are_copied() {
        for (name, target) in [
            ("l", "file"),
            ("l", "./a/b"),
            ("a/l", "../file"),
            ("a/b/l", "../../x/y"),
            ("a/l", ".."),
            ("l", "..hidden"),
        ] {
            assert!(stays_inside(name, target, true), "{name} -> {target}");
        }
        for (name, target) in [
            ("l", ""),
            ("l", "/etc/passwd"),
            ("l", ".."),
            ("l", "../file"),
            ("a/l", "../../x"),
            ("a/l", "./../../x"),
            ("a/l", "b/../../../x"),
            ("a/b/l", "c/../x"),
            ("l", "a\nb"),
        ] {
            assert!(!stays_inside(name, target, false), "{name} -> {target}");
        }
    }

    #[test]
    fn what_a_server_takes_for_a_path_is_no_name() {
        for target in [
            "..\\..\\..\\secret",
            "\\Windows\\x",
            "\\\\evil\\share\\x",
            "C:/x",
            "a/b\\..\\..\\x",
            "a/b:c",
        ] {
            assert!(!stays_inside("a/b/l", target, true), "{target}");
            assert!(stays_inside("a/b/l", target, false), "{target}");
        }
    }
}
