//! Servers that answer nonsense: each request ends in its time, with its fault, and at another endpoint
//! where there is one that answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use frevo_etcd::client::{Account, Client, Dialer, Dialing, Endpoint, Options};
use frevo_etcd::engine::Engine;
use frevo_etcd::limits::{ANSWER_BYTES, ENDPOINTS, REQUESTS, REQUESTS_AT_ONCE, TOKENS_PER_REQUEST};
use frevo_etcd::types::{Fault, LeaseId, Revision, WatchAnswer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use crate::support::{PATIENCE, client, grant, keep_alive, one, range, set, txn, watch};

/// The behaviour of a fake member on a connection on which a request has come.
#[derive(Clone)]
enum Answer {
    /// Sends these bytes, and leaves the connection open.
    Bytes(Vec<u8>),
    /// Sends these bytes and closes the connection.
    Half(Vec<u8>),
    /// Sends an answer with status 200 that begins with this and never ends.
    Endless(&'static str),
    /// Sends an answer byte by byte, each after 100 ms.
    Slow(Vec<u8>),
    /// Sends these answers in turn.
    InTurn([Vec<u8>; 2]),
    /// Says nothing.
    Nothing,
}

/// A fake member, and the number of requests that it received.
struct Fake {
    url: String,
    requests: Arc<AtomicUsize>,
}

impl Fake {
    async fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, answer.clone(), Arc::clone(&counted)));
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Answers the requests of a connection until it breaks, which the client may do at any time.
async fn serve(mut stream: TcpStream, answer: Answer, requests: Arc<AtomicUsize>) {
    let mut buffer = [0; 65_536];
    while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {
        let number = requests.fetch_add(1, Ordering::SeqCst);
        match &answer {
            Answer::Bytes(bytes) => drop(stream.write_all(bytes).await),
            Answer::Half(bytes) => {
                let _ = stream.write_all(bytes).await;
                return;
            }
            Answer::Endless(begin) => {
                let begin = if begin.is_empty() { HEAD.into() } else { self::stream(begin) };
                let _ = stream.write_all(&begin).await;
                let part = [b"1000\r\n", &[b' '; 4096][..], b"\r\n"].concat();
                while stream.write_all(&part).await.is_ok() {}
            }
            Answer::Slow(bytes) => {
                for byte in bytes {
                    let _ = stream.write_all(&[*byte]).await;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
            Answer::InTurn(both) => drop(stream.write_all(&both[number % 2]).await),
            Answer::Nothing => {}
        }
    }
}

const HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";

/// The line with which a watch begins.
const CREATED: &str = "{\"result\":{\"header\":{\"revision\":\"9\"},\"created\":true}}\n";

/// A whole answer.
fn answer(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// The beginning of a stream, with these lines.
fn stream(lines: &str) -> Vec<u8> {
    format!("{HEAD}{:x}\r\n{lines}\r\n", lines.len()).into_bytes()
}

fn client_of(fakes: &[&Fake]) -> Client {
    let endpoints = fakes.iter().map(|fake| Endpoint::parse(&fake.url).unwrap());
    client(Options {
        attempt: Duration::from_secs(1),
        whole: Duration::from_secs(3),
        quiet: Duration::from_millis(500),
        ..Options::new(endpoints.collect())
    })
}

const GOOD: &str = r#"{"header":{"revision":"7"}}"#;

#[tokio::test]
async fn nonsense_ends_each_request_in_its_time() {
    let wrong = [
        Answer::Bytes(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
        Answer::Bytes(vec![0xff; 100_000]),
        Answer::Bytes(answer("200 OK", "<html>")),
        Answer::Bytes(answer("200 OK", "{}")),
        Answer::Bytes(answer("200 OK", &"[".repeat(100_000))),
        Answer::Bytes(answer("502 Bad Gateway", "no upstream")),
        Answer::Bytes([&b"HTTP/1.1 200 OK\r\nX: "[..], &[b'x'; 100_000], b"\r\n\r\n"].concat()),
        Answer::Half(Vec::new()),
        Answer::Half(answer("200 OK", GOOD)[..40].to_vec()),
        Answer::Half(stream("{\"result\":")),
        Answer::Endless(""),
        Answer::Slow(answer("200 OK", GOOD)),
        Answer::Nothing,
    ];
    let all = wrong.into_iter().enumerate().map(|(number, wrong)| {
        tokio::spawn(async move {
            let fake = Fake::start(wrong).await;
            let client = client_of(&[&fake]);
            let begun = Instant::now();
            let is_fault =
                |fault: &Fault| matches!(fault, Fault::Unavailable(_) | Fault::Malformed(_));
            let read = range(&client, one("a")).await.unwrap_err();
            assert!(is_fault(&read), "{number}: {read}");
            let written = txn(&client, set("a", "b")).await.unwrap_err();
            assert!(is_fault(&written), "{number}: {written}");
            let kept = keep_alive(&client, LeaseId(5)).await.unwrap_err();
            assert!(is_fault(&kept), "{number}: {kept}");
            // Three requests of at most 3 s each, on a machine that may be busy.
            assert!(begun.elapsed() < PATIENCE, "{number}: {:?}", begun.elapsed());
        })
    });
    for one in all.collect::<Vec<_>>() {
        one.await.unwrap();
    }
}

#[tokio::test]
async fn a_member_that_answers_nonsense_is_left_for_one_that_answers() {
    let good = Fake::start(Answer::Bytes(answer("200 OK", GOOD))).await;
    for wrong in [
        Answer::Bytes(answer("200 OK", "{}")),
        Answer::Bytes(answer("503 Service Unavailable", "")),
        Answer::Bytes(answer(
            "503 Service Unavailable",
            r#"{"code":14,"message":"etcdserver: no leader"}"#,
        )),
        Answer::Half(Vec::new()),
        Answer::Nothing,
    ] {
        let bad = Fake::start(wrong).await;
        let client = client_of(&[&bad, &good]);
        for _ in 0..3 {
            assert_eq!(range(&client, one("a")).await.unwrap().revision, Revision(7));
        }
        assert_eq!(bad.requests(), 1, "it is asked once");
    }
    // No program listens at this address.
    let gone = Fake { url: "http://127.0.0.1:9".into(), requests: Arc::default() };
    let client = client_of(&[&gone, &good]);
    assert_eq!(range(&client, one("a")).await.unwrap().revision, Revision(7));
}

/// A change that may have happened is not sent to another member; one that did not is.
#[tokio::test]
async fn a_change_whose_answer_is_lost_is_not_sent_again() {
    let done = r#"{"header":{"revision":"7"},"succeeded":true,"responses":[{"response_put":{}}]}"#;
    let good = Fake::start(Answer::Bytes(answer("200 OK", done))).await;
    for lost in [
        Answer::Nothing,
        Answer::Half(Vec::new()),
        Answer::Half(answer("200 OK", done)[..50].to_vec()),
        Answer::Bytes(answer(
            "503 Service Unavailable",
            r#"{"code":14,"message":"etcdserver: request timed out"}"#,
        )),
        Answer::Bytes(answer("504 Gateway Timeout", "")),
    ] {
        let (bad, before) = (Fake::start(lost).await, good.requests());
        let client = client_of(&[&bad, &good]);
        let end = txn(&client, set("a", "b")).await;
        assert!(matches!(end, Err(Fault::Unavailable(_))), "{end:?}");
        assert_eq!((bad.requests(), good.requests()), (1, before));
        // The next request goes to the other member.
        assert!(txn(&client, set("a", "b")).await.unwrap().succeeded);
        assert_eq!((bad.requests(), good.requests()), (1, before + 1));
    }
    let refuses =
        answer("503 Service Unavailable", r#"{"code":14,"message":"etcdserver: no leader"}"#);
    let bad = Fake::start(Answer::Bytes(refuses)).await;
    assert!(txn(&client_of(&[&bad, &good]), set("a", "b")).await.unwrap().succeeded);
    assert_eq!(bad.requests(), 1);
}

#[tokio::test]
async fn a_refusal_is_not_tried_elsewhere() {
    let body = r#"{"code":7,"message":"etcdserver: permission denied"}"#;
    let bad = Fake::start(Answer::Bytes(answer("403 Forbidden", body))).await;
    let good = Fake::start(Answer::Bytes(answer("200 OK", GOOD))).await;
    let client = client_of(&[&bad, &good]);
    let refused = Fault::Refused("etcdserver: permission denied".into());
    assert_eq!(range(&client, one("a")).await, Err(refused));
    let plain = Fake::start(Answer::Bytes(answer("400 Bad Request", "no such\nthing"))).await;
    let refused = Fault::Refused("no suchthing".into());
    assert_eq!(txn(&client_of(&[&plain, &good]), set("a", "b")).await, Err(refused));
    assert_eq!(good.requests(), 0);
}

#[tokio::test]
async fn leases_of_nonsense_are_malformed() {
    for body in ["{}", r#"{"ID":"5"}"#, r#"{"ID":"5","TTL":"-1"}"#, r#"{"ID":"5","TTL":"1"}"#] {
        let fake = Fake::start(Answer::Bytes(answer("200 OK", body))).await;
        let end = grant(&client_of(&[&fake]), 2).await;
        assert!(matches!(end, Err(Fault::Malformed(_))), "{body}: {end:?}");
    }
    // The answer to the keep-alive names another lease.
    let line = "{\"result\":{\"ID\":\"6\",\"TTL\":\"2\"}}\n";
    let fake = Fake::start(Answer::Bytes(answer("200 OK", line))).await;
    let end = keep_alive(&client_of(&[&fake]), LeaseId(5)).await;
    assert_eq!(end, Err(Fault::Malformed("an answer about another lease")));
}

/// A watch leaves members that answer nonsense, tells that it is broken, and goes on at one that
/// answers.
#[tokio::test]
async fn a_watch_goes_on_behind_nonsense() {
    let created = CREATED;
    let change = "{\"result\":{\"header\":{\"revision\":\"8\"},\"events\":[{\"type\":\"DELETE\",\"kv\":{\"key\":\"dw==\",\"mod_revision\":\"8\"}}]}}\n";
    let good = Fake::start(Answer::Bytes(stream(&format!("{created}{change}")))).await;
    for wrong in [
        Answer::Nothing,
        Answer::Half(Vec::new()),
        Answer::Half(stream(created)),
        Answer::Half(stream(&format!("{created}{{\"result\":{{\"he"))),
        Answer::Bytes(stream(&format!("{created}<html>\n"))),
        // This member starts the watch and then sends nothing, not even the answer to a range.
        Answer::Bytes(stream(created)),
        Answer::Slow(stream(created)),
        Answer::Bytes(answer("502 Bad Gateway", "")),
        // A line that never ends does not count as the start of the watch.
        Answer::Endless(""),
    ] {
        let bad = Fake::start(wrong).await;
        let client = client_of(&[&bad, &good]);
        let (mut told, _watching) = watch(&client, "w", Revision(5));
        assert_eq!(told.revisions(1).await, [8]);
    }
    // If there is only one member, the broken stream is reported once, and the watch goes on.
    let bad = Fake::start(Answer::Half(stream(created))).await;
    let (mut told, _watching) = watch(&client_of(&[&bad]), "w", Revision(5));
    assert!(matches!(told.next().await, Err(Fault::Unavailable(_))));
    let again = WatchAnswer::Changes { revision: Revision(5), changes: Vec::new() };
    assert_eq!(told.next().await, Ok(again));
}

/// Changes that are longer than an answer may be are told as a compaction: the keys must be read.
#[tokio::test]
async fn a_watch_without_end_in_a_line_is_told_as_a_compaction() {
    let fake = Fake::start(Answer::Endless(CREATED)).await;
    let patient = |fakes: &[&Fake]| {
        let endpoints = fakes.iter().map(|fake| Endpoint::parse(&fake.url).unwrap());
        let attempt = Duration::from_secs(20);
        client(Options { attempt, ..Options::new(endpoints.collect()) })
    };
    let client = patient(&[&fake]);
    let (mut told, _watching) = watch(&client, "w", Revision(5));
    assert_eq!(told.next().await, Ok(WatchAnswer::Compacted { oldest: Revision(6) }));
    assert!(told.is_over().await);
    // A request has the same limit.
    let read = range(&client, one("a")).await;
    assert_eq!(read, Err(Fault::Malformed("an answer that is too long")), "{ANSWER_BYTES}");
    // The next watch begins at another member.
    let good = Fake::start(Answer::Bytes(answer("200 OK", GOOD))).await;
    let client = patient(&[&fake, &good]);
    let (mut told, _watching) = watch(&client, "w", Revision(5));
    assert_eq!(told.next().await, Ok(WatchAnswer::Compacted { oldest: Revision(6) }));
    assert_eq!(range(&client, one("a")).await.unwrap().revision, Revision(7));
}

/// Connects with the address of a place, and with nobody at the first place.
#[derive(Debug)]
struct Elsewhere {
    address: std::net::SocketAddr,
    dialed: parking_lot::Mutex<Vec<(usize, String)>>,
}

impl Dialer for Elsewhere {
    fn dial<'a>(&'a self, at: usize, endpoint: &'a Endpoint) -> Dialing<'a> {
        Box::pin(async move {
            self.dialed.lock().push((at, endpoint.to_string()));
            match at {
                0 => Err(std::io::ErrorKind::NetworkUnreachable.into()),
                _ => TcpStream::connect(self.address).await,
            }
        })
    }
}

/// A dialer is asked for each connection, by the place and the name, and its error leads to the next
/// endpoint.
#[tokio::test]
async fn connections_come_from_the_dialer() {
    let good = Fake::start(Answer::Bytes(answer("200 OK", GOOD))).await;
    let address = good.url.strip_prefix("http://").unwrap().parse().unwrap();
    let dialer = Arc::new(Elsewhere { address, dialed: parking_lot::Mutex::default() });
    let names = ["http://etcd-a.invalid:1", "http://etcd-b.invalid:2"];
    let client = client(Options {
        dialer: Arc::<Elsewhere>::clone(&dialer),
        ..Options::new(names.iter().map(|name| Endpoint::parse(name).unwrap()).collect())
    });
    for _ in 0..2 {
        assert_eq!(range(&client, one("a")).await.unwrap().revision, Revision(7));
    }
    let dialed = dialer.dialed.lock().clone();
    assert_eq!(dialed, [(0, names[0].to_owned()), (1, names[1].to_owned())]);
    assert_eq!(good.requests(), 2, "one connection has both requests");
}

#[tokio::test]
async fn a_client_has_so_many_endpoints() {
    let endpoint = Endpoint::parse("http://127.0.0.1:9").unwrap();
    for (count, is_good) in [(0, false), (1, true), (ENDPOINTS, true), (ENDPOINTS + 1, false)] {
        let options = Options::new(vec![endpoint.clone(); count]);
        let made = Client::new(options, tokio::runtime::Handle::current());
        assert_eq!(made.is_ok(), is_good, "{count}");
    }
}

#[tokio::test]
async fn so_many_requests_wait() {
    let fake = Fake::start(Answer::Nothing).await;
    let client = client_of(&[&fake]);
    let (send, mut ends) = mpsc::unbounded_channel();
    for _ in 0..=REQUESTS {
        let send = send.clone();
        client.range(one("a"), Box::new(move |end| drop(send.send(end))));
    }
    // The callback of the one too many was called at once, before any task could run.
    let end = ends.try_recv().unwrap();
    assert_eq!(end, Err(Fault::Unavailable("too many requests wait".into())));
    assert!(ends.try_recv().is_err());
    for _ in 0..REQUESTS {
        assert!(matches!(ends.recv().await.unwrap(), Err(Fault::Unavailable(_))));
    }
    // Three attempts of one second in three seconds; a fourth may begin in the last moment.
    assert!(fake.requests() <= REQUESTS_AT_ONCE * 4, "{}", fake.requests());
}

/// A member that takes each name, gives a token, and then refuses the token.
#[tokio::test]
async fn a_token_is_asked_for_so_many_times() {
    let body = r#"{"token":"t.1","code":16,"message":"etcdserver: invalid auth token"}"#;
    let both = [answer("200 OK", body), answer("401 Unauthorized", body)];
    let fake = Fake::start(Answer::InTurn(both)).await;
    let account = Account { name: "root".into(), password: Zeroizing::new("secret".into()) };
    let endpoints = vec![Endpoint::parse(&fake.url).unwrap()];
    let client = client(Options { account: Some(account), ..Options::new(endpoints) });
    let refused = Err(Fault::Refused("it takes no token of this name".into()));
    assert_eq!(range(&client, one("a")).await, refused);
    let tokens = usize::try_from(TOKENS_PER_REQUEST).unwrap();
    assert_eq!(fake.requests(), 2 * (tokens + 1));
}

/// A client whose runtime ends calls each callback.
#[test]
fn each_callback_is_called_when_the_runtime_ends() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (servers, requests) = (runtime(), runtime());
    let fake = servers.block_on(Fake::start(Answer::Nothing));
    let endpoints = vec![Endpoint::parse(&fake.url).unwrap()];
    let client = Client::new(Options::new(endpoints), requests.handle().clone()).unwrap();
    let (send, ends) = std::sync::mpsc::channel();
    client.range(one("a"), Box::new(move |end| drop(send.send(end))));
    requests.block_on(async { tokio::time::sleep(Duration::from_millis(20)).await });
    drop(requests);
    assert_eq!(ends.recv(), Ok(Err(Fault::Unavailable("the client ends".into()))));
}

#[test]
fn endpoints_are_urls() {
    for (url, host, port) in [
        ("http://127.0.0.1", "127.0.0.1", 2379),
        ("https://etcd1.example:23790/", "etcd1.example", 23_790),
        ("https://[::1]:1", "::1", 1),
    ] {
        let endpoint = Endpoint::parse(url).unwrap();
        assert_eq!((endpoint.host.as_str(), endpoint.port), (host, port), "{url}");
        assert_eq!(Endpoint::parse(&endpoint.to_string()), Ok(endpoint), "{url}");
    }
    for url in [
        "",
        "etcd1:2379",
        "ftp://a",
        "http://",
        "http://a:0",
        "http://a:65536",
        "http://a b",
        "http://[::1",
        "http://[x]:1",
        "http://u@a",
        "http://a/path",
    ] {
        assert!(Endpoint::parse(url).is_err(), "{url}");
    }
}
