//! CHANGE_NOTIFY, MS-SMB2 2.2.35 and 2.2.36.

use crate::bit_set;
use crate::codec::{Parsed, Writer};
use crate::file_id::FileId;

bit_set! {
    /// Flags of the request.
    ChangeNotifyFlags(u16) {
        /// WATCH_TREE: everything below the directory, not only its own entries.
        WATCH_TREE = 0x0001,
    }
}

bit_set! {
    /// CompletionFilter: the kinds of changes to report.
    CompletionFilter(u32) {
        /// Names of files.
        FILE_NAME = 0x0000_0001,
        /// Names of directories.
        DIR_NAME = 0x0000_0002,
        /// Attributes.
        ATTRIBUTES = 0x0000_0004,
        /// Sizes.
        SIZE = 0x0000_0008,
        /// Times of last write.
        LAST_WRITE = 0x0000_0010,
        /// Times of last access.
        LAST_ACCESS = 0x0000_0020,
        /// Times of creation.
        CREATION = 0x0000_0040,
        /// Extended attributes.
        EA = 0x0000_0080,
        /// Security descriptors.
        SECURITY = 0x0000_0100,
        /// Streams added, removed or renamed.
        STREAM_NAME = 0x0000_0200,
        /// Sizes of streams.
        STREAM_SIZE = 0x0000_0400,
        /// Writes to streams.
        STREAM_WRITE = 0x0000_0800,
    }
}

/// MS-SMB2 2.2.35.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Depth of the watch.
    pub flags: ChangeNotifyFlags,
    /// Largest answer in bytes.
    pub output_buffer_length: u32,
    /// FileId of the directory's Open.
    pub file_id: FileId,
    /// The kinds of changes to report.
    pub completion_filter: CompletionFilter,
}

impl Request {
    /// Parses a whole message.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 32, "CHANGE_NOTIFY request StructureSize")?;
        let flags = ChangeNotifyFlags(r.u16("Flags")?);
        let output_buffer_length = r.u32("OutputBufferLength")?;
        let file_id = FileId::read(r)?;
        let completion_filter = CompletionFilter(r.u32("CompletionFilter")?);
        r.skip(4, "Reserved")?;
        Ok(Self { flags, output_buffer_length, file_id, completion_filter })
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(32).u16(self.flags.0).u32(self.output_buffer_length);
        self.file_id.encode(w);
        w.u32(self.completion_filter.0).u32(0);
    }
}

super::output_response! {
    /// MS-SMB2 2.2.36: FILE_NOTIFY_INFORMATION entries, MS-FSCC 2.7.1.
    Response, "CHANGE_NOTIFY response";
}
