//! An attacker that floods a server by listing, on many connections of one account, and a client of
//! another account that must not wait for it.

use std::sync::Arc;
use std::time::Duration;

use frevo_client::{Client, Credentials, Options, ServerName, Share};
use frevo_store::memory::MemoryVfs;
use frevo_store::vfs::{Existence, KindWanted, OpenHow};
use frevo_store::{Name, Vfs as _};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::ambient::{Clock, Simulated};
use crate::core::{Core, Running};
use crate::dice::Dice;
use crate::event;
use crate::network::{Network, SERVER};
use crate::scenario::Way;
use crate::trace::Trace;

/// The account of the attacker, and that of the client that is measured.
pub const USERS: [&str; 2] = ["eve", "bob"];
/// The runs with a flood, percent.
const SHARE: u64 = 6;
/// The purpose of the dice of floods. By it the first seeds with a flood are 10 and 49.
const PURPOSE: u64 = 2_064;
/// The folder that is listed, and the number of its files.
const FOLDER: &str = "many";
const FILES: usize = 3_000;
/// A pattern that finds none of them.
const PATTERN: &str = "*zzz*";
/// Connections of the attacker.
const CONNECTIONS: usize = 200;
/// Time between two connections of the attacker.
const STAGGER: Duration = Duration::from_millis(5);

/// A flood within a run.
pub struct Flood {
    /// The processor that the servers share.
    pub core: Arc<Core>,
    running: Running,
    dice: Dice,
    seed: u64,
    tasks: Vec<JoinHandle<()>>,
}

impl Flood {
    /// Returns the flood of a run, if it has one.
    pub fn of(seed: u64) -> Option<Self> {
        let mut dice = Dice::new(seed, PURPOSE);
        if !dice.percent(SHARE) {
            return None;
        }
        let (core, running) = Core::start();
        Some(Self { core, running, dice, seed, tasks: Vec::new() })
    }

    /// Makes the folder that is listed.
    pub fn furnish(vfs: &MemoryVfs) {
        let make = OpenHow { existence: Existence::MustNotExist, ..OpenHow::LOOK };
        let folder = OpenHow { kind: KindWanted::Directory, ..make };
        let _ = vfs.open(&Name::from_stored(FOLDER.into()), &folder);
        for number in 0..FILES {
            let _ = vfs.open(&Name::from_stored(format!("{FOLDER}\\file-{number}")), &make);
        }
    }

    /// Begins the flood, by clients of the network from the number `first` on.
    pub fn begin(&mut self, network: &Arc<Network>, first: usize, trace: &Arc<Trace>) {
        let [begins, lasts] = [self.dice.millis(0, 5_000), self.dice.millis(2_000, 4_000)];
        event!(trace, "flood: in {begins:?} for {lasts:?}");
        let begins = Instant::now() + begins;
        let until = begins + lasts;
        for number in 0..CONNECTIONS {
            let client = self.client(network, first, number);
            let at = begins + STAGGER * u32::try_from(number).unwrap_or(0);
            self.tasks.push(spawn_local(async move {
                sleep_until(at).await;
                let _ = timeout_at(until, attack(&client)).await;
            }));
        }
        let bob = self.client(network, first + 1, CONNECTIONS);
        let (network, dice) = (Arc::clone(network), self.dice.clone());
        self.tasks.push(spawn_local(async move {
            network.watch_waits(network.line(first + 1, 0));
            let _ = timeout_at(until, probe(&bob, dice)).await;
        }));
    }

    /// Returns a client of its own, which uses one TCP connection.
    fn client(&self, network: &Arc<Network>, client: usize, number: usize) -> Client {
        let dice = Dice::new(self.seed, 1_000 + number as u64);
        let clock = Clock::new(Instant::now());
        let options = Options::new()
            .channels(1)
            .durable(false)
            .ambient(Arc::new(Simulated::new(clock, dice)));
        Client::with_dialer(options, Way::Tcp.dialer(network, client))
    }

    /// Waits for the end of its clients.
    pub async fn await_end(&mut self) {
        for task in self.tasks.drain(..) {
            let _ = task.await;
        }
    }

    /// Stops the processor.
    pub async fn stop(self) {
        self.running.stop().await;
    }
}

async fn connect(client: &Client, user: &str) -> frevo_client::Result<Share> {
    let server = ServerName::new(format!("{SERVER}0"));
    let session = client.connect(server, Credentials::new(user, "secret")).await?;
    session.share("data").await
}

/// Lists again and again, whatever comes of it.
async fn attack(client: &Client) {
    loop {
        if let Ok(share) = connect(client, USERS[0]).await {
            while let Ok(listing) = share.read_dir(FOLDER).await {
                if listing.matching(PATTERN).collect_all().await.is_err() {
                    break;
                }
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Asks now and then if the server is there.
async fn probe(client: &Client, mut dice: Dice) {
    loop {
        if let Ok(share) = connect(client, USERS[1]).await {
            while share.session().echo().await.is_ok() {
                sleep(dice.millis(1, 50)).await;
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
}
