//! The name of an account's folder in the bin.

use std::fmt::Write as _;

use frevo_wire::fscc::fold_name;

/// Characters that no component of a name can contain, and the one that escapes them.
const ESCAPED: &[char] = &['"', '*', '/', ':', '<', '>', '?', '\\', '|', '%'];

/// The name of an account in lower case. Two accounts never have one folder: characters that a
/// file's name cannot contain become `%` and their number.
pub(super) fn of_account(account: &str) -> String {
    let lower = fold_name(account);
    let last = lower.chars().count().saturating_sub(1);
    let mut folder = String::with_capacity(lower.len());
    for (at, c) in lower.chars().enumerate() {
        let is_edge = (at == 0 || at == last) && matches!(c, '.' | ' ');
        if c.is_control() || ESCAPED.contains(&c) || is_edge || c == '~' {
            // Writing to a String cannot fail.
            let _ = write!(folder, "%{:02x}", u32::from(c));
        } else {
            folder.push(c);
        }
    }
    if folder.is_empty() { String::from("%") } else { folder }
}

#[cfg(test)]
mod tests {
    use frevo_store::Name;
    use frevo_store::name::Rules;

    use super::*;

    #[test]
    fn every_account_has_a_folder_of_its_own() {
        assert_eq!(of_account("Ann Smith"), "ann smith");
        let mut known = std::collections::BTreeSet::new();
        for account in ["ann", "..", ".", "a/b", "a\\b", "a%5cb", "a:b", " x", "x.", "", "a~1", "Ä"]
        {
            let folder = of_account(account);
            let name = Name::parse(&folder, Rules::Windows).unwrap();
            assert_eq!(name.components().count(), 1, "{account:?}");
            assert!(!folder.starts_with('.') && known.insert(folder), "{account:?}");
        }
    }
}
