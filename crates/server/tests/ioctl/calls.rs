//! IOCTL drafts and their answers.

use std::sync::Arc;

use frevo_auth::smbpasswd::Entry;
use frevo_auth::{AccountFile, NtHash};
use frevo_wire::command::ioctl::{self, CtlCode};

use crate::client::draft::pack;
pub use crate::client::files::set_draft;
use crate::client::world::password;
use crate::client::*;

/// Where the fields of an IOCTL request lie.
pub const INPUT_OFFSET: usize = 88;
pub const INPUT_COUNT: usize = 92;
pub const MAX_INPUT: usize = 96;
pub const OUTPUT_OFFSET: usize = 100;
pub const OUTPUT_COUNT: usize = 104;
pub const MAX_OUTPUT: usize = 108;
pub const FLAGS: usize = 112;

pub fn ioctl_draft(code: CtlCode, file: FileId, input: &[u8], max_output: u32) -> Draft {
    Draft::new(Command::IOCTL)
        .with(|w| ioctl::Request::fsctl(code, file, input, max_output).encode(w))
}

pub async fn ask(
    peer: &mut Peer,
    mount: &Mount,
    code: CtlCode,
    file: FileId,
    input: &[u8],
    max_output: u32,
) -> Reply {
    peer.on(mount, ioctl_draft(code, file, input, max_output)).await
}

/// smbtorture's hooks work in a server that was started with them: padding, which a
/// client has to skip, and a CLOSE that waits for what is under way.
#[cfg(feature = "test-hooks")]
#[test]
fn hooks_of_smbtorture_do_what_it_wants() {
    in_world_with(Settings { test_hooks: true, ..settings() }, async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        peer.write(&mount, file, 0, b"twelve bytes").await;
        let hook = |code: u32| ioctl_draft(CtlCode(code), FileId::ALL_ONES, &[], 1);
        let padded = peer.on(&mount, hook(0x8384_8013)).await;
        assert_eq!(output(padded.ok()), [8]);
        peer.on(&mount, hook(0x8384_8023)).await.ok();
        let reply = peer.on(&mount, files::read_draft(file, 0, 12)).await;
        let read = frevo_wire::command::read::Response::parse(&reply.ok().message).unwrap();
        assert_eq!(read.data, b"twelve bytes");
        let sleep = mount.put(ioctl_draft(CtlCode(0x8384_8043), file, &[100], 0));
        let sleep = peer.send(vec![sleep], mount.via()).await[0];
        let close = mount.put(files::close_draft(file));
        let close = peer.send(vec![close], mount.via()).await[0];
        peer.final_reply(sleep).await.ok();
        peer.final_reply(close).await.ok();
    });
}

/// In one that was not, nobody knows them, with a session or without.
#[test]
fn hooks_of_smbtorture_are_unknown_unless_they_are_asked_for() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        for code in [0x8384_8003, 0x8384_8013, 0x8384_8023, 0x8384_8043] {
            for (id, input) in [(file, &[1][..]), (FileId::ALL_ONES, &[])] {
                let reply = ask(&mut peer, &mount, CtlCode(code), id, input, 64).await;
                let refused = [Status::INVALID_DEVICE_REQUEST, Status::NOT_SUPPORTED];
                assert!(refused.contains(&reply.status()), "{code:#x}: {}", reply.status());
            }
            let alone = ioctl_draft(CtlCode(code), FileId::ALL_ONES, &[], 0).session(0);
            let reply = peer.ask(alone, Via::Plain).await;
            reply.expect(Status::USER_SESSION_DELETED);
        }
    });
}

/// The output of an answer that has one.
pub fn output(reply: &Reply) -> Vec<u8> {
    ioctl::Response::parse(&reply.message).unwrap().output.to_vec()
}

/// CANCEL, whose sequence number is that of what it cancels.
pub async fn cancel(peer: &Peer, mount: &Mount, id: u64, async_id: Option<u64>) {
    let cancel = Peer::cancel(id, async_id, mount.logon.id);
    peer.send_frame(&pack(&[cancel], mount.via())).await;
}

/// Ann is an administrator, Bob nobody.
pub fn promote_ann(world: &World) {
    let mut file = AccountFile::default();
    for name in ["ann", "bob"] {
        let hash = NtHash::from_password(&password(name));
        file.add(Entry::new(name, u32::MAX, hash, 0)).unwrap();
    }
    file.set_groups("ann", &["administrators".into()]).unwrap();
    let settings = (*world.server.settings()).clone();
    let shares = world.server.shares().as_ref().clone();
    world.server.reload(settings, &shares, Arc::new(file));
}
