//! Addresses on a pair of interfaces of a network namespace.

use std::io::{ErrorKind, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Child;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use frevo_fences::addresses::{Floating, FloatingAddress};
use frevo_fences::hands::{Process, SetUp, UnitSetUp};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};

use crate::{is_inside, run};

const NAMESPACE: &[&str] = &["--net"];

fn network() {
    run("ip link add eth0 address 02:00:00:00:00:17 type veth peer name eth1");
    run("ip link set eth0 up");
    run("ip link set eth1 up");
    run("ip address add 192.0.2.1/24 dev eth0");
    run("ip address add 2001:db8::1/64 dev eth0 nodad");
}

fn addresses() -> [FloatingAddress; 2] {
    ["192.0.2.20/24", "2001:db8::20/64"].map(|text| text.parse().unwrap())
}

fn has(address: &str) -> bool {
    run("ip address show").contains(&format!(" {address}/"))
}

const AT: Duration = Duration::from_secs(100);

fn after(millis: u64) -> Duration {
    AT + Duration::from_millis(millis)
}

#[test]
fn addresses_come_and_go() {
    if !is_inside("addresses::addresses_come_and_go", NAMESPACE) {
        return;
    }
    network();
    let routes = || run("ip -6 route show 2001:db8::/64");
    let before = routes();
    let all = addresses();
    let mut floating = Floating::open(&all).unwrap();
    for address in &all {
        floating.raise(address, AT).unwrap();
        floating.raise(address, AT).unwrap();
        assert!(has(&address.address.to_string()));
    }
    let shown = run("ip -d address show dev eth0");
    let is_tentative = |line: &str| line.contains("2001:") && line.contains("tentative");
    assert!(!shown.lines().any(is_tentative), "the address is used at once: {shown}");
    assert!(shown.matches("deprecated").count() == 2, "{shown}");
    // A host's own connections have its own addresses.
    assert!(run("ip route get 192.0.2.77").contains("src 192.0.2.1 "));
    assert!(run("ip -6 route get 2001:db8::77").contains("src 2001:db8::1 "));
    let listener = TcpListener::bind("[2001:db8::20]:0").unwrap();
    drop(listener);
    floating.lower(all[0].address).unwrap();
    assert!(!has("192.0.2.20") && has("2001:db8::20") && has("192.0.2.1"));
    drop(floating);
    assert!(!has("2001:db8::20") && has("2001:db8::1"));
    assert_eq!(routes(), before, "no route has changed");
}

#[test]
fn after_the_limit_addresses_go_and_come_back_with_a_later_one() {
    if !is_inside(
        "addresses::after_the_limit_addresses_go_and_come_back_with_a_later_one",
        NAMESPACE,
    ) {
        return;
    }
    network();
    let all = addresses();
    let mut floating = Floating::open(&all).unwrap();
    assert_eq!(floating.serve_until(after(1_000), AT), []);
    floating.raise(&all[0], AT).unwrap();
    assert_eq!(floating.tick(after(999)), []);
    assert!(has("192.0.2.20"));
    assert_eq!(floating.tick(after(1_000)), []);
    assert!(!has("192.0.2.20"));
    floating.raise(&all[1], after(1_100)).unwrap();
    assert!(!has("2001:db8::20"), "it waits for the next limit");
    assert_eq!(floating.serve_until(after(3_000), after(1_200)), []);
    assert!(has("192.0.2.20") && has("2001:db8::20"));
    floating.lower(all[0].address).unwrap();
    assert_eq!(floating.tick(after(1_300)), []);
    assert!(!has("192.0.2.20"), "what was lowered stays away");
}

/// Addresses of a process that has ended without a word go by themselves, or with the next process.
#[test]
fn addresses_that_nobody_keeps_go() {
    if !is_inside("addresses::addresses_that_nobody_keeps_go", NAMESPACE) {
        return;
    }
    network();
    let all = addresses();
    let leave = || {
        let mut floating = Floating::open(&all).unwrap();
        all.iter().for_each(|address| floating.raise(address, AT).unwrap());
        std::mem::forget(floating);
    };
    leave();
    assert!(has("192.0.2.20") && has("2001:db8::20"));
    drop(Floating::open(&all).unwrap());
    assert!(!has("192.0.2.20") && !has("2001:db8::20"), "the next process takes them away");
    leave();
    let begin = Instant::now();
    while has("192.0.2.20") || has("2001:db8::20") {
        assert!(begin.elapsed() < Duration::from_secs(10), "{}", run("ip address show"));
        std::thread::sleep(Duration::from_millis(50));
    }
    eprintln!("the kernel took them away after {:?}", begin.elapsed());
    assert!(has("192.0.2.1") && has("2001:db8::1"));
    // One that is kept stays.
    let mut floating = Floating::open(&all).unwrap();
    floating.raise(&all[0], AT).unwrap();
    for _ in 0..25 {
        assert_eq!(floating.tick(AT), []);
        assert!(has("192.0.2.20"));
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Another machine: a namespace of its own, with an interface to this one.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Machine {
    fn begin() -> Self {
        let mut sleep = std::process::Command::new("unshare");
        let this = Self(sleep.args(["--net", "sleep", "60"]).spawn().unwrap());
        std::thread::sleep(Duration::from_millis(200));
        let peer = format!("type veth peer name eth0 netns {}", this.0.id());
        run(&format!("ip link add eth0 address 02:00:00:00:00:17 {peer}"));
        run("ip link set eth0 up");
        run("ip address add 192.0.2.1/24 dev eth0");
        run("ip address add 2001:db8::1/64 dev eth0 nodad");
        this.ip("link set eth0 up");
        this.ip("address add 192.0.2.9/24 dev eth0");
        this.ip("address add 2001:db8::9/64 dev eth0 nodad");
        this
    }

    fn ip(&self, line: &str) -> String {
        run(&format!("nsenter --net=/proc/{}/ns/net ip {line}", self.0.id()))
    }

    /// A connection from there.
    fn connect(&self, host: &str, port: u16) -> TcpStream {
        let place = std::fs::File::open(format!("/proc/{}/ns/net", self.0.id())).unwrap();
        let to = SocketAddr::new(host.parse().unwrap(), port);
        let thread = std::thread::spawn(move || {
            let kind = rustix::thread::LinkNameSpaceType::Network;
            rustix::thread::move_into_link_name_space(place.as_fd(), Some(kind)).unwrap();
            TcpStream::connect_timeout(&to, PATIENCE).unwrap()
        });
        let stream = thread.join().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

/// Longer than anything here takes, and shorter than a kernel waits for the other end of a connection.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for a reset: a connection that is not reset waits for its own time limit.
fn expect_reset(client: &mut TcpStream) {
    let error = client.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

fn is_quiet(client: &mut TcpStream) -> bool {
    client.set_nonblocking(true).unwrap();
    let read = client.read(&mut [0]);
    client.set_nonblocking(false).unwrap();
    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Clients of an address that leaves do not wait for their own time limits.
#[test]
fn connections_are_reset_before_an_address_leaves() {
    if !is_inside("addresses::connections_are_reset_before_an_address_leaves", NAMESPACE) {
        return;
    }
    let other = Machine::begin();
    let all = addresses();
    let mut floating = Floating::open(&all).unwrap();
    assert_eq!(floating.tick(AT), [], "this kernel resets connections");
    all.iter().for_each(|address| floating.raise(address, AT).unwrap());
    let v4 = TcpListener::bind("0.0.0.0:0").unwrap();
    // It takes IPv4 too.
    let both = TcpListener::bind("[::]:0").unwrap();
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    let mut first = other.connect("192.0.2.20", port(&v4));
    let mut mapped = other.connect("192.0.2.20", port(&both));
    let mut of_v6 = other.connect("2001:db8::20", port(&both));
    let mut of_host = other.connect("192.0.2.1", port(&v4));
    let accepted: Vec<_> = [&v4, &both, &both].map(|one| one.accept().unwrap()).into();
    // Nobody has accepted this one.
    let mut late = other.connect("192.0.2.20", port(&v4));
    floating.lower(all[0].address).unwrap();
    assert!(!has("192.0.2.20"));
    for client in [&mut first, &mut mapped, &mut late] {
        expect_reset(client);
    }
    assert!(is_quiet(&mut of_v6) && is_quiet(&mut of_host));
    // After the limit too.
    assert_eq!(floating.serve_until(after(1), after(1)), []);
    expect_reset(&mut of_v6);
    assert!(is_quiet(&mut of_host) && !has("2001:db8::20"));
    drop(accepted);
}

/// The server's sockets are closed late, as by a kernel that is busy.
#[test]
fn connections_are_reset_when_the_server_is_killed() {
    if !is_inside("addresses::connections_are_reset_when_the_server_is_killed", NAMESPACE) {
        return;
    }
    let other = Machine::begin();
    let (ours, process) = hands();
    let mut server = std::process::Command::new("sleep").arg("60").stdin(ours).spawn().unwrap();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    while !has("192.0.2.20") {
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut client = other.connect("192.0.2.20", listener.local_addr().unwrap().port());
    let accepted = listener.accept().unwrap();
    server.kill().unwrap();
    expect_reset(&mut client);
    server.wait().unwrap();
    process.join().unwrap();
    assert!(!has("192.0.2.20") && !has("2001:db8::20"));
    drop(accepted);
}

/// Another machine sends to the new place of an address at once.
#[test]
fn neighbours_learn_the_new_place() {
    if !is_inside("addresses::neighbours_learn_the_new_place", NAMESPACE) {
        return;
    }
    // The other machine knows a third one by the addresses.
    let other = Machine::begin();
    for address in ["192.0.2.20", "2001:db8::20"] {
        other.ip(&format!("neighbour add {address} lladdr 02:00:00:00:00:99 nud stale dev eth0"));
    }
    let neighbours = || other.ip("neighbour show dev eth0");
    assert_eq!(neighbours().matches("02:00:00:00:00:99").count(), 2, "{}", neighbours());
    let all = ["192.0.2.20/24%eth0", "2001:db8::20/64%eth0"].map(|text| text.parse().unwrap());
    let mut floating = Floating::open(&all).unwrap();
    all.iter().for_each(|address: &FloatingAddress| floating.raise(address, AT).unwrap());
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(neighbours().matches("02:00:00:00:00:17").count(), 2, "{}", neighbours());
    assert!(!neighbours().contains("02:00:00:00:00:99"));
}

/// The process with rights, which has raised both addresses when it gets to it, and the server's end.
fn hands() -> (OwnedFd, JoinHandle<()>) {
    let [first, second] = addresses();
    let unit = |name: &str, address| UnitSetUp {
        name: name.into(),
        addresses: vec![address],
        ..UnitSetUp::default()
    };
    let units = vec![unit("first", first), unit("second", second)];
    let set_up = SetUp { endpoints: Vec::new(), units, keys: None };
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    let process = Process::open(set_up, theirs, || AT).unwrap();
    let process = std::thread::spawn(move || process.serve(|fault| panic!("{fault}")));
    for unit in ["first", "second"] {
        let request = format!(r#"{{"id":1,"act":"raise","of":"{unit}"}}"#);
        rustix::net::send(&ours, request.as_bytes(), SendFlags::empty()).unwrap();
    }
    (ours, process)
}

/// The server is killed: its end of the socket closes, and the process with rights takes the addresses away.
#[test]
fn addresses_go_with_a_server_that_is_killed() {
    if !is_inside("addresses::addresses_go_with_a_server_that_is_killed", NAMESPACE) {
        return;
    }
    network();
    let (ours, process) = hands();
    // A program in place of the server has the socket alone.
    let mut server = std::process::Command::new("sleep").arg("60").stdin(ours).spawn().unwrap();
    let both = || has("192.0.2.20") && has("2001:db8::20");
    while !both() {
        std::thread::sleep(Duration::from_millis(10));
    }
    server.kill().unwrap();
    let begin = Instant::now();
    server.wait().unwrap();
    process.join().unwrap();
    eprintln!("the addresses went after {:?}", begin.elapsed());
    assert!(!has("192.0.2.20") && !has("2001:db8::20") && has("192.0.2.1"));
    assert!(begin.elapsed() < PATIENCE);
}

/// The rights of addresses are missing from the start.
#[test]
fn missing_rights_are_told_at_the_start() {
    let namespace =
        ["--net", "setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"];
    if !is_inside("addresses::missing_rights_are_told_at_the_start", &namespace) {
        return;
    }
    let fault = Floating::open(&addresses()).unwrap_err().to_string();
    assert!(fault.starts_with("addresses need the capabilities CAP_NET_ADMIN"), "{fault}");
}

#[test]
fn faults_are_told_in_sentences() {
    if !is_inside("addresses::faults_are_told_in_sentences", NAMESPACE) {
        return;
    }
    network();
    run("ip address add 192.0.2.21/24 dev eth0");
    let address = |text: &str| text.parse::<FloatingAddress>().unwrap();
    let here = "is an address of this machine already; take it out of the network's configuration";
    let fault = Floating::open(&[address("192.0.2.21/24")]).unwrap_err().to_string();
    assert!(fault.contains(here), "{fault}");
    let mut floating = Floating::open(&[]).unwrap();
    for (wanted, words) in [
        ("192.0.2.21/24", here),
        ("198.51.100.1/24", "no interface has an address of this network; name one:"),
        ("198.51.100.1/24%eth7", "there is no interface eth7"),
    ] {
        let fault = floating.raise(&address(wanted), AT).unwrap_err().to_string();
        assert!(fault.contains(words), "{fault}");
    }
    assert!(has("192.0.2.21"));
    floating.raise(&address("198.51.100.1/24%eth0"), AT).unwrap();
    assert!(has("198.51.100.1"));
}
