//! Calls that are under way.

use alloc::vec::Vec;

/// A request of which fragments have come.
#[derive(Debug)]
pub(super) struct PartialCall {
    pub(super) id: u32,
    pub(super) context_id: u16,
    pub(super) opnum: u16,
    pub(super) stub: Vec<u8>,
    pub(super) fragments: usize,
}

impl PartialCall {
    pub(super) const fn bytes(&self) -> usize {
        self.stub.capacity()
    }
}

/// A call whose answer has not been sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub(super) id: u32,
    pub(super) context_id: u16,
}
