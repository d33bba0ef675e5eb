//! `get`, `put`, `cp`, `cat`.

use std::io::Write;
use std::path::Path;

use frevo_client::{Cause, Error, Metadata, Share};
use futures_util::stream::StreamExt;
use serde_json::json;

use super::arguments::{Connection, Cp, Get, Put};
use super::lanes::Lanes;
use super::logon::{failed, innermost};
use super::output::{human, line};
use super::place::{Place, Url, join};
use super::progress::Progress;
use super::transfer::is_small;
use super::{transfer, walk};
use crate::exit::{Done, Exit, Failure};

/// Files that are under way at once.
const AT_ONCE: usize = 64;

pub(crate) async fn cat(connection: &Connection, urls: &[Url]) -> Done {
    for url in urls {
        let (share, url) = &connection.reach(url).await?;
        let file = share.open(&url.path).await.map_err(failed)?;
        let sink = |_: u64, piece: frevo_net::buffer::Buf| {
            std::future::ready(std::io::stdout().lock().write_all(&piece))
        };
        match file.fetch_all(sink).await {
            // Whoever reads has had enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            done => drop(done.map_err(failed)?),
        }
        file.close().await.map_err(failed)?;
    }
    Ok(())
}

pub(crate) async fn get(get: &Get) -> Done {
    let (share, url) = &get.connection.reach(&get.url).await?;
    fetch(share, url, get.to.as_deref(), get.recursive, &get.connection).await
}

pub(crate) async fn put(put: &Put) -> Done {
    let (share, url) = &put.connection.reach(&put.url).await?;
    send(share, &put.from, url, put.recursive, &put.connection).await
}

pub(crate) async fn cp(cp: &Cp) -> Done {
    match (&cp.from, &cp.to) {
        (Place::Remote(from), Place::Local(to)) => {
            let (share, from) = &cp.connection.reach(from).await?;
            fetch(share, from, Some(to), cp.recursive, &cp.connection).await
        }
        (Place::Local(from), Place::Remote(to)) => {
            let (share, to) = &cp.connection.reach(to).await?;
            send(share, from, to, cp.recursive, &cp.connection).await
        }
        (Place::Remote(from), Place::Remote(to)) => between(cp, from, to).await,
        (Place::Local(_), Place::Local(_)) => {
            Err(Failure::new(Exit::Usage, "neither end is a smb:// URL; use the system's cp"))
        }
    }
}

/// Says what was done, when that is wanted.
pub(crate) fn report(connection: &Connection, progress: &Progress) {
    progress.finish();
    let (files, bytes, seconds) = (progress.files(), progress.bytes(), progress.seconds());
    if connection.json {
        let by_server = progress.bytes_by_server();
        line(
            json!({ "files": files, "bytes": bytes, "seconds": seconds, "bytes_by_server": by_server }),
        );
    } else if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
        // The cast saturates.
        let rate = human((bytes as f64 / seconds.max(1e-6)) as u64);
        crate::tell(format_args!("{files} files, {} in {seconds:.1} s, {rate}/s", human(bytes)));
    }
}

fn is_directory(url: &Url) -> Failure {
    let text = format!("{url} is a directory; use -r to copy it with all in it");
    Failure::new(Exit::Usage, text)
}

async fn fetch(
    share: &Share,
    url: &Url,
    to: Option<&Path>,
    recursive: bool,
    connection: &Connection,
) -> Done {
    let metadata = share.metadata(&url.path).await.map_err(failed)?;
    let name = frevo_client::path::split(&url.path).1;
    let name = if name.is_empty() { &url.share } else { name };
    let target = transfer::local_target(to, name);
    if !metadata.is_dir() {
        let progress = Progress::new(Some(metadata.len()), connection.json);
        transfer::down(share, &url.path, &target, Some(&metadata), &progress)
            .await
            .map_err(failed)?;
        report(connection, &progress);
        return Ok(());
    }
    if !recursive {
        return Err(is_directory(url));
    }
    let progress = Progress::new(Some(0), connection.json);
    let lanes = Lanes::new(share, connection);
    let failures = fetch_tree(&lanes, share, &url.path, &target, &progress).await?;
    report(connection, &progress);
    failures.end()
}

/// A directory with all in it. Names come from the server: the library refuses
/// those that are not one component, so that none leads out of `to`.
async fn fetch_tree(
    lanes: &Lanes,
    share: &Share,
    path: &str,
    to: &Path,
    progress: &Progress,
) -> Result<Failures, Failure> {
    let mut failures = Failures::default();
    let mut files: Vec<(String, Metadata)> = Vec::new();
    let mut directories = vec![to.to_owned()];
    let see = |name: &str, metadata: &Metadata| {
        if metadata.is_dir() {
            directories.push(to.join(name));
        } else if metadata.is_file() {
            progress.expect(metadata.len());
            files.push((name.to_owned(), *metadata));
        }
    };
    walk::remote_but(share, path, see, |error| failures.note(error)).await.map_err(failed)?;
    for directory in directories {
        std::fs::create_dir_all(&directory)
            .map_err(Failure::failed(format!("cannot make {}", directory.display())))?;
    }
    let fetch = async |share: &Share, (name, metadata): &(String, Metadata)| {
        let target = to.join(name);
        transfer::down(share, &join(path, name), &target, Some(metadata), progress).await
    };
    let small = |(_, metadata): &(String, Metadata)| is_small(metadata.len());
    lanes.each(files.iter(), small, |(name, _)| folder(name), fetch, &mut failures).await?;
    Ok(failures)
}

/// The folder that `name` is in.
pub(crate) fn folder(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Runs them, many at once. What fails for itself alone does not keep the others from being
/// done; what would fail for all ends it.
pub(crate) async fn each(
    all: impl Iterator<Item = impl Future<Output = frevo_client::Result<()>>>,
    failures: &mut Failures,
) -> Done {
    let mut running = futures_util::stream::iter(all).buffer_unordered(AT_ONCE);
    while let Some(done) = running.next().await {
        if let Err(error) = done {
            failures.note(error).map_err(failed)?;
        }
    }
    Ok(())
}

/// What failed while the rest went on.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    first: Option<Failure>,
    count: u64,
}

impl Failures {
    /// One that failed.
    ///
    /// # Errors
    /// It again, when the others would fail too.
    pub(crate) fn note(&mut self, error: Error) -> frevo_client::Result<()> {
        if is_everyones(&error) {
            return Err(error);
        }
        self.count += 1;
        let failure = failed(error);
        match &self.first {
            None => self.first = Some(failure),
            Some(first) => {
                if self.count == 2 {
                    crate::tell(first);
                }
                crate::tell(failure);
            }
        }
        Ok(())
    }

    /// How it ended: with the code of the first, which is said if it is the only one.
    pub(crate) fn end(self) -> Done {
        match (self.first, self.count) {
            (None, _) => Ok(()),
            (Some(first), 1) => Err(first),
            (Some(first), count) => {
                Err(Failure::new(first.exit, format!("{count} of them failed, the rest is done")))
            }
        }
    }
}

/// Whether what went wrong would do so for every other file too.
fn is_everyones(error: &Error) -> bool {
    use std::io::ErrorKind;
    let error = innermost(error);
    match error.cause() {
        Cause::Transport(_) | Cause::Logon(_) | Cause::Security(_) => true,
        _ => matches!(
            error.kind(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::BrokenPipe
        ),
    }
}

async fn send(
    share: &Share,
    from: &Path,
    url: &Url,
    recursive: bool,
    connection: &Connection,
) -> Done {
    let shown = from.display();
    let metadata = std::fs::metadata(from).map_err(walk::local_failed(from))?;
    // `.` has a name too.
    let whole = if from.file_name().is_none() { from.canonicalize().ok() } else { None };
    let named = whole.as_deref().unwrap_or(from);
    let name = named.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
        Failure::new(Exit::Usage, format!("{shown} has no name that a share can hold"))
    })?;
    let into = url.path.is_empty()
        || share.metadata(&url.path).await.is_ok_and(|metadata| metadata.is_dir());
    let target = if into { url.below(name) } else { url.path.clone() };
    if metadata.is_dir() {
        if !recursive {
            let text = format!("{shown} is a directory; use -r to copy it with all in it");
            return Err(Failure::new(Exit::Usage, text));
        }
        let progress = Progress::new(Some(0), connection.json);
        let lanes = Lanes::new(share, connection);
        let failures = send_tree(&lanes, share, from, &target, &progress).await?;
        report(connection, &progress);
        return failures.end();
    }
    let progress = Progress::new(Some(metadata.len()), connection.json);
    transfer::up(share, from, &target, &progress).await.map_err(failed)?;
    report(connection, &progress);
    Ok(())
}

async fn send_tree(
    lanes: &Lanes,
    share: &Share,
    from: &Path,
    target: &str,
    progress: &Progress,
) -> Result<Failures, Failure> {
    let mut failures = Failures::default();
    let all = walk::local(from).map_err(walk::local_failed(from))?;
    share.create_dir_all(target).await.map_err(failed)?;
    let (directories, files): (Vec<_>, Vec<_>) = all.iter().partition(|file| file.is_dir);
    let directories = directories.iter().map(|file| &*file.name).collect();
    make_directories(share, target, directories, &mut failures).await?;
    files.iter().for_each(|file| progress.expect(file.len));
    let send = async |share: &Share, file: &walk::LocalFile| {
        transfer::up(share, &file.path, &join(target, &file.name), progress).await
    };
    let small = |file: &walk::LocalFile| is_small(file.len);
    lanes.each(files.into_iter(), small, |file| folder(&file.name), send, &mut failures).await?;
    Ok(failures)
}

/// Makes directories below `target`, which is there: those beside each other at once.
pub(crate) async fn make_directories(
    share: &Share,
    target: &str,
    mut names: Vec<&str>,
    failures: &mut Failures,
) -> Done {
    let depth = |name: &str| name.matches('/').count();
    names.sort_by_key(|name| depth(name));
    for level in names.chunk_by(|a, b| depth(a) == depth(b)) {
        let made =
            level.iter().map(|name| async move { share.create_dir_all(&join(target, name)).await });
        each(made, failures).await?;
    }
    Ok(())
}

async fn between(cp: &Cp, from: &Url, to: &Url) -> Done {
    let connection = &cp.connection;
    let ((source, from), (target, to)) = &connection.reach_both(from, to).await?;
    if from.server != to.server && !connection.json {
        let text = "these are two servers: what is copied goes through this machine";
        crate::tell(text);
    }
    let metadata = source.metadata(&from.path).await.map_err(failed)?;
    let name = frevo_client::path::split(&from.path).1;
    let into = to.path.is_empty()
        || target.metadata(&to.path).await.is_ok_and(|metadata| metadata.is_dir());
    let path = if into { to.below(name) } else { to.path.clone() };
    let copy = Url { path, ..to.clone() };
    let path = &copy.path;
    if copy.is_same_place(from) {
        return Err(Failure::new(Exit::Usage, format!("{from} would be copied onto itself")));
    }
    if !metadata.is_dir() {
        let progress = Progress::new(Some(metadata.len()), connection.json);
        transfer::across(source, &from.path, target, path, &progress).await.map_err(failed)?;
        report(connection, &progress);
        return Ok(());
    }
    if !cp.recursive {
        return Err(is_directory(from));
    }
    if copy.is_inside(from) {
        return Err(into_itself(from));
    }
    let progress = Progress::new(Some(0), connection.json);
    let mut failures = Failures::default();
    let mut files = Vec::new();
    let mut directories = Vec::new();
    let see = |name: &str, metadata: &Metadata| {
        if metadata.is_dir() {
            directories.push(name.to_owned());
        } else if metadata.is_file() {
            progress.expect(metadata.len());
            files.push(name.to_owned());
        }
    };
    walk::remote_but(source, &from.path, see, |error| failures.note(error))
        .await
        .map_err(failed)?;
    target.create_dir_all(path).await.map_err(failed)?;
    let directories = directories.iter().map(String::as_str).collect();
    make_directories(target, path, directories, &mut failures).await?;
    let shown = &progress;
    let copied = files.iter().map(|name| async move {
        transfer::across(source, &join(&from.path, name), target, &join(path, name), shown).await
    });
    each(copied, &mut failures).await?;
    report(connection, &progress);
    failures.end()
}

/// What would have no end, or change what it is made of.
pub(crate) fn into_itself(from: &Url) -> Failure {
    let text = format!("{from} would be copied into itself; copy it to another place");
    Failure::new(Exit::Usage, text)
}
