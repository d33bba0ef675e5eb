//! Memory of compressed requests that are being expanded. It is charged before it is taken, as that of
//! any request is before it is received; and where such a request would not be received yet, it waits, and
//! nothing behind it is read.

use std::sync::Arc;

use tokio::time::sleep;

use super::backlog::Backlog;
use super::{Holder, Kind};
use crate::base::limits::{MEMORY_LOOK, SMALL_FRAME_BYTES};

/// The memory of one request, charged to its account until this is dropped: its connection counts the
/// request from then on.
#[derive(Debug)]
#[must_use = "dropping it ends the charge"]
pub(crate) struct Expanded {
    holder: Arc<Holder>,
    bytes: usize,
}

impl Drop for Expanded {
    fn drop(&mut self) {
        self.holder.subtract(Kind::Frame, self.bytes);
    }
}

impl Holder {
    /// Charges a request that expands to `bytes`; None if it has to wait for memory. A small one, which may
    /// free something, never has to.
    pub(crate) fn try_expand(self: &Arc<Self>, bytes: usize) -> Option<Expanded> {
        // The charge comes first, so that several cores together do not charge too much.
        self.add(Kind::Frame, bytes);
        let charged = Expanded { holder: Arc::clone(self), bytes };
        let is_small = u32::try_from(bytes).is_ok_and(|bytes| bytes <= SMALL_FRAME_BYTES);
        (is_small || !self.takes_kept_memory()).then_some(charged)
    }

    /// Charges a request that expands to `bytes`, when there is memory for it. None if its connection ends
    /// before.
    pub(crate) async fn expand(
        self: &Arc<Self>,
        backlog: &Backlog,
        bytes: usize,
    ) -> Option<Expanded> {
        let _waits = backlog.await_expansion();
        loop {
            if backlog.is_over() {
                return None;
            }
            if let Some(charged) = self.try_expand(bytes) {
                return Some(charged);
            }
            // Others free memory without a notice.
            sleep(MEMORY_LOOK).await;
        }
    }
}
