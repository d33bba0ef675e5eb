//! Measures an index of made-up files: the time to make it, its bytes, and the times of searches.
//!
//! `cargo run --release -p frevo-index --example measure -- 1000000`
#![allow(clippy::print_stdout, clippy::indexing_slicing, reason = "its output is what it is for")]

use std::error::Error;
use std::time::{Duration, Instant};

use frevo_index::{Bounds, Cursor, Facts, Index, Kind, Match, Query, Room, Search, Slot, Text};

/// Words of which names are made.
const WORDS: [&str; 24] = [
    "Report",
    "invoice",
    "Entwurf",
    "Müller",
    "2024",
    "final",
    "IMG",
    "photo",
    "Protokoll",
    "draft",
    "Angebot",
    "scan",
    "budget",
    "plan",
    "Größe",
    "notes",
    "übersicht",
    "contract",
    "v2",
    "kopie",
    "meeting",
    "tax",
    "projekt",
    "presentation",
];
const ENDS: [&str; 8] = ["pdf", "docx", "xlsx", "jpg", "txt", "JPG", "md", "zip"];
/// Files of a folder.
const IN_FOLDER: usize = 40;
/// The time of the oldest file.
const BEGIN: i64 = 1_600_000_000;
/// Searches of each kind.
const SEARCHES: usize = 200;
/// Entries that a search compares before it lets changes pass.
const STEP: usize = 16_384;

/// A generator of numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % bound
    }

    fn word(&mut self) -> &'static str {
        WORDS[self.below(WORDS.len())]
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let count = std::env::args().nth(1).map_or(Ok(1_000_000), |count| count.parse())?;
    let began = Instant::now();
    let Made { mut index, folders, name_bytes } = made(count)?;
    let took = began.elapsed();
    let average = name_bytes / count;
    println!("{} files and folders with names of {average} bytes on average", index.len());
    println!("made in {:.2} s", took.as_secs_f64());
    let each = index.bytes() as f64 / count as f64;
    println!("{each:.1} bytes a file, {} MiB in all", index.bytes() >> 20);
    println!("\n| search | found | 50 % | 99 % | longest step |\n|---|---|---|---|---|");
    measure_searches(&index, count)?;
    let top = folders[1];
    let began = Instant::now();
    index.rename(top, Slot::ROOT, "renamed")?;
    println!("\na folder renamed in {:.1} us", began.elapsed().as_secs_f64() * 1e6);
    let before = index.len();
    let began = Instant::now();
    index.remove(top);
    let detached = began.elapsed().as_secs_f64() * 1e6;
    while index.tidy(256) {}
    let freed = began.elapsed().as_secs_f64() * 1e3;
    let entries = before - index.len();
    println!("a folder removed in {detached:.1} us; its {entries} entries freed in {freed:.1} ms");
    Ok(())
}

/// An index of made-up files.
struct Made {
    index: Index,
    folders: Vec<Slot>,
    name_bytes: usize,
}

fn made(count: usize) -> Result<Made, Box<dyn Error>> {
    let mut random = Random(1);
    let mut index = Index::new(Room { entries: 2 * count, bytes: 400 * count });
    let (mut folder, mut folders, mut name_bytes) = (Slot::ROOT, vec![Slot::ROOT], 0);
    for number in 0..count {
        let is_folder = number % IN_FOLDER == 0;
        let name = if is_folder {
            format!("{} {number}", random.word())
        } else {
            let (one, other) = (random.word(), random.word());
            format!("{one}_{other} {number}.{}", ENDS[random.below(ENDS.len())])
        };
        name_bytes += name.len();
        let facts = Facts {
            id: number as u64 + 2,
            kind: if is_folder { Kind::Folder } else { Kind::File },
            size: random.below(1 << 24) as u64,
            modified: BEGIN + random.below(1 << 27) as i64,
            created: BEGIN + random.below(1 << 27) as i64,
        };
        if is_folder {
            let above = folders[random.below(folders.len())];
            folder = index.put(above, &name, &facts)?;
            folders.push(folder);
        } else {
            index.put(folder, &name, &facts)?;
        }
    }
    index.fit();
    Ok(Made { index, folders, name_bytes })
}

fn measure_searches(index: &Index, count: usize) -> Result<(), Box<dyn Error>> {
    let text = |text: &str, part| {
        Query::Name(Text { text: text.into(), part, fold_case: true, fold_marks: true })
    };
    let from = |from| Bounds { from: Some(from), to: None };
    let late = BEGIN + (1 << 27) - 86_400;
    let file = || Query::Not(Box::new(Query::Kind(Kind::Folder)));
    let rare = |number: usize| text(&format!("{}", 1_000 + number * 4_217 % count), Match::Within);
    let kinds: [(&str, &dyn Fn(usize) -> Query); 7] = [
        ("part of a name, in few names", &rare),
        ("a name that no file has", &|_| text("no such name", Match::Within)),
        ("part of a name, in a twelfth of the names", &|_| text("muller", Match::Within)),
        ("a word", &|_| text("Größe", Match::Word)),
        ("`*_final*.pdf`", &|_| text("*_final*.pdf", Match::Pattern)),
        ("changed in the last day", &|_| Query::Modified(from(late))),
        ("larger than 16.7 MB and not a folder", &|_| {
            Query::And(vec![Query::Size(Bounds { from: Some(16_700_000), to: None }), file()])
        }),
    ];
    for (what, query) in kinds {
        let mut times = Vec::new();
        let (mut found, mut longest) = (0, Duration::ZERO);
        for number in 0..SEARCHES {
            let began = Instant::now();
            let search = Search::new(&query(number))?;
            let mut after = Some(Cursor::START);
            found = 0;
            while let Some(cursor) = after {
                let step = Instant::now();
                after = index.search(&search, Slot::ROOT, cursor, STEP, |_| {
                    found += 1;
                    true
                });
                longest = longest.max(step.elapsed());
            }
            times.push(began.elapsed());
        }
        times.sort();
        let of = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1e3;
        let longest = longest.as_secs_f64() * 1e3;
        println!("| {what} | {found} | {:.1} ms | {:.1} ms | {longest:.2} ms |", of(50), of(99));
    }
    Ok(())
}
