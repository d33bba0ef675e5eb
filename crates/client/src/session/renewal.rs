//! Reauthentication: a session by Kerberos ends with the user's ticket, unless the user shows
//! another one. It keeps its handles. MS-SMB2 3.2.4.2.3.1.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use frevo_wire::dtyp::FileTime;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::channel::{Failure, Live};
use crate::dial::ServerName;
use crate::error::Cause;
use crate::kerberos::KerberosError;
use crate::limits::{BACK_OFF_FIRST, BACK_OFF_MAX, RENEW_AHEAD, RENEW_PAUSE_MAX};

/// The way to another ticket, and with it to the server.
pub(super) trait Reauthenticate: Send + Sync {
    /// Authenticates the user of `live` again, with a ticket that ends later than `after`. Returns the
    /// end of the ticket.
    fn renew<'a>(&'a self, live: &'a Live, after: FileTime) -> Renewing<'a>;
    /// Returns the time of day.
    fn now(&self) -> FileTime;
    /// Returns the time for which a request waits for another ticket.
    fn patience(&self) -> Duration;
    /// Returns the server, for messages.
    fn server(&self) -> &ServerName;
}

/// The future of [`Reauthenticate::renew`].
pub(super) type Renewing<'a> =
    Pin<Box<dyn Future<Output = Result<FileTime, NotRenewed>> + Send + 'a>>;

/// The ticket's end of a session, and the way to another ticket.
pub(crate) struct Renewal {
    by: Arc<dyn Reauthenticate>,
    term: Mutex<Term>,
    /// True after the server has said that the ticket has ended.
    has_expired: AtomicBool,
    /// Held by the one who authenticates the user again. True after a wait for another ticket was in
    /// vain: further requests fail at once until there is one.
    turn: tokio::sync::Mutex<bool>,
}

/// The time until a ticket ends.
#[derive(Debug, Clone, Copy)]
struct Term {
    end: FileTime,
    /// Time before the end at which another ticket is looked for.
    ahead: Duration,
    /// True after it was said that there is no other ticket.
    is_told: bool,
}

/// The failure of one attempt.
pub(super) enum NotRenewed {
    /// There is no such ticket.
    NoTicket(KerberosError),
    /// The connection was lost, or the server refused.
    Lost(Cause),
}

impl Term {
    fn new(end: FileTime, now: FileTime) -> Self {
        Self { end, ahead: RENEW_AHEAD.min(between(now, end) / 4), is_told: false }
    }

    /// Returns the time until the next look at the clock, and whether an attempt is due then.
    fn wait(&self, now: FileTime) -> (Duration, bool) {
        let left = between(now, self.end);
        if left > self.ahead {
            let wait = left - self.ahead;
            return (wait.min(RENEW_PAUSE_MAX), wait <= RENEW_PAUSE_MAX);
        }
        ((self.ahead / 4).clamp(Duration::from_secs(1), RENEW_PAUSE_MAX), true)
    }
}

/// The time from one moment to a later one.
fn between(one: FileTime, later: FileTime) -> Duration {
    Duration::from_micros(later.0.saturating_sub(one.0) / 10)
}

impl Renewal {
    pub(super) fn new(by: Arc<dyn Reauthenticate>, end: FileTime) -> Self {
        let term = Mutex::new(Term::new(end, by.now()));
        Self { by, term, has_expired: AtomicBool::new(false), turn: tokio::sync::Mutex::new(false) }
    }
}

impl Live {
    /// Notes that the server wants another ticket. Returns false in a session by NTLM.
    pub(super) fn note_expiry(&self) -> bool {
        self.renewal.as_ref().is_some_and(|renewal| {
            renewal.has_expired.store(true, Ordering::Release);
            true
        })
    }

    /// Authenticates the user again if the server has said that the ticket has ended. Waits for a
    /// ticket as long as for a lost server, because its user may be about to get one.
    pub(super) async fn fresh(&self) -> Result<(), Failure> {
        let expired = |renewal: &&Renewal| renewal.has_expired.load(Ordering::Acquire);
        let Some(renewal) = self.renewal.as_ref().filter(expired) else { return Ok(()) };
        let until = Instant::now() + renewal.by.patience();
        let mut is_vain = renewal.turn.lock().await;
        let mut pause = BACK_OFF_FIRST;
        while expired(&renewal) {
            match self.renew(renewal, FileTime::ZERO).await {
                Ok(()) => *is_vain = false,
                Err(NotRenewed::NoTicket(error)) => {
                    if *is_vain || !error.may_pass() || Instant::now() + pause >= until {
                        *is_vain = true;
                        return Err(Failure::Final(error.into()));
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(BACK_OFF_MAX);
                }
                Err(NotRenewed::Lost(why)) => {
                    // The session could not be renewed. So a new one is set up, and its logon
                    // reports the reason.
                    tracing::debug!(%why, "the session could not be renewed");
                    self.abandon();
                    return Err(Failure::Unsent);
                }
            }
        }
        Ok(())
    }

    /// Authenticates the user again with a ticket that ends later than `after`.
    async fn renew(&self, renewal: &Renewal, after: FileTime) -> Result<(), NotRenewed> {
        let by = &renewal.by;
        let end = by.renew(self, after).await?;
        tracing::debug!(server = %by.server(), "the session was renewed with another ticket");
        *renewal.term.lock() = Term::new(end, by.now());
        renewal.has_expired.store(false, Ordering::Release);
        Ok(())
    }

    /// Starts the task that renews this session before its ticket ends.
    pub(super) fn keep_fresh(self: &Arc<Self>) {
        if self.renewal.is_some() {
            let task = tokio::spawn(keep_fresh(Arc::downgrade(self)));
            self.keepers.lock().push(task.abort_handle());
        }
    }
}

/// Renews a session before its ticket ends, until the session ends.
async fn keep_fresh(live: Weak<Live>) {
    loop {
        let Some(wait) = live.upgrade().and_then(|live| live.wait_for_renewal()) else { return };
        let (pause, is_due) = wait;
        sleep(pause).await;
        let Some(live) = live.upgrade().filter(|live| live.is_alive()) else { return };
        if is_due {
            live.renew_ahead().await;
        }
    }
}

impl Live {
    fn wait_for_renewal(&self) -> Option<(Duration, bool)> {
        let renewal = self.renewal.as_ref()?;
        let now = renewal.by.now();
        Some(renewal.term.lock().wait(now))
    }

    /// Tries to renew the session; a later attempt may succeed.
    async fn renew_ahead(&self) {
        let Some(renewal) = &self.renewal else { return };
        let _turn = renewal.turn.lock().await;
        let Term { end, ahead, .. } = *renewal.term.lock();
        // Another request has renewed the session meanwhile, so the end of the session is far
        // enough away now.
        if between(renewal.by.now(), end) > ahead {
            return;
        }
        match self.renew(renewal, end).await {
            Ok(()) => {}
            Err(NotRenewed::NoTicket(error)) => {
                let is_told = std::mem::replace(&mut renewal.term.lock().is_told, true);
                let left = between(renewal.by.now(), end).as_secs();
                if !is_told {
                    let server = renewal.by.server();
                    tracing::warn!(%server, "the Kerberos ticket ends in {left} s: {error}");
                }
            }
            Err(NotRenewed::Lost(why)) => tracing::debug!(%why, "the session was not renewed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_ticket_is_looked_for_ahead_of_the_end() {
        let at = |seconds: u64| FileTime((1_000_000 + seconds) * 10_000_000);
        let seconds = Duration::from_secs;
        // A ticket for ten hours (36,000 s) is renewed five minutes before its end.
        let term = Term::new(at(36_000), at(0));
        assert_eq!(term.wait(at(0)), (RENEW_PAUSE_MAX, false));
        assert_eq!(term.wait(at(35_680)), (seconds(20), true));
        assert_eq!(term.wait(at(35_700)), (RENEW_PAUSE_MAX, true));
        assert_eq!(term.wait(at(40_000)), (RENEW_PAUSE_MAX, true));
        // The ticket is valid for twenty seconds, so it is renewed five seconds before its end, not
        // five minutes.
        let term = Term::new(at(20), at(0));
        assert_eq!(term.wait(at(0)), (seconds(15), true));
        assert_eq!(term.wait(at(16)), (Duration::from_millis(1_250), true));
        // The ticket has expired already, so the next attempt comes after one second.
        assert_eq!(Term::new(at(0), at(9)).wait(at(9)), (seconds(1), true));
    }
}
