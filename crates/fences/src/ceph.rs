//! `ceph`: a client of CephFS by its address and nonce, which the OSDs refuse while it is on their
//! blocklist.
//!
//! The kernel's client tells its address in debugfs, ceph-fuse by its admin socket. The blocklist is read and
//! changed by the program `ceph`, with a keyring of this host.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use frevo_cluster::fence::Fence;
use serde_json::Value;

use crate::fault::FenceFault;
use crate::limits::{
    CEPH_ANSWER_BYTES, CEPH_BLOCKED, CEPH_PATIENCE, CEPH_SOCKET_PATIENCE, ENTRIES, TEXT_BYTES,
};
use crate::mounts::{Mount, read};

/// The folder of the kernel's clients.
const CLIENTS: &str = "/sys/kernel/debug/ceph";
/// The folder of the sockets of ceph-fuse.
const SOCKETS: &str = "/run/ceph";
/// The user of CephX that `ceph` is where the host has its keyring; without it that is client.admin.
const USER: &str = "client.frevo";
/// The keyring of that user.
const KEYRING: &str = "/etc/ceph/ceph.client.frevo.keyring";
/// The keyring that `ceph` looks for otherwise.
const ADMIN_KEYRING: &str = "/etc/ceph/ceph.client.admin.keyring";

/// A client, as it speaks of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Own {
    /// `192.0.2.1:0/371`
    address: String,
    is_blocked: bool,
}

/// Returns the address of the client that mounted the file system in which `folder` is, by what the client
/// knows: [`check`] asks the monitors.
pub(crate) fn identity(folder: &Path) -> Result<Fence, FenceFault> {
    let name = folder.display();
    let mount = Mount::of(folder)?;
    let own = match mount.kind.as_str() {
        "ceph" => kernels(folder)?,
        "fuse.ceph-fuse" | "fuse.ceph" => of_mount(&mount)?.own,
        _ => return Err(FenceFault(format!("{name} is no CephFS; use another `fence`"))),
    };
    if own.is_blocked {
        return Err(refused(&own.address));
    }
    Ok(Fence::Ceph { client: own.address })
}

/// Asks the monitors whether they refuse a client of this node: it learns late that it is on the blocklist,
/// and a node whose keyring may not even read the list could fence nobody.
pub(crate) fn check(client: &str) -> Result<(), FenceFault> {
    if is_listed(&blocklist()?, client)? { Err(refused(client)) } else { Ok(()) }
}

fn refused(client: &str) -> FenceFault {
    FenceFault(format!(
        "CephFS refuses the client {client} of this node, which was fenced; {}",
        FenceFault::MOUNT_AGAIN
    ))
}

/// Returns a sentence if the client of a mount that can be used has caches that lose or hide writes.
///
/// With `client_oc` ceph-fuse 16.2 drops what it has not written when it learns that it is refused, and a sync that
/// comes after that succeeds. A fence comes after the last answer of a server, but the blocklist has other hands, too.
/// Without it the kernel is not told what other clients have written, and must cache nothing.
pub(crate) fn warning(folder: &Path) -> Option<String> {
    let mount = Mount::of(folder).ok()?;
    let socket = of_mount(&mount).ok()?.socket;
    has_caches(&socket).then(|| {
        format!(
            "the caches of the ceph-fuse of {} lose acknowledged writes if CephFS refuses it while this node serves, \
             or show old data; set `client_oc = false` and `fuse_disable_pagecache = true` below [client] in ceph.conf, \
             and mount it again",
            mount.point.display()
        )
    })
}

/// The values of a ceph-fuse that caches nothing.
const WITHOUT_CACHES: [(&str, &str); 2] =
    [("client_oc", "false"), ("fuse_disable_pagecache", "true")];

/// True if a ceph-fuse tells another value than one of [`WITHOUT_CACHES`].
fn has_caches(socket: &Path) -> bool {
    WITHOUT_CACHES.iter().any(|(name, wanted)| {
        let answer = ask(socket, &format!(r#"{{"prefix":"config get","var":"{name}"}}"#));
        let value = answer.as_ref().and_then(|answer| answer.get(*name)?.as_str());
        value.is_some_and(|value| value != *wanted)
    })
}

/// Puts a client on the blocklist. It is there when the program ends.
pub(crate) fn fence(client: &str) -> Result<(), FenceFault> {
    if !is_address(client) {
        return Err(FenceFault(format!("`{client}` is no address of a client of CephFS")));
    }
    run(adding(Path::new(KEYRING), client)).map(drop)
}

fn adding(keyring: &Path, client: &str) -> Command {
    let seconds = CEPH_BLOCKED.as_secs().to_string();
    ceph(keyring, &["osd", "blocklist", "add", client, &seconds])
}

/// The blocklist, as `ceph` prints it.
fn blocklist() -> Result<Vec<u8>, FenceFault> {
    run(ceph(Path::new(KEYRING), &["osd", "blocklist", "ls", "--format", "json"]))
}

/// True if an address is on a blocklist, however it is written there. Ceph 16.2.15 prints two lists: of clients,
/// and of ranges of addresses, which the fence does not make.
fn is_listed(blocklist: &[u8], address: &str) -> Result<bool, FenceFault> {
    let lists = serde_json::Deserializer::from_slice(blocklist).into_iter::<Vec<Value>>();
    let lists: Vec<_> = lists
        .collect::<Result<_, _>>()
        .map_err(|error| FenceFault::of("the answer of ceph osd blocklist ls", error))?;
    if lists.is_empty() {
        return Err(FenceFault("ceph osd blocklist ls gives no list".into()));
    }
    let wanted = client(address);
    let mut listed =
        lists.iter().flatten().filter_map(|entry| client(entry.get("addr")?.as_str()?));
    Ok(listed.any(|listed| Some(listed) == wanted))
}

/// The program `ceph` with fixed words, and with an address that was checked.
fn ceph(keyring: &Path, words: &[&str]) -> Command {
    let mut program = Command::new("/usr/bin/ceph");
    if keyring.exists() {
        program.args(["--name", USER]);
    }
    program.args(["--connect-timeout", "10"]).args(words);
    program
}

/// Runs a program, and returns what it prints.
fn run(mut program: Command) -> Result<Vec<u8>, FenceFault> {
    let words: Vec<_> = program.get_args().map(OsStr::to_string_lossy).collect();
    let shown = format!("ceph {}", words.join(" "));
    let failed = |error| FenceFault::of(&shown, error);
    program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program.spawn().map_err(failed)?;
    // A pipe that nobody empties would stop the program.
    let pipe = child.stdout.take();
    let reader = std::thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.map(|pipe| pipe.take(CEPH_ANSWER_BYTES + 1).read_to_end(&mut bytes));
        bytes
    });
    let reader = reader.map_err(failed)?;
    let is_good = wait(&mut child).map_err(failed)?;
    // The pipe of a program that was ended can stay open in another one.
    if is_good || reader.is_finished() {
        let bytes = reader.join().map_err(|_| FenceFault::of(&shown, "no answer"))?;
        if bytes.len() as u64 > CEPH_ANSWER_BYTES {
            let most = CEPH_ANSWER_BYTES >> 20;
            return Err(FenceFault::of(&shown, format!("an answer of more than {most} MiB")));
        }
        if is_good {
            return Ok(bytes);
        }
    }
    let mut words = Vec::new();
    if let Some(pipe) = child.stderr.take() {
        // The program has ended; without its words the fault says less.
        let _ = pipe.take(4096).read_to_end(&mut words);
    }
    let has_keyring =
        [KEYRING, ADMIN_KEYRING].into_iter().any(|keyring| Path::new(keyring).exists());
    Err(FenceFault::of(shown, why(&String::from_utf8_lossy(&words), has_keyring)))
}

/// The reason that `ceph` gives in its last line, and a missing keyring, of which that does not speak.
fn why(said: &str, has_keyring: bool) -> String {
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let last = lines.next_back().unwrap_or("no answer in time, or a fault");
    match has_keyring {
        true => last.to_owned(),
        false => format!(
            "{last}; there is neither {KEYRING} nor {ADMIN_KEYRING}: docs/cluster.md (CephFS) has the \
             command that makes the first one"
        ),
    }
}

/// Waits for the end of the program, and ends it after [`CEPH_PATIENCE`]. True if it succeeded.
fn wait(child: &mut Child) -> std::io::Result<bool> {
    let end = Instant::now() + CEPH_PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// True for `ADDRESS:PORT/NONCE`, with IPv6 in brackets.
fn is_address(text: &str) -> bool {
    client(text).is_some()
}

/// The client that such a text names.
pub(crate) fn client(text: &str) -> Option<Client> {
    let (address, nonce) = text.split_once('/')?;
    Some(Client { address: address.parse().ok()?, nonce: nonce.parse().ok()? })
}

/// A client, however its text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Client {
    address: SocketAddr,
    nonce: u64,
}

/// An attribute of CephFS itself, for which its client asks nobody.
fn attribute(folder: &Path, name: &str) -> Result<String, FenceFault> {
    let mut bytes = [0; 64];
    let length = rustix::fs::getxattr(folder, name, &mut bytes[..])
        .map_err(|errno| FenceFault::of(format!("{name} of {}", folder.display()), errno))?;
    let bytes = bytes.get(..length).unwrap_or_default();
    Ok(String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned())
}

/// The kernel's client of a mount, which the attributes of its files name.
fn kernels(folder: &Path) -> Result<Own, FenceFault> {
    let cluster = attribute(folder, "ceph.cluster_fsid")?;
    let client = attribute(folder, "ceph.client_id")?;
    let is_word =
        |word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !is_word(&cluster) || !is_word(&client) {
        return Err(FenceFault(format!("the client of {} has no name", folder.display())));
    }
    let status = Path::new(CLIENTS).join(format!("{cluster}.{client}")).join("status");
    let text = read(&status)?;
    kernels_status(&text)
        .ok_or_else(|| FenceFault::of(status.display(), "it does not tell the client's address"))
}

/// As status_show of fs/ceph/debugfs.c writes it: `instance: client.4305 (2)192.0.2.1:0/371` and
/// `blocklisted: false`.
fn kernels_status(text: &str) -> Option<Own> {
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let (_, address) = value("instance: ")?.split_once(' ')?;
    let address = match address.strip_prefix('(') {
        Some(rest) => rest.split_once(')')?.1,
        None => address,
    };
    let blocked = value("blocklisted: ").or_else(|| value("blacklisted: "));
    let own = Own { address: address.to_owned(), is_blocked: blocked == Some("true") };
    is_address(&own.address).then_some(own)
}

/// A ceph-fuse that runs.
#[derive(Debug)]
struct CephFuse {
    socket: PathBuf,
    own: Own,
}

/// The ceph-fuse of a mount.
fn of_mount(mount: &Mount) -> Result<CephFuse, FenceFault> {
    of_ceph_fuse(Path::new(SOCKETS), &mount.point, number_of(&mount.point))
}

/// The ceph-fuse of a mount point, by the sockets of all. One that was unmounted while files of it were open
/// lives on, and has told the same mount point: the number of the client tells which one is there now.
fn of_ceph_fuse(sockets: &Path, point: &Path, number: Option<u64>) -> Result<CephFuse, FenceFault> {
    let failed = |error| FenceFault::of(sockets.display(), error);
    let mut found = None;
    for entry in std::fs::read_dir(sockets).map_err(failed)?.take(ENTRIES) {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_none_or(|extension| extension != "asok") {
            continue;
        }
        // Sockets of other daemons, and of those that have ended, are passed over.
        let Some(status) = ask(&path, r#"{"prefix":"status"}"#) else { continue };
        let Some(own) = ceph_fuse_status(&status, point, number) else { continue };
        if found.replace(CephFuse { socket: path, own }).is_some() {
            return Err(FenceFault(format!(
                "more than one ceph-fuse has {} for its mount point; end those that were unmounted there",
                point.display()
            )));
        }
    }
    found.ok_or_else(|| {
        FenceFault(format!(
            "no socket in {} is that of the ceph-fuse of {}; set `admin_socket` in ceph.conf",
            sockets.display(),
            point.display()
        ))
    })
}

/// The number of the client that is mounted at `point`. None if it does not tell it: before Ceph 16.
fn number_of(point: &Path) -> Option<u64> {
    attribute(point, "ceph.client_id").ok()?.strip_prefix("client")?.parse().ok()
}

/// Asks an admin socket: a JSON object that ends in a zero byte, and an answer after its length in four
/// bytes, the largest first.
fn ask(socket: &Path, question: &str) -> Option<Value> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(CEPH_SOCKET_PATIENCE)).ok()?;
    stream.set_write_timeout(Some(CEPH_SOCKET_PATIENCE)).ok()?;
    stream.write_all(format!("{question}\0").as_bytes()).ok()?;
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let length = u64::from(u32::from_be_bytes(length)).min(TEXT_BYTES);
    let mut answer = Vec::new();
    stream.take(length).read_to_end(&mut answer).ok()?;
    serde_json::from_slice(&answer).ok()
}

/// The answer of the client that is mounted at `point`, with that number if it is known.
fn ceph_fuse_status(status: &Value, point: &Path, number: Option<u64>) -> Option<Own> {
    let at = status.get("metadata")?.get("mount_point")?.as_str()?;
    if Path::new(at) != point || number.is_some() && status.get("id")?.as_u64() != number {
        return None;
    }
    let address = status.get("addr_str")?.as_str()?;
    let blocked = status.get("blocklisted").or_else(|| status.get("blacklisted"));
    let is_blocked = blocked.and_then(Value::as_bool).unwrap_or_default();
    let own = Own { address: address.to_owned(), is_blocked };
    is_address(&own.address).then_some(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::net::UnixListener;

    #[test]
    fn addresses_have_a_nonce() {
        for good in ["192.0.2.1:0/371", "[2001:db8::1]:0/1", "192.0.2.1:6800/4294967295"] {
            assert!(is_address(good), "{good}");
        }
        for bad in ["192.0.2.1:0", "192.0.2.1/371", "--help", "client.4", "192.0.2.1:0/x", ""] {
            assert!(!is_address(bad), "{bad}");
            assert!(fence(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_program_has_fixed_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let keyring = folder.path().join("keyring");
        let words = || {
            let program = adding(&keyring, "192.0.2.1:0/371");
            assert_eq!(program.get_program(), "/usr/bin/ceph");
            let words: Vec<_> = program.get_args().map(OsStr::to_string_lossy).collect();
            words.join(" ")
        };
        let fixed = "--connect-timeout 10 osd blocklist add 192.0.2.1:0/371 86400";
        assert_eq!(words(), fixed);
        // The user with the rights of a fence alone, where the host has its keyring.
        std::fs::write(&keyring, "").unwrap();
        assert_eq!(words(), format!("--name client.frevo {fixed}"));
    }

    #[test]
    fn what_the_program_says_is_read_or_told() {
        let shell = |script: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]);
            run(shell)
        };
        // More than a pipe takes.
        let said = shell("head -c 300000 /dev/zero; echo words >&2").unwrap();
        assert_eq!(said.len(), 300_000);
        let fault = shell("echo 2026-11-29 auth: words >&2; echo Error EACCES: no >&2; exit 1");
        let fault = fault.unwrap_err().to_string();
        assert!(fault.starts_with("ceph -c ") && fault.contains(": Error EACCES: no"), "{fault}");
        let absent = run(Command::new("/no such program")).unwrap_err().to_string();
        assert!(absent.starts_with("ceph "), "{absent}");
    }

    #[test]
    fn a_missing_keyring_is_told() {
        let said = "auth: unable to find a keyring\n[errno 2] RADOS object not found\n\n";
        assert_eq!(why(said, true), "[errno 2] RADOS object not found");
        let told = why(said, false);
        assert!(told.starts_with("[errno 2] RADOS object not found; there is neither "), "{told}");
        assert_eq!(why("\n", true), "no answer in time, or a fault");
    }

    /// The answers of Ceph 16.2.15, and what is no answer.
    #[test]
    fn the_monitors_tell_who_is_refused() {
        let list = br#"
[{"addr":"198.19.77.11:0/1017483502","until":"2026-11-30T20:11:22.923259+0000"},
 {"addr":"[2001:db8::1]:0/0372","until":"2026-11-30T19:46:46.118+0000"}][]"#;
        let is = |address| is_listed(list, address).unwrap();
        assert!(is("198.19.77.11:0/1017483502") && is("[2001:db8::1]:0/372"));
        assert!(!is("198.19.77.11:0/372") && !is("198.19.77.12:0/1017483502"));
        assert!(!is_listed(b"\n[][]", "192.0.2.1:0/371").unwrap());
        let ranges = br#"[][{"range":"192.0.2.0:0/24","until":"2026-11-30T19:46:46.118+0000"}]"#;
        assert!(!is_listed(ranges, "192.0.2.1:0/371").unwrap());
        for bad in [&b""[..], b"words", br#"[{"addr":"192."#] {
            assert!(is_listed(bad, "192.0.2.1:0/371").is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_answer_is_read_to_its_end_or_called_too_long() {
        let head = |bytes: u64| {
            let mut program = Command::new("head");
            program.args(["--bytes", &bytes.to_string(), "/dev/zero"]);
            run(program)
        };
        assert_eq!(head(CEPH_ANSWER_BYTES).unwrap().len() as u64, CEPH_ANSWER_BYTES);
        for bytes in [CEPH_ANSWER_BYTES + 1, 4 * CEPH_ANSWER_BYTES] {
            let fault = head(bytes).unwrap_err().to_string();
            assert!(fault.ends_with("an answer of more than 16 MiB"), "{fault}");
        }
    }

    #[test]
    fn the_kernel_tells_its_clients() {
        let status = |blocked| {
            format!("instance: client.4305 (2)192.0.2.1:0/2371001553\nblocklisted: {blocked}\n")
        };
        let own = kernels_status(&status("false")).unwrap();
        assert_eq!((own.address.as_str(), own.is_blocked), ("192.0.2.1:0/2371001553", false));
        assert!(kernels_status(&status("true")).unwrap().is_blocked);
        // Linux before 5.4 tells no type, and before 5.11 another word.
        let old =
            kernels_status("instance: client.7 [2001:db8::1]:0/9\nblacklisted: true\n").unwrap();
        assert_eq!((old.address.as_str(), old.is_blocked), ("[2001:db8::1]:0/9", true));
        assert_eq!(kernels_status("instance: client.7 (2)garbage\n"), None);
    }

    /// Sockets that answer as ceph-fuse does, beside one of another daemon.
    fn sockets(answers: &[(&str, String)], caches: [&'static str; 2]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, answer) in answers.iter().cloned() {
            let listener = UnixListener::bind(folder.path().join(name)).unwrap();
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    let mut stream = stream.unwrap();
                    let mut question = Vec::new();
                    BufReader::new(&stream).read_until(0, &mut question).unwrap();
                    let answer = match &question[..] {
                        b"{\"prefix\":\"status\"}\0" => &answer[..],
                        b"{\"prefix\":\"config get\",\"var\":\"client_oc\"}\0" => caches[0],
                        _ => caches[1],
                    };
                    let length = u32::try_from(answer.len()).unwrap();
                    stream.write_all(&length.to_be_bytes()).unwrap();
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            });
        }
        folder
    }

    const NO_CACHES: [&str; 2] =
        [r#"{"client_oc":"false"}"#, r#"{"fuse_disable_pagecache":"true"}"#];

    /// The answer of ceph-fuse 16.2.15, without what is not read.
    fn answer(number: u64, nonce: u64, is_blocked: bool) -> String {
        let address = format!("192.0.2.1:0/{nonce}");
        serde_json::json!({
            "metadata": { "hostname": "node-a", "mount_point": "/srv/ceph", "root": "/" },
            "id": number, "inst_str": format!("client.{number} {address}"), "addr_str": address,
            "osd_epoch": 9, "blocklisted": is_blocked,
        })
        .to_string()
    }

    #[test]
    fn ceph_fuse_is_found_by_its_mount_point() {
        let folder = sockets(
            &[
                ("ceph-osd.0.asok", r#"{"state":"active"}"#.into()),
                ("ceph-client.admin.77.asok", answer(4205, 3_710_147_553, false)),
            ],
            NO_CACHES,
        );
        std::fs::write(folder.path().join("ceph-client.gone.asok"), "").unwrap();
        let of = |point, number| of_ceph_fuse(folder.path(), Path::new(point), number);
        for number in [None, Some(4205)] {
            let CephFuse { own, socket } = of("/srv/ceph", number).unwrap();
            assert!(socket.ends_with("ceph-client.admin.77.asok"), "{}", socket.display());
            assert_eq!((own.address.as_str(), own.is_blocked), ("192.0.2.1:0/3710147553", false));
        }
        assert!(of("/srv/other", None).is_err() && of("/srv/ceph", Some(4206)).is_err());
    }

    #[test]
    fn the_caches_of_ceph_fuse_are_known() {
        let page_cache = r#"{"fuse_disable_pagecache":"false"}"#;
        for (caches, has) in [
            (NO_CACHES, false),
            ([r#"{"client_oc":"true"}"#, NO_CACHES[1]], true),
            ([NO_CACHES[0], page_cache], true),
            // A client that does not know the option.
            ([NO_CACHES[0], r#"{"error":"unknown"}"#], false),
        ] {
            let folder = sockets(&[("ceph-client.admin.77.asok", String::new())], caches);
            let socket = folder.path().join("ceph-client.admin.77.asok");
            assert_eq!(has_caches(&socket), has, "{caches:?}");
        }
        assert!(!has_caches(Path::new("/no such socket")));
    }

    /// A client that was refused lives on after a lazy unmount, and the next one has its mount point.
    #[test]
    fn the_client_of_an_earlier_mount_is_not_taken_for_this_one() {
        let folder = sockets(
            &[
                ("ceph-client.admin.77.asok", answer(4205, 1, true)),
                ("ceph-client.admin.78.asok", answer(4209, 2, false)),
            ],
            NO_CACHES,
        );
        let of = |number| of_ceph_fuse(folder.path(), Path::new("/srv/ceph"), number);
        assert_eq!(of(Some(4209)).unwrap().own.address, "192.0.2.1:0/2");
        assert!(of(Some(4205)).unwrap().own.is_blocked);
        let fault = of(None).unwrap_err().to_string();
        assert!(fault.starts_with("more than one ceph-fuse has /srv/ceph "), "{fault}");
    }
}
