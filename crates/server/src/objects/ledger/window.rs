//! The windows of a QUIC connection, whose bytes under way are in this process and not in the kernel.

use std::any::Any;
use std::sync::Arc;

use frevo_net::quic::{Allowance, Detached};
use frevo_wire::Status;
use parking_lot::Mutex;

use super::{Charge, Holder, Kind};

/// The charge for the windows of one connection. The connection keeps it until its last bytes are freed, which
/// may be long after its sessions have ended.
#[derive(Debug)]
pub(crate) struct Window(Mutex<Charged>);

#[derive(Debug)]
struct Charged {
    charge: Charge,
    /// Bytes to charge again when the connection goes on. None unless it rests.
    rested: Option<usize>,
}

impl Window {
    /// Charges a new connection.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when the holder may not have more bytes.
    pub(crate) fn new(holder: &Arc<Holder>, bytes: usize) -> Result<Self, Status> {
        let charge = holder.charge(Kind::Window, bytes)?;
        Ok(Self(Mutex::new(Charged { charge, rested: None })))
    }

    /// True if more is charged than for a new connection.
    pub(crate) fn is_wide(&self) -> bool {
        self.0.lock().charge.bytes() > Detached::BYTES
    }

    /// Charges no more than for a new connection: nothing is under way. False if that is so already.
    pub(crate) fn rest(&self) -> bool {
        let Charged { charge, rested } = &mut *self.0.lock();
        let bytes = charge.bytes();
        let rests = bytes > Detached::BYTES && charge.resize(Detached::BYTES).is_ok();
        if rests {
            *rested = Some(bytes);
        }
        rests
    }

    /// Charges all again after a rest. False if the holder may not have that.
    pub(crate) fn rouse(&self) -> bool {
        let Charged { charge, rested } = &mut *self.0.lock();
        let is_charged = rested.is_none_or(|bytes| charge.resize(bytes).is_ok());
        if is_charged {
            *rested = None;
        }
        is_charged
    }

    /// Charges another holder from now on: an account has logged on. If that may not have more, the one
    /// before stays charged.
    pub(super) fn move_to(&self, holder: &Arc<Holder>) {
        let Charged { charge, .. } = &mut *self.0.lock();
        if let Ok(moved) = holder.charge(Kind::Window, charge.bytes()) {
            *charge = moved;
        }
    }
}

impl Allowance for Window {
    fn resize(&self, bytes: usize) -> bool {
        let Charged { charge, rested } = &mut *self.0.lock();
        let is_charged = charge.resize(bytes).is_ok();
        if is_charged {
            *rested = None;
        }
        is_charged
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}
