//! Random clients: requests good, bad and mutated, in any order, on several
//! connections. Whatever they do, the server answers the next one, and nothing
//! of them is left when they are gone.
#![allow(clippy::print_stdout, reason = "tests")]

mod client;

use std::time::{Duration, Instant};

use client::settings;
use client::world::{play, play_under_caps};
use frevo_server::Settings;
use frevo_server::internal::state::Kind;
use frevo_server::settings::Encryption;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// How long each test draws new scripts.
const TIME: Duration = Duration::from_secs(5);

fn random_scripts(settings: &Settings) {
    repeatedly(proptest::collection::vec(any::<u8>(), 0..2000), |bytes| {
        play(settings.clone(), &bytes);
    });
}

/// Runs `test` on values of `strategy` for [`TIME`].
fn repeatedly<S: Strategy>(strategy: S, test: impl Fn(S::Value)) {
    let begun = Instant::now();
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let mut scripts = 0;
    while begun.elapsed() < TIME {
        let one = Config {
            cases: 1,
            max_shrink_iters: 400,
            failure_persistence: None,
            ..Config::default()
        };
        runner = TestRunner::new_with_rng(one, runner.new_rng());
        let played = runner.run(&strategy, |value| {
            test(value);
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

/// Whatever is refused, and wherever in a request: at the end nothing is charged, and nothing was
/// given back twice (`World::wind_up`).
#[test]
fn random_scripts_under_changing_caps_leave_nothing_charged() {
    let kind = proptest::sample::select(&Kind::ALL[..]);
    let caps = proptest::collection::vec((kind, proptest::option::of(0..6_usize)), 1..24);
    let script = proptest::collection::vec(any::<u8>(), 0..2000);
    repeatedly((script, caps), |(bytes, caps)| play_under_caps(settings(), &bytes, &caps));
}
