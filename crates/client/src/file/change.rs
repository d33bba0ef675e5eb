//! Setting times, attributes and the size of open files.

use std::time::SystemTime;

use frevo_wire::command::query_info::InfoType;
use frevo_wire::fscc::FileInfoClass;

use crate::Status;
use crate::connection::Call;
use crate::error::{Error, Result};
use crate::file::File;
use crate::metadata::Metadata;
use crate::open::info::set_call;
use crate::share::Replay;
use crate::share::lookup::{looks, seen, with_tag_of};
use crate::share::set_attributes::SetMetadata;

impl File {
    /// Sets the time of the last write.
    ///
    /// # Errors
    /// Fails if the file was not opened for writing, or the server refuses.
    pub async fn set_modified(&self, time: SystemTime) -> Result<()> {
        let times = SetMetadata::new().modified(time);
        self.set_info(FileInfoClass::BASIC, "set the times of", times.encode()).await
    }

    /// Sets times and attributes.
    ///
    /// # Errors
    /// Fails if the file was not opened for writing, or the server refuses.
    pub async fn set_metadata(&self, changes: &SetMetadata) -> Result<()> {
        self.set_info(FileInfoClass::BASIC, "set the attributes of", changes.encode()).await
    }

    /// Sets times and DOS attributes, and returns the metadata afterwards.
    ///
    /// # Errors
    /// Fails if the file was not opened for writing, or the server refuses.
    #[doc(hidden)]
    pub async fn change(&self, basic: &SetMetadata) -> Result<Metadata> {
        self.change_as(FileInfoClass::BASIC, "set the attributes of", &basic.encode()).await
    }

    /// Cuts the file or extends it with zeros, as [`Self::set_len`], and returns the metadata
    /// afterwards.
    ///
    /// # Errors
    /// Fails as [`Self::set_len`] does.
    #[doc(hidden)]
    pub async fn resize(&self, len: u64) -> Result<Metadata> {
        self.change_as(FileInfoClass::END_OF_FILE, "resize", &len.to_le_bytes()).await
    }

    async fn change_as(
        &self,
        class: FileInfoClass,
        operation: &'static str,
        data: &[u8],
    ) -> Result<Metadata> {
        let (open, posix) = (&self.open, self.open.is_posix());
        let make = |id| -> Vec<Call<'static>> {
            let mut all = vec![set_call(InfoType::FILE, class.0, 0, id, data)];
            all.extend(looks(posix));
            all
        };
        match open.ask_all(Replay::Idempotent, operation, &[], make).await {
            Ok(answers) => {
                let looked = answers.get(1..).unwrap_or_default();
                let found = seen(looked, posix);
                match found {
                    Ok(found) => {
                        let found = open.share.found(found, false);
                        Ok(with_tag_of(open, operation, found).await)
                    }
                    // The change succeeded; the server refused only the query in the same compound,
                    // so the query is sent again.
                    Err(_) => self.metadata().await,
                }
            }
            // MS-SMB2 3.3.5.2.10: the server refused the compound because a channel was lost. A
            // single SET_INFO may be repeated, so both requests are sent one by one.
            Err(error) if is_of_channel(&error) => {
                self.set_info(class, operation, data.to_vec()).await?;
                self.metadata().await
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns true for the refusal of a change that was sent over a channel of old.
fn is_of_channel(error: &Error) -> bool {
    error.status() == Some(Status::FILE_NOT_AVAILABLE)
}
