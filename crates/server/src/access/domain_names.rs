//! Names of users and groups of domains: SIDs for those in rules of shares, and names for SIDs.
//!
//! A thread of its own asks somebody who may wait, so no core and no logon waits for a controller.
//! SIDs of rules are asked for before they are needed, and again from time to time. While nobody
//! answers, known answers count; a name without one is not resolved, and rules then give nothing.

mod cache;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use frevo_wire::dtyp::Sid;
use frevo_wire::fscc::fold_name;
use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

pub use crate::access::principals::{Principal, Use};
use crate::base::limits::{
    DOMAIN_NAME_CHARS, DOMAIN_NAMES_AGAIN, DOMAIN_NAMES_DOWN, DOMAIN_NAMES_FRESH,
    DOMAIN_NAMES_PER_QUESTION, DOMAIN_NAMES_QUESTIONS, DOMAIN_NAMES_TIMEOUT,
};
use cache::Cache;

/// Answers in the order of the questions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup<T> {
    /// The answers; None for a name or SID that there is not, or that nobody has answered for.
    pub found: Vec<Option<T>>,
    /// The reason why somebody has not answered; None means nothing is left open by this.
    pub silent: Option<String>,
}

/// Somebody who knows the users and groups of domains, such as their controllers. It may block,
/// for some seconds at most.
pub trait DomainDirectory: Send + Sync + fmt::Debug {
    /// Returns the SIDs of names such as `example\staff`.
    fn sids(&self, names: &[String]) -> Lookup<Sid>;

    /// Returns the users and groups of SIDs.
    fn principals(&self, sids: &[Sid]) -> Lookup<Principal>;

    /// Returns the SIDs that an earlier run of the server kept.
    fn kept(&self) -> DomainSids {
        DomainSids::default()
    }

    /// Keeps SIDs for a later run, which may start while nobody answers.
    fn keep(&self, _: &DomainSids) {}

    /// Returns the domains that the server is a member of. A domain that nobody has answered for is
    /// None.
    fn joined(&self) -> Lookup<JoinedDomain> {
        Lookup { found: Vec::new(), silent: None }
    }
}

/// A domain that the server is a member of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedDomain {
    /// The short name.
    pub name: String,
    /// The DNS name; empty where it is not known.
    pub dns_name: String,
    /// The SID, below which its users and groups have theirs.
    pub sid: Sid,
}

/// The SIDs of names of domains that rules have, by name in lower case, and the joined domains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DomainSids {
    by_name: HashMap<String, Sid>,
    joined: Vec<JoinedDomain>,
}

impl DomainSids {
    /// Returns the SID of a name in lower case. None while it is not resolved.
    pub fn find(&self, name: &str) -> Option<&Sid> {
        self.by_name.get(name)
    }

    /// Returns the joined domains, as far as their SIDs are known.
    pub fn joined(&self) -> &[JoinedDomain] {
        &self.joined
    }

    /// Returns the SIDs by name.
    pub fn by_name(&self) -> impl Iterator<Item = (&str, &Sid)> {
        self.by_name.iter().map(|(name, sid)| (name.as_str(), sid))
    }

    /// Leaves SIDs of this machine out.
    fn of_domains(mut self) -> Self {
        self.by_name.retain(|_, sid| is_of_domain(sid));
        self.joined.retain(|domain| is_of_domain(&domain.sid));
        self
    }

    /// Replaces the joined domains.
    #[must_use]
    pub fn with_joined(self, joined: Vec<JoinedDomain>) -> Self {
        Self { joined, ..self }
    }
}

impl FromIterator<(String, Sid)> for DomainSids {
    fn from_iter<I: IntoIterator<Item = (String, Sid)>>(names: I) -> Self {
        Self { by_name: names.into_iter().collect(), joined: Vec::new() }
    }
}

/// Nobody has answered: there may be such a user or group, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoAnswer;

/// The user or group of a SID. None if nobody has the SID.
pub(crate) type Told = Result<Option<Principal>, NoAnswer>;

/// A question of a client, and the way of its answer.
enum Question {
    /// The names of rules have changed.
    Rules,
    Sid(Sid, SyncSender<Told>),
    Name(String, SyncSender<Option<Principal>>),
}

/// The names that are known, and the thread that asks for others.
#[derive(Default)]
pub(crate) struct DomainNames {
    questions: OnceLock<SyncSender<Question>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Names that rules have, in lower case.
    wanted: Mutex<BTreeSet<String>>,
    sids: ArcSwap<DomainSids>,
    cache: Mutex<Cache>,
    /// The time until which nobody is asked, after a question without an answer.
    down_until: Mutex<Option<Instant>>,
    /// The names of rules that have been asked for last.
    asked: Mutex<Option<BTreeSet<String>>>,
    told: Condvar,
    /// Wakes the review of open sessions after other SIDs have come.
    changed: Notify,
}

impl DomainNames {
    /// Sets who is asked, and starts the thread. A second call does nothing.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub(crate) fn start(&self, directory: Arc<dyn DomainDirectory>) -> io::Result<()> {
        let (sender, questions) = sync_channel(DOMAIN_NAMES_QUESTIONS);
        if self.questions.set(sender).is_err() {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        shared.sids.store(Arc::new(directory.kept().of_domains()));
        let asking = Asking { directory, shared, silent: false, missing: BTreeSet::new() };
        // The thread ends as soon as the server drops the sender of this channel.
        std::thread::Builder::new()
            .name(String::from("frevo-names"))
            .spawn(move || asking.run(&questions))
            .map(drop)
    }

    /// Takes the names that rules have from now on, in lower case, and has all of them asked for.
    pub(crate) fn want(&self, names: BTreeSet<String>) {
        *self.shared.wanted.lock() = names;
        // Names that were there before are asked for too: their SIDs may have changed.
        if let Some(questions) = self.questions.get() {
            // If the queue is full, the question is dropped, because the thread soon looks up the
            // names of the rules anyway.
            let _ = questions.try_send(Question::Rules);
        }
    }

    /// The SIDs of names in rules.
    pub(crate) fn sids(&self) -> Guard<Arc<DomainSids>> {
        self.shared.sids.load()
    }

    /// Waits until the SIDs of names in rules, or of the joined domains, are others than they were.
    pub(crate) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Waits until the names of rules have been asked for, for `patience` at most. Returns the
    /// names that are not resolved.
    pub(crate) fn wait(&self, patience: Duration) -> Vec<String> {
        if self.questions.get().is_some() {
            let mut asked = self.shared.asked.lock();
            let end = Instant::now() + patience;
            let is_done = |asked: &Option<BTreeSet<String>>| {
                let (wanted, sids) = (self.shared.wanted.lock(), self.sids());
                // With SIDs that were kept nobody has to wait.
                let is_kept =
                    !sids.joined.is_empty() && wanted.iter().all(|name| sids.find(name).is_some());
                asked.as_ref() == Some(&*wanted) || is_kept
            };
            while !is_done(&asked) {
                if self.shared.told.wait_until(&mut asked, end).timed_out() {
                    break;
                }
            }
        }
        let sids = self.sids();
        let wanted = self.shared.wanted.lock();
        wanted.iter().filter(|name| sids.find(name).is_none()).cloned().collect()
    }

    /// Takes what a controller has told about a user who logs on.
    pub(crate) fn learn(&self, user: Principal) {
        if is_of_domain(&user.sid) {
            self.shared.cache.lock().learn_sid(user.sid, Some(user), Instant::now());
        }
    }

    /// Returns the user or group of a domain with this SID, if it is known. Nobody is asked.
    pub(crate) fn known(&self, sid: &Sid) -> Option<Principal> {
        self.shared.cache.lock().by_sid(sid, Instant::now()).flatten()
    }

    /// Returns the user or group of a domain with this SID. It may wait until `deadline`, or for
    /// [`DOMAIN_NAMES_TIMEOUT`], so no core may call it.
    pub(crate) fn find_sid(&self, sid: &Sid, deadline: Instant) -> Option<Principal> {
        self.look_up_sid(sid, deadline).ok().flatten()
    }

    /// Like [`Self::find_sid`], with the difference between nobody and no answer.
    pub(crate) fn look_up_sid(&self, sid: &Sid, deadline: Instant) -> Told {
        if !is_of_domain(sid) {
            return Ok(None);
        }
        let known = self.shared.cache.lock().by_sid(sid, Instant::now());
        let ask = || self.ask(deadline, |answer| Question::Sid(*sid, answer));
        known.map_or_else(|| ask().unwrap_or(Err(NoAnswer)), Ok)
    }

    /// True if there is somebody who can be asked.
    pub(crate) fn has_directory(&self) -> bool {
        self.questions.get().is_some()
    }

    /// Returns the user or group with a name such as `EXAMPLE\staff`, as [`Self::find_sid`] does.
    pub(crate) fn find_name(&self, name: &str, deadline: Instant) -> Option<Principal> {
        let name = normal(name)?;
        let known = self.shared.cache.lock().by_name(&name, Instant::now());
        let ask = || self.ask(deadline, |answer| Question::Name(name, answer));
        known.unwrap_or_else(|| ask().flatten())
    }

    /// Asks, and returns the answer. None when there is none in time.
    fn ask<T>(
        &self,
        deadline: Instant,
        question: impl FnOnce(SyncSender<T>) -> Question,
    ) -> Option<T> {
        let patience = deadline.saturating_duration_since(Instant::now()).min(DOMAIN_NAMES_TIMEOUT);
        if patience.is_zero() || self.shared.is_down() {
            return None;
        }
        let (answer, answered) = sync_channel(1);
        self.questions.get()?.try_send(question(answer)).ok()?;
        let answer = answered.recv_timeout(patience).ok();
        // `patience` is the time that this request could still wait. If it was short, a missing answer
        // does not show that the directory is down.
        if answer.is_none() && patience > DOMAIN_NAMES_TIMEOUT / 2 {
            *self.shared.down_until.lock() = Some(Instant::now() + DOMAIN_NAMES_DOWN);
        }
        answer
    }
}

impl fmt::Debug for DomainNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DomainNames").field("sids", &self.sids()).finish_non_exhaustive()
    }
}

/// Returns a name of a domain in lower case, as `domain\name`; None for a name without a domain, and
/// for one that no domain can have.
fn normal(name: &str) -> Option<String> {
    if name.chars().any(char::is_control) || name.chars().nth(DOMAIN_NAME_CHARS).is_some() {
        return None;
    }
    let (domain, name) = match (name.split_once('\\'), name.split_once('@')) {
        (Some((domain, name)), _) | (None, Some((name, domain))) => (domain, name),
        (None, None) => return None,
    };
    let is_one = !domain.is_empty() && !name.is_empty() && !name.contains('\\');
    is_one.then(|| fold_name(&format!("{domain}\\{name}")))
}

/// True for a SID that a domain gives, MS-DTYP 2.4.2.4. No directory may say that a name of a domain
/// is a group of this machine.
pub(crate) fn is_of_domain(sid: &Sid) -> bool {
    sid.authority() == 5 && sid.sub_authorities().first() == Some(&21)
}

impl Shared {
    fn is_down(&self) -> bool {
        self.down_until.lock().is_some_and(|until| Instant::now() < until)
    }
}

/// The thread that asks.
struct Asking {
    directory: Arc<dyn DomainDirectory>,
    shared: Arc<Shared>,
    /// True while nobody answers, which the log has told.
    silent: bool,
    /// Names in rules that there are not, which the log has told.
    missing: BTreeSet<String>,
}

impl Asking {
    fn run(mut self, questions: &Receiver<Question>) {
        let mut next = Instant::now();
        loop {
            if next <= Instant::now() {
                next = Instant::now() + self.resolve_rules();
            }
            match questions.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Question::Rules) => next = Instant::now(),
                // A failed send is ignored, because it means that the client no longer waits for
                // the answer.
                Ok(Question::Sid(sid, answer)) => drop(answer.send(self.by_sid(&sid))),
                Ok(Question::Name(name, answer)) => drop(answer.send(self.by_name(&name))),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Asks for the names of rules. Returns the time until the next time.
    fn resolve_rules(&mut self) -> Duration {
        let asked = self.shared.wanted.lock().clone();
        let wanted: Vec<String> = asked.iter().cloned().collect();
        let before = self.shared.sids.load_full();
        let (joined, mut is_certain) = self.joined(&before);
        let mut sids = HashMap::new();
        for names in wanted.chunks(DOMAIN_NAMES_PER_QUESTION) {
            let answer = self.directory.sids(names);
            let answers = self.note(answer, names.len());
            is_certain &= answers.is_certain;
            for (name, found) in names.iter().zip(answers.found) {
                let known = || before.find(name).copied().filter(|_| !answers.is_certain);
                let sid = found.filter(is_of_domain).or_else(known);
                sids.extend(sid.map(|sid| (name.clone(), sid)));
            }
            if answers.is_certain {
                self.tell_missing(names, &sids);
            }
        }
        let is_whole = sids.len() == wanted.len();
        let sids = DomainSids { by_name: sids, joined };
        let has_changed = sids != *before;
        if has_changed {
            self.directory.keep(&sids);
        }
        self.shared.sids.store(Arc::new(sids));
        if has_changed {
            self.shared.changed.notify_one();
        }
        *self.shared.asked.lock() = Some(asked);
        self.shared.told.notify_all();
        if is_whole && is_certain { DOMAIN_NAMES_FRESH } else { DOMAIN_NAMES_AGAIN }
    }

    /// Asks for the joined domains. Returns them, and true if all have answered. Those that are known
    /// stay while nobody answers.
    fn joined(&mut self, before: &DomainSids) -> (Vec<JoinedDomain>, bool) {
        let answer = self.directory.joined();
        if answer == (Lookup { found: Vec::new(), silent: None }) {
            return (Vec::new(), true);
        }
        let count = answer.found.len();
        let answers = self.note(answer, count);
        if !answers.is_certain && answers.found.iter().all(Option::is_none) {
            return (before.joined.clone(), false);
        }
        let mut found: Vec<JoinedDomain> = answers.found.into_iter().flatten().collect();
        found.retain(|domain| is_of_domain(&domain.sid));
        let is_new = |domain: &&JoinedDomain| !found.iter().any(|known| known.sid == domain.sid);
        if !answers.is_certain {
            let kept: Vec<JoinedDomain> = before.joined.iter().filter(is_new).cloned().collect();
            found.extend(kept);
        }
        for domain in found.iter().filter(|domain| !before.joined.contains(domain)) {
            tracing::info!(target: "frevo::server", domain = %domain.name, sid = %domain.sid,
                "the server is a member of this domain");
        }
        (found, answers.is_certain)
    }

    fn tell_missing(&mut self, names: &[String], sids: &HashMap<String, Sid>) {
        for name in names {
            if sids.contains_key(name) {
                self.missing.remove(name);
            } else if self.missing.insert(name.clone()) {
                tracing::error!(target: "frevo::server", name = %name,
                    "rules name a user or group that its domain does not know; lists that deny it \
                     refuse all users of domains, and lists that allow it let nobody in by it");
            }
        }
    }

    fn by_sid(&mut self, sid: &Sid) -> Told {
        let known = self.shared.cache.lock().by_sid(sid, Instant::now());
        if let Some(known) = known {
            return Ok(known);
        }
        if self.shared.is_down() {
            return Err(NoAnswer);
        }
        let answer = self.directory.principals(&[*sid]);
        let answers = self.note(answer, 1);
        let found = answers.found.into_iter().next().flatten();
        if found.is_none() && !answers.is_certain {
            return Err(NoAnswer);
        }
        self.shared.cache.lock().learn_sid(*sid, found.clone(), Instant::now());
        Ok(found)
    }

    fn by_name(&mut self, name: &str) -> Option<Principal> {
        let known = self.shared.cache.lock().by_name(name, Instant::now());
        if known.is_some() || self.shared.is_down() {
            return known.flatten();
        }
        let answer = self.directory.sids(&[name.to_owned()]);
        let answers = self.note(answer, 1);
        let sid = answers.found.into_iter().next().flatten().filter(is_of_domain);
        let found = sid.and_then(|sid| self.by_sid(&sid).ok().flatten());
        if found.is_some() || (answers.is_certain && sid.is_none()) {
            self.shared.cache.lock().learn_name(name.to_owned(), found.clone(), Instant::now());
        }
        found
    }

    /// Notes whether anybody answers, and logs when that changes.
    fn note<T: Clone>(&mut self, mut answer: Lookup<T>, asked: usize) -> Answers<T> {
        if answer.found.len() != asked {
            answer.found = vec![None; asked];
            answer.silent.get_or_insert_with(|| String::from("an answer to something else"));
        }
        let Some(reason) = answer.silent else {
            if std::mem::take(&mut self.silent) {
                tracing::info!(target: "frevo::server", "names of domains are resolved again");
            }
            *self.shared.down_until.lock() = None;
            return Answers { found: answer.found, is_certain: true };
        };
        if !std::mem::replace(&mut self.silent, true) {
            tracing::warn!(target: "frevo::server", reason,
                "names of a domain are not resolved; SIDs are shown instead, and rules of shares use \
                 the SIDs that are known");
        }
        // Of several domains some may be down while others answer. Only if no domain answered, the
        // directory counts as down.
        if answer.found.iter().all(Option::is_none) {
            *self.shared.down_until.lock() = Some(Instant::now() + DOMAIN_NAMES_DOWN);
        }
        Answers { found: answer.found, is_certain: false }
    }
}

/// As many answers as questions.
struct Answers<T> {
    found: Vec<Option<T>>,
    /// True when a missing answer means that there is nobody.
    is_certain: bool,
}

#[cfg(test)]
mod tests;
