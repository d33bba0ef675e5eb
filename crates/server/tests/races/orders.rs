//! L1 with the server itself: {setup, bind, I/O, logoff, disconnect} of two channels,
//! in every order in which their messages can come. `model.rs` has the orders within.

use crate::client::files::{read_draft, write_draft};
use crate::client::logon::Exchange;
use crate::client::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// One of the two rounds of a binding.
    Bind,
    Write,
    Logoff,
    Disconnect,
}

const FIRST: [Step; 4] = [Step::Write, Step::Logoff, Step::Write, Step::Disconnect];
const SECOND: [Step; 5] = [Step::Bind, Step::Bind, Step::Write, Step::Logoff, Step::Disconnect];

/// Every way to merge two rows.
fn orders(first: usize, second: usize) -> Vec<Vec<bool>> {
    if first == 0 || second == 0 {
        return vec![vec![second == 0; first + second]];
    }
    let mut all = Vec::new();
    for (is_first, rest) in [(true, orders(first - 1, second)), (false, orders(first, second - 1))]
    {
        all.extend(rest.into_iter().map(|rest| [vec![is_first], rest].concat()));
    }
    all
}

#[test]
fn l1_in_every_order_nothing_succeeds_after_logoff() {
    let orders = orders(FIRST.len(), SECOND.len());
    assert_eq!(orders.len(), 126);
    in_world(async |world| {
        for order in orders {
            one(world, &order).await;
        }
    });
}

async fn one(world: &World, order: &[bool]) {
    let what = format!("{order:?}");
    let (mut first, mount) = world.session("ann", &Offer::default()).await;
    let logon = std::rc::Rc::clone(&mount.logon);
    let file = first.open_file(&mount, &Want::file("f")).await;
    let mut second = world.connect();
    second.guid = first.guid;
    second.negotiate(&Offer::default()).await;
    let mut exchange = Some(Exchange::new(&second, Setup::binding("ann", &logon)));
    let (mut one, mut two) = (Some(first), Some(second));
    let (mut bound, mut rounds) = (None, 0);
    let mut is_over = false;
    let (mut ones, mut twos) = (FIRST.iter(), SECOND.iter());
    for is_first in order {
        let step = *if *is_first { ones.next() } else { twos.next() }.unwrap();
        let ended = world.server.session(logon.id).is_none();
        // The session ends when its last channel ends.
        is_over |= ended;
        let (peer, via) =
            if *is_first { (&mut one, Some(mount.clone())) } else { (&mut two, bound.clone()) };
        match (step, via) {
            (Step::Disconnect, _) => {
                drop(peer.take());
                // These yields let the server notice the lost connection before it gets the next
                // message.
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                }
            }
            (Step::Bind, _) => {
                let Some(mut binding) = exchange.take() else { continue };
                let peer = peer.as_mut().unwrap();
                let reply = binding.round(peer).await;
                rounds += 1;
                match reply.status() {
                    Status::MORE_PROCESSING_REQUIRED if rounds == 1 && !is_over => {
                        exchange = Some(binding);
                    }
                    Status::SUCCESS if rounds == 2 && !is_over => {
                        bound = Some(mount.on(&binding.logon(peer)));
                    }
                    Status::USER_SESSION_DELETED if is_over => {}
                    status => panic!("{what}: a binding is answered {status}"),
                }
            }
            // The second connection is not bound to the session, so it cannot do this step.
            (_, None) => {}
            (step, Some(mount)) => {
                let peer = peer.as_mut().unwrap();
                let draft = match step {
                    Step::Write => write_draft(file, 0, b"x"),
                    _ => Draft::empty(Command::LOGOFF),
                };
                let reply = peer.ask(mount.put(draft), mount.via()).await;
                let expected = if is_over { Status::USER_SESSION_DELETED } else { Status::SUCCESS };
                assert_eq!(reply.status(), expected, "{what}: {step:?}");
                is_over |= step == Step::Logoff;
            }
        }
        if is_over {
            assert!(world.server.session(logon.id).is_none(), "{what}");
            for (peer, mount) in [(&mut one, Some(&mount)), (&mut two, bound.as_ref())] {
                if let (Some(peer), Some(mount)) = (peer.as_mut(), mount) {
                    let read = mount.put(read_draft(file, 0, 1));
                    let reply = peer.ask(read, mount.via()).await;
                    reply.expect(Status::USER_SESSION_DELETED);
                }
            }
        }
    }
    drop((one, two));
    for _ in 0..1_000 {
        if world.server.session(logon.id).is_none() {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert!(world.server.session(logon.id).is_none(), "{what}");
    // The Open must be closed after each order of steps, so that another client can open the file
    // without sharing.
    let path = world.path("f");
    let (mut other, theirs) = world.session("bob", &Offer::default()).await;
    let alone = Want::existing("f").sharing(Default::default());
    let file = other.open_file(&theirs, &alone).await;
    other.close(&theirs, file).await;
    std::fs::remove_file(path).unwrap();
}
