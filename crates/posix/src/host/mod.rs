//! Changes by other programs in directories of shares: [`Vfs::observe`].
//!
//! The process has one fanotify group and one thread, both from the first observation on. A
//! directory has a mark while it is observed. Changes of this process are recognised by the process
//! id in every event: nothing is compared, nothing times out, and no event is taken for another
//! one's echo.
//!
//! In a tree every directory has a mark, and new ones get it when their creation is reported;
//! entries that they have by then are reported as added. A tree of more than
//! [`HOST_DIRECTORIES_PER_TREE`] directories, or of more than its account has places for, is marked in
//! part, which is reported once as lost changes. A directory takes a place in each observation, and the
//! bytes of its path. The kernel reports neither writes through shared maps nor changes of other machines on
//! network file systems.
//!
//! [`Vfs::observe`]: frevo_store::Vfs::observe

mod fanotify;
pub(crate) mod files;
pub(crate) mod paths;

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use frevo_store::surplus::less_room;
use frevo_store::vfs::VfsResult;
use frevo_store::{Fault, HostChange, HostPlace, Observation, Observed as Kind, Observer};
use frevo_wire::command::change_notify::CompletionFilter;
use frevo_wire::fscc::notify::NotifyAction;
use hashbrown::{HashMap, HashSet};
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;

use crate::limits::{
    HOST_DIRECTORIES, HOST_DIRECTORIES_AT_ONCE, HOST_DIRECTORIES_PER_TREE, HOST_OWN_PAUSE,
    LIST_BUFFER_BYTES,
};
use crate::names::{Spelling, client_name};
use crate::sys;
use fanotify::{Event, FAN_RENAME, Fanotify, Handle};
use paths::CountedPath;

/// All observations of the process.
struct Hub {
    group: Fanotify,
    /// Wakes the thread to work on `State::unscanned`.
    wake: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    directories: HashMap<Handle, Vec<Member>>,
    observed: HashMap<u64, Observed>,
    /// Places of directories in all observations.
    places: usize,
    /// Ended observations with marks that the thread has to remove.
    ended: Vec<Ended>,
    /// Directories that are in no observation any more, whose marks the thread has to remove.
    unneeded: Vec<Unneeded>,
    last_id: u64,
    /// Directories whose subdirectories are to be marked: at most [`HOST_DIRECTORIES_PER_TREE`] of an
    /// observation.
    unscanned: Vec<Unscanned>,
    /// Directories of `unscanned` that are not marked; freed without the lock, for which cores wait.
    dropped: Vec<Unscanned>,
}

/// A directory whose subdirectories are to be marked.
struct Unscanned {
    id: u64,
    path: CountedPath,
    scan: Scan,
}

/// The position of a directory in an observation.
struct Member {
    id: u64,
    path: CountedPath,
    _place: HostPlace,
}

struct Observed {
    root: Arc<OwnedFd>,
    is_tree: bool,
    observer: Observer,
    /// The spelling of names on the medium.
    spelling: Spelling,
    /// The marked directories of this observation.
    handles: HashSet<Handle>,
    /// Number of its directories in `State::unscanned`.
    unscanned: usize,
    was_lost: bool,
    /// True once the account had no room.
    lacks_room: Arc<AtomicBool>,
}

/// The marks that are left of an observation.
struct Ended {
    id: u64,
    root: Arc<OwnedFd>,
    handles: Vec<Handle>,
}

/// A mark that no observation needs. Its directory is opened by its path, which may take the file system
/// its time: without the lock, for which cores wait. The thread makes no further marks before it has removed
/// these, so that there are no more than marks.
struct Unneeded {
    root: Arc<OwnedFd>,
    path: Vec<u8>,
    handle: Handle,
}

/// The origin of a directory that is scanned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scan {
    /// The directory existed before.
    Old,
    /// Another program has just created it: its entries are new too.
    Added,
}

/// Reports to make once no lock is held.
type DueReports = Vec<Report>;

struct Report {
    observer: Observer,
    spelling: Spelling,
    change: Owned,
}

/// A change of paths on the medium.
enum Owned {
    Change(NotifyAction, Vec<u8>, CompletionFilter),
    Renamed(Vec<u8>, Vec<u8>, CompletionFilter),
    Lost,
}

fn hub() -> Option<&'static Arc<Hub>> {
    static HUB: OnceLock<Option<Arc<Hub>>> = OnceLock::new();
    HUB.get_or_init(|| {
        // The new thread works for all users, so it must not inherit the user that this thread acts
        // as.
        let _server = crate::credentials::as_server();
        let group = Fanotify::new().ok()?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
        let hub = Arc::new(Hub { group, wake, state: Mutex::default() });
        let running = Arc::clone(&hub);
        let named = std::thread::Builder::new().name(String::from("host-changes"));
        named.spawn(move || running.run()).ok()?;
        Some(hub)
    })
    .as_ref()
}

/// Returns `most`, or half of the marks that the kernel allows, since there are two groups.
fn room(most: usize) -> usize {
    static MARKS: OnceLock<usize> = OnceLock::new();
    let read = || {
        let text = std::fs::read_to_string("/proc/sys/fs/fanotify/max_user_marks").ok()?;
        text.trim().parse().ok()
    };
    most.min(MARKS.get_or_init(|| read().unwrap_or(usize::MAX)) / 2)
}

/// Watches files in a way that a confined process must not: for tests of the confinement.
///
/// # Errors
/// The error of the call that failed.
#[doc(hidden)]
pub fn attempt_watch(is_waited_for: bool, path: Option<&std::ffi::CStr>) -> std::io::Result<()> {
    Ok(fanotify::attempt(is_waited_for, path)?)
}

/// Begins an observation of the directory behind `dir`.
pub(crate) fn observe(
    dir: BorrowedFd<'_>,
    is_tree: bool,
    spelling: Spelling,
    observer: Observer,
) -> VfsResult<Box<dyn Observation>> {
    let hub = hub().ok_or(Fault::NotSupported)?;
    let root = Arc::new(open_directory(dir, b".").map_err(crate::fault_of)?);
    let handle = fanotify::handle_of(root.as_fd()).map_err(|_| Fault::NotSupported)?;
    let mut state = hub.state.lock();
    let place = observer.places().take(Kind::Directory, state.places, room(HOST_DIRECTORIES));
    let place = place.ok_or(Fault::NoMemory)?;
    let counted = || CountedPath::new(Vec::new(), observer.places()).ok_or(Fault::NoMemory);
    let (path, waiting) = (counted()?, is_tree.then(counted).transpose()?);
    hub.group.mark(root.as_fd()).map_err(|errno| match errno {
        Errno::NOSPC | Errno::NOMEM => Fault::NoMemory,
        _ => Fault::NotSupported,
    })?;
    state.last_id = state.last_id.wrapping_add(1);
    let id = state.last_id;
    state.give_place(handle.clone(), Member { id, path, _place: place });
    let handles = HashSet::from_iter([handle]);
    let lacks_room = Arc::new(AtomicBool::new(false));
    let guard = Guard { hub, id, lacks_room: Arc::clone(&lacks_room) };
    let (unscanned, was_lost) = (usize::from(is_tree), false);
    let observed =
        Observed { root, is_tree, observer, spelling, handles, unscanned, was_lost, lacks_room };
    state.observed.insert(id, observed);
    state.unscanned.extend(waiting.map(|path| Unscanned { id, path, scan: Scan::Old }));
    drop(state);
    if is_tree {
        hub.wake();
    }
    Ok(Box::new(guard))
}

/// Ends an observation when dropped.
struct Guard {
    hub: &'static Arc<Hub>,
    id: u64,
    lacks_room: Arc<AtomicBool>,
}

impl Observation for Guard {
    fn lacks_room(&self) -> bool {
        self.lacks_room.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Guard").field(&self.id).finish()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut state = self.hub.state.lock();
        let Some(ended) = state.observed.remove(&self.id) else { return };
        let Observed { root, observer, handles, .. } = ended;
        let mut ended = Ended { id: self.id, root, handles: handles.into_iter().collect() };
        state.remove_marks(&self.hub.group, &mut ended);
        if !ended.handles.is_empty() {
            // A large tree has many marks, so the thread removes the others.
            state.ended.push(ended);
        }
        let is_left = !state.ended.is_empty() || !state.unneeded.is_empty() || state.has_spare();
        drop(state);
        if is_left {
            self.hub.wake();
        }
        // Dropping the observer may drop objects that take locks, so it is dropped after the lock
        // is released.
        drop(observer);
    }
}

fn open_directory(dir: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    sys::open_beneath(dir, path, flags, Mode::empty(), false)
}

fn join(directory: &[u8], entry: &[u8]) -> Vec<u8> {
    if directory.is_empty() { entry.to_vec() } else { [directory, b"/", entry].concat() }
}

/// True if `path` is `top` or below it.
fn is_within(path: &[u8], top: &[u8]) -> bool {
    path.strip_prefix(top)
        .is_some_and(|rest| top.is_empty() || rest.is_empty() || rest.first() == Some(&b'/'))
}

impl Observed {
    fn report(&self, change: Owned) -> Report {
        Report { observer: self.observer.clone(), spelling: self.spelling, change }
    }
}

impl Hub {
    fn wake(&self) {
        // The write fails only if the eventfd is signalled already, which is enough to wake the
        // thread.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn run(&self) {
        let mut buffer = Vec::new();
        while go_on(|| {
            let both = [self.group.fd(), &self.wake];
            let mut fds = both.map(|fd| PollFd::new(fd, PollFlags::IN));
            if poll(&mut fds, None).is_err_and(|errno| errno != Errno::INTR) {
                return false;
            }
            let was_woken = rustix::io::read(&self.wake, &mut [0; 8]).is_ok();
            let mut reports = DueReports::new();
            self.group.take(&mut buffer, &mut |event| self.handle(event, &mut reports));
            if reports.is_empty() && !was_woken && self.state.lock().unscanned.is_empty() {
                // All events came from this process itself, so the thread waits a moment and reads
                // more of them together.
                std::thread::sleep(HOST_OWN_PAUSE);
            }
            tell(&mut reports);
            self.scan(&mut reports);
            true
        }) {}
    }

    fn handle(&self, event: Option<Event>, reports: &mut DueReports) {
        let mut state = self.state.lock();
        let Some(event) = event else {
            for observed in state.observed.values() {
                reports.push(observed.report(Owned::Lost));
            }
            return;
        };
        let (old, new) = (state.places(&event.entry), state.places(&event.new_entry));
        if event.mask & FAN_RENAME != 0 {
            return state.renamed(&self.group, &event, &old, &new, reports);
        }
        if !event.came() || !event.went() {
            for (id, path) in &old {
                state.happened(&self.group, &event, *id, path, event.came(), reports);
            }
            return;
        }
        // The kernel may merge a creation and a removal without their order, so the present state of
        // the file decides. The file system may take its time to tell it.
        let root_of = |id| state.observed.get(id).map(|observed| Arc::clone(&observed.root));
        let roots: Vec<_> = old.iter().map(|(id, _)| root_of(id)).collect();
        MutexGuard::unlock_fair(state);
        for ((id, path), root) in old.iter().zip(roots) {
            let is_there = root.is_some_and(|root| sys::stat_at(root.as_fd(), path).is_ok());
            self.state.lock().happened(&self.group, &event, *id, path, is_there, reports);
        }
    }

    /// Marks directories that are new to an observation, a few at a time, so that events do not
    /// pile up behind a large tree.
    fn scan(&self, reports: &mut DueReports) {
        self.remove_ended();
        if !self.unmark() {
            return self.wake();
        }
        let dropped = std::mem::take(&mut self.state.lock().dropped);
        drop(dropped);
        for _ in 0..HOST_DIRECTORIES_AT_ONCE {
            let mut state = self.state.lock();
            let Some(Unscanned { id, path, scan }) = state.unscanned.pop() else {
                return state.give_back();
            };
            let root = state.observed.get_mut(&id).map(|observed| {
                observed.unscanned -= 1;
                Arc::clone(&observed.root)
            });
            // The file system may take its time. Only this thread changes paths, by the events that it
            // handles, and so the path is the same afterwards.
            MutexGuard::unlock_fair(state);
            let below = path.to_vec();
            let found = root.and_then(|root| OpenDirectory::open(&root, &path).ok());
            let mut state = self.state.lock();
            let dir = found.and_then(|found| state.mark(&self.group, id, path, found, reports));
            let dropped = std::mem::take(&mut state.dropped);
            // A core that waits has the lock before the next directory, which may be large.
            MutexGuard::unlock_fair(state);
            drop(dropped);
            if let Some(dir) = dir {
                look_through(&dir, &below, scan, |found| {
                    let mut state = self.state.lock();
                    let goes_on = state.enter(id, found, scan, reports);
                    MutexGuard::unlock_fair(state);
                    tell(reports);
                    goes_on
                });
            }
            tell(reports);
        }
        self.wake();
    }

    /// Removes some marks that no observation needs. Returns true if none is left.
    fn unmark(&self) -> bool {
        for _ in 0..HOST_DIRECTORIES_AT_ONCE {
            let Some(Unneeded { root, path, handle }) = self.state.lock().unneeded.pop() else {
                return true;
            };
            // If the directory was moved or removed, its mark has ended already and is not removed here.
            let Some(found) =
                OpenDirectory::open(&root, &path).ok().filter(|it| it.handle == handle)
            else {
                continue;
            };
            let state = self.state.lock();
            if !state.directories.contains_key(&handle) {
                self.group.unmark(found.dir.as_fd());
            }
            MutexGuard::unlock_fair(state);
        }
        false
    }

    /// Takes some directories out of an observation that has ended.
    fn remove_ended(&self) {
        let mut state = self.state.lock();
        if let Some(mut ended) = state.ended.pop() {
            state.remove_marks(&self.group, &mut ended);
            if !ended.handles.is_empty() {
                state.ended.push(ended);
            }
        }
        if !state.ended.is_empty() {
            self.wake();
        }
        state.give_back();
        MutexGuard::unlock_fair(state);
    }
}

/// Runs one turn of a thread that all observations share. A panic ends the turn and not the thread;
/// the panic hook has reported it.
fn go_on(turn: impl FnOnce() -> bool) -> bool {
    catch_unwind(AssertUnwindSafe(turn)).unwrap_or(true)
}

fn tell(reports: &mut DueReports) {
    for Report { observer, spelling, change } in reports.drain(..) {
        let name_of = |path: &[u8]| client_name(path, spelling);
        go_on(|| {
            match &change {
                Owned::Change(action, path, matches) => {
                    let (action, matches) = (*action, *matches);
                    let name = name_of(path);
                    observer.tell(&HostChange::Change { action, name: name.path(), matches });
                }
                Owned::Renamed(from, to, matches) => {
                    let (from, to, matches) = (name_of(from), name_of(to), *matches);
                    let (from, to) = (from.path(), to.path());
                    observer.tell(&HostChange::Renamed { from, to, matches });
                }
                Owned::Lost => observer.tell(&HostChange::Lost),
            }
            true
        });
    }
}

impl State {
    /// Returns the path of an entry in each observation that contains it.
    fn places(&self, entry: &Option<(Handle, Box<[u8]>)>) -> Vec<(u64, Vec<u8>)> {
        let Some((handle, name)) = entry else { return Vec::new() };
        // The event concerns the directory itself, which the watch of its parent reports.
        if name.is_empty() || **name == *b"." {
            return Vec::new();
        }
        let members = self.directories.get(handle).into_iter().flatten();
        members.map(|member| (member.id, join(&member.path, name))).collect()
    }

    fn tell(&self, id: u64, change: Owned, reports: &mut DueReports) {
        if let Some(observed) = self.observed.get(&id) {
            reports.push(observed.report(change));
        }
    }

    fn lost(&mut self, id: u64, reports: &mut DueReports) {
        let Some(observed) = self.observed.get_mut(&id) else { return };
        if !std::mem::replace(&mut observed.was_lost, true) {
            reports.push(observed.report(Owned::Lost));
        }
    }

    /// Handles an event that is no rename. `is_there` is true of an entry that came and is there.
    fn happened(
        &mut self,
        group: &Fanotify,
        event: &Event,
        id: u64,
        path: &[u8],
        is_there: bool,
        reports: &mut DueReports,
    ) {
        let is_directory = event.mask & libc::FAN_ONDIR != 0;
        let (came, went) = (event.came(), event.went());
        if !event.is_own {
            let mut tell = |action, matches| {
                self.tell(id, Owned::Change(action, path.to_vec(), matches), reports);
            };
            if went && is_there {
                tell(NotifyAction::REMOVED, names(is_directory));
            }
            if came {
                tell(NotifyAction::ADDED, names(is_directory));
            }
            if event.mask & (libc::FAN_MODIFY | libc::FAN_ATTRIB) != 0 {
                tell(NotifyAction::MODIFIED, modified(event.mask));
            }
            if went && !is_there {
                tell(NotifyAction::REMOVED, names(is_directory));
            }
        }
        if is_directory && went {
            self.forget_below(group, id, path);
        }
        if is_directory && is_there {
            self.add(id, path, event.is_own, reports);
        }
    }

    fn renamed(
        &mut self,
        group: &Fanotify,
        event: &Event,
        old: &[(u64, Vec<u8>)],
        new: &[(u64, Vec<u8>)],
        reports: &mut DueReports,
    ) {
        let is_directory = event.mask & libc::FAN_ONDIR != 0;
        let matches = names(is_directory);
        let in_one_directory = match (&event.entry, &event.new_entry) {
            (Some((from, _)), Some((to, _))) => from == to,
            _ => false,
        };
        for (id, from) in old {
            let to = new.iter().find(|(other, _)| other == id).map(|(_, path)| path);
            if !event.is_own {
                match to {
                    Some(to) if in_one_directory => {
                        let both = Owned::Renamed(from.clone(), to.clone(), matches);
                        self.tell(*id, both, reports);
                    }
                    _ => {
                        let removed = Owned::Change(NotifyAction::REMOVED, from.clone(), matches);
                        self.tell(*id, removed, reports);
                    }
                }
            }
            if is_directory {
                match to {
                    Some(to) => self.move_below(group, *id, from, to, reports),
                    None => self.forget_below(group, *id, from),
                }
            }
        }
        for (id, to) in new {
            let from_here = old.iter().any(|(other, _)| other == id);
            let is_told = event.is_own || (from_here && in_one_directory);
            if !is_told {
                let come = Owned::Change(NotifyAction::ADDED, to.clone(), matches);
                self.tell(*id, come, reports);
            }
            if is_directory && !from_here {
                // The whole directory was moved, so its entries are not reported as new.
                self.add(*id, to, true, reports);
            }
        }
    }

    /// Adds a directory to an observation.
    fn add(&mut self, id: u64, path: &[u8], is_old: bool, reports: &mut DueReports) {
        if self.observed.get(&id).is_some_and(|observed| observed.is_tree) {
            let scan = if is_old { Scan::Old } else { Scan::Added };
            self.queue(id, path.to_vec(), scan, reports);
        }
    }

    /// Queues a directory to be marked. Returns false if so many are queued that not all can be, or if the
    /// account has no room for the path: that is reported.
    fn queue(&mut self, id: u64, path: Vec<u8>, scan: Scan, reports: &mut DueReports) -> bool {
        let Some(observed) = self.observed.get_mut(&id) else { return false };
        if observed.unscanned >= HOST_DIRECTORIES_PER_TREE {
            self.lost(id, reports);
            return false;
        }
        let Some(path) = CountedPath::new(path, observed.observer.places()) else {
            observed.lacks_room.store(true, Ordering::Relaxed);
            self.lost(id, reports);
            return false;
        };
        observed.unscanned += 1;
        self.unscanned.push(Unscanned { id, path, scan });
        true
    }

    fn forget_below(&mut self, group: &Fanotify, id: u64, top: &[u8]) {
        if let Some(mut observed) = self.observed.remove(&id) {
            self.forget(group, id, &mut observed, |path| is_within(path, top));
            if observed.unscanned > 0 {
                let goes = |directory: &mut Unscanned| {
                    directory.id == id && is_within(&directory.path, top)
                };
                let gone: Vec<_> = self.unscanned.extract_if(.., goes).collect();
                observed.unscanned -= gone.len();
                self.dropped.extend(gone);
            }
            self.observed.insert(id, observed);
        }
    }

    /// Changes the paths of the directories below one that was moved. A directory whose new path the
    /// account has no room for is forgotten, which is reported.
    fn move_below(
        &mut self,
        group: &Fanotify,
        id: u64,
        from: &[u8],
        to: &[u8],
        reports: &mut DueReports,
    ) {
        let Some(mut observed) = self.observed.remove(&id) else { return };
        let moved = |path: &[u8]| is_within(path, from).then(|| [to, &path[from.len()..]].concat());
        let before = observed.handles.len();
        let Observed { root, handles, .. } = &mut observed;
        handles.retain(|handle| {
            let mut members = self.directories.get_mut(handle).into_iter().flatten();
            let member = members.find(|member| member.id == id);
            let Some((member, path)) =
                member.and_then(|one| moved(&one.path).map(|path| (one, path)))
            else {
                return true;
            };
            if member.path.replace(path.clone()) {
                return true;
            }
            let old = member.path.to_vec();
            !self.leave(
                group,
                id,
                handle,
                |one| *one == *old,
                Whereabouts { root, moved: Some(&path) },
            )
        });
        let goes = |directory: &mut Unscanned| {
            directory.id == id
                && moved(&directory.path).is_some_and(|path| !directory.path.replace(path))
        };
        let gone: Vec<_> = self.unscanned.extract_if(.., goes).collect();
        observed.unscanned -= gone.len();
        let is_short = !gone.is_empty() || observed.handles.len() < before;
        self.dropped.extend(gone);
        observed.lacks_room.fetch_or(is_short, Ordering::Relaxed);
        self.observed.insert(id, observed);
        if is_short {
            self.lost(id, reports);
        }
    }

    /// Gives a directory its place in an observation.
    fn give_place(&mut self, handle: Handle, member: Member) {
        // Most directories are in one observation.
        self.directories.entry(handle).or_insert_with(|| Vec::with_capacity(1)).push(member);
        self.places += 1;
    }

    /// Removes directories from an observation, and marks that no other observation needs.
    fn forget(
        &mut self,
        group: &Fanotify,
        id: u64,
        observed: &mut Observed,
        which: impl Fn(&[u8]) -> bool,
    ) {
        let Observed { root, handles, .. } = observed;
        handles.retain(|handle| {
            !self.leave(group, id, handle, &which, Whereabouts { root, moved: None })
        });
    }

    /// Takes the next few directories out of an observation that has ended.
    fn remove_marks(&mut self, group: &Fanotify, ended: &mut Ended) {
        for _ in 0..HOST_DIRECTORIES_AT_ONCE {
            let Some(handle) = ended.handles.pop() else { return };
            let place = Whereabouts { root: &ended.root, moved: None };
            self.leave(group, ended.id, &handle, |_| true, place);
        }
    }

    /// Returns the room that each of the tables should shrink to.
    fn less_room(&self) -> [Option<usize>; 4] {
        [
            less_room(self.unneeded.capacity(), self.unneeded.len()),
            less_room(self.directories.capacity(), self.directories.len()),
            less_room(self.unscanned.capacity(), self.unscanned.len()),
            less_room(self.observed.capacity(), self.observed.len()),
        ]
    }

    /// True for memory that many directories have needed, and few need now.
    fn has_spare(&self) -> bool {
        self.less_room().iter().any(Option::is_some)
    }

    /// Frees memory that many directories have needed.
    fn give_back(&mut self) {
        let [unneeded, directories, unscanned, observed] = self.less_room();
        unneeded.into_iter().for_each(|room| self.unneeded.shrink_to(room));
        directories.into_iter().for_each(|room| self.directories.shrink_to(room));
        unscanned.into_iter().for_each(|room| self.unscanned.shrink_to(room));
        observed.into_iter().for_each(|room| self.observed.shrink_to(room));
    }

    /// Takes a directory out of an observation if its path is one of `which`. True if it is not in the
    /// observation any more. Its mark is removed, later by the thread if the directory has to be opened.
    fn leave(
        &mut self,
        group: &Fanotify,
        id: u64,
        handle: &Handle,
        which: impl Fn(&[u8]) -> bool,
        place: Whereabouts<'_>,
    ) -> bool {
        let Some(members) = self.directories.get_mut(handle) else { return true };
        let goes = |member: &Member| member.id == id && which(&member.path);
        let Some(at) = members.iter().position(goes) else { return false };
        let Member { path, .. } = members.swap_remove(at);
        self.places -= 1;
        if !members.is_empty() {
            return true;
        }
        self.directories.remove(handle);
        if path.is_empty() {
            group.unmark(place.root.as_fd());
        } else {
            let path = place.moved.unwrap_or(&path).to_vec();
            let (root, handle) = (Arc::clone(place.root), handle.clone());
            self.unneeded.push(Unneeded { root, path, handle });
        }
        true
    }

    /// Marks a directory. Returns it if its entries are to be looked through.
    fn mark(
        &mut self,
        group: &Fanotify,
        id: u64,
        path: CountedPath,
        found: OpenDirectory,
        reports: &mut DueReports,
    ) -> Option<OwnedFd> {
        let places = self.places;
        let observed = self.observed.get_mut(&id)?;
        let OpenDirectory { dir, handle } = found;
        if path.is_empty() {
            return Some(dir);
        }
        if observed.handles.contains(&handle) {
            return None;
        }
        let place =
            observed.observer.places().take(Kind::Directory, places, room(HOST_DIRECTORIES));
        if place.is_none() {
            observed.lacks_room.store(true, Ordering::Relaxed);
        }
        let is_full = observed.handles.len() >= HOST_DIRECTORIES_PER_TREE;
        let place = place.filter(|_| !is_full && group.mark(dir.as_fd()).is_ok());
        let Some(place) = place else {
            observed.unscanned = 0;
            self.dropped.extend(self.unscanned.extract_if(.., |directory| directory.id == id));
            self.lost(id, reports);
            return None;
        };
        observed.handles.insert(handle.clone());
        self.give_place(handle, Member { id, path, _place: place });
        Some(dir)
    }

    /// Enters some entries of a directory of an observation. Returns false if the others are not needed:
    /// it has ended, or so many directories are queued that not all can be marked.
    fn enter(
        &mut self,
        id: u64,
        found: &mut Vec<ListedEntry>,
        scan: Scan,
        reports: &mut DueReports,
    ) -> bool {
        if !self.observed.contains_key(&id) {
            return false;
        }
        for ListedEntry { path, is_directory } in found.drain(..) {
            if scan == Scan::Added {
                let come = Owned::Change(NotifyAction::ADDED, path.clone(), names(is_directory));
                self.tell(id, come, reports);
            }
            let is_queued = !is_directory || self.queue(id, path, scan, reports);
            if !is_queued && scan == Scan::Old {
                return false;
            }
        }
        true
    }
}

/// The place of a directory that leaves an observation.
#[derive(Clone, Copy)]
struct Whereabouts<'a> {
    root: &'a Arc<OwnedFd>,
    /// The present path, if it is not that of the observation.
    moved: Option<&'a [u8]>,
}

/// A directory that was opened by its path.
struct OpenDirectory {
    dir: OwnedFd,
    handle: Handle,
}

impl OpenDirectory {
    fn open(root: &OwnedFd, path: &[u8]) -> Result<Self, Errno> {
        let dir = reopen(root, path)?;
        let handle = fanotify::handle_of(dir.as_fd())?;
        Ok(Self { dir, handle })
    }
}

/// An entry of a directory.
struct ListedEntry {
    /// Path from the observed directory.
    path: Vec<u8>,
    is_directory: bool,
}

/// Tells the directories in the directory at `path` of an observation, and its other entries if they are
/// to be reported, some at a time, until `tell` returns false.
fn look_through(
    dir: &OwnedFd,
    path: &[u8],
    scan: Scan,
    mut tell: impl FnMut(&mut Vec<ListedEntry>) -> bool,
) {
    let mut buffer = vec![std::mem::MaybeUninit::uninit(); LIST_BUFFER_BYTES];
    let mut entries = RawDir::new(dir, &mut buffer);
    let mut found = Vec::new();
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name().to_bytes();
        let is_directory = entry.file_type().is_dir();
        let is_wanted = is_directory || scan == Scan::Added;
        if is_wanted && !matches!(name, b"." | b"..") {
            found.push(ListedEntry { path: join(path, name), is_directory });
        }
        if found.len() >= HOST_DIRECTORIES_AT_ONCE && !tell(&mut found) {
            return;
        }
    }
    tell(&mut found);
}

fn reopen(root: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    open_directory(root.as_fd(), if path.is_empty() { b"." } else { path })
}

const fn names(is_directory: bool) -> CompletionFilter {
    if is_directory { CompletionFilter::DIR_NAME } else { CompletionFilter::FILE_NAME }
}

/// Returns all filters that an event may match: the kernel does not say which of an inode's times,
/// attributes or extended attributes (security among them) changed.
const fn modified(mask: u64) -> CompletionFilter {
    const DATA: u32 = CompletionFilter::SIZE.0 | CompletionFilter::LAST_WRITE.0;
    const INODE: u32 = CompletionFilter::ATTRIBUTES.0
        | CompletionFilter::LAST_WRITE.0
        | CompletionFilter::LAST_ACCESS.0
        | CompletionFilter::CREATION.0
        | CompletionFilter::EA.0
        | CompletionFilter::SECURITY.0;
    let data = if mask & libc::FAN_MODIFY != 0 { DATA } else { 0 };
    let inode = if mask & libc::FAN_ATTRIB != 0 { INODE } else { 0 };
    CompletionFilter(data | inode)
}

#[cfg(test)]
mod tests;
