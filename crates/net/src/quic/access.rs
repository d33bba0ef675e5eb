//! The access list of client certificates, MS-SMB2 3.3.1.18.

use rustls::pki_types::CertificateDer;

use super::certificate::{Certificates, Fingerprint, Parts};

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
    /// No authority that the server trusts has signed the certificate, or it has ended.
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
    /// Judges a chain that is trusted: the client's certificate, and those above it that the client
    /// sent.
    pub(super) fn judge(
        &self,
        own: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        authorities: &Certificates,
    ) -> Verdict {
        let chain = chain(own, above, authorities);
        // MS-SMB2 3.3.1.18: a deny in the chain counts more than all that allow.
        if let Some(denied) = chain.iter().flatten().find(|one| self.deny.contains(one)) {
            return Verdict::Denied(*denied);
        }
        // Of two authorities with one name, a client may add the allowed one to a chain of the other.
        let is_allowed = |step: &Vec<Fingerprint>| match step[..] {
            [sole] => self.allow.contains(&sole),
            _ => false,
        };
        match chain.iter().any(is_allowed) {
            true => Verdict::Allowed,
            false => Verdict::NotAllowed,
        }
    }
}

/// Returns the fingerprint of a certificate, and for each step above it those of the certificates with
/// the name of the issuer. Certificates that a client adds to its chain without need do not count.
///
/// MS-SMB2 3.3.1.18 lets a server support entries of the root, which clients do not send.
fn chain(
    own: &CertificateDer<'_>,
    above: &[CertificateDer<'_>],
    authorities: &Certificates,
) -> Vec<Vec<Fingerprint>> {
    let mut chain = vec![vec![Fingerprint::of(own)]];
    let mut issuer = Parts::of(own).map(|parts| parts.issuer);
    while let Some(name) = issuer {
        let mut step = Vec::new();
        issuer = None;
        for one in above.iter().chain(&authorities.0) {
            let Some(parts) = Parts::of(one).filter(|parts| parts.subject == name) else {
                continue;
            };
            let fingerprint = Fingerprint::of(one);
            if !step.contains(&fingerprint) && !chain.iter().flatten().any(|it| *it == fingerprint)
            {
                issuer = issuer.or(Some(parts.issuer));
                step.push(fingerprint);
            }
        }
        if !step.is_empty() {
            chain.push(step);
        }
    }
    chain
}
