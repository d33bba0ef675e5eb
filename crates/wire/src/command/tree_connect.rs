//! TREE_CONNECT, MS-SMB2 2.2.9 and 2.2.10.

use super::{field_u16, field_u32};
use crate::codec::{Malformed, Parsed, Reader, Writer, pointed};
use crate::dtyp::AccessMask;
use crate::header::HEADER_LEN;
use crate::limits::MAX_TREE_CONNECT_CONTEXTS;
use crate::utf16::Utf16;
use crate::{bit_set, open_enum};
use alloc::vec::Vec;

bit_set! {
    /// Flags of the request (3.1.1; reserved before).
    TreeConnectFlags(u16) {
        /// The client has used this cluster share with this dialect before.
        CLUSTER_RECONNECT = 0x0001,
        /// The client understands share redirects.
        REDIRECT_TO_OWNER = 0x0002,
        /// The extension with contexts is present.
        EXTENSION_PRESENT = 0x0004,
    }
}

open_enum! {
    /// ContextType of a tree connect context, MS-SMB2 2.2.9.2.
    TreeConnectContextType(u16) {
        /// SMB2_REMOTED_IDENTITY_TREE_CONNECT, 2.2.9.2.1.
        REMOTED_IDENTITY = 0x0001,
    }
}

/// MS-SMB2 2.2.9.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeConnectContext<'a> {
    /// The type of the data.
    pub kind: TreeConnectContextType,
    /// The data, in the form that the type tells.
    pub data: &'a [u8],
}

open_enum! {
    /// ShareType of the response.
    ShareType(u8) {
        /// SMB2_SHARE_TYPE_DISK: files.
        DISK = 1,
        /// SMB2_SHARE_TYPE_PIPE: named pipes.
        PIPE = 2,
        /// SMB2_SHARE_TYPE_PRINT: a printer.
        PRINT = 3,
    }
}

bit_set! {
    /// ShareFlags of the response.
    ShareFlags(u32) {
        /// In a DFS tree.
        DFS = 0x0000_0001,
        /// A DFS root.
        DFS_ROOT = 0x0000_0002,
        /// The client may decide to cache offline.
        AUTO_CACHING = 0x0000_0010,
        /// Offline caching, which the client uses even while the share can be reached.
        VDO_CACHING = 0x0000_0020,
        /// No offline caching (both bits of the mask).
        NO_CACHING = 0x0000_0030,
        /// No opens that deny reads.
        RESTRICT_EXCLUSIVE_OPENS = 0x0000_0100,
        /// No opens that deny deletion.
        FORCE_SHARED_DELETE = 0x0000_0200,
        /// ALLOW_NAMESPACE_CACHING, which clients ignore.
        ALLOW_NAMESPACE_CACHING = 0x0000_0400,
        /// Listings show only objects that the user can access.
        ACCESS_BASED_DIRECTORY_ENUM = 0x0000_0800,
        /// No exclusive caching rights.
        FORCE_LEVELII_OPLOCK = 0x0000_1000,
        /// BranchCache hashes, version 1.
        ENABLE_HASH_V1 = 0x0000_2000,
        /// BranchCache hashes, version 2.
        ENABLE_HASH_V2 = 0x0000_4000,
        /// Requests on this share must be encrypted.
        ENCRYPT_DATA = 0x0000_8000,
        /// The share accepts remoted identities.
        IDENTITY_REMOTING = 0x0004_0000,
        /// The share supports compression.
        COMPRESS_DATA = 0x0010_0000,
        /// The client should use connections of its own.
        ISOLATED_TRANSPORT = 0x0020_0000,
    }
}

bit_set! {
    /// Capabilities of the response.
    ShareCapabilities(u32) {
        /// In a DFS tree.
        DFS = 0x0000_0008,
        /// The share supports persistent handles.
        CONTINUOUS_AVAILABILITY = 0x0000_0010,
        /// Several nodes of a cluster serve the share at once.
        SCALEOUT = 0x0000_0020,
        /// The witness service monitors the share.
        CLUSTER = 0x0000_0040,
        /// Its owner among the cluster's nodes may change.
        ASYMMETRIC = 0x0000_0080,
        /// The client is redirected to the owner.
        REDIRECT_TO_OWNER = 0x0000_0100,
    }
}

/// Where the variable part of the request starts.
const REQUEST_FIXED: usize = 72;
/// Bytes of the extension before PathName, MS-SMB2 2.2.9.1.
const EXTENSION_LEN: usize = 16;
/// Bytes of a tree connect context before its data.
const CONTEXT_LEN: usize = 8;

/// MS-SMB2 2.2.9.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// Flags, which mean nothing before 3.1.1.
    pub flags: TreeConnectFlags,
    /// `\\server\share`.
    pub path: Utf16<'a>,
    /// The contexts of the extension; empty if its flag is clear. An error in them is stored here
    /// and does not fail the parser, because the flag means nothing before 3.1.1.
    pub contexts: Parsed<Vec<TreeConnectContext<'a>>>,
}

impl<'a> Request<'a> {
    /// Makes a request for `path` without the extension.
    pub const fn new(path: Utf16<'a>) -> Self {
        Self { flags: TreeConnectFlags::EMPTY, path, contexts: Ok(Vec::new()) }
    }

    /// Parses a whole message.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 9, "TREE_CONNECT request StructureSize")?;
        let flags = TreeConnectFlags(r.u16("Flags")?);
        let offset = r.u16("PathOffset")?;
        let length = r.u16("PathLength")?;
        let path = pointed(message, offset.into(), length.into(), REQUEST_FIXED, "Path")?;
        let contexts = if flags.contains(TreeConnectFlags::EXTENSION_PRESENT) {
            parse_contexts(message, r.clone())
        } else {
            Ok(Vec::new())
        };
        Ok(Self { flags, path: Utf16::new(path)?, contexts })
    }

    /// Appends the body, with the extension if its flag is set.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let path = self.path.as_bytes();
        let extended = self.flags.contains(TreeConnectFlags::EXTENSION_PRESENT);
        let extension = if extended { EXTENSION_LEN } else { 0 };
        let path_offset = REQUEST_FIXED.saturating_add(extension);
        w.u16(9).u16(self.flags.0).u16(field_u16(path_offset)).u16(field_u16(path.len()));
        if !extended {
            w.bytes(path);
            if path.is_empty() {
                w.u8(0);
            }
            return;
        }
        let contexts = self.contexts.as_deref().unwrap_or(&[]);
        let contexts_offset = w.offset();
        w.u32(0).u16(field_u16(contexts.len())).zeros(10).bytes(path).align(8);
        // MS-SMB2 2.2.9.1: TreeConnectContextOffset counts from the request and not, as other
        // offsets, from the SMB2 header.
        w.patch_u32(contexts_offset, field_u32(w.offset().saturating_sub(HEADER_LEN)));
        for context in contexts {
            w.align(8).u16(context.kind.0).u16(field_u16(context.data.len())).u32(0);
            w.bytes(context.data);
        }
    }
}

/// Contexts begin at 8-byte boundaries as in other lists; the specification does not say so.
fn parse_contexts<'a>(message: &'a [u8], mut r: Reader<'a>) -> Parsed<Vec<TreeConnectContext<'a>>> {
    let offset = r.u32("TreeConnectContextOffset")?;
    let count = usize::from(r.u16("TreeConnectContextCount")?);
    r.skip(10, "Reserved")?;
    if count > MAX_TREE_CONNECT_CONTEXTS {
        return Err(Malformed::new("TreeConnectContextCount"));
    }
    let start = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(HEADER_LEN));
    let start = start.filter(|&start| start >= r.position());
    let list = start.and_then(|start| message.get(start..));
    let r = &mut Reader::new(list.ok_or(Malformed::new("TreeConnectContextOffset"))?);
    let mut contexts = Vec::with_capacity(count.min(r.remaining() / CONTEXT_LEN));
    for _ in 0..count {
        r.skip(r.position().wrapping_neg() % 8, "tree connect context padding")?;
        let kind = TreeConnectContextType(r.u16("tree connect ContextType")?);
        let length = r.u16("tree connect DataLength")?;
        r.skip(4, "tree connect Reserved")?;
        contexts
            .push(TreeConnectContext { kind, data: r.take(length.into(), "tree connect Data")? });
    }
    Ok(contexts)
}

/// MS-SMB2 2.2.10.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// The kind of share.
    pub share_type: ShareType,
    /// Properties of the share.
    pub share_flags: ShareFlags,
    /// Capabilities of the share.
    pub capabilities: ShareCapabilities,
    /// The maximal access of the user.
    pub maximal_access: AccessMask,
}

impl Response {
    /// Parses a whole message.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 16, "TREE_CONNECT response StructureSize")?;
        let share_type = ShareType(r.u8("ShareType")?);
        r.skip(1, "Reserved")?;
        Ok(Self {
            share_type,
            share_flags: ShareFlags(r.u32("ShareFlags")?),
            capabilities: ShareCapabilities(r.u32("Capabilities")?),
            maximal_access: AccessMask(r.u32("MaximalAccess")?),
        })
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(16).u8(self.share_type.0).u8(0).u32(self.share_flags.0);
        w.u32(self.capabilities.0).u32(self.maximal_access.0);
    }
}
