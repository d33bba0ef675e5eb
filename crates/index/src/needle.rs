//! A text that is looked for, made ready to be compared with many names.

use alloc::string::String;
use alloc::vec::Vec;

use memchr::memmem::Finder;

use crate::fold::{Fold, Letter, fold_all, is_mark, letters};
use crate::query::{Match, Text};

/// A text that is looked for in names.
#[derive(Debug)]
pub(crate) struct Needle {
    part: Match,
    fold: Fold,
    /// The text in its own spelling.
    letters: Vec<Letter>,
    /// The whole text without all differences; of a pattern its longest part without wildcards.
    folded: String,
    finder: Finder<'static>,
}

/// A name of the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameOf<'a> {
    /// Its spelling without all differences.
    pub(crate) folded: &'a [u8],
    /// Its own spelling.
    pub(crate) original: &'a str,
}

impl Needle {
    pub(crate) fn new(text: &Text) -> Self {
        let fold = Fold { case: text.fold_case, marks: text.fold_marks };
        let mut folded = String::new();
        match text.part {
            Match::Pattern => {
                let parts = text.text.split(['*', '?']);
                fold_all(parts.max_by_key(|part| part.len()).unwrap_or_default(), &mut folded);
            }
            _ => fold_all(&text.text, &mut folded),
        }
        let finder = Finder::new(folded.as_bytes()).into_owned();
        Self { part: text.part, fold, letters: letters(&text.text, fold), folded, finder }
    }

    /// Plain comparisons that take as long as one with this text.
    pub(crate) fn cost(&self) -> usize {
        if self.is_decided() { 1 } else { self.letters.len().saturating_mul(8).saturating_add(32) }
    }

    /// True if the folded spelling alone tells whether a name has the text.
    fn is_decided(&self) -> bool {
        self.fold == Fold::ALL && !matches!(self.part, Match::Word | Match::Pattern)
    }

    /// True if one of these names, which follow each other, may have the text. A name that has it, in whatever
    /// spelling, has the folded text in its folded spelling.
    pub(crate) fn may_be_in(&self, names: &[u8]) -> bool {
        self.folded.is_empty() || self.finder.find(names).is_some()
    }

    /// True if a name has the text in the part that it was looked for in.
    pub(crate) fn matches(&self, name: NameOf<'_>) -> bool {
        let folded = self.folded.as_bytes();
        let has = match self.part {
            Match::Whole => name.folded == folded,
            Match::Beginning => name.folded.starts_with(folded),
            Match::End => name.folded.ends_with(folded),
            Match::Within | Match::Word | Match::Pattern => self.may_be_in(name.folded),
        };
        has && (self.is_decided() || self.matches_spelling(name.original))
    }

    /// Compares the spelling that counts.
    fn matches_spelling(&self, name: &str) -> bool {
        let name = letters(name, self.fold);
        match self.part {
            Match::Whole => same(&name, &self.letters),
            Match::Beginning => self.is_at(&name, 0),
            Match::End => {
                name.len().checked_sub(self.letters.len()).is_some_and(|at| self.is_at(&name, at))
            }
            Match::Within => (0..=name.len()).any(|at| self.is_at(&name, at)),
            Match::Word => {
                let begins = |at: &usize| name.get(*at).is_some_and(|letter| letter.begins_word);
                self.letters.is_empty()
                    || (0..name.len()).filter(begins).any(|at| self.is_at(&name, at))
            }
            Match::Pattern => fits(&self.letters, &name),
        }
    }

    /// True if the text is in a name from one of its letters on, and a letter is not cut from its mark.
    fn is_at(&self, name: &[Letter], at: usize) -> bool {
        let Some(rest) = name.get(at..) else { return false };
        let Some((here, behind)) = rest.split_at_checked(self.letters.len()) else { return false };
        same(here, &self.letters) && behind.first().is_none_or(|next| !is_mark(next.value))
    }
}

fn same(one: &[Letter], other: &[Letter]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.value == other.value)
}

/// True if a name is as a pattern says: `*` stands for any letters, `?` for one. It takes at most as many steps as
/// the product of both lengths.
fn fits(pattern: &[Letter], name: &[Letter]) -> bool {
    let (mut pattern, mut name) = (pattern, name);
    // The place to go on from if the pattern does not fit: the last star, and the letters that it has not taken.
    let mut again: Option<[&[Letter]; 2]> = None;
    loop {
        match (pattern.split_first(), name.split_first()) {
            (Some((wild, rest)), _) if wild.value == '*' => {
                pattern = rest;
                again = Some([rest, name]);
                continue;
            }
            (Some((wanted, more)), Some((letter, rest)))
                if wanted.value == '?' || wanted.value == letter.value =>
            {
                [pattern, name] = [more, rest];
                continue;
            }
            (None, None) => return true,
            _ => {}
        }
        let Some([behind_star, taken]) = again else { return false };
        let Some((_, rest)) = taken.split_first() else { return false };
        [pattern, name] = [behind_star, rest];
        again = Some([behind_star, rest]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(text: &str, part: Match, case: bool, marks: bool, name: &str) -> bool {
        let text = Text { text: text.into(), part, fold_case: case, fold_marks: marks };
        let mut folded = String::new();
        fold_all(name, &mut folded);
        Needle::new(&text).matches(NameOf { folded: folded.as_bytes(), original: name })
    }

    #[test]
    fn parts_of_names_are_found() {
        let finds = |text, part, name| finds(text, part, true, true, name);
        assert!(finds("REPORT", Match::Within, "my report.pdf"));
        assert!(finds("ä.pdf", Match::End, "XA\u{308}.PDF"));
        assert!(finds("a", Match::Beginning, "Ärger") && !finds("r", Match::Beginning, "Ärger"));
        assert!(
            finds("strasse", Match::Whole, "Straße") && !finds("stras", Match::Whole, "Straße")
        );
        assert!(finds("file", Match::Word, "myFile") && !finds("ile", Match::Word, "myFile"));
        assert!(finds("", Match::Within, "x") && finds("", Match::Word, "x"));
    }

    #[test]
    fn a_name_may_begin_with_a_mark() {
        for text in ["\u{301}", "\u{301}a"] {
            assert!(finds(text, Match::Word, false, false, text), "{text:?}");
        }
    }

    #[test]
    fn spelling_counts_where_it_should() {
        assert!(!finds("report", Match::Within, false, true, "Report"));
        assert!(finds("Report", Match::Within, false, false, "aReport"));
        assert!(!finds("a", Match::Within, true, false, "Ä"), "a letter is not cut from its mark");
        assert!(finds("ä", Match::Within, true, false, "xA\u{308}x"));
        assert!(
            !finds("Ä", Match::Whole, false, true, "ä")
                && finds("Ä", Match::Whole, false, true, "A")
        );
    }

    #[test]
    fn patterns_fit() {
        let fits = |pattern, name| finds(pattern, Match::Pattern, true, true, name);
        for (pattern, name) in [
            ("*.pdf", "A.PDF"),
            ("*", ""),
            ("a*b*c", "aXbXbc"),
            ("?.txt", "ä.txt"),
            ("*a*", "bab"),
            ("", ""),
            ("**", "x"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("*.pdf", "a.pdfx"), ("?", ""), ("a*b", "ba"), ("?.txt", ".txt"), ("", "a")]
        {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }
}
