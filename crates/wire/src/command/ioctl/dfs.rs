//! FSCTL_DFS_GET_REFERRALS: MS-DFSC 2.2.2 and 2.2.4.

use super::super::{field_u16, field_u32};
use crate::bit_set;
use crate::codec::{Malformed, Parsed, Reader, Writer};
use crate::limits::{MAX_REFERRAL_PATH, MAX_REFERRALS};
use alloc::string::String;
use alloc::vec::Vec;

/// The newest version of referrals that is understood.
pub const REFERRAL_LEVEL: u16 = 4;

/// REQ_GET_DFS_REFERRAL, MS-DFSC 2.2.2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferralRequest {
    /// MaxReferralLevel
    pub max_level: u16,
    /// RequestFileName: with one backslash at its beginning.
    pub path: String,
}

impl ReferralRequest {
    /// Parses the input of the FSCTL.
    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        let mut r = Reader::new(bytes);
        let max_level = r.u16("MaxReferralLevel")?;
        Ok(Self { max_level, path: text(r.rest(), 0, "RequestFileName")? })
    }

    /// Appends the input of the FSCTL.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(self.max_level).utf16(&self.path).u16(0);
    }
}

bit_set! {
    /// RequestFlags, MS-DFSC 2.2.3.
    ReferralRequestFlags(u16) {
        /// The request has the name of the client's site.
        SITE_NAME = 0x0001,
    }
}

/// REQ_GET_DFS_REFERRAL_EX, MS-DFSC 2.2.3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferralRequestEx {
    /// MaxReferralLevel
    pub max_level: u16,
    /// RequestFileName: with one backslash at its beginning.
    pub path: String,
    /// SiteName: the client's site, if it has one.
    pub site: Option<String>,
}

impl ReferralRequestEx {
    /// Parses the input of the FSCTL. A zero at the end of a string is not a part of it.
    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        let mut r = Reader::new(bytes);
        let max_level = r.u16("MaxReferralLevel")?;
        let flags = ReferralRequestFlags(r.u16("RequestFlags")?);
        let length = usize::try_from(r.u32("RequestDataLength")?);
        let length = length.map_err(|_| Malformed::new("RequestDataLength"))?;
        let mut data = Reader::new(r.take(length, "RequestData")?);
        let path = counted(&mut data, "RequestFileName")?;
        let has_site = flags.contains(ReferralRequestFlags::SITE_NAME);
        let site = has_site.then(|| counted(&mut data, "SiteName")).transpose()?;
        Ok(Self { max_level, path, site })
    }

    /// Appends the input of the FSCTL.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let flags = match self.site {
            Some(_) => ReferralRequestFlags::SITE_NAME,
            None => ReferralRequestFlags::EMPTY,
        };
        let mut data = Vec::new();
        for text in [Some(&self.path), self.site.as_ref()].into_iter().flatten() {
            let mut string = Vec::new();
            Writer::new(&mut string).utf16(text).u16(0);
            Writer::new(&mut data).u16(field_u16(string.len())).bytes(&string);
        }
        w.u16(self.max_level).u16(flags.0).u32(field_u32(data.len())).bytes(&data);
    }
}

/// Reads a length in bytes and a string of that length.
fn counted(r: &mut Reader<'_>, what: &'static str) -> Parsed<String> {
    let length = usize::from(r.u16(what)?);
    let (units, odd) = r.take(length, what)?.as_chunks::<2>();
    let units: Vec<u16> = units.iter().map(|unit| u16::from_le_bytes(*unit)).collect();
    let units = units.strip_suffix(&[0]).unwrap_or(&units);
    if !odd.is_empty() || units.len() > MAX_REFERRAL_PATH || units.contains(&0) {
        return Err(Malformed::new(what));
    }
    String::from_utf16(units).map_err(|_| Malformed::new(what))
}

bit_set! {
    /// ReferralHeaderFlags, MS-DFSC 2.2.4.
    ReferralHeaderFlags(u32) {
        /// R: all targets are root targets, which know of referrals.
        REFERRAL_SERVERS = 0x0000_0001,
        /// S: all targets can be used without further referrals.
        STORAGE_SERVERS = 0x0000_0002,
        /// T: clients may go back to a target of an earlier set.
        TARGET_FAILBACK = 0x0000_0004,
    }
}

/// One target, from an entry of any version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Referral {
    /// True for a root target (ServerType).
    pub is_root: bool,
    /// TimeToLive in seconds; 0 in version 1, which has none.
    pub time_to_live_s: u32,
    /// DFSPath: the path that the referral is for; empty in version 1.
    pub path: String,
    /// NetworkAddress, or ShareName of version 1: `\server\share\path`.
    pub target: String,
    /// TargetSetBoundary (version 4): begins a set of targets of equal cost.
    pub begins_set: bool,
}

/// RESP_GET_DFS_REFERRAL, MS-DFSC 2.2.4, for root and link referrals. Referrals of domains and
/// domain controllers are [`NameList`]s.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferralResponse {
    /// PathConsumed: bytes of the request's path (UTF-16) that the targets are for.
    pub path_consumed: u16,
    /// ReferralHeaderFlags
    pub flags: ReferralHeaderFlags,
    /// The targets, in the server's order of preference.
    pub referrals: Vec<Referral>,
}

/// NameListReferral, MS-DFSC 2.2.5.3: of domains and domain controllers.
const NAME_LIST: u16 = 0x0002;
/// TargetSetBoundary, MS-DFSC 2.2.5.4.
const TARGET_SET: u16 = 0x0004;

impl ReferralResponse {
    /// Parses the output of the FSCTL.
    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        let mut r = Reader::new(bytes);
        let path_consumed = r.u16("PathConsumed")?;
        let count = usize::from(r.u16("NumberOfReferrals")?);
        let flags = ReferralHeaderFlags(r.u32("ReferralHeaderFlags")?);
        let referrals = entries(r.rest(), count, entry)?;
        Ok(Self { path_consumed, flags, referrals })
    }

    /// Returns the output of the FSCTL: entries of version 4 if there are target sets, else of
    /// version 3, and their strings behind them. None if they are more than 64 KiB together.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let version = if self.referrals.iter().any(|one| one.begins_set) { 4 } else { 3 };
        match &*self.referrals {
            [] => Some(self.header(version, 0)),
            all => self.entries_within(version, REFERRAL_BYTES, all.len()),
        }
    }

    /// Returns the output of the FSCTL for a client that understands `version`, or a newer one, and has
    /// `room` bytes: as many whole entries as fit. None if not one fits, and for version 0, which no
    /// entry has.
    pub fn encode_within(&self, version: u16, room: usize) -> Option<Vec<u8>> {
        self.entries_within(version, room, 1)
    }

    /// Returns at least `least` entries.
    fn entries_within(&self, version: u16, room: usize, least: usize) -> Option<Vec<u8>> {
        let version = version.min(REFERRAL_LEVEL);
        let size = entry_size(version)?;
        // The offsets of strings have 16 bits, so nothing lies beyond 64 KiB.
        let room = room.min(REFERRAL_BYTES);
        let (mut strings, mut offsets) = (Vec::new(), Vec::new());
        for referral in &self.referrals {
            let before = strings.len();
            let offset = offsets_of(&mut strings, offsets.last(), referral, version);
            let count = offsets.len().saturating_add(1);
            let bytes = count.saturating_mul(size).saturating_add(strings.len());
            if bytes.saturating_add(HEADER) > room {
                strings.truncate(before);
                break;
            }
            offsets.push(offset);
        }
        if offsets.len() < least {
            return None;
        }
        let mut out = self.header(version, field_u16(offsets.len()));
        let mut ahead = offsets.len().saturating_mul(size);
        let mut w = Writer::new(&mut out);
        for (referral, at) in self.referrals.iter().zip(&offsets) {
            let flags = if version == 4 && referral.begins_set { TARGET_SET } else { 0 };
            let type_and_flags = |w: &mut Writer<'_>, bytes: usize| {
                w.u16(version).u16(field_u16(bytes)).u16(referral.is_root.into()).u16(flags);
            };
            if version == 1 {
                // MS-DFSC 2.2.5.1: the string belongs to the entry.
                let target = strings.get(at.target..at.end).unwrap_or_default();
                type_and_flags(&mut w, size.saturating_add(target.len()));
                w.bytes(target);
                continue;
            }
            type_and_flags(&mut w, size);
            if version == 2 {
                w.u32(0);
            }
            let path = field_u16(ahead.saturating_add(at.path));
            w.u32(referral.time_to_live_s).u16(path).u16(path);
            w.u16(field_u16(ahead.saturating_add(at.target)));
            if version > 2 {
                w.zeros(16);
            }
            ahead = ahead.saturating_sub(size);
        }
        if version > 1 {
            w.bytes(&strings);
        }
        Some(out)
    }

    /// Returns the header of a response with entries of `version`.
    fn header(&self, version: u16, count: u16) -> Vec<u8> {
        let both = ReferralHeaderFlags::REFERRAL_SERVERS | ReferralHeaderFlags::STORAGE_SERVERS;
        let flags = match version {
            // MS-DFSC 3.2.5.5: version 1 has both bits, and 2.2.4: only version 4 has TargetFailback.
            1 => both,
            2 | 3 => self.flags & both,
            _ => self.flags,
        };
        let mut out = Vec::new();
        Writer::new(&mut out).u16(self.path_consumed).u16(count).u32(flags.0);
        out
    }
}

/// Bytes of the header of a response.
const HEADER: usize = 8;

/// The most bytes of a response: offsets have 16 bits.
const REFERRAL_BYTES: usize = 0xFFFF;

/// Returns the bytes of an entry without its strings. None for a version that is none.
const fn entry_size(version: u16) -> Option<usize> {
    match version {
        1 => Some(8),
        2 => Some(22),
        3 | 4 => Some(34),
        _ => None,
    }
}

/// The places of an entry's strings among all strings.
#[derive(Debug, Clone, Copy)]
struct Offsets {
    path: usize,
    path_end: usize,
    target: usize,
    end: usize,
}

/// Appends the strings of an entry. A path that the entry before has too is used again.
fn offsets_of(
    strings: &mut Vec<u8>,
    before: Option<&Offsets>,
    referral: &Referral,
    version: u16,
) -> Offsets {
    let (mut path, mut path_end) = (0, 0);
    if version > 1 {
        let mut text = Vec::new();
        Writer::new(&mut text).utf16(&referral.path).u16(0);
        let known = before.filter(|at| strings.get(at.path..at.path_end) == Some(&text));
        (path, path_end) = known.map_or((strings.len(), 0), |at| (at.path, at.path_end));
        if known.is_none() {
            strings.extend_from_slice(&text);
            path_end = strings.len();
        }
    }
    let target = strings.len();
    Writer::new(strings).utf16(&referral.target).u16(0);
    Offsets { path, path_end, target, end: strings.len() }
}

/// A domain with its controllers: MS-DFSC 2.2.5.3.2. A domain referral has one list without
/// controllers for each domain, a DC referral one list with controllers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameList {
    /// TimeToLive, seconds.
    pub time_to_live_s: u32,
    /// SpecialName: the domain.
    pub domain: String,
    /// ExpandedNames: its controllers, in the server's order.
    pub controllers: Vec<String>,
}

impl NameList {
    /// Parses the output of the FSCTL for a domain or DC referral.
    pub fn parse_all(bytes: &[u8]) -> Parsed<Vec<Self>> {
        let mut r = Reader::new(bytes);
        r.skip(2, "PathConsumed")?;
        let count = usize::from(r.u16("NumberOfReferrals")?);
        r.skip(4, "ReferralHeaderFlags")?;
        entries(r.rest(), count, name_list)
    }

    /// Returns the output of the FSCTL for a DC referral. None if the names do not fit the 16-bit
    /// offsets.
    pub fn encode(&self) -> Option<Vec<u8>> {
        const SIZE: u16 = 18;
        let mut names = Vec::new();
        Writer::new(&mut names).utf16(&self.domain).u16(0);
        let behind = u16::try_from(names.len()).ok()?.checked_add(SIZE)?;
        for name in &self.controllers {
            Writer::new(&mut names).utf16(name).u16(0);
        }
        let mut out = Vec::new();
        let mut w = Writer::new(&mut out);
        // MS-DFSC 3.3.5.3: the header has PathConsumed 0, one entry and no flags. The entry begins
        // with version 3, its size, server type 0, and the flag NAME_LIST.
        w.u16(0).u16(1).u32(0).u16(3).u16(SIZE).u16(0).u16(NAME_LIST).u32(self.time_to_live_s);
        w.u16(SIZE).u16(u16::try_from(self.controllers.len()).ok()?).u16(behind);
        out.extend_from_slice(&names);
        Some(out)
    }
}

/// Reads `count` entries of one version with `read(bytes, version, size)`, which also gets the
/// bytes behind the entry, where its strings are.
fn entries<T>(
    bytes: &[u8],
    count: usize,
    read: impl Fn(&[u8], u16, usize) -> Parsed<T>,
) -> Parsed<Vec<T>> {
    if count > MAX_REFERRALS {
        return Err(Malformed::new("NumberOfReferrals"));
    }
    let mut rest = bytes;
    let mut version = None;
    let mut found = Vec::new();
    for _ in 0..count {
        let mut r = Reader::new(rest);
        let this = r.u16("VersionNumber")?;
        let size = usize::from(r.u16("referral Size")?);
        // MS-DFSC 2.2.5: all entries of a response must have the same version.
        if *version.get_or_insert(this) != this {
            return Err(Malformed::new("VersionNumber"));
        }
        found.push(read(rest, this, size)?);
        rest = rest.get(size..).ok_or(Malformed::new("DFS referral"))?;
    }
    Ok(found)
}

/// Parses the name list at the beginning of `bytes`.
fn name_list(bytes: &[u8], version: u16, size: usize) -> Parsed<NameList> {
    let own = bytes.get(..size).ok_or(Malformed::new("referral Size"))?;
    let mut r = Reader::new(own);
    r.skip(6, "referral entry")?;
    // MS-DFSC 3.1.5.4.1 and 3.1.5.4.2: an entry with a list of names has the flag NAME_LIST and
    // version 3 or 4.
    if r.u16("ReferralEntryFlags")? & NAME_LIST == 0 || !matches!(version, 3 | 4) {
        return Err(Malformed::new("NameListReferral"));
    }
    let time_to_live_s = r.u32("TimeToLive")?;
    let special = usize::from(r.u16("SpecialNameOffset")?);
    let count = usize::from(r.u16("NumberOfExpandedNames")?);
    let mut at = usize::from(r.u16("ExpandedNameOffset")?);
    if special < size || (count > 0 && at < size) {
        return Err(Malformed::new("referral string offset"));
    }
    if count > MAX_REFERRALS {
        return Err(Malformed::new("NumberOfExpandedNames"));
    }
    let mut controllers = Vec::new();
    for _ in 0..count {
        let name = text(bytes, at, "ExpandedName")?;
        // The next name begins after this one and its terminator.
        let units = name.encode_utf16().count().saturating_add(1);
        at = at.saturating_add(units.saturating_mul(2));
        controllers.push(name);
    }
    Ok(NameList { time_to_live_s, domain: text(bytes, special, "SpecialName")?, controllers })
}

/// Parses the entry at the beginning of `bytes`. Its strings lie behind all entries.
fn entry(bytes: &[u8], version: u16, size: usize) -> Parsed<Referral> {
    const WHAT: &str = "referral entry";
    let own = bytes.get(..size).ok_or(Malformed::new("referral Size"))?;
    let mut r = Reader::new(own);
    r.skip(4, WHAT)?;
    let is_root = r.u16("ServerType")? == 1;
    let flags = r.u16("ReferralEntryFlags")?;
    let mut time_to_live_s = 0;
    match version {
        1 => {
            let target = text(own, r.position(), "ShareName")?;
            let path = String::new();
            return Ok(Referral { is_root, time_to_live_s, path, target, begins_set: false });
        }
        2 => {
            r.skip(4, "Proximity")?;
            time_to_live_s = r.u32("TimeToLive")?;
        }
        3 | 4 if flags & NAME_LIST == 0 => time_to_live_s = r.u32("TimeToLive")?,
        _ => return Err(Malformed::new("VersionNumber")),
    }
    let path = usize::from(r.u16("DFSPathOffset")?);
    r.skip(2, "DFSAlternatePathOffset")?;
    let target = usize::from(r.u16("NetworkAddressOffset")?);
    // The strings must come after the entry, not inside of it.
    if path < size || target < size {
        return Err(Malformed::new("referral string offset"));
    }
    Ok(Referral {
        is_root,
        time_to_live_s,
        path: text(bytes, path, "DFSPath")?,
        target: text(bytes, target, "NetworkAddress")?,
        begins_set: version == 4 && flags & TARGET_SET != 0,
    })
}

/// Reads the string that begins at `offset` and ends with a zero.
fn text(bytes: &[u8], offset: usize, what: &'static str) -> Parsed<String> {
    let rest = bytes.get(offset..).ok_or(Malformed::new(what))?;
    let units = rest.as_chunks::<2>().0.iter().map(|unit| u16::from_le_bytes(*unit));
    let mut ended = false;
    let units: Vec<u16> = units
        .take(MAX_REFERRAL_PATH)
        .take_while(|unit| {
            ended = *unit == 0;
            !ended
        })
        .collect();
    if !ended {
        return Err(Malformed::new(what));
    }
    String::from_utf16(&units).map_err(|_| Malformed::new(what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn response() -> ReferralResponse {
        let referral = |target: &str| Referral {
            is_root: false,
            time_to_live_s: 300,
            path: "\\files\\dfs\\link".into(),
            target: target.into(),
            begins_set: false,
        };
        ReferralResponse {
            path_consumed: 30,
            flags: ReferralHeaderFlags::STORAGE_SERVERS,
            referrals: vec![referral("\\one\\data"), referral("\\two\\data\\below")],
        }
    }

    #[test]
    fn requests_and_answers_there_and_back() {
        let request = ReferralRequest { max_level: 4, path: "\\files\\dfs\\é".into() };
        let mut bytes = Vec::new();
        request.encode(&mut Writer::new(&mut bytes));
        assert_eq!(&bytes[..4], [4, 0, b'\\', 0]);
        assert_eq!(ReferralRequest::parse(&bytes), Ok(request));
        let bytes = response().encode().unwrap();
        assert_eq!(ReferralResponse::parse(&bytes), Ok(response()));
        let mut sets = response();
        sets.referrals[0].begins_set = true;
        let bytes = sets.encode().unwrap();
        assert_eq!(bytes[8], 4, "VersionNumber");
        assert_eq!(ReferralResponse::parse(&bytes), Ok(sets));
    }

    #[test]
    fn domains_and_their_controllers() {
        let list = NameList {
            time_to_live_s: 600,
            domain: "\\corp.example".into(),
            controllers: vec!["\\dc1.corp.example".into(), "\\dc2.corp.example".into()],
        };
        let bytes = list.encode().unwrap();
        assert_eq!(NameList::parse_all(&bytes), Ok(vec![list]));
        assert!(ReferralResponse::parse(&bytes).is_err(), "it names no target");
        assert!(NameList::parse_all(&response().encode().unwrap()).is_err());
        for cut in 0..bytes.len() {
            assert!(NameList::parse_all(&bytes[..cut]).is_err(), "{cut}");
        }
        // Each case changes one byte: in NumberOfReferrals (offset 2), Size (10), SpecialNameOffset
        // (20), NumberOfExpandedNames (22) or ExpandedNameOffset (24).
        for (at, lie) in [(2, 2), (10, 0), (10, 200), (22, 0xFF), (22, 3), (20, 2), (24, 2)] {
            let mut bad = bytes.clone();
            bad[at] = lie;
            assert!(NameList::parse_all(&bad).is_err(), "{lie} at {at}");
        }
    }

    #[test]
    fn extended_requests_there_and_back() {
        for site in [None, Some("Berlin".into())] {
            let request = ReferralRequestEx { max_level: 4, path: "\\files\\é".into(), site };
            let mut bytes = Vec::new();
            request.encode(&mut Writer::new(&mut bytes));
            assert_eq!(ReferralRequestEx::parse(&bytes).as_ref(), Ok(&request));
            for cut in 0..bytes.len() {
                assert!(ReferralRequestEx::parse(&bytes[..cut]).is_err(), "{cut}");
            }
        }
        // Without zeros at the ends of the strings.
        let bare = [4, 0, 0, 0, 6, 0, 0, 0, 4, 0, b'\\', 0, b'a', 0];
        assert_eq!(ReferralRequestEx::parse(&bare).unwrap().path, "\\a");
        // Each case is a change of one byte: RequestDataLength (4), RequestFileNameLength (8), a NUL in
        // the name (10), RequestFlags without a site behind the name (2).
        for (at, lie) in [(4, 7), (4, 5), (8, 5), (8, 3), (10, 0), (2, 1)] {
            let mut bad = bare;
            bad[at] = lie;
            assert!(ReferralRequestEx::parse(&bad).is_err(), "{lie} at {at}");
        }
    }

    /// MS-DFSC 2.2.4, 2.2.5 and 3.2.5.1
    #[test]
    fn responses_have_the_version_and_the_room_of_the_client() {
        let mut all = response();
        all.flags |= ReferralHeaderFlags::TARGET_FAILBACK;
        all.referrals[0].begins_set = true;
        for (version, size) in [(1, 8), (2, 22), (3, 34), (4, 34)] {
            let whole = all.encode_within(version, usize::MAX).unwrap();
            assert_eq!(whole[8], version as u8, "VersionNumber");
            let found = ReferralResponse::parse(&whole).unwrap();
            let mut expected = all.clone();
            if version < 4 {
                expected.flags = ReferralHeaderFlags::STORAGE_SERVERS;
                expected.referrals[0].begins_set = false;
            }
            if version == 1 {
                expected.flags |= ReferralHeaderFlags::REFERRAL_SERVERS;
                for one in &mut expected.referrals {
                    (one.path, one.time_to_live_s) = (String::new(), 0);
                }
            }
            assert_eq!(found, expected, "{version}");
            let text = |text: &str| 2 * (text.len() + 1);
            let one = &all.referrals[0];
            let path = if version == 1 { 0 } else { text(&one.path) };
            let least = 8 + size + path + text(&one.target);
            for room in 0..=whole.len() {
                let count = all.encode_within(version, room).map(|bytes| {
                    assert!(bytes.len() <= room);
                    ReferralResponse::parse(&bytes).unwrap().referrals.len()
                });
                let expected = if room == whole.len() { Some(2) } else { Some(1) };
                assert_eq!(count, expected.filter(|_| room >= least), "{version} {room}");
            }
        }
        assert_eq!(all.encode_within(0, usize::MAX), None);
        assert_eq!(all.encode_within(u16::MAX, usize::MAX), all.encode_within(4, usize::MAX));
        // Offsets have 16 bits: the entries that would lie beyond are left out.
        let long = Referral { target: "x".repeat(4_000), ..all.referrals[1].clone() };
        all.referrals = vec![long; 20];
        let bytes = all.encode_within(4, usize::MAX).unwrap();
        assert_eq!((bytes[2], bytes.len() < 65_536), (8, true));
        assert!(ReferralResponse::parse(&bytes).is_ok() && all.encode().is_none());
    }

    /// MS-DFSC 2.2.5.1 and 2.2.5.2
    #[test]
    fn older_versions() {
        let text = |text: &str| -> Vec<u8> {
            text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
        };
        let mut one = vec![10, 0, 1, 0, 2, 0, 0, 0];
        let target = text("\\s\\x");
        one.extend_from_slice(&[1, 0, 8 + target.len() as u8, 0, 1, 0, 0, 0]);
        one.extend_from_slice(&target);
        let found = ReferralResponse::parse(&one).unwrap();
        assert_eq!((&*found.referrals[0].target, found.referrals[0].is_root), ("\\s\\x", true));
        let mut two = vec![10, 0, 1, 0, 2, 0, 0, 0];
        two.extend_from_slice(&[2, 0, 22, 0, 0, 0, 0, 0, 0, 0, 0, 0, 60, 0, 0, 0]);
        two.extend_from_slice(&[22, 0, 22, 0, 32, 0]);
        two.extend_from_slice(&text("\\a\\b"));
        two.extend_from_slice(&text("\\s\\y"));
        let found = ReferralResponse::parse(&two).unwrap();
        let referral = &found.referrals[0];
        assert_eq!(
            (&*referral.path, &*referral.target, referral.time_to_live_s),
            ("\\a\\b", "\\s\\y", 60)
        );
    }

    #[test]
    fn lies_are_malformed() {
        let good = response().encode().unwrap();
        for cut in 0..good.len() {
            assert!(ReferralResponse::parse(&good[..cut]).is_err(), "{cut}");
        }
        // Each case changes one field of two bytes: NumberOfReferrals (offset 2), VersionNumber of
        // the first (8) or second entry (42), Size (10), ReferralEntryFlags (14), DFSPathOffset
        // (20) or NetworkAddressOffset (24).
        let lies: [(usize, [u8; 2]); 8] = [
            (2, [0xFF, 0xFF]),
            (8, [9, 0]),
            (42, [2, 0]),
            (10, [0, 0]),
            (10, [0xFF, 0xFF]),
            (20, [0xFF, 0xFF]),
            (24, [0, 0]),
            (14, [2, 0]),
        ];
        for (at, bytes) in lies {
            let mut bad = good.clone();
            bad[at..at + 2].copy_from_slice(&bytes);
            assert!(ReferralResponse::parse(&bad).is_err(), "{bytes:?} at {at}");
        }
    }
}
