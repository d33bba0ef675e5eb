//! Operations on names: mkdir, rename, links.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use frevo_client::internal::Special;
use frevo_client::{Error, FileAttributes, Metadata, Share, Status};
use fuser::Errno;

use super::{EntryReply, Volume, once};
use crate::errno::{Outcome, errno, errno_of_new};
use crate::names::from_wire;
use crate::node::Node;

/// The bits of a mode that a client may set.
pub(super) const MODE_BITS: u32 = 0o7777;

/// The prefix of hidden names. A file has such a name between its removal and its last close, on
/// servers that cannot remove open files.
pub(super) const HIDDEN: &str = ".frevo-removed-";

/// A name in a directory, in wire spelling.
#[derive(Clone, Copy)]
pub(super) struct NameAt<'a> {
    pub(super) parent: &'a Arc<Node>,
    pub(super) name: &'a str,
}

/// The paths of a rename in the share.
#[derive(Clone, Copy)]
struct Paths<'a> {
    source: &'a str,
    target: &'a str,
}

/// Returns true for a hidden name.
pub(super) fn is_hidden(name: &str) -> bool {
    name.strip_prefix(HIDDEN)
        .is_some_and(|rest| rest.len() == 32 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns true if the server does not support the request.
pub(super) fn is_unknown_to_server(error: &Error) -> bool {
    matches!(
        error.status(),
        Some(
            Status::NOT_SUPPORTED
                | Status::INVALID_INFO_CLASS
                | Status::NOT_IMPLEMENTED
                | Status::INVALID_DEVICE_REQUEST
                | Status::INVALID_PARAMETER
                | Status::INVALID_LEVEL
        )
    )
}

impl Volume {
    /// Returns the share for changes of names in `directory`, which do not break this mount's lease
    /// on it.
    pub(super) fn share_in(&self, directory: &Node) -> Share {
        self.share.in_directory(directory.directory.lease().as_deref())
    }

    /// Returns the share for changes of a node's times and DOS attributes by its name, as
    /// [`Self::share_in`].
    pub(super) fn share_of(&self, node: &Node) -> Share {
        node.name().map_or_else(|| self.share.clone(), |(parent, _)| self.share_in(&parent))
    }

    /// Fails with EROFS on a read-only mount.
    pub(super) fn check_writable(&self) -> Outcome<()> {
        if self.settings.read_only { Err(Errno::EROFS) } else { Ok(()) }
    }

    pub(crate) async fn mkdir(&self, parent: u64, name: &OsStr, mode: u32) -> Outcome<EntryReply> {
        self.check_writable()?;
        let (parent, name) = (self.nodes.find(parent)?, self.wire(name)?);
        let path = parent.below(&name)?;
        let share = self.share_in(&parent);
        let asked = Instant::now();
        let make = || share.make_dir(&path, mode & MODE_BITS);
        let made = once(make, |found| found == Errno::EEXIST).await;
        let made = made.map_err(|error| errno_of_new(&error, &path))?;
        self.made(NameAt { parent: &parent, name: &name }, made, asked).await
    }

    /// Returns the reply for a name that this mount has made. Without the metadata that the answer to
    /// the request of `asked` told, the server is asked for it.
    async fn made(
        &self,
        made: NameAt<'_>,
        told: Option<Metadata>,
        asked: Instant,
    ) -> Outcome<EntryReply> {
        let NameAt { parent, name } = made;
        self.changed(parent, name);
        let (metadata, asked) = match told {
            Some(told) => (told, asked),
            None => {
                let asked = Instant::now();
                (self.look_at(&parent.below(name)?).await.map_err(|error| errno(&error))?, asked)
            }
        };
        let metadata = metadata.with_links(metadata.links().max(1));
        let node = self.nodes.found(parent, name, metadata, asked);
        Ok(self.reply(&node, &metadata))
    }

    /// Records that `name` in `parent` was removed.
    pub(super) fn removed(&self, parent: &Arc<Node>, name: &str) {
        // The change is counted before the name is removed. So an answer that the server sent
        // before the change is not used for later look-ups.
        self.changed(parent, name);
        self.nodes.removed(parent.id, name);
    }

    /// Closes idle files known as `name` in `parent`, and below it: they would block the operation.
    pub(super) async fn let_go_at(&self, parent: &Node, name: &str, path: &str) {
        let known = self.nodes.seen_as(parent.id, name);
        if known.iter().any(|node| node.is_dir()) {
            return self.let_go_below(path).await;
        }
        for node in known {
            // The file is open, or is just being opened or closed. Both block the next request, so
            // this function waits until the file is closed.
            if node.is_open() || node.opening.try_lock().is_err() {
                self.let_go_before_next(&node).await;
            }
        }
    }

    /// Closes idle files at `path` and below. Visits every node.
    pub(super) async fn let_go_below(&self, path: &str) {
        for node in self.nodes.all() {
            let is_below = || {
                let found = node.path().ok()?;
                let rest = found.strip_prefix(path)?.chars().next();
                Some(rest.is_none_or(|next| next == '/'))
            };
            // The node is in use, or its file is just being opened or closed. That could block the
            // next request, so this function waits until the file is closed.
            let is_busy =
                node.is_open() || node.directory.is_held() || node.opening.try_lock().is_err();
            if is_busy && is_below() == Some(true) {
                self.let_go_before_next(&node).await;
            }
        }
    }

    /// Returns the open node that is known as `name` in `parent`.
    pub(super) fn open_at(&self, parent: &Node, name: &str) -> Option<Arc<Node>> {
        self.open_nodes().into_iter().find(|node| node.has_name(parent.id, name))
    }

    pub(crate) async fn rename(
        &self,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        flags: u32,
    ) -> Outcome<()> {
        self.check_writable()?;
        if flags & !libc::RENAME_NOREPLACE != 0 {
            // SMB can neither exchange two names nor make whiteouts, so these flags are refused.
            return Err(Errno::EINVAL);
        }
        let replace = flags & libc::RENAME_NOREPLACE == 0;
        let (old_parent, old) = (self.nodes.find(from.0)?, self.wire(from.1)?);
        let (new_parent, new) = (self.nodes.find(to.0)?, self.wire(to.1)?);
        let (source, target) = (old_parent.below(&old)?, new_parent.below(&new)?);
        self.let_go_at(&old_parent, &old, &source).await;
        self.let_go_at(&new_parent, &new, &target).await;
        let share = self.share_in(&old_parent);
        let (from, to) = (
            NameAt { parent: &old_parent, name: &old },
            NameAt { parent: &new_parent, name: &new },
        );
        let paths = Paths { source: &source, target: &target };
        self.rename_path(&share, paths, to, replace).await?;
        self.renamed(from, to);
        Ok(())
    }

    async fn rename_path(
        &self,
        share: &Share,
        Paths { source, target }: Paths<'_>,
        to: NameAt<'_>,
        replace: bool,
    ) -> Outcome<()> {
        let NameAt { parent: new_parent, name: new } = to;
        let is_gone = |found| found == Errno::ENOENT;
        if replace && !self.plain.load(Ordering::Relaxed) {
            match once(|| share.rename_over(source, target), is_gone).await {
                Err(error) if is_unknown_to_server(&error) => {
                    self.plain.store(true, Ordering::Relaxed);
                }
                Err(error) if is_in_the_way(&error) => {
                    return self.replace_target(source, target, &error).await;
                }
                other => return other.map_err(|error| errno(&error)),
            }
        }
        // Windows does not replace an open file, so the open target is first renamed to a hidden
        // name.
        if replace && let Some(node) = self.open_at(new_parent, new) {
            self.hide(new_parent, new, &node).await?;
            self.removed(new_parent, new);
        }
        let rename = async || match replace {
            true => share.rename(source, target).await,
            false => share.rename_if_not_exists(source, target).await,
        };
        match once(rename, is_gone).await {
            Err(error) if replace && is_in_the_way(&error) => {
                self.replace_target(source, target, &error).await
            }
            other => other.map_err(|error| self.refused_rename(source, &error)),
        }
    }

    /// Replaces what POSIX allows to replace and SMB does not: an empty directory by another one,
    /// and a read-only file.
    async fn replace_target(&self, source: &str, target: &str, why: &Error) -> Outcome<()> {
        let source_is = self.share.lookup(source).await.map_err(|error| errno(&error))?;
        let target_is = match self.share.lookup(target).await {
            // The target does not exist, so it was the source that the server refused to move.
            Err(error) if error.is_not_found() => return Err(self.refused_rename(source, why)),
            found => found.map_err(|error| errno(&error))?,
        };
        match (source_is.is_dir(), target_is.is_dir()) {
            (true, true) => {}
            (false, true) => return Err(Errno::EISDIR),
            (true, false) => return Err(Errno::ENOTDIR),
            (false, false) if target_is.attributes().contains(FileAttributes::READONLY) => {
                let rename = || self.share.rename_over_read_only(source, target);
                return once(rename, |found| found == Errno::ENOENT)
                    .await
                    .map_err(|error| errno(&error));
            }
            (false, false) => return Err(errno(why)),
        }
        self.remove_dir(&self.share, target).await.map_err(|error| errno(&error))?;
        let is_gone = |found| found == Errno::ENOENT;
        let rename = || self.share.rename_if_not_exists(source, target);
        let renamed = once(rename, is_gone).await;
        renamed.map_err(|error| self.refused_rename(source, &error))
    }

    /// Returns the errno for a rename that the server refused. MS-FSA 2.1.5.15.12: a directory
    /// cannot be moved while a file below it is open, which POSIX calls EBUSY.
    fn refused_rename(&self, source: &str, why: &Error) -> Errno {
        let is_below = |node: &Arc<Node>| {
            let path = node.path().unwrap_or_default();
            path.strip_prefix(source).is_some_and(|rest| rest.starts_with('/'))
        };
        let is_refused = why.status() == Some(Status::ACCESS_DENIED);
        if is_refused && self.open_nodes().iter().any(is_below) {
            return Errno::EBUSY;
        }
        errno(why)
    }

    fn renamed(&self, from: NameAt<'_>, to: NameAt<'_>) {
        self.changed(to.parent, to.name);
        self.changed(from.parent, from.name);
        self.nodes.renamed((from.parent.id, from.name), (to.parent, to.name));
    }

    pub(crate) async fn link(&self, id: u64, parent: u64, name: &OsStr) -> Outcome<EntryReply> {
        self.check_writable()?;
        let (node, parent) = (self.nodes.find(id)?, self.nodes.find(parent)?);
        let name = self.wire(name)?;
        let (from, to) = (node.path()?, parent.below(&name)?);
        // An Open's lease key covers one directory, here that of `from`, so it is used only if the
        // link is made in the same directory.
        let is_here = node.name().is_some_and(|(at, _)| at.id == parent.id);
        let share = if is_here { self.share_in(&parent) } else { self.share.clone() };
        node.invalidate();
        let asked = Instant::now();
        let link = || share.make_link(&from, &to);
        let linked = once(link, |found| found == Errno::EEXIST).await;
        let linked = linked.map_err(|error| errno(&error))?;
        // The name may lead to another file by now, or through a DFS link, so the found metadata
        // counts only with the same file number.
        let linked = linked.filter(|found| found.file_id() == node.id);
        self.made(NameAt { parent: &parent, name: &name }, linked, asked).await
    }

    pub(crate) async fn symlink(
        &self,
        parent: u64,
        name: &OsStr,
        target: &Path,
    ) -> Outcome<EntryReply> {
        self.check_writable()?;
        let (parent, name) = (self.nodes.find(parent)?, self.wire(name)?);
        let path = parent.below(&name)?;
        let target = target.to_str().ok_or(Errno::EINVAL)?;
        // Windows distinguishes links to directories from links to files, so the kind of the target
        // is looked up.
        let to_directory = match self.known_as_directory(&parent, target) {
            Some(known) => known,
            None => self.leads_to_directory(&parent, target).await,
        };
        let share = self.share_in(&parent);
        let asked = Instant::now();
        let make = || share.make_symlink(target, &path, to_directory);
        let made = once(make, |found| found == Errno::EEXIST).await;
        let told = made.map_err(|error| reparse_errno(&error))?;
        self.made(NameAt { parent: &parent, name: &name }, told, asked).await
    }

    /// Returns whether the target of a link in `parent` is a directory, if this mount knows that.
    fn known_as_directory(&self, parent: &Arc<Node>, target: &str) -> Option<bool> {
        if target.starts_with('/') {
            return Some(false);
        }
        let mut at = Arc::clone(parent);
        for part in target.split('/') {
            at = match part {
                "" | "." => at,
                ".." => at.name()?.0,
                part => {
                    let name = self.wire(OsStr::new(part)).ok()?;
                    self.nodes.seen_as(at.id, &name).pop()?
                }
            };
        }
        Some(at.is_dir())
    }

    async fn leads_to_directory(&self, parent: &Node, target: &str) -> bool {
        let Ok(mut path) = parent.path() else { return false };
        for part in target.split('/') {
            match part {
                "" | "." => {}
                ".." => path = frevo_client::path::split(&path).0.to_owned(),
                part => {
                    let slash = if path.is_empty() { "" } else { "/" };
                    path = format!("{path}{slash}{part}");
                }
            }
        }
        self.share.metadata(&path).await.is_ok_and(|found| found.is_dir())
    }

    /// Makes a FIFO, a socket or a device, if the server supports them.
    pub(crate) async fn mknod(
        &self,
        parent: u64,
        name: &OsStr,
        mode: u32,
        device: u32,
    ) -> Outcome<EntryReply> {
        self.check_writable()?;
        let (parent, name) = (self.nodes.find(parent)?, self.wire(name)?);
        let (major, minor) = (libc::major(device.into()), libc::minor(device.into()));
        let special = match mode & libc::S_IFMT {
            libc::S_IFIFO => Special::Fifo,
            libc::S_IFSOCK => Special::Socket,
            libc::S_IFCHR => Special::CharDevice(major, minor),
            libc::S_IFBLK => Special::BlockDevice(major, minor),
            _ => return Err(Errno::EINVAL),
        };
        if !self.share.is_posix() {
            return Err(Errno::EPERM);
        }
        let path = parent.below(&name)?;
        let made = self.share.make_special(&path, special, mode & MODE_BITS).await;
        made.map_err(|error| reparse_errno(&error))?;
        self.made(NameAt { parent: &parent, name: &name }, None, Instant::now()).await
    }

    pub(crate) async fn readlink(&self, id: u64) -> Outcome<PathBuf> {
        let node = self.nodes.find(id)?;
        let target = self.share.read_link(&node.path()?).await.map_err(|error| errno(&error))?;
        let spelled = |part: &str| from_wire(part, self.spelling());
        Ok(PathBuf::from(target.path.split('/').map(spelled).collect::<Vec<_>>().join("/")))
    }
}

/// Returns true for statuses by which servers report a directory or a read-only file at the target
/// of a rename.
fn is_in_the_way(error: &Error) -> bool {
    matches!(
        error.status(),
        Some(
            Status::ACCESS_DENIED
                | Status::OBJECT_NAME_COLLISION
                | Status::FILE_IS_A_DIRECTORY
                | Status::NOT_A_DIRECTORY
                | Status::CANNOT_DELETE
        )
    )
}

/// Returns the errno for a link or a special file that was not made. smbd without links answers
/// NOT_A_REPARSE_POINT.
fn reparse_errno(error: &Error) -> Errno {
    match error.status() {
        Some(Status::NOT_A_REPARSE_POINT) => Errno::EOPNOTSUPP,
        _ => errno(error),
    }
}
