//! A namespace of DFS: referrals, and the shares that are its roots.

use std::sync::Arc;

use frevo_dfs::{Link, Namespace, Root, State, Target};
use frevo_posix::{PosixOptions, PosixVfs};
use frevo_server::access_rules::Rules;
use frevo_server::share::Share;
use frevo_server::{Reload, Site, StatusQuery, TargetHealth, TargetServer, vfs};
use frevo_wire::codec::Writer;
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::command::ioctl::dfs::{
    ReferralHeaderFlags, ReferralRequest, ReferralRequestEx, ReferralResponse,
};
use frevo_wire::command::negotiate::{self, GlobalCapabilities};
use frevo_wire::command::query_directory::{self, QueryDirectoryFlags};
use frevo_wire::command::tree_connect::{self, ShareCapabilities, ShareFlags};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::{DirectoryEntries, FileInfoClass};

use crate::calls::{ask, ioctl_draft, output};
use crate::client::files::{rename_draft, tree_connect_draft};
use crate::client::protection::{everyone, protect};
use crate::client::queries::list_draft;
use crate::client::*;

fn link(path: &str, targets: &[&str]) -> Link {
    let targets = targets.iter().map(|target| Target::new(target).unwrap()).collect();
    Link::new(path, targets).unwrap()
}

fn links() -> Vec<Link> {
    let mut closed = link("closed", &["\\\\one\\data"]);
    closed.state = State::Offline;
    let many = ["\\\\one\\data", "\\\\two\\data", "\\\\three\\data\\below"];
    vec![link("teams\\red", &["\\\\one\\red"]), link("many", &many), closed]
}

/// The shares `data`, a folder of the host and root of a namespace, `discreet`, which hides what cannot be
/// read of it, and `raw`, the folder alone; `files`, a root of its own, and `plain`.
fn serve(world: &World, links: Vec<Link>) {
    let files = Namespace::new("Files", Root::Own).with_links(links.clone()).unwrap();
    let data = Namespace::new("data", Root::Share).with_links(links.clone()).unwrap();
    let discreet = Namespace::new("discreet", Root::Share).with_links(links).unwrap();
    let folder = PosixVfs::open_root(world.dir.path(), PosixOptions::default()).unwrap();
    let folder: Arc<dyn frevo_store::Vfs> = Arc::new(folder);
    world.embedded.reload(Reload::new().shares([
        Share::disk("raw", folder.clone()),
        Share::disk("discreet", folder.clone()).hide_unreadable(true).namespace(discreet),
        Share::disk("data", folder).namespace(data),
        Share::of_namespace(files),
        Share::disk("plain", vfs::memory(1 << 20)),
    ]));
}

pub(crate) async fn ask_referral(
    peer: &mut Peer,
    ipc: &Mount,
    level: u16,
    path: &str,
    room: u32,
) -> Reply {
    let mut input = Vec::new();
    ReferralRequest { max_level: level, path: path.into() }.encode(&mut Writer::new(&mut input));
    ask(peer, ipc, CtlCode::DFS_GET_REFERRALS, FileId::ALL_ONES, &input, room).await
}

pub(crate) fn referral(reply: &Reply) -> ReferralResponse {
    ReferralResponse::parse(&output(reply.ok())).unwrap()
}

/// MS-DFSC 3.2.5 and MS-SMB2 3.3.5.15.2
#[test]
fn referrals_have_the_version_and_the_room_of_the_client() {
    in_world(async |world| {
        serve(world, links());
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let ipc = peer.mount(&mount.logon, "IPC$").await;
        let path = "\\srv\\FILES\\Many\\a\\b";
        for level in [1, 2, 3, 4, 9] {
            let reply = ask_referral(&mut peer, &ipc, level, path, 4096).await;
            assert_eq!(output(&reply)[8], level.min(4) as u8, "VersionNumber");
            let found = referral(&reply);
            assert_eq!((found.path_consumed, found.referrals.len()), (2 * 15, 3));
        }
        let found = referral(&ask_referral(&mut peer, &ipc, 4, path, 4096).await);
        assert_eq!(found.flags, ReferralHeaderFlags::STORAGE_SERVERS);
        assert!(found.referrals[0].begins_set && !found.referrals[1].begins_set);
        let mut targets: Vec<_> = found.referrals.iter().map(|one| &*one.target).collect();
        targets.sort_unstable();
        assert_eq!(targets, ["\\one\\data", "\\three\\data\\below", "\\two\\data"]);
        // One entry of version 4 has 8 + 34 bytes, the path and a target.
        let least = |target: usize| u32::try_from(8 + 34 + 2 * (16 + target)).unwrap();
        let found = referral(&ask_referral(&mut peer, &ipc, 4, path, least(20)).await);
        assert_eq!(found.referrals.len(), 1);
        let reply = ask_referral(&mut peer, &ipc, 4, path, least(9)).await;
        assert!(output(reply.expect(Status::BUFFER_OVERFLOW)).is_empty());
        let found = referral(&ask_referral(&mut peer, &ipc, 3, "\\srv\\files\\teams", 4096).await);
        assert_eq!((found.path_consumed, &*found.referrals[0].target), (20, "\\srv\\Files"));
        for (level, path, status) in [
            (0, path, Status::INVALID_PARAMETER),
            (4, "", Status::INVALID_PARAMETER),
            (4, "\\example.com", Status::INVALID_PARAMETER),
            (4, "\\example.com\\sysvol", Status::NOT_FOUND),
            (4, "\\srv\\plain", Status::NOT_FOUND),
            (4, "\\srv\\files\\closed", Status::DFS_UNAVAILABLE),
        ] {
            ask_referral(&mut peer, &ipc, level, path, 4096).await.expect(status);
        }
        let code = CtlCode::DFS_GET_REFERRALS;
        for input in [&[][..], &[4], &[4, 0, b'a', 0], &[4, 0, 0, 0xD8, 0, 0]] {
            let reply = ask(&mut peer, &ipc, code, FileId::ALL_ONES, input, 4096).await;
            reply.expect(Status::INVALID_PARAMETER);
        }
        let code = CtlCode::DFS_GET_REFERRALS_EX;
        for site in [None, Some("Berlin".into())] {
            let mut input = Vec::new();
            ReferralRequestEx { max_level: 4, path: "\\s\\data\\teams\\red".into(), site }
                .encode(&mut Writer::new(&mut input));
            let reply = ask(&mut peer, &ipc, code, FileId::ALL_ONES, &input, 4096).await;
            assert_eq!(referral(&reply).referrals[0].target, "\\one\\red");
            input.truncate(9);
            let reply = ask(&mut peer, &ipc, code, FileId::ALL_ONES, &input, 4096).await;
            reply.expect(Status::INVALID_PARAMETER);
        }
    });
}

/// MS-DFSC 3.2.5.5. The server takes the health and the addresses of servers from outside.
#[test]
fn targets_are_ordered_by_health_and_site() {
    let site = |name: &str, network: &str| Site {
        name: name.into(),
        networks: vec![network.parse().unwrap()],
    };
    let sites = [site("here", "127.0.0.0/8"), site("there", "198.51.100.0/24")];
    in_world_with(Settings { sites: sites.into_iter().collect(), ..settings() }, async |world| {
        serve(world, links());
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let ipc = peer.mount(&mount.logon, "IPC$").await;
        let server = |name: &str, health, address: [u8; 4]| TargetServer {
            name: name.into(),
            health,
            addresses: vec![address.into()],
        };
        let fails = || TargetHealth::Fails { since: 1, why: "refused".into() };
        let answers = || TargetHealth::Answers { since: 1 };
        let (near, far) = ([127, 9, 9, 9], [198, 51, 100, 1]);
        for (told, expected) in [
            ([(answers(), far), (answers(), near), (fails(), near)], ["\\two", "\\one", "\\three"]),
            ([(fails(), far), (answers(), near), (answers(), far)], ["\\two", "\\three", "\\one"]),
            (
                [(fails(), far), (fails(), near), (TargetHealth::Unknown, far)],
                ["\\three", "\\two", "\\one"],
            ),
            ([(fails(), far), (fails(), near), (fails(), [127, 0, 0, 1])], ["", "", "\\one"]),
        ] {
            let failing = told.iter().filter(|(health, _)| *health == fails()).count();
            let names = ["ONE", "two", "three"].into_iter().zip(told);
            let all = names.map(|(name, (health, address))| server(name, health, address));
            world.embedded.set_target_servers(all);
            let found = ask_referral(&mut peer, &ipc, 4, "\\srv\\files\\many", 4096).await;
            let found = referral(&found).referrals;
            for (found, expected) in found.iter().zip(expected) {
                assert!(found.target.starts_with(expected), "{found:?} {expected}");
            }
            assert_eq!(found.len(), 3, "no target is left out");
            assert_eq!(world.embedded.metrics().failing_servers, failing);
        }
        let status = world.embedded.status(&StatusQuery::default());
        assert_eq!((status.targets.rows.len(), status.targets.rows[0].state), (3, "fails"));
        let mut query = StatusQuery::default();
        query.user = Some("ann".into());
        assert_eq!(world.embedded.status(&query).targets.rows.len(), 0);
    });
}

pub(crate) async fn connect(
    peer: &mut Peer,
    mount: &Mount,
    share: &str,
) -> (Mount, tree_connect::Response) {
    let draft = tree_connect_draft(&format!("\\\\frevo\\{share}")).session(mount.logon.id);
    let reply = peer.ask(draft, mount.logon.via()).await;
    let answer = tree_connect::Response::parse(&reply.ok().message).unwrap();
    (Mount::new(&mount.logon, reply.header.tree_id().unwrap()), answer)
}

pub(crate) async fn list(
    peer: &mut Peer,
    mount: &Mount,
    folder: &str,
    pattern: &str,
) -> Vec<(String, u32)> {
    let want = Want::existing(folder).access(AccessMask::READ_DATA);
    let directory = peer.open_file(mount, &want).await;
    let class = FileInfoClass::ID_BOTH_DIRECTORY;
    let mut names = Vec::new();
    loop {
        let draft = list_draft(directory, class, QueryDirectoryFlags::EMPTY, pattern);
        let reply = peer.on(mount, draft).await;
        match reply.status() {
            Status::NO_MORE_FILES | Status::NO_SUCH_FILE => break,
            _ => reply.ok(),
        };
        let answer = query_directory::Response::parse(&reply.message).unwrap();
        for entry in DirectoryEntries::new(answer.output, class).unwrap() {
            let entry = entry.unwrap();
            names.push((entry.name.decode().unwrap(), entry.reparse_tag));
        }
    }
    // The innocent session of the world has a file of its own.
    names.retain(|(name, _)| !matches!(&**name, "." | ".." | "innocent"));
    names.sort();
    names
}

/// IO_REPARSE_TAG_DFS
pub(crate) const TAG: u32 = 0x8000_000A;

/// MS-SMB2 3.3.5.4, 3.3.5.7 and 3.3.5.9
#[test]
fn roots_are_dfs_shares_and_their_links_lead_away() {
    in_world(async |world| {
        let (mut old, _) = world.session("ann", &Offer::default()).await;
        old.ask(Draft::echo(), Via::Plain).await.ok();
        serve(world, links());
        world.file("own", "text");
        let mut peer = world.connect();
        let reply = peer.try_negotiate(&Offer::default()).await;
        let answer = negotiate::Response::parse(&reply.ok().message).unwrap();
        assert!(answer.capabilities.contains(GlobalCapabilities::DFS));
        let logon = peer.log_on("ann").await;
        let any = Mount::new(&logon, 0);
        let dfs = ShareFlags::DFS | ShareFlags::DFS_ROOT;
        let (files, answer) = connect(&mut peer, &any, "files").await;
        assert!(answer.share_flags.contains(dfs));
        assert!(answer.capabilities.contains(ShareCapabilities::DFS));
        assert!(!answer.maximal_access.contains(AccessMask::WRITE_DATA));
        let (data, answer) = connect(&mut peer, &any, "DATA").await;
        assert!(answer.share_flags.contains(dfs));
        assert!(answer.maximal_access.contains(AccessMask::WRITE_DATA));
        for share in ["plain", "IPC$"] {
            let (_, answer) = connect(&mut peer, &any, share).await;
            assert!(!answer.share_flags.intersects(dfs), "{share}");
            assert!(!answer.capabilities.contains(ShareCapabilities::DFS), "{share}");
        }
        let names = |all: &[(&str, u32)]| -> Vec<(String, u32)> {
            all.iter().map(|(name, tag)| ((*name).to_owned(), *tag)).collect()
        };
        let of_root = [("closed", TAG), ("many", TAG), ("teams", 0)];
        assert_eq!(list(&mut peer, &files, "", "*").await, names(&of_root));
        let of_data = [("closed", TAG), ("many", TAG), ("own", 0), ("teams", 0)];
        assert_eq!(list(&mut peer, &data, "", "*").await, names(&of_data));
        assert_eq!(list(&mut peer, &data, "", "MANY").await, names(&[("many", TAG)]));
        for mount in [&files, &data] {
            assert_eq!(list(&mut peer, mount, "teams", "*").await, names(&[("red", TAG)]));
            for (name, is_dfs, status) in [
                ("srv\\files\\teams", true, Status::SUCCESS),
                ("srv\\files", true, Status::SUCCESS),
                ("srv\\files\\teams\\red", true, Status::PATH_NOT_COVERED),
                ("srv\\files\\many\\a\\b", true, Status::PATH_NOT_COVERED),
                ("srv\\files\\closed\\a", true, Status::DFS_UNAVAILABLE),
                ("srv\\files\\none", true, Status::OBJECT_NAME_NOT_FOUND),
                ("\\srv\\files\\teams", true, Status::SUCCESS),
                ("teams", false, Status::SUCCESS),
                ("many", false, Status::PATH_NOT_COVERED),
                ("Teams\\RED\\x", false, Status::PATH_NOT_COVERED),
                ("closed", false, Status::DFS_UNAVAILABLE),
            ] {
                let want = Want::existing(name).access(AccessMask::READ_ATTRIBUTES);
                let flags = if is_dfs { HeaderFlags::DFS_OPERATIONS } else { HeaderFlags::EMPTY };
                peer.on(mount, want.draft().flags(flags)).await.expect(status);
            }
            // A link itself has attributes, and takes no change.
            let itself = Want::existing("many").options(CreateOptions::OPEN_REPARSE_POINT);
            let look = itself.clone().access(AccessMask::READ_ATTRIBUTES);
            peer.on(mount, look.draft()).await.ok();
            let delete = itself
                .access(AccessMask::DELETE)
                .options(CreateOptions::OPEN_REPARSE_POINT | CreateOptions::DELETE_ON_CLOSE);
            assert_ne!(peer.on(mount, delete.draft()).await.status(), Status::SUCCESS);
            let made = Want::file("teams\\new").disposition(CreateDisposition::CREATE);
            peer.on(mount, made.draft()).await.expect(Status::ACCESS_DENIED);
        }
        // The names of FileRenameInformation are never those of DFS, whatever the flag says.
        let want = Want::existing("srv\\data\\own");
        let own = peer.on(&data, want.draft().flags(HeaderFlags::DFS_OPERATIONS)).await;
        let own = files::file_id(own.ok());
        for (to, status) in [
            ("many\\x", Status::PATH_NOT_COVERED),
            ("many", Status::OBJECT_NAME_COLLISION),
            ("moved", Status::SUCCESS),
        ] {
            let draft = rename_draft(FileInfoClass::RENAME, own, to, false);
            let reply = peer.on(&data, draft.flags(HeaderFlags::DFS_OPERATIONS)).await;
            reply.expect(status);
        }
        assert!(world.path("moved").exists());
        // On a share that is none of DFS the flag means nothing.
        let (plain, _) = connect(&mut peer, &any, "plain").await;
        let want = Want::directory("srv");
        peer.on(&plain, want.draft().flags(HeaderFlags::DFS_OPERATIONS)).await.ok();
        assert_eq!(list(&mut peer, &plain, "", "*").await, names(&[("srv", 0)]));
        // A reload changes the links for those who are connected, and ends nobody's connection.
        serve(world, vec![link("teams\\blue", &["\\\\one\\blue"])]);
        assert_eq!(list(&mut peer, &files, "", "*").await, names(&[("teams", 0)]));
        assert_eq!(list(&mut peer, &data, "teams", "*").await, names(&[("blue", TAG)]));
        old.ask(Draft::echo(), Via::Plain).await.ok();
    });
}

/// Logs on as nobody, by NTLM as it is (MS-NLMP 3.2.5.1.2). Returns the session's id.
async fn nobody(peer: &mut Peer) -> u64 {
    let negotiate = [&b"NTLMSSP\0\x01\0\0\0\x01\x02\0\0"[..], &[0; 16]].concat();
    let nothing = [0, 0, 0, 0, 64, 0, 0, 0];
    let authenticate = [&b"NTLMSSP\0\x03\0\0\0"[..], &nothing.repeat(6), &[1, 2, 0, 0]].concat();
    let setup = Setup::of("");
    let first = peer.ask(setup.draft(&negotiate, 0), Via::Plain).await;
    let id = first.expect(Status::MORE_PROCESSING_REQUIRED).header.session_id;
    peer.ask(setup.draft(&authenticate, id), Via::Plain).await.ok();
    id
}

/// Row N4.
#[test]
fn nobody_without_an_account_gets_a_referral() {
    in_world_with(Settings { anonymous: true, ..settings() }, async |world| {
        serve(world, links());
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        let id = nobody(&mut peer).await;
        let connect = tree_connect_draft("\\\\server\\IPC$").session(id);
        let tree = peer.ask(connect, Via::Plain).await.ok().header.tree_id().unwrap();
        let mut input = Vec::new();
        ReferralRequest { max_level: 4, path: "\\s\\files".into() }
            .encode(&mut Writer::new(&mut input));
        let code = CtlCode::DFS_GET_REFERRALS;
        let draft = ioctl_draft(code, FileId::ALL_ONES, &input, 4096).session(id).tree(tree);
        peer.ask(draft, Via::Plain).await.expect(Status::ACCESS_DENIED);
    });
}

/// A namespace whose root refuses a user is absent for them, and so are its links.
#[test]
fn a_root_that_refuses_a_user_gives_no_referral() {
    in_world(async |world| {
        let root = || Namespace::new("secret", Root::Own).with_links(links()).unwrap();
        let give = |user: &str| {
            let rules = Rules::for_users(&[user]);
            world.embedded.reload(Reload::new().shares([Share::of_namespace(root()).rules(rules)]));
        };
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        let (ipc, _) = connect(&mut ann, &mount, "IPC$").await;
        for path in ["\\s\\secret", "\\\\s\\SECRET\\many\\x"] {
            give("bob");
            let refused = ask_referral(&mut ann, &ipc, 4, path, 4096).await;
            refused.expect(Status::NOT_FOUND);
            give("ann");
            assert!(
                !referral(&ask_referral(&mut ann, &ipc, 4, path, 4096).await).referrals.is_empty()
            );
        }
    });
}

/// MS-SMB2 3.3.5.18: the access list of the folder at the place of a link decides who sees the link.
#[test]
fn a_link_is_hidden_by_the_folder_at_its_place() {
    in_world(async |world| {
        serve(world, links());
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        let (raw, _) = connect(&mut ann, &hers, "raw").await;
        for (name, mask) in [("closed", AccessMask::FILE_GENERIC_READ), ("many", AccessMask::EMPTY)]
        {
            let folder = ann.open_file(&raw, &Want::directory(name)).await;
            ann.close(&raw, folder).await;
            let want = Want::existing(name).access(AccessMask::WRITE_DAC);
            protect(&mut ann, &raw, &want, &everyone(mask)).await;
        }
        let mut bob = world.connect();
        bob.negotiate(&Offer::default()).await;
        let logon = bob.log_on("bob").await;
        let his = bob.mount(&logon, "discreet").await;
        let seen = [("closed".to_owned(), TAG), ("teams".to_owned(), 0)];
        assert_eq!(list(&mut bob, &his, "", "*").await, seen);
        assert_eq!(list(&mut bob, &his, "", "many").await, []);
        assert_eq!(list(&mut bob, &his, "teams", "*").await, [("red".to_owned(), TAG)]);
        let all = bob.mount(&logon, "data").await;
        assert_eq!(list(&mut bob, &all, "", "*").await.len(), 3);
        // Neither is it told of by an open or a referral; what is asked for is missing, as elsewhere.
        let ipc = bob.mount(&logon, "IPC$").await;
        for (path, consumed) in [
            ("\\s\\discreet\\many\\x", "\\s\\discreet"),
            ("\\s\\discreet\\none\\x", "\\s\\discreet"),
            ("\\s\\discreet\\teams\\red\\x", "\\s\\discreet\\teams\\red"),
            ("\\s\\data\\many\\x", "\\s\\data\\many"),
        ] {
            let answer = referral(&ask_referral(&mut bob, &ipc, 4, path, 4096).await);
            assert_eq!(usize::from(answer.path_consumed), 2 * consumed.len(), "{path}");
        }
        for (name, is_dfs, status) in [
            ("s\\discreet\\many", true, Status::OBJECT_NAME_NOT_FOUND),
            ("s\\discreet\\many\\x", true, Status::OBJECT_PATH_NOT_FOUND),
            ("many", false, Status::OBJECT_NAME_NOT_FOUND),
            ("many\\x\\y", false, Status::OBJECT_PATH_NOT_FOUND),
            ("s\\discreet\\none\\x", true, Status::OBJECT_PATH_NOT_FOUND),
            ("s\\discreet\\teams\\red\\x\\y", true, Status::PATH_NOT_COVERED),
            ("teams\\red\\x\\y", false, Status::PATH_NOT_COVERED),
            ("s\\discreet\\closed\\x", true, Status::DFS_UNAVAILABLE),
        ] {
            let want = Want::existing(name).access(AccessMask::READ_ATTRIBUTES);
            let flags = if is_dfs { HeaderFlags::DFS_OPERATIONS } else { HeaderFlags::EMPTY };
            let reply = bob.on(&his, want.draft().flags(flags)).await;
            assert_eq!(reply.status(), status, "{name}");
        }
    });
}

/// PathConsumed counts what the client wrote, also where the share takes other spellings.
#[test]
fn paths_of_referrals_are_spelled_as_the_share_takes_them() {
    in_world(async |world| {
        let root = Namespace::new("data", Root::Share).with_links(links()).unwrap();
        let folder = PosixVfs::open_root(world.dir.path(), PosixOptions::default()).unwrap();
        let share = Share::disk("data", Arc::new(folder)).forward_slashes(true).namespace(root);
        world.embedded.reload(Reload::new().shares([share]));
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let ipc = peer.mount(&mount.logon, "IPC$").await;
        for (path, consumed) in [
            ("\\s\\data\\teams/red\\x", "\\s\\data\\teams/red"),
            ("\\s\\data/teams/red/x/y", "\\s\\data/teams/red"),
            ("\\s\\data\\teams/blue\\x", "\\s\\data"),
        ] {
            let answer = referral(&ask_referral(&mut peer, &ipc, 4, path, 4096).await);
            assert_eq!(usize::from(answer.path_consumed), 2 * consumed.len(), "{path}");
        }
        let (files, _) = connect(&mut peer, &mount, "data").await;
        let want = Want::existing("s\\data\\teams/red/x").access(AccessMask::READ_ATTRIBUTES);
        let reply = peer.on(&files, want.draft().flags(HeaderFlags::DFS_OPERATIONS)).await;
        reply.expect(Status::PATH_NOT_COVERED);
    });
}
