//! Scans for viruses, by services of this test.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use frevo_posix::{PosixOptions, PosixVfs};
use frevo_server::ambient::Host;
use frevo_server::audit::{Audit, Operations, ShareAudit, Sink};
use frevo_server::internal::limits::SCANS_WAITING_PER_USER;
use frevo_server::scanning::{
    FoundAct, ScanRules, ScanService, Scanning, connect_unix, remember, remembered,
};
use frevo_server::share::Share;
use frevo_wire::command::create::CreateDisposition;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::{FileInfoClass, Pattern};
use parking_lot::{Condvar, Mutex};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use tempfile::TempDir;

use crate::client::files::{delete_draft, file_id, rename_draft};
use crate::client::peer::async_id;
use crate::client::world::{Users, in_own_world, serving};
use crate::client::*;

/// The file by which scanners are tried, in two parts, so that no scanner finds it here.
fn eicar() -> String {
    let (one, two) = ("X5O!P%@AP[4\\PZX54(P^)7CC)7}$EICAR", "-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*");
    [one, two].concat()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Honest,
    /// It answers when it is honest again.
    Held,
    /// It never answers.
    Silent,
    /// Its answer never ends.
    Endless,
    /// It closes the connection.
    Closes,
    /// It says that nothing is found before it has the file.
    Early,
    /// It says that the file is too large.
    Refuses,
}

/// A service that scans.
#[derive(Debug)]
struct Service {
    manner: Mutex<Manner>,
    changed: Condvar,
    scans: AtomicUsize,
}

impl Service {
    fn new() -> Arc<Self> {
        let (manner, changed) = (Mutex::new(Manner::Honest), Condvar::new());
        Arc::new(Self { manner, changed, scans: AtomicUsize::new(0) })
    }

    fn be(&self, manner: Manner) {
        *self.manner.lock() = manner;
        self.changed.notify_all();
    }

    fn scans(&self) -> usize {
        self.scans.load(Ordering::Relaxed)
    }

    /// A clamd at a socket of `dir`.
    fn clamd(dir: &Path) -> (Arc<Self>, ScanService) {
        let (service, path) = (Self::new(), dir.join("clamd.ctl"));
        let listener = UnixListener::bind(&path).unwrap();
        let served = Arc::clone(&service);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let service = Arc::clone(&served);
                std::thread::spawn(move || drop(service.serve_clamd(stream)));
            }
        });
        (service, ScanService::ClamdSocket(path))
    }

    fn serve_clamd(&self, mut stream: UnixStream) -> io::Result<()> {
        let mut command = Vec::new();
        while command.last() != Some(&0) {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            command.extend(byte);
        }
        if command == b"zVERSION\0" {
            return stream.write_all(b"ClamAV 1.0/1/today\0");
        }
        assert_eq!(command, b"zINSTREAM\0");
        self.scans.fetch_add(1, Ordering::Relaxed);
        let manner = *self.manner.lock();
        match manner {
            Manner::Closes => return Ok(()),
            Manner::Early => stream.write_all(b"stream: OK\0")?,
            Manner::Endless => loop {
                stream.write_all(&[b'a'; 512])?;
            },
            _ => {}
        }
        let mut content = Vec::new();
        loop {
            let mut length = [0; 4];
            stream.read_exact(&mut length)?;
            let length = usize::try_from(u32::from_be_bytes(length)).unwrap();
            if length == 0 {
                break;
            }
            let at = content.len();
            content.resize(at + length, 0);
            stream.read_exact(&mut content[at..])?;
        }
        match manner {
            Manner::Silent => return stream.read_exact(&mut [0]),
            Manner::Refuses => return stream.write_all(b"INSTREAM size limit exceeded. ERROR\0"),
            _ => self.await_honesty(),
        }
        let is_found = has_virus(&content);
        stream.write_all(if is_found { b"stream: Eicar FOUND\0" } else { b"stream: OK\0" })
    }

    fn await_honesty(&self) {
        let mut manner = self.manner.lock();
        self.changed.wait_while(&mut manner, |manner| *manner == Manner::Held);
    }
}

fn has_virus(content: &[u8]) -> bool {
    let virus = eicar();
    content.windows(virus.len()).any(|window| window == virus.as_bytes())
}

/// Lines of an audit log.
#[derive(Debug, Clone, Default)]
struct Lines(Arc<Mutex<String>>);

impl Sink for Lines {
    fn name(&self) -> &'static str {
        "the test"
    }

    fn write(&mut self, lines: &str) -> io::Result<()> {
        self.0.lock().push_str(lines);
        Ok(())
    }
}

/// A world whose share `data` is scanned by `service`.
fn scanned(rules: ScanRules, service: ScanService, timeout: Duration) -> (World, Lines, Audit) {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().to_owned();
    scanned_in(dir, &files, Scanning::new(rules, service, 2, timeout))
}

/// The same for the files of a folder.
fn scanned_in(dir: TempDir, files: &Path, scanning: Scanning) -> (World, Lines, Audit) {
    let vfs = Arc::new(PosixVfs::open_root(files, PosixOptions::default()).unwrap());
    let lines = Lines::default();
    let audit = Audit::start(vec![Box::new(lines.clone())]).unwrap();
    let recorded = ShareAudit { audit: audit.clone(), operations: Operations::EMPTY };
    let share = Share::disk("data", vfs).audit(recorded).scanning(scanning);
    let embedded = serving(settings(), [share], Arc::new(Users), Arc::new(Host));
    (World::of(embedded, dir), lines, audit)
}

/// Runs a test with a clamd, and returns the lines of the audit log.
fn with_clamd(
    rules: ScanRules,
    timeout: Duration,
    test: impl AsyncFnOnce(&World, &Service),
) -> String {
    let dir = tempfile::tempdir().unwrap();
    let (service, place) = Service::clamd(dir.path());
    let (world, lines, audit) = scanned(rules, place, timeout);
    in_own_world(false, &world, async |world: &World| {
        test(world, &service).await;
        settled(world).await;
    });
    audit.finish();
    let text = lines.0.lock();
    text.clone()
}

/// Time that no scan of an honest service takes.
const LONG: Duration = Duration::from_secs(60);

/// Waits until nothing is scanned any more.
async fn settled(world: &World) {
    while world.embedded.metrics().scans_waiting > 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn reading(name: &str) -> Want {
    Want::existing(name).access(AccessMask::FILE_GENERIC_READ)
}

async fn try_to_read(peer: &mut Peer, mount: &Mount, name: &str) -> Status {
    let reply = peer.create(mount, &reading(name)).await;
    if reply.status() == Status::SUCCESS {
        peer.close(mount, file_id(&reply)).await;
    }
    reply.status()
}

async fn write_file(peer: &mut Peer, mount: &Mount, name: &str, content: &[u8]) {
    let file = peer.open_file(mount, &Want::file(name)).await;
    peer.write(mount, file, 0, content).await;
    peer.close(mount, file).await;
}

#[test]
fn a_file_with_a_virus_is_not_opened_to_be_read() {
    let log = with_clamd(ScanRules::default(), LONG, async |world, service| {
        world.file("bad.txt", format!("padding {} padding", eicar()));
        world.file("good.txt", "good");
        world.file("empty.txt", "");
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        for _ in 0..3 {
            let status = try_to_read(&mut ann, &mount, "bad.txt").await;
            assert_eq!(status, Status::VIRUS_INFECTED);
            assert_eq!(try_to_read(&mut ann, &mount, "good.txt").await, Status::SUCCESS);
            assert_eq!(try_to_read(&mut ann, &mount, "empty.txt").await, Status::SUCCESS);
        }
        assert_eq!(service.scans(), 2, "each file is scanned once");
        // A right to run a file is one to read it.
        let run = reading("bad.txt").access(AccessMask::EXECUTE);
        ann.create(&mount, &run).await.expect(Status::VIRUS_INFECTED);
        let all = Want::existing("bad.txt").access(AccessMask::MAXIMUM_ALLOWED);
        ann.create(&mount, &all).await.expect(Status::VIRUS_INFECTED);
        // A change by a program of the host is found by the time of the change.
        world.file("good.txt", eicar());
        assert_eq!(try_to_read(&mut ann, &mount, "good.txt").await, Status::VIRUS_INFECTED);
        world.file("good.txt", "good again");
        assert_eq!(try_to_read(&mut ann, &mount, "good.txt").await, Status::SUCCESS);
        // Whoever reads no data deletes it.
        let rights = AccessMask::READ_ATTRIBUTES | AccessMask::DELETE;
        let file = ann.open_file(&mount, &Want::existing("bad.txt").access(rights)).await;
        ann.on(&mount, delete_draft(file)).await.ok();
        ann.close(&mount, file).await;
        assert!(!world.path("bad.txt").exists());
        let metrics = world.embedded.metrics();
        assert_eq!((metrics.scans, metrics.scan_finds, metrics.scan_failures), (4, 2, 0));
    });
    let finds: Vec<&str> =
        log.lines().filter(|line| line.contains("\"event\":\"virus\"")).collect();
    assert_eq!(finds.len(), 2, "{log}");
    for part in
        ["\"path\":\"bad.txt\"", "\"virus\":\"Eicar\"", "\"user\":\"ann\"", "\"action\":\"denied\""]
    {
        assert!(finds[0].contains(part), "{part} in {}", finds[0]);
    }
}

#[test]
fn ten_opens_wait_for_one_scan_and_no_core_does() {
    with_clamd(ScanRules::default(), LONG, async |world, service| {
        world.file("f", "content");
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        service.be(Manner::Held);
        let mut waiting = Vec::new();
        for _ in 0..10 {
            let create = mount.put(reading("f").draft());
            waiting.push(ann.send(vec![create], mount.via()).await[0]);
            assert!(ann.interim().await.is_interim());
        }
        assert_eq!(world.embedded.metrics().scans_waiting, 1);
        let (mut bob, his) = world.session("bob", &Offer::default()).await;
        let looks = Want::existing("f").access(AccessMask::READ_ATTRIBUTES);
        let file = bob.open_file(&his, &looks).await;
        bob.close(&his, file).await;
        service.be(Manner::Honest);
        for reply in ann.collect(&waiting).await {
            let file = file_id(reply.ok());
            ann.close(&mount, file).await;
        }
        assert_eq!(service.scans(), 1);
    });
}

#[test]
fn an_open_that_waits_ends_with_its_client() {
    with_clamd(ScanRules::default(), LONG, async |world, service| {
        world.file("f", "content");
        service.be(Manner::Held);
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        let create = mount.put(reading("f").draft());
        let id = ann.send(vec![create], mount.via()).await[0];
        let interim = ann.interim().await;
        let cancel = Peer::cancel(id, Some(async_id(&interim)), mount.logon.id);
        ann.send(vec![cancel], mount.via()).await;
        ann.final_reply(id).await.expect(Status::CANCELLED);
        // The scan that nobody waits for is given up although the service does not answer.
        settled(world).await;
        let create = mount.put(reading("f").draft());
        ann.send(vec![create], mount.via()).await;
        ann.interim().await;
        drop(ann);
        settled(world).await;
        service.be(Manner::Honest);
        let (mut bob, his) = world.session("bob", &Offer::default()).await;
        assert_eq!(try_to_read(&mut bob, &his, "f").await, Status::SUCCESS);
    });
}

#[test]
fn a_file_that_was_changed_is_scanned_after_its_close() {
    let rules = ScanRules { at_open: false, ..ScanRules::default() };
    let log = with_clamd(rules, LONG, async |world, service| {
        world.file("old", eicar());
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        // It was not changed through this server, and opens alone scan nothing here.
        assert_eq!(try_to_read(&mut ann, &mount, "old").await, Status::SUCCESS);
        service.be(Manner::Held);
        write_file(&mut ann, &mount, "new", eicar().as_bytes()).await;
        let create = mount.put(reading("new").draft());
        let id = ann.send(vec![create], mount.via()).await[0];
        ann.interim().await;
        service.be(Manner::Honest);
        ann.final_reply(id).await.expect(Status::VIRUS_INFECTED);
        let clean = Want::file("new").disposition(CreateDisposition::OVERWRITE);
        let file = ann.open_file(&mount, &clean).await;
        ann.write(&mount, file, 0, b"clean").await;
        ann.close(&mount, file).await;
        assert_eq!(try_to_read(&mut ann, &mount, "new").await, Status::SUCCESS);
        // A stream is data as any other.
        write_file(&mut ann, &mount, "new:stream", eicar().as_bytes()).await;
        assert_eq!(try_to_read(&mut ann, &mount, "new:stream").await, Status::VIRUS_INFECTED);
        assert_eq!(try_to_read(&mut ann, &mount, "new").await, Status::SUCCESS);
    });
    assert!(log.contains("\"path\":\"new:stream\""), "{log}");
}

#[test]
fn a_file_that_is_renamed_before_its_scan_is_scanned_at_open() {
    let rules = ScanRules { at_open: false, ..ScanRules::default() };
    with_clamd(rules, LONG, async |world, service| {
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        service.be(Manner::Held);
        for name in ["one", "two"] {
            write_file(&mut ann, &mount, name, b"content").await;
        }
        // The place of the background is taken: the next file waits.
        write_file(&mut ann, &mount, "temporary", eicar().as_bytes()).await;
        let rights = AccessMask::READ_ATTRIBUTES | AccessMask::DELETE;
        let file = ann.open_file(&mount, &Want::existing("temporary").access(rights)).await;
        ann.on(&mount, rename_draft(FileInfoClass::RENAME, file, "final", false)).await.ok();
        ann.close(&mount, file).await;
        service.be(Manner::Honest);
        settled(world).await;
        assert_eq!(try_to_read(&mut ann, &mount, "final").await, Status::VIRUS_INFECTED);
        assert_eq!(try_to_read(&mut ann, &mount, "one").await, Status::SUCCESS);
    });
}

#[test]
fn a_service_that_fails_is_no_verdict() {
    let patience = Duration::from_millis(150);
    for lets_unscanned in [false, true] {
        let rules = ScanRules { lets_unscanned, ..ScanRules::default() };
        let outcome = if lets_unscanned { Status::SUCCESS } else { Status::ACCESS_DENIED };
        with_clamd(rules, patience, async |world, service| {
            let (mut ann, mount) = world.session("ann", &Offer::default()).await;
            // Longer than what the kernel keeps for a service that does not read.
            world.file("f", vec![b'x'; 1 << 20]);
            for manner in
                [Manner::Closes, Manner::Endless, Manner::Silent, Manner::Early, Manner::Refuses]
            {
                service.be(manner);
                let before = world.embedded.metrics().scan_failures;
                assert_eq!(try_to_read(&mut ann, &mount, "f").await, outcome, "{manner:?}");
                assert_eq!(world.embedded.metrics().scan_failures, before + 1, "{manner:?}");
            }
        });
    }
    // Nobody is there.
    let gone = ScanService::ClamdSocket(PathBuf::from("/nonexistent/clamd.ctl"));
    let (world, ..) = scanned(ScanRules::default(), gone, LONG);
    in_own_world(false, &world, async |world: &World| {
        world.file("f", "content");
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        assert_eq!(try_to_read(&mut ann, &mount, "f").await, Status::ACCESS_DENIED);
        settled(world).await;
    });
}

#[test]
fn a_file_with_a_virus_goes_away_where_its_share_says_so() {
    let quarantine = tempfile::tempdir().unwrap();
    let found = FoundAct::Quarantine(quarantine.path().to_owned());
    let rules = ScanRules { found, ..ScanRules::default() };
    let log = with_clamd(rules, LONG, async |world, _| {
        world.file("bad \u{202e}.txt", eicar());
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        let status = try_to_read(&mut ann, &mount, "bad \u{202e}.txt").await;
        assert_eq!(status, Status::VIRUS_INFECTED);
        assert_eq!(std::fs::read_dir(world.path("")).unwrap().count(), 0, "the share is empty");
    });
    assert!(log.contains("\"action\":\"quarantined\""), "{log}");
    let kept: Vec<_> = std::fs::read_dir(quarantine.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(std::fs::read(kept[0].path()).unwrap(), eicar().as_bytes());
    let name = kept[0].file_name().into_string().unwrap();
    assert!(name.ends_with("-bad__.txt"), "{name}");

    let found = FoundAct::Rename(String::from(".infected"));
    let rules = ScanRules { found, ..ScanRules::default() };
    with_clamd(rules, LONG, async |world, _| {
        world.file("bad.txt.infected", "an older one");
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        write_file(&mut ann, &mount, "bad.txt", eicar().as_bytes()).await;
        settled(world).await;
        let renamed = "bad.txt.1.infected";
        assert!(world.path(renamed).exists() && !world.path("bad.txt").exists());
        assert_eq!(try_to_read(&mut ann, &mount, renamed).await, Status::VIRUS_INFECTED);
        assert!(world.path(renamed).exists(), "it has its name already");
    });
}

#[test]
fn some_files_are_not_scanned() {
    let rules = ScanRules {
        max_size: 100,
        exclude: vec![Pattern::new("*.iso", true), Pattern::new("machines/*", true)],
        ..ScanRules::default()
    };
    with_clamd(rules, LONG, async |world, service| {
        std::fs::create_dir_all(world.path("machines/one")).unwrap();
        world.file("a.ISO", eicar());
        world.file("machines/one/disk", eicar());
        world.file("large", vec![b'x'; 101]);
        world.file("small", vec![b'x'; 100]);
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        for name in ["a.ISO", "machines\\one\\disk", "large"] {
            assert_eq!(try_to_read(&mut ann, &mount, name).await, Status::SUCCESS, "{name}");
        }
        assert_eq!(service.scans(), 0);
        assert_eq!(try_to_read(&mut ann, &mount, "small").await, Status::SUCCESS);
        assert_eq!(service.scans(), 1);
    });
}

#[test]
fn an_account_waits_for_so_many_scans() {
    let rules = ScanRules { at_open: false, ..ScanRules::default() };
    with_clamd(rules, LONG, async |world, service| {
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        service.be(Manner::Held);
        // One file is being scanned, since the other place is for files that somebody waits for.
        for number in 0..SCANS_WAITING_PER_USER + 4 {
            write_file(&mut ann, &mount, &number.to_string(), b"content").await;
            while number == 0 && service.scans() < 1 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        assert_eq!(world.embedded.metrics().scans_waiting, SCANS_WAITING_PER_USER + 1);
        service.be(Manner::Honest);
        settled(world).await;
        // One that found no place is scanned when it is opened.
        let last = (SCANS_WAITING_PER_USER + 3).to_string();
        let before = service.scans();
        assert_eq!(try_to_read(&mut ann, &mount, &last).await, Status::SUCCESS);
        assert_eq!(service.scans(), before + 1);
    });
}

#[test]
fn results_outlast_their_server() {
    let files = tempfile::tempdir().unwrap();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let services = dirs.each_ref().map(|dir| Service::clamd(dir.path()));
    std::fs::write(files.path().join("good"), "good").unwrap();
    std::fs::write(files.path().join("bad"), eicar()).unwrap();
    for (_, place) in &services {
        let scanning = Scanning::new(ScanRules::default(), place.clone(), 2, LONG);
        let (world, ..) = scanned_in(tempfile::tempdir().unwrap(), files.path(), scanning);
        in_own_world(false, &world, async |world: &World| {
            let (mut ann, mount) = world.session("ann", &Offer::default()).await;
            assert_eq!(try_to_read(&mut ann, &mount, "good").await, Status::SUCCESS);
            assert_eq!(try_to_read(&mut ann, &mount, "bad").await, Status::VIRUS_INFECTED);
            settled(world).await;
        });
        drop(world);
        // As the text goes into the state directory and comes back, to a process that knows nothing of the service.
        let [one, other] = dirs.each_ref().map(|dir| dir.path().to_str().unwrap());
        remember(&remembered().replace(one, other));
    }
    let scans = services.each_ref().map(|(service, _)| service.scans());
    assert_eq!(scans, [2, 0]);
}

/// A service of ICAP with a preview of so many bytes, or none.
fn icap(preview: Option<usize>) -> (Arc<AtomicUsize>, ScanService) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let _ = serve_icap(stream, preview, &counted);
        }
    });
    let (host, service) = (String::from("127.0.0.1"), String::from("scan"));
    (asked, ScanService::Icap { host, port, service })
}

fn line(stream: &mut TcpStream) -> io::Result<String> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        text.extend(byte);
    }
    text.truncate(text.len() - 2);
    Ok(String::from_utf8(text).unwrap())
}

/// Reads lines up to an empty one.
fn head(stream: &mut TcpStream) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        let line = line(stream)?;
        if line.is_empty() {
            return Ok(lines);
        }
        lines.push(line);
    }
}

/// Reads chunks to their end. True if the end says that there is no more behind a preview.
fn chunks(stream: &mut TcpStream, body: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        let size = line(stream)?;
        let length = usize::from_str_radix(size.split(';').next().unwrap(), 16).unwrap();
        let at = body.len();
        body.resize(at + length, 0);
        stream.read_exact(&mut body[at..])?;
        assert_eq!(line(stream)?, "");
        if length == 0 {
            return Ok(size.ends_with("; ieof"));
        }
    }
}

fn serve_icap(
    mut stream: TcpStream,
    preview: Option<usize>,
    asked: &AtomicUsize,
) -> io::Result<()> {
    let lines = head(&mut stream)?;
    if lines[0].starts_with("OPTIONS icap://127.0.0.1:") {
        let preview = preview.map(|bytes| format!("Preview: {bytes}\r\n")).unwrap_or_default();
        let offer = format!("ICAP/1.0 200 OK\r\nMethods: RESPMOD\r\nISTag: \"1\"\r\n{preview}\r\n");
        return stream.write_all(offer.as_bytes());
    }
    assert!(lines[0].starts_with("RESPMOD "), "{lines:?}");
    asked.fetch_add(1, Ordering::Relaxed);
    // A client may send less than it is asked for.
    let said = lines.iter().find_map(|line| line.strip_prefix("Preview: "));
    let said: Option<usize> = said.map(|bytes| bytes.parse().unwrap());
    assert_eq!(said, preview.map(|bytes| bytes.min(65_536)));
    // The encapsulated heads.
    head(&mut stream)?;
    head(&mut stream)?;
    let mut body = Vec::new();
    let is_all = chunks(&mut stream, &mut body)?;
    if let Some(bytes) = said.filter(|_| !is_all) {
        assert_eq!(body.len(), bytes);
        stream.write_all(b"ICAP/1.0 100 Continue\r\n\r\n")?;
        chunks(&mut stream, &mut body)?;
    }
    if body.starts_with(b"forbidden") {
        return stream.write_all(b"ICAP/1.0 200 OK\r\n\r\nHTTP/1.1 403 No\r\n\r\n");
    }
    stream.write_all(if has_virus(&body) {
        b"ICAP/1.0 200 OK\r\nX-Infection-Found: Type=0; Resolution=2; Threat=Eicar;\r\n\r\nHTTP/1.1 403 No\r\n"
    } else {
        b"ICAP/1.0 204 No modifications needed\r\n\r\n"
    })
}

#[test]
fn a_service_of_icap_scans_with_and_without_a_preview() {
    for preview in [None, Some(0), Some(7), Some(100_000)] {
        let (asked, place) = icap(preview);
        let (world, ..) = scanned(ScanRules::default(), place, LONG);
        in_own_world(false, &world, async |world: &World| {
            world.file("bad", ["x".repeat(70_000), eicar()].concat());
            world.file("good", "seven b");
            world.file("long", vec![b'x'; 300_000]);
            let (mut ann, mount) = world.session("ann", &Offer::default()).await;
            let status = try_to_read(&mut ann, &mount, "bad").await;
            assert_eq!(status, Status::VIRUS_INFECTED, "{preview:?}");
            for name in ["good", "long"] {
                let status = try_to_read(&mut ann, &mount, name).await;
                assert_eq!(status, Status::SUCCESS, "{preview:?} {name}");
            }
            assert_eq!(asked.load(Ordering::Relaxed), 3);
            settled(world).await;
        });
    }
}

#[test]
fn a_service_that_blocks_without_a_virus_moves_nothing() {
    let quarantine = tempfile::tempdir().unwrap();
    let found = FoundAct::Quarantine(quarantine.path().to_owned());
    // Not even with this the file is opened.
    let rules = ScanRules { found, lets_unscanned: true, ..ScanRules::default() };
    let (_, place) = icap(None);
    let (world, ..) = scanned(rules, place, LONG);
    in_own_world(false, &world, async |world: &World| {
        world.file("page", "forbidden by the licence");
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        for _ in 0..2 {
            assert_eq!(try_to_read(&mut ann, &mount, "page").await, Status::VIRUS_INFECTED);
        }
        assert!(world.path("page").exists());
        assert_eq!(world.embedded.metrics().scan_finds, 0);
        settled(world).await;
    });
    assert_eq!(std::fs::read_dir(quarantine.path()).unwrap().count(), 0);
}

#[test]
fn a_find_counts_though_the_file_has_changed_and_is_not_moved_then() {
    let quarantine = tempfile::tempdir().unwrap();
    let found = FoundAct::Quarantine(quarantine.path().to_owned());
    let rules = ScanRules { found, lets_unscanned: true, ..ScanRules::default() };
    with_clamd(rules, LONG, async |world, service| {
        world.file("bad", eicar());
        service.be(Manner::Held);
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        let create = mount.put(reading("bad").draft());
        let id = ann.send(vec![create], mount.via()).await[0];
        ann.interim().await;
        while service.scans() < 1 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        world.file("bad", "clean by now");
        service.be(Manner::Honest);
        ann.final_reply(id).await.expect(Status::VIRUS_INFECTED);
        assert_eq!(world.content("bad"), b"clean by now");
        assert_eq!(try_to_read(&mut ann, &mount, "bad").await, Status::SUCCESS);
    });
}

#[test]
fn a_service_that_takes_no_connections_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("clamd.ctl");
    let listener = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    // Its backlog is full.
    let mut waiting = Vec::new();
    while let Ok(socket) = connect_unix(&path) {
        waiting.push(socket);
    }
    let (world, ..) = scanned(ScanRules::default(), ScanService::ClamdSocket(path), LONG);
    in_own_world(false, &world, async |world: &World| {
        world.file("f", "content");
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        assert_eq!(try_to_read(&mut ann, &mount, "f").await, Status::ACCESS_DENIED);
        settled(world).await;
    });
}
