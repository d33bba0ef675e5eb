//! Accounts of a directory, such as LDAP: asked for before a logon is judged, and remembered for a while.
//!
//! A directory may be slow or away. It is asked on threads that may wait, a few at a time, and for one name
//! once, however many log on. While it is away its earlier answers count, up to a limit; then nobody logs on
//! by them. Sessions that there are go on.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use frevo_auth::{Account, AccountRules, NtHash};
use frevo_net::file_io::run_blocking;
use frevo_wire::dtyp::Sid;
use frevo_wire::fscc::fold_name;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep_until, timeout};

use crate::base::limits::{
    DIRECTORY_ABSENT, DIRECTORY_ABSENT_FRESH, DIRECTORY_ACCOUNTS, DIRECTORY_DOUBTED_FROM,
    DIRECTORY_LOOKUP_PACE, DIRECTORY_LOOKUP_TIMEOUT, DIRECTORY_LOOKUPS,
    DIRECTORY_LOOKUPS_PER_NETWORK,
};
use crate::base::pools::permits::UserPermits;
use crate::base::prefix::Prefix;

/// Time between two log lines about a directory that is away.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

/// An account as a directory has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryAccount {
    /// The name in the directory's spelling.
    pub name: String,
    /// The hash of the password. None if the directory shows none: nobody logs on by a password then.
    pub nt_hash: Option<NtHash>,
    /// The SID that the directory has for the account.
    pub sid: Option<Sid>,
    /// Names of its groups.
    pub groups: Vec<String>,
    /// The rules for its logons.
    pub rules: AccountRules,
}

/// A way to ask a directory.
pub trait AskDirectory: Send + Sync + fmt::Debug {
    /// Asks for an account. It may block for as long as the directory takes; the server abandons the
    /// answer earlier. None if there is no such account.
    ///
    /// # Errors
    /// The reason why there is no answer, for the log.
    fn look_up(&self, user: &str) -> Result<Option<DirectoryAccount>, String>;
}

/// Lifetimes of the answers of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// Time in which an answer counts without another question.
    pub fresh: Duration,
    /// Age up to which an answer counts while the directory is away.
    pub away: Duration,
}

/// A directory with its latest answers.
pub struct AccountDirectory {
    way: Arc<dyn AskDirectory>,
    lifetimes: Lifetimes,
    known: Mutex<Known>,
    asking: Mutex<HashMap<String, Pending>>,
    places: UserPermits,
    told: Mutex<Option<Instant>>,
}

/// A question under way: the logons that wait for it share its answer.
type Question = OnceCell<Result<Learned, String>>;

/// A question under way.
#[derive(Debug, Default)]
struct Pending {
    question: Arc<Question>,
    /// Logons that wait for its answer.
    waiting: usize,
}

/// The effect of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Learned {
    /// The account is as it was, or was not known.
    Same,
    /// The account has other rules or groups.
    Changed,
    /// The account is gone, or has another password.
    Replaced,
}

#[derive(Debug, Default)]
struct Known {
    accounts: HashMap<String, Remembered>,
    /// Names without an account, and when the directory said so.
    absent: HashMap<String, Instant>,
}

#[derive(Debug)]
struct Remembered {
    since: Instant,
    /// True after a wrong password: the directory may have a new one.
    is_doubted: bool,
    account: Arc<DirectoryAccount>,
}

impl fmt::Debug for AccountDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountDirectory").field("way", &self.way).finish_non_exhaustive()
    }
}

impl AccountDirectory {
    /// Makes a directory of which nothing is known yet.
    pub fn new(way: Arc<dyn AskDirectory>, lifetimes: Lifetimes) -> Self {
        Self {
            way,
            lifetimes,
            known: Mutex::default(),
            asking: Mutex::default(),
            places: UserPermits::new(DIRECTORY_LOOKUPS, DIRECTORY_LOOKUPS_PER_NETWORK),
            told: Mutex::new(None),
        }
    }

    /// Returns the account by which a password is judged. None if the directory has none of this name, has
    /// not been asked, or has been away for too long.
    pub fn account(&self, user: &str) -> Option<Account> {
        let known = self.known.lock();
        let remembered = known.accounts.get(&fold_name(user))?;
        let counts = self.lifetimes.fresh.max(self.lifetimes.away);
        let account = &remembered.account;
        let nt_hash = account.nt_hash.clone().filter(|_| remembered.since.elapsed() <= counts)?;
        Some(Account { name: account.name.clone(), nt_hash, rules: account.rules.clone() })
    }

    /// Returns the latest answer about an account, however old it is: sessions go on by it.
    pub fn latest(&self, user: &str) -> Option<Arc<DirectoryAccount>> {
        let known = self.known.lock();
        known.accounts.get(&fold_name(user)).map(|remembered| Arc::clone(&remembered.account))
    }

    /// Returns at most `limit` accounts of those that were asked for.
    pub fn remembered(&self, limit: usize) -> Vec<Arc<DirectoryAccount>> {
        let known = self.known.lock();
        let accounts = known.accounts.values().map(|remembered| &remembered.account);
        let mut accounts: Vec<_> = accounts.map(Arc::clone).collect();
        drop(known);
        accounts.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        accounts.truncate(limit);
        accounts
    }

    /// Asks for an account in place, for tests.
    #[doc(hidden)]
    pub fn learn_now(&self, user: &str) {
        let answer = self.way.look_up(user);
        self.known.lock().learn(&fold_name(user), answer.ok().flatten());
    }

    /// Has the account asked for again at the next logon, unless it was asked for a moment ago.
    pub(crate) fn doubt(&self, user: &str) {
        if let Some(remembered) = self.known.lock().accounts.get_mut(&fold_name(user)) {
            remembered.is_doubted |= remembered.since.elapsed() >= DIRECTORY_DOUBTED_FROM;
        }
    }

    /// The time in which an answer counts without another question.
    pub(crate) fn fresh(&self) -> Duration {
        self.lifetimes.fresh
    }

    /// Asks for an account, unless what is known of it is fresh. `from` is the address that wants to log
    /// on: its network has a part of the places for questions.
    ///
    /// # Errors
    /// The reason why the directory has not answered, where no earlier answer counts.
    pub(crate) async fn know(&self, user: &str, from: IpAddr) -> Result<Learned, String> {
        let key = fold_name(user);
        if self.known.lock().is_fresh(&key, self.lifetimes.fresh) {
            return Ok(Learned::Same);
        }
        let asking = Asking::new(self, key);
        let ask = || self.ask(&asking.key, user, from);
        let answer = asking.question.get_or_init(ask).await.clone();
        let Err(why) = answer else { return answer };
        let age = self.known.lock().age(&asking.key);
        if age.is_none_or(|age| age > self.lifetimes.away) {
            return Err(why);
        }
        self.tell_away(&why);
        Ok(Learned::Same)
    }

    async fn ask(&self, key: &str, user: &str, from: IpAddr) -> Result<Learned, String> {
        let network = Prefix::of_guess(from).next().unwrap_or_else(|| Prefix::exact(from));
        let network = format!("{network:?}");
        let (way, user) = (Arc::clone(&self.way), user.to_owned());
        let answer = timeout(DIRECTORY_LOOKUP_TIMEOUT, async {
            let place = self.places.take(&network).await.ok()?;
            let paced = Instant::now() + DIRECTORY_LOOKUP_PACE;
            // A question that is abandoned keeps its place until its answer comes.
            let asked = run_blocking(move || (way.look_up(&user), place));
            let (answer, place) = asked.await.ok()?;
            // The answer is told at once; the next question of the network waits, whatever the answer.
            tokio::spawn(async move {
                sleep_until(paced).await;
                drop(place);
            });
            Some(answer)
        });
        let account = match answer.await {
            Ok(Some(answer)) => answer?,
            Ok(None) => return Err(String::from("an internal error")),
            Err(_) => return Err(String::from("it does not answer in time")),
        };
        // A name that is another one than the one that was asked for could be that of another account here.
        let account = account.filter(|account| fold_name(&account.name) == key);
        *self.told.lock() = None;
        Ok(self.known.lock().learn(key, account))
    }

    fn tell_away(&self, why: &str) {
        let mut told = self.told.lock();
        if told.is_none_or(|told| told.elapsed() >= TOLD_AGAIN) {
            *told = Some(Instant::now());
            tracing::warn!(target: "frevo::session",
                "the directory of accounts does not answer: {why}; its earlier answers are used for \
                 at most {} s", self.lifetimes.away.as_secs());
        }
    }
}

impl Known {
    fn is_fresh(&self, key: &str, fresh: Duration) -> bool {
        let is_known = self
            .accounts
            .get(key)
            .is_some_and(|remembered| !remembered.is_doubted && remembered.since.elapsed() < fresh);
        let absent = fresh.min(DIRECTORY_ABSENT_FRESH);
        is_known || self.absent.get(key).is_some_and(|since| since.elapsed() < absent)
    }

    /// The age of what is known of a name. None for a name that was never asked for.
    fn age(&self, key: &str) -> Option<Duration> {
        self.accounts.get(key).map(|remembered| remembered.since.elapsed())
    }

    fn learn(&mut self, key: &str, account: Option<DirectoryAccount>) -> Learned {
        let now = Instant::now();
        let Some(account) = account else {
            make_room(&mut self.absent, DIRECTORY_ABSENT, key, |since| *since);
            self.absent.insert(key.to_owned(), now);
            let before = self.accounts.remove(key);
            return if before.is_some() { Learned::Replaced } else { Learned::Same };
        };
        self.absent.remove(key);
        make_room(&mut self.accounts, DIRECTORY_ACCOUNTS, key, |remembered| remembered.since);
        let account = Arc::new(account);
        let new = Remembered { since: now, is_doubted: false, account: Arc::clone(&account) };
        match self.accounts.insert(key.to_owned(), new) {
            Some(before) if before.account.nt_hash != account.nt_hash => Learned::Replaced,
            Some(before) if before.account != account => Learned::Changed,
            _ => Learned::Same,
        }
    }
}

/// Removes the oldest of `most` entries, where `key` is to be one more.
fn make_room<T>(
    map: &mut HashMap<String, T>,
    most: usize,
    key: &str,
    since: impl Fn(&T) -> Instant,
) {
    if map.len() < most || map.contains_key(key) {
        return;
    }
    let oldest = map.iter().min_by_key(|(_, entry)| since(entry)).map(|(key, _)| key.clone());
    oldest.map(|key| map.remove(&key));
}

/// A logon that waits for the answer about a name.
struct Asking<'a> {
    directory: &'a AccountDirectory,
    key: String,
    question: Arc<Question>,
}

impl<'a> Asking<'a> {
    fn new(directory: &'a AccountDirectory, key: String) -> Self {
        let mut asking = directory.asking.lock();
        let pending = asking.entry(key.clone()).or_default();
        pending.waiting = pending.waiting.saturating_add(1);
        let question = Arc::clone(&pending.question);
        drop(asking);
        Self { directory, key, question }
    }
}

/// The last one that waits takes the question away, also when its client has gone.
impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut asking = self.directory.asking.lock();
        let Some(pending) = asking.get_mut(&self.key) else { return };
        if !Arc::ptr_eq(&pending.question, &self.question) {
            return;
        }
        pending.waiting = pending.waiting.saturating_sub(1);
        // The next logon asks anew.
        if pending.waiting == 0 || self.question.initialized() {
            asking.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests;
