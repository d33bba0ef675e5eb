//! The shadow copies of clients, as administrators see them.

use std::sync::Arc;

use frevo_admin::ShadowCopy;
use frevo_server::ShadowCopySets;
use frevo_wire::fscc::eq_ignore_case;
use parking_lot::Mutex;

/// The shadow copies with their sets, as administrators see them.
#[derive(Debug, Clone, Default)]
pub(super) struct Listed(Arc<Mutex<Vec<ListedCopy>>>);

/// A shadow copy of a share.
#[derive(Debug, Clone)]
struct ListedCopy {
    of: String,
    shown: ShadowCopy,
}

impl Listed {
    pub(super) fn note(&self, sets: &ShadowCopySets) {
        let copies = sets.listed().map(|copy| ListedCopy {
            of: copy.snapshot.share,
            shown: ShadowCopy {
                share: copy.name,
                set: copy.set.to_string(),
                owner: copy.owner,
                taken: copy.snapshot.taken,
            },
        });
        *self.0.lock() = copies.collect();
    }

    /// Returns those of a share.
    pub(super) fn of(&self, share: &str) -> Vec<ShadowCopy> {
        let copies = self.0.lock();
        let is_of = |copy: &&ListedCopy| eq_ignore_case(&copy.of, share);
        copies.iter().filter(is_of).map(|copy| copy.shown.clone()).collect()
    }
}
