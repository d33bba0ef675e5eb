//! Snapshots that the server makes, on a btrfs of the test's own. It takes root, and says so where it is left
//! out.
#![allow(clippy::print_stdout, reason = "a test that is left out says so")]

mod harness;
#[path = "../../posix/tests/common/loops.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]
mod loops;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use frevo_snapshots::Second;
use harness::{PATIENCE, Said, Sandbox, Serving, free_port, said, text};
use loops::Mounted;
use serde_json::Value;

/// A server of a subvolume, which keeps snapshots of it.
struct Site {
    place: Sandbox,
    address: String,
    serving: Option<Serving>,
    share: PathBuf,
    _mounted: Mounted,
}

impl Site {
    fn new(test: &str, schedule: &str) -> Option<Self> {
        Self::with(test, schedule, &[], |_| {})
    }

    /// A site whose share has subvolumes in it, and what `prepare` puts there before the server starts.
    fn with(
        test: &str,
        schedule: &str,
        nested: &[&str],
        prepare: impl FnOnce(&Path),
    ) -> Option<Self> {
        let Some(mounted) = Mounted::new("btrfs", 256, &["-q"], "loop") else {
            println!("{test}: skipped, no btrfs can be mounted");
            return None;
        };
        let share = mounted.path().join("share");
        for path in std::iter::once(share.clone()).chain(nested.iter().map(|name| share.join(name)))
        {
            let made = Command::new("btrfs").args(["-q", "subvolume", "create"]).arg(path).status();
            assert!(made.unwrap().success());
        }
        prepare(&share);
        let (place, address) = (Sandbox::new(), format!("127.0.0.1:{}", free_port()));
        place.file("password", "secret", 0o600);
        place.folder("plain");
        let mut site = Self { place, address, serving: None, share, _mounted: mounted };
        site.configure(schedule);
        let config = site.place.path("frevo.toml");
        site.serving = Some(site.place.serve(&["--config", text(&config)]));
        Some(site)
    }

    fn configure(&self, schedule: &str) {
        let (share, state) = (text(&self.share).to_owned(), self.place.path("state"));
        let config = format!(
            "[server]\nlisten = [\"{}\"]\nadministrators = [\"ann\"]\nstate_dir = {:?}\ndiscovery = \"off\"\n\
             [audit]\nfile = {:?}\n\
             [[share]]\nname = \"photos\"\npath = {share:?}\n\
             [share.snapshots]\nschedule = \"{schedule}\"\n\
             [[share]]\nname = \"plain\"\npath = {plain:?}\n\
             [[user]]\nname = \"ann\"\npassword_file = {password:?}\n\
             [[user]]\nname = \"bob\"\npassword_file = {password:?}\n",
            self.address,
            text(&state),
            text(&self.place.path("audit.log")),
            plain = text(&self.place.path("plain")),
            password = text(&self.place.path("password")),
        );
        self.place.file("frevo.toml", &config, 0o600);
    }

    fn admin(&self, arguments: &[&str]) -> Said {
        let socket = self.place.path("state/admin.sock");
        self.place.run(&[arguments, &["--socket", text(&socket)]].concat())
    }

    /// A command of the client.
    fn client(&self, arguments: &[&str]) -> Said {
        let mut command = self.place.command(arguments);
        said(command.env("FREVO_PASSWORD", "secret").output().unwrap())
    }

    fn url(&self, path: &str) -> String {
        format!("smb://ann@{}/photos/{path}", self.address)
    }

    /// The times of the server's snapshots, the newest first.
    fn list(&self) -> Vec<u64> {
        let said = self.admin(&["snapshots", "list", "photos", "--server", "--json"]);
        said.succeeds().lines().rev().map(|line| taken_of(line).since_1970()).collect()
    }

    /// Waits for the first snapshot of the schedule.
    fn first(&self) -> Vec<u64> {
        let began = Instant::now();
        loop {
            let list = self.list();
            if !list.is_empty() {
                return list;
            }
            assert!(began.elapsed() < PATIENCE, "no snapshot is made");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Makes a snapshot. The server waits for a second that has none yet.
    fn create(&self) -> u64 {
        let said = self.admin(&["snapshots", "create", "photos", "--server", "--json"]);
        taken_of(said.succeeds()).since_1970()
    }
}

/// The time of a snapshot that is told as JSON.
fn taken_of(line: &str) -> Second {
    let object: Value = serde_json::from_str(line).unwrap();
    let name = object["name"].as_str().unwrap();
    assert_eq!(object["token"], name.replace("frevo-", "@GMT-"), "{object}");
    let taken = Second::of_name(name).unwrap();
    assert_eq!(object["time"], taken.to_rfc_3339(), "{object}");
    taken
}

/// The entries of the folder of the snapshots, in order.
fn snapshots(share: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(share.join(".frevo-snapshots")).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn the_server_makes_snapshots_and_clients_see_previous_versions() {
    let test = "the_server_makes_snapshots_and_clients_see_previous_versions";
    let Some(mut site) = Site::new(test, "monthly keep 5") else { return };
    assert_eq!(site.first().len(), 1, "the schedule makes one at the start");
    let (first, second) =
        (site.place.file("one", "first", 0o600), site.place.file("two", "second", 0o600));
    site.client(&["put", text(&first), &site.url("a.txt")]).succeeds();
    site.create();
    site.client(&["put", text(&second), &site.url("a.txt")]).succeeds();
    let tokens = site.client(&["snapshots", &site.url("a.txt")]);
    assert_eq!(tokens.succeeds().lines().count(), 1, "{tokens:?}");
    // The times of the snapshot follow its token.
    let token = tokens.out.split_whitespace().next().unwrap().to_owned();
    assert!(token.starts_with("@GMT-"), "{tokens:?}");
    assert_eq!(site.client(&["cat", &site.url(&format!("{token}/a.txt"))]).succeeds(), "first");
    assert_eq!(site.client(&["cat", &site.url("a.txt")]).succeeds(), "second");
    // Clients neither see nor change the folder of the snapshots.
    assert_eq!(site.client(&["ls", &site.url("")]).succeeds().lines().count(), 1);
    assert_ne!(site.client(&["rm", "-r", &site.url(".frevo-snapshots")]).code, 0);
    let status = site.admin(&["status"]);
    let shown = status.succeeds();
    assert!(shown.contains("SNAPSHOTS OF") && shown.contains("photos        btrfs"), "{shown}");
    let other = site.admin(&["snapshots", "create", "other", "--server"]);
    assert!(other.err.contains("serves no share"), "{other:?}");
    let audit = fs::read_to_string(site.place.path("audit.log")).unwrap();
    let of = |by: &str| {
        let lines = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let of = |line: &Value| line["event"] == "snapshot" && line["by"] == by;
        lines.filter(|line| of(line) && line["outcome"] == "success").count()
    };
    assert_eq!((of("schedule"), of("admin socket")), (1, 1), "{audit}");
    let said = site.serving.take().unwrap().stop();
    assert!(
        said.err.contains("made a snapshot") && !said.err.contains("partly confined"),
        "{said:?}"
    );
}

/// A file that was renamed since, and one in a folder that was, have previous versions by their paths of today.
#[test]
fn what_was_renamed_has_previous_versions() {
    let Some(site) = Site::new("what_was_renamed_has_previous_versions", "none") else { return };
    let first = site.place.file("one", "first", 0o600);
    site.client(&["mkdir", &site.url("old")]).succeeds();
    for path in ["a.txt", "old/b.txt"] {
        site.client(&["put", text(&first), &site.url(path)]).succeeds();
    }
    site.create();
    site.client(&["mv", &site.url("a.txt"), &site.url("renamed.txt")]).succeeds();
    site.client(&["mv", &site.url("old"), &site.url("new")]).succeeds();
    for path in ["renamed.txt", "new/b.txt"] {
        // The file stays the same one.
        fs::write(site.share.join(path), "second").unwrap();
    }
    for path in ["renamed.txt", "new/b.txt"] {
        let tokens = site.client(&["snapshots", &site.url(path)]);
        assert_eq!(tokens.succeeds().lines().count(), 1, "{tokens:?}");
        let token = tokens.out.split_whitespace().next().unwrap().to_owned();
        let then = site.client(&["cat", &site.url(&format!("{token}/{path}"))]);
        assert_eq!(then.succeeds(), "first", "{path}");
    }
    // The old paths are those of the snapshot.
    let tokens = site.client(&["snapshots", &site.url("")]);
    let token = tokens.succeeds().split_whitespace().next().unwrap();
    assert_eq!(site.client(&["cat", &site.url(&format!("{token}/old/b.txt"))]).succeeds(), "first");
    assert_ne!(site.client(&["cat", &site.url(&format!("{token}/other.txt"))]).code, 0);
}

#[test]
fn a_schedule_thins_and_leaves_strangers_alone() {
    let test = "a_schedule_thins_and_leaves_strangers_alone";
    let Some(site) = Site::new(test, "monthly keep 3") else { return };
    let first = site.first()[0];
    let stranger = site.share.join(".frevo-snapshots/mine");
    assert!(
        Command::new("btrfs")
            .args(["-q", "subvolume", "create"])
            .arg(&stranger)
            .status()
            .unwrap()
            .success()
    );
    let second = site.create();
    assert_eq!(site.list(), [second, first]);
    let dry = site.admin(&["snapshots", "prune", "photos", "--dry-run"]);
    let name = Second::new(first).unwrap().to_name();
    assert!(
        dry.succeeds().starts_with(&name) && dry.out.ends_with(": would be removed\n"),
        "{dry:?}"
    );
    assert_eq!((dry.out.lines().count(), site.list().len()), (1, 2), "{dry:?}");
    // Only the newest one of the month stays.
    let pruned = site.admin(&["snapshots", "prune", "photos", "--server"]);
    let list = site.list();
    assert_eq!(list, [second], "{pruned:?}");
    assert_eq!(snapshots(&site.share).len(), 2);
    assert!(stranger.is_dir());
}

#[test]
fn one_that_cannot_be_removed_keeps_no_other() {
    let test = "one_that_cannot_be_removed_keeps_no_other";
    let Some(site) = Site::new(test, "monthly keep 1") else { return };
    let first = site.first()[0];
    // A folder is no subvolume, and no call of btrfs removes it.
    let stuck = site.share.join(".frevo-snapshots/frevo-2020.01.01-00.00.00");
    fs::create_dir(&stuck).unwrap();
    let second = site.create();
    assert_eq!(site.list().len(), 3);
    let pruned = site.admin(&["snapshots", "prune", "photos", "--server"]);
    assert!(pruned.code != 0 && pruned.err.contains("frevo-2020.01.01"), "{pruned:?}");
    let left = site.list();
    assert!(left.contains(&second) && !left.contains(&first) && left.len() == 2, "{left:?}");
    // A list that succeeds does not end the fault of a removal.
    let status = site.admin(&["status"]);
    assert!(status.succeeds().contains("cannot remove"), "{status:?}");
    assert!(stuck.is_dir());
}

/// A client has a copy made over MS-FSRVP, reads it, and has it deleted.
#[test]
fn a_client_has_a_snapshot_made() {
    let Some(site) = Site::new("a_client_has_a_snapshot_made", "none") else { return };
    let (old, new) = (site.place.file("one", "old", 0o600), site.place.file("two", "new", 0o600));
    site.client(&["put", text(&old), &site.url("a.txt")]).succeeds();
    let url = |user: &str, share: &str| format!("smb://{user}@{}/{share}", site.address);
    let refused = site.client(&["snapshots", "create", &url("bob", "photos")]);
    let named = format!("no shadow copy was made of {}", url("bob", "photos"));
    refused.fails(1, &["Backup Operators", &named]);
    let none = site.client(&["snapshots", "create", &url("ann", "plain")]);
    none.fails(6, &["the server makes no snapshots of this share"]);
    let made = site.client(&["snapshots", "create", "--json", &url("ann", "photos")]);
    let made: Value = serde_json::from_str(made.succeeds()).unwrap();
    let (share, set) = (made["share"].as_str().unwrap(), made["set"].as_str().unwrap());
    assert!(share.starts_with("photos@{"), "{made}");
    assert!(share.contains(made["copy"].as_str().unwrap()), "{made}");
    let status = site.admin(&["status"]);
    assert!(status.succeeds().contains(share) && status.out.contains(set), "{status:?}");
    site.client(&["put", text(&new), &site.url("a.txt")]).succeeds();
    let copy = url("ann", share);
    assert_eq!(site.client(&["cat", &format!("{copy}/a.txt")]).succeeds(), "old");
    assert_eq!(snapshots(&site.share).len(), 1);
    // A second copy has a share and a set of its own.
    let again = site.client(&["snapshots", "create", &url("ann", "photos")]);
    assert!(again.succeeds().contains("}  20") && again.out.contains("  set "), "{again:?}");
    assert_eq!(snapshots(&site.share).len(), 2);
    for wrong in [&*url("ann", "photos"), &url("ann", "photos/a.txt")] {
        assert_eq!(site.client(&["snapshots", "delete", wrong, set]).code, 2, "{wrong}");
    }
    assert_eq!(site.client(&["snapshots", "delete", &copy, "no-guid"]).code, 2);
    site.client(&["snapshots", "delete", &copy, set]).succeeds();
    assert_eq!(snapshots(&site.share).len(), 1);
    let gone = site.client(&["snapshots", "delete", &copy, set]);
    let named = format!("the shadow copy was not deleted: {copy}");
    gone.fails(6, &["no such share or copy", &named]);
    let none = site.client(&["snapshots", "create", &url("ann", "none")]);
    assert!(none.code == 6 && none.err.contains("no such share"), "{none:?}");
    let local = site.client(&["snapshots", "create", "photos"]);
    assert!(local.code == 2 && local.err.contains("--server"), "{local:?}");
}

/// An administrator deletes one snapshot, and no shadow copy; exit codes tell failures apart.
#[test]
fn one_snapshot_is_deleted() {
    let Some(site) = Site::new("one_snapshot_is_deleted", "none") else { return };
    let (first, second) = (site.create(), site.create());
    assert_ne!(first, second);
    let listed = site.admin(&["snapshots", "list", "photos"]);
    let name = listed.succeeds().split(' ').next().unwrap().to_owned();
    let delete = |name: &str| site.admin(&["snapshots", "delete", "photos", name, "--server"]);
    assert!(delete(&name).succeeds().ends_with(": removed\n"));
    assert_eq!(site.list(), [second]);
    delete(&name).fails(6, &["there is no such snapshot"]);
    delete("frevo-1").fails(2, &["is no snapshot's name"]);
    let copy = site.client(&["snapshots", "create", &format!("smb://ann@{}/photos", site.address)]);
    copy.succeeds();
    let held = site.list().into_iter().find(|taken| *taken != second).unwrap();
    let held = Second::new(held).unwrap().to_name();
    delete(&held).fails(1, &["it is a shadow copy"]);
    assert_eq!(site.list().len(), 2);
    let create = |share: &str| site.admin(&["snapshots", "create", share, "--server"]);
    create("nosuch").fails(6, &["serves no share \"nosuch\""]);
    create("plain").fails(6, &["makes no snapshots of \"plain\""]);
    site.admin(&["snapshots", "list", "smb://ann@box/photos"]).fails(2, &["frevo snapshots URL"]);
}

/// A kept snapshot is told, stays whatever the schedule says, and goes by no mistake.
#[test]
fn a_kept_snapshot_stays() {
    let Some(mut site) = Site::new("a_kept_snapshot_stays", "monthly keep 1") else { return };
    let first = Second::new(site.first()[0]).unwrap();
    let mark =
        |site: &Site, verb: &str, name: &str| site.admin(&["snapshots", verb, "photos", name]);
    let name = first.to_name();
    assert_eq!(mark(&site, "keep", &name).succeeds(), format!("{name}  {first}: kept\n"));
    mark(&site, "keep", "frevo-2020.01.01-00.00.00").fails(6, &["there is no such snapshot"]);
    let second = site.create();
    let config = site.place.path("frevo.toml");
    // The mark outlives the server.
    site.serving.take().unwrap().stop();
    site.serving = Some(site.place.serve(&["--config", text(&config)]));
    site.admin(&["snapshots", "prune", "photos"]).succeeds();
    assert_eq!(site.list(), [second, first.since_1970()]);
    let listed = site.admin(&["snapshots", "list", "photos"]);
    assert!(listed.succeeds().starts_with(&format!("{name}  {first}: kept\n")), "{listed:?}");
    let delete = site.admin(&["snapshots", "delete", "photos", &name, "--server"]);
    delete.fails(1, &["it is kept; `frevo snapshots release` gives it back"]);
    assert!(mark(&site, "release", &name).succeeds().ends_with(": released\n"));
    site.admin(&["snapshots", "prune", "photos"]).succeeds();
    assert_eq!(site.list(), [second]);
    let audit = fs::read_to_string(site.place.path("audit.log")).unwrap();
    for change in ["keep", "release"] {
        let lines = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let of = |line: &Value| line["change"] == change && line["snapshot"] == *name;
        let found: Vec<Value> = lines.filter(of).collect();
        assert!(found.len() == 1 && found[0]["by"] == "admin socket", "{change}: {audit}");
    }
}

/// A file that was removed is found in the snapshots that have it.
#[test]
fn versions_of_a_removed_file_are_found() {
    let Some(site) = Site::new("versions_of_a_removed_file_are_found", "none") else { return };
    let old = site.place.file("one", "old", 0o600);
    site.client(&["mkdir", &site.url("in")]).succeeds();
    site.client(&["put", text(&old), &site.url("in/a.txt")]).succeeds();
    site.create();
    site.client(&["rm", "-r", &site.url("in")]).succeeds();
    site.create();
    let said = site.client(&["snapshots", &site.url("in/a.txt")]);
    assert_eq!(said.succeeds().lines().count(), 1, "{said:?}");
    assert!(said.err.contains("is not there any more"), "{said:?}");
    let never = site.client(&["snapshots", &site.url("in/b.txt")]);
    assert!(never.code == 6 && never.err.contains("b.txt"), "{never:?}");
    let none = site.client(&["restore", "--as-of", "now", &site.url("in/b.txt")]);
    assert!(none.code == 6 && none.err.contains("no snapshot of"), "{none:?}");
    site.client(&["restore", "--as-of", "now", &site.url("in/a.txt")]).succeeds();
    assert_eq!(site.client(&["cat", &site.url("in/a.txt")]).succeeds(), "old");
}

/// Snapshots have nothing of subvolumes in the share: that is told, and no backup is made of such a share.
#[test]
fn subvolumes_in_a_share_are_told_and_refused_for_shadow_copies() {
    let test = "subvolumes_in_a_share_are_told_and_refused_for_shadow_copies";
    let Some(site) = Site::with(test, "none", &["inner"], |_| {}) else { return };
    let config = site.place.path("frevo.toml");
    let checked = site.place.run(&["check", "-c", text(&config)]);
    checked.succeeds();
    let sentence =
        "snapshots lack what is in the subvolumes in it, which are empty folders there: inner;";
    assert!(checked.err.contains(sentence), "{checked:?}");
    let status = site.admin(&["status"]);
    assert!(status.succeeds().contains(&format!("snapshots of photos: {sentence}")), "{status:?}");
    site.create();
    let made = site.client(&["snapshots", "create", &format!("smb://ann@{}/photos", site.address)]);
    assert!(made.code != 0, "{made:?}");
    assert_eq!(snapshots(&site.share).len(), 1);
}

/// Snapshots have nothing of file systems that are mounted in the share either.
#[test]
fn file_systems_in_a_share_are_told_and_refused_for_shadow_copies() {
    let test = "file_systems_in_a_share_are_told_and_refused_for_shadow_copies";
    let mount = |share: &Path| {
        let inner = share.join("inner");
        fs::create_dir(&inner).unwrap();
        let done = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&inner).status();
        assert!(done.unwrap().success());
    };
    let Some(site) = Site::with(test, "none", &[], mount) else { return };
    let _inner = Unmounted(site.share.join("inner"));
    let sentence = "snapshots lack what is in the file systems that are mounted in it";
    let config = site.place.path("frevo.toml");
    let checked = site.place.run(&["check", "-c", text(&config)]);
    checked.succeeds();
    assert!(checked.err.contains(sentence), "{checked:?}");
    let status = site.admin(&["status"]);
    assert!(status.succeeds().contains(&format!("snapshots of photos: {sentence}")), "{status:?}");
    let made = site.client(&["snapshots", "create", &format!("smb://ann@{}/photos", site.address)]);
    made.fails(6, &["makes no snapshots of this share"]);
    site.create();
    assert_eq!(snapshots(&site.share).len(), 1);
}

/// A mount that ends with the test.
struct Unmounted(PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        // The file system around it is unmounted as well, and says so if it cannot be.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Where a folder can have no snapshots, `keep_deleted` is a recycle bin, and says so.
#[test]
fn a_folder_without_snapshots_keeps_deleted_files_in_its_bin() {
    // No tmpfs has snapshots.
    let Ok(share) = tempfile::TempDir::new_in("/dev/shm") else {
        return println!("skipped: there is no /dev/shm");
    };
    let (place, address) = (Sandbox::new(), format!("127.0.0.1:{}", free_port()));
    let config = format!(
        "[server]\nlisten = [\"{address}\"]\nstate_dir = {:?}\ndiscovery = \"off\"\n\
         [[share]]\nname = \"photos\"\npath = {:?}\nkeep_deleted = \"3 days\"\n\
         [[user]]\nname = \"ann\"\npassword_file = {:?}\n",
        text(&place.path("state")),
        text(share.path()),
        text(&place.file("password", "secret", 0o600)),
    );
    let config = place.file("frevo.toml", &config, 0o600);
    let checked = place.run(&["check", "-c", text(&config)]);
    let told = format!("{}{}", checked.out, checked.err);
    assert!(checked.code == 0 && told.contains("its recycle bin alone keeps"), "{checked:?}");
    assert!(told.contains("frevo.toml:8: warning"), "the key is named: {checked:?}");
    let serving = place.serve(&["--config", text(&config)]);
    let socket = place.path("state/admin.sock");
    let status = place.run(&["status", "--socket", text(&socket)]);
    assert!(
        status.succeeds().contains("snapshots of photos: no snapshots can be made"),
        "{status:?}"
    );
    let client = |arguments: &[&str]| {
        let mut command = place.command(arguments);
        said(command.env("FREVO_PASSWORD", "secret").output().unwrap())
    };
    let url = format!("smb://ann@{address}/photos/a.txt");
    let file = place.file("a.txt", "a", 0o600);
    client(&["put", text(&file), &url]).succeeds();
    client(&["rm", &url]).succeeds();
    // A look in snapshots is told of the bin.
    let bin = format!("may be in smb://ann@{address}/photos/.recycle");
    client(&["restore", "--as-of", "now", &url]).fails(6, &["has no snapshots", &bin]);
    let said = serving.stop();
    assert!(said.err.contains("the recycle bin alone keeps deleted files"), "{said:?}");
}

/// Ends the client that writes, also when an assertion fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Bytes of a record.
const RECORD: usize = 4_096;

/// Writes records one after the other, each 16th of them flushed, and counts those that were answered.
fn write(address: &str, answered: &AtomicU64, is_over: &AtomicBool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server: frevo_client::ServerName = address.parse().unwrap();
        let credentials = frevo_client::Credentials::new("ann", "secret");
        let session = frevo_client::Client::default().connect(server, credentials).await.unwrap();
        let share = session.share("photos").await.unwrap();
        let file = frevo_client::File::create(&share, "records").await.unwrap();
        for number in 0_u64.. {
            let record = number.to_le_bytes().repeat(RECORD / 8);
            file.write_all_at(&record, number * RECORD as u64).await.unwrap();
            if number % 16 == 0 {
                file.sync_all().await.unwrap();
            }
            answered.store(number + 1, Ordering::Release);
            // The file stays small over many snapshots.
            tokio::time::sleep(Duration::from_millis(2)).await;
            if is_over.load(Ordering::Acquire) {
                break;
            }
        }
        file.close().await.unwrap();
        session.log_off().await;
    });
}

/// Tests that each snapshot has all that a client was answered before it was asked for, and at most the one
/// record that is written meanwhile beside it.
#[test]
fn each_snapshot_has_what_was_answered() {
    let Some(site) = Site::new("each_snapshot_has_what_was_answered", "monthly keep 1") else {
        return;
    };
    site.first();
    let rounds = std::env::var("FREVO_SNAPSHOT_ROUNDS").map_or(5, |rounds| rounds.parse().unwrap());
    let (answered, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|threads| {
        threads.spawn(|| write(&site.address, &answered, &is_over));
        let _over = Over(&is_over);
        for round in 0..rounds {
            let before = answered.load(Ordering::Acquire);
            let taken = site.create();
            let after = answered.load(Ordering::Acquire);
            let name = Second::new(taken).unwrap().to_name();
            let kept = fs::read(site.share.join(".frevo-snapshots").join(name).join("records"));
            let kept = kept.unwrap_or_default();
            let count = kept.len().div_ceil(RECORD) as u64;
            assert!(before <= count && count <= after + 1, "{before} {count} {after}");
            let is_right = |(number, record): (u64, &[u8])| {
                number >= before || record == number.to_le_bytes().repeat(RECORD / 8)
            };
            assert!((0..).zip(kept.chunks(RECORD)).all(is_right), "round {round}");
        }
    });
}
