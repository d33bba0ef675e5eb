//! SMB Direct: its messages, and its machine against a hostile peer.

use std::time::Duration;

use frevo_proto::smbd::{Machine, Received, Settings};
use frevo_wire::smbd::{BufferDescriptor, DataTransfer, NegotiateRequest, NegotiateResponse};

use crate::choices::Choices;

/// A script: a role, then steps. A step is a message of the peer, a message of the upper layer, or
/// passing time.
pub fn smbd(data: &[u8]) {
    messages(data);
    let mut choices = Choices::new(data);
    let role = choices.u8();
    let mut now = Duration::from_secs(1);
    let settings = Settings { receive_credit_max: 1 + u16::from(role >> 2), ..Settings::default() };
    let mut machine = match role % 2 {
        0 => Machine::passive(settings, now),
        _ => Machine::active(settings, now),
    };
    machine.posted(machine.receives_wanted());
    if role & 2 != 0 {
        negotiate(&mut machine, role % 2 == 0, now);
    }
    // `expected` and `begun` describe a message of which not all fragments have arrived.
    let mut expected = None;
    let mut begun = None;
    while !choices.is_over() {
        machine.posted(machine.receives_wanted());
        assert!(machine.receives_posted() <= settings.receive_credit_max + 1);
        let kind = choices.u8();
        match kind % 4 {
            0 => {
                now += Duration::from_secs(u64::from(kind >> 2));
                if machine.on_time(now).is_err() {
                    return;
                }
            }
            1 if begun.is_none() && machine.may_begin() => {
                let len = u32::from(choices.u8()) << (kind >> 4);
                if machine.begin(len, Some(len)).is_ok() {
                    begun = Some((len, 0));
                }
            }
            _ => {
                let length = usize::from(choices.u8());
                let message = choices.take(length);
                let Ok(received) = machine.on_message(message, None, now) else { return };
                check(&mut expected, &received, message);
            }
        }
        while let Some(sending) = machine.next_send(now) {
            let length = sending.header().len() + sending.data.len();
            assert!(length <= machine.parameters().max_send_size.max(32) as usize);
            if let Some((len, sent)) = &mut begun {
                assert_eq!(sending.data.start, *sent);
                *sent = sending.data.end;
                assert_eq!(sending.ends_message, sent == len);
            } else {
                assert!(sending.data.is_empty() && !sending.ends_message);
            }
            if sending.ends_message {
                begun = None;
            }
        }
        assert!(machine.deadline() > now.saturating_sub(Duration::from_secs(1)));
    }
}

/// Each message survives being parsed and encoded.
fn messages(data: &[u8]) {
    if let Ok(request) = NegotiateRequest::parse(data) {
        assert_eq!(NegotiateRequest::parse(&request.to_bytes()), Ok(request));
    }
    if let Ok(response) = NegotiateResponse::parse(data) {
        assert_eq!(NegotiateResponse::parse(&response.to_bytes()), Ok(response));
    }
    if let Ok(header) = DataTransfer::parse(data) {
        assert_eq!(DataTransfer::parse(&header.to_bytes()), Ok(header));
        if let Ok(payload) = header.data(data) {
            assert_eq!(payload.len(), header.data_length as usize);
        }
    }
    if let Ok(all) = BufferDescriptor::parse_all(data) {
        let bytes: Vec<u8> = all.iter().flat_map(BufferDescriptor::to_bytes).collect();
        assert_eq!(bytes, data);
    }
}

/// Establishes the connection, as an orderly peer does.
fn negotiate(machine: &mut Machine, is_passive: bool, now: Duration) {
    let mut peer = match is_passive {
        true => Machine::active(Settings::default(), now),
        false => Machine::passive(Settings::default(), now),
    };
    peer.posted(1);
    let (first, second) = if is_passive { (&mut peer, machine) } else { (machine, &mut peer) };
    let request = first.next_send(now).expect("a request");
    assert_eq!(second.on_message(request.header(), None, now), Ok(Received::Established));
    second.posted(second.receives_wanted());
    let response = second.next_send(now).expect("a response");
    assert_eq!(first.on_message(response.header(), None, now), Ok(Received::Established));
    first.posted(first.receives_wanted());
}

/// Parts of a message add up to what its first part announced.
fn check(expected: &mut Option<usize>, received: &Received, message: &[u8]) {
    let Received::Data(fragment) = received else { return };
    assert!(!fragment.data.is_empty() && fragment.data.end <= message.len());
    let total = fragment.data.len() + fragment.remaining as usize;
    assert_eq!(fragment.is_first, expected.is_none());
    assert_eq!(total, expected.unwrap_or(total));
    assert!(total <= Settings::default().max_fragmented_recv_size as usize);
    *expected = (fragment.remaining != 0).then_some(fragment.remaining as usize);
}
