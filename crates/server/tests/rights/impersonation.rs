//! Row X7: with `run_as = "user"` a session acts as its own user of the host, in
//! whatever order requests come and wherever they end. It takes root.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frevo_posix::credentials;
use frevo_posix::{PosixOptions, PosixVfs, Said, UnixUser};
use frevo_server::ambient::{Ambient, Host, HostUser};
use frevo_server::share::{RunAs, Share};
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::create_context::CreateContext;
use frevo_wire::dtyp::{AccessMask, FileTime};
use frevo_wire::fscc::FileInfoClass;

use crate::asking::{back, batch, dhnc, is_durable, lost};
use crate::calls::set_draft;
use crate::client::files::{PREVIOUS, close_draft, file_id, write_draft};
use crate::client::settings;
use crate::client::world::{Users, in_own_world, serving};
use crate::client::{Draft, FileId, Mount, Offer, Peer, Reply, Settings, Status, Want, World};

const UIDS: [(&str, u32); 2] = [("ann", 61_001), ("bob", 61_002)];

pub fn uid(user: &str) -> u32 {
    UIDS.iter().find(|(name, _)| *name == user).unwrap().1
}

/// A host with two users, who share a group.
#[derive(Debug)]
pub struct TwoUsers;

impl Ambient for TwoUsers {
    fn now(&self) -> FileTime {
        Host.now()
    }

    fn random(&self, bytes: &mut [u8]) {
        Host.random(bytes);
    }

    fn host_user(&self, name: &str) -> Said<HostUser> {
        let uid = UIDS.iter().find(|(known, _)| *known == name).map(|(_, uid)| *uid);
        Ok(uid.map(|uid| {
            let unix = UnixUser { uid, gid: uid, groups: vec![uid, 61_100] };
            HostUser { unix, groups: vec![String::from("both")] }
        }))
    }
}

/// Runs a test where `data` is used as who logs on and `plain` as the server.
pub fn acting(test_name: &str, frozen: bool, test: impl AsyncFnOnce(&World)) {
    if let Err(why) = credentials::check() {
        println!("skipped: {test_name}: {why}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    set_mode(dir.path(), 0o777);
    let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
    let vfs: Arc<dyn frevo_store::Vfs> = Arc::new(vfs);
    let share = |name: &str| Share::disk(name, Arc::clone(&vfs));
    let shares = [share("data").run_as(RunAs::User), share("plain")];
    let settings = Settings { ..settings() };
    let server = serving(settings, shares, Arc::new(Users), Arc::new(TwoUsers));
    in_own_world(frozen, &World::of(server, dir), test);
    assert_eq!(acts_as(), 0, "this thread is the server's again");
    all_at_rest();
}

/// Every thread of the process is the server's, if not all the time: those of
/// other tests act as users now and then.
pub fn all_at_rest() {
    let mut at_rest = HashSet::new();
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let mut busy = Vec::new();
        for task in std::fs::read_dir("/proc/self/task").unwrap() {
            let task = task.unwrap();
            // If the file cannot be read, the thread has ended meanwhile and is not counted.
            let Ok(status) = std::fs::read_to_string(task.path().join("status")) else { continue };
            let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
            if uids.split_whitespace().all(|uid| uid == "0") {
                at_rest.insert(task.file_name());
            } else if !at_rest.contains(&task.file_name()) {
                busy.push(status);
            }
        }
        if busy.is_empty() {
            return;
        }
        assert!(Instant::now() < until, "threads that are nobody's: {busy:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whom the kernel takes this thread for.
pub fn acts_as() -> u32 {
    rustix::process::geteuid().as_raw()
}

pub fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A folder of one user's own.
pub fn folder(world: &World, name: &str, user: &str, mode: u32) {
    std::fs::create_dir(world.path(name)).unwrap();
    chown(world.path(name), Some(uid(user)), Some(uid(user))).unwrap();
    set_mode(&world.path(name), mode);
}

pub fn owner(world: &World, name: &str) -> (u32, u32) {
    let meta = std::fs::symlink_metadata(world.path(name)).unwrap();
    (meta.uid(), meta.gid())
}

pub async fn session(world: &World, user: &str) -> (Peer, Mount) {
    world.session(user, &Offer::default()).await
}

pub async fn status(peer: &mut Peer, mount: &Mount, want: &Want) -> Status {
    peer.create(mount, want).await.status()
}

fn delete(name: &str) -> Want {
    Want::existing(name).access(AccessMask::DELETE).options(CreateOptions::DELETE_ON_CLOSE)
}

#[test]
fn x7_files_belong_to_who_makes_them_and_the_kernel_decides() {
    acting("x7_files_belong_to_who_makes_them_and_the_kernel_decides", false, async |world| {
        folder(world, "anns", "ann", 0o700);
        folder(world, "shown", "ann", 0o755);
        let (mut ann, anns) = session(world, "ann").await;
        let (mut bob, bobs) = session(world, "bob").await;
        let file = ann.open_file(&anns, &Want::file("anns\\secret")).await;
        ann.write(&anns, file, 0, b"hers").await;
        ann.close(&anns, file).await;
        assert_eq!(status(&mut ann, &anns, &Want::directory("shown\\sub")).await, Status::SUCCESS);
        assert_eq!(owner(world, "anns/secret"), (61_001, 61_001));
        assert_eq!(owner(world, "shown/sub"), (61_001, 61_001));
        assert_eq!(world.content("anns/secret"), b"hers");

        let denied = Status::ACCESS_DENIED;
        let read = |name: &str| Want::existing(name).access(AccessMask::READ_DATA);
        assert_eq!(status(&mut bob, &bobs, &read("anns\\secret")).await, denied);
        assert_eq!(status(&mut bob, &bobs, &read("anns\\absent")).await, denied);
        assert_eq!(status(&mut bob, &bobs, &read("anns")).await, denied, "it cannot be listed");
        assert_eq!(status(&mut bob, &bobs, &Want::file("shown\\new")).await, denied);
        assert_eq!(status(&mut bob, &bobs, &delete("shown\\sub")).await, denied);
        let sub =
            bob.open_file(&bobs, &Want::existing("shown\\sub").access(AccessMask::DELETE)).await;
        let disposition = set_draft(FileInfoClass::DISPOSITION, sub, &[1]);
        assert_eq!(bob.on(&bobs, disposition).await.status(), denied);
        bob.close(&bobs, sub).await;
        assert_eq!(status(&mut bob, &bobs, &Want::file("bobs")).await, Status::SUCCESS);
        assert_eq!(owner(world, "bobs"), (61_002, 61_002));

        // The folder has the sticky bit, so ann cannot delete a file of bob.
        set_mode(world.dir.path(), 0o1777);
        assert_eq!(status(&mut ann, &anns, &delete("bobs")).await, denied);
        // The file belongs to a group that has both users, so the group's rights apply.
        std::fs::write(world.path("ours"), b"").unwrap();
        chown(world.path("ours"), Some(0), Some(61_100)).unwrap();
        set_mode(&world.path("ours"), 0o660);
        let write = Want::existing("ours").access(AccessMask::WRITE_DATA);
        assert_eq!(status(&mut ann, &anns, &write).await, Status::SUCCESS);
        set_mode(&world.path("ours"), 0o600);
        assert_eq!(status(&mut bob, &bobs, &write).await, denied);

        // The share "plain" does not act as its users, so the file belongs to the server's user.
        let plain = ann.mount(&anns.logon, "plain").await;
        assert_eq!(status(&mut ann, &plain, &Want::file("served")).await, Status::SUCCESS);
        assert_eq!(owner(world, "served"), (0, 0));
    });
}

/// One step of a row of requests, and what must come of it.
struct Step {
    drafts: Vec<Draft>,
    statuses: Vec<Status>,
}

/// Requests of `user` among those of `other`: for the user's own files, for others' files, and
/// for the server's.
fn steps(user: &str, other: &str, mount: &Mount, plain: &Mount, round: usize) -> Vec<Step> {
    let own = format!("{user}s\\{round}");
    let create = |name: &str| Want::file(name).disposition(CreateDisposition::CREATE).draft();
    let compound = |first: Draft, statuses: [Status; 3]| Step {
        drafts: vec![
            mount.put(first),
            mount.put(write_draft(PREVIOUS, 0, user.as_bytes())).related(),
            mount.put(close_draft(PREVIOUS)).related(),
        ],
        statuses: statuses.to_vec(),
    };
    let single = |draft: Draft, status| Step { drafts: vec![draft], statuses: vec![status] };
    let denied = Status::ACCESS_DENIED;
    vec![
        compound(create(&own), [Status::SUCCESS; 3]),
        // CREATE is denied in the other user's folder, and so are the elements that use its FileId.
        compound(create(&format!("{other}s\\{user}{round}")), [denied; 3]),
        single(mount.put(Want::existing(&format!("{other}s")).draft()), denied),
        compound(create(&format!("{user}{round}")), [Status::SUCCESS; 3]),
        single(plain.put(create(&format!("plain{user}{round}"))), Status::SUCCESS),
        single(mount.put(create(&own)), Status::OBJECT_NAME_COLLISION),
    ]
}

#[test]
fn x7_interleaved_requests_of_two_users_never_mix() {
    const ROUNDS: usize = 100;
    acting("x7_interleaved_requests_of_two_users_never_mix", false, async |world| {
        let mut sessions = Vec::new();
        for (user, other) in [("ann", "bob"), ("bob", "ann"), ("ann", "bob"), ("bob", "ann")] {
            if !world.path(&format!("{user}s")).exists() {
                folder(world, &format!("{user}s"), user, 0o700);
            }
            let (mut peer, mount) = session(world, user).await;
            let plain = peer.mount(&mount.logon, "plain").await;
            sessions.push((user, other, peer, mount, plain));
        }
        for round in 0..ROUNDS {
            // The requests of all sessions are sent before any answer is read, so that one thread
            // has to change between the users.
            let mut waiting = Vec::new();
            let count = sessions.len();
            for (index, (user, other, peer, mount, plain)) in sessions.iter_mut().enumerate() {
                for step in steps(user, other, mount, plain, round * count + index) {
                    let ids = peer.send(step.drafts, mount.via()).await;
                    waiting.extend(ids.into_iter().zip(step.statuses).map(|ask| (index, ask)));
                }
            }
            for (index, (user, _, peer, ..)) in sessions.iter_mut().enumerate() {
                let mut own: HashMap<u64, Status> =
                    waiting.iter().filter_map(|(of, ask)| (*of == index).then_some(*ask)).collect();
                while !own.is_empty() {
                    for reply in peer.replies().await.expect("connected") {
                        if !reply.is_interim() {
                            let want = own.remove(&reply.header.message_id);
                            assert_eq!(Some(reply.status()), want, "{user}, round {round}");
                        }
                    }
                }
            }
        }
        let mut seen = 0;
        for entry in std::fs::read_dir(world.dir.path()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let Some(user) = ["ann", "bob"].into_iter().find(|user| name.starts_with(user)) else {
                assert!(name.starts_with("plain"), "{name}");
                assert_eq!(owner(world, &name), (0, 0), "{name}");
                continue;
            };
            assert_eq!(owner(world, &name), (uid(user), uid(user)), "{name}");
            seen += 1;
            if world.path(&name).is_dir() {
                for entry in std::fs::read_dir(world.path(&name)).unwrap() {
                    let file = format!("{name}/{}", entry.unwrap().file_name().to_str().unwrap());
                    assert_eq!(owner(world, &file), (uid(user), uid(user)), "{file}");
                    assert_eq!(world.content(&file), user.as_bytes(), "{file}");
                    seen += 1;
                }
            } else {
                assert_eq!(world.content(&name), user.as_bytes(), "{name}");
            }
        }
        assert_eq!(seen, 2 + ROUNDS * 4 * 2);
    });
}

/// A durable Open comes back to its owner alone, and acts as the owner in another session, at
/// its close and when its client stays away.
#[test]
fn x7_what_outlives_its_connection_acts_as_its_owner() {
    acting("x7_what_outlives_its_connection_acts_as_its_owner", true, async |world| {
        folder(world, "anns", "ann", 0o755);
        let kept = |name: &str| {
            let access = AccessMask::DELETE | AccessMask::WRITE_DATA | AccessMask::READ_ATTRIBUTES;
            let want = Want::file(name).access(access).options(CreateOptions::DELETE_ON_CLOSE);
            batch(want, &[CreateContext::DurableRequest])
        };
        let (mut ann, anns) = session(world, "ann").await;
        let client = ann.guid;
        let mut files = Vec::new();
        for name in ["anns\\taken-up", "anns\\left"] {
            let reply = ann.create(&anns, &kept(name)).await;
            assert!(is_durable(reply.ok()));
            files.push(file_id(&reply));
        }
        drop(ann);
        lost(world, 2).await;
        let again = |file: FileId, name: &str| batch(Want::existing(name), &[dhnc(file)]);
        let (mut bob, bobs) = back(world, client, "bob", "data").await;
        let stolen = bob.create(&bobs, &again(files[0], "anns\\taken-up")).await;
        assert_eq!(stolen.status(), Status::ACCESS_DENIED);
        let (mut ann, anns) = back(world, client, "ann", "data").await;
        let file = ann.open_file(&anns, &again(files[0], "anns\\taken-up")).await;
        ann.write(&anns, file, 0, b"hers").await;
        ann.close(&anns, file).await;
        assert!(!world.path("anns/taken-up").exists(), "deleted by its owner");

        // Ann has lost the right to remove entries of this folder. Root could still remove them. So
        // if the file stays, the Open was closed with ann's rights and not with root's.
        set_mode(&world.path("anns"), 0o555);
        tokio::time::sleep(Duration::from_secs(1_000)).await;
        assert_eq!(world.server.durables.counts(), (0, 0), "the scavenger has closed it");
        assert!(world.path("anns/left").exists(), "not by whom it did not belong to");
        assert_eq!(acts_as(), 0);
    });
}

/// A file that is deleted when a connection is lost is deleted as the user that opened it.
#[test]
fn x7_delete_on_close_at_the_end_of_a_connection() {
    acting("x7_delete_on_close_at_the_end_of_a_connection", false, async |world| {
        folder(world, "may", "ann", 0o700);
        folder(world, "may-not", "ann", 0o700);
        let (mut ann, anns) = session(world, "ann").await;
        let plain = ann.mount(&anns.logon, "plain").await;
        let own = |name: &str| {
            Want::file(name).access(AccessMask::DELETE).options(CreateOptions::DELETE_ON_CLOSE)
        };
        ann.open_file(&anns, &own("may\\gone")).await;
        ann.open_file(&anns, &own("may-not\\kept")).await;
        ann.open_file(&plain, &own("served")).await;
        set_mode(&world.path("may-not"), 0o500);
        // "served" belongs to the server. Only root may delete it from this folder now, so it
        // disappears only if the server deletes it with its own rights.
        set_mode(world.dir.path(), 0o755);
        drop(ann);
        for _ in 0..200 {
            if world.server.sessions().is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(!world.path("may/gone").exists());
        assert!(world.path("may-not/kept").exists());
        assert!(!world.path("served").exists());
    });
}

/// Nobody logs on as root by way of an account of that name, and who is nobody
/// on the host does nothing there.
#[test]
fn whoever_is_nobody_on_the_host_is_refused() {
    #[derive(Debug)]
    struct Root;
    impl Ambient for Root {
        fn now(&self) -> FileTime {
            Host.now()
        }
        fn random(&self, bytes: &mut [u8]) {
            Host.random(bytes);
        }
        fn host_user(&self, name: &str) -> Said<HostUser> {
            let unix = UnixUser { uid: 0, gid: 0, groups: vec![0] };
            Ok((name == "ann").then_some(HostUser { unix, groups: Vec::new() }))
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
    let share = Share::disk("data", Arc::new(vfs)).run_as(RunAs::User);
    let server = serving(settings(), [share], Arc::new(Users), Arc::new(Root));
    in_own_world(false, &World::of(server, dir), async |world| {
        for user in ["ann", "bob"] {
            let mut peer = world.connect();
            peer.negotiate(&Offer::default()).await;
            let logon = peer.log_on(user).await;
            let refused: Option<Reply> = peer.try_mount(&logon, "data").await.err();
            let refused = refused.map(|reply| reply.status());
            assert_eq!(refused, Some(Status::BAD_NETWORK_NAME), "{user}");
            peer.mount(&logon, "IPC$").await;
        }
    });
}

/// Large writes leave the core, streams beside their file are the server's: both
/// belong to the user all the same.
#[test]
fn x7_streams_and_large_writes_are_the_users() {
    acting("x7_streams_and_large_writes_are_the_users", false, async |world| {
        let (mut ann, anns) = session(world, "ann").await;
        let (mut bob, bobs) = session(world, "bob").await;
        let large = vec![7; 3 << 20];
        let file = ann.open_file(&anns, &Want::file("large")).await;
        ann.write(&anns, file, 0, &large).await;
        ann.close(&anns, file).await;
        assert_eq!(owner(world, "large"), (61_001, 61_001));
        assert!(world.content("large") == large);

        let stream = ann.open_file(&anns, &Want::file("large:beside")).await;
        ann.write(&anns, stream, 0, &large[..200_000]).await;
        assert_eq!(ann.read(&anns, stream, 199_990, 100).await, vec![7; 10]);
        ann.close(&anns, stream).await;
        set_mode(&world.path("large"), 0o640);
        let peek = Want::existing("large:beside").access(AccessMask::READ_DATA);
        assert_eq!(status(&mut bob, &bobs, &peek).await, Status::ACCESS_DENIED);
        set_mode(&world.path("large"), 0o644);
        assert_eq!(status(&mut bob, &bobs, &peek).await, Status::SUCCESS);
        let change = Want::existing("large:beside").access(AccessMask::WRITE_DATA);
        assert_eq!(status(&mut bob, &bobs, &change).await, Status::ACCESS_DENIED);
        let change = Want::file("large:new").disposition(CreateDisposition::CREATE);
        assert_eq!(status(&mut bob, &bobs, &change).await, Status::ACCESS_DENIED);
    });
}
