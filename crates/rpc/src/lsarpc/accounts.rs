//! The accounts with rights of the policy, MS-LSAD 3.1.1.3, and the calls about them, 3.1.4.5. They
//! tell what the configuration gives; nobody changes it by them.

use super::privileges::{ENTRY_BYTES, Privilege};
use super::{Enumerate, privileges};
use alloc::vec::Vec;
use frevo_wire::Status;
use frevo_wire::codec::Parsed;
use frevo_wire::dtyp::{
    AccessMask, Ace, AceFlags, Acl, SdControl, SecurityDescriptor, SecurityInformation, Sid,
};
use frevo_wire::ndr::{ContextHandle, NdrReader, NdrWriter};

/// An account object: who has rights, and which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Security Identifier
    pub sid: Sid,
    /// The low halves of the LUIDs of its privileges; the high halves are zero.
    pub privileges: &'static [u32],
}

impl Holder {
    fn known(&self) -> impl Iterator<Item = &'static Privilege> {
        self.privileges.iter().filter_map(|luid| privileges::with_luid(*luid))
    }

    /// True if it has the privilege of this number.
    pub fn has(&self, luid: u32) -> bool {
        self.privileges.contains(&luid)
    }
}

/// The arguments of LsarOpenAccount and of LsarEnumerateAccountRights, which has no access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfAccount {
    /// PolicyHandle
    pub policy: ContextHandle,
    /// AccountSid
    pub sid: Sid,
}

impl OfAccount {
    /// Parses the policy and the SID, and leaves the reader behind them.
    pub fn read(r: &mut NdrReader<'_>) -> Parsed<Self> {
        let policy = r.handle("LSA account PolicyHandle")?;
        Ok(Self { policy, sid: r.sid("LSA AccountSid")? })
    }

    /// Stub data of LsarEnumerateAccountRights, and the beginning of LsarOpenAccount.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.handle(&self.policy).sid(&self.sid);
        w.into_stub()
    }
}

/// Arguments of LsarQuerySecurityObject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuerySecurity {
    /// ObjectHandle
    pub object: ContextHandle,
    /// SecurityInformation
    pub parts: SecurityInformation,
}

impl QuerySecurity {
    /// Parses the stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        let object = r.handle("LsarQuerySecurityObject ObjectHandle")?;
        let parts = SecurityInformation(r.u32("LsarQuerySecurityObject SecurityInformation")?);
        Ok(Self { object, parts })
    }

    /// The right that the object must have been opened for, MS-LSAD 3.1.4.9.1.
    pub fn needed(&self) -> AccessMask {
        let mut needed = AccessMask::EMPTY;
        let readable =
            SecurityInformation::OWNER | SecurityInformation::GROUP | SecurityInformation::DACL;
        if self.parts.intersects(readable) {
            needed |= AccessMask::READ_CONTROL;
        }
        if self.parts.contains(SecurityInformation::SACL) {
            needed |= AccessMask::ACCESS_SYSTEM_SECURITY;
        }
        needed
    }
}

/// A descriptor that gives rights to everyone, and further ones to administrators.
pub(super) fn descriptor(everyone: AccessMask, administrators: AccessMask) -> SecurityDescriptor {
    let allow = |mask, sid| Ace::allow(AceFlags::EMPTY, mask, sid);
    let aces =
        Vec::from([allow(administrators, Sid::ADMINISTRATORS), allow(everyone, Sid::EVERYONE)]);
    SecurityDescriptor {
        control: SdControl::DACL_PRESENT | SdControl::SELF_RELATIVE,
        owner: Some(Sid::ADMINISTRATORS),
        group: Some(Sid::LOCAL_SYSTEM),
        dacl: Some(Acl::new(aces)),
        ..SecurityDescriptor::default()
    }
}

/// Stub data of the reply of LsarEnumerateAccounts, MS-LSAD 3.1.4.5.2: accounts until they have the
/// length, and one at least.
///
/// Deviation: the reply with the last account has SUCCESS, as that of
/// [`Enumerate::encode_privileges`].
pub(super) fn encode_accounts(
    request: Enumerate,
    all: &[Holder],
    allowed: Result<(), Status>,
) -> Vec<u8> {
    let from = usize::try_from(request.from).unwrap_or(usize::MAX);
    let rest = all.get(from..).filter(|rest| !rest.is_empty() && allowed.is_ok());
    let Some(rest) = rest else {
        return request.encode_nothing(allowed.err().unwrap_or(Status::NO_MORE_ENTRIES));
    };
    let most = usize::try_from(request.length / ENTRY_BYTES).unwrap_or(usize::MAX);
    let count = rest.len().min(most.saturating_add(1));
    let status = if count < rest.len() { Status::MORE_ENTRIES } else { Status::SUCCESS };
    let mut w = NdrWriter::new();
    w.u32(request.from.saturating_add(u32::try_from(count).unwrap_or(u32::MAX)));
    write_sids(&mut w, rest.get(..count).unwrap_or(rest));
    w.u32(status.0);
    w.into_stub()
}

/// LSAPR_ACCOUNT_ENUM_BUFFER, MS-LSAD 2.2.5.3.
fn write_sids(w: &mut NdrWriter, accounts: &[Holder]) {
    let count = u32::try_from(accounts.len()).unwrap_or(u32::MAX);
    w.u32(count).pointer(count > 0);
    if count == 0 {
        return;
    }
    w.u32(count);
    for _ in accounts {
        w.pointer(true);
    }
    for account in accounts {
        w.sid(&account.sid);
    }
}

/// Stub data of the reply of LsarEnumerateAccountsWithUserRight, MS-LSAD 3.1.4.5.9.
pub(super) fn encode_with_right(found: Result<&[Holder], Status>) -> Vec<u8> {
    let status = match found {
        Ok([]) => Status::NO_MORE_ENTRIES,
        Ok(_) => Status::SUCCESS,
        Err(status) => status,
    };
    let mut w = NdrWriter::new();
    write_sids(&mut w, found.unwrap_or_default());
    w.u32(status.0);
    w.into_stub()
}

/// Stub data of the reply of LsarEnumerateAccountRights, MS-LSAD 3.1.4.5.10: names.
pub(super) fn encode_rights(account: Result<Holder, Status>) -> Vec<u8> {
    let known: Vec<_> = account.iter().flat_map(Holder::known).collect();
    let count = u32::try_from(known.len()).unwrap_or(u32::MAX);
    let mut w = NdrWriter::new();
    w.u32(count).pointer(count > 0);
    if count > 0 {
        w.u32(count);
        for privilege in &known {
            w.unicode_head(privilege.name, 0);
        }
        for privilege in &known {
            w.unicode(privilege.name, 0);
        }
    }
    w.u32(account.err().unwrap_or(Status::SUCCESS).0);
    w.into_stub()
}

/// Stub data of the reply of LsarEnumeratePrivilegesAccount, MS-LSAD 3.1.4.5.4: LSAPR_PRIVILEGE_SET,
/// 2.2.5.5.
pub(super) fn encode_privileges(account: Result<Holder, Status>) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.pointer(account.is_ok());
    if let Ok(account) = &account {
        let luids: Vec<u32> = account.known().map(|privilege| privilege.luid).collect();
        let count = u32::try_from(luids.len()).unwrap_or(u32::MAX);
        w.u32(count).u32(count).u32(0);
        for luid in luids {
            w.u32(luid).u32(0).u32(0);
        }
    }
    w.u32(account.err().unwrap_or(Status::SUCCESS).0);
    w.into_stub()
}

/// Stub data of a reply that is a status alone.
pub(super) fn encode_status(status: Status) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.u32(status.0);
    w.into_stub()
}
