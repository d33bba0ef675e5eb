//! Slows password guessing.
//!
//! Attempts on one account from one network are heeded one after the other: a failed
//! one closes the line of its account and network for [`LOGON_DELAY`], on whatever
//! connections the next ones come. Of those that wait, the one goes first whose address
//! has failed least and has the fewest others waiting, and of addresses that have not
//! failed the one that came last, so that an honest client does not wait for its
//! neighbours' guesses. Each address that has not failed and comes behind it while it
//! waits may cost it one more turn: nothing tells the two apart. An address that fails
//! again waits longer itself, unless somebody has logged on to this account from there a
//! short time ago: behind such an address there are others than the guesser, as at a
//! terminal server. Of its attempts those of a client go first that has failed least, and that was
//! least often refused for want of a turn.
//! Addresses and clients that logged on to this account a short
//! time ago pass the line by, until they fail.
//!
//! No attempt waits longer than [`LOGON_PATIENCE`]. One whose turn has not come by then is
//! refused unjudged. So is one for which there is no room, and at the same time: otherwise its client
//! would be back at once, and the line would be full of those that ask most often.
//!
//! Everything here is decided without regard to the outcome of the attempt until it is
//! heeded: its place in the line tells nothing about the password.

mod memory;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use frevo_wire::dtyp::Guid;
use frevo_wire::fscc::fold_name;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::base::limits::{
    LOGON_DELAY, LOGON_DELAY_MAX, LOGON_LINES, LOGON_NAME_BYTES, LOGON_PATIENCE, LOGON_WAITING,
};
use crate::base::prefix::Prefix;
use memory::{Failures, GoodLogons, Source};

/// An account's name as it is remembered.
type Name = Arc<str>;

/// An attempt to log on, with its outcome, which nobody has been told yet.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// The client's address.
    pub address: IpAddr,
    /// Connection.ClientGuid; zero before 2.1.
    pub client: Guid,
    /// The account, or the name that was claimed where there is none.
    pub account: &'a str,
    /// True when the logon succeeds.
    pub success: bool,
}

/// An attempt as the line keeps it.
#[derive(Debug)]
struct Entrant {
    name: Name,
    address: IpAddr,
    client: Option<Guid>,
    success: bool,
}

/// One that waits in a line.
#[derive(Debug)]
struct Waiter {
    number: u64,
    entrant: Entrant,
    /// Takes the delay of the answer.
    turn: oneshot::Sender<Duration>,
}

/// The attempts on one account from one network.
#[derive(Debug)]
struct Line {
    free_at: Instant,
    /// Time that failures of those who passed by have used up. Addresses that have
    /// failed wait for it, others do not.
    owed: Duration,
    waiting: Vec<Waiter>,
}

#[derive(Debug, Default)]
struct State {
    lines: HashMap<(Name, Prefix), Line>,
    failures: Failures,
    /// Attempts that were refused unjudged.
    unjudged: Failures,
    good: GoodLogons,
    last_number: u64,
    /// Failed attempts that were heeded.
    guesses: u64,
}

/// Failed logons by network and account, and those that wait for them.
#[derive(Debug, Default)]
pub struct LogonThrottle(Mutex<State>);

/// The answer to an entrant.
enum Entered {
    /// It is heeded, and answered after this time.
    Now(Duration),
    /// It waits for its turn.
    Waits(oneshot::Receiver<Duration>),
    /// There is no place.
    Full,
}

impl LogonThrottle {
    /// Waits as long as the answer to an attempt has to wait, [`LOGON_PATIENCE`] at most. False when
    /// its outcome does not count: it is answered as a failure whatever it was, because its turn has
    /// not come, and one more answer would be one more guess.
    pub async fn heed(&self, attempt: Attempt<'_>) -> bool {
        let gives_up = Instant::now() + LOGON_PATIENCE;
        let line = (remembered(attempt.account), network(attempt.address));
        let entered = self.0.lock().enter(&line, attempt);
        let delay = match entered {
            Entered::Now(delay) => Some(delay),
            Entered::Waits(turn) => self.turn(&line, turn, gives_up).await,
            Entered::Full => None,
        };
        let answered = delay.map_or(gives_up, |delay| gives_up.min(Instant::now() + delay));
        if delay != Some(Duration::ZERO) {
            sleep_until(answered).await;
        }
        if delay.is_none() {
            self.0.lock().refuse(&line.0, attempt);
        }
        delay.is_some()
    }

    /// Returns the number of failed attempts that were heeded.
    pub fn guesses(&self) -> u64 {
        self.0.lock().guesses
    }

    /// Waits for the turn of an attempt. None when it has not come in time, or when another took its
    /// place.
    async fn turn(
        &self,
        line: &(Name, Prefix),
        mut turn: oneshot::Receiver<Duration>,
        gives_up: Instant,
    ) -> Option<Duration> {
        loop {
            let look = self.0.lock().admit(line).unwrap_or(gives_up);
            let is_late = Instant::now() >= gives_up;
            tokio::select! {
                biased;
                delay = &mut turn => return delay.ok(),
                () = sleep_until(look.min(gives_up)) => {}
            }
            if is_late {
                return None;
            }
        }
    }
}

impl State {
    fn enter(&mut self, line: &(Name, Prefix), attempt: Attempt<'_>) -> Entered {
        let now = Instant::now();
        let entrant = Entrant {
            name: Arc::clone(&line.0),
            address: attempt.address,
            client: attempt.client(),
            success: attempt.success,
        };
        if self.passes_by(&entrant, now) {
            return Entered::Now(self.heed(line, &entrant, now, true));
        }
        if !self.lines.contains_key(line) && !self.has_room(now) {
            return Entered::Full;
        }
        self.last_number += 1;
        let (turn, waits) = oneshot::channel();
        let waiter = Waiter { number: self.last_number, entrant, turn };
        let fresh = || Line { free_at: now, owed: Duration::ZERO, waiting: Vec::new() };
        self.lines.entry(line.clone()).or_insert_with(fresh).waiting.push(waiter);
        self.displace(line, now);
        Entered::Waits(waits)
    }

    /// True for addresses and clients that logged on to this account lately and have
    /// not failed since.
    fn passes_by(&self, entrant: &Entrant, now: Instant) -> bool {
        entrant.sources().any(|source| {
            self.good.has(&entrant.name, source, now)
                && !self.failures.is_held(&entrant.name, source, now)
        })
    }

    /// Admits those whose turn it is; when to look again.
    fn admit(&mut self, line: &(Name, Prefix)) -> Option<Instant> {
        let now = Instant::now();
        loop {
            let of_line = self.lines.get_mut(line)?;
            of_line.waiting.retain(|waiter| !waiter.turn.is_closed());
            if of_line.waiting.is_empty() {
                return None;
            }
            if of_line.free_at > now {
                return Some(of_line.free_at);
            }
            let repaid = of_line.free_at + of_line.owed;
            let has_failed = |entrant: &Entrant| {
                self.failures.count(&entrant.name, Source::exact(entrant.address), now) > 0
            };
            let free_at = |waiter: &Waiter| {
                let (name, source) = (&waiter.entrant.name, Source::exact(waiter.entrant.address));
                if !has_failed(&waiter.entrant) {
                    return None;
                }
                let is_known = self.good.has(name, source, now);
                let held = self.failures.free_at(name, source).filter(|_| !is_known);
                held.max(Some(repaid))
            };
            let (ready, held): (Vec<_>, Vec<_>) = of_line
                .waiting
                .iter()
                .enumerate()
                .partition(|(_, waiter)| free_at(waiter).is_none_or(|at| at <= now));
            let Some((first, _)) = ready.into_iter().min_by_key(|(_, waiter)| {
                rank(&self.failures, &self.unjudged, of_line, waiter, now)
            }) else {
                return held.into_iter().filter_map(|(_, waiter)| free_at(waiter)).min();
            };
            let waiter = of_line.waiting.swap_remove(first);
            if has_failed(&waiter.entrant) {
                of_line.owed = Duration::ZERO;
            }
            let delay = self.heed(line, &waiter.entrant, now, false);
            let _ = waiter.turn.send(delay);
        }
    }

    /// The outcome counts from now on. The delay of its answer.
    fn heed(
        &mut self,
        line: &(Name, Prefix),
        entrant: &Entrant,
        now: Instant,
        passes: bool,
    ) -> Duration {
        let name = &entrant.name;
        if entrant.success {
            for source in entrant.sources() {
                self.failures.forgive(name, source);
                self.unjudged.forgive(name, source);
                self.good.note(name, source, now);
            }
            return Duration::ZERO;
        }
        self.guesses = self.guesses.saturating_add(1);
        let fresh = || Line { free_at: now, owed: Duration::ZERO, waiting: Vec::new() };
        let of_line = self.lines.entry(line.clone()).or_insert_with(fresh);
        if passes && of_line.free_at > now {
            of_line.owed = (of_line.owed + LOGON_DELAY).min(LOGON_DELAY_MAX);
        } else {
            of_line.free_at = now + LOGON_DELAY;
        }
        if let Some(client) = entrant.client.map(Source::Client) {
            self.failures.note(name, client, now);
        }
        let delays = Prefix::of_guess(entrant.address)
            .map(|prefix| self.failures.note(name, Source::Prefix(prefix), now));
        delays.last().unwrap_or(LOGON_DELAY)
    }

    /// Remembers an attempt that was refused unjudged.
    fn refuse(&mut self, name: &Name, attempt: Attempt<'_>) {
        let now = Instant::now();
        for source in attempt.sources() {
            self.unjudged.note(name, source, now);
        }
    }

    /// Makes the last one of a line that is too long leave.
    fn displace(&mut self, line: &(Name, Prefix), now: Instant) {
        let Some(of_line) = self.lines.get_mut(line) else { return };
        of_line.waiting.retain(|waiter| !waiter.turn.is_closed());
        if of_line.waiting.len() <= LOGON_WAITING {
            return;
        }
        let ranked = of_line.waiting.iter().enumerate();
        let worst = ranked
            .max_by_key(|(_, waiter)| rank(&self.failures, &self.unjudged, of_line, waiter, now));
        if let Some((worst, _)) = worst {
            of_line.waiting.swap_remove(worst);
        }
    }

    /// True when there can be one line more. A line in which nobody waits, and which is
    /// free, is none.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.lines.len() >= LOGON_LINES {
            self.lines.retain(|_, line| line.free_at > now || !line.waiting.is_empty());
        }
        self.lines.len() < LOGON_LINES
    }
}

impl Attempt<'_> {
    fn client(&self) -> Option<Guid> {
        (self.client != Guid::default()).then_some(self.client)
    }

    /// The ways by which it may be known.
    fn sources(&self) -> impl Iterator<Item = Source> {
        sources(self.address, self.client())
    }
}

impl Entrant {
    /// The ways by which it may be known.
    fn sources(&self) -> impl Iterator<Item = Source> {
        sources(self.address, self.client)
    }
}

fn sources(address: IpAddr, client: Option<Guid>) -> impl Iterator<Item = Source> {
    [Source::exact(address)].into_iter().chain(client.map(Source::Client))
}

/// The order in a line: failures of the prefixes of the address, the widest first, then those of
/// the client, then how often address and client were refused unjudged, then how many of the
/// address wait. Of addresses that have not failed, the last to come goes first: those who come
/// with many of them beforehand do not fill the line for others. Behind them goes the first to
/// come.
fn rank(
    failures: &Failures,
    unjudged: &Failures,
    line: &Line,
    waiter: &Waiter,
    now: Instant,
) -> Rank {
    let (name, address) = (&waiter.entrant.name, waiter.entrant.address);
    let mut prefixes = [0; 4];
    for (count, prefix) in prefixes.iter_mut().zip(Prefix::of_guess(address)) {
        *count = failures.count(name, Source::Prefix(prefix), now);
    }
    let client = waiter.entrant.client.map(Source::Client);
    let of_client = |kept: &Failures| client.map_or(0, |client| kept.count(name, client, now));
    let exact = Source::exact(address);
    let is_fresh = failures.count(name, exact, now) == 0;
    Rank {
        prefixes,
        client: of_client(failures),
        unjudged: unjudged.count(name, exact, now),
        unjudged_client: of_client(unjudged),
        crowd: line.waiting.iter().filter(|other| other.entrant.address == address).count(),
        order: if is_fresh { u64::MAX - waiter.number } else { waiter.number },
    }
}

/// See [`rank`].
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    prefixes: [u32; 4],
    client: u32,
    unjudged: u32,
    unjudged_client: u32,
    crowd: usize,
    order: u64,
}

/// The network whose attempts on one account are heeded one after the other.
fn network(address: IpAddr) -> Prefix {
    Prefix::of_guess(address).next().unwrap_or_else(|| Prefix::exact(address))
}

/// The name as it is remembered: as accounts are found by it, and never long.
fn remembered(user: &str) -> Name {
    fold_name(shortened(user)).into()
}

/// As much of a name that a stranger claims as is worth keeping or logging.
pub(crate) fn shortened(user: &str) -> &str {
    let ends = user.char_indices().map(|(at, c)| at.saturating_add(c.len_utf8()));
    let end = ends.take_while(|end| *end <= LOGON_NAME_BYTES).last().unwrap_or(0);
    user.get(..end).unwrap_or("")
}

#[cfg(test)]
mod tests;
