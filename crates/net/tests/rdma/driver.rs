//! Requests of a connection whose device one task looks at, as in the server.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::{both, here, pattern, used_pair};
use frevo_net::Buf;
use frevo_net::rdma::{Endpoint, Lending, RemoteBuffer};

/// Waits for `done` while a driver looks at the device for it.
async fn driven<T>(endpoint: &Endpoint, done: impl Future<Output = T>) -> T {
    let mut driver = pin!(endpoint.drive());
    let mut done = pin!(done);
    poll_fn(|cx| {
        loop {
            let _ = driver.as_mut().poll(cx);
            if let Poll::Ready(done) = done.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            if !endpoint.ring() {
                return Poll::Pending;
            }
        }
    })
    .await
}

/// Counts how often a task is polled.
async fn counted<T>(polls: &Cell<u32>, task: impl Future<Output = T>) -> T {
    let mut task = pin!(task);
    poll_fn(|cx| {
        polls.set(polls.get() + 1);
        task.as_mut().poll(cx)
    })
    .await
}

/// A read wakes its own task and no other, however many there are.
#[test]
fn a_read_wakes_its_own_task() {
    const READS: usize = 60;
    here(&async |medium| {
        let (server, client) = used_pair(medium).await;
        let (server, client) = (server.rdma().unwrap(), client.rdma().unwrap());
        for size in [8192, 100_000] {
            let lent =
                (0..READS).map(|_| client.lend(Buf::copy_of(&pattern(size)), Lending::PeerReads));
            let lent: Vec<_> = join_all(lent).await.into_iter().map(Result::unwrap).collect();
            let polls = Cell::new(0);
            let reads = lent.iter().map(|loan| {
                let remote = [loan.remote()];
                let polls = &polls;
                async move {
                    let read = counted(polls, server.read_from_peer(size, &remote)).await;
                    assert!(*read.unwrap() == pattern(size));
                }
            });
            let all = async {
                let mut reads = reads.collect::<FuturesUnordered<_>>();
                while reads.next().await.is_some() {}
            };
            both(driven(server, all), client).await;
            // Each read may be polled three times: at its start, when it gets a slot, and when it
            // completes.
            assert!(polls.get() <= 3 * READS as u32, "{} polls of {READS} reads", polls.get());
        }
    });
}

/// Without a driver all look for themselves, also what they have begun under one, and what it has not
/// given to the device.
#[test]
fn reads_outlive_their_driver() {
    here(&async |medium| {
        let (server, client) = used_pair(medium).await;
        let (server, client) = (server.rdma().unwrap(), client.rdma().unwrap());
        let lent = client.lend(Buf::copy_of(&pattern(100_000)), Lending::PeerReads).await.unwrap();
        let remote = [lent.remote()];
        let mut read = pin!(server.read_from_peer(100_000, &remote));
        let begun = {
            let mut driver = pin!(server.drive());
            poll_fn(|cx| {
                let _ = driver.as_mut().poll(cx);
                Poll::Ready(read.as_mut().poll(cx))
            })
            .await
        };
        let data = match begun {
            Poll::Ready(data) => data,
            Poll::Pending => both(read, client).await.0,
        };
        assert!(*data.unwrap() == pattern(100_000));
    });
}

/// The end of a connection ends what waits under a driver.
#[test]
fn reads_under_a_driver_fail_with_their_connection() {
    here(&async |medium| {
        let (server, client) = used_pair(medium).await;
        let (server, client) = (server.rdma().unwrap(), client.rdma().unwrap());
        let nowhere = [RemoteBuffer { address: 4096, key: 0x1234, length: 4096 }];
        let reads = join_all((0..5).map(|_| server.read_from_peer(4096, &nowhere)));
        let reads = async {
            let failed = reads.await;
            assert!(failed.iter().all(Result::is_err));
            assert!(server.readable().await.is_ok(), "the end can be read");
        };
        let (ended, ()) =
            both(driven(server, tokio::time::timeout(Duration::from_secs(9), reads)), client).await;
        ended.expect("they wait for ever");
        assert_eq!(server.transfers(), 0);
    });
}
