//! Spelling of names: on the wire, for people, and in URLs.
//!
//! SMB reserves some characters. On the wire others stand for them ([`frevo_mount::names`]); all
//! paths of this program are spelled as on the wire. People read and write the characters
//! themselves: in a URL, `%2A` and `%3F` are an asterisk and a question mark of a name, since `*` and
//! `?` are wildcards, and `FILE/:STREAM` is a stream of a file, since `:` may be part of a name.

use std::ffi::OsStr;

use frevo_mount::names::{Spelling, from_wire, to_wire};

/// Wildcards of a URL's path.
const WILDCARDS: [char; 2] = ['*', '?'];

/// Escapes of a URL that mean a character of a name, with the escaped stand-in of that character.
const ESCAPES: [(&str, &str); 4] =
    [("%2A", "%EF%80%A1"), ("%3A", "%EF%80%A2"), ("%3F", "%EF%80%A5"), ("%5C", "%EF%80%A6")];

/// The text of a URL in which escaped characters are not mistaken for wildcards and separators.
pub(crate) fn with_stand_ins(text: &str) -> String {
    let begins = |scheme: &&str| {
        text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let scheme = ["smb://", "smb+quic://"].into_iter().find(begins).map(str::len);
    let authority = scheme.and_then(|from| Some(text.get(from..)?.find('/')? + from));
    let Some((server, path)) = authority.map(|at| text.split_at(at)) else {
        return text.to_owned();
    };
    let mut path = path.to_owned();
    for (escape, stand_in) in ESCAPES {
        path = path.replace(escape, stand_in).replace(&escape.to_lowercase(), stand_in);
    }
    format!("{server}{path}")
}

/// The path of a URL as the wire spells it. Wildcards stay.
///
/// # Errors
/// A name is not valid, with the reason.
pub(crate) fn path_to_wire(path: &str) -> Result<String, String> {
    let mut names: Vec<String> = Vec::new();
    for name in path.split(['/', '\\']).filter(|name| !name.is_empty()) {
        match (names.last_mut(), name.strip_prefix(':')) {
            (Some(file), Some(stream)) if !stream.is_empty() => {
                file.push(':');
                file.push_str(stream);
            }
            _ => names.push(name_to_wire(name)?),
        }
    }
    Ok(names.join("/"))
}

fn name_to_wire(name: &str) -> Result<String, String> {
    // The names `.` and `..` are passed on unchanged, because the client library refuses them and
    // reports the reason.
    if matches!(name, "." | "..") {
        return Ok(name.to_owned());
    }
    let mapped = to_wire(OsStr::new(name), Spelling::Mapped);
    let mapped = mapped.ok_or_else(|| String::from("a name cannot contain a NUL character"))?;
    let kept = name.chars().zip(mapped.chars());
    Ok(kept.map(|(asked, wire)| if WILDCARDS.contains(&asked) { asked } else { wire }).collect())
}

/// True for a path with wildcards.
pub(crate) fn has_wildcards(path: &str) -> bool {
    path.contains(WILDCARDS)
}

/// The path in which asterisks and question marks are parts of names.
pub(crate) fn literal(path: &str) -> String {
    path.replace('*', "\u{f021}").replace('?', "\u{f025}")
}

/// A path of the wire for people: with the characters that the names were given.
pub(crate) fn shown(path: &str) -> String {
    let names = path.split('/').map(|name| from_wire(name, Spelling::Mapped));
    names.collect::<Vec<_>>().join("/")
}

/// A path of the wire for a server with the POSIX extensions.
pub(crate) fn exact(path: &str) -> String {
    let names = path.split('/').map(|name| {
        let plain = from_wire(name, Spelling::Mapped);
        to_wire(OsStr::new(&plain), Spelling::Exact).unwrap_or(plain)
    });
    names.collect::<Vec<_>>().join("/")
}

/// A path of the wire in a URL that a command takes.
pub(crate) fn in_url(path: &str) -> String {
    let mut text = String::new();
    for name in path.split('/') {
        if !text.is_empty() {
            text.push('/');
        }
        let (name, stream) = match name.split_once(':') {
            Some((file, stream)) if !stream.is_empty() => (file, Some(stream)),
            _ => (name, None),
        };
        let plain = from_wire(name, Spelling::Mapped);
        // A wildcard that the user has typed is equal in `wire` and `plain` and stays a wildcard;
        // one in a file name is mapped in `wire` and gets escaped.
        let marks = name.chars().zip(plain.chars());
        let last = plain.chars().count().saturating_sub(1);
        for (at, (wire, plain)) in marks.enumerate() {
            let is_escaped = match plain {
                '%' | '\\' => true,
                '*' | '?' => wire != plain,
                ':' => at == 0,
                ' ' => at == last,
                plain => plain.is_control(),
            };
            escape(&mut text, plain, is_escaped);
        }
        if let Some(stream) = stream {
            text.push_str("/:");
            text.push_str(&stream.replace('%', "%25"));
        }
    }
    text
}

fn escape(text: &mut String, one: char, is_escaped: bool) {
    if !is_escaped {
        return text.push(one);
    }
    let mut bytes = [0; 4];
    for byte in one.encode_utf8(&mut bytes).bytes() {
        text.push_str(&format!("%{byte:02X}"));
    }
}

/// Text of the library with the characters that names were given. It names files by their URLs.
pub(crate) fn in_text(text: &str) -> String {
    let mut shown = String::new();
    for one in text.chars() {
        let (plain, is_escaped) = match one {
            '\u{f028}' => (' ', false),
            '\u{f029}' => ('.', false),
            '\u{f001}'..='\u{f027}' => {
                let plain = from_wire(one.encode_utf8(&mut [0; 4]), Spelling::Mapped);
                let plain = plain.chars().next().unwrap_or(one);
                (plain, plain.is_control() || matches!(plain, '*' | '?' | '\\'))
            }
            // A control character in a name could end the line or move the cursor, so it is
            // escaped.
            other => (other, other.is_control()),
        };
        escape(&mut shown, plain, is_escaped);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> String {
        let url: frevo_client::SmbUrl =
            with_stand_ins(&format!("smb://box/s/{path}")).parse().unwrap();
        path_to_wire(&url.path).unwrap()
    }

    #[test]
    fn urls_lead_back_to_the_name_on_the_wire() {
        for name in [
            "a:b.txt",
            ":first",
            "what?",
            "a*b",
            "back\\slash",
            "100%",
            "%2A",
            "end.",
            "end ",
            "...",
            "new\nline\u{1}",
            "<>|\"",
            "a::b",
            "\u{f029}",
            "é",
            " x",
        ] {
            let wire = to_wire(OsStr::new(name), Spelling::Mapped).unwrap();
            for path in [wire.clone(), format!("d/{wire}/x"), format!("a/{wire}:stream")] {
                assert_eq!(read(&in_url(&path)), path, "{}", in_url(&path));
            }
            assert_eq!(shown(&wire), name);
        }
    }

    #[test]
    fn what_people_write_is_understood() {
        assert_eq!(read("a:b.txt"), "a\u{f022}b.txt");
        assert_eq!(read("f/:meta"), "f:meta");
        assert_eq!(read("%3Ameta/x%5cy"), "\u{f022}meta/x\u{f026}y");
        assert_eq!(read("*.jp?"), "*.jp?");
        assert!(has_wildcards(&read("a/*.jpg")) && !has_wildcards(&read("a/%2A.jpg")));
        assert_eq!(literal(&read("*.jp?")), read("%2A.jp%3F"));
        assert_eq!(in_url("*.jp?"), "*.jp?");
        assert_eq!(in_text("open smb://box/s/a\u{f022}b\u{f029}: no"), "open smb://box/s/a:b.: no");
        assert!(path_to_wire("a/b\0").is_err());
        assert_eq!(path_to_wire("a/../."), Ok(String::from("a/../.")));
    }
}
