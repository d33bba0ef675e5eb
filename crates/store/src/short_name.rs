//! Short names: MS-FSCC 2.1.5.2.1, computed from the long name on demand and stored nowhere.
//!
//! NTFS counts (`LONGNA~1.TXT`) and has to store the result. A hash needs no storage, and a file
//! has the same short name on every server.

use alloc::string::String;

use frevo_wire::fscc::upcase;

/// Characters before the period.
const BASE: usize = 8;
/// Position of the tilde in a computed name.
const TILDE: usize = 6;
/// Digits of the hash.
const DIGITS: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// True if a component is an 8.3 name.
pub fn is_8_3(name: &str) -> bool {
    let (base, extension) = name.split_once('.').unwrap_or((name, "-"));
    (1..=BASE).contains(&base.len())
        && (1..=3).contains(&extension.len())
        && base.bytes().chain(extension.bytes()).all(is_allowed)
}

/// Returns the short name of a component; None if it is an 8.3 name itself.
pub fn short_name(name: &str) -> Option<String> {
    if name.is_empty() || matches!(name, "." | "..") || is_8_3(name) {
        return None;
    }
    let (base, extension) = match name.rsplit_once('.') {
        Some((base, extension)) if !base.is_empty() => (base, extension),
        _ => (name, ""),
    };
    let mut short = String::with_capacity(BASE.saturating_add(4));
    short.push(allowed(base).next().unwrap_or('_'));
    let mut hash = hash(name);
    for at in 1..BASE {
        if at == TILDE {
            short.push('~');
            continue;
        }
        let digit = usize::try_from(hash % 36).unwrap_or(0);
        short.push(DIGITS.get(digit).map_or('0', |&digit| char::from(digit)));
        hash /= 36;
    }
    let mut extension = allowed(extension).take(3).peekable();
    if extension.peek().is_some() {
        short.push('.');
        short.extend(extension);
    }
    Some(short)
}

/// True if a component could be a result of [`short_name`].
pub fn may_be_short(name: &str) -> bool {
    name.as_bytes().get(TILDE) == Some(&b'~') && is_8_3(name)
}

fn is_allowed(b: u8) -> bool {
    b.is_ascii_graphic() && !b"\"*+,./:;<=>?[\\]|".contains(&b)
}

/// Returns the characters that may stand in a short name, in upper case.
fn allowed(part: &str) -> impl Iterator<Item = char> {
    let is_fit = |c: &char| u8::try_from(*c).is_ok_and(|b| is_allowed(b) && b != b'~');
    part.chars().filter(is_fit).map(|c| c.to_ascii_uppercase())
}

/// Returns the mixed FNV-1a hash of the upper case, equal for names that differ in case only.
fn hash(name: &str) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325u64;
    for c in name.chars().map(upcase) {
        for byte in u32::from(c).to_le_bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::format;

    #[test]
    fn short_names_are_their_own() {
        for name in ["A", "FILE.TXT", "file.txt", "$x~1.c", "12345678.123", "noext"] {
            assert!(is_8_3(name), "{name}");
            assert_eq!(short_name(name), None);
        }
        for name in ["", ".", "..", "A.B.C", "123456789", "x.html", "a b", "é", ".profile", "a+b"]
        {
            assert!(!is_8_3(name), "{name}");
        }
    }

    #[test]
    fn long_names_have_short_ones_that_are_valid() {
        for name in ["Long file name.html", "é", "...x", ".profile", "a+b.c d", "x~y.tar.gz", "+"]
        {
            let short = short_name(name).unwrap();
            assert!(is_8_3(&short) && may_be_short(&short), "{name} {short}");
            assert_eq!(short, short.to_uppercase());
        }
        let short = short_name("report of the year.docx").unwrap();
        assert!(short.starts_with('R') && short.ends_with(".DOC"), "{short}");
        assert_eq!(short_name("Report OF the YEAR.docx"), Some(short));
        assert_eq!((short_name("."), short_name("..")), (None, None));
    }

    #[test]
    fn few_meet() {
        let all: HashSet<_> = (0..20_000).map(|n| short_name(&format!("a file {n}.txt"))).collect();
        assert!(all.len() >= 19_999, "{}", all.len());
    }
}
