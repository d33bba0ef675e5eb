//! `cp`, `cat`, and the common parts of all copies.

use std::cell::Cell;
use std::io::Write;
use std::time::Duration;

use frevo_client::{Cause, Error, Metadata, Share};
use futures_util::stream::StreamExt;
use indicatif::BinaryBytes;
use serde_json::json;

use super::arguments::{Connection, Cp};
use super::bandwidth::Limit;
use super::fetch::fetch;
use super::filter::Filter;
use super::location::{Location, Url, join};
use super::logon::{failed, innermost};
use super::name_collisions::{Case, TakenNames};
use super::output::line;
use super::progress::Progress;
use super::send::{is_into, progress_of, send};
use super::transfer::CopyOptions;
use super::walk::Kind;
use super::{overlap, transfer, walk};
use crate::exit::{Done, Exit, Failure};
use crate::plural::counted;

/// The options that decide which files of directories are copied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tree<'a> {
    pub(crate) recursive: bool,
    /// The actions are only shown.
    pub(crate) dry_run: bool,
    pub(crate) filter: &'a Filter,
}

/// Files that are copied at the same time.
const AT_ONCE: usize = 64;

/// Time for the pending files to clean up when the disk is full.
const LAST: Duration = Duration::from_secs(5);

/// Writes files to standard output, no more than `bwlimit` bytes a second.
pub(crate) async fn cat(connection: &Connection, urls: &[Url], bwlimit: Option<u64>) -> Done {
    let mut failures = Failures::default();
    let limit = bwlimit.map(Limit::new);
    for url in urls {
        match cat_one(connection, url, limit.as_ref()).await {
            Ok(true) => {}
            // Whoever reads has had enough.
            Ok(false) => return Ok(()),
            Err(failure) => failures.note_done(Err(failure))?,
        }
    }
    failures.end("printed")
}

/// False when the reader of the output is gone.
async fn cat_one(
    connection: &Connection,
    url: &Url,
    limit: Option<&Limit>,
) -> Result<bool, Failure> {
    let (share, url) = &connection.reach(url).await?;
    let file = share.open(&url.path).await.map_err(failed)?;
    let sink = |_: u64, piece: frevo_net::buffer::Buf| {
        let written = std::io::stdout().lock().write_all(&piece);
        async move {
            written?;
            if let Some(limit) = limit {
                limit.take(piece.len() as u64).await;
            }
            Ok(())
        }
    };
    match file.fetch_all(sink).await {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(false),
        done => {
            let output = std::path::Path::new("standard output");
            done.map_err(transfer::at_local("write", output)).map_err(failed)?;
        }
    }
    file.close().await.map_err(failed)?;
    Ok(true)
}

pub(crate) async fn cp(cp: &Cp) -> Done {
    let mixed = || {
        let text = "cannot mix local paths and URLs as sources; use two commands";
        Failure::new(Exit::Usage, text)
    };
    let remote = || {
        let urls = cp.from.iter().map(|place| match place {
            Location::Remote(url) => Some(url.clone()),
            Location::Local(_) => None,
        });
        urls.collect::<Option<Vec<Url>>>().ok_or_else(mixed)
    };
    let quiet = cp.connection.json || cp.dry_run;
    let has_remote = cp.from.iter().any(|place| matches!(place, Location::Remote(_)));
    match &cp.to {
        Location::Local(_) if !has_remote => Err(Failure::new(
            Exit::Usage,
            "neither the source nor the target is an smb:// URL; use cp of the system",
        )),
        Location::Local(to) => {
            let tree = Tree { recursive: cp.recursive, dry_run: cp.dry_run, filter: &cp.filter };
            fetch(&remote()?, Some(to), tree, &cp.connection, &cp.copying).await
        }
        Location::Remote(to) if !has_remote => {
            let paths = cp.from.iter().filter_map(|place| match place {
                Location::Local(path) => Some(&**path),
                Location::Remote(_) => None,
            });
            let paths: Vec<&std::path::Path> = paths.collect();
            let how = CopyOptions::new(progress_of(&paths), quiet, &cp.copying).forced(cp.force);
            let tree = Tree { recursive: cp.recursive, dry_run: cp.dry_run, filter: &cp.filter };
            send(&paths, to, tree, &cp.connection, how).await
        }
        Location::Remote(to) => {
            let how = CopyOptions::new(Some(0), quiet, &cp.copying).forced(cp.force);
            let mut failures = Failures::default();
            let mut taken = TakenNames::new(Case::Same);
            for from in remote()? {
                let done = between(cp, &from, to, &how, &mut taken, &mut failures).await;
                failures.note_done(done)?;
            }
            if !cp.dry_run {
                report(&cp.connection, &how.progress, &failures, NOTHING_COPIED);
            }
            failures.end("copied")
        }
    }
}

/// Prints an action of a dry run. False when the reader of the output is gone.
pub(crate) fn planned(json: bool, action: &str, path: &str) -> bool {
    if json {
        return line(json!({ "action": action, "path": path }));
    }
    line(format_args!("{action:<7}{path}"))
}

/// Prints a note about skipped links and special files, if there are any.
pub(crate) fn tell_left_out(others: &[String]) {
    if let Some(first) = others.first() {
        let more = match others.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        crate::tell(format_args!("skipped links and special files: {first}{more}"));
    }
}

/// The report of a copy that found no file.
pub(crate) const NOTHING_COPIED: &str = "no files to copy";

/// Prints the summary of a copy as JSON or, on a terminal, as text: `idle` where no file was
/// copied.
pub(crate) fn report(
    connection: &Connection,
    progress: &Progress,
    failures: &Failures,
    idle: &str,
) {
    progress.finish();
    if progress.files() == 0 && !failures.is_empty() {
        return;
    }
    let (files, bytes, seconds) = (progress.files(), progress.bytes(), progress.seconds());
    if connection.json {
        let by_server = progress.bytes_by_server();
        line(json!({
            "files": files, "bytes": bytes, "seconds": seconds, "bytes_by_server": by_server,
            "failed": failures.count(),
        }));
    } else if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
        if files == 0 {
            return crate::tell(idle);
        }
        // The cast saturates.
        let rate = BinaryBytes((bytes as f64 / seconds.max(1e-6)) as u64);
        let (files, bytes) = (counted(files, "file"), BinaryBytes(bytes));
        crate::tell(format_args!("{files}, {bytes} in {seconds:.1} s, {rate}/s"));
    }
}

pub(crate) fn is_directory(url: &Url) -> Failure {
    let text = format!("{url} is a directory; use -r to copy it with its content");
    Failure::new(Exit::Usage, text).of("copy", url)
}

/// The directory of `name`, empty at the top.
pub(crate) fn folder(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Runs all futures, many at once. The failure of one file is noted and the others go on; an
/// error that all files would meet ends the command.
pub(crate) async fn each(
    all: impl Iterator<Item = impl Future<Output = frevo_client::Result<()>>>,
    failures: &mut Failures,
) -> Done {
    let is_over = Cell::new(false);
    let all = all.take_while(|_| !is_over.get());
    let mut running = futures_util::stream::iter(all).buffer_unordered(AT_ONCE);
    while let Some(done) = running.next().await {
        let Err(error) = done.or_else(|error| failures.note(error)) else { continue };
        is_over.set(true);
        if is_full(&error) {
            // The others under way find that too, and remove what they have begun.
            let rest = async { while running.next().await.is_some() {} };
            let _ = tokio::time::timeout(LAST, rest).await;
        }
        return Err(failed(error));
    }
    Ok(())
}

/// Failures of single files while the command goes on.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    first: Option<Failure>,
    count: u64,
}

impl Failures {
    /// Notes a failed file.
    ///
    /// # Errors
    /// `error`, when all other files would fail too.
    pub(crate) fn note(&mut self, error: Error) -> frevo_client::Result<()> {
        if is_everyones(&error) {
            return Err(error);
        }
        self.add(failed(error));
        Ok(())
    }

    /// Notes a failed source.
    ///
    /// # Errors
    /// The failure, when all other sources would fail too.
    pub(crate) fn note_done(&mut self, done: Done) -> Done {
        match done {
            Ok(()) => Ok(()),
            Err(failure) if matches!(failure.exit, Exit::Auth | Exit::Connect) => Err(failure),
            Err(failure) => {
                self.add(failure);
                Ok(())
            }
        }
    }

    /// True when nothing failed so far.
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of failures so far.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn add(&mut self, failure: Failure) {
        self.count += 1;
        match &self.first {
            None => self.first = Some(failure),
            Some(first) => {
                if self.count == 2 {
                    crate::tell_failure(first);
                }
                crate::tell_failure(&failure);
            }
        }
    }

    /// Ends the command: with the code of the first failure, which is told if it is the only
    /// one. `done` tells what was done to all other files, such as "copied".
    pub(crate) fn end(self, done: &str) -> Done {
        match (self.first, self.count) {
            (None, _) => Ok(()),
            (Some(first), 1) => Err(first),
            (Some(first), count) => {
                let text = format!("{count} files failed; all others were {done}");
                Err(Failure::new(first.exit, text))
            }
        }
    }
}

/// True for an error that every other file would meet too.
fn is_everyones(error: &Error) -> bool {
    use std::io::ErrorKind;
    let error = innermost(error);
    match error.cause() {
        Cause::Transport(_) | Cause::Logon(_) | Cause::Security(_) => true,
        _ => is_full(error) || error.kind() == ErrorKind::BrokenPipe,
    }
}

/// True for a full disk or an exceeded quota.
pub(crate) fn is_full(error: &Error) -> bool {
    use std::io::ErrorKind;
    matches!(innermost(error).kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Creates directories below the existing directory `target`, level by level.
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

async fn between(
    cp: &Cp,
    from: &Url,
    to: &Url,
    how: &CopyOptions,
    taken: &mut TakenNames,
    failures: &mut Failures,
) -> Done {
    let connection = &cp.connection;
    let ((source, from), (target, to)) = &connection.reach_both(from, to).await?;
    if from.server != to.server && !connection.json {
        let text = "source and target are on two servers; the data goes through this machine";
        crate::tell(text);
    }
    let metadata = source.metadata(&from.path).await.map_err(failed)?;
    let name = frevo_client::path::split(&from.path).1;
    let into = is_into(target, to, cp.from.len(), cp.dry_run).await?;
    let path = if into { to.below(name) } else { to.path.clone() };
    let copy = Url { path, ..to.clone() };
    let path = &copy.path;
    let (source_line, line) = overlap::lines((source, &from.path), (target, path)).await;
    if copy.is_same_place(from) || line.is_same(&source_line) {
        return Err(Failure::new(Exit::Usage, format!("{from} would be copied onto itself"))
            .of("copy", from));
    }
    taken.take(path, from)?;
    if walk::kind(&metadata) != Kind::Directory {
        if cp.dry_run {
            planned(connection.json, "copy", path);
            return Ok(());
        }
        how.progress.expect(metadata.len());
        return transfer::across(source, &from.path, target, path, how).await.map_err(failed);
    }
    if !cp.recursive {
        return Err(is_directory(from));
    }
    if copy.is_inside(from) || line.is_inside(&source_line) {
        return Err(into_itself(from));
    }
    let mut files = Vec::new();
    let mut directories = Vec::new();
    let (mut kin, mut others, mut double) = (Vec::new(), Vec::new(), Vec::new());
    let see = |name: &str, metadata: &Metadata| {
        if line.may_have(metadata) {
            kin.push(name.to_owned());
        }
        let what = walk::kind(metadata);
        if !cp.filter.passes(name, what == Kind::Directory, metadata.modified()) {
            return false;
        }
        match (what, taken.take(&join(path, name), from.at(join(&from.path, name)))) {
            (Kind::Other, _) => others.push(join(&from.path, name)),
            (Kind::Directory, _) => directories.push(name.to_owned()),
            (Kind::File, Err(failure)) => double.push(failure),
            (Kind::File, Ok(())) => {
                how.progress.expect(metadata.len());
                files.push(name.to_owned());
            }
        }
        true
    };
    walk::remote_into(source, &from.path, see, |error| failures.note(error))
        .await
        .map_err(failed)?;
    double.into_iter().for_each(|failure| failures.add(failure));
    tell_left_out(&others);
    if line.found(source, &from.path, &kin).await.is_some() {
        return Err(into_itself(from));
    }
    if cp.dry_run {
        let all = directories.iter().map(|name| ("make", name));
        for (action, name) in all.chain(files.iter().map(|name| ("copy", name))) {
            planned(connection.json, action, &join(path, name));
        }
        return Ok(());
    }
    target.create_dir_all(path).await.map_err(failed)?;
    let directories = directories.iter().map(String::as_str).collect();
    make_directories(target, path, directories, failures).await?;
    let copied = files.iter().map(|name| async move {
        transfer::across(source, &join(&from.path, name), target, &join(path, name), how).await
    });
    each(copied, failures).await
}

/// The failure of a copy whose target is inside its source.
pub(crate) fn into_itself(from: &Url) -> Failure {
    let text = format!("{from} would be copied into itself; copy it to another place");
    Failure::new(Exit::Usage, text).of("copy", from)
}
