//! Operations on names: create, remove, rename, look up.

use frevo_wire::codec::Writer;
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::query_info::InfoType;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::eq_ignore_case;
use frevo_wire::fscc::set::{
    DispositionFlags, FileRenameInformation, FileRenameInformationEx, RenameFlags,
};

use crate::Status;
use crate::error::{Cause, During, Error, Result};
use crate::file::File;
use crate::metadata::Metadata;
use crate::open::create::Ask;
use crate::open::info::set_call;
use crate::path::{posix_path, split, wire_path};
use crate::share::compound::{RELATED, close_call, look_at};
use crate::share::{Replay, Share};

/// The permission bits of a new directory, if the share has the POSIX extensions.
const DIRECTORY_MODE: u32 = 0o755;

/// A RENAME or LINK.
struct Relink<'a> {
    operation: &'static str,
    class: FileInfoClass,
    access: AccessMask,
    /// Encodes the request for a target, named with `\`.
    encode: &'a (dyn Fn(&str) -> Vec<u8> + Sync),
}

/// The body of a plain RENAME or LINK.
fn relink_body(replace_if_exists: bool) -> impl Fn(&str) -> Vec<u8> + Sync {
    move |name| {
        let mut data = Vec::new();
        FileRenameInformation { replace_if_exists, root_directory: 0, name }
            .encode(&mut Writer::new(&mut data));
        data
    }
}

impl Share {
    /// Opens an existing file for reading; [`OpenOptions`](crate::OpenOptions) opens it in other ways.
    ///
    /// # Errors
    /// Fails as [`File::open`] does.
    pub async fn open(&self, path: &str) -> Result<File> {
        File::open(self, path).await
    }

    /// Creates a file for writing, or empties an existing one.
    ///
    /// # Errors
    /// Fails as [`File::create`] does.
    pub async fn create(&self, path: &str) -> Result<File> {
        File::create(self, path).await
    }

    /// Returns the metadata of `path`. A symbolic link is not followed. The file's number,
    /// its links and its reparse tag are left out: [`Self::lookup`] returns them too.
    ///
    /// # Errors
    /// Fails if `path` does not exist, or may not be read.
    pub async fn metadata(&self, path: &str) -> Result<Metadata> {
        let ask = look_at(AccessMask::EMPTY);
        let calls = || vec![close_call()];
        let answers = self.chain("stat", path, Replay::Idempotent, &ask, &[], calls).await?;
        let opened = answers.opened("stat", &self.url(path))?;
        Ok(answers.found(Metadata::from(&opened)))
    }

    /// Returns true if `path` exists. A symbolic link is not followed.
    ///
    /// # Errors
    /// Fails if that cannot be found out: no right to look, or a lost server.
    pub async fn exists(&self, path: &str) -> Result<bool> {
        match self.metadata(path).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Creates a directory, whose parent directory must exist.
    ///
    /// # Errors
    /// Fails with [`Status::OBJECT_NAME_COLLISION`] (`AlreadyExists`) if the name exists,
    /// and if a directory above it does not.
    pub async fn create_dir(&self, path: &str) -> Result<()> {
        self.create_dir_with(path, DIRECTORY_MODE).await
    }

    /// Creates a directory with these permission bits, if the share has the POSIX extensions.
    ///
    /// # Errors
    /// Fails as [`Self::create_dir`] does.
    #[doc(hidden)]
    pub async fn create_dir_with(&self, path: &str, mode: u32) -> Result<()> {
        let mut ask = Ask::existing(AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE);
        ask.disposition = CreateDisposition::CREATE;
        ask.options |= CreateOptions::DIRECTORY_FILE;
        ask.mode = mode;
        let calls = || vec![close_call()];
        self.chain("make directory", path, Replay::Once, &ask, &[], calls).await?;
        Ok(())
    }

    /// Creates a directory and the directories above it that do not exist. One that exists
    /// already is no error.
    ///
    /// # Errors
    /// Fails if a name of the path is a file, or a directory may not be created.
    pub async fn create_dir_all(&self, path: &str) -> Result<()> {
        let whole = wire_path(path).during("make directory", &self.url(path))?;
        let mut ask = Ask::existing(AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE);
        ask.disposition = CreateDisposition::OPEN_IF;
        ask.options |= CreateOptions::DIRECTORY_FILE;
        let make = async |part: &str| {
            let calls = || vec![close_call()];
            let made = self.chain("make directory", part, Replay::Idempotent, &ask, &[], calls);
            let made = made.await.map(drop);
            let is_refused = |error: &Error| error.status().is_some() && !error.is_not_found();
            // impacket's server answers ACCESS_DENIED if the directory exists, so the client checks
            // that.
            if made.as_ref().is_err_and(is_refused)
                && self.metadata(&part.replace('\\', "/")).await.is_ok_and(|found| found.is_dir())
            {
                return Ok(());
            }
            made
        };
        if whole.is_empty() {
            return Ok(());
        }
        // Tries the whole path first, because its parent usually exists. Then one round trip is
        // enough.
        match make(&whole).await {
            // The parent is missing (some servers report that like a missing file), so all parents
            // are made below.
            Err(error) if error.is_not_found() => {}
            done => return done,
        }
        let ends = whole.match_indices('\\').map(|(at, _)| at).chain([whole.len()]);
        for end in ends.filter(|end| *end > 0) {
            make(whole.get(..end).unwrap_or_default()).await?;
        }
        Ok(())
    }

    /// Removes a file or a symbolic link to a file.
    ///
    /// # Errors
    /// Fails if `path` does not exist, is a directory, is read-only, or is open without
    /// [`ShareMode::DELETE`](crate::ShareMode::DELETE). The loss
    /// of the last channel is [`Cause::Unknown`]: the file may have been removed.
    pub async fn remove_file(&self, path: &str) -> Result<()> {
        self.remove(path, CreateOptions::NON_DIRECTORY_FILE).await
    }

    /// Removes an empty directory or a symbolic link to a directory.
    ///
    /// # Errors
    /// Fails with [`Status::DIRECTORY_NOT_EMPTY`] (`DirectoryNotEmpty`), and as
    /// [`Self::remove_file`] does.
    pub async fn remove_dir(&self, path: &str) -> Result<()> {
        self.remove(path, CreateOptions::DIRECTORY_FILE).await
    }

    pub(crate) async fn remove(&self, path: &str, kind: CreateOptions) -> Result<()> {
        let class = FileInfoClass::DISPOSITION;
        self.dispose(path, AccessMask::DELETE, kind, class, &[1]).await
    }

    /// Removes a file's name at once, while other programs have the file open: they go on
    /// with a file that has no name (MS-FSCC 2.4.12, FILE_DISPOSITION_POSIX_SEMANTICS).
    ///
    /// # Errors
    /// Fails with NOT_SUPPORTED or INVALID_INFO_CLASS if the server does not know this, and
    /// as [`Self::remove_file`] does.
    #[doc(hidden)]
    pub async fn unlink_file(&self, path: &str) -> Result<()> {
        let flags = DispositionFlags::DELETE
            | DispositionFlags::POSIX_SEMANTICS
            | DispositionFlags::IGNORE_READONLY_ATTRIBUTE;
        let class = FileInfoClass::DISPOSITION_EX;
        let kind = CreateOptions::NON_DIRECTORY_FILE;
        self.dispose(path, AccessMask::DELETE, kind, class, &flags.0.to_le_bytes()).await
    }

    /// Sets the disposition of a name that is opened with the rights `access`.
    pub(crate) async fn dispose(
        &self,
        path: &str,
        access: AccessMask,
        kind: CreateOptions,
        class: FileInfoClass,
        data: &[u8],
    ) -> Result<()> {
        let mut ask = Ask { is_of_name: true, ..look_at(access) };
        ask.options |= kind;
        let calls = || vec![set_call(InfoType::FILE, class.0, 0, RELATED, data), close_call()];
        self.chain("remove", path, Replay::Once, &ask, &[], calls).await?;
        Ok(())
    }

    /// Renames `from` to `to` in the same share. A file that is named `to` is replaced; a
    /// directory is not.
    ///
    /// # Errors
    /// Fails if `from` does not exist, `to` is a directory or in use, or the two are on
    /// different shares. The loss of the last channel is [`Cause::Unknown`]: the file may have been
    /// renamed.
    pub async fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.relink(&rename_with(&relink_body(true)), from, to).await
    }

    /// Renames `from` to `to` in the same share, if no file is named `to`.
    ///
    /// # Errors
    /// Fails with [`Status::OBJECT_NAME_COLLISION`] (`AlreadyExists`) if `to` exists, and as
    /// [`Self::rename`] does.
    pub async fn rename_if_not_exists(&self, from: &str, to: &str) -> Result<()> {
        self.relink(&rename_with(&relink_body(false)), from, to).await
    }

    /// Renames `from` to `to` even while other programs have `to` open: they go on with a
    /// file that has no name (MS-FSCC 2.4.43, FILE_RENAME_POSIX_SEMANTICS).
    ///
    /// # Errors
    /// Fails as [`Self::unlink_file`] and [`Self::rename`] do.
    #[doc(hidden)]
    pub async fn rename_over(&self, from: &str, to: &str) -> Result<()> {
        let flags = RenameFlags::REPLACE_IF_EXISTS
            | RenameFlags::POSIX_SEMANTICS
            | RenameFlags::IGNORE_READONLY_ATTRIBUTE;
        let encode = |name: &str| {
            let mut data = Vec::new();
            FileRenameInformationEx { flags, root_directory: 0, name }
                .encode(&mut Writer::new(&mut data));
            data
        };
        let rename = Relink { class: FileInfoClass::RENAME_EX, ..rename_with(&encode) };
        self.relink(&rename, from, to).await
    }

    /// Makes `link` a further name of the file `original`, in the same share.
    ///
    /// # Errors
    /// Fails if `original` is a directory, `link` exists, or the server's file system has no
    /// hard links. The loss of the last channel is [`Cause::Unknown`]: the link may have been
    /// made.
    pub async fn hard_link(&self, original: &str, link: &str) -> Result<()> {
        let make = Relink {
            operation: "link",
            class: FileInfoClass::LINK,
            access: AccessMask::WRITE_ATTRIBUTES,
            encode: &relink_body(false),
        };
        self.relink(&make, original, link).await
    }

    async fn relink(&self, relink: &Relink<'_>, from: &str, to: &str) -> Result<()> {
        let (share, from, target) = self.together(relink.operation, from, to).await?;
        let target = if share.is_posix() { posix_path(&target) } else { target };
        let data = (relink.encode)(&target);
        let ask = Ask { is_of_name: true, ..look_at(relink.access) };
        let calls =
            || vec![set_call(InfoType::FILE, relink.class.0, 0, RELATED, &data), close_call()];
        share.chain(relink.operation, &from, Replay::Once, &ask, &[], calls).await?;
        Ok(())
    }

    /// The one share that both names are in, and the names in it: DFS links may lead to
    /// different shares.
    ///
    /// # Errors
    /// NOT_SAME_DEVICE when they are in two.
    pub(crate) async fn together(
        &self,
        operation: &'static str,
        from: &str,
        to: &str,
    ) -> Result<(Self, String, String)> {
        let names = [from, to].map(|name| wire_path(name).during(operation, &self.url(name)));
        let [from, to] = names;
        let (from, to) = (from?, to?);
        if self.way.is_none() && self.reached.is_none() {
            return Ok((self.clone(), from, to));
        }
        let (source, from) = self.directory_of(&from).await?;
        let (target, to) = self.directory_of(&to).await?;
        let is_same = source.session().is_same(target.session())
            && eq_ignore_case(source.name(), target.name());
        if is_same {
            // Source and target are behind the same link, so the rename uses their paths on the
            // link's target.
            return Ok((Self { reached: None, ..source }, from, to));
        }
        let cause = Cause::Status(Status::NOT_SAME_DEVICE);
        Err(Error::new(cause, operation, source.url(&from.replace('\\', "/"))))
    }

    /// The share that the directory of `path` is in, and the path there.
    async fn directory_of(&self, path: &str) -> Result<(Self, String)> {
        let (directory, name) = split(path);
        let ask = Ask::existing(AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE);
        let calls = || vec![close_call()];
        let answers = self.chain("stat", directory, Replay::Idempotent, &ask, &[], calls).await?;
        let slash = if answers.path.is_empty() { "" } else { "\\" };
        Ok((answers.share, format!("{}{slash}{name}", answers.path)))
    }
}

/// A RENAME whose body `encode` writes.
const fn rename_with(encode: &(dyn Fn(&str) -> Vec<u8> + Sync)) -> Relink<'_> {
    let (class, access) = (FileInfoClass::RENAME, AccessMask::DELETE);
    Relink { operation: "rename", class, access, encode }
}
