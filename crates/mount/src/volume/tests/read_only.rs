//! Read-only files and directories, which POSIX lets everybody remove who may write the directory.

use frevo_client::{FileAttributes, SetMetadata};

use super::*;
use crate::volume::Changes;

/// Makes `file` read-only, as `chmod 444` does.
async fn make_read_only(volume: &Volume, file: &str) {
    let handle = volume.make(file).await;
    volume.write(handle, 0, file.as_bytes()).await.unwrap();
    volume.close(handle).await;
    let changes = Changes { mode: Some(0o444), ..Changes::default() };
    let found = volume.setattr(volume.node_of(file).id, changes).await.unwrap();
    assert_eq!(found.attr.perm & 0o222, 0);
    assert!(is_read_only(volume, file).await);
}

async fn is_read_only(volume: &Volume, file: &str) -> bool {
    let found = volume.share.metadata(file).await.unwrap();
    found.attributes().contains(FileAttributes::READONLY)
}

/// Mounts as of a server with class 64 and as of one without.
async fn each_kind(world: &World) -> [Arc<Volume>; 2] {
    let (one, two) = (plain(world).await, plain(world).await);
    two.plain.store(true, std::sync::atomic::Ordering::Relaxed);
    two.share.note_no_read_only_removals();
    [one, two]
}

#[test]
fn a_read_only_file_is_removed() {
    in_world(async |world| {
        for one in each_kind(world).await {
            make_read_only(&one, "f").await;
            one.unlink(ROOT, name("f")).await.unwrap();
            // The mount has no attributes of `g`, so it does not know that `g` is read-only.
            make_read_only(&one, "g").await;
            one.node_of("g").invalidate();
            one.unlink(ROOT, name("g")).await.unwrap();
            assert_eq!(std::fs::read_dir(world.path("")).unwrap().count(), 0);
        }
    });
}

#[test]
fn an_open_read_only_file_is_removed_and_goes_on() {
    in_world(async |world| {
        for one in each_kind(world).await {
            make_read_only(&one, "f").await;
            let handle = one.take("f", libc::O_RDONLY).await;
            one.unlink(ROOT, name("f")).await.unwrap();
            assert_eq!(&*one.read(handle, 0, 9).await.unwrap(), b"f");
            one.close(handle).await;
            assert_eq!(std::fs::read_dir(world.path("")).unwrap().count(), 0);
        }
    });
}

#[test]
fn the_other_link_of_a_removed_file_stays_read_only() {
    in_world(async |world| {
        for one in each_kind(world).await {
            make_read_only(&one, "f").await;
            one.share.hard_link("f", "link").await.unwrap();
            one.unlink(ROOT, name("f")).await.unwrap();
            assert!(is_read_only(&one, "link").await);
            one.unlink(ROOT, name("link")).await.unwrap();
            assert_eq!(std::fs::read_dir(world.path("")).unwrap().count(), 0);
        }
    });
}

#[test]
fn a_read_only_directory_is_removed_when_it_is_empty() {
    in_world(async |world| {
        for one in each_kind(world).await {
            one.mkdir(ROOT, name("d"), 0o755).await.unwrap();
            std::fs::write(world.path("d/f"), b"data").unwrap();
            let read_only = SetMetadata::new().attributes(FileAttributes::READONLY);
            one.share.set_metadata("d", &read_only).await.unwrap();
            assert_eq!(one.rmdir(ROOT, name("d")).await, Err(Errno::ENOTEMPTY));
            assert!(is_read_only(&one, "d").await, "it stays as it was");
            std::fs::remove_file(world.path("d/f")).unwrap();
            one.rmdir(ROOT, name("d")).await.unwrap();
            assert!(!world.path("d").exists());
        }
    });
}

#[test]
fn a_read_only_file_is_replaced() {
    in_world(async |world| {
        for one in each_kind(world).await {
            make_read_only(&one, "f").await;
            std::fs::write(world.path("new"), b"new").unwrap();
            one.rename((ROOT, name("new")), (ROOT, name("f")), 0).await.unwrap();
            assert_eq!(std::fs::read(world.path("f")).unwrap(), b"new");
            assert!(!is_read_only(&one, "f").await);
            // The source is missing, so the rename fails and the target must stay read-only.
            make_read_only(&one, "g").await;
            let gone = one.rename((ROOT, name("absent")), (ROOT, name("g")), 0).await;
            assert_eq!(gone, Err(Errno::ENOENT));
            assert!(is_read_only(&one, "g").await);
            for file in ["f", "g"] {
                one.unlink(ROOT, name(file)).await.unwrap();
            }
        }
    });
}

/// Without checks by the kernel the mount decides access(2).
#[test]
fn access_tells_which_rights_a_file_gives_nobody() {
    use fuser::AccessFlags;
    in_world(async |world| {
        let one = plain(world).await;
        make_read_only(&one, "f").await;
        let id = one.node_of("f").id;
        let (user, root) = (1000, 0);
        assert_eq!(one.access(id, AccessFlags::R_OK, user), Ok(()));
        assert_eq!(one.access(id, AccessFlags::W_OK, user), Err(Errno::EACCES));
        assert_eq!(one.access(id, AccessFlags::W_OK, root), Ok(()));
        let is_executable = one.settings.file_mode & 0o111 != 0;
        assert_eq!(one.access(id, AccessFlags::X_OK, user).is_ok(), is_executable);
        assert_eq!(one.access(ROOT, AccessFlags::W_OK | AccessFlags::X_OK, user), Ok(()));
        let reader = volume(world, Settings { read_only: true, ..Settings::of(0, 0) }).await;
        assert_eq!(reader.access(ROOT, AccessFlags::W_OK, root), Err(Errno::EROFS));
    });
}
