//! CREATEs that come again (MS-SMB2 3.3.5.9, 3.3.5.9.10) and applications that
//! come back from another machine (3.3.5.9.13).

use crate::asking::*;
use crate::client::*;
use frevo_server::internal::limits::OPENS_OF_INSTANCE_COMPARED;
use frevo_wire::command::create::{self, CreateAction, CreateDisposition, ShareAccess};
use frevo_wire::dtyp::AccessMask;

const ALONE: ShareAccess = ShareAccess::EMPTY;

fn replay(want: &Want) -> Draft {
    want.draft().flags(HeaderFlags::REPLAY_OPERATION)
}

/// MS-SMB2 3.3.5.9.10: a CREATE that is repeated after the loss of its connection gets the Open,
/// which waits for its client, if it asks for the same.
#[test]
fn s2_a_create_replayed_on_a_new_connection_takes_the_open_up() {
    in_world(async |world| {
        let client = guid(0x41);
        let (mut peer, mount) = back(world, client, "ann", "data").await;
        let want = leased(Want::file("f").sharing(ALONE), 1, 7, &[dh2q(guid(7), false)]);
        let file = peer.open_file(&mount, &want).await;
        drop(peer);
        lost(world, 1).await;
        let (mut peer, mount) = back(world, client, "ann", "data").await;
        peer.create(&mount, &want).await.expect(Status::DUPLICATE_OBJECTID);
        let less = Want { access: AccessMask::READ_DATA, ..want.clone() };
        peer.on(&mount, replay(&less)).await.expect(Status::CONTEXT_MISMATCH);
        let reply = peer.on(&mount, replay(&want)).await;
        assert_eq!(files::file_id(reply.ok()), file);
        assert_eq!(world.server.durables.counts(), (1, 0));
        peer.write(&mount, file, 0, b"x").await;
        peer.close(&mount, file).await;
        assert_eq!(world.content("f"), b"x");
    });
}

/// The same CREATE again is the same Open, until it has been used.
#[test]
fn s2_a_replayed_create_gets_the_open_that_is_there() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let want = Want::file("f").disposition(CreateDisposition::CREATE).sharing(ALONE);
        let want = with(want, &[dh2q(guid(7), false)]);
        let first = peer.create(&mount, &want).await;
        let file = files::file_id(&first);
        peer.create(&mount, &want).await.expect(Status::DUPLICATE_OBJECTID);
        let again = peer.on(&mount, replay(&want)).await;
        again.ok();
        let response = create::Response::parse(&again.message).unwrap();
        assert_eq!(response.file_id, file);
        assert_eq!(response.create_action, CreateAction::CREATED, "the answer is the first one");
        assert_eq!(world.server.durables.counts().0, 1);
        // The CreateGuid belongs to a session. So a replay in another session of the client is
        // refused, and a replay by another user is an ordinary CREATE, which finds the name in use.
        let (mut twin, own) = back(world, peer.guid, "ann", "data").await;
        twin.on(&own, replay(&want)).await.expect(Status::DUPLICATE_OBJECTID);
        let (mut bob, theirs) = back(world, peer.guid, "bob", "data").await;
        let refused = bob.on(&theirs, replay(&want)).await;
        refused.expect(Status::OBJECT_NAME_COLLISION);
        // A CreateGuid counts only within one client. Another client uses the same GUID here, so
        // its replay is an ordinary CREATE, which finds the name in use.
        let (mut far, elsewhere) = back(world, guid(0x77), "ann", "data").await;
        let refused = far.on(&elsewhere, replay(&want)).await;
        refused.expect(Status::OBJECT_NAME_COLLISION);
        // A WRITE through the handle proves that the client received the response to CREATE, so a
        // later replay is no longer accepted.
        peer.write(&mount, file, 0, b"x").await;
        let late = peer.on(&mount, replay(&want)).await;
        late.expect(Status::OBJECT_NAME_COLLISION);
        peer.close(&mount, file).await;
    });
}

/// L7: a replay over another channel of the session finds the Open, and the
/// first channel goes on with it.
#[test]
fn l7_a_replay_over_another_channel_leaves_the_first_its_handle() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let mut channel = world.connect();
        channel.guid = peer.guid;
        channel.negotiate(&Offer::default()).await;
        let logon = channel.try_log_on(Setup::binding("ann", &mount.logon)).await;
        let bound = mount.on(&logon.expect("binds"));
        let want = with(Want::file("f").sharing(ALONE), &[dh2q(guid(7), false)]);
        let file = peer.open_file(&mount, &want).await;
        let reply = channel.on(&bound, replay(&want)).await;
        reply.ok();
        assert_eq!(files::file_id(&reply), file);
        peer.write(&mount, file, 0, b"one").await;
        channel.write(&bound, file, 0, b"two").await;
        drop(channel);
        peer.write(&mount, file, 0, b"end").await;
        peer.close(&mount, file).await;
        assert_eq!(world.content("f"), b"end");
    });
}

/// A replay without its first attempt is just a CREATE.
#[test]
fn a_replay_of_what_never_came_is_carried_out() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let want = with(Want::file("f"), &[dh2q(guid(7), false)]);
        let reply = peer.on(&mount, replay(&want)).await;
        reply.ok();
        peer.close(&mount, files::file_id(&reply)).await;
        // The Open is closed, so its CreateGuid can be used for a new one.
        let file = peer.open_file(&mount, &want).await;
        peer.close(&mount, file).await;
    });
}

/// Dialects below 3.0 have no contexts of version 2.
#[test]
fn old_dialects_have_no_create_guids() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::only(Dialect::SMB_2_1)).await;
        let want = with(Want::file("f"), &[dh2q(guid(7), false)]);
        let one = peer.open_file(&mount, &want).await;
        let two = peer.open_file(&mount, &want).await;
        assert_ne!(one, two);
        let contexts = [dh2c(one, guid(7), false)];
        let plain = peer.create(&mount, &with(Want::existing("f"), &contexts)).await;
        plain.ok();
        assert_ne!(files::file_id(&plain), one);
        assert_eq!(world.server.durables.counts(), (0, 0));
    });
}

/// S1: an instance with a later version closes what the earlier one has open,
/// locks and all; an equal, an earlier or no version is refused.
#[test]
fn s1_an_application_takes_over_from_its_former_self() {
    in_world(async |world| {
        let (mut old, mount) = world.session("ann", &Offer::default()).await;
        let ask = |version| with(Want::file("f").sharing(ALONE), &app(1, version));
        let file = old.open_file(&mount, &ask(Some((1, 5)))).await;
        let (mut new, theirs) = world.session("ann", &Offer::default()).await;
        for version in [None, Some((0, 9)), Some((1, 4)), Some((1, 5))] {
            let refused = new.create(&theirs, &ask(version)).await;
            refused.expect(Status::FILE_FORCED_CLOSED);
        }
        old.write(&mount, file, 0, b"still here").await;
        // Only Opens of the same application instance are taken over. An Open of another instance
        // keeps the file, so sharing conflicts.
        let other = with(Want::file("f"), &app(2, Some((9, 9))));
        new.create(&theirs, &other).await.expect(Status::SHARING_VIOLATION);
        let taken = new.open_file(&theirs, &ask(Some((1, 6)))).await;
        let late = old.on(&mount, files::write_draft(file, 0, b"ghost")).await;
        late.expect(Status::FILE_CLOSED);
        new.write(&theirs, taken, 0, b"later here").await;
        assert_eq!(world.content("f"), b"later here");
        // An Open of the same client is not taken over, even by a newer version of its instance, so
        // sharing conflicts.
        new.create(&theirs, &ask(Some((2, 0)))).await.expect(Status::SHARING_VIOLATION);
        new.close(&theirs, taken).await;
        assert_eq!(world.server.durables.counts(), (0, 0));
    });
}

/// The same with an Open that waits for a client that will not come.
#[test]
fn s1_an_application_takes_over_what_waits() {
    in_world(async |world| {
        let (mut old, mount) = world.session("ann", &Offer::default()).await;
        let want = with(Want::file("f").sharing(ALONE), &app(1, None));
        let file = old.open_file(&mount, &want).await;
        make_resilient(&mut old, &mount, file, 60_000).await;
        drop(old);
        lost(world, 1).await;
        let (mut new, theirs) = world.session("ann", &Offer::default()).await;
        let plain = Want::file("f").sharing(ALONE).access(AccessMask::FILE_ALL);
        new.create(&theirs, &plain).await.expect(Status::SHARING_VIOLATION);
        let taken = new.open_file(&theirs, &want).await;
        assert_eq!(world.server.durables.counts(), (1, 0));
        new.close(&theirs, taken).await;
    });
}

/// One client's Opens of an application instance were all compared on the core with the file of each
/// CREATE that names the instance.
#[test]
fn many_opens_of_an_application_are_compared_beside_the_core() {
    in_world(async |world| {
        let (mut old, mount) = world.session("ann", &Offer::default()).await;
        let (mut new, theirs) = world.session("ann", &Offer::default()).await;
        let pool = &world.server.blocking_pool;
        let want = with(Want::file("other"), &app(1, None));
        for at in 0..=OPENS_OF_INSTANCE_COMPARED {
            if at == OPENS_OF_INSTANCE_COMPARED {
                new.create(&theirs, &want).await.ok();
                assert_eq!(pool.carried_out(), 0, "as many as a core compares");
            }
            old.open_file(&mount, &with(Want::file("f"), &app(1, None))).await;
        }
        let before = pool.carried_out();
        new.create(&theirs, &want).await.ok();
        assert_eq!(pool.carried_out(), before + 1);
    });
}
