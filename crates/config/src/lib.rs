//! The configuration file, `frevo.toml`: text in, values out.
//!
//! Reading it is strict: a key that is not known is an error that names the
//! nearest one, so that a typing slip never leaves a server more open than its
//! owner thinks. `docs/configuration.md` lists every key.
//!
//! The crate opens nothing that the file names, and knows no server. The command line makes the
//! parts of a server of the values (`configured`). Of `frevo-net` and `frevo-posix` it has only
//! values that texts stand for: networks of addresses, and the folders of snapshots; of
//! `frevo-snapshots` it has schedules.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

mod audit;
mod brake;
mod cluster;
mod cluster_words;
mod fault;
mod guests;
mod home;
mod idmap;
mod interface;
mod keep_deleted;
mod kerberos;
mod ldap;
pub mod limits;
mod listen;
mod many_links;
mod names;
mod namespace;
mod nearest;
mod parsed;
mod passwords;
mod quic;
mod rate;
mod reading;
mod recycle;
mod rpc;
mod scan;
mod schema;
mod sections;
mod server_limits;
mod share;
mod site;
mod snapshots;
mod storage_qos;
#[cfg(test)]
mod tests;
mod traces;
mod values;
mod worm;

pub use audit::AuditSection;
pub use brake::{BrakeChoice, BrakeSection};
pub use cluster::ClusterSection;
pub use cluster_words::{ClusterAddress, ClusterWord, EtcdUrl};
pub use fault::Fault;
pub use home::HomeSection;
pub use idmap::{IdmapSection, Numbers};
pub use interface::{InterfaceSection, Speed};
pub use keep_deleted::KeptDays;
pub use kerberos::{KerberosSection, Realm};
pub use ldap::{LdapSection, LdapUrl};
pub use listen::{Listen, ListenOn};
pub use many_links::without_links;
pub use names::{AccountName, MachineSid, ServerName, ShareName, Who};
pub use namespace::{LinkSection, NamespaceSection, TargetSection};
pub use nearest::nearest;
pub use passwords::PasswordsSection;
pub use quic::QuicSection;
pub use rate::RateSection;
pub use recycle::{BinFolder, RecycleSection};
pub use rpc::RpcSection;
pub use scan::{ScanSection, ScanService};
pub use schema::{AdminSection, Config, ServerSection, UserSection, keys};
pub use server_limits::LimitsSection;
pub use share::{ShareSection, USER};
pub use site::SiteSection;
pub use snapshots::{KeptSnapshots, SnapshotSchedule, Snapshots};
pub use storage_qos::{PolicyId, StorageQosSection};
pub use traces::{Endpoint, Fraction, TracesSection};
pub use values::{
    AccountListingChoice, AuditedOperation, CipherName, CompressChoice, ConfinementChoice,
    DialectName, DiscoveryChoice, EachChoice, EncryptionChoice, EncryptionTypeName, FenceChoice,
    FoundChoice, LdapSchemaChoice, LogFormat, Mode, NtAclsChoice, OrderingChoice, PacChoice,
    PriorityChoice, RunAsChoice, ScanTime, SigningAlgorithmName, SigningChoice, Size, SnapshotPath,
    SnapshotProvider, StateChoice, StreamsChoice, UnknownUsersChoice, UnscannedChoice,
};
pub use worm::{LongTime, WormSection};
