//! TLS of the interface on TCP.

use std::fmt;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS13;
use tokio_rustls::TlsAcceptor;

/// The certificate of an interface, and its key.
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

impl Tls {
    /// Reads a certificate, with those that lead to its authority behind it, and its key. Both are texts
    /// of PEM.
    ///
    /// # Errors
    /// The reason why they cannot be used, for people.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, String> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
        let chain = chain.map_err(|error| format!("the certificate cannot be read: {error}"))?;
        if chain.is_empty() {
            return Err(String::from("the file has no certificate (-----BEGIN CERTIFICATE-----)"));
        }
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| format!("the key cannot be read: {error}"))?;
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13])
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
        let mut config = config.map_err(|error| format!("it cannot be used: {error}"))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// The part that greets clients.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_refused_with_words() {
        for (certificate, key, words) in [
            ("", "", "no certificate"),
            ("-----BEGIN CERTIFICATE-----\n!", "", "certificate"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "", "the key"),
        ] {
            let why = Tls::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
    }
}
