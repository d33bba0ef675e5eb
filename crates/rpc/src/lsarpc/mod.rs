//! The local security authority: names for SIDs and SIDs for names (MS-LSAT),
//! and the little of its policy that goes with them (MS-LSAD).

mod lookup;
mod policy;

pub use lookup::{
    LookupNames, LookupReply, LookupSids, NamesForm, SidsForm, TranslatedName, TranslatedSid,
};
pub use policy::{
    OpenPolicy, OpenPolicy3, PolicyInformation, UserName, UserNameReply, encode_information,
};

use alloc::vec::Vec;
use frevo_wire::Status;
use frevo_wire::codec::Parsed;
use frevo_wire::ndr::ContextHandle;
use frevo_wire::ndr::{NdrReader, NdrWriter};

/// LsarClose, MS-LSAD 3.1.4.9.4.
pub const CLOSE: u16 = 0;
/// LsarOpenPolicy, MS-LSAD 3.1.4.4.2.
pub const OPEN_POLICY: u16 = 6;
/// LsarQueryInformationPolicy, MS-LSAD 3.1.4.4.4.
pub const QUERY_INFORMATION_POLICY: u16 = 7;
/// LsarLookupNames, MS-LSAT 3.1.4.8.
pub const LOOKUP_NAMES: u16 = 14;
/// LsarLookupSids, MS-LSAT 3.1.4.11.
pub const LOOKUP_SIDS: u16 = 15;
/// LsarOpenPolicy2, MS-LSAD 3.1.4.4.1.
pub const OPEN_POLICY2: u16 = 44;
/// LsarGetUserName, MS-LSAT 3.1.4.4.
pub const GET_USER_NAME: u16 = 45;
/// LsarQueryInformationPolicy2, MS-LSAD 3.1.4.4.3.
pub const QUERY_INFORMATION_POLICY2: u16 = 46;
/// LsarLookupSids2, MS-LSAT 3.1.4.10.
pub const LOOKUP_SIDS2: u16 = 57;
/// LsarLookupNames2, MS-LSAT 3.1.4.7.
pub const LOOKUP_NAMES2: u16 = 58;
/// LsarLookupNames3, MS-LSAT 3.1.4.6.
pub const LOOKUP_NAMES3: u16 = 68;
/// LsarLookupSids3, MS-LSAT 3.1.4.9.
pub const LOOKUP_SIDS3: u16 = 76;
/// LsarLookupNames4, MS-LSAT 3.1.4.5.
pub const LOOKUP_NAMES4: u16 = 77;

/// LsarOpenPolicy3, MS-LSAD 3.1.4.4.9.
pub const OPEN_POLICY3: u16 = 130;

/// Parses a handle and the status of the call: the answer to opening and closing.
///
/// # Errors
/// Malformed if the answer is shorter or longer.
pub fn parse_handle_reply(stub: &[u8]) -> Parsed<(ContextHandle, Status)> {
    let mut r = NdrReader::new(stub);
    let handle = r.handle("RPC handle")?;
    Ok((handle, Status(r.u32("RPC status")?)))
}

/// See [`parse_handle_reply`].
pub fn encode_handle_reply(handle: Option<ContextHandle>, status: Status) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.handle(&handle.unwrap_or(ContextHandle::NULL)).u32(status.0);
    w.into_stub()
}

/// Stub data of a call whose argument is a handle, such as LsarClose.
pub fn encode_handle(handle: &ContextHandle) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.handle(handle);
    w.into_stub()
}
