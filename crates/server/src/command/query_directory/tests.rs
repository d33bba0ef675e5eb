use std::collections::BTreeSet;

use frevo_wire::Status;
use frevo_wire::command::query_directory::{QueryDirectoryFlags, Request};
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::directory::fixed_size;
use frevo_wire::fscc::{DirectoryEntries, FileInfoClass};
use frevo_wire::utf16::Utf16;

use super::super::query_info::testing::{Bench, file};
use super::super::query_info::{Output, wide_id};
use super::{Asked, SLICE, directory, list};
use crate::base::limits::{LISTING_BYTES_PER_USER, LISTING_BYTES_SHORT};
use crate::command::spelling::Spelling;
use crate::objects::ledger::{Kind, Ledger};
use crate::objects::open::Open;

const CLASSES: [u8; 11] = [1, 2, 3, 12, 37, 38, 60, 78, 79, 80, 81];
const NONE: QueryDirectoryFlags = QueryDirectoryFlags::EMPTY;

fn ask(
    open: &Open,
    class: u8,
    flags: QueryDirectoryFlags,
    pattern: &str,
    length: u32,
) -> Result<(Status, Vec<u8>), Status> {
    let request = Request {
        file_information_class: class,
        flags,
        file_index: 0,
        file_id: FileId::ALL_ONES,
        output_buffer_length: length,
        file_name: Utf16::from_str(pattern),
    };
    let ann = Ledger::default().account("ann");
    let asked = Asked {
        request,
        spelling: Spelling::PLAIN,
        filling: None,
        viewer: None,
        holder: &ann,
        is_left: &|| false,
    };
    carry_out(open, &asked)
}

fn carry_out(open: &Open, asked: &Asked<'_>) -> Result<(Status, Vec<u8>), Status> {
    let mut bytes = vec![0; 64];
    let length = asked.request.output_buffer_length;
    let mut output = Output::begin(&mut bytes, length, 1 << 20);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(list(directory(open)?, asked, &mut output))?;
    let status = output.finish();
    Ok((status, bytes.split_off(72)))
}

/// A request for the names of `pattern` from the beginning, in an answer of up to `length` bytes.
fn request(pattern: &str, length: u32) -> Request<'_> {
    Request {
        file_information_class: 37,
        flags: QueryDirectoryFlags::REOPEN,
        file_index: 0,
        file_id: FileId::ALL_ONES,
        output_buffer_length: length,
        file_name: Utf16::from_str(pattern),
    }
}

/// A folder of `count` files.
fn large(count: usize) -> Bench {
    let bench = Bench::new();
    (0..count).for_each(|at| bench.write(&format!("file-{at:05}"), ""));
    bench
}

/// Nothing is searched any more for a client that has gone.
#[test]
fn a_listing_ends_when_its_client_has_gone() {
    let bench = large(SLICE + 100);
    let open = bench.open("", AccessMask::READ_DATA);
    let ann = Ledger::default().account("ann");
    for (is_left, status) in [(true, Status::CANCELLED), (false, Status::NO_SUCH_FILE)] {
        let (request, is_left) = (request("*zzz*", 4096), &|| is_left);
        let asked = Asked {
            request,
            spelling: Spelling::PLAIN,
            filling: None,
            viewer: None,
            holder: &ann,
            is_left,
        };
        assert_eq!(carry_out(&open, &asked).unwrap_err(), status);
    }
}

/// One client alone gets all names at once. An account with as much that waits as it may have gets
/// 64 KiB, and one that comes to have as much while it lists gets no further slice.
#[test]
fn an_account_with_much_that_waits_gets_short_listings() {
    let bench = large(SLICE + 2_000);
    let open = bench.open("", AccessMask::READ_DATA);
    let ann = Ledger::default().account("ann");
    let listed = || {
        let request = request("*", 1 << 20);
        let asked = Asked {
            request,
            spelling: Spelling::PLAIN,
            filling: None,
            viewer: None,
            holder: &ann,
            is_left: &|| false,
        };
        carry_out(&open, &asked).unwrap().1.len()
    };
    let all = listed();
    assert!(all > 400 << 10, "{all}");
    let waiting = ann.charge(Kind::Reply, LISTING_BYTES_PER_USER - 1).unwrap();
    let slice = listed();
    assert!((LISTING_BYTES_SHORT..all).contains(&slice), "{slice} of {all}");
    drop(waiting);
    let waiting = ann.charge(Kind::Reply, LISTING_BYTES_PER_USER).unwrap();
    let short = listed();
    assert!((LISTING_BYTES_SHORT - 200..=LISTING_BYTES_SHORT).contains(&short), "{short}");
    drop(waiting);
    assert_eq!(listed(), all);
    assert_eq!(ann.count(Kind::Reply), 0);
}

fn names(open: &Open, flags: QueryDirectoryFlags, pattern: &str) -> Result<Vec<String>, Status> {
    let (status, data) = ask(open, 37, flags, pattern, 1 << 16)?;
    assert_eq!(status, Status::SUCCESS);
    let entries = DirectoryEntries::new(&data, FileInfoClass(37)).unwrap();
    Ok(entries.map(|entry| entry.unwrap().name.decode().unwrap()).collect())
}

fn bench() -> Bench {
    let bench = Bench::new();
    bench.make_folder("d");
    for name in ["One.txt", "two.txt", "three.c", ".hidden", "größe"] {
        bench.write(&format!("d/{name}"), name);
    }
    bench
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn the_first_request_begins_and_later_ones_go_on() {
    let bench = bench();
    for (name, inside) in [("d", 5), ("", 1)] {
        let open = bench.open(name, AccessMask::READ_DATA);
        let all = names(&open, NONE, "*").unwrap();
        assert_eq!(all[..2], [".", ".."], "at the root as well");
        assert_eq!(all.len(), 2 + inside);
        assert_eq!(names(&open, NONE, "*").unwrap_err(), Status::NO_MORE_FILES);
        assert_eq!(names(&open, NONE, "nothing").unwrap_err(), Status::NO_MORE_FILES);
        let again = names(&open, QueryDirectoryFlags::RESTART_SCANS, "").unwrap();
        assert_eq!(again.len(), all.len());
    }
}

#[test]
fn patterns_select() {
    let bench = bench();
    let find = |pattern: &str| {
        names(&bench.open("d", AccessMask::READ_DATA), NONE, pattern)
            .map(|names| names.into_iter().collect::<BTreeSet<_>>())
    };
    assert_eq!(find("*.TXT").unwrap(), set(&["One.txt", "two.txt"]));
    assert_eq!(find("?wo*").unwrap(), set(&["two.txt"]));
    assert_eq!(find("t*").unwrap(), set(&["two.txt", "three.c"]));
    assert_eq!(find("").unwrap().len(), 7);
    assert_eq!(find("ONE.TXT").unwrap(), set(&["One.txt"]), "as it is on the medium");
    assert_eq!(find("GRÖSSE"), Err(Status::NO_SUCH_FILE));
    assert_eq!(find("GRÖßE").unwrap(), set(&["größe"]));
    assert_eq!(find(".").unwrap(), set(&["."]));
    assert_eq!(find("..").unwrap(), set(&[".."]));
    assert_eq!(find("two.txt\\").unwrap(), set(&["two.txt"]));
    assert_eq!(find("nothing"), Err(Status::NO_SUCH_FILE));
    assert_eq!(find("nothing*"), Err(Status::NO_SUCH_FILE));
    for bad in ["a\\b", "a/*", "x:y", "a|b", "a\u{1}*", "..\\d", "*\\", "t*\\", "\\"] {
        assert_eq!(find(bad), Err(Status::OBJECT_NAME_INVALID), "{bad:?}");
    }
    assert_eq!(find(&"?".repeat(254)), Err(Status::NO_SUCH_FILE));
    assert_eq!(find(&"?".repeat(255)), Err(Status::NO_SUCH_FILE));
    assert_eq!(find(&"?".repeat(256)), Err(Status::OBJECT_NAME_INVALID));
}

#[test]
fn the_pattern_stays_until_the_scan_begins_again() {
    let bench = bench();
    let open = bench.open("d", AccessMask::READ_DATA);
    let single = QueryDirectoryFlags::RETURN_SINGLE_ENTRY;
    let mut found = names(&open, single, "*.txt").unwrap();
    found.extend(names(&open, single, "three.c").unwrap());
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), set(&["One.txt", "two.txt"]));
    assert_eq!(names(&open, single, "*").unwrap_err(), Status::NO_MORE_FILES);
    for flags in [QueryDirectoryFlags::REOPEN, QueryDirectoryFlags::RESTART_SCANS] {
        assert_eq!(names(&open, flags, "three.c").unwrap(), ["three.c"]);
    }
    let restart = names(&open, QueryDirectoryFlags::RESTART_SCANS, "nothing");
    assert_eq!(restart.unwrap_err(), Status::NO_MORE_FILES);
    let reopen = names(&open, QueryDirectoryFlags::REOPEN, "nothing");
    assert_eq!(reopen.unwrap_err(), Status::NO_SUCH_FILE);
    bench.write("d/new", "");
    assert_eq!(names(&open, QueryDirectoryFlags::REOPEN, "*").unwrap().len(), 8);
}

#[test]
fn nothing_is_lost_or_told_twice_whatever_the_room() {
    let bench = Bench::new();
    let expected: BTreeSet<_> = (0..300).map(|i| format!("{}{i}", "x".repeat(i % 40))).collect();
    for name in &expected {
        bench.write(name, "");
    }
    for class in CLASSES {
        let open = bench.open("", AccessMask::READ_DATA);
        for (turn, room) in [700, 1500, 333].into_iter().enumerate() {
            let mut found = BTreeSet::new();
            let mut flags = QueryDirectoryFlags::RESTART_SCANS;
            loop {
                let (status, data) = match ask(&open, class, flags, "*", room) {
                    Ok(answer) => answer,
                    Err(status) => {
                        assert_eq!(status, Status::NO_MORE_FILES);
                        break;
                    }
                };
                flags = NONE;
                assert_eq!(status, Status::SUCCESS);
                assert!(data.len() <= room as usize);
                for entry in DirectoryEntries::new(&data, FileInfoClass(class)).unwrap() {
                    let name = entry.unwrap().name.decode().unwrap();
                    assert!(found.insert(name.clone()), "{name} twice");
                }
            }
            assert!(found.remove(".") && found.remove(".."));
            assert_eq!(found, expected, "class {class}, turn {turn}");
        }
    }
}

#[test]
fn a_name_longer_than_the_room_is_cut_and_comes_again() {
    let bench = Bench::new();
    bench.write("a long name", "");
    for class in CLASSES {
        let fixed = fixed_size(FileInfoClass(class)).unwrap() as u32;
        let open = bench.open("", AccessMask::READ_DATA);
        for room in [0, fixed - 1] {
            let status = ask(&open, class, NONE, "a*", room).unwrap_err();
            assert_eq!(status, Status::INFO_LENGTH_MISMATCH);
        }
        for room in [fixed, fixed + 6] {
            let (status, data) = ask(&open, class, NONE, "a*", room).unwrap();
            assert_eq!((status, data.len()), (Status::BUFFER_OVERFLOW, room as usize));
        }
        let (status, data) = ask(&open, class, NONE, "a*", fixed + 22).unwrap();
        assert_eq!((status, data.len()), (Status::SUCCESS, fixed as usize + 22));
        assert_eq!(ask(&open, class, NONE, "a*", 4096).unwrap_err(), Status::NO_MORE_FILES);
    }
}

#[test]
fn entries_tell_the_state_of_their_files() {
    let bench = bench();
    let open = bench.open("d", AccessMask::READ_DATA);
    let (_, data) = ask(&open, 80, NONE, "*", 1 << 16).unwrap();
    let mut seen = 0;
    for entry in DirectoryEntries::new(&data, FileInfoClass(80)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.name.decode().unwrap();
        let path = match name.as_str() {
            "." => String::from("d"),
            ".." => String::new(),
            name => format!("d\\{name}"),
        };
        let stat = file(&bench.open(&path, AccessMask::READ_ATTRIBUTES)).stat().unwrap();
        assert_eq!(entry.file_id, stat.key.inode, "{name}");
        assert_eq!(entry.file_id_128, wide_id(&stat), "{name}");
        assert_eq!(entry.end_of_file, stat.end_of_file, "{name}");
        assert_eq!(entry.last_write_time, stat.written, "{name}");
        assert_eq!(entry.attributes, stat.attributes, "{name}");
        let hidden = entry.attributes.contains(FileAttributes::HIDDEN);
        assert_eq!(hidden, name == ".hidden");
        seen += 1;
    }
    assert_eq!(seen, 7);
}

#[test]
fn entries_that_go_are_passed_over() {
    let bench = bench();
    let open = bench.open("d", AccessMask::READ_DATA);
    let single = QueryDirectoryFlags::RETURN_SINGLE_ENTRY;
    assert_eq!(names(&open, single, "*").unwrap(), ["."]);
    std::fs::remove_file(bench.path().join("d/three.c")).unwrap();
    let rest: BTreeSet<_> = names(&open, NONE, "*").unwrap().into_iter().collect();
    assert_eq!(rest, set(&["..", "One.txt", "two.txt", ".hidden", "größe"]));
}

#[test]
fn a_long_scan_gives_others_their_turn() {
    let bench = Bench::new();
    let count = SLICE + 10;
    for i in 0..count {
        bench.write(&format!("file{i}"), "");
    }
    let open = bench.open("", AccessMask::READ_DATA);
    let (status, data) = ask(&open, 12, NONE, "*", 1 << 20).unwrap();
    assert_eq!(status, Status::SUCCESS);
    let entries = DirectoryEntries::new(&data, FileInfoClass(12)).unwrap();
    assert_eq!(entries.count(), count + 2);
}

#[test]
fn what_is_no_directory_or_no_class_is_refused() {
    let bench = bench();
    let file = bench.open("d\\One.txt", AccessMask::READ_DATA);
    assert_eq!(ask(&file, 37, NONE, "*", 4096).unwrap_err(), Status::INVALID_PARAMETER);
    let open = bench.open("d", AccessMask::READ_DATA);
    for class in (0..=u8::MAX).filter(|class| !CLASSES.contains(class)) {
        let status = ask(&open, class, NONE, "*", 4096).unwrap_err();
        assert_eq!(status, Status::INVALID_INFO_CLASS, "class {class}");
    }
}
