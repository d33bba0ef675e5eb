//! The server's Opens of a file, which all of its handles share.

use std::sync::{Arc, Weak};

use frevo_client::{Cause, File, Lease, OpenOptions};
use frevo_wire::Status;
use frevo_wire::command::oplock_break::LeaseState;
use fuser::Errno;
use tokio::time::Instant;

use super::Volume;
use super::upkeep::Breaker;
use crate::cache::Content;
use crate::errno::{Outcome, errno};
use crate::limits::KEPT_FILES;
use crate::node::Node;

/// What is asked for to read, and to write.
const READING: LeaseState = LeaseState(LeaseState::READ.0 | LeaseState::HANDLE.0);
pub(super) const WRITING: LeaseState = LeaseState(READING.0 | LeaseState::WRITE.0);

/// The server's Opens of a node: all of its handles use the same ones.
#[derive(Default)]
pub(crate) struct Opens {
    pub(super) files: Vec<Opened>,
    /// Handles.
    pub(super) users: usize,
    /// Where it is to be removed when it is closed: a name for each link.
    hidden: Vec<String>,
    /// Since when it is open for nobody.
    pub(super) kept: Option<Instant>,
}

pub(super) struct Opened {
    /// No other has it.
    pub(super) id: u64,
    pub(super) file: File,
    pub(super) reads: bool,
    pub(super) writes: bool,
}

impl Opens {
    /// Whether there is any.
    pub(crate) const fn is_open(&self) -> bool {
        !self.files.is_empty()
    }

    fn find(&self, reads: bool, writes: bool) -> Option<File> {
        self.best(reads, writes).map(|one| one.file.clone())
    }

    fn best(&self, reads: bool, writes: bool) -> Option<&Opened> {
        let fits = |one: &&Opened| (one.reads || !reads) && (one.writes || !writes);
        // One that writes too is the one that locks are taken with.
        self.files.iter().filter(fits).max_by_key(|one| (one.writes, one.reads))
    }
}

impl Volume {
    /// An Open of the node, if there is one.
    pub(super) fn open_file(&self, node: &Node) -> Option<File> {
        node.opens.lock().find(false, false)
    }

    /// An Open of the node that can write.
    pub(super) fn writer(&self, node: &Node) -> Option<File> {
        node.opens.lock().find(false, true)
    }

    /// An Open of the node that can read.
    pub(super) fn reader(&self, node: &Node) -> Option<File> {
        node.opens.lock().find(true, false)
    }

    /// The node's file goes from `path` when it is closed. The caller holds `opening`.
    pub(super) fn remove_at_close(&self, node: &Node, path: String) {
        node.opens.lock().hidden.push(path);
    }

    /// What is kept of a node's data.
    pub(super) async fn content(&self, node: &Arc<Node>) -> Outcome<Arc<Content>> {
        if let Some(content) = node.content() {
            return Ok(content);
        }
        let lease = self.share.lease_of(&node.path()?).await.map_err(|error| errno(&error))?;
        // Somebody else may have come first.
        if let Some(content) = node.content() {
            return Ok(content);
        }
        self.keep(node, lease);
        node.content().ok_or(Errno::EIO)
    }

    /// What is kept of the node is kept under `lease`.
    pub(super) fn keep(&self, node: &Arc<Node>, lease: Arc<Lease>) {
        let (volume, of) = (Weak::clone(&self.me), Arc::downgrade(node));
        node.keep(Content::new(lease, &self.keeper, Arc::new(Breaker { volume, node: of })));
    }

    /// Makes sure that there is an Open. The caller holds `opening`. What was kept
    /// open does not stay so for nobody.
    pub(super) async fn open_on_server(
        &self,
        node: &Arc<Node>,
        reads: bool,
        writes: bool,
    ) -> Outcome<File> {
        let opened = self.take_or_open(node, reads, writes).await;
        if opened.is_err() && node.opens.lock().users == 0 {
            self.close_all(node).await;
        }
        opened
    }

    async fn take_or_open(&self, node: &Arc<Node>, reads: bool, writes: bool) -> Outcome<File> {
        let content = self.content(node).await?;
        let is_kept = {
            let mut opens = node.opens.lock();
            let is_kept = opens.kept.take().is_some();
            if is_kept {
                self.not_kept(node);
            }
            is_kept
        };
        loop {
            let found = node.opens.lock().best(reads, writes).map(|one| (one.id, one.file.clone()));
            let is_good = || !is_kept || content.lease.grant().state.contains(LeaseState::HANDLE);
            let Some((id, file)) = found.filter(|_| is_good()) else { break };
            match file.confirm().await {
                // With what was locked through it, that is for who locked it to know.
                Err(error) if matches!(error.cause(), Cause::HandleLost) => {
                    if node.locks.lock().await.is_any() {
                        return Err(errno(&error));
                    }
                    node.opens.lock().files.retain(|one| one.id != id);
                }
                other => return other.map(|()| file).map_err(|error| errno(&error)),
            }
        }
        let changes = content.changes();
        let opened = self.open_as(node, &content, writes).await?;
        let file = opened.file.clone();
        content.opened(&file, writes, file.metadata_at_open().len(), changes);
        node.opens.lock().files.push(opened);
        Ok(file)
    }

    /// Opens a node's file on the server. For writing it is opened for reading
    /// too, where that is allowed.
    async fn open_as(&self, node: &Arc<Node>, content: &Content, writes: bool) -> Outcome<Opened> {
        let path = node.path()?;
        let options = self.options(if writes { WRITING } else { READING });
        let options = options.write(writes).shared_lease(&content.lease);
        let (file, reads) = match options.clone().read(true).open(&self.share, &path).await {
            Err(error) if writes && error.status() == Some(Status::ACCESS_DENIED) => {
                (options.open(&self.share, &path).await.map_err(|e| errno(&e))?, false)
            }
            // The lease is on another file: MS-SMB2 3.3.5.9.8.
            Err(error) if error.status() == Some(Status::INVALID_PARAMETER) => {
                self.refresh_by_name(node).await?;
                // Its name may have been another's for a moment: who asks anew finds out.
                self.distrust(node);
                return Err(Errno::from_i32(libc::ESTALE));
            }
            other => (other.map_err(|error| errno(&error))?, true),
        };
        // Somebody else may have put another file in its place: told so the kernel looks
        // for the name anew, and opens that.
        if ![0, node.id].contains(&file.metadata_at_open().file_id()) && !node.is_made_up() {
            let _ = file.close().await;
            self.distrust(node);
            return Err(Errno::from_i32(libc::ESTALE));
        }
        Ok(Opened { id: self.number(), file, reads, writes })
    }

    pub(super) fn options(&self, lease: LeaseState) -> OpenOptions {
        OpenOptions::new().lease(if self.settings.cache { lease } else { LeaseState::EMPTY })
    }

    /// Whether a file that nobody uses stays open for a while: what was only read,
    /// since the server settles the times of a file when it is closed.
    pub(super) fn keeps(&self, node: &Arc<Node>) -> bool {
        let Some(content) = node.content() else { return false };
        let keeping = LeaseState::READ | LeaseState::HANDLE;
        let may = self.settings.cache && content.lease.grant().state.contains(keeping);
        let mut opens = node.opens.lock();
        let is_plain = opens.hidden.is_empty() && opens.files.iter().all(|one| !one.writes);
        let mut kept = self.kept.lock();
        let keeps = may && is_plain && kept.len() < KEPT_FILES;
        if keeps {
            opens.kept = Some(Instant::now());
            kept.insert(node.id, Arc::clone(node));
        }
        keeps
    }

    pub(super) fn not_kept(&self, node: &Node) {
        let mut kept = self.kept.lock();
        if kept.get(&node.id).is_some_and(|one| std::ptr::eq(&**one, node)) {
            kept.remove(&node.id);
        }
    }

    /// Closes all of the server's Opens of a node. The caller holds `opening`.
    pub(super) async fn close_all(&self, node: &Node) {
        let (files, hidden) = {
            let mut opens = node.opens.lock();
            if opens.kept.take().is_some() {
                self.not_kept(node);
            }
            (std::mem::take(&mut opens.files), std::mem::take(&mut opens.hidden))
        };
        for opened in files {
            if let Err(error) = opened.file.close().await {
                tracing::warn!(%error, "not closed as it should be");
            }
        }
        if let Some(content) = node.content() {
            content.closed();
        }
        for hidden in hidden {
            if let Err(error) = self.share.remove_file(&hidden).await {
                tracing::warn!(%error, "a removed file is left under a hidden name");
            }
        }
    }

    /// Closes a node that is open for nobody.
    pub(crate) async fn let_go(&self, node: &Arc<Node>) {
        if node.listed.is_held() {
            self.let_go_dir(node).await;
        }
        let _turn = node.opening.lock().await;
        self.close_if_unused(node).await;
    }

    /// The same for a file. The caller holds `opening`.
    pub(super) async fn close_if_unused(&self, node: &Node) {
        let is_kept = {
            let opens = node.opens.lock();
            opens.users == 0 && opens.is_open()
        };
        if is_kept {
            self.close_all(node).await;
        }
    }
}
