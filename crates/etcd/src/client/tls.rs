//! The configuration of TLS.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use rustls::crypto::aws_lc_rs::{default_provider, sign::any_supported_type};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use zeroize::Zeroize;

use super::options::{BadOptions, Endpoint, Tls};

/// Returns what begins TLS with a member. Only TLS 1.3 is spoken.
pub(super) fn connector(tls: &Tls) -> Result<TlsConnector, BadOptions> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&tls.authorities, "the file of the authorities")? {
        roots.add(certificate).map_err(|error| {
            BadOptions(alloc::format!(
                "A certificate of an authority of etcd cannot be used: {error}."
            ))
        })?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| BadOptions(error.to_string()))?
        .with_root_certificates(roots);
    let mut config = match (&tls.certificate, &tls.key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(certificate), Some(key)) => {
            let chain = certificates(certificate, "the file of the client's certificate")?;
            let own = certified(chain, key)?;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)))
        }
        _ => {
            let text = "A client's certificate of etcd needs its key, and a key its certificate.";
            return Err(BadOptions(text.into()));
        }
    };
    config.alpn_protocols = Vec::from([b"http/1.1".to_vec()]);
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Returns the name that the certificate of `endpoint` must have.
pub(super) fn server_name(
    tls: &Tls,
    endpoint: &Endpoint,
) -> Result<ServerName<'static>, BadOptions> {
    let name = tls.server_name.as_ref().unwrap_or(&endpoint.host);
    ServerName::try_from(String::from(name))
        .map_err(|_| BadOptions(alloc::format!("`{name}` is not a name of a certificate.")))
}

fn certificates(pem: &[u8], place: &str) -> Result<Vec<CertificateDer<'static>>, BadOptions> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found =
        read.map_err(|error| BadOptions(alloc::format!("In {place} for etcd: {error}.")))?;
    if found.is_empty() {
        return Err(BadOptions(alloc::format!("There is no certificate in {place} for etcd.")));
    }
    Ok(found)
}

/// Joins a certificate and its key. The decoded key is erased: AWS-LC keeps one of its own, which it
/// erases as well.
fn certified(chain: Vec<CertificateDer<'static>>, pem: &[u8]) -> Result<CertifiedKey, BadOptions> {
    let mut key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
        BadOptions(alloc::format!("The client's key for etcd cannot be read: {error}."))
    })?;
    let usable = any_supported_type(&key);
    key.zeroize();
    let usable = usable.map_err(|error| {
        BadOptions(alloc::format!("The client's key for etcd cannot be used: {error}."))
    })?;
    let own = CertifiedKey::new(chain, usable);
    own.keys_match().map_err(|_| {
        BadOptions("The client's key for etcd is not that of its certificate.".into())
    })?;
    Ok(own)
}
