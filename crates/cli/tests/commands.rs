//! `frevo check`, `user`, `import`, and what the program says when it is held
//! wrong.

mod harness;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use harness::{Sandbox, said, text};

const HASH: &str = "A4F49C406510BDCAB6824EE7C30FD852";

fn smbpasswd(name: &str, flags: &str) -> String {
    format!("{name}:1000:{}:{HASH}:[{flags:<11}]:LCT-65A1B2C3:\n", "X".repeat(32))
}

#[test]
fn version_help_man_and_completions() {
    let place = Sandbox::new();
    let version = place.run(&["--version"]);
    assert_eq!(version.succeeds(), format!("frevo {}\n", env!("CARGO_PKG_VERSION")));
    for arguments in [&["--help"][..], &["serve", "--help"], &["user", "--help"]] {
        let help = place.run(arguments);
        assert!(help.succeeds().contains("Exit codes: 0 ok, 1 failed, 2 usage"), "{help:?}");
    }
    let man = place.run(&["man"]);
    for part in [".TH frevo 1", "FREVO SERVE", "\\-\\-password\\-file", "FREVO USER IMPORT"] {
        assert!(man.succeeds().contains(part), "{part}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(place.run(&["completions", shell]).succeeds().contains("password-file"), "{shell}");
    }
}

#[test]
fn a_command_line_that_makes_no_sense() {
    let place = Sandbox::new();
    place.run(&["srve"]).fails(2, &["srve", "serve"]);
    place.run(&["serve"]).fails(2, &["nothing to share", "frevo serve DIR"]);
    place.run(&["serve", ".", "--encryption", "always"]).fails(2, &["required", "offered", "off"]);
    place.run(&["serve", ".", "--min-dialect", "1.0"]).fails(2, &["2.0.2", "3.1.1"]);
    place.run(&["serve", ".", "--listen", "1.2.3"]).fails(2, &["\"1.2.3\" is not an address"]);
    place
        .run(&["serve", ".", "--listen", "nowhere9"])
        .fails(1, &["no interface nowhere9 has an address; "]);
    place.run(&["serve", "--name", "photos"]).fails(2, &["SHARE=DIR"]);
    place.run(&["serve", "--name", "a/b=."]).fails(2, &["'/'", "not allowed in share names"]);
    place.run(&["serve", "--name", "ipc$=."]).fails(2, &["reserved"]);
    let long = format!("{}=.", "x".repeat(81));
    place.run(&["serve", "--name", &long]).fails(2, &["longer than 80"]);
    // A password on the command line would be visible to other users, so no command has such an
    // option.
    place.run(&["serve", ".", "--password", "x"]).fails(2, &["--password"]);
    place.run(&["user", "add", "ann", "secret"]).fails(2, &["secret"]);
}

/// The command of mount(8) for `mount -f -t frevo` mounts nothing, in the foreground or the
/// background, and asks no server.
#[test]
fn a_fake_mount_mounts_nothing() {
    let place = Sandbox::new();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_frevo"), place.path("mount.frevo")).unwrap();
    let mount = |flags: &[&str]| {
        let mut command = std::process::Command::new(place.path("mount.frevo"));
        command.args(["smb://ann@127.0.0.1:1/a", "folder"]).args(flags);
        command.env("FREVO_PASSWORD", "secret").current_dir(place.path("."));
        said(command.output().unwrap())
    };
    for flags in [&["-f"][..], &["-s", "-f", "-n", "-v", "-o", "ro,uid=5"], &["-sfnv"]] {
        mount(flags).succeeds();
    }
    // Without -f the options are valid, too, but mounting fails because the folder is missing.
    mount(&["-f", "-o", "rad_only"]).fails(2, &["rad_only is unknown"]);
    mount(&["-v"]).fails(6, &["folder"]);
}

#[test]
fn secrets_are_not_shared() {
    let place = Sandbox::new();
    let home = place.folder("home");
    let wanted = ["share home: the state directory", "is inside the shared folder"];
    place.run(&["serve", "home", "--state-dir", "home/.state"]).fails(3, &wanted);
    std::os::unix::fs::symlink(&home, place.path("link")).unwrap();
    place.run(&["serve", "home", "--state-dir", "link/deep/state"]).fails(3, &wanted);
    let shown = text(&home);
    let config = format!(
        "[server]\nstate_dir = \"{shown}-state\"\nusers_file = \"{shown}/a/users\"\n\
         [[share]]\nname = \"docs\"\npath = \"{shown}\"\n"
    );
    let config = place.file("frevo.toml", &config, 0o600);
    let wanted = ["share docs: the account file", "home/a/users"];
    place.run(&["check", "--config", text(&config)]).fails(3, &wanted);
    place.run(&["serve", "--config", text(&config)]).fails(3, &wanted);
}

#[test]
fn folders_that_cannot_be_shared() {
    let place = Sandbox::new();
    place.folder("photos");
    let file = place.file("photo.jpg", "x", 0o644);
    place.run(&["serve", "phtos"]).fails(6, &["there is no folder", "did you mean", "/photos?"]);
    place.run(&["serve", "nowhere/at/all"]).fails(6, &["there is no folder"]);
    place.run(&["serve", text(&file)]).fails(1, &["photo.jpg is not a folder"]);
    place.run(&["serve", "/"]).fails(2, &["has no name", "--name 'share=/'"]);
    let odd = place.folder("a:b");
    place.run(&["serve", text(&odd)]).fails(2, &["':'", "--name 'a_b="]);
    let (one, two) = (place.folder("one/pics"), place.folder("two/Pics"));
    place
        .run(&["serve", text(&one), text(&two)])
        .fails(2, &["would both be shared as Pics", "--name OTHER="]);

    let closed = place.folder("closed");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    if closed.metadata().unwrap().uid() == 0 {
        let output = place.unprivileged(&["serve", text(&closed)]).output().unwrap();
        said(output).fails(1, &["closed cannot be read by the user that runs frevo"]);
    }
}

#[test]
fn passwords_that_lie_open_or_are_none() {
    let place = Sandbox::new();
    place.folder("photos");
    let serve = |file: &str| {
        place.run(&["serve", "photos", "--listen", "127.0.0.1:0", "--password-file", file])
    };
    for mode in [0o644, 0o640, 0o602] {
        place.file("password", "secret\n", mode);
        serve("password")
            .fails(4, &["can be read or changed by other users", "chmod 600 password"]);
    }
    place.file("password", "", 0o600);
    serve("password").fails(4, &["the password in the file password is empty"]);
    place.file("password", "one\ntwo\n", 0o600);
    serve("password").fails(4, &["more than one line"]);
    serve("none").fails(6, &["there is no password file none"]);
}

#[test]
fn a_good_configuration_is_ok() {
    let place = Sandbox::new();
    let photos = place.folder("photos");
    place.file("ann.password", "secret\n", 0o600);
    let state = place.folder("state");
    place.file("state/users", &smbpasswd("bob", "U"), 0o600);
    let config = format!(
        "[server]\nstate_dir = {state:?}\n[[share]]\nname = \"photos\"\npath = {photos:?}\n\
         users = [\"ann\", \"bob\"]\n[[user]]\nname = \"ann\"\npassword_file = {:?}\n",
        place.path("ann.password")
    );
    let file = place.file("frevo.toml", &config, 0o644);
    let check = place.run(&["check", "--config", text(&file)]);
    assert!(check.succeeds().ends_with("frevo.toml: ok (1 share, 2 users)\n"), "{check:?}");
    assert_eq!(check.err, "");

    let rate = "[[rate]]\nname = \"slow\"\nusers = [\"ann\", \"nosuch\"]\nread = \"1M\"\n";
    let file = place.file("frevo.toml", &(config.clone() + rate), 0o644);
    let check = place.run(&["check", "-c", text(&file)]);
    check.succeeds();
    let line = config.lines().count() + 2;
    let warning = format!("frevo.toml:{line}: warning: the limit of rate slow: users: there is no");
    assert!(check.err.contains(&warning) && !check.err.contains("ann"), "{check:?}");

    let odd =
        config.replace("\"bob\"", "\"bop\"").replace("[server]", "[server]\nsigning = \"offered\"");
    let file = place.file("frevo.toml", &odd, 0o644);
    let check = place.run(&["check", "-c", text(&file)]);
    check.fails(3, &["share photos: users: there is no account bop; did you mean bob?"]);
    assert!(check.err.contains("could change unsigned messages"), "{}", check.err);
}

/// A SID in a list names a group, so it has an `@`.
#[test]
fn a_sid_without_its_mark_is_told_how_it_is_written() {
    let place = Sandbox::new();
    let photos = place.folder("photos");
    place.folder("state");
    place.file("state/users", &smbpasswd("bob", "U"), 0o600);
    let sid = "S-1-5-21-1004336348-1177238915-682003330-1108";
    let check = |who: &str| {
        let lists = ["allow", "write_list"].map(|key| format!("{key} = [\"bob\", \"{who}\"]\n"));
        let config = format!(
            "[server]\nstate_dir = {:?}\nadministrators = [\"{who}\"]\n[[share]]\nname = \"photos\"\n\
             path = {photos:?}\nread_only = true\n{}",
            place.path("state"),
            lists.concat()
        );
        place.file("frevo.toml", &config, 0o644);
        place.run(&["check", "--config", "frevo.toml"])
    };
    let told = check(sid);
    let advice = format!("write the SID {sid} as \"@{sid}\"");
    let places = ["administrators: ", "share photos: allow: ", "share photos: write_list: "];
    let wanted = places.map(|place| format!("{place}{advice}"));
    told.fails(3, &wanted.each_ref().map(|text| &**text));
    assert!(!told.err.contains("no account"), "{told:?}");
    let right = check(&format!("@{sid}"));
    assert_eq!((right.code, right.err.contains(sid)), (0, false), "{right:?}");
}

#[test]
fn a_bad_configuration_is_told_by_its_line() {
    let place = Sandbox::new();
    let check = |text: &str| {
        place.file("frevo.toml", text, 0o644);
        place.run(&["check", "--config", "frevo.toml"])
    };
    check("[server]\nencyption = \"required\"\n").fails(
        3,
        &["frevo.toml:2: unknown key `encyption` in [server]; did you mean `encryption`?"],
    );
    check("[server]\nencryption = \"yes\"\n")
        .fails(3, &["frevo.toml:2:", "\"required\", \"offered\" or \"off\""]);
    check("[server\n").fails(3, &["frevo.toml:1:"]);
    let share = "[[share]]\nname = \"a\"\npath = \"/nowhere/a\"\n";
    check(share).fails(3, &["share a: there is no folder /nowhere/a"]);
    let twice = format!("{share}{}", share.replace("\"a\"", "\"A\""));
    check(&twice).fails(3, &["frevo.toml:5: a second share is called A"]);
    check("[[user]]\nname = \"ann\"\npassword_file = \"/nowhere\"\n")
        .fails(3, &["user ann: there is no"]);
    place.run(&["check", "--config", "nowhere.toml"]).fails(6, &["cannot read", "nowhere.toml"]);
    // `serve` reports the same faults of a configuration as `check`.
    place.file("frevo.toml", "[server]\nlisen = []\n", 0o644);
    place.run(&["serve", "--config", "frevo.toml"]).fails(3, &["frevo.toml:2:", "`listen`"]);
    place.file("frevo.toml", "[server]\nlog_level = \"loud\"\n", 0o644);
    place.run(&["serve", "--config", "frevo.toml"]).fails(3, &["log level \"loud\""]);
}

#[test]
fn a_check_tells_all_faults_with_their_lines() {
    let place = Sandbox::new();
    place.folder("conf.d");
    place.folder("photos");
    let path = place.path("photos");
    place.file(
        "frevo.toml",
        "[server]\nnmae = \"a\"\ncores = \"two\"\n\n[[share]]\nname = \"a\"\npath = \"/nowhere/a\"\n\
         allow = [\"@no such group here\"]\ntime_machine_max_size = \"1T\"\n",
        0o644,
    );
    let share =
        |keys: &str| format!("[[share]]\nname = \"b\"\npath = \"{}\"\n{keys}", path.display());
    place.file("conf.d/b.toml", &share("allow = [\"stranger\"]\nlisten = []\n"), 0o644);
    let check = |flags: &[&str]| {
        let line = [&["check", "-c", "frevo.toml"], flags].concat();
        let mut command = place.command(&line);
        command.env("FREVO_LIMITS_CONNECTIONS", "many").env("FREVO_SERVER_STATE_DIR", "/nowhere/s");
        said(command.output().unwrap())
    };
    let wanted = [
        "frevo.toml:2: unknown key `nmae`",
        "frevo.toml:3: `cores` must be a whole number",
        "frevo.toml:7: share a: there is no folder /nowhere/a",
        "frevo.toml:8: share a: allow: neither the account file nor this host has a group",
        "frevo.toml:9: share a: time_machine_max_size has no effect",
        "conf.d/b.toml:4: share b: allow: there is no account stranger",
        "conf.d/b.toml:5: unknown key `listen` in [[share]]",
        "FREVO_LIMITS_CONNECTIONS: `connections` must be a whole number",
        "8 faults found",
    ];
    check(&[]).fails(3, &wanted);
    let json = check(&["--json"]);
    let found: serde_json::Value = serde_json::from_str(json.out.trim()).unwrap();
    assert_eq!((json.code, found["ok"].as_bool()), (3, Some(false)), "{json:?}");
    let is_fault = |found: &&serde_json::Value| found["kind"] == "fault";
    let faults = found["findings"].as_array().unwrap().iter().filter(is_fault);
    assert_eq!((faults.count(), json.out.lines().count()), (8, 1), "{json:?}");
}

#[test]
fn the_effective_configuration_is_shown() {
    let place = Sandbox::new();
    place.folder("conf.d");
    place.folder("photos");
    place.file("frevo.toml", "[server]\nname = \"A\"\ncores = 1\n", 0o644);
    let share = format!("[[share]]\nname = \"b\"\npath = \"{}\"\n", place.path("photos").display());
    place.file("conf.d/b.toml", &format!("{share}[server]\nname = \"B\"\n"), 0o644);
    let mut command = place.command(&["check", "-c", "frevo.toml", "--resolved"]);
    command.env("FREVO_SERVER_CORES", "3").env("FREVO_SERVER_LOG_LEVEL", "debug");
    let shown = said(command.output().unwrap());
    let shown = shown.succeeds().to_owned();
    for line in [
        "name = \"B\"",
        "cores = 3",
        "log_level = \"debug\"",
        "log = \"text\" # default",
        "read_only = false # default",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line} not in\n{shown}");
    }
    // The printed configuration, read as a file, prints the same text again.
    fs::remove_dir_all(place.path("conf.d")).unwrap();
    place.file("frevo.toml", &shown, 0o644);
    let again = place.run(&["check", "-c", "frevo.toml", "--resolved"]);
    let plain = |text: &str| text.replace(" # default", "");
    assert_eq!(plain(again.succeeds()), plain(&shown));
}

#[test]
fn shares_are_added_changed_listed_and_removed() {
    let place = Sandbox::new();
    let (photos, music) = (place.folder("photos"), place.folder("music"));
    place.folder("conf.d");
    let text = "# The server of the house\n[server]\nname = \"A\" # short\n\n# Pictures\n[[share]]\n\
                name = \"photos\"\n";
    let text =
        format!("{text}path = \"{}\" # a disk\nread_only = false # for now\n", photos.display());
    place.file("frevo.toml", &text, 0o640);
    let share =
        |arguments: &[&str]| place.run(&[&["share", "--config", "frevo.toml"], arguments].concat());
    let read = || fs::read_to_string(place.path("frevo.toml")).unwrap();
    share(&["set", "Photos", "read_only=true", "allow=ann,@staff", "comment=all of them"])
        .succeeds();
    let wanted = text.replace("false # for now", "true # for now")
        + "allow = [\"ann\", \"@staff\"]\ncomment = \"all of them\"\n";
    assert_eq!(read(), wanted);
    assert_eq!(fs::metadata(place.path("frevo.toml")).unwrap().mode() & 0o7777, 0o640);
    let added = share(&["add", "music", "music", "time_machine=true", "max_file_size=1G"]);
    added.succeeds();
    // A server that runs is confined to the folders of its start.
    assert!(added.err.contains("systemctl restart frevo applies the change"), "{added:?}");
    let added = format!(
        "\n[[share]]\nname = \"music\"\npath = \"{}\"\ntime_machine = true\nmax_file_size = \"1G\"\n",
        music.display()
    );
    assert_eq!(read(), wanted.clone() + &added);
    let listed = share(&["list"]);
    assert!(listed.succeeds().lines().count() == 2, "{listed:?}");
    assert!(listed.out.contains("photos  ") && listed.out.contains("(read-only)"), "{listed:?}");
    let json = share(&["list", "--json"]);
    let first: serde_json::Value = json.succeeds().lines().next().unwrap().parse().unwrap();
    assert_eq!((&first["name"], &first["line"]), (&"photos".into(), &7.into()));
    // None of these commands changes the configuration, because a key, a value, a name or a folder
    // is wrong.
    share(&["set", "music", "read_onyl=true"]).fails(3, &["unknown key `read_onyl`", "read_only"]);
    share(&["set", "music", "read_only=maybe"]).fails(3, &["`read_only` must be true or false"]);
    share(&["set", "musik", "read_only=true"]).fails(6, &["no share musik; did you mean music?"]);
    share(&["set", "music", "read_only"]).fails(2, &["read_only is not KEY=VALUE"]);
    share(&["add", "Music", "music"])
        .fails(3, &["was not changed", "a second share is called Music"]);
    share(&["add", "new", "nowhere"]).fails(6, &["there is no folder"]);
    assert_eq!(read(), wanted.clone() + &added);
    share(&["set", "music", "time_machine=", "max_file_size="]).succeeds();
    assert!(!read().contains("time_machine") && !read().contains("1G"), "{}", read());
    let told = share(&["set", "music", "allow=nobody-of-that-name"]);
    told.succeeds();
    assert!(told.err.contains("share music: allow: there is no account nobody-of"), "{told:?}");
    share(&["rm", "MUSIC"]).succeeds();
    assert_eq!(read(), wanted);
    place.folder("photos/new");
    let below = share(&["add", "new", "photos/new", "allow=@no-group-of-that-name"]);
    below.succeeds();
    assert!(below.err.contains("systemctl reload frevo applies the change"), "{below:?}");
    assert!(below.err.contains("has a group no-group-of-that-name"), "{below:?}");
    share(&["rm", "new"]).succeeds();
    assert_eq!(read(), wanted);
    // The share `b` is defined in a further file, so the change goes to that file.
    let further = format!("[[share]]\nname = \"b\"\npath = \"{}\"\n", music.display());
    let further = place.file("conf.d/b.toml", &further, 0o644);
    share(&["set", "b", "hidden=true"]).succeeds();
    assert!(fs::read_to_string(&further).unwrap().ends_with("hidden = true\n"));
    assert_eq!(read(), wanted);
}

#[test]
fn accounts_are_added_changed_listed_and_removed() {
    let place = Sandbox::new();
    let user = |arguments: &[&str], input: &str| {
        let arguments: Vec<&str> =
            ["user", "--state-dir", "state"].iter().chain(arguments).copied().collect();
        place.run_with_input(&arguments, input)
    };
    user(&["add", "ann", "--password-stdin"], "Password\n").succeeds();
    let file = place.path("state/users");
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
    assert_eq!(place.path("state").metadata().unwrap().mode() & 0o777, 0o700);
    let written = fs::read_to_string(&file).unwrap();
    assert!(written.starts_with("#!frevo accounts 2 sid=S-1-5-21-"), "{written}");
    assert!(written.contains("\nann:") && written.contains(HASH), "{written}");
    assert!(!written.contains("Password"));

    user(&["add", "Ann", "--password-stdin"], "x\n").fails(1, &["user Ann exists already"]);
    user(&["add", "bob", "--password-stdin"], "\n").fails(4, &["is empty"]);
    user(&["add", "bob"], "secret\n").fails(2, &["--password-stdin"]);
    user(&["add", "a:b", "--password-stdin"], "x\n").fails(2, &["not allowed in user names"]);
    user(&["add", "bob", "--password-stdin"], "secret\n").succeeds();
    assert_eq!(user(&["list"], "").succeeds(), "ann\tenabled\nbob\tenabled\n");

    user(&["passwd", "ANN", "--password-stdin"], "other\n").succeeds();
    assert!(!fs::read_to_string(&file).unwrap().contains(HASH));
    user(&["passwd", "anne", "--password-stdin"], "x\n")
        .fails(6, &["no user anne", "did you mean ann?"]);
    user(&["disable", "bob"], "").succeeds();
    assert_eq!(user(&["list"], "").succeeds(), "ann\tenabled\nbob\tdisabled\n");
    user(&["groups", "bob", "staff", "Administrators"], "").succeeds();
    let listed = "ann\tenabled\nbob\tdisabled\tstaff, Administrators\n";
    assert_eq!(user(&["list"], "").succeeds(), listed);
    user(&["groups", "bob"], "").succeeds();
    user(&["enable", "bob"], "").succeeds();
    user(&["rm", "ann"], "").succeeds();
    user(&["rm", "ann"], "").fails(6, &["there is no user ann"]);
    assert_eq!(user(&["list"], "").succeeds(), "bob\tenabled\n");

    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    user(&["list"], "")
        .fails(4, &["state/users can be read or changed by other users", "chmod 600"]);
    fs::write(&file, "nonsense\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    user(&["list"], "").fails(3, &["state/users:1:"]);
}

/// A second run of `--ensure` writes nothing, not even the file's time, and says so to configuration tools.
#[test]
fn a_share_that_is_ensured_is_written_once() {
    let place = Sandbox::new();
    let (first, _) = (place.folder("a"), place.folder("b"));
    let first = first.to_str().unwrap();
    let text = "[[share]]\nname = \"a\"\npath = \"PATH\"\nallow = [ 'ann',\"bob\" ] # both\n";
    let text = text.replace("PATH", first);
    let file = place.file("frevo.toml", &text, 0o644);
    let time = || {
        let metadata = fs::metadata(&file).unwrap();
        (metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), metadata.ctime_nsec())
    };
    let share = |arguments: &[&str]| {
        let run = place.run(&[&["share", "-c", "frevo.toml"], arguments, &["--json"]].concat());
        let object = run.out.lines().next().map(|line| line.parse::<serde_json::Value>().unwrap());
        (run.code, object.map(|object| (object["changed"].clone(), object["apply"].clone())))
    };
    let of = |changed: bool, apply: Option<&str>| Some((changed.into(), apply.into()));
    // `inherit_owner` needs the keys behind it.
    let wanted =
        ["add", "B", "b", "inherit_owner=true", "nt_acls=posix", "run_as=user", "--ensure"];
    let ensured = [&wanted[..], &["--exit-code"]].concat();
    let before = time();
    assert_eq!(share(&[&ensured[..], &["--dry-run"]].concat()), (7, of(true, Some("restart"))));
    assert_eq!(time(), before);
    assert_eq!(share(&wanted), (0, of(true, Some("restart"))));
    let before = time();
    assert_eq!(share(&ensured), (0, of(false, None)));
    // Another spelling of the same value is no change, nor is what is there already.
    for same in [
        &["set", "a", "allow=ann,bob", "--exit-code"][..],
        &["set", "a", "allow=['ann', 'bob']", "read_only=", "--exit-code"],
        &["add", "a", first, "--ensure", "--exit-code"],
        &["rm", "none", "--ensure", "--exit-code"],
    ] {
        assert_eq!(share(same), (0, of(false, None)), "{same:?}");
    }
    assert_eq!(time(), before);
    assert_eq!(
        share(&["add", "b", first, "--ensure", "--exit-code"]),
        (7, of(true, Some("reload")))
    );
    assert_eq!(share(&["rm", "B", "--ensure", "--exit-code"]), (7, of(true, Some("reload"))));
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    assert_eq!(share(&["rm", "B"]).0, 6);
    let refused = place.run(&["share", "-c", "none.toml", "rm", "b", "--ensure", "--json"]);
    assert_eq!(refused.code, 6, "a configuration that is not there is a fault");
    let fault: serde_json::Value = refused.err.parse().unwrap();
    assert_eq!(fault["exit"], 6);
}

/// The password that an account has is no change; it comes from a file or standard input alone.
#[test]
fn an_account_that_is_ensured_is_written_once() {
    let place = Sandbox::new();
    let file = place.path("state/users");
    place.file("secret", "Password\n", 0o600);
    place.file("open", "Password\n", 0o644);
    let user = |arguments: &[&str]| {
        let run = place.run(&[&["user", "--state-dir", "state"], arguments].concat());
        let object = run.out.parse::<serde_json::Value>().unwrap_or_default();
        (run.code, object["changed"].as_bool())
    };
    let told = ["--json", "--exit-code"];
    let with = |arguments: &[&str]| user(&[arguments, &told].concat());
    let ann = ["add", "ann", "--password-file", "secret", "--ensure"];
    assert_eq!(with(&[&ann[..], &["--dry-run"]].concat()), (7, Some(true)));
    assert!(!place.path("state").exists());
    assert_eq!(with(&ann), (7, Some(true)));
    let time = || {
        let metadata = fs::metadata(&file).unwrap();
        (metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), metadata.ctime_nsec())
    };
    let before = time();
    for same in [
        &ann[..],
        &["add", "ANN", "--ensure"],
        &["passwd", "ann", "--password-file", "secret", "--ensure"],
        &["groups", "ann"],
        &["enable", "ann"],
        &["rm", "bob", "--ensure"],
    ] {
        assert_eq!(with(same), (0, Some(false)), "{same:?}");
    }
    assert_eq!(time(), before);
    assert_eq!(with(&["passwd", "ann", "--password-file", "open", "--ensure"]), (4, None));
    place.file("secret", "another\n", 0o600);
    assert_eq!(with(&[&ann[..], &["--dry-run"]].concat()), (7, Some(true)));
    assert_eq!(time(), before);
    for change in
        [&ann[..], &["groups", "ann", "staff"], &["disable", "ann"], &["rm", "ann", "--ensure"]]
    {
        assert_eq!(with(change), (7, Some(true)), "{change:?}");
    }
    let refused = place.run(&["user", "add", "x", "--password-file", "a", "--password-stdin"]);
    refused.fails(2, &["cannot be used with"]);
}

#[test]
fn accounts_are_taken_over_from_samba() {
    let place = Sandbox::new();
    let empty = "31D6CFE0D16AE931B73C59D7E0C089C0";
    let samba = [
        smbpasswd("ann", "U"),
        smbpasswd("bob", "DU"),
        smbpasswd("box$", "W"),
        smbpasswd("nopw", "NU").replace(HASH, &"X".repeat(32)),
        smbpasswd("open", "U").replace(HASH, empty),
    ];
    place.file("smbpasswd", &samba.concat(), 0o600);
    let import = |arguments: &[&str], input: &str| {
        let arguments: Vec<&str> =
            ["user", "import", "--state-dir", "s"].iter().chain(arguments).copied().collect();
        place.run_with_input(&arguments, input)
    };
    let first = import(&["smbpasswd"], "");
    first.succeeds();
    for line in [
        "skipped box$: machine and trust accounts are not imported",
        "skipped nopw: the account has no NT hash",
        "skipped open: the password is empty",
        "2 accounts added, 0 replaced",
    ] {
        assert!(first.err.contains(line), "{line} not in {}", first.err);
    }
    let list = place.run(&["user", "list", "--state-dir", "s"]);
    assert_eq!(list.succeeds(), "ann\tenabled\nbob\tdisabled\n");

    let again = import(&["-"], &smbpasswd("ann", "DU"));
    assert!(again.err.contains("skipped ann: the account exists already; --replace"), "{again:?}");
    assert!(
        import(&["-", "--replace"], &smbpasswd("ann", "DU"))
            .err
            .contains("0 accounts added, 1 replaced")
    );
    let list = place.run(&["user", "list", "--state-dir", "s"]);
    assert_eq!(list.succeeds(), "ann\tdisabled\nbob\tdisabled\n");
    import(&["-"], "not an account\n").fails(3, &["-:1:", "pdbedit -L -v -w"]);
    import(&["nowhere"], "").fails(6, &["cannot read nowhere"]);
}

const SAMBA: &str = "S-1-5-21-3004859244-1309964605-2891807487";

/// An account in the output of `pdbedit -L -v -w`.
fn pdbedit(name: &str, rid: u32) -> String {
    format!(
        "---------------\nUnix username:        {name}\nAccount Flags:        [U          ]\n\
         User SID:             {SAMBA}-{rid}\nNT hash             : {HASH}\n"
    )
}

/// Accounts that smbd refuses are not let in by moving: they keep their rules or are disabled, and the
/// report says why.
#[test]
fn accounts_that_samba_refuses_stay_refused() {
    let place = Sandbox::new();
    let import = |dir: &str, more: &[&str], input: &str| {
        let mut words = vec!["user", "--state-dir", dir, "import", "-"];
        words.extend(more);
        place.run_with_input(&words, input)
    };
    let with = |name: &str, rid: u32, line: &str| pdbedit(name, rid) + line + "\n";
    let input = [
        with("ann", 3_000, "Kickoff time:         Wed, 06 Feb 2036 15:06:39 UTC"),
        with("bob", 3_001, "Kickoff time:         Thu, 01 Jan 2026 00:00:00 UTC"),
        with("carl", 3_002, "Password last set:    0"),
        with("dora", 3_003, "Workstations:         pc7"),
        with("emil", 3_004, &format!("Logon hours         : {}", "0".repeat(42))),
        pdbedit("fred", 3_005).replace("[U ", "[UL"),
        pdbedit("gina", 3_006).replace("[U ", "[DU"),
        with("hans", 3_007, "Password must change: Sun, 01 Jan 2034 00:00:00 UTC"),
        with("ida", 3_008, "Password must change: Sat, 01 Jan 2000 00:00:00 UTC"),
    ]
    .concat();
    let told = import("s", &[], &input);
    told.succeeds();
    for line in [
        "bob keeps its rules: it may log on until 2026-01-01 ",
        "carl keeps its rules: its password must be changed before the next logon",
        "dora keeps its rules: it may log on from pc7",
        "emil keeps its rules: it may log on never",
        "fred is disabled: Samba has locked it",
        "gina is disabled: Samba has disabled it",
        "ida keeps its rules: its password must be changed before the next logon",
        "frevo user enable fred",
        "the passwords of 1 account would have ended in Samba",
        "9 accounts added, 0 replaced; 2 of them disabled",
    ] {
        assert!(told.err.contains(line), "{line} not in {}", told.err);
    }
    let in_state = |dir: &str, state: &str| {
        let list = place.run(&["user", "list", "--state-dir", dir]);
        let end = format!("\t{state}");
        let lines = list.succeeds().lines().filter(|line| line.ends_with(&end));
        lines.map(|line| line.split('\t').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(in_state("s", "enabled"), ["ann", "carl", "dora", "emil", "hans", "ida"]);
    assert_eq!(in_state("s", "expired"), ["bob"]);
    assert_eq!(in_state("s", "disabled"), ["fred", "gina"]);
    // bob exists already and has no end, but has one in Samba, so it gets that.
    place.run_with_input(&["user", "--state-dir", "t", "add", "bob", "--password-stdin"], "x\n");
    import("t", &["--replace"], &input).succeeds();
    assert_eq!(in_state("t", "expired"), ["bob"]);
    // In smbpasswd files Samba refuses accounts whose password must be changed (LCT-00000000) and
    // locked ones (L).
    let plain =
        smbpasswd("ann", "U").replace("LCT-65A1B2C3", "LCT-00000000") + &smbpasswd("bob", "UL");
    import("u", &[], &plain).succeeds();
    assert_eq!(in_state("u", "disabled"), ["bob"]);
    let ann = place.run(&["user", "--state-dir", "u", "show", "ann", "--json"]);
    assert!(ann.succeeds().contains("\"must_change\":true"), "{ann:?}");
}

/// Rules for accounts are set once, shown, and taken back.
#[test]
fn rules_for_accounts_are_set_and_shown() {
    let place = Sandbox::new();
    let run = |arguments: &[&str]| {
        place.run_with_input(&[&["user", "--state-dir", "s"], arguments].concat(), "secret\n")
    };
    run(&["add", "ann", "--password-stdin"]).succeeds();
    let rules = [
        &["set", "ann", "--expires", "2030-12-31T18:00:00Z", "--must-change"][..],
        &["--hours", "mon-fri 07:00-19:00; sat 09:00-12:00", "--workstations", "desk, lap"],
        &["--exit-code"],
    ]
    .concat();
    assert_eq!(run(&rules).code, 7);
    assert_eq!(run(&rules).code, 0);
    let shown = run(&["show", "ann", "--json"]);
    let ann: serde_json::Value = serde_json::from_str(shown.succeeds()).unwrap();
    assert_eq!(ann["expires"], "2030-12-31T18:00:00Z");
    assert_eq!(ann["hours"], "mon-fri 07:00-19:00; sat 09:00-12:00");
    assert_eq!(ann["workstations"], serde_json::json!(["desk", "lap"]));
    assert_eq!((&ann["must_change"], &ann["state"]), (&true.into(), &"enabled".into()));
    let shown = run(&["show", "ann"]);
    for line in [
        "password          must be changed before the next logon\n",
        "logon hours       mon-fri 07:00-19:00; sat 09:00-12:00\n",
        "workstations      desk, lap\n",
    ] {
        assert!(shown.succeeds().contains(line), "{line} not in {}", shown.out);
    }
    // A new password is the change that was demanded; the other rules stay.
    run(&["passwd", "ann", "--password-stdin"]).succeeds();
    let shown = run(&["show", "ann"]);
    assert!(shown.succeeds().contains("password          may be used\n"), "{}", shown.out);
    assert!(shown.out.contains("workstations      desk, lap\n"), "{}", shown.out);
    run(&["set", "ann", "--expires", "never", "--hours", "always", "--workstations", "any"])
        .succeeds();
    let shown = run(&["show", "ann"]);
    for line in ["expires           never", "logon hours       always", "workstations      any"] {
        assert!(shown.succeeds().contains(line), "{line} not in {}", shown.out);
    }
    run(&["set", "ann"]).fails(2, &["--expires"]);
    run(&["set", "ann", "--expires", "soon"]).fails(2, &["2026-12-31"]);
    run(&["set", "ann", "--hours", "mon 7-19"]).fails(2, &["07:00-19:00"]);
    run(&["set", "ann", "--workstations", "a b"]).fails(2, &["computer"]);
    run(&["set", "bob", "--must-change"]).fails(6, &["no user bob"]);
}

#[test]
fn accounts_of_samba_keep_their_sids() {
    let place = Sandbox::new();
    let import = |dir: &str, input: &str| {
        place.run_with_input(&["user", "--state-dir", dir, "import", "-"], input)
    };
    let both = pdbedit("ann", 3_001) + &pdbedit("bob", 3_000);
    let told = import("s", &both);
    told.succeeds();
    assert!(told.err.contains(&format!("SID of the Samba server is taken over: {SAMBA}")));
    let users = fs::read_to_string(place.path("s/users")).unwrap();
    let header = format!("#!frevo accounts 2 sid={SAMBA} samba");
    assert_eq!(users.lines().next(), Some(&*header), "{users}");
    assert!(users.contains("RID-3001:") && users.contains("RID-3000:"), "{users}");
    // Another account has the RID 3000 already, so carl is skipped and a new account gets another
    // RID.
    let told = import("s", &pdbedit("carl", 3_000));
    assert!(
        told.err.contains("skipped carl: another account has its relative identifier (RID 3000)")
    );
    place.run_with_input(&["user", "--state-dir", "s", "add", "dora", "--password-stdin"], "x\n");
    let users = fs::read_to_string(place.path("s/users")).unwrap();
    assert!(users.lines().any(|line| line.starts_with("dora:") && line.contains("RID-3002:")));
    // dora exists before this import, so existing accounts keep their SIDs; the report names
    // Samba's SID.
    place.run_with_input(&["user", "--state-dir", "t", "add", "dora", "--password-stdin"], "x\n");
    let told = import("t", &both);
    assert!(told.err.contains(&format!("has sid = \"{SAMBA}\"")), "{}", told.err);
    let users = fs::read_to_string(place.path("t/users")).unwrap();
    assert!(!users.contains(SAMBA) && users.contains("RID-3001:"), "{users}");
    let shown = place.run(&["user", "--state-dir", "s", "show", "ann"]);
    let sid = format!("SID               {SAMBA}-3001\n");
    assert!(shown.succeeds().contains(&sid), "{shown:?}");
    assert!(shown.out.contains("Kerberos keys     none until the password is changed\n"));
    let shown = place.run(&["user", "--state-dir", "s", "show", "dora", "--json"]);
    let dora: serde_json::Value = serde_json::from_str(shown.succeeds()).unwrap();
    assert_eq!(dora["sid"], format!("{SAMBA}-3002"));
    assert!(dora["kerberos_salt"].as_str().unwrap().ends_with("dora"), "{dora}");
    let all = place.run(&["user", "--state-dir", "s", "list", "--json"]);
    let all: serde_json::Value = serde_json::from_str(all.succeeds()).unwrap();
    let names: Vec<_> = all.as_array().unwrap().iter().map(|of| of["name"].as_str()).collect();
    assert_eq!(names, [Some("ann"), Some("bob"), Some("dora")]);
    assert!(!all.to_string().contains(HASH), "no secret is printed");
    // An smbpasswd file has no SIDs, which the report says.
    assert!(import("u", &smbpasswd("ann", "U")).err.contains("the accounts get new SIDs"));
}

#[test]
fn variables_count_without_a_configuration() {
    let place = Sandbox::new();
    place.folder("photos");
    let serve = |name: &str, value: &str| {
        let mut command = place.command(&["serve", "photos", "--user", "ann"]);
        said(command.env("FREVO_PASSWORD", "secret").env(name, value).output().unwrap())
    };
    let fault = "FREVO_SERVER_CORES: `cores` must be a whole number";
    serve("FREVO_SERVER_CORES", "two").fails(3, &[fault]);
    // An address that this machine does not have, of those for documentation (RFC 5737).
    let said = serve("FREVO_SERVER_LISTEN", "[\"203.0.113.1\"]");
    assert!(said.code != 0 && said.err.contains("203.0.113.1"), "{said:?}");
}

#[test]
fn who_cannot_act_as_others_is_told() {
    use std::os::unix::process::CommandExt;
    let place = Sandbox::new();
    let path = place.folder("photos");
    let share =
        |keys: &str| format!("[[share]]\nname = \"a\"\npath = \"{}\"\n{keys}\n", path.display());
    place.file("user.toml", &share("run_as = \"user\""), 0o644);
    place.file("none.toml", &share("force_user = \"no such user here\""), 0o644);
    if rustix::process::geteuid().is_root() {
        let absent = ["force_user: this host has no user no such user here"];
        let check = |file: &str| {
            let mut command = place.command(&["check", "-c", file]);
            said(command.env("FREVO_SERVER_STATE_DIR", place.path("s")).output().unwrap())
        };
        check("none.toml").fails(3, &absent);
        assert!(check("user.toml").succeeds().contains("ok (1 share,"));
    }
    // The program and its files are put into /tmp, where other users can reach them.
    let copy = PathBuf::from("/tmp").join(format!("frevo-test-{}", std::process::id()));
    fs::create_dir(&copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o1777)).unwrap();
    // `cp` makes the copy, because if this process had it open for writing, a process started at
    // the same time could inherit the descriptor, and the copy could not be executed (ETXTBSY).
    let mut cp = std::process::Command::new("cp");
    cp.arg(env!("CARGO_BIN_EXE_frevo")).arg(copy.join("frevo"));
    assert!(cp.status().unwrap().success());
    fs::write(
        copy.join("user.toml"),
        share("run_as = \"user\"")
            .replace(&path.display().to_string(), &copy.display().to_string()),
    )
    .unwrap();
    let mut command = std::process::Command::new(copy.join("frevo"));
    command.args(["serve", "-c", "user.toml", "--listen", "127.0.0.1:0", "--state-dir", "none"]);
    command.current_dir(&copy);
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    let said = command.output().unwrap();
    fs::remove_dir_all(&copy).unwrap();
    let err = String::from_utf8(said.stderr).unwrap();
    assert_eq!(said.status.code(), Some(3), "{err}");
    assert!(err.contains("share a: run_as = \"user\" is not possible here: only root"), "{err}");
    assert!(err.contains("start frevo as root"), "{err}");
}

#[test]
fn an_smb_conf_becomes_a_frevo_toml() {
    let place = Sandbox::new();
    let photos = place.folder("photos");
    let conf = format!(
        "[global]\nworkgroup = HOME\n[photos]\npath = {}\nread only = no\n[staff]\npath = /srv\n\
         valid users = %U\n",
        photos.display()
    );
    place.file("smb.conf", &conf, 0o644);
    let import = place.run(&["import", "smb.conf", "-o", "frevo.toml"]);
    assert_eq!(import.succeeds(), "");
    assert!(import.err.contains("[staff] line 8: valid users = %U: "), "{}", import.err);
    let mut check = place.command(&["check", "-c", "frevo.toml"]);
    let check = said(check.env("FREVO_SERVER_STATE_DIR", place.path("s")).output().unwrap());
    // Samba's default is to act as the logged-on user, which only root can do, so without root the
    // check fails.
    if rustix::process::geteuid().is_root() {
        assert!(check.succeeds().contains("ok (1 share, 0 users)"), "{check:?}");
    } else {
        check.fails(3, &["run_as = \"user\" is not possible here: only root"]);
    }
    assert!(import.err.contains("the SID of the Samba server is not known"), "{}", import.err);
    let with_sid = place.run(&["import", "smb.conf", "--sid", SAMBA]);
    assert!(with_sid.succeeds().contains(&format!("[server]\nsid = \"{SAMBA}\"\n")));
    place.run(&["import", "smb.conf", "--sid", "S-1-1-0"]).fails(2, &["S-1-5-21-A-B-C"]);
    let printed = place.run(&["import", "smb.conf"]);
    assert_eq!(printed.succeeds(), fs::read_to_string(place.path("frevo.toml")).unwrap());

    place.run(&["import", "smb.conf", "-o", "frevo.toml"]).fails(1, &["frevo.toml exists already"]);
    place.run(&["import", "nowhere.conf"]).fails(6, &["cannot read nowhere.conf"]);
    place.file("bad.conf", "[global]\nnonsense\n", 0o644);
    place.run(&["import", "bad.conf"]).fails(3, &["bad.conf:2:"]);
}
