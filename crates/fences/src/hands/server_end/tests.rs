//! A server's end and the process's end, the latter on a thread.

use super::super::{Process, UnitSetUp};
use super::*;
use crate::Kind;
use crate::limits::{FAULT_CHARACTERS, PACKET_BYTES};

fn unit(name: &str, folders: &[&str], kind: Kind) -> UnitSetUp {
    let folders = folders.iter().map(Into::into).collect();
    UnitSetUp { name: name.into(), folders, kind, addresses: Vec::new() }
}

fn clock() -> Duration {
    Duration::from_secs(1)
}

/// Both ends, without addresses: these take rights.
fn hands(set_up: SetUp) -> (Hands, std::thread::JoinHandle<()>) {
    let (ours, theirs) = wire::pair().unwrap();
    let process = Process::open(set_up, theirs, clock).unwrap();
    let thread = std::thread::spawn(move || process.serve(|fault| panic!("{fault}")));
    let attended = Started::when_ready(ours).unwrap().attend(|| ());
    (attended.unwrap(), thread)
}

#[tokio::test]
async fn connections_come_from_the_process() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // Nobody listens at the second one.
    let set_up =
        SetUp { endpoints: vec![address, "127.0.0.1:1".into()], units: Vec::new(), keys: None };
    let (hands, thread) = hands(set_up);
    let stream = hands.dial(0).await.unwrap();
    let (accepted, peer) = listener.accept().await.unwrap();
    assert_eq!(stream.local_addr().unwrap(), peer);
    drop(accepted);
    let fault = hands.dial(1).await.unwrap_err().to_string();
    assert!(fault.starts_with("127.0.0.1:1: "), "{fault}");
    assert_eq!(hands.dial(2).await.unwrap_err().to_string(), "there is no such endpoint");
    drop(hands);
    thread.join().unwrap();
}

#[tokio::test]
async fn only_what_is_configured_can_be_asked_for() {
    let units = vec![
        unit("files", &["/proc", "/sys"], Kind::None),
        unit("fuse", &["/proc"], Kind::Fuse),
        unit("address 192.0.2.20", &[], Kind::None),
    ];
    let (hands, thread) = hands(SetUp { endpoints: Vec::new(), units, keys: None });
    assert_eq!(hands.look("files").await, Ok(Fence::None));
    assert_eq!(hands.look("address 192.0.2.20").await, Ok(Fence::None));
    let fault = hands.look("fuse").await.unwrap_err();
    assert_eq!(fault, "/proc is no FUSE file system; use another `fence`");
    let fault = hands.look("/proc").await.unwrap_err();
    assert_eq!(fault, "/proc is none of the configured shares and groups");
    let nfs = Fence::Nfs { server: "127.0.0.1".into(), client: 1 };
    let fault = hands.fence(&nfs).await.unwrap_err();
    assert_eq!(fault, "no share of this node has `fence = \"nfs\"`");
    assert_eq!(hands.fence(&Fence::None).await, Ok(()));
    assert_eq!((hands.raise("files").await, hands.lower("files").await), (Ok(()), Ok(())));
    assert!(hands.raise("other").await.is_err());
    hands.serve_until(Duration::from_secs(2));
    drop(hands);
    thread.join().unwrap();
}

#[tokio::test]
async fn a_process_that_has_ended_answers_nothing() {
    let (ours, theirs) = wire::pair().unwrap();
    wire::send(theirs.as_fd(), &Answer { id: 0, end: Ok(String::new()) }.to_text(), None).unwrap();
    let (told, ended) = std::sync::mpsc::channel();
    let attended = Started::when_ready(ours).unwrap().attend(move || told.send(()).unwrap());
    let hands = attended.unwrap();
    let asked = hands.clone();
    let waiting = tokio::spawn(async move { asked.look("a").await });
    let packet = tokio::task::spawn_blocking(move || {
        let packet = wire::receive(theirs.as_fd()).unwrap().unwrap();
        drop(theirs);
        packet
    });
    let request = Request::parse(&packet.await.unwrap().bytes).unwrap();
    assert_eq!(request, Request { id: 1, act: Act::Look("a".into()) });
    for fault in [waiting.await.unwrap(), hands.look("a").await] {
        let fault = fault.unwrap_err();
        assert!(fault.starts_with("the process with rights"), "{fault}");
    }
    ended.recv_timeout(Duration::from_secs(10)).expect("the server is told");
}

#[tokio::test]
async fn hands_that_are_left_say_no_end() {
    let (ours, theirs) = wire::pair().unwrap();
    wire::send(theirs.as_fd(), &Answer { id: 0, end: Ok(String::new()) }.to_text(), None).unwrap();
    let (told, ended) = std::sync::mpsc::channel();
    let attended = Started::when_ready(ours).unwrap().attend(move || told.send(()).unwrap());
    drop(attended.unwrap());
    // The thread has ended without a word: it alone could send.
    assert_eq!(ended.recv(), Err(std::sync::mpsc::RecvError));
    assert!(wire::receive(theirs.as_fd()).unwrap().is_none());
}

#[test]
fn a_process_that_cannot_begin_says_why() {
    let (ours, theirs) = wire::pair().unwrap();
    let answer = Answer { id: 0, end: Err("no right".into()) };
    wire::send(theirs.as_fd(), &answer.to_text(), None).unwrap();
    assert_eq!(Started::when_ready(ours).unwrap_err().to_string(), "no right");
    let (ours, theirs) = wire::pair().unwrap();
    drop(theirs);
    let fault = Started::when_ready(ours).unwrap_err().to_string();
    assert_eq!(fault, "the process with rights has ended");
}

/// A caller that goes leaves no place behind, and so many wait at once.
#[tokio::test]
async fn so_many_requests_wait() {
    let (ours, theirs) = wire::pair().unwrap();
    wire::send(theirs.as_fd(), &Answer { id: 0, end: Ok(String::new()) }.to_text(), None).unwrap();
    let hands = Started::when_ready(ours).unwrap().attend(|| ()).unwrap();
    let reader =
        std::thread::spawn(move || while let Ok(Some(_)) = wire::receive(theirs.as_fd()) {});
    let ask = || {
        let hands = hands.clone();
        tokio::spawn(async move { hands.look("a").await })
    };
    let waiting: Vec<_> = (0..WAITING).map(|_| ask()).collect();
    while hands.shared.waiting.lock().each.len() < WAITING {
        tokio::task::yield_now().await;
    }
    let fault = hands.look("a").await.unwrap_err();
    assert_eq!(fault, "too many requests wait for the process with rights");
    for task in waiting {
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    }
    assert!(hands.shared.waiting.lock().each.is_empty());
    drop(hands);
    reader.join().unwrap();
}

/// The longest texts that a cluster has fit into a packet.
#[test]
fn packets_have_room() {
    let unit = "\u{1}".repeat(frevo_cluster::limits::SHARE_NAME_BYTES);
    assert!(Request { id: u64::MAX, act: Act::Look(unit) }.to_text().len() < PACKET_BYTES);
    let fence = "\"".repeat(2 * frevo_cluster::limits::FENCE_TEXT_BYTES);
    assert!(Answer { id: u64::MAX, end: Ok(fence) }.to_text().len() < PACKET_BYTES);
    let fault = "\u{1}".repeat(FAULT_CHARACTERS);
    assert!(Answer { id: u64::MAX, end: Err(fault) }.to_text().len() < PACKET_BYTES);
}
