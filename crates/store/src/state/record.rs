//! The record of a persistent Open, and its encoding.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use frevo_wire::codec::{Malformed, Parsed, Reader, Writer};
use frevo_wire::command::create::CreateAction;
use frevo_wire::dtyp::{AccessMask, FileTime, Guid};

use super::later;
use crate::byte_range::{Mode, Range};
use crate::limits::{LOCKS_PER_OPEN, RECORD_GROUPS, RECORD_TEXT_BYTES};
use crate::vfs::{Volume, VolumeIdentity};

/// The first bytes of a record, which give the version of its encoding. A later version gets
/// another number, and this code reads both.
const FORM: u32 = 0x3146_5046;

/// The form of a record that ends with [`OpenRecord::actor`].
const FORM_WITH_ACTOR: u32 = 0x3246_5046;

/// The form of a record with [`OpenRecord::identity`], and a flag before its actor.
const FORM_WITH_IDENTITY: u32 = 0x3346_5046;

/// The form of a record of a POSIX Open; it is otherwise as the one before.
const FORM_OF_POSIX: u32 = 0x3446_5046;

/// The form of a record with [`OpenRecord::create_action`] other than [`CreateAction::OPENED`]: it ends with
/// [`OpenRecord::posix`] and that. Others are written in the forms that earlier versions read.
const FORM_WITH_ACTION: u32 = 0x3546_5046;

/// The bytes of every form, without its number.
const FORM_NAME: [u8; 3] = *b"FPF";

/// The form of the record of an Open, 1 to 9. A later version may have a form that earlier ones cannot read.
/// Servers that have shares in turn write no form that one of them cannot read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordForm(pub u8);

impl RecordForm {
    /// The newest form that this version reads.
    pub fn newest() -> Self {
        if later::is_known() { later::FORM } else { Self(5) }
    }

    /// The last byte of the form's number.
    const fn letter(self) -> u8 {
        self.0.saturating_add(b'0')
    }
}

impl fmt::Display for RecordForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Entries of Open.LockSequenceArray.
const SEQUENCES: usize = 64;

/// A byte-range lock in the record of an Open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRecord {
    /// Range of bytes that is locked.
    pub range: Range,
    /// The mode: shared or exclusive.
    pub mode: Mode,
}

/// The caching right of the Open: Open.OplockLevel, Open.Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Open.OplockLevel as on the wire.
    pub oplock_level: u8,
    /// Lease.LeaseKey; zero without a lease.
    pub key: [u8; 16],
    /// Lease.ParentLeaseKey; zero without one.
    pub parent_key: [u8; 16],
    /// Lease.LeaseState as on the wire.
    pub state: u32,
    /// Lease.Epoch
    pub epoch: u16,
    /// Lease.Version: 0 without a lease.
    pub version: u8,
}

impl LeaseRecord {
    /// No caching right.
    pub const NONE: Self =
        Self { oplock_level: 0, key: [0; 16], parent_key: [0; 16], state: 0, epoch: 0, version: 0 };
}

/// The user of the host that an Open acts as, where no name service can be asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActorRecord {
    /// The number of the user.
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    /// All groups, at most [`RECORD_GROUPS`].
    pub groups: Vec<u32>,
}

/// A persistent Open, with all that this and the file system need to make it again: MS-SMB2
/// 3.3.1.10.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRecord {
    /// Open.DurableFileId
    pub durable_file_id: u64,
    /// Open.CreateGuid
    pub create_guid: Guid,
    /// Open.ClientGuid
    pub client_guid: Guid,
    /// Open.DurableOwner: the account's name.
    pub owner: String,
    /// Name of the share.
    pub share: String,
    /// The present name in the share, after renames.
    pub name: String,
    /// Open.FileName, as the client wrote it.
    pub file_name: String,
    /// The volume's serial number, which may be another one on another machine.
    pub volume: u32,
    /// The identity of the file system; None in a record of an earlier version.
    pub identity: Option<VolumeIdentity>,
    /// The inode number of the file.
    pub inode: u64,
    /// The stream of the file; 0 for its own data.
    pub stream: u64,
    /// The file's birth time; zero if the file system does not know it.
    pub birth: FileTime,
    /// Open.GrantedAccess
    pub granted_access: AccessMask,
    /// The access that share modes compare.
    pub claimed_access: AccessMask,
    /// Open.DesiredAccess
    pub desired_access: AccessMask,
    /// Open.ShareAccess as on the wire.
    pub share_access: u32,
    /// Open.CreateOptions
    pub create_options: u32,
    /// CreateAction of the response, which a replay of the CREATE is answered with as well.
    pub create_action: CreateAction,
    /// Options in force, as FileModeInformation shows them.
    pub mode: u32,
    /// Open.DurableOpenTimeout, milliseconds.
    pub timeout_ms: u32,
    /// True if the Open has FILE_DELETE_ON_CLOSE.
    pub delete_on_close: bool,
    /// True if the file goes with its last close.
    pub delete_pending: bool,
    /// True for an Open by the POSIX extensions; its record has an identity.
    pub posix: bool,
    /// Open.AppInstanceId
    pub app_instance_id: Option<Guid>,
    /// Open.ApplicationInstanceVersionHigh and Low
    pub app_instance_version: Option<(u64, u64)>,
    /// The caching right that the Open has.
    pub lease: LeaseRecord,
    /// The byte-range locks of the Open.
    pub locks: Vec<LockRecord>,
    /// Open.LockSequenceArray: numbers by index less one.
    pub lock_sequences: [Option<u8>; SEQUENCES],
    /// The user of the host that the Open acts as, if the owner has numbers by arithmetic.
    pub actor: Option<ActorRecord>,
}

/// The bytes are no record that this version can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotARecord {
    /// No version reads them. Holds the part that failed.
    Damaged(&'static str),
    /// The record of an Open in a form that a later version has made. Holds the number of the form, a letter of
    /// ASCII. The Open is to be had with that version, so the record is to be kept.
    OfLaterVersion(u8),
}

impl fmt::Display for NotARecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Damaged(part) => write!(f, "not the record of an Open: {part}"),
            Self::OfLaterVersion(form) => write!(
                f,
                "a later version of Frevo has put open files on record (form {} of a record; this version reads \
                 forms 1 to {}); upgrade Frevo on this machine. The records stay",
                char::from(form),
                RecordForm::newest()
            ),
        }
    }
}

impl core::error::Error for NotARecord {}

impl OpenRecord {
    /// True if the record may be about a file of `volume`, on whichever machine it is mounted. A
    /// record of an earlier version, or of a file system without an identity, has the serial number
    /// alone.
    pub fn is_of_volume(&self, volume: &Volume) -> bool {
        match self.identity {
            Some(identity) if identity != VolumeIdentity::UNKNOWN => identity == volume.identity,
            // The record's file system had no identity, and its serial number depends on the
            // machine. So any volume without an identity may be the right one.
            Some(_) => volume.identity == VolumeIdentity::UNKNOWN,
            None => self.volume == volume.serial,
        }
    }

    /// Returns the bytes that the state store keeps, for servers of this version.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes_within(RecordForm::newest())
    }

    /// Returns the bytes that the state store keeps, for servers that read forms up to `most`: in the form
    /// of an earlier version for a record that has no identity, as it was read.
    ///
    /// All versions that tell the forms that they read, read form 5: `most` is at least that.
    pub fn to_bytes_within(&self, most: RecordForm) -> Vec<u8> {
        let mut bytes = Vec::new();
        let w = &mut Writer::new(&mut bytes);
        let form = match (self.identity, &self.actor) {
            (Some(_), _) if later::is_known() && most >= later::FORM => later::NUMBER,
            (Some(_), _) if self.create_action != CreateAction::OPENED => FORM_WITH_ACTION,
            (Some(_), _) if self.posix => FORM_OF_POSIX,
            (Some(_), _) => FORM_WITH_IDENTITY,
            (None, Some(_)) => FORM_WITH_ACTOR,
            (None, None) => FORM,
        };
        w.u32(form).u64(self.durable_file_id);
        w.bytes(&self.create_guid.0).bytes(&self.client_guid.0);
        for text in [&self.owner, &self.share, &self.name, &self.file_name] {
            put_text(w, text);
        }
        w.u32(self.volume);
        if let Some(identity) = self.identity {
            w.bytes(&identity.0);
        }
        w.u64(self.inode).u64(self.stream).u64(self.birth.0);
        w.u32(self.granted_access.0).u32(self.claimed_access.0).u32(self.desired_access.0);
        w.u32(self.share_access).u32(self.create_options).u32(self.mode).u32(self.timeout_ms);
        w.u8(u8::from(self.delete_on_close)).u8(u8::from(self.delete_pending));
        w.u8(u8::from(self.app_instance_id.is_some()));
        w.bytes(&self.app_instance_id.unwrap_or_default().0);
        let (high, low) = self.app_instance_version.unwrap_or_default();
        w.u8(u8::from(self.app_instance_version.is_some())).u64(high).u64(low);
        let lease = &self.lease;
        w.u8(lease.oplock_level).bytes(&lease.key).bytes(&lease.parent_key);
        w.u32(lease.state).u16(lease.epoch).u8(lease.version);
        for number in self.lock_sequences {
            w.u8(number.map_or(0xFF, |number| number & 0x0F));
        }
        w.u32(u32::try_from(self.locks.len()).unwrap_or(u32::MAX));
        for lock in &self.locks {
            w.u64(lock.range.offset).u64(lock.range.length);
            w.u8(u8::from(lock.mode == Mode::Exclusive));
        }
        if self.identity.is_some() {
            w.u8(u8::from(self.actor.is_some()));
        }
        if let Some(actor) = &self.actor {
            w.u32(actor.uid).u32(actor.gid);
            w.u32(u32::try_from(actor.groups.len()).unwrap_or(u32::MAX));
            for gid in &actor.groups {
                w.u32(*gid);
            }
        }
        if form == FORM_WITH_ACTION || form == later::NUMBER {
            w.u8(u8::from(self.posix)).u32(self.create_action.0);
        }
        if form == later::NUMBER {
            later::write(w);
        }
        bytes
    }

    /// Decodes a record of [`Self::to_bytes`].
    ///
    /// # Errors
    /// If the bytes are no such record, or that of a later version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NotARecord> {
        if let [name @ .., form] = bytes.first_chunk::<4>().unwrap_or(&[0; 4])
            && *name == FORM_NAME
            && *form > RecordForm::newest().letter()
            && form.is_ascii_graphic()
        {
            return Err(NotARecord::OfLaterVersion(*form));
        }
        Self::parse(bytes).map_err(|malformed| NotARecord::Damaged(malformed.what))
    }

    fn parse(bytes: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(bytes);
        let form = r.u32("form")?;
        let is_later = form == later::NUMBER && later::is_known();
        let has_identity =
            is_later || [FORM_WITH_IDENTITY, FORM_OF_POSIX, FORM_WITH_ACTION].contains(&form);
        if !has_identity && form != FORM && form != FORM_WITH_ACTOR {
            return Err(Malformed::new("form"));
        }
        let mut record = Self {
            durable_file_id: r.u64("DurableFileId")?,
            create_guid: Guid(r.array("CreateGuid")?),
            client_guid: Guid(r.array("ClientGuid")?),
            owner: text(r)?,
            share: text(r)?,
            name: text(r)?,
            file_name: text(r)?,
            volume: r.u32("volume")?,
            identity: if has_identity {
                Some(VolumeIdentity(r.array("identity of the volume")?))
            } else {
                None
            },
            inode: r.u64("inode")?,
            stream: r.u64("stream")?,
            birth: FileTime(r.u64("birth")?),
            granted_access: AccessMask(r.u32("GrantedAccess")?),
            claimed_access: AccessMask(r.u32("claimed access")?),
            desired_access: AccessMask(r.u32("DesiredAccess")?),
            share_access: r.u32("ShareAccess")?,
            create_options: r.u32("CreateOptions")?,
            create_action: CreateAction::OPENED,
            mode: r.u32("mode")?,
            timeout_ms: r.u32("timeout")?,
            delete_on_close: flag(r)?,
            delete_pending: flag(r)?,
            posix: form == FORM_OF_POSIX,
            app_instance_id: {
                let is_there = flag(r)?;
                let id = Guid(r.array("AppInstanceId")?);
                is_there.then_some(id)
            },
            app_instance_version: {
                let is_there = flag(r)?;
                let version = (r.u64("AppInstanceVersion")?, r.u64("AppInstanceVersion")?);
                is_there.then_some(version)
            },
            lease: lease(r)?,
            lock_sequences: r
                .array::<SEQUENCES>("LockSequenceArray")?
                .map(|number| (number <= 0x0F).then_some(number)),
            locks: locks(r)?,
            actor: {
                let has_actor = if has_identity { flag(r)? } else { form == FORM_WITH_ACTOR };
                if has_actor { Some(actor(r)?) } else { None }
            },
        };
        if form == FORM_WITH_ACTION {
            record.posix = flag(r)?;
            record.create_action = action(r)?;
        }
        if is_later {
            record.posix = flag(r)?;
            record.create_action = CreateAction(r.u32("CreateAction")?);
            later::read(r)?;
        }
        r.end("length")?;
        Ok(record)
    }
}

fn put_text(w: &mut Writer<'_>, text: &str) {
    w.u32(u32::try_from(text.len()).unwrap_or(u32::MAX)).bytes(text.as_bytes());
}

fn text(r: &mut Reader<'_>) -> Parsed<String> {
    let length = usize::try_from(r.u32("length of a text")?).unwrap_or(usize::MAX);
    if length > RECORD_TEXT_BYTES {
        return Err(Malformed::new("length of a text"));
    }
    let bytes = r.take(length, "text")?;
    core::str::from_utf8(bytes).map(String::from).map_err(|_| Malformed::new("text"))
}

fn flag(r: &mut Reader<'_>) -> Parsed<bool> {
    match r.u8("flag")? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed::new("flag")),
    }
}

fn action(r: &mut Reader<'_>) -> Parsed<CreateAction> {
    match CreateAction(r.u32("CreateAction")?) {
        action @ (CreateAction::SUPERSEDED | CreateAction::CREATED | CreateAction::OVERWRITTEN) => {
            Ok(action)
        }
        _ => Err(Malformed::new("CreateAction")),
    }
}

fn lease(r: &mut Reader<'_>) -> Parsed<LeaseRecord> {
    Ok(LeaseRecord {
        oplock_level: r.u8("OplockLevel")?,
        key: r.array("LeaseKey")?,
        parent_key: r.array("ParentLeaseKey")?,
        state: r.u32("LeaseState")?,
        epoch: r.u16("Epoch")?,
        version: r.u8("Lease.Version")?,
    })
}

fn locks(r: &mut Reader<'_>) -> Parsed<Vec<LockRecord>> {
    let count = usize::try_from(r.u32("number of locks")?).unwrap_or(usize::MAX);
    if count > LOCKS_PER_OPEN {
        return Err(Malformed::new("number of locks"));
    }
    (0..count)
        .map(|_| {
            let range = Range { offset: r.u64("lock")?, length: r.u64("lock")? };
            let mode = if flag(r)? { Mode::Exclusive } else { Mode::Shared };
            Ok(LockRecord { range, mode })
        })
        .collect()
}

fn actor(r: &mut Reader<'_>) -> Parsed<ActorRecord> {
    let (uid, gid) = (r.u32("user")?, r.u32("group")?);
    let count = usize::try_from(r.u32("number of groups")?).unwrap_or(usize::MAX);
    if count > RECORD_GROUPS {
        return Err(Malformed::new("number of groups"));
    }
    let groups = (0..count).map(|_| r.u32("group")).collect::<Parsed<_>>()?;
    Ok(ActorRecord { uid, gid, groups })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use proptest::prelude::*;

    fn sample() -> OpenRecord {
        let mut lock_sequences = [None; SEQUENCES];
        lock_sequences[0] = Some(15);
        lock_sequences[63] = Some(0);
        OpenRecord {
            durable_file_id: 0x0123_4567_89AB_CDEF,
            create_guid: Guid([1; 16]),
            client_guid: Guid([2; 16]),
            owner: "ann".into(),
            share: "Daten".into(),
            name: "a\\Straße:strom".into(),
            file_name: "A\\STRASSE:strom".into(),
            volume: 7,
            identity: Some(VolumeIdentity([6; 16])),
            inode: u64::MAX,
            stream: 9,
            birth: FileTime(130_000_000_000_000_000),
            granted_access: AccessMask::FILE_ALL,
            claimed_access: AccessMask::READ_DATA,
            desired_access: AccessMask::MAXIMUM_ALLOWED,
            share_access: 5,
            create_options: 0x40,
            create_action: CreateAction::CREATED,
            mode: 2,
            timeout_ms: 60_000,
            delete_on_close: true,
            delete_pending: false,
            posix: false,
            app_instance_id: Some(Guid([3; 16])),
            app_instance_version: Some((1, u64::MAX)),
            lease: LeaseRecord {
                oplock_level: 0xFF,
                key: [4; 16],
                parent_key: [5; 16],
                state: 7,
                epoch: 0xFFFF,
                version: 2,
            },
            locks: vec![
                LockRecord { range: Range { offset: 1, length: 0 }, mode: Mode::Shared },
                LockRecord { range: Range { offset: u64::MAX, length: 1 }, mode: Mode::Exclusive },
            ],
            lock_sequences,
            actor: Some(ActorRecord { uid: 101_105, gid: 100_513, groups: vec![100_513, 101_108] }),
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        let none = OpenRecord {
            app_instance_id: None,
            app_instance_version: None,
            lease: LeaseRecord::NONE,
            locks: Vec::new(),
            delete_on_close: false,
            delete_pending: true,
            actor: None,
            ..sample()
        };
        let opened = OpenRecord { create_action: CreateAction::OPENED, ..sample() };
        let both = OpenRecord { posix: true, ..sample() };
        let posix = OpenRecord { posix: true, ..opened.clone() };
        let forms = [&opened, &posix, &both].map(|record| record.to_bytes()[3]);
        assert_eq!(forms, *b"345", "as the versions wrote them that had no later form");
        for record in [sample(), none, opened, posix, both] {
            assert_eq!(OpenRecord::from_bytes(&record.to_bytes()), Ok(record));
        }
    }

    /// Tests that records of all earlier forms are read. The files hold the sample as the versions
    /// wrote it that had these forms.
    #[test]
    fn records_of_earlier_versions_are_read() {
        let third = OpenRecord { create_action: CreateAction::OPENED, ..sample() };
        let second = OpenRecord { identity: None, ..third.clone() };
        let first = OpenRecord { actor: None, ..second.clone() };
        let files: [(&[u8], OpenRecord); 3] = [
            (include_bytes!("testing/record-1.bin"), first),
            (include_bytes!("testing/record-2.bin"), second),
            (include_bytes!("testing/record-3.bin"), third),
        ];
        for (bytes, record) in files {
            assert_eq!(record.to_bytes(), bytes);
            assert_eq!(OpenRecord::from_bytes(bytes), Ok(record));
        }
    }

    #[test]
    fn a_file_system_is_known_by_its_identity_where_it_has_one() {
        let (own, other) = (VolumeIdentity([6; 16]), VolumeIdentity([5; 16]));
        let volume = |serial, identity| Volume { identity, ..Volume::plain(serial, "NTFS") };
        let record = |identity| OpenRecord { identity, ..sample() };
        // On another machine the device number, and with it the serial number (8), may differ, but
        // the identity stays.
        assert!(record(Some(own)).is_of_volume(&volume(8, own)));
        assert!(!record(Some(own)).is_of_volume(&volume(7, other)));
        assert!(!record(Some(own)).is_of_volume(&volume(7, VolumeIdentity::UNKNOWN)));
        let unknown = Some(VolumeIdentity::UNKNOWN);
        assert!(record(unknown).is_of_volume(&volume(8, VolumeIdentity::UNKNOWN)));
        assert!(!record(unknown).is_of_volume(&volume(7, own)));
        assert!(record(None).is_of_volume(&volume(7, own)));
        assert!(!record(None).is_of_volume(&volume(8, own)));
    }

    #[test]
    fn no_part_of_a_record_is_one() {
        let bytes = sample().to_bytes();
        for length in 0..bytes.len() {
            assert!(OpenRecord::from_bytes(&bytes[..length]).is_err(), "{length}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(OpenRecord::from_bytes(&longer).is_err());
        let mut other = bytes;
        other[0] ^= 1;
        assert_eq!(OpenRecord::from_bytes(&other), Err(NotARecord::Damaged("form")));
    }

    #[test]
    fn a_record_of_a_later_version_is_told_from_damage() {
        let with = |form: u8| {
            let mut bytes = sample().to_bytes();
            assert_eq!((&bytes[..3], bytes[3]), (&FORM_NAME[..], b'5'));
            bytes[3] = form;
            OpenRecord::from_bytes(&bytes).map(|_| ())
        };
        assert_eq!(with(b'5'), Ok(()));
        let later = with(b'6').unwrap_err();
        assert_eq!(later, NotARecord::OfLaterVersion(b'6'));
        let text = later.to_string();
        assert!(text.contains("form 6") && text.contains("forms 1 to 5"), "{text}");
        for damaged in [0, b'0', b'\x7f', b'5' | 0x80] {
            assert_eq!(with(damaged), Err(NotARecord::Damaged("form")));
        }
    }

    /// A build that stands for the next version writes its form only for servers that read it, and reads
    /// all forms.
    #[test]
    #[cfg(feature = "later-records")]
    fn a_later_version_writes_what_earlier_ones_read() {
        let records = [
            sample(),
            OpenRecord { create_action: CreateAction::OPENED, ..sample() },
            OpenRecord { posix: true, actor: None, ..sample() },
        ];
        let of_both = RecordForm(5);
        let earlier = records.each_ref().map(OpenRecord::to_bytes);
        let later = later::with(|| {
            assert_eq!(RecordForm::newest(), RecordForm(6));
            for (record, bytes) in records.iter().zip(&earlier) {
                assert_eq!(record.to_bytes_within(of_both), *bytes, "in the form of both");
                assert_eq!(OpenRecord::from_bytes(bytes).as_ref(), Ok(record));
            }
            let later =
                records.each_ref().map(|record| record.to_bytes_within(RecordForm::newest()));
            for (record, bytes) in records.iter().zip(&later) {
                assert_eq!(bytes[3], b'6');
                assert_eq!(OpenRecord::from_bytes(bytes).as_ref(), Ok(record));
                let cut = OpenRecord::from_bytes(&bytes[..bytes.len() - 1]);
                assert!(matches!(cut, Err(NotARecord::Damaged(_))));
            }
            // An Open that has no identity keeps the form that it was read in.
            let old =
                OpenRecord { identity: None, create_action: CreateAction::OPENED, ..sample() };
            assert_eq!(old.to_bytes_within(RecordForm::newest())[3], b'2');
            later
        });
        for bytes in later {
            assert_eq!(OpenRecord::from_bytes(&bytes), Err(NotARecord::OfLaterVersion(b'6')));
        }
        assert_eq!(
            records[0].to_bytes_within(RecordForm(6)),
            earlier[0],
            "this version has no form 6"
        );
    }

    #[test]
    fn a_user_has_so_many_groups() {
        let with = |count: usize| {
            let actor = ActorRecord { uid: 1, gid: 2, groups: vec![3; count] };
            OpenRecord::from_bytes(&OpenRecord { actor: Some(actor), ..sample() }.to_bytes())
        };
        assert!(with(RECORD_GROUPS).is_ok());
        assert!(with(RECORD_GROUPS + 1).is_err());
    }

    proptest! {
        /// Tests that damaged bytes are refused without a panic.
        #[test]
        fn damage_is_read_without_panic(at in 0..400_usize, byte in any::<u8>()) {
            let mut bytes = sample().to_bytes();
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(record) = OpenRecord::from_bytes(&bytes) {
                prop_assert!(record.locks.len() <= LOCKS_PER_OPEN);
            }
        }
    }
}
