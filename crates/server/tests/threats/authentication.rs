//! A1 to A3: binding, NTLM tokens, nobody.

use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use crate::client::draft::pack;
use crate::client::files::{read_draft, tree_connect_draft};
use crate::client::logon::Exchange;
use crate::client::negotiate::ALL_DIALECTS;
use crate::client::world::password;
use crate::client::*;
use frevo_auth::ntlm::{Flags, SIGNATURE};
use frevo_auth::spnego::NegTokenResp;
use frevo_crypto::Sender;
use frevo_server::internal::limits::{CHANNELS_PER_SESSION, LOGON_DELAY};
use frevo_wire::command::negotiate::{GlobalCapabilities, SecurityMode};
use frevo_wire::command::session_setup::SessionSetupFlags;
use tokio::time::Instant;

/// A session that somebody tries to bind to.
struct Victim {
    peer: Peer,
    mount: Mount,
    file: FileId,
}

impl Victim {
    async fn new(world: &World) -> Self {
        Self::with(world, &Offer::default()).await
    }

    async fn with(world: &World, offer: &Offer) -> Self {
        world.file("victim", b"precious");
        let (mut peer, mount) = world.session("ann", offer).await;
        let file = peer.open_file(&mount, &Want::existing("victim")).await;
        Self { peer, mount, file }
    }

    fn logon(&self) -> &Rc<Logon> {
        &self.mount.logon
    }

    /// Another connection of the same client.
    async fn second(&self, world: &World, offer: &Offer) -> Peer {
        let mut peer = world.connect();
        peer.guid = self.peer.guid;
        peer.negotiate(offer).await;
        peer
    }

    /// Session, handle and file are as they were.
    async fn assert_untouched(&mut self) {
        let Self { peer, mount, file } = self;
        assert_eq!(peer.read(mount, *file, 0, 100).await, b"precious");
        peer.mount(&mount.logon, "data").await;
    }
}

/// The first answer to an attempt to bind.
async fn first_answer(peer: &mut Peer, setup: Setup<'_>) -> Reply {
    Exchange::new(peer, setup).round(peer).await
}

#[test]
fn a1_unsigned_binding_is_invalid() {
    in_world(async |world| {
        let mut victim = Victim::new(world).await;
        let mut peer = victim.second(world, &Offer::default()).await;
        let setup = Setup { via: Via::Plain, ..Setup::binding("ann", victim.logon()) };
        first_answer(&mut peer, setup).await.expect(Status::INVALID_PARAMETER);
        victim.assert_untouched().await;
    });
}

#[test]
fn a1_binding_with_another_dialect_is_invalid() {
    in_world(async |world| {
        let cmac = Offer { signing: vec![1], ..Offer::default() };
        let mut victim = Victim::with(world, &cmac).await;
        for dialect in [Dialect::SMB_3_0, Dialect::SMB_3_0_2] {
            let mut peer = victim.second(world, &Offer::only(dialect)).await;
            let setup = Setup::binding("ann", victim.logon());
            first_answer(&mut peer, setup).await.expect(Status::INVALID_PARAMETER);
        }
        // SMB 2 has no channels, so a binding in its dialects is refused.
        for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_2_1] {
            let mut peer = victim.second(world, &Offer::only(dialect)).await;
            let setup = Setup { via: Via::Plain, ..Setup::binding("ann", victim.logon()) };
            first_answer(&mut peer, setup).await.expect(Status::REQUEST_NOT_ACCEPTED);
        }
        victim.assert_untouched().await;
    });
}

#[test]
fn a1_another_client_finds_no_session() {
    in_world(async |world| {
        let mut victim = Victim::new(world).await;
        let mut peer = world.connect();
        assert_ne!(peer.guid, victim.peer.guid);
        peer.negotiate(&Offer::default()).await;
        let setup = Setup::binding("ann", victim.logon());
        first_answer(&mut peer, setup).await.expect(Status::USER_SESSION_DELETED);
        let setup = Setup { session_id: 0xDEAD, ..Setup::binding("ann", victim.logon()) };
        first_answer(&mut peer, setup).await.expect(Status::USER_SESSION_DELETED);
        // This connection is not bound to the session, so it must not use the session's id.
        let setup = Setup { session_id: victim.logon().id, ..Setup::of("ann") };
        first_answer(&mut peer, setup).await.expect(Status::USER_SESSION_DELETED);
        victim.assert_untouched().await;
    });
}

#[test]
fn a1_another_user_cannot_bind() {
    in_world(async |world| {
        let mut victim = Victim::new(world).await;
        let mut peer = victim.second(world, &Offer::default()).await;
        let refused = peer.try_log_on(Setup::binding("bob", victim.logon())).await;
        refused.err().expect("refused").expect(Status::NOT_SUPPORTED);
        // Bob's binding failed, so the connection still cannot use ann's session.
        let read = victim.mount.put(read_draft(victim.file, 0, 8));
        let reply = peer.ask(read, victim.mount.via()).await;
        reply.expect(Status::USER_SESSION_DELETED);
        victim.assert_untouched().await;
        // The failure has no other effect, so ann can bind the same connection.
        let bound = peer.try_log_on(Setup::binding("ann", victim.logon())).await.unwrap();
        let data = peer.read(&victim.mount.on(&bound), victim.file, 0, 8).await;
        assert_eq!(data, b"precious");
    });
}

/// CVE-2026-31476: a failed binding must not end the session it is for.
#[test]
fn a1_wrong_password_leaves_the_session_alone() {
    in_frozen_world(settings(), async |world| {
        let mut victim = Victim::new(world).await;
        for _ in 0..3 {
            let mut peer = victim.second(world, &Offer::default()).await;
            let setup = Setup { password: "wrong".into(), ..Setup::binding("ann", victim.logon()) };
            let refused = peer.try_log_on(setup).await.err().expect("refused");
            refused.expect(Status::LOGON_FAILURE);
            victim.assert_untouched().await;
        }
    });
}

#[test]
fn a1_garbage_tokens_leave_the_session_alone() {
    in_world(async |world| {
        let mut victim = Victim::new(world).await;
        for garbage in [&b""[..], b"\x60", &[0xFF; 100], b"NTLMSSP\0\x03\0\0\0"] {
            let mut peer = victim.second(world, &Offer::default()).await;
            let mut exchange = Exchange::new(&peer, Setup::binding("ann", victim.logon()));
            exchange.token = garbage.to_vec();
            exchange.round(&mut peer).await.expect(Status::INVALID_PARAMETER);
            victim.assert_untouched().await;
        }
    });
}

#[test]
fn a1_a_session_in_progress_cannot_be_bound() {
    in_world(async |world| {
        let mut first = world.connect();
        first.negotiate(&Offer::default()).await;
        let mut exchange = Exchange::new(&first, Setup::of("ann"));
        exchange.round(&mut first).await.expect(Status::MORE_PROCESSING_REQUIRED);
        let (_other, mount) = world.session("ann", &Offer::default()).await;

        let mut second = world.connect();
        second.guid = first.guid;
        second.negotiate(&Offer::default()).await;
        let id = exchange.session_id;
        let setup = Setup { session_id: id, ..Setup::binding("ann", &mount.logon) };
        first_answer(&mut second, setup).await.expect(Status::REQUEST_NOT_ACCEPTED);
        // The second connection was refused, but the first one can finish its logon.
        exchange.round(&mut first).await.ok();
        exchange.logon(&mut first);
    });
}

#[test]
fn a1_a_bound_session_is_not_bound_again() {
    in_world(async |world| {
        let mut victim = Victim::new(world).await;
        let logon = Rc::clone(victim.logon());
        let again = first_answer(&mut victim.peer, Setup::binding("ann", &logon)).await;
        again.expect(Status::REQUEST_NOT_ACCEPTED);
        let mut second = victim.second(world, &Offer::default()).await;
        let bound = second.try_log_on(Setup::binding("ann", &logon)).await.unwrap();
        let again = first_answer(&mut second, Setup::binding("ann", &bound)).await;
        again.expect(Status::REQUEST_NOT_ACCEPTED);
        victim.assert_untouched().await;
    });
}

#[test]
fn a1_binding_with_a_bad_signature_is_denied() {
    in_world(async |world| {
        let mut victim = Victim::new(world).await;
        let (_other, stranger) = world.session("bob", &Offer::default()).await;
        let mut peer = victim.second(world, &Offer::default()).await;
        // The binding is signed with the key of another session, so it is refused.
        let setup =
            Setup { via: Via::Signed(&stranger.logon), ..Setup::binding("ann", victim.logon()) };
        first_answer(&mut peer, setup).await.expect(Status::ACCESS_DENIED);
        // The first message of the binding has the right signature, but the second one has not, so
        // it is refused.
        let mut exchange = Exchange::new(&peer, Setup::binding("ann", victim.logon()));
        exchange.round(&mut peer).await.expect(Status::MORE_PROCESSING_REQUIRED);
        exchange.setup.via = Via::Signed(&stranger.logon);
        exchange.round(&mut peer).await.expect(Status::ACCESS_DENIED);
        victim.assert_untouched().await;
    });
}

#[test]
fn a1_binding_with_other_algorithms_is_invalid() {
    in_world(async |world| {
        let mut victim = Victim::new(world).await;
        for offer in [
            Offer { ciphers: vec![1], ..Offer::default() },
            Offer { ciphers: vec![4], ..Offer::default() },
            Offer { ciphers: vec![], ..Offer::default() },
        ] {
            let mut peer = victim.second(world, &offer).await;
            let setup = Setup::binding("ann", victim.logon());
            first_answer(&mut peer, setup).await.expect(Status::INVALID_PARAMETER);
        }
        victim.assert_untouched().await;
    });
}

/// AES-GMAC is mixed with nothing; the two others with each other.
#[test]
fn a1_signing_algorithms_that_may_be_mixed() {
    in_world(async |world| {
        for (session, channel, status) in [
            (2, 1, Status::REQUEST_OUT_OF_SEQUENCE),
            (2, 0, Status::REQUEST_OUT_OF_SEQUENCE),
            (1, 2, Status::NOT_SUPPORTED),
            (0, 2, Status::NOT_SUPPORTED),
            (1, 0, Status::MORE_PROCESSING_REQUIRED),
            (0, 1, Status::MORE_PROCESSING_REQUIRED),
        ] {
            let signing = |id| Offer { signing: vec![id], ..Offer::default() };
            let mut victim = Victim::with(world, &signing(session)).await;
            let mut peer = victim.second(world, &signing(channel)).await;
            let reply = first_answer(&mut peer, Setup::binding("ann", victim.logon())).await;
            reply.expect(status);
            victim.assert_untouched().await;
        }
    });
}

/// The responses to a binding are signed with the key that the client has proved to have;
/// without that proof none is signed.
#[test]
fn a1_answers_to_bindings_are_signed() {
    in_world(async |world| {
        let mut victim = Victim::new(world).await;
        let mut peer = victim.second(world, &Offer { ciphers: vec![1], ..Offer::default() }).await;
        let reply = first_answer(&mut peer, Setup::binding("ann", victim.logon())).await;
        reply.expect(Status::INVALID_PARAMETER);
        let key = &victim.logon().signing;
        assert!(frevo_proto::protection::signature::verify(
            &mut reply.message.clone(),
            key,
            Sender::Server
        ));
        let (_other, stranger) = world.session("bob", &Offer::default()).await;
        let setup =
            Setup { via: Via::Signed(&stranger.logon), ..Setup::binding("ann", victim.logon()) };
        let mut peer = victim.second(world, &Offer::default()).await;
        let reply = first_answer(&mut peer, setup).await;
        reply.expect(Status::ACCESS_DENIED);
        assert_eq!(reply.header.signature, [0; 16]);
        victim.assert_untouched().await;
    });
}

/// Below SMB 3 a binding is refused before its session is looked for (MS-SMB2 3.3.5.5). The
/// refusal is signed while the session lasts. Afterwards it only says that it is: no key is left.
#[test]
fn a1_a_refused_binding_below_smb3_is_signed_while_its_session_lasts() {
    in_world(async |world| {
        for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_2_1] {
            let (mut peer, mount) = world.session("ann", &Offer::only(dialect)).await;
            for is_live in [true, false] {
                let setup = Setup::binding("ann", &mount.logon);
                let reply = first_answer(&mut peer, setup).await;
                reply.expect(Status::REQUEST_NOT_ACCEPTED);
                assert!(reply.is_signed());
                assert_eq!(reply.header.signature != [0; 16], is_live);
                if is_live {
                    peer.on(&mount, Draft::empty(Command::LOGOFF)).await.ok();
                }
            }
        }
    });
}

#[test]
fn a1_channels_are_limited() {
    in_world(async |world| {
        let mut victim = Victim::new(world).await;
        let mut channels = Vec::new();
        for _ in 1..CHANNELS_PER_SESSION {
            let mut peer = victim.second(world, &Offer::default()).await;
            peer.try_log_on(Setup::binding("ann", victim.logon())).await.unwrap();
            channels.push(peer);
        }
        let mut peer = victim.second(world, &Offer::default()).await;
        let refused = peer.try_log_on(Setup::binding("ann", victim.logon())).await;
        refused.err().expect("refused").expect(Status::INSUFFICIENT_RESOURCES);
        victim.assert_untouched().await;
        // All channels are in use. When one ends, another one can be bound.
        drop(channels.pop());
        tokio::task::yield_now().await;
        let mut peer = victim.second(world, &Offer::default()).await;
        peer.try_log_on(Setup::binding("ann", victim.logon())).await.unwrap();
    });
}

/// The client goes while its answer waits for the throttle: its session, or the
/// channel it would have been, must not come to be afterwards.
#[test]
fn a1_a_client_that_goes_meanwhile_leaves_nothing() {
    in_frozen_world(settings(), async |world| {
        let mut victim = Victim::new(world).await;
        for bind in [false, true] {
            // After the wrong password, the answer to the next logon is delayed, so the logon is
            // pending in between.
            let guess = Setup { password: "wrong".into(), ..Setup::of("ann") };
            let mut guesser = world.connect();
            guesser.negotiate(&Offer::default()).await;
            let mut wrong = Exchange::new(&guesser, guess);
            wrong.round(&mut guesser).await;
            let draft = wrong.setup.draft(&wrong.token, wrong.session_id);
            guesser.send(vec![draft], Via::Plain).await;
            tokio::time::sleep(LOGON_DELAY / 8).await;

            let mut peer = victim.second(world, &Offer::default()).await;
            let setup = if bind { Setup::binding("ann", victim.logon()) } else { Setup::of("ann") };
            let mut exchange = Exchange::new(&peer, setup);
            exchange.round(&mut peer).await.expect(Status::MORE_PROCESSING_REQUIRED);
            let draft = exchange.setup.draft(&exchange.token, exchange.session_id);
            peer.send(vec![draft], exchange.setup.via).await;
            tokio::time::sleep(LOGON_DELAY / 8).await;
            drop(peer);
            tokio::time::sleep(LOGON_DELAY * 4).await;
        }
        victim.assert_untouched().await;
        // The session ends with its only channel. The binding that was never completed leaves
        // nothing, so the client may use another dialect.
        let guid = victim.peer.guid;
        drop(victim);
        tokio::time::sleep(LOGON_DELAY).await;
        let mut peer = world.connect();
        peer.guid = guid;
        peer.negotiate(&Offer::only(Dialect::SMB_3_0)).await;
        peer.log_on("ann").await;
    });
}

/// A client from a network of its own, so that the throttle does not add up.
async fn fresh(world: &World, number: u16) -> Peer {
    let [a, b] = number.to_be_bytes();
    let address = IpAddr::V4(Ipv4Addr::new(10, a, b, 1));
    let mut peer = world.connect_from(address).expect("admitted");
    peer.negotiate(&Offer::default()).await;
    peer
}

/// Where the NTLM message starts in a SPNEGO token.
fn ntlm(token: &[u8]) -> usize {
    token.windows(8).position(|w| w == SIGNATURE).expect("an NTLM message")
}

/// Sends an AUTHENTICATE that `change` has changed.
async fn authenticate(
    world: &World,
    number: u16,
    setup: Setup<'_>,
    change: impl FnOnce(&mut Vec<u8>),
) -> Reply {
    let mut peer = fresh(world, number).await;
    let mut exchange = Exchange::new(&peer, setup);
    exchange.round(&mut peer).await.expect(Status::MORE_PROCESSING_REQUIRED);
    change(&mut exchange.token);
    let draft = exchange.setup.draft(&exchange.token, exchange.session_id);
    let reply = peer.ask(draft, Via::Plain).await;
    // The logon was refused, so its session must not exist.
    if reply.status() != Status::SUCCESS {
        let draft = Draft::echo().session(exchange.session_id).flags(HeaderFlags::SIGNED);
        peer.ask(draft, Via::Plain).await.expect(Status::USER_SESSION_DELETED);
        assert_eq!(world.server.sessions().len(), 1, "the innocent one");
    }
    reply
}

#[test]
fn a2_fields_that_lie_are_invalid() {
    in_frozen_world(settings(), async |world| {
        let mut number = 0;
        // The fields for LM response, NT response, domain, user, workstation and key each have a
        // length and an offset. Both get wrong values.
        for field in [12, 20, 28, 36, 44, 52] {
            for (at, value) in [
                (0, &[0xFF, 0xFF][..]),
                (0, &[0xFF, 0x7F]),
                (4, &[0xFF, 0xFF, 0xFF, 0xFF]),
                (4, &[0xF8, 0xFF, 0xFF, 0xFF]),
                (4, &[0xFF, 0xFF, 0xFF, 0x7F]),
                (4, &[0, 0, 1, 0]),
            ] {
                number += 1;
                let reply = authenticate(world, number, Setup::of("ann"), |token| {
                    let at = ntlm(token) + field + at;
                    // An offset has no meaning if its length is zero. Then the token is cut
                    // instead, so that it is wrong in any case.
                    let empty = token[ntlm(token) + field..][..2] == [0, 0];
                    if !empty || value.len() == 2 {
                        token[at..at + value.len()].copy_from_slice(value);
                    } else {
                        token.truncate(token.len() - 1);
                    }
                })
                .await;
                reply.expect(Status::INVALID_PARAMETER);
            }
        }
    });
}

#[test]
fn a2_tokens_cut_short_are_refused() {
    in_frozen_world(settings(), async |world| {
        for length in 0..64 {
            let reply = authenticate(world, length, Setup::of("ann"), |token| {
                let keep = token.len() * usize::from(length) / 64;
                token.truncate(keep);
            })
            .await;
            reply.expect(Status::INVALID_PARAMETER);
        }
    });
}

/// Every bit of what proves the password counts, and so does every other.
#[test]
fn a2_any_changed_byte_is_refused() {
    in_frozen_world(settings(), async |world| {
        let mut number = 0;
        let mut at = 0;
        loop {
            let mut length = 0;
            let reply = authenticate(world, number, Setup::of("ann"), |token| {
                length = token.len();
                if at < length {
                    token[at] ^= 1 << (at % 8);
                }
            })
            .await;
            if at >= length {
                reply.ok();
                return;
            }
            let refused = matches!(
                reply.status(),
                Status::LOGON_FAILURE | Status::INVALID_PARAMETER | Status::ACCESS_DENIED
            );
            assert!(refused, "byte {at} of {length}: {reply:?}");
            at += 1;
            number += 1;
        }
    });
}

/// The MIC says that it is there and is not, or is wrong.
#[test]
fn a2_mic_wrong_or_missing_is_a_failure() {
    in_frozen_world(settings(), async |world| {
        for (number, mic) in [[0; 16], [0xA5; 16]].into_iter().enumerate() {
            let number = u16::try_from(number).unwrap();
            let reply = authenticate(world, number, Setup::of("ann"), |token| {
                let at = ntlm(token) + 72;
                token[at..at + 16].copy_from_slice(&mic);
            })
            .await;
            reply.expect(Status::LOGON_FAILURE);
        }
    });
}

#[test]
fn a2_another_connections_challenge_is_no_good() {
    in_frozen_world(settings(), async |world| {
        let mut first = fresh(world, 1).await;
        let mut one = Exchange::new(&first, Setup::of("ann"));
        one.round(&mut first).await.expect(Status::MORE_PROCESSING_REQUIRED);
        let mut second = fresh(world, 2).await;
        let mut two = Exchange::new(&second, Setup::of("ann"));
        two.round(&mut second).await.expect(Status::MORE_PROCESSING_REQUIRED);
        // The client answers the first connection's challenge on the second connection, with the
        // session id of each of the two.
        let draft = two.setup.draft(&one.token, one.session_id);
        second.ask(draft, Via::Plain).await.expect(Status::USER_SESSION_DELETED);
        let draft = two.setup.draft(&one.token, two.session_id);
        second.ask(draft, Via::Plain).await.expect(Status::LOGON_FAILURE);
        // The first connection accepts the answer to its challenge once. A repetition on another
        // connection is refused.
        let draft = one.setup.draft(&one.token, one.session_id);
        first.ask(draft.clone(), Via::Plain).await.ok();
        let (mut third, mut three) = (fresh(world, 3).await, one.token.clone());
        three.truncate(one.token.len());
        third.ask(one.setup.draft(&three, 0), Via::Plain).await.expect(Status::INVALID_PARAMETER);
    });
}

/// A client that has not proved the password learns nothing: same status, same time. One that has learns
/// of a rule for the account, after the same time.
#[test]
fn a2_refusals_look_alike() {
    in_frozen_world(settings(), async |world| {
        for (number, (user, secret)) in [
            ("ann", "wrong".to_owned()),
            ("nobody", password("nobody")),
            ("dora", password("dora")),
            ("carol", password("carol")),
            ("carol", "wrong".to_owned()),
            ("Administrator", String::new()),
            ("guest", String::new()),
        ]
        .into_iter()
        .enumerate()
        {
            let setup = Setup { password: secret, ..Setup::of(user) };
            let before = Instant::now();
            let number = u16::try_from(number).unwrap();
            let is_proved = setup.password == password("carol");
            let reply = authenticate(world, number, setup, |_| {}).await;
            reply.expect(match is_proved {
                true => Status::ACCOUNT_DISABLED,
                false => Status::LOGON_FAILURE,
            });
            let took = before.elapsed();
            assert!(took >= LOGON_DELAY && took < LOGON_DELAY * 2, "{user}: {took:?}");
        }
    });
}

#[test]
fn a2_tokens_out_of_turn_are_refused() {
    in_frozen_world(settings(), async |world| {
        // The client sends AUTHENTICATE_MESSAGE to a connection that has sent no challenge.
        let mut peer = fresh(world, 1).await;
        let mut exchange = Exchange::new(&peer, Setup::of("ann"));
        let first = exchange.token.clone();
        exchange.round(&mut peer).await.expect(Status::MORE_PROCESSING_REQUIRED);
        let mut other = fresh(world, 2).await;
        let draft = exchange.setup.draft(&exchange.token, 0);
        other.ask(draft, Via::Plain).await.expect(Status::INVALID_PARAMETER);
        // The client sends its NEGOTIATE_MESSAGE a second time, which is refused.
        let draft = exchange.setup.draft(&first, exchange.session_id);
        peer.ask(draft, Via::Plain).await.expect(Status::INVALID_PARAMETER);
        // The error has ended the logon, so its session does not exist any more.
        let draft = exchange.setup.draft(&exchange.token, exchange.session_id);
        peer.ask(draft, Via::Plain).await.expect(Status::USER_SESSION_DELETED);
        for token in [&b""[..], b"\0", &[0x60, 0x84, 0xFF, 0xFF, 0xFF, 0xFF], &[0x30; 2000]] {
            let draft = exchange.setup.draft(token, 0);
            other.ask(draft, Via::Plain).await.expect(Status::INVALID_PARAMETER);
        }
        assert_eq!(world.server.sessions().len(), 1, "the innocent one");
    });
}

#[test]
fn a3_without_a_session_nothing_is_done() {
    in_world(async |world| {
        for dialect in ALL_DIALECTS {
            for session_id in [0, u64::MAX, 0x1234] {
                for command in 0x02..=0x12 {
                    let command = Command(command);
                    let mut peer = world.connect();
                    peer.negotiate(&Offer::only(dialect)).await;
                    let draft = match command {
                        Command::TREE_CONNECT => tree_connect_draft("\\\\frevo\\IPC$"),
                        Command::CANCEL | Command::ECHO => continue,
                        _ => Draft::new(command).body(&[0; 64]),
                    };
                    let draft = draft.session(session_id).tree(1);
                    let reply = peer.ask(draft, Via::Plain).await;
                    assert_eq!(
                        reply.status(),
                        Status::USER_SESSION_DELETED,
                        "{command} in {dialect}"
                    );
                }
            }
        }
    });
}

#[test]
fn a3_a_session_in_progress_is_none_yet() {
    in_world(async |world| {
        let mut peer = world.connect();
        peer.negotiate(&Offer::only(Dialect::SMB_3_0)).await;
        let mut exchange = Exchange::new(&peer, Setup::of("ann"));
        exchange.round(&mut peer).await.expect(Status::MORE_PROCESSING_REQUIRED);
        let draft = tree_connect_draft("\\\\frevo\\data").session(exchange.session_id);
        peer.ask(draft, Via::Plain).await.expect(Status::USER_SESSION_DELETED);
        let logoff = Draft::empty(Command::LOGOFF).session(exchange.session_id);
        peer.ask(logoff, Via::Plain).await.expect(Status::USER_SESSION_DELETED);
        exchange.round(&mut peer).await.ok();
        exchange.logon(&mut peer);
    });
}

/// MS-NLMP 3.2.5.1.2: no user, no response, ANONYMOUS.
fn anonymous() -> Vec<u8> {
    let mut message = SIGNATURE.to_vec();
    message.extend_from_slice(&3_u32.to_le_bytes());
    // The LM response is one zero byte at offset 88, which marks an anonymous logon. The other five
    // fields are empty.
    message.extend_from_slice(&[1, 0, 1, 0, 88, 0, 0, 0]);
    for _ in 0..5 {
        message.extend_from_slice(&[0, 0, 0, 0, 88, 0, 0, 0]);
    }
    let flags = Flags::SUPPORTED.0 | Flags::ANONYMOUS.0;
    message.extend_from_slice(&flags.to_le_bytes());
    message.resize(89, 0);
    NegTokenResp { token: Some(&message), ..NegTokenResp::default() }.encode()
}

#[test]
fn a3_anonymous_is_denied() {
    in_frozen_world(settings(), async |world| {
        let reply = authenticate(world, 1, Setup::of("ann"), |token| *token = anonymous()).await;
        reply.expect(Status::ACCESS_DENIED);
    });
}

/// A user whose session is asked for by another connection's PreviousSessionId
/// keeps it unless that is the same user.
#[test]
fn a3_previous_session_is_only_its_users() {
    in_frozen_world(settings(), async |world| {
        let mut victim = Victim::new(world).await;
        let previous = victim.logon().id;
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        let bob = peer.try_log_on(Setup { previous, ..Setup::of("bob") }).await.unwrap();
        victim.assert_untouched().await;
        // The password is wrong, so the logon must not end the previous session.
        let setup = Setup { previous, password: "wrong".into(), ..Setup::of("ann") };
        peer.try_log_on(setup).await.err().expect("refused").expect(Status::LOGON_FAILURE);
        victim.assert_untouched().await;
        peer.mount(&bob, "bobs").await;
    });
}

/// The claims of the client change nothing in the checks.
#[test]
fn a3_capabilities_and_modes_do_not_matter() {
    in_world(async |world| {
        for capabilities in [0, u32::MAX] {
            for mode in [0, 3, 0xFFFF] {
                let offer = Offer {
                    capabilities: GlobalCapabilities(capabilities),
                    security_mode: SecurityMode(mode),
                    ..Offer::default()
                };
                let (mut peer, mount) = world.session("ann", &offer).await;
                let mut draft = mount.put(Want::file("a3").draft());
                peer.stamp(&mut draft);
                peer.send_frame(&pack(&[draft], Via::Plain)).await;
                peer.reply().await.expect(Status::ACCESS_DENIED);
                let flags = SessionSetupFlags(0xFE);
                peer.try_log_on(Setup { flags, ..Setup::of("bob") }).await.unwrap();
            }
        }
    });
}
