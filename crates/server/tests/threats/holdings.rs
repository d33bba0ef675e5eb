//! R4: what an account makes the server keep from one request to the next. Each kind has
//! a cap and a charge; beyond it the request is refused, and others are served. What the
//! world checks at its end is that all charges have been given back.

use frevo_rpc::{Client, SyntaxId};
use frevo_server::internal::limits::{IDLE_LOOK, OFFLOAD_QUIET, OFFLOAD_TTL_MAX, SCAN_BYTES};
use frevo_server::internal::state::{Kind, watch_idle_sessions};
use frevo_wire::codec::Writer;
use frevo_wire::command::change_notify::{self, ChangeNotifyFlags, CompletionFilter};
use frevo_wire::command::create::OplockLevel;
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::command::query_directory::QueryDirectoryFlags;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::fsctl::{OffloadReadReply, OffloadReadRequest};

use crate::client::files::{close_draft, read_draft, write_draft};
use crate::client::*;

const REFUSED: Status = Status::INSUFFICIENT_RESOURCES;

fn notify(directory: FileId) -> Draft {
    let request = change_notify::Request {
        flags: ChangeNotifyFlags::EMPTY,
        output_buffer_length: 4096,
        file_id: directory,
        completion_filter: CompletionFilter::FILE_NAME,
    };
    Draft::new(Command::CHANGE_NOTIFY).with(|w| request.encode(w))
}

/// Asks for one name of many, so that the listing goes on.
fn list(directory: FileId) -> Draft {
    let flags = QueryDirectoryFlags::RETURN_SINGLE_ENTRY;
    list_draft(directory, FileInfoClass::NAMES, flags, "entry*")
}

fn offload(file: FileId, ttl_ms: u32) -> Draft {
    let mut input = Vec::new();
    let size = OffloadReadRequest::SIZE as u32;
    OffloadReadRequest {
        size,
        flags: 0,
        token_time_to_live_ms: ttl_ms,
        file_offset: 0,
        copy_length: 512,
    }
    .encode(&mut Writer::new(&mut input));
    let room = OffloadReadReply::SIZE as u32;
    Draft::new(Command::IOCTL)
        .with(|w| ioctl::Request::fsctl(CtlCode::OFFLOAD_READ, file, &input, room).encode(w))
}

/// One client with the shares that it needs.
struct Holder {
    peer: Peer,
    data: Mount,
    pipes: Mount,
}

impl Holder {
    async fn new(world: &World, user: &str) -> Self {
        let (mut peer, data) = world.session(user, &Offer::default()).await;
        let pipes = peer.mount(&data.logon, "IPC$").await;
        Self { peer, data, pipes }
    }

    /// Makes the server keep one thing of a kind, until its Open closes.
    async fn take(&mut self, kind: Kind, number: usize) -> Result<(Mount, FileId), Status> {
        let Self { peer, data, pipes } = self;
        let want = match kind {
            Kind::Pipe => Want::existing("srvsvc"),
            Kind::Lease => {
                Want { oplock: OplockLevel::BATCH, ..Want::file(&format!("leased{number}")) }
            }
            Kind::Offload => Want::file("source"),
            _ => Want::existing("folder"),
        };
        let mount = if kind == Kind::Pipe { pipes } else { data }.clone();
        let reply = peer.create(&mount, &want).await;
        if reply.status() != Status::SUCCESS {
            return Err(reply.status());
        }
        let file = files::file_id(&reply);
        let status = match kind {
            Kind::Watch => {
                peer.send(vec![mount.put(notify(file))], mount.via()).await;
                peer.reply().await.status()
            }
            Kind::Listing => peer.on(&mount, list(file)).await.status(),
            Kind::Offload => peer.on(&mount, offload(file, 0)).await.status(),
            _ => Status::SUCCESS,
        };
        if matches!(status, Status::SUCCESS | Status::PENDING) {
            return Ok((mount, file));
        }
        peer.close(&mount, file).await;
        Err(status)
    }

    /// Closes an Open, and takes the answer of what waits for it.
    async fn give_back(&mut self, kind: Kind, (mount, file): &(Mount, FileId)) {
        let close = self.peer.send(vec![mount.put(close_draft(*file))], mount.via()).await[0];
        let mut left = if kind == Kind::Watch { 2 } else { 1 };
        while left > 0 {
            let reply = self.peer.reply().await;
            let is_close = reply.header.message_id == close;
            reply.expect(if is_close { Status::SUCCESS } else { Status::NOTIFY_CLEANUP });
            left -= 1;
        }
    }
}

fn furnish(world: &World) {
    std::fs::create_dir(world.path("folder")).unwrap();
    for number in 0..9 {
        world.file(&format!("folder/entry{number}"), "");
    }
    world.file("source", vec![1; 4096]);
}

/// At n - 1, n and n + 1, and once more when one was given back.
#[test]
fn r4_each_kind_has_a_cap_and_is_given_back() {
    for kind in [Kind::Watch, Kind::Lease, Kind::Listing, Kind::Pipe, Kind::Offload] {
        in_world(async |world| {
            furnish(world);
            let ledger = &world.server.ledger;
            ledger.set_most(kind, Some(3), None);
            let mut ann = Holder::new(world, "ann").await;
            let mut held = Vec::new();
            for number in 0..3 {
                held.push(ann.take(kind, number).await.unwrap());
            }
            let account = ledger.account("ann");
            assert_eq!(account.count(kind), 3, "{kind:?}");
            let before = account.bytes();
            assert_eq!(ann.take(kind, 3).await.err(), Some(REFUSED), "{kind:?}");
            let mut more = Holder::new(world, "ANN").await;
            assert_eq!(more.take(kind, 3).await.err(), Some(REFUSED), "{kind:?}");
            drop(more);
            while account.count(Kind::Session) > 1 {
                tokio::task::yield_now().await;
            }
            assert_eq!(account.bytes(), before, "{kind:?}: a refusal leaves nothing behind");
            let mut bob = Holder::new(world, "bob").await;
            let bobs = bob.take(kind, 9).await.unwrap();
            bob.give_back(kind, &bobs).await;
            if kind == Kind::Offload {
                // An offload token stays when its file closes, but ends with its session.
                drop(ann);
            } else {
                ann.give_back(kind, &held.remove(0)).await;
                held.push(ann.take(kind, 3).await.unwrap());
                for one in &held {
                    ann.give_back(kind, one).await;
                }
                assert_eq!(account.count(kind), 0, "{kind:?}: while the session goes on");
                for number in 0..3 {
                    ann.take(kind, number).await.unwrap();
                }
                drop(ann);
            }
            while account.bytes() > 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(account.count(kind), 0, "{kind:?}: the client is gone");
        });
    }
}

/// The reader of a directory is large. It goes with the last name.
#[test]
fn r4_listings_that_nobody_ends_are_refused_beyond_the_budget() {
    const LIMIT: usize = 4 << 20;
    in_world(async |world| {
        furnish(world);
        let ledger = &world.server.ledger;
        ledger.set_limit(LIMIT);
        let mut ann = Holder::new(world, "ann").await;
        let late = ann.peer.open_file(&ann.data, &Want::existing("folder")).await;
        let (mut held, mut refused) = (Vec::new(), None);
        for number in 0..64 {
            match ann.take(Kind::Listing, number).await {
                Ok(one) => held.push(one),
                Err(status) => {
                    refused = Some(status);
                    break;
                }
            }
        }
        assert_eq!(refused, Some(REFUSED), "{} listings", held.len());
        let account = ledger.account("ann");
        assert!((32..64).contains(&held.len()), "{} listings", held.len());
        assert!((LIMIT / 4..=LIMIT / 2).contains(&account.bytes()), "{}", account.bytes());
        let mut bob = Holder::new(world, "bob").await;
        bob.take(Kind::Listing, 0).await.unwrap();
        // Memory is used up, so this listing is refused. It succeeds when memory is free again.
        let filler = LIMIT / 2 - account.bytes() - (8 << 10);
        let filler = account.charge(Kind::Waiting, filler).unwrap();
        ann.peer.on(&ann.data, list(late)).await.expect(REFUSED);
        let (mount, first) = held.remove(0);
        let all = QueryDirectoryFlags::EMPTY;
        let before = account.bytes();
        ann.peer.on(&mount, list_draft(first, FileInfoClass::NAMES, all, "")).await.ok();
        ann.peer
            .on(&mount, list_draft(first, FileInfoClass::NAMES, all, ""))
            .await
            .expect(Status::NO_MORE_FILES);
        assert!(account.bytes() + 30_000 < before + SCAN_BYTES, "{before}: {}", account.bytes());
        ann.peer.on(&ann.data, list(late)).await.ok();
        drop(filler);
        ledger.set_limit(usize::MAX);
    });
}

/// Requests of which the last fragment never comes.
#[test]
fn r4_unfinished_requests_of_pipes_are_refused_beyond_the_budget() {
    const LIMIT: usize = 2 << 20;
    in_world(async |world| {
        let ledger = &world.server.ledger;
        ledger.set_limit(LIMIT);
        let mut ann = Holder::new(world, "ann").await;
        let account = ledger.account("ann");
        let (mut full, mut refused) = (0, None);
        'pipes: for number in 0..48 {
            let Ok((mount, pipe)) = ann.take(Kind::Pipe, number).await else { break };
            let mut client = Client::new(SyntaxId::SRVSVC);
            ann.peer.write(&mount, pipe, 0, &client.bind()).await;
            ann.peer.on(&mount, read_draft(pipe, 0, 4096)).await.ok();
            let fragments = client.call(15, &vec![0; 60_000]);
            for fragment in &fragments[..fragments.len() - 1] {
                let reply = ann.peer.on(&mount, write_draft(pipe, 0, fragment)).await;
                if reply.status() != Status::SUCCESS {
                    refused = Some((reply.status(), mount, pipe));
                    break 'pipes;
                }
            }
            full += 1;
        }
        let (status, mount, pipe) = refused.expect("one is refused");
        assert_eq!(status, REFUSED);
        assert!((6..18).contains(&full), "{full} pipes");
        assert!(account.bytes() <= LIMIT / 2, "{}", account.bytes());
        let mut bob = Holder::new(world, "bob").await;
        let (theirs, bobs) = bob.take(Kind::Pipe, 0).await.unwrap();
        bob.peer.write(&theirs, bobs, 0, &Client::new(SyntaxId::SRVSVC).bind()).await;
        let before = account.bytes();
        ann.peer.close(&mount, pipe).await;
        assert!(account.bytes() < before);
        ledger.set_limit(usize::MAX);
    });
}

/// Changes that a client does not fetch are charged to it, not to whoever makes them.
/// When it may not have more it is told to list the directory.
#[test]
fn r4_the_log_of_a_watch_is_paid_by_its_client() {
    const COUNT: usize = 500;
    in_world(async |world| {
        furnish(world);
        let ledger = &world.server.ledger;
        let mut ann = Holder::new(world, "ann").await;
        let (mount, folder) = ann.take(Kind::Watch, 0).await.unwrap();
        let mut bob = Holder::new(world, "bob").await;
        let change = async |bob: &mut Holder, number: usize| {
            let name = format!("folder\\{number:0200}");
            let file = bob.peer.open_file(&bob.data, &Want::file(&name)).await;
            bob.peer.close(&bob.data, file).await;
        };
        change(&mut bob, 0).await;
        ann.peer.reply().await.ok();
        let (anns, bobs) = (ledger.account("ann"), ledger.account("bob"));
        let (before, theirs) = (anns.bytes(), bobs.bytes());
        for number in 1..COUNT {
            change(&mut bob, number).await;
        }
        assert!(anns.bytes() >= before + COUNT * 200, "{before}: {}", anns.bytes());
        assert!(bobs.bytes() <= theirs + (32 << 10), "{theirs}: {}", bobs.bytes());
        // Ann already uses half of the memory limit, so the server keeps no more changes for ann's
        // watch.
        let most = anns.bytes();
        ledger.set_limit(2 * most);
        change(&mut bob, COUNT).await;
        assert!(anns.bytes() <= most, "{most}: {}", anns.bytes());
        let reply = ann.peer.on(&mount, notify(folder)).await;
        reply.expect(Status::NOTIFY_ENUM_DIR);
        ledger.set_limit(usize::MAX);
        // Ann is below the limit again, so the server keeps changes for the watch.
        change(&mut bob, COUNT + 1).await;
        ann.peer.on(&mount, notify(folder)).await.ok();
    });
}

/// A token that nobody uses lets go of its file when its time is over.
#[test]
fn r4_tokens_of_copies_end_with_their_time() {
    in_frozen_world(settings(), async |world| {
        let watch =
            tokio::task::spawn_local(watch_idle_sessions(std::sync::Arc::clone(&world.server)));
        furnish(world);
        // A file that was just written gets no offload token. File times follow the real clock, so
        // the test has to sleep.
        std::thread::sleep(OFFLOAD_QUIET * 3);
        let mut ann = Holder::new(world, "ann").await;
        let file = ann.peer.open_file(&ann.data, &Want::file("source")).await;
        ann.peer.on(&ann.data, offload(file, u32::MAX)).await.ok();
        ann.peer.close(&ann.data, file).await;
        let account = world.server.ledger.account("ann");
        let held = |kind| account.count(kind);
        assert_eq!((held(Kind::Offload), held(Kind::Open)), (1, 1));
        tokio::time::sleep(OFFLOAD_TTL_MAX + IDLE_LOOK * 2).await;
        assert_eq!((held(Kind::Offload), held(Kind::Open)), (0, 0));
        watch.abort();
    });
}
