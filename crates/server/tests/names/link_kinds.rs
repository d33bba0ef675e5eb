//! Symbolic links that stand for a file or for a directory.

use frevo_wire::Status;
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::create_context::{CreateContext, CreateContexts};
use frevo_wire::dtyp::FileAttributes;
use frevo_wire::fscc::FileInfoClass;

use crate::calls::*;
use crate::client::*;
use crate::reparse::{GET, SET, itself, link, told};

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

fn posix(want: Want) -> Want {
    let contexts = CreateContexts::from_requests(&[CreateContext::Posix { mode: 0o777 }]);
    Want { contexts: contexts.as_bytes().to_vec(), ..want }
}

/// A client with POSIX extensions has `/` in the targets of links, as in all of its names; others
/// have `\`. Each is told a target in its own way, whoever made the link.
#[test]
fn targets_have_the_separator_of_the_client() {
    in_world(async |world| {
        let offer = Offer { posix: true, ..Offer::default() };
        let (mut peer, mount) = world.session("ann", &offer).await;
        let made = [
            ("host", "d/e", "d\\e"),
            ("by-posix", "d/e", "d\\e"),
            ("by-windows", "d/e", "d\\e"),
            ("by-older-posix", "d/e", "d\\e"),
            // These targets lead out of the link's folder, so the server stores them as files with
            // a reparse point, not as symbolic links of the host.
            ("kept-by-posix", "../e", "..\\e"),
            ("kept-by-windows", "../e", "..\\e"),
        ];
        std::os::unix::fs::symlink("d/e", world.path("host")).unwrap();
        for (name, slashes, backslashes) in made {
            let (want, target) = match name {
                "by-older-posix" => (posix(Want::file(name)), backslashes),
                name if name.ends_with("posix") => (posix(Want::file(name)), slashes),
                _ => (Want::file(name), backslashes),
            };
            if name != "host" {
                let file = peer.open_file(&mount, &want).await;
                ask(&mut peer, &mount, SET, file, &link(target, true), 0).await.ok();
                peer.close(&mount, file).await;
            }
            let on_host = std::fs::read_link(world.path(name));
            let is_kept = name.starts_with("kept");
            assert_eq!(on_host.ok().as_deref(), (!is_kept).then_some("d/e".as_ref()), "{name}");

            let plain: fn(Want) -> Want = |want| want;
            for (kind, target) in [(plain, backslashes), (posix, slashes)] {
                let file = peer.open_file(&mount, &kind(itself(name))).await;
                let reply = ask(&mut peer, &mount, GET, file, &[], 4096).await;
                assert_eq!(output(reply.ok()), link(target, true), "{name}");
                peer.close(&mount, file).await;
                let stopped = peer.create(&mount, &kind(Want::existing(name))).await;
                stopped.expect(Status::STOPPED_ON_SYMLINK);
                assert_eq!(told(&stopped), (target.to_owned(), 0), "{name}");
            }
        }
    });
}

/// Windows has the name for people first in a buffer. A stored one comes back byte for byte.
#[test]
fn a_stored_link_keeps_its_layout() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let name: Vec<u8> = "..\\e".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let bytes = u16::try_from(name.len()).unwrap();
        let mut set = 0xA000_000C_u32.to_le_bytes().to_vec();
        for field in [12 + 2 * bytes, 0, bytes, bytes, 0, bytes, 1, 0] {
            set.extend_from_slice(&field.to_le_bytes());
        }
        set.extend_from_slice(&[&name[..], &name].concat());
        let file = peer.open_file(&mount, &Want::file("l")).await;
        ask(&mut peer, &mount, SET, file, &set, 0).await.ok();
        let reply = ask(&mut peer, &mount, GET, file, &[], 4096).await;
        assert_eq!(output(reply.ok()), set);
    });
}

/// MS-FSA 2.1.5.1.2: a reparse point ends a CREATE before its disposition is looked at.
#[test]
fn a_creation_over_a_link_is_stopped_unless_it_opens_the_link() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        world.file("target", "content");
        std::fs::create_dir(world.path("d")).unwrap();
        for (link, target) in [("l", "target"), ("dl", "d/"), ("gone", "missing")] {
            std::os::unix::fs::symlink(target, world.path(link)).unwrap();
        }
        // Links that the host cannot have, and a mount point.
        for (name, kind, set) in [
            ("out", CreateOptions::NON_DIRECTORY_FILE, link("..\\..\\up", true)),
            ("outer", CreateOptions::DIRECTORY_FILE, link("\\??\\C:\\x", false)),
        ] {
            let want = Want::file(name).options(kind | CreateOptions::OPEN_REPARSE_POINT);
            let file = peer.open_file(&mount, &want).await;
            ask(&mut peer, &mount, SET, file, &set, 0).await.ok();
            peer.close(&mount, file).await;
        }
        let kinds = [
            CreateOptions::EMPTY,
            CreateOptions::NON_DIRECTORY_FILE,
            CreateOptions::DIRECTORY_FILE,
            CreateOptions::DELETE_ON_CLOSE,
        ];
        for name in ["l", "dl", "gone", "out", "outer"] {
            for disposition in [
                CreateDisposition::CREATE,
                CreateDisposition::OPEN,
                CreateDisposition::OPEN_IF,
                CreateDisposition::OVERWRITE,
                CreateDisposition::OVERWRITE_IF,
                CreateDisposition::SUPERSEDE,
            ] {
                for kind in kinds {
                    let overwrites = matches!(
                        disposition,
                        CreateDisposition::OVERWRITE
                            | CreateDisposition::OVERWRITE_IF
                            | CreateDisposition::SUPERSEDE
                    );
                    if kind == CreateOptions::DIRECTORY_FILE && overwrites {
                        continue;
                    }
                    let mut want = Want::file(name).disposition(disposition).options(kind);
                    if kind == CreateOptions::DELETE_ON_CLOSE {
                        want.attributes = FileAttributes::READONLY;
                    }
                    let reply = peer.create(&mount, &want).await;
                    let status = reply.status();
                    let case = format!("{name} {disposition:?} {kind:?}");
                    assert_eq!(status, Status::STOPPED_ON_SYMLINK, "{case}");
                    assert_eq!(told(&reply).1, 0, "{case}");
                }
            }
            let taken = itself(name).disposition(CreateDisposition::CREATE);
            peer.create(&mount, &taken).await.expect(Status::OBJECT_NAME_COLLISION);
            assert!(world.path(name).symlink_metadata().is_ok());
        }
        assert_eq!(world.content("target"), b"content");
        // MS-SMB2 2.2.2.2.1.1: the separator at the end is part of the name behind the link.
        peer.create(&mount, &Want::file("l\\")).await.expect(Status::STOPPED_ON_SYMLINK);
    });
}
