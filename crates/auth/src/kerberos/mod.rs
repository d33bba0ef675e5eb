//! Kerberos 5 (RFC 4120) as SMB uses it: names, keys, tickets and the files that hold them.

mod big_endian;
pub mod ccache;
mod credentials;
pub mod keytab;
mod principal;

pub use ccache::CredentialsCache;
pub use credentials::{ClientSecret, ServiceKey, ServiceTicket, TicketFlags};
pub use frevo_crypto::{EncryptionType, KerberosKey as Key, KeyUsage};
pub use keytab::{Keytab, KeytabEntry};
pub use principal::{NameType, Principal};
