//! Reading of objects and of ranges of them.

use std::ops::Range;

use ::object_store::path::Path;
use ::object_store::{GetOptions, GetRange, GetResult, GetResultPayload, Result};
use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};

use super::locations::{failure, generic, object_meta, share_path};
use crate::error::Error;
use crate::file::File;
use crate::metadata::Metadata;
use crate::share::Share;

/// Pieces of an object that are read ahead.
const READ_AHEAD: usize = 4;
/// Ranges of one request that are read at the same time.
const RANGES_AT_ONCE: usize = 16;

/// Returns an object: its metadata and a stream of its data, both of one version.
pub(super) async fn get(share: &Share, location: &Path, options: &GetOptions) -> Result<GetResult> {
    let path = share_path(share, location)?;
    let answer = |metadata: &Metadata, whole: Option<Bytes>| {
        let meta = object_meta(location.clone(), metadata);
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            Some(range) => range.as_range(meta.size).map_err(generic)?,
            None => 0..whole.as_ref().map_or(meta.size, |whole| whole.len() as u64),
        };
        let data = stream::iter(whole.map(Ok)).boxed();
        let payload = GetResultPayload::Stream(data);
        let (attributes, extensions) = Default::default();
        Ok(GetResult { payload, meta, range, attributes, extensions })
    };
    if options.head {
        let found = share.lookup(&path).await.map_err(|error| failure(error, location))?;
        if found.is_dir() {
            let error = Error::new(crate::Status::FILE_IS_A_DIRECTORY, "open", share.url(&path));
            return Err(failure(error, location));
        }
        if found.is_file() {
            return answer(&found, None);
        }
    } else if options.range.is_none() {
        let small = share.read_small_with(&path, true).await;
        // Some servers send no file number with the data. Then the code below asks for it.
        if let Some((data, metadata)) = small.map_err(|error| failure(error, location))?
            && metadata.file_id() != 0
            && metadata.len() == data.len() as u64
        {
            return answer(&metadata, Some(data.into()));
        }
    }
    let (file, metadata) = open(share, &path, location).await?;
    let mut result = answer(&metadata, None)?;
    if !options.head {
        let data = pieces(file, location.clone(), result.range.clone()).await?;
        result.payload = GetResultPayload::Stream(data);
    }
    Ok(result)
}

/// Returns several ranges of one version of an object.
pub(super) async fn ranges(
    share: &Share,
    location: &Path,
    ranges: &[Range<u64>],
) -> Result<Vec<Bytes>> {
    let path = share_path(share, location)?;
    let (file, metadata) = open(share, &path, location).await?;
    let mut exact = Vec::with_capacity(ranges.len());
    for range in ranges {
        let range = GetRange::Bounded(range.clone()).as_range(metadata.len()).map_err(generic)?;
        exact.push(range);
    }
    let read = exact.into_iter().map(|range| {
        let (file, location) = (file.clone(), location.clone());
        async move {
            let mut whole = BytesMut::new();
            let mut data = pieces(file, location, range).await?;
            while let Some(piece) = data.try_next().await? {
                whole.extend_from_slice(&piece);
            }
            Ok(whole.freeze())
        }
    });
    stream::iter(read).buffered(RANGES_AT_ONCE).try_collect().await
}

/// Opens an object. The metadata includes the file's number.
async fn open(share: &Share, path: &str, location: &Path) -> Result<(File, Metadata)> {
    let file = share.open(path).await.map_err(|error| failure(error, location))?;
    let metadata = file.metadata().await.map_err(|error| failure(error, location))?;
    Ok((file, metadata))
}

/// A range of an open object as a stream, read ahead.
async fn pieces(
    file: File,
    location: Path,
    range: Range<u64>,
) -> Result<BoxStream<'static, Result<Bytes>>> {
    let (most, _) = file.sizes().await.map_err(|error| failure(error, &location))?;
    let starts = (range.start..range.end).step_by(most as usize);
    let pieces = stream::iter(starts).map(move |at| {
        let (file, location) = (file.clone(), location.clone());
        let end = range.end.min(at.saturating_add(most.into()));
        async move { piece(&file, at..end).await.map_err(|error| failure(error, &location)) }
    });
    Ok(pieces.buffered(READ_AHEAD).boxed())
}

/// A range that fits in one READ.
async fn piece(file: &File, range: Range<u64>) -> crate::error::Result<Bytes> {
    let want = |at: u64| u32::try_from(range.end.saturating_sub(at)).unwrap_or(u32::MAX);
    let first = file.read_bytes(range.start, want(range.start)).await?;
    let mut at = range.start + first.len() as u64;
    if at == range.end {
        return Ok(first);
    }
    // The server returned less than was asked for, or the object has become shorter. So the rest is
    // read piece by piece.
    let mut whole = BytesMut::from(&*first);
    while at < range.end {
        let next = file.read_bytes(at, want(at)).await?;
        if next.is_empty() {
            return Err(Error::new(crate::Status::END_OF_FILE, "read", file.url()));
        }
        at += next.len() as u64;
        whole.extend_from_slice(&next);
    }
    Ok(whole.freeze())
}
