//! Traces: spans of connections and requests, sent to a collector. Only with the feature `traces`.
#![cfg(feature = "traces")]

mod harness;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use harness::{PATIENCE, Sandbox, Serving, said};

/// A field of a protobuf message: its number, and its bytes or number.
#[derive(Debug, Clone)]
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

/// The fields of a protobuf message.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return value;
            }
        }
        panic!("a number without end");
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (number, rest) = bytes.split_at(8);
                bytes = rest;
                Field::Number(u64::from_le_bytes(number.try_into().unwrap()))
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(value.to_vec())
            }
            5 => {
                let (number, rest) = bytes.split_at(4);
                bytes = rest;
                Field::Number(u32::from_le_bytes(number.try_into().unwrap()).into())
            }
            kind => panic!("a field of kind {kind}"),
        };
        found.push((key >> 3, field));
    }
    found
}

fn all(message: &[u8], number: u64) -> Vec<Vec<u8>> {
    let is_it = |(key, field): (u64, Field)| match field {
        Field::Bytes(bytes) if key == number => Some(bytes),
        _ => None,
    };
    fields(message).into_iter().filter_map(is_it).collect()
}

fn text(message: &[u8], number: u64) -> String {
    all(message, number)
        .first()
        .map(|text| String::from_utf8_lossy(text).into())
        .unwrap_or_default()
}

/// A span as opentelemetry/proto/trace/v1/trace.proto has it.
#[derive(Debug, Clone)]
struct Span {
    name: String,
    id: Vec<u8>,
    parent: Vec<u8>,
    begin: u64,
    end: u64,
    attributes: Vec<(String, String)>,
    links: Vec<Vec<u8>>,
}

impl Span {
    fn read(message: &[u8]) -> Self {
        let bytes = |number| all(message, number).into_iter().next().unwrap_or_default();
        let time = |number| {
            let field = fields(message).into_iter().find(|(key, _)| *key == number);
            field.map_or(0, |(_, field)| if let Field::Number(time) = field { time } else { 0 })
        };
        let attribute = |pair: &Vec<u8>| {
            let value = all(pair, 2).into_iter().next().unwrap_or_default();
            let shown = match fields(&value).into_iter().next() {
                Some((1, Field::Bytes(text))) => String::from_utf8_lossy(&text).into_owned(),
                Some((_, Field::Number(number))) => number.to_string(),
                other => format!("{other:?}"),
            };
            (text(pair, 1), shown)
        };
        Self {
            name: text(message, 5),
            id: bytes(2),
            parent: bytes(4),
            begin: time(7),
            end: time(8),
            attributes: all(message, 9).iter().map(attribute).collect(),
            links: all(message, 13).iter().flat_map(|link| all(link, 2)).collect(),
        }
    }

    fn attribute(&self, name: &str) -> &str {
        let found = self.attributes.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value.as_str())
    }
}

/// A collector that keeps all spans.
struct Collector {
    port: u16,
    spans: Receiver<Span>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (send, spans) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    stream.read_line(&mut head).unwrap();
                }
                let lower = head.to_ascii_lowercase();
                assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
                assert!(lower.contains("content-type: application/x-protobuf"), "{head}");
                assert!(lower.contains(&format!("host: 127.0.0.1:{port}\r\n")), "{head}");
                let (_, rest) = lower.split_once("content-length: ").unwrap();
                let length = rest.split("\r\n").next().unwrap().parse().unwrap();
                let mut body = vec![0; length];
                stream.read_exact(&mut body).unwrap();
                stream
                    .get_mut()
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    .unwrap();
                // A message contains ResourceSpans, these contain ScopeSpans, and these contain
                // Spans.
                for resource in all(&body, 1) {
                    let service = all(&resource, 1);
                    assert!(service.iter().any(|s| s.windows(5).any(|w| w == b"frevo")));
                    for span in all(&resource, 2).iter().flat_map(|scope| all(scope, 2)) {
                        if send.send(Span::read(&span)).is_err() {
                            return;
                        }
                    }
                }
            }
        });
        Self { port, spans }
    }

    /// The spans up to the one that `is_last` wants.
    fn spans_until(&self, is_last: impl Fn(&Span) -> bool) -> Vec<Span> {
        let began = Instant::now();
        let mut found: Vec<Span> = Vec::new();
        loop {
            let left = PATIENCE.saturating_sub(began.elapsed());
            match self.spans.recv_timeout(left) {
                Ok(span) => found.push(span),
                Err(_) => panic!("the span did not come; these did: {found:#?}"),
            }
            if is_last(found.last().unwrap()) {
                return found;
            }
        }
    }
}

fn serve(place: &Sandbox, traces: &str) -> (Serving, String) {
    let text = format!(
        "[server]\nname = \"BOX\"\nlisten = [\"127.0.0.1:0\"]\nstate_dir = {:?}\n\
         confinement = \"on\"\nlog_level = \"warn,frevo::traces=info,frevo::server=info\"\n\
         {traces}[[share]]\nname = \"files\"\npath = {:?}\n",
        place.folder("state"),
        place.folder("files"),
    );
    place.file("frevo.toml", &text, 0o644);
    let arguments = ["user", "add", "ann", "--password-stdin", "--config", "frevo.toml"];
    place.run_with_input(&arguments, "secret").succeeds();
    let log = place.path("log");
    let mut command = place.command(&["serve", "-c", "frevo.toml"]);
    command.stderr(fs::File::create(&log).unwrap());
    let server = Serving::start(command);
    let text = fs::read_to_string(&log).unwrap();
    let address = text.lines().find_map(|line| line.split_once(" address=")).unwrap().1;
    let address = address.split(' ').next().unwrap().to_owned();
    (server, address)
}

fn run(place: &Sandbox, arguments: &[&str]) {
    let mut command = place.command(arguments);
    said(command.env("FREVO_PASSWORD", "secret").output().unwrap()).succeeds();
}

fn log_has(place: &Sandbox, words: &str) {
    let began = Instant::now();
    let log = || fs::read_to_string(place.path("log")).unwrap();
    while !log().contains(words) {
        assert!(began.elapsed() < PATIENCE, "{words:?} not in {}", log());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// A CHANGE_NOTIFY is answered late, so its span has the AsyncId of both responses.
#[test]
fn a_request_that_is_answered_late_has_its_number() {
    let place = Sandbox::new();
    let collector = Collector::start();
    let traces = format!("[traces]\nendpoint = \"http://127.0.0.1:{}\"\n", collector.port);
    let (server, address) = serve(&place, &traces);
    log_has(&place, "sending traces");
    let mut watch = place.command(&["watch", &format!("smb://ann@{address}/files")]);
    watch.env("FREVO_PASSWORD", "secret").stdout(std::process::Stdio::piped());
    let mut watch = watch.spawn().unwrap();
    let mut told = BufReader::new(watch.stdout.take().unwrap());
    // Files are made until the watch tells one: it is not known when its request waits.
    let (send, is_told) = channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        told.read_line(&mut line).unwrap();
        send.send(line)
    });
    let made = (0..500).find_map(|at| {
        fs::write(place.path(&format!("files/made{at}")), "").unwrap();
        is_told.recv_timeout(std::time::Duration::from_millis(100)).ok()
    });
    assert!(made.expect("the watch told nothing").contains("made"));
    watch.kill().unwrap();
    watch.wait().unwrap();

    let spans = collector.spans_until(|span| span.name == "connection");
    let late =
        |span: &&Span| span.name == "CHANGE_NOTIFY" && span.attribute("smb.status") == "SUCCESS";
    let notified = spans.iter().find(late).unwrap_or_else(|| panic!("{spans:#?}"));
    assert!(notified.attribute("smb.async_id").parse::<u64>().unwrap() > 0, "{notified:#?}");
    // A request that is answered at once has no such number.
    let connected = spans.iter().find(|span| span.name == "TREE_CONNECT").unwrap();
    assert_eq!(connected.attribute("smb.async_id"), "", "{connected:#?}");
    server.stop().succeeds();
}

#[test]
fn a_collector_gets_connections_and_requests() {
    let place = Sandbox::new();
    let collector = Collector::start();
    let traces = format!("[traces]\nendpoint = \"http://127.0.0.1:{}\"\n", collector.port);
    let (server, address) = serve(&place, &traces);
    log_has(&place, "sending traces");
    place.file("text", "some text", 0o644);
    run(&place, &["put", "text", &format!("smb://ann@{address}/files/there")]);

    let spans = collector.spans_until(|span| span.name == "connection");
    let connection = spans.last().unwrap();
    assert_eq!(connection.attribute("network.peer.address"), "127.0.0.1");
    let write = spans.iter().find(|span| span.name == "WRITE").unwrap_or_else(|| {
        panic!("no WRITE in {:?}", spans.iter().map(|span| &span.name).collect::<Vec<_>>())
    });
    for (name, value) in [
        ("user.name", "ann"),
        ("smb.share", "files"),
        ("smb.status", "SUCCESS"),
        ("network.peer.address", "127.0.0.1"),
        ("smb.connection_id", connection.attribute("smb.connection_id")),
    ] {
        assert_eq!(write.attribute(name), value, "{name} of {write:#?}");
    }
    assert!(write.attribute("smb.session_id").starts_with("0x"), "{write:#?}");
    assert!(!write.attribute("smb.busy_us").is_empty(), "{write:#?}");
    // The span of a request begins a trace of its own and links to the span of its connection.
    assert!(write.parent.is_empty() && write.links == [connection.id.clone()], "{write:#?}");
    assert!(connection.begin <= write.begin && write.begin <= write.end);
    assert!(write.end <= connection.end);
    let is_there = |name: &str| spans.iter().any(|span| span.name == name);
    for name in ["NEGOTIATE", "SESSION_SETUP", "TREE_CONNECT", "CREATE", "CLOSE", "LOGOFF"] {
        assert!(is_there(name), "{name}");
    }
    let created = spans.iter().filter(|span| span.name == "CREATE");
    assert!(created.clone().any(|span| span.attribute("smb.file").contains("there")), "{spans:#?}");
    // The spans are not in the log, and the filter has refused no call of the server.
    let log = fs::read_to_string(place.path("log")).unwrap();
    assert!(!log.contains("smb.share") && !log.contains("refused a system call"), "{log}");
    assert!(log.contains("confined: "), "{log}");
    server.stop().succeeds();
}

#[test]
fn a_part_of_the_requests_is_told_and_all_connections() {
    let place = Sandbox::new();
    let collector = Collector::start();
    let traces =
        format!("[traces]\nendpoint = \"http://localhost:{}\"\nsample = 0.0\n", collector.port);
    let traces = traces.replace("localhost", "127.0.0.1");
    let (server, address) = serve(&place, &traces);
    for _ in 0..2 {
        run(&place, &["ls", &format!("smb://ann@{address}/files")]);
        let spans = collector.spans_until(|span| span.name == "connection");
        assert_eq!(spans.len(), 1, "{spans:#?}");
    }
    server.stop().succeeds();
}

#[test]
fn a_collector_that_is_away_keeps_nobody_waiting() {
    let place = Sandbox::new();
    // The port is free again, so no collector listens there; the server must work without one.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let traces = format!("[traces]\nendpoint = \"http://127.0.0.1:{port}\"\n");
    let (server, address) = serve(&place, &traces);
    for _ in 0..3 {
        run(&place, &["ls", &format!("smb://ann@{address}/files")]);
    }
    log_has(&place, "the collector does not take traces");
    server.stop().succeeds();
    let log = fs::read_to_string(place.path("log")).unwrap();
    assert_eq!(log.matches("the collector does not take traces").count(), 1, "{log}");
}
