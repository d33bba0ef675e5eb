//! The scan for viruses that an open waits for.

use std::sync::Arc;

use frevo_store::vfs::Kind;
use frevo_wire::Status;
use frevo_wire::command::create::CreateAction;
use frevo_wire::dtyp::AccessMask;

use super::creation::{Create, Made};
use crate::objects::open::closing::owner_of;
use crate::objects::open::scanned;
use crate::shares::scanning::{Scanned, Scanning, Wanted, changed_of};

/// The rights by which data is read.
const READS: AccessMask = AccessMask(AccessMask::READ_DATA.0 | AccessMask::EXECUTE.0);

impl Create<'_> {
    /// The scans of the share, if the file is one that may be scanned before it is read: a live one that was
    /// there already.
    pub(super) fn scanning(&self, made: &Made<'_>) -> Option<&Arc<Scanning>> {
        let share = &self.rq.tree().ok()?.share;
        let scanning = share.scanning.as_ref().filter(|_| !share.is_exposed)?;
        let is_live = share.vfs().is_some_and(|live| Arc::ptr_eq(live, self.vfs));
        let stat = &made.opened.stat;
        let is_read = made.granted.intersects(READS) && made.action == CreateAction::OPENED;
        let is_data =
            stat.kind == Kind::File && scanning.covers(&made.opened.name, stat.end_of_file);
        (is_live && is_read && is_data).then_some(scanning)
    }

    /// Waits until the file has been scanned, if it needs to be.
    ///
    /// # Errors
    /// VIRUS_INFECTED for a file with a virus, ACCESS_DENIED for one that cannot be scanned where such files
    /// are refused, CANCELLED when the client cancels or has gone.
    pub(super) async fn await_scan(
        &self,
        scanning: &Arc<Scanning>,
        made: &Made<'_>,
    ) -> Result<(), Status> {
        let (tree, holder) = (self.rq.tree()?, self.rq.session()?.holder());
        let opened = &made.opened;
        let key = opened.node.key();
        let wanted = || Wanted {
            key,
            node: Some(Arc::clone(&opened.node)),
            owner: owner_of(Some(holder)),
            // The request is charged while it waits.
            charge: None,
            find: scanned::find(tree, scanning, self.vfs, opened.name.clone()),
        };
        let changed = || changed_of(&*opened.node);
        let scans = scanning.rules.at_open;
        let verdict = scanning.scanner.verdict(key, wanted, changed, scans);
        let verdict = self.rq.cancellation.unless_told(verdict).await.ok_or(Status::CANCELLED)?;
        self.rq.still_served()?;
        match verdict {
            Scanned::Passed => Ok(()),
            Scanned::Infected => Err(Status::VIRUS_INFECTED),
            Scanned::Unscanned if scanning.rules.lets_unscanned => Ok(()),
            Scanned::Unscanned => Err(Status::ACCESS_DENIED),
        }
    }
}
