//! The table of registrations: who is told what, and when a registration ends.

use crate::WinError;
use crate::limits::*;
use crate::witness::*;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::net::IpAddr;
use core::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const LINE: u64 = 1;

/// The client's wakeups.
type Woken = Arc<Cell<u32>>;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn node(name: &str, addresses: &[&str]) -> ClusterNode {
    let addresses = addresses.iter().map(|text| ip(text)).collect();
    ClusterNode { name: name.to_string(), addresses, is_leaving: false }
}

fn unit(share: &str, owner: Option<&str>, addresses: &[&str]) -> ClusterUnit {
    ClusterUnit {
        name: share.to_string(),
        shares: vec![Arc::from(share)],
        owner: owner.map(ToString::to_string),
        addresses: addresses.iter().map(|text| ip(text)).collect(),
    }
}

/// Three nodes. `n1` has the share `data`, whose clients use its address, and `n2` the share `old`.
fn office() -> ClusterState {
    ClusterState {
        name: "nas".to_string(),
        node: "n2".to_string(),
        nodes: vec![
            node("n1", &["192.0.2.1"]),
            node("n2", &["192.0.2.2", "2001:db8::2"]),
            node("n3", &["192.0.2.3"]),
        ],
        units: vec![unit("data", Some("n1"), &[]), unit("old", Some("n2"), &[])],
    }
}

/// The witness of `n2`, with clients.
struct Witness {
    table: Registrations<Woken>,
    state: ClusterState,
    now: Duration,
    last: u8,
}

fn register() -> Register {
    Register {
        version: Version::V1,
        net_name: Some("nas".to_string()),
        ip_address: Some("192.0.2.1".to_string()),
        client_name: Some("client".to_string()),
    }
}

fn register_ex() -> RegisterEx {
    let Register { net_name, ip_address, client_name, .. } = register();
    RegisterEx {
        version: Version::V2,
        net_name,
        share_name: Some("Data".to_string()),
        ip_address,
        client_name,
        flags: RegisterFlags::EMPTY,
        keep_alive_seconds: 120,
    }
}

impl Witness {
    fn new(state: ClusterState) -> Self {
        let mut table = Registrations::default();
        table.set_cluster(&state, |_: &Woken| panic!("nobody has registered"));
        Self { table, state, now: 100 * SECOND, last: 0 }
    }

    fn try_register(&mut self, wish: impl Into<Wish>) -> Result<(Key, Woken), WinError> {
        let registration = self.table.judge(wish.into())?;
        self.last += 1;
        let place = Registering { key: Key([self.last; 16]), association: LINE, now: self.now };
        let woken = Woken::default();
        self.table.insert(place, registration, Arc::clone(&woken))?;
        Ok((place.key, woken))
    }

    fn register(&mut self, wish: impl Into<Wish>) -> Key {
        self.try_register(wish).expect("registered").0
    }

    /// Tells the witness a change of the cluster.
    fn change(&mut self, change: impl FnOnce(&mut ClusterState)) {
        change(&mut self.state);
        self.table.set_cluster(&self.state, |woken| woken.set(woken.get() + 1));
    }

    /// Begins and asks once.
    fn ask(&mut self, key: Key) -> Asked {
        self.table.begin_notify(key, LINE, self.now).unwrap();
        self.table.ask(key, self.now)
    }

    /// The notification that waits.
    fn told(&mut self, key: Key) -> Option<Notification> {
        match self.ask(key) {
            Asked::Answer(reply) => {
                assert_eq!(reply.status, WinError::SUCCESS);
                reply.notification
            }
            Asked::Wait(_) => {
                self.table.end_notify(key, self.now);
                None
            }
        }
    }
}

fn changed(changes: &[(ResourceState, &str)]) -> Option<Notification> {
    let change = |(state, name): &(ResourceState, &str)| ResourceChange {
        state: *state,
        name: name.to_string(),
    };
    Some(Notification::ResourceChange(changes.iter().map(change).collect()))
}

fn online(addresses: &[&str]) -> Vec<AddressInfo> {
    addresses.iter().map(|text| AddressInfo::of(ip(text), AddressFlags::ONLINE)).collect()
}

const GONE: ResourceState = ResourceState::UNAVAILABLE;
const BACK: ResourceState = ResourceState::AVAILABLE;

#[test]
fn the_list_of_interfaces_names_other_nodes_as_witnesses() {
    let mut table = Registrations::<Woken>::default();
    let nobody = InterfaceListReply { interfaces: Vec::new(), status: WinError::NO_MORE_ITEMS };
    assert_eq!(table.interfaces(), Interfaces::Answer(nobody));
    table.set_cluster(&office(), |_| ());
    let Interfaces::Answer(reply) = table.interfaces() else { panic!("nodes are up") };
    let facts = |reply: &InterfaceListReply| -> Vec<_> {
        let fact = |one: &InterfaceInfo| {
            let is_witness = one.flags.contains(InterfaceFlags::WITNESS);
            (one.group_name.clone(), one.addresses().next().unwrap(), one.state, is_witness)
        };
        reply.interfaces.iter().map(fact).collect()
    };
    let up = InterfaceState::AVAILABLE;
    let row =
        |name: &str, address, state, is_witness| (name.to_string(), ip(address), state, is_witness);
    assert_eq!(
        facts(&reply),
        [
            row("n1", "192.0.2.1", up, true),
            row("n2", "192.0.2.2", up, false),
            row("n2", "2001:db8::2", up, false),
            row("n3", "192.0.2.3", up, true),
        ]
    );
    let mut state = office();
    state.nodes.remove(0);
    table.set_cluster(&state, |_| ());
    let Interfaces::Answer(reply) = table.interfaces() else { panic!("nodes are up") };
    let last = facts(&reply).pop();
    assert_eq!(last, Some(row("n1", "192.0.2.1", InterfaceState::UNAVAILABLE, true)));
    // MS-SWN 3.1.4.1: the call waits while no node is up.
    state.nodes.clear();
    table.set_cluster(&state, |_| ());
    assert_eq!(table.interfaces(), Interfaces::Wait);
}

#[test]
fn registrations_are_judged_as_the_specification_says() {
    let mut witness = Witness::new(office());
    let mut refused = |call: Register| witness.try_register(call).unwrap_err();
    for version in [0, 1, 123_456, u32::MAX, Version::V2.0] {
        // A wrong version goes before everything else.
        let call = Register { version: Version(version), net_name: None, ..register() };
        assert_eq!(refused(call), WinError::REVISION_MISMATCH, "{version:#x}");
    }
    let invalid = WinError::INVALID_PARAMETER;
    assert_eq!(refused(Register { net_name: None, ..register() }), invalid);
    assert_eq!(refused(Register { ip_address: None, ..register() }), invalid);
    assert_eq!(refused(Register { client_name: None, ..register() }), invalid);
    for name in ["", "n1", "nas2", "nas2.example.org", "192.0.2.1", ".", "na", "nas."] {
        let call = Register { net_name: Some(name.to_string()), ..register() };
        assert_eq!(refused(call), invalid, "{name:?}");
    }
    for address in ["", "no address", "192.0.2", "192.0.2.1:445", "0x7f000001"] {
        let call = Register { ip_address: Some(address.to_string()), ..register() };
        assert_eq!(refused(call), invalid, "{address:?}");
    }
    let call = Register { ip_address: Some("192.0.2.77".to_string()), ..register() };
    assert_eq!(refused(call), WinError::INVALID_STATE, "no node has this address");
    let long = Some(alloc::format!("nas.{}", "c".repeat(MAX_WITNESS_NAME - 3)));
    assert_eq!(refused(Register { net_name: long, ..register() }), invalid);
    let name = |bytes: usize| Some("c".repeat(bytes));
    let call = Register { client_name: name(MAX_WITNESS_NAME + 1), ..register() };
    assert_eq!(refused(call), invalid);
    for name in ["NAS", "nas.example.org", "Nas.Example"] {
        witness.register(Register { net_name: Some(name.to_string()), ..register() });
    }
    witness.register(Register { client_name: name(MAX_WITNESS_NAME), ..register() });
    let mapped = Some("::ffff:192.0.2.1".to_string());
    witness.register(Register { ip_address: mapped, ..register() });
    let refused = |witness: &mut Witness, call: RegisterEx| witness.try_register(call).unwrap_err();
    let call = RegisterEx { version: Version::V1, ..register_ex() };
    assert_eq!(refused(&mut witness, call), WinError::REVISION_MISMATCH);
    let share = |name: &str| RegisterEx { share_name: Some(name.to_string()), ..register_ex() };
    for name in ["", "none", "IPC$", "data2"] {
        assert_eq!(refused(&mut witness, share(name)), WinError::INVALID_STATE, "{name:?}");
    }
    witness.register(share("DATA"));
    witness.register(RegisterEx { share_name: None, ..register_ex() });
}

/// MS-SWN 3.1.4.2 and 3.1.4.5: names of shares and addresses count for STYPE_CLUSTER_SOFS only.
#[test]
fn shares_with_addresses_of_their_own_need_no_interface() {
    let mut state = office();
    state.units = vec![unit("data", Some("n1"), &["192.0.2.20"])];
    let mut witness = Witness::new(state);
    let share = |name: &str, address: &str| RegisterEx {
        share_name: Some(name.to_string()),
        ip_address: Some(address.to_string()),
        ..register_ex()
    };
    witness.register(share("other", "192.0.2.99"));
    let key = witness.register(share("data", "192.0.2.20"));
    // The address moves along, so the client is told that it goes and comes.
    witness.change(|state| state.units[0].owner = None);
    assert_eq!(witness.told(key), changed(&[(GONE, "192.0.2.20")]));
    witness.change(|state| state.units[0].owner = Some("n3".to_string()));
    assert_eq!(witness.told(key), changed(&[(BACK, "192.0.2.20")]));
    witness.change(|state| state.units[0].owner = Some("n2".to_string()));
    assert_eq!(witness.told(key), changed(&[(GONE, "192.0.2.20"), (BACK, "192.0.2.20")]));
    assert_eq!(witness.told(key), None);
    state = witness.state.clone();
    state.units.clear();
    let mut witness = Witness::new(state);
    let refused = witness.try_register(share("data", "192.0.2.1")).unwrap_err();
    assert_eq!(refused, WinError::INVALID_STATE, "no share is there");
}

#[test]
fn the_clients_of_a_node_are_told_that_it_has_gone_and_is_back() {
    let mut witness = Witness::new(office());
    let (first, woken) = witness.try_register(register()).unwrap();
    let (second, woken_too) = witness.try_register(register_ex()).unwrap();
    let elsewhere = Register { ip_address: Some("192.0.2.3".to_string()), ..register() };
    let (other, not_woken) = witness.try_register(elsewhere).unwrap();
    assert_eq!(witness.ask(first), Asked::Wait(None), "version 1 waits for ever");
    witness.table.end_notify(first, witness.now);
    let until = witness.now + 120 * SECOND;
    assert_eq!(witness.ask(second), Asked::Wait(Some(until)));
    witness.change(|state| {
        state.nodes.remove(0);
    });
    assert_eq!((woken.get(), woken_too.get(), not_woken.get()), (1, 1, 0));
    let reply = NotifyReply { notification: changed(&[(GONE, "n1")]), status: WinError::SUCCESS };
    assert_eq!(witness.table.ask(second, witness.now), Asked::Answer(reply));
    assert_eq!(witness.told(other), None);
    // A node that has come back before the client asks is told, too: its connection is a new one.
    witness.change(|state| state.nodes.insert(0, node("n1", &["192.0.2.1"])));
    assert_eq!(witness.told(first), changed(&[(GONE, "n1"), (BACK, "n1")]));
    assert_eq!(witness.told(second), changed(&[(BACK, "n1")]));
    assert_eq!(witness.told(first), None);
}

#[test]
fn a_share_that_moves_takes_its_clients_along() {
    let mut witness = Witness::new(office());
    let of_share = witness.register(register_ex());
    let of_other = RegisterEx {
        share_name: Some("old".to_string()),
        ip_address: Some("192.0.2.2".to_string()),
        ..register_ex()
    };
    let of_other = witness.register(of_other);
    let without = witness.register(RegisterEx { share_name: None, ..register_ex() });
    witness.change(|state| state.units[0].owner = None);
    assert_eq!(witness.told(of_share), None, "nobody has the share");
    witness.change(|state| state.units[0].owner = Some("n2".to_string()));
    let to = online(&["192.0.2.2", "2001:db8::2"]);
    assert_eq!(witness.told(of_share), Some(Notification::ShareMove(to.clone())));
    // n1 has nothing more for its clients.
    assert_eq!(witness.told(without), Some(Notification::ClientMove(to)));
    assert_eq!(witness.told(of_other), None);
    // The latest place counts.
    witness.change(|state| state.units[0].owner = Some("n1".to_string()));
    assert_eq!(witness.told(of_share), None, "the client is there");
    witness.change(|state| state.units[0].owner = Some("n2".to_string()));
    witness.change(|state| state.units[0].owner = Some("n3".to_string()));
    let to = online(&["192.0.2.3"]);
    assert_eq!(witness.told(of_share), Some(Notification::ShareMove(to)));
    assert_eq!(witness.told(of_share), None);
}

#[test]
fn the_clients_of_a_node_without_shares_leave_it_when_it_is_drained() {
    let mut state = office();
    state.units.push(unit("more", Some("n1"), &[]));
    let mut witness = Witness::new(state);
    let client = witness.register(register());
    witness.change(|state| state.nodes[0].is_leaving = true);
    assert_eq!(witness.told(client), None, "it has shares");
    witness.change(|state| state.units[0].owner = Some("n2".to_string()));
    assert_eq!(witness.told(client), None, "it has one");
    witness.change(|state| state.units[2].owner = Some("n3".to_string()));
    assert_eq!(witness.told(client), Some(Notification::ClientMove(online(&["192.0.2.3"]))));
    // A node that never had a share.
    let third = Register { ip_address: Some("192.0.2.3".to_string()), ..register() };
    let mut witness = Witness::new(office());
    let client = witness.register(third);
    witness.change(|state| state.nodes[2].is_leaving = true);
    let to = online(&["192.0.2.1", "192.0.2.2", "2001:db8::2"]);
    assert_eq!(witness.told(client), Some(Notification::ClientMove(to)));
    witness.change(|state| state.nodes.truncate(2));
    assert_eq!(witness.told(client), changed(&[(GONE, "n3")]));
}

#[test]
fn addresses_are_told_to_those_who_want_them() {
    let mut witness = Witness::new(office());
    let flags = RegisterFlags::IP_NOTIFICATION;
    let curious = witness.register(RegisterEx { flags, share_name: None, ..register_ex() });
    let other = witness.register(RegisterEx { share_name: None, ..register_ex() });
    witness.change(|state| state.nodes[2].addresses = vec![ip("192.0.2.4")]);
    let told = vec![
        AddressInfo::of(ip("192.0.2.3"), AddressFlags::OFFLINE),
        AddressInfo::of(ip("192.0.2.4"), AddressFlags::ONLINE),
    ];
    assert_eq!(witness.told(curious), Some(Notification::IpChange(told)));
    assert_eq!(witness.told(other), None);
    // Changes that nobody fetches are kept once for each address, and never too many.
    for round in 0..3 * MAX_WITNESS_QUEUED {
        let address = alloc::format!("198.51.100.{round}");
        witness.change(|state| state.nodes[2].addresses = vec![ip(&address)]);
    }
    let Some(Notification::IpChange(told)) = witness.told(curious) else { panic!("told") };
    assert_eq!(told.len(), MAX_WITNESS_QUEUED);
    let last = AddressInfo::of(ip("198.51.100.95"), AddressFlags::ONLINE);
    assert_eq!(told.last(), Some(&last));
}

/// The news come one type after the other, the changes of resources first.
#[test]
fn several_kinds_of_news_are_several_answers() {
    let mut witness = Witness::new(office());
    let flags = RegisterFlags::IP_NOTIFICATION;
    let client = witness.register(RegisterEx { flags, ..register_ex() });
    witness.change(|state| {
        state.nodes.remove(0);
        state.units[0].owner = Some("n3".to_string());
    });
    assert_eq!(witness.told(client), changed(&[(GONE, "n1")]));
    assert_eq!(witness.told(client), Some(Notification::ShareMove(online(&["192.0.2.3"]))));
    let gone = vec![AddressInfo::of(ip("192.0.2.1"), AddressFlags::OFFLINE)];
    assert_eq!(witness.told(client), Some(Notification::IpChange(gone)));
    assert_eq!(witness.told(client), None);
}

/// A client that registers when its node has just gone, or its share has just moved, is told at once.
#[test]
fn a_late_registration_misses_nothing() {
    let mut witness = Witness::new(office());
    witness.change(|state| state.units[0].owner = Some("n3".to_string()));
    let late = witness.register(register_ex());
    assert_eq!(witness.told(late), Some(Notification::ShareMove(online(&["192.0.2.3"]))));
    witness.change(|state| {
        state.nodes.remove(0);
    });
    let late = witness.register(register());
    assert_eq!(witness.told(late), changed(&[(GONE, "n1")]));
    let there = RegisterEx { ip_address: Some("192.0.2.3".to_string()), ..register_ex() };
    let there = witness.register(there);
    assert_eq!(witness.told(there), None);
}

#[test]
fn changes_that_nobody_fetches_are_bounded() {
    let mut witness = Witness::new(office());
    let client = witness.register(register());
    for _ in 0..MAX_WITNESS_QUEUED {
        witness.change(|state| {
            state.nodes.remove(0);
        });
        witness.change(|state| state.nodes.insert(0, node("n1", &["192.0.2.1"])));
    }
    assert_eq!(witness.table.all().next().unwrap().queued, MAX_WITNESS_QUEUED);
    let Some(Notification::ResourceChange(told)) = witness.told(client) else { panic!("told") };
    assert_eq!(told.len(), MAX_WITNESS_QUEUED);
    assert_eq!(told.last().map(|last| last.state), Some(BACK), "the latest are kept");
}

#[test]
fn a_wait_ends_with_its_time() {
    let mut witness = Witness::new(office());
    let key = witness.register(register_ex());
    let until = witness.now + 120 * SECOND;
    assert_eq!(witness.ask(key), Asked::Wait(Some(until)));
    assert_eq!(witness.table.ask(key, until - SECOND), Asked::Wait(Some(until)));
    let timed_out = NotifyReply { notification: None, status: WinError::TIMEOUT };
    assert_eq!(witness.table.ask(key, until), Asked::Answer(timed_out.clone()));
    // The time begins anew with the next call.
    witness.now = until;
    assert_eq!(witness.ask(key), Asked::Wait(Some(until + 120 * SECOND)));
    let at_once = witness.register(RegisterEx { keep_alive_seconds: 0, ..register_ex() });
    assert_eq!(witness.ask(at_once), Asked::Answer(timed_out));
}

#[test]
fn one_call_of_a_registration_waits() {
    let mut witness = Witness::new(office());
    let key = witness.register(register());
    assert_eq!(witness.ask(key), Asked::Wait(None));
    let second = witness.table.begin_notify(key, LINE, witness.now).map(|_| ());
    assert_eq!(second, Err(WinError::NO_SYSTEM_RESOURCES));
    witness.table.end_notify(key, witness.now);
    assert_eq!(witness.ask(key), Asked::Wait(None));
    witness.table.remove(key, LINE).unwrap();
    let not_found = NotifyReply { notification: None, status: WinError::NOT_FOUND };
    assert_eq!(witness.table.ask(key, witness.now), Asked::Answer(not_found));
}

#[test]
fn a_handle_is_good_on_its_association_until_it_ends() {
    let mut witness = Witness::new(office());
    let key = witness.register(register());
    let (table, now) = (&mut witness.table, witness.now);
    for (key, association) in [(key, LINE + 1), (Key([99; 16]), LINE), (Key([0; 16]), LINE)] {
        assert_eq!(table.begin_notify(key, association, now).err(), Some(WinError::NOT_FOUND));
        assert_eq!(table.remove(key, association).err(), Some(WinError::INVALID_PARAMETER));
    }
    assert!(table.remove(key, LINE).is_ok());
    assert_eq!(table.remove(key, LINE).err(), Some(WinError::INVALID_PARAMETER));
    let (first, second) = (witness.register(register()), witness.register(register_ex()));
    assert!(witness.table.remove_all(LINE + 1).is_empty());
    assert_eq!(witness.table.remove_all(LINE).len(), 2);
    for key in [first, second] {
        let begun = witness.table.begin_notify(key, LINE, witness.now);
        assert_eq!(begun.err(), Some(WinError::NOT_FOUND));
    }
}

#[test]
fn registrations_that_nobody_uses_end() {
    let mut witness = Witness::new(office());
    let (unused, waiting) = (witness.register(register_ex()), witness.register(register_ex()));
    witness.ask(waiting);
    assert!(witness.table.expire(witness.now + WITNESS_UNUSED).is_empty());
    let late = witness.now + WITNESS_UNUSED + SECOND;
    assert_eq!(witness.table.expire(late).len(), 1);
    let gone = witness.table.begin_notify(unused, LINE, late);
    assert_eq!(gone.err(), Some(WinError::NOT_FOUND));
    // The time of a call that has ended counts as use.
    witness.table.end_notify(waiting, late);
    assert!(witness.table.expire(late + WITNESS_UNUSED).is_empty());
    assert_eq!(witness.table.expire(late + WITNESS_UNUSED + SECOND).len(), 1);
    assert!(witness.table.is_empty());
}

#[test]
fn all_registrations_are_bounded() {
    let mut witness = Witness::new(office());
    let registration = witness.table.judge(register().into()).unwrap();
    let mut insert = |number: u64| {
        let mut key = [1; 16];
        key[..8].copy_from_slice(&number.to_le_bytes());
        let place = Registering { key: Key(key), association: number, now: SECOND };
        witness.table.insert(place, registration.clone(), Woken::default())
    };
    for number in 0..MAX_WITNESS_REGISTRATIONS as u64 {
        assert_eq!(insert(number), Ok(()), "{number}");
    }
    let one_more = MAX_WITNESS_REGISTRATIONS as u64;
    assert_eq!(insert(one_more), Err(WinError::NO_SYSTEM_RESOURCES));
    assert_eq!(witness.table.len(), MAX_WITNESS_REGISTRATIONS);
    assert_eq!(witness.table.remove_all(7).len(), 1);
    let place = Registering { key: Key([9; 16]), association: LINE, now: SECOND };
    assert!(witness.table.insert(place, registration.clone(), Woken::default()).is_ok());
    // A node that has gone is told to all of them.
    let mut count = 0;
    witness.state.nodes.remove(0);
    let state = witness.state.clone();
    witness.table.set_cluster(&state, |_| count += 1);
    assert_eq!(count, MAX_WITNESS_REGISTRATIONS);
}

/// A node of another name takes the address of one that has gone: its clients hear nothing of the former one.
#[test]
fn a_node_that_was_replaced_is_forgotten() {
    let mut witness = Witness::new(office());
    witness.change(|state| state.nodes[0] = node("n4", &["192.0.2.1"]));
    let late = witness.register(register());
    assert_eq!(witness.told(late), None);
    let Interfaces::Answer(reply) = witness.table.interfaces() else { panic!("nodes are up") };
    let at = |one: &&InterfaceInfo| one.ipv4 == core::net::Ipv4Addr::new(192, 0, 2, 1);
    let states: Vec<_> = reply.interfaces.iter().filter(at).map(|one| one.state).collect();
    assert_eq!(states, [InterfaceState::AVAILABLE]);
}

#[test]
fn nodes_that_have_gone_are_forgotten_when_there_are_too_many() {
    let mut table = Registrations::<Woken>::default();
    let mut state = office();
    for number in 0..MAX_WITNESS_NODES {
        let name = alloc::format!("old{number}");
        state.nodes[0] = node(&name, &["192.0.2.1"]);
        table.set_cluster(&state, |_| ());
        let Interfaces::Answer(reply) = table.interfaces() else { panic!("nodes are up") };
        assert!(reply.interfaces.len() <= MAX_WITNESS_NODES + 1, "{number}");
    }
}

#[test]
fn an_administrator_moves_a_client() {
    let mut witness = Witness::new(office());
    let client = witness.register(register());
    let other = Some("other".to_string());
    let other = witness.register(Register { client_name: other, ..register() });
    assert_eq!(witness.table.move_client("client", "n9", |_| ()), None);
    assert_eq!(witness.table.move_client("nobody", "n3", |_| ()), Some(0));
    let mut woken = 0;
    assert_eq!(witness.table.move_client("CLIENT", "n3", |_| woken += 1), Some(1));
    assert_eq!(woken, 1);
    let told = witness.told(client);
    assert_eq!(told, Some(Notification::ClientMove(online(&["192.0.2.3"]))));
    assert_eq!(witness.told(other), None);
}
