//! A server that proves who it is and then lies: whatever it says, the client
//! ends with an error that tells what is wrong, in time and without taking much
//! memory, and says nothing in the clear that it should not.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::dialed;
use crate::evil;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dialed::{ToEvil, in_time, on_paused_clock, one_thing};
use evil::{Act, Asked, CONTENT, Manners};
use frevo_client::internal::Dial;
use frevo_client::{
    Cause, Client, Credentials, Encryption, Error, LockKind, OpenOptions, Options, RecursiveMode,
    ServerName, Session, Share,
};
use frevo_crypto::Cipher;
use frevo_proto::Dialect;
use frevo_wire::command::session_setup::SessionFlags;
use frevo_wire::negotiate_context::{self as context, HashAlgorithm, NegotiateContext};
use frevo_wire::{Command, Status};

type Outcome = (&'static str, Result<(), Error>);

/// All that can be asked of a server, each within its time.
async fn everything(client: &Client) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    let user = Credentials::new("ann", "secret");
    let session = client.connect(ServerName::new("evil"), user);
    let session = match in_time("log on", session).await {
        Ok(session) => session,
        Err(error) => return vec![("log on", Err(error))],
    };
    let share = match in_time("share", session.share("data")).await {
        Ok(share) => share,
        Err(error) => return vec![("share", Err(error))],
    };
    macro_rules! try_all {
        ($($name:literal: $call:expr,)*) => {
            $( outcomes.push(($name, in_time($name, $call).await.map(drop))); )*
        };
    }
    try_all! {
        "list": share.list_dir("dir"),
        "metadata": share.metadata("known"),
        "read": share.read("known"),
        "read at": read_at(&share),
        "write": share.write("new", &[7; 1000]),
        "write large": share.write("new", &[7; 3_000_000]),
        "streams": share.streams("known"),
        "attributes": share.extended_attributes("known"),
        "set attribute": share.set_extended_attribute("known", "A", b"1"),
        "security": share.security("known"),
        "set security": async {
            let mut descriptor = frevo_client::SecurityDescriptor::default();
            descriptor.control = frevo_client::DaclControl::DACL_PRESENT;
            share.set_security("known", &descriptor).await
        },
        "link": share.read_link("known"),
        "snapshots": share.snapshots("known"),
        "rename": share.rename("known", "other"),
        "remove": share.remove_file("known"),
        "make": share.create_dir("dirnew"),
        "lock": lock(&share),
        "copy": copy(&share),
        "watch": watch(&share),
        "shares": session.shares(),
        "echo": session.echo(),
    }
    end(session).await;
    outcomes
}

async fn end(session: Session) {
    in_time("log off", async {
        session.log_off().await;
        Ok(())
    })
    .await
    .unwrap();
}

async fn read_at(share: &Share) -> Result<(), Error> {
    let file = share.open("known").await?;
    let mut into = [0; 10];
    let count = file.read_at(&mut into, 3).await?;
    assert!(count <= into.len());
    file.close().await
}

async fn lock(share: &Share) -> Result<(), Error> {
    let file = OpenOptions::new().read(true).write(true).open(share, "known").await?;
    file.try_lock(0, 10, LockKind::Exclusive).await?;
    file.unlock(0, 10).await?;
    file.set_len(5).await?;
    file.sync_all().await?;
    file.close().await
}

async fn copy(share: &Share) -> Result<(), Error> {
    let from = share.open("known").await?;
    let to = OpenOptions::new().read(true).write(true).create(true).open(share, "copy").await?;
    from.copy_range_to(&to, 0, 0, CONTENT.len() as u64).await.map(drop)
}

/// One round: a good server would not answer before something happens.
async fn watch(share: &Share) -> Result<(), Error> {
    let mut watch = share.watch("dir", RecursiveMode::Recursive).await?;
    match tokio::time::timeout(Duration::from_secs(30), watch.next_changes()).await {
        Ok(changes) => changes.map(drop),
        Err(_elapsed) => Ok(()),
    }
}

struct Tried {
    outcomes: Vec<Outcome>,
    overheard: Vec<u8>,
    connections: usize,
}

impl Tried {
    fn of(&self, name: &str) -> &Result<(), Error> {
        &self.outcomes.iter().find(|(one, _)| *one == name).unwrap_or_else(|| panic!("{name}")).1
    }

    fn failed(&self) -> Option<&Error> {
        self.outcomes.iter().find_map(|(_, outcome)| outcome.as_ref().err())
    }
}

fn against(
    manners: Manners,
    options: Options,
    script: impl Fn(&Asked<'_>) -> Act + Send + Sync + 'static,
) -> Tried {
    on_paused_clock(async {
        let dial = ToEvil::new(manners, script);
        let options = options.recover_for(Duration::from_secs(5));
        let client = Client::with_dialer(options, Arc::clone(&dial) as Arc<dyn Dial>);
        let outcomes = everything(&client).await;
        let overheard = std::mem::take(&mut *dial.overheard.lock());
        Tried { outcomes, overheard, connections: dial.dialed.load(Ordering::SeqCst) }
    })
}

fn lies(script: impl Fn(&Asked<'_>) -> Act + Send + Sync + 'static) -> Tried {
    against(Manners::default(), Options::default(), script)
}

/// A script that changes the body of every answer to `command`.
fn with_body(
    command: Command,
    change: impl Fn(&mut Vec<u8>) + Clone + Send + Sync + 'static,
) -> Tried {
    lies(move |asked| {
        if asked.header.command != command {
            return Act::Honest;
        }
        let change = change.clone();
        Act::Changed(Box::new(move |message| change(message)))
    })
}

fn set(message: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = message.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

fn is_clear(error: &Error) -> bool {
    matches!(
        error.cause(),
        Cause::Protocol(_) | Cause::NotSmb | Cause::TooOld(_) | Cause::Security(_)
    )
}

#[track_caller]
fn assert_clear(tried: &Tried, what: &str) {
    let error = tried.failed().unwrap_or_else(|| panic!("{what}: nothing was noticed"));
    assert!(is_clear(error), "{what}: {error}");
}

#[test]
fn the_honest_server_is_believed() {
    for seal in [false, true] {
        let tried =
            against(Manners { seal, ..Manners::default() }, Options::default(), |_| Act::Honest);
        for name in ["list", "metadata", "read", "read at", "write", "write large", "lock", "echo"]
        {
            assert!(tried.of(name).is_ok(), "{name}: {:?}", tried.of(name));
        }
        assert_eq!(tried.connections, 1);
        assert_eq!(seal, tried.overheard.is_empty(), "what is sealed is not overheard");
    }
}

#[test]
fn dialects_that_were_not_offered() {
    for dialect in [0x0000, 0x0202, 0x0210, 0x02FF, 0x0310, 0x0312, 0xFFFF] {
        let tried = lies(move |asked| match asked.header.command {
            Command::NEGOTIATE => Act::Changed(Box::new(move |message| {
                set(message, 68, &u16::to_le_bytes(dialect));
            })),
            _ => Act::Honest,
        });
        assert_clear(&tried, &format!("{dialect:#06x}"));
        assert_eq!(tried.outcomes.len(), 1);
    }
    // The server chooses a dialect older than any that the client offered.
    let manners = Manners { dialect: Dialect::SMB_2_1, cipher: None, ..Manners::default() };
    assert_clear(&against(manners, Options::default(), |_| Act::Honest), "2.1");
}

#[test]
fn negotiate_contexts_wrong_twice_and_missing() {
    let usual = || evil::usual(Some(Cipher::Aes128Gcm));
    let hash = |ids: &[HashAlgorithm]| NegotiateContext::PreauthIntegrity {
        hash_algorithms: ids.to_vec(),
        salt: &[1; 32],
    };
    let cipher = |ids: &[u16]| {
        NegotiateContext::Encryption(ids.iter().map(|id| context::Cipher(*id)).collect())
    };
    let signing = |ids: &[u16]| {
        NegotiateContext::Signing(ids.iter().map(|id| context::SigningAlgorithm(*id)).collect())
    };
    let sha = HashAlgorithm::SHA_512;
    let with = |more: NegotiateContext<'static>| [usual(), vec![more]].concat();
    let cases = [
        ("none at all", vec![]),
        ("no hash", usual().split_off(1)),
        ("two hashes", with(hash(&[sha]))),
        ("two hashes in one", vec![hash(&[sha, sha]), signing(&[1])]),
        ("another hash", vec![hash(&[HashAlgorithm(2)])]),
        ("no hash in it", vec![hash(&[])]),
        ("two ciphers", with(cipher(&[2]))),
        ("two ciphers in one", vec![hash(&[sha]), cipher(&[1, 2])]),
        ("a cipher that is none", vec![hash(&[sha]), cipher(&[0x7777])]),
        ("no cipher in it", vec![hash(&[sha]), cipher(&[])]),
        ("a second way to sign", with(signing(&[2]))),
        ("a way to sign that is none", vec![hash(&[sha]), signing(&[99])]),
        ("two ways to sign", vec![hash(&[sha]), signing(&[1, 2])]),
    ];
    for (what, contexts) in cases {
        let manners = Manners { contexts: Some(contexts), ..Manners::default() };
        let tried = against(manners, Options::default(), |_| Act::Honest);
        assert_clear(&tried, what);
        assert_eq!(tried.outcomes.len(), 1, "{what}: no password is proved to it");
    }
}

#[test]
fn numbers_of_a_negotiate_response_that_cannot_be() {
    // Each case replaces bytes of the message: it has their position and the new bytes.
    let cases: [(usize, &[u8]); 10] = [
        (64, &[0, 0]),
        (70, &[0xFF, 0xFF]),
        (92, &[0; 4]),
        (96, &[1, 0, 0, 0]),
        (100, &[0xFF, 0xFF, 0, 0]),
        (120, &[0xFF, 0xFF]),
        (122, &[0xFF, 0xFF]),
        (124, &[0xFF; 4]),
        (124, &[0; 4]),
        (120, &[1, 0, 0xFF, 0xFF]),
    ];
    for (at, bytes) in cases {
        let tried = lies(move |asked| match asked.header.command {
            Command::NEGOTIATE => Act::Changed(Box::new(move |message| set(message, at, bytes))),
            _ => Act::Honest,
        });
        assert_clear(&tried, &format!("{bytes:?} at {at}"));
    }
}

#[test]
fn f6_frames_that_are_none() {
    let mut bomb = vec![0xFC, b'S', b'M', b'B'];
    bomb.extend_from_slice(&u32::MAX.to_le_bytes());
    bomb.extend_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0]);
    bomb.extend_from_slice(&[0xFF; 64]);
    let mut sealed = vec![0xFD, b'S', b'M', b'B'];
    sealed.extend_from_slice(&[0xEE; 100]);
    let cases: [(&str, Vec<u8>); 8] = [
        ("a frame of 16 MiB", vec![0, 0xFF, 0xFF, 0xFF, 1, 2, 3]),
        ("a NetBIOS message", vec![0x85, 0, 0, 4, 1, 2, 3, 4]),
        ("SMB1", evil::framed(&[&[0xFF, b'S', b'M', b'B'][..], &[0; 60]].concat())),
        ("HTTP", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        ("nothing in it", evil::framed(&[])),
        ("half a header", evil::framed(&[0xFE, b'S', b'M', b'B', 64, 0])),
        ("compressed", evil::framed(&bomb)),
        ("sealed for nobody", evil::framed(&sealed)),
    ];
    for at in [Command::NEGOTIATE, Command::SESSION_SETUP, Command::CREATE, Command::READ] {
        for (what, bytes) in &cases {
            let bytes = bytes.clone();
            let tried = lies(move |asked| {
                if asked.header.command == at { Act::Bytes(bytes.clone()) } else { Act::Honest }
            });
            // If a frame never ends, only a time limit (`Cause::Unknown`) notices it.
            let error = tried.failed().unwrap_or_else(|| panic!("{what} was not noticed"));
            assert!(
                is_clear(error) || matches!(error.cause(), Cause::Unknown),
                "{what} at {at:?}: {error}"
            );
        }
    }
}

#[test]
fn what_is_no_smb_server_is_told_from_one_that_lies() {
    for at in [Command::NEGOTIATE, Command::READ] {
        for bytes in [b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), evil::framed(b"\xffSMB")] {
            let tried = lies(move |asked| {
                if asked.header.command == at { Act::Bytes(bytes.clone()) } else { Act::Honest }
            });
            let cause = tried.failed().expect("an end").cause().clone();
            let was_smb = at != Command::NEGOTIATE;
            assert_eq!(matches!(cause, Cause::NotSmb), !was_smb, "{cause} at {at:?}");
        }
    }
}

#[test]
fn silence_and_drops_end_in_time() {
    for at in [Command::NEGOTIATE, Command::SESSION_SETUP, Command::TREE_CONNECT, Command::CREATE] {
        for kind in 0..3 {
            let tried = lies(move |asked| match (asked.header.command == at, kind) {
                (false, _) => Act::Honest,
                (true, 0) => Act::Silence,
                (true, 1) => Act::Close,
                (true, _) => Act::Drip(Duration::from_secs(3)),
            });
            let error = tried.failed().expect("an end");
            // The client may report the lost connection, or the broken protocol of a server that
            // stays connected without answering.
            let is_ended = matches!(error.cause(), Cause::Transport(_) | Cause::Unknown);
            assert!(is_ended || is_clear(error), "{error}");
        }
    }
}

/// A server that answers only ECHOs: no call waits for ever, except those that wait for other
/// clients.
#[test]
fn silence_about_one_kind_of_request_ends_in_time() {
    for (at, name) in
        [(Command::IOCTL, "snapshots"), (Command::LOCK, "lock"), (Command::IOCTL, "shares")]
    {
        let tried =
            lies(move |asked| if asked.header.command == at { Act::Silence } else { Act::Honest });
        let error = tried.of(name).as_ref().expect_err(name);
        let is_ended = matches!(error.cause(), Cause::Unknown | Cause::HandleLost);
        assert!(is_ended || is_clear(error), "{error}");
    }
}

#[test]
fn requests_put_off_for_ever() {
    let again = lies(|asked| match asked.header.command {
        Command::READ => Act::Again(Duration::from_millis(100), evil::pending(&asked.header)),
        _ => Act::Honest,
    });
    assert_clear(&again, "interim responses without end");
    // Each request gets an interim response but no final response.
    let once = lies(|asked| match asked.header.command {
        Command::READ | Command::WRITE => Act::Bytes(evil::framed(&evil::pending(&asked.header))),
        _ => Act::Honest,
    });
    assert_clear(&once, "put off");
    assert!(once.of("list").is_ok());
}

#[test]
fn a_waiting_client_asks_whether_the_server_lives() {
    let tried = lies(|asked| match asked.header.command {
        Command::LOCK => Act::Bytes(evil::framed(&evil::pending(&asked.header))),
        Command::ECHO => Act::Silence,
        _ => Act::Honest,
    });
    assert!(tried.of("lock").is_err());
    assert!(tried.connections > 1, "the first was given up");
}

#[test]
fn f6_no_credits_no_answers_to_what_was_not_asked() {
    let tried = lies(|asked| match asked.header.command {
        Command::NEGOTIATE | Command::SESSION_SETUP => Act::Honest,
        _ => Act::Changed(Box::new(|message| set(message, 14, &[0, 0]))),
    });
    assert!(tried.failed().is_some(), "without credits nothing can be asked");
    for id in [9_999_u64, u64::MAX - 1] {
        let tried = lies(move |asked| match asked.header.command {
            Command::CREATE => {
                let mut other = evil::said(&asked.header, Status::SUCCESS, &[4, 0, 0, 0]);
                set(&mut other, 24, &id.to_le_bytes());
                Act::First(vec![other])
            }
            _ => Act::Honest,
        });
        assert_clear(&tried, "an answer to nothing");
    }
}

#[test]
fn breaks_of_what_nobody_holds() {
    let of = |asked: &Asked<'_>, body: &[u8]| {
        let mut message = evil::said(&asked.header, Status::SUCCESS, body);
        set(&mut message, 12, &Command::OPLOCK_BREAK.0.to_le_bytes());
        set(&mut message, 24, &[0xFF; 8]);
        message
    };
    let mut lease = vec![44, 0, 1, 0, 1, 0, 0, 0];
    lease.extend_from_slice(&[0xAB; 16]);
    lease.extend_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0]);
    lease.extend_from_slice(&[0; 12]);
    let few = lease.clone();
    let tried = lies(move |asked| match asked.header.command {
        Command::CREATE => Act::First(vec![of(asked, &few); 20]),
        _ => Act::Honest,
    });
    assert!(tried.of("read").is_ok(), "{:?}", tried.of("read"));
    let many = lease.clone();
    let flood = lies(move |asked| match asked.header.command {
        Command::CREATE => Act::First(vec![of(asked, &many); 3_000]),
        _ => Act::Honest,
    });
    assert_clear(&flood, "breaks without end");
    for body in [&lease[..10], &[24, 0][..], &[]] {
        let body = body.to_vec();
        let tried = lies(move |asked| match asked.header.command {
            Command::CREATE => Act::First(vec![of(asked, &body)]),
            _ => Act::Honest,
        });
        assert_clear(&tried, "half a break");
    }
}

/// MS-SMB2 3.2.5.1.1 and 3.2.5.1.3
#[test]
fn f6_answers_without_the_protection_that_was_agreed_on() {
    let bare = |asked: &Asked<'_>| match asked.header.command {
        Command::NEGOTIATE | Command::SESSION_SETUP => Act::Honest,
        _ => Act::Bare,
    };
    assert_clear(&lies(bare), "unsigned");
    let sealed = || Manners { seal: true, ..Manners::default() };
    assert_clear(&against(sealed(), Options::default(), bare), "unsealed");
    let signed = |asked: &Asked<'_>| match asked.header.command {
        Command::NEGOTIATE | Command::SESSION_SETUP => Act::Honest,
        _ => Act::Signed,
    };
    assert_clear(&against(sealed(), Options::default(), signed), "signed, not sealed");
    // The server does not sign the final answer of the logon.
    let unproved = |asked: &Asked<'_>| match asked.header.command {
        Command::SESSION_SETUP => Act::Bare,
        _ => Act::Honest,
    };
    let tried = lies(unproved);
    assert_clear(&tried, "no proof");
    assert_eq!(tried.outcomes.len(), 1);
}

#[test]
fn nothing_is_said_in_the_clear_that_was_to_be_encrypted() {
    let must = || Options::new().encryption(Encryption::Required);
    let none = Manners { cipher: None, ..Manners::default() };
    let tried = against(none, must(), |_| Act::Honest);
    assert_clear(&tried, "no cipher");
    assert!(tried.overheard.is_empty());
    for flags in [SessionFlags::IS_GUEST, SessionFlags::IS_NULL] {
        for options in [must(), Options::default()] {
            let manners = Manners { flags, ..Manners::default() };
            let tried = against(manners, options, |_| Act::Honest);
            assert_clear(&tried, "a guest");
            assert_eq!(tried.outcomes.len(), 1);
            assert!(tried.overheard.is_empty());
        }
    }
    // The client accepts guests but requires encryption, for which a guest session has no key.
    let manners = Manners { flags: SessionFlags::IS_GUEST, ..Manners::default() };
    let options = must().allow_guest(true);
    let tried = against(manners, options, |_| Act::Honest);
    assert_clear(&tried, "an encrypted guest");
    assert!(tried.overheard.is_empty());
    // The server answers a READ in the clear. The client refuses that, and has itself sent nothing
    // in the clear.
    let tried = against(Manners { seal: true, ..Manners::default() }, must(), |asked| {
        if asked.header.command == Command::READ { Act::Bare } else { Act::Honest }
    });
    assert_clear(&tried, "an answer in the clear");
    assert!(tried.overheard.is_empty());
}

#[test]
fn a_session_with_proof_does_not_become_a_guest_s() {
    on_paused_clock(async {
        let manners = Manners { guest_from: 1, ..Manners::default() };
        let dial = ToEvil::new(manners, |asked| {
            let is_cut = asked.connection == 0 && asked.header.command == Command::READ;
            if is_cut { Act::Close } else { Act::Honest }
        });
        let options = Options::new().allow_guest(true).recover_for(Duration::from_secs(5));
        let client = Client::with_dialer(options, Arc::clone(&dial) as Arc<dyn Dial>);
        let user = || Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new("evil"), user()).await.unwrap();
        let share = session.share("data").await.unwrap();
        let further = session.open_another(Duration::from_secs(5)).await.map(drop);
        for refused in [further, share.read("known").await.map(drop)] {
            let error = refused.unwrap_err();
            let is_told = matches!(error.cause(), Cause::Security(why) if why.contains("guest"));
            assert!(is_told, "{error}");
        }
        // Unlike the renewals above, a first logon without proof succeeds, because no server was
        // authenticated before.
        client.connect(ServerName::new("evil"), user()).await.unwrap();
    });
}

#[test]
fn logons_that_do_not_end_or_end_too_soon() {
    let more = lies(|asked| match asked.header.command {
        Command::SESSION_SETUP => Act::Refused(Status::MORE_PROCESSING_REQUIRED),
        _ => Act::Honest,
    });
    assert!(more.failed().is_some());
    let soon = lies(|asked| match asked.header.command {
        Command::SESSION_SETUP => Act::Changed(Box::new(|message| set(message, 8, &[0; 4]))),
        _ => Act::Honest,
    });
    let error = soon.failed().unwrap();
    assert!(is_clear(error) || matches!(error.cause(), Cause::Logon(_)), "{error}");
    assert_eq!(soon.outcomes.len(), 1);
}

/// MS-FSCC 2.4: names that lead elsewhere, entries that point elsewhere.
#[test]
fn f6_listings_that_lie() {
    for name in ["..", "a/b", "a\\b", "../x", "/etc/passwd", "a\0b", "\\\\host\\share", ""] {
        if name == ".." {
            continue; // Left out, as a good server may list it.
        }
        let root = vec![("good".to_owned(), false), (name.to_owned(), false)];
        let tried =
            against(Manners { root, ..Manners::default() }, Options::default(), |_| Act::Honest);
        let error = tried.of("list").as_ref().unwrap_err();
        assert!(is_clear(error), "{name:?}: {error}");
    }
    // Each case replaces bytes of the body: it has their position and the new bytes.
    let cases: [(usize, &[u8]); 9] = [
        (66, &[0, 0]),
        (66, &[0xFF, 0xFF]),
        (68, &[0xFF; 4]),
        (72, &[1, 0, 0, 0]),
        (72, &[0xFF; 4]),
        (72, &[0, 0, 0, 0x80]),
        (72, &[16, 0, 0, 0]),
        (72 + 60, &[0xFF; 4]),
        (72 + 60, &[3, 0, 0, 0]),
    ];
    for (at, bytes) in cases {
        let tried = with_body(Command::QUERY_DIRECTORY, move |message| set(message, at, bytes));
        let error = tried.of("list").as_ref().unwrap_err();
        assert!(is_clear(error), "{bytes:?} at {at}: {error}");
    }
    // The server returns `.` and `..` in every answer and never ends the listing.
    let dots = evil::buffer(&evil::entries(&[(".".into(), true), ("..".into(), true)]));
    let tried = lies(move |asked| match asked.header.command {
        Command::QUERY_DIRECTORY => {
            let dots = dots.clone();
            Act::Changed(Box::new(move |message| {
                message.truncate(64);
                set(message, 8, &[0; 4]);
                message.extend_from_slice(&dots);
            }))
        }
        _ => Act::Honest,
    });
    assert!(is_clear(tried.of("list").as_ref().unwrap_err()));
}

#[test]
fn a_listing_ends_though_the_names_do_not() {
    let name = |at| (format!("name{at}"), false);
    let root: Vec<_> = (0..10).map(name).collect();
    let listed = |most| {
        let manners = Manners { root: root.clone(), ..Manners::default() };
        let list = async |client: &Client| {
            let user = Credentials::new("ann", "secret");
            let session = client.connect(ServerName::new("evil"), user).await?;
            let share = session.share("data").await?;
            Ok(share.read_dir("").await?.max_entries(most).collect_all().await?.len())
        };
        one_thing(manners, Options::default(), |_| Act::Honest, list).0
    };
    assert_eq!(listed(10).unwrap(), 10);
    let error = listed(9).unwrap_err();
    assert!(matches!(error.cause(), Cause::Limit(_)), "the limit is the client's: {error}");
}

/// A server could list for ever with few names.
#[test]
fn a_listing_that_names_a_file_twice_ends() {
    let root = ["a", "b", "a"].map(|name| (name.to_owned(), false)).to_vec();
    let lists = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lists);
    let list = async |client: &Client| {
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new("evil"), user).await?;
        let share = session.share("data").await?;
        // The listing has one name twice. The stream skips the second one, but `list_dir` reports
        // an error.
        let streamed = share.read_dir("").await?.collect_all().await?.len();
        assert_eq!(streamed, 2);
        share.list_dir("").await
    };
    let script = move |asked: &Asked<'_>| {
        if asked.header.command == Command::CREATE {
            count.fetch_add(1, Ordering::SeqCst);
        }
        Act::Honest
    };
    let manners = Manners { root, ..Manners::default() };
    let error = one_thing(manners, Options::default(), script, list).0.unwrap_err();
    assert!(matches!(error.cause(), Cause::Protocol(why) if why.contains("twice")), "{error}");
    // The stream lists once; `list_dir` lists three times, because an honest directory may have
    // changed meanwhile.
    assert_eq!(lists.load(Ordering::SeqCst), 4);
}

#[test]
fn links_that_lead_round_and_out() {
    for (target, relative) in
        [("known", true), ("..\\..\\etc\\passwd", true), ("\\??\\C:\\x", false), ("/etc", false)]
    {
        let tried = lies(move |asked| match asked.header.command {
            Command::CREATE => {
                let body = stopped(target, relative);
                Act::Changed(Box::new(move |message| {
                    message.truncate(64);
                    set(message, 8, &Status::STOPPED_ON_SYMLINK.0.to_le_bytes());
                    message.extend_from_slice(&body);
                }))
            }
            _ => Act::Honest,
        });
        let error = tried.of("read at").as_ref().unwrap_err();
        assert_eq!(
            error.status(),
            Some(frevo_client::Status::STOPPED_ON_SYMLINK),
            "{target}: {error}"
        );
    }
    for body in [vec![9, 0, 0, 0], vec![9, 0, 1, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0]] {
        let tried = lies(move |asked| match asked.header.command {
            Command::CREATE => {
                let body = body.clone();
                Act::Changed(Box::new(move |message| {
                    message.truncate(64);
                    set(message, 8, &Status::STOPPED_ON_SYMLINK.0.to_le_bytes());
                    message.extend_from_slice(&body);
                }))
            }
            _ => Act::Honest,
        });
        assert!(tried.of("read at").is_err());
    }
}

/// MS-SMB2 2.2.2.2.1 in an error context of 3.1.1.
fn stopped(target: &str, relative: bool) -> Vec<u8> {
    let name: Vec<u8> = target.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let len = name.len() as u16;
    let mut link = Vec::new();
    for value in [0x4C4D_5953, 0xA000_000C] {
        link.extend_from_slice(&u32::to_le_bytes(value));
    }
    for value in [12 + 2 * len, 0, 0, len, len, len] {
        link.extend_from_slice(&u16::to_le_bytes(value));
    }
    link.extend_from_slice(&u32::from(relative).to_le_bytes());
    link.extend_from_slice(&name);
    link.extend_from_slice(&name);
    let whole = u32::try_from(link.len() + 4).unwrap();
    let mut data = whole.to_le_bytes().to_vec();
    data.extend_from_slice(&link);
    let count = u32::try_from(data.len()).unwrap();
    let mut body = vec![9, 0, 1, 0];
    body.extend_from_slice(&(count + 8).to_le_bytes());
    body.extend_from_slice(&count.to_le_bytes());
    body.extend_from_slice(&0_u32.to_le_bytes());
    body.extend_from_slice(&data);
    body
}

#[test]
fn f6_sizes_and_counts_beyond_all_bounds() {
    // The size in the response is 2^63. The client must not rely on it, but on the data that
    // arrives.
    let tried = with_body(Command::CREATE, |message| {
        set(message, 64 + 48, &(u64::MAX >> 1).to_le_bytes());
    });
    assert!(tried.of("read").is_ok() || tried.failed().is_some());
    // Each case replaces an offset or a length in a response: it has the command, the position and
    // the new bytes.
    let cases: [(Command, usize, &[u8]); 12] = [
        (Command::READ, 66, &[0]),
        (Command::READ, 66, &[255]),
        (Command::READ, 68, &[0xFF; 4]),
        (Command::READ, 68, &[0, 0, 0, 0x80]),
        (Command::WRITE, 68, &[0xFF; 4]),
        (Command::WRITE, 68, &[0; 4]),
        (Command::IOCTL, 96, &[0xFF; 4]),
        (Command::IOCTL, 100, &[0xFF; 4]),
        (Command::CREATE, 64 + 80, &[0xFF; 8]),
        (Command::CREATE, 64 + 80, &[1, 0, 0, 0, 8, 0, 0, 0]),
        (Command::CREATE, 64, &[0; 2]),
        (Command::TREE_CONNECT, 64, &[0; 2]),
    ];
    for (command, at, bytes) in cases {
        let tried = with_body(command, move |message| set(message, at, bytes));
        // If the response to TREE_CONNECT is wrong, opening the share fails, but the connection
        // stays usable.
        let errors = tried.outcomes.iter().filter_map(|(_, outcome)| outcome.as_ref().err());
        assert!(errors.clone().any(is_clear), "{command:?} {bytes:?} at {at}");
    }
    // NextCommand points to no valid position in the compound response.
    for next in [1_u32, 8, 63, 0xFFFF_FFF8, u32::MAX] {
        let tried = lies(move |asked| match asked.header.command {
            Command::CLOSE => {
                Act::Changed(Box::new(move |message| set(message, 20, &next.to_le_bytes())))
            }
            _ => Act::Honest,
        });
        assert!(tried.failed().is_some(), "{next:#x}");
    }
}

/// Answers to everything, each with all that it can count or point at changed, and
/// then signed by the server: nothing panics, hangs or takes much memory.
#[test]
fn whatever_is_signed_is_not_therefore_believed() {
    // SplitMix64 makes the random numbers from the seed.
    let random = |mut x: u64| {
        x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    };
    let most_before = peak_kib();
    for seed in 0..60_u64 {
        let tried = lies(move |asked| {
            if matches!(asked.header.command, Command::NEGOTIATE | Command::SESSION_SETUP) {
                return Act::Honest;
            }
            let seed = random(seed ^ asked.header.message_id << 20 ^ (asked.nth as u64) << 40);
            Act::Changed(Box::new(move |message| {
                // Half of the answers stay as they are; the others get up to three wrong bytes.
                if seed & 1 == 0 || message.len() <= 64 {
                    return;
                }
                for at in 0..(seed >> 8) % 4 {
                    let value = random(seed.wrapping_add(at));
                    let place = 64 + (value as usize >> 16) % (message.len() - 64);
                    let byte = [0, 0xFF, 0x7F, 0x80, 1, value as u8][value as usize % 6];
                    message[place] = byte;
                }
            }))
        });
        drop(tried);
    }
    let more = peak_kib().saturating_sub(most_before);
    assert!(more < 300 << 10, "{more} KiB more at the peak");
}

/// VmHWM of this process.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
