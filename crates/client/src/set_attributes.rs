//! Times and attributes of files, set together.

use std::time::SystemTime;

use frevo_wire::codec::Writer;
use frevo_wire::command::query_info::InfoType;
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::FileInfoClass;

use crate::error::Result;
use crate::file::File;
use crate::lookup::{close_call, look_at};
use crate::metadata::file_time;
use crate::share::{Replay, Share};

/// What is to be set of a file; what is not given stays as it is (MS-FSCC 2.4.7).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Basic {
    /// When it was made.
    pub created: Option<SystemTime>,
    /// When it was read last.
    pub accessed: Option<SystemTime>,
    /// When its data was changed last.
    pub modified: Option<SystemTime>,
    /// All of its DOS attributes.
    pub attributes: Option<FileAttributes>,
}

impl Basic {
    /// FileBasicInformation. No attributes at all are FILE_ATTRIBUTE_NORMAL: zero leaves
    /// them alone.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let ticks = |time: Option<SystemTime>| time.map_or(0, |time| file_time(time).0);
        let attributes = self.attributes.map_or(0, |attributes| {
            if attributes.is_empty() { FileAttributes::NORMAL.0 } else { attributes.0 }
        });
        let mut data = Vec::with_capacity(40);
        let mut w = Writer::new(&mut data);
        w.u64(ticks(self.created)).u64(ticks(self.accessed)).u64(ticks(self.modified));
        w.u64(0).u32(attributes).u32(0);
        data
    }
}

impl File {
    /// Sets what is given.
    ///
    /// # Errors
    /// What the server says.
    pub async fn set_all(&self, basic: &Basic) -> Result<()> {
        self.set_info(FileInfoClass::BASIC, "set the attributes of", basic.encode()).await
    }
}

impl Share {
    /// Sets what is given of `path`. A symbolic link is not followed.
    ///
    /// # Errors
    /// What the server says.
    pub async fn set_all(&self, path: &str, basic: &Basic) -> Result<()> {
        let data = basic.encode();
        let ask = look_at(AccessMask::WRITE_ATTRIBUTES);
        let class = FileInfoClass::BASIC.0;
        let calls = || {
            let set = crate::file::set(InfoType::FILE, class, 0, FileId::ALL_ONES, &data);
            vec![set, close_call()]
        };
        let operation = "set the attributes of";
        self.chain(operation, path, Replay::Idempotent, &ask, &[], calls).await?;
        Ok(())
    }
}
