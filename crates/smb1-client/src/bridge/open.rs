//! CREATE, CLOSE and FLUSH.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use frevo_smb1::info::{self, AllInfo, QueryLevel, Subject};
use frevo_smb1::negotiate::Capabilities;
use frevo_smb1::open::{self, Create, OldAccess, OldOpen, Opened};
use frevo_smb1::tree::Service;
use frevo_smb1::{data, find, names};
use frevo_wire::command::close::{self, CloseFlags};
use frevo_wire::command::create::{
    self, CreateAction, CreateDisposition, CreateFlags, CreateOptions, OplockLevel,
};
use frevo_wire::command::flush;
use frevo_wire::create_context::{CreateContext, CreateContexts, OnDiskId, ResponseContext};
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::query::FileInternalInformation;
use frevo_wire::{Header, Status};
use parking_lot::Mutex;

use super::reply::Good;
use super::server::{Failed, Open, Server, Tree, named};
use super::shares::ListPipe;

/// The rights for which a server without the commands of NT must open a file.
const DATA: AccessMask = AccessMask(
    AccessMask::READ_DATA.0 | AccessMask::WRITE_DATA.0 | AccessMask::APPEND_DATA.0 | 0xF000_0000,
);

/// Rights to write.
const WRITES: AccessMask =
    AccessMask(AccessMask::WRITE_DATA.0 | AccessMask::APPEND_DATA.0 | 0x5000_0000);

/// An open file, directory or pipe of a request.
struct Made {
    opened: Opened,
    /// The server's Open; None for one that the server need not know.
    fid: Option<open::Fid>,
    /// True if the file is to be removed when it is closed, and the server does not do that.
    removes: bool,
    pipe: Option<ListPipe>,
}

impl Server {
    pub(super) async fn create(&self, message: &[u8], tree: u32) -> Result<Good, Failed> {
        let request = create::Request::parse(message)?;
        let tree = self.tree(tree)?;
        let path = format!("\\{}", request.name.to_string()?.trim_start_matches('\\'));
        if names::has_wildcards(&path) {
            return Err(Failed::Status(Status::OBJECT_NAME_INVALID));
        }
        let made = if self.has(Capabilities::NT_SMBS) {
            self.create_new(&request, &tree, &path).await
        } else {
            self.create_old(&request, &tree, &path).await
        };
        let Made { opened, fid, removes, pipe } = match made {
            Err(Failed::Status(status)) if tree.service == Service::Pipe => Made {
                opened: ListPipe::opened(),
                fid: None,
                removes: false,
                pipe: Some(self.list_pipe(&tree, &path, status).await?),
            },
            made => made?,
        };
        let contexts = match fid.filter(|_| wants_number(message, &request)) {
            Some(fid) => self.number(&tree, fid).await?,
            None => CreateContexts::EMPTY,
        };
        let file = self.add_open(Open {
            tree,
            fid: Mutex::new(fid),
            path: Mutex::new(path),
            is_directory: opened.is_directory,
            len: AtomicU64::new(opened.len),
            removes: AtomicBool::new(removes),
            pipe,
            search: tokio::sync::Mutex::default(),
        });
        let response = create::Response {
            oplock_level: OplockLevel::NONE,
            flags: CreateFlags::EMPTY,
            create_action: CreateAction(opened.action),
            creation_time: opened.created,
            last_access_time: opened.accessed,
            last_write_time: opened.written,
            change_time: opened.changed,
            allocation_size: opened.allocation,
            end_of_file: opened.len,
            file_attributes: attributes(opened.attributes, opened.is_directory),
            file_id: file,
            contexts,
        };
        Ok(Good::of(|w| response.encode(w)).with_file(file))
    }

    /// Returns the number of a file as a context, by which the client knows the file again after it has
    /// lost its connection. Empty if the server tells none.
    async fn number(&self, tree: &Tree, fid: open::Fid) -> Result<CreateContexts<'static>, Failed> {
        let Some(volume) = tree.volume else { return Ok(CreateContexts::EMPTY) };
        let query = info::query(self.charset(), Subject::Open(fid), QueryLevel::INTERNAL)?;
        let answer = match self.ask(tree.number, &query).await {
            Ok(answer) => answer,
            Err(Failed::Status(_)) => return Ok(CreateContexts::EMPTY),
            Err(gone) => return Err(gone),
        };
        let found = FileInternalInformation::parse(&answer.results().data)?;
        // MS-FSCC 2.1.9: 0 is no number.
        if found.index_number == 0 {
            return Ok(CreateContexts::EMPTY);
        }
        let id = OnDiskId { disk_file_id: found.index_number, volume_id: volume.into() };
        Ok(CreateContexts::from_responses(&[ResponseContext::OnDiskId(id)]))
    }

    async fn create_new(
        &self,
        request: &create::Request<'_>,
        tree: &Tree,
        path: &str,
    ) -> Result<Made, Failed> {
        let create = Create {
            name: path,
            desired_access: request.desired_access.0,
            attributes: request.file_attributes.0,
            share_access: request.share_access.0,
            disposition: request.create_disposition.0,
            options: request.create_options.0,
        };
        let answer = self.ask(tree.number, &create.request(self.charset())?).await?;
        let opened = Opened::parse(&answer.response()?)?;
        Ok(Made { opened, fid: Some(opened.fid), removes: false, pipe: None })
    }

    /// Opens a file of a server without the commands of NT. Such a server opens no directories.
    async fn create_old(
        &self,
        request: &create::Request<'_>,
        tree: &Tree,
        path: &str,
    ) -> Result<Made, Failed> {
        let charset = self.charset();
        if tree.service != Service::Disk {
            return Err(Failed::Status(Status::NOT_SUPPORTED));
        }
        let options = request.create_options;
        let removes = options.contains(CreateOptions::DELETE_ON_CLOSE);
        let makes = matches!(
            request.create_disposition,
            CreateDisposition::CREATE | CreateDisposition::OPEN_IF
        );
        let mut action = CreateAction::OPENED;
        if options.contains(CreateOptions::DIRECTORY_FILE) && makes {
            match self.ask(tree.number, &names::create_directory(charset, path)?).await {
                Ok(_) => action = CreateAction::CREATED,
                Err(Failed::Status(Status::OBJECT_NAME_COLLISION | Status::ACCESS_DENIED))
                    if request.create_disposition == CreateDisposition::OPEN_IF => {}
                Err(why) => return Err(why),
            }
        } else if !options.contains(CreateOptions::DIRECTORY_FILE)
            && (request.desired_access.intersects(DATA)
                || request.create_disposition != CreateDisposition::OPEN)
        {
            let access = if request.desired_access.intersects(WRITES) {
                OldAccess::READ_WRITE
            } else {
                OldAccess::READ
            };
            let old = OldOpen {
                name: path,
                access,
                attributes: u16::try_from(request.file_attributes.0 & 0xFFFF).unwrap_or(0),
                share_access: request.share_access.0,
                disposition: request.create_disposition.0,
            };
            let answer = self.ask(tree.number, &old.request(charset)?).await?;
            let opened = Opened::parse_old(&answer.response()?, self.zone())?;
            self.check_length(tree, &opened).await?;
            return Ok(Made { opened, fid: Some(opened.fid), removes, pipe: None });
        }
        let found = self.look(tree, Subject::Path(path)).await?;
        if found.is_directory && options.contains(CreateOptions::NON_DIRECTORY_FILE) {
            return Err(Failed::Status(Status::FILE_IS_A_DIRECTORY));
        }
        if !found.is_directory && options.contains(CreateOptions::DIRECTORY_FILE) {
            return Err(Failed::Status(Status::NOT_A_DIRECTORY));
        }
        let opened = Opened {
            fid: open::Fid(0),
            action: action.0,
            created: found.created,
            accessed: found.accessed,
            written: found.written,
            changed: found.changed,
            attributes: found.attributes,
            allocation: found.allocation,
            len: found.len,
            is_directory: found.is_directory,
        };
        Ok(Made { opened, fid: None, removes, pipe: None })
    }

    /// Refuses a file whose length does not fit the 32 bits of OPEN_ANDX: there is data behind its end.
    async fn check_length(&self, tree: &Tree, opened: &Opened) -> Result<(), Failed> {
        if !self.has(Capabilities::LARGE_FILES) {
            return Ok(());
        }
        let request = data::read(opened.fid, opened.len, 1);
        let is_longer = match self.ask(tree.number, &request).await {
            Ok(answer) => !data::read_range(&answer.response()?, 1)?.is_empty(),
            Err(Failed::Status(_)) => false,
            Err(gone) => return Err(gone),
        };
        if !is_longer {
            return Ok(());
        }
        self.ask(tree.number, &open::close(opened.fid)).await?;
        Err(Failed::Status(Status::FILE_TOO_LARGE))
    }

    /// Asks for the metadata of a file.
    pub(super) async fn look(&self, tree: &Tree, place: Subject<'_>) -> Result<AllInfo, Failed> {
        let is_new = self.has(Capabilities::NT_SMBS);
        let level = if is_new { QueryLevel::ALL } else { QueryLevel::STANDARD };
        let answer = self.ask(tree.number, &info::query(self.charset(), place, level)?).await?;
        let data = &answer.results().data;
        Ok(if is_new { AllInfo::parse(data)? } else { AllInfo::parse_standard(data, self.zone())? })
    }

    /// Asks for the metadata of an Open.
    pub(super) async fn look_at(&self, open: &Open) -> Result<AllInfo, Failed> {
        let path = open.path();
        let fid = *open.fid.lock();
        let place = fid.map_or(Subject::Path(&path), Subject::Open);
        let found = self.look(&open.tree, place).await?;
        open.len.store(found.len, Ordering::Relaxed);
        Ok(found)
    }

    pub(super) async fn close(
        &self,
        message: &[u8],
        related: Option<FileId>,
    ) -> Result<Good, Failed> {
        let request = close::Request::parse(message)?;
        let open = self.take_open(named(request.file_id, related))?;
        let mut response = close::Response::default();
        if request.flags.contains(CloseFlags::POSTQUERY_ATTRIB)
            && let Ok(found) = self.look_at(&open).await
        {
            response = close::Response {
                flags: CloseFlags::POSTQUERY_ATTRIB,
                creation_time: found.created,
                last_access_time: found.accessed,
                last_write_time: found.written,
                change_time: found.changed,
                allocation_size: found.allocation,
                end_of_file: found.len,
                file_attributes: attributes(found.attributes, found.is_directory),
            };
        }
        self.end_open(&open).await?;
        Ok(Good::of(|w| response.encode(w)))
    }

    async fn end_open(&self, open: &Arc<Open>) -> Result<(), Failed> {
        let tree = open.tree.number;
        let search = open.search.lock().await.id.take();
        if let Some(id) = search {
            // The answer to a search that the server has forgotten is of no interest.
            match self.ask(tree, &find::close(id)).await {
                Ok(_) | Err(Failed::Status(_)) => {}
                Err(gone) => return Err(gone),
            }
        }
        let fid = open.fid.lock().take();
        if let Some(fid) = fid {
            self.ask(tree, &open::close(fid)).await?;
        }
        if open.removes.load(Ordering::Relaxed) {
            let (charset, path) = (self.charset(), open.path());
            let request = if open.is_directory {
                names::delete_directory(charset, &path)?
            } else {
                names::delete(charset, &path)?
            };
            self.ask(tree, &request).await?;
        }
        Ok(())
    }

    pub(super) async fn flush(
        &self,
        message: &[u8],
        related: Option<FileId>,
    ) -> Result<Good, Failed> {
        let request = flush::Request::parse(message)?;
        let open = self.open(named(request.file_id, related))?;
        if !open.is_directory {
            self.ask(open.tree.number, &open::flush(open.fid()?)).await?;
        }
        Ok(Good::of(|w| flush::Response.encode(w)))
    }
}

/// Returns true if the client asks for the number of a file that it may open again, or may have made: not
/// of one that it closes in the same frame.
fn wants_number(message: &[u8], request: &create::Request<'_>) -> bool {
    let is_alone = Header::parse(message).is_ok_and(|header| header.next_command == 0);
    let is_asked = request
        .contexts
        .requests()
        .flatten()
        .any(|one| matches!(one, CreateContext::QueryOnDiskId));
    is_asked && (is_alone || request.create_disposition != CreateDisposition::OPEN)
}

/// Returns the attributes of a file, which old servers do not mark as a directory.
pub(super) fn attributes(bits: u32, is_directory: bool) -> FileAttributes {
    let found = FileAttributes(bits);
    match (is_directory, bits) {
        (true, _) => (found | FileAttributes::DIRECTORY).without(FileAttributes::NORMAL),
        (false, 0) => FileAttributes::NORMAL,
        (false, _) => found,
    }
}
