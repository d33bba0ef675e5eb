//! Scripted nodes of a cluster that name an older dialect, an owner of a share, or a share that moves alone:
//! MS-SMB2 3.2.5.5. Liars among them gain nothing and cost few connections.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::dialed;
use crate::evil;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use dialed::{in_time, on_paused_clock};
use evil::{Act, Asked, CONTENT, Evil, Manners, Overheard};
use frevo_client::internal::{Dial, Dialing, Resolving};
use frevo_client::limits::{CLUSTER_DIALECTS_NAMED, FIND_SHARE_FOR, REDIRECTIONS};
use frevo_client::{
    Cause, Client, Credentials, Dialect, Error, Options, Referrals, ServerName, Session, Share,
    SigningAlgorithm, Status,
};
use frevo_net::memory;
use frevo_net::transport::Stream;
use frevo_proto::Dialect as Wire;
use frevo_wire::codec::Writer;
use frevo_wire::command::negotiate;
use frevo_wire::command::tree_connect::{self, ShareCapabilities, TreeConnectFlags};
use frevo_wire::dtyp::Guid;
use frevo_wire::error_response::{ErrorId, ErrorResponse, ShareRedirect, Wrapping};
use frevo_wire::header::HEADER_LEN;
use frevo_wire::{Command, Status as WireStatus, Utf16};
use parking_lot::Mutex;
use tokio::time::Instant;

/// A TREE_CONNECT, as a script sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tree {
    /// The node, from 1: its address is 192.0.2.N.
    node: u8,
    /// The connection, from 0.
    connection: usize,
    dialect: Wire,
    share: String,
    flags: TreeConnectFlags,
}

/// The answer to a TREE_CONNECT.
enum Reply {
    /// The share has these capabilities.
    Connected(ShareCapabilities),
    /// A status, and the body behind the header.
    Error(WireStatus, Vec<u8>),
    /// The end of the connection.
    Ended,
}

type Script = dyn Fn(&Tree) -> Reply + Send + Sync;

/// A connection, and the requests that it has heard.
#[derive(Debug, Clone)]
struct Heard {
    node: u8,
    offered: Vec<Wire>,
    guid: Guid,
    commands: Vec<Command>,
}

/// A cluster of scripted nodes.
struct Cluster {
    /// The nodes that the cluster's name leads to.
    named: Vec<u8>,
    manners: fn() -> Manners,
    /// The newest dialect that further connections speak.
    newest: AtomicU16,
    script: Arc<Script>,
    heard: Arc<Mutex<Vec<Heard>>>,
    trees: Arc<Mutex<Vec<Tree>>>,
    /// Connections with lower numbers end at their next request.
    cut: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cluster")
    }
}

fn address(node: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, node).into()
}

impl Dial for Cluster {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        // The name is dialled where it has one address.
        let named = || address(self.named[0]).to_string().parse();
        let address: Ipv4Addr = server.host.parse().or_else(|_| named()).unwrap();
        let [.., node] = address.octets();
        let connection = {
            let mut heard = self.heard.lock();
            let (offered, guid, commands) = (Vec::new(), Guid::default(), Vec::new());
            heard.push(Heard { node, offered, guid, commands });
            heard.len() - 1
        };
        let (heard, trees) = (Arc::clone(&self.heard), Arc::clone(&self.trees));
        let (script, cut) = (Arc::clone(&self.script), Arc::clone(&self.cut));
        let spoken = self.newest.load(Ordering::SeqCst);
        let act = move |asked: &Asked<'_>| {
            heard.lock()[connection].commands.push(asked.header.command);
            if connection < cut.load(Ordering::SeqCst) {
                return Act::Close;
            }
            match asked.header.command {
                Command::NEGOTIATE => {
                    let request = negotiate::Request::parse(asked.message).unwrap();
                    let mut heard = heard.lock();
                    heard[connection].offered.clone_from(&request.dialects);
                    heard[connection].guid = request.client_guid;
                    Act::Honest
                }
                Command::TREE_CONNECT if !asked.message.ends_with(b"I\0P\0C\0$\0") => {
                    let request = tree_connect::Request::parse(asked.message).unwrap();
                    let unc = request.path.to_string().unwrap();
                    let share = unc.rsplit('\\').next().unwrap().to_owned();
                    let newest =
                        |heard: &Heard| heard.offered.iter().map(|dialect| dialect.0).max();
                    let dialect = Wire(newest(&heard.lock()[connection]).unwrap().min(spoken));
                    let tree = Tree { node, connection, dialect, share, flags: request.flags };
                    trees.lock().push(tree.clone());
                    answered(script(&tree))
                }
                _ => Act::Honest,
            }
        };
        let at = |ip: IpAddr, port| SocketAddr::new(ip, port);
        let ends = [at(Ipv4Addr::new(192, 0, 2, 200).into(), 50_000), at(address.into(), 445)];
        let (ours, theirs) = memory::pair(1 << 20, ends);
        let evil = Evil {
            manners: Arc::new(Manners {
                chooses: true,
                dialect: Wire(spoken),
                guid: node,
                ..(self.manners)()
            }),
            script: Arc::new(act),
            overheard: Overheard::default(),
            connection,
        };
        tokio::spawn(evil.serve(Stream::Memory(theirs)));
        Box::pin(std::future::ready(Ok(Stream::Memory(ours))))
    }

    fn addresses<'a>(&'a self, _: &'a ServerName) -> Resolving<'a> {
        let all = self.named.iter().map(|node| ServerName::new(address(*node).to_string()));
        Box::pin(std::future::ready(Ok(all.collect())))
    }
}

/// The act by which a node gives its answer to a TREE_CONNECT.
fn answered(reply: Reply) -> Act {
    match reply {
        Reply::Connected(capabilities) => Act::Changed(Box::new(move |message| {
            // MS-SMB2 2.2.10: Capabilities.
            message[HEADER_LEN + 8..HEADER_LEN + 12].copy_from_slice(&capabilities.0.to_le_bytes());
        })),
        Reply::Error(status, body) => Act::Changed(Box::new(move |message| {
            message[8..12].copy_from_slice(&status.0.to_le_bytes());
            message.truncate(HEADER_LEN);
            message.extend_from_slice(&body);
        })),
        Reply::Ended => Act::Close,
    }
}

/// A form of the refusal of a dialect.
type Form = fn(Wire) -> Reply;

/// The refusal of a dialect as 3.1.1 has it, byte by byte: MS-SMB2 3.3.5.7.
fn in_context(dialect: Wire) -> Reply {
    let [low, high] = dialect.0.to_le_bytes();
    let body = vec![9, 0, 1, 0, 10, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, low, high];
    Reply::Error(WireStatus::SMB_BAD_CLUSTER_DIALECT, body)
}

/// The same as older dialects have it.
fn bare(dialect: Wire) -> Reply {
    let [low, high] = dialect.0.to_le_bytes();
    Reply::Error(WireStatus::SMB_BAD_CLUSTER_DIALECT, vec![9, 0, 0, 0, 2, 0, 0, 0, low, high])
}

/// The refusal of a share by a node that names its owner.
fn redirect(owners: &[IpAddr]) -> Reply {
    let mut data = Vec::new();
    let redirect =
        ShareRedirect { addresses: owners.to_vec(), resource_name: Utf16::from_str("data") };
    redirect.encode(&mut Writer::new(&mut data));
    let mut message = vec![0; HEADER_LEN];
    let error = ErrorResponse::new(Wrapping::Context, ErrorId::SHARE_REDIRECT, &data);
    error.encode(&mut Writer::from(&mut message, 0));
    Reply::Error(WireStatus::BAD_NETWORK_NAME, message.split_off(HEADER_LEN))
}

fn refused(status: WireStatus) -> Reply {
    Reply::Error(status, vec![9, 0, 0, 0, 0, 0, 0, 0, 0])
}

fn cluster(named: &[u8], script: impl Fn(&Tree) -> Reply + Send + Sync + 'static) -> Cluster {
    Cluster {
        named: named.to_vec(),
        manners: Manners::default,
        newest: AtomicU16::new(Wire::SMB_3_1_1.0),
        script: Arc::new(script),
        heard: Arc::default(),
        trees: Arc::default(),
        cut: Arc::default(),
    }
}

impl Cluster {
    async fn log_on(self: &Arc<Self>, options: Options) -> Result<Session, Error> {
        let options = options.recover_for(Duration::from_secs(20)).channels(1);
        let client = Client::with_dialer(options, Arc::clone(self) as Arc<dyn Dial>);
        let user = Credentials::new("ann", "secret");
        in_time("log on", client.connect("cluster", user)).await
    }

    async fn share(self: &Arc<Self>, options: Options) -> Result<Share, Error> {
        let session = self.log_on(options).await?;
        in_time("connect", session.share("data")).await
    }

    fn heard(&self) -> Vec<Heard> {
        self.heard.lock().clone()
    }

    fn trees(&self) -> Vec<Tree> {
        self.trees.lock().clone()
    }

    /// Ends all connections that there are.
    fn cut_all(&self) {
        self.cut.store(self.heard.lock().len(), Ordering::SeqCst);
    }
}

const NONE: ShareCapabilities = ShareCapabilities::EMPTY;
const CLUSTER: ShareCapabilities = ShareCapabilities::CLUSTER;
const CONTINUOUS: ShareCapabilities = ShareCapabilities::CONTINUOUS_AVAILABILITY;
const ASYMMETRIC: ShareCapabilities = ShareCapabilities::ASYMMETRIC;
/// The capabilities of a share that must be alone on its connection.
const ALONE: ShareCapabilities = CLUSTER.union(CONTINUOUS).union(ASYMMETRIC);

async fn is_read(share: &Share) {
    assert_eq!(in_time("read", share.read("known")).await.unwrap(), CONTENT);
}

/// As a cluster at 3.0.2 of which one node speaks 3.1.1: its share is used with the older dialect, the node's
/// own share with the newer one.
#[test]
fn a_share_is_connected_with_the_dialect_that_the_cluster_names() {
    on_paused_clock(async {
        let cluster = Arc::new(cluster(&[1], |tree| match (&*tree.share, tree.dialect) {
            ("data", Wire::SMB_3_1_1) => in_context(Wire::SMB_3_0_2),
            ("data", _) => Reply::Connected(CLUSTER),
            _ => Reply::Connected(NONE),
        }));
        let session = cluster.log_on(Options::new()).await.unwrap();
        let data = in_time("connect", session.share("data")).await.unwrap();
        is_read(&data).await;
        let own = in_time("connect", session.share("own")).await.unwrap();
        is_read(&own).await;
        let heard = cluster.heard();
        assert_eq!(heard.len(), 2, "{heard:?}");
        let offered = [Wire::SMB_3_0, Wire::SMB_3_0_2, Wire::SMB_3_1_1];
        assert_eq!((&*heard[0].offered, &*heard[1].offered), (&offered[..], &offered[1..2]));
        assert_ne!(heard[0].guid, heard[1].guid, "a client has one dialect");
        // MS-SMB2 2.2.9: older dialects have no flags.
        let flags: Vec<_> = cluster.trees().iter().map(|tree| tree.flags).collect();
        assert_eq!(flags, [TreeConnectFlags::EMPTY; 3]);
        let dialect = |share: &Share| share.session().info().unwrap().dialect;
        assert_eq!((dialect(&data), dialect(&own)), (Dialect::Smb302, Dialect::Smb311));
        let info = data.session().info().unwrap();
        assert_eq!((info.signing, info.signed), (SigningAlgorithm::AesCmac, true));
        // A share of the node that is connected where the cluster's is does not go down with it.
        let third = in_time("connect", data.session().share("own")).await.unwrap();
        assert_eq!(dialect(&third), Dialect::Smb311);
        session.log_off().await;
    });
}

/// A session with open files comes back with its dialect and its ClientGuid, to which they belong. Without any
/// it tries newer dialects.
#[test]
fn a_lost_session_tries_newer_dialects_if_no_file_is_open() {
    tries_newer_dialects(&is_read);
    // An open that is the first request after the loss has no file yet.
    tries_newer_dialects(&async |share: &Share| {
        let file = in_time("open", share.open("known")).await.unwrap();
        in_time("close", file.close()).await.unwrap();
    });
}

/// `first_request` is the first one after each loss.
fn tries_newer_dialects(first_request: &impl AsyncFn(&Share)) {
    on_paused_clock(async {
        let is_raised = Arc::new(AtomicUsize::new(0));
        let raised = Arc::clone(&is_raised);
        let cluster = Arc::new(cluster(&[1], move |tree| {
            match (tree.dialect, raised.load(Ordering::SeqCst)) {
                (Wire::SMB_3_1_1, 0) => in_context(Wire::SMB_3_0_2),
                _ => Reply::Connected(CLUSTER),
            }
        }));
        let share = cluster.share(Options::new()).await.unwrap();
        let file = in_time("open", share.open("known")).await.unwrap();
        let mut offers = Vec::new();
        for (open, raised) in [(Some(file), 0), (None, 0), (None, 1)] {
            is_raised.store(raised, Ordering::SeqCst);
            let before = cluster.heard().len();
            cluster.cut_all();
            first_request(&share).await;
            if let Some(file) = open {
                in_time("close", file.close()).await.unwrap();
            }
            offers.push(cluster.heard()[before..].to_vec());
        }
        let counts = |offers: &[Heard]| offers.iter().map(|heard| heard.offered.len()).collect();
        let all: Vec<Vec<usize>> = offers.iter().map(|offers| counts(offers)).collect();
        assert_eq!(all, [vec![1], vec![3, 1], vec![3]]);
        assert_eq!(offers[0][0].guid, cluster.heard()[1].guid);
        let mut guids: Vec<_> = cluster.heard().iter().map(|heard| heard.guid.0).collect();
        guids.dedup();
        assert_eq!(guids.len(), 5, "each change of the dialect has a new one");
        assert_eq!(share.session().info().unwrap().dialect, Dialect::Smb311);
    });
}

/// In a rolling upgrade a node that speaks 3.1.1 takes a share over from one that speaks 3.0.2 alone, before the
/// cluster's dialect is raised. Open files keep their dialect and their ClientGuid.
#[test]
fn open_files_keep_their_dialect_at_a_node_that_speaks_a_newer_one() {
    on_paused_clock(async {
        let cluster = Arc::new(cluster(&[1], |tree| match tree.dialect {
            Wire::SMB_3_1_1 => in_context(Wire::SMB_3_0_2),
            _ => Reply::Connected(CLUSTER),
        }));
        cluster.newest.store(Wire::SMB_3_0_2.0, Ordering::SeqCst);
        let share = cluster.share(Options::new()).await.unwrap();
        let file = in_time("open", share.open("known")).await.unwrap();
        cluster.newest.store(Wire::SMB_3_1_1.0, Ordering::SeqCst);
        for _ in 0..2 {
            cluster.cut_all();
            is_read(&share).await;
            let heard = cluster.heard();
            let (began, last) = (&heard[1], &heard[heard.len() - 1]);
            assert_eq!((&*last.offered, last.guid), (&[Wire::SMB_3_0_2][..], began.guid));
            assert_ne!(last.guid, heard[0].guid, "others of the client may speak a newer one");
        }
        assert_eq!(cluster.heard().len(), 4, "no connection was refused");
        drop(file);
        cluster.cut_all();
        is_read(&share).await;
        let offers: Vec<_> = cluster.heard()[4..].iter().map(|heard| heard.offered.len()).collect();
        assert_eq!(offers, [3, 1], "newer dialects are tried again");
    });
}

/// A node that has named a dialect ends connections, as one does that gives the share away. The client does not try
/// the newer dialect again before it has been let in.
#[test]
fn a_named_dialect_is_kept_until_the_share_is_connected() {
    on_paused_clock(async {
        let left = Arc::new(AtomicUsize::new(3));
        let cluster = Arc::new(cluster(&[1], move |tree| {
            let is_over = |left: usize| left.checked_sub(1);
            match tree.dialect {
                Wire::SMB_3_1_1 => in_context(Wire::SMB_3_0_2),
                _ if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_over).is_ok() => {
                    Reply::Ended
                }
                _ => Reply::Connected(CLUSTER),
            }
        }));
        let share = cluster.share(Options::new()).await.unwrap();
        is_read(&share).await;
        let dialects: Vec<_> = cluster.trees().iter().map(|tree| tree.dialect).collect();
        let (new, old) = (Wire::SMB_3_1_1, Wire::SMB_3_0_2);
        assert_eq!(dialects, [new, old, old, old, old]);
    });
}

#[test]
fn a_cluster_names_three_older_dialects_at_most() {
    on_paused_clock(async {
        // One after the other, as long as there are older ones.
        let cluster = Arc::new(cluster(&[1], |tree| match tree.dialect {
            Wire::SMB_3_1_1 => in_context(Wire::SMB_3_0_2),
            Wire::SMB_3_0_2 => bare(Wire::SMB_3_0),
            Wire::SMB_3_0 => bare(Wire::SMB_2_1),
            _ => bare(Wire::SMB_2_0_2),
        }));
        let error = cluster.share(Options::new().oldest(Dialect::Smb202)).await.unwrap_err();
        assert!(matches!(error.cause(), Cause::Limit(_)), "{error}");
        let connections = usize::try_from(CLUSTER_DIALECTS_NAMED).unwrap() + 1;
        assert_eq!(cluster.heard().len(), connections);
    });
}

#[test]
fn a_dialect_that_the_user_does_not_allow_is_an_error_at_once() {
    let cases: [(Form, Wire, Options, &str); 6] = [
        (in_context, Wire::SMB_2_1, Options::new(), "no newer dialect than SMB 2.1"),
        (in_context, Wire::SMB_3_0_2, Options::new().oldest(Dialect::Smb311), "SMB 3.0.2"),
        (bare, Wire::SMB_3_1_1, Options::new(), "not older"),
        (in_context, Wire(0x0400), Options::new(), "unknown"),
        (in_context, Wire(0), Options::new(), "unknown"),
        (in_context, Wire::SMB_3_0_2, Options::new().signing(vec![SigningAlgorithm::AesCmac]), ""),
    ];
    for (form, named, options, text) in cases {
        on_paused_clock(async {
            let cluster = Arc::new(cluster(&[1, 2], move |tree| match tree.dialect {
                Wire::SMB_3_1_1 => form(named),
                _ => Reply::Connected(CLUSTER),
            }));
            let connected = cluster.share(options).await;
            if text.is_empty() {
                connected.unwrap();
                return;
            }
            let error = connected.unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
            assert_eq!(cluster.heard().len(), 1, "no further connection is made");
        });
    }
}

/// A guest's session has no keys: anybody on the way could have written the answer.
#[test]
fn a_dialect_that_nobody_has_proved_is_not_used() {
    on_paused_clock(async {
        let mut cluster = cluster(&[1], |_| in_context(Wire::SMB_3_0_2));
        cluster.manners = || Manners { guest_from: 0, ..Manners::default() };
        let cluster = Arc::new(cluster);
        let options = Options::new().allow_guest(true).require_signing(false);
        let error = cluster.share(options).await.unwrap_err();
        assert!(error.to_string().contains("neither signed nor encrypted"), "{error}");
        assert_eq!(cluster.heard().len(), 1);
    });
}

/// The client was let in with 3.1.1. A node that still holds the cluster for older lets it in again.
#[test]
fn later_connects_say_that_the_share_was_used_before() {
    for (capabilities, flags) in [
        (NONE, 0),
        (CONTINUOUS, 0),
        (CLUSTER, 1),
        (CLUSTER.union(CONTINUOUS), 1),
        (CLUSTER.union(ASYMMETRIC), 3),
    ] {
        on_paused_clock(async {
            let cluster = Arc::new(cluster(&[1, 2], move |tree| {
                let was_here = tree.flags.contains(TreeConnectFlags::CLUSTER_RECONNECT);
                match tree.connection > 0 && capabilities.contains(CLUSTER) && !was_here {
                    true => in_context(Wire::SMB_3_0_2),
                    false => Reply::Connected(capabilities),
                }
            }));
            let share = cluster.share(Options::new()).await.unwrap();
            cluster.cut_all();
            is_read(&share).await;
            // Another share of the same name is the same for the server.
            let again = in_time("connect", share.session().share("DATA")).await.unwrap();
            is_read(&again).await;
            let trees = cluster.trees();
            assert_eq!(trees[0].flags, TreeConnectFlags::EMPTY, "the first time");
            for tree in &trees[1..] {
                assert_eq!((tree.flags.0, tree.dialect), (flags, Wire::SMB_3_1_1), "{tree:?}");
            }
            assert_eq!(trees.len(), 3, "{trees:?}");
        });
    }
}

/// MS-SMB2 3.2.5.5: such a share may go to another node than the others of the session.
#[test]
fn a_share_that_moves_alone_is_alone_on_its_connection() {
    for (first, second, connections) in [
        (ALONE, NONE, 2),
        (NONE, ALONE, 2),
        (ALONE, ALONE, 2),
        (CLUSTER.union(CONTINUOUS), CLUSTER.union(CONTINUOUS), 1),
        (CONTINUOUS.union(ASYMMETRIC), NONE, 1),
    ] {
        on_paused_clock(async {
            let cluster = Arc::new(cluster(&[1], move |tree| {
                Reply::Connected(if tree.share == "first" { first } else { second })
            }));
            let session = cluster.log_on(Options::new()).await.unwrap();
            let one = in_time("connect", session.share("first")).await.unwrap();
            let two = in_time("connect", session.share("second")).await.unwrap();
            is_read(&one).await;
            is_read(&two).await;
            let heard = cluster.heard();
            assert_eq!(heard.len(), connections, "{first:?} {second:?}");
            assert_eq!(one.session().is_same(two.session()), connections == 1);
            if connections == 2 {
                assert_ne!(heard[0].guid, heard[1].guid);
                assert!(heard[0].commands.contains(&Command::TREE_DISCONNECT));
                assert_eq!(heard[0].node, heard[1].node);
            }
            // The connection stays the share's own.
            cluster.cut_all();
            is_read(&one).await;
            is_read(&two).await;
            let after = cluster.heard();
            assert_eq!(after.len(), 2 * connections, "{first:?} {second:?}");
            assert_eq!(one.session().is_same(two.session()), connections == 1);
            session.log_off().await;
        });
    }
}

/// A server that keeps an Open wants it to be reconnected by the same ClientGuid (MS-SMB2 3.3.5.9.12).
#[test]
fn a_share_with_open_files_parts_when_they_are_closed() {
    for (first, second) in [(ALONE, NONE), (NONE, ALONE), (ALONE, ALONE)] {
        on_paused_clock(async {
            let is_told = Arc::new(AtomicUsize::new(0));
            let told = Arc::clone(&is_told);
            let mut cluster = cluster(&[1], move |tree| {
                let is_first = tree.share == "first";
                let capabilities = if is_first { first } else { second };
                let was = CLUSTER.union(CONTINUOUS);
                Reply::Connected(if told.load(Ordering::SeqCst) == 0 { was } else { capabilities })
            });
            cluster.manners = || Manners { keeps: true, ..Manners::default() };
            let cluster = Arc::new(cluster);
            let session = cluster.log_on(Options::new()).await.unwrap();
            let one = in_time("connect", session.share("first")).await.unwrap();
            let two = in_time("connect", session.share("second")).await.unwrap();
            let mut files = Vec::new();
            for share in [&one, &two] {
                files.push(in_time("open", share.open("known")).await.unwrap());
            }
            is_told.store(1, Ordering::SeqCst);
            for _ in 0..2 {
                cluster.cut_all();
                for file in &files {
                    in_time("read", file.read_bytes(0, 4)).await.unwrap();
                }
            }
            let heard = cluster.heard();
            assert_eq!(heard.len(), 3, "{first:?} {second:?}: one connection after each loss");
            assert!(heard.iter().all(|one| one.guid == heard[0].guid), "{heard:?}");
            for file in files {
                in_time("close", file.close()).await.unwrap();
            }
            cluster.cut_all();
            is_read(&one).await;
            is_read(&two).await;
            assert!(!one.session().is_same(two.session()), "{first:?} {second:?}");
            session.log_off().await;
        });
    }
}

/// Of two requests that need the share at once, one makes it part. The other one is not sent over the
/// connection that the share has left.
#[test]
fn no_request_is_sent_where_a_share_has_parted() {
    on_paused_clock(async {
        let is_told = Arc::new(AtomicUsize::new(0));
        let told = Arc::clone(&is_told);
        let cluster = Arc::new(cluster(&[1], move |tree| {
            let is_alone = tree.share == "first" && told.load(Ordering::SeqCst) == 1;
            Reply::Connected(if is_alone { ALONE } else { CLUSTER.union(CONTINUOUS) })
        }));
        let session = cluster.log_on(Options::new()).await.unwrap();
        let one = in_time("connect", session.share("first")).await.unwrap();
        let two = in_time("connect", session.share("second")).await.unwrap();
        is_told.store(1, Ordering::SeqCst);
        let before = cluster.heard().len();
        cluster.cut_all();
        is_read(&two).await;
        let sent_before = cluster.heard()[before].commands.len();
        let (a, b) = tokio::join!(one.open("known"), one.open("known"));
        let files = [a.unwrap(), b.unwrap()];
        let heard = cluster.heard();
        assert_eq!(heard.len(), before + 2, "{heard:?}");
        let after = &heard[before].commands[sent_before..];
        assert!(!after.contains(&Command::CREATE), "{after:?}");
        assert_eq!(heard[before + 1].commands.iter().filter(|c| **c == Command::CREATE).count(), 2);
        drop(files);
        session.log_off().await;
    });
}

/// The share moves to a node that the cluster's name does not lead to.
#[test]
fn a_share_is_followed_to_the_owner_that_a_node_names() {
    on_paused_clock(async {
        let owner = Arc::new(AtomicUsize::new(1));
        let now = Arc::clone(&owner);
        let cluster = Arc::new(cluster(&[1, 2, 3], move |tree| {
            let owner = u8::try_from(now.load(Ordering::SeqCst)).unwrap();
            let is_asked = tree.flags.contains(TreeConnectFlags::REDIRECT_TO_OWNER);
            match tree.node == owner {
                true => Reply::Connected(CLUSTER.union(ASYMMETRIC)),
                false if is_asked => redirect(&[address(owner)]),
                false => refused(WireStatus::BAD_NETWORK_NAME),
            }
        }));
        let share = cluster.share(Options::new()).await.unwrap();
        for next in [7, 3, 1] {
            let before = cluster.trees().len();
            owner.store(next, Ordering::SeqCst);
            cluster.cut_all();
            let begun = Instant::now();
            is_read(&share).await;
            let nodes: Vec<_> = cluster.trees()[before..].iter().map(|tree| tree.node).collect();
            assert_eq!(nodes.last().copied().map(usize::from), Some(next));
            assert!(nodes.len() <= 2, "one node is asked, and the owner: {nodes:?}");
            assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
        }
    });
}

/// Nodes that send the client in circles end the search as those do that refuse.
#[test]
fn redirections_in_circles_have_an_end() {
    on_paused_clock(async {
        let is_lost = Arc::new(AtomicUsize::new(0));
        let lost = Arc::clone(&is_lost);
        let cluster = Arc::new(cluster(&[1, 2], move |tree| {
            match lost.load(Ordering::SeqCst) {
                0 => Reply::Connected(CLUSTER.union(ASYMMETRIC)),
                // Each one names the next, and the last one the first.
                _ => redirect(&[address(tree.node % 100 + 1)]),
            }
        }));
        let share = cluster.share(Options::new()).await.unwrap();
        is_lost.store(1, Ordering::SeqCst);
        cluster.cut_all();
        let begun = Instant::now();
        let error = in_time("read", share.read("known")).await.unwrap_err();
        assert_eq!(error.status(), Some(Status::BAD_NETWORK_NAME), "{error}");
        let took = begun.elapsed();
        assert!(took >= FIND_SHARE_FOR && took <= Duration::from_secs(25), "{took:?}");
        // Those that the name leads to, and so many that were named.
        let mut nodes: Vec<_> = cluster.trees().iter().map(|tree| tree.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        assert!(nodes.len() <= 3 + usize::try_from(REDIRECTIONS).unwrap(), "{nodes:?}");
        let dialed = cluster.heard().len();
        assert!(dialed <= 200, "{dialed}");
    });
}

/// This machine, no machine, and what the user has ruled out.
#[test]
fn addresses_of_an_owner_that_are_not_followed() {
    let v6: IpAddr = "2001:db8::1".parse().unwrap();
    let here = [Ipv4Addr::LOCALHOST.into(), Ipv4Addr::BROADCAST.into(), "::1".parse().unwrap()];
    for (named, referrals) in [
        (here.to_vec(), Referrals::Anywhere),
        (vec![Ipv4Addr::UNSPECIFIED.into(), "ff02::1".parse().unwrap()], Referrals::Anywhere),
        (vec![address(7), v6], Referrals::SameHost),
        (vec![address(7)], Referrals::Never),
    ] {
        on_paused_clock(async {
            let is_lost = Arc::new(AtomicUsize::new(0));
            let lost = Arc::clone(&is_lost);
            let cluster = Arc::new(cluster(&[1, 2], move |_| match lost.load(Ordering::SeqCst) {
                0 => Reply::Connected(CLUSTER.union(ASYMMETRIC)),
                _ => redirect(&named),
            }));
            let share = cluster.share(Options::new().referrals(referrals)).await.unwrap();
            is_lost.store(1, Ordering::SeqCst);
            cluster.cut_all();
            let error = in_time("read", share.read("known")).await.unwrap_err();
            assert_eq!(error.status(), Some(Status::BAD_NETWORK_NAME), "{error}");
            let dialed = cluster.heard();
            assert!(dialed.iter().all(|heard| heard.node <= 2), "{dialed:?}");
        });
    }
}
