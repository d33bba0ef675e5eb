//! Log lines about clients: one for each refusal, and none that nobody has to act on.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use frevo_proto::Dialect;
use frevo_server::settings::{Encryption, Settings, Signing};
use frevo_wire::command::negotiate::{self, SecurityMode};
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::negotiate_context::{HashAlgorithm, NegotiateContext};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

use super::negotiation::smb1;
use crate::client::files::{rename_draft, tree_connect_draft};
use crate::client::*;

/// Lines of one target.
#[derive(Clone)]
struct Lines {
    lines: Arc<Mutex<Vec<String>>>,
    target: &'static str,
    /// The least important level.
    level: Level,
}

impl Lines {
    fn new(target: &'static str, level: Level) -> Self {
        Self { lines: Arc::new(Mutex::new(Vec::new())), target, level }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level && metadata.target() == self.target
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(event.metadata().level().to_string());
        event.record(&mut text);
        self.lines.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Runs the test in a world, and gives it the warnings of connections.
fn logged(settings: Settings, test: &impl AsyncFn(&World, &Lines)) {
    logged_as("frevo::connection", Level::WARN, settings, test);
}

/// Runs the test in a world, and gives it the lines that the server has written for a target.
fn logged_as(
    target: &'static str,
    level: Level,
    settings: Settings,
    test: &impl AsyncFn(&World, &Lines),
) {
    let lines = Lines::new(target, level);
    tracing::subscriber::with_default(lines.clone(), || {
        in_world_with(settings, async |world| test(world, &lines).await);
    });
}

/// smb-rs sends it when encryption is off, and takes no cipher 0 for an answer.
#[test]
fn an_empty_list_of_ciphers_is_no_offer() {
    logged(settings(), &async |world, lines| {
        let mut peer = world.connect();
        let salt = [7; 32];
        let contexts = [
            NegotiateContext::PreauthIntegrity {
                hash_algorithms: vec![HashAlgorithm::SHA_512],
                salt: &salt,
            },
            NegotiateContext::Encryption(Vec::new()),
        ];
        let offer = Offer::default();
        let draft = offer.draft_with(peer.guid, contexts.to_vec());
        let reply = peer.ask(draft, Via::Plain).await;
        let response = negotiate::Response::parse(&reply.ok().message).unwrap();
        let [NegotiateContext::PreauthIntegrity { .. }] = response.negotiate_contexts[..] else {
            panic!("{response:?}");
        };
        assert_eq!(lines.take(), [""; 0]);

        // A malformed NEGOTIATE is logged, but only once.
        let mut peer = world.connect();
        let draft = offer.draft_with(peer.guid, Vec::new());
        peer.ask(draft, Via::Plain).await.expect(Status::INVALID_PARAMETER);
        let said = lines.take();
        assert!(matches!(&said[..], [line] if line.contains("NEGOTIATE is malformed")), "{said:?}");
    });
}

/// pysmb offers SMB 2.002 and SMB1's dialects.
#[test]
fn a_client_of_2_0_2_learns_the_true_reason_in_one_line() {
    let settings = Settings { min_dialect: Dialect::SMB_2_1, ..settings() };
    logged(settings, &async |world, lines| {
        for (dialects, reason) in [
            (&["NT LM 0.12", "SMB 2.002"][..], "min_dialect is SMB 2.1"),
            (&["NT LM 0.12"][..], "SMB1 only"),
        ] {
            let mut peer = world.connect();
            peer.send_frame(&smb1(dialects)).await;
            peer.expect_disconnect().await;
            let said = lines.take();
            assert!(matches!(&said[..], [line] if line.contains(reason)), "{said:?}");
        }
    });
}

#[test]
fn a_sealed_message_after_logoff_is_no_warning() {
    logged(settings(), &async |world, lines| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let mount = mount.sealed();
        peer.on(&mount, Draft::empty(Command::LOGOFF)).await.ok();
        peer.send(vec![mount.put(Draft::echo())], mount.via()).await;
        peer.expect_disconnect().await;
        assert_eq!(lines.take(), [""; 0]);
    });
}

/// MS-SMB2 3.3.5.2.4. The refusal is signed, because clients that demand signatures ignore another one;
/// its line names the setting.
#[test]
fn an_unsigned_request_is_refused_with_a_signature_and_a_line() {
    for (signing, asks, advice) in [
        (Signing::Required, SecurityMode::SIGNING_ENABLED, "set signing = \"offered\""),
        (Signing::Offered, SecurityMode::SIGNING_REQUIRED, "the client itself demanded signatures"),
    ] {
        logged(Settings { signing, ..settings() }, &async |world, lines| {
            for dialect in [Dialect::SMB_2_1, Dialect::SMB_3_0, Dialect::SMB_3_1_1] {
                let mut peer = world.connect();
                peer.negotiate(&Offer::only(dialect)).await;
                let setup = Setup { mode: asks, ..Setup::of("ann") };
                let logon = peer.try_log_on(setup).await.expect("logged on");
                let mount = peer.mount(&logon, "data").await;
                let file = peer.open_file(&mount, &Want::file("f")).await;
                assert_eq!(lines.take(), [""; 0]);
                for draft in [query_draft(FileInfoClass::BASIC, file), Draft::echo()] {
                    let draft = mount.put(draft).session(logon.id);
                    let refused = peer.ask(draft, Via::Plain).await;
                    refused.expect(Status::ACCESS_DENIED);
                    // The peer has verified the signature with the session's key.
                    assert!(refused.is_signed(), "{dialect:?}");
                    let said = lines.take();
                    assert!(
                        matches!(&said[..], [line] if line.contains("is not signed") && line.contains(advice)),
                        "{said:?}"
                    );
                }
                peer.close(&mount, file).await;
            }
        });
    }
    // A session that need not sign gets unsigned answers to unsigned requests.
    let offered = Settings { signing: Signing::Offered, ..settings() };
    logged(offered, &async |world, lines| {
        let mut peer = world.connect();
        peer.negotiate(&Offer::only(Dialect::SMB_3_0)).await;
        let logon = peer.log_on("ann").await;
        let reply = peer.ask(Draft::echo().session(logon.id), Via::Plain).await;
        assert!(!reply.ok().is_signed());
        assert_eq!(lines.take(), [""; 0]);
    });
}

#[test]
fn a_request_in_the_clear_is_refused_with_a_line() {
    let sealed = Settings { encryption: Encryption::Required, ..settings() };
    logged(sealed, &async |world, lines| {
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        let logon = peer.log_on("ann").await;
        let draft = tree_connect_draft("\\\\server\\data").session(logon.id);
        let clear = peer.ask(draft, Via::Signed(&logon)).await;
        clear.expect(Status::ACCESS_DENIED);
        let said = lines.take();
        let wanted = "set encryption = \"offered\"";
        assert!(matches!(&said[..], [line] if line.contains(wanted)), "{said:?}");
    });
}

#[test]
fn a_path_below_a_share_is_refused_with_a_line() {
    logged_as("frevo::tree", Level::WARN, settings(), &async |world, lines| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for path in ["\\\\server\\data\\sub", "\\\\server", "data"] {
            let draft = tree_connect_draft(path).session(mount.logon.id);
            let refused = peer.ask(draft, mount.via()).await;
            refused.expect(Status::INVALID_PARAMETER);
            let said = lines.take();
            assert!(
                matches!(&said[..], [line] if line.contains("connect to the share, and open folders")),
                "{said:?}"
            );
        }
    });
}

#[test]
fn a_name_that_is_refused_as_it_is_spelled_has_a_line_for_debugging() {
    logged_as("frevo::access", Level::DEBUG, settings(), &async |world, lines| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        assert_eq!(lines.take(), [""; 0]);
        let refused = Status::OBJECT_NAME_INVALID;
        peer.create(&mount, &Want::file("d/f")).await.expect(refused);
        for class in [FileInfoClass::RENAME, FileInfoClass::RENAME_EX, FileInfoClass::LINK] {
            peer.on(&mount, rename_draft(class, file, "d/g", false)).await.expect(refused);
        }
        let said = lines.take();
        assert_eq!(said.len(), 4, "{said:?}");
        for (line, name) in said.iter().zip(["d/f", "d/g", "d/g", "d/g"]) {
            assert!(line.contains(name) && line.contains("see forward_slashes"), "{line}");
        }
    });
    logged_as("frevo::access", Level::INFO, settings(), &async |world, lines| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        peer.create(&mount, &Want::file("d/f")).await.expect(Status::OBJECT_NAME_INVALID);
        assert_eq!(lines.take(), [""; 0]);
    });
}

/// The line of a logon names the algorithm of signatures that the session must have, and no other.
#[test]
fn a_logon_says_what_is_in_force() {
    for (signing, encryption, wanted) in [
        (Signing::Required, Encryption::Offered, "signing=\"AES-GMAC\""),
        (Signing::Offered, Encryption::Offered, "signing=\"optional\""),
        (Signing::Required, Encryption::Required, "signing=\"none\""),
    ] {
        let settings = Settings { signing, encryption, ..settings() };
        logged_as("frevo::session", Level::INFO, settings, &async |world, lines| {
            let mut peer = world.connect();
            peer.negotiate(&Offer::default()).await;
            peer.log_on("ann").await;
            let said = lines.take();
            assert!(
                said.iter().any(|line| line.contains("logged on") && line.contains(wanted)),
                "{wanted}: {said:?}"
            );
        });
    }
}
