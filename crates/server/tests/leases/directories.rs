//! Leases on directories: who is told of a change, and whose change it was. MS-FSA 2.1.4.12 with
//! PARENT_OBJECT, MS-SMB2 3.3.5.9.11.

use frevo_wire::command::create::CreateOptions;

use crate::client::files::{delete_draft, file_id, rename_draft, set_draft};
use crate::client::*;
use crate::*;

/// FileBasicInformation that hides the file or shows it.
fn attributes(file: FileId, attributes: u32) -> Draft {
    let mut information = [0; 40];
    information[32..36].copy_from_slice(&attributes.to_le_bytes());
    set_draft(FileInfoClass::BASIC, file, &information)
}

async fn leased_directory(peer: &mut Peer, mount: &Mount, name: &str, byte: u8) -> FileId {
    let opened = peer.on(mount, with_lease(&Want::directory(name), key(byte), rh())).await;
    assert_eq!(lease(&opened).lease.lease_state, rh());
    file_id(&opened)
}

/// MS-FSA 2.1.4.12.2: ParentOplockKey is compared, whichever client it came from.
#[test]
fn the_lease_that_a_change_names_is_let_alone() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("ann", &Offer::default()).await;
        let dir = leased_directory(&mut one, &mine, "d", 1).await;
        for (parent, breaks) in [(Some(key(1)), false), (Some(key(3)), true)] {
            let want = with_parent(&Want::file("d\\f"), key(2), R, parent);
            let made = file_id(
                one.on(&mine, with_parent(&Want::file("d\\f"), key(2), R, Some(key(1)))).await.ok(),
            );
            one.close(&mine, made).await;
            let file = file_id(two.on(&theirs, want).await.ok());
            two.on(&theirs, attributes(file, if breaks { 2 } else { 0x20 })).await.ok();
            if breaks {
                assert_eq!(lease_notification(&mut one).await.new_lease_state, NONE);
            } else {
                one.expect_silence(Duration::from_secs(1)).await;
            }
            two.close(&theirs, file).await;
        }
        one.on(&mine, lease_ack(key(1), NONE)).await.ok();
        one.close(&mine, dir).await;
    });
}

/// The lease that both Opens know is let alone: that which deleted the name, and that which was
/// closed last.
#[test]
fn a_deletion_by_one_open_and_a_close_by_another_breaks_both_leases() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("ann", &Offer::default()).await;
        std::fs::create_dir(world.path("d")).unwrap();
        for same in [true, false] {
            let first = leased_directory(&mut one, &mine, "d", 1).await;
            let second = leased_directory(&mut one, &mine, "d", 2).await;
            let parent = |same| Some(if same { key(1) } else { key(2) });
            let setter = with_parent(&Want::file("d\\f"), key(3), R, parent(true));
            let setter = file_id(two.on(&theirs, setter).await.ok());
            // Making the file has already broken the second directory lease (key 2), because the
            // request names only key 1 as its parent.
            assert_eq!(lease_notification(&mut one).await.lease_key, key(2));
            one.on(&mine, lease_ack(key(2), NONE)).await.ok();
            one.close(&mine, second).await;
            let second = leased_directory(&mut one, &mine, "d", 2).await;
            let closer = with_parent(&Want::existing("d\\f"), key(4), R, parent(same));
            let closer = file_id(two.on(&theirs, closer).await.ok());
            two.on(&theirs, delete_draft(setter)).await.ok();
            two.close(&theirs, setter).await;
            one.expect_silence(Duration::from_secs(1)).await;
            two.close(&theirs, closer).await;
            let mut broken = vec![lease_notification(&mut one).await.lease_key];
            if !same {
                broken.push(lease_notification(&mut one).await.lease_key);
            }
            broken.sort();
            assert_eq!(broken, if same { vec![key(2)] } else { vec![key(1), key(2)] });
            one.expect_silence(Duration::from_secs(1)).await;
            for key in broken {
                one.on(&mine, lease_ack(key, NONE)).await.ok();
            }
            one.close(&mine, first).await;
            one.close(&mine, second).await;
        }
    });
}

/// MS-FSA 2.1.5.5: FILE_DELETE_ON_CLOSE marks the file when its handle closes, and who caches
/// handles learns of it then.
#[test]
fn a_close_that_deletes_asks_for_cached_handles() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        let held = file_id(one.on(&mine, with_lease(&Want::file("f"), key(1), rh())).await.ok());
        let going = Want::existing("f").options(CreateOptions::DELETE_ON_CLOSE);
        let going = two.open_file(&theirs, &going).await;
        one.expect_silence(Duration::from_secs(1)).await;
        two.close(&theirs, going).await;
        let told = lease_notification(&mut one).await;
        assert_eq!((told.current_lease_state, told.new_lease_state), (rh(), R));
        let _ = held;
    });
}

/// MS-FSA 2.1.5.15.12 opens the directory of the new name. A handle that a lease keeps, and that
/// stands in the way, is asked for. There is no interim response to SET_INFO.
#[test]
fn a_rename_asks_for_the_cached_handle_of_its_directory() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        std::fs::create_dir(world.path("d")).unwrap();
        world.file("f", "content");
        let file = two.open_file(&theirs, &Want::existing("f")).await;
        for closes in [false, true] {
            let want = Want::existing("d").access(AccessMask::DELETE);
            let opened = one.on(&mine, with_lease(&want, key(1), rh())).await;
            let dir = file_id(opened.ok());
            let rename = rename_draft(FileInfoClass::RENAME, file, "d\\f", false);
            let waiting = start(&mut two, &theirs, rename).await;
            let told = lease_notification(&mut one).await;
            assert_eq!((told.current_lease_state, told.new_lease_state), (rh(), R));
            two.expect_silence(Duration::from_secs(2)).await;
            if closes {
                one.close(&mine, dir).await;
                two.final_reply(waiting).await.ok();
            } else {
                one.on(&mine, lease_ack(key(1), R)).await.ok();
                two.final_reply(waiting).await.expect(Status::SHARING_VIOLATION);
                one.close(&mine, dir).await;
            }
        }
        assert!(world.path("d/f").exists());
    });
}
