//! Limits of rate of a server that runs.

mod harness;

use std::fs;
use std::time::{Duration, Instant};

use harness::{PATIENCE, Sandbox, free_port, said, text};
use serde_json::Value;

/// A configuration with this limit of READs.
fn configuration(port: u16, limit: &str) -> String {
    format!(
        "[server]\nlisten = [\"127.0.0.1:{port}\"]\nstate_dir = \"state\"\ndiscovery = \"off\"\n\
         confinement = \"off\"\n[rpc]\nenabled = false\n\
         [[share]]\nname = \"share\"\npath = \"SHARE\"\n\
         [[user]]\nname = \"ann\"\npassword_file = \"PASSWORD\"\n{limit}"
    )
}

/// A download of 8 MiB under a limit of 64 KiB a second waits, is shown with the limit, and ends when a reload
/// takes that away.
#[test]
fn a_download_waits_for_its_limit_until_a_reload_ends_that() {
    let place = Sandbox::new();
    let content: Vec<u8> = (0..8_u32 << 20).map(|at| (at % 251) as u8).collect();
    fs::write(place.folder("share").join("file"), &content).unwrap();
    let (folder, password) = (place.path("share"), place.file("password", "secret", 0o600));
    let port = free_port();
    let write = |limit: &str| {
        let config = configuration(port, limit).replace("SHARE", text(&folder));
        let config = config.replace("PASSWORD", text(&password));
        let config = config.replace("\"state\"", &format!("{:?}", place.path("state")));
        place.file("frevo.toml", &config, 0o600)
    };
    let config = write("[[rate]]\nname = \"slow lane\"\nusers = [\"ann\"]\nread = \"64K\"\n");
    let server = place.serve(&["--config", text(&config)]);
    let url = format!("smb://ann@127.0.0.1:{port}/share/file");
    let copy = place.path("copy");
    let mut get = place.command(&["get", &url, text(&copy)]);
    let get = get.env("FREVO_PASSWORD", "secret").spawn().unwrap();

    let socket = place.path("state/admin.sock");
    let status =
        |more: &[&str]| place.run(&[&["status", "--socket", text(&socket)], more].concat());
    let began = Instant::now();
    loop {
        let status: Value = serde_json::from_str(status(&["--json"]).succeeds()).unwrap();
        let rate = &status["rates"]["rows"][0];
        assert_eq!(rate["name"], "slow lane");
        let sessions = status["sessions"]["rows"].as_array().unwrap();
        let is_held = sessions.iter().any(|session| session["limited_by"] == "slow lane");
        if is_held && rate["waiting"].as_u64() > Some(0) {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{status:#}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let shown = status(&[]);
    for word in ["LIMIT", "slow lane", "66 kB/s", "HELD SESSION"] {
        assert!(shown.succeeds().contains(word), "{word} not in {}", shown.out);
    }
    write("");
    server.signal("-HUP");
    said(get.wait_with_output().unwrap()).succeeds();
    assert!(fs::read(&copy).unwrap() == content, "the copy differs");
    let status: Value = serde_json::from_str(status(&["--json"]).succeeds()).unwrap();
    assert_eq!(status["rates"]["rows"], serde_json::json!([]));
    server.stop();
}
