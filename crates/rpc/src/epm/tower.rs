//! Protocol towers, C706 appendix L, as far as MS-RPCE 2.1.1 has them for TCP and for pipes.

use crate::SyntaxId;
use crate::limits::{MAX_FLOORS, MAX_TOWER};
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::codec::{Malformed, Parsed, Reader, Writer};
use frevo_wire::dtyp::Guid;
use frevo_wire::open_enum;

open_enum! {
    /// The protocol identifier of a floor, C706 appendix I.
    Protocol(u8) {
        /// TCP, with a port.
        TCP = 0x07,
        /// IP, with an address.
        IP = 0x09,
        /// Connection-oriented RPC, with its minor version.
        NCACN = 0x0B,
        /// A UUID with a version.
        UUID = 0x0D,
        /// A pipe of SMB, with its path.
        PIPE = 0x0F,
        /// The name of a host.
        NETBIOS = 0x11,
    }
}

/// The place where an interface is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// ncacn_ip_tcp
    Tcp {
        /// The port; 0 in a question.
        port: u16,
        /// The address of the host. Clients ignore it (MS-RPCE 3.1.3.5.3).
        host: [u8; 4],
    },
    /// ncacn_np
    Pipe {
        /// The path of the pipe, such as `\PIPE\samr`; empty in a question.
        path: String,
        /// The name of the host, behind `\\`.
        host: String,
    },
    /// Another protocol, on which nothing is answered.
    Other,
}

impl Address {
    /// True if both are places of one protocol.
    pub(super) const fn is_alike(&self, other: &Self) -> bool {
        matches!(
            (self, other),
            (Self::Tcp { .. }, Self::Tcp { .. }) | (Self::Pipe { .. }, Self::Pipe { .. })
        )
    }
}

/// An interface with the protocols of its calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tower {
    /// The interface.
    pub interface: SyntaxId,
    /// The transfer syntax.
    pub transfer: SyntaxId,
    /// The place of the interface.
    pub address: Address,
}

/// One floor: the protocol, the rest of its left side, and its right side.
struct Floor<'a> {
    protocol: Protocol,
    left: &'a [u8],
    right: &'a [u8],
}

impl<'a> Floor<'a> {
    fn read(r: &mut Reader<'a>) -> Parsed<Self> {
        let what = "tower floor";
        let length = usize::from(r.u16(what)?);
        let mut left = Reader::new(r.take(length, what)?);
        let protocol = Protocol(left.u8(what)?);
        let length = usize::from(r.u16(what)?);
        Ok(Self { protocol, left: left.rest(), right: r.take(length, what)? })
    }

    /// The identifier with a version in a floor of the kind UUID.
    fn syntax(&self) -> Parsed<SyntaxId> {
        let what = "tower identifier";
        if self.protocol != Protocol::UUID {
            return Err(Malformed::new(what));
        }
        let mut left = Reader::new(self.left);
        let uuid = Guid(left.array(what)?);
        let major = u32::from(left.u16(what)?);
        let minor = u32::from(Reader::new(self.right).u16(what)?);
        Ok(SyntaxId { uuid, version: (minor << 16) | major })
    }

    fn text(&self) -> String {
        let bytes = self.right.strip_suffix(&[0]).unwrap_or(self.right);
        String::from_utf8_lossy(bytes).into_owned()
    }
}

impl Tower {
    /// Parses the octets of a tower.
    ///
    /// # Errors
    /// Malformed octets, or more of them or of their floors than the limits.
    pub fn parse(octets: &[u8]) -> Parsed<Self> {
        let what = "tower";
        let mut r = Reader::new(octets);
        let count = usize::from(r.u16(what)?);
        // MS-RPCE 3.1.3.5.3: a tower with more than six floors is refused.
        if octets.len() > MAX_TOWER || !(3..=MAX_FLOORS).contains(&count) {
            return Err(Malformed::new(what));
        }
        let floors = (0..count).map(|_| Floor::read(&mut r)).collect::<Parsed<Vec<_>>>()?;
        let mut floors = floors.iter();
        let mut next = || floors.next().ok_or(Malformed::new(what));
        let (interface, transfer) = (next()?.syntax()?, next()?.syntax()?);
        let is_connected = next()?.protocol == Protocol::NCACN;
        let (place, host) = (next().ok(), next().ok());
        let address = match place {
            Some(place) if is_connected => Self::address(place, host)?,
            _ => Address::Other,
        };
        Ok(Self { interface, transfer, address })
    }

    fn address(place: &Floor<'_>, host: Option<&Floor<'_>>) -> Parsed<Address> {
        Ok(match place.protocol {
            Protocol::TCP => {
                let [high, low] = Reader::new(place.right).array("tower port")?;
                let host = host.filter(|host| host.protocol == Protocol::IP);
                let host = host.and_then(|host| Reader::new(host.right).array("address").ok());
                let port = u16::from_be_bytes([high, low]);
                Address::Tcp { port, host: host.unwrap_or_default() }
            }
            Protocol::PIPE => {
                let host = host.map(Floor::text).unwrap_or_default();
                Address::Pipe { path: place.text(), host }
            }
            _ => Address::Other,
        })
    }

    /// Returns the octets. A place of another protocol has no floors.
    pub fn encode(&self) -> Vec<u8> {
        let mut octets = Vec::new();
        let mut w = Writer::new(&mut octets);
        w.u16(if self.address == Address::Other { 3 } else { 5 });
        for syntax in [self.interface, self.transfer] {
            let [major_low, major_high, minor_low, minor_high] = syntax.version.to_le_bytes();
            w.u16(19).u8(Protocol::UUID.0).bytes(&syntax.uuid.0).bytes(&[major_low, major_high]);
            w.u16(2).bytes(&[minor_low, minor_high]);
        }
        w.u16(1).u8(Protocol::NCACN.0).u16(2).u16(0);
        let mut floor = |protocol: Protocol, right: &[u8]| {
            w.u16(1).u8(protocol.0).u16(u16::try_from(right.len()).unwrap_or(0)).bytes(right);
        };
        let text = |text: &str| text.bytes().chain([0]).collect::<Vec<u8>>();
        match &self.address {
            Address::Tcp { port, host } => {
                floor(Protocol::TCP, &port.to_be_bytes());
                floor(Protocol::IP, host);
            }
            Address::Pipe { path, host } => {
                floor(Protocol::PIPE, &text(path));
                floor(Protocol::NETBIOS, &text(host));
            }
            Address::Other => {}
        }
        octets
    }
}
