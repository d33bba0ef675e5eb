//! I1 to I6: signing, pre-authentication integrity, encryption, nonces.

use std::cell::Cell;
use std::collections::HashSet;
use std::time::Duration;

use crate::client::draft::{pack, seal};
use crate::client::files::{
    PREVIOUS, close_draft, data, lock_draft, read_draft, tree_connect_draft, write_draft,
};
use crate::client::logon::Exchange;
use crate::client::negotiate::ALL_DIALECTS;
use crate::client::world::EXCLUSIVE;
use crate::client::*;
use frevo_crypto::Sender;
use frevo_server::settings::{Encryption, Signing};
use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::{self, validate_negotiate};
use frevo_wire::command::lock::LockFlags;
use frevo_wire::command::negotiate::{GlobalCapabilities, SecurityMode};
use frevo_wire::transform::TransformHeader;

#[test]
fn i1_unsigned_requests_are_denied() {
    in_world(async |world| {
        for dialect in ALL_DIALECTS {
            let (mut peer, mount) = world.session("ann", &Offer::only(dialect)).await;
            let file = peer.open_file(&mount, &Want::file("i1")).await;
            for draft in [
                Want::file("made").draft(),
                write_draft(file, 0, b"unsigned"),
                read_draft(file, 0, 8),
                close_draft(file),
                Draft::empty(Command::TREE_DISCONNECT),
                Draft::empty(Command::LOGOFF),
                Draft::echo(),
            ] {
                let reply = peer.ask(mount.put(draft), Via::Plain).await;
                reply.expect(Status::ACCESS_DENIED);
            }
            assert!(!world.path("made").exists());
            peer.write(&mount, file, 0, b"signed").await;
            assert_eq!(world.content("i1"), b"signed");
            peer.close(&mount, file).await;
        }
    });
}

/// Each element of a compound counts, also one that says that it belongs to no
/// session at all and inherits it.
#[test]
fn i1_every_element_is_verified() {
    in_world(async |world| {
        for dialect in ALL_DIALECTS {
            let (mut peer, mount) = world.session("ann", &Offer::only(dialect)).await;
            for session_id in [mount.logon.id, 0, u64::MAX, 0x1234] {
                for bad_signature in [false, true] {
                    world.file("i1", b"");
                    let mut first = mount.put(Want::existing("i1").draft());
                    peer.stamp(&mut first);
                    first.body.resize(first.body.len().next_multiple_of(8), 0);
                    first.header.next_command = u32::try_from(64 + first.body.len()).unwrap();
                    let mut second = mount.put(write_draft(PREVIOUS, 0, b"unsigned"));
                    second = second.flags(HeaderFlags::RELATED_OPERATIONS).session(session_id);
                    if bad_signature {
                        second = second.flags(HeaderFlags::SIGNED);
                        second.header.signature = [7; 16];
                    }
                    peer.stamp(&mut second);
                    let mut frame = pack(&[first], Via::Signed(&mount.logon));
                    frame.extend(second.bytes());
                    peer.send_frame(&frame).await;
                    let replies = peer.replies().await.unwrap();
                    replies[0].ok();
                    replies[1].expect(Status::ACCESS_DENIED);
                    assert_eq!(world.content("i1"), b"");
                }
            }
        }
    });
}

#[test]
fn i1_any_changed_byte_is_denied() {
    in_world(async |world| {
        for dialect in ALL_DIALECTS {
            let offers: &[&[u16]] =
                if dialect == Dialect::SMB_3_1_1 { &[&[2], &[1], &[0]] } else { &[&[]] };
            for signing in offers {
                let offer = Offer { signing: signing.to_vec(), ..Offer::only(dialect) };
                let (mut peer, mount) = world.session("ann", &offer).await;
                let file = peer.open_file(&mount, &Want::file("i1")).await;
                // The changed byte is in Status, CreditRequest, process id, tree id, signature or
                // body. The message can still be parsed, but its signature is wrong.
                for at in [8, 14, 32, 36, 48, 63, 64, 70, 80, 111, 112, 115] {
                    let mut draft = mount.put(write_draft(file, 0, b"data"));
                    peer.stamp(&mut draft);
                    let mut frame = pack(&[draft], mount.via());
                    frame[at] ^= 0x10;
                    peer.send_frame(&frame).await;
                    peer.reply().await.expect(Status::ACCESS_DENIED);
                }
                assert_eq!(world.content("i1"), b"");
                peer.close(&mount, file).await;
            }
        }
    });
}

/// A message signed by the server, or for another session, is none of the
/// client's for this one.
#[test]
fn i1_other_keys_and_reflections_are_denied() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let other = peer.log_on("ann").await;
        peer.ask(mount.put(Want::file("i1").draft()), Via::Signed(&other))
            .await
            .expect(Status::ACCESS_DENIED);
        // The message is signed as if a server had sent it, which the nonce of AES-GMAC marks by a
        // bit. So the server must refuse it.
        let mut draft = mount.put(Want::file("i1").draft());
        peer.stamp(&mut draft);
        let mut message = draft.bytes();
        frevo_proto::protection::signature::sign(
            &mut message,
            &mount.logon.signing,
            Sender::Server,
        )
        .unwrap();
        peer.send_frame(&message).await;
        peer.reply().await.expect(Status::ACCESS_DENIED);
        assert!(!world.path("i1").exists());
    });
}

/// Signing that the client demands, in NEGOTIATE or in SESSION_SETUP, is in
/// force although the server only offers it.
#[test]
fn i1_what_the_client_demands_is_in_force() {
    let settings = Settings { signing: Signing::Offered, ..settings() };
    in_world_with(settings, async |world| {
        let demand = SecurityMode::SIGNING_REQUIRED;
        for dialect in ALL_DIALECTS {
            for (negotiate, setup) in [(0, 0), (2, 0), (0, 2)] {
                let offer =
                    Offer { security_mode: SecurityMode(negotiate), ..Offer::only(dialect) };
                let mut peer = world.connect();
                peer.negotiate(&offer).await;
                assert!(!peer.server_mode.contains(demand));
                let mode = SecurityMode(setup);
                let logon = peer.try_log_on(Setup { mode, ..Setup::of("ann") }).await.unwrap();
                let mount = peer.mount(&logon, "data").await;
                let reply = peer.ask(mount.put(Want::file("i1").draft()), Via::Plain).await;
                if negotiate | setup == 0 {
                    reply.ok();
                    assert!(!reply.is_signed());
                } else {
                    reply.expect(Status::ACCESS_DENIED);
                }
                // Signing is optional, but a request with the flag SIGNED and no signature is
                // refused. The reply to a signed request is signed.
                let mut draft = mount.put(Want::file("i1").draft());
                draft.header.flags |= HeaderFlags::SIGNED;
                peer.ask(draft, Via::Plain).await.expect(Status::ACCESS_DENIED);
                assert!(peer.create(&mount, &Want::file("i1")).await.ok().is_signed());
            }
        }
    });
}

/// A stranger names the session of another connection.
#[test]
fn i1_another_connections_session_is_not_reached() {
    in_world(async |world| {
        let (_keep, mount) = world.session("ann", &Offer::default()).await;
        let mut stranger = world.connect();
        stranger.negotiate(&Offer::default()).await;
        let draft = mount.put(Want::file("i1").draft());
        stranger.ask(draft.clone(), Via::Plain).await.expect(Status::USER_SESSION_DELETED);
        stranger.ask(draft, mount.via()).await.expect(Status::USER_SESSION_DELETED);
        assert!(!world.path("i1").exists());
    });
}

/// A session may authenticate anew only by a signed request (MS-SMB2 3.3.5.2.4): someone on
/// the network could end the session otherwise.
#[test]
fn i1_authentication_anew_is_signed() {
    in_world(async |world| {
        for dialect in ALL_DIALECTS {
            let (mut peer, mount) = world.session("ann", &Offer::only(dialect)).await;
            let setup = Setup { via: Via::Plain, ..Setup::again("ann", &mount.logon) };
            let mut exchange = Exchange::new(&peer, setup);
            exchange.token = b"garbage".to_vec();
            exchange.round(&mut peer).await.expect(Status::ACCESS_DENIED);
            peer.open_file(&mount, &Want::file("i1")).await;
            peer.log_on_again(Setup::again("ann", &mount.logon)).await.ok();
            peer.open_file(&mount, &Want::file("i1")).await;
        }
    });
}

/// CANCEL has no answer, but it too must be its session's.
#[test]
fn i1_cancel_is_verified() {
    in_world(async |world| {
        for sealed in [false, true] {
            let (mut peer, mount) = world.session("ann", &Offer::default()).await;
            let mount = if sealed { mount.sealed() } else { mount };
            let bob = peer.log_on("bob").await;
            let holder = peer.open_file(&mount, &Want::file("i1")).await;
            let waiter = peer.open_file(&mount, &Want::file("i1")).await;
            peer.on(&mount, lock_draft(holder, &[(0, 1, EXCLUSIVE)])).await.ok();
            let lock = lock_draft(waiter, &[(0, 1, LockFlags::EXCLUSIVE_LOCK)]);
            let id = peer.send(vec![mount.put(lock)], mount.via()).await[0];
            let async_id = Some(peer::async_id(&peer.interim().await));
            for async_id in [async_id, None] {
                let cancel = |session| Peer::cancel(id, async_id, session);
                let bad = cancel(mount.logon.id).flags(HeaderFlags::SIGNED);
                for frame in [
                    pack(&[cancel(mount.logon.id)], Via::Plain),
                    pack(&[cancel(0)], Via::Plain),
                    pack(&[cancel(u64::MAX)], Via::Plain),
                    pack(&[bad], Via::Plain),
                    pack(&[cancel(bob.id)], Via::Signed(&bob)),
                    pack(&[cancel(bob.id)], Via::Sealed(&bob)),
                ] {
                    peer.send_frame(&frame).await;
                }
            }
            peer.expect_silence(Duration::from_millis(50)).await;
            peer.send_frame(&pack(&[Peer::cancel(id, async_id, mount.logon.id)], mount.via()))
                .await;
            let end = peer.final_reply(id).await;
            end.expect(Status::CANCELLED);
            assert_eq!(end.sealed, sealed);
        }
    });
}

#[test]
fn i2_unprotected_tree_connect_disconnects() {
    for signing in [Signing::Required, Signing::Offered] {
        let settings = Settings { signing, ..settings() };
        in_world_with(settings, async |world| {
            let offer = Offer { security_mode: SecurityMode(0), ..Offer::default() };
            let mut peer = world.connect();
            peer.negotiate(&offer).await;
            let logon = peer.log_on("ann").await;
            let draft = tree_connect_draft("\\\\frevo\\data").session(logon.id);
            peer.send(vec![draft.clone()], Via::Plain).await;
            peer.expect_disconnect().await;
            // An unprotected TREE_CONNECT ends the connection even as the second element of a
            // compound.
            let mut peer = world.connect();
            peer.negotiate(&offer).await;
            let logon = peer.log_on("ann").await;
            let draft = draft.session(logon.id);
            peer.send(vec![Draft::echo(), draft.clone()], Via::Plain).await;
            peer.expect_disconnect().await;
            // A TREE_CONNECT need not be signed if it is encrypted.
            let mut peer = world.connect();
            peer.negotiate(&offer).await;
            let logon = peer.log_on("ann").await;
            let draft = draft.session(logon.id);
            peer.ask(draft, Via::Sealed(&logon)).await.ok();
        });
    }
}

/// Logs on while `on_the_way` changes one byte of one message. Both ends must
/// notice: true when either of them went on as if nothing had been.
async fn fooled(
    world: &World,
    message: usize,
    change: impl Fn(&mut Vec<u8>) -> bool,
) -> Option<bool> {
    let mut peer = world.connect();
    let in_range = Cell::new(true);
    let touch = |number: usize, bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        if number == message {
            in_range.set(change(&mut bytes));
        }
        bytes
    };
    let offer = Offer::default();
    let mut draft = offer.draft(peer.guid);
    peer.stamp(&mut draft);
    let request = pack(&[draft], Via::Plain);
    peer.send_frame(&touch(0, &request)).await;
    let Some(response) = peer.frame().await else { return in_range.get().then_some(false) };
    let response = touch(1, &response);
    if !in_range.get() {
        return None;
    }
    let Ok(header) = Header::parse(&response) else { return Some(false) };
    if header.status != Status::SUCCESS
        || frevo_wire::command::negotiate::Response::parse(&response).is_err()
    {
        return Some(false);
    }
    let reply = Reply { header, message: response, sealed: false };
    let sane = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        peer.take_terms(&offer, &request, &reply);
    }));
    if sane.is_err() || peer.terms().dialect != Dialect::SMB_3_1_1 {
        return Some(false);
    }
    let setup = Setup::of("ann");
    let mut initiator = logon::initiator("ann", &setup.password);
    let Ok(mut token) = initiator.initial_token(&peer.hint, 0) else { return Some(false) };
    let mut preauth = peer.preauth.session_setup();
    let mut session_id = 0;
    for round in 0..2 {
        let mut draft = setup.draft(&token, session_id);
        peer.stamp(&mut draft);
        let request = pack(&[draft], Via::Plain);
        preauth.on_request(&[&request]);
        peer.send_frame(&touch(2 + 2 * round, &request)).await;
        let Some(response) = peer.frame().await else { return in_range.get().then_some(false) };
        let mut response = touch(3 + 2 * round, &response);
        if !in_range.get() {
            return None;
        }
        let Ok(header) = Header::parse(&response) else { return Some(false) };
        preauth.on_response(header.status, &[&response]);
        session_id = header.session_id;
        let parsed = frevo_wire::command::session_setup::Response::parse(&response);
        let Ok(parsed) = parsed else { return Some(false) };
        match initiator.step(parsed.security_buffer, 0) {
            Ok(frevo_auth::initiator::Step::Continue(next)) if round == 0 => token = next,
            Ok(frevo_auth::initiator::Step::Done(key)) if round == 1 => {
                let Ok(keys) = peer.terms().session_keys(&key, preauth.hash()) else {
                    return Some(false);
                };
                let signing = peer.terms().signing_key(&keys);
                let client = frevo_proto::protection::signature::verify(
                    &mut response,
                    &signing,
                    Sender::Server,
                );
                // An honest client disconnects, because the response's signature is wrong. A
                // dishonest one that goes on must not get access either.
                let mut draft = tree_connect_draft("\\\\frevo\\data").session(session_id);
                peer.stamp(&mut draft);
                let mut request = pack(&[draft], Via::Plain);
                frevo_proto::protection::signature::sign(&mut request, &signing, Sender::Client)
                    .unwrap();
                peer.send_frame(&request).await;
                let server = match peer.frame().await {
                    Some(frame) => Header::parse(&frame).unwrap().status == Status::SUCCESS,
                    None => false,
                };
                // The preauthentication hash does not include the final response (5), so only the
                // client notices a change of it.
                let last = message == 5;
                return Some(client || (server && !last));
            }
            _ => return Some(false),
        }
    }
    Some(false)
}

/// Every byte of the two NEGOTIATE and the four SESSION_SETUP messages.
#[test]
fn i3_any_change_on_the_way_is_noticed() {
    in_frozen_world(settings(), async |world| {
        assert_eq!(fooled(world, 99, |_| true).await, Some(true), "unchanged it works");
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        for message in 0..6 {
            for at in 4.. {
                let change = |bytes: &mut Vec<u8>| match bytes.get_mut(at) {
                    Some(byte) => {
                        *byte ^= 1 << (at % 8);
                        true
                    }
                    None => false,
                };
                match fooled(world, message, change).await {
                    None => break,
                    Some(fooled) => assert!(!fooled, "byte {at} of message {message}"),
                }
            }
        }
        std::panic::set_hook(hook);
    });
}

/// Each exchange begins with the connection's hash, whatever failed before.
#[test]
fn i3_a_failed_setup_leaves_the_hash_alone() {
    in_frozen_world(settings(), async |world| {
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        for _ in 0..3 {
            let setup = Setup { password: "wrong".into(), ..Setup::of("bob") };
            peer.try_log_on(setup).await.err().unwrap().expect(Status::LOGON_FAILURE);
            peer.ask(Setup::of("ann").draft(b"garbage", 0), Via::Plain)
                .await
                .expect(Status::INVALID_PARAMETER);
        }
        let logon = peer.log_on("ann").await;
        peer.mount(&logon, "data").await;
    });
}

/// Two exchanges at once on one connection have two hashes.
#[test]
fn i3_exchanges_do_not_mix() {
    in_world(async |world| {
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        let mut ann = Exchange::new(&peer, Setup::of("ann"));
        let mut bob = Exchange::new(&peer, Setup::of("bob"));
        ann.round(&mut peer).await.expect(Status::MORE_PROCESSING_REQUIRED);
        bob.round(&mut peer).await.expect(Status::MORE_PROCESSING_REQUIRED);
        ann.round(&mut peer).await.ok();
        bob.round(&mut peer).await.ok();
        let (ann, bob) = (ann.logon(&mut peer), bob.logon(&mut peer));
        peer.mount(&ann, "data").await;
        peer.mount(&bob, "bobs").await;
    });
}

/// FSCTL_VALIDATE_NEGOTIATE_INFO as a client says that it has negotiated.
fn validate(mount: &Mount, info: &validate_negotiate::Request, room: u32) -> Draft {
    let mut input = Vec::new();
    info.encode(&mut Writer::new(&mut input));
    let code = ioctl::CtlCode::VALIDATE_NEGOTIATE_INFO;
    mount.put(Draft::new(Command::IOCTL).with(|w| {
        ioctl::Request {
            max_output_response: room,
            ..ioctl::Request::fsctl(code, FileId::ALL_ONES, &input, 24)
        }
        .encode(w);
    }))
}

fn remembered(peer: &Peer, offer: &Offer) -> validate_negotiate::Request {
    validate_negotiate::Request {
        capabilities: offer.capabilities,
        guid: peer.guid,
        security_mode: offer.security_mode,
        dialects: offer.dialects.clone(),
    }
}

#[test]
fn i4_the_right_memory_is_confirmed() {
    in_world(async |world| {
        for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_2_1, Dialect::SMB_3_0, Dialect::SMB_3_0_2]
        {
            let offer = Offer { dialects: vec![dialect, Dialect(0x0222)], ..Offer::default() };
            let (mut peer, mount) = world.session("ann", &offer).await;
            let info = remembered(&peer, &offer);
            let reply = peer.ask(validate(&mount, &info, 24), mount.via()).await;
            let output = ioctl::Response::parse(&reply.ok().message).unwrap().output;
            let said = validate_negotiate::Response::parse(output).unwrap();
            assert_eq!(said.dialect, dialect);
            assert_eq!(said.guid, peer.server_guid);
            assert_eq!(said.capabilities, peer.server_capabilities);
            assert_eq!(said.security_mode, peer.server_mode);
            assert!(reply.is_signed());
            // The request VALIDATE_NEGOTIATE_INFO is refused if it is not signed.
            peer.ask(validate(&mount, &info, 24), Via::Plain).await.expect(Status::ACCESS_DENIED);
        }
    });
}

#[test]
fn i4_a_wrong_memory_disconnects() {
    in_world(async |world| {
        let offer = Offer {
            dialects: vec![Dialect::SMB_2_1, Dialect::SMB_3_0, Dialect::SMB_3_0_2],
            ..Offer::default()
        };
        let changes: [fn(&mut validate_negotiate::Request); 8] = [
            |info| info.dialects.push(Dialect::SMB_3_1_1),
            |info| info.dialects.truncate(2),
            |info| info.dialects.reverse(),
            |info| info.dialects.clear(),
            |info| info.guid.0[15] ^= 1,
            |info| info.security_mode = SecurityMode(2),
            |info| info.capabilities = GlobalCapabilities(0x3F),
            |info| info.capabilities = GlobalCapabilities(0),
        ];
        for change in changes {
            let (mut peer, mount) = world.session("ann", &offer).await;
            let mut info = remembered(&peer, &offer);
            change(&mut info);
            peer.send(vec![validate(&mount, &info, 24)], mount.via()).await;
            peer.expect_disconnect().await;
        }
        let (mut peer, mount) = world.session("ann", &offer).await;
        let info = remembered(&peer, &offer);
        peer.send(vec![validate(&mount, &info, 23)], mount.via()).await;
        peer.expect_disconnect().await;
    });
}

/// In 3.1.1 the hash has said it all: who asks is confused, or somebody else.
#[test]
fn i4_in_3_1_1_it_disconnects() {
    in_world(async |world| {
        let offer = Offer::default();
        let (mut peer, mount) = world.session("ann", &offer).await;
        let info = remembered(&peer, &offer);
        peer.send(vec![validate(&mount, &info, 24)], mount.via()).await;
        peer.expect_disconnect().await;
    });
}

fn encrypting() -> Settings {
    Settings { encryption: Encryption::Required, ..settings() }
}

#[test]
fn i5_plain_requests_are_denied_where_encryption_is_required() {
    in_world_with(encrypting(), async |world| {
        for dialect in [Dialect::SMB_3_0, Dialect::SMB_3_0_2, Dialect::SMB_3_1_1] {
            let (mut peer, mount) = world.session("ann", &Offer::only(dialect)).await;
            assert!(matches!(mount.via(), Via::Sealed(_)), "the client is told to seal");
            let file = peer.open_file(&mount, &Want::file("i5")).await;
            for draft in [
                Want::file("made").draft(),
                write_draft(file, 0, b"plain"),
                read_draft(file, 0, 8),
                close_draft(file),
                tree_connect_draft("\\\\frevo\\data"),
                Draft::empty(Command::TREE_DISCONNECT),
                Draft::empty(Command::LOGOFF),
            ] {
                let reply = peer.ask(mount.put(draft), Via::Signed(&mount.logon)).await;
                reply.expect(Status::ACCESS_DENIED);
                // MS-SMB2 3.3.4.1.4: the request was encrypted, so even an error response is.
                assert!(reply.sealed);
            }
            let unsigned = peer.ask(mount.put(read_draft(file, 0, 8)), Via::Plain).await;
            unsigned.expect(Status::ACCESS_DENIED);
            assert!(!world.path("made").exists());
            peer.write(&mount, file, 0, b"sealed").await;
            assert_eq!(world.content("i5"), b"sealed");
            peer.close(&mount, file).await;
        }
    });
}

#[test]
fn i5_clients_that_cannot_encrypt_are_denied() {
    in_world_with(encrypting(), async |world| {
        let unable = GlobalCapabilities(0x7F & !GlobalCapabilities::ENCRYPTION.0);
        for offer in [
            Offer::only(Dialect::SMB_2_0_2),
            Offer::only(Dialect::SMB_2_1),
            Offer { capabilities: unable, ..Offer::only(Dialect::SMB_3_0) },
            Offer { capabilities: unable, ..Offer::only(Dialect::SMB_3_0_2) },
            Offer { ciphers: vec![], ..Offer::default() },
            Offer { ciphers: vec![0x77], ..Offer::default() },
        ] {
            let mut peer = world.connect();
            peer.negotiate(&offer).await;
            let refused = peer.try_log_on(Setup::of("ann")).await.err().expect("refused");
            refused.expect(Status::ACCESS_DENIED);
        }
    });
}

/// A share that demands encryption where the server only offers it.
#[test]
fn i5_shares_that_demand_encryption() {
    in_world(async |world| {
        let unable = GlobalCapabilities(0x7F & !GlobalCapabilities::ENCRYPTION.0);
        for offer in [
            Offer::only(Dialect::SMB_2_0_2),
            Offer::only(Dialect::SMB_2_1),
            Offer { capabilities: unable, ..Offer::only(Dialect::SMB_3_0) },
            Offer { ciphers: vec![], ..Offer::default() },
        ] {
            let mut peer = world.connect();
            peer.negotiate(&offer).await;
            let logon = peer.log_on("ann").await;
            let refused = peer.try_mount(&logon, "sealed").await.err().expect("refused");
            refused.expect(Status::ACCESS_DENIED);
            peer.mount(&logon, "data").await;
        }
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let plain = peer.mount(&mount.logon, "sealed").await;
        peer.create(&plain, &Want::file("i5")).await.expect(Status::ACCESS_DENIED);
        assert!(!world.path("i5").exists());
        let sealed = plain.sealed();
        peer.open_file(&sealed, &Want::file("i5")).await;
    });
}

/// Errors, interim responses and their ends, compounds, LOGOFF: what answers a
/// sealed request is sealed.
#[test]
fn i5_every_reply_to_a_sealed_request_is_sealed() {
    for settings in [settings(), encrypting()] {
        in_world_with(settings, async |world| {
            for dialect in [Dialect::SMB_3_0, Dialect::SMB_3_1_1] {
                let (mut peer, mount) = world.session("ann", &Offer::only(dialect)).await;
                let mount = mount.sealed();
                let holder = peer.open_file(&mount, &Want::file("i5")).await;
                let waiter = peer.open_file(&mount, &Want::file("i5")).await;
                let drafts = vec![
                    mount.put(Want::existing("absent").draft()),
                    mount.put(read_draft(holder, 0, 8)),
                    mount.put(Draft::new(Command::READ).body(&[1; 4])),
                    mount.put(Draft::echo()),
                    mount.put(read_draft(holder, 0, 8)).tree(0x5555),
                ];
                for reply in peer.ask_all(drafts, mount.via()).await {
                    assert!(reply.sealed && !reply.is_signed(), "{reply:?}");
                }
                peer.on(&mount, lock_draft(holder, &[(0, 1, EXCLUSIVE)])).await.ok();
                let lock = lock_draft(waiter, &[(0, 1, LockFlags::EXCLUSIVE_LOCK)]);
                let id = peer.send(vec![mount.put(lock)], mount.via()).await[0];
                assert!(peer.interim().await.sealed);
                peer.send(vec![mount.put(close_draft(holder))], mount.via()).await;
                for _ in 0..2 {
                    assert!(peer.reply().await.ok().sealed);
                }
                let _ = id;
                let again = peer.log_on_again(Setup {
                    via: Via::Sealed(&mount.logon),
                    ..Setup::again("ann", &mount.logon)
                });
                assert!(again.await.ok().sealed);
                let logoff = peer.on(&mount, Draft::empty(Command::LOGOFF)).await;
                assert!(logoff.ok().sealed);
            }
        });
    }
}

/// A client opens nothing in which the SessionId is another than the seal's:
/// what one compound says to several sessions goes out in several frames.
#[test]
fn i5_a_sealed_reply_is_of_one_session() {
    in_world_with(encrypting(), async |world| {
        let (mut peer, ann) = world.session("ann", &Offer::default()).await;
        let bob = peer.log_on("bob").await;
        let bob = peer.mount(&bob, "bobs").await;
        let drafts = vec![
            ann.put(Want::file("f").draft()),
            bob.put(Want::file("f").draft()),
            ann.put(Draft::echo()).session(0x1234),
            ann.put(Want::file("f").draft()),
        ];
        let replies = peer.ask_all(drafts, Via::Plain).await;
        let facts: Vec<_> = replies.iter().map(|reply| (reply.status(), reply.sealed)).collect();
        let denied = (Status::ACCESS_DENIED, true);
        assert_eq!(facts, [denied, denied, (Status::SUCCESS, false), denied]);
        // ECHO has no session, so the related elements cannot inherit one. They fail, even with a
        // SessionId of their own.
        let drafts = vec![
            ann.put(Draft::echo()),
            Want::file("f").draft().related(),
            close_draft(PREVIOUS).related().session(bob.logon.id),
        ];
        let replies = peer.ask_all(drafts, Via::Sealed(&ann.logon)).await;
        let statuses: Vec<_> = replies.iter().map(Reply::status).collect();
        let invalid = Status::INVALID_PARAMETER;
        assert_eq!(statuses, [Status::SUCCESS, invalid, invalid]);
        assert!(!world.path("f").exists());
    });
}

/// One key, many channels, never the same nonce.
#[test]
fn i6_nonces_are_never_used_twice() {
    in_world(async |world| {
        for cipher in [1, 2, 3, 4] {
            let offer = Offer { ciphers: vec![cipher], ..Offer::only(Dialect::SMB_3_1_1) };
            let (mut first, mount) = world.session("ann", &offer).await;
            let mut second = world.connect();
            second.guid = first.guid;
            second.negotiate(&offer).await;
            let bound = second.try_log_on(Setup::binding("ann", &mount.logon)).await.unwrap();
            let other = mount.on(&bound);
            let file = first.open_file(&mount, &Want::file("i6")).await;
            first.write(&mount, file, 0, b"the same bytes, again and again").await;
            let mut nonces = HashSet::new();
            let mut bodies = HashSet::new();
            for _ in 0..100 {
                for (peer, mount) in [(&mut first, &mount), (&mut second, &other)] {
                    let draft = mount.put(read_draft(file, 0, 31));
                    peer.send(vec![draft], Via::Sealed(&mount.logon)).await;
                    let frame = peer.frame().await.unwrap();
                    let header = TransformHeader::parse(&frame).unwrap();
                    assert!(nonces.insert(header.nonce), "a nonce twice");
                    assert!(bodies.insert(frame[52..].to_vec()), "a ciphertext twice");
                    let reply = peer.open(frame).remove(0);
                    assert_eq!(data(reply.ok()), b"the same bytes, again and again");
                }
            }
            let used = if cipher % 2 == 1 { 11 } else { 12 };
            assert!(nonces.iter().all(|n| n[used..].iter().all(|b| *b == 0)));
        }
    });
}

/// The key of one direction does not open messages of the other: a reply sent back is a
/// forgery.
#[test]
fn i6_directions_have_keys_of_their_own() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        peer.send(vec![mount.put(Draft::echo())], Via::Sealed(&mount.logon)).await;
        let reply = peer.frame().await.unwrap();
        peer.send_frame(&reply).await;
        peer.expect_disconnect().await;
        // The session has ended, so its key is gone and the encrypted message is refused.
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let mut draft = mount.put(Draft::echo());
        peer.stamp(&mut draft);
        let frame = seal(&draft.bytes(), &mount.logon, mount.logon.id);
        peer.on(&mount, Draft::empty(Command::LOGOFF)).await.ok();
        peer.send_frame(&frame).await;
        peer.expect_disconnect().await;
    });
}
