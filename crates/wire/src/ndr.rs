//! NDR, the transfer syntax of C706 chapter 14, in little-endian order. Alignment counts from the
//! start of the stub data.
//!
//! Pointers inside structures are deferred: the structure contains a referent identifier, and the
//! referent follows it. Both directions make two passes over the fields: first the fixed parts,
//! then the referents.

use crate::codec::{Malformed, Parsed, Reader, Writer};
use crate::dtyp::Sid;
use crate::fscc::WireName;
use crate::fscc::name::utf16_units;
use crate::limits::MAX_STRING_UNITS;
use alloc::vec::Vec;

/// A context handle on the wire: attributes, and a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextHandle(pub [u8; 20]);

impl ContextHandle {
    /// The null handle: the answer to a close, and to a failed open.
    pub const NULL: Self = Self([0; 20]);
}

/// The fixed part of an RPC_UNICODE_STRING: its bytes, and whether there are any.
#[derive(Debug, Clone, Copy)]
pub struct UnicodeHead {
    length: u16,
    points: bool,
}

/// Reads the stub data of a call.
#[derive(Debug, Clone)]
pub struct NdrReader<'a>(Reader<'a>);

impl<'a> NdrReader<'a> {
    /// Starts at the first byte of `stub`.
    pub const fn new(stub: &'a [u8]) -> Self {
        Self(Reader::new(stub))
    }

    /// Bytes not read yet.
    pub const fn remaining(&self) -> usize {
        self.0.remaining()
    }

    /// Goes on at a multiple of `alignment`.
    pub fn align(&mut self, alignment: usize) -> Parsed<()> {
        let at = self.0.position();
        self.0.skip(at.next_multiple_of(alignment.max(1)).saturating_sub(at), "NDR alignment")
    }

    /// unsigned long
    pub fn u32(&mut self, what: &'static str) -> Parsed<u32> {
        self.align(4)?;
        self.0.u32(what)
    }

    /// unsigned hyper
    pub fn u64(&mut self, what: &'static str) -> Parsed<u64> {
        self.align(8)?;
        self.0.u64(what)
    }

    /// unsigned short, or an enum that is one.
    pub fn u16(&mut self, what: &'static str) -> Parsed<u16> {
        self.align(2)?;
        self.0.u16(what)
    }

    /// unsigned char
    pub fn u8(&mut self, what: &'static str) -> Parsed<u8> {
        self.0.u8(what)
    }

    /// A fixed array of unsigned char.
    pub fn fixed<const N: usize>(&mut self, what: &'static str) -> Parsed<[u8; N]> {
        self.0.array(what)
    }

    /// The next `length` bytes.
    pub fn raw(&mut self, length: usize, what: &'static str) -> Parsed<&'a [u8]> {
        self.0.take(length, what)
    }

    /// A context handle, C706 14.2.16.6.
    pub fn handle(&mut self, what: &'static str) -> Parsed<ContextHandle> {
        self.align(4)?;
        self.0.array(what).map(ContextHandle)
    }

    /// RPC_SID, MS-DTYP 2.4.2.3: conformant, so that its count comes first.
    pub fn sid(&mut self, what: &'static str) -> Parsed<Sid> {
        let count = self.u32(what)?;
        let sid = Sid::read(&mut self.0)?;
        if usize::try_from(count) != Ok(sid.sub_authorities().len()) {
            return Err(Malformed::new(what));
        }
        Ok(sid)
    }

    /// Reads an RPC_SID; None for the SID of zeros that Samba sends for none.
    pub fn sid_or_none(&mut self, what: &'static str) -> Parsed<Option<Sid>> {
        self.align(4)?;
        let mut ahead = self.0.clone();
        if ahead.array(what)? == [0_u8; 12] {
            self.0 = ahead;
            return Ok(None);
        }
        self.sid(what).map(Some)
    }

    /// Reads the fixed part of an RPC_UNICODE_STRING, MS-DTYP 2.3.10, which [`Self::unicode`] needs
    /// to read the text later.
    pub fn unicode_head(&mut self, what: &'static str) -> Parsed<UnicodeHead> {
        self.align(4)?;
        let (length, maximum) = (self.0.u16(what)?, self.0.u16(what)?);
        let points = self.pointer(what)?;
        // MS-DTYP 2.3.10: Length must be even and at most MaximumLength, and a text that is not
        // empty needs a pointer.
        if length % 2 != 0 || length > maximum || (length > 0 && !points) {
            return Err(Malformed::new(what));
        }
        Ok(UnicodeHead { length, points })
    }

    /// The text of an RPC_UNICODE_STRING.
    pub fn unicode(&mut self, head: UnicodeHead, what: &'static str) -> Parsed<WireName<'a>> {
        if !head.points {
            return WireName::new(&[]);
        }
        let (max_count, offset) = (self.u32(what)?, self.u32(what)?);
        let count = self.u32(what)?;
        let length = usize::from(head.length);
        if offset != 0 || count > max_count || usize::try_from(count) != Ok(length / 2) {
            return Err(Malformed::new(what));
        }
        WireName::new(self.0.take(length, what)?)
    }

    /// Reads a unique pointer. True if it is not null.
    pub fn pointer(&mut self, what: &'static str) -> Parsed<bool> {
        self.u32(what).map(|referent| referent != 0)
    }

    /// Reads a conformant varying string of 16-bit characters up to its first NUL. Some clients
    /// send a server name of NULs only, which Windows accepts.
    pub fn string(&mut self, what: &'static str) -> Parsed<WireName<'a>> {
        let max_count = self.u32(what)?;
        let offset = self.u32(what)?;
        let count = self.u32(what)?;
        if offset != 0 || count > max_count || count == 0 || count > MAX_STRING_UNITS {
            return Err(Malformed::new(what));
        }
        let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(2));
        let bytes = self.0.take(length.ok_or(Malformed::new(what))?, what)?;
        let units = bytes.strip_suffix(&[0, 0]).ok_or(Malformed::new(what))?.chunks_exact(2);
        let length = units.take_while(|unit| *unit != [0, 0]).count().saturating_mul(2);
        WireName::new(bytes.get(..length).unwrap_or(&[]))
    }

    /// Reads a unique pointer to a string, directly followed by the string. Arguments have this
    /// layout, fields of structures do not.
    pub fn unique_string(&mut self, what: &'static str) -> Parsed<Option<WireName<'a>>> {
        if self.pointer(what)? { self.string(what).map(Some) } else { Ok(None) }
    }

    /// Reads a conformant array of bytes, whose length must be `expected`.
    pub fn bytes(&mut self, expected: u32, what: &'static str) -> Parsed<&'a [u8]> {
        if self.u32(what)? != expected {
            return Err(Malformed::new(what));
        }
        self.0.take(usize::try_from(expected).map_err(|_| Malformed::new(what))?, what)
    }

    /// Reads the counts of a conformant varying array that begins with its first entry. It must
    /// have the `expected` number of entries, each of at least `min_size` of the remaining bytes.
    pub fn varying(&mut self, expected: u32, min_size: usize, what: &'static str) -> Parsed<usize> {
        let (max_count, offset) = (self.u32(what)?, self.u32(what)?);
        if offset != 0 || expected > max_count {
            return Err(Malformed::new(what));
        }
        self.array(expected, min_size, what)
    }

    /// Reads the maximum count of a conformant array of structures. It must be the `expected`
    /// number of entries, each of at least `min_size` of the remaining bytes.
    pub fn array(&mut self, expected: u32, min_size: usize, what: &'static str) -> Parsed<usize> {
        let count = usize::try_from(self.u32(what)?).map_err(|_| Malformed::new(what))?;
        let fits =
            count.checked_mul(min_size.max(1)).is_some_and(|bytes| bytes <= self.remaining());
        if usize::try_from(expected) != Ok(count) || !fits {
            return Err(Malformed::new(what));
        }
        Ok(count)
    }
}

/// Writes the stub data of a call.
#[derive(Debug, Default)]
pub struct NdrWriter {
    stub: Vec<u8>,
    referents: u32,
}

impl NdrWriter {
    /// Makes a writer without stub data.
    pub const fn new() -> Self {
        Self { stub: Vec::new(), referents: 0 }
    }

    /// Returns the written bytes.
    pub fn into_stub(self) -> Vec<u8> {
        self.stub
    }

    /// Bytes written so far.
    pub const fn len(&self) -> usize {
        self.stub.len()
    }

    /// True if nothing has been written.
    pub const fn is_empty(&self) -> bool {
        self.stub.is_empty()
    }

    fn aligned(&mut self) -> Writer<'_> {
        let mut w = Writer::from(&mut self.stub, 0);
        w.align(4);
        w
    }

    /// unsigned long
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.aligned().u32(value);
        self
    }

    /// Goes on at a multiple of `alignment`.
    pub fn align(&mut self, alignment: usize) -> &mut Self {
        Writer::from(&mut self.stub, 0).align(alignment);
        self
    }

    /// unsigned short, or an enum that is one.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        let mut w = Writer::from(&mut self.stub, 0);
        w.align(2).u16(value);
        self
    }

    /// unsigned char
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.stub.push(value);
        self
    }

    /// A fixed array of unsigned char.
    pub fn fixed(&mut self, bytes: &[u8]) -> &mut Self {
        self.stub.extend_from_slice(bytes);
        self
    }

    /// Appends a context handle.
    pub fn handle(&mut self, handle: &ContextHandle) -> &mut Self {
        self.aligned().bytes(&handle.0);
        self
    }

    /// RPC_SID
    pub fn sid(&mut self, sid: &Sid) -> &mut Self {
        let count = u32::try_from(sid.sub_authorities().len()).unwrap_or(u32::MAX);
        sid.encode(self.aligned().u32(count));
        self
    }

    /// The fixed part of an RPC_UNICODE_STRING with room for `spare` characters
    /// after its text, which [`Self::unicode`] writes at its place.
    pub fn unicode_head(&mut self, text: &str, spare: u16) -> &mut Self {
        let length = unicode_len(text);
        let maximum = length.saturating_add(spare.saturating_mul(2));
        self.aligned().u16(length).u16(maximum);
        self.pointer(true)
    }

    /// The text of an RPC_UNICODE_STRING, as much of it as the length can tell.
    pub fn unicode(&mut self, text: &str, spare: u16) -> &mut Self {
        let count = unicode_len(text) / 2;
        self.aligned().u32(u32::from(count).saturating_add(u32::from(spare)));
        self.aligned().u32(0).u32(u32::from(count));
        let mut w = Writer::from(&mut self.stub, 0);
        text.encode_utf16().take(usize::from(count)).for_each(|unit| {
            w.u16(unit);
        });
        self
    }

    /// A unique pointer, whose referent the caller writes at its place.
    pub fn pointer(&mut self, points: bool) -> &mut Self {
        if !points {
            return self.u32(0);
        }
        // Referent identifiers must only be unique. These are the values that Windows uses.
        let referent = 0x0002_0000u32.wrapping_add(self.referents.wrapping_mul(4));
        self.referents = self.referents.wrapping_add(1);
        self.u32(referent)
    }

    /// A conformant varying string with its NUL.
    pub fn string(&mut self, text: &str) -> &mut Self {
        let count = u32::try_from(utf16_units(text).saturating_add(1)).unwrap_or(u32::MAX);
        self.aligned().u32(count).u32(0).u32(count).utf16(text).u16(0);
        self
    }

    /// A unique pointer to a string as an argument.
    pub fn unique_string(&mut self, text: Option<&str>) -> &mut Self {
        self.pointer(text.is_some());
        if let Some(text) = text {
            self.string(text);
        }
        self
    }

    /// A conformant array of bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.aligned().u32(count).bytes(bytes);
        self
    }
}

/// Bytes of a text in an RPC_UNICODE_STRING, which has sixteen bits for them.
fn unicode_len(text: &str) -> u16 {
    let units = u16::try_from(utf16_units(text)).unwrap_or(u16::MAX);
    units.min(u16::MAX / 2 - 1).saturating_mul(2)
}
