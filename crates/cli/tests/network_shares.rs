//! Shares that administrators add, change and remove over the network.

mod harness;

use std::fs;

use frevo_client::{Client, Credentials, OpenOptions, ServerName};
use frevo_wire::rpc::srvsvc::{SHARE_ADD, SHARE_DEL, SHARE_SET_INFO, ShareChange, ShareInfo};
use frevo_wire::rpc::{Client as Association, SyntaxId, WinError, ndr::NdrWriter};
use harness::{Sandbox, Serving};

const SERVER: &str = r"\\frevo";

/// The configuration, with `more` in its section of the server.
fn configure(place: &Sandbox, more: &str) {
    let config = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\nname = \"box\"\nstate_dir = {:?}\n{more}\
         [audit]\nfile = {:?}\n[[share]]\nname = \"share\"\npath = {:?}\n",
        place.folder("state"),
        place.folder("log").join("audit"),
        place.folder("share"),
    );
    place.file("frevo.toml", &config, 0o644);
}

fn serve(place: &Sandbox) -> Serving {
    let mut command = place.command(&["serve", "--config", "frevo.toml"]);
    command.stderr(fs::File::create(place.path("said")).unwrap());
    let mut server = Serving::start(command);
    let said = fs::read_to_string(place.path("said")).unwrap();
    let address = said.split("listening address=").nth(1).unwrap();
    server.address = address.split(' ').next().unwrap().to_owned();
    server
}

/// Makes calls of srvsvc as a user, and returns the end of each answer: its status.
fn call(server: &Serving, user: &str, calls: &[(u16, Vec<u8>)]) -> Vec<WinError> {
    let (host, port) = server.address.rsplit_once(':').unwrap();
    let name = ServerName::new(host).at_port(port.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let session = Client::default().connect(name, Credentials::new(user, "secret")).await;
        let ipc = session.unwrap().share("IPC$").await.unwrap();
        let pipe = OpenOptions::new().read(true).write(true).open(&ipc, "srvsvc").await.unwrap();
        let mut association = Association::new(SyntaxId::SRVSVC);
        pipe.write_all_at(&association.bind(), 0).await.unwrap();
        let reply = pipe.read_bytes(0, 4_280).await.unwrap();
        assert!(association.handle_bind_reply(&reply).unwrap());
        let mut told = Vec::new();
        for (opnum, stub) in calls {
            for fragment in association.call(*opnum, stub) {
                pipe.write_all_at(&fragment, 0).await.unwrap();
            }
            let reply = loop {
                let bytes = pipe.read_bytes(0, 4_280).await.unwrap();
                if let Some(stub) = association.handle_bytes(&bytes).unwrap() {
                    break stub;
                }
            };
            told.push(WinError(u32::from_le_bytes(*reply.last_chunk().unwrap())));
        }
        pipe.close().await.unwrap();
        ipc.log_off().await;
        told
    })
}

fn change(name: &str, level: u32, info: ShareInfo) -> Vec<u8> {
    ShareChange { name: name.to_owned(), level, info: Some(info), has_parm_err: true }
        .encode(SERVER)
}

fn add(name: &str, path: &std::path::Path) -> (u16, Vec<u8>) {
    let (name, path) = (name.to_owned(), path.to_str().unwrap().to_owned());
    (SHARE_ADD, change("", 2, ShareInfo { name, path, ..ShareInfo::default() }))
}

fn comment(name: &str, remark: &str) -> (u16, Vec<u8>) {
    let info = ShareInfo { remark: remark.to_owned(), ..ShareInfo::default() };
    (SHARE_SET_INFO, change(name, 1004, info))
}

fn remove(name: &str) -> (u16, Vec<u8>) {
    let mut w = NdrWriter::new();
    w.unique_string(Some(SERVER)).string(name).u32(0);
    (SHARE_DEL, w.into_stub())
}

fn accounts(place: &Sandbox) {
    for name in ["ann", "bob"] {
        let add = ["user", "--config", "frevo.toml", "add", name, "--password-stdin"];
        place.run_with_input(&add, "secret\n").succeeds();
    }
    place.run(&["user", "--config", "frevo.toml", "groups", "ann", "Administrators"]).succeeds();
}

fn lists(place: &Sandbox, server: &Serving, share: &str) -> bool {
    let url = format!("smb://bob@{}/{share}", server.address);
    place.run_with_input(&["ls", &url, "--password-stdin"], "secret\n").code == 0
}

#[test]
fn administrators_add_and_remove_shares_below_share_roots() {
    let place = Sandbox::new();
    let root = place.folder("root");
    configure(&place, &format!("share_roots = [{root:?}]\n"));
    accounts(&place);
    let server = serve(&place);
    let new = place.folder("root/new");
    assert_eq!(call(&server, "bob", &[add("new", &new)]), [WinError::ACCESS_DENIED]);
    let told = call(
        &server,
        "ann",
        &[
            add("new", &new),
            add("NEW", &new),
            add("outside", &place.path("share")),
            add("absent", &root.join("absent")),
            comment("new", "a comment"),
            comment("share", "a comment"),
            remove("share"),
            remove("absent"),
        ],
    );
    let wanted = [
        WinError::SUCCESS,
        WinError::DUPLICATE_SHARE,
        WinError::ACCESS_DENIED,
        WinError::UNKNOWN_DEV_DIR,
        WinError::SUCCESS,
        WinError::ACCESS_DENIED,
        WinError::ACCESS_DENIED,
        WinError::NET_NAME_NOT_FOUND,
    ];
    assert_eq!(told, wanted);
    assert!(lists(&place, &server, "new") && lists(&place, &server, "share"));
    let listed = place.run(&["share", "list", "--config", "frevo.toml", "--json"]);
    assert!(listed.succeeds().contains("a comment"), "{listed:?}");
    // A restart has it too.
    server.stop();
    let said = fs::read_to_string(place.path("said")).unwrap();
    assert!(said.contains("an administrator changed a share over the network"), "{said}");
    assert!(said.contains("frevo share set") && said.contains("share_roots"), "{said}");
    let audit = fs::read_to_string(place.path("log/audit")).unwrap();
    let events: Vec<_> = audit.lines().filter(|l| l.contains("\"event\":\"share\"")).collect();
    assert_eq!(events.len(), wanted.len(), "{audit}");
    assert!(events[0].contains("\"by\":\"ann\"") && events[0].contains("\"change\":\"add\""));
    assert!(events[2].contains("ACCESS_DENIED") && events[2].contains("share_roots"), "{audit}");
    let server = serve(&place);
    assert!(lists(&place, &server, "new"));
    assert_eq!(call(&server, "ann", &[remove("new")]), [WinError::SUCCESS]);
    assert!(!lists(&place, &server, "new") && lists(&place, &server, "share"));
    assert!(new.is_dir());
    server.stop();
}

#[test]
fn without_share_roots_nobody_changes_shares() {
    let place = Sandbox::new();
    let new = place.folder("new");
    configure(&place, "");
    accounts(&place);
    let server = serve(&place);
    let told = call(&server, "ann", &[add("new", &new), comment("share", "x"), remove("share")]);
    assert_eq!(told, [WinError::ACCESS_DENIED; 3]);
    server.stop();
    let said = fs::read_to_string(place.path("said")).unwrap();
    assert!(said.contains("share_roots in [server] names no folder"), "{said}");
    assert!(!place.path("state/shares.toml").exists());
}
