//! The client and the witness of a cluster: it registers with another node than the one that it uses,
//! leaves a node at once when it is told to, and goes on where it is told; and witnesses that lie.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::dialed;
use crate::witnesses;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dialed::{in_time, on_paused_clock};
use frevo_client::limits::{WITNESS_GRACE, WITNESS_KEEP_ALIVE};
use frevo_client::{Encryption, Options, ServerName, Share};
use frevo_rpc::witness::{
    self, AddressFlags, AddressInfo, HandleReply, InterfaceListReply, Notification, NotifyReply,
    Register, RegisterEx, RegisterFlags, ResourceChange, ResourceState, Version,
};
use frevo_rpc::{AuthLevel, FaultStatus, WinError};
use frevo_wire::command::tree_connect::ShareCapabilities;
use frevo_wire::ndr::ContextHandle;
use tokio::time::{Instant, sleep};
use witnesses::{Cluster, Heard, Said, ip};

fn gone(name: &str) -> Notification {
    let state = ResourceState::UNAVAILABLE;
    Notification::ResourceChange(vec![ResourceChange { state, name: name.into() }])
}

fn at(nodes: &[usize]) -> Vec<AddressInfo> {
    nodes.iter().map(|node| AddressInfo::of(ip(*node), AddressFlags::ONLINE)).collect()
}

fn place(share: &Share) -> ServerName {
    share.node().unwrap().address
}

fn of(node: usize) -> ServerName {
    ServerName::new(ip(node).to_string())
}

async fn use_share(share: &Share) {
    in_time("read", share.read("known")).await.unwrap();
}

/// Waits until so many notifications were heeded.
async fn until_heeded(share: &Share, count: u64) {
    while share.witness().is_none_or(|info| info.heeded < count) {
        sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_session_registers_with_another_node_and_says_what_it_is() {
    for encryption in [Encryption::AsServerAsks, Encryption::Required] {
        on_paused_clock(async {
            let seal = encryption == Encryption::Required;
            let cluster = Cluster::changed(3, |cluster| cluster.seal = seal);
            let options = Options::new().encryption(encryption).workstation("box".into());
            let share = cluster.share(options).await.unwrap();
            let by = cluster.until_registered(0).await;
            assert_ne!(by, 0);
            let level = match encryption {
                Encryption::Required => AuthLevel::PRIVACY,
                _ => AuthLevel::INTEGRITY,
            };
            assert!(cluster.heard.lock().iter().all(|heard| heard.level == level.0));
            let asked = cluster.heard(witness::GET_INTERFACE_LIST);
            assert_eq!(asked.iter().map(|heard| heard.node).collect::<Vec<_>>(), [0]);
            let registered = cluster.heard(witness::REGISTER_EX);
            assert_eq!(registered.len(), 1);
            let some = |text: &str| Some(String::from(text));
            let expected = RegisterEx {
                version: Version::V2,
                net_name: some("cluster"),
                share_name: some("data"),
                ip_address: some("192.0.2.1"),
                client_name: some("box"),
                flags: RegisterFlags::IP_NOTIFICATION,
                keep_alive_seconds: WITNESS_KEEP_ALIVE.as_secs() as u32,
            };
            assert_eq!(RegisterEx::parse(&registered[0].stub), Ok(expected));
            assert_eq!(share.witness().unwrap().address, Some(ip(by)));
            // The session ends, and with it the registration.
            share.log_off().await;
            sleep(Duration::from_millis(10)).await;
            let ended = cluster.heard(witness::UN_REGISTER);
            assert_eq!(ended.iter().map(|heard| heard.node).collect::<Vec<_>>(), [by]);
            assert_eq!(ended[0].stub, [by as u8 + 1; 20]);
        });
    }
}

#[test]
fn a_share_at_all_nodes_is_registered_without_its_name() {
    on_paused_clock(async {
        let cluster = Cluster::changed(2, |cluster| {
            cluster.capabilities =
                ShareCapabilities::CLUSTER | ShareCapabilities::CONTINUOUS_AVAILABILITY;
        });
        let _share = cluster.share(Options::new()).await.unwrap();
        assert_eq!(cluster.until_registered(0).await, 1);
        let registered = &cluster.heard(witness::REGISTER_EX)[0];
        assert_eq!(RegisterEx::parse(&registered.stub).unwrap().share_name, None);
    });
}

/// The node hangs; without a witness its silence is noticed after four seconds.
#[test]
fn a_node_that_a_witness_reports_dead_is_left_at_once() {
    for name in ["NODE0", "cluster", "192.0.2.1"] {
        on_paused_clock(async {
            let cluster = Cluster::new(3);
            let share = cluster.share(Options::new()).await.unwrap();
            let by = cluster.until_registered(0).await;
            cluster.silent.lock().insert(0);
            let reading = tokio::spawn({
                let share = share.clone();
                async move { share.read("known").await }
            });
            sleep(Duration::from_millis(500)).await;
            assert!(!reading.is_finished());
            let new = 3 - by;
            cluster.owner.store(new, Ordering::SeqCst);
            let (begun, before) = (Instant::now(), cluster.heard.lock().len());
            cluster.tell(by, gone(name));
            in_time("read", async { reading.await.unwrap() }).await.unwrap();
            assert!(begun.elapsed() < Duration::from_millis(300), "{:?}", begun.elapsed());
            assert_eq!(place(&share), of(new));
            // The next registration is for the next node, at yet another one.
            assert_eq!(cluster.until_registered(before).await, by, "the third node hangs");
            let again = cluster.heard(witness::REGISTER_EX);
            let last = RegisterEx::parse(&again.last().unwrap().stub).unwrap();
            assert_eq!(last.ip_address, Some(ip(new).to_string()));
            let info = share.witness().unwrap();
            let news = info.last.unwrap();
            assert_eq!((info.heeded, news.by, news.left), (1, ip(by), ip(0)));
            assert!(news.to.is_empty());
        });
    }
}

/// The witness tells of a dead node before another one has its share: the first attempts are too early. The
/// silent node must not take the time of those that follow.
#[test]
fn a_share_that_is_taken_over_after_the_word_of_a_witness_is_found_at_once() {
    for late in [20, 400, 2_500] {
        on_paused_clock(async {
            let cluster = Cluster::new(3);
            let share = cluster.share(Options::new()).await.unwrap();
            let by = cluster.until_registered(0).await;
            cluster.silent.lock().insert(0);
            cluster.owner.store(usize::MAX, Ordering::SeqCst);
            cluster.tell(by, gone("NODE0"));
            let reading = tokio::spawn({
                let share = share.clone();
                async move { share.read("known").await }
            });
            sleep(Duration::from_millis(late)).await;
            cluster.owner.store(by, Ordering::SeqCst);
            let begun = Instant::now();
            in_time("read", async { reading.await.unwrap() }).await.unwrap();
            assert!(begun.elapsed() <= Duration::from_millis(900), "{:?}", begun.elapsed());
            assert_eq!(place(&share), of(by));
        });
    }
}

/// Without a witness, and with a request that the node has said to be working at.
#[test]
fn a_node_that_falls_silent_while_it_works_is_left() {
    on_paused_clock(async {
        let cluster = Cluster::changed(2, |cluster| cluster.has_no_rpc = true);
        let share = cluster.share(Options::new()).await.unwrap();
        use_share(&share).await;
        cluster.slow.lock().insert(0);
        cluster.owner.store(1, Ordering::SeqCst);
        let begun = Instant::now();
        use_share(&share).await;
        assert!(begun.elapsed() <= Duration::from_secs(6), "{:?}", begun.elapsed());
        assert_eq!(place(&share), of(1));
    });
}

/// The name of the cluster leads to two nodes, and the client is told of a third.
#[test]
fn a_client_goes_where_it_is_told() {
    type Told = fn(Vec<AddressInfo>) -> Notification;
    for told in [Notification::ClientMove as Told, Notification::ShareMove] {
        on_paused_clock(async {
            let cluster = Cluster::changed(3, |cluster| cluster.named = 2);
            let share = cluster.share(Options::new()).await.unwrap();
            let by = cluster.until_registered(0).await;
            cluster.owner.store(2, Ordering::SeqCst);
            let begun = Instant::now();
            cluster.tell(by, told(at(&[2])));
            until_heeded(&share, 1).await;
            use_share(&share).await;
            assert!(begun.elapsed() < Duration::from_millis(300), "{:?}", begun.elapsed());
            assert_eq!(place(&share), of(2));
            assert_eq!(cluster.dials.lock().last(), Some(&2));
            assert_eq!(share.witness().unwrap().last.unwrap().to, [ip(2)]);
        });
    }
}

/// The node answers what is under way before it is left.
#[test]
fn requests_under_way_have_their_answers_before_a_move() {
    on_paused_clock(async {
        let cluster = Cluster::new(3);
        let share = cluster.share(Options::new()).await.unwrap();
        let by = cluster.until_registered(0).await;
        cluster.silent.lock().insert(0);
        let reading = tokio::spawn({
            let share = share.clone();
            async move { share.read("known").await }
        });
        sleep(Duration::from_millis(50)).await;
        cluster.owner.store(2, Ordering::SeqCst);
        let begun = Instant::now();
        cluster.tell(by, Notification::ShareMove(at(&[2])));
        // The silent node does not answer: the request is repeated after its time.
        in_time("read", async { reading.await.unwrap() }).await.unwrap();
        assert!(begun.elapsed() >= WITNESS_GRACE - Duration::from_millis(10));
        assert!(begun.elapsed() < WITNESS_GRACE + Duration::from_millis(300));
        assert_eq!(place(&share), of(2));
        // A new request does not wait for it.
        assert!(share.witness().unwrap().heeded == 1);
    });
}

#[test]
fn an_address_that_goes_is_left() {
    on_paused_clock(async {
        let cluster = Cluster::new(3);
        let share = cluster.share(Options::new()).await.unwrap();
        let by = cluster.until_registered(0).await;
        let change = |node, flags| AddressInfo::of(ip(node), flags);
        let other = vec![change(1, AddressFlags::OFFLINE), change(2, AddressFlags::ONLINE)];
        cluster.tell(by, Notification::IpChange(other));
        sleep(Duration::from_millis(50)).await;
        use_share(&share).await;
        assert_eq!((place(&share), share.witness().unwrap().heeded), (of(0), 0));
        cluster.owner.store(2, Ordering::SeqCst);
        let own = vec![change(0, AddressFlags::OFFLINE), change(2, AddressFlags::ONLINE)];
        cluster.tell(by, Notification::IpChange(own));
        sleep(Duration::from_millis(50)).await;
        use_share(&share).await;
        assert_eq!(place(&share), of(2));
    });
}

#[test]
fn a_witness_of_version_1_is_registered_with() {
    on_paused_clock(async {
        for is_told_before in [true, false] {
            let cluster = Cluster::changed(2, |cluster| {
                cluster.behaviour = Box::new(move |cluster, heard: &Heard| {
                    let status = match heard.opnum {
                        witness::REGISTER_EX => WinError::REVISION_MISMATCH,
                        witness::GET_INTERFACE_LIST if is_told_before => {
                            let mut interfaces = cluster.interfaces(heard.node);
                            interfaces.iter_mut().for_each(|one| one.version = Version::V1);
                            let status = WinError::SUCCESS;
                            let reply = InterfaceListReply { interfaces, status };
                            return Some(Said::Answer(reply.encode()));
                        }
                        _ => return None,
                    };
                    let handle = ContextHandle::NULL;
                    Some(Said::Answer(HandleReply { handle, status }.encode()))
                });
            });
            let _share = cluster.share(Options::new()).await.unwrap();
            assert_eq!(cluster.until_registered(0).await, 1);
            let tried = cluster.heard(witness::REGISTER_EX).len();
            assert_eq!(tried, usize::from(!is_told_before));
            let registered = Register::parse(&cluster.heard(witness::REGISTER)[0].stub).unwrap();
            assert_eq!(registered.version, Version::V1);
            assert_eq!(registered.ip_address.as_deref(), Some("192.0.2.1"));
        }
    });
}

/// A witness that ends its connection is replaced; one that has nothing to tell is asked again.
#[test]
fn a_lost_witness_is_replaced() {
    on_paused_clock(async {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let cluster = Cluster::changed(3, |cluster| {
            cluster.behaviour = Box::new(move |_, heard: &Heard| {
                if heard.opnum != witness::ASYNC_NOTIFY {
                    return None;
                }
                match counted.fetch_add(1, Ordering::SeqCst) {
                    0..4 => {
                        let reply = NotifyReply { notification: None, status: WinError::TIMEOUT };
                        Some(Said::Later(Box::pin(async move {
                            sleep(WITNESS_KEEP_ALIVE).await;
                            reply.encode()
                        })))
                    }
                    4 => Some(Said::Close),
                    5 => {
                        let status = WinError::NOT_FOUND;
                        Some(Said::Answer(NotifyReply { notification: None, status }.encode()))
                    }
                    _ => None,
                }
            });
        });
        let share = cluster.share(Options::new()).await.unwrap();
        cluster.until_registered(0).await;
        sleep(WITNESS_KEEP_ALIVE * 4 + Duration::from_secs(10)).await;
        assert_eq!(count.load(Ordering::SeqCst), 7);
        assert_eq!(cluster.heard(witness::REGISTER_EX).len(), 3);
        let by = cluster.heard(witness::ASYNC_NOTIFY).last().unwrap().node;
        cluster.owner.store(3 - by, Ordering::SeqCst);
        cluster.tell(by, gone("NODE0"));
        sleep(Duration::from_millis(50)).await;
        use_share(&share).await;
        assert_eq!(place(&share), of(3 - by));
    });
}

/// The errors of a registration lead to the next interface, MS-SWN 3.2.4.1.
#[test]
fn a_witness_that_refuses_is_passed_over() {
    on_paused_clock(async {
        let cluster = Cluster::changed(9, |cluster| {
            cluster.behaviour = Box::new(|_, heard: &Heard| {
                let (handle, status) = (ContextHandle::NULL, WinError::INVALID_STATE);
                let refused = HandleReply { handle, status };
                match (heard.opnum, heard.node) {
                    (witness::REGISTER_EX, 1..4) => Some(Said::Answer(refused.encode())),
                    (witness::REGISTER_EX, 4) => Some(Said::Fault(FaultStatus::ACCESS_DENIED)),
                    (witness::REGISTER_EX, 5) => Some(Said::Close),
                    (witness::REGISTER_EX, 6) => Some(Said::Silence),
                    (witness::REGISTER_EX, 7) => Some(Said::Answer(vec![1, 2, 3])),
                    _ => None,
                }
            });
        });
        let _share = cluster.share(Options::new()).await.unwrap();
        let registered = async { Ok(cluster.until_registered(0).await) };
        assert_eq!(in_time("register", registered).await.unwrap(), 8);
    });
}
