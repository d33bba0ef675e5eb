//! The file system that all nodes have in common: each node has a mount of it, with an identity that a
//! fence refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use frevo_store::memory::{BegunWrite, Faults, MemoryVfs, Operation};
use frevo_store::name::Name;
use frevo_store::vfs::{Node, OpenHow, Opened, Replacement, Space, Stat, VfsResult, Volume};
use frevo_store::{Fault, FileKey, Vfs};
use parking_lot::Mutex;

/// The fault of a mount that is refused: ENOTCONN.
const REFUSED: Fault = Fault::Io(107);

/// The number of an identity: of a FUSE connection.
pub(super) type Connection = u32;

/// The files of one unit, and the identities that the nodes have there.
#[derive(Debug)]
pub(super) struct Storage {
    /// The files, as nobody's fence refuses them.
    files: MemoryVfs,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The present identity of each node.
    connections: BTreeMap<usize, Connection>,
    mounts: BTreeMap<Connection, Mount>,
    last: Connection,
    last_view: ViewId,
    /// Nodes that do not reach the file system.
    cut: BTreeSet<usize>,
}

/// The number of a view.
type ViewId = u64;

/// A mount, which processes of its node use one after the other.
#[derive(Debug, Default)]
struct Mount {
    /// True after a fence, and after the machine has lost the file system.
    is_refused: bool,
    /// The views of processes that live.
    views: BTreeMap<ViewId, Faults>,
}

impl Mount {
    fn refuse(&mut self) {
        self.is_refused = true;
        self.views.values().for_each(|view| view.refuse(Some(REFUSED)));
    }
}

/// A hook that hears of each call of a process.
pub(super) type AtCall = Arc<dyn Fn(Operation, &Faults) + Send + Sync>;

/// The unit's files as one process sees them. When the node gets a new identity, files that were open
/// stay refused, and new ones are opened by it.
pub(super) struct View {
    storage: Arc<Storage>,
    node: usize,
    present: Mutex<Mounted>,
    at_call: AtCall,
}

/// The mount that a process uses.
#[derive(Debug, Clone)]
struct Mounted {
    connection: Connection,
    view: ViewId,
    files: Arc<MemoryVfs>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Storage {
    /// A file system without files that nobody has mounted.
    pub(super) fn new(files: MemoryVfs) -> Arc<Self> {
        Arc::new(Self { files, state: Mutex::default() })
    }

    /// The names and contents of all files.
    pub(super) fn contents(&self) -> Vec<(String, Vec<u8>)> {
        let all = self.files.contents().into_iter();
        all.map(|(name, bytes)| (name.to_string(), bytes)).collect()
    }

    /// Refuses all that comes by this identity from now on.
    pub(super) fn fence(&self, connection: Connection) {
        if let Some(mount) = self.state.lock().mounts.get_mut(&connection) {
            mount.refuse();
        }
    }

    /// True for a node that does not reach the file system.
    pub(super) fn is_cut(&self, node: usize) -> bool {
        self.state.lock().cut.contains(&node)
    }

    /// Cuts a node off from the file system: its mount is lost for good. Or lets it mount it again.
    pub(super) fn cut(&self, node: usize, is_cut: bool) {
        let mut state = self.state.lock();
        if is_cut {
            state.cut.insert(node)
        } else {
            state.cut.remove(&node)
        };
        let Some(connection) = state.connections.get(&node).copied() else { return };
        if let Some(mount) = state.mounts.get_mut(&connection).filter(|_| is_cut) {
            mount.refuse();
        }
    }

    /// Returns the identity of a node: a new one if the last is refused. It is refused, too, while the node
    /// is cut off.
    fn connection(&self, node: usize) -> Connection {
        let mut state = self.state.lock();
        let present = state.connections.get(&node).copied();
        let is_good = |connection: &Connection| {
            state.mounts.get(connection).is_some_and(|mount| !mount.is_refused)
        };
        if let Some(present) = present.filter(is_good) {
            return present;
        }
        state.last += 1;
        let new = state.last;
        state.connections.insert(node, new);
        let is_refused = state.cut.contains(&node);
        state.mounts.insert(new, Mount { is_refused, ..Mount::default() });
        new
    }

    fn mount(&self, connection: Connection) -> Mounted {
        let files = Arc::new(self.files.mount());
        let mut state = self.state.lock();
        state.last_view += 1;
        let view = state.last_view;
        let mount = state.mounts.entry(connection).or_default();
        files.faults().refuse(mount.is_refused.then_some(REFUSED));
        mount.views.insert(view, files.faults().clone());
        Mounted { connection, view, files }
    }

    fn unmount(&self, mounted: &Mounted) {
        if let Some(mount) = self.state.lock().mounts.get_mut(&mounted.connection) {
            mount.views.remove(&mounted.view);
        }
        mounted.files.faults().refuse(Some(REFUSED));
        mounted.files.faults().at_call(None);
    }
}

impl View {
    /// The files as a new process of `node` sees them; `at_call` hears of each of its calls.
    pub(super) fn new(storage: &Arc<Storage>, node: usize, at_call: AtCall) -> Arc<Self> {
        let connection = storage.connection(node);
        let present = Mutex::new(storage.mount(connection));
        let view = Self { storage: Arc::clone(storage), node, present, at_call };
        view.listen();
        Arc::new(view)
    }

    fn present(&self) -> Arc<MemoryVfs> {
        Arc::clone(&self.present.lock().files)
    }

    fn listen(&self) {
        let (present, at_call) = (self.present(), Arc::clone(&self.at_call));
        let faults = present.faults().clone();
        present.faults().at_call(Some(Arc::new(move |operation| at_call(operation, &faults))));
    }

    /// Looks at the file system anew, and returns the identity of the node there.
    ///
    /// # Errors
    /// While the node is cut off.
    pub(super) fn look(&self) -> Result<Connection, String> {
        if self.storage.is_cut(self.node) {
            return Err(String::from("the file system does not answer"));
        }
        let connection = self.storage.connection(self.node);
        if self.present.lock().connection != connection {
            let new = self.storage.mount(connection);
            let old = std::mem::replace(&mut *self.present.lock(), new);
            self.storage.unmount(&old);
            self.listen();
        }
        Ok(connection)
    }

    /// Has the next write of the process only begin.
    pub(super) fn stop_in_write(&self, stop: Option<Box<dyn FnOnce(BegunWrite) + Send>>) {
        self.present().faults().stop_in_write(stop);
    }

    /// Ends the view: the process has ended.
    pub(super) fn end(&self) {
        let mounted = self.present.lock().clone();
        self.storage.unmount(&mounted);
    }
}

impl Vfs for View {
    fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        self.present().open(name, how)
    }

    fn remove(&self, name: &Name, key: FileKey) -> VfsResult<()> {
        self.present().remove(name, key)
    }

    fn rename(&self, from: &Name, key: FileKey, to: &Name, replace: bool) -> VfsResult<Name> {
        self.present().rename(from, key, to, replace)
    }

    fn link(&self, node: &dyn Node, to: &Name, replace: bool) -> VfsResult<()> {
        self.present().link(node, to, replace)
    }

    fn replace(&self, name: &Name, node: &dyn Node, by: &Replacement<'_>) -> VfsResult<()> {
        self.present().replace(name, node, by)
    }

    fn stat(&self, name: &Name) -> VfsResult<Stat> {
        self.present().stat(name)
    }

    fn space(&self) -> VfsResult<Space> {
        self.present().space()
    }

    fn volume(&self) -> Arc<Volume> {
        self.present().volume()
    }
}
