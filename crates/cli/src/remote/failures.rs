//! Failures of single files, while the command goes on with the others.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::time::Duration;

use frevo_client::{Cause, Error};
use futures_util::stream::StreamExt;

use super::logon::{failed, innermost};
use crate::console::tell_failure;
use crate::exit::{Done, Exit, Failure};

/// Files that are processed at the same time.
pub(crate) const AT_ONCE: usize = 64;

/// Time for the pending files to clean up when the disk is full.
const LAST: Duration = Duration::from_secs(5);

/// Failures of single files while the command goes on.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    first: Option<Failure>,
    count: u64,
}

impl Failures {
    /// Notes a failed file.
    ///
    /// # Errors
    /// `error`, when all other files would fail too.
    pub(crate) fn note(&mut self, error: Error) -> frevo_client::Result<()> {
        if is_everyones(&error) {
            return Err(error);
        }
        self.add(failed(error));
        Ok(())
    }

    /// Notes a failed source.
    ///
    /// # Errors
    /// The failure, when all other sources would fail too.
    pub(crate) fn note_done(&mut self, done: Done) -> Done {
        match done {
            Ok(()) => Ok(()),
            Err(failure) if matches!(failure.exit, Exit::Auth | Exit::Connect) => Err(failure),
            Err(failure) => {
                self.add(failure);
                Ok(())
            }
        }
    }

    /// Notes a failed file, for [`in_order`]: breaks off when all other files would fail too.
    pub(crate) fn goes_on(&mut self, done: Done) -> ControlFlow<Done> {
        self.note_done(done)
            .map_or_else(|failure| ControlFlow::Break(Err(failure)), ControlFlow::Continue)
    }

    /// True when nothing failed so far.
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of failures so far.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Notes a failure. From the second one on, each is printed at once.
    pub(crate) fn add(&mut self, failure: Failure) {
        self.count += 1;
        match &self.first {
            None => self.first = Some(failure),
            Some(first) => {
                if self.count == 2 {
                    tell_failure(first);
                }
                tell_failure(&failure);
            }
        }
    }

    /// Takes over the failures of a part of the command.
    pub(crate) fn merge(&mut self, part: Self) {
        match (part.first, part.count) {
            (Some(first), 1) => self.add(first),
            (Some(first), count) => {
                // The first failure of this command is printed only when there is a second one. The
                // failures added here follow it, so it is printed now.
                if let Some(unprinted) = self.first.as_ref().filter(|_| self.count == 1) {
                    tell_failure(unprinted);
                }
                self.first.get_or_insert(first);
                self.count += count;
            }
            (None, _) => {}
        }
    }

    /// Ends the command: with the code of the first failure, which is told if it is the only
    /// one. `done` tells what was done to all other files, such as "copied".
    pub(crate) fn end(self, done: &str) -> Done {
        match (self.first, self.count) {
            (None, _) => Ok(()),
            (Some(first), 1) => Err(first),
            (Some(first), count) => {
                let text = format!("{count} files failed; all others were {done}");
                Err(Failure::new(first.exit, text))
            }
        }
    }
}

/// True for an error that every other file would meet too.
fn is_everyones(error: &Error) -> bool {
    use std::io::ErrorKind;
    let error = innermost(error);
    match error.cause() {
        Cause::Transport(_) | Cause::Logon(_) | Cause::Security(_) => true,
        _ => is_full(error) || error.kind() == ErrorKind::BrokenPipe,
    }
}

/// True for a full disk or an exceeded quota.
pub(crate) fn is_full(error: &Error) -> bool {
    use std::io::ErrorKind;
    matches!(innermost(error).kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Runs all futures, many at once. The failure of one file is noted and the others go on; an
/// error that all files would meet ends the command.
pub(crate) async fn each(
    all: impl Iterator<Item = impl Future<Output = frevo_client::Result<()>>>,
    failures: &mut Failures,
) -> Done {
    let is_over = Cell::new(false);
    let all = all.take_while(|_| !is_over.get());
    let mut running = futures_util::stream::iter(all).buffer_unordered(AT_ONCE);
    while let Some(done) = running.next().await {
        let Err(error) = done.or_else(|error| failures.note(error)) else { continue };
        is_over.set(true);
        if is_full(&error) {
            // The disk is full. Waits for the other files, whose copies will fail as well and
            // remove their partial files.
            let rest = async { while running.next().await.is_some() {} };
            let _ = tokio::time::timeout(LAST, rest).await;
        }
        return Err(failed(error));
    }
    Ok(())
}

/// Like [`each`], for work that has failures of its own.
pub(crate) async fn each_with_failures(
    all: impl Iterator<Item = impl Future<Output = (Done, Failures)>>,
    failures: &mut Failures,
) -> Done {
    let mut running = futures_util::stream::iter(all).buffer_unordered(AT_ONCE);
    while let Some((done, part)) = running.next().await {
        failures.merge(part);
        failures.note_done(done)?;
    }
    Ok(())
}

/// Runs all futures, many at once, and calls `take` with their results in the order of the
/// futures, until `take` breaks off.
///
/// # Errors
/// The error with which `take` breaks off.
pub(crate) async fn in_order<T>(
    all: impl Iterator<Item = impl Future<Output = T>>,
    mut take: impl AsyncFnMut(T) -> ControlFlow<Done>,
) -> Done {
    let mut running = futures_util::stream::iter(all).buffered(AT_ONCE);
    while let Some(result) = running.next().await {
        if let ControlFlow::Break(done) = take(result).await {
            return done;
        }
    }
    Ok(())
}
