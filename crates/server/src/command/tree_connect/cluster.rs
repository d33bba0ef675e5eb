//! Shares of a cluster: the fence of dialects, the way to the owner, and capabilities, MS-SMB2 3.3.5.7.

use std::net::IpAddr;

use frevo_proto::Dialect;
use frevo_wire::Status;
use frevo_wire::codec::Writer;
use frevo_wire::command::tree_connect::{self, ShareCapabilities, TreeConnectFlags};
use frevo_wire::error_response::ShareRedirect;
use frevo_wire::utf16::Utf16;

use crate::command::audited;
use crate::command::request::Request;
use crate::objects::refusal::Refusal;
use crate::objects::session::Identity;
use crate::shares::share::{ClusterKind, Share};

/// The flags of the request. MS-SMB2 2.2.9: before 3.1.1 the field is reserved, and ignored.
pub(super) fn flags(rq: &Request<'_>, request: &tree_connect::Request<'_>) -> TreeConnectFlags {
    if rq.dialect() == Dialect::SMB_3_1_1 { request.flags } else { TreeConnectFlags::EMPTY }
}

/// MS-SMB2 3.3.5.7: SMB_BAD_CLUSTER_DIALECT with MaxClusterDialect for a client whose dialect not all nodes of
/// the cluster speak.
///
/// A client that says that it was let in before (CLUSTER_RECONNECT) is let in: this node may not know yet that
/// the maximum was raised. One that lies gains nothing: its rights are judged first, and its own handles may
/// be lost when the share moves.
pub(super) fn check_dialect(
    rq: &Request<'_>,
    share: &Share,
    flags: TreeConnectFlags,
    identity: &Identity,
) -> Result<(), Refusal> {
    let max = rq.server().cluster.max_dialect().filter(|_| share.clustered);
    let Some(max) = max.filter(|max| rq.dialect() > *max) else { return Ok(()) };
    if flags.contains(TreeConnectFlags::CLUSTER_RECONNECT) {
        return Ok(());
    }
    rq.tell(|left_out| {
        tracing::info!(target: "frevo::tree", peer = %rq.connection.peer, left_out,
            user = %identity.user, share = %share.name, dialect = ?rq.dialect(), ?max,
            "refused: not all nodes of the cluster speak the client's dialect yet; the client is told \
             the largest one, and `frevo cluster raise` raises it when all nodes are upgraded");
    });
    let status = Status::SMB_BAD_CLUSTER_DIALECT;
    audited::connect_refused(rq, &share.name, status, "dialect");
    Err(Refusal::Data(status, max.0.to_le_bytes().into()))
}

/// MS-SMB2 3.3.5.7: BAD_NETWORK_NAME with the addresses of the owner for a client that can follow them, of a
/// share that another node owns. Without addresses of its own that share is one of STYPE_CLUSTER_SOFS; a share
/// with addresses is found behind these.
pub(super) fn check_owner(
    rq: &Request<'_>,
    share: &Share,
    flags: TreeConnectFlags,
    identity: &Identity,
) -> Result<(), Refusal> {
    if is_stranded(share, flags) || share.cluster_kind() != Some(ClusterKind::ScaleOut) {
        return Ok(());
    }
    let addresses = share.life.owner_elsewhere();
    if addresses.is_empty() {
        return Ok(());
    }
    rq.tell(|left_out| {
        tracing::info!(target: "frevo::tree", peer = %rq.connection.peer, left_out,
            user = %identity.user, share = %share.name, owner = ?addresses,
            "redirected: another node of the cluster owns the share");
    });
    audited::connect_refused(rq, &share.name, Status::BAD_NETWORK_NAME, "redirected to the owner");
    Err(Refusal::Redirect(redirect(&share.name, addresses)))
}

/// True for a client that can neither be sent to the owner of the share, nor finds it behind an address that moves:
/// its witness tells it the owner.
pub(super) fn is_stranded(share: &Share, flags: TreeConnectFlags) -> bool {
    share.cluster_kind() == Some(ClusterKind::ScaleOut)
        && !flags.contains(TreeConnectFlags::REDIRECT_TO_OWNER)
}

/// The Share Redirect error context data, MS-SMB2 2.2.2.2.2.
fn redirect(share: &str, addresses: Vec<IpAddr>) -> Vec<u8> {
    let mut data = Vec::new();
    let redirect = ShareRedirect { addresses, resource_name: Utf16::from_str(share) };
    redirect.encode(&mut Writer::from(&mut data, 0));
    data
}

/// The capabilities of a share that depend on the cluster.
pub(super) fn capabilities(
    rq: &Request<'_>,
    share: &Share,
    flags: TreeConnectFlags,
) -> ShareCapabilities {
    let Some(kind) = share.cluster_kind().filter(|_| rq.connection.is_smb3()) else {
        return ShareCapabilities::EMPTY;
    };
    let mut capabilities = ShareCapabilities::CLUSTER;
    if kind == ClusterKind::ScaleOut {
        capabilities |= ShareCapabilities::SCALEOUT;
        // One node at a time owns the share, so it is asymmetric.
        if rq.dialect() >= Dialect::SMB_3_0_2 {
            capabilities |= ShareCapabilities::ASYMMETRIC;
        }
        if flags.contains(TreeConnectFlags::REDIRECT_TO_OWNER) {
            capabilities |= ShareCapabilities::REDIRECT_TO_OWNER;
        }
    }
    capabilities
}
