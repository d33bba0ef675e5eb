//! Previous versions: FSCTL_SRV_ENUMERATE_SNAPSHOTS, the TWrp create context,
//! and names with a `@GMT-` component. Plain copies serve as snapshots.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use frevo_posix::{PosixOptions, PosixVfs};
use frevo_store::Vfs;
use frevo_store::snapshot::Moment;
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::command::ioctl::snapshots::SnapshotArray;
use frevo_wire::command::query_directory::QueryDirectoryFlags;
use frevo_wire::create_context::{CreateContext, CreateContexts};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::FileInfoClass;
use tempfile::TempDir;

use super::calls::*;
use crate::client::files::{lock_draft, write_draft};
use crate::client::world::{EXCLUSIVE, over};
use crate::client::*;

const OLD: &str = "@GMT-2024.02.29-12.00.00";
const NEW: &str = "@GMT-2025.01.01-00.00.00";
const ENUMERATE: CtlCode = CtlCode::SRV_ENUMERATE_SNAPSHOTS;

fn fill(root: &Path, text: &str) {
    std::fs::create_dir_all(root.join("dir")).unwrap();
    std::fs::write(root.join("f"), text).unwrap();
    std::fs::write(root.join("dir/inside"), text).unwrap();
}

/// A share and two snapshots of it; `late` came after the older one.
fn share(dir: &TempDir) {
    let root = dir.path();
    fill(root, "live");
    fill(&root.join(".snapshots").join(OLD), "old");
    fill(&root.join(".snapshots").join(NEW), "new");
    std::fs::write(root.join("late"), "live").unwrap();
    std::fs::write(root.join(".snapshots").join(NEW).join("late"), "new").unwrap();
    std::fs::create_dir(root.join(".snapshots/unrelated")).unwrap();
}

fn in_snapshots(pattern: &str, make: impl FnOnce(&TempDir), test: impl AsyncFnOnce(&World, &Path)) {
    let dir = tempfile::tempdir().unwrap();
    make(&dir);
    let snapshots = Some(pattern.parse().unwrap());
    let options = PosixOptions { snapshots, ..PosixOptions::default() };
    let vfs: Arc<dyn Vfs> = Arc::new(PosixVfs::open_root(dir.path(), options).unwrap());
    over(&vfs, async |world| test(world, dir.path()).await);
}

const PATTERN: &str = ".snapshots/@GMT-%Y.%m.%d-%H.%M.%S";

fn warped(want: Want, token: &str) -> Want {
    let time = Moment::of_token(token).unwrap().time();
    let context = CreateContext::Timewarp(time);
    let contexts = CreateContexts::from_requests(&[context]).as_bytes().to_vec();
    Want { contexts, ..want }
}

fn reads(name: &str) -> Want {
    Want::existing(name).access(AccessMask::FILE_GENERIC_READ)
}

async fn content(peer: &mut Peer, mount: &Mount, want: &Want) -> String {
    let file = peer.open_file(mount, want).await;
    let bytes = peer.read(mount, file, 0, 64).await;
    peer.close(mount, file).await;
    String::from_utf8(bytes).unwrap()
}

async fn tokens(peer: &mut Peer, mount: &Mount, name: &str) -> Vec<String> {
    let file = peer.open_file(mount, &reads(name)).await;
    let reply = ask(peer, mount, ENUMERATE, file, &[], 4096).await;
    peer.close(mount, file).await;
    let bytes = output(reply.ok());
    let array = SnapshotArray::parse(&bytes).unwrap();
    assert_eq!(array.number_of_snapshots as usize, array.snapshots.len());
    array.snapshots.iter().map(|token| token.to_string().unwrap()).collect()
}

#[test]
fn earlier_versions_are_listed_and_read() {
    in_snapshots(PATTERN, share, async |world, _| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for name in ["", "f", "dir", "dir\\inside"] {
            assert_eq!(tokens(&mut peer, &mount, name).await, [NEW, OLD], "{name}");
        }
        assert_eq!(tokens(&mut peer, &mount, "late").await, [NEW]);
        assert_eq!(content(&mut peer, &mount, &reads("f")).await, "live");
        for (token, text) in [(OLD, "old"), (NEW, "new")] {
            for name in ["f", "F", "dir\\inside"] {
                let want = warped(reads(name), token);
                assert_eq!(content(&mut peer, &mount, &want).await, text);
            }
            for name in [
                format!("{token}\\dir\\inside"),
                format!("dir\\{token}\\inside"),
                format!("dir\\inside\\{token}"),
                format!("{}\\f", token.to_lowercase()),
            ] {
                assert_eq!(content(&mut peer, &mount, &reads(&name)).await, text, "{name}");
            }
            let both = warped(reads(&format!("{token}\\f")), token);
            assert_eq!(content(&mut peer, &mount, &both).await, text);
        }
        let missing = Status::OBJECT_NAME_NOT_FOUND;
        let none = "@GMT-2024.02.29-12.00.01";
        peer.create(&mount, &warped(reads("f"), none)).await.expect(missing);
        peer.create(&mount, &reads(&format!("{none}\\f"))).await.expect(missing);
        peer.create(&mount, &warped(reads("late"), OLD)).await.expect(missing);
    });
}

/// Clients reach the folder of the snapshots by the names of snapshots alone. Its own path has the answer of all
/// guarded names, in the share as in a snapshot, whether something is there or not: so it tells nothing.
#[test]
fn the_folder_of_snapshots_has_one_answer() {
    in_snapshots(PATTERN, share, async |world, root| {
        std::fs::create_dir(root.join(".snapshots").join(OLD).join(".snapshots")).unwrap();
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for name in [
            String::from(".snapshots"),
            String::from(".SNAPSHOTS\\none"),
            String::from(".snapshots\\unrelated"),
            String::from(".snapshots\\none\\f"),
            format!(".snapshots\\{OLD}"),
            format!(".snapshots\\{OLD}\\f"),
            format!(".snapshots\\{NEW}\\none\\f"),
            format!("{NEW}\\.snapshots"),
            format!("{OLD}\\.snapshots\\none"),
        ] {
            for want in [Want::existing(&name), reads(&name)] {
                let reply = peer.create(&mount, &want).await;
                assert_eq!(reply.status(), Status::ACCESS_DENIED, "{name}");
            }
        }
        for token in [OLD, NEW] {
            for name in [".snapshots", ".snapshots\\f"] {
                let want = warped(reads(name), token);
                peer.create(&mount, &want).await.expect(Status::ACCESS_DENIED);
            }
        }
    });
}

/// MS-SMB2 3.3.5.15.1, 2.2.32.2.
#[test]
fn a_listing_that_does_not_fit_says_how_long_it_is() {
    in_snapshots(PATTERN, share, async |world, _| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &reads("f")).await;
        let invalid = Status::INVALID_PARAMETER;
        ask(&mut peer, &mount, ENUMERATE, file, &[], 15).await.expect(invalid);
        let size = 2 * 50 + 2;
        for (room, returned) in [(16, 0), (12 + size - 1, 0), (12 + size, 2)] {
            let reply = ask(&mut peer, &mount, ENUMERATE, file, &[], room).await;
            let bytes = output(reply.ok());
            let array = SnapshotArray::parse(&bytes).unwrap();
            assert_eq!(array.number_of_snapshots, 2);
            assert_eq!(array.number_of_snapshots_returned, returned);
            assert_eq!(array.snapshot_array_size, size);
        }
    });
}

#[test]
fn nothing_of_a_snapshot_is_changed() {
    in_snapshots(PATTERN, share, async |world, root| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let protected = Status::MEDIA_WRITE_PROTECTED;
        for access in [
            AccessMask::WRITE_DATA,
            AccessMask::APPEND_DATA,
            AccessMask::WRITE_EA,
            AccessMask::WRITE_ATTRIBUTES,
            AccessMask::DELETE,
            AccessMask::WRITE_DAC,
            AccessMask::WRITE_OWNER,
            AccessMask::GENERIC_WRITE,
        ] {
            for name in ["f", "dir"] {
                let want = warped(Want::existing(name).access(access), OLD);
                peer.create(&mount, &want).await.expect(protected);
            }
        }
        for disposition in [
            CreateDisposition::CREATE,
            CreateDisposition::SUPERSEDE,
            CreateDisposition::OVERWRITE,
            CreateDisposition::OVERWRITE_IF,
        ] {
            for name in ["f", "made"] {
                let want = warped(reads(name).disposition(disposition), OLD);
                peer.create(&mount, &want).await.expect(protected);
            }
        }
        let made = warped(reads("made").disposition(CreateDisposition::OPEN_IF), OLD);
        peer.create(&mount, &made).await.expect(protected);
        let deletes = Want::existing("f").options(CreateOptions::DELETE_ON_CLOSE);
        peer.create(&mount, &warped(deletes, OLD)).await.expect(protected);
        // A snapshot cannot be changed, so even requests for more access get only rights to read.
        let both = AccessMask::READ_DATA | AccessMask::WRITE_DATA;
        for access in [AccessMask::MAXIMUM_ALLOWED, AccessMask::GENERIC_ALL, both] {
            let most = warped(Want::existing("f").access(access), OLD);
            let file = peer.open_file(&mount, &most).await;
            assert_eq!(peer.read(&mount, file, 0, 64).await, b"old");
            peer.on(&mount, write_draft(file, 0, b"x")).await.expect(protected);
            for code in [CtlCode::SET_SPARSE, CtlCode::SET_ZERO_DATA] {
                let status = ask(&mut peer, &mount, code, file, &[0; 16], 0).await.status();
                assert!([Status::ACCESS_DENIED, protected].contains(&status));
            }
            peer.close(&mount, file).await;
        }
        assert_eq!(std::fs::read(root.join(".snapshots").join(OLD).join("f")).unwrap(), b"old");
    });
}

/// The same file by its inode, as copying jobs make it with hard links: still
/// not the same to share modes and locks.
#[test]
fn a_snapshot_shares_nothing_with_what_lives() {
    let make = |dir: &TempDir| {
        share(dir);
        let snapshots = dir.path().join(".snapshots");
        std::fs::write(dir.path().join("linked"), "linked").unwrap();
        for token in [OLD, NEW] {
            let link = snapshots.join(token).join("linked");
            std::fs::hard_link(dir.path().join("linked"), link).unwrap();
        }
    };
    in_snapshots(PATTERN, make, async |world, _| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let alone = Want::existing("linked").sharing(Default::default());
        let live = peer.open_file(&mount, &alone).await;
        peer.on(&mount, lock_draft(live, &[(0, 6, EXCLUSIVE)])).await.ok();
        for token in [OLD, NEW] {
            let jealous = reads("linked").sharing(Default::default());
            let file = peer.open_file(&mount, &warped(jealous, token)).await;
            assert_eq!(peer.read(&mount, file, 0, 64).await, b"linked");
            peer.on(&mount, lock_draft(file, &[(0, 6, EXCLUSIVE)])).await.ok();
            // Two Opens in the same snapshot are subject to each other's share modes.
            let again = peer.create(&mount, &warped(reads("linked"), token)).await;
            again.expect(Status::SHARING_VIOLATION);
        }
    });
}

#[test]
fn folders_of_a_snapshot_are_listed() {
    in_snapshots(PATTERN, share, async |world, _| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let folder = peer.open_file(&mount, &warped(reads("dir"), OLD)).await;
        let draft = list_draft(folder, FileInfoClass::NAMES, QueryDirectoryFlags::EMPTY, "*");
        let reply = peer.on(&mount, draft).await;
        let reply = reply.ok();
        let inside: Vec<u8> = "inside".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(reply.message.windows(inside.len()).any(|w| w == inside));
    });
}

/// Snapper's way: numbered folders, whose birth is the time.
#[test]
fn numbered_folders_are_dated_by_their_birth() {
    let make = |dir: &TempDir| {
        fill(dir.path(), "live");
        fill(&dir.path().join(".snapshots/7/snapshot"), "seven");
        // Snapshot 8 has another folder, but not the share's, so it is not listed.
        std::fs::create_dir_all(dir.path().join(".snapshots/8/other")).unwrap();
    };
    in_snapshots(".snapshots/%N/snapshot", make, async |world, root| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let listed = tokens(&mut peer, &mount, "f").await;
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!(content(&mut peer, &mount, &warped(reads("f"), &listed[0])).await, "seven");
        // The snapshot was removed, so it is not listed and not found any more.
        std::fs::remove_dir_all(root.join(".snapshots/7")).unwrap();
        assert!(tokens(&mut peer, &mount, "f").await.is_empty());
        let want = warped(reads("f"), &listed[0]);
        peer.create(&mount, &want).await.expect(Status::OBJECT_NAME_NOT_FOUND);
    });
}

/// Clients can write where the snapshots are: links there lead nowhere.
#[test]
fn links_are_no_snapshots() {
    let outside = tempfile::tempdir().unwrap();
    fill(outside.path(), "outside");
    let make = |dir: &TempDir| {
        share(dir);
        symlink(outside.path(), dir.path().join(".snapshots/@GMT-2020.01.01-00.00.00")).unwrap();
    };
    in_snapshots(PATTERN, make, async |world, _| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        assert_eq!(tokens(&mut peer, &mount, "f").await, [NEW, OLD]);
        let reply = peer.create(&mount, &warped(reads("f"), "@GMT-2020.01.01-00.00.00")).await;
        assert_ne!(reply.status(), Status::SUCCESS);
    });
}

/// A share that has no snapshots has no tokens either.
#[test]
fn without_snapshots_a_token_is_a_name() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file(OLD)).await;
        peer.close(&mount, file).await;
        assert!(world.path(OLD).exists());
        assert!(tokens(&mut peer, &mount, OLD).await.is_empty());
        let want = warped(reads(OLD), OLD);
        peer.create(&mount, &want).await.expect(Status::OBJECT_NAME_NOT_FOUND);
    });
}
