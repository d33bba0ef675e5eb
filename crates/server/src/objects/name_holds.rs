//! Locks on names for which no core waits: another thread may search a large folder under one.

use frevo_store::name_locks::NamesLocked;
use frevo_store::vfs::VfsResult;
use frevo_store::{Fault, FileTable, FolderId, Name};

use crate::base::host;

/// Locks a name. On a core the request gives up when another thread has it, and goes on on a thread
/// that waits.
///
/// # Errors
/// `Leased` for a request that gave up.
pub(crate) fn hold<'a>(
    files: &'a FileTable,
    folder_id: FolderId,
    name: &Name,
) -> VfsResult<NamesLocked<'a>> {
    let held = files.names.try_hold(folder_id, name);
    or_wait(held, || files.names.hold(folder_id, name))
}

/// Locks two names, as [`hold`] does.
///
/// # Errors
/// `Leased` for a request that gave up.
pub(crate) fn hold_both<'a>(
    files: &'a FileTable,
    folder_id: FolderId,
    one: &Name,
    other: &Name,
) -> VfsResult<NamesLocked<'a>> {
    let held = files.names.try_hold_both(folder_id, one, other);
    or_wait(held, || files.names.hold_both(folder_id, one, other))
}

fn or_wait<'a>(
    held: Option<NamesLocked<'a>>,
    wait: impl FnOnce() -> NamesLocked<'a>,
) -> VfsResult<NamesLocked<'a>> {
    match held {
        Some(held) => Ok(held),
        None if host::gives_up(usize::MAX) => Err(Fault::Leased),
        None => Ok(wait()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests that a core gives up and a thread waits.
    #[test]
    fn a_core_does_not_wait_for_a_name() {
        let files = FileTable::default();
        let (here, name) = (FolderId(1), Name::from_stored(String::from("a")));
        let on_core = || host::short_patience(|| hold(&files, here, &name).map(drop));
        let both = || host::short_patience(|| hold_both(&files, here, &name, &name).map(drop));
        assert_eq!((on_core(), both()), ((Ok(()), false), (Ok(()), false)));
        std::thread::scope(|scope| {
            let (locked, is_locked) = std::sync::mpsc::channel();
            let (go, goes) = std::sync::mpsc::channel::<()>();
            let (files, name) = (&files, &name);
            scope.spawn(move || {
                let held = files.names.hold(here, name);
                locked.send(()).unwrap();
                goes.recv().unwrap();
                drop(held);
            });
            is_locked.recv().unwrap();
            if cfg!(feature = "posix") {
                let gave_up = (Err(Fault::Leased), true);
                assert_eq!((on_core(), both()), (gave_up, gave_up));
            }
            go.send(()).unwrap();
            assert_eq!(hold(files, here, name).map(drop), Ok(()), "a thread waits");
        });
    }
}
