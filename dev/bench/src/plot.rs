//! Pictures of results (SVG).

use std::fmt::Write as _;

/// Colours that people with any colour vision can tell apart (Okabe and Ito).
pub(crate) const COLOURS: [&str; 3] = ["#0072b2", "#e69f00", "#009e73"];
/// Font sizes of titles.
const TITLE: u32 = 14;

/// A place in a picture, from its upper left corner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

/// The part of a text that is at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture with a white ground.
pub(crate) struct Picture(String);

impl Picture {
    pub(crate) fn new(size: Point, font_size: u32) -> Self {
        let Point { x, y } = size;
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {x} {y}\" \
             font-family=\"sans-serif\" font-size=\"{font_size}\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        ))
    }

    pub(crate) fn title(&mut self, at: Point, text: &str) {
        let Point { x, y } = at;
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{TITLE}\">{text}</text>"
        ));
    }

    pub(crate) fn text(&mut self, at: Point, anchor: Anchor, text: &str) {
        let Point { x, y } = at;
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    pub(crate) fn line(&mut self, from: Point, to: Point, colour: &str) {
        self.stroke(from, to, colour, "");
    }

    pub(crate) fn dashed_line(&mut self, from: Point, to: Point, colour: &str) {
        self.stroke(from, to, colour, " stroke-dasharray=\"4 3\"");
    }

    fn stroke(&mut self, from: Point, to: Point, colour: &str, dashes: &str) {
        self.add(format_args!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"{dashes}/>",
            from.x, from.y, to.x, to.y
        ));
    }

    pub(crate) fn dot(&mut self, at: Point, colour: &str) {
        let Point { x, y } = at;
        self.add(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>"));
    }

    /// Draws a square of a legend, by its upper left corner.
    pub(crate) fn square(&mut self, at: Point, side: f64, colour: &str) {
        let Point { x, y } = at;
        self.add(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{side}\" height=\"{side}\" fill=\"{colour}\"/>"
        ));
    }

    /// Fills the area between points.
    pub(crate) fn area(&mut self, points: impl Iterator<Item = Point>, colour: &str) {
        let points: Vec<String> = points.map(|at| format!("{:.1},{:.1}", at.x, at.y)).collect();
        let points = points.join(" ");
        self.add(format_args!("<polygon points=\"{points}\" fill=\"{colour}\"/>"));
    }

    pub(crate) fn finish(self) -> String {
        self.0 + "</svg>\n"
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{element}");
    }
}
