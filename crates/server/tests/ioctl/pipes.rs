//! IPC$: which pipes there are, and RPC over them.

use std::sync::Arc;

use frevo_rpc::limits::MAX_UNREAD;
use frevo_rpc::lsarpc::{
    self, LookupNames, LookupReply, LookupSids, NamesForm, OpenPolicy, SidsForm, TranslatedName,
    TranslatedSid, UserNameReply,
};
use frevo_rpc::srvsvc::{
    self, ServerGetInfo, ShareEnum, ShareEnumReply, ShareGetInfo, ShareInfo, ShareType,
};
use frevo_rpc::{Client, SyntaxId, WinError};
use frevo_wire::Utf16;
use frevo_wire::command::create::{self, CreateOptions, ImpersonationLevel};
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::command::ioctl::pipe_wait;
use frevo_wire::command::query_info;
use frevo_wire::dtyp::{AccessMask, FileAttributes, FileTime, Sid};
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::fsctl::PipePeekHeader;
use frevo_wire::fscc::query::{FilePipeInformation, FilePipeLocalInformation};

use frevo_posix::{PosixOptions, PosixVfs, Said, UnixUser};
use frevo_server::ambient::{Ambient, Host, HostUser};
use frevo_server::internal::limits::PIPES_PER_SESSION;
use frevo_server::share::{RunAs, Share};

use super::calls::*;
use crate::client::files::{close_draft, data, read_draft, utf16, write_draft};
use crate::client::peer::async_id;
use crate::client::world::{Users, in_own_world, serving};
use crate::client::*;

pub async fn ipc(world: &World, user: &str) -> (Peer, Mount) {
    let (mut peer, mount) = world.session(user, &Offer::default()).await;
    let ipc = peer.mount(&mount.logon, "IPC$").await;
    (peer, ipc)
}

/// Binds by TRANSCEIVE.
pub async fn bind(peer: &mut Peer, mount: &Mount, file: FileId, interface: SyntaxId) -> Client {
    let mut client = Client::new(interface);
    let reply = ask(peer, mount, CtlCode::PIPE_TRANSCEIVE, file, &client.bind(), 4280).await;
    assert!(client.handle_bind_reply(&output(reply.ok())).unwrap());
    client
}

/// Calls by WRITE and READ.
pub async fn call(
    peer: &mut Peer,
    mount: &Mount,
    file: FileId,
    client: &mut Client,
    opnum: u16,
    stub: &[u8],
) -> Vec<u8> {
    for fragment in client.call(opnum, stub) {
        peer.write(mount, file, 0, &fragment).await;
    }
    loop {
        let bytes = peer.read(mount, file, 0, 8192).await;
        if let Some(stub) = client.handle_bytes(&bytes).unwrap() {
            return stub;
        }
    }
}

async fn shares(peer: &mut Peer, mount: &Mount) -> Vec<ShareInfo> {
    let file = peer.open_file(mount, &Want::existing("srvsvc")).await;
    let mut client = bind(peer, mount, file, SyntaxId::SRVSVC).await;
    let request = ShareEnum { level: 1, max_len: u32::MAX, resume: None };
    let stub = request.encode("\\\\frevo");
    let stub = call(peer, mount, file, &mut client, srvsvc::SHARE_ENUM, &stub).await;
    peer.close(mount, file).await;
    let reply = ShareEnumReply::<Vec<ShareInfo>>::parse(&stub, 1).unwrap();
    assert_eq!(reply.status, WinError::SUCCESS);
    reply.shares
}

#[test]
fn shares_are_listed_for_those_who_may_connect() {
    in_world(async |world| {
        let (mut ann, mount) = ipc(world, "ann").await;
        let listed = shares(&mut ann, &mount).await;
        let names: Vec<_> = listed.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "IPC$", "backups", "copies", "data", "discreet", "lasting", "late", "readonly",
                "sealed"
            ],
            "bob's share is bob's"
        );
        assert_eq!(listed[0].kind, ShareType(0x8000_0003));
        assert_eq!(listed[1].kind, ShareType::DISKTREE);
        assert!(listed.iter().all(|s| s.path.is_empty() && s.security_descriptor.is_none()));
        let (mut bob, mount) = ipc(world, "bob").await;
        assert!(shares(&mut bob, &mount).await.iter().any(|s| s.name == "bobs"));
    });
}

/// Row X8: a share where files are used as the host's user of the account's name is
/// not listed for an account without one, which may not connect there.
#[test]
fn x8_a_share_for_users_of_the_host_is_not_listed_for_others() {
    #[derive(Debug)]
    struct Bobs;
    impl Ambient for Bobs {
        fn now(&self) -> FileTime {
            Host.now()
        }
        fn random(&self, bytes: &mut [u8]) {
            Host.random(bytes);
        }
        fn host_user(&self, name: &str) -> Said<HostUser> {
            let unix = UnixUser { uid: 4711, gid: 4711, groups: vec![4711] };
            Ok((name == "bob").then_some(HostUser { unix, groups: Vec::new() }))
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
    let share = Share::disk("hosts", Arc::new(vfs)).run_as(RunAs::User);
    let server = serving(settings(), [share], Arc::new(Users), Arc::new(Bobs));
    in_own_world(false, &World::of(server, dir), async |world| {
        for (user, names) in [("ann", &["IPC$"][..]), ("bob", &["IPC$", "hosts"])] {
            let mut peer = world.connect();
            peer.negotiate(&Offer::default()).await;
            let logon = peer.log_on(user).await;
            let mount = peer.mount(&logon, "IPC$").await;
            let listed = shares(&mut peer, &mount).await;
            let listed: Vec<_> = listed.iter().map(|share| share.name.as_str()).collect();
            assert_eq!(listed, names, "{user}");
        }
    });
}

#[test]
fn a_share_that_one_may_not_know_is_not_there() {
    in_world(async |world| {
        let (mut ann, mount) = ipc(world, "ann").await;
        let file = ann.open_file(&mount, &Want::existing("srvsvc")).await;
        let mut client = bind(&mut ann, &mount, file, SyntaxId::SRVSVC).await;
        let mut ask = async |name| {
            let stub = ShareGetInfo { name, level: 502 }.encode("\\\\frevo");
            let opnum = srvsvc::SHARE_GET_INFO;
            let stub = call(&mut ann, &mount, file, &mut client, opnum, &stub).await;
            srvsvc::parse_share_info(&stub, 502).unwrap()
        };
        assert_eq!(ask("DATA").await.unwrap().name, "data");
        assert_eq!(ask("bobs").await, Err(WinError::NET_NAME_NOT_FOUND));
        assert_eq!(ask("absent").await, Err(WinError::NET_NAME_NOT_FOUND));
    });
}

#[test]
fn the_server_says_who_it_is() {
    in_world(async |world| {
        let (mut peer, mount) = ipc(world, "ann").await;
        let file = peer.open_file(&mount, &Want::existing("SrvSvc")).await;
        let mut client = bind(&mut peer, &mount, file, SyntaxId::SRVSVC).await;
        let request = ServerGetInfo { level: 101 };
        let stub = request.encode("\\\\frevo");
        let opnum = srvsvc::SERVER_GET_INFO;
        let stub = call(&mut peer, &mount, file, &mut client, opnum, &stub).await;
        let info = request.parse_reply(&stub).unwrap().unwrap();
        assert_eq!((info.name.as_str(), info.comment.as_str()), ("FREVO", "Frevo"));
        assert_eq!((info.version_major, info.version_minor, info.kind.0), (6, 1, 0x9003));
        let file = peer.open_file(&mount, &Want::existing("wkssvc")).await;
        let mut client = bind(&mut peer, &mount, file, SyntaxId::WKSSVC).await;
        let stub = frevo_rpc::wkssvc::WkstaGetInfo { level: 100 }.encode("\\\\frevo");
        let opnum = frevo_rpc::wkssvc::WKSTA_GET_INFO;
        let stub = call(&mut peer, &mount, file, &mut client, opnum, &stub).await;
        assert!(stub.ends_with(&0_u32.to_le_bytes()), "success");
    });
}

/// F2: no name leads anywhere but to the two pipes.
#[test]
fn f2_pipe_names_are_a_fixed_list() {
    in_world(async |world| {
        world.file("srvsvc", "a file, not a pipe");
        let (mut peer, mount) = ipc(world, "ann").await;
        for name in ["srvsvc", "SRVSVC", "wkssvc", "PIPE\\srvsvc", "pipe\\wkssvc"] {
            let file = peer.open_file(&mount, &Want::existing(name)).await;
            peer.close(&mount, file).await;
        }
        let absent = [
            "",
            "srv",
            "srvsvc2",
            "srvsvc ",
            "srvsvc\0",
            "netlogon",
            "drsuapi",
            "..",
            "../srvsvc",
            "..\\srvsvc",
            "a\\..\\srvsvc",
            "/srvsvc",
            "srvsvc/",
            "srvsvc\\",
            "PIPE\\",
            "PIPE\\PIPE\\srvsvc",
            "PIPE/srvsvc",
            "srvsvc:stream",
            "/etc/passwd",
        ];
        for name in absent {
            let reply = peer.create(&mount, &Want::existing(name)).await;
            let status = reply.status();
            assert_eq!(status, Status::OBJECT_NAME_NOT_FOUND, "{name:?}");
        }
        let unpaired = Want { name: vec![0x00, 0xD8], ..Want::existing("") };
        peer.create(&mount, &unpaired).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        let long = Want::existing(&"x".repeat(30_000));
        peer.create(&mount, &long).await.expect(Status::OBJECT_NAME_NOT_FOUND);
    });
}

#[test]
fn opening_a_pipe_makes_no_file_of_it() {
    in_world(async |world| {
        let (mut peer, mount) = ipc(world, "ann").await;
        let reply = peer.create(&mount, &Want::file("srvsvc")).await;
        let response = create::Response::parse(&reply.ok().message).unwrap();
        assert_eq!(response.file_attributes, FileAttributes::NORMAL);
        assert_eq!(response.create_action, create::CreateAction::OPENED);
        assert_eq!(response.end_of_file, 0);
        let directory = Want::existing("srvsvc").options(CreateOptions::DIRECTORY_FILE);
        peer.create(&mount, &directory).await.expect(Status::NOT_A_DIRECTORY);
        let delegate = (ImpersonationLevel::DELEGATE.0).to_le_bytes();
        let draft = Want::existing("srvsvc").draft().patch(64 + 4, &delegate);
        peer.on(&mount, draft).await.expect(Status::BAD_IMPERSONATION_LEVEL);
        assert!(!world.path("srvsvc").exists());
    });
}

#[test]
fn a_pipe_answers_only_for_the_rights_it_was_opened_with() {
    in_world(async |world| {
        let (mut peer, mount) = ipc(world, "ann").await;
        let reader = Want::existing("srvsvc").access(AccessMask::READ_DATA);
        let reader = peer.open_file(&mount, &reader).await;
        let bind = Client::new(SyntaxId::SRVSVC).bind();
        let write = write_draft(reader, 0, &bind);
        peer.on(&mount, write).await.expect(Status::ACCESS_DENIED);
        ask(&mut peer, &mount, CtlCode::PIPE_TRANSCEIVE, reader, &bind, 4280)
            .await
            .expect(Status::ACCESS_DENIED);
        let writer = Want::existing("srvsvc").access(AccessMask::WRITE_DATA);
        let writer = peer.open_file(&mount, &writer).await;
        peer.write(&mount, writer, 0, &bind).await;
        peer.on(&mount, read_draft(writer, 0, 100)).await.expect(Status::ACCESS_DENIED);
        ask(&mut peer, &mount, CtlCode::PIPE_PEEK, writer, &[], 100)
            .await
            .expect(Status::ACCESS_DENIED);
    });
}

#[test]
fn a_long_message_is_read_in_parts() {
    in_world(async |world| {
        let (mut peer, mount) = ipc(world, "ann").await;
        let file = peer.open_file(&mount, &Want::existing("srvsvc")).await;
        let mut client = Client::new(SyntaxId::SRVSVC);
        peer.write(&mount, file, 0, &client.bind()).await;
        let reply = ask(&mut peer, &mount, CtlCode::PIPE_PEEK, file, &[], 16 + 10).await;
        let shown = output(reply.expect(Status::BUFFER_OVERFLOW));
        let header = PipePeekHeader::parse(&shown).unwrap();
        assert_eq!((header.named_pipe_state, header.number_of_messages), (3, 1));
        assert_eq!(header.read_data_available, header.message_length);
        let length = header.message_length;
        let first = peer.on(&mount, read_draft(file, 0, 20)).await;
        let mut whole = data(first.expect(Status::BUFFER_OVERFLOW)).to_vec();
        assert_eq!(whole[..10], shown[16..]);
        let rest = peer.on(&mount, read_draft(file, 0, length - 20)).await;
        whole.extend_from_slice(data(rest.ok()));
        assert!(client.handle_bind_reply(&whole).unwrap());
        let reply = ask(&mut peer, &mount, CtlCode::PIPE_PEEK, file, &[], 100).await;
        let shown = PipePeekHeader::parse(&output(reply.ok())).unwrap();
        assert_eq!((shown.read_data_available, shown.number_of_messages), (0, 0));
        for (room, status) in
            [(0, Status::SUCCESS), (15, Status::INVALID_PARAMETER), (16, Status::SUCCESS)]
        {
            ask(&mut peer, &mount, CtlCode::PIPE_PEEK, file, &[], room).await.expect(status);
        }
    });
}

#[test]
fn a_read_before_the_write_waits_for_it() {
    in_world(async |world| {
        let (mut peer, mount) = ipc(world, "ann").await;
        let file = peer.open_file(&mount, &Want::existing("srvsvc")).await;
        let mut client = Client::new(SyntaxId::SRVSVC);
        let read = peer.send(vec![mount.put(read_draft(file, 0, 8192))], mount.via()).await;
        peer.interim().await;
        peer.write(&mount, file, 0, &client.bind()).await;
        let reply = peer.final_reply(read[0]).await;
        assert!(client.handle_bind_reply(data(reply.ok())).unwrap());
    });
}

#[test]
fn a_waiting_read_ends_with_cancel_and_with_the_pipe() {
    in_world(async |world| {
        let (mut peer, mount) = ipc(world, "ann").await;
        let file = peer.open_file(&mount, &Want::existing("srvsvc")).await;
        let read = || mount.put(read_draft(file, 0, 8192));
        let id = peer.send(vec![read()], mount.via()).await[0];
        let interim = peer.interim().await;
        cancel(&peer, &mount, id, Some(async_id(&interim))).await;
        peer.final_reply(id).await.expect(Status::CANCELLED);
        // This READ is cancelled before its interim response. The READ above was cancelled after
        // its interim response.
        let id = peer.send(vec![read()], mount.via()).await[0];
        cancel(&peer, &mount, id, None).await;
        peer.final_reply(id).await.expect(Status::CANCELLED);
        let id = peer.send(vec![read()], mount.via()).await[0];
        peer.interim().await;
        let closing = peer.send(vec![mount.put(close_draft(file))], mount.via()).await[0];
        let replies = peer.collect(&[closing, id]).await;
        replies[0].ok();
        replies[1].expect(Status::PIPE_BROKEN);
        // The connection ends while a READ waits. The end of the test checks that nothing of the
        // READ is left.
        let file = peer.open_file(&mount, &Want::existing("srvsvc")).await;
        peer.send(vec![mount.put(read_draft(file, 0, 1))], mount.via()).await;
        peer.interim().await;
    });
}

#[test]
fn in_non_blocking_mode_an_empty_pipe_says_so() {
    in_world(async |world| {
        let (mut peer, mount) = ipc(world, "ann").await;
        let file = peer.open_file(&mount, &Want::existing("srvsvc")).await;
        let set = |bytes: &[u8]| set_draft(FileInfoClass::PIPE, file, bytes);
        let mode = |read_mode, completion_mode| {
            let mut bytes = Vec::new();
            FilePipeInformation { read_mode, completion_mode }
                .encode(&mut frevo_wire::codec::Writer::new(&mut bytes));
            bytes
        };
        peer.on(&mount, set(&mode(2, 0))).await.expect(Status::INVALID_PARAMETER);
        peer.on(&mount, set(&mode(1, 2))).await.expect(Status::INVALID_PARAMETER);
        peer.on(&mount, set(&mode(1, 1)[..7])).await.expect(Status::INFO_LENGTH_MISMATCH);
        peer.on(&mount, set(&mode(0, 1))).await.ok();
        peer.on(&mount, read_draft(file, 0, 100)).await.expect(Status::PIPE_EMPTY);
        // In byte mode a READ may return a part of a message without BUFFER_OVERFLOW.
        peer.write(&mount, file, 0, &Client::new(SyntaxId::SRVSVC).bind()).await;
        assert_eq!(peer.read(&mount, file, 0, 20).await.len(), 20);
        let query = |class| query_draft(class, file);
        let reply = peer.on(&mount, query(FileInfoClass::PIPE)).await;
        let output = query_info::Response::parse(&reply.ok().message).unwrap().output;
        let told = FilePipeInformation::parse(output).unwrap();
        assert_eq!((told.read_mode, told.completion_mode), (0, 1));
        let reply = peer.on(&mount, query(FileInfoClass::PIPE_LOCAL)).await;
        let output = query_info::Response::parse(&reply.ok().message).unwrap().output;
        let told = FilePipeLocalInformation::parse(output).unwrap();
        assert_eq!((told.named_pipe_state, told.named_pipe_end), (3, 0));
        assert!(told.read_data_available > 0);
        peer.on(&mount, query(FileInfoClass::PIPE_REMOTE)).await.ok();
        peer.on(&mount, query(FileInfoClass::STANDARD)).await.ok();
        peer.on(&mount, query(FileInfoClass::BASIC)).await.expect(Status::NOT_SUPPORTED);
    });
}

/// P15: what breaks the protocol of RPC ends the pipe, with a fault first.
#[test]
fn p15_nonsense_is_answered_a_fault_and_the_pipe_ends() {
    in_world(async |world| {
        let (mut peer, mount) = ipc(world, "ann").await;
        let bind = Client::new(SyntaxId::SRVSVC).bind();
        let lie = |at: usize, with: &[u8]| {
            let mut bytes = bind.clone();
            bytes[at..at + with.len()].copy_from_slice(with);
            bytes
        };
        let nonsense = [
            vec![0xFF; 64],
            lie(0, &[4]),
            lie(2, &[0xFF]),
            lie(8, &[0xFF, 0xFF]),
            lie(8, &[1, 0]),
            lie(24, &[0xFF]),
        ];
        for bytes in nonsense {
            let file = peer.open_file(&mount, &Want::existing("srvsvc")).await;
            let write = write_draft(file, 0, &bytes);
            peer.on(&mount, write).await.ok();
            let answer = peer.on(&mount, read_draft(file, 0, 8192)).await;
            let kind = data(answer.ok())[2];
            assert!(kind == 3 || kind == 13, "fault or bind_nak, not {kind}");
            peer.on(&mount, read_draft(file, 0, 8192)).await.expect(Status::PIPE_DISCONNECTED);
            let write = write_draft(file, 0, &bind);
            peer.on(&mount, write).await.expect(Status::PIPE_DISCONNECTED);
            peer.close(&mount, file).await;
        }
    });
}

#[test]
fn half_a_request_is_answered_when_it_is_whole() {
    in_world(async |world| {
        let (mut peer, mount) = ipc(world, "ann").await;
        let file = peer.open_file(&mount, &Want::existing("srvsvc")).await;
        let bind = Client::new(SyntaxId::SRVSVC).bind();
        let (one, two) = bind.split_at(bind.len() - 1);
        let code = CtlCode::PIPE_TRANSCEIVE;
        ask(&mut peer, &mount, code, file, one, 8192).await.expect(Status::PIPE_EMPTY);
        // The answer is longer than the buffer, so it is cut off, and a READ returns its rest.
        let reply = ask(&mut peer, &mount, code, file, two, 20).await;
        assert_eq!(output(reply.expect(Status::BUFFER_OVERFLOW)).len(), 20);
        peer.on(&mount, read_draft(file, 0, 8192)).await.ok();
    });
}

/// A client that asks and does not read is stopped: it cannot fill the server's memory.
#[test]
fn what_waits_to_be_read_is_bounded() {
    in_world(async |world| {
        let (mut peer, mount) = ipc(world, "ann").await;
        let file = peer.open_file(&mount, &Want::existing("srvsvc")).await;
        let mut client = bind(&mut peer, &mount, file, SyntaxId::SRVSVC).await;
        let stub = ServerGetInfo { level: 102 }.encode("\\\\frevo");
        let fragment = client.call(srvsvc::SERVER_GET_INFO, &stub).remove(0);
        let available = async |peer: &mut Peer| {
            let reply = ask(peer, &mount, CtlCode::PIPE_PEEK, file, &[], 16).await;
            PipePeekHeader::parse(&output(&reply)).unwrap().read_data_available as usize
        };
        while available(&mut peer).await < MAX_UNREAD {
            peer.write(&mount, file, 0, &fragment).await;
        }
        let write = write_draft(file, 0, &fragment);
        peer.on(&mount, write.clone()).await.expect(Status::PIPE_BUSY);
        assert!(available(&mut peer).await < MAX_UNREAD + 4280);
        let first = peer.read(&mount, file, 0, 8192).await;
        if available(&mut peer).await < MAX_UNREAD {
            peer.on(&mount, write).await.ok();
        }
        assert!(client.handle_bytes(&first).unwrap().is_some());
    });
}

#[test]
fn pipes_of_a_session_are_bounded() {
    in_world(async |world| {
        let (mut peer, mount) = ipc(world, "ann").await;
        let mut open = Vec::new();
        for _ in 0..PIPES_PER_SESSION {
            open.push(peer.open_file(&mount, &Want::existing("srvsvc")).await);
        }
        peer.create(&mount, &Want::existing("wkssvc")).await.expect(Status::INSUFFICIENT_RESOURCES);
        peer.close(&mount, open.remove(0)).await;
        peer.open_file(&mount, &Want::existing("wkssvc")).await;
        // Ann's session has all its pipes open, but the limit is that of a session, so bob can
        // still open one.
        let (mut bob, mount) = ipc(world, "bob").await;
        bob.open_file(&mount, &Want::existing("srvsvc")).await;
    });
}

#[test]
fn pipes_are_not_waited_for() {
    in_world(async |world| {
        let (mut peer, mount) = ipc(world, "ann").await;
        let input = |name: &str| {
            let name = utf16(name);
            let mut bytes = Vec::new();
            pipe_wait::Request { timeout: None, name: Utf16::new(&name).unwrap() }
                .encode(&mut frevo_wire::codec::Writer::new(&mut bytes));
            bytes
        };
        let none = FileId::ALL_ONES;
        let code = CtlCode::PIPE_WAIT;
        ask(&mut peer, &mount, code, none, &input("srvsvc"), 0).await.ok();
        let absent = Status::OBJECT_NAME_NOT_FOUND;
        ask(&mut peer, &mount, code, none, &input("netlogon"), 0).await.expect(absent);
        let whole = input("srvsvc");
        for cut in 0..whole.len() {
            ask(&mut peer, &mount, code, none, &whole[..cut], 0).await.expect(absent);
        }
        let mut lie = whole;
        lie[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        ask(&mut peer, &mount, code, none, &lie, 0).await.expect(absent);
        let file = peer.open_file(&mount, &Want::existing("srvsvc")).await;
        ask(&mut peer, &mount, code, file, &input("srvsvc"), 0)
            .await
            .expect(Status::INVALID_PARAMETER);
    });
}

#[test]
fn what_is_for_files_is_not_for_pipes() {
    in_world(async |world| {
        let (mut peer, mount) = ipc(world, "ann").await;
        let pipe = peer.open_file(&mount, &Want::existing("srvsvc")).await;
        for code in [
            CtlCode::SRV_REQUEST_RESUME_KEY,
            CtlCode::SET_SPARSE,
            CtlCode::GET_REPARSE_POINT,
            CtlCode::GET_COMPRESSION,
        ] {
            ask(&mut peer, &mount, code, pipe, &[0; 64], 4096)
                .await
                .expect(Status::INVALID_DEVICE_REQUEST);
        }
        // MS-SMB2 3.3.5.15.6: the key of the copy's source is looked up first and is unknown, so
        // the pipe is not even checked.
        let absent = Status::OBJECT_NAME_NOT_FOUND;
        ask(&mut peer, &mount, CtlCode::SRV_COPYCHUNK, pipe, &[0; 64], 4096).await.expect(absent);
        let data = peer.mount(&mount.logon, "data").await;
        let file = peer.open_file(&data, &Want::file("f")).await;
        for code in [CtlCode::PIPE_PEEK, CtlCode::PIPE_TRANSCEIVE] {
            ask(&mut peer, &data, code, file, &[0; 64], 4096).await.expect(Status::NOT_SUPPORTED);
        }
        // The pipe belongs to IPC$, so its FileId is unknown in the tree connect of another share.
        ask(&mut peer, &data, CtlCode::PIPE_PEEK, pipe, &[], 16).await.expect(Status::FILE_CLOSED);
    });
}

/// MS-LSAT: every user that may connect may look up SIDs.
#[test]
fn names_and_sids_are_told() {
    in_world(async |world| {
        let (mut peer, mount) = ipc(world, "ann").await;
        let file = peer.open_file(&mount, &Want::existing("lsarpc")).await;
        let mut client = bind(&mut peer, &mount, file, SyntaxId::LSARPC).await;
        let mut ask = async |opnum, stub: &[u8]| {
            call(&mut peer, &mount, file, &mut client, opnum, stub).await
        };
        let open = OpenPolicy::encode(AccessMask::MAXIMUM_ALLOWED, "\\\\frevo");
        let reply = ask(lsarpc::OPEN_POLICY2, &open).await;
        let (policy, status) = frevo_rpc::handles::parse_handle_reply(&reply).unwrap();
        assert_eq!(status, Status::SUCCESS);
        let names = LookupNames::encode(&policy, &["BUILTIN\\Users", "nobody at all"]);
        let reply = ask(lsarpc::LOOKUP_NAMES3, &names).await;
        let reply = LookupReply::<TranslatedSid>::parse(&reply, NamesForm::Names3, 2).unwrap();
        assert_eq!((reply.mapped, reply.status), (1, Status::SOME_NOT_MAPPED));
        let users = reply.entries[0].sid.unwrap();
        assert_eq!(users, Sid::USERS);
        let sids = LookupSids::encode(&policy, &[users, Sid::ADMINISTRATORS]);
        let reply = ask(lsarpc::LOOKUP_SIDS2, &sids).await;
        let reply = LookupReply::<TranslatedName>::parse(&reply, SidsForm::Sids2, 2).unwrap();
        let names: Vec<_> = reply.entries.iter().map(|it| it.name.as_str()).collect();
        assert_eq!((names, reply.status), (vec!["Users", "Administrators"], Status::SUCCESS));
        let asked = lsarpc::UserName { wants_domain: true }.encode("\\\\frevo");
        let reply = UserNameReply::parse(&ask(lsarpc::GET_USER_NAME, &asked).await).unwrap();
        assert_eq!(reply.user, "ann");
    });
}

/// SamrConnect2 and the domains, over the wire.
#[test]
fn accounts_are_told_by_samr() {
    use frevo_rpc::handles::parse_handle_reply;
    use frevo_rpc::samr;
    use frevo_wire::ndr::{NdrReader, NdrWriter};
    in_world(async |world| {
        let (mut ann, mount) = ipc(world, "ann").await;
        let file = ann.open_file(&mount, &Want::existing("samr")).await;
        let mut client = bind(&mut ann, &mount, file, SyntaxId::SAMR).await;
        let mut w = NdrWriter::new();
        w.unique_string(Some("\\\\frevo")).u32(0x0200_0000);
        let stub = w.into_stub();
        let reply = call(&mut ann, &mount, file, &mut client, samr::CONNECT2, &stub).await;
        let (server, status) = parse_handle_reply(&reply).unwrap();
        assert_eq!(status, Status::SUCCESS);
        let mut w = NdrWriter::new();
        w.handle(&server).u32(0).u32(4096);
        let (stub, opnum) = (w.into_stub(), samr::ENUMERATE_DOMAINS);
        let reply = call(&mut ann, &mount, file, &mut client, opnum, &stub).await;
        let mut r = NdrReader::new(&reply);
        assert_eq!(r.u32("context"), Ok(2));
        assert!(r.pointer("buffer").unwrap());
        assert_eq!(r.u32("count"), Ok(2));
        ann.close(&mount, file).await;
        // The handle was returned on another pipe, so on this one it is not valid.
        let file = ann.open_file(&mount, &Want::existing("samr")).await;
        let mut client = bind(&mut ann, &mount, file, SyntaxId::SAMR).await;
        for fragment in client.call(opnum, &stub) {
            ann.write(&mount, file, 0, &fragment).await;
        }
        let bytes = ann.read(&mount, file, 0, 8192).await;
        assert!(client.handle_bytes(&bytes).is_err());
        ann.expect_alive().await;
    });
}
