//! Looking at a file before another takes its place.

use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::query_info::InfoType;
use frevo_wire::dtyp::{self, AccessMask as Rights, SecurityInformation};
use frevo_wire::file_id::FileId;

use crate::Status;
use crate::error::{During, Result};
use crate::metadata::Metadata;
use crate::open::create::{Ask, Opened};
use crate::open::info::{output, query};
use crate::share::compound::{close_call, missing};
use crate::share::{Replay, Share};
use crate::types::{AccessMask, SecurityDescriptor};

/// Space for a security descriptor, bytes.
const DESCRIPTOR_MAX: u32 = 65_536;

/// The statuses of a file whose access list does not exist or may not be read.
const NO_LIST: [Status; 7] = [
    Status::NOT_SUPPORTED,
    Status::NOT_IMPLEMENTED,
    Status::INVALID_INFO_CLASS,
    Status::INVALID_DEVICE_REQUEST,
    Status::INVALID_PARAMETER,
    Status::ACCESS_DENIED,
    Status::BUFFER_TOO_SMALL,
];

impl Share {
    /// Returns the metadata of the file `path`, and its access list if the user may read it.
    /// The file is opened with `access`: a user without these rights is refused. A symbolic
    /// link is followed.
    ///
    /// # Errors
    /// Fails with FILE_IS_A_DIRECTORY if `path` is a directory, and if the user does not
    /// have `access`.
    #[doc(hidden)]
    pub async fn look_before_replacing(
        &self,
        path: &str,
        access: AccessMask,
    ) -> Result<(Metadata, Option<SecurityDescriptor>)> {
        const OPERATION: &str = "replace";
        let mut ask = Ask::existing(
            access.wire() | Rights::READ_ATTRIBUTES | Rights::READ_CONTROL | Rights::SYNCHRONIZE,
        );
        ask.options |= CreateOptions::NON_DIRECTORY_FILE;
        let which = SecurityInformation::DACL.0;
        let calls = || {
            let list = query(InfoType::SECURITY, 0, which, FileId::ALL_ONES, &[], DESCRIPTOR_MAX);
            vec![list, close_call()]
        };
        let answers =
            self.chain(OPERATION, path, Replay::Idempotent, &ask, &NO_LIST, calls).await?;
        let url = self.url(path);
        let [opened, list, ..] = &*answers.messages else { return Err(missing(OPERATION, url)) };
        let opened = Opened::parse(opened).during(OPERATION, &url)?;
        let metadata = answers.found(Metadata::from(&opened));
        if list.status() != Status::SUCCESS {
            return Ok((metadata, None));
        }
        let bytes = output(list).during(OPERATION, &url)?;
        let list = dtyp::SecurityDescriptor::parse(bytes).during(OPERATION, &url)?;
        Ok((metadata, Some(SecurityDescriptor::of_wire(list))))
    }
}
