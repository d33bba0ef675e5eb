//! `frevo check`: a configuration looked over without starting anything.

use frevo_config::{Config, RpcSection};

use crate::arguments::Check;
use crate::cluster::{self, Judged};
use crate::config_checks::{changeable_by_others, secrets_in_shares, unsupported, warnings};
use crate::config_review::of_shares;
use crate::config_sources::{Sources, text_of};
use crate::console::{print, print_text, tell};
use crate::exit::{Done, Exit, Failure, is_json};
use crate::findings::{Finding, known_users, place_of_administrators};
use crate::ldap::{Looked, LookedKind};
use crate::plural::counted;
use crate::serve::listen::addresses_of;
use crate::serve::run_accounts::user_map;
use crate::serve::{confine, directory, quic, snapshots};
use crate::{
    accounts, administrators, configured, keytab, ldap, namespace_loops, passwords, resolved, state,
};
use crate::{config_contradictions, config_names};

pub(crate) fn run(check: &Check) -> Done {
    let path = &check.config;
    let sources = Sources::read(path)?;
    let (config, faults) = sources.lenient();
    let mut findings: Vec<Finding> = faults
        .iter()
        .map(|fault| Finding {
            place: sources.place_of(fault),
            is_fault: true,
            text: text_of(fault),
        })
        .collect();
    let (mut users, mut administrators, mut ldap_line) = (0, String::new(), String::new());
    if let Some(config) = &config {
        let whole = (path.display().to_string(), None);
        findings.extend(of_shares(config, &sources));
        findings.extend(config_contradictions::find(config, &sources));
        findings.extend(of_snapshots(&snapshots::find(config), config, &sources));
        findings.extend(of_server(config, &whole));
        findings.extend(of_keytab(config, &sources));
        findings.extend(of_quic(config, &whole));
        findings.extend(of_name(config, &sources));
        findings.extend(of_domain_names(config, &sources));
        findings.extend(of_cluster(config, &whole));
        findings.extend(of_ldap(config, &whole, &mut ldap_line));
        findings.extend(of_namespaces(config, &whole));
        match accounts::read(&state::users_file_of(config)) {
            Ok(file) => {
                findings.extend(config_names::find(config, &file, &sources));
                users = known_users(config, &file).len();
                let keys = keytab::read(config).ok().flatten();
                let joined = administrators::joined(config, keys.as_ref());
                administrators = administrators::sentence(config, &file, &joined);
            }
            Err(failure) => findings.push(Finding {
                place: whole.clone(),
                is_fault: true,
                text: failure.to_string(),
            }),
        }
        let found = warnings(config).into_iter();
        findings.extend(found.map(|text| Finding { place: whole.clone(), is_fault: false, text }));
    }
    findings.sort_by(|a, b| (!a.is_fault, &a.place).cmp(&(!b.is_fault, &b.place)));
    let faults = findings.iter().filter(|finding| finding.is_fault).count();
    if is_json() {
        return report_json(&findings, faults, config.as_ref(), users);
    }
    for finding in &findings {
        tell(finding.shown());
    }
    if faults > 0 {
        let text = format!("{}: {} found", path.display(), counted(faults, "fault"));
        return Err(Failure::new(Exit::Config, text));
    }
    let config = config.unwrap_or_default();
    if check.resolved {
        return print_text(&resolved::text(&sources.table()));
    }
    let (shares, users) = (counted(config.shares.len(), "share"), counted(users, "user"));
    let confined = confine::outlook(config.server.confinement);
    let rpc = rpc_outlook(&config.rpc);
    let shown = path.display();
    let kept = snapshots_outlook(&config);
    let lines = format!(
        "{confined}\n{kept}{rpc}{ldap_line}{administrators}\n{shown}: ok ({shares}, {users})\n"
    );
    print_text(&lines)
}

/// The fault of the certificates for QUIC, or a warning.
fn of_quic(config: &Config, whole: &(String, Option<usize>)) -> Option<Finding> {
    let read = config.quic.is_on().then(|| quic::read(config))?;
    let finding = |is_fault, text| Some(Finding { place: whole.clone(), is_fault, text });
    match read {
        Err(failure) => finding(true, failure.to_string()),
        Ok(tls) => {
            let shown = quic::Files::named(config).certificate.display().to_string();
            let outlook = quic::Outlook::of(&tls.identity);
            finding(outlook.has_ended(), format!("{shown}: {}", outlook.sentence()?))
        }
    }
}

/// Looks at the directory of accounts. Returns what is wrong; `line` is for people where nothing is.
fn of_ldap(config: &Config, whole: &(String, Option<usize>), line: &mut String) -> Option<Finding> {
    let Looked { text, kind } = ldap::look(config)?;
    if kind == LookedKind::Fine {
        *line = format!("{text}\n");
        return None;
    }
    Some(Finding { place: whole.clone(), is_fault: kind == LookedKind::Fault, text })
}

/// Interlinks that lead in a circle. Faults of the namespaces themselves are told already.
fn of_namespaces(config: &Config, whole: &(String, Option<usize>)) -> Vec<Finding> {
    let made = config.namespaces.iter().map(|section| section.namespace(&config.shares));
    let namespaces: Vec<_> = made.filter_map(Result::ok).collect();
    let found = namespace_loops::find(config, &namespaces).into_iter();
    found.map(|text| Finding { place: whole.clone(), is_fault: false, text }).collect()
}

/// Returns lines about the snapshots that the server makes of shares.
fn snapshots_outlook(config: &Config) -> String {
    let line = |found: snapshots::FoundPlace| {
        let place = found.place.ok()?;
        Some(format!("snapshots of {}: of {place}, {}\n", found.share, found.schedule))
    };
    snapshots::find(config).into_iter().filter_map(line).collect()
}

/// Shares of which the server is to make snapshots, and cannot.
fn of_snapshots(
    found: &[snapshots::FoundPlace],
    config: &Config,
    sources: &Sources,
) -> Vec<Finding> {
    let finding = |found: &snapshots::FoundPlace| {
        let why = found.place.as_ref().err()?;
        let share = config.shares.iter().find(|share| found.is_of(share))?;
        let key = if found.is_optional { "keep_deleted" } else { "snapshots" };
        let place = sources.place_of_key(&share.name.span(), key);
        let mut text = format!("share {}: {why}", found.share);
        if found.is_optional {
            text.push_str("; until then its recycle bin alone keeps deleted files");
        }
        Some(Finding { place, is_fault: !found.is_optional, text })
    };
    let lacking = snapshots::lacking_rights(found).filter_map(|(found, why)| {
        let share = config.shares.iter().find(|share| found.is_of(share))?;
        let key = if found.is_optional { "keep_deleted" } else { "snapshots" };
        let place = sources.place_of_key(&share.name.span(), key);
        // The server may run as another user, or have further rights by its unit.
        let text = format!("share {}: with the rights of this command, {why}", found.share);
        Some(Finding { place, is_fault: false, text })
    });
    let incomplete = found.iter().filter_map(|found| {
        let share = config.shares.iter().find(|share| found.is_of(share))?;
        let key = if found.is_optional { "keep_deleted" } else { "snapshots" };
        let place = sources.place_of_key(&share.name.span(), key);
        let text = format!("share {}: {}", found.share, found.lacks.as_ref()?);
        Some(Finding { place, is_fault: false, text })
    });
    found.iter().filter_map(finding).chain(lacking).chain(incomplete).collect()
}

/// Returns a line about remote procedure calls over TCP; an empty text where they are off.
fn rpc_outlook(section: &RpcSection) -> String {
    if !section.is_on() {
        return String::new();
    }
    let port = match section.port() {
        0 => String::from("a port that the system chooses"),
        port => format!("port {port}"),
    };
    match section.mapper_port() {
        Some(mapper) => {
            format!("remote procedure calls over TCP: {port}, endpoint mapper on port {mapper}\n")
        }
        None => format!("remote procedure calls over TCP: {port}, no endpoint mapper\n"),
    }
}

fn report_json(findings: &[Finding], faults: usize, config: Option<&Config>, users: usize) -> Done {
    let found: Vec<serde_json::Value> = findings.iter().map(Finding::object).collect();
    let shares = config.map_or(0, |config| config.shares.len());
    let object = serde_json::json!({
        "ok": faults == 0, "shares": shares, "users": users, "findings": found,
    });
    print(format!("{object}\n").as_bytes())?;
    if faults == 0 {
        return Ok(());
    }
    Err(Failure::new(Exit::Config, format!("{} found", counted(faults, "fault"))))
}

/// The cluster that the server is to be a node of: etcd and the other nodes are asked.
fn of_cluster(config: &Config, whole: &(String, Option<usize>)) -> Vec<Finding> {
    if !config.cluster.is_on() {
        return Vec::new();
    }
    let finding = |judged: Judged| Finding {
        place: whole.clone(),
        is_fault: judged.is_fault,
        text: judged.text,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let host = accounts::host_name();
    let found = match runtime {
        Ok(runtime) => runtime.block_on(cluster::findings(config, host.as_str())),
        Err(error) => vec![Judged { is_fault: true, text: format!("no event loop: {error}") }],
    };
    found.into_iter().map(finding).collect()
}

/// Names of domains in rules of shares that are not resolved now.
fn of_domain_names(config: &Config, sources: &Sources) -> Vec<Finding> {
    let unresolved = directory::unresolved(config);
    let mut findings = Vec::new();
    for who in config.server.administrators() {
        let name = directory::name_of(who);
        let Some((_, why)) = unresolved.iter().find(|(of, _)| *of == name) else { continue };
        let text = format!(
            "administrators: {who} is not resolved: {why}; meanwhile nobody administers the server by it"
        );
        findings.push(Finding {
            place: place_of_administrators(config, sources),
            is_fault: false,
            text,
        });
    }
    for share in &config.shares {
        for who in share.names_of_domains() {
            let name = directory::name_of(who);
            let Some((_, why)) = unresolved.iter().find(|(of, _)| *of == name) else { continue };
            let text = format!(
                "share {}: {who} is not resolved: {why}; meanwhile a list that denies it refuses all \
                 users of domains, and one that allows it lets nobody in by it",
                share.name.get_ref()
            );
            let place = sources.place(&share.name.span());
            findings.push(Finding { place, is_fault: false, text });
        }
    }
    findings
}

/// A server that is not called like its machine account.
fn of_name(config: &Config, sources: &Sources) -> Option<Finding> {
    let keys = keytab::read(config).ok()??;
    let host = accounts::host_name();
    let name = config.server.name.as_ref().unwrap_or(&host);
    let text = keys.other_name(name.as_str())?;
    let span = config.kerberos.keytab.as_ref()?.span();
    Some(Finding { place: sources.place(&span), is_fault: false, text })
}

/// The fault of the keytab, at the key that names it.
fn of_keytab(config: &Config, sources: &Sources) -> Option<Finding> {
    let span = config.kerberos.keytab.as_ref()?.span();
    let failure = keytab::read(config).err()?;
    Some(Finding { place: sources.place(&span), is_fault: true, text: failure.to_string() })
}

/// Files and interfaces that the server needs.
fn of_server(config: &Config, whole: &(String, Option<usize>)) -> Vec<Finding> {
    let mut texts = Vec::new();
    texts.extend(unsupported(config));
    if let Err(failure) = user_map(config) {
        texts.push(failure.to_string());
    }
    for listen in &config.server.listen {
        if let Err(failure) = addresses_of(&listen.on) {
            texts.push(format!("listen: {failure}"));
        }
    }
    for user in &config.users {
        if let Err(failure) = passwords::from_file(&user.password_file) {
            texts.push(format!("user {}: {failure}", user.name.get_ref()));
        }
    }
    if let Err(why) = configured::audit::check(&config.audit) {
        texts.push(why);
    }
    texts.extend(secrets_in_shares(config, true));
    texts.extend(changeable_by_others(config, true));
    let finding = |text| Finding { place: whole.clone(), is_fault: true, text };
    texts.into_iter().map(finding).collect()
}
