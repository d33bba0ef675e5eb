//! Tells of mounts and unmounts on this host.

use std::fs::File;
use std::sync::Arc;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::sync::Notify;

/// The list of mounts. None where it cannot be opened: the folders of shares are then compared by a
/// timer alone.
pub(super) struct MountList(Option<File>);

/// Tells of each change of the list.
pub(super) struct MountEvents(Arc<Notify>);

impl MountList {
    /// Opens the list, before the process is confined.
    pub(super) fn open() -> Self {
        Self(File::open("/proc/self/mountinfo").ok())
    }

    /// Begins to watch it, on a thread that is confined like all others.
    pub(super) fn watch(self) -> MountEvents {
        let told = Arc::new(Notify::new());
        if let Some(list) = self.0 {
            let tell = Arc::clone(&told);
            let watch = move || wait(&list, &tell);
            // If the thread cannot be started, only the timer notices changes of mounts.
            let _ = thread::Builder::new().name(String::from("mounts")).spawn(watch);
        }
        MountEvents(told)
    }
}

/// Waits for changes, which the kernel marks as exceptional states of the list.
fn wait(list: &File, tell: &Notify) {
    loop {
        match poll(&mut [PollFd::new(list, PollFlags::PRI)], None) {
            Ok(_) => tell.notify_one(),
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

impl MountEvents {
    /// Waits for the next change.
    pub(super) async fn changed(&self) {
        self.0.notified().await;
    }
}
