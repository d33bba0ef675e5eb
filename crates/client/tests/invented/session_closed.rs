//! Session-closed notifications: MS-SMB2 3.2.5.20. A client that is told of the end of its session logs on
//! again before a program asks; a message that may be forged ends nothing.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::dialed;
use crate::evil;
use crate::world;

use std::sync::atomic::Ordering;
use std::time::Duration;

use dialed::one_thing;
use evil::framed;
use evil::{Act, CONTENT, Manners, SESSION};
use frevo_client::limits::{COME_BACKS, SESSION_CLOSED_BYTES};
use frevo_client::{
    Cause, Client, Credentials, Dialect, Encryption, Error, OpenOptions, Options, ServerName,
};
use frevo_server::settings::{self, Signing};
use frevo_server::{Kick, Settings};
use frevo_wire::codec::Writer;
use frevo_wire::command::server_to_client_notification::{Notification, NotificationType};
use frevo_wire::{Command, Header, HeaderFlags, Route, Status};
use tokio::time::{sleep, timeout};
use world::{World, in_world_with, settings};

const A_WHILE: Duration = Duration::from_millis(300);

async fn kick_ann(world: &World) {
    let kicked = world.embedded.kick(&Kick::User("ann".into()), "a test").await;
    assert_eq!(kicked.sessions, 1);
}

/// Waits until the client has made so many connections and is logged on.
async fn dialed(world: &World, count: usize) {
    let is_back = async {
        while world.wire.dialed.load(Ordering::SeqCst) < count
            || world.server.sessions().iter().all(|session| session.identity().is_none())
        {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(Duration::from_secs(20), is_back).await.expect("the client comes back");
    assert_eq!(world.wire.dialed.load(Ordering::SeqCst), count);
}

/// Kicked again and again, the programs of a client see no error, and none of their requests is refused.
#[test]
fn a_client_that_is_told_comes_back_at_once() {
    let required = Options::new().encryption(Encryption::Required);
    for (signing, options) in [
        (Signing::Required, Options::new()),
        (Signing::Offered, Options::new()),
        (Signing::Offered, required),
        (Signing::Required, Options::new().channels(3)),
    ] {
        let settings = Settings { signing, ..settings() };
        in_world_with(settings, async |world| {
            let share = world.session(options.clone()).await.share("data").await.unwrap();
            let file = OpenOptions::new().read(true).write(true).create(true);
            let file = file.open(&share, "f").await.unwrap();
            for round in 0..5_u8 {
                file.write_at(&[round; 100], 0).await.unwrap();
                let before = world.wire.dialed.load(Ordering::SeqCst);
                kick_ann(world).await;
                // Further channels follow the first one.
                let back = async {
                    while world.wire.dialed.load(Ordering::SeqCst) == before {
                        sleep(Duration::from_millis(2)).await;
                    }
                };
                timeout(Duration::from_secs(20), back).await.expect("without a request");
                let mut read = [0; 100];
                assert_eq!(file.read_at(&mut read, 0).await.unwrap(), 100);
                assert_eq!(read, [round; 100]);
                // A request that must not be sent twice is sent once.
                share.create_dir(&format!("d{round}")).await.unwrap();
            }
            file.close().await.unwrap();
        });
    }
}

/// A client with nothing open comes back when a program asks: servers end idle sessions.
#[test]
fn a_client_without_open_files_waits_for_a_request() {
    in_world_with(settings(), async |world| {
        let share = world.share().await;
        kick_ann(world).await;
        sleep(A_WHILE).await;
        assert_eq!(world.wire.dialed.load(Ordering::SeqCst), 1);
        assert!(world.server.sessions().is_empty());
        share.create_dir("d").await.unwrap();
        dialed(world, 2).await;
    });
}

/// A client of 3.0.2 is not told, and comes back by its next request.
#[test]
fn a_client_of_an_older_dialect_is_not_told() {
    in_world_with(settings(), async |world| {
        let options = Options::new().newest(Dialect::Smb302);
        let share = world.session(options).await.share("data").await.unwrap();
        let file = OpenOptions::new().read(true).write(true).create(true);
        let file = file.open(&share, "f").await.unwrap();
        kick_ann(world).await;
        sleep(A_WHILE).await;
        assert_eq!(world.wire.dialed.load(Ordering::SeqCst), 1);
        file.write_at(b"back", 0).await.unwrap();
        dialed(world, 2).await;
    });
}

/// An encrypted session is kept by a server that demands encryption, too.
#[test]
fn a_client_of_an_encrypted_session_comes_back() {
    let encryption = settings::Encryption::Required;
    in_world_with(Settings { encryption, ..settings() }, async |world| {
        let share = world.share().await;
        let file = OpenOptions::new().write(true).create(true).open(&share, "f").await.unwrap();
        kick_ann(world).await;
        dialed(world, 2).await;
        file.write_at(b"back", 0).await.unwrap();
    });
}

/// A notification as a server sends it, without protection.
fn news(kind: NotificationType, session_id: u64, message_id: u64) -> Vec<u8> {
    let header = Header {
        credit_charge: 0,
        status: Status::SUCCESS,
        command: Command::SERVER_TO_CLIENT_NOTIFICATION,
        credits: 0,
        flags: HeaderFlags::SERVER_TO_REDIR,
        next_command: 0,
        message_id,
        route: Route::Sync { process_id: 0, tree_id: 0 },
        session_id,
        signature: [0; 16],
    };
    let mut message = header.to_bytes().to_vec();
    let body = Notification { notification_type: kind };
    body.encode(&mut Writer::from(&mut message, 0));
    message
}

const CLOSED: NotificationType = NotificationType::SESSION_CLOSED;
/// A MessageId that no request has.
const OWN: u64 = 1 << 63 | 7;

/// Opens and reads a file, and waits. Returns the count of connections that this took.
fn connections(
    manners: Manners,
    options: Options,
    act: impl Fn() -> Act + Send + Sync + 'static,
) -> (Result<Vec<u8>, Error>, usize) {
    let script = move |asked: &evil::Asked<'_>| {
        let is_first = asked.connection == 0 && asked.nth == 0;
        if is_first && asked.header.command == Command::READ { act() } else { Act::Honest }
    };
    let read = async |client: &Client| {
        let user = Credentials::new("ann", "secret");
        let share = client.connect(ServerName::new("evil"), user).await?.share("data").await?;
        let file = share.open("known").await?;
        let mut into = vec![0; CONTENT.len()];
        let count = file.read_at(&mut into, 0).await?;
        sleep(Duration::from_secs(1)).await;
        into.truncate(count);
        Ok(into)
    };
    one_thing(Manners { notifies: true, ..manners }, options, script, read)
}

fn signing() -> Manners {
    Manners { signs: true, ..Manners::default() }
}

fn sealing() -> Manners {
    Manners { seal: true, ..Manners::default() }
}

#[test]
fn the_news_counts_with_the_protection_of_its_session() {
    type Make = fn() -> Act;
    let cases: [(&str, Manners, Make); 4] = [
        ("plain", Manners::default(), || Act::First(vec![news(CLOSED, SESSION, u64::MAX)])),
        ("signed, with a MessageId", signing(), || Act::First(vec![news(CLOSED, SESSION, OWN)])),
        ("sealed", sealing(), || Act::First(vec![news(CLOSED, SESSION, u64::MAX)])),
        ("sealed, with a MessageId", sealing(), || Act::First(vec![news(CLOSED, SESSION, OWN)])),
    ];
    for (name, manners, act) in cases {
        // Nobody demands signatures in the first case.
        let options = Options::new().require_signing(name != "plain");
        let (read, connections) = connections(manners, options, act);
        assert_eq!(read.unwrap(), CONTENT, "{name}");
        assert_eq!(connections, 2, "{name}");
    }
}

/// The news in the clear where messages are protected, with a wrong signature, of another session, of an
/// unknown type, or where nobody negotiated it: the session goes on.
#[test]
fn news_that_may_be_forged_ends_nothing() {
    type Make = fn() -> Act;
    let cases: [(&str, Manners, Make); 8] = [
        ("unsigned", signing(), || Act::First(vec![news(CLOSED, SESSION, u64::MAX)])),
        ("unsigned, with a MessageId", signing(), || {
            Act::Behind(framed(&news(CLOSED, SESSION, OWN)))
        }),
        ("a wrong signature", signing(), || {
            let mut forged = news(CLOSED, SESSION, OWN);
            forged[16] |= HeaderFlags::SIGNED.0 as u8;
            forged[48..64].fill(0xA5);
            Act::Behind(framed(&forged))
        }),
        ("signed where nothing is, wrongly", Manners::default(), || {
            let mut forged = news(CLOSED, SESSION, u64::MAX);
            forged[16] |= HeaderFlags::SIGNED.0 as u8;
            Act::Behind(framed(&forged))
        }),
        ("not sealed", sealing(), || Act::Behind(framed(&news(CLOSED, SESSION, u64::MAX)))),
        ("another session", signing(), || Act::First(vec![news(CLOSED, SESSION + 1, OWN)])),
        ("unknown", signing(), || Act::First(vec![news(NotificationType(7), SESSION, OWN)])),
        ("unknown and unsigned", sealing(), || {
            Act::Behind(framed(&news(NotificationType(u32::MAX), 0, u64::MAX)))
        }),
    ];
    for (name, manners, act) in cases {
        let options = Options::new().require_signing(!name.contains("where nothing is"));
        let (read, connections) = connections(manners, options, act);
        assert_eq!(read.unwrap(), CONTENT, "{name}");
        assert_eq!(connections, 1, "{name}");
    }
}

/// MS-SMB2 3.2.5.2: Connection.SupportsNotifications is for servers that have the capability.
#[test]
fn news_that_was_not_negotiated_ends_nothing() {
    let script = |asked: &evil::Asked<'_>| match asked.header.command {
        Command::READ if asked.connection == 0 => Act::First(vec![news(CLOSED, SESSION, OWN)]),
        _ => Act::Honest,
    };
    let read = async |client: &Client| {
        let user = Credentials::new("ann", "secret");
        let share = client.connect(ServerName::new("evil"), user).await?.share("data").await?;
        let file = share.open("known").await?;
        let mut into = vec![0; CONTENT.len()];
        file.read_at(&mut into, 0).await?;
        sleep(Duration::from_secs(1)).await;
        Ok(into)
    };
    let (read, connections) = one_thing(signing(), Options::new(), script, read);
    assert_eq!((&*read.unwrap(), connections), (CONTENT, 1));
}

/// A notification without its whole body ends the connection like every other malformed message.
#[test]
fn news_that_is_cut_off_is_no_news() {
    for kept in [64, 66, 71] {
        let (read, connections) = connections(Manners::default(), Options::new(), move || {
            let mut cut = news(CLOSED, SESSION, u64::MAX);
            cut.truncate(kept);
            Act::Behind(framed(&cut))
        });
        // The server does not keep the handle over the loss of the connection.
        assert!(matches!(read.unwrap_err().cause(), Cause::HandleLost), "{kept}");
        assert_eq!(connections, 2, "{kept}");
    }
}

/// A notification waits for its turn: one with a long tail would take the memory of a large answer.
#[test]
fn news_that_is_too_long_is_no_news() {
    for (len, is_read) in [(SESSION_CLOSED_BYTES, true), (SESSION_CLOSED_BYTES + 1, false)] {
        let options = Options::new().require_signing(false);
        let (read, connections) = connections(Manners::default(), options, move || {
            let mut long = news(CLOSED, SESSION, u64::MAX);
            long.resize(len, 0);
            Act::Behind(framed(&long))
        });
        assert_eq!(read.is_ok(), is_read, "{len}");
        assert_eq!(connections, 2, "{len}");
    }
}

/// A client comes back a few times in a minute; then a request has it come back.
#[test]
fn a_server_that_ends_each_session_at_once_is_left_alone() {
    for (ends, asks) in [(100, false), (COME_BACKS, true)] {
        let script = move |asked: &evil::Asked<'_>| {
            let ends_at = match asked.connection {
                0 => Command::READ,
                _ => Command::TREE_CONNECT,
            };
            let is_end = asked.connection <= ends && asked.header.command == ends_at;
            if is_end { Act::First(vec![news(CLOSED, SESSION, u64::MAX)]) } else { Act::Honest }
        };
        let read = async |client: &Client| {
            let user = Credentials::new("ann", "secret");
            let share = client.connect(ServerName::new("evil"), user).await?.share("data").await?;
            let file = share.open("known").await?;
            let mut into = vec![0; CONTENT.len()];
            file.read_at(&mut into, 0).await?;
            sleep(Duration::from_secs(1)).await;
            if asks { share.read("known").await.map(|read| read.to_vec()) } else { Ok(into) }
        };
        let manners = Manners { notifies: true, ..Manners::default() };
        let options = Options::new().require_signing(false);
        let (read, connections) = one_thing(manners, options, script, read);
        assert_eq!(read.unwrap(), CONTENT);
        assert_eq!(connections, 1 + COME_BACKS + usize::from(asks));
    }
}
