//! Bind, unbind, log off, lose a channel and I/O, of one session.

use std::cell::Cell;
use std::rc::Rc;

use frevo_wire::dtyp::Guid;

use super::exploring::{explore, thread};
use crate::client::files::{close_draft, read_draft, write_draft};
use crate::client::*;

const GUID: Guid = Guid([0x5A; 16]);

/// Writes, and says how the server answered; none if it ended the connection. A request that is sent
/// after `answered` must not succeed.
async fn write(peer: &mut Peer, mount: &Mount, file: FileId, answered: &Cell<bool>) {
    let is_late = answered.get();
    let draft = mount.put(write_draft(file, 0, b"x"));
    let Some(reply) = peer.ask_or_lose(draft, mount.via()).await else { return };
    let status = reply.status();
    let is_over = matches!(
        status,
        Status::USER_SESSION_DELETED | Status::FILE_CLOSED | Status::NETWORK_NAME_DELETED
    );
    assert!(is_over || (status == Status::SUCCESS && !is_late), "{status:?}, late: {is_late}");
}

/// A channel is bound and used, another is lost, a third logs off: each Open is closed once, nothing
/// succeeds after the answer to LOGOFF, nothing is left.
#[test]
fn channels_come_and_go_beside_a_logoff() {
    explore(async |model| {
        let (mut one, mount) = model.session(GUID, "data").await;
        let file = one.open_file(&mount, &Want::file("f")).await;
        let (mut two, second) = model.channel(GUID, &mount).await;
        let mut three = model.connect(GUID).await;
        let answered = Rc::new(Cell::new(false));
        model.begins();
        let lost = thread({
            let (answered, mount) = (Rc::clone(&answered), mount.clone());
            async move {
                write(&mut one, &mount, file, &answered).await;
                drop(one);
            }
        });
        let bound = thread({
            let answered = Rc::clone(&answered);
            async move {
                match three.try_log_on(Setup::binding("ann", &mount.logon)).await {
                    Ok(logon) => write(&mut three, &mount.on(&logon), file, &answered).await,
                    Err(reply) => {
                        reply.expect(Status::USER_SESSION_DELETED);
                    }
                }
            }
        });
        let over = thread(async move {
            let logoff = second.put(Draft::empty(Command::LOGOFF));
            two.ask(logoff, second.via()).await.ok();
            answered.set(true);
            let read = second.put(read_draft(file, 0, 1));
            two.ask(read, second.via()).await.expect(Status::USER_SESSION_DELETED);
        });
        for task in [lost, bound, over] {
            task.await.unwrap();
        }
    });
}

/// Of two LOGOFFs, TREE_DISCONNECTs or CLOSEs over two channels one succeeds.
#[test]
fn of_two_ends_one_succeeds() {
    explore(async |model| {
        let (mut one, mount) = model.session(GUID, "data").await;
        let file = one.open_file(&mount, &Want::file("f")).await;
        let (mut two, second) = model.channel(GUID, &mount).await;
        model.begins();
        for draft in [
            close_draft(file),
            Draft::empty(Command::TREE_DISCONNECT),
            Draft::empty(Command::LOGOFF),
        ] {
            let (there, theirs) = (second.clone(), draft.clone());
            let other = thread(async move {
                let reply = two.ask(there.put(theirs), there.via()).await;
                (two, reply)
            });
            let own = one.ask(mount.put(draft), mount.via()).await;
            let (back, reply) = other.await.unwrap();
            two = back;
            let successes = [&own, &reply].iter().filter(|r| r.status() == Status::SUCCESS).count();
            assert_eq!(successes, 1, "{:?}, {:?}", own.status(), reply.status());
        }
    });
}

/// The last two channels are lost at once: the session ends once, and with it what was open.
#[test]
fn the_last_channels_are_lost_at_once() {
    explore(async |model| {
        let (mut one, mount) = model.session(GUID, "data").await;
        let file = one.open_file(&mount, &Want::file("f")).await;
        let (mut two, second) = model.channel(GUID, &mount).await;
        model.begins();
        let other = thread(async move {
            two.send(vec![second.put(write_draft(file, 0, b"two"))], second.via()).await;
        });
        one.send(vec![mount.put(write_draft(file, 0, b"one"))], mount.via()).await;
        drop(one);
        other.await.unwrap();
    });
}
