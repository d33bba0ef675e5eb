//! Quotas per user, MS-FSCC 2.4.41.

use super::list::{Entries, ListWriter, Pushed};
use crate::codec::{Malformed, Parsed, Reader, Writer};
use crate::dtyp::{FileTime, Sid};
use alloc::vec::Vec;

/// One user's quota: an entry of FileQuotaInformation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaEntry {
    /// ChangeTime; ignored when set.
    pub change_time: FileTime,
    /// QuotaUsed, in bytes; ignored when set.
    pub used: i64,
    /// QuotaThreshold, in bytes; -1 for none.
    pub threshold: i64,
    /// QuotaLimit, in bytes; -1 for none, -2 deletes the entry.
    pub limit: i64,
    /// The owner of the quota.
    pub sid: Sid,
}

const QUOTA_FIXED: usize = 40;
const GET_QUOTA_FIXED: usize = 8;

/// Writes FILE_QUOTA_INFORMATION entries.
#[derive(Debug)]
pub struct QuotaWriter<'a>(ListWriter<'a>);

impl<'a> QuotaWriter<'a> {
    /// Appends entries to `out`, at most `max_len` bytes.
    pub fn new(out: &'a mut Vec<u8>, max_len: usize) -> Self {
        Self(ListWriter::new(out, 8, max_len))
    }

    /// Appends an entry if it fits whole.
    pub fn push(&mut self, entry: &QuotaEntry) -> Pushed {
        let sid_len = entry.sid.encoded_len();
        let Some(out) = self.0.begin(QUOTA_FIXED.saturating_add(sid_len)) else {
            return Pushed::Full;
        };
        let mut w = Writer::new(out);
        w.u32(0).u32(u32::try_from(sid_len).unwrap_or(u32::MAX));
        w.u64(entry.change_time.0).i64(entry.used).i64(entry.threshold).i64(entry.limit);
        entry.sid.encode(&mut w);
        Pushed::Fits
    }
}

/// Reads FILE_QUOTA_INFORMATION entries.
#[derive(Debug, Clone)]
pub struct QuotaEntries<'a>(Entries<'a>);

impl<'a> QuotaEntries<'a> {
    /// The entries in `bytes`; none when it is empty.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(Entries::new(bytes, QUOTA_FIXED, "quota entry"))
    }
}

impl Iterator for QuotaEntries<'_> {
    type Item = Parsed<QuotaEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.0.next()?;
        Some(bytes.and_then(read_quota))
    }
}

fn read_quota(bytes: &[u8]) -> Parsed<QuotaEntry> {
    let what = "quota entry";
    let mut r = Reader::new(bytes);
    r.skip(4, what)?;
    let sid_len = r.u32(what)?;
    let change_time = FileTime(r.u64(what)?);
    let used = r.i64(what)?;
    let threshold = r.i64(what)?;
    let limit = r.i64(what)?;
    Ok(QuotaEntry { change_time, used, threshold, limit, sid: read_sid(&mut r, sid_len)? })
}

/// A SID that fills the length given for it.
fn read_sid(r: &mut Reader<'_>, len: u32) -> Parsed<Sid> {
    let what = "quota SID length";
    let bytes = r.take(usize::try_from(len).map_err(|_| Malformed::new(what))?, what)?;
    let sid = Sid::parse(bytes)?;
    if sid.encoded_len() == bytes.len() { Ok(sid) } else { Err(Malformed::new(what)) }
}

/// Reads FILE_GET_QUOTA_INFORMATION entries, MS-FSCC 2.4.41.1: the users that
/// a query asks about.
#[derive(Debug, Clone)]
pub struct QuotaSids<'a>(Entries<'a>);

impl<'a> QuotaSids<'a> {
    /// The entries in `bytes`; none when it is empty.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(Entries::new(bytes, GET_QUOTA_FIXED, "quota SID list"))
    }
}

impl Iterator for QuotaSids<'_> {
    type Item = Parsed<Sid>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.0.next()?;
        Some(bytes.and_then(|bytes| {
            let mut r = Reader::new(bytes);
            r.skip(4, "quota SID list")?;
            let len = r.u32("quota SID length")?;
            read_sid(&mut r, len)
        }))
    }
}

/// Writes FILE_GET_QUOTA_INFORMATION entries.
#[derive(Debug)]
pub struct QuotaSidsWriter<'a>(ListWriter<'a>);

impl<'a> QuotaSidsWriter<'a> {
    /// Appends SIDs to `out`, at most `max_len` bytes.
    pub fn new(out: &'a mut Vec<u8>, max_len: usize) -> Self {
        Self(ListWriter::new(out, 4, max_len))
    }

    /// Appends a SID if it fits whole.
    pub fn push(&mut self, sid: &Sid) -> Pushed {
        let len = sid.encoded_len();
        let Some(out) = self.0.begin(GET_QUOTA_FIXED.saturating_add(len)) else {
            return Pushed::Full;
        };
        let mut w = Writer::new(out);
        w.u32(0).u32(u32::try_from(len).unwrap_or(u32::MAX));
        sid.encode(&mut w);
        Pushed::Fits
    }
}
