//! Connecting to a server.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, ConnectionId};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::certificate::{BadCertificate, Certificates, Fingerprint, Identity};
use super::connection::{Connection, Open, Opening};
use super::endpoint::Endpoint;
use super::failure::Failure;
use super::listener::Listener;
use super::settings::{self, ALPN};
use super::simulated::Port;
use super::socket::Udp;
use super::windows::Windows;
use crate::limits::{QUIC_HANDSHAKE_TIMEOUT, QUIC_NEXT_ADDRESS};

/// The servers that a client trusts.
#[derive(Debug, Clone)]
pub enum Trust {
    /// Servers with a certificate for their name, below one of these authorities.
    Authorities(Certificates),
    /// Servers with one of these certificates, whatever name and dates it has.
    Pinned(Vec<Fingerprint>),
}

/// Makes connections.
#[derive(Clone)]
pub struct Connector {
    trust: Arc<Trust>,
    identity: Option<Identity>,
    provider: Arc<CryptoProvider>,
    /// None where certificates are pinned.
    verifier: Option<Arc<WebPkiServerVerifier>>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let identity = self.identity.as_ref().map(Identity::fingerprint);
        let trusts_pins = matches!(*self.trust, Trust::Pinned(_));
        let mut shown = f.debug_struct("Connector");
        shown.field("identity", &identity).field("trusts_pins", &trusts_pins).finish()
    }
}

impl Connector {
    /// Makes a connector of a client that has the certificate `identity`, if it has one.
    ///
    /// # Errors
    /// A certificate of an authority cannot be used.
    pub fn new(trust: Trust, identity: Option<Identity>) -> Result<Self, BadCertificate> {
        let provider = Arc::new(default_provider());
        let verifier = match &trust {
            Trust::Pinned(_) => None,
            Trust::Authorities(authorities) => {
                let mut roots = RootCertStore::empty();
                // Systems have certificates of kinds that nobody uses any more.
                roots.add_parsable_certificates(authorities.0.iter().cloned());
                let roots = Arc::new(roots);
                let all = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
                Some(all.build().map_err(|error| {
                    BadCertificate(format!("the authorities cannot be used: {error}"))
                })?)
            }
        };
        Ok(Self { trust: Arc::new(trust), identity, provider, verifier })
    }

    /// Connects to an address, where the server proves to be `host`, a name or an address.
    ///
    /// # Errors
    /// The system's error, or one sentence about the handshake that failed.
    pub async fn connect(&self, address: SocketAddr, host: &str) -> io::Result<Connection> {
        let any = match address {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let make = || {
            let socket = Arc::new(Udp::new(Listener::socket(any)?)?);
            Ok(Endpoint::new(settings::of_endpoint(), None, socket))
        };
        self.connect_over(make, None, address, host).await
    }

    /// Connects like [`Self::connect`] by a socket in memory, for a simulator.
    ///
    /// # Errors
    /// Like [`Self::connect`].
    pub async fn connect_from(
        &self,
        port: &Port,
        address: SocketAddr,
        host: &str,
    ) -> io::Result<Connection> {
        let make = || Ok(port.endpoint(None));
        self.connect_over(make, Some(port.first_id()), address, host).await
    }

    /// Connects by the socket that `make` makes. `first_id` is the id by which the server is called first; None
    /// for a random one.
    async fn connect_over(
        &self,
        make: impl FnOnce() -> io::Result<Endpoint>,
        first_id: Option<ConnectionId>,
        address: SocketAddr,
        host: &str,
    ) -> io::Result<Connection> {
        let distrust = Distrust::default();
        let is_local = settings::is_local(address);
        let mut config = self.config(&distrust, is_local).map_err(io::Error::other)?;
        if let Some(id) = first_id {
            config.initial_dst_cid_provider(Arc::new(move || id));
        }
        // The name in a certificate has no number of a link.
        let name = host.split('%').next().unwrap_or(host);
        let end = make()?;
        let local = end.local_addr()?;
        let link = end.connect(config, address, name).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("cannot connect: {error}"))
        })?;
        let opened = Arc::clone(&link);
        let opening: Opening = Box::pin(async move {
            opened.connected().await.map_err(|failure| {
                let why = distrust.lock().take();
                why.map_or(failure, Failure::Untrusted)
            })?;
            opened.stream().await?;
            Ok(Open::new(None, Windows::WIDE))
        });
        let connection = Connection::new(opening, address, local, link);
        let opened = timeout(QUIC_HANDSHAKE_TIMEOUT, connection.opened()).await;
        opened.map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))??;
        Ok(connection)
    }

    /// Connects to the first of several addresses of `host` that answers. Each is tried a little after
    /// the one before, or at once if that has failed.
    ///
    /// # Errors
    /// The error of a server that was reached, or else of the last address that failed.
    pub async fn connect_any(
        &self,
        addresses: &[SocketAddr],
        host: &str,
    ) -> io::Result<Connection> {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
        let mut attempts = JoinSet::new();
        let mut rest = addresses.iter().copied();
        loop {
            match rest.next() {
                Some(address) => {
                    let (connector, host) = (self.clone(), host.to_owned());
                    attempts.spawn(async move { connector.connect(address, &host).await });
                }
                None if attempts.is_empty() => return Err(failure),
                None => {}
            }
            tokio::select! {
                ended = attempts.join_next() => match ended {
                    Some(Ok(Ok(connection))) => return Ok(connection),
                    // A sentence about a certificate says more than the silence of an address.
                    Some(Ok(Err(error))) if failure.kind() != io::ErrorKind::PermissionDenied => {
                        failure = error;
                    }
                    Some(_) | None => {}
                },
                () = sleep(QUIC_NEXT_ADDRESS), if rest.len() > 0 => {}
            }
        }
    }

    fn config(&self, distrust: &Distrust, is_local: bool) -> Result<ClientConfig, BadCertificate> {
        let failed = |error: &dyn fmt::Display| BadCertificate(error.to_string());
        let verifier = Verifier { connector: self.clone(), distrust: Arc::clone(distrust) };
        let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| failed(&error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let own = SingleCertAndKey::from(Arc::clone(&identity.0));
                builder.with_client_cert_resolver(Arc::new(own))
            }
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        let crypto = QuicClientConfig::try_from(config).map_err(|error| failed(&error))?;
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(settings::of_client(is_local));
        Ok(config)
    }
}

/// The reason why the client does not trust the server of one connection.
type Distrust = Arc<Mutex<Option<String>>>;

/// Checks the certificate of the server of one connection.
#[derive(Debug)]
struct Verifier {
    connector: Connector,
    distrust: Distrust,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let seen = Fingerprint::of(own);
        let (why, error) = match (&*self.connector.trust, &self.connector.verifier) {
            (Trust::Pinned(pins), _) if pins.contains(&seen) => {
                return Ok(ServerCertVerified::assertion());
            }
            (Trust::Authorities(_), Some(verifier)) => {
                let error = match verifier.verify_server_cert(own, above, name, ocsp, now) {
                    Ok(verified) => return Ok(verified),
                    Err(error) => error,
                };
                (distrusted(&error, &seen), error)
            }
            (Trust::Pinned(_) | Trust::Authorities(_), _) => {
                let why = format!("the server has another certificate, of fingerprint {seen}");
                (why, CertificateError::ApplicationVerificationFailure.into())
            }
        };
        *self.distrust.lock() = Some(why);
        Err(error)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.connector.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.connector.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.connector.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// True if the certificate of an authority stands for a host.
fn is_of_authority(why: &OtherError) -> bool {
    matches!(why.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

/// Returns the sentence for a certificate that no authority vouches for.
fn distrusted(error: &Error, seen: &Fingerprint) -> String {
    match error {
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => String::from("the server's certificate is for another name"),
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => String::from("the server's certificate has ended"),
        Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => String::from("the server's certificate is not valid yet; is the clock right?"),
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => format!(
            "no authority that this client trusts has signed the server's certificate; if its \
             administrator gives you this fingerprint, use --quic-pin {seen}"
        ),
        Error::InvalidCertificate(CertificateError::Other(why)) if is_of_authority(why) => format!(
            "the server uses the certificate of an authority as its own, which is not allowed; if its \
             administrator gives you this fingerprint, use --quic-pin {seen}"
        ),
        _ => format!(
            "the server's certificate is not valid ({error}); if its administrator gives you this \
             fingerprint, use --quic-pin {seen}"
        ),
    }
}
