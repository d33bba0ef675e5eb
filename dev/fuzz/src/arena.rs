//! A server of its own for each input, with a file system in memory and nothing that
//! differs from run to run, and connections to it.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frevo_crypto::Sender;
use frevo_net::memory;
use frevo_net::transport::Stream;
use frevo_proto::protection::transform::{is_sealed, unseal_frame};
use frevo_server::ambient::Ambient;
use frevo_server::ambient::{HostNames, NoNames};
use frevo_server::share::Share;
use frevo_server::{Server, Settings};
use frevo_store::Vfs;
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use frevo_wire::compound::Compound;
use frevo_wire::dtyp::{FileTime, Guid};
use frevo_wire::{Header, Route};
use tokio::task::{JoinHandle, LocalSet, yield_now};

use crate::server::client::logon::Logon;
use crate::server::client::world::Users;
use crate::server::client::{Offer, Peer};

/// Bytes that each direction of a connection holds.
const PIPE: usize = 1 << 20;
/// Bytes of the file system.
const CAPACITY: u64 = 4 << 20;
/// Turns that the server gets to answer what it can answer at once.
const TURNS: usize = 3;

/// A day in 2026, and random bytes that count up.
#[derive(Debug, Default)]
struct Still(AtomicU64);

impl Ambient for Still {
    fn now(&self) -> FileTime {
        FileTime(134_000_000_000_000_000)
    }

    fn random(&self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let mut number = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
            number = (number ^ (number >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            part.copy_from_slice(&number.to_le_bytes()[..part.len()]);
        }
    }

    fn names(&self) -> &dyn HostNames {
        &NoNames
    }
}

pub(crate) struct Arena {
    server: Server,
    tasks: RefCell<Vec<JoinHandle<io::Result<()>>>>,
    next_guid: Cell<u8>,
}

impl Arena {
    fn new(settings: Settings) -> Self {
        let clock = Arc::new(|| FileTime(134_000_000_000_000_000));
        let options = MemoryOptions { capacity: CAPACITY, ..MemoryOptions::default() };
        let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new(options, clock));
        let share = |name: &str| Share::disk(name, Arc::clone(&vfs));
        let shares =
            [share("data"), share("lasting").continuous(true), share("backups").time_machine(true)];
        let parts = Server::builder().settings(settings).shares(shares).accounts(Arc::new(Users));
        let server = parts.ambient(Arc::new(Still::default())).build().expect("a server");
        Self { server, tasks: RefCell::default(), next_guid: Cell::new(1) }
    }

    /// A connection that has negotiated, with a ClientGuid of its own or that of
    /// another connection.
    pub(crate) async fn connect(&self, guid: Option<Guid>, offer: &Offer) -> Option<Peer> {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (ours, theirs) = memory::pair(PIPE, [address(50_000), address(445)]);
        let connection = self.server.serve_connection(theirs).ok()?;
        self.tasks.borrow_mut().push(tokio::task::spawn_local(connection));
        let number = self.next_guid.get();
        self.next_guid.set(number.wrapping_add(1));
        let mut peer = Peer::new(Stream::Memory(ours), guid.unwrap_or(Guid([number; 16])));
        peer.is_strict = false;
        peer.negotiate(offer).await;
        Some(peer)
    }

    /// Waits for all connections, and looks for what they left behind.
    async fn wind_up(self) {
        for task in self.tasks.take() {
            let _ = task.await.expect("a connection without a panic");
        }
        let state = self.server.state();
        state.close_waiting();
        assert!(state.sessions().is_empty(), "sessions outlive their connections");
        assert!(state.files.is_empty(), "files stay open");
    }
}

/// Runs `play` with a server, under a clock that moves only when all tasks wait.
pub(crate) fn in_arena(settings: Settings, play: impl AsyncFnOnce(&Arena)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        let arena = Arena::new(settings);
        play(&arena).await;
        arena.wind_up().await;
    });
}

/// One response, as far as the player looks at it.
pub(crate) struct Answer {
    pub(crate) header: Header,
    pub(crate) message: Vec<u8>,
}

impl Answer {
    /// The AsyncId of an interim response.
    pub(crate) fn async_id(&self) -> u64 {
        match self.header.route {
            Route::Async { async_id } => async_id,
            Route::Sync { .. } => 0,
        }
    }
}

/// The frames that a server sends, read within a few turns of the runtime.
#[derive(Default)]
pub(crate) struct Inbox {
    received: Vec<u8>,
    pub(crate) is_over: bool,
}

impl Inbox {
    /// All that has come when the server has nothing more to say at once.
    pub(crate) async fn answers(&mut self, stream: &Stream, logons: &[Rc<Logon>]) -> Vec<Answer> {
        let mut quiet = 0;
        let mut buffer = [0; 16 << 10];
        while quiet < TURNS && !self.is_over {
            match stream.try_read_vectored(&mut [IoSliceMut::new(&mut buffer)]) {
                Ok(0) => self.is_over = true,
                Ok(count) => {
                    self.received.extend_from_slice(&buffer[..count]);
                    quiet = 0;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    quiet += 1;
                    yield_now().await;
                }
                Err(_) => self.is_over = true,
            }
        }
        let mut answers = Vec::new();
        let mut at = 0;
        while let Some(prefix) = self.received[at..].first_chunk::<4>() {
            let length = u32::from_be_bytes(*prefix) as usize;
            let Some(frame) = self.received.get_mut(at + 4..at + 4 + length) else { break };
            open(frame, logons, &mut answers);
            at += 4 + length;
        }
        self.received.drain(..at);
        answers
    }
}

fn open(frame: &mut [u8], logons: &[Rc<Logon>], answers: &mut Vec<Answer>) {
    let mut whole = 0..frame.len();
    if is_sealed(frame) {
        let key = |id| {
            let logon = logons.iter().find(|logon| logon.id == id)?;
            logon.keys.opening.as_ref().map(|key| -> &frevo_crypto::OpeningKey { key })
        };
        let unsealed = unseal_frame(frame, Sender::Server, key);
        whole = unsealed.expect("a reply that opens").message;
    }
    for part in Compound::new(&frame[whole]) {
        let (_, message) = part.expect("a reply with a whole header");
        let header = Header::parse(message).expect("a header");
        assert!(header.is_response(), "{header:?}");
        answers.push(Answer { header, message: message.to_vec() });
    }
}
