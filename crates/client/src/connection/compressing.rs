//! The data of requests that is compressed: MS-SMB2 3.1.4.4, 3.2.4.6 and 3.2.4.7.

use std::sync::atomic::Ordering;

use frevo_net::buffer::Buf;
use frevo_proto::protection::ToCompress;
use frevo_wire::command::read::{self, ReadFlags};

use super::call::{Call, Compressible};
use super::{Connection, crypto_offload};
use crate::limits::COMPRESSED_BESIDE_BYTES_MIN;

impl Connection {
    /// Returns true if the data of a request should be [compressed on another
    /// core](Self::send_beside). Tasks of a runtime with several threads do it themselves.
    pub(crate) fn is_compressed_beside(&self, call: &Call<'_>) -> bool {
        matches!(call.compressible, Compressible::Payload(_))
            && call.payload_len() >= COMPRESSED_BESIDE_BYTES_MIN
            && self.agreed().terms.compression.is_some()
            && crypto_offload::is_alone()
    }

    /// Asks for a compressed answer in the `head` of a READ, or returns the means to compress the data of a
    /// WRITE, if the connection has compression.
    pub(super) fn to_compress(
        &self,
        compressible: Compressible,
        head: &mut [u8],
    ) -> Option<ToCompress<Buf>> {
        let thrift = match compressible {
            Compressible::No => return None,
            Compressible::Answer => None,
            Compressible::Payload(thrift) => Some(thrift),
        };
        let compression = self.agreed().terms.compression?;
        // From here on answers may be compressed.
        self.asks_compressed.store(true, Ordering::Release);
        let Some(thrift) = thrift else {
            if let Some(flags) = head.get_mut(read::FLAGS_AT) {
                *flags |= ReadFlags::REQUEST_COMPRESSED.0;
            }
            return None;
        };
        let room: fn(usize) -> Buf = |bytes| Buf::zeroed(0, bytes);
        Some(ToCompress { compression, head: head.len(), room, thrift: Some(thrift) })
    }
}
