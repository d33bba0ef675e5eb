//! QUIC (RFC 9000) in user space: SMB over QUIC, MS-SMB2 2.1.
//!
//! A connection has one bidirectional stream, which its client opens. TLS 1.3 proves to the client
//! which server it speaks to, and to a server that wants it who the client is. [`Listener`] accepts
//! connections, [`Connector`] makes them, and [`Connection`] is one: to its owner a stream of bytes.
//!
//! One task reads the datagrams of a socket, on the runtime of the listener, and hands them to the
//! task of their connection by its id. That task runs on the core of the connection: there packets
//! are encrypted and decrypted. Only the first packet of a client is answered while the socket waits: the
//! key exchange, and the signature of the server's certificate.

mod access;
mod allowance;
mod certificate;
mod chain;
mod congestion;
mod connect;
mod connection;
mod endpoint;
mod failure;
mod inbox;
mod issue;
mod link;
mod listener;
mod settings;
mod simulated;
mod socket;
mod tls;
mod windows;

pub use access::{AccessList, Decision, Verdict};
pub use allowance::Allowance;
pub use certificate::{BadCertificate, Certificates, Fingerprint, Identity};
pub use connect::{Connector, Trust};
pub use connection::Connection;
pub use issue::{Issued, Wanted, issue};
pub use listener::{Detached, Listener, Renewal};
pub use simulated::{Datagram, Id, Port};
pub use tls::{Clients, ServerTls};
