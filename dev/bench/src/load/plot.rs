//! The processor time of one server, beside that of the others, as a picture (SVG).

use crate::plot::{Anchor, COLOURS, Picture, Point};

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
    let mut out = Picture::new(Point { x: WIDTH, y: height }, 11);
    let title =
        format!("Processor time of {label}, as a part of that of another server: left is better");
    out.title(Point { x: 10.0, y: 20.0 }, &title);
    for (n, (other, colour)) in others.iter().zip(COLOURS).enumerate() {
        let at = LEFT + 130.0 * n as f64;
        out.dot(Point { x: at, y: 38.0 }, colour);
        out.text(Point { x: at + 8.0, y: 42.0 }, Anchor::Start, &format!("of {other}"));
    }
    for (part, text) in TICKS {
        let x = x(part);
        let colour = if text == "1" { "#444444" } else { "#dddddd" };
        out.line(Point { x, y: TOP }, Point { x, y: height - BOTTOM }, colour);
        out.text(Point { x, y: height - 10.0 }, Anchor::Middle, text);
    }
    for (n, line) in lines.iter().enumerate() {
        let y = TOP + LINE * (n as f64 + 0.5);
        out.text(Point { x: LEFT - 8.0, y: y + 4.0 }, Anchor::End, &line.name);
        for (part, colour) in line.parts.iter().zip(COLOURS) {
            if let Some(part) = part {
                out.dot(Point { x: x(*part), y }, colour);
            }
        }
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_for_each_server_that_was_measured() {
        let line = Line { name: "read".to_owned(), parts: vec![Some(0.5), None] };
        let others = ["smbd".to_owned(), "bare".to_owned()];
        let svg = picture("Frevo", &others, &[line]);
        // Two of the circles belong to the legend and one to the row.
        assert_eq!(svg.matches("<circle").count(), 3, "{svg}");
        assert!(svg.contains(">of bare</text>") && svg.ends_with("</svg>\n"));
    }
}
