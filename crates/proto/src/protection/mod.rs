//! Protection of messages: signatures and seals, for both roles.

pub mod signature;
pub mod transform;
