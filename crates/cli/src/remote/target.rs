//! The target argument of a copy: a file to write, or a directory to copy into.

use std::path::Path;

use frevo_client::Share;

use super::location::Url;
use super::logon::failed;
use crate::exit::{Done, Exit, Failure};

/// True when the local `to` is a directory to copy `count` sources into. A directory that is
/// named by a `/` at the end is created, except in a dry run.
pub(crate) fn is_local_directory(to: &Path, count: usize, dry_run: bool) -> Result<bool, Failure> {
    if to.is_dir() {
        return Ok(true);
    }
    if to.as_os_str().as_encoded_bytes().ends_with(b"/") {
        if !dry_run {
            create_local(to)?;
        }
        return Ok(true);
    }
    if count > 1 {
        return Err(not_a_directory(&to.display()));
    }
    Ok(false)
}

/// Creates a local directory and its parents, unless they exist.
pub(crate) fn create_local(path: &Path) -> Done {
    std::fs::create_dir_all(path)
        .map_err(Failure::failed(format!("cannot create {}", path.display())))
}

/// True when `url` is a directory to copy `count` sources into. A directory that is named by a
/// `/` at the end is created, except in a dry run.
pub(crate) async fn is_remote_directory(
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
        return Err(not_a_directory(url));
    }
    Ok(false)
}

fn not_a_directory(target: &impl std::fmt::Display) -> Failure {
    let text =
        format!("{target} is not a directory; several files can only be copied to a directory");
    Failure::new(Exit::Usage, text)
}
