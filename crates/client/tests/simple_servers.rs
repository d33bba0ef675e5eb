//! Servers that know less than Windows, such as impacket's.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

mod dialed;
mod evil;

use std::sync::Arc;

use dialed::one_thing;
use evil::{Act, Asked, Manners, buffer};
use frevo_client::{Credentials, Error, Options, ServerName, Share};
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

#[test]
fn the_space_of_a_server_without_the_newer_class_is_told() {
    const FILESYSTEM: u8 = 2;
    // The server refuses the newer class with either status, or answers both classes with the
    // shorter structure.
    for refusal in [Some(Status::INVALID_INFO_CLASS), Some(Status::NOT_SUPPORTED), None] {
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

/// FileAllInformation of a read-only file with so many links, MS-FSCC 2.4.2.
fn read_only(links: u8) -> Vec<u8> {
    let mut all = vec![0; 100];
    all[32..36].copy_from_slice(&READ_ONLY.to_le_bytes());
    (all[56], all[64]) = (links, 77);
    buffer(&all)
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
