//! A CreateGuid or AppInstanceId that another account sends, from the same ClientGuid or
//! another one, does not harm its owner. MS-SMB2 3.3.5.9.10, 3.3.5.9.12, 3.3.5.9.13.

use crate::asking::*;
use crate::client::protection::list;
use crate::client::*;
use frevo_server::internal::state;
use frevo_store::state::MemoryState;
use frevo_wire::command::create::ShareAccess;
use frevo_wire::dtyp::{AccessMask, Ace, AceFlags};

const ALONE: ShareAccess = ShareAccess::EMPTY;

fn replay(want: &Want) -> Draft {
    want.draft().flags(HeaderFlags::REPLAY_OPERATION)
}

/// The other account has the CreateGuid first; the owner's CREATE and its replay are
/// carried out as if nobody had.
#[test]
fn x5_a_create_guid_is_not_taken_by_another_account() {
    in_world(async |world| {
        let client = guid(0x31);
        let (mut bob, bobs) = back(world, client, "bob", "data").await;
        let squat = bob.open_file(&bobs, &with(Want::file("squat"), &[dh2q(guid(7), false)])).await;
        let (mut ann, anns) = back(world, client, "ann", "data").await;
        let want = with(Want::file("f").sharing(ALONE), &[dh2q(guid(7), false)]);
        let file = ann.open_file(&anns, &want).await;
        let again = ann.on(&anns, replay(&want)).await;
        assert_eq!(files::file_id(again.ok()), file);
        // Bob has an Open with the same CreateGuid. After bob has closed it, ann's replay still
        // finds ann's own Open.
        bob.close(&bobs, squat).await;
        let again = ann.on(&anns, replay(&want)).await;
        assert_eq!(files::file_id(again.ok()), file);
        // The original CREATE was lost, so its replay is an ordinary CREATE, although bob uses the
        // same CreateGuid.
        bob.open_file(&bobs, &with(Want::file("squat"), &[dh2q(guid(8), false)])).await;
        let want = with(Want::file("g").sharing(ALONE), &[dh2q(guid(8), false)]);
        ann.on(&anns, replay(&want)).await.ok();
    });
}

/// A persistent Open is found by its CreateGuid: by its owner, whoever else used it since.
#[test]
fn x5_a_persistent_open_is_found_by_its_owner() {
    in_world(async |world| {
        state::restore(&world.server, std::sync::Arc::new(MemoryState::default())).unwrap();
        let client = guid(0x31);
        let (mut ann, anns) = back(world, client, "ann", "lasting").await;
        let want = with(Want::file("f").sharing(ALONE), &[dh2q(guid(7), true)]);
        let file = ann.open_file(&anns, &want).await;
        ann.write(&anns, file, 0, b"mine").await;
        let mut squatters = Vec::new();
        for (number, from) in [(1, client), (2, guid(0x32))] {
            let (mut bob, bobs) = back(world, from, "bob", "lasting").await;
            let name = format!("squat{number}");
            let want = with(Want::file(&name), &[dh2q(guid(7), true)]);
            let squat = bob.open_file(&bobs, &want).await;
            squatters.push((bob, bobs, squat));
        }
        drop(ann);
        lost(world, 1).await;
        // The FileId is wrong, but a persistent Open is found by its CreateGuid alone.
        let (mut ann, anns) = back(world, client, "ann", "lasting").await;
        let none = FileId { persistent: 1, volatile: 1 };
        let asked = with(Want::existing("f"), &[dh2c(none, guid(7), true)]);
        let again = ann.open_file(&anns, &asked).await;
        assert_eq!(again.persistent, file.persistent);
        assert_eq!(ann.read(&anns, again, 0, 9).await, b"mine");
        ann.close(&anns, again).await;
        for (bob, bobs, squat) in &mut squatters {
            bob.close(bobs, *squat).await;
        }
    });
}

/// Whoever may not read a file does not close it for its users by their AppInstanceId,
/// whatever ClientGuid it sends. The owner's own next instance does.
#[test]
fn s1_an_instance_of_an_account_without_rights_closes_nothing() {
    in_world(async |world| {
        let (mut ann, anns) = world.session("ann", &Offer::default()).await;
        let want = with(Want::file("f").sharing(ALONE), &app(1, None));
        let file = ann.open_file(&anns, &want).await;
        let sid = world.server.with_principals(|known| known.user_sid("ann", None));
        let own = list(vec![Ace::allow(AceFlags::EMPTY, AccessMask::FILE_ALL, sid)]);
        ann.on(&anns, protect_draft(file, &own)).await.ok();
        for from in [ann.guid, guid(0x77)] {
            let (mut bob, bobs) = back(world, from, "bob", "data").await;
            let refused = bob.create(&bobs, &want).await.status();
            assert!(
                matches!(refused, Status::ACCESS_DENIED | Status::SHARING_VIOLATION),
                "{refused:?}"
            );
            ann.write(&anns, file, 0, b"still here").await;
        }
        let (mut next, nexts) = world.session("ann", &Offer::default()).await;
        let taken = next.open_file(&nexts, &want).await;
        let late = ann.on(&anns, files::write_draft(file, 0, b"ghost")).await;
        late.expect(Status::FILE_CLOSED);
        next.close(&nexts, taken).await;
    });
}
