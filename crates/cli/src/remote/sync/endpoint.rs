//! The source or the target of `sync`.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use frevo_client::{Basic, Cause, Error, Metadata, Share};
use frevo_net::buffer::Buf;
use frevo_wire::dtyp::FileAttributes;

use super::super::copy::Failures;
use super::super::fetch::local_name;
use super::super::location::join;
use super::super::logon::failed;
use super::super::overlap::Line;
use super::super::remove::{remove_all, remove_bare, remove_forced};
use super::super::walk::{self, Kind};
use super::plan::{Entry, Listed};
use crate::exit::{Done, Failure};

/// The treatment of an entry that was found.
pub(super) enum Look {
    /// It is listed as this kind.
    As(Kind),
    /// It is not listed.
    Away,
}

/// True when `path` certainly does not exist.
fn is_absent(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// The source or the target directory.
pub(super) enum Endpoint {
    Local(PathBuf),
    Remote(Share, String),
}

impl Endpoint {
    /// This end, if it is remote over another connection.
    pub(super) fn over(&self, share: &Share) -> Self {
        match self {
            Self::Local(root) => Self::Local(root.clone()),
            Self::Remote(_, path) => Self::Remote(share.clone(), path.clone()),
        }
    }

    pub(super) const fn is_remote(&self) -> bool {
        matches!(self, Self::Remote(..))
    }

    /// Lists the directory with all its content, as far as `looks` says. A missing directory is
    /// empty if `may_be_missing` is set.
    pub(super) async fn list(
        &self,
        may_be_missing: bool,
        other: &Line,
        looks: impl Fn(&str, Kind, SystemTime) -> Look,
        mut failed_below: impl FnMut(Error) -> frevo_client::Result<()>,
    ) -> Result<Listed, Failure> {
        let mut found = BTreeMap::new();
        let mut see = |name: &str, entry: Entry| {
            let kind = match looks(name, entry.kind, entry.modified) {
                Look::As(kind) => kind,
                Look::Away => return false,
            };
            found.insert(name.to_owned(), Entry { kind, ..entry });
            kind == Kind::Directory
        };
        match self {
            Self::Local(root) if may_be_missing && is_absent(root) => {}
            Self::Local(root) => {
                let pass = |file: &walk::LocalFile| {
                    let read_only = FileAttributes::READONLY;
                    let attributes = if file.is_read_only { read_only } else { FileAttributes(0) };
                    let (len, modified) = (file.len, file.modified);
                    let entry = Entry { kind: file.kind, len, modified, attributes, is_kin: false };
                    see(&file.name, entry)
                };
                walk::local(root, pass, failed_below).map_err(failed)?;
            }
            Self::Remote(share, path) => {
                let see = |name: &str, metadata: &Metadata| {
                    let kind = walk::kind(metadata);
                    let entry = Entry {
                        kind,
                        len: if kind == Kind::File { metadata.len() } else { 0 },
                        modified: metadata.modified(),
                        attributes: metadata.attributes(),
                        is_kin: other.may_have(metadata),
                    };
                    see(name, entry)
                };
                match walk::remote_into(share, path, see, &mut failed_below).await {
                    Err(error) if may_be_missing && error.is_not_found() => {}
                    done => done.map_err(failed)?,
                }
            }
        }
        Ok(found)
    }

    /// Creates the directory and its parents, unless they exist.
    pub(super) async fn make(&self) -> Done {
        match self {
            Self::Local(root) => std::fs::create_dir_all(root)
                .map_err(Failure::failed(format!("cannot create {}", root.display()))),
            Self::Remote(_, path) if path.is_empty() => Ok(()),
            Self::Remote(share, path) => share.create_dir_all(path).await.map_err(failed),
        }
    }

    /// Removes `name`: a directory with its content, or only an empty one if `bare` is set.
    pub(super) async fn remove(
        &self,
        name: &str,
        entry: &Entry,
        bare: bool,
        failures: &mut Failures,
    ) -> Done {
        let is_dir = entry.kind == Kind::Directory;
        match self {
            Self::Local(root) => {
                let path = root.join(local_name(name));
                let removed = match (is_dir, bare) {
                    (true, false) => std::fs::remove_dir_all(&path),
                    (true, true) => std::fs::remove_dir(&path),
                    (false, _) => std::fs::remove_file(&path),
                };
                match removed {
                    Err(error) if bare && error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
                    done => {
                        done.map_err(Failure::failed(format!("cannot remove {}", path.display())))
                    }
                }
            }
            Self::Remote(share, path) => {
                let path = join(path, name);
                if is_dir && !bare {
                    return remove_all(share, &path, true, failures).await;
                }
                let removed = if is_dir {
                    remove_bare(share, &path).await
                } else {
                    let kind = Metadata::default().with_attributes(entry.attributes);
                    remove_forced(share, &path, &kind, true).await
                };
                match removed {
                    Err(error) if bare && error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
                    done => done.map_err(failed),
                }
            }
        }
    }

    /// Sets the attributes of a file whose content is equal.
    pub(super) async fn dress(
        &self,
        name: &str,
        attributes: FileAttributes,
    ) -> frevo_client::Result<()> {
        match self {
            Self::Local(root) => {
                let path = root.join(local_name(name));
                let set = || {
                    let mut permissions = std::fs::metadata(&path)?.permissions();
                    let read_only = attributes.contains(FileAttributes::READONLY);
                    let mode = permissions.mode();
                    permissions.set_mode(if read_only { mode & !0o222 } else { mode | 0o200 });
                    std::fs::set_permissions(&path, permissions)
                };
                set().map_err(|error: std::io::Error| {
                    let cause = Cause::Local(std::sync::Arc::new(error));
                    Error::new(cause, "set the mode of", path.display().to_string())
                })
            }
            Self::Remote(share, path) => {
                let basic = Basic { attributes: Some(attributes), ..Basic::default() };
                share.set_all(&join(path, name), &basic).await
            }
        }
    }

    /// The SHA-256 of a file's content.
    pub(super) async fn digest(&self, name: &str) -> frevo_client::Result<Vec<u8>> {
        use sha2::{Digest, Sha256};
        let mut digest = Sha256::new();
        match self {
            Self::Local(root) => {
                let path = root.join(local_name(name));
                let read = |path: &Path| -> std::io::Result<()> {
                    let mut file = std::fs::File::open(path)?;
                    let mut piece = vec![0; 1 << 20];
                    loop {
                        let count = std::io::Read::read(&mut file, &mut piece)?;
                        if count == 0 {
                            return Ok(());
                        }
                        digest.update(piece.get(..count).unwrap_or_default());
                    }
                };
                let mut read = read;
                read(&path).map_err(|error| {
                    let cause = Cause::Local(std::sync::Arc::new(error));
                    Error::new(cause, "read", path.display().to_string())
                })?;
            }
            Self::Remote(share, path) => {
                let file = share.open(&join(path, name)).await?;
                let sink = |_: u64, piece: Buf| {
                    digest.update(&*piece);
                    std::future::ready(Ok(()))
                };
                file.fetch_all(sink).await?;
                file.close().await?;
            }
        }
        Ok(digest.finalize().to_vec())
    }
}
