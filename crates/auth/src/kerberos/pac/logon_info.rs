//! KERB_VALIDATION_INFO: MS-PAC 2.5, in the type serialization of MS-RPCE 2.2.6.

use crate::kerberos::Fault;
use crate::limits::{MAX_NAME_UNITS, MAX_PAC_SIDS};
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::bit_set;
use frevo_wire::codec::{Malformed, Reader};
use frevo_wire::dtyp::{FileTime, Sid};
use frevo_wire::ndr::{NdrReader, UnicodeHead};

bit_set! {
    /// UserFlags of MS-PAC 2.5, as far as Kerberos has them.
    UserFlags(u32) {
        /// D: ExtraSids is populated.
        EXTRA_SIDS = 0x20,
        /// H: ResourceGroupIds is populated.
        RESOURCE_GROUPS = 0x200,
    }
}

bit_set! {
    /// UserAccountControl of MS-PAC 2.5: the bits of MS-SAMR 2.2.1.12.
    UserAccountControl(u32) {
        /// USER_ACCOUNT_DISABLED
        DISABLED = 0x1,
        /// USER_NORMAL_ACCOUNT
        NORMAL = 0x10,
        /// USER_WORKSTATION_TRUST_ACCOUNT
        WORKSTATION = 0x80,
        /// USER_SERVER_TRUST_ACCOUNT
        CONTROLLER = 0x100,
        /// USER_ACCOUNT_AUTO_LOCKED
        LOCKED = 0x400,
    }
}

/// SE_GROUP_ENABLED, MS-PAC 2.2.1.
const GROUP_ENABLED: u32 = 4;

/// The facts that a domain controller tells about a user: KERB_VALIDATION_INFO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogonInfo {
    /// EffectiveName: the account's name.
    pub user_name: String,
    /// FullName; often empty.
    pub full_name: String,
    /// LogonServer: the NetBIOS name of the controller.
    pub logon_server: String,
    /// LogonDomainName: the NetBIOS name of the user's domain.
    pub domain: String,
    /// LogonDomainId: the SID of the user's domain.
    pub domain_sid: Sid,
    /// The SID of the user.
    pub user: Sid,
    /// The SID of the user's primary group.
    pub primary_group: Sid,
    /// The groups, each once: of GroupIds, ExtraSids and ResourceGroupIds, without those that no
    /// controller may give a member server (MS-PAC 4.1.2.2).
    pub groups: Vec<Sid>,
    /// The user principal name, if the PAC tells it.
    pub upn: Option<String>,
    /// The DNS name of the user's domain, if the PAC tells it.
    pub dns_domain: Option<String>,
    /// UserAccountControl
    pub user_account_control: UserAccountControl,
    /// KickOffTime: the time at which the user is to be disconnected, if there is one.
    pub kick_off: Option<FileTime>,
}

/// The fixed part of the structure, in its order.
struct Fixed {
    kick_off: FileTime,
    names: [UnicodeHead; 6],
    user: u32,
    primary_group: u32,
    group_count: u32,
    has_groups: bool,
    flags: UserFlags,
    logon_server: UnicodeHead,
    domain: UnicodeHead,
    has_domain_sid: bool,
    control: UserAccountControl,
    extra_count: u32,
    has_extra: bool,
    has_resource_sid: bool,
    resource_count: u32,
    has_resource_groups: bool,
}

const WHAT: &str = "logon information";

impl LogonInfo {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let mut ndr = serialized(bytes)?;
        let fixed = Fixed::read(&mut ndr)?;
        let [user_name, full_name, script, profile, home, drive] = fixed.names;
        let user_name = text(&mut ndr, user_name)?;
        let full_name = text(&mut ndr, full_name)?;
        for unused in [script, profile, home, drive] {
            ndr.unicode(unused, WHAT)?;
        }
        let domain_groups = rids(&mut ndr, fixed.has_groups, fixed.group_count)?;
        let logon_server = text(&mut ndr, fixed.logon_server)?;
        let domain = text(&mut ndr, fixed.domain)?;
        if !fixed.has_domain_sid {
            return Err(Fault::Malformed("LogonDomainId"));
        }
        let domain_sid = ndr.sid(WHAT)?;
        let extra = extra_sids(&mut ndr, fixed.has_extra, fixed.extra_count)?;
        let resource_domain = if fixed.has_resource_sid { Some(ndr.sid(WHAT)?) } else { None };
        let resource_groups = rids(&mut ndr, fixed.has_resource_groups, fixed.resource_count)?;

        let of = |domain: &Sid, rid: u32| domain.with_rid(rid).ok_or(Fault::Malformed("SID"));
        let (user, extra) = match (fixed.user, extra.split_first()) {
            // MS-PAC 2.5: a UserId of zero means that the account is the first entry of ExtraSids.
            (0, Some((first, rest))) => (*first, rest.to_vec()),
            (0, None) => return Err(Fault::Malformed("UserId")),
            (rid, _) => (of(&domain_sid, rid)?, extra),
        };
        let primary_group = of(&domain_sid, fixed.primary_group)?;
        if !may_come_from_a_controller(&user) {
            return Err(Fault::Malformed("UserId"));
        }
        let mut groups = Vec::new();
        for rid in domain_groups {
            groups.push(of(&domain_sid, rid)?);
        }
        if fixed.flags.contains(UserFlags::EXTRA_SIDS) {
            groups.extend(extra);
        }
        if fixed.flags.contains(UserFlags::RESOURCE_GROUPS) {
            let domain = resource_domain.ok_or(Fault::Malformed("ResourceGroupDomainSid"))?;
            for rid in resource_groups {
                groups.push(of(&domain, rid)?);
            }
        }
        let groups = trusted(groups)?;
        let never = FileTime(i64::MAX.cast_unsigned());
        Ok(Self {
            user_name,
            full_name,
            logon_server,
            domain,
            domain_sid,
            user,
            primary_group,
            groups,
            upn: None,
            dns_domain: None,
            user_account_control: fixed.control,
            kick_off: (fixed.kick_off < never && fixed.kick_off > FileTime::ZERO)
                .then_some(fixed.kick_off),
        })
    }
}

/// Reads the headers of MS-RPCE 2.2.6.1 and 2.2.6.2 and the pointer behind them.
fn serialized(bytes: &[u8]) -> Result<NdrReader<'_>, Fault> {
    let mut reader = Reader::new(bytes);
    // The NDR header has version 1, little-endian byte order and length 8. Four bytes of filler
    // follow.
    if reader.array(WHAT)? != [1, 0x10, 8, 0] {
        return Err(Fault::Malformed(WHAT));
    }
    reader.skip(4, WHAT)?;
    let length = usize::try_from(reader.u32(WHAT)?).map_err(|_| Fault::Malformed(WHAT))?;
    reader.skip(4, WHAT)?;
    let mut ndr = NdrReader::new(reader.take(length, WHAT)?);
    if !ndr.pointer(WHAT)? {
        return Err(Fault::Malformed(WHAT));
    }
    Ok(ndr)
}

impl Fixed {
    fn read(ndr: &mut NdrReader<'_>) -> Result<Self, Malformed> {
        let mut times = [FileTime::ZERO; 6];
        for time in &mut times {
            *time = file_time(ndr)?;
        }
        let [_, _, kick_off, ..] = times;
        let mut head = || ndr.unicode_head(WHAT);
        let names = [head()?, head()?, head()?, head()?, head()?, head()?];
        // LogonCount and BadPasswordCount are not used, so they are skipped.
        ndr.u16(WHAT)?;
        ndr.u16(WHAT)?;
        let (user, primary_group) = (ndr.u32(WHAT)?, ndr.u32(WHAT)?);
        let (group_count, has_groups) = (ndr.u32(WHAT)?, ndr.pointer(WHAT)?);
        let flags = UserFlags(ndr.u32(WHAT)?);
        // UserSessionKey is not used, so it is skipped.
        ndr.fixed::<16>(WHAT)?;
        let (logon_server, domain) = (ndr.unicode_head(WHAT)?, ndr.unicode_head(WHAT)?);
        let has_domain_sid = ndr.pointer(WHAT)?;
        // Reserved1 is skipped.
        ndr.fixed::<8>(WHAT)?;
        let control = UserAccountControl(ndr.u32(WHAT)?);
        // SubAuthStatus, LastSuccessfulILogon, LastFailedILogon, FailedILogonCount and Reserved3
        // are not used, so they are skipped.
        ndr.fixed::<28>(WHAT)?;
        let (extra_count, has_extra) = (ndr.u32(WHAT)?, ndr.pointer(WHAT)?);
        let has_resource_sid = ndr.pointer(WHAT)?;
        let (resource_count, has_resource_groups) = (ndr.u32(WHAT)?, ndr.pointer(WHAT)?);
        Ok(Self {
            kick_off,
            names,
            user,
            primary_group,
            group_count,
            has_groups,
            flags,
            logon_server,
            domain,
            has_domain_sid,
            control,
            extra_count,
            has_extra,
            has_resource_sid,
            resource_count,
            has_resource_groups,
        })
    }
}

/// Reads a FILETIME, whose two halves are aligned to four bytes.
fn file_time(ndr: &mut NdrReader<'_>) -> Result<FileTime, Malformed> {
    let (low, high) = (ndr.u32(WHAT)?, ndr.u32(WHAT)?);
    Ok(FileTime((u64::from(high) << 32) | u64::from(low)))
}

fn text(ndr: &mut NdrReader<'_>, head: UnicodeHead) -> Result<String, Malformed> {
    let name = ndr.unicode(head, WHAT)?;
    if name.units().count() > MAX_NAME_UNITS {
        return Err(Malformed::new(WHAT));
    }
    name.decode()
}

/// Reads an array of GROUP_MEMBERSHIP, MS-PAC 2.2.2: the RIDs of the groups that are enabled.
fn rids(ndr: &mut NdrReader<'_>, points: bool, count: u32) -> Result<Vec<u32>, Fault> {
    let count = counted(ndr, points, count)?;
    let mut rids = Vec::with_capacity(count);
    for _ in 0..count {
        let (rid, attributes) = (ndr.u32(WHAT)?, ndr.u32(WHAT)?);
        if attributes & GROUP_ENABLED != 0 {
            rids.push(rid);
        }
    }
    Ok(rids)
}

/// Reads an array of KERB_SID_AND_ATTRIBUTES, MS-PAC 2.2.1: the SIDs that are enabled.
fn extra_sids(ndr: &mut NdrReader<'_>, points: bool, count: u32) -> Result<Vec<Sid>, Fault> {
    let count = counted(ndr, points, count)?;
    let mut heads = Vec::with_capacity(count);
    for _ in 0..count {
        heads.push((ndr.pointer(WHAT)?, ndr.u32(WHAT)?));
    }
    let mut sids = Vec::with_capacity(count);
    for (points, attributes) in heads {
        if !points {
            return Err(Fault::Malformed("ExtraSids"));
        }
        let sid = ndr.sid(WHAT)?;
        if attributes & GROUP_ENABLED != 0 {
            sids.push(sid);
        }
    }
    Ok(sids)
}

/// Reads the count of an array whose entries have eight bytes each.
fn counted(ndr: &mut NdrReader<'_>, points: bool, count: u32) -> Result<usize, Fault> {
    match (points, count) {
        (false, 0) => Ok(0),
        (false, _) => Err(Fault::Malformed(WHAT)),
        (true, _) => {
            let count = ndr.array(count, 8, WHAT)?;
            if count > MAX_PAC_SIDS { Err(Fault::TooManyGroups) } else { Ok(count) }
        }
    }
}

/// Returns the groups that a controller may give, each once.
fn trusted(mut groups: Vec<Sid>) -> Result<Vec<Sid>, Fault> {
    groups.retain(may_come_from_a_controller);
    groups.sort_unstable();
    groups.dedup();
    if groups.len() > MAX_PAC_SIDS { Err(Fault::TooManyGroups) } else { Ok(groups) }
}

/// False for the SIDs that only this machine may give, such as Administrators, Everyone or a Unix
/// user: the class AlwaysFilter of MS-PAC 4.1.2.2, by which a controller that was taken over would
/// rule its member servers.
///
/// Deviation: unknown SIDs are filtered too, such as RESOURCE_MANAGER and the capabilities of apps,
/// which no access list of a file names.
fn may_come_from_a_controller(sid: &Sid) -> bool {
    match (sid.authority(), sid.sub_authorities()) {
        // The SID of a user or group of a domain is S-1-5-21, followed by three numbers of the
        // domain and its own number.
        (5, [21, _, _, _, _]) => true,
        // These two SIDs are "This Organization" and "Other Organization", which a domain adds to a
        // logon.
        (5, [15]) | (5, [1000]) => true,
        // S-1-18-1 and similar SIDs tell how the domain has verified the identity (MS-DTYP
        // 2.4.2.4).
        (18, [_]) => true,
        _ => false,
    }
}
