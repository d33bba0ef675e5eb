//! Certificates: their fingerprints, their keys, and the parts of them that this crate shows.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use webpki::EndEntityCert;

use crate::limits::{QUIC_CERTIFICATES_MAX, QUIC_COMMON_NAME_CHARS};

/// The SHA-256 hash of a certificate. Its text form has 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Returns the fingerprint of a certificate in DER.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Self(hash)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = BadCertificate;

    /// Reads 64 hexadecimal digits, also with colons between the bytes, as openssl writes them.
    fn from_str(text: &str) -> Result<Self, BadCertificate> {
        let wrong = || {
            let text = "a fingerprint is the SHA-256 of a certificate, 64 digits from 0 to f";
            BadCertificate(String::from(text))
        };
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b':').collect();
        let mut hash = [0; 32];
        if digits.len() != 64 {
            return Err(wrong());
        }
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).ok().filter(|pair| !pair.starts_with('+'));
            *byte = u8::from_str_radix(pair.ok_or_else(wrong)?, 16).map_err(|_| wrong())?;
        }
        Ok(Self(hash))
    }
}

/// A certificate, key or fingerprint that cannot be used, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadCertificate(pub(super) String);

impl fmt::Display for BadCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadCertificate {}

/// Certificates of authorities.
#[derive(Debug, Clone, Default)]
pub struct Certificates(pub(super) Vec<CertificateDer<'static>>);

impl Certificates {
    /// Reads the certificates in a text of PEM.
    ///
    /// # Errors
    /// The text is no PEM, or has no certificate.
    pub fn from_pem(pem: &[u8]) -> Result<Self, BadCertificate> {
        Ok(Self(chain_in(pem)?))
    }
}

/// A certificate with those that lead to its authority, and its key.
#[derive(Debug, Clone)]
pub struct Identity(pub(super) Arc<CertifiedKey>);

impl Identity {
    /// Reads a certificate, its own first, and its key. Both are texts of PEM.
    ///
    /// # Errors
    /// One of them is no PEM or is of an unknown kind, or they do not belong together.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, BadCertificate> {
        let chain = chain_in(certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| BadCertificate(format!("the key cannot be read: {error}")))?;
        Self::of(chain, &key)
    }

    fn of(
        chain: Vec<CertificateDer<'static>>,
        key: &PrivateKeyDer<'_>,
    ) -> Result<Self, BadCertificate> {
        let usable = any_supported_type(key)
            .map_err(|error| BadCertificate(format!("the key cannot be used: {error}")))?;
        if let Some(Err(webpki::Error::UnsupportedCertVersion)) =
            chain.first().map(EndEntityCert::try_from)
        {
            let text = "the certificate is of X.509 version 1, and version 3 is needed; sign it with \
                        extensions (openssl x509 -req ... -extfile FILE)";
            return Err(BadCertificate(String::from(text)));
        }
        let own = CertifiedKey::new(chain, usable);
        own.keys_match()
            .map_err(|_| BadCertificate(String::from("the key is not that of the certificate")))?;
        Ok(Self(Arc::new(own)))
    }

    /// Returns the fingerprint of the certificate.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.0.cert.first().map_or(&[], |certificate| certificate.as_ref()))
    }

    /// Returns the time from which the certificate is no longer valid. None if its date cannot be
    /// read.
    #[must_use]
    pub fn ends(&self) -> Option<SystemTime> {
        Parts::of(self.0.cert.first()?)?.ends
    }

    /// Returns the time for which the certificate is valid in all. None if a date cannot be read.
    #[must_use]
    pub fn lifetime(&self) -> Option<Duration> {
        let parts = Parts::of(self.0.cert.first()?)?;
        parts.ends?.duration_since(parts.since?).ok()
    }

    /// True if the certificate has this name or address of a host. A `*` stands for a part of a name.
    #[must_use]
    pub fn is_for(&self, host: &str) -> bool {
        let any = host.replace('*', "any");
        let own = self.0.cert.first().and_then(|own| EndEntityCert::try_from(own).ok());
        let (Some(own), Ok(name)) = (own, ServerName::try_from(&*any)) else { return false };
        own.verify_is_valid_for_subject_name(&name).is_ok()
    }

    /// Returns the bits of an RSA key. None for a key of another kind.
    #[must_use]
    pub fn rsa_bits(&self) -> Option<usize> {
        Parts::of(self.0.cert.first()?)?.rsa_bits()
    }
}

fn chain_in(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, BadCertificate> {
    let all: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(pem).take(QUIC_CERTIFICATES_MAX + 1).collect();
    let all =
        all.map_err(|error| BadCertificate(format!("the certificate cannot be read: {error}")))?;
    match all.len() {
        0 => Err(BadCertificate(String::from("there is no certificate in the file"))),
        count if count > QUIC_CERTIFICATES_MAX => {
            let text = format!("the file has more than {QUIC_CERTIFICATES_MAX} certificates");
            Err(BadCertificate(text))
        }
        _ => Ok(all),
    }
}

/// Parts of a certificate, RFC 5280 4.1.
pub(super) struct Parts<'a> {
    /// The name of the owner, in DER.
    pub(super) subject: &'a [u8],
    /// The algorithm and the bits of its key, in DER.
    key: &'a [u8],
    /// The beginning of its validity. None if it cannot be read.
    since: Option<SystemTime>,
    /// The end of its validity. None if it cannot be read.
    pub(super) ends: Option<SystemTime>,
}

impl<'a> Parts<'a> {
    /// Returns the parts of a certificate in DER.
    pub(super) fn of(certificate: &'a [u8]) -> Option<Self> {
        const SEQUENCE: u8 = 0x30;
        const VERSION: u8 = 0xA0;
        let (_, whole, _) = element(certificate).filter(|(tag, ..)| *tag == SEQUENCE)?;
        let (_, mut signed, _) = element(whole).filter(|(tag, ..)| *tag == SEQUENCE)?;
        if let Some((VERSION, _, rest)) = element(signed) {
            signed = rest;
        }
        let (_, _serial, rest) = element(signed)?;
        let (_, _algorithm, rest) = element(rest)?;
        let (_, _issuer, rest) = element(rest)?;
        let (_, validity, rest) = element(rest)?;
        let (_, subject, rest) = element(rest)?;
        let (_, key, _) = element(rest)?;
        let (tag, since, until) = element(validity)?;
        let since = time(tag, since);
        let ends = element(until).and_then(|(tag, text, _)| time(tag, text));
        Some(Self { subject, key, since, ends })
    }

    /// Returns the bits of an RSA key, RFC 8017 A.1.1. None for a key of another kind.
    fn rsa_bits(&self) -> Option<usize> {
        // The object identifier 1.2.840.113549.1.1.1.
        const RSA: &[u8] = &[0x06, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 1];
        let (_, algorithm, rest) = element(self.key)?;
        let (_, bits, _) = element(rest).filter(|_| algorithm.starts_with(RSA))?;
        let (_, numbers, _) = element(bits.strip_prefix(&[0])?)?;
        let (_, modulus, _) = element(numbers)?;
        let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
        let first = modulus.get(zeros)?;
        Some((modulus.len() - zeros) * 8 - first.leading_zeros() as usize)
    }

    /// Returns the beginning of the owner's common name, what is printable of it; empty if there is none.
    pub(super) fn common_name(&self) -> String {
        // The object identifier 2.5.4.3, and the text behind it.
        const COMMON_NAME: &[u8] = &[0x06, 0x03, 0x55, 0x04, 0x03];
        let mut windows = self.subject.windows(COMMON_NAME.len());
        let at = windows.position(|window| window == COMMON_NAME);
        let text = at.and_then(|at| self.subject.get(at + COMMON_NAME.len()..)).and_then(element);
        let text = text.map_or(&[][..], |(_, text, _)| text);
        let is_printable = |letter: &char| {
            matches!(letter, '"' | '\'' | '\\') || letter.escape_debug().count() == 1
        };
        let text = String::from_utf8_lossy(text);
        text.chars().filter(is_printable).take(QUIC_COMMON_NAME_CHARS).collect()
    }
}

/// Returns the tag, the contents and the rest behind an element of DER.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7F => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
            (digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(len)?;
    Some((tag, contents, rest))
}

/// Returns the time in a UTCTime or a GeneralizedTime, RFC 5280 4.1.2.5.
fn time(tag: u8, text: &[u8]) -> Option<SystemTime> {
    const UTC_TIME: u8 = 0x17;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let digits = if tag == UTC_TIME { 12 } else { 14 };
    if !is_digits || text.len() != digits {
        return None;
    }
    let (year, rest) = text.split_at(digits - 10);
    let year: u64 = year.parse().ok()?;
    let year = match tag {
        UTC_TIME if year < 50 => 2000 + year,
        UTC_TIME => 1900 + year,
        _ => year,
    };
    let part = |at: usize| rest.get(at..at + 2)?.parse::<u64>().ok();
    let (month, day) = (part(0)?, part(2)?);
    let seconds = part(4)? * 3_600 + part(6)? * 60 + part(8)?;
    let days = days_since_1970(year, month, day)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(days * 86_400 + seconds))
}

/// Returns year, month and day of a day that is so many days after the beginning of 1970.
pub(super) fn civil_date(days: u64) -> [u64; 3] {
    // Years begin in March, and eras of 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (year * 365 + year / 4 - year / 100);
    let month = (day * 5 + 2) / 153;
    let day = day - (month * 153 + 2) / 5 + 1;
    let year = era * 400 + year;
    if month < 10 { [year, month + 3, day] } else { [year + 1, month - 9, day] }
}

/// Returns the days from the beginning of 1970 to a day of the Gregorian calendar.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years begin in March, so that a leap day is the last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    // The days from March of the year 0 to 1970.
    days.checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::super::issue::{Wanted, issue};
    use super::*;

    /// A certificate whose key is of RSA with 3,072 bits.
    const RSA: &[u8] = include_bytes!("rsa-3072.pem");

    #[test]
    fn the_bits_of_an_rsa_key_are_counted() {
        let chain = chain_in(RSA).unwrap();
        assert_eq!(Parts::of(&chain[0]).unwrap().rsa_bits(), Some(3_072));
        for cut in 0..chain[0].len() {
            let parts = Parts::of(&chain[0][..cut]);
            assert_eq!(parts.and_then(|parts| parts.rsa_bits()), None, "{cut}");
        }
    }

    /// An element of DER with a length of two bytes.
    fn long(tag: u8, contents: &[u8]) -> Vec<u8> {
        let len = u16::try_from(contents.len()).unwrap().to_be_bytes();
        [&[tag, 0x82, len[0], len[1]], contents].concat()
    }

    /// `openssl x509 -req` makes such a certificate unless it is told otherwise.
    #[test]
    fn a_certificate_of_version_1_is_named() {
        let wanted = Wanted {
            common_name: String::from("nas"),
            hosts: vec![String::from("nas")],
            is_authority: false,
            since: SystemTime::UNIX_EPOCH,
            lasts: Duration::from_secs(86_400),
        };
        let own = issue(&wanted, None).unwrap();
        let (_, whole, _) = element(own.der()).unwrap();
        let (_, signed, signature) = element(whole).unwrap();
        let (version, _, rest) = element(signed).unwrap();
        assert_eq!(version, 0xA0);
        let old = long(0x30, &[&long(0x30, rest), signature].concat());
        let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
        assert_eq!(
            EndEntityCert::try_from(&CertificateDer::from(old.clone())).err(),
            Some(webpki::Error::UnsupportedCertVersion)
        );
        let told = Identity::of(vec![old.into()], &key).unwrap_err().to_string();
        assert!(told.contains("version 3 is needed"), "{told}");
        Identity::of(vec![own.der().to_vec().into()], &key).unwrap();
    }

    #[test]
    fn a_certificate_tells_its_hosts_and_its_time() {
        let lasts = Duration::from_secs(86_400 * 30);
        let wanted = Wanted {
            common_name: String::from("nas"),
            hosts: ["nas", "192.0.2.1", "*.example.com"].map(String::from).to_vec(),
            is_authority: false,
            since: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
            lasts,
        };
        let own = issue(&wanted, None).unwrap();
        let own = Identity::from_pem(own.certificate.as_bytes(), own.key.as_bytes()).unwrap();
        assert_eq!((own.lifetime(), own.rsa_bits()), (Some(lasts), None));
        for host in ["nas", "NAS", "192.0.2.1", "*.example.com", "one.example.com"] {
            assert!(own.is_for(host), "{host}");
        }
        for host in ["", "other", "192.0.2.2", "2001:db8::1", "example.com", "a b"] {
            assert!(!own.is_for(host), "{host}");
        }
    }
}
