//! Latency over percentiles, as a picture.

use std::fmt::Write;

use super::measure::Measured;
use super::report::{rate, time};
use crate::svg::{self, COLOURS, escape};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 600.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 400.0;
/// The percentiles of the axis go up to this many nines.
const NINES: f64 = 5.0;
/// Points of a line between two nines.
const STEPS: u32 = 10;

/// A line for each test: the latency that a part of its operations did not exceed.
pub(super) fn picture(title: &str, results: &[Measured]) -> String {
    let measured = || results.iter().filter(|one| !one.latency.is_empty());
    let least = measured().map(|one| one.latency.min()).min().unwrap_or(1_000).max(1);
    let most = measured().map(|one| one.latency.max()).max().unwrap_or(1_000_000);
    let first = (least as f64).log10().floor();
    let last = (most as f64).log10().ceil().max(first + 1.0);
    let x = |nines: f64| LEFT + nines / NINES * (RIGHT - LEFT);
    let y = |ns: u64| {
        let part = ((ns.max(1) as f64).log10() - first) / (last - first);
        BOTTOM - part.clamp(0.0, 1.0) * (BOTTOM - TOP)
    };
    let mut out = svg::begin(WIDTH, HEIGHT, LEFT, title);
    let mut decade = first;
    while decade <= last {
        // The value is a power of ten below 2^63, so the cast is exact.
        let ns = 10_f64.powf(decade) as u64;
        let label = time(ns).replace(".0 ", " ");
        svg::grid_line(&mut out, LEFT..RIGHT, y(ns), &label);
        decade += 1.0;
    }
    for (nines, label) in
        ["0 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %"].iter().enumerate()
    {
        let at = x(nines as f64);
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{BOTTOM}\" stroke=\"#ddd\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            BOTTOM + 18.0
        );
    }
    let (middle, bottom) = (f64::midpoint(LEFT, RIGHT), BOTTOM + 40.0);
    let _ = writeln!(
        out,
        "<text x=\"{middle:.1}\" y=\"{bottom:.1}\" text-anchor=\"middle\" fill=\"#555\">\
         part of the operations that took no longer than the latency</text>"
    );
    for (at, (one, colour)) in measured().zip(COLOURS.iter().cycle()).enumerate() {
        let most = (one.latency.len() as f64).log10().clamp(0.1, NINES);
        let steps = (most * f64::from(STEPS)).ceil() as u32;
        let points: Vec<String> = (0..=steps)
            .map(|step| {
                let nines = (f64::from(step) / f64::from(STEPS)).min(most);
                let ns = one.latency.value_at_quantile(1.0 - 10_f64.powf(-nines));
                format!("{:.1},{:.1}", x(nines), y(ns))
            })
            .collect();
        let dash = if at < COLOURS.len() { "" } else { " stroke-dasharray=\"6 4\"" };
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}: {}</text>",
            points.join(" "),
            RIGHT + 12.0,
            TOP + 10.0 + 20.0 * at as f64,
            escape(&one.test.name()),
            escape(&rate(one))
        );
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;

    use super::*;
    use crate::bench::workload::Test;

    #[test]
    fn a_line_for_each_test_within_the_picture() {
        let measured = |test, latencies: &[u64]| {
            let mut latency = Histogram::new(3).unwrap();
            latencies.iter().for_each(|one| latency.record(*one).unwrap());
            let operations = latencies.len() as u64;
            let (bytes, entries, seconds, cpu_seconds) = (0, 0, 1.0, 1.0);
            Measured { test, depth: 1, operations, bytes, entries, seconds, cpu_seconds, latency }
        };
        let many: Vec<u64> = (1..2_000).map(|n| n * 1_000).collect();
        let results = [
            measured(Test::Read, &many),
            measured(Test::Stat, &[70_000]),
            measured(Test::Delete, &[]),
        ];
        let picture = picture("a < b", &results);
        assert_eq!(picture.matches("<polyline").count(), 2);
        assert!(picture.contains("a &lt; b") && !picture.contains("delete"));
        assert!(!picture.contains("NaN") && !picture.contains("inf"));
        let numbers = picture.split("points=\"").skip(1).flat_map(|rest| {
            rest.split('"').next().unwrap().split([' ', ',']).map(|n| n.parse::<f64>().unwrap())
        });
        for number in numbers {
            assert!((0.0..=WIDTH).contains(&number), "{number}");
        }
    }
}
