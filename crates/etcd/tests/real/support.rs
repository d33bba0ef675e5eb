//! Members of etcd on ports of their own, and requests that wait for their answers.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use frevo_etcd::client::{Client, Endpoint, Options};
use frevo_etcd::engine::{Confirmed, Done, Engine, RangeAnswer, Watching};
use frevo_etcd::types::{
    Compare, Fact, Fault, Keys, LeaseId, Op, Range, Relation, Revision, Txn, TxnAnswer, WatchAnswer,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};

/// The longest time for which a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Returns etcd's program. Without it the test ends, with a line that says so.
pub(crate) fn program() -> Option<String> {
    let program = std::env::var("FREVO_ETCD").unwrap_or_else(|_| "etcd".into());
    let version = Command::new(&program).arg("--version").output();
    if version.is_ok_and(|output| output.status.success()) {
        return Some(program);
    }
    eprintln!("skipped: there is no program {program}; Debian has it in etcd-server");
    None
}

/// Returns a free port below those that the kernel gives to sockets without one: nobody takes it before its
/// member does, or while the member is down.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Each process begins at another port.
    let first = std::process::id() % 200 * 100;
    loop {
        let number = first + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(10_000 + number % 20_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A cluster of etcd. Its members end with it.
pub(crate) struct Cluster {
    folder: TempDir,
    program: String,
    scheme: &'static str,
    more: Vec<String>,
    members: Vec<Member>,
}

struct Member {
    client_port: u16,
    peer_port: u16,
    child: Option<Child>,
}

impl Cluster {
    /// Starts a cluster of so many members, and waits until it answers.
    pub(crate) async fn start(count: usize) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let cluster = Self::start_with(count, "http", folder, Vec::new())?;
        cluster.answers(&cluster.client()).await;
        Some(cluster)
    }

    /// Starts a cluster with further arguments.
    pub(crate) fn start_with(
        count: usize,
        scheme: &'static str,
        folder: TempDir,
        more: Vec<String>,
    ) -> Option<Self> {
        let program = program()?;
        let member = |_| Member { client_port: free_port(), peer_port: free_port(), child: None };
        let members = (0..count).map(member).collect();
        let mut cluster = Self { folder, program, scheme, more, members };
        for at in 0..count {
            cluster.start_member(at);
        }
        Some(cluster)
    }

    /// Starts a member, again with the data that it has.
    pub(crate) fn start_member(&mut self, at: usize) {
        let all = self.members.iter().enumerate();
        let peers = all.map(|(at, one)| format!("n{at}=http://127.0.0.1:{}", one.peer_port));
        let peers = peers.collect::<Vec<_>>().join(",");
        let (client, is_alone) = (self.url(at), self.members.len() == 1);
        let member = &mut self.members[at];
        let peer = format!("http://127.0.0.1:{}", member.peer_port);
        // The shortest life of a lease is one and a half elections. A busy machine must not make
        // several members elect all the time.
        let (heartbeat, election) = if is_alone { ("50", "500") } else { ("100", "1000") };
        let log = std::fs::File::create(self.folder.path().join(format!("n{at}.log"))).unwrap();
        let child = Command::new(&self.program)
            .args(["--name", &format!("n{at}")])
            .arg("--data-dir")
            .arg(self.folder.path().join(format!("n{at}")))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &peers])
            .args(["--heartbeat-interval", heartbeat, "--election-timeout", election])
            .args(&self.more)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        member.child = Some(child.unwrap());
    }

    /// Ends a member at once, as `kill -9` does.
    pub(crate) fn kill(&mut self, at: usize) {
        let mut child = self.members[at].child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Starts a cluster of one member again, with its data and other arguments.
    pub(crate) fn restart_with(&mut self, scheme: &'static str, more: Vec<String>) {
        self.kill(0);
        (self.scheme, self.more) = (scheme, more);
        self.start_member(0);
    }

    /// Makes the account root, and lets etcd ask for names from now on.
    pub(crate) async fn enable_accounts(&self) {
        for (path, body) in [
            ("user/add", r#"{"name":"root","password":"secret"}"#),
            ("role/add", r#"{"name":"root"}"#),
            ("user/grant", r#"{"user":"root","role":"root"}"#),
            ("enable", "{}"),
        ] {
            self.post(&format!("/v3/auth/{path}"), body).await;
        }
    }

    /// Sends a signal to a member: STOP or CONT.
    pub(crate) fn signal(&self, at: usize, name: &str) {
        let id = self.members[at].child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap().success());
    }

    pub(crate) fn url(&self, at: usize) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.members[at].client_port)
    }

    /// Sends a request to the first member, without the client, and returns the whole answer.
    pub(crate) async fn post(&self, path: &str, body: &str) -> String {
        let address = ("127.0.0.1", self.members[0].client_port);
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}"
        );
        stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// Compacts. The client has no such request: etcd's administrator does it.
    pub(crate) async fn compact(&self, revision: Revision) {
        let body = format!("{{\"revision\":\"{revision}\"}}");
        let answer = self.post("/v3/kv/compaction", &body).await;
        assert!(answer.contains(" 200 "), "{answer}");
    }

    /// Options with short times, and all members in their order.
    pub(crate) fn options(&self) -> Options {
        let urls = (0..self.members.len()).map(|at| self.url(at));
        Options {
            attempt: Duration::from_secs(1),
            whole: Duration::from_secs(10),
            quiet: Duration::from_millis(500),
            ..Options::new(urls.map(|url| Endpoint::parse(&url).unwrap()).collect())
        }
    }

    /// Options of tests in which nothing is out of reach: an attempt includes a handshake or the look at a
    /// password, and takes long on a busy machine.
    pub(crate) fn patient(&self) -> Options {
        Options { attempt: Duration::from_secs(8), ..self.options() }
    }

    pub(crate) fn client(&self) -> Client {
        client(self.options())
    }

    /// Waits until the cluster answers.
    pub(crate) async fn answers(&self, client: &Client) {
        let end = Instant::now() + PATIENCE;
        loop {
            let fault = match range(client, one("up")).await {
                Ok(_) => return,
                Err(fault) => fault,
            };
            assert!(Instant::now() < end, "{fault}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The last lines of the members' logs.
    fn log(&self) -> String {
        let read = |at| {
            let text = std::fs::read_to_string(self.folder.path().join(format!("n{at}.log")));
            let text = text.unwrap_or_default();
            let lines: Vec<&str> = text.lines().rev().take(8).collect();
            lines.into_iter().rev().collect::<Vec<_>>().join("\n")
        };
        (0..self.members.len()).map(read).collect::<Vec<_>>().join("\n--\n")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.members.iter_mut().filter_map(|member| member.child.as_mut()) {
            // A member may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) fn client(options: Options) -> Client {
    Client::new(options, tokio::runtime::Handle::current()).unwrap()
}

/// A callback, and its result.
pub(crate) fn done<T: Send + 'static>() -> (Done<T>, oneshot::Receiver<Result<T, Fault>>) {
    let (send, receive) = oneshot::channel();
    (Box::new(|end| drop(send.send(end))), receive)
}

pub(crate) async fn txn(engine: &dyn Engine, txn: Txn) -> Result<TxnAnswer, Fault> {
    let (done, end) = done();
    engine.txn(txn, done);
    end.await.unwrap()
}

pub(crate) async fn range(engine: &dyn Engine, range: Range) -> Result<RangeAnswer, Fault> {
    let (done, end) = done();
    engine.range(range, done);
    end.await.unwrap()
}

pub(crate) async fn grant(engine: &dyn Engine, seconds: u64) -> Result<Confirmed, Fault> {
    let (done, end) = done();
    engine.grant(Duration::from_secs(seconds), done);
    end.await.unwrap()
}

pub(crate) async fn keep_alive(engine: &dyn Engine, lease: LeaseId) -> Result<Confirmed, Fault> {
    let (done, end) = done();
    engine.keep_alive(lease, done);
    end.await.unwrap()
}

pub(crate) async fn revoke(engine: &dyn Engine, lease: LeaseId) -> Result<(), Fault> {
    let (done, end) = done();
    engine.revoke(lease, done);
    end.await.unwrap()
}

/// The calls of a watch's callback, in their order.
pub(crate) struct Told(mpsc::UnboundedReceiver<Result<WatchAnswer, Fault>>);

pub(crate) fn watch(engine: &dyn Engine, prefix: &str, after: Revision) -> (Told, Watching) {
    let (send, receive) = mpsc::unbounded_channel();
    let tell = Box::new(move |answer| drop(send.send(answer)));
    (Told(receive), engine.watch(prefix.into(), after, tell))
}

impl Told {
    /// The next call of the callback.
    pub(crate) async fn next(&mut self) -> Result<WatchAnswer, Fault> {
        let next = tokio::time::timeout(PATIENCE, self.0.recv()).await;
        next.expect("nothing was told").expect("the watch has ended")
    }

    /// The next change, behind faults and answers without changes.
    pub(crate) async fn revisions(&mut self, count: usize) -> Vec<u64> {
        let mut found = Vec::new();
        while found.len() < count {
            if let Ok(WatchAnswer::Changes { changes, .. }) = self.next().await {
                found.extend(changes.iter().map(|change| match change {
                    frevo_etcd::types::Change::Put(value) => value.mod_revision.0,
                    frevo_etcd::types::Change::Delete { revision, .. } => revision.0,
                }));
            }
        }
        found
    }

    /// True if the callback is gone, and nothing more was told.
    pub(crate) async fn is_over(&mut self) -> bool {
        tokio::time::timeout(PATIENCE, self.0.recv()).await.expect("the watch goes on").is_none()
    }
}

pub(crate) fn one(key: &str) -> Range {
    Range { keys: Keys::One(key.into()), limit: 0, after: Vec::new(), revision: Revision(0) }
}

pub(crate) fn prefix(key: &str) -> Range {
    Range { keys: Keys::Prefix(key.into()), ..one(key) }
}

pub(crate) fn put(key: &str, value: &str, lease: LeaseId) -> Op {
    Op::Put { key: key.into(), value: value.into(), lease }
}

/// A transaction that sets one key.
pub(crate) fn set(key: &str, value: &str) -> Txn {
    Txn { success: vec![put(key, value, LeaseId(0))], ..Txn::default() }
}

/// The condition that a key was made at this revision; zero: it does not exist.
pub(crate) fn made_at(key: &str, revision: Revision) -> Compare {
    Compare { key: key.into(), relation: Relation::Equal, fact: Fact::CreateRevision(revision) }
}
