//! The accounts of a cluster in domains, as etcd keeps them.

use std::path::{Path, PathBuf};

use frevo_cluster::Settings;
use frevo_cluster::keys::{ControlKey, Layout};
use frevo_config::Config;
use frevo_etcd::client::Client;
use frevo_etcd::engine::{Engine as _, RangeAnswer, Tell, Watching};
use frevo_etcd::types::{
    Compare, Fact, Fault, KeyValue, Keys, LeaseId, Op, Range, Relation, Revision, Txn,
};
use tokio::runtime::Handle;

use super::domain_account::{ClusterKey, DomainAccount, Unreadable};
use super::options;
use super::report::read;
use crate::configured::cluster as configured;
use crate::exit::{Exit, Failure};
use crate::state;

/// Accounts that are read at most: one for each realm.
const REALMS: u64 = 64;

/// The accounts of one cluster.
#[derive(Clone)]
pub(crate) struct Vault {
    client: Client,
    layout: Layout,
    state_dir: PathBuf,
}

/// An account in etcd.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) realm: String,
    pub(crate) account: Result<DomainAccount, Unreadable>,
    /// The revision of its last change.
    pub(crate) revision: Revision,
}

/// All accounts in etcd.
#[derive(Debug)]
pub(crate) struct AllAccounts {
    pub(crate) accounts: Vec<Kept>,
    /// The revision of etcd at the answer.
    pub(crate) revision: Revision,
}

fn wrong(why: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Config, format!("[cluster]: {why}"))
}

impl Vault {
    /// The accounts of the cluster of `settings`. The key that opens them is in `state_dir`.
    pub(crate) fn new(client: Client, settings: &Settings, state_dir: &Path) -> Self {
        let layout = Layout::new(&settings.cluster);
        Self { client, layout, state_dir: state_dir.to_owned() }
    }

    /// The accounts of the cluster of a configuration, by a client of etcd on `runtime`.
    pub(crate) fn of(config: &Config, host: &str, runtime: Handle) -> Result<Self, Failure> {
        let settings = configured::settings(config, host, Vec::new()).map_err(wrong)?;
        let client = Client::new(options(config, &settings)?, runtime).map_err(wrong)?;
        Ok(Self::new(client, &settings, &state::dir_of(config)))
    }

    /// The state directory of this node.
    pub(crate) fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    fn kept(&self, value: &KeyValue) -> Option<Kept> {
        let realm = self.layout.parse_domain(&value.key)?;
        let account = match ClusterKey::read(&self.state_dir) {
            Ok(Some(key)) => DomainAccount::open(&value.value, &key, &value.key),
            Ok(None) => Err(Unreadable::NoKey),
            Err(failure) => Err(Unreadable::BadFile(failure.to_string())),
        };
        Some(Kept { realm, account, revision: value.mod_revision })
    }

    async fn range(&self, keys: Keys) -> Result<RangeAnswer, Fault> {
        let range = Range { keys, limit: REALMS, after: Vec::new(), revision: Revision(0) };
        let (done, answer) = tokio::sync::oneshot::channel();
        self.client.range(range, Box::new(|end| _ = done.send(end)));
        answer.await.unwrap_or_else(|_| Err(Fault::Unavailable("the client has ended".into())))
    }

    /// Reads all accounts.
    pub(crate) async fn all(&self) -> Result<AllAccounts, Fault> {
        let answer = self.range(Keys::Prefix(self.layout.domains())).await?;
        let accounts = answer.values.iter().filter_map(|value| self.kept(value)).collect();
        Ok(AllAccounts { accounts, revision: answer.revision })
    }

    /// Reads the account in a realm. None if the cluster has none there.
    pub(crate) async fn one(&self, realm: &str) -> Result<Option<Kept>, Fault> {
        let answer = self.range(Keys::One(self.layout.domain(realm))).await?;
        Ok(answer.values.first().and_then(|value| self.kept(value)))
    }

    /// Stores an account in place of the one of the revision `before`, zero for none. Returns the new
    /// revision, or None if another node has changed it meanwhile.
    pub(crate) async fn replace(
        &self,
        realm: &str,
        account: &DomainAccount,
        before: Revision,
    ) -> Result<Option<Revision>, Failure> {
        let key = self.layout.domain(realm);
        let own = ClusterKey::read(&self.state_dir)?.ok_or_else(|| {
            Failure::new(Exit::Auth, Unreadable::NoKey.sentence(realm, &self.state_dir))
        })?;
        let value = account.seal(&own, &key)?;
        let put = Op::Put { key: key.clone(), value: value.clone(), lease: LeaseId(0) };
        if let Some(revision) = self.change(&key, before, put).await? {
            return Ok(Some(revision));
        }
        // The answer to this change may have been lost.
        let answer = self.range(Keys::One(key)).await.map_err(|fault| unreachable(&fault))?;
        let now = answer.values.first().filter(|now| now.value == value);
        Ok(now.map(|now| now.mod_revision))
    }

    /// Removes an account. Returns false if another node has changed it since the revision `before`.
    pub(crate) async fn remove(&self, realm: &str, before: Revision) -> Result<bool, Failure> {
        let key = self.layout.domain(realm);
        let delete = Op::Delete(Keys::One(key.clone()));
        if self.change(&key, before, delete).await?.is_some() {
            return Ok(true);
        }
        Ok(self.one(realm).await.map_err(|fault| unreachable(&fault))?.is_none())
    }

    /// Changes a key if its last change is that of `before`. None if it is not, or if that is not known.
    async fn change(
        &self,
        key: &[u8],
        before: Revision,
        change: Op,
    ) -> Result<Option<Revision>, Failure> {
        let fact = Fact::ModRevision(before);
        let compare = Compare { key: key.to_vec(), relation: Relation::Equal, fact };
        let txn = Txn { compares: vec![compare], success: vec![change], failure: Vec::new() };
        let (done, answer) = tokio::sync::oneshot::channel();
        self.client.txn(txn, Box::new(|end| _ = done.send(end)));
        match answer.await {
            Ok(Ok(answer)) => Ok(answer.succeeded.then_some(answer.revision)),
            Ok(Err(Fault::Unavailable(_))) | Err(_) => Ok(None),
            Ok(Err(fault)) => Err(unreachable(&fault)),
        }
    }

    /// Tells changes of accounts after a revision.
    pub(crate) fn watch(&self, after: Revision, tell: Tell) -> Watching {
        self.client.watch(self.layout.domains(), after, tell)
    }

    /// The names of the nodes that are up.
    pub(crate) async fn nodes(&self) -> Vec<String> {
        let prefix = [&self.layout.control_prefix()[..], b"node/"].concat();
        let values = read(&self.client, prefix).await.unwrap_or_default();
        let node = |value: &KeyValue| match self.layout.parse_control(&value.key)? {
            ControlKey::Node(node) => Some(node.to_string()),
            _ => None,
        };
        values.iter().filter_map(node).collect()
    }
}

/// The failure of a command that did not reach etcd.
pub(crate) fn unreachable(fault: &Fault) -> Failure {
    Failure::new(Exit::Connect, fault.to_string())
}
