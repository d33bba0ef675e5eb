//! Spotlight: the pipe `mdssvc`, the shares that a user may search by it, and what is found there.

use std::sync::Arc;

use frevo_posix::{PosixOptions, PosixVfs};
use frevo_rpc::mdssvc::{Command, OPEN, Reply, Request, Value, pack, unpack};
use frevo_rpc::{Client, SyntaxId};
use frevo_server::access_rules::Rules;
use frevo_server::ambient::Host;
use frevo_server::index::IndexRules;
use frevo_server::internal::state::Shares;
use frevo_server::share::Share;
use frevo_store::Vfs;
use frevo_wire::Status;
use frevo_wire::ndr::ContextHandle;

use super::pipes::{bind, call};
use crate::client::world::{Users, in_own_world, serving, settings};
use crate::client::*;

const MORE: u64 = 35;
const FAILED: u64 = u64::MAX;

/// A server with two files and the shares of the test, whose indexes run.
fn with_shares(make: impl Fn(Share) -> Vec<Share>, test: impl AsyncFnOnce(&World)) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    std::fs::write(dir.path().join("sub/Plan B.txt"), "words").unwrap();
    std::fs::write(dir.path().join("other"), "").unwrap();
    let vfs: Arc<dyn Vfs> =
        Arc::new(PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap());
    let shares = make(Share::disk("data", vfs));
    let world = World::of(serving(settings(), shares, Arc::new(Users), Arc::new(Host)), dir);
    in_own_world(false, &world, async |world| {
        reload(world, world.server.shares().as_ref());
        test(world).await;
    });
}

fn reload(world: &World, shares: &Shares) {
    world.server.reload((*world.server.settings()).clone(), shares, world.server.accounts());
}

fn searched(share: Share) -> Share {
    share.index(IndexRules::default()).spotlight(true)
}

fn named(share: &Share, name: &str) -> Share {
    Share::disk(name, Arc::clone(share.vfs().unwrap()))
}

/// A client with the pipe.
struct Mac {
    peer: Peer,
    ipc: Mount,
    file: FileId,
    client: Client,
    handle: ContextHandle,
}

impl Mac {
    async fn of(world: &World, user: &str) -> Self {
        Self::by(world, user, |ipc| ipc).await
    }

    /// A client that uses IPC$ in the way of `by`.
    async fn by(world: &World, user: &str, by: impl FnOnce(Mount) -> Mount) -> Self {
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        let logon = peer.log_on(user).await;
        let ipc = by(peer.mount(&logon, "IPC$").await);
        let file = peer.open_file(&ipc, &Want::existing("mdssvc")).await;
        let client = bind(&mut peer, &ipc, file, SyntaxId::MDSSVC).await;
        Self { peer, ipc, file, client, handle: ContextHandle::NULL }
    }

    async fn call(&mut self, request: &Request) -> Reply {
        let (opnum, stub) = (request.opnum(), request.encode());
        let stub = call(&mut self.peer, &self.ipc, self.file, &mut self.client, opnum, &stub).await;
        Reply::parse(opnum, &stub).unwrap()
    }

    /// Opens a share; returns its path, which is empty for one that is not searched.
    async fn open(&mut self, share: &str) -> String {
        let (mount_path, share) = (String::from("/Volumes/x"), share.to_owned());
        let request = Request::Open { echoed: [1, 23, 0], mount_path, share };
        match self.call(&request).await {
            Reply::Open { share_path, handle, .. } => {
                assert_eq!(share_path.is_empty(), handle == ContextHandle::NULL);
                self.handle = handle;
                share_path
            }
            other => panic!("{other:?} for {OPEN}"),
        }
    }

    async fn method(&mut self, name: &str, arguments: Vec<Value>) -> Vec<Value> {
        let head = vec![Value::text(name), Value::Integer(1), Value::Integer(2)];
        let call = [vec![Value::Array(head)], arguments].concat();
        let message = pack(&[Value::Array(call)]).unwrap();
        let (handle, next_fragment, max_fragment) = (self.handle, 0, 65_536);
        let command = Command { handle, next_fragment, message, max_fragment };
        let Reply::Command { message, .. } = self.call(&Request::Command(command)).await else {
            panic!();
        };
        unpack(&message).unwrap()[0].as_array().unwrap().to_vec()
    }

    async fn open_query(&mut self, query: &str) -> u64 {
        let path = Value::Array(vec![Value::text("kMDItemPath")]);
        let attributes = [Value::text("kMDAttributeArray"), path];
        let query = [Value::text("kMDQueryString"), Value::text(query)];
        let params = Value::Dictionary([query, attributes].concat());
        let answer = self.method("openQueryWithParams:forContext:", vec![params]).await;
        answer[0].as_integer().unwrap()
    }

    /// Returns the status and the paths of one answer.
    async fn fetch(&mut self) -> (u64, Vec<String>) {
        let answer = self.method("fetchQueryResultsForContext:", Vec::new()).await;
        let rows = match answer.get(2) {
            Some(Value::FileMeta(nested)) => nested.first().and_then(Value::as_array),
            _ => None,
        };
        let paths = rows.unwrap_or(&[]).iter().filter_map(Value::as_array);
        let paths = paths.filter_map(|row| row[0].as_text().map(String::from));
        (answer[0].as_integer().unwrap(), paths.collect())
    }

    /// Searches until something is found, as the index is made meanwhile.
    async fn search(&mut self, query: &str) -> Vec<String> {
        loop {
            assert_eq!(self.open_query(query).await, 0);
            let mut found = Vec::new();
            loop {
                let (status, paths) = self.fetch().await;
                found.extend(paths);
                if status != MORE {
                    assert_eq!(status, 0);
                    break;
                }
            }
            if !found.is_empty() {
                return found;
            }
            tokio::task::yield_now().await;
        }
    }
}

#[test]
fn files_are_found_by_spotlight() {
    let shares = |share: Share| vec![searched(share)];
    with_shares(shares, async |world| {
        let mut mac = Mac::of(world, "ann").await;
        assert_eq!(mac.open("DATA").await, "/data");
        let found = mac.search("kMDItemFSName == \"plan*\"c").await;
        assert_eq!(found, ["/data/sub/Plan B.txt"]);
        let found = mac.search("* == \"b*\"cdw && kMDItemFSSize == 5").await;
        assert_eq!(found, ["/data/sub/Plan B.txt"]);
        assert_eq!(mac.open_query("kMDItemFSName == ").await, FAILED);
    });
}

/// Row X16: nobody learns of a share by Spotlight that the user may not connect to, or that is not searched.
#[test]
fn x16_shares_of_others_are_not_searched() {
    let shares = |share: Share| {
        let bobs = named(&share, "bobs").rules(Rules::for_users(&["bob"]));
        let plain = named(&share, "plain").index(IndexRules::default());
        let sealed = named(&share, "sealed").encrypt(true);
        let unknown = named(&share, "unknown").spotlight(true);
        vec![searched(share), searched(bobs), plain, searched(sealed), unknown]
    };
    with_shares(shares, async |world| {
        let mut ann = Mac::of(world, "ann").await;
        for share in ["bobs", "plain", "sealed", "unknown", "absent", "IPC$", ""] {
            assert_eq!(ann.open(share).await, "", "{share}");
        }
        let mut bob = Mac::of(world, "bob").await;
        assert_eq!(bob.open("bobs").await, "/bobs");
        // The names of a share that demands encryption are told in answers that are encrypted.
        let mut safe = Mac::by(world, "ann", Mount::sealed).await;
        assert_eq!(safe.open("sealed").await, "/sealed");
    });
}

/// Row X16: rights count at each search.
#[test]
fn x16_rights_that_are_lost_end_a_search() {
    let shares = |share: Share| vec![searched(share)];
    with_shares(shares, async |world| {
        let mut ann = Mac::of(world, "ann").await;
        ann.open("data").await;
        ann.search("kMDItemFSName == \"plan*\"c").await;
        assert_eq!(ann.open_query("kMDItemFSName == \"plan*\"c").await, 0);
        let share = Share::clone(world.server.shares().find("data").unwrap());
        let shares = [share.rules(Rules::for_users(&["bob"]))];
        let present = world.server.shares();
        reload(world, &Shares::following(shares.to_vec(), &present));
        assert_eq!(ann.fetch().await, (FAILED, Vec::new()));
        assert_eq!(ann.open("data").await, "");
    });
}

/// macOS asks for the pipe to learn if there is Spotlight at all.
#[test]
fn a_server_that_is_not_searched_has_no_pipe() {
    let shares = |share: Share| vec![share.index(IndexRules::default())];
    with_shares(shares, async |world| {
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        let logon = peer.log_on("ann").await;
        let ipc = peer.mount(&logon, "IPC$").await;
        let reply = peer.create(&ipc, &Want::existing("mdssvc")).await;
        assert_eq!(reply.status(), Status::OBJECT_NAME_NOT_FOUND);
    });
}
