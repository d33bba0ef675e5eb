//! Tests of the network that tell what the judge hears of connections.

use frevo_net::Buf;
use frevo_net::rdma::{Endpoint, Lending};
use tokio::time::timeout;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_half_open_connection_is_trouble_until_it_ends() {
    let trace = Arc::new(Trace::new(Instant::now(), false));
    let network = Network::new(2, 1, Dice::new(1, 1), trace);
    let _door = network.listen(0, false);
    let (mut dice, line) = (Dice::new(2, 1), network.line(1, 0));
    let _stream = network.connect(line, Transport::Memory).await.unwrap();
    assert!(!network.is_troubled(line));
    network.disturb(&mut dice, State::Vanishing([false, true]));
    // The link is vanishing but has not ended. A call that begins now may be repeated on another
    // connection, so it counts as troubled.
    let losses = network.losses(line);
    assert!(network.is_troubled(line) && !network.is_troubled(network.line(0, 0)));
    network.heal();
    assert!(!network.is_troubled(line) && network.losses(line) > losses);
}

/// The two ends of an RDMA connection that has negotiated.
async fn direct(network: &Arc<Network>, line: usize) -> [Arc<Endpoint>; 2] {
    let listener = network.listen(0, true);
    let client = network.connect(line, Transport::Rdma).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    let server = server.attach().unwrap();
    let ends = [client, server].map(|stream| Arc::clone(stream.rdma().unwrap()));
    let (one, other) = tokio::join!(ends[0].established(), ends[1].established());
    one.and(other).unwrap();
    ends
}

#[tokio::test(start_paused = true)]
async fn the_judge_hears_of_memory_that_is_used_or_lent_too_long() {
    let trace = Arc::new(Trace::new(Instant::now(), false));
    let network = Network::new(1, 1, Dice::new(1, 1), Arc::clone(&trace));
    let line = network.line(0, 0);
    let [client, server] = direct(&network, line).await;
    network.call_begins(line);
    network.call_begins(line);
    let loan = client.lend(Buf::with_capacity(8), Lending::PeerWrites(8)).await.unwrap();
    let remote = [loan.remote()];
    server.write_to_peer(Buf::copy_of(b"in time!"), &remote).await.unwrap();
    let _ = timeout(Duration::from_secs(2), client.readable()).await;
    assert_eq!(network.call_ends(line), 0, "another call is under way");
    assert_eq!(network.call_ends(line), 1, "none is");
    assert_eq!(loan.take_back().await.unwrap()[..], *b"in time!");
    assert!(!trace.is_violated());
    server.write_to_peer(Buf::copy_of(b"too late"), &remote).await.unwrap();
    let _ = timeout(Duration::from_secs(2), client.readable()).await;
    assert!(trace.is_violated());
    drop((client, server));
    assert_eq!(network.registered_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_device_gives_up_when_its_packets_vanish() {
    let trace = Arc::new(Trace::new(Instant::now(), false));
    let network = Network::new(1, 1, Dice::new(1, 1), Arc::clone(&trace));
    let [client, server] = direct(&network, 0).await;
    network.disturb(&mut Dice::new(2, 1), State::Vanishing([true, false]));
    let prefix = [0, 0, 0, 4, 1, 2, 3, 4];
    assert_eq!(client.try_write_vectored(&[io::IoSlice::new(&prefix)]).unwrap(), 8);
    let ended = timeout(Duration::from_secs(9), client.readable()).await;
    assert!(ended.is_ok(), "the client waits");
    assert!(client.try_read_vectored(&mut []).is_err());
    drop(server);
}

/// The two ends of a QUIC connection that has carried a byte.
async fn far(network: &Arc<Network>, follows: bool) -> [Stream; 2] {
    network.begin_quic(Dice::new(1, 1)).unwrap();
    let listener = network.listen_for_quic(0, follows).unwrap();
    let accepted = async { listener.accept().await.attach().unwrap() };
    let (client, server) = tokio::join!(network.connect(0, Transport::Quic), accepted);
    let (client, server) = (client.unwrap(), Stream::Quic(Box::new(server)));
    client.try_write_vectored(&[io::IoSlice::new(b"!")], false).unwrap();
    server.readable().await.unwrap();
    // Until the client sends packets of the established connection alone.
    sleep(Duration::from_secs(1)).await;
    [client, server]
}

#[tokio::test(start_paused = true)]
async fn the_judge_hears_of_a_server_that_follows_a_client() {
    for follows in [false, true] {
        let trace = Arc::new(Trace::new(Instant::now(), false));
        let network = Network::new(1, 1, Dice::new(1, 1), Arc::clone(&trace));
        let [client, _server] = far(&network, follows).await;
        network.links(|_| true).iter().for_each(|link| network.hit(link, State::Moved));
        client.try_write_vectored(&[io::IoSlice::new(b"from elsewhere")], false).unwrap();
        sleep(Duration::from_secs(5)).await;
        assert_eq!(trace.is_violated(), follows);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_is_told_of_a_reset_and_the_server_is_not() {
    let trace = Arc::new(Trace::new(Instant::now(), false));
    let network = Network::new(1, 1, Dice::new(1, 1), trace);
    let [client, server] = far(&network, false).await;
    network.links(|_| true).iter().for_each(|link| network.hit(link, State::Ended));
    let told = timeout(Duration::from_secs(1), client.readable()).await.expect("it is told");
    assert_eq!(told.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    sleep(Duration::from_secs(60)).await;
    assert!(!server.has_ended());
    sleep(Duration::from_secs(100)).await;
    assert!(server.has_ended() && network.count() == 0, "its time without a packet is over");
}
