//! `mv`, `rm`, `mkdir`.

use std::io::ErrorKind;

use frevo_client::{Cause, Error, Metadata, Share};
use frevo_wire::Status;
use frevo_wire::dtyp::FileAttributes;
use futures_util::stream::{StreamExt, TryStreamExt};

use super::arguments::Connection;
use super::copy::Failures;
use super::logon::failed;
use super::place::Url;
use super::walk;
use crate::exit::{Done, Exit, Failure};

/// Requests that are under way at once.
const AT_ONCE: usize = 64;
/// How often a directory that should be empty, or gone, is tried: 1.3 s in all.
const EMPTYING: u32 = 7;

pub(crate) async fn mv(connection: &Connection, from: &[Url], to: &Url, replace: bool) -> Done {
    let mut failures = Failures::default();
    for one in from {
        let done = mv_one(connection, one, to, replace, from.len() > 1).await;
        failures.note_done(done)?;
    }
    failures.end()
}

async fn mv_one(
    connection: &Connection,
    from: &Url,
    to: &Url,
    replace: bool,
    several: bool,
) -> Done {
    if !from.is_in_share_of(to) {
        let text = "mv works within one share; use cp, then rm";
        return Err(Failure::new(Exit::Usage, text));
    }
    let (share, from) = &connection.reach(from).await?;
    let (_, to) = &connection.reach(to).await?;
    if !from.is_in_share_of(to) {
        let text = format!(
            "{from} and {to} are different shares, to which a DFS namespace leads; use cp, then rm"
        );
        return Err(Failure::new(Exit::Usage, text));
    }
    // A directory takes what is moved under its own name.
    let into = share.metadata(&to.path).await.is_ok_and(|metadata| metadata.is_dir());
    if !into && !to.path.is_empty() && (several || to.ends_in_slash) {
        let text = format!("{to} is no directory that something could be moved into");
        return Err(Failure::new(Exit::Usage, text));
    }
    let target = if into || to.path.is_empty() {
        to.below(frevo_client::path::split(&from.path).1)
    } else {
        to.path.clone()
    };
    share.rename(&from.path, &target, replace).await.map_err(failed)
}

pub(crate) async fn mkdir(connection: &Connection, urls: &[Url], parents: bool) -> Done {
    let mut failures = Failures::default();
    for url in urls {
        let (share, url) = &connection.reach(url).await?;
        let made = if parents {
            share.create_dir_all(&url.path).await
        } else {
            share.create_dir(&url.path).await
        };
        failures.note_done(made.map_err(failed))?;
    }
    failures.end()
}

pub(crate) async fn rm(
    connection: &Connection,
    urls: &[Url],
    recursive: bool,
    force: bool,
) -> Done {
    let mut failures = Failures::default();
    for url in urls {
        failures.note_done(rm_one(connection, url, recursive, force).await)?;
    }
    failures.end()
}

async fn rm_one(connection: &Connection, url: &Url, recursive: bool, force: bool) -> Done {
    if url.path.is_empty() {
        let text = format!("{url} is a share, which is not removed");
        return Err(Failure::new(Exit::Usage, text));
    }
    let (share, url) = &connection.reach(url).await?;
    let metadata = match share.metadata(&url.path).await {
        Err(error) if force && error.is_not_found() => return Ok(()),
        metadata => metadata.map_err(failed)?,
    };
    let removed = match (metadata.is_dir(), recursive) {
        (true, true) => remove_all(share, &url.path).await,
        (true, false) => {
            let text = format!("{url} is a directory; use -r to remove it and all in it");
            return Err(Failure::new(Exit::Usage, text));
        }
        (false, _) => match remove_one(share, &url.path, &metadata).await {
            Err(error) if force && is_kept_read_only(&error, &metadata) => {
                make_writable(share, &url.path, &metadata).await.map_err(failed)?;
                remove_one(share, &url.path, &metadata).await
            }
            removed => removed,
        },
    };
    removed.map_err(failed)
}

/// Whether its attribute alone may be what keeps it: MS-FSA 2.1.5.15.3.
fn is_kept_read_only(error: &Error, metadata: &Metadata) -> bool {
    error.status() == Some(Status::CANNOT_DELETE)
        && metadata.attributes().contains(FileAttributes::READONLY)
}

/// Takes the read-only attribute from a file.
async fn make_writable(share: &Share, path: &str, metadata: &Metadata) -> frevo_client::Result<()> {
    let rest = FileAttributes(metadata.attributes().0 & !FileAttributes::READONLY.0);
    // MS-FSCC 2.6: none at all would leave them as they are.
    let rest = if rest.0 == 0 { FileAttributes::NORMAL } else { rest };
    share.set_basic(path, None, None, Some(rest)).await
}

/// Removes a directory and all in it: files first, many at once, then the
/// directories, the deepest first.
pub(crate) async fn remove_all(share: &Share, path: &str) -> frevo_client::Result<()> {
    let mut files = Vec::new();
    let mut directories = vec![(0, path.to_owned())];
    let mut junction = None;
    walk::remote(share, path, |name, metadata| {
        let path = super::place::join(path, name);
        if metadata.is_junction() {
            junction = Some(path.clone());
        }
        if metadata.is_dir() {
            directories.push((name.split('/').count(), path));
        } else {
            files.push((path, *metadata));
        }
    })
    .await?;
    if let Some(path) = junction {
        // What it leads to is not meant, and perhaps others'.
        let why = "it is a link of a DFS namespace; nothing was removed";
        return Err(Error::new(Cause::Usage(why), "remove", share.url(&path)));
    }
    let removals = files.iter().map(|(path, metadata)| remove_one(share, path, metadata));
    futures_util::stream::iter(removals).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    directories.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
    for level in directories.chunk_by(|(a, _), (b, _)| a == b) {
        let removals = level.iter().map(|(_, path)| remove_emptied(share, path));
        futures_util::stream::iter(removals)
            .buffer_unordered(AT_ONCE)
            .try_collect::<Vec<()>>()
            .await?;
    }
    see_gone(share, path).await
}

/// Removes a directory whose files were removed. Some servers (ksmbd, Windows with
/// a scanner) take a moment longer for those than their answers say, and others may have put
/// something there meanwhile: what is in it goes too.
async fn remove_emptied(share: &Share, path: &str) -> frevo_client::Result<()> {
    let mut pause = std::time::Duration::from_millis(10);
    for _ in 0..EMPTYING {
        match share.remove_dir(path).await {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
            done => return done,
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
        remove_found(share, path).await?;
    }
    share.remove_dir(path).await
}

/// Removes what is listed in a directory that should be empty, directories without what
/// may be in them. What is on its way out stays so.
async fn remove_found(share: &Share, path: &str) -> frevo_client::Result<()> {
    for entry in share.read_dir(path).await? {
        if entry.metadata().is_junction() {
            continue;
        }
        let path = super::place::join(path, entry.name());
        match remove_one(share, &path, entry.metadata()).await {
            Err(error) if error.is_not_found() || is_going(&error) => {}
            done => done?,
        }
    }
    Ok(())
}

/// Whether another word to the server is of no use now.
fn is_going(error: &Error) -> bool {
    let going = error.status() == Some(Status::DELETE_PENDING);
    going || error.kind() == ErrorKind::DirectoryNotEmpty
}

/// Makes sure that a tree whose removal was answered with success is gone: one that
/// somebody else had open at that moment goes when he closes it.
async fn see_gone(share: &Share, path: &str) -> frevo_client::Result<()> {
    let mut pause = std::time::Duration::from_millis(10);
    for _ in 0..EMPTYING {
        match share.metadata(path).await {
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) if !is_going(&error) => return Err(error),
            _ => {}
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    Err(Error::new(Status::DELETE_PENDING, "remove", share.url(path)))
}

/// Removes a file, or a link to a directory, which is one itself on the wire.
async fn remove_one(share: &Share, path: &str, metadata: &Metadata) -> frevo_client::Result<()> {
    if metadata.attributes().contains(FileAttributes::DIRECTORY) {
        share.remove_dir(path).await
    } else {
        share.remove_file(path).await
    }
}
