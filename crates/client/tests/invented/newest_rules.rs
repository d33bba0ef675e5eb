//! Rules for clients that the newest versions of MS-SMB2 have: docs/specification-changes.md.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::dialed;
use crate::evil;

use std::sync::Arc;

use dialed::one_thing;
use evil::{Act, Asked, CONTENT, Manners};
use frevo_client::{Cause, Change, Credentials, Error, Options, RecursiveMode, ServerName};
use frevo_wire::Command;
use frevo_wire::codec::Writer;
use frevo_wire::command::{change_notify, negotiate};
use frevo_wire::fscc::notify::{NotifyAction, NotifyEntry, NotifyWriter};
use frevo_wire::header::HEADER_LEN;
use frevo_wire::negotiate_context::NegotiateContext;
use parking_lot::Mutex;

/// The body of an answer that names these files as added.
fn added(names: &[&str]) -> Vec<u8> {
    let mut output = Vec::new();
    let mut writer = NotifyWriter::new(&mut output, usize::MAX);
    for name in names {
        let _ = writer.push(&NotifyEntry { action: NotifyAction::ADDED, name: *name });
    }
    body(&output)
}

fn body(output: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    change_notify::Response { output }.encode(&mut Writer::new(&mut body));
    body
}

/// Watches a directory of a server that answers with this body.
fn watched(mode: RecursiveMode, body: Vec<u8>) -> Result<Vec<Change>, Error> {
    let script = move |asked: &Asked<'_>| match asked.header.command {
        Command::CHANGE_NOTIFY => {
            let body = body.clone();
            Act::Changed(Box::new(move |message| {
                // The status of the header.
                message[8..12].fill(0);
                message.truncate(HEADER_LEN);
                message.extend_from_slice(&body);
            }))
        }
        _ => Act::Honest,
    };
    let watch = async |client: &frevo_client::Client| {
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new("evil"), user).await?;
        session.share("data").await?.watch("dir", mode).await?.next_changes().await
    };
    one_thing(Manners::default(), Options::default(), script, watch).0
}

/// MS-SMB2 3.2.5.16: an answer that is malformed, or longer than was asked for, is refused.
#[test]
fn changes_that_cannot_be_read_are_refused() {
    use RecursiveMode::{NonRecursive, Recursive};
    let told = |names: &[&str]| -> Vec<Change> {
        names.iter().map(|name| Change::Added((*name).into())).collect()
    };
    assert_eq!(watched(NonRecursive, added(&["one", "two"])).unwrap(), told(&["one", "two"]));
    assert_eq!(watched(Recursive, added(&["a\\..b"])).unwrap(), told(&["a/..b"]));

    // The second entry begins at a multiple of 4, the first one is longer by its padding.
    let mut odd_offset = added(&["ab", "cd"]);
    odd_offset[8] = 18;
    let mut odd_name = added(&["ab"]);
    odd_name[8 + 8] = 3;
    let mut beyond = added(&["ab"]);
    beyond[8 + 8] = 6;
    let too_long = added(&["x".repeat(32_768).as_str()]);
    for (what, body) in [
        ("an entry between two words", odd_offset),
        ("half a character", odd_name),
        ("a name beyond the entry", beyond),
        ("more than was asked for", too_long),
    ] {
        let error = watched(Recursive, body).expect_err(what);
        assert!(matches!(error.cause(), Cause::Protocol(_)), "{what}: {error}");
    }
}

/// MS-SMB2 3.2.5.16: no program is told a path that leads out of the watched directory, or that cannot
/// be. The watch goes on: files of the host may have such names.
#[test]
fn changes_outside_of_the_directory_are_not_told() {
    use RecursiveMode::{NonRecursive, Recursive};
    let cannot_be =
        ["\\a", "/a", "a\"b", "..", ".", "", "a\\..\\..\\b", "a/../b", "a\\\\b", "a\\", "a\0b"];
    for name in cannot_be {
        for mode in [Recursive, NonRecursive] {
            let changes = watched(mode, added(&[name, "good"])).unwrap();
            assert_eq!(changes, [Change::Missed, Change::Added("good".into())], "{name}");
        }
        assert_eq!(watched(Recursive, added(&[name])).unwrap(), [Change::Missed], "{name}");
    }
    for below in ["a\\b", "a/b"] {
        assert_eq!(watched(NonRecursive, added(&[below])).unwrap(), [Change::Missed]);
    }
}

/// MS-SMB2 3.2.4.2.2.2: NEGOTIATE names the server as the caller did, without the port.
#[test]
fn negotiate_names_the_server() {
    for (server, expected) in
        [("Files.Example", "Files.Example"), ("files:4450", "files"), ("[fd00::1]:4450", "fd00::1")]
    {
        let names = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&names);
        let script = move |asked: &Asked<'_>| {
            if asked.header.command == Command::NEGOTIATE {
                let request = negotiate::Request::parse(asked.message).unwrap();
                let contexts = request.negotiate_contexts.iter();
                heard.lock().extend(contexts.filter_map(|context| match context {
                    NegotiateContext::Netname(name) => Some(name.to_string().unwrap()),
                    _ => None,
                }));
            }
            Act::Honest
        };
        let connect = async |client: &frevo_client::Client| {
            let name: ServerName = server.parse().unwrap();
            let session = client.connect(name, Credentials::new("ann", "secret")).await?;
            session.share("data").await
        };
        one_thing(Manners::default(), Options::default(), script, connect).0.unwrap();
        assert_eq!(*names.lock(), [expected]);
    }
}

/// MS-SMB2 2.2.10: SMB2_SHAREFLAG_ISOLATED_TRANSPORT is advice, which the client does not follow.
#[test]
fn a_share_that_wants_connections_of_its_own_is_used() {
    let script = |asked: &Asked<'_>| match asked.header.command {
        // ShareFlags begin at byte 4 of the body; the flag is 0x00200000.
        Command::TREE_CONNECT => Act::Changed(Box::new(|message| message[70] |= 0x20)),
        _ => Act::Honest,
    };
    let (content, connections) =
        one_thing(Manners::default(), Options::default(), script, async |client| {
            let user = Credentials::new("ann", "secret");
            let session = client.connect(ServerName::new("evil"), user).await?;
            session.share("data").await?.read("known").await
        });
    assert_eq!(content.unwrap(), CONTENT);
    assert_eq!(connections, 1);
}
