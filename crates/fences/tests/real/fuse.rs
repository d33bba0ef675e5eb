//! `fuse` with bindfs: one folder, a mount for each of two nodes.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use frevo_cluster::fence::Fence;
use frevo_fences::{Fences, Kind};

use crate::{is_inside, run};

const NAMESPACE: &[&str] = &["--mount", "--propagation", "private"];
/// ENOTCONN and ECONNABORTED of a connection that has ended.
const ENDED: [Option<i32>; 2] = [Some(107), Some(103)];

/// A folder, and mounts of it by bindfs.
struct Mounts {
    root: tempfile::TempDir,
}

impl Mounts {
    /// None where there is no bindfs or no FUSE.
    fn new() -> Option<Self> {
        let has_program = Command::new("bindfs").arg("--version").stdout(Stdio::null()).status();
        if has_program.is_err() || !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: no bindfs or no FUSE");
            return None;
        }
        let connections = "/sys/fs/fuse/connections";
        if std::fs::read_dir(connections).unwrap().count() == 0 {
            run(&format!("mount -t fusectl none {connections}"));
        }
        let root = tempfile::tempdir().unwrap();
        for folder in ["folder", "a", "b", "c"] {
            std::fs::create_dir(root.path().join(folder)).unwrap();
        }
        let this = Self { root };
        this.mount("a");
        this.mount("b");
        Some(this)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn mount(&self, name: &str) {
        let [folder, mount] = ["folder", name].map(|name| self.path(name));
        run(&format!("bindfs {} {}", folder.display(), mount.display()));
    }

    /// Waits for the end of the process of a mount that was fenced: then the requests that it had taken from
    /// the kernel before have ended.
    fn await_end(&self, name: &str) {
        let path = self.path(name).display().to_string();
        let has_path = |process: std::fs::DirEntry| {
            let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            let mut words = line.split(|&byte| byte == 0);
            words.next().is_some_and(|program| program.ends_with(b"bindfs"))
                && words.any(|word| word == path.as_bytes())
        };
        let begin = Instant::now();
        while std::fs::read_dir("/proc").unwrap().flatten().any(has_path) {
            assert!(begin.elapsed() < Duration::from_secs(60), "bindfs goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn unmount(&self, name: &str) {
        run(&format!("umount {}", self.path(name).display()));
    }
}

fn connection(fence: &Fence) -> u32 {
    match fence {
        Fence::Fuse { connection, .. } => *connection,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_fenced_mount_takes_nothing_more() {
    if !is_inside("fuse::a_fenced_mount_takes_nothing_more", NAMESPACE) {
        return;
    }
    let Some(mounts) = Mounts::new() else { return };
    let (fences, a, b) =
        (Fences::open(|_| true, None).unwrap(), mounts.path("a"), mounts.path("b"));
    let of_a = fences.identity(&a, Kind::Fuse).unwrap();
    let of_b = fences.identity(&b, Kind::Fuse).unwrap();
    assert_ne!(of_a, of_b);
    let mut file = File::create(a.join("file")).unwrap();
    file.write_all(b"before").unwrap();
    let begin = Instant::now();
    fences.fence(&b, &of_a).unwrap();
    let took = begin.elapsed();
    eprintln!("the fence took {took:?}");
    assert!(took < Duration::from_secs(20));
    for error in [
        file.write_all(b"after").unwrap_err(),
        file.sync_all().unwrap_err(),
        File::open(a.join("file")).unwrap_err(),
        File::create(a.join("other")).unwrap_err(),
        std::fs::remove_file(a.join("file")).unwrap_err(),
    ] {
        assert!(ENDED.contains(&error.raw_os_error()), "{error}");
    }
    assert_eq!(std::fs::read(b.join("file")).unwrap(), b"before");
    std::fs::write(b.join("file"), "the next owner's").unwrap();
    fences.fence(&b, &of_a).unwrap();
    let fault = fences.identity(&a, Kind::Fuse).unwrap_err().to_string();
    assert!(fault.contains("has ended; stop frevo on this node, unmount"), "{fault}");
    // A new mount has a connection of its own. The kernel gives the number of an old one again, so another
    // mount takes that first.
    drop(file);
    mounts.unmount("a");
    mounts.mount("c");
    mounts.mount("a");
    let again = fences.identity(&a, Kind::Fuse).unwrap();
    assert!(connection(&again) != connection(&of_a) && again != of_b);
    assert_eq!(std::fs::read(a.join("file")).unwrap(), b"the next owner's");
    for name in ["a", "b", "c"] {
        mounts.unmount(name);
    }
    // A connection that does not exist is refused already.
    fences.fence(&b, &again).unwrap();
}

/// Copies bytes into a file of the mount, without an end.
fn writer(file: &Path) -> Child {
    let mut command = Command::new("dd");
    command.arg("if=/dev/zero").arg(format!("of={}", file.display()));
    command.args(["bs=128k", "conv=notrunc"]).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, name: &str) {
    run(&format!("kill -{name} {}", child.id()));
}

/// A process that is stopped in the middle of a long write, and goes on after the fence.
#[test]
fn a_process_that_was_stopped_writes_nothing_more() {
    if !is_inside("fuse::a_process_that_was_stopped_writes_nothing_more", NAMESPACE) {
        return;
    }
    let Some(mounts) = Mounts::new() else { return };
    let (fences, a, b) =
        (Fences::open(|_| true, None).unwrap(), mounts.path("a"), mounts.path("b"));
    let of_a = fences.identity(&a, Kind::Fuse).unwrap();
    let size = || std::fs::metadata(b.join("put")).map_or(0, |there| there.len());
    let mut writer = writer(&a.join("put"));
    while size() < 8 << 20 {
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(&writer, "STOP");
    fences.fence(&b, &of_a).unwrap();
    mounts.await_end("a");
    let stopped = size();
    std::fs::write(b.join("mark"), "the next owner's").unwrap();
    signal(&writer, "CONT");
    let status = writer.wait().unwrap();
    let mut words = String::new();
    writer.stderr.take().unwrap().read_to_string(&mut words).unwrap();
    assert!(!status.success(), "{words}");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(size(), stopped, "{words}");
    assert!(stopped > 0 && words.contains("dd: "), "{words}");
    mounts.unmount("a");
    mounts.unmount("b");
}
