//! Answers that were recorded from etcd 3.4.23 and 3.5.30, of Debian, and answers that are wrong.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::limits::{
    ANSWER_BYTES, KEY_BYTES, MEMBERS, NAME_BYTES, NESTING, OPERATIONS, REASON_BYTES, TOKEN_BYTES,
    TTL_SECONDS, VALUES,
};
use crate::types::{
    Change, Compare, Fact, KeyValue, LeaseId, Op, OpAnswer, Range, Relation, Revision, Txn,
    WatchAnswer,
};

/// A recorded answer of both versions.
macro_rules! recorded {
    ($name:literal) => {
        [
            &include_bytes!(concat!("../../tests/recorded/3.4.23/", $name, ".json"))[..],
            &include_bytes!(concat!("../../tests/recorded/3.5.30/", $name, ".json"))[..],
        ]
    };
}

fn one(key: &str) -> Range {
    let keys = Keys::One(key.as_bytes().to_vec());
    Range { keys, limit: 0, after: Vec::new(), revision: Revision(0) }
}

fn prefix(key: &str, limit: u64) -> Range {
    Range { keys: Keys::Prefix(key.as_bytes().to_vec()), limit, ..one(key) }
}

fn value(key: &str, value: &str, revision: u64) -> KeyValue {
    let revision = Revision(revision);
    KeyValue {
        key: key.into(),
        value: value.into(),
        create_revision: revision,
        mod_revision: revision,
        version: 1,
        lease: LeaseId(0),
    }
}

fn malformed<T: core::fmt::Debug>(read: Parsed<T>) -> &'static str {
    match read {
        Err(Fault::Malformed(what)) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn recorded_ranges_are_read() {
    for body in recorded!("range_empty") {
        let answer = range_answer(body, &one("a")).unwrap();
        assert_eq!((answer.revision, answer.values.len(), answer.more), (Revision(1), 0, false));
    }
    for body in recorded!("range_one") {
        let answer = range_answer(body, &prefix("b", 1)).unwrap();
        assert_eq!(answer.values, [value("b", "", 4)]);
        assert!(!answer.more);
    }
    for body in recorded!("range_more") {
        let answer = range_answer(body, &prefix("b", 1)).unwrap();
        assert_eq!((answer.revision, answer.values.len(), answer.more), (Revision(5), 1, true));
    }
}

#[test]
fn recorded_transactions_are_read() {
    let put = Op::Put { key: b"a".to_vec(), value: b"one".to_vec(), lease: LeaseId(1) };
    let asked = Txn {
        compares: Vec::new(),
        success: vec![put, Op::Range(one("a"))],
        failure: vec![Op::Range(one("a")), Op::Delete(Keys::One(b"a".to_vec()))],
    };
    for body in recorded!("txn_success") {
        let answer = txn_answer(body, &asked).unwrap();
        assert_eq!((answer.revision, answer.succeeded), (Revision(2), true));
        let [OpAnswer::Put, OpAnswer::Range { values, more: false }] = &answer.answers[..] else {
            panic!("{answer:?}");
        };
        assert_eq!(values[0].value, b"one");
        assert!(values[0].lease.0 > 1 << 60, "{values:?}");
    }
    for body in recorded!("txn_failure") {
        let answer = txn_answer(body, &asked).unwrap();
        assert_eq!((answer.revision, answer.succeeded), (Revision(3), false));
        assert_eq!(answer.answers[1], OpAnswer::Delete(1));
    }
    // The answers belong to the operations of the branch that was carried out.
    for body in recorded!("txn_put_empty") {
        assert_eq!(
            malformed(txn_answer(body, &asked)),
            "another number of answers than of operations"
        );
        let other = Txn { success: vec![Op::Range(one("b"))], ..Txn::default() };
        assert_eq!(malformed(txn_answer(body, &other)), "an answer to another operation");
    }
}

#[test]
fn recorded_leases_are_read() {
    let mut leases = Vec::new();
    for body in recorded!("grant") {
        let answer = lease_answer(body).unwrap();
        assert_eq!(answer.ttl, Duration::from_secs(2));
        leases.push(answer.lease);
    }
    for (body, lease) in recorded!("keepalive").into_iter().zip(leases.clone()) {
        let answer = kept_answer(body, lease).unwrap().unwrap();
        assert_eq!(answer, LeaseAnswer { lease, ttl: Duration::from_secs(2) });
        assert_eq!(malformed(kept_answer(body, LeaseId(5))), "an answer about another lease");
    }
    for (body, lease) in recorded!("keepalive_absent").into_iter().zip(leases) {
        assert_eq!(kept_answer(body, lease), Err(Fault::LeaseNotFound));
    }
    for body in recorded!("revoke") {
        assert_eq!(revision_answer(body), Ok(Revision(5)));
    }
}

fn watched(stream: &[u8], after: u64) -> Vec<WatchLine> {
    let (mut lines, mut read) = (Lines::default(), Vec::new());
    let told = lines.take(stream, |line| {
        read.push(watch_line(line, b"b", Revision(after))?);
        Ok::<_, Fault>(())
    });
    told.unwrap();
    read
}

#[test]
fn recorded_watches_are_read() {
    for stream in recorded!("watch") {
        let changes = vec![Change::Put(value("b", "", 4)), Change::Put(value("b2", "two", 5))];
        let answer = WatchAnswer::Changes { revision: Revision(5), changes };
        assert_eq!(watched(stream, 0), [WatchLine::Created, WatchLine::Answer(answer)]);
        // Changes that were told already are left out.
        let changes = vec![Change::Put(value("b2", "two", 5))];
        let answer = WatchAnswer::Changes { revision: Revision(5), changes };
        assert_eq!(watched(stream, 4)[1], WatchLine::Answer(answer));
    }
    for stream in recorded!("watch_compacted") {
        let compacted = WatchAnswer::Compacted { oldest: Revision(3) };
        assert_eq!(watched(stream, 0), [WatchLine::Created, WatchLine::Answer(compacted)]);
    }
    for stream in recorded!("watch_bad_token") {
        let [WatchLine::Ended(refusal)] = &watched(stream, 0)[..] else { panic!() };
        assert_eq!(refusal.clone().verdict(), Verdict::Token);
    }
}

#[test]
fn a_deletion_and_a_progress_notification_are_read() {
    // Both versions have the same words here. A deletion has the key and its revision only.
    let line = br#"{"result":{"header":{"revision":"9"},"events":[{"type":"DELETE","kv":{"key":"Yg==","mod_revision":"8"}}]}}"#;
    let change = Change::Delete { key: b"b".to_vec(), revision: Revision(8) };
    let answer = WatchAnswer::Changes { revision: Revision(8), changes: vec![change] };
    assert_eq!(watch_line(line, b"b", Revision(3)), Ok(WatchLine::Answer(answer)));
    let line = br#"{"result":{"header":{"revision":"9"}}}"#;
    let progress =
        |revision| WatchAnswer::Changes { revision: Revision(revision), changes: Vec::new() };
    assert_eq!(watch_line(line, b"b", Revision(3)), Ok(WatchLine::Answer(progress(9))));
    // An answer of a member that lags behind does not move the watch back.
    assert_eq!(watch_line(line, b"b", Revision(20)), Ok(WatchLine::Answer(progress(20))));
}

#[test]
fn recorded_members_and_tokens_are_read() {
    for (body, version) in recorded!("status").into_iter().zip(["3.4.23", "3.5.30"]) {
        let status = status_answer(body).unwrap();
        assert_eq!((status.version.as_str(), status.revision), (version, Revision(5)));
        assert_eq!(status.member, status.leader);
        assert_eq!(status.database_bytes, 20_480);
    }
    for body in recorded!("members") {
        let members = members_answer(body).unwrap();
        assert_eq!(members[0].name, "n1");
        assert_eq!(members[0].client_urls, ["http://127.0.0.1:23790"]);
    }
    for body in recorded!("authenticate") {
        assert_eq!(token_answer(body).unwrap().len(), 19);
    }
    assert_eq!(malformed(token_answer(b"{\"token\":\"a b\"}")), "an answer without a token");
}

#[test]
fn recorded_refusals_are_sorted_by_their_effect() {
    let verdicts = |bodies: [&[u8]; 2]| bodies.map(|body| refusal(body).unwrap().verdict());
    let end = |fault: Fault| [Verdict::End(fault.clone()), Verdict::End(fault)];
    let refused = |why: &str| end(Fault::Refused(why.into()));
    assert_eq!(verdicts(recorded!("revoke_absent")), end(Fault::LeaseNotFound));
    assert_eq!(verdicts(recorded!("txn_no_lease")), end(Fault::LeaseNotFound));
    assert_eq!(verdicts(recorded!("range_compacted")), end(Fault::Compacted));
    let why = "etcdserver: mvcc: required revision is a future revision";
    assert_eq!(verdicts(recorded!("range_future")), refused(why));
    let why = "etcdserver: authentication failed, invalid user ID or password";
    assert_eq!(verdicts(recorded!("authenticate_wrong")), refused(why));
    let why = "etcdserver: authentication is not enabled";
    assert_eq!(verdicts(recorded!("authenticate_disabled")), refused(why));
    assert_eq!(verdicts(recorded!("range_no_token")), [Verdict::Token, Verdict::Token]);
    assert_eq!(verdicts(recorded!("range_bad_token")), [Verdict::Token, Verdict::Token]);
    let verdict = |code, reason: &str| Refusal { code, reason: reason.into() }.verdict();
    assert_eq!(verdict(14, "etcdserver: no leader"), Verdict::NotNow);
    assert_eq!(verdict(14, "etcdserver: request timed out"), Verdict::Unknown);
    let full = "etcdserver: mvcc: database space exceeded";
    assert_eq!(verdict(8, full), Verdict::End(Fault::NoSpace(full.into())));
    assert_eq!(verdict(14, "etcdserver: leader changed"), Verdict::Unknown);
    for not_json in [&b"Bad Gateway"[..], b"", b"{}", b"[]", b"{\"code\":5"] {
        malformed(refusal(not_json));
    }
    let long = format!("{{\"code\":3,\"message\":\"{}\\n\"}}", "x".repeat(2 * REASON_BYTES));
    assert_eq!(refusal(long.as_bytes()).unwrap().reason.len(), REASON_BYTES);
}

#[test]
fn requests_are_the_gateways_json() {
    let text = |body: Vec<u8>| String::from_utf8(body).unwrap();
    let asked = Range { after: b"b7".to_vec(), revision: Revision(9), ..prefix("b", 10) };
    let body = text(range(&asked).unwrap());
    assert_eq!(body, r#"{"key":"YjcA","range_end":"Yw==","limit":"10","revision":"9"}"#);
    let asked = Txn {
        compares: vec![
            Compare {
                key: b"a".to_vec(),
                relation: Relation::Equal,
                fact: Fact::CreateRevision(Revision(0)),
            },
            Compare {
                key: b"a".to_vec(),
                relation: Relation::NotEqual,
                fact: Fact::Lease(LeaseId(-5)),
            },
        ],
        success: vec![Op::Put { key: b"a".to_vec(), value: b"1".to_vec(), lease: LeaseId(7) }],
        failure: vec![Op::Delete(Keys::Prefix(vec![b'a', 255]))],
    };
    let wanted = concat!(
        r#"{"compare":[{"key":"YQ==","result":"EQUAL","target":"CREATE","create_revision":"0"},"#,
        r#"{"key":"YQ==","result":"NOT_EQUAL","target":"LEASE","lease":"-5"}],"#,
        r#""success":[{"request_put":{"key":"YQ==","value":"MQ==","lease":"7"}}],"#,
        r#""failure":[{"request_delete_range":{"key":"Yf8=","range_end":"Yg=="}}]}"#,
    );
    assert_eq!(text(txn(&asked).unwrap()), wanted);
    let all = text(watch(b"b", Revision(0)).unwrap());
    assert!(all.contains(r#""start_revision":"1""#), "zero is not the beginning: {all}");
    let body = text(watch(b"b", Revision(4)).unwrap());
    let wanted = r#"{"key":"Yg==","range_end":"Yw==","start_revision":"4","progress_notify":true}"#;
    assert_eq!(body, format!(r#"{{"create_request":{wanted}}}"#));
    assert_eq!(text(grant(2)), r#"{"TTL":"2"}"#);
    assert_eq!(text(lease(LeaseId(3))), r#"{"ID":"3"}"#);
    let body = text(authenticate("a\"b", "ü\\\n"));
    assert_eq!(body, r#"{"name":"a\"b","password":"ü\\\u000a"}"#);
}

#[test]
fn requests_have_limits() {
    let put = |key: usize| Op::Put { key: vec![b'k'; key], value: Vec::new(), lease: LeaseId(0) };
    let of = |ops: Vec<Op>| txn(&Txn { success: ops, ..Txn::default() });
    for (bytes, is_good) in [(0, false), (1, true), (KEY_BYTES, true), (KEY_BYTES + 1, false)] {
        assert_eq!(of(vec![put(bytes)]).is_ok(), is_good, "{bytes}");
    }
    for (count, is_good) in [(OPERATIONS - 1, true), (OPERATIONS, true), (OPERATIONS + 1, false)] {
        assert_eq!(of(vec![put(1); count]).is_ok(), is_good, "{count}");
    }
    let value = vec![0; crate::limits::REQUEST_BYTES];
    let long = Op::Put { key: b"k".to_vec(), value, lease: LeaseId(0) };
    assert!(matches!(of(vec![long]), Err(Fault::Refused(_))));
}

#[test]
fn the_end_of_a_prefix_is_the_first_key_behind_it() {
    assert_eq!(prefix_end(b"a"), b"b");
    assert_eq!(prefix_end(&[b'a', 255, 255]), b"b");
    assert_eq!(prefix_end(&[255, 255]), [0]);
    let all = Interval::of(&Keys::Prefix(vec![255]));
    assert!(all.contains(&[255, 1]) && !all.contains(b"b"));
    let rest = Interval::of(&Keys::Prefix(b"b".to_vec())).after(b"b1");
    assert!(!rest.contains(b"b1") && rest.contains(&[b'b', b'1', 0]) && !rest.contains(b"c"));
}

fn answer_of(keys: &[String]) -> Vec<u8> {
    format!("{{\"header\":{{\"revision\":\"5\"}},\"kvs\":[{}]}}", keys.join(",")).into_bytes()
}

fn key(name: &str, create: &str, modify: &str, version: &str) -> String {
    let mut encoded = Vec::new();
    base64::encode(name.as_bytes(), &mut encoded);
    let encoded = String::from_utf8(encoded).unwrap();
    format!(
        r#"{{"key":"{encoded}","create_revision":"{create}","mod_revision":"{modify}","version":"{version}"}}"#
    )
}

#[test]
fn an_answer_that_contradicts_its_request_is_malformed() {
    let good = |name| key(name, "1", "1", "1");
    let read = |keys: &[String]| range_answer(&answer_of(keys), &prefix("b", 2));
    assert!(read(&[good("b"), good("ba")]).is_ok());
    assert_eq!(malformed(read(&[good("a")])), "a key that was not asked for");
    assert_eq!(malformed(read(&[good("ba"), good("b")])), "keys that are not in their order");
    assert_eq!(malformed(read(&[good("b"), good("b")])), "keys that are not in their order");
    assert_eq!(
        malformed(read(&[good("b"), good("ba"), good("bb")])),
        "more keys than were asked for"
    );
    assert_eq!(malformed(read(&[key("b", "1", "6", "1")])), "a key that is newer than its answer");
    for (create, modify, version) in [("2", "1", "1"), ("0", "1", "1"), ("1", "1", "0")] {
        let what = malformed(read(&[key("b", create, modify, version)]));
        assert_eq!(what, "a key whose revisions contradict each other");
    }
    assert_eq!(malformed(read(&[key("b", "-1", "1", "1")])), "a revision below zero");
    let what = malformed(read(&[key("", "1", "1", "1")]));
    assert_eq!(what, "a key without a name or a revision");
    assert_eq!(malformed(range_answer(b"{}", &one("b"))), "an answer without a revision");
    let after = Range { after: b"ba".to_vec(), ..prefix("b", 0) };
    let what = malformed(range_answer(&answer_of(&[good("ba")]), &after));
    assert_eq!(what, "a key that was not asked for");
    let event =
        |key: &str| format!(r#"{{"result":{{"header":{{"revision":"5"}},"events":[{key}]}}}}"#);
    let put = |name, modify| format!(r#"{{"kv":{}}}"#, key(name, "1", modify, "1"));
    let read = |text: &str| watch_line(event(text).as_bytes(), b"b", Revision(0));
    assert_eq!(malformed(read(&put("c", "2"))), "a change that was not asked for");
    assert_eq!(malformed(read(&put("b", "6"))), "a change that is newer than its answer");
    let both = format!("{},{}", put("b", "3"), put("b", "2"));
    assert_eq!(malformed(read(&both)), "changes that are not in their order");
    assert_eq!(malformed(read("{}")), "a change of no key");
    assert_eq!(malformed(read(r#"{"type":"MOVE"}"#)), "a change of an unknown kind");
}

#[test]
fn answers_have_limits() {
    for (depth, is_good) in [(NESTING - 2, true), (NESTING - 1, true), (NESTING, false)] {
        let depth = usize::try_from(depth).unwrap();
        let body = format!(
            r#"{{"x":{}{},"header":{{"revision":"1"}}}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        );
        assert_eq!(revision_answer(body.as_bytes()).is_ok(), is_good, "{depth}");
    }
    for (bytes, is_good) in [(KEY_BYTES - 1, true), (KEY_BYTES, true), (KEY_BYTES + 1, false)] {
        let body = answer_of(&[key(&"b".repeat(bytes), "1", "1", "1")]);
        assert_eq!(range_answer(&body, &prefix("b", 0)).is_ok(), is_good, "{bytes}");
    }
    for (count, is_good) in [(MEMBERS - 1, true), (MEMBERS, true), (MEMBERS + 1, false)] {
        let members = vec!["{}"; count].join(",");
        let body = format!(r#"{{"members":[{members}]}}"#);
        assert_eq!(members_answer(body.as_bytes()).is_ok(), is_good, "{count}");
    }
    for (count, is_good) in [(VALUES, true), (VALUES + 1, false)] {
        let keys: Vec<_> = (0..count).map(|at| key(&format!("b{at:05}"), "1", "1", "1")).collect();
        let read = range_answer(&answer_of(&keys), &prefix("b", 0));
        assert_eq!(read.is_ok(), is_good, "{count}");
    }
    for (bytes, is_good) in [(NAME_BYTES - 1, true), (NAME_BYTES, true), (NAME_BYTES + 1, false)] {
        let body = format!(r#"{{"version":"{}"}}"#, "3".repeat(bytes));
        assert_eq!(status_answer(body.as_bytes()).is_ok(), is_good, "{bytes}");
    }
    for (bytes, is_good) in [(TOKEN_BYTES - 1, true), (TOKEN_BYTES, true), (TOKEN_BYTES + 1, false)]
    {
        let body = format!(r#"{{"token":"{}"}}"#, "t".repeat(bytes));
        assert_eq!(token_answer(body.as_bytes()).is_ok(), is_good, "{bytes}");
    }
    for (seconds, is_good) in [(0, false), (1, true), (TTL_SECONDS, true), (TTL_SECONDS + 1, false)]
    {
        let body = format!(r#"{{"ID":"1","TTL":"{seconds}"}}"#);
        assert_eq!(lease_answer(body.as_bytes()).is_ok(), is_good, "{seconds}");
    }
    let mut lines = Lines::default();
    let mut take = |bytes: usize, end: &[u8]| {
        lines.take(&[&vec![b' '; bytes], end].concat(), |_| Ok::<_, Fault>(()))
    };
    assert_eq!(take(ANSWER_BYTES, b"\n"), Ok(()));
    assert_eq!(take(ANSWER_BYTES, b""), Ok(()));
    assert_eq!(take(1, b""), Err(TOO_LONG));
}

#[test]
fn text_that_is_not_json_is_malformed() {
    for (text, what) in [
        ("", "a value that is no object"),
        ("{", "a value that is no string"),
        ("{\"header\"}", "a name without a value"),
        ("{\"header\":{}", "an object without an end"),
        ("{\"header\":{}} {}", "bytes behind the answer"),
        ("{\"header\":[]}", "a value that is no object"),
        ("{\"header\":{\"revision\":\"x\"}}", "a number that is none"),
        ("{\"header\":{\"revision\":\"+1\"}}", "a number that is none"),
        ("{\"header\":{\"revision\":1e3}}", "an object without an end"),
        ("{\"header\":{\"revision\":\"99999999999999999999\"}}", "a number that is none"),
        ("{\"x\":\"a", "a string without an end"),
        ("{\"x\":\"a\nb\"}", "a control character in a string"),
        ("{\"x\":nul}", "a value that is neither true nor false"),
    ] {
        assert_eq!(malformed(revision_answer(text.as_bytes())), what, "{text}");
    }
    // Unknown fields of every kind are skipped; null is a field that is not there.
    let text = r#" { "a" : [ 1, -2.5e+3, "x\"]", {"b":null}, true ] , "header" : {"revision": 7,"x":null}} "#;
    assert_eq!(revision_answer(text.as_bytes()), Ok(Revision(7)));
}

#[test]
fn escapes_are_read() {
    let token = |text: &str| token_answer(format!("{{\"token\":\"{text}\"}}").as_bytes());
    assert_eq!(token(r"a\/\\\u0062\u002b").as_deref(), Ok(r"a/\b+"));
    for bad in [r"\x", r"\u12", r"\u+123", r"\ud800", r"\ud800\u0041", r"\"] {
        assert!(matches!(token(bad), Err(Fault::Malformed(_))), "{bad}");
    }
    let reason = refusal(br#"{"code":3,"message":"\ud83d\ude00"}"#).unwrap().reason;
    assert_eq!(reason, "\u{1f600}");
}

proptest! {
    #[test]
    fn base64_survives_a_round_trip(bytes: Vec<u8>) {
        let mut text = Vec::new();
        base64::encode(&bytes, &mut text);
        prop_assert_eq!(base64::decode(&text), Ok(bytes));
    }

    #[test]
    fn only_base64_of_rfc_4648_is_read(text in "[A-Za-z0-9+/=]{0,12}") {
        // Each text that is read is the one that would be written.
        if let Ok(bytes) = base64::decode(text.as_bytes()) {
            let mut again = Vec::new();
            base64::encode(&bytes, &mut again);
            prop_assert_eq!(again, text.into_bytes());
        }
    }

    #[test]
    fn lines_do_not_depend_on_the_parts_in_which_they_come(
        texts in proptest::collection::vec("[a-z]{0,5}", 0..8), size in 1_usize..9,
    ) {
        let stream = texts.iter().map(|text| text.clone() + "\n").collect::<String>();
        let (mut lines, mut read) = (Lines::default(), Vec::new());
        for part in stream.as_bytes().chunks(size) {
            let told = lines.take(part, |line| {
                read.push(String::from_utf8_lossy(line).to_string());
                Ok::<_, Fault>(())
            });
            prop_assert_eq!(told, Ok(()));
        }
        let wanted: Vec<_> = texts.into_iter().filter(|text| !text.is_empty()).collect();
        prop_assert_eq!(read, wanted);
    }
}
