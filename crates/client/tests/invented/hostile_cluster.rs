//! Nodes of a cluster that refuse, lie or never answer: a search for a share ends in time, after few
//! connections.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::dialed;
use crate::evil;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dialed::{in_time, on_paused_clock};
use evil::{Act, Asked, Evil, Manners, Overheard};
use frevo_client::internal::{Dial, Dialing, Resolving};
use frevo_client::limits::{
    ADDRESS_DIAL, ADDRESSES_AT_ONCE, ADDRESSES_MAX, ATTEMPTS, CANCELLED_MAX, CANCELLED_PAUSE,
    CONNECT_TIMEOUT, FIND_SHARE_FOR, RECONNECT_ANSWER, RECONNECT_DIAL_PAUSE, RECONNECT_DIALS,
    SPOKEN_WITHIN,
};
use frevo_client::{
    Cause, Change, Client, Credentials, Error, OpenOptions, Options, RecursiveMode,
    ServerAddresses, ServerName, Share, Status,
};
use frevo_wire::command::tree_connect::ShareCapabilities;
use frevo_wire::{Command, HeaderFlags, Status as WireStatus};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The behaviour of the node at an address.
type Behaviour = dyn Fn(usize, &Asked<'_>) -> Act + Send + Sync;

/// The answer of an address to a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Accepted,
    Refused,
    Never,
}

/// Scripted nodes with a ServerGuid each, unless they are one server.
struct EvilNodes {
    count: usize,
    is_one_server: bool,
    answer: Box<dyn Fn(usize) -> Answer + Send + Sync>,
    script: Arc<Behaviour>,
    /// The numbers of the nodes that were dialled, one by one.
    dialed: Mutex<Vec<usize>>,
    logons: Arc<AtomicUsize>,
}

impl std::fmt::Debug for EvilNodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EvilNodes")
    }
}

impl Dial for EvilNodes {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        let number: usize = server.host.trim_start_matches("node").parse().unwrap();
        let connection = {
            let mut dialed = self.dialed.lock();
            dialed.push(number);
            dialed.len() - 1
        };
        let guid = if self.is_one_server { 1 } else { number as u8 + 1 };
        let (script, logons) = (Arc::clone(&self.script), Arc::clone(&self.logons));
        let script = move |asked: &Asked<'_>| {
            if asked.header.command == Command::SESSION_SETUP && asked.nth == 0 {
                logons.fetch_add(1, Ordering::SeqCst);
            }
            match script(number, asked) {
                Act::Honest if asked.header.command == Command::NEGOTIATE => {
                    // MS-SMB2 2.2.4: the ServerGuid begins at byte 8 of the body.
                    Act::Changed(Box::new(move |message| {
                        message[72..88].copy_from_slice(&[guid; 16]);
                    }))
                }
                act => act,
            }
        };
        let evil = Evil {
            manners: Arc::new(Manners::default()),
            script: Arc::new(script),
            overheard: Overheard::default(),
            connection,
        };
        let answer = (self.answer)(number);
        Box::pin(async move {
            match answer {
                Answer::Accepted => Ok(evil.stream()),
                Answer::Refused => Err(std::io::ErrorKind::ConnectionRefused.into()),
                Answer::Never => std::future::pending().await,
            }
        })
    }

    fn addresses<'a>(&'a self, _: &'a ServerName) -> Resolving<'a> {
        let all = (0..self.count).map(|number| ServerName::new(format!("node{number}")));
        Box::pin(std::future::ready(Ok(all.collect())))
    }
}

/// Connects to the share of such a cluster. Returns the time that it took, too.
async fn connect(nodes: &Arc<EvilNodes>, options: Options) -> (Result<Share, Error>, Duration) {
    let options = options.recover_for(Duration::from_secs(5));
    let client = Client::with_dialer(options, Arc::clone(nodes) as Arc<dyn Dial>);
    let begun = Instant::now();
    let found = in_time("connect", async {
        let user = Credentials::new("ann", "secret");
        client.connect("cluster", user).await?.share("data").await
    });
    (found.await, begun.elapsed())
}

fn nodes(
    count: usize,
    script: impl Fn(usize, &Asked<'_>) -> Act + Send + Sync + 'static,
) -> Arc<EvilNodes> {
    answering_nodes(count, |_| Answer::Accepted, script)
}

fn answering_nodes(
    count: usize,
    answer: impl Fn(usize) -> Answer + Send + Sync + 'static,
    script: impl Fn(usize, &Asked<'_>) -> Act + Send + Sync + 'static,
) -> Arc<EvilNodes> {
    Arc::new(evil_nodes(count, answer, script))
}

fn evil_nodes(
    count: usize,
    answer: impl Fn(usize) -> Answer + Send + Sync + 'static,
    script: impl Fn(usize, &Asked<'_>) -> Act + Send + Sync + 'static,
) -> EvilNodes {
    EvilNodes {
        count,
        is_one_server: false,
        answer: Box::new(answer),
        script: Arc::new(script),
        dialed: Mutex::default(),
        logons: Arc::default(),
    }
}

/// One server with two addresses.
fn two_addresses(
    answer: impl Fn(usize) -> Answer + Send + Sync + 'static,
    script: impl Fn(usize, &Asked<'_>) -> Act + Send + Sync + 'static,
) -> Arc<EvilNodes> {
    Arc::new(EvilNodes { is_one_server: true, ..evil_nodes(2, answer, script) })
}

fn dialed(nodes: &EvilNodes) -> usize {
    nodes.dialed.lock().len()
}

fn is_share(asked: &Asked<'_>) -> bool {
    asked.header.command == Command::TREE_CONNECT
}

#[test]
fn nodes_that_always_refuse_end_the_search() {
    for status in [WireStatus::BAD_NETWORK_NAME, WireStatus::SERVER_UNAVAILABLE] {
        on_paused_clock(async {
            let nodes = nodes(3, move |_, asked| match is_share(asked) {
                true => Act::Refused(status),
                false => Act::Honest,
            });
            let (found, took) = connect(&nodes, Options::new()).await;
            assert_eq!(found.unwrap_err().status(), Some(Status::from(status)));
            assert!(took <= FIND_SHARE_FOR + Duration::from_secs(1), "{took:?}");
            // Ten rounds or so: the pauses grow.
            assert!((6..=60).contains(&dialed(&nodes)), "{}", dialed(&nodes));
        });
    }
}

#[test]
fn nodes_that_end_each_connection_end_the_search() {
    on_paused_clock(async {
        let nodes = nodes(3, |_, asked| if is_share(asked) { Act::Close } else { Act::Honest });
        let (found, took) = connect(&nodes, Options::new()).await;
        assert!(matches!(found.unwrap_err().cause(), Cause::Transport(_)));
        assert!(took <= Duration::from_secs(30), "{took:?}");
        assert!(dialed(&nodes) <= 100, "{}", dialed(&nodes));
    });
}

#[test]
fn addresses_that_never_answer_cost_their_time_once() {
    on_paused_clock(async {
        let nodes = answering_nodes(1_000, |_| Answer::Never, |_, _| Act::Honest);
        let (found, took) = connect(&nodes, Options::new()).await;
        assert!(matches!(found.unwrap_err().cause(), Cause::Transport(_)));
        assert!(took <= Duration::from_secs(11), "{took:?}");
        // The first ones for six seconds, and as many after them until the time to connect is over.
        assert_eq!(dialed(&nodes), 2 * ADDRESSES_AT_ONCE);
    });
}

#[test]
fn of_a_thousand_addresses_64_are_tried() {
    on_paused_clock(async {
        let nodes = nodes(1_000, |_, asked| match asked.header.command {
            Command::NEGOTIATE => Act::Close,
            _ => Act::Honest,
        });
        let addresses = (0..1_000).map(|number| ServerName::new(format!("node{number}")));
        let named = ServerAddresses { host: "cluster".into(), addresses: addresses.collect() };
        let (found, took) = connect(&nodes, Options::new().addresses(vec![named])).await;
        assert!(found.is_err());
        assert!(took <= Duration::from_secs(11), "{took:?}");
        // Each once, and the questions for an older dialect.
        assert!(dialed(&nodes) <= ADDRESSES_MAX + 2, "{}", dialed(&nodes));
    });
}

#[test]
fn one_good_node_is_found_among_bad_ones() {
    on_paused_clock(async {
        let bad = |number: usize, asked: &Asked<'_>| match (number, asked.header.command) {
            (2, Command::NEGOTIATE) => Act::Bytes(b"\0\0\0\x04HTTP".to_vec()),
            (3, Command::SESSION_SETUP) => Act::Silence,
            (4, Command::TREE_CONNECT) => Act::Refused(WireStatus::BAD_NETWORK_NAME),
            (5, Command::TREE_CONNECT) => Act::Close,
            _ => Act::Honest,
        };
        let silent = |number: usize| if number < 2 { Answer::Never } else { Answer::Accepted };
        let nodes = answering_nodes(7, silent, bad);
        let (found, took) = connect(&nodes, Options::new()).await;
        let share = found.unwrap();
        assert_eq!(share.node().unwrap().address, ServerName::new("node6"));
        // The logon that hangs takes the time of an attempt, and no other node takes as much.
        assert!(took >= Duration::from_secs(10), "{took:?}");
        assert!(took <= Duration::from_secs(15), "{took:?}");
        let dialed = nodes.dialed.lock().clone();
        for bad in 0..6 {
            assert!(dialed.contains(&bad), "{bad} of {dialed:?}");
        }
        // The nodes that have answered were each asked once, before the good one.
        assert!(dialed.iter().filter(|number| **number >= 2).is_sorted(), "{dialed:?}");
        assert_eq!(dialed.iter().filter(|number| **number >= 2).count(), 5, "{dialed:?}");
    });
}

/// As a server that listens on IPv4 alone, whose name has an IPv6 address.
#[test]
fn the_error_of_the_address_that_gets_furthest_is_told() {
    for at in [0, 1] {
        on_paused_clock(async {
            let answer =
                move |number| if number == at { Answer::Accepted } else { Answer::Refused };
            let nodes = two_addresses(answer, |_, asked| match asked.header.command {
                Command::NEGOTIATE => Act::Bytes(b"\0\0\0\x04HTTP".to_vec()),
                _ => Act::Honest,
            });
            let (found, took) = connect(&nodes, Options::new()).await;
            let error = found.unwrap_err();
            assert!(matches!(error.cause(), Cause::NotSmb), "{error}");
            assert!(took <= SPOKEN_WITHIN + Duration::from_millis(100), "{took:?}");
            // The server is asked for an older dialect where it is.
            let of_other = nodes.dialed.lock().iter().filter(|number| **number != at).count();
            assert_eq!((of_other, dialed(&nodes)), (1, 4));

            let nodes = two_addresses(answer, |_, asked| match asked.header.command {
                Command::SESSION_SETUP => Act::Refused(WireStatus::INSUFFICIENT_RESOURCES),
                _ => Act::Honest,
            });
            let (found, _) = connect(&nodes, Options::new()).await;
            let status = Status::from(WireStatus::INSUFFICIENT_RESOURCES);
            assert_eq!(found.unwrap_err().status(), Some(status), "the logon failed");
            assert_eq!(dialed(&nodes), 2);
        });
    }
}

/// A session that was lost does not wait for a server that it cannot use, though nobody listens at the
/// other address.
#[test]
fn a_recovery_ends_at_the_final_error_of_the_server() {
    on_paused_clock(async {
        let is_changed = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let changed = Arc::clone(&is_changed);
        let answer = |number| if number == 0 { Answer::Accepted } else { Answer::Refused };
        let nodes = two_addresses(answer, move |_, asked| match asked.header.command {
            Command::NEGOTIATE if changed.load(Ordering::SeqCst) => {
                Act::Bytes(b"\0\0\0\x04HTTP".to_vec())
            }
            Command::CREATE if changed.load(Ordering::SeqCst) => Act::Close,
            _ => Act::Honest,
        });
        let (found, _) = connect(&nodes, Options::new()).await;
        let share = found.unwrap();
        is_changed.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        let error = in_time("read", share.read("known")).await.unwrap_err();
        assert!(matches!(error.cause(), Cause::NotSmb), "{error}");
        assert!(begun.elapsed() <= Duration::from_secs(1), "{:?}", begun.elapsed());
    });
}

#[test]
fn a_few_addresses_have_the_whole_time_to_connect() {
    for seconds in [2, 10, 30] {
        on_paused_clock(async {
            let limit = Duration::from_secs(seconds);
            let nodes = two_addresses(|_| Answer::Accepted, |_, _| Act::Silence);
            let (found, took) = connect(&nodes, Options::new().connect_timeout(limit)).await;
            let error = found.unwrap_err().to_string();
            let within = format!("(NEGOTIATE) within {seconds} s");
            assert!(error.contains(&within), "{error}");
            assert!(took >= limit && took <= limit + Duration::from_millis(10), "{took:?}");
            assert_eq!(dialed(&nodes), 2);
        });
    }
}

/// Nobody answers at one address; the server at the other one is no reason to wait for it longer.
#[test]
fn an_address_that_never_answers_does_not_hide_the_error_of_the_other() {
    on_paused_clock(async {
        let answer = |number| if number == 0 { Answer::Never } else { Answer::Accepted };
        let nodes = two_addresses(answer, |_, asked| match asked.header.command {
            Command::NEGOTIATE => Act::Bytes(b"\0\0\0\x04HTTP".to_vec()),
            _ => Act::Honest,
        });
        let (found, took) = connect(&nodes, Options::new()).await;
        let error = found.unwrap_err();
        assert!(matches!(error.cause(), Cause::NotSmb), "{error}");
        let most = ADDRESS_DIAL + SPOKEN_WITHIN + Duration::from_millis(100);
        assert!(took <= most, "{took:?}");
    });
}

/// One way to a server may lose large packets, and nodes of a cluster may share their ServerGuid.
#[test]
fn a_server_that_hangs_in_the_logon_is_asked_at_its_other_address() {
    for hanging in [1, 2] {
        on_paused_clock(async {
            let nodes = two_addresses(
                |_| Answer::Accepted,
                move |number, asked| match asked.header.command {
                    Command::SESSION_SETUP if number < hanging => Act::Silence,
                    _ => Act::Honest,
                },
            );
            let (found, took) = connect(&nodes, Options::new()).await;
            if hanging == 1 {
                assert_eq!(found.unwrap().node().unwrap().address, ServerName::new("node1"));
            } else {
                let error = found.unwrap_err().to_string();
                assert!(error.contains("(SESSION_SETUP) within 10 s"), "{error}");
            }
            assert!(took <= Duration::from_secs(21), "{took:?}");
            assert_eq!(nodes.logons.load(Ordering::SeqCst), 2);
        });
    }
}

/// The dialled address is the one that was found, so nothing resolves the name a second time.
#[test]
fn a_name_with_one_address_is_resolved_once() {
    on_paused_clock(async {
        let nodes = nodes(1, |_, _| Act::Honest);
        let (found, _) = connect(&nodes, Options::new()).await;
        // A dial of the name would panic here: only addresses have numbers.
        assert_eq!(*nodes.dialed.lock(), [0]);
        assert_eq!(found.unwrap().node().unwrap().address, ServerName::new("cluster"));
    });
}

/// A wrong password is told to one node: others would count it, too, and lock the account.
#[test]
fn a_refused_user_is_not_tried_at_each_node() {
    on_paused_clock(async {
        let nodes = nodes(3, |_, asked| match asked.header.command {
            Command::SESSION_SETUP => Act::Refused(WireStatus::LOGON_FAILURE),
            _ => Act::Honest,
        });
        let (found, _) = connect(&nodes, Options::new()).await;
        assert!(found.unwrap_err().is_logon_refused());
        assert_eq!(nodes.logons.load(Ordering::SeqCst), 1);
    });
}

/// A node that says it has the share, and cannot prove who it is, is not believed.
#[test]
fn an_answer_without_proof_is_not_believed() {
    on_paused_clock(async {
        let nodes = nodes(3, |_, asked| if is_share(asked) { Act::Bare } else { Act::Honest });
        let (found, took) = connect(&nodes, Options::new()).await;
        assert!(found.is_err());
        assert!(took <= Duration::from_secs(30), "{took:?}");
        // The first logon, and one for each of the attempts that a broken protocol may take.
        assert!(dialed(&nodes) <= 2, "{}", dialed(&nodes));
    });
}

/// Connections that are cut are an error after few attempts, however many nodes there are.
#[test]
fn a_share_whose_connections_are_cut_is_an_error_after_few_attempts() {
    on_paused_clock(async {
        let is_cut = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let cut = Arc::clone(&is_cut);
        let nodes = nodes(16, move |_, asked| match asked.header.command {
            Command::TREE_CONNECT | Command::CREATE if cut.load(Ordering::SeqCst) => Act::Close,
            _ => Act::Honest,
        });
        let (found, _) = connect(&nodes, Options::new()).await;
        let share = found.unwrap();
        is_cut.store(true, Ordering::SeqCst);
        let before = dialed(&nodes);
        let error = in_time("read", share.read("known")).await.unwrap_err();
        assert!(matches!(error.cause(), Cause::Transport(_)), "{error}");
        let attempts = dialed(&nodes) - before;
        assert!(attempts <= usize::try_from(ATTEMPTS).unwrap(), "{attempts}");
    });
}

/// One server with an address of each family, which listens at some of them.
#[derive(Debug)]
struct Families {
    server: Arc<EvilNodes>,
    is_heard: IsHeard,
}

/// True for an address where it listens.
type IsHeard = fn(&str) -> bool;

const V6: &str = "2001:db8::1";
const V4: &str = "192.0.2.1";

impl Dial for Families {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        Box::pin(async move {
            if !(self.is_heard)(&server.host) {
                return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
            }
            self.server.dial(&ServerName::new("node0")).await
        })
    }

    fn addresses<'a>(&'a self, _: &'a ServerName) -> Resolving<'a> {
        Box::pin(std::future::ready(Ok([V6, V4].map(ServerName::new).to_vec())))
    }
}

/// A name of a server with two addresses is that of one server, not that of a cluster.
#[test]
fn an_absent_share_of_one_server_is_an_error_at_once() {
    let listens: [(IsHeard, usize); 3] =
        [(|host| host == V4, 1), (|host| host == V6, 2), (|_| true, 2)];
    for (is_heard, logons) in listens {
        for has_share in [false, true] {
            on_paused_clock(async {
                let server = nodes(1, |_, asked| match is_share(asked) {
                    true if !asked.message.ends_with(b"d\0a\0t\0a\0") => {
                        Act::Refused(WireStatus::BAD_NETWORK_NAME)
                    }
                    _ => Act::Honest,
                });
                let dial = Families { server: Arc::clone(&server), is_heard };
                let client = Client::with_dialer(Options::new(), Arc::new(dial));
                let user = Credentials::new("ann", "secret");
                let session = client.connect("cluster", user).await.unwrap();
                let known =
                    if has_share { Some(session.share("data").await.unwrap()) } else { None };
                let begun = Instant::now();
                for _ in 0..3 {
                    let error = in_time("connect", session.share("nope")).await.unwrap_err();
                    assert_eq!(error.status(), Some(Status::BAD_NETWORK_NAME), "{error}");
                }
                assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
                // The server's second address is asked once, to learn who answers there.
                let count = server.logons.load(Ordering::SeqCst);
                assert!(count <= logons, "{count} logons, {has_share}");
                drop(known);
            });
        }
    }
}

/// A share that was there is looked for as long as a lost server, and no longer.
#[test]
fn a_share_that_vanishes_is_an_error_when_patience_ends() {
    on_paused_clock(async {
        let is_gone = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let gone = Arc::clone(&is_gone);
        let nodes = nodes(3, move |_, asked| match asked.header.command {
            Command::TREE_CONNECT if gone.load(Ordering::SeqCst) => {
                Act::Refused(WireStatus::BAD_NETWORK_NAME)
            }
            Command::CREATE if gone.load(Ordering::SeqCst) => Act::Close,
            _ => Act::Honest,
        });
        let (found, _) = connect(&nodes, Options::new()).await;
        let share = found.unwrap();
        is_gone.store(true, Ordering::SeqCst);
        let (begun, before) = (Instant::now(), dialed(&nodes));
        let error = in_time("read", share.read("known")).await.unwrap_err();
        assert_eq!(error.status(), Some(Status::BAD_NETWORK_NAME), "{error}");
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs(4) && took <= Duration::from_secs(7), "{took:?}");
        assert!(dialed(&nodes) - before <= 80, "{}", dialed(&nodes) - before);
    });
}

/// Says that the share has this capability: MS-SMB2 2.2.10, Capabilities at byte 8 of the body.
fn capable(of: ShareCapabilities) -> Act {
    Act::Changed(Box::new(move |message| message[72] |= of.0 as u8))
}

/// Says that the share is continuously available.
fn continuous() -> Act {
    capable(ShareCapabilities::CONTINUOUS_AVAILABILITY)
}

/// A share that was in use at the one address of a cluster may be there again in a moment. At that of
/// another server it was taken away, and one that was never there is at neither.
#[test]
fn a_share_in_use_is_looked_for_at_the_address_of_a_cluster() {
    let all = [
        (ShareCapabilities::EMPTY, false),
        (ShareCapabilities::DFS, false),
        (ShareCapabilities::SCALEOUT, true),
        (ShareCapabilities::CLUSTER, true),
        (ShareCapabilities::ASYMMETRIC, true),
    ];
    for (capability, is_cluster) in all {
        on_paused_clock(async {
            let is_gone = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let gone = Arc::clone(&is_gone);
            let nodes = nodes(1, move |_, asked| match asked.header.command {
                Command::TREE_CONNECT if gone.load(Ordering::SeqCst) => {
                    Act::Refused(WireStatus::BAD_NETWORK_NAME)
                }
                Command::TREE_CONNECT => capable(capability),
                Command::CREATE if gone.load(Ordering::SeqCst) => Act::Close,
                _ => Act::Honest,
            });
            let (found, _) = connect(&nodes, Options::new()).await;
            let share = found.unwrap();
            is_gone.store(true, Ordering::SeqCst);
            let begun = Instant::now();
            let error = in_time("connect", share.session().share("nope")).await.unwrap_err();
            assert_eq!(error.status(), Some(Status::BAD_NETWORK_NAME), "{error}");
            assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
            let begun = Instant::now();
            let error = in_time("read", share.read("known")).await.unwrap_err();
            assert_eq!(error.status(), Some(Status::BAD_NETWORK_NAME), "{error}");
            let took = begun.elapsed();
            let (least, most) = if is_cluster { (4, 7) } else { (0, 1) };
            assert!(took >= Duration::from_secs(least), "{capability:?}: {took:?}");
            assert!(took <= Duration::from_secs(most), "{capability:?}: {took:?}");
            assert!(dialed(&nodes) <= 4, "{}", dialed(&nodes));
        });
    }
}

/// A node that takes a connection at the moment at which its address leaves it answers nothing.
#[test]
fn a_connection_that_nobody_answers_is_left_soon() {
    on_paused_clock(async {
        let negotiations = AtomicUsize::new(0);
        let nodes = nodes(1, move |_, asked| match asked.header.command {
            Command::NEGOTIATE if negotiations.fetch_add(1, Ordering::SeqCst) == 1 => Act::Silence,
            Command::TREE_CONNECT => continuous(),
            Command::CREATE if negotiations.load(Ordering::SeqCst) == 1 => Act::Close,
            _ => Act::Honest,
        });
        let (found, _) = connect(&nodes, Options::new()).await;
        let begun = Instant::now();
        in_time("read", found.unwrap().read("known")).await.unwrap();
        let took = begun.elapsed();
        assert!(took >= RECONNECT_ANSWER, "{took:?}");
        assert!(took < RECONNECT_ANSWER + Duration::from_millis(500), "{took:?}");
        assert_eq!(dialed(&nodes), 3);
    });
}

/// A node that etcd does not answer ends each connection to its share, and serves it again later.
#[test]
fn a_node_that_is_paused_for_long_is_waited_for() {
    on_paused_clock(async {
        let trees = AtomicUsize::new(0);
        let nodes = nodes(1, move |_, asked| match asked.header.command {
            Command::TREE_CONNECT => match trees.fetch_add(1, Ordering::SeqCst) {
                at if (1..=2 * ATTEMPTS as usize).contains(&at) => Act::Close,
                _ => continuous(),
            },
            Command::CREATE if trees.load(Ordering::SeqCst) == 1 => Act::Close,
            _ => Act::Honest,
        });
        let options = Options::new().recover_for(Duration::from_secs(60));
        let client = Client::with_dialer(options, Arc::clone(&nodes) as Arc<dyn Dial>);
        let session = client.connect("cluster", Credentials::new("ann", "secret")).await.unwrap();
        let share = session.share("data").await.unwrap();
        in_time("read", share.read("known")).await.unwrap();
        assert!(dialed(&nodes) > 2 * ATTEMPTS as usize, "{}", dialed(&nodes));
    });
}

/// The share of one node, whose dials from the second one on are lost as `is_lost` says.
fn with_lost_dials(is_lost: impl Fn(usize) -> bool + Send + Sync + 'static) -> Arc<EvilNodes> {
    let (dials, was_closed) = (AtomicUsize::new(0), std::sync::atomic::AtomicBool::new(false));
    let answer = move |_| match is_lost(dials.fetch_add(1, Ordering::SeqCst)) {
        true => Answer::Never,
        false => Answer::Accepted,
    };
    answering_nodes(1, answer, move |_, asked| match asked.header.command {
        Command::TREE_CONNECT => continuous(),
        Command::CREATE if !was_closed.swap(true, Ordering::SeqCst) => Act::Close,
        _ => Act::Honest,
    })
}

/// While an address is at no node, requests for a connection get lost.
#[test]
fn an_address_that_comes_late_is_dialled_again() {
    on_paused_clock(async {
        let nodes = with_lost_dials(|at| (1..=3).contains(&at));
        let (found, _) = connect(&nodes, Options::new()).await;
        let begun = Instant::now();
        in_time("read", found.unwrap().read("known")).await.unwrap();
        let took = begun.elapsed();
        assert!(took < RECONNECT_DIAL_PAUSE * 6 + Duration::from_millis(200), "{took:?}");
        assert_eq!(dialed(&nodes), 5);
    });
}

#[test]
fn an_address_that_never_comes_is_dialled_a_few_times() {
    on_paused_clock(async {
        let nodes = with_lost_dials(|at| at > 0);
        let (found, _) = connect(&nodes, Options::new()).await;
        let begun = Instant::now();
        in_time("read", found.unwrap().read("known")).await.unwrap_err();
        let took = begun.elapsed();
        assert!(took < CONNECT_TIMEOUT * 2, "{took:?}");
        assert!((RECONNECT_DIALS..=2 * RECONNECT_DIALS + 1).contains(&dialed(&nodes)));
    });
}

/// A server that gives a share away gives up what waits for other clients; it is asked for at the next
/// node, and not for ever.
#[test]
fn a_server_that_gives_all_requests_up_ends_the_attempts() {
    for times in [CANCELLED_MAX, u32::MAX] {
        on_paused_clock(async {
            let creates = AtomicUsize::new(0);
            let nodes = nodes(1, move |_, asked| match asked.header.command {
                Command::CREATE if creates.fetch_add(1, Ordering::SeqCst) < times as usize => {
                    Act::Refused(WireStatus::CANCELLED)
                }
                _ => Act::Honest,
            });
            let (found, _) = connect(&nodes, Options::new()).await;
            let begun = Instant::now();
            let read = in_time("read", found.unwrap().read("known")).await;
            assert!(begun.elapsed() >= CANCELLED_PAUSE * CANCELLED_MAX, "{:?}", begun.elapsed());
            assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
            let status = read.map_err(|error| error.status());
            assert_eq!(status.is_ok(), times == CANCELLED_MAX);
            assert!(status.is_ok() || status == Err(Some(Status::CANCELLED)));
            assert_eq!(dialed(&nodes), 1);
        });
    }
}

/// A CREATE that was refused has made nothing, though the connection is lost before the next one: the file
/// that is there then is that of another client.
#[test]
fn a_create_that_was_refused_leaves_no_doubt() {
    for (status, is_kept) in
        [(WireStatus::FILE_NOT_AVAILABLE, true), (WireStatus::CANCELLED, false)]
    {
        on_paused_clock(async {
            let creates = AtomicUsize::new(0);
            let nodes = nodes(1, move |_, asked| match asked.header.command {
                Command::TREE_CONNECT if is_kept => continuous(),
                Command::CREATE => match creates.fetch_add(1, Ordering::SeqCst) {
                    0 => Act::Refused(status),
                    _ => Act::Refused(WireStatus::OBJECT_NAME_COLLISION),
                },
                Command::ECHO => Act::Close,
                _ => Act::Honest,
            });
            let client = Client::with_dialer(Options::new(), Arc::clone(&nodes) as Arc<dyn Dial>);
            let user = Credentials::new("ann", "secret");
            let session = client.connect("cluster", user).await.unwrap();
            let share = session.share("data").await.unwrap();
            let make = async {
                OpenOptions::new().write(true).create_new(true).open(&share, "known").await
            };
            // The request is repeated after 25 or 50 ms.
            let lose = async {
                tokio::time::sleep(Duration::from_millis(10)).await;
                session.echo().await.unwrap_err();
            };
            let (made, ()) = tokio::join!(in_time("create", make), lose);
            let error = made.unwrap_err();
            assert_eq!(error.status(), Some(Status::OBJECT_NAME_COLLISION), "{error}");
            assert_eq!(dialed(&nodes), 2, "the connection was lost");
        });
    }
}

/// A file that is kept for an absent client is waited for no longer than a lost server, and a request that
/// was refused is no repetition.
#[test]
fn a_file_that_is_kept_for_ever_is_an_error_when_patience_ends() {
    for command in [Command::CREATE, Command::WRITE] {
        on_paused_clock(async {
            let requests = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&requests);
            let nodes = nodes(1, move |_, asked| match asked.header.command {
                Command::TREE_CONNECT => continuous(),
                one if one == command => {
                    assert!(!asked.header.flags.contains(HeaderFlags::REPLAY_OPERATION));
                    counted.fetch_add(1, Ordering::SeqCst);
                    Act::Refused(WireStatus::FILE_NOT_AVAILABLE)
                }
                _ => Act::Honest,
            });
            let (found, _) = connect(&nodes, Options::new()).await;
            let share = found.unwrap();
            let begun = Instant::now();
            let written = in_time("write", async {
                let file = OpenOptions::new().write(true).open(&share, "known").await?;
                file.write_all_at(b"data", 0).await
            });
            let error = written.await.unwrap_err();
            assert_eq!(error.status(), Some(Status::FILE_NOT_AVAILABLE), "{error}");
            let took = begun.elapsed();
            assert!(took >= Duration::from_secs(4), "{took:?}");
            assert!(took <= Duration::from_millis(5_100), "{took:?}");
            assert_eq!(requests.load(Ordering::SeqCst), 8, "{command:?}");
        });
    }
}

/// Only the server knows how far it has come with a pipe, so the question is asked anew in another one.
#[test]
fn a_call_that_the_server_gives_up_is_not_repeated_in_its_pipe() {
    on_paused_clock(async {
        let (pipes, calls) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (opened, called) = (Arc::clone(&pipes), Arc::clone(&calls));
        let nodes = nodes(1, move |_, asked| match asked.header.command {
            Command::CREATE => {
                opened.fetch_add(1, Ordering::SeqCst);
                Act::Honest
            }
            Command::IOCTL => {
                called.fetch_add(1, Ordering::SeqCst);
                Act::Refused(WireStatus::CANCELLED)
            }
            _ => Act::Honest,
        });
        let client = Client::with_dialer(Options::new(), Arc::clone(&nodes) as Arc<dyn Dial>);
        let session = client.connect("cluster", Credentials::new("ann", "secret")).await.unwrap();
        let error = in_time("list", session.shares()).await.unwrap_err();
        assert!(matches!(error.cause(), Cause::Unknown), "{error}");
        let (pipes, calls) = (pipes.load(Ordering::SeqCst), calls.load(Ordering::SeqCst));
        assert!(calls > 0 && calls <= pipes, "{calls} calls in {pipes} pipes");
    });
}

/// A watch that the server gives up at once, again and again, is an error after a while.
#[test]
fn a_watch_that_is_always_given_up_ends() {
    for status in [WireStatus::CANCELLED, WireStatus::NOTIFY_CLEANUP] {
        on_paused_clock(async {
            let requests = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&requests);
            let nodes = nodes(1, move |_, asked| match asked.header.command {
                Command::CHANGE_NOTIFY => {
                    counted.fetch_add(1, Ordering::SeqCst);
                    Act::Refused(status)
                }
                _ => Act::Honest,
            });
            let (found, _) = connect(&nodes, Options::new()).await;
            let share = found.unwrap();
            let mut watch = share.watch("dir", RecursiveMode::NonRecursive).await.unwrap();
            let begun = Instant::now();
            let error = loop {
                match in_time("watch", watch.next_changes()).await {
                    Ok(changes) => assert_eq!(changes, [Change::Missed]),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.status(), Some(Status::from(status)), "{error}");
            let took = begun.elapsed();
            assert!(took >= CANCELLED_PAUSE * CANCELLED_MAX, "{took:?}");
            assert!(took < Duration::from_secs(1), "{took:?}");
            assert_eq!(requests.load(Ordering::SeqCst), CANCELLED_MAX as usize + 1);
        });
    }
}

/// A node that falls silent while it serves a continuously available share is left after a few seconds;
/// another server has more time.
#[test]
fn a_silent_node_is_left_soon() {
    for is_continuous in [true, false] {
        on_paused_clock(async {
            let nodes = nodes(2, move |number, asked| match (number, asked.header.command) {
                (_, Command::TREE_CONNECT) if is_continuous => continuous(),
                (0, Command::CREATE | Command::READ | Command::ECHO) => Act::Silence,
                _ => Act::Honest,
            });
            let (found, _) = connect(&nodes, Options::new()).await;
            let share = found.unwrap();
            assert_eq!(share.node().unwrap().address, ServerName::new("node0"));
            let begun = Instant::now();
            in_time("read", share.read("known")).await.unwrap();
            let took = begun.elapsed();
            let (least, most) = if is_continuous { (3, 6) } else { (11, 14) };
            assert!(took >= Duration::from_secs(least), "{took:?}");
            assert!(took <= Duration::from_secs(most), "{took:?}");
            let node = share.node().unwrap();
            assert_eq!((node.address, node.moves), (ServerName::new("node1"), 1));
        });
    }
}
