//! TREE_CONNECT is refused, or gives less, as the lists of the share say:
//! MS-SMB2 3.3.5.7. Rows A5 of the catalogue of faults.

use std::net::IpAddr;
use std::sync::Arc;

use frevo_auth::smbpasswd::Entry;
use frevo_auth::{AccountFile, NtHash};
use frevo_posix::{PosixOptions, PosixVfs, Said};
use frevo_server::access_rules::{Names, Rules};
use frevo_server::ambient::{Ambient, Host, HostUser};
use frevo_server::internal::state::Shares;
use frevo_server::share::Share;
use frevo_server::user_map::{Mapped, UserMap};
use frevo_wire::command::create::CreateDisposition;
use frevo_wire::command::tree_connect;
use frevo_wire::dtyp::{AccessMask, FileTime};

use crate::client::files::tree_connect_draft;
use crate::client::settings;
use crate::client::world::{in_own_world, in_world, password, serving};
use crate::client::{Dialect, Logon, Mount, Offer, Peer, Setup, Status, Want, World};

/// The groups of each account.
pub fn accounts(groups: &[(&str, &[&str])]) -> Arc<AccountFile> {
    let mut file = AccountFile::default();
    for (name, groups) in groups {
        let hash = NtHash::from_password(&password(name));
        file.add(Entry::new(name, u32::MAX, hash, 0)).unwrap();
        let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
        file.set_groups(name, &groups).unwrap();
    }
    Arc::new(file)
}

/// Makes the server show its folder as a share `data` with these rules.
pub fn share(world: &World, read_only: bool, rules: Rules, groups: &[(&str, &[&str])]) {
    let vfs = PosixVfs::open_root(world.dir.path(), PosixOptions::default()).unwrap();
    let data = Share::disk("data", Arc::new(vfs)).read_only(read_only).rules(rules);
    let settings = (*world.server.settings()).clone();
    world.server.reload(settings, &Shares::new([data]), accounts(groups));
}

pub fn names(listed: &[&str]) -> Names {
    Names::of(listed.iter().copied())
}

/// The folder as several shares, of which most refuse Ann: by each of the lists.
fn closed_and_open(world: &World) {
    let vfs = Arc::new(PosixVfs::open_root(world.dir.path(), PosixOptions::default()).unwrap());
    let share = |name: &str| Share::disk(name, Arc::clone(&vfs) as _);
    let networks = |listed: &str| vec![listed.parse().unwrap()];
    let closed = |name: &str, rules: Rules| share(name).rules(rules);
    let denied = || Rules { deny: names(&["ann"]), ..Rules::default() };
    let shares = [
        closed("denied", denied()),
        closed("not-allowed", Rules { allow: names(&["bob", "@few"]), ..Rules::default() }),
        closed("near", Rules { hosts_allow: networks("192.0.2.0/24"), ..Rules::default() }),
        closed("far", Rules { hosts_deny: networks("127.0.0.0/8"), ..Rules::default() }),
        closed("sealed-and-denied", denied()).encrypt(true),
        share("sealed").encrypt(true),
        share("data"),
    ];
    let settings = (*world.server.settings()).clone();
    world.server.reload(settings, &Shares::new(shares), accounts(STAFF));
}

/// Names of shares of [`closed_and_open`] that refuse Ann.
const CLOSED: [&str; 5] = ["denied", "not-allowed", "near", "far", "sealed-and-denied"];

/// Row X8: the whole answer, also to a client that cannot encrypt. A user that may use the
/// share learns that it demands encryption.
#[test]
fn x8_a_forbidden_share_is_answered_as_an_absent_one() {
    in_world(async |world| {
        closed_and_open(world);
        for dialect in [Dialect::SMB_3_1_1, Dialect::SMB_2_1] {
            let mut peer = world.connect();
            peer.negotiate(&Offer::only(dialect)).await;
            let logon = peer.log_on("ann").await;
            let mut told = async |name: &str| {
                let path = format!("\\\\frevo\\{name}");
                let draft = tree_connect_draft(&path).session(logon.id);
                let mut reply = peer.ask(draft, logon.via()).await;
                // MessageId and Signature differ from reply to reply, so they are cleared before
                // the replies are compared.
                reply.message[24..32].fill(0);
                reply.message[48..64].fill(0);
                (reply.status(), reply.message)
            };
            let absent = told("absent").await;
            assert_eq!(absent.0, Status::BAD_NETWORK_NAME);
            for name in CLOSED {
                assert_eq!(told(name).await, absent, "{name} {dialect:?}");
            }
            assert_eq!(told("data").await.0, Status::SUCCESS);
            let sealed = match dialect {
                Dialect::SMB_2_1 => Status::ACCESS_DENIED,
                _ => Status::SUCCESS,
            };
            assert_eq!(told("sealed").await.0, sealed);
        }
    });
}

pub const STAFF: &[(&str, &[&str])] = &[("ann", &["Staff"]), ("bob", &[])];

pub async fn arrive(world: &World, user: &str, from: IpAddr) -> (Peer, std::rc::Rc<Logon>) {
    let mut peer = world.connect_from(from).expect("admitted");
    peer.negotiate(&Offer::default()).await;
    let logon = peer.log_on(user).await;
    (peer, logon)
}

/// The answer to a user: its maximal access, or the reason of the refusal.
async fn access(world: &World, user: &str, from: &str) -> Result<AccessMask, Status> {
    let (mut peer, logon) = arrive(world, user, from.parse().unwrap()).await;
    let draft = tree_connect_draft("\\\\frevo\\data").session(logon.id);
    let reply = peer.ask(draft, logon.via()).await;
    match reply.status() {
        Status::SUCCESS => {
            Ok(tree_connect::Response::parse(&reply.message).unwrap().maximal_access)
        }
        status => Err(status),
    }
}

const READ: AccessMask =
    AccessMask(AccessMask::FILE_GENERIC_READ.0 | AccessMask::FILE_GENERIC_EXECUTE.0);

#[test]
fn who_is_not_listed_is_refused() {
    in_world(async |world| {
        let near = "127.0.0.1";
        share(world, false, Rules { allow: names(&["@staff"]), ..Rules::default() }, STAFF);
        assert_eq!(access(world, "ann", near).await, Ok(AccessMask::FILE_ALL));
        assert_eq!(access(world, "bob", near).await, Err(Status::BAD_NETWORK_NAME));
        share(world, false, Rules { deny: names(&["@STAFF"]), ..Rules::default() }, STAFF);
        assert_eq!(access(world, "ANN", near).await, Err(Status::BAD_NETWORK_NAME));
        assert_eq!(access(world, "bob", near).await, Ok(AccessMask::FILE_ALL));
    });
}

#[test]
fn clients_elsewhere_are_refused() {
    in_world(async |world| {
        let networks = |listed: &[&str]| listed.iter().map(|n| n.parse().unwrap()).collect();
        let rules = Rules {
            hosts_allow: networks(&["192.0.2.7", "2001:db8::/32"]),
            hosts_deny: networks(&["192.0.2.0/24", "2001::/16"]),
            ..Rules::default()
        };
        share(world, false, rules, STAFF);
        for (from, may) in [
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("::ffff:192.0.2.8", false),
            ("2001:db8::1", true),
            ("2001:db9::1", false),
            ("203.0.113.1", true),
        ] {
            let want = if may { Ok(AccessMask::FILE_ALL) } else { Err(Status::BAD_NETWORK_NAME) };
            assert_eq!(access(world, "ann", from).await, want, "{from}");
        }
    });
}

pub async fn try_create(peer: &mut Peer, mount: &Mount, name: &str) -> Status {
    let want = Want::file(name).disposition(CreateDisposition::CREATE);
    peer.create(mount, &want).await.status()
}

#[test]
fn readers_do_not_write_and_writers_do() {
    in_world(async |world| {
        let near = "127.0.0.1".parse().unwrap();
        world.file("old", "content");
        let rules = Rules { read_list: names(&["bob"]), ..Rules::default() };
        share(world, false, rules, STAFF);
        assert_eq!(access(world, "bob", "127.0.0.1").await, Ok(READ));
        let (mut bob, logon) = arrive(world, "bob", near).await;
        let mount = bob.mount(&logon, "data").await;
        assert_eq!(try_create(&mut bob, &mount, "bobs").await, Status::ACCESS_DENIED);
        let truncate = Want::existing("old").disposition(CreateDisposition::OVERWRITE);
        assert_eq!(bob.create(&mount, &truncate).await.status(), Status::ACCESS_DENIED);
        assert_eq!(world.content("old"), b"content");
        let file =
            bob.open_file(&mount, &Want::existing("old").access(AccessMask::READ_DATA)).await;
        assert_eq!(bob.read(&mount, file, 0, 100).await, b"content");

        let rules = Rules { write_list: names(&["@staff"]), ..Rules::default() };
        share(world, true, rules, STAFF);
        assert_eq!(access(world, "bob", "127.0.0.1").await, Ok(READ));
        assert_eq!(access(world, "ann", "127.0.0.1").await, Ok(AccessMask::FILE_ALL));
        let (mut ann, logon) = arrive(world, "ann", near).await;
        let mount = ann.mount(&logon, "data").await;
        assert_eq!(try_create(&mut ann, &mount, "anns").await, Status::SUCCESS);
    });
}

/// A name that stands for an account logs on with its password, and behind the
/// logon there is the account alone.
#[test]
fn names_that_stand_for_accounts() {
    in_world(async |world| {
        let map = UserMap::parse("ann = \"Ann Smith\" bob").unwrap();
        let accounts = Arc::new(Mapped::new((*accounts(STAFF)).clone(), map));
        let settings = (*world.server.settings()).clone();
        world.server.reload(settings, &world.server.shares().clone(), accounts);
        for name in ["ANN SMITH", "bob", "ann"] {
            let mut peer = world.connect();
            peer.negotiate(&Offer::default()).await;
            let setup = Setup { password: password("ann"), ..Setup::of(name) };
            let logon = peer.try_log_on(setup).await.expect("it is ann's password");
            let identity = world.server.session(logon.id).unwrap().identity().unwrap();
            assert_eq!(identity.user, "ann", "{name}");
        }
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        let refused = peer.try_log_on(Setup::of("bob")).await.err().map(|reply| reply.status());
        assert_eq!(refused, Some(Status::LOGON_FAILURE), "not with bob's own password any more");
    });
}

/// A host that does not say who is in which group: `deny` has groups, `read_list`
/// has, and nobody gets more for that.
#[test]
fn who_the_host_says_nothing_of_is_kept_out() {
    #[derive(Debug)]
    struct Silent;
    impl Ambient for Silent {
        fn now(&self) -> FileTime {
            Host.now()
        }
        fn random(&self, bytes: &mut [u8]) {
            Host.random(bytes);
        }
        fn host_user(&self, _: &str) -> Said<HostUser> {
            Err(rustix::io::Errno::MFILE)
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let server = serving(settings(), [], accounts(STAFF), Arc::new(Silent));
    in_own_world(false, &World::of(server, dir), async |world| {
        let near = "127.0.0.1";
        share(world, false, Rules { deny: names(&["@guests"]), ..Rules::default() }, STAFF);
        assert_eq!(access(world, "ann", near).await, Err(Status::BAD_NETWORK_NAME));
        share(world, false, Rules { read_list: names(&["@guests"]), ..Rules::default() }, STAFF);
        assert_eq!(access(world, "ann", near).await, Ok(READ));
        // The rule names the group "staff" of the account file, of which only ann is a member.
        share(world, false, Rules { allow: names(&["@staff"]), ..Rules::default() }, STAFF);
        assert_eq!(access(world, "ann", near).await, Ok(AccessMask::FILE_ALL));
        assert_eq!(access(world, "bob", near).await, Err(Status::BAD_NETWORK_NAME));
    });
}

/// Row A5: what has changed in the account file counts from the next
/// authentication on, in the same session, and without one after a reload.
#[test]
fn a5_new_groups_count_from_the_next_request_on() {
    in_world(async |world| {
        let rules = || Rules { allow: names(&["@staff"]), ..Rules::default() };
        share(world, false, rules(), STAFF);
        let (mut ann, logon) = arrive(world, "ann", "127.0.0.1".parse().unwrap()).await;
        ann.mount(&logon, "data").await;
        let token = |world: &World| world.server.session(logon.id).unwrap().identity().unwrap();
        assert_eq!(&*token(world).groups, ["staff"]);
        share(world, false, rules(), &[("ann", &[]), ("bob", &["staff"])]);
        assert!(token(world).groups.is_empty());
        let refused = ann.try_mount(&logon, "data").await.err().map(|reply| reply.status());
        assert_eq!(refused, Some(Status::BAD_NETWORK_NAME));
        // Ann's session re-authenticates as bob, which is refused and ends the session.
        let reply = ann.log_on_again(Setup::again("bob", &logon)).await;
        assert_eq!(reply.status(), Status::ACCESS_DENIED);
        assert!(world.server.session(logon.id).is_none());
    });
}
