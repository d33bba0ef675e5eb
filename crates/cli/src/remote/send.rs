//! `put`: from this machine to a server.

use std::path::{Path, PathBuf};

use frevo_client::Share;
use frevo_mount::names::{Spelling, to_wire};

use super::arguments::{Connection, Put};
use super::copy::{
    Failures, NOTHING_COPIED, Tree, folder, make_directories, planned, report, tell_left_out,
};
use super::location::{Url, join};
use super::logon::failed;
use super::name_collisions::{Case, TakenNames};
use super::parallel_sessions::ParallelSessions;
use super::transfer::{CopyOptions, is_small};
use super::walk::{Kind, LocalFile};
use super::{transfer, walk};
use crate::exit::{Done, Exit, Failure};

pub(crate) async fn put(put: &Put) -> Done {
    let from: Vec<&Path> = put.from.iter().map(PathBuf::as_path).collect();
    let how =
        CopyOptions::new(progress_of(&from), put.connection.json || put.dry_run, &put.copying)
            .forced(put.force);
    let tree = Tree { recursive: put.recursive, dry_run: put.dry_run, filter: &put.filter };
    send(&from, &put.url, tree, &put.connection, how).await
}

/// How much is expected at first: of standard input nobody knows.
pub(crate) fn progress_of(from: &[&Path]) -> Option<u64> {
    (!from.contains(&Path::new("-"))).then_some(0)
}

/// The directories and files to upload, by their path on the share.
struct Going {
    directories: Vec<String>,
    files: Vec<File>,
    /// Links and special files, which are skipped.
    others: Vec<String>,
    taken: TakenNames,
}

impl Going {
    fn new() -> Self {
        let (directories, files, others) = Default::default();
        Self { directories, files, others, taken: TakenNames::new(Case::Same) }
    }

    /// One more, unless another goes there.
    fn add(&mut self, from: PathBuf, to: String, len: u64) -> Done {
        self.taken.take(&to, from.display())?;
        self.files.push(File { from, to, len });
        Ok(())
    }
}

struct File {
    from: PathBuf,
    to: String,
    len: u64,
}

/// Sends all of `from`; `-` is standard input.
pub(crate) async fn send(
    from: &[&Path],
    url: &Url,
    tree: Tree<'_>,
    connection: &Connection,
    how: CopyOptions,
) -> Done {
    let is_stream = from.contains(&Path::new("-"));
    if is_stream && connection.password_stdin {
        let text = "standard input cannot be both the file and the password; use --credentials";
        return Err(Failure::new(Exit::Usage, text));
    }
    let (share, url) = &connection.reach(url).await?;
    let into = is_into(share, url, from.len(), tree.dry_run).await?;
    let mut failures = Failures::default();
    let mut going = Going::new();
    // Told once, not of each file.
    if !into && from.iter().any(|from| from.is_dir()) && tree.recursive {
        no_file(share, url).await?;
    }
    for from in from {
        if is_stream && *from == Path::new("-") {
            if into {
                let text = format!("{url} is a directory; add the name of the file");
                return Err(Failure::new(Exit::Usage, text));
            }
            if tree.dry_run {
                planned(connection.json, "copy", &url.path);
                continue;
            }
            let sent = transfer::up_from_input(share, &url.path, &how).await;
            failures.note_done(sent.map_err(failed))?;
            continue;
        }
        let found = look(from, url, into, tree, &mut going, &mut failures);
        failures.note_done(found)?;
    }
    tell_left_out(&going.others);
    if tree.dry_run {
        let directories = going.directories.iter().map(|path| ("make", path));
        for (action, path) in directories.chain(going.files.iter().map(|file| ("copy", &file.to))) {
            planned(connection.json, action, path);
        }
        return failures.end("copied");
    }
    // The tops with those above them, the rest is below.
    let directories = going.directories.iter().map(String::as_str).collect();
    make_directories(share, "", directories, &mut failures).await?;
    going.files.iter().for_each(|file| how.progress.expect(file.len));
    let lanes = ParallelSessions::new(share, connection);
    let send =
        async |share: &Share, file: &File| transfer::up(share, &file.from, &file.to, &how).await;
    let small = |file: &File| is_small(file.len);
    lanes.each(going.files.iter(), small, |file| folder(&file.to), send, &mut failures).await?;
    report(connection, &how.progress, &failures, NOTHING_COPIED);
    failures.end("copied")
}

/// True when `url` is a directory to copy into. One that is named by a `/` at the end is
/// created, except in a dry run.
pub(crate) async fn is_into(
    share: &Share,
    url: &Url,
    count: usize,
    dry_run: bool,
) -> Result<bool, Failure> {
    if url.path.is_empty() {
        return Ok(true);
    }
    if share.metadata(&url.path).await.is_ok_and(|metadata| metadata.is_dir()) {
        return Ok(true);
    }
    if url.ends_in_slash {
        if !dry_run {
            share.create_dir_all(&url.path).await.map_err(failed)?;
        }
        return Ok(true);
    }
    if count > 1 {
        let text =
            format!("{url} is not a directory; several files can only be copied to a directory");
        return Err(Failure::new(Exit::Usage, text));
    }
    Ok(false)
}

/// Fails when `url` is a file: a directory cannot be copied to it.
async fn no_file(share: &Share, url: &Url) -> Done {
    if share.metadata(&url.path).await.is_err() {
        return Ok(());
    }
    let text = format!("{url} is a file; a directory cannot be copied to it");
    Err(Failure::new(Exit::Failed, text).of("copy", url))
}

/// Finds what `from` is; of a directory all in it.
fn look(
    from: &Path,
    url: &Url,
    into: bool,
    tree: Tree<'_>,
    going: &mut Going,
    failures: &mut Failures,
) -> Done {
    let shown = from.display();
    let metadata = std::fs::metadata(from).map_err(walk::local_failed(from))?;
    // `.` has a name too.
    let whole = if from.file_name().is_none() { from.canonicalize().ok() } else { None };
    let named = whole.as_deref().unwrap_or(from);
    let name =
        named.file_name().and_then(|name| to_wire(name, Spelling::Mapped)).ok_or_else(|| {
            let text = format!("{shown}: the name is not UTF-8, which SMB requires; rename it");
            Failure::new(Exit::Failed, text).of("read", from.display())
        })?;
    let to = if into { url.below(&name) } else { url.path.clone() };
    if !metadata.is_dir() {
        return going.add(from.to_owned(), to, metadata.len());
    }
    if !tree.recursive {
        let text = format!("{shown} is a directory; use -r to copy it with its content");
        return Err(Failure::new(Exit::Usage, text).of("copy", shown));
    }
    let passes = |file: &LocalFile| {
        tree.filter.passes(&file.name, file.kind == Kind::Directory, file.modified)
    };
    let all = walk::local(from, passes, |error| failures.note(error)).map_err(failed)?;
    going.directories.push(to.clone());
    for file in all {
        let to = join(&to, &file.name);
        match file.kind {
            Kind::Directory => going.directories.push(to),
            Kind::Other => going.others.push(file.path.display().to_string()),
            Kind::File => {
                let added = going.add(file.path, to, file.len);
                failures.note_done(added)?;
            }
        }
    }
    Ok(())
}
