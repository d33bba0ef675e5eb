//! Requests that are much work for little: none of them holds its core.

use std::path::Path;
use std::time::Duration;

use crate::client::files::{
    close_draft, lock_draft, rename_draft, set_draft, set_info_draft, write_draft,
};
use crate::client::world::in_memory;
use crate::client::*;
use frevo_server::internal::limits::{CLOSED_ON_CORE, LOCKS_LIKE_AN_OPEN, LOCKS_PER_REQUEST};
use frevo_wire::Command;
use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::lock::LockFlags;
use frevo_wire::command::query_directory::{self, QueryDirectoryFlags};
use frevo_wire::command::query_info::InfoType;
use frevo_wire::create_context::{CreateContexts, name};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::ea::{Ea, EaWriter};
use frevo_wire::fscc::{DirectoryEntries, FileInfoClass};
use tokio::time::timeout;

/// DACL_SECURITY_INFORMATION of MS-SMB2 2.2.39.
const DACL: u32 = 4;

/// Entries that remove attributes which are not there: `count` of them.
fn empty_eas(count: usize) -> Vec<u8> {
    let mut list = Vec::with_capacity(count * 12);
    for at in 0..count {
        let next = if at + 1 == count { 0 } else { 12 };
        list.extend_from_slice(&[next, 0, 0, 0, 0, 1, 0, 0, b'a', 0, 0, 0]);
    }
    list
}

/// While `request` is under way another client's ECHO is answered.
async fn harmless(peer: &mut Peer, mount: &Mount, request: Draft, other: &mut Peer) -> Reply {
    let ids = peer.send(vec![mount.put(request)], mount.via()).await;
    timeout(Duration::from_secs(10), other.expect_alive()).await.expect("others are served");
    peer.collect(&ids).await.remove(0)
}

/// 690,312 entries took 14 s on the core, each with a listing of all names.
#[test]
fn r6_a_list_of_empty_attributes_is_bounded() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (mut other, _) = world.session("bob", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let list = empty_eas(690_312);
        let set = set_draft(FileInfoClass::FULL_EA, file, &list).charge(127);
        let reply = harmless(&mut peer, &mount, set, &mut other).await;
        assert_eq!(reply.status(), Status::EA_TOO_LARGE);
        // The list has the largest number of names, and comparing them takes time. Meanwhile,
        // another client must be served.
        let list = empty_eas(128 * 1024 / 12);
        let set = set_draft(FileInfoClass::FULL_EA, file, &list).charge(127);
        harmless(&mut peer, &mount, set, &mut other).await.ok();
        // CREATE allows fewer extended attributes than SET_INFO, so the list is shorter.
        let list = empty_eas(5_000);
        let contexts = CreateContexts::build(&[(name::EXTA, &list)]).as_bytes().to_vec();
        let want = Want { contexts, ..Want::file("g") };
        harmless(&mut peer, &mount, want.draft(), &mut other).await.ok();
    });
}

/// As many attributes as the medium takes are set, read and taken away beside the
/// core.
#[test]
fn r6_thousands_of_attributes_hold_no_core() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (mut other, _) = world.session("bob", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let names: Vec<String> = (0..4_000).map(|at| format!("{at}")).collect();
        let mut list = Vec::new();
        let mut writer = EaWriter::new(&mut list, usize::MAX);
        for name in &names {
            let ea = Ea { need: false, name: name.as_bytes(), value: b"v" };
            let _ = writer.push(&ea);
        }
        let set = set_draft(FileInfoClass::FULL_EA, file, &list).charge(127);
        let reply = harmless(&mut peer, &mount, set, &mut other).await;
        // A file system with small inodes cannot store so many attributes. Then the request stores
        // none.
        let took = reply.status() == Status::SUCCESS;
        let query = query_draft(FileInfoClass::FULL_EA, file);
        let reply = harmless(&mut peer, &mount, query, &mut other).await;
        let expected = if took { Status::BUFFER_OVERFLOW } else { Status::NO_EAS_ON_FILE };
        assert!([expected, Status::SUCCESS].contains(&reply.status()), "{reply:?}");
    });
}

/// A descriptor whose list has so many entries, which files below inherit.
fn inherited_list(entries: u16) -> Vec<u8> {
    let everyone = [1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    let head: [u8; 8] = [0, 3, 20, 0, 0xFF, 0x01, 0x1F, 0];
    let ace = [&head[..], &everyone].concat();
    let bytes = 8 + 20 * entries;
    let counts = [bytes.to_le_bytes(), entries.to_le_bytes(), [0, 0]].concat();
    let mut list = vec![1, 0, 4, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 2, 0];
    list.extend(counts);
    (0..entries).for_each(|_| list.extend_from_slice(&ace));
    list
}

/// A file that is made in a folder with a long list gets as long a list, which XFS writes to the medium
/// at once: with 1,500 entries a CREATE held its core for 177 ms.
#[test]
fn r6_a_long_list_is_inherited_beside_the_core() {
    in_memory(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for (entries, beside) in [(256, 0), (257, 1)] {
            let name = format!("d{entries}");
            let folder = Want::directory(&name).access(AccessMask::FILE_ALL);
            let folder = peer.open_file(&mount, &folder).await;
            let list = inherited_list(entries);
            let set = set_info_draft(folder, InfoType::SECURITY, 0, DACL, &list);
            peer.on(&mount, set).await.ok();
            let before = world.server.blocking_pool.carried_out();
            peer.open_file(&mount, &Want::file(&format!("{name}\\f"))).await;
            assert_eq!(world.server.blocking_pool.carried_out() - before, beside, "{entries}");
        }
    });
}

/// More names than a core reads.
fn fill(directory: &Path) {
    let first = directory.join("File0");
    std::fs::write(&first, "").unwrap();
    (1..9_000).for_each(|at| {
        std::fs::hard_link(&first, directory.join(format!("File{at}"))).unwrap();
    });
}

/// A directory of 9,000 names was read on the core for each absent name, one of a
/// million for a second. Now it is read beside it, once, and at once: a CREATE that gave up on the
/// core took that for a lease of another program, and waited 50 seconds for its end.
#[test]
fn r6_absent_names_of_a_large_directory_are_looked_for_beside_the_core() {
    in_world(async |world| {
        let large = world.path("large");
        std::fs::create_dir(&large).unwrap();
        fill(&large);
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let before = world.server.blocking_pool.carried_out();
        for at in 0..20 {
            let want = Want::existing(&format!("large\\absent{at}"));
            let created = timeout(Duration::from_secs(20), peer.create(&mount, &want)).await;
            created.expect("at once").expect(Status::OBJECT_NAME_NOT_FOUND);
        }
        let spelled = peer.open_file(&mount, &Want::existing("LARGE\\FILE77")).await;
        peer.close(&mount, spelled).await;
        let made = peer.open_file(&mount, &Want::file("large\\Made")).await;
        peer.close(&mount, made).await;
        let again = peer.open_file(&mount, &Want::existing("large\\MADE")).await;
        peer.close(&mount, again).await;
        assert_eq!(world.server.blocking_pool.carried_out() - before, 1, "one reading serves all");
    });
}

/// A search for one name that gives up on the core finds it beside it.
#[test]
fn r6_a_search_for_one_name_goes_on_beside_the_core() {
    in_world(async |world| {
        let large = world.path("large");
        std::fs::create_dir(&large).unwrap();
        fill(&large);
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let directory = peer.open_file(&mount, &Want::directory("large")).await;
        let (class, flags) = (FileInfoClass::NAMES, QueryDirectoryFlags::EMPTY);
        let reply = peer.on(&mount, list_draft(directory, class, flags, "FILE99")).await;
        let answer = query_directory::Response::parse(&reply.ok().message).unwrap();
        let entries = DirectoryEntries::new(answer.output, class).unwrap();
        let found: Vec<_> = entries.map(|entry| entry.unwrap().name.decode().unwrap()).collect();
        assert_eq!(found, ["File99"]);
        assert_eq!(world.server.blocking_pool.carried_out(), 1);
    });
}

/// A close deletes a file whose name the host has changed: the directory of 9,000 names was
/// read on the core, because a close cannot start again.
#[test]
fn r6_a_close_searches_for_what_it_deletes_beside_the_core() {
    in_world(async |world| {
        let close = async |mut peer: Peer, mount: Mount, file| {
            peer.on(&mount, close_draft(file)).await.ok();
            assert!(!world.path("close").join("FILE").exists(), "deleted before the answer");
        };
        assert!(deletes_beside(world, "close", "FILE", close).await, "CLOSE");
        let disconnect = async |mut peer: Peer, mount: Mount, _| {
            peer.on(&mount, Draft::empty(Command::TREE_DISCONNECT)).await.ok();
        };
        assert!(deletes_beside(world, "tree", "FILE", disconnect).await, "TREE_DISCONNECT");
        let logoff = async |mut peer: Peer, mount: Mount, _| {
            peer.on(&mount, Draft::empty(Command::LOGOFF)).await.ok();
        };
        assert!(deletes_beside(world, "logoff", "FILE", logoff).await, "LOGOFF");
        assert!(deletes_beside(world, "lost", "FILE", async |_, _, _| {}).await, "connection");
        let ordinary = async |mut peer: Peer, mount: Mount, file| {
            peer.on(&mount, close_draft(file)).await.ok();
        };
        assert!(!deletes_beside(world, "ordinary", "file", ordinary).await, "on the core");
    });
}

/// Ends an Open that deletes a file, which the host has renamed to `spelled` in a large
/// directory. True if that was done beside the core.
async fn deletes_beside(
    world: &World,
    name: &str,
    spelled: &str,
    end: impl AsyncFnOnce(Peer, Mount, FileId),
) -> bool {
    let large = world.path(name);
    std::fs::create_dir(&large).unwrap();
    fill(&large);
    let (mut peer, mount) = world.session("ann", &Offer::default()).await;
    // The file is opened by its exact name, so the server need not list the large directory yet.
    std::fs::write(large.join("file"), "").unwrap();
    let want = Want::existing(&format!("{name}\\file")).options(CreateOptions::DELETE_ON_CLOSE);
    let file = peer.open_file(&mount, &want).await;
    std::fs::rename(large.join("file"), large.join(spelled)).unwrap();
    let before = world.server.blocking_pool.carried_out();
    end(peer, mount, file).await;
    while large.join(spelled).exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.server.blocking_pool.carried_out() > before
}

/// Ends a session that has more open than a core closes; true if that was done beside
/// the core.
async fn closes_beside(world: &World, end: impl AsyncFnOnce(Peer, Mount)) -> bool {
    let (mut peer, mount) = world.session("ann", &Offer::default()).await;
    for at in 0..=CLOSED_ON_CORE {
        peer.open_file(&mount, &Want::file(&format!("many{at}"))).await;
    }
    let before = world.server.blocking_pool.carried_out();
    end(peer, mount).await;
    world.server.blocking_pool.carried_out() > before
}

/// A session of 65,536 Opens took a second on the core to end.
#[test]
fn r6_many_opens_are_closed_beside_the_core() {
    in_world(async |world| {
        let before = world.server.files.len();
        let logoff = async |mut peer: Peer, mount: Mount| {
            peer.on(&mount, Draft::empty(Command::LOGOFF)).await.ok();
            assert_eq!(world.server.files.len(), before, "closed before the answer");
        };
        assert!(closes_beside(world, logoff).await, "LOGOFF");
        let disconnect = async |mut peer: Peer, mount: Mount| {
            peer.on(&mount, Draft::empty(Command::TREE_DISCONNECT)).await.ok();
            assert_eq!(world.server.files.len(), before, "closed before the answer");
        };
        assert!(closes_beside(world, disconnect).await, "TREE_DISCONNECT");
        let sessions = world.server.sessions().len();
        let gone = async |peer: Peer, _: Mount| {
            drop(peer);
            while world.server.sessions().len() > sessions || world.server.files.len() > before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(closes_beside(world, gone).await, "a lost connection");
    });
}

/// A connection with many sessions of a few Opens each closed all of them on the core.
#[test]
fn r6_many_sessions_of_a_connection_are_closed_beside_the_core() {
    in_world(async |world| {
        let files = world.server.files.len();
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        for session in 0..4 {
            let logon = peer.log_on("ann").await;
            let mount = peer.mount(&logon, "data").await;
            for at in 0..CLOSED_ON_CORE / 3 {
                peer.open_file(&mount, &Want::file(&format!("of{session}-{at}"))).await;
            }
        }
        let before = world.server.blocking_pool.carried_out();
        drop(peer);
        while world.server.files.len() > files {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let beside = world.server.blocking_pool.carried_out() - before;
        assert_eq!(beside, 1, "three sessions are as much as a core closes");
    });
}

/// Locks more ranges of a file than are released on a core.
async fn lock_many(peer: &mut Peer, mount: &Mount) -> FileId {
    let file = peer.open_file(mount, &Want::file("locked")).await;
    let flags = LockFlags::SHARED_LOCK | LockFlags::FAIL_IMMEDIATELY;
    let ranges: Vec<_> =
        (0..=CLOSED_ON_CORE * LOCKS_LIKE_AN_OPEN).map(|at| at as u64 * 2).collect();
    for some in ranges.chunks(LOCKS_PER_REQUEST) {
        let some: Vec<_> = some.iter().map(|at| (*at, 1, flags)).collect();
        peer.on(mount, lock_draft(file, &some)).await.ok();
    }
    file
}

/// The CLOSE of an Open with 65,536 locks took 30 ms on the core, and held the file for as long.
#[test]
fn r6_many_locks_are_released_beside_the_core() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (mut other, of_other) = world.session("bob", &Offer::default()).await;
        let carried_out = || world.server.blocking_pool.carried_out();
        let file = lock_many(&mut peer, &mount).await;
        let before = carried_out();
        peer.close(&mount, file).await;
        assert!(carried_out() > before, "CLOSE");
        let file = peer.open_file(&mount, &Want::file("locked")).await;
        let all = [(0, u64::MAX, LockFlags::EXCLUSIVE_LOCK | LockFlags::FAIL_IMMEDIATELY)];
        peer.on(&mount, lock_draft(file, &all)).await.ok();
        let before = carried_out();
        peer.close(&mount, file).await;
        assert_eq!(carried_out(), before, "one lock is released on the core");
        lock_many(&mut peer, &mount).await;
        let before = carried_out();
        peer.on(&mount, Draft::empty(Command::LOGOFF)).await.ok();
        assert!(carried_out() > before, "LOGOFF");
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        lock_many(&mut peer, &mount).await;
        let before = carried_out();
        drop(peer);
        let file = other.open_file(&of_other, &Want::file("locked")).await;
        let waits = [(0, u64::MAX, LockFlags::EXCLUSIVE_LOCK)];
        other.on(&of_other, lock_draft(file, &waits)).await.ok();
        assert!(carried_out() > before, "a lost connection");
    });
}

/// A LOCK may have 65,535 ranges in form: to take them took 86 ms in the list of locks alone.
#[test]
fn r6_a_lock_request_has_so_many_ranges() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let flags = LockFlags::EXCLUSIVE_LOCK | LockFlags::FAIL_IMMEDIATELY;
        let ranges = |count: usize, flags| (0..count as u64).map(move |at| (at, 1, flags));
        let many: Vec<_> = ranges(LOCKS_PER_REQUEST + 1, flags).collect();
        let reply = peer.on(&mount, lock_draft(file, &many)).await;
        reply.expect(Status::INSUFFICIENT_RESOURCES);
        let most: Vec<_> = ranges(LOCKS_PER_REQUEST, flags).collect();
        peer.on(&mount, lock_draft(file, &most)).await.ok();
        // The last lock conflicts, so the server must release all the earlier ones, which takes
        // time.
        let failing = ranges(LOCKS_PER_REQUEST, flags).map(|(at, _, flags)| {
            ((at + 1) * 10_000 % (10_000 * LOCKS_PER_REQUEST as u64), 1, flags)
        });
        let failing = failing.collect::<Vec<_>>();
        peer.on(&mount, lock_draft(file, &failing)).await.expect(Status::LOCK_NOT_GRANTED);
        let all: Vec<_> = ranges(LOCKS_PER_REQUEST, LockFlags::UNLOCK).collect();
        peer.on(&mount, lock_draft(file, &all)).await.ok();
        let whole = [(0, u64::MAX, flags)];
        peer.on(&mount, lock_draft(file, &whole)).await.ok();
    });
}

/// Messages of 16 bytes that no answer bounds: half a million of them fit one WRITE.
#[test]
fn r6_many_messages_to_a_pipe_are_read_beside_the_core() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (mut other, _) = world.session("bob", &Offer::default()).await;
        let ipc = peer.mount(&mount.logon, "IPC$").await;
        let pipe = peer.open_file(&ipc, &Want::existing("srvsvc")).await;
        // A co_cancel PDU has no reply, so the message with 500,000 of them is only parsed.
        let cancel = [5, 0, 18, 3, 0x10, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0];
        let write = write_draft(pipe, 0, &cancel.repeat(8 << 20 >> 4));
        harmless(&mut peer, &ipc, write, &mut other).await.ok();
    });
}

/// Each directory that got another name had all open files of the server compared on the core.
#[test]
fn r6_a_directory_is_renamed_beside_the_core_where_much_is_open() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let directory = peer.open_file(&mount, &Want::directory("d")).await;
        let rename = |to: &str| rename_draft(FileInfoClass::RENAME, directory, to, false);
        let before = world.server.blocking_pool.carried_out();
        peer.on(&mount, rename("e")).await.ok();
        assert_eq!(world.server.blocking_pool.carried_out(), before, "little is open");
        for at in 0..4_200 {
            peer.open_file(&mount, &Want::file(&format!("open{at}"))).await;
        }
        peer.on(&mount, rename("f")).await.ok();
        assert_eq!(world.server.blocking_pool.carried_out(), before + 1);
        assert!(world.path("f").is_dir());
    });
}
