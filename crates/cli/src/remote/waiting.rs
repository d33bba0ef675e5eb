//! Tells that a server was lost, while the client tries to reach it again.

use std::time::Duration;

use tokio::time::Instant;

use super::{channels, logon, progress};
use crate::console::tell;

/// Interval between looks at the sessions.
const TICK: Duration = Duration::from_millis(250);

/// A loss that lasts shorter is not told.
const TOLD_AFTER: Duration = Duration::from_secs(1);

/// Tells of lost servers, and of those that are back, until it is dropped.
pub(crate) async fn tell_of_losses() -> std::convert::Infallible {
    let mut lost: Option<(String, Instant, bool)> = None;
    loop {
        tokio::time::sleep(TICK).await;
        channels::look();
        let found = logon::lost_server();
        let Some((server, patience)) = found else {
            if let Some((server, _, true)) = lost.take() {
                progress::say("");
                tell(format_args!("{server} is back"));
            }
            lost = None;
            continue;
        };
        let (_, since, is_told) = lost.get_or_insert((server.clone(), Instant::now(), false));
        let waited = since.elapsed();
        let left = patience.saturating_sub(waited).as_secs();
        if waited >= TOLD_AFTER && left > 0 {
            progress::say(&format!("waiting for {server}, trying again for {left} s"));
            if !*is_told {
                *is_told = true;
                tell(format_args!(
                    "waiting for {server}: the connection is lost; trying again for {left} s"
                ));
            }
        }
    }
}
