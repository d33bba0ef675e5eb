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

/// Bytes of the longest signature.
const MAX_SIGNATURE_LEN: usize = 16;

/// 2.2.43.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RdmaCryptoTransform<'a> {
    /// The kind of protection: encrypted or signed.
    pub transform_type: RdmaTransformType,
    /// At most 16 bytes.
    pub signature: &'a [u8],
    /// As the algorithm wants it.
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
    /// Parses channel information, or the buffer of a READ response.
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
            if signature_length > MAX_SIGNATURE_LEN {
                return Err(Malformed::new("SignatureLength"));
            }
            let signature = r.take(signature_length, "Signature")?;
            let nonce = r.take(nonce_length, "Nonce")?;
            // The last one needs no padding when nothing follows.
            let padding = r.position().wrapping_neg() % 8;
            r.skip(padding.min(r.remaining()), "Padding")?;
            transforms.push(RdmaCryptoTransform { transform_type, signature, nonce });
        }
        let descriptors = match channel {
            Channel::NONE => &[],
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
        if !self.descriptors.is_empty() {
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
        // 16 fixed, 8 + 16 + 12 of the transform, 4 of padding.
        assert_eq!(bytes[3..5], [56, 0]);
        assert!(RdmaTransform::parse(&bytes[3..bytes.len() - 1]).is_err());
    }

    #[test]
    fn refuses_counts_and_lengths() {
        let mut bytes = Vec::new();
        example().encode(&mut Writer::new(&mut bytes));
        for (at, value) in [(8, 0), (8, 9), (18, 17), (20, 200), (0, 16), (2, 17)] {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            assert!(RdmaTransform::parse(&bytes).is_err(), "{at} {value}");
        }
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
