//! Rules of the newest versions of MS-SMB2 for Opens that outlive their connection:
//! docs/specification-changes.md.

use crate::asking::*;
use crate::client::*;
use crate::persistent::runs;
use frevo_wire::command::create::{CreateDisposition, OplockLevel, ShareAccess};
use frevo_wire::command::oplock_break::{self, LeaseBreak, LeaseState, Notification, OplockBreak};
use frevo_wire::dtyp::AccessMask;

const R: u32 = 1;
const RH: u32 = 3;
const RWH: u32 = 7;

fn replay(want: &Want) -> Draft {
    want.draft().flags(HeaderFlags::REPLAY_OPERATION)
}

/// MS-SMB2 3.3.5.9: the session of the Open is compared before SMB2_DHANDLE_FLAG_PERSISTENT.
#[test]
fn a_replay_of_a_persistent_create_belongs_to_its_session() {
    runs(async |start, _| {
        let world = start();
        let client = guid(0x31);
        let (mut peer, mount) = back(&world, client, "ann", "lasting").await;
        let want = |persistent| with(Want::file("f"), &[dh2q(guid(3), persistent)]);
        let file = peer.open_file(&mount, &want(true)).await;
        let (mut twin, own) = back(&world, client, "ann", "lasting").await;
        for persistent in [false, true] {
            let reply = twin.on(&own, replay(&want(persistent))).await;
            reply.expect(Status::DUPLICATE_OBJECTID);
        }
        peer.on(&mount, replay(&want(false))).await.expect(Status::INVALID_PARAMETER);
        let again = peer.on(&mount, replay(&want(true))).await;
        assert_eq!(files::file_id(again.ok()), file);
        peer.close(&mount, file).await;
    });
}

/// MS-SMB2 3.3.5.22.1: a client that acknowledges the break of an oplock has its Open, and does not
/// get it by a replay.
#[test]
fn an_acknowledged_oplock_ends_replays() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let want = Want::file("f").disposition(CreateDisposition::CREATE);
        let want = batch(want, &[dh2q(guid(7), false)]);
        let reply = peer.create(&mount, &want).await;
        let file = files::file_id(reply.ok());
        assert_eq!(caches(&reply).0, OplockLevel::BATCH);
        peer.on(&mount, replay(&want)).await.ok();

        let (mut bob, theirs) = back(world, guid(0x32), "bob", "data").await;
        let draft = theirs.put(Want::existing("f").draft());
        let waiting = bob.send(vec![draft], theirs.via()).await[0];
        let told = peer.reply().await;
        let Notification::Oplock(OplockBreak { oplock_level, file_id }) =
            Notification::parse(&told.message).unwrap()
        else {
            panic!("{told:?}");
        };
        assert_eq!(file_id, file);
        let ack = oplock_break::Request::Oplock(OplockBreak { oplock_level, file_id });
        peer.on(&mount, Draft::new(Command::OPLOCK_BREAK).with(|w| ack.encode(w))).await.ok();
        bob.final_reply(waiting).await.ok();
        peer.on(&mount, replay(&want)).await.expect(Status::OBJECT_NAME_COLLISION);
        peer.close(&mount, file).await;
    });
}

/// MS-SMB2 3.3.5.9: a sharing violation is the answer, also where Windows opens the file as it is
/// (note 315), without the change that was asked for.
#[test]
fn a_file_that_others_may_not_write_is_not_overwritten() {
    runs(async |start, _| {
        let world = start();
        let (supersede, overwrite) = (CreateDisposition::SUPERSEDE, CreateDisposition::OVERWRITE);
        let (mut peer, mount) = back(&world, guid(0x31), "ann", "lasting").await;
        let want = Want::file("f").sharing(ShareAccess::READ);
        let file = peer.open_file(&mount, &with(want, &[dh2q(guid(3), true)])).await;
        peer.write(&mount, file, 0, b"kept").await;
        let (mut bob, theirs) = back(&world, guid(0x32), "bob", "lasting").await;
        for change in [supersede, overwrite, CreateDisposition::OVERWRITE_IF] {
            let want = Want::file("f").access(AccessMask::READ_DATA).disposition(change);
            bob.create(&theirs, &want).await.expect(Status::SHARING_VIOLATION);
        }
        assert_eq!(peer.read(&mount, file, 0, 10).await, b"kept");
        peer.close(&mount, file).await;
    });
}

/// MS-SMB2 3.3.5.9.12: the answer to a reconnect has Lease.Epoch, which a crash does not lose,
/// whatever epoch the request has.
#[test]
fn a_lease_goes_on_with_its_epoch() {
    runs(async |start, _| {
        let world = start();
        let client = guid(0x31);
        let (mut peer, mount) = back(&world, client, "ann", "lasting").await;
        let want = leased(Want::file("f"), 1, RWH, &[dh2q(guid(3), true)]);
        let reply = peer.create(&mount, &want).await;
        let file = files::file_id(reply.ok());
        assert_eq!(caches(&reply), (OplockLevel::LEASE, Some((RWH, 1))));

        let (mut bob, theirs) = back(&world, guid(0x32), "bob", "lasting").await;
        let draft = theirs.put(Want::existing("f").draft());
        let waiting = bob.send(vec![draft], theirs.via()).await[0];
        let told = peer.reply().await;
        let Notification::Lease(told) = Notification::parse(&told.message).unwrap() else {
            panic!("{told:?}");
        };
        assert_eq!((told.new_lease_state, told.new_epoch), (LeaseState(RH), 2));
        let (lease_key, lease_state) = (told.lease_key, told.new_lease_state);
        let ack = oplock_break::Request::Lease(LeaseBreak { lease_key, lease_state });
        peer.on(&mount, Draft::new(Command::OPLOCK_BREAK).with(|w| ack.encode(w))).await.ok();
        bob.final_reply(waiting).await.ok();
        world.crash();

        let world = start();
        let (mut peer, mount) = back(&world, client, "ann", "lasting").await;
        let again = leased(Want::existing("f"), 1, RWH, &[dh2c(file, guid(3), true)]);
        let reply = peer.create(&mount, &again).await;
        let file = files::file_id(reply.ok());
        assert_eq!(caches(&reply), (OplockLevel::LEASE, Some((RH, 2))));
        peer.close(&mount, file).await;
    });
}

/// MS-SMB2 3.3.5.9.12, 3.3.7.1: persistent Opens of a file under one LeaseKey are each taken up, also
/// without the caching of handles. Windows refuses that (note 350).
#[test]
fn persistent_opens_under_one_lease_are_all_taken_up() {
    runs(async |start, _| {
        let world = start();
        let client = guid(0x31);
        let (mut peer, mount) = back(&world, client, "ann", "lasting").await;
        let mut opened = Vec::new();
        for number in [3, 4] {
            let want = leased(Want::file("f"), 1, R, &[dh2q(guid(number), true)]);
            let reply = peer.create(&mount, &want).await;
            opened.push((number, files::file_id(reply.ok())));
        }
        world.crash();
        let world = start();
        let (mut peer, mount) = back(&world, client, "ann", "lasting").await;
        for (number, file) in opened {
            let again = leased(Want::existing("f"), 1, R, &[dh2c(file, guid(number), true)]);
            let reply = peer.create(&mount, &again).await;
            assert_eq!(files::file_id(reply.ok()).persistent, file.persistent);
            assert_eq!(caches(&reply), (OplockLevel::LEASE, Some((R, 1))));
            peer.close(&mount, files::file_id(&reply)).await;
        }
    });
}
