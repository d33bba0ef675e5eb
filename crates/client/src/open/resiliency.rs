//! Resilient handles: MS-SMB2 3.2.4.20.8.
//!
//! A durable handle ends with its connection when others may open the file while this client has
//! byte ranges locked: nothing would free the ranges for them. A resilient one is kept with its
//! locks for a time that the client names.

use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::{CtlCode, resiliency};

use super::Open;
use crate::error::Result;
use crate::limits::RESILIENT_FOR_MAX;
use crate::open::create::Durability;
use crate::open::fsctl::control;

impl Open {
    /// Asks the server to keep the Open, with the locks that it is about to get, when the
    /// connection is lost. Asks once for each handle; a server that refuses leaves it durable. A
    /// persistent Open is kept anyhow, and one that is not durable is not reconnected.
    pub(crate) async fn make_resilient(&self, operation: &'static str) -> Result<()> {
        let is_due = {
            let mut state = self.state.lock();
            let is_durable = matches!(
                state.binding.durability,
                Durability::V1 | Durability::V2 { persistent: false }
            );
            is_durable && !std::mem::replace(&mut state.asked_resiliency, true)
        };
        if !is_due {
            return Ok(());
        }
        let time = self.share.session().inner.patience().min(RESILIENT_FOR_MAX);
        let timeout = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let mut input = Vec::new();
        resiliency::Request { timeout }.encode(&mut Writer::new(&mut input));
        match control(self, operation, CtlCode::LMR_REQUEST_RESILIENCY, &input, 0, &[]).await {
            Err(error) if error.status().is_none() => {
                self.state.lock().asked_resiliency = false;
                Err(error)
            }
            _ => Ok(()),
        }
    }
}
