//! Days of an office, and attacks, as the judge sees them.

use super::tests::LIMITS;
use super::*;

/// A client with files that were there before.
struct Client {
    judge: Judge,
    now: Duration,
    /// The number of the next new file.
    next: u64,
    found: Vec<(Pattern, u64)>,
    /// Old files that are encrypted by now.
    lost: u64,
}

const OLD: u64 = 1_000_000;

impl Client {
    fn new() -> Self {
        Self { judge: Judge::default(), now: Duration::ZERO, next: 0, found: Vec::new(), lost: 0 }
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    fn note(&mut self, finding: Option<Finding>) {
        self.found.extend(finding.map(|finding| (finding.pattern, self.lost)));
    }

    /// An old file, whose data is overwritten in its place.
    fn overwrite(&mut self, old: u64) {
        self.lost += 1;
        let found = self.judge.noisy(File(OLD + old), true, &LIMITS, self.now);
        self.note(found);
    }

    /// A new file, with data that does not compress.
    fn make(&mut self, path: &str, is_noisy: bool) -> File {
        self.next += 1;
        let file = File(self.next);
        self.judge.made(file, NameParts::of(path), self.now);
        if is_noisy {
            let found = self.judge.noisy(file, false, &LIMITS, self.now);
            self.note(found);
        }
        file
    }

    fn rename(&mut self, file: File, from: &str, to: &str, replaced: Option<File>) {
        let places = [NameParts::of(from), NameParts::of(to)];
        let found = self.judge.renamed(file, places, replaced, &LIMITS, self.now);
        self.note(found);
    }

    fn remove(&mut self, file: File, path: &str) {
        let found = self.judge.removed(file, NameParts::of(path), &LIMITS, self.now);
        self.note(found);
    }

    fn patterns(&self) -> Vec<Pattern> {
        self.found.iter().map(|(pattern, _)| *pattern).collect()
    }
}

fn path(file: u64) -> String {
    format!("folder {}\\paper {file}.docx", file / 20)
}

#[test]
fn encryption_in_place_is_found_at_the_fortieth_file() {
    let mut client = Client::new();
    for file in 0..200 {
        client.pass(50);
        client.overwrite(file);
    }
    assert_eq!(client.found, [(Pattern::Files, 40), (Pattern::FilesInHour, 200)]);
}

#[test]
fn files_that_are_emptied_and_written_anew_count() {
    let mut client = Client::new();
    for file in 0..60 {
        client.pass(50);
        client.judge.emptied(File(OLD + file), NameParts::of(&path(file)), client.now);
        // Another handle, which knows of no old data.
        let found = client.judge.noisy(File(OLD + file), false, &LIMITS, client.now);
        client.note(found);
    }
    assert_eq!(client.patterns(), [Pattern::Files]);
}

#[test]
fn a_new_file_for_each_removed_one_is_found() {
    for is_removed_first in [false, true] {
        let mut client = Client::new();
        for file in 0..100 {
            client.pass(50);
            client.lost += 1;
            if is_removed_first {
                client.remove(File(OLD + file), &path(file));
            }
            client.make(&format!("{}.locked", path(file)), true);
            if !is_removed_first {
                client.remove(File(OLD + file), &path(file));
            }
        }
        assert_eq!(client.found, [(Pattern::Files, 40)], "{is_removed_first}");
    }
}

/// All new files first, then all removals: the brake takes hold while files are removed.
#[test]
fn removals_at_the_end_are_found() {
    let mut client = Client::new();
    for file in 0..100 {
        client.pass(50);
        client.make(&format!("{}.locked", path(file)), true);
    }
    for file in 0..100 {
        client.pass(50);
        client.lost += 1;
        client.remove(File(OLD + file), &path(file));
    }
    assert_eq!(client.found, [(Pattern::Files, 40)]);
}

#[test]
fn a_new_file_over_each_old_one_is_found() {
    let mut client = Client::new();
    for file in 0..100 {
        client.pass(50);
        client.lost += 1;
        let temporary = client.make("elsewhere\\x.tmp", true);
        client.rename(temporary, "elsewhere\\x.tmp", &path(file), Some(File(OLD + file)));
    }
    assert_eq!(client.found, [(Pattern::Files, 40)]);
}

#[test]
fn one_new_extension_is_found_and_two_in_turn_as_well() {
    for extensions in [&["locked"][..], &["locked", "crypt"]] {
        let mut client = Client::new();
        for file in 0..220 {
            client.pass(50);
            let extension = extensions[usize::try_from(file).unwrap() % extensions.len()];
            let to = format!("{}.{extension}", path(file));
            client.rename(File(OLD + file), &path(file), &to, None);
        }
        assert!(client.patterns().starts_with(&[Pattern::Renames]), "{extensions:?}");
    }
}

/// In place, and renamed: the data tells before the names.
#[test]
fn encryption_with_a_rename_is_found_by_its_data() {
    let mut client = Client::new();
    for file in 0..200 {
        client.pass(50);
        client.overwrite(file);
        client.rename(File(OLD + file), &path(file), &format!("{}.locked", path(file)), None);
    }
    let found = [Pattern::Files, Pattern::Renames, Pattern::FilesInHour];
    assert_eq!(client.patterns(), found);
}

/// Five files a minute are found after 40 minutes, three a minute never.
#[test]
fn a_slow_attack_is_found_in_its_hour_or_not_at_all() {
    let attack = |seconds: u64| {
        let mut client = Client::new();
        for file in 0..1_000 {
            client.pass(seconds * 1_000);
            client.overwrite(file);
        }
        client.found
    };
    assert_eq!(attack(12)[0], (Pattern::FilesInHour, 200));
    assert_eq!(attack(20), []);
}

/// Word's way to save: a new file, the old one aside, the new one in its place, the old one away.
#[test]
fn an_office_is_quiet() {
    let mut client = Client::new();
    for round in 0..2_000_u64 {
        client.pass(10_000);
        let paper = round % 150;
        let (name, aside) = (path(paper), format!("folder {}\\~wr.tmp", paper / 20));
        let new = client.make("folder\\~wrd.tmp", true);
        client.rename(File(OLD + paper), &name, &aside, None);
        client.rename(new, "folder\\~wrd.tmp", &name, None);
        client.remove(File(OLD + paper), &aside);
    }
    assert_eq!(client.found, []);
}

#[test]
fn a_clone_of_a_repository_is_quiet() {
    let mut client = Client::new();
    for object in 0..5_000 {
        client.pass(5);
        let temporary = client.make("repo\\.git\\objects\\ab\\tmp_obj", true);
        let name = format!("repo\\.git\\objects\\ab\\{object:040x}");
        client.rename(temporary, "repo\\.git\\objects\\ab\\tmp_obj", &name, None);
        let lock = client.make("repo\\.git\\index.lock", true);
        client.rename(lock, "repo\\.git\\index.lock", "repo\\.git\\index", None);
        client.make(&format!("repo\\src\\{object}.rs"), false);
    }
    assert_eq!(client.found, []);
}

#[test]
fn an_import_of_pictures_is_quiet() {
    let mut client = Client::new();
    for picture in 0..3_000 {
        client.pass(100);
        let from = format!("2030\\IMG_{picture}.jpg.part");
        let file = client.make(&from, true);
        client.rename(file, &from, &format!("2030\\IMG_{picture}.jpg"), None);
        if picture % 3 == 0 {
            client.remove(file, &format!("2030\\IMG_{picture}.jpg"));
        }
    }
    assert_eq!(client.found, []);
}

#[test]
fn a_database_and_some_files_of_rsync_are_quiet() {
    let mut client = Client::new();
    for write in 0..50_000 {
        client.pass(20);
        client.overwrite(0);
        if write % 50_000 < 30 {
            client.overwrite(1 + write);
        }
    }
    assert_eq!(client.found, []);
}

/// A file that the client made more than an hour ago is as old as any other one.
#[test]
fn own_files_grow_old() {
    for (pause, is_found) in [(60, false), (3_600, true)] {
        let mut client = Client::new();
        let files: Vec<File> = (0..100).map(|file| client.make(&path(file), false)).collect();
        client.pass(pause * 1_000);
        for file in files {
            let found = client.judge.noisy(file, true, &LIMITS, client.now);
            client.note(found);
        }
        assert_eq!(!client.found.is_empty(), is_found, "{pause}");
    }
}

#[test]
fn removals_are_judged_where_a_limit_is_set() {
    for (limit, is_found) in [(None, false), (Some(500), true), (Some(501), false)] {
        let limits = BrakeLimits { deletions_per_minute: limit, ..LIMITS };
        let mut judge = Judge::default();
        let found = (0..500).filter_map(|file| {
            let now = Duration::from_millis(file * 50);
            judge.removed(File(OLD + file), NameParts::of(&path(file)), &limits, now)
        });
        assert_eq!(found.count() > 0, is_found, "{limit:?}");
    }
}

/// A plain copy of the client's own takes the place of each old file, and is encrypted then, in whatever way it got there.
#[test]
fn a_plain_copy_that_is_encrypted_later_is_found() {
    for is_linked in [false, true] {
        let mut client = Client::new();
        for file in 0..100 {
            client.pass(50);
            client.lost += 1;
            let temporary = client.make("x.tmp", false);
            let old = Some(File(OLD + file));
            if is_linked {
                let to = NameParts::of(&path(file));
                let found = client.judge.linked(temporary, to, old, &LIMITS, client.now);
                client.note(found);
                client.remove(temporary, "x.tmp");
            } else {
                client.rename(temporary, "x.tmp", &path(file), old);
            }
            let found = client.judge.noisy(temporary, false, &LIMITS, client.now);
            client.note(found);
        }
        assert_eq!(client.found, [(Pattern::Files, 40)], "{is_linked}");
    }
}

/// Editors that save by way of a new file, and go on writing text into it.
#[test]
fn saving_by_a_new_file_is_quiet() {
    let mut client = Client::new();
    for round in 0..2_000_u64 {
        client.pass(200);
        let paper = round % 150;
        let temporary = client.make("x.tmp", false);
        client.rename(temporary, "x.tmp", &path(paper), Some(File(OLD + paper)));
    }
    assert_eq!(client.found, []);
}

/// Links of new files with noise count like the new files.
#[test]
fn links_beside_removed_files_and_over_old_ones_are_found() {
    for is_over in [false, true] {
        let mut client = Client::new();
        for file in 0..100 {
            client.pass(50);
            client.lost += 1;
            let new = client.make("elsewhere\\x.tmp", true);
            let to = NameParts::of(&path(file));
            let old = is_over.then_some(File(OLD + file));
            let found = client.judge.linked(new, to, old, &LIMITS, client.now);
            client.note(found);
            if !is_over {
                client.remove(File(OLD + file), &path(file));
            }
        }
        assert_eq!(client.found, [(Pattern::Files, 40)], "{is_over}");
    }
}

/// New files do not make the judge forget old ones that were emptied before.
#[test]
fn many_new_files_do_not_hide_emptied_ones() {
    let mut client = Client::new();
    for file in 0..100 {
        client.judge.emptied(File(OLD + file), NameParts::of(&path(file)), client.now);
    }
    for _ in 0..2 * BRAKE_FRESH_FILES {
        client.make("x.tmp", false);
    }
    for file in 0..100 {
        client.pass(50);
        client.lost += 1;
        let found = client.judge.noisy(File(OLD + file), false, &LIMITS, client.now);
        client.note(found);
    }
    assert_eq!(client.found, [(Pattern::Files, 40)]);
}

#[test]
fn zeros_count_as_removals() {
    let limits = BrakeLimits { deletions_per_minute: Some(50), ..LIMITS };
    for is_own in [false, true] {
        let mut client = Client::new();
        let found = (0..50).filter_map(|file| {
            client.pass(50);
            let file = if is_own { client.make("x", false) } else { File(OLD + file) };
            client.judge.wiped(file, &limits, client.now)
        });
        let found: Vec<Pattern> = found.map(|finding| finding.pattern).collect();
        assert_eq!(found, if is_own { vec![] } else { vec![Pattern::Deletions] });
    }
}

/// Old files that are moved to an excepted place are known there, own ones are not.
#[test]
fn old_files_stay_known_where_changes_are_not_looked_at() {
    let mut client = Client::new();
    let own = client.make("x.tmp", false);
    client.judge.moved_away(own, client.now);
    client.judge.moved_away(File(OLD), client.now);
    assert!(client.judge.is_moved(File(OLD)) && !client.judge.is_moved(own));
    client.remove(File(OLD), "vm\\x");
    assert!(!client.judge.is_moved(File(OLD)));
}
