//! Questions of a file system on top of a share: everything about a name in one round trip,
//! and the space on the volume.

use frevo_wire::command::query_info::InfoType;
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::fscc::query::FileAttributeTagInformation;
use frevo_wire::fscc::volume::{FsFullSizeInformation, FsSizeInformation};
use frevo_wire::fscc::{FileInfoClass, FsInfoClass};

use crate::Status;
use crate::connection::{Call, Message};
use crate::error::{Cause, During, Result};
use crate::metadata::Metadata;
use crate::metadata::posix::read_posix;
use crate::open::Open;
use crate::open::create::Ask;
use crate::open::fsctl::snapshots;
use crate::open::info::{output, query, read_all};
use crate::share::compound::{RELATED, close_call, look_at};
use crate::share::posix::STAT_MAX;
use crate::share::read_only::is_unknown_class;
use crate::share::{Replay, Share};

/// The space on the volume of a share, in allocation units: MS-FSCC 2.5.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskSpace {
    /// Bytes of an allocation unit.
    pub unit: u64,
    /// Allocation units of the volume, or of the user's quota.
    pub total: u64,
    /// Allocation units that are free.
    pub free: u64,
    /// Allocation units that this user may still fill.
    pub available: u64,
}

impl DiskSpace {
    /// Returns the size of the volume in bytes.
    pub const fn total_bytes(&self) -> u64 {
        self.total.saturating_mul(self.unit)
    }

    /// Returns the bytes that this user may still fill.
    pub const fn available_bytes(&self) -> u64 {
        self.available.saturating_mul(self.unit)
    }
}

/// Space for FileAllInformation with the longest path, bytes: it costs one credit, and is never too
/// small.
const ALL_WITH_PATH: u32 = 65_536;

/// Requests for all metadata of the file that a compound is about; `posix` if its Open is a POSIX
/// one.
pub(crate) fn looks(posix: bool) -> Vec<Call<'static>> {
    let ask_for =
        |class: FileInfoClass, most| query(InfoType::FILE, class.0, 0, RELATED, &[], most);
    if posix {
        return vec![ask_for(FileInfoClass::POSIX, STAT_MAX)];
    }
    vec![ask_for(FileInfoClass::ALL, ALL_WITH_PATH)]
}

/// Request for the reparse tag of the file that a compound is about, which only a reparse point has.
pub(crate) fn look_at_tag() -> Call<'static> {
    let size = FileAttributeTagInformation::SIZE as u32;
    query(InfoType::FILE, FileInfoClass::ATTRIBUTE_TAG.0, 0, RELATED, &[], size)
}

/// The reparse tag in the answer to [`look_at_tag`].
pub(crate) fn tag_seen(answer: &Message) -> std::result::Result<u32, Cause> {
    Ok(FileAttributeTagInformation::parse(output(answer)?)?.reparse_tag.0)
}

/// The metadata in the answers to [`looks`], which are the first of `answers`.
pub(crate) fn seen(answers: &[Message], posix: bool) -> std::result::Result<Metadata, Cause> {
    let few = Cause::Protocol("it did not answer every request");
    if posix {
        let [found, ..] = answers else { return Err(few) };
        return Ok(read_posix(output(found)?)?);
    }
    let [all, ..] = answers else { return Err(few) };
    Ok(read_all(output(all)?)?)
}

/// Adds the reparse tag of an Open's file to what was found of it, if that is a reparse point and the
/// server tells its tag.
pub(crate) async fn with_tag_of(open: &Open, operation: &'static str, found: Metadata) -> Metadata {
    let is_point = found.attributes.contains(FileAttributes::REPARSE_POINT);
    if !is_point || found.reparse_tag != 0 {
        return found;
    }
    let (class, size) = (FileInfoClass::ATTRIBUTE_TAG.0, FileAttributeTagInformation::SIZE as u32);
    let ask = |id| Ok(query(InfoType::FILE, class, 0, id, &[], size));
    let answer = open.ask(Replay::Idempotent, operation, &[], ask).await;
    match answer.ok().and_then(|answer| tag_seen(&answer).ok()) {
        Some(tag) => found.with_reparse_tag(tag),
        None => found,
    }
}

impl Share {
    /// Returns the snapshots that contain `path`, as `@GMT-` tokens.
    ///
    /// # Errors
    /// Fails if the server answers with an error, or is lost and does not come back in time.
    pub async fn snapshots(&self, path: &str) -> Result<Vec<String>> {
        let ask = Ask::existing(AccessMask::READ_DATA | AccessMask::READ_ATTRIBUTES);
        let (open, _) = Open::new(self, path, ask, "list the snapshots of").await?;
        snapshots(&open).await
    }

    /// Returns the metadata of `path`, with the file's number, its links and its reparse tag,
    /// which [`Self::metadata`] leaves out. A symbolic link is not followed.
    ///
    /// # Errors
    /// Fails if the server answers with an error, or is lost and does not come back in time.
    pub async fn lookup(&self, path: &str) -> Result<Metadata> {
        const OPERATION: &str = "look up";
        let (ask, posix) = (look_at(AccessMask::EMPTY), self.is_posix());
        let calls = || {
            let mut all = looks(posix);
            all.push(close_call());
            all
        };
        let also = [Status::BUFFER_OVERFLOW];
        let answers = self.chain(OPERATION, path, Replay::Idempotent, &ask, &also, calls).await?;
        let looked = answers.messages.get(1..).unwrap_or_default();
        let found = answers.found(seen(looked, posix).during(OPERATION, &self.url(path))?);
        self.with_tag(OPERATION, path, found).await
    }

    /// Adds the reparse tag of `path` to what was found of it, if that is a reparse point without one.
    /// A server that does not know the class tells no tag.
    ///
    /// # Errors
    /// Fails if the server answers with another error, or is lost and does not come back in time.
    pub(crate) async fn with_tag(
        &self,
        operation: &'static str,
        path: &str,
        found: Metadata,
    ) -> Result<Metadata> {
        let is_point = found.attributes.contains(FileAttributes::REPARSE_POINT);
        if !is_point || found.reparse_tag != 0 {
            return Ok(found);
        }
        let access = AccessMask::READ_ATTRIBUTES;
        match self.ask_of_name(operation, path, access, &[], look_at_tag).await {
            Ok(answer) => {
                let tag = tag_seen(&answer).during(operation, &self.url(path))?;
                Ok(found.with_reparse_tag(tag))
            }
            Err(error) if is_unknown_class(&error) => Ok(found),
            Err(error) => Err(error),
        }
    }

    /// Returns the space on the volume that `path` is on.
    ///
    /// # Errors
    /// Fails if the server answers with an error, or is lost and does not come back in time.
    pub async fn disk_space(&self, path: &str) -> Result<DiskSpace> {
        match self.full_size(path).await {
            // impacket's server answers this class with the structure of the older class, which is
            // shorter and cannot be parsed here. So the older class is requested.
            Err(error)
                if is_unknown_class(&error) || matches!(error.cause(), Cause::Protocol(_)) =>
            {
                self.size(path).await
            }
            found => found,
        }
    }

    /// FileFsFullSizeInformation, MS-FSCC 2.5.4.
    async fn full_size(&self, path: &str) -> Result<DiskSpace> {
        let message =
            self.ask_for_space(path, FsInfoClass::FULL_SIZE, FsFullSizeInformation::SIZE).await?;
        let size = output(&message)
            .and_then(|bytes| Ok(FsFullSizeInformation::parse(bytes)?))
            .during(SPACE, &self.url(path))?;
        Ok(DiskSpace {
            unit: unit(size.sectors_per_allocation_unit, size.bytes_per_sector),
            total: size.total_allocation_units,
            free: size.actual_available_allocation_units,
            available: size.caller_available_allocation_units,
        })
    }

    /// FileFsSizeInformation, MS-FSCC 2.5.8, which tells the space of this user alone.
    async fn size(&self, path: &str) -> Result<DiskSpace> {
        let message = self.ask_for_space(path, FsInfoClass::SIZE, FsSizeInformation::SIZE).await?;
        let size = output(&message)
            .and_then(|bytes| Ok(FsSizeInformation::parse(bytes)?))
            .during(SPACE, &self.url(path))?;
        Ok(DiskSpace {
            unit: unit(size.sectors_per_allocation_unit, size.bytes_per_sector),
            total: size.total_allocation_units,
            free: size.available_allocation_units,
            available: size.available_allocation_units,
        })
    }

    async fn ask_for_space(&self, path: &str, class: FsInfoClass, most: usize) -> Result<Message> {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let ask = || query(InfoType::FILESYSTEM, class.0, 0, RELATED, &[], most);
        self.ask_of_name(SPACE, path, AccessMask::READ_ATTRIBUTES, &[], ask).await
    }
}

/// The operation of an error of [`Share::disk_space`].
const SPACE: &str = "get the disk space of";

fn unit(sectors: u32, bytes_per_sector: u32) -> u64 {
    u64::from(sectors) * u64::from(bytes_per_sector)
}
