//! Makes, appends, locks, renames and removes, each exactly once, while channels are lost.
//!
//! ```text
//! FREVO_PASSWORD=... exactly_once HOST SHARE DIRECTORY USER CHANNELS OPERATIONS
//! ```
//!
//! Eight tasks share one session. A ninth makes and removes names in a directory that it watches. Every name and every line has a number of its own: a request that
//! is carried out twice, or not at all, shows as an error or at the end. No error is tolerated.
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frevo_client::{
    Change, Client, Credentials, LockKind, OpenOptions, Options, RecursiveMode, Result, ServerName,
    Share, Watch,
};

type Outcome<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const TASKS: u64 = 8;
/// Length of each line, bytes.
const LINE: usize = 24;
/// Offset and length of the locked range, behind every line.
const WHOLE: (u64, u64) = (1 << 40, 1);

/// The work of one task: what is there in the end.
struct Task {
    share: Share,
    directory: String,
    id: u64,
    names: BTreeSet<String>,
    lines: BTreeSet<String>,
    state: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [host, share, directory, user, channels, operations] = &*arguments else {
        return Err("exactly_once HOST SHARE DIRECTORY USER CHANNELS OPERATIONS".into());
    };
    let options = Options::new().channels(channels.parse()?);
    let user = Credentials::new(user, &std::env::var("FREVO_PASSWORD")?);
    let session = Client::new(options).connect(ServerName::new(host), user).await?;
    let share = session.share(share).await?;
    share.create_dir(directory).await?;
    let left = Arc::new(AtomicU64::new(operations.parse()?));
    share.create_dir(&format!("{directory}-watched")).await?;
    let tasks = (0..TASKS).map(|id| {
        let (share, directory, left) = (share.clone(), directory.clone(), Arc::clone(&left));
        let (names, lines) = (BTreeSet::new(), BTreeSet::new());
        tokio::spawn(async move {
            let mut task = Task { share, directory, id, names, lines, state: id + 1 };
            let mut number = 0;
            while left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                .is_ok()
            {
                number += 1;
                task.step(number).await?;
            }
            Ok::<_, frevo_client::Error>(task)
        })
    });
    let watched = watch(share.clone(), format!("{directory}-watched"), Arc::clone(&left));
    let watched = tokio::spawn(watched);
    let (mut names, mut lines) = (BTreeSet::new(), BTreeSet::new());
    for task in tasks.collect::<Vec<_>>() {
        let task = task.await??;
        names.extend(task.names);
        lines.extend(task.lines);
    }
    let (told, missed) = watched.await??;
    check(&share, directory, &names, &lines).await?;
    println!("{operations} operations, {} names and {} lines stay", names.len(), lines.len());
    println!("{told} changes of the watched directory told, {missed} times it had to be listed");
    session.log_off().await;
    Ok(())
}

impl Task {
    /// A number below `end` that differs in each task and step.
    fn pick(&mut self, end: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.state >> 33) % end
    }

    /// Takes one of the names that are there.
    fn take(&mut self) -> Option<String> {
        let at = usize::try_from(self.pick(self.names.len().max(1) as u64)).ok()?;
        let name = self.names.iter().nth(at)?.clone();
        self.names.remove(&name);
        Some(name)
    }

    async fn step(&mut self, number: u64) -> Result<()> {
        let new = format!("{}/{}-{number}", self.directory, self.id);
        let kind = match self.names.len() {
            0 => self.pick(35),
            1..=40 => self.pick(100),
            _ => 90,
        };
        match kind {
            0..25 => {
                let options = OpenOptions::new().write(true).create_new(true);
                options.open(&self.share, &new).await?.close().await?;
                self.names.insert(new);
            }
            25..35 => {
                let new = new + ".d";
                self.share.create_dir(&new).await?;
                self.names.insert(new);
            }
            35..55 => {
                let Some(old) = self.take() else { return Ok(()) };
                let new = if old.ends_with(".d") { new + ".d" } else { new };
                self.share.rename(&old, &new).await?;
                self.names.insert(new);
            }
            55..75 => self.append(number).await?,
            _ => {
                let Some(old) = self.take() else { return Ok(()) };
                if old.ends_with(".d") {
                    self.share.remove_dir(&old).await?;
                } else {
                    self.share.remove_file(&old).await?;
                }
            }
        }
        Ok(())
    }

    /// Appends a line to the file of all tasks under a lock.
    async fn append(&mut self, number: u64) -> Result<()> {
        let line = format!("{:<width$}\n", format!("{}-{number}", self.id), width = LINE - 1);
        let path = format!("{}/lines", self.directory);
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = options.open(&self.share, &path).await?;
        file.lock(WHOLE.0, WHOLE.1, LockKind::Exclusive).await?;
        let len = file.metadata().await?.len();
        file.write_all_at(line.as_bytes(), len).await?;
        file.unlock(WHOLE.0, WHOLE.1).await?;
        file.close().await?;
        self.lines.insert(line);
        Ok(())
    }
}

/// Makes and removes names in a directory until no operation is left, and waits each time until the
/// server has told of it. Returns how often it did, and how often it said to list the directory.
async fn watch(share: Share, directory: String, left: Arc<AtomicU64>) -> Outcome<(u64, u64)> {
    let mut watch = share.watch(&directory, RecursiveMode::NonRecursive).await?;
    let (mut told, mut missed) = (0, 0);
    for number in 0_u64.. {
        if left.load(Ordering::Relaxed) == 0 {
            break;
        }
        let name = format!("{number}");
        let path = format!("{directory}/{name}");
        for is_there in [true, false] {
            let (change, done) = tokio::join!(next(&mut watch, &name, is_there), async {
                // The first call of `next_changes` starts the watch. The directory is changed only
                // half a second later, because earlier changes are not reported.
                tokio::time::sleep(Duration::from_millis(if number == 0 { 500 } else { 0 })).await;
                match is_there {
                    true => share.create_dir(&path).await,
                    false => share.remove_dir(&path).await,
                }
            });
            done?;
            if change? {
                told += 1;
            } else {
                missed += 1;
                let entries = share.list_dir(&directory).await?;
                if entries.iter().any(|entry| entry.file_name() == name) != is_there {
                    // The lost answer contained a listing. The change came after that listing, so
                    // the watch must report the change.
                    next(&mut watch, &name, is_there).await?;
                }
            }
        }
    }
    Ok((told, missed))
}

/// Waits for the change of a name. Returns false if changes were missed.
async fn next(watch: &mut Watch, name: &str, is_there: bool) -> Outcome<bool> {
    let wanted = if is_there { Change::Added(name.into()) } else { Change::Removed(name.into()) };
    let limit = Duration::from_secs(60);
    loop {
        let changes = tokio::time::timeout(limit, watch.next_changes()).await;
        let changes = changes.map_err(|_| format!("nothing was told of {name}"))??;
        if changes.contains(&wanted) {
            return Ok(true);
        }
        if changes.contains(&Change::Missed) {
            return Ok(false);
        }
    }
}

/// Compares what is there with what should be.
async fn check(
    share: &Share,
    directory: &str,
    names: &BTreeSet<String>,
    lines: &BTreeSet<String>,
) -> Outcome<()> {
    let mut found = BTreeSet::new();
    for entry in share.list_dir(directory).await? {
        found.insert(format!("{directory}/{}", entry.file_name()));
    }
    found.remove(&format!("{directory}/lines"));
    if found != *names {
        let odd: Vec<_> = found.symmetric_difference(names).collect();
        return Err(format!("names that should not be there, or should: {odd:?}").into());
    }
    let content = share.read(&format!("{directory}/lines")).await?;
    let written = content.chunks(LINE).map(String::from_utf8_lossy).map(String::from);
    let written: Vec<String> = written.collect();
    let once: BTreeSet<String> = written.iter().cloned().collect();
    if written.len() != once.len() || once != *lines {
        let odd: Vec<_> = once.symmetric_difference(lines).collect();
        return Err(
            format!("{} lines, {} of them once; odd: {odd:?}", written.len(), once.len()).into()
        );
    }
    Ok(())
}
