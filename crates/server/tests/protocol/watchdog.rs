//! The watchdog: a poll that holds its core is noticed, and long rows of requests
//! do not make one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::client::queries::list_draft;
use crate::client::*;
use frevo_net::watchdog::{held_limit, processor_time};
use frevo_server::ambient::{Ambient, Host};
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use frevo_store::vfs::{OpenHow, Opened, Space, Stat, VfsResult, Volume};
use frevo_store::{FileKey, Name, Vfs};
use frevo_wire::command::query_directory::QueryDirectoryFlags;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::FileInfoClass;
use tokio::task::LocalSet;

/// A file system that computes for long before it opens the names that begin
/// with `slow`.
#[derive(Debug)]
struct Busy {
    inner: MemoryVfs,
    /// Processor time of such a name.
    time: Duration,
    opened: AtomicUsize,
}

impl Busy {
    fn new(time: Duration) -> Arc<Self> {
        let inner = MemoryVfs::new(MemoryOptions::default(), Arc::new(|| Host.now()));
        Arc::new(Self { inner, time, opened: AtomicUsize::new(0) })
    }
}

impl Vfs for Busy {
    fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        if name.path().starts_with("slow") {
            let now = || processor_time().expect("tests have assertions");
            let began = now();
            while now() - began < self.time {}
            self.opened.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.open(name, how)
    }

    fn remove(&self, name: &Name, key: FileKey) -> VfsResult<()> {
        self.inner.remove(name, key)
    }

    fn rename(&self, from: &Name, key: FileKey, to: &Name, replace: bool) -> VfsResult<Name> {
        self.inner.rename(from, key, to, replace)
    }

    fn link(&self, node: &dyn frevo_store::Node, to: &Name, replace: bool) -> VfsResult<()> {
        self.inner.link(node, to, replace)
    }

    fn stat(&self, name: &Name) -> VfsResult<Stat> {
        self.inner.stat(name)
    }

    fn space(&self) -> VfsResult<Space> {
        self.inner.space()
    }

    fn volume(&self) -> Arc<Volume> {
        self.inner.volume()
    }
}

fn run(test: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test());
}

#[test]
fn a_request_that_holds_its_core_is_counted() {
    run(async || {
        // Opening the file "slow" takes twice the processor time that the watchdog allows; opening
        // "quick" takes little.
        let limit = held_limit().expect("tests have assertions");
        let world = World::over(settings(), &(Busy::new(limit * 2) as _));
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("quick")).await;
        peer.close(&mount, file).await;
        assert_eq!(world.server.watchdog.held(), 0);
        peer.open_file(&mount, &Want::file("slow")).await;
        assert!(world.server.watchdog.held() > 0);
    });
}

/// Sixty requests of 8 ms at once, from one client: another one's turn comes in
/// between.
#[test]
fn a_row_of_slow_requests_is_served_in_turns() {
    run(async || {
        let busy = Busy::new(Duration::from_millis(8));
        let world = World::over(settings(), &(Arc::clone(&busy) as _));
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (mut other, _) = world.session("bob", &Offer::default()).await;
        let mut ids = Vec::new();
        for at in 0..60 {
            let request = mount.put(Want::file(&format!("slow{at}")).draft());
            ids.extend(peer.send(vec![request], mount.via()).await);
        }
        other.expect_alive().await;
        let before = busy.opened.load(Ordering::Relaxed);
        assert!(before < 30, "{before} files were opened before another client's ECHO");
        for reply in peer.collect(&ids).await {
            reply.ok();
        }
    });
}

/// Forty entries whose access lists take 4 ms each, on a share that hides what the user cannot
/// read: the clock is looked at after each of them.
#[test]
fn a_listing_of_slow_entries_is_served_in_turns() {
    run(async || {
        let busy = Busy::new(Duration::from_millis(4));
        let world = World::over(settings(), &(Arc::clone(&busy) as _));
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (mut other, _) = world.session("bob", &Offer::default()).await;
        for at in 0..40 {
            let file = peer.open_file(&mount, &Want::file(&format!("slow{at}"))).await;
            peer.close(&mount, file).await;
        }
        let discreet = peer.mount(&mount.logon, "discreet").await;
        let want = Want::existing("").access(AccessMask::READ_DATA);
        let folder = peer.open_file(&discreet, &want).await;
        let before = busy.opened.load(Ordering::Relaxed);
        let class = FileInfoClass::ID_BOTH_DIRECTORY;
        let list = list_draft(folder, class, QueryDirectoryFlags::EMPTY, "*");
        let request = discreet.put(list);
        let ids = peer.send(vec![request], discreet.via()).await;
        other.expect_alive().await;
        let looked_at = busy.opened.load(Ordering::Relaxed) - before;
        assert!(looked_at < 8, "{looked_at} entries were looked at before another client's ECHO");
        let [listed] = &*peer.collect(&ids).await else { panic!("one reply") };
        listed.ok();
        assert_eq!(busy.opened.load(Ordering::Relaxed) - before, 40);
    });
}
