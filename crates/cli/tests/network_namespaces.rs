//! Namespaces that administrators make over the network, and those of `frevo namespace`.

mod harness;

use std::fs;

use frevo_rpc::WinError;
use frevo_rpc::netdfs::{DfsInfo, MOVE, MoveLink};
use harness::netdfs::{add, call, info, no_root, paths, remove, root, set};
use harness::{Sandbox, Serving};

/// The configuration, with `more` in its section of the server.
fn configure(place: &Sandbox, more: &str) {
    let config = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\nname = \"box\"\nstate_dir = {:?}\n{more}\
         [audit]\nfile = {:?}\n[[share]]\nname = \"share\"\npath = {:?}\n\
         [[share]]\nname = \"closed\"\npath = {:?}\nallow = [\"ann\"]\n\
         [[namespace]]\nname = \"tree\" # by hand\n[[namespace.link]]\npath = 'a'\ntargets = ['\\\\one\\x']\n",
        place.folder("state"),
        place.folder("log").join("audit"),
        place.folder("share"),
        place.folder("closed"),
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

fn accounts(place: &Sandbox) {
    for name in ["ann", "bob"] {
        let add = ["user", "--config", "frevo.toml", "add", name, "--password-stdin"];
        place.run_with_input(&add, "secret\n").succeeds();
    }
    place.run(&["user", "--config", "frevo.toml", "groups", "ann", "Administrators"]).succeeds();
}

const ABSENT: WinError = WinError::NOT_FOUND;
const DENIED: WinError = WinError::ACCESS_DENIED;
const EXISTS: WinError = WinError::FILE_EXISTS;
const OK: WinError = WinError::SUCCESS;

#[test]
fn administrators_make_namespaces_and_others_see_them() {
    let place = Sandbox::new();
    configure(&place, "network_namespaces = true\n");
    accounts(&place);
    let server = serve(&place);
    let link = r"\\box\share\dept\red";
    let comment = DfsInfo { comment: Some(String::from("x")), ..DfsInfo::default() };
    let attempts = [root("share"), add(link, "one"), remove(link, None), no_root("share")];
    assert_eq!(call(&server, "bob", &attempts), [DENIED; 4]);
    let told = call(
        &server,
        "ann",
        &[
            root("share"),
            root("SHARE"),
            root("none"),
            root("tree"),
            add(link, "one"),
            add(link, "one"),
            add(link, "two"),
            add(r"\\box\share\dept", "one"),
            add(r"\\box\other\x", "one"),
            add(r"\\box\tree\b", "one"),
            set(link, 100, comment.clone()),
            set(r"\\box\share\none", 100, comment),
        ],
    );
    let no_share = WinError::NET_NAME_NOT_FOUND;
    assert_eq!(told[..4], [OK, EXISTS, no_share, no_share]);
    assert_eq!(told[4..], [OK, EXISTS, OK, EXISTS, ABSENT, DENIED, OK, ABSENT]);
    // The change is there at once, for everybody who may connect to the root.
    for user in ["ann", "bob"] {
        let found = info(&server, user, link).unwrap();
        let targets: Vec<_> = found.storages.iter().map(|one| &*one.server).collect();
        assert_eq!((&*found.path, targets), (r"\\BOX\share\dept\red", vec!["one", "two"]));
        assert_eq!((found.comment.as_deref(), &*found.storages[0].share), (Some("x"), r"data\sub"));
        let all = [r"\\BOX\share", r"\\BOX\share\dept\red"];
        assert_eq!(paths(&server, user, r"\\box\share", 1), all, "{user}");
        assert_eq!(paths(&server, user, r"\\box", 300), [r"\\BOX\share", r"\\BOX\tree"]);
    }
    let go = MoveLink { from: link.to_owned(), to: String::from(r"\\box\share\blue"), flags: 0 };
    let told = call(
        &server,
        "ann",
        &[
            (MOVE, go.encode()),
            remove(r"\\box\share\blue", Some("one")),
            remove(r"\\box\share\blue", Some("one")),
            root("closed"),
        ],
    );
    assert_eq!(told, [OK, OK, WinError::FILE_NOT_FOUND, OK]);
    assert_eq!(info(&server, "bob", link).unwrap_err(), ABSENT);
    // The root of a share that a user may not connect to is not told.
    assert_eq!(paths(&server, "bob", r"\\box", 300), [r"\\BOX\share", r"\\BOX\tree"]);
    assert_eq!(info(&server, "bob", r"\\box\closed").unwrap_err(), ABSENT);
    assert!(info(&server, "ann", r"\\box\closed").is_ok());
    let guid = info(&server, "ann", r"\\box\share\blue").unwrap().guid;
    drop(server);

    let stored = fs::read_to_string(place.path("state/namespaces.toml")).unwrap();
    assert!(stored.contains("blue") && !stored.contains("tree"), "{stored}");
    let server = serve(&place);
    let found = info(&server, "bob", r"\\BOX\SHARE\BLUE").unwrap();
    assert_eq!((found.storages.len(), found.guid), (1, guid));
    let told = call(&server, "ann", &[no_root("share"), no_root("share"), no_root("tree")]);
    assert_eq!(told, [OK, ABSENT, DENIED]);
    assert_eq!(info(&server, "ann", r"\\box\share").unwrap_err(), ABSENT);
    drop(server);
    let audit = fs::read_to_string(place.path("log/audit")).unwrap();
    let events: Vec<&str> = audit.lines().filter(|line| line.contains("add-link")).collect();
    assert!(events[0].contains("bob") && events[0].contains("ACCESS_DENIED"), "{audit}");
    assert!(events[1].contains("ann") && events[1].contains("dept/red"), "{audit}");
}

#[test]
fn without_network_namespaces_nobody_changes_them() {
    let place = Sandbox::new();
    configure(&place, "");
    accounts(&place);
    let server = serve(&place);
    let link = r"\\box\tree\a";
    let calls = [root("share"), add(link, "one"), remove(link, None), no_root("tree")];
    assert_eq!(call(&server, "ann", &calls), [DENIED; 4]);
    assert_eq!(info(&server, "bob", link).unwrap().storages.len(), 1);
    let said = fs::read_to_string(place.path("said")).unwrap();
    assert!(said.contains("network_namespaces"), "{said}");
}

#[test]
fn the_command_line_changes_namespaces_and_keeps_comments() {
    let place = Sandbox::new();
    configure(&place, "");
    let run = |arguments: &[&str]| {
        let (verb, rest) = arguments.split_first().unwrap();
        let mut all = vec!["namespace", verb, "--config", "frevo.toml"];
        all.extend(rest);
        place.run(&all)
    };
    assert_eq!(run(&["list"]).succeeds(), "tree\n  a  \\\\one\\x\n");
    run(&["add", "share"]).succeeds();
    run(&["add", "share"]).fails(1, &["there is a namespace share"]);
    run(&["add", "share", "teams/red", "//nas1/red", r"\\nas2\red", "--comment", "all"]).succeeds();
    run(&["add", "share", "teams/red", "//NAS1/red"]).fails(1, &["has the target"]);
    run(&["add", "share", "teams", "//nas1/red"]).fails(1, &["overlaps"]);
    run(&["add", "shore", "x", "//nas1/red"])
        .fails(6, &["no namespace shore", "did you mean share"]);
    run(&["add", "share", "x", "nas1/red"]).fails(2, &["//SERVER/SHARE"]);
    run(&["add", "share", "x"]).fails(2, &["TARGETS"]);
    let listed = run(&["list"]).succeeds().to_owned();
    let expected = "share (share)\n  teams\\red  \\\\nas1\\red, \\\\nas2\\red\n";
    assert!(listed.ends_with(expected), "{listed}");
    let objects = run(&["list", "--json"]);
    let object: serde_json::Value =
        serde_json::from_str(objects.succeeds().lines().last().unwrap()).unwrap();
    assert_eq!(object["links"][0]["targets"][1]["path"], r"\\nas2\red");
    assert_eq!((&object["share"], &object["links"][0]["comment"]), (&true.into(), &"all".into()));
    run(&["remove", "share", "teams/red", "//nas1/red"]).succeeds();
    run(&["remove", "share", "teams/red", "//nas1/red"]).fails(6, &["no target"]);
    run(&["remove", "share", "teams/red"]).succeeds();
    run(&["remove", "share", "teams/red"]).fails(6, &["there is no link"]);
    run(&["remove", "share"]).succeeds();
    let text = fs::read_to_string(place.path("frevo.toml")).unwrap();
    assert!(text.contains("# by hand") && !text.contains("teams"), "{text}");
    run(&["add", "tree", "a", "//no.such.host.invalid/x"]).succeeds();
    run(&["remove", "tree", "a", "//one/x"]).succeeds();
    let check = run(&["check"]);
    assert!(
        check.code == 1 && check.out.contains("no.such.host.invalid  has no address"),
        "{check:?}"
    );
}
