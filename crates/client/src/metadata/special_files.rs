//! Special files: the questions that their metadata leaves open.

use frevo_wire::fscc::reparse::ReparseTag;

use crate::metadata::posix::{PosixFileType, Special};
use crate::metadata::{FileType, Metadata};

/// The question that remains about a file.
pub(crate) enum Question {
    /// The reparse data, which has the kind and the numbers.
    Reparse,
    /// The numbers of a known device.
    Attribute(fn(u32, u32) -> Special),
}

impl Question {
    pub(crate) fn about(metadata: &Metadata) -> Option<Self> {
        let tag = match metadata.file_type() {
            FileType::Reparse(tag) => ReparseTag(tag),
            FileType::File | FileType::Directory => ReparseTag(0),
        };
        match (metadata.posix().map(|posix| posix.kind), tag) {
            (_, ReparseTag::LX_CHR) => Some(Self::Attribute(Special::CharDevice)),
            (_, ReparseTag::LX_BLK) => Some(Self::Attribute(Special::BlockDevice)),
            (Some(PosixFileType::CharDevice | PosixFileType::BlockDevice), _)
            | (None | Some(PosixFileType::Plain), ReparseTag::NFS) => Some(Self::Reparse),
            _ => None,
        }
    }
}

impl Metadata {
    /// Returns true if `Share::look_into` would find out more.
    #[doc(hidden)]
    pub fn is_worth_a_look(&self) -> bool {
        self.special.is_none() && Question::about(self).is_some()
    }
}
