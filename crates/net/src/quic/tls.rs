//! The configuration of TLS in a server.

use std::sync::Arc;

use parking_lot::Mutex;
use quinn_proto::crypto::rustls::QuicServerConfig;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};

use super::access::{AccessList, Decision, Verdict};
use super::certificate::{BadCertificate, Certificates, Identity};
use super::chain::Authorities;
use super::settings::ALPN;
use crate::limits::QUIC_CHAIN_CERTIFICATES_MAX;

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
pub(super) struct Handshakes {
    own: Arc<SingleCertAndKey>,
    provider: Arc<CryptoProvider>,
    clients: Checked,
}

/// The certificates of clients in handshakes.
enum Checked {
    /// Clients need none, and all handshakes are alike.
    Anonymous(Arc<QuicServerConfig>),
    /// Each handshake keeps its decision.
    Certified(Arc<Check>),
}

impl Handshakes {
    /// # Errors
    /// A certificate of an authority cannot be used, or the provider lacks TLS 1.3, or the cipher of
    /// first packets.
    pub(super) fn new(tls: ServerTls) -> Result<Self, BadCertificate> {
        let provider = Arc::new(default_provider());
        let own = Arc::new(SingleCertAndKey::from(tls.identity.0));
        let clients = match tls.clients {
            Clients::Anonymous => Checked::Anonymous(config(&provider, &own, None)?),
            Clients::Certified { authorities, access } => {
                let check = Check::new(&authorities, access, Arc::clone(&provider))?;
                Checked::Certified(Arc::new(check))
            }
        };
        Ok(Self { own, provider, clients })
    }

    /// Returns the configuration of one handshake, whose decision is put in `decided`.
    ///
    /// # Errors
    /// The provider lacks TLS 1.3, or the cipher of first packets.
    pub(super) fn begin(&self, decided: &Decided) -> Result<Arc<QuicServerConfig>, BadCertificate> {
        match &self.clients {
            Checked::Anonymous(all) => Ok(Arc::clone(all)),
            Checked::Certified(check) => {
                let (check, decided) = (Arc::clone(check), Arc::clone(decided));
                config(&self.provider, &self.own, Some(Verifier { check, decided }))
            }
        }
    }
}

fn config(
    provider: &Arc<CryptoProvider>,
    own: &Arc<SingleCertAndKey>,
    verifier: Option<Verifier>,
) -> Result<Arc<QuicServerConfig>, BadCertificate> {
    let failed = |error: &dyn std::fmt::Display| BadCertificate(error.to_string());
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| failed(&error))?;
    let builder = match verifier {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(Arc::new(verifier)),
    };
    let own: Arc<SingleCertAndKey> = Arc::clone(own);
    let mut config = builder.with_cert_resolver(own);
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Windows and Samba: clients take no tickets, and end on them. Without tickets there is no
    // 0-RTT data either, which others could send again.
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(QuicServerConfig::try_from(config).map_err(|error| failed(&error))?))
}

/// The check of the certificates of clients.
#[derive(Debug)]
struct Check {
    trusted: Arc<dyn ClientCertVerifier>,
    authorities: Authorities,
    /// None lets in all.
    access: Option<AccessList>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Check {
    fn new(
        certificates: &Certificates,
        access: Option<AccessList>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, BadCertificate> {
        let authorities = Authorities::new(certificates)?;
        let algorithms = provider.signature_verification_algorithms;
        let roots = Arc::clone(&authorities.roots);
        let all = WebPkiClientVerifier::builder_with_provider(roots, provider);
        let trusted = all.build().map_err(|error| {
            BadCertificate(format!("the authorities of clients cannot be used: {error}"))
        })?;
        Ok(Self { trusted, authorities, access, algorithms })
    }
}

/// Checks the certificate of the client of one connection.
#[derive(Debug)]
struct Verifier {
    check: Arc<Check>,
    decided: Decided,
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.check.trusted.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let Check { trusted, authorities, access, algorithms } = &*self.check;
        let decide = |verdict| *self.decided.lock() = Some(Decision::on(own, verdict));
        // The search for a chain takes time that grows fast with their number.
        if above.len() > QUIC_CHAIN_CERTIFICATES_MAX {
            decide(Verdict::Untrusted);
            return Err(CertificateError::UnknownIssuer.into());
        }
        let verified = trusted.verify_client_cert(own, above, now);
        let verified = verified.inspect_err(|_| decide(Verdict::Untrusted))?;
        let verdict = match access {
            None => Verdict::Allowed,
            Some(access) => match authorities.chains(own, above, algorithms, now) {
                Ok(chain) => access.judge(&chain),
                Err(_) => Verdict::Untrusted,
            },
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
        self.check.trusted.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check.trusted.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.check.trusted.supported_verify_schemes()
    }
}
