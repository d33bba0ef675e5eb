//! Links of Samba's in a shared folder (`samba_links`): symbolic links that programs of the host made.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use frevo_posix::{PosixOptions, PosixVfs};
use frevo_server::Reload;
use frevo_server::access_rules::Rules;
use frevo_server::share::{RunAs, Share};
use frevo_wire::codec::Writer;
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::command::ioctl::dfs::ReferralHeaderFlags;
use frevo_wire::command::tree_connect::{ShareCapabilities, ShareFlags};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::reparse::{NfsSpecial, Symlink, encode_lx_symlink};

use crate::calls::ask;
use crate::client::files::rename_draft;
use crate::client::*;
use crate::dfs::{TAG, ask_referral, connect, list, referral};

/// The shares `data`, with the links of Samba if `has_links`, `discreet`, which also hides what cannot be
/// read, and `raw`, of one folder.
fn serve(world: &World, has_links: bool) {
    let folder = PosixVfs::open_root(world.dir.path(), PosixOptions::default()).unwrap();
    let folder: Arc<dyn frevo_store::Vfs> = Arc::new(folder);
    let data = || Share::disk("data", folder.clone()).rules(Rules::default());
    let discreet = Share::disk("discreet", folder.clone()).hide_unreadable(true).samba_links(true);
    world.embedded.reload(Reload::new().shares([
        if has_links { data().samba_links(true) } else { data() },
        discreet.run_as(RunAs::Server),
        Share::disk("raw", folder.clone()),
    ]));
}

fn make_links(world: &World) {
    std::fs::create_dir(world.path("sub")).unwrap();
    for (text, at) in [
        ("msdfs:two\\data,one/data", "link"),
        ("msdfs:one\\deep", "sub/Deep"),
        ("sub", "plain"),
        ("msdfs:nothing", "bad"),
    ] {
        symlink(text, world.path(at)).unwrap();
    }
}

#[test]
fn links_of_samba_lead_away_and_are_referred_to() {
    in_world(async |world| {
        make_links(world);
        serve(world, true);
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let ipc = peer.mount(&mount.logon, "IPC$").await;
        for share in ["data", "discreet"] {
            let (data, answer) = connect(&mut peer, &mount, share).await;
            assert!(answer.share_flags.contains(ShareFlags::DFS | ShareFlags::DFS_ROOT));
            assert!(answer.capabilities.contains(ShareCapabilities::DFS));
            let of = |all: Vec<(String, u32)>| -> Vec<String> {
                all.into_iter().filter(|(_, tag)| *tag == TAG).map(|(name, _)| name).collect()
            };
            assert_eq!(of(list(&mut peer, &data, "", "*").await), ["link"]);
            assert_eq!(of(list(&mut peer, &data, "SUB", "*").await), ["Deep"]);
            let look = |name: &str| Want::existing(name).access(AccessMask::READ_ATTRIBUTES);
            let itself = |name: &str| look(name).options(CreateOptions::OPEN_REPARSE_POINT);
            for (want, is_dfs, status) in [
                (look("link"), false, Status::PATH_NOT_COVERED),
                (look("LINK\\a\\b"), false, Status::PATH_NOT_COVERED),
                (look("sub\\deep\\x"), false, Status::PATH_NOT_COVERED),
                (look("link:stream"), false, Status::PATH_NOT_COVERED),
                (look("s\\data\\sub\\deep"), true, Status::PATH_NOT_COVERED),
                (itself("s\\data\\link"), true, Status::PATH_NOT_COVERED),
                (itself("s\\data\\link\\x"), true, Status::PATH_NOT_COVERED),
                (itself("link"), false, Status::SUCCESS),
                (itself("s\\data\\plain"), true, Status::SUCCESS),
                (look("plain"), false, Status::STOPPED_ON_SYMLINK),
                (look("bad"), false, Status::STOPPED_ON_SYMLINK),
                (look("s\\data\\sub"), true, Status::SUCCESS),
            ] {
                let flags = if is_dfs { HeaderFlags::DFS_OPERATIONS } else { HeaderFlags::EMPTY };
                let reply = peer.on(&data, want.draft().flags(flags)).await;
                assert_eq!(reply.status(), status, "{share}: {want:?}");
            }
            let path = format!("\\srv\\{share}\\LINK\\x\\y");
            let found = referral(&ask_referral(&mut peer, &ipc, 4, &path, 4096).await);
            let consumed = 2 * "\\srv\\".len() + 2 * share.len() + 2 * "\\LINK".len();
            assert_eq!(usize::from(found.path_consumed), consumed);
            assert_eq!(found.flags, ReferralHeaderFlags::STORAGE_SERVERS);
            let targets: Vec<_> = found.referrals.iter().map(|one| &*one.target).collect();
            assert_eq!(targets, ["\\two\\data", "\\one\\data"]);
            assert_eq!(found.referrals[0].time_to_live_s, 600);
            for path in ["", "\\sub", "\\plain", "\\plain\\x", "\\bad", "\\none\\x"] {
                let path = format!("\\srv\\{share}{path}");
                let found = referral(&ask_referral(&mut peer, &ipc, 4, &path, 4096).await);
                assert!(found.referrals[0].is_root, "{path}");
            }
        }
    });
}

#[test]
fn without_the_key_links_of_samba_are_symbolic_links() {
    in_world(async |world| {
        make_links(world);
        serve(world, true);
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let ipc = peer.mount(&mount.logon, "IPC$").await;
        let (data, _) = connect(&mut peer, &mount, "data").await;
        let look = Want::existing("link").access(AccessMask::READ_ATTRIBUTES);
        peer.on(&data, look.draft()).await.expect(Status::PATH_NOT_COVERED);
        // A reload takes the links away, also for those who are connected.
        serve(world, false);
        peer.on(&data, look.draft()).await.expect(Status::STOPPED_ON_SYMLINK);
        let refused = ask_referral(&mut peer, &ipc, 4, "\\srv\\data\\link", 4096).await;
        refused.expect(Status::NOT_FOUND);
        let (data, answer) = connect(&mut peer, &mount, "data").await;
        assert!(!answer.share_flags.intersects(ShareFlags::DFS | ShareFlags::DFS_ROOT));
        peer.on(&data, look.draft()).await.expect(Status::STOPPED_ON_SYMLINK);
        assert!(list(&mut peer, &data, "", "*").await.iter().all(|(_, tag)| *tag != TAG));
    });
}

fn buffer(encode: impl FnOnce(&mut Writer<'_>) -> Option<()>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut Writer::new(&mut bytes)).unwrap();
    bytes
}

/// Row N8: an account that may write by SMB makes no link, on the share or on another one of its folder.
#[test]
fn a_client_makes_no_link_of_samba() {
    in_world(async |world| {
        make_links(world);
        serve(world, true);
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let ipc = peer.mount(&mount.logon, "IPC$").await;
        let (data, _) = connect(&mut peer, &mount, "data").await;
        let (raw, _) = connect(&mut peer, &mount, "raw").await;
        let windows = |target: &str| {
            let link = Symlink { substitute_name: target, print_name: target, relative: true };
            buffer(|w| link.encode(w))
        };
        let forged = [
            windows("msdfs:eve\\x"),
            windows("msdfs:eve/x"),
            windows("MSDFS:eve/x"),
            buffer(|w| NfsSpecial::Symlink("msdfs:eve/x").encode(w)),
            buffer(|w| encode_lx_symlink(w, b"msdfs:eve/x")),
        ];
        let set = CtlCode::SET_REPARSE_POINT;
        let itself = |name: &str| {
            let options = CreateOptions::OPEN_REPARSE_POINT;
            Want::file(name).disposition(CreateDisposition::OPEN_IF).options(options)
        };
        for (at, mount) in [&data, &raw].into_iter().enumerate() {
            for (kind, forged) in forged.iter().enumerate() {
                let name = format!("forged{at}{kind}");
                let file = peer.open_file(mount, &itself(&name)).await;
                // The client has its link, which is kept beside the file.
                ask(&mut peer, mount, set, file, forged, 0).await.ok();
                peer.close(mount, file).await;
                assert!(world.path(&name).symlink_metadata().unwrap().is_file(), "{name}");
                // Nor does it become one by another name.
                let file = peer.open_file(mount, &itself(&name)).await;
                let moved = rename_draft(FileInfoClass::RENAME, file, "moved", true);
                peer.on(mount, moved).await.ok();
                let linked = rename_draft(FileInfoClass::LINK, file, &name, true);
                peer.on(mount, linked).await.ok();
                peer.close(mount, file).await;
                // A symbolic link of the host becomes a file beside which the client's link is kept.
                let name = format!("turned{at}{kind}");
                let file = peer.open_file(mount, &itself(&name)).await;
                ask(&mut peer, mount, set, file, &windows("sub"), 0).await.ok();
                assert!(world.path(&name).is_symlink(), "{name}");
                let _ = ask(&mut peer, mount, set, file, forged, 0).await;
                peer.close(mount, file).await;
                let text = std::fs::read_link(world.path(&name)).unwrap_or_default();
                assert!(!text.to_string_lossy().to_lowercase().starts_with("msdfs"), "{name}");
                let path = format!("\\srv\\data\\{name}");
                let found = referral(&ask_referral(&mut peer, &ipc, 4, &path, 4096).await);
                assert!(found.referrals[0].is_root, "{path}");
            }
        }
        // A link stays one, where it is.
        let own = peer.open_file(&data, &Want::file("own")).await;
        for to in ["link", "sub\\deep"] {
            for class in [FileInfoClass::RENAME, FileInfoClass::LINK] {
                let reply = peer.on(&data, rename_draft(class, own, to, true)).await;
                assert_ne!(reply.status(), Status::SUCCESS, "{to}");
            }
        }
        peer.close(&data, own).await;
        let options = CreateOptions::OPEN_REPARSE_POINT | CreateOptions::DELETE_ON_CLOSE;
        let delete = Want::existing("link").access(AccessMask::DELETE).options(options);
        assert_ne!(peer.on(&data, delete.draft()).await.status(), Status::SUCCESS);
        let tags = list(&mut peer, &data, "", "*").await;
        let links: Vec<_> = tags.iter().filter(|(_, tag)| *tag == TAG).collect();
        assert_eq!(links, [&("link".to_owned(), TAG)]);
    });
}
