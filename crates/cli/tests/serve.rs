//! `frevo serve`, and clients.

mod harness;

use std::fs;
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use frevo_server::internal::limits;
use harness::{PATIENCE, Sandbox, Serving, said, text};
use smb2::msg::create::{CreateDisposition, CreateRequest, ImpersonationLevel, ShareAccess};
use smb2::types::flags::FileAccessMask;
use smb2::types::status::NtStatus;
use smb2::types::{Command as SmbCommand, OplockLevel};
use smb2::{SmbClient, Tree};

const ANY: &str = "127.0.0.1:0";

/// A runtime for the client.
fn client<T>(talk: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, talk).await.unwrap() })
}

async fn log_on(server: &Serving, user: &str, password: &str) -> smb2::Result<SmbClient> {
    smb2::connect(&server.address, user, password).await
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    text.split(start).nth(1).unwrap().split(end).next().unwrap()
}

#[test]
fn a_folder_is_shared_with_one_command() {
    let place = Sandbox::new();
    let photos = place.folder("photos");
    let server = place.serve(&["photos", "--listen", ANY]);
    let screen = &server.screen;
    assert!(screen.starts_with(concat!("frevo ", env!("CARGO_PKG_VERSION"), "  \\\\")), "{screen}");
    assert!(screen.contains(&format!("\\photos \u{2192} {}", text(&photos))), "{screen}");
    assert!(screen.contains("/user:ann /TCPPORT:") && screen.contains("user ann   password "));
    let password = between(screen, "password ", " ").to_owned();
    client(async {
        let mut ann = log_on(&server, "ann", &password).await.unwrap();
        let tree = ann.connect_share("photos").await.unwrap();
        ann.write_file(&tree, "new.txt", b"hello").await.unwrap();
        assert!(log_on(&server, "ann", "wrong").await.is_err());
        assert!(log_on(&server, "bob", &password).await.is_err());
    });
    assert_eq!(fs::read(photos.join("new.txt")).unwrap(), b"hello");
    // A server without a configuration leaves no files behind in the home folder.
    assert!(!place.path(".local").exists());
    let said = server.stop();
    assert_eq!(said.code, 0, "{said:?}");
    for line in ["logged on", "tree connected", "share=photos", "session ended"] {
        assert!(said.err.contains(line), "{line} not in {}", said.err);
    }
    assert!(!said.err.contains(&password), "the log has the password");
}

/// Two servers of one folder would not know each other's open files. A server that would serve nothing
/// does not say that it is ready.
#[test]
fn a_server_without_any_share_of_its_own_does_not_start() {
    let place = Sandbox::new();
    let (music, photos) = (place.folder("music"), place.folder("photos"));
    let config = |name: &str, folders: &[&std::path::Path]| {
        let state = place.path(&format!("state-{name}"));
        let shares = folders.iter().enumerate().map(|(number, folder)| {
            format!("[[share]]\nname = \"s{number}\"\npath = {folder:?}\n")
        });
        let text = format!(
            "[server]\nlisten = [\"{ANY}\"]\nstate_dir = {state:?}\n{}",
            shares.collect::<String>()
        );
        place.file(name, &text, 0o644)
    };
    let first = place.serve(&["-c", text(&config("first.toml", &[&photos]))]);
    let second = config("second.toml", &[&photos, &photos]);
    let refused = place.run(&["serve", "-c", text(&second)]);
    refused.fails(1, &["no share is served: another server has the folder"]);
    assert!(!refused.out.contains("ready"), "{refused:?}");
    // The first share's folder belongs to the first server, but `music` is free, so the second
    // server starts with it.
    let second = place.serve(&["-c", text(&config("second.toml", &[&photos, &music]))]);
    let said = second.stop();
    assert!(
        said.err.contains("the share is not served: another server has the folder"),
        "{said:?}"
    );
    first.stop();
    // The folder is missing, but no other server has it, so the server starts without the share,
    // whose folder may come back.
    let third = place.serve(&["-c", text(&config("third.toml", &[&place.path("none")]))]);
    let said = third.stop();
    assert!(said.err.contains("no share is served; the lines above say why"), "{said:?}");
}

#[test]
fn passwords_come_from_a_file_or_the_environment() {
    let place = Sandbox::new();
    place.folder("photos");
    place.file("password", "from the file\n", 0o600);
    let server =
        place.serve(&["photos", "--listen", ANY, "--user", "bob", "--password-file", "password"]);
    assert!(server.screen.contains("  user bob\n") && !server.screen.contains("password"));
    client(async {
        log_on(&server, "bob", "from the file").await.unwrap();
    });
    // A folder can have only one server, so the first one is ended.
    drop(server);
    let mut command = place.command(&["serve", "photos", "--listen", ANY]);
    let server = Serving::start({
        command.env("FREVO_PASSWORD", "from the environment");
        command
    });
    client(async {
        log_on(&server, "ann", "from the environment").await.unwrap();
    });
}

#[test]
fn read_only_is_read_only() {
    let place = Sandbox::new();
    let photos = place.folder("photos");
    fs::write(photos.join("old.txt"), "old").unwrap();
    place.file("password", "pw\n", 0o600);
    let flags = ["--listen", ANY, "--password-file", "password", "--read-only"];
    let server = place.serve(&[&["photos"], &flags[..]].concat());
    assert!(server.screen.contains("(read-only \u{b7}"), "{}", server.screen);
    client(async {
        let mut ann = log_on(&server, "ann", "pw").await.unwrap();
        let mut tree = ann.connect_share("photos").await.unwrap();
        assert!(ann.write_file(&tree, "new.txt", b"hello").await.is_err());
        assert_eq!(ann.read_file(&mut tree, "old.txt").await.unwrap(), b"old");
    });
    assert!(!photos.join("new.txt").exists());
}

#[test]
fn ports_that_cannot_be_had() {
    let place = Sandbox::new();
    place.folder("photos");
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    place
        .run(&["serve", "photos", "--listen", &format!("127.0.0.1:{port}")])
        .fails(1, &[&format!("port {port} of 127.0.0.1 is in use"), "--listen 127.0.0.1:4450"]);
    place
        .run(&["serve", "photos", "--listen", "192.0.2.1:4450"])
        .fails(1, &["192.0.2.1 is not an address of this machine"]);

    // In a container every user may be allowed to use all ports, and then this test cannot fail as
    // expected.
    let first = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
    if first.trim().parse::<u16>().unwrap() > 445 {
        let photos = place.path("photos");
        let output =
            place.unprivileged(&["serve", text(&photos), "--listen", "127.0.0.9:445"]).output();
        said(output.unwrap())
            .fails(1, &["not permitted to use port 445", "ip_unprivileged_port_start"]);
        let server =
            Serving::start(place.unprivileged(&["serve", text(&photos), "--listen", "127.0.0.9"]));
        let screen = &server.screen;
        assert!(
            screen.contains("listens on port 4450: this user is not permitted to use port 445;"),
            "{screen}"
        );
        assert_eq!(server.address, "127.0.0.9:4450");
    }
}

/// A configuration of one user and these shares. A reload may add shares here.
fn config(place: &Sandbox, shares: &[&str]) {
    let mut text = format!(
        "[server]\nlisten = [\"{ANY}\"]\nname = \"box\"\nstate_dir = {:?}\nconfine_to = [{:?}]\n",
        place.folder("state"),
        place.folder("."),
    );
    for share in shares {
        let path = place.folder(share);
        text.push_str(&format!("[[share]]\nname = \"{share}\"\npath = {path:?}\n"));
    }
    place.file("frevo.toml", &text, 0o644);
}

fn add_user(place: &Sandbox, name: &str, password: &str) {
    let arguments = ["user", "add", name, "--password-stdin", "--config", "frevo.toml"];
    place.run_with_input(&arguments, password).succeeds();
}

/// A server whose address is in its log, as a service's is.
fn serve_config(place: &Sandbox) -> Serving {
    use std::io::{BufRead, BufReader};
    let log = place.path("log");
    let mut command = place.command(&["serve", "-c", "frevo.toml"]);
    command.stderr(fs::File::create(&log).unwrap());
    let mut server = Serving::start(command);
    let lines = BufReader::new(fs::File::open(&log).unwrap()).lines();
    let address = lines.map(Result::unwrap).find(|line| line.contains("listening"));
    server.address = between(&address.unwrap(), "address=", " ").to_owned();
    server
}

fn log(place: &Sandbox) -> String {
    fs::read_to_string(place.path("log")).unwrap()
}

/// Waits until the log has this.
fn logged(place: &Sandbox, words: &str) {
    let began = std::time::Instant::now();
    while !log(place).contains(words) {
        assert!(began.elapsed() < PATIENCE, "{words:?} not in {}", log(place));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_reload_drops_nobody() {
    let place = Sandbox::new();
    config(&place, &["photos", "music"]);
    add_user(&place, "ann", "pw");
    let server = serve_config(&place);
    assert_eq!(server.screen, "", "a service has no start screen");
    client(async {
        let mut ann = log_on(&server, "ann", "pw").await.unwrap();
        let photos = ann.connect_share("photos").await.unwrap();
        ann.write_file(&photos, "before.txt", b"1").await.unwrap();
        assert!(ann.connect_share("docs").await.is_err());

        // The new configuration adds the share docs, removes photos, and adds the user bob.
        config(&place, &["music", "docs"]);
        add_user(&place, "bob", "pw2");
        server.signal("-HUP");
        logged(&place, "configuration reloaded");
        // ann's connection stays, and so does ann's access to the removed share; new connections
        // see the new shares.
        ann.write_file(&photos, "after.txt", b"2").await.unwrap();
        let docs = ann.connect_share("docs").await.unwrap();
        ann.write_file(&docs, "new.txt", b"3").await.unwrap();
        let mut bob = log_on(&server, "bob", "pw2").await.unwrap();
        assert!(bob.connect_share("photos").await.is_err());
        bob.connect_share("docs").await.unwrap();

        // A faulty configuration changes nothing, so ann still works with the old one.
        place.file("frevo.toml", "[server]\nlisten = 7\n", 0o644);
        server.signal("-HUP");
        logged(&place, "reload failed, the old configuration stays in force: ");
        assert!(log(&place).contains("frevo.toml:2:"), "{}", log(&place));
        ann.write_file(&docs, "still.txt", b"4").await.unwrap();
        log_on(&server, "bob", "pw2").await.unwrap().connect_share("docs").await.unwrap();

        // A new address cannot be applied by a reload, so the log asks for a restart.
        config(&place, &["docs"]);
        let text = fs::read_to_string(place.path("frevo.toml")).unwrap();
        place.file("frevo.toml", &text.replace("127.0.0.1:0", "127.0.0.2:0"), 0o644);
        server.signal("-HUP");
        logged(&place, "restart the server to apply it");
        assert!(log(&place).contains("key=listen"), "{}", log(&place));
    });
    for name in ["photos/before.txt", "photos/after.txt", "docs/new.txt", "docs/still.txt"] {
        assert!(place.path(name).exists(), "{name}");
    }
    assert_eq!(server.stop().code, 0);
}

/// Runs `frevo user` on the accounts of [`config`].
fn user(place: &Sandbox, arguments: &[&str], input: &str) -> String {
    let said = place.run_with_input(&[&["user", "-c", "frevo.toml"], arguments].concat(), input);
    said.succeeds();
    said.err
}

/// A change of the account file counts on the running server at once: sessions of accounts that may
/// not log on any more, or have another password, end.
#[test]
fn the_running_server_is_told_of_changed_accounts() {
    let place = Sandbox::new();
    config(&place, &["photos"]);
    add_user(&place, "ann", "old");
    let server = serve_config(&place);
    let applies = "the running server applies the change";
    let said = user(&place, &["add", "bob", "--password-stdin"], "pw");
    assert!(said.trim_end().ends_with(applies), "{said}");
    client(async {
        let mut password = "old";
        for (change, input) in [
            (&["passwd", "ann", "--password-stdin"][..], "new"),
            (&["disable", "ann"], ""),
            (&["enable", "ann"], ""),
            (&["rm", "ann"], ""),
        ] {
            let is_off = change[0] == "enable";
            let mut bob = log_on(&server, "bob", "pw").await.unwrap();
            let photos = bob.connect_share("photos").await.unwrap();
            let mut held = None;
            if !is_off {
                let mut ann = log_on(&server, "ann", password).await.unwrap();
                let tree = ann.connect_share("photos").await.unwrap();
                ann.write_file(&tree, "before.txt", b"1").await.unwrap();
                held = Some((ann, tree));
            }
            let said = user(&place, change, input);
            let expected = if is_off { "" } else { "; 1 session ended" };
            assert!(said.trim_end().ends_with(&format!("{applies}{expected}")), "{said}");
            if let Some((mut ann, tree)) = held {
                assert!(ann.write_file(&tree, "after.txt", b"2").await.is_err(), "{change:?}");
            }
            if !input.is_empty() {
                password = input;
            }
            let may = matches!(change[0], "passwd" | "enable");
            assert_eq!(log_on(&server, "ann", password).await.is_ok(), may, "{change:?}");
            // bob's connection stays, although ann's sessions were ended.
            bob.write_file(&photos, "bobs.txt", b"3").await.unwrap();
        }
    });
    // The file has a bad line, so the server cannot read it, and the command reports that and
    // fails.
    let users = place.path("state/users");
    let kept = fs::read_to_string(&users).unwrap();
    fs::write(&users, kept.clone() + "carl:no account\n").unwrap();
    place.run(&["user", "-c", "frevo.toml", "disable", "bob"]).fails(3, &["users:"]);
    fs::write(&users, kept).unwrap();
    assert_eq!(server.stop().code, 0);
    // Without a running server the command has nothing to report and prints nothing.
    assert_eq!(user(&place, &["disable", "bob"], ""), "");
}

/// A `[[user]]` that the configuration loses also loses its sessions, and so does one whose
/// password file has another password.
#[test]
fn a_user_of_the_configuration_is_removed_at_once() {
    let place = Sandbox::new();
    config(&place, &["photos"]);
    let shares = fs::read_to_string(place.path("frevo.toml")).unwrap();
    let password = place.file("password", "pw\n", 0o600);
    let audit = place.folder("audit").join("log");
    let user = format!(
        "{shares}[audit]\nfile = {audit:?}\n[[user]]\nname = \"carl\"\npassword_file = {password:?}\n"
    );
    place.file("frevo.toml", &user, 0o644);
    let server = serve_config(&place);
    client(async {
        for (text, password) in [(&*user, "other"), (&shares, "other")] {
            let was = fs::read_to_string(place.path("password")).unwrap();
            let mut carl = log_on(&server, "carl", was.trim()).await.unwrap();
            let photos = carl.connect_share("photos").await.unwrap();
            carl.write_file(&photos, "before.txt", b"1").await.unwrap();
            place.file("password", &format!("{password}\n"), 0o600);
            place.file("frevo.toml", text, 0o644);
            server.signal("-HUP");
            let began = std::time::Instant::now();
            while carl.write_file(&photos, "after.txt", b"2").await.is_ok() {
                assert!(began.elapsed() < PATIENCE, "{}", log(&place));
            }
        }
        assert!(log_on(&server, "carl", "other").await.is_err());
    });
    assert_eq!(server.stop().code, 0);
    let audit = fs::read_to_string(&audit).unwrap();
    let reloads = audit.lines().filter(|line| line.contains("\"event\":\"reload\""));
    assert!(reloads.clone().all(|line| line.contains("\"sessions\":1")), "{audit}");
    assert_eq!(reloads.count(), 2, "{audit}");
}

#[test]
fn the_identity_stays_over_restarts() {
    let place = Sandbox::new();
    config(&place, &["photos"]);
    add_user(&place, "ann", "pw");
    let guid = || fs::read_to_string(place.path("state/server-guid")).unwrap();
    assert_eq!(serve_config(&place).stop().code, 0);
    let first = guid();
    assert_eq!(serve_config(&place).stop().code, 0);
    assert_eq!((first.trim().len(), guid()), (32, first.clone()));
}

#[test]
fn each_signal_that_stops_stops_in_order() {
    let place = Sandbox::new();
    place.folder("photos");
    place.file("password", "pw\n", 0o600);
    for signal in ["-TERM", "-INT"] {
        let server = place.serve(&["photos", "--listen", ANY, "--password-file", "password"]);
        client(async {
            let mut ann = log_on(&server, "ann", "pw").await.unwrap();
            let tree = ann.connect_share("photos").await.unwrap();
            ann.write_file(&tree, "a.txt", b"x").await.unwrap();
            server.signal(signal);
            // The client waits without a logoff, so its session is still open when the server ends.
            tokio::time::sleep(Duration::from_millis(300)).await;
        });
        let said = server.finish();
        assert_eq!(said.code, 0, "{said:?}");
        assert!(said.err.contains("stopping") && said.err.contains("session ended"), "{said:?}");
    }
}

#[test]
fn what_was_acknowledged_before_the_stop_is_there() {
    let place = Sandbox::new();
    let photos = place.folder("photos");
    place.file("password", "pw\n", 0o600);
    let server = place.serve(&["photos", "--listen", ANY, "--password-file", "password"]);
    let data = vec![7; 300_000];
    let mut acknowledged = 0;
    client(async {
        let mut ann = log_on(&server, "ann", "pw").await.unwrap();
        let tree = ann.connect_share("photos").await.unwrap();
        // The file has DELETE_ON_CLOSE, but the client never closes it, so the server must delete
        // it when it stops.
        create_delete_on_close(&ann, &tree, "gone.txt").await.unwrap();
        assert!(photos.join("gone.txt").exists());
        let mut told = false;
        while ann.write_file(&tree, &format!("{acknowledged}.bin"), &data).await.is_ok() {
            acknowledged += 1;
            if acknowledged == 20 && !told {
                server.signal("-TERM");
                told = true;
            }
        }
    });
    assert!(acknowledged >= 20);
    assert_eq!(server.finish().code, 0);
    assert!(!photos.join("gone.txt").exists());
    for number in 0..acknowledged {
        assert_eq!(fs::read(photos.join(format!("{number}.bin"))).unwrap(), data, "{number}");
    }
}

async fn create_delete_on_close(ann: &SmbClient, tree: &Tree, name: &str) -> smb2::Result<()> {
    const DELETE_AND_WRITE: u32 = 0x0001_0002;
    // The options are FILE_NON_DIRECTORY_FILE and FILE_DELETE_ON_CLOSE (MS-SMB2 2.2.13).
    const OPTIONS: u32 = 0x0000_0040 | 0x0000_1000;
    let body = CreateRequest {
        requested_oplock_level: OplockLevel::None,
        impersonation_level: ImpersonationLevel::Impersonation,
        desired_access: FileAccessMask::new(DELETE_AND_WRITE),
        file_attributes: 0,
        share_access: ShareAccess(0),
        create_disposition: CreateDisposition::FileCreate,
        create_options: OPTIONS,
        name: name.to_owned(),
        create_contexts: Vec::new(),
    };
    let frame = ann.connection().execute(SmbCommand::Create, &body, Some(tree.tree_id)).await?;
    assert_eq!(frame.header.status, NtStatus::SUCCESS);
    Ok(())
}

/// True when the server closes a connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    is_closed_within(stream, PATIENCE)
}

/// True when the server does not close a connection for a second.
fn stays(stream: &mut TcpStream) -> bool {
    !is_closed_within(stream, Duration::from_secs(1))
}

fn is_closed_within(stream: &mut TcpStream, time: Duration) -> bool {
    stream.set_read_timeout(Some(time)).unwrap();
    match stream.read(&mut [0]) {
        Ok(0) => true,
        Ok(_) => panic!("it said something"),
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn strangers_cannot_use_up_the_server() {
    let place = Sandbox::new();
    place.folder("photos");
    place.file("password", "pw\n", 0o600);
    let server = place.serve(&["photos", "--listen", ANY, "--password-file", "password"]);
    let connect = || TcpStream::connect(&server.address).unwrap();
    // Those that are too many are closed: the new ones, or on a slow machine the oldest ones, once they are
    // a second old.
    let most = limits::UNAUTHENTICATED_PER_ADDRESS;
    let began = std::time::Instant::now();
    let mut idle: Vec<TcpStream> = (0..most + 20).map(|_| connect()).collect();
    let are_new_ones_closed = began.elapsed() < limits::UNAUTHENTICATED_SPARED;
    while idle.len() > most {
        assert!(began.elapsed() < PATIENCE, "{} are open", idle.len());
        idle.retain_mut(|stream| !is_closed_within(stream, Duration::from_millis(1)));
    }
    assert!(stays(&mut idle[0]));
    client(async {
        idle.pop();
        let mut ann = log_on_when_there_is_room(&server).await;
        ann.connect_share("photos").await.unwrap();
        // After its logon a connection does not count any more, so there is room for one more.
        idle.push(connect());
        assert!(stays(&mut idle[most - 1]));
        // All places are taken, so a new connection closes the oldest one without a logon.
        let mut newcomer = connect();
        assert!(is_closed(&mut idle[0]));
        assert!(stays(&mut newcomer));
    });
    drop(idle);
    let said = server.stop();
    let refusals = said.err.matches("refused: too many connections that have not logged on");
    // Twenty refusals appear in at most eight log lines.
    let least = usize::from(are_new_ones_closed);
    assert!((least..=8).contains(&refusals.count()), "{}", said.err);
}

/// The server notices that a connection was closed a little later.
async fn log_on_when_there_is_room(server: &Serving) -> SmbClient {
    loop {
        if let Ok(client) = log_on(server, "ann", "pw").await {
            return client;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn connections_are_bounded_as_configured() {
    let place = Sandbox::new();
    config(&place, &["photos"]);
    let text = fs::read_to_string(place.path("frevo.toml")).unwrap();
    place.file("frevo.toml", &format!("{text}[limits]\nconnections = 2\n"), 0o644);
    add_user(&place, "ann", "pw");
    let server = serve_config(&place);
    client(async {
        let mut one = log_on(&server, "ann", "pw").await.unwrap();
        let two = log_on(&server, "ann", "pw").await.unwrap();
        assert!(is_closed(&mut TcpStream::connect(&server.address).unwrap()));
        one.connect_share("photos").await.unwrap();
        drop(two);
        log_on_when_there_is_room(&server).await;
    });
    logged(&place, "as many connections as limits.connections allows");
}

#[test]
fn systemd_is_told() {
    let place = Sandbox::new();
    config(&place, &["photos"]);
    let path = place.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let next = || {
        let mut buffer = [0; 4_096];
        let len = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    };
    let stored = "FDSTORE=1\nFDNAME=frevo-listen\nFDPOLL=0\n";
    let mut command = place.command(&["serve", "--config", "frevo.toml"]);
    command.env("NOTIFY_SOCKET", &path);
    let server = Serving::start(command);
    assert_eq!(next(), stored, "for a restart");
    assert!(next().starts_with("READY=1\n"));
    server.signal("-HUP");
    let reloading = next();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert!(next().starts_with("READY=1\n"));
    server.signal("-TERM");
    assert!(next().starts_with("STOPPING=1\n"));
    assert_eq!(server.finish().code, 0);
}

#[test]
fn a_socket_that_systemd_hands_over_is_used() {
    let place = Sandbox::new();
    config(&place, &["photos"]);
    add_user(&place, "ann", "pw");
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    // sd_listen_fds(3): the socket is descriptor 3, and LISTEN_PID names this process.
    let script = "export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\" \"$@\" 3<&0 </dev/null";
    let frevo = place.command(&[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(frevo.get_program()).args(["serve", "-c", "frevo.toml"]);
    shell.current_dir(place.path("")).stdin(OwnedFd::from(socket));
    shell.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = Serving::start(shell);
    server.address = address;
    client(async {
        log_on(&server, "ann", "pw").await.unwrap().connect_share("photos").await.unwrap();
    });
    assert_eq!(server.stop().code, 0);
}

/// A client that connects while there is no server waits in the socket that systemd keeps, and is
/// served by the next one; a socket that is not wanted any more is closed.
#[test]
fn sockets_that_systemd_kept_over_a_restart_are_used() {
    let place = Sandbox::new();
    config(&place, &["photos"]);
    add_user(&place, "ann", "pw");
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let other = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 9), 0)).unwrap();
    let (address, unwanted) = (socket.local_addr().unwrap(), other.local_addr().unwrap());
    let early = TcpStream::connect(address).unwrap();
    let script = "export LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=frevo-listen:frevo-listen; \
                  exec \"$0\" \"$@\" 4<&1 3<&0 </dev/null >&2";
    let (mut out, written) = std::io::pipe().unwrap();
    let frevo = place.command(&[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(frevo.get_program()).args(["serve", "-c", "frevo.toml"]);
    shell.current_dir(place.path("")).stdin(OwnedFd::from(socket)).stdout(OwnedFd::from(other));
    shell.stderr(written);
    let mut server = shell.spawn().unwrap();
    drop(shell);
    let mut said = String::new();
    while !said.contains("ready\n") {
        let mut bytes = [0; 4_096];
        let len = out.read(&mut bytes).unwrap();
        assert!(len > 0, "not ready: {said}");
        said.push_str(&String::from_utf8_lossy(&bytes[..len]));
    }
    client(async {
        let mut ann = smb2::connect(&address.to_string(), "ann", "pw").await.unwrap();
        ann.connect_share("photos").await.unwrap();
    });
    // The connection made before the start was accepted, as the server closes it because of this
    // invalid data.
    std::io::Write::write_all(&mut &early, &[0xFF; 64]).unwrap();
    early.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(!matches!((&early).read(&mut [0]), Err(e) if e.kind() == ErrorKind::WouldBlock));
    assert_eq!(TcpStream::connect(unwanted).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn log_lines_can_be_json() {
    let place = Sandbox::new();
    place.folder("photos");
    place.file("password", "pw\n", 0o600);
    let flags = ["--listen", ANY, "--password-file", "password", "--log", "json"];
    let server = place.serve(&[&["photos"], &flags[..]].concat());
    client(async {
        let mut ann = log_on(&server, "ann", "pw").await.unwrap();
        ann.connect_share("photos").await.unwrap();
        assert!(log_on(&server, "ann", "wrong").await.is_err());
    });
    let said = server.stop();
    let events: Vec<serde_json::Value> =
        said.err.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |target: &str| {
        let matches = |event: &&serde_json::Value| event["target"] == target;
        events.iter().filter(matches).collect::<Vec<_>>()
    };
    assert!(of("frevo::session").iter().any(|event| event["user"] == "ann"), "{events:?}");
    assert!(of("frevo::tree").iter().any(|event| event["share"] == "photos"), "{events:?}");
    // The log line of a refusal names the client and the reason.
    let refused = of("frevo::session").into_iter().find(|event| event["level"] == "WARN").unwrap();
    assert!(refused["peer"].as_str().unwrap().parse::<SocketAddr>().is_ok(), "{refused}");
}

#[test]
fn a_client_below_the_floor_is_refused_with_the_remedy() {
    use std::io::Write;
    let place = Sandbox::new();
    place.folder("photos");
    place.file("password", "pw\n", 0o600);
    let server = place.serve(&["photos", "--listen", ANY, "--password-file", "password"]);
    // The message is a NEGOTIATE with the dialect 2.0.2 only (MS-SMB2 2.2.1.2, 2.2.3).
    let mut message = vec![0; 64];
    message[..6].copy_from_slice(&[0xFE, b'S', b'M', b'B', 64, 0]);
    message.extend([36, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    message.extend([0; 24]);
    message.extend([0x02, 0x02]);
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let len = u32::try_from(message.len()).unwrap();
    stream.write_all(&[&len.to_be_bytes()[..], &message].concat()).unwrap();
    let mut reply = [0; 4 + 64];
    stream.read_exact(&mut reply).unwrap();
    // The reply has STATUS_NOT_SUPPORTED.
    assert_eq!(reply[12..16], 0xC000_00BB_u32.to_le_bytes());
    drop(stream);
    let said = server.stop();
    assert!(
        said.err.contains("refused: the client speaks only SMB 2.0.2, min_dialect is SMB 3.0;"),
        "{said:?}"
    );
    assert!(
        said.err.contains("lower min_dialect") && said.err.contains("peer=127.0.0.1:"),
        "{said:?}"
    );
}
