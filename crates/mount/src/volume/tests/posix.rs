//! Against a server with the POSIX extensions.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

use frevo_client::Options;
use fuser::FileType;

use super::*;
use crate::volume::Changes;

pub(super) async fn posix(world: &World) -> Arc<Volume> {
    posix_as(world, Settings::of(0, 0)).await
}

async fn posix_as(world: &World, settings: Settings) -> Arc<Volume> {
    let options = Options::new().posix(true);
    let share = world.session(options).await.share("data").await.unwrap();
    assert!(share.use_posix().await.unwrap());
    Volume::new(share, "", settings)
}

async fn seen(volume: &Volume, file: &str) -> fuser::FileAttr {
    volume.lookup(ROOT, name(file)).await.unwrap().found().attr
}

#[test]
fn modes_and_owners_are_the_servers() {
    in_world(async |world| {
        let one = posix(world).await;
        let (found, handle) = one.create(ROOT, name("f"), libc::O_RDWR, 0o100_640).await.unwrap();
        let there = || std::fs::metadata(world.path("f")).unwrap();
        assert_eq!((found.attr.perm, there().permissions().mode() & 0o7777), (0o640, 0o640));
        one.write(handle, 0, b"data").await.unwrap();
        one.close(handle).await;
        let found = one.mkdir(ROOT, name("d"), 0o750).await.unwrap();
        assert_eq!((found.attr.kind, found.attr.perm), (FileType::Directory, 0o750));
        let file = seen(&one, "f").await;
        assert_eq!((file.perm, file.size, file.nlink), (0o640, 4, 1));
        assert_eq!((file.uid, file.gid), (there().uid(), there().gid()));
        let changes = Changes { mode: Some(0o100_700), ..Changes::default() };
        let found = one.setattr(file.ino.0, changes).await.unwrap();
        assert_eq!((found.attr.perm, there().permissions().mode() & 0o7777), (0o700, 0o700));
        // Only an administrator may change the owner of a file, so chown(2) fails and the owners
        // stay.
        let owners = (there().uid(), there().gid());
        let changes = Changes { uid: Some(12), gid: Some(34), ..Changes::default() };
        let refused = one.setattr(file.ino.0, changes).await.err();
        assert_eq!(refused, Some(Errno::EPERM));
        assert_eq!((there().uid(), there().gid()), owners);
        // A program on the host changes the mode and makes a link. A look-up and a listing must
        // show both.
        std::fs::set_permissions(world.path("f"), PermissionsExt::from_mode(0o604)).unwrap();
        std::fs::hard_link(world.path("f"), world.path("g")).unwrap();
        let two = posix(world).await;
        assert_eq!(seen(&two, "f").await.perm, 0o604);
        let listing = two.opendir(ROOT).unwrap();
        let listed = two.entries(listing, 2, false).await.unwrap();
        for (_, entry) in listed.entries() {
            let super::super::Entry::Named(named) = entry else { continue };
            let found = two.reply_listed(&listed, named);
            let is_dir = named.file_name() == "d";
            let wanted = if is_dir { 0o750 } else { 0o604 };
            assert_eq!(found.attr.perm, wanted, "{}", named.file_name());
            assert!(is_dir || found.attr.nlink == 2);
        }
        // Without the POSIX extensions the mount's settings decide about the mode, whatever the
        // host has.
        assert_eq!(seen(&*plain(world).await, "f").await.perm, 0o755);
    });
}

#[test]
fn names_and_kinds_are_posix_too() {
    in_world(async |world| {
        let one = posix(world).await;
        for file in ["a:b", "A:B", "what?", "x.", "back\\slash"] {
            let handle = one.make(file).await;
            one.write(handle, 0, file.as_bytes()).await.unwrap();
            one.close(handle).await;
            assert_eq!(std::fs::read(world.path(file)).unwrap(), file.as_bytes(), "{file}");
            assert_eq!(seen(&one, file).await.size, file.len() as u64);
        }
        let mut names = directories::names_of(&one, ROOT).await;
        names.sort();
        assert_eq!(names, ["A:B", "a:b", "back\\slash", "what?", "x."]);
        one.rename((ROOT, name("a:b")), (ROOT, name("c|d")), 0).await.unwrap();
        one.unlink(ROOT, name("A:B")).await.unwrap();
        assert!(world.path("c|d").exists() && !world.path("A:B").exists());
        let found = one.mknod(ROOT, name("pipe"), libc::S_IFIFO | 0o622, 0).await.unwrap();
        assert_eq!(found.attr.kind, FileType::NamedPipe);
        assert!(std::fs::metadata(world.path("pipe")).unwrap().file_type().is_fifo());
        let found = one.symlink(ROOT, name("link"), std::path::Path::new("what?")).await.unwrap();
        assert_eq!(found.attr.kind, FileType::Symlink);
        assert_eq!(std::fs::read_link(world.path("link")).unwrap().to_str(), Some("what?"));
        let target = one.readlink(found.attr.ino.0).await.unwrap();
        assert_eq!(target.to_str(), Some("what?"));
        std::os::unix::net::UnixListener::bind(world.path("socket")).unwrap();
        assert_eq!(seen(&one, "socket").await.kind, FileType::Socket);
        // Without the POSIX extensions special files cannot be made, so the request fails with
        // EPERM.
        let plain = plain(world).await;
        let refused = plain.mknod(ROOT, name("other"), libc::S_IFIFO | 0o622, 0).await;
        assert_eq!(refused.err(), Some(Errno::EPERM));
        assert!(!world.path("other").exists());
    });
}

#[test]
fn a_posix_file_outlives_its_session() {
    in_world(async |world| {
        let one = posix(world).await;
        let handle = one.make("what?").await;
        for round in 0..4_u64 {
            one.write(handle, round * 4, b"data").await.unwrap();
            end_sessions(world);
            assert_eq!(one.read(handle, 0, 100).await.unwrap().len() as u64, (round + 1) * 4);
        }
        one.close(handle).await;
        assert_eq!(std::fs::read(world.path("what?")).unwrap(), b"data".repeat(4));
        assert_eq!(seen(&one, "what?").await.perm, 0o644);
    });
}

#[test]
fn one_listing_tells_how_many_links_many_files_have() {
    in_world(async |world| {
        let attr_timeout = std::time::Duration::from_millis(500);
        let one = posix_as(world, Settings { attr_timeout, ..Settings::of(0, 0) }).await;
        let mut nodes = Vec::new();
        for at in 0..6 {
            std::fs::write(world.path(&format!("f{at}")), b"").unwrap();
            let id = seen(&one, &format!("f{at}")).await.ino.0;
            nodes.push(one.nodes.find(id).unwrap());
            std::fs::hard_link(world.path(&format!("f{at}")), world.path(&format!("g{at}")))
                .unwrap();
        }
        nodes.iter().for_each(|node| node.invalidate());
        tokio::time::sleep(attr_timeout + std::time::Duration::from_millis(50)).await;
        for node in &nodes {
            assert_eq!(one.getattr(node.id).await.unwrap().attr.nlink, 2);
        }
        let at = |node: &Node| node.known().unwrap().at;
        assert_eq!(at(&nodes[4]), at(&nodes[5]), "they were not asked for by name");
    });
}

#[test]
fn devices_have_the_numbers_that_the_server_tells() {
    in_world(async |world| {
        use rustix::fs::{CWD, FileType as Kind, Mode, makedev, mknodat};
        let there = |file: &str, kind, major, minor| {
            let made = mknodat(CWD, world.path(file), kind, Mode::RUSR, makedev(major, minor));
            made.is_ok()
        };
        if !there("null", Kind::CharacterDevice, 1, 3) {
            eprintln!("no device can be made here");
            return;
        }
        assert!(there("large", Kind::BlockDevice, 0xfff, 0xf_fffe));
        let wanted = |major, minor| u32::try_from(libc::makedev(major, minor)).unwrap();
        let one = posix(world).await;
        let null = seen(&one, "null").await;
        assert_eq!((null.kind, null.rdev), (FileType::CharDevice, wanted(1, 3)));
        let large = seen(&one, "large").await;
        assert_eq!((large.kind, large.rdev), (FileType::BlockDevice, wanted(0xfff, 0xf_fffe)));
        // A listing must have the right device number, too, because the kernel does not ask for it
        // again.
        for volume in [posix(world).await, plain(world).await] {
            let listing = volume.opendir(ROOT).unwrap();
            let listed = volume.entries(listing, 2, false).await.unwrap();
            let mut found = Vec::new();
            for (_, entry) in listed.entries() {
                let super::super::Entry::Named(named) = entry else { continue };
                found
                    .push((named.file_name().to_owned(), volume.reply_listed(&listed, named).attr));
            }
            found.sort_by_key(|(name, _)| name.clone());
            let [(_, large), (_, null)] = &*found else { panic!("{found:?}") };
            assert_eq!((null.kind, null.rdev), (FileType::CharDevice, wanted(1, 3)));
            assert_eq!((large.kind, large.rdev), (FileType::BlockDevice, wanted(0xfff, 0xf_fffe)));
        }
        // Only devices have a device number, so a regular file shows 0.
        let handle = one.make("file").await;
        one.close(handle).await;
        assert_eq!(seen(&one, "file").await.rdev, 0);
    });
}
