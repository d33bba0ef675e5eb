//! Values from clients in lines of text.

use std::fmt::{self, Write};

use crate::base::limits::LOG_VALUE_BYTES;

/// A value for a line of text: as it is when it is one plain word, else in double quotes
/// and escaped. It holds no line end, no character that a terminal obeys, and nothing
/// that reads as another field. Longer values are cut at [`LOG_VALUE_BYTES`].
#[derive(Debug, Clone, Copy)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = cut(self.0, LOG_VALUE_BYTES);
        let is_cut = shown.len() < self.0.len();
        if !is_cut && !shown.is_empty() && shown.chars().all(is_plain) {
            return f.write_str(shown);
        }
        f.write_char('"')?;
        for c in shown.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                c if is_obeyed(c) => write!(f, "{}", c.escape_unicode())?,
                c => f.write_char(c)?,
            }
        }
        f.write_str(if is_cut { "...\"" } else { "\"" })
    }
}

/// The beginning of a text, at most `bytes` long and never within a character.
pub fn cut(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    // A UTF-8 character has at most four bytes, so at least one of the last four positions is a
    // character boundary.
    (bytes.saturating_sub(3)..=bytes).rev().find_map(|end| text.get(..end)).unwrap_or("")
}

/// True for characters of which a value may consist without quotes.
fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || (c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '='))
}

/// True for characters that terminals and viewers obey instead of showing them: control
/// characters, line and paragraph separators, and those that change the direction of
/// text or take no room.
pub fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(text: &str) -> String {
        Quoted(text).to_string()
    }

    #[test]
    fn a_plain_word_stays() {
        for word in ["ann", "192.0.2.1:445", "[2001:db8::1]:445", "Büro", "a@b", "Some(x)"] {
            assert_eq!(quoted(word), word);
        }
    }

    #[test]
    fn all_else_is_one_quoted_value() {
        for (text, shown) in [
            ("", r#""""#),
            ("ann reason=x", r#""ann reason=x""#),
            ("a\" peer=\"b", r#""a\" peer=\"b""#),
            ("a\\", r#""a\\""#),
            ("a=b", r#""a=b""#),
            ("a\nfrevo: b\r\t", r#""a\nfrevo: b\r\t""#),
            ("\x1b[2J\u{9b}", r#""\u{1b}[2J\u{9b}""#),
            ("txt\u{202e}exe\u{2028}", r#""txt\u{202e}exe\u{2028}""#),
        ] {
            assert_eq!(quoted(text), shown);
        }
    }

    #[test]
    fn a_long_value_is_cut() {
        for over in 0..3 {
            let text = "x".repeat(LOG_VALUE_BYTES - 1 + over);
            let shown = quoted(&text);
            match over {
                2 => assert_eq!(shown, format!("\"{}...\"", "x".repeat(LOG_VALUE_BYTES))),
                _ => assert_eq!(shown, text),
            }
        }
        // The text is cut at a character boundary, even if the limit is within a character.
        assert!(quoted(&"\u{e9}".repeat(LOG_VALUE_BYTES)).ends_with("\u{e9}...\""));
        let odd = quoted(&format!("x{}", "\u{e9}".repeat(LOG_VALUE_BYTES)));
        assert_eq!(odd.len(), LOG_VALUE_BYTES - 1 + "\"...\"".len());
    }
}
