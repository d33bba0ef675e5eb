//! Memory for what is remembered of clients' files is counted, given up on demand, and not gathered again at
//! once. One test, because the counts are those of the process.

mod common;

use std::time::{Duration, Instant};

use common::{create, name, share};
use frevo_posix::limits::{CACHED_NAME_BYTES, CACHED_NAMES, KEPT_FOLDER_BYTES};
use frevo_posix::{forget_remembered, remembered_bytes};
use frevo_store::Vfs;

/// After this time what is read of a file may be kept.
const SETTLED: Duration = Duration::from_millis(60);

const NAMES: usize = 2_000;

#[test]
fn cached_data_is_counted_and_released() {
    let share = share();
    let path = share.mkdir("d");
    for n in 0..NAMES {
        std::fs::write(path.join(format!("f{n}")), "").unwrap();
    }
    std::thread::sleep(SETTLED);
    assert_eq!(remembered_bytes(), 0);
    let make = |what: &str| share.vfs.open(&name(&format!("d\\{what}")), &create()).map(drop);
    let list = || {
        let folder = share.open("d", &common::how()).unwrap();
        let mut listing = folder.node.directory().unwrap();
        while listing.next_name().unwrap().is_some() {
            listing.entry_stat().unwrap().unwrap();
        }
    };
    // The first use of a folder reads its listing; from its second use on the folder stays open.
    for n in 0..3 {
        drop(share.vfs.open_parent(&name("d\\new")).unwrap());
        make(&format!("new{n}")).unwrap();
    }
    let with_names = remembered_bytes();
    assert!(with_names >= NAMES * CACHED_NAME_BYTES + KEPT_FOLDER_BYTES, "{with_names}");
    assert!(with_names <= CACHED_NAMES * CACHED_NAME_BYTES, "{with_names}");
    list();
    assert!(remembered_bytes() >= with_names);
    forget_remembered();
    let began = Instant::now();
    while remembered_bytes() > 0 {
        assert!(began.elapsed() < Duration::from_secs(5), "{} bytes stay", remembered_bytes());
        std::thread::sleep(Duration::from_millis(1));
    }
    // After the release, facts are not cached again at once, so the listing leaves no bytes.
    list();
    assert_eq!(remembered_bytes(), 0);
    // Although a second release was requested, new names are cached.
    assert!(make("new0").is_err());
    make("new9").unwrap();
    let again = remembered_bytes();
    assert!(again >= NAMES * CACHED_NAME_BYTES, "{again}");
    forget_remembered();
    std::thread::sleep(SETTLED);
    assert_eq!(remembered_bytes(), again);
    // Dropping the share must drop everything that it has cached.
    drop(share);
    assert_eq!(remembered_bytes(), 0);
}
