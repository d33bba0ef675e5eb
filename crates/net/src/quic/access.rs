//! The access list of client certificates, MS-SMB2 3.3.1.18.

use super::certificate::{Fingerprint, Parts};

/// The certificates that are let in and kept out. A client is let in if its chain has one that is
/// allowed and none that is denied. The chain is its own certificate and those above, up to the
/// authority that the server trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessList {
    /// Certificates that let in the clients that have them, and those below.
    pub allow: Vec<Fingerprint>,
    /// Certificates that keep out the clients that have them, and those below.
    pub deny: Vec<Fingerprint>,
}

/// The outcome of a check of a client's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The client is let in.
    Allowed,
    /// No certificate of the chain is allowed.
    NotAllowed,
    /// A certificate of the chain is denied: this one.
    Denied(Fingerprint),
    /// No authority that the server trusts has signed the certificate, it is not valid now, or its
    /// chain is too long.
    Untrusted,
}

/// A client's certificate, and whether it lets the client in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The fingerprint of the client's own certificate.
    pub certificate: Fingerprint,
    /// The common name in it; empty if there is none.
    pub name: String,
    /// The outcome.
    pub verdict: Verdict,
}

impl Decision {
    /// Returns the decision on a client with this certificate, in DER.
    #[must_use]
    pub fn on(certificate: &[u8], verdict: Verdict) -> Self {
        let name = Parts::of(certificate).map(|parts| parts.common_name());
        let certificate = Fingerprint::of(certificate);
        Self { certificate, name: name.unwrap_or_default(), verdict }
    }
}

impl AccessList {
    /// Judges a client by the certificates of its chains, which are proven: its own first.
    pub(super) fn judge(&self, chain: &[Fingerprint]) -> Verdict {
        // MS-SMB2 3.3.1.18: a deny in the chain counts more than all that allow.
        if let Some(denied) = chain.iter().find(|one| self.deny.contains(one)) {
            return Verdict::Denied(*denied);
        }
        match chain.iter().any(|one| self.allow.contains(one)) {
            true => Verdict::Allowed,
            false => Verdict::NotAllowed,
        }
    }
}
