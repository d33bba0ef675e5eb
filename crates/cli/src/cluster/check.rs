//! `frevo cluster check`, and the part of `frevo check` that is about a cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use frevo_auth::kerberos::Keytab;
use frevo_cluster::Settings;
use frevo_config::{Config, FenceChoice};
use frevo_etcd::client::Client;
use frevo_net::socket::interfaces;
use tokio::runtime::Handle;

use super::able::of_storage;
use super::dialect::of_dialect;
use super::domain_check::{of_accounts, of_nodes};
use super::judged::{Judged, fault, warning};
use super::report::{Report, can_be_one, now, read_all};
use super::storage::of_fences;
use super::vault::Vault;
use super::{certificate, options};
use crate::configured::cluster as configured;
use crate::console::{print, tell};
use crate::exit::{Done, Exit, Failure};
use crate::plural::counted;
use crate::{keytab, state};

/// Milliseconds by which the clocks of two nodes may differ, with the age of a report.
const CLOCK_TOLERANCE: u64 = 30_000;
/// Pause between two looks at the endpoints of etcd.
const ENDPOINTS_AGAIN: Duration = Duration::from_secs(10);
/// Days before the end of a certificate from which on it is told.
const CERTIFICATE_DAYS: i64 = 30;
const DAY: i64 = 86_400;

/// Looks at a cluster, and prints what was found.
pub(crate) async fn check(config: &Config, host: &str, as_json: bool) -> Done {
    if !config.cluster.is_on() {
        let why = "the configuration has no [cluster]; frevo cluster tells how to begin";
        return Err(Failure::new(Exit::NotFound, why));
    }
    let found = findings(config, host).await;
    let faults = found.iter().filter(|one| one.is_fault).count();
    if as_json {
        let object = |one: &Judged| {
            let kind = if one.is_fault { "fault" } else { "warning" };
            serde_json::json!({ "kind": kind, "message": one.text })
        };
        let rows: Vec<_> = found.iter().map(object).collect();
        let object = serde_json::json!({ "ok": faults == 0, "findings": rows });
        print(format!("{object}\n").as_bytes())?;
    } else {
        for one in &found {
            let weight = if one.is_fault { "" } else { "warning: " };
            tell(format!("{weight}{}", one.text));
        }
    }
    if faults > 0 {
        return Err(Failure::new(Exit::Config, format!("{} found", counted(faults, "fault"))));
    }
    if as_json { Ok(()) } else { print(b"cluster: ok\n") }
}

/// All that can be found from this machine.
pub(crate) async fn findings(config: &Config, host: &str) -> Vec<Judged> {
    let settings = match configured::settings(config, host, Vec::new()) {
        Ok(settings) => settings,
        Err(why) => return vec![fault(format!("[cluster]: {why}"))],
    };
    let mut found = of_configuration(config);
    found.extend(of_keytab(config));
    found.extend(of_certificates(config));
    found.extend(of_fences(config).await);
    let options = match options(config, &settings) {
        Ok(options) => options,
        Err(failure) => {
            found.push(fault(failure.to_string()));
            return found;
        }
    };
    let client = match Client::new(options, Handle::current()) {
        Ok(client) => client,
        Err(bad) => {
            found.push(fault(format!("[cluster]: {bad}")));
            return found;
        }
    };
    found.extend(of_etcd(&client, config).await);
    let vault = Vault::new(client.clone(), &settings, &state::dir_of(config));
    match read_all(&client, &settings).await {
        Ok(others) => {
            let own = Report::of(config).by(&settings);
            let looked = tokio::task::spawn_blocking(move || own.look()).await;
            if let Ok(own) = looked {
                found.extend(compare(&own, &others, now()));
                found.extend(of_nodes(&own.node, &others, &vault).await);
            }
        }
        Err(why) => found.push(fault(format!("the nodes cannot be compared: {why}"))),
    }
    if let Ok(units) = configured::units(config) {
        found.extend(of_storage(&client, &settings, &units).await);
    }
    found.extend(of_dialect(&client, &settings).await);
    let accounts = of_accounts(config, &settings, &vault).await;
    found.extend(accounts.into_iter().map(|one| one.judged));
    found.extend(of_names(&settings));
    found
}

/// Keys that are said aloud.
fn of_configuration(config: &Config) -> Vec<Judged> {
    let mut found = Vec::new();
    for share in config.shares.iter().filter(|share| share.cluster) {
        let name = share.name.get_ref();
        match config.fence_of(share) {
            None | Some(FenceChoice::None) => found.push(warning(format!(
                "share {name} has no fence: a node that was stopped in the middle of a write can \
                 still write, and the next owner waits for twice the time"
            ))),
            Some(_) => {}
        }
    }
    if config.cluster.endpoints.len() == 2 {
        found.push(warning("two endpoints: an etcd of two members fails with one of them"));
    }
    let open = config.cluster.endpoints.iter().find(|url| !url.is_secure() && !url.is_local());
    found.extend(open.map(|url| {
        warning(format!("{} is without TLS: whoever changes what is sent owns all shares", url.0))
    }));
    let wanted = config.cluster.addresses.iter();
    let wanted = wanted.chain(config.shares.iter().flat_map(|share| &share.addresses));
    let known: BTreeSet<_> =
        interfaces().unwrap_or_default().into_iter().map(|interface| interface.name).collect();
    for address in wanted {
        if let Some(name) = address.interface.as_ref().filter(|name| !known.contains(*name)) {
            found.push(fault(format!("this machine has no interface {name} for {address}")));
        }
    }
    found
}

/// The keytab, which clients of `\\CLUSTER\SHARE` need with a principal of that name.
fn of_keytab(config: &Config) -> Option<Judged> {
    let cluster = config.cluster.name.as_ref()?;
    let keys = keytab::read(config).ok()??;
    let bytes = keytab::bytes(config).ok()??;
    let entries = Keytab::parse(&bytes).ok()?.entries;
    let has_name = entries.iter().any(|entry| match &*entry.key.principal.components {
        [service, host] if service.eq_ignore_ascii_case("cifs") => {
            let host = host.split('.').next().unwrap_or_default();
            host.eq_ignore_ascii_case(&cluster.0)
        }
        _ => false,
    });
    (!has_name).then(|| {
        warning(format!(
            "the keytab has no key for cifs/{name}: clients that log on by Kerberos cannot use \
             \\\\{name}\\SHARE (keys are for {keys})",
            name = cluster.0
        ))
    })
}

/// Certificates that end soon.
fn of_certificates(config: &Config) -> Vec<Judged> {
    let section = &config.cluster;
    let files = [&section.ca, &section.certificate];
    let mut found = Vec::new();
    for path in files.into_iter().flatten() {
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        let shown = path.display();
        let Some(end) = certificate::first_end(&text) else {
            found.push(fault(format!("{shown} has no certificate in PEM")));
            continue;
        };
        let seconds = i64::try_from(now() / 1000).unwrap_or(i64::MAX);
        let left = end.saturating_sub(seconds);
        if left <= 0 {
            found.push(fault(format!("a certificate in {shown} has ended")));
        } else if left < CERTIFICATE_DAYS * DAY {
            let days = usize::try_from(left / DAY).unwrap_or_default();
            let days = counted(days, "day");
            found.push(warning(format!("a certificate in {shown} ends in {days}; renew it")));
        }
    }
    found
}

/// Members of etcd that do not answer or have no leader, and endpoints that are not of one etcd.
async fn of_etcd(client: &Client, config: &Config) -> Vec<Judged> {
    let states = client.status().await;
    let mut found = Vec::new();
    let total = states.len();
    let silent = states.iter().filter(|state| state.is_err()).count();
    for (state, url) in states.iter().zip(&config.cluster.endpoints) {
        if let Err(why) = state {
            let text = format!("{}: {why}", url.0);
            found.push(if silent == total { fault(text) } else { warning(text) });
        }
    }
    found.extend(client.prove().await.map(fault));
    found
}

/// Looks at the endpoints of a node from time to time, and logs when they are not of one etcd: the client
/// refuses all requests then, so the node serves nothing.
pub(crate) async fn look_at_endpoints(client: Client) {
    let mut told = None;
    loop {
        let found = client.prove().await;
        if let Some(why) = found.as_ref().filter(|_| found != told) {
            tracing::error!(target: "frevo::cluster", "{why}");
        }
        told = found;
        tokio::time::sleep(ENDPOINTS_AGAIN).await;
    }
}

/// Compares this node's configuration with the reports of all nodes.
fn compare(own: &Report, reports: &[Report], now: u64) -> Vec<Judged> {
    let mut found = Vec::new();
    for other in reports {
        let (node, is_own) = (&other.node, other.node == own.node);
        for (part, digest) in &other.parts {
            match own.parts.get(part) {
                Some(same) if same == digest => {}
                Some(_) if is_own => found.push(warning(format!(
                    "{part}: the server that runs here has other keys; restart it"
                ))),
                Some(_) => found.push(fault(format!(
                    "{part}: node {node} has other keys; write the same at all nodes"
                ))),
                None if !is_own => found.push(fault(format!(
                    "share {part} of node {node} is not in this configuration"
                ))),
                None => {}
            }
        }
        let missing = own.parts.keys().filter(|part| !is_own && !other.parts.contains_key(*part));
        found.extend(missing.map(|part| fault(format!("node {node} has no share {part}"))));
        for (share, folder) in other.folders.iter().filter(|_| !is_own) {
            let same = own.folders.get(share).map(|own| can_be_one(own, folder));
            if same == Some(false) {
                found.push(fault(format!(
                    "share {share}: the folder of node {node} is another one than here; all nodes \
                     need one file system"
                )));
            }
        }
        found.extend(of_sids(own, other).filter(|_| !is_own));
        let apart = now.abs_diff(other.at);
        if apart > CLOCK_TOLERANCE && !is_own {
            let seconds = usize::try_from(apart / 1000).unwrap_or(usize::MAX);
            found.push(warning(format!(
                "the clock of node {node} differs from the one here by some {}; Kerberos and times \
                 of files need clocks that agree",
                counted(seconds, "second")
            )));
        }
    }
    if reports.is_empty() {
        found.push(warning("no node is up: their configurations were not compared"));
    }
    found
}

/// Accounts that have another SID at another node: an access list that one node stores names nobody at the other
/// one, or somebody else.
fn of_sids(own: &Report, other: &Report) -> Option<Judged> {
    let (ours, theirs, node) = (own.sids.as_ref()?, other.sids.as_ref()?, &other.node);
    if let (Some(ours), Some(theirs)) = (&ours.machine, &theirs.machine)
        && ours != theirs
    {
        return Some(fault(format!(
            "the SID of node {node} is {theirs}, the one of this machine {ours}: access lists that one stores name \
             no account of the other; write one of them as sid of [server] at all nodes, and restart the others"
        )));
    }
    (ours.accounts != theirs.accounts).then(|| {
        fault(format!(
            "node {node} has other accounts, or has given them other numbers (RIDs), by which access lists name \
             them; copy the account file to all nodes"
        ))
    })
}

/// Names by which nodes can be confused.
fn of_names(settings: &Settings) -> Option<Judged> {
    (settings.node.as_str() == "localhost")
        .then(|| fault("this node is called localhost; set node of [cluster]"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_sid::AccountSids;

    fn report(node: &str, keys: &str) -> Report {
        let text = format!(
            "[cluster]\nname = \"c\"\nnode = \"{node}\"\nendpoints = [\"http://127.0.0.1\"]\n\
             [[share]]\nname = \"docs\"\npath = \"/srv/docs\"\ncluster = true\n{keys}\n"
        );
        let config = Config::parse(&text).unwrap();
        let settings = configured::settings(&config, "host", Vec::new()).unwrap();
        let mut report = Report::of(&config).by(&settings);
        report.folders.insert("docs".to_owned(), "5:7.1".to_owned());
        report.at = 1_000_000;
        report
    }

    fn texts(own: &Report, others: &[Report], now: u64) -> Vec<String> {
        compare(own, others, now).into_iter().map(|one| one.text).collect()
    }

    #[test]
    fn equal_nodes_are_in_order() {
        let own = report("n1", "");
        let others = [report("n1", ""), report("n2", "")];
        assert_eq!(texts(&own, &others, 1_005_000), Vec::<String>::new());
        assert!(texts(&own, &[], 0)[0].contains("no node is up"));
    }

    #[test]
    fn other_keys_folders_and_clocks_are_found() {
        let own = report("n1", "");
        let mut other = report("n2", "encrypt = true");
        other.folders.insert("docs".to_owned(), "6:7.1".to_owned());
        let found = texts(&own, std::slice::from_ref(&other), 2_000_000);
        assert!(found[0].contains("docs: node n2 has other keys"), "{found:?}");
        assert!(found[1].contains("the folder of node n2 is another one"), "{found:?}");
        assert!(found[2].contains("differs from the one here by some 1000 seconds"), "{found:?}");
        let mut running = other;
        running.node = "n1".to_owned();
        let found = texts(&own, &[running], 2_000_000);
        assert_eq!(found, ["docs: the server that runs here has other keys; restart it"]);
        let more = report("n2", "[[share]]\nname = \"b\"\npath = \"/b\"\ncluster = true");
        assert!(
            texts(&own, std::slice::from_ref(&more), 1_000_000)[0]
                .contains("is not in this configuration")
        );
        assert!(texts(&more, &[own], 1_000_000)[0].contains("node n1 has no share b"));
    }

    #[test]
    fn accounts_with_other_sids_are_found() {
        let with = |node: &str, machine: &str, accounts: &str| {
            let machine = (!machine.is_empty()).then(|| machine.to_owned());
            let mut report = report(node, "");
            report.sids = Some(AccountSids { machine, accounts: accounts.to_owned() });
            report
        };
        let own = with("n1", "S-1-5-21-1-2-3", "a");
        let found = |other: Report| texts(&own, &[other], 1_000_000);
        let none = Vec::<String>::new();
        assert_eq!(found(with("n2", "S-1-5-21-1-2-3", "a")), none);
        assert_eq!(found(report("n2", "")), none, "an earlier version tells nothing");
        assert_eq!(found(with("n1", "S-1-5-21-1-2-4", "a")), none, "before a restart");
        let other = found(with("n2", "S-1-5-21-1-2-4", "b"));
        let begin =
            "the SID of node n2 is S-1-5-21-1-2-4, the one of this machine S-1-5-21-1-2-3: ";
        assert!(other.len() == 1 && other[0].starts_with(begin), "{other:?}");
        for other in [with("n2", "S-1-5-21-1-2-3", "b"), with("n2", "", "b")] {
            let other = found(other);
            assert!(
                other.len() == 1 && other[0].starts_with("node n2 has other accounts"),
                "{other:?}"
            );
        }
    }

    #[test]
    fn a_share_without_a_fence_is_said_aloud() {
        let text = "[cluster]\nname = \"c\"\nendpoints = [\"http://192.0.2.1\", \"http://192.0.2.2\"]\n\
                    [[share]]\nname = \"docs\"\npath = \"/srv/docs\"\ncluster = true\n";
        let found = of_configuration(&Config::parse(text).unwrap());
        let has = |words: &str| found.iter().any(|one| one.text.contains(words));
        assert!(has("share docs has no fence") && has("two endpoints") && has("without TLS"));
    }
}
