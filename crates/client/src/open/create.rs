//! CREATE requests and responses: MS-SMB2 2.2.13 and 2.2.14.

use std::sync::Arc;

use frevo_wire::command::create::{
    self, CreateAction, CreateDisposition, CreateOptions, ImpersonationLevel, OplockLevel,
    ShareAccess,
};
use frevo_wire::command::oplock_break::LeaseState;
use frevo_wire::create_context::{
    CreateContext, CreateContexts, DurableHandleFlags, OnDiskId, ResponseContext,
};
use frevo_wire::dtyp::{AccessMask, FileAttributes, FileTime};
use frevo_wire::file_id::FileId;
use frevo_wire::{Command, HeaderFlags};

use crate::connection::{Call, Message};
use crate::error::Cause;
use crate::metadata::Metadata;
use crate::metadata::posix::PosixMetadata;
use crate::path::wire_name;
use crate::session::Live;
use crate::session::lease::{Granted, Lease};
use crate::types::AppInstance;

/// The name in a CREATE.
#[derive(Debug)]
pub(crate) struct WireName {
    pub(crate) path: String,
    /// True if it begins with server and share, for DFS: MS-SMB2 2.2.13.
    pub(crate) is_dfs: bool,
}

/// The parameters of a CREATE.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) access: AccessMask,
    pub(crate) sharing: ShareAccess,
    pub(crate) disposition: CreateDisposition,
    pub(crate) options: CreateOptions,
    pub(crate) attributes: FileAttributes,
    /// Asks for a durable handle.
    pub(crate) keep: bool,
    pub(crate) lease: LeaseState,
    /// The lease to join; `None` for a lease of its own.
    pub(crate) shared: Option<Arc<Lease>>,
    /// The time of the snapshot to open the file in.
    pub(crate) snapshot: Option<FileTime>,
    /// The requests that follow change the name itself, not the target of a DFS link.
    pub(crate) is_of_name: bool,
    /// Asks for the file's number on its volume.
    pub(crate) identity: bool,
    /// The permission bits of a file that a POSIX Open creates.
    pub(crate) mode: u32,
    /// The instance of the application that works with the data of the file.
    pub(crate) app_instance: Option<AppInstance>,
}

impl Ask {
    /// Opens an existing file, and shares every use with other Opens.
    pub(crate) const fn existing(access: AccessMask) -> Self {
        Self {
            access,
            sharing: ShareAccess(
                ShareAccess::READ.0 | ShareAccess::WRITE.0 | ShareAccess::DELETE.0,
            ),
            disposition: CreateDisposition::OPEN,
            options: CreateOptions::EMPTY,
            attributes: FileAttributes::EMPTY,
            keep: false,
            lease: LeaseState::EMPTY,
            shared: None,
            snapshot: None,
            is_of_name: false,
            identity: false,
            mode: 0o755,
            app_instance: None,
        }
    }

    /// The request with `contexts` in the session `live`; `name` is the result of `Share::named`.
    pub(crate) fn call(
        &self,
        live: &Live,
        name: &WireName,
        oplock: OplockLevel,
        contexts: &[CreateContext<'_>],
        posix: bool,
    ) -> Call<'static> {
        let mut all: Vec<_> = contexts.to_vec();
        if let Some(instance) = self.app_instance {
            all.extend(instance.contexts(live.terms.dialect));
        }
        if posix {
            all.push(CreateContext::Posix { mode: self.mode });
        }
        if self.identity {
            all.push(CreateContext::QueryOnDiskId);
        }
        if let Some(time) = self.snapshot {
            all.push(CreateContext::Timewarp(time));
        }
        let request = create::Request {
            requested_oplock_level: oplock,
            impersonation_level: ImpersonationLevel::IMPERSONATION,
            desired_access: self.access,
            file_attributes: self.attributes,
            share_access: self.sharing,
            create_disposition: self.disposition,
            create_options: self.options,
            name: wire_name(&name.path),
            contexts: CreateContexts::from_requests(&all),
        };
        let mut call = Call::new(Command::CREATE, |w| request.encode(w));
        if name.is_dfs {
            call.flags |= HeaderFlags::DFS_OPERATIONS;
        }
        call
    }
}

/// The answer to a CREATE.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opened {
    pub(crate) file_id: FileId,
    pub(crate) action: CreateAction,
    pub(crate) created: FileTime,
    pub(crate) accessed: FileTime,
    pub(crate) written: FileTime,
    pub(crate) changed: FileTime,
    pub(crate) allocation: u64,
    pub(crate) end_of_file: u64,
    pub(crate) attributes: FileAttributes,
    pub(crate) durability: Durability,
    /// The lease; `None` if the Open has none.
    pub(crate) lease: Option<Granted>,
    pub(crate) identity: Option<OnDiskId>,
    pub(crate) posix: Option<PosixMetadata>,
    pub(crate) links: u32,
}

/// The kind of durable handle: how long the server keeps the Open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    None,
    V1,
    V2 { persistent: bool },
}

impl Opened {
    /// Reads a CREATE response.
    pub(crate) fn parse(message: &Message) -> Result<Self, Cause> {
        let response = create::Response::parse(message.bytes())?;
        let mut opened = Self {
            file_id: response.file_id,
            action: response.create_action,
            created: response.creation_time,
            accessed: response.last_access_time,
            written: response.last_write_time,
            changed: response.change_time,
            allocation: response.allocation_size,
            end_of_file: response.end_of_file,
            attributes: response.file_attributes,
            durability: Durability::None,
            lease: None,
            identity: None,
            posix: None,
            links: 0,
        };
        for context in response.contexts.responses() {
            match context? {
                ResponseContext::Durable => opened.durability = Durability::V1,
                ResponseContext::DurableV2(granted) => {
                    let persistent = granted.flags.contains(DurableHandleFlags::PERSISTENT);
                    opened.durability = Durability::V2 { persistent };
                }
                ResponseContext::Lease(lease) => opened.lease = Some(Granted::of(&lease, None)),
                ResponseContext::LeaseV2(lease) => {
                    opened.lease = Some(Granted::of(&lease.lease, Some(lease.epoch)));
                }
                ResponseContext::OnDiskId(id) => opened.identity = Some(id),
                ResponseContext::Posix(posix) => {
                    opened.posix = Some(PosixMetadata::of_answer(&posix)?);
                    opened.links = posix.nlink;
                }
                _ => {}
            }
        }
        Ok(opened)
    }
}

#[doc(hidden)]
impl From<&Opened> for Metadata {
    fn from(opened: &Opened) -> Self {
        Self {
            len: opened.end_of_file,
            allocation: opened.allocation,
            attributes: opened.attributes,
            created: opened.created,
            accessed: opened.accessed,
            written: opened.written,
            changed: opened.changed,
            reparse_tag: 0,
            file_id: opened.identity.map_or(0, |identity| identity.disk_file_id),
            links: opened.links,
            posix: opened.posix,
            is_junction: false,
            special: None,
        }
    }
}
