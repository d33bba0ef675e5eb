//! `scsi-pr`: persistent reservations of a disk that several machines reach (SPC-4 5.12).
//!
//! Each node registers with the disk with a key of its own, and one reserves it as "Write Exclusive -
//! Registrants Only". The disk then refuses writes of machines without a registration. PREEMPT AND ABORT
//! takes the registration of a key away and ends its commands.
//!
//! A node that lost its registration registers again only after its file system was mounted anew
//! ([`Life`]): pages of before would be written otherwise. A file on the node's own disk has its keys, so that
//! a process that starts anew knows that too. A disk has one registration of the node, so it has one file
//! system of the cluster: a second one would give the node a new key while the first one has pages of before.

mod commands;
mod disks;
mod join;
mod paths;
mod record;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use frevo_cluster::fence::Fence;
use frevo_posix::{ScsiData, ScsiEnd, send_scsi};
use parking_lot::Mutex;

use self::commands::{Ask, Change, Out, Registrations, WRITE_REGISTRANTS};
use self::paths::{Answers, Paths, Patience};
use self::record::Record;
use crate::fault::FenceFault;
use crate::host::{Boot, Life};
use crate::keys_file::KeysFile;
use crate::limits::{DISK_PATIENCE, DISK_TRIES, PATH_PATIENCE};

/// Statuses of SAM-5 5.3.
const GOOD: u8 = 0x00;
const CHECK_CONDITION: u8 = 0x02;
const BUSY: u8 = 0x08;
const RESERVATION_CONFLICT: u8 = 0x18;
/// Sense keys of SPC-4 4.5.6.
const ILLEGAL_REQUEST: u8 = 0x5;
const UNIT_ATTENTION: u8 = 0x6;

/// The time for paths: those that do not answer by then are left out, if there is another one.
const PATIENCE: Patience = Patience { first: DISK_PATIENCE, all: PATH_PATIENCE };

/// The keys with which this node has registered, by the names of the disks.
#[derive(Debug)]
pub(crate) struct Keys {
    own: Mutex<HashMap<String, Arc<Own>>>,
    paths: Paths,
    /// None where no disk is used.
    record: Option<Mutex<Record>>,
}

/// The registration with one disk. It is locked while the disk is asked, so that a disk that does not answer
/// holds up no other one.
type Own = Mutex<Option<Registered>>;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Registered {
    key: u64,
    /// The life of the file system at that time.
    life: Life,
    /// True while paths join the registration, and after an attempt whose end is not known: a fence may have
    /// come in between, so the registrations at the disk prove nothing.
    is_joining: bool,
}

/// The keeping of a registration for the next process.
type Keep<'a> = &'a mut dyn FnMut(&Registered) -> Result<(), FenceFault>;

/// The devices of the disk below the file system in which `folder` is.
pub(crate) fn disks_below(folder: &Path) -> Result<Vec<PathBuf>, FenceFault> {
    Ok(disks::below(folder)?.paths)
}

/// A path to a disk.
trait Target {
    fn send(&self, command: &[u8], data: ScsiData<'_>) -> io::Result<ScsiEnd>;
}

impl Target for File {
    fn send(&self, command: &[u8], data: ScsiData<'_>) -> io::Result<ScsiEnd> {
        send_scsi(self.as_fd(), command, data, DISK_PATIENCE)
    }
}

/// The end of a command that the disk understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Done,
    /// RESERVATION CONFLICT.
    Conflict,
    /// ILLEGAL REQUEST.
    Illegal,
    /// BUSY: the command had no effect.
    Busy,
    /// UNIT ATTENTION: something has changed at the disk, and the command had no effect.
    Attention,
}

impl Keys {
    /// Takes the registrations of the process before out of the file, where this one keeps its own.
    pub(crate) fn open(file: Option<&KeysFile>) -> Result<Self, FenceFault> {
        let record = file.map(Record::open).transpose()?;
        let kept = record.iter().flat_map(Record::kept);
        let own = kept.map(|(disk, own)| (disk.clone(), Arc::new(Mutex::new(Some(own.clone())))));
        let own = Mutex::new(own.collect());
        Ok(Self { own, paths: Paths::default(), record: record.map(Mutex::new) })
    }

    /// Sentences about the file, for the log.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.record.as_ref().map(|record| record.lock().warnings()).unwrap_or_default()
    }

    /// Registers with the disk below `folder`, once for each life of the file system.
    pub(crate) fn identity(&self, folder: &Path, boot: &Boot) -> Result<Fence, FenceFault> {
        let disk = disks::below(folder)?;
        let life = Life::of(folder, boot)?;
        let own = self.of(&disk.name);
        let mut own = own.lock();
        if let Some(before) = own.as_ref() {
            only_one(&disk.name, before, &life, || before.life.goes_on(boot))?;
        }
        let paths = self.ask(&disk.name, &disk.paths).all()?;
        let mut keep = |registered: &Registered| self.keep(&disk.name, registered);
        let key = register(&disk.name, &paths, &mut own, &life, &mut keep, random_key)?;
        Ok(Fence::ScsiPr { device: disk.name, key })
    }

    /// Keeps a registration in the file.
    fn keep(&self, disk: &str, registered: &Registered) -> Result<(), FenceFault> {
        self.record.as_ref().map_or(Ok(()), |record| record.lock().keep(disk, registered))
    }

    /// Takes the registration of `key` away.
    pub(crate) fn fence(&self, folder: &Path, device: &str, key: u64) -> Result<(), FenceFault> {
        let disk = disks::below(folder)?;
        if disk.name != device {
            return Err(FenceFault(format!(
                "{} is on {}, and the other node's storage on {device}",
                folder.display(),
                disk.name
            )));
        }
        // The lock is held until the end: a look that takes a path's registration away must not take the
        // reservation with it that the fence has got by this path.
        let own = self.of(device);
        let own = own.lock();
        let Some(own) = own.as_ref().map(|own| own.key) else {
            return Err(FenceFault(format!("this node is not registered with {device}")));
        };
        // One path that answers is enough.
        self.ask(device, &disk.paths).first(|path| preempt(device, &path, own, key))
    }

    /// The paths to a disk that answer.
    fn ask(&self, disk: &str, paths: &[PathBuf]) -> Answers<File> {
        let name = disk.to_owned();
        self.paths.ask(disk, paths, PATIENCE, move |path| {
            let file = File::options().read(true).write(true).open(path);
            let file = file.map_err(|error| FenceFault::of(path.display(), error))?;
            read_keys(&name, &file)?;
            Ok(file)
        })
    }

    fn of(&self, disk: &str) -> Arc<Own> {
        Arc::clone(self.own.lock().entry(disk.to_owned()).or_default())
    }
}

/// A key that no other node has.
fn random_key() -> Result<u64, FenceFault> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| FenceFault::of("random bytes", error))?;
    // Zero means "no key".
    Ok(u64::from_ne_bytes(bytes).max(1))
}

/// A fault if another file system of the disk is registered and goes on.
fn only_one(
    name: &str,
    before: &Registered,
    life: &Life,
    goes_on: impl FnOnce() -> Result<bool, FenceFault>,
) -> Result<(), FenceFault> {
    if before.life.device == life.device || !goes_on()? {
        return Ok(());
    }
    let Life { device, .. } = life;
    let other = before.life.device;
    Err(FenceFault(format!(
        "`fence = \"scsi-pr\"` takes one file system of each disk, and {name} has two that this machine \
         uses, on the devices {other} and {device}; put all shares on one of them. If the other one is not \
         used any more, {}",
        before.life.renewal()
    )))
}

/// Registers on all of these paths, and sees to the reservation. Returns the key.
fn register<T: Target>(
    name: &str,
    paths: &[T],
    own: &mut Option<Registered>,
    life: &Life,
    keep: Keep<'_>,
    new_key: impl FnOnce() -> Result<u64, FenceFault>,
) -> Result<u64, FenceFault> {
    if let Some(own) = own.as_mut().filter(|own| own.life.is_same(life)) {
        join::look(name, paths, own, keep)?;
        if own.life.folder == 0 {
            own.life.folder = life.folder;
        }
        keep(own)?;
        return Ok(own.key);
    }
    let key = new_key()?;
    let path = first(name, paths)?;
    for path in paths {
        if change_lasting(name, path, |lasts| Change::Register { key }.bytes(lasts))? != End::Done {
            return Err(FenceFault(format!("{name} takes no persistent reservations")));
        }
    }
    reserve(name, path, key)?;
    // A path that does not answer now can have the key of the life before, and would write with it after a
    // fence of the new one.
    if let Some(before) = own.as_ref() {
        preempt(name, path, key, before.key)?;
    }
    // Nobody knows the key before it is on this node's disk.
    keep(own.insert(Registered { key, life: life.clone(), is_joining: false }))?;
    Ok(key)
}

fn first<'a, T>(name: &str, paths: &'a [T]) -> Result<&'a T, FenceFault> {
    paths.first().ok_or_else(|| FenceFault(format!("{name} has no path")))
}

/// Makes the reservation, unless there is one of its kind.
fn reserve(name: &str, path: &impl Target, own: u64) -> Result<(), FenceFault> {
    let other_kind = || FenceFault(format!("{name} has a persistent reservation of another kind"));
    if let Some(reservation) = read_reservation(name, path)? {
        return if reservation.kind == WRITE_REGISTRANTS { Ok(()) } else { Err(other_kind()) };
    }
    match change(name, path, &Change::Reserve { own }.bytes(true))? {
        End::Done => Ok(()),
        // Another node was faster.
        _ => match read_reservation(name, path)? {
            Some(reservation) if reservation.kind == WRITE_REGISTRANTS => Ok(()),
            _ => Err(other_kind()),
        },
    }
}

/// Takes a registration away, and sees that it has gone and that the disk refuses others.
fn preempt(name: &str, path: &impl Target, own: u64, other: u64) -> Result<(), FenceFault> {
    if own == other {
        return Err(FenceFault(format!("the key {other:016x} of {name} is this node's own")));
    }
    let preempt = Change::PreemptAndAbort { own, other }.bytes(true);
    if read_keys(name, path)?.has(other) && change(name, path, &preempt)? != End::Done {
        return Err(FenceFault(format!("{name} refuses this node: it is registered no longer")));
    }
    if read_keys(name, path)?.has(other) {
        return Err(FenceFault(format!("{name} has the key {other:016x} still")));
    }
    reserve(name, path, own)
}

fn read_keys(name: &str, path: &impl Target) -> Result<Registrations, FenceFault> {
    let answer = ask(name, path, Ask::ReadKeys)?;
    commands::registrations(&answer).ok_or_else(|| FenceFault(format!("{name} tells no keys")))
}

fn read_reservation(
    name: &str,
    path: &impl Target,
) -> Result<Option<commands::Reservation>, FenceFault> {
    let answer = ask(name, path, Ask::ReadReservation)?;
    commands::reservation(&answer).ok_or_else(|| FenceFault(format!("{name} tells no reservation")))
}

fn ask(name: &str, path: &impl Target, ask: Ask) -> Result<Vec<u8>, FenceFault> {
    let command = ask.command();
    for _ in 0..DISK_TRIES {
        let mut room = vec![0; ask.room()];
        let sent = path.send(&command, ScsiData::In(&mut room));
        let end = sent.map_err(|error| FenceFault::of(name, error))?;
        match judge(name, &end)? {
            End::Done => {
                room.truncate(end.length);
                return Ok(room);
            }
            End::Busy | End::Attention => {}
            End::Conflict | End::Illegal => {
                return Err(FenceFault(format!("{name} takes no persistent reservations")));
            }
        }
    }
    Err(FenceFault(format!("{name} does not come to rest")))
}

/// Sends a registration that outlives a loss of power, or one that does not if the disk forgets all of them.
fn change_lasting(
    name: &str,
    path: &impl Target,
    bytes: impl Fn(bool) -> Out,
) -> Result<End, FenceFault> {
    match change(name, path, &bytes(true))? {
        End::Illegal => change(name, path, &bytes(false)),
        end => Ok(end),
    }
}

/// Sends a change until the disk does not tell another one first.
fn change(name: &str, path: &impl Target, out: &Out) -> Result<End, FenceFault> {
    for _ in 0..DISK_TRIES {
        match send(name, path, out)? {
            End::Busy | End::Attention => {}
            end => return Ok(end),
        }
    }
    Err(FenceFault(format!("{name} does not come to rest")))
}

fn send(name: &str, path: &impl Target, out: &Out) -> Result<End, FenceFault> {
    let sent = path.send(&out.command, ScsiData::Out(&out.list));
    judge(name, &sent.map_err(|error| FenceFault::of(name, error))?)
}

fn judge(name: &str, end: &ScsiEnd) -> Result<End, FenceFault> {
    match (end.status, commands::sense_key(&end.sense)) {
        (GOOD, _) => Ok(End::Done),
        (RESERVATION_CONFLICT, _) => Ok(End::Conflict),
        (CHECK_CONDITION, Some(ILLEGAL_REQUEST)) => Ok(End::Illegal),
        (CHECK_CONDITION, Some(UNIT_ATTENTION)) => Ok(End::Attention),
        (BUSY, _) => Ok(End::Busy),
        (status, key) => Err(FenceFault(format!(
            "{name} answers with status {status:#04x}, sense key {:#x}",
            key.unwrap_or_default()
        ))),
    }
}

#[cfg(test)]
mod tests;
