//! The nodes of a cluster compared: reports that each node keeps in etcd, and `frevo cluster check`.

mod able;
mod certificate;
mod check;
mod dialect;
mod domain_account;
mod domain_check;
mod judged;
mod namespace_entries;
mod namespaces;
mod options;
mod report;
mod storage;
mod vault;

pub(crate) use check::{check, findings, look_at_endpoints};
pub(crate) use domain_account::{ClusterKey, DomainAccount, Unreadable};
pub(crate) use domain_check::{OfRealm, of_accounts};
pub(crate) use judged::Judged;
pub(crate) use namespace_entries::{Entries, is_below, overlaps};
pub(crate) use namespaces::{KeptNamespaces, NamespaceStore, NotKept};
pub(crate) use options::options;
pub(crate) use report::Report;
pub(crate) use vault::{Kept, Vault, unreachable};
