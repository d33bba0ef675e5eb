//! The small part of X.690 (DER) that SPNEGO and Kerberos need, and LDAP (`frevo-ldap`), with limits.
//!
//! The reader accepts only definite lengths. For SPNEGO it accepts a long form in place of a short
//! one, because some clients write `82 00 xx`, and nothing is signed in a re-encoded form:
//! mechListMIC covers the received bytes. The strict reader, for Kerberos, refuses such a form.

use alloc::vec::Vec;
use frevo_wire::codec::{Malformed, Parsed};

/// The tag of an INTEGER.
pub const INTEGER: u8 = 0x02;
/// The tag of a BIT STRING.
pub const BIT_STRING: u8 = 0x03;
/// The tag of an OCTET STRING.
pub const OCTET_STRING: u8 = 0x04;
/// The tag of an OBJECT IDENTIFIER.
pub const OID: u8 = 0x06;
/// The tag of an ENUMERATED.
pub const ENUMERATED: u8 = 0x0a;
/// The tag of a GeneralizedTime.
pub const GENERALIZED_TIME: u8 = 0x18;
/// The tag of a GeneralString.
pub const GENERAL_STRING: u8 = 0x1b;
/// The tag of a SEQUENCE.
pub const SEQUENCE: u8 = 0x30;
/// `[APPLICATION 0]`, constructed: the GSS-API frame (RFC 2743 3.1).
pub const APPLICATION_0: u8 = 0x60;

/// Returns the tag of `[APPLICATION n]`, constructed.
pub const fn application(n: u8) -> u8 {
    APPLICATION_0 | (n & 0x1f)
}

/// Returns the tag of `[n]`, constructed.
pub const fn context(n: u8) -> u8 {
    0xa0 | (n & 0x1f)
}

/// One element: a tag with its value.
#[derive(Debug, Clone, Copy)]
pub struct Element<'a> {
    /// The identifier octet.
    pub tag: u8,
    /// The contents octets.
    pub value: &'a [u8],
}

/// Reads elements one after the other.
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    rest: &'a [u8],
    is_strict: bool,
}

impl<'a> Elements<'a> {
    /// Reads the elements of `bytes`, with lengths in any definite form.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, is_strict: false }
    }

    /// Reads only lengths in their shortest form.
    pub const fn strict(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, is_strict: true }
    }

    /// Returns the bytes that have not been read.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// True if all elements have been read.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the tag of the next element, if there is one.
    pub fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Reads the next element.
    ///
    /// # Errors
    /// A malformed element, called `what`.
    pub fn next(&mut self, what: &'static str) -> Parsed<Element<'a>> {
        let fault = Malformed::new(what);
        let (&tag, after) = self.rest.split_first().ok_or(fault)?;
        // SPNEGO and Kerberos use no tag numbers above 30. Those would need more than one byte, and
        // are refused.
        if tag & 0x1f == 0x1f {
            return Err(fault);
        }
        let (&first, mut after) = after.split_first().ok_or(fault)?;
        let length = if first < 0x80 {
            usize::from(first)
        } else {
            let count = usize::from(first & 0x7f);
            if count == 0 || count > 4 {
                return Err(fault);
            }
            let (octets, value) = after.split_at_checked(count).ok_or(fault)?;
            after = value;
            let length = octets.iter().fold(0u32, |n, &b| (n << 8) | u32::from(b));
            if self.is_strict && (length < 0x80 || octets.first() == Some(&0)) {
                return Err(fault);
            }
            usize::try_from(length).map_err(|_| fault)?
        };
        let (value, rest) = after.split_at_checked(length).ok_or(fault)?;
        self.rest = rest;
        Ok(Element { tag, value })
    }

    /// Reads the value of the next element, which must have `tag`.
    ///
    /// # Errors
    /// A malformed element, called `what`.
    pub fn expect(&mut self, tag: u8, what: &'static str) -> Parsed<&'a [u8]> {
        let element = self.next(what)?;
        if element.tag == tag { Ok(element.value) } else { Err(Malformed::new(what)) }
    }

    /// Reads the value of the next element if it has `tag`; otherwise reads nothing.
    ///
    /// # Errors
    /// A malformed element, called `what`.
    pub fn optional(&mut self, tag: u8, what: &'static str) -> Parsed<Option<&'a [u8]>> {
        if self.peek() == Some(tag) { self.next(what).map(|e| Some(e.value)) } else { Ok(None) }
    }

    /// Fails unless everything has been read.
    ///
    /// # Errors
    /// A malformed element, called `what`.
    pub const fn end(&self, what: &'static str) -> Parsed<()> {
        if self.is_empty() { Ok(()) } else { Err(Malformed::new(what)) }
    }
}

/// Reads the only element in `bytes`, which must have `tag`.
///
/// # Errors
/// A malformed element, called `what`.
pub fn only<'a>(bytes: &'a [u8], tag: u8, what: &'static str) -> Parsed<&'a [u8]> {
    let mut elements = Elements::new(bytes);
    let value = elements.expect(tag, what)?;
    elements.end(what)?;
    Ok(value)
}

/// Reads the value of an INTEGER of at most eight bytes in its shortest form.
///
/// # Errors
/// A malformed element, called `what`.
pub fn integer(value: &[u8], what: &'static str) -> Parsed<i64> {
    let &first = value.first().ok_or(Malformed::new(what))?;
    let is_padded = match (first, value.get(1)) {
        (0, Some(second)) => second & 0x80 == 0,
        (0xff, Some(second)) => second & 0x80 != 0,
        _ => false,
    };
    if is_padded || value.len() > 8 {
        return Err(Malformed::new(what));
    }
    let sign = if first & 0x80 == 0 { 0 } else { -1 };
    Ok(value.iter().fold(sign, |n, &b| (n << 8) | i64::from(b)))
}

/// Encodes an INTEGER.
pub fn integer_element(value: i64) -> Vec<u8> {
    let octets = value.to_be_bytes();
    let mut shortest: &[u8] = &octets;
    while let [first, rest @ ..] = shortest
        && let Some(second) = rest.first()
        && ((*first == 0 && second & 0x80 == 0) || (*first == 0xff && second & 0x80 != 0))
    {
        shortest = rest;
    }
    element(INTEGER, shortest)
}

/// Appends an element to `out`. `value` comes from this crate and has at most some tens of
/// kilobytes, so the length needs at most four octets.
pub fn put(out: &mut Vec<u8>, tag: u8, value: &[u8]) {
    out.push(tag);
    let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let octets = length.to_be_bytes();
        let zeros = octets.iter().take_while(|&&b| b == 0).count();
        out.push(0x80 | (octets.len().saturating_sub(zeros)) as u8);
        out.extend(octets.iter().skip(zeros));
    }
    out.extend_from_slice(value);
}

/// Encodes one element: tag, length and value.
pub fn element(tag: u8, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len().saturating_add(6));
    put(&mut out, tag, value);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn lengths_on_both_sides_of_each_form_come_back() {
        for n in [0usize, 1, 127, 128, 255, 256, 65_535, 65_536] {
            let value = vec![0x5a; n];
            let bytes = element(OCTET_STRING, &value);
            let head = match n {
                0..128 => 2,
                128..256 => 3,
                256..65_536 => 4,
                _ => 5,
            };
            assert_eq!(bytes.len(), n + head);
            assert_eq!(only(&bytes, OCTET_STRING, "t").unwrap(), value);
        }
    }

    #[test]
    fn indefinite_oversized_and_lying_lengths_are_malformed() {
        for bytes in [
            &[][..],
            &[0x04],
            &[0x04, 0x80, 0, 0],
            &[0x04, 0x85, 0, 0, 0, 0, 1, 0],
            &[0x04, 0x82, 0],
            &[0x04, 0x02, 1],
            &[0x04, 0x84, 0xff, 0xff, 0xff, 0xff, 1],
            &[0x1f, 0x01, 1],
        ] {
            assert!(Elements::new(bytes).next("t").is_err(), "{bytes:x?}");
        }
    }

    #[test]
    fn a_long_form_where_a_short_one_would_do_is_taken() {
        let bytes = [0x30, 0x82, 0x00, 0x02, 0xaa, 0xbb, 0x04];
        let mut elements = Elements::new(&bytes);
        assert_eq!(elements.expect(SEQUENCE, "t").unwrap(), [0xaa, 0xbb]);
        assert_eq!(elements.peek(), Some(0x04));
    }

    #[test]
    fn a_strict_reader_takes_lengths_in_one_form_only() {
        for bytes in [&[0x30, 0x81, 0x02, 1, 2][..], &[0x30, 0x82, 0x00, 0x02, 1, 2]] {
            assert!(Elements::new(bytes).next("t").is_ok());
            assert!(Elements::strict(bytes).next("t").is_err());
        }
        for n in [0usize, 127, 128, 255, 256, 65_535, 65_536] {
            let bytes = element(OCTET_STRING, &vec![0x5a; n]);
            assert_eq!(Elements::strict(&bytes).next("t").unwrap().value.len(), n);
            if n == 128 {
                let longer = [&[OCTET_STRING, 0x82, 0, 128][..], &vec![0x5a; n]].concat();
                assert!(Elements::strict(&longer).next("t").is_err());
            }
        }
    }

    #[test]
    fn integers_come_back_in_their_shortest_form() {
        for n in [0, 1, 127, 128, 255, 256, -1, -128, -129, i64::MAX, i64::MIN, 0xffff_ffff] {
            let bytes = integer_element(n);
            assert_eq!(integer(only(&bytes, INTEGER, "t").unwrap(), "t").unwrap(), n);
        }
        for bad in [&[][..], &[0, 1], &[0xff, 0x80], &[0, 0], &[1; 9]] {
            assert!(integer(bad, "t").is_err(), "{bad:x?}");
        }
    }

    #[test]
    fn bytes_behind_the_only_element_are_malformed() {
        assert!(only(&[0x04, 0, 0], OCTET_STRING, "t").is_err());
        assert!(only(&[0x04, 0], SEQUENCE, "t").is_err());
    }
}
