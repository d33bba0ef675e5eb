//! Clients whose calls a server holds back by rules of rate, and the changes of these rules.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frevo_client::{Client, Credentials, File, OpenOptions, Options, ServerName};
use frevo_server::access_rules::Names;
use frevo_server::rate_rules::{Each, RateRule};
use parking_lot::Mutex;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep, timeout};

use crate::actor::Stage;
use crate::ambient::{Clock, Simulated};
use crate::dice::Dice;
use crate::machine::Machine;
use crate::network::SERVER;
use crate::rate_book::{Moves, PacedCall, RateBook, USERS};
use crate::scenario::Way;
use crate::weather::Site;
use crate::{event, violation};

/// The runs with rules of rate, percent.
const SHARE: u64 = 10;
/// The purpose of the dice of rules. By it the first seed with rules is 5.
const PURPOSE: u64 = 3_053;
/// Most bytes of a call.
const CALL_BYTES: u64 = 128 << 10;
/// Length of a file.
const FILE_BYTES: u64 = 1 << 20;
/// The longest time of a call that nothing but rules disturbs. The lowest rule lets the largest calls of all clients
/// pass in a fifth of it.
const HELD_MAX: Duration = Duration::from_secs(60);
/// Time after which a connection is that of a session.
const SETTLED: Duration = Duration::from_secs(3);
/// The longest time of any call: every wait ends sooner once the faults have stopped.
const CALL_MAX: Duration = Duration::from_secs(1_500);

/// The rules of rate of a run, and the clients that they are for.
pub struct Rates {
    dice: Dice,
    seed: u64,
    clients: usize,
    tasks: Vec<JoinHandle<()>>,
}

impl Rates {
    /// Returns those of a run, if it has rules.
    pub fn of(seed: u64) -> Option<Self> {
        let mut dice = Dice::new(seed, PURPOSE);
        let has_rules = dice.percent(SHARE);
        let clients = usize::try_from(2 + dice.below(3)).unwrap_or(2);
        has_rules.then_some(Self { dice, seed, clients, tasks: Vec::new() })
    }

    /// Returns the number of its clients.
    pub const fn clients(&self) -> usize {
        self.clients
    }

    /// Begins the calls of clients at a server, from the number `first` of the network on.
    pub fn begin(&mut self, site: &Site, first: usize) {
        for number in 0..self.clients {
            let dice = Dice::new(self.seed, 2_000 + number as u64);
            let user = USERS[number % USERS.len()];
            let stage = Arc::clone(&site.stage);
            let book = site.machine.rates();
            let caller = Caller { stage, book, user, client: first + number, dice };
            let client = caller.client(self.seed);
            self.tasks.push(spawn_local(async move { caller.act(&client).await }));
        }
    }

    /// Changes the rules of a server until the time is over.
    pub async fn change(&self, site: &Site) {
        let (mut dice, Site { stage, machine }) = (self.dice.clone(), site);
        let pause = *dice.pick(&[1_000, 4_000, 15_000]);
        let mut rules = Vec::new();
        while Instant::now() < stage.until && !stage.trace.is_violated() {
            rules = drawn(&mut dice, &rules);
            put(machine, stage, &rules);
            sleep(dice.millis(100, pause)).await;
        }
        if dice.percent(50) {
            put(machine, stage, &[]);
        }
    }

    /// Waits for the end of its clients, and judges what has passed.
    pub async fn await_end(&mut self, site: &Site) {
        for task in self.tasks.drain(..) {
            if task.await.is_err() {
                violation!(site.stage.trace, "a client with limits of rate has failed");
            }
        }
        site.machine.rates().lock().judge(&site.stage.trace);
    }
}

fn put(machine: &Machine, stage: &Stage, rules: &[RateRule]) {
    for RateRule { name, each, read, write, operations, burst, weight, .. } in rules {
        event!(
            stage.trace,
            "rate {name}: {each:?} {read:?} {write:?} {operations:?} {burst:?} {weight:?}"
        );
    }
    event!(stage.trace, "machine {}: {} rules of rate", machine.number, rules.len());
    machine.set_rates(rules);
}

/// Chooses the next rules. Some stay as they are.
fn drawn(dice: &mut Dice, before: &[RateRule]) -> Vec<RateRule> {
    if dice.percent(15) {
        return Vec::new();
    }
    let mut rules = Vec::new();
    let mut draw =
        |dice: &mut Dice, name: &str, percent, make: fn(&mut Dice, RateRule) -> RateRule| {
            let known = before.iter().find(|rule| rule.name == name);
            if !dice.percent(percent) {
                return;
            }
            match known.filter(|_| dice.percent(50)) {
                Some(known) => rules.push(known.clone()),
                None => rules.push(make(dice, RateRule::new(name))),
            }
        };
    draw(dice, "total", 60, |dice, rule| {
        limited(dice, RateRule { users: Names::users(&USERS), ..rule })
    });
    draw(dice, "each", 50, |dice, rule| {
        let each = Some(*dice.pick(&[Each::User, Each::Address]));
        limited(dice, RateRule { users: Names::users(&USERS), each, ..rule })
    });
    draw(dice, "heavy", 40, |dice, rule| {
        let weight = u32::try_from(2 + dice.below(3)).ok();
        RateRule { users: Names::users(&USERS[..1]), weight, ..rule }
    });
    draw(dice, "everybody", 30, |dice, rule| RateRule {
        operations: Some(*dice.pick(&[50, 200, 1_000])),
        ..rule
    });
    rules
}

/// Gives a rule limits.
fn limited(dice: &mut Dice, rule: RateRule) -> RateRule {
    let mut bytes = || dice.percent(60).then(|| *dice.pick(&[64 << 10, 256 << 10, 1 << 20]));
    let (read, write) = (bytes(), bytes());
    let operations = dice.percent(30).then(|| *dice.pick(&[2, 20, 100]));
    let burst = Duration::from_millis(*dice.pick(&[10, 100, 1_000]));
    RateRule { read, write, operations, burst, ..rule }
}

/// A client with a file of its own, which makes one call after the other.
struct Caller {
    stage: Arc<Stage>,
    book: Arc<Mutex<RateBook>>,
    user: &'static str,
    client: usize,
    dice: Dice,
}

/// A call that has ended.
struct Ended<T> {
    /// None for a failure.
    value: Option<T>,
    /// True if something but rules may have delayed it, or repeated it.
    is_disturbed: bool,
}

impl Caller {
    fn client(&self, seed: u64) -> Client {
        let dice = Dice::new(seed, 3_000 + self.client as u64);
        let clock = Clock::new(Instant::now());
        let ambient = Arc::new(Simulated::new(clock, dice));
        let options = Options::new().channels(1).durable(false).ambient(ambient);
        Client::with_dialer(options, Way::Tcp.dialer(&self.stage.network, self.client))
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.stage.until || self.stage.trace.is_violated()
    }

    async fn act(mut self, client: &Client) {
        let server = ServerName::new(format!("{SERVER}0"));
        while !self.is_over() {
            let work = async {
                let user = Credentials::new(self.user, "secret");
                let session = client.connect(server.clone(), user).await?;
                let share = session.share("data").await?;
                let options = OpenOptions::new().read(true).write(true).create(true);
                options.open(&share, &format!("rate{}", self.client)).await
            };
            if let Ok(Ok(file)) = timeout(CALL_MAX, work).await {
                self.use_file(&file).await;
                let _ = timeout(CALL_MAX, file.close()).await;
            }
            sleep(Duration::from_millis(100)).await;
        }
        event!(self.stage.trace, "c{} stops", self.client);
    }

    /// Writes and reads until a call fails.
    async fn use_file(&mut self, file: &File) {
        let mut sequence = self.client as u64;
        while !self.is_over() {
            let bytes = 1 + self.dice.below(CALL_BYTES);
            let at = self.dice.below(FILE_BYTES - bytes);
            sequence += 1 << 8;
            let data: Vec<u8> =
                (0..bytes).map(|at| (at ^ sequence ^ (sequence >> 8)) as u8).collect();
            let written =
                self.call("write", Moves::Written(bytes), file.write_all_at(&data, at)).await;
            if written.value.is_none() {
                return;
            }
            let read = async {
                let mut found = vec![0; data.len()];
                let count = file.read_at(&mut found, at).await?;
                found.truncate(count);
                Ok(found)
            };
            let read = self.call("read", Moves::Read(bytes), read).await;
            let Some(found) = read.value else { return };
            if found != data && !written.is_disturbed && !read.is_disturbed {
                violation!(self.stage.trace, "c{} does not find what it has written", self.client);
            }
            let pause = *self.dice.pick(&[0, 0, 0, 20, 2_000]);
            sleep(self.dice.millis(0, pause)).await;
        }
    }

    /// Makes a call, which must not be lost and not be held back for ever.
    async fn call<T>(
        &self,
        what: &str,
        moves: Moves,
        call: impl Future<Output = frevo_client::Result<T>>,
    ) -> Ended<T> {
        let Stage { trace, network, is_disk_bad, .. } = &*self.stage;
        let (asked, client) = (Instant::now(), self.client);
        event!(trace, "c{client} {} {what} {moves:?}", self.user);
        let losses = network.losses(client);
        // A client that has just lost its connection goes on before long.
        let was_troubled = network.is_troubled(client) || !network.is_settled(client, SETTLED);
        let outcome = timeout(CALL_MAX, call).await;
        let answered = Instant::now();
        let is_disturbed = was_troubled || network.losses(client) != losses;
        if !is_disturbed && answered - asked > HELD_MAX {
            let waited = (answered - asked).as_secs();
            violation!(trace, "c{client} {what}: it was held back for {waited} s");
        }
        let value = match outcome {
            Err(_) => {
                violation!(trace, "c{client} {what}: the call does not end");
                None
            }
            Ok(Ok(value)) => {
                event!(trace, "c{client} {what}: done");
                let call = PacedCall { user: self.user, client, asked, answered, moves };
                self.book.lock().passed(call);
                Some(value)
            }
            Ok(Err(error)) => {
                event!(trace, "c{client} {what}: {error}");
                if !is_disturbed && !is_disk_bad.load(Ordering::Relaxed) {
                    violation!(trace, "c{client} {what}: {error}, and nothing has disturbed it");
                }
                None
            }
        };
        Ended { value, is_disturbed }
    }
}
