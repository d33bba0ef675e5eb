//! Puts data, attributes and names on stable storage, away from the core: a disk takes its time, and
//! one that stalls holds up its own files alone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frevo_net::file_io;
use frevo_store::vfs::{KindWanted, OpenHow, VfsResult};
use frevo_store::{Fault, Name, Vfs};
use frevo_wire::Status;
use frevo_wire::command::create::CreateOptions;

use crate::data::status;
use crate::open::FileOpen;

/// Puts what was done through an Open on stable storage: what was written, attributes, and the name
/// that the file got.
pub(crate) async fn sync(file: &FileOpen) -> Result<(), Status> {
    sync_with(file, Vec::new()).await
}

/// Puts a change of names or attributes on stable storage before it is acknowledged, if the Open
/// writes through. Otherwise a FLUSH does so. `names` were given or taken.
///
/// Windows: FILE_WRITE_THROUGH also flushes changes of metadata, such as a rename, that a request
/// makes (CreateFile, "Caching Behavior"). MS-SMB2 3.3.5.9 sets it for each Open of a continuously
/// available share.
pub(crate) async fn sync_change(file: &FileOpen, names: Vec<Name>) -> Result<(), Status> {
    if file.has_mode(CreateOptions::WRITE_THROUGH) {
        return sync_with(file, names).await;
    }
    if !names.is_empty() {
        file.moved.store(true, Ordering::Release);
    }
    Ok(())
}

/// Puts the removal of `name` by the close of an Open on stable storage, if the Open writes through.
pub(crate) async fn sync_removal(file: &FileOpen, name: Name) -> Result<(), Status> {
    if !file.has_mode(CreateOptions::WRITE_THROUGH) {
        return Ok(());
    }
    if name.stream().is_some() {
        return sync_with(file, Vec::new()).await;
    }
    let vfs = Arc::clone(&file.vfs);
    off_core(file, move || sync_entry(&*vfs, &name)).await
}

async fn sync_with(file: &FileOpen, mut names: Vec<Name>) -> Result<(), Status> {
    if let Some(failure) = file.sync_failure.get() {
        return Err(*failure);
    }
    if file.moved.swap(false, Ordering::AcqRel) {
        names.push(file.name());
    }
    let (node, vfs) = (Arc::clone(&file.node), Arc::clone(&file.vfs));
    let outcome = off_core(file, move || {
        node.sync()?;
        names.iter().try_for_each(|name| sync_entry(&*vfs, name))
    });
    outcome.await.inspect_err(|failure| {
        let _ = file.sync_failure.set(*failure);
    })
}

async fn off_core(
    file: &FileOpen,
    work: impl FnOnce() -> VfsResult<()> + Send + 'static,
) -> Result<(), Status> {
    let outcome = match file.io() {
        Some(io) => io.run_blocking(move |_| Ok(work())).await,
        None => file_io::run_blocking(work).await,
    };
    match outcome {
        Ok(outcome) => outcome.map_err(Fault::status),
        Err(error) => Err(status(&error)),
    }
}

/// Makes the entries of the directory stable that has `name`, or had it.
fn sync_entry(vfs: &dyn Vfs, name: &Name) -> VfsResult<()> {
    let how = OpenHow { kind: KindWanted::Directory, ..OpenHow::LOOK };
    match vfs.open(&name.parent(), &how) {
        Ok(opened) => opened.node.sync(),
        // Somebody has moved or removed it meanwhile, with its entries.
        Err(Fault::NotFound | Fault::PathNotFound | Fault::Stale | Fault::NotADirectory) => Ok(()),
        Err(fault) => Err(fault),
    }
}
