use std::vec;
use std::vec::Vec;

use frevo_wire::codec::Writer;
use frevo_wire::command::negotiate::{GlobalCapabilities, SecurityMode};
use frevo_wire::command::session_setup::SessionSetupFlags;
use frevo_wire::command::{read, write};
use frevo_wire::create_context::CreateContexts;
use frevo_wire::dtyp::{AccessMask, FileAttributes, FileTime};
use frevo_wire::{HeaderFlags, Route, Status, Utf16};

use super::*;

const SECRET: u8 = 0xA5;
const SERVER: &str = "10.0.0.2:445";

fn origin(server: &str) -> Origin {
    let ends = crate::packet::Ends {
        client: "10.0.0.1:5000".parse().unwrap(),
        server: server.parse().unwrap(),
    };
    Origin { connection: 1, ends, is_server: false, comment: Default::default() }
}

fn message(
    command: Command,
    message_id: u64,
    is_response: bool,
    body: impl FnOnce(&mut Writer<'_>),
) -> Vec<u8> {
    let flags = if is_response { HeaderFlags::SERVER_TO_REDIR } else { HeaderFlags::EMPTY };
    let header = Header {
        credit_charge: 1,
        status: Status::SUCCESS,
        command,
        credits: 1,
        flags,
        next_command: 0,
        message_id,
        route: Route::Sync { process_id: 0, tree_id: 1 },
        session_id: 7,
        signature: [0; 16],
    };
    let mut bytes = header.to_bytes().to_vec();
    body(&mut Writer::from(&mut bytes, 0));
    bytes
}

fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    match u8::try_from(content.len()) {
        Ok(len) if len < 0x80 => bytes.push(len),
        _ => {
            bytes.push(0x82);
            bytes.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
        }
    }
    bytes.extend(content);
    bytes
}

/// An AUTHENTICATE_MESSAGE whose secrets are bytes of SECRET.
fn authenticate() -> Vec<u8> {
    let mut bytes = b"NTLMSSP\0\x03\0\0\0".to_vec();
    let mut payload: Vec<u8> = Vec::new();
    let (user, secret) = (b"a\0n\0n\0".to_vec(), |len| vec![SECRET; len]);
    for field in [secret(24), secret(300), vec![], user.clone(), user, secret(16)] {
        let len = u16::try_from(field.len()).unwrap().to_le_bytes();
        let offset = u32::try_from(88 + payload.len()).unwrap().to_le_bytes();
        bytes.extend([&len[..], &len, &offset].concat());
        payload.extend(field);
    }
    bytes.extend([1, 2, 3, 4, 10, 0, 0, 0, 0, 0, 0, 15]);
    bytes.extend(secret(16));
    bytes.extend(payload);
    bytes
}

/// A NegTokenResp with it.
fn spnego_authenticate() -> Vec<u8> {
    let token = der(0xA2, &der(OCTET_STRING, &authenticate()));
    let mic = der(0xA3, &der(OCTET_STRING, &[1, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 0]));
    der(0xA1, &der(0x30, &[token, mic].concat()))
}

const OCTET_STRING: u8 = 4;

/// A NegTokenInit with an AP-REQ, whose ciphertexts are bytes of SECRET.
fn kerberos() -> Vec<u8> {
    let cipher = der(0xA2, &der(OCTET_STRING, &[SECRET; 400]));
    let etype = der(0xA0, &der(2, &[18]));
    let encrypted = der(0x30, &[etype, cipher].concat());
    let realm = der(0xA1, &der(0x1B, b"EXAMPLE.ORG"));
    let ticket = der(0x61, &der(0x30, &[realm, der(0xA3, &encrypted)].concat()));
    let options = der(0xA2, &der(3, &[0, 0x20, 0, 0, 0]));
    let request = [options, der(0xA3, &ticket), der(0xA4, &encrypted)].concat();
    let request = der(0x6E, &der(0x30, &request));
    let oid = der(6, &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x12, 1, 2, 2]);
    let gss = der(0x60, &[&oid[..], &[1, 0], &request].concat());
    let mechanisms = der(0xA0, &der(0x30, &oid));
    let init = der(0xA0, &der(0x30, &[mechanisms, der(0xA2, &der(OCTET_STRING, &gss))].concat()));
    let spnego = der(6, &[0x2B, 6, 1, 5, 5, 2]);
    der(0x60, &[spnego, init].concat())
}

fn session_setup(token: &[u8]) -> Vec<u8> {
    let request = session_setup::Request {
        flags: SessionSetupFlags::EMPTY,
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: GlobalCapabilities::EMPTY,
        previous_session_id: 0,
        security_buffer: token,
    };
    message(Command::SESSION_SETUP, 2, false, |w| request.encode(w))
}

fn secret_bytes(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == SECRET).count()
}

#[test]
fn the_answers_of_ntlm_are_overwritten() {
    for token in [authenticate(), spnego_authenticate()] {
        let mut frame = session_setup(&token);
        let before = frame.clone();
        assert!(secret_bytes(&frame) >= 24 + 300 + 16 + 16);
        Blanker::default().blank(&origin(SERVER), &mut frame);
        assert_eq!(secret_bytes(&frame), 0);
        // Everything else is as it was: names, lengths, the challenge's flags.
        for (old, new) in before.iter().zip(&frame) {
            assert!(old == new || *old == SECRET && *new == 0);
        }
    }
}

#[test]
fn the_tickets_of_kerberos_are_overwritten() {
    let mut frame = session_setup(&kerberos());
    let before = frame.clone();
    assert_eq!(secret_bytes(&frame), 800);
    Blanker::default().blank(&origin(SERVER), &mut frame);
    assert_eq!(secret_bytes(&frame), 0);
    for (old, new) in before.iter().zip(&frame) {
        assert!(old == new || *old == SECRET && *new == 0);
    }
}

#[test]
fn a_token_of_unknown_form_is_overwritten() {
    let unknown = der(0x30, &der(OCTET_STRING, &[SECRET; 100]));
    let broken = {
        let mut token = kerberos();
        token.truncate(600);
        token
    };
    for token in [vec![SECRET; 90], unknown, broken] {
        let mut frame = session_setup(&token);
        Blanker::default().blank(&origin(SERVER), &mut frame);
        assert_eq!(secret_bytes(&frame), 0);
    }
}

/// A request of a remote procedure call whose arguments are bytes of SECRET.
fn call(opnum: u16) -> Vec<u8> {
    let len = 24_u16 + 500;
    let mut pdu = vec![5, 0, 0, 3, 0x10, 0, 0, 0];
    pdu.extend(len.to_le_bytes());
    pdu.extend([0, 0, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
    pdu.extend(opnum.to_le_bytes());
    pdu.extend([SECRET; 500]);
    pdu
}

fn pipe_request(name: &str) -> create::Request<'static> {
    create::Request {
        requested_oplock_level: create::OplockLevel::NONE,
        impersonation_level: create::ImpersonationLevel::IMPERSONATION,
        desired_access: AccessMask::FILE_ALL,
        file_attributes: FileAttributes::NORMAL,
        share_access: create::ShareAccess::READ,
        create_disposition: create::CreateDisposition::OPEN,
        create_options: create::CreateOptions::EMPTY,
        name: Utf16::from_str(name),
        contexts: CreateContexts::EMPTY,
    }
}

fn pipe_response(file_id: FileId) -> create::Response<'static> {
    create::Response {
        oplock_level: create::OplockLevel::NONE,
        flags: create::CreateFlags::EMPTY,
        create_action: create::CreateAction::OPENED,
        creation_time: FileTime(0),
        last_access_time: FileTime(0),
        last_write_time: FileTime(0),
        change_time: FileTime(0),
        allocation_size: 0,
        end_of_file: 0,
        file_attributes: FileAttributes::NORMAL,
        file_id,
        contexts: CreateContexts::EMPTY,
    }
}

fn open(blanker: &mut Blanker, name: &str, id: FileId) {
    let mut request = message(Command::CREATE, 5, false, |w| pipe_request(name).encode(w));
    blanker.blank(&origin(SERVER), &mut request);
    let mut response = message(Command::CREATE, 5, true, |w| pipe_response(id).encode(w));
    blanker.blank(&origin(SERVER), &mut response);
}

/// The bytes of SECRET that are left of a call, in a WRITE and in an IOCTL.
fn left_of(blanker: &mut Blanker, id: FileId, data: &[u8]) -> [usize; 2] {
    let written = write::Request::new(id, 0, data);
    let mut write = message(Command::WRITE, 6, false, |w| written.encode(w));
    let code = ioctl::CtlCode::PIPE_TRANSCEIVE;
    let asked = ioctl::Request::fsctl(code, id, data, 1024);
    let mut ioctl = message(Command::IOCTL, 7, false, |w| asked.encode(w));
    blanker.blank(&origin(SERVER), &mut write);
    blanker.blank(&origin(SERVER), &mut ioctl);
    [secret_bytes(&write), secret_bytes(&ioctl)]
}

#[test]
fn calls_that_carry_passwords_are_overwritten() {
    let id = FileId { persistent: 3, volatile: 4 };
    let blanker = &mut Blanker::default();
    open(blanker, "samr", id);
    for opnum in [37, 38, 54, 55, 58, 63, 66, 67, 73] {
        assert_eq!(left_of(blanker, id, &call(opnum)), [0, 0], "{opnum}");
    }
    assert_eq!(left_of(blanker, id, &call(5)), [500, 500]);
    // The rest of a call that is too long for one message.
    assert_eq!(left_of(blanker, id, &[SECRET; 90]), [0, 0]);
    open(blanker, "\\PIPE\\LsaRpc", id);
    assert_eq!(left_of(blanker, id, &call(29)), [0, 0]);
    assert_eq!(left_of(blanker, id, &call(15)), [500, 500]);
    open(blanker, "netlogon", id);
    assert_eq!(left_of(blanker, id, &call(0)), [0, 0]);
    open(blanker, "srvsvc", id);
    assert_eq!(left_of(blanker, id, &call(55)), [500, 500]);
}

#[test]
fn a_pipe_of_which_nothing_is_known_counts_as_one_with_passwords() {
    let id = FileId { persistent: 3, volatile: 4 };
    let blanker = &mut Blanker::default();
    assert_eq!(left_of(blanker, id, &call(55)), [0, 0]);
    // The data of files is not touched.
    open(blanker, "notes.txt", id);
    assert_eq!(left_of(blanker, id, &[SECRET; 90]), [90, 90]);
}

#[test]
fn pipes_of_two_servers_may_have_one_id() {
    let id = FileId { persistent: 3, volatile: 4 };
    let blanker = &mut Blanker::default();
    open(blanker, "samr", id);
    // Another server gives the same id to a harmless pipe.
    let mut request = message(Command::CREATE, 5, false, |w| pipe_request("srvsvc").encode(w));
    blanker.blank(&origin("10.0.0.3:445"), &mut request);
    let mut response = message(Command::CREATE, 5, true, |w| pipe_response(id).encode(w));
    blanker.blank(&origin("10.0.0.3:445"), &mut response);
    assert_eq!(left_of(blanker, id, &call(55)), [0, 0]);
    // The interface can be behind the name of the other pipe.
    open(blanker, "lsarpc", id);
    assert_eq!(left_of(blanker, id, &call(55)), [0, 0]);
    blanker.forget(1);
    assert!(blanker.open.is_empty());
}

#[test]
fn a_logon_in_an_answer_is_overwritten() {
    let mut pdu = vec![5, 0, 12, 3, 0x10, 0, 0, 0];
    let token = kerberos();
    pdu.extend(u16::try_from(24 + token.len()).unwrap().to_le_bytes());
    pdu.extend(u16::try_from(token.len()).unwrap().to_le_bytes());
    pdu.extend([0; 12]);
    pdu.extend(token);
    let response = read::Response::new(&pdu);
    let mut frame = message(Command::READ, 9, true, |w| response.encode(w));
    assert!(secret_bytes(&frame) > 0);
    Blanker::default().blank(&origin(SERVER), &mut frame);
    assert_eq!(secret_bytes(&frame), 0);
}

#[test]
fn a_logon_in_a_pipe_is_overwritten() {
    let id = FileId { persistent: 3, volatile: 4 };
    let blanker = &mut Blanker::default();
    open(blanker, "srvsvc", id);
    let token = authenticate();
    let len = u16::try_from(16 + 4 + 8 + token.len()).unwrap();
    let mut pdu = vec![5, 0, 16, 3, 0x10, 0, 0, 0];
    pdu.extend(len.to_le_bytes());
    pdu.extend(u16::try_from(token.len()).unwrap().to_le_bytes());
    pdu.extend([0; 4 + 4 + 8]);
    pdu.extend(token);
    assert_eq!(left_of(blanker, id, &pdu), [0, 0]);
}

/// A call or a logon of which only the beginning is there, as in a message whose data is cut, keeps nothing.
#[test]
fn the_beginning_of_a_call_is_overwritten() {
    let id = FileId { persistent: 3, volatile: 4 };
    let blanker = &mut Blanker::default();
    open(blanker, "samr", id);
    let mut long = call(55);
    long.extend([SECRET; 300]);
    let len = u16::try_from(long.len()).unwrap();
    long[8..10].copy_from_slice(&len.to_le_bytes());
    long[10..12].copy_from_slice(&300_u16.to_le_bytes());
    let mut logon = long.clone();
    logon[2] = 11;
    let left = |blanker: &mut Blanker, data: &[u8], cut: usize| {
        let written = write::Request::new(id, 0, data);
        let mut frame = message(Command::WRITE, 6, false, |w| written.encode(w));
        frame.truncate(frame.len() - cut);
        blanker.blank(&origin(SERVER), &mut frame);
        secret_bytes(&frame)
    };
    // The stub is gone, and the verifier of a call, which has no password, is there if the call is whole.
    assert_eq!(left(blanker, &long, 0), 300);
    for cut in [1, 100, 299, 300, 301, 500] {
        assert_eq!(left(blanker, &long, cut), 0, "{cut}");
        assert_eq!(
            left(blanker, &logon, cut),
            500_usize.saturating_sub(cut.saturating_sub(300)),
            "{cut}"
        );
    }
}

#[test]
fn a_message_in_a_compound_is_overwritten() {
    let mut first = message(Command::ECHO, 1, false, |w| {
        w.u16(4).u16(0);
    });
    first.resize(72, 0);
    first[20..24].copy_from_slice(&72_u32.to_le_bytes());
    let mut frame = [first, session_setup(&authenticate())].concat();
    Blanker::default().blank(&origin(SERVER), &mut frame);
    assert_eq!(secret_bytes(&frame), 0);
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_taken(mut bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
        token::blank(&mut bytes);
        pipes::blank(None, &mut bytes);
        pipes::blank(Some(Pipe::Accounts), &mut bytes);
        let mut frame = session_setup(&bytes);
        Blanker::default().blank(&origin(SERVER), &mut frame);
    }
}
