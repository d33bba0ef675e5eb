//! Rows X5 and X7: persistent Opens of the host's users after a restart of the
//! server. Each acts as its owner, and is nobody else's. It takes root.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use frevo_posix::{PosixOptions, PosixVfs, credentials};
use frevo_server::internal::durable::record;
use frevo_server::share::{RunAs, Share, Target};
use frevo_store::state::MemoryState;
use frevo_wire::command::create::CreateOptions;
use frevo_wire::dtyp::AccessMask;
use tokio::task::LocalSet;

use crate::asking::{back, dh2c, dh2q, durable_v2, guid, with};
use crate::client::files::file_id;
use crate::client::world::{Users, serving};
use crate::client::{FileId, Status, Want, World, settings};
use crate::impersonation::{TwoUsers, acts_as, all_at_rest, set_mode, uid};

/// One run of the server over a folder.
fn start(root: &Path, store: &Arc<MemoryState>) -> World {
    let vfs = PosixVfs::open_root(root, PosixOptions::default()).unwrap();
    let lasting = Share {
        run_as: RunAs::User,
        continuous: true,
        ..Share::new("lasting", Target::Disk(Arc::new(vfs)))
    };
    let shares = [lasting];
    let server = serving(settings(), shares, Arc::new(Users), Arc::new(TwoUsers));
    record::restore(server.state(), Arc::clone(store) as _).unwrap();
    server.state().start_scavenger();
    assert_eq!(acts_as(), 0, "restoring leaves the thread the server's");
    World::of(server, tempfile::tempdir().unwrap())
}

fn give(path: &Path, user: &str, mode: u32) {
    chown(path, Some(uid(user)), Some(61_100)).unwrap();
    set_mode(path, mode);
}

#[test]
fn x7_x5_what_is_restored_is_its_owners() {
    if let Err(why) = credentials::check() {
        println!("skipped: x7_x5_what_is_restored_is_its_owners: {why}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    set_mode(root, 0o755);
    for (name, mode) in [("private", 0o700), ("shut", 0o755)] {
        std::fs::create_dir(root.join(name)).unwrap();
        give(&root.join(name), "ann", mode);
    }
    // The kernel takes the mark away from what another than root writes to.
    std::fs::write(root.join("marked"), b"before").unwrap();
    give(&root.join("marked"), "bob", 0o4660);
    std::fs::write(root.join("lost"), b"").unwrap();
    give(&root.join("lost"), "bob", 0o660);

    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).on_thread_start(credentials::begin_thread);
    let runtime = runtime.build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let store = Arc::new(MemoryState::default());
        let client = guid(0x31);
        let world = start(root, &store);
        let (mut ann, anns) = back(&world, client, "ann", "lasting").await;
        let writes = AccessMask::READ_DATA | AccessMask::WRITE_DATA | AccessMask::READ_ATTRIBUTES;
        let deletes = CreateOptions::DELETE_ON_CLOSE;
        let mut files: Vec<(&str, FileId)> = Vec::new();
        for name in ["private\\secret", "marked", "lost", "private\\gone", "shut\\kept"] {
            let want = match name {
                "private\\gone" | "shut\\kept" => {
                    Want::file(name).access(writes | AccessMask::DELETE).options(deletes)
                }
                _ => Want::file(name).access(writes),
            };
            let id = guid(u8::try_from(files.len()).unwrap() + 1);
            let reply = ann.create(&anns, &with(want, &[dh2q(id, true)])).await;
            assert!(durable_v2(reply.ok()).unwrap().1, "{name} is persistent");
            files.push((name, file_id(&reply)));
        }
        world.crash();
        // What she may not have any more she does not get back.
        give(&root.join("lost"), "bob", 0o600);
        set_mode(&root.join("shut"), 0o555);

        let world = start(root, &store);
        assert_eq!(world.server.durables.counts(), (4, 4));
        let again = |at: usize, create: u8, file: FileId| {
            with(Want::existing(files[at].0), &[dh2c(file, guid(create), true)])
        };
        let own = |at: usize| again(at, u8::try_from(at).unwrap() + 1, files[at].1);
        let (mut bob, bobs) = back(&world, client, "bob", "lasting").await;
        for at in [0, 1, 3, 4] {
            bob.create(&bobs, &own(at)).await.expect(Status::ACCESS_DENIED);
        }
        let (mut ann, anns) = back(&world, client, "ann", "lasting").await;
        let unknown = FileId { persistent: files[0].1.persistent ^ 1, ..files[0].1 };
        for (wrong, status) in [
            (again(0, 9, files[0].1), Status::OBJECT_NAME_NOT_FOUND),
            (again(0, 9, unknown), Status::OBJECT_NAME_NOT_FOUND),
            (own(2), Status::OBJECT_NAME_NOT_FOUND),
        ] {
            ann.create(&anns, &wrong).await.expect(status);
        }
        for at in [0, 1] {
            let file = ann.open_file(&anns, &own(at)).await;
            ann.write(&anns, file, 0, b"hers").await;
            let late = bob.create(&bobs, &own(at)).await;
            late.expect(Status::OBJECT_NAME_NOT_FOUND);
            ann.close(&anns, file).await;
        }
        let marked = std::fs::metadata(root.join("marked")).unwrap();
        assert_eq!(marked.mode() & 0o4000, 0, "it was written by somebody else");
        assert_eq!(std::fs::read(root.join("private/secret")).unwrap(), b"hers");
        // Nobody comes for the others; they are closed as by her.
        tokio::time::sleep(Duration::from_secs(130)).await;
        assert_eq!(world.server.durables.counts(), (0, 0));
        assert!(!root.join("private/gone").exists());
        assert!(root.join("shut/kept").exists(), "she may not remove it any more");
        drop((ann, bob));
        world.wind_up().await;
    });
    assert_eq!(acts_as(), 0);
    all_at_rest();
}
