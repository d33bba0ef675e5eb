//! Symbolic links of copied trees, for `--links`. Only links are copied whose targets are relative and
//! stay in the tree: others would lead to another place on the machine of the copy.

use std::io::{Error as IoError, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frevo_client::{Cause, Error, Share, Status};
use frevo_mount::names::{Spelling, to_wire};

use super::endpoint::{Endpoint, local_in, local_name, path_in};
use super::failures::{Failures, each};
use super::remove::remove_forced;
use super::report::tell_skipped;
use super::transfer;
use super::walk::{self, Kind};
use crate::exit::Done;

/// The answers of servers, such as smbd, that make no links.
const NO_LINKS: [Status; 4] = [
    Status::NOT_A_REPARSE_POINT,
    Status::NOT_SUPPORTED,
    Status::NOT_IMPLEMENTED,
    Status::INVALID_DEVICE_REQUEST,
];

/// A link to copy.
#[derive(Debug)]
pub(crate) struct Link {
    /// The path below the source and below the target.
    pub(crate) name: String,
    /// True for a link to a directory: Windows tells the two kinds apart.
    pub(crate) to_directory: bool,
}

/// Copies links from one end to the other, many at the same time. Those that lead out of the tree are
/// told and skipped.
pub(crate) async fn copy_all(
    from: &Endpoint,
    to: &Endpoint,
    all: &[Link],
    failures: &mut Failures,
) -> Done {
    let unsafe_links = std::cell::RefCell::new(Vec::new());
    let copies = all.iter().map(async |link: &Link| {
        match read(from, &link.name).await?.filter(|target| stays_inside(&link.name, target)) {
            Some(target) => make(to, link, &target).await,
            None => {
                unsafe_links.borrow_mut().push(from.shown(&link.name));
                Ok(())
            }
        }
    });
    each(copies, failures).await?;
    tell_skipped("links that lead out of the copied directory", &unsafe_links.into_inner());
    Ok(())
}

/// True when the link `name` below the root of a tree leads by `target` to a place in the tree. `..`
/// is understood only at the beginning: behind a name it could be that of another link's target.
fn stays_inside(name: &str, target: &str) -> bool {
    let depth = name.matches('/').count();
    let mut parts = target.split('/').filter(|part| !matches!(*part, "" | ".")).peekable();
    let mut up = 0;
    while parts.next_if_eq(&"..").is_some() {
        up += 1;
    }
    let is_relative = !target.is_empty() && !target.starts_with('/');
    is_relative
        && up <= depth
        && parts.all(|part| part != ".." && !part.contains(|one: char| one.is_control()))
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
async fn make(to: &Endpoint, link: &Link, target: &str) -> frevo_client::Result<()> {
    match to {
        Endpoint::Local(root) => {
            let path = local_in(root, &link.name);
            make_local(&path, &local_name(target)).map_err(local_error("make the link", &path))
        }
        Endpoint::Remote(share, root) => {
            make_remote(share, &path_in(root, &link.name), target, link.to_directory).await
        }
    }
}

fn make_local(path: &Path, target: &Path) -> std::io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        Ok(found) if found.is_symlink() && std::fs::read_link(path)? == target => return Ok(()),
        _ => {}
    }
    let number = COUNT.fetch_add(1, Ordering::Relaxed).to_le_bytes();
    let id = std::process::id().to_le_bytes();
    let part = transfer::part_name("link", &[path.as_os_str().as_encoded_bytes(), &id, &number]);
    let part = path.with_file_name(format!(".{part}"));
    symlink(target, &part)?;
    std::fs::rename(&part, path).inspect_err(|_| drop(std::fs::remove_file(&part)))
}

async fn make_remote(
    share: &Share,
    path: &str,
    target: &str,
    to_directory: bool,
) -> frevo_client::Result<()> {
    let create = async || {
        let made = if to_directory {
            share.symlink_dir(target, path).await
        } else {
            share.symlink_file(target, path).await
        };
        made.map_err(|error| match error.status() {
            Some(status) if NO_LINKS.contains(&status) => {
                let why =
                    IoError::new(ErrorKind::Unsupported, "the server makes no symbolic links");
                Error::new(Cause::Local(Arc::new(why)), "make the link", share.url(path))
            }
            _ => error,
        })
    };
    match create().await {
        Err(error) if error.status() == Some(Status::OBJECT_NAME_COLLISION) => {
            let found = share.lookup(path).await?;
            if walk::kind(&found) == Kind::Directory {
                return Err(error);
            }
            if found.is_symlink() {
                let there = share.read_link(path).await?;
                if there.relative && there.path == target {
                    return Ok(());
                }
            }
            remove_forced(share, path, &found, true).await?;
            create().await
        }
        made => made,
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
            assert!(stays_inside(name, target), "{name} -> {target}");
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
            assert!(!stays_inside(name, target), "{name} -> {target}");
        }
    }
}
