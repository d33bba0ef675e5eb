//! The lines of `frevo status` about quotas of users, groups and shares.

use frevo_admin::{LimitedOwner, OwnerKind};

use super::figures::{bytes, float};
use crate::printable::printable;
use crate::text_table::{Align, Table};

use Align::{Left, Right};

/// Owners that are shown, the fullest ones.
const SHOWN: usize = 50;

/// The owner of a quota for people: `user ann`, `group staff` or `share photos`.
pub(super) fn owner_name(owner: &LimitedOwner) -> String {
    let found = match owner.kind {
        OwnerKind::User => frevo_posix::user_name(owner.id),
        OwnerKind::Group => frevo_posix::group_name(owner.id),
        OwnerKind::Share => return format!("share {}", owner.shares.join(", ")),
    };
    let kind = if owner.kind == OwnerKind::User { "user" } else { "group" };
    let name = found.ok().flatten().unwrap_or_else(|| owner.id.to_string());
    format!("{kind} {name}")
}

/// Returns the lines: empty without owners who have limits.
pub(super) fn shown(owners: &[LimitedOwner], name: impl Fn(&LimitedOwner) -> String) -> String {
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
    for owner in owners.iter().take(SHOWN) {
        // A subvolume counts no files.
        let files = owner.files > 0 || owner.kind != OwnerKind::Share;
        let files = files.then_some(owner.files);
        let counted = if owner.enforced { "" } else { ", counted only" };
        table.row(&[
            printable(&name(owner)),
            printable(&owner.shares.join(", ")),
            size(Some(owner.space)),
            size(owner.soft_space),
            size(owner.hard_space),
            count(files),
            count(owner.soft_files),
            count(owner.hard_files),
            format!("{} %{counted}", owner.fullness() / 10),
        ]);
    }
    if table.is_empty() {
        return String::new();
    }
    let mut lines: String = table.lines().iter().map(|line| format!("{line}\n")).collect();
    if owners.len() > SHOWN {
        lines.push_str(&format!(
            "{} more quotas; frevo quota show shows all\n",
            owners.len() - SHOWN
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
        let user = LimitedOwner {
            shares: vec!["photos".into(), "films".into()],
            id: 1_000,
            space: 9 << 20,
            hard_space: Some(10 << 20),
            enforced: true,
            ..LimitedOwner::default()
        };
        let text = shown(std::slice::from_ref(&user), |owner| format!("ann{}", owner.id));
        assert!(text.contains("\nann1000   photos, films"), "{text}");
        assert!(text.ends_with(" 90 %\n"), "{text}");
        let counted = LimitedOwner { enforced: false, ..user };
        let text = shown(&vec![counted; SHOWN + 2], |_| "x".into());
        assert!(text.contains("90 %, counted only\n"), "{text}");
        assert!(text.ends_with("2 more quotas; frevo quota show shows all\n"), "{text}");
        let share = LimitedOwner {
            kind: OwnerKind::Share,
            shares: vec!["photos".into()],
            space: 1 << 20,
            hard_space: Some(2 << 20),
            enforced: true,
            ..LimitedOwner::default()
        };
        let text = shown(std::slice::from_ref(&share), owner_name);
        assert!(text.contains("\nshare photos  photos "), "{text}");
        let group = LimitedOwner { kind: OwnerKind::Group, id: u32::MAX - 7, ..share };
        assert_eq!(owner_name(&group), format!("group {}", u32::MAX - 7));
        assert_eq!(owner_name(&LimitedOwner::default()), "user root");
    }
}
