//! The processes that help the server: each has what it asks, and nothing else of the host.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;

use super::harness::{Said, Sandbox, said, text};
use super::{SIGSYS, has_landlock, is_root, world};

const DENIED: &str = "Permission denied";
const NOT_PERMITTED: &str = "Operation not permitted";

/// The processes of the product, but for the one that sends traces.
const HELPERS: [&str; 8] =
    ["discovery", "names", "directory", "targets", "scanners", "ldap", "winbind", "hands"];

fn try_as(place: &Sandbox, helper: &str, attempt: &str) -> Said {
    let config = place.path("etc/frevo.toml");
    let words =
        ["confinement-trial", "-c", text(&config), "--helper", helper, "--attempt", attempt];
    said(place.command(&words).output().unwrap())
}

/// Landlock knows ports from Linux 6.7 on, scopes from 6.12 on.
fn kernel_is_at_least(version: (u32, u32)) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(version.0), Some(version.1))
}

#[track_caller]
fn is_refused(place: &Sandbox, helper: &str, attempt: &str, why: &str) {
    let said = try_as(place, helper, attempt);
    assert!(said.out.ends_with("not confined: []\n"), "{helper}: {said:?}");
    assert!(said.code == 1 && said.err.contains(why), "{helper}: {attempt}: {said:?}");
}

#[track_caller]
fn succeeds(place: &Sandbox, helper: &str, attempt: &str) {
    let said = try_as(place, helper, attempt);
    assert_eq!(said.code, 0, "{helper}: {attempt}: {said:?}");
}

/// A world that nobody may enter, but for the file `out/open.txt`.
fn place() -> Option<Sandbox> {
    let place = world();
    if !has_landlock(&place) || !is_root() {
        return None;
    }
    for folder in [".", "in", "out"] {
        fs::set_permissions(place.path(folder), fs::Permissions::from_mode(0o755)).unwrap();
    }
    place.file("out/open.txt", "for everybody", 0o644);
    Some(place)
}

#[test]
fn no_helper_reaches_files_processes_or_privileges() {
    let Some(place) = place() else { return };
    let path = |name: &str| text(&place.path(name)).to_owned();
    let other = std::process::id();
    for helper in HELPERS {
        for (attempt, why) in [
            (String::from("read /etc/shadow"), DENIED),
            (format!("read {}", path("out/open.txt")), DENIED),
            (format!("read {}", path("etc/frevo.toml")), DENIED),
            (String::from("list /root"), DENIED),
            (format!("write {}", path("in/new")), DENIED),
            (format!("remove {}", path("in/a.txt")), NOT_PERMITTED),
            (format!("rename {} x", path("in/a.txt")), NOT_PERMITTED),
            (format!("mode {} 4755", path("out/open.txt")), NOT_PERMITTED),
            (String::from("privileges"), NOT_PERMITTED),
            (format!("limits {other}"), NOT_PERMITTED),
            (format!("affinity {other}"), NOT_PERMITTED),
            (String::from("ring"), NOT_PERMITTED),
            (String::from("watch"), NOT_PERMITTED),
            (String::from("socket 17 0"), NOT_PERMITTED),
            (String::from("socket 38 0"), NOT_PERMITTED),
            (String::from("socket 2 262"), NOT_PERMITTED),
            (String::from("socket 2 132"), NOT_PERMITTED),
        ] {
            is_refused(&place, helper, &attempt, why);
        }
        succeeds(&place, helper, "nothing");
        succeeds(&place, helper, "thread");
        // Programs of Samba run under the same filters, so each of these calls must end the
        // process.
        for attempt in ["mount /", "chroot /", "hostname"] {
            let config = place.path("etc/frevo.toml");
            let words = ["confinement-trial", "-c", text(&config), "--helper", helper, "--attempt"];
            let mut command = place.command(&words);
            let status = command.arg(attempt).output().unwrap().status;
            assert_eq!(status.signal(), Some(SIGSYS), "{helper}: {attempt}");
        }
    }
    for helper in ["discovery", "directory", "targets", "scanners", "ldap", "hands"] {
        is_refused(&place, helper, "signal", NOT_PERMITTED);
        is_refused(&place, helper, "user", NOT_PERMITTED);
    }
    if kernel_is_at_least((6, 12)) {
        is_refused(&place, "winbind", "signal", NOT_PERMITTED);
    }
}

/// Sockets of root's services, and of others over the network.
#[test]
fn helpers_connect_to_those_that_they_ask() {
    let Some(place) = place() else { return };
    let service = place.path("out/service.sock");
    let _service = UnixListener::bind(&service).unwrap();
    fs::set_permissions(&service, fs::Permissions::from_mode(0o600)).unwrap();
    let name = format!("frevo-helpers-{}", std::process::id());
    let address =
        <std::os::unix::net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(
            &name,
        );
    let _abstract = UnixListener::bind_addr(&address.unwrap());
    // `hands` is root, so root's services are open to it (SECURITY.md).
    for helper in HELPERS.iter().filter(|helper| **helper != "hands") {
        is_refused(&place, helper, &format!("unix {}", text(&service)), DENIED);
        if kernel_is_at_least((6, 12)) {
            is_refused(&place, helper, &format!("unix-abstract {name}"), NOT_PERMITTED);
        }
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connect = format!("connect {address}");
    if kernel_is_at_least((6, 7)) {
        is_refused(&place, "discovery", &connect, DENIED);
        // Servers of targets have the port of SMB.
        is_refused(&place, "targets", &connect, DENIED);
        is_refused(&place, "scanners", &connect, DENIED);
        is_refused(&place, "ldap", &connect, DENIED);
        is_refused(&place, "discovery", "listen 127.0.0.1:0", DENIED);
        is_refused(&place, "targets", "listen 127.0.0.1:0", DENIED);
    }
    succeeds(&place, "discovery", "udp 127.0.0.1:0");
    // A domain controller may have any address and port, so `directory` may connect anywhere;
    // `winbind` may not.
    succeeds(&place, "directory", &connect);
    // Members of etcd may have any address and port, too.
    succeeds(&place, "hands", &connect);
    is_refused(&place, "hands", "listen 127.0.0.1:0", NOT_PERMITTED);
    is_refused(&place, "directory", "listen 127.0.0.1:0", NOT_PERMITTED);
    is_refused(&place, "winbind", &connect, NOT_PERMITTED);
    for helper in ["discovery", "directory", "targets", "scanners", "ldap"] {
        is_refused(&place, helper, &format!("fast-open {address}"), NOT_PERMITTED);
    }
}

/// Programs are run by the process that asks winbind alone.
#[test]
fn programs_are_those_of_winbind() {
    let Some(place) = place() else { return };
    for helper in ["discovery", "names", "directory", "targets", "scanners", "ldap"] {
        is_refused(&place, helper, "run /bin/true", NOT_PERMITTED);
        let config = place.path("etc/frevo.toml");
        let words = ["confinement-trial", "-c", text(&config), "--helper", helper, "--attempt"];
        let status = place.command(&words).arg("exec /bin/true").output().unwrap().status;
        assert_eq!(status.signal(), Some(SIGSYS), "{helper}");
    }
    for helper in ["winbind", "winbind-as-root"] {
        succeeds(&place, helper, "run /bin/true");
    }
    // File modes do not stop root, so only the Landlock rules can refuse these files.
    for attempt in
        ["read /etc/shadow", "list /etc", "list /var/lib", "list /root", "run /etc/passwd"]
    {
        let why = if attempt.starts_with("run") { "" } else { DENIED };
        is_refused(&place, "winbind-as-root", attempt, why);
    }
    // Only the process that looks up names may read the user database; the others are refused.
    succeeds(&place, "names", "name root");
    succeeds(&place, "names", "read /etc/passwd");
}

/// The process with rights runs `ceph` as a fence, which writes nowhere.
#[test]
fn a_fence_of_ceph_runs_its_program() {
    let Some(place) = place() else { return };
    for program in ["/usr/bin/true", "/usr/bin/id"] {
        succeeds(&place, "hands-of-ceph", &format!("run-without-output {program}"));
    }
    is_refused(&place, "hands-of-ceph", "run-without-output /usr/bin/false", "it failed");
    let stub = place.file("out/ceph", "#!/bin/sh\nexit 0\n", 0o755);
    let stub = format!("run-without-output {}", text(&stub));
    is_refused(&place, "hands-of-ceph", &stub, DENIED);
    is_refused(&place, "hands-of-ceph", "write /usr/bin/frevo-stub", DENIED);
    if fs::exists("/run/ceph").unwrap() {
        succeeds(&place, "hands-of-ceph", "list /run/ceph");
    }
    // Without such a fence no program runs.
    is_refused(&place, "hands", "run-without-output /usr/bin/true", "");
}

/// The processes below a server are these, and each is confined and nobody's.
#[track_caller]
pub(super) fn all_are_confined(server: u32, names: &[&str]) {
    let all = descendants(server);
    let mut found: Vec<String> = all.iter().map(|process| status(*process, "Name:")).collect();
    found.sort_unstable();
    assert_eq!(found, names);
    for process in all {
        let of = |key| status(process, key);
        assert_eq!((of("NoNewPrivs:"), of("Seccomp:")), ("1".into(), "2".into()), "{process}");
        let capabilities = u64::from_str_radix(&of("CapEff:"), 16).unwrap();
        assert_eq!(capabilities, 0, "{process}");
        if is_root() {
            assert_eq!(of("Uid:"), "65534\t65534\t65534\t65534", "{process}");
            assert_eq!(of("Groups:"), "", "{process}");
            // /proc/PID/mem belongs to root if other processes of the same user may not read the
            // memory.
            let owner = fs::metadata(format!("/proc/{process}/mem")).unwrap().uid();
            assert_eq!(owner, 0, "{process}");
        }
    }
}

/// The processes below one.
pub(super) fn descendants(of: u32) -> Vec<u32> {
    let tasks = format!("/proc/{of}/task");
    let tasks = fs::read_dir(tasks).unwrap().flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<u32> = children
        .flat_map(|line| {
            line.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<u32>>()
        })
        .collect();
    children.into_iter().flat_map(|child| [vec![child], descendants(child)].concat()).collect()
}

fn status(process: u32, key: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim().to_owned()
}
