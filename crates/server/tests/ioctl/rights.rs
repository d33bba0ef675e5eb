//! X2: every control code on Opens that may not change anything.

use frevo_server::internal::protocol::{On, TABLE};
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::dtyp::AccessMask;

use super::calls::*;
use crate::client::*;

fn state(world: &World) -> (Vec<u8>, std::time::SystemTime, u64) {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(world.path("f")).unwrap();
    (world.content("f"), metadata.modified().unwrap(), metadata.blocks())
}

/// Input that means something to every code that would change the file.
fn inputs() -> Vec<Vec<u8>> {
    let zero = [0_i64.to_le_bytes(), 5_i64.to_le_bytes()].concat();
    vec![Vec::new(), vec![0; 64], zero, vec![1; 24]]
}

async fn nothing_changes(world: &World, peer: &mut Peer, mount: &Mount, access: AccessMask) {
    let file = peer.open_file(mount, &Want::existing("f").access(access)).await;
    // CREATE_OR_GET_OBJECT_ID needs no right, so the object ID is made first. Otherwise its
    // creation would look like a change made without a right.
    let code = CtlCode::CREATE_OR_GET_OBJECT_ID;
    ask(peer, mount, code, file, &[], 64).await.ok();
    let before = state(world);
    for row in TABLE.iter().filter(|row| row.on != On::Nothing) {
        for input in inputs() {
            let status = ask(peer, mount, row.code, file, &input, 4096).await.status();
            if row.changes {
                let refused = [Status::ACCESS_DENIED, Status::MEDIA_WRITE_PROTECTED];
                assert!(refused.contains(&status), "{:?}: {status}", row.code);
            }
        }
    }
    assert_eq!(state(world), before);
    peer.close(mount, file).await;
}

#[test]
fn x2_no_code_changes_what_may_only_be_read() {
    in_world(async |world| {
        world.file("f", vec![7; 8192]);
        let (mut peer, data) = world.session("ann", &Offer::default()).await;
        let readonly = peer.mount(&data.logon, "readonly").await;
        let reads = AccessMask::FILE_GENERIC_READ;
        let looks = AccessMask::READ_ATTRIBUTES;
        for access in [reads, looks] {
            nothing_changes(world, &mut peer, &data, access).await;
            nothing_changes(world, &mut peer, &readonly, access).await;
        }
    });
}

#[test]
fn every_code_is_answered_whatever_it_is_given() {
    in_world(async |world| {
        world.file("f", vec![7; 8192]);
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::existing("f")).await;
        let directory = peer.open_file(&mount, &Want::directory("d")).await;
        for row in TABLE.iter().filter(|row| row.code != CtlCode::VALIDATE_NEGOTIATE_INFO) {
            for file in [file, directory, FileId::ALL_ONES] {
                for length in [0, 1, 7, 8, 15, 16, 23, 24, 31, 32, 48, 64, 511] {
                    for fill in [0, 1, 0x7F, 0xFF] {
                        let input = vec![fill; length];
                        ask(&mut peer, &mount, row.code, file, &input, 64).await;
                    }
                }
            }
        }
        peer.expect_alive().await;
    });
}
