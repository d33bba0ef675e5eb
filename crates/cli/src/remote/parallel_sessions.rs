//! A tree's small files over several connections.
//!
//! smbd serves all that comes under one ClientGuid in one process, Frevo on one core,
//! and a small file is more work for the server than for us. A second connection under
//! another ClientGuid has the server work on two files at once: that is a lane. The
//! first lane is the share that was reached; it alone carries large files, makes
//! directories and waits for a lost server. The others are opened only when there are
//! so many small files that their logons are worth it, while the first carries some
//! already, and whatever goes wrong on one of them is tried again on the first.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

use frevo_client::Share;
use tokio::sync::Notify;

use super::connection_options::Connection;
use super::failures::{Failures, each};
use super::logon::keep;
use super::pacing::Pacing;
use crate::exit::Done;

/// Small files that each lane has to have for its logon to be worth it.
const FILES_PER_LANE: usize = 250;

/// How long a lane but the first waits for a lost server.
const PATIENCE: Duration = Duration::from_secs(5);

/// The sessions of a copy: the first one, and further ones for small files.
pub(crate) struct ParallelSessions {
    /// The open sessions. The first one is never given up.
    open: RefCell<Vec<Rc<Lane>>>,
    most: usize,
    patience: Duration,
}

struct Lane {
    share: Share,
    /// Files that this session copies now.
    load: Cell<usize>,
    is_first: bool,
    given_up: Notify,
}

impl Lane {
    fn new(share: Share, is_first: bool) -> Rc<Self> {
        Rc::new(Self { share, load: Cell::new(0), is_first, given_up: Notify::new() })
    }
}

/// A file under way on a lane.
struct Counted<'a>(&'a Cell<usize>);

impl<'a> Counted<'a> {
    fn new(load: &'a Cell<usize>) -> Self {
        load.set(load.get() + 1);
        Self(load)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

impl ParallelSessions {
    /// `share`, and what `connection` allows beside it.
    pub(crate) fn new(share: &Share, connection: &Connection) -> Self {
        Self {
            open: RefCell::new(vec![Lane::new(share.clone(), true)]),
            most: connection.connections,
            patience: PATIENCE.min(Duration::from_secs(connection.patience)),
        }
    }

    /// Does `work` for each, many at once; what fails is noted. It may be done twice
    /// for one that is small.
    pub(crate) async fn each<'n, T: Copy>(
        &self,
        all: impl Iterator<Item = T> + Clone,
        is_small: impl Fn(T) -> bool,
        folder: impl Fn(T) -> &'n str,
        work: impl AsyncFn(&Share, T) -> frevo_client::Result<()>,
        failures: &mut Failures,
    ) -> Done {
        let small = all.clone().filter(|one| is_small(*one));
        // smbd searches the whole folder for each new name, so new files in one folder wait for
        // each other. With a single folder, further sessions would not help.
        let folders: HashSet<_> = small.clone().map(folder).collect();
        let folders = if folders.len() < 2 { 1 } else { self.most };
        let worth = (small.count() / FILES_PER_LANE).min(folders);
        let (is_small, work) = (&is_small, &work);
        let pacing = &Pacing::new();
        let running = all.map(|one| async move {
            if is_small(one) {
                let start = Instant::now();
                let done = self.on_any(one, work).await;
                pacing.note(start.elapsed(), self.load() + 1);
                done
            } else {
                let first = self.first();
                let _counted = Counted::new(&first.load);
                work(&first.share, one).await
            }
        });
        let running = each(running, failures);
        let widening = async {
            self.widen(worth).await;
            std::future::pending().await
        };
        tokio::select! {
            biased;
            done = running => done,
            never = widening => never,
        }
    }

    /// Opens lanes until there are `wanted`. One that cannot be had is
    /// done without; a DFS namespace is gone through over the first.
    async fn widen(&self, wanted: usize) {
        let first = self.first();
        if first.share.is_dfs() {
            // In a DFS namespace each link is followed in a session with the link's target, so
            // further sessions with this server would not help.
            return;
        }
        while self.open.borrow().len() < wanted {
            let opened = async {
                let session = first.share.session().open_another(self.patience).await?;
                session.share(first.share.name()).await
            };
            match opened.await {
                Ok(share) => {
                    keep(&share);
                    self.open.borrow_mut().push(Lane::new(share, false));
                }
                Err(error) => {
                    tracing::debug!(%error, "no further connection");
                    return;
                }
            }
        }
    }

    /// Files that all sessions copy now.
    fn load(&self) -> usize {
        self.open.borrow().iter().map(|lane| lane.load.get()).sum()
    }

    fn first(&self) -> Rc<Lane> {
        #[allow(clippy::indexing_slicing, reason = "the first one stays")]
        Rc::clone(&self.open.borrow()[0])
    }

    fn least_busy(&self) -> Rc<Lane> {
        let open = self.open.borrow();
        open.iter().min_by_key(|lane| lane.load.get()).map_or_else(|| self.first(), Rc::clone)
    }

    /// Does the work in the session that has the least to do. Work that fails in another session
    /// than the first is tried again in the first.
    async fn on_any<T: Copy>(
        &self,
        one: T,
        work: &impl AsyncFn(&Share, T) -> frevo_client::Result<()>,
    ) -> frevo_client::Result<()> {
        let lane = self.least_busy();
        if lane.is_first {
            let _counted = Counted::new(&lane.load);
            return work(&lane.share, one).await;
        }
        let given_up = lane.given_up.notified();
        let done = {
            let _counted = Counted::new(&lane.load);
            tokio::select! {
                biased;
                done = work(&lane.share, one) => Some(done),
                () = given_up => None,
            }
        };
        match done {
            Some(Ok(())) => return Ok(()),
            Some(Err(error)) => {
                tracing::debug!(%error, "tried again on the first connection");
                // The session is lost. All tasks that wait for it are woken, so that they do not
                // time out one after the other.
                if lane.share.session().info().is_none() {
                    self.give_up(&lane);
                    lane.given_up.notify_waiters();
                }
            }
            None => {}
        }
        let first = self.first();
        let _counted = Counted::new(&first.load);
        work(&first.share, one).await?;
        // The request failed in this session but succeeded in the first one, so this session is not
        // used again.
        self.give_up(&lane);
        Ok(())
    }

    fn give_up(&self, lane: &Rc<Lane>) {
        self.open.borrow_mut().retain(|open| !Rc::ptr_eq(open, lane));
    }
}
