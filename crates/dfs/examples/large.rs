//! The time and the memory of a namespace of many links, and the times of referrals from it:
//! `cargo run --release -p frevo-dfs --example large [LINKS]`.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "it measures")]

use std::hint::black_box;
use std::time::Instant;

use frevo_dfs::{Asker, Link, Namespace, Namespaces, Root, Target};

/// Resident memory in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or_default() * 4096
}

fn path(number: usize) -> String {
    format!("division{}\\department{}\\project {number:06}", number % 16, number % 1_000)
}

fn main() {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let (before, began) = (resident(), Instant::now());
    let link = |number: usize| {
        let target = |server: &str| {
            let text = format!("\\\\{server}.example.com\\projects\\{number:06}");
            Target::new(&text).expect("a target")
        };
        let (one, two) = (format!("server{}", number % 40), format!("second{}", number % 37));
        Link::new(&path(number), vec![target(&one), target(&two)]).ok()
    };
    let links: Vec<Link> = (0..count).filter_map(link).collect();
    let namespace = Namespace::new("files", Root::Own).with_links(links).expect("good links");
    let loaded = began.elapsed();
    let memory = resident().saturating_sub(before);
    println!("{} links: {loaded:?}, {} MB", namespace.links().len(), memory >> 20);
    let namespaces: Namespaces = [namespace].into_iter().collect();
    let mut times: Vec<_> = (0..100_000)
        .map(|turn| {
            let path = format!("\\server\\files\\{}\\a\\b", path(turn * 7919 % count));
            let began = Instant::now();
            let number = turn as u64;
            let asker = Asker { number, is_near: &|_| false, is_failing: &|_| false };
            let response = namespaces.referrals(&path, &asker).expect("a referral");
            black_box(response.encode_within(4, 4096));
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!(
        "referral: median {:?}, 99 % {:?}",
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    );
}
