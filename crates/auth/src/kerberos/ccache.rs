//! Credentials caches of versions 3 and 4, in the layout of MIT Kerberos: tickets of a user.
//!
//! The file is two bytes of version, in version 4 a header of tagged fields, the client's name, and
//! the credentials up to the end. `kinit` makes it; Frevo reads it only.

use super::big_endian::BigEndian;
use super::{EncryptionType, Key, NameType, Principal, ServiceTicket, TicketFlags};
use crate::limits::{
    MAX_CCACHE_LEN, MAX_CCACHE_TICKETS, MAX_PRINCIPAL_COMPONENTS, MAX_PRINCIPAL_LEN, MAX_TICKET_LEN,
};
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::codec::{Malformed, Parsed};
use frevo_wire::dtyp::FileTime;

/// The realm of entries that hold settings of MIT's library in place of tickets.
const SETTINGS: &str = "X-CACHECONF:";
/// The tag of the header's field with the difference of the KDC's clock.
const CLOCK_OFFSET: u16 = 1;
/// The most addresses and authorization data of one entry.
const MAX_LIST_LEN: u32 = 256;

/// The content of a credentials cache.
#[derive(Debug, Clone)]
pub struct CredentialsCache {
    /// The user that the tickets were given to.
    pub client: Principal,
    /// The seconds by which the KDC's clock is ahead of this machine's, as `kinit` measured them;
    /// zero if it did not.
    pub clock_offset: i32,
    /// The tickets in the order of the file, those with unknown encryption types left out.
    pub tickets: Vec<ServiceTicket>,
}

impl CredentialsCache {
    /// Parses a file.
    ///
    /// # Errors
    /// The field that is malformed.
    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        if bytes.len() > MAX_CCACHE_LEN {
            return Err(Malformed::new("credentials cache: length"));
        }
        let mut file = BigEndian::new(bytes);
        let version = file.u16("credentials cache: version")?;
        let clock_offset = match version {
            0x0504 => header(&mut file)?,
            0x0503 => 0,
            _ => return Err(Malformed::new("credentials cache: version")),
        };
        let client = principal(&mut file)?;
        let mut cache = Self { client, clock_offset, tickets: Vec::new() };
        let mut count = 0usize;
        while !file.is_empty() {
            count = count.saturating_add(1);
            if count > MAX_CCACHE_TICKETS {
                return Err(Malformed::new("credentials cache: number of tickets"));
            }
            cache.tickets.extend(credential(&mut file, version)?);
        }
        Ok(cache)
    }

    /// Returns the ticket for `server` that is valid for `seconds` more and ends last. The realm
    /// counts only if `server` has one.
    pub fn find(&self, server: &Principal, seconds: u32, now: FileTime) -> Option<&ServiceTicket> {
        let is_it = |ticket: &&ServiceTicket| {
            let names = &ticket.server.components;
            names.len() == server.components.len()
                && names.iter().zip(&server.components).all(|(a, b)| a.eq_ignore_ascii_case(b))
                && (server.realm.is_empty() || server.realm == ticket.server.realm)
                && ticket.client == self.client
                && !ticket.flags.contains(TicketFlags::INVALID)
                && ticket.is_valid_for(seconds, now)
        };
        self.tickets.iter().filter(is_it).max_by_key(|ticket| ticket.end_time)
    }

    /// Returns the user's own ticket-granting ticket that is valid for `seconds` more.
    pub fn ticket_granting(&self, seconds: u32, now: FileTime) -> Option<&ServiceTicket> {
        let realm = &self.client.realm;
        self.find(&Principal::ticket_granting(realm, realm), seconds, now)
    }
}

/// Parses the file `primary` of a directory of caches: the name of the cache in use. None for a
/// name that may not be one, such as a path elsewhere.
pub fn primary(text: &str) -> Option<&str> {
    let name = text.strip_suffix('\n').unwrap_or(text);
    let is_one =
        name.starts_with("tkt") && name.len() <= 255 && !name.contains(['/', '\0', '\n', '\r']);
    is_one.then_some(name)
}

/// Reads the header of version 4 and returns the clock offset in seconds.
fn header(file: &mut BigEndian<'_>) -> Parsed<i32> {
    let length = file.u16("credentials cache: length of the header")?;
    let mut fields = BigEndian::new(file.take(length.into(), "credentials cache: header")?);
    let mut offset = 0;
    while !fields.is_empty() {
        let tag = fields.u16("credentials cache: header")?;
        let length = fields.u16("credentials cache: header")?;
        let mut field = BigEndian::new(fields.take(length.into(), "credentials cache: header")?);
        if tag == CLOCK_OFFSET {
            offset = field.i32("credentials cache: clock offset")?;
        }
    }
    Ok(offset)
}

fn principal(file: &mut BigEndian<'_>) -> Parsed<Principal> {
    let name_type = NameType(file.i32("credentials cache: name type")?);
    let count = file.u32("credentials cache: number of components")?;
    if usize::try_from(count).map_or(true, |count| count > MAX_PRINCIPAL_COMPONENTS) {
        return Err(Malformed::new("credentials cache: number of components"));
    }
    let realm = text(file, "credentials cache: realm")?;
    let components: Parsed<_> =
        (0..count).map(|_| text(file, "credentials cache: component")).collect();
    Ok(Principal { name_type, components: components?, realm })
}

fn text(file: &mut BigEndian<'_>, what: &'static str) -> Parsed<String> {
    let length = file.u32(what)?;
    if usize::try_from(length).map_or(true, |length| length > MAX_PRINCIPAL_LEN) {
        return Err(Malformed::new(what));
    }
    file.text(length, what)
}

/// Reads an entry. None for a setting and for an unknown encryption type.
fn credential(file: &mut BigEndian<'_>, version: u16) -> Parsed<Option<ServiceTicket>> {
    const LIST: &str = "credentials cache: addresses or authorization data";
    let client = principal(file)?;
    let server = principal(file)?;
    let etype = file.u16("credentials cache: encryption type")?;
    if version == 0x0503 {
        // In version 3 the encryption type is stored twice, so the second one is skipped.
        file.u16("credentials cache: encryption type")?;
    }
    let length = file.u32("credentials cache: length of a key")?;
    let key = file.take(length, "credentials cache: key")?;
    let mut time = || file.u32("credentials cache: time").map(to_time);
    let (auth_time, start_time, end_time, renew_till) = (time()?, time()?, time()?, time()?);
    let is_session_key_of_other = file.u8("credentials cache: is_skey")? != 0;
    let flags = TicketFlags(file.u32("credentials cache: flags")?);
    for _ in 0..2 {
        let count = file.u32(LIST)?;
        if count > MAX_LIST_LEN {
            return Err(Malformed::new(LIST));
        }
        for _ in 0..count {
            file.u16(LIST)?;
            let length = file.u32(LIST)?;
            file.take(length, LIST)?;
        }
    }
    let length = file.u32("credentials cache: length of a ticket")?;
    let ticket = file.take(length, "credentials cache: ticket")?;
    let length = file.u32("credentials cache: length of a second ticket")?;
    file.take(length, "credentials cache: second ticket")?;
    if server.realm == SETTINGS || is_session_key_of_other {
        return Ok(None);
    }
    if ticket.len() > MAX_TICKET_LEN {
        return Err(Malformed::new("credentials cache: length of a ticket"));
    }
    let Some(etype) = EncryptionType::from_number(etype.into()) else { return Ok(None) };
    let session_key = Key::new(etype, key).ok_or(Malformed::new("credentials cache: key"))?;
    // RFC 4120 section 5.3: a start time of zero is missing, so the ticket is valid from the logon
    // (auth_time) on.
    let start_time = if start_time == FileTime::ZERO { auth_time } else { start_time };
    let ticket = ticket.to_vec();
    Ok(Some(ServiceTicket {
        client,
        server,
        session_key,
        ticket,
        flags,
        auth_time,
        start_time,
        end_time,
        renew_till,
    }))
}

/// Converts seconds since 1970, unsigned as MIT's library has them since 1.16.
fn to_time(seconds: u32) -> FileTime {
    if seconds == 0 { FileTime::ZERO } else { FileTime::from_unix(seconds.into(), 0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    /// Written by MIT's kinit and kvno 1.20, `ccache_type = 4` and 3.
    const V4: &[u8] = include_bytes!("fixtures/v4.ccache");
    const V3: &[u8] = include_bytes!("fixtures/v3.ccache");
    /// The end of the first entry of V4, a setting that begins at 0x31.
    const SETTING_END: usize = 0xdf;
    const LOGON: i64 = 0x6b07_0c82;

    fn at(seconds: i64) -> FileTime {
        FileTime::from_unix(LOGON + seconds, 0)
    }

    #[test]
    fn files_of_kinit() {
        for (file, service) in [(V4, "cifs"), (V3, "host")] {
            let cache = CredentialsCache::parse(file).unwrap();
            assert_eq!(cache.client.to_string(), "smbuser@FREVO.TEST");
            assert_eq!(cache.clock_offset, 0);
            let names: Vec<String> = cache.tickets.iter().map(|t| t.server.to_string()).collect();
            let service = alloc::format!("{service}/files.frevo.test@FREVO.TEST");
            assert_eq!(names, ["krbtgt/FREVO.TEST@FREVO.TEST", &service]);
            let granting = cache.ticket_granting(60, at(1)).unwrap();
            assert_eq!(granting.session_key.etype(), EncryptionType::Aes256Sha1);
            assert!(granting.flags.contains(TicketFlags::INITIAL | TicketFlags::RENEWABLE));
            assert_eq!(granting.end_time, at(36_000));
            assert_eq!(granting.renew_till, at(86_400));
            assert_eq!(granting.ticket.first(), Some(&0x61));
            // The service is found in upper case, too, and without a realm, but not in another
            // realm.
            let mut wanted = Principal::parse(&service.to_uppercase(), "").unwrap();
            assert!(cache.find(&wanted, 0, at(1)).is_some());
            wanted.realm.clear();
            assert!(cache.find(&wanted, 0, at(1)).is_some());
            wanted.realm = "OTHER".into();
            assert!(cache.find(&wanted, 0, at(1)).is_none());
            // The ticket is used only if, 60 seconds from now, it has begun and has not ended.
            assert!(cache.ticket_granting(60, at(-61)).is_none());
            assert!(cache.ticket_granting(60, at(35_939)).is_some());
            assert!(cache.ticket_granting(60, at(35_940)).is_none());
        }
    }

    /// Each end of an entry, and no other place, may end a file.
    #[test]
    fn a_truncated_file_is_refused_whole() {
        let whole = |end: &usize| CredentialsCache::parse(&V4[..*end]).is_ok();
        let ends: Vec<usize> = (0..=V4.len()).filter(whole).collect();
        // A file that is cut is valid only if it ends after the client's name, after one of the two
        // settings or after one of the two tickets: five lengths in all.
        assert_eq!(ends.len(), 5, "{ends:?}");
    }

    #[test]
    fn odd_files() {
        let what = |bytes: &[u8]| CredentialsCache::parse(bytes).unwrap_err().what;
        assert_eq!(what(&[5, 2]), "credentials cache: version");
        assert_eq!(what(&[]), "credentials cache: version");
        assert_eq!(what(&alloc::vec![0; MAX_CCACHE_LEN + 1]), "credentials cache: length");
        // The header of the file holds the clock offset: -7 seconds here.
        let mut ahead = V4.to_vec();
        ahead[8..12].copy_from_slice(&(-7i32).to_be_bytes());
        assert_eq!(CredentialsCache::parse(&ahead).unwrap().clock_offset, -7);
        let mut many = V4[..0x31].to_vec();
        let cache = CredentialsCache::parse(&many).unwrap();
        assert!(cache.tickets.is_empty());
        let setting = &V4[0x31..SETTING_END];
        for _ in 0..MAX_CCACHE_TICKETS {
            many.extend(setting);
        }
        assert!(CredentialsCache::parse(&many).is_ok());
        many.extend(setting);
        assert_eq!(what(&many), "credentials cache: number of tickets");
    }

    #[test]
    fn the_primary_of_a_directory() {
        assert_eq!(primary("tkt\n"), Some("tkt"));
        assert_eq!(primary("tktAbC"), Some("tktAbC"));
        for bad in ["", "../tkt", "tkt/../../x", "other", "tkt\nx"] {
            assert_eq!(primary(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            let _ = CredentialsCache::parse(&bytes);
            let _ = CredentialsCache::parse(&[&[5, 3], &bytes[..]].concat());
        }

        #[test]
        fn a_changed_byte_is_no_panic(at in 0..V4.len(), byte: u8) {
            let mut bytes = V4.to_vec();
            bytes[at] = byte;
            let _ = CredentialsCache::parse(&bytes);
        }
    }
}
