//! A client that signs or seals its calls, against an endpoint.

use super::authentication::{Judge, initiator};
use super::*;
use crate::client::RpcError;
use crate::pdu::{Header, PduFlags, PduKind, encode_fault, split_first};
use crate::{AuthLevel, FaultStatus};
use frevo_auth::initiator::Step;

const NOW: u64 = 1 << 57;
/// An operation of the fixture whose answer the test gives: SamrUnicodeChangePasswordUser2.
const LATER: u16 = crate::samr::CHANGE_PASSWORD2;

fn stub() -> Vec<u8> {
    use alloc::boxed::Box;
    let change = crate::samr::ChangePassword {
        user: "ann".into(),
        password: Box::new([7; 516]),
        proof: [9; 16],
    };
    change.encode("\\\\box")
}

/// Logs on, with this change of each answer of the server.
fn bound_after(
    level: AuthLevel,
    password: &str,
    change: impl Fn(&mut Vec<u8>),
) -> Result<(Client, End), RpcError> {
    let mut client = Client::protected(SyntaxId::SAMR, level);
    let mut endpoint = End::new(&crate::samr::INTERFACE, 1);
    let (mut judge, mut initiator) = (Judge::new(), initiator(password));
    let mut pdu = client.bind_with(&initiator.initial_token(&[], NOW).unwrap());
    loop {
        endpoint.write(&pdu, &fixture()).unwrap();
        let token = endpoint.token().expect("a token");
        let verdict = judge.judge(&token);
        endpoint.judge(verdict);
        let mut answer = endpoint.read(usize::MAX).unwrap().data;
        change(&mut answer);
        assert!(!client.handle_bind_reply(&answer[..9])?, "the header is not whole");
        assert!(client.handle_bind_reply(&answer[9..])?);
        match initiator.step(&client.token(), NOW).unwrap() {
            Step::Continue(next) => pdu = client.go_on_with(&next),
            Step::Done(_) => break,
        }
    }
    client.establish(initiator.protection([4; 16]))?;
    Ok((client, endpoint))
}

fn bound(level: AuthLevel) -> (Client, End) {
    bound_after(level, "secret", |_| {}).unwrap()
}

/// Sends a call and returns its number.
fn begin((client, endpoint): &mut (Client, End)) -> u32 {
    for fragment in client.call(LATER, &stub()) {
        endpoint.write(&fragment, &fixture()).unwrap();
    }
    endpoint.changes.pop().unwrap().0.id
}

/// Reads all answers that are there.
fn answers(endpoint: &mut End) -> Vec<u8> {
    core::iter::from_fn(|| endpoint.read(usize::MAX)).flat_map(|read| read.data).collect()
}

#[test]
fn calls_and_answers_are_protected() {
    for level in [AuthLevel::INTEGRITY, AuthLevel::PRIVACY] {
        let mut ends = bound(level);
        for length in [0, 4, 5_000, 20_000] {
            let id = begin(&mut ends);
            let answer = vec![0xAB; length];
            ends.1.complete(id, Ok(answer.clone()));
            let bytes = answers(&mut ends.1);
            let in_clear = bytes.windows(64).any(|part| part == [0xAB; 64]);
            assert_eq!(in_clear, level == AuthLevel::INTEGRITY && length >= 64);
            for (at, piece) in bytes.chunks(100).enumerate() {
                let whole = ends.0.handle_bytes(piece).unwrap();
                let is_last = (at + 1) * 100 >= bytes.len();
                assert_eq!(whole, is_last.then(|| answer.clone()));
            }
        }
    }
}

#[test]
fn a_changed_answer_is_refused() {
    for level in [AuthLevel::INTEGRITY, AuthLevel::PRIVACY] {
        // The first byte of the stub data, the context identifier in the header, and the signature.
        for at in [24, 20, usize::MAX] {
            let mut ends = bound(level);
            let id = begin(&mut ends);
            ends.1.complete(id, Ok(vec![1; 40]));
            let mut bytes = answers(&mut ends.1);
            let at = at.min(bytes.len() - 1);
            bytes[at] ^= 1;
            assert_eq!(ends.0.handle_bytes(&bytes), Err(RpcError::Unprotected), "{at}");
        }
    }
}

#[test]
fn an_answer_in_the_clear_or_for_the_second_time_is_refused() {
    let mut ends = bound(AuthLevel::INTEGRITY);
    let id = begin(&mut ends);
    let response = crate::pdu::Response { alloc_hint: 0, context_id: 0, stub: &[1, 2, 3, 4] };
    let clear = response.encode(PduFlags::WHOLE, id);
    assert_eq!(ends.0.handle_bytes(&clear), Err(RpcError::Unprotected));

    let mut ends = bound(AuthLevel::PRIVACY);
    let id = begin(&mut ends);
    ends.1.complete(id, Ok(vec![1; 40]));
    let bytes = answers(&mut ends.1);
    assert!(ends.0.handle_bytes(&bytes).unwrap().is_some());
    // The number of the call is that of the next one.
    begin(&mut ends);
    let mut again = bytes;
    again[12..16].copy_from_slice(&(id + 1).to_le_bytes());
    assert_eq!(ends.0.handle_bytes(&again), Err(RpcError::Unprotected));
}

#[test]
fn the_answer_to_a_call_that_was_given_up_is_passed_over() {
    for is_answered_before in [true, false] {
        let mut ends = bound(AuthLevel::PRIVACY);
        let first = begin(&mut ends);
        ends.0.give_up();
        let second = begin(&mut ends);
        if is_answered_before {
            ends.1.complete(first, Ok(vec![1; 5_000]));
        }
        ends.1.complete(second, Ok(vec![2; 8]));
        assert_eq!(ends.0.handle_bytes(&answers(&mut ends.1)), Ok(Some(vec![2; 8])));
        if !is_answered_before {
            let third = begin(&mut ends);
            ends.1.complete(first, Err(FaultStatus::CANCEL));
            ends.1.complete(third, Ok(vec![3; 8]));
            assert_eq!(ends.0.handle_bytes(&answers(&mut ends.1)), Ok(Some(vec![3; 8])));
        }
    }
}

#[test]
fn a_server_that_does_not_protect_headers_is_refused() {
    // In a bind_ack the bit of PENDING_CANCEL means PFC_SUPPORT_HEADER_SIGN.
    let weakened = |pdu: &mut Vec<u8>| pdu[3] &= !PduFlags::PENDING_CANCEL.0;
    let refused = bound_after(AuthLevel::INTEGRITY, "secret", weakened);
    assert_eq!(refused.err(), Some(RpcError::Unprotected));
    // Another level in the verifier of the answer.
    let lowered = |pdu: &mut Vec<u8>| {
        let length = usize::from(u16::from_le_bytes([pdu[10], pdu[11]]));
        let at = pdu.len() - length - 7;
        pdu[at] = AuthLevel::CONNECT.0;
    };
    let refused = bound_after(AuthLevel::PRIVACY, "secret", lowered);
    assert_eq!(refused.err(), Some(RpcError::Unprotected));
}

#[test]
fn nothing_is_sent_before_the_end_of_the_logon() {
    let mut client = Client::protected(SyntaxId::SAMR, AuthLevel::INTEGRITY);
    assert!(client.call(LATER, &stub()).is_empty());
    assert_eq!(client.establish(None), Err(RpcError::Unprotected));
    assert!(client.call(LATER, &stub()).is_empty());
    // A level that protects nothing is none.
    let mut client = Client::protected(SyntaxId::SAMR, AuthLevel::CONNECT);
    assert_eq!(client.establish(None), Err(RpcError::Unprotected));
}

#[test]
fn a_wrong_password_is_refused_by_name() {
    let mut client = Client::protected(SyntaxId::SAMR, AuthLevel::INTEGRITY);
    let bind = client.bind_with(b"token");
    let (header, _, rest) = split_first(&bind, u16::MAX).unwrap().unwrap();
    assert_eq!((header.kind, header.auth_length, rest.len()), (PduKind::BIND, 5, 0));
    assert_eq!(usize::from(header.frag_length), bind.len());
    assert!(bind.len() > Header::SIZE && bind[3] & PduFlags::PENDING_CANCEL.0 != 0);
    let fault = encode_fault(FaultStatus::ACCESS_DENIED, 0, 1);
    let refused = client.handle_bind_reply(&fault);
    assert_eq!(refused, Err(RpcError::Fault(FaultStatus::ACCESS_DENIED)));
}
