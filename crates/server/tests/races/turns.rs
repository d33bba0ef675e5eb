//! R9: one account with many connections, and what another account's request waits for on its core.
//!
//! Slices are counted, not milliseconds: a poll of half a millisecond and more is one.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use frevo_net::cores::{CoreHandle, Cores, CoresConfig};
use frevo_net::memory;
use frevo_net::transport::Stream;
use frevo_server::Server;
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use frevo_store::vfs::{Existence, KindWanted, OpenHow};
use frevo_store::{Name, Vfs};
use frevo_wire::command::query_directory::QueryDirectoryFlags;
use frevo_wire::dtyp::{FileTime, Guid};
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::FileInfoClass;

use crate::client::files::{close_draft, file_id, read_draft};
use crate::client::queries::list_draft;
use crate::client::world::over;
use crate::client::*;

/// Connections of the account that lists.
const CONNECTIONS: u8 = 64;
/// Listings that each of them asks for.
const LISTINGS: usize = 8;
/// Names of the folder that it lists.
const NAMES: usize = 20_000;
/// Slices that may pass while one request of another account is answered: one that is under way, one
/// while the request comes, one while the answer goes, and what the machine does meanwhile.
const SLICES_MAX: u64 = 16;

fn full_folder() -> Arc<dyn Vfs> {
    let vfs = MemoryVfs::new(MemoryOptions::default(), Arc::new(|| FileTime(1 << 57)));
    let make = OpenHow { existence: Existence::MustNotExist, ..OpenHow::LOOK };
    let folder = OpenHow { kind: KindWanted::Directory, ..make };
    vfs.open(&Name::from_stored("many".into()), &folder).unwrap();
    for number in 0..NAMES {
        vfs.open(&Name::from_stored(format!("many\\file-{number}")), &make).unwrap();
    }
    Arc::new(vfs)
}

/// Connects a client to a core.
fn connect(server: &Server, core: &CoreHandle, guid: Guid) -> Peer {
    let at = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let (ours, theirs) = memory::pair(1 << 20, [at(50_000), at(445)]);
    let server = server.clone();
    let is_served = core.spawn(move || async move {
        server.serve_connection(theirs).expect("admitted").await.unwrap();
    });
    assert!(is_served);
    Peer::new(Stream::Memory(ours), guid)
}

async fn log_on(peer: &mut Peer, user: &str) -> Mount {
    peer.negotiate(&Offer::default()).await;
    let logon = peer.log_on(user).await;
    peer.mount(&logon, "data").await
}

/// Sends listings that find nothing. Nobody waits for their answers.
async fn list(peer: &mut Peer, mount: &Mount, folder: FileId) {
    let (class, flags) = (FileInfoClass::DIRECTORY, QueryDirectoryFlags::RESTART_SCANS);
    for _ in 0..LISTINGS {
        let draft = list_draft(folder, class, flags, "*zzz*");
        peer.send(vec![mount.put(draft)], mount.via()).await;
    }
}

/// The slices that the core has worked.
fn slices(core: &CoreHandle) -> u64 {
    core.polls().polls().from(Duration::from_micros(512))
}

#[test]
fn r9_one_account_lists_on_many_connections_and_others_wait_for_few_slices() {
    over(&full_folder(), async |world| {
        let begin = frevo_server::begin_thread;
        let config = CoresConfig { count: 1, begin, ..CoresConfig::default() };
        let cores = Cores::start(&config).unwrap();
        let core = &cores.handles()[0];
        let mut attackers = Vec::new();
        for number in 0..CONNECTIONS {
            let mut peer = connect(&world.embedded, core, Guid([number + 1; 16]));
            let mount = log_on(&mut peer, "ann").await;
            let folder = peer.open_file(&mount, &Want::directory("many")).await;
            list(&mut peer, &mount, folder).await;
            attackers.push(peer);
        }
        let mut bob = connect(&world.embedded, core, Guid([0xBB; 16]));
        let mount = log_on(&mut bob, "bob").await;
        let file = bob.open_file(&mount, &Want::file("probe")).await;
        bob.write(&mount, file, 0, &[7; 4096]).await;
        let mut waits = Vec::new();
        for _ in 0..20 {
            let before = slices(core);
            let opened = bob.create(&mount, &Want::existing("probe")).await;
            let file = file_id(opened.ok());
            bob.on(&mount, read_draft(file, 0, 4096)).await.ok();
            bob.on(&mount, close_draft(file)).await.ok();
            // Three requests wait one after the other.
            waits.push((slices(core) - before) / 3);
        }
        waits.sort_unstable();
        // A busy machine may stop this thread meanwhile, but not at each request. Without turns each
        // one waits for all connections.
        let usual = waits[waits.len() / 4];
        assert!(usual <= SLICES_MAX, "a request waits for {usual} slices: {waits:?}");
        assert!(waits.iter().any(|waited| *waited > 0), "nobody lists");
        // The listings end with their clients. They had many slices left.
        let before = slices(core);
        drop(attackers);
        while world.server.sessions().len() > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let needed = slices(core) - before;
        assert!(needed <= 3 * u64::from(CONNECTIONS), "{needed} slices for clients that are gone");
        drop(bob);
        tokio::task::spawn_blocking(move || cores.stop(Duration::from_secs(5))).await.unwrap();
    });
}
