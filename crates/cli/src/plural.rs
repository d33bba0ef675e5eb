//! Numbers with their noun in messages: "1 file", "2 files".

use std::fmt::Display;

/// A count with its noun, in the plural unless the count is one. The noun's plural
/// is its singular with `s`.
pub(crate) fn counted(count: impl Display + TryInto<u64> + Copy, noun: &str) -> String {
    let is_one = count.try_into().is_ok_and(|count: u64| count == 1);
    format!("{count} {noun}{}", if is_one { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn only_one_is_singular() {
        assert_eq!(counted(0_u64, "file"), "0 files");
        assert_eq!(counted(1_usize, "file"), "1 file");
        assert_eq!(counted(2_u64, "file"), "2 files");
    }
}
