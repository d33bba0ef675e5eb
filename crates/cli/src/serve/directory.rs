//! Names of users and groups of domains, by a process that asks controllers.
//!
//! The server is confined before it serves anybody, and connects to nobody. So this process starts
//! earlier, and shares nothing with the server but a socket, over which it gets the keytab. Another
//! process asks winbind, since that takes running programs.

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use frevo_auth::Zeroizing;
use frevo_auth::kerberos::Principal;
use frevo_config::{Config, Who};
use frevo_server::domain_names::{self, DomainDirectory, DomainSids, JoinedDomain, Lookup, Use};
use frevo_wire::dtyp::Sid;
use frevo_wire::fscc::fold_name;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::ask_directory::{
    Answer, DOMAINS, Entry, Kind, Machine, Question, Sources, fill, new_keytab,
};
use super::plan::Plan;
use crate::domain::membership::Membership;
use crate::exit::Failure;
use crate::{keytab, secret_file, state};

/// Names of one question.
const NAMES: usize = 256;

/// Time for an answer. An abandoned one is passed over when it comes.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time for all answers to `frevo check`.
const CHECK_PATIENCE: Duration = Duration::from_secs(3);
/// Longest answer, bytes.
const ANSWER_BYTES: u64 = 1 << 20;

/// The processes that are asked.
#[derive(Debug)]
pub(super) struct Directory {
    /// Asks controllers.
    controllers: Option<Mutex<Process>>,
    /// The names of the machine accounts, with their realms before them: `a.test\nas$`.
    machines: Vec<String>,
    /// The domains whose users log on by winbind: short names and DNS names, in lower case.
    winbind_domains: Vec<String>,
    /// Is asked for what controllers left open.
    winbind: Option<Mutex<Process>>,
    /// The file of SIDs for a later run. None for a server without state.
    kept: Option<PathBuf>,
    /// The keytab that the process which asks controllers is to have next.
    keytab: Mutex<Option<Zeroizing<Vec<u8>>>>,
}

#[derive(Debug)]
struct Process {
    socket: BufReader<UnixStream>,
    /// Number of the last question.
    last: u64,
}

impl Directory {
    /// Starts the processes, if the configuration names servers to ask: domains of winbind, or a
    /// keytab with the key of a machine account.
    pub(super) fn start(plan: &Plan) -> Result<Option<Arc<Self>>, Failure> {
        let Some(sources) = sources(&plan.config, plan.has_state)? else { return Ok(None) };
        let failed =
            |what: &str| Failure::failed(format!("cannot start the process that asks {what}"));
        let start = |sources: &Sources| {
            io::Result::Ok(Mutex::new(Process { socket: spawn(sources)?, last: 0 }))
        };
        let winbind = Sources { winbind: true, ..Sources::default() };
        let winbind = sources.winbind.then(|| start(&winbind)).transpose();
        let controllers = Sources { winbind: false, ..sources };
        let has_machines = !controllers.machines.is_empty();
        let name =
            |machine: &Machine| fold_name(&format!("{}\\{}", machine.realm, machine.account));
        let machines = controllers.machines.iter().map(name).collect();
        let domains = plan.config.server.winbind_domains.iter().flat_map(|list| list.get_ref());
        let controllers = has_machines.then(|| start(&controllers)).transpose();
        Ok(Some(Arc::new(Self {
            controllers: controllers.map_err(failed("controllers"))?,
            machines,
            winbind_domains: domains.map(|domain| fold_name(domain)).collect(),
            kept: plan.has_state.then(|| state::dir_of(&plan.config).join(state::DOMAIN_SIDS)),
            winbind: winbind.map_err(failed("winbind"))?,
            keytab: Mutex::default(),
        })))
    }

    /// Gives the process that asks controllers the keytab as it is now, as soon as it has answered the
    /// question that it is asked. The caller does not wait for that.
    pub(super) fn renew_keytab(self: &Arc<Self>, config: &Config) {
        if self.controllers.is_none() {
            return;
        }
        match keytab::bytes(config) {
            Ok(None) => {}
            Ok(Some(bytes)) => {
                *self.keytab.lock() = Some(bytes);
                let directory = Arc::clone(self);
                tokio::task::spawn_blocking(move || directory.tell_keytab());
            }
            Err(failure) => keeps_old_keytab(&failure),
        }
    }

    /// Tells the newest keytab, unless that has been done.
    fn tell_keytab(&self) {
        let Some(controllers) = &self.controllers else { return };
        let mut process = controllers.lock();
        let Some(bytes) = self.keytab.lock().take() else { return };
        if let Err(error) = process.tell(&new_keytab(&bytes)) {
            keeps_old_keytab(&error);
        }
    }

    /// Asks, and returns as many answers as the question has parts.
    fn ask(&self, question: &Question) -> Answer {
        let mut answer = match &self.controllers {
            Some(controllers) => controllers.lock().answer(question),
            None => nobody(question.len(), "nobody was asked"),
        };
        if let Some(winbind) = self.winbind.as_ref().filter(|_| answer.silent.is_some()) {
            let Answer { entries, silent } = winbind.lock().answer(&question.left(&answer.entries));
            fill(&mut answer.entries, entries);
            answer.silent = silent;
        }
        answer
    }

    /// True for a domain that the server may still be a member of: one with a machine account, or,
    /// without any, one of winbind. The administrators of a domain that was left are none here.
    fn may_be_member(&self, domain: &JoinedDomain) -> bool {
        let (name, dns_name) = (fold_name(&domain.name), fold_name(&domain.dns_name));
        if self.machines.is_empty() {
            let is_it = |known: &String| *known == name || *known == dns_name;
            return self.winbind_domains.iter().any(is_it);
        }
        let mut realms = self.machines.iter().filter_map(|machine| machine.split_once('\\'));
        realms.any(|(realm, _)| realm == dns_name)
    }
}

fn keeps_old_keytab(why: &dyn fmt::Display) {
    tracing::warn!(target: "frevo::server", %why,
        "the process that asks controllers keeps the old keytab; reload the server");
}

/// The answer when no server knows anything.
fn nobody(count: usize, why: &str) -> Answer {
    Answer { entries: vec![None; count], silent: Some(String::from(why)) }
}

/// The servers that can be asked. None when there are none.
fn sources(config: &Config, has_state: bool) -> Result<Option<Sources>, Failure> {
    let domains = config.server.winbind_domains.as_ref();
    let winbind = domains.is_some_and(|domains| !domains.get_ref().is_empty());
    // With Kerberos realms the accounts are those of this server, so no directory is asked for
    // names.
    let machines = match config.kerberos.realms.is_some() {
        true => Vec::new(),
        false => machines(config, has_state)?,
    };
    let keytab = match machines.is_empty() {
        true => Zeroizing::default(),
        false => keytab::bytes(config)?.unwrap_or_default(),
    };
    let is_one = winbind || !machines.is_empty();
    Ok(is_one.then_some(Sources { keytab, machines, winbind }))
}

/// The machine accounts of the keytab, with the controllers that administrators named.
fn machines(config: &Config, has_state: bool) -> Result<Vec<Machine>, Failure> {
    let Some(keys) = keytab::read(config)? else { return Ok(Vec::new()) };
    let members = match has_state {
        // A fault in a membership is reported by `frevo domain status`; here it only means that
        // there are no memberships.
        true => Membership::all(&state::dir_of(config), None).unwrap_or_default(),
        false => Vec::new(),
    };
    let machine = |principal: Principal| {
        let member = members.iter().find(|member| member.realm == principal.realm);
        let controller = member.and_then(|member| member.controller.clone());
        Machine { account: principal.components.concat(), realm: principal.realm, controller }
    };
    Ok(keys.machines.into_iter().take(DOMAINS).map(machine).collect())
}

/// Asks for the names of domains in rules of shares. Returns those that are not resolved, with the
/// reason; none when the configuration names no server to ask, which is a fault of its own.
pub(crate) fn unresolved(config: &Config) -> Vec<(String, String)> {
    let mut names: Vec<String> = config.names_of_domains().map(name_of).collect();
    names.sort_unstable();
    names.dedup();
    // A fault of the keytab is reported elsewhere; here it only means that no names can be looked
    // up.
    let Some(sources) = sources(config, true).ok().flatten().filter(|_| !names.is_empty()) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let end = Instant::now() + CHECK_PATIENCE;
    let sources = Arc::new(sources);
    for names in names.chunks(NAMES) {
        let answer = ask_until(&sources, Question::Names(names.to_vec()), end);
        let reason = answer.silent.unwrap_or_else(|| String::from("its domain has no such name"));
        let open = names.iter().zip(&answer.entries).filter(|(_, entry)| entry.is_none());
        found.extend(open.map(|(name, _)| (name.clone(), reason.clone())));
    }
    found
}

/// Asks on a thread of its own, and abandons the answer at `end`.
fn ask_until(sources: &Arc<Sources>, question: Question, end: Instant) -> Answer {
    let count = question.len();
    let (sender, answer) = std::sync::mpsc::channel();
    let sources = Arc::clone(sources);
    let asking = std::thread::Builder::new().spawn(move || {
        // The send fails if nobody waits any more.
        let _ = sender.send(sources.ask_here(&question));
    });
    let answer = asking.map_err(|error| error.to_string()).and_then(|_| {
        let left = end.saturating_duration_since(Instant::now());
        let late = |_| String::from("the controllers do not answer in time");
        answer.recv_timeout(left).map_err(late)?.map_err(|error| error.to_string())
    });
    answer.unwrap_or_else(|why| nobody(count, &why))
}

/// The name in an entry of a list, without the mark of groups.
pub(crate) fn name_of(who: &Who) -> String {
    fold_name(who.group().unwrap_or(who.as_str()))
}

/// SIDs as the file keeps them.
fn kept_object(sids: &DomainSids) -> Value {
    let names: Map<String, Value> =
        sids.by_name().map(|(name, sid)| (name.to_owned(), json!(sid.to_string()))).collect();
    let joined = sids
        .joined()
        .iter()
        .map(|domain| json!([domain.name, domain.dns_name, domain.sid.to_string()]));
    json!({ "names": names, "joined": joined.collect::<Vec<_>>() })
}

fn parse_kept(text: &str) -> Option<DomainSids> {
    let object: Value = serde_json::from_str(text).ok()?;
    let names = object.get("names")?.as_object()?.iter();
    let name = |(name, sid): (&String, &Value)| Some((name.clone(), sid.as_str()?.parse().ok()?));
    let domain = |of: &Value| {
        let text = |at: usize| of.get(at)?.as_str();
        let (name, dns_name) = (text(0)?.to_owned(), text(1)?.to_owned());
        Some(JoinedDomain { name, dns_name, sid: text(2)?.parse().ok()? })
    };
    let joined = object.get("joined")?.as_array()?.iter().filter_map(domain).collect();
    Some(names.filter_map(name).collect::<DomainSids>().with_joined(joined))
}

/// Starts this program again as a process that asks.
fn spawn(sources: &Sources) -> io::Result<BufReader<UnixStream>> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(PATIENCE))?;
    ours.set_write_timeout(Some(PATIENCE))?;
    let output: OwnedFd = theirs.try_clone()?.into();
    let mut command = Command::new("/proc/self/exe");
    command.arg0("frevo-directory").arg("ask-directory").env_clear();
    if sources.winbind {
        command.arg0("frevo-winbind").arg("--winbind");
    }
    if let Some(name) = std::env::var_os("KRB5_CONFIG") {
        command.env("KRB5_CONFIG", name);
    }
    command.process_group(0).stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::from(output));
    command.stderr(Stdio::null());
    // The process ends by itself when its socket is closed, so the server does not wait for it.
    command.spawn()?;
    let line = Zeroizing::new(sources.object().to_string());
    writeln!(&ours, "{}", *line)?;
    Ok(BufReader::new(ours))
}

impl Process {
    /// Asks, and returns as many answers as the question has parts.
    fn answer(&mut self, question: &Question) -> Answer {
        let count = question.len();
        let silent = |why: &dyn fmt::Display| {
            nobody(count, &format!("{why}; restart the server if that goes on"))
        };
        match self.exchange(question) {
            Ok(answer) if answer.entries.len() == count => answer,
            Ok(_) => silent(&"an answer to something else"),
            Err(error) => silent(&error),
        }
    }

    fn tell(&mut self, line: &Value) -> io::Result<()> {
        let line = Zeroizing::new(line.to_string());
        writeln!(self.socket.get_mut(), "{}", *line)
    }

    fn exchange(&mut self, question: &Question) -> io::Result<Answer> {
        self.last += 1;
        writeln!(self.socket.get_mut(), "{}", question.object(self.last))?;
        loop {
            let mut line = String::new();
            self.socket.by_ref().take(ANSWER_BYTES).read_line(&mut line)?;
            if !line.ends_with('\n') {
                return Err(io::Error::other("the process that asks controllers has ended"));
            }
            match Answer::parse(&line) {
                Some((id, answer)) if id == self.last => return Ok(answer),
                Some((id, _)) if id < self.last => {}
                _ => return Err(io::Error::other("an answer to nothing")),
            }
        }
    }
}

impl DomainDirectory for Directory {
    fn sids(&self, names: &[String]) -> Lookup<Sid> {
        let answer = self.ask(&Question::Names(names.to_vec()));
        let sid = |entry: Option<Entry>| entry.map(|entry| entry.sid);
        Lookup { found: answer.entries.into_iter().map(sid).collect(), silent: answer.silent }
    }

    fn principals(&self, sids: &[Sid]) -> Lookup<domain_names::Principal> {
        let answer = self.ask(&Question::Sids(sids.to_vec()));
        let principal = |entry: Option<Entry>| {
            let Entry { sid, domain, name, kind } = entry?;
            let kind = match kind {
                Kind::User => Use::User,
                Kind::Group => Use::Group,
                Kind::Alias => Use::Alias,
            };
            Some(domain_names::Principal { sid, domain, name, kind })
        };
        let found = answer.entries.into_iter().map(principal).collect();
        Lookup { found, silent: answer.silent }
    }

    fn kept(&self) -> DomainSids {
        // A file that is missing or damaged is as good as none: controllers are asked anyway.
        let text = self.kept.as_deref().and_then(|path| secret_file::read(path).ok().flatten());
        let kept = text.as_deref().and_then(|text| parse_kept(text)).unwrap_or_default();
        let joined = kept.joined().iter().filter(|domain| self.may_be_member(domain));
        let joined = joined.cloned().collect();
        kept.with_joined(joined)
    }

    fn keep(&self, sids: &DomainSids) {
        let Some(path) = &self.kept else { return };
        if let Err(failure) = secret_file::replace(path, &kept_object(sids).to_string()) {
            tracing::warn!(target: "frevo::server", %failure,
                "the SIDs of names in rules are not kept for the next start");
        }
    }

    /// The domains of the machine accounts. Without a keytab winbind tells its own.
    fn joined(&self) -> Lookup<JoinedDomain> {
        let answer = match self.machines.is_empty() {
            false => self.ask(&Question::Names(self.machines.clone())),
            true => match &self.winbind {
                Some(winbind) => winbind.lock().answer(&Question::Own),
                None => return Lookup { found: Vec::new(), silent: None },
            },
        };
        let is_account = !self.machines.is_empty();
        let domain = |(at, entry): (usize, Option<Entry>)| {
            let Entry { sid, domain, name, .. } = entry?;
            // The realm of a machine account is the DNS name of its domain. Winbind tells that in
            // place of a name.
            let realm = self.machines.get(at).and_then(|machine| machine.split_once('\\'));
            let dns_name = realm.map_or(name, |(realm, _)| realm.to_owned());
            let sid = if is_account { sid.split_rid()?.0 } else { sid };
            Some(JoinedDomain { name: domain, dns_name, sid })
        };
        let found = answer.entries.into_iter().enumerate().map(domain).collect();
        Lookup { found, silent: answer.silent }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A directory that nobody answers for.
    fn idle() -> Directory {
        Directory {
            controllers: None,
            machines: Vec::new(),
            winbind_domains: Vec::new(),
            kept: None,
            winbind: None,
            keytab: Mutex::default(),
        }
    }

    /// The server was a member of A, and is one of another domain whose controllers are silent.
    #[test]
    fn a_domain_that_was_left_is_not_joined() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(state::DOMAIN_SIDS);
        let sid = "S-1-5-21-1-2-3".parse().unwrap();
        let (name, dns_name) = (String::from("A"), String::from("A.test"));
        let joined = vec![JoinedDomain { name, dns_name, sid }];
        let kept = DomainSids::default().with_joined(joined.clone());
        let of = |machines: &[&str], winbind_domains: &[&str]| {
            let texts = |of: &[&str]| of.iter().map(|text| String::from(*text)).collect();
            let (machines, winbind_domains) = (texts(machines), texts(winbind_domains));
            let directory =
                Directory { machines, winbind_domains, kept: Some(path.clone()), ..idle() };
            directory.keep(&kept);
            directory.kept().joined().to_vec()
        };
        for (machines, winbind_domains) in [
            (&["b.test\\nas$"][..], &[][..]),
            (&["b.test\\nas$"], &["a"]),
            (&[], &["b", "b.test"]),
            (&[], &[]),
        ] {
            assert_eq!(of(machines, winbind_domains), [], "{machines:?} {winbind_domains:?}");
        }
        let both = &["b.test\\nas$", "a.test\\nas$"][..];
        for (machines, winbind_domains) in [(both, &[][..]), (&[], &["a"]), (&[], &["a.test"])] {
            assert_eq!(of(machines, winbind_domains), joined, "{machines:?} {winbind_domains:?}");
        }
    }

    #[test]
    fn sids_are_kept() {
        let sid = |text: &str| text.parse::<Sid>().unwrap();
        let known = [(String::from("a\\staff"), sid("S-1-5-21-1-2-3-1108"))];
        let (name, dns_name) = (String::from("A"), String::from("a.test"));
        let joined = vec![JoinedDomain { name, dns_name, sid: sid("S-1-5-21-1-2-3") }];
        let known = known.into_iter().collect::<DomainSids>().with_joined(joined);
        let text = kept_object(&known).to_string();
        assert_eq!(parse_kept(&text), Some(known));
        for damaged in ["", "{}", "{\"names\":{}}", "[1]"] {
            assert_eq!(parse_kept(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn each_answer_is_that_of_its_question() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let process = Process { socket: BufReader::new(ours), last: 4 };
        let directory = Directory {
            controllers: Some(Mutex::new(process)),
            machines: Vec::new(),
            winbind_domains: Vec::new(),
            kept: None,
            winbind: None,
            keytab: Mutex::default(),
        };
        let entry = "[\"S-1-5-21-1-2-3-1108\",\"A\",\"staff\",2]";
        let mut answers = String::from("{\"id\":4,\"entries\":[null,null],\"silent\":null}\n");
        answers += &format!("{{\"id\":5,\"entries\":[{entry},null],\"silent\":\"late\"}}\n");
        answers += &format!("{{\"id\":6,\"entries\":[{entry}],\"silent\":null}}\n");
        answers += "{\"id\":7,\"entries\":[],\"silent\":null}\n{\"id\":99,\"entries\":[],\"silent\":null}\n";
        theirs.write_all(answers.as_bytes()).unwrap();
        let sid: Sid = "S-1-5-21-1-2-3-1108".parse().unwrap();
        let names = ["A\\staff", "A\\x"].map(String::from);
        let late = Some(String::from("late"));
        assert_eq!(directory.sids(&names), Lookup { found: vec![Some(sid), None], silent: late });
        let Lookup { found, silent } = directory.principals(&[sid]);
        let staff = found[0].as_ref().unwrap();
        assert_eq!((&*staff.domain, &*staff.name, staff.kind), ("A", "staff", Use::Group));
        assert_eq!(silent, None);
        for word in ["something else", "to nothing"] {
            let Lookup { found, silent } = directory.principals(&[sid]);
            assert!(found == [None] && silent.unwrap().contains(word));
        }
        drop(theirs);
        let Lookup { found, silent } = directory.sids(&names);
        assert!(found == [None, None] && silent.is_some());
    }
    /// Winbind is asked for what the controllers left open, when they were silent.
    #[test]
    fn winbind_is_asked_for_what_is_open() {
        let process = |answer: &str| {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(answer.as_bytes()).unwrap();
            (Some(Mutex::new(Process { socket: BufReader::new(ours), last: 0 })), theirs)
        };
        let entry = |rid: u32| format!("[\"S-1-5-21-1-2-3-{rid}\",\"A\",\"n\",2]");
        let answer = format!("{{\"id\":1,\"entries\":[{},null],\"silent\":\"x\"}}\n", entry(1108));
        let (controllers, _keeps) = process(&answer);
        let answer = format!("{{\"id\":1,\"entries\":[{}],\"silent\":null}}\n", entry(1109));
        let (winbind, asked) = process(&answer);
        let directory = Directory { controllers, winbind, ..idle() };
        let Lookup { found, silent } = directory.sids(&["A\\n", "A\\m"].map(String::from));
        let sids: Vec<String> = found.into_iter().flatten().map(|sid| sid.to_string()).collect();
        assert_eq!(sids, ["S-1-5-21-1-2-3-1108", "S-1-5-21-1-2-3-1109"]);
        assert_eq!(silent, None);
        let mut line = String::new();
        BufReader::new(asked).read_line(&mut line).unwrap();
        assert!(line.contains("A\\\\m") && !line.contains("A\\\\n"), "{line}");
    }
    /// A question holds the process for as long as controllers are silent. The server goes on.
    #[tokio::test]
    async fn a_new_keytab_waits_for_no_answer() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("keytab");
        let text = format!("[kerberos]\nkeytab = {:?}\n", path.to_str().unwrap());
        let config = Config::parse(&text).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let process = Process { socket: BufReader::new(ours), last: 0 };
        let controllers = Some(Mutex::new(process));
        let directory = Arc::new(Directory {
            controllers,
            machines: Vec::new(),
            winbind_domains: Vec::new(),
            kept: None,
            winbind: None,
            keytab: Mutex::default(),
        });
        let question = directory.controllers.as_ref().unwrap().lock();
        for keytab in ["old", "new"] {
            std::fs::write(&path, keytab).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            directory.renew_keytab(&config);
        }
        drop(question);
        let told = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(theirs).read_line(&mut line).unwrap();
            line
        });
        assert_eq!(told.await.unwrap().trim_end(), new_keytab(b"new").to_string());
    }
}
