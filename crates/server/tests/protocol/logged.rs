//! Log lines about clients: one for each refusal, and none that nobody has to act on.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use frevo_proto::Dialect;
use frevo_server::settings::Settings;
use frevo_wire::command::negotiate;
use frevo_wire::negotiate_context::{HashAlgorithm, NegotiateContext};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

use super::negotiation::smb1;
use crate::client::*;

/// Lines of WARN and above.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
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
        *metadata.level() <= Level::WARN && metadata.target() == "frevo::connection"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(event.metadata().level().to_string());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Runs the test in a world, and gives it the lines that the server has written.
fn logged(settings: Settings, test: &impl AsyncFn(&World, &Lines)) {
    let lines = Lines::default();
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
