//! The answers to the calls. Each ends with the status of the call.

use super::super::SidNameUse;
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::Status;
use frevo_wire::dtyp::Sid;
use frevo_wire::ndr::NdrWriter;

/// SE_GROUP_MANDATORY, SE_GROUP_ENABLED_BY_DEFAULT and SE_GROUP_ENABLED, MS-SAMR 2.2.1.10: the
/// attributes of every membership and every group.
pub const GROUP_ATTRIBUTES: u32 = 7;

/// SAMPR_RID_ENUMERATION: an account or a domain as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// RelativeId; zero of domains.
    pub rid: u32,
    /// Name
    pub name: String,
}

fn count<T>(entries: &[T]) -> u32 {
    u32::try_from(entries.len()).unwrap_or(u32::MAX)
}

fn end(mut w: NdrWriter, status: Status) -> Vec<u8> {
    w.u32(status.0);
    w.into_stub()
}

/// A number of things and where they are: nowhere when there are none.
fn array_head(w: &mut NdrWriter, count: u32) {
    w.u32(count).pointer(count > 0);
}

/// The numbers behind [`array_head`].
fn array(w: &mut NdrWriter, numbers: impl ExactSizeIterator<Item = u32>) {
    let count = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    if count > 0 {
        w.u32(count);
        for number in numbers {
            w.u32(number);
        }
    }
}

/// EnumerationContext, Buffer and CountReturned: `entries` up to the one that
/// `context` counts, or without any why.
pub fn encode_enumeration(context: u32, entries: Option<&[Entry]>, status: Status) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.u32(context).pointer(entries.is_some());
    if let Some(entries) = entries {
        let count = count(entries);
        array_head(&mut w, count);
        if count > 0 {
            w.u32(count);
        }
        for entry in entries {
            w.u32(entry.rid).unicode_head(&entry.name, 0);
        }
        for entry in entries {
            w.unicode(&entry.name, 0);
        }
    }
    w.u32(entries.map_or(0, count));
    end(w, status)
}

/// DomainId of SamrLookupDomainInSamServer and Sid of SamrRidToSid.
pub fn encode_sid(sid: Result<Sid, Status>) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.pointer(sid.is_ok());
    if let Ok(sid) = &sid {
        w.sid(sid);
    }
    end(w, sid.err().unwrap_or(Status::SUCCESS))
}

/// RelativeIds and Use of SamrLookupNamesInDomain.
pub fn encode_rids(found: &[Option<(u32, SidNameUse)>], status: Status) -> Vec<u8> {
    let mut w = NdrWriter::new();
    array_head(&mut w, count(found));
    array(&mut w, found.iter().map(|found| found.map_or(0, |(rid, _)| rid)));
    array_head(&mut w, count(found));
    array(&mut w, uses(found.iter().map(|found| found.map(|(_, kind)| kind))));
    end(w, status)
}

/// Names and Use of SamrLookupIdsInDomain.
pub fn encode_names(found: &[Option<(String, SidNameUse)>], status: Status) -> Vec<u8> {
    let mut w = NdrWriter::new();
    let count = count(found);
    array_head(&mut w, count);
    if count > 0 {
        w.u32(count);
    }
    let name = |found: &'_ Option<(String, SidNameUse)>| {
        found.as_ref().map_or_else(String::new, |(name, _)| name.clone())
    };
    for found in found {
        w.unicode_head(&name(found), 0);
    }
    for found in found {
        w.unicode(&name(found), 0);
    }
    array_head(&mut w, count);
    array(&mut w, uses(found.iter().map(|found| found.as_ref().map(|(_, kind)| *kind))));
    end(w, status)
}

fn uses(
    kinds: impl ExactSizeIterator<Item = Option<SidNameUse>>,
) -> impl ExactSizeIterator<Item = u32> {
    kinds.map(|kind| u32::from(kind.unwrap_or(SidNameUse::UNKNOWN).0))
}

/// Membership of SamrGetAliasMembership.
pub fn encode_numbers(rids: &[u32], status: Status) -> Vec<u8> {
    let mut w = NdrWriter::new();
    array_head(&mut w, count(rids));
    array(&mut w, rids.iter().copied());
    end(w, status)
}

/// Members of SamrGetMembersInAlias.
pub fn encode_sids(sids: &[Sid], status: Status) -> Vec<u8> {
    let mut w = NdrWriter::new();
    let count = count(sids);
    array_head(&mut w, count);
    if count > 0 {
        w.u32(count);
    }
    for _ in sids {
        w.pointer(true);
    }
    for sid in sids {
        w.sid(sid);
    }
    end(w, status)
}

/// Members of SamrGetMembersInGroup.
pub fn encode_members(members: Result<&[u32], Status>) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.pointer(members.is_ok());
    if let Ok(rids) = members {
        let count = count(rids);
        w.u32(count).pointer(count > 0).pointer(count > 0);
        array(&mut w, rids.iter().copied());
        array(&mut w, rids.iter().map(|_| GROUP_ATTRIBUTES));
    }
    end(w, members.err().unwrap_or(Status::SUCCESS))
}

/// Groups of SamrGetGroupsForUser.
pub fn encode_groups(groups: Result<&[u32], Status>) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.pointer(groups.is_ok());
    if let Ok(rids) = groups {
        let count = count(rids);
        array_head(&mut w, count);
        if count > 0 {
            w.u32(count);
        }
        for rid in rids {
            w.u32(*rid).u32(GROUP_ATTRIBUTES);
        }
    }
    end(w, groups.err().unwrap_or(Status::SUCCESS))
}
