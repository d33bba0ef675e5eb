//! File system control codes and information classes, MS-FSCC 2.
//!
//! The contents of QUERY_DIRECTORY, QUERY_INFO, SET_INFO and IOCTL. Structures can be parsed and
//! encoded, so that server and client cannot disagree.

mod class;
pub mod directory;
pub mod ea;
mod fixed;
pub mod fsctl;
pub mod layout;
mod list;
pub mod name;
pub mod notify;
pub mod posix;
pub mod query;
pub mod quota;
pub mod reparse;
pub mod reserved;
pub mod set;
pub mod upcase;
mod upcase_table;
pub mod volume;
pub mod wildcard;

pub use class::{FileInfoClass, FsInfoClass};
pub use directory::{DirectoryEntries, DirectoryEntry, DirectoryWriter};
pub use list::Pushed;
pub use name::{ShortName, WireName, utf16_len};
pub use upcase::{eq_ignore_case, fold_name, upcase, upcase_name};
pub use wildcard::Pattern;

#[cfg(test)]
mod tests;
