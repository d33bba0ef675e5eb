//! Extended attributes, named streams, security descriptors, symbolic links.

use frevo_wire::codec::Writer;
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::command::query_info::InfoType;
use frevo_wire::dtyp::{self, AccessMask, SecurityInformation};
use frevo_wire::fscc::ea::{Ea, EaEntries, EaWriter};
use frevo_wire::fscc::query::StreamEntries;
use frevo_wire::fscc::reparse::{
    MAX_REPARSE_BUFFER, NfsSpecial, ReparseBuffer, ReparseData, Symlink,
};
use frevo_wire::fscc::{FileInfoClass, Pushed};

use crate::Status;
use crate::connection::Message;
use crate::error::{Cause, During, Error, Result};
use crate::metadata::Metadata;
use crate::open::create::Ask;
use crate::open::fsctl::control;
use crate::open::info::{output, query, set_call};
use crate::open::{Followers, Haste, Open, carried_through};
use crate::share::compound::{RELATED, close_call, look_at};
use crate::share::lookup::{look_at_tag, looks, seen, tag_seen};
use crate::share::{Replay, Share, fsctl};
use crate::types::SecurityDescriptor;

/// Space for lists of attributes and streams, and for security descriptors, bytes.
const LIST_MAX: u32 = 65_536;

/// Space for the data of a reparse point, bytes.
const REPARSE_MAX: u32 = MAX_REPARSE_BUFFER as u32;

/// The permission bits of a symbolic link; the host ignores them.
const LINK_MODE: u32 = 0o755;

/// The operation of an error of making a link.
const MAKE_LINK: &str = "make the link";

/// A named stream of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamInfo {
    /// The name of the stream, without `:` and `:$DATA`.
    pub name: String,
    /// The length in bytes.
    pub len: u64,
}

/// The target of a symbolic link.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkTarget {
    /// The path, with `/` between its names.
    pub path: String,
    /// True if the path begins at the link's directory.
    pub relative: bool,
}

impl Share {
    /// Returns the extended attributes of `path`: names and values.
    ///
    /// # Errors
    /// Fails if the server answers with an error, or is lost and does not come back in time.
    pub async fn extended_attributes(&self, path: &str) -> Result<Vec<(String, Vec<u8>)>> {
        const OPERATION: &str = "list the attributes of";
        let also = [Status::NO_EAS_ON_FILE, Status::NO_MORE_EAS];
        let class = FileInfoClass::FULL_EA.0;
        let list = || query(InfoType::FILE, class, 0, RELATED, &[], LIST_MAX);
        let message = self.ask_of_name(OPERATION, path, AccessMask::READ_EA, &also, list).await?;
        if message.status() != Status::SUCCESS {
            return Ok(Vec::new());
        }
        let url = self.url(path);
        let list = output(&message).during(OPERATION, &url)?;
        let mut found = Vec::new();
        for ea in EaEntries::new(list) {
            let ea = ea.map_err(|_| {
                Error::new(
                    Cause::Protocol("its list of extended attributes is not valid"),
                    OPERATION,
                    &*url,
                )
            })?;
            found.push((String::from_utf8_lossy(ea.name).into_owned(), ea.value.to_vec()));
        }
        Ok(found)
    }

    /// Sets an extended attribute; an empty value removes it. Name and value together have at
    /// most 64 KiB.
    ///
    /// # Errors
    /// Fails if the server answers with an error, or is lost and does not come back in time.
    pub async fn set_extended_attribute(&self, path: &str, name: &str, value: &[u8]) -> Result<()> {
        const OPERATION: &str = "set an attribute of";
        let mut list = Vec::new();
        let ea = Ea { need: false, name: name.as_bytes(), value };
        if EaWriter::new(&mut list, LIST_MAX as usize).push(&ea) == Pushed::Full {
            let cause = Cause::Usage("an extended attribute can have at most 64 KiB");
            return Err(Error::new(cause, OPERATION, self.url(path)));
        }
        let class = FileInfoClass::FULL_EA.0;
        let set = || set_call(InfoType::FILE, class, 0, RELATED, &list);
        self.ask_of_name(OPERATION, path, AccessMask::WRITE_EA, &[], set).await.map(drop)
    }

    /// Returns the named streams of `path`. `file:name` is the path of a stream.
    ///
    /// # Errors
    /// Fails if the server answers with an error, or is lost and does not come back in time.
    pub async fn streams(&self, path: &str) -> Result<Vec<StreamInfo>> {
        const OPERATION: &str = "list the streams of";
        let class = FileInfoClass::STREAM.0;
        let list = || query(InfoType::FILE, class, 0, RELATED, &[], LIST_MAX);
        let access = AccessMask::READ_ATTRIBUTES;
        let message = self.ask_of_name(OPERATION, path, access, &[], list).await?;
        let url = self.url(path);
        let mut found = Vec::new();
        for entry in StreamEntries::new(output(&message).during(OPERATION, &url)?) {
            let entry = entry.during(OPERATION, &url)?;
            let name = entry.name.to_string_lossy();
            let name = name.strip_prefix(':').unwrap_or(&name);
            let name = name.strip_suffix(":$DATA").unwrap_or(name);
            if !name.is_empty() {
                found.push(StreamInfo { name: name.into(), len: entry.size });
            }
        }
        Ok(found)
    }

    /// Returns owner, group and access list of `path`.
    ///
    /// # Errors
    /// Fails if the server answers with an error, or is lost and does not come back in time.
    pub async fn security(&self, path: &str) -> Result<SecurityDescriptor> {
        const OPERATION: &str = "read the access list of";
        let wanted =
            SecurityInformation::OWNER | SecurityInformation::GROUP | SecurityInformation::DACL;
        let read = || query(InfoType::SECURITY, 0, wanted.0, RELATED, &[], LIST_MAX);
        let access = AccessMask::READ_CONTROL;
        let message = self.ask_of_name(OPERATION, path, access, &[], read).await?;
        let url = self.url(path);
        let bytes = output(&message).during(OPERATION, &url)?;
        let found = dtyp::SecurityDescriptor::parse(bytes).during(OPERATION, &url)?;
        Ok(SecurityDescriptor::of_wire(found))
    }

    /// Sets the parts of the security descriptor of `path` that `descriptor` has: the owner,
    /// the group, the access list. A list that is `None` under
    /// [`DaclControl::DACL_PRESENT`](crate::DaclControl::DACL_PRESENT) allows everything to
    /// everybody.
    ///
    /// # Errors
    /// Fails if the user may not do this, or the list is longer than 64 KiB.
    pub async fn set_security(&self, path: &str, descriptor: &SecurityDescriptor) -> Result<()> {
        self.set_descriptor(path, &descriptor.wire(), descriptor.parts()).await
    }

    pub(crate) async fn set_descriptor(
        &self,
        path: &str,
        descriptor: &dtyp::SecurityDescriptor,
        which: SecurityInformation,
    ) -> Result<()> {
        const OPERATION: &str = "set the access list of";
        let mut access = AccessMask::READ_CONTROL;
        if which.intersects(SecurityInformation::OWNER | SecurityInformation::GROUP) {
            access |= AccessMask::WRITE_OWNER;
        }
        if which.contains(SecurityInformation::DACL) {
            access |= AccessMask::WRITE_DAC;
        }
        let mut bytes = Vec::new();
        descriptor.encode(&mut bytes).map_err(|_| {
            let cause = Cause::Usage("an access list can have at most 64 KiB");
            Error::new(cause, OPERATION, self.url(path))
        })?;
        let set = || set_call(InfoType::SECURITY, 0, which.0, RELATED, &bytes);
        self.ask_of_name(OPERATION, path, access, &[], set).await.map(drop)
    }

    /// Returns the target of the symbolic link `path`.
    ///
    /// # Errors
    /// Fails with [`Status::NOT_A_REPARSE_POINT`] if `path` is not a symbolic link.
    pub async fn read_link(&self, path: &str) -> Result<LinkTarget> {
        const OPERATION: &str = "read the link";
        let message = self.reparse_data(OPERATION, path).await?;
        let url = self.url(path);
        let response = ioctl::Response::parse(message.bytes()).during(OPERATION, &url)?;
        let buffer = ReparseBuffer::parse(response.output).during(OPERATION, &url)?;
        let path = |text: String| text.replace('\\', "/");
        match buffer.meaning().during(OPERATION, &url)? {
            ReparseData::Symlink(link) => Ok(LinkTarget {
                path: path(link.substitute_name.to_string_lossy()),
                relative: link.relative,
            }),
            ReparseData::LxSymlink(target) => {
                let path = String::from_utf8_lossy(target).into_owned();
                Ok(LinkTarget { relative: !path.starts_with('/'), path })
            }
            ReparseData::Nfs(NfsSpecial::Symlink(target)) => {
                let path = target.to_string_lossy();
                Ok(LinkTarget { relative: !path.starts_with('/'), path })
            }
            _ => Err(Error::new(
                Cause::Usage("not a symbolic link, but another kind of reparse point"),
                OPERATION,
                url,
            )),
        }
    }

    /// The answer to FSCTL_GET_REPARSE_POINT about `path`.
    pub(crate) async fn reparse_data(
        &self,
        operation: &'static str,
        path: &str,
    ) -> Result<Message> {
        let read = || fsctl(CtlCode::GET_REPARSE_POINT, RELATED, &[], REPARSE_MAX);
        self.ask_of_name(operation, path, AccessMask::READ_ATTRIBUTES, &[], read).await
    }

    /// Makes `link` a symbolic link to the file `target`, which need not exist. `target` is
    /// relative to the directory of `link` unless it begins with `/`.
    ///
    /// # Errors
    /// Fails if `link` exists, or the server has no symbolic links.
    pub async fn symlink_file(&self, target: &str, link: &str) -> Result<()> {
        self.make_symlink(target, link, false).await.map(drop)
    }

    /// Makes `link` a symbolic link to the directory `target`, as [`Self::symlink_file`] does
    /// to a file. Windows tells the two kinds of links apart.
    ///
    /// # Errors
    /// Fails as [`Self::symlink_file`] does.
    pub async fn symlink_dir(&self, target: &str, link: &str) -> Result<()> {
        self.make_symlink(target, link, true).await.map(drop)
    }

    /// Makes `link` a symbolic link, as [`Self::symlink_file`] and [`Self::symlink_dir`], and returns
    /// its metadata if the server told it with its answer.
    ///
    /// # Errors
    /// Fails as [`Self::symlink_file`] does.
    #[doc(hidden)]
    pub async fn make_symlink(
        &self,
        target: &str,
        link: &str,
        to_directory: bool,
    ) -> Result<Option<Metadata>> {
        let point = ReparsePoint {
            kind: link_kind(to_directory),
            mode: LINK_MODE,
            data: symlink_data(target).ok_or_else(|| self.too_long(link))?,
        };
        self.make_reparse_point(link, point, MAKE_LINK).await
    }

    /// Gives the symbolic link `link` another target, in one step: the name is never absent.
    ///
    /// # Errors
    /// Fails if `link` is a link of the other kind, or the server cannot replace a target (MS-FSA
    /// 2.1.5.10.37).
    #[doc(hidden)]
    pub async fn retarget_symlink(
        &self,
        target: &str,
        link: &str,
        to_directory: bool,
    ) -> Result<()> {
        let data = symlink_data(target).ok_or_else(|| self.too_long(link))?;
        let mut ask = Ask { is_of_name: true, ..look_at(AccessMask::WRITE_ATTRIBUTES) };
        ask.options |= link_kind(to_directory);
        let calls = || vec![fsctl(CtlCode::SET_REPARSE_POINT, RELATED, &data, 0), close_call()];
        self.chain(MAKE_LINK, link, Replay::Settled, &ask, &[], calls).await.map(drop)
    }

    fn too_long(&self, link: &str) -> Error {
        let cause = Cause::Usage("the target of the link is too long");
        Error::new(cause, MAKE_LINK, self.url(link))
    }

    /// Creates a reparse point. It is made whole or not at all, even if the caller gives up waiting.
    /// Returns its metadata if the server told it with its answer.
    pub(crate) async fn make_reparse_point(
        &self,
        path: &str,
        point: ReparsePoint,
        operation: &'static str,
    ) -> Result<Option<Metadata>> {
        let access = AccessMask::WRITE_ATTRIBUTES
            | AccessMask::READ_ATTRIBUTES
            | AccessMask::WRITE_DATA
            | AccessMask::DELETE
            | AccessMask::SYNCHRONIZE;
        let ReparsePoint { kind, mode, data } = point;
        let mut ask = Ask::existing(access);
        ask.disposition = CreateDisposition::CREATE;
        ask.options |= CreateOptions::OPEN_REPARSE_POINT | kind;
        ask.mode = mode;
        let (share, path, posix) = (self.clone(), path.to_owned(), self.is_posix());
        carried_through(async move {
            const CODE: CtlCode = CtlCode::SET_REPARSE_POINT;
            let first = data.clone();
            let followers: Followers = Box::new(move || {
                let set = fsctl(CODE, RELATED, &first, 0);
                let tag = (!posix).then(look_at_tag);
                std::iter::once(set).chain(looks(posix)).chain(tag).collect()
            });
            let (open, _, answers) =
                Open::with_followers(&share, &path, ask, operation, Some(followers)).await?;
            let set = match answers.first().map(Message::status) {
                Some(Status::SUCCESS) => Ok(()),
                Some(status) => Err(Error::new(status, operation, &*open.url)),
                // The compound could not be used and the CREATE was sent alone, so the FSCTL
                // follows alone.
                None => control(&open, operation, CODE, &data, 0, &[]).await.map(drop),
            };
            if let Err(error) = set {
                let _ =
                    crate::open::info::set(&open, FileInfoClass::DISPOSITION, "remove", &[1]).await;
                let _ = open.close(Haste::AtOnce).await;
                return Err(error);
            }
            let looked = seen(answers.get(1..).unwrap_or_default(), posix).ok();
            let tag = answers.get(2).and_then(|answer| tag_seen(answer).ok());
            let looked = match (posix, tag) {
                (false, Some(tag)) => looked.map(|found| found.with_reparse_tag(tag)),
                (false, None) => None,
                (true, _) => looked,
            };
            let told = looked.map(|found| open.share.found(found, false));
            // A background CLOSE could be overtaken by the next request on another channel, so with
            // several channels it is awaited.
            let is_alone = share.session().channels().len() == 1;
            if is_alone {
                tokio::spawn(async move { open.close(Haste::WithNext).await });
            } else {
                open.close(Haste::AtOnce).await?;
            }
            Ok(told)
        })
        .await
    }
}

/// A reparse point that is made.
pub(crate) struct ReparsePoint {
    /// FILE_DIRECTORY_FILE or FILE_NON_DIRECTORY_FILE.
    pub(crate) kind: CreateOptions,
    /// The permission bits, in a share with the POSIX extensions.
    pub(crate) mode: u32,
    /// The reparse buffer.
    pub(crate) data: Vec<u8>,
}

fn link_kind(to_directory: bool) -> CreateOptions {
    if to_directory { CreateOptions::DIRECTORY_FILE } else { CreateOptions::NON_DIRECTORY_FILE }
}

/// The reparse buffer of a symbolic link, MS-FSCC 2.1.2.4; `None` if the target is too long.
fn symlink_data(target: &str) -> Option<Vec<u8>> {
    let target = target.replace('/', "\\");
    let relative = !target.starts_with('\\');
    let link = Symlink { substitute_name: &*target, print_name: &*target, relative };
    let mut data = Vec::new();
    link.encode(&mut Writer::new(&mut data)).map(|()| data)
}
