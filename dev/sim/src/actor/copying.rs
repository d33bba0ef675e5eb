//! Copies on the server: parts of an unchanging file into a file of the actor.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frevo_client::OpenOptions;

use super::Actor;
use crate::violation;

/// The name of the source file.
pub const SOURCE: &str = "source";
/// Length of the source: several sectors and a part of one.
const LEN: u64 = 100_003;

/// Returns the content of the source: every sector is different.
pub fn source() -> Vec<u8> {
    (0..LEN / 8 + 1).flat_map(|at| (at + 1).to_le_bytes()).take(LEN as usize).collect()
}

impl Actor {
    pub(super) async fn copy(&mut self) {
        let name = format!("copy{}", self.id);
        let Some(from) = self.open(OpenOptions::new().read(true), SOURCE).await else { return };
        let options = OpenOptions::new().read(true).write(true).create(true);
        if let Some(to) = self.open(options, &name).await {
            self.copy_part(&from, &to).await;
            self.close(to).await;
        }
        self.close(from).await;
    }

    async fn copy_part(&mut self, from: &frevo_client::File, to: &frevo_client::File) {
        let stage = Arc::clone(&self.stage);
        let sector = 4096;
        let (at, place) = (self.dice.below(8) * sector, self.dice.below(4) * sector);
        let len = 1 + self.dice.below(LEN - at);
        let copy = from.copy_range_to(to, at, place, len);
        let copied = self.call(format_args!("copy {len} from {at} to {place}"), &[], copy).await;
        let Ok(Some(_)) = copied.outcome else { return };
        let read = async {
            let mut found = vec![0; usize::try_from(len).unwrap_or(0)];
            let count = to.read_at(&mut found, place).await?;
            found.truncate(count);
            Ok(found)
        };
        let read = self.call(format_args!("read the copy"), &[], read).await;
        // A crash may lose data that was not synced, so the copy cannot be judged after one.
        if stage.has_fallen.load(Ordering::Relaxed) {
            return;
        }
        let Ok(found) = read.outcome else { return };
        let source = source();
        let wanted = source.iter().skip(at as usize).take(len as usize);
        if !found.iter().eq(wanted) {
            let why = "the copy is not what was copied";
            violation!(stage.trace, "a{} {len} from {at} to {place}: {why}", self.id);
        }
    }
}
