//! The confinement of the server: what an attacker inside it can not do, and what
//! serving still can.

mod harness;
#[path = "confinement/helpers.rs"]
mod helpers;
#[path = "confinement/start.rs"]
mod start;

use std::fs;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use frevo_server::internal::limits::DISK_TRIALS;
use harness::{PATIENCE, Said, Sandbox, Serving, said, text};

/// The signal by which the kernel ends a process for a hostile call.
const SIGSYS: i32 = 31;

/// The log's words for a system call that serving needed and did not get.
const REFUSED_CALL: &str = "refused a system call";

#[test]
fn the_words_that_no_log_may_contain_are_those_of_the_server() {
    assert!(include_str!("../src/serve/confine/mod.rs").contains(REFUSED_CALL));
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// A kernel that can confine to folders (Linux 5.19), as `frevo check` says.
fn has_landlock(place: &Sandbox) -> bool {
    let path = place.file("probe.toml", "", 0o600);
    place.run(&["check", "-c", text(&path)]).succeeds().contains("files (Landlock)")
}

/// A share `in`, a folder `out` beside it, and a configuration in a folder of its own.
fn world() -> Sandbox {
    let place = Sandbox::new();
    fs::write(place.folder("in").join("a.txt"), "a").unwrap();
    fs::write(place.folder("out").join("b.txt"), "b").unwrap();
    place.folder("etc");
    place.folder("state");
    config(&place, "");
    place
}

fn config(place: &Sandbox, more: &str) {
    let (state, share) = (place.path("state"), place.path("in"));
    let config = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\nstate_dir = {state:?}\n\
         [[share]]\nname = \"in\"\npath = {share:?}\n{more}"
    );
    place.file("etc/frevo.toml", &config, 0o644);
}

fn command(place: &Sandbox, attempt: &str) -> Command {
    let config = place.path("etc/frevo.toml");
    place.command(&["confinement-trial", "-c", text(&config), "--attempt", attempt])
}

fn tried(place: &Sandbox, attempt: &str) -> Said {
    said(command(place, attempt).output().unwrap())
}

/// The attempt fails with words such as "Permission denied".
#[track_caller]
fn is_refused(place: &Sandbox, attempt: &str, why: &str) {
    let said = tried(place, attempt);
    assert!(said.out.starts_with("confined: "), "{said:?}");
    assert_eq!(said.code, 1, "{attempt}: {said:?}");
    assert!(said.err.contains(why), "{attempt}: {said:?}");
}

#[test]
fn files_of_others_are_out_of_reach() {
    let place = world();
    if !has_landlock(&place) {
        return;
    }
    let (inside, outside) = (place.path("in"), place.path("out"));
    let (inside, outside) = (text(&inside), text(&outside));
    let denied = "Permission denied";
    for attempt in [
        String::from("read /etc/shadow"),
        String::from("read /etc/passwd"),
        String::from("read /proc/1/environ"),
        String::from("list /"),
        String::from("list /root"),
        format!("list {outside}"),
        format!("read {outside}/b.txt"),
        format!("append {outside}/b.txt"),
        format!("truncate {outside}/b.txt"),
        format!("write {outside}/new"),
        format!("remove {outside}/b.txt"),
        format!("make {outside}/folder"),
        format!("rename {outside}/b.txt {inside}/b.txt"),
        format!("rename {inside}/a.txt {outside}/a.txt"),
        format!("link-and-read {outside}/b.txt {inside}/link"),
        format!("write {}/etc/frevo.toml", text(&place.path("."))),
    ] {
        is_refused(&place, &attempt, denied);
    }
    // A hard link in the share to a file outside would give access to that file.
    let said = tried(&place, &format!("hard-link {outside}/b.txt {inside}/b.txt"));
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!(fs::read(place.path("out/b.txt")).unwrap(), b"b");
    for attempt in [
        format!("read {inside}/a.txt"),
        format!("write {inside}/c.txt"),
        format!("rename {inside}/c.txt {inside}/d.txt"),
        format!("make {inside}/folder"),
        format!("rename {inside}/d.txt {inside}/folder/d.txt"),
        format!("remove {inside}/folder/d.txt"),
        format!("read {}/etc/frevo.toml", text(&place.path("."))),
        format!("write {}/state/x", text(&place.path("."))),
        String::from("list /sys/class/net"),
        String::from("thread"),
        String::from("nothing"),
    ] {
        tried(&place, &attempt).succeeds();
    }
}

#[test]
fn nobody_is_connected_to_and_nothing_else_is_listened_on() {
    let place = world();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let refused = "Operation not permitted";
    is_refused(&place, &format!("connect {address}"), refused);
    is_refused(&place, "listen 127.0.0.1:0", refused);
    is_refused(&place, "udp 127.0.0.1:0", refused);
    // The sockets imitate a service of the host that obeys root, such as systemd or a container
    // engine.
    let service = place.path("out/service.sock");
    let _stream = UnixListener::bind(&service).unwrap();
    fs::set_permissions(&service, fs::Permissions::from_mode(0o600)).unwrap();
    let datagrams = place.path("out/datagrams.sock");
    let _datagrams = UnixDatagram::bind(&datagrams).unwrap();
    is_refused(&place, &format!("unix {}", text(&service)), refused);
    is_refused(&place, &format!("datagram {}", text(&datagrams)), refused);
    let name = format!("frevo-confinement-{}", std::process::id());
    let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap());
    is_refused(&place, &format!("unix-abstract {name}"), refused);
    is_refused(&place, "pair-of-datagrams", refused);
    is_refused(&place, &format!("fast-open {address}"), refused);
    // Each pair has an address family (AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_ALG or
    // AF_VSOCK) and a protocol, of which 262 is MPTCP and 132 is SCTP.
    for socket in ["1 0", "2 0", "10 0", "16 0", "17 0", "38 0", "40 0", "2 262", "2 132"] {
        is_refused(&place, &format!("socket {socket}"), refused);
    }
    // An io_uring could make such sockets without a system call that the filter sees, so it is
    // refused.
    is_refused(&place, "ring", refused);
}

/// Files of the host that privileges reach, and that Landlock does not decide about.
#[test]
fn files_elsewhere_get_no_rights_and_stop_nobody() {
    let place = world();
    let (inside, outside) = (place.path("in"), place.path("out/b.txt"));
    let refused = "Operation not permitted";
    for mode in ["4755", "6755", "2755"] {
        is_refused(&place, &format!("mode {} {mode}", text(&outside)), refused);
        is_refused(&place, &format!("mode {}/a.txt {mode}", text(&inside)), refused);
    }
    assert_eq!(fs::metadata(&outside).unwrap().mode() & 0o7000, 0);
    tried(&place, &format!("mode {}/a.txt 640", text(&inside))).succeeds();
    is_refused(&place, "watch", refused);
    is_refused(&place, &format!("watch {}", text(&outside)), refused);
}

#[test]
fn the_host_is_left_alone() {
    let place = world();
    let refused = "Operation not permitted";
    is_refused(&place, "user", refused);
    is_refused(&place, "signal", refused);
    is_refused(&place, "privileges", refused);
    // A processor-time limit would end the other process, so neither its limits nor its affinity
    // may be set.
    let other = std::process::id();
    is_refused(&place, &format!("limits {other}"), refused);
    is_refused(&place, &format!("affinity {other}"), refused);
    // A refused call is reported by its number; without a refused call the list is empty.
    let said = tried(&place, "signal");
    assert!(said.out.contains("refused calls: ["), "{said:?}");
    assert!(!said.out.contains("refused calls: []"), "{said:?}");
    assert!(tried(&place, "nothing").out.contains("refused calls: []"));
}

/// Serving asks which parts of a file lie in the page cache, before it sends them from the file.
#[test]
fn the_page_cache_is_asked() {
    let place = world();
    let said = tried(&place, &format!("cached {}/a.txt", text(&place.path("in"))));
    assert!(said.out.contains("refused calls: []"), "{said:?}");
    // The call `cachestat` does not exist before Linux 6.5: then it returns ENOSYS.
    assert!(said.code == 0 || said.err.contains("not implemented"), "{said:?}");
}

/// Calls that only an attacker makes end the process.
/// Without it the server does not see that it has more memory than it uses.
#[test]
fn the_memory_of_the_process_is_known() {
    let place = world();
    if !has_landlock(&place) {
        return;
    }
    let confined = serve(&place);
    let open = fs::read_dir(format!("/proc/{}/fd", confined.server.pid())).unwrap();
    let targets = open.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
    assert_eq!(targets.filter(|target| target.ends_with("statm")).count(), 1);
    confined.server.stop().succeeds();
}

#[test]
fn hostile_calls_end_the_process() {
    use std::os::unix::process::ExitStatusExt;
    let place = world();
    for attempt in ["exec /bin/true", "mount /mnt", "chroot /", "hostname"] {
        let output = command(&place, attempt).output().unwrap();
        assert_eq!(output.status.signal(), Some(SIGSYS), "{attempt}: {output:?}");
    }
    // `run` would start a process, so the filter ends this program at once.
    let output = command(&place, "run /bin/true").output().unwrap();
    assert!(!output.status.success(), "{output:?}");
}

/// The name service is asked by a process of its own.
#[test]
fn users_of_the_host_are_known() {
    let place = world();
    tried(&place, "name root").succeeds();
    let said = tried(&place, "name nobody-of-that-name");
    assert!(said.code == 1 && said.err.contains("not found"), "{said:?}");
}

/// `off` confines nothing; `required` holds, or the server does not start.
#[test]
fn confinement_is_as_configured() {
    let place = world();
    let beside = place.path("out/b.txt");
    let attempt = format!("read {}", text(&beside));
    let with = |choice: &str| {
        let mut command = command(&place, &attempt);
        command.args(["--confinement", choice]);
        said(command.output().unwrap())
    };
    assert!(with("off").succeeds().starts_with("not confined"));
    if has_landlock(&place) {
        assert_eq!(with("required").code, 1);
        let (config, wrong) = (place.path("etc/frevo.toml"), "[server]\nconfinement = \"no\"\n");
        let said = place.run(&["check", "-c", text(&config)]);
        let line = said.succeeds().lines().next().unwrap();
        assert!(
            line.starts_with("confined: ") && line.contains("system calls (seccomp)"),
            "{line}"
        );
        let wrong = place.file("etc/wrong.toml", wrong, 0o600);
        place.run(&["check", "-c", text(&wrong)]).fails(3, &["\"on\", \"required\" or \"off\""]);
    }
}

fn client<T>(talk: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, talk).await.unwrap() })
}

fn add_user(place: &Sandbox, name: &str) {
    let config = place.path("etc/frevo.toml");
    let arguments = ["user", "add", name, "--password-stdin", "-c", text(&config)];
    place.run_with_input(&arguments, "pw").succeeds();
}

/// A server whose log is in a file.
struct Confined {
    server: Serving,
    log: PathBuf,
}

fn serve(place: &Sandbox) -> Confined {
    let config = place.path("etc/frevo.toml");
    serve_by(place, place.command(&["serve", "-c", text(&config)]))
}

fn serve_by(place: &Sandbox, mut command: Command) -> Confined {
    let log = place.path("log");
    command.stderr(fs::File::create(&log).unwrap());
    let mut server = Serving::start(command);
    let said = fs::read_to_string(&log).unwrap();
    let line = said.lines().find(|line| line.contains("listening")).expect(&said);
    server.address = line.split("address=").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    Confined { server, log }
}

impl Confined {
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    #[track_caller]
    fn logs(&self, words: &str) {
        let began = std::time::Instant::now();
        while !self.log().contains(words) {
            assert!(began.elapsed() < PATIENCE, "{words:?} not in {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A line of /proc/PID/status of every thread.
    fn status(&self, key: &str) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.server.pid())).unwrap();
        tasks
            .map(|task| {
                let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
                let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
                line.trim().to_owned()
            })
            .collect()
    }
}

/// All of it holds for every thread of a server that has served a client.
#[test]
fn every_thread_is_confined() {
    let place = world();
    add_user(&place, "ann");
    let group = place.folder("in/group");
    if is_root() {
        // The server keeps one capability, which preserves set-group-ID on folders such as this
        // one.
        std::os::unix::fs::chown(&group, None, Some(54_321)).unwrap();
        fs::set_permissions(&group, fs::Permissions::from_mode(0o2777)).unwrap();
    }
    let confined = serve(&place);
    confined.logs("confined: ");
    client(async {
        let mut ann = smb2::connect(&confined.server.address, "ann", "pw").await.unwrap();
        let tree = ann.connect_share("in").await.unwrap();
        ann.write_file(&tree, "new.txt", b"hello").await.unwrap();
        ann.create_directory(&tree, "group/new").await.unwrap();
    });
    if is_root() {
        let made = fs::metadata(group.join("new")).unwrap();
        assert_eq!((made.gid(), made.mode() & 0o2000), (54_321, 0o2000));
    }
    assert!(confined.status("NoNewPrivs:").iter().all(|line| line == "1"));
    assert!(confined.status("Seccomp:").iter().all(|line| line == "2"));
    assert!(confined.status("Threads:").len() > 1);
    // The server must not have CAP_SYS_PTRACE (19), CAP_SETUID (7), CAP_NET_BIND_SERVICE (10),
    // CAP_SYS_MODULE (16) or CAP_MKNOD (27).
    let gone = 1 << 19 | 1 << 7 | 1 << 10 | 1 << 16 | 1 << 27;
    for key in ["CapEff:", "CapPrm:"] {
        for line in confined.status(key) {
            assert_eq!(u64::from_str_radix(&line, 16).unwrap() & gone, 0, "{key} {line}");
        }
    }
    let limits = fs::read_to_string(format!("/proc/{}/limits", confined.server.pid())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    // /proc/PID/mem belongs to root if other processes of the same user may not read the memory.
    let owner = fs::metadata(format!("/proc/{}/mem", confined.server.pid())).unwrap().uid();
    assert_eq!(owner, 0);
    helpers::all_are_confined(confined.server.pid(), &["frevo-names", "frevo-names"]);
    let log = confined.log();
    assert!(!log.contains(REFUSED_CALL), "{log}");
    assert_eq!(confined.server.stop().code, 0);
}

/// Operations that the server's rings have completed, all cores together. Its memory is
/// closed to others, so that root alone may look.
fn ring_operations(server: u32) -> u64 {
    let mut count = 0;
    for entry in fs::read_dir(format!("/proc/{server}/fd")).unwrap() {
        let entry = entry.unwrap();
        // The descriptor may have been closed since it was listed; then it is skipped.
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        if target != Path::new("anon_inode:[io_uring]") {
            continue;
        }
        let number = entry.file_name();
        let info = format!("/proc/{server}/fdinfo/{}", number.to_str().unwrap());
        let info = fs::read_to_string(info).unwrap();
        let tail = info.lines().find_map(|line| line.strip_prefix("CqTail:")).unwrap();
        count += tail.trim().parse::<u64>().unwrap();
    }
    count
}

/// Requests of an io_uring pass the filter of system calls by, but making a ring and
/// entering it do not. Reads of what the page cache does not hold go that way.
#[test]
fn a_ring_works_under_confinement() {
    let place = world();
    // The test needs a real disk, but the folder for temporary files may be in memory, so the
    // target folder is used.
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let share = format!("[[share]]\nname = \"disk\"\npath = {:?}\n", disk.path());
    config(&place, &share);
    add_user(&place, "ann");
    let confined = serve(&place);
    if !confined.log().contains("road=io_uring") {
        return; // This kernel has none, or forbids it.
    }
    let operations = || if is_root() { ring_operations(confined.server.pid()) } else { 0 };
    let data: Vec<u8> = (0..4_000_000_u32).map(|at| (at >> 7) as u8).collect();
    let file = disk.path().join("a.bin");
    // On a busy disk a sync takes long, so it is done before the client's time limit begins.
    fs::write(&file, &data).unwrap();
    fs::write(disk.path().join("small"), b"x").unwrap();
    let raw = fs::File::open(&file).unwrap();
    raw.sync_all().unwrap();
    rustix::fs::fadvise(&raw, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    client(async {
        let mut ann = smb2::connect(&confined.server.address, "ann", "pw").await.unwrap();
        let mut tree = ann.connect_share("disk").await.unwrap();
        // Threads make the first calls for a disk that nobody has used.
        for _ in 0..DISK_TRIALS {
            ann.read_file_pipelined(&mut tree, "small").await.unwrap();
        }
        let before = operations();
        assert!(ann.read_file_pipelined(&mut tree, "a.bin").await.unwrap() == data);
        // Only on ext4 (0xef53) a read must have used the ring, because tmpfs never waits, and
        // other file systems may ignore the advice.
        let on_disk = rustix::fs::fstatfs(&raw).unwrap().f_type == 0xef53;
        assert!(!is_root() || !on_disk || operations() > before, "no read used the ring");
    });
    let log = confined.log();
    assert!(!log.contains(REFUSED_CALL), "{log}");
    assert_eq!(confined.server.stop().code, 0);
}

/// A reload adds a share in folders that are within reach, and tells of one that is not.
#[test]
fn a_share_elsewhere_waits_for_a_restart() {
    let place = world();
    if !has_landlock(&place) {
        return;
    }
    add_user(&place, "ann");
    let confined = serve(&place);
    fs::create_dir(place.path("in/below")).unwrap();
    let share =
        |name: &str, path: PathBuf| format!("[[share]]\nname = \"{name}\"\npath = {path:?}\n");
    let both = share("below", place.path("in/below")) + &share("out", place.path("out"));
    // The configuration is replaced by a new file of the same name, as editors do; the confined
    // server must still be able to read it.
    config(&place, &both);
    fs::rename(place.path("etc/frevo.toml"), place.path("etc/new")).unwrap();
    fs::copy(place.path("etc/new"), place.path("etc/frevo.toml")).unwrap();
    add_user(&place, "bob");
    confined.server.signal("-HUP");
    confined.logs("configuration reloaded");
    let log = confined.log();
    let line = log.lines().find(|line| line.contains("the share is not served")).expect(&log);
    assert!(line.contains("ERROR") && line.contains("restart frevo to serve it"), "{line}");
    assert!(line.contains("share=out") && line.contains("confined"), "{line}");
    client(async {
        let mut bob = smb2::connect(&confined.server.address, "bob", "pw").await.unwrap();
        let below = bob.connect_share("below").await.unwrap();
        bob.write_file(&below, "new.txt", b"hello").await.unwrap();
        assert!(bob.connect_share("out").await.is_err());
    });
    // The new configuration names a file outside of the confinement, which cannot be read, so the
    // reload fails and the old configuration stays.
    let map = place.file("out/map", "ann = a\n", 0o644);
    let text = fs::read_to_string(place.path("etc/frevo.toml")).unwrap();
    let text = text.replace("[server]\n", &format!("[server]\nuser_map_file = {map:?}\n"));
    place.file("etc/frevo.toml", &text, 0o644);
    confined.server.signal("-HUP");
    confined.logs("reload failed, the old configuration stays in force: ");
    confined.logs("is outside the folders that frevo was confined to when it started");
    assert_eq!(confined.server.stop().code, 0);
}

/// A folder that was missing at the start is out of reach for a reload, whatever its rights say.
#[test]
fn a_folder_made_after_the_start_needs_a_restart() {
    let place = world();
    if !has_landlock(&place) {
        return;
    }
    config(&place, &format!("[[share]]\nname = \"later\"\npath = {:?}\n", place.path("later")));
    let confined = serve(&place);
    fs::create_dir(place.path("later")).unwrap();
    confined.server.signal("-HUP");
    confined.logs("was made, or its disk mounted, after frevo was started");
    assert!(!confined.log().contains("cannot be read by the user"), "{}", confined.log());
    assert_eq!(confined.server.stop().code, 0);
}

/// The list of mounts is out of reach, and known all the same: what the server remembers of files
/// depends on the kind of their file system.
#[test]
fn kinds_of_file_systems_are_known() {
    let place = world();
    if !has_landlock(&place) {
        return;
    }
    is_refused(&place, "read /proc/self/mountinfo", "Permission denied");
    tried(&place, &format!("mount-kind {}", text(&place.path("in")))).succeeds();
}

/// A disk that is mounted on a share's folder is told before a client comes, with what to do, and
/// the old folder is served when it has gone.
#[test]
fn a_disk_mounted_after_the_start_needs_a_restart() {
    let place = world();
    let folder = place.path("in");
    let folder = text(&folder);
    let run = |program: &str, words: &[&str]| {
        Command::new(program).args(words).output().unwrap().status.success()
    };
    if !has_landlock(&place) || !is_root() {
        return;
    }
    add_user(&place, "ann");
    let confined = serve(&place);
    let mounted = run("mount", &["-t", "tmpfs", "-o", "size=1m", "none", folder]);
    if !mounted {
        return;
    }
    confined.logs("a disk was mounted at");
    confined.logs("restart frevo to serve the disk");
    let refused = client(async {
        let mut ann = smb2::connect(&confined.server.address, "ann", "pw").await.unwrap();
        let share = ann.connect_share("in").await.unwrap();
        let refused = ann.write_file(&share, "new.txt", b"hello").await;
        refused.err().map(|error| format!("{error:?}"))
    });
    let unmounted = run("umount", &[folder]);
    assert!(unmounted);
    let refused = refused.expect("nothing is written below the disk");
    assert!(!refused.contains("ACCESS_DENIED") && !refused.contains("C0000022"), "{refused}");
    confined.logs("can be opened again");
    client(async {
        let mut ann = smb2::connect(&confined.server.address, "ann", "pw").await.unwrap();
        let share = ann.connect_share("in").await.unwrap();
        ann.write_file(&share, "new.txt", b"hello").await.unwrap();
    });
    assert!(place.path("in/new.txt").exists());
    assert_eq!(confined.server.stop().code, 0);
}

/// The audit log is written by the confined server, also after it was moved away.
#[test]
fn the_audit_log_is_kept_and_rotated() {
    let place = world();
    let log = place.folder("audit").join("audit.log");
    let audit = format!("audit = [\"create\"]\n[audit]\nfile = {log:?}\n");
    config(&place, &audit);
    let path = place.path("etc/frevo.toml");
    place.run(&["check", "-c", text(&path)]).succeeds();
    assert!(!log.exists(), "who checks makes nothing");
    add_user(&place, "ann");
    let confined = serve(&place);
    client(async {
        assert!(smb2::connect(&confined.server.address, "ann", "guess").await.is_err());
        let mut ann = smb2::connect(&confined.server.address, "ann", "pw").await.unwrap();
        let tree = ann.connect_share("in").await.unwrap();
        ann.write_file(&tree, "new.txt", b"hello").await.unwrap();
    });
    let lines = audited(&log, "create");
    let found = |event: &str, outcome: &str| {
        assert!(
            lines.iter().any(|line| line["event"] == event && line["outcome"] == outcome),
            "{event} {outcome}: {lines:#?}"
        );
    };
    assert_eq!(lines[0]["event"], "start");
    assert_eq!(lines[0]["version"], env!("CARGO_PKG_VERSION"));
    found("logon", "refused");
    found("logon", "success");
    found("connect", "success");
    found("create", "success");

    let moved = place.path("audit/audit.log.1");
    fs::rename(&log, &moved).unwrap();
    confined.server.signal("-HUP");
    let lines = audited(&log, "reload");
    assert_eq!(lines.last().unwrap()["outcome"], "success");
    assert_eq!(fs::metadata(&log).unwrap().mode() & 0o777, 0o600);
    config(&place, "mistake = true\n");
    fs::rename(&log, place.path("audit/audit.log.2")).unwrap();
    confined.server.signal("-HUP");
    let lines = audited(&log, "reload");
    let last = lines.last().unwrap();
    assert_eq!(last["outcome"], "refused");
    assert!(last["reason"].as_str().unwrap().contains("mistake"), "{last}");
    let server_log = confined.log();
    assert!(!server_log.contains(REFUSED_CALL), "{server_log}");
    assert_eq!(confined.server.stop().code, 0);
    assert_eq!(audited(&log, "stop").last().unwrap()["event"], "stop");
}

/// The lines of an audit log, once it has this event.
#[track_caller]
fn audited(log: &Path, event: &str) -> Vec<serde_json::Value> {
    let began = std::time::Instant::now();
    loop {
        let text = fs::read_to_string(log).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let lines: Vec<serde_json::Value> =
            whole.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        if lines.iter().any(|line| line["event"] == event) {
            return lines;
        }
        assert!(began.elapsed() < PATIENCE, "no {event} in {text}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Files are used as users of the host: by threads that change as whom they act.
#[test]
fn users_of_the_host_are_acted_as() {
    if !is_root() {
        return;
    }
    let place = world();
    config(&place, "run_as = \"user\"\n");
    for folder in [".", "in"] {
        fs::set_permissions(place.path(folder), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(place.path("in"), fs::Permissions::from_mode(0o1777)).unwrap();
    add_user(&place, "nobody");
    let confined = serve(&place);
    client(async {
        let mut nobody = smb2::connect(&confined.server.address, "nobody", "pw").await.unwrap();
        let mut tree = nobody.connect_share("in").await.unwrap();
        nobody.write_file(&tree, "mine.txt", b"hello").await.unwrap();
        assert_eq!(nobody.read_file(&mut tree, "mine.txt").await.unwrap(), b"hello");
    });
    assert_eq!(fs::metadata(place.path("in/mine.txt")).unwrap().uid(), 65_534);
    let log = confined.log();
    assert!(!log.contains(REFUSED_CALL), "{log}");
    assert_eq!(confined.server.stop().code, 0);
}

/// Whoever can change the configuration decides who gets in.
#[test]
fn a_configuration_that_others_can_change_is_refused() {
    let place = world();
    let path = place.path("etc/frevo.toml");
    let chmod = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    for mode in [0o664, 0o646, 0o666] {
        chmod(mode);
        for verb in ["serve", "check"] {
            let mode = format!("mode {mode:04o}");
            let command = format!("chmod go-w {}", text(&path));
            place.run(&[verb, "-c", text(&path)]).fails(3, &[&mode, &command]);
        }
    }
    chmod(0o644);
    for (folder, kept) in [("etc", 0o700), ("state", 0o700)] {
        let folder = place.path(folder);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        let command = format!("chmod go-w {}", text(&folder));
        for verb in ["serve", "check"] {
            place.run(&[verb, "-c", text(&path)]).fails(3, &["mode 0777", &command]);
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(kept)).unwrap();
    }
    // A reload with this unsafe file fails, and the old settings stay in force.
    add_user(&place, "ann");
    let confined = serve(&place);
    chmod(0o666);
    confined.server.signal("-HUP");
    confined.logs("reload failed, the old configuration stays in force: ");
    confined.logs("chmod go-w");
    client(async {
        let mut ann = smb2::connect(&confined.server.address, "ann", "pw").await.unwrap();
        ann.connect_share("in").await.unwrap();
    });
    assert_eq!(confined.server.stop().code, 0);
}
