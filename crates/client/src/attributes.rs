//! Extended attributes, named streams, security descriptors, symbolic links.

use std::sync::Arc;

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
use crate::create::Ask;
use crate::error::{Cause, During, Error, Result};
use crate::fsctl::control;
use crate::info::{output, query, set_call};
use crate::open::{Haste, Open, carried_through};
use crate::share::{Replay, Share};
use crate::types::SecurityDescriptor;

/// Space for lists of attributes and streams, and for security descriptors, bytes.
const LIST_MAX: u32 = 65_536;

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
    pub(crate) async fn open_for(
        &self,
        path: &str,
        access: AccessMask,
        operation: &'static str,
    ) -> Result<Arc<Open>> {
        let mut ask = Ask::existing(access | AccessMask::SYNCHRONIZE);
        ask.options |= CreateOptions::OPEN_REPARSE_POINT;
        Ok(Open::new(self, path, ask, operation).await?.0)
    }

    /// Returns the extended attributes of `path`: names and values.
    ///
    /// # Errors
    /// Fails if the server answers with an error, or is lost and does not come back in time.
    pub async fn extended_attributes(&self, path: &str) -> Result<Vec<(String, Vec<u8>)>> {
        const OPERATION: &str = "list the attributes of";
        let open = self.open_for(path, AccessMask::READ_EA, OPERATION).await?;
        let also = [Status::NO_EAS_ON_FILE, Status::NO_MORE_EAS];
        let class = FileInfoClass::FULL_EA.0;
        let message = open
            .ask(Replay::Idempotent, OPERATION, &also, |id| {
                Ok(query(InfoType::FILE, class, 0, id, &[], LIST_MAX))
            })
            .await?;
        if message.status() != Status::SUCCESS {
            return Ok(Vec::new());
        }
        let list = output(&message).during(OPERATION, &open.url)?;
        let mut found = Vec::new();
        for ea in EaEntries::new(list) {
            let ea = ea.map_err(|_| {
                Error::new(
                    Cause::Protocol("its list of extended attributes is not valid"),
                    OPERATION,
                    &*open.url,
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
        let open = self.open_for(path, AccessMask::WRITE_EA, OPERATION).await?;
        let mut list = Vec::new();
        let ea = Ea { need: false, name: name.as_bytes(), value };
        if EaWriter::new(&mut list, LIST_MAX as usize).push(&ea) == Pushed::Full {
            let cause = Cause::Usage("an extended attribute can have at most 64 KiB");
            return Err(Error::new(cause, OPERATION, &*open.url));
        }
        crate::info::set(&open, FileInfoClass::FULL_EA, OPERATION, &list).await
    }

    /// Returns the named streams of `path`. `file:name` is the path of a stream.
    ///
    /// # Errors
    /// Fails if the server answers with an error, or is lost and does not come back in time.
    pub async fn streams(&self, path: &str) -> Result<Vec<StreamInfo>> {
        const OPERATION: &str = "list the streams of";
        let open = self.open_for(path, AccessMask::READ_ATTRIBUTES, OPERATION).await?;
        let class = FileInfoClass::STREAM.0;
        let message = open
            .ask(Replay::Idempotent, OPERATION, &[], |id| {
                Ok(query(InfoType::FILE, class, 0, id, &[], LIST_MAX))
            })
            .await?;
        let mut found = Vec::new();
        for entry in StreamEntries::new(output(&message).during(OPERATION, &open.url)?) {
            let entry = entry.during(OPERATION, &open.url)?;
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
        let open = self.open_for(path, AccessMask::READ_CONTROL, OPERATION).await?;
        let wanted =
            SecurityInformation::OWNER | SecurityInformation::GROUP | SecurityInformation::DACL;
        let message = open
            .ask(Replay::Idempotent, OPERATION, &[], |id| {
                Ok(query(InfoType::SECURITY, 0, wanted.0, id, &[], LIST_MAX))
            })
            .await?;
        let bytes = output(&message).during(OPERATION, &open.url)?;
        let found = dtyp::SecurityDescriptor::parse(bytes).during(OPERATION, &open.url)?;
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
        let open = self.open_for(path, access, OPERATION).await?;
        let mut bytes = Vec::new();
        descriptor.encode(&mut bytes).map_err(|_| {
            Error::new(
                Cause::Usage("an access list can have at most 64 KiB"),
                OPERATION,
                &*open.url,
            )
        })?;
        open.ask(Replay::Idempotent, OPERATION, &[], |id| {
            Ok(set_call(InfoType::SECURITY, 0, which.0, id, &bytes))
        })
        .await?;
        Ok(())
    }

    /// Returns the target of the symbolic link `path`.
    ///
    /// # Errors
    /// Fails with [`Status::NOT_A_REPARSE_POINT`] if `path` is not a symbolic link.
    pub async fn read_link(&self, path: &str) -> Result<LinkTarget> {
        const OPERATION: &str = "read the link";
        let open = self.open_for(path, AccessMask::READ_ATTRIBUTES, OPERATION).await?;
        let most = MAX_REPARSE_BUFFER as u32;
        let code = CtlCode::GET_REPARSE_POINT;
        let message = control(&open, OPERATION, code, &[], most, &[]).await?;
        let response = ioctl::Response::parse(message.bytes()).during(OPERATION, &open.url)?;
        let buffer = ReparseBuffer::parse(response.output).during(OPERATION, &open.url)?;
        let path = |text: String| text.replace('\\', "/");
        match buffer.meaning().during(OPERATION, &open.url)? {
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
                &*open.url,
            )),
        }
    }

    /// Makes `link` a symbolic link to the file `target`, which need not exist. `target` is
    /// relative to the directory of `link` unless it begins with `/`.
    ///
    /// # Errors
    /// Fails if `link` exists, or the server has no symbolic links.
    pub async fn symlink_file(&self, target: &str, link: &str) -> Result<()> {
        self.symlink(target, link, CreateOptions::NON_DIRECTORY_FILE).await
    }

    /// Makes `link` a symbolic link to the directory `target`, as [`Self::symlink_file`] does
    /// to a file. Windows tells the two kinds of links apart.
    ///
    /// # Errors
    /// Fails as [`Self::symlink_file`] does.
    pub async fn symlink_dir(&self, target: &str, link: &str) -> Result<()> {
        self.symlink(target, link, CreateOptions::DIRECTORY_FILE).await
    }

    async fn symlink(&self, target: &str, path: &str, kind: CreateOptions) -> Result<()> {
        const OPERATION: &str = "make the link";
        let target = target.replace('/', "\\");
        let relative = !target.starts_with('\\');
        let link = Symlink { substitute_name: &*target, print_name: &*target, relative };
        let mut input = Vec::new();
        let encoded = link.encode(&mut Writer::new(&mut input)).map(|()| input);
        self.make_reparse_point(path, kind, 0o755, encoded, OPERATION).await
    }

    /// Creates a reparse point with the data `input`, `None` if that is too long. It is made
    /// whole or not at all, even if the caller gives up waiting.
    pub(crate) async fn make_reparse_point(
        &self,
        path: &str,
        kind: CreateOptions,
        mode: u32,
        input: Option<Vec<u8>>,
        operation: &'static str,
    ) -> Result<()> {
        let access = AccessMask::WRITE_ATTRIBUTES
            | AccessMask::WRITE_DATA
            | AccessMask::DELETE
            | AccessMask::SYNCHRONIZE;
        let mut ask = Ask::existing(access);
        ask.disposition = CreateDisposition::CREATE;
        ask.options |= CreateOptions::OPEN_REPARSE_POINT | kind;
        ask.mode = mode;
        let url = self.url(path);
        let cause = Cause::Usage("the target of the link is too long");
        let input = input.ok_or_else(|| Error::new(cause, operation, &*url))?;
        let (share, path) = (self.clone(), path.to_owned());
        carried_through(async move {
            let (open, _) = Open::new(&share, &path, ask, operation).await?;
            let code = CtlCode::SET_REPARSE_POINT;
            if let Err(error) = control(&open, operation, code, &input, 0, &[]).await {
                let _ = crate::info::set(&open, FileInfoClass::DISPOSITION, "remove", &[1]).await;
                let _ = open.close(Haste::AtOnce).await;
                return Err(error);
            }
            open.close(Haste::AtOnce).await
        })
        .await
    }
}
