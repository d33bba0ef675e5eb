//! The word somebody meant.

/// Words of more letters than this are not compared.
const WORD_LEN_MAX: usize = 64;

/// The one of `words` that `typed` most likely stands for, if one is near: a
/// letter in three may be wrong, missing, doubled or swapped.
pub fn nearest<'a>(typed: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed: Vec<char> = typed.chars().take(WORD_LEN_MAX + 1).collect();
    if typed.len() > WORD_LEN_MAX {
        return None;
    }
    let best = words
        .into_iter()
        .map(|word| {
            let letters: Vec<char> = word.chars().take(WORD_LEN_MAX).collect();
            (distance(&typed, &letters), word)
        })
        .min_by_key(|(distance, _)| *distance);
    best.filter(|(distance, word)| *distance <= word.chars().count().div_ceil(3)).map(|(_, w)| w)
}

/// Edits from `a` to `b` (a swap of neighbours is one), without regard to case
/// and to which of `-` and `_` is written.
#[allow(clippy::indexing_slicing, reason = "rows and columns of one table; no peer's words")]
fn distance(a: &[char], b: &[char]) -> usize {
    let plain = |c: &char| if *c == '-' { '_' } else { c.to_ascii_lowercase() };
    let a: Vec<char> = a.iter().map(plain).collect();
    let b: Vec<char> = b.iter().map(plain).collect();
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let differs = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + differs);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_finger_are_understood() {
        let keys = ["listen", "signing", "encryption", "min_dialect", "max_dialect", "name"];
        for (typed, meant) in [
            ("singing", Some("signing")),
            ("listn", Some("listen")),
            ("Listen", Some("listen")),
            ("encyrption", Some("encryption")),
            ("min-dialect", Some("min_dialect")),
            ("nmae", Some("name")),
            ("printers", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, keys), meant, "{typed}");
        }
        assert_eq!(nearest(&"x".repeat(100_000), keys), None);
    }
}
