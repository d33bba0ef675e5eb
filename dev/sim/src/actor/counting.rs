//! A counter that is incremented under a lock: no number occurs twice, and the lock has at most one
//! holder.

use std::sync::Arc;

use frevo_client::{File, LockKind, OpenOptions, Status};
use tokio::time::sleep;

use super::Actor;
use super::appending::LOCK_AT;
use crate::judge::{Hold, number};

impl Actor {
    pub(super) async fn count(&mut self) {
        let options = OpenOptions::new().read(true).write(true);
        let Some(file) = self.open(options, "counter").await else { return };
        let waits = self.dice.percent(60);
        for _ in 0..=self.dice.below(4) {
            let losses = self.stage.network.losses(self.client);
            let may = [Status::LOCK_NOT_GRANTED];
            let lock = async {
                match waits {
                    true => file.lock(LOCK_AT, 1, LockKind::Exclusive).await,
                    false => file.try_lock(LOCK_AT, 1, LockKind::Exclusive).await,
                }
            };
            if self.call(format_args!("lock counter"), &may, lock).await.outcome.is_err() {
                break;
            }
            let kept = file.is_persistent();
            let hold = Hold { client: self.client, losses, kept, id: self.value() };
            let stage = Arc::clone(&self.stage);
            stage.judge.lock().lock.locked(hold, |client| stage.network.losses(client));
            let is_well = self.count_on(&file).await;
            stage.judge.lock().lock.unlocks(hold);
            if !is_well {
                break;
            }
            let unlock = file.unlock(LOCK_AT, 1);
            if self.call(format_args!("unlock counter"), &[], unlock).await.outcome.is_err() {
                break;
            }
        }
        self.close(file).await;
    }

    async fn count_on(&mut self, file: &File) -> bool {
        let stage = Arc::clone(&self.stage);
        let at_least = stage.judge.lock().lock.acknowledged();
        let read = self.call(format_args!("read counter"), &[], file.read_bytes(0, 8)).await;
        let Ok(found) = read.outcome else { return false };
        let found = number(&found);
        stage.judge.lock().lock.read(found, at_least);
        sleep(self.dice.millis(0, 200)).await;
        let next = found + 1;
        stage.judge.lock().lock.write(next);
        let data = next.to_le_bytes();
        let write = file.write_all_at(&data, 0);
        let written = self.call(format_args!("count to {next}"), &[], write).await;
        stage.judge.lock().lock.wrote(next, written.end());
        if written.outcome.is_err() {
            return false;
        }
        if self.is_lasting {
            stage.judge.lock().lock.stable(next);
        }
        if self.dice.percent(30) && self.flush(file).await.is_some() {
            stage.judge.lock().lock.stable(next);
        }
        true
    }
}
