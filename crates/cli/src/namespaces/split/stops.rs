//! The places at which tests interrupt a split.

/// Ends the program at a step, as a crash does, if a test asks for it.
pub(super) fn stop_at(step: &str) {
    #[cfg(feature = "test-hooks")]
    if std::env::var("FREVO_TEST_SPLIT_STOP").is_ok_and(|wanted| wanted == step) {
        std::process::exit(99);
    }
    #[cfg(not(feature = "test-hooks"))]
    let _ = step;
}
