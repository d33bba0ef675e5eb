//! Faults on purpose: the simulator plants one at a time and must find it. None of this
//! is in a build without the feature `plant`.

use std::cell::Cell;

/// A fault that the simulator can plant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// A client is answered before what it was promised is stable.
    AnswerBeforeStable,
    /// A persistent Open comes back without its locks.
    LocksLeftBehind,
    /// A persistent Open comes back without knowing that its file goes with it.
    DeletionForgotten,
    /// Writes to a continuous share are acknowledged from memory.
    WriteNotThrough,
    /// A numbered operation is carried out each time that it comes.
    OperationTwice,
    /// No lease break is sent.
    LostBreak,
    /// ChannelSequence is not checked.
    StaleRequest,
    /// A CLOSE takes the lock of its file before that of its session.
    LockOrder,
    /// A new file is not reported to those who watch its directory.
    LostNotify,
    /// A repeated CREATE is carried out again.
    CreateTwice,
    /// A FLUSH is answered, and nothing is synced.
    SkippedFlush,
    /// A durable Open waits for its client without end.
    KeptForever,
    /// A repeated LOCK is carried out again.
    LockTwice,
    /// A session outlives its last channel.
    SessionLeft,
    /// A repeated WRITE is taken for one that was carried out.
    ReplayBelieved,
    /// The memory of a READ is written once more after the answer.
    KeyAfterReply,
    /// A server answers requests to a share that another server owns.
    OldOwnerAnswers,
    /// Records are written as if this server always owned their share.
    EpochIgnored,
    /// Each connection has its own turns on a core, not each account.
    TurnOfConnection,
    /// A server of a cluster does not look at the limit until which it may serve.
    LimitIgnored,
    /// Clients that had handles do not come first after a takeover.
    GraceSkipped,
    /// The dialect of a client is compared with the demand of the cluster before the last one.
    FenceBeforeDemand,
    /// The clients of a witness are not woken when it hears of a move.
    NewsKept,
    /// The end of a compressed request is not expanded.
    RequestCut,
    /// A connection of QUIC goes on with a client that comes from another address, which nobody has admitted.
    ClientFollowed,
}

impl Plant {
    /// All planted faults.
    pub const ALL: [Self; 25] = [
        Self::AnswerBeforeStable,
        Self::LocksLeftBehind,
        Self::DeletionForgotten,
        Self::WriteNotThrough,
        Self::OperationTwice,
        Self::LostBreak,
        Self::StaleRequest,
        Self::LockOrder,
        Self::LostNotify,
        Self::CreateTwice,
        Self::SkippedFlush,
        Self::KeptForever,
        Self::LockTwice,
        Self::SessionLeft,
        Self::ReplayBelieved,
        Self::KeyAfterReply,
        Self::OldOwnerAnswers,
        Self::EpochIgnored,
        Self::TurnOfConnection,
        Self::LimitIgnored,
        Self::GraceSkipped,
        Self::FenceBeforeDemand,
        Self::NewsKept,
        Self::RequestCut,
        Self::ClientFollowed,
    ];

    /// True for a fault that servers of a cluster alone can have.
    pub const fn is_of_cluster(self) -> bool {
        matches!(self, Self::LimitIgnored | Self::GraceSkipped | Self::NewsKept)
    }

    /// True for a fault that servers of a cluster have whose largest dialect is raised.
    pub const fn is_of_dialects(self) -> bool {
        matches!(self, Self::FenceBeforeDemand)
    }
}

// The planted fault belongs to one thread, because a simulation runs on one thread and must not
// disturb tests on other threads.
thread_local! {
    static PLANTED: Cell<Option<Plant>> = const { Cell::new(None) };
}

/// From here on servers of this thread have this fault.
pub fn plant(fault: Option<Plant>) {
    PLANTED.set(fault);
}

/// True if servers of this thread have this fault.
pub fn is_planted(fault: Plant) -> bool {
    PLANTED.get() == Some(fault)
}
