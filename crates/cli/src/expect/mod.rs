//! `frevo expect`: how fast a server can be, and what keeps it from it.

mod formula;
mod measure;
mod plot;

use std::path::PathBuf;

use clap::{Args, ValueHint};
use serde_json::json;

use crate::exit::{Done, Failure};
use crate::remote::connection_options::Connection;
use crate::remote::location::Url;
use crate::remote::output::{human, line, parse_size};
use formula::{Route, megabytes};
use measure::Measured;

/// `frevo expect`
#[derive(Debug, Args)]
pub(crate) struct Expect {
    /// Round-trip time of the network, in milliseconds
    #[arg(long, value_name = "MS", requires = "network")]
    latency: Option<f64>,

    /// Bandwidth of the network, in million bytes per second
    #[arg(long, value_name = "MB/S", requires = "latency")]
    network: Option<f64>,

    /// Throughput of the server, in million bytes per second
    #[arg(long, value_name = "MB/S", default_value_t = 5_000.0)]
    server: f64,

    /// Sizes of the requests (bytes; k, M)
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "64k,16k,4k", value_parser = parse_size)]
    buffers: Vec<u64>,

    /// Credits that the server grants; each allows 64 KiB of pending requests
    #[arg(long, value_name = "N", default_value_t = 512)]
    credits: u32,

    /// Measure this server: writes, reads and removes a file of 64 MiB in the
    /// share
    #[arg(long, value_name = "URL")]
    measure: Option<Url>,

    /// Write a diagram of throughput by request size to this SVG file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    plot: Option<PathBuf>,

    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn run(expect: &Expect) -> Done {
    let measured = match &expect.measure {
        None => None,
        Some(url) => Some(crate::remote::block_on(
            "interrupted",
            measure::measure(&expect.connection, url, &expect.buffers),
        )?),
    };
    let routes = match (&measured, expect.latency, expect.network) {
        (Some(measured), ..) => vec![measured.route.clone()],
        (None, Some(latency), Some(network)) => vec![Route {
            name: format!("{latency} ms, {network} MB/s"),
            latency: latency / 1e3,
            network: network * 1e6,
            server: expect.server * 1e6,
        }],
        _ => Route::of_the_talk().to_vec(),
    };
    let is_sound =
        |route: &Route| route.latency >= 0.0 && route.network > 0.0 && route.server > 0.0;
    if !routes.iter().all(is_sound) || expect.buffers.contains(&0) {
        let text = "latency, bandwidth, throughput and sizes must be positive numbers";
        return Err(Failure::new(crate::exit::Exit::Usage, text));
    }
    if let Some(path) = &expect.plot {
        std::fs::write(path, plot::svg(&routes, expect.credits))
            .map_err(Failure::failed(format!("cannot write {}", path.display())))?;
    }
    if expect.connection.json {
        objects(expect, &routes, measured.as_ref());
    } else {
        table(expect, &routes);
        if let Some(measured) = &measured {
            tell(expect, measured);
        }
    }
    Ok(())
}

fn table(expect: &Expect, routes: &[Route]) {
    let width = routes.iter().map(|route| route.name.len()).max().unwrap_or(0).max(10);
    let heads: String =
        expect.buffers.iter().map(|buffer| format!("{:>14}", human(*buffer))).collect();
    line(format_args!("{:width$}{heads}{:>14}  limited by", "", "pipelined"));
    for route in routes {
        let cells: String = expect
            .buffers
            .iter()
            .map(|buffer| format!("{:>9} MB/s", megabytes(route.one_by_one(*buffer as f64).0)))
            .collect();
        let (rate, limit) = route.pipelined(expect.credits);
        let advice = limit.advice();
        line(format_args!("{:width$}{cells}{:>9} MB/s  {advice}", route.name, megabytes(rate)));
    }
}

fn tell(expect: &Expect, measured: &Measured) {
    let route = &measured.route;
    line(format_args!(
        "\nmeasured: latency {:.3} ms, {} MB/s with many requests at a time",
        route.latency * 1e3,
        megabytes(measured.pipelined)
    ));
    for (buffer, rate) in expect.buffers.iter().zip(&measured.one_by_one) {
        let (expected, limit) = route.one_by_one(*buffer as f64);
        line(format_args!(
            "one request of {:>5} at a time: {} MB/s, {:.0}% of the estimate; limited by {}",
            human(*buffer),
            megabytes(*rate),
            rate / expected * 100.0,
            limit.advice()
        ));
    }
    line(format_args!("credits needed for the full bandwidth: {}", route.credits_needed()));
}

fn objects(expect: &Expect, routes: &[Route], measured: Option<&Measured>) {
    for route in routes {
        let (pipelined, limit) = route.pipelined(expect.credits);
        let one_by_one: Vec<_> = expect
            .buffers
            .iter()
            .enumerate()
            .map(|(at, buffer)| {
                let (rate, limit) = route.one_by_one(*buffer as f64);
                json!({
                    "buffer": buffer,
                    "bytes_per_second": rate,
                    "limit": limit.name(),
                    "measured": measured.and_then(|m| m.one_by_one.get(at)),
                })
            })
            .collect();
        line(json!({
            "name": route.name,
            "latency_seconds": route.latency,
            "one_by_one": one_by_one,
            "pipelined": pipelined,
            "limit": limit.name(),
            "credits_needed": route.credits_needed(),
        }));
    }
}
