//! Row X7 at length: 64 users of the host, on several cores and all at once, each with its own
//! files among those of the others. After every operation the owner or the refusal is checked.
//! It takes root.
//!
//! `FREVO_RIGHTS_OPS=1000000 ./dev/test races` has a million operations made.

use std::cell::Cell;
use std::os::unix::fs::{MetadataExt, chown};
use std::rc::Rc;
use std::sync::Arc;

use frevo_auth::{Account, AccountRules, Accounts, NtHash};
use frevo_posix::{PosixOptions, PosixVfs, Said, UnixUser, credentials};
use frevo_server::ambient::{Ambient, Host, HostUser};
use frevo_server::share::{RunAs, Share};
use frevo_store::Vfs;
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::dtyp::{AccessMask, FileTime, Guid};

use crate::client::files::{PREVIOUS, close_draft, file_id, read_draft, write_draft};
use crate::client::world::{in_own_world, password, serving};
use crate::client::{Mount, Offer, Peer, Reply, Status, Want, World, settings};
use crate::cores::Cores;
use crate::impersonation::{acts_as, all_at_rest, set_mode};

const USERS: u32 = 64;
const FIRST: u32 = 62_000;

fn name(number: u32) -> String {
    format!("user{number:02}")
}

fn number(name: &str) -> Option<u32> {
    let number = name.strip_prefix("user")?.parse().ok()?;
    (number < USERS && name == self::name(number)).then_some(number)
}

/// Everybody has an account, and a number on the host.
#[derive(Debug)]
struct Crowd;

impl Accounts for Crowd {
    fn account(&self, user: &str, _domain: &str) -> Option<Account> {
        number(user)?;
        let nt_hash = NtHash::from_password(&password(user));
        Some(Account { nt_hash, rules: AccountRules::default(), name: user.to_owned() })
    }
}

impl Ambient for Crowd {
    fn now(&self) -> FileTime {
        Host.now()
    }

    fn random(&self, bytes: &mut [u8]) {
        Host.random(bytes);
    }

    fn host_user(&self, name: &str) -> Said<HostUser> {
        Ok(number(name).map(|number| {
            // Users 2n and 2n + 1 have a group in common.
            let (uid, pair) = (FIRST + number, 70_000 + number / 2);
            HostUser { unix: UnixUser { uid, gid: uid, groups: vec![uid, pair] }, groups: vec![] }
        }))
    }
}

/// How many operations all of them make together.
fn operations() -> usize {
    let asked = std::env::var("FREVO_RIGHTS_OPS").ok();
    asked.and_then(|count| count.parse().ok()).unwrap_or(12_800)
}

/// One user, on its own connection.
struct Member {
    number: u32,
    peer: Peer,
    mount: Mount,
    done: Rc<Cell<usize>>,
}

impl Member {
    fn own(&self, rest: &str) -> String {
        format!("{}\\{rest}", name(self.number))
    }

    fn count(&self, more: usize) {
        self.done.set(self.done.get() + more);
    }

    async fn expect(&mut self, want: &Want, status: Status) -> Reply {
        let reply = self.peer.create(&self.mount, want).await;
        assert_eq!(reply.status(), status, "{} of {want:?}", name(self.number));
        self.count(1);
        reply
    }

    /// A round of operations, the kernel's word on each.
    async fn round(&mut self, world: &World, round: usize) {
        let (own, uid) = (name(self.number), FIRST + self.number);
        let owner = |path: &str| {
            let there = std::fs::symlink_metadata(world.path(path)).unwrap();
            assert_eq!((there.uid(), there.gid()), (uid, uid), "{path} of {own}");
        };
        // A compound makes, writes and closes a file, which must belong to the user.
        let file = format!("f{}", round % 8);
        let want = Want::file(&self.own(&file)).disposition(CreateDisposition::OVERWRITE_IF);
        let drafts = vec![
            self.mount.put(want.draft()),
            self.mount.put(write_draft(PREVIOUS, 0, own.as_bytes())).related(),
            self.mount.put(close_draft(PREVIOUS)).related(),
        ];
        for reply in self.peer.ask_all(drafts, self.mount.via()).await {
            reply.ok();
        }
        self.count(3);
        owner(&format!("{own}/{file}"));

        // The files and folders of another user cannot be read, written, listed or added to.
        let other = name((self.number + 1 + (round as u32 * 7) % (USERS - 1)) % USERS);
        let denied = Status::ACCESS_DENIED;
        let secret = format!("{other}\\secret");
        self.expect(&Want::existing(&secret).access(AccessMask::READ_DATA), denied).await;
        self.expect(&Want::existing(&secret).access(AccessMask::WRITE_DATA), denied).await;
        self.expect(&Want::existing(&other).access(AccessMask::READ_DATA), denied).await;
        self.expect(&Want::file(&format!("{other}\\{own}")), denied).await;
        let removal = Want::existing(&format!("{other}\\secret"))
            .access(AccessMask::DELETE)
            .options(CreateOptions::DELETE_ON_CLOSE);
        self.expect(&removal, denied).await;

        // The file belongs to the group of a pair, so only the pair's two users can use it.
        let pair = format!("pair{:02}", self.number / 2);
        let shared = Want::existing(&pair).access(AccessMask::READ_DATA | AccessMask::WRITE_DATA);
        let file = file_id(&self.expect(&shared, Status::SUCCESS).await);
        let at = u64::from(self.number % 2) * 16;
        self.peer.write(&self.mount, file, at, own.as_bytes()).await;
        let read = self.peer.on(&self.mount, read_draft(file, at, 6)).await;
        assert_eq!(crate::client::files::data(read.ok()), own.as_bytes());
        self.peer.close(&self.mount, file).await;
        self.count(3);
        let strange = format!("pair{:02}", (self.number / 2 + 1) % (USERS / 2));
        self.expect(&Want::existing(&strange).access(AccessMask::READ_DATA), denied).await;

        // All users may add files to this folder. The new file belongs to its user, who may delete
        // it.
        let made = format!("{own}-{round}");
        let want = Want::file(&made).options(CreateOptions::DELETE_ON_CLOSE);
        let file = file_id(&self.expect(&want, Status::SUCCESS).await);
        owner(&made);
        self.peer.close(&self.mount, file).await;
        self.count(1);
        assert!(!world.path(&made).exists());
    }
}

/// Folders of one user each, with a secret, and a file for each pair.
fn furnish(world: &World) {
    for number in 0..USERS {
        let (own, uid) = (name(number), FIRST + number);
        std::fs::create_dir(world.path(&own)).unwrap();
        std::fs::write(world.path(&format!("{own}/secret")), &own).unwrap();
        for path in [own.clone(), format!("{own}/secret")] {
            chown(world.path(&path), Some(uid), Some(uid)).unwrap();
        }
        set_mode(&world.path(&format!("{own}/secret")), 0o600);
        set_mode(&world.path(&own), 0o700);
        let pair = format!("pair{:02}", number / 2);
        std::fs::write(world.path(&pair), b"").unwrap();
        chown(world.path(&pair), Some(0), Some(70_000 + number / 2)).unwrap();
        set_mode(&world.path(&pair), 0o660);
    }
}

#[test]
fn x7_sixty_four_users_never_mix() {
    if let Err(why) = credentials::check() {
        println!("skipped: x7_sixty_four_users_never_mix: {why}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    set_mode(dir.path(), 0o1777);
    let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
    let vfs: Arc<dyn Vfs> = Arc::new(vfs);
    let share = |name: &str| Share::disk(name, Arc::clone(&vfs)).run_as(RunAs::User);
    // The requests of the share "away" run on a blocking pool, not on the core thread.
    let away = share("away").off_core();
    let shares = [share("data"), away];
    let server = serving(settings(), shares, Arc::new(Crowd), Arc::new(Crowd));
    let world = World::of(server, dir);
    furnish(&world);
    let began = std::time::Instant::now();
    let done = Rc::new(Cell::new(0));
    in_own_world(false, &world, async |world| {
        let cores = Cores::start(&world.embedded, 3);
        let mut members = Vec::new();
        for number in 0..USERS {
            let at = number as usize;
            let mut peer = cores.connect(at, Guid([u8::try_from(number).unwrap(); 16]));
            peer.negotiate(&Offer::default()).await;
            let logon = peer.log_on(&name(number)).await;
            let mount = peer.mount(&logon, if at % 4 == 3 { "away" } else { "data" }).await;
            members.push(Member { number, peer, mount, done: Rc::clone(&done) });
        }
        let rounds = operations().div_ceil(USERS as usize * 14);
        let one = async |mut member: Member| {
            for round in 0..rounds {
                member.round(world, round).await;
            }
        };
        futures_util::future::join_all(members.into_iter().map(one)).await;
        cores.stop();
    });
    assert_eq!(acts_as(), 0);
    all_at_rest();
    for number in 0..USERS {
        let own = name(number);
        assert_eq!(world.content(&format!("{own}/secret")), own.as_bytes());
        let pair = world.content(&format!("pair{:02}", number / 2));
        let at = number as usize % 2 * 16;
        assert_eq!(&pair[at..at + own.len()], own.as_bytes());
    }
    assert!(done.get() >= operations());
    println!("{} operations of {USERS} users in {:?}", done.get(), began.elapsed());
}
