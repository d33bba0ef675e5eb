//! The store of records of persistent handles: etcd for the shares of units, another one for the rest.

use std::fmt;
use std::sync::Arc;

use frevo_cluster::interface::RecordChange;
use frevo_cluster::{Epoch, RecordId};
use frevo_store::StateStore;
use frevo_store::state::{self, Done, LoadDone, Ownership, StateFault};

use crate::inbox::{Change, Inbox, Loading, Message};
use crate::loads;
use crate::table::Table;

/// The store of a node. A load makes nobody the owner: the machine has made this node the owner before it
/// ordered the start of which the load is a part.
pub(crate) struct NodeStore {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) table: Arc<Table>,
    /// The store of shares that are in no unit.
    pub(crate) local: Option<Arc<dyn StateStore>>,
}

impl fmt::Debug for NodeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeStore").field("local", &self.local).finish_non_exhaustive()
    }
}

fn no_store() -> StateFault {
    StateFault::Failed("the share is in no unit of the cluster".to_owned())
}

impl NodeStore {
    fn change(&self, owner: &Ownership, change: RecordChange, done: Done) -> Option<Done> {
        let Some(unit) = self.table.unit_of(&owner.share) else { return Some(done) };
        let epoch = Epoch(owner.epoch.0);
        self.inbox.push_change(Change { unit, epoch, change, done });
        None
    }
}

impl StateStore for NodeStore {
    fn load(&self, share: &str, done: LoadDone) {
        match (self.table.unit_of(share), &self.local) {
            (Some(unit), _) => {
                let loading = Loading { unit, share: Arc::from(share), done };
                self.inbox.push(Message::Load(loading));
            }
            (None, Some(local)) => local.load(share, done),
            (None, None) => done(Err(no_store())),
        }
    }

    fn put(&self, owner: &Ownership, id: state::RecordId, record: Vec<u8>, done: Done) {
        if self.table.unit_of(&owner.share).is_none() {
            match &self.local {
                Some(local) => local.put(owner, id, record, done),
                None => done(Err(no_store())),
            }
            return;
        }
        let record = loads::with_share(&owner.share, &record);
        let put = RecordChange::Put(RecordId(id.0), record);
        if let Some(done) = self.change(owner, put, done) {
            done(Err(no_store()));
        }
    }

    fn remove(&self, owner: &Ownership, id: state::RecordId, done: Done) {
        let remove = RecordChange::Remove(RecordId(id.0));
        if let Some(done) = self.change(owner, remove, done) {
            match &self.local {
                Some(local) => local.remove(owner, id, done),
                None => done(Err(no_store())),
            }
        }
    }
}
