//! Users change their own passwords over SMB.

mod harness;

use std::fs;

use harness::{Said, Sandbox, Serving};

/// Starts the server, whose log has its address.
fn serve(place: &Sandbox, more: &[&str]) -> Serving {
    let mut command = place.command(&[&["serve", "--config", "frevo.toml"], more].concat());
    command.stderr(fs::File::create(place.path("said")).unwrap());
    let mut server = Serving::start(command);
    let said = fs::read_to_string(place.path("said")).unwrap();
    let address = said.split("listening address=").nth(1).unwrap();
    server.address = address.split(' ').next().unwrap().to_owned();
    server
}

/// A server with the account ann and a user of the configuration.
fn start(place: &Sandbox) -> Serving {
    place.folder("share");
    place.file("password", "secret\n", 0o600);
    let config = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\nname = \"box\"\nstate_dir = {:?}\n\
         [audit]\nfile = {:?}\n[[share]]\nname = \"share\"\npath = {:?}\n\
         [[user]]\nname = \"given\"\npassword_file = {:?}\n",
        place.folder("state"),
        place.folder("log").join("audit"),
        place.path("share"),
        place.path("password"),
    );
    place.file("frevo.toml", &config, 0o644);
    let add = ["user", "--config", "frevo.toml", "add", "ann", "--password-stdin"];
    place.run_with_input(&add, "secret\n").succeeds();
    serve(place, &[])
}

fn passwd(place: &Sandbox, server: &Serving, user: &str, lines: &str) -> Said {
    let url = format!("smb://{user}@{}", server.address);
    place.run_with_input(&["passwd", &url, "--password-stdin"], lines)
}

fn lists(place: &Sandbox, server: &Serving, user: &str, password: &str) -> bool {
    let url = format!("smb://{user}@{}/share", server.address);
    place.run_with_input(&["ls", &url, "--password-stdin"], password).code == 0
}

#[test]
fn a_new_password_is_in_force_at_once_and_stays() {
    let place = Sandbox::new();
    let server = start(&place);
    let users = || fs::read_to_string(place.path("state/users")).unwrap();
    let before = users();
    let said = passwd(&place, &server, "ann", "secret\nnéu 🦀\n");
    said.succeeds();
    assert!(said.err.contains("the password of ann on 127.0.0.1 is changed"), "{said:?}");
    assert!(lists(&place, &server, "ann", "néu 🦀\n"));
    assert!(!lists(&place, &server, "ann", "secret\n"));
    let after = users();
    let line = |text: &str| text.lines().find(|line| line.starts_with("ann:")).unwrap().to_owned();
    let keys = |text: &str| line(text).split("KRB5-").nth(1).unwrap().to_owned();
    assert_ne!(keys(&before), keys(&after), "the Kerberos keys are the old ones");
    assert!(keys(&after).starts_with("4096,424F58616E6E,"), "the salt is not BOXann: {after}");

    // The attempts change nothing: a wrong old password, an empty new one, and a user who may not
    // change the password.
    passwd(&place, &server, "ann", "wrong\nother\n").fails(4, &["password"]);
    passwd(&place, &server, "ann", "néu 🦀\n\n").fails(4, &["empty"]);
    passwd(&place, &server, "given", "secret\nother\n").fails(1, &["permission denied"]);
    assert_eq!(users(), after);

    // The new password is in the account file, so the server knows it after a restart, too.
    server.stop();
    let said = fs::read_to_string(place.path("said")).unwrap();
    assert!(said.contains("the user has changed the password"), "{said}");
    assert!(!said.contains("néu"), "the log has the password");
    let audit = fs::read_to_string(place.path("log/audit")).unwrap();
    let events: Vec<_> = audit.lines().filter(|l| l.contains("\"event\":\"password\"")).collect();
    assert_eq!(events.len(), 2, "{audit}");
    assert!(
        events[0].contains("\"user\":\"ann\"") && events[1].contains("ACCESS_DENIED"),
        "{audit}"
    );
    let server = serve(&place, &[]);
    assert!(lists(&place, &server, "ann", "néu 🦀\n"));
    assert!(!lists(&place, &server, "ann", "secret\n"));
}

/// The confined server replaces an account file that has a folder of its own, and says beforehand
/// that it cannot replace another one.
#[test]
fn an_account_file_outside_of_the_state_directory_is_changed() {
    let place = Sandbox::new();
    place.folder("share");
    for (folder, is_own) in [("accounts", true), (".", false)] {
        let config = format!(
            "[server]\nlisten = [\"127.0.0.1:0\"]\nname = \"box\"\nstate_dir = {:?}\n\
             users_file = {:?}\n[[share]]\nname = \"share\"\npath = {:?}\n",
            place.folder("state"),
            place.folder(folder).join("users"),
            place.path("share"),
        );
        place.file("frevo.toml", &config, 0o644);
        let add = ["user", "--config", "frevo.toml", "add", "ann", "--password-stdin"];
        place.run_with_input(&add, "secret\n").succeeds();
        let check = place.run(&["check", "--config", "frevo.toml"]);
        let warns = format!("{}{}", check.out, check.err).contains("cannot change their passwords");
        assert_eq!(warns, !is_own, "{check:?}");
        let server = serve(&place, &[]);
        let said = passwd(&place, &server, "ann", "secret\nother\n");
        assert_eq!(said.code == 0, is_own, "{said:?}");
        assert_eq!(lists(&place, &server, "ann", "other\n"), is_own);
        server.stop();
    }
}

/// The new password is encrypted by the hash of the old one alone.
#[test]
fn nothing_is_sent_over_a_connection_that_is_not_encrypted() {
    let place = Sandbox::new();
    start(&place).stop();
    let server = serve(&place, &["--encryption", "off"]);
    let said = passwd(&place, &server, "ann", "secret\nother\n");
    assert!(said.code != 0 && said.err.contains("not encrypted"), "{said:?}");
    server.stop();
}

/// Accounts with which the server would not start are not made, for the same reason.
#[test]
fn accounts_that_others_could_change_are_not_made() {
    use std::os::unix::fs::PermissionsExt;
    let place = Sandbox::new();
    let state = place.folder("state");
    place.folder("share");
    let config = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\nstate_dir = {state:?}\n[[share]]\nname = \"share\"\n\
         path = {:?}\n",
        place.path("share"),
    );
    place.file("frevo.toml", &config, 0o644);
    fs::set_permissions(&state, fs::Permissions::from_mode(0o1777)).unwrap();
    let mut told = Vec::new();
    let adds = [["--config", "frevo.toml"], ["--state-dir", state.to_str().unwrap()]];
    for option in adds {
        let add = [&["user"][..], &option, &["add", "ann", "--password-stdin"]].concat();
        told.push(place.run_with_input(&add, "secret\n"));
        assert!(!state.join("users").exists(), "{told:?}");
    }
    let refused = place.run(&["serve", "--config", "frevo.toml"]);
    refused.fails(3, &["chmod", "state"]);
    assert!(told.iter().all(|told| (told.code, &told.err) == (3, &refused.err)), "{told:?}");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    let add = ["user", "--config", "frevo.toml", "add", "ann", "--password-stdin"];
    place.run_with_input(&add, "secret\n").succeeds();
}
