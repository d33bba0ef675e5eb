//! Credits and the sequence window: MS-SMB2 3.3.1.1, 3.3.1.2, 3.3.5.2.3,
//! 3.3.5.2.5.

use crate::client::draft::pack;
use crate::client::files::{data, lock_draft, read_draft, write_draft};
use crate::client::world::EXCLUSIVE;
use crate::client::*;
use frevo_proto::limits::WINDOW_MAX;
use frevo_wire::command::lock::LockFlags;

#[test]
fn a_client_that_asks_for_nothing_still_has_a_credit() {
    in_world(async |world| {
        for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_3_1_1] {
            let mut peer = world.connect();
            peer.asks = 0;
            peer.negotiate(&Offer::only(dialect)).await;
            for _ in 0..50 {
                peer.expect_alive().await;
                assert_eq!(peer.credits, 1);
            }
            peer.log_on("ann").await;
            assert_eq!(peer.credits, 1);
        }
    });
}

/// smbprotocol asks for 64 with each SESSION_SETUP and counts what it gets.
#[test]
fn a_logon_grants_credits_when_it_succeeds() {
    in_world(async |world| {
        let mut peer = world.connect();
        peer.asks = 1;
        peer.negotiate(&Offer::default()).await;
        peer.asks = 64;
        let wrong = Setup { password: "wrong".to_owned(), ..Setup::of("ann") };
        peer.try_log_on(wrong).await.err().unwrap().expect(Status::LOGON_FAILURE);
        assert_eq!(peer.credits, 1);
        peer.log_on("ann").await;
        assert_eq!(peer.credits, 64);
    });
}

#[test]
fn nobody_holds_more_than_the_window() {
    in_world(async |world| {
        let mut peer = world.connect();
        peer.asks = u16::MAX;
        peer.negotiate(&Offer::default()).await;
        for _ in 0..5 {
            peer.expect_alive().await;
        }
        assert_eq!(peer.credits, u64::from(WINDOW_MAX));
        // A client that asks for one credit in each request keeps its number of credits.
        peer.asks = 1;
        for _ in 0..5 {
            peer.expect_alive().await;
            assert_eq!(peer.credits, u64::from(WINDOW_MAX));
        }
    });
}

/// An ECHO with this MessageId; true when it is answered.
async fn echo(peer: &mut Peer, message_id: u64) -> bool {
    let mut draft = Draft::echo();
    draft.header.message_id = message_id;
    draft.header.credits = 1;
    peer.send_frame(&pack(&[draft], Via::Plain)).await;
    match peer.replies().await {
        Some(replies) => {
            replies[0].ok();
            assert_eq!(replies[0].header.message_id, message_id);
            true
        }
        None => false,
    }
}

#[test]
fn a_number_outside_the_window_disconnects() {
    in_world(async |world| {
        for beyond in [0, 1, 2, 1000, u64::MAX / 2] {
            let mut peer = world.connect();
            peer.asks = 10;
            peer.negotiate(&Offer::default()).await;
            // Ten credits were granted, so the MessageIds 1 to 10 are valid.
            assert_eq!(peer.credits, 10);
            assert!(echo(&mut peer, 9).await, "n - 1");
            assert!(echo(&mut peer, 10).await, "n");
            // Each of the two answers granted one credit, so the MessageIds up to 12 are valid.
            assert!(!echo(&mut peer, 13 + beyond).await, "n + 1");
        }
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        assert!(!echo(&mut peer, u64::MAX).await);
    });
}

#[test]
fn a_number_used_twice_disconnects() {
    in_world(async |world| {
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        for id in [3, 1, 7, 2] {
            assert!(echo(&mut peer, id).await, "any order is fine");
        }
        assert!(!echo(&mut peer, 7).await);
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        assert!(!echo(&mut peer, 0).await, "NEGOTIATE had it");
    });
}

/// A request takes as many numbers as it charges; none of them may be used.
#[test]
fn a_multi_credit_request_takes_all_its_numbers() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        peer.write(&mount, file, 0, &[1; 300_000]).await;
        let id = peer.next_id;
        peer.on(&mount, read_draft(file, 0, 300_000)).await.ok();
        assert_eq!(peer.next_id, id + 5);
        assert!(!{
            let mut draft = mount.put(Draft::echo());
            draft.header.message_id = id + 4;
            peer.send_frame(&pack(&[draft], mount.via())).await;
            peer.frame().await.is_some()
        });
        // The CreditCharge covers one credit more than the client has, so the connection ends.
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let charge = u16::try_from(peer.credits).unwrap() + 1;
        peer.send(vec![mount.put(Draft::echo()).charge(charge)], mount.via()).await;
        peer.expect_disconnect().await;
    });
}

/// MS-SMB2 3.3.5.2.5, at 64 KiB and around it.
#[test]
fn the_charge_must_cover_the_payload() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let bytes = vec![7; 131_073];
        peer.write(&mount, file, 0, &bytes).await;
        for (length, charge, fits) in [
            (65_535, 0, true),
            (65_536, 0, true),
            (65_537, 0, false),
            (65_536, 1, true),
            (65_537, 1, false),
            (65_537, 2, true),
            (131_072, 2, true),
            (131_073, 2, false),
            (131_073, 3, true),
            (1, 7, true),
        ] {
            let expected = if fits { Status::SUCCESS } else { Status::INVALID_PARAMETER };
            let read = read_draft(file, 0, length).charge(charge);
            peer.on(&mount, read).await.expect(expected);
            let write = write_draft(file, 0, &bytes[..length as usize]).charge(charge);
            peer.on(&mount, write).await.expect(expected);
        }
    });
}

/// In 2.0.2 the field means nothing and 64 KiB are the most.
#[test]
fn without_multi_credit_the_charge_is_ignored() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::only(Dialect::SMB_2_0_2)).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let bytes = vec![7; 65_537];
        for charge in [0, 1, 9] {
            let write = write_draft(file, 0, &bytes[..65_536]).charge(charge);
            peer.on(&mount, write).await.ok();
            let read = peer.on(&mount, read_draft(file, 0, 65_536).charge(charge)).await;
            assert_eq!(data(read.ok()).len(), 65_536);
        }
        let read = read_draft(file, 0, 65_537);
        peer.on(&mount, read).await.expect(Status::INVALID_PARAMETER);
        let write = write_draft(file, 0, &bytes);
        peer.on(&mount, write).await.expect(Status::INVALID_PARAMETER);
    });
}

#[test]
fn eight_mebibytes_at_once() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        peer.asks = 512;
        peer.expect_alive_in(&mount).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let content: Vec<u8> = (0..8_u32 << 20).map(|i| (i / 3) as u8).collect();
        for mount in [mount.clone(), mount.clone().sealed()] {
            peer.write(&mount, file, 0, &content).await;
            assert!(world.content("f") == content);
            assert!(peer.read(&mount, file, 0, 8 << 20).await == content);
        }
        // The READ is one byte longer than the limit, so it fails even with enough credits.
        let read = read_draft(file, 0, (8 << 20) + 1).charge(200);
        peer.on(&mount, read).await.expect(Status::INVALID_PARAMETER);
    });
}

/// MS-SMB2 3.3.4.1.2: the interim response grants, the final one does not; and
/// CANCEL takes no number.
#[test]
fn an_interim_response_brings_the_credits() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let holder = peer.open_file(&mount, &Want::file("f")).await;
        let waiter = peer.open_file(&mount, &Want::file("f")).await;
        peer.on(&mount, lock_draft(holder, &[(0, 1, EXCLUSIVE)])).await.ok();
        peer.asks = 3;
        let lock = lock_draft(waiter, &[(0, 1, LockFlags::EXCLUSIVE_LOCK)]);
        let id = peer.send(vec![mount.put(lock)], mount.via()).await[0];
        let interim = peer.interim().await;
        assert_eq!(interim.header.credits, 3);
        assert!(!interim.is_signed());
        let cancel = Peer::cancel(id, Some(peer::async_id(&interim)), mount.logon.id);
        peer.send_frame(&pack(&[cancel], mount.via())).await;
        let end = peer.final_reply(id).await;
        end.expect(Status::CANCELLED);
        assert_eq!(end.header.credits, 0);
        assert_eq!(peer::async_id(&end), peer::async_id(&interim));
        peer.expect_alive_in(&mount).await;
    });
}

/// A client that keeps the window full gets through all of it.
#[test]
fn the_whole_window_can_be_used() {
    in_world(async |world| {
        let mut peer = world.connect();
        peer.asks = u16::MAX;
        peer.negotiate(&Offer::default()).await;
        peer.expect_alive().await;
        peer.asks = 1;
        for _ in 0..3 {
            let count = usize::try_from(peer.credits).unwrap();
            let mut ids = Vec::new();
            for _ in 0..count / 64 {
                ids.extend(peer.send(vec![Draft::echo(); 64], Via::Plain).await);
            }
            peer.collect(&ids).await;
            assert_eq!(peer.credits as usize, count);
        }
    });
}
