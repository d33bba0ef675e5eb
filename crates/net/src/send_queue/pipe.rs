//! The pipes through which large file ranges are spliced, a few per core.

use std::cell::RefCell;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};

use rustix::pipe::{PipeFlags, SpliceFlags};

use crate::limits::{SPLICE_PIPE_BYTES, SPLICE_PIPES_RETAINED_MAX};
use crate::transport::Stream;

struct Ends {
    read: OwnedFd,
    write: OwnedFd,
    capacity: usize,
}

thread_local! {
    static FREE: RefCell<Vec<Ends>> = const { RefCell::new(Vec::new()) };
}

/// A pipe that one connection uses, with the number of bytes in it.
pub(super) struct Pipe {
    ends: ManuallyDrop<Ends>,
    held: usize,
}

impl Pipe {
    /// Returns one of this core's pipes, or a new one.
    pub(super) fn borrow() -> io::Result<Self> {
        let kept = FREE.with_borrow_mut(Vec::pop);
        let ends = kept.map_or_else(Ends::open, Ok)?;
        Ok(Self { ends: ManuallyDrop::new(ends), held: 0 })
    }

    /// Returns the number of bytes in the pipe.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Returns the number of bytes that may still fit. An unaligned range needs one page more, so
    /// fewer may fit.
    pub(super) fn room(&self) -> usize {
        self.ends.capacity.saturating_sub(self.held)
    }

    /// Moves up to `len` bytes of the file into the pipe; 0 at the file's end.
    pub(super) fn fill(
        &mut self,
        file: impl AsFd,
        mut offset: u64,
        len: usize,
    ) -> io::Result<usize> {
        let count = rustix::pipe::splice(
            file,
            Some(&mut offset),
            &self.ends.write,
            None,
            len.min(self.room()),
            SpliceFlags::MOVE | SpliceFlags::NONBLOCK,
        )?;
        self.held += count;
        Ok(count)
    }

    /// Moves as many bytes to the socket as it takes.
    pub(super) fn drain(&mut self, stream: &Stream, more: bool) -> io::Result<usize> {
        let mut flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        flags.set(SpliceFlags::MORE, more);
        let held = self.held;
        let count = stream.try_write_with(|socket| {
            Ok(rustix::pipe::splice(&self.ends.read, None, socket, None, held, flags)?)
        })?;
        self.held -= count;
        Ok(count)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // SAFETY: the ends of the pipe are taken once, here, and never used again.
        let ends = unsafe { ManuallyDrop::take(&mut self.ends) };
        // A pipe that still contains bytes of this connection must not be used for another one, so
        // it is closed.
        if self.held == 0 {
            let mut ends = Some(ends);
            // While the thread ends, its free list may be dropped already. Then the pipe is closed.
            let _ = FREE.try_with(|free| {
                let mut free = free.borrow_mut();
                if free.len() < SPLICE_PIPES_RETAINED_MAX {
                    free.extend(ends.take());
                }
            });
        }
    }
}

impl Ends {
    fn open() -> io::Result<Self> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A user may have reached the limit on pipe memory. Then the pipe keeps its present size.
        let capacity = rustix::pipe::fcntl_setpipe_size(&write, SPLICE_PIPE_BYTES)
            .or_else(|_| rustix::pipe::fcntl_getpipe_size(&write))?;
        Ok(Self { read, write, capacity })
    }
}
