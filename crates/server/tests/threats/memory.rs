//! P1, P2 and R2: what one account can make the server keep. The ledger's limit is the
//! world's own, so that these run beside other tests.

use std::time::Duration;

use frevo_net::buffer::budget;
use frevo_net::limits::SEND_STALL_TIMEOUT;
use frevo_server::internal::limits::{SESSIONS_BEFORE_AUTHENTICATION, SESSIONS_PER_CONNECTION};
use frevo_server::internal::state::Kind;
use frevo_wire::command::change_notify::{ChangeNotifyFlags, CompletionFilter, Request};
use tokio::time::Instant;

use crate::client::files::{read_draft, set_info_draft, write_draft};
use crate::client::logon::Exchange;
use crate::client::*;
use frevo_proto::limits::MESSAGE_WITHOUT_PAYLOAD;
use frevo_wire::command::query_info::InfoType;
use frevo_wire::header::HEADER_LEN;

/// Newcomers are served within this time, also on a busy machine. Without the defence they would
/// wait until the peers that take nothing are given up.
const SOON: Duration = Duration::from_secs(SEND_STALL_TIMEOUT.as_secs() / 4);

/// Returns when the server has come so far.
async fn until(is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < SOON);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A CHANGE_NOTIFY in a message of `length` bytes.
fn long_notify(directory: FileId, length: usize) -> Draft {
    let request = Request {
        flags: ChangeNotifyFlags::EMPTY,
        output_buffer_length: 4096,
        file_id: directory,
        completion_filter: CompletionFilter::FILE_NAME,
    };
    let padding = vec![0; length - HEADER_LEN - 32];
    Draft::new(Command::CHANGE_NOTIFY).with(|w| {
        request.encode(w);
        w.bytes(&padding);
    })
}

#[test]
fn p1_a_message_is_no_longer_than_its_command_and_its_credits_allow() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let directory = peer.open_file(&mount, &Want::directory("d")).await;
        for (length, fits) in [
            (MESSAGE_WITHOUT_PAYLOAD - 1, true),
            (MESSAGE_WITHOUT_PAYLOAD, true),
            (MESSAGE_WITHOUT_PAYLOAD + 1, false),
            (1 << 20, false),
        ] {
            // CHANGE_NOTIFY has no payload, so a larger CreditCharge does not allow a longer
            // message.
            for charge in [1, 32] {
                let draft = long_notify(directory, length).charge(charge);
                let id = peer.send(vec![mount.put(draft)], mount.via()).await[0];
                if fits {
                    peer.interim().await;
                } else {
                    peer.final_reply(id).await.expect(Status::INVALID_PARAMETER);
                }
            }
        }
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let long = set_info_draft(file, InfoType::FILE, 0xFF, 0, &vec![0; 200_000]);
        peer.on(&mount, long.charge(1)).await.expect(Status::INVALID_PARAMETER);
        let data = vec![1; 200_000];
        peer.on(&mount, write_draft(file, 0, &data).charge(4)).await.ok();
        peer.on(&mount, write_draft(file, 0, &data).charge(1))
            .await
            .expect(Status::INVALID_PARAMETER);
    });
}

/// The frame of a request that waits is not kept: 500 of 61 kB took 34 MB.
#[test]
fn r2_a_waiting_request_keeps_what_it_needs_and_no_more() {
    const COUNT: usize = 500;
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let directory = peer.open_file(&mount, &Want::directory("d")).await;
        let ledger = &world.server.ledger;
        let before = ledger.bytes();
        for _ in 0..COUNT {
            let draft = long_notify(directory, 61_000);
            peer.send(vec![mount.put(draft)], mount.via()).await;
            peer.interim().await;
        }
        let ann = ledger.account("ann");
        assert_eq!(ann.count(Kind::Waiting), COUNT);
        let each = (ledger.bytes() - before) / COUNT;
        assert!((1_000..24 << 10).contains(&each), "{each} bytes for each");
        drop(peer);
        while ann.count(Kind::Waiting) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

/// Requests that wait are refused when their account has half the budget with them.
#[test]
fn r2_one_account_cannot_fill_memory_with_requests_that_wait() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let directory = peer.open_file(&mount, &Want::directory("d")).await;
        let ledger = &world.server.ledger;
        const LIMIT: usize = 4 << 20;
        ledger.set_limit(LIMIT);
        let mut refused = 0;
        for _ in 0..900 {
            let draft = long_notify(directory, 96);
            let id = peer.send(vec![mount.put(draft)], mount.via()).await[0];
            let reply = peer.reply().await;
            if !reply.is_interim() {
                assert_eq!(reply.header.message_id, id);
                reply.expect(Status::INSUFFICIENT_RESOURCES);
                refused += 1;
            }
        }
        let ann = ledger.account("ann");
        assert!(
            refused > 0 && ann.bytes() <= LIMIT / 2 + (128 << 10),
            "{refused}, {}",
            ann.bytes()
        );
        let (mut bob, bobs) = world.session("bob", &Offer::default()).await;
        let file = bob.open_file(&bobs, &Want::file("f")).await;
        bob.write(&bobs, file, 0, b"served").await;
        ledger.set_limit(usize::MAX);
    });
}

/// Replies that nobody takes fill the memory, of which others take the last quarter: their holder loses
/// its connections, and newcomers are served meanwhile.
#[test]
fn r2_the_biggest_holder_loses_and_newcomers_are_served() {
    const LIMIT: usize = 16 << 20;
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        world.file("large", vec![7; 4 << 20]);
        let ledger = &world.server.ledger;
        ledger.set_limit(LIMIT);
        let mut hoard = Vec::new();
        peer.expect_alive_in(&mount).await;
        for _ in 0..6 {
            let (mut peer, mount) = world.session("ann", &Offer::default()).await;
            let file = peer.open_file(&mount, &Want::existing("large")).await;
            for _ in 0..4 {
                let read = mount.put(read_draft(file, 0, 4 << 20));
                peer.send(vec![read], mount.via()).await;
            }
            hoard.push(peer);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let ann = ledger.account("ann");
        until(|| ann.bytes() > LIMIT / 4 * 3 - (1 << 20)).await;
        assert_ne!(ledger.fullness(), budget::Fullness::Full, "a quarter is left to others");
        let others = ledger.account("others").charge(Kind::Listing, LIMIT / 2).unwrap();
        assert_eq!(ledger.fullness(), budget::Fullness::Full);
        assert!(ledger.bytes() <= LIMIT + (12 << 20), "{} bytes", ledger.bytes());
        let begin = Instant::now();
        let (mut bob, bobs) = world.session("bob", &Offer::default()).await;
        let file = bob.open_file(&bobs, &Want::existing("large")).await;
        assert_eq!(bob.read(&bobs, file, 0, 1 << 16).await.len(), 1 << 16);
        assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
        while ledger.fullness() == budget::Fullness::Full {
            bob.expect_alive().await;
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
        }
        drop((peer, hoard, others));
        while ann.bytes() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        ledger.set_limit(usize::MAX);
    });
}

/// Frames that are announced and not sent: memory is counted from the first byte on, and
/// the others' go on.
#[test]
fn r2_frames_that_never_end_do_not_keep_others_out() {
    const LIMIT: usize = 32 << 20;
    in_world(async |world| {
        let ledger = &world.server.ledger;
        ledger.set_limit(LIMIT);
        let mut hoard = Vec::new();
        for _ in 0..12 {
            let (peer, _) = world.session("ann", &Offer::default()).await;
            hoard.push(peer);
        }
        for peer in &hoard {
            peer.send_bytes(&(8_u32 << 20).to_be_bytes()).await;
            peer.send_bytes(&[0xFE; 4096]).await;
        }
        until(|| ledger.bytes() >= LIMIT / 2).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(ledger.bytes() <= LIMIT / 4 * 3 + (9 << 20), "{} bytes", ledger.bytes());
        let begin = Instant::now();
        let (mut bob, bobs) = world.session("bob", &Offer::default()).await;
        let file = bob.open_file(&bobs, &Want::file("f")).await;
        bob.write(&bobs, file, 0, &vec![1; 1 << 16]).await;
        assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
        drop(hoard);
        let ann = ledger.account("ann");
        while ann.bytes() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        ledger.set_limit(usize::MAX);
    });
}

/// Exchanges that bind a channel were neither counted nor limited: with 4,096 sessions a client
/// could begin as many on each of its connections.
#[test]
fn a8_bindings_that_are_begun_are_counted_and_limited() {
    in_world(async |world| {
        let mut owners = Vec::new();
        for _ in 0..=SESSIONS_PER_CONNECTION {
            let mut peer = world.connect();
            peer.guid = frevo_wire::dtyp::Guid([0x77; 16]);
            peer.negotiate(&Offer::default()).await;
            let logon = peer.log_on("ann").await;
            owners.push((peer, logon));
        }
        for (logs_on, most) in
            [(false, SESSIONS_BEFORE_AUTHENTICATION), (true, SESSIONS_PER_CONNECTION)]
        {
            let mut peer = world.connect();
            peer.guid = owners[0].0.guid;
            peer.negotiate(&Offer::default()).await;
            if logs_on {
                peer.log_on("ann").await;
            }
            peer.logons.extend(owners.iter().map(|(_, logon)| logon.clone()));
            let before = world.server.ledger.account("ann").bytes();
            for (at, (_, logon)) in owners.iter().take(most + 1).enumerate() {
                let mut exchange = Exchange::new(&peer, Setup::binding("ann", logon));
                let reply = exchange.round(&mut peer).await;
                if at < most {
                    reply.expect(Status::MORE_PROCESSING_REQUIRED);
                } else {
                    reply.expect(Status::INSUFFICIENT_RESOURCES);
                }
            }
            let charged = world.server.ledger.account("ann").bytes() - before;
            assert!(charged >= most * 1_024, "{charged} bytes");
            peer.expect_alive().await;
        }
    });
}
