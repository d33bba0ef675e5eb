//! TREE_CONNECT: MS-SMB2 3.2.4.2.4 and 3.2.5.5.

use std::net::IpAddr;
use std::sync::Arc;

use frevo_proto::Dialect;
use frevo_wire::command::ioctl::{self, CtlCode, validate_negotiate};
use frevo_wire::command::tree_connect::{
    self, ShareCapabilities, ShareFlags, ShareType, TreeConnectFlags,
};
use frevo_wire::command::tree_disconnect;
use frevo_wire::error_response::{ErrorId, ErrorResponse, ShareRedirect};
use frevo_wire::file_id::FileId;
use frevo_wire::{Command, Utf16};

use super::cluster_dialect::{self, Refused};
use super::{Share, fsctl, good};
use crate::Status;
use crate::connection::{CAPABILITIES, Call, Message, security_mode};
use crate::error::Cause;
use crate::session::bound::Bound;
use crate::session::{ConnectedShare as _, Failure, Live};

/// The reason why a share is not connected in a session.
#[derive(Debug)]
pub(super) enum NotBound {
    Failed(Failure),
    /// The node is not the share's owner, which has these addresses.
    Redirected(Vec<IpAddr>),
    /// The share needs a connection of its own, with this dialect or with those of the options.
    Apart(Option<Dialect>),
    /// The cluster lets the share be used by this dialect at the newest.
    Older(Dialect),
    /// The share has another session by now, or its session another logon.
    Outdated,
}

impl From<Failure> for NotBound {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Cause> for NotBound {
    fn from(cause: Cause) -> Self {
        Self::Failed(cause.into())
    }
}

/// MS-SMB2 3.2.5.5: a share with these capabilities goes to another node without the others of its session.
const MOVES_ALONE: ShareCapabilities = ShareCapabilities::CLUSTER
    .union(ShareCapabilities::CONTINUOUS_AVAILABILITY)
    .union(ShareCapabilities::ASYMMETRIC);

impl Share {
    /// Returns the tree connect in `live`, after making it if needed.
    pub(super) async fn bind(&self, live: &Arc<Live>) -> Result<Bound, NotBound> {
        let present = || self.inner.bound.lock().filter(|b| b.generation == live.generation);
        if let Some(bound) = present() {
            return Ok(bound);
        }
        let _turn = self.inner.binding.lock().await;
        if let Some(bound) = present() {
            return Ok(bound);
        }
        // Another request may have led the share into another session meanwhile. In the former one its files
        // would belong to another ClientGuid.
        let is_latest = || self.session().inner.is_latest(live);
        if !is_latest() {
            return Err(NotBound::Outdated);
        }
        let bound = self.tree_connect(live).await?;
        if !is_latest() {
            self.disconnect(live, bound).await;
            return Err(NotBound::Outdated);
        }
        if let Some(apart) = self.needs_to_part(live, bound) {
            self.disconnect(live, bound).await;
            return Err(apart);
        }
        self.note_connected(live, bound);
        *self.inner.bound.lock() = Some(bound);
        Ok(bound)
    }

    /// Sends a TREE_CONNECT.
    async fn tree_connect(&self, live: &Arc<Live>) -> Result<Bound, NotBound> {
        let (host, dialect) = (&self.session().server().host, live.terms.dialect);
        let shares = &self.session().client().cluster_shares;
        let unc = format!("\\\\{host}\\{}", self.name());
        let flags = shares.flags(host, self.name(), dialect);
        let request =
            tree_connect::Request { flags, ..tree_connect::Request::new(Utf16::from_str(&unc)) };
        let call = Call::new(Command::TREE_CONNECT, |w| request.encode(w)).signed();
        let channel = live.channel().ok_or(Failure::Gone)?;
        let message = live.call(&channel, call, false).await?;
        let is_proved = channel.signing.is_some();
        if message.status() == Status::SMB_BAD_CLUSTER_DIALECT {
            let refused = Refused { dialect, is_proved, is_sealed: live.security.seal };
            let options = self.session().options();
            return Err(NotBound::Older(cluster_dialect::named(
                message.bytes(),
                refused,
                options,
            )?));
        }
        let asks = flags.contains(TreeConnectFlags::REDIRECT_TO_OWNER);
        if let Some(owners) = owners(&message).filter(|_| asks && is_proved) {
            return Err(NotBound::Redirected(owners));
        }
        let message = good(message, &[])?;
        let response = tree_connect::Response::parse(message.bytes()).map_err(Cause::from)?;
        let bound = Bound {
            generation: live.generation,
            tree_id: message.header.tree_id().unwrap_or(0),
            seal: live.terms.is_smb3() && response.share_flags.contains(ShareFlags::ENCRYPT_DATA),
            capabilities: response.capabilities,
            kind: response.share_type,
            maximal_access: response.maximal_access,
            compress: live.terms.compression.is_some()
                && response.share_flags.contains(ShareFlags::COMPRESS_DATA),
            is_dfs: response.share_type == ShareType::DISK
                && (response.capabilities.contains(ShareCapabilities::DFS)
                    || response.share_flags.intersects(ShareFlags::DFS | ShareFlags::DFS_ROOT)),
        };
        if bound.seal && live.security.sealing.is_none() && !live.is_sealed_by_transport() {
            let why = "the share requires encryption, but the server supports none of the ciphers offered";
            return Err(Cause::Security(why).into());
        }
        self.validate(live, bound).await?;
        if live.terms.is_smb3() && bound.kind != ShareType::PIPE {
            shares.note(host, self.name(), dialect, bound.capabilities);
        }
        Ok(bound)
    }

    /// Returns the way to part from the other shares of the session, if a share with these capabilities
    /// has to.
    fn needs_to_part(&self, live: &Live, bound: Bound) -> Option<NotBound> {
        // Deviation: IPC$ does not count. Every node has its own, so it goes where the other shares of its
        // session go.
        if bound.kind == ShareType::PIPE {
            return None;
        }
        let inner = &self.session().inner;
        let share = || self.inner.as_connected();
        let knows_owners = live.terms.dialect.0 >= Dialect::SMB_3_0_2.0;
        let is_alone = knows_owners && bound.capabilities.contains(MOVES_ALONE);
        // Deviation: a share with open files stays where it is, with whatever others. The files belong to
        // the ClientGuid of its session (MS-SMB2 3.3.5.9.12), and would be lost in another one.
        if self.inner.has_opens() {
            inner.keep_share(share(), is_alone);
            return None;
        }
        if self.may_be_upgraded(live, bound) {
            return Some(NotBound::Older(live.terms.dialect));
        }
        // Others may have been connected later in a session of the share's own. They part from it.
        if self.has_own_session() {
            inner.keep_share(share(), is_alone);
            return None;
        }
        let is_of_cluster = bound.capabilities.contains(ShareCapabilities::CLUSTER);
        let only = live.offer.only;
        // The one dialect is for the shares of the cluster. Others have those of the options.
        let has_dialects = only.is_none() || is_of_cluster;
        let is_together = has_dialects && inner.admit(share(), is_alone);
        (!is_together).then_some(NotBound::Apart(only.filter(|_| is_of_cluster)))
    }

    /// Returns true for a share of a cluster whose node has chosen an older dialect than the newest one that
    /// was offered. It is used by that dialect alone, under a ClientGuid of its own, as if the node had named
    /// the dialect: in a rolling upgrade the share goes to a node that would choose a newer one and refuse it,
    /// and open files belong to their ClientGuid (3.3.5.9.12).
    fn may_be_upgraded(&self, live: &Live, bound: Bound) -> bool {
        let newest = self.session().options().newest.wire();
        bound.capabilities.contains(ShareCapabilities::CLUSTER)
            && live.offer.only.is_none()
            && live.terms.dialect.0 < newest.0
    }

    /// MS-SMB2 3.2.4.22.
    async fn disconnect(&self, live: &Arc<Live>, bound: Bound) {
        let call = Call::new(Command::TREE_DISCONNECT, |w| tree_disconnect::Request.encode(w));
        let _ = live.ask(Call { tree_id: bound.tree_id, ..call }, bound.seal, &[]).await;
    }

    /// VALIDATE_NEGOTIATE_INFO, MS-SMB2 3.2.5.5: detects a dialect that someone on the network
    /// lowered. SMB 3.1.1 has the pre-authentication hash instead.
    async fn validate(&self, live: &Arc<Live>, bound: Bound) -> Result<(), Failure> {
        let channel = live.channel().ok_or(Failure::Gone)?;
        let agreed = channel.connection.agreed();
        let offers_3 = agreed.offered.iter().any(|dialect| dialect.0 >= Dialect::SMB_3_0.0);
        if agreed.terms.is_3_1_1() || !offers_3 || channel.signing.is_none() {
            return Ok(());
        }
        let request = validate_negotiate::Request {
            capabilities: CAPABILITIES,
            guid: agreed.offer.client_guid,
            security_mode: security_mode(self.session().options()),
            dialects: agreed.offered.clone(),
        };
        let mut input = Vec::new();
        request.encode(&mut frevo_wire::codec::Writer::new(&mut input));
        let call = fsctl(CtlCode::VALIDATE_NEGOTIATE_INFO, FileId::ALL_ONES, &input, 24);
        let call = Call { tree_id: bound.tree_id, ..call.signed() };
        let message = live.call(&channel, call, bound.seal).await?;
        if matches!(
            message.status(),
            Status::FILE_CLOSED | Status::INVALID_DEVICE_REQUEST | Status::NOT_SUPPORTED
        ) {
            // The signed refusal shows that the server is older than SMB 3.0 and does not know the
            // request.
            return Ok(());
        }
        let lowered = Cause::Security(
            "someone on the network tampered with the negotiation to lower the protection",
        );
        let message = good(message, &[]).map_err(|_| lowered.clone())?;
        let same = ioctl::Response::parse(message.bytes())
            .and_then(|response| validate_negotiate::Response::parse(response.output))
            .is_ok_and(|said| {
                said.capabilities == agreed.capabilities
                    && said.guid == agreed.server_guid
                    && said.security_mode == agreed.security_mode
                    && said.dialect == agreed.terms.dialect
            });
        if same {
            return Ok(());
        }
        channel.connection.fail(lowered.clone());
        Err(lowered.into())
    }
}

/// Returns the addresses of the share's owner, which a node names that refuses the share: MS-SMB2
/// 2.2.2.2.2. None for another answer, and for one that is malformed: a refusal without addresses.
fn owners(message: &Message) -> Option<Vec<IpAddr>> {
    if message.status() != Status::BAD_NETWORK_NAME {
        return None;
    }
    let response = ErrorResponse::parse(message.bytes()).ok()?;
    let redirect = ShareRedirect::parse(response.data(ErrorId::SHARE_REDIRECT)?).ok()?;
    Some(redirect.addresses)
}
