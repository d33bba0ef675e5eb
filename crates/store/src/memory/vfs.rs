//! [`MemoryVfs`]: looks up, creates, renames and removes names.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::any::Any;

use frevo_wire::dtyp::FileTime;
use parking_lot::Mutex;

use super::content::Content;
use super::faults::{Faults, Operation};
use super::node::MemoryNode;
use super::options::{Clock, MemoryOptions};
use super::quotas::Quotas;
use super::shared::Shared;
use super::stable::State;
use super::tree::{self, Body, Change, Edit, Entries, Ino, Inode, Location, ROOT, Tree};
use crate::limits::{MEMORY_COMPONENT_BYTES, MEMORY_PAGE_BYTES};
use crate::name::Name;
use crate::vfs::{
    Existence, Fault, FileKey, Kind, KindWanted, Node, OpenHow, Opened, QuotaLimits, QuotaState,
    Replacement, STORED_ATTRIBUTES, Space, Stat, UserQuota, Vfs, VfsResult, Volume, VolumeIdentity,
};

/// Permission bits that a new file or directory may have.
const MODE_MASK: u32 = 0o755;

/// A file system in memory. See the [module](super) for its guarantees.
#[derive(Debug)]
pub struct MemoryVfs {
    pub(super) shared: Arc<Shared>,
}

impl MemoryVfs {
    /// Makes an empty file system whose times come from `clock`.
    pub fn new(options: MemoryOptions, clock: Clock) -> Self {
        let faults = Faults::new(options.capacity);
        let born = clock();
        let volume = Volume {
            serial: options.serial,
            identity: VolumeIdentity::UNKNOWN,
            created: born,
            file_system: options.file_system_name.clone(),
            max_component: u32::try_from(MEMORY_COMPONENT_BYTES).unwrap_or(u32::MAX),
            sparse: true,
            hard_links: true,
            xattrs: true,
            posix_names: true,
            streams: true,
            read_only: options.read_only,
            shares_extents: true,
            compresses: false,
            cluster: u32::try_from(MEMORY_PAGE_BYTES).unwrap_or(u32::MAX),
            physical_sector: 512,
            descriptors: true,
            short_names: false,
        };
        let state = Arc::new(Mutex::new(State::new(born)));
        let quotas = Quotas::of(&options).map(Arc::new);
        Self {
            shared: Arc::new(Shared {
                state,
                faults,
                volume: Arc::new(volume),
                quotas,
                options,
                clock,
            }),
        }
    }

    /// Returns the controls for injected failures.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Returns another mount of the same files, as of a second machine that uses the file system:
    /// with failures of its own.
    pub fn mount(&self) -> Self {
        let shared = Shared {
            state: Arc::clone(&self.shared.state),
            faults: Faults::new(self.shared.faults.capacity()),
            volume: Arc::clone(&self.shared.volume),
            quotas: self.shared.quotas.clone(),
            options: self.shared.options.clone(),
            clock: Arc::clone(&self.shared.clock),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the file system as it is after a power failure at this moment that loses everything
    /// unsynced: another one, with this one's capacity and without planned faults. This one
    /// continues unaffected.
    pub fn crash(&self) -> Self {
        self.crash_with(&mut || false)
    }

    /// Returns the file system after a power failure in which some unsynced changes survive: those
    /// for which `survives` returns true, asked for changes of directories in their order up to the
    /// first false, then for changed pages and sizes of files.
    pub fn crash_with(&self, survives: &mut dyn FnMut() -> bool) -> Self {
        let state = self.shared.state.lock().after_crash(survives);
        let shared = Shared {
            state: Arc::new(Mutex::new(state)),
            faults: Faults::new(self.shared.faults.capacity()),
            volume: Arc::clone(&self.shared.volume),
            // A crash resets the quotas, because no request makes their changes durable.
            quotas: Quotas::of(&self.shared.options).map(Arc::new),
            options: self.shared.options.clone(),
            clock: Arc::clone(&self.shared.clock),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Makes a symbolic link, which clients cannot do.
    pub fn symlink(&self, name: &Name, target: &str) -> VfsResult<()> {
        let now = self.shared.now();
        let mut state = self.shared.state.lock();
        let place = state.live.place(name, false)?;
        if state.live.find(place.dir, &place.wanted, false).is_some() {
            return Err(Fault::Exists);
        }
        let inode = Inode::new(Body::Symlink(String::from(target)), 0o777, now);
        add(&mut state, &place, inode, now);
        Ok(())
    }

    /// Returns the name and content of every file, by name and without faults, for tests.
    /// Directories and links are left out.
    pub fn contents(&self) -> Vec<(Name, Vec<u8>)> {
        let state = self.shared.state.lock();
        let mut found = Vec::new();
        let mut left = vec![(Name::root(), ROOT)];
        while let Some((name, dir)) = left.pop() {
            let Some(entries) = state.live.entries(dir) else { continue };
            let mut last = None;
            while let Some(key) = entries.after(last) {
                last = Some(key);
                let Some((_, ino, inode)) = state.live.find(dir, &key.name, true) else { continue };
                let name = name.child(&key.name);
                match &inode.body {
                    Body::File(content) => {
                        let mut bytes = vec![0; usize::try_from(content.end()).unwrap_or(0)];
                        content.read(0, &mut bytes);
                        found.push((name, bytes));
                    }
                    Body::Directory(_) => left.push((name, ino)),
                    Body::Symlink(_) | Body::Special(_) => {}
                }
            }
        }
        found.sort_by(|a, b| a.0.path().cmp(b.0.path()));
        found
    }

    /// Makes a node of `ino`. It must not be dropped under the lock.
    fn node(
        &self,
        state: &mut State,
        ino: Ino,
        how: &OpenHow,
        entry: &str,
    ) -> VfsResult<OpenedNode> {
        let inode = state.live.0.get(&ino).ok_or(Fault::Stale)?;
        let hidden = self.shared.hides(entry);
        let stat = self.shared.stat(ino, inode, hidden);
        let node = MemoryNode::new(Arc::clone(&self.shared), ino, stat.kind, how, hidden);
        state.open(ino);
        Ok((node, stat))
    }

    pub(super) fn open_found(
        &self,
        name: &Name,
        how: &OpenHow,
    ) -> VfsResult<(OpenedNode, Name, bool)> {
        let mut state = self.shared.state.lock();
        let exact = how.case_sensitive || name.is_exact();
        tree::check_name(name, exact)?;
        if name.is_root() {
            if how.existence == Existence::MustNotExist {
                return Err(Fault::Exists);
            }
            how.check(Kind::Directory)?;
            return Ok((self.node(&mut state, ROOT, how, "")?, Name::root(), false));
        }
        let place = state.live.place(name, exact)?;
        let found = state.live.find(place.dir, &place.wanted, exact);
        if let Some((stored, ino, inode)) = found {
            if how.existence == Existence::MustNotExist {
                return Err(Fault::Exists);
            }
            how.check(inode.kind())?;
            if let Body::Symlink(target) = &inode.body {
                how.check_link(target.as_bytes())?;
            }
            let stored = String::from(stored);
            let name = place.parent.child(&stored);
            return Ok((self.node(&mut state, ino, how, &stored)?, name, false));
        }
        if how.existence == Existence::MustExist {
            return Err(Fault::NotFound);
        }
        self.shared.writable()?;
        self.shared.faults.pass(Operation::Create)?;
        let now = self.shared.now();
        let ino = add(&mut state, &place, new_inode(how, now), now);
        let name = place.parent.child(&place.wanted);
        Ok((self.node(&mut state, ino, how, &place.wanted)?, name, true))
    }
}

/// A node, and its state at the time of its opening.
pub(super) type OpenedNode = (MemoryNode, Stat);

fn new_inode(how: &OpenHow, now: FileTime) -> Inode {
    let (body, mode) = if how.kind == KindWanted::Directory {
        (Body::Directory(Entries::default()), 0o777)
    } else {
        (Body::File(Content::default()), 0o666)
    };
    let mut inode = Inode::new(body, how.mode.map_or(mode & MODE_MASK, |mode| mode & 0o7777), now);
    inode.meta.attributes = how.attributes & STORED_ATTRIBUTES;
    inode
}

/// Gives a new file its name.
fn add(state: &mut State, place: &Location, inode: Inode, now: FileTime) -> Ino {
    let ino = state.number();
    let edit = Edit { dir: place.dir, name: place.wanted.clone(), to: Some(ino) };
    let change = Change { edits: vec![edit], made: Some((ino, Arc::new(inode))) };
    state.change(change, now);
    ino
}

/// A present entry: its stored name, its file, and the file's kind.
type There = (String, Ino, Kind);

/// Returns the file that a name means, without its stream, and its entry.
pub(super) fn file_of(tree: &Tree, name: &Name) -> VfsResult<(Ino, String)> {
    if name.path().is_empty() {
        return Ok((ROOT, String::new()));
    }
    let place = tree.place(name, name.is_exact())?;
    let (stored, ino, _) = there(tree, &place, name.is_exact()).ok_or(Fault::NotFound)?;
    Ok((ino, stored))
}

fn there(tree: &Tree, place: &Location, exact: bool) -> Option<There> {
    let (stored, ino, inode) = tree.find(place.dir, &place.wanted, exact)?;
    Some((String::from(stored), ino, inode.kind()))
}

impl Vfs for MemoryVfs {
    fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        self.shared.faults.pass(Operation::Open)?;
        if how.write && how.existence != Existence::MustNotExist {
            self.shared.writable()?;
        }
        if name.stream().is_some() {
            return self.open_stream(name, how);
        }
        let ((node, stat), name, created) = self.open_found(name, how)?;
        Ok(Opened {
            node: Arc::new(node),
            stat,
            created,
            file_created: created,
            is_bare: false,
            name,
        })
    }

    fn remove(&self, name: &Name, key: FileKey) -> VfsResult<()> {
        self.shared.faults.pass(Operation::Remove)?;
        self.shared.writable()?;
        let mut state = self.shared.state.lock();
        if name.stream().is_some() {
            return self.shared.remove_stream(&mut state, name, key);
        }
        let place = state.live.place(name, name.is_exact())?;
        let (stored, ino, _) =
            there(&state.live, &place, name.is_exact()).ok_or(Fault::NotFound)?;
        if self.shared.key(ino) != key {
            return Err(Fault::Stale);
        }
        if state.live.entries(ino).is_some_and(|entries| !entries.is_empty()) {
            return Err(Fault::NotEmpty);
        }
        let edits = vec![Edit { dir: place.dir, name: stored, to: None }];
        state.change(Change { edits, made: None }, self.shared.now());
        Ok(())
    }

    fn rename(&self, from: &Name, key: FileKey, to: &Name, replace: bool) -> VfsResult<Name> {
        self.shared.faults.pass(Operation::Rename)?;
        self.shared.writable()?;
        let mut state = self.shared.state.lock();
        if from.stream().is_some() || to.stream().is_some() {
            return self.shared.rename_stream(&mut state, from, key, to, replace);
        }
        let source = state.live.place(from, from.is_exact())?;
        let (stored, ino, kind) =
            there(&state.live, &source, from.is_exact()).ok_or(Fault::NotFound)?;
        if self.shared.key(ino) != key {
            return Err(Fault::Stale);
        }
        let target = state.live.place(to, to.is_exact())?;
        let mut edits = vec![Edit { dir: source.dir, name: stored, to: None }];
        if let Some((existing, other, other_kind)) = there(&state.live, &target, to.is_exact()) {
            // MS-FSA 2.1.5.15.12: if the target is another link of the same file, or its name in
            // another case, nothing is replaced. A directory is never replaced.
            if other != ino {
                let directories = kind == Kind::Directory && other_kind == Kind::Directory;
                if to.is_exact() && directories && replace {
                    // As in POSIX, a directory may replace another directory if that is empty.
                    if state.live.entries(other).is_some_and(|entries| !entries.is_empty()) {
                        return Err(Fault::NotEmpty);
                    }
                } else {
                    check_replace(other_kind, replace)?;
                }
            }
            edits.push(Edit { dir: target.dir, name: existing, to: None });
        }
        if kind == Kind::Directory && target.chain.contains(&ino) {
            // A directory cannot be moved to itself or below itself.
            return Err(Fault::Invalid);
        }
        // The new name is stored with the case of the request.
        edits.push(Edit { dir: target.dir, name: target.wanted.clone(), to: Some(ino) });
        state.change(Change { edits, made: None }, self.shared.now());
        Ok(target.parent.child(&target.wanted))
    }

    fn link(&self, node: &dyn Node, to: &Name, replace: bool) -> VfsResult<()> {
        self.shared.faults.pass(Operation::Link)?;
        self.shared.writable()?;
        let node: &dyn Any = node;
        let node: &MemoryNode = node.downcast_ref().ok_or(Fault::NotSupported)?;
        if !node.is_of(&self.shared) {
            return Err(Fault::CrossDevice);
        }
        if to.stream().is_some() {
            return Err(Fault::NameInvalid);
        }
        let mut state = self.shared.state.lock();
        let ino = node.ino();
        let inode = state.live.0.get(&ino).ok_or(Fault::NotFound)?;
        if inode.kind() == Kind::Directory {
            return Err(Fault::IsADirectory);
        }
        let is_unnamed = inode.meta.links == 0;
        let place = state.live.place(to, to.is_exact())?;
        let mut name = place.wanted.clone();
        if let Some((existing, other, kind)) = there(&state.live, &place, to.is_exact()) {
            if !replace {
                return Err(Fault::Exists);
            }
            if other == ino {
                return Ok(());
            }
            check_replace(kind, replace)?;
            name = existing;
        }
        if is_unnamed {
            // The file has been removed, so it cannot get a new name.
            return Err(Fault::NotFound);
        }
        let edits = vec![Edit { dir: place.dir, name, to: Some(ino) }];
        state.change(Change { edits, made: None }, self.shared.now());
        Ok(())
    }

    fn replace(&self, name: &Name, node: &dyn Node, by: &Replacement<'_>) -> VfsResult<()> {
        self.replace_body(name, node, by)
    }

    fn stat(&self, name: &Name) -> VfsResult<Stat> {
        self.shared.faults.pass(Operation::Stat)?;
        let state = self.shared.state.lock();
        tree::check_name(name, name.is_exact())?;
        let (ino, entry) = file_of(&state.live, name)?;
        let inode = state.live.0.get(&ino).ok_or(Fault::NotFound)?;
        let stat = self.shared.stat(ino, inode, self.shared.hides(&entry));
        match name.stream() {
            Some(stream) => {
                inode.streams.named(stream).ok_or(Fault::NotFound).map(|s| s.stat(stat))
            }
            None => Ok(stat),
        }
    }

    fn space(&self) -> VfsResult<Space> {
        self.shared.faults.pass(Operation::Space)?;
        let free = self.shared.room(&self.shared.state.lock());
        let total = self.shared.total();
        let unit = u32::try_from(MEMORY_PAGE_BYTES).unwrap_or(u32::MAX);
        Ok(Space { unit, total, available: free, free, files: 0, free_files: 0 })
    }

    fn volume(&self) -> Arc<Volume> {
        Arc::clone(&self.shared.volume)
    }

    fn quota_state(&self) -> VfsResult<Option<QuotaState>> {
        Ok(self.shared.quotas.as_deref().map(Quotas::state))
    }

    fn quota(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        Ok(self.quota_from(uid)?.filter(|quota| quota.uid == uid))
    }

    fn quota_from(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        Ok(self.shared.quotas.as_ref().and_then(|quotas| quotas.from(uid)))
    }

    fn set_quota(&self, uid: u32, limits: QuotaLimits) -> VfsResult<()> {
        self.shared.writable()?;
        self.shared.quotas.as_ref().ok_or(Fault::NotSupported)?.set(uid, limits);
        Ok(())
    }

    fn quota_defaults(&self) -> VfsResult<Option<QuotaLimits>> {
        Ok(self.shared.quotas.as_deref().map(Quotas::defaults))
    }

    fn set_quota_defaults(&self, limits: QuotaLimits) -> VfsResult<()> {
        self.shared.writable()?;
        self.shared.quotas.as_ref().ok_or(Fault::NotSupported)?.set_defaults(limits);
        Ok(())
    }
}

/// Refuses a rename or a link that may not replace its target.
fn check_replace(there: Kind, replace: bool) -> VfsResult<()> {
    if !replace {
        return Err(Fault::Exists);
    }
    if there == Kind::Directory { Err(Fault::AccessDenied) } else { Ok(()) }
}
