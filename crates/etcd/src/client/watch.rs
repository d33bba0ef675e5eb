//! A watch that goes on at another endpoint when its own breaks.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::future::{Future, pending};
use core::pin::Pin;
use core::sync::atomic::AtomicBool;
use core::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::exchange::{Begun, Miss, Sending, begin, miss_of};
use super::shared::Shared;
use crate::engine::Tell;
use crate::json::{self, Call, Lines, TOO_LONG, WatchLine};
use crate::limits::{PAUSE, TOKENS_PER_REQUEST, WATCH_PAUSE};
use crate::types::{Fault, Keys, Range, Revision, WatchAnswer};

/// Tells the changes after `after` until the watch has ended for good.
pub(super) async fn watch(shared: &Shared, prefix: &[u8], after: Revision, tell: &mut Tell) {
    let at = shared.endpoints.preferred();
    let (is_broken, is_created) = (false, false);
    let mut watch = Watch { shared, prefix, after, tell, at, is_broken, is_created };
    let (mut failed, mut tokens) = (0_usize, 0_u32);
    loop {
        let begun = Instant::now();
        let end = watch.follow().await;
        if watch.is_created && begun.elapsed() > WATCH_PAUSE {
            (failed, tokens) = (0, 0);
        }
        let why = match end {
            End::Over => return,
            End::Fault(fault) => return (watch.tell)(Err(fault)),
            End::Token => {
                tokens = tokens.saturating_add(1);
                if tokens > TOKENS_PER_REQUEST || shared.options.account.is_none() {
                    return (watch.tell)(Err(shared.no_token()));
                }
                continue;
            }
            End::Broken(why) => why,
        };
        shared.endpoints.leave(watch.at);
        watch.at = shared.endpoints.next(watch.at);
        failed = failed.saturating_add(1);
        let rounds = failed.checked_div(shared.endpoints.count()).unwrap_or(failed);
        if rounds > 0 && !watch.is_broken {
            watch.is_broken = true;
            (watch.tell)(Err(Fault::Unavailable(why)));
        }
        let doubled = u32::try_from(rounds).unwrap_or(u32::MAX).min(5);
        sleep(PAUSE.saturating_mul(1 << doubled).min(WATCH_PAUSE)).await;
    }
}

/// A watch, at the endpoint where it is now.
struct Watch<'a> {
    shared: &'a Shared,
    prefix: &'a [u8],
    /// The revision up to which all changes are told.
    after: Revision,
    tell: &'a mut Tell,
    at: usize,
    /// True after [`Fault::Unavailable`] was told.
    is_broken: bool,
    /// True when the member has begun the watch.
    is_created: bool,
}

/// The end of a watch at one endpoint.
enum End {
    /// The caller has heard the last.
    Over,
    /// The caller must hear of this, as the last.
    Fault(Fault),
    /// The token is missing or no longer valid.
    Token,
    /// The watch goes on elsewhere. The reason is for people.
    Broken(String),
}

impl From<Fault> for End {
    fn from(fault: Fault) -> Self {
        match fault {
            // Another member may send answers that can be read.
            Fault::Malformed(_) if fault != TOO_LONG => Self::Broken(fault.to_string()),
            Fault::Unavailable(why) => Self::Broken(why),
            fault => Self::Fault(fault),
        }
    }
}

impl From<Miss> for End {
    fn from(miss: Miss) -> Self {
        match miss {
            Miss::NotHappened(why) | Miss::Unknown(why) => Self::Broken(why),
            Miss::Token => Self::Token,
            Miss::End(fault) => fault.into(),
        }
    }
}

impl Watch<'_> {
    /// Watches at the present endpoint until that ends.
    async fn follow(&mut self) -> End {
        self.is_created = false;
        let end = match self.try_follow().await {
            Ok(()) => End::Broken("the watch has ended".into()),
            Err(end) => end,
        };
        if let End::Fault(TOO_LONG) = end {
            if !self.is_created {
                return End::Broken(TOO_LONG.to_string());
            }
            // The line is too long. The same member is not asked again at once, because it would
            // send the same line.
            self.shared.endpoints.leave(self.at);
            sleep(WATCH_PAUSE).await;
            // No member can tell these changes, but the keys can be read in parts.
            let oldest = Revision(self.after.0.saturating_add(1));
            (self.tell)(Ok(WatchAnswer::Compacted { oldest }));
            return End::Over;
        }
        end
    }

    async fn try_follow(&mut self) -> Result<(), End> {
        let attempt = self.shared.options.attempt;
        let in_time = |from: Instant, time: Duration| {
            from.checked_add(time).ok_or_else(|| End::Broken("the time is too long".into()))
        };
        let limit = in_time(Instant::now(), attempt)?;
        let mut begun = match timeout_at(limit, self.begin()).await {
            Ok(begun) => begun?,
            Err(_) => return Err(End::Broken("no answer in time".into())),
        };
        let mut lines = Lines::default();
        let mut heard = Instant::now();
        let mut question: Option<Question<'_>> = None;
        let shared = self.shared;
        loop {
            let silent =
                if self.is_created { in_time(heard, shared.options.quiet)? } else { limit };
            tokio::select! {
                biased;
                bytes = begun.next() => {
                    let Some(bytes) = bytes.map_err(End::Broken)? else { return Ok(()) };
                    lines.take(&bytes, |line| {
                        heard = Instant::now();
                        self.line(line)
                    })?;
                }
                answer = answered(&mut question) => {
                    answer?;
                    question = None;
                    heard = Instant::now();
                }
                () = sleep_until(silent), if question.is_none() => {
                    if !self.is_created {
                        return Err(End::Broken("no answer in time".into()));
                    }
                    question = Some(Box::pin(ask_for_a_key(shared, self.at, self.prefix.to_vec())));
                }
            }
        }
    }

    async fn begin(&mut self) -> Result<Begun, End> {
        self.shared.prove(self.at).await?;
        let member = self.shared.endpoints.get(self.at);
        let member = member.ok_or_else(|| End::Broken("there is no such endpoint".into()))?;
        let token = self.shared.token(member).await?;
        let body = Bytes::from(json::watch(self.prefix, self.after)?);
        let is_sent = AtomicBool::new(false);
        let sending =
            Sending { call: Call::Watch, body: &body, token: token.as_ref(), is_sent: &is_sent };
        let begun = begin(member, &sending).await;
        if matches!(begun, Err(Miss::Token)) {
            self.shared.forget(token.as_ref());
        }
        Ok(begun?)
    }

    fn line(&mut self, line: &[u8]) -> Result<(), End> {
        match json::watch_line(line, self.prefix, self.after)? {
            WatchLine::Created => {
                self.is_created = true;
                if core::mem::take(&mut self.is_broken) {
                    let changes = Vec::new();
                    (self.tell)(Ok(WatchAnswer::Changes { revision: self.after, changes }));
                }
                Ok(())
            }
            WatchLine::Answer(answer) => {
                let WatchAnswer::Changes { revision, changes } = &answer else {
                    (self.tell)(Ok(answer));
                    return Err(End::Over);
                };
                // All changes of this answer were reported earlier.
                if changes.is_empty() && *revision == self.after {
                    return Ok(());
                }
                self.after = *revision;
                (self.tell)(Ok(answer));
                Ok(())
            }
            WatchLine::Ended(refusal) => {
                let miss = miss_of(refusal);
                if matches!(miss, Miss::Token) {
                    self.shared.forget_any();
                }
                Err(miss.into())
            }
        }
    }
}

/// A question to a member whose watch is silent.
type Question<'a> = Pin<Box<dyn Future<Output = Result<(), End>> + Send + 'a>>;

async fn answered(question: &mut Option<Question<'_>>) -> Result<(), End> {
    match question {
        Some(question) => question.await,
        None => pending().await,
    }
}

/// Asks a member for a key, which it can answer only with a majority of the cluster.
async fn ask_for_a_key(shared: &Shared, at: usize, key: Vec<u8>) -> Result<(), End> {
    let range = Range { keys: Keys::One(key), limit: 1, after: Vec::new(), revision: Revision(0) };
    let body = shared.ask_one(at, Call::Range, json::range(&range)?).await?;
    json::range_answer(&body, &range)?;
    Ok(())
}
