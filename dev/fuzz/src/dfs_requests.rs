//! Requests for referrals of DFS, and the answers of a server with a namespace.

use std::sync::LazyLock;

use frevo_dfs::{Asker, Link, Namespace, Namespaces, Root, Target};
use frevo_wire::command::ioctl::dfs::{ReferralRequest, ReferralRequestEx, ReferralResponse};

use crate::settles;

static NAMESPACES: LazyLock<Namespaces> = LazyLock::new(|| {
    let target = |unc: &str| Target::new(unc).unwrap();
    let both = || vec![target("\\\\a\\b"), target("\\\\192.0.2.1\\b\\c")];
    let links = ["a", "b\\a", "b\\é\\c", "B!"].map(|path| Link::new(path, both()).unwrap());
    let files = Namespace::new("a", Root::Own).with_links(links.to_vec()).unwrap();
    [files, Namespace::new("B", Root::Share)].into_iter().collect()
});

/// Two bytes of room, one that says which request it is, and the request.
pub fn dfs_requests(data: &[u8]) {
    let Some((&[low, high, kind], data)) = data.split_first_chunk() else { return };
    let room = usize::from(u16::from_le_bytes([low, high]));
    settles(data, |bytes| {
        let mut out = Vec::new();
        let mut w = frevo_wire::codec::Writer::new(&mut out);
        match kind & 1 {
            0 => ReferralRequest::parse(bytes)?.encode(&mut w),
            _ => ReferralRequestEx::parse(bytes)?.encode(&mut w),
        }
        Ok(out)
    });
    let asked = match kind & 1 {
        0 => ReferralRequest::parse(data).map(|asked| (asked.max_level, asked.path)),
        _ => ReferralRequestEx::parse(data).map(|asked| (asked.max_level, asked.path)),
    };
    let Ok((level, path)) = asked else { return };
    let asker = Asker {
        number: kind.into(),
        is_near: &|target| target.server().starts_with('1'),
        is_failing: &|host| host.ends_with('2'),
    };
    let Ok(response) = NAMESPACES.referrals(&path, &asker) else { return };
    // PathConsumed is a part of the path in whole components.
    let units: Vec<u16> = path.encode_utf16().collect();
    let (consumed, rest) = units.split_at(usize::from(response.path_consumed / 2));
    assert!(response.path_consumed % 2 == 0 && rest.first().is_none_or(|unit| *unit == 0x5C));
    assert_eq!(String::from_utf16(consumed).unwrap(), response.referrals[0].path);
    let Some(bytes) = response.encode_within(level, room) else { return };
    assert!(bytes.len() <= room && level > 0);
    let found = ReferralResponse::parse(&bytes).expect("what is sent can be read");
    assert!(!found.referrals.is_empty() && found.referrals.len() <= response.referrals.len());
    for (found, sent) in found.referrals.iter().zip(&response.referrals) {
        assert_eq!(found.target, sent.target);
    }
}
