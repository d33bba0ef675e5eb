//! Many who wait for one lost server, and what they are told.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::dialed;
use crate::evil;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use dialed::{ToEvil, in_time, on_paused_clock};
use evil::{Act, Asked, Manners};
use frevo_client::internal::Dial;
use frevo_client::internal::Dialing;
use frevo_client::{
    Cause, Client, Credentials, Error, OpenOptions, Options, ServerName, Session, Share,
};
use frevo_wire::{Command, Status};
use futures_util::future::join_all;
use tokio::time::Instant;

const PATIENCE: Duration = Duration::from_secs(20);

/// A server that can be lost: what it had is cut, and what is new is not answered.
#[derive(Debug)]
struct Losable {
    evil: Arc<ToEvil>,
    is_lost: Arc<AtomicBool>,
}

impl Dial for Losable {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        if self.is_lost.load(Ordering::SeqCst) {
            return Box::pin(std::future::pending());
        }
        self.evil.dial(server)
    }
}

struct World {
    dial: Arc<Losable>,
    session: Session,
    share: Share,
}

impl World {
    /// It answers by the script while it is not lost.
    async fn new(script: impl Fn(&Asked<'_>) -> Act + Send + Sync + 'static) -> Self {
        let is_lost = Arc::new(AtomicBool::new(false));
        let lost = Arc::clone(&is_lost);
        let evil = ToEvil::new(Manners::default(), move |asked| {
            if lost.load(Ordering::SeqCst) { Act::Close } else { script(asked) }
        });
        let dial = Arc::new(Losable { evil, is_lost });
        let options = Options::new().recover_for(PATIENCE);
        let client = Client::with_dialer(options, Arc::clone(&dial) as Arc<dyn Dial>);
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new("evil"), user).await.unwrap();
        let share = session.share("data").await.unwrap();
        share.read("known").await.unwrap();
        Self { dial, session, share }
    }

    fn lose(&self) {
        self.dial.is_lost.store(true, Ordering::SeqCst);
    }

    fn dialed(&self) -> usize {
        self.dial.evil.dialed.load(Ordering::SeqCst)
    }
}

#[test]
fn all_who_wait_are_told_in_the_time_of_one() {
    on_paused_clock(async {
        let world = World::new(|_| Act::Honest).await;
        world.lose();
        let began = Instant::now();
        let reads = join_all((0..16).map(|_| world.share.read("known"))).await;
        for read in reads {
            assert!(matches!(read.unwrap_err().cause(), Cause::Transport(_)));
        }
        // An attempt that begins just before the patience ends may take ten more seconds.
        assert!(began.elapsed() < PATIENCE + Duration::from_secs(12), "{:?}", began.elapsed());
    });
}

#[test]
fn a_logon_that_is_refused_is_not_tried_for_each_who_waits() {
    on_paused_clock(async {
        let world = World::new(|asked| match asked.header.command {
            Command::SESSION_SETUP if asked.connection > 0 => Act::Refused(Status::LOGON_FAILURE),
            Command::CREATE if asked.nth == 1 => Act::Close,
            _ => Act::Honest,
        })
        .await;
        let is_refused = |error: Error| {
            assert_eq!(error.status(), Some(frevo_client::Status::LOGON_FAILURE), "{error}");
            assert!(error.to_string().contains("user name or password of ann"), "{error}");
        };
        for read in join_all((0..16).map(|_| world.share.read("known"))).await {
            is_refused(read.unwrap_err());
        }
        is_refused(world.share.metadata("known").await.unwrap_err());
        assert_eq!(world.dialed(), 2, "one attempt for all");
        // A refused logon is not repeated at once. After this time it is tried again, because the
        // reason may be gone.
        tokio::time::advance(Duration::from_secs(31)).await;
        is_refused(world.share.metadata("known").await.unwrap_err());
        assert_eq!(world.dialed(), 3);
    });
}

/// Nobody knows of what was sent; the rest waited for credits.
#[test]
fn what_was_never_sent_is_done_in_the_next_session() {
    on_paused_clock(async {
        let made = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&made);
        let evil = ToEvil::new(Manners::default(), move |asked| {
            if asked.header.command == Command::CREATE {
                if asked.connection == 0 {
                    return Act::Close;
                }
                counted.fetch_add(1, Ordering::SeqCst);
            }
            Act::Honest
        });
        let options = Options::new().credits(8);
        let client = Client::with_dialer(options, Arc::clone(&evil) as Arc<dyn Dial>);
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new("evil"), user).await.unwrap();
        let share = session.share("data").await.unwrap();
        let names: Vec<_> = (0..16).map(|at| format!("new{at}")).collect();
        let done = join_all(names.iter().map(|name| share.create_dir(name))).await;
        let is_unknown = |done: &&Result<(), Error>| {
            matches!(done.as_ref().map_err(Error::cause), Err(Cause::Unknown))
        };
        let unknown = done.iter().filter(is_unknown).count();
        // The client has eight credits and each request takes two, so at most four had been sent.
        assert!((1..=4).contains(&unknown), "{unknown}");
        let well = done.iter().filter(|done| done.is_ok()).count();
        assert_eq!((well, made.load(Ordering::SeqCst)), (16 - unknown, 16 - unknown));
    });
}

/// A name that is taken is not in doubt for who asked for it once.
#[test]
fn what_is_taken_is_said_to_who_asked_in_the_next_session_alone() {
    on_paused_clock(async {
        let evil = ToEvil::new(Manners::default(), |asked| match asked.header.command {
            Command::CREATE if asked.connection == 0 => Act::Close,
            Command::CREATE => Act::Refused(Status::OBJECT_NAME_COLLISION),
            _ => Act::Honest,
        });
        let options = Options::new().credits(8);
        let client = Client::with_dialer(options, evil as Arc<dyn Dial>);
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new("evil"), user).await.unwrap();
        let share = session.share("data").await.unwrap();
        let new = OpenOptions::new().write(true).create_new(true);
        let errors = join_all((0..16).map(|_| new.open(&share, "new"))).await;
        let errors: Vec<_> = errors.into_iter().map(Result::unwrap_err).collect();
        let unknown = errors.iter().filter(|e| matches!(e.cause(), Cause::Unknown)).count();
        assert!((1..=8).contains(&unknown), "{unknown}");
        let is_taken = |e: &&Error| e.status() == Some(frevo_client::Status::OBJECT_NAME_COLLISION);
        assert_eq!(errors.iter().filter(is_taken).count(), 16 - unknown);
    });
}

#[test]
fn nobody_waits_for_a_session_that_is_logged_off() {
    on_paused_clock(async {
        let world = World::new(|_| Act::Honest).await;
        world.lose();
        let World { session, share, .. } = world;
        let end = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            session.log_off().await;
        };
        let began = Instant::now();
        let (read, ()) = tokio::join!(in_time("read", share.read("known")), end);
        assert!(matches!(read.unwrap_err().cause(), Cause::Usage(_)));
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        let later = share.read("known").await.unwrap_err();
        assert!(matches!(later.cause(), Cause::Usage(_)), "{later}");
    });
}

/// A request that was lost is sent again while the server still carries out the first one, for as long as
/// a request may last that the server puts off: 600 s, at most once a second in the end.
#[test]
fn a_server_that_is_not_done_with_the_first_is_asked_again() {
    for (busy, well) in [(5, true), (usize::MAX, false)] {
        on_paused_clock(async {
            let writes = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&writes);
            let evil = ToEvil::new(Manners::default(), move |asked| {
                if asked.header.command != Command::WRITE {
                    return Act::Honest;
                }
                match counted.fetch_add(1, Ordering::SeqCst) {
                    0 => Act::Refused(Status::NETWORK_NAME_DELETED),
                    nth if nth <= busy => Act::Refused(Status::FILE_NOT_AVAILABLE),
                    _ => Act::Honest,
                }
            });
            let client = Client::with_dialer(Options::default(), evil as Arc<dyn Dial>);
            let user = Credentials::new("ann", "secret");
            let session = client.connect(ServerName::new("evil"), user).await.unwrap();
            let share = session.share("data").await.unwrap();
            let file = OpenOptions::new().write(true).open(&share, "known").await.unwrap();
            let began = Instant::now();
            let written = in_time("write", file.write_all_at(b"data", 0)).await;
            assert!(began.elapsed() < Duration::from_secs(602), "{:?}", began.elapsed());
            let status = written.err().and_then(|error| error.status());
            assert_eq!(status, (!well).then_some(frevo_client::Status::FILE_NOT_AVAILABLE));
            let expected = if well { 7..=7 } else { 600..=610 };
            let writes = writes.load(Ordering::SeqCst);
            assert!(expected.contains(&writes), "{writes} requests");
        });
    }
}
