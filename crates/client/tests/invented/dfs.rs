//! Links of DFS namespaces, crossed in the middle of operations: scripted servers, each
//! with a name of its own, good and evil ones.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::dialed;
use crate::evil;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use dialed::on_paused_clock;
use evil::{Act, Asked, CONTENT, Evil, Manners, Overheard, Script};
use frevo_client::internal::Dial;
use frevo_client::internal::Dialing;
use frevo_client::{
    Cause, Client, Credentials, Error, OpenOptions, Options, Referrals, ServerName, Share, SmbUrl,
};
use frevo_wire::codec::Writer;
use frevo_wire::command::create;
use frevo_wire::command::ioctl::dfs::{
    NameList, Referral, ReferralHeaderFlags, ReferralRequest, ReferralResponse,
};
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::command::session_setup::SessionFlags;
use frevo_wire::{Command, HeaderFlags, Status};
use parking_lot::Mutex;

/// Seconds that referrals live.
const LIVES: u32 = 300;

/// The requests to all servers, in order: `host command name`.
type Log = Arc<Mutex<Vec<String>>>;

/// A server.
#[derive(Default)]
struct Host {
    /// Its shares are of a namespace, with these links: `share\path` and their targets.
    links: Option<Vec<(&'static str, Vec<&'static str>)>>,
    /// It has no shares but IPC$, and knows these roots.
    roots: Vec<(&'static str, Vec<&'static str>)>,
    /// Domains and their controllers.
    domains: Vec<(&'static str, Vec<&'static str>)>,
    root: Vec<(&'static str, bool)>,
    flags: SessionFlags,
    is_down: AtomicBool,
    /// Connections to it are neither made nor refused.
    is_silent: AtomicBool,
    /// It takes connections and requests, and answers nothing more.
    is_mute: AtomicBool,
    /// It takes its time to log users on, or all time there is.
    logon: Logon,
    /// It goes down when it is asked to open something.
    falls: AtomicBool,
    /// Every name exists.
    collides: AtomicBool,
    dialed: AtomicUsize,
    /// Tree connects to IPC$.
    pipes: AtomicUsize,
}

/// The way in which a server answers SESSION_SETUPs.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Logon {
    #[default]
    AtOnce,
    /// A byte each such time.
    Slow(Duration),
    Never,
}

impl Host {
    fn linked(links: &[(&'static str, &[&'static str])]) -> Self {
        let links = links.iter().map(|(path, targets)| (*path, targets.to_vec())).collect();
        Self { links: Some(links), ..Self::default() }
    }

    fn act(&self, name: &str, log: &Log, asked: &Asked<'_>) -> Act {
        if self.is_down.load(Ordering::SeqCst) {
            return Act::Close;
        }
        if self.is_mute.load(Ordering::SeqCst) {
            return Act::Silence;
        }
        let note = |what: &str| log.lock().push(format!("{name} {what}"));
        match asked.header.command {
            Command::SESSION_SETUP => match self.logon {
                Logon::AtOnce => Act::Honest,
                Logon::Slow(pause) => Act::Drip(pause),
                Logon::Never => Act::Silence,
            },
            Command::TREE_CONNECT if asked.message.ends_with(b"I\0P\0C\0$\0") => {
                self.pipes.fetch_add(1, Ordering::SeqCst);
                Act::Honest
            }
            Command::TREE_CONNECT if !self.roots.is_empty() => {
                Act::Refused(Status::BAD_NETWORK_NAME)
            }
            // The tree connect response announces the capability SMB2_SHARE_CAP_DFS.
            Command::TREE_CONNECT if self.links.is_some() => {
                Act::Changed(Box::new(|message| message[72..76].copy_from_slice(&[8, 0, 0, 0])))
            }
            Command::CREATE => {
                let request = create::Request::parse(asked.message).unwrap();
                let path = request.name.to_string_lossy();
                note(&format!("open {path}"));
                if self.falls.load(Ordering::SeqCst) {
                    self.is_down.store(true, Ordering::SeqCst);
                    return Act::Close;
                }
                if self.collides.load(Ordering::SeqCst) {
                    return Act::Refused(Status::OBJECT_NAME_COLLISION);
                }
                let is_dfs = asked.header.flags.contains(HeaderFlags::DFS_OPERATIONS);
                assert_eq!(is_dfs, self.links.is_some(), "{path}");
                if !is_dfs {
                    return Act::Honest;
                }
                let path = path.strip_prefix(&format!("{name}\\")).expect("the whole path");
                let is_covered = |link: &str| behind(path, link).is_none();
                if self.links.iter().flatten().all(|(link, _)| is_covered(link)) {
                    Act::Honest
                } else {
                    Act::Refused(Status::PATH_NOT_COVERED)
                }
            }
            Command::SET_INFO => {
                note("set");
                Act::Honest
            }
            Command::IOCTL => self.refer(name, &note, asked),
            _ => Act::Honest,
        }
    }

    fn refer(&self, name: &str, note: &impl Fn(&str), asked: &Asked<'_>) -> Act {
        let request = ioctl::Request::parse(asked.message).unwrap();
        assert_eq!(request.ctl_code, CtlCode::DFS_GET_REFERRALS);
        assert!(asked.header.flags.contains(HeaderFlags::SIGNED) || self.flags.0 != 0);
        let path = ReferralRequest::parse(request.input).unwrap().path;
        note(&format!("refer {path}"));
        let path = path.strip_prefix('\\').unwrap();
        let of_roots = self.roots.iter().map(|(root, targets)| ((*root).to_owned(), targets));
        let links = self.links.iter().flatten();
        let links = links.map(|(link, targets)| (format!("{name}\\{link}"), targets));
        let found = of_roots.chain(links).filter(|(link, _)| behind(path, link).is_some());
        if let Some((link, targets)) = found.max_by_key(|(link, _)| link.len()) {
            return answered(&request, &referral(1 + link.len(), targets));
        }
        if let Some((domain, controllers)) = self.domains.iter().find(|(domain, _)| *domain == path)
        {
            let controllers = controllers.iter().map(|name| format!("\\{name}")).collect();
            let list = NameList { time_to_live_s: LIVES, domain: (*domain).into(), controllers };
            return answered(&request, &list.encode().unwrap());
        }
        Act::Refused(Status::NOT_FOUND)
    }
}

fn behind<'a>(path: &'a str, link: &str) -> Option<&'a str> {
    path.strip_prefix(link).filter(|rest| rest.is_empty() || rest.starts_with('\\'))
}

/// A referral; a `|` before a target begins a set of targets, one before the first also demands failback.
fn referral(consumed: usize, targets: &[&str]) -> Vec<u8> {
    let referral = |target: &&str| Referral {
        is_root: false,
        time_to_live_s: LIVES,
        path: String::new(),
        target: target.trim_start_matches('|').into(),
        begins_set: target.starts_with('|'),
    };
    let mut flags = ReferralHeaderFlags::STORAGE_SERVERS;
    if targets.first().is_some_and(|first| first.starts_with('|')) {
        flags |= ReferralHeaderFlags::TARGET_FAILBACK;
    }
    let response = ReferralResponse {
        path_consumed: u16::try_from(consumed * 2).unwrap(),
        flags,
        referrals: targets.iter().map(referral).collect(),
    };
    response.encode().unwrap()
}

fn answered(request: &ioctl::Request<'_>, output: &[u8]) -> Act {
    let (ctl_code, file_id) = (request.ctl_code, request.file_id);
    let mut body = Vec::new();
    ioctl::Response { ctl_code, file_id, input: &[], output }.encode(&mut Writer::new(&mut body));
    Act::Body(body)
}

/// All servers there are.
#[derive(Default)]
struct Hosts {
    all: HashMap<&'static str, Arc<Host>>,
    log: Log,
}

impl std::fmt::Debug for Hosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hosts")
    }
}

impl Dial for Hosts {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        Box::pin(async move {
            let found = self.all.get_key_value(&*server.host);
            let Some((name, host)) = found else {
                self.log.lock().push(format!("nobody is {}", server.host));
                return Err(io::ErrorKind::ConnectionRefused.into());
            };
            let connection = host.dialed.fetch_add(1, Ordering::SeqCst);
            if host.is_silent.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            if host.is_down.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let root = host.root.iter().map(|(name, is_dir)| ((*name).into(), *is_dir)).collect();
            let manners = Manners { root, flags: host.flags, ..Manners::default() };
            let (host, log, name) = (Arc::clone(host), Arc::clone(&self.log), *name);
            let script: Arc<Script> = Arc::new(move |asked| host.act(name, &log, asked));
            let manners = Arc::new(manners);
            let evil = Evil { manners, script, overheard: Overheard::default(), connection };
            Ok(evil.stream())
        })
    }
}

/// The servers, and a client of theirs.
struct World {
    hosts: Arc<Hosts>,
    client: Client,
}

impl World {
    /// The share `dfs` of `root`.
    async fn share(&self) -> Share {
        let user = Credentials::new("ann", "secret");
        let session = self.client.connect(ServerName::new("root"), user).await.unwrap();
        session.share("dfs").await.unwrap()
    }

    async fn reach(&self, server: &str, path: &str) -> Result<(String, String), Error> {
        let user = Credentials::new("ann", "secret");
        let (share, path) = self.client.resolve(&SmbUrl::new(server, "dfs", path), &user).await?;
        Ok((format!("{}/{}", share.session().server(), share.name()), path))
    }

    fn host(&self, name: &str) -> &Host {
        &self.hosts.all[name]
    }

    fn dialed(&self, name: &str) -> usize {
        self.host(name).dialed.load(Ordering::SeqCst)
    }

    /// Returns the requests since the last call.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.hosts.log.lock())
    }
}

fn with(hosts: impl IntoIterator<Item = (&'static str, Host)>, test: impl AsyncFnOnce(&World)) {
    let recover_for = Duration::from_secs(5);
    with_options(hosts, Options::new().recover_for(recover_for), test);
}

fn with_options(
    hosts: impl IntoIterator<Item = (&'static str, Host)>,
    options: Options,
    test: impl AsyncFnOnce(&World),
) {
    on_paused_clock(async {
        let all = hosts.into_iter().map(|(name, host)| (name, Arc::new(host))).collect();
        let hosts = Arc::new(Hosts { all, log: Log::default() });
        let client = Client::with_dialer(options, Arc::clone(&hosts) as Arc<dyn Dial>);
        let world = World { hosts, client };
        let bound = Duration::from_secs(3_600);
        tokio::time::timeout(bound, test(&world)).await.expect("it has an end");
    });
}

#[test]
fn a_link_in_the_middle_of_a_path_is_crossed() {
    let root = Host::linked(&[("dfs\\docs", &["\\one\\data\\dir"])]);
    with([("root", root), ("one", Host::default())], async |world| {
        let share = world.share().await;
        assert_eq!(share.read("docs/x/known").await.unwrap(), CONTENT);
        assert_eq!(
            world.asked(),
            [
                "root open root\\dfs\\docs\\x\\known",
                "root refer \\root\\dfs\\docs\\x\\known",
                "one open dir\\x\\known",
            ]
        );
        // All operations on these paths use the cached referral, so the root's server is not asked
        // again.
        assert!(share.metadata("Docs/dir").await.unwrap().is_dir());
        assert_eq!(share.list_dir("docs").await.unwrap().len(), 0);
        share.write("docs/new", b"1").await.unwrap();
        share.create_dir_all("docs/dir/dir").await.unwrap();
        let file = OpenOptions::new().read(true).open(&share, "docs/known").await.unwrap();
        assert_eq!(file.share().session().server().host, "one");
        assert_eq!(file.metadata_at_open().len(), CONTENT.len() as u64);
        file.close().await.unwrap();
        assert_eq!(share.real_url("docs/known").await.unwrap(), "smb://one/data/dir/known");
        let asked = world.asked();
        assert!(asked.iter().all(|asked| asked.starts_with("one open dir")), "{asked:?}");
        assert_eq!(world.dialed("one"), 1);
        // This file is not behind a link, so it is opened on the root's server.
        share.read("known").await.unwrap();
        assert_eq!(world.asked(), ["root open root\\dfs\\known"]);
        // The lifetime of the referral has passed, so the client asks for it again.
        tokio::time::advance(Duration::from_secs(u64::from(LIVES) + 1)).await;
        share.read("docs/known").await.unwrap();
        assert_eq!(world.asked().len(), 3);
    });
}

#[test]
fn the_targets_of_a_link_are_told() {
    let root = Host::linked(&[
        ("dfs\\docs", &["\\nowhere\\data", "\\one\\data\\dir"]),
        ("dfs\\to", &["\\two\\dfs"]),
    ]);
    let two = Host::linked(&[("dfs\\on", &["\\one\\data"])]);
    let hosts = [("root", root), ("one", Host::default()), ("two", two)];
    with(hosts, async |world| {
        let share = world.share().await;
        let targets = async |path: &str| share.link_targets(path).await.unwrap();
        assert_eq!(targets("docs").await, ["smb://nowhere/data", "smb://one/data/dir"]);
        // A link behind a link, and the target that works comes first.
        share.read("docs/known").await.unwrap();
        share.read("to/known").await.unwrap();
        assert_eq!(targets("docs").await, ["smb://one/data/dir", "smb://nowhere/data"]);
        assert_eq!(targets("to/on").await, ["smb://one/data"]);
        for no_link in ["", "known", "docs/known", "to/on/known"] {
            assert!(targets(no_link).await.is_empty(), "{no_link:?}");
        }
        assert!(share.link_targets("a/../b").await.is_err());
    });
}

#[test]
fn a_dead_target_is_passed_over_and_the_next_one_stayed_with() {
    let targets = ["\\nowhere\\data", "\\one\\data", "\\two\\data"];
    let root = Host::linked(&[("dfs\\docs", &targets)]);
    let hosts = [("root", root), ("one", Host::default()), ("two", Host::default())];
    with(hosts, async |world| {
        let share = world.share().await;
        share.read("docs/known").await.unwrap();
        let nobody = |asked: &[String]| asked.iter().filter(|a| a.starts_with("nobody")).count();
        assert_eq!(nobody(&world.asked()), 1);
        share.read("docs/known").await.unwrap();
        assert_eq!(world.asked(), ["one open known"]);
        // The new referral has the dead target first again, but the client keeps its preference for
        // the target that works.
        tokio::time::advance(Duration::from_secs(u64::from(LIVES) + 1)).await;
        share.read("docs/known").await.unwrap();
        assert_eq!(nobody(&world.asked()), 0);
        // If the target in use is lost, the operation continues at the next one; if no target is
        // left, it fails.
        world.host("one").is_down.store(true, Ordering::SeqCst);
        assert_eq!(share.read("docs/known").await.unwrap(), CONTENT);
        assert_eq!((world.dialed("two"), share.read("docs/known").await.is_ok()), (1, true));
        world.host("two").is_down.store(true, Ordering::SeqCst);
        let error = share.read("docs/known").await.unwrap_err();
        assert!(matches!(error.cause(), Cause::Transport(_)), "{error}");
    });
}

/// Failback (MS-DFSC 3.1.5.4.3): with the next referral the client goes back to the better set of targets, and
/// without it, it stays where it is.
#[test]
fn a_better_target_is_gone_back_to_if_the_server_asks_for_it() {
    for (targets, after) in
        [(["|\\one\\data", "|\\two\\data"], "one"), (["\\one\\data", "\\two\\data"], "two")]
    {
        let root = Host::linked(&[("dfs\\docs", &targets)]);
        let hosts = [("root", root), ("one", Host::default()), ("two", Host::default())];
        with(hosts, async |world| {
            let share = world.share().await;
            let used = async || {
                let file = share.open("docs/known").await.unwrap();
                let host = file.share().session().server().host.clone();
                file.close().await.unwrap();
                host
            };
            assert_eq!(used().await, "one");
            world.host("one").is_down.store(true, Ordering::SeqCst);
            assert_eq!(used().await, "two");
            world.host("one").is_down.store(false, Ordering::SeqCst);
            assert_eq!(used().await, "two", "the referral still holds");
            tokio::time::advance(Duration::from_secs(u64::from(LIVES) + 1)).await;
            assert_eq!(used().await, after);
        });
    }
}

/// Runs it with two servers at which the link `docs` leads, and much patience.
fn with_two(test: impl AsyncFnOnce(&World, &Share)) {
    let root = Host::linked(&[("dfs\\docs", &["\\one\\data", "\\two\\data"])]);
    let hosts = [("root", root), ("one", Host::default()), ("two", Host::default())];
    let options = Options::new().recover_for(Duration::from_secs(600));
    with_options(hosts, options, async |world| {
        let share = world.share().await;
        share.read("docs/known").await.unwrap();
        assert_eq!((world.dialed("one"), world.dialed("two")), (1, 0));
        test(world, &share).await;
    });
}

#[test]
fn an_operation_does_not_wait_for_a_dead_target_when_there_is_another() {
    with_two(async |world, share| {
        world.host("one").falls.store(true, Ordering::SeqCst);
        let began = tokio::time::Instant::now();
        assert_eq!(share.read("docs/known").await.unwrap(), CONTENT);
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        assert_eq!(world.dialed("one"), 2, "it was given one chance more");
        // The first target can be reached again, and the second target is lost, so the file is
        // opened at the first one.
        world.host("one").falls.store(false, Ordering::SeqCst);
        world.host("one").is_down.store(false, Ordering::SeqCst);
        world.host("two").falls.store(true, Ordering::SeqCst);
        let file = share.open("docs/known").await.unwrap();
        assert_eq!(file.share().session().server().host, "one");
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    });
}

#[test]
fn the_first_that_comes_back_is_gone_on_with() {
    for first in ["one", "two"] {
        with_two(async |world, share| {
            let set = |name: &str, is_down| {
                world.host(name).is_down.store(is_down, Ordering::SeqCst);
            };
            set("one", true);
            set("two", true);
            let began = tokio::time::Instant::now();
            let reads = (0..32).map(|_| share.read("docs/known"));
            let back = async {
                tokio::time::sleep(Duration::from_secs(60)).await;
                set(first, false);
            };
            let (reads, ()) = tokio::join!(futures_util::future::join_all(reads), back);
            assert!(reads.iter().all(|read| read.as_ref().unwrap() == CONTENT), "at {first}");
            let took = began.elapsed().as_secs();
            assert!((60..65).contains(&took), "{took} s");
            // All callers together try once in two seconds. When an attempt ends, one waiting
            // caller may try at once; each of the 32 callers does so at most once.
            for name in ["one", "two"] {
                assert!(world.dialed(name) < 30 + 10 + 32, "{} at {name}", world.dialed(name));
            }
        });
    }
}

#[test]
fn a_target_that_is_silent_keeps_nobody_from_the_first() {
    with_two(async |world, share| {
        world.host("one").is_down.store(true, Ordering::SeqCst);
        world.host("two").is_silent.store(true, Ordering::SeqCst);
        let began = tokio::time::Instant::now();
        let back = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            world.host("one").is_down.store(false, Ordering::SeqCst);
        };
        let (read, ()) = tokio::join!(share.read("docs/known"), back);
        assert_eq!(read.unwrap(), CONTENT);
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
        assert_eq!(world.dialed("two"), 1);
    });
}

#[test]
fn a_silent_target_is_left_for_the_next_soon() {
    let root = Host::linked(&[("dfs\\docs", &["\\one\\data", "\\two\\data"])]);
    let one = Host { is_silent: AtomicBool::new(true), ..Host::default() };
    with([("root", root), ("one", one), ("two", Host::default())], async |world| {
        let share = world.share().await;
        let began = tokio::time::Instant::now();
        assert_eq!(share.read("docs/known").await.unwrap(), CONTENT);
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        assert_eq!((world.dialed("one"), world.dialed("two")), (1, 1));
    });
    // The server falls silent while it is in use. Over a network in memory there are no acknowledgments,
    // which would tell a second later that the path is dead: four seconds of silence count.
    with_two(async |world, share| {
        world.host("one").is_mute.store(true, Ordering::SeqCst);
        let began = tokio::time::Instant::now();
        assert_eq!(share.read("docs/known").await.unwrap(), CONTENT);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert_eq!(world.dialed("two"), 1);
    });
}

/// A server that waits for its domain controller is as near as it was: the next target is not used for it.
#[test]
fn a_slow_logon_loses_no_better_target() {
    let hosts = |logon: Logon| {
        let root = Host::linked(&[("dfs\\docs", &["\\one\\data", "\\two\\data"])]);
        [("root", root), ("one", Host { logon, ..Host::default() }), ("two", Host::default())]
    };
    with(hosts(Logon::Slow(Duration::from_millis(8))), async |world| {
        let share = world.share().await;
        let began = tokio::time::Instant::now();
        let file = share.open("docs/known").await.unwrap();
        assert_eq!(file.share().session().server().host, "one");
        let took = began.elapsed();
        assert!(took > Duration::from_secs(1) && took < Duration::from_secs(5), "{took:?}");
    });
    // One that never answers is passed over.
    with(hosts(Logon::Never), async |world| {
        let share = world.share().await;
        let began = tokio::time::Instant::now();
        let file = share.open("docs/known").await.unwrap();
        assert_eq!(file.share().session().server().host, "two");
        let took = began.elapsed();
        assert!(took > Duration::from_secs(5) && took < Duration::from_secs(7), "{took:?}");
    });
    // So it is with the others of a target that is lost.
    let targets = ["\\zero\\data", "\\one\\data", "\\two\\data"];
    let root = Host::linked(&[("dfs\\docs", &targets)]);
    let [_, one, two] = hosts(Logon::Slow(Duration::from_millis(8)));
    with([("root", root), ("zero", Host::default()), one, two], async |world| {
        let share = world.share().await;
        share.read("docs/known").await.unwrap();
        world.host("zero").is_down.store(true, Ordering::SeqCst);
        let file = share.open("docs/known").await.unwrap();
        assert_eq!(file.share().session().server().host, "one");
    });
}

#[test]
fn targets_that_are_all_silent_are_an_error() {
    let root = Host::linked(&[("dfs\\docs", &["\\one\\data", "\\two\\data"])]);
    let hosts = [("one", true), ("two", true)].map(|(name, is_silent)| {
        (name, Host { is_silent: AtomicBool::new(is_silent), ..Host::default() })
    });
    with(hosts.into_iter().chain([("root", root)]), async |world| {
        let share = world.share().await;
        let error = share.read("docs/known").await.unwrap_err();
        assert!(matches!(error.cause(), Cause::Transport(_)), "{error}");
        assert_eq!((world.dialed("one"), world.dialed("two")), (1, 1), "each is tried once");
    });
}

#[test]
fn nobody_waits_for_a_target_of_anothers_link() {
    let root = Host::linked(&[
        ("dfs\\docs", &["\\one\\data", "\\two\\data"]),
        ("dfs\\more", &["\\three\\data", "\\four\\data"]),
    ]);
    let others = ["one", "two", "three", "four"].map(|name| (name, Host::default()));
    with(others.into_iter().chain([("root", root)]), async |world| {
        let share = world.share().await;
        share.read("docs/known").await.unwrap();
        share.read("more/known").await.unwrap();
        for gone in ["one", "three"] {
            world.host(gone).is_down.store(true, Ordering::SeqCst);
        }
        world.host("two").is_silent.store(true, Ordering::SeqCst);
        let other = async {
            // By now the read of `docs/known` waits for the silent server `two`; the read of
            // `more/known` must not wait for it.
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!(world.dialed("two"), 1);
            let began = tokio::time::Instant::now();
            assert_eq!(share.read("more/known").await.unwrap(), CONTENT);
            began.elapsed()
        };
        let (lost, took) = tokio::join!(share.read("docs/known"), other);
        assert!(matches!(lost.unwrap_err().cause(), Cause::Transport(_)));
        assert!(took < Duration::from_secs(1), "{took:?}");
    });
}

#[test]
fn what_was_reached_by_a_link_is_gone_on_with_at_its_next_target() {
    let root = Host::linked(&[("dfs\\docs", &["\\one\\data", "\\two\\data\\dir"])]);
    let hosts = [("root", root), ("one", Host::default()), ("two", Host::default())];
    with(hosts, async |world| {
        let user = Credentials::new("ann", "secret");
        let root = ServerName::new("root");
        let (share, path) =
            world.client.resolve(&SmbUrl::new(root, "dfs", "docs/known"), &user).await.unwrap();
        assert_eq!((share.session().server().host.as_str(), &*path), ("one", "known"));
        let file = share.open(&path).await.unwrap();
        assert_eq!(share.read(&path).await.unwrap(), CONTENT);
        world.host("one").is_down.store(true, Ordering::SeqCst);
        world.asked();
        assert_eq!(share.read(&path).await.unwrap(), CONTENT);
        assert_eq!(world.asked().last().unwrap(), "two open dir\\known");
        // Source and target are on the share to which the link leads, so one request there renames.
        share.rename_if_not_exists("a", "b/c").await.unwrap();
        let asked = world.asked();
        assert_eq!(asked[asked.len() - 2..], ["two open dir\\a", "two set"]);
        assert!(asked.iter().all(|one| one.starts_with("two ")), "{asked:?}");
        // An open file belongs to the server that was lost, so its handle is not moved to the next
        // target.
        let error = file.read_bytes(0, 10).await.unwrap_err();
        assert!(matches!(error.cause(), Cause::Transport(_)), "{error}");
    });
}

#[test]
fn what_may_have_been_done_is_not_done_at_another_target() {
    with_two(async |world, share| {
        world.host("one").falls.store(true, Ordering::SeqCst);
        let error = share.create_dir("docs/new").await.unwrap_err();
        assert!(matches!(error.cause(), Cause::Unknown), "{error}");
        assert_eq!(world.dialed("two"), 0);
    });
    // The directory exists on the second server, perhaps because this client has made it before the
    // first server was lost.
    with_two(async |world, share| {
        world.host("one").falls.store(true, Ordering::SeqCst);
        world.host("two").collides.store(true, Ordering::SeqCst);
        let mut options = OpenOptions::new();
        options = options.write(true).create_new(true);
        let error = options.open(share, "docs/new").await.unwrap_err();
        assert!(matches!(error.cause(), Cause::Unknown), "{error}");
        // This time no request was sent to a lost server, so the collision is not this client's own
        // and is reported.
        let error = options.open(share, "docs/newer").await.unwrap_err();
        assert_eq!(error.status(), Some(frevo_client::Status::OBJECT_NAME_COLLISION));
    });
}

#[test]
fn links_behind_links() {
    let root = Host::linked(&[("dfs\\a", &["\\two\\more\\dir"])]);
    let two = Host::linked(&[
        ("more\\dir\\b", &["\\three\\data"]),
        // One link leads deeper into its own share, another link leads back to itself.
        ("more\\dir\\c", &["\\two\\more\\dir\\b\\dir"]),
        ("more\\dir\\round", &["\\root\\dfs\\a\\round"]),
    ]);
    with([("root", root), ("two", two), ("three", Host::default())], async |world| {
        let share = world.share().await;
        share.read("a/b/known").await.unwrap();
        assert_eq!(world.asked().last().unwrap(), "three open known");
        share.read("a/c/known").await.unwrap();
        assert_eq!(world.asked().last().unwrap(), "three open dir\\known");
        assert_eq!(world.dialed("three"), 1);
        for path in ["a/round", "a/round/x"] {
            let error = share.read(path).await.unwrap_err();
            assert!(error.to_string().contains("circle"), "{error}");
        }
        assert_eq!(
            world.reach("root", "a/c/x").await.unwrap(),
            ("three/data".into(), "dir/x".into())
        );
    });
}

#[test]
fn what_is_done_to_names() {
    let root = Host::linked(&[
        ("dfs\\docs", &["\\one\\data"]),
        ("dfs\\more", &["\\one\\data\\dir"]),
        ("dfs\\other", &["\\two\\data"]),
    ]);
    let hosts = [("root", root), ("one", Host::default()), ("two", Host::default())];
    with(hosts, async |world| {
        let share = world.share().await;
        share.rename("docs/a", "more/b").await.unwrap();
        let asked = world.asked();
        assert_eq!(asked[asked.len() - 2..], ["one open a", "one set"]);
        for (from, to) in [("docs/a", "other/a"), ("a", "docs/a"), ("docs/a", "a")] {
            for rename in [share.rename(from, to).await, share.hard_link(from, to).await] {
                let error = rename.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::CrossesDevices, "{error}");
                assert!(error.to_string().contains("different shares"), "{error}");
            }
        }
        // The client reports an error for each attempt to remove or change a link of the namespace.
        world.asked();
        for refused in [
            share.remove_dir("docs").await,
            share.remove_file("docs").await,
            share.unlink_file("docs").await,
            share.rename("docs", "elsewhere").await,
        ] {
            let error = refused.unwrap_err();
            assert!(error.to_string().contains("link of a DFS namespace"), "{error}");
        }
        let asked = world.asked();
        assert!(!asked.iter().any(|asked| asked.ends_with("set")), "{asked:?}");
        share.remove_file("docs/x").await.unwrap();
        assert_eq!(world.asked(), ["one open x", "one set"]);
    });
}

#[test]
fn files_of_two_volumes_have_not_the_same_id() {
    let root = Host {
        root: vec![("known", false), ("link", true)],
        ..Host::linked(&[("dfs\\link", &["\\one\\data"])])
    };
    let one = Host { root: vec![("known", false)], ..Host::default() };
    with([("root", root), ("one", one)], async |world| {
        let share = world.share().await;
        let listed = share.list_dir("").await.unwrap();
        let link = listed.iter().find(|entry| entry.file_name() == "link").unwrap().metadata();
        assert!(link.is_dir() && link.is_junction());
        assert!(!listed[0].metadata().is_junction());
        assert!(share.metadata("link").await.unwrap().is_junction());
        assert!(!share.metadata("link/known").await.unwrap().is_junction());
        assert_eq!(share.list_dir("link").await.unwrap()[0].file_name(), "known");
    });
}

#[test]
fn a_policy_bounds_where_links_lead() {
    let hosts = || {
        let root = Host::linked(&[
            ("dfs\\away", &["\\one\\data"]),
            ("dfs\\both", &["\\one\\data", "\\root\\data2"]),
        ]);
        [("root", root), ("one", Host::default())]
    };
    let options = |referrals| Options::new().referrals(referrals);
    with_options(hosts(), options(Referrals::SameHost), async |world| {
        let share = world.share().await;
        let error = share.read("away/known").await.unwrap_err().to_string();
        assert!(error.contains("such links are not to be followed"), "{error}");
        assert!(world.reach("root", "away/known").await.is_err());
        assert_eq!(share.real_url("both").await.unwrap(), "smb://root/dfs/both");
        share.read("both/known").await.unwrap();
        assert_eq!(share.real_url("both").await.unwrap(), "smb://root/data2");
        assert_eq!(world.dialed("one"), 0);
        let referrals = world.asked().iter().filter(|what| what.contains(" refer ")).count();
        let pipes = world.host("root").pipes.load(Ordering::SeqCst);
        assert!(pipes < referrals && pipes <= 2, "once in each session: {pipes}, {referrals}");
    });
    with_options(hosts(), options(Referrals::Never), async |world| {
        let share = world.share().await;
        share.read("known").await.unwrap();
        let error = share.read("away/known").await.unwrap_err();
        assert!(error.to_string().contains("another server (DFS)"), "{error}");
        assert_eq!(world.reach("root", "away/x").await.unwrap().0, "root/dfs");
        assert_eq!(world.dialed("one"), 0);
    });
    // A guest session is not authenticated, so its referrals are not followed to other servers.
    let guest =
        || hosts().map(|(name, host)| (name, Host { flags: SessionFlags::IS_GUEST, ..host }));
    let allowed = Options::new().allow_guest(true);
    with_options(guest(), allowed, async |world| {
        let share = world.share().await;
        assert!(share.read("away/known").await.is_err());
        assert_eq!(world.dialed("one"), 0);
    });
}

#[test]
fn a_domains_namespace() {
    let hosts = || {
        let controller = || Host {
            roots: vec![("corp.example\\dfs", vec!["\\down\\dfs", "\\root\\dfs"])],
            domains: vec![("corp.example", vec!["gone", "dc2"])],
            ..Host::default()
        };
        let root = Host::linked(&[("dfs\\docs", &["\\one\\data"])]);
        [
            ("corp.example", controller()),
            ("dc", controller()),
            ("dc2", controller()),
            ("root", root),
            ("one", Host::default()),
        ]
    };
    // The host of the URL is a domain, whose name leads to one of its controllers.
    with(hosts(), async |world| {
        let found = world.reach("corp.example", "docs/x").await.unwrap();
        assert_eq!(found, ("one/data".into(), "x".into()));
        let asked = world.asked();
        assert_eq!(asked[0], "corp.example refer \\corp.example\\dfs");
        assert_eq!(
            world.reach("corp.example", "y").await.unwrap(),
            ("root/dfs".into(), "y".into())
        );
        assert_eq!(world.dialed("dc2"), 0);
    });
    // The given controller returns the list of controllers. The first one of the list is down, so
    // the next one is asked.
    let dc = Some(ServerName::new("dc"));
    let options = Options::new().domain_controller(dc);
    with_options(hosts(), options.clone(), async |world| {
        let found = world.reach("corp.example", "docs/x").await.unwrap();
        assert_eq!(found, ("one/data".into(), "x".into()));
        let asked = world.asked();
        assert_eq!(asked[..2], ["dc refer \\corp.example", "nobody is gone"]);
        assert_eq!(asked[2], "dc2 refer \\corp.example\\dfs");
        assert_eq!(world.dialed("corp.example"), 0);
        // The name of a server, which is not a domain, is still reached.
        assert_eq!(world.reach("root", "y").await.unwrap().0, "root/dfs");
    });
    let same = options.clone().referrals(Referrals::SameHost);
    with_options(hosts(), same, async |world| {
        assert!(world.reach("corp.example", "docs/x").await.is_err());
        assert_eq!(world.dialed("dc2") + world.dialed("root") + world.dialed("one"), 0);
    });
    let never = options.referrals(Referrals::Never);
    with_options(hosts(), never, async |world| {
        assert!(world.reach("corp.example", "docs/x").await.is_err());
        assert_eq!(world.dialed("dc"), 0, "nobody is asked where it leads");
    });
}

/// A server whose every answer leads on, to hosts without end.
#[test]
fn namespaces_without_end_are_given_up() {
    use frevo_client::limits::{REDIRECTS, TARGETS_TRIED};
    let names: Vec<&'static str> =
        (0..100).map(|at| &*Box::leak(format!("h{at}").into_boxed_str())).collect();
    let target = |at: usize| &*Box::leak(format!("\\h{at}\\dfs\\x").into_boxed_str());
    let mut hosts = vec![("root", Host::linked(&[("dfs", &[target(0)])]))];
    for (at, name) in names.iter().enumerate() {
        hosts.push((*name, Host::linked(&[("dfs", &[target(at + 1)])])));
    }
    with(hosts, async |world| {
        let share = world.share().await;
        assert!(share.read("known").await.is_err());
        let dialed: usize = names.iter().map(|name| world.dialed(name)).sum();
        assert!(dialed <= REDIRECTS.max(TARGETS_TRIED), "{dialed}");
    });
}
