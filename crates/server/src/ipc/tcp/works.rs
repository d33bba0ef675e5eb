//! The calls of a connection whose answers come later.

use std::future::{Future, poll_fn, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use frevo_rpc::Answer;

use crate::ipc::password;
use crate::ipc::peer::Peer;
use crate::ipc::table::{Unfinished, Work};
use crate::ipc::waits;
use crate::objects::ledger::Charge;
use crate::objects::session::Identity;

/// Bytes that a call which waits for its answer is charged with.
const WORK_BYTES: usize = 2_048;

/// A call under way.
struct UnderWay {
    call_id: u32,
    answer: Pin<Box<dyn Future<Output = Answer>>>,
    /// The charge of a call that waits for an event.
    wait: Option<Charge>,
}

/// The calls under way; the endpoint bounds their number.
#[derive(Default)]
pub(super) struct Works(Vec<UnderWay>);

impl Works {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes that the calls hold; those that wait for events have charges of their own.
    pub(super) fn bytes(&self) -> usize {
        let works = self.0.iter().filter(|under_way| under_way.wait.is_none());
        works.count().saturating_mul(WORK_BYTES)
    }

    /// Ends the calls that `is_wanted` does not name.
    pub(super) fn keep(&mut self, mut is_wanted: impl FnMut(u32) -> bool) {
        self.0.retain(|under_way| is_wanted(under_way.call_id));
    }

    /// Begins the work of a call.
    pub(super) fn begin(&mut self, unfinished: Unfinished, peer: Peer, identity: Arc<Identity>) {
        let Unfinished { call_id, level, work } = unfinished;
        // A cancelled call may have used this number, so its work is dropped.
        self.0.retain(|under_way| under_way.call_id != call_id);
        let (answer, wait): (Pin<Box<dyn Future<Output = Answer>>>, _) = match work {
            Work::ChangePassword(change) => {
                let answer = async move { password::answer(&peer, &identity, level, change).await };
                (Box::pin(answer), None)
            }
            Work::Await(event) => {
                match waits::charge(&peer.server.ledger.account(&identity.user)) {
                    Ok(charge) => (event, Some(charge)),
                    Err(fault) => (Box::pin(ready(Err(fault))), None),
                }
            }
        };
        self.0.push(UnderWay { call_id, answer, wait });
    }

    /// Waits for the end of a call; for ever while there is none.
    pub(super) async fn next(&mut self) -> (u32, Answer) {
        poll_fn(|cx| {
            let mut ended = None;
            for (at, under_way) in self.0.iter_mut().enumerate() {
                if let Poll::Ready(answer) = under_way.answer.as_mut().poll(cx) {
                    ended = Some((at, answer));
                    break;
                }
            }
            match ended {
                Some((at, answer)) => Poll::Ready((self.0.swap_remove(at).call_id, answer)),
                None => Poll::Pending,
            }
        })
        .await
    }
}
