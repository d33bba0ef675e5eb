//! Guests: MS-SMB2 3.3.5.5.3, Session.IsGuest.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::client::draft::pack;
use crate::client::files::{read_draft, tree_connect_draft, write_draft};
use crate::client::logon::Exchange;
use crate::client::world::{in_own_world, password, serving};
use crate::client::*;
use crate::sessions::become_nobody;
use frevo_auth::{Account, AccountRules, Accounts, Membership, NtHash};
use frevo_posix::{PosixOptions, PosixVfs};
use frevo_server::ambient::Host;
use frevo_server::internal::limits::GUEST_SESSIONS;
use frevo_server::internal::state::Shares;
use frevo_server::settings::Encryption;
use frevo_server::share::{GuestAccess, RunAs, Share};
use frevo_wire::command::create;
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::command::session_setup::{self, SessionFlags};
use frevo_wire::command::tree_connect;
use frevo_wire::create_context::{
    CreateContext, CreateContexts, DurableHandleFlags, DurableReconnectV2, DurableRequestV2,
};
use frevo_wire::dtyp::{AccessMask, Guid};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ABROAD: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));

/// Ann, carol who is disabled, and dora whose account has no password.
#[derive(Debug)]
struct Users;

impl Accounts for Users {
    fn account(&self, user: &str, _domain: &str) -> Option<Account> {
        let name = user.to_lowercase();
        let nt_hash = NtHash::from_password(&password(&name));
        let rules = AccountRules::enabled(name == "ann");
        matches!(&*name, "ann" | "carol").then(|| Account { name, nt_hash, rules })
    }

    fn membership(&self, user: &str) -> Option<Membership> {
        let name = user.to_lowercase();
        let rules = AccountRules::enabled(name != "carol");
        let known = Membership { name: name.clone(), rules, ..Membership::default() };
        matches!(&*name, "ann" | "carol" | "dora").then_some(known)
    }
}

/// `scans` and `inbox` let guests in, who may write to `inbox`; `data` does not.
fn shares(root: &std::path::Path) -> [Share; 3] {
    let share = |name: &str| {
        let vfs = PosixVfs::open_root(root, PosixOptions::default()).unwrap();
        Share::disk(name, Arc::new(vfs))
    };
    let guest = |writes| GuestAccess { run_as: RunAs::Server, writes };
    [share("scans").guest(guest(false)), share("inbox").guest(guest(true)), share("data")]
}

fn with_guests(settings: Settings, test: impl AsyncFnOnce(&World)) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), b"read me").unwrap();
    let embedded = serving(settings, shares(dir.path()), Arc::new(Users), Arc::new(Host));
    in_own_world(false, &World::of(embedded, dir), test);
}

fn unknown_are_guests() -> Settings {
    Settings { unknown_users_are_guests: true, ..settings() }
}

/// The last answer to a logon as `user`, from `address`.
async fn attempt(world: &World, address: IpAddr, user: &str, password: &str) -> (Peer, Reply) {
    let mut peer = world.connect_from(address).expect("admitted");
    peer.negotiate(&Offer::default()).await;
    let setup = Setup { password: password.into(), ..Setup::of(user) };
    let mut exchange = Exchange::new(&peer, setup);
    exchange.round(&mut peer).await.expect(Status::MORE_PROCESSING_REQUIRED);
    let reply = exchange.round(&mut peer).await;
    (peer, reply)
}

/// A guest: its connection and session.
struct Guest {
    peer: Peer,
    session: u64,
}

impl Guest {
    async fn of(world: &World, user: &str) -> Self {
        let (peer, reply) = attempt(world, HERE, user, "anything").await;
        reply.ok();
        assert!(!reply.is_signed(), "neither end has a key");
        let response = session_setup::Response::parse(&reply.message).unwrap();
        assert_eq!(response.session_flags, SessionFlags::IS_GUEST);
        Self { session: reply.header.session_id, peer }
    }

    async fn ask(&mut self, draft: Draft, tree: u32) -> Reply {
        let draft = draft.session(self.session).tree(tree);
        self.peer.ask(draft, Via::Plain).await
    }

    async fn connect(&mut self, share: &str) -> Reply {
        self.ask(tree_connect_draft(&format!("\\\\server\\{share}")), 0).await
    }

    async fn mount(&mut self, share: &str) -> u32 {
        let reply = self.connect(share).await;
        reply.ok();
        reply.header.tree_id().unwrap()
    }
}

fn file_of(reply: &Reply) -> FileId {
    create::Response::parse(&reply.message).unwrap().file_id
}

fn reading(name: &str) -> Draft {
    Want::existing(name).access(AccessMask::FILE_GENERIC_READ).draft()
}

#[test]
fn a_guest_reads_the_shares_for_guests_and_nothing_else() {
    with_guests(settings(), async |world| {
        let mut guest = Guest::of(world, "Guest").await;
        let reply = guest.connect("scans").await;
        reply.ok();
        let tree = reply.header.tree_id().unwrap();
        let response = tree_connect::Response::parse(&reply.message).unwrap();
        assert!(!response.maximal_access.intersects(AccessMask::WRITE_DATA | AccessMask::DELETE));
        let opened = guest.ask(reading("f"), tree).await;
        opened.ok();
        let read = guest.ask(read_draft(file_of(&opened), 0, 7), tree).await;
        assert!(read.ok().message.ends_with(b"read me"));
        for want in [Want::file("f"), Want::file("new"), Want::directory("folder")] {
            guest.ask(want.draft(), tree).await.expect(Status::ACCESS_DENIED);
        }
        for share in ["data", "absent", "{user}"] {
            guest.connect(share).await.expect(Status::ACCESS_DENIED);
        }
        let pipes = guest.mount("IPC$").await;
        for pipe in ["lsarpc", "samr", "wkssvc", "netdfs", "epmapper", "absent"] {
            guest.ask(reading(pipe), pipes).await.expect(Status::ACCESS_DENIED);
        }
        guest.ask(reading("srvsvc"), pipes).await.ok();
    });
}

#[test]
fn a_guest_writes_where_the_share_says_so() {
    with_guests(settings(), async |world| {
        let mut guest = Guest::of(world, "guest").await;
        let tree = guest.mount("inbox").await;
        let opened = guest.ask(Want::file("new").draft(), tree).await;
        opened.ok();
        guest.ask(write_draft(file_of(&opened), 0, b"scan"), tree).await.ok();
        assert_eq!(world.content("new"), b"scan");
        // A long WRITE, as of one who has logged on.
        let long = vec![7; 200_000];
        guest.ask(write_draft(file_of(&opened), 0, &long), tree).await.ok();
        assert_eq!(world.content("new"), long);
    });
}

/// An anonymous logon is a guest's too, and is told that it is nobody's.
#[test]
fn an_anonymous_client_is_a_guest() {
    with_guests(settings(), async |world| {
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        let reply = become_nobody(&mut peer, 0, Via::Plain).await;
        reply.ok();
        let response = session_setup::Response::parse(&reply.message).unwrap();
        assert_eq!(response.session_flags, SessionFlags::IS_NULL);
        let mut guest = Guest { session: reply.header.session_id, peer };
        let tree = guest.mount("scans").await;
        guest.ask(reading("f"), tree).await.ok();
        guest.connect("data").await.expect(Status::ACCESS_DENIED);
    });
}

/// Samba's `map to guest = bad user`: never a user who has an account.
#[test]
fn a_wrong_password_of_an_account_never_makes_a_guest() {
    with_guests(unknown_are_guests(), async |world| {
        Guest::of(world, "stranger").await;
        for name in ["ann", "ANN", "carol", "dora", "ELSEWHERE\\ann", "ann@elsewhere.test"] {
            let (_, reply) = attempt(world, HERE, name, "wrong").await;
            reply.expect(Status::LOGON_FAILURE);
        }
        let (_, reply) = attempt(world, HERE, "ann", &password("ann")).await;
        let response = session_setup::Response::parse(&reply.ok().message).unwrap();
        assert!(!response.session_flags.intersects(SessionFlags::IS_GUEST | SessionFlags::IS_NULL));
        assert!(reply.is_signed());
    });
    with_guests(settings(), async |world| {
        let (_, reply) = attempt(world, HERE, "stranger", "anything").await;
        reply.expect(Status::LOGON_FAILURE);
    });
}

#[test]
fn there_are_no_guests_without_a_share_for_them() {
    // From an address that is not private no share lets guests in.
    with_guests(unknown_are_guests(), async |world| {
        for user in ["guest", "stranger"] {
            let (_, reply) = attempt(world, ABROAD, user, "anything").await;
            reply.expect(Status::LOGON_FAILURE);
        }
        let mut peer = world.connect_from(ABROAD).expect("admitted");
        peer.negotiate(&Offer::default()).await;
        become_nobody(&mut peer, 0, Via::Plain).await.expect(Status::ACCESS_DENIED);
    });
    let sealed = Settings { encryption: Encryption::Required, ..unknown_are_guests() };
    with_guests(sealed, async |world| {
        let (_, reply) = attempt(world, HERE, "guest", "anything").await;
        reply.expect(Status::LOGON_FAILURE);
    });
    in_world_with(unknown_are_guests(), async |world| {
        for user in ["guest", "stranger"] {
            let (_, reply) = attempt(world, HERE, user, "anything").await;
            reply.expect(Status::LOGON_FAILURE);
        }
    });
}

/// A guest has no key: a signature of it cannot be right, and nothing of it is sealed.
#[test]
fn nothing_of_a_guest_is_signed_or_sealed() {
    with_guests(settings(), async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        drop(peer.mount(&mount.logon, "scans").await);
        let mut guest = Guest::of(world, "guest").await;
        let mut draft = tree_connect_draft("\\\\server\\scans").session(guest.session);
        guest.peer.stamp(&mut draft);
        let id = draft.header.message_id;
        let signed = pack(&[draft], Via::Signed(&mount.logon));
        guest.peer.send_frame(&signed).await;
        guest.peer.final_reply(id).await.expect(Status::NOT_SUPPORTED);
        let session = guest.session.to_le_bytes();
        let sealed = [&b"\xFDSMB"[..], &[7; 40], &session, &[0; 80]].concat();
        guest.peer.send_frame(&sealed).await;
        guest.peer.expect_disconnect().await;
    });
}

#[test]
fn nothing_of_a_guest_outlives_its_connection() {
    with_guests(settings(), async |world| {
        let mut guest = Guest::of(world, "guest").await;
        let tree = guest.mount("inbox").await;
        let with = |context| Want {
            contexts: CreateContexts::from_requests(&[context]).as_bytes().to_vec(),
            oplock: create::OplockLevel::BATCH,
            ..Want::file("f")
        };
        let (flags, create_guid) = (DurableHandleFlags::EMPTY, Guid([7; 16]));
        let durable =
            CreateContext::DurableRequestV2(DurableRequestV2 { timeout: 0, flags, create_guid });
        let reply = guest.ask(with(durable).draft(), tree).await;
        let response = create::Response::parse(&reply.ok().message).unwrap();
        assert_eq!(response.contexts.responses().count(), 0);
        let file_id = response.file_id;
        let mut input = 1000_u32.to_le_bytes().to_vec();
        input.extend_from_slice(&[0; 4]);
        let code = CtlCode::LMR_REQUEST_RESILIENCY;
        let draft = Draft::new(Command::IOCTL)
            .with(|w| ioctl::Request::fsctl(code, file_id, &input, 0).encode(w));
        guest.ask(draft, tree).await.expect(Status::ACCESS_DENIED);
        let again =
            CreateContext::DurableReconnectV2(DurableReconnectV2 { file_id, create_guid, flags });
        guest.ask(with(again).draft(), tree).await.expect(Status::OBJECT_NAME_NOT_FOUND);
    });
}

/// Guests have places of their own; those of one address leave some to others, and all of them take none
/// of an account.
#[test]
fn guests_do_not_hold_up_others() {
    with_guests(settings(), async |world| {
        let mut guests = Vec::new();
        let refused = loop {
            let (peer, reply) = attempt(world, HERE, "guest", "").await;
            if reply.status() != Status::SUCCESS {
                reply.expect(Status::REQUEST_NOT_ACCEPTED);
                break peer.guid;
            }
            guests.push(peer);
        };
        assert!(guests.len() < GUEST_SESSIONS, "{}", guests.len());
        let elsewhere = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));
        let (_other, reply) = attempt(world, elsewhere, "guest", "").await;
        reply.ok();
        let (_ann, mount) = world.session("ann", &Offer::default()).await;
        drop(mount);
        // The ends of sessions give their places back.
        drop(guests.split_off(guests.len() - 2));
        while world.server.session_count() > guests.len() + 2 {
            tokio::task::yield_now().await;
        }
        // The refused one has left nothing behind that would keep it to its dialect.
        let mut again = world.connect();
        again.guid = refused;
        again.negotiate(&Offer::only(Dialect::SMB_3_0_2)).await;
        let mut exchange = Exchange::new(&again, Setup::of("guest"));
        exchange.round(&mut again).await.expect(Status::MORE_PROCESSING_REQUIRED);
        exchange.round(&mut again).await.ok();
    });
}

#[test]
fn a_reload_ends_the_access_of_guests() {
    with_guests(settings(), async |world| {
        let mut guest = Guest::of(world, "guest").await;
        let [scans, inbox] = [guest.mount("scans").await, guest.mount("inbox").await];
        let [open, mut closed, data] = shares(world.dir.path());
        closed = closed.guest(None);
        let settings = Settings::clone(&world.server.settings());
        let present = Shares::new([open, closed, data]);
        world.server.reload(settings, &present, world.server.accounts());
        guest.ask(reading("f"), scans).await.ok();
        guest.ask(reading("f"), inbox).await.expect(Status::NETWORK_NAME_DELETED);
        guest.connect("inbox").await.expect(Status::ACCESS_DENIED);
    });
}
