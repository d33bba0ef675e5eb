//! P1 and P2: frames, protocol ids, commands and their order.

use crate::client::draft::pack;
use crate::client::files::write_draft;
use crate::client::negotiate::ALL_DIALECTS;
use crate::client::*;
use frevo_proto::limits::{FRAME_BEFORE_AUTHENTICATION, FRAME_BEFORE_NEGOTIATE};

/// A prefix and nothing after it: a server that waits for the rest has allocated.
async fn prefix(peer: &Peer, length: usize) {
    peer.send_bytes(&u32::try_from(length).unwrap().to_be_bytes()).await;
}

/// An ECHO padded to `length`.
fn long_echo(peer: &mut Peer, length: usize) -> Vec<u8> {
    let mut draft = Draft::echo();
    peer.stamp(&mut draft);
    let mut bytes = pack(&[draft], Via::Plain);
    bytes.resize(length, 0);
    bytes
}

#[test]
fn p1_first_byte_not_zero_disconnects() {
    in_world(async |world| {
        // The first byte must be 0. These are the first bytes of NetBIOS session requests,
        // responses and keep-alives, of TLS and of HTTP.
        for first in [1, 0x81, 0x82, 0x85, 0x16, b'G', 0xFF] {
            let mut peer = world.connect();
            peer.send_bytes(&[first, 0, 0, 64]).await;
            peer.expect_disconnect().await;
        }
        // A wrong first byte ends the connection even after a logon.
        let (mut peer, _) = world.session("ann", &Offer::default()).await;
        peer.send_bytes(&[1, 0, 0, 64]).await;
        peer.expect_disconnect().await;
    });
}

#[test]
fn p1_length_before_negotiate_is_capped() {
    in_world(async |world| {
        for length in [FRAME_BEFORE_NEGOTIATE - 1, FRAME_BEFORE_NEGOTIATE] {
            let mut peer = world.connect();
            let mut request = pack(&[Offer::default().draft(peer.guid)], Via::Plain);
            request.resize(length, 0);
            peer.send_frame(&request).await;
            peer.reply().await.ok();
        }
        for length in [FRAME_BEFORE_NEGOTIATE + 1, 0x00FF_FFFF] {
            let mut peer = world.connect();
            prefix(&peer, length).await;
            peer.expect_disconnect().await;
        }
    });
}

#[test]
fn p1_length_before_authentication_is_capped() {
    in_world(async |world| {
        for length in [FRAME_BEFORE_AUTHENTICATION - 1, FRAME_BEFORE_AUTHENTICATION] {
            let mut peer = world.connect();
            peer.negotiate(&Offer::default()).await;
            let request = long_echo(&mut peer, length);
            peer.send_frame(&request).await;
            peer.reply().await.ok();
        }
        for length in [FRAME_BEFORE_AUTHENTICATION + 1, 0x00FF_FFFF] {
            let mut peer = world.connect();
            peer.negotiate(&Offer::default()).await;
            prefix(&peer, length).await;
            peer.expect_disconnect().await;
        }
    });
}

/// MS-SMB2 3.3.5.2: the largest payload and 256 bytes; a frame may have seal
/// and compression besides.
#[test]
fn p1_length_after_authentication_is_capped() {
    let max = 256 * 1024;
    let settings = Settings { max_io: max, max_transact: max, ..settings() };
    in_world_with(settings, async |world| {
        let message = max as usize + 256;
        let write = |mount: &Mount, file: FileId, length: usize| {
            mount.put(write_draft(file, 0, &vec![0; length - 112])).charge(5)
        };
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("p1")).await;
        // A WRITE that is as long as the connection's limit is refused. A message that is one byte
        // longer ends the connection.
        let refused = peer.ask(write(&mount, file, message), mount.via()).await;
        refused.expect(Status::INVALID_PARAMETER);
        peer.send(vec![write(&mount, file, message + 1)], mount.via()).await;
        peer.expect_disconnect().await;

        let (mut peer, _) = world.session("ann", &Offer::default()).await;
        prefix(&peer, message + 52 + 16 + 1).await;
        peer.expect_disconnect().await;
    });
}

#[test]
fn p1_commands_without_payload_are_short() {
    in_world(async |world| {
        let limit = 68 * 1024;
        let (mut peer, _) = world.session("ann", &Offer::default()).await;
        for length in [limit - 1, limit] {
            let request = long_echo(&mut peer, length);
            peer.send_frame(&request).await;
            peer.reply().await.ok();
        }
        let request = long_echo(&mut peer, limit + 1);
        peer.send_frame(&request).await;
        peer.expect_disconnect().await;
    });
}

#[test]
fn p2_unknown_protocol_id_disconnects() {
    in_world(async |world| {
        for id in [*b"\0SMB", *b"\xFESMX", *b"\xF0SMB", [0; 4], *b"GET "] {
            for negotiated in [false, true] {
                let mut peer = world.connect();
                if negotiated {
                    peer.negotiate(&Offer::default()).await;
                }
                let mut request = Draft::echo().bytes();
                request[..4].copy_from_slice(&id);
                peer.send_frame(&request).await;
                peer.expect_disconnect().await;
            }
        }
    });
}

/// Compression was not negotiated, and a seal needs a session.
#[test]
fn p2_transforms_out_of_place_disconnect() {
    in_world(async |world| {
        for id in [*b"\xFDSMB", *b"\xFCSMB"] {
            for negotiated in [false, true] {
                let mut peer = world.connect();
                if negotiated {
                    peer.negotiate(&Offer::default()).await;
                }
                let mut request = vec![0; 200];
                request[..4].copy_from_slice(&id);
                peer.send_frame(&request).await;
                peer.expect_disconnect().await;
            }
        }
        let (mut peer, _) = world.session("ann", &Offer::default()).await;
        peer.send_frame(&[b"\xFCSMB", &[0; 100][..]].concat()).await;
        peer.expect_disconnect().await;
    });
}

#[test]
fn p2_unknown_command_disconnects() {
    in_world(async |world| {
        for command in [0x13, 0x14, 0x7F, 0xFFFF] {
            let (mut peer, mount) = world.session("ann", &Offer::default()).await;
            peer.send(vec![mount.put(Draft::empty(Command(command)))], mount.via()).await;
            peer.expect_disconnect().await;
        }
    });
}

#[test]
fn p2_messages_shorter_than_a_header_disconnect() {
    in_world(async |world| {
        for length in [0, 1, 3, 4, 16, 32, 63] {
            let mut peer = world.connect();
            peer.negotiate(&Offer::default()).await;
            let request = long_echo(&mut peer, 68);
            peer.send_frame(&request[..length]).await;
            peer.expect_disconnect().await;
        }
    });
}

#[test]
fn p2_wrong_header_size_disconnects() {
    in_world(async |world| {
        for size in [0_u16, 63, 65, 0xFFFF] {
            let mut peer = world.connect();
            peer.negotiate(&Offer::default()).await;
            let mut request = long_echo(&mut peer, 68);
            request[4..6].copy_from_slice(&size.to_le_bytes());
            peer.send_frame(&request).await;
            peer.expect_disconnect().await;
        }
    });
}

#[test]
fn p2_a_response_is_no_request() {
    in_world(async |world| {
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        let draft = Draft::echo().flags(HeaderFlags::SERVER_TO_REDIR);
        peer.send(vec![draft], Via::Plain).await;
        peer.expect_disconnect().await;
    });
}

#[test]
fn p2_any_command_before_negotiate_disconnects() {
    in_world(async |world| {
        for command in 1..=0x12 {
            let mut peer = world.connect();
            peer.send(vec![Draft::new(Command(command)).body(&[0; 64])], Via::Plain).await;
            peer.expect_disconnect().await;
        }
    });
}

#[test]
fn p2_second_negotiate_disconnects() {
    in_world(async |world| {
        for dialect in ALL_DIALECTS {
            let mut peer = world.connect();
            peer.negotiate(&Offer::only(dialect)).await;
            let draft = Offer::only(dialect).draft(peer.guid);
            peer.send(vec![draft], Via::Plain).await;
            peer.expect_disconnect().await;
        }
        // A second NEGOTIATE ends the connection, even with a session's id.
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let draft = Offer::default().draft(peer.guid);
        peer.send(vec![mount.put(draft)], Via::Plain).await;
        peer.expect_disconnect().await;
    });
}

#[test]
fn p2_signed_negotiate_is_refused() {
    in_world(async |world| {
        let mut peer = world.connect();
        let draft = Offer::default().draft(peer.guid).flags(HeaderFlags::SIGNED);
        peer.ask(draft, Via::Plain).await.expect(Status::INVALID_PARAMETER);
        // The signed NEGOTIATE was refused and had no effect, so the client can negotiate without a
        // signature.
        peer.negotiate(&Offer::default()).await;
        peer.log_on("ann").await;
    });
}

/// SMB1's NEGOTIATE with dialect strings.
fn smb1(dialects: &[&str]) -> Vec<u8> {
    let mut frame = b"\xFFSMB\x72".to_vec();
    frame.resize(32, 0);
    let list: Vec<u8> = dialects.iter().flat_map(|d| [&[2], d.as_bytes(), &[0]].concat()).collect();
    frame.push(0);
    frame.extend_from_slice(&u16::try_from(list.len()).unwrap().to_le_bytes());
    frame.extend_from_slice(&list);
    frame
}

#[test]
fn p2_smb1_alone_disconnects() {
    in_world(async |world| {
        let truncated = |n: usize| smb1(&["SMB 2.???"])[..n].to_vec();
        let mut words = smb1(&["SMB 2.???"]);
        words[32] = 1;
        let mut count = smb1(&["SMB 2.???"]);
        count[33..35].copy_from_slice(&[0xFF, 0xFF]);
        let mut session_setup = smb1(&["SMB 2.???"]);
        session_setup[4] = 0x73;
        for frame in [
            smb1(&["NT LM 0.12"]),
            smb1(&["PC NETWORK PROGRAM 1.0", "LANMAN1.0", "NT LM 0.12"]),
            smb1(&[]),
            smb1(&["SMB 2.??"]),
            truncated(4),
            truncated(33),
            truncated(40),
            words,
            count,
            session_setup,
        ] {
            let mut peer = world.connect();
            peer.send_frame(&frame).await;
            peer.expect_disconnect().await;
        }
    });
}

#[test]
fn p2_smb1_after_smb2_disconnects() {
    in_world(async |world| {
        for dialects in [&["SMB 2.???"][..], &["SMB 2.002"], &["NT LM 0.12"]] {
            let mut peer = world.connect();
            peer.negotiate(&Offer::default()).await;
            peer.send_frame(&smb1(dialects)).await;
            peer.expect_disconnect().await;
            let (mut peer, _) = world.session("ann", &Offer::default()).await;
            peer.send_frame(&smb1(dialects)).await;
            peer.expect_disconnect().await;
        }
        // SMB 1's NEGOTIATE is accepted only once, so the second one ends the connection.
        let mut peer = world.connect();
        peer.send_frame(&smb1(&["SMB 2.???"])).await;
        peer.reply().await.ok();
        peer.send_frame(&smb1(&["SMB 2.???"])).await;
        peer.expect_disconnect().await;
    });
}

/// With the default floor 2.002 is not there to be had.
#[test]
fn p2_multi_protocol_respects_the_floor() {
    let floor = Settings { min_dialect: Dialect::SMB_3_0, ..settings() };
    in_world_with(floor, async |world| {
        let mut peer = world.connect();
        peer.send_frame(&smb1(&["NT LM 0.12", "SMB 2.002"])).await;
        peer.expect_disconnect().await;
        let mut peer = world.connect();
        peer.send_frame(&smb1(&["NT LM 0.12", "SMB 2.002", "SMB 2.???"])).await;
        peer.reply().await.ok();
        peer.next_id = 1;
        let refused = peer.try_negotiate(&Offer::only(Dialect::SMB_2_1)).await;
        refused.expect(Status::NOT_SUPPORTED);
    });
}
