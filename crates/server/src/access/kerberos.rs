//! The server's keys for Kerberos, and its memory of accepted tickets.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use frevo_auth::kerberos::{Fault, Policy, Replay, ReplayTable, Replays, Service, ServiceKeys};
use parking_lot::Mutex;

/// The memory of AP-REQs that all connections share.
#[derive(Debug, Default)]
struct SharedReplays(Mutex<ReplayTable>);

impl Replays for SharedReplays {
    fn record(&self, replay: Replay, now: i64) -> Result<(), Fault> {
        self.0.lock().record(replay, now)
    }
}

/// The keys and rules in force. A reload replaces them; the memory stays.
#[derive(Debug, Default)]
pub(crate) struct KerberosSlot {
    service: ArcSwapOption<Service>,
    replays: Arc<SharedReplays>,
}

impl KerberosSlot {
    /// Returns what acceptors need; None while the server takes no tickets.
    pub(crate) fn service(&self) -> Option<Arc<Service>> {
        self.service.load_full()
    }

    /// Replaces keys and rules.
    pub(crate) fn set(&self, keys: Option<(Arc<ServiceKeys>, Policy)>) {
        let replays = || Arc::clone(&self.replays) as Arc<dyn Replays>;
        let service = keys.map(|(keys, policy)| Service { keys, policy, replays: replays() });
        self.service.store(service.map(Arc::new));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_keys_keep_the_memory() {
        let slot = KerberosSlot::default();
        assert!(slot.service().is_none());
        let keys = Arc::new(ServiceKeys::default());
        slot.set(Some((Arc::clone(&keys), Policy::default())));
        let first = slot.service().unwrap();
        slot.set(Some((keys, Policy { clock_skew: 60, ..Policy::default() })));
        let second = slot.service().unwrap();
        assert_eq!(second.policy.clock_skew, 60);
        assert!(Arc::ptr_eq(&first.replays, &second.replays));
        slot.set(None);
        assert!(slot.service().is_none());
    }
}
