//! TREE_CONNECT: MS-SMB2 3.3.5.7.

use std::sync::Arc;

use frevo_proto::Dialect;
use frevo_wire::command::tree_connect::{self, ShareCapabilities, ShareFlags, ShareType};
use frevo_wire::{HeaderFlags, Status};

use crate::refusal::{Doom, Outcome};
use crate::request::Request;
use crate::response::Response;
use crate::rules::{Caller, Verdict};
use crate::settings::Encryption;
use crate::share::{Share, Target};
use crate::throttle::shortened;
use crate::tree_connect::TreeConnect;

/// Connects a session to a share.
pub fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    let signed = rq.header.flags.contains(HeaderFlags::SIGNED);
    if rq.dialect() == Dialect::SMB_3_1_1 && !signed && !rq.encrypted {
        return Err(Doom::Rule("TREE_CONNECT neither signed nor sealed").into());
    }
    let request = tree_connect::Request::parse(rq.message)?;
    let path = request.path.to_string()?;
    let name = share_name(&path).ok_or(Status::INVALID_PARAMETER)?;
    let session = rq.session()?;
    let identity = session.identity().ok_or(Status::USER_SESSION_DELETED)?;
    let peer = rq.connection.peer;
    let Some(share) = rq.server().shares().find(name).map(Arc::clone) else {
        rq.tell(|left_out| {
            tracing::info!(target: "frevo::tree", %peer, user = %identity.user,
                share = shortened(name), left_out, "refused: there is no share of that name");
        });
        return Err(Status::BAD_NETWORK_NAME.into());
    };
    check_encryption(rq, &share)?;
    if identity.is_nobody() && share.vfs().is_some() {
        return Err(Status::ACCESS_DENIED.into());
    }
    let caller = Caller {
        user: &identity.user,
        groups: &identity.groups,
        groups_are_known: identity.host.is_known(),
        address: peer.ip(),
    };
    let share = match share.rules.judge(&caller, share.read_only) {
        Verdict::Refused(why) => {
            rq.tell(|left_out| {
                tracing::warn!(target: "frevo::tree", %peer, user = %identity.user, share = name,
                    left_out, "refused: {why}");
            });
            return Err(Status::ACCESS_DENIED.into());
        }
        Verdict::Reads => share.seen(true),
        Verdict::Writes => share.seen(false),
    };
    let users = &rq.server().host_users;
    let host = identity.host.user();
    let Some(share) = share.acting_for(&identity.user, host, users) else {
        rq.tell(|left_out| {
            tracing::warn!(target: "frevo::tree", %peer, user = %identity.user, share = name,
                left_out,
                "refused: the share has run_as = \"user\", and this host has no user of that name \
                 (root is not allowed)");
        });
        return Err(Status::ACCESS_DENIED.into());
    };
    let maximal_access = share.maximal_access();
    let tree = session.add_tree(|id| {
        TreeConnect::new(id, Arc::clone(&share), maximal_access).used_by(session.shared_identity())
    })?;
    rq.tell(|left_out| {
        tracing::info!(target: "frevo::tree", %peer, user = %identity.user, share = %share.name,
            left_out, "tree connected");
    });
    out.set_tree_id(tree.id);
    tree_connect::Response {
        share_type: match share.target {
            Target::Disk(_) => ShareType::DISK,
            Target::Pipes => ShareType::PIPE,
        },
        share_flags: share_flags(rq, &share),
        capabilities: share_capabilities(rq, &share),
        maximal_access,
    }
    .encode(&mut out.writer());
    Ok(Status::SUCCESS)
}

/// The share in `\\server\share`; the server part may be anything but empty,
/// for clients use addresses and aliases.
fn share_name(path: &str) -> Option<&str> {
    let (server, share) = path.strip_prefix("\\\\")?.split_once('\\')?;
    (!server.is_empty() && !share.is_empty() && !share.contains('\\')).then_some(share)
}

fn check_encryption(rq: &Request<'_>, share: &Share) -> Result<(), Status> {
    let required = share.encrypt || rq.connection.settings.encryption == Encryption::Required;
    let able = rq.connection.is_smb3()
        && rq.connection.negotiated().is_ok_and(|n| n.terms.cipher.is_some());
    if required && !able {
        rq.tell(|left_out| {
            tracing::warn!(target: "frevo::tree", peer = %rq.connection.peer, share = %share.name,
                left_out,
                "refused: the share demands encryption and the client offers none; mount with SMB 3 \
                 and encryption (Linux: vers=3.1.1,seal), or set encryption = \"offered\"");
        });
        return Err(Status::ACCESS_DENIED);
    }
    Ok(())
}

fn share_flags(rq: &Request<'_>, share: &Share) -> ShareFlags {
    // Zero is SMB2_SHAREFLAG_MANUAL_CACHING: offline files as users choose.
    let mut flags = ShareFlags::EMPTY;
    if share.encrypt && rq.connection.is_smb3() {
        flags |= ShareFlags::ENCRYPT_DATA;
    }
    if share.hide_unreadable {
        flags |= ShareFlags::ACCESS_BASED_DIRECTORY_ENUM;
    }
    flags
}

fn share_capabilities(rq: &Request<'_>, share: &Share) -> ShareCapabilities {
    let keeps_opens = rq.server().durables.store().is_some();
    if share.continuous && keeps_opens && rq.connection.is_smb3() {
        ShareCapabilities::CONTINUOUS_AVAILABILITY
    } else {
        ShareCapabilities::EMPTY
    }
}

#[cfg(test)]
mod tests {
    use super::share_name;

    #[test]
    fn only_unc_paths_name_shares() {
        assert_eq!(share_name("\\\\host\\data"), Some("data"));
        assert_eq!(share_name("\\\\192.0.2.1\\IPC$"), Some("IPC$"));
        for bad in ["", "data", "\\data", "\\\\host", "\\\\host\\", "\\\\\\data", "\\\\h\\a\\b"] {
            assert_eq!(share_name(bad), None, "{bad}");
        }
    }
}
