//! One file from here to there: begun under a name of its own, put in its place
//! when it is whole, gone on with when it was interrupted.

use std::fs::File as LocalHandle;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use frevo_client::{Cause, Error, File, Metadata, OpenOptions, STORE_WINDOW, Share};
use frevo_net::buffer::Buf;
use futures_util::stream::{FuturesUnordered, TryStreamExt};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::copy::is_full;
use super::holes::{self, Ranges};
use super::place::join;
use super::progress::Progress;

/// Files up to this many bytes go in one round trip and are not resumed.
const SMALL: u64 = 65_536;

/// Pieces that are written at once where they were read from another server: 16 MiB.
const WRITES_AT_ONCE: usize = 16;

/// Whether a file of `len` bytes goes in one round trip: then it may as well be begun
/// again on another connection.
pub(crate) const fn is_small(len: u64) -> bool {
    len <= SMALL
}

/// Ends the name of a file that is not whole.
pub(crate) const PART: &str = ".frevo-part";

/// The name under which a file is begun. It tells which version of the source
/// it is of, so that a changed source is begun anew.
fn part_name(name: &str, len: u64, modified: SystemTime) -> String {
    let ticks = frevo_client::file_time(modified).0;
    // FNV-1a: any mixing will do.
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for byte in name.bytes().chain(len.to_le_bytes()).chain(ticks.to_le_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
    }
    format!("{hash:016x}{PART}")
}

/// The same here, where it is not listed. On a server it has no dot: smbd may keep it that such
/// a name is hidden, whatever the file is called later.
fn hidden(name: &str, len: u64, modified: SystemTime) -> String {
    format!(".{}", part_name(name, len, modified))
}

fn local_error(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    let path = path.display().to_string();
    move |error| Error::new(Cause::Local(Arc::new(error)), operation, path.clone())
}

/// What is wrong with the local end of a copy is said of that.
pub(crate) fn at_local(operation: &'static str, path: &Path) -> impl FnOnce(Error) -> Error {
    let path = path.display().to_string();
    move |error| match error.cause() {
        Cause::Local(_) => Error::new(error.cause().clone(), operation, path),
        _ => error,
    }
}

/// Fetches `path` to the local file `to`.
pub(crate) async fn down(
    share: &Share,
    path: &str,
    to: &Path,
    known: Option<&Metadata>,
    progress: &Progress,
) -> frevo_client::Result<()> {
    let broken = local_error("write", to);
    let name = to.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if let Some(known) = known.filter(|metadata| is_small(metadata.len())) {
        // Nothing is not read: see `File::fetch_all`.
        let (data, metadata) = match known.is_empty() {
            true => (Vec::new(), *known),
            false => share.read_with_metadata(path).await?,
        };
        let part = to.with_file_name(hidden(name, metadata.len(), metadata.modified()));
        let written = LocalHandle::create(&part).and_then(|mut local| {
            local.write_all(&data)?;
            local.set_modified(metadata.modified())?;
            std::fs::rename(&part, to)
        });
        if written.is_err() {
            let _ = std::fs::remove_file(&part);
        }
        written.map_err(broken)?;
        progress.advance(data.len() as u64);
        progress.file();
        return Ok(());
    }
    let file = OpenOptions::new().read(true).open(share, path).await?;
    let metadata = file.metadata_at_open();
    let part = to.with_file_name(hidden(name, metadata.len(), metadata.modified()));
    let local = LocalHandle::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&part)
        .map_err(&broken)?;
    // What is there came in order, so all of it is good.
    let begun = local.metadata().map_err(&broken)?.len().min(metadata.len());
    progress.advance(begun);
    let fetched = fetch_data(&file, &metadata, begun, &local, progress).await;
    let fetched = fetched.map_err(at_local("write", to));
    if fetched.as_ref().is_err_and(|error| !may_go_on(error)) {
        let _ = std::fs::remove_file(&part);
    }
    let end = fetched?;
    local
        .set_len(end)
        .and_then(|()| local.set_modified(metadata.modified()))
        .and_then(|()| std::fs::rename(&part, to))
        .map_err(&broken)?;
    progress.file();
    file.close().await
}

/// Fetches what of `file` is no hole and lies behind `begun`: where it ends.
async fn fetch_data(
    file: &File,
    metadata: &Metadata,
    begun: u64,
    local: &LocalHandle,
    progress: &Progress,
) -> frevo_client::Result<u64> {
    let len = metadata.len();
    let mut at = begun;
    for range in holes::there(file, metadata).await? {
        let Some((from, count)) = holes::rest(range, at, len) else { continue };
        progress.advance(from - at);
        let sink = |at: u64, piece: Buf| {
            let written = local.write_all_at(&piece, at);
            progress.advance(piece.len() as u64);
            std::future::ready(written)
        };
        let fetched = file.fetch(from, count, sink).await?;
        at = from + fetched;
        if fetched < count {
            // It has become shorter meanwhile.
            return Ok(at);
        }
    }
    if at < len {
        progress.advance(len - at);
        // Behind the data is a hole, if it is still there.
        return Ok(file.metadata().await?.len().clamp(at, len));
    }
    Ok(at)
}

/// Fetches `path` into a device or a pipe, in order.
pub(crate) async fn down_into(
    share: &Share,
    path: &str,
    to: &Path,
    progress: &Progress,
) -> frevo_client::Result<()> {
    let mut local =
        LocalHandle::options().write(true).open(to).map_err(local_error("write", to))?;
    let file = share.open(path).await?;
    let sink = |_: u64, piece: Buf| {
        let written = local.write_all(&piece);
        progress.advance(piece.len() as u64);
        std::future::ready(written)
    };
    file.fetch_all(sink).await.map_err(at_local("write", to))?;
    progress.file();
    file.close().await
}

/// Sends the local file `from` to `path`.
pub(crate) async fn up(
    share: &Share,
    from: &Path,
    path: &str,
    progress: &Progress,
) -> frevo_client::Result<()> {
    let broken = local_error("read", from);
    let local = LocalHandle::open(from).map_err(&broken)?;
    let metadata = local.metadata().map_err(&broken)?;
    let modified = metadata.modified().map_err(&broken)?;
    let len = metadata.len();
    if is_small(len) {
        let data = whole(&local, len).map_err(&broken)?;
        share.write_dated(path, &data, Some(modified)).await?;
        progress.advance(len);
        progress.file();
        return Ok(());
    }
    let (directory, name) = frevo_client::path::split(path);
    let part = join(directory, &part_name(name, len, modified));
    let options = OpenOptions::new().read(true).write(true).create(true);
    let file = options.open(share, &part).await.map_err(begun_as(share, path))?;
    // Pieces go out of order, but none further ahead than that.
    let begun = file.metadata_at_open().len().saturating_sub(STORE_WINDOW).min(len);
    progress.advance(begun);
    let stored = async {
        let data = holes::here(&local).map_err(&broken)?;
        let data = holes::allowed(&file, data, len).await?;
        store_data(&file, data, begun, len, &Arc::new(local), progress)
            .await
            .map_err(at_local("read", from))?;
        file.set_len(len).await?;
        file.sync().await?;
        file.set_times(Some(modified), None).await
    };
    if let Err(error) = stored.await {
        let _ = file.close().await;
        if !may_go_on(&error) {
            let _ = share.remove_file(&part).await;
        }
        return Err(error);
    }
    file.close().await?;
    put_in_place(share, &part, path).await?;
    progress.file();
    Ok(())
}

/// Sends what of `local` is in `data` and lies behind `begun`.
async fn store_data(
    file: &File,
    data: Ranges,
    begun: u64,
    len: u64,
    local: &Arc<LocalHandle>,
    progress: &Progress,
) -> frevo_client::Result<()> {
    let mut at = begun;
    for range in data {
        let Some((from, count)) = holes::rest(range, at, len) else { continue };
        progress.advance(from - at);
        let local = Arc::clone(local);
        let fill =
            move |at: u64, count: usize, buf: &mut Buf| buf.append_from_file(&local, at, count);
        let advance = |bytes: u64| {
            progress.advance(bytes);
            true
        };
        file.store(from, count, fill, advance).await?;
        at = from + count;
    }
    progress.advance(len - at);
    Ok(())
}

/// What keeps a part from being made is wrong with the file that it would become.
fn begun_as(share: &Share, path: &str) -> impl FnOnce(Error) -> Error {
    let url = share.url(path);
    move |error| Error::new(error.cause().clone(), "write", url)
}

/// Bytes of standard input that are sent at once.
const PIECE: usize = 1 << 20;

/// Sends standard input to `path`. What was interrupted is begun anew the next time.
pub(crate) async fn up_from_input(
    share: &Share,
    path: &str,
    progress: &Progress,
) -> frevo_client::Result<()> {
    let (directory, name) = frevo_client::path::split(path);
    let part = join(directory, &part_name(name, 0, SystemTime::UNIX_EPOCH));
    let options = OpenOptions::new().write(true).create(true).truncate(true);
    let file = options.open(share, &part).await.map_err(begun_as(share, path))?;
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
            writes.push(async move { file.write_at(begin, &piece).await.map(|()| len) });
            if writes.len() >= WRITES_AT_ONCE {
                progress.advance(writes.try_next().await?.unwrap_or(0));
            }
        }
        while let Some(written) = writes.try_next().await? {
            progress.advance(written);
        }
        file.sync().await
    };
    let stored = stored.await;
    let closed = file.close().await;
    if let Err(error) = stored.and(closed) {
        let _ = share.remove_file(&part).await;
        return Err(error);
    }
    put_in_place(share, &part, path).await?;
    progress.file();
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
            // What is made up while it is read, as in /proc, comes in parts.
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

/// Gives a whole part its name. Nobody else touches the part: when the answer to
/// the rename was lost, a part that is gone was renamed, and one that is there
/// was not.
async fn put_in_place(share: &Share, part: &str, path: &str) -> frevo_client::Result<()> {
    let mut was_lost = false;
    loop {
        match share.rename(part, path, true).await {
            Err(error) if matches!(error.cause(), Cause::Unknown) => was_lost = true,
            Err(error) if was_lost && error.is_not_found() => {
                // Whatever is there has the part's content.
                return share.metadata(path).await.map(drop);
            }
            done => return done.map_err(begun_as(share, path)),
        }
    }
}

/// Whether what is there of a file may be gone on with: not when there is no room for it,
/// which it would take from others.
fn may_go_on(error: &Error) -> bool {
    !is_full(error)
}

/// Copies from one share to another: on the server when both are on one and it can, else
/// through this machine.
pub(crate) async fn across(
    from: &Share,
    path: &str,
    to: &Share,
    target: &str,
    progress: &Progress,
) -> frevo_client::Result<()> {
    let source = OpenOptions::new().read(true).open(from, path).await?;
    let metadata = source.metadata_at_open();
    let (directory, name) = frevo_client::path::split(target);
    let part = join(directory, &part_name(name, metadata.len(), metadata.modified()));
    let options = OpenOptions::new().read(true).write(true).create(true);
    let file = options.open(to, &part).await.map_err(begun_as(to, target))?;
    let filled = fill(&source, &file, &metadata, progress).await;
    // Not left to a CLOSE that nobody waits for: a handle that outlives this program is in
    // the way of whoever removes the file.
    let closed = source.close().await;
    if let Err(error) = filled {
        let _ = file.close().await;
        if !may_go_on(&error) {
            let _ = to.remove_file(&part).await;
        }
        return Err(error);
    }
    closed?;
    file.close().await?;
    put_in_place(to, &part, target).await?;
    progress.file();
    Ok(())
}

/// Copies the content and the time of `source`: what is not there of it yet.
async fn fill(
    source: &File,
    file: &File,
    metadata: &Metadata,
    progress: &Progress,
) -> frevo_client::Result<()> {
    let len = metadata.len();
    let same = source.share().session().server() == file.share().session().server();
    // Pieces go out of order, but none further ahead than that.
    let begun = file.metadata_at_open().len().saturating_sub(STORE_WINDOW).min(len);
    progress.advance(begun);
    let mut at = begun;
    let data = holes::there(source, metadata).await?;
    for (start, count) in holes::allowed(file, data, len).await? {
        let end = start.saturating_add(count).min(len);
        let skipped = start.min(len).saturating_sub(at);
        progress.advance(skipped);
        at = at.saturating_add(skipped);
        while at < end {
            let piece = (end - at).min(STORE_WINDOW);
            let copied = same && source.copy_range_to(file, at, at, piece).await?.is_some();
            if copied {
                progress.advance(piece);
                progress.by_server(piece);
                at += piece;
            } else {
                at += stream(source, file, at, end - at, progress).await?;
                // It has become shorter meanwhile.
                if at < end {
                    break;
                }
            }
        }
    }
    progress.advance(len.saturating_sub(at));
    file.set_len(len).await?;
    file.sync().await?;
    file.set_times(Some(metadata.modified()), None).await
}

/// Reads here and writes there, many pieces under way: how much there was.
async fn stream(
    source: &File,
    file: &File,
    from: u64,
    len: u64,
    progress: &Progress,
) -> frevo_client::Result<u64> {
    let places = Arc::new(Semaphore::new(WRITES_AT_ONCE));
    let writes = Mutex::new(JoinSet::new());
    let under_way = || writes.lock().unwrap_or_else(PoisonError::into_inner);
    let taken = |written: Result<frevo_client::Result<u64>, _>| match written {
        Ok(written) => written.map(|count| progress.advance(count)).map_err(io::Error::from),
        Err(_) => Err(ErrorKind::Interrupted.into()),
    };
    let sink = |at: u64, piece: Buf| {
        let (places, file) = (Arc::clone(&places), file.clone());
        let (under_way, taken) = (&under_way, &taken);
        async move {
            let place = places.acquire_owned().await.map_err(io::Error::other)?;
            // One that failed ends it now.
            while let Some(written) = under_way().try_join_next() {
                taken(written)?;
            }
            under_way().spawn(async move {
                let _place = place;
                file.write_at(at, &piece).await?;
                Ok(piece.len() as u64)
            });
            Ok(())
        }
    };
    let count = source.fetch(from, len, sink).await?;
    let mut writes = std::mem::take(&mut *under_way());
    while let Some(written) = writes.join_next().await {
        taken(written).map_err(local_error("copy to", Path::new(&file.share().url(""))))?;
    }
    Ok(count)
}

/// Where a fetched thing goes: into a directory under its own name.
pub(crate) fn local_target(to: Option<&Path>, name: &str) -> PathBuf {
    match to {
        None => PathBuf::from(name),
        Some(to) if to.is_dir() => to.join(name),
        Some(to) => to.to_owned(),
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
