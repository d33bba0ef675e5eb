//! Connecting by SMB over QUIC: the servers that are trusted, and the certificate of the client.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use frevo_net::quic::{Connector, Trust};
use frevo_net::transport::Dialer;
use parking_lot::Mutex;

pub use frevo_net::quic::{BadCertificate, Certificates, Fingerprint, Identity};

use crate::dial::{Dial, Dialing, ServerAddresses, ServerName};
use crate::limits::SYSTEM_CERTIFICATES_BYTES;
use crate::options::Options;

/// The use of SMB over QUIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Quic {
    /// Never.
    #[default]
    Off,
    /// Where TCP does not reach the server. That is logged as a warning.
    Auto,
    /// QUIC only.
    Required,
}

/// The servers that a client trusts over QUIC.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum QuicTrust {
    /// Those with a certificate for their name that an authority of this system has signed.
    #[default]
    System,
    /// Those with a certificate for their name that one of these authorities has signed.
    Authorities(Certificates),
    /// Those with one of these certificates, whatever name and dates it has.
    Pinned(Vec<Fingerprint>),
}

/// The files in which systems keep the certificates of authorities.
const SYSTEM_FILES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Connects by QUIC.
#[derive(Debug)]
pub(crate) struct QuicDialer {
    trust: QuicTrust,
    identity: Option<Identity>,
    /// The servers that are looked for at addresses of the options.
    named: Vec<ServerAddresses>,
    /// None until the first connection, which may have to read files.
    dialer: Mutex<Option<Dialer>>,
}

impl QuicDialer {
    pub(crate) fn new(options: &Options) -> Self {
        let (trust, identity) = (options.quic_trust.clone(), options.quic_identity.clone());
        Self { trust, identity, named: options.addresses.clone(), dialer: Mutex::new(None) }
    }

    /// Returns the name that a certificate must have: that of the URL, also where the options say at which
    /// address the server is.
    fn name<'a>(&'a self, at: &'a ServerName) -> &'a str {
        let is_it = |one: &ServerName| {
            one.host.eq_ignore_ascii_case(&at.host)
                && one.port.is_none_or(|port| at.port == Some(port))
        };
        let named = self.named.iter().find(|one| one.addresses.iter().any(is_it));
        named.map_or(&at.host, |named| &named.host)
    }

    fn dialer(&self) -> io::Result<Dialer> {
        let mut dialer = self.dialer.lock();
        if let Some(dialer) = &*dialer {
            return Ok(dialer.clone());
        }
        let trust = match &self.trust {
            QuicTrust::System => Trust::Authorities(of_system()?),
            QuicTrust::Authorities(authorities) => Trust::Authorities(authorities.clone()),
            QuicTrust::Pinned(pins) => Trust::Pinned(pins.clone()),
        };
        let made = Dialer::Quic(Connector::new(trust, self.identity.clone()).map_err(wrong)?);
        Ok(dialer.insert(made).clone())
    }
}

impl Dial for QuicDialer {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        Box::pin(async move {
            let name = self.name(server);
            self.dialer()?.dial_named(&server.host, server.port, name).await
        })
    }
}

fn wrong(error: BadCertificate) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

/// Reads the authorities of this system; those in the file SSL_CERT_FILE, if that is set.
fn of_system() -> io::Result<Certificates> {
    let named = std::env::var_os("SSL_CERT_FILE").filter(|file| !file.is_empty());
    let named = named.map(PathBuf::from);
    let usual = || SYSTEM_FILES.iter().map(PathBuf::from).find(|file| file.exists());
    let Some(file) = named.or_else(usual) else {
        let text = "this system has no certificates of authorities (package ca-certificates); use \
                    --quic-ca FILE or --quic-pin SHA256";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    };
    let mut pem = Vec::new();
    let read = File::open(&file)
        .and_then(|file| file.take(SYSTEM_CERTIFICATES_BYTES + 1).read_to_end(&mut pem));
    let invalid = |why: &dyn std::fmt::Display| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {why}", file.display()))
    };
    read.map_err(|error| invalid(&error))?;
    if pem.len() as u64 > SYSTEM_CERTIFICATES_BYTES {
        let most = SYSTEM_CERTIFICATES_BYTES >> 20;
        let text = format!("it has more than {most} MiB; name fewer authorities: --quic-ca FILE");
        return Err(invalid(&text));
    }
    Certificates::from_pem(&pem).map_err(wrong)
}
