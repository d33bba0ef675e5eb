//! Shares with a folder for each user, with few connections, and shares that are read-only.

mod harness;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::process::Command;

use harness::{PATIENCE, Said, Sandbox, Serving, said};

/// A server of this configuration with the users ann and bob.
fn serve(place: &Sandbox, shares: &str) -> Serving {
    let text = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\nstate_dir = {:?}\n{shares}",
        place.folder("state")
    );
    place.file("frevo.toml", &text, 0o644);
    for user in ["ann", "bob"] {
        let arguments = ["user", "add", user, "--password-stdin", "--config", "frevo.toml"];
        place.run_with_input(&arguments, "secret").succeeds();
    }
    let log = place.path("log");
    let mut command = place.command(&["serve", "-c", "frevo.toml"]);
    command.stderr(fs::File::create(&log).unwrap());
    let mut server = Serving::start(command);
    let lines = BufReader::new(fs::File::open(&log).unwrap()).lines();
    let address = lines.map(Result::unwrap).find(|line| line.contains("listening")).unwrap();
    let (_, rest) = address.split_once("address=").unwrap();
    rest.split(' ').next().unwrap().clone_into(&mut server.address);
    server
}

struct World {
    place: Sandbox,
    server: Serving,
}

impl World {
    /// `share` is a `[[share]]` for each folder that it names, with `%` for the sandbox.
    fn new(shares: &str, folders: &[&str]) -> Self {
        let place = Sandbox::new();
        folders.iter().for_each(|folder| drop(place.folder(folder)));
        let shares = shares.replace('%', &place.path("").display().to_string());
        let server = serve(&place, &shares);
        Self { place, server }
    }

    fn command(&self, user: &str, verb: &[&str], path: &str) -> Command {
        let url = format!("smb://{user}@{}/{path}", self.server.address);
        let mut command = self.place.command(&[verb, &[url.as_str()]].concat());
        command.env("FREVO_PASSWORD", "secret");
        command
    }

    fn run(&self, user: &str, verb: &[&str], path: &str) -> Said {
        said(self.command(user, verb, path).output().unwrap())
    }

    fn logged(&self, words: &str) {
        let began = std::time::Instant::now();
        let log = || fs::read_to_string(self.place.path("log")).unwrap();
        while !log().contains(words) {
            assert!(began.elapsed() < PATIENCE, "{words:?} not in {}", log());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

#[test]
fn every_user_has_a_folder_of_their_own() {
    let world = World::new(
        "[[share]]\nname = \"{user}\"\npath = \"%home/{user}\"\n\
         [[share]]\nname = \"mail\"\npath = \"%home/{user}/mail\"\n",
        &["home/ann/mail", "home/bob", "elsewhere"],
    );
    world.place.file("letter", "Dear", 0o644);
    world.place.file("home/bob/b", "bob's", 0o644);
    // bob has put a link where the share expects a folder; it must not be followed.
    symlink("../../elsewhere", world.place.path("home/bob/mail")).unwrap();
    assert_eq!(world.run("ann", &["ls"], "ann").succeeds().trim(), "mail/");
    world.run("ann", &["put", "letter"], "ANN/").succeeds();
    world.run("ann", &["put", "letter"], "mail/").succeeds();
    assert_eq!(fs::read_to_string(world.place.path("home/ann/letter")).unwrap(), "Dear");
    assert_eq!(fs::read_to_string(world.place.path("home/ann/mail/letter")).unwrap(), "Dear");
    assert!(world.run("bob", &["ls"], "bob").succeeds().starts_with("b\n"));
    // No user can reach another user's folder, nor the share by its configured name `{user}`.
    for (user, share) in [("ann", "bob"), ("bob", "ann"), ("bob", "mail"), ("ann", "%7Buser%7D")] {
        let refused = world.run(user, &["ls"], share);
        assert!(refused.code != 0 && refused.out.is_empty(), "{user} {share} {refused:?}");
    }
    let listed = world.run("ann", &["shares"], "");
    assert!(listed.succeeds().contains("ann") && !listed.out.contains("{user}"), "{listed:?}");
}

#[test]
fn a_share_has_at_most_so_many_connections() {
    let world = World::new("[[share]]\nname = \"a\"\npath = \"%a\"\nmax_connections = 1\n", &["a"]);
    world.run("ann", &["ls"], "a").succeeds();
    let mut watch = world.command("ann", &["watch"], "a").spawn().unwrap();
    let began = std::time::Instant::now();
    loop {
        // `watch` takes the share's only connection some time after its start. If bob's `ls` has
        // the connection at that moment, `watch` is refused and started again.
        let refused = world.run("bob", &["ls"], "a");
        if refused.code != 0 {
            break;
        }
        if watch.try_wait().unwrap().is_some() {
            watch = world.command("ann", &["watch"], "a").spawn().unwrap();
        }
        assert!(began.elapsed() < PATIENCE, "{refused:?}");
    }
    world.logged("the share has as many connections as max_connections allows");
    watch.kill().unwrap();
    watch.wait().unwrap();
    // When `watch` ends, its connection makes room, so `ls` succeeds a little later.
    let began = std::time::Instant::now();
    while world.run("bob", &["ls"], "a").code != 0 {
        assert!(began.elapsed() < PATIENCE);
    }
}

#[test]
fn a_write_that_read_only_refuses_is_logged() {
    let world = World::new(
        "[[share]]\nname = \"a\"\npath = \"%a\"\nread_only = true\nwrite_list = [\"bob\"]\n",
        &["a"],
    );
    world.place.file("letter", "Dear", 0o644);
    world.run("bob", &["put", "letter"], "a/b").succeeds();
    assert_ne!(world.run("ann", &["put", "letter"], "a/c").code, 0);
    world.logged("write refused: the share is read-only for this user");
    let log = fs::read_to_string(world.place.path("log")).unwrap();
    let line = log.lines().find(|line| line.contains("write refused")).unwrap();
    assert!(line.contains("user=ann") && line.contains("share=a"), "{line}");
    assert!(!log.lines().any(|line| line.contains("write refused") && line.contains("user=bob")));
}

/// A disk that is not mounted does not keep the other shares from being served.
#[test]
fn a_share_without_its_folder_keeps_no_other_from_being_served() {
    let world = World::new(
        "[[share]]\nname = \"here\"\npath = \"%here\"\n\
         [[share]]\nname = \"gone\"\npath = \"%disk/gone\"\n",
        &["here", "disk"],
    );
    world.logged("the share is not served: there is no folder");
    world.logged("share=gone");
    world.run("ann", &["ls"], "here").succeeds();
    world.run("ann", &["ls"], "gone").fails(6, &["no share of that name"]);
    world.place.run(&["check", "-c", "frevo.toml"]).fails(3, &["share gone: there is no folder"]);
}

/// The permissions of new files are those of the share, whatever umask the server was started with.
#[test]
fn new_files_have_the_permissions_of_the_share() {
    use std::os::unix::fs::PermissionsExt;

    let place = Sandbox::new();
    place.folder("team");
    let shares = format!(
        "[[share]]\nname = \"team\"\npath = {:?}\nfile_mode = \"0664\"\ndirectory_mode = \"0775\"\n\
         continuous = true\n",
        place.path("team")
    );
    let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o027));
    let server = serve(&place, &shares);
    rustix::process::umask(umask);
    let world = World { place, server };
    world.place.file("f", "text", 0o600);
    world.run("ann", &["mkdir"], "team/folder").succeeds();
    let url = format!("smb://ann@{}/team/folder/f", world.server.address);
    let mut put = world.place.command(&["put", "f", &url]);
    said(put.env("FREVO_PASSWORD", "secret").output().unwrap()).succeeds();
    let mode =
        |path: &str| fs::metadata(world.place.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("team/folder"), mode("team/folder/f")), (0o775, 0o664));
    // Other users must not be able to read the server's own files.
    for entry in fs::read_dir(world.place.path("state")).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o077;
        assert_eq!(mode, 0, "{}", entry.path().display());
    }
}

/// A token in a URL names a snapshot, for every command that reads.
#[test]
fn old_versions_are_read_by_every_command() {
    const TOKEN: &str = "@GMT-2024.02.29-12.00.00";
    let place = Sandbox::new();
    let old = format!("data/.snapshots/{TOKEN}");
    for folder in ["data/dir", &format!("{old}/dir"), &format!("{old}/gone")] {
        place.folder(folder);
    }
    let share = format!(
        "[[share]]\nname = \"data\"\npath = {:?}\n\
         snapshots = \".snapshots/@GMT-%Y.%m.%d-%H.%M.%S\"\n",
        place.path("data")
    );
    let server = serve(&place, &share);
    let world = World { place, server };
    for (folder, text) in [("data", "present"), (&*old, "of that time")] {
        fs::write(world.place.path(&format!("{folder}/a")), text).unwrap();
        fs::write(world.place.path(&format!("{folder}/dir/b")), text).unwrap();
    }
    fs::write(world.place.path(&format!("{old}/gone/c")), "c").unwrap();
    let run = |verb: &[&str], path: &str| world.run("ann", verb, &format!("data/{path}"));
    for path in [format!("{TOKEN}/dir/b"), format!("dir/{TOKEN}/b"), format!("dir/b/{TOKEN}")] {
        assert_eq!(run(&["cat"], &path).succeeds(), "of that time", "{path}");
    }
    assert_eq!(run(&["cat"], "a").succeeds(), "present");
    let at = |path: &str| format!("{TOKEN}/{path}");
    assert_eq!(run(&["ls"], TOKEN).succeeds(), "a\ndir/\ngone/\n");
    let listed = run(&["snapshots"], "a");
    let listed = listed.succeeds();
    assert!(listed.starts_with(&format!("{TOKEN}  2024-02-29 ")), "with the local time: {listed}");
    let found = run(&["find"], &at("gone"));
    assert!(found.succeeds().ends_with(&format!("data/{TOKEN}/gone/c\n")), "{found:?}");
    assert!(run(&["stat"], &at("a")).succeeds().contains("12"), "its length");
    assert!(run(&["du", "-s"], &at("gone")).succeeds().contains(" 1 "));
    assert_eq!(run(&["tree"], &at("gone")).succeeds().lines().nth(1), Some("└── c"));
    run(&["cat"], &at("dir/*")).succeeds();
    run(&["cat"], "@GMT-2023.01.01-00.00.00/a").fails(6, &["no such file", "@GMT-2023"]);
    let url = |path: &str| format!("smb://ann@{}/data/{path}", world.server.address);
    let command = |arguments: &[&str]| {
        let mut command = world.place.command(arguments);
        said(command.env("FREVO_PASSWORD", "secret").output().unwrap())
    };
    command(&["get", "-r", &url(TOKEN), "all"]).succeeds();
    assert_eq!(fs::read_to_string(world.place.path("all/gone/c")).unwrap(), "c");
    command(&["sync", &url(&at("dir")), "all/dir"]).succeeds();
    // The snapshot's versions of a file and of a removed folder are copied back.
    command(&["cp", &url(&at("a")), &url("a")]).succeeds();
    assert_eq!(run(&["cat"], "a").succeeds(), "of that time");
    command(&["cp", "-r", &url(&at("gone")), &url("gone")]).succeeds();
    assert_eq!(run(&["cat"], "gone/c").succeeds(), "c");
    for line in [
        &["put", "all/a", &url(&at("new"))][..],
        &["rm", &url(&at("a"))],
        &["mkdir", &url(&at("new"))],
        &["attrib", "+h", &url(&at("a"))],
        &["mv", &url(&at("a")), &url(&at("b"))],
    ] {
        command(line).fails(2, &["a snapshot cannot be changed"]);
    }
}

const FIRST: &str = "data/.snapshots/@GMT-2024.02.29-12.00.00";
const SECOND: &str = "data/.snapshots/@GMT-2024.03.01-12.00.00";

/// `--as-of` finds the snapshot of a time, and `restore` brings its files back.
#[test]
fn files_are_read_and_restored_as_of_a_time() {
    let place = Sandbox::new();
    let share = format!(
        "[[share]]\nname = \"data\"\npath = {:?}\n\
         snapshots = \".snapshots/@GMT-%Y.%m.%d-%H.%M.%S\"\n",
        place.path("data")
    );
    for (folder, text) in [("data", "present"), (FIRST, "of the first"), (SECOND, "of the second")]
    {
        place.folder(&format!("{folder}/dir"));
        fs::write(place.path(&format!("{folder}/a")), text).unwrap();
        fs::write(place.path(&format!("{folder}/dir/b")), text).unwrap();
    }
    fs::write(place.path("data/dir/new"), "new").unwrap();
    place.folder(&format!("{FIRST}/gone/below"));
    fs::write(place.path(&format!("{FIRST}/gone/below/c")), "c").unwrap();
    let world = World { server: serve(&place, &share), place };
    let command = |line: &[&str]| {
        let url = |one: &&str| match one.strip_prefix("data/") {
            Some(path) => format!("smb://ann@{}/data/{path}", world.server.address),
            None => (*one).to_owned(),
        };
        let line: Vec<String> = line.iter().map(url).collect();
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        let mut command = world.place.command(&line);
        said(command.env("FREVO_PASSWORD", "secret").output().unwrap())
    };
    let cat = |when: &str, path: &str| command(&["cat", "--as-of", when, path]);
    assert_eq!(cat("2024-02-29T12:00:00Z", "data/a").succeeds(), "of the first");
    assert_eq!(cat("2024-03-01T11:59:59Z", "data/a").succeeds(), "of the first");
    assert_eq!(cat("2024-03-01T12:00:00Z", "data/a").succeeds(), "of the second");
    assert_eq!(cat("1s", "data/dir/*").succeeds(), "of the second", "not the new file");
    // The folder of a file can be gone as well.
    assert_eq!(cat("2024-02-29T12:00:00Z", "data/gone/below/c").succeeds(), "c");
    cat("1d", "data/gone/below/c").fails(6, &["does not exist", "@GMT-2024.03.01"]);
    cat("2024-01-01", "data/a")
        .fails(6, &["no snapshot of 2024-01-01", "oldest one is @GMT-2024.02.29"]);
    let named = "data/@GMT-2024.02.29-12.00.00/a";
    cat("1d", named).fails(2, &["names the snapshot @GMT-2024.02.29-12.00.00 already"]);
    let first = "2024-02-29T12:00:00Z";
    for line in [
        &["ls", "--as-of", first, "data/gone/below"][..],
        &["stat", "--as-of", first, "data/gone"],
        &["tree", "--as-of", first, "data/gone"],
        &["find", "--as-of", first, "data/gone"],
        &["du", "--as-of", first, "data/gone"],
        &["get", "--as-of", first, "-r", "data/gone", "got"],
        &["cp", "--as-of", first, "data/a", "data/copied"],
        &["sync", "--as-of", first, "data/dir", "synchronised"],
    ] {
        command(line).succeeds();
    }
    let read = |path: &str| fs::read_to_string(world.place.path(path)).unwrap();
    assert_eq!(read("got/below/c"), "c");
    assert_eq!(read("data/copied"), "of the first");
    assert_eq!(read("synchronised/b"), "of the first");
    command(&["sync", "--as-of", first, "synchronised", "data/dir"]).fails(2, &["on this machine"]);

    // Named streams come back with their file, and those that it has by now are gone. The attributes have a
    // zero at their end.
    let stream = |path: &str, name: &str| {
        let mut text = [0; 16];
        let name = format!("user.DosStream.{name}:$DATA");
        let read = rustix::fs::getxattr(world.place.path(path), name, &mut text);
        read.map(|length| String::from_utf8_lossy(&text[..length]).into_owned())
    };
    for (path, name) in [(format!("{FIRST}/a"), "note"), ("data/a".to_owned(), "new")] {
        let name = format!("user.DosStream.{name}:$DATA");
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(world.place.path(&path), name, b"kept\0", flags).unwrap();
    }

    let restore = |line: &[&str]| command(&[&["restore"], line].concat());
    restore(&["data/a"]).fails(2, &["--as-of", "frevo snapshots"]);
    restore(&["-n", "--as-of", first, "data/gone"]).succeeds();
    assert!(!world.place.path("data/gone").exists(), "a dry run changes nothing");
    restore(&["--as-of", first, "data/a", "data/dir", "data/gone/below"]).succeeds();
    assert_eq!(read("data/a"), "of the first");
    assert_eq!(stream("data/a", "note").unwrap(), "kept\0");
    assert!(stream("data/a", "new").is_err());
    assert_eq!(read("data/dir/b"), "of the first");
    assert_eq!(read("data/dir/new"), "new", "files that are not in the snapshot stay");
    assert!(!world.place.path("data/dir/dir").exists());
    assert_eq!(read("data/gone/below/c"), "c");
    restore(&["data/@GMT-2024.03.01-12.00.00/a"]).succeeds();
    assert_eq!(read("data/a"), "of the second");
}
