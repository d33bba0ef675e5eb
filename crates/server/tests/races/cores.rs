//! Threads that serve connections, as the server's cores do. The client stays
//! on the test's own thread.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use frevo_net::memory::{self, MemoryStream};
use frevo_net::transport::Stream;
use frevo_server::Server;
use frevo_wire::dtyp::Guid;
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use crate::client::*;

pub struct Cores {
    doors: Vec<mpsc::UnboundedSender<MemoryStream>>,
    threads: Vec<JoinHandle<()>>,
    watchdog: Arc<AtomicBool>,
    watcher: JoinHandle<()>,
}

/// No task keeps its core for as long, however busy the machine.
const STALLED_MS: u64 = 5_000;

impl Cores {
    pub fn start(server: &Server, count: usize) -> Self {
        let (mut doors, mut threads) = (Vec::new(), Vec::new());
        let began = Instant::now();
        let beats: Vec<Arc<AtomicU64>> = (0..count).map(|_| Arc::default()).collect();
        for beat in &beats {
            let beat = Arc::clone(beat);
            let (door, mut accepted) = mpsc::unbounded_channel();
            let server = server.clone();
            doors.push(door);
            threads.push(std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .on_thread_start(frevo_server::begin_thread)
                    .build()
                    .unwrap();
                LocalSet::new().block_on(&runtime, async {
                    // The task notes the time again and again. If another task blocks this core
                    // thread, the noted time becomes old.
                    let life = tokio::task::spawn_local(async move {
                        loop {
                            beat.store(began.elapsed().as_millis() as u64, Ordering::Relaxed);
                            tokio::time::sleep(Duration::from_millis(50)).await;
                        }
                    });
                    let mut tasks = Vec::new();
                    while let Some(one) = accepted.recv().await {
                        let run = server.serve_connection(one).expect("admitted");
                        tasks.push(tokio::task::spawn_local(run));
                    }
                    for task in tasks {
                        task.await.unwrap().unwrap();
                    }
                    life.abort();
                });
            }));
        }
        let watchdog = Arc::new(AtomicBool::new(true));
        let watching = Arc::clone(&watchdog);
        let watcher = std::thread::spawn(move || {
            while watching.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(50));
                let now = began.elapsed().as_millis() as u64;
                for beat in &beats {
                    let silent = now.saturating_sub(beat.load(Ordering::Relaxed));
                    // Each core thread notes the time again and again. If a request blocks the
                    // thread (a deadlock is threat L6), the noted time gets too old.
                    assert!(silent < STALLED_MS, "a core has not lived for {silent} ms");
                }
            }
        });
        Self { doors, threads, watchdog, watcher }
    }

    /// A connection that is served by core `at`, of the client `guid`.
    pub fn connect(&self, at: usize, guid: Guid) -> Peer {
        let address = Ipv4Addr::LOCALHOST.into();
        let (client, server) = (SocketAddr::new(address, 50_000), SocketAddr::new(address, 445));
        let (ours, theirs) = memory::pair(1 << 20, [client, server]);
        assert!(self.doors[at % self.doors.len()].send(theirs).is_ok());
        Peer::new(Stream::Memory(ours), guid)
    }

    /// A further channel of `logon`'s session.
    pub async fn bind(&self, at: usize, first: &Peer, mount: &Mount) -> (Peer, Mount) {
        let mut peer = self.connect(at, first.guid);
        peer.negotiate(&Offer::default()).await;
        let bound = peer.try_log_on(Setup::binding("ann", &mount.logon)).await.expect("bound");
        let mount = mount.on(&bound);
        (peer, mount)
    }

    /// The first channel.
    pub async fn session(&self, at: usize, guid: Guid) -> (Peer, Mount) {
        let mut peer = self.connect(at, guid);
        peer.negotiate(&Offer::default()).await;
        let logon = peer.log_on("ann").await;
        let mount = peer.mount(&logon, "data").await;
        (peer, mount)
    }

    /// Waits for every connection to end; their clients are gone.
    pub fn stop(self) {
        drop(self.doors);
        self.watchdog.store(false, Ordering::Relaxed);
        self.watcher.join().unwrap();
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// How often each race is run: a few times in the ordinary tests.
pub fn runs(few: usize) -> usize {
    std::env::var("FREVO_RACE_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(few)
}
