//! The sets of shadow copies of a server, MS-FSRVP 3.1.1, and what calls and time do with them.
//!
//! One set at a time is on its way, from StartShadowCopySet to its recovery (MS-FSRVP 3.1.4.3). The Message
//! Sequence Timer belongs to it. Times are those of the caller's clock, which only has to run.

use super::left::{LeftCopies, LeftCopy};
use super::{Context, HResult, Reply, ShareMapping, share_of};
use crate::limits::{
    FSRVP_LONG_TIMER, FSRVP_RETRIES, FSRVP_SETS_PER_ACCOUNT, FSRVP_SHORT_TIMER, MAX_FSRVP_COPIES,
    MAX_FSRVP_SETS,
};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;
use frevo_wire::dtyp::{FileTime, Guid};
use frevo_wire::fscc::eq_ignore_case;

/// ShadowCopySet.Status, MS-FSRVP 3.1.1.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// "Started"
    Started,
    /// "Added"
    Added,
    /// "CreationInProgress"
    CreationInProgress,
    /// "Committed"
    Committed,
    /// "Exposed"
    Exposed,
    /// "Recovered"
    Recovered,
}

/// A shadow copy of one share: ShadowCopy and its MappedShare, MS-FSRVP 3.1.1.3 and 3.1.1.4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copy {
    pub(super) id: Guid,
    /// MappedShare.ShareName, as the client has written it.
    pub(super) share_unc: String,
    /// The name of the share on this server.
    pub(super) share: String,
    /// VolumeName
    pub(super) volume: String,
    pub(super) created: FileTime,
    /// The second since 1970 by which its snapshot is known. None before it is made.
    pub(super) taken: Option<u64>,
    /// IsExposed
    pub(super) is_exposed: bool,
}

/// A set, MS-FSRVP 3.1.1.2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) id: Guid,
    /// The account that has started it.
    pub(super) owner: String,
    pub(super) status: Status,
    pub(super) context: Context,
    pub(super) copies: Vec<Copy>,
}

/// The Message Sequence Timer, MS-FSRVP 3.1.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timer {
    pub(super) due: Duration,
    pub(super) length: Duration,
}

/// The context that a client has set, MS-FSRVP 3.1.1.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Current {
    context: Context,
    /// ShadowCopyClientAddress
    client: IpAddr,
}

/// A snapshot: its share, and the second since 1970 by which it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The name of the share.
    pub share: String,
    /// The second since 1970.
    pub taken: u64,
}

/// A share that serves a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposure {
    /// Its name, `share@{GUID}`.
    pub name: String,
    /// The snapshot.
    pub snapshot: Snapshot,
}

/// A copy with its set, for administrators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedCopy {
    /// ShadowCopySetId
    pub set: Guid,
    /// The name of the account that has begun the set.
    pub owner: String,
    /// The name of the share that serves it, or is to.
    pub name: String,
    /// The snapshot.
    pub snapshot: Snapshot,
}

/// A snapshot that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// ShadowCopyId
    pub copy: Guid,
    /// The name of the share.
    pub share: String,
}

/// A copy that AddToShadowCopySet adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCopy {
    /// The new ShadowCopyId, which is random.
    pub id: Guid,
    /// ShareName, in UNC format.
    pub share_unc: String,
    /// The name of the share on this server.
    pub share: String,
    /// VolumeName: the store of the share.
    pub volume: String,
    /// CreationTimeStamp
    pub created: FileTime,
}

/// The things that end with a set, or with one of its copies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removal {
    /// Names of shares that serve its snapshots.
    pub shares: Vec<String>,
    /// Snapshots to be removed.
    pub snapshots: Vec<Snapshot>,
    /// Copies that stay, and are thinned as the server's other snapshots from now on.
    pub released: Vec<LeftCopy>,
}

/// The outcome of SetContext.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextSet {
    /// The context is set, or the return value of a call that fails.
    pub result: Result<(), HResult>,
    /// Things that end with the set that the client has left behind, also when the call fails.
    pub removal: Removal,
}

/// All sets: GlobalShadowCopySetTable and the other global state, MS-FSRVP 3.1.1.1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShadowCopySets {
    pub(super) sets: Vec<Set>,
    pub(super) current: Option<Current>,
    /// ShadowCopyClientRetryCount
    pub(super) retries: u32,
    pub(super) timer: Option<Timer>,
    /// The set that the timer has ended last.
    pub(super) expired: Option<Guid>,
    /// The copies that clients have left behind.
    pub(super) left: LeftCopies,
}

impl Copy {
    /// The name of the share that serves it, MS-FSRVP 3.1.4.6: with the name of its share as the client has
    /// written it. Note 9: that of a hidden share ends in a dollar.
    fn exposed_name(&self) -> String {
        let share = share_of(&self.share_unc).unwrap_or(&self.share);
        let end = if share.ends_with('$') { "$" } else { "" };
        format!("{share}@{{{}}}{end}", self.id)
    }

    fn snapshot(&self) -> Option<Snapshot> {
        Some(Snapshot { share: self.share.clone(), taken: self.taken? })
    }

    fn is_of(&self, share_unc: &str) -> bool {
        match (share_of(&self.share_unc), share_of(share_unc)) {
            (Some(ours), Some(theirs)) => eq_ignore_case(ours, theirs),
            _ => false,
        }
    }
}

impl Set {
    fn removal(&self) -> Removal {
        let exposed = self.copies.iter().filter(|copy| copy.is_exposed);
        Removal {
            shares: exposed.map(Copy::exposed_name).collect(),
            snapshots: self.copies.iter().filter_map(Copy::snapshot).collect(),
            ..Removal::default()
        }
    }
}

impl ShadowCopySets {
    fn set(&self, id: Guid) -> Result<&Set, HResult> {
        let found = self.sets.iter().find(|set| set.id == id);
        found.ok_or_else(|| self.unknown(id))
    }

    fn set_mut(&mut self, id: Guid) -> Result<&mut Set, HResult> {
        let unknown = self.unknown(id);
        self.sets.iter_mut().find(|set| set.id == id).ok_or(unknown)
    }

    /// The answer for a set that is not there. Deviation: MS-FSRVP 3.1.4.4 to 3.1.4.13 have
    /// FSRVP_E_SHADOWCOPYSET_ID_MISMATCH also for one that the timer has ended, for which smbtorture's
    /// rpc.fsrvp expects E_INVALIDARG.
    fn unknown(&self, id: Guid) -> HResult {
        let is_bad = id == Guid::default() || self.expired == Some(id);
        if is_bad { HResult::INVALID_ARGUMENT } else { HResult::SHADOWCOPYSET_ID_MISMATCH }
    }

    /// The set that is not recovered yet: one at most.
    fn unfinished(&self) -> Option<usize> {
        self.sets.iter().position(|set| set.status != Status::Recovered)
    }

    fn begin_timer(&mut self, length: Duration, now: Duration) {
        self.timer = Some(Timer { due: now.saturating_add(length), length });
    }

    fn forget_context(&mut self) {
        self.current = None;
        self.timer = None;
    }

    fn remove_unfinished(&mut self) -> Option<Set> {
        self.unfinished().map(|at| self.sets.swap_remove(at))
    }

    /// SetContext, MS-FSRVP 3.1.4.2.
    pub fn set_context(&mut self, context: Context, client: IpAddr, now: Duration) -> ContextSet {
        let mut removal = Removal::default();
        let result = self.try_context(context, client, &mut removal);
        if result.is_ok() {
            self.current = Some(Current { context, client });
            self.begin_timer(FSRVP_SHORT_TIMER, now);
        }
        ContextSet { result, removal }
    }

    fn try_context(
        &mut self,
        context: Context,
        client: IpAddr,
        removal: &mut Removal,
    ) -> Result<(), HResult> {
        if !context.is_valid() {
            return Err(HResult::UNSUPPORTED_CONTEXT);
        }
        match &self.current {
            Some(current) if current.client != client => Err(HResult::SHADOW_COPY_SET_IN_PROGRESS),
            Some(_) => {
                if let Some(set) = self.remove_unfinished() {
                    *removal = set.removal();
                    // Exposed snapshots are whole: the client may have copied from them. They stay.
                    if set.status == Status::Exposed {
                        let left = core::mem::take(&mut removal.snapshots).into_iter();
                        let left =
                            left.map(|snapshot| LeftCopy { owner: set.owner.clone(), snapshot });
                        removal.released = left.collect();
                    }
                }
                self.forget_context();
                self.retries = self.retries.saturating_add(1);
                match self.retries > FSRVP_RETRIES {
                    true => Err(HResult::SHADOW_COPY_SET_IN_PROGRESS),
                    false => Ok(()),
                }
            }
            None => {
                self.retries = 0;
                Ok(())
            }
        }
    }

    /// StartShadowCopySet, MS-FSRVP 3.1.4.3. `id` is the new ShadowCopySetId, which is random.
    ///
    /// # Errors
    /// The return value of a call that fails.
    pub fn start(
        &mut self,
        client_set: Guid,
        id: Guid,
        owner: &str,
        now: Duration,
    ) -> Result<Reply, HResult> {
        // MS-FSRVP 3.1.4.3 note 7.
        if client_set == Guid::default() {
            return Err(HResult::INVALID_ARGUMENT);
        }
        let Some(current) = &self.current else { return Err(HResult::BAD_STATE) };
        if self.unfinished().is_some() {
            return Err(HResult::SHADOW_COPY_SET_IN_PROGRESS);
        }
        let of_owner = self.sets.iter().filter(|set| eq_ignore_case(&set.owner, owner)).count();
        if self.sets.len() >= MAX_FSRVP_SETS || of_owner >= FSRVP_SETS_PER_ACCOUNT {
            return Err(HResult::OUT_OF_MEMORY);
        }
        self.sets.push(Set {
            id,
            owner: owner.to_string(),
            status: Status::Started,
            context: current.context,
            copies: Vec::new(),
        });
        self.begin_timer(FSRVP_SHORT_TIMER, now);
        Ok(Reply::Id(id))
    }

    /// AddToShadowCopySet, MS-FSRVP 3.1.4.4, of a share that is there and has snapshots.
    ///
    /// # Errors
    /// The return value of a call that fails.
    pub fn add(&mut self, set: Guid, new: NewCopy, now: Duration) -> Result<Reply, HResult> {
        let found = self.set_mut(set)?;
        if !matches!(found.status, Status::Started | Status::Added) {
            return Err(HResult::BAD_STATE);
        }
        if found.copies.iter().any(|copy| copy.volume == new.volume) {
            self.begin_timer(FSRVP_SHORT_TIMER, now);
            return Err(HResult::OBJECT_ALREADY_EXISTS);
        }
        if found.copies.len() >= MAX_FSRVP_COPIES {
            return Err(HResult::OUT_OF_MEMORY);
        }
        let NewCopy { id, share_unc, share, volume, created } = new;
        let (taken, is_exposed) = (None, false);
        found.copies.push(Copy { id, share_unc, share, volume, created, taken, is_exposed });
        found.status = Status::Added;
        self.begin_timer(FSRVP_LONG_TIMER, now);
        Ok(Reply::Id(id))
    }

    /// PrepareShadowCopySet, MS-FSRVP 3.1.4.13. There is nothing to prepare.
    ///
    /// # Errors
    /// The return value of a call that fails.
    pub fn prepare(&mut self, set: Guid, now: Duration) -> Result<Reply, HResult> {
        self.expect(set, Status::Added)?;
        self.begin_timer(FSRVP_LONG_TIMER, now);
        Ok(Reply::Done)
    }

    fn expect(&mut self, set: Guid, status: Status) -> Result<&mut Set, HResult> {
        let set = self.set_mut(set)?;
        if set.status == status { Ok(set) } else { Err(HResult::BAD_STATE) }
    }

    /// CommitShadowCopySet, MS-FSRVP 3.1.4.5: begins to make snapshots. None if they are being made already.
    ///
    /// # Errors
    /// The return value of a call that fails.
    pub fn begin_commit(&mut self, set: Guid) -> Result<Option<Vec<Wanted>>, HResult> {
        let found = self.set_mut(set)?;
        let wanted = match found.status {
            Status::Added => {
                found.status = Status::CreationInProgress;
                let of = |copy: &Copy| Wanted { copy: copy.id, share: copy.share.clone() };
                Some(found.copies.iter().map(of).collect())
            }
            Status::CreationInProgress => None,
            _ => return Err(HResult::BAD_STATE),
        };
        self.timer = None;
        Ok(wanted)
    }

    /// Notes the end of the making of snapshots: the second of each copy in `made`, in the order of
    /// [`Self::begin_commit`], or the fault, after which the set can be committed again. False if the set has
    /// ended meanwhile: then the snapshots are to be removed.
    pub fn end_commit(&mut self, set: Guid, made: Result<&[u64], HResult>, now: Duration) -> bool {
        let Ok(found) = self.expect(set, Status::CreationInProgress) else { return false };
        match made {
            Ok(made) if made.len() == found.copies.len() => {
                for (copy, taken) in found.copies.iter_mut().zip(made) {
                    copy.taken = Some(*taken);
                }
                found.status = Status::Committed;
            }
            _ => found.status = Status::Added,
        }
        self.begin_timer(FSRVP_SHORT_TIMER, now);
        true
    }

    /// Begins the timer when a call has waited as long as its client wants, if the set is still on its way.
    pub fn end_wait(&mut self, set: Guid, now: Duration) {
        let is_on_its_way = |status: Status| status != Status::Recovered;
        if self.status(set).is_some_and(is_on_its_way) {
            self.begin_timer(FSRVP_SHORT_TIMER, now);
        }
    }

    /// ExposeShadowCopySet, MS-FSRVP 3.1.4.6. Returns the shares that are to serve the snapshots.
    ///
    /// # Errors
    /// The return value of a call that fails.
    pub fn begin_expose(&mut self, set: Guid) -> Result<Vec<Exposure>, HResult> {
        let found = self.expect(set, Status::Committed)?;
        let of =
            |copy: &Copy| Some(Exposure { name: copy.exposed_name(), snapshot: copy.snapshot()? });
        let exposures = found.copies.iter().filter_map(of).collect();
        self.timer = None;
        Ok(exposures)
    }

    /// Notes that the shares serve the snapshots, or that they do not. False if the set has ended meanwhile.
    pub fn end_expose(&mut self, set: Guid, is_done: bool, now: Duration) -> bool {
        let Ok(found) = self.expect(set, Status::Committed) else { return false };
        if is_done {
            found.status = Status::Exposed;
            found.copies.iter_mut().for_each(|copy| copy.is_exposed = true);
        }
        self.begin_timer(FSRVP_SHORT_TIMER, now);
        true
    }

    /// RecoveryCompleteShadowCopySet, MS-FSRVP 3.1.4.7. The snapshots are read-only already.
    ///
    /// # Errors
    /// The return value of a call that fails.
    pub fn complete_recovery(&mut self, set: Guid) -> Result<Reply, HResult> {
        self.expect(set, Status::Exposed)?.status = Status::Recovered;
        self.forget_context();
        Ok(Reply::Done)
    }

    /// AbortShadowCopySet, MS-FSRVP 3.1.4.8. A set that is recovered is whole: its copies are deleted one by
    /// one.
    ///
    /// # Errors
    /// The return value of a call that fails.
    pub fn abort(&mut self, set: Guid) -> Result<Removal, HResult> {
        if self.set(set)?.status == Status::Recovered {
            return Err(HResult::BAD_STATE);
        }
        self.forget_context();
        Ok(self.remove_unfinished().map(|set| set.removal()).unwrap_or_default())
    }

    /// IsPathShadowCopied, MS-FSRVP 3.1.4.10, of a store.
    pub fn is_shadow_copied(&self, volume: &str) -> Reply {
        let is_whole = |set: &&Set| {
            matches!(set.status, Status::Committed | Status::Exposed | Status::Recovered)
        };
        let mut copies = self.sets.iter().filter(is_whole).flat_map(|set| &set.copies);
        let is_present = copies.any(|copy| copy.volume == volume);
        // Nothing is switched off for the sake of a snapshot.
        Reply::ShadowCopied { is_present, compatibility: 0 }
    }

    /// GetShareMapping, MS-FSRVP 3.1.4.11.
    ///
    /// # Errors
    /// The return value of a call that fails.
    pub fn mapping(
        &mut self,
        set: Guid,
        copy: Guid,
        share_unc: &str,
        level: u32,
        now: Duration,
    ) -> Result<Reply, HResult> {
        if level != 1 {
            return Err(HResult::INVALID_ARGUMENT);
        }
        let found = self.set(set)?;
        let is_recovered = match found.status {
            Status::Exposed => false,
            // Windows: MS-FSRVP 3.1.4.11 note 10.
            Status::Recovered => true,
            _ => return Err(HResult::BAD_STATE),
        };
        let is_it = |known: &&Copy| known.id == copy && known.is_of(share_unc);
        let found = found.copies.iter().find(is_it).ok_or(HResult::INVALID_ARGUMENT)?;
        let mapping = ShareMapping {
            set,
            copy,
            share_unc: found.share_unc.clone(),
            shadow_copy_share: found.is_exposed.then(|| found.exposed_name()),
            created: found.created,
        };
        if !is_recovered {
            self.begin_timer(FSRVP_LONG_TIMER, now);
        }
        Ok(Reply::Mapping(mapping))
    }

    /// DeleteShareMapping, MS-FSRVP 3.1.4.12. Returns what ends with the copy.
    ///
    /// # Errors
    /// The return value of a call that fails.
    pub fn delete(&mut self, set: Guid, copy: Guid, share_unc: &str) -> Result<Removal, HResult> {
        if [set, copy].contains(&Guid::default()) || share_unc.is_empty() {
            return Err(HResult::INVALID_ARGUMENT);
        }
        let at = self.sets.iter().position(|known| known.id == set);
        let found = at.and_then(|at| self.sets.get_mut(at)).ok_or(HResult::OBJECT_NOT_FOUND)?;
        if !matches!(found.status, Status::Exposed | Status::Recovered) {
            return Err(HResult::BAD_STATE);
        }
        // Deviation: MS-FSRVP 3.1.4.12 has FSRVP_E_OBJECT_NOT_FOUND, smbtorture's rpc.fsrvp expects this.
        let known = found.copies.iter().position(|known| known.id == copy);
        let known = known.ok_or(HResult::INVALID_ARGUMENT)?;
        if !found.copies.get(known).is_some_and(|copy| copy.is_of(share_unc)) {
            return Err(HResult::OBJECT_NOT_FOUND);
        }
        let gone = found.copies.swap_remove(known);
        let (is_last, is_unfinished) = (found.copies.is_empty(), found.status != Status::Recovered);
        if is_last {
            self.sets.retain(|known| known.id != set);
            if is_unfinished {
                // No set is on its way any more: nobody waits for this client.
                self.forget_context();
            }
        }
        Ok(Removal {
            shares: gone.is_exposed.then(|| gone.exposed_name()).into_iter().collect(),
            snapshots: gone.snapshot().into_iter().collect(),
            ..Removal::default()
        })
    }

    /// The time at which the timer elapses. None while it does not run.
    pub fn due(&self) -> Option<Duration> {
        self.timer.map(|timer| timer.due)
    }

    /// Ends the set on its way if the timer has elapsed, MS-FSRVP 3.1.5. Returns what ends with it.
    pub fn elapse(&mut self, now: Duration) -> Option<Removal> {
        self.timer.filter(|timer| timer.due <= now)?;
        self.forget_context();
        let set = self.remove_unfinished();
        self.expired = set.as_ref().map(|set| set.id).or(self.expired);
        Some(set.map(|set| set.removal()).unwrap_or_default())
    }

    /// Remembers a released copy of a share that no schedule thins.
    pub fn leave(&mut self, copy: LeftCopy) {
        self.left.add(copy);
    }

    /// Returns the snapshots of such copies that are to be removed, because there are too many.
    pub fn surplus_left(&self) -> Vec<Snapshot> {
        self.left.surplus()
    }

    /// Forgets such a copy, whose snapshot is removed.
    pub fn forget_left(&mut self, snapshot: &Snapshot) {
        self.left.0.retain(|copy| copy.snapshot != *snapshot);
    }

    /// The snapshots of all sets: nobody else removes them.
    pub fn snapshots(&self) -> impl Iterator<Item = Snapshot> {
        self.sets.iter().flat_map(|set| &set.copies).filter_map(Copy::snapshot)
    }

    /// The copies that have snapshots, with their sets.
    pub fn listed(&self) -> impl Iterator<Item = ListedCopy> {
        let of = |set: &Set| {
            let (id, owner) = (set.id, set.owner.clone());
            let listed = set.copies.iter().filter_map(move |copy| {
                let (name, snapshot) = (copy.exposed_name(), copy.snapshot()?);
                Some(ListedCopy { set: id, owner: owner.clone(), name, snapshot })
            });
            listed.collect::<Vec<_>>()
        };
        self.sets.iter().flat_map(of)
    }

    /// The shares that serve snapshots.
    pub fn exposures(&self) -> impl Iterator<Item = Exposure> {
        let exposed = self.sets.iter().flat_map(|set| &set.copies).filter(|copy| copy.is_exposed);
        exposed.filter_map(|copy| {
            Some(Exposure { name: copy.exposed_name(), snapshot: copy.snapshot()? })
        })
    }

    /// Returns the status of a set. None for one that there is not.
    pub fn status(&self, set: Guid) -> Option<Status> {
        self.set(set).ok().map(|set| set.status)
    }

    /// Returns the number of snapshots that clients have left behind.
    pub const fn left_count(&self) -> usize {
        self.left.0.len()
    }

    /// Returns true if there is no set.
    pub const fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }
}
