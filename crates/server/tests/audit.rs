//! The audit log: every event of a scene against the schema in `docs/audit.md`.
#![allow(clippy::print_stdout, unreachable_pub, dead_code, reason = "tests")]

#[path = "audit/changes.rs"]
mod changes;
#[path = "audit/clamd.rs"]
mod clamd;
#[path = "client/mod.rs"]
mod client;
#[path = "audit/sessions.rs"]
mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use frevo_auth::{Account, Accounts, Membership};
use frevo_net::quic::{Decision, Verdict};
use frevo_posix::{PosixOptions, PosixVfs};
use frevo_server::access_rules::Names;
use frevo_server::ambient::Host;
use frevo_server::audit::{Audit, Event, File, Kind, Operations, ShareAudit, Sink};
use frevo_server::internal::limits::{
    AUDIT_QUEUE, AUDIT_QUEUE_BYTES, AUDIT_VALUE_BYTES, AUDIT_WRITE_BYTES,
    LINES_AT_ONCE_PER_NETWORK, UNAUTHENTICATED_PER_ADDRESS, UNAUTHENTICATED_SPARED,
};
use frevo_server::internal::state::{EVICTED, GAVE_UP_WAITING, Notice};
use frevo_server::share::{BrakeAction, BrakeLimits, BrakeRules, Share};
use frevo_server::{CaptureData, CaptureTarget};
use frevo_wire::command::change_notify::{self, ChangeNotifyFlags, CompletionFilter};
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::set_info::InfoType;
use frevo_wire::dtyp::{AccessMask, SecurityDescriptor, SecurityInformation, Sid};
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::{Command, Status};
use parking_lot::{Condvar, Mutex};
use serde_json::Value;

use client::files::{rename_draft, set_info_draft};
use client::logon::Setup;
use client::protection::{bytes, everyone, protect_draft};
use client::settings;
use client::world::{Users, in_own_world, password, serving};
use client::{Draft, Offer, Want, World};

/// The longest wait for the thread that writes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lines that a test looks at.
#[derive(Clone, Default)]
struct Kept(Arc<(Mutex<Lines>, Condvar)>);

#[derive(Default)]
struct Lines {
    text: String,
    /// Bytes of the longest write.
    longest: usize,
    /// The sink waits.
    is_held: bool,
    /// Writes that have begun, those that wait or fail included.
    begun: usize,
    /// The sink says that the disk is full.
    is_full: bool,
    /// Lines that it has not taken for that.
    refused: usize,
}

impl Sink for Kept {
    fn name(&self) -> &'static str {
        "the test"
    }

    fn write(&mut self, lines: &str) -> io::Result<()> {
        let mut state = self.0.0.lock();
        state.begun += 1;
        self.0.1.notify_all();
        while state.is_held {
            self.0.1.wait(&mut state);
        }
        if state.is_full {
            state.refused += lines.lines().count();
            self.0.1.notify_all();
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.longest = state.longest.max(lines.len());
        state.text.push_str(lines);
        Ok(())
    }
}

impl Kept {
    fn set(&self, change: impl FnOnce(&mut Lines)) {
        change(&mut self.0.0.lock());
        self.0.1.notify_all();
    }

    /// Returns when so many writes have begun.
    fn wait_for_writes(&self, count: usize) {
        self.wait_until(|state| state.begun >= count);
    }

    fn wait_until(&self, is_so: impl Fn(&Lines) -> bool) {
        let mut state = self.0.0.lock();
        while !is_so(&state) {
            assert!(!self.0.1.wait_for(&mut state, PATIENCE).timed_out());
        }
    }

    fn lines(&self) -> Vec<Value> {
        let state = self.0.0.lock();
        state.text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    fn audit(&self) -> Audit {
        Audit::start_with(Arc::new(Host), vec![Box::new(self.clone())]).unwrap()
    }
}

/// The entry of one event in the document.
struct Row {
    always: BTreeSet<String>,
    sometimes: BTreeSet<String>,
}

/// The tables of `docs/audit.md`: fields with their types, events with their fields.
fn schema() -> (BTreeMap<String, String>, BTreeMap<String, Row>) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/audit.md");
    let page = std::fs::read_to_string(page).unwrap();
    let table = |chapter: &str| -> Vec<Vec<String>> {
        let text = page.split(&format!("\n## {chapter}\n")).nth(1).expect(chapter);
        let text = text.split("\n## ").next().unwrap();
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        rows.map(|row| row.split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
    };
    let names = |cell: &str| -> Vec<String> {
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let fields = table("Fields").into_iter().map(|row| (names(&row[1])[0].clone(), row[2].clone()));
    let events = table("Events").into_iter().map(|row| {
        let row_of = |cell: &str| names(cell).into_iter().collect();
        (names(&row[1])[0].clone(), Row { always: row_of(&row[3]), sometimes: row_of(&row[4]) })
    });
    (fields.collect(), events.collect())
}

/// Fails unless a line is as the document says.
fn check(line: &Value) {
    let (fields, events) = schema();
    let line_fields = line.as_object().unwrap();
    let row = &events[line["event"].as_str().unwrap()];
    let everywhere = ["v", "time", "event", "outcome"];
    for name in everywhere.iter().copied().chain(row.always.iter().map(|name| &**name)) {
        assert!(line_fields.contains_key(name), "{name} is missing: {line}");
    }
    for (name, value) in line_fields {
        let is_known = everywhere.contains(&&**name)
            || ["status", "left_out", "lost"].contains(&&**name)
            || row.always.contains(name)
            || row.sometimes.contains(name);
        assert!(is_known, "{name} is not documented: {line}");
        let is_right = match fields[name].as_str() {
            "string" => value.is_string(),
            "number" => value.is_u64(),
            "boolean" => value.is_boolean(),
            other => panic!("type {other} of {name}"),
        };
        assert!(is_right, "{name} is no {}: {line}", fields[name]);
    }
    let is_refused = line["outcome"] == "refused";
    assert!(is_refused || line["outcome"] == "success", "{line}");
    assert_eq!(line_fields.contains_key("status"), is_refused, "{line}");
    assert_eq!(line["v"], 1);
    let time = line["time"].as_str().unwrap();
    assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
}

#[test]
fn every_event_is_in_the_document() {
    let (_, events) = schema();
    let documented: BTreeSet<&str> = events.keys().map(|name| &**name).collect();
    let known: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(documented, known);
}

/// As [`Users`], with `ann` among the administrators.
#[derive(Debug)]
struct AnnRules;

impl Accounts for AnnRules {
    fn account(&self, user: &str, domain: &str) -> Option<Account> {
        Users.account(user, domain)
    }

    fn membership(&self, user: &str) -> Option<Membership> {
        let groups = match user {
            "ann" => vec![String::from("Administrators")],
            _ => Vec::new(),
        };
        Some(Membership { name: user.to_owned(), groups, ..Membership::default() })
    }
}

/// A password that is nobody's.
const WRONG: &str = "Hunter2-of-the-guesser";

const ALL: Operations = Operations(0x7F);

fn scene(operations: Operations, test: impl AsyncFnOnce(&World)) -> Vec<Value> {
    let kept = Kept::default();
    let audit = kept.audit();
    let dir = tempfile::tempdir().unwrap();
    let vfs: Arc<dyn frevo_store::Vfs> =
        Arc::new(PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap());
    let share = |name: &str| {
        let audit = ShareAudit { audit: audit.clone(), operations };
        Share::disk(name, Arc::clone(&vfs)).audit(audit)
    };
    let bobs = share("bobs").rules(frevo_server::access_rules::Rules::for_users(&["bob"]));
    let limits = BrakeLimits {
        files_per_minute: 1,
        files_per_hour: 1,
        renames_per_minute: 1,
        deletions_per_minute: None,
    };
    let rules = BrakeRules {
        limits,
        action: BrakeAction::Hold,
        slow_to: 1,
        lasts: Duration::from_secs(60),
        except: Names::default(),
        except_paths: Vec::new(),
    };
    let service = tempfile::tempdir().unwrap();
    let scanned = share("scanned").scanning(clamd::scanning(service.path()));
    let shares = [share("data"), bobs, share("braked").brake(rules), scanned];
    let server = serving(settings(), shares, Arc::new(AnnRules), Arc::new(Host));
    server.state().audit.set(audit.clone());
    in_own_world(true, &World::of(server, dir), test);
    audit.finish();
    let lines = kept.lines();
    lines.iter().for_each(check);
    lines
}

async fn everything(world: &World) {
    let (mut ann, hers) = world.session("ann", &Offer::default()).await;
    // A right-to-left override in the name would make a terminal show another name, so the audit
    // must escape it.
    let file = ann.open_file(&hers, &Want::file("a\u{202e}b")).await;
    ann.write(&hers, file, 0, b"data").await;
    ann.close(&hers, file).await;
    let file = ann.open_file(&hers, &Want::existing("a\u{202e}b")).await;
    ann.on(&hers, rename_draft(FileInfoClass::RENAME, file, "c", false)).await.ok();
    let hidden = [vec![0; 32], vec![2, 0, 0, 0, 0, 0, 0, 0]].concat();
    let class = FileInfoClass::BASIC.0;
    ann.on(&hers, set_info_draft(file, InfoType::FILE, class, 0, &hidden)).await.ok();
    let security = AccessMask::FILE_ALL.0 | AccessMask::ACCESS_SYSTEM_SECURITY.0;
    ann.close(&hers, file).await;
    let want = Want::existing("c").access(AccessMask(security));
    let file = ann.open_file(&hers, &want).await;
    ann.on(&hers, protect_draft(file, &everyone(AccessMask::FILE_ALL))).await.ok();
    let given = SecurityDescriptor {
        owner: Some(Sid::ADMINISTRATORS.with_rid(1).unwrap_or(Sid::LOCAL_SYSTEM)),
        ..SecurityDescriptor::default()
    };
    let owner = SecurityInformation::OWNER.0;
    ann.on(&hers, set_info_draft(file, InfoType::SECURITY, 0, owner, &bytes(&given))).await.ok();
    ann.on(&hers, protect_draft(file, &everyone(AccessMask::FILE_GENERIC_READ))).await.ok();
    ann.close(&hers, file).await;

    let (mut bob, his) = world.session("bob", &Offer::default()).await;
    let want = Want::existing("c").access(AccessMask::WRITE_DATA);
    bob.create(&his, &want).await.expect(Status::ACCESS_DENIED);
    let want = Want::file("d").options(CreateOptions::DELETE_ON_CLOSE);
    let file = bob.open_file(&his, &want).await;
    bob.close(&his, file).await;
    let want = Want::file("e").disposition(CreateDisposition::OVERWRITE_IF);
    for _ in 0..2 {
        let file = bob.open_file(&his, &want).await;
        bob.close(&his, file).await;
    }
    let end = 1_u64.to_le_bytes();
    let file = bob.open_file(&his, &Want::existing("e")).await;
    let class = FileInfoClass::END_OF_FILE.0;
    bob.on(&his, set_info_draft(file, InfoType::FILE, class, 0, &end)).await.ok();
    bob.close(&his, file).await;

    let braked = bob.mount(&his.logon, "braked").await;
    let file = bob.open_file(&braked, &Want::existing("e")).await;
    bob.write(&braked, file, 0, &(0..=255).collect::<Vec<u8>>()).await;
    let refused = bob.on(&braked, rename_draft(FileInfoClass::RENAME, file, "f", false)).await;
    refused.expect(Status::ACCESS_DENIED);
    bob.close(&braked, file).await;
    let held = frevo_server::Kick::User(String::from("bob"));
    assert_eq!(world.embedded.release(&held, "a test"), 1);

    let scanned = bob.mount(&his.logon, "scanned").await;
    clamd::find(world, &mut bob, &scanned).await;

    bob.on(&his, Draft::empty(Command::TREE_DISCONNECT)).await.ok();

    for _ in 0..3 {
        let mut guesser = world.connect();
        guesser.negotiate(&Offer::default()).await;
        let setup = Setup { password: String::from(WRONG), ..Setup::of("ann") };
        assert!(guesser.try_log_on(setup).await.is_err());
    }
    // The frame is no SMB message, so the server ends the connection, which the audit must record.
    let mut broken = world.connect();
    broken.negotiate(&Offer::default()).await;
    broken.send_frame(&[0; 64]).await;
    broken.expect_disconnect().await;
    frevo_server::internal::state::audit_limit(&world.server, broken_peer(), "test");
    for verdict in [Verdict::Allowed, Verdict::NotAllowed] {
        let decision = Decision::on(b"", verdict);
        frevo_server::internal::state::audit_certificate(&world.server, broken_peer(), &decision);
    }
    let (target, data) = (CaptureTarget::default(), CaptureData::Whole);
    drop(world.embedded.capture(target, 1 << 20, data, true, "a test"));
    let bob = frevo_server::Kick::User(String::from("bob"));
    world.embedded.kick(&bob, "a test").await;
    // The program `frevo` emits these five events and tests them itself. Here they are only
    // compared with docs/audit.md.
    let audit = world.server.audit.get().unwrap();
    audit.emit(Event::new(Kind::Start).with("version", "1"));
    audit.emit(Event::new(Kind::Reload));
    audit.emit(Event::new(Kind::Reload).status(Status::UNSUCCESSFUL).with("reason", "a bug"));
    let moved = Event::new(Kind::Cluster).with("change", "move").with("unit", "data");
    audit.emit(moved.with("node", "n2").with("by", "admin socket").with("reason", "a test"));
    let managed = Event::new(Kind::Manage).with("change", "set-share").with("target", "data");
    let managed = managed.with("by", "manage token").with("peer", "192.0.2.7");
    audit.emit(managed.with("keys", "{}").with("reason", "a test"));
    audit.emit(Event::new(Kind::Stop));
}

fn broken_peer() -> std::net::SocketAddr {
    std::net::SocketAddr::from(([192, 0, 2, 1], 1))
}

#[test]
fn what_happens_is_recorded_as_the_document_says() {
    let lines = scene(ALL, everything);
    let found = |event: &str, with: &[(&str, &str)]| {
        let is = |line: &&Value| {
            line["event"] == event && with.iter().all(|(name, value)| line[*name] == *value)
        };
        assert!(lines.iter().any(|line| is(&line)), "{event} {with:?} is not in {lines:#?}");
    };
    found("logon", &[("outcome", "success"), ("user", "ann"), ("purpose", "new")]);
    found("logon", &[("outcome", "refused"), ("user", "ann"), ("reason", "the password is wrong")]);
    found("throttle", &[("user", "ann")]);
    for change in ["begin", "end"] {
        found("capture", &[("change", change), ("target", "everything"), ("by", "a test")]);
    }
    found("connect", &[("user", "bob"), ("share", "data")]);
    found("create", &[("user", "ann"), ("path", "a\u{202e}b"), ("action", "created")]);
    found("create", &[("user", "bob"), ("path", "e"), ("action", "overwritten")]);
    found("write", &[("user", "ann"), ("path", "a\u{202e}b")]);
    found("write", &[("user", "bob"), ("path", "e")]);
    found("open", &[("user", "ann"), ("path", "c")]);
    found("open", &[("user", "bob"), ("path", "c"), ("status", "ACCESS_DENIED")]);
    found("rename", &[("user", "ann"), ("path", "a\u{202e}b"), ("to", "c")]);
    found("delete", &[("user", "bob"), ("path", "d")]);
    found("attributes", &[("user", "ann"), ("path", "c"), ("parts", "attributes")]);
    found("acl", &[("user", "ann"), ("path", "c"), ("parts", "dacl")]);
    found("acl", &[("user", "ann"), ("path", "c"), ("parts", "owner")]);
    found("privilege", &[("user", "ann"), ("privilege", "SeSecurityPrivilege")]);
    found("privilege", &[("user", "ann"), ("privilege", "SeRestorePrivilege")]);
    found("violation", &[("outcome", "success")]);
    found("limit", &[("reason", "test")]);
    found("certificate", &[("outcome", "success"), ("subject", "")]);
    found("certificate", &[("outcome", "refused"), ("status", "ACCESS_DENIED")]);
    found("kick", &[("target", "user bob"), ("by", "a test")]);
    let braked = [("share", "braked"), ("user", "bob"), ("action", "hold"), ("pattern", "files")];
    found("brake", &braked);
    found("virus", &[("share", "scanned"), ("user", "bob"), ("virus", "Eicar")]);
    found("brake", &[("action", "released"), ("target", "user bob"), ("by", "a test")]);
    found("rename", &[("share", "braked"), ("status", "ACCESS_DENIED"), ("to", "f")]);
    found("disconnect", &[("user", "bob"), ("share", "data")]);
    found("logoff", &[("user", "ann")]);
    let seen: BTreeSet<&str> = lines.iter().filter_map(|line| line["event"].as_str()).collect();
    // The command line changes passwords and shares, and has snapshots made, so its tests cover these kinds
    // of events.
    let is_there = |kind: &&Kind| matches!(kind, Kind::Password | Kind::Share | Kind::Snapshot);
    let here = Kind::ALL.iter().filter(|kind| !is_there(kind));
    let known: BTreeSet<&str> = here.map(|kind| kind.name()).collect();
    assert_eq!(seen, known, "a kind of event is not held to the document");
    // No audit line may contain a password, not even the wrong one that a client tried.
    for secret in [WRONG, &password("ann"), &password("bob")] {
        assert!(!lines.iter().any(|line| line.to_string().contains(secret)), "{secret}");
    }
}

/// Whoever loses something when places or memory are short is recorded.
#[test]
fn evictions_are_recorded() {
    let lines = scene(Operations::EMPTY, async |world| {
        let mut crowd: Vec<_> = (0..UNAUTHENTICATED_PER_ADDRESS).map(|_| world.connect()).collect();
        tokio::time::sleep(UNAUTHENTICATED_SPARED).await;
        crowd.push(world.connect());
        crowd[0].expect_disconnect().await;
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        let folder = ann.open_file(&hers, &Want::directory("d")).await;
        let handle = world.server.sessions()[0].channel_handles().remove(0);
        // No request waits yet, so a notice to cancel waiting requests must have no effect.
        handle.send(Notice::GiveUpWaiting).unwrap();
        ann.expect_alive().await;
        let request = change_notify::Request {
            flags: ChangeNotifyFlags::EMPTY,
            output_buffer_length: 4096,
            file_id: folder,
            completion_filter: CompletionFilter::FILE_NAME,
        };
        let notify = Draft::new(Command::CHANGE_NOTIFY).with(|w| request.encode(w));
        ann.send(vec![hers.put(notify)], hers.via()).await;
        ann.interim().await;
        handle.send(Notice::GiveUpWaiting).unwrap();
        ann.reply().await.expect(Status::INSUFFICIENT_RESOURCES);
        handle.send(Notice::Disconnect("took too much")).unwrap();
        ann.expect_disconnect().await;
    });
    let limits = lines.iter().filter(|line| line["event"] == "limit");
    let reasons: BTreeSet<_> = limits.map(|line| line["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, BTreeSet::from([EVICTED, GAVE_UP_WAITING, "took too much"]));
}

#[test]
fn a_share_records_what_it_is_told_to() {
    let operations = |lines: &[Value]| -> BTreeSet<String> {
        let names = ["open", "create", "write", "rename", "delete", "acl", "attributes"];
        let events = lines.iter().map(|line| line["event"].as_str().unwrap().to_owned());
        events.filter(|event| names.contains(&&**event)).collect()
    };
    let only = |name: &str| BTreeSet::from([name.to_owned()]);
    assert_eq!(operations(&scene(Operations::EMPTY, everything)), BTreeSet::new());
    assert_eq!(operations(&scene(Operations::RENAME, everything)), only("rename"));
    assert_eq!(operations(&scene(Operations::DELETE, everything)), only("delete"));
}

#[test]
fn what_does_not_fit_is_counted() {
    for (over, lost) in [(0, None), (1, Some(1)), (7, Some(7))] {
        let kept = Kept::default();
        kept.set(|state| state.is_held = true);
        let audit = kept.audit();
        // The writer takes the first event and then blocks, so the next ones fill the queue.
        audit.emit(Event::new(Kind::Start));
        kept.wait_for_writes(1);
        for _ in 0..AUDIT_QUEUE + over {
            audit.emit(Event::new(Kind::Stop));
        }
        kept.set(|state| state.is_held = false);
        audit.finish();
        let lines = kept.lines();
        assert_eq!(lines.len(), 1 + AUDIT_QUEUE);
        let told: Vec<_> = lines.iter().filter_map(|line| line["lost"].as_u64()).collect();
        assert_eq!(told, Vec::from_iter(lost));
    }
}

#[test]
fn long_names_do_not_take_more_memory_than_there_is() {
    let kept = Kept::default();
    kept.set(|state| state.is_held = true);
    let audit = kept.audit();
    audit.emit(Event::new(Kind::Start));
    kept.wait_for_writes(1);
    let name = "x".repeat(64 << 10);
    let fits = AUDIT_QUEUE_BYTES / name.len();
    for _ in 0..fits + 10 {
        audit.emit(Event::new(Kind::Open).with("path", &*name));
    }
    kept.set(|state| state.is_held = false);
    audit.finish();
    let lines = kept.lines();
    assert!(lines.len() <= fits, "{}", lines.len());
    assert!(lines.iter().any(|line| line["lost"].as_u64() >= Some(10)));
}

#[test]
fn lines_are_written_in_pieces() {
    let kept = Kept::default();
    kept.set(|state| state.is_held = true);
    let audit = kept.audit();
    // In JSON each byte of this name becomes six bytes, so the lines of 200 events are longer than
    // one write may be.
    let name = "\u{7f}".repeat(AUDIT_VALUE_BYTES);
    for _ in 0..200 {
        audit.emit(Event::new(Kind::Open).with("path", &*name));
    }
    kept.set(|state| state.is_held = false);
    audit.finish();
    assert_eq!(kept.lines().len(), 200);
    let longest = kept.0.0.lock().longest;
    let line = 6 * AUDIT_VALUE_BYTES + 200;
    assert!((AUDIT_WRITE_BYTES..AUDIT_WRITE_BYTES + line).contains(&longest), "{longest}");
}

#[test]
fn a_full_disk_stops_nobody_and_is_told() {
    let kept = Kept::default();
    let audit = kept.audit();
    kept.set(|state| state.is_full = true);
    for _ in 0..3 {
        audit.emit(Event::new(Kind::Start));
    }
    kept.wait_until(|state| state.refused == 3);
    kept.set(|state| state.is_full = false);
    audit.emit(Event::new(Kind::Stop));
    audit.finish();
    let lines = kept.lines();
    assert_eq!(
        (lines.len(), &lines[0]["event"], &lines[0]["lost"]),
        (1, &"stop".into(), &3.into())
    );
}

#[test]
fn refusals_are_limited_and_counted() {
    let kept = Kept::default();
    let audit = kept.audit();
    let event = || Event::new(Kind::Violation).peer(broken_peer()).with("reason", "test");
    for _ in 0..LINES_AT_ONCE_PER_NETWORK + 5 {
        audit.emit_limited(broken_peer().ip(), event);
    }
    let elsewhere = std::net::IpAddr::from([198, 51, 100, 1]);
    audit.emit_limited(elsewhere, event);
    audit.finish();
    let lines = kept.lines();
    let caused = LINES_AT_ONCE_PER_NETWORK as usize + 5 + 1;
    // Events beyond the bound are dropped. At most twice a second, a written line has the number of
    // dropped events in `left_out`. Lines and dropped events together must be all events.
    assert!((caused - 5..caused).contains(&lines.len()), "{}", lines.len());
    let left_out: u64 = lines.iter().filter_map(|line| line["left_out"].as_u64()).sum();
    assert_eq!(lines.len() + usize::try_from(left_out).unwrap(), caused);
}

#[test]
fn a_file_is_its_owners_and_can_be_rotated() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let (path, rotated) = (dir.path().join("audit.log"), dir.path().join("audit.log.1"));
    let audit =
        Audit::start_with(Arc::new(Host), vec![Box::new(File::open(&path).unwrap())]).unwrap();
    audit.emit(Event::new(Kind::Start));
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while std::fs::read_to_string(&path).unwrap().is_empty() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::rename(&path, &rotated).unwrap();
    // The log file was renamed (rotated). After `reopen`, lines must go to a new file.
    audit.reopen();
    audit.emit(Event::new(Kind::Stop));
    audit.finish();
    let of = |path: &Path| -> Value {
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    assert_eq!((&of(&rotated)["event"], &of(&path)["event"]), (&"start".into(), &"stop".into()));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // `open` sets the mode of a log file that another program created to 0600; `check` leaves it as
    // it is.
    let mode_of = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    File::check(&path).unwrap();
    assert_eq!(mode_of(&path), 0o644, "who only looks changes nothing");
    File::open(&path).unwrap();
    assert_eq!(mode_of(&path), 0o600);
    let other = dir.path().join("other.log");
    File::check(&other).unwrap();
    assert!(!other.exists(), "who only looks makes nothing");
    assert!(File::check(&dir.path().join("none/audit.log")).is_err());
    // Opening a FIFO without a reader would block the server, so it is refused.
    let fifo = dir.path().join("fifo");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, 0o600.into(), 0).unwrap();
    assert!(File::check(&fifo).is_err() && File::open(&fifo).is_err());
    // A symbolic link is refused, because it could lead to a file of another user.
    std::os::unix::fs::symlink(&rotated, dir.path().join("link")).unwrap();
    assert!(File::open(&dir.path().join("link")).is_err());
}
