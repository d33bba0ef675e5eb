//! `frevo namespace split`: a folder of a namespace's root moves to another share, and a link stays.
#![allow(clippy::disallowed_methods, reason = "tests")]

mod harness;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use frevo_client::{Client, Credentials, File, ServerName, Share};
use harness::world::assert_same;
use harness::{Said, Sandbox, Serving, said, text};
use rustix::fs::XattrFlags;

/// The bytes of a stream that fits no attribute.
const BIG: usize = 200_000;
/// The attribute that names the directory of a file's streams: it has the file's number in it.
const MARK: &str = "user.frevo.streams";

/// A configuration with a namespace whose root is the share `files`, and the share `red`.
struct Split {
    sandbox: Sandbox,
    /// The folder of the share `red`.
    red: PathBuf,
    /// Another file system, if `red` is on one.
    _elsewhere: Option<tempfile::TempDir>,
}

impl Split {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let red = sandbox.folder("red");
        Self::with(sandbox, red, None, "")
    }

    /// A place with `red` on another file system. None if there is no other one with attributes here.
    fn over_two() -> Option<Self> {
        let sandbox = Sandbox::new();
        let elsewhere = tempfile::tempdir_in("/dev/shm").ok()?;
        let device = |path: &Path| fs::metadata(path).unwrap().dev();
        let may = rustix::fs::setxattr(elsewhere.path(), "user.a", b"b", XattrFlags::empty());
        if device(elsewhere.path()) == device(&sandbox.path("")) || may.is_err() {
            eprintln!("skipped: /dev/shm is no other file system with extended attributes");
            return None;
        }
        let red = elsewhere.path().join("red");
        fs::create_dir(&red).unwrap();
        Some(Self::with(sandbox, red, Some(elsewhere), ""))
    }

    fn with(
        sandbox: Sandbox,
        red: PathBuf,
        elsewhere: Option<tempfile::TempDir>,
        more: &str,
    ) -> Self {
        let config = format!(
            "# by hand\n[server]\nlisten = [\"127.0.0.1:0\"]\ndiscovery = \"off\"\nname = \"one\"\n\
             state_dir = {:?}\n[[share]]\nname = \"files\"\npath = {:?}\n{more}\
             [[share]]\nname = \"red\"\npath = {red:?}\n[[namespace]]\nname = \"files\" # the tree\n",
            sandbox.folder("state"),
            sandbox.folder("files"),
        );
        // A confined server reads a new file in a folder of its own.
        sandbox.folder("etc");
        sandbox.file("etc/frevo.toml", &config, 0o644);
        Self { sandbox, red, _elsewhere: elsewhere }
    }

    fn source(&self) -> PathBuf {
        self.sandbox.path("files/Teams/Red")
    }

    /// Fills the folder that is to move with files of all kinds.
    fn fill(&self) {
        let source = self.source();
        fs::create_dir_all(source.join("deep/er")).unwrap();
        fs::write(source.join("a"), "first").unwrap();
        fs::write(source.join(".frevo-split-trial"), "of a user").unwrap();
        fs::write(source.join("deep/er/b"), vec![7; 3_000_000]).unwrap();
        fs::hard_link(source.join("a"), source.join("deep/again")).unwrap();
        symlink("../a", source.join("deep/link")).unwrap();
        let sparse = fs::File::create(source.join("sparse")).unwrap();
        sparse.set_len(5_000_000).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"far", 4_000_000).unwrap();
        let pipe = source.join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        set(&source, "user.color", b"red");
        set(&source.join("a"), "user.note", b"of a");
        set(&source.join("deep"), "user.DosStream.small:$DATA", b"of the folder\0");
        let entry = |tag: u16, rights: u16, id: u32| {
            [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let none = u32::MAX;
        let acl = [
            2_u32.to_le_bytes().to_vec(),
            entry(1, 6, none),
            entry(2, 4, 1_234),
            entry(4, 4, none),
            entry(0x10, 6, none),
            entry(0x20, 0, none),
        ];
        set(&source.join("deep/er/b"), "system.posix_acl_access", &acl.concat());
        fs::set_permissions(source.join("deep"), fs::Permissions::from_mode(0o750)).unwrap();
        let old = rustix::fs::Timespec { tv_sec: 1_000_000_000, tv_nsec: 500 };
        let times = rustix::fs::Timestamps { last_access: old, last_modification: old };
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(rustix::fs::CWD, source.join("deep"), &times, flags).unwrap();
        for (file, stream, byte) in [("a", "big", 1), ("deep", "big", 2), ("", "own", 3)] {
            self.put_beside(&source.join(file), stream, &vec![byte; BIG]);
        }
    }

    /// Gives a file a stream in the side folder of the share `files`, as the server does.
    fn put_beside(&self, file: &Path, stream: &str, data: &[u8]) {
        let mark = format!("{:x}-1-1-1", fs::metadata(file).unwrap().ino());
        set(file, MARK, mark.as_bytes());
        let folder = self.sandbox.path("files/.frevo-streams").join(mark);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!(":{stream}")), data).unwrap();
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = self.sandbox.command(&[
            "namespace",
            "split",
            "--config",
            "etc/frevo.toml",
            "files/teams/red",
            "--to",
            "red",
        ]);
        command.args(more);
        command
    }

    fn run(&self, more: &[&str]) -> Said {
        said(self.command(more).output().unwrap())
    }

    fn config(&self) -> String {
        fs::read_to_string(self.sandbox.path("etc/frevo.toml")).unwrap()
    }

    fn serve(&self) -> Serving {
        let add = ["user", "add", "ann", "--password-stdin", "--config", "etc/frevo.toml"];
        self.sandbox.run_with_input(&add, "secret").succeeds();
        let log = self.sandbox.path("log");
        let mut command = self.sandbox.command(&["serve", "-c", "etc/frevo.toml"]);
        command.stderr(fs::File::create(&log).unwrap());
        let mut server = Serving::start(command);
        let log = fs::read_to_string(log).unwrap();
        let address = log.split("listening address=").nth(1).unwrap();
        address.split(' ').next().unwrap().clone_into(&mut server.address);
        server
    }

    /// Runs a command of the client that knows the server by its name.
    fn client(&self, server: &Serving, arguments: &[&str]) -> Said {
        let known = format!("one={}", server.address);
        let (command, rest) = arguments.split_first().unwrap();
        let mut command = self.sandbox.command(&[command, "--address", &known]);
        said(command.args(rest).env("FREVO_PASSWORD", "secret").output().unwrap())
    }

    /// Checks the tree at its new place, and that nothing is left.
    #[track_caller]
    fn check_moved(&self, before: &[String]) {
        assert_eq!(facts(&self.red, &self.red), before);
        assert!(!self.source().exists() && self.sandbox.path("files/Teams").exists());
        for side in [self.sandbox.path("files/.frevo-streams"), self.red.join(".frevo-streams")] {
            let left = names(&side);
            assert!(!left.iter().any(|name| name.starts_with("split")), "{left:?}");
        }
        assert_eq!(names(&self.sandbox.path("files/.frevo-streams")), [""; 0]);
        let config = self.config();
        let link = "[[namespace.link]]\npath = 'Teams\\Red'\ntargets = ['\\\\ONE\\red']\n";
        assert!(config.ends_with(link), "{config}");
        assert!(config.contains("# by hand") && config.contains("# the tree"), "{config}");
    }
}

fn set(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(name).map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// All that a tree has, a line for each file. Streams beside files are those of the share at `root`.
fn facts(tree: &Path, root: &Path) -> Vec<String> {
    let mut all = Vec::new();
    add_facts(tree, tree, root, &mut all);
    all.sort();
    all
}

fn add_facts(tree: &Path, path: &Path, root: &Path, all: &mut Vec<String>) {
    let stat = fs::symlink_metadata(path).unwrap();
    let below = path.strip_prefix(tree).unwrap().display();
    let mut line = format!("{below} {:o} {} {}", stat.mode(), stat.uid(), stat.gid());
    // A rename changes the time of the folder that the file is in, but for the moving folder itself.
    line.push_str(&format!(" {}.{:09}", stat.mtime(), stat.mtime_nsec()));
    if stat.file_type().is_symlink() {
        line.push_str(&format!(" {}", fs::read_link(path).unwrap().display()));
    }
    if stat.is_file() {
        let data = fs::read(path).unwrap();
        let sum = data.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
        line.push_str(&format!(" {} {} {sum:x}", stat.nlink(), data.len()));
    }
    if stat.is_file() || stat.is_dir() {
        let mut list = vec![0; 4_096];
        let length = rustix::fs::listxattr(path, &mut list[..]).unwrap();
        let listed = list[..length].split(|byte| *byte == 0);
        let mut attributes: Vec<&str> = listed
            .map(|name| str::from_utf8(name).unwrap())
            .filter(|name| !name.is_empty())
            .collect();
        attributes.sort_unstable();
        for name in attributes {
            let mut value = vec![0; 4_096];
            let length = rustix::fs::getxattr(path, name, &mut value[..]).unwrap();
            value.truncate(length);
            if name != MARK {
                line.push_str(&format!(" {name}={value:?}"));
                continue;
            }
            let mark = String::from_utf8(value).unwrap();
            assert!(mark.starts_with(&format!("{:x}-", stat.ino())), "{mark}");
            let folder = root.join(".frevo-streams").join(&mark);
            for stream in names(&folder) {
                let data = fs::read(folder.join(&stream)).unwrap();
                line.push_str(&format!(" {stream}={} {}", data[0], data.len()));
            }
        }
    }
    all.push(line);
    if stat.is_dir() {
        for name in names(path) {
            if name != ".frevo-streams" {
                add_facts(tree, &path.join(name), root, all);
            }
        }
    }
    assert_eq!(stat.file_type().is_fifo(), path.file_name() == Some(OsStr::new("pipe")));
}

/// Does something in a share of the server by the client library.
fn in_share<T>(server: &Serving, name: &str, work: impl AsyncFnOnce(&Share) -> T) -> T {
    let (host, port) = server.address.rsplit_once(':').unwrap();
    let host = ServerName::new(host).at_port(port.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let user = Credentials::new("ann", "secret");
        let session = Client::default().connect(host, user).await.unwrap();
        let share = session.share(name).await.unwrap();
        let done = work(&share).await;
        share.log_off().await;
        done
    })
}

/// The bytes of a stream that the server tells: the first, and their number.
async fn stream(share: &Share, path: &str) -> (u8, usize) {
    let file = File::open(share, path).await.unwrap();
    let mut all = Vec::new();
    loop {
        let bytes = file.read_bytes(all.len() as u64, 65_536).await.unwrap();
        if bytes.is_empty() {
            break;
        }
        all.extend_from_slice(&bytes);
        if all.len() >= BIG {
            break;
        }
    }
    file.close().await.unwrap();
    (all[0], all.len())
}

/// Moves the folder of a server that runs, and looks at it through the link.
fn moves_while_a_server_runs(place: &Split, way: &str) {
    place.fill();
    let before = facts(&place.source(), &place.sandbox.path("files"));
    let server = place.serve();
    // Both shares are in use before.
    for share in ["files", "red"] {
        in_share(&server, share, async |share| {
            share.list_dir("").await.unwrap();
        });
    }
    let planned = place.run(&["--dry-run"]);
    assert!(planned.succeeds().contains("would move"), "{planned:?}");
    assert!(place.source().exists() && !place.config().contains("link"));
    let done = place.run(&["--json"]);
    let object: serde_json::Value = serde_json::from_str(done.succeeds()).unwrap();
    assert_eq!((&object["moved"], &object["reloaded"]), (&way.into(), &true.into()), "{object}");
    place.check_moved(&before);
    let fetched = place.sandbox.path("fetched");
    let got =
        place.client(&server, &["get", "-r", "smb://ann@one/files/teams/red/deep", text(&fetched)]);
    got.succeeds();
    assert_same(&fetched.join("er"), &place.red.join("deep/er"));
    let cat = place.client(&server, &["cat", "smb://ann@one/files/teams/red/a"]);
    assert_eq!(cat.succeeds(), "first");
    in_share(&server, "red", async |share| {
        for (path, byte) in [("a:big", 1), ("deep:big", 2), (":own", 3)] {
            assert_eq!(stream(share, path).await, (byte, BIG), "{path}");
        }
        let small = File::open(share, "deep:small").await.unwrap();
        assert_eq!(&*small.read_bytes(0, 100).await.unwrap(), b"of the folder");
        small.close().await.unwrap();
    });
    place.run(&[]).fails(1, &["is a link already"]);
    assert_eq!(server.stop().code, 0);
}

#[test]
fn a_folder_moves_within_a_file_system() {
    moves_while_a_server_runs(&Split::new(), "renamed");
}

#[test]
fn a_folder_moves_to_another_file_system() {
    if let Some(place) = Split::over_two() {
        moves_while_a_server_runs(&place, "copied");
    }
}

#[test]
fn open_files_keep_a_folder_unless_it_is_asked() {
    let place = Split::new();
    place.fill();
    let before = (facts(&place.source(), &place.sandbox.path("files")), place.config());
    let server = place.serve();
    in_share(&server, "files", async |share| {
        let file = File::open(share, r"teams\RED\deep\er\b").await.unwrap();
        place.run(&[]).fails(1, &["1 file open", r"\b by ann", "--even-if-open"]);
        let after = (facts(&place.source(), &place.sandbox.path("files")), place.config());
        assert_eq!(after, before);
        let done = place.run(&["--even-if-open"]);
        assert!(done.succeeds().contains("1 open file closed"), "{done:?}");
        assert!(file.read_bytes(0, 1).await.is_err());
    });
    place.check_moved(&before.0);
    assert_eq!(server.stop().code, 0);
}

#[test]
fn refusals_change_nothing() {
    let place = Split::new();
    place.fill();
    let before = (facts(&place.source(), &place.sandbox.path("files")), place.config());
    let run = |path: &str, to: &str| {
        let config = ["namespace", "split", "--config", "etc/frevo.toml"];
        place.sandbox.run(&[&config[..], &[path, "--to", to]].concat())
    };
    run("files", "red").fails(2, &["names no folder"]);
    run("file/teams/red", "red").fails(6, &["did you mean files"]);
    run("files/teams/red", "reds").fails(6, &["did you mean red"]);
    run("files/teams/red", "files/x").fails(2, &["already"]);
    run("files/teams/none", "red").fails(6, &["there is no folder"]);
    run("files/teams/red/a", "red").fails(1, &["no folder"]);
    run("files/.frevo-streams", "red").fails(2, &["server's own"]);
    symlink("Red", place.sandbox.path("files/Teams/way")).unwrap();
    run("files/teams/way", "red").fails(1, &["symbolic link"]);
    let mark = format!("{:x}-1-1-1", fs::metadata(&place.red).unwrap().ino());
    set(&place.red, MARK, mark.as_bytes());
    let streams = place.red.join(".frevo-streams");
    fs::create_dir_all(streams.join(&mark)).unwrap();
    fs::write(streams.join(&mark).join(":own"), "x").unwrap();
    run("files/teams/red", "red").fails(1, &["streams of its own"]);
    fs::remove_dir_all(&streams).unwrap();
    fs::write(place.red.join("there"), "").unwrap();
    run("files/teams/red", "red").fails(1, &["is not empty", "there"]);
    let side = place.red.join(".frevo-streams");
    fs::create_dir(&side).unwrap();
    if std::os::unix::fs::chown(&side, Some(1_234), None).is_ok() {
        run("files/teams/red", "red/new").fails(1, &["belongs to the user 1234"]);
    }
    fs::remove_dir(&side).unwrap();
    // A server that is not found has the folders.
    fs::write(
        place.sandbox.path("etc/frevo.toml"),
        format!("{}[admin]\nenabled = false\n", before.1),
    )
    .unwrap();
    let server = place.serve();
    run("files/teams/red", "red/new").fails(5, &["--socket"]);
    assert_eq!(server.stop().code, 0);
    fs::write(place.sandbox.path("etc/frevo.toml"), &before.1).unwrap();
    fs::remove_file(place.sandbox.path("files/Teams/way")).unwrap();
    let after = (facts(&place.source(), &place.sandbox.path("files")), place.config());
    assert_eq!(after, before);
    // A folder in the share is made.
    run("files/teams/red", "red/new/er").succeeds();
    assert_eq!(facts(&place.red.join("new/er"), &place.red), before.0);
    let mode = |path: &Path| fs::metadata(path).unwrap().mode();
    assert_eq!(mode(&place.red.join("new")), mode(&place.red));
    assert!(place.config().contains(r"'\\ONE\red\new\er'"), "{}", place.config());
}

#[test]
fn an_empty_folder_tells_who_sees_the_link() {
    let sandbox = Sandbox::new();
    let red = sandbox.folder("red");
    let place = Split::with(sandbox, red, None, "hide_unreadable = true\n");
    place.fill();
    fs::set_permissions(place.source(), fs::Permissions::from_mode(0o700)).unwrap();
    place.run(&[]).succeeds();
    assert_eq!(names(&place.source()), [""; 0]);
    for folder in [place.source(), place.red] {
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700, "{folder:?}");
    }
}

#[test]
fn a_file_with_a_name_elsewhere_keeps_its_streams_there() {
    let place = Split::new();
    place.fill();
    let outside = place.sandbox.path("files/outside");
    fs::hard_link(place.source().join("a"), &outside).unwrap();
    place.run(&[]).succeeds();
    let share = place.sandbox.path("files");
    let line = |path: &Path, root: &Path| {
        let mut all = Vec::new();
        add_facts(path, path, root, &mut all);
        all.remove(0)
    };
    let there = line(&place.red.join("a"), &place.red);
    assert!(there.contains(":big=1 200000"), "{there}");
    assert_eq!(line(&outside, &share), there);
}

/// Mounts a small disk.
const MOUNT: &str = "mount -t tmpfs -o size=1m none \"$0\"";

/// A disk that is full: the folder is back at its place, and the copy is gone.
#[test]
fn a_copy_that_fails_is_undone() {
    let place = Split::new();
    place.fill();
    let before = (facts(&place.source(), &place.sandbox.path("files")), place.config());
    // In a name space of mounts of its own, which goes with the program.
    let inside = |script: &str| {
        let split = place.command(&[]);
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, text(&place.red)]);
        command.arg(split.get_program()).args(split.get_args());
        command.current_dir(place.sandbox.path("")).output().unwrap()
    };
    if !inside(MOUNT).status.success() {
        eprintln!("skipped: this user cannot mount");
        return;
    }
    let done = said(inside(&format!(
        "{MOUNT} && \"$@\"; code=$?; ls -A \"$0\"/.frevo-streams; exit $code"
    )));
    assert_eq!((done.code, &*done.out), (1, ""), "{done:?}");
    assert!(done.err.contains("No space left") && !done.err.contains("undone"), "{done:?}");
    let after = (facts(&place.source(), &place.sandbox.path("files")), place.config());
    assert_eq!(after, before);
    place.run(&[]).succeeds();
    place.check_moved(&before.0);
}

/// The program ends after a step, and a second call goes on.
#[cfg(feature = "test-hooks")]
fn goes_on_after(place: &Split, step: &str) {
    place.fill();
    let before = facts(&place.source(), &place.sandbox.path("files"));
    let stopped = said(place.command(&[]).env("FREVO_TEST_SPLIT_STOP", step).output().unwrap());
    assert_eq!(stopped.code, 99, "{step}: {stopped:?}");
    let done = place.run(&[]);
    assert_eq!(done.code, 0, "{step}: {done:?}");
    place.check_moved(&before);
}

#[test]
#[cfg(feature = "test-hooks")]
fn an_interrupted_rename_goes_on() {
    for step in [
        "begun",
        "link",
        "reloaded",
        "aside",
        "properties",
        "streams",
        "entry",
        "moved",
        "online",
        "ended",
    ] {
        goes_on_after(&Split::new(), step);
    }
}

#[test]
#[cfg(feature = "test-hooks")]
fn an_interrupted_copy_goes_on() {
    for step in [
        "begun",
        "aside",
        "copied",
        "compared",
        "properties",
        "entry",
        "published",
        "moved",
        "online",
        "ended",
    ] {
        let Some(place) = Split::over_two() else { return };
        goes_on_after(&place, step);
    }
}

/// A link that somebody sets online meanwhile does not end the work.
#[test]
#[cfg(feature = "test-hooks")]
fn a_link_that_is_set_online_leaves_no_file_behind() {
    let place = Split::new();
    place.fill();
    let before = facts(&place.source(), &place.sandbox.path("files"));
    let stopped = place.command(&[]).env("FREVO_TEST_SPLIT_STOP", "entry").output().unwrap();
    assert_eq!(stopped.status.code(), Some(99));
    let config = place.config();
    assert!(config.contains("state = \"offline\"\n"), "{config}");
    let online = config.replace("state = \"offline\"\n", "");
    fs::write(place.sandbox.path("etc/frevo.toml"), online).unwrap();
    place.run(&[]).succeeds();
    place.check_moved(&before);
}

/// The folder of a split that was interrupted, in the share that it leaves.
#[cfg(feature = "test-hooks")]
fn begun(place: &Split) -> PathBuf {
    let side = place.sandbox.path("files/.frevo-streams");
    let found = names(&side).into_iter().find(|name| name.starts_with("split-")).unwrap();
    side.join(found)
}

/// Writes to the old files after they were compared are not lost with them.
#[test]
#[cfg(feature = "test-hooks")]
fn files_that_change_after_the_comparison_stay() {
    let Some(place) = Split::over_two() else { return };
    place.fill();
    let stopped = place.command(&[]).env("FREVO_TEST_SPLIT_STOP", "compared").output().unwrap();
    assert_eq!(stopped.status.code(), Some(99));
    let tree = begun(&place).join("tree");
    fs::write(tree.join("a"), "later").unwrap();
    fs::write(tree.join("deep/new"), "new").unwrap();
    let mark = names(&place.sandbox.path("files/.frevo-streams"));
    let of_folder = |name: &&String| {
        let inode = fs::metadata(tree.join("deep")).unwrap().ino();
        name.starts_with(&format!("{inode:x}-"))
    };
    let streams =
        place.sandbox.path("files/.frevo-streams").join(mark.iter().find(of_folder).unwrap());
    fs::write(streams.join(":big"), "changed").unwrap();
    let done = place.run(&[]);
    done.fails(1, &["3 files changed", "tree/a", "tree/deep/again", "tree/deep/new"]);
    let left: Vec<String> = facts(&tree, &place.sandbox.path("files"));
    assert_eq!(left.len(), 5, "{left:?}");
    assert_eq!(fs::read(tree.join("deep/again")).unwrap(), b"later");
    assert!(place.config().contains("state = \"offline\""), "{}", place.config());
    for path in ["a", "deep/again", "deep/new"] {
        fs::remove_file(tree.join(path)).unwrap();
    }
    place.run(&[]).fails(1, &["1 file changed", "tree/deep;"]);
    assert_eq!(fs::read(streams.join(":big")).unwrap(), b"changed");
    fs::remove_dir_all(&streams).unwrap();
    fs::remove_dir(tree.join("deep")).unwrap();
    place.run(&[]).succeeds();
    assert_eq!(fs::read(place.red.join("a")).unwrap(), b"first");
    assert!(!tree.exists() && !place.config().contains("offline"));
}

/// A removal that was interrupted has changed the states of files with several names.
#[test]
#[cfg(feature = "test-hooks")]
fn an_interrupted_removal_goes_on() {
    let Some(place) = Split::over_two() else { return };
    place.fill();
    let before = facts(&place.source(), &place.sandbox.path("files"));
    let stopped = place.command(&[]).env("FREVO_TEST_SPLIT_STOP", "published").output().unwrap();
    assert_eq!(stopped.status.code(), Some(99));
    let tree = begun(&place).join("tree");
    for path in ["a", "deep/er/b"] {
        fs::remove_file(tree.join(path)).unwrap();
    }
    place.run(&[]).succeeds();
    place.check_moved(&before);
}

/// A disk that is not mounted is not taken for the one to which files have gone.
#[test]
#[cfg(feature = "test-hooks")]
fn a_second_call_finds_the_same_destination_or_stops() {
    let place = Split::new();
    place.fill();
    let before = facts(&place.source(), &place.sandbox.path("files"));
    let stopped = place.command(&[]).env("FREVO_TEST_SPLIT_STOP", "entry").output().unwrap();
    assert_eq!(stopped.status.code(), Some(99));
    let away = place.sandbox.path("away");
    fs::rename(&place.red, &away).unwrap();
    fs::create_dir(&place.red).unwrap();
    place.run(&[]).fails(1, &["is it mounted?"]);
    assert_eq!(names(&place.red), [""; 0]);
    fs::remove_dir(&place.red).unwrap();
    fs::rename(&away, &place.red).unwrap();
    place.run(&["--server-name", "two"]).fails(1, &[]);
    place.run(&[]).succeeds();
    place.check_moved(&before);
}

/// A link that somebody sets online before the folder has moved does not tell that it has.
#[test]
#[cfg(feature = "test-hooks")]
fn a_link_that_is_set_online_early_moves_the_folder_all_the_same() {
    let place = Split::new();
    place.fill();
    let before = facts(&place.source(), &place.sandbox.path("files"));
    let stopped = place.command(&[]).env("FREVO_TEST_SPLIT_STOP", "reloaded").output().unwrap();
    assert_eq!(stopped.status.code(), Some(99));
    let online = place.config().replace("state = \"offline\"\n", "");
    fs::write(place.sandbox.path("etc/frevo.toml"), online).unwrap();
    place.run(&[]).succeeds();
    place.check_moved(&before);
}

/// While it is interrupted, no client sees a part of the folder, and no server loses the rest.
#[test]
#[cfg(feature = "test-hooks")]
fn clients_see_the_whole_folder_or_none() {
    let Some(place) = Split::over_two() else { return };
    place.fill();
    let before = facts(&place.source(), &place.sandbox.path("files"));
    let server = place.serve();
    let cat = || place.client(&server, &["cat", "smb://ann@one/files/teams/red/a"]);
    assert_eq!(cat().succeeds(), "first");
    let stopped = said(place.command(&[]).env("FREVO_TEST_SPLIT_STOP", "copied").output().unwrap());
    assert_eq!(stopped.code, 99, "{stopped:?}");
    assert_ne!(cat().code, 0);
    let listed = place.client(&server, &["ls", "smb://ann@one/red"]);
    assert_eq!(listed.succeeds().trim(), "");
    place.run(&[]).succeeds();
    assert_eq!(cat().succeeds(), "first");
    place.check_moved(&before);
    assert_eq!(server.stop().code, 0);
}
