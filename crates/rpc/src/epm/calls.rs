//! Arguments and replies of the endpoint mapper, MS-RPCE 2.2.1.2.

use super::{Registration, Tower};
use crate::SyntaxId;
use crate::limits::{MAX_ELEMENTS, MAX_TOWER};
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::codec::{Malformed, Parsed};
use frevo_wire::dtyp::Guid;
use frevo_wire::ndr::{ContextHandle, NdrReader, NdrWriter};
use frevo_wire::open_enum;

open_enum! {
    /// The status of a call.
    EptStatus(u32) {
        /// At least one element was found.
        OK = 0,
        /// EPT_S_CANT_PERFORM_OP, MS-RPCE 2.2.1.2.1.
        CANT_PERFORM_OP = 0x0000_06D8,
        /// There are no elements, or no further ones.
        NOT_REGISTERED = 0x16C9_A0D6,
    }
}

open_enum! {
    /// inquiry_type of ept_lookup. Windows: other values are as ALL_ELTS.
    Inquiry(u32) {
        /// RPC_C_EP_ALL_ELTS
        ALL_ELTS = 0,
        /// RPC_C_EP_MATCH_BY_IF
        MATCH_BY_IF = 1,
        /// RPC_C_EP_MATCH_BY_OBJ
        MATCH_BY_OBJ = 2,
        /// RPC_C_EP_MATCH_BY_BOTH
        MATCH_BY_BOTH = 3,
    }
}

open_enum! {
    /// vers_option of ept_lookup.
    VersionOption(u32) {
        /// RPC_C_VERS_ALL
        ALL = 1,
        /// RPC_C_VERS_COMPATIBLE
        COMPATIBLE = 2,
        /// RPC_C_VERS_EXACT
        EXACT = 3,
        /// RPC_C_VERS_MAJOR_ONLY
        MAJOR_ONLY = 4,
        /// RPC_C_VERS_UPTO
        UPTO = 5,
    }
}

impl VersionOption {
    /// True if an interface of version `known` is wanted where `asked` is named. A version has its
    /// minor part in the upper half.
    fn admits(self, known: u32, asked: u32) -> bool {
        let of = |version: u32| (version & 0xFFFF, version >> 16);
        let ((major, minor), (asked_major, asked_minor)) = (of(known), of(asked));
        match self {
            Self::COMPATIBLE => major == asked_major && minor >= asked_minor,
            Self::EXACT => known == asked,
            Self::MAJOR_ONLY => major == asked_major,
            Self::UPTO => (major, minor) <= (asked_major, asked_minor),
            _ => true,
        }
    }
}

/// The part of a question that says where it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Search {
    /// entry_handle: NULL for a search that begins.
    pub handle: ContextHandle,
    /// max_ents or max_towers.
    pub most: u32,
}

impl Search {
    fn read(r: &mut NdrReader<'_>) -> Parsed<Self> {
        let handle = r.handle("ept_lookup_handle_t")?;
        let most = r.u32("endpoint mapper elements")?;
        if most > MAX_ELEMENTS {
            return Err(Malformed::new("endpoint mapper elements"));
        }
        Ok(Self { handle, most })
    }

    fn encode(self, w: &mut NdrWriter) {
        w.handle(&self.handle).u32(self.most);
    }
}

fn object(r: &mut NdrReader<'_>) -> Parsed<Option<Guid>> {
    let what = "endpoint mapper object";
    Ok(if r.pointer(what)? { Some(Guid(r.fixed(what)?)) } else { None })
}

/// Arguments of ept_lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EptLookup {
    /// inquiry_type
    pub inquiry: Inquiry,
    /// object
    pub object: Option<Guid>,
    /// Ifid
    pub interface: Option<SyntaxId>,
    /// vers_option
    pub version: VersionOption,
    /// The place where the search goes on.
    pub search: Search,
}

impl EptLookup {
    /// A search for all elements, from `handle` on.
    pub const fn all(handle: ContextHandle, most: u32) -> Self {
        let (inquiry, version) = (Inquiry::ALL_ELTS, VersionOption::ALL);
        let search = Search { handle, most };
        Self { inquiry, object: None, interface: None, version, search }
    }

    /// Parses the stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let what = "ept_lookup";
        let mut r = NdrReader::new(stub);
        let inquiry = Inquiry(r.u32(what)?);
        let object = object(&mut r)?;
        let interface = if r.pointer(what)? {
            r.align(4)?;
            let uuid = Guid(r.fixed(what)?);
            let (major, minor) = (u32::from(r.u16(what)?), u32::from(r.u16(what)?));
            Some(SyntaxId { uuid, version: (minor << 16) | major })
        } else {
            None
        };
        let version = VersionOption(r.u32(what)?);
        let search = Search::read(&mut r)?;
        Ok(Self { inquiry, object, interface, version, search })
    }

    /// Stub data of a call.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.u32(self.inquiry.0).pointer(self.object.is_some());
        if let Some(object) = &self.object {
            w.fixed(&object.0);
        }
        w.pointer(self.interface.is_some());
        if let Some(interface) = &self.interface {
            w.fixed(&interface.uuid.0).fixed(&interface.version.to_le_bytes());
        }
        w.u32(self.version.0);
        self.search.encode(&mut w);
        w.into_stub()
    }

    /// Keeps the endpoints that are asked for.
    pub(super) fn select(&self, all: Vec<Registration>) -> Vec<Registration> {
        let by_interface = matches!(self.inquiry, Inquiry::MATCH_BY_IF | Inquiry::MATCH_BY_BOTH);
        let by_object = matches!(self.inquiry, Inquiry::MATCH_BY_OBJ | Inquiry::MATCH_BY_BOTH);
        // Endpoints are not registered for objects, so a search for an object other than the nil
        // object finds nothing.
        if by_object && self.object.is_some_and(|object| object != Guid::default()) {
            return Vec::new();
        }
        let is_wanted = |known: &Registration| {
            let known = known.interface.syntax;
            self.interface.is_none_or(|asked| {
                known.uuid == asked.uuid && self.version.admits(known.version, asked.version)
            })
        };
        all.into_iter().filter(|known| !by_interface || is_wanted(known)).collect()
    }
}

/// Arguments of ept_map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EptMap {
    /// map_tower; None for a null pointer, or for octets that are no tower.
    pub tower: Option<Tower>,
    /// The place where the search goes on.
    pub search: Search,
}

impl EptMap {
    /// The question where `tower` is answered.
    pub const fn new(tower: Tower, most: u32) -> Self {
        Self { tower: Some(tower), search: Search { handle: ContextHandle::NULL, most } }
    }

    /// Parses the stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        // MS-RPCE 2.2.1.2.5: interfaces are registered without an object and match any, so the
        // object is only skipped.
        object(&mut r)?;
        let has_tower = r.pointer("ept_map tower")?;
        let octets = if has_tower { Some(octets(&mut r)?) } else { None };
        let search = Search::read(&mut r)?;
        let tower = octets.and_then(|octets| Tower::parse(octets).ok());
        Ok(Self { tower, search })
    }

    /// Stub data of a call.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.pointer(false).pointer(self.tower.is_some());
        if let Some(tower) = &self.tower {
            encode_octets(&mut w, tower);
        }
        self.search.encode(&mut w);
        w.into_stub()
    }

    /// Keeps the endpoints that are asked for.
    pub(super) fn select(&self, all: Vec<Registration>) -> Vec<Registration> {
        let Some(asked) = &self.tower else { return Vec::new() };
        let is_wanted = |known: &Registration| {
            let syntax = known.interface.syntax;
            let is_version =
                VersionOption::COMPATIBLE.admits(syntax.version, asked.interface.version);
            syntax.uuid == asked.interface.uuid
                && is_version
                && asked.transfer == SyntaxId::NDR
                && known.address.is_alike(&asked.address)
        };
        all.into_iter().filter(is_wanted).collect()
    }
}

/// twr_t: the count of the array comes before the structure.
fn octets<'a>(r: &mut NdrReader<'a>) -> Parsed<&'a [u8]> {
    let what = "twr_t";
    let (count, length) = (r.u32(what)?, r.u32(what)?);
    let length = usize::try_from(length).map_err(|_| Malformed::new(what))?;
    if usize::try_from(count) != Ok(length) || length > MAX_TOWER {
        return Err(Malformed::new(what));
    }
    r.raw(length, what)
}

fn encode_octets(w: &mut NdrWriter, tower: &Tower) {
    let octets = tower.encode();
    let length = u32::try_from(octets.len()).unwrap_or(0);
    w.u32(length).u32(length).fixed(&octets);
}

/// The head of a conformant varying array with `count` of at most `most` elements.
fn encode_array_head(w: &mut NdrWriter, most: u32, count: usize) {
    let count = u32::try_from(count).unwrap_or(0);
    w.u32(count).u32(most.max(count)).u32(0).u32(count);
}

/// Stub data of the reply to ept_lookup: towers with annotations.
pub(super) fn encode_lookup_reply(
    handle: ContextHandle,
    most: u32,
    entries: &[(Tower, &str)],
    status: EptStatus,
) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.handle(&handle);
    encode_array_head(&mut w, most, entries.len());
    for (_, annotation) in entries {
        w.align(4).fixed(&Guid::default().0).pointer(true);
        // The annotation is a fixed array with the form of a string: offset, count with the NUL,
        // characters and NUL.
        let length = u32::try_from(annotation.len().saturating_add(1)).unwrap_or(0);
        w.u32(0).u32(length).fixed(annotation.as_bytes()).u8(0);
    }
    for (tower, _) in entries {
        encode_octets(&mut w, tower);
    }
    w.u32(status.0);
    w.into_stub()
}

/// The reply to ept_lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupReply {
    /// The handle by which the search goes on; NULL at its end.
    pub handle: ContextHandle,
    /// The elements: a tower and its annotation.
    pub entries: Vec<LookupEntry>,
    /// status
    pub status: EptStatus,
}

/// ept_entry_t
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupEntry {
    /// The tower.
    pub tower: Tower,
    /// The annotation: the name of the interface for people.
    pub annotation: String,
}

impl LookupReply {
    /// Parses the stub data.
    ///
    /// # Errors
    /// Malformed stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let what = "ept_lookup reply";
        let mut r = NdrReader::new(stub);
        let handle = r.handle(what)?;
        let count = r.u32(what)?;
        let count = r.varying(count, 28, what)?;
        let mut annotations = Vec::new();
        for _ in 0..count {
            r.align(4)?;
            r.fixed::<16>(what)?;
            r.pointer(what)?;
            let (_, length) = (r.u32(what)?, r.u32(what)?);
            let length = usize::try_from(length).map_err(|_| Malformed::new(what))?;
            let text = r.raw(length, what)?;
            let text = text.strip_suffix(&[0]).unwrap_or(text);
            annotations.push(String::from_utf8_lossy(text).into_owned());
        }
        let mut entries = Vec::new();
        for annotation in annotations {
            entries.push(LookupEntry { tower: Tower::parse(octets(&mut r)?)?, annotation });
        }
        Ok(Self { handle, entries, status: EptStatus(r.u32(what)?) })
    }
}

/// Stub data of the reply to ept_map.
pub(super) fn encode_map_reply(
    handle: ContextHandle,
    most: u32,
    towers: &[Tower],
    status: EptStatus,
) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.handle(&handle);
    encode_array_head(&mut w, most, towers.len());
    for _ in towers {
        w.pointer(true);
    }
    for tower in towers {
        encode_octets(&mut w, tower);
    }
    w.u32(status.0);
    w.into_stub()
}

/// The reply to ept_map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapReply {
    /// The handle by which the search goes on; NULL at its end.
    pub handle: ContextHandle,
    /// ITowers
    pub towers: Vec<Tower>,
    /// status
    pub status: EptStatus,
}

impl MapReply {
    /// Parses the stub data.
    ///
    /// # Errors
    /// Malformed stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let what = "ept_map reply";
        let mut r = NdrReader::new(stub);
        let handle = r.handle(what)?;
        let count = r.u32(what)?;
        let count = r.varying(count, 4, what)?;
        for _ in 0..count {
            r.pointer(what)?;
        }
        let towers =
            (0..count).map(|_| Tower::parse(octets(&mut r)?)).collect::<Parsed<Vec<_>>>()?;
        Ok(Self { handle, towers, status: EptStatus(r.u32(what)?) })
    }
}

/// Stub data of ept_lookup_handle_free.
pub fn encode_free(handle: &ContextHandle) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.handle(handle);
    w.into_stub()
}

pub(super) fn encode_free_reply() -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.handle(&ContextHandle::NULL).u32(EptStatus::OK.0);
    w.into_stub()
}

/// Parses the reply to ept_lookup_handle_free.
///
/// # Errors
/// Malformed stub data.
pub fn parse_free_reply(stub: &[u8]) -> Parsed<EptStatus> {
    let mut r = NdrReader::new(stub);
    r.handle("ept_lookup_handle_free reply")?;
    r.u32("ept_lookup_handle_free reply").map(EptStatus)
}

/// Stub data of a reply that is a status alone.
pub(super) fn encode_status(status: EptStatus) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.u32(status.0);
    w.into_stub()
}
