//! Facts that the host of the Samba server adds to its smb.conf: files, PAM, and Samba itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use frevo_config::MachineSid;

use super::dfs_links::SambaLinks;
use super::pam::Pam;

/// Facts about a host. The default is a host of which nothing is known.
#[derive(Debug, Default)]
pub(super) struct HostFacts {
    /// Options, without blanks, that the host's Samba does not know and ignores.
    pub(super) ignored: BTreeSet<String>,
    /// The rules of PAM.
    pub(super) pam: Pam,
    /// The SID of the domain that the server is a member of.
    pub(super) domain_sid: Option<MachineSid>,
    /// The keytab that the smb.conf names, if it is here.
    pub(super) keytab: Option<PathBuf>,
    pub(super) user_map: UserMapFile,
    /// The host's name, which is the server's where the smb.conf has none.
    pub(super) name: Option<String>,
    /// The links of Samba in shares that are roots of DFS, by the names of their sections in lower case.
    pub(super) dfs_links: BTreeMap<String, SambaLinks>,
}

/// The file of `username map`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum UserMapFile {
    /// It can be used, or that is not known.
    #[default]
    Usable,
    /// It is not there; Samba goes on without it.
    Missing,
    /// Frevo would not start with it.
    Faulty(String),
}
