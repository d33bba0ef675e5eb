//! SMB2_TRANSPORT_CAPABILITIES and Connection.AcceptTransportSecurity: MS-SMB2 2.2.3.1.5 and 3.3.5.4.

use frevo_server::settings::{Encryption, Signing};
use frevo_wire::command::create::OplockLevel;
use frevo_wire::command::negotiate;
use frevo_wire::command::session_setup::SessionFlags;
use frevo_wire::negotiate_context::{NegotiateContext, TransportCapabilityFlags};

use crate::client::files::tree_connect_draft;
use crate::client::*;

const ACCEPT: TransportCapabilityFlags = TransportCapabilityFlags::ACCEPT_TRANSPORT_LEVEL_SECURITY;

/// A server that demands encryption and signatures.
fn demanding() -> Settings {
    Settings { encryption: Encryption::Required, signing: Signing::Required, ..settings() }
}

fn offer(flags: TransportCapabilityFlags) -> Offer {
    Offer { transport: Some(flags.0), ..Offer::default() }
}

/// Negotiates; returns the flags of the server's context, if it sent one.
async fn negotiated(peer: &mut Peer, offer: &Offer) -> Option<TransportCapabilityFlags> {
    let reply = peer.try_negotiate(offer).await;
    reply.ok();
    let response = negotiate::Response::parse(&reply.message).unwrap();
    let flags = |context: &NegotiateContext<'_>| match context {
        NegotiateContext::Transport(flags) => Some(*flags),
        _ => None,
    };
    response.negotiate_contexts.iter().find_map(flags)
}

#[test]
fn a_session_over_a_secure_transport_needs_no_protection_of_smb() {
    in_world_with(demanding(), async |world| {
        // A client without a cipher, for which SMB cannot encrypt.
        let offer = Offer { ciphers: Vec::new(), ..offer(ACCEPT) };
        let mut peer = world.connect_securely();
        assert_eq!(negotiated(&mut peer, &offer).await, Some(ACCEPT));
        let logon = peer.log_on("ann").await;
        assert_eq!(logon.flags, SessionFlags::EMPTY);
        for share in ["data", "sealed"] {
            let mount = peer.mount(&logon, share).await;
            let want = Want { oplock: OplockLevel::BATCH, ..Want::file(share) };
            let reply = peer.ask(mount.put(want.draft()), Via::Plain).await;
            reply.ok();
            assert!(!reply.is_signed() && !reply.sealed, "{reply:?}");
            // The client may sign a request, and then the reply is signed.
            assert!(peer.on(&mount, Draft::echo()).await.is_signed());
            // A break comes as the transport carries it.
            let mut other = world.connect_securely();
            negotiated(&mut other, &offer).await;
            let theirs = other.log_on("bob").await;
            let theirs = other.mount(&theirs, share).await;
            other.send(vec![theirs.put(Want::existing(share).draft())], Via::Plain).await;
            let told = peer.reply().await;
            assert_eq!((told.header.command, told.sealed), (Command::OPLOCK_BREAK, false));
        }
    });
}

/// MS-SMB2 3.3.5.7: the signature of TREE_CONNECT proves that nobody changed the negotiation.
#[test]
fn tree_connect_is_signed_over_any_transport() {
    in_world_with(demanding(), async |world| {
        let mut peer = world.connect_securely();
        negotiated(&mut peer, &offer(ACCEPT)).await;
        let logon = peer.log_on("ann").await;
        let draft = tree_connect_draft("\\\\frevo\\data").session(logon.id);
        peer.send(vec![draft], Via::Plain).await;
        assert!(peer.frame().await.is_none(), "the connection ends");
    });
}

#[test]
fn another_transport_has_no_such_context() {
    in_world_with(demanding(), async |world| {
        let mut peer = world.connect();
        assert_eq!(negotiated(&mut peer, &offer(ACCEPT)).await, None);
        let logon = peer.log_on("ann").await;
        assert_eq!(logon.flags, SessionFlags::ENCRYPT_DATA);
        let mount = peer.mount(&logon, "data").await;
        let reply = peer.ask(mount.put(Want::file("f").draft()), Via::Plain).await;
        assert_eq!(reply.status(), Status::ACCESS_DENIED);
        let mut cipherless = world.connect();
        negotiated(&mut cipherless, &Offer { ciphers: Vec::new(), ..offer(ACCEPT) }).await;
        let refused = cipherless.try_log_on(Setup::of("ann")).await.err().unwrap();
        assert_eq!(refused.status(), Status::ACCESS_DENIED);
    });
}

#[test]
fn both_sides_must_accept_it() {
    let wary = Settings { transport_security: false, ..demanding() };
    let cases = [(demanding(), TransportCapabilityFlags::EMPTY, true), (wary, ACCEPT, false)];
    for (settings, flags, is_answered) in cases {
        in_world_with(settings, async move |world| {
            let mut peer = world.connect_securely();
            let answer = negotiated(&mut peer, &offer(flags)).await;
            assert_eq!(answer, is_answered.then_some(TransportCapabilityFlags::EMPTY));
            assert_eq!(peer.log_on("ann").await.flags, SessionFlags::ENCRYPT_DATA);
            let mut older = world.connect_securely();
            negotiated(&mut older, &Offer { dialects: vec![Dialect::SMB_3_0_2], ..offer(flags) })
                .await;
            assert_eq!(older.log_on("bob").await.flags, SessionFlags::ENCRYPT_DATA);
        });
    }
}

/// A channel over another transport has no part in what the first one promises.
#[test]
fn a_further_channel_is_judged_by_its_own_transport() {
    in_world_with(demanding(), async |world| {
        let mut first = world.connect_securely();
        negotiated(&mut first, &offer(ACCEPT)).await;
        let logon = first.log_on("ann").await;
        let mount = first.mount(&logon, "data").await;
        let mut second = world.connect();
        second.guid = first.guid;
        negotiated(&mut second, &offer(ACCEPT)).await;
        let bound = second.try_log_on(Setup::binding("ann", &logon)).await.unwrap();
        assert_eq!(bound.flags, SessionFlags::ENCRYPT_DATA);
        let draft = || mount.put(Want::file("f").draft());
        for via in [Via::Plain, Via::Signed(&bound)] {
            let refused = second.ask(draft(), via).await;
            assert_eq!(refused.status(), Status::ACCESS_DENIED);
        }
        assert!(second.ask(draft(), Via::Sealed(&bound)).await.sealed);
        first.ask(draft(), Via::Plain).await.ok();
    });
}
