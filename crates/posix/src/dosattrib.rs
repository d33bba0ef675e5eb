//! The value of `user.DOSATTRIB`, Samba's `xattr_DOSATTRIB`.
//!
//! An NDR structure: a zero-terminated string (`0x22`; the oldest versions stored only that, newer
//! ones leave it empty), a version, the version again as the union's discriminant, and the union's
//! arm. smbd 4.17 writes version 5.
//!
//! Linux cannot store a ChangeTime that a client sets. It follows that structure, where smbd does
//! not look, marked by a flag of smbd's older versions.
//!
//! Neither can it store times that only the owner of a file may set, where this process is not the
//! owner. They follow ChangeTime.
//!
//! A new file was created when it was born. Its value is written before that time is read, and so
//! has the clock's time, at most a tick earlier, with a flag of Frevo's own: the time of birth is
//! shown while it is that near. A copy that was born later shows the stored time.

use frevo_wire::dtyp::FileTime;

/// Name of the attribute.
pub const NAME: &str = "user.DOSATTRIB";

/// The attributes field is valid.
const VALID_ATTRIB: u32 = 0x01;
/// The creation time is valid.
const VALID_CREATE_TIME: u32 = 0x10;
/// A change time is valid; Frevo's follows version 5's structure.
const VALID_CHANGE_TIME: u32 = 0x20;
/// Times that the host did not take follow. Frevo's own.
const KEPT_TIMES: u32 = 0x2000_0000;
/// The creation time is that of the file's birth, or a tick earlier. Frevo's own.
const AT_BIRTH: u32 = 0x4000_0000;

/// The most that the time of birth is later than a creation time with [`AT_BIRTH`], and earlier on a
/// medium with coarse times: 20 ms and 2 s, in units of FILETIME.
const BIRTH_SLACK: (u64, u64) = (200_000, 20_000_000);

/// Bytes of the part of [`DosAttrib::encode`] that smbd reads.
const SMBD_LEN: usize = 24;
/// Bytes of a ChangeTime, and of [`KeptTimes`].
const CHANGED_LEN: usize = 16;
const KEPT_LEN: usize = 24;
/// Largest number of bytes of [`DosAttrib::encode`].
pub const ENCODED_LEN: usize = SMBD_LEN + CHANGED_LEN + KEPT_LEN;

/// A ChangeTime that a client set. It is valid until the file changes, which the host's own time of
/// change shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetChangeTime {
    /// The time to show.
    pub shown: FileTime,
    /// The latest change time of the host with which it is valid.
    pub until: FileTime,
}

/// Times that a client set and that the host did not take. They are valid while the host's time of
/// the last write is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptTimes {
    /// LastAccessTime; None for the host's.
    pub accessed: Option<FileTime>,
    /// LastWriteTime; None for the host's.
    pub written: Option<FileTime>,
    /// The host's time of the last write.
    pub at: FileTime,
}

/// The content of a DOSATTRIB value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DosAttrib {
    /// FILE_ATTRIBUTE_* bits.
    pub attributes: u32,
    /// CreationTime, if it was stored.
    pub created: Option<FileTime>,
    /// True if CreationTime means the file's birth; see [`Self::with_birth`].
    pub at_birth: bool,
    /// ChangeTime, if a client set it.
    pub changed: Option<SetChangeTime>,
    /// Times that the host did not take.
    pub times: Option<KeptTimes>,
}

impl DosAttrib {
    /// Encodes the value as smbd 4.17 does, version 5, into the caller's buffer.
    pub fn encode<'a>(&self, out: &'a mut [u8; ENCODED_LEN]) -> &'a [u8] {
        out.fill(0);
        let flags = VALID_ATTRIB
            | self.created.map_or(0, |_| VALID_CREATE_TIME)
            | self.changed.map_or(0, |_| VALID_CHANGE_TIME)
            | self.times.map_or(0, |_| KEPT_TIMES)
            | if self.at_birth { AT_BIRTH } else { 0 };
        // The text and its padding are zeros, and `out` has zeros there already.
        out[2..4].copy_from_slice(&5u16.to_le_bytes());
        out[4..6].copy_from_slice(&5u16.to_le_bytes());
        out[8..12].copy_from_slice(&flags.to_le_bytes());
        out[12..16].copy_from_slice(&self.attributes.to_le_bytes());
        out[16..24].copy_from_slice(&self.created.unwrap_or_default().0.to_le_bytes());
        let mut len = SMBD_LEN;
        let mut put = |times: &[FileTime]| {
            for time in times {
                out[len..len + 8].copy_from_slice(&time.0.to_le_bytes());
                len += 8;
            }
        };
        if let Some(SetChangeTime { shown, until }) = self.changed {
            put(&[shown, until]);
        }
        if let Some(KeptTimes { accessed, written, at }) = self.times {
            put(&[accessed.unwrap_or_default(), written.unwrap_or_default(), at]);
        }
        &out[..len]
    }

    /// Returns the value with the exact CreationTime of a file that was born at `birth`.
    #[must_use]
    pub fn with_birth(self, birth: Option<FileTime>) -> Self {
        let is_near = |created: FileTime, birth: FileTime| {
            let (later, earlier) = BIRTH_SLACK;
            birth.0.saturating_sub(created.0) <= later
                && created.0.saturating_sub(birth.0) <= earlier
        };
        let created = match (self.created, birth) {
            (Some(created), Some(birth)) if self.at_birth && is_near(created, birth) => Some(birth),
            (created, _) => created,
        };
        Self { created, at_birth: false, ..self }
    }

    /// Reads versions 1 to 5 and the plain string; `None` for anything else.
    pub fn decode(value: &[u8]) -> Option<Self> {
        let end = value.iter().position(|&b| b == 0).unwrap_or(value.len());
        let string = &value[..end];
        let mut ndr = Ndr { value, at: end.saturating_add(1) };
        let Some(version) = ndr.u16() else {
            // Samba before 3.5 stored only this hexadecimal text of the attributes.
            return Some(Self { attributes: hexadecimal(string)?, ..Self::default() });
        };
        if ndr.u16()? != version {
            return None;
        }
        match version {
            1 => {
                let attributes = ndr.u32()?;
                ndr.skip(4 + 8 + 8)?;
                Some(Self { attributes, created: ndr.time(), ..Self::default() })
            }
            2 => {
                ndr.skip(4)?;
                // The timestamps of this version are ignored, as smbd does.
                Some(Self { attributes: ndr.u32()?, ..Self::default() })
            }
            3 => {
                let flags = ndr.u32()?;
                let attributes = ndr.u32()?;
                ndr.skip(4 + 8 + 8)?;
                Some(Self::of_flags(flags, attributes, ndr.time()))
            }
            4 => {
                let flags = ndr.u32()?;
                let attributes = ndr.u32()?;
                ndr.skip(8)?;
                Some(Self::of_flags(flags, attributes, ndr.time()))
            }
            5 => {
                let flags = ndr.u32()?;
                let attributes = ndr.u32()?;
                let value = Self::of_flags(flags, attributes, ndr.time());
                let at_birth = value.created.is_some() && flags & AT_BIRTH != 0;
                let (changed, times) = (ndr.changed(flags), ndr.kept(flags));
                Some(Self { changed, times, at_birth, ..value })
            }
            _ => None,
        }
    }

    fn of_flags(flags: u32, attributes: u32, created: Option<FileTime>) -> Self {
        Self {
            // As in smbd, the attributes are used even if no flag says that they are valid, but the
            // creation time is used only with its flag.
            attributes,
            created: created.filter(|_| flags & VALID_CREATE_TIME != 0),
            ..Self::default()
        }
    }
}

/// Parses `0x22` in any case, the form of `attrib_hex`.
fn hexadecimal(string: &[u8]) -> Option<u32> {
    let text = core::str::from_utf8(string).ok()?;
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    u32::from_str_radix(digits, 16).ok()
}

/// A little-endian NDR reader; 64-bit fields of this structure align to 4.
struct Ndr<'a> {
    value: &'a [u8],
    at: usize,
}

impl Ndr<'_> {
    fn take<const N: usize>(&mut self, align: usize) -> Option<[u8; N]> {
        let start = self.at.checked_next_multiple_of(align)?;
        let end = start.checked_add(N)?;
        let bytes = self.value.get(start..end)?.try_into().ok()?;
        self.at = end;
        Some(bytes)
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        let start = self.at.checked_next_multiple_of(4)?;
        self.at = start.checked_add(count)?;
        Some(())
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4).map(u32::from_le_bytes)
    }

    /// Reads a time; zero means that no time was stored.
    fn time(&mut self) -> Option<FileTime> {
        self.take(4).map(u64::from_le_bytes).filter(|&t| t != 0).map(FileTime)
    }

    /// Reads the part behind version 5's structure.
    fn changed(&mut self, flags: u32) -> Option<SetChangeTime> {
        if flags & VALID_CHANGE_TIME == 0 {
            return None;
        }
        Some(SetChangeTime { shown: self.time()?, until: self.time()? })
    }

    /// Reads the part behind that.
    fn kept(&mut self, flags: u32) -> Option<KeptTimes> {
        if flags & KEPT_TIMES == 0 {
            return None;
        }
        let [accessed, written, at] = [self.take(4)?, self.take(4)?, self.take(4)?]
            .map(|bytes| FileTime(u64::from_le_bytes(bytes)));
        let nonzero = |time: FileTime| (time.0 != 0).then_some(time);
        Some(KeptTimes { accessed: nonzero(accessed), written: nonzero(written), at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    }

    /// Written by smbd 4.17.12 with `store dos attributes = yes`.
    const FROM_SMBD: [(&str, u32, u64); 6] = [
        ("00000500050000001100000021000000fcfad080fd79dd01", 0x21, 0x01dd_79fd_80d0_fafc),
        ("00000500050000001100000022000000e31ad180fd79dd01", 0x22, 0x01dd_79fd_80d1_1ae3),
        ("00000500050000001100000000000000362fd180fd79dd01", 0, 0x01dd_79fd_80d1_2f36),
        ("000005000500000011000000100000009850d180fd79dd01", 0x10, 0x01dd_79fd_80d1_5098),
        ("000005000500000011000000120000005363cc80fd79dd01", 0x12, 0x01dd_79fd_80cc_6353),
        ("00000500050000001100000004000000d32acb80fd79dd01", 0x04, 0x01dd_79fd_80cb_2ad3),
    ];

    #[test]
    fn values_of_smbd_are_read_and_written_unchanged() {
        for (hex, attributes, created) in FROM_SMBD {
            let created = Some(FileTime(created));
            let value = DosAttrib { attributes, created, ..DosAttrib::default() };
            assert_eq!(DosAttrib::decode(&bytes(hex)), Some(value));
            assert_eq!(value.encode(&mut [0; ENCODED_LEN]), bytes(hex));
        }
    }

    /// Tests values that smbd 4.17.12 shows as HIDDEN and ARCHIVE, with this time except in version
    /// 2.
    #[test]
    fn older_versions_are_read() {
        let t = "0102030405060700";
        let created = Some(FileTime(0x0007_0605_0403_0201));
        let z8 = "0000000000000000";
        let v1 = format!("0000 0100 0100 0000 22000000 00000000 {z8} {z8} {t} {z8}");
        let v2 = format!("0000 0200 0200 0000 01000000 22000000 00000000 {z8}{z8}{t}{z8}{z8}00");
        // After the text (five bytes and one of padding) come the version, two more bytes of
        // padding, and the fields.
        let v3 = format!("3078323200 00 0300 0300 0000 31000000 22000000 00000000 {z8}{z8}{t}{z8}");
        let v4 = format!("0000 0400 0400 0000 51000000 22000000 {z8} {t}");
        for (version, hex) in [(1, v1), (2, v2), (3, v3), (4, v4)] {
            let value = bytes(&hex.replace(' ', ""));
            let created = created.filter(|_| version != 2);
            assert_eq!(
                DosAttrib::decode(&value),
                Some(DosAttrib { attributes: 0x22, created, ..DosAttrib::default() }),
                "version {version}"
            );
        }
    }

    #[test]
    fn the_plain_string_is_read() {
        let of = |s: &[u8]| DosAttrib::decode(s).map(|d| (d.attributes, d.created));
        assert_eq!(of(b"0x22"), Some((0x22, None)));
        assert_eq!(of(b"0x22\0"), Some((0x22, None)));
        assert_eq!(of(b"0X1f\0"), Some((0x1f, None)));
        assert_eq!(of(b"22\0"), None);
        assert_eq!(of(b""), None);
        assert_eq!(of(b"0x\0"), None);
    }

    #[test]
    fn flags_say_what_is_meant() {
        let bare = DosAttrib { attributes: 0x20, ..DosAttrib::default() };
        let mut value = bare.encode(&mut [0; ENCODED_LEN]).to_vec();
        assert_eq!(DosAttrib::decode(&value).unwrap().created, None);
        value[8] = 0x10;
        value[16] = 9;
        let read = DosAttrib::decode(&value).unwrap();
        assert_eq!(read, DosAttrib { created: Some(FileTime(9)), ..bare });
        // Only older versions of smbd set this flag, which must have no effect.
        value[8] |= 0x20;
        assert_eq!(DosAttrib::decode(&value).unwrap(), read);
    }

    #[test]
    fn a_file_was_created_when_it_was_born() {
        const MS: u64 = 10_000;
        let at = 1 << 40;
        let of = |created: u64, birth: Option<u64>| {
            let created = Some(FileTime(created));
            let value = DosAttrib { created, at_birth: true, ..DosAttrib::default() };
            let exact = value.with_birth(birth.map(FileTime));
            assert!(!exact.at_birth);
            assert_eq!(
                DosAttrib { at_birth: false, ..value }.with_birth(birth.map(FileTime)).created,
                created
            );
            exact.created.map(|created| created.0)
        };
        for birth in [at, at + 1, at + 20 * MS, at - 1, at - 2_000 * MS] {
            assert_eq!(of(at, Some(birth)), Some(birth));
        }
        // The birth time is not used if it differs too much (a copied file) or is missing.
        for birth in [Some(at + 20 * MS + 1), Some(at - 2_000 * MS - 1), None] {
            assert_eq!(of(at, birth), Some(at));
        }
    }

    #[test]
    fn cut_or_strange_values_are_refused() {
        let whole = bytes(FROM_SMBD[0].0);
        for len in 4..16 {
            assert_eq!(DosAttrib::decode(&whole[..len]), None, "{len} bytes");
        }
        let mut strange = whole;
        strange[2] = 6;
        strange[4] = 6;
        assert_eq!(DosAttrib::decode(&strange), None);
        strange[4] = 5;
        assert_eq!(DosAttrib::decode(&strange), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_survived(value in proptest::collection::vec(0u8.., 0..120)) {
            let _ = DosAttrib::decode(&value);
        }

        #[test]
        fn what_is_written_is_read(
            attributes in 0u32..,
            created in 1u64..,
            at_birth: bool,
            changed in proptest::option::of((1u64.., 1u64..)),
            times in proptest::option::of((0u64.., 0u64.., 1u64..)),
        ) {
            let changed = changed
                .map(|(shown, until)| SetChangeTime { shown: FileTime(shown), until: FileTime(until) });
            let created = Some(FileTime(created));
            let nonzero = |time: u64| (time != 0).then_some(FileTime(time));
            let times = times.map(|(accessed, written, at)| KeptTimes {
                accessed: nonzero(accessed),
                written: nonzero(written),
                at: FileTime(at),
            });
            let value = DosAttrib { attributes, created, at_birth, changed, times };
            let mut out = [0; ENCODED_LEN];
            assert_eq!(DosAttrib::decode(value.encode(&mut out)), Some(value));
        }
    }
}
