//! `max_file_size`: MS-FSA 2.1.1.1 Volume.MaxFileSize.

use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::FileInfoClass;

use super::calls::*;
use crate::client::files::write_draft;
use crate::client::*;

const MOST: u64 = 1 << 20;

#[test]
fn no_file_becomes_larger_than_the_share_lets_it() {
    in_world(async |world| {
        let (mut peer, _) = world.session("ann", &Offer::default()).await;
        let logon = peer.log_on("ann").await;
        let mount = peer.mount(&logon, "late").await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        peer.write(&mount, file, MOST - 1, b"x").await;
        peer.write(&mount, file, MOST + 1, b"").await;
        let invalid = Status::INVALID_PARAMETER;
        for (at, data) in [(MOST, &b"x"[..]), (MOST - 1, b"xx"), (u64::MAX >> 1, b"x")] {
            peer.on(&mount, write_draft(file, at, data)).await.expect(invalid);
        }
        for class in [FileInfoClass::END_OF_FILE, FileInfoClass::ALLOCATION] {
            let set = |size: u64| set_draft(class, file, &size.to_le_bytes());
            peer.on(&mount, set(MOST)).await.ok();
            peer.on(&mount, set(MOST + 1)).await.expect(invalid);
        }
        // A server-side copy of two bytes to the last possible byte would exceed the largest size,
        // so it is refused as well.
        let key = ask(&mut peer, &mount, CtlCode::SRV_REQUEST_RESUME_KEY, file, &[], 32).await;
        key.ok();
        let mut copy = output(&key)[..24].to_vec();
        copy.extend_from_slice(&1u32.to_le_bytes());
        copy.extend_from_slice(&[0; 4]);
        copy.extend_from_slice(&0u64.to_le_bytes());
        copy.extend_from_slice(&(MOST - 1).to_le_bytes());
        copy.extend_from_slice(&2u32.to_le_bytes());
        copy.extend_from_slice(&[0; 4]);
        let code = CtlCode::SRV_COPYCHUNK_WRITE;
        ask(&mut peer, &mount, code, file, &copy, 12).await.expect(invalid);
        assert_eq!(world.content("f").len() as u64, MOST);
    });
}

/// MS-FSA 2.1.5.15.14 and 2.1.5.15.15, for those who hold the privileges.
#[test]
fn administrators_say_that_what_is_there_is_valid() {
    in_world(async |world| {
        promote_ann(world);
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        peer.write(&mount, file, 0, &[1; 100]).await;
        let set = |file, length: i64| {
            set_draft(FileInfoClass::VALID_DATA_LENGTH, file, &length.to_le_bytes())
        };
        peer.on(&mount, set(file, 100)).await.ok();
        let invalid = Status::INVALID_PARAMETER;
        for length in [99, 101, 0, -1, i64::MIN, i64::MAX] {
            peer.on(&mount, set(file, length)).await.expect(invalid);
        }
        let short = set_draft(FileInfoClass::VALID_DATA_LENGTH, file, &[100, 0, 0, 0, 0, 0, 0]);
        peer.on(&mount, short).await.expect(Status::INFO_LENGTH_MISMATCH);
        let mut name = vec![4, 0, 0, 0];
        name.extend_from_slice(&files::utf16("AB"));
        let name = set_draft(FileInfoClass::SHORT_NAME, file, &name);
        peer.on(&mount, name).await.expect(Status::SHORT_NAMES_NOT_ENABLED_ON_VOLUME);
        let look = Want::existing("f").access(AccessMask::READ_DATA);
        let reader = peer.open_file(&mount, &look).await;
        peer.on(&mount, set(reader, 100)).await.expect(Status::ACCESS_DENIED);
        ask(&mut peer, &mount, CtlCode::SET_SPARSE, file, &[], 0).await.ok();
        peer.on(&mount, set(file, 100)).await.expect(invalid);
        let directory = peer.open_file(&mount, &Want::directory("d")).await;
        peer.on(&mount, set(directory, 0)).await.expect(invalid);
        assert_eq!(world.content("f"), [1; 100]);
        let (mut bob, theirs) = world.session("bob", &Offer::default()).await;
        let file = bob.open_file(&theirs, &Want::existing("f")).await;
        bob.on(&theirs, set(file, 100)).await.expect(Status::PRIVILEGE_NOT_HELD);
    });
}
