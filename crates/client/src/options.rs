//! What a client wants of its servers.

use std::sync::Arc;
use std::time::Duration;

pub use frevo_crypto::{Cipher, SigningAlgorithm};
use frevo_proto::Dialect;

use crate::ambient::{Ambient, Host};
use crate::dial::ServerName;
use crate::limits;

/// Whether requests are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encryption {
    /// When the server asks for it, for the session or for a share.
    #[default]
    AsServerAsks,
    /// Always. A server that cannot is refused; one that does not ask for it
    /// is spoken to sealed all the same, which the protocol lets every client do.
    Required,
}

/// Whether requests that are not encrypted are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Signing {
    /// Always, and so must the answers be.
    #[default]
    Always,
    /// When the server requires it. The logon, its proof of the password and what
    /// guards the negotiation are signed all the same; whoever sits on the way can
    /// change the rest, files and names, unseen.
    WhenAsked,
}

/// Where the referrals of DFS namespaces may lead. Whoever they lead to is logged on
/// to with the same name and password: it learns the name, and what proves that the
/// password is known (never the password).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Referrals {
    /// To any host, if the referral is proved to be the server's.
    #[default]
    Anywhere,
    /// To other shares of the same host.
    SameHost,
    /// Nowhere: what is not in the share is refused.
    Never,
}

/// Settings of a client. The default is what is best against a current server.
#[derive(Debug, Clone)]
pub struct Options {
    /// The oldest dialect accepted.
    pub oldest: Dialect,
    /// The newest dialect offered.
    pub newest: Dialect,
    /// Ciphers, the preferred one first.
    pub ciphers: Vec<Cipher>,
    /// Signing algorithms, the preferred one first.
    pub signing: Vec<SigningAlgorithm>,
    /// When to encrypt.
    pub encryption: Encryption,
    /// Whether the server is told that signing is required.
    pub require_signing: bool,
    /// When to sign. [`Self::require_signing`] means [`Signing::Always`].
    pub sign: Signing,
    /// Whether a logon that the server turns into a guest's is accepted: it has
    /// no keys, so nothing is signed or sealed.
    pub allow_guest: bool,
    /// Credits to hold on each connection: 64 KiB in flight for each.
    pub credits: u16,
    /// Connections of one session, where the server has several channels.
    pub channels: usize,
    /// How long an operation waits for a lost server.
    pub recover_for: Duration,
    /// How long one attempt to connect may take.
    pub connect_timeout: Duration,
    /// Ask for handles that survive a lost connection.
    pub durable: bool,
    /// Offer the POSIX extensions of SMB 3.1.1; [`crate::Share::speak_posix`] makes use of
    /// them.
    pub posix: bool,
    /// Largest READ or WRITE, bytes.
    pub transfer: u32,
    /// Whether links of DFS namespaces are followed.
    pub referrals: Referrals,
    /// A controller that knows of domains, if the names of domains do not lead to
    /// their controllers: it is asked who they are, and they for the roots of their
    /// DFS namespaces.
    pub domain_controller: Option<ServerName>,
    /// This machine's name, as the server's logs show it.
    pub workstation: String,
    /// Where the time of day and random bytes come from.
    pub ambient: Arc<dyn Ambient>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            oldest: Dialect::SMB_3_0,
            newest: Dialect::SMB_3_1_1,
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
            sign: Signing::Always,
            allow_guest: false,
            credits: limits::CREDITS,
            channels: 1,
            recover_for: limits::RECOVER_FOR,
            connect_timeout: limits::CONNECT_TIMEOUT,
            durable: true,
            posix: false,
            transfer: limits::TRANSFER_MAX,
            referrals: Referrals::Anywhere,
            domain_controller: None,
            workstation: String::from("FREVO"),
            ambient: Arc::new(Host),
        }
    }
}

impl Options {
    /// The dialects offered, oldest first.
    pub(crate) fn dialects(&self) -> Vec<Dialect> {
        const ALL: [Dialect; 5] = [
            Dialect::SMB_2_0_2,
            Dialect::SMB_2_1,
            Dialect::SMB_3_0,
            Dialect::SMB_3_0_2,
            Dialect::SMB_3_1_1,
        ];
        let within = |dialect: &Dialect| (self.oldest.0..=self.newest.0).contains(&dialect.0);
        ALL.into_iter().filter(within).collect()
    }
}
