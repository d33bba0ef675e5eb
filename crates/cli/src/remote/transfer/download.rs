//! From a server to this machine.

use std::fs::{File as LocalHandle, OpenOptions as LocalOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use frevo_client::{File, Metadata, OpenOptions, Share};
use frevo_net::buffer::Buf;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::super::long_path::reach;
use super::super::{sparse, spelling};
use super::stale::clean_local;
use super::{
    CopyOptions, UNDER_WAY, at_local, is_of_version, is_small, local_error, may_go_on, part_of,
    refused, steady,
};

/// A file that this one makes: what others may do with it is for their umask to say.
const NEW: u32 = 0o666;
/// Whoever makes a file goes on with it.
const OWN: u32 = 0o600;

/// The reason why a download that ended early is no copy.
const TOO_LITTLE: &str = "the server sent less than the file has; try again";

/// The mode of the local file that a copy replaces, if there is one.
fn replaced(to: &Path) -> io::Result<Option<u32>> {
    let there = match reach(to).and_then(std::fs::symlink_metadata) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        there => there?,
    };
    if there.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    Ok(there.is_file().then(|| there.permissions().mode() & 0o777))
}

/// The local name of a part: not listed. On a server it has no dot: smbd may keep it that
/// such a name is hidden, whatever the file is called later.
fn part(to: &Path, share: &Share, path: &str, found: &Metadata) -> std::path::PathBuf {
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    to.with_file_name(format!(".{}", part_of(&name, share, path, found)))
}

/// A small file, which was `len` bytes long, in one round trip. Nothing when it has become larger.
async fn whole(
    share: &Share,
    path: &str,
    len: u64,
) -> frevo_client::Result<Option<(Vec<u8>, Metadata)>> {
    if len == 0 {
        // An empty file needs no read (see `File::fetch_all`). NTFS lists a file that is being
        // written with an old length, so the length is queried again.
        let found = share.metadata(path).await?;
        if found.len() == 0 {
            return Ok(Some((Vec::new(), found)));
        }
    }
    share.read_small(path).await
}

/// Attempts to open a part that another command may give its final name meanwhile.
const OPENINGS: usize = 8;

/// Opens a part, which this command alone may write then. A link of its name was not made by this
/// program.
///
/// # Errors
/// [`ErrorKind::ResourceBusy`] while another command writes it.
fn open_part(part: &Path, mode: u32, options: &mut LocalOptions) -> io::Result<LocalHandle> {
    let not_through_links = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let options = options.write(true).create(true).mode(mode).custom_flags(not_through_links);
    let part = reach(part)?;
    for _ in 0..OPENINGS {
        let file = options.open(&part)?;
        lock(&file)?;
        let number = |found: std::fs::Metadata| (found.dev(), found.ino());
        let there = std::fs::symlink_metadata(&part).ok().map(number);
        if there == Some(number(file.metadata()?)) {
            return Ok(file);
        }
    }
    Err(io::Error::new(ErrorKind::ResourceBusy, UNDER_WAY))
}

/// Gives a complete part its name.
fn put_in_place(part: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(reach(part)?, reach(to)?)
}

/// Returns bytes of a part. None if they cannot be read.
fn piece_of(part: &LocalHandle, from: u64, count: u32) -> Option<Vec<u8>> {
    let mut piece = vec![0; count as usize];
    part.read_exact_at(&mut piece, from).is_ok().then_some(piece)
}

/// Removes a part that is not continued.
fn drop_part(part: &Path) {
    let _ = reach(part).and_then(std::fs::remove_file);
}

/// Locks a part for this command. The lock ends with the handle.
///
/// # Errors
/// [`ErrorKind::ResourceBusy`] if another command has locked it.
pub(super) fn lock(part: &LocalHandle) -> io::Result<()> {
    match rustix::fs::flock(part, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(io::Error::new(ErrorKind::ResourceBusy, UNDER_WAY)),
        // Other errors mean that the file system has no locks. Then the partial copy is used
        // without a lock.
        _ => Ok(()),
    }
}

/// Fetches `path`, which was `len` bytes long when it was looked for, to the local file `to`.
pub(crate) async fn down(
    share: &Share,
    path: &str,
    to: &Path,
    len: u64,
    how: &CopyOptions,
) -> frevo_client::Result<()> {
    how.progress.begin(&spelling::shown(path));
    let broken = local_error("write", to);
    let old = replaced(to).map_err(&broken)?;
    let mode = old.map_or(NEW, |mode| mode | OWN);
    let mut small = None;
    if is_small(len) {
        how.take(len).await;
        small = whole(share, path, len).await?;
    }
    if let Some((data, metadata)) = small {
        let part = part(to, share, path, &metadata);
        let dress = how.carry.of_remote(&metadata);
        // Opening does not truncate the partial copy (`part`), because another command may be
        // writing it; `set_len` below does.
        let mut local = open_part(&part, mode, &mut LocalHandle::options()).map_err(&broken)?;
        let written = local.set_len(0).and_then(|()| {
            local.write_all(&data)?;
            dress.put_on(&local, old, how.carry)?;
            local.set_modified(metadata.modified())?;
            put_in_place(&part, to)
        });
        if written.is_err() {
            drop_part(&part);
        }
        written.map_err(broken)?;
        how.progress.advance(data.len() as u64);
        how.progress.file();
        return Ok(());
    }
    let file = OpenOptions::new().read(true).open(share, path).await?;
    let metadata = file.metadata_at_open();
    let part = part(to, share, path, &metadata);
    let local = open_part(&part, mode, LocalHandle::options().read(true)).map_err(&broken)?;
    clean_local(&part, how);
    let begun = begun_of(&file, &metadata, &local, &broken).await?;
    how.progress.advance(begun);
    let fetched = fetch_data(&file, &metadata, begun, &local, how).await;
    let fetched = fetched.map_err(at_local("write", to));
    let fetched = match fetched {
        Ok(end) => {
            let now = file.metadata().await;
            now.and_then(|now| whole_until(end, &metadata, &now, share.url(path)))
        }
        error => error,
    };
    if fetched.as_ref().is_err_and(|error| !may_go_on(error)) {
        drop_part(&part);
    }
    let end = fetched?;
    local
        .set_len(end)
        .and_then(|()| how.carry.of_remote(&metadata).put_on(&local, old, how.carry))
        .and_then(|()| local.set_modified(metadata.modified()))
        .and_then(|()| put_in_place(&part, to))
        .map_err(&broken)?;
    how.progress.file();
    file.close().await
}

/// Returns the length up to which a part is there. One that may be of another version of `file` is emptied.
async fn begun_of(
    file: &File,
    metadata: &Metadata,
    part: &LocalHandle,
    broken: impl Fn(io::Error) -> frevo_client::Error,
) -> frevo_client::Result<u64> {
    // A download writes in order, so the partial copy is valid up to its length and continued from
    // there.
    let begun = part.metadata().map_err(&broken)?.len().min(metadata.len());
    let ours = |from, count| std::future::ready(piece_of(part, from, count));
    if is_of_version(file, metadata, begun, ours).await? {
        return Ok(begun);
    }
    part.set_len(0).map(|()| 0).map_err(broken)
}

/// Copies the data of `file` from the offset `begun` on, without the holes. Returns the end of the
/// copied data, which is less than the file's length if the file became shorter.
async fn fetch_data(
    file: &File,
    metadata: &Metadata,
    begun: u64,
    local: &LocalHandle,
    how: &CopyOptions,
) -> frevo_client::Result<u64> {
    let len = metadata.len();
    let mut at = begun;
    // smbd does not report holes of a file without SPARSE, but a small allocation shows that it has
    // some.
    let has_holes = metadata.allocation() < len;
    for range in sparse::there(file, metadata).await? {
        let Some((from, count)) = sparse::rest(range, at, len) else { continue };
        how.progress.advance(from - at);
        let sink = |at: u64, piece: Buf| {
            let result = if has_holes {
                sparse::write_without_zeros(local, &piece, at)
            } else {
                local.write_all_at(&piece, at)
            };
            written(how, result, piece.len())
        };
        let end = from + count;
        at = from;
        while at < end {
            let piece = how.piece(end - at);
            let fetched = file.fetch(at, piece, sink).await?;
            at += fetched;
            if fetched < piece {
                // The file has become shorter meanwhile, so the copy ends here.
                return Ok(at);
            }
        }
    }
    if at < len {
        how.progress.advance(len - at);
        // The rest is a hole, unless the file has become shorter meanwhile, so its length is
        // queried.
        return Ok(file.metadata().await?.len().clamp(at, len));
    }
    Ok(at)
}

/// Checks that a download up to `end` has the whole file, which did not change meanwhile.
fn whole_until(
    end: u64,
    before: &Metadata,
    now: &Metadata,
    url: String,
) -> frevo_client::Result<u64> {
    let version = |found: &Metadata| (found.len(), found.modified());
    steady(version(before), version(now), || url.clone())?;
    if end < before.len().min(now.len()) {
        return Err(refused(ErrorKind::UnexpectedEof, TOO_LITTLE, "copy", url));
    }
    Ok(end)
}

/// Counts a piece of `len` bytes that was written with this result, and waits as the limit of the
/// bandwidth demands.
async fn written(how: &CopyOptions, result: io::Result<()>, len: usize) -> io::Result<()> {
    result?;
    how.progress.advance(len as u64);
    how.take(len as u64).await;
    Ok(())
}

/// Fetches `path` into a device or a pipe, in order.
pub(crate) async fn down_into(
    share: &Share,
    path: &str,
    to: &Path,
    how: &CopyOptions,
) -> frevo_client::Result<()> {
    how.progress.begin(&spelling::shown(path));
    let mut local = reach(to)
        .and_then(|to| LocalHandle::options().write(true).open(to))
        .map_err(local_error("write", to))?;
    let file = share.open(path).await?;
    let sink = |_: u64, piece: Buf| written(how, local.write_all(&piece), piece.len());
    file.fetch_all(sink).await.map_err(at_local("write", to))?;
    how.progress.file();
    file.close().await
}
