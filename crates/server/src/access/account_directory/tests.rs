//! A directory that answers when it is told to, on a paused clock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));
const LIFETIMES: Lifetimes =
    Lifetimes { fresh: Duration::from_secs(300), away: Duration::from_secs(3_600) };

fn account(name: &str, password: &str) -> DirectoryAccount {
    DirectoryAccount {
        name: name.into(),
        nt_hash: Some(NtHash::from_password(password)),
        sid: None,
        groups: vec!["staff".into()],
        rules: AccountRules::default(),
    }
}

/// Answers with what it has, and counts the questions.
#[derive(Debug, Default)]
struct Fake {
    answer: Mutex<Option<Result<Option<DirectoryAccount>, String>>>,
    asked: AtomicUsize,
}

impl AskDirectory for Fake {
    fn look_up(&self, _: &str) -> Result<Option<DirectoryAccount>, String> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.answer.lock().clone().unwrap_or(Ok(None))
    }
}

impl Fake {
    fn say(&self, answer: Result<Option<DirectoryAccount>, &str>) {
        *self.answer.lock() = Some(answer.map_err(String::from));
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn directory() -> (Arc<Fake>, AccountDirectory) {
    let fake = Arc::new(Fake::default());
    let way: Arc<dyn AskDirectory> = Arc::<Fake>::clone(&fake);
    (fake, AccountDirectory::new(way, LIFETIMES))
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_for_a_while() {
    let (fake, directory) = directory();
    assert!(directory.account("ann").is_none());
    fake.say(Ok(Some(account("Ann", "one"))));
    assert_eq!(directory.know("ann", HOME).await, Ok(Learned::Same));
    assert_eq!(directory.know("ANN", HOME).await, Ok(Learned::Same));
    assert_eq!(fake.asked(), 1);
    let found = directory.account("aNN").unwrap();
    assert_eq!((&*found.name, found.nt_hash), ("Ann", NtHash::from_password("one")));
    tokio::time::advance(LIFETIMES.fresh).await;
    fake.say(Ok(Some(account("Ann", "two"))));
    assert_eq!(directory.know("ann", HOME).await, Ok(Learned::Replaced));
    assert_eq!(fake.asked(), 2);
    tokio::time::advance(LIFETIMES.fresh).await;
    fake.say(Ok(Some(DirectoryAccount { groups: Vec::new(), ..account("Ann", "two") })));
    assert_eq!(directory.know("ann", HOME).await, Ok(Learned::Changed));
    tokio::time::advance(LIFETIMES.fresh).await;
    fake.say(Ok(None));
    assert_eq!(directory.know("ann", HOME).await, Ok(Learned::Replaced));
    assert!(directory.account("ann").is_none() && directory.latest("ann").is_none());
    // A name without an account is not asked for each time either.
    assert_eq!(directory.know("ann", HOME).await, Ok(Learned::Same));
    assert_eq!(fake.asked(), 4);
    tokio::time::advance(DIRECTORY_ABSENT_FRESH).await;
    assert_eq!(directory.know("ann", HOME).await, Ok(Learned::Same));
    assert_eq!(fake.asked(), 5);
}

#[tokio::test(start_paused = true)]
async fn while_it_is_away_earlier_answers_count() {
    let (fake, directory) = directory();
    fake.say(Err("gone"));
    assert_eq!(directory.know("ann", HOME).await, Err("gone".into()));
    fake.say(Ok(Some(account("ann", "one"))));
    assert_eq!(directory.know("ann", HOME).await, Ok(Learned::Same));
    fake.say(Err("gone"));
    tokio::time::advance(LIFETIMES.away).await;
    assert_eq!(directory.know("ann", HOME).await, Ok(Learned::Same));
    assert!(directory.account("ann").is_some());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(directory.know("ann", HOME).await, Err("gone".into()));
    assert!(directory.account("ann").is_none(), "nobody logs on by so old an answer");
    assert!(directory.latest("ann").is_some(), "sessions go on by it");
}

/// A user with a new password gets in at the second attempt.
#[tokio::test(start_paused = true)]
async fn a_wrong_password_has_it_asked_again() {
    let (fake, directory) = directory();
    fake.say(Ok(Some(account("ann", "one"))));
    directory.know("ann", HOME).await.unwrap();
    directory.doubt("ann");
    directory.know("ann", HOME).await.unwrap();
    assert_eq!(fake.asked(), 1, "it was asked a moment ago");
    tokio::time::advance(DIRECTORY_DOUBTED_FROM).await;
    directory.doubt("Ann");
    directory.know("ann", HOME).await.unwrap();
    directory.know("ann", HOME).await.unwrap();
    assert_eq!(fake.asked(), 2);
    tokio::time::advance(DIRECTORY_DOUBTED_FROM).await;
    directory.doubt("ann");
    fake.say(Err("gone"));
    assert_eq!(directory.know("ann", HOME).await, Ok(Learned::Same), "while it is away");
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_another_name_is_none() {
    let (fake, directory) = directory();
    fake.say(Ok(Some(account("root", "x"))));
    directory.know("ann", HOME).await.unwrap();
    assert!(directory.account("ann").is_none() && directory.account("root").is_none());
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_has_an_end() {
    let (fake, directory) = directory();
    for number in 0..=DIRECTORY_ACCOUNTS {
        let name = format!("u{number}");
        directory.known.lock().learn(&name, Some(account(&name, "x")));
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    for number in 0..=DIRECTORY_ABSENT {
        directory.known.lock().learn(&format!("n{number}"), None);
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    let known = directory.known.lock();
    assert_eq!((known.accounts.len(), known.absent.len()), (DIRECTORY_ACCOUNTS, DIRECTORY_ABSENT));
    assert!(!known.accounts.contains_key("u0") && known.accounts.contains_key("u1"));
    assert!(!known.absent.contains_key("n0") && known.absent.contains_key("n1"));
    drop(known);
    assert_eq!((fake.asked(), directory.remembered(5).len()), (0, 5));
}

/// Answers when it is told to.
#[derive(Debug)]
struct Slow {
    wait: std::sync::Mutex<Receiver<()>>,
    begun: AtomicUsize,
}

impl AskDirectory for Slow {
    fn look_up(&self, user: &str) -> Result<Option<DirectoryAccount>, String> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let _ = self.wait.lock().unwrap().recv();
        Ok(Some(account(user, "x")))
    }
}

fn slow() -> (Sender<()>, Arc<Slow>, Arc<AccountDirectory>) {
    let (release, wait) = channel();
    let slow = Arc::new(Slow { wait: std::sync::Mutex::new(wait), begun: AtomicUsize::new(0) });
    let way: Arc<dyn AskDirectory> = Arc::<Slow>::clone(&slow);
    (release, slow, Arc::new(AccountDirectory::new(way, LIFETIMES)))
}

async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn many_logons_of_one_name_are_one_question() {
    let (release, slow, directory) = slow();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let directory = Arc::clone(&directory);
        tasks.spawn(async move { directory.know("ann", HOME).await });
    }
    until(|| slow.begun.load(Ordering::SeqCst) == 1).await;
    release.send(()).unwrap();
    while let Some(done) = tasks.join_next().await {
        assert_eq!(done.unwrap(), Ok(Learned::Same));
    }
    assert_eq!(slow.begun.load(Ordering::SeqCst), 1);
    assert!(directory.asking.lock().is_empty());
}

/// A client that goes while it is asked for leaves nothing, and another one goes on.
#[tokio::test]
async fn a_client_that_goes_leaves_nothing() {
    let (release, slow, directory) = slow();
    let asked = Arc::clone(&directory);
    let task = tokio::spawn(async move { asked.know("ann", HOME).await });
    until(|| slow.begun.load(Ordering::SeqCst) == 1).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert!(directory.asking.lock().is_empty());
    release.send(()).unwrap();
    release.send(()).unwrap();
    assert_eq!(directory.know("ann", HOME).await, Ok(Learned::Same));
    assert!(directory.account("ann").is_some());
}

/// On a clock that moves while all wait.
#[tokio::test(start_paused = true)]
async fn names_of_one_network_are_asked_for_slowly() {
    const NAMES: usize = 11;
    let (fake, directory) = directory();
    let start = Instant::now();
    for number in 0..NAMES {
        directory.know(&format!("u{number}"), HOME).await.unwrap();
    }
    assert_eq!(fake.asked(), NAMES);
    let turns = u32::try_from(NAMES / DIRECTORY_LOOKUPS_PER_NETWORK).unwrap();
    assert!(start.elapsed() >= DIRECTORY_LOOKUP_PACE * turns, "{:?}", start.elapsed());
}

#[tokio::test]
async fn one_network_leaves_questions_to_others() {
    let (release, slow, directory) = slow();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..6 {
        let directory = Arc::clone(&directory);
        tasks.spawn(async move { directory.know(&format!("u{number}"), HOME).await });
    }
    let begun = || slow.begun.load(Ordering::SeqCst);
    until(|| begun() == DIRECTORY_LOOKUPS_PER_NETWORK).await;
    let other = IpAddr::from([192, 168, 0, 8]);
    let asked = Arc::clone(&directory);
    let task = tokio::spawn(async move { asked.know("bob", other).await });
    until(|| begun() == DIRECTORY_LOOKUPS_PER_NETWORK + 1).await;
    for _ in 0..7 {
        release.send(()).unwrap();
    }
    assert_eq!(task.await.unwrap(), Ok(Learned::Same));
    while tasks.join_next().await.is_some() {}
}

/// A directory that hangs holds up a logon for a time, and no more threads than it may.
#[tokio::test(start_paused = true)]
async fn a_directory_that_hangs_is_not_waited_for_for_ever() {
    let (release, slow, directory) = slow();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..=DIRECTORY_LOOKUPS {
        let directory = Arc::clone(&directory);
        let from = IpAddr::from([10, 0, 0, u8::try_from(number).unwrap()]);
        tasks.spawn(async move { directory.know(&format!("u{number}"), from).await });
    }
    until(|| slow.begun.load(Ordering::SeqCst) == DIRECTORY_LOOKUPS).await;
    // The paused clock does not advance by itself while threads run.
    tokio::time::advance(DIRECTORY_LOOKUP_TIMEOUT + Duration::from_secs(1)).await;
    while let Some(done) = tasks.join_next().await {
        let why = done.unwrap().unwrap_err();
        assert!(why.contains("in time"), "{why}");
    }
    assert_eq!(slow.begun.load(Ordering::SeqCst), DIRECTORY_LOOKUPS);
    drop(release);
}
