//! Directory services setup, MS-DSSP: the role of the server in its domain.

use crate::accounts::PrimaryDomain;
use crate::interface::{Answer, Interface};
use crate::security::AuthLevel;
use crate::{FaultStatus, SyntaxId, WinError};
use alloc::vec::Vec;
use frevo_wire::ndr::{NdrReader, NdrWriter};
use frevo_wire::open_enum;

/// DsRolerGetPrimaryDomainInformation, MS-DSSP 3.2.5.1.
pub const GET_PRIMARY_DOMAIN_INFORMATION: u16 = 0;

/// The interface of MS-DSSP 2.1. Clients call it on the pipe of the local security authority.
pub static INTERFACE: Interface = Interface {
    syntax: SyntaxId::DSSP,
    name: "Directory services setup",
    pipes: &["lsarpc", "dssetup"],
    secondary_address: r"\PIPE\lsass",
    least_level: AuthLevel::NONE,
    // MS-DSSP 2.1: the interface is served on pipes only.
    level_on_tcp: None,
};

open_enum! {
    /// DSROLE_PRIMARY_DOMAIN_INFO_LEVEL, MS-DSSP 2.2.3.
    InfoLevel(u16) {
        /// DsRolePrimaryDomainInfoBasic
        BASIC = 1,
        /// DsRoleUpgradeStatus
        UPGRADE_STATUS = 2,
        /// DsRoleOperationState
        OPERATION_STATE = 3,
    }
}

/// DsRole_RoleStandaloneServer, MS-DSSP 2.2.2.
const STANDALONE_SERVER: u16 = 2;
/// DsRole_RoleMemberServer
const MEMBER_SERVER: u16 = 3;

/// Answers a call of MS-DSSP. `domain` tells the domain or the workgroup of the server.
///
/// # Errors
/// The fault that is sent instead of an answer.
pub fn call(opnum: u16, stub: &[u8], domain: impl FnOnce() -> PrimaryDomain) -> Answer {
    if opnum != GET_PRIMARY_DOMAIN_INFORMATION {
        return Err(FaultStatus::OP_RNG_ERROR);
    }
    let mut r = NdrReader::new(stub);
    let level = InfoLevel(r.u16("DsRolerGetPrimaryDomainInformation InfoLevel")?);
    Ok(encode_reply(level, &domain()))
}

/// Stub data of the reply.
fn encode_reply(level: InfoLevel, domain: &PrimaryDomain) -> Vec<u8> {
    let mut w = NdrWriter::new();
    let is_known =
        matches!(level, InfoLevel::BASIC | InfoLevel::UPGRADE_STATUS | InfoLevel::OPERATION_STATE);
    w.pointer(is_known);
    if is_known {
        w.u16(level.0);
    }
    match level {
        InfoLevel::BASIC => encode_basic(&mut w, domain),
        // No upgrade is under way, and the server was no domain controller before.
        InfoLevel::UPGRADE_STATUS => drop(w.u32(0).u16(0)),
        // DsRoleOperationIdle
        InfoLevel::OPERATION_STATE => drop(w.u16(0)),
        _ => {}
    }
    let status = if is_known { WinError::SUCCESS } else { WinError::INVALID_PARAMETER };
    w.u32(status.0);
    w.into_stub()
}

/// DSROLER_PRIMARY_DOMAIN_INFO_BASIC, MS-DSSP 2.2.1. The GUID of the domain is not known, so the
/// flag of its presence is clear.
fn encode_basic(w: &mut NdrWriter, domain: &PrimaryDomain) {
    let is_member = domain.sid.is_some();
    let names = [Some(&domain.name), Some(&domain.dns_name), Some(&domain.dns_name)];
    let names = names.map(|name| name.filter(|name| !name.is_empty()));
    w.align(4).u16(if is_member { MEMBER_SERVER } else { STANDALONE_SERVER }).u32(0);
    for name in names {
        w.pointer(name.is_some());
    }
    w.fixed(&[0; 16]);
    for name in names.into_iter().flatten() {
        w.string(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use frevo_wire::dtyp::Sid;

    fn asked(level: u16, sid: Option<Sid>) -> Vec<u8> {
        let dns_name = if sid.is_some() { "a.test" } else { "" };
        let domain = || PrimaryDomain { name: String::from("A"), dns_name: dns_name.into(), sid };
        call(GET_PRIMARY_DOMAIN_INFORMATION, &level.to_le_bytes(), domain).unwrap()
    }

    #[test]
    fn a_member_tells_its_domain() {
        let reply = asked(1, Sid::new(5, &[21, 1, 2, 3]));
        let mut r = NdrReader::new(&reply);
        assert!(r.pointer("").unwrap());
        assert_eq!(r.u16("").unwrap(), 1);
        r.align(4).unwrap();
        assert_eq!((r.u16("").unwrap(), r.u32("").unwrap()), (MEMBER_SERVER, 0));
        for _ in 0..3 {
            assert!(r.pointer("").unwrap());
        }
        assert_eq!(r.fixed::<16>("").unwrap(), [0; 16]);
        for name in ["A", "a.test", "a.test"] {
            assert_eq!(r.string("").unwrap().to_string_lossy(), name);
        }
        assert_eq!(r.u32("").unwrap(), WinError::SUCCESS.0);
    }

    #[test]
    fn a_server_without_a_domain_tells_its_workgroup() {
        let reply = asked(1, None);
        let mut r = NdrReader::new(&reply);
        assert!(r.pointer("").unwrap());
        r.u16("").unwrap();
        r.align(4).unwrap();
        assert_eq!((r.u16("").unwrap(), r.u32("").unwrap()), (STANDALONE_SERVER, 0));
        let has_names: Vec<bool> = (0..3).map(|_| r.pointer("").unwrap()).collect();
        assert_eq!(has_names, [true, false, false]);
    }

    #[test]
    fn other_levels() {
        assert_eq!(asked(3, None), [0, 0, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        let unknown = asked(9, None);
        assert_eq!(unknown, [0, 0, 0, 0, 87, 0, 0, 0]);
        let short = call(0, &[1], || unreachable!());
        assert!(short.is_err());
        let other = call(1, &[1, 0], || unreachable!());
        assert_eq!(other, Err(FaultStatus::OP_RNG_ERROR));
    }
}
