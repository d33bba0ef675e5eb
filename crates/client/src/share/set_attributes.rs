//! Setting times and attributes of files.

use std::time::SystemTime;

use frevo_wire::codec::Writer;
use frevo_wire::command::query_info::InfoType;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::FileInfoClass;

use crate::error::Result;
use crate::metadata::file_time;
use crate::share::compound::{close_call, look_at};
use crate::share::{Replay, Share};
use crate::types::FileAttributes;

/// Times and attributes to set on a file; those that are `None` stay (MS-FSCC 2.4.7).
///
/// ```no_run
/// # async fn example(share: &frevo_client::Share) -> frevo_client::Result<()> {
/// use frevo_client::{FileAttributes, SetMetadata};
///
/// let hide = SetMetadata::new().attributes(FileAttributes::HIDDEN);
/// share.set_metadata("notes.txt", &hide).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetMetadata {
    /// The time of creation.
    pub created: Option<SystemTime>,
    /// The time of the last read.
    pub accessed: Option<SystemTime>,
    /// The time of the last write.
    pub modified: Option<SystemTime>,
    /// The DOS attributes; they replace all that the file has.
    pub attributes: Option<FileAttributes>,
}

impl SetMetadata {
    /// Returns changes that set nothing.
    pub const fn new() -> Self {
        Self { created: None, accessed: None, modified: None, attributes: None }
    }

    /// Sets the time of creation.
    #[must_use]
    pub fn created(self, time: impl Into<Option<SystemTime>>) -> Self {
        Self { created: time.into(), ..self }
    }

    /// Sets the time of the last read.
    #[must_use]
    pub fn accessed(self, time: impl Into<Option<SystemTime>>) -> Self {
        Self { accessed: time.into(), ..self }
    }

    /// Sets the time of the last write.
    #[must_use]
    pub fn modified(self, time: impl Into<Option<SystemTime>>) -> Self {
        Self { modified: time.into(), ..self }
    }

    /// Sets the DOS attributes; they replace all that the file has.
    #[must_use]
    pub fn attributes(self, attributes: impl Into<Option<FileAttributes>>) -> Self {
        Self { attributes: attributes.into(), ..self }
    }

    /// FileBasicInformation. An empty set of attributes is sent as FILE_ATTRIBUTE_NORMAL:
    /// zero means that they stay.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let ticks = |time: Option<SystemTime>| time.map_or(0, |time| file_time(time).0);
        let attributes = self.attributes.map_or(0, |attributes| {
            if attributes.is_empty() { FileAttributes::NORMAL } else { attributes }.bits()
        });
        let mut data = Vec::with_capacity(40);
        let mut w = Writer::new(&mut data);
        w.u64(ticks(self.created)).u64(ticks(self.accessed)).u64(ticks(self.modified));
        w.u64(0).u32(attributes).u32(0);
        data
    }
}

impl Share {
    /// Sets times and attributes of `path`. A symbolic link is not followed.
    ///
    /// # Errors
    /// Fails if `path` does not exist, or the server refuses.
    pub async fn set_metadata(&self, path: &str, changes: &SetMetadata) -> Result<()> {
        let data = changes.encode();
        let ask = look_at(AccessMask::WRITE_ATTRIBUTES);
        let class = FileInfoClass::BASIC.0;
        let calls = || {
            let set =
                crate::open::info::set_call(InfoType::FILE, class, 0, FileId::ALL_ONES, &data);
            vec![set, close_call()]
        };
        let operation = "set the attributes of";
        self.chain(operation, path, Replay::Settled, &ask, &[], calls).await?;
        Ok(())
    }
}
