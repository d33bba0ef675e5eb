//! Names of files in the bin whose own name is taken.

use frevo_store::vfs::VfsResult;

/// Greatest length of a component on the file systems of Linux, bytes.
const COMPONENT_BYTES: usize = 255;

/// Returns `name` with a number before its ending: `report (2).txt`. A long name loses the end of
/// its stem.
pub(super) fn numbered(name: &str, number: u64) -> String {
    let dot = name.rfind('.').filter(|&at| at > 0).unwrap_or(name.len());
    let (stem, ending) = name.split_at(dot);
    let number = format!(" ({number})");
    let room = COMPONENT_BYTES.saturating_sub(number.len());
    // If the extension leaves no room for a stem, the name is cut as if it had no extension.
    let (stem, ending) = if ending.len() < room { (stem, ending) } else { (name, "") };
    let mut end = stem.len().min(room - ending.len());
    while !stem.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{number}{ending}", stem.get(..end).unwrap_or_default())
}

/// Returns a free number, 2 or greater, whose predecessor is taken. It need not be the smallest
/// one: numbers of files that were moved back may stay free. About 2 log n names are asked for.
///
/// # Errors
/// Fails as `is_taken` does.
pub(super) fn free_number(mut is_taken: impl FnMut(u64) -> VfsResult<bool>) -> VfsResult<u64> {
    let (mut taken, mut free) = (1, 2);
    while is_taken(free)? {
        (taken, free) = (free, free.saturating_mul(2));
    }
    while free - taken > 1 {
        let middle = taken + (free - taken) / 2;
        if is_taken(middle)? {
            taken = middle;
        } else {
            free = middle;
        }
    }
    Ok(free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stands_before_the_ending() {
        assert_eq!(numbered("report.txt", 2), "report (2).txt");
        assert_eq!(numbered("a.tar.gz", 10), "a.tar (10).gz");
        assert_eq!(numbered(".profile", 3), ".profile (3)");
        assert_eq!(numbered("plain", 3), "plain (3)");
        for name in
            ["x".repeat(255), format!("{}.txt", "ä".repeat(125)), format!("a.{}", "é".repeat(126))]
        {
            let longer = numbered(&name, 12);
            assert!(longer.len() <= COMPONENT_BYTES && longer.contains(" (12)"), "{longer}");
        }
    }

    #[test]
    fn a_free_number_is_found_among_thousands_in_few_steps() {
        let mut asked = 0;
        let number = free_number(|number| {
            asked += 1;
            Ok(number <= 5_000)
        });
        assert_eq!(number, Ok(5_001));
        assert!(asked < 30, "{asked}");
        assert_eq!(free_number(|_| Ok(false)), Ok(2));
    }
}
