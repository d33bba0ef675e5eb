//! Logons by tickets: sessions, their end with the ticket, and authentication anew.
#![allow(unreachable_pub, dead_code, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

use std::rc::Rc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use client::draft::pack;
use client::files::{Want, close_draft, lock_draft, read_draft};
use client::logon::{Exchange, Logon, Setup};
use client::peer::Peer;
use client::world::{in_own_world, settings};
use client::{Offer, Via, World};
use frevo_auth::kerberos::forge::{Forge, known_key};
use frevo_auth::kerberos::{
    EncryptionType, InitiatorEntropy, PacPolicy, Policy, ServiceKeys, ServiceTicket,
};
use frevo_auth::{Account, AccountRules, Accounts, Initiator, Membership, Target};
use frevo_server::ambient::{Ambient, Host};
use frevo_server::share::Share;
use frevo_server::{KeySource, Reload, Server, Settings};
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use frevo_wire::command::lock::LockFlags;
use frevo_wire::dtyp::FileTime;
use frevo_wire::{Route, Status};

const START: u64 = 133_500_000_000_000_000;
const SECOND: u64 = 10_000_000;

/// A clock that the test sets.
#[derive(Debug)]
struct Clock(AtomicU64);

impl Clock {
    fn forward(&self, seconds: u64) {
        self.0.fetch_add(seconds * SECOND, Ordering::Relaxed);
    }
}

impl Ambient for Clock {
    fn now(&self) -> FileTime {
        FileTime(self.0.load(Ordering::Relaxed))
    }

    fn random(&self, bytes: &mut [u8]) {
        Host.random(bytes);
    }
}

/// Accounts without passwords; `carol` is disabled.
#[derive(Debug)]
struct Users;

impl Accounts for Users {
    fn account(&self, _: &str, _: &str) -> Option<Account> {
        None
    }

    fn membership(&self, user: &str) -> Option<Membership> {
        let name = user.to_lowercase();
        matches!(&*name, "ann" | "bob" | "carol").then(|| Membership {
            rules: AccountRules::enabled(name != "carol"),
            name,
            ..Membership::default()
        })
    }
}

/// Runs `test` with a server that accepts the tickets of a forge.
/// The users of `FREVO.TEST` are its accounts, unless PACs are required.
fn in_realm(pac: PacPolicy, test: impl AsyncFnOnce(&World, &Clock)) {
    let is_domain = pac == PacPolicy::Required;
    let realms = if is_domain { vec![] } else { vec![String::from("FREVO.TEST")] };
    with_settings(Settings { realms, ..settings() }, pac, test);
}

fn with_settings(settings: Settings, pac: PacPolicy, test: impl AsyncFnOnce(&World, &Clock)) {
    let clock = Arc::new(Clock(AtomicU64::new(START)));
    let keys = ServiceKeys::new(vec![forge(&clock).service]).unwrap();
    let vfs = Arc::new(MemoryVfs::new(MemoryOptions::default(), Arc::new(|| FileTime(START))));
    let server = Server::builder()
        .settings(settings)
        .shares([Share::disk("data", vfs)])
        .accounts(Arc::new(Users))
        .kerberos(keys, Policy { pac, ..Policy::default() })
        .ambient(Arc::clone(&clock) as _)
        .cores(2)
        .build()
        .unwrap();
    let world = World::of(server, tempfile::tempdir().unwrap());
    in_own_world(false, &world, async |world| test(world, &clock).await);
}

fn forge(clock: &Clock) -> Forge {
    Forge::new(EncryptionType::Aes256Sha1, clock.now())
}

/// An initiator that makes another authenticator than all before it.
fn initiator(ticket: ServiceTicket) -> Initiator {
    static COUNT: AtomicU8 = AtomicU8::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let entropy = InitiatorEntropy {
        subkey: [count; 32],
        confounders: [[count; 16], [!count; 16]],
        sequence: [0; 4],
    };
    Initiator::with_ticket(Arc::new(ticket), Target::default(), entropy)
}

async fn connect(world: &World) -> Peer {
    let mut peer = world.connect();
    peer.negotiate(&Offer::default()).await;
    peer
}

/// Logs on with a ticket; the status of the first answer when it is refused.
async fn log_on(peer: &mut Peer, ticket: ServiceTicket, now: u64) -> Result<Rc<Logon>, Status> {
    let mut exchange = Exchange::with(peer, Setup::of("ann"), initiator(ticket), now);
    match exchange.round(peer).await.status() {
        Status::SUCCESS => Ok(exchange.logon(peer)),
        status => Err(status),
    }
}

fn only_user(world: &World) -> String {
    let [session] = &world.server.sessions()[..] else { panic!("one session") };
    session.identity().unwrap().user.clone()
}

#[test]
fn a_ticket_makes_a_session_that_reads_and_writes() {
    in_realm(PacPolicy::Checked, async |world, clock| {
        let mut peer = connect(world).await;
        let logon = log_on(&mut peer, forge(clock).issue(), START).await.unwrap();
        let mount = peer.mount(&logon, "data").await;
        let file = peer.open_file(&mount, &Want::file("file")).await;
        peer.write(&mount, file, 0, b"by ticket").await;
        assert_eq!(peer.read(&mount, file, 0, 9).await, b"by ticket");
        // The ticket's realm is the server's, so its user is the local account "ann".
        assert_eq!(only_user(world), "ann");
    });
}

#[test]
fn a_user_of_a_domain_has_the_sids_of_its_controller() {
    in_realm(PacPolicy::Required, async |world, clock| {
        let mut peer = connect(world).await;
        let without = log_on(&mut peer, forge(clock).issue(), START).await;
        assert_eq!(without.err(), Some(Status::LOGON_FAILURE));
        log_on(&mut peer, forge(clock).with_pac().issue(), START).await.unwrap();
        assert_eq!(only_user(world), "FREVO\\ann");
        let identity = world.server.sessions()[0].identity().unwrap();
        assert!(!identity.is_local);
        assert_eq!(identity.domain_sid(), Some(identity.token.user()));
        let token = &identity.token;
        assert_eq!(token.user().to_string(), "S-1-5-21-1-2-3-1105");
        assert_eq!(token.primary_group().to_string(), "S-1-5-21-1-2-3-513");
    });
}

#[test]
fn the_session_expires_with_its_ticket_and_keeps_its_handles() {
    in_realm(PacPolicy::Checked, async |world, clock| {
        let mut peer = connect(world).await;
        let logon = log_on(&mut peer, forge(clock).issue(), START).await.unwrap();
        let mount = peer.mount(&logon, "data").await;
        let file = peer.open_file(&mount, &Want::file("kept")).await;
        peer.write(&mount, file, 0, b"kept").await;
        clock.forward(3_599);
        assert_eq!(peer.read(&mount, file, 0, 4).await, b"kept");
        clock.forward(1);
        let refused = peer.on(&mount, read_draft(file, 0, 4)).await;
        refused.expect(Status::NETWORK_SESSION_EXPIRED);

        // Ann's session cannot be renewed with a ticket of bob.
        let now = clock.now().0;
        let mut other = forge(clock);
        other.client.components = vec!["bob".into()];
        let setup = Setup::again("ann", &logon);
        let mut exchange = Exchange::with(&peer, setup, initiator(other.issue()), now);
        assert_eq!(exchange.round(&mut peer).await.status(), Status::ACCESS_DENIED);
    });
}

/// Windows and smbd unlock, close and cancel after the end of a ticket, and do nothing else. What
/// is cancelled is answered before what its client sent next.
#[test]
fn an_expired_session_unlocks_and_cancels_in_order() {
    in_realm(PacPolicy::Checked, async |world, clock| {
        let mut peer = connect(world).await;
        let logon = log_on(&mut peer, forge(clock).issue(), START).await.unwrap();
        let mount = peer.mount(&logon, "data").await;
        let one = peer.open_file(&mount, &Want::file("locked")).await;
        let two = peer.open_file(&mount, &Want::file("locked")).await;
        let now = LockFlags::EXCLUSIVE_LOCK | LockFlags::FAIL_IMMEDIATELY;
        peer.on(&mount, lock_draft(one, &[(0, 1, now)])).await.ok();
        let mut waits = mount.put(lock_draft(two, &[(0, 1, LockFlags::EXCLUSIVE_LOCK)]));
        peer.stamp(&mut waits);
        let waiting = waits.header.message_id;
        peer.send_frame(&pack(&[waits], mount.via())).await;
        let Route::Async { async_id } = peer.interim().await.header.route else {
            panic!("an interim response has an AsyncId");
        };
        clock.forward(3_600);

        let cancel = pack(&[Peer::cancel(waiting, Some(async_id), logon.id)], mount.via());
        let mut read = mount.put(read_draft(one, 0, 1));
        peer.stamp(&mut read);
        let read = pack(&[read], mount.via());
        let framed = |message: &[u8]| [&(message.len() as u32).to_be_bytes()[..], message].concat();
        peer.send_bytes(&[framed(&cancel), framed(&read)].concat()).await;
        let (first, second) = (peer.reply().await, peer.reply().await);
        assert_eq!((first.header.message_id, first.status()), (waiting, Status::CANCELLED));
        assert_eq!(second.status(), Status::NETWORK_SESSION_EXPIRED);

        let expired = Status::NETWORK_SESSION_EXPIRED;
        peer.on(&mount, lock_draft(one, &[(9, 1, now)])).await.expect(expired);
        peer.on(&mount, lock_draft(one, &[(0, 1, LockFlags::UNLOCK)])).await.ok();
        let again = peer.on(&mount, lock_draft(one, &[(0, 1, LockFlags::UNLOCK)])).await;
        again.expect(Status::RANGE_NOT_LOCKED);
        peer.on(&mount, close_draft(one)).await.ok();
    });
}

#[test]
fn a_new_ticket_renews_an_expired_session() {
    in_realm(PacPolicy::Checked, async |world, clock| {
        let mut peer = connect(world).await;
        let logon = log_on(&mut peer, forge(clock).issue(), START).await.unwrap();
        let mount = peer.mount(&logon, "data").await;
        let file = peer.open_file(&mount, &Want::file("kept")).await;
        peer.write(&mount, file, 0, b"kept").await;
        for _ in 0..3 {
            clock.forward(3_600);
            let refused = peer.on(&mount, read_draft(file, 0, 4)).await;
            refused.expect(Status::NETWORK_SESSION_EXPIRED);
            let now = clock.now().0;
            let setup = Setup::again("ann", &logon);
            let mut exchange = Exchange::with(&peer, setup, initiator(forge(clock).issue()), now);
            assert_eq!(exchange.round(&mut peer).await.status(), Status::SUCCESS);
            assert_eq!(peer.read(&mount, file, 0, 4).await, b"kept");
        }
    });
}

#[test]
fn a_wrong_clock_is_told_once_and_then_refused() {
    in_realm(PacPolicy::Checked, async |world, clock| {
        let mut peer = connect(world).await;
        let late = START - 360 * SECOND;
        let ticket = || forge(clock).issue();
        let mut exchange = Exchange::with(&peer, Setup::of("ann"), initiator(ticket()), late);
        assert_eq!(exchange.round(&mut peer).await.status(), Status::MORE_PROCESSING_REQUIRED);
        assert_eq!(exchange.round(&mut peer).await.status(), Status::SUCCESS);
        exchange.logon(&mut peer);
        assert_eq!(only_user(world), "ann");
    });
}

#[test]
fn users_who_are_no_accounts_are_refused() {
    in_realm(PacPolicy::Checked, async |world, clock| {
        let mut peer = connect(world).await;
        let as_user = |components: &[&str], realm: &str| {
            let mut forge = forge(clock);
            forge.client.components = components.iter().map(|part| (*part).into()).collect();
            forge.client.realm = realm.into();
            forge
        };
        for (components, realm, status) in [
            (&["dave"][..], "FREVO.TEST", Status::LOGON_FAILURE),
            (&["ann"], "OTHER.TEST", Status::LOGON_FAILURE),
            (&["ann"], "frevo.test", Status::LOGON_FAILURE),
            (&["ann", "admin"], "FREVO.TEST", Status::LOGON_FAILURE),
            // The ticket proves that it is carol, so that she learns the rule for her account.
            (&["carol"], "FREVO.TEST", Status::ACCOUNT_DISABLED),
        ] {
            let forge = as_user(components, realm);
            for ticket in [forge.issue(), as_user(components, realm).with_pac().issue()] {
                let refused = log_on(&mut peer, ticket, START).await.err();
                assert_eq!(refused, Some(status), "{components:?} {realm}");
            }
        }
        assert!(world.server.sessions().is_empty());
        // The ticket names "Ann", which finds the account "ann", because upper and lower case do
        // not matter.
        log_on(&mut peer, as_user(&["Ann"], "FREVO.TEST").issue(), START).await.unwrap();
        assert_eq!(only_user(world), "ann");
    });
}

/// With realms named, a user of a domain is an account of the server: with its SIDs, and with no
/// right of the domain's groups.
#[test]
fn a_user_of_a_named_realm_has_the_sids_of_the_account() {
    let settings = Settings { realms: vec!["FREVO.TEST".into()], ..settings() };
    with_settings(settings, PacPolicy::Required, async |world, clock| {
        let mut peer = connect(world).await;
        let without = log_on(&mut peer, forge(clock).issue(), START).await;
        assert_eq!(without.err(), Some(Status::LOGON_FAILURE));
        log_on(&mut peer, forge(clock).with_pac().issue(), START).await.unwrap();
        assert_eq!(only_user(world), "ann");
        let identity = world.server.sessions()[0].identity().unwrap();
        assert!(identity.is_local);
        let of_domain = "S-1-5-21-1-2-3-";
        let token = &identity.token;
        let sids = token.groups().iter().chain([token.user(), token.primary_group()]);
        let sids: Vec<String> = sids.map(ToString::to_string).collect();
        assert!(!sids.iter().any(|sid| sid.starts_with(of_domain)), "{sids:?}");
    });
}

#[test]
fn without_realms_a_ticket_needs_the_sids_of_a_domain() {
    with_settings(settings(), PacPolicy::Checked, async |world, clock| {
        let mut peer = connect(world).await;
        let refused = log_on(&mut peer, forge(clock).issue(), START).await.err();
        assert_eq!(refused, Some(Status::LOGON_FAILURE));
        log_on(&mut peer, forge(clock).with_pac().issue(), START).await.unwrap();
        assert_eq!(only_user(world), "FREVO\\ann");
    });
}

#[test]
fn a_server_without_ntlm_takes_tickets_only() {
    let settings = Settings { realms: vec!["FREVO.TEST".into()], ntlm: false, ..settings() };
    with_settings(settings, PacPolicy::Checked, async |world, clock| {
        let mut peer = connect(world).await;
        // The server's hint lists only Kerberos. A client with a password refuses to begin, and a
        // client that ignores the hint is refused.
        let hint = peer.hint.split_off(0);
        let by_password = || client::logon::initiator("ann", "secret");
        assert!(by_password().initial_token(&hint, START).is_err());
        let mut exchange = Exchange::with(&peer, Setup::of("ann"), by_password(), START);
        assert_eq!(exchange.round(&mut peer).await.status(), Status::NOT_SUPPORTED);
        log_on(&mut peer, forge(clock).issue(), START).await.unwrap();
        assert_eq!(only_user(world), "ann");
    });
}

#[test]
fn tickets_that_are_refused() {
    in_realm(PacPolicy::Checked, async |world, clock| {
        let mut peer = connect(world).await;
        // Carol's ticket is valid, but the account "carol" is disabled on the server.
        let mut carol = forge(clock);
        carol.client.components = vec!["carol".into()];
        let refused = log_on(&mut peer, carol.issue(), START).await.err();
        assert_eq!(refused, Some(Status::ACCOUNT_DISABLED));
        // The server cannot decrypt the ticket and reports that, so that the client may get a new
        // ticket. This client has none.
        let mut foreign = forge(clock);
        foreign.service.key = known_key(EncryptionType::Aes256Sha1, 9);
        let exchange = Exchange::with(&peer, Setup::of("ann"), initiator(foreign.issue()), START);
        let reply = peer.ask(exchange.setup.draft(&exchange.token, 0), Via::Plain).await;
        assert_eq!(reply.status(), Status::MORE_PROCESSING_REQUIRED);
        let id = reply.header.session_id;
        let again = peer.ask(exchange.setup.draft(b"x", id), Via::Plain).await;
        assert_eq!(again.status(), Status::INVALID_PARAMETER);
        assert!(world.server.sessions().is_empty());
    });
}

/// A keytab that has the new key from the look with this number on. Before that, a reload sets the old
/// keys again.
#[derive(Debug)]
struct Renewed {
    looks: AtomicU64,
    from: u64,
    keys: ServiceKeys,
    old: ServiceKeys,
    server: OnceLock<Server>,
}

impl KeySource for Renewed {
    fn newer(&self) -> Option<(ServiceKeys, Policy)> {
        let look = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
        let policy = || Policy { pac: PacPolicy::Checked, ..Policy::default() };
        if look + 1 == self.from
            && let Some(server) = self.server.get()
        {
            server.reload(Reload::new().kerberos(Some((self.old.clone(), policy()))));
        }
        (look == self.from).then(|| (self.keys.clone(), policy()))
    }
}

/// The controller takes a new password, and clients have tickets for its key before the keytab is
/// written: none of them is refused.
#[test]
fn tickets_of_a_new_key_wait_for_the_keytab() {
    let clock = Arc::new(Clock(AtomicU64::new(START)));
    let old = forge(&clock).service;
    let mut renewed = forge(&clock);
    renewed.service.kvno = old.kvno + 1;
    renewed.service.key = known_key(EncryptionType::Aes256Sha1, 9);
    renewed.kvno = Some(renewed.service.kvno);
    let keys = ServiceKeys::new(vec![renewed.service.clone(), old.clone()]).unwrap();
    let source = Arc::new(Renewed {
        looks: AtomicU64::new(0),
        from: 3,
        keys,
        old: ServiceKeys::new(vec![old.clone()]).unwrap(),
        server: OnceLock::new(),
    });
    let vfs = Arc::new(MemoryVfs::new(MemoryOptions::default(), Arc::new(|| FileTime(START))));
    let server = Server::builder()
        .settings(Settings { realms: vec!["FREVO.TEST".into()], ..settings() })
        .shares([Share::disk("data", vfs)])
        .accounts(Arc::new(Users))
        .kerberos(
            ServiceKeys::new(vec![old]).unwrap(),
            Policy { pac: PacPolicy::Checked, ..Policy::default() },
        )
        .key_source(Arc::<Renewed>::clone(&source))
        .ambient(Arc::clone(&clock) as _)
        .cores(2)
        .build()
        .unwrap();
    source.server.set(server.clone()).unwrap();
    let world = World::of(server, tempfile::tempdir().unwrap());
    in_own_world(false, &world, async |world| {
        for ticket in [&renewed, &forge(&clock), &renewed] {
            let mut peer = connect(world).await;
            log_on(&mut peer, ticket.issue(), START).await.unwrap();
        }
        assert_eq!(source.looks.load(Ordering::Relaxed), 3, "looks");
    });
}
