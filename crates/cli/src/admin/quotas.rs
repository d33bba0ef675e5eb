//! The lines of `frevo status` about quotas of users.

use frevo_admin::LimitedUser;

use super::figures::{bytes, float};
use crate::printable::printable;
use crate::text_table::{Align, Table};

use Align::{Left, Right};

/// Users that are shown, the fullest ones.
const SHOWN: usize = 50;

/// Returns the lines: empty without users who have limits.
pub(super) fn shown(users: &[LimitedUser], name: impl Fn(u32) -> String) -> String {
    let mut table = Table::new(&[
        ("QUOTA OF", Left),
        ("ON", Left),
        ("SPACE", Right),
        ("SOFT", Right),
        ("LIMIT", Right),
        ("FILES", Right),
        ("SOFT", Right),
        ("LIMIT", Right),
        ("FULL", Right),
    ]);
    let size = |size: Option<u64>| size.map_or_else(|| "-".into(), |size| bytes(float(size)));
    let count = |count: Option<u64>| count.map_or_else(|| "-".into(), |count| count.to_string());
    for user in users.iter().take(SHOWN) {
        let counted = if user.enforced { "" } else { ", counted only" };
        table.row(&[
            printable(&name(user.user)).to_string(),
            printable(&user.shares.join(", ")).to_string(),
            size(Some(user.space)),
            size(user.soft_space),
            size(user.hard_space),
            user.files.to_string(),
            count(user.soft_files),
            count(user.hard_files),
            format!("{} %{counted}", user.fullness() / 10),
        ]);
    }
    if table.is_empty() {
        return String::new();
    }
    let mut lines: String = table.lines().iter().map(|line| format!("{line}\n")).collect();
    if users.len() > SHOWN {
        lines.push_str(&format!(
            "{} more quotas; frevo quota show shows all\n",
            users.len() - SHOWN
        ));
    }
    format!("\n{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_shown() {
        assert_eq!(shown(&[], |_| String::new()), "");
        let user = LimitedUser {
            shares: vec!["photos".into(), "films".into()],
            user: 1_000,
            space: 9 << 20,
            hard_space: Some(10 << 20),
            enforced: true,
            ..LimitedUser::default()
        };
        let text = shown(std::slice::from_ref(&user), |number| format!("ann{number}"));
        assert!(text.contains("\nann1000   photos, films"), "{text}");
        assert!(text.ends_with(" 90 %\n"), "{text}");
        let counted = LimitedUser { enforced: false, ..user };
        let text = shown(&vec![counted; SHOWN + 2], |_| "x".into());
        assert!(text.contains("90 %, counted only\n"), "{text}");
        assert!(text.ends_with("2 more quotas; frevo quota show shows all\n"), "{text}");
    }
}
