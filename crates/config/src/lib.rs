//! The configuration file, `frevo.toml`.
//!
//! Reading it is strict: a key that is not known is an error that names the
//! nearest one, so that a typing slip never leaves a server more open than its
//! owner thinks. Text in, values out: opening what the file names is for the
//! caller. `docs/configuration.md` lists every key.

mod audit;
mod build;
mod fault;
mod idmap;
mod interface;
mod kerberos;
mod listen;
mod names;
mod nearest;
mod reading;
mod recycle;
mod rpc;
mod schema;
mod server_limits;
mod share;
mod traces;
mod values;

pub use crate::base::limits::CONFIG_FILE_BYTES;
#[doc(hidden)]
pub use crate::base::limits::NETWORK_SHARES;
#[doc(hidden)]
pub use crate::shares::folders::{Look, accept_folder, claim_folder, look_at_folder};
#[doc(hidden)]
pub use crate::shares::user_folders::UserFolders;
pub use audit::AuditSection;
pub use build::{Identities, open_share};
pub use fault::Fault;
pub use folders::FolderFault;
pub use idmap::{IdmapSection, Numbers};
pub use interface::{InterfaceSection, Speed};
pub use kerberos::{KerberosSection, Realm};
pub use listen::{Listen, ListenOn};
pub use names::{AccountName, MachineSid, ServerName, ShareName, Who};
pub use nearest::nearest;
pub use rpc::RpcSection;
pub use schema::{AdminSection, Config, ServerSection, UserSection, keys};
pub use server_limits::LimitsSection;
pub use share::ShareSection;
pub use traces::{Endpoint, Fraction, TracesSection};
pub use values::{
    AuditedOperation, CipherName, ConfinementChoice, DialectName, DiscoveryChoice,
    EncryptionChoice, EncryptionTypeName, LogFormat, Mode, NtAclsChoice, PacChoice, RunAsChoice,
    SigningAlgorithmName, SigningChoice, Size, StreamsChoice,
};

mod folders;
#[cfg(test)]
mod tests;
