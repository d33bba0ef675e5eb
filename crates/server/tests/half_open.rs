//! L3: connections that begin and come to nothing, by the thousands, leave no
//! descriptor, no ticket and no session. Alone in its process, whose descriptors are
//! counted.
//!
//! `FREVO_RACE_RUNS=100000 ./dev/test races` has a hundred thousand made.
#![allow(clippy::print_stdout, unreachable_pub, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use client::draft::pack;
use client::logon::Exchange;
use client::*;
use frevo_net::socket::Listener;
use frevo_net::transport::Stream;
use frevo_wire::dtyp::Guid;
use tokio::time::{Instant, sleep};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// How a client begins, and then goes.
async fn begin(run: usize, port: u16) {
    // Each run has another source address, so that none has to wait for a free port.
    let [high, low] = u16::try_from(run % 40_000).unwrap().to_be_bytes();
    let address = SocketAddr::new(Ipv4Addr::new(127, 1, high, low).into(), port);
    let stream = Stream::connect(address).await.unwrap();
    let mut peer = Peer::new(stream, Guid([u8::try_from(run % 251).unwrap(); 16]));
    peer.is_strict = false;
    let mut offer = Offer::default().draft(Default::default());
    let negotiate = pack(&[std::mem::replace(&mut offer, Draft::echo())], Via::Plain);
    match run % 10 {
        0 => {}
        1 => peer.send_bytes(&[0, 0]).await,
        2 => peer.send_bytes(&[0, 0, 0, 200]).await,
        3 => peer.send_bytes(&[[0, 0, 0, 200].as_slice(), &negotiate[..40]].concat()).await,
        4 => peer.send_bytes(b"GET / HTTP/1.1\r\n\r\n").await,
        5 => peer.send_frame(&negotiate).await,
        6 => peer.stream.abort(),
        7 => {
            peer.send_frame(&negotiate).await;
            peer.stream.abort();
        }
        8 => _ = peer.negotiate(&Offer::default()).await,
        _ => {
            peer.negotiate(&Offer::default()).await;
            let mut exchange = Exchange::new(&peer, Setup::of("ann"));
            exchange.round(&mut peer).await.expect(Status::MORE_PROCESSING_REQUIRED);
        }
    }
}

/// Waits until as many descriptors are open as were, and nothing is left else.
async fn settled(world: &World, base: usize) {
    let until = Instant::now() + Duration::from_secs(60);
    while descriptors() > base || !world.server.sessions().is_empty() {
        assert!(Instant::now() < until, "{} descriptors, {base} before", descriptors());
        sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn l3_half_open_connections_leave_no_descriptor() {
    let runs = std::env::var("FREVO_RACE_RUNS").ok().and_then(|runs| runs.parse().ok());
    let runs: usize = runs.unwrap_or(2_000);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let world = World::new(settings());
    let began = std::time::Instant::now();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let listener = Listener::bind("0.0.0.0:0".parse().unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = world.listen(listener);
        // The server opens some files at its first connections and keeps them open. So 50 runs come
        // before the descriptors are counted.
        for run in 0..50 {
            begin(run, port).await;
        }
        sleep(Duration::from_secs(1)).await;
        let base = descriptors();
        for run in 0..runs {
            begin(run, port).await;
        }
        settled(&world, base).await;
        // After all half-open connections, a client that negotiates is still served.
        let mut peer = Peer::new(
            Stream::connect(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)).await.unwrap(),
            Guid([7; 16]),
        );
        peer.negotiate(&Offer::default()).await;
        let logon = peer.log_on("ann").await;
        peer.mount(&logon, "data").await;
        drop(peer);
        settled(&world, base).await;
        world.embedded.stop_within(Duration::from_secs(5));
        serving.await.unwrap().unwrap();
    });
    println!("{runs} connections in {:?}", began.elapsed());
}
