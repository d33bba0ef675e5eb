//! Slots of shared files: written, read, and read from a cache under a lease.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use frevo_client::internal::{LeaseHolder, Yield};
use frevo_client::{File, LeaseState, OpenOptions, Status};
use parking_lot::Mutex;
use tokio::time::sleep;

use super::{Actor, Failed};
use crate::judge::{End, Moment, SLOT, SLOTS, content};
use crate::network::LATENCY_MAX;
use crate::{event, violation};

/// The names of the files.
pub const FILES: [&str; 2] = ["r0", "r1"];
/// How long a cache of reads may be old: a break of R needs no acknowledgement, so the writer does
/// not wait for its arrival.
const STALE_MAX: Duration = Duration::from_millis(LATENCY_MAX.as_millis() as u64 * 4);
/// Time within which a client notices that its connection is dead.
const NOTICED: Duration = Duration::from_secs(30);

/// Slots that were read under a lease.
#[derive(Default)]
struct Cache(Mutex<CachedSlots>);

#[derive(Default)]
struct CachedSlots {
    /// Counts breaks: an answer requested before a break is not cached after it.
    breaks: u64,
    slots: BTreeMap<usize, Vec<u8>>,
}

impl LeaseHolder for Cache {
    fn broken(&self, to: LeaseState) -> Yield {
        if !to.contains(LeaseState::READ) {
            let mut cached = self.0.lock();
            cached.breaks += 1;
            cached.slots.clear();
        }
        Box::pin(std::future::ready(()))
    }
}

struct Opened<'a> {
    name: &'a str,
    file: File,
    /// True if every write is synced before it is acknowledged.
    through: bool,
    cache: Arc<Cache>,
}

impl Actor {
    pub(super) async fn registers(&mut self) {
        let name = *self.dice.pick(&FILES);
        let asked = self.dice.percent(25);
        let lease = *self.dice.pick(&[
            LeaseState::EMPTY,
            LeaseState::READ,
            LeaseState::READ | LeaseState::HANDLE,
            LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE,
        ]);
        let options = OpenOptions::new().read(true).write(true).write_through(asked).lease(lease);
        let through = asked || self.is_lasting;
        let Some(file) = self.open(options, name).await else { return };
        let cache = Arc::new(Cache::default());
        let holder: Arc<dyn LeaseHolder> = Arc::clone(&cache) as _;
        file.watch_lease(Arc::downgrade(&holder) as Weak<dyn LeaseHolder>);
        let opened = Opened { name, file, through, cache };
        if self.dice.percent(20) {
            self.look_again(&opened).await;
        }
        for _ in 0..self.dice.below(9) {
            let slot = self.slot();
            let is_well = match self.dice.below(10) {
                0..4 => {
                    let losses = self.stage.network.losses(self.client);
                    let is_well = self.write(&opened, slot).await;
                    let is_disturbed = self.stage.network.losses(self.client) != losses;
                    is_well && (!is_disturbed || self.overwrite(&opened, slot).await)
                }
                4..8 => self.read(&opened, slot).await,
                8 => self.sync(&opened).await,
                _ => {
                    sleep(self.dice.millis(0, 3_000)).await;
                    true
                }
            };
            if !is_well {
                break;
            }
        }
        let Opened { file, .. } = opened;
        self.close(file).await;
    }

    /// Chooses a slot: half of the time the popular one.
    fn slot(&mut self) -> usize {
        let any = usize::try_from(self.dice.below(SLOTS as u64)).unwrap_or(0);
        if self.dice.percent(50) { 0 } else { any }
    }

    /// Reads one slot repeatedly, as a program that polls.
    async fn look_again(&mut self, opened: &Opened<'_>) {
        for _ in 0..self.dice.below(6) {
            if !self.read(opened, 0).await {
                return;
            }
            sleep(self.dice.millis(500, 4_000)).await;
        }
    }

    /// Writes a slot again and looks at it for a while: a late repetition of an earlier write must
    /// not come to light.
    async fn overwrite(&mut self, opened: &Opened<'_>, slot: usize) -> bool {
        if !self.write(opened, slot).await {
            return false;
        }
        for _ in 0..4 {
            sleep(self.dice.millis(50, 1_500)).await;
            if !self.read(opened, slot).await {
                return false;
            }
        }
        true
    }

    async fn write(&mut self, opened: &Opened<'_>, slot: usize) -> bool {
        let Opened { name, file, through, cache } = opened;
        let value = self.value();
        let stage = Arc::clone(&self.stage);
        {
            let mut judge = stage.judge.lock();
            let asked = judge.moment();
            if let Some(registers) = judge.registers.get_mut(*name) {
                registers.write(slot, value, asked);
            }
        }
        cache.0.lock().slots.remove(&slot);
        let data = content(value);
        let wrote = self
            .call(
                format_args!("write {name} slot {slot} {value:#x} through {through}"),
                &[],
                file.write_all_at(&data, (slot * SLOT) as u64),
            )
            .await;
        cache.0.lock().slots.remove(&slot);
        let end = match wrote.end() {
            // The server has written the slot but the sync failed, so a crash may still lose the
            // data.
            End::Not if *through => End::Unknown,
            end => end,
        };
        let mut judge = stage.judge.lock();
        let now = judge.moment();
        if let Some(registers) = judge.registers.get_mut(*name) {
            registers.wrote(slot, value, end, now);
            if *through && wrote.outcome.is_ok() {
                registers.synced(wrote.asked);
            }
        }
        if *through && wrote.outcome.is_ok() {
            judge.names_are_stable(wrote.asked);
        }
        !matches!(wrote.outcome, Err(Failed::Lost))
    }

    async fn read(&mut self, opened: &Opened<'_>, slot: usize) -> bool {
        let Opened { name, file, cache, .. } = opened;
        let leased = |file: &File| file.lease().contains(LeaseState::READ);
        let cached = cache.0.lock().slots.get(&slot).cloned().filter(|_| leased(file));
        let is_calm = self.stage.network.is_calm_since(self.client, NOTICED);
        if let (Some(cached), true) = (cached, is_calm) {
            event!(self.stage.trace, "a{} has {name} slot {slot} in its cache", self.id);
            let asked = self.stage.judge.lock().moment_before(STALE_MAX);
            self.saw(name, slot, &cached, asked);
            return true;
        }
        let breaks = cache.0.lock().breaks;
        let read = self
            .call(
                format_args!("read {name} slot {slot}"),
                &[Status::FILE_LOCK_CONFLICT],
                file.read_bytes((slot * SLOT) as u64, SLOT as u32),
            )
            .await;
        match read.outcome {
            Ok(found) => {
                self.saw(name, slot, &found, read.asked);
                let mut cached = cache.0.lock();
                if cached.breaks == breaks && leased(file) {
                    cached.slots.insert(slot, found.to_vec());
                }
                true
            }
            Err(Failed::Status(_)) => true,
            Err(Failed::Lost) => false,
        }
    }

    fn saw(&self, name: &str, slot: usize, found: &[u8], asked: Moment) {
        let mut judge = self.stage.judge.lock();
        let now = judge.moment();
        let Some(registers) = judge.registers.get_mut(name) else { return };
        if let Err(why) = registers.read(slot, found, asked, now) {
            drop(judge);
            violation!(self.stage.trace, "a{} read {name}: {why}", self.id);
        }
    }

    async fn sync(&mut self, opened: &Opened<'_>) -> bool {
        let Some(asked) = self.flush(&opened.file).await else { return false };
        if let Some(registers) = self.stage.judge.lock().registers.get_mut(opened.name) {
            registers.synced(asked);
        }
        true
    }
}
