//! Rows X5 and X7: persistent Opens of the host's users after a restart of the
//! server. Each acts as its owner, and is nobody else's. It takes root.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use frevo_posix::{PosixOptions, PosixVfs, Said, credentials};
use frevo_server::ambient::{Ambient, Host, HostUser};
use frevo_server::id_map::{IdMap, IdRange};
use frevo_server::internal::state;
use frevo_server::share::{RunAs, Share};
use frevo_store::state::MemoryState;
use frevo_wire::command::create::CreateOptions;
use frevo_wire::dtyp::{AccessMask, FileTime};
use tokio::task::LocalSet;

use crate::asking::{back, batch, dh2c, dh2q, durable_v2, guid, lost, with};
use crate::client::files::file_id;
use crate::client::world::{Users, serving};
use crate::client::{FileId, Status, Want, World, settings};
use crate::impersonation::{TwoUsers, acts_as, all_at_rest, set_mode, uid};

/// One run of the server over a folder.
fn start(root: &Path, store: &Arc<MemoryState>) -> World {
    let vfs = PosixVfs::open_root(root, PosixOptions::default()).unwrap();
    let lasting = Share::disk("lasting", Arc::new(vfs)).run_as(RunAs::User).continuous(true);
    serve(lasting, Arc::new(TwoUsers), store)
}

/// A run with this share on a host with these users.
fn serve(share: Share, host: Arc<dyn Ambient>, store: &Arc<MemoryState>) -> World {
    let server = serving(settings(), [share], Arc::new(Users), host);
    state::restore(server.state(), Arc::clone(store) as _).unwrap();
    server.state().start_scavenger();
    assert_eq!(acts_as(), 0, "restoring leaves the thread the server's");
    World::of(server, tempfile::tempdir().unwrap())
}

/// A folder that all users of the host may list. None, with a line, where threads cannot act as them.
fn folder_for_all(test: &str) -> Option<tempfile::TempDir> {
    if let Err(why) = credentials::check() {
        println!("skipped: {test}: {why}");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    set_mode(folder.path(), 0o755);
    Some(folder)
}

/// Runs a test on one core, with a paused clock.
fn run(test: impl Future<Output = ()>) {
    crate::client::world::without_ring();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).on_thread_start(credentials::begin_thread);
    LocalSet::new().block_on(&runtime.build().unwrap(), test);
}

fn give(path: &Path, user: &str, mode: u32) {
    chown(path, Some(uid(user)), Some(61_100)).unwrap();
    set_mode(path, mode);
}

#[test]
fn x7_x5_what_is_restored_is_its_owners() {
    let Some(folder) = folder_for_all("x7_x5_what_is_restored_is_its_owners") else { return };
    let root = folder.path();
    for (name, mode) in [("private", 0o700), ("shut", 0o755)] {
        std::fs::create_dir(root.join(name)).unwrap();
        give(&root.join(name), "ann", mode);
    }
    // The kernel clears set-user-ID if a user other than root writes, so the bit shows who wrote.
    std::fs::write(root.join("marked"), b"before").unwrap();
    give(&root.join("marked"), "bob", 0o4660);
    std::fs::write(root.join("lost"), b"").unwrap();
    give(&root.join("lost"), "bob", 0o660);

    run(async {
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
        // Ann has lost the rights to these two files, so ann's handles of them are not restored
        // after the restart.
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
        // The other handles time out. They are closed with ann's rights, so a file that ann must
        // not remove any more stays.
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

/// A host whose name service knows nobody, as it does not know users of a domain.
#[derive(Debug)]
struct NoUsers;

impl Ambient for NoUsers {
    fn now(&self) -> FileTime {
        Host.now()
    }

    fn random(&self, bytes: &mut [u8]) {
        Host.random(bytes);
    }

    fn host_user(&self, _: &str) -> Said<HostUser> {
        Ok(None)
    }
}

/// Owners with numbers by arithmetic are known after a restart without a name service, with the groups
/// of their logon, as long as the configuration has their numbers.
#[test]
fn x7_an_owner_of_a_domain_is_known_after_a_restart() {
    let Some(folder) = folder_for_all("x7_an_owner_of_a_domain_is_known_after_a_restart") else {
        return;
    };
    let root = folder.path();
    std::fs::write(root.join("of the group"), b"").unwrap();
    give(&root.join("of the group"), "bob", 0o660);
    let lasting = |is_mapped: bool| {
        let range = IdRange {
            domain: "S-1-5-21-1-2-3".parse().unwrap(),
            first: uid("ann"),
            last: uid("ann"),
            base_rid: 1_105,
        };
        let vfs = PosixVfs::open_root(root, PosixOptions::default()).unwrap();
        let id_map = IdMap::new(if is_mapped { vec![range] } else { Vec::new() });
        Share::disk("lasting", Arc::new(vfs))
            .run_as(RunAs::User)
            .continuous(true)
            .id_map(Arc::new(id_map))
    };
    run(async {
        let store = Arc::new(MemoryState::default());
        let client = guid(0x31);
        let world = serve(lasting(true), Arc::new(TwoUsers), &store);
        let (mut ann, anns) = back(&world, client, "ann", "lasting").await;
        let writes = AccessMask::READ_DATA | AccessMask::WRITE_DATA | AccessMask::READ_ATTRIBUTES;
        let want = with(Want::file("of the group").access(writes), &[dh2q(guid(1), true)]);
        let reply = ann.create(&anns, &want).await;
        assert!(durable_v2(reply.ok()).unwrap().1, "it is persistent");
        world.crash();
        let world = serve(lasting(true), Arc::new(NoUsers), &store);
        assert_eq!(world.server.durables.counts(), (1, 1));
        world.crash();
        let world = serve(lasting(false), Arc::new(NoUsers), &store);
        assert_eq!(world.server.durables.counts(), (0, 0), "nobody has this number any more");
        world.crash();

        // The owner of this durable Open does not log on between three restarts, which it must
        // survive.
        let (store, left) = (Arc::default(), Arc::new(MemoryState::default()));
        let mut world = serve(lasting(true), Arc::new(TwoUsers), &store);
        state::take_up(&world.server, Arc::clone(&left) as _).unwrap();
        let (mut ann, anns) = back(&world, client, "ann", "lasting").await;
        let want = batch(Want::existing("of the group").access(writes), &[dh2q(guid(2), false)]);
        ann.open_file(&anns, &want).await;
        drop(ann);
        lost(&world, 1).await;
        for _ in 0..3 {
            state::leave(&world.server).await;
            world.server.close_waiting();
            world.crash();
            world = serve(lasting(true), Arc::new(NoUsers), &store);
            state::take_up(&world.server, Arc::clone(&left) as _).unwrap();
            assert_eq!(world.server.durables.counts(), (1, 1));
        }
        world.crash();
    });
    assert_eq!(acts_as(), 0);
    all_at_rest();
}
