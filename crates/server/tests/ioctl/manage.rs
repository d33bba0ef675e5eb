//! Sessions, open files and connections that administrators see and end over srvsvc.

use std::time::Duration;

use frevo_rpc::srvsvc::{
    CONNECTION_ENUM, FILE_CLOSE, FILE_ENUM, FILE_GET_INFO, MAX_PREFERRED_LENGTH, SESSION_DEL,
    SESSION_ENUM,
};
use frevo_rpc::{Client, SyntaxId, WinError};
use frevo_wire::command::change_notify::{self, ChangeNotifyFlags, CompletionFilter};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::ndr::{NdrReader, NdrWriter};

use super::calls::promote_ann;
use super::pipes::{bind, call, ipc};
use crate::client::files::{close_draft, read_draft};
use crate::client::world::in_memory;
use crate::client::*;

/// A caller on the pipe.
struct Srvsvc {
    peer: Peer,
    ipc: Mount,
    pipe: FileId,
    client: Client,
}

impl Srvsvc {
    async fn of(world: &World, user: &str) -> Self {
        let (mut peer, ipc) = ipc(world, user).await;
        let pipe = peer.open_file(&ipc, &Want::existing("srvsvc")).await;
        let client = bind(&mut peer, &ipc, pipe, SyntaxId::SRVSVC).await;
        Self { peer, ipc, pipe, client }
    }

    async fn call(&mut self, opnum: u16, stub: &[u8]) -> Vec<u8> {
        call(&mut self.peer, &self.ipc, self.pipe, &mut self.client, opnum, stub).await
    }

    /// An enumeration: the entries told, those there are, and the status.
    async fn list(&mut self, opnum: u16, first: Option<&str>, level: u32) -> (Vec<u8>, Told) {
        let mut w = NdrWriter::new();
        w.unique_string(Some(r"\\frevo")).unique_string(first);
        if opnum != CONNECTION_ENUM {
            w.unique_string(None);
        }
        w.u32(level).u32(level).pointer(true).u32(0).pointer(false).u32(MAX_PREFERRED_LENGTH);
        w.pointer(false);
        let reply = self.call(opnum, &w.into_stub()).await;
        let number = |at: usize| u32::from_le_bytes(reply[at..at + 4].try_into().unwrap());
        let end = reply.len();
        let told = Told {
            entries: number(12),
            total: number(end - 12),
            status: WinError(number(end - 4)),
        };
        (reply, told)
    }

    /// The numbers of open files with their paths.
    async fn files(&mut self) -> Vec<(u32, String)> {
        let (reply, told) = self.list(FILE_ENUM, None, 3).await;
        assert_eq!(told.status, WinError::SUCCESS);
        let mut r = NdrReader::new(&reply[20..]);
        r.u32("").unwrap();
        let ids: Vec<u32> =
            (0..told.entries).map(|_| [0; 5].map(|_: u32| r.u32("").unwrap())[0]).collect();
        let path = |id| {
            let path = r.string("").unwrap().to_string_lossy();
            r.string("").unwrap();
            (id, path)
        };
        ids.into_iter().map(path).collect()
    }

    async fn close_file(&mut self, id: u32) -> WinError {
        let mut w = NdrWriter::new();
        w.unique_string(None).u32(id);
        status(&self.call(FILE_CLOSE, &w.into_stub()).await)
    }

    async fn end_sessions(&mut self, client: Option<&str>, user: Option<&str>) -> WinError {
        let mut w = NdrWriter::new();
        w.unique_string(None).unique_string(client).unique_string(user);
        status(&self.call(SESSION_DEL, &w.into_stub()).await)
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Told {
    entries: u32,
    total: u32,
    status: WinError,
}

fn status(reply: &[u8]) -> WinError {
    WinError(u32::from_le_bytes(*reply.last_chunk().unwrap()))
}

/// Reads until the answer is not a success any more.
async fn refused(peer: &mut Peer, mount: &Mount, file: FileId) -> Status {
    for _ in 0..2_000 {
        let reply = peer.on(mount, read_draft(file, 0, 4)).await;
        if reply.status() != Status::SUCCESS {
            return reply.status();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the file is still open");
}

/// With as many tree connects, a list that looks at all Opens for each of them takes seconds.
#[test]
fn ten_thousand_opens_are_listed_beside_the_core() {
    in_memory(async |world| {
        promote_ann(world);
        let (mut bob, mount) = world.session("bob", &Offer::default()).await;
        let mut mounts = vec![mount];
        for _ in 1..500 {
            mounts.push(bob.mount(&mounts[0].logon.clone(), "data").await);
        }
        for round in 0..20 {
            for some in mounts.chunks(50) {
                let mut ids = Vec::new();
                for mount in some {
                    let name = format!("f{}", (mount.tree + round) % 200);
                    let want = Want::file(&name).access(AccessMask::READ_ATTRIBUTES);
                    let request = mount.put(want.draft());
                    ids.extend(bob.send(vec![request], mount.via()).await);
                }
                for reply in bob.collect(&ids).await {
                    reply.ok();
                }
            }
        }
        let mut ann = Srvsvc::of(world, "ann").await;
        let (_, files) = ann.list(FILE_ENUM, None, 3).await;
        assert_eq!((files.total, files.status), (10_001, WinError::SUCCESS), "and the pipe");
        let (_, connections) = ann.list(CONNECTION_ENUM, Some("DATA"), 1).await;
        assert_eq!((connections.total, connections.status), (501, WinError::SUCCESS), "and ann's");
        let (_, sessions) = ann.list(SESSION_ENUM, None, 502).await;
        assert_eq!((sessions.total, sessions.status), (2, WinError::SUCCESS));
        assert_eq!(ann.close_file(u32::MAX).await, WinError::FILE_ID_NOT_FOUND);
        assert_eq!(world.server.watchdog.held(), 0, "no poll took long");
        let bobs = mounts[0].logon.id;
        assert_eq!(ann.end_sessions(None, Some("BOB")).await, WinError::SUCCESS);
        for _ in 0..6_000 {
            if world.server.session(bobs).is_none() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(world.server.session(bobs).is_none(), "ended");
        assert_eq!(world.server.watchdog.held(), 0, "no poll took long");
    });
}

#[test]
fn the_file_that_is_named_is_closed_and_no_other() {
    in_memory(async |world| {
        promote_ann(world);
        let (mut bob, mount) = world.session("bob", &Offer::default()).await;
        let one = bob.open_file(&mount, &Want::file("one")).await;
        let two = bob.open_file(&mount, &Want::file("two")).await;
        for file in [one, two] {
            bob.write(&mount, file, 0, b"data").await;
        }
        let mut ann = Srvsvc::of(world, "ann").await;
        let files = ann.files().await;
        let paths: Vec<&str> = files.iter().map(|(_, path)| &**path).collect();
        assert!(paths.contains(&r"\PIPE\srvsvc"), "{paths:?}");
        let id = files.iter().find(|(_, path)| path == r"data\one").unwrap().0;
        assert_eq!(ann.close_file(id).await, WinError::SUCCESS);
        assert_eq!(refused(&mut bob, &mount, one).await, Status::FILE_CLOSED);
        assert_eq!(bob.read(&mount, two, 0, 4).await, b"data");
        assert_eq!(ann.close_file(id).await, WinError::FILE_ID_NOT_FOUND);
        bob.on(&mount, close_draft(two)).await.ok();
    });
}

/// MS-SMB2 3.3.4.17: a CHANGE_NOTIFY that waits gets a response of its own, NOTIFY_CLEANUP without
/// changes, when its directory is closed by the server.
#[test]
fn a_folder_that_is_closed_ends_its_watch() {
    in_memory(async |world| {
        promote_ann(world);
        let (mut bob, mount) = world.session("bob", &Offer::default()).await;
        let folder = bob.open_file(&mount, &Want::directory("watched")).await;
        let request = change_notify::Request {
            flags: ChangeNotifyFlags::EMPTY,
            output_buffer_length: 4096,
            file_id: folder,
            completion_filter: CompletionFilter::FILE_NAME,
        };
        let draft = Draft::new(Command::CHANGE_NOTIFY).with(|w| request.encode(w));
        let waiting = bob.send(vec![mount.put(draft)], mount.via()).await[0];
        bob.interim().await;
        let mut ann = Srvsvc::of(world, "ann").await;
        let files = ann.files().await;
        let id = files.iter().find(|(_, path)| path == r"data\watched").unwrap().0;
        assert_eq!(ann.close_file(id).await, WinError::SUCCESS);
        let reply = bob.final_reply(waiting).await;
        reply.expect(Status::NOTIFY_CLEANUP);
        assert_eq!(change_notify::Response::parse(&reply.message).unwrap().output, b"");
        bob.on(&mount, close_draft(folder)).await.expect(Status::FILE_CLOSED);
    });
}

#[test]
fn the_sessions_of_one_user_are_ended() {
    in_memory(async |world| {
        promote_ann(world);
        let (mut bob, mount) = world.session("bob", &Offer::default()).await;
        let file = bob.open_file(&mount, &Want::file("one")).await;
        bob.write(&mount, file, 0, b"data").await;
        let mut ann = Srvsvc::of(world, "ann").await;
        assert_eq!(ann.end_sessions(None, Some("carl")).await, WinError::CLIENT_NAME_NOT_FOUND);
        assert_eq!(ann.end_sessions(None, None).await, WinError::INVALID_PARAMETER);
        assert_eq!(ann.end_sessions(None, Some("bob")).await, WinError::SUCCESS);
        assert_eq!(refused(&mut bob, &mount, file).await, Status::USER_SESSION_DELETED);
        let (_, sessions) = ann.list(SESSION_ENUM, None, 10).await;
        assert_eq!(sessions.entries, 1, "the administrator's own is left");
    });
}

#[test]
fn only_administrators_see_or_end_anything() {
    in_memory(async |world| {
        promote_ann(world);
        let mut ann = Srvsvc::of(world, "ann").await;
        let id = ann.files().await[0].0;
        let mut bob = Srvsvc::of(world, "bob").await;
        for opnum in [SESSION_ENUM, FILE_ENUM, CONNECTION_ENUM] {
            let (_, told) = bob.list(opnum, Some("data"), 1).await;
            assert_eq!((told.total, told.status), (0, WinError::ACCESS_DENIED), "{opnum}");
        }
        let mut w = NdrWriter::new();
        w.unique_string(None).u32(id).u32(3);
        let told = bob.call(FILE_GET_INFO, &w.into_stub()).await;
        assert_eq!(status(&told), WinError::ACCESS_DENIED);
        assert_eq!(bob.close_file(id).await, WinError::ACCESS_DENIED);
        assert_eq!(bob.end_sessions(None, Some("ann")).await, WinError::ACCESS_DENIED);
        assert_eq!(ann.files().await.len(), 2, "both pipes");
    });
}
