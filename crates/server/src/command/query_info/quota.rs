//! Queries of quotas: MS-SMB2 3.3.5.20.4, MS-FSA 2.1.5.21.
//! Users have the SIDs that owners of files have: `S-1-22-1-uid` in lists; a query may also
//! name an account by its own SID.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frevo_store::Fault;
use frevo_store::security::Token;
use frevo_store::vfs::{QuotaLimits, Space, UserQuota, Vfs};
use frevo_wire::Status;
use frevo_wire::command::query_info::{self, QueryQuotaInfo, QuotaSids as Asked};
use frevo_wire::dtyp::{FileTime, Sid};
use frevo_wire::fscc::Pushed;
use frevo_wire::fscc::quota::{QuotaEntry, QuotaSids, QuotaWriter};
use frevo_wire::fscc::volume::{FsAttributes, FsControlFlags, FsControlInformation};

use super::Output;
use crate::access::id_map::IdMap;
use crate::base::host;
use crate::base::limits::QUOTA_ENTRIES;
use crate::command::request;
use crate::objects::open::{FileOpen, Open};
use crate::shares::impersonation;
use crate::shares::quota::manages;

/// Answers a query of quotas.
///
/// Deviation: MS-FSA asks for nothing more than an Open of the quota index, which
/// on Windows only administrators get; here any Open will do, and who asks decides.
pub(super) async fn query(
    rq: &request::Request<'_>,
    open: &Open,
    request: &query_info::Request<'_>,
    output: &mut Output<'_>,
) -> Result<(), Status> {
    let vfs = &*open.file().map_err(|_| Status::NOT_SUPPORTED)?.vfs;
    if vfs.quota_state().map_err(Fault::status)?.is_none() {
        return Err(Status::NOT_SUPPORTED);
    }
    let asked = QueryQuotaInfo::parse(request.input).map_err(|_| Status::INVALID_PARAMETER)?;
    let token = open.tree().token();
    let map = &*Arc::clone(&open.tree().share.id_map);
    let room = output.room;
    let most = if asked.return_single { 1 } else { QUOTA_ENTRIES };
    let mut writer = QuotaWriter::new(output.bytes(), room);
    let count = match asked.sids {
        Asked::List(list) => {
            let users = users_of(rq, list, most).await?;
            of_list(vfs, &token, &users, &mut writer)?
        }
        Asked::From(start) => {
            manages(&token)?;
            let start = Sid::parse(start).map_err(|_| Status::INVALID_PARAMETER)?;
            let uid = known_users(rq, vec![start]).await?;
            let uid = uid.into_iter().next().and_then(|(_, uid)| uid);
            let uid = uid.ok_or(Status::INVALID_PARAMETER)?;
            let there = vfs.quota(uid).map_err(Fault::status)?;
            there.ok_or(Status::INVALID_PARAMETER)?;
            // The list begins after the start SID, as in MS-SMB2; in MS-FSA 2.1.5.21 it would begin
            // with it.
            all(vfs, map, u64::from(uid) + 1, most, &mut writer)?.0
        }
        Asked::All => {
            manages(&token)?;
            let from = if asked.restart_scan { 0 } else { open.quota_from.load(Ordering::Acquire) };
            let (count, next) = all(vfs, map, from, most, &mut writer)?;
            open.quota_from.store(next, Ordering::Release);
            count
        }
    };
    if count == 0 { Err(Status::NO_MORE_ENTRIES) } else { Ok(()) }
}

/// The users of a SidList, with their numbers on the host.
async fn users_of(
    rq: &request::Request<'_>,
    list: &[u8],
    most: usize,
) -> Result<Vec<(Sid, Option<u32>)>, Status> {
    if !list.len().is_multiple_of(4) {
        return Err(Status::INVALID_PARAMETER);
    }
    let sids: Result<Vec<Sid>, _> = QuotaSids::new(list).take(QUOTA_ENTRIES + 1).collect();
    let mut sids = sids.map_err(|_| Status::INVALID_PARAMETER)?;
    if sids.len() > QUOTA_ENTRIES {
        return Err(Status::INSUFFICIENT_RESOURCES);
    }
    sids.truncate(most);
    known_users(rq, sids).await
}

/// SIDs with the numbers that they have on the host, which is asked elsewhere.
pub(in crate::command) async fn known_users(
    rq: &request::Request<'_>,
    sids: Vec<Sid>,
) -> Result<Vec<(Sid, Option<u32>)>, Status> {
    let asked = Arc::clone(rq.server());
    let found = move || {
        let map = Arc::clone(&asked.settings().id_map);
        let uids = asked.with_principals(|known| known.unix_users(&sids));
        sids.into_iter()
            .zip(uids)
            .map(|(sid, uid)| (sid, uid.or_else(|| map.number(&sid))))
            .collect()
    };
    rq.naming(found).await
}

/// Tells of the users asked for; of those without a quota that it is all zero.
fn of_list(
    vfs: &dyn Vfs,
    token: &Token,
    users: &[(Sid, Option<u32>)],
    writer: &mut QuotaWriter<'_>,
) -> Result<usize, Status> {
    if !users.iter().all(|(sid, _)| token.contains(sid)) {
        manages(token)?;
    }
    gives_up(users.len())?;
    let mut count = 0;
    for (sid, uid) in users {
        let quota = uid.map(|uid| vfs.quota(uid)).transpose().map_err(Fault::status)?.flatten();
        let none =
            QuotaEntry { change_time: FileTime::ZERO, used: 0, threshold: 0, limit: 0, sid: *sid };
        let entry = quota.map_or(none, |quota| entry(&quota, *sid));
        if matches!(writer.push(&entry), Pushed::Full) {
            break;
        }
        count += 1;
    }
    if count == 0 && !users.is_empty() { Err(Status::BUFFER_TOO_SMALL) } else { Ok(count) }
}

/// Tells of all users whose numbers are not below `from`: how many, and from which
/// number on to go on.
fn all(
    vfs: &dyn Vfs,
    map: &IdMap,
    mut from: u64,
    most: usize,
    writer: &mut QuotaWriter<'_>,
) -> Result<(usize, u64), Status> {
    let mut count = 0;
    while count < most
        && let Ok(uid) = u32::try_from(from)
        && let Some(quota) = vfs.quota_from(uid).map_err(Fault::status)?
    {
        if matches!(writer.push(&entry(&quota, map.shown(Sid::unix_user(quota.uid)))), Pushed::Full)
        {
            if count == 0 {
                return Err(Status::BUFFER_TOO_SMALL);
            }
            break;
        }
        count += 1;
        from = u64::from(quota.uid) + 1;
        gives_up(count)?;
    }
    Ok((count, from))
}

/// Fails on a core for so many calls of the host, which may read its disk for each user: the request starts again
/// on a thread.
fn gives_up(calls: usize) -> Result<(), Status> {
    if host::gives_up(calls) { Err(Fault::Leased.status()) } else { Ok(()) }
}

/// The host does not know when a quota was changed.
fn entry(quota: &UserQuota, sid: Sid) -> QuotaEntry {
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    QuotaEntry {
        change_time: FileTime::ZERO,
        used: bytes(quota.used),
        threshold: quota.threshold.map_or(-1, bytes),
        limit: quota.limit.map_or(-1, bytes),
        sid,
    }
}

/// FileFsControlInformation, MS-FSA 2.1.5.13.6. On a volume without quotas they are off; where
/// the host cannot keep defaults, new users have no limit.
pub(super) fn control(vfs: &dyn Vfs) -> Result<FsControlInformation, Status> {
    let flags = match vfs.quota_state().map_err(Fault::status)? {
        None => FsControlFlags::EMPTY,
        Some(state) if state.is_enforced => FsControlFlags::QUOTA_ENFORCE,
        Some(_) => FsControlFlags::QUOTA_TRACK,
    };
    let defaults = if flags == FsControlFlags::EMPTY {
        QuotaLimits::default()
    } else {
        vfs.quota_defaults().map_err(Fault::status)?.unwrap_or_default()
    };
    Ok(FsControlInformation {
        free_space_start_filtering: 0,
        free_space_threshold: 0,
        free_space_stop_filtering: 0,
        default_quota_threshold: defaults.threshold.unwrap_or(u64::MAX),
        default_quota_limit: defaults.limit.unwrap_or(u64::MAX),
        flags,
    })
}

/// FILE_VOLUME_QUOTAS, where quotas are kept.
pub(super) fn attribute(vfs: &dyn Vfs) -> FsAttributes {
    match vfs.quota_state() {
        Ok(Some(_)) => FsAttributes::VOLUME_QUOTAS,
        _ => FsAttributes::EMPTY,
    }
}

/// The space as the user of the host has it who uses the file, if anybody does but
/// the server.
pub(super) fn space(file: &FileOpen, space: Space) -> Result<Space, Status> {
    if impersonation::actor_of(&*file.node).is_none() {
        return Ok(space);
    }
    match file.vfs.quota_state().map_err(Fault::status)? {
        Some(state) if state.is_enforced => {}
        _ => return Ok(space),
    }
    let quota = file.vfs.quota(impersonation::uid_of(&*file.node)).map_err(Fault::status)?;
    Ok(quota.map_or(space, |quota| within(space, &quota)))
}

/// The same on another volume than the root's; None for a file on the root's.
pub(super) fn space_below(file: &FileOpen) -> Result<Option<Space>, Status> {
    let uid = impersonation::actor_of(&*file.node).map(|_| impersonation::uid_of(&*file.node));
    let below = file.node.volume_space(uid).map_err(Fault::status)?;
    Ok(below.map(|below| match &below.quota {
        Some(quota) => within(below.space, quota),
        None => below.space,
    }))
}

/// MS-FSA 2.1.5.13.3 and 2.1.5.13.7: no more than the quota, and what is left of it.
fn within(space: Space, quota: &UserQuota) -> Space {
    let unit = u64::from(space.unit.max(1));
    let Some(limit) = quota.limit else { return space };
    let left = limit.saturating_sub(quota.used);
    Space {
        total: space.total.min(limit / unit),
        available: space.available.min(left / unit),
        ..space
    }
}

#[cfg(test)]
mod tests {
    use frevo_store::memory::{MemoryOptions, MemoryVfs};
    use frevo_store::vfs::QuotaState;

    use super::*;

    /// Tests lists of n and n + 1 users.
    #[cfg(feature = "posix")]
    #[test]
    fn long_lists_of_quotas_are_made_on_a_thread() {
        let on_core = u32::try_from(frevo_posix::limits::STEPS_ON_CORE).unwrap();
        let quota = |uid| UserQuota { uid, used: 1, threshold: None, limit: None };
        for (count, is_long) in [(on_core, false), (on_core + 1, true)] {
            let quotas = Some((QuotaState { is_enforced: true }, (0..count).map(quota).collect()));
            let options = MemoryOptions { quotas, ..MemoryOptions::default() };
            let vfs = MemoryVfs::new(options, Arc::new(|| FileTime(1)));
            let list = || {
                let (mut out, map) = (Vec::new(), IdMap::default());
                all(&vfs, &map, 0, QUOTA_ENTRIES, &mut QuotaWriter::new(&mut out, 1 << 20))
            };
            let (listed, gave_up) = host::short_patience(list);
            assert_eq!((listed.is_err(), gave_up), (is_long, is_long), "{count}");
            assert_eq!(list().map(|(listed, _)| listed), Ok(count as usize));
        }
    }

    #[test]
    fn a_quota_limits_what_its_user_has() {
        let space =
            Space { unit: 4096, total: 100, available: 50, free: 60, files: 0, free_files: 0 };
        let quota = |used, limit| UserQuota { uid: 1, used, threshold: Some(1), limit };
        let of = |used, limit| {
            let space = within(space, &quota(used, limit));
            (space.total, space.available, space.free)
        };
        assert_eq!(of(1 << 30, None), (100, 50, 60), "a threshold only warns");
        assert_eq!(of(4096, Some(10 * 4096)), (10, 9, 60));
        assert_eq!(of(4097, Some(10 * 4096)), (10, 8, 60));
        assert_eq!(of(11 * 4096, Some(10 * 4096)), (10, 0, 60));
        assert_eq!(of(0, Some(1 << 40)), (100, 50, 60));
    }
}
