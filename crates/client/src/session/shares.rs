//! The shares of a session's server: their list, and connecting to one.

use frevo_rpc::SyntaxId;
use frevo_rpc::srvsvc::{
    self, MAX_PREFERRED_LENGTH, ShareEnum, ShareEnumReply, ShareInfo as WireShareInfo,
};

use crate::error::{During, Result};
use crate::rpc::{Pipe, Repeats};
use crate::session::Session;
use crate::share::Share;

/// A share as a server lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShareInfo {
    /// The name of the share.
    pub name: String,
    /// The server's comment on the share.
    pub comment: String,
    /// True for a share of files; false for a printer or IPC$.
    pub is_disk: bool,
    /// True for an administrative share, whose name ends in `$`.
    pub is_special: bool,
}

impl Session {
    /// Connects to the share `name`.
    ///
    /// # Errors
    /// Fails if the server has no such share, or the user may not use it.
    pub async fn share(&self, name: &str) -> Result<Share> {
        Ok(Share::connect(self.clone(), name).await?.following())
    }

    /// Returns the shares that the server lists.
    ///
    /// # Errors
    /// Fails if the server answers with an error, or is lost and does not come back in time.
    pub async fn shares(&self) -> Result<Vec<ShareInfo>> {
        let mut repeats = Repeats::of(self);
        loop {
            match self.list_shares().await {
                Err(error) if repeats.may_repeat(&error) => {}
                listed => return listed,
            }
        }
    }

    async fn list_shares(&self) -> Result<Vec<ShareInfo>> {
        let mut pipe = Pipe::open(self, "srvsvc", SyntaxId::SRVSVC).await?;
        let request = ShareEnum { level: 1, max_len: MAX_PREFERRED_LENGTH, resume: None };
        let stub = request.encode(&format!("\\\\{}", self.server().host));
        let answer = pipe.call(srvsvc::SHARE_ENUM, &stub).await?;
        let reply = ShareEnumReply::parse(&answer, 1).during("list shares of", pipe.url())?;
        let listed = |share: WireShareInfo| ShareInfo {
            is_disk: share.kind.0 & 0xFF == 0,
            is_special: share.kind.0 & 0x8000_0000 != 0 || share.name.ends_with('$'),
            name: share.name,
            comment: share.remark,
        };
        Ok(reply.shares.into_iter().map(listed).collect())
    }
}
