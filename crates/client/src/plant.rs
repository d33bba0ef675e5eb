//! Planted faults: the simulator plants one at a time, and its judge must find it. They exist
//! only in builds with the feature `plant`.

use std::cell::Cell;

/// A fault that the simulator can plant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// A repeated request does not have the REPLAY flag.
    SkippedReplayFlag,
    /// A write that is repeated after a reconnect goes behind the first one.
    DoubleAppend,
    /// An Open that held locks is reconnected without them.
    LostLock,
    /// A lease break is acknowledged, and the cache is not told.
    StaleCache,
    /// Some answers go to another request.
    WrongWaiter,
    /// A listing leaves a name out.
    MissedName,
    /// A copy by the server leaves a sector out.
    SkippedSector,
    /// Two messages of a session are sealed with one nonce.
    NonceTwice,
    /// A change of names whose answer was lost is sent again without a question.
    RenamedTwice,
    /// A change of names whose answer was lost counts as carried out.
    LossBelieved,
    /// ChannelSequence stays the same when a channel is lost.
    SequenceStands,
    /// A WRITE by RDMA ends before its memory is taken back.
    LentTooLong,
    /// A client says of each share of a cluster that it was let in before.
    ReconnectClaimed,
    /// The end of a compressed answer is not expanded.
    AnswerCut,
    /// A request that is repeated over QUIC does not have the REPLAY flag.
    RepeatedOverQuic,
}

impl Plant {
    /// All faults, in the order of their declaration.
    pub const ALL: [Self; 15] = [
        Self::SkippedReplayFlag,
        Self::DoubleAppend,
        Self::LostLock,
        Self::StaleCache,
        Self::WrongWaiter,
        Self::MissedName,
        Self::SkippedSector,
        Self::NonceTwice,
        Self::RenamedTwice,
        Self::LossBelieved,
        Self::SequenceStands,
        Self::LentTooLong,
        Self::ReconnectClaimed,
        Self::AnswerCut,
        Self::RepeatedOverQuic,
    ];

    /// True for a fault that clients of a cluster have whose largest dialect is raised.
    pub const fn is_of_dialects(self) -> bool {
        matches!(self, Self::ReconnectClaimed)
    }
}

thread_local! {
    static PLANTED: Cell<Option<Plant>> = const { Cell::new(None) };
    static SECOND: Cell<bool> = const { Cell::new(false) };
}

/// Plants a fault in all clients of this thread, or removes it.
pub fn plant(fault: Option<Plant>) {
    PLANTED.set(fault);
}

/// True for every second call on this thread.
pub(crate) fn is_second() -> bool {
    SECOND.replace(!SECOND.get())
}

pub(crate) fn is_planted(fault: Plant) -> bool {
    PLANTED.get() == Some(fault)
}
