//! The configuration of TLS in a server.

use std::sync::Arc;

use parking_lot::Mutex;
use quinn::crypto::rustls::QuicServerConfig;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};

use super::access::{AccessList, Decision, Verdict};
use super::certificate::{BadCertificate, Certificates, Identity};
use super::settings::ALPN;

/// The certificates of a server: its own, and those that it wants from clients. MS-SMB2 3.3.1.17.
#[derive(Debug, Clone)]
pub struct ServerTls {
    /// Certificate and key.
    pub identity: Identity,
    /// The certificates that clients need.
    pub clients: Clients,
}

/// The certificates that clients need.
#[derive(Debug, Clone)]
pub enum Clients {
    /// None.
    Anonymous,
    /// RequireClientAuthentication: one below these authorities.
    Certified {
        /// The authorities that sign the certificates of clients.
        authorities: Certificates,
        /// The certificates that are let in. None lets in all: SkipClientCertificateAccessCheck.
        access: Option<AccessList>,
    },
}

/// The decision on the client of one connection. None before the client has sent its certificate.
pub(super) type Decided = Arc<Mutex<Option<Decision>>>;

/// The parts of a server's handshakes.
#[derive(Debug)]
pub(super) struct Handshakes {
    tls: ServerTls,
    provider: Arc<CryptoProvider>,
    /// None where clients need no certificate.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

impl Handshakes {
    /// # Errors
    /// A certificate of an authority cannot be used.
    pub(super) fn new(tls: ServerTls) -> Result<Self, BadCertificate> {
        let provider = Arc::new(default_provider());
        let verifier = match &tls.clients {
            Clients::Anonymous => None,
            Clients::Certified { authorities, .. } => {
                let roots = Arc::new(roots(authorities)?);
                let all = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
                Some(all.build().map_err(|error| {
                    BadCertificate(format!("the authorities of clients cannot be used: {error}"))
                })?)
            }
        };
        Ok(Self { tls, provider, verifier })
    }

    /// Returns the configuration of one handshake, whose decision is put in `decided`.
    ///
    /// # Errors
    /// The provider lacks TLS 1.3, or the cipher of first packets.
    pub(super) fn begin(&self, decided: &Decided) -> Result<QuicServerConfig, BadCertificate> {
        let failed = |error: &dyn std::fmt::Display| BadCertificate(error.to_string());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| failed(&error))?;
        let builder = match &self.verifier {
            None => builder.with_no_client_auth(),
            Some(trusted) => builder.with_client_cert_verifier(Arc::new(Verifier {
                trusted: Arc::clone(trusted),
                clients: self.tls.clients.clone(),
                decided: Arc::clone(decided),
            })),
        };
        let own = SingleCertAndKey::from(Arc::clone(&self.tls.identity.0));
        let mut config = builder.with_cert_resolver(Arc::new(own));
        config.alpn_protocols = vec![ALPN.to_vec()];
        // Windows and Samba: clients take no tickets, and end on them. Without tickets there is no
        // 0-RTT data either, which others could send again.
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        QuicServerConfig::try_from(config).map_err(|error| failed(&error))
    }
}

/// Returns a store of authorities.
fn roots(authorities: &Certificates) -> Result<RootCertStore, BadCertificate> {
    let mut roots = RootCertStore::empty();
    for certificate in &authorities.0 {
        roots.add(certificate.clone()).map_err(|error| {
            BadCertificate(format!("a certificate of an authority cannot be used: {error}"))
        })?;
    }
    Ok(roots)
}

/// Checks the certificate of the client of one connection.
#[derive(Debug)]
struct Verifier {
    trusted: Arc<dyn ClientCertVerifier>,
    clients: Clients,
    decided: Decided,
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.trusted.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let decide = |verdict| *self.decided.lock() = Some(Decision::on(own, verdict));
        let verified = self.trusted.verify_client_cert(own, above, now);
        let verified = verified.inspect_err(|_| decide(Verdict::Untrusted))?;
        let verdict = match &self.clients {
            Clients::Certified { authorities, access: Some(access) } => {
                access.judge(own, above, authorities)
            }
            Clients::Certified { access: None, .. } | Clients::Anonymous => Verdict::Allowed,
        };
        decide(verdict);
        match verdict {
            Verdict::Allowed => Ok(verified),
            // MS-SMB2 3.3.5.1: the alert is access_denied, which rustls makes of this error.
            _ => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trusted.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trusted.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trusted.supported_verify_schemes()
    }
}
