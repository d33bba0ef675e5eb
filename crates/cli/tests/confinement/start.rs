//! The start of a server, which leaves behind the secrets of its environment and the descriptors of
//! whoever started it.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use super::harness::text;
use super::helpers::descendants;
use super::{REFUSED_CALL, client, is_root, serve_by, world};

fn environment(process: u32) -> String {
    let bytes = fs::read(format!("/proc/{process}/environ")).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The password of the environment opens a session, and is in the environment of no process.
#[test]
fn the_password_leaves_the_environment() {
    let place = world();
    let config = place.path("etc/frevo.toml");
    let mut command = place.command(&["serve", "-c", text(&config), "--user", "ann"]);
    command.env("FREVO_PASSWORD", "correct horse").env("FREVO_UNRELATED", "stays");
    let server = serve_by(&place, command).server;
    let processes = [vec![server.pid()], descendants(server.pid())].concat();
    assert!(processes.len() > 2, "{processes:?}");
    for process in processes {
        let shown = environment(process);
        assert!(!shown.contains("horse"), "{process}: {shown:?}");
        assert!(shown.contains("FREVO_UNRELATED=stays"), "{process}: {shown:?}");
    }
    let address = server.address.clone();
    client(async {
        let mut ann = smb2::connect(&address, "ann", "correct horse").await.unwrap();
        ann.connect_share("in").await.unwrap();
    });
    assert_eq!(server.stop().code, 0);
}

/// A descriptor that the program which started the server left open is closed. Nobody gets it: not
/// code in the server, and no other process of the product.
#[test]
fn descriptors_of_others_are_closed() {
    let place = world();
    let secret = place.file("out/secret", "of another program", 0o600);
    let config = place.path("etc/frevo.toml");
    // A shell leaves descriptors 7 and 8 open in the program that it executes; only 8 is needed, to
    // read the password.
    let password = place.file("etc/password", "pw\n", 0o600);
    let script = format!(
        "exec 7<{} 8<{}; exec \"$0\" \"$@\" --password-file /dev/fd/8",
        text(&secret),
        text(&password)
    );
    let mut command = Command::new("/bin/sh");
    command.arg0("sh").args(["-c", &script, env!("CARGO_BIN_EXE_frevo")]);
    command.args(["serve", "-c", text(&config), "--user", "ann"]).current_dir(place.path("."));
    command.stdout(std::process::Stdio::piped());
    let server = serve_by(&place, command).server;
    for process in [vec![server.pid()], descendants(server.pid())].concat() {
        let open = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
        let open: Vec<_> = open.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
        let is_theirs = |path: &&Path| [&*secret, &*password].contains(path);
        let theirs: Vec<_> = open.iter().map(|path| &**path).filter(is_theirs).collect();
        assert!(theirs.is_empty(), "{process}: {theirs:?}");
    }
    // The logon succeeds, because the password file was read before the inherited descriptors were
    // closed.
    let address = server.address.clone();
    client(async { smb2::connect(&address, "ann", "pw").await.unwrap() });
    assert_eq!(server.stop().code, 0);
}

/// A server at all addresses tells the one that clients reach. To find it takes a socket, which a confined
/// server may not make.
#[test]
fn a_server_at_all_addresses_makes_no_socket_after_its_start() {
    if !is_root() {
        eprintln!("skipped: a network of its own needs root");
        return;
    }
    let place = world();
    let config = place.path("etc/frevo.toml");
    let text_of = fs::read_to_string(&config).unwrap();
    place.file("etc/frevo.toml", &text_of.replace("127.0.0.1:0", "0.0.0.0:0"), 0o644);
    let mut command = Command::new("unshare");
    command.args(["--net", "--", env!("CARGO_BIN_EXE_frevo"), "serve", "-c", text(&config)]);
    command.args(["--user", "ann"]).env("FREVO_PASSWORD", "pw").current_dir(place.path("."));
    command.stdout(std::process::Stdio::piped());
    let confined = serve_by(&place, command);
    confined.server.signal("-HUP");
    confined.logs("configuration reloaded");
    let log = confined.log();
    assert!(!log.contains(REFUSED_CALL), "{log}");
    assert_eq!(confined.server.stop().code, 0);
}
