//! Text of others, made safe for a terminal.

/// `text` with `?` for the control characters that a terminal would obey.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn a_terminal_gets_no_control_characters() {
        assert_eq!(printable("a\u{1b}]0;x\u{7}\u{9b}2Jé\r\nb"), "a?]0;x??2Jé??b");
    }
}
