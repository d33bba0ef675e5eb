//! A reader of JSON (RFC 8259) over received bytes, which makes no tree: each field is given to the
//! code that knows it, and everything else is skipped.

use alloc::string::String;
use alloc::vec::Vec;
use core::str;

use super::{Parsed, base64};
use crate::limits::NESTING;
use crate::types::Fault;

/// The bytes that are not read yet.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    /// Objects and lists around the next value.
    depth: u32,
}

/// Reads the one value that `bytes` are.
pub(super) fn whole<'a, T>(
    bytes: &'a [u8],
    read: impl FnOnce(&mut Reader<'a>) -> Parsed<T>,
) -> Parsed<T> {
    let mut reader = Reader { rest: bytes, depth: 0 };
    let value = read(&mut reader)?;
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(Fault::Malformed("bytes behind the answer")),
    }
}

impl<'a> Reader<'a> {
    /// The next byte behind white space, which is left.
    fn peek(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_ascii_start();
        self.rest.first().copied()
    }

    fn advance(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }

    /// Takes `mark` if it is the next byte.
    fn takes(&mut self, mark: u8) -> bool {
        let is_next = self.peek() == Some(mark);
        if is_next {
            self.advance(1);
        }
        is_next
    }

    fn takes_word(&mut self, word: &[u8]) -> bool {
        self.peek();
        let rest = self.rest.strip_prefix(word);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn enter(&mut self) -> Parsed<()> {
        self.depth = self.depth.saturating_add(1);
        if self.depth > NESTING {
            return Err(Fault::Malformed("values that are nested too deeply"));
        }
        Ok(())
    }

    /// Reads an object. `field` reads the value of each name; a null is a field that is not there. The
    /// names are as they were received, with their escapes: no name of etcd's has one.
    pub(super) fn object(
        &mut self,
        mut field: impl FnMut(&'a [u8], &mut Self) -> Parsed<()>,
    ) -> Parsed<()> {
        if !self.takes(b'{') {
            return Err(Fault::Malformed("a value that is no object"));
        }
        self.enter()?;
        let mut is_first = true;
        while !self.takes(b'}') {
            if !core::mem::take(&mut is_first) && !self.takes(b',') {
                return Err(Fault::Malformed("an object without an end"));
            }
            let name = self.raw_string()?;
            if !self.takes(b':') {
                return Err(Fault::Malformed("a name without a value"));
            }
            if !self.takes_word(b"null") {
                field(name, self)?;
            }
        }
        self.depth = self.depth.saturating_sub(1);
        Ok(())
    }

    /// Reads a list of at most `limit` elements.
    pub(super) fn list(
        &mut self,
        limit: usize,
        mut element: impl FnMut(&mut Self) -> Parsed<()>,
    ) -> Parsed<()> {
        if !self.takes(b'[') {
            return Err(Fault::Malformed("a value that is no list"));
        }
        self.enter()?;
        let mut count = 0_usize;
        while !self.takes(b']') {
            if count > 0 && !self.takes(b',') {
                return Err(Fault::Malformed("a list without an end"));
            }
            if count >= limit {
                return Err(Fault::Malformed("a list with too many elements"));
            }
            element(self)?;
            count = count.saturating_add(1);
        }
        self.depth = self.depth.saturating_sub(1);
        Ok(())
    }

    /// Reads a string, without its quotes, with its escapes.
    fn raw_string(&mut self) -> Parsed<&'a [u8]> {
        if !self.takes(b'"') {
            return Err(Fault::Malformed("a value that is no string"));
        }
        let mut is_escaped = false;
        let end = self.rest.iter().position(|byte| match byte {
            _ if is_escaped => {
                is_escaped = false;
                false
            }
            b'\\' => {
                is_escaped = true;
                false
            }
            byte => *byte == b'"' || *byte < b' ',
        });
        let (string, rest) = end
            .and_then(|end| self.rest.split_at_checked(end))
            .ok_or(Fault::Malformed("a string without an end"))?;
        if rest.first() != Some(&b'"') {
            return Err(Fault::Malformed("a control character in a string"));
        }
        self.rest = rest;
        self.advance(1);
        Ok(string)
    }

    /// Reads a text of at most `limit` bytes.
    pub(super) fn text(&mut self, limit: usize) -> Parsed<String> {
        let raw = self.raw_string()?;
        let text = unescape(raw)?;
        if text.len() > limit {
            return Err(Fault::Malformed("a text that is too long"));
        }
        String::from_utf8(text).map_err(|_| Fault::Malformed("a text that is not UTF-8"))
    }

    /// Reads base64 of at most `limit` bytes.
    pub(super) fn bytes(&mut self, limit: usize) -> Parsed<Vec<u8>> {
        let raw = self.raw_string()?;
        let bytes = if raw.contains(&b'\\') {
            base64::decode(&unescape(raw)?)?
        } else {
            base64::decode(raw)?
        };
        if bytes.len() > limit {
            return Err(Fault::Malformed("bytes that are too long"));
        }
        Ok(bytes)
    }

    /// Reads a whole number, as a number or as a string.
    fn whole_number(&mut self) -> Parsed<&'a str> {
        let digits = if self.peek() == Some(b'"') {
            self.raw_string()?
        } else {
            let end = self.rest.iter().position(|byte| !matches!(byte, b'-' | b'0'..=b'9'));
            let (digits, rest) =
                self.rest.split_at_checked(end.unwrap_or(self.rest.len())).unwrap_or_default();
            self.rest = rest;
            digits
        };
        // Rust's parser accepts a plus sign, which JSON does not allow.
        if digits.first() == Some(&b'+') {
            return Err(Fault::Malformed("a number that is none"));
        }
        str::from_utf8(digits).map_err(|_| Fault::Malformed("a number that is none"))
    }

    /// Reads a number of 64 bits without a sign.
    pub(super) fn unsigned(&mut self) -> Parsed<u64> {
        self.whole_number()?.parse().map_err(|_| Fault::Malformed("a number that is none"))
    }

    /// Reads a number of 64 bits with a sign.
    pub(super) fn signed(&mut self) -> Parsed<i64> {
        self.whole_number()?.parse().map_err(|_| Fault::Malformed("a number that is none"))
    }

    /// Reads true or false.
    pub(super) fn boolean(&mut self) -> Parsed<bool> {
        if self.takes_word(b"true") {
            return Ok(true);
        }
        if self.takes_word(b"false") {
            return Ok(false);
        }
        Err(Fault::Malformed("a value that is neither true nor false"))
    }

    /// True if the next value is a string.
    pub(super) fn is_string(&mut self) -> bool {
        self.peek() == Some(b'"')
    }

    /// Skips a value.
    pub(super) fn skip(&mut self) -> Parsed<()> {
        match self.peek() {
            Some(b'{') => self.object(|_, value| value.skip()),
            Some(b'[') => self.list(usize::MAX, Self::skip),
            Some(b'"') => self.raw_string().map(drop),
            Some(b'-' | b'0'..=b'9') => {
                let is_part =
                    |byte: &u8| matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E' | b'0'..=b'9');
                let end = self.rest.iter().position(|byte| !is_part(byte));
                self.advance(end.unwrap_or(self.rest.len()));
                Ok(())
            }
            _ if self.takes_word(b"null") => Ok(()),
            _ => self.boolean().map(drop),
        }
    }
}

/// Returns a string's bytes without escapes (RFC 8259, section 7).
fn unescape(raw: &[u8]) -> Parsed<Vec<u8>> {
    const FAULT: Fault = Fault::Malformed("an escape that is none");
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        let (kind, behind) = rest.split_first().ok_or(FAULT)?;
        rest = behind;
        out.push(match kind {
            b'"' | b'\\' | b'/' => *kind,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let letter = character(&mut rest).ok_or(FAULT)?;
                out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            _ => return Err(FAULT),
        });
    }
    Ok(out)
}

/// Reads the digits behind `\u`, and the other half of a pair.
fn character(rest: &mut &[u8]) -> Option<char> {
    let first = unit(rest)?;
    if !(0xd800..0xdc00).contains(&first) {
        return char::from_u32(u32::from(first));
    }
    *rest = rest.strip_prefix(b"\\u")?;
    let second = unit(rest)?;
    char::decode_utf16([first, second]).next()?.ok()
}

fn unit(rest: &mut &[u8]) -> Option<u16> {
    let (digits, behind) = rest.split_at_checked(4)?;
    *rest = behind;
    let is_hexadecimal = digits.iter().all(u8::is_ascii_hexdigit);
    u16::from_str_radix(str::from_utf8(digits).ok().filter(|_| is_hexadecimal)?, 16).ok()
}
