//! Sessions, channels, trees: MS-SMB2 3.3.5.5 to 3.3.5.8.

use std::rc::Rc;

use crate::client::files::{close_draft, lock_draft, read_draft, tree_connect_draft, write_draft};
use crate::client::world::EXCLUSIVE;
use crate::client::*;
use frevo_server::settings::Encryption;
use frevo_wire::command::lock::LockFlags;
use frevo_wire::command::session_setup::{self, SessionFlags};
use frevo_wire::command::tree_connect::{self, ShareFlags, ShareType};
use frevo_wire::dtyp::AccessMask;

/// Another connection of the client that has `logon`, bound to its session.
async fn bind(world: &World, first: &Peer, user: &str, logon: &Logon) -> (Peer, Rc<Logon>) {
    let mut peer = world.connect();
    peer.guid = first.guid;
    peer.negotiate(&Offer::only(first.terms().dialect)).await;
    let bound = peer.try_log_on(Setup::binding(user, logon)).await.expect("bound");
    (peer, bound)
}

#[test]
fn authentication_anew_is_for_the_same_user() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let refused = peer.log_on_again(Setup::again("bob", &mount.logon)).await;
        refused.expect(Status::ACCESS_DENIED);
        // MS-SMB2 3.3.5.5.3: the re-authentication failed, which ends the session.
        let read = mount.put(read_draft(file, 0, 1));
        peer.ask(read, mount.via()).await.expect(Status::USER_SESSION_DELETED);
        assert!(!world.server.sessions().iter().any(|session| session.id == mount.logon.id));
    });
}

/// Says that it is nobody, by NTLM as it is (MS-NLMP 3.2.5.1.2); the last answer.
pub(crate) async fn become_nobody(peer: &mut Peer, session_id: u64, via: Via<'_>) -> Reply {
    nobody_by(peer, Setup::of(""), session_id, via).await
}

async fn nobody_by(peer: &mut Peer, setup: Setup<'_>, session_id: u64, via: Via<'_>) -> Reply {
    let negotiate = [&b"NTLMSSP\0\x01\0\0\0\x01\x02\0\0"[..], &[0; 16]].concat();
    let nothing = [0, 0, 0, 0, 64, 0, 0, 0];
    let authenticate = [&b"NTLMSSP\0\x03\0\0\0"[..], &nothing.repeat(6), &[1, 2, 0, 0]].concat();
    let first = peer.ask(setup.draft(&negotiate, session_id), via).await;
    first.expect(Status::MORE_PROCESSING_REQUIRED);
    peer.ask(setup.draft(&authenticate, first.header.session_id), via).await
}

/// MS-SMB2 3.3.5.5.2, 3.3.5.5.3: what is open goes on, by the rights it has; what
/// needs rights of nobody's own is refused until the user is back.
#[test]
fn who_becomes_nobody_keeps_what_is_open_and_gets_nothing_more() {
    in_world_with(Settings { anonymous: true, ..settings() }, async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let id = mount.logon.id;
        assert!(id < 1 << 32, "clients keep 32 bits of it");
        let file = peer.open_file(&mount, &Want::file("f")).await;
        become_nobody(&mut peer, id, mount.via()).await.ok();
        peer.write(&mount, file, 0, b"still mine").await;
        peer.create(&mount, &Want::existing("f")).await.expect(Status::ACCESS_DENIED);
        let connect = |path: &str| tree_connect_draft(path).session(id);
        for share in ["data", "bobs", "absent"] {
            let refused = peer.ask(connect(&format!("\\\\server\\{share}")), mount.via()).await;
            refused.expect(Status::ACCESS_DENIED);
        }
        peer.ask(connect("\\\\server\\IPC$"), mount.via()).await.ok();
        peer.log_on_again(Setup::again("ann", &mount.logon)).await.ok();
        peer.open_file(&mount, &Want::existing("f")).await;
        become_nobody(&mut peer, id, mount.via()).await.ok();
        let thief = peer.log_on_again(Setup::again("bob", &mount.logon)).await;
        thief.expect(Status::ACCESS_DENIED);
        let read = mount.put(read_draft(file, 0, 1));
        peer.ask(read, mount.via()).await.expect(Status::USER_SESSION_DELETED);
    });
}

/// MS-SMB2 3.3.5.5.3, 3.3.5.7: who logs on as nobody gets IPC$ without its pipes. The answer says
/// so and is not signed, nothing has to be signed, and nothing may be sealed.
#[test]
fn who_logs_on_as_nobody_gets_next_to_nothing() {
    in_world_with(Settings { anonymous: true, ..settings() }, async |world| {
        let mut other = world.connect();
        other.negotiate(&Offer::default()).await;
        let reply = become_nobody(&mut other, 0, Via::Plain).await;
        reply.ok();
        assert!(!reply.is_signed());
        let response = session_setup::Response::parse(&reply.message).unwrap();
        assert_eq!(response.session_flags, SessionFlags::IS_NULL);
        let id = reply.header.session_id;
        let connect = |share: &str| tree_connect_draft(&format!("\\\\server\\{share}")).session(id);
        for share in ["data", "absent"] {
            other.ask(connect(share), Via::Plain).await.expect(Status::ACCESS_DENIED);
        }
        let reply = other.ask(connect("IPC$"), Via::Plain).await;
        reply.ok();
        let tree = reply.header.tree_id().unwrap();
        for pipe in ["srvsvc", "lsarpc", "samr", "absent"] {
            let open = Want::existing(pipe).draft().session(id).tree(tree);
            other.ask(open, Via::Plain).await.expect(Status::ACCESS_DENIED);
        }
        // An anonymous logon must not end another anonymous session by naming it as its previous
        // one. It cannot encrypt either, because everyone knows its keys.
        let mut third = world.connect();
        third.negotiate(&Offer::default()).await;
        let setup = Setup { previous: id, ..Setup::of("") };
        nobody_by(&mut third, setup, 0, Via::Plain).await.ok();
        assert!(world.server.session(id).is_some());
        let sealed = [&b"\xFDSMB"[..], &[7; 40], &id.to_le_bytes(), &[0; 80]].concat();
        other.send_frame(&sealed).await;
        other.expect_disconnect().await;
    });
}

/// Nobody has a key: a server that demands encryption has no use for it.
#[test]
fn nobody_is_refused_where_everything_is_sealed() {
    let settings = Settings { anonymous: true, encryption: Encryption::Required, ..settings() };
    in_world_with(settings, async |world| {
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        become_nobody(&mut peer, 0, Via::Plain).await.expect(Status::ACCESS_DENIED);
    });
}

#[test]
fn nobody_is_refused_unless_it_is_set() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let refused = become_nobody(&mut peer, mount.logon.id, mount.via()).await;
        refused.expect(Status::ACCESS_DENIED);
        peer.on(&mount, Want::file("f").draft()).await.expect(Status::USER_SESSION_DELETED);
    });
}

/// MS-SMB2 3.3.5.2.9: what an expired session may still do, and its return.
#[test]
fn an_expired_session_may_end_or_return() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let other = peer.open_file(&mount, &Want::file("f")).await;
        peer.on(&mount, lock_draft(file, &[(0, 1, EXCLUSIVE)])).await.ok();
        let session = world.server.session(mount.logon.id).unwrap();
        session.expire();
        for draft in [
            Want::file("f").draft(),
            lock_draft(file, &[(9, 1, EXCLUSIVE)]),
            read_draft(file, 0, 1),
            write_draft(file, 0, b"x"),
            tree_connect_draft("\\\\frevo\\data"),
            Draft::empty(Command::TREE_DISCONNECT),
        ] {
            let reply = peer.on(&mount, draft).await;
            reply.expect(Status::NETWORK_SESSION_EXPIRED);
            assert!(reply.is_signed());
        }
        peer.on(&mount, lock_draft(file, &[(0, 1, LockFlags::UNLOCK)])).await.ok();
        peer.close(&mount, other).await;
        peer.log_on_again(Setup::again("ann", &mount.logon)).await.ok();
        peer.write(&mount, file, 0, b"back").await;
        session.expire();
        peer.on(&mount, Draft::empty(Command::LOGOFF)).await.ok();
    });
}

#[test]
fn the_same_users_new_session_takes_over() {
    in_world(async |world| {
        let (mut old, mount) = world.session("ann", &Offer::default()).await;
        // The old session has the file open and shares nothing, so the new session can open it only
        // if the old one has ended.
        let want = Want::file("f").sharing(Default::default());
        let file = old.open_file(&mount, &want).await;
        let mut new = world.connect();
        new.guid = old.guid;
        new.negotiate(&Offer::default()).await;
        let previous = mount.logon.id;
        let setup = Setup { previous, ..Setup::of("ann") };
        let logon = new.try_log_on(setup).await.unwrap();
        let after = new.mount(&logon, "data").await;
        new.open_file(&after, &want).await;
        let read = mount.put(read_draft(file, 0, 1));
        old.ask(read, mount.via()).await.expect(Status::USER_SESSION_DELETED);
        // The old session has ended, but its connection can still be used for a logon.
        old.log_on("ann").await;
        // A PreviousSessionId has no effect if it names no session, or the new session itself.
        for previous in [0x77, u64::MAX] {
            new.try_log_on(Setup { previous, ..Setup::of("ann") }).await.unwrap();
        }
        new.on(&after, Draft::echo()).await.ok();
    });
}

#[test]
fn a_session_takes_over_on_its_own_connection() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let want = Want::file("f").sharing(Default::default());
        peer.open_file(&mount, &want).await;
        let setup = Setup { previous: mount.logon.id, ..Setup::of("ann") };
        let logon = peer.try_log_on(setup).await.unwrap();
        let after = peer.mount(&logon, "data").await;
        peer.open_file(&after, &want).await;
        let echo = mount.put(Want::file("f").draft());
        peer.ask(echo, mount.via()).await.expect(Status::USER_SESSION_DELETED);
    });
}

#[test]
fn channels_share_what_is_open() {
    in_world(async |world| {
        for dialect in [Dialect::SMB_3_0, Dialect::SMB_3_0_2, Dialect::SMB_3_1_1] {
            let (mut one, mount) = world.session("ann", &Offer::only(dialect)).await;
            let file = one.open_file(&mount, &Want::file("f")).await;
            one.write(&mount, file, 0, b"from the first").await;
            let (mut two, bound) = bind(world, &one, "ann", &mount.logon).await;
            let there = mount.on(&bound);
            assert_eq!(two.read(&there, file, 0, 100).await, b"from the first");
            let other = two.open_file(&there, &Want::file("g")).await;
            two.write(&there, other, 0, b"from the second").await;
            for mount in [mount.clone(), mount.clone().sealed()] {
                assert_eq!(one.read(&mount, other, 0, 100).await, b"from the second");
            }
            assert_eq!(two.read(&there.sealed(), file, 0, 100).await, b"from the first");
            // Each channel has its own signing key, so a message signed with the other channel's
            // key is refused.
            let wrong = mount.put(read_draft(file, 0, 1));
            two.ask(wrong, Via::Signed(&mount.logon)).await.expect(Status::ACCESS_DENIED);
            one.close(&mount, other).await;
            one.close(&mount, file).await;
            two.on(&mount.on(&bound), read_draft(file, 0, 1)).await.expect(Status::FILE_CLOSED);
        }
    });
}

#[test]
fn a_session_lives_as_long_as_its_last_channel() {
    in_world(async |world| {
        let (one, mount) = world.session("ann", &Offer::default()).await;
        let (mut two, bound) = bind(world, &one, "ann", &mount.logon).await;
        let there = mount.on(&bound);
        let file = two.open_file(&there, &Want::file("f")).await;
        drop(one);
        two.write(&there, file, 0, b"alone").await;
        let (mut three, again) = bind(world, &two, "ann", &mount.logon).await;
        drop(two);
        let there = mount.on(&again);
        assert_eq!(three.read(&there, file, 0, 100).await, b"alone");
        three.on(&there, Draft::empty(Command::LOGOFF)).await.ok();
        assert!(!world.server.sessions().iter().any(|session| session.id == mount.logon.id));
    });
}

#[test]
fn logoff_ends_the_session_on_every_channel() {
    in_world(async |world| {
        let (mut one, mount) = world.session("ann", &Offer::default()).await;
        let (mut two, bound) = bind(world, &one, "ann", &mount.logon).await;
        let there = mount.on(&bound);
        let want = Want::file("f").sharing(Default::default());
        let file = one.open_file(&mount, &want).await;
        two.on(&there, Draft::empty(Command::LOGOFF)).await.ok();
        for (peer, mount) in [(&mut one, &mount), (&mut two, &there)] {
            let read = mount.put(read_draft(file, 0, 1));
            peer.ask(read, mount.via()).await.expect(Status::USER_SESSION_DELETED);
            let logoff = mount.put(Draft::empty(Command::LOGOFF));
            peer.ask(logoff, mount.via()).await.expect(Status::USER_SESSION_DELETED);
            peer.expect_alive().await;
        }
        // LOGOFF has closed the file, so a new session can open it, although the request does not
        // share the file with other Opens.
        let logon = one.log_on("ann").await;
        let mount = one.mount(&logon, "data").await;
        one.open_file(&mount, &want).await;
    });
}

#[test]
fn tree_disconnect_closes_what_was_opened_through_it() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let second = peer.mount(&mount.logon, "data").await;
        assert_ne!(mount.tree, second.tree);
        let closed = peer.open_file(&mount, &Want::file("f")).await;
        let stays = peer.open_file(&second, &Want::file("f")).await;
        // A FileId belongs to a tree connect, so another tree connect does not know it.
        peer.on(&second, read_draft(closed, 0, 1)).await.expect(Status::FILE_CLOSED);
        peer.on(&mount, Draft::empty(Command::TREE_DISCONNECT)).await.ok();
        let read = read_draft(closed, 0, 1);
        peer.on(&mount, read.clone()).await.expect(Status::NETWORK_NAME_DELETED);
        peer.on(&second, read).await.expect(Status::FILE_CLOSED);
        peer.write(&second, stays, 0, b"x").await;
        let again = Draft::empty(Command::TREE_DISCONNECT);
        peer.on(&mount, again).await.expect(Status::NETWORK_NAME_DELETED);
    });
}

#[test]
fn shares_and_their_answers() {
    in_world(async |world| {
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        let logon = peer.log_on("ann").await;
        let via = logon.via();
        for (path, status) in [
            ("\\\\frevo\\data", Status::SUCCESS),
            ("\\\\FREVO\\DaTa", Status::SUCCESS),
            ("\\\\192.0.2.1\\ipc$", Status::SUCCESS),
            ("\\\\frevo\\absent", Status::BAD_NETWORK_NAME),
            ("\\\\frevo\\C$", Status::BAD_NETWORK_NAME),
            ("\\\\frevo\\ADMIN$", Status::BAD_NETWORK_NAME),
            ("\\\\frevo\\bobs", Status::BAD_NETWORK_NAME),
            ("\\\\frevo", Status::INVALID_PARAMETER),
            ("\\\\frevo\\", Status::INVALID_PARAMETER),
            ("\\\\frevo\\data\\sub", Status::INVALID_PARAMETER),
            ("data", Status::INVALID_PARAMETER),
            ("", Status::INVALID_PARAMETER),
        ] {
            let reply = peer.ask(tree_connect_draft(path).session(logon.id), via).await;
            assert_eq!(reply.status(), status, "{path:?}");
        }
        let answer = |reply: &Reply| {
            let response = tree_connect::Response::parse(&reply.ok().message).unwrap();
            (response.share_type, response.share_flags, response.maximal_access)
        };
        let mut connect = async |share: &str| {
            let draft = tree_connect_draft(&format!("\\\\frevo\\{share}")).session(logon.id);
            answer(&peer.ask(draft, logon.via()).await)
        };
        let all = AccessMask::FILE_ALL;
        assert_eq!(connect("data").await, (ShareType::DISK, ShareFlags::EMPTY, all));
        let (kind, flags, _) = connect("IPC$").await;
        assert_eq!((kind, flags), (ShareType::PIPE, ShareFlags::NO_CACHING));
        assert_eq!(connect("sealed").await.1, ShareFlags::ENCRYPT_DATA);
        assert!(!connect("readonly").await.2.intersects(AccessMask::WRITE_DATA));
    });
}

#[test]
fn a_client_speaks_one_dialect() {
    in_world(async |world| {
        let (one, mount) = world.session("ann", &Offer::default()).await;
        let mut two = world.connect();
        two.guid = one.guid;
        two.negotiate(&Offer::only(Dialect::SMB_3_0)).await;
        let refused = two.try_log_on(Setup::of("ann")).await.err().expect("refused");
        refused.expect(Status::USER_SESSION_DELETED);
        // SMB 2.0.2 sends no ClientGuid, so the dialect of this second connection is not compared.
        // When the first session has ended, the second connection may log on with its own dialect,
        // too.
        let mut old = world.connect();
        old.guid = one.guid;
        old.negotiate(&Offer::only(Dialect::SMB_2_0_2)).await;
        old.log_on("ann").await;
        let mut one = one;
        one.on(&mount, Draft::empty(Command::LOGOFF)).await.ok();
        two.log_on("ann").await;
    });
}

/// Several users on one connection: each with their own handles.
#[test]
fn users_on_one_connection_are_apart() {
    in_world(async |world| {
        let (mut peer, ann) = world.session("ann", &Offer::default()).await;
        let bob = peer.log_on("bob").await;
        let bob = peer.mount(&bob, "bobs").await;
        let file = peer.open_file(&ann, &Want::file("f")).await;
        peer.on(&bob, close_draft(file)).await.expect(Status::FILE_CLOSED);
        peer.write(&ann, file, 0, b"x").await;
        peer.on(&ann, Draft::empty(Command::LOGOFF)).await.ok();
        peer.open_file(&bob, &Want::file("f")).await;
    });
}
