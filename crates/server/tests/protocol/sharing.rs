//! Share modes and deletion: MS-FSA 2.1.5.1.2.2, 2.1.5.5.

use std::sync::Arc;

use crate::client::files::set_draft;
use crate::client::world::over;
use crate::client::*;
use frevo_posix::{NtAcls, PosixOptions, PosixVfs};
use frevo_store::Vfs;
use frevo_wire::command::create::{CreateDisposition, CreateOptions, ShareAccess};
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::fscc::FileInfoClass;

const READ: u32 = 1;
const WRITE: u32 = 2;
const DELETE: u32 = 4;

/// Rights for a set of the three.
fn access(bits: u32) -> AccessMask {
    let mut access = AccessMask::READ_ATTRIBUTES;
    for (bit, right) in [
        (READ, AccessMask::READ_DATA),
        (WRITE, AccessMask::WRITE_DATA),
        (DELETE, AccessMask::DELETE),
    ] {
        if bits & bit != 0 {
            access |= right;
        }
    }
    access
}

/// All rights and share modes of two handles, in both orders: an Open for
/// attributes alone never stands in the way.
#[test]
fn the_matrix() {
    in_world(async |world| {
        world.file("f", b"");
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (mut other, theirs) = world.session("bob", &Offer::default()).await;
        let mut refused = 0;
        for first in 0..8_u32 {
            for first_shares in 0..8_u32 {
                let want = Want::existing("f").access(access(first));
                let want = want.sharing(ShareAccess(first_shares));
                let file = peer.open_file(&mount, &want).await;
                for second in 0..8_u32 {
                    for second_shares in 0..8_u32 {
                        let fits = first == 0
                            || second == 0
                            || (second & !first_shares == 0 && first & !second_shares == 0);
                        let want = Want::existing("f").access(access(second));
                        let want = want.sharing(ShareAccess(second_shares));
                        let reply = other.create(&theirs, &want).await;
                        let says = format!("{first}/{first_shares} {second}/{second_shares}");
                        if fits {
                            assert_eq!(reply.status(), Status::SUCCESS, "{says}");
                            other.close(&theirs, files::file_id(&reply)).await;
                        } else {
                            assert_eq!(reply.status(), Status::SHARING_VIOLATION, "{says}");
                            refused += 1;
                        }
                    }
                }
                peer.close(&mount, file).await;
            }
        }
        assert!(refused > 1000, "{refused}");
    });
}

#[test]
fn overwriting_needs_more_than_the_handle_keeps() {
    in_world(async |world| {
        world.file("f", b"content");
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        // The first Open reads the file and shares only reading, so overwriting is refused.
        let want = Want::existing("f").access(access(READ)).sharing(ShareAccess::READ);
        let file = peer.open_file(&mount, &want).await;
        for disposition in [CreateDisposition::OVERWRITE, CreateDisposition::SUPERSEDE] {
            let want = want.clone().disposition(disposition);
            peer.create(&mount, &want).await.expect(Status::SHARING_VIOLATION);
        }
        assert_eq!(peer.read(&mount, file, 0, 100).await, b"content");
    });
}

fn delete_on_close(name: &str) -> Want {
    Want::file(name).options(CreateOptions::DELETE_ON_CLOSE)
}

#[test]
fn delete_on_close_waits_for_the_last_handle() {
    in_world(async |world| {
        world.file("f", b"content");
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let one = peer.open_file(&mount, &delete_on_close("f")).await;
        let two = peer.open_file(&mount, &Want::existing("f")).await;
        // Closing an ordinary handle does not delete the file. Closing the DELETE_ON_CLOSE handle
        // makes the deletion pending, so the file cannot be opened any more.
        let three = peer.open_file(&mount, &Want::existing("f")).await;
        peer.close(&mount, three).await;
        peer.close(&mount, one).await;
        assert!(world.path("f").exists());
        for want in [Want::existing("f"), Want::file("f"), delete_on_close("f")] {
            peer.create(&mount, &want).await.expect(Status::DELETE_PENDING);
        }
        assert_eq!(peer.read(&mount, two, 0, 100).await, b"content");
        peer.close(&mount, two).await;
        assert!(!world.path("f").exists());
        // The file is deleted, so a new one can have its name.
        let want = Want::file("f").disposition(CreateDisposition::CREATE);
        peer.open_file(&mount, &want).await;
    });
}

/// MS-FSA 2.1.5.1, phase 6: a component of the path that is about to be deleted is not entered.
#[test]
fn nothing_is_made_in_a_directory_that_is_being_deleted() {
    let dir = tempfile::tempdir().unwrap();
    // With and without security descriptors.
    let share = |nt_acls| -> Arc<dyn Vfs> {
        let options = PosixOptions { nt_acls, ..PosixOptions::default() };
        Arc::new(PosixVfs::open_root(dir.path(), options).unwrap())
    };
    let test = async |world: &World| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let folder = peer.open_file(&mount, &Want::directory("d")).await;
        let delete = |pending: u8| set_draft(FileInfoClass::DISPOSITION, folder, &[pending]);
        peer.on(&mount, delete(1)).await.ok();
        let made = [Want::file("d\\f"), Want::directory("d\\g")];
        for want in &made {
            peer.create(&mount, want).await.expect(Status::DELETE_PENDING);
        }
        // It is not deleted after all, so files can be made in it again.
        peer.on(&mount, delete(0)).await.ok();
        for want in &made {
            let file = peer.open_file(&mount, want).await;
            peer.close(&mount, file).await;
        }
        peer.on(&mount, delete(1)).await.expect(Status::DIRECTORY_NOT_EMPTY);
        std::fs::remove_dir_all(dir.path().join("d")).unwrap();
    };
    over(&share(NtAcls::Xattr), test);
    over(&share(NtAcls::Off), test);
}

/// Nothing is left of a new file that would have to be deleted and must not be.
#[test]
fn a_readonly_file_that_deletes_itself_is_not_made() {
    in_world(async |world| {
        world.file("there", b"content");
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for disposition in [
            CreateDisposition::CREATE,
            CreateDisposition::OPEN_IF,
            CreateDisposition::OVERWRITE_IF,
            CreateDisposition::SUPERSEDE,
        ] {
            let want = Want {
                attributes: FileAttributes::READONLY,
                ..delete_on_close("new").disposition(disposition)
            };
            peer.create(&mount, &want).await.expect(Status::CANNOT_DELETE);
            assert!(!world.path("new").exists(), "{disposition:?}");
        }
        let want = Want { attributes: FileAttributes::READONLY, ..delete_on_close("there") };
        let collision = want.clone().disposition(CreateDisposition::CREATE);
        peer.create(&mount, &collision).await.expect(Status::OBJECT_NAME_COLLISION);
        // A new READONLY file could not be deleted on close. OPEN_IF opens the existing file, for
        // which READONLY in the request has no meaning, so it succeeds.
        let open_if = want.disposition(CreateDisposition::OPEN_IF);
        peer.open_file(&mount, &open_if).await;
    });
}

#[test]
fn what_ends_a_handle_deletes() {
    in_world(async |world| {
        for end in [Some(Command::LOGOFF), Some(Command::TREE_DISCONNECT), None] {
            let (mut peer, mount) = world.session("ann", &Offer::default()).await;
            peer.open_file(&mount, &delete_on_close("f")).await;
            assert!(world.path("f").exists());
            match end {
                Some(command) => _ = peer.on(&mount, Draft::empty(command)).await,
                None => {
                    drop(peer);
                    let (mut other, theirs) = world.session("bob", &Offer::default()).await;
                    other.expect_alive_in(&theirs).await;
                }
            }
            assert!(!world.path("f").exists(), "{end:?}");
        }
    });
}

#[test]
fn directories_that_fill_up_stay() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let options = CreateOptions::DIRECTORY_FILE | CreateOptions::DELETE_ON_CLOSE;
        let dir = peer.open_file(&mount, &Want::file("dir").options(options)).await;
        world.file("dir/f", b"");
        peer.close(&mount, dir).await;
        assert!(world.path("dir/f").exists());
        std::fs::remove_file(world.path("dir/f")).unwrap();
        let dir = peer.open_file(&mount, &Want::file("dir").options(options)).await;
        peer.close(&mount, dir).await;
        assert!(!world.path("dir").exists());
    });
}

#[test]
fn the_root_and_read_only_files_are_not_deleted() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let options = CreateOptions::DIRECTORY_FILE | CreateOptions::DELETE_ON_CLOSE;
        let root = Want::existing("").options(options);
        peer.create(&mount, &root).await.expect(Status::ACCESS_DENIED);
        let mut want = Want::file("f");
        want.attributes = FileAttributes::READONLY;
        let file = peer.open_file(&mount, &want).await;
        peer.close(&mount, file).await;
        peer.create(&mount, &delete_on_close("f").access(AccessMask::DELETE))
            .await
            .expect(Status::CANNOT_DELETE);
        assert!(world.path("f").exists());
    });
}

/// MS-FSA 2.1.1.5 Open.Link: of a file with two names, the name by which it was opened is
/// removed or moved, even while the other name is open.
#[test]
fn a_handle_means_the_name_that_it_was_opened_by() {
    in_world(async |world| {
        world.file("first", b"data");
        for name in ["second", "third"] {
            std::fs::hard_link(world.path("first"), world.path(name)).unwrap();
        }
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let first = peer.open_file(&mount, &Want::existing("first")).await;
        let gone = Want::existing("second").options(CreateOptions::DELETE_ON_CLOSE);
        let second = peer.open_file(&mount, &gone).await;
        peer.close(&mount, second).await;
        peer.close(&mount, first).await;
        assert!(world.path("first").exists(), "nobody asked for this one to go");
        assert!(!world.path("second").exists());
        let first = peer.open_file(&mount, &Want::existing("first")).await;
        let third = peer.open_file(&mount, &Want::existing("third")).await;
        peer.on(&mount, files::rename_draft(FileInfoClass::RENAME, third, "moved", false))
            .await
            .ok();
        assert!(world.path("first").exists() && world.path("moved").exists());
        assert!(!world.path("third").exists());
        peer.close(&mount, third).await;
        peer.close(&mount, first).await;
    });
}
