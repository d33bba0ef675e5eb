//! The client and a cluster: it finds the node that serves a share, and goes on at another one when
//! the share moves or its node dies. Applications see a pause and no error.
#![allow(missing_docs, clippy::disallowed_methods, clippy::print_stdout, reason = "tests")]

use crate::evil::frames;
use crate::nodes;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use frevo_client::internal::{Dial, Dialing, Resolving};
use frevo_client::limits::{FIND_SHARE_FOR, KEPT_ECHO};
use frevo_client::{
    Cause, Client, Credentials, Error, LockKind, OpenOptions, Options, Result, ServerAddresses,
    ServerName, Share, Status,
};
use frevo_net::frame_reader::FrameReader;
use frevo_net::transport::Stream;
use nodes::{CLUSTER, MOVING, Nodes, address, with_nodes};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Pieces that each application writes at least while the share moves.
const PIECES: usize = 40;

/// An application that is told when to end.
struct Application {
    is_over: Arc<AtomicBool>,
    task: JoinHandle<usize>,
}

impl Application {
    /// Starts it on a share of its own session.
    async fn start<F>(nodes: &Arc<Nodes>, work: impl FnOnce(Share, Arc<AtomicBool>) -> F) -> Self
    where
        F: Future<Output = Result<usize>> + Send + 'static,
    {
        let is_over = Arc::new(AtomicBool::new(false));
        let work = work(nodes.share("lasting").await, Arc::clone(&is_over));
        let task = tokio::spawn(async { work.await.unwrap_or_else(|error| panic!("{error}")) });
        Self { is_over, task }
    }

    /// Lets it end, and returns the count of its pieces.
    async fn end(self) -> usize {
        self.is_over.store(true, Ordering::SeqCst);
        self.task.await.unwrap()
    }
}

fn goes_on(is_over: &AtomicBool, done: usize) -> bool {
    !is_over.load(Ordering::SeqCst) || done < PIECES
}

/// Writes numbers one after the other, each under a lock of its own, and syncs from time to time.
async fn write_locked(share: Share, number: usize, is_over: Arc<AtomicBool>) -> Result<usize> {
    let options = OpenOptions::new().read(true).write(true).create_new(true);
    let file = options.open(&share, &format!("locked{number}")).await?;
    let mut at = 0;
    while goes_on(&is_over, at) {
        let offset = at as u64 * 8;
        file.lock(offset, 8, LockKind::Exclusive).await?;
        file.write_all_at(&(at as u64).to_le_bytes(), offset).await?;
        if at % 16 == 0 {
            file.sync_all().await?;
        }
        file.unlock(offset, 8).await?;
        at += 1;
    }
    file.close().await?;
    Ok(at)
}

/// Makes files that must not exist, one after the other.
async fn create_new(
    share: Share,
    number: usize,
    is_over: Arc<AtomicBool>,
    nodes: Arc<Nodes>,
) -> Result<usize> {
    let mut at = 0;
    while goes_on(&is_over, at) {
        let (options, path) = (OpenOptions::new().write(true), format!("new{number}-{at}"));
        let file = match options.clone().create_new(true).open(&share, &path).await {
            // The node made the file and was gone before the record of its handle was stable. A
            // program that knows the file for its own opens it, as a mount does.
            Err(error) if matches!(error.cause(), Cause::Unknown) => {
                nodes.unknown.fetch_add(1, Ordering::SeqCst);
                options.open(&share, &path).await?
            }
            made => made?,
        };
        file.write_all_at(format!("file {at}").as_bytes(), 0).await?;
        file.close().await?;
        at += 1;
    }
    Ok(at)
}

/// Copies as `frevo put` does: whole files under another name, which are then renamed.
async fn copy(share: Share, number: usize, is_over: Arc<AtomicBool>) -> Result<usize> {
    let mut at = 0;
    while goes_on(&is_over, at) {
        let (part, path) = (format!("part{number}-{at}"), format!("copy{number}-{at}"));
        share.write(&part, &piece(at)).await?;
        let mut was_lost = false;
        loop {
            match share.rename(&part, &path).await {
                Err(error) if matches!(error.cause(), Cause::Unknown) => was_lost = true,
                Err(error) if was_lost && error.is_not_found() => break,
                done => break done?,
            }
        }
        assert_eq!(share.read(&path).await?, piece(at));
        at += 1;
    }
    Ok(at)
}

/// The content of a copied file: some are small, some take several requests.
fn piece(at: usize) -> Vec<u8> {
    vec![at as u8; if at % 8 == 7 { 3_000_000 } else { 700 }]
}

/// Runs applications while `trouble` strikes, and compares all that they wrote with the folder.
async fn under_load(nodes: &Arc<Nodes>, trouble: impl AsyncFnOnce()) {
    let mut writers = Vec::new();
    let mut makers = Vec::new();
    let mut copiers = Vec::new();
    for number in 0..3 {
        let locked = |share, is_over| write_locked(share, number, is_over);
        writers.push(Application::start(nodes, locked).await);
        let made = |share, is_over| create_new(share, number, is_over, Arc::clone(nodes));
        makers.push(Application::start(nodes, made).await);
        let copied = |share, is_over| copy(share, number, is_over);
        copiers.push(Application::start(nodes, copied).await);
    }
    trouble().await;
    let mut files = 0;
    for (number, writer) in writers.into_iter().enumerate() {
        let count = writer.end().await;
        let expected: Vec<u8> = (0..count as u64).flat_map(u64::to_le_bytes).collect();
        assert_eq!(std::fs::read(nodes.path(&format!("locked{number}"))).unwrap(), expected);
        files += 1;
    }
    for (number, maker) in makers.into_iter().enumerate() {
        let count = maker.end().await;
        for at in 0..count {
            let made = std::fs::read_to_string(nodes.path(&format!("new{number}-{at}"))).unwrap();
            assert_eq!(made, format!("file {at}"));
        }
        files += count;
    }
    for (number, copier) in copiers.into_iter().enumerate() {
        let count = copier.end().await;
        for at in 0..count {
            let copied = std::fs::read(nodes.path(&format!("copy{number}-{at}"))).unwrap();
            assert!(copied == piece(at), "copy{number}-{at}");
        }
        files += count;
    }
    assert_eq!(std::fs::read_dir(nodes.dir.path()).unwrap().count(), files, "and nothing else");
}

#[test]
fn a_share_moves_under_applications_that_notice_nothing() {
    with_nodes(3, async |nodes| {
        nodes.take(0, "lasting").await;
        under_load(nodes, async || {
            for round in 0..12 {
                sleep(Duration::from_millis(40)).await;
                nodes.hand_over("lasting", round % 3, (round + 1) % 3).await;
            }
        })
        .await;
        // A node that gives a share away answers what is under way.
        assert_eq!(nodes.unknown.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn nodes_die_under_applications_that_notice_nothing() {
    with_nodes(3, async |nodes| {
        nodes.take(0, "lasting").await;
        under_load(nodes, async || {
            for round in 0..10 {
                sleep(Duration::from_millis(60)).await;
                nodes.die(round % 3);
                // Until its lease ends nobody serves the share.
                sleep(Duration::from_millis(80)).await;
                nodes.take((round + 1) % 3, "lasting").await;
                nodes.revive(round % 3);
            }
        })
        .await;
    });
}

/// The time that a request waits when its share is moved, on this machine.
#[test]
fn a_planned_move_is_short() {
    with_nodes(3, async |nodes| {
        nodes.take(0, "lasting").await;
        let share = nodes.share("lasting").await;
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = options.open(&share, "f").await.unwrap();
        let mut waits = Vec::new();
        for round in 0..20_u8 {
            let from = usize::from(round) % 3;
            nodes.hand_over("lasting", from, (from + 1) % 3).await;
            let begun = Instant::now();
            file.write_all_at(&[round], u64::from(round)).await.unwrap();
            waits.push(begun.elapsed());
        }
        waits.sort();
        println!("median {:?}, longest {:?}", waits[10], waits[19]);
        assert!(waits[10] < FIND_SHARE_FOR, "{waits:?}");
        let expected: Vec<u8> = (0..20).collect();
        assert_eq!(std::fs::read(nodes.path("f")).unwrap(), expected);
        let node = share.node().unwrap();
        assert_eq!((node.moves, node.address), (20, address(20 % 3)));
    });
}

/// One name, two shares, two nodes: each share has the session with its node.
#[test]
fn shares_of_one_session_go_to_different_nodes() {
    with_nodes(3, async |nodes| {
        nodes.take(1, "lasting").await;
        nodes.take(2, "second").await;
        let session = nodes.session(Options::new(), CLUSTER).await;
        let one = session.share("lasting").await.unwrap();
        let two = session.share("second").await.unwrap();
        let places = || [&one, &two].map(|share| share.node().unwrap().address);
        assert_eq!(places(), [address(1), address(2)]);
        let options = OpenOptions::new().read(true).write(true).create(true);
        let (first, other) = (options.open(&one, "a").await, options.open(&two, "b").await);
        let (first, other) = (first.unwrap(), other.unwrap());
        first.write_all_at(b"some data", 0).await.unwrap();
        // No server can copy between them.
        assert_eq!(first.copy_range_to(&other, 0, 0, 9).await.unwrap(), None);
        nodes.hand_over("second", 2, 1).await;
        other.write_all_at(b"more", 0).await.unwrap();
        nodes.hand_over("lasting", 1, 0).await;
        first.write_all_at(b"data", 9).await.unwrap();
        other.write_all_at(b" data", 4).await.unwrap();
        assert_eq!(places(), [address(0), address(1)]);
        assert_eq!(std::fs::read(nodes.path("a")).unwrap(), b"some datadata");
        assert_eq!(std::fs::read(nodes.path("b")).unwrap(), b"more data");
        let sessions = || nodes.all.iter().map(|node| node.embedded.state().sessions().len());
        assert!(sessions().all(|count| count <= 1) && sessions().sum::<usize>() == 2);
        session.log_off().await;
        assert_eq!(sessions().sum::<usize>(), 0, "each of them is logged off");
        for share in [&one, &two] {
            let error = share.read("a").await.unwrap_err();
            assert!(matches!(error.cause(), Cause::Usage(_)), "{error}");
        }
    });
}

/// Two shares that were at one node part: the one that moves gets a session of its own, with its open
/// files, their locks and their leases.
#[test]
fn a_share_leaves_the_session_of_another_one() {
    with_nodes(2, async |nodes| {
        nodes.take(0, "lasting").await;
        nodes.take(0, "second").await;
        let session = nodes.session(Options::new(), CLUSTER).await;
        let one = session.share("lasting").await.unwrap();
        let two = session.share("second").await.unwrap();
        assert!(one.session().is_same(two.session()));
        let lease = two.lease_of("b").await.unwrap();
        let options = OpenOptions::new().read(true).write(true).create(true);
        let staying = options.open(&one, "a").await.unwrap();
        let moving = options.clone().shared_lease(&lease).open(&two, "b").await.unwrap();
        assert!(!lease.grant().state.is_empty());
        moving.lock(0, 4, LockKind::Exclusive).await.unwrap();
        nodes.hand_over("second", 0, 1).await;
        moving.write_all_at(b"here", 0).await.unwrap();
        staying.write_all_at(b"there", 0).await.unwrap();
        assert!(!one.session().is_same(two.session()));
        assert_eq!(two.node().unwrap().address, address(1));
        assert_eq!(two.node().unwrap().moves, 1);
        assert_eq!((one.node().unwrap().address, one.node().unwrap().moves), (address(0), 0));
        // Another client meets the lock, and its open breaks the lease: the break is acknowledged,
        // or it would wait for half a minute.
        let begun = Instant::now();
        let other = nodes.share("second").await;
        let theirs = options.open(&other, "b").await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        let refused = theirs.try_lock(0, 4, LockKind::Exclusive).await;
        assert!(refused.is_err(), "two clients have one lock");
        for file in [staying, moving, theirs] {
            file.close().await.unwrap();
        }
        for share in [one, two, other] {
            share.log_off().await;
        }
    });
}

/// The address of a share goes to another machine: another ServerGuid answers there.
#[test]
fn an_address_moves_to_another_machine() {
    with_nodes(2, async |nodes| {
        nodes.take(0, "lasting").await;
        nodes.take(0, "plain").await;
        let session = nodes.session(Options::new(), MOVING).await;
        let share = session.share("lasting").await.unwrap();
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = options.open(&share, "f").await.unwrap();
        file.lock(0, 4, LockKind::Exclusive).await.unwrap();
        // Handles of the other share end with their node: one with a lock is lost, one without is
        // opened again by its name.
        let plain = nodes.session(Options::new(), MOVING).await.share("plain").await.unwrap();
        let locked = options.open(&plain, "locked").await.unwrap();
        locked.lock(0, 4, LockKind::Exclusive).await.unwrap();
        let free = options.open(&plain, "free").await.unwrap();
        nodes.die(0);
        let pause = sleep(Duration::from_millis(300));
        let moved = async {
            pause.await;
            nodes.moving.store(1, Ordering::SeqCst);
            nodes.take(1, "lasting").await;
            nodes.take(1, "plain").await;
        };
        let (written, ()) = tokio::join!(file.write_all_at(b"data", 0), moved);
        written.unwrap();
        let node = share.node().unwrap();
        assert_eq!((node.address.host.as_str(), node.moves), (MOVING, 1));
        assert!(node.pause >= Duration::from_millis(200), "{node:?}");
        free.write_all_at(b"data", 0).await.unwrap();
        let lost = locked.write_all_at(b"data", 0).await.unwrap_err();
        assert!(matches!(lost.cause(), Cause::HandleLost), "{lost}");
        assert!(std::fs::read(nodes.path("locked")).unwrap().is_empty());
    });
}

/// A continuously available share may come later than its address, another one may not: each of them
/// in one session, whichever was connected last.
#[test]
fn shares_of_one_moving_address_are_waited_for_each_in_its_way() {
    with_nodes(2, async |nodes| {
        nodes.take(0, "lasting").await;
        nodes.take(0, "plain").await;
        let session = nodes.session(Options::new(), MOVING).await;
        let plain = session.share("plain").await.unwrap();
        let lasting = session.share("lasting").await.unwrap();
        let begun = Instant::now();
        assert!(is_no_share(&session.share("absent").await.unwrap_err()));
        assert!(begun.elapsed() < FIND_SHARE_FOR, "{:?}", begun.elapsed());
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = options.open(&lasting, "f").await.unwrap();
        nodes.die(0);
        nodes.moving.store(1, Ordering::SeqCst);
        nodes.take(1, "plain").await;
        plain.write("plain", b"data").await.unwrap();
        let taken = async {
            sleep(Duration::from_millis(300)).await;
            nodes.take(1, "lasting").await;
        };
        let (written, ()) = tokio::join!(file.write_all_at(b"data", 0), taken);
        written.unwrap();
        assert_eq!(std::fs::read(nodes.path("f")).unwrap(), b"data");
    });
}

/// A node has the address a moment longer than the share, which is not continuously available: it refuses
/// the share, or ends the connections. The client knows a cluster by another share, or by a move before.
#[test]
fn a_share_in_use_is_waited_for_while_its_old_node_has_the_address() {
    for (has_lasting, is_killed) in [(true, true), (true, false), (false, true), (false, false)] {
        with_nodes(2, async |nodes| {
            nodes.take(0, "lasting").await;
            nodes.take(0, "plain").await;
            let session = nodes.session(Options::new(), MOVING).await;
            let plain = session.share("plain").await.unwrap();
            let _lasting = match has_lasting {
                true => Some(session.share("lasting").await.unwrap()),
                false => None,
            };
            plain.write("f", b"1").await.unwrap();
            if !has_lasting {
                nodes.fail_over("plain", 0, 1).await;
                nodes.moving.store(1, Ordering::SeqCst);
                plain.write("f", b"2").await.unwrap();
            }
            let old = nodes.moving.load(Ordering::SeqCst);
            let new = 1 - old;
            if is_killed {
                nodes.die(old);
                nodes.revive(old);
            } else {
                nodes.hand_over("plain", old, new).await;
            }
            let moved = async {
                sleep(Duration::from_millis(200)).await;
                let begun = Instant::now();
                assert!(is_no_share(&session.share("absent").await.unwrap_err()));
                assert!(begun.elapsed() < FIND_SHARE_FOR, "{:?}", begun.elapsed());
                sleep(Duration::from_millis(200)).await;
                nodes.moving.store(new, Ordering::SeqCst);
                nodes.die(old);
                nodes.revive(new);
                if is_killed {
                    nodes.take(new, "plain").await;
                }
            };
            let (written, ()) = tokio::join!(plain.write("f", b"3"), moved);
            written.unwrap();
            assert_eq!(std::fs::read(nodes.path("f")).unwrap(), b"3");
        });
    }
}

/// The old node answers until the address has moved.
#[test]
fn a_share_that_moves_with_its_address_is_waited_for() {
    with_nodes(2, async |nodes| {
        nodes.take(0, "lasting").await;
        let session = nodes.session(Options::new(), MOVING).await;
        let share = session.share("lasting").await.unwrap();
        share.write("f", b"1").await.unwrap();
        nodes.hand_over("lasting", 0, 1).await;
        let before = nodes.dialed();
        let moved = async {
            sleep(Duration::from_millis(400)).await;
            nodes.moving.store(1, Ordering::SeqCst);
            // Its packets reach the new machine, which does not know the connections.
            nodes.die(0);
        };
        let (written, ()) = tokio::join!(share.write("f", b"2"), moved);
        written.unwrap();
        assert_eq!(std::fs::read(nodes.path("f")).unwrap(), b"2");
        assert!(nodes.dialed()[0] - before[0] <= 12, "no busy loop: {:?}", nodes.dialed());
    });
}

#[test]
fn all_channels_lead_to_one_node() {
    with_nodes(3, async |nodes| {
        nodes.take(2, "lasting").await;
        let session = nodes.session(Options::new().channels(3), CLUSTER).await;
        let share = session.share("lasting").await.unwrap();
        until(share.session(), 3).await;
        nodes.hand_over("lasting", 2, 1).await;
        share.write("f", b"1").await.unwrap();
        until(share.session(), 3).await;
        let sessions = |at: usize| nodes.all[at].embedded.state().sessions().len();
        assert_eq!([sessions(0), sessions(1), sessions(2)], [0, 1, 0]);
    });
}

async fn until(session: &frevo_client::Session, channels: usize) {
    for _ in 0..1_000 {
        if session.info().is_some_and(|info| info.channels == channels) {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("{:?}", session.info());
}

fn is_no_share(error: &Error) -> bool {
    error.status() == Some(Status::BAD_NETWORK_NAME)
}

#[test]
fn a_share_that_is_nowhere_is_an_error_after_a_few_seconds() {
    with_nodes(3, async |nodes| {
        nodes.take(1, "lasting").await;
        let session = nodes.session(Options::new(), CLUSTER).await;
        let begun = Instant::now();
        let error = session.share("absent").await.unwrap_err();
        assert!(is_no_share(&error), "{error}");
        assert!(begun.elapsed() < FIND_SHARE_FOR * 5, "{:?}", begun.elapsed());
        let dialed: usize = nodes.dialed().iter().sum();
        assert!(dialed < 60, "{:?}", nodes.dialed());
        // The session is as good as before.
        session.share("lasting").await.unwrap();
        // A server on its own says it at once.
        let alone = nodes.session(Options::new(), "node0").await;
        let begun = Instant::now();
        assert!(is_no_share(&alone.share("absent").await.unwrap_err()));
        assert!(begun.elapsed() < FIND_SHARE_FOR, "{:?}", begun.elapsed());
    });
}

/// A share that nobody serves yet appears within the time of the first search.
#[test]
fn a_first_connection_waits_for_a_share_that_is_moving() {
    with_nodes(2, async |nodes| {
        let session = nodes.session(Options::new(), CLUSTER).await;
        let taken = async {
            sleep(Duration::from_millis(500)).await;
            nodes.take(1, "lasting").await;
        };
        let (share, ()) = tokio::join!(session.share("lasting"), taken);
        assert_eq!(share.unwrap().node().unwrap().address, address(1));
    });
}

#[test]
fn addresses_of_the_options_take_the_place_of_those_of_the_name() {
    with_nodes(3, async |nodes| {
        nodes.take(2, "lasting").await;
        let at = |numbers: &[usize]| ServerAddresses {
            host: String::from("Nobody"),
            addresses: numbers.iter().map(|number| address(*number)).collect(),
        };
        let options = Options::new().addresses(vec![at(&[1, 2])]);
        let session = nodes.session(options, "nobody").await;
        let share = session.share("lasting").await.unwrap();
        assert_eq!(share.url(""), "smb://nobody/lasting");
        assert_eq!((nodes.dialed()[0], share.node().unwrap().address), (0, address(2)));
        // Another session of the client begins where the share is.
        let before = nodes.dialed();
        let another = share.session().open_another(Duration::from_secs(5)).await.unwrap();
        another.share("lasting").await.unwrap();
        assert_eq!(nodes.dialed()[1], before[1]);
    });
}

/// TCP connections to the nodes. The first node can be stopped: its machine goes on to acknowledge what
/// it is sent, and its process answers nothing.
#[derive(Debug)]
struct Stoppable {
    nodes: Arc<Nodes>,
    is_stopped: Arc<AtomicBool>,
}

impl Dial for Stoppable {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        Box::pin(async move {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let ours = TcpStream::connect(listener.local_addr()?).await?;
            let near = Arc::new(Stream::Tcp(listener.accept().await?.0));
            let far = Arc::new(self.nodes.dial(server).await?);
            let is_stopped = match *server == address(0) {
                true => Arc::clone(&self.is_stopped),
                false => Arc::default(),
            };
            tokio::spawn(carry(Arc::clone(&near), Arc::clone(&far), Arc::clone(&is_stopped)));
            tokio::spawn(carry(far, near, is_stopped));
            Ok(Stream::Tcp(ours))
        })
    }

    fn addresses<'a>(&'a self, server: &'a ServerName) -> Resolving<'a> {
        self.nodes.addresses(server)
    }
}

async fn carry(from: Arc<Stream>, to: Arc<Stream>, is_stopped: Arc<AtomicBool>) {
    let mut reader = FrameReader::new(frevo_net::limits::FRAME_BYTES_MAX);
    while let Ok(Some(frame)) = reader.next(&from).await {
        let frame = frames::framed(&frame);
        if !is_stopped.load(Ordering::SeqCst) && frames::put(&to, &frame).await.is_err() {
            break;
        }
    }
    if !is_stopped.load(Ordering::SeqCst) {
        to.abort();
    }
}

#[test]
fn a_node_whose_process_is_stopped_is_left_after_a_few_seconds() {
    with_nodes(2, async |nodes| {
        nodes.take(0, "lasting").await;
        let is_stopped = Arc::new(AtomicBool::new(false));
        let dial = Stoppable { nodes: Arc::clone(nodes), is_stopped: Arc::clone(&is_stopped) };
        let options = Options::new().channels(1).recover_for(Duration::from_secs(20));
        let client = Client::with_dialer(options, Arc::new(dial));
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new(CLUSTER), user).await.unwrap();
        let share = session.share("lasting").await.unwrap();
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = options.open(&share, "f").await.unwrap();
        file.lock(0, 4, LockKind::Exclusive).await.unwrap();
        is_stopped.store(true, Ordering::SeqCst);
        nodes.all[0].embedded.lose_share("lasting").unwrap();
        nodes.take(1, "lasting").await;
        let begun = Instant::now();
        file.write_all_at(b"data", 0).await.unwrap();
        let took = begun.elapsed();
        // Other servers have 12 seconds.
        let few = Duration::from_secs(3)..Duration::from_secs(12);
        assert!(few.contains(&took), "{took:?}");
        assert_eq!(share.node().unwrap().address, address(1));
        assert_eq!(std::fs::read(nodes.path("f")).unwrap(), b"data");
    });
}

/// Opens a file that another client has locked, as soon as the server has its handle again.
async fn is_locked(nodes: &Arc<Nodes>, within: Duration) {
    let share = nodes.share("lasting").await;
    let options = OpenOptions::new().read(true).write(true);
    let begun = Instant::now();
    let file = loop {
        match options.open(&share, "f").await {
            Ok(file) => break file,
            Err(error) if begun.elapsed() >= within => panic!("{error}"),
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    };
    let refused = file.try_lock(0, 4, LockKind::Exclusive).await.unwrap_err();
    assert_eq!(refused.status(), Some(Status::LOCK_NOT_GRANTED), "{refused}");
}

/// The next node keeps a handle for two minutes only, and refuses its file to others meanwhile.
#[test]
fn handles_that_nobody_uses_are_reconnected() {
    with_nodes(2, async |nodes| {
        nodes.take(0, "lasting").await;
        let share = nodes.share("lasting").await;
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = options.open(&share, "f").await.unwrap();
        file.lock(0, 4, LockKind::Exclusive).await.unwrap();
        for (from, to) in [(0, 1), (1, 0)] {
            nodes.die(from);
            nodes.take(to, "lasting").await;
            // The refusal of the file is waited out by the other client.
            is_locked(nodes, Duration::ZERO).await;
            nodes.revive(from);
        }
        file.unlock(0, 4).await.unwrap();
    });
}

#[test]
fn a_node_that_falls_silent_is_noticed_without_requests() {
    with_nodes(2, async |nodes| {
        nodes.take(0, "lasting").await;
        let is_stopped = Arc::new(AtomicBool::new(false));
        let dial = Stoppable { nodes: Arc::clone(nodes), is_stopped: Arc::clone(&is_stopped) };
        let options = Options::new().channels(1).recover_for(Duration::from_secs(20));
        let client = Client::with_dialer(options, Arc::new(dial));
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new(CLUSTER), user).await.unwrap();
        let share = session.share("lasting").await.unwrap();
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = options.open(&share, "f").await.unwrap();
        file.lock(0, 4, LockKind::Exclusive).await.unwrap();
        is_stopped.store(true, Ordering::SeqCst);
        nodes.all[0].embedded.lose_share("lasting").unwrap();
        nodes.take(1, "lasting").await;
        is_locked(nodes, KEPT_ECHO + Duration::from_secs(12)).await;
    });
}
