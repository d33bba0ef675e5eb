//! Requests to lsarpc and samr wait for the host's name service, and no other requests do.

use std::sync::Arc;
use std::time::Duration;

use frevo_auth::{Account, Accounts, Membership};
use frevo_rpc::lsarpc::TranslatedSid;
use frevo_rpc::lsarpc::{self, LookupNames, LookupReply, NamesForm, OpenPolicy};
use frevo_rpc::{Client, SyntaxId};
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::dtyp::AccessMask;
use parking_lot::{Condvar, Mutex};
use tokio::time::{sleep, timeout};

use super::calls::*;
use crate::client::world::Users;
use crate::client::*;

/// Where a PDU says which call it is of.
const CALL_ID: std::ops::Range<usize> = 12..16;

const TRANSCEIVE: CtlCode = CtlCode::PIPE_TRANSCEIVE;

/// The longest time for which a look-up hangs.
const HANGS_AT_MOST: Duration = Duration::from_secs(60);

/// Accounts that take until they are let to say that there is no such user.
#[derive(Debug, Default)]
struct Slow {
    /// True while a lookup waits, and once it may be answered.
    state: Mutex<(bool, bool)>,
    turn: Condvar,
}

impl Slow {
    fn answer(&self) {
        self.state.lock().1 = true;
        self.turn.notify_all();
    }
}

impl Accounts for Slow {
    fn account(&self, user: &str, domain: &str) -> Option<Account> {
        Users.account(user, domain)
    }

    fn membership(&self, user: &str) -> Option<Membership> {
        if user == "no such user" {
            let mut state = self.state.lock();
            state.0 = true;
            // The look-up waits until the test continues. If the core thread itself waited, the
            // test could not continue, so the wait has a time limit.
            let hung = self.turn.wait_while_for(&mut state, |state| !state.1, HANGS_AT_MOST);
            assert!(!hung.timed_out(), "the core waited");
        }
        None
    }
}

/// The pipe lsarpc, and a client that is bound to it.
async fn lsarpc_pipe(peer: &mut Peer, ipc: &Mount) -> (FileId, Client) {
    let pipe = peer.open_file(ipc, &Want::existing("lsarpc")).await;
    let mut client = Client::new(SyntaxId::LSARPC);
    let bound = ask(peer, ipc, TRANSCEIVE, pipe, &client.bind(), 4280).await;
    assert!(client.handle_bind_reply(&output(bound.ok())).unwrap());
    (pipe, client)
}

#[test]
fn a_name_service_that_hangs_stalls_who_asks_it_alone() {
    in_world(async |world| {
        let slow = Arc::new(Slow::default());
        let settings = (*world.server.settings()).clone();
        let shares = (**world.server.shares()).clone();
        world.server.reload(settings, &shares, Arc::clone(&slow) as _);
        let (mut peer, data) = world.session("ann", &Offer::default()).await;
        let ipc = peer.mount(&data.logon, "IPC$").await;
        let (pipe, mut client) = lsarpc_pipe(&mut peer, &ipc).await;
        let open = OpenPolicy::encode(AccessMask::MAXIMUM_ALLOWED, "\\\\frevo");
        let [open] = &client.call(lsarpc::OPEN_POLICY2, &open)[..] else { panic!("one fragment") };
        let reply = ask(&mut peer, &ipc, TRANSCEIVE, pipe, open, 4280).await;
        let reply = client.handle_bytes(&output(reply.ok())).unwrap().unwrap();
        let (policy, _) = frevo_rpc::handles::parse_handle_reply(&reply).unwrap();

        let names = LookupNames::encode(&policy, &["no such user", "BUILTIN\\Users"]);
        let [names] = &client.call(lsarpc::LOOKUP_NAMES3, &names)[..] else { panic!("one") };
        let draft = ioctl_draft(TRANSCEIVE, pipe, names, 4280);
        let asked = peer.send(vec![ipc.put(draft)], ipc.via()).await[0];
        let is_announced = timeout(HANGS_AT_MOST / 2, peer.interim()).await;
        assert_eq!(is_announced.expect("announced").header.message_id, asked);
        // Another thread asks, which may begin after the interim response.
        let is_asked = async {
            while !slow.state.lock().0 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(HANGS_AT_MOST, is_asked).await.expect("the question is asked");
        // While the look-up of the first request waits, the connection serves other requests, even
        // for the same pipe.
        let file = peer.open_file(&data, &Want::file("f")).await;
        peer.write(&data, file, 0, b"as always").await;
        let peeked = ask(&mut peer, &ipc, CtlCode::PIPE_PEEK, pipe, &[], 64).await;
        assert_eq!(output(peeked.ok())[4..8], [0; 4], "nothing is there to be read");
        slow.answer();
        let reply = peer.final_reply(asked).await;
        let reply = client.handle_bytes(&output(reply.ok())).unwrap().unwrap();
        let reply = LookupReply::<TranslatedSid>::parse(&reply, NamesForm::Names3, 2).unwrap();
        assert_eq!((reply.mapped, reply.status), (1, Status::SOME_NOT_MAPPED));
    });
}

/// Transactions that come together are answered each with its own.
#[test]
fn transactions_of_a_pipe_do_not_take_each_others_answers() {
    in_world(async |world| {
        let (mut peer, data) = world.session("ann", &Offer::default()).await;
        let ipc = peer.mount(&data.logon, "IPC$").await;
        let (pipe, mut client) = lsarpc_pipe(&mut peer, &ipc).await;
        let open = OpenPolicy::encode(AccessMask::MAXIMUM_ALLOWED, "\\\\frevo");
        for _ in 0..50 {
            let mut asked = Vec::new();
            for _ in 0..4 {
                let [call] = &client.call(lsarpc::OPEN_POLICY2, &open)[..] else { panic!("one") };
                let draft = ioctl_draft(TRANSCEIVE, pipe, call, 4280);
                let id = peer.send(vec![ipc.put(draft)], ipc.via()).await[0];
                asked.push((id, call[CALL_ID].to_vec()));
            }
            for (id, call_id) in asked {
                let reply = peer.final_reply(id).await;
                assert_eq!(output(reply.ok())[CALL_ID], call_id[..]);
            }
        }
    });
}
