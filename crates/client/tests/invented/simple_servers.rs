//! Servers that know less than Windows, such as impacket's.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::dialed;
use crate::evil;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dialed::one_thing;
use evil::{Act, Asked, Manners, buffer};
use frevo_client::{Credentials, Error, FileType, Options, ServerName, Share};
use frevo_wire::codec::Writer;
use frevo_wire::command::create::{self, CreateDisposition};
use frevo_wire::command::set_info;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::volume::FsSizeInformation;
use frevo_wire::{Command, Status};
use parking_lot::Mutex;

/// Does `work` in a share of a server that follows `script`.
fn in_share<T>(
    script: impl Fn(&Asked<'_>) -> Act + Send + Sync + 'static,
    work: impl AsyncFnOnce(&Share) -> Result<T, Error>,
) -> Result<T, Error> {
    let done = one_thing(Manners::default(), Options::default(), script, async |client| {
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new("simple"), user).await?;
        work(&session.share("data").await?).await
    });
    done.0
}

/// The success of a request that the server does not know, with this body.
fn answered(body: Vec<u8>) -> Act {
    Act::Changed(Box::new(|answer| {
        // The bytes are the status in the header, which becomes SUCCESS (MS-SMB2 2.2.1.2).
        answer[8..12].fill(0);
        answer.truncate(64);
        answer.extend(body);
    }))
}

/// FileFsSizeInformation of 100 units, of which 40 are free.
fn size() -> Vec<u8> {
    let mut data = Vec::new();
    FsSizeInformation {
        total_allocation_units: 100,
        available_allocation_units: 40,
        sectors_per_allocation_unit: 8,
        bytes_per_sector: 512,
    }
    .encode(&mut Writer::new(&mut data));
    buffer(&data)
}

/// The answers of servers that do not have what is asked for.
const UNKNOWN: [Status; 3] =
    [Status::NOT_SUPPORTED, Status::NOT_IMPLEMENTED, Status::INVALID_INFO_CLASS];

#[test]
fn the_space_of_a_server_without_the_newer_class_is_told() {
    const FILESYSTEM: u8 = 2;
    // The server refuses the newer class with either status, or answers both classes with the
    // shorter structure.
    for refusal in UNKNOWN.map(Some).into_iter().chain([None]) {
        let script = move |asked: &Asked<'_>| {
            if asked.header.command != Command::QUERY_INFO {
                return Act::Honest;
            }
            match (asked.message[66], asked.message[67], refusal) {
                (FILESYSTEM, 7, Some(status)) => Act::Refused(status),
                (FILESYSTEM, 3 | 7, _) => answered(size()),
                other => panic!("{other:?}"),
            }
        };
        let space = in_share(script, async |share| share.disk_space("").await).unwrap();
        assert_eq!((space.unit, space.total, space.free, space.available), (4096, 100, 40, 40));
    }
    // ACCESS_DENIED does not mean an unknown class, so it is reported.
    let script = |asked: &Asked<'_>| match asked.header.command {
        Command::QUERY_INFO => Act::Refused(Status::ACCESS_DENIED),
        _ => Act::Honest,
    };
    let refused = in_share(script, async |share| share.disk_space("").await).unwrap_err();
    assert_eq!(refused.status(), Some(frevo_client::Status::ACCESS_DENIED));
}

#[test]
fn a_directory_that_exists_is_made_though_the_server_denies_it() {
    let deny = |asked: &Asked<'_>| {
        if asked.header.command != Command::CREATE {
            return Act::Honest;
        }
        let request = create::Request::parse(asked.message).unwrap();
        match request.create_disposition {
            CreateDisposition::OPEN_IF => Act::Refused(Status::ACCESS_DENIED),
            _ => Act::Honest,
        }
    };
    in_share(deny, async |share| share.create_dir_all("dir").await).unwrap();
    // `known` is a file and not a directory, so the server's refusal is reported.
    let refused = in_share(deny, async |share| share.create_dir_all("known").await).unwrap_err();
    assert_eq!(refused.status(), Some(frevo_client::Status::ACCESS_DENIED));
}

/// FileAllInformation of a file with these attributes and so many links, MS-FSCC 2.4.2.
fn all(attributes: u32, links: u8) -> Vec<u8> {
    let mut all = vec![0; 100];
    all[32..36].copy_from_slice(&attributes.to_le_bytes());
    (all[56], all[64]) = (links, 77);
    buffer(&all)
}

/// FileAllInformation of a read-only file with so many links.
fn read_only(links: u8) -> Vec<u8> {
    all(READ_ONLY, links)
}

/// Only a reparse point has a tag, and a server need not know FileAttributeTagInformation (35).
#[test]
fn the_tag_is_asked_for_where_there_is_one_and_may_be_unknown() {
    const REPARSE_POINT: u32 = 0x420;
    let tag = buffer(&[0x20, 4, 0, 0, 0x0C, 0, 0, 0xA0]);
    for answer in UNKNOWN.map(Some).into_iter().chain([None]) {
        for (attributes, questions) in [(0x20, 0), (0x10, 0), (REPARSE_POINT, 1)] {
            let count = Arc::new(AtomicUsize::new(0));
            let (counted, tag) = (Arc::clone(&count), tag.clone());
            let script = move |asked: &Asked<'_>| {
                if asked.header.command != Command::QUERY_INFO {
                    return Act::Honest;
                }
                match FileInfoClass(asked.message[67]) {
                    FileInfoClass::ALL => answered(all(attributes, 1)),
                    FileInfoClass::ATTRIBUTE_TAG => {
                        counted.fetch_add(1, Ordering::SeqCst);
                        answer.map_or_else(|| answered(tag.clone()), Act::Refused)
                    }
                    other => panic!("{other:?}"),
                }
            };
            let found = in_share(script, async |share| share.lookup("known").await).unwrap();
            assert_eq!(count.load(Ordering::SeqCst), questions, "{answer:?} {attributes:x}");
            assert_eq!(found.attributes().bits(), attributes);
            let tag = if answer.is_none() { 0xA000_000C } else { 0 };
            let expected = match attributes {
                REPARSE_POINT => FileType::Reparse(tag),
                0x10 => FileType::Directory,
                _ => FileType::File,
            };
            assert_eq!(found.file_type(), expected, "{answer:?}");
        }
    }
    // A refusal with another status does not mean that the server lacks the class.
    let script = |asked: &Asked<'_>| match (asked.header.command, asked.message.get(67)) {
        (Command::QUERY_INFO, Some(18)) => answered(all(REPARSE_POINT, 1)),
        (Command::QUERY_INFO, _) => Act::Refused(Status::ACCESS_DENIED),
        _ => Act::Honest,
    };
    let refused = in_share(script, async |share| share.lookup("known").await).unwrap_err();
    assert_eq!(refused.status(), Some(frevo_client::Status::ACCESS_DENIED));
}

/// A copy over a file asks for its access list, which a server need not have.
#[test]
fn an_access_list_that_the_server_does_not_have_is_none() {
    for status in UNKNOWN {
        let script = move |asked: &Asked<'_>| match asked.header.command {
            Command::QUERY_INFO => Act::Refused(status),
            _ => Act::Honest,
        };
        let look = async |share: &Share| {
            share.look_before_replacing("known", frevo_client::AccessMask::WRITE_DATA).await
        };
        let (_, list) = in_share(script, look).unwrap();
        assert!(list.is_none(), "{status:?}");
    }
}

#[test]
fn a_server_that_falls_silent_at_the_logon_is_told_with_its_step() {
    for (step, words) in [
        (Command::NEGOTIATE, "did not answer the negotiation (NEGOTIATE) within 10 s"),
        (Command::SESSION_SETUP, "did not answer the logon (SESSION_SETUP) within 10 s"),
    ] {
        let script = move |asked: &Asked<'_>| match asked.header.command {
            command if command == step => Act::Silence,
            _ => Act::Honest,
        };
        let silent = in_share(script, async |share| share.lookup("known").await).unwrap_err();
        let text = silent.to_string();
        assert!(text.contains("the server was reached") && text.contains(words), "{text}");
        assert_eq!(silent.kind(), std::io::ErrorKind::TimedOut);
    }
}

/// READONLY and ARCHIVE, MS-FSCC 2.6.
const READ_ONLY: u32 = 0x21;

/// A server without FileRenameInformationEx that refuses to replace the file: by its name for the only
/// link, and through a handle for one of two, the attribute is given back.
#[test]
fn a_read_only_file_that_is_not_replaced_stays_read_only() {
    let set = Arc::new(Mutex::new(Vec::new()));
    for links in [1, 2] {
        let noted = Arc::clone(&set);
        let script = move |asked: &Asked<'_>| {
            let class =
                asked.message.get(67).map_or(FileInfoClass(0), |class| FileInfoClass(*class));
            match (asked.header.command, class) {
                (Command::QUERY_INFO, FileInfoClass::ALL) => answered(read_only(links)),
                (Command::QUERY_INFO, _) => answered(buffer(&[0; 8])),
                (Command::SET_INFO, FileInfoClass::RENAME_EX) => {
                    Act::Refused(Status::INVALID_INFO_CLASS)
                }
                (Command::SET_INFO, FileInfoClass::RENAME) => Act::Refused(Status::ACCESS_DENIED),
                (Command::SET_INFO, FileInfoClass::BASIC) => {
                    let request = set_info::Request::parse(asked.message).unwrap();
                    noted
                        .lock()
                        .push(u32::from_le_bytes(request.buffer[32..36].try_into().unwrap()));
                    Act::Honest
                }
                _ => Act::Honest,
            }
        };
        let rename = async |share: &Share| share.rename_over_read_only("new", "known").await;
        let refused = in_share(script, rename).unwrap_err();
        assert_eq!(refused.status(), Some(frevo_client::Status::ACCESS_DENIED));
        assert_eq!(std::mem::take(&mut *set.lock()), [READ_ONLY & !1, READ_ONLY], "{links}");
    }
}
