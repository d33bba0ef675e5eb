//! Shadow copies that a server makes of its shares: MS-FSRVP 3.2.

use std::net::IpAddr;
use std::time::SystemTime;

use frevo_rpc::SyntaxId;
use frevo_rpc::fsrvp::{Context, Reply, Request, VERSION_1};
use frevo_wire::dtyp::Guid;

use super::Session;
use crate::ambient::random;
use crate::error::{Cause, During, Error, Result};
use crate::limits::SHADOW_COPY_PATIENCE;
use crate::metadata::system_time;
use crate::rpc::Pipe;
use crate::rpc_over_tcp::Demand;
use crate::types::{ShadowCopyError, parse_guid};

const PIPE: &str = "FssagentRpc";
const MAKE: &str = "make a shadow copy of";
const DELETE: &str = "delete the shadow copy";

/// A shadow copy of a share, which a share of its own serves.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShadowCopy {
    /// The name of the share that serves it, such as `data@{2f1d5e0c-7a61-4f1e-9c55-3f2b7f6f1a10}`.
    pub share: String,
    /// The GUID of its set, by which it is deleted.
    pub set: String,
    /// Its GUID.
    pub id: String,
    /// The time at which it was made.
    pub created: SystemTime,
}

impl Session {
    /// Has the server make a shadow copy of the share `share`, and serve it as a share of its own. The copy stays
    /// until [`Self::delete_shadow_copy`]. It has what the server had answered before the call.
    ///
    /// # Errors
    /// Fails if the server makes no shadow copies of the share, makes some for another client, or if the user may
    /// not have them made.
    pub async fn create_shadow_copy(&self, share: &str) -> Result<ShadowCopy> {
        let mut agent = Agent::open(self, share, MAKE).await?;
        let version = agent.call(Request::GetSupportedVersion).await?;
        if !matches!(version, Reply::Version(most) if most >= VERSION_1) {
            return Err(
                agent.failed(Cause::Protocol("it supports no version of its RPC interface"))
            );
        }
        let supported = agent.call(Request::IsPathSupported { share: agent.unc.clone() }).await?;
        agent.note_owner(&supported);
        // FSRVP_CTX_NAS_ROLLBACK, MS-FSRVP 2.2.2.2: the copy outlives its client. smbd answers E_INVALIDARG to the
        // attribute that says that it is not to be changed.
        let context = Context::PERSISTENT | Context::NO_AUTO_RELEASE | Context::NO_WRITERS;
        agent.call(Request::SetContext(context)).await?;
        let client_set = self.new_id().during(MAKE, &agent.url)?;
        let set = agent.id(Request::Start { client_set }).await?;
        let made = self.fill(&mut agent, set).await;
        if made.is_err() {
            // MS-FSRVP 3.2.4.9: a set that is not recovered is ended. The error is that of the call before.
            let _ = agent.call(Request::Abort { set }).await;
        }
        made
    }

    /// Makes the copy of a set that was started: MS-FSRVP 3.2.4.2.2 to 3.2.4.5.
    async fn fill(&self, agent: &mut Agent, set: Guid) -> Result<ShadowCopy> {
        let client_copy = self.new_id().during(MAKE, &agent.url)?;
        let (share, timeout_ms) = (agent.unc.clone(), SHADOW_COPY_PATIENCE.as_millis());
        let timeout_ms = u32::try_from(timeout_ms).unwrap_or(u32::MAX);
        let copy = agent.id(Request::Add { client_copy, set, share: share.clone() }).await?;
        agent.call(Request::Prepare { set, timeout_ms }).await?;
        agent.call(Request::Commit { set, timeout_ms }).await?;
        agent.call(Request::Expose { set, timeout_ms }).await?;
        let mapping = agent.call(Request::GetShareMapping { copy, set, share, level: 1 }).await?;
        let Reply::Mapping(mapping) = mapping else { return Err(agent.nonsense()) };
        let share = mapping.shadow_copy_share.ok_or_else(|| agent.nonsense())?;
        agent.call(Request::RecoveryComplete { set }).await?;
        let created = system_time(mapping.created);
        Ok(ShadowCopy { share, set: set.to_string(), id: copy.to_string(), created })
    }

    /// Deletes the shadow copy `id` of the set `set`, which is one of the share `share`.
    ///
    /// # Errors
    /// Fails if there is no such copy, or if the user may not delete it.
    pub async fn delete_shadow_copy(&self, share: &str, set: &str, id: &str) -> Result<()> {
        let path = format!("{}{}/{share}", self.options().scheme(), self.server());
        let guid = |text: &str| {
            let why = "write a GUID, such as 2f1d5e0c-7a61-4f1e-9c55-3f2b7f6f1a10";
            parse_guid(text).map(Guid).ok_or_else(|| Error::new(Cause::Usage(why), DELETE, &*path))
        };
        let (set, copy) = (guid(set)?, guid(id)?);
        let mut agent = Agent::open(self, share, DELETE).await?;
        let share = agent.unc.clone();
        agent.call(Request::DeleteShareMapping { set, copy, share }).await.map(drop)
    }

    fn new_id(&self) -> std::result::Result<Guid, Cause> {
        Ok(Guid(random(&*self.inner.connector.options.ambient)?))
    }
}

/// The server's agent for shadow copies of one share.
struct Agent {
    pipe: Pipe,
    /// The share in UNC format.
    unc: String,
    /// The share's URL, for messages.
    url: String,
    operation: &'static str,
    /// The machine to which the server says that the share belongs, if that is another one.
    owner: Option<Box<str>>,
}

impl Agent {
    /// Opens the pipe, with calls that are signed as the session's logon was: MS-FSRVP 2.1.
    async fn open(session: &Session, share: &str, operation: &'static str) -> Result<Self> {
        let url = format!("{}{}/{share}", session.options().scheme(), session.server());
        let unc = format!(r"\\{}\{share}", session.server().host);
        let told = |error: Error| error.told_as(operation, &*url);
        let live = session.inner.live().await.during(operation, &url)?;
        let demand = Demand { by_kerberos: live.renewal.is_some(), is_sealed: false };
        let caller = session.inner.connector.caller();
        for interface in [SyntaxId::FSRVP, SyntaxId::FSRVP_3] {
            let logon = caller.initiator(demand).await.during(operation, &url)?;
            let ambient = &*caller.options.ambient;
            let opened = Pipe::open_signed(session, PIPE, interface, logon, ambient).await;
            if let Some(pipe) = opened.map_err(told)? {
                return Ok(Self { pipe, unc, url, operation, owner: None });
            }
        }
        Err(Error::new(crate::Status::NOT_SUPPORTED, operation, url))
    }

    async fn call(&mut self, request: Request) -> Result<Reply> {
        let answer = self.pipe.call(request.opnum(), &request.encode()).await;
        let answer = answer.map_err(|error| error.told_as(self.operation, &*self.url))?;
        let reply = Reply::parse(&request, &answer).during(self.operation, &self.url)?;
        let refused = |status| ShadowCopyError::of(status, self.owner.clone());
        reply.map_err(refused).during(self.operation, &self.url)
    }

    /// Notes OwnerMachineName. Deviation: MS-FSRVP 3.2.4.2.1 has the client go on there; this one asks the server that
    /// the user has named, and names the owner when that refuses.
    fn note_owner(&mut self, supported: &Reply) {
        let Reply::Supported { owner } = supported else { return };
        let host = self.unc.trim_start_matches('\\').split('\\').next().unwrap_or_default();
        let is_other = host.parse::<IpAddr>().is_err() && !is_same_machine(host, owner);
        self.owner = is_other.then(|| owner.trim_start_matches('\\').into());
    }

    async fn id(&mut self, request: Request) -> Result<Guid> {
        match self.call(request).await? {
            Reply::Id(id) => Ok(id),
            _ => Err(self.nonsense()),
        }
    }

    fn nonsense(&self) -> Error {
        self.failed(Cause::Protocol("its RPC answer is not valid"))
    }

    fn failed(&self, cause: Cause) -> Error {
        Error::new(cause, self.operation, &*self.url)
    }
}

/// True if two names can be those of one machine: a name may lack its domain.
fn is_same_machine(one: &str, other: &str) -> bool {
    let label = |name: &str| {
        let name = name.trim_start_matches('\\');
        name.split('.').next().unwrap_or_default().to_ascii_lowercase()
    };
    label(one) == label(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_machine_may_lack_its_domain() {
        assert!(is_same_machine("box.example.org", "BOX"));
        assert!(is_same_machine("box", r"\\box"));
        assert!(!is_same_machine("box1.example.org", "box2.example.org"));
    }
}
