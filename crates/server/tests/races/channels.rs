//! Binding, unbinding and ending beside signed I/O on other cores.

use std::time::Duration;

use frevo_wire::command::lock::LockFlags;
use frevo_wire::dtyp::Guid;

use super::cores::{Cores, runs};
use crate::client::files::{lock_draft, read_draft, write_draft};
use crate::client::world::EXCLUSIVE;
use crate::client::*;

const GUID: Guid = Guid([0x5A; 16]);

/// Other numbers in each process, which it names.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        use std::hash::{BuildHasher, RandomState};
        let given = std::env::var("FREVO_RACE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0_u8));
        println!("FREVO_RACE_SEED={seed}");
        Self(seed | 1)
    }

    fn roll(&mut self) -> u64 {
        // The random numbers come from the generator xorshift64*.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

/// L2: every reply to a signed request bears the key of its own channel (the
/// client verifies each), however channels come and go beside it.
#[test]
fn l2_channels_come_and_go_during_signed_io() {
    in_world(async |world| {
        let cores = Cores::start(&world.embedded, 3);
        let (mut one, mount) = cores.session(0, GUID).await;
        let file = one.open_file(&mount, &Want::file("f")).await;
        one.write(&mount, file, 0, &[7; 4096]).await;
        let mut dice = Dice::new();
        for _ in 0..runs(150) {
            let reads: Vec<_> = (0..4).map(|_| mount.put(read_draft(file, 0, 4096))).collect();
            let mut ids = Vec::new();
            for read in reads {
                ids.extend(one.send(vec![read], mount.via()).await);
            }
            let chance = dice.roll();
            let core = 1 + usize::try_from(chance % 2).unwrap();
            let (mut two, there) = cores.bind(core, &one, &mount).await;
            let read = two.send(vec![there.put(read_draft(file, 0, 64))], there.via()).await[0];
            // In one half of the rounds the client pauses before its next step.
            if chance & 4 != 0 {
                tokio::time::sleep(Duration::from_micros(chance >> 8 & 0xFF)).await;
            }
            match chance >> 4 & 3 {
                0 => drop(two),
                1 => {
                    two.final_reply(read).await.ok();
                    two.stream.abort();
                }
                _ => {
                    two.final_reply(read).await.ok();
                    two.write(&there, file, 0, &[8; 64]).await;
                }
            }
            for reply in one.collect(&ids).await {
                assert!(reply.is_signed());
                reply.ok();
            }
        }
        drop(one);
        cores.stop();
    });
}

/// Sends 16 WRITEs of 64 KiB, each in a frame of its own and of other bytes.
async fn write_much(peer: &mut Peer, mount: &Mount, file: FileId, run: usize) -> Vec<u64> {
    let mut ids = Vec::new();
    for i in 0..16u8 {
        let write = write_draft(file, 0, &vec![i ^ (run as u8); 64 << 10]);
        ids.extend(peer.send(vec![mount.put(write)], mount.via()).await);
    }
    ids
}

/// L1: what another channel writes is refused or done before LOGOFF is
/// answered; afterwards the file is as it is.
#[test]
fn l1_logoff_is_answered_when_nothing_is_under_way_any_more() {
    in_world(async |world| {
        let cores = Cores::start(&world.embedded, 2);
        for run in 0..runs(60) {
            let (mut one, mount) = cores.session(run, GUID).await;
            let file = one.open_file(&mount, &Want::file("f")).await;
            let (mut two, there) = cores.bind(run + 1, &one, &mount).await;
            let ids = write_much(&mut two, &there, file, run).await;
            let logoff =
                one.send(vec![mount.put(Draft::empty(Command::LOGOFF))], mount.via()).await;
            one.final_reply(logoff[0]).await.ok();
            let then = world.content("f");
            for reply in two.collect(&ids).await {
                let status = reply.status();
                assert!(
                    matches!(
                        status,
                        Status::SUCCESS | Status::USER_SESSION_DELETED | Status::FILE_CLOSED
                    ),
                    "{status:?}"
                );
            }
            let read = there.put(read_draft(file, 0, 1));
            two.ask(read, there.via()).await.expect(Status::USER_SESSION_DELETED);
            assert_eq!(world.content("f"), then, "written to after the answer");
        }
        cores.stop();
    });
}

/// The same of TREE_DISCONNECT, whose session goes on.
#[test]
fn tree_disconnect_is_answered_when_nothing_is_under_way_in_it_any_more() {
    in_world(async |world| {
        let cores = Cores::start(&world.embedded, 2);
        for run in 0..runs(60) {
            let (mut one, mount) = cores.session(run, GUID).await;
            let file = one.open_file(&mount, &Want::file("f")).await;
            let (mut two, there) = cores.bind(run + 1, &one, &mount).await;
            let ids = write_much(&mut two, &there, file, run).await;
            let end = mount.put(Draft::empty(Command::TREE_DISCONNECT));
            let end = one.send(vec![end], mount.via()).await;
            one.final_reply(end[0]).await.ok();
            let then = world.content("f");
            for reply in two.collect(&ids).await {
                let status = reply.status();
                let is_over = matches!(status, Status::NETWORK_NAME_DELETED | Status::FILE_CLOSED);
                assert!(status == Status::SUCCESS || is_over, "{status:?}");
            }
            assert_eq!(world.content("f"), then, "written to after the answer");
            one.on(&mount, Draft::empty(Command::LOGOFF)).await.ok();
        }
        cores.stop();
    });
}

/// And of CLOSE.
#[test]
fn close_is_answered_when_nothing_is_under_way_with_it_any_more() {
    in_world(async |world| {
        let cores = Cores::start(&world.embedded, 2);
        let (mut one, mount) = cores.session(0, GUID).await;
        let (mut two, there) = cores.bind(1, &one, &mount).await;
        for run in 0..runs(60) {
            let file = one.open_file(&mount, &Want::file("f")).await;
            let ids = write_much(&mut two, &there, file, run).await;
            one.close(&mount, file).await;
            let then = world.content("f");
            for reply in two.collect(&ids).await {
                let status = reply.status();
                assert!(matches!(status, Status::SUCCESS | Status::FILE_CLOSED), "{status:?}");
            }
            assert_eq!(world.content("f"), then, "written to after the answer");
        }
        drop((one, two));
        cores.stop();
    });
}

/// A request that waits for a lock, or for a break, does not hold TREE_DISCONNECT up.
#[test]
fn tree_disconnect_does_not_wait_for_those_who_wait() {
    in_world(async |world| {
        let (mut one, mount) = world.session("ann", &Offer::default()).await;
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        let batch = Want::file("held").draft().patch(64 + 3, &[9]);
        two.on(&theirs, batch).await.ok();
        let opener = one.send(vec![mount.put(Want::file("held").draft())], mount.via()).await[0];
        one.interim().await;
        let holder = one.open_file(&mount, &Want::file("f")).await;
        let waiter = one.open_file(&mount, &Want::file("f")).await;
        one.on(&mount, lock_draft(holder, &[(0, 1, EXCLUSIVE)])).await.ok();
        let lock = mount.put(lock_draft(waiter, &[(0, 1, LockFlags::EXCLUSIVE_LOCK)]));
        let lock = one.send(vec![lock], mount.via()).await[0];
        one.interim().await;
        let end = mount.put(Draft::empty(Command::TREE_DISCONNECT));
        let end = one.send(vec![end], mount.via()).await[0];
        let all = [opener, lock, end];
        let ends = tokio::time::timeout(Duration::from_secs(5), one.collect(&all)).await;
        let ends = ends.expect("at once");
        ends[0].expect(Status::CANCELLED);
        ends[1].expect(Status::RANGE_NOT_LOCKED);
        ends[2].ok();
    });
}

/// L1 and L3: of two at once exactly one succeeds.
#[test]
fn l3_of_two_ends_one_succeeds() {
    in_world(async |world| {
        let cores = Cores::start(&world.embedded, 2);
        for run in 0..runs(60) {
            let (mut one, mount) = cores.session(run, GUID).await;
            let file = one.open_file(&mount, &Want::file("f")).await;
            let (mut two, there) = cores.bind(run + 1, &one, &mount).await;
            for (command, other) in [
                (Command::TREE_DISCONNECT, Status::NETWORK_NAME_DELETED),
                (Command::LOGOFF, Status::USER_SESSION_DELETED),
            ] {
                let a = one.send(vec![mount.put(Draft::empty(command))], mount.via()).await[0];
                let b = two.send(vec![there.put(Draft::empty(command))], there.via()).await[0];
                let ends = [one.final_reply(a).await, two.final_reply(b).await];
                let mut statuses = ends.map(|reply| reply.status());
                statuses.sort_by_key(|status| status.0);
                assert_eq!(statuses, [Status::SUCCESS, other], "{command}");
            }
            let read = there.put(read_draft(file, 0, 1));
            two.ask(read, there.via()).await.expect(Status::USER_SESSION_DELETED);
        }
        cores.stop();
        assert_eq!(world.server.sessions().len(), 1, "that of the innocent");
    });
}

/// A request that waits for a change or a lock does not hold LOGOFF up.
#[test]
fn logoff_does_not_wait_for_those_who_wait() {
    in_world(async |world| {
        let (mut one, mount) = world.session("ann", &Offer::default()).await;
        let holder = one.open_file(&mount, &Want::file("f")).await;
        let waiter = one.open_file(&mount, &Want::file("f")).await;
        let exclusive = EXCLUSIVE;
        one.on(&mount, lock_draft(holder, &[(0, 1, exclusive)])).await.ok();
        let wait = LockFlags::EXCLUSIVE_LOCK;
        let lock = mount.put(lock_draft(waiter, &[(0, 1, wait)]));
        let lock = one.send(vec![lock], mount.via()).await[0];
        one.interim().await;
        let logoff = mount.put(Draft::empty(Command::LOGOFF));
        let logoff = one.send(vec![logoff], mount.via()).await[0];
        let ends = tokio::time::timeout(Duration::from_secs(5), one.collect(&[lock, logoff])).await;
        let ends = ends.expect("at once");
        ends[0].expect(Status::RANGE_NOT_LOCKED);
        ends[1].ok();
    });
}
