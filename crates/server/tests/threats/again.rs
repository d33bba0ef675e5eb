//! A5: authentication anew, and what an expired session may do. MS-SMB2 3.3.5.5,
//! 3.3.5.2.9. (Whose groups count afterwards is in `rights/lists.rs`.)

use crate::client::files::{
    close_draft, delete_draft, flush_draft, lock_draft, read_draft, tree_connect_draft, write_draft,
};
use crate::client::world::EXCLUSIVE;
use crate::client::*;
use frevo_server::settings::Encryption;
use frevo_wire::command::lock::LockFlags;

/// The keys of a session are those of its first logon, whatever is exchanged later.
#[test]
fn a5_the_keys_stay() {
    in_world(async |world| {
        for dialect in negotiate::ALL_DIALECTS {
            let (mut peer, mount) = world.session("ann", &Offer::only(dialect)).await;
            let file = peer.open_file(&mount, &Want::file("f")).await;
            for _ in 0..3 {
                // The key of the first logon stays in use after a re-authentication, so the WRITE
                // is signed with it.
                peer.log_on_again(Setup::again("ann", &mount.logon)).await.ok();
                peer.write(&mount, file, 0, b"x").await;
            }
            if peer.terms().is_smb3() {
                assert_eq!(peer.read(&mount.clone().sealed(), file, 0, 1).await, b"x");
            }
            peer.close(&mount, file).await;
        }
    });
}

/// Another user gets nothing of the session, in whatever state it is, nor does a
/// wrong password; the session is lost rather than anybody else's.
#[test]
fn a5_nobody_else_takes_a_session_on() {
    for is_expired in [false, true] {
        for (user, password) in [("bob", "bob's password"), ("ann", "wrong")] {
            in_world(async |world| {
                let (mut peer, mount) = world.session("ann", &Offer::default()).await;
                let file = peer.open_file(&mount, &Want::file("f")).await;
                let session = world.server.session(mount.logon.id).unwrap();
                if is_expired {
                    session.expire();
                }
                let setup = Setup {
                    password: password.into(),
                    ..Setup { user, ..Setup::again("ann", &mount.logon) }
                };
                let reply = peer.log_on_again(setup).await;
                let refused = [Status::ACCESS_DENIED, Status::LOGON_FAILURE];
                assert!(refused.contains(&reply.status()), "{user}: {}", reply.status());
                assert!(session.identity().is_none_or(|identity| identity.user == "ann"));
                let read = mount.put(read_draft(file, 0, 1));
                peer.ask(read, mount.via()).await.expect(Status::USER_SESSION_DELETED);
            });
        }
    }
}

/// Of all commands an expired session is granted LOGOFF, CLOSE and LOCK.
#[test]
fn a5_what_an_expired_session_may_do() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        peer.write(&mount, file, 0, b"kept").await;
        peer.on(&mount, lock_draft(file, &[(0, 1, EXCLUSIVE)])).await.ok();
        let session = world.server.session(mount.logon.id).unwrap();
        session.expire();
        let put_id = |command: Command, size: usize, at: usize| {
            let mut body = vec![0; size];
            body[0] = u8::try_from(size).unwrap() | 1;
            body[at..at + 8].copy_from_slice(&file.persistent.to_le_bytes());
            body[at + 8..at + 16].copy_from_slice(&file.volatile.to_le_bytes());
            Draft::new(command).body(&body)
        };
        let refused = [
            Want::file("f").draft(),
            Want::file("new").draft(),
            read_draft(file, 0, 1),
            write_draft(file, 0, b"late"),
            flush_draft(file),
            delete_draft(file),
            lock_draft(file, &[(9, 1, EXCLUSIVE)]),
            put_id(Command::IOCTL, 56, 8),
            put_id(Command::QUERY_DIRECTORY, 32, 8),
            put_id(Command::QUERY_INFO, 40, 24),
            put_id(Command::CHANGE_NOTIFY, 32, 8),
            tree_connect_draft("\\\\frevo\\data"),
            Draft::empty(Command::TREE_DISCONNECT),
        ];
        for draft in refused {
            let command = draft.header.command;
            let reply = peer.on(&mount, draft).await;
            assert_eq!(reply.status(), Status::NETWORK_SESSION_EXPIRED, "{command}");
            assert!(reply.is_signed());
        }
        assert_eq!(world.content("f"), b"kept");
        assert!(!world.path("new").exists());
        peer.on(&mount, lock_draft(file, &[(0, 1, LockFlags::UNLOCK)])).await.ok();
        peer.on(&mount, close_draft(file)).await.ok();
        peer.on(&mount, Draft::empty(Command::LOGOFF)).await.ok();
    });
}

/// A session that encrypts takes no authentication in the clear, and goes on.
#[test]
fn a5_an_encrypted_session_is_renewed_encrypted() {
    let settings = Settings { encryption: Encryption::Required, ..settings() };
    in_world_with(settings, async |world| {
        for offer in [Offer::default(), Offer::only(Dialect::SMB_3_0_2)] {
            let (mut peer, mount) = world.session("ann", &offer).await;
            for via in [Via::Plain, Via::Signed(&mount.logon)] {
                let setup = Setup { via, ..Setup::again("ann", &mount.logon) };
                peer.log_on_again(setup).await.expect(Status::ACCESS_DENIED);
            }
            peer.log_on_again(Setup::again("ann", &mount.logon)).await.ok();
            peer.mount(&mount.logon, "data").await;
            // The session is encrypted, but the binding of a channel is only signed, and must
            // succeed.
            let mut second = world.connect();
            second.guid = peer.guid;
            second.negotiate(&offer).await;
            second.try_log_on(Setup::binding("ann", &mount.logon)).await.unwrap();
        }
    });
}

/// Another account's session with the same ClientGuid and another dialect.
#[test]
fn a5_another_account_does_not_take_a_client_guid() {
    in_world(async |world| {
        let (peer, _mount) = world.session("bob", &Offer::only(Dialect::SMB_3_0)).await;
        let mut owner = world.connect();
        owner.guid = peer.guid;
        owner.negotiate(&Offer::default()).await;
        owner.log_on("ann").await;
        // All sessions of a client must use one dialect, so a logon with another dialect is
        // refused.
        let mut other = world.connect();
        other.guid = peer.guid;
        other.negotiate(&Offer::only(Dialect::SMB_3_0)).await;
        let refused = other.try_log_on(Setup::of("ann")).await.err().expect("refused");
        refused.expect(Status::USER_SESSION_DELETED);
    });
}
