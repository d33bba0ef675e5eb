//! The keys of the cluster's accounts in domains: this node has them from etcd at its start, and at each change.
//! They go to the keytab in the state directory, which the server reads by itself when it changes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use frevo_config::Config;
use frevo_etcd::types::Fault;
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::accounts::host_name;
use crate::cluster::{ClusterKey, Kept, Unreadable, Vault, unreachable};
use crate::domain::{forget_keys, place_keys};
use crate::exit::{Exit, Failure};
use crate::state;

/// Longest time for which a start waits for etcd.
const START_PATIENCE: Duration = Duration::from_secs(5);
/// Time between two questions while etcd does not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// Fetches the keys before the server reads its keytab. A node without etcd starts with the keys that it has.
pub(in crate::serve) fn fetch(config: &Config) {
    let dir = state::dir_of(config);
    if !config.cluster.is_on() || !matches!(ClusterKey::read(&dir), Ok(Some(_))) {
        return;
    }
    // The runtime ends with its threads: the process is confined while it has one thread.
    let fetched = std::thread::scope(|scope| {
        let fetched = scope.spawn(|| -> Result<(), Failure> {
            let runtime = Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(Failure::failed("cannot ask etcd"))?;
            let vault = Vault::of(config, host_name().as_str(), runtime.handle().clone())?;
            let all = async { timeout(START_PATIENCE, vault.all()).await };
            let found = runtime.block_on(all);
            let silent = || Fault::Unavailable("it takes too long".into());
            let found =
                found.unwrap_or_else(|_| Err(silent())).map_err(|fault| unreachable(&fault))?;
            Known::default().take(&vault, &found.accounts);
            Ok(())
        });
        fetched.join().unwrap_or_else(|_| Err(Failure::new(Exit::Failed, "internal error")))
    });
    if let Err(why) = fetched {
        tracing::warn!(target: "frevo::cluster",
            "the keys of the cluster's account in its domain may be old: {why}");
    }
}

/// Keeps the keys those of etcd, as long as the node runs.
pub(super) async fn keep(vault: Vault) {
    let mut known = Known::default();
    loop {
        let found = match vault.all().await {
            Ok(found) => found,
            Err(_) => {
                // The node itself tells that etcd does not answer.
                sleep(PAUSE).await;
                continue;
            }
        };
        let changed = Arc::new(Notify::new());
        let notify = Arc::clone(&changed);
        let watching = vault.watch(found.revision, Box::new(move |_| notify.notify_one()));
        // A disk may make it wait.
        let its = vault.clone();
        let taken = tokio::task::spawn_blocking(move || {
            known.take(&its, &found.accounts);
            known
        });
        let Ok(after) = taken.await else { return };
        known = after;
        changed.notified().await;
        drop(watching);
    }
}

/// The accounts that were in etcd at the last look.
#[derive(Debug, Default)]
struct Known {
    realms: BTreeSet<String>,
    /// The reasons that were told why accounts are not readable.
    told: Vec<Unreadable>,
}

impl Known {
    /// Takes the keys of the accounts in etcd. The keys of an account that is not there any more are forgotten:
    /// the cluster has left its domain.
    fn take(&mut self, vault: &Vault, accounts: &[Kept]) {
        let dir = vault.state_dir();
        let now: BTreeSet<String> = accounts.iter().map(|kept| kept.realm.clone()).collect();
        for realm in self.realms.difference(&now) {
            match forget_keys(dir, realm) {
                Ok(()) => tracing::warn!(target: "frevo::cluster", %realm,
                    "the cluster has left the domain; its keys are removed here"),
                Err(why) => tracing::error!(target: "frevo::cluster", %realm, "{why}"),
            }
        }
        self.realms = now;
        for kept in accounts {
            let realm = &kept.realm;
            match &kept.account {
                Ok(account) => match place_keys(dir, realm, &account.keytab) {
                    Ok(true) => tracing::info!(target: "frevo::cluster", %realm,
                        version = account.version(), "the keytab has the keys of the cluster's account"),
                    Ok(false) => {}
                    Err(why) => tracing::error!(target: "frevo::cluster", %realm,
                        "the keys of the cluster's account cannot be written: {why}"),
                },
                Err(why) if self.told.contains(why) => {}
                Err(why) => {
                    let sentence = why.sentence(realm, dir);
                    tracing::warn!(target: "frevo::cluster", "{sentence}");
                    self.told.push(why.clone());
                }
            }
        }
    }
}
