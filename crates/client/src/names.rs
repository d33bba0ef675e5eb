//! Names of SIDs and SIDs of names, asked of the server: MS-LSAT 3.1.4.10 and
//! 3.1.4.6 over the pipe lsarpc.

use frevo_wire::Status;
use frevo_wire::dtyp::{AccessMask, Sid};
use frevo_wire::rpc::handles::ContextHandle;
use frevo_wire::rpc::lsarpc::{
    self, LookupNames, LookupReply, LookupSids, NamesForm, OpenPolicy, SidsForm, TranslatedName,
    TranslatedSid,
};
use frevo_wire::rpc::{Account, SidNameUse, SyntaxId};

use crate::error::{Cause, During, Result};
use crate::limits::LOOKUP_MAX;
use crate::rpc::Pipe;
use crate::session::Session;

/// POLICY_LOOKUP_NAMES, MS-LSAD 2.2.1.1.2.
const POLICY_LOOKUP_NAMES: AccessMask = AccessMask(0x0800);

impl Session {
    /// Who the SIDs are, in their order; nothing for one that the server does not
    /// know.
    ///
    /// # Errors
    /// What the server says. Some refuse it to everybody but administrators.
    pub async fn lookup_sids(&self, sids: &[Sid]) -> Result<Vec<Option<Account>>> {
        const OPERATION: &str = "look up names at";
        let mut authority = Authority::open(self).await?;
        let mut found = Vec::with_capacity(sids.len());
        for part in sids.chunks(LOOKUP_MAX) {
            let stub = LookupSids::encode(&authority.policy, part);
            let answer = authority.pipe.call(lsarpc::LOOKUP_SIDS2, &stub).await?;
            let reply = LookupReply::<TranslatedName>::parse(&answer, SidsForm::Sids2, part.len())
                .during(OPERATION, authority.pipe.url())?;
            judge(reply.status).during(OPERATION, authority.pipe.url())?;
            for (at, sid) in part.iter().enumerate() {
                let known = reply.entries.get(at).filter(|entry| is_known(entry.kind));
                found.push(known.map(|entry| Account {
                    sid: *sid,
                    domain: domain(&reply, entry.domain),
                    name: entry.name.clone(),
                    kind: entry.kind,
                }));
            }
        }
        authority.close().await;
        Ok(found)
    }

    /// The SIDs of names, in their order; nothing for one that the server does
    /// not know. A name may have its domain before it: `FILES\ann`.
    ///
    /// # Errors
    /// As [`Self::lookup_sids`].
    pub async fn lookup_names(&self, names: &[&str]) -> Result<Vec<Option<Sid>>> {
        const OPERATION: &str = "look up names at";
        let mut authority = Authority::open(self).await?;
        let mut found = Vec::with_capacity(names.len());
        for part in names.chunks(LOOKUP_MAX) {
            let stub = LookupNames::encode(&authority.policy, part);
            let answer = authority.pipe.call(lsarpc::LOOKUP_NAMES3, &stub).await?;
            let reply = LookupReply::<TranslatedSid>::parse(&answer, NamesForm::Names3, part.len())
                .during(OPERATION, authority.pipe.url())?;
            judge(reply.status).during(OPERATION, authority.pipe.url())?;
            for at in 0..part.len() {
                let known = reply.entries.get(at).filter(|entry| is_known(entry.kind));
                found.push(known.and_then(|entry| entry.sid));
            }
        }
        authority.close().await;
        Ok(found)
    }
}

/// The server's security authority, open for lookups.
struct Authority {
    pipe: Pipe,
    policy: ContextHandle,
}

impl Authority {
    async fn open(session: &Session) -> Result<Self> {
        let mut pipe = Pipe::open(session, "lsarpc", SyntaxId::LSARPC).await?;
        let server = format!("\\\\{}", session.server().host);
        let stub = OpenPolicy::encode(POLICY_LOOKUP_NAMES, &server);
        let answer = pipe.call(lsarpc::OPEN_POLICY2, &stub).await?;
        let (policy, status) =
            lsarpc::parse_handle_reply(&answer).during("look up names at", pipe.url())?;
        judge(status).during("look up names at", pipe.url())?;
        Ok(Self { pipe, policy })
    }

    /// The handle goes with the pipe if this fails.
    async fn close(mut self) {
        let _ = self.pipe.call(lsarpc::CLOSE, &lsarpc::encode_handle(&self.policy)).await;
    }
}

/// MS-LSAT 3.1.4.10: some or none may be mapped.
fn judge(status: Status) -> std::result::Result<(), Cause> {
    let is_good = !status.is_error() || status == Status::NONE_MAPPED;
    if is_good { Ok(()) } else { Err(status.into()) }
}

const fn is_known(kind: SidNameUse) -> bool {
    !matches!(kind, SidNameUse::UNKNOWN | SidNameUse::INVALID | SidNameUse::DELETED_ACCOUNT)
}

fn domain<T>(reply: &LookupReply<T>, index: Option<usize>) -> String {
    index.and_then(|index| reply.domains.get(index)).map(|it| it.name.clone()).unwrap_or_default()
}
