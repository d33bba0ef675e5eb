//! The part of the configuration that the protocol needs. Immutable: a reload makes a new one,
//! which new connections see.

use std::net::IpAddr;
use std::sync::Arc;

use frevo_crypto::{Cipher, SigningAlgorithm};
use frevo_proto::Dialect;
use frevo_wire::dtyp::{Guid, Sid};

use crate::access::administrators::AdministratorRules;
use crate::access::id_map::IdMap;
use crate::access::principals;
use crate::access::rate_rules::{RateRule, StoragePolicy};
use crate::base::limits::{IDLE_SESSION_MINUTES, MAX_IO, MAX_TRANSACT};
use crate::shares::target_servers::Sites;

/// The use of sealing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    /// Unencrypted access is refused (EncryptData and RejectUnencryptedAccess).
    Required,
    /// Clients may encrypt; shares may demand it.
    Offered,
    /// Encryption is not negotiated.
    Off,
}

/// The use of signing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signing {
    /// RequireMessageSigning.
    Required,
    /// When the client asks for it.
    Offered,
}

/// The users that may list accounts and members of groups over SAMR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountListing {
    /// Members of the group Administrators.
    Administrators,
    /// Every user who has logged on.
    Users,
}

/// Facts that clients are told of one of the server's addresses, in place of those that the kernel
/// has about its interface. `None` keeps the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceOverride {
    /// The address. It is told only if the server has it.
    pub address: IpAddr,
    /// Speed of the link, bits per second.
    pub speed: Option<u64>,
    /// True if several connections to the address make transfers faster (receive side scaling).
    pub rss: Option<bool>,
    /// True if RDMA reaches the address.
    pub rdma: Option<bool>,
}

/// Settings of the protocol.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name that clients see in NTLM and RPC, at most 15 characters, upper case.
    pub server_name: String,
    /// Text that clients see beside the name.
    pub comment: String,
    /// The workgroup that clients see the server in.
    pub workgroup: String,
    /// ServerGuid: stable across restarts.
    pub server_guid: Guid,
    /// The SID of the machine, below which the accounts have theirs. None: made of `server_guid`.
    pub machine_sid: Option<Sid>,
    /// An account also has the SIDs of the host's user of its name and of that user's groups, as
    /// under Samba, on every share.
    pub has_host_sids: bool,
    /// Numbers of the host for users and groups of domains.
    pub id_map: Arc<IdMap>,
    /// Lowest dialect that is negotiated.
    pub min_dialect: Dialect,
    /// Highest dialect that is negotiated.
    pub max_dialect: Dialect,
    /// Sealing.
    pub encryption: Encryption,
    /// Signing.
    pub signing: Signing,
    /// A connection over a transport that encrypts by itself is neither encrypted nor signed again,
    /// if the client wishes it: DisableEncryptionOverSecureTransport. TCP and SMB Direct are none.
    pub transport_security: bool,
    /// Pipes are opened over QUIC, too: AllowNamedPipeAccessOverQUIC.
    pub quic_pipes: bool,
    /// Ciphers, best first.
    pub ciphers: Vec<Cipher>,
    /// Signing algorithms of 3.1.1, best first.
    pub signing_algorithms: Vec<SigningAlgorithm>,
    /// MaxReadSize and MaxWriteSize, bytes.
    pub max_io: u32,
    /// MaxTransactSize, bytes.
    pub max_transact: u32,
    /// False refuses NTLM: clients log on by Kerberos only.
    pub ntlm: bool,
    /// Short and DNS names of the domains whose users log on by NTLM too, which a domain controller
    /// judges; the first is the short name of the server's own domain. No account of the server is
    /// meant by a name of such a domain.
    pub passed_on: Vec<String>,
    /// Realms whose users are the accounts of the same names. Empty: a ticket needs a PAC, and its
    /// user is one of a domain.
    pub realms: Vec<String>,
    /// An NTLM message integrity code is demanded from every client.
    pub require_mic: bool,
    /// Model that macOS is told, by which it chooses the server's icon.
    pub model: String,
    /// The POSIX extensions are negotiated: some share has them.
    pub posix: bool,
    /// Names by which clients may address this server in MsvAvTargetName; empty: any.
    pub target_names: Vec<String>,
    /// A session may authenticate anew without an account, and keeps its Opens.
    pub anonymous: bool,
    /// Clients whose name no account has become guests, where a share lets guests in; without it only
    /// anonymous clients do, and those that call themselves "guest".
    pub unknown_users_are_guests: bool,
    /// The users and groups that administer the server.
    pub administrators: AdministratorRules,
    /// The users who may list accounts.
    pub account_listing: AccountListing,
    /// Facts that clients are told of some addresses of the server.
    pub interfaces: Vec<InterfaceOverride>,
    /// The sites of clients and of targets in namespaces.
    pub sites: Sites,
    /// Minutes after which a session that has nothing open and asks for nothing is ended;
    /// 0: never.
    pub idle_session_minutes: u32,
    /// Limits of rate for users, shares and networks.
    pub rates: Vec<RateRule>,
    /// Policies of storage quality of service, MS-SQOS; without any the server has none of it.
    pub storage_policies: Vec<StoragePolicy>,
    /// The control codes by which smbtorture makes the server misbehave work. Never set by a
    /// configuration.
    #[cfg(feature = "test-hooks")]
    pub test_hooks: bool,
}

impl Settings {
    /// The SID of the machine in force.
    pub fn sid(&self) -> Sid {
        self.machine_sid.unwrap_or_else(|| principals::machine_sid(self.server_guid))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server_name: String::from("FREVO"),
            comment: String::from("Frevo"),
            workgroup: String::from("WORKGROUP"),
            server_guid: Guid::default(),
            machine_sid: None,
            has_host_sids: false,
            id_map: Arc::default(),
            min_dialect: Dialect::SMB_3_0,
            max_dialect: Dialect::SMB_3_1_1,
            encryption: Encryption::Required,
            signing: Signing::Required,
            // Windows: Windows 11 and Windows Server 2022 set it (MS-SMB2 3.1.3, note 95).
            transport_security: true,
            // Windows: the same (MS-SMB2 3.3.3, note 231).
            quic_pipes: false,
            ciphers: vec![
                Cipher::Aes128Gcm,
                Cipher::Aes256Gcm,
                Cipher::Aes128Ccm,
                Cipher::Aes256Ccm,
            ],
            signing_algorithms: vec![
                SigningAlgorithm::AesGmac,
                SigningAlgorithm::AesCmac,
                SigningAlgorithm::HmacSha256,
            ],
            max_io: MAX_IO,
            max_transact: MAX_TRANSACT,
            ntlm: true,
            passed_on: Vec::new(),
            realms: Vec::new(),
            require_mic: false,
            model: String::from("RackMac"),
            posix: true,
            target_names: Vec::new(),
            anonymous: false,
            unknown_users_are_guests: false,
            administrators: AdministratorRules::default(),
            account_listing: AccountListing::Administrators,
            interfaces: Vec::new(),
            sites: Sites::default(),
            idle_session_minutes: IDLE_SESSION_MINUTES,
            rates: Vec::new(),
            storage_policies: Vec::new(),
            #[cfg(feature = "test-hooks")]
            test_hooks: false,
        }
    }
}
