//! A client of a real etcd: its JSON gateway over HTTP/1.1, with TLS where an endpoint is `https`.
//!
//! A request goes to an endpoint that answers. One that does not answer within the time of an attempt
//! is left for the next. A change is never sent twice: if its answer is lost, the request ends with
//! [`Fault::Unavailable`].

mod attempts;
mod clock;
mod connection;
mod dialer;
mod endpoint;
mod exchange;
mod keeping;
mod options;
mod proof;
mod shared;
mod tls;
mod token;
mod watch;

pub use clock::now;
pub use dialer::{Dialer, Dialing, PlainDialer};
pub use keeping::{Keeping, TellKept};
pub use options::{Account, BadOptions, Endpoint, Identity, Options, Tls};

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::future::Future;
use core::time::Duration;

use tokio::runtime::Handle;

use attempts::{Repeat, Request};
use shared::Shared;

use crate::engine::{Confirmed, Done, Engine, RangeAnswer, Tell, Watching};
use crate::json::{self, Call, Member, Status};
use crate::limits::TTL_SECONDS;
use crate::types::{Fault, LeaseId, Op, Range, Revision, Txn, TxnAnswer};

/// A client of one etcd. Clones share its connections.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

impl Client {
    /// Returns a client, whose requests run on `runtime`. It connects with its first request.
    ///
    /// # Errors
    /// [`BadOptions`] if there is no endpoint, or too many, or a certificate or a key cannot be used.
    pub fn new(options: Options, runtime: Handle) -> Result<Self, BadOptions> {
        Ok(Self { shared: Arc::new(Shared::new(options, runtime)?) })
    }

    /// Asks each endpoint in turn for its state, in the order of [`Options::endpoints`]. One that does
    /// not answer within the time of an attempt has a fault.
    pub async fn status(&self) -> Vec<Result<Status, Fault>> {
        let mut found = Vec::new();
        for at in 0..self.shared.endpoints.count() {
            let answer = self.shared.ask_one(at, Call::Status, json::empty()).await;
            found.push(answer.and_then(|body| json::status_answer(&body)));
        }
        found
    }

    /// Looks at all endpoints, one after the other, unless they have proven before that they lead to one etcd
    /// ([`Options::identity`]). Returns the reason if one leads to another etcd: all requests are refused with
    /// it until a later look. One that does not answer is passed over.
    pub async fn prove(&self) -> Option<String> {
        self.shared.prove_all().await
    }

    /// Lists the members of the cluster, as a member that answers knows them.
    ///
    /// # Errors
    /// [`Fault::Unavailable`], [`Fault::Refused`] and [`Fault::Malformed`].
    pub async fn members(&self) -> Result<Vec<Member>, Fault> {
        let request = Request::new(Call::Members, json::empty(), Repeat::Always);
        self.shared.ask(&request, json::members_answer).await
    }

    /// Keeps a lease alive until the returned value is dropped, with one request at a time, each
    /// `every` after the last one was sent. `tell` gets the end of each request; it is called for the
    /// last time with a fault that is not [`Fault::Unavailable`].
    pub fn keep(&self, lease: LeaseId, every: Duration, tell: TellKept) -> Keeping {
        let shared = Arc::clone(&self.shared);
        let task = self.shared.runtime.spawn(keeping::keep(shared, lease, every, tell));
        Keeping::new(task.abort_handle())
    }

    /// Runs a request in a task, with one of the places for requests.
    fn run<T, F>(&self, done: Done<T>, request: impl FnOnce(Arc<Shared>) -> F + Send + 'static)
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Fault>> + Send,
    {
        let Ok(place) = Arc::clone(&self.shared.places).try_acquire_owned() else {
            return done(Err(Fault::Unavailable("too many requests wait".into())));
        };
        let shared = Arc::clone(&self.shared);
        let answer = Answer(Some(done));
        drop(self.shared.runtime.spawn(async move {
            let end = request(shared).await;
            drop(place);
            answer.tell(end);
        }));
    }
}

/// A callback that is called also if the task ends with its runtime.
struct Answer<T>(Option<Done<T>>);

impl<T> Answer<T> {
    fn tell(mut self, end: Result<T, Fault>) {
        if let Some(done) = self.0.take() {
            done(end);
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(Fault::Unavailable("the client ends".into())));
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

impl Engine for Client {
    fn txn(&self, txn: Txn, done: Done<TxnAnswer>) {
        self.run(done, |shared| async move {
            let reads = txn.success.iter().chain(&txn.failure).all(|op| matches!(op, Op::Range(_)));
            let repeat = if reads { Repeat::Always } else { Repeat::IfNotSent };
            let request = Request::new(Call::Txn, json::txn(&txn)?, repeat);
            shared.ask(&request, |body| json::txn_answer(body, &txn)).await
        });
    }

    fn range(&self, range: Range, done: Done<RangeAnswer>) {
        self.run(done, |shared| async move {
            let request = Request::new(Call::Range, json::range(&range)?, Repeat::Always);
            shared.ask(&request, |body| json::range_answer(body, &range)).await
        });
    }

    fn grant(&self, ttl: Duration, done: Done<Confirmed>) {
        self.run(done, move |shared| async move {
            let seconds = ttl.as_secs();
            if !(1..=TTL_SECONDS).contains(&seconds) || ttl.subsec_nanos() > 0 {
                return Err(Fault::Refused("a lease lives for a whole number of seconds".into()));
            }
            // The request may be repeated: a first lease, whose answer was lost, has no keys and
            // expires.
            let request = Request::new(Call::Grant, json::grant(seconds), Repeat::Always);
            shared
                .ask_timed(&request, |body, sent| {
                    let answer = json::lease_answer(body)?;
                    if answer.ttl < ttl {
                        return Err(Fault::Malformed("a lease that is shorter than wanted").into());
                    }
                    Ok(Confirmed { lease: answer.lease, ttl: answer.ttl, sent })
                })
                .await
        });
    }

    fn revoke(&self, lease: LeaseId, done: Done<()>) {
        self.run(done, move |shared| async move {
            let request = Request::new(Call::Revoke, json::lease(lease), Repeat::Always);
            match shared.ask(&request, json::revision_answer).await {
                Ok(Revision(_)) | Err(Fault::LeaseNotFound) => Ok(()),
                Err(fault) => Err(fault),
            }
        });
    }

    fn keep_alive(&self, lease: LeaseId, done: Done<Confirmed>) {
        self.run(done, move |shared| async move { shared.keep_alive(lease).await });
    }

    fn watch(&self, prefix: Vec<u8>, after: Revision, mut tell: Tell) -> Watching {
        let Ok(place) = Arc::clone(&self.shared.watches).try_acquire_owned() else {
            tell(Err(Fault::Refused("this client has too many watches".into())));
            return Watching::new(|| ());
        };
        let shared = Arc::clone(&self.shared);
        let task = self.shared.runtime.spawn(async move {
            watch::watch(&shared, &prefix, after, &mut tell).await;
            drop(place);
        });
        let end = task.abort_handle();
        Watching::new(move || end.abort())
    }
}
