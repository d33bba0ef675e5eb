//! Listing of accounts over samr: for administrators, unless the server says otherwise.

use std::sync::Arc;

use frevo_rpc::handles::parse_handle_reply;
use frevo_rpc::samr::{CONNECT2, ENUMERATE_USERS, LOOKUP_IDS, OPEN_DOMAIN};
use frevo_rpc::{Client, SyntaxId};
use frevo_server::settings::AccountListing;
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::dtyp::Sid;
use frevo_wire::ndr::NdrWriter;

use super::calls::*;
use crate::client::world::Users;
use crate::client::*;

const MAXIMUM: u32 = 0x0200_0000;
const TRANSCEIVE: CtlCode = CtlCode::PIPE_TRANSCEIVE;

/// A call and what it returns: its reply, which ends with its status.
struct Samr<'a> {
    peer: &'a mut Peer,
    ipc: Mount,
    pipe: FileId,
    client: Client,
}

impl<'a> Samr<'a> {
    async fn open(peer: &'a mut Peer, logon: &std::rc::Rc<Logon>) -> Self {
        let ipc = peer.mount(logon, "IPC$").await;
        let pipe = peer.open_file(&ipc, &Want::existing("samr")).await;
        let mut client = Client::new(SyntaxId::SAMR);
        let bound = ask(peer, &ipc, TRANSCEIVE, pipe, &client.bind(), 4280).await;
        assert!(client.handle_bind_reply(&output(bound.ok())).unwrap());
        Self { peer, ipc, pipe, client }
    }

    async fn call(&mut self, opnum: u16, write: impl FnOnce(&mut NdrWriter)) -> (Vec<u8>, Status) {
        let mut w = NdrWriter::new();
        write(&mut w);
        let [call] = &self.client.call(opnum, &w.into_stub())[..] else { panic!("one fragment") };
        let reply = ask(self.peer, &self.ipc, TRANSCEIVE, self.pipe, call, 4280).await;
        let reply = self.client.handle_bytes(&output(reply.ok())).unwrap().unwrap();
        let status = Status(u32::from_le_bytes(*reply.last_chunk().unwrap()));
        (reply, status)
    }
}

/// The answers to a user that lists the accounts, and that looks up one.
async fn told(world: &World, user: &str) -> (Status, Status) {
    let (mut peer, data) = world.session(user, &Offer::default()).await;
    let machine = world.server.machine_sid();
    let mut samr = Samr::open(&mut peer, &data.logon).await;
    let (reply, _) = samr
        .call(CONNECT2, |w| {
            w.unique_string(None).u32(MAXIMUM);
        })
        .await;
    let (server, _) = parse_handle_reply(&reply).unwrap();
    let (reply, status) = samr
        .call(OPEN_DOMAIN, |w| {
            w.handle(&server).u32(MAXIMUM).sid(&machine);
        })
        .await;
    assert_eq!(status, Status::SUCCESS);
    let (domain, _) = parse_handle_reply(&reply).unwrap();
    let (reply, listed) = samr
        .call(ENUMERATE_USERS, |w| {
            w.handle(&domain).u32(0).u32(0).u32(4096);
        })
        .await;
    // The reply has names in UTF-16, so "bob" is searched in that form.
    let names_bob = reply.windows(6).any(|bytes| bytes == b"b\0o\0b\0");
    assert_eq!(names_bob, listed == Status::SUCCESS, "{listed}");
    let token = world.server.session(data.logon.id).unwrap().identity().unwrap().token.clone();
    let (_, rid) = Sid::split_rid(token.user()).unwrap();
    let (_, looked_up) = samr
        .call(LOOKUP_IDS, |w| {
            w.handle(&domain).u32(1).u32(1000).u32(0).u32(1).u32(rid);
        })
        .await;
    (listed, looked_up)
}

#[test]
fn x8_accounts_are_listed_for_whom_the_configuration_says() {
    in_world(async |world| {
        for (account_listing, bobs) in [
            (AccountListing::Administrators, Status::ACCESS_DENIED),
            (AccountListing::Users, Status::SUCCESS),
            (AccountListing::Administrators, Status::ACCESS_DENIED),
        ] {
            let settings = Settings { account_listing, ..(*world.server.settings()).clone() };
            world.server.reload(settings, &world.server.shares().clone(), Arc::new(Users));
            promote_ann(world);
            assert_eq!(told(world, "ann").await, (Status::SUCCESS, Status::SUCCESS));
            assert_eq!(told(world, "bob").await, (bobs, Status::SUCCESS));
        }
    });
}
