//! Server-side copy: SRV_COPYCHUNK_COPY, its answer, and the resume key that identifies the source,
//! MS-SMB2 2.2.31.1, 2.2.32.1 and 2.2.32.3.

use crate::codec::{Malformed, Parsed, Reader, Writer};
use crate::command::field_u32;
use alloc::vec::Vec;

/// The key of a copy's source file, which the server chooses.
pub type ResumeKey = [u8; 24];

/// SRV_COPYCHUNK, 2.2.31.1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Offset in the source, bytes.
    pub source_offset: u64,
    /// Offset in the target, bytes.
    pub target_offset: u64,
    /// Length in bytes.
    pub length: u32,
}

/// Bytes of a chunk.
const CHUNK_LEN: usize = 24;

/// SRV_COPYCHUNK_COPY: input of SRV_COPYCHUNK and SRV_COPYCHUNK_WRITE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyRequest {
    /// The key of the source file.
    pub source_key: ResumeKey,
    /// The ranges to copy. The server limits their number and length.
    pub chunks: Vec<Chunk>,
}

impl CopyRequest {
    /// Parses the input. Allocates only chunks that the input contains.
    pub fn parse(input: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(input);
        let source_key = r.array("SourceKey")?;
        let count = usize::try_from(r.u32("ChunkCount")?).unwrap_or(usize::MAX);
        r.skip(4, "Reserved")?;
        if count > r.remaining() / CHUNK_LEN {
            return Err(Malformed::new("ChunkCount"));
        }
        let mut chunks = Vec::with_capacity(count);
        for _ in 0..count {
            let source_offset = r.u64("SourceOffset")?;
            let target_offset = r.u64("TargetOffset")?;
            let length = r.u32("chunk Length")?;
            r.skip(4, "chunk Reserved")?;
            chunks.push(Chunk { source_offset, target_offset, length });
        }
        Ok(Self { source_key, chunks })
    }

    /// Appends the input buffer to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&self.source_key).u32(field_u32(self.chunks.len())).u32(0);
        for chunk in &self.chunks {
            w.u64(chunk.source_offset).u64(chunk.target_offset).u32(chunk.length).u32(0);
        }
    }
}

/// SRV_COPYCHUNK_RESPONSE. With STATUS_INVALID_PARAMETER the fields are the
/// server's limits: chunks, bytes of a chunk, bytes in total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyResponse {
    /// Number of chunks written.
    pub chunks_written: u32,
    /// Bytes written of the chunk that failed.
    pub chunk_bytes_written: u32,
    /// Bytes written in all.
    pub total_bytes_written: u32,
}

impl CopyResponse {
    /// Parses the output buffer of the FSCTL.
    pub fn parse(output: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(output);
        Ok(Self {
            chunks_written: r.u32("ChunksWritten")?,
            chunk_bytes_written: r.u32("ChunkBytesWritten")?,
            total_bytes_written: r.u32("TotalBytesWritten")?,
        })
    }

    /// Appends the output buffer to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.chunks_written).u32(self.chunk_bytes_written).u32(self.total_bytes_written);
    }
}

/// SRV_REQUEST_RESUME_KEY response. There is no context information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumeKeyResponse {
    /// The key of the source file.
    pub resume_key: ResumeKey,
}

impl ResumeKeyResponse {
    /// Parses the output; ContextLength is to be ignored.
    pub fn parse(output: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(output);
        Ok(Self { resume_key: r.array("ResumeKey")? })
    }

    /// Appends the output: 32 bytes, because Windows reserves four for an empty
    /// context and clients ask for as many.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&self.resume_key).u32(0).u32(0);
    }
}
