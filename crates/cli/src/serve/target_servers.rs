//! The servers of targets in namespaces, as another process finds them ([`super::probe_targets`]): it is told
//! which servers the configuration names, and tells which of them answer and where they are.
//!
//! Only namespaces of the configuration name servers to it. Those that were made over the network do not: an
//! administrator of the server's shares could have it ask any host of its network.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use frevo_config::limits::PROBED_SERVERS;
use frevo_config::{Config, NamespaceSection, OrderingChoice};
use frevo_dfs::{Namespace, Ordering, State, Target};
use frevo_server::quoted::Quoted;
use frevo_server::{Server, TargetHealth, TargetServer};
use frevo_wire::fscc::fold_name;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;

use super::listen::SMB_PORT;
use super::loaded::Loaded;
use super::plan::Plan;
use super::probe_targets::{Report, Wanted};
use crate::accounts::host_name;

/// Time for the process to take a list.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest line of the process, bytes.
const LINE_BYTES: u64 = 1 << 16;

/// The process, as the server sees it.
#[derive(Debug, Default)]
pub(super) struct TargetServers {
    /// None without a process: at the start no namespace needed one.
    socket: Option<UnixStream>,
    known: Arc<Mutex<Known>>,
}

/// Servers by their names in lower case.
type Known = BTreeMap<String, TargetServer>;

impl TargetServers {
    /// Starts the process, if a namespace has servers to look after. Before the server is confined: then it
    /// can start none.
    pub(super) fn start(plan: &Plan) -> Self {
        if !plan.config.namespaces.iter().any(needs_process) {
            return Self::default();
        }
        match spawn() {
            Ok(socket) => Self { socket: Some(socket), ..Self::default() },
            Err(error) => {
                tracing::warn!(target: "frevo::server", %error,
                    "cannot start the process that probes the servers of targets; referrals are as if all answered");
                Self::default()
            }
        }
    }

    /// Tells the process which servers there are, and has `server` know what it finds.
    pub(super) fn begin(&self, server: &Server, loaded: &Loaded) {
        self.tell(server, loaded);
        let Some(socket) = self.socket.as_ref().and_then(|socket| socket.try_clone().ok()) else {
            return;
        };
        let (server, known) = (server.clone(), Arc::clone(&self.known));
        let name = String::from("frevo-targets");
        let started = std::thread::Builder::new().name(name).spawn(move || {
            follow(socket, &server, &known);
        });
        if let Err(error) = started {
            tracing::warn!(target: "frevo::server", %error, "the servers of targets are not probed");
        }
    }

    /// Tells the process the servers of a new configuration.
    pub(super) fn tell(&self, server: &Server, loaded: &Loaded) {
        let wanted = wanted(&loaded.plan.config, &loaded.namespaces);
        let Some(socket) = &self.socket else {
            if !wanted.is_empty() {
                tracing::warn!(target: "frevo::server", servers = wanted.len(),
                    "the servers of targets are neither probed nor resolved: restart frevo, which starts \
                     the process for that");
            }
            return;
        };
        {
            let mut known = self.known.lock();
            *known = wanted.iter().map(|wanted| kept(wanted, &mut known)).collect();
            server.set_target_servers(known.values().cloned());
        }
        let list: Value = wanted.iter().map(Wanted::object).collect();
        let mut socket = socket;
        if let Err(error) = socket.write_all(format!("{list}\n").as_bytes()) {
            tracing::warn!(target: "frevo::server", %error,
                "the process that probes the servers of targets does not take the new list");
        }
    }
}

/// A server of the new list, with what is known of it.
fn kept(wanted: &Wanted, known: &mut Known) -> (String, TargetServer) {
    let fresh = || TargetServer { name: wanted.name.clone(), ..TargetServer::default() };
    let mut server = known.remove(&wanted.name).unwrap_or_else(fresh);
    if wanted.probe_seconds.is_none() {
        server.health = TargetHealth::NotProbed;
    } else if server.health == TargetHealth::NotProbed {
        server.health = TargetHealth::Unknown;
    }
    (wanted.name.clone(), server)
}

/// True for a namespace whose servers may be looked after.
fn needs_process(section: &NamespaceSection) -> bool {
    let has_choice = section.links.iter().any(|link| link.targets.get_ref().len() > 1);
    let is_by_site =
        |ordering: Option<OrderingChoice>| matches!(ordering, None | Some(OrderingChoice::Site));
    let by_site = is_by_site(section.ordering)
        || section.links.iter().any(|link| link.ordering == Some(OrderingChoice::Site));
    !section.is_networked && (section.probe_seconds.is_some() || (has_choice && by_site))
}

/// Returns the servers to look after, each once: those of namespaces with `probe_seconds`, and those whose
/// addresses decide the order of targets. Not this server itself, by its names.
fn wanted(config: &Config, namespaces: &[Arc<Namespace>]) -> Vec<Wanted> {
    let host = host_name();
    let own = config.server.name.as_ref().unwrap_or(&host).as_str();
    let other_own = config.server.target_names.iter().flatten().map(|name| fold_name(name));
    let own: Vec<String> =
        [own, host.as_str(), "localhost"].into_iter().map(fold_name).chain(other_own).collect();
    let mut wanted: BTreeMap<String, Option<u32>> = BTreeMap::new();
    let by_config = config.namespaces.iter().filter(|section| !section.is_networked);
    for section in by_config {
        let is_it = |namespace: &&Arc<Namespace>| {
            fold_name(namespace.name()) == fold_name(section.name.get_ref().as_str())
        };
        let Some(namespace) = namespaces.iter().find(is_it) else { continue };
        for link in namespace.links().filter(|link| link.is_online()) {
            let ordering = link.ordering.unwrap_or(namespace.ordering);
            let online = || link.targets().iter().filter(|target| target.state == State::Online);
            let has_choice = ordering == Ordering::Site && online().count() > 1;
            for target in online() {
                if section.probe_seconds.is_some() || (has_choice && is_named(target)) {
                    let least = wanted.entry(fold_name(target.server())).or_default();
                    *least = match (*least, section.probe_seconds) {
                        (Some(one), Some(other)) => Some(one.min(other)),
                        (one, other) => one.or(other),
                    };
                }
            }
        }
    }
    wanted.retain(|name, _| !own.contains(name));
    if wanted.len() > PROBED_SERVERS {
        tracing::warn!(target: "frevo::server", servers = wanted.len(),
            "only {PROBED_SERVERS} servers of targets are probed and resolved, the first ones by name");
    }
    let all = wanted.into_iter().take(PROBED_SERVERS);
    all.map(|(name, probe_seconds)| Wanted { name, probe_seconds }).collect()
}

/// True for a target whose network does not follow from its text.
fn is_named(target: &Target) -> bool {
    target.site.is_none() && target.server().parse::<IpAddr>().is_err()
}

/// Starts this program again as the process that looks after servers.
fn spawn() -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_write_timeout(Some(PATIENCE))?;
    let output: OwnedFd = theirs.try_clone()?.into();
    let mut command = Command::new("/proc/self/exe");
    command.arg0("frevo-targets").arg("probe-targets").arg(port().to_string()).env_clear();
    command.process_group(0).stdin(Stdio::from(OwnedFd::from(theirs)));
    command.stdout(Stdio::from(output)).stderr(Stdio::null());
    // The process ends by itself when its socket is closed, so the server does not wait for it.
    command.spawn()?;
    Ok(ours)
}

/// The port that is probed.
fn port() -> u16 {
    #[cfg(feature = "test-hooks")]
    if let Some(port) =
        std::env::var("FREVO_TEST_TARGET_PORT").ok().and_then(|port| port.parse().ok())
    {
        return port;
    }
    SMB_PORT
}

/// Takes the reports of the process until it ends.
fn follow(socket: UnixStream, server: &Server, known: &Mutex<Known>) {
    let mut input = BufReader::new(socket);
    loop {
        let mut line = String::new();
        let read = input.by_ref().take(LINE_BYTES).read_line(&mut line);
        if !read.is_ok_and(|read| read > 0) || !line.ends_with('\n') {
            break;
        }
        let Some(report) = Report::parse(&line) else { continue };
        let mut known = known.lock();
        if let Some(there) = known.get_mut(&report.name) {
            note(there, report);
            server.set_target_servers(known.values().cloned());
        }
    }
    let mut known = known.lock();
    if !known.is_empty() {
        tracing::warn!(target: "frevo::server",
            "the process that probes the servers of targets has ended; referrals are as if all answered, \
             until frevo is restarted");
    }
    known.clear();
    server.set_target_servers([]);
}

/// Takes a report about a server, and tells a change of its health.
fn note(server: &mut TargetServer, report: Report) {
    server.addresses = report.addresses;
    let since = Timestamp::now().as_second();
    match (&server.health, report.answers) {
        (TargetHealth::Unknown, Some(true)) => server.health = TargetHealth::Answers { since },
        (TargetHealth::Fails { .. }, Some(true)) => {
            tracing::info!(target: "frevo::server", server = %Quoted(&server.name),
                "a server of targets answers again");
            server.health = TargetHealth::Answers { since };
        }
        (TargetHealth::Unknown | TargetHealth::Answers { .. }, Some(false)) => {
            let why = report.why.unwrap_or_default();
            tracing::warn!(target: "frevo::server", server = %Quoted(&server.name), why = %Quoted(&why),
                "a server of targets does not answer; referrals have it last");
            server.health = TargetHealth::Fails { since, why };
        }
        (TargetHealth::Fails { since, .. }, Some(false)) => {
            let (since, why) = (*since, report.why.unwrap_or_default());
            server.health = TargetHealth::Fails { since, why };
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configured;

    fn wanted_of(text: &str, networked: &str) -> Vec<(String, Option<u32>)> {
        let mut config = Config::parse(text).unwrap_or_else(|faults| panic!("{faults:?}"));
        for section in &mut config.namespaces {
            section.is_networked = section.name.get_ref().as_str() == networked;
        }
        let needs = config.namespaces.iter().any(needs_process);
        let namespaces = configured::namespaces(&mut config);
        let wanted = wanted(&config, &namespaces);
        assert!(needs || wanted.is_empty(), "{wanted:?}");
        wanted.into_iter().map(|wanted| (wanted.name, wanted.probe_seconds)).collect()
    }

    fn link(path: &str, targets: &str) -> String {
        format!("[[namespace.link]]\npath = '{path}'\ntargets = [{targets}]\n")
    }

    /// MS-DFSC 3.2.5.5: addresses decide only where there is a choice by site.
    #[test]
    fn servers_are_looked_after_once_and_where_it_matters() {
        let server = "[server]\nname = \"SELF\"\n[[site]]\nname = \"s\"\n";
        let one = [
            "[[namespace]]\nname = \"one\"\n",
            &link(
                "a",
                r"'\\A.test\x', '\\192.0.2.1\x', '\\self\x', { path = '\\c.test\x', site = 's' }",
            ),
            &link("b", r"'\\only.test\x'"),
            &link("c", r"'\\a.TEST\x', { path = '\\off.test\x', state = 'offline' }"),
        ]
        .concat();
        let found = wanted_of(&format!("{server}{one}"), "");
        assert_eq!(found, [(String::from("a.test"), None)]);
        let by_rank = format!("{server}{}", one.replacen('\n', "\nordering = 'priority'\n", 1));
        assert_eq!(wanted_of(&by_rank, ""), []);
        let two = [
            "[[namespace]]\nname = \"two\"\nprobe_seconds = 60\n",
            &link("a", r"'\\A.test\x', '\\192.0.2.1\y'"),
            "[[namespace]]\nname = \"three\"\nprobe_seconds = 10\nordering = \"random\"\n",
            &link("a", r"'\\192.0.2.1\y', '\\SELF\x', '\\localhost\x'"),
        ]
        .concat();
        let both = format!("{server}{one}{two}");
        let a = (String::from("a.test"), Some(60));
        assert_eq!(wanted_of(&both, ""), [(String::from("192.0.2.1"), Some(10)), a.clone()]);
        // A namespace that was made over the network names nobody.
        assert_eq!(wanted_of(&both, "three"), [(String::from("192.0.2.1"), Some(60)), a]);
    }

    #[test]
    fn a_report_changes_the_health() {
        let mut server = TargetServer { name: String::from("a"), ..TargetServer::default() };
        server.health = TargetHealth::Unknown;
        let report = |answers: Option<bool>| Report {
            name: String::from("a"),
            answers,
            why: answers.is_some_and(|answers| !answers).then(|| String::from("refused")),
            addresses: vec![IpAddr::from([192, 0, 2, 1])],
        };
        let mut states = String::new();
        for answers in [None, Some(true), Some(true), Some(false), Some(false), Some(true)] {
            note(&mut server, report(answers));
            states.push(match server.health {
                TargetHealth::NotProbed => '-',
                TargetHealth::Unknown => '?',
                TargetHealth::Answers { .. } => 'y',
                TargetHealth::Fails { .. } => 'n',
            });
        }
        assert_eq!((&*states, server.addresses.len()), ("?yynny", 1));
        // A server that is not probed any more has no health.
        let mut known = Known::from([(String::from("a"), server)]);
        let wanted = |probe_seconds| Wanted { name: String::from("a"), probe_seconds };
        let (_, resolved) = kept(&wanted(None), &mut known);
        assert_eq!((resolved.health, resolved.addresses.len()), (TargetHealth::NotProbed, 1));
        assert_eq!(kept(&wanted(Some(9)), &mut known).1.health, TargetHealth::Unknown);
    }
}
