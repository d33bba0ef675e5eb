//! Handlers under the watchdog: a slow poll is reported with its request.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::time::Duration;

use frevo_net::awake::Awake;
use frevo_net::watchdog;
use frevo_wire::Command;
use frevo_wire::command::create;

use crate::base::limits::{SLOW_CALL, SLOW_SHARE};
use crate::base::pools::blocking_pool;
use crate::base::watchdog::{Culprit, note, works_on};
use crate::command::request::Request;
use crate::shares::share::Share;

/// Runs the handler of a request. Polls of it that take long are noted with what
/// the request is about. The handler stays where the caller keeps it: it is large to move.
pub(crate) fn handled<'a, F: Future>(
    rq: &'a Request<'_>,
    mut handler: Pin<&'a mut F>,
) -> impl Future<Output = F::Output> {
    poll_fn(move |cx| {
        works_on(rq.header.command);
        let began = (blocking_pool::is_here() && has_watched_share(rq)).then(Awake::now);
        let polled = handler.as_mut().poll(cx);
        let took = watchdog::lap();
        rq.busy.set(rq.busy.get().saturating_add(took));
        note(took, || culprit(rq, took));
        if took >= SLOW_CALL || began.is_some() {
            note_slow(rq, took, began);
        }
        polled
    })
}

fn has_watched_share(rq: &Request<'_>) -> bool {
    let watched = |share: &Share| share.asks_off_core && share.slowness.is_watched();
    rq.tree.as_ref().is_some_and(|tree| watched(&tree.share))
}

/// Notes a slow call of a share's file system. `began` is the beginning of one on a thread.
#[cold]
fn note_slow(rq: &Request<'_>, took: Duration, began: Option<Awake>) {
    let Some(share) = rq.tree.as_ref().map(|tree| &tree.share) else { return };
    if let Some(began) = began {
        share.slowness.note_on_thread(began.slept());
    } else if share.asks_off_core && share.slowness.note_on_core(took) {
        let (took, lasts) = (took.as_millis(), SLOW_SHARE.as_secs());
        tracing::warn!(target: "frevo::watchdog", share = ?share.name, "a call of the share's file system took \
            {took} ms; its requests run on threads of their own until {lasts} s after the last slow call");
    }
}

fn culprit(rq: &Request<'_>, took: Duration) -> Culprit {
    let identity = rq.session.as_ref().and_then(|session| session.identity());
    Culprit {
        took,
        command: rq.header.command,
        share: rq.tree.as_ref().map_or_else(String::new, |tree| tree.share.name.clone()),
        user: identity.map_or_else(String::new, |identity| identity.user.clone()),
        session: rq.header.session_id,
        file: file(rq),
    }
}

/// The name of the file that a request is about, as far as it has one.
pub(crate) fn file(rq: &Request<'_>) -> String {
    if let Some(open) = &rq.open {
        return open.file().map_or_else(|_| String::new(), |file| file.name().path().to_owned());
    }
    if rq.header.command != Command::CREATE {
        return String::new();
    }
    let name = create::Request::parse(rq.message).ok();
    name.and_then(|request| request.name.to_string().ok()).unwrap_or_default()
}
