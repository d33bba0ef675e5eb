//! Keys of services and tickets of clients, as the files and the KDC give them.

use super::{Key, Principal};
use alloc::vec::Vec;
use core::fmt;
use frevo_wire::bit_set;
use frevo_wire::dtyp::FileTime;
use zeroize::Zeroizing;

/// A key of a service, one entry of a keytab.
#[derive(Clone)]
pub struct ServiceKey {
    /// The name under which the KDC knows the service.
    pub principal: Principal,
    /// The version of the key; it grows with each change of the password.
    pub kvno: u32,
    /// The key, with its encryption type.
    pub key: Key,
}

impl fmt::Debug for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} kvno {} {}", self.principal, self.kvno, self.key.etype())
    }
}

bit_set! {
    /// TicketFlags, RFC 4120 section 2 and 5.3. Bit 0 of the specification is the highest.
    TicketFlags(u32) {
        /// The ticket may be renewed until its renew-till time.
        RENEWABLE = 0x0080_0000,
        /// The ticket comes from the user's own keys.
        INITIAL = 0x0040_0000,
        /// The client proved its key before it got the ticket.
        PRE_AUTHENT = 0x0020_0000,
        /// The KDC has checked the realms through which the ticket came.
        TRANSITED_POLICY_CHECKED = 0x0008_0000,
        /// The KDC trusts the service with the user's rights.
        OK_AS_DELEGATE = 0x0004_0000,
        /// The ticket may be forwarded.
        FORWARDABLE = 0x4000_0000,
        /// The ticket is not valid yet.
        INVALID = 0x0100_0000,
    }
}

/// A ticket with what its client needs to use it.
#[derive(Clone)]
pub struct ServiceTicket {
    /// The user that the ticket was given to.
    pub client: Principal,
    /// The service that the ticket is for.
    pub server: Principal,
    /// The key that client and service share.
    pub session_key: Key,
    /// The DER encoding of Ticket.
    pub ticket: Vec<u8>,
    /// The flags that the KDC has set.
    pub flags: TicketFlags,
    /// The time of the logon from which the ticket stems.
    pub auth_time: FileTime,
    /// The time from which the ticket is valid.
    pub start_time: FileTime,
    /// The time until which the ticket is valid.
    pub end_time: FileTime,
    /// The time until which a renewable ticket may be renewed; zero for others.
    pub renew_till: FileTime,
}

impl ServiceTicket {
    /// True while the ticket is valid for `seconds` more.
    pub const fn is_valid_for(&self, seconds: u32, now: FileTime) -> bool {
        let until = now.0.saturating_add((seconds as u64).saturating_mul(10_000_000));
        self.start_time.0 <= until && until < self.end_time.0
    }
}

impl fmt::Debug for ServiceTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceTicket")
            .field("client", &self.client)
            .field("server", &self.server)
            .field("end_time", &self.end_time)
            .finish_non_exhaustive()
    }
}

/// A secret of a client: a password, or a key of a keytab.
#[derive(Clone)]
pub enum ClientSecret {
    /// The user's password, in the clear.
    Password(Zeroizing<alloc::string::String>),
    /// Keys of the client, by encryption type.
    Keys(Vec<Key>),
}

impl fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Password(_) => "Password(..)",
            Self::Keys(_) => "Keys(..)",
        })
    }
}
