//! Shares that administrators add, change and remove over the network.

mod harness;

use std::fs;

use frevo_client::{Client, Credentials, OpenOptions, ServerName};
use frevo_rpc::srvsvc::{
    FILE_CLOSE, SESSION_DEL, SHARE_ADD, SHARE_DEL, SHARE_GET_INFO, SHARE_SET_INFO, ShareChange,
    ShareGetInfo, ShareInfo, parse_share_info,
};
use frevo_rpc::{Client as Association, SyntaxId, WinError};
use frevo_wire::dtyp::{AccessMask, Ace, AceFlags, Acl, SecurityDescriptor, Sid};
use frevo_wire::ndr::NdrWriter;
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
    let answers = ask(server, user, calls);
    let status = |stub: &Vec<u8>| WinError(u32::from_le_bytes(*stub.last_chunk().unwrap()));
    answers.iter().map(status).collect()
}

/// Makes calls of srvsvc as a user, and returns the answers.
fn ask(server: &Serving, user: &str, calls: &[(u16, Vec<u8>)]) -> Vec<Vec<u8>> {
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
            told.push(reply);
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
    // These calls come from a user who is not an administrator.
    let ids = |opnum: u16| {
        let mut w = NdrWriter::new();
        w.unique_string(Some(SERVER)).u32(7);
        (opnum, w.into_stub())
    };
    let mut w = NdrWriter::new();
    w.unique_string(Some(SERVER)).unique_string(None).unique_string(Some("ann"));
    let end = (SESSION_DEL, w.into_stub());
    let attempts = [add("new", &new), comment("share", "x"), remove("share"), ids(FILE_CLOSE), end];
    assert_eq!(call(&server, "bob", &attempts), [WinError::ACCESS_DENIED; 5]);
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
    // The change is stored, so the share exists after a restart, too.
    server.stop();
    let said = fs::read_to_string(place.path("said")).unwrap();
    assert!(said.contains("an administrator changed a share over the network"), "{said}");
    assert!(said.contains("frevo share set") && said.contains("share_roots"), "{said}");
    let audit = fs::read_to_string(place.path("log/audit")).unwrap();
    let events: Vec<_> = audit.lines().filter(|l| l.contains("\"event\":\"share\"")).collect();
    let (refused, events): (Vec<&str>, Vec<&str>) =
        events.into_iter().partition(|line| line.contains("\"by\":\"bob\""));
    let refusals = ["\"change\":\"add\"", "\"change\":\"set\"", "\"change\":\"remove\""];
    for (line, change) in refused.iter().zip(refusals) {
        assert!(line.contains(change) && line.contains("not a member of Administrators"), "{line}");
    }
    assert_eq!((events.len(), refused.len()), (wanted.len(), 3), "{audit}");
    for kicked in ["\"target\":\"open 7\"", "sessions of user ann on client *"] {
        let is_it = |line: &str| line.contains(kicked) && line.contains("ACCESS_DENIED");
        assert!(
            audit.lines().any(|line| line.contains("\"event\":\"kick\"") && is_it(line)),
            "{audit}"
        );
    }
    assert!(events[0].contains("\"by\":\"ann\"") && events[0].contains("\"change\":\"add\""));
    assert!(events[2].contains("ACCESS_DENIED") && events[2].contains("share_roots"), "{audit}");
    let server = serve(&place);
    assert!(lists(&place, &server, "new"));
    assert_eq!(call(&server, "ann", &[remove("new")]), [WinError::SUCCESS]);
    assert!(!lists(&place, &server, "new") && lists(&place, &server, "share"));
    assert!(new.is_dir());
    server.stop();
}

fn descriptor(aces: &[Ace]) -> Option<Vec<u8>> {
    let dacl = Some(Acl::new(aces.to_vec()));
    let mut bytes = Vec::new();
    SecurityDescriptor { dacl, ..SecurityDescriptor::default() }.encode(&mut bytes).unwrap();
    Some(bytes)
}

/// Windows' Change and Read.
const CHANGE: AccessMask = AccessMask(0x13_01BF);
const READ: AccessMask = AccessMask(0x12_00A9);

fn allow(mask: AccessMask, sid: &str) -> Ace {
    Ace::allow(AceFlags::EMPTY, mask, sid.parse().unwrap())
}

/// The rights of `user` in the share: nothing, read, or write.
fn may(place: &Sandbox, server: &Serving, user: &str, share: &str) -> &'static str {
    let url = format!("smb://{user}@{}/{share}", server.address);
    if place.run_with_input(&["ls", &url, "--password-stdin"], "secret\n").code != 0 {
        return "nothing";
    }
    let to = format!("{url}/of-{user}");
    let put = ["put", "frevo.toml", &to, "--password-stdin", "--force"];
    if place.run_with_input(&put, "secret\n").code == 0 { "write" } else { "read" }
}

/// MS-SRVS 3.1.4.7, 3.1.4.10 and 3.1.4.11 with shi502_security_descriptor, as Windows' wizard for
/// shared folders sends it.
#[test]
fn share_permissions_are_kept_and_hold() {
    let place = Sandbox::new();
    let root = place.folder("root");
    configure(&place, &format!("share_roots = [{root:?}]\n"));
    accounts(&place);
    let server = serve(&place);
    let path = place.folder("root/new").to_str().unwrap().to_owned();
    let info = |security_descriptor: Option<Vec<u8>>| ShareInfo {
        name: String::from("new"),
        path: path.clone(),
        security_descriptor,
        ..ShareInfo::default()
    };
    let set = |aces: &[Ace]| {
        let calls = [(SHARE_SET_INFO, change("new", 1501, info(descriptor(aces))))];
        call(&server, "ann", &calls)[0]
    };
    let info_for = |user| {
        let stub = ShareGetInfo { name: "new", level: 502 }.encode(SERVER);
        let told = ask(&server, user, &[(SHARE_GET_INFO, stub)]);
        parse_share_info(&told[0], 502).unwrap().unwrap()
    };
    let get = |user| info_for(user).security_descriptor;
    let readers = [allow(AccessMask::FILE_ALL, "S-1-5-32-544"), allow(READ, "S-1-1-0")];
    let add = (SHARE_ADD, change("", 502, info(descriptor(&readers))));
    assert_eq!(call(&server, "ann", &[add]), [WinError::SUCCESS]);
    let may = |user| may(&place, &server, user, "new");
    assert_eq!((may("ann"), may("bob")), ("write", "read"));
    let told = SecurityDescriptor::parse(&get("ann").unwrap()).unwrap();
    assert_eq!(told.dacl.unwrap().aces, readers);
    assert_eq!(get("bob"), None);
    // Only an administrator (ann) gets the folder. Computer Management shows it as a path of drive
    // C.
    let windows = format!("C:{}", path.replace('/', "\\"));
    assert_eq!((info_for("ann").path, info_for("bob").path), (windows, String::new()));
    assert_eq!(set(&[allow(CHANGE, "S-1-5-11")]), WinError::SUCCESS);
    assert_eq!((may("ann"), may("bob")), ("write", "write"));
    // The access list is set first; a later change of other settings must keep it.
    assert_eq!(set(&[allow(READ, "S-1-5-32-544")]), WinError::SUCCESS);
    let others = [comment("new", "x"), (SHARE_SET_INFO, change("new", 502, info(None)))];
    assert_eq!(call(&server, "ann", &others), [WinError::SUCCESS; 2]);
    assert_eq!((may("ann"), may("bob")), ("read", "nothing"));
    // This server cannot enforce a list that denies all local accounts, so it is refused and
    // nothing changes.
    let local_accounts = "S-1-5-113".parse::<Sid>().unwrap();
    let deny = Ace::deny(AceFlags::EMPTY, AccessMask::FILE_ALL, local_accounts);
    assert_eq!(set(&[deny, allow(CHANGE, "S-1-1-0")]), WinError::NOT_SUPPORTED);
    let garbage = (SHARE_SET_INFO, change("new", 1501, info(Some(vec![1; 30]))));
    assert_eq!(call(&server, "ann", &[garbage]), [WinError::INVALID_PARAMETER]);
    assert_eq!((may("ann"), may("bob")), ("read", "nothing"));
    assert_eq!(set(&[]), WinError::SUCCESS);
    assert_eq!((may("ann"), may("bob")), ("nothing", "nothing"));
    server.stop();
}

/// A user who owns a folder below the root puts a link to the state directory in the place of a
/// shared folder: that share is gone, the others are served.
#[test]
fn a_link_in_the_place_of_a_shared_folder_is_not_followed() {
    let place = Sandbox::new();
    let root = place.folder("root");
    configure(&place, &format!("share_roots = [{root:?}]\n"));
    accounts(&place);
    let (one, two) = (place.folder("root/of-a-user/one"), place.folder("root/two"));
    let server = serve(&place);
    let told = call(&server, "ann", &[add("one", &one), add("two", &two)]);
    assert_eq!(told, [WinError::SUCCESS; 2]);
    server.stop();
    for target in ["state", "root/two"] {
        let _ = fs::remove_dir(&one).or_else(|_| fs::remove_file(&one));
        std::os::unix::fs::symlink(place.path(target), &one).unwrap();
        let server = serve(&place);
        assert!(!lists(&place, &server, "one") && lists(&place, &server, "two"), "{target}");
        server.stop();
    }
    // The shared folder is a folder again, not a link, so the share is served again.
    fs::remove_file(&one).unwrap();
    fs::create_dir(&one).unwrap();
    let server = serve(&place);
    assert!(lists(&place, &server, "one"));
    server.stop();
    let warned = place.run(&["check", "--config", "frevo.toml"]);
    assert!(!warned.err.contains("share_roots"), "{warned:?}");
    fs::set_permissions(&root, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let warned = place.run(&["check", "--config", "frevo.toml"]);
    assert!(warned.err.contains("share_roots") && warned.err.contains("chmod go-w"), "{warned:?}");
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
