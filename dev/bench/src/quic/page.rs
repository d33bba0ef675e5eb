//! The page of `frevo-bench quic`, with the goals that it shows.

use std::fmt::Write as _;

use anyhow::Result;

use super::{Figures, Lossy, Over, Results, Row};

/// The least part of the rate of sealed TCP on the loopback.
const RATE_OF_TCP: f64 = 0.5;
/// The most times of its processor time for a byte.
const CPU_OF_TCP: f64 = 2.0;
/// The most round trips of a logon.
const TRIPS: f64 = 4.0;
/// The least rate at 10 ms and a loss of 0.1 %: 85 % of 1 Gbit/s, bytes per second.
const LOSSY_RATE: f64 = 0.85 * 125e6;
/// The most memory of 10,000 idle clients, KiB.
const IDLE_KIB: f64 = 300e6 / 1024.0;
/// The largest program, bytes.
const PROGRAM: u64 = 24_000_000;

/// One goal of the page.
struct Goal {
    text: String,
    found: String,
    is_met: bool,
}

/// Returns the page, and true if all goals are met that could be measured.
pub(super) fn page(results: &Results) -> Result<(String, bool)> {
    let mut out = String::from("# SMB over QUIC beside sealed TCP\n\n");
    out.push_str("`frevo-bench quic --out docs/benchmarks/quic.md`, as root for the links that lose packets.\n\n");
    for line in &results.head {
        writeln!(out, "- {line}")?;
    }
    let goals = goals(results);
    writeln!(out, "\n| goal | found | |\n|---|---|---|")?;
    for Goal { text, found, is_met } in &goals {
        writeln!(out, "| {text} | {found} | {} |", if *is_met { "met" } else { "**missed**" })?;
    }
    writeln!(out, "\n## Loopback\n")?;
    table(&mut out, &results.local, &Over::ALL)?;
    match &results.lossy {
        Ok(all) => {
            for lossy in all {
                writeln!(out, "\n## 10 ms, {} of packets lost\n", loss(lossy))?;
                table(&mut out, &lossy.rows, &Over::ALL)?;
            }
        }
        Err(why) => {
            writeln!(out, "\n## Links that lose packets\n\nSkipped: {why}.")?;
            writeln!(out, "Over a relay in user space, which has no limit of rate, QUIC alone:")?;
            for lossy in &results.relayed {
                writeln!(out, "\n### 10 ms, {} of datagrams lost\n", loss(lossy))?;
                table(&mut out, &lossy.rows, &[Over::Quic])?;
            }
        }
    }
    let trips = results.trips;
    writeln!(
        out,
        "\n## Round trips\n\n{:.2} from the first packet to the end of the logon, {:.2} until the share is connected.",
        trips.logon, trips.share
    )?;
    if let Some(idle) = results.idle {
        writeln!(
            out,
            "\n## Idle clients\n\nThe server's proportional set size: {} KiB, with {} clients {} KiB.",
            idle.before_kib, idle.clients, idle.during_kib
        )?;
    }
    Ok((out, goals.iter().all(|goal| goal.is_met)))
}

fn loss(lossy: &Lossy) -> String {
    format!("{} %", f64::from(lossy.lost_of_million) / 1e4)
}

fn goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    for row in &results.local {
        let (rate, cpu) = (ratio(row, |it| &it.rates), ratio(row, |it| &it.cpu));
        goals.push(Goal {
            text: format!("{} on the loopback: half of the rate of sealed TCP", row.test),
            found: format!("{rate:.2}"),
            is_met: rate >= RATE_OF_TCP,
        });
        goals.push(Goal {
            text: format!("{}: twice its processor time for a byte at most", row.test),
            found: format!("{cpu:.2}"),
            is_met: cpu <= CPU_OF_TCP,
        });
    }
    for (at, lossy) in results.lossy.iter().flatten().enumerate() {
        for row in &lossy.rows {
            let (quic, tcp) = (middle(&row.quic.rates), middle(&row.tcp.rates));
            goals.push(match at {
                0 => Goal {
                    text: format!(
                        "{} at 10 ms and {} loss: 85 % of 1 Gbit/s",
                        row.test,
                        loss(lossy)
                    ),
                    found: format!("{:.0} MB/s", quic / 1e6),
                    is_met: quic >= LOSSY_RATE,
                },
                _ => Goal {
                    text: format!("{} at {} loss: better than TCP", row.test, loss(lossy)),
                    found: format!("{:.1} and {:.1} MB/s", quic / 1e6, tcp / 1e6),
                    is_met: quic > tcp,
                },
            });
        }
    }
    goals.push(Goal {
        text: String::from("a logon in at most 4 round trips"),
        found: format!("{:.2}", results.trips.logon),
        is_met: results.trips.logon.floor() <= TRIPS,
    });
    if let Some(idle) = results.idle {
        let each = idle.during_kib.saturating_sub(idle.before_kib) as f64 / idle.clients as f64;
        let whole = idle.before_kib as f64 + each * 10_000.0;
        goals.push(Goal {
            text: format!("10,000 idle clients in 300 MB ({} measured)", idle.clients),
            found: format!("{:.0} MB, {each:.1} KiB each", whole * 1024.0 / 1e6),
            is_met: whole <= IDLE_KIB,
        });
    }
    goals.push(Goal {
        text: String::from("the program under 24 MB"),
        found: format!("{:.1} MB without symbols", results.program_bytes as f64 / 1e6),
        is_met: results.program_bytes < PROGRAM,
    });
    goals
}

fn table(out: &mut String, rows: &[Row], over: &[Over]) -> Result<()> {
    writeln!(out, "| test | transport | MB/s | least | most | server CPU s/GB |")?;
    writeln!(out, "|---|---|---:|---:|---:|---:|")?;
    for row in rows {
        for over in over {
            let figures = match over {
                Over::Tcp => &row.tcp,
                Over::Quic => &row.quic,
            };
            let (least, most) =
                figures.rates.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), rate| {
                    (least.min(*rate), most.max(*rate))
                });
            writeln!(
                out,
                "| {} | {} | {:.1} | {:.1} | {:.1} | {:.2} |",
                row.test,
                over.name(),
                middle(&figures.rates) / 1e6,
                least / 1e6,
                most / 1e6,
                middle(&figures.cpu)
            )?;
        }
    }
    Ok(())
}

/// QUIC over TCP: the middle of the rounds' ratios, whose two figures were measured one after the other.
fn ratio(row: &Row, of: impl Fn(&Figures) -> &Vec<f64>) -> f64 {
    let turns = of(&row.quic).iter().zip(of(&row.tcp));
    let ratios: Vec<f64> = turns.map(|(quic, tcp)| quic / tcp.max(1e-9)).collect();
    middle(&ratios)
}

fn middle(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::super::{Idle, Trips};
    use super::*;

    fn row(test: &'static str, tcp: f64, quic: f64) -> Row {
        let of = |rate: f64, cpu| Figures { rates: vec![rate * 1e6], cpu: vec![cpu] };
        Row { test, tcp: of(tcp, 1.0), quic: of(quic, 1.5) }
    }

    fn results() -> Results {
        Results {
            head: Vec::new(),
            local: vec![row("read", 1_000.0, 600.0), row("write", 1_000.0, 600.0)],
            trips: Trips { logon: 4.05, share: 5.06 },
            idle: Some(Idle { clients: 5_000, before_kib: 20_000, during_kib: 120_000 }),
            lossy: Ok(vec![
                Lossy { lost_of_million: 1_000, rows: vec![row("read", 10.0, 110.0)] },
                Lossy { lost_of_million: 10_000, rows: vec![row("read", 10.0, 11.0)] },
            ]),
            relayed: Vec::new(),
            program_bytes: 20_000_000,
        }
    }

    #[test]
    fn each_goal_can_be_missed() {
        assert!(page(&results()).unwrap().1);
        let misses: [fn(&mut Results); 6] = [
            |it| it.local[0] = row("read", 1_000.0, 490.0),
            |it| it.local[1].quic.cpu = vec![2.1],
            |it| it.trips.logon = 5.01,
            |it| it.idle = Some(Idle { clients: 5_000, before_kib: 20_000, during_kib: 170_000 }),
            |it| {
                it.lossy =
                    Ok(vec![Lossy { lost_of_million: 1_000, rows: vec![row("read", 1.0, 106.0)] }])
            },
            |it| it.program_bytes = PROGRAM,
        ];
        for miss in misses {
            let mut results = results();
            miss(&mut results);
            let (text, is_met) = page(&results).unwrap();
            assert!(!is_met && text.matches("**missed**").count() == 1, "{text}");
        }
    }

    #[test]
    fn links_that_cannot_be_had_are_named() {
        let lossy = Err(String::from("it needs root"));
        let (text, is_met) = page(&Results { lossy, ..results() }).unwrap();
        assert!(is_met && text.contains("Skipped: it needs root."), "{text}");
    }
}
