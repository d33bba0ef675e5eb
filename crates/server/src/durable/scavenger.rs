//! The durable and the resilient open scavenger timers: MS-SMB2 3.3.6.2, 3.3.6.4. What
//! the state store did not remove is asked for again beside them.

use std::sync::Arc;

use frevo_net::watchdog::yield_if_due;
use tokio::time::{Instant, sleep_until};

use crate::panics;
use crate::server::ServerState;
use crate::watchdog::Watchdog;

/// Starts the scavenger unless it runs, when it looks again what to wait for, or has
/// nothing to wait for. It lives on
/// the calling core for as long as some Open waits for its client.
pub fn start(server: &Arc<ServerState>) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    if server.durables.needs_scavenger() {
        let scavenging = scavenge(Arc::clone(server));
        runtime.spawn(Watchdog::task(Arc::clone(server), "durable scavenger", scavenging));
    } else {
        server.durables.earlier.notify_one();
    }
}

async fn scavenge(server: Arc<ServerState>) {
    while let Some(deadline) = server.durables.next_deadline() {
        tokio::select! {
            biased;
            () = sleep_until(deadline) => {}
            () = server.durables.earlier.notified() => continue,
        }
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
