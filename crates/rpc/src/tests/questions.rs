//! Authentication on a pipe, sealed calls, and the steps that wait for the server.

use super::*;
use crate::limits::MAX_FRAG;
use crate::pdu::*;
use crate::samr::{CHANGE_PASSWORD2, ChangePassword, PasswordChange};
use crate::{FaultStatus, PipeError, PipeLogon, PipeSecurity, Question};
use alloc::boxed::Box;
use core::ops::Range;
use frevo_wire::Status;

/// Seals by a bit in each byte and signs by the sum of all.
#[derive(Debug)]
pub(super) struct Toy;

fn sum(pdu: &[u8]) -> [u8; 16] {
    [pdu.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)); 16]
}

fn flip(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte ^= 0x80);
}

impl PipeSecurity for Toy {
    fn challenge(&mut self, token: &[u8]) -> Option<Vec<u8>> {
        (token == b"hello").then(|| b"challenge".to_vec())
    }

    fn authenticate(&mut self, token: &[u8]) -> PipeLogon {
        PipeLogon { account: "ann".into(), is_right: token == b"proof" }
    }

    fn seal(&mut self, pdu: &mut [u8], sealed: Range<usize>) -> Option<[u8; 16]> {
        let signature = sum(pdu);
        flip(&mut pdu[sealed]);
        Some(signature)
    }

    fn unseal(&mut self, pdu: &mut [u8], sealed: Range<usize>, signature: &[u8]) -> bool {
        flip(&mut pdu[sealed]);
        sum(pdu) == signature
    }
}

/// Appends padding, sec_trailer and a value.
fn verified(mut pdu: Vec<u8>, level: u8, padding: usize, value: &[u8]) -> Vec<u8> {
    pdu.extend(core::iter::repeat_n(0, padding));
    pdu.extend([0x0A, level, padding as u8, 0, 7, 0, 0, 0]);
    pdu.extend(value);
    let length = pdu.len() as u16;
    pdu[8..10].copy_from_slice(&length.to_le_bytes());
    pdu[10..12].copy_from_slice(&(value.len() as u16).to_le_bytes());
    pdu
}

fn bind() -> Vec<u8> {
    Client::new(SyntaxId::SAMR).bind()
}

fn auth3(token: &[u8]) -> Vec<u8> {
    let mut pdu = bind()[..16].to_vec();
    pdu[2] = PduKind::AUTH3.0;
    pdu.extend([0; 4]);
    verified(pdu, 6, 0, token)
}

fn request(stub: &[u8]) -> Vec<u8> {
    Request { alloc_hint: 0, context_id: 0, opnum: CHANGE_PASSWORD2, stub }
        .encode(PduFlags::WHOLE, 5)
}

/// A request as a client seals it.
fn sealed(stub: &[u8]) -> Vec<u8> {
    let plain = request(stub);
    let padding = plain.len().next_multiple_of(4) - plain.len();
    let end = plain.len() + padding;
    let mut pdu = verified(plain, 6, padding, &[0; 16]);
    let signed = pdu.len() - 16;
    let signature = sum(&pdu[..signed]);
    flip(&mut pdu[24..end]);
    pdu[signed..].copy_from_slice(&signature);
    pdu
}

fn change() -> ChangePassword {
    ChangePassword { user: "ann".into(), password: Box::new([7; 516]), proof: [9; 16] }
}

fn next(endpoint: &mut Endpoint) -> (Header, Vec<u8>) {
    let read = endpoint.read(usize::MAX).unwrap();
    let (header, body, _) = split_first(&read.data, MAX_FRAG).unwrap().unwrap();
    (header, body.to_vec())
}

/// A pipe on which a client has sent its last token.
fn asking(token: &[u8]) -> Endpoint {
    let mut endpoint = Endpoint::new(Pipe::Samr, 1);
    endpoint.write(&verified(bind(), 6, 0, b"hello"), &fixture()).unwrap();
    let (header, body) = next(&mut endpoint);
    assert_eq!((header.kind, header.auth_length), (PduKind::BIND_ACK, 9));
    assert!(body.ends_with(b"challenge"));
    endpoint.write(&auth3(token), &fixture()).unwrap();
    endpoint
}

fn accepted() -> Endpoint {
    let mut endpoint = asking(b"proof");
    let Some(Question::Logon(logon)) = endpoint.question() else { panic!("no logon") };
    assert_eq!(logon, PipeLogon { account: "ann".into(), is_right: true });
    assert!(endpoint.question().is_none() && !endpoint.is_sealed());
    endpoint.answer_logon(true);
    assert!(endpoint.is_sealed());
    endpoint
}

fn is_refused(mut endpoint: Endpoint, bytes: &[u8]) {
    endpoint.write(bytes, &fixture()).unwrap();
    let (header, body) = next(&mut endpoint);
    assert_eq!((header.kind, parse_fault(&body)), (PduKind::FAULT, Ok(FaultStatus::ACCESS_DENIED)));
    assert!(endpoint.question().is_none());
    assert_eq!(endpoint.write(&[0], &fixture()), Err(PipeError::Disconnected));
}

#[test]
fn a_password_is_changed_on_a_sealed_pipe() {
    let mut endpoint = accepted();
    for _ in 0..2 {
        endpoint.write(&sealed(&change().encode("\\\\box")), &fixture()).unwrap();
        assert!(endpoint.read(100).is_none(), "the server has not answered");
        let Some(Question::Change(asked)) = endpoint.question() else { panic!("no change") };
        assert_eq!(asked, PasswordChange::User2(change()));
        endpoint.answer_change(Status::WRONG_PASSWORD);
        let read = endpoint.read(usize::MAX).unwrap();
        let mut pdu = read.data;
        assert_eq!((pdu[2], pdu[10], pdu.len() % 4), (PduKind::RESPONSE.0, 16, 0));
        let (signed, padding) = (pdu.len() - 16, usize::from(pdu[pdu.len() - 22]));
        let end = signed - 8;
        flip(&mut pdu[24..end]);
        assert_eq!(sum(&pdu[..signed]), pdu[signed..]);
        assert_eq!(pdu[24..end - padding], Status::WRONG_PASSWORD.0.to_le_bytes());
    }
}

#[test]
fn a_password_is_changed_without_authentication_on_the_pipe() {
    let (mut client, mut endpoint) = bound(Pipe::Samr, &fixture());
    for fragment in client.call(CHANGE_PASSWORD2, &change().encode("")) {
        endpoint.write(&fragment, &fixture()).unwrap();
    }
    assert!(matches!(endpoint.question(), Some(Question::Change(_))) && !endpoint.is_sealed());
    endpoint.answer_change(Status::SUCCESS);
    let (header, body) = next(&mut endpoint);
    assert_eq!((header.kind, &body[8..]), (PduKind::RESPONSE, &[0; 4][..]));
}

#[test]
fn without_a_right_proof_nothing_is_asked() {
    for (token, answer) in [(&b"wrong"[..], false), (b"proof", false)] {
        let mut endpoint = asking(token);
        assert!(endpoint.question().is_some());
        endpoint.answer_logon(answer);
        is_refused(endpoint, &sealed(&change().encode("")));
    }
    is_refused(accepted(), &request(&change().encode("")));
    let mut forged = sealed(&change().encode(""));
    forged[100] ^= 1;
    is_refused(accepted(), &forged);
    let mut other_context = sealed(&change().encode(""));
    let at = other_context.len() - 20;
    other_context[at] ^= 1;
    is_refused(accepted(), &other_context);
}

#[test]
fn nothing_is_taken_before_the_answer() {
    let mut endpoint = asking(b"proof");
    endpoint.write(&sealed(&change().encode("")), &fixture()).unwrap();
    let (_, body) = next(&mut endpoint);
    assert_eq!(parse_fault(&body), Ok(FaultStatus::PROTO_ERROR));
    assert!(endpoint.is_closed());
    // A token too many, and one without a bind that began.
    let mut endpoint = accepted();
    endpoint.write(&auth3(b"proof"), &fixture()).unwrap();
    assert!(endpoint.is_closed());
    let (_, mut endpoint) = bound(Pipe::Samr, &fixture());
    endpoint.write(&auth3(b"proof"), &fixture()).unwrap();
    assert!(endpoint.is_closed());
}

#[test]
fn only_sealing_is_offered_and_only_where_it_is_needed() {
    let cases = [
        (Pipe::Samr, verified(bind(), 5, 0, b"hello")),
        (Pipe::Samr, verified(bind(), 6, 0, b"other")),
        (Pipe::Samr, verified(bind(), 6, 255, b"hello")),
        (Pipe::Lsarpc, verified(Client::new(SyntaxId::LSARPC).bind(), 6, 0, b"hello")),
    ];
    for (index, (pipe, bytes)) in cases.into_iter().enumerate() {
        let mut endpoint = Endpoint::new(pipe, 1);
        endpoint.write(&bytes, &fixture()).unwrap();
        let (header, body) = next(&mut endpoint);
        if index == 2 {
            // Padding is cut off the bind.
            assert_eq!(header.kind, PduKind::BIND_ACK, "{index}");
            continue;
        }
        assert_eq!(header.kind, PduKind::BIND_NAK, "{index}");
        let reason = RejectReason::AUTHENTICATION_TYPE_NOT_RECOGNIZED;
        assert_eq!(parse_bind_nak(&body), Ok(reason), "{index}");
    }
}
