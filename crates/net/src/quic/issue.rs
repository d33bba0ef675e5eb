//! Makes certificates: one that signs itself, to try a server out, and chains for tests.
//!
//! RFC 5280 has the form, RFC 5480 and RFC 5758 that of keys and signatures on the curve P-256.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};

use super::certificate::{BadCertificate, Fingerprint, civil_date};

/// A certificate and its key, as texts of PEM.
#[derive(Clone)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The key, in PKCS #8.
    pub key: String,
    /// The fingerprint of the certificate.
    pub fingerprint: Fingerprint,
    der: Vec<u8>,
    pkcs8: Vec<u8>,
    common_name: String,
}

/// The contents of a certificate to make.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The common name of the owner.
    pub common_name: String,
    /// The names and addresses of the host.
    pub hosts: Vec<String>,
    /// True for the certificate of an authority.
    pub is_authority: bool,
    /// The time from which it is valid.
    pub since: SystemTime,
    /// The time for which it is valid.
    pub lasts: Duration,
}

impl Issued {
    /// Returns the certificate in DER.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }
}

/// Makes a key and a certificate that `issuer` signs; one that signs itself without an issuer.
///
/// # Errors
/// The system gives no random bytes, or a time has no form in a certificate.
pub fn issue(wanted: &Wanted, issuer: Option<&Issued>) -> Result<Issued, BadCertificate> {
    let failed = || BadCertificate(String::from("the key could not be made"));
    let random = SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(|_| failed())?;
    let pkcs8 = pkcs8.as_ref().to_vec();
    let key = EcdsaKeyPair::from_pkcs8(algorithm, &pkcs8).map_err(|_| failed())?;
    let signing = issuer.map_or(&pkcs8, |issuer| &issuer.pkcs8);
    let signing = EcdsaKeyPair::from_pkcs8(algorithm, signing).map_err(|_| failed())?;
    let mut serial = [0; 16];
    aws_lc_rs::rand::fill(&mut serial).map_err(|_| failed())?;
    // A serial number is positive.
    serial[0] = serial[0] & 0x3F | 0x40;
    let issuer = issuer.map_or(&wanted.common_name, |issuer| &issuer.common_name);
    let until = wanted.since.checked_add(wanted.lasts).ok_or_else(failed)?;
    let curve = sequence(&[&object(oid::EC_PUBLIC_KEY), &object(oid::PRIME256V1)]);
    let signed = sequence(&[
        &element(0xA0, &integer(&[2])),
        &integer(&serial),
        &sequence(&[&object(oid::ECDSA_WITH_SHA256)]),
        &name(issuer),
        &sequence(&[&time(wanted.since)?, &time(until)?]),
        &name(&wanted.common_name),
        &sequence(&[&curve, &bit_string(key.public_key().as_ref())]),
        &element(0xA3, &extensions(wanted)),
    ]);
    let signature = signing.sign(&random, &signed).map_err(|_| failed())?;
    let der = sequence(&[
        &signed,
        &sequence(&[&object(oid::ECDSA_WITH_SHA256)]),
        &bit_string(signature.as_ref()),
    ]);
    Ok(Issued {
        certificate: pem("CERTIFICATE", &der),
        key: pem("PRIVATE KEY", &pkcs8),
        fingerprint: Fingerprint::of(&der),
        der,
        pkcs8,
        common_name: wanted.common_name.clone(),
    })
}

/// Object identifiers, in DER.
mod oid {
    pub(super) const EC_PUBLIC_KEY: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 2, 1];
    pub(super) const PRIME256V1: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 3, 1, 7];
    pub(super) const ECDSA_WITH_SHA256: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 4, 3, 2];
    pub(super) const COMMON_NAME: &[u8] = &[0x55, 4, 3];
    pub(super) const KEY_USAGE: &[u8] = &[0x55, 0x1D, 15];
    pub(super) const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1D, 17];
    pub(super) const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1D, 19];
    pub(super) const EXT_KEY_USAGE: &[u8] = &[0x55, 0x1D, 37];
    pub(super) const SERVER_AUTH: &[u8] = &[0x2B, 6, 1, 5, 5, 7, 3, 1];
    pub(super) const CLIENT_AUTH: &[u8] = &[0x2B, 6, 1, 5, 5, 7, 3, 2];
}

/// The extensions, RFC 5280 4.2.1.
fn extensions(wanted: &Wanted) -> Vec<u8> {
    const TRUE: &[u8] = &[0x01, 1, 0xFF];
    // Bits from the highest: digitalSignature is bit 0, keyCertSign bit 5.
    let (constraints, usage): (&[u8], &[u8]) = match wanted.is_authority {
        true => (TRUE, &[0x03, 2, 2, 0x04]),
        false => (&[], &[0x03, 2, 7, 0x80]),
    };
    let extension = |id, critical: &[u8], value: &[u8]| {
        sequence(&[&object(id), critical, &element(0x04, value)])
    };
    let mut all = vec![
        extension(oid::BASIC_CONSTRAINTS, TRUE, &sequence(&[constraints])),
        extension(oid::KEY_USAGE, TRUE, usage),
    ];
    if !wanted.is_authority {
        let purposes = sequence(&[&object(oid::SERVER_AUTH), &object(oid::CLIENT_AUTH)]);
        all.push(extension(oid::EXT_KEY_USAGE, &[], &purposes));
    }
    if !wanted.hosts.is_empty() {
        let hosts: Vec<u8> = wanted.hosts.iter().flat_map(|host| general_name(host)).collect();
        all.push(extension(oid::SUBJECT_ALT_NAME, &[], &sequence(&[&hosts])));
    }
    sequence(&[&all.concat()])
}

/// A name or an address of a host, RFC 5280 4.2.1.6.
fn general_name(host: &str) -> Vec<u8> {
    match host.parse() {
        Ok(IpAddr::V4(address)) => element(0x87, &address.octets()),
        Ok(IpAddr::V6(address)) => element(0x87, &address.octets()),
        Err(_) => element(0x82, host.as_bytes()),
    }
}

/// A name with a common name alone.
fn name(common_name: &str) -> Vec<u8> {
    let text = element(0x0C, common_name.as_bytes());
    sequence(&[&element(0x31, &sequence(&[&object(oid::COMMON_NAME), &text]))])
}

/// A time, RFC 5280 4.1.2.5: a UTCTime before 2050.
fn time(at: SystemTime) -> Result<Vec<u8>, BadCertificate> {
    let wrong = || BadCertificate(String::from("a certificate cannot have this date"));
    let since = at.duration_since(SystemTime::UNIX_EPOCH).map_err(|_| wrong())?.as_secs();
    let [year, month, day] = civil_date(since / 86_400);
    let second = since % 86_400;
    let rest = format!(
        "{month:02}{day:02}{:02}{:02}{:02}Z",
        second / 3_600,
        second / 60 % 60,
        second % 60
    );
    match year {
        1950..2050 => Ok(element(0x17, format!("{:02}{rest}", year % 100).as_bytes())),
        ..10_000 => Ok(element(0x18, format!("{year:04}{rest}").as_bytes())),
        _ => Err(wrong()),
    }
}

fn integer(bytes: &[u8]) -> Vec<u8> {
    element(0x02, bytes)
}

fn object(id: &[u8]) -> Vec<u8> {
    element(0x06, id)
}

fn bit_string(bytes: &[u8]) -> Vec<u8> {
    element(0x03, &[&[0], bytes].concat())
}

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    element(0x30, &parts.concat())
}

/// An element of DER: tag, length, contents.
fn element(tag: u8, contents: &[u8]) -> Vec<u8> {
    let length = contents.len().to_be_bytes();
    let digits = &length[length.iter().take_while(|digit| **digit == 0).count()..];
    let mut element = vec![tag];
    match *digits {
        [] => element.push(0),
        [digit] if digit < 0x80 => element.push(digit),
        _ => {
            element.push(0x80 | digits.len() as u8);
            element.extend_from_slice(digits);
        }
    }
    element.extend_from_slice(contents);
    element
}

/// A text of PEM, RFC 7468.
fn pem(label: &str, der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in der.chunks(48) {
        for group in line.chunks(3) {
            let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            for at in 0..4 {
                let digit = DIGITS[(bits >> (18 - 6 * at) & 63) as usize];
                text.push(if at <= group.len() { char::from(digit) } else { '=' });
            }
        }
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}
