//! Memory of a client that READ and WRITE name for RDMA: MS-SMB2 3.3.5.12, 3.3.5.13.

use frevo_proto::Dialect;
use frevo_wire::command::read::{self, Channel};
use frevo_wire::command::write;
use frevo_wire::smbd::BufferDescriptor;
use frevo_wire::{HeaderFlags, Status};

use crate::request::Request;

/// Memory that a client has registered for one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientMemory {
    /// Its parts, in the order of the data. Their sum is at least the length that is asked for.
    pub(crate) buffers: Vec<BufferDescriptor>,
    /// The key to invalidate with the response.
    pub(crate) invalidates: Option<u32>,
}

/// The memory that a READ names; None if the response is to have the data.
pub(crate) fn of_read(
    rq: &Request<'_>,
    request: &read::Request<'_>,
) -> Result<Option<ClientMemory>, Status> {
    if !is_rdma(rq, request.channel)? {
        return Ok(None);
    }
    memory(request.channel, request.length, request.channel_info).map(Some)
}

/// The memory that a WRITE names; None if the request has the data.
pub(crate) fn of_write(
    rq: &Request<'_>,
    request: &write::Request<'_>,
) -> Result<Option<ClientMemory>, Status> {
    if !is_rdma(rq, request.channel)? {
        return Ok(None);
    }
    let max = rq.connection.negotiated()?.terms.max_write_size;
    if !request.data.is_empty() || request.data_offset != 0 || request.remaining_bytes > max {
        return Err(Status::INVALID_PARAMETER);
    }
    let memory = memory(request.channel, request.remaining_bytes, request.channel_info)?;
    if memory.buffers.first().is_none_or(|first| first.length == 0) {
        return Err(Status::INVALID_PARAMETER);
    }
    Ok(Some(memory))
}

/// True if the data moves by RDMA. Fails for a channel that is not there.
fn is_rdma(rq: &Request<'_>, channel: Channel) -> Result<bool, Status> {
    let is_known = match channel {
        Channel::NONE => return Ok(false),
        Channel::RDMA_V1 => rq.connection.is_smb3(),
        Channel::RDMA_V1_INVALIDATE => {
            matches!(rq.dialect(), Dialect::SMB_3_0_2 | Dialect::SMB_3_1_1)
        }
        _ => false,
    };
    // Deviation: without RDMA transforms the data would travel in the clear although the client
    // wants it signed or sealed. Windows and Linux send such data in the message.
    let is_protected = rq.encrypted || rq.header.flags.contains(HeaderFlags::SIGNED);
    if is_known && rq.connection.is_rdma && !is_protected {
        return Ok(true);
    }
    Err(Status::INVALID_PARAMETER)
}

fn memory(channel: Channel, length: u32, info: &[u8]) -> Result<ClientMemory, Status> {
    let buffers = BufferDescriptor::parse_all(info).map_err(|_| Status::INVALID_PARAMETER)?;
    let sum: u64 = buffers.iter().map(|buffer| u64::from(buffer.length)).sum();
    if length == 0 || sum < u64::from(length) {
        return Err(Status::INVALID_PARAMETER);
    }
    let first = buffers.first().map(|buffer| buffer.token);
    let invalidates = first.filter(|_| channel == Channel::RDMA_V1_INVALIDATE);
    Ok(ClientMemory { buffers, invalidates })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(lengths: &[u32]) -> Vec<u8> {
        let buffer = |(at, length): (usize, &u32)| {
            let token = u32::try_from(at).unwrap() + 7;
            BufferDescriptor { offset: 4096, token, length: *length }.to_bytes()
        };
        lengths.iter().enumerate().flat_map(buffer).collect()
    }

    #[test]
    fn descriptors_must_have_room_for_the_data() {
        let with = |lengths: &[u32], length| memory(Channel::RDMA_V1, length, &info(lengths));
        assert!(with(&[100], 99).is_ok() && with(&[100], 100).is_ok());
        assert_eq!(with(&[100], 101), Err(Status::INVALID_PARAMETER));
        assert!(with(&[60, 40], 100).is_ok());
        assert!(with(&[u32::MAX, u32::MAX], u32::MAX).is_ok());
        assert_eq!(with(&[60, 40], 101), Err(Status::INVALID_PARAMETER));
        assert_eq!(with(&[], 1), Err(Status::INVALID_PARAMETER));
        assert_eq!(with(&[100], 0), Err(Status::INVALID_PARAMETER));
        let cut = info(&[100]);
        assert!(memory(Channel::RDMA_V1, 1, &cut[..15]).is_err());
    }

    #[test]
    fn the_first_key_is_invalidated_where_the_client_wants_it() {
        let of = |channel| memory(channel, 1, &info(&[1, 1])).unwrap().invalidates;
        assert_eq!(of(Channel::RDMA_V1), None);
        assert_eq!(of(Channel::RDMA_V1_INVALIDATE), Some(7));
    }
}
