//! Leases, where breaks, answers and the end of a session cross each other.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::dialed;
use crate::evil;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dialed::{ToEvil, in_time, on_paused_clock};
use evil::{Act, Asked, Manners};
use frevo_client::internal::{Dial, Lease, LeaseHolder, Yield};
use frevo_client::{
    Client, Credentials, Error, File, LeaseState, OpenOptions, Options, ServerName, Share,
};
use frevo_wire::codec::Writer;
use frevo_wire::command::create;
use frevo_wire::create_context::CreateContext;
use frevo_wire::{Command, Status};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

type Messages = Arc<Mutex<Vec<Vec<u8>>>>;

const KEPT: LeaseState = LeaseState::READ.union(LeaseState::HANDLE);

/// A server that answers the CREATE of the second Open when it is told to.
struct World {
    share: Share,
    lease: Arc<Lease>,
    /// The frame to send before the next answer to an ECHO.
    next: Messages,
    /// Answers that are kept back.
    kept: Messages,
    /// Breaks of what each CREATE asks for.
    notice: Messages,
    /// Breaks that were acknowledged.
    acknowledged: Arc<AtomicUsize>,
}

impl World {
    /// The second Open is CREATE `second.1` on connection `second.0`, both from 0. With
    /// `loses` the first connection ends with an ECHO.
    async fn new(second: (usize, usize), loses: bool) -> Self {
        let [next, kept, notice]: [Messages; 3] = Default::default();
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let script = {
            let (next, kept, notice) = (Arc::clone(&next), Arc::clone(&kept), Arc::clone(&notice));
            let acknowledged = Arc::clone(&acknowledged);
            move |asked: &Asked<'_>| match asked.header.command {
                Command::CREATE => {
                    notice.lock().push(broken(asked));
                    if (asked.connection, asked.nth) == second {
                        return Act::Kept(Arc::clone(&kept));
                    }
                    Act::Honest
                }
                Command::ECHO if loses && asked.connection == 0 => Act::Close,
                Command::ECHO => Act::First(std::mem::take(&mut next.lock())),
                Command::OPLOCK_BREAK => {
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                    let body: Vec<u8> = [&[36, 0][..], &[0; 34]].concat();
                    Act::Changed(Box::new(move |message| {
                        message.truncate(64);
                        message[8..12].copy_from_slice(&Status::SUCCESS.0.to_le_bytes());
                        message.extend_from_slice(&body);
                    }))
                }
                _ => Act::Honest,
            }
        };
        let evil = ToEvil::new(Manners { leases: true, ..Manners::default() }, script);
        let client = Client::with_dialer(Options::default(), evil as Arc<dyn Dial>);
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new("evil"), user).await.unwrap();
        let share = session.share("data").await.unwrap();
        let lease = share.lease().unwrap();
        Self { share, lease, next, kept, notice, acknowledged }
    }

    async fn open(&self) -> Result<File, Error> {
        let options = OpenOptions::new().read(true).lease(KEPT).shared_lease(&self.lease);
        in_time("open", options.open(&self.share, "known")).await
    }

    /// Opens it once more; returns when the server has that.
    async fn open_slowly(&self) -> JoinHandle<Result<File, Error>> {
        let (share, lease) = (self.share.clone(), Arc::clone(&self.lease));
        let options = OpenOptions::new().read(true).lease(KEPT).shared_lease(&lease);
        let opening = tokio::spawn(async move { options.open(&share, "known").await });
        until(|| !self.kept.lock().is_empty()).await;
        opening
    }

    /// The server sends these.
    async fn says(&self, messages: &Messages) {
        *self.next.lock() = std::mem::take(&mut messages.lock());
        self.share.session().echo().await.unwrap();
    }

    /// The server takes the lease before the Open that it is granted to is answered.
    async fn breaks(&self, opening: JoinHandle<Result<File, Error>>) {
        let last = self.notice.lock().pop().into_iter().collect();
        self.says(&Arc::new(Mutex::new(last))).await;
        until(|| self.acknowledged.load(Ordering::SeqCst) == 1).await;
        self.says(&self.kept).await;
        let file = opening.await.unwrap().unwrap();
        assert_eq!(file.lease(), LeaseState::EMPTY, "what is broken is not granted again");
    }
}

async fn until(is_so: impl Fn() -> bool) {
    for _ in 0..200 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not come about");
}

/// The break of the lease that a CREATE asks for, to nothing, with epoch 2. An
/// acknowledgment is waited for.
fn broken(asked: &Asked<'_>) -> Vec<u8> {
    let request = create::Request::parse(asked.message).unwrap();
    let key = request.contexts.requests().find_map(|context| match context {
        Ok(CreateContext::LeaseV2(lease)) => Some(lease.lease.lease_key),
        _ => None,
    });
    let mut body = Vec::new();
    let mut w = Writer::new(&mut body);
    w.u16(44).u16(2).u32(1).bytes(&key.unwrap().0).u32(KEPT.bits()).u32(0).bytes(&[0; 12]);
    let mut message = evil::said(&asked.header, Status::SUCCESS, &body);
    message[12..14].copy_from_slice(&Command::OPLOCK_BREAK.0.to_le_bytes());
    message[24..32].copy_from_slice(&[0xFF; 8]);
    message
}

/// The server waits for the acknowledgment, and whoever wants the file with it: 35 s.
#[test]
fn a_break_is_acknowledged_while_the_last_open_goes_and_another_comes() {
    on_paused_clock(async {
        let world = World::new((0, 1), false).await;
        let first = world.open().await.unwrap();
        assert_eq!(first.lease(), KEPT);
        let opening = world.open_slowly().await;
        first.close().await.unwrap();
        world.breaks(opening).await;
    });
}

#[test]
fn a_break_is_acknowledged_before_the_first_answer_of_a_new_session() {
    on_paused_clock(async {
        let world = World::new((1, 0), true).await;
        let _first = world.open().await.unwrap();
        world.share.session().echo().await.unwrap_err();
        let opening = world.open_slowly().await;
        world.breaks(opening).await;
    });
}

/// Of an Open that was not taken up again nobody knows whether it was lost meanwhile.
#[test]
fn what_was_kept_in_a_lost_session_is_not_confirmed_by_another_open() {
    on_paused_clock(async {
        let world = World::new((usize::MAX, 0), true).await;
        let _first = world.open().await.unwrap();
        let before = world.lease.grant();
        assert_eq!(before.state, KEPT);
        world.share.session().echo().await.unwrap_err();
        let _second = world.open().await.unwrap();
        let now = world.lease.grant();
        assert_eq!(now.state, KEPT);
        assert_ne!(now.version, before.version);
    });
}

/// Never done with what it gives up.
struct Slow(AtomicUsize);

impl LeaseHolder for Slow {
    fn broken(&self, _: LeaseState) -> Yield {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::pending())
    }
}

#[test]
fn what_is_broken_is_not_used_while_others_give_up_theirs() {
    const FILES: usize = 200;
    on_paused_clock(async {
        let world = World::new((usize::MAX, 0), false).await;
        let slow = Arc::new(Slow(AtomicUsize::new(0)));
        let holder: Arc<dyn LeaseHolder> = Arc::clone(&slow) as _;
        let options = OpenOptions::new().read(true).lease(KEPT);
        let mut files = Vec::new();
        for at in 0..FILES {
            let file = options.open(&world.share, &format!("known{at}")).await.unwrap();
            assert_eq!(file.lease(), KEPT);
            file.watch_lease(Arc::downgrade(&holder));
            files.push(file);
        }
        world.says(&world.notice).await;
        until(|| slow.0.load(Ordering::SeqCst) == FILES).await;
        assert!(files.iter().all(|file| file.lease().is_empty()));
        assert_eq!(world.acknowledged.load(Ordering::SeqCst), 0, "nothing is given up yet");
    });
}
