//! The configuration of TLS.

use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use core::fmt;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

/// The reason why certificates cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadCertificates(String);

impl fmt::Display for BadCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for BadCertificates {}

/// Makes TLS that trusts the authorities of a PEM text. Only TLS 1.3 is spoken. Certificates that this
/// library cannot use are passed over, if another one is left: systems have some of long ago.
///
/// # Errors
/// A text without a certificate of an authority.
pub fn connector(authorities: &[u8]) -> Result<TlsConnector, BadCertificates> {
    let bad = |why: &str| BadCertificates(String::from(why));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities) {
        let certificate = certificate.map_err(|error| bad(&error.to_string()))?;
        // A refused certificate leaves the others.
        let _ = roots.add(certificate);
    }
    if roots.is_empty() {
        return Err(bad("it has no certificate of an authority in PEM"));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(&error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
