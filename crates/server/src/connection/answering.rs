//! The state machines that answer frames. One that has answered a frame answers another, so that most
//! frames need no allocation, and none has a state of several kilobytes moved.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use frevo_net::buffer::Buf;
use frevo_net::watchdog::has_turn;

use super::Connection;
use crate::base::limits::SPARE_ANSWERERS;

/// A frame with its connection.
type Work = Cell<Option<(Rc<Connection>, Buf)>>;

/// Takes work and answers it, for ever. It is idle while it waits for more.
struct Answerer {
    work: Rc<Work>,
    is_idle: Rc<Cell<bool>>,
    machine: Pin<Box<dyn Future<Output = ()>>>,
}

thread_local! {
    /// Idle ones. They hold nothing but their own memory.
    static SPARE: RefCell<Vec<Answerer>> = const { RefCell::new(Vec::new()) };
}

impl Answerer {
    fn new() -> Self {
        let (work, is_idle): (Rc<Work>, _) = (Rc::default(), Rc::new(Cell::new(true)));
        let (taken, idles) = (Rc::clone(&work), Rc::clone(&is_idle));
        let machine = Box::pin(async move {
            loop {
                let (connection, frame) = next(&taken, &idles).await;
                pin!(connection.answer_frame(frame)).await;
            }
        });
        Self { work, is_idle, machine }
    }

    /// Keeps an idle one for the next frame of this core, unless enough are kept.
    fn keep(self) {
        let surplus = SPARE.with_borrow_mut(|spare| {
            if spare.len() >= SPARE_ANSWERERS {
                return Some(self);
            }
            spare.push(self);
            None
        });
        drop(surplus);
    }
}

/// Waits for work.
async fn next(work: &Work, is_idle: &Cell<bool>) -> (Rc<Connection>, Buf) {
    poll_fn(|_| match work.take() {
        Some(work) => {
            is_idle.set(false);
            Poll::Ready(work)
        }
        // No waker is stored, because the code that hands over new work also polls this future.
        None => {
            is_idle.set(true);
            Poll::Pending
        }
    })
    .await
}

/// One frame that is being answered.
pub(super) struct Answering(Option<Answerer>);

impl Answering {
    /// Answers `frame` when it is polled.
    pub(super) fn of(connection: Rc<Connection>, frame: Buf) -> Self {
        let spare = SPARE.with_borrow_mut(Vec::pop);
        let answerer = spare.unwrap_or_else(Answerer::new);
        answerer.work.set(Some((connection, frame)));
        Self(Some(answerer))
    }

    /// Bytes of the state machine.
    pub(super) fn state_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |answerer| size_of_val(&*answerer.machine))
    }
}

impl Future for Answering {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(mut answerer) = self.0.take() else { return Poll::Ready(()) };
        // The answerer is taken out during the poll, so that after a panic it is dropped and not
        // polled again.
        let polled = answerer.machine.as_mut().poll(cx);
        if polled.is_pending() && !answerer.is_idle.get() {
            self.0 = Some(answerer);
            return Poll::Pending;
        }
        answerer.keep();
        Poll::Ready(())
    }
}

/// A request under way. When many are woken together, those whose turn does not
/// come within the slice of a poll go on in the next one.
pub(super) struct InTurn(pub(super) Answering);

impl Future for InTurn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if has_turn() {
            return Pin::new(&mut self.0).poll(cx);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_answerers_are_kept_as_the_limit_allows() {
        let kept = || SPARE.with_borrow(Vec::len);
        for n in 1..=SPARE_ANSWERERS + 2 {
            Answerer::new().keep();
            assert_eq!(kept(), n.min(SPARE_ANSWERERS));
        }
    }

    #[test]
    fn an_answerer_without_work_waits_and_is_idle() {
        let mut answerer = Answerer::new();
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        for _ in 0..2 {
            assert!(answerer.machine.as_mut().poll(cx).is_pending());
            assert!(answerer.is_idle.get());
        }
    }
}
