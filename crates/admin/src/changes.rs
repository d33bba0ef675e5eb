//! The paths below `/manage`: lists of users, shares and limits of rate, and changes of them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use frevo_server::audit::{Audit, Event, Kind as Recorded};
use frevo_wire::Status;
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::{Mutex, oneshot};
use tokio::time::Instant;

use crate::access::Rights;
use crate::answers::{Answer, answer, json, refusal};
use crate::body::body;
use crate::doors::{Pass, csrf_refusal};
use crate::limits::{CHANGES, CHANGES_TIME};
use crate::manage::{Changed, Kind, Managing, NotManaged, Reason, SectionChange, UserChange};

/// The paths, and what they are about.
pub(crate) const PATHS: [(&str, Kind); 3] =
    [("/manage/users", Kind::User), ("/manage/shares", Kind::Share), ("/manage/rates", Kind::Rate)];

const UNMANAGED: &str = "this program changes no users, shares and limits";

/// The end of the interface that changes things, one at a time.
pub(crate) struct Changes {
    managing: Option<Arc<dyn Managing>>,
    /// Held by the thread that makes a change, also after its request has ended.
    turn: Arc<Mutex<()>>,
    /// The moments of the latest changes.
    latest: RefCell<VecDeque<Instant>>,
}

/// The body of a change.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted<C> {
    revision: String,
    change: C,
}

impl Changes {
    pub(crate) fn new(managing: Option<Arc<dyn Managing>>) -> Self {
        Self { managing, turn: Arc::default(), latest: RefCell::default() }
    }

    /// Answers a request for a kind of things.
    pub(crate) async fn answer(
        &self,
        request: Request<Incoming>,
        kind: Kind,
        pass: Pass,
        audit: Option<&Audit>,
    ) -> Result<Answer, Answer> {
        if let Some(refused) = pass.refusal(Rights::Manage) {
            return Err(refused);
        }
        let managing = self.managing.as_ref().map(Arc::clone);
        let managing = managing.ok_or_else(|| refusal(StatusCode::NOT_FOUND, UNMANAGED))?;
        if *request.method() == Method::GET {
            let turn = Arc::clone(&self.turn).lock_owned().await;
            let listed = apart(move || {
                let _turn = turn;
                managing.list(kind)
            });
            let listed = listed.await?;
            return listed.map(|listed| json(&listed)).map_err(told);
        }
        if *request.method() != Method::POST {
            let why = "this path has no such method";
            return Err(refusal(StatusCode::METHOD_NOT_ALLOWED, why));
        }
        let refused = csrf_refusal(request.headers(), pass);
        if let Some(refused) = refused.or_else(|| self.count(Instant::now())) {
            return Err(refused);
        }
        let audit = audit.cloned();
        let done = match kind {
            Kind::User => {
                let Wanted { revision, change } = wanted::<UserChange>(request).await?;
                let event = event(change.word(), change.name(), pass);
                let event = match change.keys() {
                    Some(keys) => event.with("keys", keys.to_string()),
                    None => event,
                };
                let turn = Arc::clone(&self.turn).lock_owned().await;
                apart(move || {
                    let _turn = turn;
                    record(managing.change_user(&revision, change), event, audit)
                })
                .await
            }
            Kind::Share | Kind::Rate => {
                let Wanted { revision, change } = wanted::<SectionChange>(request).await?;
                let event = event(change.word(kind), change.name(), pass);
                let event = match change.keys() {
                    Some(keys) => event.with("keys", json!(keys).to_string()),
                    None => event,
                };
                let turn = Arc::clone(&self.turn).lock_owned().await;
                apart(move || {
                    let _turn = turn;
                    record(managing.change_section(kind, &revision, change), event, audit)
                })
                .await
            }
        };
        done?.map(|changed| json(&changed)).map_err(told)
    }

    /// Counts a change. Returns the refusal of one too many in a short time.
    fn count(&self, now: Instant) -> Option<Answer> {
        let mut latest = self.latest.borrow_mut();
        while latest.front().is_some_and(|first| now.duration_since(*first) >= CHANGES_TIME) {
            latest.pop_front();
        }
        if latest.len() >= CHANGES {
            let why = "too many changes within a minute; wait a little";
            return Some(refusal(StatusCode::TOO_MANY_REQUESTS, why));
        }
        latest.push_back(now);
        None
    }
}

async fn wanted<C: DeserializeOwned>(request: Request<Incoming>) -> Result<Wanted<C>, Answer> {
    body(request).await
}

/// The event of a change, with who made it and from where.
pub(crate) fn event(change: &'static str, target: &str, pass: Pass) -> Event {
    let event = Event::new(Recorded::Manage).with("change", change).with("by", pass.by());
    let event = match pass.address {
        Some(address) => event.with("peer", address.to_string()),
        None => event,
    };
    if target.is_empty() { event } else { event.with("target", target) }
}

/// Records the end of a change, also of one whose client has gone meanwhile.
fn record(
    done: Result<Changed, NotManaged>,
    event: Event,
    audit: Option<Audit>,
) -> Result<Changed, NotManaged> {
    if let Some(audit) = audit {
        audit.emit(match &done {
            Ok(_) => event,
            Err(not) => event.status(Status::UNSUCCESSFUL).with("reason", not.why.clone()),
        });
    }
    done
}

/// Calls what may block on a thread of its own, which storage that does not answer may keep.
async fn apart<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Result<T, Answer> {
    let (sender, receiver) = oneshot::channel();
    let named = std::thread::Builder::new().name(String::from("frevo-manage"));
    // The send fails if the request has ended meanwhile.
    let begun = named.spawn(move || drop(sender.send(call())));
    let failed = |why: &str| refusal(StatusCode::SERVICE_UNAVAILABLE, why);
    begun.map_err(|error| failed(&format!("there is no thread for this: {error}")))?;
    receiver.await.map_err(|_| failed("an internal error; the log says more"))
}

/// The answer to a change that was not made.
fn told(not: NotManaged) -> Answer {
    let NotManaged { reason, why, field, command } = not;
    let status = match reason {
        Reason::Malformed => StatusCode::BAD_REQUEST,
        Reason::Absent => StatusCode::NOT_FOUND,
        Reason::Outdated => StatusCode::CONFLICT,
        Reason::Refused => StatusCode::UNPROCESSABLE_ENTITY,
        Reason::ReadOnly => StatusCode::SERVICE_UNAVAILABLE,
        Reason::Failed => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let body = json!({ "error": why, "field": field, "command": command });
    answer(status, "application/json", body.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn so_many_changes_are_made_in_a_minute() {
        let changes = Changes::new(None);
        for _ in 0..CHANGES {
            assert!(changes.count(Instant::now()).is_none());
        }
        assert_eq!(changes.count(Instant::now()).unwrap().status(), 429);
        tokio::time::advance(CHANGES_TIME).await;
        assert!(changes.count(Instant::now()).is_none());
    }
}
