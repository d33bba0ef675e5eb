//! Three servers with one folder and one etcd: a node is killed, shares are moved, a node ends, etcd is away.

mod harness;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use harness::etcd::{Etcd, free_ports};
use harness::{Said, Sandbox, Serving, said, text};
use serde_json::Value;

/// The longest time for which a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);
const PASSWORD: &str = "a long secret";
/// The SID of all nodes.
const SID: &str = "S-1-5-21-1-2-3";

/// Three nodes with one folder.
struct Cluster {
    place: Sandbox,
    etcd: Etcd,
    /// The ports of the nodes.
    ports: [u16; 3],
    nodes: Vec<Option<Serving>>,
}

impl Cluster {
    fn start() -> Option<Self> {
        let place = Sandbox::new();
        let etcd = Etcd::start(&place, "etcd")?;
        place.folder("shared");
        place.file("password", PASSWORD, 0o600);
        let mut cluster = Self { place, etcd, ports: free_ports(), nodes: Vec::new() };
        for node in 0..3 {
            cluster.write_configuration(node, "");
            let serving = cluster.begin(node);
            cluster.nodes.push(Some(serving));
        }
        Some(cluster)
    }

    fn configuration(&self, node: usize) -> PathBuf {
        self.place.path(&format!("n{node}.toml"))
    }

    fn write_configuration(&self, node: usize, keys: &str) {
        let (state, folder) =
            (self.place.folder(&format!("state{node}")), self.place.path("shared"));
        let text = format!(
            "[server]\nlisten = [\"127.0.0.1:{}\"]\nstate_dir = {state:?}\ndiscovery = \"off\"\n\
             sid = \"{SID}\"\n\
             [limits]\ndrain_seconds = 10\n\
             [cluster]\nname = \"nas\"\nnode = \"n{node}\"\nendpoints = [\"{}\"]\n\
             [[user]]\nname = \"ann\"\npassword_file = {:?}\n\
             [[share]]\nname = \"Data\"\npath = {folder:?}\ncluster = true\ncontinuous = true\n\
             fence = \"none\"\n{keys}\n",
            self.ports[node],
            self.etcd.url(),
            self.place.path("password"),
        );
        self.place.file(&format!("n{node}.toml"), &text, 0o600);
    }

    fn begin(&self, node: usize) -> Serving {
        let log = fs::File::create(self.place.path(&format!("n{node}.log"))).unwrap();
        let configuration = self.configuration(node);
        let mut command = self.place.command(&["serve", "--config", text(&configuration)]);
        command.stderr(log);
        Serving::start(command)
    }

    /// The log of all nodes, for a test that fails.
    fn logs(&self) -> String {
        let read = |node| {
            let log = fs::read_to_string(self.place.path(&format!("n{node}.log")));
            format!("--- n{node}\n{}", log.unwrap_or_default())
        };
        (0..3).map(read).collect()
    }

    /// Runs `frevo cluster` against a node.
    fn admin(&self, node: usize, words: &[&str]) -> Said {
        let socket = self.place.path(&format!("state{node}/admin.sock"));
        let words = [&["cluster"], words, &["--socket", text(&socket)]].concat();
        self.place.run(&words)
    }

    fn view(&self, node: usize) -> Value {
        let said = self.admin(node, &["status", "--json"]);
        serde_json::from_str(said.succeeds()).unwrap()
    }

    /// Waits until a node says that the share has an owner by which it is served. Returns its number.
    fn owner(&self) -> usize {
        let began = Instant::now();
        loop {
            for node in (0..3).filter(|node| self.nodes[*node].is_some()) {
                let view = self.view(node);
                let unit = &view["units"][0];
                let is_served = unit["state"] == "owned" && view["is_serving"] == true;
                if is_served && unit["owner"] == view["node"] {
                    return node;
                }
            }
            assert!(began.elapsed() < PATIENCE, "nobody owns the share\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Writes a file through a node, as a client.
    fn put(&self, node: usize, name: &str) -> Said {
        let source = self.place.file("source", name, 0o644);
        let url = format!("smb://ann@127.0.0.1:{}/data/{name}", self.ports[node]);
        let mut command = self.place.command(&["put", "--patience", "2", text(&source), &url]);
        command.env("FREVO_PASSWORD", PASSWORD);
        said(command.output().unwrap())
    }

    /// Writes a file through the first node that takes it: a client that looks for the owner.
    fn put_somewhere(&self, name: &str) -> usize {
        let began = Instant::now();
        loop {
            for node in (0..3).filter(|node| self.nodes[*node].is_some()) {
                if self.put(node, name).code == 0 {
                    return node;
                }
            }
            assert!(began.elapsed() < PATIENCE, "{name} cannot be written\n{}", self.logs());
        }
    }

    fn kept(&self, name: &str) -> bool {
        fs::read_to_string(self.place.path("shared").join(name)).is_ok_and(|text| text == name)
    }
}

#[test]
fn another_node_serves_when_the_owner_is_killed() {
    let Some(mut cluster) = Cluster::start() else { return };
    let first = cluster.owner();
    assert_eq!(cluster.put_somewhere("one"), first);
    for other in (0..3).filter(|node| *node != first) {
        assert_ne!(cluster.put(other, "two").code, 0, "n{other} does not own the share");
    }
    cluster.nodes[first].as_ref().unwrap().signal("-KILL");
    let began = Instant::now();
    let _ = cluster.nodes[first].take();
    let second = cluster.put_somewhere("three");
    eprintln!("served again after {:?} (without a fence, TTL 2 s)", began.elapsed());
    assert_ne!(second, first);
    assert!(cluster.kept("one") && cluster.kept("three") && !cluster.kept("two"));
    let view = cluster.view(second);
    let because = view["units"][0]["because"].as_str().unwrap();
    assert_eq!(because, format!("n{first} did not answer any more"));
    let told = view["happenings"].to_string();
    assert!(told.contains("without a fence"), "{told}");
    // The node comes back, and does not take the share back.
    let again = cluster.begin(first);
    cluster.nodes[first] = Some(again);
    assert_eq!(cluster.owner(), second);
}

#[test]
fn a_node_that_is_killed_and_started_again_goes_on_at_once() {
    let Some(mut cluster) = Cluster::start() else { return };
    let owner = cluster.owner();
    for other in (0..3).filter(|node| *node != owner) {
        assert_eq!(cluster.nodes[other].take().unwrap().stop().code, 0);
    }
    cluster.nodes[owner].as_ref().unwrap().signal("-KILL");
    let _ = cluster.nodes[owner].take();
    let again = cluster.begin(owner);
    cluster.nodes[owner] = Some(again);
    assert_eq!(cluster.owner(), owner);
    let view = cluster.view(owner);
    assert_eq!(view["units"][0]["because"], format!("n{owner} gave it away"));
    assert!(!view["happenings"].to_string().contains("without a fence"));
}

#[test]
fn shares_move_while_a_client_writes() {
    let Some(cluster) = Cluster::start() else { return };
    let owner = cluster.owner();
    let files = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let names = (0..12).map(|number| format!("file{number}"));
            names.inspect(|name| _ = cluster.put_somewhere(name)).collect::<Vec<_>>()
        });
        for step in 1..=3 {
            let to = format!("n{}", (owner + step) % 3);
            // The share as clients call it, and its unit: names are compared without case.
            cluster.admin(owner, &["move", "DATA", &to]).succeeds();
            assert_eq!(cluster.owner(), (owner + step) % 3);
        }
        writing.join().unwrap()
    });
    assert!(files.iter().all(|name| cluster.kept(name)));
    cluster.admin(owner, &["move", "data", "nobody"]).fails(2, &["cannot serve the share"]);
    cluster.admin(owner, &["move", "music", "n1"]).fails(2, &["no share music"]);
    // The witness knows the nodes, and no client has registered with it.
    cluster.admin(owner, &["move-client", "pc", "n1"]).fails(2, &["no client pc is registered"]);
    cluster.admin(owner, &["move-client", "pc", "n9"]).fails(2, &["n9 is not up"]);
    let shown = cluster.admin(owner, &["status"]);
    assert!(shown.succeeds().contains("cluster nas, node"), "{shown:?}");
    assert!(shown.out.contains("has no fence"), "{shown:?}");
}

#[test]
fn a_node_that_ends_or_is_drained_gives_its_shares_away() {
    let Some(mut cluster) = Cluster::start() else { return };
    let first = cluster.owner();
    let ended = cluster.nodes[first].take().unwrap().stop();
    assert_eq!(ended.code, 0, "{ended:?}\n{}", cluster.logs());
    let second = cluster.owner();
    let view = cluster.view(second);
    assert_eq!(view["units"][0]["because"], format!("n{first} gave it away"));
    assert_eq!(view["nodes"].as_array().unwrap().len(), 2);
    let name = format!("n{second}");
    cluster.admin(second, &["drain", &name]).succeeds();
    let third = cluster.owner();
    assert!(third != first && third != second);
    let drained = cluster.view(third)["nodes"].to_string();
    assert!(drained.contains("\"drained\""), "{drained}");
    cluster.admin(third, &["undrain", &name]).succeeds();
    assert!(!cluster.view(third)["nodes"].to_string().contains("\"drained\""));
}

#[test]
fn losing_etcd_needs_nobodys_hand() {
    let Some(mut cluster) = Cluster::start() else { return };
    let owner = cluster.owner();
    let epoch = cluster.view(owner)["units"][0]["epoch"].clone();
    cluster.etcd.kill();
    let began = Instant::now();
    while cluster.view(owner)["is_serving"] == true {
        assert!(began.elapsed() < PATIENCE, "it serves without etcd\n{}", cluster.logs());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_ne!(cluster.put(owner, "paused").code, 0);
    let began = Instant::now();
    while cluster.view(owner)["etcd_answers"] == true {
        assert!(began.elapsed() < PATIENCE, "etcd has gone\n{}", cluster.logs());
        std::thread::sleep(Duration::from_millis(50));
    }
    let shown = cluster.admin(owner, &["status"]);
    assert!(shown.succeeds().contains("etcd does not answer"), "{shown:?}");
    cluster.etcd.begin();
    assert_eq!(cluster.owner(), owner);
    assert_eq!(cluster.view(owner)["units"][0]["epoch"], epoch);
    assert_eq!(cluster.put_somewhere("after"), owner);
    let log = cluster.logs();
    assert!(log.contains("etcd answers again") && log.contains("nothing is served"), "{log}");
}

#[test]
fn a_node_whose_endpoints_are_two_etcds_serves_nothing() {
    let place = Sandbox::new();
    let Some(etcd) = Etcd::start(&place, "etcd") else { return };
    let other = Etcd::start(&place, "other").unwrap();
    place.folder("shared");
    place.file("password", PASSWORD, 0o600);
    let mut cluster = Cluster { place, etcd, ports: free_ports(), nodes: Vec::new() };
    cluster.write_configuration(0, "");
    let path = cluster.configuration(0);
    let [one, other] = [cluster.etcd.url(), other.url()].map(|url| format!("{url:?}"));
    let both = fs::read_to_string(&path).unwrap().replace(&one, &format!("{one}, {other}"));
    fs::write(&path, both).unwrap();
    let serving = cluster.begin(0);
    cluster.nodes.push(Some(serving));
    let began = Instant::now();
    while !cluster.logs().contains("are not members of one etcd") {
        assert!(began.elapsed() < PATIENCE, "{}", cluster.logs());
        std::thread::sleep(Duration::from_millis(50));
    }
    // A node takes a share without an owner within two TTLs.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(cluster.view(0)["is_serving"], false, "{}", cluster.logs());
    assert_ne!(cluster.put(0, "nowhere").code, 0);
    let said = cluster.place.run(&["cluster", "check", text(&path)]);
    assert!(said.code == 3 && said.err.contains("are not members of one etcd"), "{said:?}");
}

#[test]
fn a_check_compares_the_nodes() {
    let Some(mut cluster) = Cluster::start() else { return };
    let check = |cluster: &Cluster| {
        let path = cluster.configuration(0);
        cluster.place.run(&["cluster", "check", text(&path)])
    };
    let began = Instant::now();
    // The reports come after the registrations.
    loop {
        let said = check(&cluster);
        if said.code == 0 && !said.err.contains("no node is up") {
            assert!(said.err.contains("share Data has no fence"), "{said:?}");
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{said:?}");
    }
    cluster.write_configuration(2, "encrypt = true");
    assert_eq!(cluster.nodes[2].take().unwrap().stop().code, 0);
    let again = cluster.begin(2);
    cluster.nodes[2] = Some(again);
    let path = cluster.configuration(1);
    let other = fs::read_to_string(&path).unwrap().replace(SID, "S-1-5-21-1-2-4");
    fs::write(&path, other).unwrap();
    assert_eq!(cluster.nodes[1].take().unwrap().stop().code, 0);
    let again = cluster.begin(1);
    cluster.nodes[1] = Some(again);
    let began = Instant::now();
    loop {
        let said = check(&cluster);
        let expected = ["data: node n2 has other keys", "the SID of node n1 is S-1-5-21-1-2-4"];
        if said.code == 3 && expected.iter().all(|text| said.err.contains(text)) {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{said:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    let told = cluster.place.run(&["cluster"]);
    assert!(told.succeeds().contains("apt install etcd-server"));
    cluster.etcd.kill();
    let said = check(&cluster);
    assert!(said.code == 3 && said.err.contains("the nodes cannot be compared"), "{said:?}");
}

#[test]
fn a_dialect_is_raised_when_all_nodes_speak_it() {
    let Some(mut cluster) = Cluster::start() else { return };
    let restart = |cluster: &mut Cluster, most: &str| {
        cluster.write_configuration(2, "");
        let path = cluster.configuration(2);
        let keys = format!("[server]\nmax_dialect = \"{most}\"\n");
        let text = fs::read_to_string(&path).unwrap().replace("[server]\n", &keys);
        fs::write(&path, text).unwrap();
        assert_eq!(cluster.nodes[2].take().unwrap().stop().code, 0);
        let again = cluster.begin(2);
        cluster.nodes[2] = Some(again);
        let began = Instant::now();
        while cluster.view(0)["nodes"][2]["dialect"] != most {
            assert!(began.elapsed() < PATIENCE, "n2 does not come back\n{}", cluster.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    cluster.owner();
    restart(&mut cluster, "3.0.2");
    cluster.admin(0, &["raise"]).fails(2, &["n2 does not speak SMB 3.1.1"]);
    assert_eq!(cluster.view(0)["max_dialect"], Value::Null);
    let raised = cluster.admin(0, &["raise", "--to", "3.0.2"]);
    assert!(raised.succeeds().contains("SMB 3.0.2 is the newest dialect of clients"), "{raised:?}");
    let shown = cluster.admin(0, &["status"]);
    assert!(shown.succeeds().contains("clients use SMB 3.0.2 at most"), "{shown:?}");
    cluster.admin(0, &["raise", "--to", "3.0"]).fails(2, &["never lowered"]);
    // A client of that dialect is served.
    let owner = cluster.owner();
    let source = cluster.place.file("source", "old", 0o644);
    let url = format!("smb://ann@127.0.0.1:{}/data/old", cluster.ports[owner]);
    let mut put = cluster.place.command(&["put", "--max-dialect", "3.0.2", text(&source), &url]);
    put.env("FREVO_PASSWORD", PASSWORD);
    said(put.output().unwrap()).succeeds();
    assert!(cluster.kept("old"));
    restart(&mut cluster, "3.1.1");
    cluster.admin(2, &["raise"]).succeeds();
    assert_eq!(cluster.view(0)["max_dialect"], "3.1.1");
    // A node that does not speak it comes back, and has no shares.
    restart(&mut cluster, "3.0.2");
    let shown = cluster.admin(0, &["status"]);
    assert!(shown.succeeds().contains("n2 does not speak SMB 3.1.1"), "{shown:?}");
    assert_eq!(cluster.view(0)["nodes"][2]["state"], "behind");
    cluster.admin(0, &["move", "data", "n2"]).fails(2, &["cannot serve the share"]);
    let log = fs::read_to_string(cluster.place.path("n2.log")).unwrap();
    assert!(log.contains("this node does not speak SMB 3.1.1"), "{log}");
    let path = cluster.configuration(0);
    let checked = cluster.place.run(&["cluster", "check", text(&path)]);
    let wanted = "node n2 speaks SMB 3.0.2 at most, and the cluster demands 3.1.1";
    assert!(checked.code == 3 && checked.err.contains(wanted), "{checked:?}");
}
