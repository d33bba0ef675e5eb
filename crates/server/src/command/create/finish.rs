//! The end of a CREATE whose file is open and admitted: the disposition is carried out, the
//! Open is made, watches are notified, the client is answered.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use frevo_store::lease::{Cause, Granted};
use frevo_store::order::Ordered;
use frevo_store::vfs::{BasicChange, EaChange, Kind, Opened, VfsResult};
use frevo_store::{Fault, Node, Stat};
use frevo_wire::Status;
use frevo_wire::command::change_notify::CompletionFilter;
use frevo_wire::command::create::{self, CreateAction, CreateFlags, CreateOptions};
use frevo_wire::dtyp::FileAttributes;
use frevo_wire::fscc::notify::NotifyAction;

use super::creation::{Create, Fresh, Made};
use super::{apple, contexts, lease, streams};
use crate::base::host;
use crate::base::pools::blocking_pool;
use crate::command::response::Response;
use crate::objects::archive::moment;
use crate::objects::braked;
use crate::objects::changes;
use crate::objects::data;
use crate::objects::lease::{self as breaks, Contender};
use crate::objects::open::{FileOpen, Open, OpenTarget, shared_fd};
use crate::objects::shortening::shorten;
use crate::objects::stable::{self, Change};
use crate::objects::times::Times;

/// CreateOptions that FileModeInformation shows, MS-FSCC 2.4.31.
const MODE: u32 = CreateOptions::WRITE_THROUGH.0
    | CreateOptions::SEQUENTIAL_ONLY.0
    | CreateOptions::NO_INTERMEDIATE_BUFFERING.0
    | CreateOptions::SYNCHRONOUS_IO_ALERT.0
    | CreateOptions::SYNCHRONOUS_IO_NONALERT.0
    | CreateOptions::DELETE_ON_CLOSE.0;

fn set_attributes(node: &dyn Node, attributes: FileAttributes) -> VfsResult<()> {
    node.set_basic(&BasicChange { attributes: Some(attributes), ..BasicChange::default() })
}

impl Create<'_> {
    /// Does to the file what its disposition and contexts say, and makes the Open.
    pub(super) fn finish(&self, made: Made<'_>) -> Result<(Fresh<'_>, CreateAction, Stat), Status> {
        let Made { opened, mut entered, granted, action, charge, promise } = made;
        let node = Arc::clone(&opened.node);
        let stat = opened.stat;
        let file_created = opened.file_created;
        let brake = braked::watch(self.rq.tree()?, &opened.name, &stat, action);
        let used = crate::shares::apple::wrap(&opened.name, opened.node);
        let target = OpenTarget::File(FileOpen {
            fd: shared_fd(&*used),
            node: used,
            caching: data::caching(&self.rq.tree()?.share, self.request.create_options),
            gate: self.rq.tree()?.gate(),
            io: OnceLock::new(),
            vfs: Arc::clone(self.vfs),
            id: self.id(),
            cell: Arc::clone(&entered.cell),
            base: entered.base.clone(),
            is_directory: stat.kind == Kind::Directory,
            posix: self.posix.is_some(),
            apple: apple::is_client(self.rq.tree()?, self.wanted.apple.as_ref()),
            mode: AtomicU64::new(u64::from(self.request.create_options.0 & MODE)),
            position: AtomicU64::new(0),
            max_size: self.rq.tree()?.share.max_file_size,
            times: Times::new(self.rq.tree()?.share.late_write_times),
            syncs: OnceLock::new(),
            made: AtomicBool::new(false),
            turned: AtomicBool::new(false),
            written: AtomicBool::new(false),
            altered: AtomicBool::new(false),
            brake,
            enumeration: Ordered::new(None),
        });
        if self.posix.is_some()
            && let OpenTarget::File(file) = &target
        {
            file.cell.lock().unlinks_at_close(self.id());
        }
        let tree = Arc::clone(self.rq.tree()?);
        let sequence = self.rq.header.channel_sequence();
        let open = Open::new(self.file_id, tree, granted, sequence, target);
        let open = Arc::new(open.charged(charge));
        open.set_promise(promise);
        let fresh = Fresh { open, server: self.rq.server(), is_kept: false };
        // From this line on the file belongs to the Open, so dropping `entered` must not remove it.
        entered.stays = true;
        let open = &fresh.open;
        if blocking_pool::is_here() {
            // Looking up the mount of the data may block, so it is done now, on the blocking
            // thread, and not later on the core thread.
            let _ = open.file()?.io();
        }
        let applied = open.file().and_then(|file| {
            let changed = self.apply(file, &*node, action, stat.attributes)?;
            let makes_stream = action == CreateAction::CREATED && file.base.is_some();
            if makes_stream && !file_created {
                // MS-FSA 2.1.5.1.2: a file gets the ARCHIVE attribute when a stream is added.
                file.set_archive();
            }
            if changed || file.base.is_some() { file.stat() } else { Ok(stat) }
        });
        let stat = applied.inspect_err(|_| {
            // The request could not be applied. If it created the file, the file is deleted with
            // its Open.
            let file = open.file().ok();
            if let (CreateAction::CREATED, Some(file)) = (action, file) {
                file.cell.lock().set_delete_pending(open.id(), true);
            }
        })?;
        Ok((fresh, action, stat))
    }

    /// Makes a file that was made or overwritten stable, if the Open writes through. One that was
    /// made goes if that fails.
    pub(super) async fn make_stable(
        &self,
        open: &Open,
        action: CreateAction,
    ) -> Result<(), Status> {
        if action == CreateAction::OPENED {
            return Ok(());
        }
        let file = open.file()?;
        let is_made = action == CreateAction::CREATED;
        let change = if is_made { Change::Made } else { Change::Attributes };
        stable::sync_change(file, change).await.inspect_err(|_| {
            if action == CreateAction::CREATED {
                file.cell.lock().set_delete_pending(open.id(), true);
            }
        })
    }

    /// MS-FSA 2.1.5.1.1 and 2.1.5.1.2.3: what those who watch are told.
    pub(super) fn report(&self, file: &FileOpen, action: CreateAction, file_created: bool) {
        let files = &self.rq.server().files;
        streams::report_file(file, files, file_created);
        match action {
            CreateAction::CREATED if planted!(LostNotify) => {}
            CreateAction::CREATED => file.report(files, NotifyAction::ADDED, file.names()),
            CreateAction::OPENED => {}
            _ => {
                let matches = changes::DATA | CompletionFilter::ATTRIBUTES;
                file.report(files, NotifyAction::MODIFIED, matches);
            }
        }
    }

    /// Truncation, attributes, allocation, extended attributes. `node` is the object that the Open
    /// may use in another way. True when the file's state is not what opening it said.
    fn apply(
        &self,
        file: &FileOpen,
        node: &dyn Node,
        action: CreateAction,
        before: FileAttributes,
    ) -> Result<bool, Status> {
        let overwritten = matches!(action, CreateAction::OVERWRITTEN | CreateAction::SUPERSEDED);
        if overwritten {
            if self.name.stream().is_some() {
                // Overwriting a named stream sets ARCHIVE, and leaves the file's other attributes
                // as they are.
                node.set_end_of_file(0).map_err(Fault::status)?;
                file.set_archive();
            } else {
                let overwrite = || self.overwrite(node, before).map(|()| true);
                file.own_cell().change_attributes(moment(), overwrite).map_err(Fault::status)?;
            }
        }
        let made = overwritten || action == CreateAction::CREATED;
        if !made {
            return Ok(false);
        }
        // A directory has no data, so AllocationSize is ignored.
        let data = !self.has(CreateOptions::DIRECTORY_FILE);
        if let Some(bytes) = self.wanted.allocation.filter(|bytes| data && *bytes != 0) {
            node.set_allocation(bytes).map_err(Fault::status)?;
        }
        let eas = self.wanted.eas.iter();
        let eas: Vec<EaChange<'_>> =
            eas.map(|ea| EaChange { name: &ea.name, value: &ea.value, need: ea.need }).collect();
        if !eas.is_empty() {
            // Nobody repeats it on another thread: an overwritten file has lost its data by now.
            host::long_patience(|| node.set_eas(&eas)).map_err(Fault::status)?;
        }
        let inherited = self.vfs.volume().compresses && before.contains(FileAttributes::COMPRESSED);
        // MS-FSA 2.1.5.1 phase 1: ENCRYPTED sets NO_COMPRESSION, although nothing is encrypted here.
        let encrypted = self.request.file_attributes.contains(FileAttributes::ENCRYPTED);
        let uncompressed = inherited
            && action == CreateAction::CREATED
            && self.name.stream().is_none()
            && (self.has(CreateOptions::NO_COMPRESSION) || encrypted);
        if uncompressed {
            // MS-FSA 2.1.5.1.1: NO_COMPRESSION clears the compression that the new file inherits
            // from its directory.
            node.set_compressed(false).map_err(Fault::status)?;
        }
        let added = self.wanted.allocation.is_some() || !self.wanted.eas.is_empty();
        Ok(overwritten || uncompressed || added)
    }

    /// Cuts a file that is overwritten until little is left for [`Self::finish`] to cut, if that takes
    /// long. Of the two, attributes and data, only attributes can be put back: they are set first.
    pub(super) async fn shorten(&self, made: &Made<'_>) -> Result<(), Status> {
        let Opened { node, stat, .. } = &made.opened;
        let is_whole = self.name.stream().is_none();
        if is_whole {
            set_attributes(&**node, self.overwritten_attributes()).map_err(Fault::status)?;
        }
        self.cut_in_steps(made).await.inspect_err(|_| {
            if is_whole && self.rq.still_served().is_ok() {
                let _ = set_attributes(&**node, stat.attributes);
            }
        })
    }

    /// Cuts the file, and breaks what others were granted to cache between the steps: the last cut,
    /// by [`Self::finish`], follows.
    async fn cut_in_steps(&self, made: &Made<'_>) -> Result<(), Status> {
        let goes_on = || self.rq.still_served().is_ok();
        shorten(&*made.opened.node, 0, goes_on).await.ended.map_err(Fault::status)?;
        let cell = Arc::clone(&made.entered.cell);
        let contender = Contender { cell, id: self.id(), cause: Cause::Overwrite };
        breaks::contend(self.rq.server(), &self.rq.cancellation, contender).await?;
        self.rq.still_served()
    }

    /// The attributes of a file that is overwritten.
    fn overwritten_attributes(&self) -> FileAttributes {
        // Only FSCTL_SET_SPARSE makes a file sparse, and MS-FSA 2.1.5.1.2 clears
        // NOT_CONTENT_INDEXED.
        let ignored = FileAttributes::NORMAL
            | FileAttributes::SPARSE_FILE
            | FileAttributes::NOT_CONTENT_INDEXED;
        self.request.file_attributes.without(ignored) | FileAttributes::ARCHIVE
    }

    /// Attributes first, because only they can be put back; data last, because on a core the removal of
    /// streams may give up, and the request is repeated on another thread.
    fn overwrite(&self, node: &dyn Node, before: FileAttributes) -> Result<(), Fault> {
        set_attributes(node, self.overwritten_attributes())?;
        // MS-FSA 2.1.5.1.2: an overwritten file loses its named streams.
        node.clear_streams().and_then(|()| node.set_end_of_file(0)).inspect_err(|_| {
            let _ = set_attributes(node, before);
        })
    }

    pub(super) fn respond(
        &self,
        open: &Open,
        action: CreateAction,
        stat: &Stat,
        granted: Granted,
        out: &mut Response,
    ) -> Result<(), Status> {
        let mut flags = CreateFlags::EMPTY;
        let is_link = stat.attributes.contains(FileAttributes::REPARSE_POINT);
        if is_link && self.rq.connection.is_smb3() && !self.has(CreateOptions::OPEN_REPARSE_POINT) {
            flags |= CreateFlags::REPARSEPOINT;
        }
        create::Response {
            oplock_level: lease::level(granted),
            flags,
            create_action: action,
            creation_time: stat.created,
            last_access_time: stat.accessed,
            last_write_time: stat.written,
            change_time: stat.changed,
            allocation_size: stat.allocation,
            end_of_file: stat.end_of_file,
            file_attributes: stat.attributes,
            file_id: open.file_id,
            contexts: contexts::answers(self, open, stat, granted)?,
        }
        .encode(&mut out.writer());
        Ok(())
    }
}
