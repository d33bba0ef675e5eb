//! Namespaces that administrators make over the network at the nodes of a cluster, with a real etcd.

mod harness;

use std::fs;
use std::time::{Duration, Instant};

use frevo_etcd::client::{Client, Endpoint, Options};
use frevo_etcd::engine::{Engine as _, RangeAnswer};
use frevo_etcd::types::{Keys, LeaseId, Op, Range, Revision, Txn};
use frevo_rpc::WinError;
use frevo_rpc::netdfs::{MOVE, MoveLink};
use harness::etcd::{Etcd, free_ports};
use harness::netdfs::{add, call, info, no_root, paths, remove, root};
use harness::{Sandbox, Serving};

/// The longest time for which a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);
const OK: WinError = WinError::SUCCESS;

/// Two nodes with the share `data` of the cluster, each with a share `own` of its own.
struct Nodes {
    place: Sandbox,
    etcd: Etcd,
    ports: [u16; 2],
}

impl Nodes {
    fn new() -> Option<Self> {
        let place = Sandbox::new();
        let etcd = Etcd::start(&place, "etcd")?;
        place.folder("shared");
        place.file("password", "secret", 0o600);
        let nodes = Self { place, etcd, ports: free_ports() };
        for node in 0..2 {
            let state = nodes.place.folder(&format!("state{node}"));
            let text = format!(
                "[server]\nlisten = [\"127.0.0.1:{}\"]\nstate_dir = {state:?}\ndiscovery = \"off\"\n\
                 sid = \"S-1-5-21-1-2-3\"\nnetwork_namespaces = true\nadministrators = [\"ann\"]\n\
                 [cluster]\nname = \"nas\"\nnode = \"n{node}\"\nendpoints = [\"{}\"]\n\
                 [[user]]\nname = \"ann\"\npassword_file = {:?}\n\
                 [[share]]\nname = \"data\"\npath = {:?}\ncluster = true\nfence = \"none\"\n\
                 [[share]]\nname = \"own\"\npath = {:?}\n",
                nodes.ports[node],
                nodes.etcd.url(),
                nodes.place.path("password"),
                nodes.place.path("shared"),
                nodes.place.folder(&format!("own{node}")),
            );
            nodes.place.file(&format!("n{node}.toml"), &text, 0o600);
        }
        Some(nodes)
    }

    fn serve(&self, node: usize) -> Serving {
        let log = fs::File::create(self.place.path(&format!("n{node}.log"))).unwrap();
        let mut command = self.place.command(&["serve", "--config", &format!("n{node}.toml")]);
        command.stderr(log);
        let mut server = Serving::start(command);
        server.address = format!("127.0.0.1:{}", self.ports[node]);
        self.wait("the node has not reached etcd", || self.can_log_on(node));
        server
    }

    /// True if the node gives sessions numbers: it has reached etcd.
    fn can_log_on(&self, node: usize) -> bool {
        let url = format!("smb://ann@127.0.0.1:{}/own", self.ports[node]);
        let mut command = self.place.command(&["ls", &url]);
        command.env("FREVO_PASSWORD", "secret");
        command.output().unwrap().status.success()
    }

    fn log(&self, node: usize) -> String {
        fs::read_to_string(self.place.path(&format!("n{node}.log"))).unwrap()
    }

    #[track_caller]
    fn wait(&self, what: &str, is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < PATIENCE, "{what}\n{}\n{}", self.log(0), self.log(1));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a node tells a number of links of the namespace `data`.
    #[track_caller]
    fn wait_for_links(&self, server: &Serving, count: usize) {
        self.wait("the links are not there", || links(server).len() == count);
    }

    fn state(&self, node: usize, file: &str) -> String {
        fs::read_to_string(self.place.path(&format!("state{node}/{file}"))).unwrap_or_default()
    }

    /// The keys of etcd that begin with a text, with their values.
    fn found(&self, prefix: &str) -> Vec<(String, String)> {
        let keys = Keys::Prefix(prefix.as_bytes().to_vec());
        let range = Range { keys, limit: 0, after: Vec::new(), revision: Revision(0) };
        let answer: RangeAnswer = self.ask(|client, done| client.range(range, done));
        let text = |bytes| String::from_utf8(bytes).unwrap();
        answer.values.into_iter().map(|one| (text(one.key), text(one.value))).collect()
    }

    /// Sets keys of etcd in one transaction, as somebody else does.
    fn put(&self, values: &[(&str, &str)]) {
        let op = |(key, value): &(&str, &str)| Op::Put {
            key: key.as_bytes().to_vec(),
            value: value.as_bytes().to_vec(),
            lease: LeaseId(0),
        };
        let success = values.iter().map(op).collect();
        self.ask(|client, done| client.txn(Txn { success, ..Txn::default() }, done));
    }

    fn ask<T: Send + 'static>(&self, ask: impl FnOnce(&Client, frevo_etcd::engine::Done<T>)) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let options = Options::new(vec![Endpoint::parse(&self.etcd.url()).unwrap()]);
        runtime.block_on(async {
            let client = Client::new(options, runtime.handle().clone()).unwrap();
            let (done, answer) = tokio::sync::oneshot::channel();
            ask(&client, Box::new(|end| _ = done.send(end)));
            answer.await.unwrap().unwrap()
        })
    }
}

/// The links of the namespace `data` at a node, by their paths below the root.
fn links(server: &Serving) -> Vec<String> {
    let all = paths(server, "ann", r"\\box\data", 1).into_iter();
    all.filter_map(|path| Some(path.split_once(r"\data\")?.1.to_owned())).collect()
}

fn link(name: &str) -> String {
    format!(r"\\box\data\{name}")
}

fn ask(server: &Serving, calls: &[(u16, Vec<u8>)]) -> Vec<WinError> {
    call(server, "ann", calls)
}

#[test]
fn a_change_at_one_node_is_there_at_all() {
    let Some(nodes) = Nodes::new() else { return };
    let servers = [nodes.serve(0), nodes.serve(1)];
    let told = ask(&servers[0], &[root("data"), add(&link(r"dept\red"), "one"), root("own")]);
    assert_eq!(told, [OK, OK, OK], "{}", nodes.log(0));
    // The node that has answered serves it at once.
    assert_eq!(links(&servers[0]), [r"dept\red"]);
    nodes.wait_for_links(&servers[1], 1);
    // Another target, and a change that does not go with one that the other node has made.
    let told = ask(
        &servers[1],
        &[add(&link(r"dept\red"), "two"), add(&link("dept"), "one"), root("DATA")],
    );
    assert_eq!(told, [OK, WinError::FILE_EXISTS, WinError::FILE_EXISTS]);
    // The namespace of a node's own share is that node's alone.
    assert!(info(&servers[0], "ann", r"\\box\own").is_ok());
    assert_eq!(info(&servers[1], "ann", r"\\box\own").unwrap_err(), WinError::NOT_FOUND);
    assert!(!nodes.state(0, "namespaces.toml").contains("data"));
    assert!(nodes.state(1, "cluster-namespaces.toml").contains("red"));

    // A node that was down starts with what the others have made.
    let [first, second] = servers;
    assert_eq!(first.stop().code, 0);
    let go = MoveLink { from: link("dept"), to: link("new"), flags: 0 };
    assert_eq!(ask(&second, &[(MOVE, go.encode()), add(&link("x"), "one")]), [OK, OK]);
    let first = nodes.serve(0);
    nodes.wait_for_links(&first, 2);
    assert_eq!(info(&first, "ann", &link(r"new\red")).unwrap().storages.len(), 2);
    assert_eq!(ask(&first, &[remove(&link("x"), None), no_root("data")]), [OK, OK]);
    nodes.wait("the root stays", || info(&second, "ann", r"\\box\data").is_err());
    assert_eq!(nodes.found("frevo/nas/namespace/"), []);
}

#[test]
fn changes_at_two_nodes_at_once_are_all_kept() {
    const EACH: usize = 12;
    let Some(nodes) = Nodes::new() else { return };
    let servers = [nodes.serve(0), nodes.serve(1)];
    assert_eq!(ask(&servers[0], &[root("data")]), [OK]);
    std::thread::scope(|scope| {
        for (node, server) in servers.iter().enumerate() {
            scope.spawn(move || {
                let one = |at| add(&link(&format!("n{node}-{at}")), "one");
                let calls: Vec<_> = (0..EACH).map(one).collect();
                assert_eq!(ask(server, &calls), [OK; EACH]);
            });
        }
    });
    for server in &servers {
        nodes.wait_for_links(server, 2 * EACH);
    }
    assert_eq!(nodes.found("frevo/nas/namespace/").len(), 2 * EACH + 1);
}

#[test]
fn without_etcd_links_are_read_and_not_changed() {
    let Some(mut nodes) = Nodes::new() else { return };
    let servers = [nodes.serve(0), nodes.serve(1)];
    assert_eq!(ask(&servers[0], &[root("data"), add(&link("a"), "one")]), [OK, OK]);
    nodes.wait_for_links(&servers[1], 1);
    nodes.etcd.kill();
    assert_eq!(ask(&servers[1], &[add(&link("b"), "one")]), [WinError::RETRY]);
    assert!(nodes.log(1).contains("etcd does not answer"), "{}", nodes.log(1));
    assert_eq!(links(&servers[1]).len(), 1);
    // A root of a node's own share needs no etcd.
    assert_eq!(ask(&servers[1], &[root("own")]), [OK]);
    nodes.etcd.begin();
    nodes.wait("etcd is not heeded", || ask(&servers[1], &[add(&link("c"), "one")]) == [OK]);
    nodes.wait("the other node does not follow", || links(&servers[0]).contains(&"c".to_owned()));
}

#[test]
fn the_first_node_gives_the_cluster_its_file() {
    let Some(nodes) = Nodes::new() else { return };
    let namespace = |name: &str, link: &str| {
        format!(
            "[[namespace]]\nname = \"{name}\"\n[[namespace.link]]\npath = \"{link}\"\ntargets = ['\\\\x\\y']\n"
        )
    };
    for node in 0..2 {
        let link =
            |at| format!("[[namespace.link]]\npath = \"{node}-{at}\"\ntargets = ['\\\\x\\y']\n");
        let many: String = (0..300).map(link).collect();
        let text = namespace("data", "a") + &many + &namespace("own", "b");
        nodes.place.file(&format!("state{node}/namespaces.toml"), &text, 0o600);
    }
    let first = nodes.serve(0);
    nodes.wait("etcd has none", || nodes.state(0, "cluster-namespaces.toml").contains("0-299"));
    let second = nodes.serve(1);
    nodes.wait("etcd does not count", || {
        !nodes.state(1, "namespaces.toml.before-cluster").is_empty()
    });
    for (node, server) in [first, second].iter().enumerate() {
        nodes.wait_for_links(server, 301);
        assert_eq!(info(server, "ann", &link("0-7")).unwrap().storages.len(), 1);
        assert_eq!(info(server, "ann", r"\\box\own\b").unwrap().storages.len(), 1);
        let own = nodes.state(node, "namespaces.toml");
        assert!(own.contains("own") && !own.contains("data"), "{own}");
        let left = nodes.state(node, "namespaces.toml.before-cluster");
        assert!(left.contains(&format!("{node}-299")) && left.contains("own"));
    }
    assert!(nodes.log(0).contains("etcd had no namespaces and has those of this node now"));
    assert!(nodes.log(1).contains("this file has other namespaces"), "{}", nodes.log(1));
}

#[test]
fn what_somebody_else_puts_into_etcd_is_refused() {
    let Some(nodes) = Nodes::new() else { return };
    let server = nodes.serve(0);
    assert_eq!(ask(&server, &[root("data"), add(&link("a"), "one")]), [OK, OK]);
    let head = nodes.found("frevo/nas/namespaces").remove(0).1;
    let folder = nodes.found("frevo/nas/namespace/");
    let folder = folder[0].0.rsplit_once('/').unwrap().0.rsplit_once('/').unwrap().0.to_owned();
    let forged = [
        (format!("{folder}/x/"), "[[share]]\nname = \"root\"\npath = \"/\"\n".to_owned()),
        (format!("{folder}/x/y"), "no toml [".to_owned()),
    ];
    let mut values: Vec<(&str, &str)> =
        forged.iter().map(|(key, value)| (&**key, &**value)).collect();
    values.push(("frevo/nas/namespaces", &head));
    nodes.put(&values);
    nodes.wait("it is not told", || nodes.log(0).contains("are not used"));
    assert_eq!(ask(&server, &[add(&link("b"), "one")]), [OK]);
    assert_eq!(links(&server).len(), 2);
    // A form of a later version: what was before is served on, and not changed.
    nodes.put(&[("frevo/nas/namespaces", "frevo-namespaces 2 x")]);
    nodes.wait("it is not told", || nodes.log(0).contains("cannot be used"));
    assert_eq!(ask(&server, &[add(&link("c"), "one")]), [WinError::INTERNAL_ERROR]);
    assert_eq!(links(&server).len(), 2);
    nodes.put(&[("frevo/nas/namespaces", &head)]);
    nodes.wait("it is not read again", || ask(&server, &[add(&link("c"), "one")]) == [OK]);
    assert_eq!(links(&server).len(), 3);
    assert_eq!(server.stop().code, 0);
}

/// A configuration that a reload cannot apply: the change is taken back.
#[test]
fn a_change_that_a_node_cannot_serve_is_taken_back() {
    let Some(nodes) = Nodes::new() else { return };
    let servers = [nodes.serve(0), nodes.serve(1)];
    assert_eq!(ask(&servers[0], &[root("data"), add(&link("a"), "one")]), [OK, OK]);
    let good = fs::read_to_string(nodes.place.path("n0.toml")).unwrap();
    let grouped = good.replace("cluster = true", "cluster = true\ngroup = \"g\"");
    nodes.place.file("n0.toml", &grouped, 0o600);
    assert_eq!(ask(&servers[0], &[add(&link("b"), "one")]), [WinError::INTERNAL_ERROR]);
    nodes.wait("it stays in etcd", || nodes.found("frevo/nas/namespace/").len() == 2);
    nodes.place.file("n0.toml", &good, 0o600);
    assert_eq!(ask(&servers[0], &[add(&link("c"), "one")]), [OK]);
    for server in &servers {
        nodes.wait("b is served", || links(server) == ["a", "c"]);
    }
}
