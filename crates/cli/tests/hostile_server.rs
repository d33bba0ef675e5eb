//! The program against a server that lies: nothing is written outside of the
//! folder that was named, whatever things are called there.

#[path = "../../client/tests/evil/mod.rs"]
mod evil;
mod harness;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use evil::{Act, Asked, CONTENT, Evil, Manners, Overheard, Script};
use frevo_net::transport::Stream;
use frevo_wire::command::negotiate::Dialect;
use frevo_wire::command::session_setup::SessionFlags;
use frevo_wire::{Command, Status};
use harness::{PATIENCE, Said, Sandbox, said};

/// A server at an address of its own, for as long as the test runs.
fn start(manners: Manners, script: impl Fn(&Asked<'_>) -> Act + Send + Sync + 'static) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (manners, script): (_, Arc<Script>) = (Arc::new(manners), Arc::new(script));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let count = AtomicUsize::new(0);
            while let Ok((stream, _)) = listener.accept().await {
                let evil = Evil {
                    manners: Arc::clone(&manners),
                    script: Arc::clone(&script),
                    overheard: Overheard::default(),
                    connection: count.fetch_add(1, Ordering::SeqCst),
                };
                tokio::spawn(evil.serve(Stream::Tcp(stream)));
            }
        });
    });
    address
}

fn run(place: &Sandbox, arguments: &[&str]) -> Said {
    said(place.command(arguments).env("FREVO_PASSWORD", "secret").output().unwrap())
}

/// All that is in the place, as paths relative to it.
fn all(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                waiting.push(path.clone());
            }
            found.push(path.strip_prefix(root).unwrap().to_owned());
        }
    }
    found.sort();
    found
}

/// Lists `root` in the share's root, and good names below it.
fn listing(root: &[(&str, bool)]) -> Manners {
    let root = root.iter().map(|(name, is_dir)| ((*name).to_owned(), *is_dir)).collect();
    Manners { root, ..Manners::default() }
}

#[test]
fn names_that_lead_out_of_the_folder_are_not_followed() {
    let secret = "secret of the user";
    for name in ["../out", "..\\out", "/tmp/out-of-frevo", "a/../../out", "good\0", "..", "."] {
        for verb in ["get", "sync"] {
            let place = Sandbox::new();
            place.folder("into");
            place.file("out", secret, 0o600);
            let before = all(&place.path(""));
            let server = start(listing(&[(name, name.starts_with('.'))]), |_| Act::Honest);
            let url = format!("smb://ann@{server}/data");
            let done = match verb {
                "get" => run(&place, &["get", "-r", "--patience", "2", &url, "into"]),
                _ => run(&place, &["sync", "--delete", "--patience", "2", &url, "into"]),
            };
            // The names `.` and `..` are skipped silently; the command refuses every other name of
            // the list.
            if matches!(name, "." | "..") {
                done.succeeds();
            } else {
                done.fails(1, &["a name that is not a file name"]);
            }
            let after: Vec<_> =
                all(&place.path("")).into_iter().filter(|path| !path.starts_with("into")).collect();
            let before: Vec<_> =
                before.into_iter().filter(|path| !path.starts_with("into")).collect();
            assert_eq!(after, before, "{verb} {name:?}");
            assert_eq!(fs::read_to_string(place.path("out")).unwrap(), secret);
            assert!(!Path::new("/tmp/out-of-frevo").exists());
        }
    }
}

/// Names that SMB forbids become no local files, and move no cursor.
#[test]
fn names_with_control_characters_are_refused() {
    let place = Sandbox::new();
    let root = [("good", false), ("p\u{1b}[2Jq", false), ("a\nb", false), ("dir\r", true)];
    let server = start(listing(&root), |_| Act::Honest);
    let url = format!("smb://ann@{server}/data");
    for verb in [&["get", "-r", "--patience", "2"][..], &["sync", "--patience", "2"]] {
        let done = run(&place, &[verb, &[&url, verb[0]]].concat());
        assert_eq!(done.code, 1, "{done:?}");
        assert!(done.err.contains("control character") && !done.err.contains('\u{1b}'), "{done:?}");
        assert!(done.err.contains("a%0Ab") && done.err.contains("3 files failed"), "{done:?}");
        assert_eq!(all(&place.path(verb[0])), [Path::new("good")]);
    }
}

/// Links of the server's are not made here, so none can lead what follows astray;
/// what is not called a directory in its listing is not walked into.
#[test]
fn links_and_changing_kinds_lead_nowhere() {
    let place = Sandbox::new();
    place.folder("into");
    // The listing has the name `x` twice: as a file and as a directory.
    let server = start(listing(&[("x", false), ("x", true)]), |_| Act::Honest);
    let url = format!("smb://ann@{server}/data");
    let done = run(&place, &["get", "-r", "--patience", "2", &url, "into"]);
    assert_ne!(done.code, 0);
    assert!(done.err.starts_with("frevo: "), "{done:?}");
    // The file `known` becomes a reparse point only in the listing.
    let server = start(listing(&[("known", false)]), |asked| match asked.header.command {
        Command::QUERY_DIRECTORY => Act::Changed(Box::new(|message| {
            // Sets FileAttributes (REPARSE_POINT) and the tag of the first entry (a symbolic link).
            let at = 72 + 56;
            if message.len() > at + 12 {
                message[at..at + 4].copy_from_slice(&0x400_u32.to_le_bytes());
                message[at + 8..at + 12].copy_from_slice(&0xA000_000C_u32.to_le_bytes());
            }
        })),
        _ => Act::Honest,
    });
    let url = format!("smb://ann@{server}/data");
    place.folder("links");
    run(&place, &["get", "-r", "--patience", "2", &url, "links/new"]).succeeds();
    assert!(
        all(&place.path("links")).iter().all(|path| !place.path("links").join(path).is_symlink())
    );
}

/// As NTFS lists what is being written just now, or was written by another of its names.
#[test]
fn a_listing_that_is_behind_makes_no_empty_files() {
    let place = Sandbox::new();
    let server = start(listing(&[("known", false)]), |asked| match asked.header.command {
        Command::QUERY_DIRECTORY => Act::Changed(Box::new(|message| {
            // Clears EndOfFile of the first entry, so that the file looks empty in the listing.
            if let Some(len) = message.get_mut(72 + 40..72 + 48) {
                len.fill(0);
            }
        })),
        _ => Act::Honest,
    });
    let url = format!("smb://ann@{server}/data");
    for verb in [&["get", "-r"][..], &["sync"]] {
        let into = place.folder(verb[0]);
        run(&place, &[verb, &["--patience", "2", &url, verb[0]]].concat()).succeeds();
        let got = all(&into).into_iter().find(|path| path.ends_with("known")).unwrap();
        assert_eq!(fs::read(into.join(got)).unwrap(), CONTENT, "{verb:?}");
    }
}

#[test]
fn a_tree_without_end_ends() {
    let place = Sandbox::new();
    // Each directory lists a directory `dir`, so the tree has no end.
    let server = start(listing(&[("dir", true)]), |_| Act::Honest);
    let url = format!("smb://ann@{server}/data");
    let done = run(&place, &["get", "-r", "--patience", "2", &url, "into"]);
    done.fails(1, &["too many files, or directories too deep for one command"]);
    assert!(all(&place.path("")).is_empty(), "nothing was begun");
}

#[test]
fn an_honest_answer_is_taken() {
    let place = Sandbox::new();
    let server = start(Manners { seal: true, ..listing(&[("known", false)]) }, |_| Act::Honest);
    let url = format!("smb://ann@{server}/data");
    run(&place, &["get", "-r", &url, "into"]).succeeds();
    assert_eq!(fs::read(place.path("into/known")).unwrap(), CONTENT);
}

/// Ctrl-C ends what waits for a server that does not answer.
#[test]
fn a_listing_can_be_interrupted() {
    let place = Sandbox::new();
    let unanswered = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&unanswered);
    let server = start(listing(&[("dir", true)]), move |asked| match asked.header.command {
        Command::QUERY_DIRECTORY if asked.nth >= 2 => {
            count.fetch_add(1, Ordering::SeqCst);
            Act::Silence
        }
        _ => Act::Honest,
    });
    let url = format!("smb://ann@{server}/data");
    for arguments in
        [&["ls", "-R", &url][..], &["get", "-r", &url, "into"], &["sync", &url, "into"]]
    {
        let before = unanswered.load(Ordering::SeqCst);
        let child = place.command(arguments).env("FREVO_PASSWORD", "secret").spawn().unwrap();
        let started = Instant::now();
        while unanswered.load(Ordering::SeqCst) == before {
            assert!(started.elapsed() < PATIENCE, "{arguments:?} does not ask");
            std::thread::sleep(Duration::from_millis(5));
        }
        let begun = Instant::now();
        let pid = child.id().to_string();
        assert!(
            std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success()
        );
        let done = said(child.wait_with_output().unwrap());
        assert_eq!(done.code, 130, "{arguments:?}: {done:?}");
        assert!(begun.elapsed() < PATIENCE, "{arguments:?}: {:?}", begun.elapsed());
    }
}

/// Answers as a server whose share `dfs` is a namespace: what begins with `link` in it
/// leads to `target`. Counts what is set, such as removals.
fn namespace(
    target: &'static str,
    settings: Arc<AtomicUsize>,
) -> impl Fn(&Asked<'_>) -> Act + Send + Sync {
    use frevo_wire::command::create;
    use frevo_wire::command::ioctl::dfs::ReferralRequest;
    use frevo_wire::command::ioctl::{self, CtlCode};
    use frevo_wire::{HeaderFlags, Status};
    // `next` is one of these: PLAIN (the root of an ordinary share), LINKED (the root of the
    // namespace) or LISTED (the listing has ended).
    const PLAIN: usize = 0;
    const LINKED: usize = 1;
    const LISTED: usize = 2;
    let next = AtomicUsize::new(LISTED);
    move |asked| match asked.header.command {
        Command::TREE_CONNECT if asked.message.ends_with(b"\\\0d\0f\0s\0") => {
            // The tree connect response announces the capability SMB2_SHARE_CAP_DFS.
            Act::Changed(Box::new(|message| message[72..76].copy_from_slice(&[8, 0, 0, 0])))
        }
        Command::CREATE if asked.header.flags.contains(HeaderFlags::DFS_OPERATIONS) => {
            let request = create::Request::parse(asked.message).unwrap();
            if request.name.to_string_lossy().contains(evil::LINK) {
                return Act::Refused(Status::PATH_NOT_COVERED);
            }
            next.store(LINKED, Ordering::SeqCst);
            Act::Honest
        }
        Command::CREATE => {
            next.store(PLAIN, Ordering::SeqCst);
            Act::Honest
        }
        Command::QUERY_DIRECTORY => match next.swap(LISTED, Ordering::SeqCst) {
            PLAIN => Act::Body(evil::buffer(&evil::entries(&[("behind".into(), false)]))),
            _ => Act::Honest,
        },
        Command::SET_INFO => {
            settings.fetch_add(1, Ordering::SeqCst);
            Act::Honest
        }
        Command::IOCTL => {
            let request = ioctl::Request::parse(asked.message).unwrap();
            assert_eq!(request.ctl_code, CtlCode::DFS_GET_REFERRALS);
            let path = ReferralRequest::parse(request.input).unwrap().path;
            match path.contains(evil::LINK) {
                true => refer(&request, target),
                false => Act::Refused(Status::NOT_FOUND),
            }
        }
        _ => Act::Honest,
    }
}

/// A referral for all that was asked for.
fn refer(request: &frevo_wire::command::ioctl::Request<'_>, target: &str) -> Act {
    use frevo_wire::codec::Writer;
    use frevo_wire::command::ioctl::Response;
    use frevo_wire::command::ioctl::dfs::{Referral, ReferralHeaderFlags, ReferralResponse};
    let referral = Referral {
        is_root: false,
        time_to_live_s: 60,
        path: String::new(),
        target: target.into(),
        begins_set: false,
    };
    let path_consumed = u16::try_from(request.input.len() - 4).unwrap();
    let flags = ReferralHeaderFlags::EMPTY;
    let referrals = vec![referral];
    let output = ReferralResponse { path_consumed, flags, referrals }.encode().unwrap();
    let (ctl_code, file_id) = (request.ctl_code, request.file_id);
    let mut body = Vec::new();
    Response { ctl_code, file_id, input: &[], output: &output }.encode(&mut Writer::new(&mut body));
    Act::Body(body)
}

#[test]
fn trees_with_links_of_a_namespace_in_them() {
    let root = || listing(&[("known", false), ("link1", true)]);
    let settings = Arc::new(AtomicUsize::new(0));
    let place = Sandbox::new();
    let server = start(root(), namespace("\\127.0.0.1\\data", Arc::clone(&settings)));
    let url = format!("smb://ann@{server}/dfs");
    let listed = run(&place, &["ls", "-R", &url]);
    assert_eq!(listed.succeeds(), "known\nlink1/\nlink1/behind\n");
    assert_eq!(run(&place, &["tree", "--json", &url]).succeeds().lines().count(), 3);
    run(&place, &["get", "-r", &url, "back"]).succeeds();
    assert_eq!(fs::read(place.path("back/link1/behind")).unwrap(), CONTENT);
    // The DFS link's target is outside of the tree, so nothing may be removed there; the server
    // counts such requests.
    settings.store(0, Ordering::SeqCst);
    let removed = run(&place, &["rm", "-r", &format!("{url}/dir")]);
    assert!(removed.code != 0 && removed.err.contains("DFS"), "{removed:?}");
    assert_eq!(settings.load(Ordering::SeqCst), 0);
    // The link leads back to the root, so the tree has no end.
    let server = start(root(), namespace("\\127.0.0.1\\dfs", Arc::clone(&settings)));
    for verb in [&["ls", "-R"][..], &["tree"], &["get", "-r"], &["find"]] {
        let back = format!("smb://ann@{server}/dfs");
        let listed = run(&place, &[verb, &[&back]].concat());
        assert!(listed.code != 0 && listed.err.contains("leads back"), "{listed:?}");
    }
    // With `--dfs never` the link is not followed, so it is not listed as a directory (no slash).
    let listed = run(&place, &["ls", "-R", "--dfs", "never", &url]);
    assert_eq!(listed.succeeds(), "known\nlink1\n");
}

/// A tree that a server takes its time to let go of: another file comes up in it, and its
/// removal is answered with success before it is done.
#[test]
fn a_tree_that_goes_reluctantly() {
    use frevo_wire::Status;
    use frevo_wire::command::create;
    use frevo_wire::dtyp::AccessMask;
    use std::sync::Mutex;
    let removed = Arc::new(Mutex::new(Vec::<String>::new()));
    let [refusals, looks, listings, ended] = [0; 4].map(|_| Arc::new(AtomicUsize::new(0)));
    let (log, seen, end) = (Arc::clone(&removed), Arc::clone(&looks), Arc::clone(&ended));
    let script = move |asked: &Asked<'_>| match asked.header.command {
        Command::CREATE => {
            let request = create::Request::parse(asked.message).unwrap();
            let name = request.name.to_string_lossy();
            if request.desired_access.contains(AccessMask::DELETE) {
                log.lock().unwrap().push(name);
                return Act::Honest;
            }
            let is_gone = refusals.load(Ordering::SeqCst) > 2;
            match is_gone && seen.fetch_add(1, Ordering::SeqCst) > 1 {
                true => Act::Refused(Status::OBJECT_NAME_NOT_FOUND),
                false => Act::Honest,
            }
        }
        Command::SET_INFO if log.lock().unwrap().last().is_some_and(|name| name == "dir") => {
            match refusals.fetch_add(1, Ordering::SeqCst) {
                0 | 1 => Act::Refused(Status::DIRECTORY_NOT_EMPTY),
                _ => Act::Honest,
            }
        }
        // Each complete listing takes two requests, so the third one begins a second listing.
        Command::QUERY_DIRECTORY if listings.fetch_add(1, Ordering::SeqCst) == 2 => {
            Act::Body(evil::buffer(&evil::entries(&[("late".into(), false)])))
        }
        Command::LOGOFF => {
            end.fetch_add(1, Ordering::SeqCst);
            Act::Honest
        }
        _ => Act::Honest,
    };
    let server = start(listing(&[("early", false)]), script);
    let place = Sandbox::new();
    run(&place, &["rm", "-r", &format!("smb://ann@{server}/data/dir")]).succeeds();
    let removed = removed.lock().unwrap().clone();
    let wanted = ["dir\\early", "dir", "dir\\late", "dir", "dir\\early", "dir"];
    assert_eq!(removed, wanted);
    assert_eq!(looks.load(Ordering::SeqCst), 3, "until it is gone");
    assert_eq!(ended.load(Ordering::SeqCst), 1, "the server is told of the end");
}

/// A file that cannot be read does not stop the other downloads.
#[test]
fn one_bad_file_is_not_the_end_of_a_tree() {
    use frevo_wire::Status;
    use frevo_wire::command::create;
    let script = |asked: &Asked<'_>| match asked.header.command {
        Command::CREATE => {
            let name = create::Request::parse(asked.message).unwrap().name.to_string_lossy();
            match name.contains("bad") {
                true => Act::Refused(Status::ACCESS_DENIED),
                false => Act::Honest,
            }
        }
        _ => Act::Honest,
    };
    for bad in [&["bad"][..], &["bad", "bad2"]] {
        let mut names: Vec<_> = bad.iter().map(|name| (*name, false)).collect();
        names.extend([("good", false), ("good2", false)]);
        let server = start(listing(&names), script);
        let place = Sandbox::new();
        let got = run(&place, &["get", "-r", &format!("smb://ann@{server}/data/"), "back"]);
        assert_eq!(got.code, 1, "{got:?}");
        assert_eq!(got.err.matches("permission denied").count(), bad.len(), "{got:?}");
        assert_eq!(got.err.lines().count(), if bad.len() == 1 { 1 } else { bad.len() + 1 });
        assert_eq!(fs::read_dir(place.path("back")).unwrap().count(), 2);
    }
}

/// A server need not know the classes by which it tells the size of its file system.
#[test]
fn df_of_a_server_that_tells_no_size() {
    const FILESYSTEM: u8 = 2;
    let place = Sandbox::new();
    for status in [Status::NOT_SUPPORTED, Status::NOT_IMPLEMENTED, Status::INVALID_INFO_CLASS] {
        let script = move |asked: &Asked<'_>| match asked.header.command {
            Command::QUERY_INFO if asked.message[66] == FILESYSTEM => Act::Refused(status),
            _ => Act::Honest,
        };
        let url = format!("smb://ann@{}/data", start(listing(&[("known", false)]), script));
        let sentence = "the server does not tell the size of its file system";
        let told = run(&place, &["df", &url]);
        told.fails(1, &[sentence]);
        assert!(told.err.contains(&url) && !told.err.contains("STATUS"), "{told:?}");
    }
    // A refusal with another status is reported to the user.
    let script = |asked: &Asked<'_>| match asked.header.command {
        Command::QUERY_INFO => Act::Refused(Status::ACCESS_DENIED),
        _ => Act::Honest,
    };
    let url = format!("smb://ann@{}/data", start(listing(&[("known", false)]), script));
    run(&place, &["df", &url]).fails(1, &["permission denied"]);
}

/// A server that is too old is told with what helps.
#[test]
fn old_servers_are_told_with_their_dialect() {
    let place = Sandbox::new();
    let old = start(Manners { dialect: Dialect::SMB_2_1, ..listing(&[("known", false)]) }, |_| {
        Act::Honest
    });
    run(&place, &["ls", &format!("smb://ann@{old}/data")])
        .fails(5, &["no newer dialect than SMB 2.1", "--min-dialect 2.1"]);
    // MS-SMB2 3.3.5.4: the server refuses a NEGOTIATE without a dialect that it knows. The dialects
    // follow 36 bytes of the body.
    let offered = |asked: &Asked<'_>| asked.message[100..102] == [0x02, 0x02];
    let refuses = start(
        Manners { dialect: Dialect::SMB_2_0_2, ..listing(&[("known", false)]) },
        move |asked| match asked.header.command {
            Command::NEGOTIATE if !offered(asked) => Act::Refused(Status::NOT_SUPPORTED),
            _ => Act::Honest,
        },
    );
    let url = format!("smb://ann@{refuses}/data");
    run(&place, &["ls", &url]).fails(5, &["SMB 2.0.2", "--min-dialect 2.0.2"]);
    // This server closes each connection that does not begin with SMB 1.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for stream in listener.incoming() {
            let (mut stream, mut begin) = (stream.unwrap(), [0; 8]);
            if stream.read_exact(&mut begin).is_ok() && begin.ends_with(b"\xffSMB") {
                let _ = stream.write_all(&[&[0, 0, 0, 35][..], b"\xffSMBr", &[0; 30]].concat());
                let _ = stream.read_to_end(&mut Vec::new());
            }
        }
    });
    run(&place, &["ls", "--patience", "1", &format!("smb://ann@{address}/data")])
        .fails(5, &["only SMB 1", "update the server"]);
}

/// A guest's session is refused, or taken with a warning.
#[test]
fn a_guest_is_told_what_is_not_protected() {
    let place = Sandbox::new();
    let guest = Manners { flags: SessionFlags::IS_GUEST, ..listing(&[("known", false)]) };
    let server = start(guest, |_| Act::Honest);
    let url = format!("smb://ann@{server}/data");
    run(&place, &["ls", &url]).fails(4, &["only as a guest", "--guest"]);
    let taken = run(&place, &["ls", "--guest", &url]);
    assert_eq!(taken.succeeds(), "known\n");
    assert!(taken.err.contains("Nothing is signed or encrypted"), "{taken:?}");
    run(&place, &["ls", "--guest", "--encrypt", &url]).fails(2, &["--guest"]);
}
