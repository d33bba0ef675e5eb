//! Access lists of clients on shares with `run_as = "user"`: the kernel decides by the POSIX lists on
//! the disk, so these must say what the clients' lists say, or the client is told. It takes root.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use frevo_posix::{PosixOptions, PosixVfs, Said, credentials};
use frevo_server::Server;
use frevo_server::ambient::{Ambient, HostUser};
use frevo_server::audit::{Kind, Operations, Value};
use frevo_server::domain_names::{DomainDirectory, JoinedDomain, Lookup, Principal, Use};
use frevo_server::id_map::{IdMap, IdRange};
use frevo_server::share::{RunAs, Share};
use frevo_server::vfs;
use frevo_wire::command::query_info;
use frevo_wire::command::set_info::InfoType;
use frevo_wire::create_context::{CreateContext, CreateContexts};
use frevo_wire::dtyp::{
    AccessMask, Ace, AceFlags, FileTime, SecurityDescriptor, SecurityInformation as Parts, Sid,
};
use frevo_wire::fscc::FileInfoClass;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::calls::set_draft;
use crate::client::files::{close_draft, set_info_draft};
use crate::client::protection::{bytes, list, protect, protect_draft};
use crate::client::queries::query_info_draft;
use crate::client::settings;
use crate::client::world::{in_own_world, serving};
use crate::client::{Mount, Peer, Settings, Status, Want, World};
use crate::impersonation::{TwoUsers, session, set_mode, status, uid};
use crate::lists::accounts;

const READ: AccessMask = AccessMask::FILE_GENERIC_READ;
const WRITE: AccessMask = AccessMask::FILE_GENERIC_WRITE;
const ALL: AccessMask = AccessMask::FILE_ALL;
const HERE: AceFlags = AceFlags::EMPTY;
const BELOW: AceFlags = AceFlags(AceFlags::OBJECT_INHERIT.0 | AceFlags::CONTAINER_INHERIT.0);
/// The group of both users.
const BOTH: u32 = 61_100;

/// Runs a test on ext4 or whatever the folder for temporary files is on, and on tmpfs: `data` and
/// `memory` are used as who logs on, `plain` as the server.
fn acting(name: &str, test: &impl AsyncFn(&World)) {
    if let Err(why) = credentials::check() {
        println!("skipped: {name}: {why}");
        return;
    }
    for parent in [std::env::temp_dir().as_path(), Path::new("/dev/shm")] {
        let Ok(dir) = tempfile::tempdir_in(parent) else { continue };
        if !takes_lists(dir.path()) {
            println!("skipped: {name}: no POSIX lists in {}", parent.display());
            continue;
        }
        set_mode(dir.path(), 0o777);
        let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
        let vfs: Arc<dyn frevo_store::Vfs> = Arc::new(vfs);
        let domain = "S-1-5-21-1-2-3".parse().unwrap();
        let range = IdRange { domain, first: 61_100, last: 61_199, base_rid: 100 };
        let map = Arc::new(IdMap::new(vec![range]));
        let share = |name: &str| Share::disk(name, Arc::clone(&vfs)).id_map(Arc::clone(&map));
        let memory = vfs::memory(1 << 20);
        let shares = [
            share("data").run_as(RunAs::User),
            share("plain"),
            Share::disk("memory", Arc::clone(&memory)).run_as(RunAs::User),
            Share::disk("plain_memory", memory),
        ];
        let settings = Settings { id_map: map, ..settings() };
        let known = [("ann", &["painters"][..]), ("bob", &[]), ("unanswered", &[]), ("slow", &[])];
        let server = serving(settings, shares, accounts(&known), Arc::new(SilentAboutOne));
        in_own_world(false, &World::of(server, dir), test);
    }
}

/// The next question about the account `slow`: it is told, and waits for the word to go on.
static SLOW: Mutex<Option<(Sender<()>, Receiver<()>)>> = Mutex::new(None);

/// The host of [`TwoUsers`], whose name service does not answer about one account, and slowly about
/// another one, which has the number of Bob.
#[derive(Debug)]
struct SilentAboutOne;

impl Ambient for SilentAboutOne {
    fn now(&self) -> FileTime {
        TwoUsers.now()
    }

    fn random(&self, bytes: &mut [u8]) {
        TwoUsers.random(bytes);
    }

    fn host_user(&self, name: &str) -> Said<HostUser> {
        match name {
            "unanswered" => Err(Errno::AGAIN),
            "slow" => {
                let gate = SLOW.lock().unwrap().take();
                if let Some((asked, go_on)) = gate {
                    asked.send(()).unwrap();
                    go_on.recv().unwrap();
                }
                TwoUsers.host_user("bob")
            }
            _ => TwoUsers.host_user(name),
        }
    }
}

fn takes_lists(dir: &Path) -> bool {
    let value = [
        [2u8, 0, 0, 0].as_slice(),
        &entry(1, 7, u32::MAX),
        &entry(4, 7, u32::MAX),
        &entry(0x20, 5, u32::MAX),
    ];
    rustix::fs::setxattr(dir, ACCESS, &value.concat(), XattrFlags::empty()).is_ok()
}

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

fn entry(tag: u16, bits: u16, id: u32) -> [u8; 8] {
    let mut entry = [0; 8];
    entry[..2].copy_from_slice(&tag.to_le_bytes());
    entry[2..4].copy_from_slice(&bits.to_le_bytes());
    entry[4..].copy_from_slice(&id.to_le_bytes());
    entry
}

/// A list on the disk, as getfacl has it; the mode without one.
fn on_disk(world: &World, name: &str, which: &str) -> String {
    let mut value = [0; 512];
    let Ok(length) = rustix::fs::getxattr(world.path(name), which, &mut value) else {
        use std::os::unix::fs::MetadataExt as _;
        let mode = std::fs::metadata(world.path(name)).unwrap().mode();
        return if which == ACCESS { format!("{:o}", mode & 0o777) } else { String::new() };
    };
    let entries = value[4..length].chunks(8).map(|entry| {
        let number = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        let whose = match number(0) {
            1 => "u".to_owned(),
            2 => format!("u{id}"),
            4 => "g".to_owned(),
            8 => format!("g{id}"),
            0x10 => "m".to_owned(),
            _ => "o".to_owned(),
        };
        format!("{whose}:{}", number(2))
    });
    entries.collect::<Vec<_>>().join(" ")
}

fn domain(rid: u32) -> Sid {
    Sid::new(5, &[21, 1, 2, 3, rid]).unwrap()
}

/// The SID of an account of the server.
fn account(world: &World, name: &str) -> Sid {
    world.server.with_principals(|known| known.find_name(name)).unwrap().sid
}

fn owner() -> Ace {
    Ace::allow(HERE, ALL, Sid::unix_user(uid("ann")))
}

fn to_change(name: &str) -> Want {
    Want::existing(name).access(AccessMask::WRITE_DAC | AccessMask::READ_CONTROL)
}

/// Sets a list, and returns the status.
async fn set(peer: &mut Peer, mount: &Mount, name: &str, new: &SecurityDescriptor) -> Status {
    let file = peer.open_file(mount, &to_change(name)).await;
    let status = peer.on(mount, protect_draft(file, new)).await.status();
    peer.on(mount, close_draft(file)).await.ok();
    status
}

async fn shown(peer: &mut Peer, mount: &Mount, name: &str) -> Vec<Ace> {
    let file = peer.open_file(mount, &to_change(name).access(AccessMask::READ_CONTROL)).await;
    let reply = peer.on(mount, query_info_draft(file, InfoType::SECURITY, 0, Parts::DACL.0)).await;
    let answer = query_info::Response::parse(&reply.ok().message).unwrap();
    let found = SecurityDescriptor::parse(answer.output).unwrap();
    peer.close(mount, file).await;
    found.dacl.unwrap().aces
}

/// The status of an Open with this access, which is closed again.
async fn may(peer: &mut Peer, mount: &Mount, name: &str, access: AccessMask) -> Status {
    let reply = peer.create(mount, &Want::existing(name).access(access)).await;
    if reply.status() == Status::SUCCESS {
        peer.close(mount, crate::client::files::file_id(&reply)).await;
    }
    reply.status()
}

async fn make(peer: &mut Peer, mount: &Mount, want: &Want) {
    let file = peer.open_file(mount, want).await;
    peer.close(mount, file).await;
}

/// Whatever SID a user or group of the host has, the user gets what the list gives, and no more.
#[test]
fn a_list_lets_others_in() {
    acting("a_list_lets_others_in", &async |world: &World| {
        let (mut ann, hers) = session(world, "ann").await;
        let (mut bob, his) = session(world, "bob").await;
        make(&mut ann, &hers, &Want::file("f")).await;
        let user = Sid::unix_user(uid("bob"));
        for (sid, disk) in [
            (user, "u:7 u61002:6 g:0 m:6 o:0"),
            (account(world, "bob"), "u:7 u61002:6 g:0 m:6 o:0"),
            (Sid::unix_group(BOTH), "u:7 g:0 g61100:6 m:6 o:0"),
            // No controller answers for this domain, so its number may be a user or a group.
            (domain(100), "u:7 u61100:6 g:0 g61100:6 m:6 o:0"),
        ] {
            protect(&mut ann, &hers, &to_change("f"), &list(vec![owner()])).await;
            assert_eq!(on_disk(world, "f", ACCESS), "700");
            assert_eq!(may(&mut bob, &his, "f", READ).await, Status::ACCESS_DENIED);
            let new = list(vec![owner(), Ace::allow(HERE, READ | WRITE, sid)]);
            protect(&mut ann, &hers, &to_change("f"), &new).await;
            assert_eq!(on_disk(world, "f", ACCESS), disk, "{sid}");
            // Bob logged on with a local account, so the SID of the domain does not stand for this user.
            let is_bob = sid != domain(100);
            let expected = if is_bob { Status::SUCCESS } else { Status::ACCESS_DENIED };
            assert_eq!(may(&mut bob, &his, "f", READ | WRITE).await, expected, "{sid}");
            let more = AccessMask::EXECUTE;
            assert_eq!(may(&mut bob, &his, "f", more).await, Status::ACCESS_DENIED, "{sid}");
            // The group's number is the domain's.
            let as_shown = if sid == Sid::unix_group(BOTH) { domain(100) } else { sid };
            let aces = [owner(), Ace::allow(HERE, READ | WRITE, as_shown)];
            assert_eq!(shown(&mut ann, &hers, "f").await, aces, "{sid}");
        }
        // A denied user has an entry of its own, whatever others have.
        let new =
            list(vec![Ace::deny(HERE, WRITE, user), owner(), Ace::allow(HERE, ALL, Sid::EVERYONE)]);
        protect(&mut ann, &hers, &to_change("f"), &new).await;
        assert_eq!(on_disk(world, "f", ACCESS), "u:7 u61002:5 g:7 m:7 o:7");
    });
}

/// Changes on the host count from then on, and are shown.
#[test]
fn changes_on_the_host_are_seen() {
    acting("changes_on_the_host_are_seen", &async |world: &World| {
        let (mut ann, hers) = session(world, "ann").await;
        let (mut bob, his) = session(world, "bob").await;
        make(&mut ann, &hers, &Want::file("f")).await;
        let user = Sid::unix_user(uid("bob"));
        let new = list(vec![owner(), Ace::allow(HERE, READ | WRITE, user)]);
        protect(&mut ann, &hers, &to_change("f"), &new).await;
        // setfacl -m u:bob:r, which leaves the mode's bits for group and others.
        let path = world.path("f");
        set_by_hand(world, "f", ACCESS, [7, 4, 0, 6, 0]);
        let shown_bob = Ace::allow(HERE, READ, Sid::unix_user(uid("bob")));
        let seen = shown(&mut ann, &hers, "f").await;
        assert!(seen.contains(&shown_bob), "{seen:?}");
        assert_eq!(may(&mut bob, &his, "f", READ).await, Status::SUCCESS);
        assert_eq!(may(&mut bob, &his, "f", WRITE).await, Status::ACCESS_DENIED);
        // The shown list can be set again: a client adds an entry to it.
        let added = Ace::allow(HERE, READ, Sid::unix_group(BOTH));
        let aces = seen.into_iter().chain([added]).collect();
        assert_eq!(set(&mut ann, &hers, "f", &list(aces)).await, Status::SUCCESS);
        assert_eq!(may(&mut bob, &his, "f", READ).await, Status::SUCCESS);
        // chmod takes the rights of others away.
        set_mode(&path, 0o700);
        assert_eq!(may(&mut bob, &his, "f", READ).await, Status::ACCESS_DENIED);
        assert!(on_disk(world, "f", ACCESS).contains("m:0"));
    });
}

/// Sets a list as setfacl does: the bits of the owner, Bob, the group, the mask and others.
fn set_by_hand(world: &World, name: &str, which: &str, bits: [u16; 5]) {
    let [owner, bob, group, mask, other] = bits;
    let value = [
        [2u8, 0, 0, 0].as_slice(),
        &entry(1, owner, u32::MAX),
        &entry(2, bob, uid("bob")),
        &entry(4, group, u32::MAX),
        &entry(0x10, mask, u32::MAX),
        &entry(0x20, other, u32::MAX),
    ];
    rustix::fs::setxattr(world.path(name), which, &value.concat(), XattrFlags::empty()).unwrap();
}

/// A user whom setfacl has denied what others may stays denied when clients change the list, or
/// another part of the descriptor.
#[test]
fn denials_of_the_host_stay() {
    acting("denials_of_the_host_stay", &async |world: &World| {
        let (mut ann, hers) = session(world, "ann").await;
        let (mut bob, his) = session(world, "bob").await;
        make(&mut ann, &hers, &Want::file("f")).await;
        set_by_hand(world, "f", ACCESS, [7, 0, 0, 0, 5]);
        make(&mut ann, &hers, &Want::directory("d")).await;
        set_by_hand(world, "d", ACCESS, [7, 0, 0, 5, 5]);
        set_by_hand(world, "d", DEFAULT, [7, 0, 5, 5, 5]);

        // A group that has no number on the host is stored only in the security descriptor.
        let stranger = Sid::new(5, &[21, 7, 8, 9, 1_000]).unwrap();
        let new = SecurityDescriptor { group: Some(stranger), ..SecurityDescriptor::default() };
        for name in ["f", "d"] {
            let before = [on_disk(world, name, ACCESS), on_disk(world, name, DEFAULT)];
            let want = Want::existing(name).access(AccessMask::WRITE_OWNER);
            let file = ann.open_file(&hers, &want).await;
            let draft = set_info_draft(file, InfoType::SECURITY, 0, Parts::GROUP.0, &bytes(&new));
            ann.on(&hers, draft).await.ok();
            ann.close(&hers, file).await;
            assert_eq!([on_disk(world, name, ACCESS), on_disk(world, name, DEFAULT)], before);
        }

        for (name, disk, default) in [
            ("f", "u:7 u61002:0 g:0 g61100:4 m:4 o:5", ""),
            ("d", "u:7 u61002:0 g:0 g61100:4 m:4 o:5", "u:7 u61002:0 g:5 m:5 o:5"),
        ] {
            let mut aces = shown(&mut ann, &hers, name).await;
            aces.insert(1, Ace::allow(HERE, READ, Sid::unix_group(BOTH)));
            assert_eq!(set(&mut ann, &hers, name, &list(aces)).await, Status::SUCCESS);
            assert_eq!(on_disk(world, name, ACCESS), disk);
            assert_eq!(on_disk(world, name, DEFAULT), default);
            assert_eq!(may(&mut bob, &his, name, READ).await, Status::ACCESS_DENIED, "{name}");
        }
    });
}

/// A user with all rights who does not own a file may set the list that it has, and no other. So it is
/// where a file system has no POSIX lists.
#[test]
fn the_same_list_again_is_taken() {
    acting("the_same_list_again_is_taken", &async |world: &World| {
        let (mut ann, hers) = session(world, "ann").await;
        let (mut bob, his) = session(world, "bob").await;
        make(&mut ann, &hers, &Want::file("f")).await;
        let bobs = Ace::allow(HERE, ALL, Sid::unix_user(uid("bob")));
        let new = list(vec![owner(), bobs]);
        protect(&mut ann, &hers, &to_change("f"), &new).await;
        assert_eq!(set(&mut bob, &his, "f", &new).await, Status::SUCCESS);
        assert_eq!(on_disk(world, "f", ACCESS), "u:7 u61002:7 g:0 m:7 o:0");
        let other = list(vec![owner()]);
        assert_eq!(set(&mut bob, &his, "f", &other).await, Status::ACCESS_DENIED);
        assert_eq!(on_disk(world, "f", ACCESS), "u:7 u61002:7 g:0 m:7 o:0");
        assert_eq!(may(&mut bob, &his, "f", READ | WRITE).await, Status::SUCCESS);

        let everyone = Ace::allow(HERE, ALL, Sid::EVERYONE);
        let others = list(vec![Ace::allow(HERE, READ, Sid::unix_user(uid("bob"))), everyone]);
        let plain = ann.mount(&hers.logon, "plain_memory").await;
        let memory = ann.mount(&hers.logon, "memory").await;
        make(&mut ann, &plain, &Want::file("f")).await;
        assert_eq!(set(&mut ann, &plain, "f", &others).await, Status::SUCCESS);
        assert_eq!(set(&mut ann, &memory, "f", &others).await, Status::SUCCESS);
    });
}

/// While nobody says who a user is, no list is written without it.
#[test]
fn a_list_waits_for_answers() {
    acting("a_list_waits_for_answers", &async |world: &World| {
        let (mut ann, hers) = session(world, "ann").await;
        let plain = ann.mount(&hers.logon, "plain").await;
        let silent = Ace::allow(BELOW, READ, account(world, "unanswered"));
        let bobs = Ace::allow(BELOW, READ, Sid::unix_user(uid("bob")));
        let own = || Ace::allow(BELOW, ALL, Sid::unix_user(uid("ann")));
        make(&mut ann, &hers, &Want::directory("d")).await;
        protect(&mut ann, &hers, &to_change("d"), &list(vec![own(), bobs.clone()])).await;
        let before = [on_disk(world, "d", ACCESS), on_disk(world, "d", DEFAULT)];
        let new = list(vec![own(), bobs.clone(), silent.clone()]);
        assert_eq!(set(&mut ann, &hers, "d", &new).await, Status::IO_TIMEOUT);
        assert_eq!(make_with(&mut ann, &hers, "d\\g", &new).await, Status::IO_TIMEOUT);
        assert!(!world.path("d/g").exists());
        assert_eq!([on_disk(world, "d", ACCESS), on_disk(world, "d", DEFAULT)], before);

        // The list is set a second time without a change. It stays on the disk, and new files
        // inherit the folder's list.
        protect(&mut ann, &plain, &to_change("d"), &new).await;
        let before = [on_disk(world, "d", ACCESS), on_disk(world, "d", DEFAULT)];
        assert_eq!(set(&mut ann, &hers, "d", &new).await, Status::SUCCESS);
        let changed = list(vec![own(), silent]);
        assert_eq!(set(&mut ann, &hers, "d", &changed).await, Status::IO_TIMEOUT);
        assert_eq!([on_disk(world, "d", ACCESS), on_disk(world, "d", DEFAULT)], before);
        make(&mut ann, &hers, &Want::file("d\\f")).await;
        assert!(on_disk(world, "d/f", ACCESS).contains("u61002:4"));
        let inherited = shown(&mut ann, &hers, "d\\f").await;
        assert!(inherited.iter().any(|ace| ace.sid() == Some(&account(world, "unanswered"))));
        // If the folder had no list for new files, a new file would get none.
        rustix::fs::removexattr(world.path("d"), DEFAULT).unwrap();
        protect(&mut ann, &plain, &to_change("d"), &changed).await;
        assert_eq!(status(&mut ann, &hers, &Want::file("d\\e")).await, Status::IO_TIMEOUT);
        assert!(!world.path("d/e").exists());
        // A list without the user is written.
        assert_eq!(set(&mut ann, &hers, "d", &list(vec![own(), bobs])).await, Status::SUCCESS);
    });
}

/// A new file has the list of its folder, made over the network or on the host.
/// A folder may get another list while a CREATE in it waits for names: the new file inherits that.
#[test]
fn a_create_that_has_waited_looks_at_its_folder_again() {
    acting("a_create_that_has_waited_looks_at_its_folder_again", &async |world: &World| {
        let (mut ann, hers) = session(world, "ann").await;
        let (mut other, its) = session(world, "ann").await;
        let plain = other.mount(&its.logon, "plain").await;
        let own = || Ace::allow(BELOW, ALL, Sid::unix_user(uid("ann")));
        let slow = Ace::allow(BELOW, READ, account(world, "slow"));
        let bobs = Ace::allow(BELOW, READ, Sid::unix_user(uid("bob")));
        make(&mut ann, &hers, &Want::directory("d")).await;
        protect(&mut other, &plain, &to_change("d"), &list(vec![own(), slow.clone()])).await;

        let ((asked, is_asked), (go_on, waits)) = (channel(), channel());
        *SLOW.lock().unwrap() = Some((asked, waits));
        let new_file = Want::file("d\\f");
        let creating = status(&mut ann, &hers, &new_file);
        let changing = async {
            while is_asked.try_recv().is_err() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            protect(&mut other, &plain, &to_change("d"), &list(vec![own(), bobs])).await;
            go_on.send(()).unwrap();
        };
        let (created, ()) = tokio::join!(creating, changing);
        assert_eq!(created, Status::SUCCESS);
        let aces = shown(&mut other, &its, "d\\f").await;
        let has = |sid: Sid| aces.iter().any(|ace| ace.sid() == Some(&sid));
        assert!(has(Sid::unix_user(uid("bob"))) && !has(account(world, "slow")), "{aces:?}");
    });
}

/// A client without the right to change a list is refused before anybody is asked about its SIDs.
#[test]
fn rights_are_checked_before_names_are_asked_for() {
    acting("rights_are_checked_before_names_are_asked_for", &async |world: &World| {
        let (mut ann, hers) = session(world, "ann").await;
        make(&mut ann, &hers, &Want::file("f")).await;
        let silent = Ace::allow(HERE, READ, account(world, "unanswered"));
        let new = list(vec![owner(), silent]);
        let reads = to_change("f").access(AccessMask::READ_CONTROL);
        let file = ann.open_file(&hers, &reads).await;
        let refused = ann.on(&hers, protect_draft(file, &new)).await.status();
        assert_eq!(refused, Status::ACCESS_DENIED);
        ann.close(&hers, file).await;
        assert_eq!(set(&mut ann, &hers, "f", &new).await, Status::IO_TIMEOUT);
    });
}

#[test]
fn new_files_inherit() {
    acting("new_files_inherit", &async |world: &World| {
        let (mut ann, hers) = session(world, "ann").await;
        let (mut bob, his) = session(world, "bob").await;
        make(&mut ann, &hers, &Want::directory("d")).await;
        let ann_sid = account(world, "ann");
        let reads = READ | AccessMask::FILE_GENERIC_EXECUTE;
        let new = list(vec![
            Ace::allow(BELOW, ALL, ann_sid),
            Ace::allow(BELOW, reads, account(world, "bob")),
            Ace::allow(BELOW | AceFlags::INHERIT_ONLY, ALL, Sid::CREATOR_OWNER),
            Ace::allow(BELOW, ALL, Sid::ADMINISTRATORS),
            Ace::allow(BELOW, ALL, Sid::LOCAL_SYSTEM),
        ]);
        protect(&mut ann, &hers, &to_change("d"), &new).await;
        assert_eq!(on_disk(world, "d", ACCESS), "u:7 u61002:5 g:0 m:5 o:0");
        assert_eq!(on_disk(world, "d", DEFAULT), "u:7 u61001:7 u61002:5 g:0 m:7 o:0");

        make(&mut ann, &hers, &Want::file("d\\f")).await;
        make(&mut ann, &hers, &Want::directory("d\\e")).await;
        make(&mut ann, &hers, &Want::file("d\\e\\f")).await;
        assert_eq!(on_disk(world, "d/f", ACCESS), "u:7 u61002:5 g:0 m:5 o:0");
        assert_eq!(on_disk(world, "d/e", DEFAULT), "u:7 u61001:7 u61002:5 g:0 m:7 o:0");
        std::fs::write(world.path("d/host"), b"by the host").unwrap();
        for name in ["d\\f", "d\\e\\f", "d\\host"] {
            assert_eq!(may(&mut bob, &his, name, READ).await, Status::SUCCESS, "{name}");
            assert_eq!(may(&mut bob, &his, name, WRITE).await, Status::ACCESS_DENIED, "{name}");
            assert_eq!(may(&mut ann, &hers, name, READ | WRITE).await, Status::SUCCESS, "{name}");
        }
        assert_eq!(status(&mut bob, &his, &Want::file("d\\new")).await, Status::ACCESS_DENIED);

        // A list for nothing but the folder takes the one for new files away.
        protect(&mut ann, &hers, &to_change("d"), &list(vec![owner()])).await;
        assert_eq!(on_disk(world, "d", ACCESS), "700");
        assert_eq!(on_disk(world, "d", DEFAULT), "");
    });
}

/// Where the host cannot give the rights, the client is told, and nothing changes.
#[test]
fn a_list_without_effect_is_refused() {
    acting("a_list_without_effect_is_refused", &async |world: &World| {
        let (mut ann, hers) = session(world, "ann").await;
        make(&mut ann, &hers, &Want::file("f")).await;
        let painters = account(world, "painters");
        protect(&mut ann, &hers, &to_change("f"), &list(vec![owner()])).await;
        let new = list(vec![owner(), Ace::allow(HERE, READ, painters)]);
        assert_eq!(set(&mut ann, &hers, "f", &new).await, Status::NONE_MAPPED);
        assert_eq!(shown(&mut ann, &hers, "f").await, [owner()]);
        assert_eq!(make_with(&mut ann, &hers, "g", &new).await, Status::NONE_MAPPED);
        assert!(!world.path("g").exists());
        // A denial takes rights from everybody who could be meant, and needs no number. Ann is a
        // painter, as her session knows.
        let everyone = Ace::allow(HERE, READ | WRITE, Sid::EVERYONE);
        let new = list(vec![Ace::deny(HERE, WRITE, painters), owner(), everyone]);
        assert_eq!(set(&mut ann, &hers, "f", &new).await, Status::SUCCESS);
        assert_eq!(on_disk(world, "f", ACCESS), "544");
        protect(&mut ann, &hers, &to_change("f"), &list(vec![owner()])).await;
        // The server's share takes the entry. Then it is there, and the client may keep it.
        let plain = ann.mount(&hers.logon, "plain").await;
        let new = list(vec![owner(), Ace::allow(HERE, READ, painters)]);
        assert_eq!(set(&mut ann, &plain, "f", &new).await, Status::SUCCESS);
        let more = Ace::allow(HERE, READ, Sid::unix_user(uid("bob")));
        let mut aces = new.dacl.unwrap().aces;
        aces.push(more.clone());
        assert_eq!(set(&mut ann, &hers, "f", &list(aces)).await, Status::SUCCESS);
        assert_eq!(on_disk(world, "f", ACCESS), "u:7 u61002:4 g:0 m:4 o:0");

        // A file system without POSIX lists takes what a mode says.
        let memory = ann.mount(&hers.logon, "memory").await;
        make(&mut ann, &memory, &Want::file("f")).await;
        let open = list(vec![Ace::allow(HERE, ALL, Sid::EVERYONE)]);
        assert_eq!(set(&mut ann, &memory, "f", &open).await, Status::SUCCESS);
        let others = list(vec![more, Ace::allow(HERE, ALL, Sid::EVERYONE)]);
        assert_eq!(set(&mut ann, &memory, "f", &others).await, Status::NOT_SUPPORTED);
        assert_eq!(shown(&mut ann, &memory, "f").await, open.dacl.unwrap().aces);
    });
}

/// A copied tree has entries of users who are gone. They are kept, and give and deny nothing.
#[test]
fn entries_for_nobody_are_left_out() {
    acting("entries_for_nobody_are_left_out", &async |world: &World| {
        let (mut ann, hers) = session(world, "ann").await;
        make(&mut ann, &hers, &Want::file("f")).await;
        let (machine, _) = account(world, "ann").split_rid().unwrap();
        let nobodies = [
            Sid::new(5, &[21, 7, 8, 9, 1_000]).unwrap(),
            domain(1_000_000),
            machine.with_rid(4_711).unwrap(),
            Sid::unix_user(u32::MAX),
        ];
        for nobody in nobodies {
            let new = list(vec![owner(), Ace::allow(BELOW, ALL, nobody)]);
            assert_eq!(set(&mut ann, &hers, "f", &new).await, Status::SUCCESS, "{nobody}");
            assert_eq!(on_disk(world, "f", ACCESS), "700", "{nobody}");
            assert_eq!(shown(&mut ann, &hers, "f").await, new.dacl.clone().unwrap().aces);
            let name = format!("by {nobody}");
            assert_eq!(make_with(&mut ann, &hers, &name, &new).await, Status::SUCCESS, "{nobody}");
            assert_eq!(on_disk(world, &name, ACCESS), "700", "{nobody}");
            let everyone = Ace::allow(HERE, READ | WRITE, Sid::EVERYONE);
            let new = list(vec![Ace::deny(HERE, WRITE, nobody), owner(), everyone]);
            assert_eq!(set(&mut ann, &hers, "f", &new).await, Status::SUCCESS, "{nobody}");
            assert_eq!(on_disk(world, "f", ACCESS), "766", "{nobody}");
        }
    });
}

/// Makes a file with a list of the request. Returns the status.
async fn make_with(peer: &mut Peer, mount: &Mount, name: &str, new: &SecurityDescriptor) -> Status {
    let given = bytes(new);
    let requests = [CreateContext::SecurityDescriptor(&given)];
    let contexts = CreateContexts::from_requests(&requests).as_bytes().to_vec();
    status(peer, mount, &Want { contexts, ..Want::file(name) }).await
}

/// A controller of EXAMPLE, which knows one user, and may be silent.
#[derive(Debug)]
struct Controller {
    is_silent: bool,
}

/// The SID of something in EXAMPLE, of which the RIDs from 500 to 599 have numbers.
fn example(rid: u32) -> Sid {
    Sid::new(5, &[21, 4, 5, 6, rid]).unwrap()
}

impl Controller {
    fn lookup<T>(&self, found: Vec<Option<T>>) -> Lookup<T> {
        Lookup { found, silent: self.is_silent.then(|| String::from("no answer")) }
    }
}

impl DomainDirectory for Controller {
    fn sids(&self, names: &[String]) -> Lookup<Sid> {
        self.lookup(names.iter().map(|_| None).collect())
    }

    fn principals(&self, sids: &[Sid]) -> Lookup<Principal> {
        let carl = |sid: &Sid| {
            let is_it = *sid == example(1_001) && !self.is_silent;
            let (domain, name) = (String::from("EXAMPLE"), String::from("carl"));
            is_it.then_some(Principal { sid: *sid, domain, name, kind: Use::User })
        };
        self.lookup(sids.iter().map(carl).collect())
    }

    fn joined(&self) -> Lookup<JoinedDomain> {
        let (sid, _) = example(1).split_rid().unwrap();
        let (name, dns_name) = (String::from("EXAMPLE"), String::from("example.test"));
        Lookup { found: vec![Some(JoinedDomain { name, dns_name, sid })], silent: None }
    }
}

/// Runs a test on a member of EXAMPLE.
fn on_member(name: &str, is_silent: bool, test: impl AsyncFnOnce(&World)) {
    if let Err(why) = credentials::check() {
        println!("skipped: {name}: {why}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    if !takes_lists(dir.path()) {
        println!("skipped: {name}: no POSIX lists in {}", dir.path().display());
        return;
    }
    set_mode(dir.path(), 0o777);
    let vfs = Arc::new(PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap());
    let (domain, _) = example(1).split_rid().unwrap();
    let range = IdRange { domain, first: 62_000, last: 62_099, base_rid: 500 };
    let map = Arc::new(IdMap::new(vec![range]));
    let share = Share::disk("data", vfs).run_as(RunAs::User).id_map(Arc::clone(&map));
    let server = Server::builder()
        .settings(Settings { id_map: map, ..settings() })
        .shares([share])
        .accounts(accounts(&[("ann", &[]), ("bob", &[])]))
        .ambient(Arc::new(TwoUsers))
        .domain_directory(Arc::new(Controller { is_silent }))
        .cores(2)
        .build()
        .unwrap();
    server.resolve_names();
    in_own_world(false, &World::of(server, dir), test);
}

/// Nobody has a SID if the controller says so. While it is silent, somebody may.
#[test]
fn a_silent_controller_is_no_answer() {
    for is_silent in [false, true] {
        on_member("a_silent_controller_is_no_answer", is_silent, async |world| {
            let (mut ann, hers) = session(world, "ann").await;
            make(&mut ann, &hers, &Want::file("f")).await;
            let (nobody, carl) = match is_silent {
                true => (Status::IO_TIMEOUT, Status::IO_TIMEOUT),
                // Carl is a user without a number.
                false => (Status::SUCCESS, Status::NONE_MAPPED),
            };
            for (sid, expected) in [
                (example(1_000), nobody),
                (example(1_001), carl),
                (Sid::new(5, &[21, 7, 8, 9, 1_000]).unwrap(), nobody),
                (example(505), Status::SUCCESS),
            ] {
                let new = list(vec![owner(), Ace::allow(HERE, READ, sid)]);
                assert_eq!(set(&mut ann, &hers, "f", &new).await, expected, "{sid} {is_silent}");
                // A denial for somebody without a number is one for all, who may be meant.
                let everyone = Ace::allow(HERE, READ | WRITE, Sid::EVERYONE);
                let new = list(vec![Ace::deny(HERE, WRITE, sid), owner(), everyone]);
                if expected == Status::IO_TIMEOUT {
                    let before = on_disk(world, "f", ACCESS);
                    assert_eq!(set(&mut ann, &hers, "f", &new).await, Status::IO_TIMEOUT, "{sid}");
                    assert_eq!(on_disk(world, "f", ACCESS), before, "{sid}");
                    continue;
                }
                assert_eq!(set(&mut ann, &hers, "f", &new).await, Status::SUCCESS, "{sid}");
                let others = match (expected, sid) {
                    (Status::NONE_MAPPED, _) => "744",
                    (_, sid) if sid == example(505) => "u:7 u62005:4 g:4 g62005:4 m:4 o:6",
                    _ => "766",
                };
                assert_eq!(on_disk(world, "f", ACCESS), others, "{sid} {is_silent}");
            }
        });
    }
}

/// On a member the users in BUILTIN\Users are Domain Users and the accounts of the server.
#[test]
fn users_of_a_member_are_domain_users() {
    on_member("users_of_a_member_are_domain_users", false, async |world| {
        let (mut ann, hers) = session(world, "ann").await;
        make(&mut ann, &hers, &Want::file("f")).await;
        let new = list(vec![owner(), Ace::allow(HERE, READ, Sid::USERS)]);
        assert_eq!(set(&mut ann, &hers, "f", &new).await, Status::SUCCESS);
        assert_eq!(on_disk(world, "f", ACCESS), "u:7 g:0 g62013:4 m:4 o:0");
        // An account of the server, which is in Users, is no member of Domain Users.
        let everyone = Ace::allow(HERE, ALL, Sid::EVERYONE);
        let new = list(vec![Ace::deny(HERE, WRITE, Sid::USERS), everyone]);
        assert_eq!(set(&mut ann, &hers, "f", &new).await, Status::SUCCESS);
        assert_eq!(on_disk(world, "f", ACCESS), "u:5 g:5 g62013:5 m:5 o:5");
    });
}

/// The audit log tells refusals of the kernel from those of lists.
#[test]
fn refusals_of_the_kernel_are_told_apart() {
    if let Err(why) = credentials::check() {
        println!("skipped: refusals_of_the_kernel_are_told_apart: {why}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    set_mode(dir.path(), 0o777);
    let vfs = Arc::new(PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap());
    let (parts, mut events) = Server::builder()
        .settings(settings())
        .shares([Share::disk("data", vfs).run_as(RunAs::User)])
        .accounts(accounts(&[("ann", &[]), ("bob", &[])]))
        .ambient(Arc::new(TwoUsers))
        .audited(Operations::OPEN)
        .events(64);
    let server = parts.cores(2).build().unwrap();
    in_own_world(false, &World::of(server, dir), async |world| {
        let (mut ann, hers) = session(world, "ann").await;
        let (mut bob, his) = session(world, "bob").await;
        for name in ["listed", "own"] {
            make(&mut ann, &hers, &Want::file(name)).await;
        }
        protect(&mut ann, &hers, &to_change("listed"), &list(vec![owner()])).await;
        set_mode(&world.path("own"), 0o600);
        std::fs::create_dir(world.path("roots")).unwrap();
        for (want, by_kernel) in [
            (Want::existing("listed").access(READ), false),
            (Want::existing("own").access(READ), true),
            (Want::file("roots\\new"), true),
            (Want::existing("listed").access(WRITE), false),
        ] {
            assert_eq!(status(&mut bob, &his, &want).await, Status::ACCESS_DENIED);
            let refused = loop {
                let (_, event) = events.next().await.unwrap();
                if event.kind() == Kind::Open && event.outcome() == Status::ACCESS_DENIED {
                    break event;
                }
            };
            let said = refused.details().iter().find(|(name, _)| *name == "refused_by");
            let said = said.map(|(_, value)| value.clone());
            let expected = by_kernel.then(|| Value::from("kernel"));
            assert_eq!(said, expected, "{:?}", refused.details());
        }
    });
}

/// Lists of before, which were stored and had no effect, have one when they are set again.
#[test]
fn a_list_that_is_set_again_has_an_effect() {
    acting("a_list_that_is_set_again_has_an_effect", &async |world: &World| {
        let (mut ann, hers) = session(world, "ann").await;
        let (mut bob, his) = session(world, "bob").await;
        make(&mut ann, &hers, &Want::file("f")).await;
        let plain = ann.mount(&hers.logon, "plain").await;
        let new = list(vec![owner(), Ace::allow(HERE, READ, Sid::unix_user(uid("bob")))]);
        protect(&mut ann, &plain, &to_change("f"), &new).await;
        assert_eq!(on_disk(world, "f", ACCESS), "700");
        assert_eq!(may(&mut bob, &his, "f", READ).await, Status::ACCESS_DENIED);
        assert_eq!(shown(&mut ann, &hers, "f").await, new.dacl.clone().unwrap().aces);
        protect(&mut ann, &hers, &to_change("f"), &new).await;
        assert_eq!(may(&mut bob, &his, "f", READ).await, Status::SUCCESS);
    });
}

/// The owner has what the list gives it, and sets attributes with an Open that may, as on Windows.
#[test]
fn the_owner_has_what_the_list_gives() {
    acting("the_owner_has_what_the_list_gives", &async |world: &World| {
        let (mut ann, hers) = session(world, "ann").await;
        make(&mut ann, &hers, &Want::file("f")).await;
        let file = ann.open_file(&hers, &Want::existing("f")).await;
        let new = list(vec![Ace::allow(HERE, READ, account(world, "ann"))]);
        ann.on(&hers, protect_draft(file, &new)).await.ok();
        assert_eq!(on_disk(world, "f", ACCESS), "400");
        let mut hidden = [0; 40];
        hidden[32] = 2;
        ann.on(&hers, set_draft(FileInfoClass::BASIC, file, &hidden)).await.ok();
        ann.close(&hers, file).await;
        assert_eq!(may(&mut ann, &hers, "f", READ).await, Status::SUCCESS);
        assert_eq!(may(&mut ann, &hers, "f", WRITE).await, Status::ACCESS_DENIED);
        // The rights of its groups count, too: both users are members of this group.
        let new = list(vec![Ace::allow(HERE, ALL, Sid::unix_group(BOTH))]);
        protect(&mut ann, &hers, &to_change("f"), &new).await;
        assert_eq!(on_disk(world, "f", ACCESS), "u:7 g:0 g61100:7 m:7 o:0");
        assert_eq!(may(&mut ann, &hers, "f", READ | WRITE).await, Status::SUCCESS);
    });
}
