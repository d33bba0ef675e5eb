//! The filters of log lines: one for all, and one for a client that is looked at closely.

use std::net::IpAddr;

use frevo_server::client_served;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Layer};

/// A line is written when one of the filters lets it pass.
#[derive(Debug)]
pub(super) struct Filters {
    /// The filter of all lines.
    pub(super) all: EnvFilter,
    /// A filter of the lines that a core writes while it serves this client.
    pub(super) of_client: Option<(IpAddr, EnvFilter)>,
    /// True if a collector wants spans, at any level.
    pub(super) has_spans: bool,
}

/// The target of the spans that go to a collector. No line of the log has it.
pub(super) const SPANS: &str = "frevo::trace";

fn is_for_collector(metadata: &Metadata<'_>) -> bool {
    cfg!(feature = "traces") && metadata.target() == SPANS
}

impl Filters {
    pub(super) const fn new(all: EnvFilter) -> Self {
        Self { all, of_client: None, has_spans: false }
    }
}

impl<S: Subscriber> Layer<S> for Filters {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_for_collector(metadata) {
            return if self.has_spans { Interest::always() } else { Interest::never() };
        }
        let all = Layer::<S>::register_callsite(&self.all, metadata);
        let Some((_, filter)) = &self.of_client else { return all };
        let of_client = Layer::<S>::register_callsite(filter, metadata);
        if all.is_always() || (all.is_never() && of_client.is_never()) {
            all
        } else {
            // `sometimes` makes `tracing` ask for each event again, because the decision depends on
            // the client of the span.
            Interest::sometimes()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>, context: Context<'_, S>) -> bool {
        if is_for_collector(metadata) {
            return self.has_spans;
        }
        Layer::<S>::enabled(&self.all, metadata, context.clone())
            || self.of_client.as_ref().is_some_and(|(client, filter)| {
                client_served() == Some(*client) && Layer::<S>::enabled(filter, metadata, context)
            })
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let mut all = EnvFilter::max_level_hint(&self.all);
        if self.has_spans {
            all = all.map(|level| level.max(LevelFilter::ERROR));
        }
        let Some((_, filter)) = &self.of_client else { return all };
        // If one filter has no hint, it may let every level pass. Then `?` returns None, which
        // means no hint for all filters together.
        Some(all?.max(EnvFilter::max_level_hint(filter)?))
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        Layer::<S>::on_new_span(&self.all, attributes, id, context);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        Layer::<S>::on_record(&self.all, id, values, context);
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        Layer::<S>::on_enter(&self.all, id, context);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        Layer::<S>::on_exit(&self.all, id, context);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        Layer::<S>::on_close(&self.all, id, context);
    }
}
