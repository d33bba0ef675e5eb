//! Folding of case as file systems of Windows do it: one code unit at a time,
//! never changing the length of a name.

use alloc::string::String;

use super::upcase_table::RUNS;

/// Returns the upper case of a character as NTFS has it: one code unit of the basic plane to another,
/// never into ASCII (dotless i, long s) and never out of it. Unicode folds more: the micro sign and the
/// Greek my are two names on Windows.
pub fn upcase(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_uppercase();
    }
    let upper = u16::try_from(u32::from(c)).map(upcase_unit);
    upper.ok().and_then(|upper| char::from_u32(u32::from(upper))).unwrap_or(c)
}

/// [`upcase`] of a UTF-16 code unit; surrogates stay.
pub fn upcase_unit(unit: u16) -> u16 {
    if let Ok(ascii) = u8::try_from(unit)
        && ascii.is_ascii()
    {
        return u16::from(ascii.to_ascii_uppercase());
    }
    let at = RUNS.partition_point(|run| run.last < unit);
    let run = RUNS.get(at).filter(|run| run.first <= unit);
    let Some(run) = run else { return unit };
    let distance = unit.wrapping_sub(run.first);
    let is_in_step = run.step == 1 || distance.is_multiple_of(run.step);
    if is_in_step { run.upper.wrapping_add(distance) } else { unit }
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

/// `name` in lower case, the key of accounts, groups and shares. Two names have one key exactly if
/// they differ in case only, or not at all: no foreign letter becomes an ASCII letter, as the Kelvin
/// sign does by Unicode.
pub fn fold_name(name: &str) -> String {
    if name.is_ascii() { name.to_ascii_lowercase() } else { name.chars().map(fold).collect() }
}

/// Returns the one lower case of all characters with the upper case of `c`.
fn fold(c: char) -> char {
    let upper = upcase(c);
    let mut lower = upper.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(one), None) if upcase(one) == upper => one,
        _ => upper,
    }
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
        for kept in ['ß', 'ŉ', 'ı', 'ſ', 'µ', 'ǅ', 'ς', 'ა', 'ᾈ', '\u{10428}', '\u{212A}', '1', 'İ']
        {
            assert_eq!(upcase(kept), kept, "{kept}");
        }
        assert_eq!(upcase_unit(0xD801), 0xD801);
    }

    /// The checksum that Windows writes beside the table, in the stream `$Info` of $UpCase: CRC-64 of
    /// all code units, read from volumes that Windows 8 to Windows Server 2025 formatted.
    const CRC_OF_WINDOWS: u64 = 0xDADC_7E77_6B1B_690C;

    #[test]
    fn all_code_units_fold_as_on_ntfs() {
        let mut crc = u64::MAX;
        for byte in (0..=u16::MAX).flat_map(|unit| upcase_unit(unit).to_le_bytes()) {
            crc ^= u64::from(byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0x9A6C_9329_AC4B_C9B5 } else { crc >> 1 };
            }
        }
        assert_eq!(!crc, CRC_OF_WINDOWS);
        for unit in 0..=u16::MAX {
            let Some(c) = char::from_u32(u32::from(unit)) else { continue };
            let upper = u32::from(upcase_unit(unit));
            assert_eq!(u32::from(upcase(c)), upper, "{unit:#x}");
            assert_eq!(upcase(c).is_ascii(), c.is_ascii(), "{unit:#x}");
        }
    }

    /// Tests that the keys of names are equal where their upper cases are, for each code unit.
    #[test]
    fn folded_names_are_those_in_upper_case() {
        let all = (0..=u16::MAX).filter_map(|unit| char::from_u32(u32::from(unit)));
        let mut by_key = std::collections::HashMap::new();
        for c in all {
            let (key, upper) = (fold_name(&String::from(c)), upcase(c));
            assert_eq!(fold_name(&key), key, "{c}");
            assert_eq!(upcase_name(&key), String::from(upper), "{c}");
            assert_eq!(*by_key.entry(key).or_insert(upper), upper, "{c}");
        }
        assert_eq!(fold_name("Ärger AND Kelvin \u{212A}"), "ärger and kelvin \u{212A}");
    }

    #[test]
    fn names() {
        assert!(eq_ignore_case("ReadMe.TXT", "README.txt"));
        assert!(eq_ignore_case("Ünïcode", "üNÏCODE"));
        assert!(!eq_ignore_case("straße", "STRASSE"));
        assert!(!eq_ignore_case("kıng", "KING"));
        assert!(!eq_ignore_case("ſhare", "share"));
        assert!(!eq_ignore_case("\u{B5}m", "\u{39C}m"));
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
