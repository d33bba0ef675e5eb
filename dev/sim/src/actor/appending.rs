//! Records at the end of a file, under a lock that all appenders take.

use std::sync::Arc;

use frevo_client::{LockKind, OpenOptions};

use super::Actor;
use crate::judge::{End, record};

/// An offset far after the data, as in programs that use locks only for mutual exclusion.
pub(super) const LOCK_AT: u64 = 1 << 40;

impl Actor {
    pub(super) async fn append(&mut self) {
        let options = OpenOptions::new().read(true).write(true);
        let Some(file) = self.open(options, "log").await else { return };
        for _ in 0..=self.dice.below(3) {
            let locked = self
                .call(format_args!("lock log"), &[], file.lock(LOCK_AT, 1, LockKind::Exclusive))
                .await;
            if locked.outcome.is_err() {
                break;
            }
            let size = self.call(format_args!("size of log"), &[], file.metadata()).await;
            let Ok(size) = size.outcome else { break };
            let (value, offset) = (self.value(), size.len());
            let stage = Arc::clone(&self.stage);
            stage.judge.lock().log.append(value, offset);
            let data = record(value);
            let written = self
                .call(
                    format_args!("append {value:#x} at {offset}"),
                    &[],
                    file.write_all_at(&data, offset),
                )
                .await;
            let end = match written.end() {
                // The server has written the record but the sync failed, so a crash may still lose
                // the record.
                End::Not if self.is_lasting => End::Unknown,
                end => end,
            };
            stage.judge.lock().log.appended(value, offset, end);
            if written.outcome.is_err() {
                break;
            }
            if self.is_lasting {
                stage.judge.lock().log.stable(value);
            }
            if self.dice.percent(40) && self.flush(&file).await.is_some() {
                stage.judge.lock().log.stable(value);
            }
            let unlocked =
                self.call(format_args!("unlock log"), &[], file.unlock(LOCK_AT, 1)).await;
            if unlocked.outcome.is_err() {
                break;
            }
        }
        self.close(file).await;
    }
}
