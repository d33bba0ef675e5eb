//! One run: from an empty disk to an empty server.

use std::cell::RefCell;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Once};
use std::time::Duration;

use frevo_client::{
    Cipher, Client, Credentials, Dialect, Encryption, Options, ServerName, Session,
};
use parking_lot::Mutex;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, timeout};

use crate::actor::{Actor, Stage};
use crate::ambient::Simulated;
use crate::dice::Dice;
use crate::judge::{Judge, Names, Registers, SLOT, SLOTS};
use crate::machine::Machine;
use crate::network::{Network, Road};
use crate::trace::Trace;
use crate::{actor, event, violation, weather};

/// The parameters of a run.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// The seed of all random choices.
    pub seed: u64,
    /// True to keep the events.
    pub trace: bool,
}

/// The result of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The seed of the run.
    pub seed: u64,
    /// The events, if they are kept.
    pub lines: Vec<String>,
    /// A digest of all events.
    pub digest: u64,
    /// The violations that the judge found.
    pub violations: Vec<String>,
}

/// Longest duration of a run without faults.
const END_MAX: Duration = Duration::from_secs(3_000);
/// Time after which every wait for a lost client has ended.
const FAREWELL: Duration = Duration::from_secs(400);

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Counts all panics, also those that a task catches.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            PANICS.with_borrow_mut(|panics| panics.push(panic.to_string()));
        }));
    });
}

impl Run {
    /// Runs it, on this thread.
    ///
    /// # Panics
    /// When there can be no runtime.
    #[must_use]
    #[allow(clippy::expect_used, reason = "without a runtime there is no simulation")]
    pub fn run(self) -> Outcome {
        watch_panics();
        frevo_net::file_io::stay_on_this_thread();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime can be made");
        let trace = LocalSet::new().block_on(&runtime, async {
            let trace = Arc::new(Trace::new(Instant::now(), self.trace));
            play(self.seed, &trace).await;
            trace
        });
        let alive = runtime.metrics().num_alive_tasks();
        if alive > 0 {
            violation!(trace, "{alive} tasks have not ended");
        }
        drop(runtime);
        for panic in PANICS.take() {
            violation!(trace, "panic: {panic}");
        }
        let (lines, digest, violations) = trace.take();
        Outcome { seed: self.seed, lines, digest, violations }
    }
}

async fn play(seed: u64, trace: &Arc<Trace>) {
    let mut dice = Dice::new(seed, 1);
    let clients = usize::try_from(1 + dice.below(4)).unwrap_or(1);
    let network = Network::new(clients, Dice::new(seed, 2), Arc::clone(trace));
    let machine = Machine::new(Arc::clone(&network), Arc::clone(trace), Dice::new(seed, 3));
    machine.start();
    let stage = Arc::new(Stage {
        trace: Arc::clone(trace),
        judge: Mutex::new(Judge::new(Arc::clone(trace))),
        network: Arc::clone(&network),
        is_disk_bad: AtomicBool::new(false),
        is_store_bad: AtomicBool::new(false),
        has_fallen: AtomicBool::new(false),
        until: Instant::now() + dice.millis(10_000, 40_000),
    });
    let mut sessions = Vec::new();
    let mut actors = Vec::new();
    for client in 0..clients {
        let options = options(&mut dice, trace.start(), seed, client);
        let Options { newest, credits, channels, durable, encryption, .. } = &options;
        event!(
            trace,
            "c{client}: {newest:?} {encryption:?}, {credits} credits, {channels} channels, durable {durable}"
        );
        let road = Road { network: Arc::clone(&network), client };
        let user = Credentials::new("ann", "secret");
        let session = match Client::with_dialer(options, Arc::new(road))
            .connect(ServerName::new("frevo"), user)
            .await
        {
            Ok(session) => session,
            Err(why) => return violation!(trace, "c{client} cannot log on: {why}"),
        };
        for _ in 0..=dice.below(2) {
            let is_lasting = dice.percent(50);
            let name = if is_lasting { "lasting" } else { "data" };
            let share = match session.share(name).await {
                Ok(share) => share,
                Err(why) => return violation!(trace, "c{client} has no share: {why}"),
            };
            let id = actors.len() as u64 + 1;
            let (dice, stage) = (Dice::new(seed, 100 + id), Arc::clone(&stage));
            actors.push(Actor { id, client, share, is_lasting, dice, stage, sequence: 0 });
        }
        sessions.push(session);
    }
    if let Err(why) = furnish(&stage, &actors).await {
        return violation!(trace, "the files cannot be made: {why}");
    }
    let acting: Vec<_> =
        actors.into_iter().map(|actor| tokio::task::spawn_local(actor.act())).collect();
    weather::make(&stage, &machine, clients, Dice::new(seed, 4)).await;
    for acting in acting {
        match timeout(END_MAX, acting).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => violation!(trace, "an actor has failed"),
            Err(_) => violation!(trace, "an actor does not end"),
        }
    }
    leave(sessions, &mut dice, trace).await;
    sleep(FAREWELL).await;
    machine.check_empty();
    if network.count() > 0 {
        violation!(trace, "{} connections have not ended", network.count());
    }
    stage.judge.lock().at_the_end(&machine.contents());
}

/// Chooses the options of a client.
fn options(dice: &mut Dice, start: Instant, seed: u64, client: usize) -> Options {
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
        .channels(*dice.pick(&[1, 1, 2, 3]))
        .durable(dice.percent(80))
        .ambient(Arc::new(Simulated::new(start, Dice::new(seed, 10 + client as u64))))
}

/// Makes the files, on the medium for good.
async fn furnish(stage: &Stage, actors: &[Actor]) -> frevo_client::Result<()> {
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

/// Ends all sessions, with or without a LOGOFF.
async fn leave(sessions: Vec<Session>, dice: &mut Dice, trace: &Trace) {
    for session in sessions {
        if dice.percent(50) {
            event!(trace, "a session logs off");
            session.log_off().await;
        }
    }
}
