//! `ceph`: a client of CephFS by its address and nonce, which the OSDs refuse while it is on their
//! blocklist.
//!
//! The kernel's client tells its address in debugfs, ceph-fuse by its admin socket. The blocklist is
//! changed by the program `ceph`, with the keyring of this host.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use frevo_cluster::fence::Fence;
use serde_json::Value;

use crate::fault::FenceFault;
use crate::limits::{CEPH_BLOCKED, CEPH_PATIENCE, CEPH_SOCKET_PATIENCE, ENTRIES, TEXT_BYTES};
use crate::mounts::{Mount, read};

/// The folder of the kernel's clients.
const CLIENTS: &str = "/sys/kernel/debug/ceph";
/// The folder of the sockets of ceph-fuse.
const SOCKETS: &str = "/run/ceph";

/// A client, as it speaks of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Own {
    /// `192.0.2.1:0/371`
    address: String,
    is_blocked: bool,
}

/// Returns the address of the client that mounted the file system in which `folder` is.
pub(crate) fn identity(folder: &Path) -> Result<Fence, FenceFault> {
    let name = folder.display();
    let mount = Mount::of(folder)?;
    let own = match mount.kind.as_str() {
        "ceph" => kernels(folder)?,
        "fuse.ceph-fuse" | "fuse.ceph" => of_ceph_fuse(Path::new(SOCKETS), &mount.point)?,
        _ => return Err(FenceFault(format!("{name} is no CephFS; use another `fence`"))),
    };
    if own.is_blocked {
        let text = format!("CephFS refuses the client of {name}; unmount it, and mount it again");
        return Err(FenceFault(text));
    }
    Ok(Fence::Ceph { client: own.address })
}

/// Puts a client on the blocklist. It is there when the program ends.
pub(crate) fn fence(client: &str) -> Result<(), FenceFault> {
    if !is_address(client) {
        return Err(FenceFault(format!("`{client}` is no address of a client of CephFS")));
    }
    let mut program = Command::new("/usr/bin/ceph");
    program.args(arguments(client));
    run(program)
}

/// The arguments of `ceph`: fixed words, and an address that was checked.
fn arguments(client: &str) -> [String; 7] {
    let seconds = CEPH_BLOCKED.as_secs().to_string();
    ["--connect-timeout", "10", "osd", "blocklist", "add", client, &seconds].map(String::from)
}

fn run(mut program: Command) -> Result<(), FenceFault> {
    let failed = |error| FenceFault::of("ceph osd blocklist add", error);
    program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = program.spawn().map_err(failed)?;
    let is_good = wait(&mut child).map_err(failed)?;
    if is_good {
        return Ok(());
    }
    let mut words = Vec::new();
    if let Some(pipe) = child.stderr.take() {
        // The program has ended; without its words the fault says less.
        let _ = pipe.take(512).read_to_end(&mut words);
    }
    let words = String::from_utf8_lossy(&words).trim().to_owned();
    let words =
        if words.is_empty() { String::from("no answer in time, or a fault") } else { words };
    Err(FenceFault::of("ceph osd blocklist add", words))
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

/// The kernel's client of a mount, which the attributes of its files name.
fn kernels(folder: &Path) -> Result<Own, FenceFault> {
    let attribute = |name: &str| {
        let mut bytes = [0; 64];
        let length = rustix::fs::getxattr(folder, name, &mut bytes[..])
            .map_err(|errno| FenceFault::of(format!("{name} of {}", folder.display()), errno))?;
        let bytes = bytes.get(..length).unwrap_or_default();
        Ok(String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned())
    };
    let (cluster, client) = (attribute("ceph.cluster_fsid")?, attribute("ceph.client_id")?);
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

/// The ceph-fuse of a mount point, by the sockets of all.
fn of_ceph_fuse(sockets: &Path, point: &Path) -> Result<Own, FenceFault> {
    let failed = |error| FenceFault::of(sockets.display(), error);
    for entry in std::fs::read_dir(sockets).map_err(failed)?.take(ENTRIES) {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_none_or(|extension| extension != "asok") {
            continue;
        }
        // Sockets of other daemons, and of those that have ended, are passed over.
        let Some(status) = ask(&path) else { continue };
        if let Some(own) = ceph_fuse_status(&status, point) {
            return Ok(own);
        }
    }
    Err(FenceFault(format!(
        "no socket in {} is that of the ceph-fuse of {}; set `admin_socket` in ceph.conf",
        sockets.display(),
        point.display()
    )))
}

/// Asks an admin socket for its status: a JSON object that ends in a zero byte, and an answer after its
/// length in four bytes, the largest first.
fn ask(socket: &Path) -> Option<Value> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(CEPH_SOCKET_PATIENCE)).ok()?;
    stream.set_write_timeout(Some(CEPH_SOCKET_PATIENCE)).ok()?;
    stream.write_all(b"{\"prefix\":\"status\"}\0").ok()?;
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let length = u64::from(u32::from_be_bytes(length)).min(TEXT_BYTES);
    let mut answer = Vec::new();
    stream.take(length).read_to_end(&mut answer).ok()?;
    serde_json::from_slice(&answer).ok()
}

/// The answer of the client that is mounted at `point`.
fn ceph_fuse_status(status: &Value, point: &Path) -> Option<Own> {
    let at = status.get("metadata")?.get("mount_point")?.as_str()?;
    if Path::new(at) != point {
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
        let words = arguments("192.0.2.1:0/371").join(" ");
        assert_eq!(words, "--connect-timeout 10 osd blocklist add 192.0.2.1:0/371 86400");
        assert_eq!(run(Command::new("true")), Ok(()));
        assert!(run(Command::new("false")).is_err());
        let absent = run(Command::new("/no such program")).unwrap_err().to_string();
        assert!(absent.starts_with("ceph osd blocklist add: "), "{absent}");
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

    /// A socket that answers as ceph-fuse does, beside one of another daemon.
    #[test]
    fn ceph_fuse_is_found_by_its_mount_point() {
        let folder = tempfile::tempdir().unwrap();
        for (name, answer) in [
            ("ceph-osd.0.asok", r#"{"state":"active"}"#),
            (
                "ceph-client.admin.77.asok",
                r#"{"metadata":{"hostname":"node-a","mount_point":"/srv/ceph","root":"/"},
                    "id":4205,"inst_str":"client.4205 192.0.2.1:0/3710147553",
                    "addr_str":"192.0.2.1:0/3710147553","osd_epoch":9,"blocklisted":false}"#,
            ),
        ] {
            let listener = UnixListener::bind(folder.path().join(name)).unwrap();
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    let mut stream = stream.unwrap();
                    let mut question = [0; 20];
                    stream.read_exact(&mut question).unwrap();
                    assert_eq!(&question, b"{\"prefix\":\"status\"}\0");
                    let length = u32::try_from(answer.len()).unwrap();
                    stream.write_all(&length.to_be_bytes()).unwrap();
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            });
        }
        std::fs::write(folder.path().join("ceph-client.gone.asok"), "").unwrap();
        let own = of_ceph_fuse(folder.path(), Path::new("/srv/ceph")).unwrap();
        assert_eq!((own.address.as_str(), own.is_blocked), ("192.0.2.1:0/3710147553", false));
        assert!(of_ceph_fuse(folder.path(), Path::new("/srv/other")).is_err());
    }
}
