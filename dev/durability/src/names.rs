//! A client of names: it makes, renames and removes files, sets their length and writes their
//! streams. After a failure of the machine it looks at all of them.
//!
//! It knows when the machine failed: a failure excuses an error, and what is there afterwards is
//! stable.

use std::collections::BTreeMap;
use std::time::Duration;

use frevo_client::{Error, OpenOptions, Share};
use tokio::time::sleep;

use crate::machine::Address;
use crate::possible::{Content, Possible};
use crate::random::Random;
use crate::world::{Period, World, log_on};

/// The way in which a change becomes stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The share is continuously available: each answer says that the change is stable.
    Continuous,
    /// By a FLUSH, or by FILE_WRITE_THROUGH of the Open.
    Asked,
}

/// The first names are in two directories; the others are streams.
const FILES: [&str; 8] = ["a/0", "a/1", "a/2", "a/3", "b/0", "b/1", "b/2", "b/3"];
const STREAMS: [&str; 3] = ["streams:0", "streams:1", "streams:2"];
/// Directories that are made during the run, each with a file.
const FOLDERS: u64 = 200;

#[derive(Debug)]
struct Names {
    way: Way,
    share: Share,
    number: u64,
}

type Known = BTreeMap<String, Possible>;

/// Runs until the end, or until there is a finding.
pub(crate) async fn run(world: &World, address: Address, way: Way, mut random: Random) {
    let share = match way {
        Way::Continuous => crate::machine::CONTINUOUS,
        Way::Asked => crate::machine::PLAIN,
    };
    let names = FILES.iter().chain(&STREAMS);
    let mut known: Known = names.map(|name| ((*name).into(), Possible::default())).collect();
    let (mut folders, mut number) = (0, 0);
    while !world.is_over() {
        let period = world.period();
        let logged_on = match period.is_up() {
            true => log_on(address, share, false).await.ok(),
            false => None,
        };
        let Some((_session, share)) = logged_on else {
            sleep(Duration::from_millis(20)).await;
            continue;
        };
        let mut names = Names { way, share, number };
        let mut outcome = names.look(world, &mut known, period).await;
        while outcome.is_ok() && world.period() == period && !world.is_over() {
            let _pass = world.gate.read().await;
            outcome = names.step(&mut known, &mut folders, &mut random).await;
            world.count_names();
        }
        number = names.number;
        if let Err(error) = outcome
            && world.period() == period
        {
            world.found(format!("{way:?} names: {error}"));
            return;
        }
    }
}

impl Names {
    /// Compares all names with what they may be. What is there after a restart is stable.
    async fn look(&self, world: &World, known: &mut Known, period: Period) -> Result<(), Error> {
        for folder in ["a", "b"] {
            if !self.share.exists(folder).await? {
                if known.values().any(|possible| possible.judge(&None).is_err()) {
                    world.found(format!("{:?} names: the folder {folder} is gone", self.way));
                }
                self.share.create_dir(folder).await?;
            }
        }
        for (name, possible) in known.iter_mut() {
            let found = self.content(name).await?;
            if world.period() != period {
                break;
            }
            if let Err(what) = possible.judge(&found) {
                world.found(format!("{:?} names: {name}: {what}", self.way));
            }
            possible.settle(found);
        }
        Ok(())
    }

    async fn content(&self, name: &str) -> Result<Content, Error> {
        match self.share.read(name).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn step(
        &mut self,
        known: &mut Known,
        folders: &mut u64,
        random: &mut Random,
    ) -> Result<(), Error> {
        self.number += 1;
        let file = FILES[random.below(FILES.len() as u64) as usize];
        let is_there = known[file].known().is_some_and(Option::is_some);
        match random.below(8) {
            0 | 1 => self.write(known, file, random).await,
            2 => self.write(known, STREAMS[random.below(3) as usize], random).await,
            3 if is_there => self.cut(known, file, random).await,
            4 if *folders < FOLDERS => {
                let folder = format!("folder-{folders}");
                *folders += 1;
                self.share.create_dir(&folder).await?;
                let name = format!("{folder}/file");
                known.insert(name.clone(), Possible::default());
                self.write(known, &name, random).await
            }
            // Only on a continuously available share are removals and renames promised to be
            // stable.
            5 if is_there && self.way == Way::Continuous => self.remove(known, file).await,
            6 | 7 if is_there && self.way == Way::Continuous => {
                let to = FILES[random.below(FILES.len() as u64) as usize];
                self.rename(known, file, to).await
            }
            _ => self.write(known, file, random).await,
        }
    }

    /// Makes or empties the file, and writes a number. Each answer but the first can be left to a
    /// FLUSH.
    async fn write(&self, known: &mut Known, name: &str, random: &mut Random) -> Result<(), Error> {
        let through = random.one_in(2);
        let is_promised = through || self.way == Way::Continuous;
        let possible = known.entry(name.into()).or_default();
        let number = Some(self.number.to_le_bytes().to_vec());
        possible.begin(Some(Vec::new()));
        let asked = through && self.way == Way::Asked;
        let options = OpenOptions::new().write(true).create(true).truncate(true);
        let file = options.write_through(asked).open(&self.share, name).await?;
        if is_promised {
            possible.settle(Some(Vec::new()));
        }
        if random.one_in(4) {
            if !is_promised {
                file.sync_all().await?;
            }
            possible.settle(Some(Vec::new()));
            return file.close().await;
        }
        possible.begin(number.clone());
        // An interrupted write may leave a hole, so eight zeros are a possible content, too.
        possible.begin(number.clone().map(|_| vec![0; 8]));
        file.write_all_at(&self.number.to_le_bytes(), 0).await?;
        if !is_promised {
            file.sync_all().await?;
        }
        possible.settle(number);
        file.close().await
    }

    /// Sets the length of a file.
    async fn cut(&self, known: &mut Known, name: &str, random: &mut Random) -> Result<(), Error> {
        let possible = known.entry(name.into()).or_default();
        let Some(Some(mut content)) = possible.known().cloned() else { return Ok(()) };
        content.resize(random.below(64) as usize, 0);
        possible.begin(Some(content.clone()));
        let through = random.one_in(2) && self.way == Way::Asked;
        let file = OpenOptions::new().write(true).write_through(through);
        let file = file.open(&self.share, name).await?;
        file.set_len(content.len() as u64).await?;
        if self.way == Way::Asked && !through {
            file.sync_all().await?;
        }
        possible.settle(Some(content));
        file.close().await
    }

    async fn remove(&self, known: &mut Known, name: &str) -> Result<(), Error> {
        let possible = known.entry(name.into()).or_default();
        possible.begin(None);
        self.share.remove_file(name).await?;
        possible.settle(None);
        Ok(())
    }

    async fn rename(&self, known: &mut Known, from: &str, to: &str) -> Result<(), Error> {
        let Some(Some(content)) = known[from].known().cloned() else { return Ok(()) };
        if from == to {
            return Ok(());
        }
        known.entry(from.into()).or_default().begin(None);
        known.entry(to.into()).or_default().begin(Some(content.clone()));
        self.share.rename(from, to).await?;
        known.entry(from.into()).or_default().settle(None);
        known.entry(to.into()).or_default().settle(Some(content));
        Ok(())
    }
}
