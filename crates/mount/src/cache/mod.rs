//! The data cache, as leases allow: R caches reads, W caches writes, H keeps a closed file open.

mod budget;
mod data;
mod failures;
mod file;
mod pages;

pub(crate) use budget::CacheBudget;
pub(crate) use failures::SeenFailures;
pub(crate) use file::{BeforeOpen, FileCache, ReadAhead};
