//! The users and groups of the account file, for many questions about SIDs and names.

use std::cell::OnceCell;
use std::collections::HashMap;

use frevo_wire::dtyp::Sid;
use frevo_wire::fscc::fold_name;

use super::{Principal, Principals};
use crate::base::limits::ACCOUNTS_LISTED;

/// Users and groups by SID, and groups by name. The account file is read at the first question; one
/// request may ask a thousand.
#[derive(Debug, Default)]
pub struct Listing(OnceCell<Listed>);

#[derive(Debug)]
struct Listed {
    by_sid: HashMap<Sid, Principal>,
    /// SIDs of groups by name in lower case.
    groups: HashMap<String, Sid>,
    /// True if these are all accounts.
    is_whole: bool,
}

impl Listing {
    fn listed(&self, of: &Principals<'_>) -> &Listed {
        self.0.get_or_init(|| {
            let groups = of.groups();
            let names = groups.iter().map(|group| (fold_name(&group.name), group.sid)).collect();
            let mut by_sid = HashMap::new();
            let users = of.users();
            let is_whole = users.len() < ACCOUNTS_LISTED;
            for principal in users.into_iter().chain(groups) {
                // If two principals have the same SID, the first one is used.
                by_sid.entry(principal.sid).or_insert(principal);
            }
            Listed { by_sid, groups: names, is_whole }
        })
    }

    /// The user or group of this SID.
    pub(super) fn find_sid(&self, of: &Principals<'_>, sid: &Sid) -> Option<Principal> {
        self.listed(of).by_sid.get(sid).cloned()
    }

    /// True if nobody is left out: a SID that is not found is nobody's.
    pub(crate) fn is_whole(&self, of: &Principals<'_>) -> bool {
        self.listed(of).is_whole
    }

    /// The group of this name. Upper and lower case are one.
    pub(super) fn find_group(&self, of: &Principals<'_>, name: &str) -> Option<Principal> {
        let sid = self.listed(of).groups.get(&fold_name(name))?;
        self.find_sid(of, sid)
    }
}
