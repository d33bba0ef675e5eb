//! The calls of MS-LSAT and MS-LSAD.

use super::{
    self as lsa, Enumerate, LookupNames, LookupPrivilege, LookupReply, LookupSids, NamesForm,
    OpenPolicy, OpenPolicy3, PolicyInformation, SidsForm, TranslatedName, TranslatedSid, UserName,
    UserNameReply,
};
use crate::handles::{Granted, Handles, encode_handle_reply, granted};
use crate::interface::Answer;
use crate::limits::MAX_LOOKUPS;
use crate::{Account, Directory, Domain, FaultStatus, PrimaryDomain, SidNameUse};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use frevo_wire::Status;
use frevo_wire::dtyp::{AccessMask, Sid};
use frevo_wire::ndr::ContextHandle;
use frevo_wire::ndr::{NdrReader, NdrWriter};

/// POLICY_VIEW_LOCAL_INFORMATION, MS-LSAD 2.2.1.1.2.
const VIEW_LOCAL_INFORMATION: AccessMask = AccessMask(0x0000_0001);
/// POLICY_LOOKUP_NAMES
const LOOKUP_NAMES: AccessMask = AccessMask(0x0000_0800);
/// POLICY_EXECUTE: the rights of everyone. The other rights are for changes of the policy, which
/// are not supported.
const EXECUTE: AccessMask = AccessMask(0x0002_0801);

/// The policy of LSA, the only object of this interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Policy;

/// The local security authority: its data for one caller.
pub trait Authority: Directory {
    /// Returns the domain or the workgroup that the server is in.
    fn primary_domain(&self) -> PrimaryDomain;

    /// Returns the account of the primary domain with an isolated name, which has no domain before it.
    fn find_in_primary_domain(&self, name: &str) -> Option<Account>;
}

/// The interface on one association: its handles.
#[derive(Debug)]
pub struct Lsarpc(Handles<Policy>);

impl Default for Lsarpc {
    fn default() -> Self {
        Self(Handles::new())
    }
}

impl Lsarpc {
    /// Answers a call of MS-LSAT or MS-LSAD.
    ///
    /// # Errors
    /// The fault that is sent instead of an answer.
    pub fn call(&mut self, opnum: u16, stub: &[u8], services: &dyn Authority) -> Answer {
        call(opnum, stub, &mut self.0, services)
    }

    /// Bytes that its handles take.
    pub const fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

fn call(
    opnum: u16,
    stub: &[u8],
    handles: &mut Handles<Policy>,
    services: &dyn Authority,
) -> Answer {
    match opnum {
        lsa::CLOSE => handles.answer_close(stub),
        lsa::OPEN_POLICY => open_first(OpenPolicy::parse(stub, false)?, handles, services),
        lsa::OPEN_POLICY2 => open_first(OpenPolicy::parse(stub, true)?, handles, services),
        lsa::OPEN_POLICY3 => open_third(OpenPolicy3::parse(stub)?, handles, services),
        lsa::QUERY_INFORMATION_POLICY | lsa::QUERY_INFORMATION_POLICY2 => {
            query(stub, handles, services)
        }
        lsa::GET_USER_NAME => Ok(user_name(UserName::parse(stub)?, services)),
        lsa::LOOKUP_SIDS => sids(stub, SidsForm::Sids, handles, services),
        lsa::LOOKUP_SIDS2 => sids(stub, SidsForm::Sids2, handles, services),
        lsa::LOOKUP_NAMES => names(stub, NamesForm::Names, handles, services),
        lsa::LOOKUP_NAMES2 => names(stub, NamesForm::Names2, handles, services),
        lsa::LOOKUP_NAMES3 => names(stub, NamesForm::Names3, handles, services),
        lsa::ENUMERATE_PRIVILEGES => {
            let request = Enumerate::parse(stub)?;
            let allowed = policy(&request.policy, VIEW_LOCAL_INFORMATION, handles)?;
            Ok(request.encode_privileges(allowed))
        }
        // MS-LSAD 3.1.4.7.7 and .8: trusts are known to domain controllers; a member has none.
        lsa::ENUMERATE_TRUSTED_DOMAINS | lsa::ENUMERATE_TRUSTED_DOMAINS_EX => {
            let request = Enumerate::parse(stub)?;
            let allowed = policy(&request.policy, VIEW_LOCAL_INFORMATION, handles)?;
            Ok(request.encode_nothing(allowed.err().unwrap_or(Status::NO_MORE_ENTRIES)))
        }
        lsa::LOOKUP_PRIVILEGE_VALUE | lsa::LOOKUP_PRIVILEGE_DISPLAY_NAME => {
            let request = LookupPrivilege::by_name(stub)?;
            let allowed = policy(&request.policy, LOOKUP_NAMES, handles)?;
            Ok(match opnum {
                lsa::LOOKUP_PRIVILEGE_VALUE => request.encode_value(allowed),
                _ => request.encode_shown(allowed),
            })
        }
        lsa::LOOKUP_PRIVILEGE_NAME => {
            let request = LookupPrivilege::by_value(stub)?;
            let allowed = policy(&request.policy, LOOKUP_NAMES, handles)?;
            Ok(request.encode_name(allowed))
        }
        // MS-LSAT 3.1.4.5 and 3.1.4.9: only a domain controller answers these two calls, so here
        // they fail.
        lsa::LOOKUP_SIDS3 => {
            let failed = LookupReply::<TranslatedName>::failed(Status::INVALID_SERVER_STATE);
            Ok(failed.encode(SidsForm::Sids2))
        }
        lsa::LOOKUP_NAMES4 => {
            let failed = LookupReply::<TranslatedSid>::failed(Status::INVALID_SERVER_STATE);
            Ok(failed.encode(NamesForm::Names3))
        }
        _ => Err(FaultStatus::OP_RNG_ERROR),
    }
}

/// Opens the policy, MS-LSAD 3.1.4.4.1. Nobody may write it.
fn open(
    request: OpenPolicy,
    handles: &mut Handles<Policy>,
    services: &dyn Authority,
) -> Result<ContextHandle, Status> {
    let access = granted(request.desired.ok_or(Status::INVALID_PARAMETER)?, EXECUTE)?;
    let held = Granted { object: Policy, access };
    handles.open(services.random(), held).ok_or(Status::INSUFFICIENT_RESOURCES)
}

fn open_first(
    request: OpenPolicy,
    handles: &mut Handles<Policy>,
    services: &dyn Authority,
) -> Answer {
    let answer = open(request, handles, services);
    let status = answer.err().unwrap_or(Status::SUCCESS);
    Ok(encode_handle_reply(answer.ok(), status))
}

/// MS-LSAD 3.1.4.4.9: as LsarOpenPolicy2, and both ends tell what they support.
fn open_third(
    request: OpenPolicy3,
    handles: &mut Handles<Policy>,
    services: &dyn Authority,
) -> Answer {
    let answer = match request.version {
        1 => open(request.open, handles, services),
        _ => Err(Status::NOT_SUPPORTED),
    };
    let status = answer.err().unwrap_or(Status::SUCCESS);
    Ok(OpenPolicy3::encode_reply(answer.ok(), status))
}

/// Checks that the handle is one of a policy that was opened for `needed`.
fn policy(
    handle: &ContextHandle,
    needed: AccessMask,
    handles: &Handles<Policy>,
) -> Result<Result<(), Status>, FaultStatus> {
    match handles.find(handle) {
        Some(Granted { object: Policy, access }) if access.contains(needed) => Ok(Ok(())),
        Some(_) => Ok(Err(Status::ACCESS_DENIED)),
        None => Err(FaultStatus::CONTEXT_MISMATCH),
    }
}

/// MS-LSAD 3.1.4.4.3
fn query(stub: &[u8], handles: &Handles<Policy>, services: &dyn Authority) -> Answer {
    let mut r = NdrReader::new(stub);
    let handle = r.handle("LsarQueryInformationPolicy PolicyHandle")?;
    let class = PolicyInformation(r.u16("LsarQueryInformationPolicy InformationClass")?);
    let told = policy(&handle, VIEW_LOCAL_INFORMATION, handles)?.and_then(|()| {
        lsa::encode_information(class, &services.primary_domain(), &services.machine())
            .ok_or(Status::INVALID_PARAMETER)
    });
    Ok(told.unwrap_or_else(|status| {
        let mut w = NdrWriter::new();
        w.pointer(false).u32(status.0);
        w.into_stub()
    }))
}

/// MS-LSAT 3.1.4.4
fn user_name(request: UserName, services: &dyn Authority) -> Vec<u8> {
    let caller = services.caller().or_else(|| services.find_sid(&Sid::ANONYMOUS));
    let (user, domain) = caller.map_or_else(Default::default, |who| (who.name, who.domain));
    UserNameReply { user, domain: request.wants_domain.then_some(domain) }.encode()
}

/// The domains that an answer names, each once.
#[derive(Default)]
struct Referenced(Vec<Domain>);

impl Referenced {
    fn index(&mut self, domain: Domain) -> usize {
        self.0.iter().position(|known| *known == domain).unwrap_or_else(|| {
            self.0.push(domain);
            self.0.len().saturating_sub(1)
        })
    }
}

fn reply<T>(domains: Referenced, entries: Vec<T>, mapped: usize) -> LookupReply<T> {
    let status = match mapped {
        _ if mapped == entries.len() => Status::SUCCESS,
        0 => Status::NONE_MAPPED,
        _ => Status::SOME_NOT_MAPPED,
    };
    let mapped = u32::try_from(mapped).unwrap_or(u32::MAX);
    LookupReply { domains: domains.0, entries, mapped, status }
}

/// MS-LSAT 3.1.4.9 as 3.1.4.10 and 3.1.4.11 change it.
fn sids(
    stub: &[u8],
    form: SidsForm,
    handles: &Handles<Policy>,
    services: &dyn Authority,
) -> Answer {
    let request = LookupSids::parse(stub, form)?;
    let allowed = policy(&request.policy, LOOKUP_NAMES, handles)?;
    let is_valid = request.is_local && request.sids.len() <= MAX_LOOKUPS;
    if let Err(status) = allowed.and(is_valid.then_some(()).ok_or(Status::INVALID_PARAMETER)) {
        return Ok(LookupReply::<TranslatedName>::failed(status).encode(form));
    }
    let (mut domains, mut mapped) = (Referenced::default(), 0usize);
    let entries = request.sids.iter().map(|sid| match services.find_sid(sid) {
        Some(account) => {
            mapped = mapped.saturating_add(1);
            let domain = Some(domains.index(account.in_domain()));
            TranslatedName { kind: account.kind, name: account.name, domain }
        }
        None => not_mapped(sid, &mut domains, services),
    });
    let entries = entries.collect();
    Ok(reply(domains, entries, mapped).encode(form))
}

/// MS-LSAT 3.1.4.9: of an unknown SID its domain is told if that is known, and
/// the last of its numbers; else all of it.
fn not_mapped(sid: &Sid, domains: &mut Referenced, services: &dyn Authority) -> TranslatedName {
    let known = sid.split_rid().and_then(|(domain, rid)| {
        let domain = services.find_sid(&domain)?;
        (domain.kind == SidNameUse::DOMAIN).then(|| (domain.in_domain(), rid))
    });
    let (domain, name) = match known {
        Some((domain, rid)) => (Some(domains.index(domain)), format!("{rid:08X}")),
        None => (None, sid.to_string()),
    };
    TranslatedName { kind: SidNameUse::UNKNOWN, name, domain }
}

/// MS-LSAT 3.1.4.5 as 3.1.4.6 to 3.1.4.8 change it.
fn names(
    stub: &[u8],
    form: NamesForm,
    handles: &Handles<Policy>,
    services: &dyn Authority,
) -> Answer {
    let request = LookupNames::parse(stub, form)?;
    let allowed = policy(&request.policy, LOOKUP_NAMES, handles)?;
    let local_only = request.local_only;
    let find = |name: &str| {
        let is_isolated = !name.contains(['\\', '@']);
        let of_domain = || {
            let may = is_isolated && !local_only;
            may.then(|| services.find_in_primary_domain(name)).flatten()
        };
        services.find_name(name).or_else(of_domain)
    };
    let names: Option<Vec<String>> = request.names.into_iter().collect();
    let names = names.filter(|_| request.is_local).ok_or(Status::INVALID_PARAMETER);
    let names = match allowed.and(names) {
        Ok(names) => names,
        Err(status) => return Ok(LookupReply::<TranslatedSid>::failed(status).encode(form)),
    };
    let (mut domains, mut mapped) = (Referenced::default(), 0usize);
    let entries = names.iter().map(|name| match find(name) {
        Some(account) => {
            mapped = mapped.saturating_add(1);
            let domain = Some(domains.index(account.in_domain()));
            TranslatedSid { kind: account.kind, sid: Some(account.sid), domain }
        }
        None => {
            // If the domain in `DOMAIN\name` is known, the reply lists it, even if the name is
            // unknown.
            let domain = name.split_once('\\').and_then(|(domain, _)| services.find_name(domain));
            let domain = domain.filter(|found| found.kind == SidNameUse::DOMAIN);
            let domain = domain.as_ref().map(Account::in_domain).map(|it| domains.index(it));
            TranslatedSid { kind: SidNameUse::UNKNOWN, sid: None, domain }
        }
    });
    let entries = entries.collect();
    Ok(reply(domains, entries, mapped).encode(form))
}
