//! Files that appear in a watched folder: the watch tells each of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frevo_client::{Change, RecursiveMode, Watch};
use tokio::time::{sleep, timeout};

use super::Actor;
use crate::violation;

/// Time after which a request to watch has reached an undisturbed server.
const SETTLED: Duration = Duration::from_secs(10);
/// Time within which an undisturbed client hears of a change.
const HEARD: Duration = Duration::from_secs(60);

impl Actor {
    /// Returns the path of the folder that the actor watches.
    pub fn watched(&self) -> String {
        format!("w{}", self.id)
    }

    pub(super) async fn watching(&mut self) {
        let folder = self.watched();
        let watch = self.share.watch(&folder, RecursiveMode::NonRecursive);
        let watch = self.call(format_args!("watch {folder}"), &[], watch).await;
        let Ok(mut watch) = watch.outcome else { return };
        for _ in 0..=self.dice.below(2) {
            let losses = self.stage.network.losses(self.client);
            let number = self.value() & 0xFFFF_FFFF;
            let name = format!("n{number}");
            let heard = {
                let hear = timeout(SETTLED + HEARD, hear(&mut watch, &name));
                let make = async {
                    sleep(SETTLED).await;
                    let path = format!("{folder}/{name}");
                    let write = self.share.write(&path, b"new");
                    self.call(format_args!("make {path}"), &[], write).await.outcome.is_ok()
                };
                let (heard, is_made) = tokio::join!(hear, make);
                if !is_made {
                    return;
                }
                heard.unwrap_or(false)
            };
            let stage = Arc::clone(&self.stage);
            let is_calm = stage.network.losses(self.client) == losses
                && stage.network.is_calm_since(self.client, SETTLED + HEARD)
                && !stage.is_disk_bad.load(Ordering::Relaxed);
            if !heard && is_calm {
                violation!(stage.trace, "a{} hears nothing of {folder}/{name}", self.id);
            }
            if !heard {
                return;
            }
        }
    }
}

/// Waits for a change of `name`; returns false after an error.
async fn hear(watch: &mut Watch, name: &str) -> bool {
    loop {
        let Ok(changes) = watch.next_changes().await else { return false };
        // The creator of the file also writes to it, so only `Added` and `Missed` count.
        let tells = |change: &Change| match change {
            Change::Added(found) => found == name,
            Change::Missed => true,
            _ => false,
        };
        if changes.iter().any(tells) {
            return true;
        }
    }
}
