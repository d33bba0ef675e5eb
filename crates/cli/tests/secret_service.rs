//! `frevo login` with a Secret Service: a fake one, which is its own bus.

mod harness;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use frevo_crypto::{hkdf_key, open_cbc, seal_cbc};
use frevo_discovery::dbus::{Marshal, Unmarshal};
use harness::world::World;
use harness::{Said, said};

/// The secret that the service keeps: the attributes of its item, and the password.
type StoredSecret = Arc<Mutex<Option<(Vec<u8>, Vec<u8>)>>>;

/// A call that the service got.
struct Call {
    serial: u32,
    path: String,
    member: String,
    body: Vec<u8>,
}

fn read_call(stream: &mut UnixStream) -> Option<Call> {
    let mut head = [0; 16];
    stream.read_exact(&mut head).ok()?;
    let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
    let fields_len = number(12) as usize;
    let mut rest = vec![0; fields_len.next_multiple_of(8) + number(4) as usize];
    stream.read_exact(&mut rest).unwrap();
    let body = rest.split_off(fields_len.next_multiple_of(8));
    let (mut path, mut member, mut at) = (String::new(), String::new(), 0);
    while at < fields_len {
        let (code, kind) = (rest[at], rest[at + 2]);
        at += 4;
        if kind == b'g' {
            at += usize::from(rest[at]) + 2;
        } else {
            let len = u32::from_le_bytes(rest[at..at + 4].try_into().unwrap()) as usize;
            let text = String::from_utf8(rest[at + 4..at + 4 + len].to_vec()).unwrap();
            match code {
                1 => path = text,
                3 => member = text,
                _ => {}
            }
            at += len + 5;
        }
        at = at.next_multiple_of(8);
    }
    Some(Call { serial: number(8), path, member, body })
}

/// Begins a field of a header.
fn field<'a>(fields: &'a mut Marshal, code: u8, kind: &str) -> &'a mut Marshal {
    fields.align(8).byte(code).variant(kind)
}

/// Writes a return (2), an error (3) or a signal (4).
fn send(stream: &mut UnixStream, kind: u8, about: (u32, &str), signature: &str, body: &Marshal) {
    let (serial, path) = about;
    let mut fields = Marshal::default();
    field(&mut fields, 5, "u").uint32(serial);
    if kind == 4 {
        field(&mut fields, 1, "o").string(path);
    }
    if !signature.is_empty() {
        field(&mut fields, 8, "g").variant(signature);
    }
    let (fields, body) = (fields.as_bytes().to_vec(), body.as_bytes());
    let mut message = vec![b'l', kind, 0, 1];
    for number in [body.len(), 7, fields.len()] {
        message.extend(u32::try_from(number).unwrap().to_le_bytes());
    }
    message.extend(&fields);
    message.resize(message.len().next_multiple_of(8), 0);
    message.extend(body);
    stream.write_all(&message).unwrap();
}

/// Serves one connection. The service's private key is 1: its public key is the generator, and the
/// shared secret is the public key of the client.
fn serve(mut stream: UnixStream, kept: &StoredSecret, dismisses: bool) {
    let mut line = Vec::new();
    while !line.ends_with(b"DATA\r\n") {
        let mut byte = [0];
        if stream.read_exact(&mut byte).is_err() {
            return;
        }
        line.extend(byte);
    }
    stream.write_all(b"DATA\r\nOK 0123\r\n").unwrap();
    let mut begin = [0; 7];
    stream.read_exact(&mut begin).unwrap();
    let mut key = [0; 16];
    while let Some(call) = read_call(&mut stream) {
        let mut r = Unmarshal::new(&call.body);
        let mut w = Marshal::default();
        let signature = match &*call.member {
            "Hello" => {
                w.string(":1.1");
                "s"
            }
            "OpenSession" => {
                assert_eq!(r.string(), Some("dh-ietf1024-sha256-aes128-cbc-pkcs7"));
                assert_eq!(r.variant(), Some("ay"));
                let public = r.byte_array().unwrap();
                assert_eq!(public.len(), 128);
                key = *hkdf_key(public);
                w.variant("ay").byte_array(&[2]).string("/session");
                "vo"
            }
            "ReadAlias" => {
                w.string("/collection");
                "o"
            }
            "Unlock" => {
                w.array(4, |_| {}).string("/prompt");
                "aoo"
            }
            "CreateItem" => {
                let properties = r.array(8).unwrap().to_vec();
                r.align(8).unwrap();
                assert_eq!(r.string(), Some("/session"));
                let iv = r.byte_array().unwrap().try_into().unwrap();
                let password = open_cbc(&key, &iv, r.byte_array().unwrap()).unwrap();
                *kept.lock().unwrap() = Some((properties, password.to_vec()));
                w.string("/item").string("/");
                "oo"
            }
            "SearchItems" => {
                let is_there = kept.lock().unwrap().is_some();
                w.array(4, |_| {}).array(4, |w| {
                    if is_there {
                        w.string("/item");
                    }
                });
                "aoao"
            }
            "GetSecret" => {
                let password = kept.lock().unwrap().clone().unwrap().1;
                let sealed = seal_cbc(&key, &[5; 16], &password);
                w.string("/session").byte_array(&[5; 16]).byte_array(&sealed).string("text/plain");
                "(oayays)"
            }
            "Delete" => {
                assert_eq!(call.path, "/item");
                *kept.lock().unwrap() = None;
                w.string("/");
                "o"
            }
            "AddMatch" | "Prompt" => "",
            other => panic!("{other} was called"),
        };
        if call.member == "Prompt" {
            // The signal that the prompt has ended is sent before the method returns, as a service
            // may do.
            let mut done = Marshal::default();
            done.uint32(u32::from(dismisses)).variant("s").string("");
            send(&mut stream, 4, (0, &call.path), "bv", &done);
        }
        send(&mut stream, 2, (call.serial, ""), signature, &w);
    }
}

/// Starts a service at a socket, for as long as the test runs.
fn start(socket: &Path, dismisses: bool) -> StoredSecret {
    let kept = StoredSecret::default();
    let listener = UnixListener::bind(socket).unwrap();
    let service = Arc::clone(&kept);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            serve(stream.unwrap(), &service, dismisses);
        }
    });
    kept
}

/// Runs a command with the service, and a password if one is given.
fn run(world: &World, socket: &Path, arguments: &[&str], password: Option<&str>) -> Said {
    let mut command = world.place.command(arguments);
    command.env("DBUS_SESSION_BUS_ADDRESS", format!("unix:path={}", socket.display()));
    if let Some(password) = password {
        command.env("FREVO_PASSWORD", password);
    }
    said(command.output().unwrap())
}

#[test]
fn a_password_is_kept_by_the_secret_service_and_removed_there() {
    let world = World::new();
    let socket = world.place.path("bus");
    let kept = start(&socket, false);
    let server = format!("smb://ann@{}", world.address);
    let run = |arguments: &[&str], password| run(&world, &socket, arguments, password);
    let told = run(&["login", &server], Some("secret"));
    told.succeeds();
    assert!(told.err.contains("is saved in the Secret Service"), "{told:?}");
    let (properties, secret) = kept.lock().unwrap().clone().unwrap();
    let properties = String::from_utf8_lossy(&properties).into_owned();
    assert!(properties.contains(&world.address) && properties.contains("ann"), "{properties}");
    assert_eq!(secret.len(), 32, "an NT hash");
    let file = || fs::read_to_string(world.place.path(".config/frevo/servers")).unwrap();
    assert!(!file().contains("nt_hash") && file().contains("secret-service"), "{}", file());
    run(&["ls", &world.url("")], None).succeeds();
    assert!(run(&["login", "--json"], None).succeeds().contains("\"store\":\"secret-service\""));
    // Without the Secret Service the error says what the user can do.
    world.place.run(&["ls", &world.url("")]).fails(4, &["Secret Service", "--store file"]);
    run(&["logout", &server], None).succeeds();
    assert!(kept.lock().unwrap().is_none());
    run(&["ls", &world.url("")], None).fails(4, &["frevo login"]);
    // With `--store file` the password is stored in the file, without asking the Secret Service.
    run(&["login", "--store", "file", &server], Some("secret")).succeeds();
    assert!(kept.lock().unwrap().is_none() && file().contains("nt_hash"));
    let nowhere = ["login", "--store", "secret-service", &*server];
    let mut command = world.place.command(&nowhere);
    said(command.env("FREVO_PASSWORD", "secret").output().unwrap()).fails(1, &["--store file"]);
}

#[test]
fn a_keyring_that_stays_locked_takes_no_password() {
    let world = World::new();
    let socket = world.place.path("bus");
    let kept = start(&socket, true);
    let server = format!("smb://ann@{}", world.address);
    let told = run(&world, &socket, &["login", &server], Some("secret"));
    told.fails(1, &["was not unlocked", "--store file"]);
    assert!(kept.lock().unwrap().is_none());
    assert!(!world.place.path(".config/frevo/servers").exists());
}
