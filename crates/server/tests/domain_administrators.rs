//! Users of a domain who administer the server: privileges, open sessions after a reload, members over
//! the network.
#![allow(unreachable_pub, dead_code, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::files::{Mount, Want};
use client::logon::{Exchange, Setup};
use client::peer::Peer;
use client::world::{in_own_world, settings};
use client::{Offer, Via, World};
use frevo_auth::kerberos::forge::Forge;
use frevo_auth::kerberos::{EncryptionType, InitiatorEntropy, PacPolicy, Policy, ServiceKeys};
use frevo_auth::{Account, Accounts, Initiator, Membership, Target};
use frevo_posix::{Said, UnixUser};
use frevo_server::administrators::AdministratorRules;
use frevo_server::ambient::{Ambient, Host, HostUser};
use frevo_server::audit::{Kind, Value};
use frevo_server::domain_names::{DomainDirectory, JoinedDomain, Lookup, Principal};
use frevo_server::share::Share;
use frevo_server::{Server, Settings};
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use frevo_store::security::Privileges;
use frevo_wire::Status;
use frevo_wire::dtyp::{AccessMask, FileTime, Sid};

const START: FileTime = FileTime(133_500_000_000_000_000);

/// A clock that stands still, on a host that has everybody in its group `staff`.
#[derive(Debug)]
struct Clock;

impl Ambient for Clock {
    fn now(&self) -> FileTime {
        START
    }

    fn random(&self, bytes: &mut [u8]) {
        Host.random(bytes);
    }

    fn host_user(&self, _: &str) -> Said<HostUser> {
        let unix = UnixUser { uid: 4711, gid: 4711, groups: vec![4711] };
        Ok(Some(HostUser { unix, groups: vec![String::from("staff")] }))
    }
}

/// A server without accounts of its own.
#[derive(Debug)]
struct Nobody;

impl Accounts for Nobody {
    fn account(&self, _: &str, _: &str) -> Option<Account> {
        None
    }

    fn membership(&self, _: &str) -> Option<Membership> {
        None
    }
}

/// The controller of FREVO, which knows one group by name, and may be silent.
#[derive(Debug)]
struct Controller {
    is_silent: bool,
}

fn sid(text: &str) -> Sid {
    text.parse().unwrap()
}

impl Controller {
    fn lookup<T>(&self, found: Vec<Option<T>>) -> Lookup<T> {
        match self.is_silent {
            true => Lookup {
                found: found.into_iter().map(|_| None).collect(),
                silent: Some(String::from("no answer")),
            },
            false => Lookup { found, silent: None },
        }
    }
}

impl DomainDirectory for Controller {
    fn sids(&self, names: &[String]) -> Lookup<Sid> {
        let of = |name: &String| (name == "frevo\\storage").then(|| sid("S-1-5-21-1-2-3-1200"));
        self.lookup(names.iter().map(of).collect())
    }

    fn principals(&self, sids: &[Sid]) -> Lookup<Principal> {
        self.lookup(sids.iter().map(|_| None).collect())
    }

    fn joined(&self) -> Lookup<JoinedDomain> {
        let (name, dns_name) = (String::from("FREVO"), String::from("frevo.test"));
        self.lookup(vec![Some(JoinedDomain { name, dns_name, sid: sid(OWN) })])
    }
}

/// A controller that is silent until its SIDs are sent.
#[derive(Debug, Default)]
struct Late {
    /// The signal for which the next question waits.
    sent: Arc<Mutex<Option<Receiver<()>>>>,
    answers: AtomicBool,
}

impl Late {
    fn now(&self) -> Controller {
        if let Some(sent) = self.sent.lock().unwrap().take() {
            self.answers.store(sent.recv().is_ok(), Ordering::Relaxed);
        }
        Controller { is_silent: !self.answers.load(Ordering::Relaxed) }
    }
}

impl DomainDirectory for Late {
    fn sids(&self, names: &[String]) -> Lookup<Sid> {
        self.now().sids(names)
    }

    fn principals(&self, sids: &[Sid]) -> Lookup<Principal> {
        self.now().principals(sids)
    }

    fn joined(&self) -> Lookup<JoinedDomain> {
        self.now().joined()
    }
}

/// Runs `test` in a server that has joined FREVO, by these rules.
fn in_domain(
    rules: AdministratorRules,
    controller: impl DomainDirectory + 'static,
    test: impl AsyncFnOnce(&World),
) {
    let keys = ServiceKeys::new(vec![forge().service]).unwrap();
    let vfs = Arc::new(MemoryVfs::new(MemoryOptions::default(), Arc::new(|| START)));
    let server = Server::builder()
        .settings(Settings { administrators: rules, ..settings() })
        .shares([Share::disk("data", vfs)])
        .accounts(Arc::new(Nobody))
        .kerberos(keys, Policy { pac: PacPolicy::Required, ..Policy::default() })
        .ambient(Arc::new(Clock))
        .domain_directory(Arc::new(controller))
        .cores(2)
        .build()
        .unwrap();
    server.resolve_names();
    let world = World::of(server, tempfile::tempdir().unwrap());
    in_own_world(false, &world, async |world| test(world).await);
}

fn forge() -> Forge {
    Forge::new(EncryptionType::Aes256Sha1, START).with_pac()
}

/// Logs a user on with a ticket whose PAC has these groups of FREVO.
async fn log_on(world: &World, groups: &[u32], domain_sid: &str) -> (Peer, Mount) {
    let mut forge = forge();
    let logon = forge.pac.as_mut().and_then(|pac| pac.logon.as_mut()).unwrap();
    (logon.groups, logon.domain_sid) = (groups.to_vec(), sid(domain_sid));
    let mut peer = world.connect();
    peer.negotiate(&Offer::default()).await;
    let mut exchange = with_ticket(&peer, &forge);
    assert_eq!(exchange.round(&mut peer).await.status(), Status::SUCCESS);
    let logon = exchange.logon(&mut peer);
    let mount = peer.mount(&logon, "data").await;
    (peer, mount)
}

/// The logon of a user with a ticket.
fn with_ticket<'a>(peer: &Peer, forge: &Forge) -> Exchange<'a> {
    let mut seed = [0; 16];
    Host.random(&mut seed);
    let entropy = InitiatorEntropy {
        subkey: [seed[0]; 32],
        confounders: [seed, seed.map(|byte| !byte)],
        sequence: [0; 4],
    };
    let initiator = Initiator::with_ticket(Arc::new(forge.issue()), Target::default(), entropy);
    Exchange::with(peer, Setup::of("ann"), initiator, START.0)
}

/// The grounds of all sessions, and the status of an open that asks for the SACL.
async fn standing(world: &World, peer: &mut Peer, mount: &Mount) -> (Option<String>, Status) {
    let sessions = world.server.sessions();
    let identity = sessions.last().unwrap().identity().unwrap();
    let ground = identity.administers_by.as_ref().map(ToString::to_string);
    let all = Privileges::SECURITY | Privileges::TAKE_OWNERSHIP | Privileges::RESTORE;
    assert_eq!(identity.token.holds(all), ground.is_some());
    let want = Want::file("file").access(AccessMask::ACCESS_SYSTEM_SECURITY);
    (ground, peer.create(mount, &want).await.status())
}

const OWN: &str = "S-1-5-21-1-2-3";
const ANSWERS: Controller = Controller { is_silent: false };

#[test]
fn domain_admins_have_the_privileges_of_administrators() {
    for (groups, domain, ground) in [
        (&[513, 512][..], OWN, Some("FREVO\\Domain Admins")),
        (&[513, 1_200], OWN, None),
        (&[513, 512], "S-1-5-21-6-6-6", None),
    ] {
        in_domain(AdministratorRules::default(), ANSWERS, async |world| {
            let (mut peer, mount) = log_on(world, groups, domain).await;
            let (found, status) = standing(world, &mut peer, &mount).await;
            assert_eq!(found.as_deref(), ground);
            let wanted = match ground {
                Some(_) => Status::SUCCESS,
                None => Status::PRIVILEGE_NOT_HELD,
            };
            assert_eq!(status, wanted, "{groups:?} {domain}");
        });
    }
}

/// A reload gives and takes the rights of sessions that are open.
#[test]
fn a_reload_decides_about_open_sessions() {
    in_domain(AdministratorRules::default(), ANSWERS, async |world| {
        let (mut peer, mount) = log_on(world, &[513, 512, 1_300], OWN).await;
        for (rules, ground) in [
            (AdministratorRules::new([], false), None),
            (
                AdministratorRules::new(["@S-1-5-21-1-2-3-1300"], false),
                Some("@S-1-5-21-1-2-3-1300"),
            ),
            (AdministratorRules::new(["ann", "@storage"], false), None),
            (AdministratorRules::default(), Some("FREVO\\Domain Admins")),
        ] {
            let settings = Settings { administrators: rules, ..(*world.server.settings()).clone() };
            let shares = world.server.shares().as_ref().clone();
            world.server.reload(settings, &shares, Arc::new(Nobody));
            let (found, status) = standing(world, &mut peer, &mount).await;
            assert_eq!(found.as_deref(), ground);
            assert_eq!(status == Status::SUCCESS, ground.is_some(), "{status:?}");
        }
    });
}

/// SIDs that come after the reload that asked for them give and take the rights of open sessions too.
#[test]
fn sids_that_come_late_count_for_open_sessions() {
    let rules = AdministratorRules::new(["@FREVO\\Storage"], false);
    let late = Late::default();
    let sent = Arc::clone(&late.sent);
    in_domain(rules, late, async |world| {
        let (mut peer, mount) = log_on(world, &[513, 1_200], OWN).await;
        assert_eq!(standing(world, &mut peer, &mount).await.0, None);
        let following = tokio::task::spawn_local(Arc::clone(&world.server).follow_names());
        let (send, receiver) = channel();
        *sent.lock().unwrap() = Some(receiver);
        let settings = (*world.server.settings()).clone();
        let shares = world.server.shares().as_ref().clone();
        world.server.reload(settings, &shares, Arc::new(Nobody));
        assert_eq!(standing(world, &mut peer, &mount).await.0, None, "nobody has told the SIDs");
        send.send(()).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while standing(world, &mut peer, &mount).await.0.is_none() {
            assert!(Instant::now() < end, "the session has not got its rights");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (ground, status) = standing(world, &mut peer, &mount).await;
        assert_eq!((ground.as_deref(), status), (Some("@FREVO\\Storage"), Status::SUCCESS));
        following.abort();
    });
}

/// While no controller has answered, neither Domain Admins nor named groups administer.
#[test]
fn a_silent_controller_makes_nobody_an_administrator() {
    for (is_silent, ground) in [(false, Some("@FREVO\\Storage")), (true, None)] {
        let rules = AdministratorRules::new(["@FREVO\\Storage"], true);
        in_domain(rules, Controller { is_silent }, async |world| {
            let (mut peer, mount) = log_on(world, &[513, 512, 1_200], OWN).await;
            assert_eq!(standing(world, &mut peer, &mount).await.0.as_deref(), ground);
        });
    }
}

/// The host is asked for the groups of users when the rules have groups. The groups that the host
/// gives to users of a domain make nobody an administrator.
#[test]
fn groups_of_the_host_are_for_accounts() {
    for (rule, is_asked) in [("@staff", true), ("ann", false)] {
        in_domain(AdministratorRules::new([rule], true), ANSWERS, async |world| {
            assert_eq!(world.server.host_user("ann").await.is_known(), is_asked, "{rule}");
            let (mut peer, mount) = log_on(world, &[513], OWN).await;
            let identity = world.server.sessions().last().unwrap().identity().unwrap();
            assert_eq!(identity.groups.contains(&String::from("staff")), is_asked);
            let (ground, status) = standing(world, &mut peer, &mount).await;
            assert_eq!((ground, status), (None, Status::PRIVILEGE_NOT_HELD), "{rule}");
        });
    }
}

/// Domain Users of the joined domain are in BUILTIN\\Users, and nobody of a trusted domain is.
#[test]
fn users_are_domain_users_of_the_joined_domain() {
    for (groups, domain, is_silent, is_user) in [
        (&[513][..], OWN, false, true),
        // Domain Users is the primary group in the ticket.
        (&[1_200], OWN, false, true),
        (&[513], "S-1-5-21-6-6-6", false, false),
        (&[513], OWN, true, false),
    ] {
        in_domain(AdministratorRules::default(), Controller { is_silent }, async |world| {
            let (_peer, _mount) = log_on(world, groups, domain).await;
            let identity = world.server.sessions().last().unwrap().identity().unwrap();
            let found = identity.token.contains(&Sid::USERS);
            assert_eq!(found, is_user, "{groups:?} {domain} {is_silent}");
        });
    }
}

/// The log and the audit log name the service, the key version and the encryption type of a ticket that
/// no key opens.
#[test]
fn tickets_that_no_key_opens_are_named() {
    let keys = Forge::new(EncryptionType::Aes128Sha1, START).service;
    let (parts, mut events) = Server::builder()
        .settings(settings())
        .accounts(Arc::new(Nobody))
        .kerberos(ServiceKeys::new(vec![keys]).unwrap(), Policy::default())
        .ambient(Arc::new(Clock))
        .events(8);
    let server = parts.cores(2).build().unwrap();
    let world = World::of(server, tempfile::tempdir().unwrap());
    in_own_world(false, &world, async |world| {
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        let exchange = with_ticket(&peer, &forge());
        let draft = exchange.setup.draft(&exchange.token, 0);
        let reply = peer.ask(draft, Via::Plain).await;
        assert_eq!(reply.status(), Status::MORE_PROCESSING_REQUIRED);
        let (_, event) = events.next().await.unwrap();
        assert_eq!((event.kind(), event.outcome()), (Kind::Logon, Status::LOGON_FAILURE));
        let of = |name: &str| event.details().iter().find(|(known, _)| *known == name).unwrap();
        assert_eq!(of("service").1, Value::from("cifs/files@FREVO.TEST"));
        assert_eq!(of("etype").1, Value::from("aes256-cts-hmac-sha1-96"));
        assert_eq!(of("kvno").1, Value::from(3));
    });
}

#[test]
fn members_are_groups_of_the_domain() {
    let rules = AdministratorRules::new(["@FREVO\\Storage", "FREVO\\gone"], true);
    in_domain(rules, ANSWERS, async |world| {
        let sids = |of: &[&str]| -> Vec<Sid> { of.iter().map(|text| sid(text)).collect() };
        let [admins, storage, users] = ["512", "1200", "513"].map(|rid| format!("{OWN}-{rid}"));
        world.server.with_members(|administrators, known| {
            let members = |group| administrators.members(known, group);
            assert_eq!(members(&Sid::ADMINISTRATORS), sids(&[&storage, &admins]));
            assert!(members(&Sid::USERS).contains(&sid(&users)));
            let of = |text: &str| administrators.memberships(known, &sids(&[text]));
            assert_eq!(of(&storage), [Sid::ADMINISTRATORS]);
            assert_eq!(of(&admins), [Sid::ADMINISTRATORS]);
            assert_eq!(of(&users), [Sid::USERS]);
            assert!(of("S-1-5-21-6-6-6-512").is_empty());
        });
    });
}
