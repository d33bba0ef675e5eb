//! The state of a pipe: handles, queries, pages, and what a client may ask about a file.

use super::{handle, samba};
use crate::limits::{
    MAX_SPOTLIGHT_QUERIES, MAX_SPOTLIGHT_TOLD, MAX_SPOTLIGHT_TOLD_BYTES, MAX_SPOTLIGHT_VOLUMES,
    SPOTLIGHT_RESULTS_AT_ONCE,
};
use crate::mdssvc::{
    Cnids, Command, FLAGS, Hit, Page, Progress, Reply, Request, Search, Spotlight, Value, Volume,
    Volumes, pack, unpack,
};
use crate::tests::hex;
use crate::{Answer, FaultStatus};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use frevo_index::{Kind, Query};
use frevo_wire::ndr::ContextHandle;
use proptest::prelude::*;

const FAILED: u64 = u64::MAX;
const MORE: u64 = 35;

/// A server with the share `files`, whose files have numbers below `count`.
struct Server {
    handles: Cell<u8>,
    count: u64,
}

impl Volumes for Server {
    type Share = &'static str;
    type Cursor = u64;

    fn find(&self, name: &str) -> Option<Volume<&'static str>> {
        let is_it = name.eq_ignore_ascii_case("files") || name == "spotl";
        is_it.then(|| Volume { share: "files", name: name.to_string(), uuid: [5; 16] })
    }

    fn random(&self) -> [u8; 16] {
        self.handles.set(self.handles.get() + 1);
        [self.handles.get(); 16]
    }

    fn now(&self) -> i64 {
        1_796_071_080
    }
}

fn hit(id: u64) -> Hit {
    let path = format!("sub/file {id}.txt");
    Hit { id, path, kind: Kind::File, size: id, modified: 978_307_260, created: 0 }
}

/// A pipe with its client.
struct Pipe {
    spotlight: Spotlight<&'static str, u64>,
    server: Server,
    handle: ContextHandle,
    max_fragment: u32,
}

impl Pipe {
    fn new(count: u64) -> Self {
        let server = Server { handles: Cell::new(0), count };
        let (spotlight, handle) = (Spotlight::default(), ContextHandle::NULL);
        Self { spotlight, server, handle, max_fragment: 65_536 }
    }

    /// A pipe whose client has opened the share.
    fn opened(count: u64) -> Self {
        let mut pipe = Self::new(count);
        pipe.handle = pipe.open("files").1;
        assert_ne!(pipe.handle, ContextHandle::NULL);
        pipe
    }

    fn call(&mut self, request: &Request) -> Progress<&'static str, u64> {
        self.spotlight.begin(request.opnum(), &request.encode(), &self.server)
    }

    fn ended(&mut self, request: &Request) -> Answer {
        match self.call(request) {
            Progress::Ended(answer) => answer,
            Progress::Search(search) => panic!("{search:?}"),
        }
    }

    fn open(&mut self, share: &str) -> (String, ContextHandle) {
        let (mount_path, share) = ("/Volumes/f".to_string(), share.to_string());
        let request = Request::Open { echoed: [7, 23, 1], mount_path, share };
        let stub = self.ended(&request).unwrap();
        match Reply::parse(0, &stub).unwrap() {
            Reply::Open { echoed: [7, 23, 1], share_path, handle } => (share_path, handle),
            other => panic!("{other:?}"),
        }
    }

    fn command(&self, message: Vec<u8>) -> Request {
        let (handle, max_fragment) = (self.handle, self.max_fragment);
        Request::Command(Command { handle, next_fragment: 0, message, max_fragment })
    }

    /// Sends a message, makes the search that it needs, and returns the bytes of the answer.
    fn send(&mut self, message: Vec<u8>) -> Vec<u8> {
        let request = self.command(message);
        let answer = match self.call(&request) {
            Progress::Ended(answer) => answer,
            Progress::Search(search) => {
                let page = page(&search, self.server.count);
                self.spotlight.complete(&search.searched, Some(page))
            }
        };
        let mut bytes = Vec::new();
        let mut stub = answer.unwrap();
        loop {
            let Reply::Command { fragment, message } = Reply::parse(2, &stub).unwrap() else {
                panic!();
            };
            bytes.extend(message);
            if fragment == 0 {
                return bytes;
            }
            let Request::Command(command) = self.command(Vec::new()) else { panic!() };
            let command = Command { next_fragment: 1, ..command };
            stub = self.ended(&Request::Command(command)).unwrap();
        }
    }

    /// Calls a method of the query with this number, and returns the elements of the answer.
    fn method(&mut self, name: &str, query: u64, arguments: Vec<Value>) -> Vec<Value> {
        let head = vec![Value::text(name), Value::Integer(query), Value::Integer(0x6B00_0060)];
        let call = [vec![Value::Array(head)], arguments].concat();
        let message = pack(&[Value::Array(call)]).unwrap();
        match unpack(&self.send(message)).unwrap().pop() {
            Some(Value::Array(answer)) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn result(&mut self, name: &str, query: u64, arguments: Vec<Value>) -> u64 {
        self.method(name, query, arguments)[0].as_integer().unwrap()
    }

    fn open_query(&mut self, query: u64, more: Vec<Value>) -> u64 {
        let texts =
            |texts: &[&str]| Value::Array(texts.iter().map(|text| Value::text(text)).collect());
        let mut params = vec![
            Value::text("kMDQueryString"),
            Value::text("kMDItemFSName == \"file*\"c"),
            Value::text("kMDAttributeArray"),
            texts(&["kMDItemFSName", "kMDItemFSSize", "kMDItemAlbum"]),
        ];
        params.extend(more);
        self.result("openQueryWithParams:forContext:", query, vec![Value::Dictionary(params)])
    }

    /// Asks for results of the query 1.
    fn fetch_request(&self) -> Request {
        let key = [Value::Integer(1), Value::Integer(0x6B00_0060)];
        let head = [vec![Value::text("fetchQueryResultsForContext:")], key.to_vec()].concat();
        self.command(pack(&[Value::Array(vec![Value::Array(head)])]).unwrap())
    }

    fn fetch(&mut self, query: u64) -> Fetched {
        let answer = self.method("fetchQueryResultsForContext:", query, Vec::new());
        let status = answer[0].as_integer().unwrap();
        let ids = answer.get(1).and_then(Value::as_cnids).map(|cnids| cnids.ids.clone());
        let rows = match answer.get(2) {
            Some(Value::FileMeta(nested)) => nested.first().and_then(Value::as_array),
            _ => None,
        };
        let rows = rows.unwrap_or(&[]).to_vec();
        Fetched { status, ids: ids.unwrap_or_default(), rows }
    }

    fn attributes(&mut self, id: u64, names: &[&str]) -> Value {
        let names = Value::Array(names.iter().map(|name| Value::text(name)).collect());
        let cnids = Cnids { kind: Cnids::OF_RESULTS, context: 3, ids: vec![id] };
        let arguments = vec![names, Value::Cnids(cnids.clone())];
        let answer = self.method("fetchAttributes:forOIDArray:context:", 9, arguments);
        assert_eq!(answer[0], Value::Integer(0));
        assert_eq!(answer[1], Value::Cnids(Cnids { kind: Cnids::OF_ATTRIBUTES, ..cnids }));
        let Value::FileMeta(nested) = &answer[2] else { panic!("{answer:?}") };
        nested[0].as_array().unwrap()[1].clone()
    }
}

struct Fetched {
    status: u64,
    ids: Vec<u64>,
    rows: Vec<Value>,
}

/// Returns the next page of a share with `count` files.
fn page(search: &Search<&'static str, u64>, count: u64) -> Page<u64> {
    let from = search.after.map_or(0, |after| after + 1);
    let to = count.min(from + search.most as u64);
    let found = (from..to).map(hit).collect();
    Page { found, after: (to < count).then(|| to - 1) }
}

#[test]
fn a_share_that_is_not_searched_has_no_handle() {
    let mut pipe = Pipe::new(0);
    assert_eq!(pipe.open("choukawoohoo"), (String::new(), ContextHandle::NULL));
    let (path, first) = pipe.open("files");
    assert_eq!(path, "/files");
    assert_ne!(pipe.open("files").1, first);
}

/// The answers of smbd, which smbtorture expects.
#[test]
fn handles_are_those_of_the_pipe() {
    let mut pipe = Pipe::opened(0);
    let (good, null) = (pipe.handle, ContextHandle::NULL);
    let unknown_1 = |handle| Request::Unknown1 { handle };
    let flags = |flags| Ok(Reply::Unknown1 { flags }.encode());
    assert_eq!(pipe.ended(&unknown_1(good)), flags(FLAGS));
    assert_eq!(pipe.ended(&unknown_1(null)), flags(0));
    let command = |handle| {
        let command = Command { handle, next_fragment: 0, message: Vec::new(), max_fragment: 0 };
        Request::Command(command)
    };
    let nothing = Ok(Reply::Command { fragment: 0, message: Vec::new() }.encode());
    assert_eq!(pipe.ended(&command(null)), nothing);
    assert_eq!(pipe.ended(&command(good)), nothing);
    let close = |handle| Request::Close { handle };
    let closed = |handle| Ok(Reply::Close { handle }.encode());
    assert_eq!(pipe.ended(&close(null)), closed(null));
    let fault = Err(FaultStatus::PROTO_ERROR);
    for request in [unknown_1(handle(99)), command(handle(99)), close(handle(99))] {
        assert_eq!(pipe.ended(&request), fault, "{request:?}");
    }
    assert_eq!(pipe.ended(&close(good)), closed(good));
    assert_eq!(pipe.ended(&close(good)), fault);
}

/// The messages of Samba's programs, and the answers of smbd to them.
#[test]
fn messages_of_samba_have_the_answers_of_smbd() {
    let mut pipe = Pipe::new(0);
    pipe.handle = pipe.open("spotl").1;
    for (asked, answer) in [
        (samba::OPEN_QUERY, samba::DONE),
        (samba::FETCH_RESULTS, samba::NO_RESULTS),
        (samba::FETCH_RESULTS, samba::NO_RESULTS),
        (samba::CLOSE_QUERY, samba::DONE),
        (samba::CLOSE_QUERY, samba::FAILED),
        (samba::FETCH_RESULTS, samba::FAILED),
        (samba::ASK_UNKNOWN_FILE, samba::UNKNOWN_FILE),
        (samba::BAD_SCOPES, samba::FAILED),
        (samba::BAD_RUN, ""),
    ] {
        assert_eq!(pipe.send(hex(asked)), hex(answer), "{asked}");
    }
    let ours = unpack(&pipe.send(hex(samba::ASK_PROPERTIES))).unwrap();
    let theirs = unpack(&hex(samba::PROPERTIES)).unwrap();
    let keys = |values: &[Value]| match values {
        [Value::Dictionary(entries)] => entries
            .iter()
            .step_by(2)
            .filter_map(Value::as_text)
            .map(String::from)
            .collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(keys(&ours), keys(&theirs));
    assert_eq!(ours[0].get("kMDSVolumeUUID"), Some(&Value::Uuid([5; 16])));
}

#[test]
fn results_come_in_pages_with_their_attributes() {
    let mut pipe = Pipe::opened(250);
    assert_eq!(pipe.open_query(1, Vec::new()), 0);
    let mut told = Vec::new();
    for status in [MORE, MORE, 0] {
        let fetched = pipe.fetch(1);
        assert_eq!(fetched.status, status);
        // The attributes of the files follow a place for their names.
        assert_eq!(fetched.rows.len(), fetched.ids.len() + 1);
        for (id, row) in fetched.ids.iter().zip(&fetched.rows[1..]) {
            let name = Value::Text(format!("file {id}.txt"));
            assert_eq!(*row, Value::Array(vec![name, Value::Integer(*id), Value::Nil]));
        }
        told.extend(fetched.ids);
    }
    assert_eq!(told, (0..250).collect::<Vec<_>>());
    let after = pipe.fetch(1);
    assert_eq!((after.status, after.ids), (0, Vec::new()));
    assert_eq!(pipe.result("closeQueryForContext:", 1, Vec::new()), 0);
    assert_eq!(pipe.fetch(1).status, FAILED);
    // The attributes of a file that was told stay there.
    let names = ["kMDItemPath", "kMDItemFSContentChangeDate", "kMDItemContentType"];
    let values = [
        Value::text("/files/sub/file 249.txt"),
        Value::Date(60.0),
        Value::text("public.plain-text"),
    ];
    assert_eq!(pipe.attributes(249, &names), Value::Array(values.to_vec()));
    assert_eq!(pipe.attributes(250, &["kMDItemPath"]), Value::Nil);
    let created = Value::Array(vec![Value::Date(-978_307_200.0)]);
    assert_eq!(pipe.attributes(249, &["kMDItemFSCreationDate"]), created);
}

#[test]
fn all_attributes_have_their_names() {
    let mut pipe = Pipe::opened(1);
    assert_eq!((pipe.open_query(1, Vec::new()), pipe.fetch(1).status), (0, 0));
    let cnids = || vec![Value::Cnids(Cnids { kind: 1, context: 3, ids: vec![0] })];
    let mut nested = |method: &str| match &pipe.method(method, 1, cnids())[..] {
        [Value::Integer(0), Value::Cnids(_), Value::FileMeta(nested)] => nested[0].clone(),
        other => panic!("{other:?}"),
    };
    let names = nested("fetchAttributeNamesForOIDArray:context:").as_array().unwrap().to_vec();
    let all = nested("fetchAllAttributes:forOIDArray:context:").as_array().unwrap().to_vec();
    assert_eq!(all[..1], names);
    let [names, values] = [&all[0], &all[1]].map(|array| array.as_array().unwrap().to_vec());
    assert_eq!(names.len(), values.len());
    let at = names.iter().position(|name| name.as_text() == Some("kMDItemPath")).unwrap();
    assert_eq!(values[at], Value::text("/files/sub/file 0.txt"));
    let stored = pipe.result("storeAttributes:forOIDArray:context:", 1, cnids());
    assert_eq!((stored, pipe.result("noSuchMethod:", 1, Vec::new())), (FAILED, FAILED));
}

/// Long names and many attributes fill an answer before a page ends; what is left waits.
#[test]
fn an_answer_has_a_size() {
    let mut pipe = Pipe::opened(0);
    let attributes = vec![Value::text("kMDItemPath"); 60];
    let more = vec![Value::text("kMDAttributeArray"), Value::Array(attributes)];
    let params = [vec![Value::text("kMDQueryString"), Value::text("kMDItemFSName == \"*\"")], more];
    let arguments = vec![Value::Dictionary(params.concat())];
    assert_eq!(pipe.result("openQueryWithParams:forContext:", 1, arguments), 0);
    let request = pipe.fetch_request();
    let Progress::Search(search) = pipe.call(&request) else { panic!() };
    // While the search is made, the same query has nothing more.
    let meanwhile = pipe.fetch(1);
    assert_eq!((meanwhile.status, meanwhile.ids.len()), (MORE, 0));
    let long = |id: u64| Hit { path: "x".repeat(700), ..hit(id) };
    let found: Vec<_> = (0..SPOTLIGHT_RESULTS_AT_ONCE as u64).map(long).collect();
    let page = Page { found, after: None };
    let stub = pipe.spotlight.complete(&search.searched, Some(page)).unwrap();
    let Reply::Command { fragment: 0, message } = Reply::parse(2, &stub).unwrap() else { panic!() };
    assert!(message.len() < 65_536, "{}", message.len());
    let mut told =
        unpack(&message).unwrap()[0].as_array().unwrap()[1].as_cnids().unwrap().ids.clone();
    loop {
        let fetched = pipe.fetch(1);
        told.extend(fetched.ids);
        if fetched.status == 0 {
            break;
        }
    }
    assert_eq!(told, (0..SPOTLIGHT_RESULTS_AT_ONCE as u64).collect::<Vec<_>>());
    // The oldest files are forgotten, and those that were told last are known.
    assert_eq!(pipe.attributes(0, &["kMDItemFSSize"]), Value::Array(vec![Value::Integer(0)]));
    assert!(pipe.spotlight.bytes() <= 2 * MAX_SPOTLIGHT_TOLD_BYTES);
}

#[test]
fn answers_are_told_in_parts() {
    let mut whole = Pipe::opened(100);
    let mut parts = Pipe::opened(100);
    parts.max_fragment = 1_024;
    for pipe in [&mut whole, &mut parts] {
        assert_eq!(pipe.open_query(1, Vec::new()), 0);
    }
    let (whole, parts) = (whole.fetch(1), parts.fetch(1));
    assert_eq!((whole.ids.len(), whole.ids), (100, parts.ids));
    assert_eq!(whole.rows, parts.rows);
}

#[test]
fn a_failed_search_ends_its_query() {
    let mut pipe = Pipe::opened(10);
    pipe.open_query(1, Vec::new());
    let request = pipe.fetch_request();
    let Progress::Search(search) = pipe.call(&request) else { panic!() };
    let stub = pipe.spotlight.complete(&search.searched, None).unwrap();
    let failed = Reply::Command { fragment: 0, message: hex(samba::FAILED) };
    assert_eq!(Reply::parse(2, &stub), Ok(failed));
    assert_eq!(pipe.fetch(1).status, 0);
    // A search may end after its query, and after the share was closed.
    pipe.open_query(1, Vec::new());
    let Progress::Search(late) = pipe.call(&request) else { panic!() };
    pipe.result("closeQueryForContext:", 1, Vec::new());
    let answer = pipe.spotlight.complete(&late.searched, Some(page(&late, 10)));
    assert_eq!(answer.as_ref(), Ok(&stub));
    // Another query has its numbers.
    pipe.open_query(1, Vec::new());
    let answer = pipe.spotlight.complete(&late.searched, Some(page(&late, 10)));
    assert_eq!(answer, Ok(stub));
    assert_eq!(pipe.fetch(1).ids.len(), 10);
    pipe.ended(&Request::Close { handle: pipe.handle }).unwrap();
    let answer = pipe.spotlight.complete(&late.searched, Some(page(&late, 10)));
    assert_eq!(answer, Err(FaultStatus::PROTO_ERROR));
}

#[test]
fn scopes_are_folders_of_the_share() {
    let scopes = |paths: &[&str]| {
        let mut pipe = Pipe::opened(0);
        let paths = Value::Array(paths.iter().map(|path| Value::text(path)).collect());
        if pipe.open_query(1, vec![Value::text("kMDScopeArray"), paths]) != 0 {
            return None;
        }
        let request = pipe.fetch_request();
        let mut scopes = Vec::new();
        while let Progress::Search(search) = pipe.call(&request) {
            scopes.push(search.scope);
            pipe.spotlight
                .complete(&search.searched, Some(Page { found: Vec::new(), after: None }))
                .unwrap();
        }
        Some(scopes.join("|"))
    };
    for (paths, expected) in [
        (&[][..], Some("")),
        (&["/"], Some("")),
        (&["/files"], Some("")),
        (&["/files/"], Some("")),
        (&["/Volumes/f/a/b"], Some("a/b")),
        (&["kMDQueryScopeComputer"], Some("")),
        (&["/files/a", "/files/b", "/files/a/c"], Some("a|b")),
        (&["/files/a", "/files"], Some("")),
        (&["/files2"], None),
        (&["/srv/files"], None),
        (&["/files/../etc"], None),
        (&["/files/a//b"], None),
    ] {
        assert_eq!(scopes(paths).as_deref(), expected, "{paths:?}");
    }
    assert_eq!(scopes(&["/files"; 17]), None);
}

#[test]
fn items_are_the_only_ones_that_are_told() {
    let mut pipe = Pipe::opened(250);
    let items = Cnids { kind: 1, context: 3, ids: vec![3, 120, 999] };
    let items = vec![Value::text("kMDQueryItemArray"), Value::Array(vec![Value::Cnids(items)])];
    assert_eq!(pipe.open_query(1, items), 0);
    let told: Vec<_> = (0..3).flat_map(|_| pipe.fetch(1).ids).collect();
    assert_eq!(told, [3, 120]);
}

#[test]
fn a_pipe_has_limits() {
    let mut pipe = Pipe::opened(0);
    for query in 0..MAX_SPOTLIGHT_QUERIES as u64 {
        assert_eq!(pipe.open_query(query, Vec::new()), 0);
    }
    assert_eq!(pipe.open_query(99, Vec::new()), FAILED);
    let many = Value::Array(vec![Value::text("kMDItemPath"); 65]);
    let mut other = Pipe::opened(0);
    let params = [
        Value::text("kMDAttributeArray"),
        many,
        Value::text("kMDQueryString"),
        Value::text("true"),
    ];
    let arguments = vec![Value::Dictionary(params.to_vec())];
    assert_eq!(other.result("openQueryWithParams:forContext:", 1, arguments), FAILED);
    // Closing one makes room.
    assert_eq!(pipe.result("closeQueryForContext:", 0, Vec::new()), 0);
    assert_eq!(pipe.open_query(99, Vec::new()), 0);
    for _ in 1..MAX_SPOTLIGHT_VOLUMES {
        assert_ne!(pipe.open("files").1, ContextHandle::NULL);
    }
    assert_eq!(pipe.open("files").1, ContextHandle::NULL);
}

#[test]
fn files_that_were_told_long_ago_are_forgotten() {
    let count = MAX_SPOTLIGHT_TOLD as u64 + 10;
    let mut pipe = Pipe::opened(count);
    assert_eq!(pipe.open_query(1, Vec::new()), 0);
    while pipe.fetch(1).status == MORE {}
    assert_eq!(pipe.attributes(9, &["kMDItemPath"]), Value::Nil);
    assert_ne!(pipe.attributes(10, &["kMDItemPath"]), Value::Nil);
    let bytes = pipe.spotlight.bytes();
    assert!((50_000..MAX_SPOTLIGHT_TOLD_BYTES + 50_000).contains(&bytes), "{bytes}");
}

proptest! {
    /// Any order of messages and lies has an answer or a fault.
    #[test]
    fn any_calls_are_answered(
        steps in proptest::collection::vec((0..9_u8, 0..3_u64, 0..255_u8), 0..60),
    ) {
        let mut pipe = Pipe::opened(120);
        for (step, query, byte) in steps {
            match step {
                0 => _ = pipe.open_query(query, Vec::new()),
                1 | 2 => _ = pipe.fetch(query),
                3 => _ = pipe.result("closeQueryForContext:", query, Vec::new()),
                4 => _ = pipe.attributes(query, &["kMDItemPath"]),
                5 => pipe.max_fragment = 1_024 + u32::from(byte),
                6 => pipe.handle = pipe.open("files").1,
                7 => {
                    let mut lie = hex(samba::OPEN_QUERY);
                    let at = usize::from(byte) * 2;
                    lie[at] ^= 0x55;
                    _ = pipe.send(lie);
                }
                _ => {
                    let request = pipe.command(vec![byte; 40]);
                    prop_assert!(pipe.ended(&request).is_ok());
                }
            }
            if pipe.handle == ContextHandle::NULL {
                break;
            }
            prop_assert!(pipe.spotlight.bytes() < 16 * (MAX_SPOTLIGHT_TOLD_BYTES + 100_000));
        }
    }

    #[test]
    fn queries_that_are_open_are_parsed(text in "\\PC{0,30}") {
        let mut pipe = Pipe::opened(0);
        let params = vec![Value::text("kMDQueryString"), Value::Text(text.clone())];
        let result = pipe.result("openQueryWithParams:forContext:", 1, vec![Value::Dictionary(params)]);
        let is_query = crate::mdssvc::parse_query(&text, 0).is_ok();
        prop_assert_eq!(result == 0, is_query);
    }
}

#[test]
fn a_query_reaches_the_index() {
    let mut pipe = Pipe::opened(0);
    pipe.open_query(1, Vec::new());
    let request = pipe.fetch_request();
    let Progress::Search(search) = pipe.call(&request) else { panic!() };
    assert_eq!(
        (search.share, search.after, search.most),
        ("files", None, SPOTLIGHT_RESULTS_AT_ONCE)
    );
    assert!(matches!(&*search.query, Query::Name(text) if text.text == "file"));
}
