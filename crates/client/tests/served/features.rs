//! Requests besides reading and writing: links, watches, copies, leases.
#![allow(missing_docs, reason = "tests")]

use crate::world;

use std::io::ErrorKind;
use std::time::Duration;

use frevo_client::{Change, LockKind, OpenOptions, Options, RecursiveMode};
use world::in_world;

#[test]
fn shares_are_listed() {
    in_world(async |world| {
        let session = world.session(Options::default()).await;
        let shares = session.shares().await.unwrap();
        let names: Vec<_> = shares.iter().map(|share| &*share.name).collect();
        assert!(names.contains(&"data") && names.contains(&"sealed"), "{names:?}");
        assert!(shares.iter().find(|share| share.name == "data").unwrap().is_disk);
    });
}

#[test]
fn the_server_copies() {
    in_world(async |world| {
        let share = world.share().await;
        let data: Vec<u8> = (0..20_000_001_u32).map(|at| (at / 7) as u8).collect();
        std::fs::write(world.path("from"), &data).unwrap();
        let from = share.open("from").await.unwrap();
        let to = OpenOptions::new().read(true).write(true).create(true);
        let to = to.open(&share, "to").await.unwrap();
        let how = from.copy_range_to(&to, 0, 0, data.len() as u64).await.unwrap();
        assert!(how.is_some());
        assert!(std::fs::read(world.path("to")).unwrap() == data, "{how:?}");
    });
}

/// Tokens of Frevo are a session's own: another one's copy is left to the caller,
/// and nothing is done by halves.
#[test]
fn between_two_sessions_only_the_storage_copies() {
    in_world(async |world| {
        let (one, two) = (world.share().await, world.share().await);
        std::fs::write(world.path("from"), vec![7; 70_000]).unwrap();
        let from = one.open("from").await.unwrap();
        let to = OpenOptions::new().read(true).write(true).create(true);
        let to = to.open(&two, "to").await.unwrap();
        let how = from.copy_range_to(&to, 0, 0, 65_536).await.unwrap();
        let there = std::fs::read(world.path("to")).unwrap();
        match how {
            None => assert!(there.is_empty()),
            Some(how) => {
                assert_eq!(how, frevo_client::CopyMethod::Offloaded);
                assert_eq!(there, vec![7; 65_536]);
            }
        }
    });
}

#[test]
fn changes_are_told() {
    in_world(async |world| {
        let share = world.share().await;
        share.create_dir("d").await.unwrap();
        let mut watch = share.watch("d", RecursiveMode::Recursive).await.unwrap();
        let (changes, ()) = tokio::join!(watch.next_changes(), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            share.write("d/x", b"1").await.unwrap();
        });
        assert_eq!(changes.unwrap()[0], Change::Added("x".into()));
        share.rename_if_not_exists("d/x", "d/y").await.unwrap();
        let renamed = Change::Renamed { from: "x".into(), to: "y".into() };
        let mut seen = Vec::new();
        while !seen.contains(&renamed) {
            let more = tokio::time::timeout(Duration::from_secs(10), watch.next_changes()).await;
            seen.extend(more.expect("told in time").unwrap());
        }
    });
}

#[test]
fn locks_exclude_and_are_waited_for() {
    in_world(async |world| {
        let share = world.share().await;
        let options = OpenOptions::new().read(true).write(true).create(true);
        let one = options.open(&share, "f").await.unwrap();
        let two = options.open(&share, "f").await.unwrap();
        one.try_lock(0, 10, LockKind::Exclusive).await.unwrap();
        let refused = two.try_lock(5, 1, LockKind::Shared).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        // The caller gives up waiting. The request is cancelled, so the lock is not granted to it
        // later.
        let waiting = two.lock(5, 1, LockKind::Exclusive);
        assert!(tokio::time::timeout(Duration::from_millis(300), waiting).await.is_err());
        let (taken, ()) = tokio::join!(two.lock(5, 1, LockKind::Exclusive), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            one.unlock(0, 10).await.unwrap();
        });
        taken.unwrap();
        two.unlock(5, 1).await.unwrap();
        one.try_lock(5, 1, LockKind::Exclusive).await.unwrap();
    });
}

#[test]
fn extended_attributes_come_back() {
    in_world(async |world| {
        let share = world.share().await;
        share.write("f", b"").await.unwrap();
        share.set_extended_attribute("f", "COLOUR", b"blue").await.unwrap();
        let found = share.extended_attributes("f").await.unwrap();
        let [(name, value)] = &*found else { panic!("{found:?}") };
        assert!(name.eq_ignore_ascii_case("COLOUR") && value == b"blue");
        share.set_extended_attribute("f", "COLOUR", b"").await.unwrap();
        assert!(share.extended_attributes("f").await.unwrap().is_empty());
    });
}

#[test]
fn links_are_followed_within_the_share() {
    in_world(async |world| {
        let share = world.share().await;
        share.create_dir_all("real/deep").await.unwrap();
        share.write("real/deep/f", b"found").await.unwrap();
        std::os::unix::fs::symlink("real/deep", world.path("link")).unwrap();
        std::os::unix::fs::symlink("/etc", world.path("out")).unwrap();
        let file = share.open("link/f").await.unwrap();
        assert_eq!(&*file.read_bytes(0, 100).await.unwrap(), b"found");
        let refused = share.open("out/passwd").await.unwrap_err();
        assert!(refused.status().is_some(), "{refused}");
        let target = share.read_link("link").await.unwrap();
        assert_eq!((&*target.path, target.relative), ("real/deep", true));
        // The client makes two links on the server: one to a folder and one to a file.
        for (name, to, to_directory) in [("made", "real/deep", true), ("real/f", "deep/f", false)] {
            let made = match to_directory {
                true => share.symlink_dir(to, name).await,
                false => share.symlink_file(to, name).await,
            };
            made.unwrap();
            // On the server's disk a link to a folder has a slash at its end.
            let kept = if to_directory { format!("{to}/") } else { String::from(to) };
            assert_eq!(std::fs::read_link(world.path(name)).unwrap().to_str(), Some(&*kept));
            let target = share.read_link(name).await.unwrap();
            assert_eq!((&*target.path, target.relative), (to, true));
        }
        for path in ["made/f", "real/f"] {
            let file = share.open(path).await.unwrap();
            assert_eq!(&*file.read_bytes(0, 100).await.unwrap(), b"found");
        }
        // A link out of the share is stored as a plain link, but the server does not follow it.
        share.symlink_dir("/etc", "etc").await.unwrap();
        assert!(world.path("etc").symlink_metadata().unwrap().is_dir());
        assert!(share.open("etc/passwd").await.is_err());
    });
}

#[test]
fn who_signs_when_asked_does_as_the_server_requires() {
    use frevo_client::Signing;
    use frevo_server::settings::Signing as Demand;
    let lax = || Options::new().require_signing(false).sign(Signing::WhenAsked);
    for (demand, is_signed) in [(Demand::Offered, false), (Demand::Required, true)] {
        let settings = frevo_server::Settings { signing: demand, ..world::settings() };
        world::in_world_with(settings, async |world| {
            let session = world.session(lax()).await;
            assert_eq!(session.info().unwrap().signed, is_signed, "{demand:?}");
            let share = session.share("data").await.unwrap();
            share.write("x", b"one").await.unwrap();
            assert_eq!(share.read("x").await.unwrap(), b"one");
            // In SMB 3.0 the client checks the negotiation with VALIDATE_NEGOTIATE_INFO, which is
            // signed even if signing is not required.
            let newest = frevo_client::Dialect::Smb300;
            let session = world.session(lax().newest(newest)).await;
            assert_eq!(session.share("data").await.unwrap().read("x").await.unwrap(), b"one");
            // With `Signing::Always` the client signs, even if the server does not require it.
            let strict = world.session(lax().sign(Signing::Always)).await;
            assert!(strict.info().unwrap().signed);
        });
    }
}

#[test]
fn a_slow_cipher_is_helped_with_and_all_arrives() {
    use frevo_client::{Cipher, Encryption};
    in_world(async |world| {
        let options = Options::new()
            .ciphers(vec![Cipher::Aes256Ccm])
            .encryption(Encryption::Required)
            .transfer(256 << 10);
        let session = world.session(options).await;
        let share = session.share("data").await.unwrap();
        let data: Vec<u8> = (0..1_200_001_u32).map(|at| (at / 5) as u8).collect();
        share.write("one", &data).await.unwrap();
        assert!(std::fs::read(world.path("one")).unwrap() == data);
        assert!(share.read("one").await.unwrap() == data);
        // Although calls were cancelled, the connection stays usable. The client does not connect
        // again.
        let given_up = tokio::time::timeout(Duration::from_millis(5), share.write("two", &data));
        drop(given_up.await);
        assert!(share.read("one").await.unwrap() == data);
        assert_eq!(world.wire.dialed.load(std::sync::atomic::Ordering::SeqCst), 1);
    });
}

/// The cache under a lease is given up when the file had to be opened again,
/// though no break tells of it.
#[test]
fn whoever_keeps_something_is_told_when_the_session_was_lost() {
    use frevo_client::LeaseState;
    use frevo_client::internal::{LeaseHolder, Yield};
    use std::sync::{Arc, Mutex};
    #[derive(Default)]
    struct Told(Mutex<Vec<LeaseState>>);
    impl LeaseHolder for Told {
        fn broken(&self, to: LeaseState) -> Yield {
            self.0.lock().unwrap().push(to);
            Box::pin(std::future::ready(()))
        }
    }
    in_world(async |world| {
        let share = world.share().await;
        std::fs::write(world.path("f"), b"data").unwrap();
        let kept = LeaseState::READ | LeaseState::HANDLE;
        let file = OpenOptions::new().read(true).lease(kept).open(&share, "f").await.unwrap();
        let told = Arc::new(Told::default());
        let holder: Arc<dyn LeaseHolder> = Arc::clone(&told) as _;
        file.watch_lease(Arc::downgrade(&holder));
        assert_eq!(file.lease(), kept);
        let other = world.share().await;
        for session in world.server.sessions() {
            world.server.close_session(&session, "a test");
        }
        // The client's session is closed and not renewed yet. This write by another client breaks
        // its lease, and the server closes its handle.
        other.write("f", b"new").await.unwrap();
        // The client has a new session, in which this file has not been reconnected yet, so no
        // lease counts until then.
        share.metadata("f").await.unwrap();
        assert!(file.lease().is_empty(), "nothing may be kept before");
        assert!(told.0.lock().unwrap().is_empty());
        file.confirm().await.unwrap();
        assert_eq!(file.lease(), kept);
        tokio::task::yield_now().await;
        assert_eq!(file.read_bytes(0, 9).await.unwrap(), b"new"[..]);
        assert_eq!(*told.0.lock().unwrap(), [LeaseState::HANDLE]);
    });
}

/// The break may come when the lease is not known any more: the CLOSE answers it.
#[test]
fn nobody_waits_for_what_is_let_go_of() {
    use frevo_client::LeaseState;
    in_world(async |world| {
        let (share, other) = (world.share().await, world.share().await);
        let kept = [LeaseState::READ, LeaseState::READ | LeaseState::WRITE];
        let options = OpenOptions::new().read(true).write(true).create(true);
        for (kept, turns) in kept.into_iter().cycle().zip(0..200) {
            let file = options.clone().lease(kept).open(&share, "f").await.unwrap();
            assert_eq!(file.lease(), kept);
            let rival = async { other.write("f", b"new").await.unwrap() };
            let let_go = async {
                // The number of yields varies, so that the file is dropped sometimes before and
                // sometimes after the break is sent.
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                drop(file);
            };
            let both = async { tokio::join!(rival, let_go) };
            let limit = Duration::from_secs(10);
            tokio::time::timeout(limit, both).await.expect("it is closed");
        }
    });
}
