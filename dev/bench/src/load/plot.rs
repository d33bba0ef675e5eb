//! The processor time of one server, beside that of the others, as a picture (SVG).

use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 210.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 64.0;
const LINE: f64 = 16.0;
const BOTTOM: f64 = 30.0;
/// Ends of the axis, which is logarithmic.
const LEAST: f64 = 1.0 / 16.0;
const MOST: f64 = 4.0;
const TICKS: [(f64, &str); 7] = [
    (LEAST, "1/16"),
    (0.125, "1/8"),
    (0.25, "1/4"),
    (0.5, "1/2"),
    (1.0, "1"),
    (2.0, "2"),
    (MOST, "4"),
];
/// Colours that people with any colour vision can tell apart (Okabe and Ito).
const COLOURS: [&str; 3] = ["#0072b2", "#e69f00", "#009e73"];

/// A row: its name, and the processor time as a part of that of each other server.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) parts: Vec<Option<f64>>,
}

/// Draws a dot for each row and server; `others` are the servers that `label` is compared with.
pub(super) fn picture(label: &str, others: &[String], lines: &[Line]) -> String {
    let height = TOP + LINE * lines.len() as f64 + BOTTOM;
    let scale = |part: f64| (part.clamp(LEAST, MOST) / LEAST).ln() / (MOST / LEAST).ln();
    let x = |part: f64| LEFT + (WIDTH - LEFT - RIGHT) * scale(part);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"20\" font-size=\"14\">Processor time of {label}, as a part of that of another \
         server: left is better</text>\n"
    );
    // Writing to a String cannot fail.
    for (n, (other, colour)) in others.iter().zip(COLOURS).enumerate() {
        let at = LEFT + 130.0 * n as f64;
        let _ = writeln!(
            out,
            "<circle cx=\"{at}\" cy=\"38\" r=\"4\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"42\">of {other}</text>",
            at + 8.0
        );
    }
    for (part, text) in TICKS {
        let _ = writeln!(
            out,
            "<line x1=\"{0:.1}\" y1=\"{TOP}\" x2=\"{0:.1}\" y2=\"{1}\" stroke=\"{2}\"/>\
             <text x=\"{0:.1}\" y=\"{3}\" text-anchor=\"middle\">{text}</text>",
            x(part),
            height - BOTTOM,
            if text == "1" { "#444444" } else { "#dddddd" },
            height - 10.0
        );
    }
    for (n, line) in lines.iter().enumerate() {
        let y = TOP + LINE * (n as f64 + 0.5);
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            line.name
        );
        for (part, colour) in line.parts.iter().zip(COLOURS) {
            if let Some(part) = part {
                let at = x(*part);
                let _ = writeln!(
                    out,
                    "<circle cx=\"{at:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>"
                );
            }
        }
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_for_each_server_that_was_measured() {
        let line = Line { name: "read".to_owned(), parts: vec![Some(0.5), None] };
        let others = ["smbd".to_owned(), "bare".to_owned()];
        let svg = picture("Frevo", &others, &[line]);
        // Two circles belong to the legend, one to the row.
        assert_eq!(svg.matches("<circle").count(), 3, "{svg}");
        assert!(svg.contains(">of bare</text>") && svg.ends_with("</svg>\n"));
    }
}
