//! CREATE: what it asks for, and what it is answered (MS-SMB2 2.2.13, 2.2.14).

use std::sync::Arc;

use frevo_wire::command::create::{
    self, CreateAction, CreateDisposition, CreateOptions, ImpersonationLevel, OplockLevel,
    ShareAccess,
};
use frevo_wire::command::negotiate::GlobalCapabilities;
use frevo_wire::command::oplock_break::{LeaseKey, LeaseState};
use frevo_wire::command::tree_connect::ShareCapabilities;
use frevo_wire::create_context::{
    CreateContext, CreateContexts, DurableHandleFlags, DurableRequestV2, Lease as WireLease,
    LeaseFlags, LeaseV2, OnDiskId, ResponseContext,
};
use frevo_wire::dtyp::{AccessMask, FileAttributes, FileTime, Guid};
use frevo_wire::error_response::{ErrorId, ErrorResponse, SymlinkError};
use frevo_wire::file_id::FileId;
use frevo_wire::{Command, HeaderFlags};

use crate::attributes::redirected;
use crate::connection::{Call, Message};
use crate::dfs::Located;
use crate::error::{Cause, Error, Result};
use crate::limits::DURABLE_TIMEOUT_MS;
use crate::path::wire_name;
use crate::posix::Posix;
use crate::session::Live;
use crate::session::lease::Lease;
use crate::share::Bound;

/// What a CREATE asks for.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) access: AccessMask,
    pub(crate) sharing: ShareAccess,
    pub(crate) disposition: CreateDisposition,
    pub(crate) options: CreateOptions,
    pub(crate) attributes: FileAttributes,
    /// A handle that survives, and what may be cached.
    pub(crate) keep: bool,
    pub(crate) lease: LeaseState,
    /// The lease that it is to be of; none of its own.
    pub(crate) shared: Option<Arc<Lease>>,
    /// An older version of the file.
    pub(crate) snapshot: Option<FileTime>,
    /// What follows is done to the name: not to what a link of a DFS namespace leads to.
    pub(crate) is_of_name: bool,
    /// The server is to tell which file it is.
    pub(crate) identity: bool,
    /// Permission bits of what a POSIX Open makes.
    pub(crate) mode: u32,
}

impl Ask {
    /// Opens what exists, shared with everybody.
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
        }
    }

    /// Whether it may be asked for where it was found.
    pub(crate) fn check(&self, at: &Located, operation: &'static str, url: &str) -> Result<()> {
        if self.is_of_name && at.is_link {
            let cause =
                Cause::Usage("it is a link of a DFS namespace, which its administrator changes");
            return Err(Error::new(cause, operation, url));
        }
        Ok(())
    }

    /// As it can be asked for there: a lease is of one session.
    pub(crate) fn there(&self, at: &Located) -> Self {
        let is_ours = self.shared.as_ref().is_none_or(|lease| lease.is_of(at.share.session()));
        let lease = if is_ours { self.lease } else { LeaseState::EMPTY };
        Self { shared: self.shared.clone().filter(|_| is_ours), lease, ..self.clone() }
    }

    /// The request, with `contexts`; `name` as [`Share::named`] gives it.
    pub(crate) fn call(
        &self,
        (name, is_dfs): &(String, bool),
        oplock: OplockLevel,
        contexts: &[CreateContext<'_>],
        posix: bool,
    ) -> Call<'static> {
        let mut all: Vec<_> = contexts.to_vec();
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
            name: wire_name(name),
            contexts: CreateContexts::from_requests(&all),
        };
        let mut call = Call::new(Command::CREATE, |w| request.encode(w));
        if *is_dfs {
            call.flags |= HeaderFlags::DFS_OPERATIONS;
        }
        call
    }
}

/// What a CREATE answered.
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
    /// None: the Open is of no lease.
    pub(crate) lease: Option<Granted>,
    pub(crate) identity: Option<OnDiskId>,
    pub(crate) posix: Option<Posix>,
    pub(crate) links: u32,
}

/// What an answer says of a lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Granted {
    pub(crate) state: LeaseState,
    pub(crate) epoch: Option<u16>,
    pub(crate) breaking: bool,
}

impl Granted {
    /// No lease.
    pub(crate) const NOTHING: Self =
        Self { state: LeaseState::EMPTY, epoch: None, breaking: false };

    const fn of(lease: &WireLease, epoch: Option<u16>) -> Self {
        let breaking = lease.flags.contains(LeaseFlags::BREAK_IN_PROGRESS);
        Self { state: lease.lease_state, epoch, breaking }
    }
}

/// Whether the server keeps the Open when the connection is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    None,
    V1,
    V2 { persistent: bool },
}

impl Opened {
    /// Reads a CREATE response.
    pub(crate) fn parse(message: &Message) -> std::result::Result<Self, Cause> {
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
                    opened.posix = Some(Posix::of_answer(&posix)?);
                    opened.links = posix.nlink;
                }
                _ => {}
            }
        }
        Ok(opened)
    }
}

/// Where a symbolic link on the way of `path` leads on: MS-SMB2 3.2.5.7.
pub(crate) fn led(message: &Message, path: &str) -> Option<String> {
    let response = ErrorResponse::parse(message.bytes()).ok()?;
    let link = SymlinkError::parse(response.data(ErrorId::DEFAULT)?).ok()?;
    redirected(path, link.unparsed_path_length, &link.substitute_name, link.relative)
}

/// The lease context that the dialect has; none before 2.1.
pub(crate) fn lease_context(
    live: &Live,
    of: &Lease,
    state: LeaseState,
) -> Option<CreateContext<'static>> {
    if !live.capabilities.contains(GlobalCapabilities::LEASING) {
        return None;
    }
    let mut lease = WireLease { lease_key: of.key, lease_state: state, flags: LeaseFlags::EMPTY };
    Some(if live.terms.is_smb3() {
        let parent = of.parent();
        if parent.is_some() {
            lease.flags |= LeaseFlags::PARENT_LEASE_KEY_SET;
        }
        let parent_lease_key = parent.unwrap_or(LeaseKey([0; 16]));
        CreateContext::LeaseV2(LeaseV2 { lease, parent_lease_key, epoch: 0 })
    } else {
        CreateContext::Lease(lease)
    })
}

pub(crate) fn contexts_of(
    ask: &Ask,
    live: &Live,
    bound: Bound,
    create_guid: Guid,
    lease: &Lease,
) -> Vec<CreateContext<'static>> {
    let mut contexts = Vec::new();
    let is_directory = ask.options.contains(CreateOptions::DIRECTORY_FILE);
    let has_leases = live.capabilities.contains(GlobalCapabilities::DIRECTORY_LEASING);
    if !ask.lease.is_empty() && (!is_directory || has_leases) {
        contexts.extend(lease_context(live, lease, ask.lease));
    }
    if !ask.keep {
        return contexts;
    }
    contexts.push(CreateContext::QueryOnDiskId);
    if live.terms.is_smb3() {
        let persistent = has_persistent(live, bound);
        contexts.push(CreateContext::DurableRequestV2(DurableRequestV2 {
            timeout: DURABLE_TIMEOUT_MS,
            flags: if persistent {
                DurableHandleFlags::PERSISTENT
            } else {
                DurableHandleFlags::EMPTY
            },
            create_guid,
        }));
    } else {
        contexts.push(CreateContext::DurableRequest);
    }
    contexts
}

/// Whether persistent Opens are to be had there.
pub(crate) const fn has_persistent(live: &Live, bound: Bound) -> bool {
    live.terms.is_smb3()
        && bound.capabilities.contains(ShareCapabilities::CONTINUOUS_AVAILABILITY)
        && live.capabilities.contains(GlobalCapabilities::PERSISTENT_HANDLES)
}

pub(crate) fn oplock_of(contexts: &[CreateContext<'_>]) -> OplockLevel {
    let lease =
        |c: &CreateContext<'_>| matches!(c, CreateContext::Lease(_) | CreateContext::LeaseV2(_));
    if contexts.iter().any(lease) { OplockLevel::LEASE } else { OplockLevel::NONE }
}
