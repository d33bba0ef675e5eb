//! Long texts: the links of namespaces are cut out of them and read some at a time, so that a configuration of
//! 100,000 links takes little more memory while it is read than its values.
//!
//! Cutting knows less of TOML than its parser. Where it may be wrong, the text is read as a whole: with a text of
//! several lines, with a header that is spelled otherwise, and with any fault.

use std::borrow::Cow;
use std::ops::Range;

use toml::Spanned;

/// Bytes from which a text is long.
const LONG_BYTES: usize = 1 << 20;
/// Links that are read at a time.
const LINKS_AT_ONCE: usize = 1_000;

const LINK: &str = "[[namespace.link]]";
const NAMESPACE: &str = "[[namespace]]";

/// A row of links of one namespace, in a text.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    /// The place of the namespace among those of the text.
    namespace: usize,
    /// Its bytes.
    range: Range<usize>,
}

/// A long text whose links are cut out.
#[derive(Debug)]
pub(super) struct LongText<'a> {
    text: &'a str,
    pieces: Vec<Piece>,
}

impl<'a> LongText<'a> {
    /// Cuts the links out of a text. None for one that has to be read as a whole.
    pub(super) fn cut(text: &'a str) -> Option<Self> {
        let pieces = cut(text).filter(|_| text.len() >= LONG_BYTES)?;
        Some(Self { text, pieces })
    }

    /// Returns the text without links, everything else in its place.
    pub(super) fn rest(&self) -> String {
        blanked(self.text, &self.pieces)
    }

    /// The number of namespaces whose links are cut out.
    pub(super) fn namespaces(&self) -> usize {
        self.text.lines().filter(|line| is_header(line, NAMESPACE)).count()
    }

    /// Returns the place of a namespace, and the text and the beginning of some of its links, one after the
    /// other.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (usize, &'a str, usize)> {
        self.pieces.iter().filter_map(|Piece { namespace, range }| {
            Some((*namespace, self.text.get(range.clone())?, range.start))
        })
    }
}

/// Returns a value of a piece that begins at `start`, with its place in the whole text.
pub(super) fn moved<T>(value: Spanned<T>, start: usize) -> Spanned<T> {
    let span = value.span();
    Spanned::new(span.start + start..span.end + start, value.into_inner())
}

/// Returns a text without the links of its namespaces, if it is long and they can be cut out. It has the names of
/// all sections and the keys of all others.
pub fn without_links(text: &str) -> Cow<'_, str> {
    match cut(text).filter(|_| text.len() >= LONG_BYTES) {
        Some(pieces) => Cow::Owned(blanked(text, &pieces)),
        None => Cow::Borrowed(text),
    }
}

/// Returns the pieces of a text. None for one that has a text of several lines, in which a line may look like a
/// header, and for a link without a namespace.
fn cut(text: &str) -> Option<Vec<Piece>> {
    if text.contains("\"\"\"") || text.contains("'''") {
        return None;
    }
    let (mut pieces, mut namespaces, mut count) = (Vec::<Piece>::new(), 0_usize, 0);
    let (mut at, mut is_link) = (0, false);
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let begins = line.trim_start().starts_with('[');
        if begins {
            is_link = is_header(line, LINK);
            namespaces += usize::from(is_header(line, NAMESPACE));
        }
        if !is_link {
            count = 0;
            continue;
        }
        count += usize::from(begins);
        match pieces.last_mut() {
            Some(last) if last.range.end == start && (!begins || count <= LINKS_AT_ONCE) => {
                last.range.end = at;
            }
            _ => {
                count = 1;
                pieces.push(Piece { namespace: namespaces.checked_sub(1)?, range: start..at });
            }
        }
    }
    Some(pieces)
}

/// The text with blanks in place of the pieces: all else keeps its place.
fn blanked(text: &str, pieces: &[Piece]) -> String {
    let (mut rest, mut at) = (String::with_capacity(text.len()), 0);
    for Piece { range, .. } in pieces {
        rest.push_str(text.get(at..range.start).unwrap_or_default());
        rest.extend(std::iter::repeat_n(' ', range.len().saturating_sub(1)));
        rest.push('\n');
        at = range.end;
    }
    rest.push_str(text.get(at..).unwrap_or_default());
    rest
}

/// True for a line that is this header, possibly with a comment behind it.
fn is_header(line: &str, header: &str) -> bool {
    let rest = line.trim_start().strip_prefix(header).map(str::trim);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn read(text: &str) -> Option<Config> {
        Config::of_long_text(text)
    }

    fn link(number: usize) -> String {
        format!(
            "[[namespace.link]] # {number}\npath = 'dir{}\\{number}'\ntargets = [\n  '\\\\one\\data{number}',\n  \
             {{ path = '\\\\two\\x', rank = 3 }},\n]\ncomment = \"{}\"\n\n",
            number % 7,
            "x".repeat(200)
        )
    }

    /// A text of two namespaces with many links, and other sections between them.
    fn long() -> String {
        let all = |range: Range<usize>| range.map(link).collect::<String>();
        format!(
            "[server]\nname = \"BOX\"\n[[namespace]]\nname = \"one\"\n{}[[share]]\nname = \"x\"\npath = \"/x\"\n\
             [[namespace]]\nname = \"two\"\nttl = 7\n\n{}[limits]\ndrain_seconds = 9\n",
            all(0..2_500),
            all(2_500..4_000)
        )
    }

    #[test]
    fn a_long_text_is_read_as_a_whole_one_is() {
        let text = long();
        let pieces = cut(&text).unwrap();
        let namespaces: Vec<_> = pieces.iter().map(|piece| piece.namespace).collect();
        assert_eq!(namespaces, [0, 0, 0, 1, 1]);
        let (read, whole) = (read(&text).unwrap(), toml::from_str::<Config>(&text).unwrap());
        assert_eq!(read.namespaces, whole.namespaces);
        assert_eq!(read.namespaces[1].links.len(), 1_500);
        assert_eq!((read.server, read.shares.len()), (whole.server, 1));
        let table: toml::Table = without_links(&text).parse().unwrap();
        assert_eq!(table["namespace"].as_array().unwrap().len(), 2);
        assert_eq!(table["limits"]["drain_seconds"].as_integer(), Some(9));
        for number in [0, 3_999] {
            let path = format!("'dir{}\\{number}'", number % 7);
            let fault = text.replacen(&path, "'a/b'", 1);
            let faults = Config::parse(&fault).unwrap_err();
            let line = fault.lines().position(|line| line.contains("'a/b'")).unwrap() + 1;
            assert_eq!((faults.len(), faults[0].line), (1, Some(line)), "{faults:?}");
        }
    }

    #[test]
    fn what_may_be_cut_wrongly_is_read_as_a_whole() {
        let text = long();
        let several = text.replacen("name = \"BOX\"", "comment = \"\"\"\n[[namespace]]\n\"\"\"", 1);
        let other = text.replacen("[[namespace]]", "[[ namespace ]]", 1);
        let also = text.replacen("[[namespace.link]]", "[[namespace . link]]", 1);
        for odd in [several, other, also] {
            assert!(read(&odd).is_none());
            let whole = Config::parse(&odd).unwrap();
            assert_eq!(whole.namespaces[0].links.len(), 2_500);
        }
        for bad in ["[[namespace.link]]\n", "x = [\n", "[[namespace.link]]\nname = 1\n"] {
            let bad = format!("{bad}{text}");
            assert!(read(&bad).is_none() && Config::parse(&bad).is_err(), "{:?}", &bad[..30]);
        }
        assert!(read("[server]\n").is_none(), "a short text");
    }
}
