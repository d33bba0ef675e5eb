//! Comparing names as Windows does: each UTF-16 unit by its upper case.

/// The upper case of one character, or itself where that is not one character
/// of the same plane.
pub(crate) fn upcase(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_uppercase();
    }
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(one), None) if u32::from(c) < 0x1_0000 => one,
        _ => c,
    }
}

/// Whether two names fold alike.
pub(crate) fn alike(a: &str, b: &str) -> bool {
    let mut a = a.chars().map(upcase);
    let mut b = b.chars().map(upcase);
    loop {
        match (a.next(), b.next()) {
            (None, None) => return true,
            (x, y) if x == y => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_fold_one_to_one() {
        for (a, b) in [("abc", "ABC"), ("é", "É"), ("ж", "Ж"), ("σ", "Σ"), ("ς", "Σ"), ("ÿ", "Ÿ")]
        {
            assert!(alike(a, b), "{a} {b}");
        }
        for (a, b) in
            [("a", "b"), ("ß", "SS"), ("ß", "ẞ"), ("a", "aa"), ("𐐨", "𐐀"), ("e\u{301}", "é")]
        {
            assert!(!alike(a, b), "{a} {b}");
        }
    }
}
