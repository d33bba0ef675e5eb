//! F1, F2, F5: names, paths and pipes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::client::files::{file_id, utf16};
use crate::client::*;
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::dtyp::AccessMask;

/// How long the race of F1 is run.
const RACE: Duration = Duration::from_secs(2);

/// A program with access to the directory swaps a folder for a link that leads out, as fast as
/// the system allows, while a client opens files below it.
#[test]
fn f1_no_race_with_a_link_leads_out_of_the_share() {
    in_world(async |world| {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), b"outside").unwrap();
        std::fs::create_dir(world.path("inner")).unwrap();
        world.file("inner/secret", b"inside");
        std::os::unix::fs::symlink(outside.path(), world.path("link")).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let attacker = {
            let (root, stop) = (world.dir.path().to_owned(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let path = |name: &str| root.join(name);
                let mut swaps = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    // The name "swap" belongs alternately to the folder "inner" and to the symbolic
                    // link "link".
                    let _ = std::fs::rename(path("inner"), path("swap"));
                    let _ = std::fs::rename(path("swap"), path("inner"));
                    let _ = std::fs::rename(path("link"), path("swap"));
                    let _ = std::fs::rename(path("swap"), path("link"));
                    swaps += 1;
                }
                swaps
            })
        };
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (mut inside, mut refused, mut made) = (0_u64, 0_u64, 0_u64);
        let begun = Instant::now();
        let both = |inside: u64, refused: u64| inside > 0 && refused > 0;
        // A busy machine may show only one of the two for a while. So the test goes on until it has
        // seen both, folder and link.
        while begun.elapsed() < RACE || (!both(inside, refused) && begun.elapsed() < RACE * 20) {
            let reply = peer.create(&mount, &Want::existing("swap\\secret")).await;
            if reply.status() == Status::SUCCESS {
                let file = file_id(&reply);
                assert_eq!(peer.read(&mount, file, 0, 100).await, b"inside");
                peer.close(&mount, file).await;
                inside += 1;
            } else {
                refused += 1;
            }
            let want = Want::file("swap\\made").disposition(CreateDisposition::OVERWRITE_IF);
            let want = want.options(CreateOptions::DELETE_ON_CLOSE);
            let reply = peer.create(&mount, &want).await;
            if reply.status() == Status::SUCCESS {
                peer.close(&mount, file_id(&reply)).await;
                made += 1;
            }
            let entries = std::fs::read_dir(outside.path()).unwrap().count();
            assert_eq!(entries, 1, "something was made outside");
        }
        stop.store(true, Ordering::Relaxed);
        let swaps = attacker.join().unwrap();
        assert_eq!(std::fs::read(outside.path().join("secret")).unwrap(), b"outside");
        println!("{swaps} swaps, {inside} opened inside, {made} made inside, {refused} refused");
        assert!(both(inside, refused), "both sides of the race were seen");
    });
}

/// Links are not followed: a client is told that there is one, or nothing.
#[test]
fn f1_links_lead_nowhere() {
    in_world(async |world| {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), b"outside").unwrap();
        let link = |target: &std::path::Path, name: &str| {
            std::os::unix::fs::symlink(target, world.path(name)).unwrap();
        };
        link(outside.path(), "dir");
        link(&outside.path().join("secret"), "file");
        link(std::path::Path::new("/etc/passwd"), "passwd");
        link(std::path::Path::new("../../../../etc/passwd"), "up");
        link(std::path::Path::new("/proc/self/root"), "magic");
        link(std::path::Path::new("loop"), "loop");
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for name in [
            "dir",
            "file",
            "passwd",
            "up",
            "magic",
            "loop",
            "dir\\secret",
            "magic\\etc\\passwd",
            "loop\\x",
        ] {
            for disposition in 0..=5 {
                for options in
                    [0, CreateOptions::DIRECTORY_FILE.0, CreateOptions::NON_DIRECTORY_FILE.0]
                {
                    let want = Want::file(name)
                        .disposition(CreateDisposition(disposition))
                        .options(CreateOptions(options));
                    let reply = peer.create(&mount, &want).await;
                    assert_ne!(reply.status(), Status::SUCCESS, "{name} {want:?}");
                }
            }
        }
        assert_eq!(std::fs::read(outside.path().join("secret")).unwrap(), b"outside");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    });
}

#[test]
fn f1_dots_lead_nowhere() {
    in_world(async |world| {
        std::fs::create_dir(world.path("dir")).unwrap();
        // The folder above the share belongs to the host, so the test's name there contains the
        // process id.
        let name = format!("frevo-f1-{}", std::process::id());
        let beside = world.dir.path().parent().unwrap().join(&name);
        let (up, up_twice) = (format!("..\\{name}"), format!("dir\\..\\..\\{name}"));
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        // MS-FSCC 2.1.5.1: dots in a path are resolved within the share, so that a path never
        // leaves its root.
        for name in [".", "dir\\..", "dir\\.", ".\\dir"] {
            for want in [Want::existing(name), Want::directory(name)] {
                let file = file_id(peer.create(&mount, &want).await.ok());
                peer.close(&mount, file).await;
            }
        }
        // MS-SMB2 3.3.5.9 note 303: a path of the form "dir\..\more" is refused, as on Windows.
        peer.create(&mount, &Want::file(&up_twice)).await.expect(Status::INVALID_PARAMETER);
        for up in ["..", &up, &format!(".\\..\\..\\{name}"), &format!("dir\\.\\..\\..\\{name}")] {
            for want in [Want::existing(up), Want::file(up), Want::directory(up)] {
                peer.create(&mount, &want).await.expect(Status::OBJECT_PATH_SYNTAX_BAD);
            }
        }
        // CVE-2022-3592, CVE-2015-5252: no spelling of a path, with slashes or absolute, may reach
        // a folder next to the share, even one whose path begins with the share's path.
        let slashes = [&up, &up_twice].map(|way| way.replace('\\', "/"));
        for name in [&slashes[0], &slashes[1], "/etc/passwd", "dir/x"] {
            peer.create(&mount, &Want::file(name)).await.expect(Status::OBJECT_NAME_INVALID);
        }
        for name in ["\\etc", "\\\\frevo\\data", "\\"] {
            peer.create(&mount, &Want::file(name)).await.expect(Status::INVALID_PARAMETER);
        }
        assert!(!beside.exists(), "something was made beside the share");
    });
}

/// Pipes are a fixed list inside the process; nothing is looked up. A backslash
/// and SMB1's `PIPE\` before the name are spellings on that list.
#[test]
fn f2_no_pipe_but_those_of_the_list() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let ipc = peer.mount(&mount.logon, "IPC$").await;
        for name in [
            "",
            "nothing",
            "drsuapi",
            "lsass",
            "netlogon",
            "svcctl",
            "spoolss",
            "winreg",
            "browser",
            "atsvc",
            "srvsvc\\",
            "\\\\srvsvc",
            "srvsvc\\x",
            "x\\srvsvc",
            "..\\srvsvc",
            "../srvsvc",
            "/tmp/x.so",
            "PIPE\\PIPE\\srvsvc",
            "PIPE\\\\srvsvc",
            "srvsvc\0",
            "srvsvc/..",
            "srvsvc:x",
            "srvsvc:$DATA",
            "srvsvcx",
            "srvsv",
            "srv*",
            ".",
            "..",
        ] {
            for disposition in
                [CreateDisposition::OPEN, CreateDisposition::OPEN_IF, CreateDisposition::CREATE]
            {
                let want = Want::existing(name).disposition(disposition);
                let reply = peer.create(&ipc, &want).await;
                assert_eq!(reply.status(), Status::OBJECT_NAME_NOT_FOUND, "{name:?}");
            }
        }
        assert_eq!(std::fs::read_dir(world.dir.path()).unwrap().count(), 1, "the innocent file");
        let rights = AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE;
        for name in ["srvsvc", "SrvSvc", "wkssvc", "\\srvsvc", "\\PIPE\\srvsvc"] {
            let pipe = peer.open_file(&ipc, &Want::existing(name).access(rights)).await;
            peer.close(&ipc, pipe).await;
        }
        // The two shares are separate: IPC$ has no files, and "data" has no pipes.
        peer.create(&ipc, &Want::existing("innocent")).await.expect(Status::OBJECT_NAME_NOT_FOUND);
        peer.create(&mount, &Want::existing("srvsvc")).await.expect(Status::OBJECT_NAME_NOT_FOUND);
    });
}

#[test]
fn f5_names_that_cannot_be_are_invalid() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let mut names: Vec<Vec<u8>> = [
            "a\0b",
            "\0",
            "a/b",
            "a<b",
            "a>b",
            "a|b",
            "a\"b",
            "a*",
            "a?b",
            "a\x01b",
            "a\x1Fb",
            "a:b:$BITMAP",
            "a:b:c:d",
            ":",
            "a:",
            "::",
        ]
        .iter()
        .map(|name| utf16(name))
        .collect();
        // A lone surrogate is not valid UTF-16: these names have one at their beginning, in their
        // middle and at their end.
        names.push(vec![0x00, 0xD8]);
        names.push([utf16("a"), vec![0x00, 0xDC], utf16("b")].concat());
        names.push([utf16("a"), vec![0xFF, 0xDB]].concat());
        // These names are too long: 256 characters, or fewer characters but more than 255 bytes.
        names.push(utf16(&"n".repeat(256)));
        names.push(utf16(&"ü".repeat(128)));
        names.push(utf16(&"\u{1F600}".repeat(64)));
        names.push(utf16(&"n\\".repeat(16_000)));
        for name in names {
            let want = Want { name: name.clone(), ..Want::file("") };
            let reply = peer.create(&mount, &want).await;
            let text = String::from_utf16_lossy(
                &name.chunks(2).map(|c| u16::from_le_bytes([c[0], c[1]])).collect::<Vec<_>>(),
            );
            assert_eq!(reply.status(), Status::OBJECT_NAME_INVALID, "{text:?}");
        }
        let left: Vec<_> = std::fs::read_dir(world.dir.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "only the innocent file: {left:?}");
    });
}

/// Names that are accepted come back unchanged, and no two names become one file.
#[test]
fn f5_names_that_are_taken_stay_apart() {
    in_world(async |world| {
        let names = [
            "a".repeat(255),
            "ü".repeat(127),
            "\u{1F600}".repeat(63),
            "ß".into(),
            "ss".into(),
            "COM1".into(),
            "nul".into(),
            "a b".into(),
            "tab.le".into(),
            "Å".into(),
            "A\u{30A}".into(),
            "\u{FEFF}x".into(),
            "%41".into(),
            "a'b;c&d$(e)`f`".into(),
            "~1".into(),
            "-rf".into(),
        ];
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let mut refused = Vec::new();
        for (number, name) in names.iter().enumerate() {
            let want = Want::file(name).disposition(CreateDisposition::CREATE);
            let reply = peer.create(&mount, &want).await;
            if reply.status() != Status::SUCCESS {
                refused.push((name.clone(), reply.status()));
                continue;
            }
            let file = file_id(&reply);
            peer.write(&mount, file, 0, format!("number {number}").as_bytes()).await;
            peer.close(&mount, file).await;
        }
        assert!(
            refused.iter().all(|(_, status)| *status == Status::OBJECT_NAME_INVALID),
            "{refused:?}"
        );
        for (number, name) in names.iter().enumerate() {
            if refused.iter().any(|(other, _)| other == name) {
                continue;
            }
            let file = peer.open_file(&mount, &Want::existing(name)).await;
            let content = peer.read(&mount, file, 0, 100).await;
            assert_eq!(content, format!("number {number}").as_bytes(), "{name:?}");
            assert_eq!(world.content(name), content, "{name:?} on disk");
        }
        println!("refused: {refused:?}");
    });
}

/// Trailing dots and spaces, which Windows clients take away before they ask:
/// whatever the answer, not a file of another name.
#[test]
fn f5_trailing_dots_and_spaces_never_name_another_file() {
    in_world(async |world| {
        world.file("name", b"plain");
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for name in ["name.", "name ", "name..", "name. .", "name   "] {
            let reply = peer.create(&mount, &Want::existing(name)).await;
            assert!(
                matches!(
                    reply.status(),
                    Status::OBJECT_NAME_NOT_FOUND | Status::OBJECT_NAME_INVALID
                ),
                "{name:?}: {:?}",
                reply.status()
            );
        }
    });
}

/// Case twins on disk: each is reached by its exact name, others get one of
/// them, never a third file.
#[test]
fn f5_case_twins_are_reached_by_their_exact_names() {
    in_world(async |world| {
        world.file("twin", b"lower");
        world.file("TWIN", b"upper");
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for (name, content) in [("twin", b"lower"), ("TWIN", b"upper")] {
            let file = peer.open_file(&mount, &Want::existing(name)).await;
            assert_eq!(peer.read(&mount, file, 0, 100).await, content);
            peer.close(&mount, file).await;
        }
        let want = Want::file("Twin").disposition(CreateDisposition::CREATE);
        peer.create(&mount, &want).await.expect(Status::OBJECT_NAME_COLLISION);
    });
}

/// `::$DATA` is the file itself.
#[test]
fn f5_the_unnamed_stream_is_the_file() {
    in_world(async |world| {
        world.file("file", b"content");
        std::fs::create_dir(world.path("dir")).unwrap();
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::existing("file::$DATA")).await;
        assert_eq!(peer.read(&mount, file, 0, 100).await, b"content");
        peer.close(&mount, file).await;
        let directory = CreateOptions::DIRECTORY_FILE;
        let file = CreateOptions::NON_DIRECTORY_FILE;
        // MS-FSA 2.1.5.1: a stream type that does not fit a file or a directory is refused. Each
        // case has a name, options and the status.
        for (name, options, status) in [
            ("dir::$DATA", CreateOptions::EMPTY, Status::FILE_IS_A_DIRECTORY),
            ("dir::$DATA", directory, Status::NOT_A_DIRECTORY),
            ("file::$DATA", directory, Status::NOT_A_DIRECTORY),
            ("file::$INDEX_ALLOCATION", CreateOptions::EMPTY, Status::NOT_A_DIRECTORY),
            ("file:$I30:$INDEX_ALLOCATION", CreateOptions::EMPTY, Status::NOT_A_DIRECTORY),
            ("dir::$INDEX_ALLOCATION", file, Status::FILE_IS_A_DIRECTORY),
            ("dir::$INDEX_ALLOCATION", CreateOptions::EMPTY, Status::SUCCESS),
            ("dir:$i30:$index_allocation", directory, Status::SUCCESS),
        ] {
            peer.create(&mount, &Want::existing(name).options(options)).await.expect(status);
        }
        // For a new name, $INDEX_ALLOCATION makes a directory and $DATA makes a file.
        peer.open_file(&mount, &Want::file("made::$INDEX_ALLOCATION")).await;
        assert!(world.path("made").is_dir());
        peer.open_file(&mount, &Want::file("plain::$DATA")).await;
        assert!(world.path("plain").is_file());
        assert_eq!(world.content("file"), b"content");
    });
}
