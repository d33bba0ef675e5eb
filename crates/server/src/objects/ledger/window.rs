//! The windows of a QUIC connection, whose bytes under way are in this process and not in the kernel.

use std::any::Any;
use std::sync::Arc;

use frevo_net::quic::Allowance;
use frevo_wire::Status;
use parking_lot::Mutex;

use super::{Charge, Holder, Kind};

/// The charge for the windows of one connection. The connection keeps it until its last bytes are freed, which
/// may be long after its sessions have ended.
#[derive(Debug)]
pub(crate) struct Window(Mutex<Charge>);

impl Window {
    /// Charges a new connection.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when the holder may not have more bytes.
    pub(crate) fn new(holder: &Arc<Holder>, bytes: usize) -> Result<Self, Status> {
        Ok(Self(Mutex::new(holder.charge(Kind::Window, bytes)?)))
    }

    /// Charges another holder from now on: an account has logged on. If that may not have more, the one
    /// before stays charged.
    pub(super) fn move_to(&self, holder: &Arc<Holder>) {
        let mut charge = self.0.lock();
        if let Ok(moved) = holder.charge(Kind::Window, charge.bytes()) {
            *charge = moved;
        }
    }
}

impl Allowance for Window {
    fn resize(&self, bytes: usize) -> bool {
        self.0.lock().resize(bytes).is_ok()
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}
