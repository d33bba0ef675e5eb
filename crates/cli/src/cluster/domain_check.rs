//! The part of `frevo cluster check` and `frevo domain status` that is about the cluster's accounts in domains.

use frevo_auth::kerberos::Keytab;
use frevo_cluster::Settings;
use frevo_config::Config;

use super::domain_account::{ClusterKey, DomainAccount};
use super::judged::{Judged, fault, warning};
use super::report::Report;
use super::vault::{Kept, Vault};
use crate::configured::cluster as configured;
use crate::{keytab, secret_file};

/// A thing that was found about the account in a realm.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OfRealm {
    pub(crate) realm: String,
    pub(crate) judged: Judged,
}

/// Looks at the accounts in etcd, and at the keytab and the key of this node.
pub(crate) async fn of_accounts(
    config: &Config,
    settings: &Settings,
    vault: &Vault,
) -> Vec<OfRealm> {
    // Without an answer of etcd other findings say so.
    let Ok(found) = vault.all().await else { return Vec::new() };
    let accounts = found.accounts.iter();
    let each = accounts.flat_map(|kept| {
        let found = of_account(config, settings, vault, kept);
        found.into_iter().map(|judged| OfRealm { realm: kept.realm.clone(), judged })
    });
    each.collect()
}

fn of_account(config: &Config, settings: &Settings, vault: &Vault, kept: &Kept) -> Vec<Judged> {
    let realm = &kept.realm;
    let account = match &kept.account {
        Ok(account) => account,
        Err(why) => return vec![fault(why.sentence(realm, vault.state_dir()))],
    };
    let mut found = Vec::new();
    found.extend(of_keytab(config, vault, realm, account).map(fault));
    if account.next_password.is_some() {
        found.push(warning(format!(
            "a change of the password of {}$ in {realm} has begun and has not ended: a node makes it now, or was \
             interrupted; run: frevo domain renew {realm}",
            account.computer()
        )));
    }
    let node = settings.node.to_string();
    let has_names = configured::names(config, settings).is_some();
    if has_names && !account.names().contains(&node) {
        found.push(warning(format!(
            "the account {}$ in {realm} has no name cifs/{node}: clients that log on by Kerberos cannot use \
             \\\\{node}\\SHARE; run at {node}: frevo domain join {realm} --cluster",
            account.computer()
        )));
    }
    found
}

/// The fault of this node's keytab, if it lacks the newest keys of an account.
fn of_keytab(
    config: &Config,
    vault: &Vault,
    realm: &str,
    account: &DomainAccount,
) -> Option<String> {
    let computer = account.computer();
    let newest = account.version()?;
    let Some(path) = keytab::path(config) else {
        let made = ClusterKey::path(vault.state_dir()).with_file_name("keytab");
        return Some(format!(
            "[kerberos] names no keytab, and the keys of {computer}$ are in {}: write it there as keytab, and \
             reload",
            made.display()
        ));
    };
    let bytes = match secret_file::read_bytes_in(vault.state_dir(), path) {
        Ok(bytes) => bytes.unwrap_or_default(),
        Err(failure) => return Some(failure.to_string()),
    };
    let shown = path.display();
    match version_in(&Keytab::parse(&bytes).unwrap_or_default(), realm) {
        Some(version) if version >= newest => None,
        version => {
            let has = version.map_or_else(
                || "no keys".to_owned(),
                |version| format!("version {version} of the keys"),
            );
            Some(format!(
                "the keytab {shown} has {has} of {computer}$ in {realm}, and the cluster has version {newest}: \
                 clients cannot log on by Kerberos here; start frevo, or run: frevo domain renew {realm}"
            ))
        }
    }
}

/// The newest version of the keys of a realm. None without any.
pub(super) fn version_in(keytab: &Keytab, realm: &str) -> Option<u32> {
    let ours = keytab.entries.iter().filter(|entry| entry.key.principal.realm == realm);
    ours.map(|entry| entry.key.kvno).max()
}

/// Finds other nodes whose keytabs lack the newest keys of an account, by their reports.
pub(super) async fn of_nodes(own: &str, reports: &[Report], vault: &Vault) -> Vec<Judged> {
    let Ok(found) = vault.all().await else { return Vec::new() };
    let newest = found.accounts.iter().filter_map(|kept| {
        let account = kept.account.as_ref().ok()?;
        Some(Newest { realm: &kept.realm, version: account.version()? })
    });
    let others: Vec<_> = reports.iter().filter(|report| report.node != own).collect();
    newest
        .flat_map(|newest| others.iter().filter_map(move |report| newest.missing(report)))
        .collect()
}

/// The newest keys of the cluster in a realm.
#[derive(Debug, Clone, Copy)]
struct Newest<'a> {
    realm: &'a str,
    version: u32,
}

impl Newest<'_> {
    /// Tells if the node of a report lacks the keys. A report of an earlier version tells nothing.
    fn missing(self, report: &Report) -> Option<Judged> {
        let Self { realm, version } = self;
        let (node, keys) = (&report.node, report.keys.as_ref()?);
        match keys.get(realm) {
            None => Some(fault(format!(
                "node {node} has no keys of {realm} in its keytab: clients cannot log on by Kerberos there; run \
                 at {node}: frevo domain join {realm} --cluster, and let keytab of [kerberos] name the keytab"
            ))),
            Some(theirs) if *theirs < version => Some(warning(format!(
                "node {node} has version {theirs} of the keys of {realm}, and the cluster has version {version}; if \
                 it stays so, see the log of frevo at {node}"
            ))),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_without_the_newest_keys_are_named() {
        let mut report = Report::default();
        report.node.push_str("n2");
        let newest = Newest { realm: "A.TEST", version: 4 };
        assert_eq!(newest.missing(&report), None, "an earlier version tells nothing");
        report.keys = Some([("B.TEST".to_owned(), 9)].into());
        let none = newest.missing(&report).unwrap();
        assert!(
            none.is_fault && none.text.starts_with("node n2 has no keys of A.TEST"),
            "{none:?}"
        );
        report.keys = Some([("A.TEST".to_owned(), 3)].into());
        let older = newest.missing(&report).unwrap();
        assert!(!older.is_fault && older.text.contains("has version 3 of the keys"), "{older:?}");
        report.keys = Some([("A.TEST".to_owned(), 4)].into());
        assert_eq!(newest.missing(&report), None);
    }
}
