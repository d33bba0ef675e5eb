//! Accounts by SID and SIDs by name: MS-LSAT 3.1.4.10 and 3.1.4.6 over the pipe lsarpc.

use frevo_rpc::lsarpc::{
    self, LookupNames, LookupReply, LookupSids, NamesForm, OpenPolicy, SidsForm, TranslatedName,
    TranslatedSid,
};
use frevo_rpc::{SidNameUse, SyntaxId};
use frevo_wire::dtyp::{AccessMask, Sid as WireSid};
use frevo_wire::ndr::ContextHandle;

use crate::Status;
use crate::error::{Cause, During, Result};
use crate::limits::LOOKUP_MAX;
use crate::rpc::{Pipe, Repeats};
use crate::session::Session;
use crate::types::{Account, Sid};

/// POLICY_LOOKUP_NAMES, MS-LSAD 2.2.1.1.2.
const POLICY_LOOKUP_NAMES: AccessMask = AccessMask(0x0800);

impl Session {
    /// Returns the accounts of SIDs, in their order; `None` for a SID that the server does not
    /// know.
    ///
    /// # Errors
    /// Fails if the server does not answer. Some servers answer only administrators.
    pub async fn lookup_sids(&self, sids: &[Sid]) -> Result<Vec<Option<Account>>> {
        let mut repeats = Repeats::of(self);
        loop {
            match self.ask_for_sids(sids).await {
                Err(error) if repeats.may_repeat(&error) => {}
                found => return found,
            }
        }
    }

    async fn ask_for_sids(&self, sids: &[Sid]) -> Result<Vec<Option<Account>>> {
        const OPERATION: &str = "look up names at";
        let mut authority = Authority::open(self).await?;
        let mut found = Vec::with_capacity(sids.len());
        for part in sids.chunks(LOOKUP_MAX) {
            let wire: Vec<WireSid> = part.iter().map(|sid| sid.wire()).collect();
            let stub = LookupSids::encode(&authority.policy, &wire);
            let answer = authority.pipe.call(lsarpc::LOOKUP_SIDS2, &stub).await?;
            let reply = LookupReply::<TranslatedName>::parse(&answer, SidsForm::Sids2, part.len())
                .during(OPERATION, authority.pipe.url())?;
            judge(reply.status).during(OPERATION, authority.pipe.url())?;
            for (at, sid) in part.iter().enumerate() {
                let known = reply.entries.get(at).filter(|entry| is_known(entry.kind));
                found.push(known.map(|entry| {
                    let domain = domain(&reply, entry.domain);
                    Account::new(*sid, domain, entry.name.clone(), entry.kind)
                }));
            }
        }
        authority.close().await;
        Ok(found)
    }

    /// Returns the SIDs of user and group names, in their order; `None` for a name that the
    /// server does not know. A name may have its domain before it: `FILES\ann`.
    ///
    /// # Errors
    /// Fails as [`Self::lookup_sids`] does.
    pub async fn lookup_names(&self, names: &[&str]) -> Result<Vec<Option<Sid>>> {
        let mut repeats = Repeats::of(self);
        loop {
            match self.ask_for_names(names).await {
                Err(error) if repeats.may_repeat(&error) => {}
                found => return found,
            }
        }
    }

    async fn ask_for_names(&self, names: &[&str]) -> Result<Vec<Option<Sid>>> {
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
                found.push(known.and_then(|entry| entry.sid).map(Sid::of_wire));
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
        let (policy, status) = frevo_rpc::handles::parse_handle_reply(&answer)
            .during("look up names at", pipe.url())?;
        judge(status).during("look up names at", pipe.url())?;
        Ok(Self { pipe, policy })
    }

    /// Closes the handle. If this fails, the handle ends with the pipe.
    async fn close(mut self) {
        let _ =
            self.pipe.call(lsarpc::CLOSE, &frevo_rpc::handles::encode_handle(&self.policy)).await;
    }
}

/// MS-LSAT 3.1.4.10: SOME_NOT_MAPPED and NONE_MAPPED are no errors.
fn judge(status: frevo_wire::Status) -> std::result::Result<(), Cause> {
    let is_good = !status.is_error() || Status::from(status) == Status::NONE_MAPPED;
    if is_good { Ok(()) } else { Err(status.into()) }
}

const fn is_known(kind: SidNameUse) -> bool {
    !matches!(kind, SidNameUse::UNKNOWN | SidNameUse::INVALID | SidNameUse::DELETED_ACCOUNT)
}

fn domain<T>(reply: &LookupReply<T>, index: Option<usize>) -> String {
    index.and_then(|index| reply.domains.get(index)).map(|it| it.name.clone()).unwrap_or_default()
}
