//! Messages: bytes of Samba, both orders, and lies.

use super::samba;
use crate::limits::{MAX_SPOTLIGHT_DEPTH, MAX_SPOTLIGHT_VALUES};
use crate::mdssvc::{Cnids, Order, TooLong, Value, pack, pack_in, unpack};
use crate::tests::hex;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

#[test]
fn answers_have_the_bytes_of_smbd() {
    for bytes in
        [samba::PROPERTIES, samba::DONE, samba::NO_RESULTS, samba::UNKNOWN_FILE, samba::PATH]
    {
        let values = unpack(&hex(bytes)).unwrap();
        assert_eq!(pack(&values), Ok(hex(bytes)), "{values:?}");
    }
}

#[test]
fn a_query_of_mdsearch_is_read() {
    let message = unpack(&hex(samba::OPEN_QUERY)).unwrap();
    let [Value::Array(call)] = &message[..] else { panic!("{message:?}") };
    let key = [Value::Integer(1), Value::Integer(0x6B00_0060)];
    let method = Value::text("openQueryWithParams:forContext:");
    assert_eq!(call[0], Value::Array(vec![method, key[0].clone(), key[1].clone()]));
    let params = &call[1];
    assert_eq!(params.get("kMDQueryString"), Some(&Value::text("*==\"hello*\"")));
    assert_eq!(params.get("kMDQueryBatchFirstDelay"), Some(&Value::Float(1.0)));
    let texts = |key| params.get(key).and_then(Value::as_texts);
    assert_eq!(texts("kMDAttributeArray"), Some(vec!["kMDItemFSName"]));
    assert_eq!(texts("kMDScopeArray"), Some(vec!["/spotl"]));
    assert_eq!(params.get("kMDQueryStrin"), None);
    assert_eq!(Value::Nil.get("kMDQueryString"), None);
}

#[test]
fn the_path_of_a_file_is_in_a_message_of_its_own() {
    let message = unpack(&hex(samba::PATH)).unwrap();
    let [Value::Array(answer)] = &message[..] else { panic!("{message:?}") };
    let cnids = answer[1].as_cnids().unwrap();
    assert_eq!((cnids.kind, cnids.ids.len()), (Cnids::OF_ATTRIBUTES, 1));
    let Value::FileMeta(nested) = &answer[2] else { panic!("{answer:?}") };
    let [Value::Array(rows)] = &nested[..] else { panic!("{nested:?}") };
    assert_eq!(rows[0], Value::Nil);
    let path = rows[1].as_array().and_then(|row| row[0].as_text()).unwrap();
    assert!(path.starts_with("/spotl/hello-some-long-name"), "{path}");
}

/// The message that smbtorture's sl_unpack_loop sends: a run of two numbers in two units.
#[test]
fn a_run_has_the_length_that_it_says() {
    assert!(unpack(&hex(samba::BAD_RUN)).is_err());
}

/// One changed byte of a message is an error, or gives values that can be packed; it is never a panic.
#[test]
fn every_changed_byte_is_read_or_refused() {
    for text in [samba::OPEN_QUERY, samba::PATH, samba::NO_RESULTS] {
        let whole = hex(text);
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7F, 0xFF] {
                let mut changed = whole.clone();
                changed[at] = byte;
                let _ = unpack(&changed).map(|values| pack(&values));
            }
            assert!(unpack(&whole[..at]).is_err(), "{at} of {} bytes", whole.len());
        }
    }
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(Value::Nil, |inner, level| match level % 2 {
        0 => Value::Array(vec![inner]),
        _ => Value::FileMeta(vec![inner]),
    })
}

#[test]
fn messages_have_a_depth_and_a_number_of_values() {
    let most = pack(&[nested(MAX_SPOTLIGHT_DEPTH)]).unwrap();
    assert_eq!(unpack(&most).unwrap(), [nested(MAX_SPOTLIGHT_DEPTH)]);
    let more = pack(&[nested(MAX_SPOTLIGHT_DEPTH + 1)]).unwrap();
    assert_eq!(unpack(&more).unwrap_err().what, "Spotlight depth");
    let many = |count| pack(&vec![Value::Nil; count]).unwrap();
    assert_eq!(unpack(&many(MAX_SPOTLIGHT_VALUES)).unwrap().len(), MAX_SPOTLIGHT_VALUES);
    let what = unpack(&many(MAX_SPOTLIGHT_VALUES + 1)).unwrap_err().what;
    assert_eq!(what, "too many Spotlight values");
    // A run of nothing says how many there are in one unit.
    let mut run = many(1);
    run[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(unpack(&run).unwrap_err().what, "too many Spotlight values");
}

/// Offsets and sizes have sixteen bits.
#[test]
fn a_message_that_is_too_long_is_not_packed() {
    let text = |length: usize| Value::Text("x".repeat(length));
    assert!(pack(&[text(65_000 * 8)]).is_ok());
    assert_eq!(pack(&[text(65_536 * 8)]), Err(TooLong));
    assert_eq!(pack(&vec![text(40_000 * 8); 3]), Err(TooLong));
    let cnids = Cnids { kind: 1, context: 1, ids: vec![7; 65_535] };
    assert_eq!(pack(&[Value::Cnids(cnids)]), Err(TooLong));
}

#[test]
fn texts_of_odd_bytes_are_refused() {
    let good = pack(&[Value::text("abcdefgh")]).unwrap();
    let mut bad = good.clone();
    bad[32] = 0xFF;
    assert_eq!(unpack(&bad).unwrap_err().what, "Spotlight UTF-8");
    // The entry of the table of contents says how many bytes of the last unit count.
    for (in_last, text) in [(8, Some("abcdefgh")), (1, Some("a")), (0, None), (9, None)] {
        let mut bytes = good.clone();
        let end = bytes.len() - 4;
        bytes[end..].copy_from_slice(&u32::to_le_bytes(in_last));
        let read = unpack(&bytes).ok().and_then(|values| values[0].as_text().map(String::from));
        assert_eq!(read.as_deref(), text, "{in_last}");
    }
    let wide = pack(&[Value::WideText("\u{10000}".to_string())]).unwrap();
    assert_eq!(unpack(&wide).unwrap(), [Value::WideText("\u{10000}".to_string())]);
    let mut half = wide;
    half[36] = 0;
    half[37] = 0;
    assert_eq!(unpack(&half).unwrap_err().what, "Spotlight UTF-16");
}

fn leaves() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Bool),
        any::<u64>().prop_map(Value::Integer),
        proptest::num::f64::NORMAL.prop_map(Value::Float),
        proptest::num::f64::NORMAL.prop_map(Value::Date),
        any::<[u8; 16]>().prop_map(Value::Uuid),
        "\\PC{0,20}".prop_map(Value::Text),
        "\\PC{0,20}".prop_map(Value::WideText),
        (any::<u16>(), any::<u32>(), proptest::collection::vec(any::<u64>(), 1..6))
            .prop_map(|(kind, context, ids)| Value::Cnids(Cnids { kind, context, ids })),
    ]
}

fn values() -> impl Strategy<Value = Value> {
    leaves().prop_recursive(4, 40, 6, |inner| {
        let pairs = proptest::collection::vec(("\\PC{0,10}", inner.clone()), 0..4);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            proptest::collection::vec(inner, 0..3).prop_map(Value::FileMeta),
            pairs.prop_map(|pairs| {
                let entries = pairs.into_iter().flat_map(|(key, value)| [Value::Text(key), value]);
                Value::Dictionary(entries.collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn messages_come_back_in_both_orders(values in proptest::collection::vec(values(), 0..4)) {
        for order in [Order::Little, Order::Big] {
            prop_assert_eq!(&unpack(&pack_in(order, &values).unwrap()).unwrap(), &values);
        }
    }

    #[test]
    fn any_bytes_are_a_message_or_malformed(
        units in proptest::collection::vec(any::<u64>(), 0..20),
        is_big: bool,
    ) {
        let mut bytes: Vec<u8> = if is_big { b"md031234" } else { b"432130dm" }.to_vec();
        bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        let _ = unpack(&bytes).map(|values| pack(&values));
    }
}
