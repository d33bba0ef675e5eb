//! Reasons for which there is no Kerberos ticket, or the server does not accept it.

use std::fmt;
use std::sync::Arc;

use frevo_auth::kerberos::kdc::KdcFault;

/// The reason for which a logon by Kerberos failed. Its text is one line that tells what to do.
#[derive(Debug, Clone)]
pub struct KerberosError(Arc<Reason>);

/// The reason with its text.
#[derive(Debug)]
pub(crate) enum Reason {
    /// There is no credentials cache, no ticket in it, or a cache of another type.
    NoTicket(String),
    /// The ticket has expired, or ends before it is needed.
    Expired(String),
    /// No KDC answers.
    Unreachable(String),
    /// The KDC gives no ticket.
    Kdc(KdcFault),
    /// The server cannot be named by a ticket.
    Address(String),
    /// The server does not accept the ticket.
    Server(String),
    /// A file or a setting is wrong.
    Setting(String),
}

impl KerberosError {
    pub(crate) fn new(reason: Reason) -> Self {
        Self(Arc::new(reason))
    }

    /// Makes the error of a ticket that has expired, for a source of tickets.
    #[doc(hidden)]
    pub fn expired(text: &str) -> Self {
        Self::new(Reason::Expired(text.into()))
    }

    /// Returns true if a later attempt may succeed: a KDC may come back, and a user may get a new
    /// ticket.
    pub(crate) fn may_pass(&self) -> bool {
        self.is_expired() || self.is_unreachable()
    }

    /// Returns true if the user's ticket has expired.
    pub fn is_expired(&self) -> bool {
        matches!(*self.0, Reason::Expired(_) | Reason::Kdc(KdcFault::TicketExpired(_)))
    }

    /// Returns true if a KDC was asked and cannot be reached.
    pub fn is_unreachable(&self) -> bool {
        matches!(*self.0, Reason::Unreachable(_))
    }
}

impl fmt::Display for KerberosError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Reason::Kdc(fault) => fault.fmt(f),
            Reason::NoTicket(text)
            | Reason::Expired(text)
            | Reason::Unreachable(text)
            | Reason::Address(text)
            | Reason::Server(text)
            | Reason::Setting(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for KerberosError {}

impl From<Reason> for KerberosError {
    fn from(reason: Reason) -> Self {
        Self::new(reason)
    }
}

impl From<KdcFault> for KerberosError {
    fn from(fault: KdcFault) -> Self {
        Self::new(Reason::Kdc(fault))
    }
}
