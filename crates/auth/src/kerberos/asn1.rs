//! The types of RFC 4120 section 5.2 that Kerberos messages are made of, in strict DER.
//!
//! Unsigned fields can be changed on their way. So every value has one encoding only,
//! and nothing may follow the last field of a sequence.

use super::{NameType, Principal};
use crate::der::{self, Elements, context};
use crate::limits::{MAX_PRINCIPAL_COMPONENTS, MAX_PRINCIPAL_LEN};
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::codec::{Malformed, Parsed};

/// pvno, tkt-vno and authenticator-vno.
pub(super) const VERSION: i64 = 5;

/// The fields of a SEQUENCE, in their order.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a>(Elements<'a>);

impl<'a> Fields<'a> {
    /// Reads a SEQUENCE, which must be all of `bytes`.
    pub(super) fn sequence(bytes: &'a [u8], what: &'static str) -> Parsed<Self> {
        only(bytes, der::SEQUENCE, what).map(Self::contents)
    }

    /// Reads the contents of a SEQUENCE.
    pub(super) const fn contents(bytes: &'a [u8]) -> Self {
        Self(Elements::strict(bytes))
    }

    /// Reads a SEQUENCE in `[APPLICATION n]`, which must be all of `bytes`.
    pub(super) fn application(bytes: &'a [u8], n: u8, what: &'static str) -> Parsed<Self> {
        Self::sequence(only(bytes, der::application(n), what)?, what)
    }

    /// Reads the contents of field `n`.
    pub(super) fn required(&mut self, n: u8, what: &'static str) -> Parsed<&'a [u8]> {
        self.0.expect(context(n), what)
    }

    /// Reads the contents of field `n`, if it is the next one.
    pub(super) fn optional(&mut self, n: u8, what: &'static str) -> Parsed<Option<&'a [u8]>> {
        self.0.optional(context(n), what)
    }

    /// Fails unless all fields have been read.
    pub(super) const fn end(&self, what: &'static str) -> Parsed<()> {
        self.0.end(what)
    }

    /// Reads field `n`, an INTEGER that must be `expected`.
    pub(super) fn constant(&mut self, n: u8, expected: i64, what: &'static str) -> Parsed<()> {
        let found = integer(self.required(n, what)?, what)?;
        if found == expected { Ok(()) } else { Err(Malformed::new(what)) }
    }
}

/// Reads the only element in `bytes`, which must have `tag`.
pub(super) fn only<'a>(bytes: &'a [u8], tag: u8, what: &'static str) -> Parsed<&'a [u8]> {
    let mut elements = Elements::strict(bytes);
    let value = elements.expect(tag, what)?;
    elements.end(what)?;
    Ok(value)
}

fn integer(bytes: &[u8], what: &'static str) -> Parsed<i64> {
    der::integer(only(bytes, der::INTEGER, what)?, what)
}

/// Reads an Int32.
pub(super) fn int32(bytes: &[u8], what: &'static str) -> Parsed<i32> {
    i32::try_from(integer(bytes, what)?).map_err(|_| Malformed::new(what))
}

/// Reads a UInt32. Key versions (MS-KILE 3.1.5.8) and the sequence numbers of some clients are
/// signed; the bits are the same.
pub(super) fn uint32(bytes: &[u8], what: &'static str) -> Parsed<u32> {
    let number = integer(bytes, what)?;
    match (u32::try_from(number), i32::try_from(number)) {
        (Ok(number), _) => Ok(number),
        (_, Ok(number)) => Ok(number.cast_unsigned()),
        _ => Err(Malformed::new(what)),
    }
}

/// Reads Microseconds.
pub(super) fn microseconds(bytes: &[u8], what: &'static str) -> Parsed<u32> {
    let number = uint32(bytes, what)?;
    if number < 1_000_000 { Ok(number) } else { Err(Malformed::new(what)) }
}

/// Reads an OCTET STRING.
pub(super) fn octets<'a>(bytes: &'a [u8], what: &'static str) -> Parsed<&'a [u8]> {
    only(bytes, der::OCTET_STRING, what)
}

/// Reads a KerberosString, which MS-KILE 3.1.5.7 has in UTF-8.
pub(super) fn text<'a>(bytes: &'a [u8], what: &'static str) -> Parsed<&'a str> {
    let value = only(bytes, der::GENERAL_STRING, what)?;
    str::from_utf8(value).map_err(|_| Malformed::new(what))
}

/// Reads KerberosFlags: bit 0 of the specification is the highest. Bits beyond 32 mean nothing yet.
pub(super) fn flags(bytes: &[u8], what: &'static str) -> Parsed<u32> {
    match only(bytes, der::BIT_STRING, what)? {
        // RFC 4120 section 5.2.8: KerberosFlags has at least 32 bits. Further flags are ignored.
        [0, a, b, c, d, more @ ..] if more.len() <= 4 => Ok(u32::from_be_bytes([*a, *b, *c, *d])),
        _ => Err(Malformed::new(what)),
    }
}

/// Reads a KerberosTime: seconds since 1970.
pub(super) fn time(bytes: &[u8], what: &'static str) -> Parsed<i64> {
    let fault = Malformed::new(what);
    let value = only(bytes, der::GENERALIZED_TIME, what)?;
    let Some((digits, b"Z")) = value.split_last_chunk::<1>() else { return Err(fault) };
    if digits.len() != 14 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(fault);
    }
    let mut numbers = digits.chunks(2).map(|pair| {
        pair.iter().fold(0_i64, |n, digit| {
            n.saturating_mul(10).saturating_add(i64::from(digit.saturating_sub(b'0')))
        })
    });
    let mut next = || numbers.next().unwrap_or_default();
    let year = next().saturating_mul(100).saturating_add(next());
    let [month, day, hour, minute, second] = [next(), next(), next(), next(), next()];
    let is_a_time = year >= 1601
        && (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !is_a_time {
        return Err(fault);
    }
    let hours = days(year, month, day).saturating_mul(24).saturating_add(hour);
    Ok(hours.saturating_mul(60).saturating_add(minute).saturating_mul(60).saturating_add(second))
}

/// Returns the days from 1970 to a date of the Gregorian calendar, whose years begin in March here.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year.saturating_sub(1) };
    let since_march = if month > 2 { month.saturating_sub(3) } else { month.saturating_add(9) };
    let month_days = since_march.saturating_mul(153).saturating_add(2) / 5;
    let leap_days = (year / 4).saturating_sub(year / 100).saturating_add(year / 400);
    let year_days = year.saturating_mul(365).saturating_add(leap_days);
    year_days.saturating_add(month_days).saturating_add(day).saturating_sub(719_469)
}

const fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Reads a Realm.
pub(super) fn realm(bytes: &[u8], what: &'static str) -> Parsed<String> {
    match text(bytes, what)? {
        realm if (1..=MAX_PRINCIPAL_LEN).contains(&realm.len()) => Ok(realm.into()),
        _ => Err(Malformed::new(what)),
    }
}

/// Reads a PrincipalName of `realm`.
pub(super) fn principal(bytes: &[u8], realm: String, what: &'static str) -> Parsed<Principal> {
    let fault = Malformed::new(what);
    let mut fields = Fields::sequence(bytes, what)?;
    let name_type = NameType(int32(fields.required(0, what)?, what)?);
    let names = only(fields.required(1, what)?, der::SEQUENCE, what)?;
    fields.end(what)?;
    let mut elements = Elements::strict(names);
    let mut components = Vec::new();
    let mut length = realm.len();
    while !elements.is_empty() {
        let name = elements.expect(der::GENERAL_STRING, what)?;
        length = length.saturating_add(name.len()).saturating_add(1);
        if components.len() == MAX_PRINCIPAL_COMPONENTS || length > MAX_PRINCIPAL_LEN {
            return Err(fault);
        }
        components.push(str::from_utf8(name).map_err(|_| fault)?.into());
    }
    if components.is_empty() {
        return Err(fault);
    }
    Ok(Principal { name_type, components, realm })
}

/// EncryptedData.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EncryptedData<'a> {
    /// The assigned number of the encryption type.
    pub(super) etype: i32,
    /// The version of the key.
    pub(super) kvno: Option<u32>,
    /// The encrypted bytes with their checksum.
    pub(super) cipher: &'a [u8],
}

impl<'a> EncryptedData<'a> {
    pub(super) fn parse(bytes: &'a [u8], what: &'static str) -> Parsed<Self> {
        let mut fields = Fields::sequence(bytes, what)?;
        let etype = int32(fields.required(0, what)?, what)?;
        let kvno = fields.optional(1, what)?.map(|kvno| uint32(kvno, what)).transpose()?;
        let cipher = octets(fields.required(2, what)?, what)?;
        fields.end(what)?;
        Ok(Self { etype, kvno, cipher })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let kvno = self.kvno.map(|kvno| number(1, i64::from(kvno)));
        sequence(&[
            &number(0, i64::from(self.etype)),
            &kvno.unwrap_or_default(),
            &field(2, &der::element(der::OCTET_STRING, self.cipher)),
        ])
    }
}

/// An EncryptionKey or a Checksum: a number and bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Typed<'a> {
    /// keytype of a key, cksumtype of a checksum.
    pub(super) number: i32,
    /// keyvalue of a key, checksum of a checksum.
    pub(super) bytes: &'a [u8],
}

impl<'a> Typed<'a> {
    pub(super) fn parse(bytes: &'a [u8], what: &'static str) -> Parsed<Self> {
        let mut fields = Fields::sequence(bytes, what)?;
        let number = int32(fields.required(0, what)?, what)?;
        let bytes = octets(fields.required(1, what)?, what)?;
        fields.end(what)?;
        Ok(Self { number, bytes })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        sequence(&[
            &number(0, i64::from(self.number)),
            &field(1, &der::element(der::OCTET_STRING, self.bytes)),
        ])
    }
}

/// Encodes a SEQUENCE of encoded fields.
pub(super) fn sequence(fields: &[&[u8]]) -> Vec<u8> {
    der::element(der::SEQUENCE, &fields.concat())
}

/// Encodes a SEQUENCE of encoded fields in `[APPLICATION n]`.
pub(super) fn application(n: u8, fields: &[&[u8]]) -> Vec<u8> {
    der::element(der::application(n), &sequence(fields))
}

/// Encodes field `n` with encoded contents.
pub(super) fn field(n: u8, contents: &[u8]) -> Vec<u8> {
    der::element(context(n), contents)
}

/// Encodes field `n`, an INTEGER.
pub(super) fn number(n: u8, value: i64) -> Vec<u8> {
    field(n, &der::integer_element(value))
}

/// Encodes field `n`, an OCTET STRING.
pub(super) fn octets_field(n: u8, value: &[u8]) -> Vec<u8> {
    field(n, &der::element(der::OCTET_STRING, value))
}

/// Encodes field `n`, KerberosFlags.
pub(super) fn flags_field(n: u8, value: u32) -> Vec<u8> {
    let mut bits = [0; 5];
    bits.iter_mut().skip(1).zip(value.to_be_bytes()).for_each(|(to, from)| *to = from);
    field(n, &der::element(der::BIT_STRING, &bits))
}

/// Encodes field `n`, a KerberosString.
pub(super) fn text_field(n: u8, value: &str) -> Vec<u8> {
    field(n, &der::element(der::GENERAL_STRING, value.as_bytes()))
}

/// Encodes field `n`, the PrincipalName of `principal`.
pub(super) fn principal_field(n: u8, principal: &Principal) -> Vec<u8> {
    let mut names = Vec::new();
    for component in &principal.components {
        der::put(&mut names, der::GENERAL_STRING, component.as_bytes());
    }
    let names = field(1, &der::element(der::SEQUENCE, &names));
    field(n, &sequence(&[&number(0, i64::from(principal.name_type.0)), &names]))
}

/// Encodes field `n`, a KerberosTime of seconds since 1970. A time beyond the years of four digits
/// becomes the nearest time within them.
pub(super) fn time_field(n: u8, seconds: i64) -> Vec<u8> {
    let seconds = seconds.clamp(-11_644_473_600, 253_402_300_799);
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // The first estimate of the year is never too late, so the loop only counts upwards.
    let mut year = day.saturating_sub(366).div_euclid(366).saturating_add(1_970).max(1_601);
    while days(year.saturating_add(1), 1, 1) <= day {
        year = year.saturating_add(1);
    }
    let mut month = 1_i64;
    while month < 12 && days(year, month.saturating_add(1), 1) <= day {
        month = month.saturating_add(1);
    }
    let day = day.saturating_sub(days(year, month, 1)).saturating_add(1);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let text = alloc::format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}Z");
    field(n, &der::element(der::GENERALIZED_TIME, text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_time(text: &str) -> Parsed<i64> {
        time(&der::element(der::GENERALIZED_TIME, text.as_bytes()), "t")
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (text, seconds) in [
            ("19700101000000Z", 0),
            ("19691231235959Z", -1),
            ("16010101000000Z", -11_644_473_600),
            ("20000229120000Z", 951_825_600),
            ("20240229235959Z", 1_709_251_199),
            ("20380119031408Z", 2_147_483_648),
            ("99991231235959Z", 253_402_300_799),
        ] {
            assert_eq!(read_time(text).unwrap(), seconds, "{text}");
            let field = time_field(3, seconds);
            assert_eq!(&field[4..], text.as_bytes());
        }
        for bad in [
            "",
            "Z",
            "20240229235959",
            "20240229235959z",
            "20230229000000Z",
            "21000229000000Z",
            "20240100000000Z",
            "20241301000000Z",
            "20240101240000Z",
            "20240101006000Z",
            "20240101000060Z",
            "16001231235959Z",
            "2024010100000-Z",
            "20240101000000.0Z",
        ] {
            assert!(read_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_day_of_eight_centuries_comes_back() {
        let mut last = -11_644_473_600 - 86_400;
        for day in -134_774..(-134_774 + 8 * 146_097 / 4) {
            let seconds = day * 86_400;
            let field = time_field(0, seconds);
            assert_eq!(time(&field[2..], "t").unwrap(), seconds);
            assert_eq!(seconds, last + 86_400);
            last = seconds;
        }
    }

    #[test]
    fn numbers_are_within_their_types() {
        for (value, signed, unsigned) in [
            (0, Some(0), Some(0)),
            (-1, Some(-1), Some(u32::MAX)),
            (i64::from(i32::MIN), Some(i32::MIN), Some(1 << 31)),
            (i64::from(i32::MIN) - 1, None, None),
            (i64::from(u32::MAX), None, Some(u32::MAX)),
            (i64::from(u32::MAX) + 1, None, None),
        ] {
            let bytes = der::integer_element(value);
            assert_eq!(int32(&bytes, "t").ok(), signed);
            assert_eq!(uint32(&bytes, "t").ok(), unsigned);
        }
        for (value, fits) in [(-1, false), (0, true), (999_999, true), (1_000_000, false)] {
            assert_eq!(microseconds(&der::integer_element(value), "t").is_ok(), fits, "{value}");
        }
    }

    #[test]
    fn flags_have_32_bits_at_least() {
        let read = |bits: &[u8]| flags(&der::element(der::BIT_STRING, bits), "t");
        assert_eq!(read(&[0, 0x20, 0, 0, 1]).unwrap(), 0x2000_0001);
        assert_eq!(read(&[0, 0x20, 0, 0, 1, 9]).unwrap(), 0x2000_0001);
        for bad in [&[][..], &[0], &[0, 1, 2, 3], &[1, 0, 0, 0, 0], &[0; 10]] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
        assert_eq!(flags(&flags_field(0, 0x4000_0002)[2..], "t").unwrap(), 0x4000_0002);
    }

    #[test]
    fn names_are_bounded() {
        let read = |components: &[&str], realm: &str| {
            let components = components.iter().map(|&name| name.into()).collect();
            let name = Principal { name_type: NameType::SRV_HST, components, realm: String::new() };
            let field = principal_field(1, &name);
            principal(der::only(&field, context(1), "t").unwrap(), realm.into(), "t")
        };
        let name = read(&["cifs", "files"], "R").unwrap();
        assert_eq!(name.components, ["cifs", "files"]);
        assert_eq!((name.name_type, &*name.realm), (NameType::SRV_HST, "R"));
        assert!(read(&[], "R").is_err());
        for (count, fits) in [
            (MAX_PRINCIPAL_COMPONENTS - 1, true),
            (MAX_PRINCIPAL_COMPONENTS, true),
            (MAX_PRINCIPAL_COMPONENTS + 1, false),
        ] {
            assert_eq!(read(&alloc::vec!["a"; count], "R").is_ok(), fits, "{count}");
        }
        // MAX_PRINCIPAL_LEN covers the name, a separator and the realm, here of one byte.
        for (length, fits) in [(MAX_PRINCIPAL_LEN - 2, true), (MAX_PRINCIPAL_LEN - 1, false)] {
            assert_eq!(read(&[&"x".repeat(length)], "R").is_ok(), fits, "{length}");
        }
        for (length, fits) in
            [(0, false), (1, true), (MAX_PRINCIPAL_LEN, true), (MAX_PRINCIPAL_LEN + 1, false)]
        {
            let bytes = der::element(der::GENERAL_STRING, "x".repeat(length).as_bytes());
            assert_eq!(realm(&bytes, "t").is_ok(), fits, "{length}");
        }
    }

    #[test]
    fn encrypted_data_comes_back() {
        for kvno in [None, Some(0), Some(1 << 31), Some(u32::MAX)] {
            let data = EncryptedData { etype: -5, kvno, cipher: b"cipher" };
            let bytes = data.encode();
            assert_eq!(EncryptedData::parse(&bytes, "t").unwrap(), data);
            for cut in 0..bytes.len() {
                assert!(EncryptedData::parse(&bytes[..cut], "t").is_err(), "{cut}");
            }
            let longer = [&bytes[..], &[0]].concat();
            assert!(EncryptedData::parse(&longer, "t").is_err());
        }
    }
}
