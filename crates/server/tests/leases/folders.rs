//! Renames of a folder with open files below it, between two clients: MS-FSA 2.1.5.15.12 refuses
//! them while 2.1.4.2 finds an open file, and lets go on when a lease's holder has closed it.

use crate::client::files::{file_id, rename_draft};
use crate::client::*;
use crate::*;

/// Makes `d\e\f` and opens the folder `d` with the right to rename it.
async fn folder(world: &World, peer: &mut Peer, mount: &Mount) -> FileId {
    let _ = std::fs::remove_dir_all(world.path("d"));
    let _ = std::fs::remove_dir_all(world.path("moved"));
    std::fs::create_dir_all(world.path("d/e")).unwrap();
    world.file("d/e/f", "content");
    peer.open_file(mount, &Want::existing("d")).await
}

fn moved(dir: FileId) -> Draft {
    rename_draft(FileInfoClass::RENAME, dir, "moved", false)
}

/// Without leases, and with those that keep no handle: nobody is asked, the rename is refused.
#[test]
fn a_folder_with_open_files_below_keeps_its_name() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        for state in [None, Some(R), Some(R | LeaseState::WRITE)] {
            let dir = folder(world, &mut two, &theirs).await;
            let want = Want::existing("d\\e\\f");
            let file = match state {
                None => one.open_file(&mine, &want).await,
                Some(state) => file_id(one.on(&mine, with_lease(&want, key(1), state)).await.ok()),
            };
            two.on(&theirs, moved(dir)).await.expect(Status::ACCESS_DENIED);
            assert!(world.path("d/e/f").exists() && !world.path("moved").exists());
            one.write(&mine, file, 0, b"CONTENT").await;
            one.close(&mine, file).await;
            two.on(&theirs, moved(dir)).await.ok();
            assert_eq!(world.content("moved/e/f"), b"CONTENT");
            two.close(&theirs, dir).await;
        }
    });
}

/// A client that keeps a handle because of its lease is asked for it. It may keep the file open;
/// then the rename is refused when the client has answered.
#[test]
fn a_folder_waits_for_handles_that_leases_keep_below() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        for closes in [true, false] {
            let dir = folder(world, &mut two, &theirs).await;
            let want = with_lease(&Want::existing("d\\e\\f"), key(2), rh());
            let file = file_id(one.on(&mine, want).await.ok());
            let waiting = start(&mut two, &theirs, moved(dir)).await;
            assert_eq!(lease_notification(&mut one).await.new_lease_state, R);
            if closes {
                one.close(&mine, file).await;
                two.final_reply(waiting).await.ok();
                assert_eq!(world.content("moved/e/f"), b"content");
            } else {
                one.on(&mine, lease_ack(key(2), R)).await.ok();
                two.final_reply(waiting).await.expect(Status::ACCESS_DENIED);
                assert_eq!(world.content("d/e/f"), b"content");
                one.close(&mine, file).await;
            }
            two.close(&theirs, dir).await;
        }
    });
}

/// Time Machine renames its folder while the folder's bands are open: macOS, which names itself by
/// AAPL, renames as POSIX does, and files below keep their handles, locks and leases under the
/// new name.
#[test]
fn macos_renames_a_folder_with_open_files_below() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        // Like macOS, the client sends AAPL with a query for the server's capabilities.
        let query = [&1_u32.to_le_bytes()[..], &[0; 4], &1_u64.to_le_bytes(), &[0; 8]].concat();
        let contexts = CreateContexts::build(&[(b"AAPL", &query)]).as_bytes().to_vec();
        let root = two.open_file(&theirs, &Want { contexts, ..Want::existing("") }).await;
        two.close(&theirs, root).await;
        for state in [None, Some(rh())] {
            let dir = folder(world, &mut two, &theirs).await;
            let want = Want::existing("d\\e\\f");
            let draft = match state {
                None => with_oplock(&want, OplockLevel::NONE),
                Some(state) => with_lease(&want, key(3), state),
            };
            let file = file_id(one.on(&mine, draft).await.ok());
            let waiting = start(&mut two, &theirs, moved(dir)).await;
            if state.is_some() {
                assert_eq!(lease_notification(&mut one).await.new_lease_state, R);
                one.on(&mine, lease_ack(key(3), R)).await.ok();
            }
            two.final_reply(waiting).await.ok();
            one.write(&mine, file, 0, b"CONTENT").await;
            assert_eq!(world.content("moved/e/f"), b"CONTENT");
            let second = two.open_file(&theirs, &Want::existing("moved\\e\\f")).await;
            assert_eq!(two.read(&theirs, second, 0, 7).await, b"CONTENT");
            two.close(&theirs, second).await;
            one.close(&mine, file).await;
            two.close(&theirs, dir).await;
        }
    });
}

/// Tests that all who keep handles below a folder are asked at once, whatever their access: silent ones
/// cost one timeout, and not one each.
#[test]
fn many_leases_below_a_folder_cost_one_timeout() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        let dir = folder(world, &mut two, &theirs).await;
        let holders = 41;
        for holder in 1..holders {
            let name = format!("d\\e\\{holder}");
            world.file(&name.replace('\\', "/"), "content");
            let want = Want::existing(&name).access(AccessMask::READ_ATTRIBUTES);
            one.on(&mine, with_lease(&want, key(holder), rh())).await.ok();
        }
        let begun = Instant::now();
        let waiting = start(&mut two, &theirs, moved(dir)).await;
        for told in 1..holders {
            assert_eq!(lease_notification(&mut one).await.new_lease_state, R, "{told}");
        }
        assert_eq!(begun.elapsed().as_secs(), 0, "all are told at once");
        two.final_reply(waiting).await.expect(Status::ACCESS_DENIED);
        assert_eq!(begun.elapsed().as_secs(), 35);
    });
}

/// Tests that a rename ends as soon as one Open is sure to stay, whoever else has not answered: an
/// Open without a lease is one from the beginning, and nobody is asked.
#[test]
fn an_open_that_stays_below_a_folder_ends_the_wait() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        let dir = folder(world, &mut two, &theirs).await;
        for name in ["g", "h"] {
            world.file(&format!("d/{name}"), "content");
        }
        let begun = Instant::now();
        for (holder, name) in [(1, "d\\e\\f"), (2, "d\\g")] {
            one.on(&mine, with_lease(&Want::existing(name), key(holder), rh())).await.ok();
        }
        let stays = one.open_file(&mine, &Want::existing("d\\h")).await;
        two.on(&theirs, moved(dir)).await.expect(Status::ACCESS_DENIED);
        one.on(&mine, lease_ack(key(1), R)).await.expect(Status::UNSUCCESSFUL);
        one.close(&mine, stays).await;
        // Of two holders below the directory, one acknowledges but keeps its file open, so the
        // rename must fail.
        for holder in [1, 2] {
            let waiting = start(&mut two, &theirs, moved(dir)).await;
            if holder == 1 {
                lease_notification(&mut one).await;
                lease_notification(&mut one).await;
                one.on(&mine, lease_ack(key(2), R)).await.ok();
            }
            two.final_reply(waiting).await.expect(Status::ACCESS_DENIED);
        }
        assert_eq!(begun.elapsed().as_secs(), 0);
    });
}

/// MS-FSA 2.1.4.2 counts Opens whose Open.Link is below the folder: one by another link of a file that
/// was once opened by its link there does not keep the folder's name.
#[test]
fn an_open_by_another_link_does_not_keep_a_folders_name() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        let dir = folder(world, &mut two, &theirs).await;
        std::fs::hard_link(world.path("d/e/f"), world.path("linked")).unwrap();
        let below = one.open_file(&mine, &Want::existing("d\\e\\f")).await;
        one.open_file(&mine, &Want::existing("linked")).await;
        two.on(&theirs, moved(dir)).await.expect(Status::ACCESS_DENIED);
        one.close(&mine, below).await;
        two.on(&theirs, moved(dir)).await.ok();
    });
}
