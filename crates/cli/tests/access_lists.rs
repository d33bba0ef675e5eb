//! Access lists: the accounts that they name stay those of this server, and servers with few
//! rights obey them.

mod harness;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use harness::{Sandbox, Serving, text};

const SAMBA: &str = "S-1-5-21-3004859244-1309964605-2891807487";

/// Writes a configuration with these lines in `[server]` and behind it.
fn configure(place: &Sandbox, server: &str, rest: &str) {
    let text = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\nstate_dir = {:?}\n{server}\n{rest}\n",
        place.folder("state")
    );
    place.file("frevo.toml", &text, 0o644);
}

/// Starts the server, stops it, and returns what it said.
fn run(place: &Sandbox) -> String {
    let server = place.serve(&["--config", "frevo.toml"]);
    let said = server.stop();
    assert_eq!(said.code, 0, "{said:?}");
    said.err
}

fn add(place: &Sandbox, name: &str) {
    let arguments = ["user", "--state-dir", "state", "add", name, "--password-stdin"];
    place.run_with_input(&arguments, "secret\n").succeeds();
}

fn users(place: &Sandbox) -> String {
    fs::read_to_string(place.path("state/users")).unwrap()
}

/// The SID in the account file.
fn kept(place: &Sandbox) -> String {
    let users = users(place);
    let sid = users.lines().next().unwrap().split("sid=").nth(1).expect("no SID is kept");
    sid.split(' ').next().unwrap().to_owned()
}

#[test]
fn the_sid_outlives_the_servers_identity() {
    let place = Sandbox::new();
    configure(&place, "", "");
    add(&place, "ann");
    run(&place);
    let sid = kept(&place);
    assert!(sid.starts_with("S-1-5-21-"), "{sid}");
    fs::remove_file(place.path("state/server-guid")).unwrap();
    assert!(!run(&place).contains("identity was lost"));
    assert_eq!(kept(&place), sid);

    // The account file is that of an earlier version, and the file with the identity from which its
    // SIDs were derived is lost.
    let old = users(&place).lines().skip(1).collect::<Vec<_>>().join("\n");
    place.file("state/users", &old, 0o600);
    fs::remove_file(place.path("state/server-guid")).unwrap();
    let said = run(&place);
    assert!(said.contains("identity was lost") && said.contains("docs/backup.md"), "{said}");
    assert_ne!(kept(&place), sid);

    // The new identity is stored now, so if the account loses its SID again, it gets the same one
    // without a message.
    let sid = kept(&place);
    place.file("state/users", &old, 0o600);
    assert!(!run(&place).contains("identity was lost"));
    assert_eq!(kept(&place), sid);

    // A SID in the configuration is used instead of the derived one, and is stored.
    configure(&place, &format!("sid = \"{SAMBA}\""), "");
    run(&place);
    configure(&place, "", "");
    run(&place);
    assert_eq!(
        users(&place).lines().next(),
        Some(&*format!("#!frevo accounts 2 sid={SAMBA} samba"))
    );
}

#[test]
fn users_of_the_configuration_keep_their_sids() {
    let place = Sandbox::new();
    place.file("password", "secret\n", 0o600);
    let user = |name: &str| {
        format!("[[user]]\nname = \"{name}\"\npassword_file = {:?}\n", place.path("password"))
    };
    let rid = |name: &str| {
        let users = users(&place);
        let line = users.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap();
        line.split("RID-").nth(1).unwrap().split(':').next().unwrap().to_owned()
    };
    configure(&place, "", &(user("ann") + &user("bob")));
    run(&place);
    assert_eq!((rid("ann"), rid("bob")), ("1000".into(), "1001".into()));
    configure(&place, "", &user("bob"));
    add(&place, "carl");
    run(&place);
    assert_eq!((rid("bob"), rid("carl")), ("1001".into(), "1002".into()));
    assert!(!users(&place).contains("secret"), "the password is not kept");
    let list = place.run(&["user", "--state-dir", "state", "list"]);
    assert!(list.succeeds().contains("bob\tno password"));
}

/// A server of `share` by this command, for ann with the password "secret".
fn serve(mut command: Command) -> Serving {
    command.env("FREVO_PASSWORD", "secret");
    Serving::start(command)
}

/// Runs a command of the client as ann.
fn client(place: &Sandbox, server: &Serving, arguments: &[&str]) -> harness::Said {
    let mut words: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    for word in &mut words {
        *word = word.replace("URL", &format!("smb://ann@{}/share", server.address));
    }
    let words: Vec<&str> = words.iter().map(|word| &**word).collect();
    let mut command = place.command(&words);
    harness::said(command.env("FREVO_PASSWORD", "secret").output().unwrap())
}

/// A list that denies reading holds for servers that may not write such lists: one without
/// capabilities, one in a user namespace as containers have it, with and without them, and one of
/// another user.
#[test]
fn servers_without_rights_obey_the_lists_of_others() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: only root writes security.NTACL");
        return;
    }
    let place = Sandbox::new();
    let share = place.folder("share");
    for name in ["denied", "open"] {
        let path = place.file(&format!("share/{name}"), "content", 0o644);
        assert!(path.exists());
    }
    let folder = text(&share).to_owned();
    let arguments = ["serve", &folder, "--listen", "127.0.0.1:0", "--user", "ann"];
    let server = serve(place.command(&arguments));
    let deny = ["acl", "URL/denied", "--set", "deny:Everyone:R", "--set", "allow:Everyone:full"];
    client(&place, &server, &deny).succeeds();
    client(&place, &server, &["cat", "URL/denied"]).fails(1, &["denied"]);
    server.stop();
    let list = rustix::fs::getxattr(share.join("denied"), c"security.NTACL", &mut [0; 4096]);
    assert!(list.is_ok_and(|len| len > 0), "the list is not where smbd has it");

    fs::set_permissions(&share, fs::Permissions::from_mode(0o755)).unwrap();
    let wrapped = |words: &[&str]| {
        let plain = place.unprivileged(&arguments);
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(plain.get_program()).args(arguments).env_clear();
        command.env("USER", "ann").env("PATH", "/usr/bin:/bin").current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let none = ["setpriv", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"];
    let container = ["unshare", "--user", "--map-root-user", "--mount"];
    let bare = [&container[..], &none[..]].concat();
    let commands = [
        ("no capabilities", wrapped(&none)),
        ("container", wrapped(&container)),
        ("container without capabilities", wrapped(&bare)),
        ("rootless", place.unprivileged(&arguments)),
    ];
    for (what, command) in commands {
        let server = serve(command);
        let said = client(&place, &server, &["cat", "URL/open"]);
        assert_eq!(said.out, "content", "{what}: {said:?}");
        let said = client(&place, &server, &["cat", "URL/denied"]);
        assert!(said.code != 0 && said.out.is_empty(), "{what}: {said:?}");
        // The service must not replace the other server's access list. It must not store a second
        // list either, because that would hide the first one.
        let said = client(&place, &server, &["acl", "URL/denied", "--set", "allow:Everyone:full"]);
        assert!(said.code != 0, "{what}: {said:?}");
        let second = rustix::fs::getxattr(share.join("denied"), c"user.NTACL", &mut [0; 8]);
        assert_eq!(second.unwrap_err(), rustix::io::Errno::NODATA, "{what}");
        let said = server.stop();
        assert!(said.err.contains("access lists are kept in user.NTACL"), "{what}: {}", said.err);
    }
}
