//! Oplocks and leases on the wire: MS-SMB2 3.3.4.6, 3.3.4.7, 3.3.5.9.8,
//! 3.3.5.22, 3.3.6.1, 3.3.6.5. What breaks when is tested where it is decided,
//! in `frevo_store::lease`.
#![allow(clippy::print_stdout, reason = "tests")]

#[path = "leases/accounts.rs"]
mod accounts;
#[path = "leases/acknowledged.rs"]
mod acknowledged;
#[path = "leases/asked_again.rs"]
mod asked_again;
#[path = "leases/channels.rs"]
mod channels;
mod client;
#[path = "leases/crowds.rs"]
mod crowds;
#[path = "leases/directories.rs"]
mod directories;
#[path = "leases/folders.rs"]
mod folders;
#[path = "leases/host.rs"]
mod host;

use std::time::Duration;

use client::files::{close_draft, write_draft};
use client::peer::async_id;
use client::world::EXCLUSIVE;
use client::*;
use frevo_server::internal::limits::{BREAKS_PASSED_ON, WAITING_PER_CONNECTION};
use frevo_server::internal::state::client_id;
use frevo_wire::command::create::{
    self, CreateDisposition, CreateOptions, OplockLevel, ShareAccess,
};
use frevo_wire::command::oplock_break::{
    self, LeaseBreak, LeaseBreakFlags, LeaseBreakNotification, LeaseKey, LeaseState, Notification,
    OplockBreak,
};
use frevo_wire::create_context::{
    CreateContext, CreateContexts, Lease, LeaseFlags, LeaseV2, ResponseContext,
};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::FileInfoClass;
use tokio::time::Instant;

const R: LeaseState = LeaseState::READ;
const NONE: LeaseState = LeaseState::EMPTY;

fn rh() -> LeaseState {
    R | LeaseState::HANDLE
}

fn rwh() -> LeaseState {
    rh() | LeaseState::WRITE
}

fn key(byte: u8) -> LeaseKey {
    LeaseKey([byte; 16])
}

/// A CREATE that asks for an oplock.
fn with_oplock(want: &Want, level: OplockLevel) -> Draft {
    want.draft().patch(64 + 3, &[level.0])
}

/// A CREATE that asks for a lease of version 2.
fn with_lease(want: &Want, key: LeaseKey, state: LeaseState) -> Draft {
    with_parent(want, key, state, None)
}

/// The same, knowing of a lease on the directory.
fn with_parent(want: &Want, key: LeaseKey, state: LeaseState, parent: Option<LeaseKey>) -> Draft {
    let known = LeaseFlags::PARENT_LEASE_KEY_SET;
    let flags = if parent.is_some() { known } else { LeaseFlags::EMPTY };
    let lease = Lease { lease_key: key, lease_state: state, flags };
    let v2 = LeaseV2 { lease, parent_lease_key: parent.unwrap_or_default(), epoch: 7 };
    let contexts = CreateContexts::from_requests(&[CreateContext::LeaseV2(v2)]);
    let want = Want { contexts: contexts.as_bytes().to_vec(), ..want.clone() };
    with_oplock(&want, OplockLevel::LEASE)
}

fn level(reply: &Reply) -> OplockLevel {
    create::Response::parse(&reply.message).unwrap().oplock_level
}

fn lease(reply: &Reply) -> LeaseV2 {
    let response = create::Response::parse(&reply.ok().message).unwrap();
    assert_eq!(response.oplock_level, OplockLevel::LEASE);
    let mut contexts = response.contexts.responses();
    contexts
        .find_map(|context| match context.unwrap() {
            ResponseContext::LeaseV2(lease) => Some(lease),
            _ => None,
        })
        .expect("a lease in the response")
}

/// The break that must come next.
async fn notification(peer: &mut Peer) -> Notification {
    let reply = peer.reply().await;
    assert_eq!(reply.header.command, Command::OPLOCK_BREAK, "{reply:?}");
    assert_eq!(reply.header.message_id, u64::MAX);
    assert!(!reply.header.flags.contains(HeaderFlags::SIGNED), "breaks are not signed");
    assert_eq!(reply.header.credits, 0);
    Notification::parse(&reply.message).unwrap()
}

async fn lease_notification(peer: &mut Peer) -> LeaseBreakNotification {
    match notification(peer).await {
        Notification::Lease(lease) => lease,
        Notification::Oplock(oplock) => panic!("{oplock:?}"),
    }
}

fn oplock_ack(file: FileId, oplock_level: OplockLevel) -> Draft {
    Draft::new(Command::OPLOCK_BREAK).with(|w| {
        oplock_break::Request::Oplock(OplockBreak { oplock_level, file_id: file }).encode(w)
    })
}

fn lease_ack(lease_key: LeaseKey, lease_state: LeaseState) -> Draft {
    Draft::new(Command::OPLOCK_BREAK)
        .with(|w| oplock_break::Request::Lease(LeaseBreak { lease_key, lease_state }).encode(w))
}

/// Sends a request that will have to wait.
async fn start(peer: &mut Peer, mount: &Mount, draft: Draft) -> u64 {
    peer.send(vec![mount.put(draft)], mount.via()).await.remove(0)
}

/// MS-FSA 2.1.5.18: readers are not let in beside a lock that begins in the file's space, and are
/// beside others, such as those of databases far behind the end.
#[test]
fn locks_behind_the_space_of_a_file_leave_room_for_readers() {
    in_world(async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        world.file("f", b"data");
        let holder = one.open_file(&mine, &Want::existing("f")).await;
        for (offset, is_shared) in [(1 << 40, true), (0, false)] {
            let lock = files::lock_draft(holder, &[(offset, 1, EXCLUSIVE)]);
            one.on(&mine, lock).await.ok();
            let reply = two.on(&theirs, with_lease(&Want::existing("f"), key(1), rh())).await;
            let granted = lease(&reply).lease.lease_state;
            assert_eq!(granted, if is_shared { rh() } else { NONE }, "{offset}");
            two.close(&theirs, files::file_id(&reply)).await;
            let draft = with_oplock(&Want::existing("f"), OplockLevel::II);
            let reply = two.on(&theirs, draft).await;
            let expected = if is_shared { OplockLevel::II } else { OplockLevel::NONE };
            assert_eq!(level(reply.ok()), expected, "{offset}");
            two.close(&theirs, files::file_id(&reply)).await;
        }
    });
}

#[test]
fn a_batch_oplock_is_given_back_before_the_next_open() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        let reply = one.on(&mine, with_oplock(&Want::file("f"), OplockLevel::BATCH)).await;
        assert_eq!(level(&reply), OplockLevel::BATCH);
        let file = files::file_id(&reply);
        let wanted = with_oplock(&Want::file("f"), OplockLevel::BATCH);
        let waiting = start(&mut two, &theirs, wanted).await;
        two.interim().await;
        let Notification::Oplock(told) = notification(&mut one).await else { panic!("a lease") };
        assert_eq!((told.oplock_level, told.file_id), (OplockLevel::II, file));
        // The break is pending, but an open for attributes only does not wait for it.
        let look = Want::existing("f").access(AccessMask::READ_ATTRIBUTES);
        let looked = one.open_file(&mine, &look).await;
        one.close(&mine, looked).await;
        let reply = one.on(&mine, oplock_ack(file, OplockLevel::II)).await;
        reply.ok();
        let second = two.final_reply(waiting).await;
        assert_eq!(level(second.ok()), OplockLevel::II);
        // A write takes level II from all Opens, even from the writer's own, and does not wait for
        // them.
        two.on(&theirs, write_draft(files::file_id(&second), 0, b"x")).await;
        let Notification::Oplock(told) = notification(&mut one).await else { panic!("a lease") };
        assert_eq!(told.oplock_level, OplockLevel::NONE);
    });
}

/// Tests that a CREATE that waits for a break is refused where there is no room for one more. If
/// it waited all the same, neither CANCEL nor the end of its connection would end it.
#[test]
fn a_create_without_room_to_wait_is_refused() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        one.on(&mine, with_oplock(&Want::file("f"), OplockLevel::BATCH)).await.ok();
        let wanted = || with_oplock(&Want::file("f"), OplockLevel::BATCH);
        two.asks = 2048;
        for _ in 0..WAITING_PER_CONNECTION {
            start(&mut two, &theirs, wanted()).await;
            two.interim().await;
        }
        let refused = two.on(&theirs, wanted()).await;
        refused.expect(Status::INSUFFICIENT_RESOURCES);
    });
}

/// MS-SMB2 3.3.5.22.1.
#[test]
fn oplock_acknowledgments_that_are_wrong() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        for (ask, say, status) in [
            (OplockLevel::BATCH, OplockLevel::LEASE, Status::INVALID_PARAMETER),
            (OplockLevel::BATCH, OplockLevel::BATCH, Status::INVALID_OPLOCK_PROTOCOL),
            (OplockLevel::EXCLUSIVE, OplockLevel::EXCLUSIVE, Status::INVALID_OPLOCK_PROTOCOL),
            (OplockLevel::BATCH, OplockLevel::EXCLUSIVE, Status::SUCCESS),
            (OplockLevel::BATCH, OplockLevel::NONE, Status::SUCCESS),
        ] {
            let reply = one.on(&mine, with_oplock(&Want::file("f"), ask)).await;
            assert_eq!(level(&reply), ask);
            let file = files::file_id(&reply);
            one.on(&mine, oplock_ack(file, OplockLevel::II))
                .await
                .expect(Status::INVALID_DEVICE_STATE);
            one.on(&mine, oplock_ack(file, OplockLevel::LEASE))
                .await
                .expect(Status::INVALID_DEVICE_STATE);
            let waiting = start(&mut two, &theirs, Want::file("f").draft()).await;
            notification(&mut one).await;
            let gone = FileId { persistent: file.persistent ^ 1, ..file };
            one.on(&mine, oplock_ack(gone, OplockLevel::II)).await.expect(Status::FILE_CLOSED);
            // An acknowledgment with a wrong level is refused, but ends the break, so the other
            // client's open succeeds.
            one.on(&mine, oplock_ack(file, say)).await.expect(status);
            let second = two.final_reply(waiting).await;
            two.close(&theirs, files::file_id(second.ok())).await;
            one.close(&mine, file).await;
        }
        // No break is pending, so an acknowledgment is refused, as on Windows.
        let reply = one.on(&mine, with_oplock(&Want::file("f"), OplockLevel::II)).await;
        assert_eq!(level(&reply), OplockLevel::II);
        let file = files::file_id(&reply);
        for (say, status) in [
            (OplockLevel::LEASE, Status::INVALID_PARAMETER),
            (OplockLevel::NONE, Status::INVALID_OPLOCK_PROTOCOL),
            (OplockLevel::II, Status::INVALID_OPLOCK_PROTOCOL),
        ] {
            one.on(&mine, oplock_ack(file, say)).await.expect(status);
        }
    });
}

/// THREATS X6, MS-SMB2 3.3.5.22.2.
#[test]
fn x6_a_lease_is_acknowledged_by_its_client_for_what_it_was_told() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("ann", &Offer::default()).await;
        let got = one.on(&mine, with_lease(&Want::file("f"), key(1), rwh())).await;
        assert_eq!((lease(&got).lease.lease_state, lease(&got).epoch), (rwh(), 8));
        one.on(&mine, lease_ack(key(1), rh())).await.expect(Status::UNSUCCESSFUL);
        let waiting = start(&mut two, &theirs, Want::file("f").draft()).await;
        two.interim().await;
        let told = lease_notification(&mut one).await;
        assert_eq!(told.flags, LeaseBreakFlags::ACK_REQUIRED);
        assert_eq!((told.current_lease_state, told.new_lease_state), (rwh(), rh()));
        assert_eq!((told.lease_key, told.new_epoch), (key(1), 9));
        two.on(&theirs, lease_ack(key(1), rh())).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        one.on(&mine, lease_ack(key(2), rh())).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        one.on(&mine, lease_ack(key(1), rwh())).await.expect(Status::REQUEST_NOT_ACCEPTED);
        // During a break, the holder's own opens do not wait. Their response has the flag
        // BREAK_IN_PROGRESS.
        let again = one.on(&mine, with_lease(&Want::file("f"), key(1), rwh())).await;
        assert_eq!(lease(&again).lease.flags, LeaseFlags::BREAK_IN_PROGRESS);
        let kept = one.on(&mine, lease_ack(key(1), R)).await;
        let oplock_break::Response::Lease(kept) =
            oplock_break::Response::parse(&kept.ok().message).unwrap()
        else {
            panic!("an oplock");
        };
        assert_eq!(kept.lease_state, R);
        two.final_reply(waiting).await.ok();
        one.on(&mine, lease_ack(key(1), R)).await.expect(Status::UNSUCCESSFUL);
    });
}

/// The last link but one of a file is removed as cifs.ko does it: by a request that wants no caching,
/// first with the key of the lease that the client has by another link, then without.
#[test]
fn a_lease_by_another_link_is_not_of_the_request_that_removes_one() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        world.file("f", b"linked");
        std::fs::hard_link(world.path("f"), world.path("g")).unwrap();
        let kept = one.on(&mine, with_lease(&Want::existing("f"), key(1), rh())).await;
        // "g" is a hard link of the same file, so it shares the lease.
        let further = one.on(&mine, with_lease(&Want::existing("g"), key(1), rh())).await;
        assert_eq!(lease(&further).lease.lease_state, rh());
        one.close(&mine, files::file_id(&further)).await;

        let remove = |name: &str| {
            let want = Want::existing(name).access(AccessMask::DELETE).sharing(ShareAccess::DELETE);
            want.options(CreateOptions::DELETE_ON_CLOSE)
        };
        let asked = |name: &str| with_lease(&remove(name), key(1), NONE);
        one.on(&mine, asked("g")).await.expect(Status::INVALID_PARAMETER);
        one.on(&mine, asked("f")).await.expect(Status::SHARING_VIOLATION);
        let waiting = one.send(vec![mine.put(remove("g").draft())], mine.via()).await[0];
        assert!(one.reply().await.is_interim());
        assert_eq!(lease_notification(&mut one).await.new_lease_state, R);
        let closing =
            one.send(vec![mine.put(close_draft(files::file_id(&kept)))], mine.via()).await;
        let removed = one.collect(&[closing[0], waiting]).await.remove(1);
        one.close(&mine, files::file_id(&removed)).await;
        assert!(world.path("f").exists() && !world.path("g").exists());
    });
}

#[test]
fn a_lease_key_is_for_one_file() {
    in_world(async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let first = one.on(&mine, with_lease(&Want::file("f"), key(1), rh())).await;
        for other in ["g", "new"] {
            one.on(&mine, with_lease(&Want::file(other), key(1), rh()))
                .await
                .expect(Status::INVALID_PARAMETER);
            assert!(!world.path(other).exists());
        }
        // Lease keys belong to a client, so another client may use the same key for another file,
        // and the first client can use it again.
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        assert_eq!(
            lease(&two.on(&theirs, with_lease(&Want::file("g"), key(1), rh())).await)
                .lease
                .lease_state,
            rh()
        );
        one.close(&mine, files::file_id(&first)).await;
        let again = one.on(&mine, with_lease(&Want::file("g"), key(1), R)).await;
        assert_eq!(lease(&again).lease.lease_state, R);
    });
}

#[test]
fn a_sharing_violation_waits_for_who_keeps_closed_handles() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        let alone = Want::file("f").sharing(ShareAccess::READ);
        let got = one.on(&mine, with_lease(&alone, key(1), rwh())).await;
        // On the break, the holder closes the handle that it only cached, so the other client's
        // open succeeds.
        let waiting = start(&mut two, &theirs, Want::file("f").draft()).await;
        let told = lease_notification(&mut one).await;
        assert_eq!(told.new_lease_state, R | LeaseState::WRITE);
        one.close(&mine, files::file_id(&got)).await;
        let second = two.final_reply(waiting).await;
        two.close(&theirs, files::file_id(second.ok())).await;
        // The holder uses its handle, so it acknowledges the break and keeps the handle. The other
        // client's open then fails.
        one.on(&mine, with_lease(&alone, key(1), rwh())).await.ok();
        let waiting = start(&mut two, &theirs, Want::file("f").draft()).await;
        lease_notification(&mut one).await;
        one.on(&mine, lease_ack(key(1), R | LeaseState::WRITE)).await.ok();
        two.final_reply(waiting).await.expect(Status::SHARING_VIOLATION);
        // The holder gave up handle caching, so a second open fails at once, without another break.
        two.create(&theirs, &Want::file("f")).await.expect(Status::SHARING_VIOLATION);
    });
}

/// THREATS L4: a holder that is silent, goes, or closes while its break is waited for. The
/// opener gets its answer within 35 seconds.
#[test]
fn l4_whatever_the_holder_does_the_opener_gets_an_answer() {
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum End {
        Silence,
        Close,
        Disconnect,
        Logoff,
    }
    for end in [End::Silence, End::Close, End::Disconnect, End::Logoff] {
        in_frozen_world(settings(), async |world| {
            let (mut one, mine) = world.session("ann", &Offer::default()).await;
            let (mut two, theirs) = world.session("bob", &Offer::default()).await;
            let got = one.on(&mine, with_lease(&Want::file("f"), key(1), rwh())).await;
            let begun = Instant::now();
            let waiting = start(&mut two, &theirs, Want::file("f").draft()).await;
            two.interim().await;
            lease_notification(&mut one).await;
            match end {
                End::Silence => {}
                End::Close => one.close(&mine, files::file_id(&got)).await,
                End::Logoff => _ = one.on(&mine, Draft::empty(Command::LOGOFF)).await.ok(),
                End::Disconnect => one.stream.abort(),
            }
            two.final_reply(waiting).await.ok();
            let waited = begun.elapsed();
            let expected = if end == End::Silence { 35 } else { 0 };
            assert_eq!(waited.as_secs(), expected, "{end:?}");
            if end == End::Silence {
                // The break has timed out, so the holder's acknowledgment comes too late.
                one.on(&mine, lease_ack(key(1), rh())).await.expect(Status::UNSUCCESSFUL);
            }
        });
    }
}

/// THREATS R5: all leases break at once, so that many silent holders cost one timeout.
#[test]
fn r5_many_silent_holders_cost_one_timeout() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        let holders = 201;
        for holder in 1..holders {
            let got = one.on(&mine, with_lease(&Want::file("f"), key(holder), rh())).await;
            assert_eq!(lease(&got).lease.lease_state, rh());
        }
        let begun = Instant::now();
        let alone = Want::file("f").sharing(ShareAccess::EMPTY);
        let waiting = start(&mut two, &theirs, alone.draft()).await;
        for told in 1..holders {
            assert_eq!(lease_notification(&mut one).await.new_lease_state, R, "{told}");
        }
        assert_eq!(begun.elapsed().as_secs(), 0, "all are told at once");
        two.final_reply(waiting).await.expect(Status::SHARING_VIOLATION);
        assert_eq!(begun.elapsed().as_secs(), 35);
    });
}

/// Tests that a CREATE waits for the holder that it finds, and not for those that waited before it
/// and would become holders in turn: nobody is granted what others wait for.
#[test]
fn holders_in_a_row_cost_one_wait() {
    let all = ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE;
    for sharing in [all, ShareAccess::EMPTY] {
        in_frozen_world(settings(), async |world| {
            let (mut two, theirs) = world.session("bob", &Offer::default()).await;
            let mut holders = Vec::new();
            for holder in 1..=12 {
                let (mut peer, mount) = world.session("ann", &Offer::default()).await;
                let wanted = Want::file("f").sharing(sharing);
                let draft = with_lease(&wanted, key(holder), rwh());
                let waiting = start(&mut peer, &mount, draft).await;
                if holder > 1 {
                    peer.interim().await;
                }
                holders.push((peer, mount, waiting));
            }
            let begun = Instant::now();
            let waiting = start(&mut two, &theirs, Want::file("f").draft()).await;
            let give_back_late = async {
                for (peer, mount, waiting) in &mut holders {
                    let got = peer.final_reply(*waiting).await;
                    lease_notification(peer).await;
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    peer.close(mount, files::file_id(got.ok())).await;
                }
                std::future::pending::<()>().await;
            };
            let answer = tokio::select! {
                answer = two.final_reply(waiting) => answer,
                () = give_back_late => unreachable!(),
            };
            let is_shared = sharing != ShareAccess::EMPTY;
            answer.expect(if is_shared { Status::SUCCESS } else { Status::SHARING_VIOLATION });
            assert_eq!(begun.elapsed().as_secs(), 5, "{sharing:?}");
        });
    }
}

/// Tests a break in two steps, each of which a client acknowledges late: the opener waits for both
/// together no longer than for one.
#[test]
fn a_break_in_steps_costs_one_timeout() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        one.on(&mine, with_lease(&Want::file("f"), key(1), rwh())).await.ok();
        let begun = Instant::now();
        let opening = start(&mut two, &theirs, Want::file("f").draft()).await;
        assert_eq!(lease_notification(&mut one).await.new_lease_state, rh());
        let over = Want::file("f").disposition(CreateDisposition::OVERWRITE);
        let overwriting = start(&mut two, &theirs, over.draft()).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        one.on(&mine, lease_ack(key(1), rh())).await.ok();
        two.final_reply(opening).await.ok();
        two.final_reply(overwriting).await.ok();
        assert_eq!(begun.elapsed().as_secs(), 35);
    });
}

#[test]
fn an_open_that_waits_can_be_cancelled() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        one.on(&mine, with_oplock(&Want::file("f"), OplockLevel::BATCH)).await.ok();
        let begun = Instant::now();
        let waiting = start(&mut two, &theirs, Want::file("f").draft()).await;
        let interim = two.interim().await;
        let cancel = Peer::cancel(waiting, Some(async_id(&interim)), theirs.logon.id);
        two.send_frame(&draft::pack(&[cancel], theirs.via())).await;
        two.final_reply(waiting).await.expect(Status::CANCELLED);
        assert!(begun.elapsed() < Duration::from_secs(1));
        // The cancelled CREATE must leave no Open.
        assert_eq!(world.server.session(theirs.logon.id).unwrap().open_count(), 0);
    });
}

/// MS-SMB2 3.3.4.7: what an encrypted session does is told sealed.
#[test]
fn breaks_of_what_is_sealed_are_sealed() {
    in_world(async |world| {
        let mut one = world.connect();
        one.negotiate(&Offer::default()).await;
        let logon = one.log_on("ann").await;
        let mine = one.mount(&logon, "sealed").await.sealed();
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        one.on(&mine, with_lease(&Want::file("f"), key(1), rh())).await.ok();
        let file = two.open_file(&theirs, &Want::file("f")).await;
        two.write(&theirs, file, 0, b"x").await;
        let reply = one.reply().await;
        assert_eq!(reply.header.command, Command::OPLOCK_BREAK);
        assert!(reply.sealed);
        let Notification::Lease(told) = Notification::parse(&reply.message).unwrap() else {
            panic!("an oplock");
        };
        assert_eq!((told.new_lease_state, told.flags), (NONE, LeaseBreakFlags::ACK_REQUIRED));
    });
}

/// A client of one channel has more time, and then nobody waits for it.
#[test]
fn the_only_channel_is_given_up_late() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        one.on(&mine, with_lease(&Want::file("f"), key(1), rwh())).await.ok();
        let waiting = start(&mut two, &theirs, Want::file("f").draft()).await;
        two.interim().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        lease_notification(&mut one).await;
        one.on(&mine, lease_ack(key(1), rh())).await.ok();
        let second = two.final_reply(waiting).await;
        two.close(&theirs, files::file_id(second.ok())).await;
        one.on(&mine, with_lease(&Want::file("f"), key(1), rwh())).await.ok();
        let begun = Instant::now();
        let waiting = start(&mut two, &theirs, Want::file("f").draft()).await;
        two.final_reply(waiting).await.ok();
        assert!(begun.elapsed() >= Duration::from_secs(6), "{:?}", begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
    });
}

#[test]
fn deleting_and_renaming_wait_for_who_keeps_closed_handles() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        let got = one.on(&mine, with_lease(&Want::file("f"), key(1), rh())).await;
        let options = CreateOptions::DELETE_ON_CLOSE;
        let doomed = two.open_file(&theirs, &Want::existing("f").options(options)).await;
        let waiting = start(&mut two, &theirs, close_draft(doomed)).await;
        two.interim().await;
        let told = lease_notification(&mut one).await;
        assert_eq!((told.current_lease_state, told.new_lease_state), (rh(), R));
        one.close(&mine, files::file_id(&got)).await;
        two.final_reply(waiting).await.ok();
        assert!(!world.path("f").exists());
    });
}

/// MS-FSA 2.1.4.12, PARENT_OBJECT: a client that names the directory's lease as the parent of
/// its own changes the directory without breaking it.
#[test]
fn a_directory_lease_breaks_when_somebody_else_changes_an_entry() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        let made = one.open_file(&mine, &Want::directory("d")).await;
        one.close(&mine, made).await;
        let dir = with_lease(&Want::directory("d"), key(1), rwh());
        let got = one.on(&mine, dir.clone()).await;
        assert_eq!(lease(&got).lease.lease_state, rh(), "nothing is written to a directory");
        let own = with_parent(&Want::file("d\\own"), key(2), rh(), Some(key(1)));
        let reply = one.on(&mine, own).await;
        assert_eq!(lease(&reply).parent(), Some(key(1)));
        let own = files::file_id(&reply);
        one.on(&mine, write_draft(own, 0, b"x")).await.ok();
        // Another client makes a file in the directory, which changes its listing, so the directory
        // lease breaks.
        let other = two.open_file(&theirs, &Want::file("d\\other")).await;
        let told = lease_notification(&mut one).await;
        assert_eq!((told.lease_key, told.current_lease_state), (key(1), rh()));
        assert_eq!((told.new_lease_state, told.flags), (NONE, LeaseBreakFlags::ACK_REQUIRED));
        one.on(&mine, lease_ack(key(1), NONE)).await.ok();
        let again = one.on(&mine, dir.clone()).await;
        assert_eq!(lease(&again).lease.lease_state, rh());
        // MS-FSA 2.1.5.5: a write changes the listing only when its Open closes, so the lease
        // breaks then. A deletion, and a change by the host, break it too.
        two.on(&theirs, write_draft(other, 0, b"y")).await.ok();
        one.expect_silence(Duration::from_secs(4)).await;
        two.close(&theirs, other).await;
        assert_eq!(lease_notification(&mut one).await.lease_key, key(1));
        one.on(&mine, lease_ack(key(1), NONE)).await.ok();
        let again = one.on(&mine, dir.clone()).await;
        assert_eq!(lease(&again).lease.lease_state, rh());
        one.expect_silence(Duration::from_secs(1)).await;
        let options = CreateOptions::DELETE_ON_CLOSE;
        let doomed = Want::existing("d\\other").options(options);
        let doomed = two.open_file(&theirs, &doomed).await;
        two.close(&theirs, doomed).await;
        assert_eq!(lease_notification(&mut one).await.lease_key, key(1));
        one.on(&mine, lease_ack(key(1), NONE)).await.ok();
        one.on(&mine, dir).await.ok();
        let there = world.server.files.leases.file(frevo_store::lease::LeaseOwner {
            client: client_id(one.guid, "ann"),
            key: key(1),
        });
        world.server.files.host_changed(there.unwrap(), frevo_store::lease::Cause::Entry);
        assert_eq!(lease_notification(&mut one).await.new_lease_state, NONE);
    });
}

/// MS-FSA 2.1.4.2: a directory moves when those who keep closed handles below it
/// have given them up.
#[test]
fn a_directory_is_renamed_when_handles_below_are_given_up() {
    in_frozen_world(settings(), async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        let dir = two.open_file(&theirs, &Want::directory("d")).await;
        let got = one.on(&mine, with_lease(&Want::file("d\\f"), key(1), rh())).await;
        let rename = files::rename_draft(FileInfoClass::RENAME, dir, "e", false);
        let waiting = start(&mut two, &theirs, rename.clone()).await;
        assert_eq!(lease_notification(&mut one).await.new_lease_state, R);
        one.close(&mine, files::file_id(&got)).await;
        two.final_reply(waiting).await.ok();
        assert!(world.path("e/f").exists());
    });
}
