//! Users, shares and limits that a browser changes.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

use frevo_admin::limits::BODY_BYTES;
use serde_json::{Value, json};

use crate::harness::{PATIENCE, Said, Sandbox, Serving, free_port, text};

const LOOK: &str = "correct-horse-battery";
const MANAGE: &str = "staple-staple-staple";
const SECRET: &str = "hunter2-hunter2";

/// The paths below which things change.
const PATHS: [&str; 3] = ["/manage/users", "/manage/shares", "/manage/rates"];

/// A server with both tokens and an audit log.
struct Desk {
    place: Sandbox,
    port: u16,
    /// The port of SMB.
    smb: u16,
    config: PathBuf,
    server: Option<Serving>,
}

/// An answer: its status, its head and its body.
#[derive(Debug)]
struct Told {
    status: u16,
    head: String,
    body: Value,
}

impl Desk {
    fn new(keys: &str) -> Self {
        let place = Sandbox::new();
        for folder in ["state", "log", "etc"] {
            let path = place.folder(folder);
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        }
        let (data, log) = (place.folder("data"), place.path("log/audit"));
        let (port, smb) = (free_port(), free_port());
        let look = place.file("etc/look", LOOK, 0o600);
        let manage = place.file("etc/manage", MANAGE, 0o600);
        let state = place.path("state");
        let config = format!(
            "# the office\n[server]\nlisten = [\"127.0.0.1:{smb}\"]\nstate_dir = {state:?}\nlog_level = \"trace\"\n\
             [audit]\nfile = {log:?}\n\
             [admin]\nlisten = \"127.0.0.1:{port}\"\ntoken_file = {look:?}\nmanage_token_file = {manage:?}\n{keys}\
             [[share]] # first\nname = \"data\"\npath = {data:?} # disk 2\n"
        );
        let config = place.file("etc/frevo.toml", &config, 0o600);
        let mut desk = Self { place, port, smb, config, server: None };
        let added = desk.run_with(&["user", "add", "ann", "--password-stdin"], "ann's\n");
        added.succeeds();
        let mut command = desk.place.command(&["serve", "-c", text(&desk.config)]);
        // A pipe that nobody reads would stop a server that logs so much.
        command.stderr(fs::File::create(desk.place.path("log/server")).unwrap());
        desk.server = Some(Serving::start(command));
        desk
    }

    fn run_with(&self, arguments: &[&str], input: &str) -> Said {
        self.place.run_with_input(&[arguments, &["-c", text(&self.config)]].concat(), input)
    }

    fn ask(&self, method: &str, path: &str, fields: &str, body: &Value) -> Told {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n", self.port);
        let length = format!("Connection: close\r\nContent-Length: {}\r\n", body.len());
        let request = format!("{head}{length}{fields}\r\n{body}");
        // The server may answer before it has read a body that is too long.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = serde_json::from_str(body).unwrap_or_default();
        Told { status, head: head.to_owned(), body }
    }

    fn get(&self, path: &str) -> Value {
        let told = self.ask("GET", path, &bearer(MANAGE), &Value::Null);
        assert_eq!(told.status, 200, "{told:?}");
        told.body
    }

    /// Makes a change of what is there now.
    fn change(&self, path: &str, change: Value) -> Told {
        let revision = self.get(path)["revision"].clone();
        let mut body = json!({ "revision": revision });
        body["change"] = change;
        self.ask("POST", path, &bearer(MANAGE), &body)
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.config).unwrap()
    }

    /// Stops the server, and returns the lines of the audit log that tell of changes.
    fn audit(mut self) -> Vec<Value> {
        self.server.take().unwrap().stop();
        let said = fs::read_to_string(self.place.path("log/server")).unwrap();
        let log = fs::read_to_string(self.place.path("log/audit")).unwrap();
        for secret in [SECRET, LOOK, MANAGE] {
            assert!(!said.contains(secret) && !log.contains(secret), "{secret}");
        }
        let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["event"] == "manage").collect()
    }
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn every_route_needs_its_right_and_a_form() {
    let desk = Desk::new("");
    let change = |path: &str| match path {
        "/manage/users" => json!({ "act": "disable", "name": "ann" }),
        _ => json!({ "act": "remove", "name": "data" }),
    };
    for path in PATHS {
        let status =
            |method: &str, fields: &str, body: &Value| desk.ask(method, path, fields, body).status;
        let (manage, none) = (bearer(MANAGE), Value::Null);
        let revision = desk.get(path)["revision"].clone();
        let good = json!({ "revision": revision, "change": change(path) });
        for (method, body) in [("GET", &none), ("POST", &good)] {
            assert_eq!(status(method, "", body), 401, "{path}");
            assert_eq!(status(method, &bearer(LOOK), body), 403, "{path}");
            let foreign = format!("{manage}Origin: http://evil.example\r\n");
            assert_eq!(status(method, &foreign, body), 403, "{path}");
            let foreign = format!("{manage}Sec-Fetch-Site: cross-site\r\n");
            assert_eq!(status(method, &foreign, body), 403, "{path}");
        }
        assert_eq!(status("PUT", &manage, &good), 405, "{path}");
        let old = json!({ "revision": "0", "change": change(path) });
        assert_eq!(status("POST", &manage, &old), 409, "{path}");
        let long = json!({ "revision": "x".repeat(BODY_BYTES), "change": change(path) });
        assert_eq!(status("POST", &manage, &long), 413, "{path}");
        for bad in [
            json!({ "revision": revision, "change": { "act": "burn", "name": "data" } }),
            json!({ "revision": revision, "change": { "act": "remove" } }),
            json!({ "revision": revision, "change": { "act": "remove", "name": "x", "y": 1 } }),
            json!({ "change": change(path) }),
            json!([]),
        ] {
            assert_eq!(status("POST", &manage, &bad), 400, "{path} {bad}");
        }
        let absent = json!({ "revision": revision, "change": { "act": "remove", "name": "eve" } });
        assert_eq!(status("POST", &manage, &absent), 404, "{path}");
    }
    assert!(
        desk.text().contains("name = \"data\"")
            && desk.get(PATHS[0])["rows"][0]["state"] == "enabled"
    );
    // The token that looks can no longer end sessions beside a managing one.
    let kick = json!({ "kind": "user", "name": "ann" });
    assert_eq!(desk.ask("POST", "/kick", &bearer(LOOK), &kick).status, 403);
    assert_eq!(desk.ask("POST", "/kick", &bearer(MANAGE), &kick).status, 404);
    assert_eq!(desk.ask("GET", "/status", &bearer(LOOK), &Value::Null).status, 200);
}

#[test]
fn a_browser_logs_on_and_off() {
    let desk = Desk::new("");
    let log_on = |token: &str| desk.ask("POST", "/session", "", &json!({ "token": token }));
    assert_eq!(log_on("wrong-wrong-wrong-wrong").status, 401);
    assert_eq!(log_on(LOOK).body["rights"], "look");
    let foreign = desk.ask(
        "POST",
        "/session",
        "Origin: http://evil.example\r\n",
        &json!({ "token": MANAGE }),
    );
    assert_eq!(foreign.status, 403);
    let begun = log_on(MANAGE);
    assert_eq!((begun.status, &begun.body["rights"]), (200, &json!("manage")));
    let head = begun.head.to_ascii_lowercase();
    assert!(
        head.contains("content-security-policy: default-src 'none'; script-src 'self';"),
        "{head}"
    );
    assert!(head.contains("x-frame-options: deny"), "{head}");
    let cookie = begun.head.lines().find_map(|line| {
        line.to_ascii_lowercase().starts_with("set-cookie: ").then(|| line[12..].to_owned())
    });
    let cookie = cookie.unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
    let csrf = begun.body["csrf"].as_str().unwrap().to_owned();
    let told = desk.ask("GET", "/session", &cookie, &Value::Null);
    assert_eq!(told.body, json!({ "rights": "manage", "csrf": csrf, "local": false }));
    let revision = desk.ask("GET", PATHS[0], &cookie, &Value::Null).body["revision"].clone();
    let disable = json!({ "revision": revision, "change": { "act": "disable", "name": "ann" } });
    assert_eq!(desk.ask("POST", PATHS[0], &cookie, &disable).status, 403);
    let with = format!("{cookie}X-Frevo-CSRF: {csrf}\r\n");
    assert_eq!(desk.ask("POST", PATHS[0], &with, &disable).status, 200);
    assert_eq!(desk.ask("DELETE", "/session", &with, &Value::Null).status, 200);
    assert_eq!(desk.ask("GET", PATHS[0], &cookie, &Value::Null).status, 401);
    let lines = desk.audit();
    let refused = lines.iter().filter(|line| line["outcome"] == "refused").count();
    assert_eq!(refused, 1, "{lines:#?}");
    let last = lines.last().unwrap();
    let facts = [&last["change"], &last["target"], &last["by"], &last["peer"]];
    assert_eq!(facts, ["disable-user", "ann", "manage token", "127.0.0.1"]);
}

#[test]
fn users_change_in_the_file_of_the_command() {
    let desk = Desk::new("");
    let change = |change: Value| desk.change(PATHS[0], change);
    let add = json!({ "act": "add", "name": "bob", "password": SECRET, "groups": ["staff"] });
    assert_eq!(change(add.clone()).status, 200);
    let again = change(add);
    assert_eq!((again.status, &again.body["field"]), (422, &json!("name")));
    let empty = change(json!({ "act": "password", "name": "bob", "password": "" }));
    assert_eq!((empty.status, &empty.body["field"]), (400, &json!("password")));
    assert_eq!(empty.body["error"], "the password is empty");
    let named = change(json!({ "act": "add", "name": "a/b", "password": SECRET }));
    assert_eq!((named.status, &named.body["field"]), (400, &json!("name")));
    let grouped = change(json!({ "act": "groups", "name": "bob", "groups": ["a,b"] }));
    assert_eq!((grouped.status, &grouped.body["field"]), (400, &json!("groups")));
    assert_eq!(change(json!({ "act": "disable", "name": "ann" })).status, 200);
    let rules = |hours: &str| {
        let rules = json!({ "act": "rules", "name": "ann", "expires": "2030-12-31T18:00:00Z",
            "must_change": true, "hours": hours, "workstations": ["desk"] });
        change(rules)
    };
    assert_eq!(rules("mon-fri 07:00-19:00").status, 200);
    assert_eq!(rules("7-19").body["field"], "hours");
    let listed = |name: &str| {
        let said = desk.run_with(&["user", "show", name, "--json"], "");
        serde_json::from_str::<Value>(said.succeeds()).unwrap()
    };
    assert_eq!(
        (&listed("bob")["groups"], &listed("ann")["state"]),
        (&json!(["staff"]), &json!("disabled"))
    );
    assert_eq!(listed("ann")["expires"], "2030-12-31T18:00:00Z");
    // The running server has them: bob connects with the password.
    let url = format!("smb://bob@127.0.0.1:{}/data", desk.smb);
    let mut ls = desk.place.command(&["ls", &url]);
    let ls = crate::harness::said(ls.env("FREVO_PASSWORD", SECRET).output().unwrap());
    ls.succeeds();
    // Of two changes of one state, one is made.
    let revision = desk.get(PATHS[0])["revision"].clone();
    let both = ["ann", "bob"].map(|name| {
        let change = json!({ "act": "remove", "name": name });
        let body = json!({ "revision": revision, "change": change });
        desk.ask("POST", PATHS[0], &bearer(MANAGE), &body).status
    });
    assert_eq!(both, [200, 409]);
    assert_eq!(listed("bob")["state"], "enabled");
    let lines = desk.audit();
    let words: Vec<&str> = lines.iter().filter_map(|line| line["change"].as_str()).collect();
    assert!(words.contains(&"add-user") && words.contains(&"remove-user"), "{words:?}");
    assert_eq!(lines[0]["keys"], r#"{"groups":["staff"]}"#);
}

/// Users change their own passwords without a token, where the configuration wants it: also one that must
/// be changed before the next logon.
#[test]
fn users_change_their_own_passwords() {
    let desk = Desk::new("");
    assert_eq!(desk.ask("GET", "/password", "", &Value::Null).status, 401);
    let wanted = |new: &str| json!({ "user": "ANN", "present": "ann's", "new": new });
    assert_eq!(desk.ask("POST", "/password", "", &wanted(SECRET)).status, 401);
    drop(desk);
    let mut desk = Desk::new("self_service = true\n[passwords]\nmin_length = 5\nhistory = 3\n");
    desk.run_with(&["user", "set", "ann", "--must-change"], "").succeeds();
    let change = |new: &str, fields: &str| desk.ask("POST", "/password", fields, &wanted(new));
    assert_eq!(desk.ask("GET", "/password", "", &Value::Null).status, 200);
    assert_eq!(change(SECRET, "Origin: http://evil.example\r\n").status, 403);
    for (new, why) in [("tiny", "the new password is shorter than 5 characters"), ("", "is empty")]
    {
        let refused = change(new, "");
        assert_eq!((refused.status, &refused.body["field"]), (422, &json!("new")), "{refused:?}");
        assert!(refused.body["error"].as_str().unwrap().contains(why), "{refused:?}");
    }
    let short = |name: &str| desk.run_with(&["user", "passwd", name, "--password-stdin"], "tiny\n");
    short("ann").fails(4, &["shorter than 5 characters"]);
    let bad = json!({ "user": "ann", "present": "ann's", "new": SECRET, "groups": ["x"] });
    assert_eq!(desk.ask("POST", "/password", "", &bad).status, 400);
    let ls = |password: &str| {
        let url = format!("smb://ann@127.0.0.1:{}/data", desk.smb);
        let mut ls = desk.place.command(&["ls", &url]);
        crate::harness::said(ls.env("FREVO_PASSWORD", password).output().unwrap())
    };
    let changed = change(SECRET, "");
    assert_eq!((changed.status, &changed.body["changed"]), (200, &json!(true)), "{changed:?}");
    ls(SECRET).succeeds();
    let again = json!({ "user": "ann", "present": SECRET, "new": SECRET });
    let again = desk.ask("POST", "/password", "", &again);
    assert_eq!(again.body["error"], "the new password was used before", "{again:?}");
    let shown = desk.run_with(&["user", "show", "ann", "--json"], "");
    assert!(shown.succeeds().contains("\"must_change\":false"), "{shown:?}");
    desk.server.take().unwrap().stop();
    let log = fs::read_to_string(desk.place.path("log/audit")).unwrap();
    assert!(!log.contains(SECRET), "{log}");
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lines: Vec<Value> = lines.filter(|line| line["event"] == "password").collect();
    let done = lines.iter().find(|line| line["outcome"] == "success");
    let done = done.unwrap_or_else(|| panic!("{log}"));
    assert_eq!((&done["user"], &done["purpose"]), (&json!("ANN"), &json!("page")), "{log}");
}

#[test]
fn shares_and_limits_change_in_the_file_and_comments_stay() {
    let desk = Desk::new("write_configuration = true\n");
    let more = desk.place.folder("data/more");
    let share = |change: Value| desk.change(PATHS[1], change);
    let keys = json!({ "allow": ["ann"], "read_only": true });
    let set = share(json!({ "act": "set", "name": "data", "keys": keys }));
    assert_eq!(set.status, 200, "{set:?}");
    let unknown = share(json!({ "act": "set", "name": "data", "keys": { "allow": ["eve"] } }));
    assert_eq!((unknown.status, &unknown.body["field"]), (422, &json!("allow")), "{unknown:?}");
    let typed = share(json!({ "act": "set", "name": "data", "keys": { "read_only": 7 } }));
    assert_eq!((typed.status, &typed.body["field"]), (422, &json!("read_only")), "{typed:?}");
    let table = share(json!({ "act": "set", "name": "data", "keys": { "recycle": { "a": 1 } } }));
    assert_eq!((table.status, &table.body["field"]), (400, &json!("recycle")));
    let add = share(json!({ "act": "add", "name": "more", "keys": { "path": more } }));
    assert_eq!(add.status, 200, "{add:?}");
    let again = share(json!({ "act": "add", "name": "MORE", "keys": { "path": more } }));
    assert_eq!((again.status, &again.body["field"]), (422, &json!("name")));
    let lost = share(json!({ "act": "add", "name": "lost", "keys": { "path": "/nowhere" } }));
    assert_eq!((lost.status, &lost.body["field"]), (503, &json!("path")), "{lost:?}");
    assert!(lost.body["command"].as_str().unwrap().contains("&& systemctl restart frevo"));
    let absent = desk.place.path("data/absent");
    let absent = share(json!({ "act": "add", "name": "absent", "keys": { "path": absent } }));
    assert_eq!(absent.status, 422, "{absent:?}");
    let keys = json!({ "path": desk.place.path("data"), "name": "other" });
    let named = share(json!({ "act": "add", "name": "twice", "keys": keys }));
    assert_eq!((named.status, &named.body["field"]), (400, &json!("name")));
    let rate =
        json!({ "act": "add", "name": "slow", "keys": { "read": "1M", "shares": ["more"] } });
    assert_eq!(desk.change(PATHS[2], rate).status, 200);
    let used = share(json!({ "act": "remove", "name": "more" }));
    assert_eq!(used.status, 422, "a limit is for it: {used:?}");
    let gone = desk.change(PATHS[2], json!({ "act": "remove", "name": "slow" }));
    assert_eq!(gone.status, 200, "{gone:?}");
    assert_eq!(share(json!({ "act": "remove", "name": "more" })).status, 200);
    let text = desk.text();
    for kept in ["# the office", "# first", "# disk 2", "read_only = true", "allow = [\"ann\"]"] {
        assert!(text.contains(kept), "{kept} not in {text}");
    }
    assert!(!text.contains("more") && !text.contains("slow"), "{text}");
    let status = desk.ask("GET", "/status", &bearer(LOOK), &Value::Null).body;
    let data =
        status["shares"]["rows"].as_array().unwrap().iter().find(|row| row["name"] == "data");
    assert_eq!(data.unwrap()["read_only"], true, "the running server has it");
    desk.run_with(&["check"], "").succeeds();
    let lines = desk.audit();
    let set = lines.iter().find(|line| line["change"] == "set-share").unwrap();
    assert_eq!(set["keys"], r#"{"allow":["ann"],"read_only":true}"#);
    assert!(lines.iter().any(|line| line["change"] == "add-rate" && line["target"] == "slow"));
}

/// A confined server has given up the right to write its configuration.
#[test]
fn without_the_right_to_write_the_command_is_told() {
    let desk = Desk::new("");
    let check = desk.run_with(&["check"], "");
    if !check.succeeds().contains("files (Landlock)") {
        return;
    }
    let before = desk.text();
    assert!(desk.get(PATHS[1])["read_only"].as_str().unwrap().contains("may not write"));
    assert_eq!(desk.get(PATHS[0])["read_only"], Value::Null);
    let change = json!({ "act": "set", "name": "data", "keys": { "comment": "it's ours" } });
    let told = desk.change(PATHS[1], change);
    assert_eq!(told.status, 503, "{told:?}");
    let config = text(&desk.config);
    let command = format!(
        r"frevo share set data 'comment=it'\''s ours' -c {config} && frevo reload -c {config}"
    );
    assert_eq!(told.body["command"], command);
    assert_eq!(desk.text(), before);
    // The command says it right.
    desk.run_with(&["share", "set", "data", "comment=it's ours"], "").succeeds();
    assert!(desk.text().contains("comment = \"it's ours\""));
}
