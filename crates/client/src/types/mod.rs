//! Value types of the protocol, as this crate's callers see them.
//!
//! They stand for types of the crates beneath, which may change with every release:
//! none of those appears in a public signature.

mod app_instance;
pub(crate) mod flags;
mod guid;
mod negotiated;
mod security;
mod shadow_copy_error;
mod status;

pub use app_instance::{AppInstance, ParseAppInstanceError};
pub use flags::{AccessMask, FileAttributes, LeaseState, ShareMode};
pub(crate) use guid::parse_guid;
pub use negotiated::{Cipher, Dialect, SigningAlgorithm};
pub use security::{
    Account, AccountKind, Ace, AceFlags, AceKind, Acl, DaclControl, ParseSidError,
    SecurityDescriptor, Sid,
};
pub use shadow_copy_error::ShadowCopyError;
pub use status::Status;
