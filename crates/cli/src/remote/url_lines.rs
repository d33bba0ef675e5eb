//! Lines about several URLs, as `attrib` and `du` print them.

use std::ops::ControlFlow;

use super::failures::{Failures, in_order};
use super::location::Url;
use super::output::line;
use crate::exit::{Done, Failure};

/// Prints the lines about each URL, in the order of the URLs, many of which are asked about at the same
/// time. Failures are noted.
///
/// # Errors
/// A failure that all other URLs would meet too.
pub(crate) async fn print_each(
    urls: &[Url],
    ask: impl AsyncFn(&Url, &mut Failures) -> Result<Vec<String>, Failure>,
    failures: &mut Failures,
) -> Done {
    let ask = &ask;
    let all = urls.iter().map(|url| async move {
        let mut own = Failures::default();
        (ask(url, &mut own).await, own)
    });
    let show = async |(shown, own): (Result<Vec<String>, Failure>, Failures)| {
        failures.merge(own);
        match shown {
            Ok(lines) if !lines.iter().all(line) => ControlFlow::Break(Ok(())),
            shown => failures.goes_on(shown.map(drop)),
        }
    };
    in_order(all, show).await
}
