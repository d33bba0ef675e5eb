//! Measures, in processor time of one thread, listing, opening, creating and looking up in one large directory.
//!
//! `cargo run --release -p frevo-posix --example list_bench -- DIRECTORY [FILES]`

use std::path::PathBuf;

use frevo_posix::{PosixOptions, PosixVfs};
use frevo_store::vfs::{Existence, KindWanted, OpenHow};
use frevo_store::{Name, Vfs};
use frevo_wire::dtyp::FileAttributes;

fn name(text: &str) -> Name {
    Name::from_stored(text.into())
}

/// Processor time of this process, which other load on the machine does not add to.
struct Cpu(f64);

impl Cpu {
    fn now() -> Self {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Self(t.tv_sec as f64 + t.tv_nsec as f64 / 1e9)
    }
}

#[allow(clippy::print_stdout, reason = "a program for people")]
fn report(what: &str, count: u64, since: &Cpu) {
    let seconds = Cpu::now().0 - since.0;
    println!(
        "{what:<44} {:>10.0}/s {:>8.2} us",
        count as f64 / seconds,
        seconds * 1e6 / count as f64
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let root: PathBuf = arguments.next().expect("a directory").into();
    let files: u64 = arguments.next().map_or(20_000, |n| n.parse().expect("a number"));
    let work = tempfile::tempdir_in(&root).expect("a work directory");
    let vfs = PosixVfs::open_root(work.path(), PosixOptions::default()).expect("a share");
    let how = OpenHow { attributes: FileAttributes::ARCHIVE, ..OpenHow::LOOK };
    let data = OpenHow { read: true, write: true, ..how };
    let create = OpenHow { existence: Existence::Either, ..data };
    let directory = OpenHow { kind: KindWanted::Directory, read: true, write: false, ..create };
    let dir = vfs.open(&name("Dir"), &directory).expect("a directory");

    let start = Cpu::now();
    for i in 0..files {
        vfs.open(&name(&format!("Dir\\File{i:06}.txt")), &create).expect("a new file");
    }
    report("create", files, &start);

    for (what, times) in [("list, names only", 3), ("list with state", 3)] {
        let start = Cpu::now();
        let mut count = 0;
        for _ in 0..times {
            let mut listing = dir.node.directory().expect("a listing");
            while listing.next_name().expect("an entry").is_some() {
                if what.ends_with("state") {
                    listing.entry_stat().expect("its state").expect("it is there");
                }
                count += 1;
            }
        }
        report(what, count, &start);
    }
    for (what, how, spelling) in [
        ("open for attributes, exact", &how, "Dir\\File"),
        ("open for data, exact", &data, "Dir\\File"),
        ("open for attributes, other case", &how, "DIR\\FILE"),
    ] {
        let start = Cpu::now();
        for i in 0..files {
            let suffix = if spelling.starts_with("DIR") { "TXT" } else { "txt" };
            vfs.open(&name(&format!("{spelling}{i:06}.{suffix}")), how).expect("it is there");
        }
        report(what, files, &start);
    }
    let start = Cpu::now();
    for i in 0..files {
        vfs.open(&name(&format!("Dir\\none{i}")), &how).expect_err("it is not there");
    }
    report("open what is not there", files, &start);
    let start = Cpu::now();
    for i in 0..files {
        let opened = vfs.open(&name(&format!("Dir\\File{i:06}.txt")), &how).expect("it is there");
        opened.node.stat().expect("its state");
    }
    report("open for attributes, then its state", files, &start);
    let start = Cpu::now();
    for i in 0..files {
        let file = name(&format!("Dir\\File{i:06}.txt"));
        let key = vfs.stat(&file).expect("it is there").key;
        vfs.remove(&file, key).expect("it goes");
    }
    report("look up and remove", files, &start);
}
