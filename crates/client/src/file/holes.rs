//! Disk space of open files, holes and snapshots: FSCTLs on their Opens.

use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::fsctl::AllocatedRange;

use crate::Status;
use crate::error::{Cause, During, Error, Result};
use crate::file::File;
use crate::open::fsctl::{control, output, signed, snapshots};

/// Space for one answer about holes, bytes.
const RANGES: u32 = 65_536;
/// Most ranges between holes that are returned for one file.
const RANGES_KEPT: usize = 1 << 20;

impl File {
    /// Returns the snapshots that contain the file, as `@GMT-` tokens.
    ///
    /// # Errors
    /// Fails if the server answers with an error, or is lost and does not come back in time.
    pub async fn snapshots(&self) -> Result<Vec<String>> {
        snapshots(&self.open).await
    }

    /// Returns the allocated parts of a range, those that are not holes: offsets and lengths,
    /// in order. After 1,048,576 parts the rest counts as one.
    ///
    /// # Errors
    /// Fails if the server answers with an error, or is lost and does not come back in time.
    pub async fn allocated(&self, offset: u64, len: u64) -> Result<Vec<(u64, u64)>> {
        const OPERATION: &str = "look for holes in";
        let end = offset.saturating_add(len);
        let mut found: Vec<(u64, u64)> = Vec::new();
        let mut from = offset;
        while from < end {
            let mut input = Vec::new();
            AllocatedRange { file_offset: signed(from)?, length: signed(end - from)? }
                .encode(&mut Writer::new(&mut input));
            let code = CtlCode::QUERY_ALLOCATED_RANGES;
            let also = [Status::BUFFER_OVERFLOW];
            let message = control(&self.open, OPERATION, code, &input, RANGES, &also).await?;
            let told = output(&message).during(OPERATION, self.url())?;
            let before = found.len();
            for range in told.chunks_exact(AllocatedRange::SIZE) {
                let range = AllocatedRange::parse(range).during(OPERATION, self.url())?;
                let numbers = u64::try_from(range.file_offset).ok();
                let numbers = numbers.zip(u64::try_from(range.length).ok());
                let (at, count) = numbers
                    .filter(|(at, count)| *count > 0 && at.saturating_add(*count) > from)
                    .ok_or_else(|| {
                        let cause = Cause::Protocol(
                            "it returned a range outside the one that was asked for",
                        );
                        Error::new(cause, OPERATION, self.url())
                    })?;
                found.push((at, count));
                from = at.saturating_add(count);
            }
            if found.len() >= RANGES_KEPT && from < end {
                found.push((from, end - from));
                break;
            }
            let is_all = message.status() != Status::BUFFER_OVERFLOW;
            if is_all || found.len() == before {
                break;
            }
        }
        Ok(found)
    }

    /// Reserves disk space for `len` bytes without extending the file.
    ///
    /// # Errors
    /// Fails with [`Status::DISK_FULL`] (`StorageFull`) if there is no space.
    pub async fn reserve(&self, len: u64) -> Result<()> {
        let data = signed(len)?.to_le_bytes().to_vec();
        self.set_info(FileInfoClass::ALLOCATION, "reserve space for", data).await
    }

    /// Makes the file sparse: ranges that are never written take no disk space.
    ///
    /// # Errors
    /// Fails if the server's file system has no sparse files.
    pub async fn set_sparse(&self) -> Result<()> {
        control(&self.open, "make holes in", CtlCode::SET_SPARSE, &[], 0, &[]).await?;
        Ok(())
    }

    /// Makes the range a hole: it gives its disk space back and reads as zeros.
    ///
    /// # Errors
    /// Fails if the server answers with an error, or is lost and does not come back in time.
    pub async fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.set_sparse().await?;
        let mut input = Vec::new();
        Writer::new(&mut input).u64(offset).u64(offset.saturating_add(len));
        let code = CtlCode::SET_ZERO_DATA;
        control(&self.open, "make holes in", code, &input, 0, &[]).await?;
        Ok(())
    }
}
