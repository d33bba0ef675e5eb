//! open(2) sees what another client has closed before.

use super::*;

/// Reads `file` as a program does that opens it by name. The kernel has looked the name up already,
/// and does so again after ESTALE.
async fn read_by_name(volume: &Volume, known: &mut u64, file: &str) -> Vec<u8> {
    let handle = match volume.open(*known, libc::O_RDONLY).await {
        Err(error) if error == Errno::from_i32(libc::ESTALE) => {
            *known = volume.lookup(ROOT, name(file)).await.unwrap().found().attr.ino.0;
            volume.open(*known, libc::O_RDONLY).await.unwrap()
        }
        opened => opened.unwrap(),
    };
    let data = volume.read(handle, 0, 100_000).await.unwrap().to_vec();
    volume.close(handle).await;
    data
}

/// Replaces the content of `file` and closes it.
async fn rewrite(volume: &Volume, file: &str, data: &[u8]) {
    let handle = match volume.lookup(ROOT, name(file)).await {
        Ok(NameLookup::Found(..)) => volume.take(file, libc::O_WRONLY).await,
        _ => volume.make(file).await,
    };
    let id = volume.handle(handle).unwrap().node.id;
    let size = Changes { size: Some(0), ..Default::default() };
    volume.setattr(id, size).await.unwrap();
    volume.write(handle, 0, data).await.unwrap();
    volume.close(handle).await;
}

#[test]
fn a_file_that_another_client_has_rewritten_is_read_anew() {
    in_world(async |world| {
        let (one, two) = (plain(world).await, plain(world).await);
        rewrite(&one, "f", b"old").await;
        let mut known = two.lookup(ROOT, name("f")).await.unwrap().found().attr.ino.0;
        for round in 0..200_u32 {
            let data = format!("{round:08}").repeat(1 + round as usize % 3);
            rewrite(&one, "f", data.as_bytes()).await;
            assert_eq!(read_by_name(&two, &mut known, "f").await, data.as_bytes(), "{round}");
        }
    });
}

#[test]
fn a_name_that_another_client_has_given_to_another_file_leads_there() {
    in_world(async |world| {
        for is_open in [false, true] {
            let (one, two) = (plain(world).await, plain(world).await);
            rewrite(&one, "f", b"first").await;
            let mut known = two.lookup(ROOT, name("f")).await.unwrap().found().attr.ino.0;
            // In the second round another program keeps the file open all the time.
            let kept = match is_open {
                true => Some(two.open(known, libc::O_RDONLY).await.unwrap()),
                false => None,
            };
            for round in 0..50 {
                let data = format!("{round:08}");
                rewrite(&one, "new", data.as_bytes()).await;
                one.rename((ROOT, name("new")), (ROOT, name("f")), 0).await.unwrap();
                let seen = read_by_name(&two, &mut known, "f").await;
                assert_eq!(seen, data.as_bytes(), "{round}");
            }
            if let Some(kept) = kept {
                assert_eq!(&*two.read(kept, 0, 10).await.unwrap(), b"first");
                two.close(kept).await;
            }
            one.unlink(ROOT, name("f")).await.unwrap();
            let gone = two.open(known, libc::O_RDONLY).await;
            assert_eq!(gone, Err(Errno::from_i32(libc::ESTALE)), "the kernel looks it up again");
            assert!(!matches!(two.lookup(ROOT, name("f")).await, Ok(NameLookup::Found(..))));
        }
    });
}

/// The break of a lease may come after the answer: it is not what the check relies on.
#[test]
fn cached_data_that_is_older_than_the_file_is_not_read() {
    in_world(async |world| {
        let one = plain(world).await;
        std::fs::write(world.path("f"), b"old").unwrap();
        let first = one.take("f", libc::O_RDONLY).await;
        assert_eq!(&*one.read(first, 0, 10).await.unwrap(), b"old");
        one.close(first).await;
        let content = one.node_of("f").content().unwrap();
        assert!(content.is_kept(0));
        // A program on the server's host writes the file, which breaks no lease in this test. So
        // only the next open notices it.
        std::fs::write(world.path("f"), b"new and longer").unwrap();
        let again = one.open(one.node_of("f").id, libc::O_RDONLY).await.unwrap();
        assert_eq!(&*one.read(again, 0, 20).await.unwrap(), b"new and longer");
        one.close(again).await;
        assert_eq!(one.getattr(one.node_of("f").id).await.unwrap().attr.size, 14);
    });
}

/// An open that needs a further Open on the server does not make old data look new.
#[test]
fn an_open_for_writing_does_not_hide_that_cached_data_is_old() {
    in_world(async |world| {
        let one = plain(world).await;
        for flags in [libc::O_RDWR, libc::O_WRONLY] {
            std::fs::write(world.path("f"), b"old").unwrap();
            let reader = one.take("f", libc::O_RDONLY).await;
            assert_eq!(&*one.read(reader, 0, 20).await.unwrap(), b"old");
            let id = one.node_of("f").id;
            // A program on the server's host writes the file, which breaks no lease in this test.
            // So only the next open notices it.
            std::fs::write(world.path("f"), b"new and longer").unwrap();
            let writer = one.open(id, flags).await.unwrap();
            assert!(!one.node_of("f").content().unwrap().is_kept(0));
            assert_eq!(&*one.read(reader, 0, 20).await.unwrap(), b"new and longer");
            let again = one.open(id, libc::O_RDONLY).await.unwrap();
            assert_eq!(&*one.read(again, 0, 20).await.unwrap(), b"new and longer");
            // The cached data is up to date and is kept by further opens.
            let content = one.node_of("f").content().unwrap();
            assert!(content.is_kept(0));
            for handle in [again, writer, reader] {
                one.close(handle).await;
            }
        }
    });
}

#[test]
fn all_names_of_a_file_are_looked_at() {
    const NAMES: usize = 2 * crate::limits::NAMES_AT_ONCE + 1;
    in_world(async |world| {
        let one = plain(world).await;
        std::fs::write(world.path("0"), b"data").unwrap();
        let reader = one.take("0", libc::O_RDONLY).await;
        let id = one.node_of("0").id;
        for number in 1..NAMES {
            let other = number.to_string();
            std::fs::hard_link(world.path("0"), world.path(&other)).unwrap();
            assert_eq!(one.lookup(ROOT, name(&other)).await.unwrap().found().attr.ino.0, id);
        }
        let again = one.open(id, libc::O_RDONLY).await.unwrap();
        one.close(again).await;
        std::fs::remove_file(world.path(&(NAMES - 1).to_string())).unwrap();
        assert_eq!(one.open(id, libc::O_RDONLY).await, Err(Errno::from_i32(libc::ESTALE)));
        let again = one.open(id, libc::O_RDONLY).await.unwrap();
        one.close(again).await;
        one.close(reader).await;
    });
}

#[test]
fn one_wrong_name_of_two_does_not_keep_a_file_from_being_opened() {
    in_world(async |world| {
        let one = plain(world).await;
        std::fs::write(world.path("a"), b"data").unwrap();
        std::fs::hard_link(world.path("a"), world.path("b")).unwrap();
        let reader = one.take("a", libc::O_RDONLY).await;
        let id = one.lookup(ROOT, name("b")).await.unwrap().found().attr.ino.0;
        std::fs::write(world.path("new"), b"new").unwrap();
        std::fs::rename(world.path("new"), world.path("b")).unwrap();
        // The file has two names, of which one is outdated, and the kernel does not say by which
        // one it opens the file.
        assert_eq!(one.open(id, libc::O_RDONLY).await, Err(Errno::from_i32(libc::ESTALE)));
        assert_eq!(one.lookup(ROOT, name("a")).await.unwrap().found().attr.ino.0, id);
        let again = one.open(id, libc::O_RDONLY).await.unwrap();
        assert_eq!(&*one.read(again, 0, 10).await.unwrap(), b"data");
        one.close(again).await;
        one.close(reader).await;
    });
}
