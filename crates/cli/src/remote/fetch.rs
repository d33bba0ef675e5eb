//! `get`: from a server to this machine.

use std::path::{Path, PathBuf};

use frevo_client::{Metadata, Share};
use frevo_mount::names::{Spelling, from_wire};

use super::arguments::{Connection, Copying, Get};
use super::copy::{
    Failures, NOTHING_COPIED, Tree, cat, folder, is_directory, planned, report, tell_left_out,
};
use super::local_directories::LocalDirectories;
use super::location::{Location, Url, join};
use super::logon::failed;
use super::name_collisions::{Case, TakenNames};
use super::parallel_sessions::ParallelSessions;
use super::progress::Progress;
use super::transfer::{CopyOptions, is_small};
use super::walk::Kind;
use super::{transfer, walk};
use crate::exit::{Done, Exit, Failure};

pub(crate) async fn get(get: &Get) -> Done {
    let (to, urls) = match get.places.split_last() {
        Some((Location::Local(to), urls)) => (Some(&**to), urls),
        _ => (None, &*get.places),
    };
    let url = |place: &Location| match place {
        Location::Remote(url) => Ok(url.clone()),
        Location::Local(path) => {
            let text = format!(
                "{} is not an smb:// URL; only the last argument may be a local path",
                path.display()
            );
            Err(Failure::new(Exit::Usage, text))
        }
    };
    let urls: Vec<Url> = urls.iter().map(url).collect::<Result<_, _>>()?;
    if urls.is_empty() {
        let text = "no file to download is named; write smb://USER@HOST/SHARE/PATH";
        return Err(Failure::new(Exit::Usage, text));
    }
    let tree = Tree { recursive: get.recursive, dry_run: get.dry_run, filter: &get.filter };
    fetch(&urls, to, tree, &get.connection, &get.copying).await
}

/// The files to download over one connection.
struct Wanted {
    share: Share,
    files: Vec<File>,
}

struct File {
    path: String,
    len: u64,
    to: PathBuf,
    /// It is a device or a pipe, which is written to and not replaced.
    is_stream: bool,
}

/// Fetches all of `urls`; `-` is standard output.
pub(crate) async fn fetch(
    urls: &[Url],
    to: Option<&Path>,
    tree: Tree<'_>,
    connection: &Connection,
    copying: &Copying,
) -> Done {
    if to == Some(Path::new("-")) && !tree.dry_run {
        return cat(connection, urls, copying.bwlimit).await;
    }
    if let Some(to) = to {
        into_folder(to, urls.len(), tree.dry_run)?;
    }
    let mut taken = TakenNames::new(Case::Differs);
    let how = CopyOptions::new(Some(0), connection.json || tree.dry_run, copying);
    let mut failures = Failures::default();
    let mut all: Vec<Wanted> = Vec::new();
    for asked in urls {
        let found = async {
            let (share, url) = connection.reach(asked).await?;
            let wanted = match all.iter_mut().find(|one| one.share.url("") == share.url("")) {
                Some(wanted) => wanted,
                None => {
                    all.push(Wanted { share, files: Vec::new() });
                    #[allow(clippy::expect_used, reason = "it was just put there")]
                    all.last_mut().expect("one")
                }
            };
            look(wanted, &url, to, tree, &how.progress, &mut taken, &mut failures).await
        };
        let found = found.await;
        failures.note_done(found)?;
    }
    if tree.dry_run {
        let files = all.iter().flat_map(|wanted| &wanted.files);
        for file in files {
            planned(connection.json, "copy", &file.to.display().to_string());
        }
        return failures.end("copied");
    }
    for Wanted { share, files } in &all {
        let lanes = ParallelSessions::new(share, connection);
        let fetch = async |share: &Share, file: &File| {
            if file.is_stream {
                return transfer::down_into(share, &file.path, &file.to, &how).await;
            }
            transfer::down(share, &file.path, &file.to, file.len, &how).await
        };
        let small = |file: &File| !file.is_stream && is_small(file.len);
        lanes.each(files.iter(), small, |file| folder(&file.path), fetch, &mut failures).await?;
    }
    report(connection, &how.progress, &failures, NOTHING_COPIED);
    failures.end("copied")
}

/// Several files, and what is told to by a `/` at the end, go into a directory.
fn into_folder(to: &Path, count: usize, dry_run: bool) -> Done {
    if to.is_dir() {
        return Ok(());
    }
    if to.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return if dry_run { Ok(()) } else { make_folder(to) };
    }
    if count > 1 {
        let text = format!(
            "{} is not a directory; several files can only be copied to a directory",
            to.display()
        );
        return Err(Failure::new(Exit::Usage, text));
    }
    Ok(())
}

fn make_folder(path: &Path) -> Done {
    std::fs::create_dir_all(path)
        .map_err(Failure::failed(format!("cannot create {}", path.display())))
}

/// Finds what `url` is; of a directory all in it. Names come from the server: the library
/// refuses those that are not one component, so that none leads out of `to`.
async fn look(
    wanted: &mut Wanted,
    url: &Url,
    to: Option<&Path>,
    tree: Tree<'_>,
    progress: &Progress,
    taken: &mut TakenNames,
    failures: &mut Failures,
) -> Done {
    let share = &wanted.share;
    let metadata = share.metadata(&url.path).await.map_err(failed)?;
    let name = frevo_client::path::split(&url.path).1;
    let name = if name.is_empty() { &url.share } else { name };
    let to = transfer::local_target(to, &from_wire(name, Spelling::Mapped));
    taken.take(&to.to_string_lossy(), url)?;
    let files = &mut wanted.files;
    if walk::kind(&metadata) != Kind::Directory {
        progress.expect(metadata.len());
        // A link that is there leads to what is meant, as with cp.
        let is_stream = std::fs::metadata(&to).is_ok_and(|there| !there.is_file());
        let to = if is_stream { to } else { to.canonicalize().unwrap_or(to) };
        files.push(File { path: url.path.clone(), len: metadata.len(), to, is_stream });
        return Ok(());
    }
    if !tree.recursive {
        return Err(is_directory(url));
    }
    if std::fs::metadata(&to).is_ok_and(|there| !there.is_dir()) {
        let text = format!("{} is a file; a directory cannot be copied to it", to.display());
        return Err(Failure::new(Exit::Failed, text).of("write", to.display()));
    }
    let before = files.len();
    let mut directories = Vec::new();
    let (mut others, mut double) = (Vec::new(), Vec::new());
    let see = |name: &str, metadata: &Metadata| {
        let what = walk::kind(metadata);
        if !tree.filter.passes(name, what == Kind::Directory, metadata.modified()) {
            return false;
        }
        let (to, path) = (to.join(local_name(name)), join(&url.path, name));
        match (what, taken.take(&to.to_string_lossy(), url.at(&*path))) {
            (Kind::Other, _) => others.push(path),
            (Kind::Directory, _) => directories.push(to),
            (Kind::File, Err(failure)) => double.push(failure),
            (Kind::File, Ok(())) => {
                progress.expect(metadata.len());
                files.push(File { path, len: metadata.len(), to, is_stream: false });
            }
        }
        true
    };
    walk::remote_into(share, &url.path, see, |error| failures.note(error)).await.map_err(failed)?;
    double.into_iter().for_each(|failure| failures.add(failure));
    tell_left_out(&others);
    if tree.dry_run {
        return Ok(());
    }
    let made = make_folder(&to).and_then(|()| make_folders(&directories, failures));
    match made {
        // Told once, not of each file.
        Err(failure) => {
            files.truncate(before);
            Err(failure)
        }
        Ok(folders) => {
            let below = files.split_off(before);
            files.extend(below.into_iter().filter(|file| folders.can_have(&file.to)));
            Ok(())
        }
    }
}

/// Makes directories, those above before those below. Where a link or a file is in the place of
/// one, all else is done; what keeps one from being made keeps the others too.
fn make_folders(
    directories: &[PathBuf],
    failures: &mut Failures,
) -> Result<LocalDirectories, Failure> {
    let mut folders = LocalDirectories::default();
    for path in directories {
        let Err(error) = folders.make(path) else { continue };
        let is_other = error.kind() == std::io::ErrorKind::NotADirectory;
        let failure = Failure::failed(format!("cannot create {}", path.display()))(error);
        if !is_other {
            return Err(failure);
        }
        failures.add(failure);
    }
    Ok(folders)
}

/// A path below a directory as this machine spells it: what stands for `: * ?` and the
/// like on the wire is that.
pub(crate) fn local_name(path: &str) -> PathBuf {
    path.split('/').map(|name| from_wire(name, Spelling::Mapped)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_the_folder() {
        assert_eq!(local_name("a\u{f022}b/c\u{f029}"), PathBuf::from("a:b/c."));
        for name in ["\u{f029}", ".\u{f029}", "x/.\u{f029}/y"] {
            let path = local_name(name);
            let normal = |part| matches!(part, std::path::Component::Normal(_));
            assert!(path.components().all(normal), "{path:?}");
        }
    }
}
