use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tokio::time::advance;

use super::*;

/// An address of a public /24 of its own for each `network`.
fn v4(network: u32, host: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x5000_0000 + (network << 8) + host))
}

/// An address in the /48, /56 and /64 of these numbers.
fn v6(site: u128, customer: u128, subnet: u128, host: u64) -> IpAddr {
    let bits = 0x2001_0DB8 << 96 | site << 80 | customer << 72 | subnet << 64 | u128::from(host);
    IpAddr::V6(Ipv6Addr::from_bits(bits))
}

/// True when the connection was evicted before it had a handle.
fn is_evicted(ticket: &Ticket) -> bool {
    !ticket.all.lock().by_number.contains_key(&ticket.number)
}

fn entered(admission: &Admission, addresses: impl Iterator<Item = IpAddr>) -> Vec<Ticket> {
    addresses.map(|address| admission.enter(address).expect("admitted")).collect()
}

fn survivors(tickets: &[Ticket]) -> usize {
    tickets.iter().filter(|ticket| !is_evicted(ticket)).count()
}

fn count(admission: &Admission) -> usize {
    admission.0.lock().count(Prefix::EVERY)
}

/// The sets say of each other what is so.
fn is_sound(admission: &Admission) {
    let all = admission.0.lock();
    assert_eq!(all.count(Prefix::EVERY), all.by_number.len());
    let mut parts = 0;
    for (prefix, crowd) in &all.crowds {
        assert!(!crowd.members.is_empty() && crowd.members.len() <= most(*prefix));
        for part in &crowd.parts {
            assert_eq!(all.crowds[&part.2].rank(part.2), Some(*part));
        }
        let counts: usize = crowd.parts.iter().map(|part| part.0).sum();
        assert!(crowd.parts.is_empty() || counts == crowd.members.len());
        parts += crowd.parts.len();
    }
    assert_eq!(parts, all.crowds.len().saturating_sub(1));
}

/// Fills a step to one less than `most`, to `most` and beyond it, all at one time, and
/// beyond it once the oldest are no longer spared.
async fn fills_at(most: usize, address: impl Fn(usize) -> IpAddr, elsewhere: IpAddr) {
    let admission = Admission::default();
    let mut tickets = entered(&admission, (0..most - 1).map(&address));
    assert!(!admission.is_full_for(address(most - 1)));
    tickets.push(admission.enter(address(most - 1)).expect("the last place"));
    assert!(admission.is_full_for(address(most)) && !admission.is_full_for(elsewhere));
    assert!(admission.enter(address(most)).is_none(), "all are young");
    let other = admission.enter(elsewhere).expect("another network is not affected");
    is_sound(&admission);
    advance(UNAUTHENTICATED_SPARED - Duration::from_millis(1)).await;
    assert!(admission.enter(address(most)).is_none(), "all are young");
    advance(Duration::from_millis(1)).await;
    let newcomer = admission.enter(address(most)).expect("evicts another");
    assert_eq!(survivors(&tickets), most - 1);
    assert!(!is_evicted(&other) && !is_evicted(&newcomer));
    assert_eq!(count(&admission), most + 1);
    is_sound(&admission);
    // A free place is filled without evicting another connection.
    let gone = tickets.iter().position(|ticket| !is_evicted(ticket)).unwrap();
    tickets.swap_remove(gone);
    let _another = admission.enter(address(most)).expect("a free place");
    assert_eq!(survivors(&tickets), most - 2);
    drop((tickets, other, newcomer, _another));
    assert_eq!(count(&admission), 0);
    assert!(admission.0.lock().crowds.is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_address_gets_its_share_and_no_more() {
    fills_at(UNAUTHENTICATED_PER_ADDRESS, |_| v4(1, 1), v4(1, 2)).await;
    let private = |last| IpAddr::V4(Ipv4Addr::new(192, 168, 1, last));
    fills_at(UNAUTHENTICATED_PER_ADDRESS, |_| private(1), private(2)).await;
    fills_at(UNAUTHENTICATED_PER_ADDRESS, |_| v6(1, 1, 1, 1), v6(1, 1, 2, 1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_network_of_ipv6_counts_as_one_address() {
    let host = |n: usize| v6(1, 1, 1, (n as u64) << 32 | n as u64);
    fills_at(UNAUTHENTICATED_PER_ADDRESS, host, v6(1, 1, 2, 0)).await;
    // IPv4 addresses mapped into IPv6 are in one IPv6 network, but each counts as its own IPv4
    // address. So more of them may connect than a /48 allows.
    let admission = Admission::default();
    let mapped = |n: usize| {
        let IpAddr::V4(v4) = v4(n as u32, 1) else { unreachable!() };
        IpAddr::V6(v4.to_ipv6_mapped())
    };
    let tickets = entered(&admission, (0..=UNAUTHENTICATED_PER_48).map(mapped));
    assert_eq!(survivors(&tickets), UNAUTHENTICATED_PER_48 + 1);
}

#[tokio::test(start_paused = true)]
async fn networks_have_growing_shares() {
    fills_at(UNAUTHENTICATED_PER_24, |n| v4(1, n as u32 % 200), v4(2, 1)).await;
    fills_at(UNAUTHENTICATED_PER_56, |n| v6(1, 1, n as u128, 1), v6(1, 2, 0, 1)).await;
    fills_at(
        UNAUTHENTICATED_PER_48,
        |n| v6(1, n as u128 % 256, n as u128 / 256, n as u64),
        v6(2, 0, 0, 1),
    )
    .await;
    // Many clients may be behind one private /24, so it has no limit of its own.
    let admission = Admission::default();
    let private = |n: usize| IpAddr::V4(Ipv4Addr::new(10, 0, 0, (n % 250) as u8));
    let tickets = entered(&admission, (0..UNAUTHENTICATED_PER_24 * 4).map(private));
    assert_eq!(survivors(&tickets), UNAUTHENTICATED_PER_24 * 4);
}

#[tokio::test(start_paused = true)]
async fn all_addresses_together_are_bounded() {
    // Each address has one connection, and so has the newcomer's. No connection may be evicted for
    // the newcomer before it is UNAUTHENTICATED_SPARED old.
    let admission = Admission::default();
    let mut tickets = entered(&admission, (0..UNAUTHENTICATED as u32 - 1).map(|n| v4(n, 1)));
    tickets.push(admission.enter(v4(50_000, 1)).expect("the last place"));
    assert!(admission.enter(v4(60_000, 1)).is_none(), "all are young");
    advance(UNAUTHENTICATED_SPARED).await;
    for newcomer in 0..10 {
        tickets.push(admission.enter(v4(60_000 + newcomer, 1)).expect("evicts the oldest"));
        let evicted = newcomer as usize + 1;
        assert!(tickets[..evicted].iter().all(is_evicted));
        assert!(!tickets[evicted..].iter().any(is_evicted));
        assert_eq!(count(&admission), UNAUTHENTICATED);
    }
    is_sound(&admission);
    drop(tickets);
    assert!(admission.0.lock().crowds.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_busiest_network_loses_its_oldest() {
    let admission = Admission::default();
    // Most connections of a /48 are in one /56, most of those in one /64, and most of those are
    // from one address (`busy`). The oldest connections of all are from other networks (`alone`).
    let alone = entered(&admission, (0..100).map(|n| v4(n, 1)));
    let calm = entered(&admission, (0..50).map(|n| v6(9, 1, 0, n)));
    advance(Duration::from_secs(5)).await;
    let near = entered(&admission, (0..3).map(|n| v6(9, 2, 1, n)));
    let busy = entered(&admission, (0..10).map(|_| v6(9, 2, 2, 5)));
    let beside = entered(&admission, (0..50).map(|n| v6(9, 2, 2, 10 + n)));
    let rest = UNAUTHENTICATED as u32 - count(&admission) as u32;
    let spread = entered(&admission, (0..rest).map(|n| v4(1_000 + n / 100, n % 100)));
    // All connections are young, but the busiest network is busier than the newcomer's, so a
    // connection of its busiest address is evicted.
    let newcomer = admission.enter(v4(70_000, 1)).expect("admitted");
    assert!(is_evicted(&busy[0]) && !is_evicted(&busy[1]), "{:?}", survivors(&busy));
    let innocent = [&alone, &calm, &near, &beside, &spread];
    assert!(innocent.iter().all(|tickets| survivors(tickets) == tickets.len()));
    assert!(!is_evicted(&newcomer));
    // These newcomers are in the busiest network, so its busiest address loses further connections.
    let _near = entered(&admission, (0..8).map(|host| v6(9, 3, 0, host)));
    assert_eq!(survivors(&busy), 1);
    assert!(innocent.iter().all(|tickets| survivors(tickets) == tickets.len()));
    // Now all addresses of the network have one connection each, so the oldest of these is evicted,
    // because it is not young any more.
    let newest = admission.enter(v6(9, 3, 0, 9)).expect("admitted");
    assert!(is_evicted(&busy[9]), "of 51 addresses with one each");
    assert!(!is_evicted(&newest));
    is_sound(&admission);
}

#[tokio::test(start_paused = true)]
async fn a_flood_evicts_none_but_its_own() {
    let admission = Admission::default();
    let honest = entered(&admission, (0..40).map(|n| v4(n, 7)));
    let neighbour = admission.enter(v4(1_000, 8)).expect("admitted");
    let (mut flood, mut most_held) = (Vec::new(), 0);
    for n in 0..20_000 {
        flood.extend(admission.enter(v4(1_000, 9)));
        most_held = most_held.max(count(&admission));
        if n % 1_000 == 999 {
            advance(Duration::from_millis(300)).await;
            let newcomer = admission.enter(v4(50_000 + n, 1)).expect("admitted");
            assert!(!is_evicted(&newcomer));
        }
    }
    assert_eq!(most_held, 41 + UNAUTHENTICATED_PER_ADDRESS);
    assert_eq!(survivors(&honest), honest.len());
    assert!(!is_evicted(&neighbour), "another address of the same network");
    assert_eq!(survivors(&flood), UNAUTHENTICATED_PER_ADDRESS);
    assert!(flood.len() > UNAUTHENTICATED_PER_ADDRESS * 4, "its newcomers take its places");
    is_sound(&admission);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_many_networks_leaves_newcomers_a_place() {
    let admission = Admission::default();
    let mut flood = Vec::new();
    for site in 0..40 {
        for n in 0..UNAUTHENTICATED_PER_48 as u64 {
            flood.extend(admission.enter(v6(site, u128::from(n % 2), u128::from(n / 32), n)));
        }
    }
    assert_eq!(count(&admission), UNAUTHENTICATED);
    let honest: Vec<_> = (0..64).map(|n| admission.enter(v4(n, 1)).expect("admitted")).collect();
    for site in 0..40 {
        flood.extend(admission.enter(v6(site, 7, 7, 7)));
    }
    assert_eq!(survivors(&honest), honest.len(), "young, and of networks that hold little");
    assert_eq!(count(&admission), UNAUTHENTICATED);
    is_sound(&admission);
}

/// Fault 9: 64 for each of 72 networks of one customer were all that there were.
#[tokio::test(start_paused = true)]
async fn one_customer_of_ipv6_cannot_take_all_places() {
    let admission = Admission::default();
    let address = |n: u64| v6(3, 1, u128::from(n / 64), n);
    let attack: Vec<_> = (0..4_600).filter_map(|n| admission.enter(address(n))).collect();
    assert!(admission.enter(v4(1, 1)).is_some(), "a newcomer of IPv4");
    assert!(admission.enter(v6(3, 2, 0, 1)).is_some(), "a newcomer of the same /48");
    assert_eq!(survivors(&attack), UNAUTHENTICATED_PER_56);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_is_told_before_and_after_there_is_a_handle() {
    let admission = Admission::default();
    let tickets = entered(&admission, (0..UNAUTHENTICATED_PER_ADDRESS).map(|_| v4(1, 1)));
    let (handle, notices) = crate::objects::notice::notices();
    tickets[1].reach_by(handle.clone());
    advance(UNAUTHENTICATED_SPARED).await;
    let _newer = entered(&admission, (0..3).map(|_| v4(1, 1)));
    tickets[0].evicted().await;
    assert!(matches!(notices.try_next(), Some(Notice::Evicted)));
    assert!(notices.try_next().is_none());
    // The connection was evicted before it had a handle, so it gets the notice as soon as it has
    // one.
    tickets[2].reach_by(handle);
    assert!(matches!(notices.try_next(), Some(Notice::Evicted)));
    // The place of an evicted connection is already free; dropping its ticket must not free it
    // again.
    drop(tickets);
    assert_eq!(count(&admission), 3);
    is_sound(&admission);
}
