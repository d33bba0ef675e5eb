//! The account that all nodes of a cluster have in a domain: etcd has it, sealed, and each node a copy in its
//! state directory. A command works with the copy, as with the account of one server, and stores each step of a
//! change in etcd before the next one: so another node can end a change, and one node alone can begin it.

use std::cell::Cell;
use std::path::Path;

use frevo_auth::Zeroizing;
use frevo_cluster::names::NodeName;
use frevo_etcd::types::Revision;
use tokio::runtime::{Builder, Runtime};

use super::Home;
use super::membership::{Membership, Parts, keytab_in};
use super::new_password::KeptPassword;
use super::next_keytab::replace_keys;
use crate::accounts::host_name;
use crate::cluster::{DomainAccount, Kept, Vault, unreachable};
use crate::exit::{Done, Exit, Failure};
use crate::secret_file;

/// The accounts of this node's cluster.
pub(super) struct ClusterAccounts {
    runtime: Runtime,
    vault: Vault,
}

impl ClusterAccounts {
    /// The accounts of the cluster of the configuration.
    pub(super) fn of(home: &Home) -> Result<Self, Failure> {
        let config = home.config.as_ref().filter(|config| config.cluster.is_on());
        let Some(config) = config else {
            let text = "an account of a cluster needs the configuration of a node, with [cluster]; name it: \
                        frevo domain --config FILE ...";
            return Err(Failure::new(Exit::Usage, text));
        };
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Failure::failed("cannot ask etcd"))?;
        let host = host_name();
        let vault = Vault::of(config, host.as_str(), runtime.handle().clone())?;
        Ok(Self { runtime, vault })
    }

    /// Reads the account in a realm. None if the cluster has none there.
    pub(super) fn one(&self, realm: &str) -> Result<Option<Kept>, Failure> {
        self.runtime.block_on(self.vault.one(realm)).map_err(|fault| unreachable(&fault))
    }

    /// Reads all accounts.
    pub(super) fn all(&self) -> Result<Vec<Kept>, Failure> {
        let found = self.runtime.block_on(self.vault.all()).map_err(|fault| unreachable(&fault))?;
        Ok(found.accounts)
    }

    /// The names of the nodes that are up.
    pub(super) fn nodes(&self) -> Vec<String> {
        self.runtime.block_on(self.vault.nodes())
    }

    /// The account in one realm, of which nothing is known yet.
    pub(super) fn in_realm<'a>(&'a self, realm: &'a str) -> SharedAccount<'a> {
        let state_dir = self.vault.state_dir();
        SharedAccount { accounts: self, state_dir, realm, seen: Cell::default() }
    }
}

/// The account in one realm, with the revision in etcd of this node's copy.
pub(super) struct SharedAccount<'a> {
    accounts: &'a ClusterAccounts,
    state_dir: &'a Path,
    realm: &'a str,
    seen: Cell<Revision>,
}

impl SharedAccount<'_> {
    /// Makes this node's copy that of etcd. Returns false if etcd has no account in the realm; the copy stays
    /// as it is then.
    pub(super) fn pull(&self) -> Result<bool, Failure> {
        let kept = self.accounts.one(self.realm)?;
        self.seen.set(kept.as_ref().map_or(Revision(0), |kept| kept.revision));
        let Some(kept) = kept else { return Ok(false) };
        let account = kept
            .account
            .map_err(|why| Failure::new(Exit::Auth, why.sentence(self.realm, self.state_dir)))?;
        place(self.state_dir, self.realm, &account)?;
        Ok(true)
    }

    /// Stores this node's copy in etcd. Returns false if another node has changed the account since the last
    /// call.
    pub(super) fn push(&self) -> Result<bool, Failure> {
        let account = copy_in(self.state_dir, self.realm)?;
        let ClusterAccounts { runtime, vault } = self.accounts;
        let stored = runtime.block_on(vault.replace(self.realm, &account, self.seen.get()))?;
        if let Some(revision) = stored {
            self.seen.set(revision);
        }
        Ok(stored.is_some())
    }

    /// Stores this node's copy, in place of whatever etcd has.
    pub(super) fn push_over(&self) -> Result<bool, Failure> {
        let present = self.accounts.one(self.realm)?;
        self.seen.set(present.map_or(Revision(0), |kept| kept.revision));
        self.push()
    }

    /// Removes the account from etcd: all nodes forget its keys.
    pub(super) fn remove(&self) -> Done {
        let ClusterAccounts { runtime, vault } = self.accounts;
        if runtime.block_on(vault.remove(self.realm, self.seen.get()))? {
            return Ok(());
        }
        let text = format!(
            "the account in {} was removed from the domain, but etcd keeps its keys: another node has changed \
             it meanwhile; run this again",
            self.realm
        );
        Err(Failure::new(Exit::Failed, text))
    }
}

/// Makes the copy of the account in the state directory that of etcd: the facts, the keys, the password of a
/// change.
fn place(state_dir: &Path, realm: &str, account: &DomainAccount) -> Done {
    let member = Membership::parse(&account.facts).filter(|member| member.realm == realm);
    let member = member.ok_or_else(|| {
        let text = format!(
            "the facts of the cluster's account in {realm} are not those that this version of Frevo knows; \
             upgrade Frevo on this machine"
        );
        Failure::new(Exit::Config, text)
    })?;
    member.write(state_dir)?;
    place_keys(state_dir, realm, &account.keytab)?;
    match &account.next_password {
        Some(next) => KeptPassword::keep(&member, state_dir, next).map(drop),
        None => KeptPassword::forget(&member, state_dir),
    }
}

/// Puts the keys of a realm into the keytab of the state directory, unless it has them. Returns true if it
/// had others.
pub(crate) fn place_keys(state_dir: &Path, realm: &str, keys: &[u8]) -> Result<bool, Failure> {
    let present = secret_file::read_bytes_in(state_dir, &keytab_in(state_dir))?;
    if present.is_some_and(|present| **Parts::of(&present, realm).ours == *keys) {
        return Ok(false);
    }
    replace_keys(state_dir, realm, keys)?;
    Ok(true)
}

/// Reads the copy of the account in the state directory.
fn copy_in(state_dir: &Path, realm: &str) -> Result<DomainAccount, Failure> {
    let only = |member: &Membership| member.realm == realm;
    let member = Membership::all(state_dir, None)?.into_iter().find(only);
    let member = member.ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("this node has no account in {realm}"))
    })?;
    let keytab = secret_file::read_bytes_in(state_dir, &keytab_in(state_dir))?;
    let next = KeptPassword::read(&member, state_dir)?;
    Ok(DomainAccount {
        facts: member.text(),
        keytab: Parts::of(&keytab.unwrap_or_default(), realm).ours,
        next_password: next.map(|next| Zeroizing::new(next.text().to_owned())),
    })
}

/// The names by which clients connect, beside those that a join gives the account: of the cluster, and of
/// each node where nodes have names of their own.
pub(super) fn names(
    member: &Membership,
    cluster: &str,
    nodes: impl IntoIterator<Item = String>,
) -> Vec<String> {
    let domain = member.realm.to_lowercase();
    let mut names = member.names.clone();
    for host in std::iter::once(cluster.to_owned()).chain(nodes) {
        let full = format!("{host}.{domain}");
        for name in [host, full] {
            let is_given = name.eq_ignore_ascii_case(&member.computer) || name == member.host;
            if !is_given && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// The name of this node in its cluster, where clients use names of nodes.
pub(super) fn node_of(home: &Home) -> Option<NodeName> {
    let config = home.config.as_ref()?;
    let host = host_name();
    let settings = crate::configured::cluster::settings(config, host.as_str(), Vec::new()).ok()?;
    crate::configured::cluster::names(config, &settings)?;
    Some(settings.node)
}

#[cfg(test)]
mod tests {
    use super::super::arguments::Tool;
    use super::*;

    fn member() -> Membership {
        Membership {
            realm: "A.TEST".into(),
            domain: "A".into(),
            computer: "NAS".into(),
            host: "nas.a.test".into(),
            controller: None,
            ou: None,
            tool: Tool::Adcli,
            cluster: Some("nas".into()),
            names: Vec::new(),
        }
    }

    #[test]
    fn names_are_those_of_the_cluster_and_of_its_nodes() {
        let nodes = || ["n1".to_owned(), "n2".to_owned()];
        let found = names(&member(), "nas", nodes());
        assert_eq!(found, ["n1", "n1.a.test", "n2", "n2.a.test"]);
        let other = Membership { computer: "FILES".into(), names: vec!["n1".into()], ..member() };
        assert_eq!(names(&other, "nas", nodes()), ["n1", "nas", "n1.a.test", "n2", "n2.a.test"]);
        assert!(names(&member(), "nas", []).is_empty());
    }

    #[test]
    fn a_copy_is_that_of_etcd() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let account = |keys: &[u8], next: Option<&str>| DomainAccount {
            facts: member().text(),
            keytab: Zeroizing::new(keys.to_vec()),
            next_password: next.map(|next| Zeroizing::new(next.to_owned())),
        };
        assert!(copy_in(dir, "A.TEST").is_err(), "there is none yet");
        for (keys, next) in [(&[5, 2][..], None), (&[5, 2], Some("next")), (&[5, 2], None)] {
            let account = account(keys, next);
            place(dir, "A.TEST", &account).unwrap();
            assert_eq!(copy_in(dir, "A.TEST").unwrap(), account);
            assert_eq!(Membership::all(dir, None).unwrap(), [member()]);
        }
        assert!(!place_keys(dir, "A.TEST", &[5, 2]).unwrap(), "it has them");
        let other = DomainAccount { facts: "realm = \"B\"".into(), ..account(&[5, 2], None) };
        assert!(place(dir, "A.TEST", &other).unwrap_err().message.contains("upgrade Frevo"));
    }
}
