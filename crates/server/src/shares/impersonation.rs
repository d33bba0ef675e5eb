//! Impersonation: a share whose files are used as the user of the host that has logged on
//! (`run_as = "user"`). Its file system and its nodes take the user's credentials for each
//! call, on whichever thread the call is made.
//!
//! A share of a cluster asks its [`Gate`] before each call that changes something: another server may
//! have the share by now.
//!
//! An open file keeps the credentials of its user wherever it is used or closed from: another
//! session's request, the end of a connection, the scavenger. The threads of the system's I/O
//! move data between a buffer and a descriptor, for which the kernel checks no rights; writes
//! take space, and are made as the user.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use frevo_net::file_io::Gate;
use frevo_store::snapshot::Moment;
use frevo_store::vfs::{
    Allocated, BasicChange, Commitment, Directory, DiskExtents, EaChange, Existence, ExtentCopy,
    HostAccess, HostLock, Node, ObjectId, ObjectIdChange, OpenHow, Opened, Parent, QuotaLimits,
    QuotaState, Replacement, Security, SecurityChange, Space, StreamStat, UserQuota, Vfs,
    VfsResult, Volume, VolumeSpace,
};
use frevo_store::{Fault, FileKey, HostPlaces, Name, Observation, Observer, Stat};
use frevo_wire::Status;
use frevo_wire::dtyp::FileTime;

use crate::access::actor::Actor;
use crate::base::host::{self, Assumed, Scope};
use crate::shares::protection;

/// Opens the scope in which a thread polls a connection. With `lazily` a thread that has
/// acted as a user goes on as this user until another one is needed or the scope ends: all
/// shares of the server are wrapped then, those too whose files are the server's.
pub(crate) fn scope(lazily: bool) -> Option<Scope> {
    lazily.then(Scope::open)
}

/// The user of the host as which files are used.
#[derive(Debug, Clone)]
enum As {
    Server,
    User(Arc<Actor>),
}

impl As {
    /// Takes the credentials of the user. A call that cannot take them fails.
    fn act(&self) -> VfsResult<Assumed> {
        match self {
            Self::Server => Ok(host::as_server()),
            Self::User(actor) => actor.assume().map_err(|errno| {
                tracing::error!(target: "frevo::server", %errno,
                    "cannot act as a user of the host; the request fails");
                Fault::AccessDenied
            }),
        }
    }
}

/// The user of the host, and the question if files may be changed.
#[derive(Clone)]
struct Whom {
    user: As,
    /// None for a share that is no cluster's.
    gate: Option<Gate>,
}

impl Whom {
    /// Takes the credentials of the user for a call that changes nothing.
    fn act(&self) -> VfsResult<Assumed> {
        self.user.act()
    }

    /// Takes the credentials of the user for a call that changes something. It fails while another server
    /// may have the share.
    fn act_to_change(&self) -> VfsResult<Assumed> {
        self.check_gate()?;
        self.user.act()
    }

    /// Takes the credentials of the user for an open.
    fn act_to_open(&self, how: &OpenHow) -> VfsResult<Assumed> {
        match how.existence {
            Existence::MustExist => self.act(),
            Existence::Either | Existence::MustNotExist => self.act_to_change(),
        }
    }

    fn check_gate(&self) -> VfsResult<()> {
        match &self.gate {
            Some(gate) if !gate() => Err(Fault::NotServed),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.user.fmt(f)
    }
}

/// `vfs` as `actor` may use it.
pub(crate) fn for_user(vfs: Arc<dyn Vfs>, actor: Arc<Actor>, gate: Option<Gate>) -> Arc<dyn Vfs> {
    Arc::new(ActingVfs { inner: vfs, whom: Whom { user: As::User(actor), gate } })
}

/// `vfs` as the server uses it, on threads that may be left acting as a user.
pub(crate) fn for_server(vfs: Arc<dyn Vfs>, gate: Option<Gate>) -> Arc<dyn Vfs> {
    Arc::new(ActingVfs { inner: vfs, whom: Whom { user: As::Server, gate } })
}

/// The file system under the server's own credentials: for facts that are found out once for
/// all users.
pub(crate) fn for_all(vfs: &Arc<dyn Vfs>) -> Arc<dyn Vfs> {
    let any: &dyn Any = &**vfs;
    match any.downcast_ref::<ActingVfs>() {
        Some(acting) => for_server(Arc::clone(&acting.inner), acting.whom.gate.clone()),
        None => Arc::clone(vfs),
    }
}

/// The user that `node` acts as; none for the server.
pub(crate) fn actor_of(node: &dyn Node) -> Option<&Arc<Actor>> {
    let node: &dyn Any = node;
    match &node.downcast_ref::<ActingNode>()?.whom.user {
        As::User(actor) => Some(actor),
        As::Server => None,
    }
}

/// Puts the credentials on that go with `node`, if it is used as a user.
///
/// # Errors
/// ACCESS_DENIED when that cannot be done.
pub(crate) fn act_for(node: &dyn Node) -> Result<Option<Assumed>, Status> {
    let Some(actor) = actor_of(node) else { return Ok(None) };
    As::User(Arc::clone(actor)).act().map(Some).map_err(Fault::status)
}

/// The number of the user of the host that uses `node`.
pub(crate) fn uid_of(node: &dyn Node) -> u32 {
    actor_of(node).map_or_else(|| host::server_ids().0, |actor| actor.uid())
}

/// Checks that the host would let the user of `node` remove its `name`. It is checked when the
/// client marks the file for deletion: at the close nobody is left to report to.
///
/// # Errors
/// ACCESS_DENIED when it would not.
pub(crate) fn check_removal(vfs: &dyn Vfs, node: &dyn Node, name: &Name) -> Result<(), Status> {
    const STICKY: u32 = 0o1000;
    let Some(actor) = actor_of(node) else { return Ok(()) };
    if name.stream().is_some() {
        return Ok(());
    }
    let Ok(Some(parent)) = protection::parent(vfs, name) else { return Ok(()) };
    let access = parent.node.host_access();
    let uid = actor.uid();
    let is_kept = parent.stat.mode & STICKY != 0
        && parent.stat.uid != uid
        && node.stat_without_eas().map_err(Fault::status)?.uid != uid;
    if access.write && access.execute && !is_kept {
        return Ok(());
    }
    host::denials::note();
    Err(Status::ACCESS_DENIED)
}

/// A file system as somebody uses it.
struct ActingVfs {
    inner: Arc<dyn Vfs>,
    whom: Whom,
}

impl fmt::Debug for ActingVfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActingVfs").field("inner", &self.inner).field("as", &self.whom).finish()
    }
}

/// The node of the file system beneath.
fn inner_of(node: &dyn Node) -> &dyn Node {
    let any: &dyn Any = node;
    any.downcast_ref::<ActingNode>().map_or(node, |acting| &*acting.inner)
}

impl ActingVfs {
    /// The opened file, which acts as its user.
    fn acting(&self, opened: Opened) -> Opened {
        let node = ActingNode { inner: opened.node, whom: self.whom.clone() };
        Opened { node: Arc::new(node), ..opened }
    }
}

impl Vfs for ActingVfs {
    fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        let _acting = self.whom.act_to_open(how)?;
        self.inner.open(name, how).map(|opened| self.acting(opened))
    }

    fn open_parent(&self, name: &Name) -> VfsResult<Opened> {
        let _acting = self.whom.act()?;
        self.inner.open_parent(name).map(|opened| self.acting(opened))
    }

    fn open_in(&self, parent: Parent<'_>, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        let _acting = self.whom.act_to_open(how)?;
        let parent = Parent { node: inner_of(parent.node), ..parent };
        self.inner.open_in(parent, name, how).map(|opened| self.acting(opened))
    }

    fn parent_key(&self, name: &Name) -> VfsResult<FileKey> {
        let _acting = self.whom.act()?;
        self.inner.parent_key(name)
    }

    fn remove(&self, name: &Name, key: FileKey) -> VfsResult<()> {
        let _acting = self.whom.act_to_change()?;
        self.inner.remove(name, key)
    }

    fn rename(&self, from: &Name, key: FileKey, to: &Name, replace: bool) -> VfsResult<Name> {
        let _acting = self.whom.act_to_change()?;
        self.inner.rename(from, key, to, replace)
    }

    fn is_one_entry(&self, one: &Name, other: &Name) -> VfsResult<bool> {
        let _acting = self.whom.act()?;
        self.inner.is_one_entry(one, other)
    }

    fn link(&self, node: &dyn Node, to: &Name, replace: bool) -> VfsResult<()> {
        let _acting = self.whom.act_to_change()?;
        self.inner.link(inner_of(node), to, replace)
    }

    fn replace(&self, name: &Name, node: &dyn Node, by: &Replacement<'_>) -> VfsResult<()> {
        let _acting = self.whom.act_to_change()?;
        self.inner.replace(name, inner_of(node), by)
    }

    fn stat(&self, name: &Name) -> VfsResult<Stat> {
        let _acting = self.whom.act()?;
        self.inner.stat(name)
    }

    fn space(&self) -> VfsResult<Space> {
        let _acting = self.whom.act()?;
        self.inner.space()
    }

    fn volume(&self) -> Arc<Volume> {
        self.inner.volume()
    }

    fn may_wait(&self) -> bool {
        self.inner.may_wait()
    }

    /// The place does not depend on the user.
    fn folder_id(&self) -> frevo_store::FolderId {
        self.inner.folder_id()
    }

    fn quota_state(&self) -> VfsResult<Option<QuotaState>> {
        let _server = host::as_server();
        self.inner.quota_state()
    }

    /// The kernel knows no administrators but root: whose quotas a user may know is
    /// decided where they are asked for.
    fn quota(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        let _server = host::as_server();
        self.inner.quota(uid)
    }

    fn quota_from(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        let _server = host::as_server();
        self.inner.quota_from(uid)
    }

    fn set_quota(&self, uid: u32, limits: QuotaLimits) -> VfsResult<()> {
        self.whom.check_gate()?;
        let _server = host::as_server();
        self.inner.set_quota(uid, limits)
    }

    fn quota_defaults(&self) -> VfsResult<Option<QuotaLimits>> {
        let _server = host::as_server();
        self.inner.quota_defaults()
    }

    fn set_quota_defaults(&self, limits: QuotaLimits) -> VfsResult<()> {
        self.whom.check_gate()?;
        let _server = host::as_server();
        self.inner.set_quota_defaults(limits)
    }

    fn snapshots(&self, name: &Name) -> VfsResult<Vec<Moment>> {
        let _acting = self.whom.act()?;
        self.inner.snapshots(name)
    }

    /// A snapshot is opened once for all users, by the server; the rights of each user are
    /// checked at each use.
    fn snapshot(&self, taken: Moment, places: &Arc<HostPlaces>) -> VfsResult<Arc<dyn Vfs>> {
        let _server = host::as_server();
        let inner = self.inner.snapshot(taken, places)?;
        Ok(Arc::new(Self { inner, whom: self.whom.clone() }))
    }

    fn name_in_snapshot(&self, taken: Moment, name: &Name) -> VfsResult<Option<Name>> {
        let _acting = self.whom.act()?;
        self.inner.name_in_snapshot(taken, name)
    }

    fn shows_locks(&self) -> bool {
        self.inner.shows_locks()
    }

    /// The right to list a directory allows watching it. The server watches once for all
    /// users.
    fn observe(
        &self,
        node: &dyn Node,
        is_tree: bool,
        observer: Observer,
    ) -> VfsResult<Box<dyn Observation>> {
        let _server = host::as_server();
        self.inner.observe(inner_of(node), is_tree, observer)
    }
}

/// Something open as somebody uses it.
#[derive(Debug)]
struct ActingNode {
    inner: Arc<dyn Node>,
    whom: Whom,
}

impl Node for ActingNode {
    fn key(&self) -> FileKey {
        self.inner.key()
    }

    fn descriptor(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.inner.descriptor()
    }

    fn stat(&self) -> VfsResult<Stat> {
        let _acting = self.whom.act()?;
        self.inner.stat()
    }

    fn stat_without_eas(&self) -> VfsResult<Stat> {
        let _acting = self.whom.act()?;
        self.inner.stat_without_eas()
    }

    fn data_device(&self) -> Option<(u32, u32)> {
        self.inner.data_device()
    }

    fn is_read_only(&self) -> VfsResult<bool> {
        let _acting = self.whom.act()?;
        self.inner.is_read_only()
    }

    fn takes_changes(&self) -> VfsResult<()> {
        let _acting = self.whom.act()?;
        self.inner.takes_changes()
    }

    /// Asked for each write: no call of the host, but on a share that is written once, which asks as the
    /// server.
    fn takes_data(&self) -> VfsResult<()> {
        self.inner.takes_data()
    }

    /// Users may not be able to read what is stored of the commitment.
    fn commitment(&self) -> VfsResult<Commitment> {
        let _server = host::as_server();
        self.inner.commitment()
    }

    /// Users may not be able to commit a file, which is no act of theirs.
    fn commit(&self, at: FileTime) -> VfsResult<()> {
        self.whom.check_gate()?;
        let _server = host::as_server();
        self.inner.commit(at)
    }

    fn release(&self) -> VfsResult<()> {
        self.whom.check_gate()?;
        let _server = host::as_server();
        self.inner.release()
    }

    fn birth(&self) -> Option<FileTime> {
        let _acting = self.whom.act().ok()?;
        self.inner.birth()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> VfsResult<usize> {
        let _acting = self.whom.act()?;
        self.inner.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> VfsResult<()> {
        let _acting = self.whom.act_to_change()?;
        self.inner.write_at(offset, data)
    }

    fn sync(&self) -> VfsResult<()> {
        let _acting = self.whom.act()?;
        self.inner.sync()
    }

    fn sync_all(&self) -> VfsResult<()> {
        let _acting = self.whom.act()?;
        self.inner.sync_all()
    }

    fn is_synced_by_descriptor(&self) -> bool {
        self.inner.is_synced_by_descriptor()
    }

    fn set_end_of_file(&self, end: u64) -> VfsResult<()> {
        let _acting = self.whom.act_to_change()?;
        self.inner.set_end_of_file(end)
    }

    fn set_allocation(&self, bytes: u64) -> VfsResult<()> {
        let _acting = self.whom.act_to_change()?;
        self.inner.set_allocation(bytes)
    }

    fn set_basic(&self, change: &BasicChange) -> VfsResult<()> {
        let _acting = self.whom.act_to_change()?;
        self.inner.set_basic(change)
    }

    fn streams(&self) -> VfsResult<Vec<StreamStat>> {
        let _acting = self.whom.act()?;
        self.inner.streams()
    }

    fn clear_streams(&self) -> VfsResult<()> {
        let _acting = self.whom.act_to_change()?;
        self.inner.clear_streams()
    }

    fn has_entries(&self) -> VfsResult<bool> {
        let _acting = self.whom.act()?;
        self.inner.has_entries()
    }

    fn directory(&self) -> VfsResult<Box<dyn Directory>> {
        let _acting = self.whom.act()?;
        let inner = self.inner.directory()?;
        Ok(Box::new(ActingDirectory { inner, whom: self.whom.clone() }))
    }

    fn eas(&self) -> VfsResult<Vec<(String, Vec<u8>)>> {
        let _acting = self.whom.act()?;
        self.inner.eas()
    }

    fn set_ea(&self, name: &str, value: &[u8]) -> VfsResult<()> {
        let _acting = self.whom.act_to_change()?;
        self.inner.set_ea(name, value)
    }

    fn needed_eas(&self) -> VfsResult<Vec<String>> {
        let _acting = self.whom.act()?;
        self.inner.needed_eas()
    }

    fn set_ea_needed(&self, name: &str, needed: bool) -> VfsResult<()> {
        let _acting = self.whom.act_to_change()?;
        self.inner.set_ea_needed(name, needed)
    }

    fn set_eas(&self, changes: &[EaChange<'_>]) -> VfsResult<()> {
        let _acting = self.whom.act_to_change()?;
        self.inner.set_eas(changes)
    }

    fn link_target(&self) -> VfsResult<String> {
        let _acting = self.whom.act()?;
        self.inner.link_target()
    }

    fn device(&self) -> Option<(u32, u32)> {
        self.inner.device()
    }

    fn is_hidden_by_name(&self) -> bool {
        self.inner.is_hidden_by_name()
    }

    fn reparse_buffer(&self) -> VfsResult<Vec<u8>> {
        let _acting = self.whom.act()?;
        self.inner.reparse_buffer()
    }

    fn keep_reparse(&self, buffer: Option<&[u8]>) -> VfsResult<()> {
        let _acting = self.whom.act_to_change()?;
        self.inner.keep_reparse(buffer)
    }

    fn object_id(&self) -> VfsResult<Option<ObjectId>> {
        let _acting = self.whom.act()?;
        self.inner.object_id()
    }

    fn change_object_id(&self, change: &ObjectIdChange) -> VfsResult<()> {
        let _acting = self.whom.act_to_change()?;
        self.inner.change_object_id(change)
    }

    fn security(&self) -> VfsResult<Security> {
        let _acting = self.whom.act()?;
        self.inner.security()
    }

    fn stored_security(&self) -> VfsResult<Option<Vec<u8>>> {
        let _acting = self.whom.act()?;
        self.inner.stored_security()
    }

    fn set_security(&self, change: &SecurityChange<'_>) -> VfsResult<()> {
        let _acting = self.whom.act_to_change()?;
        self.inner.set_security(change)
    }

    fn host_access(&self) -> HostAccess {
        match self.whom.act() {
            Ok(_acting) => self.inner.host_access(),
            Err(_) => HostAccess { read: false, write: false, execute: false, owner: false },
        }
    }

    fn show_lock(&self, lock: HostLock) -> VfsResult<bool> {
        let _acting = self.whom.act()?;
        self.inner.show_lock(lock)
    }

    fn share_extents(&self, source: &dyn Node, copy: &ExtentCopy) -> VfsResult<()> {
        let _acting = self.whom.act_to_change()?;
        self.inner.share_extents(inner_of(source), copy)
    }

    fn set_compressed(&self, compressed: bool) -> VfsResult<()> {
        let _acting = self.whom.act_to_change()?;
        self.inner.set_compressed(compressed)
    }

    fn volume_space(&self, uid: Option<u32>) -> VfsResult<Option<VolumeSpace>> {
        let _acting = self.whom.act()?;
        self.inner.volume_space(uid)
    }

    fn zero(&self, first: u64, length: u64, punch: bool) -> VfsResult<()> {
        let _acting = self.whom.act_to_change()?;
        self.inner.zero(first, length, punch)
    }

    fn allocated(&self, first: u64, beyond: u64, limit: usize) -> VfsResult<Allocated> {
        let _acting = self.whom.act()?;
        self.inner.allocated(first, beyond, limit)
    }

    fn extents_on_disk(&self, first: u64, limit: usize) -> VfsResult<DiskExtents> {
        let _acting = self.whom.act()?;
        self.inner.extents_on_disk(first, limit)
    }
}

/// A directory as somebody lists it.
#[derive(Debug)]
struct ActingDirectory {
    inner: Box<dyn Directory>,
    whom: Whom,
}

impl Directory for ActingDirectory {
    fn next_name(&mut self) -> VfsResult<Option<&str>> {
        let _acting = self.whom.act()?;
        self.inner.next_name()
    }

    fn entry_stat(&mut self) -> VfsResult<Option<Stat>> {
        let _acting = self.whom.act()?;
        self.inner.entry_stat()
    }

    fn plain_access(&mut self) -> Option<HostAccess> {
        let _acting = self.whom.act().ok()?;
        self.inner.plain_access()
    }

    fn rewind(&mut self) -> VfsResult<()> {
        let _acting = self.whom.act()?;
        self.inner.rewind()
    }

    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
}

#[cfg(test)]
mod tests {
    /// Methods with a body of their own, were they not passed on, would answer for
    /// a file system that can do nothing.
    #[test]
    fn every_method_is_passed_on() {
        let traits = concat!(
            include_str!("../../../store/src/vfs.rs"),
            include_str!("../../../store/src/vfs/node.rs"),
            include_str!("../../../store/src/vfs/directory.rs"),
        );
        let own = include_str!("impersonation.rs");
        for (of, implementation) in [
            ("pub trait Vfs:", "impl Vfs for ActingVfs {"),
            ("pub trait Node:", "impl Node for ActingNode {"),
            ("pub trait Directory:", "impl Directory for ActingDirectory {"),
        ] {
            let body = |text: &'static str, from: &str| {
                let (_, rest) = text.split_once(from).unwrap();
                rest.split_once("\n}\n").unwrap().0
            };
            let passed_on = body(own, implementation);
            let mut count = 0;
            for line in body(traits, of).lines() {
                let Some(name) = line.strip_prefix("    fn ") else { continue };
                let name = name.split_once('(').unwrap().0;
                assert!(passed_on.contains(&format!("    fn {name}(")), "{of} {name}");
                count += 1;
            }
            assert!(count > 2, "{of}");
        }
    }
}
