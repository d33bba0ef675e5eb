//! Calls that nobody waits for any more, dropped at whatever they wait for: nothing is left
//! with the server, and nothing is missed by who calls again.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::dialed;
use crate::evil;
use crate::world;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use dialed::{ToEvil, on_paused_clock, one_thing};
use evil::between::{Between, Line};
use evil::{Act, Asked, CONTENT, Manners};
use frevo_client::internal::Dial;
use frevo_client::{
    Change, Client, Credentials, Error, File, LockKind, OpenOptions, Options, RecursiveMode,
    ServerName, Share, ShareMode,
};
use frevo_net::buffer::Buf;
use frevo_wire::compound::Compound;
use frevo_wire::{Command, Header};
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use world::{World, in_world};

const SOON: Duration = Duration::from_secs(10);

async fn share_over(dial: Arc<dyn Dial>, options: Options) -> Share {
    let user = Credentials::new("ann", "secret");
    let session = Client::with_dialer(options, dial).connect(ServerName::new("frevo"), user).await;
    session.unwrap().share("data").await.unwrap()
}

/// Opened so that nobody else can have it open.
async fn alone(share: &Share) -> Result<File, Error> {
    let options = OpenOptions::new().read(true).write(true).create(true);
    options.share_mode(ShareMode::EMPTY).open(share, "file").await
}

/// Starts a call and gives it up after `polls` looks at it.
async fn give_up<T>(call: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut call = pin!(call);
    for _ in 0..polls {
        let now = std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx)));
        if let std::task::Poll::Ready(done) = now.await {
            return Some(done);
        }
        tokio::task::yield_now().await;
    }
    None
}

async fn until<T>(what: &str, mut tried: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let attempts = async {
        loop {
            match tried().await {
                Ok(done) => return done,
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    };
    timeout(SOON, attempts).await.unwrap_or_else(|_| panic!("{what} is left behind"))
}

/// The server would keep it, and its locks, for minutes.
#[test]
fn a_file_that_is_let_go_of_while_the_server_is_lost_is_closed() {
    for closes in [true, false] {
        let log = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&log);
        let manners = Manners { keeps: true, ..Manners::default() };
        let evil = ToEvil::new(manners, move |asked| {
            seen.lock().push((asked.connection, asked.header.command));
            Act::Honest
        });
        on_paused_clock(async {
            let line = Line::to(evil);
            let share = share_over(Arc::clone(&line) as _, Options::default()).await;
            let file = share.open("known").await.unwrap();
            line.cut();
            if closes {
                let closed = timeout(Duration::from_millis(300), file.close()).await;
                assert!(closed.is_err(), "it waits for the server");
            } else {
                drop(file);
            }
            line.mend();
            sleep(SOON).await;
            let asked = std::mem::take(&mut *log.lock());
            let since = asked.iter().filter(|(connection, _)| *connection == 1);
            let since: Vec<_> = since.map(|(_, command)| *command).collect();
            let ends = [Command::CREATE, Command::CLOSE];
            assert!(since.ends_with(&ends), "{since:?}");
        });
    }
}

#[test]
fn what_is_closed_is_not_taken_up_again() {
    in_world(async |world: &World| {
        let line = Line::to(Arc::clone(&world.wire) as _);
        let share = share_over(Arc::clone(&line) as _, Options::default()).await;
        let file = alone(&share).await.unwrap();
        file.clone().close().await.unwrap();
        line.cut();
        line.mend();
        let error = file.read_bytes(0, 10).await.unwrap_err();
        assert_eq!(error.status(), Some(frevo_client::Status::FILE_CLOSED));
        alone(&world.share().await).await.unwrap();
    });
}

/// A lease that others share would not keep the handle: the client makes it resilient.
#[test]
fn a_lock_outlives_a_cut_while_others_have_the_file_open() {
    in_world(async |world: &World| {
        let line = Line::to(Arc::clone(&world.wire) as _);
        let share = share_over(Arc::clone(&line) as _, Options::default()).await;
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = options.open(&share, "f").await.unwrap();
        let others = options.open(&world.share().await, "f").await.unwrap();
        file.lock(0, 4, LockKind::Exclusive).await.unwrap();
        line.cut();
        line.mend();
        file.write_all_at(b"kept", 0).await.unwrap();
        let refused = others.try_lock(0, 4, LockKind::Shared).await.unwrap_err();
        assert_eq!(refused.status(), Some(frevo_client::Status::LOCK_NOT_GRANTED));
        file.unlock(0, 4).await.unwrap();
        others.try_lock(0, 4, LockKind::Shared).await.unwrap();
    });
}

#[test]
fn a_lock_that_is_given_up_is_not_held() {
    in_world(async |world: &World| {
        let share = world.share().await;
        let options = OpenOptions::new().read(true).write(true).create(true);
        let holder = options.open(&share, "file").await.unwrap();
        let waiter = options.open(&share, "file").await.unwrap();
        let third = options.open(&share, "file").await.unwrap();
        for polls in [0, 1, 2, 3, 5, 20, 400] {
            // The caller gives up before the lock is granted, so the server must not grant it
            // later.
            holder.try_lock(0, 10, LockKind::Exclusive).await.unwrap();
            assert!(give_up(waiter.lock(0, 10, LockKind::Exclusive), polls).await.is_none());
            holder.unlock(0, 10).await.unwrap();
            until("a lock", async || third.try_lock(0, 10, LockKind::Exclusive).await).await;
            third.unlock(0, 10).await.unwrap();
            // The caller gives up while the lock is being granted. If it was granted, it is
            // released.
            if give_up(waiter.lock(0, 10, LockKind::Exclusive), polls).await.is_some() {
                waiter.unlock(0, 10).await.unwrap();
            }
            until("a lock", async || third.try_lock(0, 10, LockKind::Exclusive).await).await;
            third.unlock(0, 10).await.unwrap();
        }
        // After all these cancelled attempts the waiter can still get the lock.
        waiter.try_lock(0, 10, LockKind::Exclusive).await.unwrap();
        waiter.unlock(0, 10).await.unwrap();
    });
}

#[test]
fn what_a_share_can_is_not_taken_for_granted() {
    in_world(async |world: &World| {
        let share = world.share().await;
        assert!(give_up(share.use_posix(), 1).await.is_none());
        assert!(!share.is_posix());
        assert!(!share.use_posix().await.unwrap());
    });
}

#[test]
fn no_name_of_a_listing_is_missed() {
    in_world(async |world: &World| {
        for at in 0..8_000 {
            std::fs::write(world.path(&format!("entry-{at:05}")), b"").unwrap();
        }
        // With eight credits one reply cannot hold the whole listing, so the listing needs several
        // replies.
        let options = Options::new().credits(8);
        let share = share_over(Arc::clone(&world.wire) as _, options).await;
        let mut dir = share.read_dir("").await.unwrap();
        let (mut names, mut given_up) = (std::collections::BTreeSet::new(), 0);
        for polls in (1..4).cycle() {
            match give_up(dir.next_entry(), polls).await {
                Some(Ok(Some(entry))) => assert!(names.insert(entry.file_name().to_owned())),
                Some(Ok(None)) => break,
                Some(Err(error)) => panic!("{error}"),
                None => given_up += 1,
            }
            tokio::task::yield_now().await;
        }
        assert_eq!(names.len(), 8_000);
        assert!(given_up > 3, "{given_up}");
    });
}

#[test]
fn no_change_is_missed() {
    in_world(async |world: &World| {
        let share = world.share().await;
        let mut watch = share.watch("", RecursiveMode::NonRecursive).await.unwrap();
        // The watch is started and given up, so from here on the server stores changes for the next
        // call.
        assert!(timeout(Duration::from_millis(100), watch.next_changes()).await.is_err());
        let writes = async {
            for at in 0..100 {
                share.write(&format!("new-{at}"), b"1").await.unwrap();
            }
        };
        let seen = async {
            let mut seen = std::collections::BTreeSet::new();
            for polls in (1..6).cycle() {
                for change in
                    give_up(watch.next_changes(), polls).await.unwrap_or(Ok(vec![])).unwrap()
                {
                    match change {
                        Change::Added(name) => drop(seen.insert(name)),
                        Change::Missed => panic!("the server had room"),
                        _ => {}
                    }
                }
                if seen.len() == 100 {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        let both = async { tokio::join!(writes, seen) };
        timeout(SOON, both).await.expect("all are told");
    });
}

/// A watch connects the share again after a loss, at whatever step its caller leaves it.
#[test]
fn a_watch_that_nobody_waits_for_keeps_nobody_from_the_share() {
    in_world(async |world: &World| {
        let line = Line::to(Arc::clone(&world.wire) as _);
        let share = share_over(Arc::clone(&line) as _, Options::default()).await;
        let mut watch = share.watch("", RecursiveMode::NonRecursive).await.unwrap();
        for polls in 1..60 {
            line.cut();
            line.mend();
            let _ = give_up(watch.next_changes(), polls).await;
            let asked = timeout(SOON, share.metadata("")).await;
            assert!(asked.is_ok_and(|found| found.is_ok()), "after {polls} looks");
        }
    });
}

/// Counts requests of some commands down and up again, by what each adds.
fn counting(
    server: &Arc<dyn Dial>,
    there: &'static [(Command, i64)],
    back: &'static [(Command, i64)],
) -> (Arc<dyn Dial>, Arc<AtomicI64>) {
    let count = Arc::new(AtomicI64::new(0));
    let note = |adds: &'static [(Command, i64)]| {
        let count = Arc::clone(&count);
        Arc::new(move |frame: Vec<u8>| {
            for (_, message) in Compound::new(&frame).flatten() {
                let command = Header::parse(message).map(|header| header.command);
                let add = adds.iter().find(|(of, _)| Ok(*of) == command);
                count.fetch_add(add.map_or(0, |(_, add)| *add), Ordering::SeqCst);
            }
            vec![frame]
        })
    };
    let between = Between { server: Arc::clone(server), there: note(there), back: note(back) };
    (Arc::new(between), count)
}

#[test]
fn what_was_interrupted_writes_nothing_more() {
    in_world(async |world: &World| {
        let server = Arc::clone(&world.wire) as Arc<dyn Dial>;
        let (dial, under_way) = counting(&server, &[(Command::WRITE, 1)], &[(Command::WRITE, -1)]);
        let share = share_over(dial, Options::default()).await;
        let file = File::create(&share, "large").await.unwrap();
        let fill = |_: u64, count: usize, buf: &mut Buf| {
            buf.extend_from_slice(&vec![7; count]);
            Ok(())
        };
        let stopped = file.store(0, 64 << 20, fill, |_| false).await.unwrap_err();
        assert_eq!(stopped.kind(), std::io::ErrorKind::Interrupted);
        assert_eq!(under_way.load(Ordering::SeqCst), 0);
        file.set_len(0).await.unwrap();
        sleep(Duration::from_millis(50)).await;
        assert_eq!(file.metadata().await.unwrap().len(), 0);
    });
}

#[test]
fn a_share_that_is_let_go_of_is_disconnected() {
    in_world(async |world: &World| {
        let server = Arc::clone(&world.wire) as Arc<dyn Dial>;
        let there = &[(Command::TREE_CONNECT, 1), (Command::TREE_DISCONNECT, -1)];
        let (dial, trees) = counting(&server, there, &[]);
        let share = share_over(dial, Options::default()).await;
        for _ in 0..20 {
            share.session().shares().await.unwrap();
            let again = share.session().share("data").await.unwrap();
            again.write("file", b"1").await.unwrap();
            let file = again.open("file").await.unwrap();
            drop(again);
            // The tree connect of the dropped share stays, because the open file still uses it.
            assert_eq!(file.read_bytes(0, 1).await.unwrap(), &b"1"[..]);
        }
        let gone = async {
            while trees.load(Ordering::SeqCst) > 1 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(SOON, gone).await.expect("one is left");
        share.read("file").await.unwrap();
    });
}

#[test]
fn few_credits_are_enough_for_many_compounds() {
    let options = Options::new().credits(8);
    let (read, dialed) = one_thing(
        Manners::default(),
        options,
        |_| Act::Honest,
        async |client| {
            let user = Credentials::new("ann", "secret");
            let session = client.connect(ServerName::new("evil"), user).await?;
            let share = session.share("data").await?;
            let began = tokio::time::Instant::now();
            for read in join_all((0..16).map(|_| share.read("known"))).await {
                assert_eq!(read?, CONTENT);
            }
            // The callers give up after 0 to 3 polls, some of them while they wait for credits.
            join_all((0..16).map(|at| give_up(share.read("known"), at % 4))).await;
            assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
            // If a given-up request counted as sent, the client would miss its answer by now and
            // disconnect.
            sleep(Duration::from_secs(1_000)).await;
            share.read("known").await
        },
    );
    assert_eq!(read.unwrap(), CONTENT);
    assert_eq!(dialed, 1);
}

#[test]
fn a_server_that_never_gives_the_credits_a_request_costs_is_given_up() {
    let manners = Manners { credits: 1, ..Manners::default() };
    let (read, dialed) = one_thing(
        manners,
        Options::default(),
        |_| Act::Honest,
        async |client| {
            let user = Credentials::new("ann", "secret");
            let session = client.connect(ServerName::new("evil"), user).await?;
            session.share("data").await?.read("known").await
        },
    );
    let error = read.unwrap_err();
    assert!(matches!(error.cause(), frevo_client::Cause::Protocol(_)), "{error}");
    assert!(dialed <= 2, "{dialed}");
}

/// Every answer takes away what it cost: a new connection starts without it.
#[test]
fn a_server_that_takes_all_credits_is_come_to_again() {
    let script = |asked: &Asked<'_>| match asked.header.command {
        Command::NEGOTIATE | Command::SESSION_SETUP => Act::Honest,
        _ => Act::Changed(Box::new(|message| message[14..16].fill(0))),
    };
    let (done, dialed) =
        one_thing(Manners::default(), Options::default(), script, async |client| {
            let user = Credentials::new("ann", "secret");
            let session = client.connect(ServerName::new("evil"), user).await?;
            let share = session.share("data").await?;
            let began = tokio::time::Instant::now();
            for _ in 0..400 {
                assert_eq!(share.read("known").await?, CONTENT);
            }
            assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
            Ok(())
        });
    done.unwrap();
    assert!((3..6).contains(&dialed), "{dialed}");
}

/// A small file is made, written and closed by one compound. Whoever stops in the middle, as
/// Ctrl-C does, and logs off leaves whole files, and none that was made and not written.
#[test]
fn a_logoff_waits_for_files_that_are_being_written() {
    in_world(async |world| {
        for round in 0..30 {
            let session = world.session(Options::default()).await;
            let share = session.share("away").await.unwrap();
            let names: Vec<_> = (0..8).map(|at| format!("{round}-{at}")).collect();
            join_all(names.iter().map(|name| give_up(share.write_new(name, CONTENT, None), 2)))
                .await;
            session.log_off().await;
            for name in &names {
                let there = std::fs::read(world.path(name)).unwrap_or(CONTENT.to_vec());
                assert_eq!(there, CONTENT, "{name} is cut");
            }
        }
    });
}
