//! CREATE, READ, WRITE, FLUSH, CLOSE on files: MS-SMB2 3.3.5.9 to 3.3.5.13.

use crate::client::files::{close_draft, data, flush_draft, read_draft, write_draft};
use crate::client::*;
use frevo_wire::command::close::{self, CloseFlags};
use frevo_wire::command::create::{self, CreateAction, CreateDisposition, CreateOptions};
use frevo_wire::create_context::{CreateContext, CreateContexts, ResponseContext};
use frevo_wire::dtyp::{AccessMask, FileAttributes};

#[test]
fn dispositions_do_what_they_say() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        type Outcome = Result<CreateAction, Status>;
        let absent: Outcome = Err(Status::OBJECT_NAME_NOT_FOUND);
        for (disposition, there, not_there) in [
            (CreateDisposition::SUPERSEDE, Ok(CreateAction::SUPERSEDED), Ok(CreateAction::CREATED)),
            (CreateDisposition::OPEN, Ok(CreateAction::OPENED), absent),
            (
                CreateDisposition::CREATE,
                Err(Status::OBJECT_NAME_COLLISION),
                Ok(CreateAction::CREATED),
            ),
            (CreateDisposition::OPEN_IF, Ok(CreateAction::OPENED), Ok(CreateAction::CREATED)),
            (CreateDisposition::OVERWRITE, Ok(CreateAction::OVERWRITTEN), absent),
            (
                CreateDisposition::OVERWRITE_IF,
                Ok(CreateAction::OVERWRITTEN),
                Ok(CreateAction::CREATED),
            ),
        ] {
            for (exists, expected) in [(true, there), (false, not_there)] {
                let _ = std::fs::remove_file(world.path("f"));
                if exists {
                    world.file("f", b"content");
                }
                let want = Want::file("f").disposition(disposition);
                let reply = peer.create(&mount, &want).await;
                let outcome = match reply.status() {
                    Status::SUCCESS => {
                        let response = create::Response::parse(&reply.message).unwrap();
                        let kept = response.create_action == CreateAction::OPENED;
                        assert_eq!(response.end_of_file, if kept { 7 } else { 0 });
                        assert_eq!(world.content("f").len() as u64, response.end_of_file);
                        peer.close(&mount, response.file_id).await;
                        Ok(response.create_action)
                    }
                    status => Err(status),
                };
                assert_eq!(outcome, expected, "{disposition} exists: {exists}");
            }
        }
    });
}

/// Replies that are signed beside each other, with one among them that is not: each has its
/// own signature, which the peer verifies.
#[test]
fn reads_that_come_at_once_are_signed_each() {
    in_world(async |world| {
        let content: Vec<u8> = (0..500_000_u32).map(|at| (at / 97) as u8).collect();
        world.file("f", &content);
        for dialect in [Dialect::SMB_3_0, Dialect::SMB_3_1_1, Dialect::SMB_2_1] {
            let (mut peer, mount) = world.session("ann", &Offer::only(dialect)).await;
            let file = peer.open_file(&mount, &Want::existing("f")).await;
            peer.expect_alive_in(&mount).await;
            let mut wire = Vec::new();
            let mut asked = Vec::new();
            for at in 0..11_u64 {
                // The READs have four lengths. Long replies are protected on other threads, short
                // ones on the core thread.
                let (offset, length) = (at * 31_000, [60_000, 8_192, 100, 33_333][at as usize % 4]);
                let draft = if at == 5 { Draft::echo() } else { read_draft(file, offset, length) };
                let mut draft = mount.put(draft);
                peer.stamp(&mut draft);
                let frame = draft::pack(&[draft.clone()], mount.via());
                wire.extend_from_slice(&(frame.len() as u32).to_be_bytes());
                wire.extend_from_slice(&frame);
                asked.push((draft.header.message_id, offset as usize, length as usize));
            }
            peer.send_bytes(&wire).await;
            let ids: Vec<u64> = asked.iter().map(|(id, ..)| *id).collect();
            let replies = peer.collect(&ids).await;
            for (at, (reply, (_, offset, length))) in replies.iter().zip(asked).enumerate() {
                assert!(reply.ok().is_signed(), "{dialect:?}");
                if at != 5 {
                    assert_eq!(data(reply), &content[offset..offset + length]);
                }
            }
            peer.close(&mount, file).await;
        }
    });
}

#[test]
fn parameters_that_make_no_sense() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let draft = Want::file("f").draft();
        // The fields' offsets are 68 ImpersonationLevel, 88 DesiredAccess, 92 FileAttributes, 96
        // ShareAccess, 100 CreateDisposition, 104 CreateOptions. Each case sets one field to an
        // invalid value.
        for (at, value, status) in [
            (68, 4, Status::BAD_IMPERSONATION_LEVEL),
            (68, u32::MAX, Status::BAD_IMPERSONATION_LEVEL),
            (88, 0, Status::ACCESS_DENIED),
            (88, 0x0400_0000, Status::ACCESS_DENIED),
            (88, 0x0000_8000, Status::ACCESS_DENIED),
            (88, AccessMask::ACCESS_SYSTEM_SECURITY.0, Status::PRIVILEGE_NOT_HELD),
            (92, 0x8000_0000, Status::INVALID_PARAMETER),
            (92, 0x0000_0008, Status::INVALID_PARAMETER),
            (96, 8, Status::INVALID_PARAMETER),
            (96, u32::MAX, Status::INVALID_PARAMETER),
            (100, 6, Status::INVALID_PARAMETER),
            (100, u32::MAX, Status::INVALID_PARAMETER),
            (104, 0x41, Status::INVALID_PARAMETER),
            (104, 0x8000_0000, Status::INVALID_PARAMETER),
            (104, CreateOptions::OPEN_BY_FILE_ID.0, Status::NOT_SUPPORTED),
            (104, CreateOptions::RESERVE_OPFILTER.0, Status::NOT_SUPPORTED),
        ] {
            let draft = draft.clone().patch(at, &value.to_le_bytes());
            let reply = peer.on(&mount, draft).await;
            assert_eq!(reply.status(), status, "{value:#x} at {at}");
        }
        // DELETE_ON_CLOSE without the right DELETE is refused and makes no file.
        let want = Want::file("f").access(AccessMask::READ_DATA);
        let want = want.options(CreateOptions::DELETE_ON_CLOSE);
        peer.create(&mount, &want).await.expect(Status::INVALID_PARAMETER);
        assert!(!world.path("f").exists());
        // MS-FSA 2.1.5.1: the stream type is wrong too, but the access is checked before the name.
        let want = Want { name: Want::file("f::$BAD").name, ..want };
        peer.create(&mount, &want).await.expect(Status::INVALID_PARAMETER);
        // The wish to encrypt a file changes nothing in the order of the checks: a missing folder in
        // the path is reported. Tests of attributes show that the wish is taken and not kept.
        let attributes = FileAttributes::ENCRYPTED;
        for (name, status) in [("none\\f", Status::OBJECT_PATH_NOT_FOUND), ("f", Status::SUCCESS)] {
            let want = Want { attributes, ..Want::file(name) };
            assert_eq!(peer.create(&mount, &want).await.status(), status, "{name}");
        }
    });
}

#[test]
fn directories_and_files_are_told_apart() {
    in_world(async |world| {
        world.file("file", b"x");
        std::fs::create_dir(world.path("dir")).unwrap();
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (directory, file) = (CreateOptions::DIRECTORY_FILE, CreateOptions::NON_DIRECTORY_FILE);
        for (name, options, status) in [
            ("file", directory, Status::NOT_A_DIRECTORY),
            ("dir", file, Status::FILE_IS_A_DIRECTORY),
            ("dir", directory, Status::SUCCESS),
            ("file", file, Status::SUCCESS),
            ("dir", CreateOptions::EMPTY, Status::SUCCESS),
            ("", CreateOptions::EMPTY, Status::SUCCESS),
            ("", file, Status::FILE_IS_A_DIRECTORY),
            ("file\\below", CreateOptions::EMPTY, Status::OBJECT_PATH_NOT_FOUND),
            ("absent\\below", CreateOptions::EMPTY, Status::OBJECT_PATH_NOT_FOUND),
            ("dir\\absent", CreateOptions::EMPTY, Status::OBJECT_NAME_NOT_FOUND),
            ("dir\\", directory, Status::SUCCESS),
            ("dir\\", file, Status::OBJECT_NAME_INVALID),
        ] {
            let reply = peer.create(&mount, &Want::existing(name).options(options)).await;
            assert_eq!(reply.status(), status, "{name:?} {options:?}");
        }
        let dir = peer.open_file(&mount, &Want::directory("dir")).await;
        peer.on(&mount, read_draft(dir, 0, 1)).await.expect(Status::INVALID_DEVICE_REQUEST);
        peer.on(&mount, write_draft(dir, 0, b"x")).await.expect(Status::INVALID_DEVICE_REQUEST);
    });
}

#[test]
fn rights_that_were_not_granted() {
    in_world(async |world| {
        world.file("f", b"content");
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let attributes = AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
        for (access, reads, writes, flushes) in [
            (attributes, false, false, false),
            (AccessMask::READ_DATA, true, false, false),
            (AccessMask::EXECUTE, true, false, false),
            (AccessMask::WRITE_DATA, false, true, true),
            (AccessMask::GENERIC_READ, true, false, false),
            (AccessMask::GENERIC_WRITE, false, true, true),
            (AccessMask::GENERIC_ALL, true, true, true),
            (AccessMask::MAXIMUM_ALLOWED, true, true, true),
        ] {
            let file = peer.open_file(&mount, &Want::existing("f").access(access)).await;
            for (draft, may) in [
                (read_draft(file, 0, 1), reads),
                (write_draft(file, 0, b"c"), writes),
                (flush_draft(file), flushes),
            ] {
                let expected = if may { Status::SUCCESS } else { Status::ACCESS_DENIED };
                let reply = peer.on(&mount, draft).await;
                assert_eq!(reply.status(), expected, "{access:?} {}", reply.header.command);
            }
            peer.close(&mount, file).await;
        }
        // An Open with only APPEND_DATA can write at the end of the file, but cannot overwrite
        // data.
        let file =
            peer.open_file(&mount, &Want::existing("f").access(AccessMask::APPEND_DATA)).await;
        peer.on(&mount, write_draft(file, 0, b"!")).await.expect(Status::ACCESS_DENIED);
        peer.on(&mount, write_draft(file, 6, b"!")).await.expect(Status::ACCESS_DENIED);
        peer.write(&mount, file, 7, b"!").await;
        peer.write(&mount, file, 8, b"!").await;
        assert_eq!(world.content("f"), b"content!!");
    });
}

#[test]
fn a_read_only_share_stays_as_it_is() {
    in_world(async |world| {
        world.file("f", b"content");
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let mount = peer.mount(&mount.logon, "readonly").await;
        for access in [AccessMask::WRITE_DATA, AccessMask::DELETE, AccessMask::GENERIC_ALL] {
            let want = Want::existing("f").access(access);
            peer.create(&mount, &want).await.expect(Status::ACCESS_DENIED);
        }
        let read = AccessMask::GENERIC_READ;
        for disposition in [0, 2, 4, 5] {
            for name in ["f", "new"] {
                let want =
                    Want::file(name).access(read).disposition(CreateDisposition(disposition));
                let reply = peer.create(&mount, &want).await;
                assert_ne!(reply.status(), Status::SUCCESS, "{name} {disposition}");
            }
        }
        let file =
            peer.open_file(&mount, &Want::existing("f").access(AccessMask::MAXIMUM_ALLOWED)).await;
        assert_eq!(peer.read(&mount, file, 0, 100).await, b"content");
        peer.on(&mount, write_draft(file, 0, b"x")).await.expect(Status::ACCESS_DENIED);
        assert_eq!(world.content("f"), b"content");
        assert!(!world.path("new").exists());
    });
}

/// Offset, length, MinimumCount against a file of 100 bytes.
#[test]
fn reads_at_the_edges() {
    in_world(async |world| {
        let content: Vec<u8> = (0..100).collect();
        world.file("f", &content);
        world.file("empty", b"");
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::existing("f")).await;
        for (offset, length, minimum, expected) in [
            (0, 100, 0, Some(100)),
            (0, 100, 100, Some(100)),
            (0, 200, 100, Some(100)),
            (0, 200, 101, None),
            (50, 100, 0, Some(50)),
            (50, 100, 50, Some(50)),
            (50, 100, 51, None),
            (99, 1, 1, Some(1)),
            (99, 2, 2, None),
            (100, 1, 0, None),
            (101, 1, 0, None),
            (1 << 40, 1, 0, None),
            // A READ of length 0 succeeds at each offset, unless MinimumCount (the third number) is
            // larger.
            (0, 0, 0, Some(0)),
            (100, 0, 0, Some(0)),
            (5000, 0, 0, Some(0)),
            (0, 0, 1, None),
            (0, 70_000, 0, Some(100)),
        ] {
            let draft = read_draft(file, offset, length).patch(96, &u32::to_le_bytes(minimum));
            let reply = peer.on(&mount, draft).await;
            match expected {
                Some(count) => {
                    let start = usize::try_from(offset).unwrap().min(100);
                    assert_eq!(data(reply.ok()), &content[start..start + count]);
                }
                None => _ = reply.expect(Status::END_OF_FILE),
            }
        }
        let empty = peer.open_file(&mount, &Want::existing("empty")).await;
        peer.on(&mount, read_draft(empty, 0, 1)).await.expect(Status::END_OF_FILE);
        peer.on(&mount, read_draft(empty, 0, 0)).await.ok();
    });
}

#[test]
fn writes_at_the_edges() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        peer.write(&mount, file, 0, b"").await;
        assert_eq!(world.content("f"), b"");
        peer.write(&mount, file, 1000, b"").await;
        assert_eq!(world.content("f"), b"", "writing nothing does not extend");
        peer.write(&mount, file, 3, b"abc").await;
        assert_eq!(world.content("f"), b"\0\0\0abc");
        peer.write(&mount, file, 1, b"xyz").await;
        assert_eq!(world.content("f"), b"\0xyzbc");
        // A negative offset is refused, even without data, and so is data beyond the largest
        // offset.
        for (offset, data) in [(u64::MAX, &b"!"[..]), (1 << 63, b""), ((1 << 63) - 1, b"!")] {
            let draft = write_draft(file, offset, data);
            peer.on(&mount, draft).await.expect(Status::INVALID_PARAMETER);
        }
        peer.write(&mount, file, 6, b"!").await;
        assert_eq!(world.content("f"), b"\0xyzbc!");
        // A WRITE with write-through and a FLUSH must succeed and keep the data.
        let through = write_draft(file, 0, b"!").patch(108, &[1, 0, 0, 0]);
        peer.on(&mount, through).await.ok();
        peer.on(&mount, flush_draft(file)).await.ok();
        assert_eq!(world.content("f"), b"!xyzbc!");
    });
}

#[test]
fn close_tells_what_the_file_has_become() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for asked in [false, true] {
            let file = peer.open_file(&mount, &Want::file("f")).await;
            peer.write(&mount, file, 0, &[1; 5000]).await;
            let draft = close_draft(file).patch(66, &[u8::from(asked), 0]);
            let reply = peer.on(&mount, draft).await;
            let response = close::Response::parse(&reply.ok().message).unwrap();
            if !asked {
                assert_eq!(response, close::Response::default());
                continue;
            }
            assert_eq!(response.flags, CloseFlags::POSTQUERY_ATTRIB);
            assert_eq!(response.end_of_file, 5000);
            assert!(response.allocation_size >= 4096);
            assert!(response.file_attributes.contains(FileAttributes::ARCHIVE));
            assert!(response.last_write_time.0 > 0 && response.creation_time.0 > 0);
        }
    });
}

/// MS-SMB2 3.3.5.9.5, note 333: the file's list decides on the maximal access, not READONLY.
#[test]
fn read_only_takes_nothing_from_the_maximal_access() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let attributes = FileAttributes::READONLY;
        let made = Want { attributes, ..Want::file("f").disposition(CreateDisposition::CREATE) };
        let file = peer.open_file(&mount, &made).await;
        peer.close(&mount, file).await;
        let writes = AccessMask::WRITE_DATA | AccessMask::APPEND_DATA;
        let asked = [CreateContext::QueryMaximalAccess(None)];
        let contexts = CreateContexts::from_requests(&asked).as_bytes().to_vec();
        let access = AccessMask::READ_ATTRIBUTES;
        let want = Want { contexts, access, ..Want::existing("f") };
        let reply = peer.create(&mount, &want).await;
        let response = create::Response::parse(&reply.ok().message).unwrap();
        let told = response.contexts.responses().find_map(|context| match context.unwrap() {
            ResponseContext::MaximalAccess(told) => Some(told),
            _ => None,
        });
        let told = told.unwrap();
        assert_eq!(told.query_status, Status::SUCCESS);
        assert!(told.maximal_access.contains(writes), "{:?}", told.maximal_access);
        // MS-FSA 2.1.5.1.2.1: READONLY makes this CREATE fail, although the maximal access includes
        // the rights.
        let refused = peer.create(&mount, &Want::existing("f").access(writes)).await;
        refused.expect(Status::ACCESS_DENIED);
    });
}

#[test]
fn a_handle_is_closed_once() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        // A FileId is refused if one of its halves is wrong.
        for wrong in [
            FileId { persistent: file.persistent ^ 1, ..file },
            FileId { volatile: file.volatile ^ 1, ..file },
            FileId::default(),
            FileId::ALL_ONES,
        ] {
            peer.on(&mount, close_draft(wrong)).await.expect(Status::FILE_CLOSED);
        }
        peer.close(&mount, file).await;
        peer.on(&mount, close_draft(file)).await.expect(Status::FILE_CLOSED);
        peer.on(&mount, read_draft(file, 0, 1)).await.expect(Status::FILE_CLOSED);
        let again = peer.open_file(&mount, &Want::file("f")).await;
        assert_ne!(again, file, "ids do not come again");
    });
}

#[test]
fn bodies_cut_short_are_invalid() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        for draft in [
            Want::file("g").draft(),
            close_draft(file),
            flush_draft(file),
            read_draft(file, 0, 1),
            write_draft(file, 0, b"data"),
            files::lock_draft(file, &[(0, 1, world::EXCLUSIVE)]),
        ] {
            let whole = draft.body.len();
            for length in 0..whole {
                // StructureSize of READ counts one byte of the buffer that may be missing, so this
                // length is valid.
                let spare = draft.header.command == Command::READ && length == whole - 1;
                if spare {
                    continue;
                }
                let mut draft = draft.clone();
                draft.body.truncate(length);
                let reply = peer.on(&mount, draft).await;
                assert_eq!(
                    reply.status(),
                    Status::INVALID_PARAMETER,
                    "{} of {length} bytes",
                    reply.header.command
                );
            }
            // Each request is refused with a wrong StructureSize.
            for size in [0_u16, 1, 4, 0xFFFF] {
                let draft = draft.clone().patch(64, &size.to_le_bytes());
                peer.on(&mount, draft).await.expect(Status::INVALID_PARAMETER);
            }
        }
        assert_eq!(world.content("f"), b"");
        assert!(!world.path("g").exists());
        peer.close(&mount, file).await;
    });
}

/// MS-FSA 2.1.5.1.1: refused before anything is made.
#[test]
fn what_may_not_be_deleted_is_not_made_to_be_deleted() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let want = Want {
            attributes: FileAttributes::READONLY,
            options: CreateOptions::DELETE_ON_CLOSE,
            ..Want::file("f")
        };
        peer.create(&mount, &want).await.expect(Status::CANNOT_DELETE);
        assert!(!world.path("f").exists());
    });
}
