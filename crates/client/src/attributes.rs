//! Extended attributes, streams, security descriptors, symbolic links.

use std::sync::Arc;

use frevo_wire::codec::Writer;
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::command::query_info::InfoType;
use frevo_wire::dtyp::{AccessMask, SecurityDescriptor, SecurityInformation};
use frevo_wire::fscc::ea::{Ea, EaEntries, EaWriter};
use frevo_wire::fscc::query::StreamEntries;
use frevo_wire::fscc::reparse::{
    MAX_REPARSE_BUFFER, NfsSpecial, ReparseBuffer, ReparseData, Symlink,
};
use frevo_wire::fscc::{FileInfoClass, Pushed};
use frevo_wire::{Status, Utf16};

use crate::create::Ask;
use crate::error::{Cause, During, Error, Result};
use crate::file::{output, query, set};
use crate::fsctl::control;
use crate::open::{Open, carried_through};
use crate::share::{Replay, Share};

/// Room for lists of attributes and streams, and for descriptors.
const ROOM: u32 = 65_536;

/// A named stream of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// Its name; the file's own data has none.
    pub name: String,
    /// Bytes.
    pub len: u64,
}

/// A symbolic link's target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkTarget {
    /// With `/` between its parts.
    pub path: String,
    /// It leads on from the link's directory.
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

    /// The extended attributes of `path`.
    ///
    /// # Errors
    /// What the server says.
    pub async fn extended_attributes(&self, path: &str) -> Result<Vec<(String, Vec<u8>)>> {
        const OPERATION: &str = "list the attributes of";
        let open = self.open_for(path, AccessMask::READ_EA, OPERATION).await?;
        let also = [Status::NO_EAS_ON_FILE, Status::NO_MORE_EAS];
        let class = FileInfoClass::FULL_EA.0;
        let message = open
            .ask(Replay::Idempotent, OPERATION, &also, |id| {
                Ok(query(InfoType::FILE, class, 0, id, &[], ROOM))
            })
            .await?;
        if message.header.status != Status::SUCCESS {
            return Ok(Vec::new());
        }
        let list = output(&message).during(OPERATION, &open.url)?;
        let mut found = Vec::new();
        for ea in EaEntries::new(list) {
            let ea = ea.map_err(|_| {
                Error::new(Cause::Protocol("a list of attributes"), OPERATION, &*open.url)
            })?;
            found.push((String::from_utf8_lossy(ea.name).into_owned(), ea.value.to_vec()));
        }
        Ok(found)
    }

    /// Sets an extended attribute; an empty value removes it.
    ///
    /// # Errors
    /// What the server says.
    pub async fn set_extended_attribute(&self, path: &str, name: &str, value: &[u8]) -> Result<()> {
        const OPERATION: &str = "set an attribute of";
        let open = self.open_for(path, AccessMask::WRITE_EA, OPERATION).await?;
        let mut list = Vec::new();
        let ea = Ea { need: false, name: name.as_bytes(), value };
        if EaWriter::new(&mut list, ROOM as usize).push(&ea) == Pushed::Full {
            let cause = Cause::Usage("the attribute is too long");
            return Err(Error::new(cause, OPERATION, &*open.url));
        }
        crate::info::set(&open, FileInfoClass::FULL_EA, OPERATION, &list).await
    }

    /// The named streams of `path`.
    ///
    /// # Errors
    /// What the server says.
    pub async fn streams(&self, path: &str) -> Result<Vec<Stream>> {
        const OPERATION: &str = "list the streams of";
        let open = self.open_for(path, AccessMask::READ_ATTRIBUTES, OPERATION).await?;
        let class = FileInfoClass::STREAM.0;
        let message = open
            .ask(Replay::Idempotent, OPERATION, &[], |id| {
                Ok(query(InfoType::FILE, class, 0, id, &[], ROOM))
            })
            .await?;
        let mut found = Vec::new();
        for entry in StreamEntries::new(output(&message).during(OPERATION, &open.url)?) {
            let entry = entry.during(OPERATION, &open.url)?;
            let name = entry.name.to_string_lossy();
            let name = name.strip_prefix(':').unwrap_or(&name);
            let name = name.strip_suffix(":$DATA").unwrap_or(name);
            if !name.is_empty() {
                found.push(Stream { name: name.into(), len: entry.size });
            }
        }
        Ok(found)
    }

    /// Owner, group and access list of `path`.
    ///
    /// # Errors
    /// What the server says.
    pub async fn security(&self, path: &str) -> Result<SecurityDescriptor> {
        const OPERATION: &str = "read the access list of";
        let open = self.open_for(path, AccessMask::READ_CONTROL, OPERATION).await?;
        let wanted =
            SecurityInformation::OWNER | SecurityInformation::GROUP | SecurityInformation::DACL;
        let message = open
            .ask(Replay::Idempotent, OPERATION, &[], |id| {
                Ok(query(InfoType::SECURITY, 0, wanted.0, id, &[], ROOM))
            })
            .await?;
        let bytes = output(&message).during(OPERATION, &open.url)?;
        SecurityDescriptor::parse(bytes).during(OPERATION, &open.url)
    }

    /// Sets the parts of `path`'s security descriptor that `which` names.
    ///
    /// # Errors
    /// What the server says.
    pub async fn set_security(
        &self,
        path: &str,
        descriptor: &SecurityDescriptor,
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
            Error::new(Cause::Usage("the access list is too long"), OPERATION, &*open.url)
        })?;
        open.ask(Replay::Idempotent, OPERATION, &[], |id| {
            Ok(set(InfoType::SECURITY, 0, which.0, id, &bytes))
        })
        .await?;
        Ok(())
    }

    /// Where the symbolic link `path` leads.
    ///
    /// # Errors
    /// NOT_A_REPARSE_POINT when it is none, and what else the server says.
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
            _ => Err(Error::new(Cause::Usage("it is no symbolic link"), OPERATION, &*open.url)),
        }
    }

    /// Makes a symbolic link at `path` to `target`, relative to its directory
    /// unless it begins with `/`. `to_directory` says what it leads to, since
    /// Windows tells the two apart.
    ///
    /// # Errors
    /// What the server says; then nothing is left behind.
    pub async fn symlink(&self, path: &str, target: &str, to_directory: bool) -> Result<()> {
        const OPERATION: &str = "make the link";
        let kind = if to_directory {
            CreateOptions::DIRECTORY_FILE
        } else {
            CreateOptions::NON_DIRECTORY_FILE
        };
        let target = target.replace('/', "\\");
        let relative = !target.starts_with('\\');
        let link = Symlink { substitute_name: &*target, print_name: &*target, relative };
        let mut input = Vec::new();
        let encoded = link.encode(&mut Writer::new(&mut input)).map(|()| input);
        self.make_reparse_point(path, kind, 0o755, encoded, OPERATION).await
    }

    /// Makes a file or directory at `path` that is what the reparse data `input` says; none
    /// is longer than it can be. It is made whole or not at all, whether or not anybody goes
    /// on waiting for it.
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
        let cause = Cause::Usage("the target is too long");
        let input = input.ok_or_else(|| Error::new(cause, operation, &*url))?;
        let (share, path) = (self.clone(), path.to_owned());
        carried_through(operation, &url, async move {
            let (open, _) = Open::new(&share, &path, ask, operation).await?;
            let code = CtlCode::SET_REPARSE_POINT;
            if let Err(error) = control(&open, operation, code, &input, 0, &[]).await {
                let _ = crate::info::set(&open, FileInfoClass::DISPOSITION, "remove", &[1]).await;
                let _ = open.close().await;
                return Err(error);
            }
            open.close().await
        })
        .await
    }
}

/// The path behind a link that stopped a request: `unparsed` bytes of `path`
/// lay behind it. Nothing when it leads out of the share.
pub(crate) fn redirected(
    path: &str,
    unparsed: u16,
    target: &Utf16<'_>,
    relative: bool,
) -> Option<String> {
    let units: Vec<u16> = path.encode_utf16().collect();
    let behind = usize::from(unparsed) / 2;
    let link = String::from_utf16(units.get(..units.len().checked_sub(behind)?)?).ok()?;
    let rest = String::from_utf16(units.get(units.len() - behind..)?).ok()?;
    let target = target.to_string().ok()?.replace('/', "\\");
    if !relative {
        return None;
    }
    let mut parts: Vec<&str> = link.split('\\').filter(|part| !part.is_empty()).collect();
    parts.pop();
    for part in target.split('\\').chain(rest.split('\\')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("\\"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_within_the_share_or_nowhere() {
        let go = |path: &str, unparsed, target: &str, relative| {
            redirected(path, unparsed, &Utf16::from_str(target), relative)
        };
        assert_eq!(go("a\\link\\x", 4, "b", true).unwrap(), "a\\b\\x");
        assert_eq!(go("a\\link", 0, "..\\c/d", true).unwrap(), "c\\d");
        assert_eq!(go("link", 0, "..\\..\\etc", true), None);
        assert_eq!(go("link", 0, "\\??\\C:\\x", false), None);
        assert_eq!(go("link", 400, "b", true), None);
    }
}
