//! Folding of case as file systems of Windows do it: one code unit at a time,
//! never changing the length of a name.

use alloc::string::String;

/// Returns the upper case of a character if the folding is simple: one character of the basic plane
/// to another. Other characters are unchanged, also those that Unicode folds into ASCII (dotless i,
/// long s): Windows distinguishes them, and a name that looks foreign must not reach a file with an
/// ASCII name.
pub fn upcase(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_uppercase();
    }
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(one), None) if in_basic_plane(c) && in_basic_plane(one) && !one.is_ascii() => one,
        _ => c,
    }
}

fn in_basic_plane(c: char) -> bool {
    u32::from(c) <= 0xFFFF
}

/// [`upcase`] of a UTF-16 code unit; surrogates stay.
pub fn upcase_unit(unit: u16) -> u16 {
    match char::from_u32(u32::from(unit)).map(upcase) {
        Some(upper) => u16::try_from(u32::from(upper)).unwrap_or(unit),
        None => unit,
    }
}

/// True if two names differ in case only, or not at all.
pub fn eq_ignore_case(a: &str, b: &str) -> bool {
    if a.is_ascii() && b.is_ascii() {
        return a.eq_ignore_ascii_case(b);
    }
    a.chars().map(upcase).eq(b.chars().map(upcase))
}

/// `name` in upper case, the key under which names that differ in case are one.
pub fn upcase_name(name: &str) -> String {
    if name.is_ascii() { name.to_ascii_uppercase() } else { name.chars().map(upcase).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn folds_one_to_one_or_not_at_all() {
        assert_eq!(upcase('a'), 'A');
        assert_eq!(upcase('é'), 'É');
        assert_eq!(upcase('ÿ'), 'Ÿ');
        assert_eq!(upcase('я'), 'Я');
        for kept in ['ß', 'ŉ', 'ı', 'ſ', '\u{10428}', '1', 'İ'] {
            assert_eq!(upcase(kept), kept, "{kept}");
        }
        assert_eq!(upcase_unit(0xD801), 0xD801);
    }

    #[test]
    fn names() {
        assert!(eq_ignore_case("ReadMe.TXT", "README.txt"));
        assert!(eq_ignore_case("Ünïcode", "üNÏCODE"));
        assert!(!eq_ignore_case("straße", "STRASSE"));
        assert!(!eq_ignore_case("kıng", "KING"));
        assert!(!eq_ignore_case("a", "ab"));
        assert_eq!(upcase_name("straße"), "STRAßE");
    }

    proptest! {
        #[test]
        fn folding_is_idempotent_and_keeps_the_length(name in ".*") {
            let upper = upcase_name(&name);
            prop_assert_eq!(upcase_name(&upper), upper.as_str());
            prop_assert_eq!(super::super::utf16_len(&upper), super::super::utf16_len(&name));
            prop_assert!(eq_ignore_case(&name, &upper));
        }
    }
}
