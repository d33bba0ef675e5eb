//! Large messages that other threads verify, unseal, sign or seal: each keeps its place.
//!
//! Where the place of a message matters, the other thread is one that takes a certain time of a clock
//! that is stopped: see [`CryptoPlace::After`].

use std::sync::Arc;
use std::time::Duration;

use frevo_crypto::{Cipher, SigningAlgorithm};
use frevo_posix::{PosixOptions, PosixVfs};
use frevo_server::ambient::{Ambient, CryptoPlace, Host};
use frevo_server::share::Share;
use frevo_wire::command::lock::LockFlags;
use frevo_wire::dtyp::FileTime;
use tokio::time::Instant;

use crate::client::files::{close_draft, data, lock_draft, read_draft, write_draft};
use crate::client::world::{Users, in_own_world, serving};
use crate::client::*;
use crate::protected::{By, Protected, Writes, malform};

/// Every algorithm.
const ALL: [By; 7] = [
    By::Sign(SigningAlgorithm::HmacSha256),
    By::Sign(SigningAlgorithm::AesCmac),
    By::Sign(SigningAlgorithm::AesGmac),
    By::Seal(Cipher::Aes128Ccm),
    By::Seal(Cipher::Aes128Gcm),
    By::Seal(Cipher::Aes256Ccm),
    By::Seal(Cipher::Aes256Gcm),
];

/// One for each way.
const BOTH: [By; 2] = [By::Sign(SigningAlgorithm::AesCmac), By::Seal(Cipher::Aes128Ccm)];

/// The largest payload.
const LARGE: usize = 8 << 20;

/// Bytes of a message that is elsewhere in the tests with a stopped clock.
const LONG: usize = 20_000;

/// Some such messages.
const WRITES: Writes = Writes { count: 4, len: LONG };

/// The time for which it is elsewhere.
const AWAY: Duration = Duration::from_secs(2);

/// The host, but that messages have the place that a function returns for their bytes.
#[derive(Debug)]
pub(crate) struct Placing(pub(crate) fn(usize) -> CryptoPlace);

impl Ambient for Placing {
    fn now(&self) -> FileTime {
        Host.now()
    }

    fn random(&self, bytes: &mut [u8]) {
        Host.random(bytes);
    }

    fn crypto_place(&self, bytes: usize) -> CryptoPlace {
        (self.0)(bytes)
    }
}

/// Runs a test in a world of its own where messages have these places.
fn placing(frozen: bool, place: fn(usize) -> CryptoPlace, test: impl AsyncFnOnce(&World)) {
    let dir = tempfile::tempdir().unwrap();
    let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
    let share = Share::disk("data", Arc::new(vfs));
    let server = serving(settings(), [share], Arc::new(Users), Arc::new(Placing(place)));
    in_own_world(frozen, &World::of(server, dir), test);
}

/// Long messages are elsewhere for a while, of a clock that is stopped.
fn away(test: impl AsyncFnOnce(&World)) {
    let place = |bytes| match bytes {
        LONG.. => CryptoPlace::After(AWAY),
        _ => CryptoPlace::Core,
    };
    placing(true, place, test);
}

/// One request at a time.
impl Protected {
    async fn send(&mut self, draft: Draft) {
        let frame = self.frame(draft);
        self.peer.send_frame(&frame).await;
    }

    async fn ask(&mut self, draft: Draft) -> Reply {
        self.send(draft).await;
        self.peer.reply().await
    }

    async fn send_each(&self, frames: &[Vec<u8>]) {
        for frame in frames {
            self.peer.send_frame(frame).await;
        }
    }
}

/// Lets the server do what it can without a clock.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

fn some_data() -> Vec<u8> {
    (0..LARGE).map(|at| (at % 251) as u8).collect()
}

#[test]
fn the_largest_messages_of_each_algorithm_come_and_go() {
    let large = |bytes| if bytes < LARGE { CryptoPlace::Core } else { CryptoPlace::Thread };
    placing(false, large, async |world| {
        let content = some_data();
        for by in ALL {
            let mut user = Protected::open(world, by).await;
            let before = world.server.messages_elsewhere();
            user.ask(write_draft(user.file, 0, &content)).await.ok();
            assert_eq!(world.server.messages_elsewhere(), before + 1, "{by:?}");
            assert!(world.content("data") == content, "{by:?}");
            let reply = user.ask(read_draft(user.file, 0, LARGE as u32)).await;
            assert_eq!(world.server.messages_elsewhere(), before + 2, "{by:?}");
            assert!(data(reply.ok()) == content, "{by:?}");
            assert_eq!(
                (reply.sealed, reply.is_signed()),
                match by {
                    By::Seal(_) => (true, false),
                    By::Sign(_) => (false, true),
                }
            );
            user.peer.close(&user.mount, user.file).await;
            std::fs::remove_file(world.path("data")).unwrap();
        }
    });
}

/// Without a word of the ambient only what takes long goes.
#[test]
fn what_takes_long_goes_elsewhere_and_nothing_else() {
    let content = some_data();
    for (by, goes) in [
        (By::Sign(SigningAlgorithm::AesCmac), true),
        (By::Seal(Cipher::Aes256Ccm), true),
        (By::Sign(SigningAlgorithm::AesGmac), false),
        (By::Seal(Cipher::Aes256Gcm), false),
    ] {
        in_world(async |world| {
            let mut user = Protected::open(world, by).await;
            let mut other = Protected::open(world, by).await;
            let range = lock_draft(user.file, &[(1 << 40, 1, LockFlags::EXCLUSIVE_LOCK)]);
            let same = lock_draft(other.file, &[(1 << 40, 1, LockFlags::EXCLUSIVE_LOCK)]);
            // Messages of up to this length are always protected on the core thread, never on
            // another thread.
            for len in [4_096, 200_000] {
                user.ask(write_draft(user.file, 0, &content[..len])).await.ok();
                user.ask(read_draft(user.file, 0, len as u32)).await.ok();
            }
            assert_eq!(world.server.messages_elsewhere(), 0, "{by:?}");
            // The user's LOCK waits, so the connection has another request in progress. Then a long
            // message is processed on another thread if `goes` is true.
            other.ask(same).await.ok();
            user.send(range).await;
            user.peer.interim().await;
            user.ask(write_draft(user.file, 0, &content)).await.ok();
            assert_eq!(world.server.messages_elsewhere(), u64::from(goes), "{by:?}");
            assert!(world.content("data") == content, "{by:?}");
        });
    }
}

/// MS-SMB2 3.3.5.2.4: a wrong signature is refused, alone.
#[test]
fn a_wrong_signature_is_refused_alone() {
    away(async |world| {
        for wrong in 0..4 {
            let mut user = Protected::open(world, BOTH[0]).await;
            let mut frames = user.frames_of(WRITES);
            // One bit is changed, in the data or in the Signature, so only this message must be
            // refused.
            frames[wrong][if wrong % 2 == 0 { 5000 } else { 50 }] ^= 1;
            user.send_each(&frames).await;
            user.expect_refused(world, WRITES, wrong).await;
        }
    });
}

/// MS-SMB2 3.3.5.2.1.1: the connection ends at a frame that does not unseal, in its turn.
#[test]
fn a_wrong_tag_ends_the_connection_in_its_turn() {
    away(async |world| {
        for wrong in 0..4 {
            let mut user = Protected::open(world, BOTH[1]).await;
            let mut frames = user.frames_of(WRITES);
            frames[wrong][5000] ^= 1;
            user.send_each(&frames).await;
            user.expect_end_at(world, WRITES, wrong).await;
        }
    });
}

/// Each message of a compound has a signature of its own.
#[test]
fn the_messages_of_a_compound_are_verified_each() {
    away(async |world| {
        for wrong in [None, Some(0), Some(1), Some(2)] {
            let mut user = Protected::open(world, BOTH[0]).await;
            let mut drafts = vec![
                user.mount.put(Draft::echo()),
                user.mount.put(user.write(WRITES, 0)),
                user.mount.put(user.write(WRITES, 1)),
            ];
            drafts.iter_mut().for_each(|draft| user.peer.stamp(draft));
            let mut frame = user.packed(&drafts);
            let begins = [0, 72, frame.len() / 2 + 1_000];
            let mut expected = [Status::SUCCESS; 3];
            if let Some(wrong) = wrong {
                frame[begins[wrong] + 50] ^= 1;
                expected[wrong] = Status::ACCESS_DENIED;
            }
            user.peer.send_frame(&frame).await;
            assert_eq!(user.statuses(3).await, expected, "{wrong:?}");
            user.peer.close(&user.mount, user.file).await;
            std::fs::remove_file(world.path("data")).unwrap();
        }
    });
}

/// A request behind one that is elsewhere begins after it, and has its reply after it.
#[test]
fn nothing_overtakes_on_its_connection() {
    for by in BOTH {
        away(async |world| {
            let mut user = Protected::open(world, by).await;
            let mut expected = Vec::new();
            for draft in [user.write(WRITES, 0), Draft::echo(), close_draft(user.file)] {
                expected.push(user.peer.next_id);
                user.send(draft).await;
            }
            settle().await;
            assert!(world.content("data").is_empty(), "{by:?}: the WRITE has begun");
            let mut order = Vec::new();
            for _ in 0..3 {
                let reply = user.peer.reply().await;
                order.push(reply.ok().header.message_id);
            }
            assert_eq!(order, expected, "{by:?}");
            assert!(WRITES.is_in(&world.content("data"), 0), "{by:?}");
        });
    }
}

/// Replies keep their order, whichever is ready first, and their nonces count up.
#[test]
fn replies_keep_their_order() {
    // The second reply is encrypted by a faster processor, so it is ready before the first one. It
    // must still be sent after the first one.
    let place = |bytes| match bytes {
        0..LONG => CryptoPlace::Core,
        LONG..60_000 => CryptoPlace::After(AWAY),
        _ => CryptoPlace::After(AWAY / 10),
    };
    for by in BOTH {
        placing(true, place, async |world| {
            world.file("data", vec![7; 70_000]);
            let mut user = Protected::open(world, by).await;
            for (len, is_echo) in [(LONG, false), (65_536, false), (0, true), (100, false)] {
                let read = read_draft(user.file, 0, len as u32);
                user.send(if is_echo { Draft::echo() } else { read }).await;
                // The requests arrive one by one (with a pause), so that their replies are not
                // encrypted as a group.
                settle().await;
            }
            let (mut order, mut nonces) = (Vec::new(), Vec::new());
            for _ in 0..4 {
                let frame = user.peer.frame().await.unwrap();
                if matches!(by, By::Seal(_)) {
                    nonces.push(u64::from_le_bytes(frame[20..28].try_into().unwrap()));
                }
                let replies = user.peer.open(frame);
                order.push(replies[0].ok().header.message_id);
            }
            assert!(order.is_sorted(), "{by:?}: {order:?}");
            assert!(nonces.is_sorted_by(|a, b| a < b), "{by:?}: {nonces:?}");
        });
    }
}

/// No core is held: other connections, and others' requests, are served meanwhile.
#[test]
fn other_connections_are_served_meanwhile() {
    for by in BOTH {
        away(async |world| {
            world.file("data", vec![7; LONG]);
            let mut user = Protected::open(world, by).await;
            let mut other = Protected::open(world, by).await;
            for draft in [user.write(WRITES, 0), read_draft(user.file, 0, LONG as u32)] {
                let began = Instant::now();
                user.send(draft).await;
                other.ask(Draft::echo()).await.ok();
                assert_eq!(began.elapsed(), Duration::ZERO, "{by:?}");
                user.peer.reply().await.ok();
                assert!(began.elapsed() >= AWAY, "{by:?}: it was elsewhere");
            }
        });
    }
}

/// The session ends by its other channel while a request and a reply are elsewhere.
#[test]
fn a_session_that_ends_meanwhile_is_gone_when_the_turn_comes() {
    for by in BOTH {
        away(async |world| {
            let mut user = Protected::open(world, by).await;
            let mut second = world.connect();
            second.guid = user.peer.guid;
            second.negotiate(&by.offer()).await;
            let bound = second.try_log_on(Setup::binding("ann", &user.mount.logon)).await.unwrap();
            let logoff = Draft::empty(Command::LOGOFF).session(bound.id);
            user.send(user.write(WRITES, 0)).await;
            settle().await;
            let via = match by {
                By::Sign(_) => Via::Signed(&bound),
                By::Seal(_) => Via::Sealed(&bound),
            };
            second.ask(logoff, via).await.ok();
            match by {
                By::Sign(_) => {
                    let statuses = user.statuses(1).await;
                    assert_eq!(statuses, [Status::USER_SESSION_DELETED]);
                }
                // LOGOFF removed the key, so the reply cannot be encrypted and the server
                // disconnects.
                By::Seal(_) => user.peer.expect_disconnect().await,
            }
            assert!(world.content("data").is_empty(), "{by:?}: it has no effect");
        });
    }
}

/// The requests that came before the end of a connection are carried out, and its memory counts until
/// then.
#[test]
fn a_connection_may_end_meanwhile() {
    for by in BOTH {
        away(async |world| {
            let mut user = Protected::open(world, by).await;
            user.send(user.write(WRITES, 0)).await;
            settle().await;
            let held = world.server.ledger.bytes();
            assert!(held >= LONG, "{by:?}: {held} bytes are charged");
            drop(user);
            world.wind_up().await;
            assert!(WRITES.is_in(&world.content("data"), 0), "{by:?}");
        });
        // The connection ends while another thread protects its reply.
        away(async |world| {
            world.file("data", vec![7; LONG]);
            let mut user = Protected::open(world, by).await;
            user.send(read_draft(user.file, 0, LONG as u32)).await;
            settle().await;
            let held = world.server.ledger.bytes();
            assert!(held >= LONG, "{by:?}: {held} bytes are charged");
        });
    }
}

/// A client that sends without end has few messages elsewhere.
#[test]
fn few_messages_of_a_connection_are_elsewhere() {
    use frevo_server::internal::limits::CRYPTO_LINED_UP;
    let threads = std::thread::available_parallelism().unwrap().get() - 1;
    let most = (threads.max(1) + 1).min(CRYPTO_LINED_UP);
    for by in BOTH {
        away(async |world| {
            let mut user = Protected::open(world, by).await;
            let idle = world.server.ledger.bytes();
            let count = CRYPTO_LINED_UP + 4;
            for at in 0..count {
                user.send(user.write(WRITES, at)).await;
            }
            settle().await;
            let held = world.server.ledger.bytes() - idle;
            // A message needs a buffer of a little more than 64 KiB, and data that is received
            // ahead needs little. So the sum must be in this range.
            let each = (64 << 10) + 4096;
            assert!(held >= most * LONG, "{by:?}: {held} bytes");
            assert!(held <= (most + 1) * each, "{by:?}: {held} bytes of {most} messages");
            let statuses = user.statuses(count).await;
            assert_eq!(statuses, vec![Status::SUCCESS; count], "{by:?}");
            let content = world.content("data");
            assert!((0..count).all(|at| WRITES.is_in(&content, at)), "{by:?}");
        });
    }
}

/// A malformed frame ends the connection in its turn, although its form is looked at before.
#[test]
fn a_malformed_frame_does_not_spoil_those_before_it() {
    for by in BOTH {
        away(async |world| {
            let mut user = Protected::open(world, by).await;
            let writes = Writes { count: 2, ..WRITES };
            let mut frames = user.frames_of(writes);
            malform(&mut frames[1], by);
            user.send_each(&frames).await;
            user.expect_end_at(world, writes, 1).await;
        });
    }
}
