//! From one server to another, or from one place of a server to another.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use frevo_client::internal::STORE_WINDOW;
use frevo_client::{File, Metadata, OpenOptions, Share, ShareMode, StreamInfo};
use frevo_net::buffer::Buf;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::super::location::{is_same_server, join};
use super::super::{sparse, spelling};
use super::parts::Part;
use super::replace::{Replaced, put_in_place_later};
use super::stale::clean_remote;
use super::{
    CopyOptions, WRITES_AT_ONCE, is_of_version, is_small, local_error, may_go_on, opened_as,
    part_of, steady,
};

/// Copies from one share to another: on the server when both are on one and it can, else
/// through this machine.
pub(crate) async fn across(
    from: &Share,
    path: &str,
    to: &Share,
    target: &str,
    how: &CopyOptions,
) -> frevo_client::Result<()> {
    let options = OpenOptions::new().read(true);
    let (old, source) =
        futures_util::future::join(Replaced::look(to, target, how.force), options.open(from, path))
            .await;
    let (old, source) = (old?, source?);
    let metadata = source.metadata_at_open();
    let dress = how.carry.of_remote(&metadata);
    let (directory, name) = frevo_client::path::split(target);
    let part = join(directory, &part_of(name, from, path, &metadata));
    if !is_small(metadata.len()) {
        clean_remote(to, &part, how).await;
    }
    let options = OpenOptions::new().read(true).write(true).create(true);
    // The share mode READ lets no second command write to the partial copy (`part`).
    let options = options.share_mode(ShareMode::READ);
    let file = options.open(to, &part).await.map_err(opened_as(to, target))?;
    let begun_part = Part::begun(to, &part);
    how.progress.begin(&spelling::shown(path));
    let filled = async {
        fill(&source, &file, &metadata, how).await?;
        if how.with_streams {
            copy_streams(from, path, to, &part, how).await?;
        }
        // A small file is not flushed to the server's disk, because the next run copies it again if
        // it is lost.
        let synced =
            async { if is_small(metadata.len()) { Ok(()) } else { file.sync_all().await } };
        let (now, ()) = futures_util::future::try_join(source.metadata(), synced).await?;
        let (before, now) = ((metadata.len(), metadata.modified()), (now.len(), now.modified()));
        steady(before, now, || from.url(path))?;
        let old = old.as_ref().map(Replaced::attributes);
        file.set_metadata(&dress.before(old, metadata.modified())).await
    };
    let filled = filled.await;
    // The files are closed before the partial copy (`part`) is removed, because an open handle
    // could prevent the removal.
    let (closed, file_closed) = futures_util::future::join(source.close(), file.close()).await;
    if let Err(error) = filled {
        if !may_go_on(&error) && to.remove_file(&part).await.is_ok() {
            begun_part.is_gone();
        }
        return Err(begun_part.as_target(to, target)(error));
    }
    closed.and(file_closed)?;
    put_in_place_later(to, &part, target, old.as_ref(), &dress).await?;
    begun_part.is_gone();
    how.progress.file();
    Ok(())
}

/// Copies the content of `source`: what is not there of it yet.
async fn fill(
    source: &File,
    file: &File,
    metadata: &Metadata,
    how: &CopyOptions,
) -> frevo_client::Result<()> {
    let len = metadata.len();
    let [from, to] = [source, file].map(|file| file.share().session().server());
    let same = is_same_server(from, to);
    // The earlier run may have written pieces out of order, by at most STORE_WINDOW, so the copy
    // continues that far before the end of the partial copy.
    let mut there = file.metadata_at_open().len();
    let begun = there.saturating_sub(STORE_WINDOW).min(len);
    let ours = |from, count| async move {
        file.read_bytes(from, count).await.ok().map(|bytes| bytes.to_vec())
    };
    if !is_of_version(source, metadata, begun, ours).await? {
        file.set_len(0).await?;
        there = 0;
    }
    let begun = begun.min(there);
    how.progress.advance(begun);
    let mut at = begun;
    let data = sparse::there(source, metadata).await?;
    // smbd reports no holes for a file without SPARSE, but its small allocation shows that it has
    // some. They can be kept only between two servers, because then the data passes through this
    // machine.
    let hides_holes = !same && sparse::is_whole(&data, len) && metadata.allocation() < len;
    let leaves_holes = hides_holes && sets_sparse(file).await?;
    let data = sparse::allowed(file, data, len).await?;
    let end = sparse::end(&data, len).max(there);
    for (start, count) in data {
        let end = start.saturating_add(count).min(len);
        let skipped = start.min(len).saturating_sub(at);
        how.progress.advance(skipped);
        at = at.saturating_add(skipped);
        while at < end {
            let piece = (end - at).min(STORE_WINDOW);
            let copied = same && source.copy_range_to(file, at, at, piece).await?.is_some();
            if copied {
                how.progress.advance(piece);
                how.progress.by_server(piece);
                at += piece;
            } else {
                let piece = Piece { from: at, len: end - at, leaves_holes };
                at += stream(source, file, piece, how).await?;
                // The source has become shorter meanwhile, so there is no more data to copy.
                if at < end {
                    break;
                }
            }
        }
    }
    how.progress.advance(len.saturating_sub(at));
    let is_complete = end == len && at >= len && !leaves_holes;
    if is_complete { Ok(()) } else { file.set_len(len).await }
}

/// Copies the named streams of a file; those that an earlier run left in `part` are replaced.
async fn copy_streams(
    from: &Share,
    path: &str,
    to: &Share,
    part: &str,
    how: &CopyOptions,
) -> frevo_client::Result<()> {
    for StreamInfo { name, .. } in from.streams(path).await? {
        let source = OpenOptions::new().read(true).open(from, &format!("{path}:{name}")).await?;
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(true);
        let stream = options.open(to, &format!("{part}:{name}")).await?;
        let metadata = source.metadata_at_open();
        fill(&source, &stream, &metadata, how).await?;
        let (closed, stream_closed) =
            futures_util::future::join(source.close(), stream.close()).await;
        closed.and(stream_closed)?;
    }
    Ok(())
}

/// Makes `file` sparse. False where the server has no sparse files.
async fn sets_sparse(file: &File) -> frevo_client::Result<bool> {
    match file.set_sparse().await {
        Err(error) if error.status().is_some() => Ok(false),
        done => done.map(|()| true),
    }
}

/// A part of a file that is read here and written there.
#[derive(Clone, Copy)]
struct Piece {
    from: u64,
    len: u64,
    /// Long runs of zeros are not written.
    leaves_holes: bool,
}

/// Reads here and writes there, many pieces under way: how much there was.
async fn stream(
    source: &File,
    file: &File,
    Piece { from, len, leaves_holes }: Piece,
    how: &CopyOptions,
) -> frevo_client::Result<u64> {
    let places = Arc::new(Semaphore::new(WRITES_AT_ONCE));
    let writes = Mutex::new(JoinSet::new());
    let under_way = || writes.lock().unwrap_or_else(PoisonError::into_inner);
    let taken = |written: Result<frevo_client::Result<u64>, _>| match written {
        Ok(written) => written.map(|count| how.progress.advance(count)).map_err(io::Error::from),
        Err(_) => Err(ErrorKind::Interrupted.into()),
    };
    let sink = |at: u64, piece: Buf| {
        let (places, file) = (Arc::clone(&places), file.clone());
        let (under_way, taken) = (&under_way, &taken);
        async move {
            how.take(piece.len() as u64).await;
            let place = places.acquire_owned().await.map_err(io::Error::other)?;
            // Takes the results of finished writes. A failed write ends the copy at once.
            while let Some(written) = under_way().try_join_next() {
                taken(written)?;
            }
            under_way().spawn(async move {
                let _place = place;
                if !leaves_holes {
                    file.write_all_at(&piece, at).await?;
                    return Ok(piece.len() as u64);
                }
                for range in sparse::without_zeros(&piece) {
                    let part = piece.get(range.clone()).unwrap_or_default();
                    file.write_all_at(part, at + range.start as u64).await?;
                }
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
