//! The limits of this crate.

/// Messages that one key seals before it refuses. The limit keeps the chance of a forgery, or of
/// telling ciphertext from noise, below 2^-32 for GCM and CCM with messages of up to 8 MiB (2^19
/// blocks). At the limit the peer authenticates again, which gives new keys.
pub const SEALED_MESSAGES_MAX: u64 = 1 << 32;

/// Fewest iterations of PBKDF2 for a sealed password, MS-SAMR 3.2.2.5.
pub const PASSWORD_ITERATIONS_MIN: u32 = 5_000;

/// Most iterations of PBKDF2 for a sealed password, MS-SAMR 3.2.2.5: about a second of one core.
pub const PASSWORD_ITERATIONS_MAX: u32 = 1_000_000;

/// Most iterations of PBKDF2 that a KDC may ask for: about half a second of one core.
pub const KERBEROS_ITERATIONS_MAX: u32 = 1_000_000;
