//! GUIDs as people write them.

/// Reads a GUID of 32 hexadecimal digits in five groups, with or without braces. Returns its bytes as they are
/// sent; None for another text.
pub(crate) fn parse_guid(text: &str) -> Option<[u8; 16]> {
    let bare = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
    let groups: Vec<&str> = bare.split('-').collect();
    let [first, second, third, fourth, fifth] = &*groups else { return None };
    let number = |group: &str, digits| {
        let is_hex = group.len() == digits && group.bytes().all(|one| one.is_ascii_hexdigit());
        let number = is_hex.then(|| u64::from_str_radix(group, 16).ok()).flatten();
        number.map(u64::to_be_bytes)
    };
    let [.., a, b, c, d] = number(first, 8)?;
    let [.., e, f] = number(second, 4)?;
    let [.., g, h] = number(third, 4)?;
    let [.., i, j] = number(fourth, 4)?;
    let [_, _, k, l, m, n, o, p] = number(fifth, 12)?;
    // MS-DTYP 2.3.4.2: the first three groups are numbers, which are sent in little-endian order.
    Some([d, c, b, a, f, e, h, g, i, j, k, l, m, n, o, p])
}
