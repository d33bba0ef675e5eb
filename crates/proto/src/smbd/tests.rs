//! One machine against chosen messages. `pair` has two machines against each other.

use super::*;
use crate::limits::SMBD_MESSAGE_TIMEOUT;
use frevo_wire::smbd::NEGOTIATE_RESPONSE_LEN;
use std::vec::Vec;

mod pair;

const START: Duration = Duration::from_secs(1_000);

fn settings() -> Settings {
    Settings { receive_credit_max: 4, send_credit_target: 4, ..Settings::default() }
}

fn request() -> NegotiateRequest {
    NegotiateRequest {
        min_version: SmbdVersion::V1,
        max_version: SmbdVersion::V1,
        credits_requested: 3,
        preferred_send_size: 1364,
        max_receive_size: 1024,
        max_fragmented_size: 131_072,
    }
}

fn response() -> NegotiateResponse {
    NegotiateResponse {
        negotiated_version: SmbdVersion::V1,
        credits_requested: 3,
        credits_granted: 2,
        max_read_write_size: 1_048_576,
        preferred_send_size: 1364,
        max_receive_size: 1024,
        max_fragmented_size: 131_072,
        ..NegotiateResponse::refusal(Status::SUCCESS)
    }
}

/// A data transfer message with `data` bytes behind the usual header.
fn data(credits_granted: u16, data: usize, remaining: u32) -> Vec<u8> {
    let header = DataTransfer {
        credits_requested: 3,
        credits_granted,
        flags: DataTransferFlags::EMPTY,
        remaining_data_length: remaining,
        data_offset: if data == 0 { 0 } else { 24 },
        data_length: u32::try_from(data).unwrap(),
    };
    let mut message = header.to_bytes().to_vec();
    message.truncate(if data == 0 { DATA_TRANSFER_LEN } else { DATA_OFFSET });
    message.resize(message.len() + data, 7);
    message
}

/// A listening side whose client has sent [`request`] and got its response.
fn accepted() -> Machine {
    let mut machine = Machine::passive(settings(), START);
    assert_eq!(machine.receives_wanted(), 1);
    machine.posted(1);
    assert_eq!(machine.receives_wanted(), 0);
    let received = machine.on_message(&request().to_bytes(), None, START);
    assert_eq!(received, Ok(Received::Established));
    assert_eq!(machine.receives_wanted(), 3);
    machine.posted(3);
    let sending = machine.next_send(START).unwrap();
    assert_eq!(sending.header().len(), NEGOTIATE_RESPONSE_LEN);
    machine
}

/// A listening side with send credits.
fn ready() -> Machine {
    let mut machine = accepted();
    assert_eq!(machine.on_message(&data(2, 0, 0), None, START), Ok(Received::Control));
    machine.posted(machine.receives_wanted());
    machine
}

#[test]
fn the_listening_side_agrees_and_grants_what_it_has_posted() {
    let mut machine = Machine::passive(settings(), START);
    machine.posted(1);
    machine.on_message(&request().to_bytes(), None, START).unwrap();
    machine.posted(machine.receives_wanted());
    let response = NegotiateResponse::parse(machine.next_send(START).unwrap().header()).unwrap();
    assert_eq!(response.status, Status::SUCCESS);
    assert_eq!(response.negotiated_version, SmbdVersion::V1);
    assert_eq!((response.credits_granted, response.credits_requested), (3, 4));
    assert_eq!((response.max_receive_size, response.preferred_send_size), (1364, 1024));
    assert_eq!(response.max_read_write_size, 8_388_608);
    assert_eq!(response.max_fragmented_size, 1_048_576);
    assert_eq!(machine.parameters().max_fragmented_send_size, 131_072);
    // The peer has granted no send credit yet, so the machine must wait.
    assert!(machine.is_established() && machine.begin(10, None).is_ok());
    assert_eq!(machine.next_send(START), None);
}

#[test]
fn the_connecting_side_takes_what_was_granted() {
    let mut machine = Machine::active(settings(), START);
    machine.posted(machine.receives_wanted());
    assert!(!machine.may_begin());
    let request = NegotiateRequest::parse(machine.next_send(START).unwrap().header()).unwrap();
    assert_eq!((request.credits_requested, request.preferred_send_size), (4, 1364));
    assert_eq!((request.max_receive_size, request.max_fragmented_size), (8192, 1_048_576));
    assert_eq!(machine.next_send(START), None);
    let received = machine.on_message(&response().to_bytes(), None, START);
    assert_eq!(received, Ok(Received::Established));
    assert_eq!(
        machine.parameters(),
        Parameters {
            max_send_size: 1024,
            max_receive_size: 1364,
            max_fragmented_send_size: 131_072,
            max_read_write_size: 1_048_576,
        }
    );
    assert_eq!((machine.send_credits(), machine.receives_wanted()), (2, 3));
}

#[test]
fn a_version_that_is_not_spoken_is_refused_with_a_response() {
    for (min, max, good) in [(0x0100, 0x0100, true), (0, 0x0200, true), (0x0101, 0x0200, false)] {
        let mut machine = Machine::passive(settings(), START);
        machine.posted(1);
        let request = NegotiateRequest {
            min_version: SmbdVersion(min),
            max_version: SmbdVersion(max),
            ..request()
        };
        let received = machine.on_message(&request.to_bytes(), None, START).unwrap();
        assert_eq!(received == Received::Established, good);
        if good {
            continue;
        }
        assert_eq!((received, machine.is_over()), (Received::Refused, false));
        let sent = machine.next_send(START).unwrap();
        let expected = NegotiateResponse::refusal(Status::NOT_SUPPORTED);
        assert_eq!(NegotiateResponse::parse(sent.header()).unwrap(), expected);
        assert!(machine.is_over());
        assert_eq!(machine.on_message(&data(1, 0, 0), None, START), Err(Disconnect::Version));
    }
}

#[test]
fn without_a_receive_the_negotiation_is_refused() {
    let mut machine = Machine::passive(settings(), START);
    machine.posted(1);
    machine.on_message(&request().to_bytes(), None, START).unwrap();
    let sent = machine.next_send(START).unwrap();
    let response = NegotiateResponse::parse(sent.header()).unwrap();
    assert_eq!(response.status, Status::INSUFFICIENT_RESOURCES);
    assert!(machine.is_over());
}

#[test]
fn a_request_must_offer_enough() {
    let with = |change: fn(&mut NegotiateRequest)| {
        let mut request = request();
        change(&mut request);
        Machine::passive(settings(), START).on_message(&request.to_bytes(), None, START).is_ok()
    };
    assert!(with(|_| {}));
    assert!(!with(|r| r.credits_requested = 0));
    assert!(with(|r| r.max_receive_size = 128));
    assert!(!with(|r| r.max_receive_size = 127));
    assert!(with(|r| r.max_fragmented_size = 131_072));
    assert!(!with(|r| r.max_fragmented_size = 131_071));
    assert!(with(|r| r.preferred_send_size = 0));
    let mut machine = Machine::passive(settings(), START);
    assert!(machine.on_message(&request().to_bytes()[..19], None, START).is_err());
}

#[test]
fn a_response_must_offer_enough() {
    let with = |change: fn(&mut NegotiateResponse)| {
        let mut response = response();
        change(&mut response);
        let mut machine = Machine::active(settings(), START);
        let _ = machine.next_send(START);
        machine.on_message(&response.to_bytes(), None, START).is_ok()
    };
    assert!(with(|_| {}));
    assert!(!with(|r| r.credits_requested = 0));
    assert!(!with(|r| r.credits_granted = 0));
    assert!(!with(|r| r.negotiated_version = SmbdVersion(0x0200)));
    assert!(!with(|r| r.status = Status::INSUFFICIENT_RESOURCES));
    assert!(!with(|r| r.max_receive_size = 127));
    assert!(!with(|r| r.max_fragmented_size = 131_071));
    assert!(with(|r| r.preferred_send_size = 8192));
    assert!(!with(|r| r.preferred_send_size = 8193));
    let mut early = Machine::active(settings(), START);
    let received = early.on_message(&response().to_bytes(), None, START);
    assert_eq!(received, Err(Disconnect::Unexpected));
}

#[test]
fn receives_are_as_long_as_the_peer_sends_and_never_tiny() {
    for (preferred, expected) in [(0, 128), (127, 128), (128, 128), (8192, 8192), (9000, 8192)] {
        let mut machine = Machine::passive(settings(), START);
        let request = NegotiateRequest { preferred_send_size: preferred, ..request() };
        machine.on_message(&request.to_bytes(), None, START).unwrap();
        assert_eq!(machine.parameters().max_receive_size, expected);
    }
}

#[test]
fn data_outside_its_message_ends_the_connection() {
    let good = data(0, 40, 0);
    assert!(accepted().on_message(&good, None, START).is_ok());
    let field = |at: usize, value: u32| {
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        accepted().on_message(&bytes, None, START).unwrap_err()
    };
    // Invalid values of DataOffset (at byte 12), and then of DataLength, end the connection.
    for value in [25, 28, 32, 64, u32::MAX - 7] {
        assert_eq!(field(12, value), Disconnect::DataPlace, "{value}");
    }
    assert!(matches!(field(12, 16), Disconnect::Malformed(_)), "in the header");
    for value in [41, u32::MAX] {
        assert_eq!(field(16, value), Disconnect::DataPlace, "{value}");
    }
    let mut bytes = good.clone();
    bytes[0] = 0;
    assert_eq!(
        accepted().on_message(&bytes, None, START),
        Err(Disconnect::Offer("CreditsRequested"))
    );
    assert!(accepted().on_message(&good[..19], None, START).is_err());
}

#[test]
fn a_message_without_a_credit_ends_the_connection() {
    let mut machine = accepted();
    for _ in 0..3 {
        machine.on_message(&data(0, 8, 0), None, START).unwrap();
        // The receives are posted, but their credits are not granted yet, so the peer must not
        // send.
        machine.posted(machine.receives_wanted());
    }
    assert_eq!(machine.on_message(&data(0, 8, 0), None, START), Err(Disconnect::Credits));
}

#[test]
fn fragments_must_make_a_message() {
    let with = |parts: &[(usize, u32)]| {
        let mut machine = accepted();
        parts.iter().try_fold((), |(), &(length, remaining)| {
            machine.on_message(&data(0, length, remaining), None, START).map(drop)
        })
    };
    assert_eq!(with(&[(1000, 500), (0, 0), (500, 0)]), Ok(()));
    for wrong in [
        &[(1000, 500), (500, 1)][..],
        &[(1000, 500), (501, 0)],
        &[(1000, 500), (499, 0)],
        &[(1000, 500), (499, 2)],
        &[(1000, 500), (600, u32::MAX - 50)],
    ] {
        assert_eq!(with(wrong), Err(Disconnect::Fragments), "{wrong:?}");
    }
    let most = SMBD_FRAGMENTED_SIZE - 1000;
    assert_eq!(with(&[(1000, most - 1)]), Ok(()));
    assert_eq!(with(&[(1000, most)]), Ok(()));
    assert_eq!(with(&[(1000, most + 1)]), Err(Disconnect::Fragments));
    assert_eq!(with(&[(1000, u32::MAX)]), Err(Disconnect::Fragments));
}

#[test]
fn an_invalidated_token_comes_with_the_end_of_its_message() {
    let mut machine = accepted();
    let token = |machine: &mut Machine, length, remaining, invalidated| match machine
        .on_message(&data(0, length, remaining), invalidated, START)
        .unwrap()
    {
        Received::Data(fragment) => fragment.invalidated,
        other => panic!("{other:?}"),
    };
    assert_eq!(token(&mut machine, 100, 8, Some(5)), None);
    assert_eq!(token(&mut machine, 8, 0, None), Some(5));
    assert_eq!(token(&mut machine, 8, 0, None), None);
    // The next message may bring a token, but a second token within it is refused.
    let mut machine = accepted();
    assert_eq!(token(&mut machine, 100, 16, Some(5)), None);
    let again = machine.on_message(&data(0, 8, 8), Some(6), START);
    assert_eq!(again, Err(Disconnect::Token));
}

#[test]
fn messages_are_cut_and_the_last_part_invalidates() {
    let mut machine = ready();
    machine.on_message(&data(50, 0, 0), None, START).unwrap();
    assert_eq!(machine.begin(2_500, Some(9)), Ok(()));
    assert!(!machine.may_begin());
    let mut parts = Vec::new();
    while let Some(sending) = machine.next_send(START) {
        let header = DataTransfer::parse(sending.header()).unwrap();
        assert_eq!((sending.header().len(), header.data_offset), (24, 24));
        assert_eq!(header.data_length, sending.data.end - sending.data.start);
        assert_eq!(header.remaining_data_length, 2_500 - sending.data.end);
        assert_eq!(sending.ends_message, header.remaining_data_length == 0);
        parts.push((sending.data, sending.invalidate));
    }
    assert_eq!(parts, [(0..1000, None), (1000..2000, None), (2000..2500, Some(9))]);
    assert!(machine.may_begin());
}

#[test]
fn a_message_longer_than_the_peer_takes_is_not_sent() {
    for (len, good) in [(0, false), (1, true), (131_071, true), (131_072, true), (131_073, false)] {
        assert_eq!(ready().begin(len, None).is_ok(), good, "{len}");
    }
}

#[test]
fn the_last_send_credit_grants_one() {
    let mut machine = accepted();
    // The peer has enough credits, so no message without data is sent to grant more.
    machine.on_message(&data(1, 0, 0), None, START).unwrap();
    machine.posted(machine.receives_wanted());
    assert_eq!((machine.send_credits(), machine.next_send(START)), (1, None));
    machine.begin(10, None).unwrap();
    let header = DataTransfer::parse(machine.next_send(START).unwrap().header()).unwrap();
    assert_eq!(header.credits_granted, 1);
    // The peer has all credits. Its next message uses one, so one can be granted again.
    machine.on_message(&data(1, 0, 0), None, START).unwrap();
    machine.posted(machine.receives_wanted());
    machine.begin(10, None).unwrap();
    let _ = machine.next_send(START).unwrap();
    machine.begin(10, None).unwrap();
    assert_eq!((machine.send_credits(), machine.receives_wanted()), (0, 0));
    machine.on_message(&data(1, 0, 0), None, START).unwrap();
    machine.posted(machine.receives_wanted());
    assert!(machine.next_send(START).is_some());
}

#[test]
fn the_last_send_credit_waits_for_a_receive() {
    let mut machine = ready();
    machine.begin(3_000, None).unwrap();
    let first = DataTransfer::parse(machine.next_send(START).unwrap().header()).unwrap();
    assert_eq!((first.credits_granted, machine.send_credits()), (1, 1));
    // The last send credit must grant the peer a credit, for which one more receive must be posted
    // first.
    assert_eq!((machine.next_send(START), machine.receives_wanted()), (None, 1));
    machine.posted(1);
    let second = DataTransfer::parse(machine.next_send(START).unwrap().header()).unwrap();
    assert_eq!((second.credits_granted, machine.receives_posted()), (1, 4));
    assert_eq!((machine.next_send(START), machine.receives_wanted()), (None, 0));
}

#[test]
fn a_peer_with_few_credits_gets_them_at_once() {
    let mut machine = ready();
    machine.on_message(&data(9, 0, 0), None, START).unwrap();
    machine.posted(machine.receives_wanted());
    let header = DataTransfer::parse(machine.next_send(START).unwrap().header()).unwrap();
    assert_eq!((header.credits_granted, header.credits_requested), (2, 4));
    assert_eq!((header.data_length, header.flags), (0, DataTransferFlags::EMPTY));
    assert_eq!(machine.next_send(START), None);
}

#[test]
fn a_request_for_a_response_gets_one() {
    let mut machine = ready();
    let mut asking = data(2, 0, 0);
    asking[4] = 1;
    machine.on_message(&asking, None, START).unwrap();
    let header = DataTransfer::parse(machine.next_send(START).unwrap().header()).unwrap();
    assert_eq!(header.flags, DataTransferFlags::EMPTY, "and asks for none");
    assert_eq!(machine.next_send(START), None);
}

#[test]
fn a_client_must_negotiate_in_time() {
    for (mut machine, time) in [
        (Machine::passive(settings(), START), SMBD_NEGOTIATE_TIMEOUT_PASSIVE),
        (Machine::active(settings(), START), SMBD_NEGOTIATE_TIMEOUT_ACTIVE),
    ] {
        let deadline = START + time;
        assert_eq!(machine.deadline(), deadline);
        assert_eq!(machine.on_time(deadline - Duration::from_millis(1)), Ok(()));
        assert_eq!(machine.on_time(deadline), Err(Disconnect::NegotiationTimeout));
    }
}

#[test]
fn a_silent_peer_is_asked_and_then_lost() {
    let mut machine = ready();
    let idle = START + SMBD_KEEPALIVE_INTERVAL;
    assert_eq!(machine.deadline(), idle);
    assert_eq!(machine.on_time(idle), Ok(()));
    let header = DataTransfer::parse(machine.next_send(idle).unwrap().header()).unwrap();
    assert_eq!(header.flags, DataTransferFlags::RESPONSE_REQUESTED);
    assert_eq!(machine.next_send(idle), None);
    let mut answered = machine;
    let end = idle + SMBD_IDLE_TIMEOUT;
    answered.on_message(&data(0, 0, 0), None, end - Duration::from_secs(1)).unwrap();
    assert_eq!(answered.on_time(end), Ok(()));
    // The peer answers the first keepalive but not the second one.
    let idle = answered.deadline();
    assert_eq!(answered.on_time(idle), Ok(()));
    assert_eq!(answered.on_time(idle + SMBD_IDLE_TIMEOUT), Err(Disconnect::Silent));
}

#[test]
fn a_begun_message_must_be_completed_in_time() {
    let mut machine = accepted();
    machine.on_message(&data(0, 1000, 8192), None, START).unwrap();
    let deadline = START + SMBD_MESSAGE_TIMEOUT + Duration::from_secs(2);
    assert_eq!(machine.deadline(), deadline);
    assert_eq!(machine.on_time(deadline - Duration::from_millis(1)), Ok(()));
    // Messages without data do not prolong the deadline of a half-received message.
    machine.on_message(&data(0, 0, 0), None, START).unwrap();
    assert_eq!(machine.on_time(deadline), Err(Disconnect::Stalled));
}

#[test]
fn more_credits_are_granted_once_the_limit_is_raised() {
    let mut machine = Machine::passive(settings(), START);
    machine.posted(1);
    let request = NegotiateRequest { credits_requested: 255, ..request() };
    machine.on_message(&request.to_bytes(), None, START).unwrap();
    assert_eq!(machine.receives_wanted(), 4);
    machine.posted(4);
    machine.set_receive_credit_max(255);
    assert_eq!(machine.receives_wanted(), 251);
    machine.set_receive_credit_max(2);
    assert_eq!(machine.receives_wanted(), 0);
}

#[test]
fn a_peer_that_grants_without_end_has_granted_enough() {
    let mut machine = ready();
    for _ in 0..3 {
        machine.posted(machine.receives_wanted());
        let _ = machine.next_send(START);
        machine.on_message(&data(u16::MAX, 0, 0), None, START).unwrap();
    }
    assert_eq!(machine.send_credits(), u16::MAX);
}
