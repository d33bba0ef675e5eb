//! Limits of parsers on what a peer may send, beyond the length of its message.

/// Negotiate contexts in one NEGOTIATE message. Clients send at most eight.
pub const MAX_NEGOTIATE_CONTEXTS: usize = 64;

/// Create contexts in one CREATE message. Clients send at most about ten.
pub const MAX_CREATE_CONTEXTS: usize = 64;

/// Tree connect contexts in one TREE_CONNECT request; one kind is defined.
pub const MAX_TREE_CONNECT_CONTEXTS: usize = 16;

/// Error contexts in one ERROR response; the field is a byte, one is used.
pub const MAX_ERROR_CONTEXTS: usize = 16;

/// Payloads in one chained compressed message.
pub const MAX_COMPRESSION_PAYLOADS: usize = 1024;

/// Transforms in one SMB2_RDMA_TRANSFORM; two kinds are defined.
pub const MAX_RDMA_TRANSFORMS: usize = 8;

/// Buffer descriptors of MS-SMBD 2.2.3.1 in one request. Clients send one; adapters whose regions
/// are small need several.
pub const MAX_BUFFER_DESCRIPTORS: usize = 64;

/// Destination addresses in one share redirect, MS-SMB2 2.2.2.2.2.
pub const MAX_REDIRECT_ADDRESSES: usize = 256;

/// Interfaces in one NETWORK_INTERFACE_INFO answer, MS-SMB2 2.2.32.5.
pub const MAX_NETWORK_INTERFACES: usize = 1024;

/// Targets of one DFS referral.
pub const MAX_REFERRALS: usize = 256;

/// Characters of a path in a DFS referral. Several paths may use the same bytes.
pub const MAX_REFERRAL_PATH: usize = 4096;

/// Code units of one string of NDR.
pub const MAX_STRING_UNITS: u32 = 4096;
