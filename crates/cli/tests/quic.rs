//! SMB over QUIC from the command line: a certificate, a confined server, files both ways, a certificate
//! that is replaced, and no UDP socket without `[quic]`.

mod harness;

use std::fs;
use std::path::Path;

use harness::{Said, Sandbox, Serving, free_port, said, text};

/// A share, and a server over QUIC at a port.
struct World {
    place: Sandbox,
    port: u16,
}

impl World {
    fn new(more: &str) -> Self {
        let place = Sandbox::new();
        let port = free_port();
        let (state, share) = (place.folder("state"), place.folder("share"));
        place.folder("certificates");
        let config = format!(
            "[server]\nlisten = [\"127.0.0.1:0\"]\nstate_dir = {state:?}\n\
             [[share]]\nname = \"share\"\npath = {share:?}\n{more}"
        );
        let folder = format!("\"{}/", text(&place.path("certificates")));
        let config = config.replace("PORT", &port.to_string()).replace("\"certificates/", &folder);
        place.file("frevo.toml", &config, 0o644);
        place
            .run_with_input(
                &["user", "--state-dir", text(&state), "add", "ann", "--password-stdin"],
                "secret\n",
            )
            .succeeds();
        Self { place, port }
    }

    /// Makes a certificate, and returns its fingerprint.
    fn certify(&self) -> String {
        let folder = self.place.path("certificates");
        let said = self.place.run(&["quic", "-o", text(&folder), "--force", "127.0.0.1"]);
        let line = said.succeeds().lines().find_map(|line| line.strip_prefix("fingerprint  "));
        line.unwrap().to_owned()
    }

    fn serve(&self) -> Serving {
        self.place.serve(&["--config", text(&self.place.path("frevo.toml"))])
    }

    fn frevo(&self, arguments: &[&str], pin: &str) -> Said {
        let mut all = arguments.to_vec();
        all.extend(["--quic-pin", pin]);
        said(self.place.command(&all).env("FREVO_PASSWORD", "secret").output().unwrap())
    }

    fn url(&self, path: &str) -> String {
        format!("smb+quic://ann@127.0.0.1:{}/share/{path}", self.port)
    }
}

const SECTION: &str = "[quic]\nlisten = [\"127.0.0.1:PORT\"]\ncertificate = \"certificates/quic.crt\"\n\
                       key = \"certificates/quic.key\"\n";

/// A certificate with an RSA key of 3,072 bits, and the key.
const RSA: &[u8] = include_bytes!("rsa-3072.pem");

/// Its fingerprint.
const RSA_PIN: &str = "9fb739803db9455ec23485a593b01401be7bab324a9f4f9004411653e054b3dd";

#[test]
fn files_go_both_ways_through_a_confined_server() {
    let world = World::new(SECTION);
    let pin = world.certify();
    let server = world.serve();
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    fs::write(world.place.path("file"), &content).unwrap();
    world.frevo(&["put", "file", &world.url("")], &pin).succeeds();
    assert_eq!(fs::read(world.place.path("share/file")).unwrap(), content);
    assert_eq!(world.frevo(&["ls", &world.url("")], &pin).succeeds().trim(), "file");
    world.frevo(&["get", &world.url("file"), "back"], &pin).succeeds();
    assert_eq!(fs::read(world.place.path("back")).unwrap(), content);
    let other = "00".repeat(32);
    world.frevo(&["ls", &world.url("")], &other).fails(5, &["another certificate", &pin]);
    // Pipes are refused, and with them the list of shares.
    let url = format!("smb+quic://ann@127.0.0.1:{}", world.port);
    assert_ne!(world.frevo(&["shares", &url], &pin).code, 0);
    let said = server.stop();
    assert!(said.err.contains("listening for QUIC"), "{said:?}");
    assert!(!said.err.contains("refused a system call"), "{said:?}");
}

/// A pin protects nothing over TCP, so nobody is to believe that it does.
#[test]
fn a_pin_without_quic_is_an_error() {
    let world = World::new("");
    let url = format!("smb://ann@127.0.0.1:{}/share", world.port);
    let pin = "00".repeat(32);
    world.frevo(&["ls", &url], &pin).fails(2, &["count over QUIC alone", "smb+quic://"]);
    let said = world.frevo(&["ls", &url, "--quic", "required"], &pin);
    assert!(said.code != 0 && !said.err.contains("count over QUIC alone"), "{said:?}");
}

#[test]
fn a_certificate_is_replaced_while_the_server_runs() {
    let world = World::new(SECTION);
    let old = world.certify();
    let config = world.place.path("frevo.toml");
    let mut command = world.place.command(&["serve", "--config", text(&config)]);
    command.stderr(fs::File::create(world.place.path("log")).unwrap());
    let server = Serving::start(command);
    world.frevo(&["ls", &world.url("")], &old).succeeds();
    let new = world.certify();
    // A reload reads it at once.
    server.signal("-HUP");
    while world.frevo(&["ls", &world.url("")], &new).code != 0 {}
    assert_ne!(world.frevo(&["ls", &world.url("")], &old).code, 0);
    let log = || fs::read_to_string(world.place.path("log")).unwrap();
    let wait_for = |line: &str| {
        while !log().contains(line) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    };
    // A long key of RSA is used, and the log tells what it costs.
    assert!(!log().contains("RSA"), "{}", log());
    for file in ["certificates/quic.crt", "certificates/quic.key"] {
        fs::write(world.place.path(file), RSA).unwrap();
    }
    server.signal("-HUP");
    wait_for("QUIC: the certificate has a long RSA key");
    world.frevo(&["ls", &world.url("")], RSA_PIN).succeeds();
    let new = RSA_PIN;
    // A damaged one leaves the one before in force, and the reload says so.
    fs::write(world.place.path("certificates/quic.crt"), "damaged").unwrap();
    server.signal("-HUP");
    wait_for("reload failed");
    world.frevo(&["ls", &world.url("")], new).succeeds();
    server.stop();
}

/// True if a process has a UDP socket.
fn has_udp(pid: u32) -> bool {
    let table = fs::read_to_string("/proc/net/udp").unwrap();
    let inodes: Vec<&str> =
        table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(9)).collect();
    let open = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")).unwrap();
    let mut links = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.any(|link| {
        let link = link.to_string_lossy();
        let inode = link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inode.is_some_and(|inode| inodes.contains(&inode))
    })
}

#[test]
fn without_the_section_there_is_no_udp_socket() {
    let world = World::new("");
    let server = world.serve();
    assert!(!has_udp(server.pid()));
    server.stop();
    let world = World::new(SECTION);
    world.certify();
    let server = world.serve();
    assert!(has_udp(server.pid()));
    server.stop();
}

#[test]
fn a_server_without_its_certificate_says_what_to_do() {
    let world = World::new(SECTION);
    let config = world.place.path("frevo.toml");
    world
        .place
        .run(&["serve", "--config", text(&config)])
        .fails(6, &["there is no certificate", "frevo quic"]);
    assert_eq!(world.place.run(&["check", "-c", text(&config)]).code, 3);
    let place = &world.place;
    place.run(&["quic", "-o", text(&place.path("certificates")), "nas/x"]).fails(2, &["`nas/x`"]);
}

/// The list of saved servers has the scheme with which the other commands reach them.
#[test]
fn a_saved_server_keeps_its_transport() {
    let world = World::new(SECTION);
    let pin = world.certify();
    let server = world.serve();
    let url = format!("smb+quic://ann@127.0.0.1:{}", world.port);
    let said = world.frevo(&["login", "--store", "file", &url], &pin);
    assert!(said.code == 0 && said.err.contains(&format!("frevo logout {url} ")), "{said:?}");
    assert_eq!(world.place.run(&["login"]).succeeds().trim(), url);
    world.place.run(&["logout", &url]).succeeds();
    server.stop();
}
