//! Authentication over RPC with NTLM in SPNEGO, signed and sealed calls, and calls whose answers
//! come later.

use super::*;
use crate::endpoint::{Token, Verdict};
use crate::limits::{MAX_FRAG, MAX_FRAGMENTS, MAX_PENDING, MAX_TOKEN_PDU};
use crate::pdu::*;
use crate::samr::{CHANGE_PASSWORD2, ChangePassword, PasswordChange};
use crate::security::Trailer;
use crate::{AuthLevel, AuthType, FaultStatus};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use frevo_auth::{
    Acceptor, AcceptorConfig, Accounts, Credentials, Entropy, Initiator, NtHash, Parts, Protection,
    Secret, Target, Zeroizing, acceptor, initiator,
};

const CONTEXT: u32 = 0x1_0007;
/// PFC_SUPPORT_HEADER_SIGN in a bind.
const HEADER_SIGN: u8 = PduFlags::PENDING_CANCEL.0;

struct Ann;

impl Accounts for Ann {
    fn account(&self, user: &str, _: &str) -> Option<frevo_auth::Account> {
        let nt_hash = NtHash::from_password("secret");
        (user == "ann").then(|| frevo_auth::Account {
            name: String::from("ann"),
            nt_hash,
            rules: frevo_auth::AccountRules::default(),
        })
    }
}

/// A client that authenticates as ann.
struct Peer {
    initiator: Initiator,
    protection: Option<Protection>,
    kind: AuthType,
    level: AuthLevel,
    flags: u8,
}

/// A logon of ann.
pub(super) fn initiator(password: &str) -> Initiator {
    let credentials = Credentials {
        user: String::from("ann"),
        domain: String::new(),
        secret: Secret::Password(Zeroizing::new(String::from(password))),
    };
    let target = Target {
        spn: String::from("cifs/box"),
        channel_bindings: None,
        workstation: String::new(),
    };
    let entropy = Entropy { client_challenge: [1; 8], session_key: Zeroizing::new([0x55; 16]) };
    Initiator::new(credentials, target, entropy)
}

impl Peer {
    fn new(level: AuthLevel, flags: u8, password: &str) -> Self {
        let initiator = initiator(password);
        Self { initiator, protection: None, kind: AuthType::NEGOTIATE, level, flags }
    }

    /// A PDU with a token.
    fn carrying(&self, kind: PduKind, token: &[u8]) -> Vec<u8> {
        let context =
            ContextElement { id: 0, interface: SyntaxId::SAMR, transfer: vec![SyntaxId::NDR] };
        let bind = Bind {
            max_xmit_frag: 5840,
            max_recv_frag: 5840,
            assoc_group_id: 0,
            contexts: vec![context],
        };
        let mut pdu = bind.encode(kind, 1);
        if kind == PduKind::AUTH3 {
            pdu.truncate(20);
        }
        pdu[3] |= self.flags;
        self.trailer(&mut pdu, 4, token.len());
        pdu.extend(token);
        pdu
    }

    fn trailer(&self, pdu: &mut Vec<u8>, alignment: usize, token_len: usize) {
        let padding = pdu.len().next_multiple_of(alignment) - pdu.len();
        pdu.resize(pdu.len() + padding, 0);
        let trailer = Trailer { kind: self.kind, level: self.level, context: CONTEXT };
        trailer.append(pdu, padding, token_len);
    }

    fn parts(&self, pdu: &[u8]) -> Parts {
        Parts { body: 24..pdu.len() - 8, with_surroundings: self.flags & HEADER_SIGN != 0 }
    }

    /// A request as the client protects it.
    fn request(&mut self, call_id: u32, opnum: u16, stub: &[u8]) -> Vec<u8> {
        let request = Request { alloc_hint: 0, context_id: 0, opnum, stub };
        let mut pdu = request.encode(PduFlags::WHOLE, call_id);
        let is_sealed = self.level == AuthLevel::PRIVACY;
        let length = self.protection.as_ref().unwrap().token_len(is_sealed);
        self.trailer(&mut pdu, 4, length);
        let parts = self.parts(&pdu);
        let protection = self.protection.as_mut().unwrap();
        let token = if is_sealed {
            protection.seal(&mut pdu, &parts).unwrap()
        } else {
            protection.sign(&pdu, &parts).unwrap()
        };
        pdu.extend(token);
        pdu
    }

    /// Returns the stub data of a protected response.
    fn opened(&mut self, mut pdu: Vec<u8>) -> Vec<u8> {
        let length = usize::from(u16::from_le_bytes([pdu[10], pdu[11]]));
        let token = pdu.split_off(pdu.len() - length);
        let padding = usize::from(pdu[pdu.len() - 6]);
        let parts = self.parts(&pdu);
        let protection = self.protection.as_mut().unwrap();
        let is_right = match self.level {
            AuthLevel::PRIVACY => protection.unseal(&mut pdu, &parts, &token),
            _ => protection.verify(&pdu, &parts, &token),
        };
        assert!(is_right, "the response is protected");
        pdu[24..pdu.len() - 8 - padding].to_vec()
    }
}

/// The carrier's part: judges the tokens of an endpoint.
pub(super) struct Judge(Acceptor);

impl Judge {
    pub(super) fn new() -> Self {
        Self(Acceptor::new(Arc::new(AcceptorConfig::standalone("box")), [9; 8]))
    }

    pub(super) fn judge(&mut self, token: &Token) -> Verdict {
        match self.0.step(&token.token, 1 << 57, &Ann) {
            Ok(acceptor::Step::Continue(answer)) => Verdict::Continue(answer),
            Ok(acceptor::Step::Done(done)) => {
                let protection = done.protection([3; 16]).map(Box::new);
                Verdict::Done(done.token, protection)
            }
            _ => Verdict::Refused,
        }
    }
}

fn next(endpoint: &mut End) -> (Header, Vec<u8>) {
    let read = endpoint.read(usize::MAX).unwrap();
    let (header, _, rest) = split_first(&read.data, u16::MAX).unwrap().unwrap();
    assert!(rest.is_empty());
    (header, read.data)
}

fn token_of(header: Header, pdu: &[u8]) -> &[u8] {
    &pdu[pdu.len() - usize::from(header.auth_length)..]
}

/// Binds with a token, and sends the last one in a PDU of this kind. The verdict on the last token
/// is still due.
fn asking(peer: &mut Peer, last: PduKind) -> (End, Judge) {
    asking_on(peer, last, &crate::samr::INTERFACE)
}

fn asking_on(peer: &mut Peer, last: PduKind, interface: &'static Interface) -> (End, Judge) {
    asking_after(peer, last, interface, |_| {})
}

/// As [`asking_on`], of a client that sees the answer to its first token after this change.
fn asking_after(
    peer: &mut Peer,
    last: PduKind,
    interface: &'static Interface,
    change: impl FnOnce(&mut [u8]),
) -> (End, Judge) {
    let mut end = End::new(interface, 1);
    let mut judge = Judge::new();
    let first = peer.initiator.initial_token(&[], 1 << 57).unwrap();
    end.write(&peer.carrying(PduKind::BIND, &first), &fixture()).unwrap();
    assert!(end.read(100).is_none(), "the token is not judged");
    let token = end.token().unwrap();
    assert!(token.is_first && end.token().is_none());
    assert_eq!((token.kind, token.level), (AuthType::NEGOTIATE, peer.level));
    let verdict = judge.judge(&token);
    end.judge(verdict);
    let (header, mut pdu) = next(&mut end);
    change(&mut pdu);
    assert_eq!(header.kind, PduKind::BIND_ACK);
    assert_eq!(header.flags.0 & HEADER_SIGN, peer.flags, "header signing is agreed on");
    let step = peer.initiator.step(token_of(header, &pdu), 1 << 57).unwrap();
    let initiator::Step::Continue(next_token) = step else { panic!("no proof") };
    end.write(&peer.carrying(last, &next_token), &fixture()).unwrap();
    (end, judge)
}

fn accepted(peer: &mut Peer) -> End {
    accepted_on(peer, &crate::samr::INTERFACE)
}

fn accepted_on(peer: &mut Peer, interface: &'static Interface) -> End {
    let (mut end, mut judge) = asking_on(peer, PduKind::ALTER_CONTEXT, interface);
    let token = end.token().unwrap();
    assert!(!token.is_first);
    let verdict = judge.judge(&token);
    end.judge(verdict);
    let (header, pdu) = next(&mut end);
    assert_eq!(header.kind, PduKind::ALTER_CONTEXT_RESP);
    let step = peer.initiator.step(token_of(header, &pdu), 1 << 57).unwrap();
    assert!(matches!(step, initiator::Step::Done(_)));
    peer.protection = Some(peer.initiator.protection([4; 16]).unwrap());
    end
}

fn is_denied(mut end: End, bytes: &[u8]) {
    end.write(bytes, &fixture()).unwrap();
    let (header, pdu) = next(&mut end);
    let status = parse_fault(&pdu[16..]);
    assert_eq!((header.kind, status), (PduKind::FAULT, Ok(FaultStatus::ACCESS_DENIED)));
    assert!(end.changes.is_empty());
    assert_eq!(end.write(&[0], &fixture()), Err(PipeError::Disconnected));
}

fn change() -> ChangePassword {
    ChangePassword { user: "ann".into(), password: Box::new([7; 516]), proof: [9; 16] }
}

fn peers() -> impl Iterator<Item = Peer> {
    let levels = [AuthLevel::INTEGRITY, AuthLevel::PRIVACY];
    let all = levels.into_iter().flat_map(|level| [0, HEADER_SIGN].map(|flags| (level, flags)));
    all.map(|(level, flags)| Peer::new(level, flags, "secret"))
}

#[test]
fn calls_are_signed_and_sealed_both_ways() {
    for mut peer in peers() {
        let mut end = accepted(&mut peer);
        for call_id in 2..5 {
            let stub = change().encode("\\\\box");
            let pdu = peer.request(call_id, CHANGE_PASSWORD2, &stub);
            assert_eq!(pdu[24..60] == stub[..36], peer.level == AuthLevel::INTEGRITY);
            end.write(&pdu, &fixture()).unwrap();
            assert!(end.read(100).is_none(), "the answer comes later");
            let (call, asked) = end.changes.pop().unwrap();
            assert_eq!((call.id, call.level), (call_id, peer.level));
            assert_eq!(asked, PasswordChange::User2(change()));
            end.complete(call_id, Ok(vec![1, 2, 3, 4]));
            let (header, pdu) = next(&mut end);
            assert_eq!((header.kind, header.call_id), (PduKind::RESPONSE, call_id));
            assert_eq!(peer.opened(pdu), [1, 2, 3, 4]);
            end.complete(call_id, Ok(Vec::new()));
            assert!(end.read(100).is_none(), "a call has one answer");
        }
    }
}

/// At the level of connect the client proves who it is, and its calls are as they are.
#[test]
fn on_a_pipe_a_logon_may_be_all() {
    let mut peer = Peer::new(AuthLevel::CONNECT, 0, "secret");
    let mut end = accepted(&mut peer);
    let stub = change().encode("\\\\box");
    let request = Request { alloc_hint: 0, context_id: 0, opnum: CHANGE_PASSWORD2, stub: &stub };
    let mut pdu = request.encode(PduFlags::WHOLE, 2);
    end.write(&pdu, &fixture()).unwrap();
    let (call, _) = end.changes.pop().unwrap();
    assert_eq!((call.id, call.level), (2, AuthLevel::CONNECT));
    end.complete(2, Ok(vec![1, 2, 3, 4]));
    let (header, answer) = next(&mut end);
    assert_eq!((header.kind, header.auth_length), (PduKind::RESPONSE, 0));
    assert_eq!(answer[24..], [1, 2, 3, 4]);
    // Some clients send a verifier that verifies nothing.
    pdu[12] = 3;
    peer.trailer(&mut pdu, 4, 16);
    pdu.extend([0; 16]);
    end.write(&pdu, &fixture()).unwrap();
    assert_eq!(end.changes.pop().unwrap().0.id, 3);
    end.complete(3, Ok(Vec::new()));
    next(&mut end);
    // Before the end of the logon no call is answered.
    let mut other = Peer::new(AuthLevel::CONNECT, 0, "wrong");
    let (mut end, mut judge) = asking(&mut other, PduKind::AUTH3);
    let token = end.token().unwrap();
    let verdict = judge.judge(&token);
    end.judge(verdict);
    is_denied(end, &request.encode(PduFlags::WHOLE, 2));
}

/// Changes NTLM's CHALLENGE_MESSAGE (MS-NLMP 2.2.1.2) in a PDU so that its client asks neither for
/// signing nor for sealing, and sends no MIC, which would tell of the change.
fn weakened(pdu: &mut [u8]) {
    let starts = |part: &[u8]| part == b"NTLMSSP\0";
    let at = pdu.windows(8).position(starts).unwrap();
    let message = &mut pdu[at..];
    // NTLMSSP_NEGOTIATE_SIGN and NTLMSSP_NEGOTIATE_SEAL
    message[20] &= !0x30;
    let mut at = u32::from_le_bytes(message[44..48].try_into().unwrap()) as usize;
    // MsvAvTimestamp becomes a pair that nobody knows.
    while message[at] != 7 {
        at += 4 + usize::from(message[at + 2]);
    }
    message[at] = 0x7F;
}

/// NTLM agrees on no protection with a client that asks neither for signing nor for sealing. For a logon
/// alone, none is needed.
#[test]
fn a_logon_alone_needs_no_protection() {
    let refused = |level, last| {
        let mut peer = Peer::new(level, 0, "secret");
        let (mut end, mut judge) = asking_after(&mut peer, last, &crate::samr::INTERFACE, weakened);
        let verdict = judge.judge(&end.token().unwrap());
        assert!(matches!(verdict, Verdict::Done(_, None)));
        end.judge(verdict);
        if last == PduKind::ALTER_CONTEXT {
            let (header, _) = next(&mut end);
            if header.kind == PduKind::FAULT {
                assert!(end.is_closed());
                return true;
            }
            assert_eq!(header.kind, PduKind::ALTER_CONTEXT_RESP);
        }
        let stub = change().encode("\\\\box");
        let opnum = CHANGE_PASSWORD2;
        let request = Request { alloc_hint: 0, context_id: 0, opnum, stub: &stub };
        end.write(&request.encode(PduFlags::WHOLE, 2), &fixture()).unwrap();
        let Some((call, _)) = end.changes.pop() else {
            let (_, pdu) = next(&mut end);
            assert_eq!(parse_fault(&pdu[16..]), Ok(FaultStatus::ACCESS_DENIED));
            return true;
        };
        assert_eq!((call.id, call.level), (2, level));
        end.complete(2, Ok(vec![1, 2, 3, 4]));
        let (header, answer) = next(&mut end);
        assert_eq!((header.kind, header.auth_length), (PduKind::RESPONSE, 0));
        assert_eq!(answer[24..], [1, 2, 3, 4]);
        false
    };
    for last in [PduKind::ALTER_CONTEXT, PduKind::AUTH3] {
        assert!(!refused(AuthLevel::CONNECT, last), "{last}");
        assert!(refused(AuthLevel::INTEGRITY, last) && refused(AuthLevel::PRIVACY, last), "{last}");
    }
}

/// The fragments of a long answer stay within the client's limit with their tokens.
#[test]
fn a_long_answer_is_protected_in_fragments() {
    for mut peer in peers() {
        let mut end = accepted(&mut peer);
        let call = peer.request(2, CHANGE_PASSWORD2, &change().encode(""));
        end.write(&call, &fixture()).unwrap();
        let long: Vec<u8> = (0..20_000_u32).map(|n| n as u8).collect();
        end.complete(2, Ok(long.clone()));
        let mut whole = Vec::new();
        while end.unread() > 0 {
            let (header, pdu) = next(&mut end);
            assert!(header.frag_length <= MAX_FRAG);
            whole.extend(peer.opened(pdu));
        }
        assert_eq!(whole, long);
    }
}

#[test]
fn auth3_has_no_answer() {
    let mut peer = Peer::new(AuthLevel::PRIVACY, 0, "secret");
    let (mut end, mut judge) = asking(&mut peer, PduKind::AUTH3);
    let verdict = judge.judge(&end.token().unwrap());
    let Verdict::Done(last, protection) = verdict else { panic!("refused") };
    end.judge(Verdict::Done(Vec::new(), protection));
    assert!(end.read(100).is_none());
    peer.initiator.step(&last, 1 << 57).unwrap();
    peer.protection = peer.initiator.protection([4; 16]);
    end.write(&peer.request(2, CHANGE_PASSWORD2, &change().encode("")), &fixture()).unwrap();
    assert_eq!(end.changes.len(), 1);
}

#[test]
fn without_a_right_proof_nothing_is_answered() {
    // MS-RPCE 3.3.1.5.2.1: alter_context has an answer, so a wrong proof gets a fault at once;
    // auth3 has none, so the fault answers the first request.
    let mut wrong = Peer::new(AuthLevel::PRIVACY, 0, "guess");
    let (mut end, mut judge) = asking(&mut wrong, PduKind::ALTER_CONTEXT);
    let verdict = judge.judge(&end.token().unwrap());
    assert!(matches!(verdict, Verdict::Refused));
    end.judge(verdict);
    assert_eq!(parse_fault(&next(&mut end).1[16..]), Ok(FaultStatus::ACCESS_DENIED));
    assert!(end.is_closed());
    let mut wrong = Peer::new(AuthLevel::PRIVACY, 0, "guess");
    let (mut end, mut judge) = asking(&mut wrong, PduKind::AUTH3);
    let verdict = judge.judge(&end.token().unwrap());
    end.judge(verdict);
    let request = Request { alloc_hint: 0, context_id: 0, opnum: 64, stub: &[] };
    is_denied(end, &request.encode(PduFlags::WHOLE, 2));
}

#[test]
fn a_call_that_is_not_protected_as_agreed_is_denied() {
    for mut peer in peers() {
        let plain = Request { alloc_hint: 0, context_id: 0, opnum: 64, stub: &[0; 8] };
        is_denied(accepted(&mut peer), &plain.encode(PduFlags::WHOLE, 2));
    }
    let protected = |flags: u8, level| {
        let mut peer = Peer::new(level, flags, "secret");
        let end = accepted(&mut peer);
        let pdu = peer.request(2, CHANGE_PASSWORD2, &change().encode(""));
        (end, pdu)
    };
    for level in [AuthLevel::INTEGRITY, AuthLevel::PRIVACY] {
        let length = protected(0, level).1.len();
        // A changed byte in the call ID, the operation, the stub, the level, the context or the
        // token must be noticed.
        for at in [12, 22, 24, 100, length - 30, length - 23, length - 20, length - 1] {
            let (end, mut pdu) = protected(HEADER_SIGN, level);
            pdu[at] ^= 1;
            is_denied(end, &pdu);
        }
        // A wrong length of the padding, or of the token, must be noticed.
        for (at, value) in [(length - 22, 255), (10, 15), (10, 17), (11, 0xFF)] {
            let (end, mut pdu) = protected(HEADER_SIGN, level);
            pdu[at] = value;
            is_denied(end, &pdu);
        }
        // The client sends the same protected call again. The repetition must be refused.
        let (mut end, pdu) = protected(HEADER_SIGN, level);
        end.write(&pdu, &fixture()).unwrap();
        end.complete(2, Ok(Vec::new()));
        next(&mut end);
        end.changes.clear();
        is_denied(end, &pdu);
    }
}

#[test]
fn the_next_pdu_waits_for_the_verdict() {
    let mut peer = Peer::new(AuthLevel::PRIVACY, 0, "secret");
    let (mut end, mut judge) = asking(&mut peer, PduKind::AUTH3);
    assert_eq!(end.write_some(b"more", &fixture()), Ok(&b"more"[..]));
    let verdict = judge.judge(&end.token().unwrap());
    end.judge(verdict);
    assert_eq!(end.write_some(b"more", &fixture()), Ok(&[][..]));
    // An auth3 with a token is refused if the authentication is complete, or if it never began.
    let mut end = accepted(&mut Peer::new(AuthLevel::PRIVACY, 0, "secret"));
    let peer = Peer::new(AuthLevel::PRIVACY, 0, "secret");
    end.write(&peer.carrying(PduKind::AUTH3, b"proof"), &fixture()).unwrap();
    assert!(end.is_closed());
    let (_, mut end) = bound(&crate::samr::INTERFACE, &fixture());
    end.write(&peer.carrying(PduKind::AUTH3, b"proof"), &fixture()).unwrap();
    assert!(end.is_closed());
}

/// Integrity and privacy are offered, on a pipe also a logon alone, with SPNEGO and NTLM, with Kerberos
/// where there are keys for tickets, and only where the carrier wants it. The client may try without.
#[test]
fn other_levels_and_providers_are_refused() {
    let refused_on = |kind, level, terms| {
        let peer = Peer { kind, ..Peer::new(level, 0, "secret") };
        let mut end = End::on(terms);
        end.write(&peer.carrying(PduKind::BIND, b"token"), &fixture()).unwrap();
        if end.token().is_some() {
            return false;
        }
        let (header, pdu) = next(&mut end);
        let reason = RejectReason::AUTHENTICATION_TYPE_NOT_RECOGNIZED;
        assert_eq!((header.kind, parse_bind_nak(&pdu[16..])), (PduKind::BIND_NAK, Ok(reason)));
        assert!(!end.is_closed());
        true
    };
    let pipe = || Terms::of_pipe(&crate::samr::INTERFACE, 1);
    let port = || Terms::of_port(vec![&crate::samr::INTERFACE], 49_152, 1);
    let refused =
        |kind, level, authenticates| refused_on(kind, level, Terms { authenticates, ..pipe() });
    for level in (0..10).map(AuthLevel) {
        let protects = matches!(level, AuthLevel::INTEGRITY | AuthLevel::PRIVACY);
        let is_offered = protects || level == AuthLevel::CONNECT;
        assert_eq!(refused(AuthType::NEGOTIATE, level, true), !is_offered, "{level}");
        assert_eq!(refused_on(AuthType::NEGOTIATE, level, port()), !protects, "{level}");
        assert!(refused(AuthType::NEGOTIATE, level, false));
        let with_keys = pipe().with_kerberos(true);
        assert_eq!(refused_on(AuthType::KERBEROS, level, with_keys), !is_offered, "{level}");
    }
    assert!(!refused(AuthType::NTLM, AuthLevel::PRIVACY, true));
    for kind in [0, 1, 14, 16, 68, 255].map(AuthType) {
        assert!(refused(kind, AuthLevel::PRIVACY, true), "{kind}");
    }
}

/// An interface that demands a level refuses calls below it, and answers those at it.
#[test]
fn an_interface_demands_a_level() {
    static DEMANDING: Interface = Interface {
        syntax: SyntaxId::SAMR,
        name: "demanding",
        pipes: &["demanding"],
        secondary_address: "",
        least_level: AuthLevel::PRIVACY,
        level_on_tcp: None,
    };
    let is_answered = |end: &mut End, pdu: &[u8]| {
        end.write(pdu, &fixture()).unwrap();
        if end.changes.is_empty() {
            let status = parse_fault(&next(end).1[16..]);
            assert_eq!(status, Ok(FaultStatus::ACCESS_DENIED));
        }
        !end.changes.is_empty()
    };
    let stub = change().encode("");
    let plain = Request { alloc_hint: 0, context_id: 0, opnum: CHANGE_PASSWORD2, stub: &stub };
    let (_, mut end) = bound(&DEMANDING, &fixture());
    assert!(!is_answered(&mut end, &plain.encode(PduFlags::WHOLE, 2)));
    let mut end = End::on(Terms::of_port(vec![&crate::samr::INTERFACE], 49_152, 1));
    end.write(&Client::new(SyntaxId::SAMR).bind(), &fixture()).unwrap();
    next(&mut end);
    assert!(!is_answered(&mut end, &plain.encode(PduFlags::WHOLE, 2)), "the carrier demands it");
    for (level, expected) in [(AuthLevel::INTEGRITY, false), (AuthLevel::PRIVACY, true)] {
        let mut peer = Peer::new(level, 0, "secret");
        let mut end = accepted_on(&mut peer, &DEMANDING);
        let pdu = peer.request(2, CHANGE_PASSWORD2, &stub);
        assert_eq!(is_answered(&mut end, &pdu), expected, "{level}");
    }
}

fn pending(end: &mut End, call_id: u32) {
    let stub = change().encode("");
    let request = Request { alloc_hint: 0, context_id: 0, opnum: CHANGE_PASSWORD2, stub: &stub };
    end.write(&request.encode(PduFlags::WHOLE, call_id), &fixture()).unwrap();
}

#[test]
fn pending_calls_are_bounded_completed_and_cancelled() {
    let (_, mut end) = bound(&crate::samr::INTERFACE, &fixture());
    let count = MAX_PENDING as u32;
    for call_id in 1..=count + 1 {
        pending(&mut end, call_id);
    }
    assert_eq!((end.changes.len(), end.endpoint.pending().count()), (MAX_PENDING, MAX_PENDING));
    let (header, pdu) = next(&mut end);
    assert_eq!(header.call_id, count + 1);
    assert_eq!(parse_fault(&pdu[16..]), Ok(FaultStatus::SERVER_TOO_BUSY));
    // Pending calls may complete in any order, and other calls are answered while they wait.
    end.complete(3, Ok(vec![5; 4]));
    assert_eq!(next(&mut end).0.call_id, 3);
    let of_kind = |kind: PduKind, call_id| {
        let mut pdu = Request { alloc_hint: 0, context_id: 0, opnum: 0, stub: &[] }
            .encode(PduFlags::WHOLE, call_id);
        pdu[2] = kind.0;
        pdu
    };
    end.write(&of_kind(PduKind::CO_CANCEL, 4), &fixture()).unwrap();
    let (header, pdu) = next(&mut end);
    assert_eq!((header.call_id, parse_fault(&pdu[16..])), (4, Ok(FaultStatus::CANCEL)));
    end.write(&of_kind(PduKind::ORPHANED, 5), &fixture()).unwrap();
    assert!(end.read(100).is_none());
    assert_eq!(end.cancelled, [4, 5]);
    for call_id in [3, 4, 5] {
        end.complete(call_id, Ok(Vec::new()));
        assert!(end.read(100).is_none(), "{call_id} is answered or given up");
    }
    // A new call must not have the ID of a pending call.
    pending(&mut end, 6);
    assert_eq!(parse_fault(&next(&mut end).1[16..]), Ok(FaultStatus::PROTO_ERROR));
    assert!(end.is_closed() && end.endpoint.pending().count() == 0);
}

/// A bind with a long token is taken; other PDUs are as short as bind_ack tells.
#[test]
fn tickets_make_long_binds() {
    let peer = Peer::new(AuthLevel::PRIVACY, 0, "secret");
    let overhead = peer.carrying(PduKind::BIND, &[]).len();
    for (excess, is_taken) in [(0, true), (1, false)] {
        let token = vec![7; usize::from(MAX_TOKEN_PDU) - overhead + excess];
        let mut end = End::new(&crate::samr::INTERFACE, 1);
        end.write(&peer.carrying(PduKind::BIND, &token), &fixture()).unwrap();
        assert_eq!((end.token().is_some(), end.is_closed()), (is_taken, !is_taken));
    }
}

#[test]
fn fragments_that_never_end_are_ended() {
    let (_, mut end) = bound(&crate::samr::INTERFACE, &fixture());
    let fragment =
        |flags| Request { alloc_hint: 0, context_id: 0, opnum: 64, stub: &[] }.encode(flags, 2);
    end.write(&fragment(PduFlags::FIRST_FRAG), &fixture()).unwrap();
    for _ in 1..MAX_FRAGMENTS {
        end.write(&fragment(PduFlags::EMPTY), &fixture()).unwrap();
    }
    assert!(!end.is_closed());
    end.write(&fragment(PduFlags::EMPTY), &fixture()).unwrap();
    assert_eq!(parse_fault(&next(&mut end).1[16..]), Ok(FaultStatus::ACCESS_DENIED));
    assert!(end.is_closed());
}

/// A presentation context keeps its interface.
#[test]
fn a_context_is_not_bound_to_another_interface() {
    let terms = Terms {
        interfaces: vec![&crate::samr::INTERFACE, &crate::lsarpc::INTERFACE],
        ..Terms::of_pipe(&crate::samr::INTERFACE, 1)
    };
    let mut end = End::on(terms);
    let bind = |interface| Bind {
        max_xmit_frag: 4280,
        max_recv_frag: 4280,
        assoc_group_id: 0,
        contexts: vec![ContextElement { id: 0, interface, transfer: vec![SyntaxId::NDR] }],
    };
    let code = |end: &mut End| {
        let (_, pdu) = next(end);
        BindAck::parse(&pdu[16..]).unwrap().results[0].code
    };
    end.write(&bind(SyntaxId::SAMR).encode(PduKind::BIND, 1), &fixture()).unwrap();
    assert_eq!(code(&mut end), ContextResultCode::ACCEPTANCE);
    end.write(&bind(SyntaxId::LSARPC).encode(PduKind::ALTER_CONTEXT, 2), &fixture()).unwrap();
    assert_eq!(code(&mut end), ContextResultCode::PROVIDER_REJECTION);
    end.write(&bind(SyntaxId::SAMR).encode(PduKind::ALTER_CONTEXT, 3), &fixture()).unwrap();
    assert_eq!(code(&mut end), ContextResultCode::ACCEPTANCE);
}
