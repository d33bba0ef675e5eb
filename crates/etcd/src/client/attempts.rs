//! A request with all of its attempts.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::clock;
use super::exchange::{Miss, Sending, exchange, first_line};
use super::shared::Shared;
use crate::engine::Moment;
use crate::json::Call;
use crate::limits::{PAUSE, TOKENS_PER_REQUEST};
use crate::types::Fault;

/// The cases in which a request may be sent again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Also after its answer was lost: to carry it out twice does no harm.
    Always,
    /// Only if it is certain that it did not happen.
    IfNotSent,
}

/// A request for any member.
pub(super) struct Request {
    call: Call,
    body: Bytes,
    repeat: Repeat,
}

impl Request {
    pub(super) fn new(call: Call, body: Vec<u8>, repeat: Repeat) -> Self {
        Self { call, body: Bytes::from(body), repeat }
    }
}

/// The attempts that were made.
struct Tries {
    /// The endpoint of the next attempt.
    at: usize,
    /// Attempts that failed.
    failed: usize,
    /// Attempts whose answer was not one of etcd's.
    malformed: usize,
    /// Attempts that were refused for their token.
    tokens: u32,
    /// The fault of the last attempt.
    last: Fault,
}

impl Shared {
    /// Sends a request until a member answers. `check` reads the answer.
    pub(super) async fn ask<T>(
        &self,
        request: &Request,
        check: impl Fn(&[u8]) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.ask_timed(request, |body, _| Ok(check(body)?)).await
    }

    /// As `ask`. `check` also gets a moment before the answered request was sent.
    pub(super) async fn ask_timed<T>(
        &self,
        request: &Request,
        check: impl Fn(&[u8], Moment) -> Result<T, Miss>,
    ) -> Result<T, Fault> {
        let deadline = Instant::now().checked_add(self.options.whole).ok_or_else(no_time)?;
        // The semaphore is never closed.
        let Ok(Ok(_turn)) = timeout_at(deadline, self.at_once.acquire()).await else {
            return Err(Fault::Unavailable("too many requests are under way".into()));
        };
        self.proofs.fault()?;
        let (at, last) = (self.endpoints.preferred(), no_time());
        let mut tries = Tries { at, failed: 0, malformed: 0, tokens: 0, last };
        while Instant::now() < deadline {
            let miss = match self.attempt(tries.at, request, deadline, &check).await {
                Ok(answer) => return Ok(answer),
                Err(miss) => miss,
            };
            self.judge(miss, request.repeat, &mut tries)?;
            // Pauses when all endpoints have failed in turn.
            let is_round = tries.failed > 0 && tries.failed.is_multiple_of(self.endpoints.count());
            if let Some(moment) = Instant::now().checked_add(PAUSE).filter(|_| is_round) {
                sleep_until(moment.min(deadline)).await;
            }
        }
        Err(tries.last)
    }

    /// Makes a single attempt at one endpoint, which need not be proven. If the token is refused, it is made
    /// once more.
    pub(super) async fn ask_one(
        &self,
        at: usize,
        call: Call,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, Fault> {
        let request = Request::new(call, body, Repeat::Always);
        let deadline = Instant::now().checked_add(self.options.attempt).ok_or_else(no_time)?;
        let check = |body: &[u8], _| Ok(body.to_vec());
        let mut end = self.attempt_there(at, &request, deadline, &check).await;
        if matches!(end, Err(Miss::Token)) {
            end = self.attempt_there(at, &request, deadline, &check).await;
        }
        end.map_err(|miss| match miss {
            Miss::End(fault) => fault,
            Miss::NotHappened(why) | Miss::Unknown(why) => Fault::Unavailable(why),
            Miss::Token => self.no_token(),
        })
    }

    /// Makes an attempt at an endpoint that leads to the etcd of this client. One that has not proven it is
    /// asked before, within the time of an attempt of its own.
    async fn attempt<T>(
        &self,
        at: usize,
        request: &Request,
        deadline: Instant,
        check: &impl Fn(&[u8], Moment) -> Result<T, Miss>,
    ) -> Result<T, Miss> {
        if !self.is_proven(at) && request.call != Call::Members {
            // The future is boxed: requests seldom need it.
            let proven = timeout_at(deadline, Box::pin(self.prove(at))).await;
            proven.unwrap_or_else(|_| Err(Miss::NotHappened("no answer in time".into())))?;
        }
        self.attempt_there(at, request, deadline, check).await
    }

    async fn attempt_there<T>(
        &self,
        at: usize,
        request: &Request,
        deadline: Instant,
        check: &impl Fn(&[u8], Moment) -> Result<T, Miss>,
    ) -> Result<T, Miss> {
        let member = self.endpoints.get(at).ok_or_else(no_time)?;
        let limit = Instant::now().checked_add(self.options.attempt).ok_or_else(no_time)?;
        let sent = clock::now();
        let is_sent = AtomicBool::new(false);
        let exchanged = async {
            let token = self.token(member).await?;
            let Request { call, body, .. } = request;
            let sending = Sending { call: *call, body, token: token.as_ref(), is_sent: &is_sent };
            let end = match call {
                Call::KeepAlive => first_line(member, &sending).await,
                _ => exchange(member, &sending).await,
            };
            let end = end.and_then(|body| check(&body, sent));
            if matches!(end, Err(Miss::Token)) {
                self.forget(token.as_ref());
            }
            end
        };
        match timeout_at(limit.min(deadline), exchanged).await {
            Ok(end) => end.map_err(|miss| miss.at(&member.url)),
            Err(_) if is_sent.load(Ordering::Relaxed) => {
                Err(Miss::Unknown("no answer in time".into()).at(&member.url))
            }
            Err(_) => Err(Miss::NotHappened("no connection in time".into()).at(&member.url)),
        }
    }

    /// Decides if there is another attempt, and where; an error is the end of the request.
    fn judge(&self, miss: Miss, repeat: Repeat, tries: &mut Tries) -> Result<(), Fault> {
        let (fault, may_repeat) = match miss {
            Miss::Token => {
                tries.tokens = tries.tokens.saturating_add(1);
                tries.last = self.no_token();
                let is_over = self.options.account.is_none() || tries.tokens > TOKENS_PER_REQUEST;
                return if is_over { Err(tries.last.clone()) } else { Ok(()) };
            }
            Miss::End(fault @ Fault::Malformed(_)) => {
                tries.malformed = tries.malformed.saturating_add(1);
                let may_repeat =
                    tries.malformed < self.endpoints.count() && repeat == Repeat::Always;
                (fault, may_repeat)
            }
            Miss::End(fault) => return Err(fault),
            Miss::NotHappened(why) => (Fault::Unavailable(why), true),
            Miss::Unknown(why) => (Fault::Unavailable(why), repeat == Repeat::Always),
        };
        self.endpoints.leave(tries.at);
        if !may_repeat {
            return Err(fault);
        }
        tries.at = self.endpoints.next(tries.at);
        tries.failed = tries.failed.saturating_add(1);
        tries.last = fault;
        Ok(())
    }

    /// The fault of a request that etcd refuses for its token.
    pub(super) fn no_token(&self) -> Fault {
        Fault::Refused(String::from(match self.options.account {
            None => "it wants a name and a password",
            Some(_) => "it takes no token of this name",
        }))
    }
}

/// The fault of a request whose time is over before its first attempt.
fn no_time() -> Fault {
    Fault::Unavailable("there was no time for an attempt".into())
}

impl Miss {
    /// Names the endpoint.
    fn at(self, url: &str) -> Self {
        match self {
            Self::NotHappened(why) => Self::NotHappened(alloc::format!("{url}: {why}")),
            Self::Unknown(why) => Self::Unknown(alloc::format!("{url}: {why}")),
            other => other,
        }
    }
}

impl From<Fault> for Miss {
    fn from(fault: Fault) -> Self {
        Self::End(fault)
    }
}
