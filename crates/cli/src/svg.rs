//! Parts that all pictures share.

use std::fmt::Write;
use std::ops::Range;

/// Colours that people with any colour vision can tell apart (Okabe and Ito).
pub(crate) const COLOURS: [&str; 6] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// The begin of a picture with a white background and a title.
pub(crate) fn begin(width: f64, height: f64, left: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{left}\" y=\"22\" font-size=\"14\">{}</text>\n",
        escape(title)
    )
}

/// A horizontal line of the grid with its label.
pub(crate) fn grid_line(out: &mut String, ends: Range<f64>, y: f64, label: &str) {
    let Range { start: left, end: right } = ends;
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
        left - 6.0,
        y + 4.0
    );
}

/// `text` without the characters that begin a tag or an entity.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
