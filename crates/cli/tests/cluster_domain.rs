//! The account that all nodes of a cluster have in a domain: a real etcd, and a script in place of `adcli`. No
//! controller answers; dev/interop has one.

mod harness;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use harness::etcd::{Etcd, free_ports};
use harness::{Said, Sandbox, Serving, said, text};

/// The longest time for which a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Keytabs of MIT's tools, with keys of FREVO.TEST.
const FIRST: &[u8] = include_bytes!("../../auth/src/kerberos/fixtures/types.keytab");
const SECOND: &[u8] = include_bytes!("../../auth/src/kerberos/fixtures/holes.keytab");

/// Takes the place of `adcli`: notes its words, and gives the file `next.keytab` as the keys of the account.
const ADCLI: &str = "#!/bin/sh\n\
    cat > /dev/null\n\
    echo \"$@\" >> HERE/said\n\
    for word; do case $word in --host-keytab=*) cat HERE/next.keytab > \"${word#*=}\";; esac; done\n";

/// Nodes of a cluster, which are not started.
struct Nodes {
    place: Sandbox,
    etcd: Etcd,
}

impl Nodes {
    fn new() -> Option<Self> {
        let place = Sandbox::new();
        let etcd = Etcd::start(&place, "etcd")?;
        place.folder("shared");
        let here = place.folder("bin");
        let script = ADCLI.replace("HERE", text(&here));
        place.file("bin/adcli", &script, 0o755);
        place.file("bin/said", "", 0o644);
        let nodes = Self { place, etcd };
        nodes.keys(FIRST);
        (0..3).for_each(|node| nodes.configure(node));
        Some(nodes)
    }

    /// The keys that the next join gives the account.
    fn keys(&self, keytab: &[u8]) {
        fs::write(self.place.path("bin/next.keytab"), keytab).unwrap();
    }

    fn configure(&self, node: usize) {
        let state = self.place.folder(&format!("state{node}"));
        let [port] = free_ports();
        let text = format!(
            "[server]\nname = \"NAS\"\nlisten = [\"127.0.0.1:{port}\"]\nstate_dir = {state:?}\n\
             discovery = \"off\"\n[kerberos]\nkeytab = {:?}\n\
             [cluster]\nname = \"nas\"\nnode = \"n{node}\"\nendpoints = [\"{}\"]\n\
             [[share]]\nname = \"data\"\npath = {:?}\ncluster = true\nfence = \"none\"\n",
            self.keytab(node),
            self.etcd.url(),
            self.place.path("shared"),
        );
        self.place.file(&format!("n{node}.toml"), &text, 0o600);
    }

    fn state(&self, node: usize, name: &str) -> PathBuf {
        self.place.path(&format!("state{node}/domain/{name}"))
    }

    fn keytab(&self, node: usize) -> PathBuf {
        self.state(node, "keytab")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.place.command(words);
        command.env("PATH", format!("{}:/usr/bin:/bin", self.place.path("bin").display()));
        command
    }

    /// Runs `frevo domain` at a node, with the password of an administrator in a file.
    fn domain(&self, node: usize, words: &[&str]) -> Said {
        let config = format!("n{node}.toml");
        let password = self.place.file("password", "secret\n", 0o600);
        let mut command = self.command(&[&["domain", "--config", &config], words].concat());
        command.stdin(fs::File::open(password).unwrap());
        said(command.output().unwrap())
    }

    fn join(&self, node: usize) -> Said {
        let words =
            "join FREVO.TEST --cluster --with adcli --controller localhost --password-stdin";
        self.domain(node, &words.split(' ').collect::<Vec<_>>())
    }

    /// Copies the key of the cluster, as an administrator does.
    fn copy_key(&self, from: usize, to: usize) {
        fs::create_dir_all(self.state(to, "")).unwrap();
        fs::copy(self.state(from, "cluster.key"), self.state(to, "cluster.key")).unwrap();
    }

    fn serve(&self, node: usize) -> Serving {
        let log = fs::File::create(self.place.path(&format!("n{node}.log"))).unwrap();
        let mut command = self.command(&["serve", "--config", &format!("n{node}.toml")]);
        command.stderr(log);
        Serving::start(command)
    }

    fn log(&self, node: usize) -> String {
        fs::read_to_string(self.place.path(&format!("n{node}.log"))).unwrap()
    }

    fn check(&self, node: usize) -> Said {
        let config = format!("n{node}.toml");
        self.place.run(&["cluster", "check", &config])
    }

    #[track_caller]
    fn check_finds(&self, node: usize, words: &str) {
        let told = self.check(node);
        assert!(told.code == 3 && told.err.contains(words), "{told:?}");
    }

    /// The account in etcd, in base64. Empty if there is none.
    fn value(&self) -> String {
        let body = String::from("{\"key\": \"ZnJldm8vbmFzL2RvbWFpbi9GUkVWTy5URVNU\"}");
        let url = self.etcd.url();
        let mut stream = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
        let request = format!(
            "POST /v3/kv/range HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let value = answer.split_once("\"value\":\"").map(|(_, rest)| rest);
        value.and_then(|rest| rest.split('"').next()).unwrap_or_default().to_owned()
    }

    /// True if a file of etcd has these bytes at its beginning.
    fn is_in_etcd(&self, wanted: &[u8]) -> bool {
        fn files(folder: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { files(&path, found) } else { found.push(path) }
            }
        }
        let mut found = Vec::new();
        files(&self.place.path("etcd/data"), &mut found);
        found.iter().any(|file| {
            // etcd makes its files large before it fills them.
            let mut bytes = Vec::new();
            fs::File::open(file).unwrap().take(1 << 20).read_to_end(&mut bytes).unwrap();
            bytes.windows(wanted.len()).any(|some| some == wanted)
        })
    }

    /// The words of the calls of `adcli`.
    fn called(&self) -> String {
        fs::read_to_string(self.place.path("bin/said")).unwrap()
    }
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn all_nodes_have_the_keys_that_one_has_made() {
    let Some(nodes) = Nodes::new() else { return };
    let joined = nodes.join(0);
    assert!(
        joined.succeeds().contains("copy ") && joined.out.contains("cluster.key"),
        "{joined:?}"
    );
    let called = nodes.called();
    let name = "--computer-name=NAS --service-name=cifs --service-name=host --os-name=Frevo \
                --add-service-principal=cifs/n0 --add-service-principal=cifs/n0.frevo.test";
    assert!(called.contains("--host-fqdn=nas.frevo.test") && called.contains(name), "{called}");
    let first = fs::read(nodes.keytab(0)).unwrap();
    let value = nodes.value();
    // "frevo-domain 1", and what is sealed.
    assert!(value.starts_with("ZnJldm8tZG9tYWluIDEK") && value.len() > FIRST.len(), "{value}");
    assert!(nodes.is_in_etcd(b"frevo-domain 1\n"));
    assert!(!nodes.is_in_etcd(b"cifs") && !nodes.is_in_etcd(b"nas.frevo.test"), "anybody reads it");

    // A node without the key is told what is missing, by each command.
    let missing = "copy ";
    nodes.join(1).fails(4, &[missing, "state1/domain/cluster.key", "--cluster"]);
    nodes.check_finds(1, "this node has no key for it");
    nodes.domain(1, &["status"]).fails(1, &["1 fault found"]);
    // The second join gives the account the node's names, and new keys.
    nodes.copy_key(0, 1);
    nodes.keys(SECOND);
    nodes.join(1).succeeds();
    assert!(nodes.called().contains("--add-service-principal=cifs/n1.frevo.test"));
    let second = fs::read(nodes.keytab(1)).unwrap();
    assert_ne!(first, second);
    // Another join of the node finds that nothing is missing, and asks no administrator.
    let calls = nodes.called();
    nodes.join(1).succeeds();
    assert_eq!(nodes.called(), calls);

    // A node has the newest keys at its start, and at a change.
    let server = nodes.serve(0);
    assert_eq!(fs::read(nodes.keytab(0)).unwrap(), second, "{}", nodes.log(0));
    nodes.copy_key(1, 2);
    nodes.keys(FIRST);
    nodes.join(2).succeeds();
    let third = fs::read(nodes.keytab(2)).unwrap();
    wait("node 0 has no new keys", || fs::read(nodes.keytab(0)).unwrap() == third);
    wait("node 0 does not use them", || nodes.log(0).contains("the keytab has changed"));

    // The cluster leaves: the nodes that run forget the keys, the others are told.
    nodes.domain(1, &["leave", "--password-stdin"]).fails(2, &["add --cluster"]);
    nodes.domain(1, &["leave", "--cluster", "--password-stdin"]).succeeds();
    assert!(nodes.called().contains("delete-computer") && nodes.value().is_empty());
    assert!(!nodes.keytab(1).exists());
    wait("node 0 keeps the keys", || !nodes.keytab(0).exists());
    wait("node 0 goes on with the keys", || nodes.log(0).contains("the keytab is gone"));
    nodes.domain(2, &["renew"]).fails(6, &["leave FREVO.TEST --cluster"]);
    let forgotten = nodes.domain(2, &["leave", "--cluster"]);
    assert!(forgotten.succeeds().contains("has forgotten its keys"), "{forgotten:?}");
    assert!(!nodes.keytab(2).exists());
    assert_eq!(server.stop().code, 0);
}

#[test]
fn a_change_that_has_not_ended_is_known_at_all_nodes() {
    let Some(nodes) = Nodes::new() else { return };
    nodes.join(0).succeeds();
    nodes.copy_key(0, 1);
    nodes.join(1).succeeds();
    // No controller answers, so that the change begins and does not end.
    nodes.domain(0, &["renew", "--older-than", "0"]).fails(1, &["cannot change the password"]);
    let password = |node| fs::read_to_string(nodes.state(node, "FREVO.TEST/password.next"));
    let chosen = password(0).unwrap();
    assert!(password(1).is_err());
    let told = nodes.check(1);
    assert!(told.err.contains("has begun and has not ended"), "{told:?}");
    // The next node ends that change, and begins none of its own.
    let value = nodes.value();
    nodes.domain(1, &["renew"]).fails(1, &["cannot change the password"]);
    assert_eq!(password(1).unwrap(), chosen);
    assert_eq!(nodes.value(), value);
    // A password that another node has not stored in etcd is of no use.
    let file = nodes.state(0, "FREVO.TEST/password.next");
    fs::write(&file, "not in etcd").unwrap();
    nodes.domain(0, &["renew"]).fails(1, &["cannot change the password"]);
    assert_eq!(password(0).unwrap(), chosen);
}

#[test]
fn a_key_of_another_cluster_opens_nothing() {
    let Some(nodes) = Nodes::new() else { return };
    nodes.join(0).succeeds();
    fs::create_dir_all(nodes.state(1, "")).unwrap();
    nodes.place.file("state1/domain/cluster.key", &"0".repeat(64), 0o600);
    nodes
        .join(1)
        .fails(4, &["is not the key by which the cluster's account in FREVO.TEST is sealed"]);
    nodes.check_finds(1, "is not the key by which");
    // Its server starts with the keytab that it has, and says so.
    fs::write(nodes.keytab(1), FIRST).unwrap();
    fs::set_permissions(nodes.keytab(1), fs::Permissions::from_mode(0o600)).unwrap();
    let server = nodes.serve(1);
    wait("the log says nothing", || nodes.log(1).contains("is not the key by which"));
    assert_eq!(fs::read(nodes.keytab(1)).unwrap(), FIRST);
    assert_eq!(server.stop().code, 0);
}
