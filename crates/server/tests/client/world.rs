//! The server under test, its share on disk, and an innocent session that must
//! notice nothing.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use frevo_auth::{Account, AccountRules, Accounts, NtHash};
use frevo_net::memory::{self, MemoryStream};
use frevo_net::transport::Stream;
use frevo_posix::{PosixOptions, PosixVfs};
use frevo_proto::Dialect;
use frevo_server::SharedAccounts;
use frevo_server::access_rules::Rules;
use frevo_server::ambient::{Ambient, Host};
use frevo_server::internal::state::{Kind, ServerState, off_core_settled};
use frevo_server::settings::Encryption;
use frevo_server::share::Share;
use frevo_server::{IntoListeners, RpcPort, Server, Settings};
use frevo_store::Vfs;
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use frevo_wire::Status;
use frevo_wire::command::lock::LockFlags;
use frevo_wire::dtyp::{AccessMask, Guid};
use frevo_wire::file_id::FileId;
use tempfile::TempDir;
use tokio::task::{JoinHandle, LocalSet};

use super::files::{Mount, Want, lock_draft};
use super::negotiate::Offer;
use super::peer::Peer;

/// The port of RPC that its clients are told.
pub const RPC_PORT: u16 = 49_152;

/// Bytes that each direction of a connection holds.
const PIPE: usize = 1 << 20;

/// The accounts; `carol` is disabled, `dora` has no hash.
#[derive(Debug)]
pub struct Users;

impl Accounts for Users {
    fn account(&self, user: &str, _domain: &str) -> Option<Account> {
        let name = user.to_lowercase();
        matches!(&*name, "ann" | "bob" | "carol").then(|| Account {
            nt_hash: NtHash::from_password(&password(&name)),
            rules: AccountRules::enabled(name != "carol"),
            name,
        })
    }
}

pub fn password(user: &str) -> String {
    format!("{}'s password", user.to_lowercase())
}

/// Every dialect, signing demanded, encryption offered: what lets the tests
/// reach the most. What the defaults are stricter in has tests of its own.
pub fn settings() -> Settings {
    Settings {
        min_dialect: Dialect::SMB_2_0_2,
        encryption: Encryption::Offered,
        server_guid: Guid([0xF0; 16]),
        ..Settings::default()
    }
}

/// A server of these parts, on two cores when it listens.
pub fn serving(
    settings: Settings,
    shares: impl IntoIterator<Item = Share>,
    accounts: SharedAccounts,
    ambient: Arc<dyn Ambient>,
) -> Server {
    let parts = Server::builder().settings(settings).shares(shares).accounts(accounts);
    parts.ambient(ambient).cores(2).build().unwrap()
}

pub struct World {
    pub embedded: Server,
    /// The state of `embedded` that all connections share.
    pub server: Arc<ServerState>,
    pub dir: TempDir,
    /// Where the shares are on the host.
    root: PathBuf,
    tasks: RefCell<Vec<JoinHandle<io::Result<()>>>>,
    next_guid: Cell<u8>,
}

impl World {
    /// Shares: `data`; `sealed`, which demands encryption; `readonly`;
    /// `discreet`, which hides what cannot be read; `bobs`, for bob alone;
    /// `lasting`, which is continuous; `late`, whose LastWriteTimes
    /// are, and where slashes separate and files
    /// have at most a mebibyte. All show the same directory.
    pub fn new(settings: Settings) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
        Self::with(settings, dir, &(Arc::new(vfs) as _))
    }

    /// The same shares of another file system; the directory stays empty.
    pub fn over(settings: Settings, vfs: &Arc<dyn Vfs>) -> Self {
        Self::with(settings, tempfile::tempdir().unwrap(), vfs)
    }

    /// The same shares of a folder that is there already, as after a restart.
    pub fn at(settings: Settings, root: &Path) -> Self {
        let vfs: Arc<dyn Vfs> =
            Arc::new(PosixVfs::open_root(root, PosixOptions::default()).unwrap());
        let world = Self::with(settings, tempfile::tempdir().unwrap(), &vfs);
        Self { root: root.into(), ..world }
    }

    /// A server of its own making whose shares are of `dir`.
    pub fn of(embedded: Server, dir: TempDir) -> Self {
        let (root, server) = (dir.path().to_owned(), Arc::clone(embedded.state()));
        Self { embedded, server, dir, root, tasks: RefCell::default(), next_guid: Cell::new(1) }
    }

    /// The whole server, with its core threads, on a socket.
    pub fn listen(&self, listener: impl IntoListeners + 'static) -> JoinHandle<io::Result<()>> {
        let server = self.embedded.clone();
        tokio::task::spawn_local(async move { server.serve(listener).await })
    }

    /// The server is gone in the midst of what it did: nothing is closed.
    pub fn crash(self) {
        for task in self.tasks.take() {
            task.abort();
        }
    }

    fn with(settings: Settings, dir: TempDir, vfs: &Arc<dyn Vfs>) -> Self {
        let share = |name: &str| Share::disk(name, Arc::clone(vfs));
        // With FREVO_TEST_BLOCKING_POOL set, all shares handle their requests on a blocking pool.
        let uses_pool = std::env::var_os("FREVO_TEST_BLOCKING_POOL").is_some();
        let share = |name: &str| match uses_pool {
            true => share(name).off_core(),
            false => share(name),
        };
        let shares = [
            share("data"),
            share("backups").time_machine(true),
            share("sealed").encrypt(true),
            share("lasting").continuous(true),
            share("late").late_write_times(true).forward_slashes(true).max_file_size(1 << 20),
            share("readonly").read_only(true),
            share("discreet").hide_unreadable(true),
            share("copies").inherited_as_set(true),
            share("bobs").rules(Rules::for_users(&["bob"])),
        ];
        Self::of(serving(settings, shares, Arc::new(Users), Arc::new(Host)), dir)
    }

    /// A new connection from this host, with a ClientGuid of its own.
    pub fn connect(&self) -> Peer {
        self.connect_from(Ipv4Addr::LOCALHOST.into()).expect("admitted")
    }

    /// A new connection over a transport that encrypts by itself.
    pub fn connect_securely(&self) -> Peer {
        let (ours, theirs) = ends(Ipv4Addr::LOCALHOST.into());
        self.serve(ours.secure_by_itself(), theirs.secure_by_itself()).expect("admitted")
    }

    /// A new connection, as the listener would take or refuse it.
    pub fn connect_from(&self, address: IpAddr) -> Option<Peer> {
        let (ours, theirs) = ends(address);
        self.serve(ours, theirs)
    }

    fn serve(&self, ours: MemoryStream, theirs: MemoryStream) -> Option<Peer> {
        let connection = self.embedded.serve_connection(theirs).ok()?;
        self.tasks.borrow_mut().push(tokio::task::spawn_local(connection));
        let number = self.next_guid.get();
        self.next_guid.set(number.wrapping_add(1));
        Some(Peer::new(Stream::Memory(ours), Guid([number; 16])))
    }

    /// A new connection to a port of RPC, from `address`.
    pub fn connect_rpc(&self, address: IpAddr, port: RpcPort) -> Option<Stream> {
        let client = SocketAddr::new(address, 50_000);
        let server = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), RPC_PORT);
        let (ours, theirs) = memory::pair(PIPE, [client, server]);
        let connection = self.embedded.serve_rpc_connection(theirs, port).ok()?;
        self.tasks.borrow_mut().push(tokio::task::spawn_local(connection));
        Some(Stream::Memory(ours))
    }

    /// Waits at the end for a task that serves a connection.
    pub fn keep(&self, task: JoinHandle<io::Result<()>>) {
        self.tasks.borrow_mut().push(task);
    }

    /// A connection that has negotiated 3.1.1 (or what `offer` leads to) and
    /// logged on as `user`, and the share `data`.
    pub async fn session(&self, user: &str, offer: &Offer) -> (Peer, Mount) {
        let mut peer = self.connect();
        peer.negotiate(offer).await;
        let logon = peer.log_on(user).await;
        let mount = peer.mount(&logon, "data").await;
        (peer, mount)
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    pub fn file(&self, below: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(below), content).unwrap();
    }

    pub fn content(&self, below: &str) -> Vec<u8> {
        std::fs::read(self.path(below)).unwrap()
    }

    /// Waits for the connections to end (their clients are gone) and fails when
    /// one of them panicked, or left anything behind.
    pub async fn wind_up(&self) {
        for task in self.tasks.take() {
            let end = tokio::time::timeout(Duration::from_secs(120), task).await;
            match end.expect("a connection ends with its client") {
                Ok(_) => {}
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(error) => panic!("{error}"),
            }
        }
        // Disconnected Opens are closed first, as at the end of a server, so that nothing waits for
        // their clients.
        self.server.close_waiting();
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        assert!(
            self.server.blocking_pool.settled(deadline).await,
            "the server's blocking pool is busy"
        );
        for share in self.server.shares().sorted() {
            let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
            assert!(off_core_settled(&share, deadline).await, "a blocking pool is busy");
        }
        assert_eq!(self.server.watchdog.held(), 0, "a poll held its core: see the log");
        assert!(self.server.sessions().is_empty(), "sessions outlive their connections");
        assert!(self.server.files.is_empty(), "files stay open");
        self.closed_everything().await;
        assert_eq!(self.server.ledger.bytes(), 0, "bytes stay charged");
        for kind in Kind::ALL {
            assert_eq!(self.server.ledger.count(kind), 0, "{kind:?} stays charged");
        }
    }

    /// Waits for the Opens of files without a name, which other threads close.
    async fn closed_everything(&self) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while self.server.ledger.count(Kind::Open) > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The ends of a connection from `address`.
fn ends(address: IpAddr) -> (MemoryStream, MemoryStream) {
    let client = SocketAddr::new(address, 50_000);
    let server = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 445);
    memory::pair(PIPE, [client, server])
}

/// An innocent user with a session, a file, and a handle with a lock.
struct Innocent {
    peer: Peer,
    mount: Mount,
    file: FileId,
}

const INNOCENT_CONTENT: &[u8] = b"none of your business";

impl Innocent {
    async fn arrive(world: &World) -> Self {
        let mut peer = world.connect();
        peer.guid = Guid([0xEE; 16]);
        peer.negotiate(&Offer::default()).await;
        let logon = peer.log_on("bob").await;
        let mount = peer.mount(&logon, "bobs").await;
        let rights = AccessMask::READ_DATA | AccessMask::WRITE_DATA | AccessMask::READ_ATTRIBUTES;
        let file = peer.open_file(&mount, &Want::file("innocent").access(rights)).await;
        peer.write(&mount, file, 0, INNOCENT_CONTENT).await;
        let lock = lock_draft(file, &[(0, 4, EXCLUSIVE)]);
        peer.on(&mount, lock).await.ok();
        Self { peer, mount, file }
    }

    /// Connection, session, tree, handle, lock and content are as they were.
    async fn assert_unharmed(&mut self, world: &World) {
        let Self { peer, mount, file } = self;
        peer.expect_alive().await;
        let content = peer.read(mount, *file, 0, 4096).await;
        assert_eq!(content, INNOCENT_CONTENT, "the innocent file");
        assert_eq!(world.content("innocent"), INNOCENT_CONTENT);
        // The innocent client, which each test world has, must still have its lock. So a second
        // lock of the range conflicts.
        peer.on(mount, lock_draft(*file, &[(0, 4, EXCLUSIVE)]))
            .await
            .expect(Status::LOCK_NOT_GRANTED);
        peer.open_file(mount, &Want::existing("innocent").access(AccessMask::READ_ATTRIBUTES))
            .await;
    }
}

pub const EXCLUSIVE: LockFlags =
    LockFlags(LockFlags::EXCLUSIVE_LOCK.0 | LockFlags::FAIL_IMMEDIATELY.0);

/// Runs a test in a world of its own. Afterwards an innocent session on another
/// connection must be unharmed, no connection may have panicked, and nothing
/// may be left behind.
pub fn in_world(test: impl AsyncFnOnce(&World)) {
    in_world_with(settings(), test);
}

pub fn in_world_with(settings: Settings, test: impl AsyncFnOnce(&World)) {
    run(false, settings, test);
}

/// The same with a clock that moves only when everybody waits for it.
pub fn in_frozen_world(settings: Settings, test: impl AsyncFnOnce(&World)) {
    run(true, settings, test);
}

/// Plays a script (see `script`) in a world of its own. Its file system is in
/// memory and small: a script may ask for terabytes.
pub fn play(settings: Settings, bytes: &[u8]) {
    play_under_caps(settings, bytes, &[]);
}

/// Plays a script while accounts may have as many objects of each kind as `caps` say: the cap of
/// one kind changes with each step.
pub fn play_under_caps(settings: Settings, bytes: &[u8], caps: &[(Kind, Option<usize>)]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let clock = Arc::new(|| Host.now());
    let options = MemoryOptions { capacity: 4 << 20, ..MemoryOptions::default() };
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new(options, clock));
    LocalSet::new().block_on(&runtime, async {
        let world = World::over(settings, &vfs);
        let meanwhile = |step: usize| {
            if let Some((kind, cap)) = caps.get(step % caps.len().max(1)) {
                world.server.ledger.set_most(*kind, *cap, None);
            }
        };
        super::script::play_while(&world, bytes, meanwhile).await;
        world.wind_up().await;
    });
}

/// Runs a test over a file system in memory, which can what that of temporary
/// files may not.
pub fn in_memory(test: impl AsyncFnOnce(&World)) {
    let clock = Arc::new(|| Host.now());
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new(MemoryOptions::default(), clock));
    over(&vfs, test);
}

/// Keeps this thread's file operations off the ring. A paused clock does not know that something
/// waits for a ring, and goes on at once; it waits for threads.
pub fn without_ring() {
    use frevo_net::file_io::{RoadChoice, choose_roads};
    choose_roads(RoadChoice { ring: false, ..RoadChoice::default() });
}

/// Runs a test in a world that is there already.
pub fn in_own_world(frozen: bool, world: &World, test: impl AsyncFnOnce(&World)) {
    if frozen {
        without_ring();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(frozen)
        .on_thread_start(frevo_server::begin_thread)
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, async {
        test(world).await;
        world.wind_up().await;
    });
}

/// Runs a test over a file system of its own.
pub fn over(vfs: &Arc<dyn Vfs>, test: impl AsyncFnOnce(&World)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let world = World::over(settings(), vfs);
        test(&world).await;
        world.wind_up().await;
    });
}

fn run(frozen: bool, settings: Settings, test: impl AsyncFnOnce(&World)) {
    if frozen {
        without_ring();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(frozen)
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, async {
        let world = World::new(settings);
        let mut innocent = Innocent::arrive(&world).await;
        test(&world).await;
        innocent.assert_unharmed(&world).await;
        drop(innocent);
        world.wind_up().await;
    });
}
