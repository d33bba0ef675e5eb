//! Compounds: MS-SMB2 3.3.5.2.7.

use crate::client::files::{
    PREVIOUS, close_draft, data, file_id, read_draft, set_draft, write_draft,
};
use crate::client::*;
use frevo_proto::Dialect;
use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::{close, query_info};
use frevo_wire::compound::Compound;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::error_response::{ErrorResponse, SymlinkError};
use frevo_wire::fscc::FileInfoClass;

fn related(mount: &Mount, draft: Draft) -> Draft {
    mount.put(draft).flags(HeaderFlags::RELATED_OPERATIONS)
}

/// FileStandardInformation (MS-FSCC 2.4.47) of the Open before.
fn standard_information(file: FileId) -> Draft {
    Draft::new(Command::QUERY_INFO).with(|w| {
        query_info::Request {
            info_type: query_info::InfoType::FILE,
            file_info_class: 5,
            output_buffer_length: 24,
            additional_information: 0,
            flags: query_info::QueryInfoFlags::EMPTY,
            file_id: file,
            input: &[],
        }
        .encode(w);
    })
}

#[test]
fn create_query_close() {
    in_world(async |world| {
        world.file("f", [3; 1234]);
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for mount in [mount.clone(), mount.sealed()] {
            let drafts = vec![
                mount.put(Want::existing("f").draft()),
                related(&mount, standard_information(PREVIOUS)),
                related(&mount, close_draft(PREVIOUS)),
            ];
            let replies = peer.ask_all(drafts, mount.via()).await;
            replies.iter().for_each(|reply| _ = reply.ok());
            let info = query_info::Response::parse(&replies[1].message).unwrap().output;
            assert_eq!(info[8..16], 1234_u64.to_le_bytes(), "EndOfFile");
            let file = file_id(&replies[0]);
            peer.on(&mount, read_draft(file, 0, 1)).await.expect(Status::FILE_CLOSED);
        }
    });
}

/// The host is asked once for requests that change nothing, and anew after each change.
#[test]
fn a_compound_shows_what_it_has_changed() {
    in_world(async |world| {
        world.file("f", [3; 1234]);
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let query = || related(&mount, standard_information(PREVIOUS));
        let resize =
            |size: u64| set_draft(FileInfoClass::END_OF_FILE, PREVIOUS, &size.to_le_bytes());
        // SMB2_CLOSE_FLAG_POSTQUERY_ATTRIB (1) asks for the file's attributes in the answer to
        // CLOSE.
        let close = close_draft(PREVIOUS).patch(66, &[1, 0]);
        let drafts = vec![
            mount.put(Want::existing("f").draft()),
            query(),
            related(&mount, write_draft(PREVIOUS, 1234, b"more")),
            query(),
            query(),
            related(&mount, resize(7)),
            query(),
            related(&mount, resize(9)),
            related(&mount, close),
        ];
        let replies = peer.ask_all(drafts, mount.via()).await;
        replies.iter().for_each(|reply| _ = reply.ok());
        let size = |at: usize| {
            let info = query_info::Response::parse(&replies[at].message).unwrap().output;
            u64::from_le_bytes(info[8..16].try_into().unwrap())
        };
        assert_eq!([1, 3, 4, 6].map(size), [1234, 1238, 1238, 7]);
        let closed = close::Response::parse(&replies[8].message).unwrap();
        assert_eq!(closed.end_of_file, 9);
    });
}

/// Each Open of a compound shows its own file.
#[test]
fn a_compound_shows_each_of_its_files() {
    in_world(async |world| {
        world.file("f", [3; 1234]);
        world.file("g", [3; 56]);
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let f = peer.open_file(&mount, &Want::existing("f")).await;
        let g = peer.open_file(&mount, &Want::existing("g")).await;
        let drafts = [f, g, f].map(|file| mount.put(standard_information(file))).to_vec();
        let replies = peer.ask_all(drafts, mount.via()).await;
        let sizes = [0, 1, 2].map(|at: usize| {
            let info = query_info::Response::parse(&replies[at].message).unwrap().output;
            u64::from_le_bytes(info[8..16].try_into().unwrap())
        });
        assert_eq!(sizes, [1234, 56, 1234]);
    });
}

#[test]
fn create_write_read_close() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let drafts = vec![
            mount.put(Want::file("f").draft()),
            related(&mount, write_draft(PREVIOUS, 3, b"content")),
            related(&mount, read_draft(PREVIOUS, 0, 100)),
            related(&mount, close_draft(PREVIOUS)),
        ];
        let replies = peer.ask_all(drafts, mount.via()).await;
        replies.iter().for_each(|reply| _ = reply.ok());
        assert_eq!(data(&replies[2]), b"\0\0\0content");
    });
}

/// One frame, each part aligned, related ones marked but the first.
#[test]
fn replies_are_compounded_as_they_were_asked() {
    in_world(async |world| {
        world.file("f", b"odd");
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let drafts = vec![
            mount.put(Want::existing("f").draft()),
            related(&mount, read_draft(PREVIOUS, 0, 3)),
            related(&mount, read_draft(PREVIOUS, 1, 1)),
            related(&mount, close_draft(PREVIOUS)),
        ];
        let ids = peer.send(drafts, mount.via()).await;
        let frame = peer.frame().await.unwrap();
        let offsets: Vec<_> = Compound::new(&frame).map(|part| part.unwrap().0).collect();
        assert_eq!(offsets.len(), 4);
        assert!(offsets.iter().all(|at| at % 8 == 0), "{offsets:?}");
        let replies = peer.open(frame);
        for (at, reply) in replies.iter().enumerate() {
            let is_related = reply.header.flags.contains(HeaderFlags::RELATED_OPERATIONS);
            assert_eq!(is_related, at > 0);
            assert_eq!(reply.header.message_id, ids[at]);
            assert_eq!(reply.header.session_id, mount.logon.id);
            assert_eq!(reply.header.tree_id(), Some(mount.tree));
            assert!(reply.is_signed());
        }
        assert_eq!(replies[3].header.next_command, 0);
    });
}

/// A related message that needs no file goes on although the one before it failed; one that
/// needs the file fails alike.
#[test]
fn a_failure_in_the_middle() {
    in_world(async |world| {
        world.file("f", b"content");
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let drafts = vec![
            mount.put(Want::existing("f").draft()),
            related(&mount, read_draft(PREVIOUS, 100, 5)),
            related(&mount, close_draft(PREVIOUS)),
        ];
        let replies = peer.ask_all(drafts, mount.via()).await;
        replies[0].ok();
        replies[1].expect(Status::END_OF_FILE);
        // As on Windows, the CLOSE after a failed element still finds the handle.
        replies[2].ok();
        // A compound with a second CREATE: later elements must use its FileId, or fail with it.
        let drafts = vec![
            mount.put(Want::existing("f").draft()),
            related(&mount, Want::existing("absent").draft()),
            related(&mount, read_draft(PREVIOUS, 0, 5)),
            related(&mount, Want::existing("f").draft()),
            related(&mount, read_draft(PREVIOUS, 0, 5)),
        ];
        let replies = peer.ask_all(drafts, mount.via()).await;
        let statuses: Vec<_> = replies.iter().map(Reply::status).collect();
        let absent = Status::OBJECT_NAME_NOT_FOUND;
        assert_eq!(statuses[..3], [Status::SUCCESS, absent, absent]);
    });
}

#[test]
fn unrelated_requests_are_answered_each_for_itself() {
    in_world(async |world| {
        world.file("f", b"content");
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::existing("f")).await;
        let drafts = vec![
            mount.put(Want::existing("absent").draft()),
            mount.put(read_draft(file, 0, 4)),
            mount.put(Draft::echo()),
            mount.put(read_draft(PREVIOUS, 0, 4)),
            mount.put(Draft::new(Command::CLOSE).body(&[1, 2])),
            mount.put(read_draft(file, 4, 10)),
        ];
        let replies = peer.ask_all(drafts, mount.via()).await;
        let statuses: Vec<_> = replies.iter().map(Reply::status).collect();
        let ok = Status::SUCCESS;
        assert_eq!(
            statuses,
            [
                Status::OBJECT_NAME_NOT_FOUND,
                ok,
                ok,
                Status::FILE_CLOSED,
                // The fifth request (CLOSE) is too short for a FileId, so it is malformed.
                Status::INVALID_PARAMETER,
                ok
            ]
        );
        assert_eq!(data(&replies[5]), b"ent");
        let flags = HeaderFlags::RELATED_OPERATIONS;
        assert!(replies.iter().all(|reply| !reply.header.flags.contains(flags)));
    });
}

/// SESSION of a related TREE_CONNECT and the tree that comes of it.
#[test]
fn a_chain_goes_on_in_the_tree_it_made() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let connect = files::tree_connect_draft("\\\\frevo\\DATA");
        let drafts = vec![
            connect.session(mount.logon.id),
            Want::file("f").draft().related(),
            write_draft(PREVIOUS, 0, b"x").related(),
            close_draft(PREVIOUS).related(),
            Draft::empty(Command::TREE_DISCONNECT).related(),
        ];
        let replies = peer.ask_all(drafts, mount.via()).await;
        replies.iter().for_each(|reply| _ = reply.ok());
        let tree = replies[0].header.tree_id().unwrap();
        assert!(replies.iter().all(|reply| reply.header.tree_id() == Some(tree)));
        assert_eq!(world.content("f"), b"x");
    });
}

/// MS-SMB2 2.2.2.2.1: where the first link on the way leads, and what of the
/// name is behind it; what the chain was to do with the Open is not done.
#[test]
fn a_link_in_the_way_is_told_of() {
    in_world(async |world| {
        std::fs::create_dir_all(world.path("a/b")).unwrap();
        std::os::unix::fs::symlink("../other", world.path("a/link")).unwrap();
        std::os::unix::fs::symlink("/no/such", world.path("a/b/far")).unwrap();
        for dialect in [Dialect::SMB_2_1, Dialect::SMB_3_1_1] {
            let (mut peer, mount) = world.session("ann", &Offer::only(dialect)).await;
            for (name, target, unparsed, relative) in [
                ("a\\link", "..\\other", 0, true),
                ("A\\LINK", "..\\other", 0, true),
                ("a\\link\\füß\\x", "..\\other", 12, true),
                ("a\\b\\far", "\\no\\such", 0, false),
            ] {
                let drafts = vec![
                    mount.put(Want::existing(name).draft()),
                    related(&mount, standard_information(PREVIOUS)),
                    related(&mount, close_draft(PREVIOUS)),
                ];
                let replies = peer.ask_all(drafts, mount.via()).await;
                for reply in &replies {
                    assert_eq!(reply.status(), Status::STOPPED_ON_SYMLINK, "{name}");
                }
                let data = match ErrorResponse::parse(&replies[0].message).unwrap() {
                    ErrorResponse::Data(data) => data.to_vec(),
                    ErrorResponse::Contexts(contexts) => contexts[0].data.to_vec(),
                };
                let told = SymlinkError::parse(&data).unwrap();
                assert_eq!(told.substitute_name.to_string().unwrap(), target, "{name}");
                assert_eq!(told.print_name, told.substitute_name);
                assert_eq!((told.unparsed_path_length, told.relative), (unparsed, relative));
            }
            // The link itself (OPEN_REPARSE_POINT) can be opened and deleted.
            let itself = CreateOptions::OPEN_REPARSE_POINT | CreateOptions::DELETE_ON_CLOSE;
            let want = Want::existing("a\\link").options(itself).access(AccessMask::DELETE);
            let link = peer.open_file(&mount, &want).await;
            peer.close(&mount, link).await;
            assert!(!world.path("a/link").is_symlink());
            std::os::unix::fs::symlink("../other", world.path("a/link")).unwrap();
        }
    });
}
