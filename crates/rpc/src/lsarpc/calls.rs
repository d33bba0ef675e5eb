//! The calls of MS-LSAT and MS-LSAD.

use super::{
    self as lsa, Enumerate, Holder, LookupNames, LookupPrivilege, LookupReply, LookupSids,
    NamesForm, OfAccount, OpenPolicy, OpenPolicy3, PolicyInformation, QuerySecurity, SidsForm,
    TranslatedName, TranslatedSid, UserName, UserNameReply, accounts, privileges,
};
use crate::handles::{Granted, Handles, encode_descriptor, encode_handle_reply, granted};
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

/// POLICY_CREATE_ACCOUNT
const CREATE_ACCOUNT: AccessMask = AccessMask(0x0000_0010);
/// ACCOUNT_ADJUST_PRIVILEGES, MS-LSAD 2.2.1.1.3.
const ADJUST_PRIVILEGES: AccessMask = AccessMask(0x0000_0002);
/// Rights on an account of everyone, MS-LSAD 3.1.1.3 note 50: GENERIC_EXECUTE.
const ACCOUNT_EXECUTE: AccessMask = AccessMask::READ_CONTROL;
/// Rights on an account of administrators, as in the note: GENERIC_ALL. What they change is refused
/// all the same, for the configuration has the rights.
const ACCOUNT_ALL: AccessMask = AccessMask(0x000F_000F);
/// ACCOUNT_VIEW, MS-LSAD 2.2.1.1.3, which LsarEnumerateAccountRights wants of the policy's handle.
const ACCOUNT_VIEW: AccessMask = AccessMask(0x0000_0001);

/// An object of this interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Object {
    Policy,
    /// An account with rights.
    Account(Sid),
}

/// The local security authority: its data for one caller.
pub trait Authority: Directory {
    /// Returns the domain or the workgroup that the server is in.
    fn primary_domain(&self) -> PrimaryDomain;

    /// Returns the account of the primary domain with an isolated name, which has no domain before it.
    fn find_in_primary_domain(&self, name: &str) -> Option<Account>;

    /// Returns the accounts with rights, always in the same order.
    fn holders(&self) -> Vec<Holder>;

    /// True if the caller administers the server.
    fn administers(&self) -> bool;
}

/// The interface on one association: its handles.
#[derive(Debug)]
pub struct Lsarpc(Handles<Object>);

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
    handles: &mut Handles<Object>,
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
        lsa::QUERY_SECURITY_OBJECT => security(QuerySecurity::parse(stub)?, handles),
        lsa::CREATE_ACCOUNT
        | lsa::ENUMERATE_ACCOUNTS
        | lsa::OPEN_ACCOUNT..=lsa::REMOVE_PRIVILEGES_FROM_ACCOUNT
        | lsa::ENUMERATE_ACCOUNTS_WITH_USER_RIGHT..=lsa::REMOVE_ACCOUNT_RIGHTS => {
            account_call(opnum, stub, handles, services)
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
    handles: &mut Handles<Object>,
    services: &dyn Authority,
) -> Result<ContextHandle, Status> {
    let access = granted(request.desired.ok_or(Status::INVALID_PARAMETER)?, EXECUTE)?;
    let held = Granted { object: Object::Policy, access };
    handles.open(services.random(), held).ok_or(Status::INSUFFICIENT_RESOURCES)
}

fn open_first(
    request: OpenPolicy,
    handles: &mut Handles<Object>,
    services: &dyn Authority,
) -> Answer {
    let answer = open(request, handles, services);
    let status = answer.err().unwrap_or(Status::SUCCESS);
    Ok(encode_handle_reply(answer.ok(), status))
}

/// MS-LSAD 3.1.4.4.9: as LsarOpenPolicy2, and both ends tell what they support.
fn open_third(
    request: OpenPolicy3,
    handles: &mut Handles<Object>,
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
    handles: &Handles<Object>,
) -> Result<Result<(), Status>, FaultStatus> {
    match handles.find(handle) {
        Some(Granted { object: Object::Policy, access }) if access.contains(needed) => Ok(Ok(())),
        Some(Granted { object: Object::Policy, .. }) => Ok(Err(Status::ACCESS_DENIED)),
        Some(Granted { object: Object::Account(_), .. }) => Ok(Err(Status::INVALID_HANDLE)),
        None => Err(FaultStatus::CONTEXT_MISMATCH),
    }
}

/// Answers a call about accounts, MS-LSAD 3.1.4.5.
fn account_call(
    opnum: u16,
    stub: &[u8],
    handles: &mut Handles<Object>,
    services: &dyn Authority,
) -> Answer {
    match opnum {
        lsa::ENUMERATE_ACCOUNTS => {
            let request = Enumerate::parse(stub)?;
            let allowed = policy(&request.policy, VIEW_LOCAL_INFORMATION, handles)?;
            Ok(accounts::encode_accounts(request, &services.holders(), allowed))
        }
        lsa::ENUMERATE_ACCOUNTS_WITH_USER_RIGHT => with_right(stub, handles, services),
        lsa::ENUMERATE_ACCOUNT_RIGHTS => {
            let of = OfAccount::read(&mut NdrReader::new(stub))?;
            let allowed = policy(&of.policy, ACCOUNT_VIEW, handles)?;
            Ok(accounts::encode_rights(allowed.and(holder(&of.sid, services))))
        }
        lsa::OPEN_ACCOUNT => open_account(stub, handles, services),
        lsa::ENUMERATE_PRIVILEGES_ACCOUNT => {
            let handle = NdrReader::new(stub).handle("LSA AccountHandle")?;
            let sid = account(&handle, ACCOUNT_VIEW, handles)?;
            Ok(accounts::encode_privileges(sid.and_then(|sid| holder(&sid, services))))
        }
        // Deviation: 3.1.4.5.1, .5, .6, .11 and .12 let administrators change rights. Here the
        // configuration has them.
        lsa::CREATE_ACCOUNT => {
            let handle = NdrReader::new(stub).handle("LSA PolicyHandle")?;
            let allowed = policy(&handle, CREATE_ACCOUNT, handles)?;
            Ok(encode_handle_reply(None, allowed.err().unwrap_or(Status::ACCESS_DENIED)))
        }
        lsa::ADD_ACCOUNT_RIGHTS | lsa::REMOVE_ACCOUNT_RIGHTS => {
            let handle = NdrReader::new(stub).handle("LSA PolicyHandle")?;
            let allowed = policy(&handle, CREATE_ACCOUNT, handles)?;
            Ok(accounts::encode_status(allowed.err().unwrap_or(Status::ACCESS_DENIED)))
        }
        lsa::ADD_PRIVILEGES_TO_ACCOUNT | lsa::REMOVE_PRIVILEGES_FROM_ACCOUNT => {
            let handle = NdrReader::new(stub).handle("LSA AccountHandle")?;
            let allowed = account(&handle, ADJUST_PRIVILEGES, handles)?;
            Ok(accounts::encode_status(allowed.err().unwrap_or(Status::ACCESS_DENIED)))
        }
        _ => Err(FaultStatus::OP_RNG_ERROR),
    }
}

/// Returns the account with rights of this SID.
fn holder(sid: &Sid, services: &dyn Authority) -> Result<Holder, Status> {
    let found = services.holders().into_iter().find(|holder| holder.sid == *sid);
    found.ok_or(Status::OBJECT_NAME_NOT_FOUND)
}

/// Checks that the handle is one of an account that was opened for `needed`.
fn account(
    handle: &ContextHandle,
    needed: AccessMask,
    handles: &Handles<Object>,
) -> Result<Result<Sid, Status>, FaultStatus> {
    let held = handles.find(handle).ok_or(FaultStatus::CONTEXT_MISMATCH)?;
    Ok(match held.object {
        Object::Account(sid) if held.access.contains(needed) => Ok(sid),
        Object::Account(_) => Err(Status::ACCESS_DENIED),
        Object::Policy => Err(Status::INVALID_HANDLE),
    })
}

/// MS-LSAD 3.1.4.5.3
fn open_account(stub: &[u8], handles: &mut Handles<Object>, services: &dyn Authority) -> Answer {
    let mut r = NdrReader::new(stub);
    let of = OfAccount::read(&mut r)?;
    let desired = AccessMask(r.u32("LsarOpenAccount DesiredAccess")?);
    // The rights of the policy's handle do not count; the account has its own list.
    let opened = policy(&of.policy, AccessMask::EMPTY, handles)?.and_then(|()| {
        holder(&of.sid, services)?;
        let all = if services.administers() { ACCOUNT_ALL } else { ACCOUNT_EXECUTE };
        let held = Granted { object: Object::Account(of.sid), access: granted(desired, all)? };
        handles.open(services.random(), held).ok_or(Status::INSUFFICIENT_RESOURCES)
    });
    Ok(encode_handle_reply(opened.ok(), opened.err().unwrap_or(Status::SUCCESS)))
}

/// MS-LSAD 3.1.4.5.9
fn with_right(stub: &[u8], handles: &Handles<Object>, services: &dyn Authority) -> Answer {
    let what = "LsarEnumerateAccountsWithUserRight UserRight";
    let mut r = NdrReader::new(stub);
    let handle = r.handle("LSA PolicyHandle")?;
    let right = if r.pointer(what)? {
        let head = r.unicode_head(what)?;
        Some(r.unicode(head, what)?.decode()?)
    } else {
        None
    };
    let found = policy(&handle, VIEW_LOCAL_INFORMATION, handles)?.and_then(|()| {
        let right = right.ok_or(Status::INVALID_PARAMETER)?;
        let luid = privileges::named(&right).ok_or(Status::NO_SUCH_PRIVILEGE)?.luid;
        let mut holders = services.holders();
        holders.retain(|holder| holder.has(luid));
        Ok(holders)
    });
    Ok(accounts::encode_with_right(found.as_deref().map_err(|status| *status)))
}

/// MS-LSAD 3.1.4.9.1
fn security(request: QuerySecurity, handles: &Handles<Object>) -> Answer {
    let held = handles.find(&request.object).ok_or(FaultStatus::CONTEXT_MISMATCH)?;
    let descriptor = match held.object {
        _ if !held.access.contains(request.needed()) => Err(Status::ACCESS_DENIED),
        Object::Policy => Ok(accounts::descriptor(EXECUTE, EXECUTE)),
        Object::Account(_) => Ok(accounts::descriptor(ACCOUNT_EXECUTE, ACCOUNT_ALL)),
    };
    let descriptor = descriptor.map(|descriptor| descriptor.select(request.parts));
    Ok(encode_descriptor(descriptor.as_ref().map_err(|status| *status)))
}

/// MS-LSAD 3.1.4.4.3
fn query(stub: &[u8], handles: &Handles<Object>, services: &dyn Authority) -> Answer {
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
    handles: &Handles<Object>,
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
    handles: &Handles<Object>,
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
