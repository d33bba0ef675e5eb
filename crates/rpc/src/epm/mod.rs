//! The endpoint mapper: the ports and pipes of a server's interfaces, C706 appendix O as changed by
//! MS-RPCE 2.2.1.2. Everybody may read it, since a client asks before it can log on.

mod calls;
mod tower;

pub use calls::{
    EptLookup, EptMap, EptStatus, Inquiry, LookupReply, MapReply, VersionOption, encode_free,
    parse_free_reply,
};
pub use tower::{Address, Tower};

use crate::SyntaxId;
use crate::handles::{Granted, Handles};
use crate::interface::{Answer, Interface};
use crate::security::AuthLevel;
use alloc::vec::Vec;
use calls::Search;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::ndr::{ContextHandle, NdrReader};

/// The interface.
pub static INTERFACE: Interface = Interface {
    syntax: SyntaxId::EPM,
    name: "Endpoint mapper",
    pipes: &["epmapper"],
    secondary_address: r"\PIPE\epmapper",
    least_level: AuthLevel::NONE,
    level_on_tcp: Some(AuthLevel::NONE),
};

/// ept_insert, which no client may use (MS-RPCE 2.2.1.2.6).
pub const INSERT: u16 = 0;
/// ept_delete, which is removed (MS-RPCE 2.2.1.2.7).
pub const DELETE: u16 = 1;
/// ept_lookup, MS-RPCE 2.2.1.2.4.
pub const LOOKUP: u16 = 2;
/// ept_map, MS-RPCE 2.2.1.2.5.
pub const MAP: u16 = 3;
/// ept_lookup_handle_free, MS-RPCE 2.2.1.2.8.
pub const LOOKUP_HANDLE_FREE: u16 = 4;
/// ept_inq_object, which is removed (MS-RPCE 2.2.1.2.9).
pub const INQ_OBJECT: u16 = 5;
/// ept_mgmt_delete.
pub const MGMT_DELETE: u16 = 6;

/// An endpoint of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The interface.
    pub interface: &'static Interface,
    /// The place where it is answered.
    pub address: Address,
}

impl Registration {
    fn tower(&self) -> Tower {
        let (interface, transfer) = (self.interface.syntax, SyntaxId::NDR);
        Tower { interface, transfer, address: self.address.clone() }
    }
}

/// The server as the endpoint mapper knows it.
pub trait Mapper {
    /// Returns 16 random bytes, for a handle.
    fn random(&self) -> [u8; 16];
    /// Returns all endpoints, always in one order.
    fn registrations(&self) -> Vec<Registration>;
}

/// The state of the endpoint mapper on one association: the searches that go on.
#[derive(Debug)]
pub struct Epm {
    searches: Handles<usize>,
}

impl Default for Epm {
    fn default() -> Self {
        Self { searches: Handles::new() }
    }
}

/// The elements of one answer, and how the search goes on.
struct Portion<T> {
    elements: Vec<T>,
    handle: ContextHandle,
    status: EptStatus,
}

impl Epm {
    /// Answers a call.
    ///
    /// # Errors
    /// The fault that the client gets.
    pub fn call(&mut self, opnum: u16, stub: &[u8], mapper: &impl Mapper) -> Answer {
        match opnum {
            LOOKUP => {
                let asked = EptLookup::parse(stub)?;
                let elements = asked.select(mapper.registrations());
                let found = self.found(elements, &asked.search, mapper)?;
                let entries = found.elements.iter().map(|entry| (entry.tower(), entry.interface));
                let entries = entries.map(|(tower, interface)| (tower, interface.name));
                Ok(calls::encode_lookup_reply(
                    found.handle,
                    asked.search.most,
                    &entries.collect::<Vec<_>>(),
                    found.status,
                ))
            }
            MAP => {
                let asked = EptMap::parse(stub)?;
                let elements = asked.select(mapper.registrations());
                let found = self.found(elements, &asked.search, mapper)?;
                let towers: Vec<_> = found.elements.iter().map(Registration::tower).collect();
                Ok(calls::encode_map_reply(found.handle, asked.search.most, &towers, found.status))
            }
            LOOKUP_HANDLE_FREE => {
                let handle = NdrReader::new(stub).handle("ept_lookup_handle_free")?;
                if handle != ContextHandle::NULL && !self.searches.close(&handle) {
                    return Err(crate::FaultStatus::CONTEXT_MISMATCH);
                }
                Ok(calls::encode_free_reply())
            }
            INSERT | DELETE | MGMT_DELETE => Ok(calls::encode_status(EptStatus::CANT_PERFORM_OP)),
            _ => Err(crate::FaultStatus::OP_RNG_ERROR),
        }
    }

    /// Takes the next elements of a search.
    fn found<T>(
        &mut self,
        elements: Vec<T>,
        search: &Search,
        mapper: &impl Mapper,
    ) -> Result<Portion<T>, crate::FaultStatus> {
        let begun = match search.handle {
            ContextHandle::NULL => 0,
            handle => {
                let found = self.searches.find(&handle);
                let found = found.ok_or(crate::FaultStatus::CONTEXT_MISMATCH)?;
                // The handle names the next element, and each answer has a new handle. So the
                // handle of the request is closed.
                self.searches.close(&handle);
                found.object
            }
        };
        let most = usize::try_from(search.most).unwrap_or(0);
        let all = elements.len();
        let elements: Vec<T> = elements.into_iter().skip(begun).take(most).collect();
        let next = begun.saturating_add(elements.len());
        let none = |status| Portion { elements: Vec::new(), handle: ContextHandle::NULL, status };
        if next >= all && elements.is_empty() {
            return Ok(none(EptStatus::NOT_REGISTERED));
        }
        if next >= all {
            let (handle, status) = (ContextHandle::NULL, EptStatus::OK);
            return Ok(Portion { elements, handle, status });
        }
        if elements.is_empty() {
            // A search for zero elements would never end, so it is refused.
            return Ok(none(EptStatus::CANT_PERFORM_OP));
        }
        let held = Granted { object: next, access: AccessMask::EMPTY };
        Ok(match self.searches.open(mapper.random(), held) {
            Some(handle) => Portion { elements, handle, status: EptStatus::OK },
            None => none(EptStatus::CANT_PERFORM_OP),
        })
    }

    /// Bytes that the searches take.
    pub const fn bytes(&self) -> usize {
        self.searches.bytes()
    }
}
