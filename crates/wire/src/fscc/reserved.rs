//! Characters that no name may have on Windows (MS-FSCC 2.1.5), and the private characters that
//! stand for them: U+F001 to U+F01F for control characters, U+F020 to U+F027 for `" * : < > ? \ |`,
//! U+F028 and U+F029 for a space and a period at the end. Services for Macintosh chose them; macOS
//! and cifs.ko's `mapposix` use them, too.

/// Offset of the private characters for control characters.
const CONTROL_BASE: u32 = 0xF000;

/// Returns the private character for a character that no name may have.
#[inline]
pub fn private(c: char) -> Option<char> {
    Some(match c {
        '\u{1}'..='\u{1F}' => char::from_u32(CONTROL_BASE | u32::from(c))?,
        '"' => '\u{F020}',
        '*' => '\u{F021}',
        ':' => '\u{F022}',
        '<' => '\u{F023}',
        '>' => '\u{F024}',
        '?' => '\u{F025}',
        '\\' => '\u{F026}',
        '|' => '\u{F027}',
        _ => return None,
    })
}

/// Returns the character that a private one stands for anywhere in a name.
#[inline]
pub fn plain(c: char) -> Option<char> {
    Some(match c {
        '\u{F001}'..='\u{F01F}' => char::from_u32(u32::from(c) & 0x1F)?,
        '\u{F020}' => '"',
        '\u{F021}' => '*',
        '\u{F022}' => ':',
        '\u{F023}' => '<',
        '\u{F024}' => '>',
        '\u{F025}' => '?',
        '\u{F026}' => '\\',
        '\u{F027}' => '|',
        _ => return None,
    })
}

/// Returns the private character for a last character that Windows drops.
#[inline]
pub const fn private_at_end(c: char) -> Option<char> {
    match c {
        ' ' => Some('\u{F028}'),
        '.' => Some('\u{F029}'),
        _ => None,
    }
}

/// Returns the last character that a private one stands for.
#[inline]
pub const fn plain_at_end(c: char) -> Option<char> {
    match c {
        '\u{F028}' => Some(' '),
        '\u{F029}' => Some('.'),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_private_character_stands_for_one() {
        let reserved = ('\u{1}'..='\u{1F}').chain("\"*:<>?\\|".chars());
        let expected = ('\u{F001}'..='\u{F01F}').chain('\u{F020}'..='\u{F027}');
        assert!(reserved.clone().map(|c| private(c).unwrap()).eq(expected.clone()));
        assert!(expected.map(|c| plain(c).unwrap()).eq(reserved));
        for (c, p) in [(' ', '\u{F028}'), ('.', '\u{F029}')] {
            assert_eq!((private_at_end(c), plain_at_end(p)), (Some(p), Some(c)));
            assert_eq!((private(c), plain(p)), (None, None));
        }
        for c in ['\0', ' ', 'a', '/', '\u{7F}', '\u{F000}', '\u{F02A}'] {
            assert_eq!((private(c), plain(c)), (None, None));
        }
    }
}
