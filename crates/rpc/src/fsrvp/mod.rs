//! Shadow copies of shares over the network, MS-FSRVP.
//!
//! [`Request`] and [`Reply`] are the calls. [`ShadowCopySets`] is the state of a server, MS-FSRVP 3.1.1: it
//! says what each call does with the sets, and what is to be done outside. All of it is values.

mod calls;
mod left;
mod saved;
mod sets;
mod unc;

pub use calls::{Reply, Request, ShareMapping};
pub use left::LeftCopy;
pub use sets::{
    ContextSet, Exposure, ListedCopy, NewCopy, Removal, ShadowCopySets, Snapshot, Status, Wanted,
};
pub use unc::share_of;

use crate::SyntaxId;
use crate::interface::Interface;
use crate::security::AuthLevel;
use frevo_wire::{bit_set, open_enum};

/// The interface with the version of MS-FSRVP 6, by which Samba's programs bind.
pub static INTERFACE: Interface = Interface {
    syntax: SyntaxId::FSRVP,
    name: "shadow copies of shares",
    pipes: &["FssagentRpc"],
    secondary_address: r"\PIPE\FssagentRpc",
    // MS-FSRVP 3.1.4: a call that is not signed gets E_ACCESSDENIED, not a fault.
    least_level: AuthLevel::NONE,
    // MS-FSRVP 2.1: RPC over named pipes alone.
    level_on_tcp: None,
};

/// The interface with the version of MS-FSRVP 2.1, on the same pipe.
pub static INTERFACE_3: Interface = Interface {
    syntax: SyntaxId::FSRVP_3,
    name: INTERFACE.name,
    pipes: INTERFACE.pipes,
    secondary_address: INTERFACE.secondary_address,
    least_level: INTERFACE.least_level,
    level_on_tcp: INTERFACE.level_on_tcp,
};

/// The least level of a call that is carried out, MS-FSRVP 3.1.4.
pub const LEAST_LEVEL: AuthLevel = AuthLevel::INTEGRITY;

/// FSRVP_RPC_VERSION_1, MS-FSRVP 2.2.2.4: the only version.
pub const VERSION_1: u32 = 1;

/// GetSupportedVersion, MS-FSRVP 3.1.4.1.
pub const GET_SUPPORTED_VERSION: u16 = 0;
/// SetContext, MS-FSRVP 3.1.4.2.
pub const SET_CONTEXT: u16 = 1;
/// StartShadowCopySet, MS-FSRVP 3.1.4.3.
pub const START_SHADOW_COPY_SET: u16 = 2;
/// AddToShadowCopySet, MS-FSRVP 3.1.4.4.
pub const ADD_TO_SHADOW_COPY_SET: u16 = 3;
/// CommitShadowCopySet, MS-FSRVP 3.1.4.5.
pub const COMMIT_SHADOW_COPY_SET: u16 = 4;
/// ExposeShadowCopySet, MS-FSRVP 3.1.4.6.
pub const EXPOSE_SHADOW_COPY_SET: u16 = 5;
/// RecoveryCompleteShadowCopySet, MS-FSRVP 3.1.4.7.
pub const RECOVERY_COMPLETE_SHADOW_COPY_SET: u16 = 6;
/// AbortShadowCopySet, MS-FSRVP 3.1.4.8.
pub const ABORT_SHADOW_COPY_SET: u16 = 7;
/// IsPathSupported, MS-FSRVP 3.1.4.9.
pub const IS_PATH_SUPPORTED: u16 = 8;
/// IsPathShadowCopied, MS-FSRVP 3.1.4.10.
pub const IS_PATH_SHADOW_COPIED: u16 = 9;
/// GetShareMapping, MS-FSRVP 3.1.4.11.
pub const GET_SHARE_MAPPING: u16 = 10;
/// DeleteShareMapping, MS-FSRVP 3.1.4.12.
pub const DELETE_SHARE_MAPPING: u16 = 11;
/// PrepareShadowCopySet, MS-FSRVP 3.1.4.13.
pub const PREPARE_SHADOW_COPY_SET: u16 = 12;

open_enum! {
    /// The return value of a call, MS-FSRVP 2.2.4 and MS-ERREF 2.1.
    HResult(u32) {
        /// ZERO
        ZERO = 0,
        /// FSRVP_E_WAIT_TIMEOUT
        WAIT_TIMEOUT = 0x0000_0102,
        /// FSRVP_E_BAD_STATE
        BAD_STATE = 0x8004_2301,
        /// FSRVP_E_OBJECT_NOT_FOUND
        OBJECT_NOT_FOUND = 0x8004_2308,
        /// FSRVP_E_NOT_SUPPORTED
        NOT_SUPPORTED = 0x8004_230C,
        /// FSRVP_E_OBJECT_ALREADY_EXISTS
        OBJECT_ALREADY_EXISTS = 0x8004_230D,
        /// FSRVP_E_SHADOW_COPY_SET_IN_PROGRESS
        SHADOW_COPY_SET_IN_PROGRESS = 0x8004_2316,
        /// FSRVP_E_UNSUPPORTED_CONTEXT
        UNSUPPORTED_CONTEXT = 0x8004_231B,
        /// FSSAGENT_E_TIMEOUT, MS-FSRVP 3.1.4.5.
        COMMIT_TIMEOUT = 0x8004_2500,
        /// FSRVP_E_SHADOWCOPYSET_ID_MISMATCH
        SHADOWCOPYSET_ID_MISMATCH = 0x8004_2501,
        /// E_UNEXPECTED
        UNEXPECTED = 0x8000_FFFF,
        /// E_ACCESSDENIED
        ACCESS_DENIED = 0x8007_0005,
        /// E_OUTOFMEMORY
        OUT_OF_MEMORY = 0x8007_000E,
        /// E_INVALIDARG
        INVALID_ARGUMENT = 0x8007_0057,
        /// FSRVP_E_WAIT_FAILED
        WAIT_FAILED = 0xFFFF_FFFF,
    }
}

bit_set! {
    /// SHADOW_COPY_ATTRIBUTES, MS-FSRVP 2.2.2.1: the context of a shadow copy.
    Context(u32) {
        /// ATTR_PERSISTENT
        PERSISTENT = 0x0000_0001,
        /// ATTR_NO_AUTO_RECOVERY
        NO_AUTO_RECOVERY = 0x0000_0002,
        /// ATTR_NO_AUTO_RELEASE
        NO_AUTO_RELEASE = 0x0000_0008,
        /// ATTR_NO_WRITERS
        NO_WRITERS = 0x0000_0010,
        /// ATTR_AUTO_RECOVERY
        AUTO_RECOVERY = 0x0040_0000,
    }
}

impl Context {
    /// True for one of CONTEXT_VALUES, MS-FSRVP 2.2.2.2, with at most one of the two attributes for recovery.
    pub fn is_valid(self) -> bool {
        let rollback = Self::PERSISTENT | Self::NO_AUTO_RELEASE;
        let recoveries = [Self::AUTO_RECOVERY, Self::NO_AUTO_RECOVERY];
        let is_both = recoveries.into_iter().all(|recovery| self.contains(recovery));
        let rest = recoveries.into_iter().fold(self, Self::without);
        let values = [Self::EMPTY, Self::NO_WRITERS, rollback, rollback | Self::NO_WRITERS];
        !is_both && values.contains(&rest)
    }
}
