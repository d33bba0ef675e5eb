//! FSCTL_DFS_GET_REFERRALS and FSCTL_DFS_GET_REFERRALS_EX: MS-SMB2 3.3.5.15.2, MS-DFSC 3.2.5.

use std::net::IpAddr;

use frevo_dfs::Asker;
use frevo_wire::Status;
use frevo_wire::command::ioctl::dfs::{ReferralRequest, ReferralRequestEx};

use super::call::{Answer, Call};
use crate::access::access_rules::{Caller, Verdict};

/// Bits of a network in which a target is near a client: MS-DFSC 3.2.1.1 has sites of a domain, and
/// this server belongs to none.
const NEAR_V4_BITS: u32 = 24;
/// Bits of an IPv6 network of one link.
const NEAR_V6_BITS: u32 = 64;

/// Answers FSCTL_DFS_GET_REFERRALS.
pub(super) fn referrals(call: &Call<'_>) -> Answer {
    is_capable(call)?;
    let request = ReferralRequest::parse(call.input).map_err(|_| Status::INVALID_PARAMETER)?;
    answer(call, request.max_level, &request.path)
}

/// Answers FSCTL_DFS_GET_REFERRALS_EX. The site's name in the request is not used: this server knows the
/// sites of no domain.
pub(super) fn referrals_ex(call: &Call<'_>) -> Answer {
    is_capable(call)?;
    let request = ReferralRequestEx::parse(call.input).map_err(|_| Status::INVALID_PARAMETER)?;
    answer(call, request.max_level, &request.path)
}

/// MS-SMB2 3.3.5.15.2: FS_DRIVER_REQUIRED if the server is not IsDfsCapable.
fn is_capable(call: &Call<'_>) -> Result<(), Status> {
    if call.rq.server().shares().namespaces.is_empty() {
        return Err(Status::FS_DRIVER_REQUIRED);
    }
    // Deviation: MS-DFSC has referrals for everybody. Here a caller without an account is told nothing
    // of other servers.
    match call.rq.session()?.identity() {
        Some(identity) if !identity.is_nobody() => Ok(()),
        _ => Err(Status::ACCESS_DENIED),
    }
}

fn answer(call: &Call<'_>, max_level: u16, path: &str) -> Answer {
    let server = call.rq.server();
    let mut number = [0; 8];
    server.ambient.random(&mut number);
    let client = call.rq.connection.peer.ip();
    let is_near = |host: &str| host.parse().is_ok_and(|target| is_near(client, target));
    let asker = Asker { number: u64::from_le_bytes(number), is_near: &is_near };
    // MS-DFSC 3.2.5.1: no version is at most 0.
    if max_level == 0 {
        return Err(Status::INVALID_PARAMETER.into());
    }
    if is_refused(call, path)? {
        return Err(Status::NOT_FOUND.into());
    }
    let response = server.shares().namespaces.referrals(path, &asker)?;
    let room = call.max_output as usize;
    // MS-DFSC 3.2.5.1: whole entries only, and none is BUFFER_OVERFLOW. MS-SMB2 3.3.4.4: that is no
    // error response; as on Windows (3.3.5.15.2 note 384) it has no data.
    Ok(match response.encode_within(max_level, room) {
        Some(output) => (output, Status::SUCCESS),
        None => (Vec::new(), Status::BUFFER_OVERFLOW),
    })
}

/// True if the rules of the namespace's root refuse the caller, for whom it is as absent as for TREE_CONNECT:
/// links and their targets are told to those who may connect.
fn is_refused(call: &Call<'_>, path: &str) -> Result<bool, Status> {
    let rq = call.rq;
    let identity = rq.session()?.identity().ok_or(Status::USER_SESSION_DELETED)?;
    let Some(name) = path.trim_start_matches('\\').split('\\').nth(1) else { return Ok(false) };
    let (shares, domain_sids) = (rq.server().shares(), rq.server().domain_names.sids());
    let Some(root) = shares.find(name) else { return Ok(false) };
    let caller = Caller {
        user: &identity.user,
        groups: &identity.groups,
        groups_are_known: identity.host.is_known(),
        token: &identity.token,
        domain_sids: &domain_sids,
        address: rq.connection.peer.ip(),
    };
    Ok(matches!(root.rules.judge(&caller, root.read_only), Verdict::Refused(_)))
}

/// True if both addresses are in one network.
fn is_near(client: IpAddr, target: IpAddr) -> bool {
    match (client.to_canonical(), target.to_canonical()) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            (one.to_bits() ^ other.to_bits()).leading_zeros() >= NEAR_V4_BITS
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            (one.to_bits() ^ other.to_bits()).leading_zeros() >= NEAR_V6_BITS
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_target_is_in_the_network_of_the_client() {
        let near = |one: &str, other: &str| is_near(one.parse().unwrap(), other.parse().unwrap());
        assert!(near("192.0.2.1", "192.0.2.255") && near("::ffff:192.0.2.1", "192.0.2.9"));
        assert!(near("2001:db8::1", "2001:db8::ffff:1"));
        assert!(!near("192.0.2.1", "192.0.3.1") && !near("192.0.2.1", "2001:db8::1"));
        assert!(!near("2001:db8::1", "2001:db8:0:1::1"));
    }
}
