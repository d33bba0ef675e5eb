//! A transport that encrypts by itself, as QUIC does: neither side encrypts or signs again, where both
//! agree (MS-SMB2 2.2.3.1.5, 3.2.4.2.2.2, 3.2.5.2, 3.3.5.4).
#![allow(missing_docs, reason = "tests")]

use crate::world;

use std::sync::atomic::Ordering;

use frevo_client::{Client, Credentials, Encryption, Options, ServerName, Session};
use frevo_server::settings::{Encryption as Demanded, Signing};
use frevo_server::{Settings, StatusQuery};

use world::{World, in_world_with, settings};

/// A server that demands both.
fn demanding() -> Settings {
    Settings { encryption: Demanded::Required, signing: Signing::Required, ..settings() }
}

/// A client that demands encryption, and has no cipher for it.
fn without_ciphers() -> Options {
    Options::new().encryption(Encryption::Required).ciphers(Vec::new())
}

async fn connect(world: &World, options: Options) -> Result<Session, frevo_client::Error> {
    let client: Client = world.client(options);
    client.connect(ServerName::new("frevo"), Credentials::new("ann", "secret")).await
}

#[test]
fn a_secure_transport_is_encrypted_and_signed_once() {
    in_world_with(demanding(), async |world| {
        world.wire.is_secure.store(true, Ordering::SeqCst);
        // The client has no cipher, so nothing of this session can be encrypted by SMB.
        let session = connect(world, without_ciphers()).await.unwrap();
        for name in ["data", "sealed"] {
            let share = session.share(name).await.unwrap();
            share.write("file", b"content").await.unwrap();
            assert_eq!(share.read("file").await.unwrap(), b"content", "{name}");
            share.remove_file("file").await.unwrap();
        }
        let info = session.info().unwrap();
        assert_eq!((info.encrypted, info.signed, info.cipher), (true, false, None));
        let status = world.embedded.status(&StatusQuery::default());
        let shown = &status.sessions.rows[0];
        assert_eq!((shown.encryption, shown.signing), (Some("transport"), None));
    });
}

#[test]
fn another_transport_promises_nothing() {
    in_world_with(demanding(), async |world| {
        let refused = connect(world, without_ciphers()).await.err().unwrap();
        assert!(refused.to_string().contains("encryption is required"), "{refused}");
        let session = connect(world, Options::new()).await.unwrap();
        let info = session.info().unwrap();
        assert!(info.encrypted && info.signed && info.cipher.is_some());
    });
}

/// One side that does not leave its protection to the transport is enough for SMB's own.
#[test]
fn both_sides_must_agree() {
    let wary = Settings { transport_security: false, ..demanding() };
    for (settings, options) in
        [(wary, Options::new()), (demanding(), Options::new().transport_security(false))]
    {
        in_world_with(settings, async move |world| {
            world.wire.is_secure.store(true, Ordering::SeqCst);
            let session = connect(world, options).await.unwrap();
            let share = session.share("data").await.unwrap();
            share.write("file", b"content").await.unwrap();
            let info = session.info().unwrap();
            assert!(info.encrypted && info.cipher.is_some());
            let status = world.embedded.status(&StatusQuery::default());
            assert_eq!(status.sessions.rows[0].encryption, Some("AES-128-GCM"));
        });
    }
}
