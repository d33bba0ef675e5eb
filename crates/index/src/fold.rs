//! One spelling for names that people take for one: letters and marks as one code point or as several, upper and
//! lower case, letters with and without marks.

use alloc::string::String;
use alloc::vec::Vec;

use crate::unicode::{CLASSES, DECOMPOSITIONS};

/// The parts of Hangul: The Unicode Standard 14.0, 3.12.
mod hangul {
    pub(super) const SYLLABLES: u32 = 0xAC00;
    pub(super) const LEADING: u32 = 0x1100;
    pub(super) const VOWELS: u32 = 0x1161;
    /// The one before the first trailing consonant.
    pub(super) const TRAILING: u32 = 0x11A7;
    pub(super) const LEADING_COUNT: u32 = 19;
    pub(super) const VOWEL_COUNT: u32 = 21;
    pub(super) const TRAILING_COUNT: u32 = 28;
}

/// The marks that letters are found without.
const MARKS: [(u32, u32); 17] = [
    (0x0300, 0x036F),
    (0x0483, 0x0487),
    (0x0591, 0x05BD),
    (0x05BF, 0x05BF),
    (0x05C1, 0x05C2),
    (0x05C4, 0x05C5),
    (0x05C7, 0x05C7),
    (0x0610, 0x061A),
    (0x064B, 0x065F),
    (0x0670, 0x0670),
    (0x06D6, 0x06DC),
    (0x1AB0, 0x1ACE),
    (0x1DC0, 0x1DFF),
    (0x20D0, 0x20F0),
    (0x3099, 0x309A),
    (0xFE20, 0xFE2F),
    (0x1E8D0, 0x1E8D6),
];

/// The differences between two spellings that do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fold {
    /// Upper and lower case.
    pub(crate) case: bool,
    /// Letters with and without marks.
    pub(crate) marks: bool,
}

impl Fold {
    /// All of them: the spelling in which the index keeps names.
    pub(crate) const ALL: Self = Self { case: true, marks: true };
}

/// A character of a spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Letter {
    pub(crate) value: char,
    /// True if a word begins with it.
    pub(crate) begins_word: bool,
}

/// True for a mark on the letter before it.
pub(crate) fn is_mark(c: char) -> bool {
    let c = u32::from(c);
    c >= 0x300 && MARKS.iter().any(|(first, last)| (*first..=*last).contains(&c))
}

/// Writes the spelling of a text without all differences to `out`.
pub(crate) fn fold_all(text: &str, out: &mut String) {
    out.clear();
    if text.is_ascii() {
        out.push_str(text);
        out.make_ascii_lowercase();
        return;
    }
    out.extend(letters(text, Fold::ALL).iter().map(|letter| letter.value));
}

/// Returns the letters of a text without some differences. Marks follow their letter, in one order.
pub(crate) fn letters(text: &str, fold: Fold) -> Vec<Letter> {
    let mut apart: Vec<char> = Vec::with_capacity(text.len());
    for c in text.chars() {
        take_apart(c, &mut apart);
    }
    order_marks(&mut apart);
    let mut out = Vec::with_capacity(apart.len());
    let mut before: Option<char> = None;
    for &c in &apart {
        if is_mark(c) {
            if !fold.marks {
                out.push(Letter { value: c, begins_word: out.is_empty() });
            }
            continue;
        }
        let begins_word = begins_word(before, c);
        before = Some(c);
        if fold.case {
            push_lower(c, begins_word, &mut out);
        } else {
            out.push(Letter { value: c, begins_word });
        }
    }
    out
}

/// True if a word begins with `c`, which is behind `before`.
fn begins_word(before: Option<char>, c: char) -> bool {
    let Some(before) = before else { return true };
    !before.is_alphanumeric() || (before.is_lowercase() && c.is_uppercase())
}

/// Appends a letter in lower case. By way of its upper case, so that all letters with one upper case become one.
fn push_lower(c: char, begins_word: bool, out: &mut Vec<Letter>) {
    let mut begins_word = begins_word;
    let mut push = |value| {
        out.push(Letter { value, begins_word });
        begins_word = false;
    };
    if c.is_ascii() {
        return push(c.to_ascii_lowercase());
    }
    for lower in c.to_uppercase().flat_map(char::to_lowercase) {
        match lower {
            // The capital letter has no other upper case, but the small one has two letters.
            'ß' => ['s', 's'].into_iter().for_each(&mut push),
            // A dot above that lower case makes of a capital i with a dot.
            '\u{307}' => {}
            _ => push(lower),
        }
    }
}

/// Appends the letter and the marks that a character is made of. Parts of a syllable of Hangul become the syllable.
fn take_apart(c: char, out: &mut Vec<char>) {
    if c.is_ascii() {
        return out.push(c);
    }
    if let Some(syllable) = out.last().and_then(|before| syllable(*before, c)) {
        if let Some(last) = out.last_mut() {
            *last = syllable;
        }
        return;
    }
    match parts_of(c) {
        Some(Parts { letter, mark }) => {
            take_apart(letter, out);
            out.extend(mark);
        }
        None => out.push(c),
    }
}

struct Parts {
    letter: char,
    mark: Option<char>,
}

fn parts_of(c: char) -> Option<Parts> {
    let code = u16::try_from(u32::from(c)).ok()?;
    let at = DECOMPOSITIONS.binary_search_by_key(&code, |[whole, _, _]| *whole).ok()?;
    let [_, letter, mark] = DECOMPOSITIONS.get(at)?;
    let mark = char::from_u32(u32::from(*mark)).filter(|mark| *mark != '\0');
    Some(Parts { letter: char::from_u32(u32::from(*letter))?, mark })
}

/// Returns the syllable of Hangul that two parts make.
fn syllable(first: char, second: char) -> Option<char> {
    use hangul::{
        LEADING, LEADING_COUNT, SYLLABLES, TRAILING, TRAILING_COUNT, VOWEL_COUNT, VOWELS,
    };
    let index = |c: char, base: u32, count: u32| {
        u32::from(c).checked_sub(base).filter(|index| *index < count)
    };
    if let Some(leading) = index(first, LEADING, LEADING_COUNT) {
        let vowel = index(second, VOWELS, VOWEL_COUNT)?;
        let pair = leading.checked_mul(VOWEL_COUNT)?.checked_add(vowel)?;
        return char::from_u32(pair.checked_mul(TRAILING_COUNT)?.checked_add(SYLLABLES)?);
    }
    let pairs = LEADING_COUNT.checked_mul(VOWEL_COUNT)?.checked_mul(TRAILING_COUNT)?;
    let pair = index(first, SYLLABLES, pairs)?;
    let trailing = index(second, TRAILING, TRAILING_COUNT).filter(|trailing| *trailing > 0)?;
    let is_open = pair.checked_rem(TRAILING_COUNT)? == 0;
    is_open.then(|| u32::from(first).checked_add(trailing)).flatten().and_then(char::from_u32)
}

/// Sorts the marks behind each letter by their classes: The Unicode Standard 14.0, 3.11.
fn order_marks(letters: &mut [char]) {
    for run in letters.chunk_by_mut(|one, other| class(*one) != 0 && class(*other) != 0) {
        if run.len() > 1 {
            run.sort_by_key(|mark| class(*mark));
        }
    }
}

/// The canonical combining class; marks without a known one stay where they are, behind the others.
fn class(c: char) -> u8 {
    let Some(index) = u32::from(c).checked_sub(0x300) else { return 0 };
    match usize::try_from(index).ok().and_then(|index| CLASSES.get(index)) {
        Some(class) => *class,
        None if is_mark(c) => u8::MAX,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(text: &str) -> String {
        let mut out = String::new();
        fold_all(text, &mut out);
        out
    }

    fn spelled(text: &str, fold: Fold) -> String {
        letters(text, fold).iter().map(|letter| letter.value).collect()
    }

    #[test]
    fn spellings_of_one_name_are_one() {
        for (one, other) in [
            ("Ärger", "a\u{308}rger"),
            ("Résumé.PDF", "resume.pdf"),
            ("STRASSE", "straße"),
            ("ẞ", "ss"),
            ("ΣΊΣΥΦΟΣ", "σισυφος"),
            ("Йод", "и\u{306}од"),
            ("한글", "\u{1112}\u{1161}\u{11AB}\u{1100}\u{1173}\u{11AF}"),
            ("ガ", "カ\u{3099}"),
            ("İ", "i"),
            ("Å", "\u{212B}"),
            ("ệ", "e\u{302}\u{323}"),
        ] {
            assert_eq!(folded(one), folded(other), "{one} {other}");
        }
        assert_ne!(folded("한"), folded("하"));
        assert_ne!(folded("a"), folded("b"));
    }

    #[test]
    fn marks_and_case_count_where_they_should() {
        let marks = Fold { case: true, marks: false };
        assert_eq!(spelled("Ä", marks), spelled("a\u{308}", marks));
        assert_ne!(spelled("Ä", marks), spelled("a", marks));
        assert_eq!(spelled("ệ", marks), spelled("Ê\u{323}", marks));
        let case = Fold { case: false, marks: true };
        assert_eq!(spelled("Ä", case), "A");
        assert_ne!(spelled("Ä", case), spelled("ä", case));
    }

    #[test]
    fn words_begin_behind_separators_and_at_capitals() {
        let begin = |text: &str| -> String {
            let letters = letters(text, Fold { case: false, marks: true });
            letters.iter().filter(|one| one.begins_word).map(|one| one.value).collect()
        };
        assert_eq!(begin("myBigFile-2 of_all.pdf"), "mBF2oap");
        assert_eq!(begin("äÖÜx"), "aO");
    }
}
