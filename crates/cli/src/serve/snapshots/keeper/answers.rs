//! Acts that administrators ask for.

use frevo_admin::{KnownSnapshot, NotKept, SnapshotAct};
use frevo_snapshots::Second;
use frevo_wire::fscc::fold_name;

use super::{Keeper, now};

/// The acts that change a mark, in the audit log.
const KEEP: &str = "keep";
const RELEASE: &str = "release";

impl Keeper {
    /// Returns the place of a share in the list, also of one of which the configuration has no snapshots made
    /// any more.
    pub(super) fn known_place_of(&self, name: &str) -> Result<usize, String> {
        let wanted = fold_name(name);
        let at = self.shares.iter().position(|share| fold_name(&share.name) == wanted);
        let is_it = |share: &String| fold_name(share) == wanted;
        at.ok_or_else(|| match self.server.disk_shares().iter().any(is_it) {
            true => format!(
                "the server makes no snapshots of {name:?}, which has neither [share.snapshots] nor keep_deleted"
            ),
            false => format!("the server serves no share {name:?}"),
        })
    }

    /// Returns the place of a share in the list, of which the configuration has snapshots made.
    pub(super) fn place_of(&self, name: &str) -> Result<usize, String> {
        let at = self.known_place_of(name)?;
        if self.shares.get(at).is_some_and(|share| share.schedule.is_none()) {
            return Err(String::from(
                "the configuration has no snapshots of this folder any more; restart frevo after a change of \
                 a share's folder",
            ));
        }
        Ok(at)
    }

    /// The snapshot that an administrator names.
    fn named(&self, at: usize, taken: u64) -> Result<Second, NotKept> {
        let share = self.shares.get(at);
        let has = |taken: &Second| share.is_some_and(|share| share.existing.contains(taken));
        Second::new(taken).filter(has).ok_or_else(|| {
            let why = "there is no such snapshot; `frevo snapshots list` lists those of the share";
            NotKept::NoSuch(why.to_owned())
        })
    }

    /// The snapshot that an administrator names, unless it is a shadow copy, which has a share and a set, or kept.
    fn removable(&self, at: usize, taken: u64) -> Result<Second, NotKept> {
        let taken = self.named(at, taken)?;
        let Some(share) = self.shares.get(at) else { return Ok(taken) };
        let why = match share.removes_none {
            Some(why) => why,
            None if share.held.contains(&taken) => {
                "it is a shadow copy; `frevo snapshots delete URL SET` deletes it with its share"
            }
            None if share.kept.contains(&taken) => {
                "it is kept; `frevo snapshots release` gives it back to the schedule"
            }
            None => return Ok(taken),
        };
        Err(NotKept::Failed(why.to_owned()))
    }

    /// Has a snapshot stay whatever the schedule says, or gives it back to the schedule.
    fn mark(&mut self, at: usize, taken: u64, is_kept: bool, by: &str) -> Result<Second, NotKept> {
        let taken = self.named(at, taken)?;
        let Some(share) = self.shares.get_mut(at) else { return Ok(taken) };
        if is_kept && (share.held.contains(&taken) || share.unwanted.contains(&taken)) {
            let why = "it is a shadow copy, which stays until its client deletes it";
            return Err(NotKept::Failed(why.to_owned()));
        }
        let mut kept = share.kept.clone();
        // Those that others have removed meanwhile need no mark.
        kept.retain(|taken| share.existing.contains(taken));
        let is_new = if is_kept { kept.insert(taken) } else { kept.remove(&taken) };
        if !is_new {
            return Ok(taken);
        }
        let end = self.marks.set(&share.name, &share.folder, &kept);
        if end.is_ok() {
            share.kept = kept;
            tracing::info!(target: "frevo::snapshot", share = share.name, snapshot = taken.to_name(), by, is_kept,
                "marked a snapshot");
        }
        self.record(at, if is_kept { KEEP } else { RELEASE }, taken, by, &end);
        end.map(|()| taken).map_err(NotKept::from)
    }

    /// Removes the snapshots that nothing keeps, or lists them alone.
    fn prune(
        &mut self,
        at: usize,
        is_dry: bool,
        now: Second,
        by: &'static str,
    ) -> Result<Vec<Second>, NotKept> {
        if let Some(why) = self.shares.get(at).and_then(|share| share.removes_none) {
            return Err(NotKept::Failed(why.to_owned()));
        }
        let surplus = self.surplus(at, now);
        if !is_dry {
            self.remove_all(at, &surplus, by)?;
        }
        Ok(surplus)
    }

    pub(super) fn answer(
        &mut self,
        act: &SnapshotAct,
        by: &'static str,
    ) -> Result<Vec<KnownSnapshot>, NotKept> {
        let at = self.place_of(act.share()).map_err(NotKept::NoSuch)?;
        if let Some(share) = self.shares.get(at).filter(|share| share.at.is_none()) {
            return Err(NotKept::NoSuch(share.why().unwrap_or_default().to_owned()));
        }
        self.list(at)?;
        let now = now().ok_or_else(|| String::from("the clock of this machine is wrong"))?;
        let done = match act {
            SnapshotAct::List { .. } => {
                self.shares.get(at).map(|share| share.existing.clone()).unwrap_or_default()
            }
            SnapshotAct::Create { .. } => {
                let taken = self.free_second(at)?;
                self.create(at, taken, by)?;
                vec![taken]
            }
            SnapshotAct::Remove { snapshot, .. } => {
                let taken = self.removable(at, *snapshot)?;
                self.remove(at, taken, by)?;
                vec![taken]
            }
            SnapshotAct::Prune { dry_run, .. } => self.prune(at, *dry_run, now, by)?,
            SnapshotAct::Keep { snapshot, .. } => vec![self.mark(at, *snapshot, true, by)?],
            SnapshotAct::Release { snapshot, .. } => vec![self.mark(at, *snapshot, false, by)?],
        };
        Ok(self.described(at, &done))
    }

    /// The snapshots as administrators see them.
    fn described(&self, at: usize, done: &[Second]) -> Vec<KnownSnapshot> {
        let Some(share) = self.shares.get(at) else { return Vec::new() };
        let known = |taken: &Second| KnownSnapshot {
            snapshot: taken.since_1970(),
            name: taken.to_name(),
            kept: share.kept.contains(taken),
            shadow_copy: share.held.contains(taken),
        };
        done.iter().map(known).collect()
    }
}
