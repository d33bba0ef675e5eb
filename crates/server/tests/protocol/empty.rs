//! Answers with a variable part that is empty: its offset is where it would begin.

use frevo_wire::command::change_notify::{self, ChangeNotifyFlags, CompletionFilter};
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::command::lock::LockFlags;
use frevo_wire::command::query_directory::QueryDirectoryFlags;
use frevo_wire::fscc::FileInfoClass;

use crate::client::draft::pack;
use crate::client::files::{close_draft, file_id, flush_draft, lock_draft, read_draft};
use crate::client::*;

/// Sends a CHANGE_NOTIFY and waits for its interim response.
async fn watch(peer: &mut Peer, mount: &Mount, file: FileId, room: u32) -> u64 {
    let request = change_notify::Request {
        flags: ChangeNotifyFlags::EMPTY,
        output_buffer_length: room,
        file_id: file,
        completion_filter: CompletionFilter::FILE_NAME,
    };
    let draft = Draft::new(Command::CHANGE_NOTIFY).with(|w| request.encode(w));
    let id = peer.send(vec![mount.put(draft)], mount.via()).await[0];
    peer.interim().await;
    id
}

/// The body, which ends with its fixed part.
fn fixed(reply: &Reply) -> &[u8] {
    &reply.message[64..]
}

/// Captured answers of Windows; MS-SMB2 2.2.36 and 2.2.38. Fields: StructureSize, OutputBufferOffset,
/// OutputBufferLength.
const NO_OUTPUT: [u8; 8] = [9, 0, 72, 0, 0, 0, 0, 0];

/// MS-SMB2 3.3.4.17, 3.3.5.19: the end of an Open is no error of a request that waits for changes.
#[test]
fn a_watch_that_is_cleaned_up_gets_a_response_without_changes() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let root = peer.open_file(&mount, &Want::existing("")).await;
        let first = watch(&mut peer, &mount, root, 4096).await;
        let second = watch(&mut peer, &mount, root, 0).await;
        let ended = peer.send(vec![mount.put(close_draft(root))], mount.via()).await[0];
        let replies = peer.collect(&[ended, first, second]).await;
        replies[0].ok();
        for reply in &replies[1..] {
            assert_eq!(reply.status(), Status::NOTIFY_CLEANUP);
            assert_eq!(fixed(reply), NO_OUTPUT);
            assert!(change_notify::Response::parse(&reply.message).unwrap().output.is_empty());
        }
        // A cancelled request failed, so its answer is an error response (2.2.2).
        let root = peer.open_file(&mount, &Want::existing("")).await;
        let id = watch(&mut peer, &mount, root, 4096).await;
        let cancel = Peer::cancel(id, None, mount.logon.id);
        peer.send_frame(&pack(&[cancel], mount.via())).await;
        let reply = peer.final_reply(id).await;
        reply.expect(Status::CANCELLED);
        assert_eq!(fixed(&reply)[..8], [9, 0, 0, 0, 0, 0, 0, 0]);
    });
}

#[test]
fn every_answer_without_data_says_where_data_would_be() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        // Changes that do not fit, QUERY_INFO of a folder without streams.
        let root = peer.open_file(&mount, &Want::existing("")).await;
        let id = watch(&mut peer, &mount, root, 0).await;
        world.file("by the host", "");
        let made = peer.send(vec![mount.put(Want::file("f").draft())], mount.via()).await[0];
        let replies = peer.collect(&[id, made]).await;
        replies[0].expect(Status::NOTIFY_ENUM_DIR);
        assert_eq!(fixed(&replies[0]), NO_OUTPUT);
        let file = file_id(&replies[1]);
        let streams = peer.on(&mount, query_draft(FileInfoClass::STREAM, root)).await;
        assert_eq!(fixed(streams.ok()), NO_OUTPUT);
        // READ of nothing.
        let read = peer.on(&mount, read_draft(file, 0, 0)).await;
        let read = fixed(read.ok());
        assert_eq!((read.len(), read[2], &read[4..8]), (16, 80, &[0; 4][..]));
        // IOCTL without output: note 67 of MS-SMB2 2.2.32.
        let request = ioctl::Request::fsctl(CtlCode::SET_SPARSE, file, &[], 64);
        let draft = Draft::new(Command::IOCTL).with(|w| request.encode(w));
        let answer = peer.on(&mount, draft).await;
        let answer = fixed(answer.ok());
        let word = |at: usize| u32::from_le_bytes(answer[at..at + 4].try_into().unwrap());
        assert_eq!([24, 28, 32, 36].map(word), [112, 0, 112, 0]);
        // MS-SMB2 2.2.14: a CREATE response without contexts has 0.
        let opened = peer.create(&mount, &Want::existing("f")).await;
        assert_eq!(fixed(opened.ok())[80..88], [0; 8]);
        // A listing without names is an error, whose response has no such field.
        let list = |flags| list_draft(root, FileInfoClass::NAMES, flags, "none");
        let listed = peer.on(&mount, list(QueryDirectoryFlags::RESTART_SCANS)).await;
        listed.expect(Status::NO_SUCH_FILE);
        assert_eq!(fixed(&listed)[..8], [9, 0, 0, 0, 0, 0, 0, 0]);
    });
}

/// Each end of an Open answers the requests that wait for changes of it: MS-SMB2 3.3.5.6, 3.3.5.8, 3.3.5.10.
#[test]
fn a_watch_is_cleaned_up_by_each_end_of_its_open() {
    for command in [Command::TREE_DISCONNECT, Command::LOGOFF] {
        in_world(async |world| {
            let (mut peer, mount) = world.session("ann", &Offer::default()).await;
            let root = peer.open_file(&mount, &Want::existing("")).await;
            let watching = watch(&mut peer, &mount, root, 4096).await;
            let draft = Draft::empty(command);
            let ended = peer.send(vec![mount.put(draft)], mount.via()).await[0];
            let replies = peer.collect(&[watching, ended]).await;
            assert_eq!(replies[0].status(), Status::NOTIFY_CLEANUP, "{command:?}");
            assert_eq!(fixed(&replies[0]), NO_OUTPUT, "{command:?}");
            assert_eq!(fixed(replies[1].ok()), NOTHING, "{command:?}");
        });
    }
}

/// The answer of a command that tells nothing: StructureSize 4 and Reserved.
const NOTHING: [u8; 4] = [4, 0, 0, 0];

/// MS-SMB2 2.2.8, 2.2.12, 2.2.18, 2.2.27, 2.2.29 and 2.2.40: answers without a variable part end with
/// their fixed one.
#[test]
fn answers_that_tell_nothing_are_their_fixed_part() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let lock = [(0, 1, LockFlags::EXCLUSIVE_LOCK | LockFlags::FAIL_IMMEDIATELY)];
        let unlock = [(0, 1, LockFlags::UNLOCK)];
        for (what, draft) in [
            ("LOCK", lock_draft(file, &lock)),
            ("unlock", lock_draft(file, &unlock)),
            ("FLUSH", flush_draft(file)),
            ("ECHO", Draft::empty(Command::ECHO)),
            ("TREE_DISCONNECT", Draft::empty(Command::TREE_DISCONNECT)),
            ("LOGOFF", Draft::empty(Command::LOGOFF)),
        ] {
            let reply = peer.on(&mount, draft).await;
            assert_eq!(fixed(reply.ok()), NOTHING, "{what}");
        }
    });
}
