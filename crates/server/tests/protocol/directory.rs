//! Accounts of a directory: asked for before a logon is judged, and again while they have sessions.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::client::logon::Logon;
use crate::client::world::{in_own_world, password};
use crate::client::*;
use frevo_auth::AccountRules;
use frevo_server::account_directory::{
    AccountDirectory, AskDirectory, DirectoryAccount, Lifetimes,
};
use frevo_server::{Account, Accounts, Membership, NtHash, Server};

const FRESH: Duration = Duration::from_secs(300);
const AWAY: Duration = Duration::from_secs(3_600);

/// A directory in this process.
#[derive(Debug, Default)]
struct Fake {
    people: Mutex<HashMap<String, DirectoryAccount>>,
    is_away: AtomicBool,
    asked: AtomicUsize,
}

impl AskDirectory for Fake {
    fn look_up(&self, user: &str) -> Result<Option<DirectoryAccount>, String> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.is_away.load(Ordering::SeqCst) {
            return Err("it is away".into());
        }
        Ok(self.people.lock().unwrap().get(user).cloned())
    }
}

impl Fake {
    fn put(&self, name: &str, password: &str, rules: AccountRules) {
        let account = DirectoryAccount {
            name: name.to_owned(),
            nt_hash: Some(NtHash::from_password(password)),
            sid: None,
            groups: Vec::new(),
            rules,
        };
        self.people.lock().unwrap().insert(name.to_owned(), account);
    }

    fn be_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// The accounts of a server that has none of its own.
#[derive(Debug)]
struct OfDirectory(Arc<AccountDirectory>);

impl Accounts for OfDirectory {
    fn account(&self, user: &str, _: &str) -> Option<Account> {
        self.0.account(user)
    }

    fn asks_directory(&self, user: &str, _: &str) -> Option<String> {
        Some(user.to_owned())
    }

    fn directory_of(&self, name: &str) -> Option<&'static str> {
        self.0.latest(name).map(|_| "fake")
    }

    fn membership(&self, user: &str) -> Option<Membership> {
        let account = self.0.latest(user)?;
        let (name, rules) = (account.name.clone(), account.rules.clone());
        Some(Membership { name, rules, ..Membership::default() })
    }

    fn password_hash(&self, name: &str) -> Option<NtHash> {
        self.0.latest(name)?.nt_hash.clone()
    }
}

/// A server whose accounts are in a directory that has ann, on a clock that moves while all wait.
fn in_directory(test: impl AsyncFnOnce(&World, &Fake)) {
    let fake = Arc::new(Fake::default());
    fake.put("ann", &password("ann"), AccountRules::default());
    let way: Arc<dyn AskDirectory> = Arc::<Fake>::clone(&fake);
    let directory = Arc::new(AccountDirectory::new(way, Lifetimes { fresh: FRESH, away: AWAY }));
    let parts = Server::builder().settings(settings());
    let parts = parts.accounts(Arc::new(OfDirectory(Arc::clone(&directory))));
    let server = parts.account_directory(directory).cores(2).build().unwrap();
    let world = World::of(server, tempfile::tempdir().unwrap());
    in_own_world(true, &world, async |world| test(world, &fake).await);
}

async fn try_log_on(world: &World, user: &str, password: &str) -> Result<(Peer, Rc<Logon>), Reply> {
    let mut peer = world.connect();
    peer.negotiate(&Offer::default()).await;
    let setup = Setup { password: password.into(), ..Setup::of(user) };
    peer.try_log_on(setup).await.map(|logon| (peer, logon))
}

async fn refusal(world: &World, user: &str, password: &str) -> Status {
    try_log_on(world, user, password).await.err().expect("refused").status()
}

#[test]
fn accounts_of_a_directory_log_on() {
    in_directory(async |world, fake| {
        for _ in 0..3 {
            try_log_on(world, "ann", &password("ann")).await.expect("logged on");
        }
        assert_eq!(fake.asked(), 1);
        assert_eq!(refusal(world, "bob", "x").await, Status::LOGON_FAILURE);
        assert_eq!(refusal(world, "bob", "x").await, Status::LOGON_FAILURE);
        assert_eq!(fake.asked(), 2, "a name without an account is remembered, too");
        fake.put("carl", "right", AccountRules::enabled(false));
        assert_eq!(refusal(world, "carl", "wrong").await, Status::LOGON_FAILURE);
        assert_ne!(refusal(world, "carl", "right").await, Status::SUCCESS);
    });
}

/// A message of no user has nobody asked.
#[test]
fn a_directory_is_asked_for_users_alone() {
    in_directory(async |world, fake| {
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        let anonymous = Setup { password: String::new(), ..Setup::of("") };
        assert!(peer.try_log_on(anonymous).await.is_err());
        assert_eq!(fake.asked(), 0);
    });
}

/// The session of the old password ends as soon as the new one is known.
#[test]
fn a_new_password_counts_at_the_second_attempt() {
    in_directory(async |world, fake| {
        let (mut peer, logon) = try_log_on(world, "ann", &password("ann")).await.ok().unwrap();
        fake.put("ann", "new", AccountRules::default());
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(refusal(world, "ann", "new").await, Status::LOGON_FAILURE);
        assert!(peer.try_mount(&logon, "IPC$").await.is_ok());
        try_log_on(world, "ann", "new").await.expect("logged on");
        assert!(peer.try_mount(&logon, "IPC$").await.is_err(), "its session has ended");
        assert_eq!(refusal(world, "ann", &password("ann")).await, Status::LOGON_FAILURE);
    });
}

#[test]
fn a_directory_that_is_away_ends_no_session() {
    in_directory(async |world, fake| {
        fake.be_away(true);
        assert_eq!(refusal(world, "ann", &password("ann")).await, Status::NO_LOGON_SERVERS);
        assert_eq!(world.server.throttle.guesses(), 0, "nobody has looked at the password");
        fake.be_away(false);
        let (mut peer, logon) = try_log_on(world, "ann", &password("ann")).await.ok().unwrap();
        fake.be_away(true);
        tokio::time::sleep(FRESH).await;
        try_log_on(world, "ann", &password("ann")).await.expect("by an earlier answer");
        tokio::time::sleep(AWAY).await;
        assert_eq!(refusal(world, "ann", &password("ann")).await, Status::NO_LOGON_SERVERS);
        assert!(peer.try_mount(&logon, "IPC$").await.is_ok(), "its session goes on");
        fake.be_away(false);
        try_log_on(world, "ann", &password("ann")).await.expect("it is back");
    });
}

#[test]
fn sessions_end_with_their_account_in_the_directory() {
    in_directory(async |world, fake| {
        let (mut peer, logon) = try_log_on(world, "ann", &password("ann")).await.ok().unwrap();
        let follows = tokio::spawn(Arc::clone(&world.server).follow_directory());
        tokio::time::sleep(FRESH * 3).await;
        assert!(fake.asked() >= 2, "it is asked again");
        assert!(peer.try_mount(&logon, "IPC$").await.is_ok());
        fake.put("ann", &password("ann"), AccountRules::enabled(false));
        tokio::time::sleep(FRESH * 2).await;
        assert!(world.server.session(logon.id).is_none(), "the account is disabled");
        follows.abort();
    });
}
