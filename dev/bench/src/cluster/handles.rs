//! Persistent handles: each of a file of its own, with a lease, as Windows asks for them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use frevo_wire::command::close;
use frevo_wire::command::create::{
    CreateDisposition, CreateOptions, ImpersonationLevel, OplockLevel, Request, Response,
    ShareAccess,
};
use frevo_wire::create_context::{
    CreateContext, CreateContexts, DurableHandleFlags, DurableReconnectV2, DurableRequestV2, Lease,
    LeaseFlags, LeaseKey, LeaseState, LeaseV2, ResponseContext,
};
use frevo_wire::dtyp::{AccessMask, FileAttributes, Guid};
use frevo_wire::file_id::FileId;
use frevo_wire::{Command, Status, Utf16};

use super::link::{Ask, Link};

/// The name of a file, of the folder `files`.
fn name_of(nth: usize) -> String {
    format!(r"files\document {nth:05}.txt")
}

/// Makes so many files in a share's folder, which all may write.
pub(super) fn make_files(share: &Path, count: usize) -> Result<()> {
    let folder = share.join("files");
    fs::create_dir_all(&folder)?;
    for nth in 0..count {
        let path = share.join(name_of(nth).replace('\\', "/"));
        fs::write(&path, b"text")?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    }
    Ok(fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?)
}

/// Bytes that tell the `nth` handle from others.
fn mark(nth: usize, kind: u8) -> [u8; 16] {
    let mut bytes = [kind; 16];
    bytes[..8].copy_from_slice(&(nth as u64).to_le_bytes());
    bytes
}

fn create(nth: usize, durable: CreateContext<'_>) -> Ask {
    let lease = Lease {
        lease_key: LeaseKey(mark(nth, 0x1e)),
        lease_state: LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE,
        flags: LeaseFlags::EMPTY,
    };
    let lease = LeaseV2 { lease, parent_lease_key: LeaseKey([0; 16]), epoch: 1 };
    let request = Request {
        requested_oplock_level: OplockLevel::LEASE,
        impersonation_level: ImpersonationLevel::IMPERSONATION,
        desired_access: AccessMask::READ_DATA | AccessMask::WRITE_DATA,
        file_attributes: FileAttributes(0),
        share_access: ShareAccess::READ,
        create_disposition: CreateDisposition::OPEN,
        create_options: CreateOptions::NON_DIRECTORY_FILE,
        name: Utf16::from_str(&name_of(nth)),
        contexts: CreateContexts::from_requests(&[durable, CreateContext::LeaseV2(lease)]),
    };
    Ask::new(Command::CREATE, |w| request.encode(w))
}

/// Handles that are open.
pub(super) struct Opened {
    pub(super) ids: Vec<FileId>,
    /// The time of each request.
    pub(super) times: Vec<Duration>,
    /// The time of all.
    pub(super) whole: Duration,
}

/// Opens the first `count` files, `depth` at a time. Fails if a handle is not persistent.
pub(super) fn open(link: &mut Link, count: usize, depth: usize) -> Result<Opened> {
    let mut ids = vec![FileId { persistent: 0, volatile: 0 }; count];
    let mut times = Vec::with_capacity(count);
    let begun = Instant::now();
    let ask = |nth| {
        let request = DurableRequestV2 {
            timeout: 0,
            flags: DurableHandleFlags::PERSISTENT,
            create_guid: Guid(mark(nth, 0xc6)),
        };
        Ok(create(nth, CreateContext::DurableRequestV2(request)))
    };
    link.many(count, depth, ask, |nth, reply| {
        ensure!(reply.status == Status::SUCCESS, "CREATE of file {nth}: {}", reply.status);
        let response = Response::parse(&reply.message)?;
        let is_persistent = response.contexts.responses().any(|context| {
            matches!(context, Ok(ResponseContext::DurableV2(durable))
                if durable.flags.contains(DurableHandleFlags::PERSISTENT))
        });
        ensure!(is_persistent, "the handle of file {nth} is not persistent");
        if let Some(id) = ids.get_mut(nth) {
            *id = response.file_id;
        }
        times.push(reply.took);
        Ok(())
    })?;
    Ok(Opened { ids, times, whole: begun.elapsed() })
}

/// Takes handles up again after their server has gone.
pub(super) fn take_up(link: &mut Link, ids: &[FileId], depth: usize) -> Result<()> {
    let ask = |nth: usize| {
        let reconnect = DurableReconnectV2 {
            file_id: ids.get(nth).copied().unwrap_or(FileId { persistent: 0, volatile: 0 }),
            create_guid: Guid(mark(nth, 0xc6)),
            flags: DurableHandleFlags::PERSISTENT,
        };
        Ok(create(nth, CreateContext::DurableReconnectV2(reconnect)))
    };
    link.many(ids.len(), depth, ask, |nth, reply| {
        ensure!(reply.status == Status::SUCCESS, "the handle of file {nth}: {}", reply.status);
        Ok(())
    })
}

/// Closes handles.
pub(super) fn close(link: &mut Link, ids: &[FileId], depth: usize) -> Result<()> {
    let ask = |nth: usize| {
        let file_id = ids.get(nth).copied().unwrap_or(FileId { persistent: 0, volatile: 0 });
        let request = close::Request { flags: close::CloseFlags::EMPTY, file_id };
        Ok(Ask::new(Command::CLOSE, |w| request.encode(w)))
    };
    link.many(ids.len(), depth, ask, |nth, reply| {
        ensure!(reply.status == Status::SUCCESS, "CLOSE of file {nth}: {}", reply.status);
        Ok(())
    })
}
