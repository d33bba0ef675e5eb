//! Files that are made, read, renamed and removed in the actor's own folder.

use std::sync::Arc;

use frevo_client::Status;

use super::{Actor, Ended, Failed};
use crate::judge::{Did, Step, number};
use crate::violation;

impl Actor {
    /// Returns the path of the actor's folder.
    pub fn folder(&self) -> String {
        format!("f{}", self.id)
    }

    pub(super) async fn names(&mut self) {
        for _ in 0..=self.dice.below(5) {
            let step = self.step();
            let stage = Arc::clone(&self.stage);
            let folder = self.folder();
            {
                let mut judge = stage.judge.lock();
                let now = judge.moment();
                if let Some(names) = judge.names.get_mut(&folder) {
                    names.begins(&step, now);
                }
            }
            let did = self.take(&folder, &step).await;
            let mut judge = stage.judge.lock();
            let now = judge.moment();
            let Some(names) = judge.names.get_mut(&folder) else { return };
            if let Err(why) = names.ends(&step, did, now) {
                drop(judge);
                violation!(stage.trace, "a{} {folder}: {why}", self.id);
                return;
            }
        }
    }

    fn step(&mut self) -> Step {
        let mut name = || String::from(*self.dice.pick(&Step::NAMES));
        let (one, other) = (name(), name());
        match self.dice.below(12) {
            10..12 => Step::List,
            0..4 => Step::Write(one, self.value()),
            4..6 => Step::Remove(one),
            6..8 if one != other => Step::Rename(one, other, self.dice.percent(50)),
            _ => Step::Read(one),
        }
    }

    async fn take(&self, folder: &str, step: &Step) -> Did {
        let at = |name: &str| format!("{folder}/{name}");
        let share = &self.share;
        let what = format!("{step:?}");
        let what = format_args!("{folder}: {what}");
        let not_found = [Status::OBJECT_NAME_NOT_FOUND];
        match step {
            Step::Write(name, value) => {
                let (name, data) = (at(name), value.to_le_bytes());
                let wrote = self.call(what, &[], share.write(&name, &data)).await;
                match wrote.outcome {
                    Ok(()) => Did::Done(*value),
                    // If writing the data failed, the file may have been created nevertheless.
                    Err(_) => Did::Unknown,
                }
            }
            Step::Remove(name) => {
                let name = at(name);
                did(&self.call(what, &not_found, share.remove_file(&name)).await)
            }
            Step::Rename(from, to, replace) => {
                let (from, to) = (at(from), at(to));
                let may = [Status::OBJECT_NAME_NOT_FOUND, Status::OBJECT_NAME_COLLISION];
                let rename = async {
                    match replace {
                        true => share.rename(&from, &to).await,
                        false => share.rename_if_not_exists(&from, &to).await,
                    }
                };
                did(&self.call(what, &may, rename).await)
            }
            Step::List => {
                let listed = self.call(what, &[], share.list_dir(folder)).await;
                match listed.outcome {
                    Ok(entries) => Did::Done(Step::mask(entries.iter().map(|one| one.file_name()))),
                    Err(_) => Did::Not,
                }
            }
            Step::Read(name) => {
                let name = at(name);
                let read = self.call(what, &not_found, share.read(&name)).await;
                match read.outcome {
                    Ok(found) => Did::Done(number(&found)),
                    Err(Failed::Status(Status::OBJECT_NAME_NOT_FOUND)) => Did::NotFound,
                    Err(_) => Did::Not,
                }
            }
        }
    }
}

/// Returns the result of a call that is never sent twice.
const fn did(ended: &Ended<()>) -> Did {
    match ended.outcome {
        Ok(()) => Did::Done(0),
        Err(Failed::Status(Status::OBJECT_NAME_NOT_FOUND)) => Did::NotFound,
        Err(Failed::Status(Status::OBJECT_NAME_COLLISION)) => Did::Collision,
        // These statuses may come from the sync after the change, so the change may have been made.
        Err(Failed::Status(Status::UNEXPECTED_IO_ERROR | Status::DISK_FULL)) => Did::Unknown,
        Err(Failed::Status(_)) => Did::Not,
        Err(Failed::Lost) => Did::Unknown,
    }
}
