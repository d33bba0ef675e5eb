//! A file system that checks, at each call, the credentials of the thread. A file called after
//! a user (`ann-f`) belongs to that user: only that user may touch it.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frevo_server::ambient::{Ambient, Host};
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use frevo_store::snapshot::Moment;
use frevo_store::vfs::{
    Allocated, BasicChange, Directory, DiskExtents, EaChange, ExtentCopy, HostAccess, HostLock,
    Node, ObjectId, ObjectIdChange, OpenHow, Opened, Parent, QuotaLimits, QuotaState, Replacement,
    Security, SecurityChange, Space, StreamStat, UserQuota, Vfs, VfsResult, Volume, VolumeSpace,
};
use frevo_store::{FileKey, HostPlaces, Name, Observation, Observer, Stat};
use frevo_wire::dtyp::FileTime;
use parking_lot::{Condvar, Mutex};

use crate::impersonation::{acts_as, uid};

/// The calls that were seen.
#[derive(Debug, Default)]
pub struct Seen {
    calls: Mutex<BTreeMap<&'static str, usize>>,
    wrong: Mutex<Vec<String>>,
    shut: Mutex<bool>,
    turn: Condvar,
}

impl Seen {
    /// Nobody has acted as another; of the calls that every file system has these
    /// were never made.
    pub fn check(&self) -> BTreeSet<String> {
        assert_eq!(*self.wrong.lock(), [""; 0]);
        let calls = self.calls.lock();
        let text = concat!(
            include_str!("../../../store/src/vfs.rs"),
            include_str!("../../../store/src/vfs/node.rs"),
            include_str!("../../../store/src/vfs/directory.rs"),
        );
        let mut missing = BTreeSet::new();
        for of in ["pub trait Vfs:", "pub trait Node:", "pub trait Directory:"] {
            let (_, rest) = text.split_once(of).unwrap();
            let (body, _) = rest.split_once("\n}\n").unwrap();
            let names = body.lines().filter_map(|line| line.strip_prefix("    fn "));
            let names = names.map(|line| line.split_once('(').unwrap().0);
            missing.extend(names.filter(|name| !calls.contains_key(name)).map(str::to_owned));
        }
        missing
    }

    /// Begins to count anew.
    pub fn forget(&self) {
        self.calls.lock().clear();
    }

    /// How often each call was made.
    pub fn counted(&self) -> BTreeMap<&'static str, usize> {
        self.calls.lock().clone()
    }

    /// Holds up the opening of files called `...held`.
    pub fn shut(&self, shut: bool) {
        *self.shut.lock() = shut;
        self.turn.notify_all();
    }

    fn note(&self, call: &'static str, whose: Option<u32>) {
        *self.calls.lock().entry(call).or_default() += 1;
        let now = acts_as();
        if whose.is_some_and(|whose| whose != now) {
            self.wrong.lock().push(format!("{call} of {whose:?} was made as {now}"));
        }
    }

    fn named(&self, call: &'static str, name: &Name) {
        let path = name.path();
        self.note(call, owner(path));
        assert!(!path.ends_with("fatal"), "planted");
        if path.ends_with("held") {
            self.turn.wait_while(&mut self.shut.lock(), |shut| *shut);
            self.note(call, owner(path));
        }
    }
}

/// The user in the name; None for a name of the server.
fn owner(path: &str) -> Option<u32> {
    let user = path.split_once('-')?.0;
    matches!(user, "ann" | "bob").then(|| uid(user))
}

#[derive(Debug)]
pub struct Probe {
    inner: MemoryVfs,
    volume: Arc<Volume>,
    pub seen: Arc<Seen>,
}

impl Probe {
    pub fn new() -> Self {
        let quotas = Some((QuotaState { is_enforced: true }, Vec::new()));
        let options = MemoryOptions { quotas, ..MemoryOptions::default() };
        let inner = MemoryVfs::new(options, Arc::new(|| Host.now()));
        let volume = Volume { compresses: true, ..Volume::clone(&inner.volume()) };
        Self { inner, volume: Arc::new(volume), seen: Arc::default() }
    }
}

#[derive(Debug)]
struct ProbeNode {
    inner: Arc<dyn Node>,
    whose: Option<u32>,
    seen: Arc<Seen>,
}

fn inner_of(node: &dyn Node) -> &dyn Node {
    let any: &dyn Any = node;
    &*any.downcast_ref::<ProbeNode>().expect("no other nodes here").inner
}

impl Probe {
    fn watched(&self, name: &Name, opened: Opened) -> Opened {
        let (whose, seen) = (owner(name.path()), Arc::clone(&self.seen));
        Opened { node: Arc::new(ProbeNode { inner: opened.node, whose, seen }), ..opened }
    }
}

impl Vfs for Probe {
    fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        self.seen.named("open", name);
        self.inner.open(name, how).map(|opened| self.watched(name, opened))
    }

    fn open_parent(&self, name: &Name) -> VfsResult<Opened> {
        self.seen.named("open_parent", name);
        self.inner.open_parent(name).map(|opened| self.watched(&name.parent(), opened))
    }

    fn open_in(&self, parent: Parent<'_>, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        self.seen.named("open_in", name);
        let parent = Parent { node: inner_of(parent.node), ..parent };
        self.inner.open_in(parent, name, how).map(|opened| self.watched(name, opened))
    }

    fn remove(&self, name: &Name, key: FileKey) -> VfsResult<()> {
        self.seen.named("remove", name);
        self.inner.remove(name, key)
    }

    fn rename(&self, from: &Name, key: FileKey, to: &Name, replace: bool) -> VfsResult<Name> {
        self.seen.named("rename", from);
        self.inner.rename(from, key, to, replace)
    }

    fn is_one_entry(&self, one: &Name, other: &Name) -> VfsResult<bool> {
        self.seen.named("is_one_entry", one);
        self.inner.is_one_entry(one, other)
    }

    fn link(&self, node: &dyn Node, to: &Name, replace: bool) -> VfsResult<()> {
        self.seen.named("link", to);
        self.inner.link(inner_of(node), to, replace)
    }

    fn replace(&self, name: &Name, node: &dyn Node, by: &Replacement<'_>) -> VfsResult<()> {
        self.seen.named("replace", name);
        self.inner.replace(name, inner_of(node), by)
    }

    fn stat(&self, name: &Name) -> VfsResult<Stat> {
        self.seen.named("stat", name);
        self.inner.stat(name)
    }

    fn space(&self) -> VfsResult<Space> {
        self.seen.note("space", None);
        self.inner.space()
    }

    fn volume(&self) -> Arc<Volume> {
        Arc::clone(&self.volume)
    }

    fn quota_state(&self) -> VfsResult<Option<QuotaState>> {
        self.seen.note("quota_state", Some(0));
        self.inner.quota_state()
    }

    fn quota(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        self.seen.note("quota", Some(0));
        self.inner.quota(uid)
    }

    fn quota_from(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        self.seen.note("quota_from", Some(0));
        self.inner.quota_from(uid)
    }

    fn set_quota(&self, uid: u32, limits: QuotaLimits) -> VfsResult<()> {
        self.seen.note("set_quota", Some(0));
        self.inner.set_quota(uid, limits)
    }

    fn quota_defaults(&self) -> VfsResult<Option<QuotaLimits>> {
        self.seen.note("quota_defaults", Some(0));
        self.inner.quota_defaults()
    }

    fn set_quota_defaults(&self, limits: QuotaLimits) -> VfsResult<()> {
        self.seen.note("set_quota_defaults", Some(0));
        self.inner.set_quota_defaults(limits)
    }

    fn snapshots(&self, name: &Name) -> VfsResult<Vec<Moment>> {
        self.seen.named("snapshots", name);
        self.inner.snapshots(name)
    }

    fn snapshot(&self, taken: Moment, places: &Arc<HostPlaces>) -> VfsResult<Arc<dyn Vfs>> {
        self.seen.note("snapshot", Some(0));
        self.inner.snapshot(taken, places)
    }

    fn shows_locks(&self) -> bool {
        true
    }

    fn observe(&self, _: &dyn Node, _: bool, _: Observer) -> VfsResult<Box<dyn Observation>> {
        self.seen.note("observe", Some(0));
        Err(frevo_store::Fault::NotSupported)
    }
}

macro_rules! watched {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> $result {
            self.seen.note(stringify!($name), self.whose);
            self.inner.$name($($arg),*)
        })*
    };
}

impl Node for ProbeNode {
    fn key(&self) -> FileKey {
        self.inner.key()
    }

    fn descriptor(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.inner.descriptor()
    }

    fn is_hidden_by_name(&self) -> bool {
        self.inner.is_hidden_by_name()
    }

    fn device(&self) -> Option<(u32, u32)> {
        self.inner.device()
    }

    fn has_entries(&self) -> VfsResult<bool> {
        self.seen.note("has_entries", self.whose);
        self.inner.has_entries()
    }

    fn directory(&self) -> VfsResult<Box<dyn Directory>> {
        self.seen.note("directory", self.whose);
        let (whose, seen) = (self.whose, Arc::clone(&self.seen));
        Ok(Box::new(ProbeDirectory { inner: self.inner.directory()?, whose, seen }))
    }

    fn share_extents(&self, source: &dyn Node, copy: &ExtentCopy) -> VfsResult<()> {
        self.seen.note("share_extents", self.whose);
        self.inner.share_extents(inner_of(source), copy)
    }

    watched! {
        fn stat() -> VfsResult<Stat>;
        fn stat_without_eas() -> VfsResult<Stat>;
        fn is_read_only() -> VfsResult<bool>;
        fn takes_changes() -> VfsResult<()>;
        fn birth() -> Option<FileTime>;
        fn read_at(offset: u64, into: &mut [u8]) -> VfsResult<usize>;
        fn write_at(offset: u64, data: &[u8]) -> VfsResult<()>;
        fn sync() -> VfsResult<()>;
        fn sync_all() -> VfsResult<()>;
        fn set_end_of_file(end: u64) -> VfsResult<()>;
        fn set_allocation(bytes: u64) -> VfsResult<()>;
        fn set_basic(change: &BasicChange) -> VfsResult<()>;
        fn streams() -> VfsResult<Vec<StreamStat>>;
        fn clear_streams() -> VfsResult<()>;
        fn eas() -> VfsResult<Vec<(String, Vec<u8>)>>;
        fn set_ea(name: &str, value: &[u8]) -> VfsResult<()>;
        fn needed_eas() -> VfsResult<Vec<String>>;
        fn set_ea_needed(name: &str, needed: bool) -> VfsResult<()>;
        fn set_eas(changes: &[EaChange<'_>]) -> VfsResult<()>;
        fn link_target() -> VfsResult<String>;
        fn reparse_buffer() -> VfsResult<Vec<u8>>;
        fn keep_reparse(buffer: Option<&[u8]>) -> VfsResult<()>;
        fn object_id() -> VfsResult<Option<ObjectId>>;
        fn change_object_id(change: &ObjectIdChange) -> VfsResult<()>;
        fn security() -> VfsResult<Security>;
        fn stored_security() -> VfsResult<Option<Vec<u8>>>;
        fn set_security(change: &SecurityChange<'_>) -> VfsResult<()>;
        fn host_access() -> HostAccess;
        fn show_lock(lock: HostLock) -> VfsResult<bool>;
        fn set_compressed(compressed: bool) -> VfsResult<()>;
        fn volume_space(uid: Option<u32>) -> VfsResult<Option<VolumeSpace>>;
        fn zero(first: u64, length: u64, punch: bool) -> VfsResult<()>;
        fn allocated(first: u64, beyond: u64, limit: usize) -> VfsResult<Allocated>;
        fn extents_on_disk(first: u64, limit: usize) -> VfsResult<DiskExtents>;
    }
}

#[derive(Debug)]
struct ProbeDirectory {
    inner: Box<dyn Directory>,
    whose: Option<u32>,
    seen: Arc<Seen>,
}

impl Directory for ProbeDirectory {
    fn next_name(&mut self) -> VfsResult<Option<&str>> {
        self.seen.note("next_name", self.whose);
        self.inner.next_name()
    }

    fn entry_stat(&mut self) -> VfsResult<Option<Stat>> {
        self.seen.note("entry_stat", self.whose);
        self.inner.entry_stat()
    }

    fn plain_access(&mut self) -> Option<HostAccess> {
        self.seen.note("plain_access", self.whose);
        self.inner.plain_access()
    }

    fn rewind(&mut self) -> VfsResult<()> {
        self.seen.note("rewind", self.whose);
        self.inner.rewind()
    }

    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
}
