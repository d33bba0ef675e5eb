use super::hex;
use crate::fscc::Pushed;
use crate::fscc::ea::{
    Ea, EaEntries, EaError, EaFault, EaNames, EaNamesWriter, EaWriter, is_valid_name,
};
use alloc::vec::Vec;
use proptest::prelude::*;

fn list(eas: &[Ea<'_>], room: usize) -> (Vec<u8>, usize) {
    let mut out = Vec::new();
    let mut writer = EaWriter::new(&mut out, room);
    let fit = eas.iter().take_while(|ea| writer.push(ea) == Pushed::Fits).count();
    (out, fit)
}

const TWO: [Ea<'_>; 2] = [
    Ea { need: false, name: b"ABC", value: b"x" },
    Ea { need: true, name: b"DE", value: b"value" },
];

#[test]
fn golden() {
    let (bytes, _) = list(&TWO, 100);
    assert_eq!(
        bytes,
        hex("10000000 00 03 0100 41424300 78 000000 00000000 80 02 0500 444500 76616c7565")
    );
    assert_eq!(EaEntries::new(&bytes).collect::<Result<Vec<_>, _>>().unwrap(), TWO);
    assert_eq!(EaEntries::check(&bytes), Ok(2));
    assert_eq!(EaEntries::check(&[]), Ok(0));
}

#[test]
fn the_buffer_is_never_overrun() {
    let (bytes, _) = list(&TWO, 100);
    for room in 0..bytes.len() + 4 {
        let (out, fit) = list(&TWO, room);
        assert!(out.len() <= room);
        assert_eq!(fit, usize::from(room >= 13) + usize::from(room >= bytes.len()), "room {room}");
    }
}

#[test]
fn a_bad_entry_is_named_by_its_offset() {
    let (good, _) = list(&TWO, 100);
    let bad = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        EaEntries::check(&bytes).unwrap_err()
    };
    let fault = |fault, offset| EaError { fault, offset };
    // Each change is a fault: NextEntryOffset (offset 0) is unaligned, points into its own entry,
    // or exceeds the list.
    assert_eq!(bad(0, 18), fault(EaFault::Inconsistent, 0));
    assert_eq!(bad(0, 8), fault(EaFault::Inconsistent, 0));
    assert_eq!(bad(0, 200), fault(EaFault::Inconsistent, 0));
    assert_eq!(bad(0, good.len() as u8 + 1), fault(EaFault::Inconsistent, 0));
    // Each change is a fault: the first name does not end with a NUL (offset 11), or the second
    // entry's EaValueLength (16 + 6) exceeds the list.
    assert_eq!(bad(11, b'!'), fault(EaFault::Inconsistent, 0));
    assert_eq!(bad(16 + 6, 6), fault(EaFault::Inconsistent, 16));
    // Each change is a fault: the second entry's Flags (offset 16 + 4) are unknown, or its name (16
    // + 8) has a character that is not allowed.
    assert_eq!(bad(16 + 4, 0x40), fault(EaFault::InvalidName, 16));
    assert_eq!(bad(16 + 8, b'*'), fault(EaFault::InvalidName, 16));
    for end in 1..good.len() {
        assert!(EaEntries::check(&good[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn names() {
    assert!(is_valid_name(b"user.mime_type") && is_valid_name(&[b'a'; 254]));
    assert!(
        !is_valid_name(b"")
            && !is_valid_name(b"a:b")
            && !is_valid_name(b"a\x1f")
            && !is_valid_name(&[b'a'; 255])
    );
    let mut out = Vec::new();
    let mut writer = EaNamesWriter::new(&mut out, 30);
    assert_eq!(writer.push(b"AB"), Pushed::Fits);
    assert_eq!(writer.push(b"C"), Pushed::Fits);
    assert_eq!(writer.push(b"ABCDEFGHI"), Pushed::Full);
    assert_eq!(out, hex("08000000 02 414200 00000000 01 4300"));
    assert_eq!(EaNames::new(&out).collect::<Result<Vec<_>, _>>().unwrap(), [&b"AB"[..], b"C"]);
}

proptest! {
    #[test]
    fn lists_survive(eas in prop::collection::vec((any::<bool>(), "[A-Z.]{1,20}", prop::collection::vec(any::<u8>(), 0..20)), 1..6)) {
        let eas: Vec<_> = eas.iter().map(|(need, name, value)| Ea { need: *need, name: name.as_bytes(), value }).collect();
        let (bytes, _) = list(&eas, usize::MAX);
        prop_assert_eq!(EaEntries::new(&bytes).collect::<Result<Vec<_>, _>>().unwrap(), eas);
    }

    #[test]
    fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = EaEntries::check(&bytes);
        prop_assert!(EaNames::new(&bytes).count() <= 200);
    }
}
