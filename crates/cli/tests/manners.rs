//! Messages of the client's commands: times, lost servers, partial copies, what is up to date; saved
//! servers and completion.

mod harness;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use harness::relay::{Fate, Relay};
use harness::world::World;
use harness::{Serving, said, text};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn times_are_local_or_marked_as_utc() {
    let world = World::new();
    let file = world.there("file");
    fs::write(&file, "x").unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    let list = |zone: &str, more: &[&str]| {
        let url = world.url("");
        let arguments: Vec<&str> =
            ["ls", "-l"].iter().chain(more).copied().chain([&*url]).collect();
        said(world.command(&arguments).env("TZ", zone).output().unwrap())
    };
    assert!(list("UTC", &[]).succeeds().contains(" 2023-11-14 22:13Z file"));
    assert!(list("JST-9", &[]).succeeds().contains(" 2023-11-15 07:13 file"));
    assert!(list("JST-9", &["--utc"]).succeeds().contains(" 2023-11-14 22:13Z file"));
    // Without a time zone database the zone is unknown. Then the time is printed in UTC with a Z.
    let named = list("Asia/Tokyo", &[]);
    let is_right = |time: &str| named.succeeds().contains(time);
    assert!(is_right(" 2023-11-15 07:13 file") || is_right(" 2023-11-14 22:13Z file"), "{named:?}");
    let stat = said(world.command(&["stat", "--utc", &world.url("file")]).output().unwrap());
    assert!(stat.succeeds().contains("2023-11-14 22:13:20 +00:00"), "{stat:?}");
}

#[test]
fn a_lost_server_and_a_partial_copy_are_told() {
    let world = World::new();
    fs::write(world.place.path("big"), vec![7; 8 << 20]).unwrap();
    let relay = Relay::new(&world.address, |count| match count {
        0 => Fate::CutAfter(5 << 20),
        _ => Fate::Refused,
    });
    let url = format!("smb://ann@{}/share/big", relay.address);
    let put = ["put", "--patience", "3", "--bwlimit", "4M", "big", &url];
    let failed = world.run(&put);
    let lost = format!("waiting for {}", relay.address);
    failed.fails(5, &[&lost, "trying again for", "an incomplete copy is left on the server"]);
    let part = failed.err.split("frevo rm '").nth(1).unwrap().split('\'').next().unwrap();
    let part = part.replace(&relay.address, &world.address);
    assert_eq!(fs::read_dir(world.there("")).unwrap().count(), 1);
    world.run(&["rm", &part]).succeeds();
    assert_eq!(fs::read_dir(world.there("")).unwrap().count(), 0);
}

/// As on a full disk.
#[test]
fn a_file_that_cannot_be_written_is_named_by_its_name() {
    let mut world = World::new();
    fs::write(world.place.path("big"), vec![7; 8 << 20]).unwrap();
    world.kill();
    let serve = world.place.command(&[]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 1024; exec \"$0\" \"$@\""]);
    limited.arg(serve.get_program()).args(["serve", text(&world.there("")), "--user", "ann"]);
    limited.args(["--listen", "127.0.0.1:0", "--confinement", "off", "--password-file"]);
    limited.arg(world.place.path("password")).arg("--state-dir").arg(world.place.path("state"));
    limited.current_dir(world.place.path("")).env_clear().env("PATH", "/usr/bin:/bin");
    limited.env("HOME", world.place.path(""));
    limited.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
    let server = Serving::start(limited);
    world.address.clone_from(&server.address);
    let failed = world.run(&["put", "big", &world.url("")]);
    assert_eq!(failed.code, 1, "{failed:?}");
    let first = failed.err.lines().find(|line| line.contains("write")).unwrap_or(&failed.err);
    assert!(first.contains("/share/big:") && !first.contains("frevo-part"), "{failed:?}");
}

#[test]
fn what_is_up_to_date_is_not_copied_again() {
    let world = World::new();
    let here = world.place.folder("here/below");
    for name in ["one", "two", "three"] {
        fs::write(here.join(name), name).unwrap();
    }
    let summary = |arguments: &[&str]| {
        let done = world.run(arguments);
        let summary: serde_json::Value = serde_json::from_str(done.succeeds()).unwrap();
        let count = |name: &str| summary[name].as_u64().unwrap();
        (count("files"), count("up_to_date"))
    };
    let (url, put) = (world.url("there/"), ["put", "-r", "--update", "--json", "here"]);
    let put = [&put[..], &[&url]].concat();
    assert_eq!(summary(&put), (3, 0));
    assert_eq!(summary(&put), (0, 3));
    fs::write(here.join("two"), "changed").unwrap();
    // The server's file is newer than the local one, so it is not replaced.
    fs::write(world.there("there/here/below/ONE"), "").unwrap();
    fs::remove_file(world.there("there/here/below/ONE")).unwrap();
    fs::write(world.there("there/here/below/one"), "newer there").unwrap();
    assert_eq!(summary(&put), (1, 2));
    assert_eq!(fs::read(world.there("there/here/below/one")).unwrap(), b"newer there");
    let from = world.url("there/here");
    let get = ["get", "-r", "-u", "--json", &from, "back/"];
    assert_eq!(summary(&get), (3, 0));
    assert_eq!(summary(&get), (0, 3));
    let file = world.url("there/here/below/one");
    assert_eq!(summary(&["get", "-u", "--json", &file, "back/here/below/"]), (0, 1));
}

#[test]
fn a_password_is_saved_once_and_forgotten() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    fs::create_dir_all(world.there("photos/a b")).unwrap();
    fs::write(world.there("photos/What?"), "x").unwrap();
    let server = format!("smb://ann@{}", world.address);
    let without = |arguments: &[&str]| world.place.run(arguments);
    let login = ["login", "--password-stdin", &*server];
    world.place.run_with_input(&login, "wrong\n").fails(4, &["password"]);
    assert_eq!(without(&["login"]).succeeds(), "");
    world.place.run_with_input(&login, "secret\n").succeeds();
    // Whatever the umask is, other users can read neither the saved passwords nor the names of
    // servers.
    let folder = world.place.path(".config/frevo");
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!((mode(&folder) & 0o777, mode(&world.place.path(".config")) & 0o777), (0o700, 0o700));
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    world.place.run_with_input(&login, "secret\n").succeeds();
    assert_eq!(mode(&folder) & 0o777, 0o700, "one that an older version made");
    let file = world.place.path(".config/frevo/servers");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!fs::read_to_string(&file).unwrap().contains("secret"));
    assert_eq!(without(&["login"]).succeeds(), format!("{server}\n"));
    assert_eq!(without(&["ls", &world.url("")]).succeeds(), "photos/\n");
    let nameless = world.url("").replace("ann@", "");
    let no_user =
        said(world.place.command(&["ls", &nameless]).env_remove("USER").output().unwrap());
    no_user.succeeds();
    let complete = |word: &str| without(&["complete-url", word]).succeeds().to_owned();
    assert_eq!(complete("smb://a"), format!("{server}/\n"));
    assert_eq!(complete(&format!("{server}/s")), format!("{server}/share/\n"));
    assert_eq!(complete(&world.url("p")), format!("{}/\n", world.url("photos")));
    let below = format!("{}\n{}/\n", world.url("photos/What%3F"), world.url("photos/a b"));
    assert_eq!(complete(&world.url("photos/")), below);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    without(&["ls", &world.url("")]).fails(4, &["chmod 600"]);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    without(&["logout", &server]).succeeds();
    without(&["logout", &server]).fails(6, &[&format!("no password is saved for {server};")]);
    without(&["ls", &world.url("")]).fails(4, &["frevo login"]);
}

/// A cluster whose name DNS does not have, with a node that is off.
#[test]
fn addresses_stand_for_the_name_of_a_cluster() {
    let world = World::new();
    fs::write(world.there("file"), "x").unwrap();
    let url = "smb://ann@cluster.invalid/share";
    let ls = ["ls", "--address", "127.0.0.1:1", "--address", &*world.address, "--verbose", url];
    let listed = world.run(&ls);
    assert_eq!(listed.succeeds(), "file\n");
    let place = format!("smb://cluster.invalid/share is at {}", world.address);
    assert!(listed.err.contains(&place), "{listed:?}");
    // Addresses without a name cannot be those of two servers; one with its name is its own.
    let other = world.url("copy");
    let file = format!("{url}/file");
    let cp = ["cp", "--address", &*world.address, &*file, &*other];
    world.run(&cp).fails(2, &["--address cluster.invalid=ADDRESS"]);
    let named = format!("Cluster.invalid={}", world.address);
    world.run(&["cp", "--address", &*named, &*file, &*other]).succeeds();
    assert_eq!(fs::read_to_string(world.there("copy")).unwrap(), "x");
    world.run(&["ls", "--address", "127.0.0.1:port", url]).fails(2, &["port"]);
    world
        .run(&["mount", "--status", text(&world.there(""))])
        .fails(6, &["not the folder of a mount"]);
}

/// Needs FUSE, which not every machine gives to tests.
/// A folder that a process in the background mounts on: it is unmounted at the end, also of a test that
/// fails, and no such process is left.
struct Mounted(PathBuf);

impl Mounted {
    /// The processes in the background that mount on it.
    fn processes(&self) -> Vec<Pid> {
        let folder = text(&self.0);
        let is_its = |entry: &fs::DirEntry| {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let has = |word: &str| line.split(|byte| *byte == 0).any(|one| one == word.as_bytes());
            has(folder) && has("--detach")
        };
        let of_entry = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
        let all = fs::read_dir("/proc").unwrap().flatten();
        all.filter(is_its).filter_map(of_entry).filter_map(Pid::from_raw).collect()
    }

    /// Waits for their end.
    fn has_ended(&self) -> bool {
        let end = Instant::now() + Duration::from_secs(20);
        while !self.processes().is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.processes().is_empty()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A folder that is not mounted on any more is no fault.
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
        if !self.has_ended() {
            for process in self.processes() {
                let _ = kill_process(process, Signal::KILL);
            }
        }
    }
}

#[test]
fn a_folder_that_is_mounted_on_is_told() {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || fs::File::options().read(true).write(true).open("/dev/fuse").is_err() {
        eprintln!("skipped: it needs root and /dev/fuse");
        return;
    }
    let world = World::new();
    let folder = world.place.folder("mnt");
    let mount = ["mount", &*world.url(""), text(&folder)];
    let mounted = Mounted(folder.clone());
    let first = world.run(&mount);
    if first.code != 0 {
        // In a container /dev/fuse may exist although mounting is not permitted. Then the test
        // ends.
        assert!(first.err.contains("permitted"), "{first:?}");
        return;
    }
    let second = world.run(&mount);
    // The mount says where its share is, also as JSON, and is in the list of all mounts.
    let status = world.run(&["mount", "--status", text(&folder)]);
    let line = status.succeeds();
    let port = world.address.rsplit(':').next().unwrap();
    assert!(line.contains("/share on ") && line.contains("/mnt: at 127.0.0.1"), "{line}");
    assert!(line.contains(port), "{line}");
    let json = world.run(&["mount", "--status", text(&folder), "--json"]);
    assert!(json.succeeds().contains("\"moves\":0"), "{json:?}");
    let all = world.run(&["mount", "--status"]);
    assert!(all.succeeds().contains(text(&folder)), "{all:?}");
    assert_eq!(mounted.processes().len(), 1);
    assert!(Command::new("umount").arg(&folder).status().unwrap().success());
    assert!(mounted.has_ended(), "{:?} have not ended with the mount", mounted.processes());
    second.fails(1, &["mnt is the folder of a mount already", "unmount that first"]);
    let kept = world.place.folder("kept");
    fs::write(kept.join("x"), "").unwrap();
    let kept = ["mount", &*world.url(""), text(&kept)];
    world.run(&kept).fails(1, &["kept is not empty", "name an empty folder"]);
}
