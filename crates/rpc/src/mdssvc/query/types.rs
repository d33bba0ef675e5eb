//! Types of content, as macOS names them, by the extensions of names.

use super::terms::joined;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use frevo_index::{Kind, Match, Query, Text};

/// A type of content that extensions tell.
struct Known {
    name: &'static str,
    /// The type that it is one of.
    within: &'static str,
    extensions: &'static [&'static str],
}

const fn known(
    name: &'static str,
    within: &'static str,
    extensions: &'static [&'static str],
) -> Known {
    Known { name, within, extensions }
}

/// The types. The first one of an extension is that of a file.
static TYPES: &[Known] = &[
    known("com.adobe.pdf", "public.composite-content", &["pdf"]),
    known("public.jpeg", "public.image", &["jpg", "jpeg", "jpe"]),
    known("public.png", "public.image", &["png"]),
    known("com.compuserve.gif", "public.image", &["gif"]),
    known("public.tiff", "public.image", &["tif", "tiff"]),
    known("com.microsoft.bmp", "public.image", &["bmp"]),
    known("public.heic", "public.image", &["heic", "heif"]),
    known("public.svg-image", "public.image", &["svg"]),
    known("org.webmproject.webp", "public.image", &["webp"]),
    known("com.adobe.raw-image", "public.image", &["dng", "cr2", "nef", "arw"]),
    known("com.adobe.photoshop-image", "public.image", &["psd"]),
    known("public.mp3", "public.audio", &["mp3"]),
    known("public.mpeg-4-audio", "public.audio", &["m4a", "aac"]),
    known("com.microsoft.waveform-audio", "public.audio", &["wav"]),
    known("public.aiff-audio", "public.audio", &["aif", "aiff"]),
    known("org.xiph.flac", "public.audio", &["flac"]),
    known("org.xiph.ogg-audio", "public.audio", &["ogg", "oga", "opus"]),
    known("public.mpeg-4", "public.movie", &["mp4"]),
    known("com.apple.m4v-video", "public.movie", &["m4v"]),
    known("com.apple.quicktime-movie", "public.movie", &["mov", "qt"]),
    known("public.mpeg", "public.movie", &["mpg", "mpeg"]),
    known("public.avi", "public.movie", &["avi"]),
    known("org.matroska.mkv", "public.movie", &["mkv"]),
    known("org.webmproject.webm", "public.movie", &["webm"]),
    known("public.plain-text", "public.text", &["txt", "text", "log"]),
    known("public.rtf", "public.text", &["rtf"]),
    known("public.html", "public.text", &["html", "htm"]),
    known("public.xml", "public.text", &["xml"]),
    known("public.json", "public.text", &["json"]),
    known("public.comma-separated-values-text", "public.text", &["csv"]),
    known("net.daringfireball.markdown", "public.text", &["md"]),
    known(
        "public.source-code",
        "public.text",
        &["c", "h", "cpp", "rs", "py", "js", "java", "swift"],
    ),
    known("public.vcard", "public.contact", &["vcf"]),
    known("com.apple.ical.ics", "public.calendar-event", &["ics"]),
    known("com.apple.mail.emlx", "public.message", &["emlx", "eml"]),
    known("com.microsoft.word.doc", "public.composite-content", &["doc"]),
    known("org.openxmlformats.wordprocessingml.document", "public.composite-content", &["docx"]),
    known("org.oasis-open.opendocument.text", "public.composite-content", &["odt"]),
    known("com.microsoft.excel.xls", "public.spreadsheet", &["xls"]),
    known("org.openxmlformats.spreadsheetml.sheet", "public.spreadsheet", &["xlsx"]),
    known("org.oasis-open.opendocument.spreadsheet", "public.spreadsheet", &["ods"]),
    known("com.apple.iwork.numbers.numbers", "public.spreadsheet", &["numbers"]),
    known("com.microsoft.powerpoint.ppt", "public.presentation", &["ppt"]),
    known("org.openxmlformats.presentationml.presentation", "public.presentation", &["pptx"]),
    known("org.oasis-open.opendocument.presentation", "public.presentation", &["odp"]),
    known("com.apple.iwork.keynote.key", "public.presentation", &["key"]),
    known("com.apple.iwork.pages.pages", "public.composite-content", &["pages"]),
    known("public.zip-archive", "public.archive", &["zip"]),
    known("org.gnu.gnu-zip-archive", "public.archive", &["gz", "tgz"]),
    known("public.bzip2-archive", "public.archive", &["bz2"]),
    known("public.tar-archive", "public.archive", &["tar"]),
    known("org.7-zip.7-zip-archive", "public.archive", &["7z"]),
    known("com.apple.disk-image-udif", "public.disk-image", &["dmg"]),
    known("public.iso-image", "public.disk-image", &["iso"]),
    known("public.truetype-font", "public.font", &["ttf"]),
    known("public.opentype-font", "public.font", &["otf"]),
];

/// Returns true for a type that is this one, or is within it.
fn is_within(known: &Known, name: &str) -> bool {
    let groups: &[&str] = match name {
        "public.content" => &[
            "public.composite-content",
            "public.image",
            "public.audio",
            "public.movie",
            "public.text",
            "public.spreadsheet",
            "public.presentation",
        ],
        "public.audiovisual-content" => &["public.audio", "public.movie"],
        "public.composite-content" => {
            &["public.composite-content", "public.spreadsheet", "public.presentation"]
        }
        _ => &[],
    };
    known.name == name || known.within == name || groups.contains(&known.within)
}

/// Returns the extension of a name.
fn extension(name: &str) -> Option<&str> {
    let (stem, extension) = name.rsplit_once('.')?;
    (!stem.is_empty()).then_some(extension)
}

/// Returns the type of a file of this name.
pub(in crate::mdssvc) fn type_of(name: &str) -> &'static str {
    let has = |known: &&Known| {
        let extension = extension(name).unwrap_or("");
        known.extensions.iter().any(|one| one.eq_ignore_ascii_case(extension))
    };
    TYPES.iter().find(has).map_or("public.data", |known| known.name)
}

/// Returns the condition that a file is of this type, or of one within it. No file is of a type that is not known.
pub(super) fn named(name: &str) -> Query {
    match name {
        "*" | "public.item" => Query::All,
        "public.folder" | "public.directory" => Query::Kind(Kind::Folder),
        "public.data" => Query::Kind(Kind::File),
        name => of_extensions(|known| is_within(known, name)),
    }
}

/// Returns the condition of one of Finder's groups, `_kMDItemGroupId`.
pub(super) fn group(number: i64) -> Query {
    let name = match number {
        1 => "public.message",
        6 => "public.contact",
        7 => "public.movie",
        9 => "public.folder",
        10 => "public.audio",
        11 => "com.adobe.pdf",
        12 => "public.presentation",
        13 => "public.image",
        _ => return Query::Nothing,
    };
    named(name)
}

fn of_extensions(is_meant: impl Fn(&Known) -> bool) -> Query {
    let extensions =
        TYPES.iter().filter(|known| is_meant(known)).flat_map(|known| known.extensions);
    let names: Vec<_> = extensions
        .map(|extension| {
            Query::Name(Text {
                text: format!(".{extension}"),
                part: Match::End,
                fold_case: true,
                fold_marks: false,
            })
        })
        .collect();
    if names.is_empty() {
        return Query::Nothing;
    }
    Query::And(vec![Query::Kind(Kind::File), joined(names, Query::Or)])
}
