//! The thread that writes a capture to a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::string::String;
use std::thread::JoinHandle;
use std::vec::Vec;

use super::{Capture, Source};
use crate::limits::QUEUED_BYTES;
use crate::recorder::{Outcome, Settings};

/// Makes the file of a capture, which only its owner can read. An existing file is never written to, and a link is
/// not followed.
///
/// # Errors
/// When there is a file of this name, or it cannot be made.
pub fn create(path: &Path) -> io::Result<File> {
    // O_EXCL: a link of this name counts as a file.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// The writer of a file.
#[derive(Debug)]
pub struct FileWriter {
    capture: Capture,
    thread: JoinHandle<(Outcome, Option<io::Error>)>,
}

impl FileWriter {
    /// Starts a thread that writes a capture to `file`.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(file: File, settings: &Settings) -> io::Result<(Capture, Self)> {
        let (capture, source) = Capture::new(settings, QUEUED_BYTES);
        let named = std::thread::Builder::new().name(String::from("frevo-capture"));
        let thread = named.spawn(move || write(file, source))?;
        let writer = Self { capture: capture.clone(), thread };
        Ok((capture, writer))
    }

    /// Ends the capture: waits until the frames that wait are written. Returns what the file has, and the
    /// error by which its writing ended early.
    pub fn finish(self) -> (Outcome, Option<io::Error>) {
        self.capture.end();
        let lost = || (Outcome::default(), Some(io::Error::other("its thread has ended")));
        self.thread.join().unwrap_or_else(|_| lost())
    }
}

fn write(mut file: File, mut source: Source) -> (Outcome, Option<io::Error>) {
    let mut blocks = Vec::new();
    while source.next(&mut blocks) {
        if blocks.is_empty() {
            source.wait();
        } else if let Err(error) = file.write_all(&blocks) {
            return (source.outcome(), Some(error));
        }
    }
    (source.outcome(), None)
}
