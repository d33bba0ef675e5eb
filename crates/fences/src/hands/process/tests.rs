//! A server that an attacker has taken over, and an etcd that anybody writes, against the process with rights.

use std::io::{IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::*;
use crate::limits::PACKET_BYTES;

/// Descriptors that a packet passes: more than the process has room for.
const PASSED: usize = 4;

fn process(units: Vec<UnitSetUp>) -> (OwnedFd, JoinHandle<()>) {
    let (ours, theirs) = wire::pair().unwrap();
    let set_up = SetUp { endpoints: Vec::new(), units, keys: None };
    let process = Process::open(set_up, theirs, || Duration::from_secs(1)).unwrap();
    let thread = std::thread::spawn(move || process.serve(|fault| panic!("{fault}")));
    assert_eq!(answer(&ours), Answer { id: 0, end: Ok(String::new()) });
    (ours, thread)
}

fn answer(ours: &OwnedFd) -> Answer {
    let packet = wire::receive(ours.as_fd()).unwrap().unwrap();
    assert!(packet.passed.is_none());
    Answer::parse(&packet.bytes).unwrap()
}

fn send(ours: &OwnedFd, bytes: &[u8], passed: &UnixStream) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let passed = [passed.as_fd(); PASSED];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&passed)));
    sendmsg(ours, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
}

fn ask(ours: &OwnedFd, act: Act) -> Result<String, String> {
    let request = Request { id: 7, act };
    wire::send(ours.as_fd(), &request.to_text(), None).unwrap();
    let answer = answer(ours);
    assert_eq!(answer.id, 7);
    answer.end
}

/// Packets that no server sends: without an answer, without an effect, and without a descriptor that stays.
#[test]
fn nonsense_of_a_server_has_no_effect() {
    let (ours, thread) = process(vec![UnitSetUp { name: "a".into(), ..UnitSetUp::default() }]);
    let (passed, mut kept) = UnixStream::pair().unwrap();
    let long = vec![b'{'; 3 * PACKET_BYTES];
    let deep = "[".repeat(PACKET_BYTES);
    let many = r#"{"id":1,"act":"dial","of":99999999999999999999}"#;
    let mut packets: Vec<Vec<u8>> = [
        deep.as_str(),
        many,
        "\0",
        "null",
        r#"{"id":-1,"act":"look","of":"a"}"#,
        r#"{"id":1,"act":"look","of":["a"]}"#,
        r#"{"id":1,"act":"until","of":1e300}"#,
        r#"{"id":1,"act":"exec","of":"/bin/sh"}"#,
        r#"{"id":1,"act":"look"}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    packets.push(long);
    // Requests with one byte changed, by a generator of Marsaglia's (xorshift).
    let mut state = 0x9E37_79B9_u32;
    for _ in 0..2_000 {
        let mut bytes = Request { id: 3, act: Act::Dial(9) }.to_text().into_bytes();
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        let at = state as usize % bytes.len();
        bytes[at] = (state >> 24) as u8;
        packets.push(bytes);
    }
    for bytes in &packets {
        send(&ours, bytes, &passed);
        // A packet that was changed into another request is answered.
        if let Some(request) = Request::parse(&bytes[..bytes.len().min(PACKET_BYTES)]) {
            let end = Answer { id: request.id, end: Err("there is no such endpoint".into()) };
            assert_eq!(answer(&ours), end);
        }
    }
    assert_eq!(ask(&ours, Act::Look("a".into())), Ok("none".into()));
    drop(passed);
    assert_eq!(kept.read(&mut [0]).unwrap(), 0, "no descriptor has stayed");
    drop(ours);
    thread.join().unwrap();
}

/// Names are looked up in the set-up, and are never paths.
#[test]
fn names_of_units_are_no_paths() {
    let (ours, thread) = process(vec![UnitSetUp {
        name: "a".into(),
        folders: vec!["/proc".into()],
        ..UnitSetUp::default()
    }]);
    for name in ["", "/proc", "a/../a", "A", "a\0", "../a"] {
        for act in [Act::Look(name.into()), Act::Raise(name.into()), Act::Lower(name.into())] {
            let why = ask(&ours, act).unwrap_err();
            assert_eq!(why, format!("{name} is none of the configured shares and groups"));
        }
    }
    drop(ours);
    thread.join().unwrap();
}

/// Identities that etcd can give where each kind of fence is configured. Each is refused before anything of the
/// host is touched, whatever its words name.
#[test]
fn identities_of_a_hostile_etcd_reach_nothing_else() {
    let unit = |kind| UnitSetUp {
        name: Kind::word(kind).into(),
        folders: vec!["/proc".into()],
        kind,
        ..UnitSetUp::default()
    };
    let (ours, thread) = process(Kind::ALL.map(unit).into());
    let long = format!("ceph {}", "é".repeat(200));
    for identity in [
        "ceph --help",
        "ceph 192.0.2.1:0/1 --conf=/tmp/mine",
        "ceph 192.0.2.1:0/1\n",
        "ceph 192.0.2.1:0/-1",
        "ceph $(id)",
        "nfs 1 nas.example.org",
        "nfs 1 ../../../etc",
        "nfs 1 192.0.2.1",
        "scsi-pr 0000000000000001 /dev/sda",
        "scsi-pr 0000000000000001 ../etc/shadow",
        "scsi-pr 1 /dev/sda",
        "fuse 4294967295 ../../../../etc/passwd",
        "fuse 4294967296 119afa99-d96f-4299-a6f5-3f50e2b0fb57",
        "fuse 51 119afa99-d96f-4299-a6f5-000000000000",
        "fuse ../../kernel 119afa99-d96f-4299-a6f5-000000000000",
        "none ",
        "exec /bin/sh",
        long.as_str(),
    ] {
        let why = ask(&ours, Act::Fence(identity.into())).unwrap_err();
        assert!(!why.is_empty(), "{identity}");
    }
    drop(ours);
    thread.join().unwrap();
}
