//! The clients of a run, with their sessions and actors.

use std::sync::Arc;
use std::time::Duration;

use frevo_client::{
    Cipher, Client, Compression, Credentials, Dialect, Encryption, Options, ServerName, Session,
    Share,
};

use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::actor::{self, Actor, Stage};
use crate::ambient::{Clock, Simulated};
use crate::dice::Dice;
use crate::judge::{Names, Registers, SLOT, SLOTS};
use crate::scenario::Scenario;
use crate::trace::Trace;
use crate::{event, violation};

/// Longest duration of a run without faults.
const END_MAX: Duration = Duration::from_secs(3_000);
/// Time after which every wait for a lost client has ended.
pub(crate) const FAREWELL: Duration = Duration::from_secs(400);

/// The purpose of the random numbers that choose the compression of the first client.
const SQUEEZED: u64 = 901;

/// The purpose of the random numbers that choose if the first client uses QUIC.
const INTERNET: u64 = 1_001;

/// All clients, with their sessions and actors.
#[derive(Default)]
pub(crate) struct Company {
    pub(crate) clocks: Vec<Clock>,
    pub(crate) sessions: Vec<Session>,
    /// The actors at each server.
    pub(crate) actors: Vec<Vec<Actor>>,
    count: u64,
}

/// A server that clients log on to: one machine, or the address of a unit of a cluster.
pub(crate) struct Destination<'a> {
    /// The parts that its actors share.
    pub(crate) stage: &'a Arc<Stage>,
    /// Its shares: the second one is continuously available.
    pub(crate) shares: [&'a str; 2],
}

/// A share that an actor of a cluster uses.
#[derive(Clone)]
pub(crate) struct Used {
    pub(crate) client: usize,
    pub(crate) line: usize,
    pub(crate) unit: usize,
    pub(crate) share: Share,
}

impl Used {
    /// The share of an actor, in a network with so many clients.
    pub(crate) fn of(actor: &Actor, clients: usize) -> Self {
        let line = actor.client;
        let (client, unit, share) = (line % clients, line / clients, actor.share.clone());
        Self { client, line, unit, share }
    }
}

impl Company {
    /// Adds a client, which logs on to one or more of the servers.
    pub(crate) async fn join(
        &mut self,
        number: usize,
        places: &[Destination<'_>],
        dice: &mut Dice,
        seed: u64,
        scenario: &mut Scenario,
    ) -> frevo_client::Result<()> {
        let Some(Destination { stage, .. }) = places.first() else { return Ok(()) };
        let (trace, network) = (&stage.trace, &stage.network);
        self.actors.resize_with(places.len(), Vec::new);
        let clock = Clock::new(trace.start());
        let mut options = scenario.adapt(options(dice, clock.clone(), seed, number));
        let compression = scenario.compression(Dice::new(seed, SQUEEZED + number as u64));
        if let Some(compression) = compression {
            event!(trace, "c{number}: {compression:?}");
            let ambient = Simulated::new(clock.clone(), Dice::new(seed, 10 + number as u64));
            options = options.ambient(Arc::new(ambient.offering(compression)));
            options = options.compression(Compression::On);
        }
        self.clocks.push(clock);
        let Options { newest, credits, channels, durable, encryption, .. } = &options;
        event!(
            trace,
            "c{number}: {newest:?} {encryption:?}, {credits} credits, {channels} channels, durable {durable}"
        );
        let way = scenario.way(Dice::new(seed, INTERNET + number as u64));
        let options = way.adapt(options);
        if scenario.has_rdma() || scenario.has_quic() {
            event!(trace, "c{number}: {way:?}, {:?}", options.sign);
        }
        let client = Client::with_dialer(options, way.dialer(network, number));
        let home = usize::try_from(dice.below(places.len() as u64)).unwrap_or(0);
        for (server, place) in places.iter().enumerate() {
            if server != home && dice.percent(50) {
                continue;
            }
            let user = Credentials::new("ann", "secret");
            let name = ServerName::new(network.host(server));
            let session = client.connect(name, user).await?;
            for _ in 0..=dice.below(2) {
                let is_lasting = dice.percent(50);
                let (name, line) =
                    (place.shares[usize::from(is_lasting)], network.line(number, server));
                place.stage.judge.lock().dialects.used(line, name);
                let share = session.share(name).await?;
                self.count += 1;
                let id = self.count;
                let (dice, stage) = (Dice::new(seed, 100 + id), Arc::clone(place.stage));
                let squeezes = scenario.squeezes();
                let client = line;
                let sequence = 0;
                let actor =
                    Actor { id, client, share, is_lasting, squeezes, dice, stage, sequence };
                self.actors[server].push(actor);
            }
            self.sessions.push(session);
        }
        Ok(())
    }
}

/// Chooses the options of a client.
pub(crate) fn options(dice: &mut Dice, clock: Clock, seed: u64, client: usize) -> Options {
    let newest = *dice.pick(&[Dialect::Smb311, Dialect::Smb311, Dialect::Smb311, Dialect::Smb302]);
    Options::new()
        .newest(newest)
        .oldest(Dialect::Smb300)
        .ciphers(vec![
            *dice.pick(&[Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Aes128Ccm]),
            Cipher::Aes128Ccm,
        ])
        .encryption(if dice.percent(30) { Encryption::Required } else { Encryption::AsServerAsks })
        .credits(*dice.pick(&[4, 32, 512]))
        .channels(if dice.percent(4) {
            *dice.pick(&[8, 16, 32])
        } else {
            *dice.pick(&[1, 2, 2, 3, 4])
        })
        .durable(dice.percent(80))
        // In every other run nobody tells clients to leave an owner that has lost its share.
        .witness(seed.is_multiple_of(2))
        .ambient(Arc::new(Simulated::new(clock, Dice::new(seed, 10 + client as u64))))
}

/// Makes the files, on the medium for good.
pub(crate) async fn furnish(stage: &Stage, actors: &[Actor]) -> frevo_client::Result<()> {
    let Some(first) = actors.first() else { return Ok(()) };
    let share = &first.share;
    let make = frevo_client::OpenOptions::new().read(true).write(true).create(true);
    for name in actor::FILES {
        let file = make.clone().open(share, name).await?;
        file.write_all_at(&[0; SLOT * SLOTS], 0).await?;
        file.sync_all().await?;
        file.close().await?;
    }
    let source = make.clone().open(share, actor::SOURCE).await?;
    source.write_all_at(&actor::source(), 0).await?;
    source.sync_all().await?;
    source.close().await?;
    for actor in actors {
        share.create_dir(&actor.folder()).await?;
        share.create_dir(&actor.watched()).await?;
    }
    for name in ["log", "counter"] {
        let file = make.clone().open(share, name).await?;
        if name == "counter" {
            file.write_all_at(&[0; 8], 0).await?;
        }
        file.sync_all().await?;
        file.close().await?;
    }
    let mut judge = stage.judge.lock();
    let now = judge.moment();
    for name in actor::FILES {
        judge.registers.insert(name.into(), Registers::new(now));
    }
    for actor in actors {
        judge.names.insert(actor.folder(), Names::default());
    }
    Ok(())
}

/// Waits for the end of all actors.
pub(crate) async fn await_end(acting: Vec<JoinHandle<()>>, trace: &Trace) {
    for acting in acting {
        match timeout(END_MAX, acting).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => violation!(trace, "an actor has failed"),
            Err(_) => violation!(trace, "an actor does not end"),
        }
    }
}

/// Ends all sessions, with or without a LOGOFF.
pub(crate) async fn leave(sessions: Vec<Session>, dice: &mut Dice, trace: &Trace) {
    for session in sessions {
        if dice.percent(50) {
            event!(trace, "a session logs off");
            session.log_off().await;
        }
    }
}
