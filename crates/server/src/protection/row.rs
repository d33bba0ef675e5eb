//! Things in their order, of which some are not ready.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A thing that another thread works on; None if that panicked.
pub(crate) type Work<T> = Pin<Box<dyn Future<Output = Option<T>>>>;

/// See the module's text. An empty one holds no memory.
pub(crate) struct Row<T> {
    places: VecDeque<Slot<T>>,
    /// Places whose thing is not ready.
    working: usize,
    sizes: Sizes,
}

/// The sizes of a thing, or the sums of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Bytes of memory.
    pub(crate) memory: usize,
    /// Bytes that it will have on the wire.
    pub(crate) wire: usize,
}

struct Slot<T> {
    sizes: Sizes,
    state: State<T>,
}

enum State<T> {
    Ready(Option<T>),
    Working(Work<T>),
}

impl<T> Default for Row<T> {
    fn default() -> Self {
        Self { places: VecDeque::new(), working: 0, sizes: Sizes::default() }
    }
}

impl<T> Row<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Things that are not ready.
    pub(crate) const fn working(&self) -> usize {
        self.working
    }

    /// The sums of all.
    pub(crate) const fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Adds a thing that is ready.
    pub(crate) fn push(&mut self, thing: T, sizes: Sizes) {
        self.append(State::Ready(Some(thing)), sizes);
    }

    /// Adds a thing that is being worked on.
    pub(crate) fn push_work(&mut self, work: Work<T>, sizes: Sizes) {
        self.working += 1;
        self.append(State::Working(work), sizes);
    }

    fn append(&mut self, state: State<T>, sizes: Sizes) {
        self.sizes.memory += sizes.memory;
        self.sizes.wire += sizes.wire;
        self.places.push_back(Slot { sizes, state });
    }

    /// Takes the first thing, once it is ready; None if the work on it has panicked. Pending while
    /// there is none.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        for place in &mut self.places {
            if let State::Working(work) = &mut place.state
                && let Poll::Ready(done) = work.as_mut().poll(cx)
            {
                place.state = State::Ready(done);
                self.working -= 1;
            }
        }
        let is_ready = |slot: &Slot<T>| matches!(slot.state, State::Ready(_));
        let first =
            if self.places.front().is_some_and(is_ready) { self.places.pop_front() } else { None };
        let Some(Slot { sizes, state: State::Ready(thing) }) = first else { return Poll::Pending };
        self.sizes.memory -= sizes.memory;
        self.sizes.wire -= sizes.wire;
        if self.places.is_empty() {
            // The empty queue is replaced by a new one, so that an idle connection keeps no buffer.
            self.places = VecDeque::new();
        }
        Poll::Ready(thing)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::sync::oneshot;

    use super::*;

    fn work(row: &mut Row<u8>) -> oneshot::Sender<u8> {
        let (done, end) = oneshot::channel();
        row.push_work(Box::pin(async { end.await.ok() }), Sizes { memory: 10, wire: 1 });
        done
    }

    #[test]
    fn things_leave_in_their_order() {
        let cx = &mut Context::from_waker(Waker::noop());
        let mut row = Row::default();
        assert_eq!(row.poll_next(cx), Poll::Pending);
        let [first, second] = [work(&mut row), work(&mut row)];
        row.push(3, Sizes { memory: 100, wire: 7 });
        let third = work(&mut row);
        assert_eq!((row.len(), row.working()), (4, 3));
        assert_eq!(row.sizes(), Sizes { memory: 130, wire: 10 });
        second.send(2).unwrap();
        assert_eq!(row.poll_next(cx), Poll::Pending, "the first is not ready");
        assert_eq!((row.len(), row.working()), (4, 2));
        first.send(1).unwrap();
        let next = |row: &mut Row<u8>, cx: &mut Context<'_>| row.poll_next(cx);
        for thing in 1..=3 {
            assert_eq!(next(&mut row, cx), Poll::Ready(Some(thing)));
        }
        assert_eq!(row.sizes(), Sizes { memory: 10, wire: 1 });
        assert_eq!(next(&mut row, cx), Poll::Pending);
        drop(third);
        assert_eq!(next(&mut row, cx), Poll::Ready(None), "its work was lost");
        assert!(row.is_empty() && row.working() == 0 && row.places.capacity() == 0);
        assert_eq!(row.sizes(), Sizes::default());
    }
}
