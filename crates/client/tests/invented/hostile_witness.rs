//! Witnesses that are absent, lie or flood: the client goes on as without one, and asks few times.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::dialed;
use crate::witnesses;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dialed::{in_time, on_paused_clock};
use frevo_client::limits::{
    WITNESS_ADDRESSES, WITNESS_ATTEMPTS, WITNESS_MOVES, WITNESS_NOTIFICATIONS, WITNESS_STEADY,
    WITNESS_WITHIN,
};
use frevo_client::{Options, Referrals, ServerName, Share};
use frevo_rpc::WinError;
use frevo_rpc::witness::{
    self, AddressFlags, AddressInfo, InterfaceInfo, InterfaceListReply, InterfaceState,
    MessageType, Notification, NotifyReply, ResourceChange, ResourceState,
};
use frevo_wire::command::tree_connect::ShareCapabilities;
use tokio::time::{Instant, sleep};
use witnesses::{Cluster, Heard, Said, ip};

const MAPPER: u16 = 135;
/// Time in which all attempts have been made.
const LONG: Duration = Duration::from_secs(600);

async fn use_share(share: &Share) {
    in_time("read", share.read("known")).await.unwrap();
}

fn place(share: &Share) -> ServerName {
    share.node().unwrap().address
}

fn of(node: usize) -> ServerName {
    ServerName::new(ip(node).to_string())
}

fn at(nodes: &[usize]) -> Vec<AddressInfo> {
    nodes.iter().map(|node| AddressInfo::of(ip(*node), AddressFlags::ONLINE)).collect()
}

fn gone(name: &str) -> Notification {
    let state = ResourceState::UNAVAILABLE;
    Notification::ResourceChange(vec![ResourceChange { state, name: name.into() }])
}

/// Connects, waits for a long time, and returns the count of connections for RPC.
async fn asked(cluster: &Arc<Cluster>, options: Options) -> usize {
    let share = cluster.share(options).await.unwrap();
    sleep(LONG).await;
    use_share(&share).await;
    assert_eq!((share.node().unwrap().moves, share.witness()), (0, None));
    cluster.rpc_dials.lock().len()
}

#[test]
fn a_server_without_a_witness_costs_a_few_attempts() {
    on_paused_clock(async {
        // A firewall.
        let cluster = Cluster::changed(3, |cluster| cluster.has_no_rpc = true);
        assert_eq!(asked(&cluster, Options::new()).await, WITNESS_ATTEMPTS as usize);
        assert!(cluster.rpc_dials.lock().iter().all(|dial| *dial == (0, MAPPER)));
        // A cluster of one node.
        let cluster = Cluster::new(1);
        assert_eq!(asked(&cluster, Options::new()).await, 2 * WITNESS_ATTEMPTS as usize);
        // A witness with other passwords is asked once, as more could lock the account.
        let cluster = Cluster::changed(3, |cluster| cluster.password = "other".into());
        assert_eq!(asked(&cluster, Options::new()).await, 2);
        assert!(cluster.heard.lock().is_empty());
    });
}

#[test]
fn nobody_is_asked_who_is_not_to_be() {
    on_paused_clock(async {
        let cluster = Cluster::new(3);
        assert_eq!(asked(&cluster, Options::new().witness(false)).await, 0);
        for capabilities in [
            ShareCapabilities::EMPTY,
            ShareCapabilities::CONTINUOUS_AVAILABILITY,
            ShareCapabilities::CLUSTER | ShareCapabilities::SCALEOUT,
        ] {
            let cluster = Cluster::changed(3, |cluster| cluster.capabilities = capabilities);
            assert_eq!(asked(&cluster, Options::new()).await, 0, "{capabilities:?}");
        }
    });
}

#[test]
fn lists_that_lead_nowhere_are_read_a_few_times() {
    on_paused_clock(async {
        let odd = |address: &str| -> InterfaceInfo {
            let address: IpAddr = address.parse().unwrap();
            InterfaceInfo::of("X", InterfaceState::AVAILABLE, address, true)
        };
        let lists: [Vec<InterfaceInfo>; 3] = [
            Vec::new(),
            ["127.0.0.1", "0.0.0.0", "224.0.0.1", "fe80::1", "::1"].map(odd).into(),
            vec![odd("192.0.2.1")],
        ];
        for list in lists {
            let cluster = Cluster::changed(3, |cluster| {
                let status = WinError::SUCCESS;
                let reply = InterfaceListReply { interfaces: list, status }.encode();
                cluster.behaviour = Box::new(move |_, heard: &Heard| {
                    let is_list = heard.opnum == witness::GET_INTERFACE_LIST;
                    is_list.then(|| Said::Answer(reply.clone()))
                });
            });
            assert_eq!(asked(&cluster, Options::new()).await, 2 * WITNESS_ATTEMPTS as usize);
            assert!(cluster.rpc_dials.lock().iter().all(|(node, _)| *node == 0));
        }
        for status in [WinError::NO_MORE_ITEMS, WinError::ACCESS_DENIED] {
            let cluster = Cluster::changed(3, |cluster| {
                let reply = InterfaceListReply { interfaces: Vec::new(), status }.encode();
                cluster.behaviour = Box::new(move |_, _| Some(Said::Answer(reply.clone())));
            });
            assert_eq!(asked(&cluster, Options::new()).await, 2 * WITNESS_ATTEMPTS as usize);
        }
        // An answer that never comes, and one that is none.
        let cluster =
            Cluster::changed(3, |cluster| cluster.behaviour = Box::new(|_, _| Some(Said::Silence)));
        assert_eq!(asked(&cluster, Options::new()).await, 2 * WITNESS_ATTEMPTS as usize);
        let cluster = Cluster::changed(3, |cluster| {
            cluster.behaviour = Box::new(|_, _| Some(Said::Answer(vec![0xFF; 3_000])));
        });
        assert_eq!(asked(&cluster, Options::new()).await, 2 * WITNESS_ATTEMPTS as usize);
    });
}

#[test]
fn no_witness_sends_a_client_to_a_place_of_its_own_machine() {
    on_paused_clock(async {
        let cluster = Cluster::new(3);
        let share = cluster.share(Options::new()).await.unwrap();
        let by = cluster.until_registered(0).await;
        let odd = ["127.0.0.1", "::1", "0.0.0.0", "255.255.255.255", "224.0.0.1", "fe80::1"];
        let odd = odd.map(|text| AddressInfo::of(text.parse().unwrap(), AddressFlags::ONLINE));
        cluster.tell(by, Notification::ClientMove(odd.into()));
        cluster.tell(by, Notification::ClientMove(Vec::new()));
        cluster.tell(by, Notification::ShareMove(at(&[0])));
        cluster.tell(by, Notification::Other(MessageType(77)));
        cluster.tell(by, gone("another"));
        sleep(Duration::from_millis(100)).await;
        use_share(&share).await;
        assert_eq!((place(&share), share.witness().unwrap().heeded), (of(0), 0));
        assert_eq!(cluster.dials.lock().len(), 1);
    });
}

/// With `--dfs same-host` a client goes to addresses of the server alone, which DNS has.
#[test]
fn a_told_address_is_followed_as_far_as_a_referral_is() {
    for (referrals, goes) in [(Referrals::Anywhere, true), (Referrals::SameHost, false)] {
        on_paused_clock(async {
            let cluster = Cluster::changed(3, |cluster| cluster.named = 2);
            let share = cluster.share(Options::new().referrals(referrals)).await.unwrap();
            let by = cluster.until_registered(0).await;
            cluster.tell(by, Notification::ClientMove(at(&[2])));
            sleep(Duration::from_millis(100)).await;
            assert_eq!(share.witness().unwrap().heeded, u64::from(goes));
            use_share(&share).await;
            // The third node does not have the share.
            assert_eq!((place(&share), cluster.dials.lock().contains(&2)), (of(0), goes));
            // An address of the server is followed in any case.
            sleep(Duration::from_millis(100)).await;
            let by = cluster.heard(witness::ASYNC_NOTIFY).last().unwrap().node;
            cluster.owner.store(1, Ordering::SeqCst);
            cluster.tell(by, Notification::ShareMove(at(&[1])));
            sleep(Duration::from_millis(100)).await;
            use_share(&share).await;
            assert_eq!(place(&share), of(1));
        });
    }
}

#[test]
fn moves_without_end_are_not_made() {
    on_paused_clock(async {
        // Whoever watches tells that the node in use is gone, each time.
        let cluster = Cluster::changed(3, |cluster| {
            cluster.behaviour = Box::new(|_, heard: &Heard| {
                if heard.opnum != witness::ASYNC_NOTIFY {
                    return None;
                }
                let notification = Some(gone("cluster"));
                let reply = NotifyReply { notification, status: WinError::SUCCESS };
                Some(Said::Answer(reply.encode()))
            });
        });
        let share = cluster.share(Options::new()).await.unwrap();
        let begun = Instant::now();
        while begun.elapsed() < WITNESS_WITHIN - Duration::from_secs(1) {
            use_share(&share).await;
            sleep(Duration::from_millis(50)).await;
        }
        let info = share.witness().unwrap();
        assert_eq!(info.heeded, WITNESS_MOVES as u64);
        assert!(cluster.dials.lock().len() <= WITNESS_MOVES * 3 + 3, "{:?}", cluster.dials.lock());
        // The calls are few, too.
        let calls = cluster.heard(witness::ASYNC_NOTIFY).len();
        let most = WITNESS_NOTIFICATIONS + WITNESS_WITHIN.as_secs() as usize;
        assert!(calls <= most, "{calls}");
    });
}

#[test]
fn notifications_of_nothing_keep_nobody_busy() {
    for status in [WinError::SUCCESS, WinError::TIMEOUT] {
        on_paused_clock(async {
            let cluster = Cluster::changed(2, |cluster| {
                let reply = NotifyReply { notification: None, status }.encode();
                cluster.behaviour = Box::new(move |_, heard: &Heard| {
                    let is_it = heard.opnum == witness::ASYNC_NOTIFY;
                    is_it.then(|| Said::Answer(reply.clone()))
                });
            });
            let share = cluster.share(Options::new()).await.unwrap();
            sleep(WITNESS_WITHIN * 4).await;
            let calls = cluster.heard(witness::ASYNC_NOTIFY).len();
            let most = WITNESS_NOTIFICATIONS * 5 + WITNESS_WITHIN.as_secs() as usize * 4;
            assert!((WITNESS_NOTIFICATIONS..=most).contains(&calls), "{calls}");
            use_share(&share).await;
        });
    }
}

#[test]
fn a_registration_that_ends_at_once_is_made_a_few_times() {
    on_paused_clock(async {
        let cluster = Cluster::changed(2, |cluster| {
            cluster.behaviour = Box::new(|_, heard: &Heard| {
                (heard.opnum == witness::ASYNC_NOTIFY).then_some(Said::Close)
            });
        });
        let share = cluster.share(Options::new()).await.unwrap();
        sleep(LONG).await;
        assert_eq!(cluster.heard(witness::REGISTER_EX).len(), WITNESS_ATTEMPTS as usize);
        assert!(share.witness().is_none_or(|info| info.address.is_none()));
    });
}

/// A witness that was there is looked for again, once in a minute.
#[test]
fn a_witness_that_was_there_is_awaited() {
    on_paused_clock(async {
        let cluster = Cluster::changed(2, |cluster| {
            cluster.behaviour = Box::new(|_, heard: &Heard| {
                let closed = async {
                    sleep(WITNESS_STEADY).await;
                    Vec::new()
                };
                (heard.opnum == witness::ASYNC_NOTIFY).then(|| Said::Later(Box::pin(closed)))
            });
        });
        let share = cluster.share(Options::new()).await.unwrap();
        cluster.until_registered(0).await;
        sleep(WITNESS_STEADY + Duration::from_secs(2)).await;
        cluster.silent.lock().insert(1);
        sleep(LONG).await;
        let before = cluster.heard(witness::REGISTER_EX).len();
        cluster.silent.lock().clear();
        sleep(Duration::from_secs(62)).await;
        assert!(cluster.heard(witness::REGISTER_EX).len() > before);
        use_share(&share).await;
    });
}

/// It is not if it refuses the user in the meantime: more attempts could lock the account.
#[test]
fn a_witness_that_was_there_is_not_asked_with_another_password() {
    on_paused_clock(async {
        let cluster = Cluster::changed(2, |cluster| {
            cluster.behaviour = Box::new(|_, heard: &Heard| {
                let closed = async {
                    sleep(WITNESS_STEADY).await;
                    Vec::new()
                };
                (heard.opnum == witness::ASYNC_NOTIFY).then(|| Said::Later(Box::pin(closed)))
            });
        });
        let share = cluster.share(Options::new()).await.unwrap();
        cluster.until_registered(0).await;
        let before = cluster.rpc_dials.lock().len();
        *cluster.password.lock() = "other";
        sleep(LONG).await;
        assert_eq!(cluster.rpc_dials.lock()[before..].len(), 2, "one attempt");
        use_share(&share).await;
    });
}

/// An interface list is believed as far as a referral is: the client logs on at no other host.
#[test]
fn a_told_witness_is_used_as_far_as_a_referral_is() {
    for referrals in [Referrals::SameHost, Referrals::Never] {
        on_paused_clock(async {
            let cluster = Cluster::changed(3, |cluster| cluster.named = 1);
            let count = asked(&cluster, Options::new().referrals(referrals)).await;
            assert_eq!(count, 2 * WITNESS_ATTEMPTS as usize);
            assert!(cluster.rpc_dials.lock().iter().all(|(node, _)| *node == 0));
        });
    }
    on_paused_clock(async {
        let cluster = Cluster::changed(3, |cluster| cluster.named = 1);
        let _share = cluster.share(Options::new()).await.unwrap();
        assert_ne!(cluster.until_registered(0).await, 0);
    });
}

/// A node that is told to be a witness and has none says nothing about the others.
#[test]
fn a_node_that_lacks_the_witness_is_passed_over() {
    on_paused_clock(async {
        let cluster = Cluster::changed(5, |cluster| cluster.bare = [1, 2, 3].into());
        let _share = cluster.share(Options::new()).await.unwrap();
        let registered = async { Ok(cluster.until_registered(0).await) };
        assert_eq!(in_time("register", registered).await.unwrap(), 4);
        assert_eq!(cluster.heard(witness::GET_INTERFACE_LIST).len(), 1);
    });
}

/// The first addresses are tried, and a session is at one of those that it knew before if none of them
/// leads to the share.
#[test]
fn a_thousand_told_addresses_cost_a_bounded_time() {
    on_paused_clock(async {
        let cluster = Cluster::new(3);
        let share = cluster.share(Options::new()).await.unwrap();
        let by = cluster.until_registered(0).await;
        let many = (0..1_000u32).map(|at| IpAddr::V4((0x0a00_0000 + at).into()));
        let many = many.map(|ip| AddressInfo::of(ip, AddressFlags::ONLINE)).collect();
        cluster.tell(by, Notification::ClientMove(many));
        sleep(Duration::from_millis(50)).await;
        let begun = Instant::now();
        use_share(&share).await;
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert_eq!(place(&share), of(0));
        assert_eq!(share.witness().unwrap().last.unwrap().to.len(), WITNESS_ADDRESSES);
    });
}
