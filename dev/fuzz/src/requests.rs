//! Frames as the server takes them apart.

use frevo_proto::compound::{MixedStyles, verdicts};
use frevo_proto::frame::{Stage, check_message_len};
use frevo_proto::window::CommandSequenceWindow;
use frevo_wire::codec::{Parsed, Writer};
use frevo_wire::command::ioctl::{
    copychunk, pipe_wait, read_hash, resiliency, storage_qos, validate_negotiate,
};
use frevo_wire::command::{
    cancel, change_notify, close, create, echo, flush, ioctl, lock, logoff, negotiate,
    oplock_break, query_directory, query_info, read, session_setup, set_info, tree_connect,
    tree_disconnect, write,
};
use frevo_wire::compound::Compound;
use frevo_wire::create_context::{AaplQuery, CreateContexts};
use frevo_wire::fscc::ea::EaEntries;
use frevo_wire::header::HEADER_LEN;
use frevo_wire::negotiate_context::NegotiateContext;
use frevo_wire::{Command, Header};

use crate::{message, settles};

/// Parses a request of `command` and encodes the result.
fn reencode(command: Command, m: &[u8]) -> Parsed<Vec<u8>> {
    macro_rules! by {
        ($module:ident) => {
            $module::Request::parse(m).map(|it| message(|w: &mut Writer<'_>| it.encode(w)))
        };
    }
    match command {
        Command::NEGOTIATE => by!(negotiate),
        Command::SESSION_SETUP => by!(session_setup),
        Command::LOGOFF => by!(logoff),
        Command::TREE_CONNECT => by!(tree_connect),
        Command::TREE_DISCONNECT => by!(tree_disconnect),
        Command::CREATE => by!(create),
        Command::CLOSE => by!(close),
        Command::FLUSH => by!(flush),
        Command::READ => by!(read),
        Command::WRITE => by!(write),
        Command::LOCK => by!(lock),
        Command::IOCTL => by!(ioctl),
        Command::CANCEL => by!(cancel),
        Command::ECHO => by!(echo),
        Command::QUERY_DIRECTORY => by!(query_directory),
        Command::CHANGE_NOTIFY => by!(change_notify),
        Command::QUERY_INFO => by!(query_info),
        Command::SET_INFO => by!(set_info),
        Command::OPLOCK_BREAK => by!(oplock_break),
        _ => Ok(Vec::new()),
    }
}

/// A frame without its prefix: the compound, the headers, the bodies, the
/// sequence window.
pub fn requests(data: &[u8]) {
    let mut window = CommandSequenceWindow::new(64);
    let mut headers = Vec::new();
    let mut end = 0;
    for part in Compound::new(data) {
        let Ok((offset, part)) = part else { break };
        assert_eq!(offset, end, "elements follow one another");
        end = offset + part.len();
        let Ok(header) = Header::parse(part) else { break };
        assert_eq!(Header::parse(&header.to_bytes()), Ok(header));
        headers.push((header.command, header.flags));
        let _ = check_message_len(header.command, part.len(), true, 1 << 20);
        settles(part, |bytes| reencode(header.command, bytes));
        if let Ok(charge) = window.admit(&header, true) {
            window.grant(header.credits, charge);
        }
        assert!(window.available() <= 64 && window.in_flight() <= 64);
        ioctl_inputs(part);
    }
    for mixed in [MixedStyles::NewChain, MixedStyles::Refuse] {
        assert_eq!(verdicts(headers.iter().copied(), mixed).count(), headers.len());
    }
    assert!(Stage::Authenticated { max_payload: u32::MAX }.frame_limit() < 1 << 24);
}

fn ioctl_inputs(part: &[u8]) {
    let Ok(request) = ioctl::Request::parse(part) else { return };
    let input = request.input;
    let _ = copychunk::CopyRequest::parse(input);
    let _ = pipe_wait::Request::parse(input);
    let _ = read_hash::Request::parse(input);
    let _ = resiliency::Request::parse(input);
    settles(input, |bytes| {
        let parsed = storage_qos::Request::parse(bytes)?;
        let _ = (parsed.initiator_name.is_within(bytes.len()), parsed.node_name.is_within(bytes.len()));
        let mut out = Vec::new();
        parsed.encode(&mut Writer::new(&mut out));
        Ok(out)
    });
    settles(input, |bytes| {
        let parsed = validate_negotiate::Request::parse(bytes)?;
        let mut out = Vec::new();
        parsed.encode(&mut Writer::new(&mut out));
        Ok(out)
    });
}

/// The contexts of a NEGOTIATE request that is good but for them: two bytes
/// say how many there are.
pub fn negotiate_contexts(data: &[u8]) {
    let Some((count, contexts)) = data.split_first_chunk::<2>() else { return };
    let mut request = message(|w| {
        negotiate::Request {
            security_mode: Default::default(),
            capabilities: Default::default(),
            client_guid: Default::default(),
            dialects: vec![negotiate::Dialect::SMB_3_1_1],
            negotiate_contexts: Vec::new(),
        }
        .encode(w);
    });
    request.resize(request.len().next_multiple_of(8), 0);
    let offset = u32::try_from(request.len()).unwrap();
    request[HEADER_LEN + 28..HEADER_LEN + 32].copy_from_slice(&offset.to_le_bytes());
    request[HEADER_LEN + 32..HEADER_LEN + 34].copy_from_slice(count);
    request.extend_from_slice(contexts);
    settles(&request, |bytes| reencode(Command::NEGOTIATE, bytes));
    if let Ok(parsed) = negotiate::Request::parse(&request) {
        for context in &parsed.negotiate_contexts {
            let _ = context.is_posix();
            if let NegotiateContext::Netname(name) = context {
                let _ = name.to_string();
            }
        }
    }
}

/// A list of create contexts, as of a request and as of a response.
pub fn create_contexts(data: &[u8]) {
    let Ok(list) = CreateContexts::parse(data) else { return };
    let pairs: Vec<_> = list.iter().collect();
    let again = CreateContexts::build(&pairs);
    let reread = CreateContexts::parse(again.as_bytes()).expect("what we build we read");
    assert_eq!(reread.iter().collect::<Vec<_>>(), pairs);
    let twice =
        pairs.iter().enumerate().any(|(at, (n, _))| pairs[..at].iter().any(|(m, _)| m == n));
    assert_eq!(list.duplicate().is_some(), twice);
    let requests: Result<Vec<_>, _> = list.requests().collect();
    if let Ok(requests) = requests {
        let encoded = CreateContexts::from_requests(&requests);
        let reread: Result<Vec<_>, _> = encoded.requests().collect();
        assert_eq!(reread.as_ref(), Ok(&requests));
    }
    for (_, data) in list.iter() {
        let _ = AaplQuery::parse(data);
        EaEntries::new(data).take_while(Result::is_ok).for_each(drop);
    }
    list.responses().for_each(drop);
}
