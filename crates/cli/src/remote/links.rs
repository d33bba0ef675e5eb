//! Symbolic links of copied trees, for `--links`. Only links are copied whose targets are relative and
//! stay in the tree: others would lead to another place on the machine of the copy.

use std::collections::HashSet;
use std::io::{Error as IoError, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frevo_client::{Cause, Error, FileAttributes, Metadata, Share, Status};
use frevo_mount::names::{Spelling, to_wire};

use super::endpoint::{Endpoint, Entry, local_in, local_name, path_in};
use super::failures::{Failures, each};
use super::location::{folder, join};
use super::logon::failed;
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
    let part = match to {
        Endpoint::Local(root) => {
            let part = beside(&link.name, &format!(".{}", unique_part(&link.name)));
            let path = local_in(root, &part);
            symlink(local_name(&target), &path).map_err(local_error("make the link", &path))?;
            part
        }
        Endpoint::Remote(share, root) => {
            let part = beside(&link.name, &unique_part(&link.name));
            create(share, &path_in(root, &part), &target, link.to_directory).await?;
            part
        }
    };
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
    Ok(())
}

/// The name `name` in the directory of `beside_it`.
fn beside(beside_it: &str, name: &str) -> String {
    match folder(beside_it) {
        "" => name.to_owned(),
        folder => join(folder, name),
    }
}

/// The name of a part that no other link of this command, and hardly one of another, has.
fn unique_part(name: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed).to_le_bytes();
    let id = std::process::id().to_le_bytes();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_nanos()).to_le_bytes();
    transfer::part_name("link", &[name.as_bytes(), &id, &number, &now])
}

/// Gives a link that was made as `part` its name, which is free now.
async fn put_in_place(to: &Endpoint, link: &Link, part: &str) -> frevo_client::Result<()> {
    match to {
        Endpoint::Local(root) => {
            let (part, path) = (local_in(root, part), local_in(root, &link.name));
            let renamed = std::fs::rename(&part, &path);
            let renamed = renamed.inspect_err(|_| drop(std::fs::remove_file(&part)));
            renamed.map_err(local_error("make the link", &path))
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
            let target = std::fs::read_link(&path).map_err(local_error("read the link", &path))?;
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
            let path = local_in(root, &link.name);
            make_local(&path, &local_name(target)).map_err(local_error("make the link", &path))
        }
        Endpoint::Remote(share, root) => {
            let path = path_in(root, &link.name);
            make_remote(share, &path, target, link.to_directory, force).await
        }
    }
}

fn make_local(path: &Path, target: &Path) -> std::io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        Ok(found) if found.is_symlink() && std::fs::read_link(path)? == target => return Ok(()),
        _ => {}
    }
    let part: PathBuf = path.with_file_name(format!(".{}", unique_part(&path.to_string_lossy())));
    symlink(target, &part)?;
    std::fs::rename(&part, path).inspect_err(|_| drop(std::fs::remove_file(&part)))
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

/// Makes a link. The file that is there stays until the link was made under another name: the
/// server or the user may not make any.
async fn make_remote(
    share: &Share,
    path: &str,
    target: &str,
    to_directory: bool,
    force: bool,
) -> frevo_client::Result<()> {
    let refused = match create(share, path, target, to_directory).await {
        Err(error) if error.status() == Some(Status::OBJECT_NAME_COLLISION) => error,
        made => return made,
    };
    let found = share.lookup(path).await?;
    if walk::kind(&found) == Kind::Directory {
        return Err(refused);
    }
    if found.is_symlink() {
        let there = share.read_link(path).await?;
        if there.relative && there.path == target {
            return Ok(());
        }
    }
    if found.attributes().contains(FileAttributes::READONLY) && !force {
        let why = IoError::new(ErrorKind::PermissionDenied, "it is read-only; --force replaces it");
        return Err(Error::new(Cause::Local(Arc::new(why)), "replace", share.url(path)));
    }
    let part = beside(path, &unique_part(path));
    let as_target = |error: Error| error.told_as("make the link", share.url(path));
    create(share, &part, target, to_directory).await.map_err(as_target)?;
    let replaced = replace(share, &part, path, &found, to_directory).await;
    if replaced.is_err() {
        drop_part(share, &part).await;
    }
    replaced.map_err(as_target)
}

/// Gives the link `part` the name of the file or link `found`.
async fn replace(
    share: &Share,
    part: &str,
    path: &str,
    found: &Metadata,
    to_directory: bool,
) -> frevo_client::Result<()> {
    let renamed = if found.attributes().contains(FileAttributes::READONLY) {
        share.rename_over_read_only(part, path).await
    } else {
        share.rename(part, path).await
    };
    // MS-FSA 2.1.5.15.12: no directory is replaced, and a link to one is one itself on the wire.
    let has_directory = to_directory || found.attributes().contains(FileAttributes::DIRECTORY);
    let refusals = [Status::ACCESS_DENIED, Status::OBJECT_NAME_COLLISION];
    match renamed {
        Err(error) if has_directory && error.status().is_some_and(|it| refusals.contains(&it)) => {
            remove_forced(share, path, found, true).await?;
            share.rename_if_not_exists(part, path).await
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
