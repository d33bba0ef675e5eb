//! The namespaces that were made over the network, as etcd keeps them for all nodes of a cluster.
//!
//! One key, the head, changes with each change of any of them and names the folder of their entries
//! ([`Entries`]). A change compares the revision of the head, so that each is made to the namespaces that the node
//! knew. One of few entries is a single transaction; one of many writes all entries to a folder of its own
//! first, which nobody reads until the head names it.

use std::sync::Arc;

use frevo_cluster::Settings;
use frevo_cluster::keys::Layout;
use frevo_cluster::limits::{NAMESPACE_CHANGES, NAMESPACE_PART, TXN_BYTES};
use frevo_config::limits::NETWORK_NAMESPACES_BYTES;
use frevo_etcd::engine::{Engine, RangeAnswer, Tell, Watching};
use frevo_etcd::types::{
    Compare, Fact, Fault, Keys, LeaseId, Op, Range, Relation, Revision, Txn, TxnAnswer,
};
use tokio::sync::oneshot;

use super::namespace_entries::{ENTRIES_MAX, Entries, EntryChange};

/// The beginning of the head's value; the name of the folder follows.
const FORM: &str = "frevo-namespaces 1 ";

/// The namespaces of one cluster.
#[derive(Debug, Clone)]
pub(crate) struct NamespaceStore {
    engine: Arc<dyn Engine>,
    layout: Layout,
    node: String,
}

/// The namespaces at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeptNamespaces {
    /// The revision of their last change. Zero if etcd has none, also none that is empty.
    pub(crate) revision: Revision,
    folder: String,
    pub(crate) entries: Entries,
    /// The number of values that are left out, because no node of this version makes them.
    pub(crate) left_out: usize,
    /// The revision of etcd at the answer.
    pub(crate) read_at: Revision,
}

/// The reason why namespaces were not read or not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotKept {
    /// Another node has changed them since.
    Raced,
    /// etcd does not answer; a change may be made all the same.
    Unreachable(String),
    /// etcd refused, or what it has cannot be used.
    Refused(String),
}

impl From<Fault> for NotKept {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Unavailable(_) => Self::Unreachable(fault.to_string()),
            Fault::Compacted => Self::Raced,
            fault => Self::Refused(fault.to_string()),
        }
    }
}

/// Waits for the end of a request.
async fn ended<T>(answer: oneshot::Receiver<Result<T, Fault>>) -> Result<T, Fault> {
    answer.await.unwrap_or_else(|_| Err(Fault::Unavailable("the client has ended".into())))
}

impl NamespaceStore {
    pub(crate) fn new(engine: Arc<dyn Engine>, settings: &Settings) -> Self {
        let layout = Layout::new(&settings.cluster);
        Self { engine, layout, node: settings.node.to_string() }
    }

    async fn range(&self, range: Range) -> Result<RangeAnswer, Fault> {
        let (done, answer) = oneshot::channel();
        self.engine.range(range, Box::new(|end| _ = done.send(end)));
        ended(answer).await
    }

    async fn txn(&self, txn: Txn) -> Result<TxnAnswer, Fault> {
        let (done, answer) = oneshot::channel();
        self.engine.txn(txn, Box::new(|end| _ = done.send(end)));
        ended(answer).await
    }

    /// Tells changes after a revision.
    pub(crate) fn watch(&self, after: Revision, tell: Tell) -> Watching {
        self.engine.watch(self.layout.namespaces(), after, tell)
    }

    /// Reads all of them, as they are at one moment. Entries of `known` are not parsed once more.
    pub(crate) async fn read(&self, known: &Entries) -> Result<KeptNamespaces, NotKept> {
        let keys = Keys::One(self.layout.namespaces());
        let head = Range { keys, limit: 1, after: Vec::new(), revision: Revision(0) };
        let answer = self.range(head).await?;
        let read_at = answer.revision;
        let Some(head) = answer.values.into_iter().next() else {
            return Ok(KeptNamespaces { read_at, ..KeptNamespaces::default() });
        };
        let value = String::from_utf8(head.value).unwrap_or_default();
        let Some(folder) = value.strip_prefix(FORM) else {
            let key = String::from_utf8_lossy(&head.key).into_owned();
            let why = format!("{key} in etcd was written by a later version, or not by Frevo");
            return Err(NotKept::Refused(why));
        };
        let found = self.entries_of(folder, read_at).await?;
        let known = known.clone();
        let taken = tokio::task::spawn_blocking(move || Entries::of_etcd(found, &known)).await;
        let taken = taken.unwrap_or_else(|_| Err(String::from("internal error")));
        let (entries, left_out) = taken.map_err(NotKept::Refused)?;
        let folder = folder.to_owned();
        Ok(KeptNamespaces { revision: head.mod_revision, folder, entries, left_out, read_at })
    }

    /// The ends of the keys, and the values, of a folder at a revision: no more parts than needed to tell that there
    /// is too much.
    async fn entries_of(
        &self,
        folder: &str,
        revision: Revision,
    ) -> Result<Vec<(String, Vec<u8>)>, NotKept> {
        let prefix = self.layout.namespace_entries(folder);
        let (mut found, mut after, mut bytes) = (Vec::new(), Vec::new(), 0_u64);
        loop {
            let keys = Keys::Prefix(prefix.clone());
            let range = Range { keys, limit: NAMESPACE_PART, after, revision };
            let answer = self.range(range).await?;
            after = answer.values.last().map(|last| last.key.clone()).unwrap_or_default();
            for one in answer.values {
                let end = one.key.strip_prefix(&prefix[..]).unwrap_or_default().to_vec();
                bytes = bytes.saturating_add(one.value.len() as u64);
                found.push((String::from_utf8(end).unwrap_or_default(), one.value));
            }
            if !answer.more || found.len() > ENTRIES_MAX || bytes >= NETWORK_NAMESPACES_BYTES {
                return Ok(found);
            }
        }
    }

    /// Makes other entries of those that are kept, if nobody has changed them since they were read.
    pub(crate) async fn replace(
        &self,
        before: &KeptNamespaces,
        entries: Entries,
    ) -> Result<KeptNamespaces, NotKept> {
        entries.too_much().map_or(Ok(()), |why| Err(NotKept::Refused(why)))?;
        let changes = before.entries.changes_to(&entries);
        let is_one = before.revision != Revision(0) && changes.len() <= NAMESPACE_CHANGES;
        let (folder, revision) = match is_one && bytes_of(&changes) <= TXN_BYTES {
            true => {
                let ops = changes.iter().map(|change| self.op(&before.folder, change)).collect();
                (before.folder.clone(), self.change(before, &before.folder, ops).await?)
            }
            false => self.rewrite(before, &entries).await?,
        };
        Ok(KeptNamespaces { revision, folder, entries, left_out: 0, read_at: revision })
    }

    /// Writes all entries to a new folder, and names it in the head. Returns the folder and the revision of
    /// the head.
    async fn rewrite(
        &self,
        before: &KeptNamespaces,
        entries: &Entries,
    ) -> Result<(String, Revision), NotKept> {
        // The names of nodes have no such character.
        let own = format!("{}+", self.node);
        if !before.folder.starts_with(&own) {
            // An attempt that did not end may have left some.
            let mut folders = self.layout.namespace_entries(&own);
            folders.pop();
            self.carry_out(before, vec![Op::Delete(Keys::Prefix(folders))]).await?;
        }
        // A transaction of another attempt that is carried out late reaches no folder of this one.
        let mut random = [0; 8];
        let failed = |_| NotKept::Refused(String::from("the system has no random bytes"));
        getrandom::fill(&mut random).map_err(failed)?;
        let folder = format!("{own}{:016x}", u64::from_le_bytes(random));
        let none = Entries::default();
        let changes = none.changes_to(entries);
        let mut rest = &changes[..];
        while !rest.is_empty() {
            let fits = |count: &usize| bytes_of(&rest[..*count]) <= TXN_BYTES;
            let most = rest.len().min(NAMESPACE_CHANGES);
            let count = (1..=most).rev().find(fits).unwrap_or(1);
            let (part, after) = rest.split_at(count);
            let ops = part.iter().map(|change| self.op(&folder, change)).collect();
            self.carry_out(before, ops).await?;
            rest = after;
        }
        let old = || Op::Delete(Keys::Prefix(self.layout.namespace_entries(&before.folder)));
        let old = (before.revision != Revision(0)).then(old).into_iter().collect();
        let revision = self.change(before, &folder, old).await?;
        Ok((folder, revision))
    }

    fn op(&self, folder: &str, change: &EntryChange<'_>) -> Op {
        let key = |end: &str| [&self.layout.namespace_entries(folder), end.as_bytes()].concat();
        match change {
            EntryChange::Remove(end) => Op::Delete(Keys::One(key(end))),
            EntryChange::Put(end, text) => {
                let value = text.as_bytes().to_vec();
                Op::Put { key: key(end), value, lease: LeaseId(0) }
            }
        }
    }

    /// Carries out operations and changes the head with them. Returns its revision.
    async fn change(
        &self,
        before: &KeptNamespaces,
        folder: &str,
        mut ops: Vec<Op>,
    ) -> Result<Revision, NotKept> {
        let value = format!("{FORM}{folder}").into_bytes();
        ops.push(Op::Put { key: self.layout.namespaces(), value, lease: LeaseId(0) });
        self.carry_out(before, ops).await
    }

    /// Carries out operations if the head has not changed.
    async fn carry_out(&self, before: &KeptNamespaces, ops: Vec<Op>) -> Result<Revision, NotKept> {
        let fact = Fact::ModRevision(before.revision);
        let key = self.layout.namespaces();
        let compare = Compare { key, relation: Relation::Equal, fact };
        let txn = Txn { compares: vec![compare], success: ops, failure: Vec::new() };
        let answer = self.txn(txn).await?;
        answer.succeeded.then_some(answer.revision).ok_or(NotKept::Raced)
    }
}

/// The bytes of changes in a transaction, with room for their keys.
fn bytes_of(changes: &[EntryChange<'_>]) -> usize {
    let one = |change: &EntryChange<'_>| match change {
        EntryChange::Put(key, text) => key.len() + text.len() + 256,
        EntryChange::Remove(key) => key.len() + 256,
    };
    changes.iter().map(one).sum()
}
