//! Row X7, road by road: each operation of a request on the file system is done as its user,
//! for its own files and those of others, and no thread keeps the credentials afterwards. It
//! takes root.

use std::os::unix::fs::{MetadataExt, chown};
use std::sync::Arc;
use std::time::Duration;

use frevo_posix::{PosixOptions, PosixVfs, credentials};
use frevo_server::internal::protocol::{On, TABLE};
use frevo_server::share::{RunAs, Share};
use frevo_store::Vfs;
use frevo_wire::codec::Writer;
use frevo_wire::command::change_notify::{self, ChangeNotifyFlags, CompletionFilter};
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::command::ioctl::copychunk::{Chunk, CopyRequest, ResumeKeyResponse};
use frevo_wire::command::query_directory::QueryDirectoryFlags;
use frevo_wire::command::query_info::{self, InfoType};
use frevo_wire::dtyp::SecurityInformation;
use frevo_wire::dtyp::{AccessMask, Guid};
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::ea::{Ea, EaWriter};
use frevo_wire::fscc::fsctl::{
    DuplicateExtents, OffloadReadReply, OffloadReadRequest, OffloadWriteReply, OffloadWriteRequest,
};
use frevo_wire::fscc::notify::NotifyEntries;
use frevo_wire::fscc::reparse::{ReparseBuffer, ReparseTag, encode_lx_symlink};

use crate::calls::{ask, cancel, ioctl_draft, output, set_draft};
use crate::client::files::{delete_draft, file_id, flush_draft, lock_draft, rename_draft};
use crate::client::peer::async_id;
use crate::client::protection::{everyone, protect_draft};
use crate::client::queries::{list_draft, query_info_draft};
use crate::client::settings;
use crate::client::world::{EXCLUSIVE, Users, in_own_world, serving};
use crate::client::{Command, Draft, FileId, Mount, Offer, Peer, Reply, Status, Want, World};
use crate::impersonation::*;
use crate::probe::Probe;

fn bytes(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut Writer::new(&mut bytes));
    bytes
}

/// Runs a test on two shares that show the same and are used as who logs on:
/// `data`, and `away`, whose requests leave the core.
fn probed(test_name: &str, test: impl AsyncFnOnce(&World, &Probe)) {
    if let Err(why) = credentials::check() {
        println!("skipped: {test_name}: {why}");
        return;
    }
    let probe = Arc::new(Probe::new());
    let vfs: Arc<dyn Vfs> = Arc::clone(&probe) as _;
    let share = |name: &str| Share::disk(name, Arc::clone(&vfs)).run_as(RunAs::User);
    let away = share("away").off_core();
    let shares = [share("data"), away];
    let server = serving(settings(), shares, Arc::new(Users), Arc::new(TwoUsers));
    let world = World::of(server, tempfile::tempdir().unwrap());
    in_own_world(false, &world, async |world| test(world, &probe).await);
    assert_eq!(acts_as(), 0);
    all_at_rest();
}

fn query(info_type: InfoType, class: u8, file: FileId) -> Draft {
    let parts = SecurityInformation::OWNER.0 | SecurityInformation::DACL.0;
    query_info_draft(file, info_type, class, parts)
}

fn list(directory: FileId, flags: QueryDirectoryFlags) -> Draft {
    list_draft(directory, FileInfoClass::ID_BOTH_DIRECTORY, flags, "*")
}

fn watch(directory: FileId) -> Draft {
    let request = change_notify::Request {
        flags: ChangeNotifyFlags::WATCH_TREE,
        output_buffer_length: 4096,
        file_id: directory,
        completion_filter: CompletionFilter(0xFFF),
    };
    Draft::new(Command::CHANGE_NOTIFY).with(|w| request.encode(w))
}

fn changes(reply: &Reply) -> Vec<String> {
    let told = change_notify::Response::parse(&reply.message).unwrap();
    let entries = NotifyEntries::new(told.output).map(|entry| entry.unwrap().name.decode());
    entries.map(|name| name.unwrap()).collect()
}

async fn copy_chunk(peer: &mut Peer, mount: &Mount, from: FileId, to: FileId) -> Reply {
    let key = ask(peer, mount, CtlCode::SRV_REQUEST_RESUME_KEY, from, &[], 32).await;
    let key = ResumeKeyResponse::parse(&output(key.ok())).unwrap().resume_key;
    let chunk = Chunk { source_offset: 0, target_offset: 0, length: 4096 };
    let copy = CopyRequest { source_key: key, chunks: vec![chunk] };
    ask(peer, mount, CtlCode::SRV_COPYCHUNK, to, &bytes(|w| copy.encode(w)), 12).await
}

async fn offload(peer: &mut Peer, mount: &Mount, from: FileId, to: FileId) -> Reply {
    let read = OffloadReadRequest {
        size: OffloadReadRequest::SIZE as u32,
        flags: 0,
        token_time_to_live_ms: 0,
        file_offset: 0,
        copy_length: 4096,
    };
    let room = OffloadReadReply::SIZE as u32;
    let input = bytes(|w| read.encode(w));
    let read = ask(peer, mount, CtlCode::OFFLOAD_READ, from, &input, room).await;
    let token = OffloadReadReply::parse(&output(read.ok())).unwrap().token;
    let write = OffloadWriteRequest {
        size: OffloadWriteRequest::SIZE as u32,
        flags: 0,
        file_offset: 0,
        copy_length: 4096,
        transfer_offset: 0,
        token,
    };
    let room = OffloadWriteReply::SIZE as u32;
    ask(peer, mount, CtlCode::OFFLOAD_WRITE, to, &bytes(|w| write.encode(w)), room).await
}

async fn duplicate(peer: &mut Peer, mount: &Mount, from: FileId, to: FileId) -> Reply {
    let extents = DuplicateExtents {
        source_file_id: from,
        source_file_offset: 0,
        target_file_offset: 4096,
        byte_count: 4096,
    };
    let input = bytes(|w| extents.encode(w));
    ask(peer, mount, CtlCode::DUPLICATE_EXTENTS_TO_FILE, to, &input, 0).await
}

/// Many operations of a user, with files that are called after the user.
async fn everything(peer: &mut Peer, mount: &Mount, user: &str, plain: bool) {
    let name = |rest: &str| format!("{user}-{rest}");
    let folder = peer.open_file(mount, &Want::directory(&name("d"))).await;
    let source = peer.open_file(mount, &Want::file(&name("source"))).await;
    let file = peer.open_file(mount, &Want::file(&name("f"))).await;
    for data in [source, file] {
        peer.write(mount, data, 0, &[7; 20_480]).await;
    }
    peer.on(mount, flush_draft(file)).await.ok();
    assert_eq!(peer.read(mount, file, 20_470, 100).await, [7; 10]);
    peer.on(mount, lock_draft(file, &[(0, 4, EXCLUSIVE)])).await.ok();
    copy_chunk(peer, mount, source, file).await.ok();
    if plain {
        offload(peer, mount, source, file).await.ok();
    }
    duplicate(peer, mount, source, file).await.ok();
    for class in (0..=255).filter(|class| FileInfoClass(*class).may_query()) {
        peer.on(mount, query(InfoType::FILE, class, file)).await;
    }
    for class in 0..=12 {
        peer.on(mount, query(InfoType::FILESYSTEM, class, file)).await;
    }
    peer.on(mount, query(InfoType::SECURITY, 0, file)).await.ok();

    peer.on(mount, protect_draft(file, &everyone(AccessMask::FILE_ALL))).await.ok();
    let mut eas = Vec::new();
    let _ = EaWriter::new(&mut eas, 64).push(&Ea { need: true, name: b"ea", value: b"value" });
    peer.on(mount, set_draft(FileInfoClass::FULL_EA, file, &eas)).await.ok();
    let basic = [vec![0; 32], 0x20_u64.to_le_bytes().to_vec()].concat();
    peer.on(mount, set_draft(FileInfoClass::BASIC, file, &basic)).await.ok();
    for class in [FileInfoClass::ALLOCATION, FileInfoClass::END_OF_FILE] {
        peer.on(mount, set_draft(class, file, &40_000_u64.to_le_bytes())).await.ok();
    }
    let linked = rename_draft(FileInfoClass::LINK, file, &name("link"), true);
    peer.on(mount, linked).await.ok();
    let moved = rename_draft(FileInfoClass::RENAME, source, &name("moved"), true);
    peer.on(mount, moved).await.ok();

    let stream = peer.open_file(mount, &Want::file(&name("f:stream"))).await;
    peer.write(mount, stream, 0, b"beside").await;
    assert_eq!(peer.read(mount, stream, 0, 10).await, b"beside");
    peer.close(mount, stream).await;
    peer.on(mount, query(InfoType::FILE, FileInfoClass::STREAM.0, file)).await.ok();

    let ids = peer.send(vec![mount.put(watch(folder))], mount.via()).await;
    let within = format!("{}\\{}", name("d"), name("within"));
    let inner = Want::file(&within).options(CreateOptions::DELETE_ON_CLOSE);
    let reply = mount.put(inner.draft());
    let create = peer.send(vec![reply], mount.via()).await[0];
    let mut inner = None;
    let mut told = None;
    while inner.is_none() || told.is_none() {
        for reply in peer.replies().await.expect("connected") {
            if reply.is_interim() {
                continue;
            }
            if reply.header.message_id == create {
                inner = Some(file_id(reply.ok()));
            } else if reply.header.message_id == ids[0] {
                told = Some(changes(reply.ok()));
            }
        }
    }
    assert_eq!(told, Some(vec![name("within")]));
    let restart = QueryDirectoryFlags::RESTART_SCANS;
    for flags in [QueryDirectoryFlags::EMPTY, restart, restart | QueryDirectoryFlags::REOPEN] {
        peer.on(mount, list(folder, flags)).await.ok();
    }
    peer.close(mount, inner.unwrap()).await;

    controls(peer, mount, file, folder).await;
    peer.on(mount, flush_draft(file)).await.ok();
    peer.close(mount, file).await;
    for (of, buffer) in [
        (
            "opaque",
            bytes(|w| {
                let buffer = ReparseBuffer {
                    tag: ReparseTag(0x0000_0F00),
                    guid: Some(Guid([7; 16])),
                    data: b"data",
                };
                buffer.encode(w).unwrap();
            }),
        ),
        ("lx", bytes(|w| encode_lx_symlink(w, b"f").unwrap())),
    ] {
        let options = CreateOptions::OPEN_REPARSE_POINT | CreateOptions::DELETE_ON_CLOSE;
        let point = peer.open_file(mount, &Want::file(&name(of)).options(options)).await;
        ask(peer, mount, CtlCode::SET_REPARSE_POINT, point, &buffer, 0).await.ok();
        ask(peer, mount, CtlCode::GET_REPARSE_POINT, point, &[], 4096).await.ok();
        peer.close(mount, point).await;
    }
    let again = Want::file(&name("f")).disposition(CreateDisposition::SUPERSEDE);
    let again = peer.open_file(mount, &again).await;
    peer.on(mount, delete_draft(again)).await.ok();
    peer.close(mount, again).await;
    for gone in [source, folder] {
        peer.on(mount, delete_draft(gone)).await.ok();
        peer.close(mount, gone).await;
    }
}

/// Every control code, with inputs that mean something to some of them.
async fn controls(peer: &mut Peer, mount: &Mount, file: FileId, folder: FileId) {
    let range = [0_i64.to_le_bytes(), 4096_i64.to_le_bytes()].concat();
    let trim = [&[0; 4][..], &1_u32.to_le_bytes(), &range].concat();
    let compressed = 1_u16.to_le_bytes().to_vec();
    ask(peer, mount, CtlCode::SET_SPARSE, file, &[1], 0).await.ok();
    ask(peer, mount, CtlCode::QUERY_ALLOCATED_RANGES, file, &range, 4096).await.ok();
    for row in TABLE.iter().filter(|row| row.on != On::Nothing) {
        for on in [file, folder] {
            for input in [&[][..], &range, &trim, &compressed, &[1], &[9; 48], &[0; 64]] {
                let id =
                    peer.send(vec![mount.put(ioctl_draft(row.code, on, input, 4096))], mount.via());
                let id = id.await[0];
                peer.final_reply(id).await;
            }
        }
    }
}

/// On the core and beside it, one user among the other.
#[test]
fn x7_every_call_to_a_file_system_is_its_users() {
    probed("x7_every_call_to_a_file_system_is_its_users", async |world, probe| {
        let arrive = async |user: &'static str, share: &str| {
            let mut peer = world.connect();
            peer.negotiate(&Offer::default()).await;
            let logon = peer.log_on(user).await;
            let mount = peer.mount(&logon, share).await;
            (peer, mount)
        };
        for share in ["data", "away"] {
            let (mut ann, anns) = arrive("ann", share).await;
            let (mut bob, bobs) = arrive("bob", share).await;
            tokio::join!(
                everything(&mut ann, &anns, "ann", true),
                everything(&mut bob, &bobs, "bob", true),
            );
        }
        let missing: Vec<_> = probe.seen.check().into_iter().collect();
        // The methods in `without_call` make no system call; those in `elsewhere` are tested with
        // their own file systems.
        let without_call = [
            "bytes",
            "data_device",
            "descriptor",
            "device",
            "folder_id",
            "is_hidden_by_name",
            "is_synced_by_descriptor",
            "key",
            "may_wait",
            "shows_locks",
            "takes_data",
            "volume",
        ];
        let elsewhere = [
            "birth",
            "is_one_entry",
            "name_in_snapshot",
            "quota_from",
            "rewind",
            "set_quota",
            "set_quota_defaults",
            "snapshot",
        ];
        // No request of this test uses a directory lease, so `parent_key` is not called.
        let for_leases = ["parent_key"];
        // The server sets extended attributes only as a list, so the methods for single ones are
        // not called.
        let by_lists = ["set_ea", "set_ea_needed"];
        // The server calls `plain_access` only for macOS and for shares that hide files.
        let for_access = ["plain_access"];
        // No share of this test is written once.
        let for_commitments = ["commit", "commitment", "release"];
        let mut expected: Vec<_> =
            [&without_call[..], &elsewhere, &for_leases, &by_lists, &for_access, &for_commitments]
                .concat();
        expected.sort_unstable();
        assert_eq!(missing, expected);
    });
}

/// A request that panics, is cancelled or waits in the blocking pool leaves its thread without
/// credentials: the next request there is another user's.
#[test]
fn x7_a_thread_is_nobodys_after_a_panic_or_a_cancel() {
    probed("x7_a_thread_is_nobodys_after_a_panic_or_a_cancel", async |world, probe| {
        let arrive = async |user: &'static str| {
            let mut peer = world.connect();
            peer.negotiate(&Offer::default()).await;
            let logon = peer.log_on(user).await;
            let mount = peer.mount(&logon, "away").await;
            (peer, mount, user)
        };
        let mut peers = vec![arrive("ann").await, arrive("bob").await];
        for _ in 0..10 {
            for (peer, mount, user) in &mut peers {
                // The request panics, which ends its connection. Other connections of the user go
                // on.
                let (mut lost, theirs, _) = arrive(user).await;
                let fatal = theirs.put(Want::file(&format!("{user}-fatal")).draft());
                assert!(lost.ask_or_lose(fatal, theirs.via()).await.is_none());
                let file = peer.open_file(mount, &Want::file(&format!("{user}-f"))).await;
                peer.on(mount, query(InfoType::FILE, FileInfoClass::ALL.0, file)).await.ok();
                peer.close(mount, file).await;
            }
            // The client cancels its request while it hangs in the file system, but a request that
            // has begun is finished.
            probe.seen.shut(true);
            let mut waiting = Vec::new();
            for (peer, mount, user) in &mut peers {
                let held = mount.put(Want::file(&format!("{user}-held")).draft());
                let id = peer.send(vec![held], mount.via()).await[0];
                let interim = peer.interim().await;
                cancel(peer, mount, id, Some(async_id(&interim))).await;
                waiting.push(id);
            }
            probe.seen.shut(false);
            for ((peer, mount, _), id) in peers.iter_mut().zip(waiting) {
                let reply = peer.final_reply(id).await;
                if reply.status() == Status::SUCCESS {
                    peer.close(mount, file_id(&reply)).await;
                } else {
                    reply.expect(Status::CANCELLED);
                }
            }
            all_at_rest();
        }
        probe.seen.check();
    });
}

/// A watch of a directory reports the changes that others make there, each in its own tree
/// connect, and of two CREATEs of one name one waits for the other.
#[test]
fn x7_changes_are_told_from_one_user_to_another() {
    acting("x7_changes_are_told_from_one_user_to_another", false, async |world| {
        folder(world, "shown", "ann", 0o755);
        let (mut ann, anns) = session(world, "ann").await;
        let (mut bob, bobs) = session(world, "bob").await;
        let want = Want::existing("shown").access(AccessMask::READ_DATA);
        let directory = bob.open_file(&bobs, &want).await;
        for name in ["one", "two"] {
            let id = bob.send(vec![bobs.put(watch(directory))], bobs.via()).await[0];
            bob.interim().await;
            let file = ann.open_file(&anns, &Want::file(&format!("shown\\{name}"))).await;
            let told = tokio::time::timeout(Duration::from_secs(10), bob.final_reply(id)).await;
            assert_eq!(changes(told.expect("told").ok()), [name]);
            ann.close(&anns, file).await;
        }
        // Bob may not list "private", so a change in that folder is reported without its name.
        folder(world, "shown/open", "ann", 0o755);
        folder(world, "shown/private", "ann", 0o711);
        for (way, is_told) in [("open\\one", true), ("private\\two", false), ("open\\three", true)]
        {
            let id = bob.send(vec![bobs.put(watch(directory))], bobs.via()).await[0];
            bob.interim().await;
            let file = ann.open_file(&anns, &Want::file(&format!("shown\\{way}"))).await;
            let told = tokio::time::timeout(Duration::from_secs(10), bob.final_reply(id)).await;
            let told = told.expect("told");
            if is_told {
                assert_eq!(changes(told.ok())[0], way);
            } else {
                assert!(changes(told.expect(Status::NOTIFY_ENUM_DIR)).is_empty());
            }
            ann.close(&anns, file).await;
        }
        // Bob may not list the folder, so bob cannot watch it.
        folder(world, "hidden", "ann", 0o711);
        let want = Want::existing("hidden").access(AccessMask::READ_DATA);
        assert_eq!(status(&mut bob, &bobs, &want).await, Status::ACCESS_DENIED);
        let want = Want::existing("hidden").access(AccessMask::READ_ATTRIBUTES);
        let shut = bob.open_file(&bobs, &want).await;
        bob.on(&bobs, watch(shut)).await.expect(Status::ACCESS_DENIED);
    });
}

/// The user that deletes a file needs the right; the user that closes it last does not.
#[test]
fn x7_a_deletion_is_his_who_asked_for_it() {
    acting("x7_a_deletion_is_his_who_asked_for_it", false, async |world| {
        folder(world, "shown", "ann", 0o755);
        let (mut ann, anns) = session(world, "ann").await;
        let (mut bob, bobs) = session(world, "bob").await;
        let reads = Want::existing("shown\\f").access(AccessMask::READ_DATA);
        for on_close in [false, true] {
            for stays in [false, true] {
                let want = Want::file("shown\\f");
                let options = CreateOptions::DELETE_ON_CLOSE;
                let want = if on_close { want.options(options) } else { want };
                let file = ann.open_file(&anns, &want).await;
                let held = bob.open_file(&bobs, &reads).await;
                if !on_close {
                    ann.on(&anns, delete_draft(file)).await.ok();
                }
                ann.close(&anns, file).await;
                assert!(world.path("shown/f").exists());
                // Bob asked for the deletion, but has lost the right to remove the file when the
                // Open closes. So the file stays.
                set_mode(&world.path("shown"), if stays { 0o555 } else { 0o755 });
                bob.close(&bobs, held).await;
                assert_eq!(world.path("shown/f").exists(), stays, "on close: {on_close}");
                set_mode(&world.path("shown"), 0o755);
            }
        }
        // Ann's Open asked for the deletion, but bob, who may only read, closes last. The file is
        // removed with ann's rights.
        let file = ann.open_file(&anns, &Want::file("shown\\f")).await;
        let held = bob.open_file(&bobs, &reads.access(AccessMask::READ_DATA)).await;
        ann.close(&anns, file).await;
        bob.close(&bobs, held).await;
        assert!(world.path("shown/f").exists());
    });
}

const SET_USER_ID: u32 = 0o4000;

/// A file of bob's that the group may write, with the set-group-id bit: every write but root's
/// takes the bit away.
fn marked(world: &World, name: &str) {
    std::fs::write(world.path(name), vec![1; 20_480]).unwrap();
    chown(world.path(name), Some(uid("bob")), Some(61_100)).unwrap();
    set_mode(&world.path(name), 0o660 | SET_USER_ID);
}

fn is_marked(world: &World, name: &str) -> bool {
    std::fs::metadata(world.path(name)).unwrap().mode() & SET_USER_ID != 0
}

/// The roads of data, where no call to the file system says who it is: small and
/// large writes, and copies of all kinds, into another's file.
#[test]
fn x7_data_is_written_by_its_user_on_every_road() {
    acting("x7_data_is_written_by_its_user_on_every_road", false, async |world| {
        std::fs::write(world.path("source"), vec![2; 20_480]).unwrap();
        chown(world.path("source"), Some(uid("bob")), Some(uid("bob"))).unwrap();
        set_mode(&world.path("source"), 0o644);
        let (mut ann, anns) = session(world, "ann").await;
        let plain = ann.mount(&anns.logon, "plain").await;
        let reads = AccessMask::READ_DATA | AccessMask::READ_ATTRIBUTES;
        let writes = reads | AccessMask::WRITE_DATA;
        // A write as the server's user must keep set-user-ID. Only then does a cleared bit prove
        // that the write was made as the client's user.
        marked(world, "control");
        let control = Want::existing("control").access(writes);
        let control = ann.open_file(&plain, &control).await;
        ann.write(&plain, control, 0, b"x").await;
        assert!(is_marked(world, "control"));
        for road in ["small", "large", "copied", "offloaded", "ended", "zeroed"] {
            let source = Want::existing("source").access(reads);
            let source = ann.open_file(&anns, &source).await;
            marked(world, road);
            let file = ann.open_file(&anns, &Want::existing(road).access(writes)).await;
            match road {
                "small" => ann.write(&anns, file, 0, b"x").await,
                "large" => ann.write(&anns, file, 0, &vec![3; 3 << 20]).await,
                "copied" => _ = copy_chunk(&mut ann, &anns, source, file).await.ok(),
                "offloaded" => _ = offload(&mut ann, &anns, source, file).await.ok(),
                "ended" => {
                    let end = set_draft(FileInfoClass::END_OF_FILE, file, &7_u64.to_le_bytes());
                    ann.on(&anns, end).await.ok();
                }
                _ => {
                    let range = [0_i64.to_le_bytes(), 4096_i64.to_le_bytes()].concat();
                    let code = CtlCode::SET_ZERO_DATA;
                    ask(&mut ann, &anns, code, file, &range, 0).await.ok();
                }
            }
            assert!(!is_marked(world, road), "{road} was written by somebody else");
            assert_eq!(owner(world, road), (uid("bob"), 61_100));
            ann.close(&anns, file).await;
            ann.close(&anns, source).await;
        }
        // Ann must not copy from a file that ann may not read.
        set_mode(&world.path("source"), 0o600);
        let source = Want::existing("source").access(reads);
        assert_eq!(status(&mut ann, &anns, &source).await, Status::ACCESS_DENIED);
        set_mode(&world.path("small"), 0o644);
        let target = Want::existing("small").access(writes);
        assert_eq!(status(&mut ann, &anns, &target).await, Status::ACCESS_DENIED);
    });
}

/// Attributes and security of another's file are changed by whom the host lets.
#[test]
fn x7_attributes_are_set_by_who_may() {
    acting("x7_attributes_are_set_by_who_may", false, async |world| {
        let (mut ann, anns) = session(world, "ann").await;
        let (mut bob, bobs) = session(world, "bob").await;
        let file = ann.open_file(&anns, &Want::file("f")).await;
        ann.close(&anns, file).await;
        let mut eas = Vec::new();
        let _ = EaWriter::new(&mut eas, 64).push(&Ea { need: true, name: b"ea", value: b"value" });
        let _dacl = SecurityInformation::DACL.0;
        let basic = [vec![0; 32], 0x20_u64.to_le_bytes().to_vec()].concat();
        let drafts = |file: FileId| {
            [
                set_draft(FileInfoClass::FULL_EA, file, &eas),
                set_draft(FileInfoClass::BASIC, file, &basic),
                protect_draft(file, &everyone(AccessMask::FILE_ALL)),
                ioctl_draft(CtlCode::CREATE_OR_GET_OBJECT_ID, file, &[], 64),
            ]
        };
        let rights = [
            AccessMask::WRITE_EA,
            AccessMask::WRITE_ATTRIBUTES,
            AccessMask::WRITE_DAC,
            AccessMask::READ_DATA,
        ];
        set_mode(&world.path("f"), 0o644);
        for (at, access) in rights.into_iter().enumerate() {
            let reply = bob.create(&bobs, &Want::existing("f").access(access)).await;
            if reply.status() == Status::SUCCESS {
                let file = file_id(&reply);
                let set = bob.on(&bobs, drafts(file)[at].clone()).await;
                assert_eq!(set.status(), Status::ACCESS_DENIED, "{at}");
                bob.close(&bobs, file).await;
            } else {
                reply.expect(Status::ACCESS_DENIED);
            }
            let file = ann.open_file(&anns, &Want::existing("f").access(access)).await;
            ann.on(&anns, drafts(file)[at].clone()).await.ok();
            ann.close(&anns, file).await;
            set_mode(&world.path("f"), 0o644);
        }
        let names = Want::existing("f:s").access(AccessMask::WRITE_DATA);
        let made = names.disposition(CreateDisposition::OPEN_IF);
        assert_eq!(status(&mut bob, &bobs, &made).await, Status::ACCESS_DENIED);
    });
}

/// A folder of snapshots is the server's to open; what is in one is each user's.
#[test]
fn x7_snapshots_show_each_what_is_his() {
    let test_name = "x7_snapshots_show_each_what_is_his";
    if let Err(why) = credentials::check() {
        println!("skipped: {test_name}: {why}");
        return;
    }
    const TAKEN: &str = "@GMT-2024.02.29-12.00.00";
    let dir = tempfile::tempdir().unwrap();
    set_mode(dir.path(), 0o755);
    let snapshot = dir.path().join(".snapshots").join(TAKEN);
    std::fs::create_dir_all(&snapshot).unwrap();
    set_mode(&snapshot, 0o755);
    set_mode(&dir.path().join(".snapshots"), 0o700);
    for (name, mode) in [("anns", 0o600), ("shown", 0o644)] {
        for folder in [dir.path(), &snapshot] {
            std::fs::write(folder.join(name), name).unwrap();
            chown(folder.join(name), Some(uid("ann")), Some(uid("ann"))).unwrap();
            set_mode(&folder.join(name), mode);
        }
    }
    let pattern = ".snapshots/@GMT-%Y.%m.%d-%H.%M.%S".parse().unwrap();
    let options = PosixOptions { snapshots: Some(pattern), ..PosixOptions::default() };
    let vfs = PosixVfs::open_root(dir.path(), options).unwrap();
    let share = Share::disk("data", Arc::new(vfs)).run_as(RunAs::User);
    let server = serving(settings(), [share], Arc::new(Users), Arc::new(TwoUsers));
    in_own_world(false, &World::of(server, dir), async |world| {
        for (user, name, may) in
            [("ann", "anns", true), ("bob", "anns", false), ("bob", "shown", true)]
        {
            let (mut peer, mount) = session(world, user).await;
            let old = format!("{TAKEN}\\{name}");
            let want = Want::existing(&old).access(AccessMask::READ_DATA);
            let reply = peer.create(&mount, &want).await;
            if may {
                let file = file_id(reply.ok());
                assert_eq!(peer.read(&mount, file, 0, 64).await, name.as_bytes());
                let live = Want::existing(name).access(AccessMask::READ_DATA);
                let live = peer.open_file(&mount, &live).await;
                let code = CtlCode::SRV_ENUMERATE_SNAPSHOTS;
                let told = ask(&mut peer, &mount, code, live, &[], 4096).await;
                let told = output(told.ok());
                assert_eq!(told[..4], 1_u32.to_le_bytes(), "{user} {name}");
            } else {
                reply.expect(Status::ACCESS_DENIED);
            }
        }
    });
    all_at_rest();
}

/// The size of backups is counted for all users, not as much of it as the first user that asks
/// may see.
#[test]
fn x7_what_is_counted_for_all_is_counted_by_the_server() {
    const SIZE: u64 = 1 << 30;
    let test_name = "x7_what_is_counted_for_all_is_counted_by_the_server";
    if let Err(why) = credentials::check() {
        println!("skipped: {test_name}: {why}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    set_mode(dir.path(), 0o755);
    let image = dir.path().join("ann.sparsebundle");
    std::fs::create_dir_all(image.join("bands")).unwrap();
    let plist = "<key>band-size</key>\n<integer>8388608</integer>";
    std::fs::write(image.join("Info.plist"), plist).unwrap();
    for band in 0..10 {
        std::fs::write(image.join(format!("bands/{band}")), b"").unwrap();
    }
    chown(&image, Some(uid("ann")), Some(uid("ann"))).unwrap();
    set_mode(&image, 0o700);
    let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
    let share = Share::disk("data", Arc::new(vfs))
        .run_as(RunAs::User)
        .time_machine(true)
        .time_machine_limit(SIZE);
    let server = serving(settings(), [share], Arc::new(Users), Arc::new(TwoUsers));
    in_own_world(false, &World::of(server, dir), async |world| {
        for user in ["bob", "ann"] {
            let (mut peer, mount) = session(world, user).await;
            let want = Want::directory("").access(AccessMask::READ_ATTRIBUTES);
            let root = peer.open_file(&mount, &want).await;
            // Class 3 is FileFsSizeInformation: AvailableAllocationUnits at 8,
            // SectorsPerAllocationUnit at 16 and BytesPerSector at 20.
            let reply = peer.on(&mount, query(InfoType::FILESYSTEM, 3, root)).await;
            let told = query_info::Response::parse(&reply.ok().message).unwrap().output;
            let word = |at: usize| u32::from_le_bytes(told[at..at + 4].try_into().unwrap());
            let unit = u64::from(word(16)) * u64::from(word(20));
            let available = u64::from_le_bytes(told[8..16].try_into().unwrap()) * unit;
            assert!(available <= SIZE - (10 << 23), "{user} is told of {available} bytes");
        }
    });
    all_at_rest();
}
