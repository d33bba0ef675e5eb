//! The cache of directories.

use super::*;

/// Returns all names in a directory.
pub(super) async fn names_of(volume: &Volume, directory: u64) -> Vec<String> {
    let listing = volume.opendir(directory).unwrap();
    let listed = volume.entries(listing, 2, true).await.unwrap();
    let mut names: Vec<String> =
        listed.entries().map(|(_, entry)| entry.name(volume.spelling())).collect();
    volume.releasedir(listing);
    names.sort();
    names
}

/// Waits for the effect of a lease break.
pub(super) async fn soon(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..400 {
        if holds().await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("not soon: {what}");
}

/// Returns when the metadata was requested, which tells a listing from a look-up.
fn asked_at(volume: &Volume, file: &str) -> std::time::Instant {
    let node = volume.node_of(file);
    node.known().unwrap().at
}

#[test]
fn a_listing_is_kept_as_long_as_the_lease_on_the_directory() {
    in_world(async |world| {
        let (one, two) = (plain(world).await, plain(world).await);
        std::fs::write(world.path("a"), b"").unwrap();
        let root = Arc::clone(one.nodes.root());
        let first = one.listing(&root, true).await.unwrap();
        let kept = one.listing(&root, true).await.unwrap();
        assert!(Arc::ptr_eq(&first.entries, &kept.entries), "the server is not asked again");
        // A change by this mount shows at once and does not break its lease on the directory.
        let grant = one.dir_grant(&root).expect("a lease");
        let handle = one.make("b").await;
        assert_eq!(names_of(&one, ROOT).await, ["a", "b"]);
        assert_eq!(one.dir_grant(&root), Some(grant));
        one.close(handle).await;
        // A change by another client breaks the lease, so the listing is soon a new one.
        two.unlink(ROOT, name("a")).await.unwrap();
        soon("one less", async || names_of(&one, ROOT).await == ["b"]).await;
        let made = two.make("c").await;
        soon("one more", async || names_of(&one, ROOT).await == ["b", "c"]).await;
        two.close(made).await;
        one.settle().await;
        assert!(one.dir_grant(&root).is_none() && !root.directory.is_held());
    });
}

#[test]
fn a_directory_whose_handle_is_closed_while_it_is_listed_is_listed_by_its_name() {
    in_world(async |world| {
        let one = plain(world).await;
        std::fs::write(world.path("a"), b"").unwrap();
        assert_eq!(names_of(&one, ROOT).await, ["a"]);
        // The cached listing is dropped while the handle is just being closed, so the directory is
        // listed by its name.
        let root = Arc::clone(one.nodes.root());
        root.directory.changed(None);
        root.directory.close_half().await;
        assert_eq!(names_of(&one, ROOT).await, ["a"]);
    });
}

#[test]
fn what_is_not_there_is_believed_until_somebody_makes_it() {
    in_world(async |world| {
        let (one, two) = (plain(world).await, plain(world).await);
        let is_absent = async |volume: &Volume| {
            matches!(volume.lookup(ROOT, name("x")).await, Ok(NameLookup::Absent(_)))
        };
        assert_eq!(one.lookup(ROOT, name("x")).await.err(), Some(Errno::ENOENT), "no lease yet");
        names_of(&one, ROOT).await;
        let root = Arc::clone(one.nodes.root());
        let before = one.dir_grant(&root);
        assert!(before.is_some() && is_absent(&one).await);
        let made = two.make("x").await;
        soon("it is there", async || one.lookup(ROOT, name("x")).await.is_ok()).await;
        assert!(!one.is_absent(&root, "x".into(), before), "an answer from before the break");
        two.close(made).await;
        // With a validity of zero nothing is cached, so names and sizes come from the server, and
        // no lease is held.
        let strict = Settings { attr_timeout: std::time::Duration::ZERO, ..Settings::of(0, 0) };
        let three = volume(world, strict).await;
        names_of(&three, ROOT).await;
        assert_eq!(three.lookup(ROOT, name("y")).await.err(), Some(Errno::ENOENT));
        assert!(!three.nodes.root().directory.is_held());
    });
}

#[test]
fn who_asks_for_many_names_of_a_directory_is_told_by_one_listing() {
    in_world(async |world| {
        let one = plain(world).await;
        let files: Vec<String> = (0..6).map(|at| format!("f{at}")).collect();
        for file in &files {
            std::fs::write(world.path(file), file).unwrap();
        }
        for file in &files {
            let found = one.lookup(ROOT, name(file)).await.unwrap().found();
            assert_eq!(found.attr.size, 2);
            assert!(found.ttl <= one.settings.attr_timeout);
        }
        assert_ne!(asked_at(&one, "f0"), asked_at(&one, "f1"), "a few are asked for by name");
        assert_eq!(asked_at(&one, "f3"), asked_at(&one, "f5"), "many come with the others");
        // After the write look-ups must report the new size, and not that of the listing.
        let handle = one.take("f4", libc::O_RDWR).await;
        one.write(handle, 0, b"longer").await.unwrap();
        assert_eq!(one.lookup(ROOT, name("f4")).await.unwrap().found().attr.size, 6);
        one.close(handle).await;
        assert_eq!(one.lookup(ROOT, name("f4")).await.unwrap().found().attr.size, 6);
        // This mount fills the directory, so it is not listed again for each new file.
        for at in 0..6 {
            let handle = one.make(&format!("g{at}")).await;
            one.close(handle).await;
            assert!(!matches!(one.lookup(ROOT, name("none")).await, Ok(NameLookup::Found(..))));
        }
        assert!(one.nodes.root().directory.listing().is_none());
    });
}

#[test]
fn directories_that_are_held_are_in_nobodys_way() {
    in_world(async |world| {
        let (one, two) = (plain(world).await, plain(world).await);
        for directory in ["d", "d/e", "gone"] {
            std::fs::create_dir(world.path(directory)).unwrap();
        }
        let at = async |volume: &Volume, parent, directory| {
            volume.lookup(parent, name(directory)).await.unwrap().found().attr.ino.0
        };
        let d = at(&one, ROOT, "d").await;
        for held in [d, at(&one, d, "e").await, at(&one, ROOT, "gone").await] {
            names_of(&one, held).await;
            assert!(one.nodes.find(held).unwrap().directory.is_held());
        }
        let in_time = std::time::Duration::from_secs(5);
        let theirs = async {
            at(&two, ROOT, "d").await;
            two.rename((ROOT, name("d")), (ROOT, name("new")), 0).await.unwrap();
            two.rmdir(ROOT, name("gone")).await.unwrap();
        };
        tokio::time::timeout(in_time, theirs).await.expect("they need not wait");
        assert!(world.path("new/e").exists() && !world.path("gone").exists());
        // Now this mount itself renames and removes directories that it has just listed.
        let new = at(&one, ROOT, "new").await;
        let e = at(&one, new, "e").await;
        names_of(&one, e).await;
        let mine = async {
            one.rename((ROOT, name("new")), (ROOT, name("old")), 0).await.unwrap();
            one.rmdir(new, name("e")).await.unwrap();
            one.rmdir(ROOT, name("old")).await.unwrap();
        };
        tokio::time::timeout(in_time, mine).await.expect("nor does this mount");
        assert_eq!(std::fs::read_dir(world.path("")).unwrap().count(), 0);
    });
}

#[test]
fn nothing_of_a_directory_is_believed_after_the_session_was_lost() {
    in_world(async |world| {
        let one = plain(world).await;
        names_of(&one, ROOT).await;
        let root = Arc::clone(one.nodes.root());
        assert!(matches!(one.lookup(ROOT, name("x")).await, Ok(NameLookup::Absent(_))));
        end_sessions(world);
        std::fs::write(world.path("x"), b"meanwhile").unwrap();
        // The session has ended on the server. This request notices that, and the lease is gone.
        one.statfs().await.unwrap();
        assert!(one.dir_grant(&root).is_none());
        one.tidy().await;
        assert!(!root.directory.is_held());
        assert_eq!(names_of(&one, ROOT).await, ["x"]);
        assert_eq!(one.lookup(ROOT, name("x")).await.unwrap().found().attr.size, 9);
    });
}

#[test]
fn the_oldest_directory_makes_room() {
    in_world(async |world| {
        let one = plain(world).await;
        let mut first = None;
        for at in 0..=crate::limits::LEASED_DIRS_MAX {
            let directory = format!("d{at}");
            std::fs::create_dir(world.path(&directory)).unwrap();
            let asked = std::time::Instant::now();
            let metadata = one.share.lookup(&directory).await.unwrap();
            let node = one.nodes.found(&one.nodes.root().clone(), &directory, metadata, asked);
            one.listing(&node, true).await.unwrap();
            assert!(node.directory.is_held());
            first.get_or_insert(node);
        }
        assert!(!first.unwrap().directory.is_held());
    });
}

#[test]
fn listings_that_no_lease_speaks_for_are_few_and_go() {
    in_world(async |world| {
        let one = plain(world).await;
        one.holds_none.store(true, std::sync::atomic::Ordering::Relaxed);
        let mut nodes = Vec::new();
        for at in 0..=crate::limits::LEASED_DIRS_MAX {
            let directory = format!("d{at}");
            std::fs::create_dir_all(world.path(&directory).join("in")).unwrap();
            let asked = std::time::Instant::now();
            let metadata = one.share.lookup(&directory).await.unwrap();
            let node = one.nodes.found(&one.nodes.root().clone(), &directory, metadata, asked);
            one.listing(&node, true).await.unwrap();
            assert_eq!(node.directory.listed_len(), 1);
            nodes.push(node);
        }
        assert_eq!(nodes[0].directory.listed_len(), 0, "there are as many younger ones");
        assert_eq!(nodes[1].directory.listed_len(), 1);
        // The listings get the maximum number of entries. They share one list, but the limit counts
        // the entries of each.
        let mut long = one.listing(&nodes[1], true).await.unwrap();
        let most = crate::limits::LISTING_ENTRIES_MAX;
        long.entries = Arc::new(vec![long.entries[0].clone(); most]);
        let kept = |nodes: &[Arc<Node>]| -> usize {
            nodes.iter().map(|node| node.directory.listed_len()).sum()
        };
        for node in &nodes {
            one.keep_listing(node, long.clone(), 0);
            assert!(kept(&nodes) <= crate::limits::CACHED_ENTRIES_MAX);
        }
        assert_eq!(kept(&nodes), crate::limits::CACHED_ENTRIES_MAX);
        // The listings have expired. So they are discarded without a request.
        tokio::time::sleep(one.settings.attr_timeout + std::time::Duration::from_millis(50)).await;
        names_of(&one, nodes[0].id).await;
        one.tidy().await;
        assert_eq!(kept(&nodes), 1);
    });
}

#[test]
fn a_session_that_was_lost_is_noticed_without_anybody_asking() {
    in_world(async |world| {
        let one = plain(world).await;
        names_of(&one, ROOT).await;
        let root = Arc::clone(one.nodes.root());
        end_sessions(world);
        // The maintenance task calls `listen` at regular intervals, which notices the lost session.
        one.listen();
        soon("the session is a new one", async || one.dir_grant(&root).is_none()).await;
        one.tidy().await;
        assert!(!root.directory.is_held());
    });
}
