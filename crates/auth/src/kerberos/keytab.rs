//! Keytab files of version 0x502, in the layout of MIT Kerberos: keys of services.
//!
//! The file is two bytes of version and a list of records, each after its length in 32 bits. A
//! negative length marks a hole, where a record was removed. Version 0x501, in the byte order of
//! the machine, is not supported; no program has written it since 1995.

use super::big_endian::BigEndian;
use super::{EncryptionType, Key, NameType, Principal, ServiceKey};
use crate::limits::{
    MAX_KEYTAB_LEN, MAX_PRINCIPAL_COMPONENTS, MAX_PRINCIPAL_LEN, MAX_SERVICE_KEY_COUNT,
};
use alloc::vec::Vec;
use frevo_wire::codec::{Malformed, Parsed};
use frevo_wire::dtyp::FileTime;
use zeroize::Zeroizing;

/// The first two bytes of a keytab.
const VERSION: u16 = 0x0502;

/// The content of a keytab.
#[derive(Debug, Clone, Default)]
pub struct Keytab {
    /// The entries in the order of the file.
    pub entries: Vec<KeytabEntry>,
    /// Encryption types of entries whose type Frevo lacks, such as DES, without repetition.
    pub unknown_types: Vec<u16>,
}

/// An entry of a keytab.
#[derive(Debug, Clone)]
pub struct KeytabEntry {
    /// The key and its principal.
    pub key: ServiceKey,
    /// The time when the entry was written; zero if the writer did not say.
    pub written: FileTime,
}

impl Keytab {
    /// Parses a file.
    ///
    /// # Errors
    /// The field that is malformed. The file is used whole or not at all, so that a truncated file
    /// does not lock out some of the users.
    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        if bytes.len() > MAX_KEYTAB_LEN {
            return Err(Malformed::new("keytab: length"));
        }
        let mut file = BigEndian::new(bytes);
        if file.u16("keytab: version")? != VERSION {
            return Err(Malformed::new("keytab: version"));
        }
        let mut keytab = Self::default();
        // MIT's library writes new entries over an entry of length zero, so the file ends at such
        // an entry.
        while !file.is_empty() {
            let length = file.i32("keytab: length of an entry")?;
            let record = file.take(length.unsigned_abs(), "keytab: entry")?;
            match length {
                0 => break,
                1.. => keytab.add(&mut BigEndian::new(record))?,
                _ => {}
            }
        }
        Ok(keytab)
    }

    fn add(&mut self, record: &mut BigEndian<'_>) -> Parsed<()> {
        if self.entries.len() >= MAX_SERVICE_KEY_COUNT {
            return Err(Malformed::new("keytab: number of entries"));
        }
        let mut principal = principal(record)?;
        principal.name_type = NameType(record.i32("keytab: name type")?);
        let written = record.u32("keytab: timestamp")?;
        let short_kvno = record.u8("keytab: key version")?;
        let etype = record.u16("keytab: encryption type")?;
        let length = record.u16("keytab: length of a key")?;
        let bytes = record.take(length.into(), "keytab: key")?;
        // The entry may end with a key version of 32 bits, which replaces the one of 8 bits unless
        // it is zero.
        let long_kvno =
            if record.remaining() >= 4 { record.u32("keytab: key version")? } else { 0 };
        let kvno = if long_kvno == 0 { short_kvno.into() } else { long_kvno };
        let Some(known) = EncryptionType::from_number(etype.into()) else {
            if !self.unknown_types.contains(&etype) && self.unknown_types.len() < MAX_UNKNOWN_TYPES
            {
                self.unknown_types.push(etype);
            }
            return Ok(());
        };
        let key = Key::new(known, bytes).ok_or(Malformed::new("keytab: length of a key"))?;
        let written = match written {
            0 => FileTime::ZERO,
            seconds => FileTime::from_unix(seconds.into(), 0),
        };
        self.entries.push(KeytabEntry { key: ServiceKey { principal, kvno, key }, written });
        Ok(())
    }

    /// Returns the keys of the entries.
    pub fn into_keys(self) -> Vec<ServiceKey> {
        self.entries.into_iter().map(|entry| entry.key).collect()
    }

    /// Returns the keys of `client` with its latest version, for a logon as that client.
    pub fn keys_of(&self, client: &Principal) -> Vec<Key> {
        let mine = || self.entries.iter().filter(|entry| entry.key.principal == *client);
        let latest = mine().map(|entry| entry.key.kvno).max();
        let newest = mine().filter(|entry| Some(entry.key.kvno) == latest);
        newest.map(|entry| entry.key.key.clone()).collect()
    }
}

impl KeytabEntry {
    /// Encodes the entry as a record of a file, with its length. None for a name that is too long for one.
    pub fn encode(&self) -> Option<Zeroizing<Vec<u8>>> {
        let ServiceKey { principal, kvno, key } = &self.key;
        // The buffer has its final size at once, because growing it would leave copies of the key.
        let mut record = Zeroizing::new(Vec::with_capacity(MAX_PRINCIPAL_LEN.saturating_mul(2)));
        record.extend(u16::try_from(principal.components.len()).ok()?.to_be_bytes());
        for text in core::iter::once(&principal.realm).chain(&principal.components) {
            record.extend(u16::try_from(text.len()).ok()?.to_be_bytes());
            record.extend(text.bytes());
        }
        record.extend(principal.name_type.0.to_be_bytes());
        let seconds = if self.written == FileTime::ZERO { 0 } else { self.written.to_unix().0 };
        record.extend(u32::try_from(seconds).unwrap_or_default().to_be_bytes());
        let [.., short_kvno] = kvno.to_be_bytes();
        record.push(short_kvno);
        record.extend(u16::try_from(key.etype().number()).ok()?.to_be_bytes());
        record.extend(u16::try_from(key.expose().len()).ok()?.to_be_bytes());
        record.extend(key.expose());
        record.extend(kvno.to_be_bytes());
        let length = i32::try_from(record.len()).ok()?.to_be_bytes();
        Some(Zeroizing::new([&length, record.as_slice()].concat()))
    }
}

/// The most unknown encryption types that are told apart.
const MAX_UNKNOWN_TYPES: usize = 16;

/// Reads the number of components, the realm and the components.
fn principal(record: &mut BigEndian<'_>) -> Parsed<Principal> {
    let count = record.u16("keytab: number of components")?;
    if count == 0 || usize::from(count) > MAX_PRINCIPAL_COMPONENTS {
        return Err(Malformed::new("keytab: number of components"));
    }
    let mut text = |what| {
        let length = record.u16(what)?;
        if usize::from(length) > MAX_PRINCIPAL_LEN {
            return Err(Malformed::new(what));
        }
        record.text(length.into(), what)
    };
    let realm = text("keytab: realm")?;
    let components: Parsed<_> = (0..count).map(|_| text("keytab: component")).collect();
    Ok(Principal { name_type: NameType::UNKNOWN, components: components?, realm })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::to_hex;
    use alloc::string::{String, ToString};
    use proptest::prelude::*;

    /// Written by MIT's ktutil 1.20.
    const TYPES: &[u8] = include_bytes!("fixtures/types.keytab");
    /// The file of [`TYPES`] after kadmin removed three entries and wrote two into the holes.
    const HOLES: &[u8] = include_bytes!("fixtures/holes.keytab");

    fn lines_of(keytab: &Keytab) -> Vec<String> {
        keytab.entries.iter().map(|entry| alloc::format!("{:?}", entry.key)).collect()
    }

    #[test]
    fn a_file_of_ktutil() {
        let keytab = Keytab::parse(TYPES).unwrap();
        assert_eq!(
            lines_of(&keytab),
            [
                "cifs/files.frevo.test@FREVO.TEST kvno 3 aes256-cts-hmac-sha1-96",
                "cifs/files.frevo.test@FREVO.TEST kvno 3 aes128-cts-hmac-sha1-96",
                "cifs/files.frevo.test@FREVO.TEST kvno 300 aes256-cts-hmac-sha384-192",
                "FILES$@FREVO.TEST kvno 1 rc4-hmac",
                "ho\\@st/a\\/b@FREVO.TEST kvno 2 aes128-cts-hmac-sha256-128",
            ]
        );
        // The expected key was printed by ktutil (`list -k`).
        let mut text = String::new();
        to_hex(keytab.entries[1].key.key.expose(), &mut text).unwrap();
        assert_eq!(text.to_lowercase(), "197d4618dc7fa9eb2a477995cdcc4e1f");
        for entry in &keytab.entries {
            let ServiceKey { principal, key, .. } = &entry.key;
            let salt = principal.default_salt();
            let made = Key::from_password(key.etype(), "Passw0rd", salt.as_bytes(), None).unwrap();
            assert!(made == *key, "{entry:?}");
            assert_eq!(entry.written.to_unix().0, 0x6b07_0c82);
        }
        let cifs = Principal::service("cifs", "files.frevo.test", "FREVO.TEST");
        let [latest] = &keytab.keys_of(&cifs)[..] else { panic!("one key has version 300") };
        assert_eq!(latest.etype(), EncryptionType::Aes256Sha2);
        assert!(keytab.keys_of(&Principal::user("nobody", "FREVO.TEST")).is_empty());
    }

    /// Entries of ktutil come back byte by byte, and the numbers of versions to their ends.
    #[test]
    fn entries_are_written_as_ktutil_writes_them() {
        let keytab = Keytab::parse(TYPES).unwrap();
        let mut bytes = VERSION.to_be_bytes().to_vec();
        keytab.entries.iter().for_each(|entry| bytes.extend(&*entry.encode().unwrap()));
        assert_eq!(bytes, TYPES);
        let mut entry = keytab.entries[0].clone();
        for kvno in [1, 255, 256, u32::MAX] {
            (entry.key.kvno, entry.written) = (kvno, FileTime::ZERO);
            let file = [&VERSION.to_be_bytes()[..], &entry.encode().unwrap()].concat();
            let read = Keytab::parse(&file).unwrap();
            assert_eq!(alloc::format!("{:?}", read.entries[0]), alloc::format!("{entry:?}"));
        }
        entry.key.principal.realm = "x".repeat(1 << 16);
        assert!(entry.encode().is_none());
    }

    #[test]
    fn a_file_with_holes() {
        let keytab = Keytab::parse(HOLES).unwrap();
        assert_eq!(
            lines_of(&keytab),
            [
                "smbuser2@FREVO.TEST kvno 1 aes256-cts-hmac-sha1-96",
                "smbuser2@FREVO.TEST kvno 1 aes128-cts-hmac-sha1-96",
                "FILES$@FREVO.TEST kvno 1 rc4-hmac",
                "ho\\@st/a\\/b@FREVO.TEST kvno 2 aes128-cts-hmac-sha256-128",
            ]
        );
    }

    #[test]
    fn a_truncated_file_is_refused_whole() {
        for end in 0..TYPES.len() {
            let parsed = Keytab::parse(&TYPES[..end]);
            // A file that is cut exactly after a record is valid, but has fewer entries.
            let ends_well = [2, 0x61, 0xb2].contains(&end);
            if let Ok(keytab) = parsed {
                assert!(ends_well || keytab.entries.len() < 5, "{end}");
            }
        }
        let cut: Vec<usize> =
            (0..TYPES.len()).filter(|end| Keytab::parse(&TYPES[..*end]).is_ok()).collect();
        // An incomplete file is valid only if it is cut after the version or after one of its first
        // four records: five lengths in all.
        assert_eq!(cut.len(), 5, "{cut:?}");
    }

    #[test]
    fn other_versions_and_types() {
        assert_eq!(Keytab::parse(&[5, 1]).unwrap_err().what, "keytab: version");
        assert_eq!(Keytab::parse(&[]).unwrap_err().what, "keytab: version");
        // This entry has a DES key of 8 bytes, which is not supported. So it is skipped and its
        // type (3) noted.
        let mut des = alloc::vec![5, 2, 0, 0, 0, 28, 0, 1, 0, 1, b'R', 0, 1, b'u', 0, 0, 0, 1];
        des.extend([0, 0, 0, 0, 7, 0, 3, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
        des[5] = (des.len() - 6) as u8;
        let keytab = Keytab::parse(&des).unwrap();
        assert_eq!((keytab.entries.len(), &keytab.unknown_types[..]), (0, &[3][..]));
        // The entry now claims to be AES (17), for which its key is too short.
        des[24] = 17;
        assert_eq!(Keytab::parse(&des).unwrap_err().what, "keytab: length of a key");
        assert!(Keytab::parse(&alloc::vec![0; MAX_KEYTAB_LEN + 1]).is_err());
    }

    fn record(name: u32) -> Vec<u8> {
        let mut body = alloc::vec![0, 1, 0, 1, b'R', 0, 4];
        body.extend(alloc::format!("{name:04}").bytes());
        body.extend([0, 0, 0, 1, 0, 0, 0, 0, 9, 0, 17, 0, 16]);
        body.extend([7; 16]);
        let mut whole = (body.len() as u32).to_be_bytes().to_vec();
        whole.extend(body);
        whole
    }

    #[test]
    fn as_many_entries_as_allowed() {
        let mut bytes = alloc::vec![5, 2];
        for name in 0..MAX_SERVICE_KEY_COUNT {
            bytes.extend(record(name as u32));
        }
        let keytab = Keytab::parse(&bytes).unwrap();
        assert_eq!(keytab.entries.len(), MAX_SERVICE_KEY_COUNT);
        assert_eq!(keytab.entries[1].key.principal.to_string(), "0001@R");
        assert_eq!(keytab.entries[1].key.kvno, 9);
        bytes.extend(record(9));
        assert_eq!(Keytab::parse(&bytes).unwrap_err().what, "keytab: number of entries");
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            let _ = Keytab::parse(&bytes);
            let _ = Keytab::parse(&[&[5, 2], &bytes[..]].concat());
        }

        #[test]
        fn a_changed_byte_is_no_panic(at in 0..TYPES.len(), byte: u8) {
            let mut bytes = TYPES.to_vec();
            bytes[at] = byte;
            let _ = Keytab::parse(&bytes);
        }
    }
}
