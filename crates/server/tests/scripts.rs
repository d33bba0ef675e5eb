//! Random clients: requests good, bad and mutated, in any order, on several
//! connections. Whatever they do, the server answers the next one, and nothing
//! of them is left when they are gone.
#![allow(clippy::print_stdout, reason = "tests")]

mod client;

use std::time::{Duration, Instant};

use client::settings;
use client::world::play;
use frevo_server::Settings;
use frevo_server::settings::Encryption;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// How long each test draws new scripts.
const TIME: Duration = Duration::from_secs(5);

fn random_scripts(settings: &Settings) {
    let begun = Instant::now();
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let script = proptest::collection::vec(any::<u8>(), 0..2000);
    let mut scripts = 0;
    while begun.elapsed() < TIME {
        let one = Config {
            cases: 1,
            max_shrink_iters: 400,
            failure_persistence: None,
            ..Config::default()
        };
        runner = TestRunner::new_with_rng(one, runner.new_rng());
        let played = runner.run(&script, |bytes| {
            play(settings.clone(), &bytes);
            Ok(())
        });
        if let Err(failure) = played {
            panic!("after {scripts} scripts: {failure}");
        }
        scripts += 1;
    }
    println!("{scripts} scripts");
}

#[test]
fn random_scripts_do_no_harm() {
    random_scripts(&settings());
}

#[test]
fn random_scripts_do_no_harm_under_seal() {
    random_scripts(&Settings { encryption: Encryption::Required, ..settings() });
}
