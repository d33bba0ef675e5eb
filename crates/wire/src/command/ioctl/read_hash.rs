//! SRV_READ_HASH, MS-SMB2 2.2.31.2: BranchCache content information.

use crate::codec::{Parsed, Reader, Writer};
use crate::open_enum;

open_enum! {
    /// HashType.
    HashType(u32) {
        /// Branch caching.
        PEER_DIST = 1,
    }
}

open_enum! {
    /// HashVersion.
    HashVersion(u32) {
        /// Version 1.
        V1 = 1,
        /// Version 2 (3.x).
        V2 = 2,
    }
}

open_enum! {
    /// HashRetrievalType: the meaning of Offset.
    HashRetrievalType(u32) {
        /// Offset in the Content Information File.
        HASH_BASED = 1,
        /// Offset in the file (3.x).
        FILE_BASED = 2,
    }
}

/// Input of SRV_READ_HASH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Use of the hash.
    pub hash_type: HashType,
    /// Version of the hash.
    pub hash_version: HashVersion,
    /// Meaning of `offset`.
    pub hash_retrieval_type: HashRetrievalType,
    /// Length in bytes, of hash data or of the file.
    pub length: u32,
    /// First byte, see `hash_retrieval_type`.
    pub offset: u64,
}

impl Request {
    /// Parses the input buffer of the FSCTL.
    pub fn parse(input: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(input);
        Ok(Self {
            hash_type: HashType(r.u32("HashType")?),
            hash_version: HashVersion(r.u32("HashVersion")?),
            hash_retrieval_type: HashRetrievalType(r.u32("HashRetrievalType")?),
            length: r.u32("Length")?,
            offset: r.u64("Offset")?,
        })
    }

    /// Appends the input buffer to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.hash_type.0).u32(self.hash_version.0).u32(self.hash_retrieval_type.0);
        w.u32(self.length).u64(self.offset);
    }
}
