//! Snapshots that the server makes of its shares.
//!
//! Before the confinement the places of the shares are found and the process that has the rights is started.
//! A thread of its own looks at the clock and at the schedules: making a snapshot can take long, and holds
//! nothing else up.

mod for_admin;
mod keeper;
mod listed;
mod marks;
mod places;
mod shadow_copies;

use std::path::PathBuf;
use std::sync::Arc;

use frevo_admin::SnapshotKeeper;
use frevo_config::{Config, ShareSection};
use frevo_server::{Server, ShadowCopySets};
use frevo_snapshot_hands::{SetUp, ShareSetUp, Started};
use parking_lot::Mutex;

use super::cluster::log_options;
use super::plan::Plan;
use crate::exit::Failure;
use crate::state;

use self::for_admin::{ForAdmin, KeepingRules};
use self::keeper::{Keeper, KeptShare};
use self::marks::Marks;
pub(crate) use self::places::{FoundPlace, find};
use self::shadow_copies::{Supported, SupportedShare};

/// The snapshots before the process is confined.
pub(super) struct Prepared {
    /// None if no share has a place.
    started: Option<Started>,
    found: Vec<FoundPlace>,
    /// The shares of which snapshots lack nothing.
    offered: Vec<String>,
    /// The shares of which clients can have shadow copies made.
    supported: Supported,
    /// The state directory. None for a server that keeps no state.
    state: Option<PathBuf>,
    /// Sentences about rights that are lacking.
    lacking: Vec<String>,
}

/// The keeper of the snapshots, which goes on until the process ends.
pub(super) struct Snapshots {
    found: Vec<FoundPlace>,
    keeper: Arc<ForAdmin>,
    offered: Vec<String>,
    supported: Supported,
}

/// Finds the places of the snapshots that the server makes, and starts the process that makes them. None
/// without `[share.snapshots]`.
pub(super) fn prepare(plan: &mut Plan) -> Option<Prepared> {
    let mut found = find(&plan.config);
    let set_up = set_up(&plan.config, &found);
    let started =
        (!set_up.shares.is_empty()).then(|| Started::begin(&set_up, &log_options(&plan.config)));
    let started = match started.transpose() {
        Ok(started) => started,
        Err(error) => {
            let why = format!("cannot start the process that makes snapshots: {error}");
            found.iter_mut().for_each(|found| found.place = Err(why.clone()));
            None
        }
    };
    apply(&found, &mut plan.config);
    let is_whole = |found: &&FoundPlace| found.lacks.is_none();
    let offered: Vec<String> =
        found.iter().filter(is_whole).map(|found| found.share.clone()).collect();
    let names = supported(&found, &plan.config, &offered);
    let state = plan.has_state.then(|| state::dir_of(&plan.config));
    let supported = Arc::new(Mutex::new(names));
    let lacking = lacking_rights(&found).map(|(_, why)| why).collect();
    (!found.is_empty()).then_some(Prepared { started, found, offered, supported, state, lacking })
}

/// The places for which this process lacks a right, each with a sentence.
pub(crate) fn lacking_rights(found: &[FoundPlace]) -> impl Iterator<Item = (&FoundPlace, String)> {
    found.iter().filter_map(|found| Some((found, found.place.as_ref().ok()?.lacks_right()?)))
}

/// The names of the shares of which clients can have shadow copies made: those with a place. MS-FSRVP 3.1.4.9:
/// but for those with mount points in them, and likewise subvolumes, which `offered` has not. A share of a cluster has its state at
/// other nodes too.
fn supported(found: &[FoundPlace], config: &Config, offered: &[String]) -> Vec<SupportedShare> {
    let supported = |found: &FoundPlace| {
        let section = config.shares.iter().find(|share| found.is_of(share));
        let section = section.filter(|share| !share.cluster && found.place.is_ok())?;
        let schedule = section.kept_snapshots()?.schedule.schedule()?;
        let name = found.share.clone();
        let is_offered = offered.contains(&name);
        is_offered.then(|| SupportedShare { name, is_thinned: !schedule.is_none() })
    };
    found.iter().filter_map(supported).collect()
}

/// The shares for which the process acts: those with a place, in their order.
fn set_up(config: &Config, found: &[FoundPlace]) -> SetUp {
    let of = |found: &FoundPlace| {
        let place = found.place.as_ref().ok()?;
        Some(ShareSetUp { folder: found.folder.clone(), kind: place.kind() })
    };
    SetUp { shares: found.iter().filter_map(of).collect(), mounts: places::mounts(config) }
}

/// Tells the shares of a configuration the places of their snapshots.
fn apply(found: &[FoundPlace], config: &mut Config) {
    for share in &mut config.shares {
        let place = found.iter().find(|found| found.is_of(share)).and_then(FoundPlace::folders);
        share.set_snapshot_place(place);
    }
    config.guard_folders();
}

impl Prepared {
    /// Starts the thread that makes snapshots, after the confinement.
    pub(super) fn start(self, server: &Server) -> Result<Snapshots, Failure> {
        let mut places = 0..;
        let file = self.state.as_ref().map(|state| state.join(state::SHADOW_COPIES));
        let marks = self.state.as_ref().map(|state| state.join(state::KEPT_SNAPSHOTS));
        // None without a file that can be read.
        let sets = match &file {
            Some(file) => shadow_copies::read(file),
            None => Some(ShadowCopySets::default()),
        };
        let held = sets.as_ref().map(shadow_copies::held);
        let shares = self.found.iter().map(|found| {
            let at = found.place.is_ok().then(|| places.next()).flatten();
            KeptShare::new(found, at, held.clone())
        });
        for why in &self.lacking {
            tracing::warn!(target: "frevo::snapshot", "{why}");
        }
        let hands = self.started.map(Started::hands);
        let keeper = Keeper::new(shares.collect(), hands, server.clone(), Marks::read(marks));
        let keeper =
            keeper.start().map_err(Failure::failed("cannot start the thread of snapshots"))?;
        if let (Some(file), Some(sets)) = (&file, sets) {
            let listed = keeper.listed();
            listed.note(&sets);
            let hands = shadow_copies::Hands::new(keeper.wishes(), file, &self.supported, listed);
            let served = server.serve_shadow_copies(Arc::new(hands), sets);
            served.map_err(Failure::failed("cannot start the thread of shadow copies"))?;
        }
        let Self { found, offered, supported, .. } = self;
        Ok(Snapshots { found, keeper: Arc::new(keeper), offered, supported })
    }
}

impl Snapshots {
    /// The keeper for the admin interface.
    pub(super) fn for_admin(&self) -> Arc<dyn SnapshotKeeper> {
        Arc::<ForAdmin>::clone(&self.keeper)
    }

    /// Tells a configuration that is read again the places that were found at the start, since this process
    /// cannot find them any more.
    pub(super) fn place(&self, config: &mut Config) {
        apply(&self.found, config);
    }

    /// Applies the schedules of a configuration that is in force now.
    pub(super) fn reload(&self, config: &Config) {
        let of = |found: &FoundPlace| {
            let share = config.shares.iter().find(|share| found.is_of(share))?;
            let kept = share.kept_snapshots()?;
            Some(KeepingRules { share: found.share.clone(), schedule: kept.schedule.schedule()? })
        };
        self.keeper.set_rules(self.found.iter().filter_map(of).collect());
        *self.supported.lock() = supported(&self.found, config, &self.offered);
    }
}

/// True if snapshots of a share of the new configuration need a restart.
pub(super) fn needs_restart(old: &Config, new: &Config) -> bool {
    let is_known = |share: &ShareSection| {
        old.shares.iter().any(|old| {
            let (ours, theirs) = (old.kept_snapshots(), share.kept_snapshots());
            old.name.get_ref().is_same(share.name.get_ref())
                && old.path.get_ref() == share.path.get_ref()
                && ours.map(|kept| kept.provider) == theirs.map(|kept| kept.provider)
        })
    };
    new.shares.iter().filter(|share| share.kept_snapshots().is_some()).any(|share| !is_known(share))
}
