//! Logging on: for the first time, and again after the session was lost, at whatever node of a cluster
//! answers. MS-SMB2 3.2.4.1.7, 3.2.7.1.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use frevo_wire::command::negotiate::GlobalCapabilities;
use parking_lot::{Mutex, RwLock};
use tokio::time::{Instant, sleep, timeout};

use super::channels::Ways;
use super::connector::{Reached, is_final, is_of_node};
use super::logon::Logon;
use super::operations::Operations;
use super::previous::Previous;
use super::progress::{Failed, Progress};
use super::renewal::{Reauthenticate, Renewal};
use super::{Inner, Live, channel};
use crate::account;
use crate::connection::Vigilance;
use crate::error::Cause;
use crate::limits::{
    BACK_OFF_FIRST, BACK_OFF_MAX, LOG_OFF_FOR, LOGON_AGAIN_AFTER, NEXT_TARGET_AFTER,
};

impl Inner {
    /// Returns the session, after recovering it if needed.
    pub(crate) async fn live(&self) -> Result<Arc<Live>, Cause> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let since = Instant::now();
        let _turn = self.recovering.lock().await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        self.check_open()?;
        if let Some(why) = self.known_since(since) {
            return Err(why);
        }
        self.nodes.note_lost();
        let lost = self.live.read().clone();
        let previous = Previous::of(lost.as_ref());
        if let Some(lost) = lost {
            if lost.is_silent.load(Ordering::Acquire) {
                self.connector.search.note_silent(&lost.address);
            }
            self.reconsider_dialect()?;
        }
        let recovered = self.recover(previous, since).await;
        let live = recovered.inspect_err(|why| {
            *self.vain.lock() = Some((Instant::now(), why.clone()));
        })?;
        tracing::debug!(server = %self.connector.server, "the session was recovered");
        if !self.is_kept(&live) {
            let _ = timeout(LOG_OFF_FOR, channel::log_off(&live)).await;
            live.abandon();
        }
        self.check_open()?;
        self.unreachable.send_replace(false);
        Ok(live)
    }

    /// Returns true after a logoff.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn check_open(&self) -> Result<(), Cause> {
        if self.is_closed() { Err(Cause::Usage("the session is logged off")) } else { Ok(()) }
    }

    /// Makes `live` the session. Returns false if the session was logged off meanwhile.
    fn is_kept(&self, live: &Arc<Live>) -> bool {
        let mut now = self.live.write();
        // A logoff sets the flag `is_closed` before it removes the session, so after a logoff no
        // session is stored here.
        let is_kept = !self.is_closed();
        if is_kept {
            *now = Some(Arc::clone(live));
        }
        is_kept
    }

    /// The result of an attempt that another caller made since `since`, if it counts for this
    /// one too: a final error, or an error after the caller's patience has ended. A refused
    /// logon is not tried again soon: after a change of password that would lock the account.
    fn known_since(&self, since: Instant) -> Option<Cause> {
        let (at, why) = self.vain.lock().clone()?;
        let is_over =
            at >= since && (is_final(&why) || since.elapsed() + BACK_OFF_FIRST >= self.patience());
        let is_refused = at.elapsed() < LOGON_AGAIN_AFTER
            && matches!(why, Cause::Status(status) if account::is_of_logon(status));
        (is_over || is_refused).then_some(why)
    }

    /// The longest time for which operations wait for a lost server.
    pub(crate) fn patience(&self) -> Duration {
        self.client.options.recover_for
    }

    /// Returns when the server was lost and does not come back: an attempt to reach it again has failed or
    /// takes long, or the server had fallen silent before.
    pub(crate) async fn found_unreachable(&self) {
        if self.live.read().as_ref().is_some_and(|lost| lost.fell_silent()) {
            return;
        }
        // The wait cannot fail, because `self` owns the sender of this channel.
        let mut unreachable = self.unreachable.subscribe();
        let _ = timeout(NEXT_TARGET_AFTER, unreachable.wait_for(|is_so| *is_so)).await;
    }

    /// Notices the loss of the server soon from now on: others have the same files.
    pub(crate) fn be_replaceable(&self) {
        if !self.is_replaceable.swap(true, Ordering::AcqRel)
            && let Some(live) = self.live.read().as_ref()
        {
            live.be_vigilant(Vigilance::Target);
        }
    }

    /// Tries until an attempt succeeds or fails for good, or patience ends.
    async fn recover(&self, previous: Previous, since: Instant) -> Result<Arc<Live>, Cause> {
        let until = since + self.patience();
        let mut pause = BACK_OFF_FIRST;
        loop {
            let why = match self.establish(previous).await {
                Ok(live) => return Ok(live),
                Err(why) if is_final(&why) && !self.may_pass(&why) => return Err(why),
                Err(why) => why,
            };
            self.unreachable.send_replace(true);
            if Instant::now() + pause >= until {
                return Err(why);
            }
            sleep(pause).await;
            self.check_open()?;
            pause = (pause * 2).min(BACK_OFF_MAX);
        }
    }

    /// Returns true if the error of a recovery is one of a node, and another node may take the share
    /// over in a moment, or come back.
    fn may_pass(&self, why: &Cause) -> bool {
        let search = &self.connector.search;
        is_of_node(why) && search.is_continuous() && search.count() > 1
    }

    /// Makes an attempt at each address that was not tried in this round of the search, until one
    /// succeeds. The error is that of the attempt that got furthest.
    pub(super) async fn establish(&self, previous: Previous) -> Result<Arc<Live>, Cause> {
        let (begun, limit) = (Instant::now(), self.client.options.connect_timeout);
        let mut furthest = None;
        loop {
            let progress = Progress::default();
            let why = match self.attempt(previous, &progress).await {
                Ok(live) => return Ok(live),
                Err(why) => why,
            };
            // A node that hangs in the logon takes the time of the others. Addresses that do not answer
            // have had their time together.
            let limit = if progress.address().is_some() { limit * 3 } else { limit };
            let is_over = begun.elapsed() >= limit;
            if !is_of_node(&why) {
                return Err(why);
            }
            // An address where nobody listens says nothing about the server at another one.
            let failed = Failed { at: None, step: progress.step(), why };
            let best = Failed::better(furthest.take(), failed);
            if is_over || self.connector.search.untried().is_empty() {
                return Err(best.why);
            }
            let (server, why) = (&self.connector.server, &best.why);
            tracing::debug!(%server, %why, "another address is tried");
            furthest = Some(best);
        }
    }

    /// Makes one attempt, with a time limit.
    async fn attempt(&self, previous: Previous, progress: &Progress) -> Result<Arc<Live>, Cause> {
        let limit = self.client.options.connect_timeout;
        // The logon is not part of the limit, because KDCs have time limits of their own.
        let logon = self.connector.logon().await?;
        let attempt = timeout(limit, self.establish_once(&logon, previous, progress)).await;
        let attempt = attempt.unwrap_or_else(|_| Err(progress.overdue(limit)));
        let live = attempt.inspect_err(|_| {
            let search = &self.connector.search;
            match progress.address() {
                Some(address) => search.note_not_logged_on(&address),
                // The others were noted. These have had their time, all of it.
                None => progress.under_way().iter().for_each(|late| search.note_failed(late)),
            }
        })?;
        let wanted = self.client.options.channels;
        if live.is_wide {
            let mut ways = Ways::new(wanted == 0);
            if wanted > 1 {
                // If no further channel can be added in time, the session works with one.
                let _ = timeout(limit, ways.fill(&self.connector, &live)).await;
            }
            live.keep(&self.connector, ways);
        }
        Ok(live)
    }

    async fn establish_once(
        &self,
        logon: &Logon<'_>,
        previous: Previous,
        progress: &Progress,
    ) -> Result<Arc<Live>, Cause> {
        // Of all sessions of this process, so that no number means two of them: a share can go from
        // one to another.
        static GENERATIONS: AtomicU64 = AtomicU64::new(0);
        let Reached { claim, address } = match previous.is_first {
            true => self.connector.connect_first(progress).await?,
            false => self.connector.connect(progress).await?,
        };
        progress.note_address(&address);
        let agreed = claim.agreed().clone();
        let logged_on = logon.begin(claim, previous.at(agreed.server_guid)).await?;
        if logged_on.channel.signing.is_some() {
            self.was_proved.store(true, Ordering::Release);
        } else if self.was_proved.load(Ordering::Acquire) {
            return Err(Cause::Security(
                "the server logged the user on only as a guest, after a session with proof",
            ));
        }
        let is_wide = self.client.options.channels != 1
            && agreed.capabilities.contains(GlobalCapabilities::MULTI_CHANNEL)
            && logged_on.channel.signing.is_some()
            && agreed.terms.is_smb3();
        let by = Arc::clone(&self.connector) as Arc<dyn Reauthenticate>;
        let renewal = logged_on.ticket_end.map(|end| Renewal::new(by, end));
        let live = Arc::new(Live {
            generation: GENERATIONS.fetch_add(1, Ordering::AcqRel) + 1,
            session_id: logged_on.session_id,
            address,
            server_guid: agreed.server_guid,
            offer: agreed.offer,
            vigilance: Mutex::new(Vigilance::Usual),
            is_left: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
            security: logged_on.security,
            terms: agreed.terms,
            capabilities: agreed.capabilities,
            posix: agreed.posix,
            signing: logged_on.channel.signing.clone(),
            channels: RwLock::new(vec![Arc::new(logged_on.channel)]),
            sequence: AtomicU16::new(0),
            broken: OnceLock::new(),
            keepers: Mutex::new(Vec::new()),
            activity: Arc::default(),
            is_wide,
            operations: Operations::default(),
            renewal,
        });
        if self.is_replaceable.load(Ordering::Acquire) {
            live.be_vigilant(Vigilance::Target);
        }
        live.keep_fresh();
        Ok(live)
    }
}
