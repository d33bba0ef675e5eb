//! Slows password guessing.
//!
//! Attempts on one account from one network are heeded one after the other: a failed
//! one closes the line of its account and network for [`LOGON_DELAY`], on whatever
//! connections the next ones come. Of those that wait, the one goes first whose address
//! has failed least and has the fewest others waiting, and of addresses that have not
//! failed the one that came last, so that an honest client does not wait for its
//! neighbours' guesses. Each address that has not failed and comes behind it while it
//! waits may cost it one more turn: nothing tells the two apart. An address that fails
//! again waits longer itself. Addresses and clients that logged on to this account a short
//! time ago pass the line by, until they fail.
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
use tokio::time::{Instant, sleep, sleep_until};

use crate::base::limits::{
    LOGON_DELAY, LOGON_DELAY_MAX, LOGON_LINES, LOGON_NAME_BYTES, LOGON_WAITING,
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
    good: GoodLogons,
    last_number: u64,
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
    /// Waits as long as the answer to an attempt has to wait. False when its outcome
    /// does not count: it is answered as a failure whatever it was, because too many
    /// wait, and one more answer would be one more guess.
    pub async fn heed(&self, attempt: Attempt<'_>) -> bool {
        let began = Instant::now();
        let gives_up = began + LOGON_DELAY_MAX;
        let line = (remembered(attempt.account), network(attempt.address));
        let entered = self.0.lock().enter(&line, attempt);
        match entered {
            Entered::Now(delay) => {
                pause(delay).await;
                return true;
            }
            Entered::Waits(mut turn) => loop {
                let look = self.0.lock().admit(&line).unwrap_or(gives_up);
                tokio::select! {
                    biased;
                    delay = &mut turn => match delay {
                        Ok(delay) => {
                            pause(delay).await;
                            return true;
                        }
                        Err(_displaced) => break,
                    },
                    () = sleep_until(look.min(gives_up)) => {}
                }
                if Instant::now() >= gives_up {
                    break;
                }
            },
            Entered::Full => {}
        }
        sleep_until(gives_up).await;
        false
    }
}

async fn pause(delay: Duration) {
    if !delay.is_zero() {
        sleep(delay).await;
    }
}

impl State {
    fn enter(&mut self, line: &(Name, Prefix), attempt: Attempt<'_>) -> Entered {
        let now = Instant::now();
        let entrant = Entrant {
            name: Arc::clone(&line.0),
            address: attempt.address,
            client: (attempt.client != Guid::default()).then_some(attempt.client),
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
                let entrant = &waiter.entrant;
                let held = self.failures.free_at(&entrant.name, Source::exact(entrant.address));
                if has_failed(entrant) { held.max(Some(repaid)) } else { None }
            };
            let (ready, held): (Vec<_>, Vec<_>) = of_line
                .waiting
                .iter()
                .enumerate()
                .partition(|(_, waiter)| free_at(waiter).is_none_or(|at| at <= now));
            let Some((first, _)) = ready
                .into_iter()
                .min_by_key(|(_, waiter)| rank(&self.failures, of_line, waiter, now))
            else {
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
                self.good.note(name, source, now);
            }
            return Duration::ZERO;
        }
        let fresh = || Line { free_at: now, owed: Duration::ZERO, waiting: Vec::new() };
        let of_line = self.lines.entry(line.clone()).or_insert_with(fresh);
        if passes && of_line.free_at > now {
            of_line.owed = (of_line.owed + LOGON_DELAY).min(LOGON_DELAY_MAX);
        } else {
            of_line.free_at = now + LOGON_DELAY;
        }
        if let Some(client) = entrant.client.map(Source::Client)
            && self.good.has(name, client, now)
        {
            self.failures.note(name, client, now);
        }
        let delays = Prefix::of_guess(entrant.address)
            .map(|prefix| self.failures.note(name, Source::Prefix(prefix), now));
        delays.last().unwrap_or(LOGON_DELAY)
    }

    /// Makes the last one of a line that is too long leave.
    fn displace(&mut self, line: &(Name, Prefix), now: Instant) {
        let Some(of_line) = self.lines.get_mut(line) else { return };
        of_line.waiting.retain(|waiter| !waiter.turn.is_closed());
        if of_line.waiting.len() <= LOGON_WAITING {
            return;
        }
        let ranked = of_line.waiting.iter().enumerate();
        let worst = ranked.max_by_key(|(_, waiter)| rank(&self.failures, of_line, waiter, now));
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

impl Entrant {
    /// The ways by which it may be known.
    fn sources(&self) -> impl Iterator<Item = Source> {
        [Source::exact(self.address)].into_iter().chain(self.client.map(Source::Client))
    }
}

/// The order in a line: failures of the prefixes of the address, the widest first, then
/// how many of the address wait. Of addresses that have not failed, the last to come goes
/// first: those who come with many of them beforehand do not fill the line for others.
/// Behind them goes the first to come.
fn rank(failures: &Failures, line: &Line, waiter: &Waiter, now: Instant) -> Rank {
    let (name, address) = (&waiter.entrant.name, waiter.entrant.address);
    let mut counts = [0; 4];
    for (count, prefix) in counts.iter_mut().zip(Prefix::of_guess(address)) {
        *count = failures.count(name, Source::Prefix(prefix), now);
    }
    let crowd = line.waiting.iter().filter(|other| other.entrant.address == address).count();
    let is_fresh = failures.count(name, Source::exact(address), now) == 0;
    let order = if is_fresh { u64::MAX - waiter.number } else { waiter.number };
    (counts, crowd, order)
}

/// See [`rank`].
type Rank = ([u32; 4], usize, u64);

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
