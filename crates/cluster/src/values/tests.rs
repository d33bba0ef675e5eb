use super::*;
use crate::limits::VALUE_BYTES;
use alloc::{format, vec};
use proptest::prelude::*;

fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn a_node() -> NodeValue {
    NodeValue {
        addresses: vec!["192.0.2.1:445".parse().unwrap(), "[2001:db8::1]:445".parse().unwrap()],
        weight: 10,
        software: "0.1.0 (abc)".into(),
        generation: Generation(7),
        dialect: ClusterDialect::SMB_3_0_2,
        leaving: false,
        unable: Unable::Named([ShareName::new("daten größe").unwrap()].into()),
        records: RecordForm(6),
    }
}

fn a_last(end: LastEnd) -> LastValue {
    LastValue {
        node: name("n1"),
        lease: LeaseId(-5),
        ttl: TTL_MIN,
        fence: Fence::Fuse { connection: 51, host: "host".into() },
        end,
    }
}

#[test]
fn values_are_readable_text() {
    let text = String::from_utf8(a_node().to_bytes()).unwrap();
    assert_eq!(
        text,
        "frevo-node 1\naddress=192.0.2.1:445\naddress=[2001:db8::1]:445\nweight=10\n\
         software=0.1.0%20%28abc%29\ngeneration=7\ndialect=0x0302\nleaving=no\nunable=daten%20gr%C3%B6%C3%9Fe\nrecords=6\n"
    );
    assert_eq!(NodeValue::from_bytes(text.as_bytes()), Ok(a_node()));
    for able in [vec![], vec![ShareName::new("a").unwrap(), ShareName::new("b").unwrap()]] {
        let all_but = NodeValue { unable: Unable::AllBut(able.into_iter().collect()), ..a_node() };
        assert_eq!(NodeValue::from_bytes(&all_but.to_bytes()), Ok(all_but));
    }
    for end in [LastEnd::Open, LastEnd::Given(None), LastEnd::Given(Some(name("n2")))] {
        let last = a_last(end);
        assert_eq!(LastValue::from_bytes(&last.to_bytes()), Ok(last));
    }
    for reason in [Reason::First, Reason::Given(name("n2")), Reason::Failover(name("n3"))] {
        let owner = OwnerValue { node: name("n1"), take: TakeNumber(3), reason };
        assert_eq!(OwnerValue::from_bytes(&owner.to_bytes()), Ok(owner));
    }
    let dialect = DialectValue { max: ClusterDialect::SMB_3_0_2 };
    assert_eq!(dialect.to_bytes(), b"frevo-dialect 1\nmax=0x0302\n");
    assert_eq!(DialectValue::from_bytes(&dialect.to_bytes()), Ok(dialect));
    let order = MoveValue { to: name("n1"), epoch: Epoch(u64::MAX) };
    assert_eq!(MoveValue::from_bytes(&order.to_bytes()), Ok(order));
}

/// The registration of an earlier version has no dialect: all of them speak 3.1.1.
#[test]
fn registrations_without_a_dialect_are_read() {
    let text = String::from_utf8(a_node().to_bytes()).unwrap();
    let read = |text: &str| NodeValue::from_bytes(text.as_bytes());
    let old = NodeValue { dialect: ClusterDialect::SMB_3_1_1, ..a_node() };
    assert_eq!(read(&text.replace("dialect=0x0302\n", "")), Ok(old));
    // A later version may speak another one.
    let later = NodeValue { dialect: ClusterDialect(0x0400), ..a_node() };
    assert_eq!(read(&text.replace("0x0302", "0x0400")), Ok(later));
    assert_eq!(read(&text.replace("0x0302", "302")), Err(NotAValue::Wrong("dialect")));
}

/// A node of a version that did not tell the form of records that it reads.
#[test]
fn a_registration_of_an_earlier_version_is_read() {
    let text = String::from_utf8(a_node().to_bytes()).unwrap();
    let earlier = text.replace("records=6\n", "");
    let read = NodeValue::from_bytes(earlier.as_bytes());
    assert_eq!(read, Ok(NodeValue { records: RecordForm(5), ..a_node() }));
    for wrong in ["", "-1", "256", "6 "] {
        let text = text.replace("records=6", &format!("records={wrong}"));
        assert_eq!(NodeValue::from_bytes(text.as_bytes()), Err(NotAValue::Wrong("records")));
    }
}

#[test]
fn values_of_others_are_checked() {
    let read = |text: &str| MoveValue::from_bytes(text.as_bytes());
    assert_eq!(read("frevo-move 2\nto=n1\nepoch=1\n"), Err(NotAValue::Newer(2)));
    assert_eq!(read("frevo-owner 1\nto=n1\nepoch=1\n"), Err(NotAValue::OtherKind));
    assert_eq!(read("frevo-move 1\nto=n1\n"), Err(NotAValue::Missing("epoch")));
    assert_eq!(read("frevo-move 1\nto=n1\nto=n2\nepoch=1\n"), Err(NotAValue::Repeated("to")));
    assert_eq!(read("frevo-move 1\nto=N1\nepoch=1\n"), Err(NotAValue::Wrong("to")));
    assert_eq!(read("frevo-move 1\nto=n1\nepoch=-1\n"), Err(NotAValue::Wrong("epoch")));
    for malformed in ["", "frevo-move 1", "frevo-move\n", "frevo-move 0\n", "frevo-move 1\nto\n"] {
        assert_eq!(read(malformed), Err(NotAValue::Malformed), "{malformed}");
    }
    assert!(read("frevo-move 1\nto=n1\nepoch=1\nlater=field\n").is_ok(), "an unknown field");
    let zero = NodeValue { weight: 0, ..a_node() };
    assert_eq!(NodeValue::from_bytes(&zero.to_bytes()), Err(NotAValue::Wrong("weight")));
    for (weight, is_good) in [(WEIGHT_MAX, true), (WEIGHT_MAX + 1, false)] {
        let node = NodeValue { weight, ..a_node() };
        assert_eq!(NodeValue::from_bytes(&node.to_bytes()).is_ok(), is_good);
    }
    let dialect = |text: &str| DialectValue::from_bytes(text.as_bytes());
    assert_eq!(dialect("frevo-dialect 1\n"), Err(NotAValue::Missing("max")));
    assert_eq!(dialect("frevo-dialect 1\nmax=3.1.1\n"), Err(NotAValue::Wrong("max")));
    for (ttl, is_good) in [
        (TTL_MIN, true),
        (TTL_MIN - Duration::from_millis(1), false),
        (TTL_MAX, true),
        (TTL_MAX + Duration::from_millis(1), false),
    ] {
        let last = LastValue { ttl, ..a_last(LastEnd::Open) };
        assert_eq!(LastValue::from_bytes(&last.to_bytes()).is_ok(), is_good, "{ttl:?}");
    }
}

#[test]
fn lists_and_values_are_bounded() {
    let address: SocketAddr = "192.0.2.1:445".parse().unwrap();
    for (count, is_good) in [(ADDRESSES, true), (ADDRESSES + 1, false)] {
        let node = NodeValue { addresses: vec![address; count], ..a_node() };
        assert_eq!(NodeValue::from_bytes(&node.to_bytes()).is_ok(), is_good);
    }
    let longest: Vec<_> = (0..200)
        .map(|n| ShareName::new(&alloc::format!("{n:03}{}", "\u{e9}".repeat(77))).unwrap())
        .collect();
    for unable in
        [Unable::of(longest.iter(), [].iter()), Unable::of(longest.iter(), longest.iter())]
    {
        let node = NodeValue { unable, addresses: vec![address; ADDRESSES], ..a_node() };
        assert!(NodeValue::from_bytes(&node.to_bytes()).is_ok(), "the longest value");
    }
    let mut long = b"frevo-move 1\nto=n1\nepoch=1\nx=".to_vec();
    long.resize(VALUE_BYTES - 1, b'x');
    long.push(b'\n');
    assert!(MoveValue::from_bytes(&long).is_ok());
    long.insert(long.len() - 1, b'x');
    assert_eq!(MoveValue::from_bytes(&long), Err(NotAValue::TooLong));
}

#[test]
fn a_node_names_the_shorter_list() {
    let shares = |from: usize, to: usize| -> Vec<_> {
        (from..to).map(|n| ShareName::new(&alloc::format!("share{n:04}")).unwrap()).collect()
    };
    let (few, many) = (shares(0, 100), shares(100, SHARES));
    let named = Unable::of(few.iter(), many.iter());
    assert_eq!(named, Unable::Named(few.iter().cloned().collect()));
    let all_but = Unable::of(many.iter(), few.iter());
    assert_eq!(all_but, Unable::AllBut(few.iter().cloned().collect()));
    assert!(all_but.has(&many[0]) && !all_but.has(&few[0]));
    let Unable::AllBut(able) = Unable::of(many.iter(), many.iter()) else { panic!() };
    assert!(able.len() > 3_000, "as many as have room: {}", able.len());
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(kind in 0..4, lines in "[a-z0-9=%\n-]{0,60}|\\PC{0,30}") {
        let kind = ["node", "owner", "last", "move"][usize::try_from(kind).unwrap()];
        let bytes = alloc::format!("frevo-{kind} 1\n{lines}\n").into_bytes();
        // A value that is read is written and read again as the same.
        if let Ok(value) = NodeValue::from_bytes(&bytes) {
            prop_assert_eq!(NodeValue::from_bytes(&value.to_bytes()), Ok(value));
        }
        if let Ok(value) = OwnerValue::from_bytes(&bytes) {
            prop_assert_eq!(OwnerValue::from_bytes(&value.to_bytes()), Ok(value));
        }
        if let Ok(value) = LastValue::from_bytes(&bytes) {
            prop_assert_eq!(LastValue::from_bytes(&value.to_bytes()), Ok(value));
        }
        if let Ok(value) = MoveValue::from_bytes(&bytes) {
            prop_assert_eq!(MoveValue::from_bytes(&value.to_bytes()), Ok(value));
        }
    }
}
