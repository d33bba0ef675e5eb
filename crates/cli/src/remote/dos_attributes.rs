//! DOS attributes and creation times of copies. On this machine the extended attribute
//! `user.DOSATTRIB` can hold them.

use std::fs::{File as LocalHandle, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::time::SystemTime;

use clap::ValueEnum;
use frevo_client::internal::{file_time, system_time};
use frevo_client::{FileAttributes, Metadata, SetMetadata};
use frevo_posix::dosattrib::{self, DosAttrib};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// The attributes that a copy gets from its source, beside content and time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum AttributePolicy {
    /// Do not copy them
    None,
    /// Between servers copy read-only, hidden, system, archive and the creation time; to and
    /// from local files only read-only
    #[default]
    Keep,
    /// Copy all, for local files in the extended attribute user.DOSATTRIB, as Samba does
    Xattr,
}

/// The attributes that are copied.
const CARRIED: FileAttributes = FileAttributes::from_bits(
    FileAttributes::READONLY.bits()
        | FileAttributes::HIDDEN.bits()
        | FileAttributes::SYSTEM.bits()
        | FileAttributes::ARCHIVE.bits(),
);

/// The mode bits that let any user write a file.
const WRITE: u32 = 0o222;

/// The DOS attributes and the creation time that a copy is to get.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CopiedAttributes {
    attributes: FileAttributes,
    /// The attributes that the source knows. Empty when none are copied.
    known: FileAttributes,
    created: Option<SystemTime>,
}

impl AttributePolicy {
    /// The attributes of a file on a server.
    pub(crate) fn of_remote(self, found: &Metadata) -> CopiedAttributes {
        if self == Self::None {
            return CopiedAttributes::default();
        }
        let attributes = found.attributes() & CARRIED;
        // A volume without creation times reports 0, which is not copied.
        let created = Some(found.created()).filter(|time| file_time(*time).0 != 0);
        CopiedAttributes { attributes, known: CARRIED, created }
    }

    /// The attributes of a local file.
    ///
    /// # Errors
    /// An error of the host about the extended attribute.
    pub(crate) fn of_local(self, file: &LocalHandle, mode: u32) -> io::Result<CopiedAttributes> {
        if self == Self::None {
            return Ok(CopiedAttributes::default());
        }
        let read_only =
            if mode & WRITE == 0 { FileAttributes::READONLY } else { FileAttributes::from_bits(0) };
        let kept = if self == Self::Xattr { kept(file)? } else { None };
        let Some(kept) = kept else {
            let known = FileAttributes::READONLY;
            return Ok(CopiedAttributes { attributes: read_only, known, created: None });
        };
        let rest = FileAttributes::from_bits(kept.attributes & CARRIED.bits())
            .without(FileAttributes::READONLY);
        let created = kept.created.filter(|time| time.0 != 0).map(system_time);
        Ok(CopiedAttributes { attributes: rest | read_only, known: CARRIED, created })
    }
}

/// The extended attribute `user.DOSATTRIB` of a local file, if it has one.
fn kept(file: &LocalHandle) -> io::Result<Option<DosAttrib>> {
    let mut value = [0; 256];
    match rustix::fs::fgetxattr(file, dosattrib::NAME, &mut value) {
        Ok(len) => {
            let birth = file.metadata().and_then(|metadata| metadata.created()).ok();
            let value = value.get(..len).and_then(DosAttrib::decode);
            Ok(value.map(|value| value.with_birth(birth.map(file_time))))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

impl CopiedAttributes {
    /// All attributes of a copy on a server that replaces a file with the attributes `old`.
    /// Attributes that the source does not know stay. None when a new file has the same ones.
    pub(crate) fn attributes(&self, old: Option<FileAttributes>) -> Option<FileAttributes> {
        if self.known.is_empty() {
            return None;
        }
        let stays = FileAttributes::HIDDEN | FileAttributes::SYSTEM;
        let stays = (old.unwrap_or_default() & stays).without(self.known);
        let mut all = (self.attributes & self.known) | stays;
        if !self.known.contains(FileAttributes::ARCHIVE) {
            all |= FileAttributes::ARCHIVE;
        }
        (all != FileAttributes::ARCHIVE).then_some(all)
    }

    /// The attributes to set before the copy gets its final name. READONLY is not among them:
    /// an interrupted copy could not be continued.
    pub(crate) fn before(&self, old: Option<FileAttributes>, modified: SystemTime) -> SetMetadata {
        let attributes = self.attributes(old).map(|all| all.without(FileAttributes::READONLY));
        let attributes = attributes.filter(|all| *all != FileAttributes::ARCHIVE);
        SetMetadata::new().created(self.created).modified(modified).attributes(attributes)
    }

    /// The attributes to set after the copy got its final name, if any are left.
    pub(crate) fn after(&self, old: Option<FileAttributes>) -> Option<SetMetadata> {
        let attributes = self.attributes(old)?;
        // MS-FSA 2.1.5.15.12: the rename has set ARCHIVE on the file, so the attributes are set
        // again only if they contain READONLY or lack ARCHIVE.
        let is_other = attributes.contains(FileAttributes::READONLY)
            || !attributes.contains(FileAttributes::ARCHIVE);
        is_other.then_some(SetMetadata::new().attributes(attributes))
    }

    /// All attributes at once, for a copy that was written in one request. None when there are
    /// none to set.
    pub(crate) fn whole(&self) -> Option<SetMetadata> {
        let attributes = self.attributes(None);
        let any = attributes.is_some() || self.created.is_some();
        any.then_some(SetMetadata::new().created(self.created).attributes(attributes))
    }

    /// Sets the attributes of a local copy that replaces a file with the mode `old`.
    ///
    /// # Errors
    /// An error of the host.
    pub(crate) fn put_on(
        &self,
        copy: &LocalHandle,
        old: Option<u32>,
        carry: AttributePolicy,
    ) -> io::Result<()> {
        if carry == AttributePolicy::Xattr && !self.known.is_empty() {
            let created = self.created.map(file_time);
            let attributes = self.attributes.bits();
            let value = DosAttrib { attributes, created, ..DosAttrib::default() };
            let mut room = [0; dosattrib::ENCODED_LEN];
            let value = value.encode(&mut room);
            rustix::fs::fsetxattr(copy, dosattrib::NAME, value, XattrFlags::empty())?;
        }
        let read_only = self
            .known
            .contains(FileAttributes::READONLY)
            .then_some(self.attributes.contains(FileAttributes::READONLY));
        let mode = match (old, read_only) {
            (None, None | Some(false)) => return Ok(()),
            (None, Some(true)) => copy.metadata()?.permissions().mode() & !WRITE,
            (Some(old), None) => old,
            (Some(old), Some(true)) => old & !WRITE,
            (Some(old), Some(false)) if old & WRITE == 0 => old | 0o200,
            (Some(old), Some(false)) => old,
        };
        copy.set_permissions(Permissions::from_mode(mode & 0o777))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: FileAttributes = FileAttributes::READONLY;
    const H: FileAttributes = FileAttributes::HIDDEN;
    const A: FileAttributes = FileAttributes::ARCHIVE;

    fn local(mode: u32) -> CopiedAttributes {
        let file = tempfile::tempfile().unwrap();
        AttributePolicy::Keep.of_local(&file, mode).unwrap()
    }

    #[test]
    fn what_a_local_file_cannot_tell_stays() {
        assert_eq!(local(0o644).attributes(None), None, "as any new file");
        assert_eq!(local(0o444).attributes(None), Some(R | A));
        assert_eq!(local(0o644).attributes(Some(H | R)), Some(H | A), "no more read-only");
        assert_eq!(local(0o444).before(None, SystemTime::now()).attributes, None);
        assert_eq!(local(0o444).after(None).unwrap().attributes, Some(R | A));
        assert_eq!(local(0o644).after(Some(H)), None);
        assert_eq!(CopiedAttributes::default().attributes(Some(H | R)), None);
        assert_eq!(CopiedAttributes::default().whole(), None);
    }

    #[test]
    fn what_a_server_tells_is_all_there_is() {
        let found = |attributes| Metadata::default().with_attributes(attributes);
        let of = |attributes| AttributePolicy::Keep.of_remote(&found(attributes));
        assert_eq!(of(H | R).attributes(None), Some(H | R));
        assert_eq!(of(A).attributes(Some(H)), None);
        assert_eq!(of(FileAttributes::NORMAL).attributes(None), Some(FileAttributes::from_bits(0)));
        assert_eq!(of(FileAttributes::SPARSE_FILE | H).attributes(None), Some(H));
        assert_eq!(AttributePolicy::None.of_remote(&found(H)), CopiedAttributes::default());
    }

    #[test]
    fn modes_of_local_copies() {
        let mode = |dress: CopiedAttributes, old: Option<u32>| {
            let file = tempfile::tempfile().unwrap();
            file.set_permissions(Permissions::from_mode(0o640)).unwrap();
            dress.put_on(&file, old, AttributePolicy::Keep).unwrap();
            file.metadata().unwrap().permissions().mode() & 0o7777
        };
        let of = |attributes| {
            AttributePolicy::Keep.of_remote(&Metadata::default().with_attributes(attributes))
        };
        assert_eq!(mode(of(A), None), 0o640);
        assert_eq!(mode(of(R), None), 0o440);
        assert_eq!(mode(of(A), Some(0o755)), 0o755, "a program stays one");
        assert_eq!(mode(of(A), Some(0o600)), 0o600, "what is private stays so");
        assert_eq!(mode(of(R), Some(0o755)), 0o555);
        assert_eq!(mode(of(A), Some(0o4500)), 0o700);
        assert_eq!(mode(CopiedAttributes::default(), Some(0o400)), 0o400);
    }

    #[test]
    fn what_linux_has_no_place_for_is_in_an_extended_attribute() {
        let dir = tempfile::tempdir().unwrap();
        let file = LocalHandle::create_new(dir.path().join("file")).unwrap();
        let created = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        let dress = CopiedAttributes { attributes: H | A, known: CARRIED, created: Some(created) };
        match dress.put_on(&file, None, AttributePolicy::Xattr) {
            // If the file system cannot store the attribute, the rest of the test is skipped.
            Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => return,
            done => done.unwrap(),
        }
        assert_eq!(AttributePolicy::Xattr.of_local(&file, 0o644).unwrap(), dress);
        let read_only = AttributePolicy::Xattr.of_local(&file, 0o444).unwrap();
        assert_eq!(read_only.attributes, H | A | R, "the mode says that");
        assert_eq!(AttributePolicy::Keep.of_local(&file, 0o644).unwrap().known, R);
    }
}
