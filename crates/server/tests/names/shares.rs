//! Shares of one file system: names that look alike, folders in each other, and one
//! folder that is shared twice.

use std::path::Path;
use std::sync::Arc;

use frevo_posix::{PosixOptions, PosixVfs};
use frevo_server::share::Share;
use frevo_wire::command::create::{CreateOptions, ShareAccess};
use frevo_wire::command::query_directory::{self, QueryDirectoryFlags};
use frevo_wire::create_context::{CreateContext, CreateContexts};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::{DirectoryEntries, FileInfoClass};

use crate::client::files::{delete_draft, rename_draft};
use crate::client::world::{Users, in_own_world, serving};
use crate::client::*;

/// Opens for deletion, which all may do at a time.
fn shared(name: &str) -> Want {
    let sharing = ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE;
    Want::existing(name).access(AccessMask::DELETE | AccessMask::READ_DATA).sharing(sharing)
}

fn of_posix_client(want: Want) -> Want {
    let contexts = CreateContexts::from_requests(&[CreateContext::Posix { mode: 0 }]);
    Want { contexts: contexts.as_bytes().to_vec(), ..want }
}

/// A server with shares of these folders below one; each has a folder `docs` with a file.
fn in_shares(
    folders: &[(&str, &str)],
    options: &PosixOptions,
    test: impl AsyncFnOnce(&World, &mut Peer, Vec<Mount>),
) {
    let dir = tempfile::tempdir().unwrap();
    let share = |(name, folder): &(&str, &str)| {
        let root = dir.path().join(folder);
        std::fs::create_dir_all(root.join("docs")).unwrap();
        std::fs::write(root.join("docs/file"), folder).unwrap();
        let vfs = PosixVfs::open_root(&root, options.clone()).unwrap();
        Share::disk(name, Arc::new(vfs))
    };
    let shares = folders.iter().map(share);
    let host = Arc::new(frevo_server::ambient::Host);
    let server = serving(settings(), shares, Arc::new(Users), host);
    let world = World::of(server, dir);
    in_own_world(false, &world, async |world| {
        let mut peer = world.connect();
        peer.negotiate(&Offer { posix: true, ..Offer::default() }).await;
        let logon = peer.log_on("ann").await;
        let mut mounts = Vec::new();
        for (name, _) in folders {
            mounts.push(peer.mount(&logon, name).await);
        }
        test(world, &mut peer, mounts).await;
    });
}

fn exists(world: &World, below: &str) -> bool {
    Path::exists(&world.path(below))
}

/// An Open below another folder of the same name hinders no rename, and is not taken for the
/// renamed file.
#[test]
fn folders_of_other_shares_are_others() {
    in_shares(&[("one", "one"), ("two", "two")], &Default::default(), async |world, peer, m| {
        let [one, two] = &m[..] else { panic!("two shares") };
        for is_posix in [false, true] {
            let open = peer.open_file(two, &shared("docs\\file")).await;
            let want = Want::directory("docs");
            let want = if is_posix { of_posix_client(want) } else { want };
            let folder = peer.open_file(one, &want).await;
            let renamed = rename_draft(FileInfoClass::RENAME, folder, "papers", false);
            peer.on(one, renamed).await.ok();
            let back = rename_draft(FileInfoClass::RENAME, folder, "docs", false);
            if !is_posix {
                peer.on(one, back).await.ok();
            }
            peer.close(one, folder).await;
            // The folder was renamed through share one. In share two, the file's Open must keep its
            // own path.
            peer.on(two, rename_draft(FileInfoClass::RENAME, open, "docs\\new", false)).await.ok();
            peer.on(two, rename_draft(FileInfoClass::RENAME, open, "docs\\file", false)).await.ok();
            if is_posix {
                peer.on(two, delete_draft(open)).await.ok();
            }
            peer.close(two, open).await;
            assert_eq!(exists(world, "two/docs/file"), !is_posix);
        }
        assert!(exists(world, "one/papers/file"));
    });
}

/// One shared folder in another: a file that is deleted by its name in one share goes, though
/// its last Open is in the other share.
#[test]
fn what_is_deleted_in_one_share_goes_with_the_last_close_in_another() {
    in_shares(&[("all", ""), ("one", "one")], &Default::default(), async |world, peer, m| {
        let [all, one] = &m[..] else { panic!("two shares") };
        for (deleter, its_name, last, name) in
            [(all, "one\\docs\\f", one, "docs\\f"), (one, "docs\\f", all, "one\\docs\\f")]
        {
            world.file("one/docs/f", b"");
            let deleting = shared(its_name).options(CreateOptions::DELETE_ON_CLOSE);
            let deleting = peer.open_file(deleter, &deleting).await;
            let open = peer.open_file(last, &shared(name)).await;
            peer.close(deleter, deleting).await;
            peer.create(last, &shared(name)).await.expect(Status::DELETE_PENDING);
            assert!(exists(world, "one/docs/f"));
            peer.close(last, open).await;
            assert!(!exists(world, "one/docs/f"), "{its_name}");
        }
    });
}

/// The same folder is open in both: each looks below its own name of it.
#[test]
fn a_folder_is_listed_by_the_name_of_its_share() {
    in_shares(&[("all", ""), ("one", "one")], &Default::default(), async |_, peer, m| {
        let [all, one] = &m[..] else { panic!("two shares") };
        let class = FileInfoClass::DIRECTORY;
        for (first, its_name, second, name) in
            [(all, "one\\docs", one, "docs"), (one, "docs", all, "one\\docs")]
        {
            let held = peer.open_file(first, &Want::directory(its_name)).await;
            let folder = peer.open_file(second, &Want::directory(name)).await;
            for pattern in ["file", "FILE", "f*"] {
                let restart = QueryDirectoryFlags::REOPEN;
                let reply = peer.on(second, list_draft(folder, class, restart, pattern)).await;
                let found = query_directory::Response::parse(&reply.ok().message).unwrap();
                let mut entries = DirectoryEntries::new(found.output, class).unwrap();
                // The share "all" has an empty file of the same name, which must not be mistaken
                // for this file of 3 bytes.
                assert_eq!(entries.next().unwrap().unwrap().end_of_file, 3, "{name}");
            }
            peer.close(second, folder).await;
            peer.close(first, held).await;
        }
    });
}

/// One folder that is shared twice, each time in another way: its names are the same.
#[test]
fn a_folder_that_is_shared_twice_has_one_set_of_names() {
    let options = PosixOptions::default();
    in_shares(&[("one", "one"), ("again", "one")], &options, async |world, peer, m| {
        let [one, again] = &m[..] else { panic!("two shares") };
        let open = peer.open_file(again, &shared("docs\\file")).await;
        let folder = peer.open_file(one, &Want::directory("docs")).await;
        let rename = rename_draft(FileInfoClass::RENAME, folder, "papers", false);
        peer.on(one, rename).await.expect(Status::ACCESS_DENIED);
        peer.close(one, folder).await;
        let folder = peer.open_file(one, &of_posix_client(Want::directory("docs"))).await;
        let rename = rename_draft(FileInfoClass::RENAME, folder, "papers", false);
        peer.on(one, rename).await.ok();
        peer.on(again, delete_draft(open)).await.ok();
        peer.close(one, folder).await;
        peer.close(again, open).await;
        assert!(exists(world, "one/papers") && !exists(world, "one/papers/file"));
    });
}
