//! L4: a break that meets with a close, an acknowledgment, a lost connection or the scavenger.
//! The client that opens the file gets its answer, and nothing stays behind.

use std::time::Instant as Real;

use super::cores::{Cores, runs};
use crate::client::files::{close_draft, file_id};
use crate::client::*;
use frevo_server::internal::limits::BREAK_TIMEOUT;
use frevo_wire::command::create::OplockLevel;
use frevo_wire::command::oplock_break::{self, LeaseBreak, LeaseKey, LeaseState};
use frevo_wire::create_context::{
    CreateContext, CreateContexts, DurableHandleFlags, DurableRequestV2, Lease, LeaseFlags, LeaseV2,
};
use frevo_wire::dtyp::Guid;
use std::time::Duration;

const RWH: LeaseState = LeaseState(LeaseState::READ.0 | LeaseState::WRITE.0 | LeaseState::HANDLE.0);

fn leased(durable: bool) -> Draft {
    let lease = Lease { lease_key: LeaseKey([1; 16]), lease_state: RWH, flags: LeaseFlags::EMPTY };
    let parent_lease_key = LeaseKey::default();
    let mut contexts = vec![CreateContext::LeaseV2(LeaseV2 { lease, parent_lease_key, epoch: 1 })];
    if durable {
        contexts.push(CreateContext::DurableRequestV2(DurableRequestV2 {
            timeout: 1_000,
            flags: DurableHandleFlags::EMPTY,
            create_guid: Guid([3; 16]),
        }));
    }
    let contexts = CreateContexts::from_requests(&contexts).as_bytes().to_vec();
    let want = Want { contexts, oplock: OplockLevel::LEASE, ..Want::file("f") };
    want.draft()
}

fn acknowledged(state: LeaseState) -> Draft {
    let ack = LeaseBreak { lease_key: LeaseKey([1; 16]), lease_state: state };
    Draft::new(Command::OPLOCK_BREAK).with(|w| oplock_break::Request::Lease(ack).encode(w))
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Holder {
    Closes,
    Acknowledges,
    ClosesAndAcknowledges,
    Disconnects,
    LogsOff,
    /// Its durable Open waits for it, and its time is over just then.
    Waits,
}

/// The holder acts on one core when the opener does on another, now a little before,
/// now a little after.
#[test]
fn l4_a_break_that_meets_with_anything_lets_the_opener_in() {
    let all = [
        Holder::Closes,
        Holder::Acknowledges,
        Holder::ClosesAndAcknowledges,
        Holder::Disconnects,
        Holder::LogsOff,
        Holder::Waits,
    ];
    in_world(async |world| {
        let cores = Cores::start(&world.embedded, 2);
        let (mut two, theirs) = cores.session(1, Guid([2; 16])).await;
        for run in 0..runs(40) {
            for holder in all {
                let is_durable = holder == Holder::Waits;
                if is_durable && (run % 4 != 0 || run >= 40) {
                    // A durable Open survives its connection for at least a second, which is too
                    // long for this test.
                    continue;
                }
                let (mut one, mine) = cores.session(0, Guid([1; 16])).await;
                let file = file_id(one.on(&mine, leased(is_durable)).await.ok());
                if is_durable {
                    drop(one);
                    let until = 960 + 20 * u64::try_from(run % 5).unwrap();
                    tokio::time::sleep(Duration::from_millis(until)).await;
                    one = cores.connect(0, Guid([9; 16]));
                }
                let began = Real::now();
                let open = theirs.put(Want::file("f").draft());
                let pause = Duration::from_micros(u64::try_from(run % 7).unwrap() * 60);
                let mut opening = 0;
                if run % 2 == 0 {
                    opening = two.send(vec![open.clone()], theirs.via()).await[0];
                    tokio::time::sleep(pause).await;
                }
                match holder {
                    Holder::Closes => {
                        one.send(vec![mine.put(close_draft(file))], mine.via()).await;
                    }
                    Holder::Acknowledges => {
                        // If the acknowledgment arrives before the break, it is refused, so the
                        // loop below repeats it.
                        one.send(vec![mine.put(acknowledged(LeaseState::READ))], mine.via()).await;
                    }
                    Holder::ClosesAndAcknowledges => {
                        one.send(vec![mine.put(close_draft(file))], mine.via()).await;
                        one.send(vec![mine.put(acknowledged(LeaseState::EMPTY))], mine.via()).await;
                    }
                    Holder::Disconnects => one.stream.abort(),
                    Holder::LogsOff => {
                        one.send(vec![mine.put(Draft::empty(Command::LOGOFF))], mine.via()).await;
                    }
                    Holder::Waits => {}
                }
                if run % 2 == 1 {
                    tokio::time::sleep(pause).await;
                    opening = two.send(vec![open], theirs.via()).await[0];
                }
                let reply = {
                    let mut answer = std::pin::pin!(two.final_reply(opening));
                    loop {
                        tokio::select! {
                            reply = &mut answer => break reply,
                            // The last acknowledgment may have come before the break, so it is
                            // repeated until the break ends.
                            () = tokio::time::sleep(Duration::from_millis(5)),
                                if holder == Holder::Acknowledges =>
                            {
                                let ack = mine.put(acknowledged(LeaseState::READ));
                                one.send(vec![ack], mine.via()).await;
                            }
                        }
                    }
                };
                let second = file_id(reply.ok());
                // A missed break would make the opener wait for BREAK_TIMEOUT.
                assert!(began.elapsed() < BREAK_TIMEOUT / 2, "{holder:?}, run {run}");
                drop(one);
                two.close(&theirs, second).await;
            }
        }
        drop(two);
        cores.stop();
        assert_eq!(world.server.durables.counts(), (0, 0));
    });
}
