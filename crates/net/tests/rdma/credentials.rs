//! Connections of a thread whose credentials are replaced, as of a core that acts as users.

use std::time::Duration;

use frevo_net::rdma::Lending;
use frevo_net::{Buf, FrameReader, OutFrame, SendQueue, Stream};

use super::{both, here, pattern, used_pair};

/// Replaces this thread's credentials with equal ones, for which the kernel refuses it all writes to
/// devices that were opened before.
fn replace_credentials() {
    let held = rustix::thread::capabilities(None).unwrap();
    rustix::thread::set_capabilities(None, held).unwrap();
}

/// Frames both ways, and data by RDMA, staged and registered.
async fn exchange(server: &Stream, client: &Stream) {
    for (from, to) in [(client, server), (server, client)] {
        let queue = SendQueue::default();
        queue.push(OutFrame::new(Buf::copy_of(&pattern(50_000))));
        let mut reader = FrameReader::new(100_000);
        let (sent, received) = tokio::join!(queue.flush(from), reader.next(to));
        sent.unwrap();
        assert!(*received.unwrap().unwrap() == pattern(50_000));
    }
    let (server, client) = (server.rdma().unwrap(), client.rdma().unwrap());
    for size in [8192, 1 << 20] {
        let loan = client.lend(Buf::copy_of(&pattern(size)), Lending::PeerReads).await.unwrap();
        let remote = [loan.remote()];
        let (read, ()) = both(server.read_from_peer(size, &remote), client).await;
        assert!(*read.unwrap() == pattern(size));
        let room = Buf::with_capacity(size);
        let loan = client.lend(room, Lending::PeerWrites(size)).await.unwrap();
        let remote = [loan.remote()];
        let written = server.write_to_peer(Buf::copy_of(&pattern(size)), &remote);
        both(written, client).await.0.unwrap();
        while server.transfers() > 0 {
            let _ = tokio::time::timeout(Duration::from_millis(10), server.readable()).await;
        }
        assert!(*loan.take_back().await.unwrap() == pattern(size));
    }
}

#[test]
fn a_thread_with_other_credentials_goes_on() {
    // The test changes the credentials of its thread, so it gets a thread of its own.
    let test = std::thread::spawn(|| {
        here(&async |medium| {
            let (server, client) = used_pair(medium).await;
            exchange(&server, &client).await;
            for _ in 0..3 {
                replace_credentials();
                exchange(&server, &client).await;
                // After the change of credentials, connections must still work, end and be made.
                let (other_server, other_client) = used_pair(medium).await;
                replace_credentials();
                exchange(&other_server, &other_client).await;
                other_client.abort();
            }
        });
    });
    test.join().unwrap();
}
