//! Questions and changes of files and file systems by TRANSACTION2: MS-CIFS 2.2.6.4 to 2.2.6.9, 2.2.8.

use alloc::vec::Vec;

use frevo_wire::codec::{Parsed, Reader, Writer};
use frevo_wire::dtyp::FileTime;
use frevo_wire::open_enum;

use crate::charset::{Charset, Unmappable};
use crate::message::Request;
use crate::open::Fid;
use crate::transaction::{
    QUERY_FILE_INFORMATION, QUERY_FS_INFORMATION, QUERY_PATH_INFORMATION, SET_FILE_INFORMATION,
    SET_FS_INFORMATION, SET_PATH_INFORMATION, transaction2,
};

open_enum! {
    /// Information levels of QUERY requests, MS-CIFS 2.2.2.3.3.
    QueryLevel(u16) {
        /// SMB_INFO_STANDARD
        STANDARD = 0x0001,
        /// SMB_QUERY_FILE_ALL_INFO
        ALL = 0x0107,
        /// SMB_QUERY_FILE_STREAM_INFO
        STREAM = 0x0109,
        /// FileInternalInformation as a pass-through level, MS-SMB 2.2.2.3.5: the number of a file.
        INTERNAL = 0x03E8 + 6,
    }
}

open_enum! {
    /// Information levels of SET requests, MS-CIFS 2.2.2.3.4.
    SetLevel(u16) {
        /// SMB_INFO_STANDARD
        STANDARD = 0x0001,
        /// SMB_SET_FILE_BASIC_INFO
        BASIC = 0x0101,
        /// SMB_SET_FILE_DISPOSITION_INFO
        DISPOSITION = 0x0102,
        /// SMB_SET_FILE_ALLOCATION_INFO
        ALLOCATION = 0x0103,
        /// SMB_SET_FILE_END_OF_FILE_INFO
        END_OF_FILE = 0x0104,
        /// FileRenameInformation as a pass-through level, MS-SMB 2.2.2.3.5.
        RENAME = 0x03E8 + 10,
    }
}

open_enum! {
    /// Information levels of file systems, MS-CIFS 2.2.2.3.2.
    FsLevel(u16) {
        /// SMB_INFO_ALLOCATION
        ALLOCATION = 0x0001,
        /// SMB_QUERY_FS_VOLUME_INFO
        VOLUME = 0x0102,
        /// SMB_QUERY_FS_SIZE_INFO
        SIZE = 0x0103,
        /// SMB_QUERY_FS_DEVICE_INFO
        DEVICE = 0x0104,
        /// SMB_QUERY_FS_ATTRIBUTE_INFO
        ATTRIBUTE = 0x0105,
        /// SMB_QUERY_CIFS_UNIX_INFO of Samba's Unix extensions.
        UNIX = 0x0200,
    }
}

/// A file: by its Open, or by its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject<'a> {
    /// An Open.
    Open(Fid),
    /// A path below the share, that begins with `\`.
    Path(&'a str),
}

fn path_parameters(charset: Charset, level: u16, path: &str) -> Result<Vec<u8>, Unmappable> {
    let mut parameters = Vec::new();
    let path = charset.encode(path)?;
    Writer::new(&mut parameters).u16(level).u32(0).bytes(&path).bytes(charset.end());
    Ok(parameters)
}

/// Returns a question about a file.
///
/// # Errors
/// If the code page lacks a character of the path.
pub fn query(
    charset: Charset,
    place: Subject<'_>,
    level: QueryLevel,
) -> Result<Request<'static>, Unmappable> {
    match place {
        Subject::Open(fid) => {
            let mut parameters = Vec::new();
            Writer::new(&mut parameters).u16(fid.0).u16(level.0);
            transaction2(charset, QUERY_FILE_INFORMATION, &parameters, &[])
        }
        Subject::Path(path) => {
            let parameters = path_parameters(charset, level.0, path)?;
            transaction2(charset, QUERY_PATH_INFORMATION, &parameters, &[])
        }
    }
}

/// Returns a change of a file.
///
/// # Errors
/// If the code page lacks a character of the path.
pub fn set(
    charset: Charset,
    place: Subject<'_>,
    level: SetLevel,
    data: &[u8],
) -> Result<Request<'static>, Unmappable> {
    match place {
        Subject::Open(fid) => {
            let mut parameters = Vec::new();
            Writer::new(&mut parameters).u16(fid.0).u16(level.0).u16(0);
            transaction2(charset, SET_FILE_INFORMATION, &parameters, data)
        }
        Subject::Path(path) => {
            let parameters = path_parameters(charset, level.0, path)?;
            transaction2(charset, SET_PATH_INFORMATION, &parameters, data)
        }
    }
}

/// Returns a question about the file system of a share.
///
/// # Errors
/// None.
pub fn query_fs(charset: Charset, level: FsLevel) -> Result<Request<'static>, Unmappable> {
    transaction2(charset, QUERY_FS_INFORMATION, &level.0.to_le_bytes(), &[])
}

/// Returns the serial number in the answer to [`FsLevel::VOLUME`], MS-CIFS 2.2.8.2.3.
///
/// # Errors
/// If it is malformed.
pub fn serial_number(data: &[u8]) -> Parsed<u32> {
    let r = &mut Reader::new(data);
    r.skip(8, "VolumeCreationTime")?;
    r.u32("SerialNumber")
}

/// The data of FileRenameInformation in SMB1, MS-FSCC 2.4.42.1: a name in the directory of the file.
pub fn rename_data(name: &str, replace: bool) -> Vec<u8> {
    let mut data = Vec::new();
    let length = name.encode_utf16().count().saturating_mul(2);
    let mut w = Writer::new(&mut data);
    w.u8(replace.into()).zeros(3).u32(0);
    w.u32(u32::try_from(length).unwrap_or(u32::MAX)).utf16(name);
    data
}

/// Metadata of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllInfo {
    /// CreationTime
    pub created: FileTime,
    /// LastAccessTime
    pub accessed: FileTime,
    /// LastWriteTime
    pub written: FileTime,
    /// LastChangeTime
    pub changed: FileTime,
    /// ExtFileAttributes
    pub attributes: u32,
    /// AllocationSize
    pub allocation: u64,
    /// EndOfFile
    pub len: u64,
    /// NumberOfLinks
    pub links: u32,
    /// Directory
    pub is_directory: bool,
    /// EaSize
    pub ea_size: u32,
}

/// FILE_ATTRIBUTE_DIRECTORY
const DIRECTORY: u32 = 0x10;

impl AllInfo {
    /// Parses SMB_QUERY_FILE_ALL_INFO, MS-CIFS 2.2.8.3.10. The name, which servers fill in different ways,
    /// is not read.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn parse(data: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(data);
        let created = FileTime(r.u64("CreationTime")?);
        let accessed = FileTime(r.u64("LastAccessTime")?);
        let written = FileTime(r.u64("LastWriteTime")?);
        let changed = FileTime(r.u64("LastChangeTime")?);
        let attributes = r.u32("ExtFileAttributes")?;
        r.skip(4, "Reserved1")?;
        let allocation = r.u64("AllocationSize")?;
        let len = r.u64("EndOfFile")?;
        let links = r.u32("NumberOfLinks")?;
        r.skip(1, "DeletePending")?;
        let is_directory = r.u8("Directory")? != 0 || attributes & DIRECTORY != 0;
        r.skip(2, "Reserved2")?;
        let ea_size = r.u32("EaSize")?;
        Ok(Self {
            created,
            accessed,
            written,
            changed,
            attributes,
            allocation,
            len,
            links,
            is_directory,
            ea_size,
        })
    }

    /// Parses SMB_INFO_STANDARD, MS-CIFS 2.2.8.3.1, of a server whose times have this zone.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn parse_standard(data: &[u8], zone: DosZone) -> Parsed<Self> {
        let r = &mut Reader::new(data);
        let mut time = |what| {
            let (date, time) = (r.u16(what)?, r.u16(what)?);
            Ok(dos_time(date, time, zone))
        };
        let created = time("CreationDate")?;
        let accessed = time("LastAccessDate")?;
        let written = time("LastWriteDate")?;
        let len = u64::from(r.u32("FileDataSize")?);
        let allocation = u64::from(r.u32("AllocationSize")?);
        let attributes = u32::from(r.u16("Attributes")?);
        Ok(Self {
            created,
            accessed,
            written,
            changed: written,
            attributes,
            allocation,
            len,
            links: 1,
            is_directory: attributes & DIRECTORY != 0,
            ea_size: 0,
        })
    }
}

/// CIFS_UNIX_LARGE_READ_CAP of Samba's Unix extensions.
const UNIX_LARGE_READ: u64 = 0x40;
/// CIFS_UNIX_LARGE_WRITE_CAP, which Samba offers only with `min receivefile size`.
const UNIX_LARGE_WRITE: u64 = 0x80;

/// The large requests that a server with Samba's Unix extensions takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LargeIo {
    /// True for READs.
    pub reads: bool,
    /// True for WRITEs.
    pub writes: bool,
}

/// The answer of a server with Samba's Unix extensions about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnixInfo {
    major: u16,
    minor: u16,
    capabilities: u64,
}

impl UnixInfo {
    /// Parses the answer to [`FsLevel::UNIX`].
    ///
    /// # Errors
    /// If it is malformed.
    pub fn parse(data: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(data);
        let (major, minor) = (r.u16("major version")?, r.u16("minor version")?);
        Ok(Self { major, minor, capabilities: r.u64("Unix capabilities")? })
    }

    /// Returns the large requests that are possible.
    pub const fn large_io(self) -> LargeIo {
        LargeIo {
            reads: self.capabilities & UNIX_LARGE_READ != 0,
            writes: self.capabilities & UNIX_LARGE_WRITE != 0,
        }
    }

    /// Returns the request that tells the server that this client uses its large READs and WRITEs, and no
    /// other part of the extensions.
    ///
    /// # Errors
    /// None.
    pub fn set_large_io(self, charset: Charset) -> Result<Request<'static>, Unmappable> {
        let mut parameters = Vec::new();
        Writer::new(&mut parameters).u16(0).u16(FsLevel::UNIX.0);
        let mut data = Vec::new();
        let used = self.capabilities & (UNIX_LARGE_READ | UNIX_LARGE_WRITE);
        Writer::new(&mut data).u16(self.major).u16(self.minor).u64(used);
        transaction2(charset, SET_FS_INFORMATION, &parameters, &data)
    }
}

/// The distance of a server's clock from UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DosZone {
    /// Minutes from the server's time to UTC, negative east of Greenwich.
    pub minutes: i16,
}

impl DosZone {
    const fn seconds(self) -> i64 {
        (self.minutes as i64).saturating_mul(60)
    }
}

/// Returns the time of seconds since 1970 in the server's time, UTIME of MS-CIFS 2.2.1.4.3; 0 is none.
pub(crate) fn unix_seconds(seconds: u32, zone: DosZone) -> FileTime {
    match seconds {
        0 | u32::MAX => FileTime::ZERO,
        seconds => FileTime::from_unix(i64::from(seconds).saturating_add(zone.seconds()), 0),
    }
}

/// Returns the time of SMB_DATE and SMB_TIME, MS-CIFS 2.2.1.4.1 and 2.2.1.4.2; none if one of them is no
/// date or time.
pub(crate) fn dos_time(date: u16, time: u16, zone: DosZone) -> FileTime {
    let (year, month, day) =
        (i64::from(date >> 9), i64::from(date >> 5 & 0xF), i64::from(date & 0x1F));
    let (hours, minutes) = (i64::from(time >> 11), i64::from(time >> 5 & 0x3F));
    let seconds = i64::from(time & 0x1F).saturating_mul(2);
    if !(1..=12).contains(&month) || day == 0 || hours > 23 || minutes > 59 {
        return FileTime::ZERO;
    }
    // Days from March of the year 0: a year that begins in March has its leap day at the end.
    let year = year.saturating_add(1980).saturating_sub(i64::from(month <= 2));
    let from_march = month.saturating_add(9).checked_rem(12).unwrap_or(0);
    let leap_days = (year / 4).saturating_sub(year / 100).saturating_add(year / 400);
    let days_in_year = from_march.saturating_mul(153).saturating_add(2) / 5;
    let days = year.saturating_mul(365).saturating_add(leap_days).saturating_add(days_in_year);
    // 719,469 days before 1970-01-01 was the day before the first of March of the year 0.
    let days = days.saturating_add(day).saturating_sub(719_469);
    let in_day = hours.saturating_mul(3_600).saturating_add(minutes.saturating_mul(60));
    let unix = days.saturating_mul(86_400).saturating_add(in_day).saturating_add(seconds);
    FileTime::from_unix(unix.saturating_add(zone.seconds()), 0)
}

/// The size of a volume by SMB_INFO_ALLOCATION, MS-CIFS 2.2.8.2.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// cSectorUnit
    pub sectors_per_unit: u32,
    /// cUnit
    pub units: u32,
    /// cUnitAvailable
    pub available: u32,
    /// cbSector
    pub bytes_per_sector: u16,
}

impl Allocation {
    /// Parses the answer.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn parse(data: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(data);
        r.skip(4, "idFileSystem")?;
        Ok(Self {
            sectors_per_unit: r.u32("cSectorUnit")?,
            units: r.u32("cUnit")?,
            available: r.u32("cUnitAvailable")?,
            bytes_per_sector: r.u16("cbSector")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UTC: DosZone = DosZone { minutes: 0 };

    #[test]
    fn dos_times_are_read() {
        let at = |year: u16, month: u16, day: u16| {
            dos_time((year - 1980) << 9 | month << 5 | day, 0, UTC).to_unix().0
        };
        assert_eq!(at(1980, 1, 1), 315_532_800);
        assert_eq!(at(2000, 2, 29), 951_782_400);
        assert_eq!(at(2000, 3, 1), 951_868_800);
        assert_eq!(at(2100, 3, 1), 4_107_542_400);
        assert_eq!(dos_time(0, 0, UTC), FileTime::ZERO);
        assert_eq!(dos_time(0x21 | 13 << 5, 0, UTC), FileTime::ZERO);
        // Noon in a zone five hours west of Greenwich.
        let noon = dos_time(0x21, 12 << 11, DosZone { minutes: 300 });
        assert_eq!(noon.to_unix().0, 315_532_800 + 17 * 3_600);
        assert_eq!(unix_seconds(7, DosZone { minutes: -1 }).to_unix(), (-53, 0));
        assert_eq!(unix_seconds(0, UTC), FileTime::ZERO);
    }

    #[test]
    fn all_info_is_read_without_its_name() {
        let mut data = Vec::new();
        let w = &mut Writer::new(&mut data);
        w.u64(1).u64(2).u64(3).u64(4).u32(0x20).u32(0).u64(4_096).u64(9).u32(2).u8(0).u8(1).u16(0);
        w.u32(7);
        let found = AllInfo::parse(&data).unwrap();
        assert_eq!((found.written.0, found.len, found.links, found.ea_size), (3, 9, 2, 7));
        assert!(found.is_directory);
        assert!(AllInfo::parse(&data[..data.len() - 1]).is_err());
    }

    #[test]
    fn large_reads_and_writes_have_a_capability_each() {
        // Samba 4.17 has the first of these by default.
        for (bits, reads, writes) in [
            (0x17B_u64, true, false),
            (0xFF, true, true),
            (0x80, false, true),
            (0x3B, false, false),
        ] {
            let data = [&[1, 0, 0, 0][..], &bits.to_le_bytes()].concat();
            let found = UnixInfo::parse(&data).unwrap();
            assert_eq!(found.large_io(), LargeIo { reads, writes }, "{bits:#x}");
            let used = found.set_large_io(Charset::Unicode).unwrap();
            assert!(used.bytes.ends_with(&(bits & 0xC0).to_le_bytes()));
        }
    }

    #[test]
    fn a_rename_names_the_file_alone() {
        assert_eq!(rename_data("b", true), [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, b'b', 0]);
    }
}
