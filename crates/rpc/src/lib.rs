//! Remote procedure calls, MS-RPCE: both ends of an association, and the interfaces of a file
//! server. Pure.
//!
//! Connection-oriented, with NDR as the only transfer syntax. A carrier, a pipe of SMB or a
//! connection of TCP, moves the bytes of an [`Endpoint`], which answers calls by [`Calls`]. Each
//! interface has a folder with its numbers, its arguments and replies, its trait of the data that
//! the server supplies, and its context handles. Malformed bytes of a peer lead to a fault and a
//! closed endpoint, never to a truncated answer.
#![no_std]
#![forbid(unsafe_code)]
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod accounts;
pub mod client;
pub mod dssp;
pub mod endpoint;
pub mod epm;
pub mod fsrvp;
pub mod handles;
pub mod interface;
pub mod limits;
pub mod lsarpc;
pub mod mdssvc;
pub mod netdfs;
pub mod pdu;
pub mod samr;
mod security;
pub mod srvsvc;
mod verification;
pub mod witness;
pub mod wkssvc;

pub use accounts::{Account, Directory, Domain, PrimaryDomain, SidNameUse};
pub use client::Client;
pub use endpoint::{Endpoint, PipeError, PipeRead, Terms, Token, Verdict};
pub use interface::{Answer, Call, Calls, Carrier, Interface, Outcome};
pub use security::{AuthLevel, AuthType};

use frevo_wire::codec::{Malformed, Parsed, Reader, Writer};
use frevo_wire::dtyp::Guid;
use frevo_wire::open_enum;

/// p_syntax_id_t: an interface or a transfer syntax, and its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyntaxId {
    /// if_uuid
    pub uuid: Guid,
    /// if_version: minor in the upper half, major in the lower.
    pub version: u32,
}

impl SyntaxId {
    /// The server service, MS-SRVS 2.1.
    pub const SRVSVC: Self =
        Self::new(0x4B32_4FC8, 0x1670, 0x01D3, [0x12, 0x78, 0x5A, 0x47, 0xBF, 0x6E, 0xE1, 0x88], 3);
    /// The workstation service, MS-WKST 2.1.
    pub const WKSSVC: Self =
        Self::new(0x6BFF_D098, 0xA112, 0x3610, [0x98, 0x33, 0x46, 0xC3, 0xF8, 0x7E, 0x34, 0x5A], 1);
    /// The local security authority, MS-LSAT 2.1 and MS-LSAD 2.1.
    pub const LSARPC: Self =
        Self::new(0x1234_5778, 0x1234, 0xABCD, [0xEF, 0x00, 0x01, 0x23, 0x45, 0x67, 0x89, 0xAB], 0);
    /// The accounts of a machine, MS-SAMR 2.1.
    pub const SAMR: Self =
        Self::new(0x1234_5778, 0x1234, 0xABCD, [0xEF, 0x00, 0x01, 0x23, 0x45, 0x67, 0x89, 0xAC], 1);
    /// Directory services setup, MS-DSSP 2.1.
    pub const DSSP: Self =
        Self::new(0x3919_286A, 0xB10C, 0x11D0, [0x9B, 0xA8, 0x00, 0xC0, 0x4F, 0xD9, 0x2E, 0xF5], 0);
    /// The endpoint mapper, C706 appendix O.
    pub const EPM: Self =
        Self::new(0xE1AF_8308, 0x5D1F, 0x11C9, [0x91, 0xA4, 0x08, 0x00, 0x2B, 0x14, 0xA0, 0xFA], 3);
    /// The service witness protocol, MS-SWN 1.9, whose version is 1.1.
    pub const WITNESS: Self = Self::new(
        0xCCD8_C074,
        0xD0E5,
        0x4A40,
        [0x92, 0xB4, 0xD0, 0x74, 0xFA, 0xA6, 0xBA, 0x28],
        0x0001_0001,
    );
    /// Management of namespaces, MS-DFSNM 2.1.
    pub const NETDFS: Self =
        Self::new(0x4FC7_42E0, 0x4A10, 0x11CF, [0x82, 0x73, 0x00, 0xAA, 0x00, 0x4A, 0xE6, 0x73], 3);
    /// Shadow copies of shares, MS-FSRVP 1.9, with the version of its IDL in MS-FSRVP 6.
    pub const FSRVP: Self =
        Self::new(0xA8E0_653C, 0x2744, 0x4389, [0xA6, 0x1D, 0x73, 0x73, 0xDF, 0x8B, 0x22, 0x92], 1);
    /// Shadow copies of shares, with the version of MS-FSRVP 2.1.
    pub const FSRVP_3: Self = Self { version: 3, ..Self::FSRVP };
    /// Spotlight, as Samba publishes its interface.
    pub const MDSSVC: Self =
        Self::new(0x885D_85FB, 0xC754, 0x4062, [0xA0, 0xE7, 0x68, 0x72, 0xCE, 0x00, 0x64, 0xF4], 2);
    /// NDR, the transfer syntax that everyone has.
    pub const NDR: Self =
        Self::new(0x8A88_5D04, 0x1CEB, 0x11C9, [0x9F, 0xE8, 0x08, 0x00, 0x2B, 0x10, 0x48, 0x60], 2);
    /// NDR64, which is refused: every client falls back to NDR.
    pub const NDR64: Self =
        Self::new(0x7171_0533, 0xBEBA, 0x4937, [0x83, 0x19, 0xB5, 0xDB, 0xEF, 0x9C, 0xCC, 0x36], 1);
    /// Nothing: the transfer syntax of a context that was not accepted.
    pub const ZERO: Self = Self { uuid: Guid([0; 16]), version: 0 };

    const fn new(a: u32, b: u16, c: u16, rest: [u8; 8], version: u32) -> Self {
        let [a0, a1, a2, a3] = a.to_le_bytes();
        let [b0, b1] = b.to_le_bytes();
        let [c0, c1] = c.to_le_bytes();
        let [d, e, f, g, h, i, j, k] = rest;
        Self { uuid: Guid([a0, a1, a2, a3, b0, b1, c0, c1, d, e, f, g, h, i, j, k]), version }
    }

    /// The bind-time features that this transfer syntax stands for, if it is
    /// their prefix (MS-RPCE 3.3.1.5.3).
    pub fn bind_time_features(&self) -> Option<u8> {
        match self.uuid.0 {
            [0x2C, 0x1C, 0xB7, 0x6C, 0x12, 0x98, 0x40, 0x45, features, ..] if self.version == 1 => {
                Some(features)
            }
            _ => None,
        }
    }

    /// Takes the identifier from a reader.
    pub fn read(r: &mut Reader<'_>) -> Parsed<Self> {
        Ok(Self { uuid: Guid(r.array("syntax uuid")?), version: r.u32("syntax version")? })
    }

    /// Appends the identifier to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&self.uuid.0).u32(self.version);
    }
}

open_enum! {
    /// Status of a fault PDU, C706 appendix N.2.
    FaultStatus(u32) {
        /// ERROR_ACCESS_DENIED, also for a request that is too long
        /// (MS-RPCE 3.3.3.5.4).
        ACCESS_DENIED = 0x0000_0005,
        /// RPC_X_BAD_STUB_DATA: the arguments do not have the shape of the call.
        NDR = 0x0000_06F7,
        /// nca_s_fault_cancel
        CANCEL = 0x1C00_000D,
        /// nca_s_fault_context_mismatch
        CONTEXT_MISMATCH = 0x1C00_001A,
        /// nca_s_fault_remote_no_memory: the client may make the server keep no more.
        REMOTE_NO_MEMORY = 0x1C00_001B,
        /// nca_s_op_rng_error: no such operation.
        OP_RNG_ERROR = 0x1C01_0002,
        /// nca_s_unk_if: no such interface.
        UNK_IF = 0x1C01_0003,
        /// nca_s_proto_error
        PROTO_ERROR = 0x1C01_000B,
        /// nca_s_out_args_too_big
        OUT_ARGS_TOO_BIG = 0x1C01_0013,
        /// nca_s_server_too_busy
        SERVER_TOO_BUSY = 0x1C01_0014,
    }
}

impl From<Malformed> for FaultStatus {
    fn from(_: Malformed) -> Self {
        Self::NDR
    }
}

open_enum! {
    /// The result of a call: the codes of MS-ERREF 2.2 that these services use.
    WinError(u32) {
        /// NERR_Success
        SUCCESS = 0,
        /// ERROR_FILE_NOT_FOUND
        FILE_NOT_FOUND = 2,
        /// ERROR_ACCESS_DENIED
        ACCESS_DENIED = 5,
        /// ERROR_OUTOFMEMORY
        OUT_OF_MEMORY = 14,
        /// ERROR_NOT_SUPPORTED
        NOT_SUPPORTED = 50,
        /// ERROR_FILE_EXISTS
        FILE_EXISTS = 80,
        /// ERROR_INVALID_PARAMETER
        INVALID_PARAMETER = 87,
        /// ERROR_INVALID_NAME
        INVALID_NAME = 123,
        /// ERROR_INVALID_LEVEL
        INVALID_LEVEL = 124,
        /// ERROR_BUSY
        BUSY = 170,
        /// ERROR_ALREADY_EXISTS
        ALREADY_EXISTS = 183,
        /// ERROR_MORE_DATA
        MORE_DATA = 234,
        /// ERROR_NO_MORE_ITEMS
        NO_MORE_ITEMS = 259,
        /// ERROR_NOT_FOUND
        NOT_FOUND = 1168,
        /// ERROR_RETRY
        RETRY = 1237,
        /// ERROR_REVISION_MISMATCH
        REVISION_MISMATCH = 1306,
        /// ERROR_NO_SYSTEM_RESOURCES
        NO_SYSTEM_RESOURCES = 1450,
        /// ERROR_TIMEOUT
        TIMEOUT = 1460,
        /// NERR_UnknownDevDir
        UNKNOWN_DEV_DIR = 2116,
        /// NERR_DuplicateShare
        DUPLICATE_SHARE = 2118,
        /// NERR_InternalError
        INTERNAL_ERROR = 2140,
        /// NERR_UserNotFound
        USER_NOT_FOUND = 2221,
        /// NERR_BufTooSmall
        BUF_TOO_SMALL = 2123,
        /// NERR_NetNameNotFound
        NET_NAME_NOT_FOUND = 2310,
        /// NERR_ClientNameNotFound
        CLIENT_NAME_NOT_FOUND = 2312,
        /// NERR_FileIdNotFound
        FILE_ID_NOT_FOUND = 2314,
        /// ERROR_DEVICE_NOT_AVAILABLE
        DEVICE_NOT_AVAILABLE = 4319,
        /// ERROR_INVALID_STATE
        INVALID_STATE = 5023,
    }
}

#[cfg(test)]
mod tests;
