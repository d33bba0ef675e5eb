//! The commands for administrators against a server that runs.

mod harness;
#[path = "admin/managing.rs"]
mod managing;
#[path = "admin/searching.rs"]
mod searching;
#[path = "admin/undo.rs"]
mod undo;

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use harness::world::World;
use harness::{PATIENCE, Said, Sandbox, Serving, free_port, text};
use serde_json::Value;

/// A server with an admin socket in its state directory, and ann's account.
struct Site {
    world: World,
}

impl Site {
    fn new() -> Self {
        Self { world: World::new() }
    }

    fn socket(&self) -> PathBuf {
        self.world.place.path("state/admin.sock")
    }

    fn admin(&self, arguments: &[&str]) -> Said {
        let socket = self.socket();
        let socket = ["--socket", text(&socket)];
        self.world.place.run(&[arguments, &socket].concat())
    }

    fn status(&self) -> Value {
        serde_json::from_str(self.admin(&["status", "--json"]).succeeds()).unwrap()
    }

    /// Waits until a status is as it should be.
    fn until(&self, is: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let status = self.status();
            if is(&status) {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "{status:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A client that watches the share, with a folder open, until it is killed.
    fn watcher(&self) -> std::process::Child {
        let url = self.world.url("");
        self.world.command(&["watch", &url]).stdout(Stdio::null()).spawn().unwrap()
    }
}

fn rows<'a>(status: &'a Value, list: &str) -> &'a [Value] {
    status[list]["rows"].as_array().unwrap()
}

#[test]
fn a_status_shows_the_session_of_a_client_and_a_kick_ends_it() {
    let site = Site::new();
    let mut watcher = site.watcher();
    let status = site.until(|status| rows(status, "opens").len() == 1);
    let session = &rows(&status, "sessions")[0];
    assert_eq!((&session["user"], &session["dialect"]), (&"ann".into(), &"3.1.1".into()));
    assert!(session["encryption"].is_string(), "{session}");
    assert!(session["activity"]["operations"].as_u64().unwrap() > 1);
    assert_eq!(rows(&status, "opens")[0]["kind"], "directory");

    let shown = site.admin(&["status"]);
    let shown = shown.succeeds();
    for word in ["1 session", "USER", "ann", "3.1.1", "SHARE"] {
        assert!(shown.contains(word), "{word} not in {shown}");
    }
    let opens: Value = serde_json::from_str(site.admin(&["opens", "--json"]).succeeds()).unwrap();
    assert_eq!(opens["rows"].as_array().unwrap().len(), 1);
    assert_eq!(site.admin(&["opens", "--user", "bob"]).succeeds(), "no files are open\n");

    let id = session["id"].as_str().unwrap();
    let kicked = site.admin(&["kick", id]);
    assert!(kicked.succeeds().starts_with(&format!("session {id}: ended 1 session, 1 open file")));
    site.until(|status| rows(status, "sessions").iter().all(|row| row["id"] != id));
    site.admin(&["kick", id]).fails(6, &["no session, user, open file or share"]);
    site.admin(&["kick", "session:zz"]).fails(2, &["is no id"]);
    watcher.kill().unwrap();
    watcher.wait().unwrap();
}

#[test]
fn an_open_file_is_closed_by_its_id_and_a_share_by_its_name() {
    let site = Site::new();
    let mut watcher = site.watcher();
    let status = site.until(|status| rows(status, "opens").len() == 1);
    let open = rows(&status, "opens")[0].clone();
    let target = format!("open:{}", open["id"].as_str().unwrap());
    let kicked: Value =
        serde_json::from_str(site.admin(&["kick", &target, "--json"]).succeeds()).unwrap();
    assert_eq!(kicked["opens"], 1);
    site.until(|status| rows(status, "opens").iter().all(|row| row["id"] != open["id"]));
    let share = format!("share:{}", open["share"].as_str().unwrap());
    let mut again = site.watcher();
    site.until(|status| rows(status, "opens").len() == 1);
    assert!(site.admin(&["kick", &share]).succeeds().contains("of the share"));
    for child in [&mut watcher, &mut again] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn the_log_level_changes_while_the_server_runs() {
    let site = Site::new();
    assert_eq!(site.admin(&["log-level"]).succeeds(), "log level: info\n");
    let said = site.admin(&["log-level", "frevo::tree=debug"]);
    assert!(said.succeeds().contains("frevo::tree=debug") && said.out.contains("info"), "{said:?}");
    let said = site.admin(&["log-level", "debug", "--client", "127.0.0.1", "--json"]);
    let levels: Value = serde_json::from_str(said.succeeds()).unwrap();
    assert_eq!(
        (&levels["client"]["address"], &levels["client"]["filter"]),
        (&"127.0.0.1".into(), &"debug".into())
    );
    let said = site.admin(&["log-level", "off", "--client", "127.0.0.1"]);
    assert!(!said.succeeds().contains("127.0.0.1"), "{said:?}");
    site.admin(&["log-level", "frevo=loud"]).fails(2, &["log level", "use error, warn"]);
    site.admin(&["log-level", "verbose"]).fails(2, &["no such level"]);
}

/// Lines about one client come beside all others, and stop.
#[test]
fn one_client_is_logged_closely() {
    let place = Sandbox::new();
    place.folder("data");
    let log = place.path("log");
    let mut command = place.command(&[
        "serve",
        "data",
        "--listen",
        "127.0.0.1:0",
        "--state-dir",
        "state",
        "--user",
        "ann",
    ]);
    command.env("FREVO_PASSWORD", "correct horse").stderr(fs::File::create(&log).unwrap());
    let server = Serving::start(command);
    let socket = place.path("state/admin.sock");
    let level = |arguments: &[&str]| {
        place.run(&[&["log-level"], arguments, &["--socket", text(&socket)]].concat())
    };
    let list = || {
        let url = format!("smb://ann@{}/data", server.address);
        let mut command = place.command(&["ls", &url]);
        let output = command.env("FREVO_PASSWORD", "correct horse").output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let debug_lines = || {
        let text = fs::read_to_string(&log).unwrap();
        text.lines().filter(|line| line.contains("DEBUG")).count()
    };
    list();
    assert_eq!(debug_lines(), 0);
    level(&["debug", "--client", "192.0.2.1"]).succeeds();
    list();
    assert_eq!(debug_lines(), 0);
    level(&["debug", "--client", "127.0.0.1"]).succeeds();
    list();
    let began = Instant::now();
    while debug_lines() == 0 {
        assert!(began.elapsed() < PATIENCE, "{}", fs::read_to_string(&log).unwrap());
        std::thread::sleep(Duration::from_millis(10));
    }
    level(&["off", "--client", "127.0.0.1"]).succeeds();
    server.stop();
}

#[test]
fn without_a_server_the_commands_say_where_they_looked() {
    let place = Sandbox::new();
    let socket = place.path("nothing.sock");
    for command in [&["status"][..], &["opens"], &["kick", "ann"], &["log-level"]] {
        let said = place.run(&[command, &["--socket", text(&socket)]].concat());
        said.fails(5, &["no server runs here", "nothing.sock"]);
    }
}

/// A reload tells whether the configuration is in force, and a status tells it as long as it is not.
#[test]
fn a_reload_tells_what_is_not_in_force() {
    let place = Sandbox::new();
    let share = place.folder("data");
    let state = place.path("state");
    let configure = |more: &str| {
        let text = format!(
            "[server]\nlisten = [\"127.0.0.1:0\"]\nstate_dir = {state:?}\n\
             [[share]]\nname = \"data\"\npath = {share:?}\n{more}"
        );
        place.file("frevo.toml", &text, 0o600)
    };
    let config = configure("");
    let server = place.serve(&["-c", text(&config)]);
    let run = |command: &[&str]| place.run(&[command, &["-c", text(&config)]].concat());
    assert_eq!(run(&["reload"]).succeeds(), "the configuration was reloaded\n");

    configure("read_only = 7\n");
    run(&["reload"]).fails(3, &["refused", "the one before stays in force", "read_only"]);
    let status = run(&["status"]);
    assert!(
        status.succeeds().contains("the files of the configuration are refused since 20"),
        "{status:?}"
    );
    assert!(status.out.contains("read_only"), "{status:?}");
    let status: Value = serde_json::from_str(run(&["status", "--json"]).succeeds()).unwrap();
    assert!(status["configuration"]["refused"]["since"].as_u64() > Some(1_700_000_000), "{status}");
    assert_eq!(rows(&status, "shares").iter().filter(|row| row["name"] == "data").count(), 1);
    assert!(status["snapshots"].is_array() && status["quotas"].is_array(), "{status}");

    let lost = place.path("lost");
    configure(&format!("[[share]]\nname = \"lost\"\npath = {lost:?}\n"));
    let said = run(&["reload"]);
    said.succeeds();
    assert!(said.err.contains("the share lost is not served: "), "{said:?}");
    let status = run(&["status"]);
    assert!(status.succeeds().contains("the share lost is not served: "), "{status:?}");
    assert!(!status.out.contains("refused"), "{status:?}");
    let metrics = ask_unix(&state.join("admin.sock"), &get("/metrics", ""));
    assert!(metrics.contains("frevo_share_usable{share=\"lost\"} 0\n"), "{metrics}");

    configure("");
    let said = run(&["reload"]);
    assert_eq!((said.succeeds(), &*said.err), ("the configuration was reloaded\n", ""));
    assert!(!run(&["status"]).succeeds().contains("not served"));
    let pid = server.pid().to_string();
    let socket = place.path("nothing.sock");
    let said = place.run(&["reload", "--pid", &pid, "--socket", text(&socket)]);
    said.succeeds();
    assert!(said.err.contains("SIGHUP was sent"), "{said:?}");
    server.stop();
}

fn ask_unix(socket: &std::path::Path, request: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    // If the request was too long, the server may reset the connection after its answer, so an
    // error is ignored.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn get(path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n")
}

#[test]
fn metrics_are_in_the_format_of_prometheus() {
    let site = Site::new();
    site.world.run(&["ls", &site.world.url("")]).succeeds();
    let answer = ask_unix(&site.socket(), &get("/metrics", ""));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("openmetrics-text"), "{head}");
    let mut families = std::collections::HashMap::new();
    let mut samples = 0;
    let mut last = (String::new(), 0.0);
    for line in body.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(families.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} twice");
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        let name = series.split('{').next().unwrap();
        let suffixes = ["_total", "_bucket", "_sum", "_count", ""];
        let family = suffixes
            .iter()
            .filter_map(|suffix| name.strip_suffix(suffix))
            .find(|family| families.contains_key(*family))
            .unwrap_or_else(|| panic!("{name} has no type"));
        assert!(family.starts_with("frevo_"), "{family}");
        if families[family] == "counter" {
            assert!(name.ends_with("_total"), "{name}");
        }
        if name.ends_with("_bucket") {
            let of = series.split("class=").nth(1).unwrap_or_default().to_owned();
            // The buckets of a histogram are cumulative, so a count is never below the one before
            // it.
            assert!(of != last.0 || value >= last.1, "{line}");
            last = (of, value);
        }
        samples += 1;
    }
    assert!(samples > 40, "{body}");
    assert!(body.trim_end().ends_with("# EOF"));
    for wanted in ["frevo_sessions", "frevo_sent_bytes", "frevo_request_duration_seconds"] {
        assert!(families.contains_key(wanted), "{wanted} not in {families:?}");
    }
    let dashboard = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/frevo-grafana.json");
    let dashboard = fs::read_to_string(dashboard).unwrap();
    serde_json::from_str::<Value>(&dashboard).unwrap();
    let words = dashboard.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let mut drawn = HashSet::new();
    for name in words.filter(|word| word.starts_with("frevo_")) {
        let names = ["", "_total", "_bucket", "_count"].map(|suffix| name.strip_suffix(suffix));
        let family = names.into_iter().flatten().find(|family| families.contains_key(*family));
        drawn.insert(family.unwrap_or_else(|| panic!("{name} of the dashboard")));
    }
    // The dashboard must draw every metric that the server has, and the document must name it.
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/admin.md");
    let document = fs::read_to_string(document).unwrap();
    for family in families.keys() {
        assert!(drawn.contains(&**family), "{family} is not in the dashboard");
        assert!(document.contains(&format!("`{family}")), "{family} is not in docs/admin.md");
    }
    assert!(body.contains("le=\"+Inf\"") && body.contains("class=\"list\""), "{body}");
}

#[test]
fn health_is_told_and_nonsense_is_refused() {
    let site = Site::new();
    let of = |request: &str| {
        let answer = ask_unix(&site.socket(), request);
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(of(&get("/healthz", "")), "200");
    // The admin socket is open before the server accepts clients, so `/readyz` does not answer 200
    // at once.
    let began = Instant::now();
    while of(&get("/readyz", "")) != "200" {
        assert!(began.elapsed() < PATIENCE, "the server is not ready");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(of(&get("/nothing", "")), "404");
    assert_eq!(of(&get("/status?limit=x", "")), "400");
    assert_eq!(of(&get("/kick", "")), "405");
    let long = format!("X: {}\r\n", "a".repeat(40_000));
    let refused = of(&get("/status", &long));
    assert!(matches!(&*refused, "431" | ""), "{refused}");
    let body = "x".repeat(10_000);
    let post = format!(
        "POST /kick HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let refused = of(&post);
    assert!(matches!(&*refused, "413" | ""), "{refused}");
    site.status();
}

#[test]
fn a_program_that_holds_connections_keeps_nobody_out() {
    let site = Site::new();
    let held: Vec<UnixStream> = (0..3 * frevo_admin::limits::CONNECTIONS)
        .map(|_| UnixStream::connect(site.socket()).unwrap())
        .collect();
    // One program holds all these connections open, but that program and any other program still
    // get an answer.
    assert!(ask_unix(&site.socket(), &get("/status", "")).contains(" 200 "));
    site.status();
    drop(held);
}

/// On TCP nothing is told without the token, which is in no log.
#[test]
fn tcp_needs_the_token() {
    let place = Sandbox::new();
    let share = place.folder("data");
    let state = place.folder("state");
    fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let token = "correct-horse-battery";
    let token_file = place.file("token", &format!("{token}\n"), 0o600);
    let port = free_port();
    let config = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\nstate_dir = {state:?}\nlog_level = \"trace\"\n\
         [admin]\nlisten = \"127.0.0.1:{port}\"\ntoken_file = {token_file:?}\n\
         [[share]]\nname = \"data\"\npath = {share:?}\n"
    );
    let config = place.file("frevo.toml", &config, 0o600);
    let server = place.serve(&["-c", text(&config)]);
    let ask = |request: String| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(ask(get("/healthz", "")), "200");
    // The files of the web page contain no data of the server, so they need no token; all other
    // paths do.
    assert_eq!(ask(get("/", "")), "200");
    for path in ["/metrics", "/history", "/shares", "/nothing"] {
        assert_eq!(ask(get(path, "")), "401", "{path}");
    }
    assert_eq!(ask(get("/status", "Authorization: Bearer wrong-wrong-wrong-wrong\r\n")), "401");
    assert_eq!(ask(get("/status", &format!("Authorization: Bearer {token}\r\n"))), "200");
    // The local socket needs no token. Clients that keep the TCP port busy must not block the
    // socket, nor other TCP clients.
    let strangers: Vec<TcpStream> = (0..frevo_admin::limits::CONNECTIONS + 8)
        .map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap())
        .collect();
    let socket = state.join("admin.sock");
    assert!(ask_unix(&socket, &get("/status", "")).contains(" 200 "));
    assert_eq!(ask(get("/status", &format!("Authorization: Bearer {token}\r\n"))), "200");
    drop(strangers);
    assert_eq!(ask(get("/healthz", "")), "200");
    let said = server.stop();
    assert!(!said.err.contains(token), "{}", said.err);
}

#[test]
fn a_configuration_that_listens_without_a_token_is_refused() {
    let place = Sandbox::new();
    let config = place.file("frevo.toml", "[admin]\nlisten = \"127.0.0.1:9445\"\n", 0o600);
    place.run(&["check", "-c", text(&config)]).fails(3, &["token_file"]);
}

/// The head and the body of an answer on the Unix socket.
fn asked(site: &Site, path: &str, more: &str) -> (String, String) {
    let answer = ask_unix(&site.socket(), &get(path, more));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    (head.to_ascii_lowercase(), body.to_owned())
}

#[test]
fn the_page_comes_with_its_files_and_nothing_else_may_be_in_it() {
    let site = Site::new();
    let (head, html) = asked(&site, "/", "");
    assert!(head.contains(" 200 ") && head.contains("content-type: text/html; charset=utf-8"));
    let mut paths = vec![String::from("/")];
    for part in html.split(" src=\"").chain(html.split("rel=\"stylesheet\" href=\"")).skip(1) {
        let path = part.split('"').next().unwrap();
        if path.starts_with("page/") {
            paths.push(format!("/{path}"));
        }
    }
    for module in ["connection", "charts", "tables", "format"] {
        paths.push(format!("/page/{module}.js"));
    }
    assert!(paths.len() >= 8, "{paths:?}");
    for path in &paths {
        let (head, body) = asked(&site, path, "");
        assert!(head.contains(" 200 ") && !body.is_empty(), "{path}: {head}");
        let kind = match path.rsplit('.').next() {
            Some("js") => "text/javascript",
            Some("css") => "text/css",
            _ => "text/html",
        };
        for header in [
            &*format!("content-type: {kind}; charset=utf-8"),
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; \
             connect-src 'self'; img-src 'self' data:;",
            "cache-control: no-store",
        ] {
            assert!(head.contains(header), "{path}: {header} not in {head}");
        }
    }
    assert!(asked(&site, "/page/nothing.js", "").0.contains(" 404 "));
}

#[test]
fn the_history_and_the_health_of_shares_are_told() {
    let site = Site::new();
    let of = |path: &str| -> Value { serde_json::from_str(&asked(&site, path, "").1).unwrap() };
    let history = of("/history");
    assert_eq!((&history["interval_seconds"], &history["samples_max"]), (&5.into(), &720.into()));
    assert!(history["p99_us"].is_array() && history["time"].is_array(), "{history}");
    assert!(asked(&site, "/history?since=x", "").0.contains(" 400 "));

    let until = |state: &str| {
        let began = Instant::now();
        loop {
            let shares = of("/shares");
            let share =
                shares["rows"].as_array().unwrap().iter().find(|row| row["name"] == "share");
            let share = share.unwrap_or_else(|| panic!("{shares}")).clone();
            if share["state"] == state {
                return share;
            }
            assert!(began.elapsed() < PATIENCE, "{shares}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let share = until("ok");
    assert!(share["total"].as_u64() >= share["available"].as_u64() && share["total"] != 0);
    let metrics = || asked(&site, "/metrics", "").1;
    assert!(metrics().contains("frevo_share_usable{share=\"share\"} 1"), "{}", metrics());
    fs::remove_dir_all(site.world.place.path("share")).unwrap();
    let share = until("failed");
    assert!(share["reason"].as_str().unwrap().contains("its folder was removed"), "{share}");
    assert!(metrics().contains("frevo_share_usable{share=\"share\"} 0"), "{}", metrics());
}

/// A browser that reaches the socket through a tunnel does not lend it to other sites.
#[test]
fn pages_of_other_sites_reach_nothing() {
    let site = Site::new();
    let status = |path: &str, more: &str| {
        let answer = asked(&site, path, more).0;
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(status("/status", "Sec-Fetch-Site: same-origin\r\n"), "200");
    assert_eq!(status("/status", "Sec-Fetch-Site: cross-site\r\n"), "403");
    assert_eq!(status("/status", "Origin: http://evil.example\r\n"), "403");
    let host = |host: &str| {
        let request = format!("GET /status HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        ask_unix(&site.socket(), &request).split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(host("localhost:9445"), "200");
    assert_eq!(host("rebound.example"), "403");
}

#[test]
fn the_admin_socket_goes_with_a_clean_stop() {
    let mut site = Site::new();
    assert!(site.socket().exists());
    site.world.stop();
    assert!(!site.socket().exists());
    site.world.start();
    site.world.kill();
    // A killed server leaves its socket file behind, which the next start must replace.
    assert!(site.socket().exists());
    site.world.start();
    site.status();
}
