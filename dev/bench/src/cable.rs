//! `frevo-bench cable`: the rates of two links while one is cut and given back, as a picture.

use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::common::Common;
use crate::links::Links;
use crate::plot::{Anchor, COLOURS, Picture, Point};
use crate::server::{self, Kind, Peer};
use crate::share;

/// Time between two looks at the counters.
const LOOK: Duration = Duration::from_millis(100);
/// Time that the client has to begin, and to end.
const MARGIN: Duration = Duration::from_secs(10);
/// Least rate of a link that is in use, bytes per second.
const IN_USE: f64 = 1e6;

/// `frevo-bench cable`
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Rates of the two links, in the words of tc.
    #[arg(long, value_delimiter = ',', num_args = 1.., default_values = ["1gbit", "1gbit"])]
    rates: Vec<String>,
    /// Names of the two links in the picture.
    #[arg(long, value_delimiter = ',', num_args = 1.., default_values = ["link 1", "link 2"])]
    names: Vec<String>,
    /// The link that is cut, 1 or 2.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    cut: u8,
    /// Seconds with both links, then with one, then with both again.
    #[arg(long, default_value_t = 4.0)]
    phase: f64,
    /// Write the picture here.
    #[arg(long, value_name = "FILE.svg")]
    out: Option<PathBuf>,
}

/// The rates of both links at one time, bytes per second.
struct Sample {
    /// Seconds since the client has begun to read.
    at: f64,
    rates: [f64; 2],
}

/// Reads over two links, cuts one in the middle, and prints and plots the rates.
pub(crate) fn run(args: &Arguments) -> Result<()> {
    ensure!(args.rates.len() == 2 && args.names.len() == 2, "--rates and --names take two");
    let scratch = args.common.scratch()?;
    let files = share::prepare(scratch.path(), false)?;
    let programs = args.common.programs();
    let peer =
        server::start_at("0.0.0.0", Kind::Frevo, "Frevo", &files, scratch.path(), &programs)?;
    let links = Links::new(&args.rates)?;
    let mut client = start(args, &peer, &links)?;
    let samples = watch(args, &links);
    let _ = client.kill();
    client.wait()?;
    let samples = samples?;
    println!("| seconds | link 1 MB/s | link 2 MB/s |\n|---:|---:|---:|");
    for sample in &samples {
        let [first, second] = sample.rates;
        println!("| {:.1} | {:.0} | {:.0} |", sample.at, first / 1e6, second / 1e6);
    }
    if let Some(path) = &args.out {
        std::fs::write(path, picture(args, &samples))?;
    }
    Ok(())
}

/// Starts a client that reads for longer than the links are watched.
fn start(args: &Arguments, peer: &Peer, links: &Links) -> Result<Child> {
    let port = peer.target.addr.rsplit(':').next().context("a port")?;
    let url = format!("smb://{}@{}:{port}/share", peer.target.user, links.address()?);
    let time = args.phase * 3.0 + MARGIN.as_secs_f64() * 2.0;
    let child = links
        .command(&peer.programs.frevo)
        .args(["bench", &url, "--only", "read", "--size", "64M", "--depth", "16"])
        .args(["--time", &time.to_string(), "--channels", "4"])
        .env("FREVO_PASSWORD", &peer.target.password)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    Ok(child)
}

fn watch(args: &Arguments, links: &Links) -> Result<Vec<Sample>> {
    let mut meter = Meter::new(links)?;
    let begun = Instant::now();
    // Waits until both links carry data, because the connection needs some time to use them.
    while meter.look()?.iter().any(|rate| *rate < IN_USE) {
        ensure!(begun.elapsed() < MARGIN, "the links are not used within {MARGIN:?}");
    }
    let begun = Instant::now();
    let mut samples = Vec::new();
    for phase in 0..3 {
        match phase {
            1 => links.cut(usize::from(args.cut) - 1)?,
            2 => links.mend(usize::from(args.cut) - 1)?,
            _ => {}
        }
        while begun.elapsed().as_secs_f64() < args.phase * f64::from(phase + 1) {
            let rates = meter.look()?;
            samples.push(Sample { at: begun.elapsed().as_secs_f64(), rates });
        }
    }
    Ok(samples)
}

/// The counters of both links.
struct Meter<'a> {
    links: &'a Links,
    at: Instant,
    bytes: [u64; 2],
}

impl<'a> Meter<'a> {
    fn new(links: &'a Links) -> Result<Self> {
        Ok(Self { links, at: Instant::now(), bytes: [links.sent_bytes(0)?, links.sent_bytes(1)?] })
    }

    /// Waits, and returns the rates since the last look.
    fn look(&mut self) -> Result<[f64; 2]> {
        std::thread::sleep(LOOK);
        let next = Self::new(self.links)?;
        let seconds = next.at.duration_since(self.at).as_secs_f64();
        let rate = |n: usize| next.bytes[n].saturating_sub(self.bytes[n]) as f64 / seconds;
        let rates = [rate(0), rate(1)];
        *self = next;
        Ok(rates)
    }
}

/// Size of the picture and of its margins.
const SIZE: Point = Point { x: 760.0, y: 320.0 };
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 40.0;

/// The scales of the picture.
struct Scales {
    /// The greatest rate, bytes per second.
    top: f64,
    /// The whole time, seconds.
    whole: f64,
}

impl Scales {
    fn x(&self, seconds: f64) -> f64 {
        LEFT + (SIZE.x - LEFT - RIGHT) * seconds.min(self.whole) / self.whole
    }

    fn y(&self, rate: f64) -> f64 {
        SIZE.y - BOTTOM - (SIZE.y - TOP - BOTTOM) * rate / self.top
    }
}

/// Draws the rate of the second link on top of that of the first: the upper edge is the rate of both.
fn picture(args: &Arguments, samples: &[Sample]) -> String {
    let most = samples.iter().map(|sample| sample.rates.iter().sum::<f64>()).fold(1e6, f64::max);
    let scales = Scales { top: (most / 50e6).ceil() * 50e6, whole: args.phase * 3.0 };
    let mut out = Picture::new(SIZE, 12);
    out.title(Point { x: LEFT, y: 20.0 }, "Rate of one client that reads, MB/s");
    axes(&mut out, &scales);
    for (link, colour) in COLOURS.into_iter().take(2).enumerate() {
        let edge = |links: usize| {
            let scales = &scales;
            move |sample: &Sample| Point {
                x: scales.x(sample.at),
                y: scales.y(sample.rates[..links].iter().sum()),
            }
        };
        let upper = samples.iter().map(edge(link + 1));
        out.area(upper.chain(samples.iter().rev().map(edge(link))), colour);
        let x = LEFT + 310.0 + 190.0 * link as f64;
        out.square(Point { x, y: 9.0 }, 14.0, colour);
        let text = format!("over {}, {}", args.names[link], in_words(&args.rates[link]));
        out.text(Point { x: x + 20.0, y: 20.0 }, Anchor::Start, &text);
    }
    for at in [args.phase, args.phase * 2.0] {
        let x = scales.x(at);
        let (from, to) = (Point { x, y: TOP - 16.0 }, Point { x, y: SIZE.y - BOTTOM });
        out.dashed_line(from, to, "black");
    }
    let text = format!("no packet over {}", args.names[usize::from(args.cut) - 1]);
    out.text(Point { x: scales.x(args.phase * 1.5), y: TOP - 6.0 }, Anchor::Middle, &text);
    out.finish()
}

/// Returns a rate in the words of tc in those of readers: `1gbit` is 1 Gbit/s.
fn in_words(rate: &str) -> String {
    let split = rate.find(|c: char| c.is_alphabetic()).unwrap_or(rate.len());
    let (number, unit) = rate.split_at(split);
    match unit {
        "gbit" => format!("{number} Gbit/s"),
        "mbit" => format!("{number} Mbit/s"),
        _ => rate.to_owned(),
    }
}

/// Draws the grid with its labels.
fn axes(out: &mut Picture, scales: &Scales) {
    for step in 0..=5 {
        let rate = scales.top * f64::from(step) / 5.0;
        let y = scales.y(rate);
        out.line(Point { x: LEFT, y }, Point { x: SIZE.x - RIGHT, y }, "#ddd");
        let at = Point { x: LEFT - 6.0, y: y + 4.0 };
        out.text(at, Anchor::End, &format!("{:.0}", rate / 1e6));
    }
    for second in 0..=scales.whole as u32 {
        let at = Point { x: scales.x(f64::from(second)), y: SIZE.y - BOTTOM + 18.0 };
        out.text(at, Anchor::Middle, &second.to_string());
    }
    out.text(Point { x: SIZE.x - RIGHT, y: SIZE.y - 6.0 }, Anchor::End, "seconds");
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Arguments,
    }

    #[test]
    fn the_picture_stacks_the_links_and_names_them() {
        let args = Cli::parse_from(["cable", "--phase", "1", "--names", "cable,Wi-Fi"]).args;
        let samples: Vec<Sample> =
            (0..30).map(|n| Sample { at: f64::from(n) / 10.0, rates: [1e8, 2e8] }).collect();
        let svg = picture(&args, &samples);
        let edges: Vec<&str> = svg.lines().filter(|line| line.starts_with("<polygon")).collect();
        // The top of the picture is 300 MB/s, so an edge at 100 MB/s is at a third of its height.
        let [first, second] = edges[..] else { panic!("{edges:?}") };
        assert!(
            first.contains("\"60.0,205.3 ") && first.ends_with(" 60.0,280.0\" fill=\"#0072b2\"/>")
        );
        assert!(second.contains("\"60.0,56.0 ") && second.contains(" 60.0,205.3\""));
        assert!(svg.contains(">300</text>") && svg.contains("no packet over Wi-Fi"));
        assert!(svg.contains("over cable, 1 Gbit/s") && in_words("300mbit") == "300 Mbit/s");
    }
}
