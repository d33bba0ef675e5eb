//! `scsi-pr`: persistent reservations of a disk that several machines reach (SPC-4 5.12).
//!
//! Each node registers with the disk with a key of its own, and one reserves it as "Write Exclusive -
//! Registrants Only". The disk then refuses writes of machines without a registration. PREEMPT AND ABORT
//! takes the registration of a key away and ends its commands.
//!
//! A node that lost its registration registers again only after its file system was mounted anew: pages
//! of before would be written otherwise.

mod commands;
mod disks;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use frevo_cluster::fence::Fence;
use frevo_posix::{ScsiData, ScsiEnd, send_scsi};
use parking_lot::Mutex;

use crate::fault::FenceFault;
use crate::limits::{DISK_PATIENCE, DISK_TRIES};
use crate::mounts::Mount;
use commands::{Ask, Change, WRITE_REGISTRANTS};

/// Statuses of SAM-5 5.3.
const GOOD: u8 = 0x00;
const CHECK_CONDITION: u8 = 0x02;
const BUSY: u8 = 0x08;
const RESERVATION_CONFLICT: u8 = 0x18;
/// Sense keys of SPC-4 4.5.6.
const ILLEGAL_REQUEST: u8 = 0x5;
const UNIT_ATTENTION: u8 = 0x6;

/// The keys with which this process has registered, by the names of the disks.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    own: Mutex<HashMap<String, Arc<Own>>>,
}

/// The registration with one disk. It is locked while the disk is asked, so that a disk that does not answer
/// holds up no other one.
type Own = Mutex<Option<Registered>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Registered {
    key: u64,
    /// The mount at that time.
    mount: u64,
}

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

/// The end of a change that the disk understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Done,
    /// RESERVATION CONFLICT.
    Conflict,
    /// ILLEGAL REQUEST.
    Illegal,
}

impl Keys {
    /// Registers with the disk below `folder`, once for each mount.
    pub(crate) fn identity(&self, folder: &Path) -> Result<Fence, FenceFault> {
        let disk = disks::below(folder)?;
        let mount = Mount::of(folder)?.id;
        let paths = open(&disk.paths)?;
        let own = self.of(&disk.name);
        let mut own = own.lock();
        let key = register(&disk.name, &paths, *own, mount, random_key)?;
        *own = Some(Registered { key, mount });
        drop(own);
        Ok(Fence::ScsiPr { device: disk.name, key })
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
        let Some(Registered { key: own, .. }) = *self.of(device).lock() else {
            return Err(FenceFault(format!("this node is not registered with {device}")));
        };
        // One path that answers is enough.
        first_of(&disk.paths, device, |path| preempt(device, &open_path(path)?, own, key))
    }

    fn of(&self, disk: &str) -> Arc<Own> {
        Arc::clone(self.own.lock().entry(disk.to_owned()).or_default())
    }
}

fn open(paths: &[PathBuf]) -> Result<Vec<File>, FenceFault> {
    paths.iter().map(|path| open_path(path)).collect()
}

fn open_path(path: &Path) -> Result<File, FenceFault> {
    let file = File::options().read(true).write(true).open(path);
    file.map_err(|error| FenceFault::of(path.display(), error))
}

/// Does an act by the first path to a disk by which it succeeds.
fn first_of<T>(
    paths: &[T],
    name: &str,
    mut act: impl FnMut(&T) -> Result<(), FenceFault>,
) -> Result<(), FenceFault> {
    let mut end = Err(FenceFault(format!("{name} has no path")));
    for path in paths {
        end = act(path);
        if end.is_ok() {
            break;
        }
    }
    end
}

/// A key that no other node has.
fn random_key() -> Result<u64, FenceFault> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| FenceFault::of("random bytes", error))?;
    // Zero means "no key".
    Ok(u64::from_ne_bytes(bytes).max(1))
}

/// Registers on all paths, and sees to the reservation. Returns the key.
fn register<T: Target>(
    name: &str,
    paths: &[T],
    before: Option<Registered>,
    mount: u64,
    new_key: impl FnOnce() -> Result<u64, FenceFault>,
) -> Result<u64, FenceFault> {
    let Some(first) = paths.first() else {
        return Err(FenceFault(format!("{name} has no path")));
    };
    if let Some(before) = before.filter(|before| before.mount == mount) {
        if read_keys(name, first)?.contains(&before.key) {
            return Ok(before.key);
        }
        return Err(FenceFault(format!(
            "{name} refuses this node since another one took over; unmount its file system, and mount it \
             again"
        )));
    }
    let key = new_key()?;
    for path in paths {
        let mut end = change(name, path, Change::Register { key }, true)?;
        if end == End::Illegal {
            // The disk forgets registrations with its power.
            end = change(name, path, Change::Register { key }, false)?;
        }
        if end != End::Done {
            return Err(FenceFault(format!("{name} takes no persistent reservations")));
        }
    }
    reserve(name, first, key)?;
    Ok(key)
}

/// Makes the reservation, unless there is one of its kind.
fn reserve(name: &str, path: &impl Target, own: u64) -> Result<(), FenceFault> {
    let other_kind = || FenceFault(format!("{name} has a persistent reservation of another kind"));
    if let Some(reservation) = read_reservation(name, path)? {
        return if reservation.kind == WRITE_REGISTRANTS { Ok(()) } else { Err(other_kind()) };
    }
    match change(name, path, Change::Reserve { own }, true)? {
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
    if read_keys(name, path)?.contains(&other)
        && change(name, path, Change::PreemptAndAbort { own, other }, true)? != End::Done
    {
        return Err(FenceFault(format!("{name} refuses this node: it is registered no longer")));
    }
    if read_keys(name, path)?.contains(&other) {
        return Err(FenceFault(format!("{name} has the key {other:016x} still")));
    }
    reserve(name, path, own)
}

fn read_keys(name: &str, path: &impl Target) -> Result<Vec<u64>, FenceFault> {
    let answer = ask(name, path, Ask::ReadKeys)?;
    commands::keys(&answer).ok_or_else(|| FenceFault(format!("{name} tells no keys")))
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
            Some(End::Done) => {
                room.truncate(end.length);
                return Ok(room);
            }
            Some(_) => return Err(FenceFault(format!("{name} takes no persistent reservations"))),
            None => {}
        }
    }
    Err(FenceFault(format!("{name} does not come to rest")))
}

fn change(name: &str, path: &impl Target, change: Change, lasts: bool) -> Result<End, FenceFault> {
    let out = change.bytes(lasts);
    for _ in 0..DISK_TRIES {
        let sent = path.send(&out.command, ScsiData::Out(&out.list));
        let end = sent.map_err(|error| FenceFault::of(name, error))?;
        if let Some(end) = judge(name, &end)? {
            return Ok(end);
        }
    }
    Err(FenceFault(format!("{name} does not come to rest")))
}

/// None if the command is to be sent again.
fn judge(name: &str, end: &ScsiEnd) -> Result<Option<End>, FenceFault> {
    match (end.status, commands::sense_key(&end.sense)) {
        (GOOD, _) => Ok(Some(End::Done)),
        (RESERVATION_CONFLICT, _) => Ok(Some(End::Conflict)),
        (CHECK_CONDITION, Some(ILLEGAL_REQUEST)) => Ok(Some(End::Illegal)),
        (CHECK_CONDITION, Some(UNIT_ATTENTION)) | (BUSY, _) => Ok(None),
        (status, key) => Err(FenceFault(format!(
            "{name} answers with status {status:#04x}, sense key {:#x}",
            key.unwrap_or_default()
        ))),
    }
}

#[cfg(test)]
mod tests;
