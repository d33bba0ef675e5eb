//! Row X9: owners, groups and modes of the host that a client sets on a share whose
//! files the server uses as root. These tests need root.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use frevo_auth::{Account, Accounts, Membership};
use frevo_posix::{PosixOptions, PosixVfs, credentials};
use frevo_server::ambient::Host;
use frevo_server::share::Share;
use frevo_wire::command::set_info::InfoType;
use frevo_wire::dtyp::{AccessMask, SecurityDescriptor, SecurityInformation as Parts, Sid};

use crate::client::files::set_info_draft;
use crate::client::protection::{bytes, everyone, protect};
use crate::client::settings;
use crate::client::world::{Users, in_own_world, serving};
use crate::client::{FileId, Mount, Offer, Peer, Status, Want, World};
use crate::impersonation::owner;

/// As [`Users`], with `ann` among the administrators.
#[derive(Debug)]
struct AnnRules;

impl Accounts for AnnRules {
    fn account(&self, user: &str, domain: &str) -> Option<Account> {
        Users.account(user, domain)
    }

    fn membership(&self, user: &str) -> Option<Membership> {
        let groups = match user {
            "ann" => vec![String::from("Administrators")],
            _ => Vec::new(),
        };
        Some(Membership { name: user.to_owned(), groups, ..Membership::default() })
    }
}

/// Runs a test on a share that root serves, on a thread like those of the server.
fn as_root(name: &str, test: impl AsyncFnOnce(&World) + Send) {
    if let Err(why) = credentials::check() {
        println!("skipped: {name}: {why}");
        return;
    }
    // The test gives up the privileges of its thread, so it has a thread of its own.
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            credentials::begin_thread();
            let dir = tempfile::tempdir().unwrap();
            let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
            let shares = [Share::disk("data", Arc::new(vfs))];
            let server = serving(settings(), shares, Arc::new(AnnRules), Arc::new(Host));
            in_own_world(false, &World::of(server, dir), test);
        });
        run.join().unwrap();
    });
}

fn owned_by(sid: Sid) -> SecurityDescriptor {
    SecurityDescriptor { owner: Some(sid), ..SecurityDescriptor::default() }
}

fn grouped_with(sid: Sid) -> SecurityDescriptor {
    SecurityDescriptor { group: Some(sid), ..SecurityDescriptor::default() }
}

async fn set(
    peer: &mut Peer,
    mount: &Mount,
    file: FileId,
    parts: Parts,
    new: &SecurityDescriptor,
) -> Status {
    let draft = set_info_draft(file, InfoType::SECURITY, 0, parts.0, &bytes(new));
    peer.on(mount, draft).await.status()
}

/// As root does it with all capabilities, which this thread has no more.
fn set_mode(path: &Path, mode: u32) {
    let done = Command::new("chmod").arg(format!("{mode:o}")).arg(path).status();
    assert!(done.unwrap().success());
}

fn mode(world: &World, name: &str) -> u32 {
    std::fs::metadata(world.path(name)).unwrap().mode() & 0o7777
}

/// Both spellings of a number of the host.
fn spellings(kind: u32, number: u32) -> [Sid; 2] {
    [Sid::new(22, &[kind, number]).unwrap(), Sid::new(5, &[88, kind, number]).unwrap()]
}

#[test]
fn x9_an_owner_or_group_of_the_host_takes_a_privilege() {
    as_root("x9_an_owner_or_group_of_the_host_takes_a_privilege", async |world| {
        let (mut bob, his) = world.session("bob", &Offer::default()).await;
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        world.file("f", "content");
        let file = bob.open_file(&his, &Want::existing("f")).await;
        for number in [1, 61_001] {
            for sid in spellings(1, number) {
                let said = set(&mut bob, &his, file, Parts::OWNER, &owned_by(sid)).await;
                assert_eq!(said, Status::INVALID_OWNER, "{sid}");
            }
            for sid in spellings(2, number) {
                let said = set(&mut bob, &his, file, Parts::GROUP, &grouped_with(sid)).await;
                assert_eq!(said, Status::INVALID_PRIMARY_GROUP, "{sid}");
            }
        }
        assert_eq!(owner(world, "f"), (0, 0));
        // Bob cannot change the owner, but setting the present owner again is allowed.
        for sid in spellings(1, 0) {
            let said = set(&mut bob, &his, file, Parts::OWNER, &owned_by(sid)).await;
            assert_eq!(said, Status::SUCCESS, "{sid}");
        }
        for sid in spellings(2, 0) {
            let said = set(&mut bob, &his, file, Parts::GROUP, &grouped_with(sid)).await;
            assert_eq!(said, Status::SUCCESS, "{sid}");
        }
        // A new owner that is an account of Frevo is only stored; the file's owner on the host
        // stays.
        let own = world.server.with_principals(|known| known.user_sid("bob", None));
        let said = set(&mut bob, &his, file, Parts::OWNER, &owned_by(own)).await;
        assert_eq!(said, Status::SUCCESS);
        assert_eq!(owner(world, "f"), (0, 0));
        // A descriptor is stored now, but bob still cannot set the owner to another user of the
        // host.
        for sid in spellings(1, 61_001) {
            let said = set(&mut bob, &his, file, Parts::OWNER, &owned_by(sid)).await;
            assert_eq!(said, Status::INVALID_OWNER, "{sid}");
        }
        assert_eq!(owner(world, "f"), (0, 0));
        bob.close(&his, file).await;

        // Ann has SeRestorePrivilege, which allows every owner.
        world.file("g", "content");
        let file = ann.open_file(&hers, &Want::existing("g")).await;
        let uid = Sid::unix_user(61_001);
        let said = set(&mut ann, &hers, file, Parts::OWNER, &owned_by(uid)).await;
        assert_eq!(said, Status::SUCCESS);
        let gid = Sid::unix_group(61_100);
        let said = set(&mut ann, &hers, file, Parts::GROUP, &grouped_with(gid)).await;
        assert_eq!(said, Status::SUCCESS);
        assert_eq!(owner(world, "g"), (61_001, 61_100));
        ann.close(&hers, file).await;
    });
}

#[test]
fn x9_set_user_id_goes_with_every_change_and_never_comes_back() {
    as_root("x9_set_user_id_goes_with_every_change_and_never_comes_back", async |world| {
        let (mut bob, his) = world.session("bob", &Offer::default()).await;
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        let program = |name: &str| {
            world.file(name, "#!/bin/true");
            chown(world.path(name), Some(61_001), Some(61_001)).unwrap();
            set_mode(&world.path(name), 0o6755);
        };
        // Bob sets an access list, which must clear set-user-ID.
        program("list");
        protect(&mut bob, &his, &Want::existing("list"), &everyone(AccessMask::FILE_ALL)).await;
        assert_eq!(mode(world, "list"), 0o777);
        // Bob writes data, which must clear set-user-ID. Opening for writing alone must not.
        program("data");
        let want = Want::existing("data").access(AccessMask::WRITE_DATA);
        let file = bob.open_file(&his, &want).await;
        assert_eq!(mode(world, "data"), 0o6755, "opening changes nothing");
        bob.write(&his, file, 0, b"#!/bin/ksh ").await;
        assert_eq!(mode(world, "data"), 0o755);
        bob.close(&his, file).await;
        // Ann may set the owner, which must clear set-user-ID.
        program("owner");
        let file = ann.open_file(&hers, &Want::existing("owner")).await;
        let said = set(&mut ann, &hers, file, Parts::OWNER, &owned_by(Sid::unix_user(0))).await;
        assert_eq!((said, mode(world, "owner")), (Status::SUCCESS, 0o755));
        // Setting the mode by a SID, as POSIX clients do, must clear set-user-ID.
        for kind in 1..=2 {
            program("mode");
            let sid = Sid::new(5, &[88, 3, 0o6755]).unwrap();
            let file = bob.open_file(&his, &Want::existing("mode")).await;
            let mut new = everyone(AccessMask::FILE_ALL);
            if let Some(list) = &mut new.dacl {
                list.aces[0] = frevo_wire::dtyp::Ace::allow(
                    frevo_wire::dtyp::AceFlags::EMPTY,
                    AccessMask::EMPTY,
                    sid,
                );
            }
            let said = set(&mut bob, &his, file, Parts::DACL, &new).await;
            assert_eq!((said, mode(world, "mode")), (Status::SUCCESS, 0o755), "{kind}");
            bob.close(&his, file).await;
        }
        ann.close(&hers, file).await;
    });
}

/// The entries that a directory passes on to new files stay, whatever its group is.
#[test]
fn x9_a_directory_keeps_its_set_group_id() {
    as_root("x9_a_directory_keeps_its_set_group_id", async |world| {
        let (mut bob, his) = world.session("bob", &Offer::default()).await;
        std::fs::create_dir(world.path("d")).unwrap();
        chown(world.path("d"), None, Some(61_100)).unwrap();
        set_mode(&world.path("d"), 0o3775);
        protect(&mut bob, &his, &Want::directory("d"), &everyone(AccessMask::FILE_ALL)).await;
        assert_eq!(mode(world, "d"), 0o3777);
        let made = bob.open_file(&his, &Want::directory("d\\e")).await;
        bob.close(&his, made).await;
        assert_eq!((owner(world, "d/e").1, mode(world, "d/e") & 0o2000), (61_100, 0o2000));
    });
}
