//! Persistent Opens: on record before their client knows of them, made anew by
//! the next run of the server, held for their client meanwhile.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::asking::*;
use crate::client::world::EXCLUSIVE;
use crate::client::*;
use files::{lock_draft, write_draft};
use frevo_server::internal::limits::{BREAK_TIMEOUT, PERSISTENT_OPENS_PER_FILE};
use frevo_server::internal::state;
use frevo_store::state::{
    Done, LoadDone, MemoryState, OpenRecord, Ownership, RecordId, StateStore,
};
use frevo_wire::command::create::{self, CreateAction, CreateOptions, ShareAccess};
use frevo_wire::command::lock::{self, LockElement, LockFlags, LockSequence};
use frevo_wire::command::negotiate::GlobalCapabilities;
use frevo_wire::command::oplock_break::{self, LeaseBreak, LeaseState, Notification, OplockBreak};
use frevo_wire::command::tree_connect::{self, ShareCapabilities};
use frevo_wire::dtyp::{AccessMask, Guid};
use frevo_wire::fscc::FileInfoClass;
use tokio::task::LocalSet;

const ALONE: ShareAccess = ShareAccess::EMPTY;
const RWH: u32 = 7;

/// Runs of one server over one folder and one store, each ended by a crash:
/// nothing of it is closed.
pub fn runs(test: impl AsyncFnOnce(&dyn Fn() -> World, &MemoryState)) {
    world::without_ring();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.unwrap();
    LocalSet::new().block_on(&runtime, async {
        let folder = Rc::new(tempfile::tempdir().unwrap());
        let store = Arc::new(MemoryState::default());
        let start = || {
            let world = World::at(settings(), folder.path());
            state::restore(&world.server, Arc::clone(&store) as _).unwrap();
            world.server.start_scavenger();
            world
        };
        test(&start, &store).await;
    });
}

/// A server of an earlier version does not start with records that it cannot read.
#[test]
fn records_of_a_later_version_keep_the_server_from_its_start() {
    in_world(async |world| {
        let store = Arc::new(MemoryState::default());
        let owner = || {
            let (told, loaded) = std::sync::mpsc::channel();
            store.load("lasting", Box::new(move |result| told.send(result).unwrap()));
            loaded.recv().unwrap().unwrap().ownership
        };
        for (id, record) in [(1, &b"damaged"[..]), (2, b"FPF6 and more")] {
            store.put(&owner(), RecordId(id), record.to_vec(), Box::new(|done| done.unwrap()));
        }
        let kept = store.records();
        let restore = || state::restore(&world.server, Arc::clone(&store) as _);
        let why = restore().unwrap_err().to_string();
        assert!(why.contains("the share lasting: a later version of Frevo"), "{why}");
        assert_eq!(store.records(), kept, "nothing is removed");
        store.remove(&owner(), RecordId(2), Box::new(|done| done.unwrap()));
        assert_eq!(restore(), Ok(0));
        assert_eq!(store.records(), [], "the damaged record is lost");
    });
}

fn records(store: &MemoryState) -> Vec<OpenRecord> {
    let parse = |(_, bytes): (_, Vec<u8>)| OpenRecord::from_bytes(&bytes).unwrap();
    store.records().into_iter().map(parse).collect()
}

fn numbered_lock(file: FileId, sequence: LockSequence) -> Draft {
    let locks = vec![LockElement { offset: 0, length: 4, flags: EXCLUSIVE }];
    Draft::new(Command::LOCK).with(|w| {
        lock::Request { lock_sequence: sequence, file_id: file, locks }.encode(w);
    })
}

/// A store that says that something is stable when it is told to.
#[derive(Default)]
pub struct Slow {
    memory: MemoryState,
    is_slow: std::sync::atomic::AtomicBool,
    unsaid: std::sync::Mutex<Vec<Done>>,
}

impl Slow {
    /// From now on it says nothing.
    pub fn becomes_slow(&self) {
        self.is_slow.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Says the last thing that it has not said.
    pub fn ends_last(&self) {
        let last = self.unsaid.lock().unwrap().pop();
        last.unwrap()(Ok(()));
    }

    /// Says what it has not said.
    pub fn is_done(&self) {
        self.is_slow.store(false, std::sync::atomic::Ordering::Relaxed);
        let unsaid = std::mem::take(&mut *self.unsaid.lock().unwrap());
        unsaid.into_iter().for_each(|done| done(Ok(())));
    }
}

impl std::fmt::Debug for Slow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Slow")
    }
}

impl StateStore for Slow {
    fn load(&self, share: &str, done: LoadDone) {
        self.memory.load(share, done);
    }

    fn put(&self, owner: &Ownership, id: RecordId, record: Vec<u8>, done: Done) {
        if self.is_slow.load(std::sync::atomic::Ordering::Relaxed) {
            self.unsaid.lock().unwrap().push(done);
            return self.memory.put(owner, id, record, Box::new(|_| {}));
        }
        self.memory.put(owner, id, record, done);
    }

    fn remove(&self, owner: &Ownership, id: RecordId, done: Done) {
        self.memory.remove(owner, id, done);
    }
}

/// A store that takes its time to put a record, and says when it begins to.
#[derive(Debug)]
struct Late {
    memory: MemoryState,
    begins: std::sync::mpsc::SyncSender<()>,
}

impl StateStore for Late {
    fn load(&self, share: &str, done: LoadDone) {
        self.memory.load(share, done);
    }

    fn put(&self, owner: &Ownership, id: RecordId, record: Vec<u8>, done: Done) {
        if self.begins.try_send(()).is_ok() {
            std::thread::sleep(Duration::from_millis(200));
        }
        self.memory.put(owner, id, record, done);
    }

    fn remove(&self, owner: &Ownership, id: RecordId, done: Done) {
        self.memory.remove(owner, id, done);
    }
}

/// A record that another thread makes while the Open is closed does not stay: it would be an
/// Open of nobody after the next start.
#[test]
fn no_record_comes_after_its_removal() {
    in_world(async |world| {
        // No thread receives from the channel `begins` yet, so `put` does not sleep and stores the
        // first records at once.
        let (begins, begun) = std::sync::mpsc::sync_channel(0);
        let store = Arc::new(Late { memory: MemoryState::default(), begins });
        state::restore(&world.server, Arc::clone(&store) as _).unwrap();
        let (mut peer, mount) = back(world, guid(0x31), "ann", "lasting").await;
        let want = with(Want::file("f"), &[dh2q(guid(3), true)]);
        peer.open_file(&mount, &want).await;
        assert_eq!(records(&store.memory).len(), 1);
        let (open, _) = world.server.durables.persistent("ann", guid(3)).unwrap();
        std::thread::scope(|threads| {
            let (server, open) = (&world.server, &open);
            let closer = threads.spawn(move || {
                begun.recv().unwrap();
                server.close_here(open);
            });
            while !closer.is_finished() {
                state::renew_record(server, open);
            }
        });
        assert_eq!(records(&store.memory), []);
    });
}

/// A world that has a slow store, with a persistent Open.
pub async fn slow(world: &World) -> (Arc<Slow>, (Peer, Mount), FileId) {
    let store = Arc::new(Slow::default());
    state::restore(&world.server, Arc::clone(&store) as _).unwrap();
    let (mut peer, mount) = back(world, guid(0x31), "ann", "lasting").await;
    let want = leased(Want::file("f"), 1, RWH, &[dh2q(guid(3), true)]);
    let file = files::file_id(&peer.create(&mount, &want).await);
    (store, (peer, mount), file)
}

/// A LOCK that is cancelled while it is put on record is on none afterwards: a
/// restart would bring a lock that nobody has.
#[test]
fn a_cancelled_lock_leaves_the_record() {
    in_world(async |world| {
        let (store, (mut peer, mount), file) = slow(world).await;
        store.becomes_slow();
        let draft = mount.put(numbered_lock(file, LockSequence::new(5, 9)));
        let id = peer.send(vec![draft], mount.via()).await[0];
        let interim = peer.interim().await;
        assert_eq!(records(&store.memory)[0].locks.len(), 1, "it is on record");
        let Route::Async { async_id } = interim.header.route else { panic!() };
        let cancel = Peer::cancel(id, Some(async_id), mount.logon.id);
        peer.send_frame(&draft::pack(&[cancel], mount.via())).await;
        peer.final_reply(id).await.expect(Status::CANCELLED);
        assert_eq!(records(&store.memory)[0].locks, []);
        store.is_done();
        peer.on(&mount, numbered_lock(file, LockSequence::new(5, 9))).await.ok();
        assert_eq!(records(&store.memory)[0].locks.len(), 1);
        peer.close(&mount, file).await;
    });
}

/// A LOCK whose outcome is not on record yet is not answered by way of its repetition: a
/// crash would bring back what was acknowledged to be unlocked.
#[test]
fn a_repeated_lock_waits_for_the_record() {
    in_world(async |world| {
        let (store, (mut peer, mount), file) = slow(world).await;
        peer.on(&mount, numbered_lock(file, LockSequence::new(5, 9))).await.ok();
        store.becomes_slow();
        let draft = || {
            let locks = vec![LockElement { offset: 0, length: 4, flags: LockFlags::UNLOCK }];
            let lock_sequence = LockSequence::new(5, 10);
            Draft::new(Command::LOCK)
                .with(|w| lock::Request { lock_sequence, file_id: file, locks }.encode(w))
        };
        let mut ids = Vec::new();
        for _ in 0..2 {
            ids.push(peer.send(vec![mount.put(draft())], mount.via()).await[0]);
            let interim = peer.interim().await;
            assert_eq!(interim.header.message_id, *ids.last().unwrap());
        }
        store.is_done();
        for id in ids {
            peer.final_reply(id).await.ok();
        }
        assert_eq!(records(&store.memory)[0].locks, []);
        peer.close(&mount, file).await;
    });
}

/// A CREATE whose Open is not on record yet is not answered by way of its repetition.
#[test]
fn a_replay_does_not_overtake_the_record() {
    in_world(async |world| {
        let store = Arc::new(Slow::default());
        state::restore(&world.server, Arc::clone(&store) as _).unwrap();
        let client = guid(0x31);
        let (mut peer, mount) = back(world, client, "ann", "lasting").await;
        store.becomes_slow();
        let want = leased(Want::file("f"), 1, RWH, &[dh2q(guid(3), true)]);
        let id = peer.send(vec![mount.put(want.draft())], mount.via()).await[0];
        peer.interim().await;
        let (mut twin, own) = back(world, client, "ann", "lasting").await;
        let replay = want.draft().flags(HeaderFlags::REPLAY_OPERATION);
        twin.on(&own, replay).await.expect(Status::FILE_NOT_AVAILABLE);
        twin.on(&own, want.draft()).await.expect(Status::DUPLICATE_OBJECTID);
        store.is_done();
        let file = files::file_id(&peer.final_reply(id).await);
        peer.close(&mount, file).await;
        assert!(records(&store.memory).is_empty());
    });
}

/// The answer to a reconnect may be lost with one of several channels: the same again, as a
/// replay and in that session, gets the same Open. Without the flag it is refused, as
/// MS-SMB2 3.3.5.9.12 has it.
#[test]
fn a_reconnect_is_repeated_in_its_session() {
    runs(async |start, _| {
        let world = start();
        let client = guid(0x31);
        let (mut peer, mount) = back(&world, client, "ann", "lasting").await;
        let want = leased(Want::file("f"), 1, RWH, &[dh2q(guid(3), true)]);
        let file = peer.open_file(&mount, &want).await;
        world.crash();
        let world = start();
        let (mut peer, mount) = back(&world, client, "ann", "lasting").await;
        let want = leased(Want::existing("f"), 1, RWH, &[dh2c(file, guid(3), true)]);
        let replay = || want.draft().flags(HeaderFlags::REPLAY_OPERATION);
        let first = files::file_id(&peer.create(&mount, &want).await);
        peer.create(&mount, &want).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        assert_eq!(files::file_id(&peer.on(&mount, replay()).await), first);
        let (mut other, theirs) = back(&world, client, "ann", "lasting").await;
        other.on(&theirs, replay()).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        peer.write(&mount, first, 0, b"it works").await;
        peer.close(&mount, first).await;
        assert_eq!(world.server.durables.counts(), (0, 0));
    });
}

/// A record that the store would not let go is asked for again: it would be an Open that
/// nobody has after the next start.
#[test]
fn what_could_not_be_removed_is_removed_later() {
    runs(async |start, store| {
        let world = start();
        let (mut peer, mount) = back(&world, guid(0x31), "ann", "lasting").await;
        let want = with(Want::file("f"), &[dh2q(guid(3), true)]);
        let file = peer.open_file(&mount, &want).await;
        store.set_failing(true);
        peer.close(&mount, file).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(records(store).len(), 1);
        store.set_failing(false);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(records(store).is_empty());
    });
}

/// A request that the store failed is repeated before a client gets further promises: a record
/// that is older than its Open would take locks from others after a crash.
#[test]
fn what_failed_is_made_good_before_the_next_promise() {
    runs(async |start, store| {
        let world = start();
        let (mut ann, hers) = back(&world, guid(0x31), "ann", "lasting").await;
        let (mut bob, his) = back(&world, guid(0x32), "bob", "lasting").await;
        let file = ann.open_file(&hers, &with(Want::file("f"), &[dh2q(guid(3), true)])).await;
        ann.on(&hers, numbered_lock(file, LockSequence::new(5, 9))).await.ok();
        let own = bob.open_file(&his, &with(Want::existing("f"), &[dh2q(guid(4), true)])).await;
        let locks = |store: &MemoryState| -> Vec<(Guid, usize)> {
            let of = |one: &OpenRecord| (one.create_guid, one.locks.len());
            let mut all: Vec<_> = records(store).iter().map(of).collect();
            all.sort_by_key(|(guid, _)| guid.0);
            all
        };
        assert_eq!(locks(store), [(guid(3), 1), (guid(4), 0)]);
        store.set_failing(true);
        let unlock = lock_draft(file, &[(0, 4, LockFlags::UNLOCK)]);
        ann.on(&hers, unlock).await.expect(Status::INSUFFICIENT_RESOURCES);
        let refused = bob.on(&his, numbered_lock(own, LockSequence::new(5, 9))).await;
        refused.expect(Status::INSUFFICIENT_RESOURCES);
        assert_eq!(locks(store), [(guid(3), 1), (guid(4), 0)]);
        store.set_failing(false);
        bob.on(&his, numbered_lock(own, LockSequence::new(5, 9))).await.ok();
        assert_eq!(locks(store), [(guid(3), 0), (guid(4), 1)]);
        // The removal of bob's record failed at the CLOSE. It must be repeated before ann's LOCK is
        // answered.
        store.set_failing(true);
        bob.close(&his, own).await;
        store.set_failing(false);
        ann.on(&hers, numbered_lock(file, LockSequence::new(5, 10))).await.ok();
        assert_eq!(locks(store), [(guid(3), 1)]);
        ann.close(&hers, file).await;
        assert_eq!(locks(store), []);
    });
}

/// MS-SMB2 3.3.5.9, note 301: a CREATE by another client breaks the lease or batch oplock of a
/// persistent Open whose client is away, and waits as long as for any break. The client may come
/// back meanwhile, and is told of the break then.
#[test]
fn a_file_whose_client_is_away_is_waited_for() {
    runs(async |start, _| {
        let world = start();
        for is_leased in [true, false] {
            let name = if is_leased { "leased" } else { "batch" };
            let client = guid(0x31);
            let (mut peer, mount) = back(&world, client, "ann", "lasting").await;
            let (asks, asks_back) = match is_leased {
                true => (leased(Want::file(name), 1, RWH, &[dh2q(guid(3), true)]), None),
                false => (batch(Want::file(name), &[dh2q(guid(4), true)]), Some(4)),
            };
            let file = peer.open_file(&mount, &asks).await;
            drop(peer);
            lost(&world, 1).await;
            let (mut other, theirs) = back(&world, guid(0x32), "bob", "lasting").await;
            let draft = theirs.put(Want::existing(name).draft());
            let waiting = other.send(vec![draft], theirs.via()).await[0];
            assert_eq!(other.interim().await.header.message_id, waiting);

            let (mut peer, mount) = back(&world, client, "ann", "lasting").await;
            let again = match asks_back {
                None => leased(Want::existing(name), 1, RWH, &[dh2c(file, guid(3), true)]),
                Some(id) => batch(Want::existing(name), &[dh2c(file, guid(id), true)]),
            };
            let reply = peer.create(&mount, &again).await;
            let file = files::file_id(reply.ok());
            let told = peer.reply().await;
            assert_eq!(told.header.command, Command::OPLOCK_BREAK, "{name}: {told:?}");
            let ack = match Notification::parse(&told.message).unwrap() {
                Notification::Lease(told) => {
                    assert_eq!(told.current_lease_state, LeaseState(RWH));
                    assert_eq!(told.new_lease_state, LeaseState(3), "RH");
                    oplock_break::Request::Lease(LeaseBreak {
                        lease_key: told.lease_key,
                        lease_state: told.new_lease_state,
                    })
                }
                Notification::Oplock(told) => oplock_break::Request::Oplock(OplockBreak {
                    oplock_level: told.oplock_level,
                    file_id: file,
                }),
            };
            let ack = Draft::new(Command::OPLOCK_BREAK).with(|w| ack.encode(w));
            peer.on(&mount, ack).await.ok();
            other.final_reply(waiting).await.ok();
            peer.close(&mount, file).await;
        }
    });
}

/// The wait is no longer than that for any break, and the file stays the absent client's.
#[test]
fn a_file_whose_client_stays_away_is_not_available() {
    runs(async |start, _| {
        let world = start();
        let client = guid(0x31);
        let (mut peer, mount) = back(&world, client, "ann", "lasting").await;
        let want = leased(Want::file("f").sharing(ALONE), 1, RWH, &[dh2q(guid(3), true)]);
        let file = peer.open_file(&mount, &want).await;
        drop(peer);
        lost(&world, 1).await;
        // The file is kept for the disconnected persistent Open. Even its client must reconnect and
        // cannot open the file in another way.
        let (mut peer, mount) = back(&world, client, "ann", "lasting").await;
        peer.create(&mount, &Want::existing("f")).await.expect(Status::FILE_NOT_AVAILABLE);
        // A CREATE only for attributes breaks no lease, so it is refused at once and does not wait
        // for a break.
        let (mut other, theirs) = back(&world, guid(0x32), "bob", "lasting").await;
        let look = Want::existing("f").access(AccessMask::READ_ATTRIBUTES);
        let began = tokio::time::Instant::now();
        other.create(&theirs, &look).await.expect(Status::FILE_NOT_AVAILABLE);
        assert!(began.elapsed() < BREAK_TIMEOUT);
        for limit in [BREAK_TIMEOUT + Duration::from_secs(1), Duration::from_secs(1)] {
            let began = tokio::time::Instant::now();
            other.create(&theirs, &Want::file("f")).await.expect(Status::FILE_NOT_AVAILABLE);
            assert!(began.elapsed() < limit, "{:?}", began.elapsed());
        }
        let again = leased(Want::existing("f"), 1, RWH, &[dh2c(file, guid(3), true)]);
        peer.create(&mount, &again).await.ok();
    });
}

/// All that is kept, kept: the whole of a handle before and after a crash.
#[test]
fn x5_s3_a_crash_costs_no_handle_lock_lease_or_byte() {
    runs(async |start, store| {
        let world = start();
        let client = guid(0x31);
        let (mut peer, mount) = back(&world, client, "ann", "lasting").await;
        assert!(peer.server_capabilities.contains(GlobalCapabilities::PERSISTENT_HANDLES));
        let want = leased(Want::file("f").sharing(ALONE), 1, RWH, &[dh2q(guid(3), true)]);
        let reply = peer.create(&mount, &want).await;
        assert_eq!(durable_v2(&reply), Some((Duration::from_secs(120), true)));
        let (file, had) = (files::file_id(&reply), caches(&reply));
        assert_eq!(records(store).len(), 1, "on record before the answer");
        peer.write(&mount, file, 0, b"acknowledged").await;
        let sequence = LockSequence::new(5, 9);
        peer.on(&mount, numbered_lock(file, sequence)).await.ok();
        assert_eq!(records(store)[0].locks.len(), 1);
        world.crash();

        let world = start();
        assert_eq!(world.server.durables.counts(), (1, 1));
        // The Opens are ann's, so bob cannot reconnect to them, even with all identifiers right.
        let (mut other, theirs) = back(&world, guid(0x32), "bob", "lasting").await;
        let named = |name: &str, key, id, persistent| {
            leased(Want::existing(name), key, RWH, &[dh2c(file, guid(id), persistent)])
        };
        let stolen = other.create(&theirs, &named("f", 1, 3, true)).await;
        stolen.expect(Status::OBJECT_NAME_NOT_FOUND);
        let (mut bob, same_client) = back(&world, client, "bob", "lasting").await;
        bob.create(&same_client, &Want::file("f")).await.expect(Status::FILE_NOT_AVAILABLE);
        let stolen = bob.create(&same_client, &named("f", 1, 3, true)).await;
        stolen.expect(Status::ACCESS_DENIED);
        let (mut peer, mount) = back(&world, client, "ann", "lasting").await;
        for (wrong, status) in [
            (named("f", 1, 4, true), Status::OBJECT_NAME_NOT_FOUND),
            (named("f", 1, 3, false), Status::OBJECT_NAME_NOT_FOUND),
            (named("f", 2, 3, true), Status::OBJECT_NAME_NOT_FOUND),
            (named("g", 1, 3, true), Status::INVALID_PARAMETER),
        ] {
            peer.create(&mount, &wrong).await.expect(status);
        }
        let reply = peer.create(&mount, &named("f", 1, 3, true)).await;
        reply.ok();
        assert_eq!(caches(&reply), had);
        let again = files::file_id(&reply);
        assert_eq!(again.persistent, file.persistent);
        assert_ne!(again.volatile, file.volatile, "S3");
        assert_eq!(peer.read(&mount, again, 0, 64).await, b"acknowledged");
        // The lock survived the restart, so a second lock conflicts, but a LOCK with the same
        // sequence number counts as a repetition and succeeds.
        let lock = lock_draft(again, &[(0, 4, EXCLUSIVE)]);
        peer.on(&mount, lock).await.expect(Status::LOCK_NOT_GRANTED);
        peer.on(&mount, numbered_lock(again, sequence)).await.ok();
        peer.on(&mount, write_draft(again, 0, b"!")).await.ok();
        peer.close(&mount, again).await;
        assert!(records(store).is_empty(), "gone before CLOSE is answered");
        world.crash();
        assert_eq!(start().server.durables.counts(), (0, 0));
    });
}

/// Opens that are not persistent never call the store.
#[test]
fn other_opens_cost_the_store_nothing() {
    runs(async |start, store| {
        let world = start();
        let (mut peer, mount) = back(&world, guid(0x31), "ann", "lasting").await;
        for want in [
            Want::file("a"),
            leased(Want::file("b"), 1, RWH, &[dh2q(guid(3), false)]),
            with(Want::directory("d"), &[dh2q(guid(4), true)]),
        ] {
            let file = peer.open_file(&mount, &want).await;
            if want.options != CreateOptions::DIRECTORY_FILE {
                peer.write(&mount, file, 0, b"x").await;
                peer.on(&mount, lock_draft(file, &[(0, 1, EXCLUSIVE)])).await.ok();
            }
            peer.close(&mount, file).await;
        }
        let plain = peer.mount(&mount.logon, "data").await;
        let want = leased(Want::file("c"), 5, RWH, &[dh2q(guid(5), true)]);
        let reply = peer.create(&plain, &want).await;
        assert_eq!(durable_v2(&reply), Some((Duration::from_secs(180), false)));
        peer.close(&plain, files::file_id(&reply)).await;
        assert_eq!(store.changes(), 0);
    });
}

/// A persistent Open is put on record once, with the others of its file, whose caching may have changed, and its
/// record is removed once, also when its file goes with it.
#[test]
fn a_persistent_open_is_put_on_record_once_and_removed_once() {
    runs(async |start, store| {
        let world = start();
        let (mut peer, mount) = back(&world, guid(0x31), "ann", "lasting").await;
        let want = |want, key, create| leased(want, key, RWH, &[dh2q(guid(create), true)]);
        let first = peer.open_file(&mount, &want(Want::file("f"), 1, 3)).await;
        assert_eq!(store.changes(), 1);
        let other = peer.open_file(&mount, &want(Want::file("g"), 2, 4)).await;
        assert_eq!(store.changes(), 2);
        let second = peer.open_file(&mount, &want(Want::existing("f"), 1, 5)).await;
        assert_eq!(store.changes(), 4, "its own and the first one of the file");
        for (file, changes) in [(first, 5), (other, 6), (second, 7)] {
            peer.close(&mount, file).await;
            assert_eq!(store.changes(), changes, "its record is removed once");
        }
        let doomed = Want::file("h").options(CreateOptions::DELETE_ON_CLOSE);
        let doomed = want(doomed.access(AccessMask::FILE_ALL), 6, 7);
        let file = peer.open_file(&mount, &doomed).await;
        let changes = store.changes();
        peer.close(&mount, file).await;
        assert_eq!(store.changes(), changes + 1, "its record is removed once");
        assert_eq!(records(store), []);
    });
}

/// A share says what it is, and only in SMB 3.
#[test]
fn a_continuous_share_says_so() {
    runs(async |start, _| {
        let world = start();
        for (dialect, expected) in [(Dialect::SMB_3_0, true), (Dialect::SMB_2_1, false)] {
            let mut peer = world.connect();
            peer.negotiate(&Offer::only(dialect)).await;
            let has = peer.server_capabilities.contains(GlobalCapabilities::PERSISTENT_HANDLES);
            assert_eq!(has, expected);
            let logon = peer.log_on("ann").await;
            let draft = files::tree_connect_draft("\\\\frevo\\lasting").session(logon.id);
            let reply = peer.ask(draft, logon.via()).await;
            let response = tree_connect::Response::parse(&reply.message).unwrap();
            let flag = ShareCapabilities::CONTINUOUS_AVAILABILITY;
            assert_eq!(response.capabilities.contains(flag), expected);
        }
    });
}

/// A client that lost the answer to its CREATE repeats it after the crash, and
/// what it asks must be what it asked.
#[test]
fn a_create_is_replayed_across_a_crash() {
    runs(async |start, _| {
        let world = start();
        let client = guid(0x31);
        let (mut peer, mount) = back(&world, client, "ann", "lasting").await;
        let want = with(Want::file("f").sharing(ALONE), &[dh2q(guid(3), true)]);
        let file = peer.open_file(&mount, &want).await;
        let replay = |want: &Want| want.draft().flags(HeaderFlags::REPLAY_OPERATION);
        let (mut twin, own) = back(&world, client, "ann", "lasting").await;
        peer.write(&mount, file, 0, b"x").await;
        twin.on(&own, replay(&want)).await.expect(Status::FILE_NOT_AVAILABLE);
        world.crash();
        let world = start();
        let (mut bob, theirs) = back(&world, client, "bob", "lasting").await;
        bob.on(&theirs, replay(&want)).await.expect(Status::FILE_NOT_AVAILABLE);
        let (mut peer, mount) = back(&world, client, "ann", "lasting").await;
        let other = Want { sharing: ShareAccess::READ, ..want.clone() };
        peer.on(&mount, replay(&other)).await.expect(Status::CONTEXT_MISMATCH);
        for _ in 0..2 {
            let reply = peer.on(&mount, replay(&want)).await;
            reply.ok();
            assert_eq!(files::file_id(&reply).persistent, file.persistent);
            let answer = create::Response::parse(&reply.message).unwrap();
            assert_eq!(answer.create_action, CreateAction::CREATED, "as the first answer says");
        }
        let taken_up = files::file_id(&peer.on(&mount, replay(&want)).await);
        peer.write(&mount, taken_up, 0, b"y").await;
        peer.on(&mount, replay(&want)).await.expect(Status::FILE_NOT_AVAILABLE);
        peer.close(&mount, taken_up).await;
    });
}

/// Delete on close and a new name outlive a crash; nobody comes, and the time of
/// the Open ends as it would have.
#[test]
fn what_nobody_takes_up_ends_as_a_close() {
    runs(async |start, store| {
        let world = start();
        let (mut peer, mount) = back(&world, guid(0x31), "ann", "lasting").await;
        let options = CreateOptions::DELETE_ON_CLOSE;
        let want = with(Want::file("doomed").options(options), &[dh2q(guid(3), true)]);
        peer.open_file(&mount, &want).await;
        let moved = with(Want::file("old"), &[dh2q(guid(4), true)]);
        let moved = peer.open_file(&mount, &moved).await;
        peer.on(&mount, files::rename_draft(FileInfoClass::RENAME, moved, "new", false)).await.ok();
        let names: Vec<_> = records(store).into_iter().map(|record| record.name).collect();
        assert!(names.contains(&"new".into()), "{names:?}");
        world.crash();
        let world = start();
        assert!(world.path("doomed").exists());
        tokio::time::sleep(Duration::from_secs(119)).await;
        assert_eq!(world.server.durables.counts(), (2, 2));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(world.server.durables.counts(), (0, 0));
        assert!(!world.path("doomed").exists());
        assert!(world.path("new").exists());
        assert!(records(store).is_empty());
        assert!(world.server.files.is_empty());
    });
}

/// A file that was replaced while the server was away is not the one that was
/// open; the record of an Open that cannot be is dropped.
#[test]
fn another_file_under_the_name_is_not_taken_for_it() {
    runs(async |start, store| {
        let world = start();
        let (mut peer, mount) = back(&world, guid(0x31), "ann", "lasting").await;
        for (at, name) in ["gone", "other"].into_iter().enumerate() {
            let context = dh2q(guid(at as u8 + 3), true);
            peer.open_file(&mount, &with(Want::file(name), &[context])).await;
        }
        std::fs::remove_file(world.path("gone")).unwrap();
        std::fs::write(world.path("fresh"), b"another").unwrap();
        std::fs::rename(world.path("fresh"), world.path("other")).unwrap();
        world.crash();
        let world = start();
        assert_eq!(world.server.durables.counts(), (0, 0));
        assert!(world.server.files.is_empty());
        assert!(records(store).is_empty());
    });
}

/// A store that fails makes no promise: the Open is durable at most, a lock that
/// cannot be kept is not granted.
#[test]
fn what_cannot_be_kept_is_not_promised() {
    runs(async |start, store| {
        let world = start();
        let (mut peer, mount) = back(&world, guid(0x31), "ann", "lasting").await;
        let want = |name: &str, id| with(Want::file(name), &[dh2q(guid(id), true)]);
        let kept = peer.open_file(&mount, &want("kept", 3)).await;
        store.set_failing(true);
        let reply = peer.create(&mount, &want("not", 4)).await;
        assert!(durable_v2(&reply).is_none_or(|(_, persistent)| !persistent));
        let lock = || lock_draft(kept, &[(0, 4, EXCLUSIVE)]);
        peer.on(&mount, lock()).await.expect(Status::INSUFFICIENT_RESOURCES);
        // The LOCK failed because its record could not be stored, so the same sequence number makes
        // a new lock.
        let numbered = || numbered_lock(kept, LockSequence::new(5, 7));
        peer.on(&mount, numbered()).await.expect(Status::INSUFFICIENT_RESOURCES);
        store.set_failing(false);
        peer.on(&mount, numbered()).await.ok();
        assert_eq!(records(store)[0].locks.len(), 1, "the lock is there");
        peer.on(&mount, lock_draft(kept, &[(0, 4, LockFlags::UNLOCK)])).await.ok();
        peer.on(&mount, lock()).await.ok();
        let unlock = lock_draft(kept, &[(0, 4, LockFlags::UNLOCK)]);
        peer.on(&mount, unlock).await.ok();
        assert!(records(store)[0].locks.is_empty());
    });
}

/// Each CREATE of a file put all its persistent Opens on record, as many as there were.
#[test]
fn persistent_opens_of_a_file_are_limited() {
    runs(async |start, store| {
        let world = start();
        let (mut peer, mount) = back(&world, guid(1), "ann", "lasting").await;
        let mut create = async |name: &str, at: usize| {
            let mut create_guid = guid(9);
            create_guid.0[..8].copy_from_slice(&at.to_le_bytes());
            let want = with(Want::file(name), &[dh2q(create_guid, true)]);
            let reply = peer.create(&mount, &want).await;
            durable_v2(reply.ok()).is_some_and(|(_, is_persistent)| is_persistent)
        };
        for at in 0..PERSISTENT_OPENS_PER_FILE {
            assert!(create("f", at).await, "{at}");
        }
        assert!(!create("f", PERSISTENT_OPENS_PER_FILE).await);
        assert_eq!(store.records().len(), PERSISTENT_OPENS_PER_FILE);
        assert!(create("other", PERSISTENT_OPENS_PER_FILE + 1).await, "of another file");
        world.crash();
    });
}
