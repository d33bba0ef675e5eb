//! SMB2_RDMA_TRANSFORM and SMB2_RDMA_CRYPTO_TRANSFORM, MS-SMB2 2.2.43: how data
//! that travels by RDMA is encrypted or signed (3.1.1).

use crate::codec::{Malformed, Parsed, Reader, Writer, pointed};
use crate::command::field_u16;
use crate::command::read::Channel;
use crate::limits::MAX_RDMA_TRANSFORMS;
use crate::open_enum;
use alloc::vec::Vec;

open_enum! {
    /// TransformType.
    RdmaTransformType(u16) {
        /// The data is encrypted.
        ENCRYPTION = 0x0001,
        /// The data is signed.
        SIGNING = 0x0002,
    }
}

/// 2.2.43.1. The receiver decides about lengths: it answers wrong ones in different ways, MS-SMB2
/// 3.3.5.13.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RdmaCryptoTransform<'a> {
    /// The kind of protection: encrypted or signed.
    pub transform_type: RdmaTransformType,
    /// 16 bytes where the sender is right.
    pub signature: &'a [u8],
    /// As many bytes as the algorithm has, where the sender is right.
    pub nonce: &'a [u8],
}

/// 2.2.43, with the transforms and the descriptors that follow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaTransform<'a> {
    /// The kind of the descriptors.
    pub channel: Channel,
    /// The transforms; at least one.
    pub transforms: Vec<RdmaCryptoTransform<'a>>,
    /// SMB_DIRECT_BUFFER_DESCRIPTOR_V1 structures.
    pub descriptors: &'a [u8],
}

impl<'a> RdmaTransform<'a> {
    /// Parses channel information, or the buffer of a READ response. Descriptors must begin at the
    /// first 8-byte boundary behind the transforms, MS-SMB2 3.3.5.13.
    pub fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        let r = &mut Reader::new(bytes);
        let offset = r.u16("RdmaDescriptorOffset")?;
        let length = r.u16("RdmaDescriptorLength")?;
        let channel = Channel(r.u32("Channel")?);
        let count = usize::from(r.u16("TransformCount")?);
        r.skip(6, "Reserved")?;
        if count == 0 || count > MAX_RDMA_TRANSFORMS {
            return Err(Malformed::new("TransformCount"));
        }
        let mut transforms = Vec::with_capacity(count);
        for _ in 0..count {
            let transform_type = RdmaTransformType(r.u16("TransformType")?);
            let signature_length = usize::from(r.u16("SignatureLength")?);
            let nonce_length = usize::from(r.u16("NonceLength")?);
            r.skip(2, "Reserved")?;
            let signature = r.take(signature_length, "Signature")?;
            let nonce = r.take(nonce_length, "Nonce")?;
            // The padding after the last transform may be missing.
            let padding = r.position().wrapping_neg() % 8;
            r.skip(padding.min(r.remaining()), "Padding")?;
            transforms.push(RdmaCryptoTransform { transform_type, signature, nonce });
        }
        let descriptors = match channel {
            Channel::NONE => &[],
            _ if usize::from(offset) != r.position() => {
                return Err(Malformed::new("RdmaDescriptorOffset"));
            }
            _ => pointed(bytes, offset.into(), length.into(), r.position(), "RdmaDescriptors")?,
        };
        Ok(Self { channel, transforms, descriptors })
    }

    /// Appends the structure to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let w = &mut w.nested();
        w.u16(0).u16(field_u16(self.descriptors.len())).u32(self.channel.0);
        w.u16(field_u16(self.transforms.len())).u16(0).u32(0);
        for transform in &self.transforms {
            w.u16(transform.transform_type.0).u16(field_u16(transform.signature.len()));
            w.u16(field_u16(transform.nonce.len())).u16(0);
            w.bytes(transform.signature).bytes(transform.nonce).align(8);
        }
        if self.channel != Channel::NONE {
            w.patch_u16(0, field_u16(w.offset()));
            w.bytes(self.descriptors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{RdmaCryptoTransform, RdmaTransform, RdmaTransformType};
    use crate::codec::Writer;
    use crate::command::read::Channel;
    use crate::limits::MAX_RDMA_TRANSFORMS;
    use std::vec;
    use std::vec::Vec;

    fn example() -> RdmaTransform<'static> {
        RdmaTransform {
            channel: Channel::RDMA_V1,
            transforms: vec![RdmaCryptoTransform {
                transform_type: RdmaTransformType::ENCRYPTION,
                signature: &[1; 16],
                nonce: &[2; 12],
            }],
            descriptors: &[3; 16],
        }
    }

    #[test]
    fn survives() {
        let mut bytes = vec![0xEE; 3];
        example().encode(&mut Writer::new(&mut bytes));
        assert_eq!(RdmaTransform::parse(&bytes[3..]).unwrap(), example());
        assert!(RdmaTransform::parse(&bytes[3..bytes.len() - 1]).is_err());
    }

    /// By the fields of 2.2.43 and 2.2.43.1: a WRITE that is encrypted with AES-128-GCM.
    #[test]
    fn a_write_by_its_bytes() {
        let mut expected = vec![
            56, 0, 16, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, //
            1, 0, 16, 0, 12, 0, 0, 0,
        ];
        expected.extend([1; 16]);
        expected.extend([2; 12]);
        expected.extend([0; 4]);
        expected.extend([3; 16]);
        let mut bytes = Vec::new();
        example().encode(&mut Writer::new(&mut bytes));
        assert_eq!(bytes, expected);
    }

    /// The buffer of a READ response, whose data is signed with an algorithm without nonces.
    #[test]
    fn a_read_response_by_its_bytes() {
        let transform = RdmaTransform {
            channel: Channel::NONE,
            transforms: vec![RdmaCryptoTransform {
                transform_type: RdmaTransformType::SIGNING,
                signature: &[7; 16],
                nonce: &[],
            }],
            descriptors: &[],
        };
        let mut expected = vec![0; 40];
        (expected[8], expected[16], expected[18]) = (1, 2, 16);
        expected[24..].fill(7);
        let mut bytes = Vec::new();
        transform.encode(&mut Writer::new(&mut bytes));
        assert_eq!(bytes, expected);
        assert_eq!(RdmaTransform::parse(&bytes), Ok(transform.clone()));
        // MS-SMB2 2.2.43: the channel is NONE, so RdmaDescriptorOffset and RdmaDescriptorLength are
        // ignored.
        bytes[0..4].fill(0xFF);
        assert_eq!(RdmaTransform::parse(&bytes), Ok(transform));
    }

    #[test]
    fn refuses_counts_and_lengths() {
        let mut bytes = Vec::new();
        example().encode(&mut Writer::new(&mut bytes));
        // Each case changes one byte: in RdmaDescriptorOffset (offset 0), RdmaDescriptorLength (2),
        // TransformCount (8) or NonceLength (20).
        for (at, value) in [(8, 0), (8, 9), (20, 200), (0, 16), (0, 48), (0, 57), (0, 64), (2, 17)]
        {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            assert!(RdmaTransform::parse(&bytes).is_err(), "{at} {value}");
        }
    }

    /// The server has a status of its own for it.
    #[test]
    fn a_long_signature_is_the_receivers_affair() {
        let long = RdmaCryptoTransform { signature: &[1; 20], ..example().transforms[0] };
        let transform = RdmaTransform { transforms: vec![long], ..example() };
        let mut bytes = Vec::new();
        transform.encode(&mut Writer::new(&mut bytes));
        assert_eq!(RdmaTransform::parse(&bytes), Ok(transform));
    }

    #[test]
    fn transform_limit() {
        for (count, good) in [
            (MAX_RDMA_TRANSFORMS - 1, true),
            (MAX_RDMA_TRANSFORMS, true),
            (MAX_RDMA_TRANSFORMS + 1, false),
        ] {
            let transform =
                RdmaTransform { transforms: vec![example().transforms[0]; count], ..example() };
            let mut bytes = Vec::new();
            transform.encode(&mut Writer::new(&mut bytes));
            assert_eq!(RdmaTransform::parse(&bytes).is_ok(), good, "{count}");
        }
    }
}
