//! Files with several links, each of which is deleted by itself: MS-FSA 2.1.1.5 Link.IsDeleted,
//! 2.1.5.1 and 2.1.5.5.

use frevo_wire::command::create::CreateDisposition;
use frevo_wire::command::query_info;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::query::FileStandardInformation;

use crate::client::files::{delete_draft, rename_draft};
use crate::client::*;

async fn standard(peer: &mut Peer, mount: &Mount, file: FileId) -> (u32, bool) {
    let reply = peer.on(mount, query_draft(FileInfoClass::STANDARD, file)).await;
    let output = query_info::Response::parse(&reply.ok().message).unwrap().output;
    let standard = FileStandardInformation::parse(output).unwrap();
    (standard.number_of_links, standard.delete_pending)
}

fn linked(world: &World) {
    world.file("one", b"data of both");
    std::fs::hard_link(world.path("one"), world.path("two")).unwrap();
}

#[test]
fn a_deleted_link_goes_with_its_own_last_open() {
    in_world(async |world| {
        linked(world);
        let (mut ann, mine) = world.session("ann", &Offer::default()).await;
        let (mut bob, his) = world.session("bob", &Offer::default()).await;
        let second = bob.open_file(&his, &Want::existing("two")).await;
        let first = ann.open_file(&mine, &Want::existing("one")).await;
        let reader = bob.open_file(&his, &Want::existing("one")).await;
        ann.on(&mine, delete_draft(first)).await.ok();
        assert_eq!(standard(&mut ann, &mine, first).await, (1, true));
        assert_eq!(standard(&mut bob, &his, second).await, (1, false));
        // The link "one" will be deleted, so it cannot be opened any more. The link "two" can.
        bob.create(&his, &Want::existing("one")).await.expect(Status::DELETE_PENDING);
        let made = Want::file("one").disposition(CreateDisposition::CREATE);
        bob.create(&his, &made).await.expect(Status::DELETE_PENDING);
        let third = bob.open_file(&his, &Want::existing("two")).await;
        ann.close(&mine, first).await;
        assert!(world.path("one").exists(), "it has another Open");
        bob.close(&his, reader).await;
        assert!(!world.path("one").exists(), "while the other link is open");
        assert_eq!(standard(&mut bob, &his, second).await, (1, false));
        assert_eq!(bob.read(&his, second, 0, 64).await, b"data of both");
        // The deleted link is gone, so a new file can have its name.
        let new = ann.open_file(&mine, &made).await;
        ann.write(&mine, new, 0, b"new").await;
        ann.close(&mine, new).await;
        for file in [second, third] {
            bob.close(&his, file).await;
        }
        assert_eq!(
            (world.content("one"), world.content("two")),
            (b"new".into(), b"data of both".into())
        );
    });
}

#[test]
fn all_links_of_a_file_may_go_and_one_may_be_kept() {
    in_world(async |world| {
        linked(world);
        let (mut ann, mine) = world.session("ann", &Offer::default()).await;
        let first = ann.open_file(&mine, &Want::existing("one")).await;
        let second = ann.open_file(&mine, &Want::existing("two")).await;
        for file in [first, second] {
            ann.on(&mine, delete_draft(file)).await.ok();
        }
        assert_eq!(standard(&mut ann, &mine, second).await, (0, true));
        // The deletion of one of the two links is cancelled, so this link stays.
        let keep = files::set_draft(FileInfoClass::DISPOSITION, second, &[0]);
        ann.on(&mine, keep).await.ok();
        for file in [second, first] {
            ann.close(&mine, file).await;
        }
        assert_eq!(world.content("two"), b"data of both");
        assert!(!world.path("one").exists());
    });
}

/// A stream holds the link by which it was opened, and is deleted by itself through any.
#[test]
fn streams_hold_the_link_that_they_were_opened_by() {
    in_world(async |world| {
        linked(world);
        let (mut ann, mine) = world.session("ann", &Offer::default()).await;
        let stream = ann.open_file(&mine, &Want::file("one:s")).await;
        let first = ann.open_file(&mine, &Want::existing("one")).await;
        ann.on(&mine, delete_draft(first)).await.ok();
        ann.close(&mine, first).await;
        assert!(world.path("one").exists(), "its stream is open");
        ann.create(&mine, &Want::existing("one:s")).await.expect(Status::DELETE_PENDING);
        let look = Want::existing("two:s").access(AccessMask::READ_DATA | AccessMask::DELETE);
        let other = ann.open_file(&mine, &look).await;
        ann.close(&mine, stream).await;
        assert!(!world.path("one").exists());
        ann.on(&mine, delete_draft(other)).await.ok();
        ann.close(&mine, other).await;
        ann.create(&mine, &Want::existing("two:s")).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        assert_eq!(world.content("two"), b"data of both");
    });
}

/// A link is known by its stored spelling, whichever case a request spells it in.
#[test]
fn a_link_that_is_being_deleted_is_not_replaced_in_another_case() {
    in_world(async |world| {
        for (one, two, target) in [("One", "two", "ONE"), ("A", "a", "A")] {
            world.file(one, b"data of both");
            std::fs::hard_link(world.path(one), world.path(two)).unwrap();
            let (mut ann, mine) = world.session("ann", &Offer::default()).await;
            let first = ann.open_file(&mine, &Want::existing(one)).await;
            let second = ann.open_file(&mine, &Want::existing(two)).await;
            ann.on(&mine, delete_draft(first)).await.ok();
            for class in [FileInfoClass::RENAME, FileInfoClass::LINK] {
                let draft = rename_draft(class, second, target, true);
                ann.on(&mine, draft).await.expect(Status::DELETE_PENDING);
            }
            ann.close(&mine, first).await;
            assert!(!world.path(one).exists());
            assert_eq!(world.content(two), b"data of both");
            // The only link that is left may get another case.
            let upper = two.to_uppercase();
            ann.on(&mine, rename_draft(FileInfoClass::RENAME, second, &upper, true)).await.ok();
            ann.close(&mine, second).await;
            assert_eq!(world.content(&upper), b"data of both");
        }
    });
}

/// The close of a deleted link must not take the name that another link of the file got since.
#[test]
fn a_link_that_is_being_deleted_is_not_replaced_by_another_one() {
    in_world(async |world| {
        linked(world);
        let (mut ann, mine) = world.session("ann", &Offer::default()).await;
        let first = ann.open_file(&mine, &Want::existing("one")).await;
        let second = ann.open_file(&mine, &Want::existing("two")).await;
        ann.on(&mine, delete_draft(first)).await.ok();
        for class in [FileInfoClass::RENAME, FileInfoClass::LINK] {
            let draft = rename_draft(class, second, "one", true);
            ann.on(&mine, draft).await.expect(Status::DELETE_PENDING);
        }
        ann.close(&mine, first).await;
        assert_eq!(world.content("two"), b"data of both");
        // The name is free now.
        ann.on(&mine, rename_draft(FileInfoClass::RENAME, second, "one", true)).await.ok();
        ann.close(&mine, second).await;
        assert_eq!(world.content("one"), b"data of both");
        assert!(!world.path("two").exists());
    });
}
