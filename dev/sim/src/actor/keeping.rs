//! Files of one actor with a lock that lasts as long as the handle. A server that keeps handles
//! over its restart must lose none; any other server must report the loss.

use std::sync::Arc;

use frevo_client::{File, LeaseState, LockKind, OpenOptions, ShareMode, Status};
use tokio::time::sleep;

use super::appending::LOCK_AT;
use super::{Actor, Ended};
use crate::judge::number;
use crate::violation;

impl Actor {
    pub(super) async fn keeping(&mut self) {
        if self.dice.percent(25) {
            return self.intrude().await;
        }
        let number = self.value() & 0xFFFF_FFFF;
        let name = format!("p{}-{number}", self.id);
        let lease = *self.dice.pick(&[
            LeaseState::EMPTY,
            LeaseState::READ | LeaseState::HANDLE,
            LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE,
        ]);
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .delete_on_close(true)
            .share_mode(ShareMode::EMPTY)
            .lease(lease);
        let stage = Arc::clone(&self.stage);
        let falls = stage.judge.lock().passing.falls();
        let Some(file) = self.open(options, &name).await else { return };
        stage.judge.lock().passing.made(&name, file.is_persistent(), falls);
        let is_well = self.keep(&file, &name).await;
        stage.judge.lock().passing.left(&name);
        if is_well {
            self.close(file).await;
        }
    }

    /// Works with the handle; returns true while it is valid.
    async fn keep(&mut self, file: &File, name: &str) -> bool {
        let fell = self.has_fallen(name);
        let lock = file.try_lock(LOCK_AT, 1, LockKind::Exclusive);
        let locked = self.call(format_args!("lock {name}"), &[], lock).await;
        if !self.is_as_promised(file, name, fell, &locked, false) {
            return false;
        }
        let mut written = 0;
        for _ in 0..=self.dice.below(6) {
            sleep(self.dice.millis(0, 3_000)).await;
            let fell = self.has_fallen(name);
            if self.dice.percent(60) {
                let value = self.value();
                let data = value.to_le_bytes();
                let write = file.write_all_at(&data, 0);
                let wrote = self.call(format_args!("write {name} {value:#x}"), &[], write).await;
                if !self.is_as_promised(file, name, fell, &wrote, file.is_persistent()) {
                    return false;
                }
                written = value;
            } else {
                let read = file.read_bytes(0, 8);
                let read = self.call(format_args!("read {name}"), &[], read).await;
                if !self.is_as_promised(file, name, fell, &read, false) {
                    return false;
                }
                let found = read.outcome.map_or(0, |found| number(&found));
                if found != written {
                    violation!(
                        self.stage.trace,
                        "{name} holds {found:#x}, and {written:#x} was written last"
                    );
                }
            }
        }
        true
    }

    fn has_fallen(&self, name: &str) -> bool {
        self.stage.judge.lock().passing.has_fallen(name)
    }

    /// Judges a call by the server's promises for the handle; returns true on success. `fell`: the
    /// server had fallen before the request. `is_stable`: and its writes are on stable storage.
    fn is_as_promised<T>(
        &self,
        file: &File,
        name: &str,
        fell: bool,
        ended: &Ended<T>,
        is_stable: bool,
    ) -> bool {
        let stage = &*self.stage;
        let is_well = ended.outcome.is_ok();
        if is_well && fell && !file.is_persistent() {
            violation!(stage.trace, "{name}: a fall took the handle, and nobody is told");
        }
        let is_kept = stage.judge.lock().passing.is_kept(name);
        if ended.is_handle_lost && is_kept && !stage.has_store_failed() {
            violation!(stage.trace, "{name}: a handle that was promised to be kept is lost");
        }
        if is_well {
            stage.judge.lock().passing.used(name, is_stable);
        }
        is_well
    }

    /// Tries to open a file that another actor holds exclusively.
    async fn intrude(&mut self) {
        let stage = Arc::clone(&self.stage);
        let held = stage.judge.lock().passing.held();
        if held.is_empty() {
            return;
        }
        let name = self.dice.pick(&held).clone();
        let may = [
            Status::SHARING_VIOLATION,
            Status::FILE_NOT_AVAILABLE,
            Status::OBJECT_NAME_NOT_FOUND,
            Status::DELETE_PENDING,
        ];
        let was_kept = stage.judge.lock().passing.is_kept(&name);
        let options = OpenOptions::new().read(true).lease(LeaseState::EMPTY);
        let open = options.open(&self.share, &name);
        let opened = self.call(format_args!("intrude on {name}"), &may, open).await;
        let Ok(file) = opened.outcome else { return };
        if was_kept && stage.judge.lock().passing.is_kept(&name) {
            violation!(stage.trace, "a{} has opened {name}, which another has alone", self.id);
        }
        self.close(file).await;
    }
}
