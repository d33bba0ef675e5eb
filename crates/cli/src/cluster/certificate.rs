//! The end of a certificate's validity: RFC 5280 4.1.2.5, out of PEM (RFC 7468).

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Tags of DER: X.690 8.1.2.
const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;

/// The second since 1970 at which the first of the certificates in a text ends. None without one that can
/// be read.
pub(super) fn first_end(pem: &str) -> Option<i64> {
    let bodies = pem.split(BEGIN).skip(1).filter_map(|rest| rest.split(END).next());
    bodies.filter_map(|body| end_of(&base64(body)?)).min()
}

/// Decodes base64 (RFC 4648 4), with line breaks.
fn base64(text: &str) -> Option<Vec<u8>> {
    let (mut out, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=') {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 & 0xff_ffff | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push(u8::try_from(bits >> count & 0xff).unwrap_or_default());
        }
    }
    Some(out)
}

/// A value of DER.
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    rest: &'a [u8],
}

fn element(bytes: &[u8]) -> Option<Element<'_>> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first & 0x80 != 0 {
        let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.is_empty() || digits.len() > 4 {
            return None;
        }
        length = digits.iter().fold(0, |sum, &digit| sum << 8 | usize::from(digit));
        rest = after;
    }
    let (content, rest) = rest.split_at_checked(length)?;
    Some(Element { tag, content, rest })
}

/// The end of a certificate.
fn end_of(der: &[u8]) -> Option<i64> {
    let certificate = element(der).filter(|one| one.tag == SEQUENCE)?;
    let body = element(certificate.content).filter(|one| one.tag == SEQUENCE)?;
    let mut next = element(body.content)?;
    if next.tag == VERSION {
        next = element(next.rest)?;
    }
    // The serial number is followed by the algorithm, the issuer and the validity.
    let algorithm = element(next.rest)?;
    let issuer = element(algorithm.rest)?;
    let validity = element(issuer.rest).filter(|one| one.tag == SEQUENCE)?;
    let begin = element(validity.content)?;
    let end = element(begin.rest)?;
    let text = std::str::from_utf8(end.content).ok()?;
    let text = match end.tag {
        // RFC 5280 4.1.2.5.1: years from 50 on are of the century before.
        UTC_TIME if text.get(..2)? >= "50" => format!("19{text}"),
        UTC_TIME => format!("20{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%SZ", &text).ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate with these values in place of a real one's: names and keys are not looked at.
    fn certificate(end: &[u8], tag: u8) -> String {
        let wrap = |tag: u8, content: &[u8]| {
            let length = u8::try_from(content.len()).unwrap();
            [&[tag, 0x81, length][..], content].concat()
        };
        let begin = wrap(UTC_TIME, b"260101000000Z");
        let validity = wrap(SEQUENCE, &[begin, wrap(tag, end)].concat());
        let body = [
            wrap(VERSION, &[2, 1, 2]),
            wrap(2, &[7]),
            wrap(SEQUENCE, &[]),
            wrap(SEQUENCE, &[]),
            validity,
        ];
        let der = wrap(SEQUENCE, &wrap(SEQUENCE, &body.concat()));
        const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for three in der.chunks(3) {
            let word = three.iter().fold(0_u32, |sum, &byte| sum << 8 | u32::from(byte))
                << (8 * (3 - three.len()));
            for digit in 0..=three.len() {
                let six = word >> (18 - 6 * digit) & 63;
                text.push(char::from(DIGITS[usize::try_from(six).unwrap()]));
            }
            text.push_str(&"=".repeat(3 - three.len()));
        }
        format!("comment\n{BEGIN}\n{text}\n{END}\n")
    }

    #[test]
    fn the_end_is_read() {
        let second = 1_893_456_000;
        assert_eq!(first_end(&certificate(b"300101000000Z", UTC_TIME)), Some(second));
        let later = certificate(b"20300101000001Z", GENERALIZED_TIME);
        assert_eq!(first_end(&later), Some(second + 1));
        let both = later + &certificate(b"300101000000Z", UTC_TIME);
        assert_eq!(first_end(&both), Some(second));
        assert_eq!(first_end(&certificate(b"500101000000Z", UTC_TIME)), Some(-631_152_000));
        for bad in ["", BEGIN, "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----"] {
            assert_eq!(first_end(bad), None);
        }
        assert_eq!(first_end(&certificate(b"3001010000Z", UTC_TIME)), None);
    }
}
