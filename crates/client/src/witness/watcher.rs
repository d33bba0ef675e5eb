//! The task that keeps a session registered at a witness, and heeds what it tells.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::patience::{Patience, Recent};
use super::registration::Registration;
use super::told::{Verdict, judge};
use super::{NodeInUse, Watched, WitnessInfo, WitnessNews};
use crate::ambient::random;
use crate::error::Cause;
use crate::limits::{WITNESS_MOVES, WITNESS_NOTIFICATIONS, WITNESS_PAUSE_FIRST, WITNESS_WITHIN};
use crate::rpc_over_tcp::Caller;

/// The places of a session, and the task that watches them. The task ends with this value.
#[derive(Debug)]
pub(crate) struct Watcher {
    places: watch::Sender<Option<NodeInUse>>,
    state: Arc<Mutex<State>>,
}

impl Default for Watcher {
    fn default() -> Self {
        Self { places: watch::Sender::new(None), state: Arc::default() }
    }
}

#[derive(Debug, Default)]
struct State {
    /// True once the task has begun.
    has_begun: bool,
    by: Option<IpAddr>,
    heeded: u64,
    last: Option<(WitnessNews, Instant)>,
}

impl Watcher {
    /// Watches the session at this place from now on. `caller` is called for the first place.
    pub(crate) fn watch(
        &self,
        place: NodeInUse,
        session: Weak<dyn Watched>,
        caller: impl FnOnce() -> Caller,
    ) {
        self.places.send_if_modified(|now| {
            // Further shares of the session are at the same node: it is watched already.
            let is_new = now.as_ref().is_none_or(|now| now.generation != place.generation);
            if is_new {
                *now = Some(place);
            }
            is_new
        });
        if std::mem::replace(&mut self.state.lock().has_begun, true) {
            return;
        }
        let caller = caller();
        let [turn] = random(&*caller.options.ambient).unwrap_or_default();
        let task = Task {
            caller,
            session,
            places: self.places.subscribe(),
            state: Arc::clone(&self.state),
            patience: Patience::default(),
            turn: usize::from(turn),
            moves: Recent::of(WITNESS_MOVES, WITNESS_WITHIN),
            told: Recent::of(WITNESS_NOTIFICATIONS, WITNESS_WITHIN),
        };
        tokio::spawn(task.run());
    }

    /// Ends the registration until the session is at a place again.
    pub(crate) fn rest(&self) {
        self.places.send_if_modified(|now| now.take().is_some());
    }

    /// Returns the witness, and what it told; `None` if no share of the session has been watched.
    pub(crate) fn info(&self) -> Option<WitnessInfo> {
        let state = self.state.lock();
        let last = state.last.as_ref();
        let last = last.map(|(news, at)| WitnessNews { ago: at.elapsed(), ..news.clone() });
        let info = WitnessInfo { address: state.by, heeded: state.heeded, last };
        (state.has_begun && (info.address.is_some() || info.last.is_some())).then_some(info)
    }
}

struct Task {
    caller: Caller,
    session: Weak<dyn Watched>,
    places: watch::Receiver<Option<NodeInUse>>,
    state: Arc<Mutex<State>>,
    patience: Patience,
    /// The turn of the witnesses, so that clients of one node do not all have the same one.
    turn: usize,
    /// The moves that were made, and the notifications that came.
    moves: Recent,
    told: Recent,
}

/// The session is dropped.
struct Over;

impl From<watch::error::RecvError> for Over {
    fn from(_: watch::error::RecvError) -> Self {
        Self
    }
}

impl Task {
    async fn run(mut self) {
        // An error is the end of the session.
        while self.watch_next().await.is_ok() {}
        self.state.lock().by = None;
    }

    /// Watches the next place until it changes.
    async fn watch_next(&mut self) -> Result<(), Over> {
        let place = loop {
            if let Some(place) = self.places.borrow_and_update().clone() {
                break place;
            }
            self.places.changed().await?;
        };
        self.patience.begin();
        loop {
            let making = Registration::make(&self.caller, &place, &self.session, &mut self.turn);
            let made = tokio::select! {
                biased;
                changed = self.places.changed() => return changed.map_err(Over::from),
                made = making => made,
            };
            let begun = Instant::now();
            let why = match made {
                Ok(registration) => {
                    self.note_registered(&place, &registration);
                    let ended = self.listen(&place, registration).await;
                    self.state.lock().by = None;
                    match ended? {
                        Ended::Moved => return Ok(()),
                        Ended::Lost(why) => {
                            self.patience.note_lasted(begun.elapsed());
                            why
                        }
                    }
                }
                Err(why) => why,
            };
            let server = &self.caller.host;
            tracing::debug!(%server, node = %place.ip, %why, "no witness watches this session");
            let pause = self.patience.pause(&why);
            tokio::select! {
                biased;
                changed = self.places.changed() => return changed.map_err(Over::from),
                () = until(pause) => {}
            }
        }
    }

    /// Heeds notifications until the place changes or the registration is lost.
    async fn listen(
        &mut self,
        place: &NodeInUse,
        mut registration: Registration,
    ) -> Result<Ended, Over> {
        loop {
            // A witness that tells nothing without end keeps nobody busy.
            let pause = if self.told.has_room() { Duration::ZERO } else { WITNESS_PAUSE_FIRST };
            let waiting = async {
                sleep(pause).await;
                registration.news().await
            };
            let news = tokio::select! {
                biased;
                changed = self.places.changed() => {
                    tokio::spawn(registration.end());
                    changed?;
                    return Ok(Ended::Moved);
                }
                news = waiting => news,
            };
            self.told.note();
            let notification = match news {
                Ok(Some(notification)) => notification,
                Ok(None) => continue,
                Err(why) => return Ok(Ended::Lost(why)),
            };
            let verdict = judge(&notification, place, &registration.names);
            let is_left = self.heed(place, registration.by, &verdict);
            tracing::debug!(witness = %registration.by, ?verdict, is_left, "a witness tells");
        }
    }

    fn heed(&mut self, place: &NodeInUse, by: IpAddr, verdict: &Verdict) -> bool {
        if *verdict == Verdict::Stay {
            return false;
        }
        let Some(session) = self.session.upgrade() else { return false };
        if !self.moves.has_room() {
            tracing::warn!(witness = %by, "the witness tells to move without end; it is not heeded");
            return false;
        }
        if !session.heed(place, verdict) {
            return false;
        }
        self.moves.note();
        let to = verdict.addresses().to_vec();
        let news = WitnessNews { by, left: place.ip, to, ago: Duration::ZERO };
        let mut state = self.state.lock();
        state.heeded += 1;
        state.last = Some((news, Instant::now()));
        true
    }

    fn note_registered(&self, place: &NodeInUse, registration: &Registration) {
        let server = &self.caller.host;
        tracing::debug!(%server, node = %place.ip, witness = %registration.by, "watched by a witness");
        self.state.lock().by = Some(registration.by);
    }
}

/// The end of a registration.
enum Ended {
    /// The session is at another place, or at none.
    Moved,
    /// The witness does not answer any more.
    Lost(Cause),
}

/// Waits for a pause; without one for ever.
async fn until(pause: Option<Duration>) {
    match pause {
        Some(pause) => sleep(pause).await,
        None => std::future::pending().await,
    }
}
