//! The brake on ransomware: what the server sees of an attack, and what it then refuses.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use frevo_posix::{PosixOptions, PosixVfs};
use frevo_server::access_rules::Names;
use frevo_server::ambient::Host;
use frevo_server::internal::limits::CLOSED_ON_CORE;
use frevo_server::share::{BrakeAction, BrakeLimits, BrakeRules, Share};
use frevo_server::{BrakeStatus, Kick};
use frevo_wire::FileId;
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::FileInfoClass;
use serde_json::Value;
use tokio::time::{Instant, advance};

use super::calls::*;
use super::copies::{chunk, copy, key};
use crate::client::files::{delete_draft, rename_draft, set_draft, write_draft};
use crate::client::world::{Users, in_own_world, serving};
use crate::client::*;

/// Files after which the brake of the tests takes hold.
const FILES: usize = 5;

const LASTS: Duration = Duration::from_secs(600);

fn rules(action: BrakeAction) -> BrakeRules {
    BrakeRules {
        limits: BrakeLimits {
            files_per_minute: 5,
            files_per_hour: 20,
            renames_per_minute: 5,
            deletions_per_minute: None,
        },
        action,
        slow_to: 1,
        lasts: LASTS,
        except: Names::of(["carol"]),
        except_paths: vec![String::from("/vm")],
    }
}

/// The share `office` with a brake and `FILES` files and one more, and `data` of the same folder without one.
fn in_office(rules: BrakeRules, test: impl AsyncFnOnce(&World)) {
    in_office_with(rules, None, test);
}

fn in_office_with(rules: BrakeRules, journal: Option<PathBuf>, test: impl AsyncFnOnce(&World)) {
    let dir = tempfile::tempdir().unwrap();
    let share = |name: &str| {
        let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
        Share::disk(name, Arc::new(vfs))
    };
    let shares = [share("office").brake(rules).brake_journal(journal), share("data")];
    let embedded = serving(settings(), shares, Arc::new(Users), Arc::new(Host));
    let world = World::of(embedded, dir);
    for folder in ["papers", "vm"] {
        std::fs::create_dir(world.path(folder)).unwrap();
    }
    world.file("container", noise(99));
    for file in 0..=FILES {
        world.file(&paper(file).replace('\\', "/"), TEXT);
    }
    in_own_world(true, &world, test);
}

const TEXT: &[u8] = &[b'a'; 3_000];

fn paper(number: usize) -> String {
    format!("papers\\{number}.docx")
}

/// Bytes as encryption makes them.
fn noise(seed: usize) -> Vec<u8> {
    let mut state = seed as u64 + 1;
    let next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(3_000).collect()
}

async fn session(world: &World, user: &str) -> (Peer, Mount) {
    let mut peer = world.connect();
    peer.negotiate(&Offer::default()).await;
    let logon = peer.log_on(user).await;
    let mount = peer.mount(&logon, "office").await;
    (peer, mount)
}

fn brake(world: &World) -> BrakeStatus {
    let mut rows = world.embedded.share_status().into_iter();
    rows.find(|share| share.name == "office").unwrap().brake.unwrap()
}

/// A way to encrypt a file.
#[derive(Debug, Clone, Copy)]
enum Way {
    InPlace,
    Truncated,
    Overwritten,
    NewAndDeleted,
    DeletedAndNew,
    RenamedOver,
    Renamed,
    Copied,
    CopiedFromOld,
    ReplacedByCopy,
    BehindAndZeroed,
    MovedAside,
}

impl Way {
    const ALL: [Self; 12] = [
        Self::InPlace,
        Self::Truncated,
        Self::Overwritten,
        Self::NewAndDeleted,
        Self::DeletedAndNew,
        Self::RenamedOver,
        Self::Renamed,
        Self::Copied,
        Self::CopiedFromOld,
        Self::ReplacedByCopy,
        Self::BehindAndZeroed,
        Self::MovedAside,
    ];

    async fn encrypt(self, peer: &mut Peer, mount: &Mount, number: usize) {
        let name = paper(number);
        let data = noise(number);
        match self {
            Self::InPlace => {
                let file = peer.open_file(mount, &Want::existing(&name)).await;
                peer.write(mount, file, 0, &data).await;
                peer.close(mount, file).await;
            }
            Self::Truncated => {
                let file = peer.open_file(mount, &Want::existing(&name)).await;
                let end = 0_u64.to_le_bytes();
                peer.on(mount, set_draft(FileInfoClass::END_OF_FILE, file, &end)).await.ok();
                peer.close(mount, file).await;
                let file = peer.open_file(mount, &Want::existing(&name)).await;
                peer.write(mount, file, 0, &data).await;
                peer.close(mount, file).await;
            }
            Self::Overwritten => {
                let want = Want::file(&name).disposition(CreateDisposition::OVERWRITE_IF);
                let file = peer.open_file(mount, &want).await;
                peer.write(mount, file, 0, &data).await;
                peer.close(mount, file).await;
            }
            Self::NewAndDeleted => {
                new_file(peer, mount, &format!("{name}.locked"), &data).await;
                delete(peer, mount, &name).await;
            }
            Self::DeletedAndNew => {
                delete(peer, mount, &name).await;
                new_file(peer, mount, &name, &data).await;
            }
            Self::RenamedOver => {
                new_file(peer, mount, "temporary", &data).await;
                rename(peer, mount, "temporary", &name).await;
            }
            Self::Renamed => rename(peer, mount, &name, &format!("{name}.locked")).await,
            Self::CopiedFromOld => {
                let file = peer.open_file(mount, &Want::existing(&name)).await;
                copy_all(peer, mount, "container", file).await;
                peer.close(mount, file).await;
            }
            Self::ReplacedByCopy => {
                let file = peer.open_file(mount, &Want::file("temporary")).await;
                copy_all(peer, mount, &name, file).await;
                peer.close(mount, file).await;
                rename(peer, mount, "temporary", &name).await;
                Box::pin(Self::InPlace.encrypt(peer, mount, number)).await;
            }
            Self::BehindAndZeroed => {
                let file = peer.open_file(mount, &Want::existing(&name)).await;
                peer.write(mount, file, 3_000, &data).await;
                let range = [0_u64.to_le_bytes(), 3_000_u64.to_le_bytes()].concat();
                let zeroed = ioctl_draft(CtlCode::SET_ZERO_DATA, file, &range, 0);
                peer.on(mount, zeroed).await.ok();
                peer.close(mount, file).await;
            }
            Self::MovedAside => {
                let aside = format!("vm\\{number}.docx");
                rename(peer, mount, &name, &aside).await;
                let file = peer.open_file(mount, &Want::existing(&aside)).await;
                peer.write(mount, file, 0, &data).await;
                peer.close(mount, file).await;
                rename(peer, mount, &aside, &name).await;
            }
            Self::Copied => {
                let source = peer.open_file(mount, &Want::file("encrypted")).await;
                peer.write(mount, source, 0, &data).await;
                let file = peer.open_file(mount, &Want::existing(&name)).await;
                let resume = key(peer, mount, source).await;
                let (status, _) = copy(peer, mount, file, resume, &[chunk(0, 0, 3_000)]).await;
                assert_eq!(status, Status::SUCCESS);
                peer.close(mount, file).await;
                peer.close(mount, source).await;
            }
        }
    }
}

async fn copy_all(peer: &mut Peer, mount: &Mount, from: &str, target: FileId) {
    let source = peer.open_file(mount, &Want::existing(from)).await;
    let resume = key(peer, mount, source).await;
    let (status, _) = copy(peer, mount, target, resume, &[chunk(0, 0, 3_000)]).await;
    assert_eq!(status, Status::SUCCESS);
    peer.close(mount, source).await;
}

async fn new_file(peer: &mut Peer, mount: &Mount, name: &str, data: &[u8]) {
    let file = peer.open_file(mount, &Want::file(name)).await;
    peer.write(mount, file, 0, data).await;
    peer.close(mount, file).await;
}

async fn delete(peer: &mut Peer, mount: &Mount, name: &str) {
    let file = peer.open_file(mount, &Want::existing(name)).await;
    peer.on(mount, delete_draft(file)).await.ok();
    peer.close(mount, file).await;
}

async fn rename(peer: &mut Peer, mount: &Mount, from: &str, to: &str) {
    let file = peer.open_file(mount, &Want::existing(from)).await;
    peer.on(mount, rename_draft(FileInfoClass::RENAME, file, to, true)).await.ok();
    peer.close(mount, file).await;
}

#[test]
fn each_way_to_encrypt_is_found_at_the_limit_and_not_before() {
    for way in Way::ALL {
        in_office(rules(BrakeAction::Alarm), async |world| {
            let (mut ann, hers) = session(world, "ann").await;
            for number in 0..FILES {
                assert_eq!(brake(world).alarms, 0, "{way:?} {number}");
                way.encrypt(&mut ann, &hers, number).await;
            }
            let brake = brake(world);
            assert_eq!((brake.alarms, brake.clients.len()), (1, 1), "{way:?}");
            let client = &brake.clients[0];
            let pattern = if matches!(way, Way::Renamed) { "renames" } else { "files" };
            assert_eq!((&*client.user, client.pattern), ("ann", pattern), "{way:?}");
            assert_eq!((client.count, client.seconds, client.action), (FILES, 60, "alarm"));
            assert_eq!(world.embedded.metrics().brake_alarms, 1);
            way.encrypt(&mut ann, &hers, FILES).await;
        });
    }
}

#[test]
fn work_is_no_attack() {
    in_office(rules(BrakeAction::Hold), async |world| {
        let (mut ann, hers) = session(world, "ann").await;
        for number in 0..3 * FILES {
            // Pictures come, are looked through, and some go; text is written; a database and a disk image live.
            new_file(&mut ann, &hers, &format!("{number}.jpg"), &noise(number)).await;
            if number % 2 == 0 {
                delete(&mut ann, &hers, &format!("{number}.jpg")).await;
            }
            let name = paper(number % (FILES + 1));
            let file = ann.open_file(&hers, &Want::existing(&name)).await;
            ann.write(&hers, file, 0, &[b'b'; 3_000]).await;
            let end = 3_000 * (1 + number / (FILES + 1));
            ann.write(&hers, file, end as u64, &noise(number)).await;
            ann.close(&hers, file).await;
            let file = ann.open_file(&hers, &Want::existing(&paper(0))).await;
            ann.write(&hers, file, 7, &noise(number)).await;
            ann.close(&hers, file).await;
            let image = format!("vm\\{number}.img");
            world.file(&image.replace('\\', "/"), TEXT);
            let file = ann.open_file(&hers, &Want::existing(&image)).await;
            ann.write(&hers, file, 0, &noise(number)).await;
            ann.close(&hers, file).await;
            assert_eq!(brake(world).alarms, 0, "{number}: {:?}", brake(world));
        }
    });
}

#[test]
fn a_held_client_reads_and_changes_nothing_until_it_is_released() {
    in_office(rules(BrakeAction::Hold), async |world| {
        let (mut ann, hers) = session(world, "ann").await;
        let last = ann.open_file(&hers, &Want::existing(&paper(FILES))).await;
        for number in 0..FILES {
            Way::InPlace.encrypt(&mut ann, &hers, number).await;
        }
        let denied = Status::ACCESS_DENIED;
        let zero = [0_u64.to_le_bytes(), 4_u64.to_le_bytes()].concat();
        let end = 0_u64.to_le_bytes();
        for (what, draft) in [
            ("write", write_draft(last, 0, b"x")),
            ("rename", rename_draft(FileInfoClass::RENAME, last, "x", false)),
            ("delete", delete_draft(last)),
            ("end of file", set_draft(FileInfoClass::END_OF_FILE, last, &end)),
            ("zero", ioctl_draft(CtlCode::SET_ZERO_DATA, last, &zero, 0)),
        ] {
            assert_eq!(ann.on(&hers, draft).await.status(), denied, "{what}");
        }
        let reading = Want::existing(&paper(FILES)).access(AccessMask::FILE_GENERIC_READ);
        let on_close = reading.options(CreateOptions::DELETE_ON_CLOSE);
        let overwriting = Want::file(&paper(FILES)).disposition(CreateDisposition::OVERWRITE_IF);
        for want in [Want::file("new"), overwriting, on_close] {
            ann.create(&hers, &want).await.expect(denied);
        }
        assert_eq!(ann.read(&hers, last, 0, 3_000).await, TEXT);
        ann.close(&hers, last).await;
        // A new session of the client is held as well; its other share and other users are not.
        let (mut again, mount) = session(world, "ann").await;
        again.create(&mount, &Want::file("new")).await.expect(denied);
        let reading = Want::existing(&paper(FILES)).access(AccessMask::FILE_GENERIC_READ);
        let file = again.open_file(&mount, &reading).await;
        assert_eq!(again.read(&mount, file, 0, 3_000).await, TEXT);
        let (mut other, data) = world.session("ann", &Offer::default()).await;
        new_file(&mut other, &data, "elsewhere", b"x").await;
        let (mut bob, his) = session(world, "bob").await;
        new_file(&mut bob, &his, "bobs", b"x").await;
        advance(2 * LASTS).await;
        let (mut ann, hers) = session(world, "ann").await;
        ann.create(&hers, &Want::file("new")).await.expect(denied);
        assert_eq!(world.content(&paper(FILES).replace('\\', "/")), TEXT);
        assert_eq!(world.embedded.release(&Kick::User("bob".into()), "a test"), 0);
        assert_eq!(world.embedded.release(&Kick::User("ANN".into()), "a test"), 1);
        new_file(&mut ann, &hers, "new", b"x").await;
        assert_eq!(brake(world).clients.len(), 0);
    });
}

#[test]
fn a_client_that_is_cut_off_comes_back_after_its_time() {
    in_office(rules(BrakeAction::Cut), async |world| {
        let (mut ann, hers) = session(world, "ann").await;
        for number in 1..FILES {
            Way::InPlace.encrypt(&mut ann, &hers, number).await;
        }
        let last = ann.open_file(&hers, &Want::existing(&paper(FILES))).await;
        ann.write(&hers, last, 0, &noise(FILES)).await;
        let want = Want::existing(&paper(0)).access(AccessMask::FILE_GENERIC_READ);
        ann.create(&hers, &want).await.expect(Status::USER_SESSION_DELETED);
        let mut again = world.connect();
        again.negotiate(&Offer::default()).await;
        let logon = again.log_on("ann").await;
        // Each share is closed to the account, those without a brake as well.
        for share in ["office", "data"] {
            again.try_mount(&logon, share).await.err().unwrap().expect(Status::ACCESS_DENIED);
        }
        let _bobs = session(world, "bob").await;
        advance(LASTS).await;
        let (mut ann, hers) = session(world, "ann").await;
        new_file(&mut ann, &hers, "new", b"x").await;
    });
}

#[test]
fn a_client_that_is_slowed_down_changes_one_thing_a_second() {
    in_office(rules(BrakeAction::Slow), async |world| {
        let (mut ann, hers) = session(world, "ann").await;
        let last = ann.open_file(&hers, &Want::existing(&paper(FILES))).await;
        for number in 0..FILES {
            Way::InPlace.encrypt(&mut ann, &hers, number).await;
        }
        let began = Instant::now();
        for _ in 0..10 {
            ann.write(&hers, last, 0, b"x").await;
        }
        let slow = began.elapsed();
        assert!((Duration::from_secs(8)..Duration::from_secs(12)).contains(&slow), "{slow:?}");
        let began = Instant::now();
        for _ in 0..10 {
            ann.read(&hers, last, 0, 100).await;
        }
        assert!(began.elapsed() < Duration::from_secs(1));
        assert_eq!(world.embedded.release(&Kick::Share("office".into()), "a test"), 1);
        let began = Instant::now();
        for _ in 0..10 {
            ann.write(&hers, last, 0, b"x").await;
        }
        assert!(began.elapsed() < Duration::from_secs(1));
    });
}

/// Files that are left empty or filled with zeros count like removed ones, and a program that saves by truncation does
/// not.
#[test]
fn wiped_files_count_as_removed() {
    for (what, is_found) in
        [("zeros", true), ("zero data", true), ("empty", true), ("saved", false)]
    {
        let limits =
            BrakeLimits { deletions_per_minute: Some(5), ..rules(BrakeAction::Alarm).limits };
        in_office(BrakeRules { limits, ..rules(BrakeAction::Alarm) }, async |world| {
            let (mut ann, hers) = session(world, "ann").await;
            for number in 0..FILES {
                assert_eq!(brake(world).alarms, 0, "{what} {number}");
                let want = match what {
                    "empty" | "saved" => {
                        Want::file(&paper(number)).disposition(CreateDisposition::OVERWRITE)
                    }
                    _ => Want::existing(&paper(number)),
                };
                let file = ann.open_file(&hers, &want).await;
                let range = [0_u64.to_le_bytes(), 3_000_u64.to_le_bytes()].concat();
                let zeroed = ioctl_draft(CtlCode::SET_ZERO_DATA, file, &range, 0);
                match what {
                    "zeros" => ann.write(&hers, file, 0, &[0; 3_000]).await,
                    "zero data" => {
                        ann.on(&hers, zeroed).await.ok();
                    }
                    "saved" => ann.write(&hers, file, 0, TEXT).await,
                    _ => {}
                }
                ann.close(&hers, file).await;
            }
            let found = brake(world);
            assert_eq!(found.alarms, u64::from(is_found), "{what}: {found:?}");
            assert!(found.clients.iter().all(|client| client.pattern == "deletions"));
        });
    }
}

/// A client with many open files is cut off without them being closed on its core.
#[test]
fn a_session_with_many_files_is_cut_off() {
    in_office(rules(BrakeAction::Cut), async |world| {
        let (mut ann, hers) = session(world, "ann").await;
        for _ in 0..CLOSED_ON_CORE {
            ann.open_file(&hers, &Want::existing(&paper(FILES))).await;
        }
        for number in 0..FILES {
            let file = ann.open_file(&hers, &Want::existing(&paper(number))).await;
            ann.write(&hers, file, 0, &noise(number)).await;
        }
        let want = Want::existing(&paper(0)).access(AccessMask::FILE_GENERIC_READ);
        ann.create(&hers, &want).await.expect(Status::USER_SESSION_DELETED);
        while !world.server.sessions().is_empty() {
            tokio::task::yield_now().await;
        }
    });
}

/// The events, paths and actions of a journal.
fn journal(test: impl AsyncFnOnce(&World)) -> Vec<(String, String, String)> {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("office.jsonl");
    in_office_with(rules(BrakeAction::Alarm), Some(path.clone()), test);
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = |line: &str| -> (String, String, String) {
        let line: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let to = text("to");
        (text("event"), text("path"), if to.is_empty() { text("action") } else { to })
    };
    text.lines().map(line).collect()
}

#[test]
fn the_journal_has_what_was_changed_and_nothing_else() {
    let lines = journal(async |world| {
        let (mut ann, hers) = session(world, "ann").await;
        // A copy that is refused changes nothing.
        let file = ann.open_file(&hers, &Want::existing(&paper(0))).await;
        let source = ann.open_file(&hers, &Want::existing("container")).await;
        let resume = key(&mut ann, &hers, source).await;
        for chunk in [chunk(0, 0, 0), chunk(1 << 20, 0, 3_000)] {
            let (status, _) = copy(&mut ann, &hers, file, resume, &[chunk]).await;
            assert_ne!(status, Status::SUCCESS);
        }
        ann.close(&hers, file).await;
        let file = ann.open_file(&hers, &Want::existing(&paper(1))).await;
        let range = [0_u64.to_le_bytes(), 9_u64.to_le_bytes()].concat();
        ann.on(&hers, ioctl_draft(CtlCode::SET_ZERO_DATA, file, &range, 0)).await.ok();
        ann.close(&hers, file).await;
        let file = ann.open_file(&hers, &Want::existing(&paper(2))).await;
        copy_all(&mut ann, &hers, "container", file).await;
        // One more name, and one in place of another file.
        for name in ["linked", &paper(3)] {
            ann.on(&hers, rename_draft(FileInfoClass::LINK, file, name, true)).await.ok();
        }
        ann.close(&hers, file).await;
        rename(&mut ann, &hers, &paper(4), "moved").await;
        delete(&mut ann, &hers, "moved").await;
    });
    let lines: Vec<[&str; 3]> = lines.iter().map(|(a, b, c)| [&**a, &**b, &**c]).collect();
    let expected = [
        ["write", "papers/1.docx", ""],
        ["write", "papers/2.docx", ""],
        ["create", "linked", ""],
        ["delete", "papers/3.docx", "replaced"],
        ["create", "papers/3.docx", ""],
        ["rename", "papers/4.docx", "moved"],
        ["delete", "moved", ""],
    ];
    assert_eq!(lines, expected);
}
