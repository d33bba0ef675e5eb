//! Changes by other programs to files that clients cache.
//!
//! Files have a group and a thread of their own, so that events of leased files and events of
//! watched directories do not delay each other. The kernel keeps one mark for each file. Writes of
//! this process make events too, which the kernel merges while nobody reads them: after a batch of
//! only such events the thread sleeps for [`HOST_OWN_PAUSE`].

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, OnceLock};

use frevo_store::surplus::less_room;
use frevo_store::vfs::VfsResult;
use frevo_store::{Fault, HostChange, HostPlace, Observation, Observed, Observer};
use frevo_wire::command::change_notify::CompletionFilter;
use frevo_wire::fscc::notify::NotifyAction;
use hashbrown::HashMap;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::fanotify::{self, Event, Fanotify, Handle};
use super::modified;
use crate::limits::{HOST_FILES, HOST_OWN_PAUSE};

struct Hub {
    group: Fanotify,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    files: HashMap<Handle, Marked>,
    last_id: u64,
}

/// A file with a mark.
struct Marked {
    observers: Vec<(u64, Observer)>,
    /// The place of the account that observed it first.
    _place: HostPlace,
}

/// Reports to make once no lock is held.
type DueReports = Vec<(Observer, Option<u64>)>;

fn hub() -> Option<&'static Arc<Hub>> {
    static HUB: OnceLock<Option<Arc<Hub>>> = OnceLock::new();
    HUB.get_or_init(|| {
        // The new thread works for all users, so it must not inherit the user that this thread acts
        // as.
        let _server = crate::credentials::as_server();
        let group = Fanotify::of_files().ok()?;
        let hub = Arc::new(Hub { group, state: Mutex::default() });
        let running = Arc::clone(&hub);
        let named = std::thread::Builder::new().name(String::from("host-leases"));
        named.spawn(move || running.run()).ok()?;
        Some(hub)
    })
    .as_ref()
}

/// Begins an observation of the file behind `fd`.
pub(crate) fn observe(fd: Arc<OwnedFd>, observer: Observer) -> VfsResult<Box<dyn Observation>> {
    let hub = hub().ok_or(Fault::NotSupported)?;
    let handle = fanotify::handle_of(fd.as_fd()).map_err(|_| Fault::NotSupported)?;
    let mut state = hub.state.lock();
    state.last_id = state.last_id.wrapping_add(1);
    let id = state.last_id;
    if let Some(marked) = state.files.get_mut(&handle) {
        marked.observers.push((id, observer));
    } else {
        let taken =
            observer.places().take(Observed::File, state.files.len(), super::room(HOST_FILES));
        let place = taken.ok_or(Fault::NoMemory)?;
        hub.group.mark_file(fd.as_fd()).map_err(|errno| match errno {
            Errno::NOSPC | Errno::NOMEM => Fault::NoMemory,
            _ => Fault::NotSupported,
        })?;
        let marked = Marked { observers: vec![(id, observer)], _place: place };
        state.files.insert(handle.clone(), marked);
    }
    drop(state);
    Ok(Box::new(Guard { hub, id, handle, fd }))
}

/// Ends an observation when dropped.
struct Guard {
    hub: &'static Arc<Hub>,
    id: u64,
    handle: Handle,
    fd: Arc<OwnedFd>,
}

impl Observation for Guard {}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Guard").field(&self.id).finish()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut state = self.hub.state.lock();
        let Some(Marked { observers, .. }) = state.files.get_mut(&self.handle) else { return };
        let at = observers.iter().position(|(id, _)| *id == self.id);
        let ended = at.map(|at| observers.swap_remove(at));
        if observers.is_empty() {
            state.files.remove(&self.handle);
            self.hub.group.unmark_file(self.fd.as_fd());
        }
        if let Some(room) = less_room(state.files.capacity(), state.files.len()) {
            state.files.shrink_to(room);
        }
        drop(state);
        // Dropping the observer may drop objects that take locks, so it is dropped after the lock
        // is released.
        drop(ended);
    }
}

impl Hub {
    fn run(&self) {
        let mut buffer = Vec::new();
        while super::go_on(|| {
            let mut fds = [PollFd::new(self.group.fd(), PollFlags::IN)];
            if poll(&mut fds, None).is_err_and(|errno| errno != Errno::INTR) {
                return false;
            }
            let mut reports = DueReports::new();
            self.group.take(&mut buffer, &mut |event| self.handle(event, &mut reports));
            if reports.is_empty() {
                std::thread::sleep(HOST_OWN_PAUSE);
            }
            for (observer, mask) in reports {
                super::go_on(|| {
                    tell(&observer, mask);
                    true
                });
            }
            true
        }) {}
    }

    fn handle(&self, event: Option<Event>, reports: &mut DueReports) {
        let state = self.state.lock();
        let Some(event) = event else {
            let all = state.files.values().flat_map(|marked| &marked.observers);
            reports.extend(all.map(|(_, observer)| (observer.clone(), None)));
            return;
        };
        if event.is_own {
            return;
        }
        let marked = event.entry.and_then(|(handle, _)| state.files.get(&handle));
        for (_, observer) in marked.into_iter().flat_map(|marked| &marked.observers) {
            reports.push((observer.clone(), Some(event.mask)));
        }
    }
}

fn tell(observer: &Observer, mask: Option<u64>) {
    let Some(mask) = mask else { return observer.tell(&HostChange::Lost) };
    if mask & (libc::FAN_MODIFY | libc::FAN_ATTRIB) != 0 {
        let (action, matches) = (NotifyAction::MODIFIED, modified(mask));
        observer.tell(&HostChange::Change { action, name: "", matches });
    }
    if mask & libc::FAN_MOVE_SELF != 0 {
        let matches = CompletionFilter::FILE_NAME;
        observer.tell(&HostChange::Renamed { from: "", to: "", matches });
    }
}
