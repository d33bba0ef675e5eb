//! The SMB 3.1.1 POSIX extensions as a Linux client meets them.
#![allow(clippy::print_stdout, unreachable_pub, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt};

use client::files::{rename_draft, set_draft, set_info_draft};
use client::*;
use frevo_wire::command::create::{self, CreateDisposition, CreateOptions, OplockLevel};
use frevo_wire::command::negotiate;
use frevo_wire::command::oplock_break::Notification;
use frevo_wire::command::query_directory::{self, QueryDirectoryFlags};
use frevo_wire::command::query_info::{self, InfoType};
use frevo_wire::create_context::{CreateContext, CreateContexts, PosixResponse, ResponseContext};
use frevo_wire::dtyp::{AccessMask, Ace, AceFlags, Acl, SdControl, SecurityDescriptor, Sid};
use frevo_wire::fscc::posix::{FsPosixInformation, PosixAttributes};
use frevo_wire::fscc::{DirectoryEntries, FileInfoClass};
use frevo_wire::negotiate_context::{NegotiateContext, POSIX_GUID};

const LEVEL: u8 = 100;

fn offer() -> Offer {
    Offer { posix: true, ..Offer::default() }
}

/// The same request with the POSIX create context.
fn posix(want: Want, mode: u32) -> Want {
    let contexts = CreateContexts::from_requests(&[CreateContext::Posix { mode }]);
    Want { contexts: contexts.as_bytes().to_vec(), ..want }
}

/// The answer to the context: links, tag, mode, and the bytes of the SIDs.
fn answer(reply: &Reply) -> Option<(u32, u32, u32, Vec<u8>)> {
    let response = create::Response::parse(&reply.message).unwrap();
    response.contexts.responses().find_map(|context| match context.unwrap() {
        ResponseContext::Posix(PosixResponse {
            nlink,
            reparse_tag,
            mode,
            owner_sid,
            group_sid,
        }) => Some((nlink, reparse_tag, mode, [owner_sid, group_sid].concat())),
        _ => None,
    })
}

async fn info(peer: &mut Peer, mount: &Mount, file: FileId) -> PosixAttributes {
    let reply = peer.on(mount, query_info_draft(file, InfoType::FILE, LEVEL, 0)).await;
    reply.ok();
    let data = query_info::Response::parse(&reply.message).unwrap().output;
    PosixAttributes::parse(data).unwrap()
}

async fn names(peer: &mut Peer, mount: &Mount, want: &Want, class: u8) -> Vec<(String, u32)> {
    let dir = peer.open_file(mount, want).await;
    let draft = list_draft(dir, FileInfoClass(class), QueryDirectoryFlags::EMPTY, "*");
    let reply = peer.on(mount, draft).await;
    reply.ok();
    let data = query_directory::Response::parse(&reply.message).unwrap().output;
    let entries = DirectoryEntries::new(data, FileInfoClass(class)).unwrap();
    let mut found: Vec<_> = entries
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.name.decode().unwrap(), entry.posix.map_or(0, |posix| posix.mode))
        })
        .filter(|(name, _)| !matches!(name.as_str(), "." | ".." | "innocent"))
        .collect();
    found.sort();
    peer.close(mount, dir).await;
    found
}

#[test]
fn they_are_negotiated_when_both_want_them() {
    let posix = |reply: &Reply| {
        let response = negotiate::Response::parse(&reply.message).unwrap();
        response.negotiate_contexts.iter().find_map(|context| match context {
            NegotiateContext::Posix(data) => Some(data.to_vec()),
            _ => None,
        })
    };
    in_world(async |world| {
        let reply = world.connect().try_negotiate(&offer()).await;
        assert_eq!(posix(&reply), Some(POSIX_GUID.to_vec()));
        let golden =
            [0x00, 0x01, 16, 0, 0, 0, 0, 0, 0x93, 0xAD, 0x25, 0x50, 0x9C, 0xB4, 0x11, 0xE7];
        assert!(reply.message.windows(golden.len()).any(|bytes| bytes == golden));
        let reply = world.connect().try_negotiate(&Offer::default()).await;
        assert_eq!(posix(&reply), None);
    });
    in_world_with(Settings { posix: false, ..settings() }, async |world| {
        let (mut peer, mount) = world.session("ann", &offer()).await;
        let reply = peer.create(&mount, &self::posix(Want::file("f"), 0o600)).await;
        reply.ok();
        assert_eq!(answer(&reply), None, "a context that nobody knows");
        let file = create::Response::parse(&reply.message).unwrap().file_id;
        let reply = peer.on(&mount, query_info_draft(file, InfoType::FILE, LEVEL, 0)).await;
        reply.expect(Status::INVALID_INFO_CLASS);
    });
}

#[test]
fn a_create_says_the_mode_and_is_told_owner_and_group() {
    // The file gets the mode of the request, so this process's umask must not change it.
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &offer()).await;
        let reply = peer.create(&mount, &posix(Want::file("f"), 0o100_666)).await;
        reply.ok();
        let meta = std::fs::metadata(world.path("f")).unwrap();
        assert_eq!(meta.mode(), 0o100_666);
        let mut sids = vec![1, 2, 0, 0, 0, 0, 0, 22, 1, 0, 0, 0];
        sids.extend_from_slice(&meta.uid().to_le_bytes());
        sids.extend_from_slice(&[1, 2, 0, 0, 0, 0, 0, 22, 2, 0, 0, 0]);
        sids.extend_from_slice(&meta.gid().to_le_bytes());
        assert_eq!(answer(&reply), Some((1, 0, 0o666, sids)));

        // The set-user-ID bit of a request is ignored, but a directory keeps its sticky bit.
        peer.create(&mount, &posix(Want::file("suid"), 0o6755)).await.ok();
        assert_eq!(std::fs::metadata(world.path("suid")).unwrap().mode() & 0o7777, 0o755);
        let reply = peer.create(&mount, &posix(Want::directory("d"), 0o1770)).await;
        reply.ok();
        assert_eq!(std::fs::metadata(world.path("d")).unwrap().mode() & 0o7777, 0o1770);
        assert_eq!(answer(&reply).unwrap().2, 0o1770 | 1 << 12, "with the type of a directory");

        // A POSIX context of the wrong size is refused. Without the context in the request, the
        // reply has none.
        let mut bad = posix(Want::file("g"), 0);
        bad.contexts = CreateContexts::build(&[(&POSIX_GUID, &[0; 5])]).as_bytes().to_vec();
        peer.create(&mount, &bad).await.expect(Status::INVALID_PARAMETER);
        assert_eq!(answer(&peer.create(&mount, &Want::file("g")).await), None);
    });
}

#[test]
fn case_counts_and_only_separators_are_reserved() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &offer()).await;
        for name in ["a", "A", "a:b", "a*?<>|\"", "end.", "end ", "new\nline"] {
            let want = Want::file(name).disposition(CreateDisposition::CREATE);
            let file = peer.open_file(&mount, &posix(want, 0o644)).await;
            peer.write(&mount, file, 0, name.as_bytes()).await;
            peer.close(&mount, file).await;
            assert_eq!(world.content(name), name.as_bytes(), "as it is on the disk");
        }
        std::fs::create_dir(world.path("d")).unwrap();
        // For POSIX clients only a slash separates folders; a backslash and a colon are ordinary
        // characters.
        for (name, stored) in [("d/x:y", "d/x:y"), ("d/z", "d/z"), ("d\\z", "d\\z")] {
            peer.create(&mount, &posix(Want::file(name), 0o644)).await.ok();
            assert!(world.path(stored).exists());
        }
        let missing = posix(Want::existing("D/z"), 0);
        peer.create(&mount, &missing).await.expect(Status::OBJECT_PATH_NOT_FOUND);
        peer.create(&mount, &posix(Want::existing("d/Z"), 0))
            .await
            .expect(Status::OBJECT_NAME_NOT_FOUND);
        for (name, status) in
            [("/a", Status::INVALID_PARAMETER), ("d/../a", Status::OBJECT_PATH_SYNTAX_BAD)]
        {
            peer.create(&mount, &posix(Want::existing(name), 0)).await.expect(status);
        }
        peer.create(&mount, &posix(Want::existing("d//z"), 0)).await.ok();
        let root = Want::existing("").access(AccessMask::READ_DATA);
        let root = Want { options: CreateOptions::DIRECTORY_FILE, ..root };
        let listed = names(&mut peer, &mount, &posix(root.clone(), 0), LEVEL).await;
        let dir = 0o755;
        let mut expected: Vec<(String, u32)> =
            ["a", "A", "a:b", "a*?<>|\"", "end.", "end ", "new\nline"]
                .map(|name| (name.to_owned(), 0o644))
                .to_vec();
        expected.push((String::from("d"), dir));
        expected.push((String::from("d\\z"), 0o644));
        expected.sort();
        assert_eq!(listed, expected);
        // Windows clients cannot use these characters, so they see characters of the private-use
        // area instead.
        let listed = names(&mut peer, &mount, &root, 37).await;
        assert!(listed.iter().any(|(name, _)| name == "a\u{F022}b"), "{listed:?}");
        assert!(listed.iter().any(|(name, _)| name == "end\u{F029}"), "{listed:?}");
        peer.create(&mount, &Want::existing("a\u{F022}b")).await.ok();
        // For Windows clients a colon separates a file from its stream, so they do not find the
        // file "a:b".
        peer.create(&mount, &Want::existing("a:b")).await.expect(Status::OBJECT_NAME_NOT_FOUND);
    });
}

#[test]
fn level_100_says_what_stat_says() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &offer()).await;
        world.file("f", b"content");
        std::fs::hard_link(world.path("f"), world.path("g")).unwrap();
        std::fs::set_permissions(world.path("f"), PermissionsExt::from_mode(0o4751)).unwrap();
        std::os::unix::fs::symlink("f", world.path("link")).unwrap();
        let looks = AccessMask::READ_ATTRIBUTES;
        let file = peer.open_file(&mount, &posix(Want::existing("f").access(looks), 0)).await;
        let meta = std::fs::metadata(world.path("f")).unwrap();
        let found = info(&mut peer, &mount, file).await;
        assert_eq!((found.mode, found.links, found.end_of_file), (0o4751, 2, 7));
        assert_eq!((found.inode, found.reparse_tag), (meta.ino(), 0));
        assert_eq!(found.owner, Sid::unix_user(meta.uid()));
        assert_eq!(found.group, Sid::unix_group(meta.gid()));
        assert_eq!(found.allocation_size, meta.blocks() * 512);

        let link = Want::existing("link").access(looks).options(CreateOptions::OPEN_REPARSE_POINT);
        let link = peer.open_file(&mount, &posix(link, 0)).await;
        let found = info(&mut peer, &mount, link).await;
        assert_eq!((found.mode >> 12, found.reparse_tag), (2, 0xA000_000C));

        let reply = peer.on(&mount, query_info_draft(file, InfoType::FILESYSTEM, LEVEL, 0)).await;
        reply.ok();
        let data = query_info::Response::parse(&reply.message).unwrap().output;
        assert_eq!(data.len(), 56);
        let found = FsPosixInformation::parse(data).unwrap();
        assert!(found.block_size >= 512 && found.total_blocks >= found.free_blocks);
        assert!(found.free_blocks >= found.available_blocks);
        assert!(found.total_inodes >= found.free_inodes);

        let plain = peer.open_file(&mount, &Want::existing("f").access(looks)).await;
        for info_type in [InfoType::FILE, InfoType::FILESYSTEM] {
            let reply = peer.on(&mount, query_info_draft(plain, info_type, LEVEL, 0)).await;
            reply.expect(Status::INVALID_INFO_CLASS);
        }
    });
}

#[test]
fn a_name_goes_when_it_is_unlinked_and_the_file_when_it_is_closed() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &offer()).await;
        world.file("f", b"content");
        let reader = peer.open_file(&mount, &posix(Want::existing("f"), 0)).await;
        let delete = Want::existing("f")
            .access(AccessMask::DELETE)
            .options(CreateOptions::DELETE_ON_CLOSE | CreateOptions::OPEN_REPARSE_POINT);
        let other = peer.open_file(&mount, &posix(delete.clone(), 0)).await;
        assert!(world.path("f").exists());
        peer.close(&mount, other).await;
        assert!(!world.path("f").exists(), "although it is open");
        assert_eq!(peer.read(&mount, reader, 0, 100).await, b"content");
        assert_eq!(info(&mut peer, &mount, reader).await.links, 0);
        // A POSIX client deleted the file, which another client still has open. The name is free at
        // once, and the new file stays.
        let new = Want::file("f").disposition(CreateDisposition::CREATE);
        let new = peer.open_file(&mount, &posix(new, 0o644)).await;
        peer.close(&mount, reader).await;
        assert!(world.path("f").exists());
        peer.close(&mount, new).await;

        // Without the POSIX extensions, a deleted file keeps its name until its last close.
        let reader = peer.open_file(&mount, &Want::existing("f")).await;
        let other = peer.open_file(&mount, &delete).await;
        peer.close(&mount, other).await;
        assert!(world.path("f").exists());
        peer.close(&mount, reader).await;
        assert!(!world.path("f").exists());
    });
}

/// A name that a Windows handle deletes goes with that handle, when all others are POSIX clients'.
#[test]
fn a_posix_client_does_not_keep_a_deleted_name() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &offer()).await;
        let disposition = |file| set_draft(FileInfoClass::DISPOSITION, file, &[1]);
        for is_posix in [true, false] {
            world.file("f", b"content");
            let windows = peer.open_file(&mount, &Want::existing("f")).await;
            let want = Want::existing("f");
            let other = if is_posix { posix(want, 0) } else { want };
            let other = peer.open_file(&mount, &other).await;
            peer.on(&mount, disposition(windows)).await.ok();
            peer.on(&mount, disposition(other)).await.ok();
            peer.close(&mount, windows).await;
            assert_eq!(world.path("f").exists(), !is_posix);
            peer.close(&mount, other).await;
            assert!(!world.path("f").exists());
        }
    });
}

/// FILE_ATTRIBUTE_READONLY is one of Windows: it stops no POSIX client that deletes.
#[test]
fn a_read_only_file_is_deleted() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &offer()).await;
        let read_only = [vec![0; 32], vec![1, 0, 0, 0, 0, 0, 0, 0]].concat();
        let access = AccessMask::DELETE | AccessMask::WRITE_ATTRIBUTES;
        for on_close in [false, true] {
            world.file("f", b"content");
            let file = peer.open_file(&mount, &Want::existing("f")).await;
            peer.on(&mount, set_draft(FileInfoClass::BASIC, file, &read_only)).await.ok();
            let disposition = |file| set_draft(FileInfoClass::DISPOSITION, file, &[1]);
            peer.on(&mount, disposition(file)).await.expect(Status::CANNOT_DELETE);
            peer.close(&mount, file).await;
            let want = Want::existing("f").access(access);
            if on_close {
                let want = want.options(CreateOptions::DELETE_ON_CLOSE);
                peer.create(&mount, &want).await.expect(Status::CANNOT_DELETE);
                let file = peer.open_file(&mount, &posix(want, 0)).await;
                peer.close(&mount, file).await;
            } else {
                let file = peer.open_file(&mount, &posix(want, 0)).await;
                peer.on(&mount, disposition(file)).await.ok();
                peer.close(&mount, file).await;
            }
            assert!(!world.path("f").exists(), "{on_close}");
        }
    });
}

/// The create context has four bytes.
#[test]
fn a_create_context_of_another_length_is_refused() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &offer()).await;
        for length in [0, 3] {
            let mut want = posix(Want::file("f"), 0o600);
            want.contexts[12] = length;
            peer.create(&mount, &want).await.expect(Status::INVALID_PARAMETER);
        }
    });
}

/// Nothing above the share's root is told, and a link that a client made is one.
#[test]
fn a_listing_tells_of_links_and_of_nothing_above() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &offer()).await;
        std::fs::create_dir(world.path("d")).unwrap();
        std::os::unix::fs::symlink("f", world.path("link")).unwrap();
        let modes = names(&mut peer, &mount, &posix(Want::directory(""), 0), LEVEL).await;
        assert!(modes.iter().any(|(name, mode)| name == "link" && mode >> 12 == 2), "{modes:?}");
        for (folder, is_root) in [("", true), ("d", false)] {
            let dir = peer.open_file(&mount, &posix(Want::directory(folder), 0)).await;
            let draft = list_draft(dir, FileInfoClass(LEVEL), QueryDirectoryFlags::EMPTY, "*");
            let reply = peer.on(&mount, draft).await;
            let data = query_directory::Response::parse(&reply.message).unwrap().output;
            let mut entries = DirectoryEntries::new(data, FileInfoClass(LEVEL)).unwrap();
            let above = entries.find_map(|entry| entry.ok().filter(|entry| entry.name.is("..")));
            let above = above.unwrap().posix.unwrap();
            let null = above.owner == Sid::NULL && above.group == Sid::NULL;
            assert_eq!(null && above.inode == 0 && above.device == 0, is_root, "{above:?}");
            assert_eq!(above.inode == 0, is_root);
            peer.close(&mount, dir).await;
        }
        // In the answer to CREATE the mode includes the file type (1 means directory); in class 100
        // it does not.
        let reply = peer.create(&mount, &posix(Want::directory("d"), 0)).await;
        assert_eq!(answer(&reply).unwrap().2 >> 12, 1);
    });
}

/// FILE_DISPOSITION_POSIX_SEMANTICS asks for the same without the extensions,
/// MS-FSA 2.1.5.15.4.
#[test]
fn posix_semantics_can_be_asked_for() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        world.file("f", b"content");
        let reader = peer.open_file(&mount, &Want::existing("f")).await;
        let other = peer.open_file(&mount, &Want::existing("f")).await;
        let disposition = set_draft(FileInfoClass(64), other, &[3, 0, 0, 0]);
        peer.on(&mount, disposition).await.ok();
        peer.create(&mount, &Want::existing("f")).await.expect(Status::DELETE_PENDING);
        peer.close(&mount, other).await;
        assert!(!world.path("f").exists());
        assert_eq!(peer.read(&mount, reader, 0, 100).await, b"content");
    });
}

#[test]
fn renames_replace_what_is_open_and_move_what_is_below() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &offer()).await;
        world.file("old", b"old");
        world.file("new", b"new");
        let reader = peer.open_file(&mount, &posix(Want::existing("old"), 0)).await;
        let file = peer.open_file(&mount, &posix(Want::existing("new"), 0)).await;
        peer.on(&mount, rename_draft(FileInfoClass::RENAME, file, "OLD", false)).await.ok();
        assert_eq!(world.content("old"), b"old", "case counts");
        peer.on(&mount, rename_draft(FileInfoClass::RENAME, file, "old", true)).await.ok();
        assert_eq!(world.content("old"), b"new");
        assert_eq!(peer.read(&mount, reader, 0, 100).await, b"old");
        peer.close(&mount, reader).await;
        peer.close(&mount, file).await;
        assert_eq!(world.content("old"), b"new");

        for dir in ["d", "e"] {
            std::fs::create_dir(world.path(dir)).unwrap();
        }
        world.file("d/f", b"below");
        let below = peer.open_file(&mount, &posix(Want::existing("d/f"), 0)).await;
        let dir = peer.open_file(&mount, &posix(Want::directory("d"), 0)).await;
        peer.on(&mount, rename_draft(FileInfoClass::RENAME, dir, "e", true)).await.ok();
        peer.on(&mount, rename_draft(FileInfoClass::RENAME, below, "e/a:b", false)).await.ok();
        assert_eq!(world.content("e/a:b"), b"below");
        peer.close(&mount, dir).await;

        // Without the POSIX extensions, an open file below the directory makes its rename fail.
        let dir = peer.open_file(&mount, &Want::directory("e")).await;
        peer.on(&mount, rename_draft(FileInfoClass::RENAME, dir, "d", false))
            .await
            .expect(Status::ACCESS_DENIED);
    });
}

/// cifs.ko took its number of links from what it had cached: xfstests' generic/035.
#[test]
fn who_caches_a_replaced_file_hears_of_it() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &offer()).await;
        world.file("old", b"old");
        world.file("new", b"new");
        let want = posix(Want::existing("old"), 0);
        let draft = want.draft().patch(64 + 3, &[OplockLevel::II.0]);
        let reply = peer.on(&mount, draft).await;
        let opened = create::Response::parse(&reply.ok().message).unwrap();
        assert_eq!(opened.oplock_level, OplockLevel::II);
        let reader = opened.file_id;

        let file = peer.open_file(&mount, &posix(Want::existing("new"), 0)).await;
        let draft = rename_draft(FileInfoClass::RENAME, file, "old", true);
        peer.send(vec![mount.put(draft)], mount.via()).await;
        // The rename does not wait for the acknowledgment of the break, so the break may arrive
        // before or after its reply.
        let mut replies = [peer.reply().await, peer.reply().await];
        replies.sort_by_key(|reply| reply.header.command != Command::OPLOCK_BREAK);
        let [told, renamed] = replies;
        renamed.ok();
        let Ok(Notification::Oplock(broken)) = Notification::parse(&told.message) else {
            panic!("{told:?}");
        };
        assert_eq!((broken.file_id, broken.oplock_level), (reader, OplockLevel::NONE));
        assert_eq!(info(&mut peer, &mount, reader).await.links, 0);
        assert_eq!(world.content("old"), b"new");
    });
}

#[test]
fn modes_are_set_by_their_sid() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &offer()).await;
        let file = peer.open_file(&mount, &posix(Want::file("f"), 0o644)).await;
        let chmod = |mode: u32, kind: fn(AceFlags, AccessMask, Sid) -> Ace| {
            let sid = Sid::new(5, &[88, 3, mode]).unwrap();
            let descriptor = SecurityDescriptor {
                control: SdControl::SELF_RELATIVE | SdControl::DACL_PRESENT,
                rm_control: 0,
                owner: None,
                group: None,
                sacl: None,
                dacl: Some(Acl::new(vec![kind(AceFlags::EMPTY, AccessMask::EMPTY, sid)])),
            };
            let mut bytes = Vec::new();
            descriptor.encode(&mut bytes).unwrap();
            bytes
        };
        let mode = || std::fs::metadata(world.path("f")).unwrap().mode() & 0o7777;
        // Linux sends the mode as a SID in an access control entry: newer versions in one that
        // allows, versions up to 6.1 in one that denies.
        let draft = |bytes: &[u8]| set_info_draft(file, InfoType::SECURITY, 0, 4, bytes);
        peer.on(&mount, draft(&chmod(0o100_751, Ace::allow))).await.ok();
        assert_eq!(mode(), 0o751);
        peer.on(&mount, draft(&chmod(0o6600, Ace::deny))).await.ok();
        assert_eq!(mode(), 0o600);
        assert_eq!(info(&mut peer, &mount, file).await.mode, 0o600);
        let weak = Want::existing("f").access(AccessMask::READ_ATTRIBUTES);
        let weak = peer.open_file(&mount, &posix(weak, 0)).await;
        let refused = set_info_draft(weak, InfoType::SECURITY, 0, 4, &chmod(0o777, Ace::allow));
        peer.on(&mount, refused).await.expect(Status::ACCESS_DENIED);
        assert_eq!(mode(), 0o600);

        // The client sets the group that the file already has, by a SID of the NFS style. This must
        // succeed.
        let gid = std::fs::metadata(world.path("f")).unwrap().gid();
        let descriptor = SecurityDescriptor {
            control: SdControl::SELF_RELATIVE,
            rm_control: 0,
            owner: None,
            group: Sid::new(5, &[88, 2, gid]),
            sacl: None,
            dacl: None,
        };
        let mut bytes = Vec::new();
        descriptor.encode(&mut bytes).unwrap();
        peer.on(&mount, set_info_draft(file, InfoType::SECURITY, 0, 2, &bytes)).await.ok();
        assert_eq!(std::fs::metadata(world.path("f")).unwrap().gid(), gid);
    });
}
