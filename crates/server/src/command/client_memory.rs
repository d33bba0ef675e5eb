//! Memory of a client that READ and WRITE name for RDMA: MS-SMB2 3.3.5.12, 3.3.5.13.

use frevo_proto::Dialect;
use frevo_proto::protection::Protection;
use frevo_proto::rdma_transform::{DataProof, sole};
use frevo_wire::command::read::{self, Channel};
use frevo_wire::command::write;
use frevo_wire::rdma_transform::{RdmaTransform, RdmaTransformType};
use frevo_wire::smbd::BufferDescriptor;
use frevo_wire::{HeaderFlags, Status};

use crate::command::request::Request;

/// Memory that a client has registered for one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientMemory {
    /// Its parts, in the order of the data. Their sum is at least the length that is asked for.
    pub(crate) buffers: Vec<BufferDescriptor>,
    /// The key to invalidate with the response.
    pub(crate) invalidates: Option<u32>,
    /// The protection of the data that is there.
    pub(crate) transform: DataTransform,
}

/// The protection of data in a client's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataTransform {
    /// None: the client wants none.
    None,
    /// READ: the server is to protect the data so.
    Wanted(RdmaTransformType),
    /// WRITE: the client has protected the data.
    Received(DataProof),
}

impl DataTransform {
    /// The protection as the log names it.
    pub(crate) fn name(&self) -> &'static str {
        let kind = match self {
            Self::None => return "none",
            Self::Wanted(kind) => *kind,
            Self::Received(proof) => proof.kind(),
        };
        if kind == RdmaTransformType::ENCRYPTION { "encryption" } else { "signature" }
    }
}

/// The memory that a READ names; None if the response is to have the data.
pub(crate) fn of_read(
    rq: &Request<'_>,
    request: &read::Request<'_>,
) -> Result<Option<ClientMemory>, Status> {
    if !names_memory(rq, request.channel)? {
        return Ok(None);
    }
    let transform = needed(rq)?.map_or(DataTransform::None, DataTransform::Wanted);
    memory(request.channel, request.length, request.channel_info, transform).map(Some)
}

/// The memory that a WRITE names; None if the request has the data.
pub(crate) fn of_write(
    rq: &Request<'_>,
    request: &write::Request<'_>,
) -> Result<Option<ClientMemory>, Status> {
    let is_transformed = request.channel == Channel::RDMA_TRANSFORM;
    if !is_transformed && !names_memory(rq, request.channel)? {
        return Ok(None);
    }
    let negotiated = rq.connection.negotiated()?;
    if !rq.connection.moves_data()
        || !request.data.is_empty()
        || request.data_offset != 0
        || request.remaining_bytes > negotiated.terms.max_write_size
    {
        return Err(Status::INVALID_PARAMETER);
    }
    let length = request.remaining_bytes;
    let memory = match (is_transformed, needed(rq)?) {
        (false, None) => {
            memory(request.channel, length, request.channel_info, DataTransform::None)?
        }
        (true, Some(kind)) => {
            transformed(length, request.channel_info, kind, negotiated.terms.cipher)?
        }
        // Deviation: RDMA data must be protected exactly if its message is signed or encrypted. A
        // transform without protection, or the reverse, is refused.
        (false, Some(_)) | (true, None) => return Err(Status::INVALID_PARAMETER),
    };
    Ok(Some(memory))
}

/// True if the data moves by RDMA without a transform before the descriptors. Fails for a channel
/// that is not there.
fn names_memory(rq: &Request<'_>, channel: Channel) -> Result<bool, Status> {
    let is_known = match channel {
        Channel::NONE => return Ok(false),
        Channel::RDMA_V1 => rq.connection.is_smb3(),
        Channel::RDMA_V1_INVALIDATE => {
            matches!(rq.dialect(), Dialect::SMB_3_0_2 | Dialect::SMB_3_1_1)
        }
        _ => false,
    };
    if is_known && rq.connection.moves_data() { Ok(true) } else { Err(Status::INVALID_PARAMETER) }
}

/// The transform that the data of this request needs. Fails if the data must not move by RDMA.
fn needed(rq: &Request<'_>) -> Result<Option<RdmaTransformType>, Status> {
    let protection = if rq.encrypted {
        Protection::Sealed
    } else if rq.header.flags.contains(HeaderFlags::SIGNED) {
        Protection::Signed
    } else {
        Protection::None
    };
    // Deviation: if the client signs or encrypts but negotiated no RDMA transform, its data would
    // travel unprotected, so the request is refused. Windows and Linux then send the data in the
    // message.
    let transforms = rq.connection.negotiated()?.terms.rdma_transforms;
    transforms.needed(protection).map_err(|_| Status::INVALID_PARAMETER)
}

/// MS-SMB2 3.3.5.13: an SMB2_RDMA_TRANSFORM of one kind, and the memory behind it.
fn transformed(
    length: u32,
    info: &[u8],
    kind: RdmaTransformType,
    cipher: Option<frevo_crypto::Cipher>,
) -> Result<ClientMemory, Status> {
    let transform = RdmaTransform::parse(info).map_err(|_| Status::INVALID_PARAMETER)?;
    let only = sole(&transform, kind).ok_or(Status::INVALID_PARAMETER)?;
    if !matches!(transform.channel, Channel::RDMA_V1 | Channel::RDMA_V1_INVALIDATE) {
        return Err(Status::INVALID_PARAMETER);
    }
    let channel = transform.channel;
    let memory = memory(channel, length, transform.descriptors, DataTransform::None)?;
    let proof = DataProof::received(&only, cipher).map_err(|_| mismatch(kind))?;
    Ok(ClientMemory { transform: DataTransform::Received(proof), ..memory })
}

/// The status of data that is not what the client has protected.
pub(crate) fn mismatch(kind: RdmaTransformType) -> Status {
    if kind == RdmaTransformType::ENCRYPTION {
        Status::AUTH_TAG_MISMATCH
    } else {
        Status::INVALID_SIGNATURE
    }
}

fn memory(
    channel: Channel,
    length: u32,
    info: &[u8],
    transform: DataTransform,
) -> Result<ClientMemory, Status> {
    let buffers = BufferDescriptor::parse_all(info).map_err(|_| Status::INVALID_PARAMETER)?;
    let sum: u64 = buffers.iter().map(|buffer| u64::from(buffer.length)).sum();
    if length == 0 || sum < u64::from(length) {
        return Err(Status::INVALID_PARAMETER);
    }
    let first = buffers.first().ok_or(Status::INVALID_PARAMETER)?;
    let invalidates = (channel == Channel::RDMA_V1_INVALIDATE).then_some(first.token);
    Ok(ClientMemory { buffers, invalidates, transform })
}

#[cfg(test)]
mod tests {
    use frevo_crypto::Cipher;
    use frevo_wire::codec::Writer;
    use frevo_wire::rdma_transform::RdmaCryptoTransform;

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
        let with = |lengths: &[u32], length| {
            memory(Channel::RDMA_V1, length, &info(lengths), DataTransform::None)
        };
        assert!(with(&[100], 99).is_ok() && with(&[100], 100).is_ok());
        assert_eq!(with(&[100], 101), Err(Status::INVALID_PARAMETER));
        assert!(with(&[60, 40], 100).is_ok());
        assert!(with(&[u32::MAX, u32::MAX], u32::MAX).is_ok());
        assert_eq!(with(&[60, 40], 101), Err(Status::INVALID_PARAMETER));
        assert_eq!(with(&[], 1), Err(Status::INVALID_PARAMETER));
        assert_eq!(with(&[100], 0), Err(Status::INVALID_PARAMETER));
        let cut = info(&[100]);
        assert!(memory(Channel::RDMA_V1, 1, &cut[..15], DataTransform::None).is_err());
    }

    #[test]
    fn the_first_key_is_invalidated_where_the_client_wants_it() {
        let of =
            |channel| memory(channel, 1, &info(&[1, 1]), DataTransform::None).unwrap().invalidates;
        assert_eq!(of(Channel::RDMA_V1), None);
        assert_eq!(of(Channel::RDMA_V1_INVALIDATE), Some(7));
    }

    const ENCRYPTION: RdmaTransformType = RdmaTransformType::ENCRYPTION;
    const SIGNING: RdmaTransformType = RdmaTransformType::SIGNING;
    const GCM: Option<Cipher> = Some(Cipher::Aes128Gcm);

    /// A transform's kind, and the lengths of its signature and its nonce.
    type Shape = (RdmaTransformType, usize, usize);

    /// Channel information with transforms of these shapes.
    fn transforms(channel: Channel, transforms: &[Shape]) -> Vec<u8> {
        let transforms = transforms
            .iter()
            .map(|&(transform_type, signature, nonce)| RdmaCryptoTransform {
                transform_type,
                signature: &[1; 20][..signature],
                nonce: &[2; 20][..nonce],
            })
            .collect();
        let transform = RdmaTransform { channel, transforms, descriptors: &info(&[60, 40]) };
        let mut bytes = Vec::new();
        transform.encode(&mut Writer::new(&mut bytes));
        bytes
    }

    /// MS-SMB2 3.3.5.13, condition for condition.
    #[test]
    fn a_transform_is_alone_and_of_the_messages_kind() {
        let of =
            |channel, list: &[Shape], kind| transformed(100, &transforms(channel, list), kind, GCM);
        let (v1, good) = (Channel::RDMA_V1, (ENCRYPTION, 16, 12));
        let memory = of(v1, &[good], ENCRYPTION).unwrap();
        assert_eq!(memory.buffers.len(), 2);
        assert_eq!(memory.invalidates, None);
        assert!(matches!(memory.transform, DataTransform::Received(p) if p.kind() == ENCRYPTION));
        let memory = of(Channel::RDMA_V1_INVALIDATE, &[(SIGNING, 16, 12)], SIGNING).unwrap();
        assert_eq!(memory.invalidates, Some(7));
        let bad: &[(Channel, &[Shape])] = &[
            (Channel::NONE, &[good]),
            (Channel::RDMA_TRANSFORM, &[good]),
            (Channel(9), &[good]),
            (v1, &[]),
            (v1, &[good, good]),
            (v1, &[good, (SIGNING, 16, 12)]),
            (v1, &[(SIGNING, 16, 12)]),
            (v1, &[(RdmaTransformType(3), 16, 12)]),
        ];
        for (channel, list) in bad {
            assert_eq!(of(*channel, list, ENCRYPTION), Err(Status::INVALID_PARAMETER), "{list:?}");
        }
        // A length of 0, or of more than the 100 bytes of the buffer, is refused.
        let bytes = transforms(v1, &[good]);
        for length in [0, 101] {
            let outcome = transformed(length, &bytes, ENCRYPTION, GCM);
            assert_eq!(outcome, Err(Status::INVALID_PARAMETER));
        }
        for cut in [0, 15, 16, 40, bytes.len() - 1] {
            let outcome = transformed(100, &bytes[..cut], ENCRYPTION, GCM);
            assert_eq!(outcome, Err(Status::INVALID_PARAMETER), "{cut}");
        }
    }

    #[test]
    fn wrong_lengths_have_statuses_of_their_own() {
        for (kind, signature, nonce) in [
            (ENCRYPTION, 17, 12),
            (ENCRYPTION, 15, 12),
            (ENCRYPTION, 16, 11),
            (SIGNING, 17, 12),
            (SIGNING, 16, 11),
            (SIGNING, 16, 0),
        ] {
            let bytes = transforms(Channel::RDMA_V1, &[(kind, signature, nonce)]);
            let status = transformed(100, &bytes, kind, GCM).unwrap_err();
            assert_eq!(status, mismatch(kind));
        }
        assert_eq!(mismatch(ENCRYPTION), Status::AUTH_TAG_MISMATCH);
        assert_eq!(mismatch(SIGNING), Status::INVALID_SIGNATURE);
    }
}
