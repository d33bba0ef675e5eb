//! The source or the target of `sync`.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use frevo_client::internal::ListingCharge;
use frevo_client::{Cause, Error, FileAttributes, Metadata, SetMetadata, Share};
use frevo_net::buffer::Buf;

use sha2::{Digest, Sha256};

use super::failures::Failures;
use super::local_names::{is_absent, local_in};
use super::location::join;
use super::logon::failed;
use super::long_path::reach;
use super::remove::{remove_all, remove_bare, remove_forced};
use super::spelling;
use super::target::create_local;
use super::transfer;
use super::walk::{self, Kind};
use crate::exit::{Done, Exit, Failure};

/// Bytes of a local file that are read at once.
const PIECE: usize = 1 << 20;

/// The treatment of an entry that was found.
pub(crate) enum Treatment {
    /// It is listed as this kind.
    As(Kind),
    /// It is not listed.
    Ignored,
}

/// For [`Result::map_err`]: the error of an operation on the local `path`.
fn local_error(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.display().to_string();
    move |error| Error::new(Cause::Local(std::sync::Arc::new(error)), operation, path)
}

/// True for a link to a directory.
fn leads_to_directory(path: &Path) -> bool {
    reach(path).is_ok_and(|path| path.is_dir())
}

/// The source or the target directory.
#[derive(Clone)]
pub(crate) enum Endpoint {
    /// A path of this machine.
    Local(PathBuf),
    /// A path of a share, with `/`.
    Remote(Share, String),
}

/// A file or directory of a listing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    /// Length in bytes, 0 for a directory.
    pub(crate) len: u64,
    pub(crate) modified: SystemTime,
    /// The latest of the time of the last change and that of creation, as far as they are known.
    pub(crate) changed: SystemTime,
    pub(crate) attributes: FileAttributes,
    /// The number of a file on a server; 0 if it is not known.
    pub(crate) file_id: u64,
    /// True when it may be the other end, or a directory above it.
    pub(crate) is_kin: bool,
    /// True for a symbolic link.
    pub(crate) is_link: bool,
    /// True for a directory, or a link to one.
    pub(crate) to_directory: bool,
    /// True for a link of a DFS namespace, below which another share begins.
    pub(crate) is_dfs_link: bool,
}

/// The entries of a directory by their paths below it, as the wire spells them.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) entries: BTreeMap<String, Entry>,
    /// The room that they take of the budget of listings.
    pub(crate) kept: ListingCharge,
}

impl Deref for Listed {
    type Target = BTreeMap<String, Entry>;

    fn deref(&self) -> &Self::Target {
        &self.entries
    }
}

impl<'a> IntoIterator for &'a Listed {
    type Item = (&'a String, &'a Entry);
    type IntoIter = std::collections::btree_map::Iter<'a, String, Entry>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.iter()
    }
}

/// The path `name` below `root`, or `root` itself for an empty name.
pub(crate) fn path_in(root: &str, name: &str) -> String {
    if name.is_empty() { root.to_owned() } else { join(root, name) }
}

/// True for a path of the wire with a control character, which no name may have (MS-FSCC 2.1.5.2).
/// On this machine it could move the cursor of a terminal, or end a line of a script's list.
pub(crate) fn has_control(path: &str) -> bool {
    path.contains(|one: char| one.is_control())
}

/// The error of a file whose name has a control character.
pub(crate) fn illegal_name(share: &Share, path: &str) -> Error {
    let why = "its name has a control character, which SMB forbids, and was skipped; rename it on \
               the server";
    let why = std::io::Error::new(ErrorKind::InvalidData, why);
    Error::new(Cause::Local(std::sync::Arc::new(why)), "copy", share.url(path))
}

impl Entry {
    pub(crate) fn of_remote(metadata: &Metadata, is_kin: bool) -> Self {
        let kind = walk::kind(metadata);
        Self {
            kind,
            len: if kind == Kind::Directory { 0 } else { metadata.len() },
            modified: metadata.modified(),
            changed: metadata.changed().max(metadata.created()),
            attributes: metadata.attributes(),
            file_id: metadata.file_id(),
            is_kin,
            is_link: metadata.is_symlink(),
            to_directory: metadata.attributes().contains(FileAttributes::DIRECTORY),
            is_dfs_link: metadata.is_junction(),
        }
    }
}

impl Endpoint {
    /// The file or directory itself.
    ///
    /// # Errors
    /// It does not exist, or cannot be read.
    pub(crate) async fn look(&self) -> Result<Entry, Failure> {
        match self {
            Self::Local(path) => {
                let found = reach(path).and_then(std::fs::metadata);
                let found = found.map_err(walk::local_failed(path))?;
                let modified = found.modified().map_err(walk::local_failed(path))?;
                let kind = if found.is_dir() { Kind::Directory } else { Kind::File };
                let (len, attributes) = (found.len(), FileAttributes::EMPTY);
                let to_directory = found.is_dir();
                Ok(Entry {
                    kind,
                    len,
                    modified,
                    changed: walk::changed(&found),
                    attributes,
                    file_id: 0,
                    is_kin: false,
                    is_link: false,
                    to_directory,
                    is_dfs_link: false,
                })
            }
            Self::Remote(share, path) if has_control(path) => {
                Err(failed(illegal_name(share, path)))
            }
            Self::Remote(share, path) => {
                let found = share.metadata(path).await.map_err(failed)?;
                Ok(Entry::of_remote(&found, false))
            }
        }
    }

    /// The path of `name`, for people: on a server without the share.
    pub(crate) fn shown(&self, name: &str) -> String {
        match self {
            Self::Local(root) => local_in(root, name).display().to_string(),
            Self::Remote(_, root) => spelling::shown(&path_in(root, name)),
        }
    }

    /// The path of `name`, for people: on a server with the share's URL.
    pub(crate) fn url(&self, name: &str) -> String {
        match self {
            Self::Local(_) => self.shown(name),
            Self::Remote(share, root) => spelling::in_text(&share.url(&path_in(root, name))),
        }
    }

    /// The target of one file: a local link is followed, as by cp. True for a device or pipe.
    pub(crate) fn resolved(&self) -> (Self, bool) {
        let Self::Local(path) = self else { return (self.clone(), false) };
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return (self.clone(), true);
        }
        let path = path.canonicalize().unwrap_or_else(|_| path.clone());
        (Self::Local(path), false)
    }

    /// Fails when a file is in the place of the target directory.
    pub(crate) async fn check_directory(&self) -> Done {
        let is_file = match self {
            Self::Local(path) => std::fs::metadata(path).is_ok_and(|found| !found.is_dir()),
            Self::Remote(_, path) if path.is_empty() => false,
            Self::Remote(share, path) => {
                share.metadata(path).await.is_ok_and(|found| !found.is_dir())
            }
        };
        if !is_file {
            return Ok(());
        }
        let target = self.url("");
        let text = format!("{target} is a file; a directory cannot be copied to it");
        Err(Failure::new(Exit::Failed, text).of("copy", target))
    }

    pub(crate) const fn is_remote(&self) -> bool {
        matches!(self, Self::Remote(..))
    }

    /// Lists the directory with all its content, as far as `looks` says. A missing directory is
    /// empty if `may_be_missing` is set.
    pub(crate) async fn list(
        &self,
        may_be_missing: bool,
        is_kin: impl Fn(&Metadata) -> bool,
        looks: impl Fn(&str, Kind, SystemTime) -> Treatment,
        mut failed_below: impl FnMut(Error) -> frevo_client::Result<()>,
    ) -> Result<Listed, Failure> {
        let (mut found, mut kept) = (BTreeMap::new(), ListingCharge::default());
        let mut see = |name: &str, entry: Entry| {
            let kind = match looks(name, entry.kind, entry.modified) {
                Treatment::As(kind) => kind,
                Treatment::Ignored => return false,
            };
            found.insert(name.to_owned(), Entry { kind, ..entry });
            kind == Kind::Directory
        };
        match self {
            Self::Local(root) if may_be_missing && is_absent(root) => {}
            Self::Local(root) => {
                let pass = |file: &walk::LocalFile| {
                    let read_only = FileAttributes::READONLY;
                    let attributes =
                        if file.is_read_only { read_only } else { FileAttributes::from_bits(0) };
                    let (len, modified) = (file.len, file.modified);
                    let &walk::LocalFile { kind, is_link, .. } = file;
                    let to_directory =
                        kind == Kind::Directory || is_link && leads_to_directory(&file.path);
                    let entry = Entry {
                        kind,
                        len,
                        modified,
                        changed: file.changed,
                        attributes,
                        file_id: 0,
                        is_kin: false,
                        is_link,
                        to_directory,
                        is_dfs_link: false,
                    };
                    see(&file.name, entry)
                };
                walk::local(root, pass, failed_below).map_err(failed)?;
            }
            Self::Remote(share, path) => {
                let mut illegal = Vec::new();
                let see = |name: &str, metadata: &Metadata| {
                    if has_control(name) {
                        illegal.push(join(path, name));
                        return false;
                    }
                    see(name, Entry::of_remote(metadata, is_kin(metadata)))
                };
                match walk::remote_into(share, path, see, &mut failed_below).await {
                    Err(error) if may_be_missing && error.is_not_found() => {}
                    done => kept = done.map_err(failed)?,
                }
                // A source file whose name is illegal here cannot be compared. So it is reported as
                // a failure, and the target's file of that name stays.
                for path in illegal.iter().filter(|_| !may_be_missing) {
                    failed_below(illegal_name(share, path)).map_err(failed)?;
                }
            }
        }
        Ok(Listed { entries: found, kept })
    }

    /// Creates the directory and its parents, unless they exist.
    pub(crate) async fn create(&self) -> Done {
        match self {
            Self::Local(root) => create_local(root),
            Self::Remote(_, path) if path.is_empty() => Ok(()),
            Self::Remote(share, path) => share.create_dir_all(path).await.map_err(failed),
        }
    }

    /// Removes the file or link `name`.
    pub(crate) async fn remove_file(&self, name: &str, entry: &Entry) -> frevo_client::Result<()> {
        match self {
            Self::Local(root) => {
                let path = local_in(root, name);
                reach(&path).and_then(std::fs::remove_file).map_err(local_error("remove", &path))
            }
            Self::Remote(share, path) => {
                let kind = Metadata::default().with_attributes(entry.attributes);
                remove_forced(share, &path_in(path, name), &kind, true).await
            }
        }
    }

    /// Removes the directory `name` if it is empty.
    pub(crate) async fn remove_if_empty(&self, name: &str) -> frevo_client::Result<()> {
        let removed = match self {
            Self::Local(root) => {
                let path = local_in(root, name);
                reach(&path).and_then(std::fs::remove_dir).map_err(local_error("remove", &path))
            }
            Self::Remote(share, path) => remove_bare(share, &path_in(path, name)).await,
        };
        match removed {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
            done => done,
        }
    }

    /// Removes the directory `name` with its content.
    pub(crate) async fn remove_tree(&self, name: &str, failures: &mut Failures) -> Done {
        match self {
            Self::Local(root) => {
                let path = local_in(root, name);
                reach(&path)
                    .and_then(std::fs::remove_dir_all)
                    .map_err(Failure::failed(format!("cannot remove {}", path.display())))
            }
            Self::Remote(share, path) => {
                remove_all(share, &path_in(path, name), true, failures).await
            }
        }
    }

    /// Sets the attributes of a file whose content is equal.
    pub(crate) async fn set_attributes(
        &self,
        name: &str,
        attributes: FileAttributes,
    ) -> frevo_client::Result<()> {
        match self {
            Self::Local(root) => {
                let path = local_in(root, name);
                let set = || {
                    let path = reach(&path)?;
                    let mut permissions = std::fs::metadata(&path)?.permissions();
                    let read_only = attributes.contains(FileAttributes::READONLY);
                    let mode = permissions.mode();
                    permissions.set_mode(if read_only { mode & !0o222 } else { mode | 0o200 });
                    std::fs::set_permissions(&path, permissions)
                };
                set().map_err(local_error("set the mode of", &path))
            }
            Self::Remote(share, path) => {
                let basic = SetMetadata::new().attributes(attributes);
                share.set_metadata(&join(path, name), &basic).await
            }
        }
    }

    /// The SHA-256 of a file's content, read over the session `over` if one is given. A small file
    /// of a server, by its length `len` in the listing, takes one round trip.
    pub(crate) async fn digest(
        &self,
        over: Option<&Share>,
        name: &str,
        len: u64,
    ) -> frevo_client::Result<Vec<u8>> {
        match self {
            Self::Local(root) => {
                let path = local_in(root, name);
                let of_file = path.clone();
                let read = move || local_digest(&of_file);
                // Reading a large file takes long, so another thread does it, and not the one that
                // handles answers.
                let read = if transfer::is_small(len) {
                    read()
                } else {
                    let read = tokio::task::spawn_blocking(read).await;
                    read.unwrap_or_else(|_| Err(ErrorKind::Interrupted.into()))
                };
                read.map_err(local_error("read", &path))
            }
            Self::Remote(share, path) => {
                remote_digest(over.unwrap_or(share), &path_in(path, name), len).await
            }
        }
    }
}

/// The SHA-256 of a local file.
fn local_digest(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = std::fs::File::open(reach(path)?)?;
    let (mut digest, mut piece) = (Sha256::new(), vec![0; PIECE]);
    loop {
        match std::io::Read::read(&mut file, &mut piece) {
            Ok(0) => return Ok(digest.finalize().to_vec()),
            Ok(count) => digest.update(piece.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The SHA-256 of a file on a server.
async fn remote_digest(share: &Share, path: &str, len: u64) -> frevo_client::Result<Vec<u8>> {
    if transfer::is_small(len)
        && let Some((data, _)) = share.read_small(path).await?
    {
        return Ok(Sha256::digest(&data).to_vec());
    }
    let mut digest = Sha256::new();
    let file = share.open(path).await?;
    let sink = |_: u64, piece: Buf| {
        digest.update(&*piece);
        std::future::ready(Ok(()))
    };
    file.fetch_all(sink).await?;
    file.close().await?;
    Ok(digest.finalize().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_seen_and_their_stand_ins_are_names() {
        for name in ["a\u{1b}[2J", "dir\n/x", "\u{7f}", "c1\u{9b}"] {
            assert!(has_control(name), "{name:?}");
        }
        assert!(!has_control("a\u{f01b}é /b"));
    }
}
