//! What is asked of a file before another is put in its place.

use frevo_wire::Status;
use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::query_info::InfoType;
use frevo_wire::dtyp::{AccessMask, SecurityDescriptor, SecurityInformation};
use frevo_wire::file_id::FileId;

use crate::create::{Ask, Opened};
use crate::error::{During, Result};
use crate::file::{output, query};
use crate::lookup::{close_call, missing};
use crate::metadata::Metadata;
use crate::share::{Replay, Share};

/// Room for a descriptor.
const ROOM: u32 = 65_536;

/// Answers to who asks for an access list where there is none, or none for him.
const NO_LIST: [Status; 5] = [
    Status::NOT_SUPPORTED,
    Status::INVALID_DEVICE_REQUEST,
    Status::INVALID_PARAMETER,
    Status::ACCESS_DENIED,
    Status::BUFFER_TOO_SMALL,
];

impl Share {
    /// What the file `path` is, and its access list where the server tells it; it is opened
    /// with `access`, so that whoever may not have that is told so. A link is followed.
    ///
    /// # Errors
    /// FILE_IS_A_DIRECTORY of what is none, and what else the server says.
    pub async fn look_before_replacing(
        &self,
        path: &str,
        access: AccessMask,
    ) -> Result<(Metadata, Option<SecurityDescriptor>)> {
        const OPERATION: &str = "replace";
        let mut ask = Ask::existing(
            access
                | AccessMask::READ_ATTRIBUTES
                | AccessMask::READ_CONTROL
                | AccessMask::SYNCHRONIZE,
        );
        ask.options |= CreateOptions::NON_DIRECTORY_FILE;
        let which = SecurityInformation::DACL.0;
        let calls = || {
            let list = query(InfoType::SECURITY, 0, which, FileId::ALL_ONES, &[], ROOM);
            vec![list, close_call()]
        };
        let answers =
            self.chain(OPERATION, path, Replay::Idempotent, &ask, &NO_LIST, calls).await?;
        let url = self.url(path);
        let [opened, list, ..] = &*answers.messages else { return Err(missing(OPERATION, url)) };
        let opened = Opened::parse(opened).during(OPERATION, &url)?;
        let metadata = answers.of_there(Metadata::from(&opened));
        if list.header.status != Status::SUCCESS {
            return Ok((metadata, None));
        }
        let bytes = output(list).during(OPERATION, &url)?;
        let list = SecurityDescriptor::parse(bytes).during(OPERATION, &url)?;
        Ok((metadata, Some(list)))
    }
}
