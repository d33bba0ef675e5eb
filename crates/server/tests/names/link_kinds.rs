//! Symbolic links that stand for a file or for a directory.

use frevo_wire::command::create::CreateOptions;
use frevo_wire::dtyp::FileAttributes;
use frevo_wire::fscc::FileInfoClass;

use crate::calls::*;
use crate::client::*;
use crate::reparse::{SET, itself, link};

/// FileBasicInformation that sets no time, as clients send it before they delete a file.
fn kind_alone(attributes: FileAttributes) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    bytes[32..36].copy_from_slice(&attributes.0.to_le_bytes());
    bytes
}

/// As smbprotocol does before it deletes a link: MS-FSA 2.1.5.15.2 wants the attribute of a directory
/// on directories alone, and a directory's link is one.
#[test]
fn attributes_of_a_link_go_with_its_kind() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let kinds = [
            ("l", CreateOptions::NON_DIRECTORY_FILE, Status::INVALID_PARAMETER, Status::SUCCESS),
            ("dl", CreateOptions::DIRECTORY_FILE, Status::SUCCESS, Status::INVALID_PARAMETER),
        ];
        for (name, kind, directory, temporary) in kinds {
            let want = Want::file(name).options(kind | CreateOptions::OPEN_REPARSE_POINT);
            let file = peer.open_file(&mount, &want).await;
            ask(&mut peer, &mount, SET, file, &link("missing", true), 0).await.ok();
            peer.close(&mount, file).await;
            let want = itself(name).options(kind | CreateOptions::OPEN_REPARSE_POINT);
            let file = peer.open_file(&mount, &want).await;
            for (attributes, status) in [
                (FileAttributes::DIRECTORY, directory),
                (FileAttributes::TEMPORARY, temporary),
                (FileAttributes::NORMAL, Status::SUCCESS),
            ] {
                let set = set_draft(FileInfoClass::BASIC, file, &kind_alone(attributes));
                peer.on(&mount, set).await.expect(status);
            }
            peer.on(&mount, set_draft(FileInfoClass::DISPOSITION, file, &[1])).await.ok();
            peer.close(&mount, file).await;
            assert!(world.path(name).symlink_metadata().is_err(), "{name}");
        }
    });
}
