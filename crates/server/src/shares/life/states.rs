//! The states in the life of a share, and the word that holds one.

use std::net::SocketAddr;

use frevo_store::state::Epoch;
use serde::{Serialize, Serializer};

/// Bits of the word for the kind of state. The next one is [`DRAINED`], the others are the epoch.
const KIND_BITS: u32 = 3;
const KIND_MASK: u64 = (1 << KIND_BITS) - 1;

/// The bit of the word behind the kind: the uses of a share that is draining have ended.
const DRAINED: u64 = 1 << KIND_BITS;
const EPOCH_SHIFT: u32 = KIND_BITS + 1;

/// The word for a state and an epoch.
pub(super) const fn word(kind: ShareLife, epoch: Epoch) -> u64 {
    epoch.0 << EPOCH_SHIFT | kind as u64
}

/// The word for a share whose uses have ended.
pub(super) const fn drained_word(epoch: Epoch) -> u64 {
    word(ShareLife::Draining, epoch) | DRAINED
}

/// True for the word of a share whose uses have ended.
pub(super) const fn is_drained(word: u64) -> bool {
    word & DRAINED != 0
}

/// The epoch in a word.
pub(super) const fn epoch_of(word: u64) -> Epoch {
    Epoch(word >> EPOCH_SHIFT)
}

/// Declares the states once, so that no list of them can lack one: the type, all its values, and the
/// conversion from the word.
macro_rules! states {
    ($($(#[$about:meta])* $state:ident,)*) => {
        /// A state in the life of a share, without the facts that belong to it.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum ShareLife {
            $($(#[$about])* $state,)*
        }

        impl ShareLife {
            /// All states.
            pub const ALL: &[Self] = &[$(Self::$state),*];

            /// The state in the low bits of `word`. All words are made by [`word`].
            pub(super) const fn of(word: u64) -> Self {
                match word & KIND_MASK {
                    $(kind if kind == Self::$state as u64 => Self::$state,)*
                    _ => unreachable!(),
                }
            }
        }
    };
}

states! {
    /// Its records are being loaded.
    #[default]
    Starting,
    /// This server serves it.
    Owned,
    /// This server still owns it, and ends its use so that another one can take it.
    Draining,
    /// Another server owns it.
    Elsewhere,
    /// Its records could not be loaded.
    Failed,
}

const _: () = assert!(ShareLife::ALL.len() <= 1 << KIND_BITS, "the word has room for all states");

impl ShareLife {
    /// The word for it in status, logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Owned => "owned",
            Self::Draining => "draining",
            Self::Elsewhere => "elsewhere",
            Self::Failed => "failed",
        }
    }

    /// True while this server carries out and answers the requests of those who use the share.
    #[must_use]
    pub const fn is_served(self) -> bool {
        match self {
            Self::Owned | Self::Draining => true,
            Self::Starting | Self::Elsewhere | Self::Failed => false,
        }
    }

    /// True while new uses of the share may begin.
    #[must_use]
    pub const fn takes_new(self) -> bool {
        match self {
            Self::Owned => true,
            Self::Starting | Self::Draining | Self::Elsewhere | Self::Failed => false,
        }
    }
}

impl Serialize for ShareLife {
    /// Writes its [`name`](Self::name).
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The state of a share, with its facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LifeState {
    /// Its records are being loaded.
    Starting,
    /// This server serves it.
    Owned(Epoch),
    /// This server still owns it, and ends its use so that another one can take it.
    Draining(Epoch),
    /// Another server owns it. The addresses of that server are empty if they are not known.
    Elsewhere(Vec<SocketAddr>),
    /// Its records could not be loaded, for this reason.
    Failed(String),
}

impl LifeState {
    /// The state without its facts.
    pub const fn kind(&self) -> ShareLife {
        match self {
            Self::Starting => ShareLife::Starting,
            Self::Owned(_) => ShareLife::Owned,
            Self::Draining(_) => ShareLife::Draining,
            Self::Elsewhere(_) => ShareLife::Elsewhere,
            Self::Failed(_) => ShareLife::Failed,
        }
    }

    /// The word for it in status, logs and metrics.
    pub const fn name(&self) -> &'static str {
        self.kind().name()
    }
}
