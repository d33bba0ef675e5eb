//! The state of a server as administrators see it, and what they end.
#![allow(unreachable_pub, dead_code, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

use std::time::{Duration, Instant};

use client::draft::Draft;
use client::files::{Want, lock_draft, read_draft};
use client::world::{in_own_world, settings};
use client::{Offer, World};
use frevo_server::{Kick, StatusQuery};
use frevo_wire::command::change_notify::{self, ChangeNotifyFlags, CompletionFilter};
use frevo_wire::command::lock::LockFlags;
use frevo_wire::{Command, Status};

/// A world without other sessions than those of the test.
fn in_world(test: impl AsyncFnOnce(&World)) {
    in_own_world(false, &World::new(settings()), test);
}

#[test]
fn a_status_shows_sessions_opens_locks_and_counts() {
    in_world(async |world| {
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        let (_bob, _his) = world.session("bob", &Offer::default()).await;
        let file = ann.open_file(&hers, &Want::file("a &b\u{e4}")).await;
        ann.write(&hers, file, 0, b"data").await;
        let lock = LockFlags::EXCLUSIVE_LOCK | LockFlags::FAIL_IMMEDIATELY;
        ann.on(&hers, lock_draft(file, &[(10, 20, lock)])).await.ok();
        ann.on(&hers, read_draft(file, 1 << 40, 4)).await.expect(Status::END_OF_FILE);

        let status = world.embedded.status(&StatusQuery::default());
        assert_eq!((status.sessions.rows.len(), status.sessions.more), (2, 0));
        let session = status.sessions.rows.iter().find(|row| row.user == "ann").unwrap();
        assert_eq!((session.opens, session.locks, &*session.shares), (1, 1, &["data".into()][..]));
        assert_eq!((session.dialect, session.channels.len()), ("3.1.1", 1));
        assert!(session.signing.is_some() && session.channels[0].credits > 0, "{session:?}");
        let (channel, all) = (&session.channels[0], &session.activity);
        let carried = (channel.operations, channel.received, channel.sent);
        assert_eq!(carried, (all.operations, all.received, all.sent));
        assert!(channel.received > 0 && channel.sent > 0, "{session:?}");
        let activity = &session.activity;
        let count =
            |class| activity.classes.iter().find(|c| c.class == class).map_or(0, |c| c.count);
        assert_eq!([count("open"), count("write"), count("read"), count("lock")], [1, 1, 1, 1]);
        assert_eq!((activity.failures, count("close")), (1, 0));
        let errors = &world.embedded.overview().errors;
        let past_end = errors.iter().find(|error| error.status == "END_OF_FILE");
        assert_eq!(past_end.map(|error| error.count), Some(1), "{errors:?}");
        assert!(activity.received > 4 && activity.sent > 0);
        let read = activity.classes.iter().find(|c| c.class == "read").unwrap();
        assert_eq!(read.buckets.iter().sum::<u64>(), 1);

        let open = &status.opens.rows[0];
        assert_eq!((&*open.path, &*open.share, &*open.user), ("a &b\u{e4}", "data", "ann"));
        assert_eq!((open.kind, open.locks, open.session.as_ref()), ("file", 1, Some(&session.id)));
        assert!(open.access.starts_with("rw"), "{}", open.access);
        let lock = &status.locks.rows[0];
        assert_eq!(
            (lock.offset, lock.length, lock.exclusive, &lock.open),
            (10, 20, true, &open.id)
        );
        let share = status.shares.rows.iter().find(|share| share.name == "data").unwrap();
        assert_eq!((share.connections, share.opens), (2, 1));
        assert!(status.server.activity.operations >= activity.operations);
    });
}

#[test]
fn counts_of_ended_sessions_stay_in_the_sum_and_failed_logons_are_counted() {
    in_world(async |world| {
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        let file = ann.open_file(&hers, &Want::file("f")).await;
        ann.write(&hers, file, 0, b"data").await;
        let before = world.embedded.status(&StatusQuery::default()).server.activity;
        ann.on(&hers, Draft::empty(Command::LOGOFF)).await.ok();
        drop(ann);
        while !world.server.sessions().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let after = world.embedded.status(&StatusQuery::default());
        assert_eq!(after.sessions.rows.len(), 0);
        // The LOGOFF counts as one more operation.
        assert_eq!(after.server.activity.operations, before.operations + 1);
        assert!(after.server.activity.received > before.received);
    });
}

#[test]
fn a_status_is_cut_and_counts_the_rest() {
    in_world(async |world| {
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        for name in ["a", "b", "c"] {
            ann.open_file(&hers, &Want::file(name)).await;
        }
        let mut query = StatusQuery::default();
        query.limit = 2;
        let status = world.embedded.status(&query);
        assert_eq!((status.opens.rows.len(), status.opens.more), (2, 1));
        query.user = Some(String::from("BOB"));
        let status = world.embedded.status(&query);
        assert_eq!((status.sessions.rows.len(), status.opens.rows.len()), (0, 0));
        query.user = Some(String::from("ANN"));
        query.share = Some(String::from("nowhere"));
        let status = world.embedded.status(&query);
        assert_eq!((status.sessions.rows.len(), status.opens.rows.len()), (1, 0));
    });
}

/// MS-SMB2 3.3.4.17: the Open is gone, its waiting requests end, the session goes on.
#[test]
fn a_kicked_open_is_closed_and_nothing_else() {
    in_world(async |world| {
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        let file = ann.open_file(&hers, &Want::file("f")).await;
        let folder = ann.open_file(&hers, &Want::directory("d")).await;
        let request = change_notify::Request {
            flags: ChangeNotifyFlags::EMPTY,
            output_buffer_length: 4096,
            file_id: folder,
            completion_filter: CompletionFilter::FILE_NAME,
        };
        let notify = Draft::new(Command::CHANGE_NOTIFY).with(|w| request.encode(w));
        ann.send(vec![hers.put(notify)], hers.via()).await;
        ann.interim().await;
        let kicked = world.embedded.kick(&Kick::Open(folder.volatile), "a test").await;
        assert_eq!((kicked.opens, kicked.sessions), (1, 0));
        let reply = ann.reply().await;
        assert_eq!(reply.header.command, Command::CHANGE_NOTIFY);
        ann.on(&hers, read_draft(folder, 0, 4)).await.expect(Status::FILE_CLOSED);
        ann.write(&hers, file, 0, b"still open").await;
        let again = world.embedded.kick(&Kick::Open(folder.volatile), "a test").await;
        assert!(again.is_nothing());
    });
}

/// MS-SMB2 3.3.4.12: all Opens close, also those that would have waited for their client.
#[test]
fn a_kicked_session_ends_with_its_opens() {
    in_world(async |world| {
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        let (mut bob, his) = world.session("bob", &Offer::default()).await;
        ann.open_file(&hers, &Want::file("f")).await;
        let status = world.embedded.status(&StatusQuery::default());
        let row = status.sessions.rows.iter().find(|row| row.user == "ann").unwrap();
        let id = u64::from_str_radix(row.id.trim_start_matches("0x"), 16).unwrap();
        let kicked = world.embedded.kick(&Kick::Session(id), "a test").await;
        assert_eq!((kicked.sessions, kicked.opens), (1, 1));
        ann.create(&hers, &Want::existing("f")).await.expect(Status::USER_SESSION_DELETED);
        bob.open_file(&his, &Want::existing("f")).await;
        // Ann was kicked, but may log on again at once.
        ann.log_on("ann").await;
        let kicked = world.embedded.kick(&Kick::User(String::from("Bob")), "a test").await;
        assert_eq!((kicked.sessions, kicked.opens), (1, 1));
        assert!(
            world.embedded.kick(&Kick::User(String::from("carol")), "a test").await.is_nothing()
        );
    });
}

#[test]
fn a_kicked_share_is_disconnected_for_everybody() {
    in_world(async |world| {
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        let (mut bob, his) = world.session("bob", &Offer::default()).await;
        ann.open_file(&hers, &Want::file("f")).await;
        let kicked = world.embedded.kick(&Kick::Share(String::from("DATA")), "a test").await;
        assert_eq!((kicked.tree_connects, kicked.opens, kicked.sessions), (2, 1, 0));
        let gone = Status::NETWORK_NAME_DELETED;
        ann.create(&hers, &Want::existing("f")).await.expect(gone);
        bob.create(&his, &Want::existing("f")).await.expect(gone);
    });
}

/// The time for which a CREATE waits for another client is not the disk's.
#[test]
fn waiting_for_others_is_told_from_waiting_for_the_disk() {
    in_world(async |world: &World| {
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        let (mut bob, his) = world.session("bob", &Offer::default()).await;
        let file = ann.open_file(&hers, &Want::file("f")).await;
        let exclusive = LockFlags::EXCLUSIVE_LOCK;
        let at_once = exclusive | LockFlags::FAIL_IMMEDIATELY;
        ann.on(&hers, lock_draft(file, &[(0, 1, at_once)])).await.ok();
        let same = bob.open_file(&his, &Want::existing("f")).await;
        let row = || {
            let status = world.embedded.status(&StatusQuery::default());
            let row = status.sessions.rows.into_iter().find(|row| row.user == "bob");
            row.unwrap().activity
        };
        let (before, began) = (row(), Instant::now());
        bob.send(vec![his.put(lock_draft(same, &[(0, 1, exclusive)]))], his.via()).await;
        bob.interim().await;
        std::thread::sleep(Duration::from_millis(300));
        ann.close(&hers, file).await;
        bob.reply().await.ok();
        let took = u64::try_from(began.elapsed().as_micros()).unwrap();
        let after = row();
        let others = after.waited_others_us - before.waited_others_us;
        let medium = after.waited_medium_us - before.waited_medium_us;
        assert!(others >= 300_000, "{after:?}");
        // No time counts twice, however slow the machine is.
        assert!(others + medium <= took, "{others} + {medium} of {took}");
    });
}
