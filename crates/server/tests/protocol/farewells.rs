//! Session-closed notifications: MS-SMB2 2.2.44, 3.3.5.4, 3.3.5.5, 4.11.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::client::*;
use frevo_net::socket::Listener;
use frevo_net::transport::Stream;
use frevo_server::internal::state::watch_idle_sessions;
use frevo_server::settings::{Encryption, Signing};
use frevo_server::{Kick, UserList};
use frevo_wire::command::negotiate::GlobalCapabilities;
use frevo_wire::dtyp::Guid;
use tokio::time::sleep;

const NOTIFICATIONS: GlobalCapabilities = GlobalCapabilities::NOTIFICATIONS;
const A_WHILE: Duration = Duration::from_millis(300);

/// The offer of a client that takes notifications.
fn offer() -> Offer {
    Offer { capabilities: GlobalCapabilities(0xFF), ..Offer::default() }
}

/// Another connection of the client that has `logon`, bound to its session.
async fn bound(world: &World, first: &Peer, logon: &Logon, offer: &Offer) -> Result<Peer, Reply> {
    let mut peer = world.connect();
    peer.guid = first.guid;
    peer.negotiate(offer).await;
    peer.try_log_on(Setup::binding("ann", logon)).await.map(|_| peer)
}

/// The notification that must come next, field by field.
async fn told(peer: &mut Peer, session: u64) -> Reply {
    let reply = peer.reply().await;
    let Header { command, status, credits, credit_charge, next_command, route, .. } = reply.header;
    assert_eq!(command, Command::SERVER_TO_CLIENT_NOTIFICATION);
    assert_eq!((status, credits, credit_charge, next_command), (Status::SUCCESS, 0, 0, 0));
    assert_eq!(route, Route::Sync { process_id: 0, tree_id: 0 });
    assert_eq!(reply.header.session_id, session);
    let flags = reply.header.flags.without(HeaderFlags::SIGNED);
    assert_eq!(flags, HeaderFlags::SERVER_TO_REDIR);
    assert_eq!(reply.message[64..], [12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    reply
}

async fn kick_ann(world: &World) {
    let kicked = world.embedded.kick(&Kick::User("ann".into()), "a test").await;
    assert!(kicked.sessions > 0);
}

/// MS-SMB2 3.3.5.4: 3.1.1 alone has the capability, and only if the client has it too.
#[test]
fn notifications_are_for_clients_of_3_1_1_that_take_them() {
    in_world(async |world| {
        for dialect in negotiate::ALL_DIALECTS {
            for offered in [0xFF, 0x7F] {
                let capabilities = GlobalCapabilities(offered);
                let mut peer = world.connect();
                peer.negotiate(&Offer { capabilities, ..Offer::only(dialect) }).await;
                let expected = dialect == Dialect::SMB_3_1_1 && offered == 0xFF;
                let has = peer.server_capabilities.contains(NOTIFICATIONS);
                assert_eq!(has, expected, "{dialect:?}, {offered:#x}");
            }
        }
    });
}

/// MS-SMB2 4.11.1: the news is signed or sealed like other messages of the session. A signed one has a
/// MessageId that no request has.
#[test]
fn who_is_kicked_is_told_as_the_session_is_protected() {
    for (signing, encryption) in [
        (Signing::Required, Encryption::Offered),
        (Signing::Offered, Encryption::Offered),
        (Signing::Required, Encryption::Required),
    ] {
        in_world_with(Settings { signing, encryption, ..settings() }, async |world| {
            let (mut ann, hers) = world.session("ann", &offer()).await;
            let (mut unaware, _) = world.session("ann", &Offer::default()).await;
            ann.open_file(&hers, &Want::file("f")).await;
            kick_ann(world).await;
            let news = told(&mut ann, hers.logon.id).await;
            let seals = encryption == Encryption::Required;
            let signs = signing == Signing::Required && !seals;
            assert_eq!((news.sealed, news.is_signed()), (seals, signs));
            let id = news.header.message_id;
            assert_eq!(id == u64::MAX, !signs, "{id:#x}");
            assert!(id > 1 << 63);
            unaware.expect_silence(A_WHILE).await;
            ann.expect_silence(A_WHILE).await;
            if !seals {
                let gone = Status::USER_SESSION_DELETED;
                ann.create(&hers, &Want::existing("f")).await.expect(gone);
            }
            ann.log_on("ann").await;
        });
    }
}

/// A client that seals of its own will takes no news in the clear.
#[test]
fn who_seals_is_told_sealed() {
    in_world(async |world| {
        let (mut ann, hers) = world.session("ann", &offer()).await;
        ann.open_file(&hers.clone().sealed(), &Want::file("f")).await;
        kick_ann(world).await;
        let news = told(&mut ann, hers.logon.id).await;
        assert!(news.sealed && !news.is_signed());
    });
}

/// MS-SMB2 4.11.1: the first channel tells it, and the next one if the first has gone.
#[test]
fn one_channel_of_a_session_tells_its_end() {
    in_world(async |world| {
        for is_first_gone in [false, true] {
            let (mut one, mount) = world.session("ann", &offer()).await;
            let mut two = bound(world, &one, &mount.logon, &offer()).await.unwrap();
            if is_first_gone {
                one.stream.abort();
                sleep(A_WHILE).await;
            }
            kick_ann(world).await;
            let (teller, silent) =
                if is_first_gone { (&mut two, None) } else { (&mut one, Some(&mut two)) };
            told(teller, mount.logon.id).await;
            if let Some(silent) = silent {
                silent.expect_silence(A_WHILE).await;
                let draft = mount.put(Want::existing("f").draft());
                silent.ask(draft, Via::Plain).await.expect(Status::USER_SESSION_DELETED);
            }
        }
    });
}

/// MS-SMB2 3.3.5.5: a channel that differs is refused, and the session goes on.
#[test]
fn a_channel_must_take_notifications_if_the_others_do() {
    in_world(async |world| {
        for (first, second) in [(offer(), Offer::default()), (Offer::default(), offer())] {
            let (mut one, mount) = world.session("ann", &first).await;
            let refused = bound(world, &one, &mount.logon, &second).await;
            refused.err().expect("refused").expect(Status::INVALID_PARAMETER);
            one.open_file(&mount, &Want::file("f")).await;
            bound(world, &one, &mount.logon, &first).await.expect("bound");
        }
    });
}

/// The client that ends a session itself is not told.
#[test]
fn who_logs_off_or_takes_over_is_not_told() {
    in_world(async |world| {
        let (mut ann, hers) = world.session("ann", &offer()).await;
        ann.on(&hers, Draft::empty(Command::LOGOFF)).await.ok();
        ann.expect_silence(A_WHILE).await;
        let logon = ann.log_on("ann").await;
        let setup = Setup { previous: logon.id, ..Setup::of("ann") };
        ann.try_log_on(setup).await.expect("taken over");
        ann.expect_silence(A_WHILE).await;
    });
}

#[test]
fn who_is_idle_for_long_is_told_before_the_end() {
    in_frozen_world(settings(), async |world| {
        let watch = tokio::task::spawn_local(watch_idle_sessions(Arc::clone(&world.server)));
        let (mut ann, hers) = world.session("ann", &offer()).await;
        let mut second = bound(world, &ann, &hers.logon, &offer()).await.unwrap();
        let minutes = u64::from(world.server.settings().idle_session_minutes);
        sleep(Duration::from_secs(60 * (minutes + 2))).await;
        told(&mut ann, hers.logon.id).await;
        ann.expect_disconnect().await;
        second.expect_disconnect().await;
        watch.abort();
    });
}

/// Gives the running server these accounts. Returns the number of sessions that this ended.
fn with_accounts(world: &World, users: &[&str]) -> usize {
    let settings = (*world.server.settings()).clone();
    let shares = (**world.server.shares()).clone();
    let add = |list: UserList, user: &&str| list.user(user, &world::password(user));
    let accounts = users.iter().fold(UserList::new(), add);
    world.server.reload(settings, &shares, Arc::new(accounts)).sessions
}

#[test]
fn who_loses_the_account_is_told() {
    in_world(async |world| {
        with_accounts(world, &["ann", "bob"]);
        let (mut ann, hers) = world.session("ann", &offer()).await;
        assert_eq!(with_accounts(world, &["bob"]), 1);
        told(&mut ann, hers.logon.id).await;
    });
}

/// A server that stops answers what is under way, and then says that the sessions have ended.
#[test]
fn a_server_that_stops_tells_its_clients() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let world = World::new(settings());
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let listener = Listener::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let serving = world.listen(listener);
        let mut peers = Vec::new();
        for (number, offer) in [(7, offer()), (8, Offer::default())] {
            let mut peer = Peer::new(Stream::connect(at).await.unwrap(), Guid([number; 16]));
            peer.negotiate(&offer).await;
            let logon = peer.log_on("ann").await;
            let mount = peer.mount(&logon, "data").await;
            peer.open_file(&mount, &Want::file("f")).await;
            peers.push((peer, logon));
        }
        world.embedded.stop_within(Duration::from_secs(5));
        let (unaware, _) = &mut peers[1];
        unaware.expect_disconnect().await;
        let (aware, logon) = &mut peers[0];
        told(aware, logon.id).await;
        aware.expect_disconnect().await;
        serving.await.unwrap().unwrap();
    });
}
