//! Puts data, attributes and names on stable storage, away from the core: a disk takes its time, and
//! one that stalls holds up its own files alone.
//!
//! The work is boxed: few requests have any, and the state of every request would have room for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frevo_net::file_io;
use frevo_store::vfs::{KindWanted, OpenHow, VfsResult};
use frevo_store::{Fault, Name, Vfs};
use frevo_wire::Status;
use frevo_wire::command::create::CreateOptions;

use crate::data::status;
use crate::open::FileOpen;
use crate::syncs::Syncs;

/// Puts what was done through an Open on stable storage: what was written, attributes, and the name
/// that the file got.
pub(crate) async fn sync(file: &FileOpen) -> Result<(), Status> {
    Box::pin(sync_with(file, Vec::new())).await
}

/// Puts a change of names or attributes on stable storage before it is acknowledged, if the Open
/// writes through. Otherwise a FLUSH does so. `names` were given or taken.
///
/// Windows: FILE_WRITE_THROUGH also flushes changes of metadata, such as a rename, that a request
/// makes (CreateFile, "Caching Behavior"). MS-SMB2 3.3.5.9 sets it for each Open of a continuously
/// available share.
pub(crate) async fn sync_change(file: &FileOpen, names: Vec<Name>) -> Result<(), Status> {
    if file.has_mode(CreateOptions::WRITE_THROUGH) {
        return Box::pin(sync_with(file, names)).await;
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
        return sync(file).await;
    }
    let vfs = Arc::clone(&file.vfs);
    Box::pin(off_core(file, move || sync_entry(&*vfs, &name))).await
}

async fn sync_with(file: &FileOpen, names: Vec<Name>) -> Result<(), Status> {
    let syncs = file.syncs.get_or_init(Arc::default);
    syncs.join(|syncs| sync_now(file, syncs)).await?;
    if names.is_empty() {
        return Ok(());
    }
    let (syncs, vfs) = (Arc::clone(syncs), Arc::clone(&file.vfs));
    let entries = move || names.iter().try_for_each(|name| sync_entry(&*vfs, name));
    off_core(file, move || entries().inspect_err(|fault| syncs.fail(fault.status()))).await
}

/// Puts on stable storage what was done up to now, except for names that a request gives or takes.
/// The work goes on when this is dropped, and its failure is kept.
async fn sync_now(file: &FileOpen, syncs: Arc<Syncs>) -> Result<(), Status> {
    let mut moved = Moved::take(file);
    match file.io() {
        Some(io) if !moved.is_so && file.node.is_synced_by_descriptor() => {
            io.sync(true, &syncs.errno).await.map_err(|error| status(&error))?;
        }
        _ => {
            let (node, vfs) = (Arc::clone(&file.node), Arc::clone(&file.vfs));
            let name = moved.is_so.then(|| file.name());
            let work = move || {
                node.sync()?;
                name.iter().try_for_each(|name| sync_entry(&*vfs, name))
            };
            off_core(file, move || work().inspect_err(|fault| syncs.fail(fault.status()))).await?;
        }
    }
    moved.is_so = false;
    Ok(())
}

/// The mark of a file that got a name. It is set again unless the name has become stable.
struct Moved<'a> {
    file: &'a FileOpen,
    is_so: bool,
}

impl<'a> Moved<'a> {
    fn take(file: &'a FileOpen) -> Self {
        Self { file, is_so: file.moved.swap(false, Ordering::AcqRel) }
    }
}

impl Drop for Moved<'_> {
    fn drop(&mut self) {
        if self.is_so {
            self.file.moved.store(true, Ordering::Release);
        }
    }
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
