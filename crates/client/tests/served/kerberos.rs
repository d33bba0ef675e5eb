//! Logons by ticket, and sessions that outlive their tickets.

use crate::world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use frevo_auth::kerberos::forge::Forge;
use frevo_auth::kerberos::{EncryptionType, PacPolicy, Policy, Principal, ServiceKeys};
use frevo_client::internal::{Ambient, Getting, Tickets};
use frevo_client::{
    Cause, Credentials, Encryption, Kerberos, KerberosError, LockKind, OpenOptions, Options,
    ServerName, Session,
};
use frevo_server::Settings;
use frevo_wire::dtyp::FileTime;
use world::{World, in_changed_world, in_world, settings};

const START: u64 = 133_500_000_000_000_000;
const SECOND: u64 = 10_000_000;

/// The clock of both ends.
#[derive(Debug)]
struct Clock(AtomicU64);

impl Clock {
    fn forward(&self, seconds: u64) {
        self.0.fetch_add(seconds * SECOND, Ordering::Relaxed);
    }

    fn time(&self) -> FileTime {
        FileTime(self.0.load(Ordering::Relaxed))
    }
}

impl Ambient for Clock {
    fn now(&self) -> FileTime {
        self.time()
    }

    fn random(&self, bytes: &mut [u8]) -> bool {
        getrandom::fill(bytes).is_ok()
    }
}

impl frevo_server::ambient::Ambient for Clock {
    fn now(&self) -> FileTime {
        self.time()
    }

    fn random(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).unwrap();
    }
}

/// Gives tickets of an hour, unless it has none.
#[derive(Debug)]
struct Source {
    clock: Arc<Clock>,
    has_none: AtomicBool,
    given: AtomicUsize,
}

impl Tickets for Source {
    fn ticket<'a>(&'a self, _: &'a dyn Ambient, host: &'a str, after: FileTime) -> Getting<'a> {
        Box::pin(async move {
            assert_eq!(host, "files");
            let ticket = Forge::new(EncryptionType::Aes256Sha1, self.clock.time()).issue();
            if self.has_none.load(Ordering::Relaxed) || ticket.end_time.0 <= after.0 {
                // The source returns the error of an expired ticket in the user's cache.
                return Err(KerberosError::expired("it has expired; run kinit"));
            }
            self.given.fetch_add(1, Ordering::Relaxed);
            Ok(Arc::new(ticket))
        })
    }
}

struct Realm {
    clock: Arc<Clock>,
    source: Arc<Source>,
}

impl Realm {
    fn kerberos(&self) -> Kerberos {
        let client = Principal::user("ann", "FREVO.TEST");
        Kerberos::of(&client, Arc::clone(&self.source) as _)
    }

    fn options(&self) -> Options {
        let ambient = Arc::clone(&self.clock) as _;
        Options::default().ambient(ambient).recover_for(Duration::from_secs(2))
    }

    async fn session(&self, world: &World, options: Options) -> Session {
        let credentials = Credentials::kerberos(self.kerberos());
        world.client(options).connect(ServerName::new("files"), credentials).await.unwrap()
    }
}

/// Runs a test with a server that accepts tickets.
fn in_realm(test: impl AsyncFnOnce(&World, &Realm)) {
    let clock = Arc::new(Clock(AtomicU64::new(START)));
    let given = AtomicUsize::new(0);
    let has_none = AtomicBool::new(false);
    let source = Arc::new(Source { clock: Arc::clone(&clock), has_none, given });
    let keys = vec![Forge::new(EncryptionType::Aes256Sha1, FileTime(START)).service];
    let policy = Policy { pac: PacPolicy::Checked, ..Policy::default() };
    let realm = Realm { clock: Arc::clone(&clock), source };
    let settings = Settings { realms: vec!["FREVO.TEST".into()], ..settings() };
    in_changed_world(
        settings,
        |builder| builder.kerberos(ServiceKeys::new(keys).unwrap(), policy).ambient(clock),
        async |world| test(world, &realm).await,
    );
}

#[test]
fn a_ticket_logs_on_and_opens_channels() {
    in_realm(async |world, realm| {
        for encryption in [Encryption::AsServerAsks, Encryption::Required] {
            let options = realm.options().channels(3).encryption(encryption);
            let session = realm.session(world, options).await;
            assert!(session.info().unwrap().kerberos);
            assert_eq!(session.user(), "ann");
            let share = session.share("data").await.unwrap();
            share.write("file", b"by ticket").await.unwrap();
            assert_eq!(share.read_to_string("file").await.unwrap(), "by ticket");
            assert_eq!(session.info().unwrap().channels, 3);
            session.log_off().await;
        }
    });
}

/// No handle is lost, although none is durable and one has a lock.
#[test]
fn a_session_outlives_its_ticket_with_its_handles() {
    in_realm(async |world, realm| {
        for encryption in [Encryption::AsServerAsks, Encryption::Required] {
            let options = realm.options().channels(2).encryption(encryption).durable(false);
            let session = realm.session(world, options).await;
            let share = session.share("data").await.unwrap();
            let how = OpenOptions::new();
            let file = how.read(true).write(true).create(true).open(&share, "kept").await.unwrap();
            file.lock(0, 9, LockKind::Exclusive).await.unwrap();
            let dialed = world.wire.dialed.load(Ordering::SeqCst);
            for round in 0..3 {
                realm.clock.forward(3_601);
                let text = format!("round {round}");
                file.write_all_at(text.as_bytes(), 0).await.unwrap();
                let mut read = [0; 7];
                file.read_exact_at(&mut read, 0).await.unwrap();
                assert_eq!(read, text.as_bytes());
                // `create_dir_all` sends a compound, which must also succeed when the ticket has
                // expired.
                share.create_dir_all(&format!("d{round}")).await.unwrap();
                share.remove_dir(&format!("d{round}")).await.unwrap();
            }
            file.unlock(0, 9).await.unwrap();
            assert_eq!(world.wire.dialed.load(Ordering::SeqCst), dialed, "no new connection");
            assert_eq!(world.server.sessions().len(), 1);
            drop(file);
            session.log_off().await;
        }
    });
}

#[test]
fn without_another_ticket_calls_wait_and_fail_and_handles_stay() {
    in_realm(async |world, realm| {
        let session = realm.session(world, realm.options().durable(false)).await;
        let share = session.share("data").await.unwrap();
        share.write("kept", b"kept").await.unwrap();
        let file = share.open("kept").await.unwrap();
        realm.clock.forward(3_601);
        realm.source.has_none.store(true, Ordering::Relaxed);
        let mut read = [0; 4];
        let error = file.read_exact_at(&mut read, 0).await.unwrap_err();
        assert!(error.to_string().ends_with("run kinit"), "{error}");
        // The first call has waited its whole patience for a ticket, so the next call fails at
        // once.
        let at_once = Duration::from_millis(1_900);
        let soon = tokio::time::timeout(at_once, file.read_exact_at(&mut read, 0));
        let error = soon.await.expect("no second wait").unwrap_err();
        assert!(matches!(error.cause(), Cause::Kerberos(why) if why.is_expired()), "{error}");
        realm.source.has_none.store(false, Ordering::Relaxed);
        file.read_exact_at(&mut read, 0).await.unwrap();
        assert_eq!(&read, b"kept");
    });
}

/// A call that waits goes on as soon as its user has another ticket.
#[test]
fn a_call_waits_for_the_next_ticket() {
    in_realm(async |world, realm| {
        let session = realm.session(world, realm.options().durable(false)).await;
        let share = session.share("data").await.unwrap();
        share.write("kept", b"kept").await.unwrap();
        realm.clock.forward(3_601);
        realm.source.has_none.store(true, Ordering::Relaxed);
        let (read, ()) = tokio::join!(share.read("kept"), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            realm.source.has_none.store(false, Ordering::Relaxed);
        });
        assert_eq!(read.unwrap(), b"kept");
    });
}

#[test]
fn ntlm_is_used_only_where_it_is_allowed() {
    in_realm(async |world, realm| {
        realm.source.has_none.store(true, Ordering::Relaxed);
        let connect = async |credentials| {
            let client = world.client(realm.options());
            client.connect(ServerName::new("files"), credentials).await
        };
        let error = connect(Credentials::kerberos(realm.kerberos())).await.unwrap_err();
        assert!(error.is_logon_refused() && error.to_string().ends_with("run kinit"), "{error}");
        let both = Credentials::new("ann", "secret").prefer_kerberos(realm.kerberos());
        let session = connect(both.clone()).await.unwrap();
        assert!(!session.info().unwrap().kerberos);
        realm.source.has_none.store(false, Ordering::Relaxed);
        assert!(connect(both).await.unwrap().info().unwrap().kerberos);
    });
    // This server has no keytab, so it refuses tickets. Only a client with a password can log on.
    in_world(async |world| {
        let clock = Arc::new(Clock(AtomicU64::new(START)));
        let (has_none, given) = (AtomicBool::new(false), AtomicUsize::new(0));
        let source = Arc::new(Source { clock: Arc::clone(&clock), has_none, given });
        let realm = Realm { clock, source };
        let connect = async |credentials| {
            world.client(Options::default()).connect(ServerName::new("files"), credentials).await
        };
        let error = connect(Credentials::kerberos(realm.kerberos())).await.unwrap_err();
        assert!(error.to_string().contains("the server does not accept Kerberos"), "{error}");
        let both = Credentials::new("ann", "secret").prefer_kerberos(realm.kerberos());
        assert!(!connect(both).await.unwrap().info().unwrap().kerberos);
    });
}

#[test]
fn a_refused_ticket_is_told_with_what_helps() {
    in_realm(async |world, realm| {
        let client = Principal::user("ann", "FREVO.TEST");
        let odd = Kerberos::of(&client, Arc::new(Odd(Arc::clone(&realm.clock))));
        let client = world.client(realm.options());
        let connect = client.connect(ServerName::new("files"), Credentials::kerberos(odd));
        let error = connect.await.unwrap_err();
        assert!(error.is_logon_refused(), "{error}");
        assert!(error.to_string().contains("its log says"), "{error}");
    });
}

/// Gives tickets of a user who has no account.
#[derive(Debug)]
struct Odd(Arc<Clock>);

impl Tickets for Odd {
    fn ticket<'a>(&'a self, _: &'a dyn Ambient, _: &'a str, _: FileTime) -> Getting<'a> {
        let mut forge = Forge::new(EncryptionType::Aes256Sha1, self.0.time());
        forge.client = Principal::user("stranger", "FREVO.TEST");
        Box::pin(async move { Ok(Arc::new(forge.issue())) })
    }
}
