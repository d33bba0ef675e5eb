//! A client against a small directory in this process, and against one that misbehaves.

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use frevo_auth::der::{self, Elements};
use frevo_auth::{NtHash, Zeroizing};
use frevo_wire::codec::Parsed;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::filter::Filter;
use crate::message::length;
use crate::person::Names;

const HASH: &str = "A4F49C406510BDCAB6824EE7C30FD852";

/// An entry: its name, and its attributes with their values.
type FakeEntry = (&'static str, Vec<(&'static str, Vec<String>)>);

/// The directory of these tests.
#[derive(Default)]
struct Fake {
    entries: Vec<FakeEntry>,
    connections: AtomicUsize,
    searches: AtomicUsize,
}

fn person(name: &str) -> Vec<(&'static str, Vec<String>)> {
    let flags = if name == "off" { "[UD]" } else { "[U]" };
    vec![
        ("objectClass", vec!["posixAccount".into(), "sambaSamAccount".into()]),
        ("uid", vec![name.into()]),
        ("sambaNTPassword", vec![HASH.into()]),
        ("sambaAcctFlags", vec![flags.into()]),
        ("gidNumber", vec!["100".into()]),
    ]
}

fn group(
    class: &str,
    name: &str,
    key: &'static str,
    member: &str,
) -> Vec<(&'static str, Vec<String>)> {
    vec![("objectClass", vec![class.into()]), ("cn", vec![name.into()]), (key, vec![member.into()])]
}

fn entries() -> Vec<FakeEntry> {
    vec![
        ("uid=ann,ou=people,dc=x", person("ann")),
        ("uid=off,ou=people,dc=x", person("off")),
        ("uid=two,ou=people,dc=x", person("two")),
        ("uid=two,ou=others,dc=x", person("two")),
        ("cn=staff,ou=groups,dc=x", group("posixGroup", "staff", "memberUid", "ann")),
        ("cn=users,ou=groups,dc=x", group("posixGroup", "users", "gidNumber", "100")),
        (
            "cn=west,ou=groups,dc=x",
            group("groupOfNames", "west", "member", "uid=ann,ou=people,dc=x"),
        ),
        (
            "cn=east,ou=groups,dc=x",
            group("groupOfNames", "east", "member", "uid=bob,ou=people,dc=x"),
        ),
    ]
}

fn values<'a>(entry: &'a FakeEntry, name: &[u8]) -> Option<&'a Vec<String>> {
    let is_it = |of: &str| of.as_bytes().eq_ignore_ascii_case(name);
    entry.1.iter().find(|(of, _)| is_it(of)).map(|(_, values)| values)
}

/// Judges an entry by an encoded filter.
fn holds(entry: &FakeEntry, tag: u8, value: &[u8]) -> Parsed<bool> {
    let mut parts = Elements::new(value);
    let mut nodes = Vec::new();
    match tag {
        0x87 => return Ok(values(entry, value).is_some()),
        0xa3 => {
            let (name, wanted) =
                (parts.expect(der::OCTET_STRING, "a")?, parts.expect(der::OCTET_STRING, "v")?);
            let has = values(entry, name).is_some_and(|all| {
                all.iter().any(|one| one.as_bytes().eq_ignore_ascii_case(wanted))
            });
            return Ok(has);
        }
        _ => {}
    }
    while !parts.is_empty() {
        let node = parts.next("filter")?;
        nodes.push(holds(entry, node.tag, node.value)?);
    }
    Ok(match tag {
        0xa0 => nodes.iter().all(|held| *held),
        0xa1 => nodes.iter().any(|held| *held),
        _ => !nodes.iter().any(|held| *held),
    })
}

fn wrapped(id: i64, tag: u8, op: &[u8]) -> Vec<u8> {
    let op = der::element(tag, op);
    der::element(der::SEQUENCE, &[der::integer_element(id), op].concat())
}

fn result(code: u8) -> Vec<u8> {
    [&[0x0a, 1, code][..], &[4, 0, 4, 0]].concat()
}

fn sent(id: i64, entry: &FakeEntry, asked: &[Vec<u8>]) -> Vec<u8> {
    let mut list = Vec::new();
    let is_asked = |name: &str| asked.iter().any(|one| one.eq_ignore_ascii_case(name.as_bytes()));
    for (name, values) in entry.1.iter().filter(|(name, _)| is_asked(name)) {
        let mut set = Vec::new();
        values.iter().for_each(|value| der::put(&mut set, der::OCTET_STRING, value.as_bytes()));
        let mut pair = der::element(der::OCTET_STRING, name.as_bytes());
        der::put(&mut pair, 0x31, &set);
        der::put(&mut list, der::SEQUENCE, &pair);
    }
    let mut op = der::element(der::OCTET_STRING, entry.0.as_bytes());
    der::put(&mut op, der::SEQUENCE, &list);
    wrapped(id, 0x64, &op)
}

impl Fake {
    fn answer(&self, request: &[u8]) -> Parsed<Vec<u8>> {
        let mut all = Elements::new(der::only(request, der::SEQUENCE, "request")?);
        let id = der::integer(all.expect(der::INTEGER, "id")?, "id")?;
        let op = all.next("op")?;
        let mut parts = Elements::new(op.value);
        if op.tag == 0x60 {
            parts.next("version")?;
            let name = parts.expect(der::OCTET_STRING, "name")?;
            let password = parts.expect(0x80, "password")?;
            let code = if (name, password) == (b"cn=frevo,dc=x", b"secret") { 0 } else { 49 };
            return Ok(wrapped(id, 0x61, &result(code)));
        }
        assert_eq!(op.tag, 0x63);
        self.searches.fetch_add(1, Ordering::SeqCst);
        let base = parts.expect(der::OCTET_STRING, "base")?;
        let base = core::str::from_utf8(base).unwrap();
        (0..2).try_for_each(|_| parts.next("scope").map(drop))?;
        let most = der::integer(parts.expect(der::INTEGER, "size")?, "size")?;
        (0..2).try_for_each(|_| parts.next("time").map(drop))?;
        let filter = parts.next("filter")?;
        let mut names = Elements::new(parts.expect(der::SEQUENCE, "attributes")?);
        let mut asked = Vec::new();
        while !names.is_empty() {
            asked.push(names.expect(der::OCTET_STRING, "name")?.to_vec());
        }
        let mut out = Vec::new();
        let found = self.entries.iter().filter(|entry| entry.0.ends_with(base));
        let found = found.filter(|entry| holds(entry, filter.tag, filter.value).unwrap());
        let found: Vec<_> = found.collect();
        let most = if most == 0 { usize::MAX } else { usize::try_from(most).unwrap() };
        found.iter().take(most).for_each(|entry| out.extend(sent(id, entry, &asked)));
        out.extend(wrapped(id, 0x65, &result(if found.len() > most { 4 } else { 0 })));
        Ok(out)
    }

    async fn serve(self: Arc<Self>, mut stream: TcpStream) {
        let mut received = Vec::new();
        loop {
            while let Ok(Some(whole)) = length(&received) {
                if received.len() < whole {
                    break;
                }
                let request: Vec<u8> = received.drain(..whole).collect();
                let answer = self.answer(&request).unwrap();
                if stream.write_all(&answer).await.is_err() {
                    return;
                }
            }
            if stream.read_buf(&mut received).await.unwrap_or(0) == 0 {
                return;
            }
        }
    }
}

/// Serves connections at a port of its own.
async fn listening(fake: Arc<Fake>) -> (u16, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            fake.connections.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(Arc::clone(&fake).serve(stream));
        }
    });
    (port, task)
}

fn options(ports: &[u16]) -> Options {
    let server = |port: &u16| Server {
        place: ServerPlace::Tcp { host: "127.0.0.1".into(), port: *port },
        tls: TlsUse::None,
    };
    let groups = "(|(&(objectClass=posixGroup)(|(memberUid={user})(gidNumber={gid})))\
                  (&(objectClass=groupOfNames)(member={dn})))";
    Options {
        servers: ports.iter().map(server).collect(),
        tls: None,
        bind: Some(Bind {
            dn: "cn=frevo,dc=x".into(),
            password: Zeroizing::new(b"secret".to_vec()),
        }),
        user_base: "dc=x".into(),
        user_filter: Filter::parse("(&(objectClass=sambaSamAccount)(uid={user}))").unwrap(),
        group_base: "ou=groups,dc=x".into(),
        group_filter: Filter::parse(groups).unwrap(),
        names: Names { user: "uid".into(), nt_hash: "sambaNTPassword".into(), group: "cn".into() },
        timeout: Duration::from_secs(5),
    }
}

fn fake() -> Arc<Fake> {
    Arc::new(Fake { entries: entries(), ..Fake::default() })
}

#[tokio::test]
async fn an_account_with_its_groups() {
    let fake = fake();
    let (port, _task) = listening(Arc::clone(&fake)).await;
    let mut directory = Directory::new(options(&[port]));
    let ann = directory.look_up("ANN").await.unwrap().unwrap();
    assert_eq!((&*ann.name, &*ann.dn), ("ann", "uid=ann,ou=people,dc=x"));
    assert_eq!(ann.nt_hash, NtHash::from_hex(HASH));
    assert_eq!(ann.groups, ["staff", "users", "west"]);
    assert!(directory.look_up("off").await.unwrap().unwrap().rules.is_disabled);
    assert_eq!(directory.look_up("nobody").await, Ok(None));
    assert_eq!(directory.look_up("two").await, Err(Fault::Ambiguous));
    for name in ["", "a\0", "*", ")(uid=ann", "ann)(|(uid=*"] {
        assert_eq!(directory.look_up(name).await, Ok(None), "{name:?}");
    }
    assert_eq!(directory.look_up(&"x".repeat(NAME_BYTES + 1)).await, Ok(None));
    assert_eq!(fake.connections.load(Ordering::SeqCst), 1);
    let listing = directory.list(3).await.unwrap();
    let names: Vec<_> = listing.people.iter().map(|one| &*one.name).collect();
    assert_eq!((&*names, listing.is_cut), (&["ann", "off", "two"][..], true));
    assert_eq!(listing.server, format!("ldap://127.0.0.1:{port}"));
}

#[tokio::test]
async fn a_wrong_password_of_the_bind_is_told() {
    let (port, _task) = listening(fake()).await;
    let mut wrong = options(&[port]);
    wrong.bind.as_mut().unwrap().password = Zeroizing::new(b"other".to_vec());
    let fault = Directory::new(wrong).look_up("ann").await.unwrap_err();
    assert_eq!(fault.to_string(), "the bind is refused: the name or the password is wrong");
    assert!(!fault.is_of_server());
}

/// The next server is asked where one is away, and the same one again after it has come back.
#[tokio::test]
async fn servers_are_asked_in_their_order() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = gone.local_addr().unwrap().port();
    drop(gone);
    let fake = fake();
    let (port, task) = listening(Arc::clone(&fake)).await;
    let mut directory = Directory::new(options(&[nobody, port]));
    assert!(directory.look_up("ann").await.unwrap().is_some());
    // A server that has ended the connection is connected with again.
    directory.connection = None;
    assert!(directory.look_up("ann").await.unwrap().is_some());
    assert_eq!(fake.connections.load(Ordering::SeqCst), 2);
    task.abort();
    let _ = task.await;
    directory.connection = None;
    let fault = directory.look_up("ann").await.unwrap_err();
    assert!(matches!(fault, Fault::Unreachable(_)), "{fault}");
    let again = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    tokio::spawn(async move {
        let (stream, _) = again.accept().await.unwrap();
        fake.serve(stream).await;
    });
    assert!(directory.look_up("ann").await.unwrap().is_some());
}

/// Answers a connection with these bytes, whatever it asks, and keeps it open.
async fn rude(bytes: Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(&bytes).await;
            kept.push(stream);
        }
    });
    port
}

#[tokio::test]
async fn a_server_that_misbehaves_is_left() {
    let bound = wrapped(1, 0x61, &result(0));
    let with = |more: &[u8]| [&bound[..], more].concat();
    let entry = ("uid=ann,dc=x", person("ann"));
    for (bytes, part) in [
        (b"HTTP/1.1 400".to_vec(), "malformed"),
        (vec![0x30, 0x84, 0xff, 0xff, 0xff, 0xff], "too long"),
        (wrapped(2, 0x61, &result(0)), "another request"),
        (wrapped(0, 0x78, &result(52)), "ended the connection"),
        (wrapped(1, 0x65, &result(0)), "of another kind"),
        (with(&wrapped(2, 0x78, &result(0))), "of another kind"),
        (with(&wrapped(2, 0x65, &result(50))), "does not allow it"),
        (with(&[sent(2, &entry, &[]), wrapped(2, 0x65, &result(0))].concat()), "no account"),
    ] {
        let port = rude(bytes).await;
        let fault = Directory::new(options(&[port])).look_up("ann").await.unwrap_err();
        assert!(fault.to_string().contains(part), "{part}: {fault}");
    }
}

/// RFC 4511 4.14.1: what somebody on the way sends before TLS is not taken for the server's.
#[tokio::test]
async fn nothing_comes_between_starttls_and_tls() {
    let begun = wrapped(1, 0x78, &result(0));
    let bound = wrapped(1, 0x61, &result(0));
    for (bytes, part) in [
        ([&begun[..], &bound].concat(), "between StartTLS"),
        (wrapped(1, 0x78, &result(52)), "StartTLS is refused"),
        (begun, "no authority"),
    ] {
        let mut asked = options(&[rude(bytes).await]);
        asked.servers[0].tls = TlsUse::StartTls;
        let fault = Directory::new(asked).look_up("ann").await.unwrap_err();
        assert!(fault.to_string().contains(part), "{part}: {fault}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_left_in_time() {
    let port = rude(Vec::new()).await;
    let fault = Directory::new(options(&[port])).look_up("ann").await.unwrap_err();
    assert_eq!(fault, Fault::Silent(Duration::from_secs(5)));
    assert_eq!(fault.to_string(), "it has not answered in 5 s");
}

#[test]
fn authorities_are_needed() {
    assert!(connector(b"").is_err() && connector(b"no PEM".to_vec().as_slice()).is_err());
    assert!(!format!("{:?}", options(&[1])).contains("secret"));
    let server = Server {
        place: ServerPlace::Tcp { host: "::1".to_owned(), port: 636 },
        tls: TlsUse::FromStart,
    };
    assert_eq!(server.to_string(), "ldaps://[::1]:636");
}
