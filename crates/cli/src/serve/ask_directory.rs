//! The process that resolves names of domains for the server: `frevo ask-directory`.
//!
//! A line of standard input is a question, a line of standard output its answer; the first line says
//! who can be asked. Domain controllers are asked over SMB (MS-LSAT) as the machine account of the
//! keytab. What they leave open winbind is asked.

use std::io::{self, BufRead, Write as _};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use frevo_auth::Zeroizing;
use frevo_client::internal::Kdcs;
use frevo_client::{Account, AccountKind, Client, Credentials, Kerberos, Options, Session};
use frevo_wire::dtyp::Sid;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::ask_winbind::{hex, unhex};
use super::confine::helpers;
use crate::exit::{Done, Failure};
use crate::wbinfo::{self, OwnDomain, wbinfo, wbinfo_of};

/// Time for an answer of the controllers of one domain.
const PATIENCE: Duration = Duration::from_secs(4);
/// Time in which a domain is not asked again after its controllers were silent.
const DOWN: Duration = Duration::from_secs(8);
/// Most controllers of a domain that are tried.
const CONTROLLERS: usize = 3;
/// Most domains.
pub(super) const DOMAINS: usize = 8;
/// Most names or SIDs of a question.
const QUESTIONS: usize = 512;
/// Longest question, bytes, and longest line with a keytab.
const QUESTION_BYTES: u64 = 4 << 20;

/// The machine account of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) realm: String,
    /// With its `$`.
    pub(super) account: String,
    /// The controller that the administrator named.
    pub(super) controller: Option<String>,
}

/// Those who can be asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sources {
    /// The bytes of the keytab.
    pub(super) keytab: Zeroizing<Vec<u8>>,
    pub(super) machines: Vec<Machine>,
    pub(super) winbind: bool,
}

impl Sources {
    pub(super) fn object(&self) -> Value {
        let machine = |of: &Machine| json!([of.realm, of.account, of.controller]);
        let machines: Vec<Value> = self.machines.iter().map(machine).collect();
        let keytab = Zeroizing::new(hex(&self.keytab));
        json!({ "keytab": *keytab, "machines": machines, "winbind": self.winbind })
    }

    /// Asks once, without a process of its own.
    pub(super) fn ask_here(&self, question: &Question) -> io::Result<Answer> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answer = runtime.block_on(ask(&mut self.domains(), question));
        // A thread of the runtime may wait for DNS much longer than the answer may take.
        runtime.shutdown_background();
        Ok(self.with_winbind(question, answer))
    }

    fn domains(&self) -> Vec<Domain> {
        self.machines.iter().take(DOMAINS).map(|machine| Domain::new(machine, self)).collect()
    }

    fn with_winbind(&self, question: &Question, answer: Answer) -> Answer {
        let is_open = self.winbind && answer.silent.is_some();
        if is_open { ask_winbind(question, answer) } else { answer }
    }

    fn parse(line: &str) -> Option<Self> {
        let object: Value = serde_json::from_str(line).ok()?;
        let machine = |of: &Value| {
            let text = |at: usize| of.get(at)?.as_str().map(String::from);
            Some(Machine { realm: text(0)?, account: text(1)?, controller: text(2) })
        };
        Some(Self {
            keytab: keytab_of(&object)?,
            machines: object.get("machines")?.as_array()?.iter().filter_map(machine).collect(),
            winbind: object.get("winbind")?.as_bool()?,
        })
    }
}

/// The line that replaces the keytab.
pub(super) fn new_keytab(bytes: &[u8]) -> Value {
    let keytab = Zeroizing::new(hex(bytes));
    json!({ "keytab": *keytab })
}

fn keytab_of(object: &Value) -> Option<Zeroizing<Vec<u8>>> {
    unhex(object.get("keytab")?.as_str()?).map(Zeroizing::new)
}

/// A question: names such as `EXAMPLE\staff`, or SIDs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Question {
    Names(Vec<String>),
    Sids(Vec<Sid>),
    /// The domain that winbind is a member of.
    Own,
}

impl Question {
    pub(super) fn object(&self, id: u64) -> Value {
        match self {
            Self::Names(names) => json!({ "id": id, "names": names }),
            Self::Own => json!({ "id": id, "own": true }),
            Self::Sids(sids) => {
                let sids: Vec<String> = sids.iter().map(ToString::to_string).collect();
                json!({ "id": id, "sids": sids })
            }
        }
    }

    fn parse(line: &str) -> Option<(u64, Self)> {
        let object: Value = serde_json::from_str(line).ok()?;
        let id = object.get("id")?.as_u64()?;
        let texts = |key: &str| -> Option<Vec<&str>> {
            object.get(key)?.as_array()?.iter().take(QUESTIONS).map(Value::as_str).collect()
        };
        if let Some(names) = texts("names") {
            return Some((id, Self::Names(names.into_iter().map(String::from).collect())));
        }
        if object.get("own").is_some() {
            return Some((id, Self::Own));
        }
        let sids: Option<Vec<Sid>> = texts("sids")?.iter().map(|sid| sid.parse().ok()).collect();
        Some((id, Self::Sids(sids?)))
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Names(names) => names.len(),
            Self::Own => 1,
            Self::Sids(sids) => sids.len(),
        }
    }

    /// The part without the answers that there are.
    pub(super) fn left(&self, answers: &[Option<Entry>]) -> Self {
        fn open<T: Clone>(all: &[T], answers: &[Option<Entry>]) -> Vec<T> {
            let open = all.iter().zip(answers).filter(|(_, answer)| answer.is_none());
            open.map(|(one, _)| one.clone()).collect()
        }
        match self {
            Self::Names(names) => Self::Names(open(names, answers)),
            Self::Own => Self::Own,
            Self::Sids(sids) => Self::Sids(open(sids, answers)),
        }
    }
}

/// A user or a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) sid: Sid,
    pub(super) domain: String,
    pub(super) name: String,
    pub(super) kind: Kind,
}

/// The kind of an entry, by its number of MS-SAMR 2.2.2.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    User = 1,
    Group = 2,
    /// A group that is local to its domain.
    Alias = 4,
}

impl Kind {
    const fn of_number(number: u64) -> Option<Self> {
        match number {
            // 9 is the account of a computer.
            1 | 9 => Some(Self::User),
            // 5 is a well-known group.
            2 | 5 => Some(Self::Group),
            4 => Some(Self::Alias),
            _ => None,
        }
    }
}

/// The answer: an entry for each name or SID, and the reason why a server was silent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) entries: Vec<Option<Entry>>,
    pub(super) silent: Option<String>,
}

impl Answer {
    fn object(&self, id: u64) -> Value {
        let entry = |of: &Option<Entry>| {
            of.as_ref().map(|of| json!([of.sid.to_string(), of.domain, of.name, of.kind as u8]))
        };
        let entries: Vec<_> = self.entries.iter().map(entry).collect();
        json!({ "id": id, "entries": entries, "silent": self.silent })
    }

    pub(super) fn parse(line: &str) -> Option<(u64, Self)> {
        let object: Value = serde_json::from_str(line).ok()?;
        let entry = |of: &Value| {
            let text = |at: usize| of.get(at)?.as_str();
            Some(Entry {
                sid: text(0)?.parse().ok()?,
                domain: text(1)?.to_owned(),
                name: text(2)?.to_owned(),
                kind: Kind::of_number(of.get(3)?.as_u64()?)?,
            })
        };
        let entries =
            object.get("entries")?.as_array()?.iter().take(QUESTIONS).map(entry).collect();
        let silent = object.get("silent").and_then(Value::as_str).map(String::from);
        Some((object.get("id")?.as_u64()?, Self { entries, silent }))
    }
}

/// Answers questions until the server has ended.
pub(crate) fn run(winbind: bool) -> Done {
    // The name of the thread only helps in process lists, so an error is ignored.
    if winbind {
        let _ = rustix::thread::set_name(c"frevo-winbind");
        helpers::confine_winbind(false);
    } else {
        let _ = rustix::thread::set_name(c"frevo-directory");
        helpers::confine_directory();
    }
    let mut stdin = io::stdin().lock();
    let Some(mut sources) = line(&mut stdin).as_deref().and_then(|line| Sources::parse(line))
    else {
        return Ok(());
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed("cannot start the event loop"))?;
    let mut domains = sources.domains();
    while let Some(line) = line(&mut stdin) {
        if let Some(keytab) = serde_json::from_str(&line).ok().as_ref().and_then(keytab_of) {
            sources.keytab = keytab;
            domains = sources.domains();
            continue;
        }
        let Some((id, question)) = Question::parse(&line) else { return Ok(()) };
        let answer = runtime.block_on(ask(&mut domains, &question));
        let answer = sources.with_winbind(&question, answer);
        let mut stdout = io::stdout().lock();
        let told = writeln!(stdout, "{}", answer.object(id)).and_then(|()| stdout.flush());
        if told.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn line(input: &mut impl BufRead) -> Option<Zeroizing<String>> {
    let mut line = Zeroizing::new(String::new());
    let length = io::Read::take(input, QUESTION_BYTES).read_line(&mut line).ok()?;
    (length > 0).then_some(line)
}

/// Asks the controllers of each domain for what those before it did not know.
async fn ask(domains: &mut [Domain], question: &Question) -> Answer {
    let mut answer = Answer { entries: vec![None; question.len()], silent: None };
    if domains.is_empty() {
        answer.silent = Some(String::from("the keytab has no key of a machine account"));
    }
    for domain in domains {
        let left = question.left(&answer.entries);
        if left.len() == 0 {
            break;
        }
        match domain.ask(&left).await {
            Ok(found) => fill(&mut answer.entries, found),
            Err(reason) => answer.silent = Some(reason),
        }
    }
    answer
}

/// Puts answers about what was open into its places.
pub(super) fn fill(entries: &mut [Option<Entry>], found: Vec<Option<Entry>>) {
    let open = entries.iter_mut().filter(|entry| entry.is_none());
    for (entry, found) in open.zip(found) {
        *entry = found;
    }
}

/// The controllers of a domain.
struct Domain {
    machine: Machine,
    keytab: Zeroizing<Vec<u8>>,
    session: Option<Session>,
    down: Option<(Instant, String)>,
}

impl Domain {
    fn new(machine: &Machine, sources: &Sources) -> Self {
        let keytab = sources.keytab.clone();
        Self { machine: machine.clone(), keytab, session: None, down: None }
    }

    async fn ask(&mut self, question: &Question) -> Result<Vec<Option<Entry>>, String> {
        if let Some((until, reason)) = &self.down
            && Instant::now() < *until
        {
            return Err(reason.clone());
        }
        // If the session with the controller was lost, the second attempt opens a new one.
        let had_session = self.session.is_some();
        let mut answer = self.attempt(question).await;
        if answer.is_err() && had_session {
            answer = self.attempt(question).await;
        }
        self.down = answer.as_ref().err().map(|why| (Instant::now() + DOWN, why.clone()));
        answer
    }

    async fn attempt(&mut self, question: &Question) -> Result<Vec<Option<Entry>>, String> {
        let realm = self.machine.realm.clone();
        let late = |_| format!("the controllers of {realm} do not answer in time");
        let exchange = async {
            let session = match self.session.take() {
                Some(session) => session,
                None => self.connect().await?,
            };
            let entries = entries(&session, question).await;
            let entries = entries.map_err(|error| format!("{realm}: {error}"))?;
            self.session = Some(session);
            Ok(entries)
        };
        timeout(PATIENCE, exchange).await.map_err(late)?
    }

    async fn connect(&self) -> Result<Session, String> {
        let Machine { realm, account, controller } = &self.machine;
        let user = format!("{account}@{realm}");
        // The controller that was named at the join is also the KDC, so krb5.conf and DNS need not
        // name one.
        let named = controller.as_deref().and_then(Kdcs::named);
        let kerberos = Kerberos::from_keytab_bytes(&self.keytab, &user, named.clone());
        let hosts = match named {
            Some(named) => vec![named],
            None => Kdcs::of(realm).await.hosts,
        };
        let kerberos = kerberos.map_err(|error| error.to_string())?;
        let mut reason = format!("no controller of {realm} is known");
        for (host, _) in hosts.iter().take(CONTROLLERS) {
            if host.parse::<IpAddr>().is_ok() {
                reason = format!(
                    "krb5.conf names the controller by its address ({host}), and there are no tickets \
                     for addresses; write its full name there"
                );
                continue;
            }
            let options = Options::default().recover_for(Duration::ZERO).channels(1);
            let client = Client::new(options);
            let credentials = Credentials::kerberos(kerberos.clone());
            match client.connect(host.as_str(), credentials).await {
                Ok(session) => return Ok(session),
                Err(error) => reason = format!("{host}: {error}"),
            }
        }
        Err(reason)
    }
}

/// Asks a controller. Names need two questions: the second tells how they are written.
async fn entries(
    session: &Session,
    question: &Question,
) -> Result<Vec<Option<Entry>>, frevo_client::Error> {
    let sids: Vec<Option<frevo_client::Sid>> = match question {
        Question::Names(names) => {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            session.lookup_names(&names).await?
        }
        Question::Sids(sids) => sids.iter().map(|sid| sid.to_string().parse().ok()).collect(),
        // Only winbind is asked for its own domain.
        Question::Own => vec![None],
    };
    let known: Vec<_> = sids.iter().flatten().copied().collect();
    let mut accounts = session.lookup_sids(&known).await?.into_iter();
    let mut entry = |sid: Option<frevo_client::Sid>| {
        sid.and_then(|_| accounts.next().flatten()).as_ref().and_then(entry_of)
    };
    Ok(sids.into_iter().map(&mut entry).collect())
}

fn entry_of(account: &Account) -> Option<Entry> {
    let kind = match account.kind {
        AccountKind::User | AccountKind::Computer => Kind::User,
        AccountKind::Group => Kind::Group,
        AccountKind::Alias => Kind::Alias,
        _ => return None,
    };
    let sid = account.sid.to_string().parse().ok()?;
    Some(Entry { sid, domain: account.domain.clone(), name: account.name.clone(), kind })
}

/// Asks winbind for what is left open.
fn ask_winbind(question: &Question, mut answer: Answer) -> Answer {
    let left = question.left(&answer.entries);
    let asked: io::Result<Vec<Option<Entry>>> = match &left {
        Question::Names(names) => names.iter().map(|name| by_name(name)).collect(),
        Question::Sids(sids) => sids.iter().map(by_sid).collect(),
        Question::Own => own_domain().map(|domain| vec![domain]),
    };
    match asked {
        Ok(found) => {
            let is_open = found.iter().any(Option::is_none);
            fill(&mut answer.entries, found);
            // wbinfo gives the same answer for an unknown name and for an unreachable controller,
            // so the controller is probed.
            answer.silent = match is_open.then(|| wbinfo("--ping-dc")) {
                Some(Err(error)) => Some(error.to_string()),
                _ => None,
            };
        }
        Err(error) => answer.silent = Some(error.to_string()),
    }
    answer
}

/// The domain that winbind is a member of. Its DNS name stands in place of the entry's name.
fn own_domain() -> io::Result<Option<Entry>> {
    let entry = |domain: OwnDomain| {
        let OwnDomain { name, dns_name, sid } = domain;
        Entry { sid, domain: name, name: dns_name, kind: Kind::Group }
    };
    Ok(wbinfo::own_domain()?.map(entry))
}

fn by_name(name: &str) -> io::Result<Option<Entry>> {
    let Some(said) = wbinfo_of(&format!("--name-to-sid={name}"))? else { return Ok(None) };
    match said.split_whitespace().next().and_then(|sid| sid.parse().ok()) {
        Some(sid) => by_sid(&sid),
        None => Ok(None),
    }
}

fn by_sid(sid: &Sid) -> io::Result<Option<Entry>> {
    let said = wbinfo_of(&format!("--sid-to-name={sid}"))?;
    Ok(said.as_deref().and_then(|said| named(said, *sid)))
}

/// Reads `DOMAIN\name 2`: the last word is the kind (MS-SAMR 2.2.2.3).
fn named(said: &str, sid: Sid) -> Option<Entry> {
    let (name, kind) = said.trim().rsplit_once(' ')?;
    let (domain, name) = name.split_once('\\')?;
    let kind = Kind::of_number(kind.parse().ok()?)?;
    Some(Entry { sid, domain: domain.to_owned(), name: name.to_owned(), kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(rid: u32) -> Entry {
        let sid = Sid::new(5, &[21, 1, 2, 3, rid]).unwrap();
        Entry {
            sid,
            domain: "A".into(),
            name: format!("n{rid}\n"),
            kind: if rid.is_multiple_of(2) { Kind::Alias } else { Kind::User },
        }
    }

    #[test]
    fn lines_are_read_as_they_are_written() {
        let machine = |controller: Option<&str>| Machine {
            realm: "A.TEST".into(),
            account: "NAS$".into(),
            controller: controller.map(String::from),
        };
        let sources = Sources {
            keytab: Zeroizing::new(vec![5, 2, 10]),
            machines: vec![machine(None), machine(Some("dc1"))],
            winbind: true,
        };
        let line = sources.object().to_string();
        assert!(!line.contains('\n'));
        assert_eq!(Sources::parse(&line), Some(sources));
        assert_eq!(keytab_of(&new_keytab(&[7, 8])), Some(Zeroizing::new(vec![7, 8])));
        for question in [
            Question::Names(vec!["A\\b\nc".into(), String::new()]),
            Question::Sids(vec![entry(7).sid, Sid::EVERYONE]),
            Question::Own,
        ] {
            let line = question.object(9).to_string();
            assert!(!line.contains('\n') && keytab_of(&question.object(9)).is_none());
            assert_eq!(Question::parse(&line), Some((9, question)));
        }
        for silent in [None, Some(String::from("no\none"))] {
            let answer = Answer { entries: vec![Some(entry(7)), None, Some(entry(8))], silent };
            let line = answer.object(3).to_string();
            assert!(!line.contains('\n'));
            assert_eq!(Answer::parse(&line), Some((3, answer)));
        }
        for bad in
            ["", "{}", "{\"id\":1}", "{\"id\":1,\"sids\":[\"x\"]}", "{\"id\":1,\"names\":[1]}"]
        {
            assert_eq!((Question::parse(bad), Answer::parse(bad)), (None, None), "{bad}");
        }
    }

    #[test]
    fn the_next_domain_is_asked_for_what_is_open() {
        let question = Question::Names(["a", "b", "c"].map(String::from).to_vec());
        let mut entries = vec![None, Some(entry(1)), None];
        assert_eq!(question.left(&entries), Question::Names(vec!["a".into(), "c".into()]));
        fill(&mut entries, vec![None, Some(entry(2))]);
        assert_eq!(entries, [None, Some(entry(1)), Some(entry(2))]);
        let sids = Question::Sids(vec![entry(1).sid, entry(2).sid, entry(3).sid]);
        assert_eq!(sids.left(&entries), Question::Sids(vec![entry(1).sid]));
    }

    #[test]
    fn names_that_winbind_says() {
        let sid = entry(1).sid;
        let found = named("A\\Domain Users 2\n", sid).unwrap();
        assert_eq!((&*found.domain, &*found.name), ("A", "Domain Users"));
        for (said, kind) in [
            ("A\\Domain Users 2\n", Kind::Group),
            ("A\\Readers 4", Kind::Alias),
            ("A\\ann 1\n", Kind::User),
            ("A\\nas$ 9", Kind::User),
        ] {
            assert_eq!(named(said, sid).unwrap().kind, kind, "{said}");
        }
        for bad in ["", "A\\ann", "ann 1", "A\\ann 3", "A\\ann 8"] {
            assert_eq!(named(bad, sid), None, "{bad}");
        }
    }

    /// A domain whose controllers are silent is not asked again at once, and holds up nobody.
    #[tokio::test]
    async fn a_silent_domain_is_left_alone() {
        let machine = Machine {
            realm: "NOWHERE.TEST".into(),
            account: "NAS$".into(),
            controller: Some("127.0.0.1".into()),
        };
        let sources = Sources::default();
        let mut domains = [Domain::new(&machine, &sources)];
        let question = Question::Names(vec!["A\\b".into()]);
        let first = ask(&mut domains, &question).await;
        assert!(first.silent.as_ref().unwrap().contains("the keytab is damaged"), "{first:?}");
        assert_eq!(first.entries, [None]);
        let until = domains[0].down.as_ref().unwrap().0;
        let second = ask(&mut domains, &question).await;
        assert_eq!((second, domains[0].down.as_ref().unwrap().0), (first, until));
        let nobody = ask(&mut [], &question).await;
        assert!(nobody.silent.unwrap().contains("machine account"));
    }
}
