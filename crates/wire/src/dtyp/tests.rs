use super::super::*;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

fn encode(descriptor: &SecurityDescriptor) -> Vec<u8> {
    let mut out = Vec::new();
    descriptor.encode(&mut out).unwrap();
    assert_eq!(out.len(), descriptor.encoded_len());
    out
}

/// The example of MS-DTYP 2.5.1.4:
/// `O:BAG:BAD:P(A;CIOI;GRGX;;;BU)(A;CIOI;GA;;;BA)(A;CIOI;GA;;;SY)(A;CIOI;GA;;;CO)S:P(AU;FA;GR;;;WD)`.
#[rustfmt::skip]
const EXAMPLE: [u8; 176] = [
    0x01, 0x00, 0x14, 0xb0, 0x90, 0x00, 0x00, 0x00, 0xa0, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00,
    0x30, 0x00, 0x00, 0x00, 0x02, 0x00, 0x1c, 0x00, 0x01, 0x00, 0x00, 0x00, 0x02, 0x80, 0x14, 0x00,
    0x00, 0x00, 0x00, 0x80, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00,
    0x02, 0x00, 0x60, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x03, 0x18, 0x00, 0x00, 0x00, 0x00, 0xa0,
    0x01, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x05, 0x20, 0x00, 0x00, 0x00, 0x21, 0x02, 0x00, 0x00,
    0x00, 0x03, 0x18, 0x00, 0x00, 0x00, 0x00, 0x10, 0x01, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x05,
    0x20, 0x00, 0x00, 0x00, 0x20, 0x02, 0x00, 0x00, 0x00, 0x03, 0x14, 0x00, 0x00, 0x00, 0x00, 0x10,
    0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x05, 0x12, 0x00, 0x00, 0x00, 0x00, 0x03, 0x14, 0x00,
    0x00, 0x00, 0x00, 0x10, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00,
    0x01, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x05, 0x20, 0x00, 0x00, 0x00, 0x20, 0x02, 0x00, 0x00,
    0x01, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x05, 0x20, 0x00, 0x00, 0x00, 0x20, 0x02, 0x00, 0x00,
];

fn example() -> SecurityDescriptor {
    let inherit = AceFlags::CONTAINER_INHERIT | AceFlags::OBJECT_INHERIT;
    let read = AccessMask::GENERIC_READ | AccessMask::GENERIC_EXECUTE;
    let all = AccessMask::GENERIC_ALL;
    let mut audit = Ace::allow(AceFlags::FAILED_ACCESS, AccessMask::GENERIC_READ, Sid::EVERYONE);
    audit.kind = AceType::SYSTEM_AUDIT;
    SecurityDescriptor {
        control: SdControl::DACL_PRESENT
            | SdControl::SACL_PRESENT
            | SdControl::DACL_PROTECTED
            | SdControl::SACL_PROTECTED
            | SdControl::SELF_RELATIVE,
        rm_control: 0,
        owner: Some(Sid::ADMINISTRATORS),
        group: Some(Sid::ADMINISTRATORS),
        sacl: Some(Acl::new(vec![audit])),
        dacl: Some(Acl::new(vec![
            Ace::allow(inherit, read, Sid::USERS),
            Ace::allow(inherit, all, Sid::ADMINISTRATORS),
            Ace::allow(inherit, all, Sid::LOCAL_SYSTEM),
            Ace::allow(inherit, all, Sid::CREATOR_OWNER),
        ])),
    }
}

#[test]
fn a_query_is_answered_with_the_owner_first() {
    let mut answer = Vec::new();
    example().encode_answer(&mut answer).unwrap();
    assert_eq!(answer.len(), encode(&example()).len());
    assert_eq!(answer[4..8], 20_u32.to_le_bytes(), "right behind the head");
    assert_eq!(SecurityDescriptor::parse(&answer), SecurityDescriptor::parse(&EXAMPLE));
}

#[test]
fn the_example_of_ms_dtyp() {
    assert_eq!(SecurityDescriptor::parse(&EXAMPLE).unwrap(), example());
    assert_eq!(encode(&example()), EXAMPLE);
}

#[test]
fn parts() {
    let owner = example().select(SecurityInformation::OWNER);
    assert_eq!((owner.owner, owner.group), (Some(Sid::ADMINISTRATORS), None));
    assert_eq!((owner.sacl, owner.dacl), (None, None));
    assert_eq!(owner.control, SdControl::SELF_RELATIVE);
    let dacl = example().select(SecurityInformation::DACL | SecurityInformation::GROUP);
    assert_eq!((dacl.owner, dacl.dacl), (None, example().dacl));
    assert!(dacl.control.contains(SdControl::DACL_PROTECTED));
    let label =
        Ace { kind: AceType::SYSTEM_MANDATORY_LABEL, ..example().sacl.unwrap().aces.remove(0) };
    let mut with_label = example();
    with_label.sacl.as_mut().unwrap().aces.push(label.clone());
    let selected = with_label.select(SecurityInformation::LABEL);
    assert_eq!(selected.sacl, Some(Acl::new(vec![label])));
    assert_eq!(with_label.select(SecurityInformation::SACL).sacl.unwrap().aces.len(), 2);
}

#[test]
fn null_and_absent_lists() {
    let mut bytes = EXAMPLE;
    bytes[16..20].fill(0);
    let null = SecurityDescriptor::parse(&bytes).unwrap();
    assert!(null.has_null_dacl());
    assert!(SecurityDescriptor::parse(&encode(&null)).unwrap().has_null_dacl());
    bytes[2] &= !4;
    bytes[16..20].fill(0xFF);
    let absent = SecurityDescriptor::parse(&bytes).unwrap();
    assert!(
        !absent.has_null_dacl() && absent.dacl.is_none(),
        "an offset without its bit means nothing"
    );
    let empty = SecurityDescriptor { dacl: Some(Acl::default()), ..SecurityDescriptor::default() };
    let read = SecurityDescriptor::parse(&encode(&empty)).unwrap();
    assert_eq!(read.dacl, Some(Acl::default()));
}

/// Tests the lies that made older servers fail.
#[test]
fn lies() {
    let mut cases = Vec::new();
    for field in [4, 8, 12, 16] {
        for offset in [1u32, 19, 175, 176, 0x1_0000, 0xFFFF_FFFF, 0x8000_0000] {
            let mut bytes = EXAMPLE;
            bytes[field..field + 4].copy_from_slice(&offset.to_le_bytes());
            cases.push((alloc::format!("offset at {field}: {offset:#x}"), bytes));
        }
    }
    let mut lie = |what: &str, at: usize, value: u8| {
        let mut bytes = EXAMPLE;
        bytes[at] = value;
        cases.push((what.into(), bytes));
    };
    lie("revision", 0, 2);
    lie("owner SID revision", 0x90, 0);
    lie("owner without sub-authorities", 0x91, 0);
    lie("owner with sixteen sub-authorities", 0x91, 16);
    lie("ACL revision", 0x30, 5);
    lie("AclSize of less than its header", 0x32, 7);
    lie("AclSize beyond the descriptor", 0x33, 0xFF);
    lie("AclSize that cuts the last entry", 0x32, 0x5C);
    lie("one entry too many", 0x34, 5);
    lie("AceCount of many", 0x35, 0xFF);
    lie("AceSize zero", 0x3A, 0);
    lie("AceSize not a multiple of four", 0x3A, 0x19);
    lie("AceSize past the list", 0x3B, 0x01);
    lie("SID longer than its entry", 0x41, 3);
    lie("entry without sub-authorities", 0x41, 0);
    for (what, bytes) in cases {
        assert!(SecurityDescriptor::parse(&bytes).is_err(), "{what}");
    }
    let mut overlap = EXAMPLE;
    overlap[12] = 0x30;
    assert!(SecurityDescriptor::parse(&overlap).is_err(), "SACL and DACL are the same bytes");
    // The descriptor ends with the SID of its group, so each cut removes a part of it and must be
    // refused.
    for end in 0..EXAMPLE.len() {
        assert!(SecurityDescriptor::parse(&EXAMPLE[..end]).is_err(), "cut at {end}");
    }
}

/// AclSize is 16 bits: nothing wraps at n-1, n, n+1.
#[test]
fn lists_longer_than_their_length_field() {
    let list = |aces: usize| {
        let ace = Ace::allow(AceFlags::EMPTY, AccessMask::FILE_ALL, Sid::EVERYONE);
        let dacl = Some(Acl::new(vec![ace; aces]));
        SecurityDescriptor { dacl, ..SecurityDescriptor::default() }
    };
    let most = (0xFFFF - 8) / 20;
    for fits in [most - 1, most] {
        let bytes = encode(&list(fits));
        assert!(bytes.len() <= MAX_SECURITY_DESCRIPTOR);
        assert_eq!(SecurityDescriptor::parse(&bytes).unwrap().dacl.unwrap().aces.len(), fits);
    }
    for too_many in [most + 1, 4000, 70_000] {
        let mut out = vec![7];
        assert_eq!(list(too_many).encode(&mut out), Err(TooLarge));
        assert_eq!(out, [7], "the output is as it was");
    }
}

fn any_sid() -> impl Strategy<Value = Sid> {
    (0u64..1 << 48, prop::collection::vec(any::<u32>(), 1..=15))
        .prop_map(|(a, sub)| Sid::new(a, &sub).unwrap())
}

fn any_data() -> impl Strategy<Value = Vec<u8>> {
    (0usize..4).prop_flat_map(|words| prop::collection::vec(any::<u8>(), words * 4))
}

fn any_ace() -> impl Strategy<Value = Ace> {
    let guid = || prop::option::of(any::<[u8; 16]>().prop_map(Guid));
    (any::<u8>(), any::<u8>(), any::<u32>(), any_sid(), guid(), guid(), any_data()).prop_map(
        |(kind, flags, mask, sid, object_type, inherited_object_type, data)| {
            let kind = AceType(kind % 0x18);
            let mask = AccessMask(mask);
            let body = match kind.0 {
                5..=8 | 0xB | 0xC | 0xF | 0x10 => {
                    AceBody::Object { mask, object_type, inherited_object_type, sid, data }
                }
                4 | 0x14.. => AceBody::Opaque([&data[..], &[1, 2, 3, 4]].concat()),
                _ => AceBody::Plain { mask, sid, data },
            };
            Ace { kind, flags: AceFlags(flags), body }
        },
    )
}

prop_compose! {
    fn any_descriptor()(
        control in any::<u16>(),
        owner in prop::option::of(any_sid()),
        group in prop::option::of(any_sid()),
        sacl in prop::option::of(prop::collection::vec(any_ace(), 0..4)),
        dacl in prop::option::of(prop::collection::vec(any_ace(), 0..6)),
    ) -> SecurityDescriptor {
        let mut control = SdControl(control) | SdControl::SELF_RELATIVE;
        if sacl.is_some() { control |= SdControl::SACL_PRESENT; }
        if dacl.is_some() { control |= SdControl::DACL_PRESENT; }
        SecurityDescriptor { control, rm_control: 3, owner, group, sacl: sacl.map(Acl::new), dacl: dacl.map(Acl::new) }
    }
}

proptest! {
    #[test]
    fn descriptors_survive(descriptor in any_descriptor()) {
        let bytes = encode(&descriptor);
        prop_assert_eq!(SecurityDescriptor::parse(&bytes).unwrap(), descriptor);
    }

    #[test]
    fn never_panics_on_damage(descriptor in any_descriptor(), damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = encode(&descriptor);
        for (index, value) in damage {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(read) = SecurityDescriptor::parse(&bytes) {
            // A list that was parsed can be encoded and parsed again without a change.
            prop_assert_eq!(SecurityDescriptor::parse(&encode(&read)).unwrap().dacl, read.dacl);
        }
    }

    #[test]
    fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = SecurityDescriptor::parse(&bytes);
        let _ = Acl::parse(&bytes);
    }
}
