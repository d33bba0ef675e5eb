//! Quotas that are stored and not enforced.

use alloc::collections::BTreeMap;

use parking_lot::Mutex;

use super::options::MemoryOptions;
use crate::vfs::{QuotaLimits, QuotaState, UserQuota};

/// The quotas of a volume.
#[derive(Debug)]
pub(super) struct Quotas {
    state: QuotaState,
    kept: Mutex<StoredQuotas>,
}

#[derive(Debug)]
struct StoredQuotas {
    users: BTreeMap<u32, UserQuota>,
    defaults: QuotaLimits,
}

impl Quotas {
    pub(super) fn of(options: &MemoryOptions) -> Option<Self> {
        let (state, users) = options.quotas.as_ref()?;
        let users = users.iter().map(|quota| (quota.uid, *quota)).collect();
        let stored = StoredQuotas { users, defaults: QuotaLimits::default() };
        Some(Self { state: *state, kept: Mutex::new(stored) })
    }

    pub(super) const fn state(&self) -> QuotaState {
        self.state
    }

    /// Returns the first quota at or behind this user number.
    pub(super) fn from(&self, uid: u32) -> Option<UserQuota> {
        self.kept.lock().users.range(uid..).next().map(|(_, quota)| *quota)
    }

    pub(super) fn set(&self, uid: u32, limits: QuotaLimits) {
        let mut stored = self.kept.lock();
        let used = stored.users.get(&uid).map_or(0, |quota| quota.used);
        if used == 0 && limits == QuotaLimits::default() {
            stored.users.remove(&uid);
            return;
        }
        let QuotaLimits { threshold, limit } = limits;
        stored.users.insert(uid, UserQuota { uid, used, threshold, limit });
    }

    pub(super) fn defaults(&self) -> QuotaLimits {
        self.kept.lock().defaults
    }

    pub(super) fn set_defaults(&self, limits: QuotaLimits) {
        self.kept.lock().defaults = limits;
    }
}
