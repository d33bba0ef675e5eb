//! A share whose file system does not answer: nobody else notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::client::draft::pack;
use crate::client::files::{close_draft, file_id, tree_connect_draft};
use crate::client::peer::async_id;
use crate::client::*;
use frevo_net::socket::Listener;
use frevo_net::transport::Stream;
use frevo_server::ambient::{Ambient, Host};
use frevo_server::internal::limits::{BLOCKING_CLOSES, BLOCKING_REQUESTS};
use frevo_server::internal::state::Shares;
use frevo_server::share::{Share, UserFolders};
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use frevo_store::snapshot::Moment;
use frevo_store::vfs::{OpenHow, Opened, Space, Stat, VfsResult, Volume};
use frevo_store::{FileKey, Name, Node, Vfs};
use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::dtyp::{AccessMask, Guid};
use parking_lot::{Condvar, Mutex};
use tokio::time::timeout;

/// A file system behind a gate: while that is shut, what is asked of names waits.
#[derive(Debug)]
struct Gated {
    inner: MemoryVfs,
    /// For the names that begin so.
    shut: Mutex<Option<&'static str>>,
    turn: Condvar,
    waiting: AtomicUsize,
}

impl Gated {
    fn new() -> Arc<Self> {
        let inner = MemoryVfs::new(MemoryOptions::default(), Arc::new(|| Host.now()));
        let (shut, turn, waiting) = Default::default();
        Arc::new(Self { inner, shut, turn, waiting })
    }

    /// Calls at the gate.
    fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    fn shut(&self, shut: bool) {
        self.shut_for(shut.then_some(""));
    }

    fn shut_for(&self, names: Option<&'static str>) {
        *self.shut.lock() = names;
        self.turn.notify_all();
    }

    fn pass(&self, name: &Name) -> &MemoryVfs {
        let mut shut = self.shut.lock();
        let is_meant = |names: &mut Option<&str>| names.is_some_and(|n| name.path().starts_with(n));
        self.waiting.fetch_add(1, Ordering::AcqRel);
        self.turn.wait_while(&mut shut, is_meant);
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        &self.inner
    }
}

impl Vfs for Gated {
    fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        self.pass(name).open(name, how)
    }

    fn remove(&self, name: &Name, key: FileKey) -> VfsResult<()> {
        self.pass(name).remove(name, key)
    }

    fn rename(&self, from: &Name, key: FileKey, to: &Name, replace: bool) -> VfsResult<Name> {
        self.pass(from).rename(from, key, to, replace)
    }

    fn link(&self, node: &dyn Node, to: &Name, replace: bool) -> VfsResult<()> {
        self.pass(to).link(node, to, replace)
    }

    fn stat(&self, name: &Name) -> VfsResult<Stat> {
        self.pass(name).stat(name)
    }

    fn space(&self) -> VfsResult<Space> {
        self.pass(&Name::root()).space()
    }

    fn snapshots(&self, name: &Name) -> VfsResult<Vec<Moment>> {
        self.pass(name);
        Ok(Vec::new())
    }

    fn volume(&self) -> Arc<Volume> {
        self.inner.volume()
    }
}

/// Adds the share `away` of a gated file system, whose requests leave the core.
fn with_share(world: &World) -> Arc<Gated> {
    let gated = Gated::new();
    let vfs: Arc<dyn Vfs> = Arc::clone(&gated) as _;
    add(world, Share::disk("away", vfs).off_core());
    gated
}

/// Adds a share.
fn add(world: &World, share: Share) {
    let present = world.server.shares().sorted().into_iter();
    let present = present.filter(|share| share.name() != "IPC$").map(|share| Share::clone(&share));
    let shares = Shares::new(present.chain([share]));
    let settings = Settings::clone(&world.server.settings());
    world.server.reload(settings, &shares, world.server.accounts());
}

/// Ann on both shares.
async fn session(world: &World) -> (Peer, Mount, Mount) {
    let (mut peer, data) = world.session("ann", &Offer::default()).await;
    let away = peer.mount(&data.logon, "away").await;
    (peer, data, away)
}

/// Fails when `what` waits for the share that hangs, which it would do without end. A machine
/// that is busy with other tests may need many seconds for a few requests.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(60), what).await.expect("stalled by another share")
}

/// Everything that a client may do with a share, each once.
async fn works(peer: &mut Peer, mount: &Mount) {
    let rights = AccessMask::FILE_ALL;
    let file = peer.open_file(mount, &Want::file("everyday").access(rights)).await;
    peer.write(mount, file, 0, b"as always").await;
    assert_eq!(peer.read(mount, file, 0, 100).await, b"as always");
    peer.close(mount, file).await;
}

#[test]
fn a_share_that_hangs_stalls_no_other() {
    in_world(async |world| {
        let gated = with_share(world);
        let (mut peer, data, away) = session(world).await;
        works(&mut peer, &away).await;

        gated.shut(true);
        let (mut other, theirs) = world.session("bob", &Offer::default()).await;
        let asked = peer.send(vec![away.put(Want::existing("everyday").draft())], away.via()).await;
        // The hung request gets an interim response. Meanwhile, other requests of its connection
        // and of its core must be served.
        let interim = soon(peer.interim()).await;
        assert_eq!(interim.header.message_id, asked[0]);
        soon(works(&mut other, &theirs)).await;
        soon(works(&mut peer, &data)).await;
        gated.shut(false);
        let reply = soon(peer.final_reply(asked[0])).await;
        peer.close(&away, file_id(reply.ok())).await;
        works(&mut peer, &away).await;
    });
}

#[test]
fn many_requests_to_it_wait_for_a_place_and_closing_has_its_own() {
    in_world(async |world| {
        let gated = with_share(world);
        let (mut peer, data, away) = session(world).await;
        let open = peer.open_file(&away, &Want::file("f")).await;
        gated.shut(true);
        let drafts = (0..BLOCKING_REQUESTS + 4).map(|_| away.put(Want::existing("f").draft()));
        let mut asked = Vec::new();
        for draft in drafts.collect::<Vec<_>>() {
            asked.extend(peer.send(vec![draft], away.via()).await);
            soon(peer.interim()).await;
        }
        soon(peer.on(&away, close_draft(open))).await.ok();
        soon(works(&mut peer, &data)).await;
        gated.shut(false);
        for reply in soon(peer.collect(&asked)).await {
            peer.close(&away, file_id(reply.ok())).await;
        }
    });
}

/// The folder of a user is opened when the user connects: while that hangs, all others go on.
#[test]
fn a_user_whose_folder_hangs_stalls_no_other() {
    in_world(async |world| {
        let gated = Gated::new();
        let (hung, held) = (Arc::clone(&gated), Arc::clone(&gated));
        let open = move |account: &str| {
            // While the gate is shut, this call hangs, so opening a user's folder hangs as well.
            let _ = hung.stat(&Name::from_stored(account.to_owned()));
            Some(Arc::clone(&hung) as Arc<dyn Vfs>)
        };
        let homes =
            Share::disk("homes", held).off_core().user_folders(UserFolders::new(Arc::new(open)));
        add(world, homes);
        let (mut peer, data) = world.session("ann", &Offer::default()).await;
        let (mut other, theirs) = world.session("bob", &Offer::default()).await;
        gated.shut_for(Some("ann"));
        let draft = tree_connect_draft("\\\\server\\homes").session(data.logon.id);
        let asked = peer.send(vec![draft], data.via()).await;
        let interim = soon(peer.interim()).await;
        assert_eq!(interim.header.message_id, asked[0]);
        soon(works(&mut other, &theirs)).await;
        soon(works(&mut peer, &data)).await;
        gated.shut(false);
        soon(peer.final_reply(asked[0])).await.ok();
        let homes = peer.mount(&data.logon, "homes").await;
        works(&mut peer, &homes).await;
    });
}

/// Closes that hang take their places, and leave the last one to another close.
#[test]
fn closes_that_hang_are_few() {
    in_world(async |world| {
        let gated = with_share(world);
        let (mut peer, _, away) = session(world).await;
        let mut doomed = Vec::new();
        for at in 0..BLOCKING_CLOSES {
            let want = Want::file(&format!("stuck{at}"))
                .access(AccessMask::FILE_ALL)
                .options(CreateOptions::DELETE_ON_CLOSE);
            doomed.push(peer.open_file(&away, &want).await);
        }
        let first = peer.open_file(&away, &Want::file("first")).await;
        let second = peer.open_file(&away, &Want::file("second")).await;
        gated.shut_for(Some("stuck"));
        let mut asked = Vec::new();
        let last = doomed.pop().unwrap();
        for file in doomed {
            asked.extend(peer.send(vec![away.put(close_draft(file))], away.via()).await);
            soon(peer.interim()).await;
        }
        soon(peer.on(&away, close_draft(first))).await.ok();
        for file in [last, second] {
            asked.extend(peer.send(vec![away.put(close_draft(file))], away.via()).await);
            // The file "second" does not hang, but its close needs a place in the pool, which the
            // hanging requests hold.
            soon(peer.interim()).await;
        }
        gated.shut(false);
        for reply in soon(peer.collect(&asked)).await {
            reply.ok();
        }
    });
}

/// However much one user asks of what does not answer, others have places left;
/// and who gave up what has not begun is told so at once.
#[test]
fn one_user_leaves_places_to_others_and_cancels_what_waits_for_one() {
    in_world(async |world| {
        let gated = with_share(world);
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        let logon = peer.log_on("ann").await;
        let away = peer.mount(&logon, "away").await;
        let file = peer.open_file(&away, &Want::file("stuck")).await;
        peer.close(&away, file).await;
        gated.shut_for(Some("stuck"));
        let drafts = (0..BLOCKING_REQUESTS + 4).map(|_| away.put(Want::existing("stuck").draft()));
        let (mut asked, mut last) = (Vec::new(), 0);
        for draft in drafts.collect::<Vec<_>>() {
            asked.extend(peer.send(vec![draft], away.via()).await);
            last = async_id(&soon(peer.interim()).await);
        }
        let (mut other, theirs) = world.session("bob", &Offer::default()).await;
        let elsewhere = other.mount(&theirs.logon, "away").await;
        soon(works(&mut other, &elsewhere)).await;

        let waiting = asked.pop().unwrap();
        let cancel = Peer::cancel(waiting, Some(last), logon.id);
        peer.send_frame(&pack(&[cancel], away.via())).await;
        soon(peer.final_reply(waiting)).await.expect(Status::CANCELLED);
        gated.shut(false);
        for reply in soon(peer.collect(&asked)).await {
            peer.close(&away, file_id(reply.ok())).await;
        }
    });
}

/// The client goes while its request hangs, with a file that is to be deleted:
/// that is done when the file system answers again.
#[test]
fn a_client_that_goes_leaves_nothing() {
    in_world(async |world| {
        let gated = with_share(world);
        let (mut peer, _, away) = session(world).await;
        let doomed = Want::file("doomed").access(AccessMask::DELETE);
        let doomed = doomed.options(CreateOptions::DELETE_ON_CLOSE);
        peer.open_file(&away, &doomed).await;
        gated.shut(true);
        peer.send(vec![away.put(Want::file("late").draft())], away.via()).await;
        soon(peer.interim()).await;
        drop(peer);
        let (mut other, theirs) = world.session("bob", &Offer::default()).await;
        soon(works(&mut other, &theirs)).await;
        gated.shut(false);
        let there = |name: &str| {
            let name = Name::parse(name, frevo_store::name::Rules::Windows).unwrap();
            gated.inner.stat(&name).is_ok()
        };
        soon(async {
            while there("doomed") || !there("late") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    });
}

/// The server stops while the file system does not answer, with a request there
/// and a file that is to be closed: that is waited for as long as was said.
#[test]
fn a_hung_share_does_not_hold_up_the_end() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let world = World::new(settings());
    let gated = with_share(&world);
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let serving = world.listen(listener);
        let stream = Stream::connect(address).await.unwrap();
        let mut peer = Peer::new(stream, Guid([7; 16]));
        peer.negotiate(&Offer::default()).await;
        let logon = peer.log_on("ann").await;
        let away = peer.mount(&logon, "away").await;
        peer.open_file(&away, &Want::file("f")).await;
        gated.shut(true);
        peer.send(vec![away.put(Want::existing("f").draft())], away.via()).await;
        soon(peer.interim()).await;
        world.embedded.stop_within(Duration::from_millis(300));
        soon(serving).await.unwrap().unwrap();
    });
    // The gate is opened, so that the hanging calls end, and the threads of the pool end with the
    // test.
    gated.shut(false);
}

/// Work beside the core of a share without a pool of its own had no places for each user: one
/// user's requests could take all threads.
#[test]
fn r4_one_user_leaves_threads_of_the_core_to_others() {
    in_world(async |world| {
        let gated = Gated::new();
        let vfs: Arc<dyn Vfs> = Arc::clone(&gated) as _;
        add(world, Share::disk("here", vfs));
        let snapshots = |file| {
            let code = CtlCode::SRV_ENUMERATE_SNAPSHOTS;
            Draft::new(Command::IOCTL)
                .with(|w| ioctl::Request::fsctl(code, file, &[], 4_096).encode(w))
        };
        let mut crowd = Vec::new();
        for number in 0..2 {
            let mut peer = world.connect();
            peer.negotiate(&Offer::default()).await;
            let logon = peer.log_on("ann").await;
            let here = peer.mount(&logon, "here").await;
            let file = peer.open_file(&here, &Want::file(&format!("stuck{number}"))).await;
            crowd.push((peer, here, file, Vec::new()));
        }
        let (mut other, theirs) = world.session("bob", &Offer::default()).await;
        let here = other.mount(&theirs.logon, "here").await;
        let free = other.open_file(&here, &Want::file("free")).await;
        gated.shut_for(Some("stuck"));
        for (peer, here, file, asked) in &mut crowd {
            for _ in 0..300 {
                asked.extend(peer.send(vec![here.put(snapshots(*file))], here.via()).await);
            }
            // Each of the client's 300 requests now has begun or waits for a place in the pool.
            for _ in 0..300 {
                soon(peer.interim()).await;
            }
        }
        let answered = timeout(Duration::from_secs(10), other.on(&here, snapshots(free))).await;
        gated.shut(false);
        for (peer, _, _, asked) in &mut crowd {
            for reply in soon(peer.collect(asked)).await {
                reply.ok();
            }
        }
        answered.expect("another user's request has a thread").ok();
    });
}

/// The folder of a user that hangs while it is opened does not keep others from the table of
/// folders, nor the search for old files in recycle bins, which runs where clients are accepted.
#[test]
fn a_user_whose_folder_hangs_keeps_no_lock() {
    let gated = Gated::new();
    let hung = Arc::clone(&gated);
    let open = move |account: &str| {
        let _ = hung.stat(&Name::from_stored(account.to_owned()));
        Some(Arc::clone(&hung) as Arc<dyn Vfs>)
    };
    let folders = UserFolders::new(Arc::new(open));
    gated.shut_for(Some("ann"));
    let waits = {
        let folders = folders.clone();
        std::thread::spawn(move || folders.of("ann").is_some())
    };
    while gated.waiting() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (done, told) = std::sync::mpsc::channel();
    let looks = std::thread::spawn(move || {
        let bob = folders.of("bob");
        let _ = done.send((bob.is_some(), folders.in_use().len()));
    });
    let told = told.recv_timeout(Duration::from_secs(10));
    gated.shut(false);
    assert!(waits.join().unwrap());
    looks.join().unwrap();
    assert_eq!(told, Ok((true, 1)));
}
