//! Authentication over RPC on a pipe: only the user of the session, signed and sealed.

use frevo_auth::initiator::Step;
use frevo_auth::{Credentials, Entropy, Initiator, Parts, Protection, Secret, Target, Zeroizing};
use frevo_rpc::pdu::{
    Bind, ContextElement, Header, PduFlags, PduKind, Request, parse_fault, split_first,
};
use frevo_rpc::srvsvc::{self, MAX_PREFERRED_LENGTH, ShareEnum, ShareEnumReply};
use frevo_rpc::{AuthLevel, AuthType, FaultStatus, SyntaxId};

use super::pipes::ipc;
use crate::client::world::{in_world, password};
use crate::client::*;

/// A client of an interface, the server service if nothing else is said, that authenticates as `user`.
pub struct Caller {
    pub initiator: Initiator,
    pub level: AuthLevel,
    pub signs_header: bool,
    pub interface: SyntaxId,
}

impl Caller {
    pub fn new(user: &str, password: String, level: AuthLevel, signs_header: bool) -> Self {
        let secret = Secret::Password(Zeroizing::new(password));
        let credentials = Credentials { user: user.to_owned(), domain: String::new(), secret };
        let session_key = Zeroizing::new([0x33; 16]);
        let entropy = Entropy { client_challenge: [7; 8], session_key };
        let initiator = Initiator::new(credentials, Target::default(), entropy);
        Self { initiator, level, signs_header, interface: SyntaxId::SRVSVC }
    }

    fn trailer(&self, pdu: &mut Vec<u8>, token_len: usize) {
        let padding = pdu.len().next_multiple_of(4) - pdu.len();
        pdu.resize(pdu.len() + padding, 0);
        pdu.extend([AuthType::NEGOTIATE.0, self.level.0, padding as u8, 0, 1, 0, 0, 0]);
        let length = (pdu.len() + token_len) as u16;
        pdu[8..10].copy_from_slice(&length.to_le_bytes());
        pdu[10..12].copy_from_slice(&(token_len as u16).to_le_bytes());
    }

    fn carrying(&self, kind: PduKind, token: &[u8]) -> Vec<u8> {
        let transfer = vec![SyntaxId::NDR];
        let context = ContextElement { id: 0, interface: self.interface, transfer };
        let bind = Bind {
            max_xmit_frag: 4280,
            max_recv_frag: 4280,
            assoc_group_id: 0,
            contexts: vec![context],
        };
        let mut pdu = bind.encode(kind, 1);
        if self.signs_header {
            pdu[3] |= PduFlags::PENDING_CANCEL.0;
        }
        self.trailer(&mut pdu, token.len());
        pdu.extend(token);
        pdu
    }

    fn parts(&self, pdu: &[u8]) -> Parts {
        Parts { body: 24..pdu.len() - 8, with_surroundings: self.signs_header }
    }

    pub fn request(&self, protection: &mut Protection, opnum: u16, stub: &[u8]) -> Vec<u8> {
        let request = Request { alloc_hint: 0, context_id: 0, opnum, stub };
        let mut pdu = request.encode(PduFlags::WHOLE, 2);
        let is_sealed = self.level == AuthLevel::PRIVACY;
        self.trailer(&mut pdu, protection.token_len(is_sealed));
        let parts = self.parts(&pdu);
        let token = match is_sealed {
            true => protection.seal(&mut pdu, &parts),
            false => protection.sign(&pdu, &parts),
        };
        pdu.extend(token.unwrap());
        pdu
    }

    pub fn opened(&self, protection: &mut Protection, mut pdu: Vec<u8>) -> Vec<u8> {
        let token = pdu.split_off(pdu.len() - header(&pdu).auth_length as usize);
        let padding = usize::from(pdu[pdu.len() - 6]);
        let parts = self.parts(&pdu);
        let is_right = match self.level {
            AuthLevel::PRIVACY => protection.unseal(&mut pdu, &parts, &token),
            _ => protection.verify(&pdu, &parts, &token),
        };
        assert!(is_right);
        pdu[24..pdu.len() - 8 - padding].to_vec()
    }
}

pub fn header(pdu: &[u8]) -> Header {
    split_first(pdu, u16::MAX).unwrap().unwrap().0
}

fn token_of(pdu: &[u8]) -> &[u8] {
    &pdu[pdu.len() - header(pdu).auth_length as usize..]
}

/// Writes a PDU and reads its answer.
async fn exchange(peer: &mut Peer, mount: &Mount, file: FileId, pdu: &[u8]) -> Vec<u8> {
    peer.write(mount, file, 0, pdu).await;
    peer.read(mount, file, 0, 8192).await
}

/// Authenticates to the end; the last answer.
pub async fn logged_on(
    caller: &mut Caller,
    peer: &mut Peer,
    mount: &Mount,
    file: FileId,
) -> Vec<u8> {
    let now = 1 << 57;
    let first = caller.initiator.initial_token(&[], now).unwrap();
    let answer = exchange(peer, mount, file, &caller.carrying(PduKind::BIND, &first)).await;
    assert_eq!(header(&answer).kind, PduKind::BIND_ACK);
    let Ok(Step::Continue(last)) = caller.initiator.step(token_of(&answer), now) else {
        panic!("no proof")
    };
    exchange(peer, mount, file, &caller.carrying(PduKind::ALTER_CONTEXT, &last)).await
}

#[test]
fn calls_of_the_session_user_are_signed_and_sealed() {
    in_world(async |world| {
        let (mut ann, mount) = ipc(world, "ann").await;
        for level in [AuthLevel::INTEGRITY, AuthLevel::PRIVACY] {
            for signs_header in [false, true] {
                let file = ann.open_file(&mount, &Want::existing("srvsvc")).await;
                let mut caller = Caller::new("ann", password("ann"), level, signs_header);
                let answer = logged_on(&mut caller, &mut ann, &mount, file).await;
                assert_eq!(header(&answer).kind, PduKind::ALTER_CONTEXT_RESP);
                caller.initiator.step(token_of(&answer), 1 << 57).unwrap();
                let mut protection = caller.initiator.protection([1; 16]).unwrap();
                let shares = ShareEnum { level: 1, max_len: MAX_PREFERRED_LENGTH, resume: None };
                let request = caller.request(
                    &mut protection,
                    srvsvc::SHARE_ENUM,
                    &shares.encode("\\\\frevo"),
                );
                let answer = exchange(&mut ann, &mount, file, &request).await;
                let stub = caller.opened(&mut protection, answer);
                let reply = ShareEnumReply::parse(&stub, 1).unwrap();
                assert!(reply.shares.iter().any(|share| share.name == "IPC$"));
                // The pipe has been used with protected calls, so a call without protection is
                // refused.
                let (opnum, stub) = (srvsvc::SHARE_ENUM, &[][..]);
                let plain = Request { alloc_hint: 0, context_id: 0, opnum, stub };
                let plain = plain.encode(PduFlags::WHOLE, 3);
                let answer = exchange(&mut ann, &mount, file, &plain).await;
                assert_eq!(parse_fault(&answer[16..]), Ok(FaultStatus::ACCESS_DENIED));
                ann.close(&mount, file).await;
            }
        }
        ann.expect_alive().await;
    });
}

#[test]
fn another_user_and_a_wrong_password_are_denied() {
    in_world(async |world| {
        let (mut ann, mount) = ipc(world, "ann").await;
        for (user, password) in [("bob", password("bob")), ("ann", String::from("guess"))] {
            let file = ann.open_file(&mount, &Want::existing("srvsvc")).await;
            let mut caller = Caller::new(user, password, AuthLevel::PRIVACY, false);
            let answer = logged_on(&mut caller, &mut ann, &mount, file).await;
            assert_eq!(header(&answer).kind, PduKind::FAULT, "{user}");
            assert_eq!(parse_fault(&answer[16..]), Ok(FaultStatus::ACCESS_DENIED), "{user}");
            ann.close(&mount, file).await;
        }
        ann.expect_alive().await;
    });
}
