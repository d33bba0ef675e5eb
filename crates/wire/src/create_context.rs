//! Create contexts, MS-SMB2 2.2.13.2 and 2.2.14.2: the list, and in the submodules the contents of
//! each.

mod aapl;
mod durable;
mod lease;
mod request;
mod response;

pub use aapl::{
    AaplCommand, AaplQuery, AaplQueryResponse, AaplRequested, AaplServerCapabilities,
    AaplVolumeCapabilities,
};
pub use durable::{DurableHandleFlags, DurableReconnectV2, DurableRequestV2, DurableResponseV2};
pub use lease::{Lease, LeaseFlags, LeaseKey, LeaseState, LeaseV2};
pub use request::{AppInstanceVersion, CreateContext};
pub use response::{MaximalAccess, OnDiskId, PosixResponse, ResponseContext};

use crate::codec::{Malformed, Parsed, Reader, Writer};
use crate::command::{field_u16, field_u32};
use crate::limits::MAX_CREATE_CONTEXTS;
use crate::negotiate_context::POSIX_GUID;
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// Names of create contexts, as they stand on the wire.
pub mod name {
    /// SMB2_CREATE_EA_BUFFER
    pub const EXTA: &[u8] = b"ExtA";
    /// SMB2_CREATE_SD_BUFFER
    pub const SECD: &[u8] = b"SecD";
    /// SMB2_CREATE_DURABLE_HANDLE_REQUEST
    pub const DHNQ: &[u8] = b"DHnQ";
    /// SMB2_CREATE_DURABLE_HANDLE_RECONNECT
    pub const DHNC: &[u8] = b"DHnC";
    /// SMB2_CREATE_ALLOCATION_SIZE
    pub const ALSI: &[u8] = b"AlSi";
    /// SMB2_CREATE_QUERY_MAXIMAL_ACCESS_REQUEST
    pub const MXAC: &[u8] = b"MxAc";
    /// SMB2_CREATE_TIMEWARP_TOKEN
    pub const TWRP: &[u8] = b"TWrp";
    /// SMB2_CREATE_QUERY_ON_DISK_ID
    pub const QFID: &[u8] = b"QFid";
    /// SMB2_CREATE_REQUEST_LEASE, both versions.
    pub const RQLS: &[u8] = b"RqLs";
    /// SMB2_CREATE_DURABLE_HANDLE_REQUEST_V2
    pub const DH2Q: &[u8] = b"DH2Q";
    /// SMB2_CREATE_DURABLE_HANDLE_RECONNECT_V2
    pub const DH2C: &[u8] = b"DH2C";
    /// SMB2_CREATE_APP_INSTANCE_ID
    pub const APP_INSTANCE_ID: &[u8] = &[
        0x45, 0xBC, 0xA6, 0x6A, 0xEF, 0xA7, 0xF7, 0x4A, 0x90, 0x08, 0xFA, 0x46, 0x2E, 0x14, 0x4D,
        0x74,
    ];
    /// SMB2_CREATE_APP_INSTANCE_VERSION
    pub const APP_INSTANCE_VERSION: &[u8] = &[
        0xB9, 0x82, 0xD0, 0xB7, 0x3B, 0x56, 0x07, 0x4F, 0xA0, 0x7B, 0x52, 0x4A, 0x81, 0x16, 0xA0,
        0x10,
    ];
    /// SVHDX_OPEN_DEVICE_CONTEXT, MS-RSVD.
    pub const SVHDX: &[u8] = &[
        0x9C, 0xCB, 0xCF, 0x9E, 0x04, 0xC1, 0xE6, 0x43, 0x98, 0x0E, 0x15, 0x8D, 0xA1, 0xF6, 0xEC,
        0x83,
    ];
    /// POSIX extensions; the specification reserves the name.
    pub const POSIX: &[u8] = &super::POSIX_GUID;
    /// Frevo's own: the number of an operation, see [`crate::command::ioctl::operation`].
    pub const FREVO_OPERATION: &[u8] = &[
        0x1D, 0x6E, 0x0B, 0x5F, 0x53, 0xA2, 0x9C, 0x47, 0x8E, 0x31, 0xF4, 0x70, 0xC5, 0x28, 0x96,
        0xBB,
    ];
    /// Apple's extensions; see [`super::AaplQuery`].
    pub const AAPL: &[u8] = b"AAPL";
}

/// Bytes of a context before its name.
const FIXED: usize = 16;
/// The specification gives names four or more octets.
const MIN_NAME_LEN: usize = 4;

/// A list of create contexts whose form has been checked: iterating over it cannot fail, and ends.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CreateContexts<'a> {
    raw: Cow<'a, [u8]>,
}

impl<'a> CreateContexts<'a> {
    /// The empty list.
    pub const EMPTY: Self = Self { raw: Cow::Borrowed(&[]) };

    /// Checks a list in a message. Malformed are: a Next that is not a multiple of 8, leads back,
    /// stays in place or leaves the list; names and data outside their context; names of fewer than
    /// four bytes; more contexts than the limit.
    pub fn parse(raw: &'a [u8]) -> Parsed<Self> {
        let mut at = Some(0);
        let mut count = 0usize;
        while let Some(start) = at.filter(|_| !raw.is_empty()) {
            count = count.saturating_add(1);
            if count > MAX_CREATE_CONTEXTS {
                return Err(Malformed::new("number of create contexts"));
            }
            at = split(raw, start)?.2;
        }
        Ok(Self { raw: Cow::Borrowed(raw) })
    }

    /// Builds a list, see [`encode_contexts`].
    pub fn build(contexts: &[(&[u8], &[u8])]) -> CreateContexts<'static> {
        let mut raw = Vec::new();
        encode_contexts(contexts, &mut Writer::new(&mut raw));
        CreateContexts { raw: Cow::Owned(raw) }
    }

    /// Builds the contexts of a request.
    pub fn from_requests(contexts: &[CreateContext<'_>]) -> CreateContexts<'static> {
        build_typed(contexts.iter().map(|it| (it.name(), data_of(|w| it.encode_data(w)))))
    }

    /// Builds the contexts of a response.
    pub fn from_responses(contexts: &[ResponseContext<'_>]) -> CreateContexts<'static> {
        build_typed(contexts.iter().map(|it| (it.name(), data_of(|w| it.encode_data(w)))))
    }

    /// True for the empty list.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Returns the list as it is on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.raw
    }

    /// Iterates over names and data, in the order of the list.
    pub fn iter(&self) -> Iter<'_> {
        Iter { raw: &self.raw, at: if self.raw.is_empty() { None } else { Some(0) } }
    }

    /// Returns the data of the first context called `name`.
    pub fn find(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().find(|(found, _)| *found == name).map(|(_, data)| data)
    }

    /// Returns a name that occurs twice, if there is one.
    pub fn duplicate(&self) -> Option<&[u8]> {
        let mut rest = self.iter();
        while let Some((name, _)) = rest.next() {
            if rest.clone().any(|(other, _)| other == name) {
                return Some(name);
            }
        }
        None
    }

    /// Iterates over the contexts of a request.
    pub fn requests(&self) -> impl Iterator<Item = Parsed<CreateContext<'_>>> {
        self.iter().map(|(name, data)| CreateContext::parse_typed(name, data))
    }

    /// Iterates over the contexts of a response.
    pub fn responses(&self) -> impl Iterator<Item = Parsed<ResponseContext<'_>>> {
        self.iter().map(|(name, data)| ResponseContext::parse_typed(name, data))
    }
}

impl<'l> IntoIterator for &'l CreateContexts<'_> {
    type Item = (&'l [u8], &'l [u8]);
    type IntoIter = Iter<'l>;

    fn into_iter(self) -> Iter<'l> {
        self.iter()
    }
}

/// Iterates over [`CreateContexts`]: `(name, data)`.
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    raw: &'a [u8],
    at: Option<usize>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        // The constructor has checked the whole list, so `split` cannot fail here.
        let (name, data, next) = split(self.raw, self.at?).ok()?;
        self.at = next;
        Some((name, data))
    }
}

/// Name and data of a context, and the position of the next one.
type Split<'a> = (&'a [u8], &'a [u8], Option<usize>);

fn split(raw: &[u8], start: usize) -> Parsed<Split<'_>> {
    let rest = raw.get(start..).unwrap_or(&[]);
    let r = &mut Reader::new(rest);
    let next = usize::try_from(r.u32("create context Next")?).unwrap_or(usize::MAX);
    let name_offset = usize::from(r.u16("create context NameOffset")?);
    let name_length = usize::from(r.u16("create context NameLength")?);
    r.skip(2, "create context Reserved")?;
    let data_offset = usize::from(r.u16("create context DataOffset")?);
    let data_length = r.u32("create context DataLength")?;
    let data_length = usize::try_from(data_length).unwrap_or(usize::MAX);
    let context = if next == 0 {
        rest
    } else if next >= FIXED && next.is_multiple_of(8) {
        rest.get(..next).ok_or(Malformed::new("create context Next past the end"))?
    } else {
        return Err(Malformed::new("create context Next"));
    };
    if name_offset < FIXED || !name_offset.is_multiple_of(8) || name_length < MIN_NAME_LEN {
        return Err(Malformed::new("create context name"));
    }
    let name_end = name_offset.saturating_add(name_length);
    let name = context.get(name_offset..name_end).ok_or(Malformed::new("create context name"))?;
    // MS-SMB2 2.2.13.2: without data, DataOffset has no meaning.
    let data: &[u8] = if data_length == 0 {
        &[]
    } else if data_offset >= name_end && data_offset.is_multiple_of(8) {
        let end = data_offset.saturating_add(data_length);
        context.get(data_offset..end).ok_or(Malformed::new("create context data"))?
    } else {
        return Err(Malformed::new("create context DataOffset"));
    };
    let next = if next == 0 { None } else { start.checked_add(next) };
    Ok((name, data, next))
}

/// Appends a list of `(name, data)`. Each context, name and data begins at a multiple of 8 from
/// here; there is no padding behind the last.
pub fn encode_contexts(contexts: &[(&[u8], &[u8])], w: &mut Writer<'_>) {
    let w = &mut w.nested();
    let mut previous = None;
    for (name, data) in contexts {
        w.align(8);
        let start = w.offset();
        if let Some(previous) = previous {
            w.patch_u32(previous, field_u32(start.saturating_sub(previous)));
        }
        previous = Some(start);
        let data_offset = FIXED.saturating_add(name.len()).next_multiple_of(8);
        w.u32(0).u16(field_u16(FIXED)).u16(field_u16(name.len())).u16(0);
        w.u16(field_u16(if data.is_empty() { 0 } else { data_offset }));
        w.u32(field_u32(data.len())).bytes(name);
        if !data.is_empty() {
            w.align(8).bytes(data);
        }
    }
}

fn data_of(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut data = Vec::new();
    encode(&mut Writer::new(&mut data));
    data
}

fn build_typed<'n>(contexts: impl Iterator<Item = (&'n [u8], Vec<u8>)>) -> CreateContexts<'static> {
    let contexts: Vec<_> = contexts.collect();
    let borrowed: Vec<_> = contexts.iter().map(|(name, data)| (*name, data.as_slice())).collect();
    CreateContexts::build(&borrowed)
}

#[cfg(test)]
mod tests;
