//! `--capture` and `frevo decode`: a capture has all messages, decrypted, and no secret of a logon.

mod harness;

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use harness::world::World;
use harness::{PATIENCE, Sandbox, Serving, said, text};
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use rc4::StreamCipher;
use serde_json::Value;

/// The NT hash of `secret`.
const NT_HASH: [u8; 16] = [
    0x87, 0x8D, 0x80, 0x14, 0x60, 0x6C, 0xDA, 0x29, 0x67, 0x7A, 0x44, 0xEF, 0xA1, 0x35, 0x3F, 0xC7,
];

/// The messages of a capture.
fn messages(world: &World, file: &Path) -> Vec<Value> {
    let said = world.run(&["decode", text(file), "--json"]);
    said.succeeds().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn positions(file: &[u8], pattern: &[u8]) -> Vec<usize> {
    let windows = file.windows(pattern.len()).enumerate();
    windows.filter(|(_, window)| *window == pattern).map(|(at, _)| at).collect()
}

/// A field of the first AUTHENTICATE_MESSAGE in a file: MS-NLMP 2.2.1.3.
fn field(file: &[u8], at: usize) -> Vec<u8> {
    let start = positions(file, b"NTLMSSP\0\x03\0\0\0")[0];
    let field = &file[start + at..start + at + 8];
    let len = usize::from(u16::from_le_bytes([field[0], field[1]]));
    let offset = u32::from_le_bytes(field[4..8].try_into().unwrap()) as usize;
    file[start + offset..start + offset + len].to_vec()
}

fn hmac_md5(key: &[u8], data: &[u8]) -> [u8; 16] {
    let mut mac = Hmac::<Md5>::new_from_slice(key).unwrap();
    mac.update(data);
    mac.finalize().into_bytes().into()
}

#[test]
fn a_capture_has_what_an_encrypted_connection_carried() {
    let world = World::new();
    fs::write(world.place.path("a.txt"), vec![b'x'; 300_000]).unwrap();
    let (source, file) = (world.place.path("a.txt"), world.place.path("put.pcapng"));
    let (url, capture) = (world.url(""), text(&file));
    let said = world.run(&["put", "-e", "--capture", capture, text(&source), &url]);
    said.succeeds();
    assert!(said.err.contains("put.pcapng: ") && said.err.contains(" frames"), "{said:?}");
    assert!(!said.err.contains("left out"), "{said:?}");
    let metadata = fs::metadata(&file).unwrap();
    assert_eq!(metadata.mode() & 0o777, 0o600);
    let messages = messages(&world, &file);
    let of = |command: &str, is_answer: bool| -> Vec<&Value> {
        let is = |one: &&Value| one["command"] == command && one["answer"] == is_answer;
        messages.iter().filter(is).collect()
    };
    for command in ["NEGOTIATE", "SESSION_SETUP", "TREE_CONNECT", "CREATE", "WRITE", "CLOSE"] {
        let (asked, answered) = (of(command, false).len(), of(command, true).len());
        assert!(asked > 0 && asked == answered, "{command}: {asked} {answered}");
    }
    let written: u64 =
        of("WRITE", false).iter().map(|one| one["data_bytes"].as_u64().unwrap()).sum();
    assert_eq!(written, 300_000);
    // The content of the file is left out, and that is told.
    let cut: u64 = of("WRITE", false).iter().map(|one| one["cut_bytes"].as_u64().unwrap()).sum();
    let writes = of("WRITE", false).len() as u64;
    assert_eq!(cut, 300_000 - 256 * writes);
    let told = of("WRITE", false)[0]["text"].as_str().unwrap();
    assert!(told.contains(" bytes at ") && told.contains(" (data cut: "), "{told}");
    let content = fs::read(&file).unwrap();
    assert!(positions(&content, &[b'x'; 256]).len() as u64 == writes);
    assert!(positions(&content, &[b'x'; 257]).is_empty());
    let name = of("WRITE", false)[0]["name"].as_str().unwrap();
    assert!(name.contains("\\share\\") && name.ends_with(".frevo-part"), "{name}");
    let renamed = of("SET_INFO", false);
    assert!(renamed.iter().any(|one| one["text"].as_str().unwrap().ends_with("to a.txt")));
    assert!(of("WRITE", true)[0]["latency_us"].as_f64().unwrap() > 0.0);
    // A line for people says the same.
    let lines = world.run(&["decode", capture]);
    assert_eq!(lines.succeeds().lines().count(), messages.len());
    assert!(lines.out.contains("< CREATE") && lines.out.contains("SUCCESS"), "{lines:?}");
    // By standard input, too.
    let stdin = Stdio::from(fs::File::open(&file).unwrap());
    let piped = world.command(&["decode", "-"]).stdin(stdin).output().unwrap();
    assert_eq!(String::from_utf8(piped.stdout).unwrap(), lines.out);

    let again = world.run(&["ls", "--capture", capture, &url]);
    again.fails(2, &["put.pcapng", "choose another name"]);
    assert_eq!(fs::metadata(&file).unwrap().len(), metadata.len());
    let (link, target) = (world.place.path("link"), world.place.path("target"));
    symlink(&target, &link).unwrap();
    world.run(&["ls", "--capture", text(&link), &url]).fails(2, &["link"]);
    assert!(!target.exists());
}

#[test]
fn a_capture_holds_no_secret_of_a_logon() {
    let world = World::new();
    let (plain, secret) = (world.place.path("plain"), world.place.path("secret"));
    let url = world.url("");
    world.run(&["ls", "--capture", text(&plain), &url]).succeeds();
    world.run(&["ls", "--capture", text(&secret), "--capture-secrets", &url]).succeeds();
    let [plain, secret] = [&plain, &secret].map(|file| fs::read(file).unwrap());
    for file in [&plain, &secret] {
        assert!(positions(file, &NT_HASH).is_empty());
        let password: Vec<u8> = "secret".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(positions(file, &password).is_empty());
    }
    // LmChallengeResponse, NtChallengeResponse, EncryptedRandomSessionKey.
    for at in [12, 20, 52] {
        let (blank, kept) = (field(&plain, at), field(&secret, at));
        assert!(blank.iter().all(|byte| *byte == 0), "{at}");
        assert_eq!(at == 12, kept.iter().all(|byte| *byte == 0), "{at}");
        assert_eq!(blank.len(), kept.len());
    }
    assert_eq!(field(&plain, 36), field(&secret, 36), "the name of the user stays");
    // The session key is in no capture: MS-NLMP 3.3.2, 3.4.5.1 and 3.1.5.1.2.
    let (domain, user) = (field(&secret, 28), field(&secret, 36));
    let user = String::from_utf16(
        &user.chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect::<Vec<_>>(),
    );
    let names = user.unwrap().to_uppercase();
    let names: Vec<u8> = names.encode_utf16().flat_map(u16::to_le_bytes).chain(domain).collect();
    let response = field(&secret, 20);
    let base = hmac_md5(&hmac_md5(&NT_HASH, &names), &response[..16]);
    let mut session_key = field(&secret, 52);
    let mut twice = [0; 32];
    twice[..16].copy_from_slice(&base);
    twice[16..].copy_from_slice(&base);
    rc4::Rc4::new((&twice).into()).apply_keystream(&mut session_key);
    assert_eq!(session_key.len(), 16);
    for key in [&base[..], &session_key] {
        assert!(positions(&secret, key).is_empty());
    }
}

#[test]
fn a_capture_ends_at_its_largest_size_and_the_command_goes_on() {
    let world = World::new();
    fs::write(world.place.path("a"), vec![b'x'; 3 << 20]).unwrap();
    let (source, file) = (world.place.path("a"), world.place.path("f"));
    let limits = ["--capture-size", "64k", "--capture-data", "all"];
    let arguments = [&["put", "--capture", text(&file)], &limits[..], &[text(&source)]].concat();
    let said = world.run(&[&arguments[..], &[&world.url("")]].concat());
    said.succeeds();
    assert!(said.err.contains("ended at its largest size"), "{said:?}");
    assert!(fs::metadata(&file).unwrap().len() <= 64 << 10);
    assert_eq!(fs::metadata(world.there("a")).unwrap().len(), 3 << 20);
    let lines = world.run(&["decode", text(&file)]);
    assert!(lines.succeeds().contains("CREATE"));
    assert!(lines.err.contains("ended at its largest size"), "{lines:?}");
}

#[test]
fn a_file_that_is_no_capture_is_refused() {
    let world = World::new();
    let path = world.place.file("f", "GIF89a....", 0o600);
    world.run(&["decode", text(&path)]).fails(1, &["it is no capture"]);
    world.run(&["decode", "none"]).fails(6, &["cannot read none"]);
    world.run(&["decode", text(world.place.folder("d").as_path())]).fails(1, &["directory"]);
}

/// A server with the account ann.
fn start(place: &Sandbox) -> Serving {
    let config = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\nstate_dir = {:?}\n\
         [[share]]\nname = \"share\"\npath = {:?}\n",
        place.folder("state"),
        place.folder("share"),
    );
    place.file("frevo.toml", &config, 0o644);
    let add = ["user", "--config", "frevo.toml", "add", "ann", "--password-stdin"];
    place.run_with_input(&add, "secret\n").succeeds();
    let mut command = place.command(&["serve", "--config", "frevo.toml"]);
    command.stderr(fs::File::create(place.path("said")).unwrap());
    let mut server = Serving::start(command);
    let said = fs::read_to_string(place.path("said")).unwrap();
    let address = said.split("listening address=").nth(1).unwrap();
    server.address = address.split(' ').next().unwrap().to_owned();
    server
}

/// The arguments of the calls that change a password: opnums 55 and 73 of MS-SAMR.
fn changes(file: &[u8]) -> Vec<&[u8]> {
    let calls = positions(file, &[5, 0, 0]).into_iter().filter_map(|at| {
        let head = file.get(at..at + 24)?;
        let len = usize::from(u16::from_le_bytes([head[8], head[9]]));
        let auth_len = usize::from(u16::from_le_bytes([head[10], head[11]]));
        let is_change =
            head[4..8] == [0x10, 0, 0, 0] && matches!(head[22], 55 | 73) && head[23] == 0;
        is_change.then(|| file.get(at + 24..at + len - auth_len)).flatten()
    });
    calls.collect()
}

#[test]
fn a_capture_holds_no_change_of_a_password() {
    let place = Sandbox::new();
    let server = start(&place);
    let url = format!("smb://ann@{}", server.address);
    let change = |more: &[&str], lines: &str| {
        let arguments = [&["passwd", &url, "--password-stdin", "--capture"], more].concat();
        place.run_with_input(&arguments, lines).succeeds();
    };
    change(&["plain"], "secret\nother\n");
    change(&["kept", "--capture-secrets"], "other\nthird\n");
    let [plain, kept] = ["plain", "kept"].map(|name| fs::read(place.path(name)).unwrap());
    let is_blank = |call: &&[u8]| call.iter().all(|byte| *byte == 0);
    let calls = changes(&plain);
    assert!(!calls.is_empty() && calls.iter().all(is_blank), "{calls:?}");
    assert!(changes(&kept).iter().any(|call| !is_blank(call)));
}

#[test]
fn an_administrator_captures_a_running_server() {
    let world = World::new();
    let socket = world.place.path("state/admin.sock");
    let file = world.place.path("s.pcapng");
    let capture = |file: &Path, more: &[&str]| {
        let place = ["capture", text(file), "--server", "--socket", text(&socket)];
        world.place.command(&[&place[..], more].concat())
    };
    let child = capture(&file, &["--user", "ann", "--time", "60"]).spawn().unwrap();
    let began = Instant::now();
    while fs::metadata(&file).map_or(0, |metadata| metadata.len()) == 0 {
        assert!(began.elapsed() < PATIENCE, "no capture");
        std::thread::sleep(Duration::from_millis(10));
    }
    // A server makes one at a time, and nothing is left of a second one.
    let second = world.place.path("second");
    said(capture(&second, &["--all"]).output().unwrap()).fails(2, &["one at a time"]);
    assert!(!second.exists());
    fs::write(world.place.path("a"), vec![b'x'; 100_000]).unwrap();
    world.run(&["put", text(&world.place.path("a")), &world.url("")]).succeeds();
    let pid = child.id().to_string();
    let kill = std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(kill.success());
    let done = said(child.wait_with_output().unwrap());
    assert!(done.code == 0 && done.err.contains("left out: 0"), "{done:?}");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let messages = messages(&world, &file);
    let is = |one: &&Value| one["command"] == "WRITE" && one["data_bytes"] == 100_000;
    assert_eq!(messages.iter().filter(is).count(), 2, "{messages:#?}");
    assert!(messages.iter().all(|one| one["command"] != "NEGOTIATE"), "{messages:#?}");

    // One that ends by its time has its last block.
    let third = world.place.path("third");
    let timed = said(capture(&third, &["--all", "--time", "1"]).output().unwrap());
    assert!(timed.code == 0 && timed.err.contains("frames: 0, left out: 0"), "{timed:?}");
    // Without a target there is none.
    said(capture(&second, &[]).output().unwrap()).fails(2, &["--all"]);
    said(capture(&second, &["--session", "ann"]).output().unwrap()).fails(2, &["no id"]);
    said(capture(&third, &["--all"]).output().unwrap()).fails(2, &["choose another name"]);
}
