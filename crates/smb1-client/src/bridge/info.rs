//! QUERY_INFO and SET_INFO.

use std::sync::atomic::Ordering;

use frevo_smb1::Charset;
use frevo_smb1::data;
use frevo_smb1::info::{self, AllInfo, Allocation, FsLevel, QueryLevel, SetLevel, Subject};
use frevo_smb1::negotiate::Capabilities;
use frevo_wire::Status;
use frevo_wire::codec::Writer;
use frevo_wire::command::query_info::{self, InfoType};
use frevo_wire::command::set_info;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::query::{
    FileAccessInformation, FileAlignmentInformation, FileAllInformation,
    FileAttributeTagInformation, FileBasicInformation, FileEaInformation, FileInternalInformation,
    FileMode, FileModeInformation, FileNetworkOpenInformation, FilePositionInformation,
    FileStandardInformation,
};
use frevo_wire::fscc::reparse::ReparseTag;
use frevo_wire::fscc::set::FileRenameInformation;
use frevo_wire::fscc::volume::{FsFullSizeInformation, FsSizeInformation};
use frevo_wire::fscc::{FileInfoClass, FsInfoClass};

use super::open::attributes;
use super::reply::Good;
use super::server::{Failed, Open, Server, named};

impl Server {
    pub(super) async fn query_info(
        &self,
        message: &[u8],
        related: Option<FileId>,
    ) -> Result<Good, Failed> {
        let request = query_info::Request::parse(message)?;
        let open = self.open(named(request.file_id, related))?;
        let mut output = match request.info_type {
            InfoType::FILE => {
                self.query_file(&open, FileInfoClass(request.file_info_class)).await?
            }
            InfoType::FILESYSTEM => {
                self.query_volume(&open, FsInfoClass(request.file_info_class)).await?
            }
            _ => return Err(Failed::Status(Status::NOT_SUPPORTED)),
        };
        let most = usize::try_from(request.output_buffer_length).unwrap_or(usize::MAX);
        let is_cut = output.len() > most;
        output.truncate(most);
        let good = Good::of(|w| query_info::Response { output: &output }.encode(w));
        Ok(if is_cut { good.with_status(Status::BUFFER_OVERFLOW) } else { good })
    }

    /// Changes what a server without the commands of NT can change: the length, and it removes a file by
    /// its name, after the file was closed. Times and attributes stay as they are.
    async fn set_old(
        &self,
        open: &Open,
        class: FileInfoClass,
        buffer: &[u8],
    ) -> Result<(), Failed> {
        match class {
            FileInfoClass::DISPOSITION => {
                open.removes.store(buffer.first() == Some(&1), Ordering::Relaxed);
            }
            FileInfoClass::END_OF_FILE => {
                let len = buffer.first_chunk().map_or(0, |len| u64::from_le_bytes(*len));
                let len = u32::try_from(len).map_err(|_| Status::FILE_TOO_LARGE)?;
                self.ask(open.tree.number, &data::set_length(open.fid()?, len)).await?;
                open.len.store(len.into(), Ordering::Relaxed);
            }
            _ => {}
        }
        Ok(())
    }

    async fn query_file(&self, open: &Open, class: FileInfoClass) -> Result<Vec<u8>, Failed> {
        if class == FileInfoClass::STREAM {
            return self.query_streams(open).await;
        }
        let known = matches!(
            class,
            FileInfoClass::ALL
                | FileInfoClass::BASIC
                | FileInfoClass::STANDARD
                | FileInfoClass::NETWORK_OPEN
                | FileInfoClass::ATTRIBUTE_TAG
        );
        if !known {
            return Err(Failed::Status(Status::INVALID_INFO_CLASS));
        }
        Ok(encoded(&self.look_at(open).await?, class))
    }

    /// Returns the named streams, whose form is the same in SMB 2: MS-CIFS 2.2.8.3.12.
    async fn query_streams(&self, open: &Open) -> Result<Vec<u8>, Failed> {
        if !self.has(Capabilities::NT_SMBS) || self.charset() != Charset::Unicode {
            return Err(Failed::Status(Status::INVALID_INFO_CLASS));
        }
        let place = Subject::Open(open.fid()?);
        let request = info::query(self.charset(), place, QueryLevel::STREAM)?;
        let answer = self.ask(open.tree.number, &request).await?;
        Ok(answer.results().data.clone())
    }

    async fn query_volume(&self, open: &Open, class: FsInfoClass) -> Result<Vec<u8>, Failed> {
        // The structures of SMB1 are those of MS-FSCC 2.5.
        let level = match class {
            FsInfoClass::SIZE | FsInfoClass::FULL_SIZE => {
                let size = self.volume_size(open).await?;
                return Ok(encoded_size(&size, class));
            }
            FsInfoClass::DEVICE => FsLevel::DEVICE,
            // Their labels are UTF-16 in SMB 2.
            _ if self.charset() != Charset::Unicode => {
                return Err(Failed::Status(Status::INVALID_INFO_CLASS));
            }
            FsInfoClass::VOLUME => FsLevel::VOLUME,
            FsInfoClass::ATTRIBUTE => FsLevel::ATTRIBUTE,
            _ => return Err(Failed::Status(Status::INVALID_INFO_CLASS)),
        };
        let request = info::query_fs(self.charset(), level)?;
        let answer = self.ask(open.tree.number, &request).await?;
        Ok(answer.results().data.clone())
    }

    async fn volume_size(&self, open: &Open) -> Result<FsSizeInformation, Failed> {
        let is_new = self.has(Capabilities::NT_SMBS);
        let level = if is_new { FsLevel::SIZE } else { FsLevel::ALLOCATION };
        let answer = self.ask(open.tree.number, &info::query_fs(self.charset(), level)?).await?;
        let data = &answer.results().data;
        if is_new {
            return Ok(FsSizeInformation::parse(data)?);
        }
        let found = Allocation::parse(data)?;
        Ok(FsSizeInformation {
            total_allocation_units: found.units.into(),
            available_allocation_units: found.available.into(),
            sectors_per_allocation_unit: found.sectors_per_unit,
            bytes_per_sector: found.bytes_per_sector.into(),
        })
    }

    pub(super) async fn set_info(
        &self,
        message: &[u8],
        related: Option<FileId>,
    ) -> Result<Good, Failed> {
        let request = set_info::Request::parse(message)?;
        let open = self.open(named(request.file_id, related))?;
        if request.info_type != InfoType::FILE {
            return Err(Failed::Status(Status::NOT_SUPPORTED));
        }
        let class = FileInfoClass(request.file_info_class);
        let buffer = request.buffer;
        // The structures of SMB1 are those of MS-FSCC 2.4.
        let level = match class {
            FileInfoClass::RENAME => {
                let asked = FileRenameInformation::parse(buffer)?;
                let name = asked.name.decode()?;
                self.rename(&open, &name, asked.replace_if_exists).await?;
                return Ok(Good::of(|w| set_info::Response.encode(w)));
            }
            FileInfoClass::BASIC => SetLevel::BASIC,
            FileInfoClass::DISPOSITION => SetLevel::DISPOSITION,
            FileInfoClass::ALLOCATION => SetLevel::ALLOCATION,
            FileInfoClass::END_OF_FILE => SetLevel::END_OF_FILE,
            _ => return Err(Failed::Status(Status::INVALID_INFO_CLASS)),
        };
        if !self.has(Capabilities::NT_SMBS) {
            self.set_old(&open, class, buffer).await?;
            return Ok(Good::of(|w| set_info::Response.encode(w)));
        }
        let place = Subject::Open(open.fid()?);
        let request = info::set(self.charset(), place, level, buffer)?;
        self.ask(open.tree.number, &request).await?;
        if class == FileInfoClass::END_OF_FILE
            && let Some(len) = buffer.first_chunk()
        {
            open.len.store(u64::from_le_bytes(*len), Ordering::Relaxed);
        }
        Ok(Good::of(|w| set_info::Response.encode(w)))
    }
}

/// Returns metadata in a class of SMB 2.
fn encoded(found: &AllInfo, class: FileInfoClass) -> Vec<u8> {
    let attributes = attributes(found.attributes, found.is_directory);
    let basic = FileBasicInformation {
        creation_time: found.created,
        last_access_time: found.accessed,
        last_write_time: found.written,
        change_time: found.changed,
        attributes,
    };
    let standard = FileStandardInformation {
        allocation_size: found.allocation,
        end_of_file: found.len,
        number_of_links: found.links,
        delete_pending: false,
        directory: found.is_directory,
    };
    let mut output = Vec::new();
    let w = &mut Writer::new(&mut output);
    match class {
        FileInfoClass::BASIC => basic.encode(w),
        FileInfoClass::STANDARD => standard.encode(w),
        FileInfoClass::NETWORK_OPEN => FileNetworkOpenInformation {
            creation_time: found.created,
            last_access_time: found.accessed,
            last_write_time: found.written,
            change_time: found.changed,
            allocation_size: found.allocation,
            end_of_file: found.len,
            attributes,
        }
        .encode(w),
        FileInfoClass::ATTRIBUTE_TAG => {
            FileAttributeTagInformation { attributes, reparse_tag: ReparseTag(0) }.encode(w);
        }
        _ => FileAllInformation {
            basic,
            standard,
            internal: FileInternalInformation { index_number: 0 },
            ea: FileEaInformation { ea_size: found.ea_size },
            access: FileAccessInformation { access: AccessMask(0) },
            position: FilePositionInformation { current_byte_offset: 0 },
            mode: FileModeInformation { mode: FileMode::EMPTY },
            alignment: FileAlignmentInformation { alignment_requirement: 0 },
            name: "",
        }
        .encode(w),
    }
    output
}

fn encoded_size(size: &FsSizeInformation, class: FsInfoClass) -> Vec<u8> {
    let mut output = Vec::new();
    let w = &mut Writer::new(&mut output);
    if class == FsInfoClass::SIZE {
        size.encode(w);
        return output;
    }
    FsFullSizeInformation {
        total_allocation_units: size.total_allocation_units,
        caller_available_allocation_units: size.available_allocation_units,
        actual_available_allocation_units: size.available_allocation_units,
        sectors_per_allocation_unit: size.sectors_per_allocation_unit,
        bytes_per_sector: size.bytes_per_sector,
    }
    .encode(w);
    output
}
