//! Security identifiers, MS-DTYP 2.4.2.

use crate::codec::{Malformed, Parsed, Reader, Writer};
use core::fmt;
use core::str::FromStr;

/// A security identifier, MS-DTYP 2.4.2. A small value without allocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sid {
    authority: u64,
    count: u8,
    sub: [u32; Self::MAX_SUB_AUTHORITIES],
}

impl Sid {
    /// The largest number of sub-authorities, MS-DTYP 2.4.2.2.
    pub const MAX_SUB_AUTHORITIES: usize = 15;
    /// The longest encoding in bytes.
    pub const MAX_SIZE: usize = 68;

    /// S-1-0-0, nobody.
    pub const NULL: Self = Self::known(0, [0, 0], 1);
    /// S-1-1-0, everyone.
    pub const EVERYONE: Self = Self::known(1, [0, 0], 1);
    /// S-1-3-0, replaced by the creator of an object when it is inherited.
    pub const CREATOR_OWNER: Self = Self::known(3, [0, 0], 1);
    /// S-1-3-1, replaced by the creator's primary group.
    pub const CREATOR_GROUP: Self = Self::known(3, [1, 0], 1);
    /// S-1-3-4, the owner of the object, whichever it is.
    pub const OWNER_RIGHTS: Self = Self::known(3, [4, 0], 1);
    /// S-1-5-2, users who logged on over the network.
    pub const NETWORK: Self = Self::known(5, [2, 0], 1);
    /// S-1-5-7, the anonymous user.
    pub const ANONYMOUS: Self = Self::known(5, [7, 0], 1);
    /// S-1-5-11, authenticated users.
    pub const AUTHENTICATED_USERS: Self = Self::known(5, [11, 0], 1);
    /// S-1-5-18, the system itself.
    pub const LOCAL_SYSTEM: Self = Self::known(5, [18, 0], 1);
    /// S-1-5, the authority of Windows' own SIDs.
    pub const NT_AUTHORITY: Self = Self::known(5, [0, 0], 0);
    /// S-1-5-32, the domain of the built-in groups.
    pub const BUILTIN: Self = Self::known(5, [32, 0], 1);
    /// S-1-5-32-544, administrators of this machine.
    pub const ADMINISTRATORS: Self = Self::known(5, [32, 544], 2);
    /// S-1-5-32-545, users of this machine.
    pub const USERS: Self = Self::known(5, [32, 545], 2);
    /// S-1-5-32-546, guests of this machine.
    pub const GUESTS: Self = Self::known(5, [32, 546], 2);

    const fn known(authority: u64, [first, second]: [u32; 2], count: u8) -> Self {
        let mut sub = [0; Self::MAX_SUB_AUTHORITIES];
        if let Some((a, rest)) = sub.split_first_mut() {
            *a = first;
            if let Some((b, _)) = rest.split_first_mut() {
                *b = second;
            }
        }
        Self { authority, count, sub }
    }

    /// Makes a SID of an authority (48 bits) and at most fifteen sub-authorities.
    pub fn new(authority: u64, sub_authorities: &[u32]) -> Option<Self> {
        if authority >> 48 != 0 {
            return None;
        }
        let mut sub = [0; Self::MAX_SUB_AUTHORITIES];
        sub.get_mut(..sub_authorities.len())?.copy_from_slice(sub_authorities);
        Some(Self { authority, count: u8::try_from(sub_authorities.len()).ok()?, sub })
    }

    /// Returns the SID of the Unix user `uid`, S-1-22-1-uid, as Samba and the POSIX extensions
    /// spell it.
    pub fn unix_user(uid: u32) -> Self {
        Self::known(22, [1, uid], 2)
    }

    /// Returns the SID of the Unix group `gid`, S-1-22-2-gid.
    pub fn unix_group(gid: u32) -> Self {
        Self::known(22, [2, gid], 2)
    }

    /// Returns IdentifierAuthority, 48 bits.
    pub const fn authority(&self) -> u64 {
        self.authority
    }

    /// Returns the sub-authorities; the last one is the relative identifier (RID).
    pub fn sub_authorities(&self) -> &[u32] {
        self.sub.get(..usize::from(self.count)).unwrap_or(&[])
    }

    /// Returns this SID (of a domain) with one more sub-authority, if there is room.
    pub fn with_rid(&self, rid: u32) -> Option<Self> {
        let mut longer = *self;
        *longer.sub.get_mut(usize::from(self.count))? = rid;
        longer.count = self.count.checked_add(1)?;
        Some(longer)
    }

    /// Returns the SID of the domain and the relative identifier.
    pub fn split_rid(&self) -> Option<(Self, u32)> {
        let (rid, domain) = self.sub_authorities().split_last()?;
        Some((Self::new(self.authority, domain)?, *rid))
    }

    /// Returns the length of the encoding in bytes.
    pub fn encoded_len(&self) -> usize {
        usize::from(self.count).saturating_mul(4).saturating_add(8)
    }

    /// Reads one SID. Revision is 1. SubAuthorityCount is at most fifteen, and may be zero as in
    /// Windows.
    pub fn read(r: &mut Reader<'_>) -> Parsed<Self> {
        if r.u8("SID revision")? != 1 {
            return Err(Malformed::new("SID revision"));
        }
        let count = r.u8("SID sub-authority count")?;
        let [a, b, c, d, e, f] = r.array("SID authority")?;
        let mut sub = [0; Self::MAX_SUB_AUTHORITIES];
        let used = sub.get_mut(..usize::from(count));
        for value in used.ok_or(Malformed::new("SID sub-authority count"))? {
            *value = r.u32("SID sub-authority")?;
        }
        Ok(Self { authority: u64::from_be_bytes([0, 0, a, b, c, d, e, f]), count, sub })
    }

    /// Parses the SID at the start of `bytes`; later bytes are ignored.
    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        Self::read(&mut Reader::new(bytes))
    }

    /// Appends the SID.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let [_, _, authority @ ..] = self.authority.to_be_bytes();
        w.u8(1).u8(self.count).bytes(&authority);
        for value in self.sub_authorities() {
            w.u32(*value);
        }
    }
}

impl fmt::Display for Sid {
    /// MS-DTYP 2.4.2.1: an authority of more than 32 bits is hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.authority >> 32 == 0 {
            write!(f, "S-1-{}", self.authority)?;
        } else {
            write!(f, "S-1-{:#014x}", self.authority)?;
        }
        self.sub_authorities().iter().try_for_each(|value| write!(f, "-{value}"))
    }
}

impl fmt::Debug for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not of the form `S-1-5-21-...`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SidParseError;

impl fmt::Display for SidParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a SID (expected S-1-...)")
    }
}

impl core::error::Error for SidParseError {}

impl FromStr for Sid {
    type Err = SidParseError;

    fn from_str(text: &str) -> Result<Self, SidParseError> {
        let mut parts = text.split('-');
        let prefix = (parts.next(), parts.next());
        if !matches!(prefix, (Some("S" | "s"), Some("1"))) {
            return Err(SidParseError);
        }
        let authority = parts.next().ok_or(SidParseError)?;
        let authority = match authority.strip_prefix("0x").or(authority.strip_prefix("0X")) {
            Some(hex) if digits(hex, u8::is_ascii_hexdigit) => u64::from_str_radix(hex, 16),
            None if digits(authority, u8::is_ascii_digit) => authority.parse(),
            _ => return Err(SidParseError),
        }
        .map_err(|_| SidParseError)?;
        let mut sid = Self::new(authority, &[]).ok_or(SidParseError)?;
        for part in parts {
            if !digits(part, u8::is_ascii_digit) {
                return Err(SidParseError);
            }
            let value = part.parse().map_err(|_| SidParseError)?;
            sid = sid.with_rid(value).ok_or(SidParseError)?;
        }
        Ok(sid)
    }
}

/// Rust's number parsers take a leading plus sign; SIDs have none.
fn digits(text: &str, is_digit: fn(&u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(|b| is_digit(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn administrators_have_their_well_known_bytes() {
        let mut out = Vec::new();
        Sid::ADMINISTRATORS.encode(&mut Writer::new(&mut out));
        assert_eq!(out, [1, 2, 0, 0, 0, 0, 0, 5, 0x20, 0, 0, 0, 0x20, 2, 0, 0]);
        assert_eq!(Sid::parse(&out).unwrap(), Sid::ADMINISTRATORS);
        assert_eq!(Sid::ADMINISTRATORS.to_string(), "S-1-5-32-544");
    }

    #[test]
    fn text_forms() {
        let domain: Sid = "S-1-5-21-397955417-626881126-188441444".parse().unwrap();
        assert_eq!(domain.to_string(), "S-1-5-21-397955417-626881126-188441444");
        let user = domain.with_rid(1010).unwrap();
        assert_eq!(user.split_rid(), Some((domain, 1010)));
        let wide: Sid = "S-1-0x10000000000-1".parse().unwrap();
        assert_eq!(wide.authority(), 0x100_0000_0000);
        assert_eq!(wide.to_string(), "S-1-0x010000000000-1");
        for bad in [
            "",
            "S-1",
            "S-2-5",
            "S-1-5-",
            "S-1-+5",
            "S-1-5-4294967296",
            "S-1-0x1000000000000",
            "1-5",
        ] {
            assert_eq!(bad.parse::<Sid>(), Err(SidParseError), "{bad}");
        }
        let fifteen = "S-1-5-1-2-3-4-5-6-7-8-9-10-11-12-13-14-15";
        assert_eq!(fifteen.parse::<Sid>().unwrap().encoded_len(), Sid::MAX_SIZE);
        assert!(std::format!("{fifteen}-16").parse::<Sid>().is_err());
    }

    #[test]
    fn bounds() {
        let sixteen = [&[1, 16, 0, 0, 0, 0, 0, 5][..], &[0; 64]].concat();
        assert!(Sid::parse(&sixteen).is_err());
        assert!(Sid::parse(&[2, 0, 0, 0, 0, 0, 0, 5]).is_err());
        assert!(Sid::parse(&[1, 1, 0, 0, 0, 0, 0, 5, 0, 0, 0]).is_err());
        assert_eq!(Sid::parse(&[1, 0, 0, 0, 0, 0, 0, 5]).unwrap().sub_authorities(), &[] as &[u32]);
    }

    proptest! {
        #[test]
        fn bytes_and_text_round_trip(authority in 0u64..1 << 48, sub in proptest::collection::vec(any::<u32>(), 0..=15)) {
            let sid = Sid::new(authority, &sub).unwrap();
            let mut out = Vec::new();
            sid.encode(&mut Writer::new(&mut out));
            prop_assert_eq!(out.len(), sid.encoded_len());
            prop_assert_eq!(Sid::parse(&out).unwrap(), sid);
            prop_assert_eq!(sid.to_string().parse::<Sid>().unwrap(), sid);
        }
    }
}
