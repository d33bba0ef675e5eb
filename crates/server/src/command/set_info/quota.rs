//! Quotas that are set: MS-SMB2 3.3.5.21.4, MS-FSA 2.1.5.22 and 2.1.5.16.6.
//!
//! The host's file system keeps them, as limits of its users. What is kept is what is
//! told afterwards, in the host's blocks; whether limits are enforced is the host's to
//! decide.

use frevo_store::Fault;
use frevo_store::vfs::QuotaLimits;
use frevo_wire::Status;
use frevo_wire::dtyp::Sid;
use frevo_wire::fscc::quota::{QuotaEntries, QuotaEntry};
use frevo_wire::fscc::volume::FsControlInformation;

use super::writable::writable;
use crate::base::limits::QUOTA_ENTRIES;
use crate::command::query_info::quota::known_users;
use crate::command::request;
use crate::objects::open::Open;
use crate::shares::quota::manages;

/// No limit, as QuotaLimit and QuotaThreshold say it.
const NONE: i64 = -1;
/// QuotaLimit that deletes the entry.
const DELETED: i64 = -2;
/// The host's administrator, whom the kernel does not limit.
const ROOT: u32 = 0;

/// The change of a user's quota entry.
enum Wish {
    Limit(QuotaLimits),
    Delete,
}

/// Sets the quotas of users. All entries are looked at before the first is set.
pub(super) async fn set(
    rq: &request::Request<'_>,
    open: &Open,
    buffer: &[u8],
) -> Result<(), Status> {
    let vfs = &*open.file().map_err(|_| Status::NOT_SUPPORTED)?.vfs;
    if vfs.quota_state().map_err(Fault::status)?.is_none() {
        return Err(Status::NOT_SUPPORTED);
    }
    manages(&open.tree().token())?;
    writable(open)?;
    let entries = QuotaEntries::new(buffer).take(QUOTA_ENTRIES + 1);
    let entries: Result<Vec<QuotaEntry>, _> = entries.collect();
    // MS-FSCC 2.4.41: a malformed quota entry gets INVALID_PARAMETER.
    let entries = entries.map_err(|_| Status::INVALID_PARAMETER)?;
    if entries.len() > QUOTA_ENTRIES {
        return Err(Status::INSUFFICIENT_RESOURCES);
    }
    let mut wishes = Vec::with_capacity(entries.len());
    for entry in &entries {
        let wish = wish(entry)?;
        if entry.sid != Sid::ADMINISTRATORS {
            wishes.push((entry.sid, wish));
        } else if entry.limit != NONE {
            // MS-FSA 2.1.5.22: administrators must not have a limit, so the request is refused.
            return Err(Status::ACCESS_DENIED);
        }
    }
    let sids = wishes.iter().map(|(sid, _)| *sid).collect();
    let users = known_users(rq, sids).await?;
    for (_, uid) in &users {
        // All names are checked before any quota is changed. An account without a host user owns no
        // files, so it can have no quota.
        uid.ok_or(Status::INVALID_PARAMETER)?;
    }
    for ((_, uid), (_, wish)) in users.into_iter().zip(wishes) {
        let uid = uid.ok_or(Status::INVALID_PARAMETER)?;
        let limits = match wish {
            Wish::Limit(limits) => limits,
            Wish::Delete => {
                vfs.quota(uid).map_err(Fault::status)?.ok_or(Status::NO_MATCH)?;
                // Deviation: removing an entry only removes its limits. A user with files stays in
                // the list, because the kernel goes on counting their size.
                QuotaLimits::default()
            }
        };
        if uid == ROOT {
            if limits != QuotaLimits::default() {
                return Err(Status::ACCESS_DENIED);
            }
            continue;
        }
        vfs.set_quota(uid, limits).map_err(Fault::status)?;
    }
    Ok(())
}

fn wish(entry: &QuotaEntry) -> Result<Wish, Status> {
    let bytes = |bytes: i64| match bytes {
        NONE => Ok(None),
        bytes => u64::try_from(bytes).map(Some).map_err(|_| Status::INVALID_PARAMETER),
    };
    if entry.limit == DELETED {
        return Ok(Wish::Delete);
    }
    Ok(Wish::Limit(QuotaLimits { threshold: bytes(entry.threshold)?, limit: bytes(entry.limit)? }))
}

/// Sets the limits of new users: MS-FSA 2.1.5.16.6. The flags that turn counting and enforcing
/// on are ignored, as MS-FSCC 2.5.2 demands; no events are logged.
pub(super) fn set_control(open: &Open, buffer: &[u8]) -> Result<(), Status> {
    if buffer.len() < FsControlInformation::SIZE {
        return Err(Status::INFO_LENGTH_MISMATCH);
    }
    let info = FsControlInformation::parse(buffer).map_err(|_| Status::INFO_LENGTH_MISMATCH)?;
    let vfs = &*open.file().map_err(|_| Status::NOT_SUPPORTED)?.vfs;
    if vfs.quota_state().map_err(Fault::status)?.is_none() {
        return Err(Status::VOLUME_NOT_UPGRADED);
    }
    manages(&open.tree().token())?;
    let bytes = |bytes: u64| (bytes != u64::MAX).then_some(bytes);
    let wanted = QuotaLimits {
        threshold: bytes(info.default_quota_threshold),
        limit: bytes(info.default_quota_limit),
    };
    let kept = vfs.quota_defaults().map_err(Fault::status)?;
    match kept {
        Some(kept) if kept != wanted => vfs.set_quota_defaults(wanted).map_err(Fault::status),
        // MS-FSA 2.1.5.16.6: default limits are not implemented, so a request to set them is
        // refused.
        None if wanted != QuotaLimits::default() => Err(Status::INVALID_PARAMETER),
        _ => Ok(()),
    }
}
