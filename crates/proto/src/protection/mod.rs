//! The way of a message to the wire and back, for both roles.
//!
//! ```text
//! message -> sign -> [compress] -> seal -> frame       Outgoing, Batch, signed_at_once
//! frame -> unseal -> [expand] -> verify -> message     Incoming, Expanding, open
//! ```
//!
//! A message is signed or sealed, never both (MS-SMB2 3.2.4.1.1, 3.3.4.1.1). A signature covers the
//! message as it is without compression, and a seal covers it compressed (3.1.4.3).
//!
//! - [`send_policy`] alone decides which protection a message gets, [`receive_policy`] alone which
//!   one a received message must have.
//! - [`Outgoing`] and [`Incoming`] are values: their keys are chosen and their nonces taken, and any
//!   thread may do the rest ([`Work`]). [`Pace`] says when another thread should.
//! - [`Batch`] protects several messages side by side, and [`Incoming`] checks several, where the
//!   algorithm is faster so.
//!
//! Nothing here starts a thread, reads a clock or owns a buffer: the roles bring them.

mod algorithm;
mod batch;
mod codec;
mod compressing;
mod compression;
mod expanding;
mod incoming;
mod outgoing;
mod pace;
pub mod receive_policy;
pub mod send_policy;
pub mod signature;
pub mod transform;
mod work;

pub use algorithm::Algorithm;
pub use batch::{Batch, is_batched};
pub use codec::Codec;
pub use compressing::{Thrift, ToCompress};
pub use compression::Compression;
pub use expanding::{Expandable, Expanding};
pub use incoming::{Check, Form, Incoming, Opened, Proof, Received, Verdict, open};
pub use outgoing::{Framed, Guard, Outgoing, ProtectError, Signature, Signatures, signed_at_once};
pub use pace::{Pace, Site};
pub use send_policy::Protection;
pub use work::Work;
