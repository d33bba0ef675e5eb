//! A server of the same process, and a network between it and the client that
//! can be cut.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses its part")]
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "tests")]

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use frevo_client::internal::{Dial, Dialing};
use frevo_client::{Client, Credentials, Options, ServerName, Session, Share};
use frevo_net::memory::{self, MemoryStream};
use frevo_net::transport::Stream;
use frevo_posix::{PosixOptions, PosixVfs};
use frevo_proto::Dialect;
use frevo_server::internal::state::ServerState;
use frevo_server::settings::Encryption;
use frevo_server::share::Share as ServerShare;
use frevo_server::{Server, ServerBuilder, Settings, UserList};
use frevo_store::Vfs;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::LocalSet;

/// The wire between: it can be cut, and refuse new connections.
#[derive(Debug)]
pub struct Wire {
    ends: mpsc::UnboundedSender<MemoryStream>,
    pub down: AtomicBool,
    pub dialed: AtomicUsize,
    /// New connections are of a transport that encrypts by itself.
    pub is_secure: AtomicBool,
}

impl Dial for Wire {
    fn dial<'a>(&'a self, _: &'a ServerName) -> Dialing<'a> {
        Box::pin(async move {
            if self.down.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            self.dialed.fetch_add(1, Ordering::SeqCst);
            let at = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
            let (ours, theirs) = memory::pair(1 << 20, [at(50_000), at(445)]);
            let (ours, theirs) = match self.is_secure.load(Ordering::SeqCst) {
                true => (ours.secure_by_itself(), theirs.secure_by_itself()),
                false => (ours, theirs),
            };
            let _ = self.ends.send(theirs);
            Ok(Stream::Memory(ours))
        })
    }
}

pub struct World {
    pub embedded: Server,
    /// The state of `embedded` that all connections share.
    pub server: Arc<ServerState>,
    pub dir: TempDir,
    pub wire: Arc<Wire>,
}

pub fn settings() -> Settings {
    Settings {
        min_dialect: Dialect::SMB_2_0_2,
        encryption: Encryption::Offered,
        ..Settings::default()
    }
}

impl World {
    fn new(
        settings: Settings,
        change: impl FnOnce(ServerBuilder) -> ServerBuilder,
    ) -> (Self, mpsc::UnboundedReceiver<MemoryStream>) {
        let dir = tempfile::tempdir().unwrap();
        let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
        let vfs: Arc<dyn Vfs> = Arc::new(vfs);
        let share =
            |name: &str, encrypt| ServerShare::disk(name, Arc::clone(&vfs)).encrypt(encrypt);
        // Each request to this share runs on a thread of its own, so a later request can overtake
        // an earlier one.
        let away = share("away", false).off_core();
        let builder = Server::builder()
            .settings(settings)
            .shares([share("data", false), share("sealed", true), away])
            .accounts(Arc::new(UserList::new().user("ann", "secret")));
        let embedded = change(builder).build().unwrap();
        let server = Arc::clone(embedded.state());
        let (ends, heard) = mpsc::unbounded_channel();
        let wire = Wire {
            ends,
            down: AtomicBool::new(false),
            dialed: AtomicUsize::new(0),
            is_secure: AtomicBool::new(false),
        };
        (Self { embedded, server, dir, wire: Arc::new(wire) }, heard)
    }

    pub fn client(&self, options: Options) -> Client {
        Client::with_dialer(options, Arc::clone(&self.wire) as _)
    }

    pub async fn session(&self, options: Options) -> Session {
        let credentials = Credentials::new("ann", "secret");
        self.client(options).connect(ServerName::new("frevo"), credentials).await.unwrap()
    }

    pub async fn share(&self) -> Share {
        self.session(Options::default()).await.share("data").await.unwrap()
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }
}

/// Runs a test with a server beside it.
pub fn in_world(test: impl AsyncFnOnce(&World)) {
    in_world_with(settings(), test);
}

pub fn in_world_with(settings: Settings, test: impl AsyncFnOnce(&World)) {
    in_changed_world(settings, |builder| builder, test);
}

/// Runs a test with a server whose parts `change` changes.
pub fn in_changed_world(
    settings: Settings,
    change: impl FnOnce(ServerBuilder) -> ServerBuilder,
    test: impl AsyncFnOnce(&World),
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let (world, mut ends) = World::new(settings, change);
        let server = world.embedded.clone();
        tokio::task::spawn_local(async move {
            while let Some(stream) = ends.recv().await {
                tokio::task::spawn_local(server.serve_connection(stream).unwrap());
            }
        });
        test(&world).await;
    });
}
