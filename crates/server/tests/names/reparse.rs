//! FSCTL_SET_REPARSE_POINT and FSCTL_DELETE_REPARSE_POINT, and what they make.

use frevo_wire::codec::Writer;
use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::command::query_info;
use frevo_wire::dtyp::{AccessMask, FileAttributes, Guid};
use frevo_wire::error_response::{ErrorResponse, SymlinkError};
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::reparse::{
    NfsSpecial, ReparseBuffer, ReparseTag, Symlink, encode_lx_symlink, encode_mount_point,
};

use crate::calls::*;
use crate::client::files::{rename_draft, write_draft};
use crate::client::*;

pub(crate) const SET: CtlCode = CtlCode::SET_REPARSE_POINT;
pub(crate) const GET: CtlCode = CtlCode::GET_REPARSE_POINT;
const DELETE: CtlCode = CtlCode::DELETE_REPARSE_POINT;

fn bytes(encode: impl FnOnce(&mut Writer<'_>) -> Option<()>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut Writer::new(&mut bytes)).unwrap();
    bytes
}

pub(crate) fn link(target: &str, relative: bool) -> Vec<u8> {
    let link = Symlink { substitute_name: target, print_name: target, relative };
    bytes(|w| link.encode(w))
}

fn opaque(tag: u32, guid: Option<Guid>, data: &[u8]) -> Vec<u8> {
    bytes(|w| ReparseBuffer { tag: ReparseTag(tag), guid, data }.encode(w))
}

fn head(tag: u32, guid: Option<Guid>) -> Vec<u8> {
    opaque(tag, guid, &[])
}

pub(crate) fn itself(name: &str) -> Want {
    Want::existing(name).options(CreateOptions::OPEN_REPARSE_POINT)
}

/// FileAttributeTagInformation.
async fn attribute_tag(peer: &mut Peer, mount: &Mount, file: FileId) -> (FileAttributes, u32) {
    let reply = peer.on(mount, query_draft(FileInfoClass::ATTRIBUTE_TAG, file)).await;
    let found = query_info::Response::parse(&reply.ok().message).unwrap().output.to_vec();
    let word = |at: usize| u32::from_le_bytes(found[at..at + 4].try_into().unwrap());
    (FileAttributes(word(0)), word(4))
}

#[test]
fn a_link_becomes_one_of_the_host() {
    in_world(async |world| {
        world.file("target", "content");
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for (name, options) in [("l", CreateOptions::EMPTY), ("dl", CreateOptions::DIRECTORY_FILE)]
        {
            let want = Want::file(name).options(options | CreateOptions::OPEN_REPARSE_POINT);
            let file = peer.open_file(&mount, &want).await;
            let set = link("target", true);
            ask(&mut peer, &mount, SET, file, &set, 0).await.ok();
            let to = std::fs::read_link(world.path(name)).unwrap();
            // MS-FSA 2.1.5.10.37: a link is a file or a directory. The host's link marks a
            // directory by a trailing separator, with which it can still be followed.
            let is_directory = !options.is_empty();
            assert_eq!(to.to_str(), Some(if is_directory { "target/" } else { "target" }));
            // The Open that made the link shows the file as a link from now on.
            let (attributes, tag) = attribute_tag(&mut peer, &mount, file).await;
            let kept =
                if is_directory { FileAttributes::DIRECTORY } else { FileAttributes::ARCHIVE };
            assert_eq!(attributes, kept | FileAttributes::REPARSE_POINT);
            assert_eq!(tag, ReparseTag::SYMLINK.0);
            let reply = ask(&mut peer, &mount, GET, file, &[], 4096).await;
            assert_eq!(output(reply.ok()), set);
            peer.on(&mount, write_draft(file, 0, b"x")).await.expect(if options.is_empty() {
                Status::ACCESS_DENIED
            } else {
                Status::INVALID_DEVICE_REQUEST
            });
            // The target of a link may be changed, but another tag is refused.
            ask(&mut peer, &mount, SET, file, &link("d\\e", true), 0).await.ok();
            let to = std::fs::read_link(world.path(name)).unwrap();
            assert_eq!(to.to_str(), Some(if is_directory { "d/e/" } else { "d/e" }));
            let other = bytes(|w| NfsSpecial::<&str>::Fifo.encode(w));
            let mismatch = Status::IO_REPARSE_TAG_MISMATCH;
            ask(&mut peer, &mount, SET, file, &other, 0).await.expect(mismatch);
            peer.close(&mount, file).await;
            let stopped = peer.create(&mount, &Want::existing(name)).await;
            stopped.expect(Status::STOPPED_ON_SYMLINK);
            let (fits, other, refused) = match is_directory {
                true => (
                    CreateOptions::DIRECTORY_FILE,
                    CreateOptions::NON_DIRECTORY_FILE,
                    Status::FILE_IS_A_DIRECTORY,
                ),
                false => (
                    CreateOptions::NON_DIRECTORY_FILE,
                    CreateOptions::DIRECTORY_FILE,
                    Status::NOT_A_DIRECTORY,
                ),
            };
            let ask = |kind| itself(name).options(kind | CreateOptions::OPEN_REPARSE_POINT);
            peer.create(&mount, &ask(other)).await.expect(refused);
            let file = peer.open_file(&mount, &ask(fits)).await;
            peer.on(&mount, set_draft(FileInfoClass::DISPOSITION, file, &[1])).await.ok();
            peer.close(&mount, file).await;
            assert!(world.path(name).symlink_metadata().is_err(), "{name}");
        }
        assert_eq!(world.content("target"), b"content");
        // The Open that turned the file into a link can delete it.
        let file = peer.open_file(&mount, &Want::file("gone")).await;
        ask(&mut peer, &mount, SET, file, &link("target", true), 0).await.ok();
        peer.on(&mount, set_draft(FileInfoClass::DISPOSITION, file, &[1])).await.ok();
        peer.close(&mount, file).await;
        assert!(world.path("gone").symlink_metadata().is_err());
    });
}

#[test]
fn deleting_a_link_leaves_an_empty_file() {
    in_world(async |world| {
        std::os::unix::fs::symlink("x", world.path("l")).unwrap();
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &itself("l")).await;
        let wrong = head(ReparseTag::NFS.0, None);
        let mismatch = Status::IO_REPARSE_TAG_MISMATCH;
        ask(&mut peer, &mount, DELETE, file, &wrong, 0).await.expect(mismatch);
        let right = head(ReparseTag::SYMLINK.0, None);
        ask(&mut peer, &mount, DELETE, file, &right, 0).await.ok();
        let plain = Status::NOT_A_REPARSE_POINT;
        ask(&mut peer, &mount, DELETE, file, &right, 0).await.expect(plain);
        ask(&mut peer, &mount, GET, file, &[], 4096).await.expect(plain);
        peer.close(&mount, file).await;
        assert!(world.path("l").symlink_metadata().unwrap().is_file());
        assert_eq!(world.content("l"), b"");
    });
}

#[test]
fn links_that_lead_out_are_kept_and_not_made() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for (target, relative) in
            [("..\\up", true), ("a\\..\\..\\up", true), ("\\??\\C:\\x", false), ("\\etc", true)]
        {
            let file = peer.open_file(&mount, &Want::file("l")).await;
            let set = link(target, relative);
            ask(&mut peer, &mount, SET, file, &set, 0).await.ok();
            peer.close(&mount, file).await;
            assert!(world.path("l").symlink_metadata().unwrap().is_file(), "{target}");
            let stopped = peer.create(&mount, &Want::existing("l")).await;
            stopped.expect(Status::STOPPED_ON_SYMLINK);
            let data = match ErrorResponse::parse(&stopped.message).unwrap() {
                ErrorResponse::Data(data) => data.to_vec(),
                ErrorResponse::Contexts(contexts) => contexts[0].data.to_vec(),
            };
            let told = SymlinkError::parse(&data).unwrap();
            let name = told.substitute_name.to_string().unwrap();
            assert_eq!((name.as_str(), told.relative), (target, relative));
            let file = peer.open_file(&mount, &itself("l")).await;
            let reply = ask(&mut peer, &mount, GET, file, &[], 4096).await;
            assert_eq!(output(reply.ok()), set);
            let (_, tag) = attribute_tag(&mut peer, &mount, file).await;
            assert_eq!(tag, ReparseTag::SYMLINK.0);
            let right = head(ReparseTag::SYMLINK.0, None);
            ask(&mut peer, &mount, DELETE, file, &right, 0).await.ok();
            peer.close(&mount, file).await;
            let file = peer.open_file(&mount, &Want::existing("l")).await;
            peer.close(&mount, file).await;
        }
    });
}

/// A link that a rename, of itself or of a folder above it, would have lead out of the
/// share is none of the host's.
#[test]
fn f1_no_rename_makes_a_link_lead_out() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        std::fs::create_dir_all(world.path("a/b")).unwrap();
        for name in ["a\\b\\one", "a\\b\\two"] {
            let file = peer.open_file(&mount, &Want::file(name)).await;
            ask(&mut peer, &mount, SET, file, &link("..\\..\\x", true), 0).await.ok();
            peer.close(&mount, file).await;
        }
        let rename = async |peer: &mut Peer, want: &Want, to: &str| {
            let file = peer.open_file(&mount, want).await;
            let draft = rename_draft(FileInfoClass::RENAME, file, to, false);
            let status = peer.on(&mount, draft).await.status();
            peer.close(&mount, file).await;
            status
        };
        let done = Status::SUCCESS;
        assert_eq!(rename(&mut peer, &itself("a\\b\\one"), "one").await, done);
        assert_eq!(rename(&mut peer, &Want::directory("a\\b"), "b").await, done);
        for name in ["one", "b/two"] {
            let link = std::fs::read_link(world.path(name));
            assert!(link.is_err(), "{name} leads to {link:?}");
        }
        // After the rename, clients can still resolve the links.
        let stopped = peer.create(&mount, &Want::existing("b\\two")).await;
        stopped.expect(Status::STOPPED_ON_SYMLINK);

        // A program of the host made this link, so the server checks the link's target when the
        // link is renamed. The target must not be outside of the share.
        std::os::unix::fs::symlink("../x", world.path("b/theirs")).unwrap();
        let denied = Status::ACCESS_DENIED;
        assert_eq!(rename(&mut peer, &itself("b\\theirs"), "theirs").await, denied);
        assert_eq!(rename(&mut peer, &itself("b\\theirs"), "a\\theirs").await, done);
        assert!(std::fs::read_link(world.path("a/theirs")).is_ok());
    });
}

#[test]
fn special_files_are_made_and_devices_only_kept() {
    use std::os::unix::fs::FileTypeExt as _;
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let nfs = |special: NfsSpecial<&str>| bytes(|w| special.encode(w));
        let made = [
            ("fifo", nfs(NfsSpecial::Fifo)),
            ("socket", nfs(NfsSpecial::Socket)),
            ("nfslink", nfs(NfsSpecial::Symlink("a/b"))),
            ("lxlink", bytes(|w| encode_lx_symlink(w, b"c"))),
            ("lxfifo", head(ReparseTag::LX_FIFO.0, None)),
            ("lxsocket", head(ReparseTag::AF_UNIX.0, None)),
        ];
        for (name, set) in &made {
            let file = peer.open_file(&mount, &Want::file(name)).await;
            ask(&mut peer, &mount, SET, file, set, 0).await.ok();
            ask(&mut peer, &mount, GET, file, &[], 4096).await.ok();
            peer.close(&mount, file).await;
        }
        let kind = |name: &str| world.path(name).symlink_metadata().unwrap().file_type();
        assert!(kind("fifo").is_fifo() && kind("lxfifo").is_fifo());
        assert!(kind("socket").is_socket() && kind("lxsocket").is_socket());
        assert_eq!(std::fs::read_link(world.path("nfslink")).unwrap().to_str(), Some("a/b"));
        assert_eq!(std::fs::read_link(world.path("lxlink")).unwrap().to_str(), Some("c"));
        let kept = [
            nfs(NfsSpecial::Character { major: 1, minor: 3 }),
            nfs(NfsSpecial::Block { major: 8, minor: 0 }),
            head(ReparseTag::LX_CHR.0, None),
            opaque(ReparseTag::APPEXECLINK.0, None, b"anything"),
        ];
        for (at, set) in kept.iter().enumerate() {
            let name = format!("kept{at}");
            let file = peer.open_file(&mount, &Want::file(&name)).await;
            ask(&mut peer, &mount, SET, file, set, 0).await.ok();
            peer.close(&mount, file).await;
            assert!(kind(&name).is_file());
            let refused = peer.create(&mount, &Want::existing(&name)).await;
            refused.expect(Status::IO_REPARSE_TAG_NOT_HANDLED);
            let file = peer.open_file(&mount, &itself(&name)).await;
            let reply = ask(&mut peer, &mount, GET, file, &[], 4096).await;
            assert_eq!(&output(reply.ok()), set);
            peer.close(&mount, file).await;
        }
    });
}

#[test]
fn what_is_no_reparse_point_is_refused() {
    in_world(async |world| {
        world.file("full", "content");
        std::fs::create_dir_all(world.path("parent/child")).unwrap();
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let invalid = Status::IO_REPARSE_DATA_INVALID;
        let whole = link("x", true);
        let mut long = whole.clone();
        long.push(0);
        for bad in [&whole[..7], &whole[..whole.len() - 1], &long, &[0; 16_385][..], &[]] {
            ask(&mut peer, &mount, SET, file, bad, 0).await.expect(invalid);
        }
        // Two invalid buffers: the offset of the name points outside of it, and a tag that is not
        // Microsoft's needs a GUID.
        let mut outside = whole.clone();
        outside[8..10].copy_from_slice(&[0xF0, 0xFF]);
        ask(&mut peer, &mount, SET, file, &outside, 0).await.expect(invalid);
        let nobodys = opaque(0x1234, Some(Guid::default()), b"x");
        ask(&mut peer, &mount, SET, file, &nobodys, 0).await.expect(invalid);
        for tag in [0, 1] {
            let reserved = opaque(tag, Some(Guid([7; 16])), b"");
            let tag_invalid = Status::IO_REPARSE_TAG_INVALID;
            ask(&mut peer, &mount, SET, file, &reserved, 0).await.expect(tag_invalid);
        }
        let mount_point = bytes(|w| encode_mount_point(w, "\\??\\D:\\", "D:\\"));
        let no_directory = Status::NOT_A_DIRECTORY;
        ask(&mut peer, &mount, SET, file, &mount_point, 0).await.expect(no_directory);
        let full = peer.open_file(&mount, &Want::existing("full")).await;
        ask(&mut peer, &mount, SET, full, &whole, 0).await.expect(invalid);
        let parent = peer.open_file(&mount, &Want::existing("parent")).await;
        let filled = Status::DIRECTORY_NOT_EMPTY;
        ask(&mut peer, &mount, SET, parent, &mount_point, 0).await.expect(filled);
        let reader = Want::existing("f").access(AccessMask::FILE_GENERIC_READ);
        let reader = peer.open_file(&mount, &reader).await;
        let denied = Status::ACCESS_DENIED;
        ask(&mut peer, &mount, SET, reader, &whole, 0).await.expect(denied);
        ask(&mut peer, &mount, DELETE, reader, &whole[..8], 0).await.expect(denied);
        assert_eq!(world.content("full"), b"content");
        assert_eq!(world.content("f"), b"");
    });
}

#[test]
fn others_than_microsofts_say_whose_they_are() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (ours, theirs) = (Some(Guid([1; 16])), Some(Guid([2; 16])));
        let directory = peer.open_file(&mount, &Want::directory("d")).await;
        let set = opaque(0x1234, ours, b"data");
        ask(&mut peer, &mount, SET, directory, &set, 0).await.ok();
        let conflict = Status::REPARSE_ATTRIBUTE_CONFLICT;
        let other = opaque(0x1234, theirs, b"data");
        ask(&mut peer, &mount, SET, directory, &other, 0).await.expect(conflict);
        ask(&mut peer, &mount, GET, directory, &[], 23).await.expect(Status::BUFFER_TOO_SMALL);
        let reply = ask(&mut peer, &mount, GET, directory, &[], 25).await;
        assert_eq!(output(reply.expect(Status::BUFFER_OVERFLOW)), set[..25]);
        let (attributes, tag) = attribute_tag(&mut peer, &mount, directory).await;
        assert!(attributes.contains(FileAttributes::DIRECTORY | FileAttributes::REPARSE_POINT));
        assert_eq!(tag, 0x1234);
        for (input, status) in [
            (head(0x1234, theirs), conflict),
            (head(0x4321, ours), Status::IO_REPARSE_TAG_MISMATCH),
            (head(0x1234, ours)[..8].to_vec(), Status::IO_REPARSE_DATA_INVALID),
            (set.clone(), Status::IO_REPARSE_DATA_INVALID),
        ] {
            ask(&mut peer, &mount, DELETE, directory, &input, 0).await.expect(status);
        }
        ask(&mut peer, &mount, DELETE, directory, &head(0x1234, ours), 0).await.ok();
        let (attributes, tag) = attribute_tag(&mut peer, &mount, directory).await;
        assert_eq!((attributes, tag), (FileAttributes::DIRECTORY, 0));
    });
}

#[test]
fn what_others_have_open_stays_a_file() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("l")).await;
        let other = peer.open_file(&mount, &Want::existing("l")).await;
        ask(&mut peer, &mount, SET, file, &link("x", true), 0).await.ok();
        assert!(world.path("l").symlink_metadata().unwrap().is_file());
        for open in [file, other] {
            assert_eq!(attribute_tag(&mut peer, &mount, open).await.1, ReparseTag::SYMLINK.0);
            peer.close(&mount, open).await;
        }
    });
}

/// The error data of a refused CREATE.
pub(crate) fn told(stopped: &Reply) -> (String, u16) {
    let data = match ErrorResponse::parse(&stopped.message).unwrap() {
        ErrorResponse::Data(data) => data.to_vec(),
        ErrorResponse::Contexts(contexts) => contexts[0].data.to_vec(),
    };
    let told = SymlinkError::parse(&data).unwrap();
    (told.substitute_name.to_string().unwrap(), told.unparsed_path_length)
}

/// MS-FSA 2.1.5.1, MS-SMB2 3.3.5.9: the way through a link ends at the link, wherever the link
/// is kept.
#[test]
fn no_name_leads_through_a_link_that_is_kept() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        std::fs::create_dir(world.path("up")).unwrap();
        let stopped = Status::STOPPED_ON_SYMLINK;
        let mount_point = bytes(|w| encode_mount_point(w, "\\??\\D:\\t", "D:\\t"));
        let links = [link("\\??\\D:\\t", false), mount_point, link("\\??\\D:\\t", false)];
        let directory = CreateOptions::DIRECTORY_FILE;
        for (at, (set, options)) in
            links.iter().zip([directory, directory, CreateOptions::EMPTY]).enumerate()
        {
            let name = format!("up\\l{at}");
            let file = peer.open_file(&mount, &Want::file(&name).options(options)).await;
            if options == directory {
                // The folder once had this entry, so the name is cached. After the folder has
                // become a link, the cached name must not be found.
                let below = format!("{name}\\below");
                let inner = peer.open_file(&mount, &Want::directory(&below)).await;
                peer.close(&mount, inner).await;
                std::fs::remove_dir(world.path(&below.replace('\\', "/"))).unwrap();
            }
            ask(&mut peer, &mount, SET, file, set, 0).await.ok();
            peer.close(&mount, file).await;
            let itself_again = peer.create(&mount, &Want::existing(&name)).await;
            itself_again.expect(stopped);
            assert_eq!(told(&itself_again), ("\\??\\D:\\t".to_owned(), 0), "{name}");

            for (below, unparsed) in [("x.txt", 12), ("d\\x.txt", 16), ("s:t", 8)] {
                for want in [Want::file, Want::existing, Want::directory] {
                    let path = if below.contains(':') {
                        format!("{name}\\{below}")
                    } else {
                        format!("{}\\{below}", name.to_uppercase())
                    };
                    if below.contains(':') && want(&path).options == directory {
                        continue;
                    }
                    let reply = peer.create(&mount, &want(&path)).await;
                    assert_eq!(reply.status(), stopped, "{path}");
                    reply.expect(stopped);
                    assert_eq!(told(&reply), ("\\??\\D:\\t".to_owned(), unparsed), "{path}");
                }
            }
            world.file("plain", "content");
            for class in [FileInfoClass::RENAME, FileInfoClass::LINK] {
                let file = peer.open_file(&mount, &Want::existing("plain")).await;
                let to = format!("{name}\\moved");
                let reply = peer.on(&mount, rename_draft(class, file, &to, true)).await;
                reply.expect(stopped);
                assert_eq!(told(&reply).1, 12);
                peer.close(&mount, file).await;
            }
            assert_eq!(world.content("plain"), b"content");
            if options == directory {
                let path = world.path(&name.replace('\\', "/"));
                assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
            }
            // The link is renamed away and a folder takes its place. Links that are made inside of
            // this folder must work under the new path.
            let file = peer.open_file(&mount, &itself(&name)).await;
            let away = format!("away{at}");
            peer.on(&mount, rename_draft(FileInfoClass::RENAME, file, &away, false)).await.ok();
            peer.close(&mount, file).await;
            if options == directory {
                let inner = peer.open_file(&mount, &Want::directory(&name)).await;
                peer.close(&mount, inner).await;
                let inner = peer.open_file(&mount, &Want::file(&format!("{name}\\x"))).await;
                peer.close(&mount, inner).await;
                std::fs::remove_dir_all(world.path(&name.replace('\\', "/"))).unwrap();
                let file = peer.open_file(&mount, &itself(&away)).await;
                let draft = rename_draft(FileInfoClass::RENAME, file, &name, false);
                peer.on(&mount, draft).await.ok();
                peer.close(&mount, file).await;
                let reply = peer.create(&mount, &Want::file(&format!("{name}\\x"))).await;
                reply.expect(stopped);
            }
        }
    });
}

/// A tag that is no link ends the way too; only its owner knows where it leads.
#[test]
fn no_name_leads_through_a_reparse_point_of_another_kind() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::directory("d")).await;
        let set = opaque(0x1234, Some(Guid([1; 16])), b"data");
        ask(&mut peer, &mount, SET, file, &set, 0).await.ok();
        let refused = peer.create(&mount, &Want::file("d\\x")).await;
        refused.expect(Status::IO_REPARSE_TAG_NOT_HANDLED);
        ask(&mut peer, &mount, DELETE, file, &head(0x1234, Some(Guid([1; 16]))), 0).await.ok();
        peer.close(&mount, file).await;
        let file = peer.open_file(&mount, &Want::file("d\\x")).await;
        peer.close(&mount, file).await;
        assert!(world.path("d/x").exists());
    });
}

/// Long paths too are answered within the time of a core, which builds with assertions watch.
#[test]
fn the_first_link_of_a_long_path_is_told() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for (depth, behind) in [(0, 3), (1, 2), (6, 0), (7, 1), (250, 250), (900, 100)] {
            let above = format!("{depth}/{}", "a/".repeat(depth));
            std::fs::create_dir_all(world.path(&above)).unwrap();
            std::os::unix::fs::symlink("else/where", world.path(&format!("{above}l"))).unwrap();
            let below = "\\b".repeat(behind);
            let path = format!("{}l{below}", above.replace('/', "\\"));
            let reply = peer.create(&mount, &Want::existing(&path)).await;
            reply.expect(Status::STOPPED_ON_SYMLINK);
            assert_eq!(told(&reply), ("else\\where".to_owned(), behind as u16 * 4), "{depth}");
        }
    });
}
