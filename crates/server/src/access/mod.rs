//! Users: who may log on, who they are here and on the host, and what they may reach.
//!
//! Principals and SIDs, rules and access lists of shares, maps of names and of numbers, users of the
//! host and of domains, logons of domains, Kerberos keys, and the delay of password guessing.
//!
//! It may touch `base` only. It knows no session and no file: it answers questions about names.

pub mod access_rules;
pub mod account_directory;
pub(crate) mod actor;
pub mod administrators;
pub mod domain_logons;
pub mod domain_names;
pub(crate) mod domain_users;
pub(crate) mod host_ids;
pub(crate) mod host_users;
pub mod id_map;
pub(crate) mod identity;
pub(crate) mod kerberos;
pub(crate) mod principals;
pub mod rate_rules;
pub mod share_access;
pub(crate) mod throttle;
pub mod user_map;
