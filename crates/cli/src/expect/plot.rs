//! Throughput over buffer size, as a picture.

use std::fmt::Write;

use super::formula::{Route, megabytes};
use crate::svg::{self, COLOURS, escape};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 80.0;
const BOTTOM: f64 = 360.0;
const TOP: f64 = 40.0;
const RIGHT: f64 = 600.0;

/// From 1 KiB to 8 MiB.
const EXPONENTS: std::ops::RangeInclusive<i32> = 10..=23;

fn x(buffer: f64) -> f64 {
    let (first, last) = (f64::from(*EXPONENTS.start()), f64::from(*EXPONENTS.end()));
    LEFT + (buffer.log2() - first) / (last - first) * (RIGHT - LEFT)
}

/// A line of requests one by one for each route, and a dashed one of many at
/// once.
pub(crate) fn svg(routes: &[Route], credits: u32) -> String {
    let most = routes.iter().map(|route| route.pipelined(credits).0).fold(1e6, f64::max);
    let decades = (most / 1e6).log10().ceil().max(1.0);
    let y = |rate: f64| {
        let part = (rate / 1e6).max(1.0).log10() / decades;
        BOTTOM - part * (BOTTOM - TOP)
    };
    let title = format!(
        "Expected throughput: one request at a time (solid), pipelined with {credits} credits \
         (dashed)"
    );
    let mut out = svg::begin(WIDTH, HEIGHT, LEFT, &title);
    for decade in 0..=(decades as u32) {
        let rate = 10_f64.powi(i32::try_from(decade).unwrap_or(0)) * 1e6;
        svg::grid_line(&mut out, LEFT..RIGHT, y(rate), &format!("{} MB/s", megabytes(rate)));
    }
    for exponent in EXPONENTS.step_by(2) {
        let buffer = 2_f64.powi(exponent);
        let label = if exponent < 20 {
            format!("{}k", 1_u64 << (exponent - 10))
        } else {
            format!("{}M", 1_u64 << (exponent - 20))
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            x(buffer),
            BOTTOM + 18.0
        );
    }
    for (route, colour) in routes.iter().zip(COLOURS.iter().cycle()) {
        let points: Vec<String> = EXPONENTS
            .map(|exponent| {
                let buffer = 2_f64.powi(exponent);
                format!("{:.1},{:.1}", x(buffer), y(route.one_by_one(buffer).0))
            })
            .collect();
        let top = y(route.pipelined(credits).0);
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <line x1=\"{LEFT}\" y1=\"{top:.1}\" x2=\"{RIGHT}\" y2=\"{top:.1}\" stroke=\"{colour}\" \
             stroke-width=\"2\" stroke-dasharray=\"6 4\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
            points.join(" "),
            RIGHT + 8.0,
            top + 4.0,
            escape(&route.name)
        );
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_route_within_the_picture() {
        let picture = svg(&Route::of_the_talk(), 512);
        assert_eq!(picture.matches("<polyline").count(), 3);
        assert!(picture.contains("10GigE") && !picture.contains("NaN"));
        let numbers = picture.split("points=\"").skip(1).flat_map(|rest| {
            rest.split('"').next().unwrap().split([' ', ',']).map(|n| n.parse::<f64>().unwrap())
        });
        for number in numbers {
            assert!((0.0..=WIDTH).contains(&number), "{number}");
        }
        let names = svg(&[Route { name: "<&>".into(), ..Route::of_the_talk()[0].clone() }], 1);
        assert!(names.contains("&lt;&amp;>"));
    }
}
