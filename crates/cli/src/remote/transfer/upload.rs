//! From this machine to a server.

use std::fs::File as LocalHandle;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use frevo_client::internal::STORE_WINDOW;
use frevo_client::{Cause, Error, File, OpenOptions, Share, ShareMode, Status};
use frevo_net::buffer::Buf;
use futures_util::future::join as join_futures;
use futures_util::stream::{FuturesUnordered, TryStreamExt};

use super::super::dos_attributes::CopiedAttributes;
use super::super::location::join;
use super::super::long_path::reach;
use super::super::sparse::{self, Ranges};
use super::parts::Part;
use super::replace::{Replaced, is_in_use, put_in_place, put_in_place_later};
use super::stale::clean_remote;
use super::{
    CopyOptions, WRITES_AT_ONCE, at_local, begun_as, is_small, local_error, may_go_on, opened_as,
    part_name, steady,
};

/// Attempts to read a small file that changes meanwhile.
const READINGS: usize = 3;

/// A local file that is sent.
struct Source<'a> {
    path: &'a Path,
    local: LocalHandle,
    metadata: std::fs::Metadata,
    modified: SystemTime,
    dress: CopiedAttributes,
}

impl<'a> Source<'a> {
    fn open(path: &'a Path, how: &CopyOptions) -> io::Result<Self> {
        let local = LocalHandle::open(reach(path)?)?;
        let metadata = local.metadata()?;
        let modified = metadata.modified()?;
        let dress = how.carry.of_local(&local, metadata.permissions().mode())?;
        Ok(Self { path, local, metadata, modified, dress })
    }

    /// The name of a partial copy of a small file, which no other command uses.
    fn own_part(&self, name: &str) -> String {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let id = std::process::id().to_le_bytes();
        let path = self.path.as_os_str().as_encoded_bytes();
        part_name(name, &[path, &id, &since.as_nanos().to_le_bytes()])
    }

    /// The name of the partial copy, for this version of this file.
    fn part(&self, name: &str) -> String {
        let found = &self.metadata;
        let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
        let times = times.map(i64::to_le_bytes).concat();
        let numbers = [found.dev(), found.ino(), found.len()].map(u64::to_le_bytes).concat();
        part_name(name, &[&numbers, &times])
    }

    /// Checks that the file has not changed since it was opened.
    fn is_steady(&self) -> frevo_client::Result<()> {
        let now = self.local.metadata().and_then(|now| Ok((now.len(), now.modified()?)));
        let now = now.map_err(local_error("read", self.path))?;
        let before = (self.metadata.len(), self.modified);
        steady(before, now, || self.path.display().to_string())
    }
}

/// Sends the local file `from` to `path`.
pub(crate) async fn up(
    share: &Share,
    from: &Path,
    path: &str,
    how: &CopyOptions,
) -> frevo_client::Result<()> {
    let broken = local_error("read", from);
    let mut source = Source::open(from, how).map_err(&broken)?;
    let mut tries = 1;
    while is_small(source.metadata.len()) {
        let data = whole(&source.local, source.metadata.len()).map_err(&broken)?;
        match source.is_steady() {
            Err(_) if tries < READINGS => tries += 1,
            Err(error) => return Err(error),
            Ok(()) => return up_small(share, &source, &data, path, how).await,
        }
        source = Source::open(from, how).map_err(&broken)?;
    }
    up_large(share, source, path, how).await
}

/// Sends a small file, in one round trip if nothing is there yet. Where the last one took the
/// place of another, that is expected of this one too, and it is not sent for nothing.
async fn up_small(
    share: &Share,
    source: &Source<'_>,
    data: &[u8],
    path: &str,
    how: &CopyOptions,
) -> frevo_client::Result<()> {
    how.take(data.len() as u64).await;
    let modified = Some(source.modified);
    let look = || Replaced::look(share, path, how.force);
    if is_stream(path) {
        share.write_dated(path, data, modified).await?;
    } else {
        let mut old = if how.replaces() { look().await? } else { None };
        let mut is_new = old.is_none();
        if is_new {
            match share.write_new(path, data, modified).await {
                Err(error) if is_there(&error) => {
                    is_new = false;
                    old = look().await?;
                }
                done => {
                    done?;
                    if let Some(basic) = source.dress.whole() {
                        share.set_metadata(path, &basic).await?;
                    }
                }
            }
        }
        if !is_new {
            replace_small(share, source, data, path, old.as_ref()).await?;
        }
        how.expect_replacing(!is_new);
    }
    how.progress.advance(data.len() as u64);
    how.progress.file();
    Ok(())
}

/// True when the target exists already.
fn is_there(error: &Error) -> bool {
    matches!(error.status(), Some(Status::OBJECT_NAME_COLLISION | Status::FILE_IS_A_DIRECTORY))
}

/// True for a stream of a file: no other file can be renamed to it.
fn is_stream(path: &str) -> bool {
    frevo_client::path::split(path).1.contains(':')
}

/// Sends a small file in the place of another, `old` if it is still there. That one stays as it
/// is until this one is there: on a full disk neither is lost.
async fn replace_small(
    share: &Share,
    source: &Source<'_>,
    data: &[u8],
    path: &str,
    old: Option<&Replaced>,
) -> frevo_client::Result<()> {
    let (directory, name) = frevo_client::path::split(path);
    let part = join(directory, &source.own_part(name));
    match share.write_dated(&part, data, Some(source.modified)).await {
        // The user may not create a partial copy in this directory, so the file itself is written
        // in place.
        Err(error) if error.status() == Some(Status::ACCESS_DENIED) => {
            return share.write_dated(path, data, Some(source.modified)).await;
        }
        done => done.map_err(begun_as(share, path))?,
    }
    let put = async {
        let dressed = source.dress.before(old.map(Replaced::attributes), source.modified);
        if dressed.created.is_some() || dressed.attributes.is_some() {
            share.set_metadata(&part, &dressed).await?;
        }
        put_in_place(share, &part, path, old, &source.dress).await
    };
    let Err(error) = put.await else { return Ok(()) };
    if error.status().is_none() {
        return Err(error);
    }
    // The partial copy is removed first, because the data that is written in place needs its space.
    let removed = share.remove_file(&part).await;
    if !is_in_use(&error) || removed.is_err() {
        return Err(error);
    }
    // MS-FSA 2.1.5.15.11: a file that another client has open cannot be replaced, but it can be
    // written in place.
    share.write_dated(path, data, Some(source.modified)).await.map_err(|_| error)
}

/// Sends a large file, or goes on with it.
async fn up_large(
    share: &Share,
    source: Source<'_>,
    path: &str,
    how: &CopyOptions,
) -> frevo_client::Result<()> {
    how.progress.begin(&source.path.display().to_string());
    let (directory, name) = frevo_client::path::split(path);
    let part = join(directory, &source.part(name));
    let look = Replaced::look(share, path, how.force);
    let (old, ()) = join_futures(look, clean_remote(share, &part, how)).await;
    let (old, len) = (old?, source.metadata.len());
    let options = OpenOptions::new().read(true).write(true).create(true);
    // The share mode READ lets no second command write to the partial copy (`part`).
    let options = options.share_mode(ShareMode::READ);
    let file = options.open(share, &part).await.map_err(opened_as(share, path))?;
    let begun_part = Part::begun(share, &part);
    // The earlier run may have written pieces out of order, by at most STORE_WINDOW, so the upload
    // continues that far before the end of the partial copy.
    let begun = file.metadata_at_open().len().saturating_sub(STORE_WINDOW).min(len);
    how.progress.advance(begun);
    let stored = async {
        let data = sparse::here(&source.local).map_err(local_error("read", source.path))?;
        let data = sparse::allowed(&file, data, len).await?;
        let end = sparse::end(&data, len).max(file.metadata_at_open().len());
        let local = Arc::new(source.local.try_clone().map_err(local_error("read", source.path))?);
        let stored = store_data(&file, data, begun, len, &local, how).await;
        match stored.map_err(at_local("read", source.path)) {
            // The source ended early or could not be read. If it has changed, `is_steady` reports
            // that, otherwise the error is returned.
            Err(error) if matches!(error.cause(), Cause::Usage(_) | Cause::Local(_)) => {
                source.is_steady()?;
                return Err(error);
            }
            done => done?,
        }
        source.is_steady()?;
        // The last write has set the length to `end`. The length differs if the partial copy was
        // longer before, or if the file ends in a hole.
        if end != len {
            file.set_len(len).await?;
        }
        file.sync_all().await?;
        let old = old.as_ref().map(Replaced::attributes);
        file.set_metadata(&source.dress.before(old, source.modified)).await
    };
    if let Err(error) = stored.await {
        let _ = file.close().await;
        if !may_go_on(&error) && share.remove_file(&part).await.is_ok() {
            begun_part.is_gone();
        }
        return Err(begun_part.as_target(share, path)(error));
    }
    file.close().await?;
    put_in_place_later(share, &part, path, old.as_ref(), &source.dress).await?;
    begun_part.is_gone();
    how.progress.file();
    Ok(())
}

/// Sends what of `local` is in `data` and lies behind `begun`.
async fn store_data(
    file: &File,
    data: Ranges,
    begun: u64,
    len: u64,
    local: &Arc<LocalHandle>,
    how: &CopyOptions,
) -> frevo_client::Result<()> {
    let mut at = begun;
    for range in data {
        let Some((from, count)) = sparse::rest(range, at, len) else { continue };
        how.progress.advance(from - at);
        let end = from + count;
        at = from;
        while at < end {
            let piece = how.piece(end - at);
            how.take(piece).await;
            let local = Arc::clone(local);
            let fill =
                move |at: u64, count: usize, buf: &mut Buf| buf.append_from_file(&local, at, count);
            let advance = |bytes: u64| {
                how.progress.advance(bytes);
                true
            };
            file.store(at, piece, fill, advance).await?;
            at += piece;
        }
    }
    how.progress.advance(len - at);
    Ok(())
}

/// Bytes of standard input that are sent at once.
const PIECE: usize = 1 << 20;

/// Sends standard input to `path`. An interrupted copy starts from the beginning the next time.
pub(crate) async fn up_from_input(
    share: &Share,
    path: &str,
    how: &CopyOptions,
) -> frevo_client::Result<()> {
    let old = Replaced::look(share, path, how.force).await?;
    let (directory, name) = frevo_client::path::split(path);
    // Standard input cannot be read again to continue a partial copy, so its partial copy gets a
    // unique name.
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (id, since) = (std::process::id().to_le_bytes(), since.as_nanos().to_le_bytes());
    let part = join(directory, &part_name(name, &[b"input", &id, &since]));
    let options = OpenOptions::new().write(true).create(true).truncate(true);
    let file = options.open(share, &part).await.map_err(begun_as(share, path))?;
    let begun_part = Part::begun(share, &part);
    let stored = async {
        let file = &file;
        let (mut writes, mut at) = (FuturesUnordered::new(), 0);
        loop {
            let piece = input_piece().await?;
            if piece.is_empty() {
                break;
            }
            let (begin, len) = (at, piece.len() as u64);
            at += len;
            how.take(len).await;
            writes.push(async move { file.write_all_at(&piece, begin).await.map(|()| len) });
            if writes.len() >= WRITES_AT_ONCE {
                how.progress.advance(writes.try_next().await?.unwrap_or(0));
            }
        }
        while let Some(written) = writes.try_next().await? {
            how.progress.advance(written);
        }
        file.sync_all().await
    };
    let stored = stored.await;
    let closed = file.close().await;
    if let Err(error) = stored.and(closed) {
        if share.remove_file(&part).await.is_ok() {
            begun_part.is_gone();
        }
        return Err(begun_part.as_target(share, path)(error));
    }
    let dress = CopiedAttributes::default();
    let placed = put_in_place_later(share, &part, path, old.as_ref(), &dress).await;
    // No other run can continue a partial copy of standard input, so it is removed after a failure.
    if placed.is_ok() || share.remove_file(&part).await.is_ok() {
        begun_part.is_gone();
    }
    placed?;
    how.progress.file();
    Ok(())
}

/// The next piece of standard input, empty at its end. Read on a thread, since it may be
/// waited for.
async fn input_piece() -> frevo_client::Result<Vec<u8>> {
    let read = || {
        let mut piece = Vec::new();
        io::stdin().lock().take(PIECE as u64).read_to_end(&mut piece).map(|_| piece)
    };
    let read = tokio::task::spawn_blocking(read)
        .await
        .unwrap_or_else(|_| Err(ErrorKind::Interrupted.into()));
    read.map_err(local_error("read", Path::new("standard input")))
}

/// All of a file that is probably `len` bytes long. Then one read finds its end too: it
/// leaves the byte free that there is room for beyond.
fn whole(file: &LocalHandle, len: u64) -> io::Result<Vec<u8>> {
    let expected = usize::try_from(len).unwrap_or(0);
    let mut data = vec![0; expected + 1];
    let mut filled = 0;
    loop {
        let room = data.get_mut(filled..).unwrap_or_default();
        match (&*file).read(room) {
            // A file of the kernel, as in /proc, may return less than was asked for, so reading
            // continues up to its end or the expected length.
            Ok(count) if count == 0 || filled + count == expected => {
                data.truncate(filled + count);
                return Ok(data);
            }
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if filled == data.len() {
            data.resize(filled * 2, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_file_is_read_whatever_its_length_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let content: Vec<u8> = (0..10_000_u32).map(|n| (n % 251) as u8).collect();
        for held in [0, 1, 4096, 10_000] {
            let content = content.get(..held).unwrap();
            std::fs::write(&path, content).unwrap();
            for said in [0, 1, 4095, 4096, 4097, 10_000, 20_000] {
                let file = LocalHandle::open(&path).unwrap();
                assert_eq!(whole(&file, said).unwrap(), content, "{held}, {said}");
            }
        }
    }

    #[test]
    fn what_is_made_up_while_it_is_read_is_read_to_its_end() {
        let path = "/proc/self/limits";
        let file = LocalHandle::open(path).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
        assert_eq!(whole(&file, 0).unwrap(), std::fs::read(path).unwrap());
    }
}
