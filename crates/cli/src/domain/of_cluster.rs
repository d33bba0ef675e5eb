//! `frevo domain join --cluster` and `leave --cluster`: the account that all nodes of a cluster have.

use super::arguments::{Administrator, Join, Tool};
use super::membership::Membership;
use super::net_secrets::NetSecrets;
use super::shared::{ClusterAccounts, SharedAccount, names, node_of};
use super::tools::{self, Credentials};
use super::{Home, ask_password, refuse_address};
use crate::changes::told;
use crate::cluster::{ClusterKey, OfRealm, Vault, of_accounts};
use crate::configured::cluster as configured;
use crate::exit::{Done, Exit, Failure};

impl Home {
    /// Makes the account of the cluster, or gives this node the keys of one that another node has made.
    pub(super) fn join_cluster(&self, join: &Join) -> Done {
        let accounts = ClusterAccounts::of(self)?;
        self.make_private()?;
        let _alone = self.lock()?;
        let realm = join.realm.as_str().to_uppercase();
        let shared = accounts.in_realm(&realm);
        if shared.pull()? {
            return self.join_node(join, &accounts, &shared);
        }
        let mut member = self.member(join)?;
        refuse_address(&member)?;
        member.names = self.names(&member, &accounts);
        let password = ask_password(&join.administrator, &member.realm)?;
        let key = ClusterKey::read(&self.state_dir)?.map_or_else(ClusterKey::choose, Ok)?;
        key.keep(&self.state_dir)?;
        let by = Credentials { user: &join.administrator.user, password: &password };
        self.make_account(&member, &by)?;
        self.settle(&member, &shared)?;
        let mut text = self.joined(&member);
        text.push_str(&format!(
            "At each other node of the cluster: copy {} to the same place, which only root may read, then run: \
             frevo domain join {} --cluster\n",
            ClusterKey::path(&self.state_dir).display(),
            member.realm
        ));
        told(true, &text)
    }

    /// Gives this node the keys of the account, and the account the names of this node.
    fn join_node(
        &self,
        join: &Join,
        accounts: &ClusterAccounts,
        shared: &SharedAccount<'_>,
    ) -> Done {
        // The file may have been copied by root: the server's user has to read it.
        if let Some(key) = ClusterKey::read(&self.state_dir)? {
            key.keep(&self.state_dir)?;
        }
        let realm = join.realm.as_str().to_uppercase();
        let known = Membership::all(&self.state_dir, None)?;
        let Some(mut member) = known.into_iter().find(|member| member.realm == realm) else {
            return Err(Failure::new(Exit::Failed, format!("the account in {realm} was removed")));
        };
        let wanted = self.names(&member, accounts);
        if wanted != member.names {
            // The names of an account are an administrator's to give. A join by the same name gives them.
            let asked = join.with.or_else(|| tools::find(Some(member.tool)).ok());
            member.tool = tools::find(asked)?;
            member.names = wanted;
            let password = ask_password(&join.administrator, &member.realm)?;
            let by = Credentials { user: &join.administrator.user, password: &password };
            self.make_account(&member, &by)?;
            self.settle(&member, shared)?;
        }
        told(true, &self.joined(&member))
    }

    /// The names that the account needs beside those of a join.
    fn names(&self, member: &Membership, accounts: &ClusterAccounts) -> Vec<String> {
        let cluster = member.cluster.as_deref().unwrap_or_default();
        let own = node_of(self).map(|node| node.to_string());
        let others = if own.is_some() { accounts.nodes() } else { Vec::new() };
        names(member, cluster, own.into_iter().chain(others))
    }

    /// Removes the account of the cluster from the domain and from etcd, and its keys from this node. Other
    /// nodes that run forget them by themselves.
    pub(super) fn leave_cluster(&self, member: &Membership, by: &Administrator) -> Done {
        let accounts = ClusterAccounts::of(self)?;
        let shared = accounts.in_realm(&member.realm);
        let _alone = self.lock()?;
        let is_there = shared.pull()?;
        if is_there {
            let password = ask_password(by, &member.realm)?;
            let by = Credentials { user: &by.user, password: &password };
            let tool = tools::find(Some(member.tool)).or_else(|_| tools::find(None))?;
            let member = Membership { tool, ..member.clone() };
            let dir = Membership::dir(&self.state_dir, &member.realm);
            let keytab = dir.join("keytab.left");
            let calls = self.calls(&member, &keytab);
            if tool == Tool::Net && !NetSecrets::of(&dir).are_there() {
                // `net` leaves with what it has kept of a join.
                calls.join(&by, None)?;
            }
            calls.leave(&by)?;
            shared.remove()?;
        }
        member.forget(&self.state_dir)?;
        let cluster = member.cluster.as_deref().unwrap_or_default();
        let text = match is_there {
            true => format!(
                "The cluster {cluster} has left {}. Remove the keytab from [kerberos] of the configuration of \
                 each node, unless other realms use it.\n",
                member.realm
            ),
            false => format!(
                "The cluster {cluster} has left {} before; this node has forgotten its keys.\n",
                member.realm
            ),
        };
        told(true, &text)
    }

    /// Stores the keys that a controller has now, also if another node has stored others meanwhile: those of a
    /// password that a controller had before.
    pub(super) fn settle(&self, member: &Membership, shared: &SharedAccount<'_>) -> Done {
        if shared.push()? {
            return Ok(());
        }
        let keytab = super::membership::keytab_in(&self.state_dir);
        let is_ours = self.is_accepted(member, &keytab)? == Some(true);
        if is_ours && shared.push_over()? || !is_ours && shared.pull()? {
            return Ok(());
        }
        let text = format!(
            "{}: other nodes change the account at the same time; run: frevo domain renew {}",
            member.realm, member.realm
        );
        Err(Failure::new(Exit::Failed, text))
    }

    /// The findings about the accounts of the cluster. None without a cluster, or if etcd does not answer.
    pub(super) fn cluster_findings(&self) -> Vec<OfRealm> {
        let Some(config) = self.config.as_ref().filter(|config| config.cluster.is_on()) else {
            return Vec::new();
        };
        let host = crate::accounts::host_name();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let (Ok(runtime), Ok(settings)) =
            (runtime, configured::settings(config, host.as_str(), Vec::new()))
        else {
            return Vec::new();
        };
        let Ok(vault) = Vault::of(config, host.as_str(), runtime.handle().clone()) else {
            return Vec::new();
        };
        runtime.block_on(of_accounts(config, &settings, &vault))
    }
}
