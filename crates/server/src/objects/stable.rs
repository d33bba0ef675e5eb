//! Puts data, attributes and names on stable storage, away from the core: a disk takes its time, and
//! one that stalls holds up its own files alone.
//!
//! The work is boxed: few requests have any, and the state of every request would have room for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frevo_net::file_io;
use frevo_store::file_cell::Unstable;
use frevo_store::vfs::{KindWanted, OpenHow, VfsResult};
use frevo_store::{Fault, Name, Vfs};
use frevo_wire::Status;
use frevo_wire::command::create::CreateOptions;

use crate::objects::data::status;
use crate::objects::open::FileOpen;
use crate::objects::syncs::Syncs;

/// Puts what was done through an Open on stable storage: what was written, attributes, and the name
/// that the file got.
pub(crate) async fn sync(file: &FileOpen) -> Result<(), Status> {
    Box::pin(sync_with(file, Vec::new())).await
}

/// A change by a request that is about to be answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The file was made.
    Made,
    /// The file got and lost these names.
    Names(Vec<Name>),
    /// Attributes, times, protection or streams.
    Attributes,
    /// The size, which is stable with the data.
    Size,
}

/// Puts a change on stable storage before it is acknowledged, if the Open writes through. Otherwise
/// a FLUSH does so, through whichever Open of the file it comes.
///
/// Windows: FILE_WRITE_THROUGH also flushes changes of metadata, such as a rename, that a request
/// makes (CreateFile, "Caching Behavior"), and FlushFileBuffers writes all metadata of the file of
/// a handle, as POSIX says of fsync. MS-SMB2 3.3.5.9 sets FILE_WRITE_THROUGH for each Open of a
/// continuously available share.
pub(crate) async fn sync_change(file: &FileOpen, change: Change) -> Result<(), Status> {
    if file.has_mode(CreateOptions::WRITE_THROUGH) {
        let names = if let Change::Names(names) = change { names } else { Vec::new() };
        return Box::pin(sync_with(file, names)).await;
    }
    let unstable = match change {
        Change::Made => {
            file.made.store(true, Ordering::Release);
            Unstable::MADE
        }
        Change::Names(names) if names.is_empty() => return Ok(()),
        Change::Names(_) => Unstable::NAMED,
        Change::Attributes => Unstable::ALTERED,
        Change::Size => return Ok(()),
    };
    file.cell.note_unstable(unstable);
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
    let changes = Changes::of(file);
    match file.io() {
        Some(io) if changes.are_none() && file.node.is_synced_by_descriptor() => {
            io.sync(true, &syncs.errno).await.map_err(|error| status(&error))?;
        }
        _ => {
            let (node, vfs) = (Arc::clone(&file.node), Arc::clone(&file.vfs));
            let name = changes.has_names().then(|| file.name());
            let is_altered = changes.have(Unstable::ALTERED);
            let work = move || {
                if is_altered { node.sync_all() } else { node.sync() }?;
                name.iter().try_for_each(|name| sync_entry(&*vfs, name))
            };
            off_core(file, move || work().inspect_err(|fault| syncs.fail(fault.status()))).await?;
        }
    }
    changes.are_stable(file);
    Ok(())
}

/// The changes of a file through any of its Opens that may not be stable. They stay so for others
/// while one sync runs.
struct Changes {
    /// Of the stream, or the file.
    own: Unstable,
    /// Of the file, when a stream is open.
    base: Unstable,
    /// The file was made through this Open.
    made: bool,
}

impl Changes {
    fn of(file: &FileOpen) -> Self {
        let base = file.base.as_ref().map(|base| base.unstable()).unwrap_or_default();
        Self { own: file.cell.unstable(), base, made: file.made.load(Ordering::Acquire) }
    }

    const fn are_none(&self) -> bool {
        self.own.is_nothing() && self.base.is_nothing()
    }

    const fn have(&self, change: Unstable) -> bool {
        self.own.contains(change) || self.base.contains(change)
    }

    /// True if the directory of the name must be made stable. The node through which the file was
    /// made does so by itself.
    const fn has_names(&self) -> bool {
        self.have(Unstable::NAMED) || self.have(Unstable::MADE) && !self.made
    }

    fn are_stable(&self, file: &FileOpen) {
        if self.made {
            file.made.store(false, Ordering::Release);
        }
        file.cell.are_stable(self.own);
        if let Some(base) = &file.base {
            base.are_stable(self.base);
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
        // The directory was moved or removed with all its entries, so there is nothing to sync.
        Err(Fault::NotFound | Fault::PathNotFound | Fault::Stale | Fault::NotADirectory) => Ok(()),
        Err(fault) => Err(fault),
    }
}
