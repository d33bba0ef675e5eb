//! Values that keys and flags can have.

use std::fmt;
use std::str::FromStr;

use frevo_crypto::{Cipher, SigningAlgorithm};
use frevo_posix::SnapshotFolders;
use frevo_proto::Dialect;
use serde::{Deserialize, Deserializer, de};

/// A value that is one of a few words.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident: $what:literal {
        $($(#[$variant_meta:meta])* $variant:ident = $word:literal),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)*
        }

        impl $name {
            /// All words, as they are written.
            pub const WORDS: &'static [&'static str] = &[$($word),*];

            /// Returns the word in the configuration.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(format!("{} must be one of {}", $what, Self::WORDS.join(", "))),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(|_| de::Error::unknown_variant(&text, Self::WORDS))
            }
        }
    };
}

words! {
    /// Those who have a limit of rate each on their own.
    EachChoice: "each" {
        /// Each account.
        User = "user",
        /// Each session.
        Session = "session",
        /// Each address of clients.
        Address = "address",
    }
}

words! {
    /// The certificates that clients need over QUIC.
    ClientCertificates: "client_certificates" {
        /// None.
        Off = "off",
        /// One that an authority of `client_ca` has signed.
        Required = "required",
    }
}

words! {
    /// The way by which the storage of a share refuses a node of a cluster.
    FenceChoice: "fence" {
        /// None: a node that was stopped can still write.
        None = "none",
        /// Ends the connection of a FUSE file system of this host.
        Fuse = "fuse",
        /// Ends the state of a client of an NFS server.
        Nfs = "nfs",
        /// Puts a client of CephFS on the blocklist.
        Ceph = "ceph",
        /// Takes a persistent reservation of a disk away.
        ScsiPr = "scsi-pr",
    }
}

words! {
    /// The way by which the server makes snapshots of a share.
    SnapshotProvider: "provider" {
        /// By what the folder is on.
        Auto = "auto",
        /// By btrfs: the folder is a subvolume.
        Btrfs = "btrfs",
        /// By ZFS: the folder is in a dataset.
        Zfs = "zfs",
        /// By LVM: the folder is on a thin volume.
        Lvm = "lvm",
    }
}

words! {
    /// The state of a namespace, a link or a target.
    StateChoice: "state" {
        /// In use.
        Online = "online",
        /// Not in use.
        Offline = "offline",
    }
}

words! {
    /// The order of a link's targets in referrals.
    OrderingChoice: "ordering" {
        /// Targets near the client first.
        Site = "site",
        /// By their priorities only.
        Priority = "priority",
        /// By chance.
        Random = "random",
    }
}

words! {
    /// The priority class of a target, MS-DFSC 3.2.5.5.
    PriorityChoice: "priority" {
        /// DfsGlobalHighPriorityClass
        GlobalHigh = "global-high",
        /// DfsSiteCostHighPriorityClass
        High = "high",
        /// DfsSiteCostNormalPriorityClass
        Normal = "normal",
        /// DfsSiteCostLowPriorityClass
        Low = "low",
        /// DfsGlobalLowPriorityClass
        GlobalLow = "global-low",
    }
}

words! {
    /// A dialect of SMB, with the first Windows that has it.
    DialectName: "a dialect" {
        /// Vista
        Smb202 = "2.0.2",
        /// Windows 7 and Server 2008 R2
        Smb21 = "2.1",
        /// Windows 8 and Server 2012
        Smb30 = "3.0",
        /// Windows 8.1 and Server 2012 R2
        Smb302 = "3.0.2",
        /// Windows 10 and up
        Smb311 = "3.1.1",
    }
}

impl From<DialectName> for Dialect {
    fn from(name: DialectName) -> Self {
        match name {
            DialectName::Smb202 => Self::SMB_2_0_2,
            DialectName::Smb21 => Self::SMB_2_1,
            DialectName::Smb30 => Self::SMB_3_0,
            DialectName::Smb302 => Self::SMB_3_0_2,
            DialectName::Smb311 => Self::SMB_3_1_1,
        }
    }
}

words! {
    /// The use of sealing.
    EncryptionChoice: "encryption" {
        /// Clients that do not encrypt are refused.
        Required = "required",
        /// Clients that ask for it get it.
        Offered = "offered",
        /// Not to be had.
        Off = "off",
    }
}

words! {
    /// An encryption type of Kerberos, best first, as krb5.conf names it.
    EncryptionTypeName: "an encryption type" {
        /// RFC 8009
        Aes256Sha2 = "aes256-cts-hmac-sha384-192",
        /// RFC 8009
        Aes128Sha2 = "aes128-cts-hmac-sha256-128",
        /// RFC 3962
        Aes256Sha1 = "aes256-cts-hmac-sha1-96",
        /// RFC 3962
        Aes128Sha1 = "aes128-cts-hmac-sha1-96",
        /// RFC 4757; broken
        Rc4 = "rc4-hmac",
    }
}

words! {
    /// The demands on the PAC of a ticket.
    PacChoice: "pac" {
        /// A ticket without the user's SIDs is refused.
        Required = "required",
        /// A wrong PAC is refused; a ticket without one is accepted.
        Checked = "checked",
        /// The PAC is not read.
        Ignored = "ignored",
    }
}

words! {
    /// The users that may list accounts.
    AccountListingChoice: "account_listing" {
        /// Members of the group Administrators.
        Administrators = "administrators",
        /// Every user who has logged on.
        Users = "users",
    }
}

words! {
    /// The announcement of the server on the local network.
    DiscoveryChoice: "discovery" {
        /// Over mDNS and WS-Discovery.
        On = "on",
        /// Never.
        Off = "off",
    }
}

words! {
    /// When the server gives up the rights that it does not need.
    ConfinementChoice: "confinement" {
        /// Confinement as far as the kernel has it; for the rest there is a warning.
        On = "on",
        /// Full confinement, or the server does not start.
        Required = "required",
        /// Never.
        Off = "off",
    }
}

words! {
    /// Where named streams are kept.
    StreamsChoice: "streams" {
        /// In extended attributes, as Samba's streams_xattr does; large streams in the folder
        /// `.frevo-streams`.
        Xattr = "xattr",
        /// All in the folder `.frevo-streams`.
        Folder = "folder",
        /// Nowhere: there are none.
        Off = "off",
    }
}

words! {
    /// The data of READs that is sent compressed.
    CompressChoice: "compress" {
        /// None.
        Off = "off",
        /// The data of READs which ask for it.
        Asked = "asked",
        /// The data of READs which ask for it, and clients are told to ask.
        All = "all",
    }
}

words! {
    /// Where security descriptors of clients go.
    NtAclsChoice: "nt_acls" {
        /// Into an extended attribute, as Samba's acl_xattr does.
        Xattr = "xattr",
        /// Into the permission bits, as far as they can say it.
        Posix = "posix",
        /// Nowhere: they cannot be set.
        Off = "off",
    }
}

words! {
    /// A moment at which a file is scanned for viruses.
    ScanTime: "when" {
        /// When it is opened to be read.
        Open = "open",
        /// When a handle closes that has changed it.
        Close = "close",
    }
}

words! {
    /// The fate of a file with a virus.
    FoundChoice: "found" {
        /// It stays, and is not opened to be read.
        Deny = "deny",
        /// It is moved into a folder outside of the share.
        Quarantine = "quarantine",
        /// Its name gets another end.
        Rename = "rename",
    }
}

words! {
    /// The fate of an open of a file that could not be scanned.
    UnscannedChoice: "unscanned" {
        /// It succeeds.
        Allow = "allow",
        /// It is refused.
        Deny = "deny",
    }
}

words! {
    /// The schema of a directory of accounts.
    LdapSchemaChoice: "schema" {
        /// Samba's: sambaSamAccount, with groups of RFC 2307 or groupOfNames.
        Samba = "samba",
        /// lldap's: person and groupOfUniqueNames.
        Lldap = "lldap",
    }
}

words! {
    /// The user of the host as which files are used.
    RunAsChoice: "run_as" {
        /// The user that the server runs as.
        Server = "server",
        /// The user of the host called like the account that has logged on.
        User = "user",
    }
}

words! {
    /// The answer to a client whose name no account has.
    UnknownUsersChoice: "unknown_users" {
        /// Its logon is refused.
        Refuse = "refuse",
        /// It becomes a guest, where a share lets guests in.
        Guest = "guest",
    }
}

words! {
    /// The use of signing.
    SigningChoice: "signing" {
        /// Always.
        Required = "required",
        /// When the client asks for it.
        Offered = "offered",
    }
}

words! {
    /// A cipher, the name as clients negotiate it.
    CipherName: "a cipher" {
        /// AES-128-GCM
        Aes128Gcm = "aes-128-gcm",
        /// AES-256-GCM
        Aes256Gcm = "aes-256-gcm",
        /// AES-128-CCM
        Aes128Ccm = "aes-128-ccm",
        /// AES-256-CCM
        Aes256Ccm = "aes-256-ccm",
    }
}

words! {
    /// A signing algorithm, the name as clients negotiate it.
    SigningAlgorithmName: "a signing algorithm" {
        /// AES-GMAC
        AesGmac = "aes-gmac",
        /// AES-CMAC
        AesCmac = "aes-cmac",
        /// HMAC-SHA256
        HmacSha256 = "hmac-sha256",
    }
}

/// Makes values of the protocol of words that are called like them.
macro_rules! stand_for {
    ($($word:ident for $value:ident { $($variant:ident),* })*) => {
        $(impl From<$word> for $value {
            fn from(word: $word) -> Self {
                match word {
                    $($word::$variant => Self::$variant,)*
                }
            }
        })*
    };
}

stand_for! {
    CipherName for Cipher { Aes128Gcm, Aes256Gcm, Aes128Ccm, Aes256Ccm }
    SigningAlgorithmName for SigningAlgorithm { AesGmac, AesCmac, HmacSha256 }
}

words! {
    /// An operation on files that the audit log records.
    AuditedOperation: "an operation" {
        /// Opens.
        Open = "open",
        /// Files, folders and hard links that are made.
        Create = "create",
        /// Changes of data.
        Write = "write",
        /// Renames.
        Rename = "rename",
        /// Removals.
        Delete = "delete",
        /// Changes of who may do what.
        Acl = "acl",
        /// Times, attributes, extended attributes, reparse points, object IDs.
        Attributes = "attributes",
    }
}

words! {
    /// How log lines are written.
    LogFormat: "a log format" {
        /// Lines for people, on standard error.
        Text = "text",
        /// A JSON object a line, on standard error.
        Json = "json",
        /// To systemd's journal, with fields.
        Journald = "journald",
    }
}

/// A number of bytes: `8388608`, `"8M"`, `"8MiB"`, `"64K"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(end);
        let factor = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => Some(1),
            "k" | "kib" => Some(1 << 10),
            "m" | "mib" => Some(1 << 20),
            "g" | "gib" => Some(1 << 30),
            "t" | "tib" => Some(1 << 40),
            _ => None,
        };
        let bytes = factor.zip(digits.parse().ok()).and_then(|(f, n): (u64, u64)| n.checked_mul(f));
        bytes.map(Self).ok_or_else(|| format!("{text:?} is not a size such as 65536, 64K or 8M"))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Number::deserialize(deserializer)? {
            Number::Number(bytes) => Ok(Self(bytes)),
            Number::Text(text) => text.parse().map_err(de::Error::custom),
        }
    }
}

/// Permission bits: `0o644` or `"0644"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode(pub u32);

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("0o").unwrap_or(text);
        let mode = u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o7777);
        mode.map(Self).ok_or_else(|| format!("{text:?} is not permission bits, such as \"0644\""))
    }
}

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Number::deserialize(deserializer)? {
            Number::Number(bits) if bits <= 0o7777 => Ok(Self(bits as u32)),
            Number::Number(bits) => Err(de::Error::custom(format!(
                "{bits} is not permission bits; write them as 0o644 (with 0o) or \"0644\""
            ))),
            Number::Text(text) => text.parse().map_err(de::Error::custom),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number, or a text such as \"8M\" or \"0644\"")]
enum Number {
    Number(u64),
    Text(String),
}

/// Where snapshots are: a path of which one part has the time or a number in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPath(pub SnapshotFolders);

impl<'de> Deserialize<'de> for SnapshotPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_modes() {
        for (text, bytes) in [("0", 0), ("64K", 65_536), ("8 MiB", 8 << 20), ("1g", 1 << 30)] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for bad in ["", "M", "8X", "-1", "99999999999999999999", "99999999999999G"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
        for (text, bits) in [("0644", 0o644), ("755", 0o755), ("0o7777", 0o7777)] {
            assert_eq!(text.parse(), Ok(Mode(bits)), "{text}");
        }
        for bad in ["", "9", "rw", "010000"] {
            assert!(bad.parse::<Mode>().is_err(), "{bad}");
        }
    }

    #[test]
    fn words_come_back() {
        for word in DialectName::WORDS {
            assert_eq!(word.parse::<DialectName>().unwrap().as_str(), *word);
        }
        assert!("3.2".parse::<DialectName>().unwrap_err().contains("3.1.1"));
    }
}
