//! Settings of a client.

use std::sync::Arc;
use std::time::Duration;

use frevo_capture::live::Capture;

use crate::ambient::{Ambient, Host};
use crate::dial::{ServerAddresses, ServerName};
use crate::limits;
use crate::quic::{Identity, Quic, QuicTrust};
use crate::types::{AppInstance, Cipher, Dialect, SigningAlgorithm};
use crate::url::{OVER_ANY, OVER_QUIC};

/// The sessions that are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Encryption {
    /// Sessions and shares for which the server asks for encryption.
    #[default]
    AsServerAsks,
    /// Every session. A server that cannot encrypt is refused.
    Required,
}

/// The messages that are signed, of those that are not encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Signing {
    /// Every message in both directions.
    #[default]
    Always,
    /// Every message if the server requires it; else only the logon and the check of the
    /// negotiation. Someone on the network could then change files and names unnoticed.
    WhenAsked,
}

/// The hosts to which DFS referrals may lead. The client logs on there with the user's
/// credentials: the host learns the user name and a proof of the password, never the
/// password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Referrals {
    /// Every host, if the server's signature proves that it sent the referral.
    #[default]
    Anywhere,
    /// Other shares of the server that sent the referral.
    SameHost,
    /// No host: paths outside the share fail.
    Never,
}

/// The data of files that is compressed on its way. Over SMB Direct none is.
///
/// Someone who sees the lengths of encrypted messages learns how well their data compresses. Where one
/// file holds a secret beside text that others choose, that may tell the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Compression {
    /// None: compression is not negotiated.
    #[default]
    Off,
    /// Data of shares whose server asks for it, and of all shares while the link is slower than a
    /// processor core compresses.
    Auto,
    /// All data that becomes smaller.
    On,
}

/// The use of SMB Direct: SMB over RDMA. Only a build with the feature `rdma` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Rdma {
    /// TCP only.
    #[default]
    Off,
    /// SMB Direct where it reaches the server, else TCP. That is logged as a warning.
    Auto,
    /// SMB Direct only.
    Required,
}

/// Settings of a [`Client`](crate::Client). The defaults suit a current server.
///
/// ```
/// use std::time::Duration;
/// use frevo_client::{Encryption, Options};
///
/// let options = Options::new()
///     .encryption(Encryption::Required)
///     .recover_for(Duration::from_secs(10));
/// assert_eq!(options.channels, 0);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The oldest dialect that is accepted. Default: SMB 3.0.
    pub oldest: Dialect,
    /// The newest dialect that is offered. Default: SMB 3.1.1.
    pub newest: Dialect,
    /// The ciphers that are offered, the preferred one first. Default: all four.
    pub ciphers: Vec<Cipher>,
    /// The signing algorithms that are offered, the preferred one first. Default: all three.
    pub signing: Vec<SigningAlgorithm>,
    /// The sessions that are encrypted. Default: those for which the server asks.
    pub encryption: Encryption,
    /// True tells the server that this client requires signing, and means
    /// [`Signing::Always`]. Default: true.
    pub require_signing: bool,
    /// True leaves encryption and signatures to a transport that encrypts by itself, if the server
    /// does the same: DisableEncryptionOverSecureTransport of MS-SMB2 3.1.1.1. TCP and SMB Direct are
    /// none. Default: true.
    pub transport_security: bool,
    /// The messages that are signed. Default: all.
    pub sign: Signing,
    /// True accepts a logon that the server turns into a guest's. A guest's session has no
    /// keys: nothing is signed or encrypted. Default: false.
    pub allow_guest: bool,
    /// Credits to hold on each connection, at least 8. Each allows 64 KiB in flight.
    /// Default: 512.
    pub credits: u16,
    /// Connections of one session, 1 to 32, if the server supports several; 0 chooses the count
    /// from the server's interfaces: 4 over each that has several receive queues, 1 over others.
    /// Connections that are lost are made again. Default: 0.
    pub channels: usize,
    /// Time for which an operation waits for a lost server to come back. Default: 60 s.
    pub recover_for: Duration,
    /// Time limit of one attempt to connect and log on. Default: 10 s.
    pub connect_timeout: Duration,
    /// The use of SMB Direct. Data of large reads and writes moves by RDMA only if it is neither
    /// signed nor encrypted: see [`Signing::WhenAsked`]. Default: TCP only.
    pub rdma: Rdma,
    /// The use of SMB over QUIC. Default: never.
    pub quic: Quic,
    /// The servers that are trusted over QUIC. Default: those that the system's authorities vouch for.
    pub quic_trust: QuicTrust,
    /// The certificate of this client, for servers that want one over QUIC. Default: none.
    pub quic_identity: Option<Identity>,
    /// The data of reads and writes that is compressed, if the server does the same. Default: none.
    pub compression: Compression,
    /// True asks the server to keep open files when the connection is lost. Default: true.
    pub durable: bool,
    /// True offers the POSIX extensions of SMB 3.1.1. Default: false.
    pub posix: bool,
    /// Largest READ or WRITE request in bytes, 4 KiB to 8 MiB. Default: 1 MiB.
    pub transfer: u32,
    /// The hosts to which DFS referrals may lead. Default: every host.
    pub referrals: Referrals,
    /// A domain controller, needed if DNS does not resolve domain names to controllers. The
    /// client asks it for the controllers of a domain, and those for the roots of the
    /// domain's DFS namespaces. Default: none.
    pub domain_controller: Option<ServerName>,
    /// Addresses of servers that are used in place of those that their names resolve to. Default:
    /// none.
    pub addresses: Vec<ServerAddresses>,
    /// The instance of the application that opens files, which fails over between machines. Default:
    /// none.
    pub app_instance: Option<AppInstance>,
    /// True registers with another node of a cluster, which tells at once when the node in use is gone or
    /// is to be left. A cluster without such a service is used all the same. Default: true.
    pub witness: bool,
    /// The capture that all messages of all connections are given to, as they are before encryption and
    /// after decryption. Default: none.
    pub capture: Option<Capture>,
    /// The name of this machine, for the server's logs. Default: `FREVO`.
    pub workstation: String,
    /// Payload of a READ or WRITE, bytes, from which it moves by RDMA.
    #[doc(hidden)]
    pub rdma_from: u32,
    /// Source of the time of day and of random bytes.
    #[doc(hidden)]
    pub ambient: Arc<dyn Ambient>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            oldest: Dialect::Smb300,
            newest: Dialect::Smb311,
            ciphers: vec![
                Cipher::Aes128Gcm,
                Cipher::Aes256Gcm,
                Cipher::Aes128Ccm,
                Cipher::Aes256Ccm,
            ],
            signing: vec![
                SigningAlgorithm::AesGmac,
                SigningAlgorithm::AesCmac,
                SigningAlgorithm::HmacSha256,
            ],
            encryption: Encryption::AsServerAsks,
            require_signing: true,
            transport_security: true,
            sign: Signing::Always,
            allow_guest: false,
            credits: limits::CREDITS,
            channels: 0,
            recover_for: limits::RECOVER_FOR,
            connect_timeout: limits::CONNECT_TIMEOUT,
            rdma: Rdma::Off,
            quic: Quic::Off,
            quic_trust: QuicTrust::System,
            quic_identity: None,
            compression: Compression::Off,
            durable: true,
            posix: false,
            transfer: limits::TRANSFER_MAX,
            referrals: Referrals::Anywhere,
            domain_controller: None,
            addresses: Vec::new(),
            app_instance: None,
            witness: true,
            capture: None,
            workstation: String::from("FREVO"),
            rdma_from: limits::RDMA_FROM,
            ambient: Arc::new(Host),
        }
    }
}

/// Declares a setter for each field.
macro_rules! setters {
    ($($(#[$meta:meta])* $name:ident: $kind:ty,)*) => { $(
        #[doc = concat!("Sets [`Self::", stringify!($name), "`](#structfield.", stringify!($name), ").")]
        $(#[$meta])*
        #[must_use]
        pub fn $name(mut self, $name: $kind) -> Self {
            self.$name = $name;
            self
        }
    )* };
}

impl Options {
    /// Returns the default settings, as [`Default`] does.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        oldest: Dialect,
        newest: Dialect,
        ciphers: Vec<Cipher>,
        signing: Vec<SigningAlgorithm>,
        encryption: Encryption,
        require_signing: bool,
        transport_security: bool,
        sign: Signing,
        allow_guest: bool,
        credits: u16,
        channels: usize,
        recover_for: Duration,
        connect_timeout: Duration,
        rdma: Rdma,
        quic: Quic,
        quic_trust: QuicTrust,
        quic_identity: Option<Identity>,
        compression: Compression,
        durable: bool,
        posix: bool,
        transfer: u32,
        referrals: Referrals,
        domain_controller: Option<ServerName>,
        addresses: Vec<ServerAddresses>,
        app_instance: Option<AppInstance>,
        witness: bool,
        capture: Option<Capture>,
        workstation: String,
        #[doc(hidden)]
        rdma_from: u32,
        #[doc(hidden)]
        ambient: Arc<dyn Ambient>,
    }

    /// Returns the beginning of the URLs of servers that are reached so.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.quic == Quic::Required { OVER_QUIC } else { OVER_ANY }
    }

    /// The dialects that are offered, the oldest first.
    pub(crate) fn dialects(&self) -> Vec<frevo_proto::Dialect> {
        let within = |dialect: &Dialect| (self.oldest..=self.newest).contains(dialect);
        Dialect::ALL.into_iter().filter(within).map(Dialect::wire).collect()
    }
}
