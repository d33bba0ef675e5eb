//! The calls of MS-SAMR that show accounts by name: 3.1.5.3.

use super::calls::{Object, Sam, control, listed_domain, of_kind, rid};
use crate::handles::Handles;
use crate::interface::Answer;
use crate::limits::MAX_ENUMERATED;
use crate::samr::{
    Display, DisplayIndex, GROUP_ATTRIBUTES, QueryDisplay, Shown, Totals, encode_display,
};
use crate::{FaultStatus, SidNameUse};
use alloc::vec::Vec;
use frevo_wire::Status;
use frevo_wire::dtyp::Sid;
use frevo_wire::fscc::upcase_name;

/// SamrQueryDisplayInformation, MS-SAMR 3.1.5.3.1.
pub(super) fn query(stub: &[u8], handles: &Handles<Object>, services: &dyn Sam) -> Answer {
    let request = QueryDisplay::parse(stub)?;
    let class = request.class;
    if !(Display::USER..=Display::OEM_GROUP).contains(&class) {
        // The reply's union has no such class, so the call is answered with an NDR fault.
        return Err(FaultStatus::NDR);
    }
    let domain = match listed_domain(&request.handle, handles, services)? {
        Ok(domain) => domain,
        Err(status) => return Ok(encode_display(class, Totals::default(), &[], status)),
    };
    let all = list(class, &domain, services);
    let bytes = |shown: &[Shown]| {
        let sizes = shown.iter().map(|one| one.size(class));
        u32::try_from(sizes.fold(0, usize::saturating_add)).unwrap_or(u32::MAX)
    };
    let start = usize::try_from(request.index).unwrap_or(usize::MAX);
    let rest = all.get(start..).unwrap_or(&[]);
    let told = rest.get(..count(rest, &request)).unwrap_or(rest);
    // In MS-SAMR an incomplete list has SUCCESS, but Windows returns MORE_ENTRIES, and so does this
    // server.
    let status = if told.len() < rest.len() { Status::MORE_ENTRIES } else { Status::SUCCESS };
    let is_oem = matches!(class, Display::OEM_USER | Display::OEM_GROUP);
    let available = if is_oem { 0 } else { bytes(&all) };
    let totals = Totals { available, returned: bytes(told) };
    Ok(encode_display(class, totals, told, status))
}

/// As many as were asked for and fit, but one at least.
fn count(rest: &[Shown], request: &QueryDisplay) -> usize {
    let most = usize::try_from(request.entry_count).unwrap_or(usize::MAX).min(MAX_ENUMERATED);
    let mut room = usize::try_from(request.max_len).unwrap_or(usize::MAX);
    let fits = |one: &&Shown| {
        room.checked_sub(one.size(request.class)).inspect(|left| room = *left).is_some()
    };
    rest.iter().take(most).take_while(fits).count().max(rest.len().min(1))
}

/// Accounts in the order of their names.
fn list(class: Display, domain: &Sid, services: &dyn Sam) -> Vec<Shown> {
    let (kind, is_group) = match class {
        Display::USER | Display::OEM_USER => (SidNameUse::USER, false),
        Display::GROUP | Display::OEM_GROUP => (SidNameUse::GROUP, true),
        // Other classes, such as machine accounts, have no entries on this server.
        _ => return Vec::new(),
    };
    let mut all = of_kind(domain, kind, services);
    all.sort_by_cached_key(|account| upcase_name(&account.name));
    let shown = (1..).zip(all).map(|(index, account)| Shown {
        index,
        rid: rid(&account.sid),
        bits: if is_group { GROUP_ATTRIBUTES } else { control(&account.sid, services) },
        name: account.name,
    });
    shown.collect()
}

/// SamrGetDisplayEnumerationIndex, MS-SAMR 3.1.5.3.4: how many come before the
/// account whose name begins most like the prefix.
pub(super) fn index(stub: &[u8], handles: &Handles<Object>, services: &dyn Sam) -> Answer {
    let request = DisplayIndex::parse(stub)?;
    let found = listed_domain(&request.handle, handles, services)?.and_then(|domain| {
        if !(Display::USER..=Display::GROUP).contains(&request.class) {
            return Err(Status::INVALID_INFO_CLASS);
        }
        let prefix = upcase_name(request.prefix.as_deref().ok_or(Status::INVALID_PARAMETER)?);
        let all = list(request.class, &domain, services);
        let alike = |shown: &Shown| {
            let name = upcase_name(&shown.name);
            prefix.chars().zip(name.chars()).take_while(|(a, b)| a == b).count()
        };
        // Among equally good matches the first one is chosen. `max_by_key` returns the last, so the
        // list is reversed.
        let best =
            all.iter().rev().map(|shown| (alike(shown), shown.index)).max_by_key(|best| best.0);
        let best = best.filter(|(alike, _)| prefix.is_empty() || *alike > 0);
        best.map(|(_, index)| index.saturating_sub(1)).ok_or(Status::NO_MORE_ENTRIES)
    });
    Ok(DisplayIndex::encode_reply(found))
}
