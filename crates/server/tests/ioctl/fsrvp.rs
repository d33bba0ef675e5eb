//! Shadow copies of shares over the network, MS-FSRVP. Plain copies of the share's files serve as snapshots.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use frevo_auth::smbpasswd::{AccountFile, Entry};
use frevo_auth::{NtHash, Protection};
use frevo_posix::{PosixOptions, PosixVfs};
use frevo_rpc::fsrvp::{Context, HResult, Reply, Request, ShareMapping};
use frevo_rpc::limits::FSRVP_LEFT_PER_ACCOUNT;
use frevo_rpc::{AuthLevel, Client, SyntaxId};
use frevo_server::internal::state::Shares;
use frevo_server::share::{RecycleBin, Share};
use frevo_server::{ShadowCopySets, Snapshotter};
use frevo_store::Vfs;
use frevo_store::snapshot::Moment;
use frevo_wire::dtyp::{AccessMask, FileTime, Guid};
use parking_lot::{Condvar, Mutex};
use tempfile::TempDir;

use super::pipes::{bind, call, ipc};
use super::protected_pipes::{Caller, logged_on};
use crate::client::world::{over, password};
use crate::client::*;

const PATTERN: &str = ".snapshots/@GMT-%Y.%m.%d-%H.%M.%S";
const UNC: &str = r"\\frevo\data";

/// Hands that copy the file `f` of a folder.
#[derive(Debug)]
struct Hands {
    root: PathBuf,
    /// The second of the next snapshot.
    next: AtomicU64,
    stored: Mutex<Vec<u8>>,
    /// The state cannot be stored.
    is_full: AtomicBool,
    /// Snapshots cannot be made.
    is_broken: AtomicBool,
    /// The making of a snapshot waits while this is true.
    waits: Mutex<bool>,
    goes_on: Condvar,
    released: Mutex<Vec<u64>>,
    expired: Mutex<Vec<u64>>,
    /// A schedule thins the snapshots.
    is_thinned: AtomicBool,
    removed: AtomicU64,
}

impl Hands {
    fn new(dir: &TempDir) -> Arc<Self> {
        Arc::new(Self {
            root: dir.path().to_owned(),
            next: AtomicU64::new(1_800_000_000),
            stored: Mutex::default(),
            is_full: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            waits: Mutex::new(false),
            goes_on: Condvar::new(),
            released: Mutex::default(),
            expired: Mutex::default(),
            is_thinned: AtomicBool::new(false),
            removed: AtomicU64::new(0),
        })
    }

    fn folder(&self, taken: u64) -> PathBuf {
        let moment = Moment::of(FileTime::from_unix(taken as i64, 0)).unwrap();
        self.root.join(".snapshots").join(moment.to_string())
    }

    fn count(&self) -> usize {
        std::fs::read_dir(self.root.join(".snapshots")).map_or(0, Iterator::count)
    }

    fn hold(&self, waits: bool) {
        *self.waits.lock() = waits;
        self.goes_on.notify_all();
    }

    fn sets(&self) -> ShadowCopySets {
        let stored = self.stored.lock();
        ShadowCopySets::from_bytes(&stored, std::time::Duration::ZERO).unwrap()
    }
}

impl Snapshotter for Hands {
    fn volume(&self, share: &str) -> Option<String> {
        ["data", "bobs"].contains(&share).then(|| share.to_owned())
    }

    fn create(&self, _: &str, by: &str) -> Result<u64, String> {
        assert_eq!(by, "ann");
        let mut waits = self.waits.lock();
        self.goes_on.wait_while(&mut waits, |waits| *waits);
        if self.is_broken.load(Ordering::Acquire) {
            return Err(String::from("broken"));
        }
        let taken = self.next.fetch_add(1, Ordering::AcqRel);
        std::fs::create_dir_all(self.folder(taken)).unwrap();
        std::fs::copy(self.root.join("f"), self.folder(taken).join("f")).unwrap();
        Ok(taken)
    }

    fn remove(&self, _: &str, taken: u64, _: &str) -> Result<(), String> {
        std::fs::remove_dir_all(self.folder(taken)).map_err(|error| error.to_string())?;
        self.removed.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    fn release(&self, _: &str, taken: u64) {
        self.released.lock().push(taken);
    }

    fn is_thinned(&self, _: &str) -> bool {
        self.is_thinned.load(Ordering::Acquire)
    }

    fn expire(&self, _: &str, taken: u64) -> Result<(), String> {
        if self.is_broken.load(Ordering::Acquire) {
            return Err(String::from("broken"));
        }
        self.expired.lock().push(taken);
        Ok(())
    }

    fn store(&self, state: &[u8]) -> io::Result<()> {
        if self.is_full.load(Ordering::Acquire) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        *self.stored.lock() = state.to_vec();
        Ok(())
    }
}

/// Serves a folder with the file `f`, of which ann, an administrator, makes shadow copies; bob has `group`.
fn with_copies(group: &str, test: impl AsyncFnOnce(&World, &Arc<Hands>)) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), "old").unwrap();
    let hands = Hands::new(&dir);
    serve(&hands, group, ShadowCopySets::default(), async |world| test(world, &hands).await);
}

fn serve(hands: &Arc<Hands>, group: &str, sets: ShadowCopySets, test: impl AsyncFnOnce(&World)) {
    let options =
        PosixOptions { snapshots: Some(PATTERN.parse().unwrap()), ..PosixOptions::default() };
    let vfs: Arc<dyn Vfs> = Arc::new(PosixVfs::open_root(&hands.root, options).unwrap());
    let (hands, group) = (Arc::clone(hands), group.to_owned());
    over(&vfs, async move |world: &World| {
        let mut file = AccountFile::default();
        for (name, group) in [("ann", "administrators"), ("bob", &*group)] {
            let hash = NtHash::from_password(&password(name));
            file.add(Entry::new(name, u32::MAX, hash, 0)).unwrap();
            file.set_groups(name, &[group.into()]).unwrap();
        }
        reload(world, Some(file));
        world.embedded.serve_shadow_copies(hands, sets).unwrap();
        test(world).await;
    });
}

fn reload(world: &World, accounts: Option<AccountFile>) {
    let settings = (*world.server.settings()).clone();
    let shares = world.server.shares().as_ref().clone();
    let accounts = accounts.map_or_else(|| world.server.accounts(), |file| Arc::new(file) as _);
    world.server.reload(settings, &shares, accounts);
}

/// A client that signs its calls.
struct Backup {
    peer: Peer,
    ipc: Mount,
    pipe: FileId,
    caller: Caller,
    protection: Protection,
}

impl Backup {
    async fn of(world: &World, user: &str) -> Self {
        Self::bound(world, user, SyntaxId::FSRVP, AuthLevel::INTEGRITY).await
    }

    async fn bound(world: &World, user: &str, interface: SyntaxId, level: AuthLevel) -> Self {
        let (mut peer, ipc) = ipc(world, user).await;
        let pipe = peer.open_file(&ipc, &Want::existing("FssagentRpc")).await;
        let mut caller = Caller::new(user, password(user), level, true);
        caller.interface = interface;
        let answer = logged_on(&mut caller, &mut peer, &ipc, pipe).await;
        let length = usize::from(u16::from_le_bytes([answer[10], answer[11]]));
        caller.initiator.step(&answer[answer.len() - length..], 1 << 57).unwrap();
        let protection = caller.initiator.protection([1; 16]).unwrap();
        Self { peer, ipc, pipe, caller, protection }
    }

    async fn call(&mut self, request: Request) -> Result<Reply, HResult> {
        self.begin(&request).await;
        self.finish(&request).await
    }

    /// Writes a call.
    async fn begin(&mut self, request: &Request) {
        let pdu = self.caller.request(&mut self.protection, request.opnum(), &request.encode());
        self.peer.write(&self.ipc, self.pipe, 0, &pdu).await;
    }

    /// Reads the answer.
    async fn finish(&mut self, request: &Request) -> Result<Reply, HResult> {
        let answer = self.peer.read(&self.ipc, self.pipe, 0, 8192).await;
        let stub = self.caller.opened(&mut self.protection, answer);
        Reply::parse(request, &stub).unwrap()
    }

    async fn id(&mut self, request: Request) -> Guid {
        match self.call(request).await {
            Ok(Reply::Id(id)) => id,
            other => panic!("{other:?}"),
        }
    }

    async fn done(&mut self, request: Request) {
        assert_eq!(self.call(request.clone()).await, Ok(Reply::Done), "{request:?}");
    }

    /// Goes up to a set with one copy.
    async fn added(&mut self) -> (Guid, Guid) {
        self.done(Request::SetContext(Context::EMPTY)).await;
        let set = self.id(Request::Start { client_set: Guid([7; 16]) }).await;
        let client_copy = Guid([8; 16]);
        let copy = self.id(Request::Add { client_copy, set, share: UNC.into() }).await;
        self.done(Request::Prepare { set, timeout_ms: 60_000 }).await;
        (set, copy)
    }

    /// Goes up to a set whose copy is served.
    async fn exposed(&mut self) -> ShareMapping {
        let (set, copy) = self.added().await;
        self.done(Request::Commit { set, timeout_ms: 180_000 }).await;
        self.done(Request::Expose { set, timeout_ms: 120_000 }).await;
        self.mapping(set, copy).await.unwrap()
    }

    /// Begins again, and ends the new set at once.
    async fn begin_again(&mut self) {
        self.done(Request::SetContext(Context::EMPTY)).await;
        let set = self.id(Request::Start { client_set: Guid([7; 16]) }).await;
        self.done(Request::Abort { set }).await;
    }

    async fn mapping(&mut self, set: Guid, copy: Guid) -> Result<ShareMapping, HResult> {
        let share = String::from(r"\\FREVO\Data\");
        match self.call(Request::GetShareMapping { copy, set, share, level: 1 }).await? {
            Reply::Mapping(mapping) => Ok(mapping),
            other => panic!("{other:?}"),
        }
    }
}

async fn read(peer: &mut Peer, mount: &Mount, name: &str) -> Vec<u8> {
    let want = Want::existing(name).access(AccessMask::FILE_GENERIC_READ);
    let file = peer.open_file(mount, &want).await;
    let bytes = peer.read(mount, file, 0, 64).await;
    peer.close(mount, file).await;
    bytes
}

#[test]
fn a_shadow_copy_is_made_served_and_deleted() {
    with_copies("staff", async |world, hands| {
        let mut ann = Backup::of(world, "ann").await;
        let supported = ann.call(Request::IsPathSupported { share: UNC.into() }).await;
        assert!(matches!(supported, Ok(Reply::Supported { owner }) if !owner.is_empty()));
        assert_eq!(ann.call(Request::GetSupportedVersion).await, Ok(Reply::Version(1)));
        let mapping = ann.exposed().await;
        assert_eq!(mapping.share_unc, UNC);
        let name = mapping.shadow_copy_share.clone().unwrap();
        assert_eq!(name, format!("data@{{{}}}", mapping.copy));
        std::fs::write(hands.root.join("f"), "new").unwrap();
        // Another user, in a session of its own.
        let (mut bob, data) = world.session("bob", &Offer::default()).await;
        let mount = bob.mount(&data.logon, &name.to_uppercase()).await;
        assert_eq!(read(&mut bob, &mount, "f").await, b"old");
        assert_eq!(read(&mut bob, &data, "f").await, b"new");
        let write = Want::existing("f").access(AccessMask::FILE_GENERIC_WRITE);
        assert_ne!(bob.create(&mount, &write).await.status(), Status::SUCCESS);
        // A reload does not know of the share.
        reload(world, None);
        assert_eq!(read(&mut bob, &mount, "f").await, b"old");
        bob.mount(&data.logon, &name).await;
        let copied = ann.call(Request::IsPathShadowCopied { share: UNC.into() }).await;
        assert_eq!(copied, Ok(Reply::ShadowCopied { is_present: true, compatibility: 0 }));
        ann.done(Request::RecoveryComplete { set: mapping.set }).await;
        assert_eq!(hands.count(), 1);
        let (set, copy, share) = (mapping.set, mapping.copy, mapping.share_unc.clone());
        ann.done(Request::DeleteShareMapping { set, copy, share }).await;
        assert_eq!(hands.count(), 0);
        assert!(bob.try_mount(&data.logon, &name).await.is_err());
        let gone = bob.create(&mount, &Want::existing("f")).await;
        gone.expect(Status::NETWORK_NAME_DELETED);
        assert!(hands.sets().is_empty());
    });
}

/// MS-FSRVP 3.1.4: SMB's protection is not enough, and administrators and backup operators alone may call.
#[test]
fn unsigned_calls_and_other_users_are_refused() {
    for (group, may) in [("staff", false), ("backup operators", true)] {
        with_copies(group, async |world, hands| {
            let mut bob = Backup::of(world, "bob").await;
            let context = bob.call(Request::SetContext(Context::EMPTY)).await;
            let version = bob.call(Request::GetSupportedVersion).await;
            let denied = HResult::ACCESS_DENIED;
            assert_eq!(context, if may { Ok(Reply::Done) } else { Err(denied) });
            assert_eq!(version, if may { Ok(Reply::Version(1)) } else { Err(denied) });
            let (mut ann, ipc) = ipc(world, "ann").await;
            let pipe = ann.open_file(&ipc, &Want::existing("fssagentrpc")).await;
            let mut client: Client = bind(&mut ann, &ipc, pipe, SyntaxId::FSRVP_3).await;
            let request = Request::SetContext(Context::EMPTY);
            let (opnum, stub) = (request.opnum(), request.encode());
            let stub = call(&mut ann, &ipc, pipe, &mut client, opnum, &stub).await;
            assert_eq!(Reply::parse(&request, &stub), Ok(Err(denied)));
            assert!(hands.stored.lock().is_empty());
        });
    }
}

#[test]
fn both_versions_of_the_interface_are_spoken_sealed_too() {
    with_copies("staff", async |world, _| {
        for interface in [SyntaxId::FSRVP, SyntaxId::FSRVP_3] {
            for level in [AuthLevel::INTEGRITY, AuthLevel::PRIVACY] {
                let mut ann = Backup::bound(world, "ann", interface, level).await;
                assert_eq!(ann.call(Request::GetSupportedVersion).await, Ok(Reply::Version(1)));
            }
        }
    });
}

#[test]
fn shares_without_snapshots_are_not_supported() {
    with_copies("staff", async |world, _| {
        let mut ann = Backup::of(world, "ann").await;
        for (share, status) in [
            (r"\\frevo\sealed", HResult::NOT_SUPPORTED),
            (r"\\frevo\IPC$", HResult::NOT_SUPPORTED),
            (r"\\frevo\none", HResult::OBJECT_NOT_FOUND),
            ("data", HResult::INVALID_ARGUMENT),
        ] {
            let share = share.to_owned();
            assert_eq!(
                ann.call(Request::IsPathSupported { share: share.clone() }).await,
                Err(status)
            );
            let (client_copy, set) = (Guid([8; 16]), Guid([1; 16]));
            assert_eq!(ann.call(Request::Add { client_copy, set, share }).await, Err(status));
        }
        let mapping = ann.exposed().await;
        let share = format!(r"\\frevo\{}", mapping.shadow_copy_share.unwrap());
        let status = ann.call(Request::IsPathSupported { share }).await;
        assert_eq!(status, Err(HResult::NOT_SUPPORTED), "a shadow copy has none of its own");
    });
}

/// A call that has waited as long as its client wants ends; the snapshots are made all the same.
#[test]
fn a_commit_that_takes_long_is_waited_for_again() {
    with_copies("staff", async |world, hands| {
        let mut ann = Backup::of(world, "ann").await;
        let (set, _) = ann.added().await;
        hands.hold(true);
        let late = ann.call(Request::Commit { set, timeout_ms: 0 }).await;
        assert_eq!(late, Err(HResult::COMMIT_TIMEOUT));
        let expose = Request::Expose { set, timeout_ms: 0 };
        assert_eq!(ann.call(expose).await, Err(HResult::BAD_STATE));
        let again = Request::Commit { set, timeout_ms: 180_000 };
        ann.begin(&again).await;
        hands.hold(false);
        assert_eq!(ann.finish(&again).await, Ok(Reply::Done));
        assert_eq!(hands.count(), 1);
        // A set that ends while its snapshots are made has none.
        let mut bob = Backup::of(world, "ann").await;
        let (set, _) = bob.added().await;
        hands.hold(true);
        let late = bob.call(Request::Commit { set, timeout_ms: 0 }).await;
        assert_eq!(late, Err(HResult::COMMIT_TIMEOUT));
        bob.done(Request::Abort { set }).await;
        hands.hold(false);
        for _ in 0..2_000 {
            if hands.removed.load(Ordering::Acquire) == 2 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(hands.count(), 0);
    });
}

#[test]
fn nothing_is_answered_that_is_not_stored() {
    with_copies("staff", async |world, hands| {
        let mut ann = Backup::of(world, "ann").await;
        let (set, copy) = ann.added().await;
        hands.is_full.store(true, Ordering::Release);
        let unexpected = Err(HResult::UNEXPECTED);
        assert_eq!(ann.call(Request::Commit { set, timeout_ms: 180_000 }).await, unexpected);
        assert_eq!(hands.count(), 0, "the snapshot is removed again");
        assert_eq!(ann.call(Request::Abort { set }).await, unexpected);
        hands.is_full.store(false, Ordering::Release);
        hands.is_broken.store(true, Ordering::Release);
        let failed = ann.call(Request::Commit { set, timeout_ms: 180_000 }).await;
        assert_eq!(failed, Err(HResult::WAIT_FAILED));
        hands.is_broken.store(false, Ordering::Release);
        ann.done(Request::Commit { set, timeout_ms: 180_000 }).await;
        hands.is_full.store(true, Ordering::Release);
        assert_eq!(ann.call(Request::Expose { set, timeout_ms: 120_000 }).await, unexpected);
        let name = format!("data@{{{copy}}}");
        let logon = ann.ipc.logon.clone();
        assert!(ann.peer.try_mount(&logon, &name).await.is_err());
        hands.is_full.store(false, Ordering::Release);
        ann.done(Request::Expose { set, timeout_ms: 120_000 }).await;
        ann.peer.mount(&logon, &name).await;
    });
}

/// A server that starts again serves the shares, and goes on with the set.
#[test]
fn shadow_copies_outlive_the_server() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), "old").unwrap();
    let hands = Hands::new(&dir);
    let mapping = std::cell::RefCell::new(None);
    serve(&hands, "staff", ShadowCopySets::default(), async |world| {
        let mut ann = Backup::of(world, "ann").await;
        *mapping.borrow_mut() = Some(ann.exposed().await);
    });
    let mapping = mapping.into_inner().unwrap();
    std::fs::write(dir.path().join("f"), "new").unwrap();
    serve(&hands, "staff", hands.sets(), async |world| {
        let mut ann = Backup::of(world, "ann").await;
        let logon = ann.ipc.logon.clone();
        let name = mapping.shadow_copy_share.clone().unwrap();
        let mount = ann.peer.mount(&logon, &name).await;
        assert_eq!(read(&mut ann.peer, &mount, "f").await, b"old");
        // MS-FSRVP 3.1.3: the context is forgotten, the set is on its way.
        ann.done(Request::SetContext(Context::EMPTY)).await;
        let busy = ann.call(Request::Start { client_set: Guid([7; 16]) }).await;
        assert_eq!(busy, Err(HResult::SHADOW_COPY_SET_IN_PROGRESS));
        assert_eq!(ann.mapping(mapping.set, mapping.copy).await.as_ref(), Ok(&mapping));
        ann.done(Request::RecoveryComplete { set: mapping.set }).await;
        ann.done(Request::SetContext(Context::EMPTY)).await;
        assert_eq!(hands.count(), 1);
    });
}

/// A client that begins again leaves its shares; the snapshots that it has had are the schedule's.
#[test]
fn a_client_that_begins_again_leaves_its_snapshots_to_the_schedule() {
    with_copies("staff", async |world, hands| {
        let mut ann = Backup::of(world, "ann").await;
        let first = ann.exposed().await;
        let second = ann.exposed().await;
        let logon = ann.ipc.logon.clone();
        assert!(ann.peer.try_mount(&logon, &first.shadow_copy_share.unwrap()).await.is_err());
        ann.peer.mount(&logon, &second.shadow_copy_share.unwrap()).await;
        assert_eq!(*hands.released.lock(), [1_800_000_000]);
        assert_eq!(hands.count(), 2);
    });
}

/// Copies that were left behind are known after a restart, and the first ones go when there are too many.
#[test]
fn some_copies_that_clients_leave_stay() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), "old").unwrap();
    let (hands, first) = (Hands::new(&dir), 1_800_000_000);
    // A schedule has those that it thins: they are not known any more.
    hands.is_thinned.store(true, Ordering::Release);
    serve(&hands, "staff", ShadowCopySets::default(), leave_one);
    assert_eq!((hands.sets().left_count(), hands.released.lock().len()), (0, 1));
    hands.is_thinned.store(false, Ordering::Release);
    for _ in 0..FSRVP_LEFT_PER_ACCOUNT {
        serve(&hands, "staff", hands.sets(), leave_one);
    }
    assert_eq!(hands.sets().left_count(), FSRVP_LEFT_PER_ACCOUNT);
    // One that cannot be removed stays known, and goes after the next start.
    let broken = Arc::clone(&hands);
    serve(&hands, "staff", hands.sets(), async |world| {
        let mut ann = Backup::of(world, "ann").await;
        ann.exposed().await;
        broken.is_broken.store(true, Ordering::Release);
        ann.begin_again().await;
    });
    assert_eq!(hands.sets().left_count(), FSRVP_LEFT_PER_ACCOUNT + 1);
    assert!(hands.expired.lock().is_empty());
    hands.is_broken.store(false, Ordering::Release);
    serve(&hands, "staff", hands.sets(), async |world| {
        Backup::of(world, "ann").await.begin_again().await;
    });
    assert_eq!(*hands.expired.lock(), [first + 1]);
    assert_eq!(hands.sets().left_count(), FSRVP_LEFT_PER_ACCOUNT);
}

/// Makes a copy, and leaves it behind.
async fn leave_one(world: &World) {
    let mut ann = Backup::of(world, "ann").await;
    ann.exposed().await;
    ann.begin_again().await;
}

/// The share of a shadow copy lets in those whom its share lets in.
#[test]
fn a_shadow_copy_keeps_the_rules_of_its_share() {
    with_copies("staff", async |world, _| {
        let mut ann = Backup::of(world, "ann").await;
        ann.done(Request::SetContext(Context::EMPTY)).await;
        let set = ann.id(Request::Start { client_set: Guid([7; 16]) }).await;
        let (client_copy, share) = (Guid([8; 16]), String::from(r"\\frevo\bobs"));
        let copy = ann.id(Request::Add { client_copy, set, share }).await;
        ann.done(Request::Commit { set, timeout_ms: 180_000 }).await;
        ann.done(Request::Expose { set, timeout_ms: 120_000 }).await;
        let name = format!("bobs@{{{copy}}}");
        let logon = ann.ipc.logon.clone();
        assert!(ann.peer.try_mount(&logon, "bobs").await.is_err());
        assert!(ann.peer.try_mount(&logon, &name).await.is_err(), "an administrator is not bob");
        let (mut bob, data) = world.session("bob", &Offer::default()).await;
        let mount = bob.mount(&data.logon, &name).await;
        assert_eq!(read(&mut bob, &mount, "f").await, b"old");
    });
}

/// Serves `data` with another share in its place.
fn with_data(world: &World, change: impl FnOnce(Share) -> Share) {
    let old = world.server.shares();
    let data = Share::clone(old.find("data").unwrap());
    let settings = (*world.server.settings()).clone();
    let shares = Shares::following(vec![change(data)], &old);
    world.server.reload(settings, &shares, world.server.accounts());
}

/// A shadow copy showed the recycle bins of all users to each.
#[test]
fn bins_of_others_are_out_of_reach_in_a_shadow_copy() {
    with_copies("staff", async |world, hands| {
        with_data(world, |data| data.recycle(RecycleBin::default()));
        let mut ann = Backup::of(world, "ann").await;
        let (set, copy) = ann.added().await;
        ann.done(Request::Commit { set, timeout_ms: 180_000 }).await;
        for user in ["ann", "bob"] {
            let bin = hands.folder(1_800_000_000).join(".recycle").join(user);
            std::fs::create_dir_all(&bin).unwrap();
            std::fs::write(bin.join("f"), user).unwrap();
        }
        ann.done(Request::Expose { set, timeout_ms: 120_000 }).await;
        let (mut bob, data) = world.session("bob", &Offer::default()).await;
        let mount = bob.mount(&data.logon, &format!("data@{{{copy}}}")).await;
        assert_eq!(read(&mut bob, &mount, ".recycle\\bob\\f").await, b"bob");
        let others = Want::existing(".recycle\\ann\\f").access(AccessMask::FILE_GENERIC_READ);
        bob.create(&mount, &others).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        let (mut ann, data) = world.session("ann", &Offer::default()).await;
        let mount = ann.mount(&data.logon, &format!("data@{{{copy}}}")).await;
        assert_eq!(read(&mut ann, &mount, ".recycle\\ann\\f").await, b"ann");
    });
}

/// After a reload a shadow copy served the old folder of its share by the rules for the new one.
#[test]
fn a_share_with_another_folder_takes_its_shadow_copies_along() {
    with_copies("staff", async |world, hands| {
        with_data(world, |data| data.host_path("/one"));
        let mut ann = Backup::of(world, "ann").await;
        let mapping = ann.exposed().await;
        let name = mapping.shadow_copy_share.clone().unwrap();
        let (mut bob, data) = world.session("bob", &Offer::default()).await;
        let mount = bob.mount(&data.logon, &name).await;
        with_data(world, |data| data.host_path("/other"));
        let gone = bob.create(&mount, &Want::existing("f")).await;
        gone.expect(Status::NETWORK_NAME_DELETED);
        assert!(bob.try_mount(&data.logon, &name).await.is_err());
        ann.done(Request::Abort { set: mapping.set }).await;
        assert_eq!(hands.count(), 0);
    });
}
