//! Rights as clients see them: MS-FSA 2.1.5.1, 2.1.5.14 and 2.1.5.17, and rows A5, X1 and X4
//! of the catalogue of faults.
#![allow(clippy::print_stdout, unreachable_pub, dead_code, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

use std::sync::Arc;

use frevo_posix::{PosixOptions, PosixVfs};
use frevo_store::Vfs;
use frevo_wire::codec::Writer;
use frevo_wire::command::create::{self, CreateDisposition, CreateOptions, OplockLevel};
use frevo_wire::command::query_info::{self};
use frevo_wire::command::set_info::InfoType;
use frevo_wire::create_context;
use frevo_wire::dtyp::{
    AccessMask, Ace, AceFlags, FileAttributes, SdControl, SecurityDescriptor, SecurityInformation,
    Sid,
};
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::set::FileRenameInformation;
use frevo_wire::{Command, Status};

use client::draft::{Draft, Reply};
use client::files::{Mount, Want, rename_draft, set_draft, set_info_draft};
use client::negotiate::Offer;
use client::peer::Peer;
use client::protection::{self, bytes, everyone, list};
use client::queries::query_info_draft;
use client::world::{World, in_world, over};

const READ: AccessMask = AccessMask::FILE_GENERIC_READ;
const DACL: SecurityInformation = SecurityInformation::DACL;

async fn protect(peer: &mut Peer, mount: &Mount, name: &str, new: &SecurityDescriptor) {
    let want = Want::existing(name).access(AccessMask::WRITE_DAC | AccessMask::READ_CONTROL);
    protection::protect(peer, mount, &want, new).await;
}

async fn descriptor(peer: &mut Peer, mount: &Mount, name: &str) -> SecurityDescriptor {
    let want = Want::existing(name).access(AccessMask::READ_CONTROL);
    let file = peer.open_file(mount, &want).await;
    let parts = SecurityInformation::OWNER | SecurityInformation::GROUP | DACL;
    let draft = query_info_draft(file, InfoType::SECURITY, 0, parts.0);
    let reply = peer.on(mount, draft).await;
    let answer = query_info::Response::parse(&reply.ok().message).unwrap();
    let found = SecurityDescriptor::parse(answer.output).unwrap();
    peer.close(mount, file).await;
    found
}

async fn status(peer: &mut Peer, mount: &Mount, want: &Want) -> Status {
    let reply: Reply = peer.create(mount, want).await;
    let status = reply.status();
    if status == Status::SUCCESS {
        peer.close(mount, client::files::file_id(&reply)).await;
    }
    status
}

async fn two(world: &World) -> (Peer, Mount, Peer, Mount) {
    let (ann, hers) = world.session("ann", &Offer::default()).await;
    let (bob, his) = world.session("bob", &Offer::default()).await;
    (ann, hers, bob, his)
}

#[test]
fn x1_what_may_not_be_written_is_not_emptied_either() {
    in_world(async |world| {
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        world.file("f", "content");
        protect(&mut ann, &hers, "f", &everyone(READ | AccessMask::DELETE)).await;
        for disposition in [
            CreateDisposition::OVERWRITE,
            CreateDisposition::OVERWRITE_IF,
            CreateDisposition::SUPERSEDE,
        ] {
            for access in [READ, AccessMask::READ_ATTRIBUTES, AccessMask::MAXIMUM_ALLOWED] {
                let want = Want::existing("f").access(access).disposition(disposition);
                let said = status(&mut ann, &hers, &want).await;
                assert_eq!(said, Status::ACCESS_DENIED, "{disposition:?} {access:?}");
                assert_eq!(world.content("f"), b"content", "{disposition:?} {access:?}");
            }
        }
        let want = Want::existing("f").access(READ);
        assert_eq!(status(&mut ann, &hers, &want).await, Status::SUCCESS);
        let want = Want::existing("f").access(AccessMask::WRITE_DATA);
        assert_eq!(status(&mut ann, &hers, &want).await, Status::ACCESS_DENIED);
    });
}

#[test]
fn the_owner_sets_who_else_may_and_the_others_may_not() {
    in_world(async |world| {
        let (mut ann, hers, mut bob, his) = two(world).await;
        let file = ann.open_file(&hers, &Want::file("secret")).await;
        ann.close(&hers, file).await;
        let owner = descriptor(&mut ann, &hers, "secret").await.owner.unwrap();
        let only = list(vec![Ace::allow(AceFlags::EMPTY, AccessMask::FILE_ALL, owner)]);
        protect(&mut ann, &hers, "secret", &only).await;
        assert_eq!(descriptor(&mut ann, &hers, "secret").await.owner, Some(owner));
        for access in
            [READ, AccessMask::READ_CONTROL, AccessMask::WRITE_DAC, AccessMask::WRITE_DATA]
        {
            let want = Want::existing("secret").access(access);
            assert_eq!(status(&mut bob, &his, &want).await, Status::ACCESS_DENIED, "{access:?}");
            assert_eq!(status(&mut ann, &hers, &want).await, Status::SUCCESS, "{access:?}");
        }
        // On the host the file's mode gives access only to the server's user.
        let mode = std::fs::metadata(world.path("secret")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&mode.permissions());
        assert_eq!(mode & 0o077, 0, "{mode:o}");
        let system = AccessMask::ACCESS_SYSTEM_SECURITY;
        let want = Want::existing("secret").access(system);
        assert_eq!(status(&mut ann, &hers, &want).await, Status::PRIVILEGE_NOT_HELD);
    });
}

/// A client that reads the list, adds an entry and sets it, as `smbcacls --add` does, can do so again.
#[test]
fn an_owner_changes_a_list_again_and_again() {
    in_world(async |world| {
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        for (name, mode) in [("rw", 0o644), ("rwx", 0o755), ("own", 0o600)] {
            world.file(name, "content");
            let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(mode);
            std::fs::set_permissions(world.path(name), mode).unwrap();
            let entries = |of: &SecurityDescriptor| of.dacl.as_ref().unwrap().aces.len();
            let first = entries(&descriptor(&mut ann, &hers, name).await);
            for added in 1..4 {
                let mut new = descriptor(&mut ann, &hers, name).await;
                let entry = Ace::allow(AceFlags::EMPTY, READ, Sid::unix_user(60_000 + added));
                new.dacl.as_mut().unwrap().aces.push(entry);
                // smbcacls opens the file with both rights.
                let rights = AccessMask::WRITE_DAC | AccessMask::WRITE_OWNER;
                let want = Want::existing(name).access(rights);
                protection::protect(&mut ann, &hers, &want, &new).await;
                let now = entries(&descriptor(&mut ann, &hers, name).await);
                assert_eq!(now, first + added as usize, "{name}");
            }
        }
    });
}

#[test]
fn new_files_inherit_and_need_the_directorys_leave() {
    in_world(async |world| {
        let (mut ann, hers, mut bob, his) = two(world).await;
        let folder = ann.open_file(&hers, &Want::directory("d")).await;
        ann.close(&hers, folder).await;
        let owner = descriptor(&mut ann, &hers, "d").await.owner.unwrap();
        let both = AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT;
        let rights = list(vec![
            Ace::allow(both, AccessMask::FILE_ALL, owner),
            Ace::allow(both, READ, Sid::EVERYONE),
        ]);
        protect(&mut ann, &hers, "d", &rights).await;
        let made = ann.open_file(&hers, &Want::file("d\\f")).await;
        ann.close(&hers, made).await;
        let aces = descriptor(&mut ann, &hers, "d\\f").await.dacl.unwrap().aces;
        let plain = |mask, sid| Ace::allow(AceFlags::EMPTY, mask, sid);
        assert_eq!(aces, [plain(AccessMask::FILE_ALL, owner), plain(READ, Sid::EVERYONE)]);
        for want in [Want::file("d\\g"), Want::directory("d\\h")] {
            for disposition in [CreateDisposition::CREATE, CreateDisposition::OPEN_IF] {
                let want = want.clone().disposition(disposition);
                assert_eq!(status(&mut bob, &his, &want).await, Status::ACCESS_DENIED);
            }
        }
        assert!(!world.path("d/g").exists() && !world.path("d/h").exists());
        // Bob may not make files here, but the existing name is reported first.
        let want = Want::file("d\\f").disposition(CreateDisposition::CREATE);
        assert_eq!(status(&mut bob, &his, &want).await, Status::OBJECT_NAME_COLLISION);
        let deleting = Want::existing("d\\f")
            .access(AccessMask::DELETE)
            .options(CreateOptions::DELETE_ON_CLOSE);
        assert_eq!(status(&mut bob, &his, &deleting).await, Status::ACCESS_DENIED);
        assert!(world.path("d/f").exists());
    });
}

#[test]
fn by_way_of_a_link_the_directory_is_asked_too() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    std::os::unix::fs::symlink("d", dir.path().join("link")).unwrap();
    let options = PosixOptions { follow_symlinks_inside: true, ..PosixOptions::default() };
    let vfs: Arc<dyn Vfs> = Arc::new(PosixVfs::open_root(dir.path(), options).unwrap());
    over(&vfs, async |world| {
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        let new = |name: &str| Want::file(name).disposition(CreateDisposition::CREATE);
        for (mask, said) in [
            (AccessMask::FILE_ALL, Status::SUCCESS),
            (READ | AccessMask::WRITE_DAC, Status::ACCESS_DENIED),
        ] {
            protect(&mut ann, &hers, "d", &everyone(mask)).await;
            for name in ["d\\f", "link\\g"] {
                let name = format!("{name}{}", mask.0);
                assert_eq!(status(&mut ann, &hers, &new(&name)).await, said, "{name}");
            }
        }
        assert_eq!(std::fs::read_dir(dir.path().join("d")).unwrap().count(), 2);
    });
}

#[test]
fn whoever_may_delete_children_may_delete_this_one() {
    in_world(async |world| {
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        std::fs::create_dir(world.path("d")).unwrap();
        world.file("d/f", "");
        protect(&mut ann, &hers, "d\\f", &everyone(READ)).await;
        let want = Want::existing("d\\f").access(AccessMask::DELETE);
        protect(&mut ann, &hers, "d", &everyone(READ)).await;
        assert_eq!(status(&mut ann, &hers, &want).await, Status::ACCESS_DENIED);
        protect(&mut ann, &hers, "d", &everyone(READ | AccessMask::DELETE_CHILD)).await;
        assert_eq!(status(&mut ann, &hers, &want).await, Status::SUCCESS);
    });
}

#[test]
fn x4_a_rename_needs_rights_where_it_leads() {
    in_world(async |world| {
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        std::fs::create_dir(world.path("closed")).unwrap();
        world.file("f", "mine");
        world.file("kept", "kept");
        world.file("closed/there", "there");
        let all_but = |mask| everyone(AccessMask::FILE_ALL.without(mask));
        let adding = AccessMask::WRITE_DATA | AccessMask::APPEND_DATA;
        protect(&mut ann, &hers, "closed", &all_but(adding | AccessMask::DELETE_CHILD)).await;
        protect(&mut ann, &hers, "closed\\there", &everyone(READ)).await;
        let file = ann.open_file(&hers, &Want::existing("f")).await;
        for to in ["closed\\f", "closed\\there"] {
            let mut name = Vec::new();
            FileRenameInformation { replace_if_exists: true, root_directory: 0, name: to }
                .encode(&mut Writer::new(&mut name));
            for class in [FileInfoClass::RENAME, FileInfoClass::LINK] {
                let reply =
                    ann.on(&hers, set_info_draft(file, InfoType::FILE, class.0, 0, &name)).await;
                reply.expect(Status::ACCESS_DENIED);
            }
        }
        assert_eq!(world.content("closed/there"), b"there");
        assert_eq!(world.content("f"), b"mine");
        ann.close(&hers, file).await;
    });
}

/// MS-FSA 2.1.5.15.12: rights are judged before anybody is asked to give up a cached handle.
#[test]
fn a_rename_that_is_refused_breaks_nothing_of_the_file_in_its_way() {
    in_world(async |world| {
        let (mut ann, hers, mut bob, his) = two(world).await;
        world.file("f", "mine");
        std::fs::create_dir(world.path("d")).unwrap();
        for name in ["protected", "read-only"] {
            world.file(&format!("d/{name}"), name);
        }
        protect(&mut ann, &hers, "d\\protected", &everyone(READ)).await;
        let all_but = AccessMask::FILE_ALL.without(AccessMask::DELETE_CHILD);
        protect(&mut ann, &hers, "d", &everyone(all_but)).await;
        let file = ann.open_file(&hers, &Want::existing("d\\read-only")).await;
        let mut read_only = [0; 40];
        read_only[32..36].copy_from_slice(&FileAttributes::READONLY.0.to_le_bytes());
        ann.on(&hers, set_draft(FileInfoClass::BASIC, file, &read_only)).await.ok();
        ann.close(&hers, file).await;

        let file = ann.open_file(&hers, &Want::existing("f")).await;
        for name in ["d\\protected", "d\\read-only"] {
            let want = Want::existing(name).access(AccessMask::READ_DATA);
            let reply = bob.create(&his, &Want { oplock: OplockLevel::BATCH, ..want }).await;
            let opened = create::Response::parse(&reply.ok().message).unwrap();
            assert_eq!(opened.oplock_level, OplockLevel::BATCH);
            for class in [FileInfoClass::RENAME, FileInfoClass::LINK] {
                let draft = rename_draft(class, file, name, true);
                ann.send(vec![hers.put(draft)], hers.via()).await;
                // Bob has the file open, so the rename is refused at once, without an interim
                // response.
                ann.reply().await.expect(Status::ACCESS_DENIED);
            }
        }
        bob.send(vec![his.put(Draft::echo())], his.via()).await;
        assert_eq!(bob.reply().await.header.command, Command::ECHO);
    });
}

#[test]
fn a_descriptor_may_come_with_the_create() {
    in_world(async |world| {
        let (mut ann, hers, mut bob, his) = two(world).await;
        let given = everyone(READ);
        let given = bytes(&given);
        let requests = [create_context::CreateContext::SecurityDescriptor(&given)];
        let want = Want {
            contexts: create_context::CreateContexts::from_requests(&requests).as_bytes().to_vec(),
            ..Want::file("f").disposition(CreateDisposition::CREATE)
        };
        let file = ann.open_file(&hers, &want).await;
        ann.write(&hers, file, 0, b"its maker may").await;
        ann.close(&hers, file).await;
        let aces = descriptor(&mut bob, &his, "f").await.dacl.unwrap().aces;
        assert_eq!(aces, [Ace::allow(AceFlags::EMPTY, READ, Sid::EVERYONE)]);
        let want = Want::existing("f").access(AccessMask::WRITE_DATA);
        assert_eq!(status(&mut ann, &hers, &want).await, Status::ACCESS_DENIED);
        world.file("g", "");
        let mut wrong = given.clone();
        wrong[0] = 9;
        let requests = [create_context::CreateContext::SecurityDescriptor(&wrong)];
        let want = Want {
            contexts: create_context::CreateContexts::from_requests(&requests).as_bytes().to_vec(),
            ..Want::file("h")
        };
        assert_eq!(status(&mut ann, &hers, &want).await, Status::INVALID_PARAMETER);
        assert!(!world.path("h").exists());
    });
}

#[test]
fn a_stream_is_protected_as_its_file_is() {
    in_world(async |world| {
        let (mut ann, hers, mut bob, his) = two(world).await;
        let file = ann.open_file(&hers, &Want::file("f")).await;
        ann.close(&hers, file).await;
        protect(&mut ann, &hers, "f", &everyone(READ)).await;
        let before = descriptor(&mut ann, &hers, "f").await;
        let want = Want::file("f:s").access(AccessMask::WRITE_DATA);
        assert_eq!(status(&mut bob, &his, &want).await, Status::ACCESS_DENIED);
        protect(&mut ann, &hers, "f", &everyone(READ | AccessMask::FILE_GENERIC_WRITE)).await;
        assert_eq!(status(&mut bob, &his, &want).await, Status::SUCCESS);
        protect(&mut ann, &hers, "f", &everyone(READ)).await;
        assert_eq!(status(&mut bob, &his, &want).await, Status::ACCESS_DENIED);
        assert_eq!(descriptor(&mut ann, &hers, "f").await, before);
    });
}

/// INVALID_OWNER for those whom the user may not make the owner, with the file
/// as with the descriptor; MS-FSA 2.1.5.17.
#[test]
fn who_may_be_made_the_owner() {
    in_world(async |world| {
        let (mut ann, hers, mut bob, his) = two(world).await;
        for (name, peer, mount) in [("a", &mut ann, &hers), ("b", &mut bob, &his)] {
            let file = peer.open_file(mount, &Want::file(name)).await;
            peer.close(mount, file).await;
        }
        // On the host all files belong to the server's user, so each client is shown its own user
        // as the owner.
        let anns = descriptor(&mut ann, &hers, "a").await.owner.unwrap();
        let bobs = descriptor(&mut bob, &his, "b").await.owner.unwrap();
        protect(&mut ann, &hers, "a", &everyone(AccessMask::FILE_ALL)).await;
        for (owner, expected) in [
            (Sid::EVERYONE, Status::SUCCESS),
            (Sid::AUTHENTICATED_USERS, Status::SUCCESS),
            (anns, Status::SUCCESS),
            (bobs, Status::INVALID_OWNER),
            (Sid::ADMINISTRATORS, Status::INVALID_OWNER),
            (Sid::LOCAL_SYSTEM, Status::INVALID_OWNER),
        ] {
            let given = SecurityDescriptor { owner: Some(owner), ..everyone(READ) };
            let given = bytes(&given);
            let want = Want::existing("a").access(AccessMask::WRITE_OWNER);
            let file = ann.open_file(&hers, &want).await;
            let parts = SecurityInformation::OWNER.0;
            let draft = set_info_draft(file, InfoType::SECURITY, 0, parts, &given);
            ann.on(&hers, draft).await.expect(expected);
            ann.close(&hers, file).await;
            let requests = [create_context::CreateContext::SecurityDescriptor(&given)];
            let contexts = create_context::CreateContexts::from_requests(&requests);
            let want = Want {
                contexts: contexts.as_bytes().to_vec(),
                ..Want::file("new").disposition(CreateDisposition::CREATE)
            };
            assert_eq!(status(&mut ann, &hers, &want).await, expected, "{owner}");
            assert_eq!(world.path("new").exists(), expected == Status::SUCCESS, "{owner}");
            if expected == Status::SUCCESS {
                assert_eq!(descriptor(&mut ann, &hers, "new").await.owner, Some(owner));
                std::fs::remove_file(world.path("new")).unwrap();
            }
        }
        assert_eq!(descriptor(&mut ann, &hers, "a").await.owner, Some(anns));
    });
}

/// MS-DTYP 2.4.6, DI and DC: kept when both are said, or where the share keeps
/// lists as they come.
#[test]
fn whether_a_list_was_inherited_is_said_by_who_sets_it() {
    in_world(async |world| {
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        let copies = ann.mount(&hers.logon, "copies").await;
        let (says, asks) =
            (SdControl::DACL_AUTO_INHERITED, SdControl::DACL_COMPUTED_INHERITANCE_REQUIRED);
        for (mount, control, kept) in [
            (&hers, SdControl::EMPTY, false),
            (&hers, says, false),
            (&hers, asks, false),
            (&hers, says | asks, true),
            (&copies, SdControl::EMPTY, false),
            (&copies, says, true),
            (&copies, asks, false),
            (&copies, says | asks, true),
        ] {
            world.file("f", "");
            let mut new = everyone(AccessMask::FILE_ALL);
            new.control |= control;
            protect(&mut ann, mount, "f", &new).await;
            let found = descriptor(&mut ann, mount, "f").await.control;
            assert_eq!(found.contains(says), kept, "{control:?}");
            assert!(!found.contains(asks));
            std::fs::remove_file(world.path("f")).unwrap();
        }
    });
}
