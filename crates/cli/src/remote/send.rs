//! `put`: from this machine to a server.

use std::path::{Path, PathBuf};

use frevo_client::Share;
use frevo_mount::names::{Spelling, to_wire};

use super::arguments::{Connection, Put};
use super::copy::{Failures, folder, make_directories, report};
use super::lanes::Lanes;
use super::logon::failed;
use super::place::{Url, join};
use super::transfer::{How, is_small};
use super::{transfer, walk};
use crate::exit::{Done, Exit, Failure};

pub(crate) async fn put(put: &Put) -> Done {
    let from: Vec<&Path> = put.from.iter().map(PathBuf::as_path).collect();
    let how = How::new(progress_of(&from), &put.connection, &put.copying).forced(put.force);
    send(&from, &put.url, put.recursive, &put.connection, how).await
}

/// How much is expected at first: of standard input nobody knows.
pub(crate) fn progress_of(from: &[&Path]) -> Option<u64> {
    (!from.contains(&Path::new("-"))).then_some(0)
}

/// What is to go, by its path on the share.
#[derive(Default)]
struct Going {
    directories: Vec<String>,
    files: Vec<File>,
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
    recursive: bool,
    connection: &Connection,
    how: How,
) -> Done {
    let is_stream = from.contains(&Path::new("-"));
    if is_stream && connection.password_stdin {
        let text = "standard input cannot be both the file and the password; use --credentials";
        return Err(Failure::new(Exit::Usage, text));
    }
    let (share, url) = &connection.reach(url).await?;
    let into = is_into(share, url, from.len()).await?;
    let mut failures = Failures::default();
    let mut going = Going::default();
    for from in from {
        if is_stream && *from == Path::new("-") {
            if into {
                let text = format!("{url} is a directory; write the name of the file too");
                return Err(Failure::new(Exit::Usage, text));
            }
            let sent = transfer::up_from_input(share, &url.path, &how).await;
            failures.note_done(sent.map_err(failed))?;
            continue;
        }
        let found = look(from, url, into, recursive, &mut going, &mut failures);
        failures.note_done(found)?;
    }
    // The tops with those above them, the rest is below.
    let directories = going.directories.iter().map(String::as_str).collect();
    make_directories(share, "", directories, &mut failures).await?;
    going.files.iter().for_each(|file| how.progress.expect(file.len));
    let lanes = Lanes::new(share, connection);
    let send =
        async |share: &Share, file: &File| transfer::up(share, &file.from, &file.to, &how).await;
    let small = |file: &File| is_small(file.len);
    lanes.each(going.files.iter(), small, |file| folder(&file.to), send, &mut failures).await?;
    report(connection, &how.progress, &failures);
    failures.end()
}

/// Whether `url` is a directory that what is copied goes into. One that is named by a `/`
/// at the end is made.
pub(crate) async fn is_into(share: &Share, url: &Url, count: usize) -> Result<bool, Failure> {
    if url.path.is_empty() {
        return Ok(true);
    }
    if share.metadata(&url.path).await.is_ok_and(|metadata| metadata.is_dir()) {
        return Ok(true);
    }
    if url.ends_in_slash {
        share.create_dir_all(&url.path).await.map_err(failed)?;
        return Ok(true);
    }
    if count > 1 {
        let text = format!("{url} is no directory, which several files go into");
        return Err(Failure::new(Exit::Usage, text));
    }
    Ok(false)
}

/// Finds what `from` is; of a directory all in it.
fn look(
    from: &Path,
    url: &Url,
    into: bool,
    recursive: bool,
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
            Failure::new(Exit::Usage, format!("{shown} has no name that a share can hold"))
        })?;
    let to = if into { url.below(&name) } else { url.path.clone() };
    if !metadata.is_dir() {
        going.files.push(File { from: from.to_owned(), to, len: metadata.len() });
        return Ok(());
    }
    if !recursive {
        let text = format!("{shown} is a directory; use -r to copy it with all in it");
        return Err(Failure::new(Exit::Usage, text));
    }
    let all = walk::local(from, |error| failures.note(error)).map_err(failed)?;
    going.directories.push(to.clone());
    for file in all {
        let to = join(&to, &file.name);
        if file.is_dir {
            going.directories.push(to);
        } else {
            going.files.push(File { from: file.path, to, len: file.len });
        }
    }
    Ok(())
}
