//! Listing of the objects below a prefix.

use std::io::ErrorKind;

use ::object_store::path::Path;
use ::object_store::{ListResult, ObjectMeta, Result};
use futures_util::stream::{self, BoxStream, StreamExt};

use super::locations::{directory_path, failure, is_internal, location, object_meta};
use crate::error::Error;
use crate::share::Share;
use crate::share::tree::Walk;

/// Lists all objects below `prefix`.
pub(super) fn list(share: &Share, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
    let prefix = prefix.cloned().unwrap_or_default();
    let walk = match directory_path(share, &prefix) {
        Ok(path) => share.walk(&path),
        Err(error) => return stream::once(async { Err(error) }).boxed(),
    };
    let state = (share.clone(), prefix, walk);
    stream::unfold(state, |(share, prefix, mut walk)| async move {
        let next = next_object(&share, &prefix, &mut walk).await?;
        Some((next, (share, prefix, walk)))
    })
    .boxed()
}

/// The next object of a walk, `None` at the end.
async fn next_object(share: &Share, prefix: &Path, walk: &mut Walk) -> Option<Result<ObjectMeta>> {
    loop {
        let entry = match walk.next_entry().await {
            Ok(entry) => entry?,
            Err(error) if is_absent(&error) => continue,
            Err(error) => return Some(Err(failure(error, prefix))),
        };
        if entry.file_type().is_file() && !is_internal(entry.file_name()) {
            let location = location(share, entry.path());
            return Some(location.map(|location| object_meta(location, entry.metadata())));
        }
    }
}

/// Lists the objects and directories in `prefix`.
pub(super) async fn list_one(share: &Share, prefix: Option<&Path>) -> Result<ListResult> {
    let prefix = prefix.cloned().unwrap_or_default();
    let path = directory_path(share, &prefix)?;
    let entries = match share.list_dir(&path).await {
        Err(error) if is_absent(&error) => Vec::new(),
        listed => listed.map_err(|error| failure(error, &prefix))?,
    };
    let slash = if path.is_empty() { "" } else { "/" };
    let (mut common_prefixes, mut objects) = (Vec::new(), Vec::new());
    for entry in entries {
        let location = || location(share, &format!("{path}{slash}{}", entry.file_name()));
        if entry.file_type().is_dir() && !entry.metadata().is_junction() {
            common_prefixes.push(location()?);
        } else if entry.file_type().is_file() && !is_internal(entry.file_name()) {
            objects.push(object_meta(location()?, entry.metadata()));
        }
    }
    common_prefixes.sort();
    objects.sort_by(|one, other| one.location.cmp(&other.location));
    Ok(ListResult { common_prefixes, objects, extensions: Default::default() })
}

/// Returns true if no directory has the name: the prefix of no object.
fn is_absent(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
