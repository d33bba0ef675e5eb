//! Data that shrinks and data that does not, which may be compressed on its way: written to a file that
//! nobody else uses, and read again.

use std::sync::atomic::Ordering;

use frevo_client::{File, OpenOptions};

use super::Actor;
use crate::violation;

/// Bytes of a file at most.
const LEN: u64 = 60_000;

impl Actor {
    pub(super) async fn squeezing(&mut self) {
        // A write of an earlier file may still come; it has another name.
        let name = format!("squeezed{:x}", self.value());
        let options = OpenOptions::new().read(true).write(true).create(true);
        let Some(file) = self.open(options, &name).await else { return };
        let mut content = vec![0; LEN as usize];
        for _ in 0..=self.dice.below(4) {
            if !self.squeeze(&file, &mut content).await {
                break;
            }
        }
        self.close(file).await;
    }

    /// Writes a part of the file and reads another one. Returns false if it is not known what the file
    /// holds.
    async fn squeeze(&mut self, file: &File, content: &mut [u8]) -> bool {
        let data = self.data();
        let at = self.dice.below(LEN - data.len() as u64);
        content[at as usize..][..data.len()].copy_from_slice(&data);
        let write = file.write_all_at(&data, at);
        let wrote = self.call(format_args!("squeeze {} at {at}", data.len()), &[], write).await;
        if wrote.outcome.is_err() {
            return false;
        }
        let (at, mut found) = match self.dice.percent(70) {
            true => (at, vec![0; data.len()]),
            false => (self.dice.below(LEN), vec![0; self.dice.below(30_000) as usize]),
        };
        let read = async {
            let count = file.read_at(&mut found, at).await?;
            found.truncate(count);
            Ok(found)
        };
        let read = self.call(format_args!("read what was squeezed at {at}"), &[], read).await;
        // A crash may lose data that was not synced.
        if self.stage.has_fallen.load(Ordering::Relaxed) {
            return true;
        }
        let Ok(found) = read.outcome else { return false };
        if !content[at as usize..].starts_with(&found) {
            let why = "is not what was written";
            violation!(self.stage.trace, "a{}: {} at {at}: it {why}", self.id, found.len());
        }
        true
    }

    /// Makes runs of one byte, words and noise.
    fn data(&mut self) -> Vec<u8> {
        let mut data = Vec::new();
        for _ in 0..=self.dice.below(4) {
            let len = 1 + self.dice.below(8_000) as usize;
            let byte = self.dice.below(256) as u8;
            match self.dice.below(3) {
                0 => data.resize(data.len() + len, byte),
                1 => {
                    let words =
                        (0..).flat_map(|at: u32| format!("{byte} times {at}, ").into_bytes());
                    data.extend(words.take(len));
                }
                _ => {
                    let begin = data.len();
                    data.resize(begin + len, 0);
                    self.dice.fill(&mut data[begin..]);
                }
            }
        }
        data
    }
}
