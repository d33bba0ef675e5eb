//! Removing read-only files and directories, which POSIX permits and SMB does not.

use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::query_info::InfoType;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::set::DispositionFlags;

use crate::Status;
use crate::error::{Error, Result};
use crate::file::options::OpenOptions;
use crate::metadata::Metadata;
use crate::open::create::Ask;
use crate::open::info::set_call;
use crate::share::compound::{RELATED, close_call, look_at};
use crate::share::set_attributes::SetMetadata;
use crate::share::{Replay, Share};
use crate::types::{AccessMask as TypedMask, FileAttributes, LeaseState};

/// MS-FSA 2.1.5.15.4: READONLY is ignored only for an Open with the right to change attributes.
const RIGHTS: AccessMask = AccessMask::DELETE.union(AccessMask::WRITE_ATTRIBUTES);

impl Share {
    /// Removes a file, also if it is read-only. A symbolic link is not followed.
    ///
    /// # Errors
    /// Fails if the user may not change the file's attributes, and as
    /// [`Self::remove_file`] does. A file that stays is read-only again.
    #[doc(hidden)]
    pub async fn remove_file_anyway(&self, path: &str) -> Result<()> {
        self.remove_anyway(path, CreateOptions::NON_DIRECTORY_FILE).await
    }

    /// Removes an empty directory, also if it is read-only.
    ///
    /// # Errors
    /// Fails as [`Self::remove_file_anyway`] and [`Self::remove_dir`] do.
    #[doc(hidden)]
    pub async fn remove_dir_anyway(&self, path: &str) -> Result<()> {
        self.remove_anyway(path, CreateOptions::DIRECTORY_FILE).await
    }

    /// Renames `from` to `to`, also if a read-only file is named `to`: MS-FSA 2.1.5.15.12 refuses
    /// that with ACCESS_DENIED.
    ///
    /// # Errors
    /// Fails if the user may not change the attributes of `to`, and as [`Self::rename`] does. A
    /// file that stays is read-only again.
    #[doc(hidden)]
    pub async fn rename_over_read_only(&self, from: &str, to: &str) -> Result<()> {
        let target = self.lookup(to).await?;
        if target.is_dir() || !target.attributes().contains(FileAttributes::READONLY) {
            return self.rename(from, to).await;
        }
        if target.links() > 1 {
            return self.rename_over_one_of_many(from, to, &target).await;
        }
        let writable = target.attributes().without(FileAttributes::READONLY);
        self.set_metadata(to, &SetMetadata::new().attributes(writable)).await?;
        let renamed = self.rename(from, to).await;
        if renamed.is_err() {
            self.restore_attributes(to, &target).await;
        }
        renamed
    }

    /// Renames `from` to `to`, one of several links of the read-only file `target`. The others keep
    /// the attribute.
    async fn rename_over_one_of_many(&self, from: &str, to: &str, target: &Metadata) -> Result<()> {
        // MS-FSCC 2.4.43: `rename_over` sends a flag that ignores READONLY, so the attributes of
        // the target need not be changed first.
        match self.rename_over(from, to).await {
            Err(error) if is_unknown_class(&error) => {}
            Err(error) if error.status() == Some(Status::ACCESS_DENIED) => {}
            done => return done,
        }
        let set = |attributes| SetMetadata::new().attributes(attributes);
        let access = TypedMask::READ_ATTRIBUTES | TypedMask::WRITE_ATTRIBUTES;
        let options = OpenOptions::new().access(access).lease(LeaseState::EMPTY).no_follow();
        let file = options.open(self, to).await?;
        let writable = target.attributes().without(FileAttributes::READONLY);
        let renamed = match file.set_metadata(&set(writable)).await {
            Ok(()) => match self.rename_over(from, to).await {
                // This server does not know the class, so the ordinary rename is used, which cannot
                // replace an open file.
                Err(error) if is_unknown_class(&error) => self.rename(from, to).await,
                done => done,
            },
            Err(error) => Err(error),
        };
        let restored = file.set_metadata(&set(target.attributes())).await;
        let closed = file.close().await;
        renamed.and(restored).and(closed)
    }

    /// Gives `file` its attributes back, if `path` still names it: after a lost answer another file
    /// may have the name, or none.
    async fn restore_attributes(&self, path: &str, file: &Metadata) {
        let is_it = self.lookup(path).await.is_ok_and(|found| {
            found.file_id() == file.file_id() && found.created() == file.created()
        });
        if is_it {
            let back = SetMetadata::new().attributes(file.attributes());
            let _ = self.set_metadata(path, &back).await;
        }
    }

    /// Notes that the server does not know FileDispositionInformationEx.
    #[doc(hidden)]
    pub fn note_no_read_only_removals(&self) {
        self.inner.refusals.read_only_removals.note();
    }

    async fn remove_anyway(&self, path: &str, kind: CreateOptions) -> Result<()> {
        let refused = &self.inner.refusals.read_only_removals;
        if !refused.stands() {
            match self.remove_ignoring(path, kind).await {
                Err(error) if is_unknown_class(&error) => self.note_no_read_only_removals(),
                // The server knows the class but not the flag that allows it to remove a read-only
                // file.
                Err(error) if error.status() == Some(Status::CANNOT_DELETE) => {}
                done => return done,
            }
        }
        let found = self.lookup(path).await?;
        if !found.attributes().contains(FileAttributes::READONLY) {
            return self.remove(path, kind).await;
        }
        let removed = self.clear_and_remove(path, kind, &found).await;
        if removed.is_err() {
            self.restore_attributes(path, &found).await;
        }
        removed
    }

    /// Removes by FileDispositionInformationEx, MS-FSCC 2.4.12.
    async fn remove_ignoring(&self, path: &str, kind: CreateOptions) -> Result<()> {
        let flags = DispositionFlags::DELETE
            | DispositionFlags::POSIX_SEMANTICS
            | DispositionFlags::IGNORE_READONLY_ATTRIBUTE;
        let class = FileInfoClass::DISPOSITION_EX;
        self.dispose(path, RIGHTS, kind, class, &flags.0.to_le_bytes()).await
    }

    /// Takes READONLY from a file and removes it, in one compound. The other links of the file keep
    /// the attribute.
    async fn clear_and_remove(
        &self,
        path: &str,
        kind: CreateOptions,
        found: &Metadata,
    ) -> Result<()> {
        let of = |attributes| SetMetadata::new().attributes(attributes).encode();
        let writable = of(found.attributes().without(FileAttributes::READONLY));
        let read_only = of(found.attributes());
        let mut ask = Ask { is_of_name: true, ..look_at(RIGHTS) };
        ask.options |= kind;
        let set =
            |class: FileInfoClass, data: &[u8]| set_call(InfoType::FILE, class.0, 0, RELATED, data);
        let calls = || {
            let mut all =
                vec![set(FileInfoClass::BASIC, &writable), set(FileInfoClass::DISPOSITION, &[1])];
            if found.links() > 1 {
                all.push(set(FileInfoClass::BASIC, &read_only));
            }
            all.push(close_call());
            all
        };
        self.chain("remove", path, Replay::Once, &ask, &[], calls).await?;
        Ok(())
    }
}

/// Returns true if the server does not know a class of information.
pub(crate) fn is_unknown_class(error: &Error) -> bool {
    matches!(
        error.status(),
        Some(
            Status::NOT_SUPPORTED
                | Status::INVALID_INFO_CLASS
                | Status::NOT_IMPLEMENTED
                | Status::INVALID_DEVICE_REQUEST
                | Status::INVALID_PARAMETER
                | Status::INVALID_LEVEL
        )
    )
}
