//! Change notes of the kernel about directories (inotify).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::{Errno, ioctl_fionread, retry_on_intr};

use crate::dir::Dir;
use crate::limits::{CHANGES_AT_ONCE, CHANGES_BUFFER_BYTES, COMPONENT_BYTES};
use crate::sys::ProcPath;

/// A change of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// An entry was created, or moved into the directory.
    Came(Box<[u8]>),
    MovedIn(Box<[u8]>),
    /// An entry was removed, or moved out of the directory.
    Went(Box<[u8]>),
    MovedOut(Box<[u8]>),
}

/// One note of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// A change in the directory of this watch.
    Change(i32, Change),
    /// The watch has ended: the directory or its file system is gone.
    Ended(i32),
    /// The kernel dropped notes.
    Lost,
}

/// Bytes of struct inotify_event before the name.
const HEADER: usize = 16;
/// Bytes of the longest note: a name with its NUL, in steps of a header.
const LONGEST: usize = HEADER + (COMPONENT_BYTES + 1).next_multiple_of(HEADER);

#[derive(Debug)]
pub(super) struct Watches {
    fd: Arc<OwnedFd>,
    buffer: Mutex<Box<[u8]>>,
}

impl Watches {
    pub(super) fn new() -> Result<Self, Errno> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self { fd: Arc::new(fd), buffer: Mutex::new(vec![0; CHANGES_BUFFER_BYTES].into()) })
    }

    /// Begins to watch a directory, which must be readable.
    pub(super) fn add(&self, dir: &Dir) -> Result<i32, Errno> {
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::ONLYDIR;
        inotify::add_watch(&self.fd, ProcPath::of(dir.fd()).as_c_str(), flags)
    }

    pub(super) fn remove(&self, watch: i32) {
        // The call fails only if the kernel has ended the watch already.
        let _ = inotify::remove_watch(&self.fd, watch);
    }

    /// True if there are notes to read.
    pub(super) fn pending(&self) -> bool {
        !matches!(ioctl_fionread(&self.fd), Ok(0))
    }

    /// Reads the notes that are queued now. Later ones wait for the next call: a program that makes
    /// changes without end must not keep a core here. Notes beyond [`CHANGES_AT_ONCE`] are dropped,
    /// and [`Note::Lost`] stands for them.
    pub(super) fn take(&self, mut each: impl FnMut(Note)) {
        self.take_some(CHANGES_AT_ONCE, &mut each);
    }

    fn take_some(&self, most: usize, each: &mut impl FnMut(Note)) {
        let mut buffer = self.buffer.lock();
        // One read is usually enough, so the number of remaining bytes is queried only after it.
        let mut left = None;
        let (mut taken, mut is_lost) = (0, false);
        while left != Some(0) {
            let len = match retry_on_intr(|| rustix::io::read(&self.fd, &mut buffer[..])) {
                Ok(len) => len,
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    is_lost = true;
                    break;
                }
            };
            if taken < most {
                parse(&buffer[..len], &mut |note| {
                    taken += 1;
                    each(note);
                });
            } else {
                is_lost = true;
            }
            if len + LONGEST <= buffer.len() {
                break;
            }
            left = Some(match left {
                None => ioctl_fionread(&self.fd).unwrap_or(u64::MAX),
                Some(left) => left.saturating_sub(len as u64),
            });
        }
        if is_lost {
            each(Note::Lost);
        }
    }
}

impl Drop for Watches {
    /// Closes the descriptor on a thread of its own: the kernel waits there for all processors to have
    /// forgotten the watches, which takes some 10 ms.
    fn drop(&mut self) {
        let fd = Arc::clone(&self.fd);
        let close = move || {
            // The caller drops its own owner next.
            while Arc::strong_count(&fd) > 1 {
                std::thread::yield_now();
            }
        };
        // Without a thread the descriptor is closed here.
        let _ = std::thread::Builder::new().name("unwatch".into()).spawn(close);
    }
}

fn parse(mut notes: &[u8], each: &mut impl FnMut(Note)) {
    while let Some((header, rest)) = notes.split_first_chunk::<HEADER>() {
        let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| header[at + i]));
        let (watch, mask, name_len) = (word(0).cast_signed(), word(4), word(12) as usize);
        let Some((name, rest)) = rest.split_at_checked(name_len) else {
            each(Note::Lost);
            return;
        };
        notes = rest;
        if let Some(note) = note_of(watch, mask, name) {
            each(note);
        }
    }
}

fn note_of(watch: i32, mask: u32, name: &[u8]) -> Option<Note> {
    let name = name.split(|&b| b == 0).next().unwrap_or_default();
    if mask & libc::IN_Q_OVERFLOW != 0 {
        Some(Note::Lost)
    } else if mask & (libc::IN_IGNORED | libc::IN_DELETE_SELF | libc::IN_UNMOUNT) != 0 {
        Some(Note::Ended(watch))
    } else if mask & libc::IN_CREATE != 0 {
        Some(Note::Change(watch, Change::Came(name.into())))
    } else if mask & libc::IN_MOVED_TO != 0 {
        Some(Note::Change(watch, Change::MovedIn(name.into())))
    } else if mask & libc::IN_DELETE != 0 {
        Some(Note::Change(watch, Change::Went(name.into())))
    } else if mask & libc::IN_MOVED_FROM != 0 {
        Some(Note::Change(watch, Change::MovedOut(name.into())))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, Mode, OFlags};

    use super::*;

    fn record(watch: i32, mask: u32, name: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [watch.cast_unsigned(), mask, 0, name.len() as u32] {
            out.extend_from_slice(&word.to_ne_bytes());
        }
        out.extend_from_slice(name);
        out
    }

    fn notes(bytes: &[u8]) -> Vec<Note> {
        let mut found = Vec::new();
        parse(bytes, &mut |note| found.push(note));
        found
    }

    /// At n - 1, n and n + 1 reads of notes.
    #[test]
    fn more_notes_than_are_taken_at_once_are_lost() {
        let folder = tempfile::tempdir().unwrap();
        let watches = Watches::new().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = rustix::fs::openat(CWD, folder.path(), flags, Mode::empty()).unwrap();
        let dir = Dir::Sub(Arc::new(fd));
        watches.add(&dir).unwrap();
        // An event takes 16 + 256 bytes, so one read returns at most `each_read` events.
        let each_read = CHANGES_BUFFER_BYTES / (HEADER + 256);
        let name = |number: usize| format!("{number:0255}");
        for (made, lost) in [(each_read - 1, 0), (each_read, 0), (3 * each_read, 1)] {
            for number in 0..made {
                std::fs::write(folder.path().join(name(number)), "").unwrap();
            }
            let (mut changes, mut losses) = (0, 0);
            watches.take_some(each_read, &mut |note| match note {
                Note::Change(..) => changes += 1,
                Note::Lost => losses += 1,
                Note::Ended(_) => panic!("it is there"),
            });
            assert_eq!((changes, losses), (made.min(each_read), lost), "{made} made");
            assert!(!watches.pending(), "{made}: none is left");
            (0..made).for_each(|n| std::fs::remove_file(folder.path().join(name(n))).unwrap());
            watches.take(|_| ());
        }
    }

    /// Tests that the kernel's descriptor is closed, by a thread of its own.
    #[test]
    fn the_end_of_watches_does_not_wait() {
        let watches = Watches::new().unwrap();
        let fd = Arc::downgrade(&watches.fd);
        drop(watches);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while fd.strong_count() > 0 {
            assert!(std::time::Instant::now() < until, "the descriptor stays open");
            std::thread::yield_now();
        }
    }

    #[test]
    fn inotify_events_are_decoded() {
        let mut bytes = record(1, libc::IN_CREATE | libc::IN_ISDIR, b"ab\0\0");
        bytes.extend(record(1, libc::IN_MOVED_FROM, b"c\0\0\0"));
        bytes.extend(record(2, libc::IN_IGNORED, b""));
        bytes.extend(record(-1, libc::IN_Q_OVERFLOW, b""));
        bytes.extend(record(1, libc::IN_OPEN, b"x\0"));
        let expected = [
            Note::Change(1, Change::Came((*b"ab").into())),
            Note::Change(1, Change::MovedOut((*b"c").into())),
            Note::Ended(2),
            Note::Lost,
        ];
        assert_eq!(notes(&bytes), expected);
        bytes.truncate(18);
        assert_eq!(notes(&bytes), [Note::Lost]);
    }
}
