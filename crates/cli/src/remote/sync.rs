//! `sync`: one directory made like another.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use frevo_client::{Cause, Error, Metadata, Share};
use frevo_net::buffer::Buf;
use serde_json::json;

use super::arguments::Sync;
use super::copy::{Failures, each, folder, into_itself, make_directories, report};
use super::fetch::local_name;
use super::kin::{self, Line};
use super::lanes::Lanes;
use super::logon::failed;
use super::output::line;
use super::place::{Place, join};
use super::transfer::{How, is_small};
use super::{names, transfer, walk};
use crate::exit::{Done, Exit, Failure};

/// Times that differ by less are the same: file systems keep them to different
/// fractions, FAT to two seconds.
const SAME_TIME: Duration = Duration::from_secs(2);

/// One end.
enum End {
    Local(PathBuf),
    Remote(Share, String),
}

/// A file or directory at one end.
#[derive(Debug, Clone, Copy)]
struct Entry {
    is_dir: bool,
    len: u64,
    modified: SystemTime,
    /// It may be the other end, or a directory that this is in.
    is_kin: bool,
}

impl End {
    /// The same end, a remote one over another connection.
    fn over(&self, share: &Share) -> Self {
        match self {
            Self::Local(root) => Self::Local(root.clone()),
            Self::Remote(_, path) => Self::Remote(share.clone(), path.clone()),
        }
    }

    /// All below it. What does not exist is empty, where that is allowed.
    async fn list(
        &self,
        may_be_missing: bool,
        other: &Line,
        mut failed_below: impl FnMut(Error) -> frevo_client::Result<()>,
    ) -> Result<BTreeMap<String, Entry>, Failure> {
        match self {
            Self::Local(root) if may_be_missing && !root.exists() => Ok(BTreeMap::new()),
            Self::Local(root) => {
                let all = walk::local(root, failed_below).map_err(failed)?;
                let entry = |file: walk::LocalFile| {
                    (
                        file.name,
                        Entry {
                            is_dir: file.is_dir,
                            len: file.len,
                            modified: file.modified,
                            is_kin: false,
                        },
                    )
                };
                Ok(all.into_iter().map(entry).collect())
            }
            Self::Remote(share, path) => {
                let mut found = BTreeMap::new();
                let see = |name: &str, metadata: &Metadata| {
                    if metadata.is_dir() || metadata.is_file() {
                        let entry = Entry {
                            is_dir: metadata.is_dir(),
                            len: if metadata.is_dir() { 0 } else { metadata.len() },
                            modified: metadata.modified(),
                            is_kin: other.may_have(metadata),
                        };
                        found.insert(name.to_owned(), entry);
                    }
                };
                match walk::remote_but(share, path, see, &mut failed_below).await {
                    Err(error) if may_be_missing && error.is_not_found() => Ok(BTreeMap::new()),
                    done => done.map_err(failed).map(|()| found),
                }
            }
        }
    }

    async fn make_directory(&self, name: &str) -> Done {
        match self {
            Self::Local(root) => std::fs::create_dir_all(root.join(local_name(name)))
                .map_err(Failure::failed(format!("cannot make {name}"))),
            Self::Remote(share, path) => {
                let path = if name.is_empty() { path.clone() } else { join(path, name) };
                if path.is_empty() {
                    return Ok(());
                }
                share.create_dir_all(&path).await.map_err(failed)
            }
        }
    }

    async fn remove(&self, name: &str, entry: &Entry) -> Done {
        match self {
            Self::Local(root) => {
                let path = root.join(local_name(name));
                let removed = if entry.is_dir {
                    std::fs::remove_dir_all(&path)
                } else {
                    std::fs::remove_file(&path)
                };
                removed.map_err(Failure::failed(format!("cannot remove {}", path.display())))
            }
            Self::Remote(share, path) => {
                let path = join(path, name);
                let mut was_lost = false;
                loop {
                    let removed = if entry.is_dir {
                        names::remove_all(share, &path).await
                    } else {
                        share.remove_file(&path).await
                    };
                    match removed {
                        // The answer was lost, and what is to go may be gone.
                        Err(error) if matches!(error.cause(), Cause::Unknown) => was_lost = true,
                        Err(error) if was_lost && error.is_not_found() => return Ok(()),
                        done => return done.map_err(failed),
                    }
                }
            }
        }
    }

    /// The SHA-256 of a file's content.
    async fn digest(&self, name: &str) -> frevo_client::Result<Vec<u8>> {
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

/// What is to be done.
#[derive(Debug, Default)]
struct Plan {
    directories: Vec<String>,
    files: Vec<(String, Entry)>,
    removals: Vec<(String, Entry)>,
}

fn same_time(a: SystemTime, b: SystemTime) -> bool {
    let apart = a.duration_since(b).or_else(|_| b.duration_since(a)).unwrap_or_default();
    apart < SAME_TIME
}

fn is_same(from: &Entry, to: &Entry) -> bool {
    from.len == to.len && same_time(from.modified, to.modified)
}

pub(crate) async fn sync(sync: &Sync) -> Done {
    let Ends { from, to, from_line, to_line } = ends(sync).await?;
    let mut failures = Failures::default();
    let source = from.list(false, &to_line, |error| failures.note(error)).await?;
    let target = to.list(true, &from_line, Err).await?;
    apart(sync, (&from, &from_line, &source), (&to, &to_line, &target)).await?;
    let mut plan = plan(sync, &from, &to, &source, &target).await?;
    if sync.delete && !failures.is_empty() {
        // What could not be listed is not gone.
        crate::tell("not all of the source can be read: nothing is deleted");
        plan.removals.clear();
    }
    if sync.dry_run {
        tell(sync, &plan);
        return failures.end();
    }
    to.make_directory("").await?;
    for (name, entry) in &plan.removals {
        to.remove(name, entry).await?;
    }
    match &to {
        End::Remote(share, path) => {
            let names = plan.directories.iter().map(String::as_str).collect();
            make_directories(share, path, names, &mut failures).await?;
        }
        End::Local(_) => {
            for name in &plan.directories {
                to.make_directory(name).await?;
            }
        }
    }
    let total = plan.files.iter().map(|(_, entry)| entry.len).sum();
    let how = How::new(Some(total), &sync.connection, &sync.copying).forced(true);
    let lanes = match (&from, &to) {
        (End::Local(_), End::Remote(share, _)) | (End::Remote(share, _), End::Local(_)) => {
            Some(Lanes::new(share, &sync.connection))
        }
        // Copies on the server have to be in one session.
        _ => None,
    };
    let (from, to, how) = (&from, &to, &how);
    match lanes {
        Some(lanes) => {
            let copy = async |share: &Share, (name, _): &(String, Entry)| {
                copy(&from.over(share), &to.over(share), name, how).await
            };
            let small = |(_, entry): &(String, Entry)| is_small(entry.len);
            let files = plan.files.iter();
            lanes.each(files, small, |(name, _)| folder(name), copy, &mut failures).await?;
        }
        None => {
            let copies =
                plan.files.iter().map(|(name, _)| async move { copy(from, to, name, how).await });
            each(copies, &mut failures).await?;
        }
    }
    report(&sync.connection, &how.progress, &failures);
    failures.end()
}

/// Both, and what they are in.
struct Ends {
    from: End,
    to: End,
    from_line: Line,
    to_line: Line,
}

async fn ends(sync: &Sync) -> Result<Ends, Failure> {
    let connection = &sync.connection;
    let (mut from_line, mut to_line) = (Line::default(), Line::default());
    let (from, to) = match (&sync.from, &sync.to) {
        (Place::Local(from), Place::Remote(to)) => {
            let (share, to) = connection.reach(to).await?;
            (End::Local(from.clone()), End::Remote(share, to.path))
        }
        (Place::Remote(from), Place::Local(to)) => {
            let (share, from) = connection.reach(from).await?;
            (End::Remote(share, from.path), End::Local(to.clone()))
        }
        (Place::Remote(from), Place::Remote(to)) => {
            let ((source, from), (target, to)) = connection.reach_both(from, to).await?;
            (from_line, to_line) = kin::lines((&source, &from.path), (&target, &to.path)).await;
            if to.is_inside(&from) || to_line.is_inside(&from_line) {
                return Err(into_itself(&from));
            }
            if sync.delete && (from.is_inside(&to) || from_line.is_inside(&to_line)) {
                let text = format!("--delete would remove {from}, which is below {to}");
                return Err(Failure::new(Exit::Usage, text));
            }
            (End::Remote(source, from.path), End::Remote(target, to.path))
        }
        (Place::Local(_), Place::Local(_)) => {
            let text = "neither end is a smb:// URL; use rsync";
            return Err(Failure::new(Exit::Usage, text));
        }
    };
    Ok(Ends { from, to, from_line, to_line })
}

/// An end as it was found: with what it is in, and what is in it.
type Listed<'a> = (&'a End, &'a Line, &'a BTreeMap<String, Entry>);

/// That neither is in the other, as it may be where they are in two shares.
async fn apart(sync: &Sync, from: Listed<'_>, to: Listed<'_>) -> Done {
    if let Some(found) = found_in(from, to.1).await {
        let text = format!("the copy would be in {found}, and so into itself");
        return Err(Failure::new(Exit::Usage, text));
    }
    if sync.delete
        && let Some(found) = found_in(to, from.1).await
    {
        let text = format!("--delete would remove what is copied: it is in {found}");
        return Err(Failure::new(Exit::Usage, text));
    }
    Ok(())
}

/// Where in it the end is that `line` is of.
async fn found_in((end, _, all): Listed<'_>, line: &Line) -> Option<String> {
    let End::Remote(share, path) = end else { return None };
    let names = all.iter().filter(|(_, entry)| entry.is_kin).map(|(name, _)| name);
    let found = line.found(share, path, names).await?;
    Some(share.url(&join(path, found)))
}

async fn plan(
    sync: &Sync,
    from: &End,
    to: &End,
    source: &BTreeMap<String, Entry>,
    target: &BTreeMap<String, Entry>,
) -> Result<Plan, Failure> {
    let mut plan = Plan::default();
    for (name, entry) in source {
        if name.ends_with(transfer::PART) {
            continue;
        }
        let there = target.get(name);
        if let Some(there) = there.filter(|there| there.is_dir != entry.is_dir) {
            if !sync.delete {
                let text = format!(
                    "{name} is a file on one side and a directory on the other; \
                                    --delete lets it be replaced"
                );
                return Err(Failure::new(Exit::Failed, text));
            }
            plan.removals.push((name.clone(), *there));
        }
        let there = there.filter(|there| there.is_dir == entry.is_dir);
        match (entry.is_dir, there) {
            (true, None) => plan.directories.push(name.clone()),
            (true, Some(_)) => {}
            (false, Some(there)) => {
                let same = if sync.checksum {
                    there.len == entry.len
                        && from.digest(name).await.map_err(failed)?
                            == to.digest(name).await.map_err(failed)?
                } else {
                    is_same(entry, there)
                };
                if !same {
                    plan.files.push((name.clone(), *entry));
                }
            }
            (false, None) => plan.files.push((name.clone(), *entry)),
        }
    }
    if sync.delete {
        let mut last: Option<&str> = None;
        for (name, entry) in target.iter().filter(|(name, _)| !source.contains_key(*name)) {
            // What is in a directory that goes, goes with it. A part that could
            // be gone on with stays.
            let with = last.is_some_and(|last| {
                name.strip_prefix(last).is_some_and(|rest| rest.starts_with('/'))
            });
            if with || name.ends_with(transfer::PART) {
                continue;
            }
            if entry.is_dir {
                last = Some(name);
            }
            plan.removals.push((name.clone(), *entry));
        }
    }
    Ok(plan)
}

fn tell(sync: &Sync, plan: &Plan) {
    let removals = plan.removals.iter().map(|(name, _)| ("remove", name));
    let directories = plan.directories.iter().map(|name| ("make", name));
    let files = plan.files.iter().map(|(name, _)| ("copy", name));
    for (what, name) in removals.chain(directories).chain(files) {
        let shown = if sync.connection.json {
            line(json!({ "action": what, "path": name }))
        } else {
            line(format_args!("{what:<7}{name}"))
        };
        if !shown {
            break;
        }
    }
}

async fn copy(from: &End, to: &End, name: &str, how: &How) -> frevo_client::Result<()> {
    match (from, to) {
        (End::Local(from), End::Remote(share, path)) => {
            transfer::up(share, &from.join(local_name(name)), &join(path, name), how).await
        }
        (End::Remote(share, path), End::Local(to)) => {
            let path = join(path, name);
            let metadata = share.metadata(&path).await?;
            transfer::down(share, &path, &to.join(local_name(name)), Some(&metadata), how).await
        }
        (End::Remote(source, from), End::Remote(target, to)) => {
            transfer::across(source, &join(from, name), target, &join(to, name), how).await
        }
        (End::Local(_), End::Local(_)) => Ok(()),
    }
}
