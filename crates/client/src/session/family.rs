//! Sessions of one user with several nodes of a cluster: a share that another node serves leaves the
//! session that it was connected in, and has one of its own from then on.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// The sessions that began as one.
pub(crate) struct Family<Member>(Mutex<Vec<Weak<Member>>>);

impl<Member> Default for Family<Member> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<Member> Family<Member> {
    /// Counts a session in.
    pub(super) fn join(&self, session: &Arc<Member>) {
        let mut members = self.0.lock();
        members.retain(|member| member.strong_count() > 0);
        members.push(Arc::downgrade(session));
    }

    /// Returns the sessions that are in use. The last reference to one may be in this list.
    pub(super) fn members(&self) -> Vec<Arc<Member>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
