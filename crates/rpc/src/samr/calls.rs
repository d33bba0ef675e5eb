//! The calls of MS-SAMR. Every account may look up names; only callers for whom the server allows
//! it may list accounts; nobody may change anything. A change of the own password is no call of
//! these: the server answers it itself ([`PasswordChange`](super::PasswordChange)).

use super::display_calls as display;
use super::{
    self as samr, AliasInformation, Connect, DomainFacts, DomainInformation, Entry, Enumerate,
    GetAliasMembership, GroupInformation, LookupDomain, LookupIds, LookupNames, OnHandle,
    OpenAccount, OpenDomain, UserFacts, UserInformation,
};
use crate::handles::{Granted, Handles, encode_descriptor, encode_handle_reply, granted};
use crate::interface::Answer;
use crate::limits::MAX_ENUMERATED;
use crate::{Account, Directory, FaultStatus, SidNameUse};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use frevo_wire::Status;
use frevo_wire::dtyp::{
    AccessMask, Ace, AceFlags, Acl, SdControl, SecurityDescriptor, SecurityInformation, Sid,
};
use frevo_wire::fscc::{eq_ignore_case, upcase_name};
use frevo_wire::ndr::ContextHandle;
use frevo_wire::ndr::NdrWriter;

/// SAM_SERVER_READ and SAM_SERVER_EXECUTE, MS-SAMR 2.2.1.3.
const SERVER: AccessMask = AccessMask(0x0002_0031);
const SERVER_ENUMERATE_DOMAINS: AccessMask = AccessMask(0x10);
const SERVER_LOOKUP_DOMAIN: AccessMask = AccessMask(0x20);

/// DOMAIN_READ and DOMAIN_EXECUTE, 2.2.1.4.
const DOMAIN: AccessMask = AccessMask(0x0002_0385);
const DOMAIN_READ_PASSWORD_PARAMETERS: AccessMask = AccessMask(0x1);
const DOMAIN_READ_OTHER_PARAMETERS: AccessMask = AccessMask(0x4);
const DOMAIN_GET_ALIAS_MEMBERSHIP: AccessMask = AccessMask(0x80);
const DOMAIN_LIST_ACCOUNTS: AccessMask = AccessMask(0x100);
const DOMAIN_LOOKUP: AccessMask = AccessMask(0x200);

/// Returns the rights to list a domain, a group and an alias, for callers that may list accounts.
const fn to_list(all: AccessMask) -> AccessMask {
    match all {
        DOMAIN => DOMAIN_LIST_ACCOUNTS,
        GROUP => GROUP_LIST_MEMBERS,
        ALIAS => ALIAS_LIST_MEMBERS,
        _ => AccessMask::EMPTY,
    }
}

/// GROUP_READ and GROUP_EXECUTE, 2.2.1.5.
const GROUP: AccessMask = AccessMask(0x0002_0011);
const GROUP_READ_INFORMATION: AccessMask = AccessMask(0x1);
const GROUP_LIST_MEMBERS: AccessMask = AccessMask(0x10);

/// ALIAS_READ and ALIAS_EXECUTE, 2.2.1.6.
const ALIAS: AccessMask = AccessMask(0x0002_000C);
const ALIAS_LIST_MEMBERS: AccessMask = AccessMask(0x4);
const ALIAS_READ_INFORMATION: AccessMask = AccessMask(0x8);

/// USER_READ and USER_EXECUTE without USER_CHANGE_PASSWORD, 2.2.1.7: no
/// password is changed here.
const USER: AccessMask = AccessMask(0x0002_031B);
const USER_READ_GENERAL: AccessMask = AccessMask(0x1);
const USER_READ_ACCOUNT: AccessMask = AccessMask(0x10);
const USER_LIST_GROUPS: AccessMask = AccessMask(0x100);

/// DOMAIN_USERS' relative identifier: every account's primary group.
const USERS_RID: u32 = 513;

/// USER_NORMAL_ACCOUNT, MS-SAMR 2.2.1.12.
const NORMAL_ACCOUNT: u32 = 0x10;
/// USER_ACCOUNT_DISABLED
const ACCOUNT_DISABLED: u32 = 0x01;
/// USER_DONT_EXPIRE_PASSWORD
const DONT_EXPIRE_PASSWORD: u32 = 0x200;

/// The object of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Object {
    /// The server of SAM.
    Server,
    /// A domain of accounts.
    Domain(Sid),
    /// A user, group or alias.
    Account(SidNameUse, Sid),
}

/// The accounts of the machine: their data for one caller.
pub trait Sam: Directory {
    /// True if the caller may list accounts and members of groups.
    fn may_list_accounts(&self) -> bool;
    /// True if all users may list accounts, false if only administrators may.
    fn users_list_accounts(&self) -> bool;
    /// The users, groups and aliases of a domain.
    fn accounts_in(&self, domain: &Sid) -> Vec<Account>;
    /// Returns the members of a group or an alias.
    fn members(&self, group: &Sid) -> Vec<Sid>;
    /// The aliases that any of `sids` is in.
    fn memberships(&self, sids: &[Sid]) -> Vec<Sid>;
    /// True if the user may log on.
    fn is_enabled(&self, user: &Sid) -> bool;
}

/// The interface on one association: its handles.
#[derive(Debug)]
pub struct Samr(Handles<Object>);

impl Default for Samr {
    fn default() -> Self {
        Self(Handles::new())
    }
}

impl Samr {
    /// Answers a call of MS-SAMR, other than the change of a password.
    ///
    /// # Errors
    /// The fault that is sent instead of an answer.
    pub fn call(&mut self, opnum: u16, stub: &[u8], services: &dyn Sam) -> Answer {
        call(opnum, stub, &mut self.0, services)
    }

    /// Bytes that its handles take.
    pub const fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

fn call(opnum: u16, stub: &[u8], handles: &mut Handles<Object>, services: &dyn Sam) -> Answer {
    match opnum {
        samr::CONNECT | samr::CONNECT2 | samr::CONNECT4 | samr::CONNECT5 => {
            connect(Connect::parse(stub, opnum)?, opnum, handles, services)
        }
        samr::CLOSE_HANDLE => handles.answer_close(stub),
        samr::QUERY_SECURITY_OBJECT => security(OnHandle::parse_number(stub)?, handles, services),
        samr::LOOKUP_DOMAIN => lookup_domain(&LookupDomain::parse(stub)?, handles, services),
        samr::ENUMERATE_DOMAINS => {
            let request = Enumerate::parse(stub, opnum)?;
            let allowed = server(&request.handle, SERVER_ENUMERATE_DOMAINS, handles)?;
            let named = domains(services).into_iter().map(|(name, _)| Entry { rid: 0, name });
            Ok(enumerate(&request, allowed.map(|()| named.collect())))
        }
        samr::OPEN_DOMAIN => open_domain(OpenDomain::parse(stub)?, handles, services),
        samr::QUERY_INFORMATION_DOMAIN | samr::QUERY_INFORMATION_DOMAIN2 => {
            query_domain(OnHandle::parse_class(stub)?, handles, services)
        }
        samr::ENUMERATE_GROUPS => list(stub, opnum, SidNameUse::GROUP, handles, services),
        samr::ENUMERATE_USERS => list(stub, opnum, SidNameUse::USER, handles, services),
        samr::ENUMERATE_ALIASES => list(stub, opnum, SidNameUse::ALIAS, handles, services),
        samr::GET_ALIAS_MEMBERSHIP => {
            alias_membership(&GetAliasMembership::parse(stub)?, handles, services)
        }
        samr::LOOKUP_NAMES => lookup_names(&LookupNames::parse(stub)?, handles, services),
        samr::LOOKUP_IDS => lookup_ids(&LookupIds::parse(stub)?, handles, services),
        samr::OPEN_GROUP => open_account(stub, SidNameUse::GROUP, handles, services),
        samr::OPEN_ALIAS => open_account(stub, SidNameUse::ALIAS, handles, services),
        samr::OPEN_USER => open_account(stub, SidNameUse::USER, handles, services),
        samr::QUERY_INFORMATION_GROUP => {
            query_group(OnHandle::parse_class(stub)?, handles, services)
        }
        samr::GET_MEMBERS_IN_GROUP => group_members(OnHandle::parse(stub)?, handles, services),
        samr::QUERY_INFORMATION_ALIAS => {
            query_alias(OnHandle::parse_class(stub)?, handles, services)
        }
        samr::GET_MEMBERS_IN_ALIAS => alias_members(OnHandle::parse(stub)?, handles, services),
        samr::QUERY_INFORMATION_USER | samr::QUERY_INFORMATION_USER2 => {
            query_user(OnHandle::parse_class(stub)?, handles, services)
        }
        samr::GET_GROUPS_FOR_USER => groups_of_user(OnHandle::parse(stub)?, handles),
        samr::QUERY_DISPLAY_INFORMATION
        | samr::QUERY_DISPLAY_INFORMATION2
        | samr::QUERY_DISPLAY_INFORMATION3 => display::query(stub, handles, services),
        samr::GET_DISPLAY_ENUMERATION_INDEX | samr::GET_DISPLAY_ENUMERATION_INDEX2 => {
            display::index(stub, handles, services)
        }
        samr::GET_USER_DOMAIN_PASSWORD_INFORMATION => {
            let request = OnHandle::parse(stub)?;
            let found = account(&request.handle, AccessMask::EMPTY, SidNameUse::USER, handles)?;
            Ok(samr::encode_password_information(status_of(&found)))
        }
        // The argument is ignored.
        samr::GET_DOMAIN_PASSWORD_INFORMATION => {
            Ok(samr::encode_password_information(Status::SUCCESS))
        }
        samr::RID_TO_SID => rid_to_sid(OnHandle::parse_number(stub)?, handles),
        _ => Err(FaultStatus::OP_RNG_ERROR),
    }
}

/// MS-SAMR 3.1.5.1.1: every account may connect; rights to change anything are granted to nobody.
fn connect(
    request: Connect,
    opnum: u16,
    handles: &mut Handles<Object>,
    services: &dyn Sam,
) -> Answer {
    let version = request.is_known_version.then_some(()).ok_or(Status::NOT_SUPPORTED);
    let known = version.and_then(|()| services.caller().ok_or(Status::ACCESS_DENIED));
    let opened =
        known.and_then(|_| open(Object::Server, request.desired, SERVER, handles, services));
    if opnum != samr::CONNECT5 {
        return Ok(handle_reply(opened));
    }
    let mut w = NdrWriter::new();
    // OutVersion is 1, and OutRevisionInfo has revision 3 and no optional features.
    w.u32(1).u32(1).u32(3).u32(0);
    w.handle(&opened.unwrap_or(ContextHandle::NULL)).u32(status_of(&opened).0);
    Ok(w.into_stub())
}

fn status_of<T>(result: &Result<T, Status>) -> Status {
    result.as_ref().err().copied().unwrap_or(Status::SUCCESS)
}

fn handle_reply(opened: Result<ContextHandle, Status>) -> Vec<u8> {
    let status = status_of(&opened);
    encode_handle_reply(opened.ok(), status)
}

fn open(
    object: Object,
    desired: AccessMask,
    all: AccessMask,
    handles: &mut Handles<Object>,
    services: &dyn Sam,
) -> Result<ContextHandle, Status> {
    let all = if services.may_list_accounts() { all } else { all.without(to_list(all)) };
    // GENERIC_READ is replaced by all rights that this server can grant.
    let generic = AccessMask::GENERIC_READ;
    let desired = if desired.contains(generic) { desired.without(generic) | all } else { desired };
    let access = granted(desired, all)?;
    let held = Granted { object, access };
    handles.open(services.random(), held).ok_or(Status::INSUFFICIENT_RESOURCES)
}

/// Returns the object of a handle that was opened for `needed`. A handle of another kind gives
/// OBJECT_TYPE_MISMATCH.
fn object<T>(
    handle: &ContextHandle,
    needed: AccessMask,
    handles: &Handles<Object>,
    of: impl FnOnce(Object) -> Option<T>,
) -> Result<Result<T, Status>, FaultStatus> {
    let held = handles.find(handle).ok_or(FaultStatus::CONTEXT_MISMATCH)?;
    let Some(found) = of(held.object) else { return Ok(Err(Status::OBJECT_TYPE_MISMATCH)) };
    let allowed = held.access.contains(needed);
    Ok(if allowed { Ok(found) } else { Err(Status::ACCESS_DENIED) })
}

fn server(
    handle: &ContextHandle,
    needed: AccessMask,
    handles: &Handles<Object>,
) -> Result<Result<(), Status>, FaultStatus> {
    object(handle, needed, handles, |held| matches!(held, Object::Server).then_some(()))
}

pub(super) fn domain(
    handle: &ContextHandle,
    needed: AccessMask,
    handles: &Handles<Object>,
) -> Result<Result<Sid, Status>, FaultStatus> {
    object(handle, needed, handles, |held| match held {
        Object::Domain(sid) => Some(sid),
        _ => None,
    })
}

/// Returns a domain whose accounts the caller may list. Each call asks the server, whose answer may
/// have changed since the handle was opened.
pub(super) fn listed_domain(
    handle: &ContextHandle,
    handles: &Handles<Object>,
    services: &dyn Sam,
) -> Result<Result<Sid, Status>, FaultStatus> {
    Ok(listing(domain(handle, DOMAIN_LIST_ACCOUNTS, handles)?, services))
}

fn listing(found: Result<Sid, Status>, services: &dyn Sam) -> Result<Sid, Status> {
    found.and_then(|sid| services.may_list_accounts().then_some(sid).ok_or(Status::ACCESS_DENIED))
}

/// A user, group or alias: its domain and its own number in it.
fn account(
    handle: &ContextHandle,
    needed: AccessMask,
    kind: SidNameUse,
    handles: &Handles<Object>,
) -> Result<Result<Sid, Status>, FaultStatus> {
    object(handle, needed, handles, |held| match held {
        Object::Account(of, sid) if of == kind => Some(sid),
        _ => None,
    })
}

/// The two domains that a machine has: its own, and the one that all have.
fn domains(services: &dyn Sam) -> Vec<(String, Sid)> {
    let machine = services.machine();
    let own = machine.sid.map(|sid| (machine.name, sid));
    own.into_iter().chain([(String::from("Builtin"), Sid::BUILTIN)]).collect()
}

/// MS-SAMR 3.1.5.11.1
fn lookup_domain(request: &LookupDomain, handles: &Handles<Object>, services: &dyn Sam) -> Answer {
    let found = server(&request.handle, SERVER_LOOKUP_DOMAIN, handles)?.and_then(|()| {
        let name = request.name.as_deref().ok_or(Status::INVALID_PARAMETER)?;
        let mut domains = domains(services).into_iter();
        let found = domains.find(|(known, _)| eq_ignore_case(known, name));
        found.map(|(_, sid)| sid).ok_or(Status::NO_SUCH_DOMAIN)
    });
    Ok(samr::encode_sid(found))
}

/// MS-SAMR 3.1.5.1.5
fn open_domain(request: OpenDomain, handles: &mut Handles<Object>, services: &dyn Sam) -> Answer {
    let opened = server(&request.handle, SERVER_LOOKUP_DOMAIN, handles)?.and_then(|()| {
        let is_known = domains(services).iter().any(|(_, sid)| *sid == request.domain);
        is_known.then_some(()).ok_or(Status::NO_SUCH_DOMAIN)?;
        open(Object::Domain(request.domain), request.desired, DOMAIN, handles, services)
    });
    Ok(handle_reply(opened))
}

/// MS-SAMR 3.1.5.1.7 to 3.1.5.1.9
fn open_account(
    stub: &[u8],
    kind: SidNameUse,
    handles: &mut Handles<Object>,
    services: &dyn Sam,
) -> Answer {
    let request = OpenAccount::parse(stub)?;
    let (all, absent) = match kind {
        SidNameUse::USER => (USER, Status::NO_SUCH_USER),
        SidNameUse::GROUP => (GROUP, Status::NO_SUCH_GROUP),
        _ => (ALIAS, Status::NO_SUCH_ALIAS),
    };
    let opened = domain(&request.handle, DOMAIN_LOOKUP, handles)?.and_then(|domain| {
        let sid = domain.with_rid(request.rid).ok_or(absent)?;
        let found = services.find_sid(&sid).filter(|account| account.kind == kind);
        found.ok_or(absent)?;
        open(Object::Account(kind, sid), request.desired, all, handles, services)
    });
    Ok(handle_reply(opened))
}

pub(super) fn rid(sid: &Sid) -> u32 {
    sid.split_rid().map_or(0, |(_, rid)| rid)
}

pub(super) fn control(user: &Sid, services: &dyn Sam) -> u32 {
    let disabled = if services.is_enabled(user) { 0 } else { ACCOUNT_DISABLED };
    NORMAL_ACCOUNT | DONT_EXPIRE_PASSWORD | disabled
}

/// The accounts of one kind, in the order of their numbers, so that an
/// enumeration goes on where it was.
pub(super) fn of_kind(domain: &Sid, kind: SidNameUse, services: &dyn Sam) -> Vec<Account> {
    let mut all = services.accounts_in(domain);
    all.retain(|account| account.kind == kind);
    all.sort_by_key(|account| rid(&account.sid));
    all
}

/// MS-SAMR 3.1.5.2.2
fn list(
    stub: &[u8],
    opnum: u16,
    kind: SidNameUse,
    handles: &Handles<Object>,
    services: &dyn Sam,
) -> Answer {
    let request = Enumerate::parse(stub, opnum)?;
    let all = listed_domain(&request.handle, handles, services)?.map(|domain| {
        let mut all = of_kind(&domain, kind, services);
        if request.filter != 0 {
            all.retain(|account| control(&account.sid, services) & request.filter != 0);
        }
        let entry = |of: Account| Entry { rid: rid(&of.sid), name: of.name };
        all.into_iter().map(entry).collect()
    });
    Ok(enumerate(&request, all))
}

/// As many entries as the client prefers, but one at least, from where it was.
fn enumerate(request: &Enumerate, all: Result<Vec<Entry>, Status>) -> Vec<u8> {
    let all = match all {
        Ok(all) => all,
        Err(status) => return samr::encode_enumeration(request.context, None, status),
    };
    let start = usize::try_from(request.context).unwrap_or(usize::MAX);
    let rest = all.get(start..).unwrap_or(&[]);
    let mut room = usize::try_from(request.max_len).unwrap_or(usize::MAX);
    let fits = |entry: &&Entry| {
        // An entry's size is that of a SAMPR_RID_ENUMERATION and of its name in UTF-16.
        let size = entry.name.len().saturating_mul(2).saturating_add(ENTRY);
        room.checked_sub(size).inspect(|left| room = *left).is_some()
    };
    let told = rest.iter().take(MAX_ENUMERATED).take_while(fits).count();
    let told = told.max(rest.len().min(1));
    let status = if told < rest.len() { Status::MORE_ENTRIES } else { Status::SUCCESS };
    let context = u32::try_from(start.saturating_add(told)).unwrap_or(u32::MAX);
    let context = if rest.is_empty() { request.context } else { context };
    samr::encode_enumeration(context, rest.get(..told), status)
}

/// Bytes of an entry beside its text.
const ENTRY: usize = 24;

/// How a lookup went.
fn mapped<T>(found: &[Option<T>]) -> Status {
    match found.iter().flatten().count() {
        mapped if mapped == found.len() => Status::SUCCESS,
        0 => Status::NONE_MAPPED,
        _ => Status::SOME_NOT_MAPPED,
    }
}

/// MS-SAMR 3.1.5.11.2
fn lookup_names(request: &LookupNames, handles: &Handles<Object>, services: &dyn Sam) -> Answer {
    let domain = match domain(&request.handle, DOMAIN_LOOKUP, handles)? {
        Ok(domain) => domain,
        Err(status) => return Ok(samr::encode_rids(&[], status)),
    };
    // A client may ask for a thousand names at once, so an index of all accounts is made first.
    let all = services.accounts_in(&domain);
    let named = |account: &Account| (upcase_name(&account.name), (rid(&account.sid), account.kind));
    let known: BTreeMap<_, _> = all.iter().rev().map(named).collect();
    let find = |name: &Option<String>| known.get(&upcase_name(name.as_deref()?)).copied();
    let found: Vec<_> = request.names.iter().map(find).collect();
    Ok(samr::encode_rids(&found, mapped(&found)))
}

/// MS-SAMR 3.1.5.11.3
fn lookup_ids(request: &LookupIds, handles: &Handles<Object>, services: &dyn Sam) -> Answer {
    let domain = match domain(&request.handle, DOMAIN_LOOKUP, handles)? {
        Ok(domain) => domain,
        Err(status) => return Ok(samr::encode_names(&[], status)),
    };
    let all = services.accounts_in(&domain);
    let numbered = |account: Account| (rid(&account.sid), (account.name, account.kind));
    let known: BTreeMap<_, _> = all.into_iter().rev().map(numbered).collect();
    let find = |wanted: &u32| known.get(wanted).cloned();
    let found: Vec<_> = request.rids.iter().map(find).collect();
    Ok(samr::encode_names(&found, mapped(&found)))
}

/// True if the caller may read the memberships of these SIDs: its own account, its groups, and SIDs
/// that are no account of this machine; any SID if it may list accounts.
fn may_know_groups_of(sids: &[Sid], services: &dyn Sam) -> bool {
    if services.may_list_accounts() {
        return true;
    }
    let own: Vec<Sid> = services.caller().map(|caller| caller.sid).into_iter().collect();
    let groups = services.memberships(&own);
    let machine = services.machine().sid;
    sids.iter().all(|sid| {
        let (domain, rid) = sid.split_rid().unzip();
        domain != machine || rid == Some(USERS_RID) || own.contains(sid) || groups.contains(sid)
    })
}

/// MS-SAMR 3.1.5.9.2
fn alias_membership(
    request: &GetAliasMembership,
    handles: &Handles<Object>,
    services: &dyn Sam,
) -> Answer {
    let needed = DOMAIN_GET_ALIAS_MEMBERSHIP;
    let found = domain(&request.handle, needed, handles)?.and_then(|domain| {
        may_know_groups_of(&request.sids, services).then_some(()).ok_or(Status::ACCESS_DENIED)?;
        let all = of_kind(&domain, SidNameUse::ALIAS, services);
        let of = services.memberships(&request.sids);
        let is_in = |alias: &&Account| of.contains(&alias.sid);
        Ok(all.iter().filter(is_in).map(|alias| rid(&alias.sid)).collect::<Vec<_>>())
    });
    let status = status_of(&found);
    Ok(samr::encode_numbers(&found.unwrap_or_default(), status))
}

/// Encodes the answer for a class, or an empty one with its status.
fn told(answer: Result<Option<Vec<u8>>, Status>) -> Vec<u8> {
    let answer = answer.and_then(|told| told.ok_or(Status::INVALID_INFO_CLASS));
    answer.unwrap_or_else(|status| {
        let mut w = NdrWriter::new();
        w.pointer(false).u32(status.0);
        w.into_stub()
    })
}

/// MS-SAMR 3.1.5.5.1
fn query_domain(request: OnHandle, handles: &Handles<Object>, services: &dyn Sam) -> Answer {
    let class = DomainInformation(request.number);
    let needed = match class {
        DomainInformation::PASSWORD | DomainInformation::LOCKOUT => DOMAIN_READ_PASSWORD_PARAMETERS,
        _ => DOMAIN_READ_OTHER_PARAMETERS,
    };
    Ok(told(domain(&request.handle, needed, handles)?.map(|domain| {
        let all = services.accounts_in(&domain);
        let count = |kind| {
            let count = all.iter().filter(|account| account.kind == kind).count();
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        let counts = [SidNameUse::USER, SidNameUse::GROUP, SidNameUse::ALIAS].map(count);
        let known = domains(services).into_iter().find(|(_, sid)| *sid == domain)?;
        samr::encode_domain(class, &DomainFacts { name: &known.0, counts })
    })))
}

fn name_of(sid: &Sid, services: &dyn Sam) -> String {
    services.find_sid(sid).map_or_else(String::new, |account| account.name)
}

fn member_count(sid: &Sid, services: &dyn Sam) -> u32 {
    u32::try_from(services.members(sid).len()).unwrap_or(u32::MAX)
}

/// MS-SAMR 3.1.5.5.3
fn query_group(request: OnHandle, handles: &Handles<Object>, services: &dyn Sam) -> Answer {
    let found = account(&request.handle, GROUP_READ_INFORMATION, SidNameUse::GROUP, handles)?;
    Ok(told(found.map(|sid| {
        let (name, members) = (name_of(&sid, services), member_count(&sid, services));
        samr::encode_group(GroupInformation(request.number), &name, members)
    })))
}

/// MS-SAMR 3.1.5.5.4
fn query_alias(request: OnHandle, handles: &Handles<Object>, services: &dyn Sam) -> Answer {
    let found = account(&request.handle, ALIAS_READ_INFORMATION, SidNameUse::ALIAS, handles)?;
    Ok(told(found.map(|sid| {
        let (name, members) = (name_of(&sid, services), member_count(&sid, services));
        samr::encode_alias(AliasInformation(request.number), &name, members)
    })))
}

/// MS-SAMR 3.1.5.5.5
fn query_user(request: OnHandle, handles: &Handles<Object>, services: &dyn Sam) -> Answer {
    let class = UserInformation(request.number);
    let needed = match class {
        UserInformation::CONTROL => USER_READ_ACCOUNT,
        UserInformation::ALL => AccessMask(USER_READ_ACCOUNT.0 | USER_READ_GENERAL.0),
        _ => USER_READ_GENERAL,
    };
    Ok(told(account(&request.handle, needed, SidNameUse::USER, handles)?.map(|sid| {
        let name = name_of(&sid, services);
        let facts = UserFacts {
            name: &name,
            rid: rid(&sid),
            primary_group: USERS_RID,
            control: control(&sid, services),
        };
        samr::encode_user(class, &facts)
    })))
}

/// MS-SAMR 3.1.5.8.3
fn group_members(request: OnHandle, handles: &Handles<Object>, services: &dyn Sam) -> Answer {
    let found = account(&request.handle, GROUP_LIST_MEMBERS, SidNameUse::GROUP, handles)?;
    let found = listing(found, services);
    let rids: Result<Vec<_>, _> = found.map(|sid| services.members(&sid).iter().map(rid).collect());
    Ok(samr::encode_members(rids.as_deref().map_err(|status| *status)))
}

/// MS-SAMR 3.1.5.8.6
fn alias_members(request: OnHandle, handles: &Handles<Object>, services: &dyn Sam) -> Answer {
    let found = account(&request.handle, ALIAS_LIST_MEMBERS, SidNameUse::ALIAS, handles)?;
    let members = listing(found, services).map(|sid| services.members(&sid));
    let status = status_of(&members);
    Ok(samr::encode_sids(&members.unwrap_or_default(), status))
}

/// MS-SAMR 3.1.5.9.1: the groups of the user's own domain that are no aliases.
fn groups_of_user(request: OnHandle, handles: &Handles<Object>) -> Answer {
    let found = account(&request.handle, USER_LIST_GROUPS, SidNameUse::USER, handles)?;
    Ok(samr::encode_groups(found.map(|_| &[USERS_RID][..])))
}

/// MS-SAMR 3.1.5.13.5
fn rid_to_sid(request: OnHandle, handles: &Handles<Object>) -> Answer {
    let found = object(&request.handle, AccessMask::EMPTY, handles, |held| match held {
        Object::Domain(domain) => Some(domain),
        Object::Account(_, sid) => sid.split_rid().map(|(domain, _)| domain),
        _ => None,
    })?;
    let sid = found.and_then(|domain| domain.with_rid(request.number).ok_or(Status::NOT_FOUND));
    Ok(samr::encode_sid(sid))
}

/// MS-SAMR 3.1.5.12.2: the descriptor with the rights of everyone who can connect, and of
/// administrators.
fn security(request: OnHandle, handles: &Handles<Object>, services: &dyn Sam) -> Answer {
    let parts = SecurityInformation(request.number);
    let needed = if parts.contains(SecurityInformation::SACL) {
        AccessMask::ACCESS_SYSTEM_SECURITY
    } else {
        AccessMask::READ_CONTROL
    };
    let found = object(&request.handle, needed, handles, |held| match held {
        Object::Server => Some(SERVER),
        Object::Domain(_) => Some(DOMAIN),
        Object::Account(SidNameUse::USER, _) => Some(USER),
        Object::Account(SidNameUse::GROUP, _) => Some(GROUP),
        Object::Account(..) => Some(ALIAS),
    })?;
    let descriptor = found.map(|all| {
        let allow = |mask, sid| Ace::allow(AceFlags::EMPTY, mask, sid);
        let aces = if services.users_list_accounts() || to_list(all).is_empty() {
            vec![allow(all, Sid::AUTHENTICATED_USERS)]
        } else {
            let users = all.without(to_list(all));
            vec![allow(users, Sid::AUTHENTICATED_USERS), allow(all, Sid::ADMINISTRATORS)]
        };
        SecurityDescriptor {
            control: SdControl::DACL_PRESENT | SdControl::SELF_RELATIVE,
            owner: Some(Sid::ADMINISTRATORS),
            group: Some(Sid::ADMINISTRATORS),
            dacl: Some(Acl::new(aces)),
            ..SecurityDescriptor::default()
        }
        .select(parts)
    });
    Ok(encode_descriptor(descriptor.as_ref().map_err(|status| *status)))
}
