//! Negotiate contexts, MS-SMB2 2.2.3.1 and 2.2.4.1.
//!
//! Structure only: which contexts must be there, how often, and which of their
//! algorithms are acceptable is decided by the server and the client.

use crate::codec::{Malformed, Parsed, Reader, Writer};
use crate::command::field_u16;
use crate::limits::MAX_NEGOTIATE_CONTEXTS;
use crate::utf16::Utf16;
use crate::{bit_set, open_enum};
use alloc::vec::Vec;

open_enum! {
    /// ContextType.
    NegotiateContextType(u16) {
        /// SMB2_PREAUTH_INTEGRITY_CAPABILITIES
        PREAUTH_INTEGRITY_CAPABILITIES = 0x0001,
        /// SMB2_ENCRYPTION_CAPABILITIES
        ENCRYPTION_CAPABILITIES = 0x0002,
        /// SMB2_COMPRESSION_CAPABILITIES
        COMPRESSION_CAPABILITIES = 0x0003,
        /// SMB2_NETNAME_NEGOTIATE_CONTEXT_ID
        NETNAME = 0x0005,
        /// SMB2_TRANSPORT_CAPABILITIES
        TRANSPORT_CAPABILITIES = 0x0006,
        /// SMB2_RDMA_TRANSFORM_CAPABILITIES
        RDMA_TRANSFORM_CAPABILITIES = 0x0007,
        /// SMB2_SIGNING_CAPABILITIES
        SIGNING_CAPABILITIES = 0x0008,
        /// Reserved by the specification; POSIX extensions.
        POSIX_EXTENSIONS = 0x0100,
    }
}

open_enum! {
    /// Pre-authentication integrity hashes, 2.2.3.1.1.
    HashAlgorithm(u16) {
        /// SHA-512
        SHA_512 = 0x0001,
    }
}

open_enum! {
    /// Ciphers, 2.2.3.1.2. In a response 0 says that none is common.
    Cipher(u16) {
        /// The two sides have no cipher in common.
        NONE = 0x0000,
        /// AES-128-CCM
        AES_128_CCM = 0x0001,
        /// AES-128-GCM
        AES_128_GCM = 0x0002,
        /// AES-256-CCM
        AES_256_CCM = 0x0003,
        /// AES-256-GCM
        AES_256_GCM = 0x0004,
    }
}

open_enum! {
    /// Compression algorithms, 2.2.3.1.3.
    CompressionAlgorithm(u16) {
        /// No compression.
        NONE = 0x0000,
        /// LZNT1, MS-XCA 2.5.
        LZNT1 = 0x0001,
        /// Plain LZ77, MS-XCA 2.4.
        LZ77 = 0x0002,
        /// LZ77 and Huffman, MS-XCA 2.2.
        LZ77_HUFFMAN = 0x0003,
        /// A repeated byte, MS-SMB2 2.2.42.2.2.
        PATTERN_V1 = 0x0004,
        /// LZ4
        LZ4 = 0x0005,
    }
}

bit_set! {
    /// Flags of the compression context, 2.2.3.1.3.
    CompressionCapabilityFlags(u32) {
        /// Chained compression is supported.
        CHAINED = 0x0000_0001,
    }
}

bit_set! {
    /// Flags of the transport context, 2.2.3.1.5.
    TransportCapabilityFlags(u32) {
        /// The transport encrypts; SMB need not.
        ACCEPT_TRANSPORT_LEVEL_SECURITY = 0x0000_0001,
    }
}

open_enum! {
    /// Transforms of data sent by RDMA, 2.2.3.1.6.
    RdmaTransformId(u16) {
        /// No transform.
        NONE = 0x0000,
        /// The data is encrypted.
        ENCRYPTION = 0x0001,
        /// The data is signed.
        SIGNING = 0x0002,
    }
}

open_enum! {
    /// Signing algorithms, 2.2.3.1.7.
    SigningAlgorithm(u16) {
        /// HMAC-SHA256
        HMAC_SHA256 = 0x0000,
        /// AES-CMAC
        AES_CMAC = 0x0001,
        /// AES-GMAC
        AES_GMAC = 0x0002,
    }
}

/// Names the POSIX extensions in their negotiate and create contexts, wire order.
pub const POSIX_GUID: [u8; 16] = [
    0x93, 0xAD, 0x25, 0x50, 0x9C, 0xB4, 0x11, 0xE7, 0xB4, 0x23, 0x83, 0xDE, 0x96, 0x8B, 0xCD, 0x7C,
];

/// One context. Lists keep the sender's order of preference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NegotiateContext<'a> {
    /// 2.2.3.1.1
    PreauthIntegrity {
        /// Offered, or the one chosen.
        hash_algorithms: Vec<HashAlgorithm>,
        /// Random bytes that make the hash differ every time.
        salt: &'a [u8],
    },
    /// 2.2.3.1.2: offered, or the one chosen.
    Encryption(Vec<Cipher>),
    /// 2.2.3.1.3
    Compression {
        /// CHAINED is set if chained payloads are understood.
        flags: CompressionCapabilityFlags,
        /// The offered algorithms, or in a response the common ones.
        algorithms: Vec<CompressionAlgorithm>,
    },
    /// 2.2.3.1.4: the server's name as the client knows it.
    Netname(Utf16<'a>),
    /// 2.2.3.1.5
    Transport(TransportCapabilityFlags),
    /// 2.2.3.1.6: the offered transforms, or in a response the common ones.
    RdmaTransform(Vec<RdmaTransformId>),
    /// 2.2.3.1.7: offered, or the one chosen.
    Signing(Vec<SigningAlgorithm>),
    /// 0x0100: the versions of the POSIX extensions, of which one exists ([`POSIX_GUID`]). Not
    /// parsed, because a receiver that does not know it must ignore it.
    Posix(&'a [u8]),
    /// Any other, to be ignored.
    Unknown {
        /// ContextType.
        kind: NegotiateContextType,
        /// The context's data, unparsed.
        data: &'a [u8],
    },
}

impl<'a> NegotiateContext<'a> {
    /// ContextType.
    pub const fn kind(&self) -> NegotiateContextType {
        match self {
            Self::PreauthIntegrity { .. } => NegotiateContextType::PREAUTH_INTEGRITY_CAPABILITIES,
            Self::Encryption(_) => NegotiateContextType::ENCRYPTION_CAPABILITIES,
            Self::Compression { .. } => NegotiateContextType::COMPRESSION_CAPABILITIES,
            Self::Netname(_) => NegotiateContextType::NETNAME,
            Self::Transport(_) => NegotiateContextType::TRANSPORT_CAPABILITIES,
            Self::RdmaTransform(_) => NegotiateContextType::RDMA_TRANSFORM_CAPABILITIES,
            Self::Signing(_) => NegotiateContextType::SIGNING_CAPABILITIES,
            Self::Posix(_) => NegotiateContextType::POSIX_EXTENSIONS,
            Self::Unknown { kind, .. } => *kind,
        }
    }

    /// True if the POSIX extensions of [`POSIX_GUID`] are offered or accepted.
    pub fn is_posix(&self) -> bool {
        match self {
            Self::Posix(data) => data.chunks_exact(16).any(|version| version == POSIX_GUID),
            _ => false,
        }
    }

    /// Parses the Data of a context. A count beyond Data is malformed; bytes behind the counted
    /// part are ignored.
    pub fn parse(kind: NegotiateContextType, data: &'a [u8]) -> Parsed<Self> {
        let r = &mut Reader::new(data);
        Ok(match kind {
            NegotiateContextType::PREAUTH_INTEGRITY_CAPABILITIES => {
                let count = r.u16("HashAlgorithmCount")?;
                let salt_length = r.u16("SaltLength")?;
                let hash_algorithms = ids(r, count, HashAlgorithm, "HashAlgorithms")?;
                let salt = r.take(salt_length.into(), "Salt")?;
                Self::PreauthIntegrity { hash_algorithms, salt }
            }
            NegotiateContextType::ENCRYPTION_CAPABILITIES => {
                let count = r.u16("CipherCount")?;
                Self::Encryption(ids(r, count, Cipher, "Ciphers")?)
            }
            NegotiateContextType::COMPRESSION_CAPABILITIES => {
                let count = r.u16("CompressionAlgorithmCount")?;
                r.skip(2, "Padding")?;
                let flags = CompressionCapabilityFlags(r.u32("compression Flags")?);
                let algorithms = ids(r, count, CompressionAlgorithm, "CompressionAlgorithms")?;
                Self::Compression { flags, algorithms }
            }
            NegotiateContextType::NETNAME => Self::Netname(Utf16::new(data)?),
            NegotiateContextType::TRANSPORT_CAPABILITIES => {
                Self::Transport(TransportCapabilityFlags(r.u32("transport Flags")?))
            }
            NegotiateContextType::RDMA_TRANSFORM_CAPABILITIES => {
                let count = r.u16("TransformCount")?;
                r.skip(6, "Reserved")?;
                Self::RdmaTransform(ids(r, count, RdmaTransformId, "RDMATransformIds")?)
            }
            NegotiateContextType::SIGNING_CAPABILITIES => {
                let count = r.u16("SigningAlgorithmCount")?;
                Self::Signing(ids(r, count, SigningAlgorithm, "SigningAlgorithms")?)
            }
            NegotiateContextType::POSIX_EXTENSIONS => Self::Posix(data),
            kind => Self::Unknown { kind, data },
        })
    }

    /// Appends the context's Data to `w`.
    pub fn encode_data(&self, w: &mut Writer<'_>) {
        match self {
            Self::PreauthIntegrity { hash_algorithms, salt } => {
                w.u16(field_u16(hash_algorithms.len())).u16(field_u16(salt.len()));
                hash_algorithms.iter().for_each(|id| _ = w.u16(id.0));
                w.bytes(salt);
            }
            Self::Encryption(ciphers) => {
                w.u16(field_u16(ciphers.len()));
                ciphers.iter().for_each(|id| _ = w.u16(id.0));
            }
            Self::Compression { flags, algorithms } => {
                w.u16(field_u16(algorithms.len())).u16(0).u32(flags.0);
                algorithms.iter().for_each(|id| _ = w.u16(id.0));
            }
            Self::Netname(name) => _ = w.bytes(name.as_bytes()),
            Self::Transport(flags) => _ = w.u32(flags.0),
            Self::RdmaTransform(transforms) => {
                w.u16(field_u16(transforms.len())).u16(0).u32(0);
                transforms.iter().for_each(|id| _ = w.u16(id.0));
            }
            Self::Signing(algorithms) => {
                w.u16(field_u16(algorithms.len()));
                algorithms.iter().for_each(|id| _ = w.u16(id.0));
            }
            Self::Posix(data) | Self::Unknown { data, .. } => _ = w.bytes(data),
        }
    }
}

fn ids<T>(r: &mut Reader<'_>, count: u16, id: fn(u16) -> T, what: &'static str) -> Parsed<Vec<T>> {
    let r = &mut Reader::new(r.take(usize::from(count).saturating_mul(2), what)?);
    let mut list = Vec::with_capacity(count.into());
    while !r.is_empty() {
        list.push(id(r.u16(what)?));
    }
    Ok(list)
}

/// Parses the `count` contexts at `offset` of `message`, none of which may start
/// before `not_before`. The first must be 8-byte aligned and each further one
/// starts at the next 8-byte boundary.
pub(crate) fn parse_list(
    message: &[u8],
    offset: u32,
    count: u16,
    not_before: usize,
) -> Parsed<Vec<NegotiateContext<'_>>> {
    let count = usize::from(count);
    if count == 0 {
        return Ok(Vec::new());
    }
    if count > MAX_NEGOTIATE_CONTEXTS {
        return Err(Malformed::new("NegotiateContextCount"));
    }
    let offset = usize::try_from(offset).ok().filter(|&at| at >= not_before && at % 8 == 0);
    let list = offset.and_then(|at| message.get(at..));
    let r = &mut Reader::new(list.ok_or(Malformed::new("NegotiateContextOffset"))?);
    let mut contexts = Vec::with_capacity(count);
    for _ in 0..count {
        r.skip(r.position().wrapping_neg() % 8, "negotiate context padding")?;
        let kind = NegotiateContextType(r.u16("ContextType")?);
        let length = r.u16("DataLength")?;
        r.skip(4, "Reserved")?;
        let data = r.take(length.into(), "negotiate context Data")?;
        contexts.push(NegotiateContext::parse(kind, data)?);
    }
    Ok(contexts)
}

/// Appends `contexts`, each at an 8-byte boundary.
pub(crate) fn encode_list(contexts: &[NegotiateContext<'_>], w: &mut Writer<'_>) {
    for context in contexts {
        w.align(8).u16(context.kind().0);
        let length_at = w.offset();
        w.u16(0).u32(0);
        let data_at = w.offset();
        context.encode_data(w);
        let length = w.offset().saturating_sub(data_at);
        w.patch_u16(length_at, field_u16(length));
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Cipher, HashAlgorithm, NegotiateContext, NegotiateContextType, POSIX_GUID, encode_list,
        parse_list,
    };
    use crate::codec::Writer;
    use std::vec;
    use std::vec::Vec;

    fn parse(kind: NegotiateContextType, data: &[u8]) -> Option<NegotiateContext<'_>> {
        NegotiateContext::parse(kind, data).ok()
    }

    /// Counts and lengths that the data does not hold.
    #[test]
    fn counts_that_lie() {
        const PREAUTH: NegotiateContextType = NegotiateContextType::PREAUTH_INTEGRITY_CAPABILITIES;
        assert_eq!(
            parse(PREAUTH, &[1, 0, 2, 0, 1, 0, 7, 8]),
            Some(NegotiateContext::PreauthIntegrity {
                hash_algorithms: vec![HashAlgorithm::SHA_512],
                salt: &[7, 8],
            })
        );
        for data in [&[1, 0, 2, 0, 1, 0, 7][..], &[2, 0, 0, 0, 1, 0], &[0xFF, 0xFF, 0, 0], &[1]] {
            assert_eq!(parse(PREAUTH, data), None, "{data:?}");
        }
        let lists = [
            (NegotiateContextType::ENCRYPTION_CAPABILITIES, 2),
            (NegotiateContextType::COMPRESSION_CAPABILITIES, 8),
            (NegotiateContextType::RDMA_TRANSFORM_CAPABILITIES, 8),
            (NegotiateContextType::SIGNING_CAPABILITIES, 2),
        ];
        for (kind, fixed) in lists {
            let mut data = vec![0; fixed + 4];
            data[0] = 2;
            assert!(parse(kind, &data).is_some(), "{kind}");
            data[0] = 3;
            assert!(parse(kind, &data).is_none(), "{kind}");
            data[..2].fill(0xFF);
            assert!(parse(kind, &data).is_none(), "{kind}");
            assert!(parse(kind, &data[..fixed - 1]).is_none(), "{kind}");
        }
        assert!(parse(NegotiateContextType::TRANSPORT_CAPABILITIES, &[0; 3]).is_none());
        assert!(parse(NegotiateContextType::NETNAME, &[0; 3]).is_none());
    }

    #[test]
    fn posix_is_known_by_its_guid() {
        let mut versions = vec![0; 16];
        versions.extend(POSIX_GUID);
        assert!(NegotiateContext::Posix(&versions).is_posix());
        assert!(!NegotiateContext::Posix(&versions[..16]).is_posix());
        assert!(!NegotiateContext::Posix(&versions[8..]).is_posix());
        assert!(!NegotiateContext::Encryption(vec![]).is_posix());
    }

    /// Each context at the next 8-byte boundary, the last without padding.
    #[test]
    fn alignment_by_the_bytes() {
        let contexts = vec![
            NegotiateContext::Encryption(vec![Cipher::AES_128_GCM]),
            NegotiateContext::Unknown { kind: NegotiateContextType(9), data: &[0xAB] },
        ];
        let mut bytes = Vec::new();
        encode_list(&contexts, &mut Writer::new(&mut bytes));
        let expected = [
            2, 0, 4, 0, 0, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0, //
            9, 0, 1, 0, 0, 0, 0, 0, 0xAB,
        ];
        assert_eq!(bytes, expected);
        assert_eq!(parse_list(&bytes, 0, 2, 0), Ok(contexts));
        // The padding between contexts may have any value, but must not be missing.
        bytes[12..16].fill(0xFF);
        assert!(parse_list(&bytes, 0, 2, 0).is_ok());
        assert!(parse_list(&bytes, 0, 3, 0).is_err());
        assert!(parse_list(&bytes[..24], 0, 2, 0).is_err());
        assert!(parse_list(&bytes[..14], 0, 2, 0).is_err());
        assert!(parse_list(&bytes, 0, 1, 8).is_err());
        assert!(parse_list(&bytes, 4, 1, 0).is_err());
        assert_eq!(parse_list(&bytes, u32::MAX, 0, 0), Ok(vec![]));
    }
}
