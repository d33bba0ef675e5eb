//! Random clients, crashes and restarts: what FLUSH or a write-through WRITE
//! acknowledged is there afterwards, byte for byte.

use std::collections::BTreeMap;

use frevo_store::Fault;
use frevo_store::memory::Operation;
use frevo_wire::command::create::CreateOptions;
use frevo_wire::fscc::FileInfoClass;
use proptest::prelude::*;

use super::disk::*;
use crate::client::files::{close_draft, delete_draft, flush_draft, rename_draft, write_draft};
use crate::client::*;

const NAMES: [&str; 4] = ["a", "b", "d\\c", "d\\e"];

#[derive(Debug, Clone)]
enum Step {
    /// Opens or makes a file, perhaps with FILE_WRITE_THROUGH.
    Open(usize, bool),
    Close(usize),
    Write {
        file: usize,
        offset: u16,
        len: u16,
        byte: u8,
        through: bool,
    },
    Flush(usize),
    SetEnd(usize, u16),
    Rename(usize, usize),
    Delete(usize),
    FailSync,
    FailWrite,
    /// Keeps the least that it may.
    Crash,
    /// Keeps some of the rest.
    CrashSome(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let file = 0..NAMES.len();
    prop_oneof![
        4 => (file.clone(), any::<bool>()).prop_map(|(f, t)| Step::Open(f, t)),
        1 => file.clone().prop_map(Step::Close),
        8 => (file.clone(), 0..20_000u16, 1..9_000u16, 1..=u8::MAX, prop::bool::weighted(0.2))
            .prop_map(|(file, offset, len, byte, through)| {
                Step::Write { file, offset, len, byte, through }
            }),
        3 => file.clone().prop_map(Step::Flush),
        1 => (file.clone(), 0..20_000u16).prop_map(|(f, end)| Step::SetEnd(f, end)),
        2 => (file.clone(), file.clone()).prop_map(|(a, b)| Step::Rename(a, b)),
        1 => file.prop_map(Step::Delete),
        1 => Just(Step::FailSync),
        1 => Just(Step::FailWrite),
        1 => Just(Step::Crash),
        1 => any::<u64>().prop_map(Step::CrashSome),
    ]
}

/// A file, whatever its name is.
#[derive(Debug, Clone, Default)]
struct Content {
    now: Vec<u8>,
    /// At its last sync; nothing when there was none.
    acknowledged: Vec<u8>,
    /// Bytes that may differ from what was acknowledged.
    doubtful: Vec<bool>,
    /// Its end may differ.
    doubtful_end: bool,
}

impl Content {
    fn doubt(&mut self, from: usize, to: usize) {
        self.doubtful.resize(self.doubtful.len().max(to), false);
        self.doubtful[from..to].fill(true);
    }

    fn write(&mut self, offset: usize, len: usize, byte: u8) {
        let end = offset + len;
        if end > self.now.len() {
            // The bytes between the old and the new end are in doubt, because after a crash they
            // may be zeros or missing.
            self.doubt(self.now.len(), end);
            self.doubtful_end = true;
            self.now.resize(end, 0);
        }
        self.doubt(offset, end);
        self.now[offset..end].fill(byte);
    }

    fn set_end(&mut self, end: usize) {
        let (low, high) = (end.min(self.now.len()), end.max(self.now.len()));
        self.doubt(low, high);
        self.doubtful_end |= low != high;
        self.now.resize(end, 0);
    }

    fn acknowledge(&mut self) {
        self.acknowledged = self.now.clone();
        self.doubtful.clear();
        self.doubtful_end = false;
    }

    /// True when a crash can have left `found`.
    fn agrees(&self, found: &[u8]) -> bool {
        let is_doubtful = |at: usize| self.doubtful.get(at).copied().unwrap_or(false);
        let end = self.doubtful_end || found.len() == self.acknowledged.len();
        let pairs = found.iter().zip(&self.acknowledged).enumerate();
        end && pairs.into_iter().all(|(at, (a, b))| a == b || is_doubtful(at))
            && (found.len()..self.acknowledged.len()).all(is_doubtful)
    }
}

type Names = BTreeMap<usize, u32>;

#[derive(Debug, Clone, Copy)]
struct Handle {
    file: FileId,
    /// All its writes go through.
    through: bool,
    /// It heard of a sync that failed: no other succeeds.
    failed: bool,
}

/// The knowledge of the client.
#[derive(Debug, Default)]
struct Model {
    files: BTreeMap<u32, Content>,
    next: u32,
    names: Names,
    /// The names when something was last acknowledged.
    acknowledged: Names,
    /// A name was made, moved or taken away since then. A crash can keep half
    /// of a rename, also when a second rename gave the file its old name back.
    names_changed: bool,
    /// Open files by their present name.
    open: BTreeMap<usize, Handle>,
}

impl Model {
    fn content(&mut self, name: usize) -> &mut Content {
        let id = self.names[&name];
        self.files.get_mut(&id).unwrap()
    }

    /// The server said that the file is on stable storage, and so is what was
    /// done to directories before.
    fn acknowledge(&mut self, name: usize) {
        self.acknowledge_names();
        self.content(name).acknowledge();
    }

    fn acknowledge_names(&mut self) {
        self.acknowledged = self.names.clone();
        self.names_changed = false;
    }

    /// Takes over the files that a crash left, after they were checked.
    fn restart(&mut self, found: BTreeMap<usize, Vec<u8>>) {
        self.open.clear();
        self.files.clear();
        self.names.clear();
        for (name, bytes) in found {
            self.next += 1;
            let content = Content { now: bytes.clone(), acknowledged: bytes, ..Content::default() };
            self.files.insert(self.next, content);
            self.names.insert(name, self.next);
        }
        self.acknowledged = self.names.clone();
        self.names_changed = false;
    }
}

/// A client on a server that may crash.
struct Client {
    disk: Disk,
    peer: Peer,
    mount: Mount,
    model: Model,
}

impl Client {
    async fn new() -> Self {
        let disk = Disk::new(empty());
        let (mut peer, mount) = disk.session().await;
        let dir = peer.open_file(&mount, &Want::directory("d")).await;
        peer.on(&mount, flush_draft(dir)).await.ok();
        peer.close(&mount, dir).await;
        Self { disk, peer, mount, model: Model::default() }
    }

    async fn on(&mut self, draft: Draft) -> Status {
        self.peer.on(&self.mount, draft).await.status()
    }

    async fn run(&mut self, step: &Step) {
        match *step {
            Step::Open(name, through) if !self.model.open.contains_key(&name) => {
                let mode =
                    if through { CreateOptions::WRITE_THROUGH } else { CreateOptions::EMPTY };
                let want = Want::file(NAMES[name]).options(mode);
                let reply = self.peer.create(&self.mount, &want).await;
                let is_new = !self.model.names.contains_key(&name);
                if reply.status() == Status::UNEXPECTED_IO_ERROR && through && is_new {
                    // The CREATE made the file but could not make it stable, so the server removed
                    // it again.
                    self.model.names_changed = true;
                    return;
                }
                let file = files::file_id(reply.ok());
                self.model.open.insert(name, Handle { file, through, failed: false });
                if is_new {
                    self.model.next += 1;
                    self.model.names.insert(name, self.model.next);
                    self.model.names_changed = true;
                    self.model.files.insert(self.model.next, Content::default());
                    if through {
                        self.model.acknowledge(name);
                    }
                }
            }
            Step::Close(name) => {
                if let Some(handle) = self.model.open.remove(&name) {
                    self.peer.close(&self.mount, handle.file).await;
                }
            }
            Step::Write { file, offset, len, byte, through } => {
                self.write(file, offset.into(), len.into(), byte, through).await;
            }
            Step::Flush(name) => {
                let Some(&handle) = self.model.open.get(&name) else { return };
                let status = self.on(flush_draft(handle.file)).await;
                self.synced(name, handle, status);
            }
            Step::SetEnd(name, end) => {
                let Some(&handle) = self.model.open.get(&name) else { return };
                let status = self.on(end_draft(handle.file, end.into())).await;
                self.model.content(name).set_end(end.into());
                self.changed(name, handle, status);
            }
            Step::Rename(from, to) if from != to && !self.model.open.contains_key(&to) => {
                let Some(&handle) = self.model.open.get(&from) else { return };
                let rename = rename_draft(FileInfoClass::RENAME, handle.file, NAMES[to], true);
                let status = self.on(rename).await;
                let id = self.model.names.remove(&from).unwrap();
                self.model.names.insert(to, id);
                self.model.names_changed = true;
                self.model.open.remove(&from);
                self.model.open.insert(to, handle);
                self.changed(to, handle, status);
            }
            Step::Delete(name) => {
                let Some(handle) = self.model.open.remove(&name) else { return };
                assert_eq!(self.on(delete_draft(handle.file)).await, Status::SUCCESS);
                let status = self.on(close_draft(handle.file)).await;
                self.model.names.remove(&name);
                self.model.names_changed = true;
                if handle.through && status == Status::SUCCESS {
                    self.model.acknowledge_names();
                } else if status != Status::SUCCESS {
                    assert!(handle.through && status == Status::UNEXPECTED_IO_ERROR);
                }
            }
            Step::FailSync => self.disk.faults().fail_next(Operation::Sync, Fault::Io(5)),
            Step::FailWrite => self.disk.faults().fail_next(Operation::Write, Fault::DiskFull),
            Step::Crash => self.crash(None).await,
            Step::CrashSome(bits) => self.crash(Some(bits)).await,
            Step::Open(..) | Step::Rename(..) => {}
        }
    }

    async fn write(&mut self, name: usize, offset: usize, len: usize, byte: u8, through: bool) {
        let Some(&handle) = self.model.open.get(&name) else { return };
        let data = vec![byte; len];
        let draft = if through {
            write_through_draft(handle.file, offset as u64, &data)
        } else {
            write_draft(handle.file, offset as u64, &data)
        };
        let status = self.on(draft).await;
        if status == Status::DISK_FULL {
            // The disk's planned fault made this write fail, so the content has not changed.
            return;
        }
        self.model.content(name).write(offset, len, byte);
        if through || handle.through {
            self.synced(name, handle, status);
        } else {
            assert_eq!(status, Status::SUCCESS);
        }
    }

    /// The answer to a change of the size or the name.
    fn changed(&mut self, name: usize, handle: Handle, status: Status) {
        if handle.through {
            self.synced(name, handle, status);
        } else {
            assert_eq!(status, Status::SUCCESS);
        }
    }

    /// The answer to what should have reached stable storage.
    fn synced(&mut self, name: usize, handle: Handle, status: Status) {
        if status == Status::SUCCESS {
            assert!(!handle.failed, "acknowledged after a loss");
            self.model.acknowledge(name);
        } else {
            assert_eq!(status, Status::UNEXPECTED_IO_ERROR);
            self.model.open.insert(name, Handle { failed: true, ..handle });
        }
    }

    /// The power fails, a server starts on what is left, and the client looks.
    async fn crash(&mut self, some: Option<u64>) {
        let vfs = some.map_or_else(
            || self.disk.vfs.crash(),
            |mut bits| {
                self.disk.vfs.crash_with(&mut || {
                    bits = bits.rotate_left(1);
                    bits & 1 == 1
                })
            },
        );
        let disk = Disk::new(vfs);
        let (peer, mount) = disk.session().await;
        self.mount = mount;
        drop(std::mem::replace(&mut self.peer, peer));
        let old = std::mem::replace(&mut self.disk, disk);
        old.world.wind_up().await;
        let found = self.look().await;
        if some.is_none() {
            let expected: BTreeMap<_, _> = (self.model.acknowledged.iter())
                .map(|(name, id)| (*name, self.model.files[id].acknowledged.clone()))
                .collect();
            assert_eq!(found, expected);
        } else if !self.model.names_changed {
            for (name, id) in &self.model.names {
                let content = found.get(name).expect(NAMES[*name]);
                assert!(self.model.files[id].agrees(content), "{}", NAMES[*name]);
            }
        }
        self.model.restart(found);
    }

    /// Every file that there is, read through the server.
    async fn look(&mut self) -> BTreeMap<usize, Vec<u8>> {
        let mut found = BTreeMap::new();
        for (at, name) in NAMES.iter().enumerate() {
            let reply = self.peer.create(&self.mount, &Want::existing(name)).await;
            if reply.status() == Status::SUCCESS {
                let file = files::file_id(&reply);
                found.insert(at, self.peer.whole(&self.mount, file).await);
                self.peer.close(&self.mount, file).await;
            } else {
                reply.expect(Status::OBJECT_NAME_NOT_FOUND);
            }
        }
        found
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_acknowledged_survives(steps in prop::collection::vec(step(), 10..80)) {
        survives(&steps);
    }
}

/// A file gets its old name back, and the crash keeps half of the renames.
#[test]
fn a_rename_that_is_not_acknowledged_may_be_lost() {
    survives(&[
        Step::Open(0, false),
        Step::Flush(0),
        Step::Rename(0, 2),
        Step::Rename(2, 0),
        Step::CrashSome(1 << 63),
    ]);
}

/// Runs the steps, then compares with the model before and after a crash.
fn survives(steps: &[Step]) {
    block_on(async {
        let mut client = Client::new().await;
        for step in steps {
            client.run(step).await;
        }
        // There was no crash, so the client must read all that it wrote.
        client.disk.faults().heal();
        let expected: BTreeMap<_, _> = (client.model.names.iter())
            .map(|(name, id)| (*name, client.model.files[id].now.clone()))
            .collect();
        assert_eq!(client.look().await, expected);
        client.crash(None).await;
        let Client { disk, peer, .. } = client;
        drop(peer);
        disk.world.wind_up().await;
    });
}
