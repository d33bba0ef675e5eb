//! Persistent Opens that no program uses at the moment. After a loss of the server they are reconnected all
//! the same: the next one keeps them, with their locks, for the time that this client has asked for, and
//! refuses their files to others meanwhile (MS-SMB2 3.3.5.9, 3.3.7.1).

use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use futures_util::stream::{StreamExt, iter};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::error::Result;
use crate::limits::{KEPT_AT_ONCE, KEPT_ECHO, KEPT_LOOK};

/// A persistent Open.
pub(crate) trait Persistent: Send + Sync {
    /// Returns true until it is closed or lost.
    fn is_in_use(&self) -> bool;
    /// Returns true if it is open in the present session.
    fn is_placed(&self) -> bool;
    /// Reconnects it.
    fn reconnect(&self) -> BoxFuture<'_, Result<()>>;
    /// Asks the server for life. A server that does not answer is lost a few seconds later.
    fn ask_for_life(&self);
}

/// The persistent Opens of a share.
#[derive(Default)]
pub(crate) struct Kept {
    state: Mutex<State>,
    hurry: Notify,
}

#[derive(Default)]
struct State {
    opens: Vec<Weak<dyn Persistent>>,
    /// A task looks after them.
    is_watched: bool,
}

impl Kept {
    /// Adds an Open, and starts the task that looks after all of them.
    pub(crate) fn add(self: &Arc<Self>, open: Weak<dyn Persistent>) {
        let mut state = self.state.lock();
        state.opens.push(open);
        if !std::mem::replace(&mut state.is_watched, true) {
            drop(tokio::spawn(watch(Arc::clone(self))));
        }
    }

    /// Has them looked at now: the server refuses a file because the handle of a client is missing, which may
    /// be one of these.
    pub(crate) fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// Returns the Opens that are in use. If there are none, nobody looks after them any more.
    fn in_use(&self) -> Vec<Arc<dyn Persistent>> {
        let mut opens = Vec::new();
        let mut state = self.state.lock();
        state.opens.retain(|open| {
            let open = open.upgrade().filter(|open| open.is_in_use());
            let stays = open.is_some();
            opens.extend(open);
            stays
        });
        state.is_watched = !opens.is_empty();
        opens
    }

    /// Removes an Open that could not be reconnected: its next request tries it again, or tells why.
    fn give_up(&self, open: &Arc<dyn Persistent>) {
        let one = Arc::downgrade(open);
        self.state.lock().opens.retain(|other| !other.ptr_eq(&one));
    }
}

/// Looks after the Opens until none is in use. A server that falls silent while nothing is asked is noticed
/// by an ECHO.
async fn watch(kept: Arc<Kept>) {
    let mut asked = Instant::now();
    loop {
        // Its end is the same as that of the wait: both are looked for.
        _ = timeout(KEPT_LOOK, kept.hurry.notified()).await;
        let opens = kept.in_use();
        let Some(one) = opens.first() else { return };
        if asked.elapsed() >= KEPT_ECHO {
            asked = Instant::now();
            one.ask_for_life();
        }
        let lost = opens.into_iter().filter(|open| !open.is_placed());
        iter(lost).for_each_concurrent(KEPT_AT_ONCE, |open| reconnect(&kept, open)).await;
    }
}

async fn reconnect(kept: &Kept, open: Arc<dyn Persistent>) {
    if let Err(error) = open.reconnect().await {
        tracing::debug!(%error, "a handle that is not in use was not reconnected");
        kept.give_up(&open);
    }
}
