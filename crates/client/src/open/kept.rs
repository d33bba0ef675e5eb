//! Persistent Opens that no program uses at the moment. After a loss of the server they are reconnected all
//! the same: the next one keeps them, with their locks, for the time that this client has asked for, and
//! refuses their files to others meanwhile (MS-SMB2 3.3.5.9, 3.3.7.1).

use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use futures_util::stream::{StreamExt, iter};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::Status;
use crate::error::{Cause, Error, Result};
use crate::limits::{KEPT_AT_ONCE, KEPT_ECHO, KEPT_LOOK, KEPT_PAUSE_MAX};

/// A persistent Open.
pub(crate) trait Persistent: Send + Sync {
    /// Returns true until it is closed or lost, or the user logs off.
    fn is_in_use(&self) -> bool;
    /// Returns true if it is open in the present session.
    fn is_placed(&self) -> bool;
    /// Returns true if the user is logged on now.
    fn has_session(&self) -> bool;
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
    fn in_use(&self) -> Vec<Weak<dyn Persistent>> {
        // The last reference to one ends after the mutex is free.
        let mut held = Vec::new();
        let mut state = self.state.lock();
        state.opens.retain(|open| {
            let open = open.upgrade();
            let stays = open.as_ref().is_some_and(|open| open.is_in_use());
            held.extend(open);
            stays
        });
        state.is_watched = !state.opens.is_empty();
        state.opens.clone()
    }
}

/// The outcome of a look at the Opens; a later one is worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Look {
    /// All are open in the present session.
    Good,
    /// One was not reconnected.
    Failed,
    /// The server or the share was not found in time, so no Open can be reconnected.
    Unreachable,
    /// The server refuses the user. Further logons would lock the account, so a program has to log on.
    Refused,
}

impl Look {
    /// Returns the outcome after a reconnect that has failed.
    fn after(error: &Error) -> Self {
        match error.cause() {
            Cause::Kerberos(why) if why.may_pass() => Self::Unreachable,
            Cause::Transport(_)
            | Cause::Status(Status::BAD_NETWORK_NAME | Status::SERVER_UNAVAILABLE) => {
                Self::Unreachable
            }
            _ if error.is_logon_refused() => Self::Refused,
            _ => Self::Failed,
        }
    }
}

/// Looks after the Opens until none is in use. A server that falls silent while nothing is asked is noticed
/// by an ECHO.
async fn watch(kept: Arc<Kept>) {
    let mut asked = Instant::now();
    let (mut last, mut pause) = (Look::Good, KEPT_LOOK);
    loop {
        // Its end is the same as that of the wait: both are looked for.
        _ = timeout(pause, kept.hurry.notified()).await;
        let opens = kept.in_use();
        if opens.is_empty() {
            return;
        }
        if asked.elapsed() >= KEPT_ECHO
            && let Some(one) = opens.iter().find_map(Weak::upgrade)
        {
            asked = Instant::now();
            one.ask_for_life();
        }
        let look = Mutex::new(Look::Good);
        iter(opens).for_each_concurrent(KEPT_AT_ONCE, |open| reconnect(open, last, &look)).await;
        last = look.into_inner();
        pause = if last == Look::Good { KEPT_LOOK } else { (pause * 2).min(KEPT_PAUSE_MAX) };
    }
}

/// Reconnects an Open if it is lost, unless none can be reconnected in this look.
async fn reconnect(open: Weak<dyn Persistent>, last: Look, look: &Mutex<Look>) {
    if *look.lock() >= Look::Unreachable {
        return;
    }
    let lost = open.upgrade().filter(|open| open.is_in_use() && !open.is_placed());
    let Some(open) = lost else { return };
    let found = if last == Look::Refused && !open.has_session() {
        Look::Refused
    } else if let Err(error) = open.reconnect().await {
        tracing::debug!(%error, "a handle that is not in use was not reconnected");
        if open.is_in_use() { Look::after(&error) } else { Look::Good }
    } else {
        Look::Good
    };
    let mut look = look.lock();
    *look = found.max(*look);
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    /// An Open that is lost, and is not reconnected as long as there is a reason.
    struct Lost {
        why: Mutex<Option<Cause>>,
        takes: Duration,
        tried: Mutex<Vec<Instant>>,
        is_placed: AtomicBool,
        has_session: AtomicBool,
    }

    impl Lost {
        fn new(why: impl Into<Cause>, takes: Duration) -> Arc<Self> {
            Arc::new(Self {
                why: Mutex::new(Some(why.into())),
                takes,
                tried: Mutex::default(),
                is_placed: AtomicBool::new(false),
                has_session: AtomicBool::new(false),
            })
        }

        fn tries(&self) -> usize {
            self.tried.lock().len()
        }
    }

    impl Persistent for Lost {
        fn is_in_use(&self) -> bool {
            true
        }

        fn is_placed(&self) -> bool {
            self.is_placed.load(Ordering::Acquire)
        }

        fn has_session(&self) -> bool {
            self.has_session.load(Ordering::Acquire)
        }

        fn reconnect(&self) -> BoxFuture<'_, Result<()>> {
            Box::pin(async {
                self.tried.lock().push(Instant::now());
                sleep(self.takes).await;
                let why = self.why.lock().clone();
                self.is_placed.store(why.is_none(), Ordering::Release);
                why.map_or(Ok(()), |why| Err(Error::new(why, "reconnect", "smb://server/share/f")))
            })
        }

        fn ask_for_life(&self) {}
    }

    fn unreachable() -> Cause {
        std::io::Error::from(ErrorKind::HostUnreachable).into()
    }

    fn watched(opens: &[Arc<Lost>]) {
        let kept = Arc::new(Kept::default());
        for open in opens {
            let open: Weak<Lost> = Arc::downgrade(open);
            kept.add(open);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_handle_that_is_not_reconnected_is_tried_again_after_growing_pauses() {
        let open = Lost::new(unreachable(), Duration::ZERO);
        watched(&[Arc::clone(&open)]);
        sleep(Duration::from_secs(600)).await;
        let tried = open.tried.lock().clone();
        let pauses: Vec<_> = tried.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(pauses.is_sorted() && pauses[0] < KEPT_LOOK * 3, "{pauses:?}");
        assert!(pauses.last().unwrap().abs_diff(KEPT_PAUSE_MAX) < Duration::from_millis(9));
        *open.why.lock() = None;
        sleep(KEPT_PAUSE_MAX + Duration::from_secs(1)).await;
        assert!(open.is_placed());
        let tries = open.tries();
        open.is_placed.store(false, Ordering::Release);
        sleep(KEPT_LOOK * 2).await;
        assert_eq!(open.tries(), tries + 1, "the pauses begin anew");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_lost_is_waited_for_once_in_a_look() {
        let opens: Vec<_> =
            (0..64).map(|_| Lost::new(unreachable(), Duration::from_secs(60))).collect();
        watched(&opens);
        sleep(Duration::from_secs(30)).await;
        let held = opens.iter().filter(|open| Arc::strong_count(open) > 1).count();
        assert_eq!(held, KEPT_AT_ONCE, "the others can be closed meanwhile");
        sleep(Duration::from_secs(32)).await;
        let tries: usize = opens.iter().map(|open| open.tries()).sum();
        assert_eq!(tries, KEPT_AT_ONCE);
        for open in &opens {
            *open.why.lock() = Some(Status::CANCELLED.into());
        }
        sleep(Duration::from_secs(400)).await;
        assert!(
            opens.iter().all(|open| open.tries() > 0),
            "an error of one says nothing of others"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_user_is_not_logged_on_for_idle_handles() {
        let open = Lost::new(Status::LOGON_FAILURE, Duration::ZERO);
        watched(&[Arc::clone(&open)]);
        sleep(Duration::from_secs(600)).await;
        assert_eq!(open.tries(), 1);
        *open.why.lock() = None;
        open.has_session.store(true, Ordering::Release);
        sleep(KEPT_PAUSE_MAX + Duration::from_secs(1)).await;
        assert!(open.is_placed(), "a program has logged on again");
    }
}
