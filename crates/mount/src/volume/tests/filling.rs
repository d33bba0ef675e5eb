//! Directories that this mount fills with files.

use super::directories::{names_of, soon};
use super::*;

/// Makes a file with these bytes as a program does, and returns after its close(2).
pub(super) async fn fill(volume: &Volume, file: &str, data: &[u8]) {
    assert!(!matches!(volume.lookup(ROOT, name(file)).await, Ok(NameLookup::Found(..))));
    let handle = volume.make(file).await;
    assert_eq!(volume.write(handle, 0, data).await, Ok(data.len() as u32));
    volume.close(handle).await;
}

/// Fills the directory until its names are known.
pub(super) async fn begin(volume: &Volume) {
    for at in 0..4 {
        fill(volume, &format!("first{at}"), b"data").await;
    }
}

pub(super) fn requests(volume: &Volume) -> u64 {
    volume.share.session().channels().iter().map(|channel| channel.requests).sum()
}

pub(super) fn is_absent(found: &Result<NameLookup, Errno>) -> bool {
    matches!(found, Ok(NameLookup::Absent(_)))
}

#[test]
fn a_further_file_costs_its_creation_one_write_and_its_close() {
    in_world(async |world| {
        let one = plain(world).await;
        begin(&one).await;
        let before = requests(&one);
        for at in 0..10 {
            fill(&one, &format!("f{at}"), b"some data").await;
        }
        assert_eq!(requests(&one) - before, 30);
        assert_eq!(names_of(&one, ROOT).await.len(), 14);
        for at in 0..10 {
            assert_eq!(std::fs::read(world.path(&format!("f{at}"))).unwrap(), b"some data");
        }
    });
}

#[test]
fn other_clients_see_a_file_as_soon_as_its_writer_has_closed_it() {
    in_world(async |world| {
        let (one, two) = (plain(world).await, plain(world).await);
        begin(&one).await;
        assert!(two.lookup(ROOT, name("f")).await.is_err());
        let handle = one.make("f").await;
        one.write(handle, 0, b"some data").await.unwrap();
        // close(2) returns after the flush, because the kernel does not wait for the release. At
        // that time other clients must already see the data.
        one.flush(handle, 0).await.unwrap();
        assert_eq!(std::fs::read(world.path("f")).unwrap(), b"some data");
        assert_eq!(two.lookup(ROOT, name("f")).await.unwrap().found().attr.size, 9);
        let reader = two.take("f", libc::O_RDONLY).await;
        assert_eq!(&*two.read(reader, 0, 100).await.unwrap(), b"some data");
        one.release(handle).await;
        two.close(reader).await;
    });
}

#[test]
fn a_name_that_another_client_makes_is_found_and_not_made_twice() {
    in_world(async |world| {
        let (one, two) = (plain(world).await, plain(world).await);
        begin(&one).await;
        assert!(is_absent(&one.lookup(ROOT, name("x")).await));
        let made = two.make("x").await;
        // The server decides about O_EXCL, although this mount has cached that the name is absent.
        let exclusive = libc::O_RDWR | libc::O_EXCL;
        let made_again = one.create(ROOT, name("x"), exclusive, 0o644).await;
        assert_eq!(made_again.err(), Some(Errno::EEXIST));
        soon("it is found", async || one.lookup(ROOT, name("x")).await.is_ok()).await;
        two.close(made).await;
        // Another client has changed the directory, so this mount no longer knows which names are
        // absent. A file that it makes there itself does not bring this knowledge back.
        fill(&one, "more", b"data").await;
        assert!(one.nodes.root().directory.lacks("y").is_none());
    });
}

#[test]
fn names_that_the_server_may_know_are_asked_for() {
    in_world(async |world| {
        let one = plain(world).await;
        fill(&one, "Readme", b"data").await;
        begin(&one).await;
        let before = requests(&one);
        assert!(is_absent(&one.lookup(ROOT, name("other")).await));
        assert_eq!(requests(&one), before);
        // This server ignores case, so the other spelling is found, too; short names and non-ASCII
        // names are always asked for.
        let found = one.lookup(ROOT, name("README")).await.unwrap().found();
        assert_eq!(found.attr.ino.0, one.node_of("Readme").id);
        for file in ["SHORTN~1.TXT", "\u{e9}"] {
            let before = requests(&one);
            assert!(!matches!(one.lookup(ROOT, name(file)).await, Ok(NameLookup::Found(..))));
            assert!(requests(&one) > before, "{file}");
        }
        // The directory has a name outside of ASCII now, so no name counts as absent without a
        // request.
        fill(&one, "\u{212a}", b"data").await;
        assert!(one.nodes.root().directory.lacks("other").is_none());
    });
}

#[test]
fn a_directory_that_this_mount_does_not_fill_is_asked_once_for_each_name() {
    in_world(async |world| {
        let one = plain(world).await;
        names_of(&one, ROOT).await;
        assert!(one.nodes.root().directory.lacks("x").is_none());
        // A program on the server's host makes the file. Even before the lease break arrives, the
        // name must be found.
        std::fs::write(world.path("x"), b"data").unwrap();
        assert_eq!(one.lookup(ROOT, name("x")).await.unwrap().found().attr.size, 4);
    });
}

#[test]
fn what_follows_a_close_finds_the_file_closed() {
    in_world(async |world| {
        let one = plain(world).await;
        begin(&one).await;
        for round in 0..20 {
            let (file, data) = (format!("f{round}"), [round; 100]);
            let handle = one.make(&file).await;
            one.write(handle, 0, &data).await.unwrap();
            one.flush(handle, 0).await.unwrap();
            // The kernel does not wait for the release, so the next operation overlaps with the
            // close.
            let volume = Arc::clone(&one);
            let released = tokio::spawn(async move { volume.release(handle).await });
            match round % 4 {
                0 => one.unlink(ROOT, name(&file)).await.unwrap(),
                1 => one.rename((ROOT, name(&file)), (ROOT, name("moved")), 0).await.unwrap(),
                2 => {
                    let again = one.take(&file, libc::O_RDWR).await;
                    assert_eq!(*one.read(again, 0, 200).await.unwrap(), data);
                    one.write(again, 50, b"new").await.unwrap();
                    one.close(again).await;
                }
                _ => {
                    one.unlink(ROOT, name(&file)).await.unwrap();
                    fill(&one, &file, b"another").await;
                }
            }
            released.await.unwrap();
            let found = std::fs::read(world.path(&file));
            match round % 4 {
                0 => assert!(found.is_err()),
                1 => assert_eq!(std::fs::read(world.path("moved")).unwrap(), data),
                2 => assert_eq!(&found.unwrap()[48..54], [round, round, b'n', b'e', b'w', round]),
                _ => assert_eq!(found.unwrap(), b"another"),
            }
        }
        assert!(one.open_nodes().is_empty());
    });
}

#[test]
fn a_file_is_written_although_the_session_is_lost_before_its_close() {
    in_world(async |world| {
        let one = plain(world).await;
        begin(&one).await;
        let handle = one.make("f").await;
        one.write(handle, 0, b"some data").await.unwrap();
        end_sessions(world);
        one.flush(handle, 0).await.unwrap();
        assert_eq!(std::fs::read(world.path("f")).unwrap(), b"some data");
        one.release(handle).await;
        // The lease was lost with the session, so the cached names are not used. The new file is
        // found.
        std::fs::write(world.path("meanwhile"), b"four").unwrap();
        assert_eq!(one.lookup(ROOT, name("meanwhile")).await.unwrap().found().attr.size, 4);
    });
}

#[test]
fn the_close_of_a_file_tells_that_its_data_was_not_stored() {
    in_world(async |world| {
        let one = plain(world).await;
        begin(&one).await;
        let handle = one.make("f").await;
        one.write(handle, 0, b"lost").await.unwrap();
        one.writer(&one.node_of("f")).unwrap().close().await.unwrap();
        assert!(one.flush(handle, 0).await.is_err());
        one.release(handle).await;
        assert_eq!(one.unsent_and_lost(), (0, 4));
    });
}
