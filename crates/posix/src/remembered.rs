//! Memory for what is remembered of clients' files: facts from attributes, names of directories,
//! open folders. It is counted, and given up when the server needs memory for its clients.
//!
//! A server that stays full would have it given up at each look, and gathered again by the next
//! request. So after each time nothing is gathered that can be done without, and nothing is given up
//! again, for [`crate::limits::FORGOTTEN_FOR`].

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::cache::NameCache;
use crate::kept_folders::KeptFolders;
use crate::{credentials, facts, host, kept_folders, memory};

/// The names and folders of all shares.
static SHARES: Mutex<Vec<Remembering>> = Mutex::new(Vec::new());

/// Returns the bytes that everything remembered takes.
pub fn remembered_bytes() -> usize {
    facts::bytes() + memory::of_names() + kept_folders::bytes()
}

/// Returns the bytes of all watched directories, which accounts have by their places
/// ([`frevo_store::HostPlaces::bytes`]).
pub fn watched_bytes() -> usize {
    host::paths::bytes()
}

/// Forgets everything, to free its memory: facts at once, names and folders on a thread of their own,
/// since they are many small pieces. Does nothing for a while after the last time.
pub fn forget_remembered() {
    if !memory::pause() {
        return;
    }
    facts::forget();
    let shares = SHARES.lock().clone();
    let forget = move || {
        credentials::begin_thread();
        for share in shares {
            share.names.upgrade().into_iter().for_each(|names| names.clear());
            share.folders.upgrade().into_iter().for_each(|folders| folders.clear());
        }
    };
    // If the thread cannot be started, the next call of this function drops the old entries.
    let _ = std::thread::Builder::new().name("forget".into()).spawn(forget);
}

/// Forgets the names of directories that nobody has used for a while. To be called each
/// [`crate::limits::CACHED_NAMES_LOOK`] while [`remembers_names`], by no core.
pub fn forget_unused_names() {
    let shares = SHARES.lock().clone();
    for names in shares.iter().filter_map(|share| share.names.upgrade()) {
        names.forget_unused();
    }
}

/// True if names of any directory are remembered.
pub fn remembers_names() -> bool {
    memory::of_names() > 0
}

/// The names and folders of one share.
#[derive(Debug, Clone)]
struct Remembering {
    names: Weak<NameCache>,
    folders: Weak<KeptFolders>,
}

/// Adds what a share remembers.
pub(crate) fn register(names: &Arc<NameCache>, folders: &Arc<KeptFolders>) {
    let mut shares = SHARES.lock();
    shares.retain(|share| share.names.strong_count() > 0);
    shares.push(Remembering { names: Arc::downgrade(names), folders: Arc::downgrade(folders) });
}
