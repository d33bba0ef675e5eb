//! Tree connects and files, as drafts and as whole calls.

use std::rc::Rc;

use frevo_wire::codec::Writer;
use frevo_wire::command::close::CloseFlags;
use frevo_wire::command::create::{
    self, CreateDisposition, CreateOptions, ImpersonationLevel, OplockLevel, ShareAccess,
};
use frevo_wire::command::lock::{self, LockElement, LockFlags, LockSequence};
use frevo_wire::command::set_info::{self, InfoType};
use frevo_wire::command::{close, flush, read, tree_connect, write};
use frevo_wire::create_context::CreateContexts;
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::set::FileRenameInformation;
use frevo_wire::{Command, Status, Utf16};

use super::draft::{Draft, Reply, Via};
use super::logon::Logon;
use super::peer::Peer;

pub fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// A share in a session.
#[derive(Clone)]
pub struct Mount {
    pub logon: Rc<Logon>,
    pub tree: u32,
    sealed: bool,
}

/// The parameters of a CREATE.
#[derive(Clone, Debug)]
pub struct Want {
    /// UTF-16LE, so that it can be anything.
    pub name: Vec<u8>,
    pub access: AccessMask,
    pub sharing: ShareAccess,
    pub disposition: CreateDisposition,
    pub options: CreateOptions,
    pub attributes: FileAttributes,
    /// RequestedOplockLevel
    pub oplock: OplockLevel,
    /// The list of create contexts as bytes.
    pub contexts: Vec<u8>,
}

impl Want {
    /// Opens or makes a file for everything, shared with everybody.
    pub fn file(name: &str) -> Self {
        Self {
            name: utf16(name),
            access: AccessMask::FILE_ALL,
            sharing: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
            disposition: CreateDisposition::OPEN_IF,
            options: CreateOptions::EMPTY,
            attributes: FileAttributes::EMPTY,
            oplock: OplockLevel::NONE,
            contexts: Vec::new(),
        }
    }

    pub fn existing(name: &str) -> Self {
        Self { disposition: CreateDisposition::OPEN, ..Self::file(name) }
    }

    pub fn directory(name: &str) -> Self {
        Self { options: CreateOptions::DIRECTORY_FILE, ..Self::file(name) }
    }

    pub fn access(self, access: AccessMask) -> Self {
        Self { access, ..self }
    }

    pub fn sharing(self, sharing: ShareAccess) -> Self {
        Self { sharing, ..self }
    }

    pub fn disposition(self, disposition: CreateDisposition) -> Self {
        Self { disposition, ..self }
    }

    pub fn options(self, options: CreateOptions) -> Self {
        Self { options, ..self }
    }

    pub fn draft(&self) -> Draft {
        let mut draft = Draft::new(Command::CREATE).with(|w| {
            create::Request {
                requested_oplock_level: self.oplock,
                impersonation_level: ImpersonationLevel::IMPERSONATION,
                desired_access: self.access,
                file_attributes: self.attributes,
                share_access: self.sharing,
                create_disposition: self.disposition,
                create_options: self.options,
                name: Utf16::new(&[]).unwrap(),
                contexts: CreateContexts::EMPTY,
            }
            .encode(w);
        });
        // The name and the contexts are added as raw bytes, because some tests send invalid ones.
        draft.body.truncate(56);
        let (name_len, name) = (u16::try_from(self.name.len()).unwrap(), &self.name);
        draft = draft.patch(64 + 46, &name_len.to_le_bytes());
        draft.body.extend_from_slice(name);
        if !self.contexts.is_empty() {
            draft.body.resize(draft.body.len().next_multiple_of(8), 0);
            let at = u32::try_from(64 + draft.body.len()).unwrap();
            let len = u32::try_from(self.contexts.len()).unwrap();
            draft = draft.patch(64 + 48, &at.to_le_bytes()).patch(64 + 52, &len.to_le_bytes());
            draft.body.extend_from_slice(&self.contexts);
        } else if name.is_empty() {
            draft.body.push(0);
        }
        draft
    }
}

/// The FileId that stands for the one of the request before.
pub const PREVIOUS: FileId = FileId::ALL_ONES;

pub fn read_draft(file: FileId, offset: u64, length: u32) -> Draft {
    let charge = u16::try_from(length.div_ceil(65_536).max(1)).unwrap();
    Draft::new(Command::READ)
        .with(|w| read::Request::new(file, offset, length).encode(w))
        .charge(charge)
}

pub fn write_draft(file: FileId, offset: u64, data: &[u8]) -> Draft {
    let charge = u16::try_from(data.len().div_ceil(65_536).max(1)).unwrap();
    Draft::new(Command::WRITE)
        .with(|w| write::Request::new(file, offset, data).encode(w))
        .charge(charge)
}

pub fn close_draft(file: FileId) -> Draft {
    Draft::new(Command::CLOSE)
        .with(|w| close::Request { flags: CloseFlags::EMPTY, file_id: file }.encode(w))
}

pub fn flush_draft(file: FileId) -> Draft {
    Draft::new(Command::FLUSH).with(|w| flush::Request { reserved1: 0, file_id: file }.encode(w))
}

pub fn lock_draft(file: FileId, locks: &[(u64, u64, LockFlags)]) -> Draft {
    let element = |(offset, length, flags): &_| LockElement {
        offset: *offset,
        length: *length,
        flags: *flags,
    };
    Draft::new(Command::LOCK).with(|w| {
        lock::Request {
            lock_sequence: LockSequence::default(),
            file_id: file,
            locks: locks.iter().map(element).collect(),
        }
        .encode(w);
    })
}

/// SET_INFO: `class` is of a file or a volume, `parts` are those of a descriptor.
pub fn set_info_draft(
    file: FileId,
    info_type: InfoType,
    class: u8,
    parts: u32,
    buffer: &[u8],
) -> Draft {
    let request = set_info::Request {
        info_type,
        file_info_class: class,
        additional_information: parts,
        file_id: file,
        buffer,
    };
    Draft::new(Command::SET_INFO).with(|w| request.encode(w))
}

/// SET_INFO of a file.
pub fn set_draft(class: FileInfoClass, file: FileId, buffer: &[u8]) -> Draft {
    set_info_draft(file, InfoType::FILE, class.0, 0, buffer)
}

pub fn delete_draft(file: FileId) -> Draft {
    set_draft(FileInfoClass::DISPOSITION, file, &[1])
}

/// FileRenameInformation, or what begins like it.
pub fn rename_draft(class: FileInfoClass, file: FileId, to: &str, replace: bool) -> Draft {
    let mut buffer = Vec::new();
    FileRenameInformation { replace_if_exists: replace, root_directory: 0, name: to }
        .encode(&mut Writer::new(&mut buffer));
    set_draft(class, file, &buffer)
}

pub fn tree_connect_draft(path: &str) -> Draft {
    let path = utf16(path);
    Draft::new(Command::TREE_CONNECT)
        .with(|w| tree_connect::Request::new(Utf16::new(&path).unwrap()).encode(w))
}

impl Mount {
    /// As an answer to a TREE_CONNECT says.
    pub fn new(logon: &Rc<Logon>, tree: u32) -> Self {
        Self { logon: Rc::clone(logon), tree, sealed: false }
    }

    /// Seals what is sent to it.
    pub fn sealed(self) -> Self {
        Self { sealed: true, ..self }
    }

    /// The same share on another channel of the session.
    pub fn on(&self, logon: &Rc<Logon>) -> Self {
        Self { logon: Rc::clone(logon), ..*self }
    }

    pub fn via(&self) -> Via<'_> {
        if self.sealed { Via::Sealed(&self.logon) } else { self.logon.via() }
    }

    /// Puts session and tree into a draft.
    pub fn put(&self, draft: Draft) -> Draft {
        draft.session(self.logon.id).tree(self.tree)
    }
}

impl Peer {
    pub async fn try_mount(&mut self, logon: &Rc<Logon>, share: &str) -> Result<Mount, Reply> {
        let draft = tree_connect_draft(&format!("\\\\frevo\\{share}")).session(logon.id);
        let reply = self.ask(draft, logon.via()).await;
        match reply.status() {
            Status::SUCCESS => Ok(Mount::new(logon, reply.header.tree_id().unwrap())),
            _ => Err(reply),
        }
    }
    pub async fn mount(&mut self, logon: &Rc<Logon>, share: &str) -> Mount {
        self.try_mount(logon, share).await.expect("the share is there")
    }

    /// Sends a request for `mount` as the session demands.
    pub async fn on(&mut self, mount: &Mount, draft: Draft) -> Reply {
        self.ask(mount.put(draft), mount.via()).await
    }
    pub async fn create(&mut self, mount: &Mount, want: &Want) -> Reply {
        self.on(mount, want.draft()).await
    }
    pub async fn open_file(&mut self, mount: &Mount, want: &Want) -> FileId {
        let reply = self.create(mount, want).await;
        reply.ok();
        file_id(&reply)
    }
    pub async fn write(&mut self, mount: &Mount, file: FileId, offset: u64, data: &[u8]) {
        let reply = self.on(mount, write_draft(file, offset, data)).await;
        reply.ok();
        let count = write::Response::parse(&reply.message).unwrap().count;
        assert_eq!(count as usize, data.len());
    }
    pub async fn read(&mut self, mount: &Mount, file: FileId, offset: u64, len: u32) -> Vec<u8> {
        let reply = self.on(mount, read_draft(file, offset, len)).await;
        reply.ok();
        data(&reply).to_vec()
    }
    /// The session is in order.
    pub async fn expect_alive_in(&mut self, mount: &Mount) {
        self.on(mount, Draft::echo()).await.ok();
    }

    pub async fn close(&mut self, mount: &Mount, file: FileId) {
        self.on(mount, close_draft(file)).await.ok();
    }
}

/// The FileId of a CREATE response.
pub fn file_id(reply: &Reply) -> FileId {
    create::Response::parse(&reply.message).unwrap().file_id
}

/// The data of a READ response.
pub fn data(reply: &Reply) -> &[u8] {
    read::Response::parse(&reply.message).unwrap().data
}
