//! `rm`, and the removals of `sync`.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io::ErrorKind;

use frevo_client::{Cause, Error, FileAttributes, Metadata, Share, Status};

use super::arguments::Rm;
use super::failures::{Failures, each, each_with_failures};
use super::location::{Url, are_apart, join};
use super::logon::failed;
use super::lost_answers;
use super::progress::Count;
use super::report::planned;
use super::walk::{self, Kind};
use super::{dfs_links, spelling, wildcards};
use crate::exit::{Done, Exit, Failure};

/// How often a directory that should be empty, or gone, is tried: 1.3 s in all.
const EMPTYING: u32 = 7;

pub(crate) async fn rm(rm: &Rm) -> Done {
    let mut failures = Failures::default();
    let urls = expanded(rm).await?;
    if rm.dry_run || !are_apart(&urls) {
        for url in &urls {
            let done = rm_one(rm, url, &mut failures).await;
            failures.note_done(done)?;
        }
    } else {
        let all = urls.iter().map(async |url| {
            let mut failures = Failures::default();
            (rm_one(rm, url, &mut failures).await, failures)
        });
        each_with_failures(all, &mut failures).await?;
    }
    failures.end("removed")
}

/// The files that are named. With --force a pattern may match none.
async fn expanded(rm: &Rm) -> Result<Vec<Url>, Failure> {
    match wildcards::expand(&rm.connection, &rm.urls).await {
        Err(failure) if rm.force && failure.exit == Exit::NotFound => {
            let mut urls = Vec::new();
            for url in &rm.urls {
                match wildcards::expand(&rm.connection, std::slice::from_ref(url)).await {
                    Err(failure) if failure.exit == Exit::NotFound => {}
                    found => urls.extend(found?),
                }
            }
            Ok(urls)
        }
        found => found,
    }
}

async fn rm_one(rm: &Rm, url: &Url, failures: &mut Failures) -> Done {
    let Rm { connection, recursive, force, dry_run, .. } = rm;
    if url.path.is_empty() {
        let text =
            format!("{url} is a share; only files and directories in a share can be removed");
        return Err(Failure::new(Exit::Usage, text).of("remove", url));
    }
    let (share, found) = &connection.reach(url).await?;
    dfs_links::refuse(connection, url, found, "rm").await?;
    let url = found;
    let metadata = match share.metadata(&url.path).await {
        Err(error) if *force && error.is_not_found() => return Ok(()),
        metadata => metadata.map_err(failed)?,
    };
    if walk::kind(&metadata) == Kind::Directory {
        if !recursive {
            let text = format!("{url} is a directory; use -r to remove it with its content");
            return Err(Failure::new(Exit::Usage, text).of("remove", url));
        }
        if *dry_run {
            return tell_all(connection.json, share, url, failures).await;
        }
        return remove_all(share, &url.path, *force, failures).await;
    }
    if *dry_run {
        planned(connection.json, "remove", &spelling::shown(&url.path));
        return Ok(());
    }
    remove_forced(share, &url.path, &metadata, *force).await.map_err(failed)
}

/// Tells what would be removed.
async fn tell_all(json: bool, share: &Share, url: &Url, failures: &mut Failures) -> Done {
    let mut found = Vec::new();
    let mut guarded = HashSet::new();
    let see = |name: &str, _: &Metadata| found.push(name.to_owned());
    let unlisted = |error: Error| {
        if walk::leads_to_share(&error)
            && let Some(entry) = path_of(share, &error).and_then(|it| entry_above(&url.path, &it))
        {
            guarded.insert(entry);
        }
        failures.note(error)
    };
    let _kept = walk::remote_but(share, &url.path, see, unlisted).await.map_err(failed)?;
    found.retain(|name| !name.split('/').next().is_some_and(|entry| guarded.contains(entry)));
    found.sort_unstable();
    let itself = guarded.is_empty().then(|| url.path.clone());
    let all = found.iter().rev().map(|name| join(&url.path, name)).chain(itself);
    for path in all {
        if !planned(json, "remove", &spelling::shown(&path)) {
            break;
        }
    }
    Ok(())
}

/// Removes a file; also what is read-only, if that is wanted.
pub(crate) async fn remove_forced(
    share: &Share,
    path: &str,
    metadata: &Metadata,
    force: bool,
) -> frevo_client::Result<()> {
    match remove_one(share, path, metadata).await {
        Err(error) if force && is_read_only(&error) => {
            if metadata.attributes().contains(FileAttributes::DIRECTORY) {
                let remove = || share.remove_dir_anyway(path);
                return lost_answers::removed(share, path, Some(metadata), remove).await;
            }
            let remove = || share.remove_file_anyway(path);
            lost_answers::removed(share, path, Some(metadata), remove).await
        }
        removed => removed,
    }
}

/// True when a removal may have failed because of the attribute READONLY: MS-FSA 2.1.5.15.3.
fn is_read_only(error: &Error) -> bool {
    error.status() == Some(Status::CANNOT_DELETE)
}

/// Removes an empty directory; also a read-only one, if that is wanted.
async fn remove_dir_forced(share: &Share, path: &str, force: bool) -> frevo_client::Result<()> {
    match remove_bare(share, path).await {
        Err(error) if force && is_read_only(&error) => {
            lost_answers::removed(share, path, None, || share.remove_dir_anyway(path)).await
        }
        removed => removed,
    }
}

/// Removes a directory and all in it: files first, many at once, then the
/// directories, the deepest first. What cannot be removed keeps its directories, and
/// nothing else.
pub(crate) async fn remove_all(
    share: &Share,
    path: &str,
    force: bool,
    failures: &mut Failures,
) -> Done {
    let before = failures.count();
    let mut files = Vec::new();
    let mut directories = vec![path.to_owned()];
    let mut junction = None;
    // `stay` collects the paths of entries that cannot be removed.
    let stay = RefCell::new(Vec::new());
    // `guarded` collects the entries of this directory below which the walk found the root of the
    // share. Files below such an entry may be outside of the share, so they are not removed.
    let mut guarded = HashSet::new();
    let see = |name: &str, metadata: &Metadata| {
        let path = join(path, name);
        if metadata.is_junction() {
            junction = Some(path.clone());
        }
        if walk::kind(metadata) == Kind::Directory {
            directories.push(path);
        } else {
            files.push((path, *metadata));
        }
    };
    let unlisted = |error: Error| {
        let found = path_of(share, &error);
        if walk::leads_to_share(&error)
            && let Some(found) = &found
        {
            guarded.extend(entry_above(path, found));
        }
        stay.borrow_mut().extend(found);
        failures.note(error)
    };
    let _kept = walk::remote_but(share, path, see, unlisted).await.map_err(failed)?;
    files.retain(|(file, _)| !entry_above(path, file).is_some_and(|one| guarded.contains(&one)));
    stay.borrow_mut().extend(guarded.iter().map(|name| join(path, name)));
    directories.retain(|one| !entry_above(path, one).is_some_and(|one| guarded.contains(&one)));
    if let Some(path) = junction {
        // The DFS link's target is outside of the tree and may belong to other users, so nothing is
        // removed.
        let why = "it is a DFS link to another share, which rm leaves alone; nothing was removed";
        return Err(failed(Error::new(Cause::Usage(why), "remove", share.url(&path))));
    }
    let (count, all) = (RefCell::new((0, Count::new("removed"))), files.len());
    let removals = files.iter().map(|(path, metadata)| async {
        let removed = remove_forced(share, path, metadata, force).await;
        if removed.is_err() {
            stay.borrow_mut().push(path.clone());
        }
        let (done, shown) = &mut *count.borrow_mut();
        *done += 1;
        shown.show(*done, Some(all));
        removed
    });
    each(removals, failures).await?;
    drop_occupied(&mut directories, &stay.into_inner());
    let depth = |path: &str| path.matches('/').count();
    directories.sort_by_key(|path| std::cmp::Reverse(depth(path)));
    for level in directories.chunk_by(|a, b| depth(a) == depth(b)) {
        each(level.iter().map(|path| remove_emptied(share, path, force)), failures).await?;
    }
    if failures.count() > before {
        return Ok(());
    }
    see_gone(share, path).await.map_err(failed)
}

/// The entry of the directory `root` that `path` is below; None if it is an entry itself.
fn entry_above(root: &str, path: &str) -> Option<String> {
    let below = path.strip_prefix(root)?.trim_start_matches('/');
    below.split_once('/').map(|(entry, _)| entry.to_owned())
}

/// The path in the share of the file that an error is about.
fn path_of(share: &Share, error: &Error) -> Option<String> {
    let path = error.path().strip_prefix(&share.url(""))?;
    Some(path.trim_start_matches('/').to_owned())
}

/// Drops the directories that contain one of the files that `stay`, and those files themselves.
fn drop_occupied(directories: &mut Vec<String>, stay: &[String]) {
    let above = |path| {
        std::iter::successors(Some(path), |path: &&str| {
            path.rsplit_once('/').map(|(above, _)| above)
        })
    };
    let occupied: HashSet<&str> = stay.iter().flat_map(|path| above(path.as_str())).collect();
    directories.retain(|path| !occupied.contains(path.as_str()));
}

/// Removes a directory whose files were removed. Some servers (ksmbd, Windows with
/// a scanner) take a moment longer for those than their answers say, and others may have put
/// something there meanwhile: what is in it goes too.
async fn remove_emptied(share: &Share, path: &str, force: bool) -> frevo_client::Result<()> {
    let mut pause = std::time::Duration::from_millis(10);
    for _ in 0..EMPTYING {
        match remove_dir_forced(share, path, force).await {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
            done => return done,
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
        remove_found(share, path).await?;
    }
    remove_dir_forced(share, path, force).await
}

/// Removes what is listed in a directory that should be empty, directories without what
/// may be in them. What is on its way out stays so.
async fn remove_found(share: &Share, path: &str) -> frevo_client::Result<()> {
    for entry in share.list_dir(path).await? {
        if entry.metadata().is_junction() {
            continue;
        }
        let path = join(path, entry.file_name());
        match remove_one(share, &path, entry.metadata()).await {
            Err(error) if error.is_not_found() || is_going(&error) => {}
            done => done?,
        }
    }
    Ok(())
}

/// True when the removal is pending, or the directory has content again.
fn is_going(error: &Error) -> bool {
    let going = error.status() == Some(Status::DELETE_PENDING);
    going || error.kind() == ErrorKind::DirectoryNotEmpty
}

/// Waits until a removed tree is gone: a directory that another client has open goes when it
/// closes it.
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
        let remove = || share.remove_dir(path);
        return lost_answers::removed(share, path, Some(metadata), remove).await;
    }
    lost_answers::removed(share, path, Some(metadata), || share.remove_file(path)).await
}

/// Removes an empty directory.
pub(crate) async fn remove_bare(share: &Share, path: &str) -> frevo_client::Result<()> {
    lost_answers::removed(share, path, None, || share.remove_dir(path)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_the_removed_directory_are_guarded() {
        let of = |path| entry_above("a/t", path);
        assert_eq!(of("a/t/x/y/z").as_deref(), Some("x"));
        assert_eq!((of("a/t/x"), of("a/t"), of("b")), (None, None, None));
    }

    #[test]
    fn what_stays_keeps_its_directories_and_no_others() {
        let mut all = ["t", "t/a", "t/a/b", "t/ab", "t/c"].map(String::from).to_vec();
        drop_occupied(&mut all, &[String::from("t/a/b/file")]);
        assert_eq!(all, ["t/ab", "t/c"]);
        drop_occupied(&mut all, &[String::from("t/c")]);
        assert_eq!(all, ["t/ab"]);
    }
}
