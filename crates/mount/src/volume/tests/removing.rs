//! Names that need no question while this mount changes their directory.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use super::directories::{names_of, soon};
use super::filling::{begin, fill, is_absent, requests};
use super::posix::posix;
use super::*;
use crate::volume::Changes;

/// A mount that has made `f0` to `f9` and still fills their directory under a lease.
async fn filled(world: &World) -> Arc<Volume> {
    let one = posix(world).await;
    begin(&one).await;
    for at in 0..10 {
        fill(&one, &format!("f{at}"), b"some data").await;
    }
    assert!(one.dir_grant(one.nodes.root()).is_some());
    one
}

/// Looks a name up; also returns the count of requests for that.
async fn asked(volume: &Volume, file: &str) -> (Result<NameLookup, Errno>, u64) {
    let before = requests(volume);
    let found = volume.lookup(ROOT, name(file)).await;
    (found, requests(volume) - before)
}

async fn is_there(volume: &Volume, file: &str) -> bool {
    matches!(volume.lookup(ROOT, name(file)).await, Ok(NameLookup::Found(..)))
}

#[test]
fn a_removed_file_costs_one_compound_and_the_lease_stays() {
    in_world(async |world| {
        let one = filled(world).await;
        let (root, before) = (Arc::clone(one.nodes.root()), requests(&one));
        let grant = one.dir_grant(&root);
        for at in 0..10 {
            let file = format!("f{at}");
            let found = one.lookup(ROOT, name(&file)).await.unwrap().found();
            assert_eq!(found.attr.size, 9);
            one.unlink(ROOT, name(&file)).await.unwrap();
        }
        // Each of the ten removals sends three requests: CREATE, SET_INFO and CLOSE.
        assert_eq!(requests(&one) - before, 30);
        assert_eq!(one.dir_grant(&root), grant);
        for at in 0..10 {
            assert!(!is_there(&one, &format!("f{at}")).await);
        }
        assert_eq!(names_of(&one, ROOT).await.len(), 4);
        assert_eq!(std::fs::read_dir(world.path("")).unwrap().count(), 4);
    });
}

#[test]
fn what_another_client_does_to_a_name_is_seen() {
    in_world(async |world| {
        let (one, two) = (filled(world).await, posix(world).await);
        let id = one.node_of("f1").id;
        assert_eq!(asked(&one, "f0").await.1, 0);
        two.unlink(ROOT, name("f0")).await.unwrap();
        soon("it is removed", async || !is_there(&one, "f0").await).await;
        two.rename((ROOT, name("f1")), (ROOT, name("moved")), 0).await.unwrap();
        soon("it is moved", async || !is_there(&one, "f1").await).await;
        assert_eq!(one.lookup(ROOT, name("moved")).await.unwrap().found().attr.ino.0, id);
        // The other client's changes have broken the lease, so other names, such as `f2`, are also
        // requested from the server.
        assert!(asked(&one, "f2").await.1 > 0);
    });
}

#[test]
fn a_file_that_another_client_puts_in_its_place_is_seen() {
    in_world(async |world| {
        let (one, two) = (filled(world).await, posix(world).await);
        let (old, new) = (one.node_of("f0").id, one.node_of("f1").id);
        assert_eq!(asked(&one, "f0").await.1, 0);
        two.rename((ROOT, name("f1")), (ROOT, name("f0")), 0).await.unwrap();
        let id = async || one.lookup(ROOT, name("f0")).await.unwrap().found().attr.ino.0;
        soon("it is another one", async || id().await == new).await;
        // A program on the server's host replaces the file, after this mount has made a file.
        fill(&one, "more", b"data").await;
        std::fs::write(world.path("f2"), b"more data").unwrap();
        std::fs::rename(world.path("f2"), world.path("f0")).unwrap();
        soon("it is a third one", async || ![old, new].contains(&id().await)).await;
    });
}

#[test]
fn what_this_mount_does_to_a_name_is_seen_at_once() {
    in_world(async |world| {
        let one = filled(world).await;
        let grant = one.dir_grant(one.nodes.root());
        let id = async |file: &str| {
            let found = one.lookup(ROOT, name(file)).await;
            found
                .ok()
                .filter(|found| matches!(found, NameLookup::Found(..)))
                .map(|found| found.found().attr.ino.0)
        };
        let [f0, f1, f2] = ["f0", "f1", "f2"].map(|file| one.node_of(file).id);
        one.rename((ROOT, name("f0")), (ROOT, name("g0")), 0).await.unwrap();
        assert_eq!((id("f0").await, id("g0").await), (None, Some(f0)));
        one.rename((ROOT, name("f1")), (ROOT, name("f2")), 0).await.unwrap();
        assert_eq!((id("f1").await, id("f2").await), (None, Some(f1)));
        assert_ne!(f1, f2);
        one.link(f1, ROOT, name("link")).await.unwrap();
        assert_eq!(id("link").await, Some(f1));
        one.unlink(ROOT, name("f2")).await.unwrap();
        assert_eq!((id("f2").await, id("link").await), (None, Some(f1)));
        fill(&one, "f2", b"another").await;
        assert!(id("f2").await.is_some_and(|id| ![f0, f1].contains(&id)));
        // The lease is still the one from before, because none of these operations has broken it.
        assert_eq!(one.dir_grant(one.nodes.root()), grant);
    });
}

#[test]
fn an_answer_from_before_a_change_promises_nothing() {
    in_world(async |world| {
        let one = filled(world).await;
        let root = Arc::clone(one.nodes.root());
        let (seen, id) = (root.directory.seen(), one.node_of("f0").id);
        assert!(seen.is_some());
        let is_promised = |file| match one.nodes.look_up_promised(&root, file) {
            Some(node) => one.nodes.forget(node.id, 1).is_none(),
            None => false,
        };
        assert!(is_promised("f0") && is_promised("f1"));
        one.rename((ROOT, name("f0")), (ROOT, name("g0")), 0).await.unwrap();
        for file in ["f0", "g0"] {
            one.nodes.promised(&root, file, id, seen);
            assert!(!is_promised(file), "{file}");
        }
        // The name turned out to lead to another file, so later look-ups must ask the server again.
        one.distrust(&one.node_of("f1"));
        assert!(!is_promised("f1"));
    });
}

#[test]
fn no_name_is_promised_after_the_session_was_lost() {
    in_world(async |world| {
        let one = filled(world).await;
        assert_eq!(asked(&one, "f0").await.1, 0);
        end_sessions(world);
        std::fs::remove_file(world.path("f0")).unwrap();
        // The session has ended on the server. This request notices that, so the next look-up must
        // ask the server.
        one.statfs().await.unwrap();
        assert!(!is_there(&one, "f0").await);
    });
}

#[test]
fn a_file_is_not_found_by_another_spelling_after_it_was_removed() {
    in_world(async |world| {
        let one = plain(world).await;
        begin(&one).await;
        fill(&one, "Readme", b"data").await;
        // This server ignores case, so a file that was removed by one spelling must not be found by
        // another.
        assert!(is_there(&one, "README").await && is_there(&one, "Readme").await);
        one.unlink(ROOT, name("README")).await.unwrap();
        assert!(!is_there(&one, "Readme").await && !is_there(&one, "README").await);
    });
}

#[test]
fn the_close_tells_what_became_of_the_file() {
    in_world(async |world| {
        let (one, two) = (filled(world).await, posix(world).await);
        let (_, handle) = one.create(ROOT, name("f"), libc::O_RDWR, 0o100_640).await.unwrap();
        one.write(handle, 0, b"some data").await.unwrap();
        one.close(handle).await;
        let there = std::fs::metadata(world.path("f")).unwrap();
        let (found, count) = asked(&one, "f").await;
        let found = found.unwrap().found();
        assert_eq!((count, found.attr.size, found.attr.perm), (0, 9, 0o640));
        // SMB stores times in units of 100 ns, so they may differ by less than that.
        let apart = there.modified().unwrap().duration_since(found.attr.mtime).unwrap();
        assert!(apart < Duration::from_nanos(100));
        // The attributes have expired, so the change by another program is seen.
        std::fs::set_permissions(world.path("f"), PermissionsExt::from_mode(0o644)).unwrap();
        tokio::time::sleep(one.settings.attr_timeout + Duration::from_millis(10)).await;
        fill(&one, "more", b"data").await;
        let found = match asked(&one, "f").await {
            (Ok(NameLookup::Found(found, name_ttl)), 0) => {
                assert_eq!((found.ttl, name_ttl), (Duration::ZERO, one.settings.attr_timeout));
                one.getattr(found.attr.ino.0).await.unwrap()
            }
            // The lease break arrived before the look-up, so the look-up has asked the server
            // itself.
            (found, _) => found.unwrap().found(),
        };
        assert_eq!(found.attr.perm, 0o644);
        assert!(is_there(&two, "f").await);
    });
}

#[test]
fn a_close_does_not_undo_what_was_changed_before() {
    in_world(async |world| {
        let one = filled(world).await;
        for written_after in [false, true] {
            let (found, handle) = one.create(ROOT, name("f"), libc::O_RDWR, 0o644).await.unwrap();
            one.write(handle, 0, b"some").await.unwrap();
            let changes = Changes { mode: Some(0o100_600), ..Changes::default() };
            one.setattr(found.attr.ino.0, changes).await.unwrap();
            if written_after {
                one.write(handle, 4, b" data").await.unwrap();
            }
            one.close(handle).await;
            let found = one.lookup(ROOT, name("f")).await.unwrap().found().attr;
            let size = if written_after { 9 } else { 4 };
            assert_eq!((found.size, found.perm), (size, 0o600));
            one.unlink(ROOT, name("f")).await.unwrap();
        }
    });
}

/// The server takes the bits that let a program act as its owner from a file that is written.
#[test]
fn the_mode_of_a_written_program_is_asked_for() {
    in_world(async |world| {
        let one = filled(world).await;
        for (mode, is_asked) in [(0o755, false), (0o4755, true), (0o2755, true)] {
            let (found, handle) = one.create(ROOT, name("f"), libc::O_RDWR, 0o644).await.unwrap();
            one.write(handle, 0, b"some").await.unwrap();
            // A program on the server's host changes the mode.
            let bits = PermissionsExt::from_mode(mode);
            std::fs::set_permissions(world.path("f"), bits).unwrap();
            one.node_of("f").invalidate();
            let seen = one.getattr(found.attr.ino.0).await.unwrap().attr.perm;
            assert_eq!(u32::from(seen), mode);
            // The removal may break the lease on the directory, and making a file gets the lease
            // again.
            fill(&one, "more", b"data").await;
            one.unlink(ROOT, name("more")).await.unwrap();
            one.write(handle, 4, b" data").await.unwrap();
            one.close(handle).await;
            assert_eq!(one.node_of("f").known().is_none(), is_asked, "{mode:o}");
            let there = std::fs::metadata(world.path("f")).unwrap().permissions().mode();
            let found = one.lookup(ROOT, name("f")).await.unwrap().found().attr;
            assert_eq!(u32::from(found.perm), there & 0o7777, "{mode:o}");
            one.unlink(ROOT, name("f")).await.unwrap();
        }
    });
}

#[test]
fn a_link_that_was_made_before_the_close_is_counted() {
    in_world(async |world| {
        let one = filled(world).await;
        let (found, handle) = one.create(ROOT, name("f"), libc::O_RDWR, 0o644).await.unwrap();
        one.write(handle, 0, b"some").await.unwrap();
        one.link(found.attr.ino.0, ROOT, name("g")).await.unwrap();
        one.write(handle, 4, b" data").await.unwrap();
        one.close(handle).await;
        let found = one.lookup(ROOT, name("f")).await.unwrap().found().attr;
        assert_eq!((found.nlink, found.size), (2, 9));
    });
}

#[test]
fn times_that_were_set_by_name_leave_the_lease_and_end_the_listing() {
    in_world(async |world| {
        let one = filled(world).await;
        let root = Arc::clone(one.nodes.root());
        names_of(&one, ROOT).await;
        let grant = one.dir_grant(&root);
        let modified = Some(std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
        let id = one.node_of("f0").id;
        one.setattr(id, Changes { modified, ..Changes::default() }).await.unwrap();
        assert_eq!(one.dir_grant(&root), grant);
        assert!(root.directory.state.lock().listing.is_none());
        let found = one.lookup(ROOT, name("f0")).await.unwrap().found().attr;
        assert_eq!(Some(found.mtime), modified);
    });
}

#[test]
fn no_name_is_promised_in_a_directory_that_this_mount_does_not_change() {
    in_world(async |world| {
        std::fs::write(world.path("f"), b"data").unwrap();
        let one = posix(world).await;
        names_of(&one, ROOT).await;
        let root = Arc::clone(one.nodes.root());
        one.nodes.root().directory.state.lock().listing = None;
        assert!(is_there(&one, "f").await);
        assert!(one.nodes.look_up_promised(&root, "f").is_none());
        assert!(!is_absent(&one.lookup(ROOT, name("f")).await));
    });
}
