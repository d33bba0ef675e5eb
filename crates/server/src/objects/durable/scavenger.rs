//! The durable and the resilient open scavenger timers: MS-SMB2 3.3.6.2, 3.3.6.4. What
//! the state store did not remove is asked for again beside them.

use std::sync::Arc;

use frevo_net::watchdog::yield_if_due;
use tokio::time::{Instant, sleep_until};

use crate::base::panics;
use crate::objects::server::ServerState;

impl ServerState {
    /// Starts the scavenger when an Open waits for its client; a scavenger that runs looks at
    /// the next deadline again. It lives on the calling core as long as an Open waits.
    pub fn start_scavenger(self: &Arc<Self>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if planted!(KeptForever) {
            return;
        }
        if self.durables.needs_scavenger() {
            let scavenging = scavenge(Arc::clone(self));
            runtime.spawn(Arc::clone(&self.watchdog).task("durable scavenger", scavenging));
        } else {
            self.durables.earlier.notify_one();
        }
    }
}

async fn scavenge(server: Arc<ServerState>) {
    while let Some(deadline) = server.durables.next_deadline() {
        tokio::select! {
            biased;
            () = sleep_until(deadline) => {}
            () = server.durables.earlier.notified() => continue,
        }
        server.end_pause();
        panics::contained(|| server.durables.remove_again(Instant::now()));
        let expired = server.durables.expired(Instant::now());
        if !expired.is_empty() {
            tracing::info!(target: "frevo::durable", count = expired.len(),
                "closed files whose clients did not come back in time");
        }
        for open in expired {
            panics::contained(|| server.close_open(&open));
            yield_if_due().await;
        }
    }
}
