//! NEGOTIATE: MS-SMB2 3.3.5.3 and 3.3.5.4.

use crate::client::draft::pack;
use crate::client::negotiate::ALL_DIALECTS;
use crate::client::*;
use frevo_server::internal::limits::MAX_TRANSACT;
use frevo_server::settings::{Encryption, Signing};
use frevo_wire::command::negotiate::{self, GlobalCapabilities as Capabilities, SecurityMode};
use frevo_wire::dtyp::Guid;
use frevo_wire::negotiate_context::{Cipher, HashAlgorithm, NegotiateContext, SigningAlgorithm};

#[test]
fn every_dialect_by_itself() {
    in_world(async |world| {
        for dialect in ALL_DIALECTS {
            let mut peer = world.connect();
            let terms = peer.negotiate(&Offer::only(dialect)).await;
            assert_eq!(terms.dialect, dialect);
            let old = dialect == Dialect::SMB_2_0_2;
            assert_eq!(terms.is_multi_credit, !old);
            let (io, transact) = if old { (1 << 16, 1 << 16) } else { (8 << 20, MAX_TRANSACT) };
            assert_eq!((terms.max_read_size, terms.max_write_size), (io, io));
            assert_eq!(terms.max_transact_size, transact);
            let has = |bit| peer.server_capabilities.contains(bit);
            let three = dialect >= Dialect::SMB_3_0;
            assert_eq!(has(Capabilities::MULTI_CHANNEL), three);
            // SMB 3.1.1 negotiates encryption in a negotiate context, so the capability is not set.
            assert_eq!(has(Capabilities::ENCRYPTION), three && dialect != Dialect::SMB_3_1_1);
            assert!(peer.server_mode.contains(SecurityMode::SIGNING_REQUIRED));
            assert_eq!(peer.server_guid, Guid([0xF0; 16]));
            let logon = peer.log_on("ann").await;
            let mount = peer.mount(&logon, "data").await;
            let file = peer.open_file(&mount, &Want::file("f")).await;
            peer.write(&mount, file, 0, b"content").await;
            assert_eq!(peer.read(&mount, file, 0, 100).await, b"content");
            peer.close(&mount, file).await;
        }
    });
}

#[test]
fn the_highest_common_dialect_wins() {
    let settings = Settings { max_dialect: Dialect::SMB_3_0_2, ..settings() };
    in_world_with(
        Settings { max_dialect: Dialect::SMB_3_1_1, ..settings.clone() },
        async |world| {
            for (offered, chosen) in [
                (&[0x0202, 0x0210, 0x0300, 0x0302, 0x0311][..], 0x0311),
                (&[0x0311, 0x0202], 0x0311),
                (&[0x0210, 0x0300], 0x0300),
                (&[0x0202, 0x0202, 0x0202], 0x0202),
                (&[0x0000, 0x0222, 0x0300, 0x0310, 0x0400, 0xFFFF], 0x0300),
            ] {
                let dialects = offered.iter().map(|d| Dialect(*d)).collect();
                let mut peer = world.connect();
                let terms = peer.negotiate(&Offer { dialects, ..Offer::default() }).await;
                assert_eq!(terms.dialect, Dialect(chosen));
            }
        },
    );
    // Other test worlds have an innocent client, which speaks 3.1.1. The server does not allow
    // 3.1.1 here, so this world has no such client.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let world = World::new(settings);
        let mut peer = world.connect();
        assert_eq!(peer.negotiate(&Offer::default()).await.dialect, Dialect::SMB_3_0_2);
    });
}

#[test]
fn below_the_floor_is_not_supported() {
    let defaults = Settings { encryption: Encryption::Offered, ..Settings::default() };
    in_world_with(defaults, async |world| {
        for dialects in [
            vec![Dialect::SMB_2_0_2],
            vec![Dialect::SMB_2_1],
            vec![Dialect::SMB_2_0_2, Dialect::SMB_2_1],
            vec![Dialect(0x0400)],
            vec![Dialect::WILDCARD],
        ] {
            let mut peer = world.connect();
            let offer = Offer { dialects, ..Offer::default() };
            peer.try_negotiate(&offer).await.expect(Status::NOT_SUPPORTED);
            // The refused NEGOTIATE did not end the connection, so an acceptable one succeeds.
            peer.negotiate(&Offer::default()).await;
            peer.log_on("ann").await;
        }
    });
}

/// MS-SMB2 3.3.5.4: a connection negotiates once. A second NEGOTIATE ends it, also one of SMB1,
/// and one that arrives together with the first.
#[test]
fn a_second_negotiation_ends_the_connection() {
    in_world(async |world| {
        for first in [Dialect::SMB_2_0_2, Dialect::SMB_3_1_1] {
            for is_logged_on in [false, true] {
                let mut peer = world.connect();
                peer.negotiate(&Offer::only(first)).await;
                if is_logged_on {
                    peer.log_on("ann").await;
                }
                let mut second = Offer::only(Dialect::SMB_3_0).draft(peer.guid);
                peer.stamp(&mut second);
                peer.send_frame(&pack(&[second], Via::Plain)).await;
                peer.expect_disconnect().await;
            }
            let mut peer = world.connect();
            peer.negotiate(&Offer::only(first)).await;
            peer.send_frame(&smb1(&["SMB 2.???"])).await;
            peer.expect_disconnect().await;
        }
        for second in [Offer::only(Dialect::SMB_3_1_1), Offer::only(Dialect::SMB_2_1)] {
            let mut peer = world.connect();
            let mut frames = Vec::new();
            for offer in [&Offer::default(), &second] {
                let mut draft = offer.draft(peer.guid);
                peer.stamp(&mut draft);
                let message = pack(&[draft], Via::Plain);
                frames.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
                frames.extend(message);
            }
            peer.send_bytes(&frames).await;
            // The client has sent NEGOTIATE twice, which ends the connection, maybe before the
            // first answer arrives.
            let answered = peer.frame().await;
            if let Some(frame) = answered {
                assert_eq!(peer.open(frame)[0].header.message_id, 0);
                peer.expect_disconnect().await;
            }
        }
    });
}

pub(super) fn smb1(dialects: &[&str]) -> Vec<u8> {
    let mut frame = b"\xFFSMB\x72".to_vec();
    frame.resize(33, 0);
    let list: Vec<u8> = dialects.iter().flat_map(|d| [&[2], d.as_bytes(), &[0]].concat()).collect();
    frame.extend_from_slice(&u16::try_from(list.len()).unwrap().to_le_bytes());
    frame.extend_from_slice(&list);
    frame
}

/// MS-SMB2 3.3.5.3.1 and 3.3.5.3.2.
#[test]
fn multi_protocol_negotiation() {
    in_world(async |world| {
        for dialect in &ALL_DIALECTS[1..] {
            let mut peer = world.connect();
            peer.send_frame(&smb1(&["NT LM 0.12", "SMB 2.002", "SMB 2.???"])).await;
            let reply = peer.reply().await;
            let response = negotiate::Response::parse(&reply.ok().message).unwrap();
            assert_eq!(response.dialect_revision, Dialect::WILDCARD);
            assert_eq!((reply.header.message_id, reply.header.credits), (0, 1));
            peer.next_id = 1;
            assert_eq!(peer.negotiate(&Offer::only(*dialect)).await.dialect, *dialect);
            let logon = peer.log_on("ann").await;
            peer.mount(&logon, "data").await;
        }
        let mut peer = world.connect();
        peer.send_frame(&smb1(&["NT LM 0.12", "SMB 2.002"])).await;
        let reply = peer.reply().await;
        let offer = Offer::only(Dialect::SMB_2_0_2);
        peer.take_terms(&offer, &[], &reply);
        assert_eq!(peer.terms().dialect, Dialect::SMB_2_0_2);
        peer.next_id = 1;
        let logon = peer.log_on("ann").await;
        peer.mount(&logon, "data").await;
    });
}

#[test]
fn contexts_of_the_response() {
    in_world(async |world| {
        let mut salts = Vec::new();
        for _ in 0..2 {
            let mut peer = world.connect();
            let draft = Offer::default().draft(peer.guid);
            let reply = peer.ask(draft, Via::Plain).await;
            let response = negotiate::Response::parse(&reply.ok().message).unwrap();
            let [NegotiateContext::PreauthIntegrity { hash_algorithms, salt }, encryption, signing] =
                &response.negotiate_contexts[..]
            else {
                panic!("{response:?}");
            };
            assert_eq!(hash_algorithms, &[HashAlgorithm::SHA_512]);
            assert_eq!(salt.len(), 32);
            salts.push(salt.to_vec());
            // The server chooses by its own order of preference, not by the client's.
            assert_eq!(encryption, &NegotiateContext::Encryption(vec![Cipher::AES_128_GCM]));
            assert_eq!(signing, &NegotiateContext::Signing(vec![SigningAlgorithm::AES_GMAC]));
        }
        assert_ne!(salts[0], salts[1]);
        // The client sends no contexts for encryption and signing, so the answer has only that of
        // preauthentication.
        let mut peer = world.connect();
        let offer = Offer { ciphers: vec![], signing: vec![], ..Offer::default() };
        let reply = peer.ask(offer.draft(peer.guid), Via::Plain).await;
        let response = negotiate::Response::parse(&reply.ok().message).unwrap();
        assert_eq!(response.negotiate_contexts.len(), 1);
        // The client offers only unknown algorithms, so the answer has the value for "none".
        let mut peer = world.connect();
        let offer = Offer { ciphers: vec![0x99], signing: vec![0x99], ..Offer::default() };
        let reply = peer.ask(offer.draft(peer.guid), Via::Plain).await;
        let response = negotiate::Response::parse(&reply.ok().message).unwrap();
        let none = NegotiateContext::Encryption(vec![Cipher::NONE]);
        assert_eq!(response.negotiate_contexts[1], none);
    });
}

#[test]
fn every_cipher_with_every_signature() {
    in_world(async |world| {
        for cipher in 1..=4 {
            for signing in 0..=2 {
                let offer =
                    Offer { ciphers: vec![cipher], signing: vec![signing], ..Offer::default() };
                let (mut peer, mount) = world.session("ann", &offer).await;
                assert_eq!(peer.terms().cipher.unwrap().id(), cipher);
                assert_eq!(peer.terms().signing_algorithm.id(), signing);
                let file = peer.open_file(&mount, &Want::file("f")).await;
                let content: Vec<u8> = (0..100_000_u32).map(|i| i as u8).collect();
                for mount in [mount.clone(), mount.sealed()] {
                    peer.write(&mount, file, 0, &content).await;
                    assert_eq!(peer.read(&mount, file, 0, 1 << 20).await, content);
                }
            }
        }
    });
}

#[test]
fn encryption_can_be_off() {
    let settings = Settings { encryption: Encryption::Off, ..settings() };
    in_world_with(settings, async |world| {
        for dialect in [Dialect::SMB_3_0, Dialect::SMB_3_1_1] {
            let (peer, _) = world.session("ann", &Offer::only(dialect)).await;
            assert_eq!(peer.terms().cipher, None);
        }
    });
}

#[test]
fn signing_is_required_or_offered_as_configured() {
    for (signing, required) in [(Signing::Required, true), (Signing::Offered, false)] {
        in_world_with(Settings { signing, ..settings() }, async |world| {
            let mut peer = world.connect();
            peer.negotiate(&Offer::default()).await;
            assert!(peer.server_mode.contains(SecurityMode::SIGNING_ENABLED));
            assert_eq!(peer.server_mode.contains(SecurityMode::SIGNING_REQUIRED), required);
        });
    }
}

/// A reload is for new connections; those that are there go on as they are.
#[test]
fn settings_are_those_of_the_beginning() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::only(Dialect::SMB_2_1)).await;
        let mut silent = world.connect();
        tokio::task::yield_now().await;
        let strict = Settings { min_dialect: Dialect::SMB_3_1_1, ..settings() };
        let (shares, accounts) = (world.server.shares().as_ref().clone(), world.server.accounts());
        world.server.reload(strict, &shares, accounts);
        peer.open_file(&mount, &Want::file("f")).await;
        // This connection was accepted before the reload, so it keeps the old settings, which allow
        // SMB 2.1.
        let draft = Offer::only(Dialect::SMB_2_1).draft(silent.guid);
        silent.send_frame(&pack(&[draft], Via::Plain)).await;
        silent.reply().await.ok();
        let mut late = world.connect();
        let refused = late.try_negotiate(&Offer::only(Dialect::SMB_3_0)).await;
        refused.expect(Status::NOT_SUPPORTED);
    });
}
