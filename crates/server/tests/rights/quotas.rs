//! Quotas are asked for and set: MS-SMB2 3.3.5.20.4 and 3.3.5.21.4.

use std::sync::Arc;

use frevo_server::internal::limits::QUOTA_ENTRIES;
use frevo_server::internal::state::Shares;
use frevo_server::share::Share;
use frevo_store::Vfs;
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use frevo_store::vfs::{QuotaState, UserQuota};
use frevo_wire::command::query_info::{self, InfoType, QueryInfoFlags, QueryQuotaInfo, QuotaSids};
use frevo_wire::command::set_info;
use frevo_wire::dtyp::{AccessMask, FileTime, Sid};
use frevo_wire::fscc::quota::{QuotaEntries, QuotaEntry, QuotaSidsWriter, QuotaWriter};
use frevo_wire::fscc::volume::{
    FsAttributeInformation, FsAttributes, FsControlFlags, FsControlInformation,
};
use frevo_wire::fscc::{FsInfoClass, Pushed};

use crate::client::world::over;
use crate::client::{Command, Draft, FileId, Mount, Offer, Peer, Status, Want, World};
use crate::lists::accounts;

/// Bytes of an entry whose SID is `S-1-22-1-uid`, and of its padding.
const ENTRY: u32 = 56;

fn quota(uid: u32, used: u64, limit: Option<u64>) -> UserQuota {
    UserQuota { uid, used, threshold: limit.map(|limit| limit / 2), limit }
}

fn with_quotas(test: impl AsyncFnOnce(&World)) {
    let quotas = vec![quota(4_000_000, 7, None), quota(0, 4096, None), quota(7_001, 10, Some(100))];
    with_these_quotas(quotas, test);
}

fn with_these_quotas(quotas: Vec<UserQuota>, test: impl AsyncFnOnce(&World)) {
    let options = MemoryOptions {
        quotas: Some((QuotaState { is_enforced: true }, quotas)),
        ..MemoryOptions::default()
    };
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new(options, Arc::new(|| FileTime(1))));
    over(&vfs, async |world| {
        let data = Share::disk("data", Arc::clone(&vfs));
        let settings = (*world.server.settings()).clone();
        let groups: &[(&str, &[&str])] = &[("ann", &["Administrators"]), ("bob", &[])];
        world.server.reload(settings, &Shares::new([data]), accounts(groups));
        test(world).await;
    });
}

async fn raw(
    peer: &mut Peer,
    mount: &Mount,
    file: FileId,
    info: (InfoType, u8),
    length: u32,
    input: &[u8],
) -> (Status, Vec<u8>) {
    let request = query_info::Request {
        info_type: info.0,
        file_info_class: info.1,
        output_buffer_length: length,
        additional_information: 0,
        flags: QueryInfoFlags::EMPTY,
        file_id: file,
        input,
    };
    let draft = Draft::new(Command::QUERY_INFO).with(|w| request.encode(w));
    let reply = peer.on(mount, draft).await;
    let output = match reply.status() {
        Status::SUCCESS => query_info::Response::parse(&reply.message).unwrap().output.to_vec(),
        _ => Vec::new(),
    };
    (reply.status(), output)
}

/// The answer, as uid, used, threshold and limit.
async fn ask(
    peer: &mut Peer,
    mount: &Mount,
    file: FileId,
    length: u32,
    (return_single, restart_scan, sids): (bool, bool, QuotaSids<'_>),
) -> Result<Vec<(Sid, i64, i64, i64)>, Status> {
    let mut input = Vec::new();
    let info = QueryQuotaInfo { return_single, restart_scan, sids };
    info.encode(&mut frevo_wire::codec::Writer::new(&mut input));
    let quotas = (InfoType::QUOTA, 0);
    let (status, output) = raw(peer, mount, file, quotas, length, &input).await;
    if status != Status::SUCCESS {
        return Err(status);
    }
    let entry = |entry: QuotaEntry| (entry.sid, entry.used, entry.threshold, entry.limit);
    Ok(QuotaEntries::new(&output).map(|found| entry(found.unwrap())).collect())
}

fn sid_bytes(sid: &Sid) -> Vec<u8> {
    let mut bytes = Vec::new();
    sid.encode(&mut frevo_wire::codec::Writer::new(&mut bytes));
    bytes
}

fn list(sids: &[Sid]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = QuotaSidsWriter::new(&mut bytes, 4096);
    for sid in sids {
        assert_eq!(writer.push(sid), Pushed::Fits);
    }
    bytes
}

#[test]
fn quotas_are_listed_from_where_the_last_answer_ended() {
    with_quotas(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let peer = &mut peer;
        let file = peer.open_file(&mount, &Want::directory("")).await;
        let root = (Sid::unix_user(0), 4096, -1, -1);
        let some = (Sid::unix_user(7_001), 10, 50, 100);
        let last = (Sid::unix_user(4_000_000), 7, -1, -1);
        let on = (false, false, QuotaSids::All);
        let again = (false, true, QuotaSids::All);
        let over = Err(Status::NO_MORE_ENTRIES);
        assert_eq!(ask(peer, &mount, file, 4096, on).await, Ok(vec![root, some, last]));
        assert_eq!(ask(peer, &mount, file, 4096, on).await, over);
        assert_eq!(ask(peer, &mount, file, 2 * ENTRY, again).await, Ok(vec![root, some]));
        assert_eq!(ask(peer, &mount, file, 2 * ENTRY, on).await, Ok(vec![last]));
        let single = (true, true, QuotaSids::All);
        assert_eq!(ask(peer, &mount, file, 4096, single).await, Ok(vec![root]));
        for length in [0, 40, 55] {
            let small = Err(Status::BUFFER_TOO_SMALL);
            assert_eq!(ask(peer, &mount, file, length, again).await, small, "{length}");
        }
        // A query with a buffer that is too small failed and did not move the position, so the next
        // one continues where the list was.
        assert_eq!(ask(peer, &mount, file, 4096, on).await, Ok(vec![some, last]));

        let from = sid_bytes(&Sid::unix_user(7_001));
        let from = (false, true, QuotaSids::From(&from));
        assert_eq!(ask(peer, &mount, file, 4096, from).await, Ok(vec![last]));
        let end = sid_bytes(&Sid::unix_user(4_000_000));
        let end = (false, false, QuotaSids::From(&end));
        assert_eq!(ask(peer, &mount, file, 4096, end).await, over);
        let unknown = sid_bytes(&Sid::unix_user(5));
        for bad in [&unknown[..], &[1, 2, 3, 4]] {
            let asked = ask(peer, &mount, file, 4096, (false, false, QuotaSids::From(bad))).await;
            assert_eq!(asked, Err(Status::INVALID_PARAMETER));
        }

        let both = list(&[Sid::unix_user(5), Sid::unix_user(7_001)]);
        let none = (Sid::unix_user(5), 0, 0, 0);
        let listed = QuotaSids::List(&both);
        assert_eq!(
            ask(peer, &mount, file, 4096, (false, false, listed)).await,
            Ok(vec![none, some])
        );
        assert_eq!(ask(peer, &mount, file, 4096, (true, false, listed)).await, Ok(vec![none]));
        assert_eq!(
            ask(peer, &mount, file, 20, (false, false, listed)).await,
            Err(Status::BUFFER_TOO_SMALL)
        );
        for bad in [&both[..6], &both[..12]] {
            let asked = ask(peer, &mount, file, 4096, (false, false, QuotaSids::List(bad))).await;
            assert_eq!(asked, Err(Status::INVALID_PARAMETER));
        }
        let quotas = (InfoType::QUOTA, 0);
        let (status, _) = raw(peer, &mount, file, quotas, 4096, &[0; 15]).await;
        assert_eq!(status, Status::INVALID_PARAMETER, "cut short");
    });
}

/// At n - 1, n and n + 1: users of one answer, of one query, and of one list to set.
#[test]
fn so_many_quotas_are_listed_and_asked_for() {
    let users = u32::try_from(QUOTA_ENTRIES).unwrap();
    for count in [users - 1, users, users + 1] {
        let quotas = (0..count).map(|uid| quota(uid, 1, None)).collect();
        with_these_quotas(quotas, async |world| {
            let fits = count <= users;
            let (mut peer, mount) = world.session("ann", &Offer::default()).await;
            let file = peer.open_file(&mount, &Want::directory("")).await;
            let all = (false, false, QuotaSids::All);
            let found = ask(&mut peer, &mount, file, 64 << 10, all).await.unwrap();
            assert_eq!(found.len(), count.min(users) as usize);
            let rest = ask(&mut peer, &mount, file, 64 << 10, all).await;
            assert_eq!(rest.map_or(0, |rest| rest.len()), usize::from(!fits));

            let sids: Vec<_> = (0..count).map(Sid::unix_user).collect();
            let mut asked = Vec::new();
            let mut writer = QuotaSidsWriter::new(&mut asked, 1 << 16);
            sids.iter().for_each(|sid| assert_eq!(writer.push(sid), Pushed::Fits));
            let listed = (false, false, QuotaSids::List(&asked));
            let told = ask(&mut peer, &mount, file, 64 << 10, listed).await;
            let too_many = Err(Status::INSUFFICIENT_RESOURCES);
            assert_eq!(told.map(|told| told.len()), if fits { Ok(sids.len()) } else { too_many });
        });
    }
}

#[test]
fn quotas_of_others_are_for_administrators() {
    with_quotas(async |world| {
        let (mut peer, mount) = world.session("bob", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::directory("")).await;
        let other = list(&[Sid::unix_user(7_001)]);
        let start = sid_bytes(&Sid::unix_user(7_001));
        for sids in [QuotaSids::All, QuotaSids::List(&other), QuotaSids::From(&start)] {
            let asked = ask(&mut peer, &mount, file, 4096, (false, true, sids)).await;
            assert_eq!(asked, Err(Status::ACCESS_DENIED), "{sids:?}");
        }
        let own = world.server.with_principals(|known| known.find_name("bob").unwrap().sid);
        let asked = list(&[own]);
        let asked = (false, false, QuotaSids::List(&asked));
        let told = ask(&mut peer, &mount, file, 4096, asked).await;
        // The user has no quota on this file system, so the entry has only zeros.
        assert_eq!(told, Ok(vec![(own, 0, 0, 0)]));
        let mine = wanted(7_001, -1, 1 << 40);
        assert_eq!(set(&mut peer, &mount, file, &mine).await, Status::ACCESS_DENIED);
        let all = Want::directory("").access(AccessMask::FILE_ALL);
        let file = peer.open_file(&mount, &all).await;
        let defaults = set_defaults(&mut peer, &mount, file, 1, 2).await;
        assert_eq!(defaults, Status::ACCESS_DENIED);
        // The user may open the quota index, but may not change quotas.
        let file = peer.open_file(&mount, &Want::existing(INDEX)).await;
        assert_eq!(set(&mut peer, &mount, file, &mine).await, Status::ACCESS_DENIED);
        assert_eq!(set_defaults(&mut peer, &mount, file, 1, 2).await, Status::ACCESS_DENIED);
        assert_eq!(world_quota(world, 7_001), Some(quota(7_001, 10, Some(100))));
    });
}

fn world_quota(world: &World, uid: u32) -> Option<UserQuota> {
    let shares = world.server.shares();
    let share = shares.find("data").unwrap();
    share.vfs().unwrap().quota(uid).unwrap()
}

#[test]
fn an_administrator_sets_quotas() {
    with_quotas(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let peer = &mut peer;
        let file = peer.open_file(&mount, &Want::existing(INDEX)).await;
        let kept = |uid| world_quota(world, uid).map(|quota| (quota.threshold, quota.limit));
        let some = (Some(50), Some(100));
        for (entries, status, after) in [
            (wanted(7_001, 5, 9), Status::SUCCESS, (Some(5), Some(9))),
            (wanted(7_001, -1, 0), Status::SUCCESS, (None, Some(0))),
            (wanted(7_001, 50, -1), Status::SUCCESS, (Some(50), None)),
            (wanted(7_001, 50, 100), Status::SUCCESS, some),
            (wanted(7_001, 50, -3), Status::INVALID_PARAMETER, some),
            (wanted(7_001, -2, 100), Status::INVALID_PARAMETER, some),
            (wanted(7_001, 50, 100)[..55].to_vec(), Status::INVALID_PARAMETER, some),
            (vec![0; 64], Status::INVALID_PARAMETER, some),
            (vec![], Status::INVALID_PARAMETER, some),
            (entries(&[(Sid::ADMINISTRATORS, -1, 7)]), Status::ACCESS_DENIED, some),
            (entries(&[(Sid::ADMINISTRATORS, -1, -2)]), Status::ACCESS_DENIED, some),
            (entries(&[(Sid::ADMINISTRATORS, -1, -1)]), Status::SUCCESS, some),
            (wanted(0, -1, 7), Status::ACCESS_DENIED, some),
            (wanted(0, -1, -1), Status::SUCCESS, some),
            (entries(&[(Sid::USERS, -1, 7)]), Status::INVALID_PARAMETER, some),
            (wanted(5, 1, -2), Status::NO_MATCH, some),
            (wanted(7_001, 1, -2), Status::SUCCESS, (None, None)),
        ] {
            assert_eq!(set(peer, &mount, file, &entries).await, status, "{entries:?}");
            assert_eq!(kept(7_001), Some(after), "{entries:?}");
        }
        // One of the two entries is invalid, so the request fails and sets no quota at all.
        let mixed = [(Sid::unix_user(9), 1, 2), (Sid::USERS, 1, 2)];
        assert_eq!(set(peer, &mount, file, &entries(&mixed)).await, Status::INVALID_PARAMETER);
        assert_eq!(kept(9), None);
        let two = [(Sid::unix_user(9), 1, 2), (Sid::unix_user(8), -1, 3)];
        assert_eq!(set(peer, &mount, file, &entries(&two)).await, Status::SUCCESS);
        assert_eq!((kept(9), kept(8)), (Some((Some(1), Some(2))), Some((None, Some(3)))));
        // User 9 owns no files, so without limits the entry disappears.
        assert_eq!(set(peer, &mount, file, &wanted(9, 0, -2)).await, Status::SUCCESS);
        assert_eq!(kept(9), None);
    });
}

#[test]
fn an_administrator_sets_the_default() {
    with_quotas(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let peer = &mut peer;
        let read = Want::existing(INDEX).access(AccessMask::FILE_GENERIC_READ);
        let read = peer.open_file(&mount, &read).await;
        let denied = set_defaults(peer, &mount, read, 1, 2).await;
        assert_eq!(denied, Status::ACCESS_DENIED, "not open for writing");
        let index = peer.open_file(&mount, &Want::existing(INDEX)).await;
        for (threshold, limit) in [(1, 2), (u64::MAX, 3), (u64::MAX, u64::MAX)] {
            let set = set_defaults(peer, &mount, index, threshold, limit).await;
            assert_eq!(set, Status::SUCCESS);
            let control = (InfoType::FILESYSTEM, FsInfoClass::CONTROL.0);
            let (_, told) = raw(peer, &mount, index, control, 4096, &[]).await;
            let told = FsControlInformation::parse(&told).unwrap();
            assert_eq!(
                (told.default_quota_threshold, told.default_quota_limit),
                (threshold, limit)
            );
        }
        let short = (InfoType::FILESYSTEM, FsInfoClass::CONTROL.0, &[0; 47][..]);
        assert_eq!(put(peer, &mount, index, short).await, Status::INFO_LENGTH_MISMATCH);
    });
}

const INDEX: &str = "$Extend\\$Quota:$Q:$INDEX_ALLOCATION";

/// Entries as they are sent: threshold and limit of each.
fn entries(quotas: &[(Sid, i64, i64)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = QuotaWriter::new(&mut bytes, 4096);
    for &(sid, threshold, limit) in quotas {
        let entry = QuotaEntry { change_time: FileTime(5), used: 6, threshold, limit, sid };
        assert_eq!(writer.push(&entry), Pushed::Fits);
    }
    bytes
}

fn wanted(uid: u32, threshold: i64, limit: i64) -> Vec<u8> {
    entries(&[(Sid::unix_user(uid), threshold, limit)])
}

async fn put(
    peer: &mut Peer,
    mount: &Mount,
    file: FileId,
    (info_type, file_info_class, buffer): (InfoType, u8, &[u8]),
) -> Status {
    let request = set_info::Request {
        info_type,
        file_info_class,
        additional_information: 0,
        file_id: file,
        buffer,
    };
    let draft = Draft::new(Command::SET_INFO).with(|w| request.encode(w));
    peer.on(mount, draft).await.status()
}

async fn set(peer: &mut Peer, mount: &Mount, file: FileId, entries: &[u8]) -> Status {
    put(peer, mount, file, (InfoType::QUOTA, 0, entries)).await
}

async fn set_defaults(
    peer: &mut Peer,
    mount: &Mount,
    file: FileId,
    default_quota_threshold: u64,
    default_quota_limit: u64,
) -> Status {
    let info = FsControlInformation {
        free_space_start_filtering: 0,
        free_space_threshold: 0,
        free_space_stop_filtering: 0,
        default_quota_threshold,
        default_quota_limit,
        flags: FsControlFlags::QUOTA_ENFORCE,
    };
    let mut bytes = Vec::new();
    info.encode(&mut frevo_wire::codec::Writer::new(&mut bytes));
    put(peer, mount, file, (InfoType::FILESYSTEM, FsInfoClass::CONTROL.0, &bytes)).await
}

async fn facts(peer: &mut Peer, mount: &Mount, file: FileId) -> (FsControlFlags, bool) {
    let control = (InfoType::FILESYSTEM, FsInfoClass::CONTROL.0);
    let (_, control) = raw(peer, mount, file, control, 4096, &[]).await;
    let control = FsControlInformation::parse(&control).unwrap();
    assert_eq!(control.default_quota_limit, u64::MAX);
    let attribute = (InfoType::FILESYSTEM, FsInfoClass::ATTRIBUTE.0);
    let (_, attribute) = raw(peer, mount, file, attribute, 4096, &[]).await;
    let attribute = FsAttributeInformation::parse(&attribute).unwrap().attributes;
    (control.flags, attribute.contains(FsAttributes::VOLUME_QUOTAS))
}

#[test]
fn a_volume_says_whether_it_has_quotas() {
    with_quotas(async |world| {
        let (mut peer, mount) = world.session("bob", &Offer::default()).await;
        for want in [Want::directory(""), Want::existing(INDEX)] {
            let want = want.access(AccessMask::FILE_GENERIC_READ);
            let file = peer.open_file(&mount, &want).await;
            let told = facts(&mut peer, &mount, file).await;
            assert_eq!(told, (FsControlFlags::QUOTA_ENFORCE, true));
        }
    });
    let none: Arc<dyn Vfs> =
        Arc::new(MemoryVfs::new(MemoryOptions::default(), Arc::new(|| FileTime(1))));
    over(&none, async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::directory("")).await;
        assert_eq!(facts(&mut peer, &mount, file).await, (FsControlFlags::EMPTY, false));
        let asked = (false, true, QuotaSids::All);
        let told = ask(&mut peer, &mount, file, 4096, asked).await;
        assert_eq!(told, Err(Status::NOT_SUPPORTED));
        let some = wanted(7_001, 1, 2);
        assert_eq!(set(&mut peer, &mount, file, &some).await, Status::NOT_SUPPORTED);
        let all = Want::directory("").access(AccessMask::FILE_ALL);
        let file = peer.open_file(&mount, &all).await;
        let defaults = set_defaults(&mut peer, &mount, file, 1, 2).await;
        assert_eq!(defaults, Status::VOLUME_NOT_UPGRADED);
    });
}
