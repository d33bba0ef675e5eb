//! P5, P6 and P14: lists of extended attributes, security descriptors, and loops whose
//! length a peer chooses.

use crate::client::files::{set_draft, set_info_draft};
use crate::client::protection::{bytes, list};
use crate::client::queries::{list_draft, query_draft, query_info_draft};
use crate::client::*;
use frevo_wire::command::query_directory::QueryDirectoryFlags;
use frevo_wire::command::query_info::{self, InfoType};
use frevo_wire::dtyp::{AccessMask, Ace, AceFlags, SecurityInformation, Sid};
use frevo_wire::fscc::FileInfoClass;

/// FILE_FULL_EA_INFORMATION, MS-FSCC 2.4.16: `count` attributes with values of one byte.
fn eas(count: usize) -> Vec<u8> {
    let mut all = Vec::new();
    for number in 0..count {
        let is_last = number + 1 == count;
        all.extend(if is_last { 0_u32 } else { 16 }.to_le_bytes());
        all.extend([0, 5, 1, 0]);
        all.extend(format!("e{number:04}\0v\0").bytes());
    }
    all
}

/// Every step of a chain of entries lies in the buffer, and the last one is 0.
fn is_whole_chain(buffer: &[u8]) -> bool {
    let mut rest = buffer;
    loop {
        let Some(step) = rest.first_chunk().map(|step| u32::from_le_bytes(*step) as usize) else {
            return false;
        };
        match step {
            0 => return true,
            step if step % 4 == 0 && step < rest.len() => rest = &rest[step..],
            _ => return false,
        }
    }
}

#[test]
fn p5_answers_with_attributes_stay_in_their_buffer() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("p5")).await;
        peer.on(&mount, set_draft(FileInfoClass::FULL_EA, file, &eas(40))).await.ok();
        for room in 0_u32..200 {
            // OutputBufferLength (at 68) takes all sizes. The index (at 84) is 1, so that each
            // query begins at the first entry.
            let draft = query_draft(FileInfoClass::FULL_EA, file);
            let draft = draft.patch(68, &room.to_le_bytes()).patch(84, &1_u32.to_le_bytes());
            let reply = peer.on(&mount, draft).await;
            if !matches!(reply.status(), Status::SUCCESS | Status::BUFFER_OVERFLOW) {
                assert!(room < 16, "{room}: {:?}", reply.status());
                continue;
            }
            let answer = query_info::Response::parse(&reply.message).unwrap();
            assert!(answer.output.len() <= room as usize, "{room}: {}", answer.output.len());
            assert!(answer.output.is_empty() || is_whole_chain(answer.output), "{room}");
        }
    });
}

#[test]
fn p5_lists_of_attributes_are_bounded() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("p5")).await;
        // A file may have 64 KiB of extended attributes, which this list exceeds, so it is refused.
        let draft = set_draft(FileInfoClass::FULL_EA, file, &eas(4_200));
        let reply = peer.on(&mount, draft.charge(2)).await;
        assert_ne!(reply.status(), Status::SUCCESS);
        peer.expect_alive_in(&mount).await;
    });
}

/// The byte ranges of a descriptor, MS-DTYP 2.4.6: offsets of owner, group, SACL and DACL at
/// 4, 8, 12 and 16; the DACL behind the head of 20 bytes.
#[test]
fn p6_descriptors_that_lie_are_refused() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let all = AccessMask::FILE_ALL;
        let file = peer.open_file(&mount, &Want::file("p6").access(all)).await;
        let good = bytes(&list(vec![Ace::allow(AceFlags::EMPTY, all, Sid::EVERYONE)]));
        let dacl = SecurityInformation::DACL.0;
        let set = |bytes: &[u8]| set_info_draft(file, InfoType::SECURITY, 0, dacl, bytes);
        peer.on(&mount, set(&good)).await.ok();
        let query = query_info_draft(file, InfoType::SECURITY, 0, dacl);
        let before = peer.on(&mount, query.clone()).await.ok().message.clone();
        let body = query_info::Response::parse(&before).unwrap().output.to_vec();
        let change = |at: usize, to: &[u8]| {
            let mut lie = good.clone();
            lie[at..at + to.len()].copy_from_slice(to);
            lie
        };
        let acl = 20;
        for lie in [
            change(0, &[2]),                     // Revision
            change(16, &u32::MAX.to_le_bytes()), // OffsetDacl
            change(16, &1_u32.to_le_bytes()),    // into the head
            change(16, &(good.len() as u32).to_le_bytes()),
            change(acl, &[99]),                         // AclRevision
            change(acl + 2, &0xFFFF_u16.to_le_bytes()), // AclSize
            change(acl + 2, &4_u16.to_le_bytes()),
            change(acl + 4, &0xFFFF_u16.to_le_bytes()), // AceCount
            change(acl + 10, &0xFFFF_u16.to_le_bytes()), // AceSize
            change(acl + 10, &0_u16.to_le_bytes()),
            change(acl + 17, &[16]), // SubAuthorityCount of the ACE's SID
            change(acl + 17, &[255]),
            good[..good.len() - 1].to_vec(),
            good[..19].to_vec(),
            Vec::new(),
        ] {
            let status = peer.on(&mount, set(&lie)).await.status();
            assert!(
                matches!(
                    status,
                    Status::INVALID_SECURITY_DESCR
                        | Status::INVALID_PARAMETER
                        | Status::INVALID_ACL
                        | Status::INVALID_SID
                        | Status::INFO_LENGTH_MISMATCH
                        | Status::BUFFER_TOO_SMALL
                ),
                "{status:?} for {lie:02x?}"
            );
        }
        let after = peer.on(&mount, query).await.ok().message.clone();
        assert_eq!(query_info::Response::parse(&after).unwrap().output, body);
    });
}

/// A list of more than 64 KiB has no length that its 16 bits could say.
#[test]
fn p6_long_lists_are_whole_or_refused() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let all = AccessMask::FILE_ALL;
        let file = peer.open_file(&mount, &Want::file("p6").access(all)).await;
        let dacl = SecurityInformation::DACL.0;
        for count in [100_usize, 1_000, 1_820, 3_000] {
            let aces =
                (0..count).map(|_| Ace::allow(AceFlags::EMPTY, all, Sid::EVERYONE)).collect();
            let mut descriptor = Vec::new();
            // An entry (ACE) has 20 bytes. Lists that do not fit into a descriptor of 64 KiB are
            // left out.
            if list(aces).encode(&mut descriptor).is_err() || descriptor.len() > 0xFFFF {
                continue;
            }
            let set = set_info_draft(file, InfoType::SECURITY, 0, dacl, &descriptor);
            let kept = peer.on(&mount, set).await.status() == Status::SUCCESS;
            let query = query_info_draft(file, InfoType::SECURITY, 0, dacl);
            let small = query.clone().patch(68, &64_u32.to_le_bytes());
            if kept {
                peer.on(&mount, small).await.expect(Status::BUFFER_TOO_SMALL);
                let reply = peer.on(&mount, query).await;
                let answer = query_info::Response::parse(&reply.ok().message).unwrap();
                assert_eq!(answer.output.len(), descriptor.len(), "{count}");
            }
        }
        peer.expect_alive_in(&mount).await;
    });
}

/// The pattern of 120 stars nearly matches each name in many ways; builds with assertions
/// hold every poll to its limit (`watchdog`).
#[test]
fn p14_a_listing_that_matches_nothing_ends() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        std::fs::create_dir(world.path("p14")).unwrap();
        for number in 0..600 {
            world.file(&format!("p14/{number:03}{}", "a".repeat(240)), "");
        }
        let folder = peer.open_file(&mount, &Want::existing("p14")).await;
        let flags = QueryDirectoryFlags::REOPEN;
        for pattern in [format!("{}b", "*a".repeat(120)), format!("{}b", "<a".repeat(120))] {
            let draft = list_draft(folder, FileInfoClass::NAMES, flags, &pattern);
            peer.on(&mount, draft).await.expect(Status::NO_SUCH_FILE);
        }
        peer.expect_alive_in(&mount).await;
    });
}
