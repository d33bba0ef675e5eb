//! P7 to P9: compounds.

use crate::client::draft::pack;
use crate::client::files::{
    PREVIOUS, close_draft, data, file_id, read_draft, tree_connect_draft, write_draft,
};
use crate::client::*;
use frevo_server::internal::limits::COMPOUND_ELEMENTS;
use frevo_wire::Utf16;
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::command::query_directory::{self, QueryDirectoryFlags};
use frevo_wire::command::query_info;

fn ioctl_draft(code: CtlCode, file: FileId) -> Draft {
    Draft::new(Command::IOCTL).with(|w| ioctl::Request::fsctl(code, file, &[], 1024).encode(w))
}

/// NextCommand of the first of two ECHOs, in each stage of a connection.
#[test]
fn p7_next_command_that_leads_nowhere_disconnects() {
    in_world(async |world| {
        let whole = 68_u32 + 4 + 68;
        let nexts = [1, 8, 56, 63, 65, 68, 70, whole, whole + 4, 0x1000, 0x7FFF_FFF8, u32::MAX];
        for next in nexts {
            for stage in 0..4 {
                let (mut peer, mount) = world.session("ann", &Offer::default()).await;
                let mut drafts = vec![mount.put(Draft::echo()), mount.put(Draft::echo())];
                if stage < 2 {
                    peer = world.connect();
                    drafts = vec![Draft::echo(), Draft::echo()];
                }
                if stage == 1 {
                    peer.negotiate(&Offer::default()).await;
                }
                drafts.iter_mut().for_each(|draft| peer.stamp(draft));
                let mut frame = pack(&drafts, Via::Plain);
                frame[20..24].copy_from_slice(&next.to_le_bytes());
                if stage == 3 {
                    frame = draft::seal(&frame, &mount.logon, mount.logon.id);
                }
                peer.send_frame(&frame).await;
                peer.expect_disconnect().await;
            }
        }
    });
}

/// The last of a chain says that there is more.
#[test]
fn p7_a_chain_without_end_disconnects() {
    in_world(async |world| {
        let (mut peer, _) = world.session("ann", &Offer::default()).await;
        let mut drafts = [Draft::echo(), Draft::echo()];
        drafts.iter_mut().for_each(|draft| peer.stamp(draft));
        let mut frame = pack(&drafts, Via::Plain);
        frame.resize(144, 0);
        frame[72 + 20..72 + 24].copy_from_slice(&72_u32.to_le_bytes());
        peer.send_frame(&frame).await;
        peer.expect_disconnect().await;
    });
}

#[test]
fn p7_elements_are_limited() {
    in_world(async |world| {
        let (mut peer, _) = world.session("ann", &Offer::default()).await;
        for count in [COMPOUND_ELEMENTS - 1, COMPOUND_ELEMENTS] {
            let replies = peer.ask_all(vec![Draft::echo(); count], Via::Plain).await;
            replies.iter().for_each(|reply| _ = reply.ok());
        }
        peer.send(vec![Draft::echo(); COMPOUND_ELEMENTS + 1], Via::Plain).await;
        peer.expect_disconnect().await;
    });
}

#[test]
fn p7_first_element_related_fails_all() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let create = mount.put(Want::file("p7").draft()).flags(HeaderFlags::RELATED_OPERATIONS);
        let close = mount.put(close_draft(PREVIOUS)).flags(HeaderFlags::RELATED_OPERATIONS);
        for drafts in [vec![create.clone()], vec![create, close.clone(), close]] {
            for reply in peer.ask_all(drafts, mount.via()).await {
                reply.expect(Status::INVALID_PARAMETER);
            }
        }
        assert!(!world.path("p7").exists());
    });
}

/// The paper (MS-SMB2 3.3.5.2.7) fails every element of a mixed chain. Windows
/// takes an element that is not related as the start of a new chain, and so
/// does this server (`MixedStyles::NewChain`): clients rely on it.
#[test]
fn p7_mixed_styles_start_new_chains() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let replies = peer
            .ask_all(
                vec![
                    mount.put(Want::file("first").draft()),
                    mount.put(close_draft(PREVIOUS)).related().session(mount.logon.id),
                    // The request is not related, so a FileId of all ones names no Open.
                    mount.put(close_draft(PREVIOUS)),
                    mount.put(Want::file("second").draft()),
                    mount.put(close_draft(PREVIOUS)).related().session(mount.logon.id),
                ],
                mount.via(),
            )
            .await;
        let statuses: Vec<_> = replies.iter().map(Reply::status).collect();
        let ok = Status::SUCCESS;
        assert_eq!(statuses, [ok, ok, Status::FILE_CLOSED, ok, ok]);
    });
}

#[test]
fn p7_nothing_to_go_on_from_is_invalid() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let related = |draft: Draft| mount.put(draft).flags(HeaderFlags::RELATED_OPERATIONS);
        // ECHO has neither a session nor a tree connect, so the related elements have nothing to
        // inherit.
        let drafts = vec![
            mount.put(Draft::echo()),
            related(Want::file("p7").draft()),
            related(close_draft(PREVIOUS)),
        ];
        let replies = peer.ask_all(drafts, mount.via()).await;
        replies[0].ok();
        replies[1].expect(Status::INVALID_PARAMETER);
        replies[2].expect(Status::INVALID_PARAMETER);
        assert!(!world.path("p7").exists());
        // After a TREE_CONNECT, the next elements of the compound use its session and its tree
        // connect. But TREE_CONNECT opens no file that they could use.
        let drafts = vec![
            tree_connect_draft("\\\\frevo\\data").session(mount.logon.id),
            related(close_draft(PREVIOUS)),
            related(read_draft(PREVIOUS, 0, 1)),
        ];
        let replies = peer.ask_all(drafts, mount.via()).await;
        replies[0].ok();
        replies[1].expect(Status::INVALID_HANDLE);
        replies[2].expect(Status::INVALID_HANDLE);
    });
}

/// The FileId that was said does not count where one is inherited.
#[test]
fn p7_a_failed_create_fails_what_needs_its_file() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let other = peer.open_file(&mount, &Want::file("other")).await;
        let related = |draft: Draft| mount.put(draft).flags(HeaderFlags::RELATED_OPERATIONS);
        let drafts = vec![
            mount.put(Want::existing("absent").draft()),
            related(write_draft(other, 0, b"wrong file")),
            related(ioctl_draft(CtlCode::SET_SPARSE, PREVIOUS)),
            related(ioctl_draft(CtlCode::SET_SPARSE, other)),
            related(close_draft(other)),
            // This IOCTL needs no Open, so it runs and has its own status, although CREATE failed.
            related(ioctl_draft(CtlCode::DFS_GET_REFERRALS, PREVIOUS)),
        ];
        let mut replies = peer.ask_all(drafts, mount.via()).await;
        replies.pop().unwrap().expect(Status::FS_DRIVER_REQUIRED);
        for reply in replies {
            reply.expect(Status::OBJECT_NAME_NOT_FOUND);
        }
        assert_eq!(world.content("other"), b"");
        peer.write(&mount, other, 0, b"still open").await;
    });
}

#[test]
fn p7_every_element_needs_its_session_and_tree() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let bobs = peer.log_on("bob").await;
        let bobs = peer.mount(&bobs, "bobs").await;
        let file = peer.open_file(&mount, &Want::file("p7")).await;
        let sign = |peer: &mut Peer, parts: Vec<(Draft, &Logon)>| {
            // Each element of the compound is signed with the key of its own session.
            let mut frame = Vec::new();
            let last = parts.len() - 1;
            for (at, (mut draft, logon)) in parts.into_iter().enumerate() {
                peer.stamp(&mut draft);
                draft.body.resize(draft.body.len().next_multiple_of(8), 0);
                if at != last {
                    draft.header.next_command = u32::try_from(64 + draft.body.len()).unwrap();
                }
                frame.extend(pack(&[draft], Via::Signed(logon)));
            }
            frame
        };
        // The second element is not related, so it must use its own session, not the first one's.
        let parts = vec![
            (mount.put(read_draft(file, 0, 0)), &*mount.logon),
            (bobs.put(read_draft(file, 0, 0)), &*bobs.logon),
            (mount.put(read_draft(file, 0, 0)).tree(bobs.tree + 77), &*mount.logon),
            (mount.put(read_draft(file, 0, 0)).session(0xABCD), &*mount.logon),
        ];
        let frame = sign(&mut peer, parts);
        peer.send_frame(&frame).await;
        let replies = peer.replies().await.unwrap();
        let statuses: Vec<_> = replies.iter().map(Reply::status).collect();
        assert_eq!(
            statuses,
            [
                Status::SUCCESS,
                Status::FILE_CLOSED,
                Status::NETWORK_NAME_DELETED,
                Status::USER_SESSION_DELETED
            ]
        );
    });
}

/// Windows signs related elements with their session's key and may leave the
/// ids all ones.
#[test]
fn p7_related_elements_may_name_no_session() {
    in_world(async |world| {
        for dialect in [Dialect::SMB_2_1, Dialect::SMB_3_0, Dialect::SMB_3_1_1] {
            let (mut peer, mount) = world.session("ann", &Offer::only(dialect)).await;
            let drafts = vec![
                mount.put(Want::file("p7").draft()),
                write_draft(PREVIOUS, 0, b"some bytes").related(),
                read_draft(PREVIOUS, 5, 100).related(),
                close_draft(PREVIOUS).related(),
            ];
            let replies = peer.ask_all(drafts, mount.via()).await;
            replies.iter().for_each(|reply| _ = reply.ok());
            assert_eq!(data(&replies[2]), b"bytes");
            assert!(replies.iter().all(Reply::is_signed));
        }
    });
}

#[test]
fn p7_session_setup_and_negotiate_only_alone() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let token = logon::initiator("ann", "x").initial_token(&peer.hint, 0).unwrap();
        let setup = Setup::of("ann").draft(&token, 0);
        let related = setup.clone().flags(HeaderFlags::RELATED_OPERATIONS);
        for drafts in [
            vec![setup.clone(), mount.put(Draft::echo())],
            vec![mount.put(Draft::echo()), setup.clone()],
            vec![mount.put(Want::file("p7").draft()), related],
        ] {
            let at = drafts.iter().position(|d| d.header.command == Command::SESSION_SETUP);
            let replies = peer.ask_all(drafts, mount.via()).await;
            replies[at.unwrap()].expect(Status::INVALID_PARAMETER);
        }
        let sessions = world.server.sessions().len();
        assert_eq!(sessions, 2, "ann's and the innocent one");

        let mut peer = world.connect();
        let negotiate = Offer::default().draft(peer.guid);
        peer.send(vec![negotiate, Draft::echo()], Via::Plain).await;
        peer.expect_disconnect().await;
        let mut peer = world.connect();
        let negotiate = Offer::default().draft(peer.guid);
        peer.send(vec![Draft::echo(), negotiate], Via::Plain).await;
        peer.expect_disconnect().await;
    });
}

#[test]
fn p8_nothing_works_after_tree_disconnect() {
    in_world(async |world| {
        for related in [false, true] {
            let (mut peer, mount) = world.session("ann", &Offer::default()).await;
            let file = peer.open_file(&mount, &Want::file("p8")).await;
            let next = |draft: Draft| {
                let draft = mount.put(draft);
                if related { draft.flags(HeaderFlags::RELATED_OPERATIONS) } else { draft }
            };
            let drafts = vec![
                mount.put(Draft::empty(Command::TREE_DISCONNECT)),
                next(Want::file("made").draft()),
                next(Draft::empty(Command::TREE_DISCONNECT)),
                mount.put(write_draft(file, 0, b"late")),
            ];
            let replies = peer.ask_all(drafts, mount.via()).await;
            replies[0].ok();
            for reply in &replies[1..] {
                reply.expect(Status::NETWORK_NAME_DELETED);
            }
            assert!(!world.path("made").exists());
            assert_eq!(world.content("p8"), b"");
            // The tree connect has ended. The session can connect again, but the FileId is closed.
            let again = peer.mount(&mount.logon, "data").await;
            peer.on(&again, read_draft(file, 0, 1)).await.expect(Status::FILE_CLOSED);
        }
    });
}

#[test]
fn p8_nothing_works_after_logoff() {
    in_world(async |world| {
        for related in [false, true] {
            for sealed in [false, true] {
                let (mut peer, mount) = world.session("ann", &Offer::default()).await;
                let mount = if sealed { mount.sealed() } else { mount };
                let file = peer.open_file(&mount, &Want::file("p8")).await;
                let next = |draft: Draft| {
                    let draft = mount.put(draft);
                    if related { draft.flags(HeaderFlags::RELATED_OPERATIONS) } else { draft }
                };
                let drafts = vec![
                    mount.put(Draft::empty(Command::LOGOFF)),
                    next(tree_connect_draft("\\\\frevo\\data")),
                    next(Want::file("made").draft()),
                    mount.put(write_draft(file, 0, b"late")),
                    mount.put(Draft::empty(Command::LOGOFF)),
                ];
                let replies = peer.ask_all(drafts, mount.via()).await;
                replies[0].ok();
                assert!(if sealed { replies[0].sealed } else { replies[0].is_signed() });
                for reply in &replies[1..] {
                    assert!(
                        // The session has ended. A related request may fail for this reason, or
                        // because its chain has failed.
                        matches!(
                            reply.status(),
                            Status::USER_SESSION_DELETED | Status::INVALID_PARAMETER
                        ),
                        "{reply:?}"
                    );
                }
                assert!(!world.path("made").exists());
                assert_eq!(world.content("p8"), b"");
                // The error ended only the session, so the connection can be used for another
                // logon.
                peer.expect_alive().await;
                peer.log_on("ann").await;
            }
        }
    });
}

/// Many large READs in one compound: together they would not even fit a frame.
#[test]
fn p9_a_compound_of_reads_stays_within_what_was_negotiated() {
    in_world(async |world| {
        world.file("p9", vec![0x39; 8 << 20]);
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        peer.asks = 1024;
        peer.expect_alive().await;
        let max = peer.terms().max_read_size;
        assert_eq!(max, 8 << 20);
        for (count, length) in [(2, max), (3, max), (4, max - 100), (2, max / 2 + 1), (7, 2 << 20)]
        {
            let file = peer.open_file(&mount, &Want::existing("p9")).await;
            let drafts = vec![mount.put(read_draft(file, 0, length)); count];
            let ids = peer.send(drafts, mount.via()).await;
            let mut answered = 0;
            while answered < ids.len() {
                let frame = peer.frame().await.expect("an answer, not a panic");
                assert!(frame.len() <= max as usize + 64 * 1024, "{} bytes", frame.len());
                for reply in peer.open(frame) {
                    answered += 1;
                    if reply.status() == Status::SUCCESS {
                        assert_eq!(data(&reply).len(), length as usize, "a short read is the end");
                        assert!(data(&reply).iter().all(|b| *b == 0x39));
                    } else {
                        reply.expect(Status::INVALID_PARAMETER);
                    }
                }
            }
            peer.close(&mount, file).await;
        }
    });
}

/// The compounds of real clients must fit: CREATE, a READ of the maximum, CLOSE.
#[test]
fn p9_create_read_close_of_the_maximum_fits() {
    in_world(async |world| {
        world.file("p9", vec![0x39; 8 << 20]);
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        peer.asks = 1024;
        peer.expect_alive().await;
        for mount in [mount.clone(), mount.sealed()] {
            let max = peer.terms().max_read_size;
            let drafts = vec![
                mount.put(Want::existing("p9").draft()),
                mount.put(read_draft(PREVIOUS, 0, max)).flags(HeaderFlags::RELATED_OPERATIONS),
                mount.put(close_draft(PREVIOUS)).flags(HeaderFlags::RELATED_OPERATIONS),
            ];
            let replies = peer.ask_all(drafts, mount.via()).await;
            replies.iter().for_each(|reply| _ = reply.ok());
            assert_eq!(data(&replies[1]).len(), max as usize);
            let _ = file_id(&replies[0]);
        }
    });
}

/// CVE-2026-31478: after a READ that takes nearly all there is, what is asked
/// for next gets what is left, or is told that it is too little.
#[test]
fn p9_queries_after_a_large_read_get_what_is_left() {
    in_world(async |world| {
        world.file("p9", vec![0x39; 9 << 20]);
        std::fs::create_dir(world.path("many")).unwrap();
        for number in 0..2000 {
            world.file(&format!("many/{number:0>60}"), b"");
        }
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        peer.asks = 1024;
        peer.expect_alive().await;
        let max = peer.terms().max_read_size;
        let file = peer.open_file(&mount, &Want::existing("p9")).await;
        let directory = peer.open_file(&mount, &Want::directory("many")).await;
        let listing = |file: FileId| {
            Draft::new(Command::QUERY_DIRECTORY).charge(16).with(|w| {
                query_directory::Request {
                    file_information_class: 37,
                    flags: QueryDirectoryFlags::RESTART_SCANS,
                    file_index: 0,
                    file_id: file,
                    output_buffer_length: 1 << 20,
                    file_name: Utf16::new(&[b'*', 0]).unwrap(),
                }
                .encode(w);
            })
        };
        let information = |class: u8, info_type| {
            Draft::new(Command::QUERY_INFO).charge(16).with(|w| {
                query_info::Request {
                    info_type,
                    file_info_class: class,
                    output_buffer_length: 1 << 20,
                    additional_information: 7,
                    flags: query_info::QueryInfoFlags::EMPTY,
                    file_id: directory,
                    input: &[],
                }
                .encode(w);
            })
        };
        for second in [0, 1000, 30_000, 60_000, 64_000, 65_000, 65_200, 65_400] {
            let drafts = vec![
                mount.put(read_draft(file, 0, max)),
                mount.put(read_draft(file, 0, second)),
                mount.put(listing(directory)),
                mount.put(information(18, query_info::InfoType::FILE)),
                mount.put(information(0, query_info::InfoType::SECURITY)),
                mount.put(information(15, query_info::InfoType::FILE)),
                mount.put(listing(directory)),
            ];
            for mount in [mount.clone(), mount.clone().sealed()] {
                peer.send(drafts.clone(), mount.via()).await;
                let frame = peer.frame().await.expect("an answer, not a panic");
                assert!(frame.len() <= max as usize + 66 * 1024, "{} bytes", frame.len());
                let replies = peer.open(frame);
                assert_eq!(replies.len(), drafts.len());
                for reply in &replies {
                    assert!(
                        matches!(
                            reply.status(),
                            Status::SUCCESS
                                | Status::INVALID_PARAMETER
                                | Status::INFO_LENGTH_MISMATCH
                                | Status::BUFFER_OVERFLOW
                                | Status::BUFFER_TOO_SMALL
                                | Status::NO_EAS_ON_FILE
                        ),
                        "{:?} of {} after {second}",
                        reply.status(),
                        reply.header.command
                    );
                }
                assert_eq!(data(replies[0].ok()).len(), max as usize);
            }
        }
    });
}
