//! Access-based enumeration: MS-SMB2 3.3.5.7, 3.3.5.9 and 3.3.5.18, and row X8
//! of the catalogue of faults.
#![allow(clippy::print_stdout, unreachable_pub, dead_code, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

use std::rc::Rc;

use frevo_server::internal::limits::{FOLDERS_JUDGED, NAMES_JUDGED};
use frevo_wire::command::change_notify::{self, ChangeNotifyFlags, CompletionFilter};
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::query_directory::{self, QueryDirectoryFlags};
use frevo_wire::command::tree_connect::{self, ShareFlags};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::{DirectoryEntries, FileInfoClass};
use frevo_wire::{Command, Status};

use client::draft::{Draft, Reply};
use client::files::{Mount, Want, file_id, rename_draft, tree_connect_draft};
use client::logon::Logon;
use client::negotiate::Offer;
use client::peer::Peer;
use client::protection::{self, everyone};
use client::queries::list_draft;
use client::world::{World, in_world};

const READ: AccessMask = AccessMask::FILE_GENERIC_READ;

/// Lets everyone do `mask`; the file keeps its owner.
async fn protect(peer: &mut Peer, mount: &Mount, name: &str, mask: AccessMask) {
    let want = Want::existing(name).access(AccessMask::WRITE_DAC);
    protection::protect(peer, mount, &want, &everyone(mask)).await;
}

async fn list(peer: &mut Peer, mount: &Mount, name: &str, pattern: &str) -> Vec<String> {
    let want = Want::existing(name).access(AccessMask::READ_DATA);
    let directory = peer.open_file(mount, &want).await;
    let class = FileInfoClass::DIRECTORY;
    let mut names = Vec::new();
    loop {
        let reply =
            peer.on(mount, list_draft(directory, class, QueryDirectoryFlags::EMPTY, pattern)).await;
        match reply.status() {
            Status::NO_MORE_FILES | Status::NO_SUCH_FILE => break,
            _ => reply.ok(),
        };
        let answer = query_directory::Response::parse(&reply.message).unwrap();
        let entries = DirectoryEntries::new(answer.output, class).unwrap();
        names.extend(entries.map(|entry| entry.unwrap().name.decode().unwrap()));
    }
    peer.close(mount, directory).await;
    names.retain(|name| !matches!(&**name, "." | ".."));
    names.sort();
    names
}

/// Bob on the share that hides, Ann on the same folder without.
async fn two(world: &World) -> (Peer, Mount, Peer, Mount, Rc<Logon>) {
    let (ann, hers) = world.session("ann", &Offer::default()).await;
    let mut bob = world.connect();
    bob.negotiate(&Offer::default()).await;
    let logon = bob.log_on("bob").await;
    let his = bob.mount(&logon, "discreet").await;
    (ann, hers, bob, his, logon)
}

async fn status(peer: &mut Peer, mount: &Mount, want: &Want) -> Status {
    let reply: Reply = peer.create(mount, want).await;
    let status = reply.status();
    if status == Status::SUCCESS {
        peer.close(mount, file_id(&reply)).await;
    }
    status
}

/// Something to read, something not, and a folder that cannot be listed.
async fn furnish(world: &World, ann: &mut Peer, hers: &Mount) {
    std::fs::create_dir(world.path("d")).unwrap();
    for (name, mask) in [
        ("seen", READ),
        ("unseen", AccessMask::FILE_GENERIC_WRITE),
        ("attributes", AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE),
        ("nothing", AccessMask::EMPTY),
    ] {
        let file = ann.open_file(hers, &Want::file(&format!("d\\{name}"))).await;
        ann.close(hers, file).await;
        protect(ann, hers, &format!("d\\{name}"), mask).await;
    }
    for (name, mask) in [("open", READ), ("shut", AccessMask::EMPTY)] {
        let folder = ann.open_file(hers, &Want::directory(&format!("d\\{name}"))).await;
        ann.close(hers, folder).await;
        world.file(&format!("d/{name}/inside"), "");
        protect(ann, hers, &format!("d\\{name}"), mask).await;
    }
}

#[test]
fn the_share_says_that_it_hides() {
    in_world(async |world| {
        let (_ann, _, mut bob, _, logon) = two(world).await;
        for (share, hides) in [("discreet", true), ("data", false)] {
            let draft = tree_connect_draft(&format!("\\\\frevo\\{share}")).session(logon.id);
            let reply = bob.ask(draft, logon.via()).await;
            let answer = tree_connect::Response::parse(&reply.ok().message).unwrap();
            let flag = ShareFlags::ACCESS_BASED_DIRECTORY_ENUM;
            assert_eq!(answer.share_flags.contains(flag), hides, "{share}");
        }
    });
}

#[test]
fn what_cannot_be_read_is_not_listed() {
    in_world(async |world| {
        let (mut ann, hers, mut bob, his, _) = two(world).await;
        furnish(world, &mut ann, &hers).await;
        assert_eq!(list(&mut bob, &his, "d", "*").await, ["open", "seen"]);
        assert_eq!(list(&mut bob, &his, "d", "seen").await, ["seen"]);
        for hidden in ["unseen", "UNSEEN", "nothing", "shut", "absent"] {
            assert_eq!(list(&mut bob, &his, "d", hidden).await, [""; 0], "{hidden}");
        }
        assert_eq!(list(&mut ann, &hers, "d", "*").await.len(), 6, "not on the other share");
    });
}

#[test]
fn x8_what_is_not_seen_is_answered_as_what_is_not_there() {
    in_world(async |world| {
        let (mut ann, hers, mut bob, his, _) = two(world).await;
        furnish(world, &mut ann, &hers).await;
        let accesses = [
            READ,
            AccessMask::READ_DATA,
            AccessMask::READ_ATTRIBUTES,
            AccessMask::DELETE,
            AccessMask::READ_CONTROL,
            AccessMask::MAXIMUM_ALLOWED,
            AccessMask::FILE_ALL,
        ];
        for access in accesses {
            for (name, said) in [
                ("d\\absent", Status::OBJECT_NAME_NOT_FOUND),
                ("d\\nothing", Status::OBJECT_NAME_NOT_FOUND),
                ("d\\NOTHING", Status::OBJECT_NAME_NOT_FOUND),
                ("d\\nothing:stream", Status::OBJECT_NAME_NOT_FOUND),
                ("d\\shut", Status::OBJECT_NAME_NOT_FOUND),
                ("d\\shut\\absent", Status::OBJECT_PATH_NOT_FOUND),
                ("d\\absent\\absent", Status::OBJECT_PATH_NOT_FOUND),
                ("d\\nothing\\absent", Status::OBJECT_PATH_NOT_FOUND),
            ] {
                let want = Want::existing(name).access(access);
                assert_eq!(status(&mut bob, &his, &want).await, said, "{name} {access:?}");
                let want = want.disposition(CreateDisposition::OVERWRITE);
                assert_eq!(status(&mut bob, &his, &want).await, said, "{name} {access:?}");
            }
        }
        // The access list hides this file from bob. It must look like an absent one, even if bob
        // asks for another kind, and while ann has it open.
        let want = Want::existing("d\\nothing").access(AccessMask::WRITE_DAC);
        let held = ann.open_file(&hers, &want).await;
        for options in [CreateOptions::DIRECTORY_FILE, CreateOptions::DELETE_ON_CLOSE] {
            for name in ["d\\absent", "d\\nothing"] {
                let want = Want::existing(name).access(AccessMask::DELETE).options(options);
                let said = status(&mut bob, &his, &want).await;
                assert_eq!(said, Status::OBJECT_NAME_NOT_FOUND, "{name} {options:?}");
            }
        }
        ann.close(&hers, held).await;
        // Bob may write this file but not read it, so it can be opened although it is hidden. A
        // file that bob sees is refused with the true reason.
        let want = Want::existing("d\\unseen").access(AccessMask::WRITE_DATA);
        assert_eq!(status(&mut bob, &his, &want).await, Status::SUCCESS);
        let want = Want::existing("d\\seen").access(AccessMask::WRITE_DATA);
        assert_eq!(status(&mut bob, &his, &want).await, Status::ACCESS_DENIED);
        assert!(world.path("d/nothing").exists());
    });
}

#[test]
fn the_owner_lets_himself_in_again() {
    in_world(async |world| {
        let (_ann, _, mut bob, his, _) = two(world).await;
        let file = bob.open_file(&his, &Want::file("mine")).await;
        bob.close(&his, file).await;
        protect(&mut bob, &his, "mine", AccessMask::EMPTY).await;
        assert_eq!(list(&mut bob, &his, "", "mine").await, [""; 0]);
        protect(&mut bob, &his, "mine", READ).await;
        assert_eq!(list(&mut bob, &his, "", "mine").await, ["mine"]);
    });
}

/// Dispositions that would make the file. A user that may not add to the folder learns that,
/// and no more; a user that may learns that the name is taken, and nothing else.
#[test]
fn x8_what_would_be_made_is_answered_alike() {
    in_world(async |world| {
        let (mut ann, hers, mut bob, his, _) = two(world).await;
        furnish(world, &mut ann, &hers).await;
        let makes = [
            CreateDisposition::CREATE,
            CreateDisposition::OPEN_IF,
            CreateDisposition::OVERWRITE_IF,
            CreateDisposition::SUPERSEDE,
        ];
        let held = Want::existing("d\\attributes").access(AccessMask::WRITE_DAC);
        let held = ann.open_file(&hers, &held).await;
        for (may_add, taken) in
            [(false, Status::ACCESS_DENIED), (true, Status::OBJECT_NAME_COLLISION)]
        {
            let adds = AccessMask::WRITE_DATA | AccessMask::APPEND_DATA;
            protect(&mut ann, &hers, "d", if may_add { READ | adds } else { READ }).await;
            for disposition in makes {
                for name in ["d\\nothing", "d\\NOTHING", "d\\shut", "d\\attributes"] {
                    for want in [Want::file(name), Want::directory(name)] {
                        let want = want.access(READ).disposition(disposition);
                        let said = status(&mut bob, &his, &want).await;
                        // A directory can be neither overwritten nor superseded, so these cases
                        // return INVALID_PARAMETER.
                        if said != Status::INVALID_PARAMETER {
                            assert_eq!(said, taken, "{name} {disposition:?} {may_add}");
                        }
                    }
                }
                for name in ["d\\shut\\new", "d\\absent\\new", "d\\nothing\\new"] {
                    let want = Want::file(name).access(READ).disposition(disposition);
                    let said = status(&mut bob, &his, &want).await;
                    assert_eq!(said, Status::OBJECT_PATH_NOT_FOUND, "{name} {disposition:?}");
                }
                let want = Want::file("d\\absent").access(READ).disposition(disposition);
                let expected = if may_add { Status::SUCCESS } else { Status::ACCESS_DENIED };
                assert_eq!(status(&mut bob, &his, &want).await, expected, "{disposition:?}");
                let _ = std::fs::remove_file(world.path("d/absent"));
                // Bob sees this file, so the collision is reported.
                let want = Want::file("d\\seen").disposition(CreateDisposition::CREATE);
                let said = status(&mut bob, &his, &want).await;
                assert_eq!(said, Status::OBJECT_NAME_COLLISION);
            }
        }
        ann.close(&hers, held).await;
    });
}

#[test]
fn x8_a_rename_tells_no_more_than_a_create() {
    in_world(async |world| {
        let (mut ann, hers, mut bob, his, _) = two(world).await;
        furnish(world, &mut ann, &hers).await;
        let file = bob.open_file(&his, &Want::file("mine")).await;
        for (may_add, free, taken) in [
            (false, Status::ACCESS_DENIED, Status::ACCESS_DENIED),
            (true, Status::SUCCESS, Status::OBJECT_NAME_COLLISION),
        ] {
            let adds = AccessMask::WRITE_DATA | AccessMask::APPEND_DATA;
            protect(&mut ann, &hers, "d", if may_add { READ | adds } else { READ }).await;
            for class in [FileInfoClass::LINK, FileInfoClass::RENAME] {
                for (to, replace, expected) in [
                    ("d\\nothing", false, taken),
                    ("d\\shut", false, taken),
                    ("d\\nothing", true, Status::ACCESS_DENIED),
                    ("d\\shut", true, Status::ACCESS_DENIED),
                    ("d\\shut\\inside", true, Status::OBJECT_PATH_NOT_FOUND),
                    ("d\\shut\\new", false, Status::OBJECT_PATH_NOT_FOUND),
                    ("d\\absent\\new", false, Status::OBJECT_PATH_NOT_FOUND),
                    ("d\\free", false, free),
                ] {
                    let draft = rename_draft(class, file, to, replace);
                    let said = bob.on(&his, draft).await.status();
                    assert_eq!(said, expected, "{class:?} {to} {replace} {may_add}");
                }
                let _ = std::fs::remove_file(world.path("d/free"));
            }
        }
    });
}

/// Changes of what is not seen are told of as changes, not by name: the client
/// is to list the folder again.
#[test]
fn x8_changes_of_the_unseen_have_no_names() {
    in_world(async |world| {
        let (mut ann, hers, mut bob, his, _) = two(world).await;
        furnish(world, &mut ann, &hers).await;
        let want = Want::existing("d").access(AccessMask::READ_DATA);
        let folder = bob.open_file(&his, &want).await;
        for (name, is_told) in
            [("seen", true), ("nothing", false), ("shut\\inside", false), ("open\\inside", true)]
        {
            let draft = Draft::new(Command::CHANGE_NOTIFY).with(|w| {
                change_notify::Request {
                    flags: ChangeNotifyFlags::WATCH_TREE,
                    output_buffer_length: 4096,
                    file_id: folder,
                    completion_filter: CompletionFilter::SECURITY,
                }
                .encode(w);
            });
            let ids = bob.send(vec![his.put(draft)], his.via()).await;
            bob.interim().await;
            // Ann sets the access list that the file already has. This counts as a change, which
            // bob's watch reports with or without the name.
            let mask = if is_told { READ } else { AccessMask::EMPTY };
            protect(&mut ann, &hers, &format!("d\\{name}"), mask | AccessMask::SYNCHRONIZE).await;
            let reply = bob.final_reply(ids[0]).await;
            let expected = if is_told { Status::SUCCESS } else { Status::NOTIFY_ENUM_DIR };
            assert_eq!(reply.status(), expected, "{name}");
            let told = change_notify::Response::parse(&reply.message).unwrap().output;
            assert_eq!(told.is_empty(), !is_told, "{name}");
        }
    });
}

/// Names are judged one by one, on the core: of more changes than a few none is told by name.
#[test]
fn x8_many_changes_have_no_names() {
    in_world(async |world| {
        let (mut ann, hers, mut bob, his, _) = two(world).await;
        furnish(world, &mut ann, &hers).await;
        let want = Want::existing("d").access(AccessMask::READ_DATA);
        for (count, is_told) in [(NAMES_JUDGED / 2, true), (NAMES_JUDGED + 1, false)] {
            let folder = bob.open_file(&his, &want).await;
            let draft = || {
                Draft::new(Command::CHANGE_NOTIFY).with(|w| {
                    change_notify::Request {
                        flags: ChangeNotifyFlags::WATCH_TREE,
                        output_buffer_length: 16_384,
                        file_id: folder,
                        completion_filter: CompletionFilter::SECURITY,
                    }
                    .encode(w);
                })
            };
            let mask = READ | AccessMask::SYNCHRONIZE;
            let ids = bob.send(vec![his.put(draft())], his.via()).await;
            bob.interim().await;
            protect(&mut ann, &hers, "d\\seen", mask).await;
            bob.final_reply(ids[0]).await.expect(Status::SUCCESS);
            // The replies to these requests are not needed now; they are read later.
            for at in 0..count {
                let name = if at % 2 == 0 { "d\\open\\inside" } else { "d\\seen" };
                protect(&mut ann, &hers, name, mask).await;
            }
            let reply = bob.on(&his, draft()).await;
            let expected = if is_told { Status::SUCCESS } else { Status::NOTIFY_ENUM_DIR };
            assert_eq!(reply.status(), expected, "{count}");
            bob.close(&his, folder).await;
        }
    });
}

/// Each folder on the way to a name is judged too.
#[test]
fn x8_changes_far_below_have_no_names() {
    in_world(async |world| {
        let (mut ann, hers, mut bob, his, _) = two(world).await;
        let mut path = String::from("deep");
        for at in 0..FOLDERS_JUDGED / 3 {
            let folder = ann.open_file(&hers, &Want::directory(&path)).await;
            ann.close(&hers, folder).await;
            path.push_str(if at % 2 == 0 { "\\a" } else { "\\b" });
        }
        let file = ann.open_file(&hers, &Want::file(&path)).await;
        ann.close(&hers, file).await;
        let want = Want::existing("deep").access(AccessMask::READ_DATA);
        for (count, is_told) in [(2, true), (4, false)] {
            let folder = bob.open_file(&his, &want).await;
            let draft = || {
                Draft::new(Command::CHANGE_NOTIFY).with(|w| {
                    change_notify::Request {
                        flags: ChangeNotifyFlags::WATCH_TREE,
                        output_buffer_length: 65_536,
                        file_id: folder,
                        completion_filter: CompletionFilter::SECURITY,
                    }
                    .encode(w);
                })
            };
            let mask = READ | AccessMask::SYNCHRONIZE;
            let ids = bob.send(vec![his.put(draft())], his.via()).await;
            bob.interim().await;
            protect(&mut ann, &hers, &path, mask).await;
            bob.final_reply(ids[0]).await.expect(Status::SUCCESS);
            // No CHANGE_NOTIFY waits, so the server keeps the changes. They alternate between two
            // objects, because repeated changes of one object are merged.
            for at in 0..count {
                let name = if at % 2 == 0 { path.rsplit_once('\\').unwrap().0 } else { &path };
                protect(&mut ann, &hers, name, mask).await;
            }
            let reply = bob.on(&his, draft()).await;
            let expected = if is_told { Status::SUCCESS } else { Status::NOTIFY_ENUM_DIR };
            assert_eq!(reply.status(), expected, "{count}");
            bob.close(&his, folder).await;
        }
    });
}
