//! Tokens of offloaded copies (ODX), MS-FSCC 2.1.11: each stands for a range of
//! a file as it was when the token was made.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use frevo_store::Stat;
use frevo_wire::Status;
use frevo_wire::dtyp::FileTime;
use frevo_wire::fscc::fsctl::OffloadToken;
use tokio::time::Instant;

use crate::base::ambient::Ambient;
use crate::base::limits::{
    OFFLOAD_TOKEN_BYTES, OFFLOAD_TOKENS_PER_SESSION, OFFLOAD_TTL, OFFLOAD_TTL_MAX,
};
use crate::objects::ledger::{Charge, Holder, Kind};
use crate::objects::open::Open;

/// TokenType of ours: neither zeros nor one of the reserved.
const TOKEN_TYPE: u32 = 0x4672_6576;
/// Bytes of TokenType, Reserved and TokenIdLength.
const HEAD: usize = 8;

/// The fields that show a change of a file. Any change makes its tokens invalid, since their
/// data exists no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    end: u64,
    written: FileTime,
    changed: FileTime,
}

impl Content {
    /// The content of a file with that state.
    pub const fn of(stat: &Stat) -> Self {
        Self { end: stat.end_of_file, written: stat.written, changed: stat.changed }
    }

    /// How long ago it changed: a clock that ticks slowly does not tell two
    /// changes within a tick apart.
    pub fn age(&self, now: FileTime) -> Duration {
        let last = self.written.0.max(self.changed.0);
        Duration::from_nanos(now.0.saturating_sub(last).saturating_mul(100))
    }
}

/// The data that a token stands for.
#[derive(Debug, Clone)]
pub struct Offloaded {
    /// The Open that was read from; it may be closed by now.
    pub source: Arc<Open>,
    /// Where in the file, bytes.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The content of the file.
    pub content: Content,
}

/// The tokens of a session. They are of no use in another.
#[derive(Debug, Default)]
pub struct Offloads(VecDeque<Kept>);

/// A token that is good until a time.
#[derive(Debug)]
struct Kept {
    token: OffloadToken,
    until: Instant,
    what: Offloaded,
    _charge: Charge,
}

impl Offloads {
    /// A token for `what`, good for `ttl_ms` or, when that is 0, the usual time.
    /// The oldest goes when there are too many.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when `holder` may not have more.
    pub fn add(
        &mut self,
        ambient: &dyn Ambient,
        holder: &Arc<Holder>,
        ttl_ms: u32,
        what: Offloaded,
    ) -> Result<OffloadToken, Status> {
        self.expire();
        while self.0.len() >= OFFLOAD_TOKENS_PER_SESSION {
            self.0.pop_front();
        }
        let charge = holder.charge(Kind::Offload, OFFLOAD_TOKEN_BYTES)?;
        let mut bytes = [0; 512];
        bytes[..4].copy_from_slice(&TOKEN_TYPE.to_be_bytes());
        bytes[6..HEAD].copy_from_slice(&504_u16.to_be_bytes());
        ambient.random(&mut bytes[HEAD..]);
        let token = OffloadToken { bytes };
        let wanted = Duration::from_millis(ttl_ms.into());
        let ttl = if ttl_ms == 0 { OFFLOAD_TTL } else { wanted.min(OFFLOAD_TTL_MAX) };
        self.0.push_back(Kept { token, until: Instant::now() + ttl, what, _charge: charge });
        Ok(token)
    }

    /// The data that a token stands for; INVALID_TOKEN for an unknown or expired one.
    pub fn find(&mut self, token: &OffloadToken) -> Result<Offloaded, Status> {
        self.expire();
        let found = self.0.iter().find(|kept| kept.token == *token);
        found.map(|kept| kept.what.clone()).ok_or(Status::INVALID_TOKEN)
    }

    /// Forgets those whose time is over, and lets go of their files.
    pub fn expire(&mut self) {
        let now = Instant::now();
        self.0.retain(|kept| kept.until > now);
    }
}
