//! An application that fails over between two machines, whose share fails over between two nodes: the
//! earlier instance has lost its network, comes back, and must lose. MS-SMB2 3.3.5.9.13.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::evil::frames;
use crate::nodes;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use frames::{framed, put};
use frevo_client::internal::{Dial, Dialing, Resolving};
use frevo_client::{
    AppInstance, Cause, Client, Credentials, Dialect, Error, File, OpenOptions, Options,
    ServerName, Share, ShareMode, Status,
};
use frevo_net::frame_reader::FrameReader;
use frevo_net::memory;
use frevo_net::transport::Stream;
use nodes::{CLUSTER, Nodes, with_nodes};
use tokio::time::sleep;

const APPLICATION: AppInstance = AppInstance::new([0x5A; 16]);

/// A machine whose network can be pulled: it makes no connections then, and the frames of those that it has
/// wait on the way.
struct Machine {
    nodes: Arc<Nodes>,
    is_pulled: Arc<AtomicBool>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Machine")
    }
}

impl Dial for Machine {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        Box::pin(async move {
            if self.is_pulled.load(Ordering::SeqCst) {
                return Err(ErrorKind::NetworkUnreachable.into());
            }
            let beyond = Arc::new(self.nodes.dial(server).await?);
            let at = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
            let (ours, theirs) = memory::pair(1 << 20, [at(50_000), at(445)]);
            let here = Arc::new(Stream::Memory(theirs));
            let is_pulled = || Arc::clone(&self.is_pulled);
            tokio::spawn(carry(Arc::clone(&here), Arc::clone(&beyond), is_pulled()));
            tokio::spawn(carry(beyond, here, is_pulled()));
            Ok(Stream::Memory(ours))
        })
    }

    fn addresses<'a>(&'a self, server: &'a ServerName) -> Resolving<'a> {
        self.nodes.addresses(server)
    }
}

/// Carries frames from one end to the other, and the end of the connection.
async fn carry(from: Arc<Stream>, to: Arc<Stream>, is_pulled: Arc<AtomicBool>) {
    let mut reader = FrameReader::new(frevo_net::limits::FRAME_BYTES_MAX);
    loop {
        let frame = reader.next(&from).await;
        while is_pulled.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(5)).await;
        }
        let is_carried = match frame {
            Ok(Some(frame)) => put(&to, &framed(&frame)).await.is_ok(),
            _ => false,
        };
        if !is_carried {
            to.abort();
            return from.abort();
        }
    }
}

impl Machine {
    fn new(nodes: &Arc<Nodes>) -> Arc<Self> {
        Arc::new(Self { nodes: Arc::clone(nodes), is_pulled: Arc::default() })
    }

    fn pull(&self, is_pulled: bool) {
        self.is_pulled.store(is_pulled, Ordering::SeqCst);
    }

    /// Connects the share as this instance of the application.
    async fn share(self: &Arc<Self>, instance: AppInstance, newest: Dialect) -> Share {
        let options = Options::new().app_instance(Some(instance)).newest(newest);
        let options = options.recover_for(Duration::from_secs(20));
        let client = Client::with_dialer(options, Arc::clone(self) as Arc<dyn Dial>);
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new(CLUSTER), user).await.unwrap();
        session.share("lasting").await.unwrap()
    }
}

/// Opens the application's file, and shares it with nobody.
async fn open(share: &Share) -> Result<File, Error> {
    let options = OpenOptions::new().read(true).write(true).create(true);
    options.share_mode(ShareMode::EMPTY).open(share, "database").await
}

fn is_lost(error: &Error) -> bool {
    matches!(error.cause(), Cause::HandleLost) || error.status() == Some(Status::FILE_CLOSED)
}

#[test]
fn an_instance_that_lost_its_network_loses_its_file() {
    with_nodes(2, async |nodes| {
        nodes.take(0, "lasting").await;
        let (first, second) = (Machine::new(nodes), Machine::new(nodes));
        let earlier = first.share(APPLICATION.version(0, 1), Dialect::Smb311).await;
        let its = open(&earlier).await.unwrap();
        its.write_all_at(b"of the first", 0).await.unwrap();
        its.lock(0, 4, frevo_client::LockKind::Exclusive).await.unwrap();

        // Its machine is cut off in the middle of a write. Then the node dies, too.
        first.pull(true);
        let late = {
            let its = its.clone();
            tokio::spawn(async move { its.write_all_at(b"too late", 0).await })
        };
        sleep(Duration::from_millis(50)).await;
        nodes.fail_over("lasting", 0, 1).await;

        // The next instance does not wait for the handle that the next node keeps for the first one.
        let later = second.share(APPLICATION.version(0, 2), Dialect::Smb311).await;
        let begun = Instant::now();
        let has = open(&later).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        has.write_all_at(b"of the second", 0).await.unwrap();

        // The network is back: what was on the way, the handle, and a new one.
        first.pull(false);
        let error = late.await.unwrap().unwrap_err();
        assert!(is_lost(&error), "{error}");
        assert!(is_lost(&its.write_all_at(b"again", 0).await.unwrap_err()));
        let error = open(&earlier).await.unwrap_err();
        assert_eq!(error.status(), Some(Status::FILE_FORCED_CLOSED), "{error}");
        let error = earlier.write("database", b"whole").await.unwrap_err();
        assert_eq!(error.status(), Some(Status::FILE_FORCED_CLOSED), "{error}");

        has.write_all_at(b"!", 13).await.unwrap();
        assert_eq!(std::fs::read(nodes.path("database")).unwrap(), b"of the second!");
        // The later instance ends its work. The handle of the earlier one stays lost.
        has.close().await.unwrap();
        assert!(is_lost(&its.write_all_at(b"again", 0).await.unwrap_err()));
        assert_eq!(std::fs::read(nodes.path("database")).unwrap(), b"of the second!");
    });
}

/// At one node, in the other order, and back again.
#[test]
fn an_earlier_instance_cannot_come_back() {
    with_nodes(1, async |nodes| {
        nodes.take(0, "lasting").await;
        let (one, other) = (Machine::new(nodes), Machine::new(nodes));
        let first = one.share(APPLICATION.version(1, 0), Dialect::Smb311).await;
        let had = open(&first).await.unwrap();
        let second = other.share(APPLICATION.version(1, 1), Dialect::Smb311).await;
        let has = open(&second).await.unwrap();
        assert!(is_lost(&had.write_all_at(b"a", 0).await.unwrap_err()));
        for version in [APPLICATION.version(1, 0), APPLICATION.version(0, 9), APPLICATION] {
            let back = one.share(version, Dialect::Smb311).await;
            let error = open(&back).await.unwrap_err();
            assert_eq!(error.status(), Some(Status::FILE_FORCED_CLOSED), "{version}");
        }
        // Another application is refused as everybody is.
        let stranger = one.share(AppInstance::new([9; 16]).version(9, 9), Dialect::Smb311).await;
        let error = open(&stranger).await.unwrap_err();
        assert_eq!(error.status(), Some(Status::SHARING_VIOLATION), "{error}");
        has.write_all_at(b"b", 0).await.unwrap();
        let third = one.share(APPLICATION.version(2, 0), Dialect::Smb311).await;
        let now = open(&third).await.unwrap();
        assert!(is_lost(&has.write_all_at(b"c", 0).await.unwrap_err()));
        now.close().await.unwrap();
        assert_eq!(std::fs::read(nodes.path("database")).unwrap(), b"b");
    });
}

/// Versions are of 3.1.1. Before that, and without one, the last instance has the file.
#[test]
fn without_a_version_the_last_instance_has_the_file() {
    for (version, newest) in
        [(None, Dialect::Smb311), (None, Dialect::Smb302), (Some((0, 1)), Dialect::Smb302)]
    {
        with_nodes(1, async |nodes| {
            nodes.take(0, "lasting").await;
            let instance =
                version.map_or(APPLICATION, |(high, low)| APPLICATION.version(high, low));
            let (one, other) = (Machine::new(nodes), Machine::new(nodes));
            let first = one.share(instance, newest).await;
            let second = other.share(instance, newest).await;
            for (opens, loses) in [(&first, &second), (&second, &first), (&first, &second)] {
                let had = open(loses).await.unwrap();
                let has = open(opens).await.unwrap();
                assert!(is_lost(&had.write_all_at(b"a", 0).await.unwrap_err()));
                has.write_all_at(b"b", 0).await.unwrap();
                has.close().await.unwrap();
            }
        });
    }
}
