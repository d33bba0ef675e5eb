//! `[kerberos]`: what `check` says of a keytab, and a server with one.
#![allow(unreachable_pub, dead_code, reason = "tests")]

mod harness;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::{Sandbox, Serving, said};

/// Keytabs of MIT's tools: the first has a key of `cifs/files.frevo.test`, the second has none.
const FIRST: &[u8] = include_bytes!("../../auth/src/kerberos/fixtures/types.keytab");
const SECOND: &[u8] = include_bytes!("../../auth/src/kerberos/fixtures/holes.keytab");

/// A configuration with these keys in `[server]` and `[kerberos]`.
fn config(place: &Sandbox, server: &str, kerberos: &str) {
    let (state, photos) = (place.folder("state"), place.folder("photos"));
    let text = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\nstate_dir = {state:?}\n{server}\n\n\
         [kerberos]\nkeytab = {:?}\n{kerberos}\n\n[[share]]\nname = \"photos\"\npath = {photos:?}\n",
        place.path("keytab")
    );
    place.file("frevo.toml", &text, 0o644);
}

fn keytab(place: &Sandbox, bytes: &[u8], mode: u32) {
    let path = place.path("keytab");
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

fn wait_for_log(path: &Path, words: &str) -> String {
    let began = Instant::now();
    loop {
        let log = fs::read_to_string(path).unwrap();
        if log.contains(words) {
            return log;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{words:?} not in {log}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn check_tells_each_fault_of_the_section_and_of_the_keytab() {
    let place = Sandbox::new();
    let check = || place.run(&["check", "--config", "frevo.toml"]);
    config(&place, "", "");
    check().fails(3, &["frevo.toml:7: there is no keytab ", "user guide"]);
    keytab(&place, FIRST, 0o640);
    check().fails(3, &["frevo.toml:7: ", "can be read or changed by other users", "chmod 600"]);
    keytab(&place, &FIRST[..99], 0o600);
    check().fails(3, &["frevo.toml:7: the keytab ", "is damaged"]);
    keytab(&place, FIRST, 0o600);
    check().succeeds();

    config(&place, "ntlm = 1", "realms = [\"a@b\"]\nclock_skew = 0");
    check().fails(3, &["frevo.toml:4: `ntlm`", "frevo.toml:8: ", "frevo.toml:9: clock_skew"]);
    config(&place, "", "encryption_types = [\"aes256-cts-hmac-sha1-96\", \"rc4-hmac\"]");
    let said = check();
    said.succeeds();
    assert!(said.err.contains("warning: encryption_types allows rc4-hmac"), "{said:?}");

    // A keytab inside the shared folder could be read by clients.
    let text = fs::read_to_string(place.path("frevo.toml")).unwrap();
    fs::rename(place.path("keytab"), place.path("photos/keytab")).unwrap();
    let inside = text.replace("/keytab\"", "/photos/keytab\"");
    place.file("frevo.toml", &inside, 0o644);
    check().fails(3, &["the keytab ", "is inside the shared folder"]);
}

#[test]
fn resolved_shows_the_section_with_its_defaults() {
    let place = Sandbox::new();
    config(&place, "ntlm = false", "realms = [\"FREVO.TEST\"]");
    keytab(&place, FIRST, 0o600);
    let said = place.run(&["check", "--config", "frevo.toml", "--resolved"]);
    let resolved = said.succeeds();
    for line in [
        "ntlm = false\n",
        "[kerberos]\nkeytab = \"/",
        "realms = [\"FREVO.TEST\"]\n",
        "# clock_skew: 300\n",
        "# pac: \"required\"\n",
    ] {
        assert!(resolved.contains(line), "{line:?} not in {resolved}");
    }
}

#[test]
fn a_reload_reads_the_keytab_again() {
    let place = Sandbox::new();
    keytab(&place, FIRST, 0o600);
    config(&place, "", "realms = [\"FREVO.TEST\"]");
    let log = place.path("log");
    let mut command = place.command(&["serve", "-c", "frevo.toml"]);
    command.stderr(fs::File::create(&log).unwrap());
    let server = Serving::start(command);
    wait_for_log(&log, "Kerberos: tickets for cifs/files.frevo.test@FREVO.TEST, ");
    keytab(&place, SECOND, 0o600);
    server.signal("-HUP");
    let both = wait_for_log(&log, "configuration reloaded");
    let lines: Vec<&str> = both.lines().filter(|line| line.contains("Kerberos: tickets")).collect();
    let [_, second] = &lines[..] else { panic!("{both}") };
    assert!(second.contains("smbuser2@FREVO.TEST") && !second.contains("cifs/files"), "{second}");
    // The keytab is damaged, so the reload fails and the old keys stay.
    keytab(&place, &SECOND[..50], 0o600);
    server.signal("-HUP");
    let failed = wait_for_log(&log, "reload failed, the old configuration stays in force: ");
    assert!(failed.contains("is damaged"), "{failed}");
    assert_eq!(server.stop().code, 0);
}

#[test]
fn a_client_with_ntlm_is_told_in_the_log_that_it_is_off() {
    let place = Sandbox::new();
    keytab(&place, FIRST, 0o600);
    config(&place, "ntlm = false", "realms = [\"FREVO.TEST\"]");
    place
        .run_with_input(&["user", "add", "ann", "--password-stdin", "--config", "frevo.toml"], "pw")
        .succeeds();
    let log = place.path("log");
    let mut command = place.command(&["serve", "-c", "frevo.toml"]);
    command.stderr(fs::File::create(&log).unwrap());
    let server = Serving::start(command);
    let listening = wait_for_log(&log, " listening");
    let address = listening.split("address=").nth(1).unwrap().split(' ').next().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let refused = runtime.block_on(smb2::connect(address, "ann", "pw")).err();
    assert!(refused.is_some());
    let told = wait_for_log(&log, "the client used NTLM, which is off here (ntlm = false");
    assert_eq!(told.matches("logon refused").count(), 1, "{told}");
    assert_eq!(server.stop().code, 0);
}

/// A join without a terminal names the option for the password. One that fails leaves no folder, which
/// would be taken for a membership.
#[test]
fn a_join_that_fails_leaves_nothing_and_says_what_to_do() {
    let place = Sandbox::new();
    place.folder("tools");
    place.file("tools/net", "#!/bin/sh\necho 'the domain is away' >&2\nexit 255\n", 0o755);
    let path = format!("{}:/usr/bin:/bin", place.path("tools").display());
    let program = env!("CARGO_BIN_EXE_frevo");
    let join = ["domain", "--state-dir", "state", "join", "A.TEST", "--with", "net"];
    let start = |arguments: &[&str], input: Stdio| {
        // A session of its own has no terminal.
        let mut command = Command::new("setsid");
        command.args(["--wait", program]).args(join).args(["--computer-name", "BOX"]);
        command.args(arguments).current_dir(place.path("")).env_clear().env("PATH", &path);
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let without = start(&[], Stdio::null()).wait_with_output().unwrap();
    said(without).fails(2, &["no terminal", "--password-stdin"]);
    assert!(!place.path("state/domain/A.TEST").exists());
    let mut child = start(&["--password-stdin"], Stdio::piped());
    child.stdin.take().unwrap().write_all(b"secret\n").unwrap();
    said(child.wait_with_output().unwrap()).fails(1, &["the domain is away"]);
    assert!(place.path("state/domain").exists() && !place.path("state/domain/A.TEST").exists());
}
