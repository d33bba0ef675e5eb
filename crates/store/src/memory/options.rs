//! Options of a file system in memory.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use frevo_wire::dtyp::FileTime;

use crate::vfs::{QuotaState, UserQuota};

/// The source of the time.
pub type Clock = Arc<dyn Fn() -> FileTime + Send + Sync>;

/// Options of a [`MemoryVfs`].
#[derive(Debug, Clone)]
pub struct MemoryOptions {
    /// Bytes that the volume holds; a part of an allocation unit does not count.
    pub capacity: u64,
    /// Volume serial number. File keys contain it, so two file systems of one server need different
    /// numbers.
    pub serial: u32,
    /// Refuses to create, change and remove anything.
    pub read_only: bool,
    /// Shows names that begin with a period as HIDDEN.
    pub hide_dot_files: bool,
    /// Name of the file system that clients are told.
    pub file_system_name: String,
    /// The first quotas, by user number. Nothing is counted: files here have no owners.
    pub quotas: Option<(QuotaState, Vec<UserQuota>)>,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            capacity: 64 << 20,
            serial: 0x4672_6576,
            read_only: false,
            hide_dot_files: true,
            file_system_name: String::from("NTFS"),
            quotas: None,
        }
    }
}
