//! The look at a registration of before, in which paths that did not answer then join it.
//!
//! A fence can come between the look and the joining. The disk would then have the key again that another node
//! believes to be gone. So paths join only if some are missing, the attempt is kept on this node's disk before it
//! begins, and paths that joined are taken out unless it is certain that nothing else has changed.

use super::commands::{Change, Registrations};
use super::{End, Keep, Registered, Target, change, first, read_keys, read_reservation, send};
use crate::fault::FenceFault;
use crate::limits::DISK_TRIES;

/// The paths that an attempt has changed.
#[derive(Debug)]
struct Joined<'a, T> {
    name: &'a str,
    key: u64,
    /// Paths that were not registered before.
    done: Vec<&'a T>,
    /// A path whose command has no end that is known.
    unsure: Option<&'a T>,
}

/// Sees that the disk has the registration, and registers those paths that did not answer before.
pub(super) fn look<T: Target>(
    name: &str,
    paths: &[T],
    own: &mut Registered,
    keep: Keep<'_>,
) -> Result<(), FenceFault> {
    let path = first(name, paths)?;
    let refused = || {
        Err(FenceFault(format!(
            "{name} refuses this node since another one took over, or has forgotten its registration; {}",
            own.life.renewal()
        )))
    };
    if own.is_joining {
        // The fault is the same if the disk keeps the key.
        _ = withdraw(name, paths, own.key);
        return refused();
    }
    let before = read_keys(name, path)?;
    if !before.has(own.key) {
        return refused();
    }
    if before.count(own.key) >= paths.len() {
        return Ok(());
    }
    keep(&Registered { is_joining: true, ..own.clone() })?;
    own.is_joining = true;
    let mut joined = Joined { name, key: own.key, done: Vec::new(), unsure: None };
    let end = joined.attempt(paths, &before);
    if end.is_err() {
        joined.undo(path)?;
    }
    own.is_joining = false;
    keep(own)?;
    end
}

impl<'a, T: Target> Joined<'a, T> {
    /// Registers the paths that are not. A fault if something else may have changed.
    fn attempt(&mut self, paths: &'a [T], before: &Registrations) -> Result<(), FenceFault> {
        let name = self.name;
        let changed = || {
            let text = format!(
                "the registrations of {name} have changed meanwhile; they are looked at again"
            );
            Err(FenceFault(text))
        };
        for path in paths {
            match self.join(path) {
                Ok(End::Done) => self.done.push(path),
                // REGISTRATIONS PREEMPTED and the like. The paths have told all changes of before already, when
                // they were asked for the keys.
                Ok(End::Attention) => return changed(),
                Ok(End::Busy) => return Err(FenceFault(format!("{name} does not come to rest"))),
                // A path that is registered conflicts.
                Ok(End::Conflict | End::Illegal) => {}
                Err(fault) => {
                    self.unsure = Some(path);
                    return Err(fault);
                }
            }
        }
        let after = read_keys(name, first(name, paths)?)?;
        let count = u32::try_from(self.done.len()).unwrap_or(u32::MAX);
        if after.has(self.key) && after.generation == before.generation.wrapping_add(count) {
            return Ok(());
        }
        changed()
    }

    fn join(&self, path: &T) -> Result<End, FenceFault> {
        let join = Change::Join { key: self.key };
        for _ in 0..DISK_TRIES {
            let end = match send(self.name, path, &join.bytes(true))? {
                End::Illegal => send(self.name, path, &join.bytes(false))?,
                end => end,
            };
            if end != End::Busy {
                return Ok(end);
            }
        }
        Ok(End::Busy)
    }

    /// Takes the new registrations away. They hold no reservation: a path that was not registered had none.
    fn undo(&self, path: &T) -> Result<(), FenceFault> {
        let parted = part_all(self.name, self.done.iter().copied(), self.key);
        if let Some(unsure) = self.unsure {
            unless_it_holds(self.name, path, self.key, || part(self.name, unsure, self.key))?;
        }
        parted
    }
}

/// Takes the key of a registration away that proves nothing.
fn withdraw<T: Target>(name: &str, paths: &[T], key: u64) -> Result<(), FenceFault> {
    unless_it_holds(name, first(name, paths)?, key, || part_all(name, paths.iter(), key))
}

/// Does an act, unless the key holds the reservation. The disk would release that with the registration and
/// take writes of everybody (SPC-4 5.12.11); and a fence of the key would have taken the reservation too.
fn unless_it_holds(
    name: &str,
    path: &impl Target,
    key: u64,
    act: impl FnOnce() -> Result<(), FenceFault>,
) -> Result<(), FenceFault> {
    match read_reservation(name, path)? {
        Some(reservation) if reservation.key == key => Ok(()),
        _ => act(),
    }
}

/// Takes the registrations of all these paths away, and tells the last fault.
fn part_all<'a, T: Target + 'a>(
    name: &str,
    paths: impl Iterator<Item = &'a T>,
    key: u64,
) -> Result<(), FenceFault> {
    let mut last = Ok(());
    for path in paths {
        if let Err(fault) = part(name, path, key) {
            last = Err(fault);
        }
    }
    last
}

/// Takes the registration of a path away. One that has another key or none conflicts.
fn part(name: &str, path: &impl Target, key: u64) -> Result<(), FenceFault> {
    match change(name, path, &Change::Part { key }.bytes(false))? {
        End::Done | End::Conflict => Ok(()),
        _ => Err(FenceFault(format!("{name} has the key {key:016x} still"))),
    }
}
