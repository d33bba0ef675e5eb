//! The chains of a client's certificate.

use std::cell::RefCell;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, Error, KeyUsage, VerifiedPath};

use super::certificate::{BadCertificate, Certificates, Fingerprint};

/// The authorities that sign the certificates of clients.
#[derive(Debug)]
pub(super) struct Authorities {
    pub(super) roots: Arc<RootCertStore>,
    /// Those of the roots, in their order.
    fingerprints: Vec<Fingerprint>,
}

impl Authorities {
    /// # Errors
    /// A certificate cannot be used.
    pub(super) fn new(certificates: &Certificates) -> Result<Self, BadCertificate> {
        let mut roots = RootCertStore::empty();
        for certificate in &certificates.0 {
            roots.add(certificate.clone()).map_err(|error| {
                BadCertificate(format!("a certificate of an authority cannot be used: {error}"))
            })?;
        }
        let fingerprints = certificates.0.iter().map(|one| Fingerprint::of(one)).collect();
        Ok(Self { roots: Arc::new(roots), fingerprints })
    }

    /// Returns the certificates of all chains from `own` over some of `above` to an authority in which
    /// each certificate is signed by the next, `own` first. A name proves nothing: clients send what
    /// they like. MS-SMB2 3.3.1.18 lets a server support entries of the root, which clients do not send.
    ///
    /// # Errors
    /// The certificate cannot be read, or there are too many chains to check.
    pub(super) fn chains(
        &self,
        own: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        algorithms: &WebPkiSupportedAlgorithms,
        now: UnixTime,
    ) -> Result<Vec<Fingerprint>, Error> {
        let leaf = EndEntityCert::try_from(own)?;
        let chain = RefCell::new(vec![Fingerprint::of(own)]);
        // Each chain is refused here, so that the next one is looked for.
        let collect = |path: &VerifiedPath<'_>| {
            let mut chain = chain.borrow_mut();
            chain.extend(path.intermediate_certificates().map(|one| Fingerprint::of(&one.der())));
            // Those of the same name and key are one authority.
            let anchor = path.anchor();
            let all = self.roots.roots.iter().zip(&self.fingerprints);
            let same = all.filter(|(root, _)| {
                root.subject == anchor.subject
                    && root.subject_public_key_info == anchor.subject_public_key_info
            });
            chain.extend(same.map(|(_, fingerprint)| *fingerprint));
            Err(Error::UnknownIssuer)
        };
        let (roots, usage) = (&self.roots.roots, KeyUsage::client_auth());
        let walked =
            leaf.verify_for_usage(algorithms.all, roots, above, now, usage, None, Some(&collect));
        match walked.err() {
            Some(
                error @ (Error::MaximumSignatureChecksExceeded
                | Error::MaximumPathBuildCallsExceeded
                | Error::MaximumNameConstraintComparisonsExceeded),
            ) => Err(error),
            _ => Ok(chain.into_inner()),
        }
    }
}
